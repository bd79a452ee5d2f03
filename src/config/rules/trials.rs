//! How texts of the file are tried: filled in for machines and notices as there may be some.
//!
//! The broker reads the same file as root and uses none of these texts. It tries none, so its program has neither the texts' language nor a
//! reader of YAML in it: less that root runs, and less of the host's memory.

use crate::config::cloud_init::{self, CloudInitKind, GapValues};
use crate::model::facts::{self, Facts};
use crate::model::notice::Notice;

/// What a text comes to, or what is wrong with it.
type TriedText = Result<String, String>;

/// What a text may name beside its machine: names with their values.
type FurtherNames<'n> = [(&'n str, &'n str)];

/// The functions that try a text.
#[derive(Debug)]
pub(in crate::config) struct TextTrials {
    /// A text about a machine; the pairs are what else it may name.
    pub(super) fill: fn(&str, &Facts<'_>, &FurtherNames<'_>) -> TriedText,
    /// A text about a machine's node, which may name its network cards; the pairs are what else it may name.
    pub(super) node: fn(&str, &Facts<'_>, &GapValues, &FurtherNames<'_>) -> TriedText,
    /// A text for cloud-init.
    pub(super) cloud_init: fn(CloudInitKind, &str, &Facts<'_>, &GapValues) -> TriedText,
    /// Whether user data say that cloud-init shall not read vendor data.
    pub(super) refuses_vendor_data: fn(&str) -> bool,
    /// The body of a notification.
    pub(super) notice: fn(&Notice, &str) -> TriedText,
}

/// All of them, for whoever uses the texts.
pub(in crate::config) static ALL: TextTrials = TextTrials {
    fill: facts::fill_with,
    node: cloud_init::filled_for_node,
    cloud_init: cloud_init::filled,
    refuses_vendor_data: cloud_init::refuses_vendor_data,
    notice: Notice::fill,
};

//! What the file names for machines beside hosts and templates, and a PVE cluster does not have.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Something that machines have by the file and that their PVE cluster lacks, or does not let them have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct LackingPart {
    /// What it is.
    pub kind: PartKind,
    /// Its name in the file.
    pub name: Arc<str>,
    /// The pools whose machines have it.
    pub pools: Vec<Arc<str>>,
}

/// What machines have by its name.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum PartKind {
    /// A security group of PVE's firewall: PVE takes a rule with one that is not there.
    SecurityGroup,
    /// A tag that the datacenter's options keep from the API token.
    Tag,
    /// A mapping of PCI devices.
    PciMapping,
    /// A mapping of USB devices.
    UsbMapping,
    /// A mapping of directories.
    DirMapping,
}

impl Display for PartKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PartKind::SecurityGroup => "security group",
            PartKind::Tag => "tag",
            PartKind::PciMapping => "mapping of PCI devices",
            PartKind::UsbMapping => "mapping of USB devices",
            PartKind::DirMapping => "mapping of directories",
        })
    }
}

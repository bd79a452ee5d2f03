//! kproximate's labels of nodes: zone and region are set by the program itself here, the others become the pool's.

use super::draft::DECIDE;
use super::kproximate::{quoted, was};
use super::settings::FoundSettings;
use crate::config::syntax;

/// Set by the program itself: the host.
const ZONE: &str = "topology.kubernetes.io/zone";
/// Set by the program itself: the name of the region's table.
const REGION: &str = "topology.kubernetes.io/region";

/// `kpNodeLabels`, read.
#[derive(Debug, Default)]
pub(super) struct KpNodeLabels {
    pub(super) was: String,
    pub(super) kept: Vec<(String, String)>,
    pub(super) notes: Vec<String>,
    region: Option<String>,
    pub(super) region_note: Option<String>,
}

impl KpNodeLabels {
    pub(super) fn of(found: &FoundSettings) -> KpNodeLabels {
        let mut labels = KpNodeLabels::default();
        let Some(setting) = found.get("kpNodeLabels") else {
            return labels;
        };
        labels.was = was("kpNodeLabels", setting);
        for label in setting
            .shown()
            .unwrap_or_default()
            .split(',')
            .map(str::trim)
        {
            match label.split_once('=') {
                Some((key, value)) => labels.label(key.trim(), value.trim()),
                None if label.is_empty() => {}
                None => labels.notes.push(format!(
                    "{DECIDE}: kpNodeLabels has {}, which is no key=value: kproximate stops there; left out",
                    quoted(label)
                )),
            }
        }
        labels
    }

    fn label(&mut self, key: &str, value: &str) {
        let value = with_gaps(value);
        if key == ZONE {
            let same = if value == "{{ host }}" {
                "as here"
            } else {
                "here it is the host, always"
            };
            self.notes.push(format!(
                "kpNodeLabels: {key} = {} is set by the program itself, {same}",
                quoted(&value)
            ));
        } else if key == REGION && syntax::dns_label(&value) {
            self.region_note = Some(format!(
                "kpNodeLabels: {key} = {}: the name of this table",
                quoted(&value)
            ));
            self.region = Some(value);
        } else if key == REGION {
            self.notes.push(format!(
                "{DECIDE}: kpNodeLabels: {key} = {} is the name of the region's table here, and this can be none",
                quoted(&value)
            ));
        } else if self.kept.iter().any(|(known, _)| known == key) {
            self.notes.push(format!(
                "{DECIDE}: kpNodeLabels has {key} twice; the first is taken"
            ));
        } else {
            self.kept.push((key.to_owned(), value));
        }
    }

    /// The header of the region's table.
    pub(super) fn region(&self) -> String {
        match &self.region {
            Some(name) => format!("region.{name}"),
            None => "proxmox".to_owned(),
        }
    }
}

/// kproximate's one gap in ours; others stay, for the file's own rules to judge.
fn with_gaps(value: &str) -> String {
    let mut text = String::new();
    let mut rest = value;
    while let Some((before, tail)) = rest.split_once("{{") {
        let Some((inner, after)) = tail.split_once("}}") else {
            break;
        };
        let name = inner.trim().trim_start_matches('.');
        text.push_str(before);
        if name.eq_ignore_ascii_case("targethost") {
            text.push_str("{{ host }}");
        } else {
            text.extend(["{{", inner, "}}"]);
        }
        rest = after;
    }
    text + rest
}

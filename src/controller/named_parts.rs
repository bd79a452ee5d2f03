//! What machines have by names of the file beside hosts and templates: security groups, tags, mappings of USB devices and directories. Which
//! list of PVE's is to be read next, and what of it is not there. What was never read counts as there. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::time::{Duration, Instant};

use crate::config::settings::{Channel, Settings};
use crate::config::vm_options;
use crate::controller::in_place::groups;
use crate::controller::vm_config;
use crate::model::lacking::{LackingPart, PartKind};
use crate::pve::TagRules;

/// A list is read again after this long: somebody may edit it.
const AGAIN: Duration = Duration::from_mins(30);
/// After this long if it could not be read.
const RETRY: Duration = Duration::from_mins(5);
/// After this long if something that the file names is not in it: somebody mends that.
const LACKING: Duration = Duration::from_mins(1);

/// What PVE told of one kind.
#[derive(Clone, Debug)]
pub(super) enum PartsThere {
    /// These are there.
    Names(BTreeSet<String>),
    /// These tags may be set.
    Tags(TagRules),
    /// Any may be had.
    All,
}

impl PartsThere {
    fn has(&self, name: &str) -> bool {
        match self {
            PartsThere::Names(names) => names.contains(name),
            PartsThere::Tags(rules) => rules.allows(name),
            PartsThere::All => true,
        }
    }
}

#[derive(Debug)]
struct PartsReading {
    at: Instant,
    told: bool,
    last: Option<PartsThere>,
}

/// What the file names in a region: by kind and name the pools whose machines have it.
pub(super) type NamedParts = BTreeMap<PartKind, BTreeMap<Arc<str>, BTreeSet<Arc<str>>>>;

/// The lists that were read last.
#[derive(Debug, Default)]
pub(super) struct NamedPartBook {
    readings: BTreeMap<PartKind, PartsReading>,
}

impl NamedPartBook {
    /// The kind that is read at `now`, the one that was read longest ago, if one is due. That of PCI devices is read with each poll.
    pub(super) fn due(&self, named: &NamedParts, now: Instant) -> Option<PartKind> {
        let asked = named.keys().filter(|kind| **kind != PartKind::PciMapping);
        let is_due = |kind: &PartKind| {
            let Some(reading) = self.readings.get(kind) else {
                return true;
            };
            let again = if !reading.told {
                RETRY
            } else if self.lacking_of(*kind, named).next().is_some() {
                LACKING
            } else {
                AGAIN
            };
            now.duration_since(reading.at) >= again
        };
        let due = asked.copied().filter(is_due);
        due.min_by_key(|kind| self.readings.get(kind).map(|reading| reading.at))
    }

    /// A kind that was never asked for.
    pub(super) fn unasked(&self, named: &NamedParts) -> Option<PartKind> {
        let mut asked = named.keys().filter(|kind| **kind != PartKind::PciMapping);
        asked
            .find(|kind| !self.readings.contains_key(kind))
            .copied()
    }

    /// PVE was asked at `now`; `None`: it did not tell, and what it told before stands.
    pub(super) fn record(&mut self, kind: PartKind, now: Instant, told: Option<PartsThere>) {
        let before = self.readings.remove(&kind).and_then(|reading| reading.last);
        let reading = PartsReading {
            at: now,
            told: told.is_some(),
            last: told.or(before),
        };
        self.readings.insert(kind, reading);
    }

    /// What the file names and PVE does not have, as far as that was read.
    pub(super) fn lacking(&self, named: &NamedParts) -> Vec<LackingPart> {
        let kinds = named.keys().copied();
        kinds
            .flat_map(|kind| self.lacking_of(kind, named))
            .collect()
    }

    fn lacking_of<'a>(
        &'a self,
        kind: PartKind,
        named: &'a NamedParts,
    ) -> impl Iterator<Item = LackingPart> + 'a {
        let there = self.readings.get(&kind).and_then(|of| of.last.as_ref());
        let all = named.get(&kind).into_iter().flatten();
        let missing = all.filter(move |(name, _)| there.is_some_and(|there| !there.has(name)));
        missing.map(move |(name, pools)| LackingPart {
            kind,
            name: name.clone(),
            pools: pools.iter().cloned().collect(),
        })
    }
}

/// What the file names in a region for machines of pools that may have some. `own_tags`: the tags of each copy of a template.
pub(super) fn named(
    settings: &Settings,
    region: &str,
    own_tags: impl Fn(&str) -> Vec<BTreeSet<String>>,
) -> NamedParts {
    let mut named = NamedParts::new();
    let on_token = settings
        .regions
        .get(region)
        .is_some_and(|of| matches!(of.channel, Channel::Token { .. }));
    for (pool, policy) in settings.policy.pools_in(region) {
        if policy.max == 0 {
            continue;
        }
        let mut add = |kind: PartKind, name: &str| {
            let pools = named.entry(kind).or_default();
            pools.entry(name.into()).or_default().insert(pool.clone());
        };
        for kind in &policy.instance_types {
            let devices = settings.policy.instance_types.get(kind);
            for device in devices.into_iter().flat_map(|kind| &kind.pci) {
                add(PartKind::PciMapping, &device.mapping);
            }
        }
        if let Some(template) = settings.templates.get(&policy.template) {
            for (group, _) in groups::wanted(template).unwrap_or_default() {
                add(PartKind::SecurityGroup, &group);
            }
            for (kind, path) in [(PartKind::UsbMapping, "usb"), (PartKind::DirMapping, "dir")] {
                for mapping in vm_options::mappings(&template.hardware.options, path) {
                    add(kind, &mapping);
                }
            }
        }
        // Root sets any tags.
        if let Some(of_pool) = settings.pools.get(pool).filter(|_| on_token) {
            for tag in vm_config::changed_tags(of_pool, &own_tags(&policy.template)) {
                add(PartKind::Tag, &tag);
            }
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(parts: &[(PartKind, &str)]) -> NamedParts {
        let mut named = NamedParts::new();
        for (kind, name) in parts {
            let of = named.entry(*kind).or_default();
            of.insert((*name).into(), [Arc::from("small")].into());
        }
        named
    }

    fn there(names: &[&str]) -> PartsThere {
        let names = names.iter().map(|name| (*name).to_owned());
        PartsThere::Names(names.collect())
    }

    fn names(lacking: &[LackingPart]) -> Vec<String> {
        let texts = lacking
            .iter()
            .map(|part| format!("{} {}", part.kind, part.name));
        texts.collect()
    }

    #[test]
    fn each_list_is_read_once_and_again_and_soon_where_something_lacks() {
        let start = Instant::now();
        let after = |minutes: u64| start + Duration::from_mins(minutes);
        let wanted = named(&[
            (PartKind::SecurityGroup, "web"),
            (PartKind::DirMapping, "data"),
        ]);
        let mut book = NamedPartBook::default();
        assert_eq!(book.due(&NamedParts::new(), start), None);
        assert_eq!(book.due(&wanted, start), Some(PartKind::SecurityGroup));
        assert_eq!(book.unasked(&wanted), Some(PartKind::SecurityGroup));
        book.record(PartKind::SecurityGroup, start, Some(there(&["web"])));
        assert_eq!(book.unasked(&wanted), Some(PartKind::DirMapping));
        assert_eq!(book.due(&wanted, start), Some(PartKind::DirMapping));
        book.record(PartKind::DirMapping, start, Some(there(&["other"])));
        assert_eq!(
            names(&book.lacking(&wanted)),
            ["mapping of directories data"]
        );
        assert_eq!(book.due(&wanted, start), None);
        assert_eq!(book.due(&wanted, after(1)), Some(PartKind::DirMapping));
        book.record(PartKind::DirMapping, after(1), Some(there(&["data"])));
        assert!(book.lacking(&wanted).is_empty());
        assert_eq!(book.due(&wanted, after(29)), None);
        assert_eq!(book.due(&wanted, after(30)), Some(PartKind::SecurityGroup));
    }

    /// A list that cannot be read is none that is empty.
    #[test]
    fn what_was_not_read_counts_as_there_or_as_it_was() {
        let start = Instant::now();
        let after = |minutes: u64| start + Duration::from_mins(minutes);
        let wanted = named(&[
            (PartKind::SecurityGroup, "web"),
            (PartKind::PciMapping, "gpu"),
        ]);
        let mut book = NamedPartBook::default();
        assert!(book.lacking(&wanted).is_empty());
        book.record(PartKind::SecurityGroup, start, None);
        assert_eq!(
            book.unasked(&wanted),
            None,
            "PCI devices are read with each poll"
        );
        assert!(book.lacking(&wanted).is_empty());
        assert_eq!(book.due(&wanted, after(4)), None);
        assert_eq!(book.due(&wanted, after(5)), Some(PartKind::SecurityGroup));
        book.record(PartKind::SecurityGroup, after(5), Some(there(&[])));
        book.record(PartKind::SecurityGroup, after(6), None);
        assert_eq!(names(&book.lacking(&wanted)), ["security group web"]);
        book.record(PartKind::PciMapping, after(6), Some(there(&[])));
        assert_eq!(book.lacking(&wanted).len(), 2);
    }

    #[test]
    fn of_tags_the_datacenters_rules_tell() {
        let start = Instant::now();
        let wanted = named(&[(PartKind::Tag, "prod")]);
        let mut book = NamedPartBook::default();
        let rules = TagRules {
            user_allow: "free".into(),
            registered: ["prod".to_owned()].into(),
            ..TagRules::default()
        };
        book.record(PartKind::Tag, start, Some(PartsThere::Tags(rules)));
        assert_eq!(names(&book.lacking(&wanted)), ["tag prod"]);
        book.record(PartKind::Tag, start, Some(PartsThere::All));
        assert!(book.lacking(&wanted).is_empty());
    }
}

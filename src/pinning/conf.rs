//! A VM's configuration as it lies in `/etc/pve/qemu-server`.

use std::collections::BTreeMap;

use crate::pve::decoded;

/// What is in force of it: snapshots and what is pending stand in sections below.
#[derive(Debug, Default)]
pub(super) struct Conf {
    /// The notes.
    pub(super) description: String,
    /// All else by key.
    pub(super) values: BTreeMap<String, String>,
}

impl Conf {
    /// Reads a file. A line that is none is passed over, as PVE does.
    pub(super) fn read(text: &str) -> Conf {
        let mut conf = Conf::default();
        for line in text.lines() {
            if line.starts_with('[') {
                break;
            }
            if let Some(note) = line.strip_prefix('#') {
                conf.description.push_str(&decoded(note));
                conf.description.push('\n');
            } else if let Some((key, value)) = line.split_once(':') {
                if key.trim() == "description" {
                    conf.description.push_str(&decoded(value.trim()));
                    conf.description.push('\n');
                } else {
                    conf.values.insert(key.trim().into(), value.trim().into());
                }
            }
        }
        conf
    }

    /// The guest's NUMA nodes by the vCPUs that each has: first, last, number of the host's node.
    pub(super) fn nodes(&self) -> Vec<(usize, usize, usize)> {
        let nodes = self.values.iter().filter(|(key, _)| {
            let number = key.strip_prefix("numa");
            number.is_some_and(|number| number.parse::<u8>().is_ok())
        });
        let mut found = Vec::new();
        for (_, value) in nodes {
            let of = |key: &str| {
                let mut parts = value.split(',').filter_map(|part| part.split_once('='));
                parts.find_map(|(name, value)| (name == key).then_some(value))
            };
            let Some(host) = of("hostnodes").and_then(|host| host.parse().ok()) else {
                continue;
            };
            for range in of("cpus").unwrap_or_default().split(';') {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                if let (Ok(first), Ok(last)) = (first.parse(), last.parse()) {
                    found.push((first, last, host));
                }
            }
        }
        found.sort_unstable();
        found
    }
}

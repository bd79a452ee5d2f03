//! The machines that are ours and there already, where the configuration is gone and they are not: by the marks of their VMs, as the daemon
//! itself knows them. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use super::free::Vmids;
use crate::model::mark::{Mark, Ownership};
use crate::pve::VmConfig;

/// Machines that are named in one sentence.
const NAMED: usize = 4;

/// The machines.
#[derive(Clone, Debug, Default)]
pub(super) struct FormerMachines {
    /// Their marks, by VMID.
    machines: BTreeMap<u32, Mark>,
    /// VMs that the cluster's machines have under another name than the file has for it (`kubernetes.name`): by that name. They are not ours.
    other_names: BTreeMap<String, BTreeSet<u32>>,
}

impl FormerMachines {
    /// Those among the VMs that carry a mark (no templates): the mark is intact, of this cluster (the UID of its namespace kube-system, and the
    /// name in the file), and made for this very VMID. None where the cluster is not known.
    pub(super) fn among(
        marked: &BTreeMap<u32, VmConfig>,
        cluster: Option<(&str, &str)>,
    ) -> FormerMachines {
        let mut found = FormerMachines::default();
        let Some((uid, name)) = cluster else {
            return found;
        };
        for (vmid, config) in marked {
            let Ownership::Marked(mark) = config.ownership() else {
                continue;
            };
            if mark.vmid != *vmid || config.template {
                continue;
            }
            match mark.cluster.split_once('/') {
                Some((of, named)) if of == uid && named == name => {
                    found.machines.insert(*vmid, Mark::clone(&mark));
                }
                Some((of, named)) if of == uid => {
                    let vmids = found.other_names.entry(named.to_owned()).or_default();
                    vmids.insert(*vmid);
                }
                _ => {}
            }
        }
        found
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.machines.len()
    }

    /// How many of them are of a pool.
    pub(super) fn count_of(&self, pool: &str) -> usize {
        let of_pool = self.machines.values().filter(|mark| mark.pool == pool);
        of_pool.count()
    }

    /// Whether the VM is one of them.
    pub(super) fn has(&self, vmid: u32) -> bool {
        self.machines.contains_key(&vmid)
    }

    /// Their VMIDs.
    pub(super) fn vmids(&self) -> BTreeSet<u32> {
        self.machines.keys().copied().collect()
    }

    /// Those in a range of VMIDs, named: `9003 (workers-ddlj7), 9004 (workers-xf4sj)`; `None` where there is none.
    pub(super) fn named_in(&self, (first, last): Vmids) -> Option<String> {
        named(|vmid| (first..=last).contains(&vmid), &self.machines)
    }

    /// Those outside of a range, named.
    pub(super) fn named_outside(&self, (first, last): Vmids) -> Option<String> {
        named(|vmid| !(first..=last).contains(&vmid), &self.machines)
    }

    /// All of them, named.
    pub(super) fn named(&self) -> Option<String> {
        named(|_| true, &self.machines)
    }

    /// The pool that most of them are of, the first by name of several.
    pub(super) fn pool(&self) -> Option<&str> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for mark in self.machines.values() {
            *counts.entry(&mark.pool).or_default() += 1;
        }
        let most = counts.values().copied().max()?;
        let mut pools = counts.into_iter().filter(|(_, count)| *count == most);
        pools.next().map(|(pool, _)| pool)
    }

    /// Their pools but one, each with its machines named.
    pub(super) fn other_pools(&self, but: &str) -> BTreeMap<&str, String> {
        let pools: BTreeSet<&str> = self.machines.values().map(|mark| &*mark.pool).collect();
        let others = pools.into_iter().filter(|pool| *pool != but);
        let with_names = others.filter_map(|pool| {
            let of_pool = |vmid: u32| self.machines.get(&vmid).is_some_and(|one| one.pool == pool);
            Some((pool, named(of_pool, &self.machines)?))
        });
        with_names.collect()
    }

    /// What the pool's machines call their template: the one that was made last.
    pub(super) fn template(&self, pool: &str) -> Option<&str> {
        let of_pool = self.machines.values().filter(|mark| mark.pool == pool);
        let newest = of_pool.max_by_key(|mark| (mark.created, mark.vmid));
        newest.map(|mark| &*mark.template)
    }

    /// IPv4 addresses that are reserved for their first network cards.
    pub(super) fn addresses(&self) -> BTreeSet<Ipv4Addr> {
        let first = self
            .machines
            .values()
            .filter_map(|mark| mark.addresses.get(&0));
        let v4 = first.flatten().filter_map(|address| match address {
            IpAddr::V4(address) => Some(*address),
            IpAddr::V6(_) => None,
        });
        v4.collect()
    }

    /// What is to be said of VMs whose marks are of this cluster under other names than `name`, the file's.
    pub(super) fn tell_other_names(&self, name: &str) -> Vec<String> {
        let told = self.other_names.iter().map(|(other, vmids)| {
            let vmids: Vec<String> = vmids.iter().map(u32::to_string).collect();
            format!(
                "VMs carry marks of this cluster under the name {other:?}, and the file has {name:?} (kubernetes.name): they are none of its machines, and are \
                 left alone: {}. If the file that is gone was theirs, end this, write `name = {other:?}` below [kubernetes] in the file, and run setup again",
                some(&vmids)
            )
        });
        told.collect()
    }
}

fn named(wanted: impl Fn(u32) -> bool, machines: &BTreeMap<u32, Mark>) -> Option<String> {
    let these = machines.iter().filter(|(vmid, _)| wanted(**vmid));
    let these: Vec<String> = these
        .map(|(vmid, mark)| format!("{vmid} ({})", mark.machine))
        .collect();
    (!these.is_empty()).then(|| some(&these))
}

/// The first ones, and how many more there are.
fn some(all: &[String]) -> String {
    let shown = all[..all.len().min(NAMED)].join(", ");
    match all.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::cpus::CpuSet;
    use crate::model::network::NicAddresses;
    use crate::model::time::Time;

    /// The cluster of these tests.
    pub(in crate::cli::setup) const CLUSTER: (&str, &str) = ("0b5f", "default");

    /// A mark of this cluster.
    pub(in crate::cli::setup) fn mark(vmid: u32, pool: &str) -> Mark {
        Mark {
            cluster: format!("{}/{}", CLUSTER.0, CLUSTER.1),
            machine: format!("{pool}-{vmid}"),
            vmid,
            pool: pool.to_owned(),
            instance_type: "small".to_owned(),
            template: "base".to_owned(),
            token: "abc123".to_owned(),
            created: Time(1_795_000_000_000 + i64::from(vmid)),
            addresses: NicAddresses::new(),
            cpus: CpuSet::new(),
            unknown: [].into(),
        }
    }

    /// The configuration of a VM with this description.
    pub(in crate::cli::setup) fn vm(description: &str) -> VmConfig {
        VmConfig::read(&json!({ "description": description, "digest": "d1" }))
    }

    fn among(vms: &[(u32, String)]) -> FormerMachines {
        let marked = vms.iter().map(|(vmid, text)| (*vmid, vm(text)));
        FormerMachines::among(&marked.collect(), Some(CLUSTER))
    }

    /// What is no proof for the daemon is none here.
    #[test]
    fn ours_are_those_with_an_intact_mark_of_this_cluster_and_for_this_vm() {
        let line = mark(9_003, "workers").line();
        let of = |cluster: &str| {
            let mark = Mark {
                cluster: cluster.to_owned(),
                ..mark(9_003, "workers")
            };
            mark.line()
        };
        assert_eq!(
            among(&[(9_003, format!("of Ann\n{line}"))]).vmids(),
            [9_003].into()
        );
        for (what, description) in [
            ("none", "just a VM".to_owned()),
            ("edited", line.replace("\"workers\"", "\"others\"")),
            ("not the last line", format!("{line}\ntext below")),
            ("another version", line.replace("v1", "v7")),
            ("another cluster", of("77aa/default")),
            ("the cluster under another name", of("0b5f/home")),
            ("no name", of("0b5f")),
        ] {
            let found = among(&[(9_003, description)]);
            assert_eq!(found.count(), 0, "{what}");
        }
        // A copy of a machine's VM has its mark, and another VMID.
        assert_eq!(among(&[(9_004, line.clone())]).count(), 0);
        let config = VmConfig {
            template: true,
            ..vm(&line)
        };
        let template = [(9_003, config)].into();
        assert_eq!(FormerMachines::among(&template, Some(CLUSTER)).count(), 0);
        // Nobody has told which cluster it is.
        let marked = [(9_003, vm(&line))].into();
        assert_eq!(FormerMachines::among(&marked, None).count(), 0);
        let told = among(&[(9_003, of("0b5f/home"))]).tell_other_names("default");
        assert_eq!(told.len(), 1);
        assert!(told[0].contains("`name = \"home\"`"), "{told:?}");
        assert!(told[0].contains("left alone: 9003."), "{told:?}");
        assert_eq!(among(&[(9_003, line)]).tell_other_names("default"), [""; 0]);
    }

    #[test]
    fn names_are_those_that_most_and_the_newest_have() {
        let mut vms: Vec<(u32, String)> = [9_001, 9_002]
            .map(|vmid| (vmid, mark(vmid, "batch").line()))
            .into();
        vms.push((9_000, mark(9_000, "a").line()));
        let newest = Mark {
            template: "newer".to_owned(),
            ..mark(9_002, "batch")
        };
        vms[1].1 = newest.line();
        let found = among(&vms);
        assert_eq!(found.pool(), Some("batch"));
        assert_eq!(found.template("batch"), Some("newer"));
        assert_eq!(found.template("a"), Some("base"));
        assert_eq!(found.template("none"), None);
        assert_eq!(
            found.other_pools("batch"),
            [("a", "9000 (a-9000)".to_owned())].into()
        );
        assert_eq!(
            found.named_outside((9_001, 9_999)).as_deref(),
            Some("9000 (a-9000)")
        );
        assert_eq!(
            found.named_in((9_001, 9_999)).as_deref(),
            Some("9001 (batch-9001), 9002 (batch-9002)")
        );
        let many: Vec<(u32, String)> = (1..=7)
            .map(|vmid| (9_000 + vmid, mark(9_000 + vmid, "p").line()))
            .collect();
        let named = among(&many).named().expect("some");
        assert!(named.ends_with("9004 (p-9004) and 3 more"), "{named}");
        assert_eq!(among(&[]).pool(), None);
    }

    #[test]
    fn addresses_are_those_of_the_first_card() {
        let addresses = |ips: &[&str]| {
            let ips = ips.iter().map(|ip| ip.parse().expect("an address"));
            ips.collect::<Vec<IpAddr>>()
        };
        let with = Mark {
            addresses: [
                (0, addresses(&["192.0.2.50", "2001:db8::50"])),
                (1, addresses(&["198.51.100.1"])),
            ]
            .into(),
            ..mark(9_003, "workers")
        };
        let found = among(&[(9_003, with.line())]);
        let wanted: Ipv4Addr = "192.0.2.50".parse().expect("an address");
        assert_eq!(found.addresses(), [wanted].into());
    }
}

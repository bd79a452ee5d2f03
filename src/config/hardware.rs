//! What machines are given of hardware beside their size, and how it is written to PVE. Daemon and broker write and judge by
//! the same few functions.

use std::collections::BTreeMap;

use super::storage_names::StorageNames;
use super::vm_options::VmOptions;
use crate::model::cpus::CpuSet;
use crate::model::topology::{HostTopology, Pinning};
use crate::model::words;

/// What a template's table says of its machines' hardware.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hardware {
    /// Whether PVE starts them with their host.
    pub onboot: bool,
    /// `startup`; the template's when absent.
    pub startup: Option<String>,
    /// CPU sockets that the cores are divided among; one when absent.
    pub sockets: Option<u32>,
    /// `numa`; the template's when absent.
    pub numa: Option<bool>,
    /// The first half of their MAC addresses, such as `BC:24:11`; PVE chooses them when absent.
    pub mac_prefix: Option<String>,
    /// Further disks, by their places.
    pub disks: BTreeMap<String, FurtherDiskSettings>,
    /// Options and limits of the disk that they boot from, by PVE's names; the template's where there is none.
    pub boot_disk: BTreeMap<String, String>,
    /// PVE's options by their names; the template's where there is none.
    pub options: VmOptions,
}

/// A disk that a machine has beside those of its template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FurtherDiskSettings {
    /// The storages that the disk may be made on.
    pub storage: StorageNames,
    /// The disk's size in bytes, whole GiB.
    pub size: i64,
    /// PVE's options, with a comma before each.
    pub options: String,
}

impl FurtherDiskSettings {
    /// What is written to PVE so that the disk is made on a storage.
    pub fn value_on(&self, storage: &str) -> String {
        format!("{storage}:{}{}", self.size >> 30, self.options)
    }

    /// What may be written so, for each storage that it may be made on.
    pub fn values(&self) -> impl Iterator<Item = String> + '_ {
        self.storage.iter().map(|storage| self.value_on(storage))
    }

    /// The disk as the file has it, with all its storages.
    pub fn written(&self) -> String {
        let names: Vec<&str> = self.storage.iter().collect();
        self.value_on(&names.join(","))
    }
}

/// A disk as PVE writes it, with these options in the place of those that it has: the volume, then the options by name, as PVE sorts them.
pub fn with_options(disk: &str, options: &BTreeMap<String, String>) -> String {
    let mut parts = disk.trim_end().split(',');
    let volume = parts.next().unwrap_or_default();
    let had = parts.filter_map(|part| part.split_once('='));
    let mut all: BTreeMap<&str, &str> = had.collect();
    all.extend(options.iter().map(|(key, value)| (&**key, &**value)));
    let all = all
        .into_iter()
        .map(|(key, value)| format!(",{key}={value}"));
    format!("{volume}{}", all.collect::<String>())
}

/// Whether a disk may be there whose options the file says: the first eight places of the usual buses.
pub fn may_have_options(slot: &str) -> bool {
    ["scsi", "virtio", "sata"].iter().any(|bus| {
        let number = slot.strip_prefix(bus).and_then(|text| text.parse().ok());
        let last = if *bus == "sata" { 5 } else { 7 };
        number.is_some_and(|number: u8| number <= last)
    })
}

/// VMIDs below this have MAC addresses of their own behind one prefix: eight cards for each in the lower 24 bits.
pub const MACS: u32 = 1 << 21;

/// The MAC address of a network card of a VM: after the prefix its VMID, times eight, and the card's number.
pub fn mac(prefix: &str, vmid: u32, card: u8) -> String {
    let number = (u64::from(vmid % MACS) << 3) | u64::from(card & 7);
    let [.., high, middle, low] = number.to_be_bytes();
    format!("{prefix}:{high:02X}:{middle:02X}:{low:02X}")
}

/// PVE's keys of a machine that has these CPUs of its host for itself and so many cores and so much memory: `affinity`, NUMA nodes whose memory
/// is beside the CPUs, huge pages, as its pool says.
///
/// # Errors
/// The configuration does not give it these CPUs: why.
pub fn cpu_keys(
    pinning: Pinning,
    (host, topology): (&str, Option<&HostTopology>),
    cpus: &CpuSet,
    (cores, memory): (u32, i64),
) -> Result<BTreeMap<String, String>, String> {
    let mut keys = BTreeMap::new();
    let mut set = |key: &str, value: String| keys.insert(key.to_owned(), value);
    if let Some(pages) = pinning.hugepages {
        set("numa", "1".to_owned());
        set("hugepages", pages.value().to_owned());
    }
    if !pinning.cpus {
        if cpus.is_empty() {
            return Ok(keys);
        }
        return Err(format!(
            "the CPUs {cpus} are reserved for it, and its pool has no cpu_pinning any more"
        ));
    }
    let Some(topology) = topology else {
        return Err(format!("there is no topology of the host {host} any more"));
    };
    if cpus.len() != cores as usize {
        return Err(format!(
            "{} of {host} are reserved for it, and it has {}",
            words::count(cpus.len(), "CPU"),
            words::count(cores, "core")
        ));
    }
    let others = cpus.without(&topology.usable());
    if !others.is_empty() {
        return Err(format!(
            "the CPUs {others} of {host} are not for machines (topology of the host)"
        ));
    }
    set("affinity", cpus.affinity());
    // On a host with one node there is nothing to choose.
    if topology.numa.len() > 1 || pinning.hugepages.is_some() {
        set("numa", "1".to_owned());
        let nodes = topology.guest_nodes(cpus, (memory >> 20, pinning.page_mib()))?;
        for (number, node) in nodes.iter().enumerate() {
            set(&format!("numa{number}"), node.value());
        }
    }
    Ok(keys)
}

/// PVE's `balloon` in MiB of a VM with so much memory, of which its host may take `taken` bytes.
pub fn balloon(memory: i64, taken: i64) -> i64 {
    let kept = memory.saturating_sub(taken).max(0);
    // Rounded up: of what pods are promised nothing may go.
    (kept >> 20) + i64::from(kept & ((1 << 20) - 1) != 0)
}

/// PVE's `cpulimit` from thousandths of a CPU, without zeros at its end.
pub fn cpu_limit(milli: i64) -> String {
    let (whole, rest) = (milli / 1000, milli % 1000);
    if rest == 0 {
        return whole.to_string();
    }
    let text = format!("{whole}.{rest:03}");
    text.trim_end_matches('0').to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::topology::{HugePages, NumaNode};

    #[test]
    fn every_card_of_every_vmid_has_a_mac_of_its_own() {
        assert_eq!(mac("BC:24:11", 9000, 0), "BC:24:11:01:19:40");
        assert_eq!(mac("BC:24:11", 9000, 7), "BC:24:11:01:19:47");
        let vmids = (9000..9100).chain([MACS - 1, 100]);
        let pairs = vmids.flat_map(|vmid| (0..8).map(move |card| mac("02:00:00", vmid, card)));
        let all: BTreeSet<String> = pairs.collect();
        assert_eq!(all.len(), 102 * 8);
    }

    #[test]
    fn a_machine_with_cpus_of_its_own_gets_its_memory_beside_them() {
        let cpus = |text: &str| CpuSet::read(text).expect("a list");
        let host = HostTopology {
            numa: ["0-3", "4-7"]
                .map(|text| NumaNode {
                    cpus: cpus(text),
                    memory: None,
                })
                .into(),
            sockets: vec![cpus("0-7")],
            caches: vec![cpus("0-3"), cpus("4-7")],
            cores: (0..8).map(|cpu| CpuSet::from_iter([cpu])).collect(),
            reserved: cpus("1"),
            devices: std::collections::BTreeMap::new(),
        };
        let one = HostTopology {
            numa: vec![NumaNode {
                cpus: cpus("0-7"),
                memory: None,
            }],
            ..host.clone()
        };
        let of = |pinning: Pinning, host: &HostTopology, set: &str| {
            let set = if set.is_empty() {
                CpuSet::new()
            } else {
                cpus(set)
            };
            let memory = 4 << 30;
            let keys = cpu_keys(pinning, ("pve1", Some(host)), &set, (2, memory))?;
            let keys = keys
                .into_iter()
                .map(|(key, value)| format!("{key}={value}"));
            Ok::<_, String>(keys.collect::<Vec<String>>().join(" "))
        };
        let pinned = Pinning {
            cpus: true,
            hugepages: None,
        };
        let huge = Pinning {
            cpus: false,
            hugepages: Some(HugePages::OneGib),
        };
        let both = Pinning { cpus: true, ..huge };
        for (pinning, host, set, wanted) in [
            (Pinning::default(), &host, "", ""),
            (huge, &host, "", "hugepages=1024 numa=1"),
            (pinned, &one, "2-3", "affinity=2-3"),
            (
                pinned,
                &host,
                "2-3",
                "affinity=2-3 numa=1 numa0=cpus=0-1,hostnodes=0,memory=4096,policy=bind",
            ),
            (
                pinned,
                &host,
                "3-4",
                "affinity=3-4 numa=1 numa0=cpus=0,hostnodes=0,memory=2048,policy=bind numa1=cpus=1,hostnodes=1,memory=2048,policy=bind",
            ),
            (
                both,
                &one,
                "0,2",
                "affinity=0,2 hugepages=1024 numa=1 numa0=cpus=0-1,hostnodes=0,memory=4096,policy=bind",
            ),
        ] {
            assert_eq!(of(pinning, host, set).as_deref(), Ok(wanted));
        }
        for (pinning, set, said) in [
            (Pinning::default(), "2-3", "no cpu_pinning any more"),
            (
                pinned,
                "2",
                "1 CPU of pve1 are reserved for it, and it has 2 cores",
            ),
            (pinned, "", "0 CPUs"),
            (pinned, "1-2", "the CPUs 1 of pve1 are not for machines"),
            (pinned, "7-8", "the CPUs 8"),
        ] {
            let why = of(pinning, &host, set).expect_err("it is refused");
            assert!(why.contains(said), "{why}");
        }
        let nowhere = cpu_keys(pinned, ("pve1", None), &cpus("2-3"), (2, 1 << 30));
        assert!(nowhere.is_err(), "no topology");
    }

    #[test]
    fn numbers_are_written_as_pve_keeps_them() {
        for (milli, text) in [(1000, "1"), (1500, "1.5"), (250, "0.25"), (2001, "2.001")] {
            assert_eq!(cpu_limit(milli), text);
        }
        assert_eq!(balloon(8 << 30, 1 << 30), 7 << 10);
        assert_eq!(balloon(8 << 30, (1 << 20) + 1), (8 << 10) - 1);
    }
}

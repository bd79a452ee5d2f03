//! Storages, PCI devices and CPUs of machines' own as text for people. Pure.

use std::fmt::Write as _;
use std::sync::Arc;

use super::render::{one_line, section};
use crate::model::cpus::CpuSet;
use crate::model::store_states::{
    DeviceState, DeviceStates, OwnCpuState, OwnCpuStates, StorageState, StorageStates,
};
use crate::model::words;

/// Hosts, machines or guests that are named in one cell.
const MAX_NAMED: usize = 4;

/// Storages with what is promised of them; unless `wide`, those alone that something keeps machines off.
pub(super) fn storages(text: &mut String, regions: &StorageStates, wide: bool) {
    let several = regions.len() > 1;
    let all = regions.iter().flat_map(|(region, storages)| {
        let storages = storages.values();
        storages.map(move |state| (region, state))
    });
    let shown = all.filter(|(_, state)| wide || state.is_in_want());
    let rows = shown.map(|(region, state)| {
        let region = Some(&**region).filter(|_| several);
        storage(region, state, wide)
    });
    let mut heading = vec!["STORAGE", "HOST", "FREE", "PROMISED", "LEFT FOR MACHINES"];
    if wide {
        heading.extend(["LIMIT", "POOLS"]);
    }
    heading.push("NOTE");
    section(text, "Storages", &heading, rows.collect());
}

fn storage(region: Option<&str>, state: &StorageState, wide: bool) -> Vec<String> {
    let name = match region {
        Some(region) => format!("{region}/{}", state.storage),
        None => state.storage.to_string(),
    };
    let free = match state.total {
        0 => "?".to_owned(),
        total => format!("{} of {}", words::bytes(state.free), words::bytes(total)),
    };
    let unknown = || "?".to_owned();
    let mut row = vec![
        name,
        named(state.hosts.iter().map(ToString::to_string)),
        free,
        words::bytes(state.promised),
        state.left.map_or_else(unknown, words::bytes),
    ];
    if wide {
        row.push(state.most.map_or_else(|| "-".to_owned(), words::bytes));
        row.push(one_line(&pools(state)));
    }
    row.push(one_line(&state.notes.join("; ")));
    row
}

/// To whom it is promised: `workers: 6 machines, 120Gi, leaves 10Gi free`.
fn pools(state: &StorageState) -> String {
    let pools = state.pools.iter().map(|(pool, share)| {
        let machines = words::count(share.machines, "machine");
        let mut text = format!("{pool}: {machines}, {}", words::bytes(share.promised));
        if share.min_free > 0 {
            let _ = write!(text, ", leaves {} free", words::bytes(share.min_free));
        }
        text
    });
    pools.collect::<Vec<_>>().join("; ")
}

/// The devices of each mapping on each host, and who has them.
pub(super) fn devices(text: &mut String, regions: &DeviceStates) {
    let several = regions.len() > 1;
    let mut rows = Vec::new();
    for (region, mappings) in regions {
        for (mapping, hosts) in mappings {
            let name = if several {
                format!("{region}/{mapping}")
            } else {
                mapping.to_string()
            };
            if hosts.is_empty() {
                let none = "PVE shows no host with a device of it".to_owned();
                let unknown = || "-".to_owned();
                rows.push(vec![name.clone(), unknown(), unknown(), unknown(), none]);
            }
            rows.extend(hosts.iter().map(|(host, state)| device(&name, host, state)));
        }
    }
    let heading = ["PCI MAPPING", "HOST", "FREE", "USED BY", "NOTE"];
    section(text, "PCI devices", &heading, rows);
}

fn device(mapping: &str, host: &Arc<str>, state: &DeviceState) -> Vec<String> {
    let times = |name: String, count: u32| match count {
        1 => name,
        many => format!("{name} ({many})"),
    };
    let machines = state.machines.iter();
    let machines = machines.map(|(name, count)| times(name.to_string(), *count));
    let guests = state.guests.iter();
    let guests = guests.map(|(vmid, count)| times(format!("VM {vmid}"), *count));
    vec![
        mapping.to_owned(),
        host.to_string(),
        format!("{} of {}", state.free, state.has),
        named(machines.chain(guests)),
        one_line(state.note.as_deref().unwrap_or_default()),
    ]
}

/// The CPUs of each NUMA node that machines can get for themselves, and who has the others.
pub(super) fn own_cpus(text: &mut String, regions: &OwnCpuStates) {
    let several = regions.len() > 1;
    let mut rows = Vec::new();
    for (region, hosts) in regions {
        for (host, nodes) in hosts {
            let name = if several {
                format!("{region}/{host}")
            } else {
                host.to_string()
            };
            let nodes = nodes.iter();
            rows.extend(nodes.map(|(number, state)| numa_node(&name, *number, state)));
        }
    }
    let heading = [
        "HOST",
        "NUMA",
        "FREE",
        "FREE CPUS",
        "MEMORY",
        "RESERVED",
        "USED BY",
        "NOTE",
    ];
    section(text, "CPUs of their own", &heading, rows);
}

fn numa_node(host: &str, number: u16, state: &OwnCpuState) -> Vec<String> {
    let list = |cpus: &CpuSet| {
        if cpus.is_empty() {
            "-".to_owned()
        } else {
            cpus.to_string()
        }
    };
    let machines = state.machines.iter();
    let machines = machines.map(|(name, cpus)| format!("{name} ({cpus})"));
    let guests = state.guests.iter();
    let guests = guests.map(|(vmid, cpus)| format!("VM {vmid} ({cpus})"));
    let usable = state.cpus.without(&state.reserved);
    vec![
        host.to_owned(),
        number.to_string(),
        format!("{} of {}", state.free.len(), usable.len()),
        list(&state.free),
        state.free_memory.map_or("-".to_owned(), words::bytes),
        list(&state.reserved),
        named(machines.chain(guests)),
        one_line(state.note.as_deref().unwrap_or_default()),
    ]
}

/// The first few of these, and how many more there are.
fn named(all: impl Iterator<Item = String>) -> String {
    let mut all: Vec<String> = all.collect();
    let more = all.len().saturating_sub(MAX_NAMED);
    if more > 0 {
        all.truncate(MAX_NAMED);
        all.push(format!("{more} more"));
    }
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::model::reasons::StorageNote;
    use crate::model::store_states::StorageShare;

    const GIB: i64 = 1 << 30;

    /// A storage of 500 GiB on one host, with two machines of a pool.
    fn local(host: &str, notes: Vec<StorageNote>) -> StorageState {
        let share = StorageShare {
            machines: 2,
            promised: 40 * GIB,
            min_free: 50 * GIB,
        };
        StorageState {
            storage: "local-zfs".into(),
            hosts: vec![host.into()],
            total: 500 * GIB,
            free: 300 * GIB,
            promised: 40 * GIB,
            most: Some(500 * GIB),
            left: Some(210 * GIB),
            pools: BTreeMap::from([("workers".into(), share)]),
            notes: notes.iter().map(ToString::to_string).collect(),
            notes_details: notes,
            ..StorageState::default()
        }
    }

    fn shown(states: Vec<StorageState>, wide: bool) -> String {
        let keyed = states.into_iter().enumerate();
        let keyed = keyed.map(|(at, state)| (at.to_string().into(), state));
        let mut text = String::new();
        storages(
            &mut text,
            &BTreeMap::from([("default".into(), keyed.collect())]),
            wide,
        );
        text
    }

    /// Nothing is said of storages that are well, nor where they only share their space; `-o wide` has them all.
    #[test]
    fn storages_are_folded_while_nothing_is_in_the_way() {
        let shares = StorageNote::SharesSpace {
            with: vec!["data".into()],
        };
        let well = || {
            vec![
                local("pve1", Vec::new()),
                local("pve2", vec![shares.clone()]),
            ]
        };
        assert_eq!(shown(well(), false), "");
        let wide = shown(well(), true);
        assert!(wide.contains("pve1") && wide.contains("pve2"), "{wide}");
        for part in [
            "300Gi of 500Gi",
            "210Gi",
            "workers: 2 machines, 40Gi, leaves 50Gi free",
            "shares its space with data",
        ] {
            assert!(wide.contains(part), "{part} is not in {wide}");
        }
        let full = StorageNote::NoRoom {
            pools: vec!["workers".into()],
            asks: 20 * GIB,
        };
        let text = shown(
            vec![local("pve1", Vec::new()), local("pve3", vec![full])],
            false,
        );
        assert!(!text.contains("pve1") && text.contains("pve3"), "{text}");
        assert!(text.contains("no room for a machine of the pool workers"));
        assert!(!text.contains("POOLS"), "{text}");
    }

    #[test]
    fn what_is_not_known_of_a_storage_is_no_number() {
        let unknown = StorageState {
            total: 0,
            free: 0,
            most: None,
            left: None,
            ..local("pve1", vec![StorageNote::UnknownSize { pools: Vec::new() }])
        };
        let text = shown(vec![unknown], false);
        let row = text.lines().nth(2).unwrap_or_default();
        let cells: Vec<&str> = row.split("  ").map(str::trim).collect();
        assert_eq!(
            cells.iter().filter(|cell| **cell == "?").count(),
            2,
            "{text}"
        );
    }

    #[test]
    fn a_shared_storage_names_some_of_its_hosts() {
        let hosts = (1..=6).map(|at| format!("pve{at}").into());
        let shared = StorageState {
            shared: true,
            hosts: hosts.collect(),
            ..local("pve1", Vec::new())
        };
        let text = shown(vec![shared], true);
        assert!(text.contains("pve1, pve2, pve3, pve4, 2 more"), "{text}");
    }

    #[test]
    fn devices_say_who_has_them_and_why_none_is_given() {
        let state = DeviceState {
            has: 4,
            free: 1,
            machines: BTreeMap::from([("cards-a".into(), 2)]),
            guests: BTreeMap::from([(300, 1)]),
            note: Some("not read".to_owned()),
            note_details: None,
        };
        let hosts = BTreeMap::from([("pve1".into(), state)]);
        let mappings = BTreeMap::from([("gpu".into(), hosts), ("nic".into(), BTreeMap::new())]);
        let mut text = String::new();
        devices(&mut text, &BTreeMap::from([("default".into(), mappings)]));
        let row = |name: &str| {
            let mut lines = text.lines();
            let line = lines.find(|line| line.trim_start().starts_with(name));
            line.unwrap_or_default()
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(row("gpu"), "gpu pve1 1 of 4 cards-a (2), VM 300 not read");
        assert_eq!(
            row("nic"),
            "nic - - - PVE shows no host with a device of it"
        );
        let mut none = String::new();
        devices(&mut none, &DeviceStates::new());
        assert_eq!(none, "");
    }
    #[test]
    fn cpus_of_their_own_say_who_has_them_and_which_are_free() {
        let cpus = |text: &str| CpuSet::read(text).expect("a list");
        let first = OwnCpuState {
            cpus: cpus("0-7"),
            reserved: cpus("0-1"),
            free: cpus("6-7"),
            free_memory: Some(12 * GIB),
            machines: BTreeMap::from([("rt-a".into(), cpus("2-4"))]),
            guests: BTreeMap::from([(300, cpus("5"))]),
            ..OwnCpuState::default()
        };
        let second = OwnCpuState {
            cpus: cpus("8-15"),
            machines: BTreeMap::from([("rt-b".into(), cpus("8-15"))]),
            note: Some("not read".to_owned()),
            ..OwnCpuState::default()
        };
        let nodes = BTreeMap::from([(0, first), (1, second)]);
        let hosts = BTreeMap::from([("pve1".into(), nodes)]);
        let shown = |regions: &OwnCpuStates| {
            let mut text = String::new();
            own_cpus(&mut text, regions);
            let lines = text.lines().skip(2);
            let lines = lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
            lines.filter(|line| !line.is_empty()).collect::<Vec<_>>()
        };
        let one = BTreeMap::from([("default".into(), hosts.clone())]);
        assert_eq!(
            shown(&one),
            [
                "pve1 0 2 of 6 6-7 12Gi 0-1 rt-a (2-4), VM 300 (5)",
                "pve1 1 0 of 8 - - - rt-b (8-15) not read",
            ]
        );
        let two = BTreeMap::from([("east".into(), hosts.clone()), ("west".into(), hosts)]);
        let firsts: Vec<String> = shown(&two)
            .iter()
            .filter_map(|line| Some(line.split_once(' ')?.0.to_owned()))
            .collect();
        assert_eq!(firsts, ["east/pve1", "east/pve1", "west/pve1", "west/pve1"]);
        assert!(shown(&OwnCpuStates::new()).is_empty());
    }
}

//! CPUs of their own: which a machine gets, and what is said where a host has none.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::lab::{GI, Lab, lab, verdict, why};
use crate::decision::cpus::{CpuDemand, FreeCpus};
use model::action::Kind;
use model::cpus::CpuSet;
use model::pci::PciDevice;
use model::region::{Step, Vm};
use model::report::PodVerdict;
use model::topology::{HostTopology, NumaNode, Pins};

fn cpus(text: &str) -> CpuSet {
    CpuSet::read(text).expect("a list")
}

/// Two sockets with two NUMA nodes each, of two caches each, of four cores each, of two threads each: CPU n and n + 32. The first core is
/// reserved.
pub(crate) fn topology() -> HostTopology {
    let core = |first: u16, last: u16| (first..=last).chain(first + 32..=last + 32).collect();
    let numa = (0..4).map(|at| NumaNode {
        cpus: core(at * 8, at * 8 + 7),
        memory: None,
    });
    HostTopology {
        numa: numa.collect(),
        sockets: vec![core(0, 15), core(16, 31)],
        caches: (0..8).map(|at| core(at * 4, at * 4 + 3)).collect(),
        cores: (0..32).map(|at| core(at, at)).collect(),
        reserved: cpus("0,32"),
        devices: [("gpu".into(), [2].into())].into(),
    }
}

/// The pool `p` of a lab has CPUs of its own, on hosts with this topology.
pub(crate) fn pinned(lab: Lab) -> Lab {
    lab.edit_pool("p", |pool| pool.pinning.cpus = true)
        .with(|lab| {
            let policy = lab.policy.regions.get_mut("home").expect("home");
            for host in ["pve1", "pve2", "pve3"] {
                policy.topologies.insert(host.into(), topology().into());
            }
        })
}

/// A guest of somebody else's on a host.
pub(crate) fn guest(lab: &mut Lab, vmid: u32, host: &str, pins: Option<Pins>) {
    let region = lab.snapshot.regions.get_mut("home").expect("home");
    let vm = Vm {
        host: host.into(),
        pins,
        ..Vm::default()
    };
    region.vms.insert(vmid, vm);
}

/// Machines of 16 CPUs on pve1 alone, each for one pod.
fn halves(count: usize) -> Lab {
    let lab = pinned(lab().kind("half", 16, 8192).pool("p", &["half"]));
    lab.edit_pool("p", |pool| pool.hosts = vec!["pve1".into()])
        .pods("web", count, 12_000, 100)
}

/// The CPUs of each machine that is made, in the order of the plan.
fn made(lab: &Lab) -> Vec<String> {
    let plan = lab.decide().plan;
    let made = plan.iter().filter_map(|action| match &action.kind {
        Kind::Create(spec) => Some(spec.mark.cpus.to_string()),
        _ => None,
    });
    made.collect()
}

#[test]
fn each_machine_gets_a_numa_node_and_who_finds_none_waits_with_the_reason() {
    let lab = halves(5);
    let nodes = ["8-15,40-47", "16-23,48-55", "24-31,56-63"];
    assert_eq!(made(&lab), nodes, "the first node has a reserved core");
    let decision = lab.decide();
    let held = |pod: &&str| matches!(verdict(&decision, pod), PodVerdict::Held { .. });
    let pods = ["web-0", "web-1", "web-2", "web-3", "web-4"].into_iter();
    let waits: Vec<&str> = pods.filter(held).collect();
    assert_eq!(waits.len(), 2, "{:?}", decision.report.pods);
    let text = why(&decision, waits[0], "p/half");
    assert!(
        text.contains("14 CPUs of the host pve1 that no guest has for itself are free, one of this type takes 16"),
        "{text}"
    );
}

/// A machine that somebody migrated keeps its affinity: who has the same CPUs there, and which the host keeps, is told.
#[test]
fn a_machine_whose_cpus_are_not_its_own_is_told_of() {
    let told = |host: &'static str, own: &str, others: &str| {
        let lab = halves(0).ours("m", "p", "half").on_host("m", host);
        let (own, others) = (cpus(own), cpus(others));
        let mut lab = lab.edit_machine("m", |machine| machine.mark.cpus = own.clone());
        let machine = lab.snapshot.machines.values().next();
        let vmid = machine.expect("a machine").mark.vmid;
        let pins = |cpus: &CpuSet| {
            Some(Pins {
                cpus: cpus.clone(),
                ..Pins::default()
            })
        };
        guest(&mut lab, vmid, host, pins(&own));
        guest(&mut lab, 300, "pve2", pins(&others));
        lab.decide().report.warnings
    };
    let end = ": a VM that is migrated keeps its affinity; migrate the one back that came, or drain the node, and a new machine gets CPUs of its own";
    let says = |what: &str| {
        [format!(
            "machine m on the host pve2 has the CPUs {what}{end}"
        )]
    };
    assert_eq!(
        told("pve1", "8-15,40-47", "8-15,40-47"),
        [""; 0],
        "another host"
    );
    assert_eq!(told("pve2", "8-15,40-47", "16-23"), [""; 0], "other CPUs");
    assert_eq!(
        told("pve2", "8-15,40-47", "14-17"),
        says("8-15,40-47 by its affinity; VM 300 has 14-15 of them too")
    );
    assert_eq!(
        told("pve2", "0-7,32-39", "16-23"),
        says("0-7,32-39 by its affinity; 0,32 of them are not the host's for machines")
    );
}

/// Of each NUMA node of a host whose CPUs machines get for themselves the report says who has which: machines that are there and planned ones,
/// strangers, the host itself. Of a host that no such pool may use nothing is said.
#[test]
fn the_report_has_the_cpus_of_each_numa_node() {
    let lab = halves(2).ours("m", "p", "half").on_host("m", "pve1");
    let own = cpus("8-15,40-47");
    let mut lab = lab.edit_machine("m", |machine| machine.mark.cpus = own.clone());
    let strangers = Pins {
        cpus: cpus("24,56"),
        ..Pins::default()
    };
    guest(&mut lab, 300, "pve1", Some(strangers));
    let decision = lab.decide();
    let hosts = &decision.report.own_cpus["home"];
    assert_eq!(
        hosts.keys().map(|host| &**host).collect::<Vec<_>>(),
        ["pve1"]
    );
    let nodes = &hosts["pve1"];
    let told = |number: u16| {
        let state = &nodes[&number];
        let machines = state.machines.values().map(ToString::to_string);
        let guests = state.guests.iter();
        let guests = guests.map(|(vmid, cpus)| format!("{vmid}: {cpus}"));
        (
            state.free.to_string(),
            state.reserved.to_string(),
            machines.chain(guests).collect::<Vec<String>>(),
        )
    };
    let some = |free: &str, reserved: &str, who: &[&str]| {
        let who = who
            .iter()
            .map(|text| (*text).to_owned())
            .collect::<Vec<_>>();
        (free.to_owned(), reserved.to_owned(), who)
    };
    assert_eq!(told(0), some("1-7,33-39", "0,32", &[]));
    assert_eq!(told(1), some("", "", &["8-15,40-47"]));
    assert_eq!(told(2), some("", "", &["16-23,48-55"]), "the planned one");
    assert_eq!(told(3), some("25-31,57-63", "", &["300: 24,56"]));
    assert!(nodes[&1].machines.contains_key("m"));
    assert!(nodes.values().all(|state| state.note.is_none()));
    guest(&mut lab, 301, "pve1", None);
    let decision = lab.decide();
    let unread = &decision.report.own_cpus["home"]["pve1"][&0];
    let note = unread.note.as_deref().unwrap_or_default();
    assert!(
        note.contains("which CPUs are free on the host pve1 is not known yet"),
        "{note}"
    );
}

#[test]
fn what_guests_have_counts_and_what_was_not_read_may_be_any() {
    let taken = |set: &str| {
        Some(Pins {
            cpus: cpus(set),
            ..Pins::default()
        })
    };
    for (pins, count) in [
        (taken("10"), 3),
        (taken("0,32"), 3),
        (taken("10,20,30"), 3),
        (taken("1-31"), 1),
        (Some(Pins::default()), 3),
        (None, 0),
    ] {
        let mut lab = halves(5);
        guest(&mut lab, 300, "pve1", pins.clone());
        let got = made(&lab);
        assert_eq!(got.len(), count, "{pins:?}: {got:?}");
        let clash = got.iter().any(|got| {
            !cpus(got)
                .both(&pins.clone().unwrap_or_default().cpus)
                .is_empty()
        });
        assert!(!clash, "{pins:?}: {got:?}");
    }
    let mut unread = halves(1);
    guest(&mut unread, 300, "pve1", None);
    let text = why(&unread.decide(), "web-0", "p/half");
    assert!(
        text.contains("the configuration of 1 guest there was not read"),
        "{text}"
    );
}

#[test]
fn a_host_without_a_topology_or_with_another_one_takes_no_machine() {
    let without = halves(1).with(|lab| {
        let policy = lab.policy.regions.get_mut("home").expect("home");
        policy.topologies.remove("pve1");
    });
    let text = why(&without.decide(), "web-0", "p/half");
    assert!(text.contains("no topology of the host pve1"), "{text}");
    let other = halves(1).with(|lab| {
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        region.hosts.get_mut("pve1").expect("there").cpus = 48;
    });
    let text = why(&other.decide(), "web-0", "p/half");
    assert!(text.contains("has 64 CPUs, PVE says 48"), "{text}");
    // Pools whose machines run on any CPU are not concerned.
    let plain = halves(1).edit_pool("p", |pool| pool.pinning.cpus = false);
    assert_eq!(made(&plain), [""]);
}

#[test]
fn machines_under_way_keep_their_cpus_until_their_vm_is_gone() {
    let under_way = |step: Step, there: bool| {
        halves(5).machine("p-00001", "p", "half", step).with(|lab| {
            let machine = lab.snapshot.machines.get_mut("p-00001").expect("there");
            let mark = model::mark::Mark {
                cpus: cpus("16-23,48-55"),
                ..(*machine.mark).clone()
            };
            let vmid = mark.vmid;
            machine.mark = mark.into();
            if !there {
                machine.vm = None;
                let region = lab.snapshot.regions.get_mut("home").expect("home");
                region.vms.remove(&vmid);
            }
        })
    };
    let others = ["8-15,40-47", "24-31,56-63"];
    for (step, there) in [
        (Step::Intent, false),
        (Step::Clone, false),
        (Step::Clone, true),
        (Step::Start, true),
        (Step::Destroy, true),
    ] {
        assert_eq!(made(&under_way(step, there)), others, "{step:?} {there}");
    }
    let all = ["8-15,40-47", "16-23,48-55", "24-31,56-63"];
    assert_eq!(made(&under_way(Step::Destroy, false)), all);
}

#[test]
fn numa_nodes_have_memory_for_so_many_machines() {
    let small = |gib: i64| {
        let lab = pinned(lab().kind("s", 4, 8192).pool("p", &["s"]));
        let lab = lab.edit_pool("p", |pool| pool.hosts = vec!["pve1".into()]);
        lab.pods("web", 9, 3000, 100).with(|lab| {
            let mut topology = topology();
            for node in &mut topology.numa {
                node.memory = Some(gib * GI);
            }
            let policy = lab.policy.regions.get_mut("home").expect("home");
            policy.topologies.insert("pve1".into(), topology.into());
        })
    };
    assert_eq!(made(&small(64)).len(), 9);
    // One machine a node, though each has CPUs for three or four.
    let four = made(&small(8));
    assert_eq!(four.len(), 4, "{four:?}");
    let decision = small(8).decide();
    let text = why(&decision, "web-8", "p/s");
    assert!(
        text.contains("no NUMA nodes of the host pve1 have 4 CPUs and 8Gi of memory free"),
        "{text}"
    );
    // What a guest is bound to counts.
    let mut bound = small(8);
    let pins = Pins {
        cpus: CpuSet::new(),
        memory: [(1, GI)].into(),
    };
    guest(&mut bound, 300, "pve1", Some(pins));
    assert_eq!(made(&bound).len(), 3);
}

fn demand(cpus: u32) -> CpuDemand {
    CpuDemand {
        cpus,
        memory: GI,
        page_mib: 1,
        near: 0,
        page_nodes: 0,
    }
}

/// What a machine of so many CPUs gets where these are taken.
fn placed(taken: &str, count: u32) -> String {
    let mut free = FreeCpus::of(&Arc::new(topology()));
    if !taken.is_empty() {
        free.take(&cpus(taken));
    }
    let placed = free.place(demand(count));
    placed.map_or_else(|| "none".to_owned(), |set| set.to_string())
}

#[test]
fn sets_are_packed_as_the_kubelet_packs_them() {
    for (taken, count, set, why) in [
        ("", 2, "1,33", "a core of the node with the least left"),
        ("", 3, "1-2,33", "a core, and a thread of another"),
        ("2", 3, "1,33-34", "the thread whose sibling is taken"),
        (
            "",
            8,
            "4-7,36-39",
            "a whole cache, not the broken one and another",
        ),
        ("1-7,33-39", 6, "8-10,40-42", "one cache of the next node"),
        (
            "",
            12,
            "1-2,4-7,33-34,36-39",
            "a whole cache and whole cores beside it",
        ),
        ("", 16, "8-15,40-47", "a whole node"),
        ("", 30, "1-15,33-47", "two nodes of one socket"),
        ("", 32, "16-31,48-63", "the socket that is whole"),
        ("", 46, "1-23,33-55", "three nodes"),
        (
            "9-15,41-47",
            18,
            "16-24,48-56",
            "two nodes of the socket where two will do",
        ),
        ("", 62, "1-31,33-63", "all that there is"),
        ("", 63, "none", "more than there is"),
        ("1-31", 2, "33-34", "threads where no core is whole"),
    ] {
        assert_eq!(placed(taken, count), set, "{count} CPUs: {why}");
    }
}

/// Admission counts, the plan names CPUs: a machine that one of them takes the other takes too, or its pods would wait for a machine
/// that nobody makes.
#[test]
fn a_page_is_not_divided_among_numa_nodes() {
    let placed = |memory: i64, page_mib: i64| {
        let mut free = FreeCpus::of(&Arc::new(topology()));
        // Three CPUs of the first NUMA node are left, and three of the second.
        free.take(&cpus("4-8,12-63"));
        let demand = CpuDemand {
            memory,
            page_mib,
            ..demand(6)
        };
        let placed = free.place(demand).map(|set| set.to_string());
        assert_eq!(placed.is_some(), free.counts().place(demand).is_some());
        placed
    };
    let six = Some("1-3,9-11".to_owned());
    assert_eq!(placed(GI, 1), six);
    assert_eq!(placed(2 * GI, 1024), six, "a page for each");
    assert_eq!(placed(GI, 1024), None, "one page for both");
    assert_eq!(placed(GI + (1 << 20), 2), None, "no whole pages");
}

#[test]
fn cpus_are_beside_the_devices_where_they_fit_there() {
    let placed = |taken: &str, count: u32, near: u64| {
        let mut free = FreeCpus::of(&Arc::new(topology()));
        free.take(&cpus(taken));
        let demand = CpuDemand {
            near,
            ..demand(count)
        };
        free.place(demand).map(|set| set.to_string())
    };
    assert_eq!(placed("1", 4, 1 << 2).as_deref(), Some("16-17,48-49"));
    assert_eq!(placed("1", 4, 0b1100).as_deref(), Some("16-17,48-49"));
    // Node 2 has five CPUs left: the next best is as without devices.
    let most = "16-21,48-52";
    assert_eq!(placed(most, 6, 1 << 2), placed(most, 6, 0));
    assert_eq!(placed(most, 2, 1 << 2).as_deref(), Some("22,54"));
}

#[test]
fn a_machine_with_a_device_gets_the_cpus_beside_it() {
    let with = |mapping: &str| {
        let lab = pinned(lab().kind("half", 8, 8192).pool("p", &["half"]));
        let lab = lab.edit_kind("half", |kind| {
            kind.pci = vec![PciDevice {
                mapping: mapping.into(),
                ..PciDevice::default()
            }];
        });
        let lab = lab.with(|lab| {
            let region = lab.snapshot.regions.get_mut("home").expect("home");
            let hosts = region.mappings.entry(mapping.into()).or_default();
            hosts.insert("pve1".into(), vec!["0000:41:00.0".into()]);
        });
        made(&lab.pods("web", 1, 6000, 100))
    };
    assert_eq!(with("gpu"), ["16-19,48-51"], "node 2");
    assert_eq!(with("nic"), ["4-7,36-39"], "as without a device");
}

prop_compose! {
    /// A host of any shape, with numbers as kernels give them: siblings beside each other, or half of all apart.
    fn hosts()(sockets in 1u16..3, nodes in 1u16..3, caches in 1u16..4, cores in 1u16..5, threads in 1u16..3, apart in any::<bool>(), reserved in proptest::collection::btree_set(0u16..96, 0..4)) -> HostTopology {
        let all = sockets * nodes * caches * cores;
        let threads_of = |core: u16| -> CpuSet {
            (0..threads).map(|thread| if apart { core + thread * all } else { core * threads + thread }).collect()
        };
        let groups = |count: u16| -> Vec<CpuSet> {
            let each = all / count;
            (0..count).map(|at| (at * each..(at + 1) * each).fold(CpuSet::new(), |set, core| set.with(&threads_of(core)))).collect()
        };
        let numa = groups(sockets * nodes).into_iter().map(|cpus| NumaNode { cpus, memory: None });
        HostTopology {
            numa: numa.collect(),
            sockets: groups(sockets),
            caches: groups(sockets * nodes * caches),
            cores: groups(all),
            reserved: reserved.into_iter().collect(),
            devices: BTreeMap::new(),
        }
    }
}

proptest! {
    /// Machines come and go: no two share a CPU, none has a reserved one, each has what it asks if there is enough, and it is packed.
    #[test]
    fn no_two_machines_share_a_cpu(host in hosts(), asks in proptest::collection::vec((1u32..9, any::<bool>()), 1..40)) {
        let host = Arc::new(host);
        let mut free = FreeCpus::of(&host);
        let mut there: Vec<(CpuDemand, CpuSet)> = Vec::new();
        for (count, leaves) in asks {
            if leaves && !there.is_empty() {
                there.remove(count as usize % there.len());
                free = FreeCpus::of(&host);
                for (demand, set) in &there {
                    free.take_all(*demand, set);
                }
                continue;
            }
            let left = there.iter().fold(host.usable(), |left, (_, set)| left.without(set));
            prop_assert_eq!(free.counts().count(), left.len());
            prop_assert_eq!(free.counts().place(demand(count)).is_some(), free.place(demand(count)).is_some());
            let Some(set) = free.place(demand(count)) else {
                prop_assert!(left.len() < count as usize);
                continue;
            };
            prop_assert_eq!(set.len(), count as usize);
            prop_assert!(set.within(&left), "{} of {}", set, left);
            is_packed(&host, &left, &set)?;
            free.take_all(demand(count), &set);
            there.push((demand(count), set));
        }
    }
}

/// One node where one has enough, and whole cores where it has enough of them.
fn is_packed(host: &HostTopology, left: &CpuSet, set: &CpuSet) -> Result<(), TestCaseError> {
    let nodes = host.numa.iter().map(|node| &node.cpus);
    let touched = nodes.clone().filter(|node| !node.both(set).is_empty());
    let touched: Vec<&CpuSet> = touched.collect();
    let fits = nodes.clone().any(|node| node.both(left).len() >= set.len());
    prop_assert!(
        !fits || touched.len() == 1,
        "{} in {} nodes",
        set,
        touched.len()
    );
    let whole_cores = |free: &CpuSet| {
        let cores = host.cores.iter();
        cores
            .filter(|core| core.within(free))
            .map(CpuSet::len)
            .sum::<usize>()
    };
    let enough = nodes
        .clone()
        .any(|node| whole_cores(&node.both(left)) >= set.len());
    let width = host.cores[0].len();
    if enough {
        prop_assert_eq!(
            whole_cores(set),
            set.len() / width * width,
            "{} is of whole cores",
            set
        );
    }
    Ok(())
}

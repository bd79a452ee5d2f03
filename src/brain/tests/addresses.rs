//! Addresses of machines: in turn, never one that anything has, and a reason where none is left.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use model::action::{Action, Kind};
use model::mark::Ownership;
use model::network::{AddressRange, NetworkPolicy};
use model::on_wire::{AddressHolder, HolderSign};
use model::policy::POOL_LABEL;
use model::region::{Machine, Step, Vm};
use model::report::PodVerdict;
use model::scheduling::{Effect, Taint};
use model::time::Span;
use proptest::prelude::*;

use super::lab::{Lab, lab, made, why};

fn at(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

/// A pool of machines that one pod fills, with these addresses.
fn networked(first: u8, last: u8) -> Lab {
    let mut lab = lab().kind("one", 2, 4096).pool("p", &["one"]);
    let range = AddressRange {
        first: at(first),
        last: at(last),
    };
    let network = NetworkPolicy {
        ranges: vec![range],
    };
    lab.policy.networks.insert("lan".into(), network);
    lab.edit_pool("p", |pool| {
        pool.networks.insert(0, "lan".into());
    })
}

fn fill(lab: Lab, from: usize, count: usize) -> Lab {
    (from..from + count).fold(lab, |lab, n| lab.pod(&format!("web{n:03}"), 1500, 2000))
}

fn guest(lab: &mut Lab, vmid: u32, addresses: Option<Vec<IpAddr>>) {
    let guest = Vm {
        host: "pve2".into(),
        running: true,
        addresses,
        ..Vm::default()
    };
    let region = lab.snapshot.regions.get_mut("home").expect("home");
    region.vms.insert(vmid, guest);
}

fn given(plan: &[Action]) -> Vec<IpAddr> {
    let creations = plan.iter().filter_map(|action| match &action.kind {
        Kind::Create(spec) => Some(spec.mark.addresses.values().flatten().copied()),
        _ => None,
    });
    creations.flatten().collect()
}

#[test]
fn what_anything_has_is_passed_over_and_a_full_range_is_a_reason() {
    let mut lab = fill(networked(10, 14), 0, 4).node("master", 100, 100);
    guest(&mut lab, 300, Some(vec![at(10), at(99)]));
    let lab = lab.edit_node("master", |node| node.addresses = vec![at(12)]);
    let decision = lab.decide();
    assert_eq!(given(&decision.plan), [at(11), at(13), at(14)]);
    let said = why(&decision, "web003", "p/one");
    assert!(
        said.contains(
            "the network lan has no free address: all of 192.0.2.10-192.0.2.14 are taken"
        ),
        "{said}"
    );
    let state = decision.report.networks["lan"]
        .values()
        .next()
        .expect("IPv4");
    assert_eq!((state.size, state.free), (5, 0), "with what is planned now");
}

/// The range is of a record whose names were hashed: each network has another token, so a range over several may end before it begins.
#[test]
fn a_range_that_ends_before_it_begins_has_no_address() {
    let mut lab = fill(networked(10, 11), 0, 3).node("master", 100, 100);
    let lan = lab.policy.networks.get_mut("lan").expect("it is there");
    lan.ranges.push(AddressRange {
        first: at(30),
        last: at(20),
    });
    let lab = lab.edit_node("master", |node| node.addresses = vec![at(10)]);
    assert_eq!(given(&lab.decide().plan), [at(11)]);
}

/// Notes that somebody has an address on the wire, for so many minutes.
fn answers(lab: &mut Lab, address: IpAddr, minutes: i64) {
    let holder = AddressHolder {
        sign: HolderSign::Neighbour,
        mac: Some("bc:24:11:00:00:01".into()),
        seen: lab.now,
        until: lab.now + Span::minutes(minutes),
    };
    lab.snapshot.on_wire.insert(address, holder);
}

#[test]
fn what_somebody_has_on_the_wire_is_passed_over_and_told() {
    let mut lab = fill(networked(10, 13), 0, 3);
    answers(&mut lab, at(10), 10);
    answers(&mut lab, at(12), 3);
    answers(&mut lab, at(99), 1);
    let decision = lab.decide();
    assert_eq!(given(&decision.plan), [at(11), at(13)]);
    let said = why(&decision, "web002", "p/one");
    assert!(
        said.contains(
            "the network lan has no free address: all of 192.0.2.10-192.0.2.13 are taken, 2 of them were seen in use on the wire"
        ),
        "{said}"
    );
    let state = decision.report.networks["lan"]
        .values()
        .next()
        .expect("IPv4");
    assert_eq!((state.size, state.free), (4, 0));
    let told: Vec<IpAddr> = state.on_wire.keys().copied().collect();
    assert_eq!(
        told,
        [at(10), at(12)],
        "what is not in the ranges is not its"
    );
    let wake = decision.wake.expect("it looks again");
    assert!(wake <= lab.now + Span::minutes(1), "{wake}");
}

/// The address of the machine that went is the last to be given again.
#[test]
fn addresses_go_in_turn() {
    let mut lab = fill(networked(10, 12), 0, 1);
    let first = lab.decide();
    assert_eq!(given(&first.plan), [at(10)]);
    lab.memory = first.memory;
    let second = lab.decide();
    assert_eq!(given(&second.plan), [at(11)]);
    lab.memory = second.memory;
    assert_eq!(given(&fill(lab, 1, 1).decide().plan), [at(12), at(10)]);
}

#[test]
fn a_guest_that_was_not_read_may_have_any_address() {
    let mut lab = fill(networked(10, 12), 0, 1);
    guest(&mut lab, 300, None);
    let decision = lab.decide();
    assert_eq!(made(&decision), Vec::<String>::new());
    let said = why(&decision, "web000", "p/one");
    assert!(
        said.contains("the addresses of 1 guest of the region home are not known yet: 300 on pve2"),
        "{said}"
    );
    // Nobody can read it, and its host has no say.
    let region = lab.snapshot.regions.get_mut("home").expect("home");
    region.hosts.get_mut("pve2").expect("there").online = false;
    assert_eq!(given(&lab.decide().plan), [at(10)]);
}

/// Two pools with small and large types, and pods of so many millicores, each of a pool or of either. No pod may be in a third pool.
fn two_pools(pods: &[(i64, Option<bool>)]) -> Lab {
    let lab = lab().kind("small", 2, 8192).kind("large", 8, 32_768);
    let lab = lab.pool("p", &["small", "large"]);
    let lab = lab.pool("q", &["small", "large"]);
    let lab = lab.pool("apart", &["small"]).edit_pool("apart", |pool| {
        pool.taints.push(Taint {
            key: "only".into(),
            value: "apart".into(),
            effect: Effect::NoSchedule,
        });
    });
    let pods = pods.iter().enumerate();
    pods.fold(lab, |lab, (number, (cpu, of))| {
        let name = format!("web{number:03}");
        let lab = lab.pod(&name, *cpu, 1000);
        let Some(first) = *of else { return lab };
        lab.shape(&name, |shape| {
            let pool = if first { "p" } else { "q" };
            shape.node_selector.insert(POOL_LABEL.into(), pool.into());
        })
    })
}

/// The two pools share a network of so many addresses; the third one has none.
fn sharing(mut lab: Lab, addresses: u8) -> Lab {
    let range = AddressRange {
        first: at(10),
        last: at(9 + addresses),
    };
    let network = NetworkPolicy {
        ranges: vec![range],
    };
    lab.policy.networks.insert("lan".into(), network);
    for name in ["p", "q"] {
        let pool = lab.policy.pools.get_mut(name).expect("it is there");
        pool.networks.insert(0, "lan".into());
    }
    lab
}

/// How many pods get no place.
fn count_waiting(lab: &Lab) -> usize {
    let decision = lab.decide();
    let pods = decision.report.pods.values();
    let waits = |verdict: &&PodVerdict| !matches!(verdict, PodVerdict::Triggers { .. });
    pods.filter(waits).count()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Addresses of one network for all pools are a limit on the number of nodes, and no pod waits that has a place with that limit.
    #[test]
    fn pools_that_share_a_network_are_planned_together(
        pods in prop::collection::vec((300i64..7000, prop::option::of(any::<bool>())), 1..12),
        mins in (0u32..2, 0u32..2),
        price in 200_000i64..900_000,
        addresses in 1u8..5,
    ) {
        let lab = two_pools(&pods)
            .edit_kind("large", |kind| kind.price = Some(price))
            .edit_pool("p", |pool| pool.min = mins.0)
            .edit_pool("q", |pool| pool.min = mins.1);
        let mut limited = lab.clone();
        limited.policy.scale_up.max_nodes_total = addresses.into();
        prop_assert_eq!(count_waiting(&sharing(lab, addresses)), count_waiting(&limited));
    }
}

/// Makes of a planned action what the world shows of it a while later.
fn come(lab: &mut Lab, action: &Action, fate: Fate) {
    let Kind::Create(spec) = &action.kind else {
        return;
    };
    let name: Arc<str> = spec.mark.machine.as_str().into();
    let mut vm = Vm {
        host: action.target.host.clone(),
        name: name.clone(),
        addresses: Some(spec.mark.addresses.values().flatten().copied().collect()),
        ownership: Some(Ownership::Marked(spec.mark.clone().into())),
        ..Vm::default()
    };
    match fate {
        Fate::Intent => {}
        Fate::Marked | Fate::Forgotten => vm.running = true,
        // Nothing was written into it yet.
        Fate::Fresh => vm.addresses = Some(Vec::new()),
        Fate::MarkLost => vm.ownership = Some(Ownership::Unmarked),
        Fate::Placeholder | Fate::PlaceholderForgotten => {
            vm.ownership = Some(Ownership::Unmarked);
            vm.addresses = Some(Vec::new());
            vm.lock = Some("clone".into());
        }
    }
    if !matches!(fate, Fate::Intent) {
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        region.vms.insert(action.target.vmid, vm);
    }
    if matches!(fate, Fate::MarkLost | Fate::PlaceholderForgotten) {
        return;
    }
    let machine = Machine {
        terms: spec.terms.clone(),
        region: "home".into(),
        host: action.target.host.clone(),
        mark: spec.mark.clone().into(),
        storages: spec.storages.clone(),
        // The leader before intended it: of this one's journal it is not.
        intended: !matches!(fate, Fate::Forgotten),
        vm: None,
        node: None,
        contradiction: None,
        remembered: None,
        step: Some((Step::Clone, lab.now)),
        failure: None,
        busy: None,
    };
    lab.snapshot.machines.insert(name, machine);
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    Intent,
    Fresh,
    Marked,
    Forgotten,
    MarkLost,
    Placeholder,
    PlaceholderForgotten,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        Just(Fate::Intent),
        Just(Fate::Fresh),
        Just(Fate::Marked),
        Just(Fate::Forgotten),
        Just(Fate::MarkLost),
        Just(Fate::Placeholder),
        Just(Fate::PlaceholderForgotten),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Leaders come and go with their memories and journals, marks are lost, others take addresses, machines go: what is given
    /// is nothing that lives.
    #[test]
    fn no_address_is_given_twice(
        last in 12u8..24,
        turns in prop::collection::vec(
            (1usize..4, prop::collection::vec(fate(), 4), any::<bool>(), prop::option::of(8u8..26), any::<u8>()),
            1..6,
        ),
    ) {
        let mut lab = networked(10, last);
        // Whoever has an address, by whom: what was planned has one whatever is seen of it.
        let mut alive: BTreeSet<IpAddr> = BTreeSet::new();
        let mut pods = 0;
        for (turn, (count, fates, forgets, rival, gone)) in turns.into_iter().enumerate() {
            lab = fill(lab, pods, count);
            pods += count;
            if let Some(rival) = rival.map(at).filter(|rival| !alive.contains(rival)) {
                let vmid = 400 + u32::try_from(turn).expect("few");
                guest(&mut lab, vmid, Some(vec![rival]));
                alive.insert(rival);
            }
            let decision = lab.decide();
            let new = given(&decision.plan);
            for address in &new {
                prop_assert!(alive.insert(*address), "{address} twice");
                prop_assert!((at(10)..=at(last)).contains(address));
            }
            for (action, fate) in decision.plan.iter().zip(fates.iter().cycle()) {
                come(&mut lab, action, *fate);
            }
            if !forgets {
                lab.memory = decision.memory;
            }
            // One that is gone for good, with all that is known of it.
            let names: Vec<Arc<str>> = lab.snapshot.machines.keys().cloned().collect();
            if let Some(name) = names.get(usize::from(gone) % 8) {
                let machine = lab.snapshot.machines.remove(name).expect("there");
                let region = lab.snapshot.regions.get_mut("home").expect("home");
                region.vms.remove(&machine.mark.vmid);
                for address in machine.mark.addresses.values().flatten() {
                    alive.remove(address);
                }
            }
        }
    }
}

/// Two regions' networks, of which ranges overlap, each with a pool that as many pods want.
fn overlapping(lan: (u8, u8), far: (u8, u8), pods: (usize, usize)) -> Lab {
    let mut lab = networked(lan.0, lan.1).pool("q", &["one"]);
    let range = AddressRange {
        first: at(far.0),
        last: at(far.1),
    };
    let network = NetworkPolicy {
        ranges: vec![range],
    };
    lab.policy.networks.insert("far".into(), network);
    lab = lab.edit_pool("q", |pool| {
        pool.networks.insert(0, "far".into());
    });
    for (pool, count) in [("p", pods.0), ("q", pods.1)] {
        for number in 0..count {
            let name = format!("{pool}{number:02}");
            lab = lab.pod(&name, 1_500, 2_000).shape(&name, |shape| {
                shape.node_selector.insert(POOL_LABEL.into(), pool.into());
            });
        }
    }
    lab
}

/// Pods that a decision makes a machine for, which it must then plan.
fn triggers(lab: &Lab) -> usize {
    let decision = lab.decide();
    let verdicts = decision.report.pods.values();
    let planned = given(&decision.plan).len();
    let triggers = verdicts
        .filter(|verdict| matches!(verdict, PodVerdict::Triggers { .. }))
        .count();
    assert_eq!(triggers, planned, "{:?}", decision.report.pods);
    let unique: BTreeSet<IpAddr> = given(&decision.plan).into_iter().collect();
    assert_eq!(unique.len(), planned, "{unique:?}");
    planned
}

proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(48))]

    /// An address that stands in two ranges is one, whoever gets it: as many machines are planned as there are addresses for, and each pod that
    /// is told of a machine has one in the plan.
    #[test]
    fn an_address_of_two_networks_is_planned_once(
        lan in (10u8..16, 0u8..5),
        far in (10u8..16, 0u8..5),
        pods in (0usize..6, 0usize..6),
    ) {
        let (lan, far) = ((lan.0, lan.0 + lan.1), (far.0, far.0 + far.1));
        let (of_lan, of_far): (BTreeSet<u8>, BTreeSet<u8>) = ((lan.0..=lan.1).collect(), (far.0..=far.1).collect());
        let all = of_lan.union(&of_far).count();
        let most = (pods.0.min(of_lan.len()) + pods.1.min(of_far.len())).min(all);
        prop_assert_eq!(triggers(&overlapping(lan, far, pods)), most);
    }
}

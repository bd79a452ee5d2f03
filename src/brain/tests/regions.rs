//! A pool over several PVE clusters: which one gets the next machine, what one of them that is away stops, and what counts.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::lab::{GI, Lab, lab};
use crate::check;
use model::action::Kind;
use model::hosts::HostStrategy;
use model::memory::Backoff;
use model::network::{AddressRange, NetworkPolicy};
use model::policy::{INSTANCE_TYPE_LABEL, PoolPolicy, REGION_LABEL, RegionPolicy};
use model::region::{Busy, Step, TemplateCopy};
use model::report::PodVerdict;
use model::scheduling::{NodeTerm, Operator, Requirement};
use model::snapshot::SourceState;
use model::time::Span;

/// Two regions with hosts of the same names and the same VMIDs, and a pool over both.
fn world() -> Lab {
    let lab = lab().kind("one", 2, 4096).pool("p", &["one"]);
    lab.with(|lab| split(lab, Second::There))
}

/// How the second region is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Second {
    There,
    Dear,
    Heavy,
    Away,
    NotQuorate,
    NeverRead,
}

/// A second region like the first one, and all pools over both.
pub(super) fn split(lab: &mut Lab, second: Second) {
    let mut attic = (*lab.snapshot.regions["home"]).clone();
    let mut copies = attic.templates.remove("debian").expect("a template");
    copies[0].vmid = 101;
    attic.templates.insert("debian-attic".into(), copies);
    attic.vms.clear();
    let regions = &mut lab.snapshot.regions;
    regions.insert("attic".into(), attic.into());
    let vmids = RegionPolicy::of_vmids(9000, 19_999);
    lab.policy.regions.insert("attic".into(), vmids);
    for pool in lab.policy.pools.values_mut() {
        over_both(pool);
    }
    lab.refresh();
    let region = lab.policy.regions.get_mut("attic").expect("attic");
    match second {
        Second::There => {}
        Second::Dear => region.price_permille = Some(1700),
        Second::Heavy => {
            for pool in lab.policy.pools.values_mut() {
                pool.weight += 1;
            }
        }
        Second::Away => silent(lab, "attic", Span::minutes(90)),
        Second::NotQuorate => {
            let attic = lab.snapshot.regions.get_mut("attic").expect("attic");
            attic.quorate = false;
        }
        Second::NeverRead => unread(lab, "attic"),
    }
}

/// The pool as the configuration's rules make it of one template of each region.
fn over_both(pool: &mut PoolPolicy) {
    let home = pool.clone();
    (pool.region, pool.template) = ("attic".into(), "debian-attic".into());
    pool.further = BTreeMap::from([("home".into(), home)]);
}

/// Pods that each fill a machine.
fn pods(lab: Lab, count: usize) -> Lab {
    (0..count).fold(lab, |lab, n| lab.pod(&format!("web{n}"), 1500, 2000))
}

/// How many machines are made on which host of which region; what is planned passes the checker.
fn made(lab: &Lab) -> BTreeMap<String, usize> {
    let mut made = BTreeMap::new();
    for action in lab.decide().plan {
        if let Kind::Create(spec) = &action.kind {
            let checked = check::check(&action, &lab.snapshot, &lab.policy, lab.now);
            assert!(checked.is_ok(), "{checked:?}");
            let target = &action.target;
            let template = match &*target.region {
                "attic" => ("debian-attic", 101),
                _ => ("debian", 100),
            };
            assert_eq!((&*spec.mark.template, spec.template_vmid), template);
            let at = format!("{}.{}", target.region, target.host);
            *made.entry(at).or_default() += 1;
        }
    }
    made
}

/// How many machines are made in which region.
fn made_in(lab: &Lab) -> [usize; 2] {
    let mut by_region = [0, 0];
    for (at, count) in made(lab) {
        by_region[usize::from(at.starts_with("home."))] += count;
    }
    by_region
}

/// The region has not answered for so long.
fn silent(lab: &mut Lab, region: &str, how_long: Span) {
    let source = lab.snapshot.sources.get_mut(&*format!("pve/{region}"));
    source.expect("a source").as_of = lab.now - how_long;
}

fn unread(lab: &mut Lab, region: &str) {
    let nothing = SourceState {
        complete: false,
        ..lab.snapshot.sources["pve/home"].clone()
    };
    lab.snapshot.regions.remove(region);
    lab.snapshot
        .sources
        .insert(format!("pve/{region}").into(), nothing);
}

#[test]
fn at_equal_price_and_weight_all_hosts_are_those_of_one_pool() {
    let all = ["pve1", "pve2", "pve3"];
    let each = |count: usize| -> BTreeMap<String, usize> {
        let at = |region: &'static str| all.map(|host| (format!("{region}.{host}"), count));
        at("attic").into_iter().chain(at("home")).collect()
    };
    assert_eq!(made(&pods(world(), 6)), each(1));
    assert_eq!(made(&pods(world(), 12)), each(2));
    let rounds = world().with(|lab| {
        let pool = lab.policy.pools.get_mut("p").expect("p");
        pool.host_rules.strategy = HostStrategy::RoundRobin;
        let home = pool.further.get_mut("home").expect("home");
        home.host_rules.strategy = HostStrategy::RoundRobin;
    });
    let first = pods(rounds.clone(), 4);
    assert_eq!(made_in(&first), [3, 1]);
    let memory = first.decide().memory;
    assert_eq!(&*memory.last_hosts["p"], "home.pve1");
    let next = pods(rounds, 2).with(|lab| lab.memory = memory);
    let there = made(&next).into_keys().collect::<Vec<_>>();
    assert_eq!(there, ["home.pve2", "home.pve3"]);
}

/// What limits let machines become in the second plan, too: with the cheapest type for the pool's `min` the pods would wait.
#[test]
fn machines_whose_types_pods_choose_are_spread_over_both() {
    let lab = lab()
        .kind("one", 2, 4096)
        .kind("two", 4, 8192)
        .pool("p", &["one", "two"])
        .edit_pool("p", |pool| (pool.min, pool.max) = (6, 6))
        .with(|lab| split(lab, Second::There));
    let lab = (0..6).fold(lab, |lab, n| lab.pod(&format!("web{n}"), 3000, 2000));
    assert_eq!(made_in(&lab), [3, 3]);
    let placed = |verdict: &PodVerdict| matches!(verdict, PodVerdict::Triggers { .. });
    assert!(lab.decide().report.pods.values().all(placed));
}

/// Each region has its own network, and that of the first one is full.
#[test]
fn a_region_without_addresses_leaves_the_second_plan_to_the_other() {
    let address = |last: u8| IpAddr::from([192, 0, 2, last]);
    let network = |first: u8, last: u8| NetworkPolicy {
        ranges: vec![AddressRange {
            first: address(first),
            last: address(last),
        }],
    };
    let lab = lab()
        .kind("one", 2, 4096)
        .kind("two", 4, 8192)
        .pool("p", &["one", "two"])
        .edit_pool("p", |pool| (pool.min, pool.max) = (6, 6))
        .with(|lab| split(lab, Second::There))
        .node("master", 100, 100)
        .edit_node("master", |node| node.addresses = vec![address(10)])
        .with(|lab| {
            let networks = [("attic", network(10, 10)), ("home", network(20, 25))];
            let networks = networks.map(|(name, network)| (name.into(), network));
            lab.policy.networks.extend(networks);
            let pool = lab.policy.pools.get_mut("p").expect("p");
            pool.networks.insert(0, "attic".into());
            let home = pool.further.get_mut("home").expect("home");
            home.networks.insert(0, "home".into());
        });
    let lab = (0..6).fold(lab, |lab, n| lab.pod(&format!("web{n}"), 3000, 2000));
    let placed = |verdict: &PodVerdict| matches!(verdict, PodVerdict::Triggers { .. });
    assert!(lab.decide().report.pods.values().all(placed));
    assert_eq!(made_in(&lab), [0, 6]);
}

/// Another type of the same size and price is no machine of the same kind: its hosts are no choice of the strategy's, in the second plan
/// either.
#[test]
fn the_hosts_of_another_type_are_not_those_of_one_pool() {
    let lab = lab()
        .kind("one", 2, 4096)
        .kind("two", 4, 8192)
        .kind("alike", 4, 8192)
        .pool("p", &["one", "two", "alike"])
        .edit_pool("p", |pool| (pool.min, pool.max) = (6, 6))
        .with(|lab| split(lab, Second::There));
    // A node is `two` in the one region, or `alike` in the other.
    let at = |of: &str, region: &str| {
        let is = |key: &str, value: &str| Requirement {
            key: key.into(),
            operator: Operator::In,
            values: vec![value.into()],
        };
        NodeTerm {
            expressions: vec![is(INSTANCE_TYPE_LABEL, of), is(REGION_LABEL, region)],
            fields: Vec::new(),
        }
    };
    let lab = (0..6).fold(lab, |lab, n| {
        let name = format!("web{n}");
        lab.pod(&name, 3000, 2000).shape(&name, |shape| {
            shape.node_affinity = Some(vec![at("two", "attic"), at("alike", "home")]);
        })
    });
    let placed = |verdict: &PodVerdict| matches!(verdict, PodVerdict::Triggers { .. });
    assert!(lab.decide().report.pods.values().all(placed));
    assert_eq!(made_in(&lab), [6, 0]);
}

#[test]
fn the_cheaper_region_is_taken_until_it_is_full_and_weight_comes_before_price() {
    let dear = |lab: &mut Lab| {
        let home = lab.policy.regions.get_mut("home").expect("home");
        home.price_permille = Some(1500);
    };
    let heavy = |lab: &mut Lab| {
        let pool = lab.policy.pools.get_mut("p").expect("p");
        pool.further.get_mut("home").expect("home").weight = 1;
    };
    // Room for two machines on each host.
    let small = |lab: &mut Lab, region: &str| {
        let region = lab.snapshot.regions.get_mut(region).expect("a region");
        for host in region.hosts.values_mut() {
            host.memory = 9 * GI;
        }
    };
    let lab = pods(world(), 5);
    assert_eq!(made_in(&lab.clone().with(dear)), [5, 0]);
    assert_eq!(made_in(&lab.clone().with(dear).with(heavy)), [0, 5]);
    let lab = pods(world(), 8);
    let full = lab.clone().with(dear).with(|lab| small(lab, "attic"));
    assert_eq!(made_in(&full), [6, 2]);
    let full = lab.with(dear).with(heavy).with(|lab| small(lab, "home"));
    assert_eq!(made_in(&full), [2, 6]);
}

#[test]
fn a_pod_that_names_a_region_gets_its_machine_there() {
    let lab = pods(world(), 3);
    let lab = (0..3).fold(lab, |lab, n| {
        lab.shape(&format!("web{n}"), |shape| {
            let wanted = ("topology.kubernetes.io/region".into(), "home".into());
            shape.node_selector.extend([wanted]);
        })
    });
    assert_eq!(made_in(&lab), [0, 3]);
}

#[test]
fn max_and_min_are_those_of_the_whole_pool() {
    let few = |lab: Lab, min: u32, max: u32| {
        lab.edit_pool("p", |pool| {
            (pool.min, pool.max) = (min, max);
            for there in pool.further.values_mut() {
                (there.min, there.max) = (min, max);
            }
        })
    };
    let lab = few(pods(world(), 9), 0, 4);
    let made: usize = made_in(&lab).into_iter().sum();
    assert_eq!(made, 4);
    // Two are there, in home: two more are made for the min, on hosts without one.
    let lab = few(world(), 4, 9)
        .ours("a", "p", "one")
        .ours("b", "p", "one");
    let lab = lab;
    assert_eq!(made_in(&lab).into_iter().sum::<usize>(), 2);
}

#[test]
fn a_region_that_is_away_stops_nothing_in_the_other_and_its_machines_count() {
    let away = |lab: &mut Lab| {
        lab.refresh();
        silent(lab, "home", Span::minutes(60));
    };
    let lab = pods(world(), 5).ours("a", "p", "one").with(away);
    // One of the five finds a place on the node that is there: its kubelet is not away.
    assert_eq!(made_in(&lab), [4, 0]);
    assert_eq!(lab.decide().report.pools["p"].ready, 1);
    let lab = lab.edit_pool("p", |pool| pool.max = 3);
    assert_eq!(made_in(&lab), [2, 0]);
    // One without quorum.
    let lab = pods(world(), 5).with(|lab| {
        let attic = lab.snapshot.regions.get_mut("attic").expect("attic");
        attic.quorate = false;
    });
    assert_eq!(made_in(&lab), [0, 5]);
    // Where both are away nothing is made, and each says why.
    let lab = lab.with(away);
    assert_eq!(made_in(&lab), [0, 0]);
    let decision = lab.decide();
    let verdict = decision.report.pods.values().next().expect("a pod");
    let PodVerdict::Held { why } = verdict else {
        panic!("{verdict:?}");
    };
    let choices: Vec<&str> = why.keys().map(|choice| &**choice).collect();
    assert_eq!(choices, ["p/one in attic", "p/one in home"]);
}

/// What is on its way is told, though its pool left the file or spans a region that was never read. A machine that works is not on its way,
/// though the last reading of its region does not have its VM yet.
#[test]
fn every_machine_on_its_way_is_told() {
    let coming = |lab: &Lab| -> Vec<String> {
        let coming = lab.decide().report.coming;
        coming.keys().map(ToString::to_string).collect()
    };
    let on_its_way = || {
        let lab = world().machine("m", "p", "one", Step::Join);
        lab.edit_machine("m", |machine| machine.busy = Some(Busy::Up))
    };
    assert_eq!(coming(&on_its_way()), ["m"]);
    let other_region = on_its_way().with(|lab| unread(lab, "attic"));
    assert_eq!(coming(&other_region), ["m"]);
    let left = on_its_way().with(|lab| lab.policy.pools.clear());
    assert_eq!(coming(&left), ["m"]);
    let works = world().ours("a", "p", "one").edit_machine("a", |machine| {
        (machine.vm, machine.node) = (None, None);
    });
    let works = works.with(|lab| {
        lab.snapshot.cluster.nodes.clear();
        let source = lab.snapshot.sources.get_mut("pve/home");
        source.expect("a source").as_of = lab.now - Span::seconds(1);
    });
    assert_eq!(coming(&works), Vec::<String>::new());
}

/// The daemon begins on a host without the journal while a region is away: of its machines it sees the nodes alone.
#[test]
fn nodes_of_a_region_that_was_never_read_count_for_min_and_max() {
    let dark = |lab: &mut Lab| {
        lab.refresh();
        lab.snapshot.machines.clear();
        unread(lab, "home");
    };
    let lab = pods(world(), 5).ours("a", "p", "one").ours("b", "p", "one");
    let lab = lab.edit_pool("p", |pool| pool.max = 3).with(dark);
    assert_eq!(made_in(&lab), [1, 0]);
    let lab = world().ours("a", "p", "one").ours("b", "p", "one");
    let lab = lab.edit_pool("p", |pool| pool.min = 2).with(dark);
    assert_eq!(made_in(&lab), [0, 0]);
    let lab = lab.edit_pool("p", |pool| pool.min = 3);
    assert_eq!(made_in(&lab), [1, 0]);
}

#[test]
fn what_failed_on_a_host_is_not_held_against_its_namesake() {
    let lab = pods(world(), 6).with(|lab| {
        let backoff = Backoff {
            advice: None,
            until: lab.now + Span::minutes(5),
            length: Span::minutes(5),
            failed: lab.now,
            message: "no space".into(),
        };
        let hosts = BTreeMap::from([("home.pve1".into(), backoff)]);
        lab.memory.host_backoff.insert("p".into(), hosts);
    });
    let there = made(&lab);
    assert!(!there.contains_key("home.pve1"), "{there:?}");
    assert!(there.contains_key("attic.pve1"), "{there:?}");
    let hosts = lab.decide().report.hosts;
    let notes = |region: &str| hosts[region]["pve1"].notes.join("; ");
    assert!(notes("home").contains("no space"), "{}", notes("home"));
    assert_eq!(notes("attic"), "");
}

#[test]
fn a_failure_is_remembered_with_its_region() {
    let mut lab = pods(world(), 1).machine("a", "p", "one", Step::Clone);
    let machine = lab.snapshot.machines.get_mut("a").expect("a");
    machine.vm = None;
    machine.failure = Some(model::region::Failure {
        advice: None,
        at: lab.now,
        step: Step::Clone,
        message: "no space".into(),
        transient: false,
        host: None,
    });
    let vmid = machine.mark.vmid;
    let home = lab.snapshot.regions.get_mut("home").expect("home");
    home.vms.remove(&vmid);
    let hosts = &lab.decide().memory.host_backoff["p"];
    let hosts: Vec<&str> = hosts.keys().map(|host| &**host).collect();
    assert_eq!(hosts, ["home.pve1"]);
}

/// A template of which no host of one region has a copy.
#[test]
fn a_region_without_its_template_is_said_and_the_other_taken() {
    let lab = pods(world(), 3).with(|lab| {
        let attic = lab.snapshot.regions.get_mut("attic").expect("attic");
        attic
            .templates
            .insert("debian-attic".into(), Vec::<TemplateCopy>::new());
    });
    assert_eq!(made_in(&lab), [0, 3]);
    let decision = lab.decide();
    let verdict = decision.report.pods.values().next().expect("a pod");
    let PodVerdict::Triggers { others, .. } = verdict else {
        panic!("{verdict:?}");
    };
    let why = others["p/one in attic"].first.to_string();
    assert!(why.contains("debian-attic"), "{why}");
}

/// The regions cost the same: the hosts of both are one pool's to its strategy, in a replacement too.
#[test]
fn a_machine_is_replaced_on_the_host_that_the_strategy_takes_of_both() {
    use model::disruption::{Consolidation, ConsolidationPolicy, Saving};
    let how = Consolidation {
        policy: ConsolidationPolicy::WhenUnderused,
        after: Span::ZERO,
        min_saving: Saving::default(),
    };
    for larger in ["attic", "home"] {
        let lab = lab()
            .kind("one", 2, 4096)
            .kind("two", 4, 8192)
            .pool("p", &["one", "two"])
            .edit_pool("p", |pool| {
                pool.consolidation = Some(how.clone());
                pool.host_rules.strategy = HostStrategy::MaxMemory;
            });
        let lab = lab.with(|lab| split(lab, Second::There)).with(|lab| {
            let region = lab.snapshot.regions.get_mut(larger).expect("a region");
            region.hosts.get_mut("pve2").expect("pve2").memory = 9999 * GI;
        });
        let mut lab = lab.ours("a", "p", "two").bound("web", "a", 1500, 2000);
        let made = (0..90).find_map(|_| {
            let decision = lab.decide();
            let created = |kind: &Kind| matches!(kind, Kind::Create(_));
            let made = decision.plan.iter().find(|action| created(&action.kind));
            let made =
                made.map(|action| format!("{}.{}", action.target.region, action.target.host));
            lab.memory = decision.memory;
            lab.now = lab.now + Span::minutes(1);
            lab.refresh();
            made
        });
        assert_eq!(made, Some(format!("{larger}.pve2")));
    }
}

/// One machine in the dear region, and its type costs less in the other.
#[test]
fn a_machine_is_replaced_by_one_of_its_type_where_that_costs_less() {
    use model::disruption::{Consolidation, ConsolidationPolicy, Saving};
    let how = Consolidation {
        policy: ConsolidationPolicy::WhenUnderused,
        after: Span::ZERO,
        min_saving: Saving::default(),
    };
    let replaced = |permille: i64| {
        let lab = world().ours("a", "p", "one").bound("web", "a", 1500, 2000);
        let lab = lab.with(|lab| {
            let home = lab.policy.regions.get_mut("home").expect("home");
            home.price_permille = Some(permille);
            let pool = lab.policy.pools.get_mut("p").expect("p");
            pool.consolidation = Some(how.clone());
            let home = pool.further.get_mut("home").expect("home");
            home.consolidation = Some(how.clone());
        });
        let mut lab = lab;
        for _ in 0..90 {
            let decision = lab.decide();
            for action in &decision.plan {
                if matches!(action.kind, Kind::Create(_)) {
                    let checked = check::check(action, &lab.snapshot, &lab.policy, lab.now);
                    assert!(checked.is_ok(), "{checked:?}");
                    return Some(action.target.region.to_string());
                }
            }
            lab.memory = decision.memory;
            lab.now = lab.now + Span::minutes(1);
            lab.refresh();
        }
        None
    };
    assert_eq!(replaced(2000).as_deref(), Some("attic"));
    assert_eq!(replaced(1000), None);
}

//! Cluster health: too many nodes that are not Ready stop scale-up and scale-down.

use super::holding::{creates, held};
use super::lab::lab;
use super::lifecycle::kinds;
use model::action::Kind;
use model::cluster::ReadyStatus;
use model::reasons::Held;
use model::report::Hold;
use model::time::Span;

#[test]
fn nodes_that_pve_shows_to_be_dead_do_not_make_the_cluster_unhealthy() {
    let world = |running: bool, online: bool| {
        let mut lab = lab().kind("one", 2, 4096).pool("p", &["one"]);
        for n in 0..4 {
            let name = format!("off{n}");
            lab = lab
                .ours(&name, "p", "one")
                .edit_machine(&name, |machine| {
                    if let Some(vm) = &mut machine.vm {
                        vm.running = running;
                    }
                })
                .edit_node(&name, |node| node.ready.status = ReadyStatus::Unknown);
        }
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        for host in region.hosts.values_mut() {
            host.online = online;
        }
        lab.decide().report.holds
    };
    let unhealthy = |holds: &[Hold]| {
        holds
            .iter()
            .any(|hold| matches!(hold.why.held, Held::ClusterUnhealthy { .. }))
    };
    assert!(
        !unhealthy(&world(false, true)),
        "switched off, as their host says"
    );
    assert!(
        unhealthy(&world(true, true)),
        "they run, and nobody hears of them"
    );
    assert!(unhealthy(&world(false, false)), "nobody knows");
}

#[test]
fn lc_14_too_many_unready_nodes_stop_both_ways_but_not_what_is_half_made() {
    let (kinds, holds) = held(|lab| {
        for n in 0..4 {
            let name = format!("sick{n}");
            *lab = lab
                .clone()
                .node(&name, 1000, 1000)
                .edit_node(&name, |node| {
                    node.ready.status = ReadyStatus::False;
                    node.unschedulable = true;
                });
        }
    });
    assert_eq!(kinds, [Kind::Continue]);
    assert!(
        holds[0].starts_with("scale-up: ClusterUnhealthy: 4 of 5"),
        "{holds:?}"
    );
    let (kinds, _) = held(|lab| {
        for n in 0..3 {
            let name = format!("sick{n}");
            *lab = lab
                .clone()
                .node(&name, 1000, 1000)
                .edit_node(&name, |node| {
                    node.ready.status = ReadyStatus::False;
                    node.unschedulable = true;
                });
        }
    });
    assert_eq!(creates(&kinds), 2, "three are always fine");
}

/// Five machines in service, of which so many have lost their Node a quarantine ago.
fn lost(nodes: usize) -> (Vec<Kind>, Vec<String>) {
    let mut lab = lab().kind("one", 2, 4096).pool("p", &["one"]);
    for n in 0..5 {
        lab = lab.ours(&format!("m{n}"), "p", "one");
    }
    let mut lab = lab.with(|lab| {
        for n in 0..nodes {
            lab.snapshot.cluster.nodes.remove(&*format!("m{n}"));
        }
    });
    lab.turn();
    let decision = lab.after(Span::minutes(6)).decide();
    (kinds(&decision), decision.report.warnings)
}

#[test]
fn machines_that_lose_their_nodes_all_at_once_are_kept() {
    let (plan, warnings) = lost(3);
    let removal = Kind::Remove { drain: false };
    assert_eq!(plan.iter().filter(|kind| **kind == removal).count(), 3);
    assert!(
        !warnings
            .iter()
            .any(|text| text.contains("running machines"))
    );
    for nodes in [4, 5] {
        let (plan, warnings) = lost(nodes);
        assert!(!plan.contains(&removal), "{plan:?}");
        let said = format!("{nodes} of 5 running machines have no Node");
        assert!(
            warnings.iter().any(|text| text.contains(&said)),
            "{warnings:?}"
        );
    }
}

//! The brake: too many nodes that are not Ready stop both ways.

use super::lab::lab;
use super::lifecycle::{creates, held};
use crate::model::action::Kind;
use crate::model::cluster::ReadyStatus;
use crate::model::report::Hold;

#[test]
fn nodes_that_pve_shows_to_be_dead_do_not_pull_the_brake() {
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
    let brake = |holds: &[Hold]| {
        holds
            .iter()
            .any(|hold| hold.why.contains("ClusterUnhealthy"))
    };
    assert!(
        !brake(&world(false, true)),
        "switched off, as their host says"
    );
    assert!(
        brake(&world(true, true)),
        "they run, and nobody hears of them"
    );
    assert!(brake(&world(false, false)), "nobody knows");
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

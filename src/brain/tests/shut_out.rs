//! New nodes that somebody cordons or taints before a pod comes to them.

use super::lab::{Lab, made};
use super::lifecycle::pool;
use model::region::Step;
use model::scheduling::Taint;
use model::time::Span;

/// Somebody cordons, or taints, each new node before its pod comes.
#[test]
fn machines_that_somebody_shuts_out_are_not_made_without_end() {
    let shut_out: [fn(&mut model::cluster::Node); 2] = [
        |node| node.unschedulable = true,
        |node| {
            node.taints
                .push(Taint::no_schedule("scan.example/pending", ""));
        },
    ];
    for how in shut_out {
        let mut lab = pool().pod("web", 1500, 2000);
        // A new machine of the pool whose node is there, and somebody is at it.
        let new = |lab: Lab, name: &str| {
            let now = lab.now;
            let mut lab = lab.machine(name, "p", "one", Step::Done);
            lab.register(name, true);
            lab.edit_node(name, |node| node.created = now)
                .after(Span::minutes(1))
        };
        lab = new(lab, "a").edit_node("a", how);
        let decision = lab.turn();
        assert!(decision.report.pools["p"].backoff_until.is_none());
        assert_eq!(made(&decision), ["one"], "the first may be by chance");
        // It works for a moment, and that overcomes nothing.
        lab = new(lab, "b");
        lab.turn();
        lab = lab.edit_node("b", how);
        let decision = lab.turn();
        assert!(decision.report.pools["p"].backoff_until.is_some());
        let message = decision.report.pools["p"].backoff_message.as_ref();
        let told = message.is_some_and(|text| text.contains("before a pod came to it"));
        assert!(told, "{message:?}");
        assert!(made(&decision).is_empty());
        // A pod that comes to a machine ends the row.
        let mut lab = new(lab, "c").bound("other", "c", 10, 10);
        lab.turn();
        assert!(lab.memory.shut_out.is_empty());
    }
}

/// A CNI's operator taints each new node until its agent runs there; and a scan, whose taint nobody knows by its name, is done within two
/// minutes. Neither makes the pool wait, however often it happens.
#[test]
fn taints_that_pass_hold_no_pool() {
    for (key, seconds) in [
        ("node.cilium.io/agent-not-ready", 150),
        ("readiness.k8s.io/storage", 150),
        ("scan.example/pending", 50),
        ("scan.example/pending", 65),
    ] {
        let mut lab = pool();
        for round in 0..4 {
            let (name, pod) = (format!("n{round}"), format!("web{round}"));
            lab = lab.pod(&pod, 1500, 2000);
            let now = lab.now;
            lab = lab.machine(&name, "p", "one", Step::Done);
            lab.register(&name, true);
            lab = lab.edit_node(&name, |node| {
                node.created = now;
                node.taints.push(Taint::no_schedule(key, ""));
            });
            for _ in 0..seconds / 5 {
                lab = lab.after(Span::seconds(5));
                lab.turn();
            }
            lab = lab.edit_node(&name, |node| node.taints.clear());
            lab = lab.edit(&pod, |pod| pod.node = Some(name.as_str().into()));
            lab = lab.after(Span::seconds(5));
            let decision = lab.turn();
            let until = decision.report.pools["p"].backoff_until;
            assert!(until.is_none(), "{key}, round {round}");
            assert!(lab.memory.shut_out.is_empty(), "{key}, round {round}");
            lab = lab.after(Span::minutes(20));
        }
    }
}

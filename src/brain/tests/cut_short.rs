//! Removals that did not come to an end: the lease was lost, a pod was not let go, somebody uncordoned the node.

use super::lab::removed;
use super::shrinking::{interrupted, nodes};
use model::region::{Busy, Failure, Machine, Step};
use model::time::Span;

/// Another instance held the lease for a moment while a node drained: the removal goes on by its old time, and is not given up to wait anew.
#[test]
fn a_removal_that_a_lost_lease_cut_short_goes_on() {
    let busy = |busy: Option<Busy>| move |machine: &mut Machine| machine.busy = busy;
    let mut lab = interrupted().edit_machine("n1", busy(Some(Busy::Down)));
    let since = lab.memory.unneeded_since.clone();
    let mut removals = Vec::new();
    for leader in [true, true, false, true] {
        lab.snapshot.leader = leader;
        if !leader {
            lab = lab.edit_machine("n1", busy(None));
        }
        removals = removed(&lab.turn());
        let mut kept = lab.memory.unneeded_since.clone();
        kept.append(&mut lab.memory.unneeded_before_removal.clone());
        assert_eq!(kept, since, "leader: {leader}");
        lab = lab.after(Span::seconds(10));
    }
    assert_eq!(removals, ["n1"]);
}

/// Somebody uncordoned the node while it drained, or its pod was not let go: it waits as long as any other before it is tried again.
#[test]
fn after_a_removal_that_failed_the_time_begins_anew() {
    let mut lab = interrupted().edit_machine("n1", |machine| machine.busy = Some(Busy::Down));
    lab.turn();
    let at = lab.now;
    lab = lab
        .edit_node("n1", |node| {
            node.taints.clear();
            node.unschedulable = false;
        })
        .edit_machine("n1", |machine| {
            machine.busy = None;
            machine.step = Some((Step::Done, at));
            machine.failure = Some(Failure {
                advice: None,
                step: Step::Drain,
                message: "somebody uncordoned it".into(),
                at,
                transient: true,
                host: None,
            });
        });
    lab.turn();
    lab = lab.after(Span::minutes(5));
    assert_eq!(removed(&lab.turn()), Vec::<String>::new());
    lab = lab.after(Span::minutes(6));
    assert_eq!(removed(&lab.turn()), ["n1"]);
}

/// Two nodes could go, and each has room for the other's pod. The one whose pod nobody lets go is not tried before the other
/// for ever: it stays, takes the other's pod, and the other goes.
#[test]
fn a_node_whose_removal_failed_takes_the_pods_of_others() {
    let two = nodes(2)
        .bound("kept", "n1", 300, 1)
        .bound("free", "n2", 400, 1);
    let lab = |failed: bool| {
        let at = two.now;
        let mut lab = two.clone().edit_machine("n1", |machine| {
            let failure = Failure {
                advice: None,
                step: Step::Drain,
                message: "429".into(),
                at,
                transient: false,
                host: None,
            };
            machine.failure = failed.then_some(failure);
        });
        lab.turn();
        lab.after(Span::minutes(11))
    };
    assert_eq!(removed(&lab(false).decide()), ["n1"], "the less used one");
    assert_eq!(removed(&lab(true).decide()), ["n2"]);
}

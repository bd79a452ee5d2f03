//! What holds everything, a direction or a region back, and that it says why.

use super::lab::Lab;
use super::lifecycle::{kinds, pool};
use model::action::Kind;
use model::region::{Busy, Step};
use model::time::Span;

/// What a change to the view makes of a world with something to add, continue and remove.
pub(super) fn held(change: impl Fn(&mut Lab)) -> (Vec<Kind>, Vec<String>) {
    let mut lab = pool()
        .ours("idle", "p", "one")
        .machine("m", "p", "one", Step::Agent)
        .edit_machine("m", |machine| machine.busy = Some(Busy::Up))
        .edit_pool("p", |pool| pool.scale_down = None);
    lab.policy.scale_down.delay_after_add = Span::ZERO;
    lab.turn();
    let lab = lab
        .after(Span::minutes(11))
        .edit_machine("m", |machine| machine.busy = None)
        .pod("web", 2000, 4000)
        .pod("web2", 2000, 4000)
        .shape("web", |shape| {
            shape
                .node_selector
                .insert("topology.kubernetes.io/zone".into(), "pve2".into());
        })
        .shape("web2", |shape| {
            shape
                .node_selector
                .insert("topology.kubernetes.io/zone".into(), "pve2".into());
        })
        .with(change);
    let decision = lab.decide();
    let holds = decision
        .report
        .holds
        .iter()
        .map(|hold| format!("{}: {}", hold.scope, hold.why))
        .collect();
    (kinds(&decision), holds)
}

pub(super) fn creates(kinds: &[Kind]) -> usize {
    kinds
        .iter()
        .filter(|kind| matches!(kind, Kind::Create(_)))
        .count()
}

#[test]
fn without_a_hold_everything_happens() {
    let (kinds, holds) = held(|_| {});
    assert_eq!(holds, Vec::<String>::new());
    assert_eq!(creates(&kinds), 2);
    assert!(kinds.contains(&Kind::Continue));
}

#[test]
fn a_pause_begins_nothing_and_finishes_what_has_begun() {
    let (kinds, holds) = held(|lab| lab.snapshot.paused = Some("ann".into()));
    assert_eq!(kinds, [Kind::Continue]);
    assert_eq!(holds, ["everything: paused: ann"]);
}

#[test]
fn holds_stop_everything_and_say_why() {
    for (change, words) in [
        (
            (|lab: &mut Lab| lab.snapshot.leader = false) as fn(&mut Lab),
            "everything: this instance does not hold the lease",
        ),
        (
            |lab| lab.snapshot.cluster_id = None,
            "everything: the cluster id is not known yet",
        ),
        (
            |lab| lab.now = lab.now - Span::minutes(1),
            "everything: the clock was set back",
        ),
        (
            |lab| {
                lab.snapshot.sources.remove("kube/nodes");
            },
            "scale-up: kube/nodes was not yet read completely",
        ),
        (
            |lab| {
                let source = lab.snapshot.sources.get_mut("kube/daemonsets");
                source.expect("there").complete = false;
            },
            "scale-up: kube/daemonsets was not yet read completely",
        ),
        (
            |lab| {
                let source = lab.snapshot.sources.get_mut("kube/pods").expect("there");
                source.as_of = source.as_of - Span::minutes(4);
            },
            "scale-up: the view of kube/pods is 4m old, at most 3m is allowed",
        ),
        (
            |lab| {
                let region = lab.snapshot.regions.get_mut("home").expect("home");
                region.quorate = false;
            },
            "region home: the PVE cluster of the region home has no quorum",
        ),
        (
            |lab| {
                lab.snapshot.sources.remove("pve/home");
            },
            "region home: pve/home was not yet read completely",
        ),
        (
            |lab| {
                let unread = model::region::Region::default();
                lab.snapshot.regions.insert("home".into(), unread.into());
                let source = lab.snapshot.sources.get_mut("pve/home").expect("there");
                source.complete = false;
                source.error = Some("connection refused".into());
            },
            "region home: pve/home was not yet read completely: connection refused",
        ),
    ] {
        let (kinds, holds) = held(change);
        assert_eq!(kinds, [], "{words}");
        assert!(holds[0].starts_with(words), "{holds:?}");
    }
}

#[test]
fn scale_up_and_scale_down_have_their_own_limits() {
    let old = |up: i64, down: i64| {
        held(move |lab| {
            lab.policy.scale_up.max_view_age = Span::minutes(up);
            lab.policy.scale_down.max_view_age = Span::minutes(down);
            for source in lab.snapshot.sources.values_mut() {
                source.as_of = source.as_of - Span::minutes(5);
            }
        })
        .0
    };
    assert_eq!(creates(&old(10, 1)), 2);
    assert_eq!(creates(&old(1, 10)), 0);
}

//! Failed machines that their pool keeps for a while, to be looked into.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::lab::{Lab, lab, made};
use super::lifecycle::{kinds, remove};
use crate::check::{CheckRule, check};
use model::action::{Action, Kind, Reason};
use model::decision::Decision;
use model::policy::KeepFailed;
use model::reasons::{Held, Kept};
use model::region::{Failure, Step};
use model::report::{Hold, NodeVerdict};
use model::time::{Span, Time};

const HOUR: Span = Span::minutes(60);

fn keeps(machines: u32) -> Lab {
    let lab = lab().kind("one", 2, 4096).pool("p", &["one"]);
    lab.edit_pool("p", |pool| {
        let how_long = HOUR;
        pool.keep_failed = Some(KeepFailed { machines, how_long });
    })
}

fn fails(lab: Lab, name: &str, at: Time, transient: bool) -> Lab {
    let lab = lab.machine(name, "p", "one", Step::Join);
    lab.edit_machine(name, |machine| {
        machine.failure = Some(Failure {
            advice: None,
            step: Step::Join,
            message: "kubeadm: no route to host".into(),
            at,
            transient,
            host: None,
        });
    })
}

fn kept(decision: &Decision) -> Vec<&str> {
    let kept = decision.report.pools["p"].kept.keys();
    kept.map(|name| &**name).collect()
}

fn removed(decision: &Decision) -> BTreeSet<&str> {
    let plan = decision.plan.iter();
    let removals = plan.filter(|action| matches!(action.kind, Kind::Remove { .. }));
    removals.map(|action| &*action.target.machine).collect()
}

#[test]
fn it_stays_for_its_time_and_says_so_and_then_it_goes() {
    let lab = keeps(1);
    let now = lab.now;
    let lab = fails(lab, "m", now, false);
    let decision = lab.decide();
    assert_eq!(kinds(&decision), []);
    assert_eq!(decision.report.pools["p"].kept["m"], now + HOUR);
    assert_eq!(decision.report.pools["p"].leaving, 0);
    let warning = &decision.report.warnings[0];
    for part in [
        "machine m failed: kubeadm: no route to host; it is kept until ",
        "`qm terminal ",
        "on the host pve1; `qm stop ",
    ] {
        assert!(warning.contains(part), "{warning}");
    }
    assert!(decision.wake.is_some_and(|wake| wake <= now + HOUR));
    let late = lab.after(HOUR).decide();
    assert_eq!(kinds(&late), remove(false));
    assert_eq!(late.report.warnings, Vec::<String>::new());
}

#[test]
fn the_pool_goes_on_after_its_back_off_as_far_as_its_max_allows() {
    let lab = keeps(1);
    let now = lab.now;
    let mut lab = fails(lab, "m", now, false);
    lab.turn();
    let lab = lab.after(Span::minutes(6)).pod("web", 10, 10);
    assert_eq!(made(&lab.clone().decide()), ["one"]);
    let full = lab.edit_pool("p", |pool| pool.max = 1);
    assert_eq!(made(&full.decide()), Vec::<String>::new());
}

#[test]
fn who_switches_it_off_has_looked() {
    let off = |lab: Lab| {
        lab.edit_machine("m", |machine| {
            machine.vm.as_mut().expect("a VM").running = false;
        })
    };
    let lab = keeps(1);
    let now = lab.now;
    let lab = off(fails(lab, "m", now, false));
    assert_eq!(kinds(&lab.clone().decide()), remove(false));
    // Of an unreachable host nothing is known, and nothing is ended.
    let mut lab = lab;
    let region = lab.snapshot.regions.get_mut("home").expect("home");
    region.hosts.get_mut("pve1").expect("pve1").online = false;
    assert_eq!(kept(&lab.decide()), ["m"]);
}

#[test]
fn the_first_failures_are_kept_and_later_ones_go() {
    let lab = keeps(2);
    let now = lab.now;
    let ago = |minutes| now - Span::minutes(minutes);
    let lab = fails(lab, "c", ago(30), false);
    let lab = fails(lab, "a", ago(10), false);
    let lab = fails(lab, "b", ago(20), false);
    let lab = fails(lab, "d", ago(40), true);
    let decision = lab.decide();
    assert_eq!(kept(&decision), ["b", "c"]);
    assert_eq!(removed(&decision), ["a", "d"].into());
    // The place of one whose time is over is free for the next.
    let decision = lab.after(Span::minutes(30)).decide();
    assert_eq!(kept(&decision), ["a", "b"]);
    assert_eq!(removed(&decision), ["c", "d"].into());
}

#[test]
fn its_node_stays_closed_and_counts_for_nothing() {
    let lab = keeps(1);
    let now = lab.now;
    let mut lab = fails(lab, "m", now, false);
    lab.register("m", false);
    lab.policy.scale_down.ok_total_unready = 0;
    lab.policy.scale_down.max_total_unready_percent = 0;
    let lab = lab.edit_node("m", |node| {
        node.ready.status = model::cluster::ReadyStatus::False;
    });
    let decision = lab.decide();
    assert_eq!(kinds(&decision), []);
    let unhealthy = |hold: &Hold| matches!(hold.why.held, Held::ClusterUnhealthy { .. });
    let holds = &decision.report.holds;
    assert!(!holds.iter().any(unhealthy), "{holds:?}");
    assert!(
        matches!(
            &decision.report.nodes["m"],
            NodeVerdict::Kept { why: Kept::FailedAndKept { until }, .. } if *until == now + HOUR
        ),
        "{:?}",
        decision.report.nodes["m"]
    );
    // Pods may run where nothing keeps them off: that node is drained.
    let lab = lab.edit_node("m", |node| node.taints.clear());
    assert!(kept(&lab.decide()).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The checker, which shares no code with the decision, lets each removal pass and refuses it for each machine that is
    /// kept.
    #[test]
    fn the_checker_says_the_same(
        machines in proptest::collection::vec((0_i64..90, any::<bool>(), any::<bool>(), any::<bool>()), 1..6),
        most in 1_u32..4,
    ) {
        let mut lab = keeps(most);
        lab.policy.scale_down.max_parallel = 100;
        let now = lab.now;
        for (index, (minutes, off, transient, noded)) in machines.iter().enumerate() {
            let name = format!("m{index}");
            lab = fails(lab, &name, now - Span::minutes(*minutes), *transient);
            if *off {
                lab = lab.edit_machine(&name, |machine| machine.vm.as_mut().expect("a VM").running = false);
            } else if *noded {
                lab.register(&name, false);
            }
        }
        let decision = lab.decide();
        let kept: Vec<&str> = kept(&decision);
        prop_assert!(kept.len() <= most as usize);
        let all = kept.len() + removed(&decision).len();
        prop_assert_eq!(all, machines.len());
        let removals = decision.plan.iter().filter(|action| matches!(action.kind, Kind::Remove { .. }));
        for action in removals {
            let verdict = check(action, &lab.snapshot, &lab.policy, lab.now);
            prop_assert_eq!(verdict, Ok(()));
        }
        for name in kept {
            let mut forgetful = lab.clone();
            forgetful.policy.pools.get_mut("p").expect("p").keep_failed = None;
            let decision = forgetful.decide();
            let mut removals = decision.plan.iter();
            let action: Option<&Action> = removals.find(|action| *action.target.machine == *name);
            let action = action.expect("without the key it goes");
            let failed = matches!(action.reason, Reason::Failed { .. });
            prop_assert!(failed);
            let refusal = check(action, &lab.snapshot, &lab.policy, lab.now);
            prop_assert_eq!(refusal.map_err(|refusal| refusal.rule), Err(CheckRule::KeptFailed));
        }
    }
}

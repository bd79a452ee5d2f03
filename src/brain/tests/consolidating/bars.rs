//! What keeps a node from being consolidated.

use std::sync::Arc;

use crate::tests::lab::{Lab, kept, made, owner, removed};

use model::cluster::Phase;
use model::disruption::ConsolidationPolicy;
use model::policy::LEAVING_TAINT;
use model::region::{Busy, Failure, Step};
use model::scheduling::Taint;
use model::time::Span;

use super::{LOOK, consolidated, dear, how, looked, nothing, spread_over_zones};
#[test]
fn cn_04_a_pod_that_waits_for_ever_does_not_block() {
    let lab = dear().pod("huge", 99_000, 1);
    assert_eq!(made(&looked(lab)), ["s"]);
}

#[test]
fn cn_05_a_pod_without_controller_blocks_all_the_same() {
    // We decide against the scenario: nobody would make the pod anew.
    let lab = dear().shape("web", |shape| shape.owner = None);
    assert_eq!(kept(&nothing(lab), "n1"), "NotReplicated");
}

pub(super) fn do_not_disrupt(lab: Lab, pod: &str) -> Lab {
    lab.shape(pod, |shape| {
        shape
            .annotations
            .insert("karpenter.sh/do-not-disrupt".into(), "true".into());
    })
}

#[test]
fn cn_08_cn_25_do_not_disrupt() {
    let pod = do_not_disrupt(dear(), "web");
    assert_eq!(kept(&nothing(pod), "n1"), "NotSafeToEvictAnnotation");
    let node = dear().edit_node("n1", |node| {
        node.annotations
            .insert("karpenter.sh/do-not-disrupt".into(), "true".into());
    });
    assert_eq!(kept(&nothing(node), "n1"), "ScaleDownDisabledAnnotation");
    let ended = do_not_disrupt(dear().bound("job", "n1", 1, 1), "job")
        .edit("job", |pod| pod.phase = Phase::Succeeded);
    assert_eq!(made(&looked(ended)), ["s"]);
    let ending = do_not_disrupt(dear().bound("old", "n1", 1, 1), "old").edit("old", |pod| {
        pod.deletion = Some(pod.created + Span::seconds(30));
    });
    assert_eq!(made(&looked(ending)), ["s"]);
}

#[test]
fn cn_27_pods_of_daemonsets_and_static_pods() {
    let with = |change: fn(&mut model::cluster::Pod)| {
        dear()
            .bound("agent", "n1", 1, 1)
            .edit("agent", change)
            .budget("b", "agent", 0)
    };
    let mirror = with(|pod| pod.mirror = true);
    assert_eq!(made(&looked(mirror)), ["s"]);
    let daemon =
        with(|pod| Arc::make_mut(&mut pod.shape).owner = Some(owner("DaemonSet", "agent")));
    assert_eq!(kept(&nothing(daemon.clone()), "n1"), "NotEnoughPdb");
    // A pool that is not consolidated goes by cluster-autoscaler's rules: DR-04.
    let mut usual = daemon
        .edit_pool("c", |pool| pool.consolidation = None)
        .node("other", 4000, 4096);
    usual.turn();
    assert_eq!(removed(&usual.after(Span::minutes(11)).decide()), ["n1"]);
}

#[test]
fn cn_11_cn_12_nodes_that_are_no_destination() {
    let coming = consolidated()
        .ours("n1", "c", "s")
        .bound("web", "n1", 500, 1)
        .machine("n9", "c", "s", Step::Initialize)
        .with(|lab| lab.register("n9", false))
        .edit_machine("n9", |machine| machine.busy = Some(Busy::Up));
    nothing(coming);
    let restless = how(
        consolidated()
            .ours("n1", "c", "s")
            .ours("n2", "c", "s")
            .bound("web", "n1", 500, 1)
            .bound("db", "n2", 1000, 1),
        |how| how.after = Span::minutes(5),
    );
    let mut lab = restless;
    lab.turn();
    let mut lab = lab.after(Span::minutes(4)).bound("new", "n2", 100, 1);
    lab.turn();
    let mut lab = lab.after(Span::minutes(1));
    assert_eq!(lab.turn().plan, [], "n2 is in its own window");
    assert_eq!(kept(&lab.decide(), "n1"), "NoPlaceToMovePods");
    let mut lab = lab.after(Span::minutes(4));
    lab.turn();
    assert_eq!(removed(&lab.after(LOOK).decide()), ["n1"]);
}

#[test]
fn cn_15_the_replacement_is_in_the_zone_of_the_node() {
    let mut lab = consolidated();
    for (n, (kind, host)) in [("s", "pve1"), ("l", "pve2"), ("s", "pve3")]
        .iter()
        .enumerate()
    {
        let node = format!("n{n}");
        lab = lab.ours(&node, "c", kind).on_host(&node, host).bound(
            &format!("web-{n}"),
            &node,
            900,
            1,
        );
    }
    let lab = lab.shapes("web", |shape| spread_over_zones(shape, 1));
    let decision = looked(lab);
    assert_eq!(removed(&decision), Vec::<String>::new());
    assert_eq!(made(&decision), ["s"]);
    assert_eq!(&*decision.plan[0].target.host, "pve2");
}

#[test]
fn cn_17_not_before_the_pods_have_been_the_same_for_long_enough() {
    let mut lab = how(dear(), |how| how.after = Span::minutes(5));
    let start = lab.now;
    lab.turn();
    let mut lab = lab.after(Span::minutes(4));
    let early = lab.turn();
    assert_eq!(early.plan, []);
    assert_eq!(early.wake, Some(start + Span::minutes(5)));
    // A pod comes: the time starts anew.
    let mut lab = lab.bound("web-2", "n1", 100, 1);
    lab.turn();
    let mut lab = lab.after(Span::minutes(4));
    assert_eq!(lab.turn().plan, []);
    let mut lab = lab.after(Span::minutes(1));
    assert_eq!(lab.turn().plan, []);
    assert_eq!(made(&lab.after(LOOK).decide()), ["s"]);
}

#[test]
fn cn_20_cn_21_cn_22_what_changes_before_the_second_look_is_looked_at_anew() {
    let mut lab = dear();
    lab.turn();
    let lab = lab.after(LOOK);
    assert_eq!(made(&lab.decide()), ["s"]);
    let none: [String; 0] = [];
    let mut came = lab.clone().bound("new", "n1", 100, 1);
    assert_eq!(made(&came.turn()), none, "CN-20");
    assert_eq!(made(&came.after(LOOK).decide()), ["s"]);
    let guarded = do_not_disrupt(lab.clone(), "web");
    assert_eq!(made(&guarded.decide()), none, "CN-21");
    let budget = lab.clone().budget("b", "web", 0);
    assert_eq!(made(&budget.decide()), none, "CN-21");
    let mut dearer = lab.edit_pool("c", |pool| {
        pool.instance_types.retain(|kind| &**kind != "s");
    });
    assert_eq!(made(&dearer.turn()), none, "CN-22");
    assert_eq!(made(&dearer.after(LOOK).decide()), ["m"]);
}

#[test]
fn cn_24_what_is_no_candidate() {
    let leaving = dear().edit_node("n1", |node| {
        node.taints.push(Taint::no_schedule(LEAVING_TAINT, "0"));
    });
    let mut leaving = leaving.edit_machine("n1", |machine| machine.busy = Some(Busy::Down));
    leaving.turn();
    leaving.settle();
    let decision = leaving.after(LOOK).decide();
    assert_eq!(
        decision.plan,
        [],
        "its pods got a machine as pending ones do"
    );
    let others = consolidated()
        .node("theirs", 8000, 8192)
        .bound("web", "theirs", 100, 1);
    nothing(others);
    let mut gone = dear();
    gone.policy.pools.clear();
    nothing(gone);
    let failed = dear().edit_machine("n1", |machine| {
        machine.failure = Some(Failure {
            advice: None,
            step: Step::Drain,
            message: "429".into(),
            at: machine.mark.created,
            transient: false,
            host: None,
        });
    });
    nothing(failed);
}

#[test]
fn cn_30_terminating_pods() {
    let ending = |kind: &str| {
        let kind = kind.to_owned();
        how(
            consolidated()
                .ours("n1", "c", "s")
                .bound("web", "n1", 100, 1)
                .edit("web", |pod| {
                    pod.deletion = Some(pod.created + Span::minutes(5));
                })
                .shape("web", |shape| shape.owner = Some(owner(&kind, "web"))),
            |how| how.policy = ConsolidationPolicy::WhenEmpty,
        )
    };
    assert_eq!(removed(&looked(ending("ReplicaSet"))), ["n1"]);
    nothing(ending("StatefulSet"));
}

#[test]
fn policies_and_their_default() {
    let never = how(dear(), |how| how.policy = ConsolidationPolicy::Never);
    let decision = nothing(never);
    assert_eq!(kept(&decision, "n1"), "NotUnneededOtherReason");
    let empty = how(dear().ours("n2", "c", "s"), |how| {
        how.policy = ConsolidationPolicy::WhenEmpty;
    });
    let decision = looked(empty);
    assert_eq!(removed(&decision), ["n2"]);
    assert_eq!(kept(&decision, "n1"), "NotUnneededOtherReason");
    // Without a policy nothing is replaced, and half full nodes stay.
    let mut usual = dear()
        .bound("more", "n1", 4000, 1)
        .edit_pool("c", |pool| pool.consolidation = None);
    for _ in 0..40 {
        assert_eq!(usual.turn().plan, []);
        usual = usual.after(Span::minutes(1));
    }
}

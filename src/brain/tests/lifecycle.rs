//! Machines under way, failures, back-off, and what is no longer ours to touch.

use super::lab::{CLUSTER, Lab, lab, made, verdict};
use model::action::{Kind, Reason};
use model::cluster::ObjectKey;
use model::decision::Decision;
use model::mark::Ownership;
use model::memory::Memory;
use model::policy::STARTUP_TAINT;
use model::region::{Busy, Failure, Step, Vm};
use model::report::PodVerdict;
use model::scheduling::Taint;
use model::time::Span;

pub(super) fn pool() -> Lab {
    lab().kind("one", 2, 4096).pool("p", &["one"])
}

/// A machine `m` that stands at a step, with a marked VM, and nobody at it.
pub(super) fn machine(step: Step) -> Lab {
    pool().machine("m", "p", "one", step)
}

pub(super) fn failed(step: Step, transient: bool) -> Lab {
    let lab = machine(step);
    let at = lab.now;
    lab.edit_machine("m", |machine| {
        machine.failure = Some(Failure {
            advice: None,
            step,
            message: "kubeadm: no route to host".into(),
            at,
            transient,
            host: None,
        });
    })
}

pub(super) fn kinds(decision: &Decision) -> Vec<Kind> {
    decision
        .plan
        .iter()
        .map(|action| action.kind.clone())
        .collect()
}

pub(super) fn remove(drain: bool) -> Vec<Kind> {
    vec![Kind::Remove { drain }]
}

#[test]
fn unfinished_machines_go_on_wherever_they_stand() {
    for step in [Step::Clone, Step::Agent, Step::Join, Step::Initialize] {
        let mut lab = machine(step);
        let decision = lab.turn();
        assert_eq!(kinds(&decision), [Kind::Continue], "{step:?}");
        let overdue = lab.now + Span::minutes(15) + Span(1);
        assert_eq!(decision.wake, Some(overdue));
        assert!(lab.decide().plan.is_empty(), "the executor is at it");
    }
    let intent = machine(Step::Intent).edit_machine("m", |machine| machine.vm = None);
    assert_eq!(kinds(&intent.decide()), [Kind::Continue]);
    // Nothing but the journal is behind.
    let initialised = pool().ours("m", "p", "one").edit_machine("m", |machine| {
        machine.step = Some((Step::Initialize, machine.mark.created));
    });
    assert_eq!(kinds(&initialised.decide()), [Kind::Continue]);
    assert!(pool().ours("m", "p", "one").decide().plan.is_empty());
}

#[test]
fn lc_07_a_node_is_initialised_when_its_startup_taints_are_gone() {
    let mut lab = machine(Step::Initialize);
    lab.register("m", false);
    assert_eq!(lab.decide().report.pools["p"].coming, 1);
    let lab = lab.edit_node("m", |node| node.taints.clear());
    assert_eq!(lab.decide().report.pools["p"].ready, 1);
}

#[test]
fn lc_01_what_does_not_come_up_in_time_has_failed() {
    let lab = machine(Step::Agent).pod("web", 10, 10);
    let early = lab.clone().after(Span::minutes(15));
    assert_eq!(kinds(&early.decide()), [Kind::Continue]);
    let mut late = lab.after(Span::minutes(16));
    let decision = late.turn();
    assert_eq!(kinds(&decision), remove(false));
    assert!(decision.report.pools["p"].backoff_until.is_some());
    // The pods wait for the pool, or go to another one.
    assert!(matches!(verdict(&decision, "web"), PodVerdict::Held { .. }));
    let other = late.kind("two", 2, 4096).pool("q", &["two"]);
    assert_eq!(made(&other.decide()), ["two"]);
}

#[test]
fn a_failed_machine_is_removed_and_its_pool_backs_off_once() {
    let mut lab = failed(Step::Join, false);
    let decision = lab.turn();
    assert_eq!(kinds(&decision), remove(false));
    assert_eq!(
        decision.plan[0].reason,
        Reason::Failed {
            message: "kubeadm: no route to host".into()
        }
    );
    let until = lab.memory.backoff["p"].until;
    assert_eq!(until, lab.now + Span::minutes(5));
    let mut lab = lab.after(Span::minutes(1));
    lab.turn();
    assert_eq!(lab.memory.backoff["p"].until, until, "counted once");
    lab.settle();
    lab.turn();
    assert!(
        lab.memory.counted_failures.is_empty(),
        "forgotten with the machine"
    );
}

#[test]
fn lc_17_back_off_doubles_to_its_longest_and_is_forgotten() {
    let mut lab = pool();
    let mut lengths = Vec::new();
    for n in 0..5 {
        let name = format!("m{n}");
        let now = lab.now;
        lab = lab
            .machine(&name, "p", "one", Step::Join)
            .edit_machine(&name, |machine| {
                machine.failure = Some(Failure {
                    advice: None,
                    step: Step::Join,
                    message: "no".into(),
                    at: now,
                    transient: false,
                    host: None,
                });
            });
        lab.turn();
        lab.settle();
        lengths.push(lab.memory.backoff["p"].length);
        lab = lab.after(Span::minutes(31));
    }
    let minutes = [5, 10, 20, 30, 30].map(Span::minutes);
    assert_eq!(lengths, minutes);
    let mut lab = lab.after(Span::minutes(180));
    lab.turn();
    assert!(lab.memory.backoff.is_empty());
}

#[test]
fn nx_08_nx_10_a_transient_failure_backs_nothing_off() {
    let mut lab = failed(Step::Clone, true).edit_machine("m", |machine| machine.vm = None);
    let decision = lab.turn();
    assert_eq!(kinds(&decision), [Kind::DropIntent]);
    assert!(lab.memory.backoff.is_empty());
}

/// Another attempt may succeed at once. If it fails, too, the pool waits, and longer each time.
#[test]
fn transient_failures_in_a_row_back_a_pool_off() {
    let forbidden = |at| Failure {
        advice: None,
        step: Step::Join,
        message: "403".into(),
        at,
        transient: true,
        host: None,
    };
    let fail = |lab: Lab, name: &str| {
        let created = lab.now;
        let lab = lab
            .machine(name, "p", "one", Step::Join)
            .after(Span::minutes(7));
        let at = lab.now;
        lab.edit_machine(name, |machine| {
            assert_eq!(machine.mark.created, created);
            machine.failure = Some(forbidden(at));
        })
    };
    let mut lab = pool();
    // Two that were made side by side hit the same trouble: that is one failure.
    lab = lab.machine("b", "p", "one", Step::Join);
    let both = fail(lab, "a");
    let at = both.now;
    lab = both.edit_machine("b", |machine| {
        machine.failure = Some(forbidden(at));
    });
    lab.turn();
    lab.settle();
    assert!(lab.memory.backoff.is_empty());
    let mut lengths = Vec::new();
    for name in ["c", "d", "e"] {
        lab = fail(lab.after(Span::minutes(1)), name);
        let decision = lab.turn();
        assert!(decision.report.pools["p"].backoff_until.is_some());
        lengths.push(lab.memory.backoff["p"].length);
        lab.settle();
        lab = lab.after(Span::minutes(20));
    }
    assert_eq!(lengths, [5, 10, 20].map(Span::minutes));
    // One that works ends the row; so does time.
    let now = lab.now;
    let mut works = lab.clone().machine("w", "p", "one", Step::Done);
    works.register("w", true);
    assert_eq!(works.snapshot.machines["w"].mark.created, now);
    works.turn();
    assert!(works.memory.transient_failures.is_empty());
    let mut later = lab.after(Span::minutes(24 * 60));
    later.turn();
    assert!(later.memory.transient_failures.is_empty());
}

/// A machine waits for its turn to clone while others clone to its storage.
#[test]
fn the_time_in_a_queue_is_not_the_machines() {
    let lab = machine(Step::Intent).pod("web", 10, 10);
    let waits = lab.edit_machine("m", |machine| machine.busy = Some(Busy::Up));
    let mut waits = waits;
    for _ in 0..60 {
        let decision = waits.turn();
        assert!(decision.report.pools["p"].backoff_until.is_none());
        assert!(made(&decision).is_empty(), "its pod gets no second one");
        waits = waits.after(Span::seconds(30));
    }
    // From then on its time counts.
    let mut clones = waits.edit_machine("m", |machine| {
        machine.step = Some((Step::Clone, machine.mark.created));
    });
    for _ in 0..29 {
        let decision = clones.turn();
        assert!(decision.report.pools["p"].backoff_until.is_none());
        clones = clones.after(Span::seconds(30));
    }
    let decision = clones.after(Span::minutes(2)).turn();
    assert!(decision.report.pools["p"].backoff_until.is_some());
}

/// A pod that tolerates every taint is bound to a node as soon as that is registered.
#[test]
fn a_failed_machine_goes_with_the_pods_that_came_before_it_was_a_node() {
    for tainted in [true, false] {
        let mut lab = failed(Step::Initialize, false).edit_pool("p", |pool| {
            pool.startup_taints.push(Taint::no_schedule("cni", ""));
        });
        lab.register("m", false);
        let lab = lab.bound("operator", "m", 10, 10);
        let lab = lab.edit_node("m", |node| {
            if !tainted {
                node.taints.retain(|taint| &*taint.key != STARTUP_TAINT);
            }
        });
        let decision = lab.decide();
        assert_eq!(kinds(&decision), remove(true));
        let pods = &decision.plan[0].precondition.pods;
        assert_eq!(pods, &[ObjectKey::new("default", "operator")]);
        let checked = crate::check::check(&decision.plan[0], &lab.snapshot, &lab.policy, lab.now);
        assert_eq!(checked, Ok(()));
    }
}

#[test]
fn a_failed_machine_with_a_node_is_drained() {
    let mut lab = failed(Step::Initialize, false);
    lab.register("m", false);
    assert_eq!(kinds(&lab.decide()), remove(true));
}

#[test]
fn a_failed_machine_stays_whose_node_somebody_wants_to_keep() {
    const DISABLED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
    let annotated = |value: &'static str| {
        let mut lab = failed(Step::Initialize, false);
        lab.register("m", false);
        let node = lab.edit_node("m", |node| {
            let mut annotations = (*node.annotations).clone();
            annotations.insert(DISABLED.into(), value.into());
            node.annotations = annotations.into();
        });
        node.decide()
    };
    let decision = annotated("true");
    assert_eq!(kinds(&decision), []);
    assert_eq!(
        decision.report.warnings,
        [format!(
            "machine m failed: kubeadm: no route to host; it is kept, because its node is annotated with {DISABLED}=true"
        )]
    );
    assert_eq!(kinds(&annotated("false")), remove(true));
}

#[test]
fn a_lost_memory_lets_a_pool_without_healthy_nodes_wait() {
    let mut lab = failed(Step::Join, true)
        .after(Span::minutes(1))
        .pod("web", 10, 10);
    lab.settle();
    assert_eq!(made(&lab.decide()), ["one"]);
    lab.memory = Memory::default();
    let decision = lab.turn();
    assert_eq!(made(&decision), Vec::<String>::new());
    let lab = lab.after(Span::minutes(5));
    assert_eq!(made(&lab.decide()), ["one"]);
    // The first machines of a new installation are no such case.
    let mut fresh = pool()
        .pod("web", 10, 10)
        .with(|lab| lab.memory = Memory::default());
    assert_eq!(made(&fresh.turn()), ["one"]);
    let fresh = fresh.after(Span::minutes(1)).pod("big", 2000, 10);
    assert_eq!(made(&fresh.decide()), ["one"]);
}

#[test]
fn a_machine_made_since_the_region_was_read_is_coming() {
    for step in [Step::Configure, Step::Join, Step::Initialize, Step::Done] {
        let unseen = |ago: Span| {
            let mut lab = machine(step).edit_machine("m", |machine| {
                machine.vm = None;
                machine.busy = Some(Busy::Up);
            });
            let now = lab.now;
            lab.snapshot
                .regions
                .get_mut("home")
                .expect("home")
                .vms
                .clear();
            lab.policy.pools.get_mut("p").expect("p").min = 1;
            let read = lab.snapshot.sources.get_mut("pve/home").expect("there");
            read.as_of = now - Span::seconds(10);
            lab.edit_machine("m", |machine| {
                machine.step = Some((step, now - ago));
            })
        };
        let decision = unseen(Span::seconds(2)).decide();
        assert_eq!(kinds(&decision), [], "{step:?}: it has its node to be");
        assert_eq!(decision.report.pools["p"].coming, 1, "{step:?}");
        let decision = unseen(Span::seconds(12)).decide();
        let made = matches!(kinds(&decision)[..], [Kind::Create(_)]);
        assert!(made, "{step:?}: its VM is gone, {:?}", decision.plan);
    }
}

/// After a start nothing is read yet, and a machine that works for a day is no failure of its pool.
#[test]
fn what_is_not_read_yet_is_not_late() {
    let mut lab = pool().ours("m", "p", "one").pod("web", 10, 10);
    let day = Span::minutes(24 * 60);
    let now = lab.now;
    lab = lab.edit_machine("m", |machine| {
        machine.vm = None;
        machine.node = None;
        machine.step = Some((Step::Done, now - day));
    });
    lab.snapshot.cluster.nodes.clear();
    lab.snapshot
        .regions
        .get_mut("home")
        .expect("home")
        .vms
        .clear();
    for name in ["pve/home", "kube/nodes"] {
        let source = lab.snapshot.sources.get_mut(name).expect("there");
        (source.complete, source.as_of) = (false, now - day - day);
    }
    lab = lab.edit_machine("m", |machine| machine.mark.created = now - day);
    // One under way is not late either before it is known how it stands.
    for step in [Step::Done, Step::Join] {
        let lab = lab.clone().edit_machine("m", |machine| {
            machine.step = Some((step, now - day));
        });
        let decision = lab.decide();
        assert_eq!(kinds(&decision), [], "{step:?}");
        let backoff = decision.memory.backoff;
        assert!(backoff.is_empty(), "{step:?}: {backoff:?}");
    }
}

#[test]
fn marks_that_are_not_intact_mean_hands_off() {
    let overdue = || failed(Step::Join, false);
    let mark = overdue().snapshot.machines["m"].mark.clone();
    let mut doubled = mark.clone();
    doubled.vmid = 9001;
    for (what, vmid, ownership) in [
        ("damaged", 9000, Ownership::Damaged("edited".into())),
        (
            "unknown version",
            9000,
            Ownership::UnknownVersion("v7".into()),
        ),
        ("a copy", 9001, Ownership::Marked(mark.clone())),
        ("doubled", 9001, Ownership::Marked(doubled)),
    ] {
        let lab = overdue().with(|lab| {
            let region = lab.snapshot.regions.get_mut("home").expect("home");
            let vm = region.vms.entry(vmid).or_default();
            vm.ownership = Some(ownership);
        });
        let decision = lab.decide();
        assert!(decision.plan.is_empty(), "{what}: {:?}", decision.plan);
        assert!(!decision.report.warnings.is_empty(), "{what}");
    }
    let foreign = overdue().edit_machine("m", |machine| {
        machine.mark.cluster = "uid/another".into();
    });
    assert!(foreign.decide().plan.is_empty());
    assert_eq!(mark.cluster, CLUSTER);
}

/// A leader that stood still finds that another one has taken the VMID of a machine that it was about to make.
#[test]
fn an_intent_whose_vmid_went_to_another_machine_is_dropped_at_once() {
    for step in [Step::Intent, Step::Clone] {
        let lab = machine(step).with(|lab| {
            let mut mark = lab.snapshot.machines["m"].mark.clone();
            mark.machine = "other".into();
            let vmid = mark.vmid;
            let region = lab.snapshot.regions.get_mut("home").expect("home");
            region.vms.entry(vmid).or_default().ownership = Some(Ownership::Marked(mark));
        });
        let lab = lab.edit_machine("m", |machine| machine.vm = None);
        let seen = lab.clone().edit_machine("m", |machine| {
            let (step, since) = machine.step.expect("a step");
            machine.step = Some((step, since - Span::minutes(1)));
        });
        assert_eq!(kinds(&seen.decide()), [Kind::DropIntent]);
        // What was read before the intent says nothing of it.
        let early = lab.with(|lab| {
            let at = lab.now - Span::seconds(30);
            lab.snapshot
                .sources
                .get_mut("pve/home")
                .expect("there")
                .as_of = at;
            let machine = lab.snapshot.machines.get_mut("m").expect("there");
            machine.step = Some((step, lab.now - Span::seconds(5)));
        });
        assert_eq!(kinds(&early.decide()), []);
    }
}

/// Its mark is there, and no machine of a template's VM is seen: it would count as gone.
#[test]
fn a_machine_whose_vm_became_a_template_is_left_alone_and_told() {
    let mut lab = pool().ours("m", "p", "one").with(|lab| {
        let mark = lab.snapshot.machines["m"].mark.clone();
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        let vm = region.vms.entry(mark.vmid).or_default();
        vm.ownership = Some(Ownership::Marked(mark));
        vm.template = true;
    });
    lab = lab.edit_machine("m", |machine| machine.vm = None);
    lab.turn();
    let decision = lab.after(Span::minutes(60)).decide();
    assert_eq!(kinds(&decision), []);
    let told = decision.report.warnings.iter().map(ToString::to_string);
    let told: Vec<String> = told.collect();
    assert!(
        told.iter()
            .any(|line| line.contains("made a template of its VM")),
        "{told:?}"
    );
}

#[test]
fn foreign_vms_in_our_range_are_named() {
    let lab = pool().with(|lab| {
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        region.vms.insert(
            9042,
            Vm {
                name: "mine".into(),
                ownership: Some(Ownership::Unmarked),
                ..Vm::default()
            },
        );
    });
    assert_eq!(
        lab.decide().report.warnings,
        ["region home: VM 9042 (mine): somebody else's, inside our VMID range"]
    );
}

/// A trial's VM is told with the command that removes it, and nothing is done to it.
#[test]
fn a_vm_of_template_try_is_told_as_one_and_left_alone() {
    let told = |edit: &dyn Fn(&mut Vm)| {
        let lab = pool().with(|lab| {
            let region = lab.snapshot.regions.get_mut("home").expect("home");
            let mut vm = Vm {
                name: "pve-autoscaler-trial-9042".into(),
                ownership: Some(Ownership::Unmarked),
                ..Vm::default()
            };
            edit(&mut vm);
            region.vms.insert(9042, vm);
        });
        let decision = lab.decide();
        assert!(decision.plan.is_empty());
        decision.report.warnings
    };
    let vm = "region home: VM 9042 (pve-autoscaler-trial-9042): ";
    let trial = told(&|vm| vm.trial_of = Some("debian".into()));
    assert_eq!(
        trial,
        [format!(
            "{vm}`pve-autoscaler template try` tries the template debian with it, and removes it at its end; the next `pve-autoscaler template try debian` removes it where that was interrupted or told to keep it"
        )]
    );
    // Its name proves nothing.
    let named = told(&|_| {});
    assert_eq!(
        named,
        [format!("{vm}somebody else's, inside our VMID range")]
    );
    let begun = told(&|vm| vm.lock = Some("clone".into()));
    assert_eq!(
        begun,
        [format!(
            "{vm}it is being made, by somebody else or by `pve-autoscaler template try`, inside our VMID range"
        )]
    );
}

#[test]
fn nothing_is_destroyed_for_a_pool_that_left_the_configuration() {
    for lab in [failed(Step::Join, false), pool().ours("m", "p", "one")] {
        let mut lab = lab.with(|lab| {
            lab.policy.pools.clear();
        });
        lab.turn();
        let decision = lab.after(Span::minutes(30)).decide();
        assert!(decision.plan.is_empty());
        assert!(decision.report.warnings[0].contains("not in the configuration"));
    }
}

#[test]
fn a_removal_that_was_begun_on_a_machine_without_node_goes_on() {
    let lab = machine(Step::Destroy);
    assert_eq!(kinds(&lab.decide()), remove(false));
    let mut half = machine(Step::Join);
    half.register("m", false);
    let half = half.edit_machine("m", |machine| {
        machine.step = Some((Step::Drain, machine.mark.created));
    });
    assert_eq!(kinds(&half.decide()), remove(true));
}

/// One node offered much less than is reckoned, and is gone. Its template was mended since.
#[test]
fn what_a_node_offered_is_not_believed_for_ever() {
    let taught = || {
        let mut lab = pool().ours("n1", "p", "one").pod("web", 1800, 100);
        lab = lab.edit_node("n1", |node| node.allocatable.cpu_milli = 1500);
        let decision = lab.turn();
        assert!(made(&decision).is_empty(), "the pod would not fit");
        let told = decision.report.warnings.iter();
        let told = told.filter(|text| text.starts_with("nodes of p/one offer"));
        assert_eq!(told.count(), 1, "{:?}", decision.report.warnings);
        let gone = lab.snapshot.machines.remove("n1").expect("n1");
        lab.snapshot.cluster.nodes.remove("n1");
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        region.vms.remove(&gone.mark.vmid);
        assert!(made(&lab.decide()).is_empty(), "it is known still");
        lab
    };
    let mut lab = taught();
    lab.memory.end_backoff(&"p".into(), lab.now);
    assert_eq!(made(&lab.decide()), ["one"], "somebody mended it");
    let mut lab = taught().after(Span::minutes(24 * 60 - 1));
    assert!(made(&lab.turn()).is_empty());
    let mut lab = lab.after(Span::minutes(2));
    let decision = lab.turn();
    assert_eq!(made(&decision), ["one"], "a day is over");
    assert!(lab.memory.learned.is_empty() && lab.memory.learned_at.is_empty());
}

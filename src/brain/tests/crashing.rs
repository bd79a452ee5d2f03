//! Drains that are cut short by crashes, and go on or are given up: whatever the order, no budget is
//! overrun and no more nodes drain at once than may.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::lab::{Lab, lab, removed};
use crate::check::{self, CheckRule};
use model::action::{Action, Kind};
use model::cluster::{ObjectKey, Phase};
use model::policy::LEAVING_TAINT;
use model::region::{Busy, Step};
use model::scheduling::Taint;
use model::time::Span;

/// Every node could go: a pod of each application, small.
const APPS: [&str; 2] = ["a", "b"];

/// What the world does between two decisions.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The daemon ends in the middle of all it does, and starts anew.
    Crash,
    /// One drain asks for one eviction.
    Evict(usize),
    /// A pod that was evicted is gone, and its successor runs on the first node with room.
    Gone,
    /// A drained node is taken down.
    Down,
    /// A node that is drained, or whose drain was interrupted, is needed again.
    Load(usize),
    /// Time passes.
    Wait(i64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => Just(Event::Crash),
        6 => (0..4usize).prop_map(Event::Evict),
        4 => Just(Event::Gone),
        2 => Just(Event::Down),
        1 => (0..4usize).prop_map(Event::Load),
        3 => (1..400i64).prop_map(Event::Wait),
    ]
}

/// The world, and how many pods of each application must run.
struct Town {
    lab: Lab,
    wanted: BTreeMap<&'static str, usize>,
    loads: usize,
}

impl Town {
    /// Nodes n0, n1, … of two cores, each with a small pod of every application; a budget for each.
    fn new(nodes: usize, drains: u32, parallel: u32, allowed: [usize; 2]) -> Town {
        let mut lab = lab().kind("two", 2, 4096).pool("p", &["two"]);
        lab.policy.scale_down.max_parallel_drain = drains;
        lab.policy.scale_down.max_parallel = parallel;
        lab.policy.scale_down.delay_after_add = Span::ZERO;
        lab.policy.scale_down.delay_after_failure = Span::ZERO;
        for node in 0..nodes {
            let name = format!("n{node}");
            lab = lab.ours(&name, "p", "two");
            for app in APPS {
                lab = lab.bound(&format!("{app}-{node}"), &name, 100, 10);
            }
        }
        lab = lab.node("other", 16_000, 32_768);
        let wanted = APPS
            .into_iter()
            .zip(allowed.map(|allowed| nodes.saturating_sub(allowed)));
        let mut town = Town {
            lab,
            wanted: wanted.collect(),
            loads: 0,
        };
        town.publish();
        town
    }

    fn healthy(&self, app: &str) -> usize {
        let pods = self.lab.snapshot.cluster.pods.values();
        pods.filter(|pod| {
            pod.shape.labels.get("app").is_some_and(|of| **of == *app)
                && pod.phase == Phase::Running
                && pod.deletion.is_none()
        })
        .count()
    }

    fn allowed(&self, app: &str) -> usize {
        self.healthy(app).saturating_sub(self.wanted[app])
    }

    /// The controller writes what budgets allow.
    fn publish(&mut self) {
        for app in APPS {
            let allowed = i32::try_from(self.allowed(app)).expect("few");
            self.lab = self.lab.clone().budget(app, app, allowed);
        }
        self.lab.refresh();
    }

    /// The nodes that the daemon is emptying.
    fn draining(&self) -> Vec<Arc<str>> {
        let machines = self.lab.snapshot.machines.iter();
        let busy = machines.filter(|(_, machine)| machine.busy == Some(Busy::Down));
        busy.map(|(name, _)| name.clone()).collect()
    }

    /// The pods of a node that were not evicted yet.
    fn left_on(&self, node: &str) -> Vec<ObjectKey> {
        let pods = self.lab.snapshot.cluster.pods.iter();
        let here = pods.filter(|(_, pod)| pod.node.as_deref() == Some(node));
        let here = here.filter(|(_, pod)| pod.deletion.is_none());
        here.map(|(key, _)| key.clone()).collect()
    }

    /// Decides, and begins what the checker passes one by one; says what was begun.
    fn turn(&mut self) -> Result<Vec<Action>, String> {
        let decision = self.lab.try_decide()?;
        self.lab.memory = decision.memory.clone();
        for action in &decision.plan {
            self.lab.begin(action);
            if matches!(action.kind, Kind::Remove { .. }) {
                let now = self.lab.now;
                self.lab = self
                    .lab
                    .clone()
                    .edit_machine(&action.target.machine, |machine| {
                        machine.step = Some((Step::Drain, now));
                    });
            }
        }
        Ok(decision.plan)
    }

    /// What must hold whatever happened.
    fn within_limits(&self) -> Result<(), String> {
        let draining = self.draining();
        let emptying = |node: &&Arc<str>| {
            let pods = self.lab.snapshot.cluster.pods.values();
            let mut here = pods.filter(|pod| pod.node.as_ref() == Some(*node));
            // A pod that should have been gone for a while holds no drain.
            let late = Span::seconds(30 + 30);
            here.any(|pod| {
                pod.deletion
                    .is_none_or(|since| self.lab.now.since(since) <= late)
            })
        };
        let settings = &self.lab.policy.scale_down;
        let drains = draining.iter().filter(emptying).count();
        if drains > settings.max_parallel_drain as usize
            || draining.len() > settings.max_parallel as usize
        {
            return Err(format!("{drains} of {draining:?} drain"));
        }
        for app in APPS {
            let evictions = |node: &Arc<str>| {
                let left = self.left_on(node);
                left.iter().filter(|key| key.name.starts_with(app)).count()
            };
            let (evictions, nodes) = draining
                .iter()
                .map(evictions)
                .filter(|evictions| *evictions > 0)
                .fold((0, 0), |(sum, nodes), evictions| {
                    (sum + evictions, nodes + 1)
                });
            // One node alone may wait for evictions to be allowed one after the other.
            if nodes > 1 && evictions > self.allowed(app) {
                return Err(format!(
                    "{evictions} evictions of {app} from {nodes} nodes, {} are allowed",
                    self.allowed(app)
                ));
            }
        }
        Ok(())
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Crash => {
                for machine in self.lab.snapshot.machines.values_mut() {
                    machine.busy = None;
                }
            }
            Event::Evict(which) => self.evict(which),
            Event::Gone => self.succeed(),
            Event::Down => self.take_down(),
            Event::Load(which) => {
                let name = format!("n{which}");
                let there = self.lab.snapshot.cluster.nodes.contains_key(&*name);
                // A pod that is put on a node while it drains is nobody's decision.
                if there && !self.draining().iter().any(|node| **node == *name) {
                    self.loads += 1;
                    let pod = format!("load-{}", self.loads);
                    self.lab = self.lab.clone().bound(&pod, &name, 900, 10);
                }
            }
            Event::Wait(seconds) => self.lab.now = self.lab.now + Span::seconds(seconds),
        }
        self.publish();
    }

    /// The API server grants what the budget allows at that moment.
    fn evict(&mut self, which: usize) {
        let draining = self.draining();
        let Some(node) = draining.get(which % draining.len().max(1)) else {
            return;
        };
        let now = self.lab.now;
        let left = self.left_on(node);
        let granted = left.into_iter().find(|key| {
            let app = APPS.into_iter().find(|app| key.name.starts_with(app));
            app.is_none_or(|app| self.allowed(app) > 0)
        });
        if let Some(pod) = granted.and_then(|key| self.lab.snapshot.cluster.pods.get_mut(&key)) {
            pod.deletion = Some(now);
        }
    }

    fn succeed(&mut self) {
        let pods = self.lab.snapshot.cluster.pods.iter();
        let going = pods.filter(|(_, pod)| pod.deletion.is_some());
        let Some(key) = going.map(|(key, _)| key.clone()).next() else {
            return;
        };
        let now = self.lab.now;
        self.lab = self.lab.clone().edit(&key.name, |pod| {
            pod.uid = format!("{}'", pod.uid).into();
            pod.deletion = None;
            pod.created = now;
            pod.node = Some("other".into());
        });
    }

    /// A node without pods is shut down and its machine is gone.
    fn take_down(&mut self) {
        let pods = &self.lab.snapshot.cluster.pods;
        let mut draining = self.draining().into_iter();
        let empty = draining.find(|node| pods.values().all(|pod| pod.node.as_ref() != Some(node)));
        if let Some(name) = empty {
            let gone = self.lab.snapshot.machines.remove(&name).expect("there");
            let region = self.lab.snapshot.regions.get_mut("home").expect("home");
            region.vms.remove(&gone.mark.vmid);
            self.lab.snapshot.cluster.nodes.remove(&name);
        }
    }
}

/// A drain of this node was begun, evicted nothing and was cut short.
fn cut_short(lab: Lab, node: &str) -> Lab {
    let now = lab.now;
    lab.edit_machine(node, |machine| {
        machine.step = Some((Step::Drain, now));
        machine.busy = None;
    })
    .edit_node(node, |node| {
        node.taints.push(Taint::no_schedule(LEAVING_TAINT, "0"));
        node.unschedulable = true;
    })
}

fn rule(action: &Action, lab: &Lab) -> Result<(), CheckRule> {
    check::check(action, &lab.snapshot, &lab.policy, lab.now).map_err(|refusal| refusal.rule)
}

/// Two nodes that may go, one drain at a time, one eviction allowed.
fn two() -> Lab {
    let mut town = Town::new(2, 1, 10, [1, 1]);
    town.lab.turn();
    // Begun on another view: nothing runs.
    town.lab.after(Span::minutes(11))
}

#[test]
fn an_interrupted_drain_and_another_never_run_together() {
    let lab = cut_short(two(), "n0");
    let decision = lab.decide();
    // One of the two goes, and the other is given up or waits.
    assert_eq!(removed(&decision).len(), 1, "{:?}", decision.plan);
    let going = removed(&decision)[0].clone();
    let other = if going == "n0" { "n1" } else { "n0" };
    let action = |lab: &Lab, node: &str| -> Action {
        let plan = lab.decide().plan;
        let found = plan.iter().find(|action| *action.target.machine == *node);
        found.cloned().expect("it goes")
    };
    let first = action(&lab, &going);
    // What would take down the other, planned while the first was no candidate.
    let alone = lab.clone().edit_node(&going, |node| {
        node.annotations.insert(
            "cluster-autoscaler.kubernetes.io/scale-down-disabled".into(),
            "true".into(),
        );
    });
    let second = action(&alone, other);
    assert_eq!(rule(&first, &lab), Ok(()));
    assert_eq!(rule(&second, &lab), Ok(()));
    // Once one of them has begun the other may not, whichever it is, by the view that shows it …
    for (begun, late) in [(&first, &second), (&second, &first)] {
        let mut view = lab.clone();
        view.begin(begun);
        assert_eq!(rule(late, &view), Err(CheckRule::Parallel));
        // … with the drains one more, by the budget …
        view.policy.scale_down.max_parallel_drain = 2;
        assert_eq!(rule(late, &view), Err(CheckRule::Budget));
        // … and by the view of before.
        let beside = |lab: &Lab| {
            check::check_beside(late, &[begun], &lab.snapshot, &lab.policy, lab.now)
                .map_err(|refusal| refusal.rule)
        };
        let mut lab = lab.clone();
        assert_eq!(beside(&lab), Err(CheckRule::Parallel));
        lab.policy.scale_down.max_parallel_drain = 2;
        assert_eq!(beside(&lab), Err(CheckRule::Budget));
        let twice = check::check_beside(begun, &[begun], &lab.snapshot, &lab.policy, lab.now);
        assert_eq!(twice.map_err(|refusal| refusal.rule), Err(CheckRule::Twice));
    }
}

#[test]
fn a_removal_that_is_brought_to_an_end_counts() {
    // It never worked and is leaving: nobody is at it, and it goes on.
    let lab = cut_short(two(), "n0").edit_node("n0", |node| {
        node.taints
            .push(Taint::no_schedule(model::policy::STARTUP_TAINT, ""));
    });
    let decision = lab.decide();
    assert_eq!(removed(&decision), ["n0"]);
    let second = two()
        .with(|lab| lab.policy.scale_down.max_parallel_drain = 2)
        .decide();
    let second = second
        .plan
        .iter()
        .find(|action| &*action.target.machine == "n1");
    let second = match second {
        Some(second) => second.clone(),
        None => {
            let without = two().edit_node("n0", |node| {
                node.annotations.insert(
                    "cluster-autoscaler.kubernetes.io/scale-down-disabled".into(),
                    "true".into(),
                );
            });
            without.decide().plan[0].clone()
        }
    };
    assert_eq!(&*second.target.machine, "n1");
    assert_eq!(rule(&second, &lab), Err(CheckRule::Parallel));
    let plan = [decision.plan[0].clone(), second];
    let refused = check::check_plan(&plan, &lab.snapshot, &lab.policy, lab.now);
    assert_eq!(
        refused.map_err(|refusal| refusal.rule),
        Err(CheckRule::Parallel)
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn crashes_in_the_middle_of_drains_overrun_nothing(
        nodes in 2..5usize,
        drains in 1..4u32,
        parallel in 1..5u32,
        allowed in [0..4usize, 0..4usize],
        events in prop::collection::vec(event(), 1..40),
    ) {
        let mut town = Town::new(nodes, drains, parallel.max(drains), allowed);
        prop_assert_eq!(town.turn().map(|plan| plan.len()), Ok(0));
        town.happens(Event::Wait(660));
        for event in events {
            let begun = town.turn().map_err(TestCaseError::fail)?;
            if let Err(why) = town.within_limits() {
                return Err(TestCaseError::fail(format!("{why} after {begun:#?}")));
            }
            town.happens(event);
            for app in APPS {
                prop_assert!(town.healthy(app) + 4 > town.wanted[app]);
            }
        }
        // Left alone it comes to an end: nothing is cordoned that nobody is at.
        for _ in 0..60 {
            town.turn().map_err(TestCaseError::fail)?;
            for event in [Event::Evict(0), Event::Gone, Event::Down, Event::Wait(60)] {
                town.happens(event);
            }
        }
        town.turn().map_err(TestCaseError::fail)?;
        let busy = town.draining();
        for (name, node) in &town.lab.snapshot.cluster.nodes {
            prop_assert!(!node.unschedulable || busy.contains(name), "{name} is left cordoned");
        }
    }
}

//! What actions wait for, by machine: written by the actions, read by whoever wants to know.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::cluster::ObjectKey;
use crate::model::foreign::ForeignText;
use crate::model::region::Step;
use crate::model::time::{Span, Time};

/// What is waited for this long is told in the log, and in Events of the pods that hold it up.
pub const PATIENCE: Span = Span::minutes(1);
/// Different things that one step of one action waits for, as far as they are remembered.
const MAX_CAUSES: usize = 32;
/// A pod was among those that hold a node up until this long ago: evictions are asked for again every few
/// seconds, and a round over a crowded node takes some.
const RECENT: Span = Span::seconds(30);
/// Longest text kept.
const MAX_TEXT: usize = 500;

/// What an action waits for now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ActionWait {
    /// In words.
    pub what: ForeignText,
    /// Since when it waits for that.
    pub since: Time,
    /// Something is in the way. Otherwise it is what every machine goes through, and only takes its time.
    pub hindered: bool,
}

/// A wait that lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overdue {
    /// The machine.
    pub machine: Arc<str>,
    /// What it waits for.
    pub wait: ActionWait,
    /// Pods that are to leave and do not, with their UIDs, and why.
    pub pods: BTreeMap<ObjectKey, (Arc<str>, ForeignText)>,
}

/// The waits of all actions; clones are the same waits.
#[derive(Clone, Debug, Default)]
pub struct ActionWaits {
    all: Arc<Mutex<BTreeMap<Arc<str>, WaitingAction>>>,
}

/// What one action waits for.
#[derive(Debug, Default)]
struct WaitingAction {
    /// Which work writes here: one that was aborted may end after the next one has begun.
    work: u64,
    /// The step that is worked at, and since when.
    step: Option<(Step, Time)>,
    now: Option<ActionWait>,
    /// That without its numbers.
    cause: String,
    /// All that this step has waited for, without its numbers: since when, and whether it was told.
    causes: BTreeMap<String, (Time, bool)>,
    /// Pods that may not be evicted.
    pods: BTreeMap<ObjectKey, HeldPod>,
}

#[derive(Debug)]
struct HeldPod {
    uid: Arc<str>,
    why: ForeignText,
    seen: Time,
}

impl ActionWaits {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, WaitingAction>> {
        // Whole values are put in and taken out: a poisoned lock guards nothing half done.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A step begins, or a work before its first step: what was waited for before is over.
    pub(super) fn begin(&self, machine: &Arc<str>, work: u64, step: Option<(Step, Time)>) {
        let waiting = WaitingAction {
            work,
            step,
            ..WaitingAction::default()
        };
        self.all().insert(machine.clone(), waiting);
    }

    /// Notes what is waited for.
    pub(super) fn note(&self, machine: &str, what: &str, hindered: bool, now: Time) {
        let mut all = self.all();
        let Some(waiting) = all.get_mut(machine) else {
            return;
        };
        let what = ForeignText::new(what).cut(MAX_TEXT);
        // "… for 12 s" and "… for 13 s" are one cause.
        let cause: String = what.chars().filter(|c| !c.is_ascii_digit()).collect();
        let known = waiting.causes.get(&cause).map(|(since, _)| *since);
        if known.is_none() && waiting.causes.len() < MAX_CAUSES {
            waiting.causes.insert(cause.clone(), (now, false));
        }
        waiting.cause = cause;
        waiting.now = Some(ActionWait {
            what,
            since: known.unwrap_or(now),
            hindered,
        });
    }

    /// Notes a pod that may not be evicted.
    pub(super) fn held_by(
        &self,
        machine: &str,
        pod: &ObjectKey,
        uid: &Arc<str>,
        why: &str,
        now: Time,
    ) {
        if let Some(waiting) = self.all().get_mut(machine) {
            let held = HeldPod {
                uid: uid.clone(),
                why: ForeignText::new(why).cut(MAX_TEXT),
                seen: now,
            };
            waiting.pods.insert(pod.clone(), held);
        }
    }

    /// A work ended.
    pub(super) fn end(&self, machine: &str, work: u64) {
        let mut all = self.all();
        if all.get(machine).is_some_and(|waiting| waiting.work == work) {
            all.remove(machine);
        }
    }

    /// The step that an action on this machine is in, and since when.
    pub fn step(&self, machine: &str) -> Option<(Step, Time)> {
        self.all().get(machine)?.step
    }

    /// What an action on this machine waits for now.
    pub fn of(&self, machine: &str) -> Option<ActionWait> {
        self.all().get(machine)?.now.clone()
    }

    /// What has been waited for long enough to be told, each cause once.
    pub fn overdue(&self, now: Time) -> Vec<Overdue> {
        let mut all = self.all();
        let overdue = all.iter_mut().filter_map(|(machine, waiting)| {
            let wait = waiting.now.clone()?;
            let (since, told) = waiting.causes.get_mut(&waiting.cause)?;
            if *told || now.since(*since) < PATIENCE {
                return None;
            }
            *told = true;
            let held = waiting.pods.iter();
            let held = held.filter(|(_, held)| now.since(held.seen) <= RECENT);
            let held = held.map(|(pod, held)| (pod.clone(), (held.uid.clone(), held.why.clone())));
            Some(Overdue {
                machine: machine.clone(),
                pods: held.collect(),
                wait,
            })
        });
        overdue.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Time = Time(1_795_000_000_000);

    fn at(seconds: i64) -> Time {
        START + Span::seconds(seconds)
    }

    fn begun() -> (ActionWaits, Arc<str>) {
        let (waits, machine) = (ActionWaits::default(), Arc::from("small-a"));
        waits.begin(&machine, 1, None);
        (waits, machine)
    }

    #[test]
    fn a_cause_is_told_once_after_a_minute_whatever_its_numbers() {
        let (waits, machine) = begun();
        let mut told = Vec::new();
        for second in 0..300 {
            waits.note(
                &machine,
                &format!("no answer within {second} s"),
                true,
                at(second),
            );
            told.extend(waits.overdue(at(second)));
        }
        let [overdue] = told.as_slice() else {
            panic!("{told:#?}");
        };
        assert_eq!(overdue.wait.what, "no answer within 60 s");
        assert_eq!(overdue.wait.since, START);
        let wait = waits.of(&machine).expect("it waits");
        assert_eq!((wait.since, wait.hindered), (START, true));
    }

    #[test]
    fn causes_that_take_turns_are_told_once_each() {
        let (waits, machine) = begun();
        let mut told = Vec::new();
        for second in 0..300 {
            let what = if second % 2 == 0 {
                "a lock"
            } else {
                "an agent"
            };
            waits.note(&machine, what, false, at(second));
            told.extend(waits.overdue(at(second)).into_iter().map(|o| o.wait.what));
        }
        assert_eq!(told, ["a lock", "an agent"]);
    }

    #[test]
    fn the_next_step_begins_anew_and_an_aborted_work_takes_nothing_with_it() {
        let (waits, machine) = begun();
        waits.note(&machine, "a lock", true, START);
        waits.begin(&machine, 2, None);
        assert_eq!(waits.of(&machine), None);
        waits.note(&machine, "a lock", true, at(50));
        waits.end(&machine, 1);
        assert_eq!(waits.of(&machine).map(|wait| wait.since), Some(at(50)));
        assert!(waits.overdue(at(70)).is_empty());
        waits.end(&machine, 2);
        assert_eq!(waits.of(&machine), None);
    }

    #[test]
    fn only_pods_that_still_hold_it_up_are_named() {
        let (waits, machine) = begun();
        let uid: Arc<str> = "u".into();
        let pod = |name: &str| ObjectKey::new("default", name);
        waits.held_by(&machine, &pod("gone"), &uid, "a budget", at(5));
        for second in [0, 58] {
            waits.note(&machine, "pods", true, at(second));
            waits.held_by(&machine, &pod("stays"), &uid, "a budget", at(second));
        }
        let told = waits.overdue(at(60));
        let named: Vec<_> = told
            .iter()
            .flat_map(|overdue| overdue.pods.keys())
            .collect();
        assert_eq!(named, [&pod("stays")]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (waits, machine) = begun();
        let words = ('a'..='z').flat_map(|a| ('a'..='z').map(move |b| format!("{a}{b}")));
        words.for_each(|word| waits.note(&machine, &word, true, START));
        assert_eq!(waits.overdue(at(61)).len(), 0, "the last one came too late");
        assert_eq!(waits.all()[&machine].causes.len(), MAX_CAUSES);
        waits.note(&machine, &"x".repeat(10_000), true, START);
        assert!(
            waits
                .of(&machine)
                .is_some_and(|wait| wait.what.len() <= MAX_TEXT + 4)
        );
    }
}

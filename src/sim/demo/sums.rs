//! What the demo's timeline comes to: sums, each beside the sign that its lines began with. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::controller::turn::Turn;
use crate::model::action::Kind;
use crate::model::cluster::ObjectKey;
use crate::model::region::Step;
use crate::model::time::{Span, Time};
use crate::model::words;

use super::timeline::{self, TimelineLine, Tone};

/// What was there before a part of the story began: it is not counted as what came in it.
#[derive(Debug, Default)]
struct BeforePart {
    pods: BTreeSet<ObjectKey>,
    removed: BTreeSet<Arc<str>>,
}

/// What is counted, turn by turn.
#[derive(Debug, Default)]
pub(super) struct Sums {
    before: BeforePart,
    /// Pods that are there now.
    there: BTreeSet<ObjectKey>,
    /// When each machine was decided, until it is in service.
    coming: BTreeMap<Arc<str>, Time>,
    /// How long machines took from the decision until they were in service.
    starts: Vec<Span>,
    made: BTreeSet<Arc<str>>,
    removed: BTreeSet<Arc<str>>,
    gone: usize,
    failures: usize,
    /// Hosts and templates that somebody put out of use.
    faults: usize,
    /// Decisions on something that went wrong, such as to start a VM that is off.
    repairs: usize,
    /// Decisions that make and remove nothing, such as to update in place.
    others: usize,
    pods: BTreeSet<ObjectKey>,
    /// Pods without a node, by the turn that first saw them so.
    waiting: BTreeMap<ObjectKey, Time>,
    /// How long pods waited that got a node after that.
    waits: Vec<Span>,
    most_nodes: usize,
}

impl Sums {
    /// The sums so far. Counting goes on with the next part: what waits and comes now is waited for on, and what is there
    /// did not come anew.
    pub(super) fn part(&mut self) -> Sums {
        let next = Sums {
            before: BeforePart {
                pods: self.there.clone(),
                removed: self.removed.union(&self.before.removed).cloned().collect(),
            },
            there: self.there.clone(),
            coming: self.coming.clone(),
            waiting: self.waiting.clone(),
            ..Sums::default()
        };
        std::mem::replace(self, next)
    }

    /// Counts what is new in `after`.
    pub(super) fn count(&mut self, before: Option<&Turn>, after: &Turn) {
        let now = after.at;
        for action in &after.decision.plan {
            let name = &action.target.machine;
            match &action.kind {
                Kind::Create(_) if self.made.insert(name.clone()) => {
                    self.coming.insert(name.clone(), now);
                }
                Kind::Remove { .. } if !self.before.removed.contains(name) => {
                    self.removed.insert(name.clone());
                }
                Kind::Create(_) | Kind::Remove { .. } => {}
                kind if timeline::is_repair(kind) => self.repairs += 1,
                _ if timeline::decided(action, false).is_some() => self.others += 1,
                _ => {}
            }
        }
        let none = BTreeMap::new();
        let old = before.map_or(&none, |turn| &turn.snapshot.machines);
        let new = &after.snapshot.machines;
        for (name, machine) in new {
            if matches!(machine.step, Some((Step::Done, _)))
                && let Some(begun) = self.coming.remove(name)
            {
                self.starts.push(now.since(begun));
            }
        }
        self.gone += old.keys().filter(|name| !new.contains_key(*name)).count();
        self.pods(after);
    }

    /// Counts what was told of as gone wrong.
    pub(super) fn told(&mut self, lines: &[TimelineLine]) {
        let of = |tone| lines.iter().filter(|line| line.tone == tone).count();
        self.failures += of(Tone::Trouble);
        self.faults += of(Tone::Fault);
    }

    fn pods(&mut self, after: &Turn) {
        let cluster = &after.snapshot.cluster;
        self.most_nodes = self.most_nodes.max(cluster.nodes.len());
        self.there.clear();
        for (key, pod) in &cluster.pods {
            let owner = pod.shape.owner.as_ref();
            if owner.is_some_and(|owner| &*owner.kind == "DaemonSet") {
                continue;
            }
            self.there.insert(key.clone());
            if !self.before.pods.contains(key) {
                self.pods.insert(key.clone());
            }
            if pod.node.is_none() {
                self.waiting.entry(key.clone()).or_insert(after.at);
            } else if let Some(since) = self.waiting.remove(key) {
                self.waits.push(after.at.since(since));
            }
        }
        self.waiting
            .retain(|key, _| cluster.pods.get(key).is_some());
    }

    /// What was counted, in numbers.
    pub(super) fn numbers(&self) -> SumNumbers {
        SumNumbers {
            made: self.made.len(),
            removed: self.removed.len(),
            gone: self.gone,
            failures: self.failures,
            faults: self.faults,
            repairs: self.repairs,
            others: self.others,
            pods: self.pods.len(),
            most_nodes: self.most_nodes,
            starts: self.starts.clone(),
            waits: self.waits.clone(),
        }
    }
}

/// Starts and waits of which the median is taken: a demo that goes on for days forgets the oldest.
const MOST_SPANS: usize = 10_000;

/// Sums in numbers, of one part of the story or of several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SumNumbers {
    made: usize,
    removed: usize,
    gone: usize,
    failures: usize,
    faults: usize,
    repairs: usize,
    others: usize,
    pods: usize,
    most_nodes: usize,
    starts: Vec<Span>,
    waits: Vec<Span>,
}

impl SumNumbers {
    /// These, and those of a part after them.
    pub(super) fn add(&mut self, part: &SumNumbers) {
        self.made += part.made;
        self.removed += part.removed;
        self.gone += part.gone;
        self.failures += part.failures;
        self.faults += part.faults;
        self.repairs += part.repairs;
        self.others += part.others;
        self.pods += part.pods;
        self.most_nodes = self.most_nodes.max(part.most_nodes);
        for (all, more) in [
            (&mut self.starts, &part.starts),
            (&mut self.waits, &part.waits),
        ] {
            all.extend(more);
            all.drain(..all.len().saturating_sub(MOST_SPANS));
        }
    }

    /// The sums, each with the sign that its lines began with.
    pub(super) fn lines(&self) -> Vec<(Tone, String)> {
        let of = |number: usize, one: &str| words::count(number, one);
        let starts = spread(&self.starts).map_or_else(String::new, |(median, most)| {
            format!(", {median} after the decision (median), {most} at most")
        });
        let service = format!("{} in service{starts}", of(self.starts.len(), "machine"));
        let waits = spread(&self.waits).map_or_else(String::new, |(median, most)| {
            let many = self.waits.len();
            format!(
                "; {many} had no node at first and got one {median} later (median), {most} at most"
            )
        });
        let pods = format!("{} came{waits}", of(self.pods, "pod"));
        let nodes = of(self.most_nodes, "node");
        let others = match self.others {
            0 => String::new(),
            many => format!(", {many} otherwise"),
        };
        let repairs = match self.repairs {
            0 => String::new(),
            many => format!(", {}", of(many, "repair")),
        };
        let faults = match self.faults {
            0 => String::new(),
            many => format!(", besides {} that you asked for", of(many, "fault")),
        };
        let (made, removed) = (of(self.made, "machine"), self.removed);
        vec![
            (
                Tone::Decision,
                format!("decided: {made} made, {removed} removed{others}{repairs}"),
            ),
            (Tone::Up, service),
            (
                Tone::Down,
                format!("{} gone, VM and all", of(self.gone, "machine")),
            ),
            (
                Tone::Trouble,
                format!("{}{faults}", of(self.failures, "failure")),
            ),
            (Tone::Fact, format!("{pods}; {nodes} at most")),
        ]
    }
}

/// The median and the largest, in whole seconds.
fn spread(spans: &[Span]) -> Option<(Span, Span)> {
    let mut sorted = spans.to_vec();
    sorted.sort_unstable();
    let whole = |span: &Span| Span::seconds(span.0 / 1000);
    Some((whole(sorted.get(sorted.len() / 2)?), whole(sorted.last()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sums_of_all_parts_are_those_of_each_together() {
        let part = |made: usize, nodes: usize, start: i64| SumNumbers {
            made,
            most_nodes: nodes,
            starts: vec![Span::seconds(start)],
            repairs: 1,
            ..SumNumbers::default()
        };
        let mut all = SumNumbers::default();
        all.add(&part(3, 6, 10));
        all.add(&part(8, 4, 50));
        let lines = all.lines();
        let said: Vec<&str> = lines.iter().map(|(_, text)| &**text).collect();
        assert_eq!(said[0], "decided: 11 machines made, 0 removed, 2 repairs");
        assert!(
            said[1].starts_with("2 machines in service, 50s after"),
            "{said:?}"
        );
        assert!(said[4].ends_with("; 6 nodes at most"), "{said:?}");
    }

    /// Who locks the template on the page made that fault: it is no failure of the daemon's, nor of a machine.
    #[test]
    fn a_fault_that_was_asked_for_is_no_failure() {
        let line = |tone| TimelineLine {
            tone,
            text: "something".to_owned(),
        };
        let mut sums = Sums::default();
        sums.told(&[line(Tone::Fault), line(Tone::Trouble), line(Tone::Up)]);
        sums.told(&[line(Tone::Fault)]);
        let mut all = SumNumbers::default();
        all.add(&sums.numbers());
        let said = |numbers: &SumNumbers| {
            let lines = numbers.lines();
            let wrong = lines.iter().find(|(tone, _)| *tone == Tone::Trouble);
            wrong.map(|(_, text)| text.clone()).unwrap_or_default()
        };
        assert_eq!(said(&all), "1 failure, besides 2 faults that you asked for");
        assert_eq!(said(&SumNumbers::default()), "0 failures");
    }

    #[test]
    fn the_median_is_in_the_middle_and_nothing_has_none() {
        let of = |seconds: &[i64]| {
            let spans: Vec<Span> = seconds.iter().map(|it| Span(it * 1000 + 999)).collect();
            spread(&spans).map(|(median, most)| (median.0 / 1000, most.0 / 1000))
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[7]), Some((7, 7)));
        assert_eq!(of(&[30, 10, 20]), Some((20, 30)));
        assert_eq!(of(&[1, 50, 2, 3]), Some((3, 50)));
    }
}

//! Which of the recorded deeds are asked for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::change::ValueChange;
use super::idle::{self, HoldsByTime, IdleTime};
use super::line::{self, Deed, DeedKind, ReadLine, action, machine};
use super::query::{Filter, failure};
use crate::model::time::Time;

/// Deeds that were found so far.
pub(super) struct FoundDeeds<'a> {
    filter: &'a Filter,
    most: usize,
    pub(super) deeds: VecDeque<Deed>,
    /// The version of the program that wrote what is looked at.
    program: Option<Arc<str>>,
    /// Machines that had to do with what is asked for.
    machines: BTreeSet<Arc<str>>,
    /// The decision before.
    number: u64,
    /// What the report says of the pod or node that is asked for.
    verdict: Option<Value>,
    /// What of it was told last.
    told: Option<Value>,
    /// The report does not know Kubernetes, as after a start of the daemon: that something is not in it says nothing.
    unread: bool,
    /// The node of the pod that is asked for.
    bound: Option<Arc<str>>,
    /// What was on hold, whatever is asked for.
    pub(super) holds: HoldsByTime,
}

/// Verdicts by name, as a whole state has them.
#[derive(Deserialize)]
struct Whole {
    #[serde(default)]
    snapshot: WholeSnapshot,
    decision: WholeDecision,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WholeSnapshot {
    cluster: WholeCluster,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WholeCluster {
    pods: BTreeMap<String, PodNode>,
}

/// Where a pod is.
#[derive(Deserialize)]
struct PodNode {
    #[serde(default)]
    node: Option<Arc<str>>,
}

#[derive(Deserialize)]
struct WholeDecision {
    report: WholeReport,
}

#[derive(Deserialize)]
struct WholeReport {
    #[serde(default)]
    unread: Value,
    #[serde(default)]
    pods: BTreeMap<String, Value>,
    #[serde(default)]
    nodes: BTreeMap<String, Value>,
}

impl<'a> FoundDeeds<'a> {
    /// Nothing is found yet.
    pub(super) fn new(filter: &'a Filter, most: usize) -> FoundDeeds<'a> {
        FoundDeeds {
            filter,
            most,
            deeds: VecDeque::new(),
            program: None,
            machines: BTreeSet::new(),
            number: 0,
            verdict: None,
            told: None,
            unread: false,
            bound: None,
            holds: HoldsByTime::default(),
        }
    }

    /// The deeds, with how the times began and ended in which nothing was done, where everything is asked for; and these times.
    pub(super) fn finish(self) -> (VecDeque<Deed>, Vec<IdleTime>) {
        let (mut deeds, mut idle) = (self.deeds, self.holds.idle_times());
        if self.filter.is_open() {
            idle::put_among(&mut deeds, idle.clone(), |at| self.filter.holds_time(at));
            let over = deeds.len().saturating_sub(self.most.max(1));
            deeds.drain(..over);
        }
        let (since, until) = (self.filter.since, self.filter.until);
        idle.retain(|one| one.overlaps(since, until));
        (deeds, idle)
    }

    fn tell(&mut self, at: Time, kind: DeedKind) {
        if !self.filter.holds_time(at) {
            return;
        }
        if self.deeds.len() >= self.most.max(1) {
            self.deeds.pop_front();
        }
        self.deeds.push_back(Deed {
            at,
            decision: self.number,
            program: self.program.clone(),
            kind,
        });
    }

    pub(super) fn look(&mut self, line: &ReadLine) {
        self.holds.take(line);
        if let Some(number) = line.number {
            self.number = number;
        }
        if let Some(program) = &line.program {
            self.program = Some(program.as_str().into());
        }
        if line.skipped.lost > 0 && self.filter.is_open() {
            let many = line.skipped.lost;
            self.tell(line.at, DeedKind::Lost { many });
        }
        if let Some(begun) = line.begun().filter(|_| self.filter.is_open()) {
            self.tell(line.at, begun);
        }
        if let Some(asked) = line.asked.clone()
            && self.filter.is_open()
        {
            let why = line.message.clone().unwrap_or_default();
            let by = line.by.clone();
            self.tell(line.at, DeedKind::Asked { asked, why, by });
        }
        if line.what == "leads" && self.filter.is_open() {
            let leader = line.leader.clone();
            self.tell(line.at, DeedKind::Leads { leader });
        }
        self.verdicts(line);
        for action in &line.plan {
            if let Some(planned) = DeedKind::planned(action, line)
                && self.concerns(action)
            {
                self.tell(line.at, planned);
            }
        }
        let Some(value) = line.action.as_ref().filter(|value| self.concerns(value)) else {
            return;
        };
        let Some(machine) = machine(value) else {
            return;
        };
        let action = action(value);
        match line.what.as_str() {
            "not_begun" => {
                let why = line.message.clone().unwrap_or_default();
                self.tell(
                    line.at,
                    DeedKind::NotBegun {
                        action,
                        machine,
                        why,
                    },
                );
            }
            "ended" => {
                let failure = failure(line);
                self.tell(
                    line.at,
                    DeedKind::Ended {
                        action,
                        machine,
                        failure,
                    },
                );
            }
            _ => {}
        }
    }

    fn concerns(&mut self, action: &Value) -> bool {
        let concerns = self.filter.concerns(action, &self.machines);
        if concerns
            && !self.filter.is_open()
            && let Some(name) = machine(action)
        {
            self.machines.insert(name);
        }
        concerns
    }

    /// Looks for the verdict of the pod or node that is asked for.
    fn verdicts(&mut self, line: &ReadLine) {
        let (list, key) = match (&self.filter.pod, &self.filter.node) {
            (Some(pod), _) => ("pods", pod.to_string()),
            (None, Some(node)) => ("nodes", node.clone()),
            (None, None) => return,
        };
        if !self.read_verdict(line, list, &key) || (self.verdict.is_none() && self.unread) {
            return;
        }
        // Numbers and times in the reasons change all the while. What a node that is given up waits for does not, and one after the other
        // is how its replacement comes.
        let gist = |verdict: &Option<Value>| {
            let get = |place: &str| verdict.as_ref().and_then(|it| it.pointer(place)).cloned();
            GIST.map(get)
        };
        // That a pod is bound is told of one that waited.
        let bound = self.bound.as_ref().filter(|_| list == "pods");
        let bound = bound.filter(|_| self.told.is_some());
        let bound = bound.map(|node| serde_json::json!({ "node": node }));
        let is = self.verdict.clone().or(bound);
        if gist(&is) != gist(&self.told) {
            self.told.clone_from(&is);
            let verdict = line::text(is.as_ref().and_then(|it| it.get("verdict")));
            let verdict = verdict.map(|name| name.to_string());
            let report = is.unwrap_or_default();
            let kind = if list == "pods" {
                DeedKind::Pod { verdict, report }
            } else {
                DeedKind::Node { verdict, report }
            };
            self.tell(line.at, kind);
        }
    }

    /// Reads what a record says of the pod or node. False: it says nothing of it.
    fn read_verdict(&mut self, line: &ReadLine, list: &str, key: &str) -> bool {
        if let Some(state) = &line.state {
            let whole = serde_json::from_str::<Whole>(state.get());
            let Ok(mut whole) = whole else {
                return false;
            };
            let pod = whole.snapshot.cluster.pods.remove(key);
            self.bound = pod.and_then(|pod| pod.node);
            let mut report = whole.decision.report;
            self.unread = lacks_kubernetes(&report.unread);
            let verdicts = if list == "pods" {
                &mut report.pods
            } else {
                &mut report.nodes
            };
            self.verdict = verdicts.remove(key);
        } else if let Some(changes) = line.changes.as_ref()
            && (changes.get().contains(key) || changes.get().contains("\"unread\""))
            && let Ok(changes) = serde_json::from_str::<Vec<ValueChange>>(changes.get())
        {
            let path = ["decision", "report", list, key];
            let seen = ["snapshot", "cluster", list, key];
            for change in changes {
                match change {
                    ValueChange::Set(at, value) if at == path => self.verdict = Some(value),
                    ValueChange::Gone((at,)) if at == path => self.verdict = None,
                    ValueChange::Set(at, value) if at == UNREAD => {
                        self.unread = lacks_kubernetes(&value);
                    }
                    ValueChange::Gone((at,)) if at == UNREAD => self.unread = false,
                    ValueChange::Set(at, pod) if at == seen => {
                        self.bound = line::text(pod.get("node"));
                    }
                    ValueChange::Gone((at,)) if at == seen => self.bound = None,
                    _ => {}
                }
            }
        } else {
            return false;
        }
        true
    }
}

/// What of a verdict makes it another one.
const GIST: [&str; 7] = [
    "/verdict",
    "/machine",
    "/node",
    "/reason",
    "/by",
    "/details/waits/code",
    "/details/waits/machine",
];

/// Where a report says what was not read.
const UNREAD: [&str; 3] = ["decision", "report", "unread"];

/// Whether a report that did not read this does not know Kubernetes, as `Report::knows_kubernetes` has it.
fn lacks_kubernetes(unread: &Value) -> bool {
    let sources = unread.as_array().into_iter().flatten();
    let mut sources = sources.filter_map(Value::as_str);
    sources.any(|source| !source.starts_with("pve/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of a program that did not tell who asked is read, too.
    #[test]
    fn who_asked_is_read_where_it_is_recorded() {
        let filter = Filter::default();
        let mut found = FoundDeeds::new(&filter, 10);
        for text in [
            r#"{"at": "2026-01-01T08:00:01Z", "what": "asked", "asked": "evacuate", "message": "pve2"}"#,
            r#"{"at": "2026-01-01T08:00:02Z", "what": "asked", "asked": "evacuate --end", "message": "pve2", "by": "ann"}"#,
        ] {
            found.look(&serde_json::from_str(text).expect("a record"));
        }
        let askers = found.deeds.iter().map(|deed| match &deed.kind {
            DeedKind::Asked { why, by, .. } => (why.as_str(), by.as_deref()),
            other => panic!("{other:?}"),
        });
        let askers: Vec<_> = askers.collect();
        assert_eq!(askers, [("pve2", None), ("pve2", Some("ann"))]);
    }

    /// That the machine in its place is planned, and then on its way, is told of a node that stays `BeingReplaced`; numbers that change are
    /// not.
    #[test]
    fn how_the_machine_in_its_place_comes_is_told_of_a_node() {
        let filter = Filter {
            node: Some("n2".to_owned()),
            ..Filter::default()
        };
        let mut found = FoundDeeds::new(&filter, 10);
        let verdict = |why: &str, waits: &str| {
            format!(
                r#"{{"verdict": "kept", "reason": "BeingReplaced", "why": "{why}", "details": {{"code": "given_up", "waits": {waits}}}}}"#
            )
        };
        let batch = r#"{"code": "batch", "until": "2026-01-01T08:03:36Z"}"#;
        let planned = r#"{"code": "machine_planned", "machine": "n9"}"#;
        let coming = r#"{"code": "machine_coming", "machine": "n9"}"#;
        let told = [
            verdict("a", batch),
            verdict("b", batch),
            verdict("c", planned),
            verdict("d", coming),
        ];
        for (second, verdict) in told.iter().enumerate() {
            let text = format!(
                r#"{{"at": "2026-01-01T08:00:0{second}Z", "what": "decision", "number": {second}, "changes": [[["decision", "report", "nodes", "n2"], {verdict}]]}}"#
            );
            found.look(&serde_json::from_str(&text).expect("a record"));
        }
        let whys = found.deeds.iter().map(|deed| match &deed.kind {
            DeedKind::Node { report, .. } => report["why"].as_str().unwrap_or_default(),
            other => panic!("{other:?}"),
        });
        assert_eq!(whys.collect::<Vec<_>>(), ["a", "c", "d"]);
    }

    /// The program that recorded a deed is that of the whole state before it, also for what came of a decision.
    #[test]
    fn each_deed_has_the_program_that_recorded_it() {
        let filter = Filter::default();
        let mut found = FoundDeeds::new(&filter, 10);
        for text in [
            r#"{"at": "2026-01-01T08:00:01Z", "what": "asked", "asked": "pause", "message": "nobody is known yet"}"#,
            r#"{"at": "2026-01-01T08:00:02Z", "what": "whole", "program": "0.1.0", "number": 1}"#,
            r#"{"at": "2026-01-01T08:00:03Z", "what": "asked", "asked": "resume"}"#,
            r#"{"at": "2026-01-01T08:00:04Z", "what": "whole", "program": "0.2.0", "number": 1}"#,
            r#"{"at": "2026-01-01T08:00:05Z", "what": "ended", "action": {"kind": "start", "target": {"machine": "small-aaaaa"}}}"#,
        ] {
            found.look(&serde_json::from_str(text).expect("a record"));
        }
        let programs = found.deeds.iter().map(|deed| deed.program.as_deref());
        let programs: Vec<Option<&str>> = programs.collect();
        let (old, new) = (Some("0.1.0"), Some("0.2.0"));
        assert_eq!(programs, [None, old, old, new, new]);
    }
}

//! Spans of what the executor does to machines.
//!
//! The root, `machine`, goes from the decision until the machine is a working node, or until it is gone without having
//! been one. Below it each attempt is a span (`create`, `continue`, `remove` …), and below an attempt its steps. Nothing
//! is kept between two starts: what a span needs stands in the mark and in the journal.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Clock;
use crate::controller::executor::Observer;
use crate::controller::journal::JournalEntry;
use crate::model::action::{Action, Kind};
use crate::model::region::{Failure, Step};
use crate::model::time::{Span, Time};

use super::{PhaseFault, TraceId, TraceSpan, TracedMachine};

/// The name of the span of a whole life.
const ROOT: &str = "machine";

/// What an attempt failed with that nobody carried to its end.
const INTERRUPTED: &str = "interrupted";

/// Where spans go. Must come back at once.
pub trait Sink: Send + Sync + fmt::Debug {
    /// A span ended.
    fn take(&self, span: TraceSpan);
}

/// Makes spans, and tells another observer everything, too.
#[derive(Debug)]
pub struct Lives {
    observer: Arc<dyn Observer>,
    sink: Arc<dyn Sink>,
    clock: Clock,
    attempts: Mutex<BTreeMap<Arc<str>, Attempt>>,
}

/// An action under way on a machine.
#[derive(Debug)]
struct Attempt {
    trace: TraceId,
    machine: Arc<TracedMachine>,
    name: &'static str,
    reason: Arc<str>,
    began: Time,
    /// When the machine was decided.
    decided: Time,
    /// It is the first one: nothing was done to the machine before.
    first: bool,
    /// The machine was a working node before.
    was_up: bool,
    /// Why the attempt before this one failed.
    before: Option<PhaseFault>,
    /// The step that an earlier daemon left in the middle, and when it began.
    resumes: Option<(Step, Time)>,
    /// The drain, of which another part may come.
    step: Option<(Step, TraceSpan)>,
}

impl Lives {
    /// Makes spans for `sink` of what `observer` hears.
    pub fn new(observer: Arc<dyn Observer>, sink: Arc<dyn Sink>, clock: Clock) -> Lives {
        Lives {
            observer,
            sink,
            clock,
            attempts: Mutex::default(),
        }
    }

    fn attempts(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Attempt>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An attempt is over.
    fn close(&self, attempt: &Attempt, now: Time, failure: Option<PhaseFault>, end: AttemptEnd) {
        if let Some((_, step)) = attempt.step.clone() {
            self.sink.take(step);
        }
        let root = attempt.root(now, failure.as_ref(), end);
        self.sink.take(TraceSpan {
            reason: attempt.reason.clone(),
            failure,
            ..attempt.span(attempt.name, attempt.began, now)
        });
        if let Some(root) = root {
            self.sink.take(root);
        }
    }
}

/// What an attempt came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AttemptEnd {
    /// The machine is a working node.
    Up,
    /// The machine is gone.
    Gone,
    /// Neither.
    Other,
}

impl Attempt {
    fn of(action: &Action, entry: &JournalEntry, now: Time) -> Attempt {
        let mark = &entry.spec.mark;
        let target = &action.target;
        let machine = TracedMachine {
            name: target.machine.clone(),
            cluster: mark.cluster.as_str().into(),
            region: target.region.clone(),
            host: target.host.clone(),
            vmid: mark.vmid,
            pool: mark.pool.as_str().into(),
            instance_type: mark.instance_type.as_str().into(),
            template: mark.template.as_str().into(),
            uuid: entry.uuid.clone(),
            node: target.node.as_ref().map(|node| node.uid.clone()),
        };
        let first = matches!(action.kind, Kind::Create(_)) && entry.step == Step::Intent;
        // A step that failed and is tried again begins anew; one that a daemon left goes on.
        let resumes = entry.failure.is_none() && !first && entry.step != Step::Done;
        Attempt {
            trace: TraceId::of(mark),
            machine: Arc::new(machine),
            name: name(&action.kind),
            reason: action.reason.to_string().into(),
            began: if first { mark.created.min(now) } else { now },
            decided: mark.created.min(now),
            first,
            was_up: entry.reached >= Some(Step::Done)
                || entry.step == Step::Done
                || entry.target.node.is_some(),
            before: entry.failure.as_ref().map(fault),
            resumes: resumes.then_some((entry.step, entry.since)),
            step: None,
        }
    }

    fn span(&self, name: &'static str, began: Time, ended: Time) -> TraceSpan {
        TraceSpan {
            trace: self.trace,
            id: self.trace.span(name, began),
            parent: Some(self.trace.root()),
            name,
            began,
            ended: ended.max(began),
            machine: self.machine.clone(),
            reason: Arc::default(),
            events: Vec::new(),
            failure: None,
        }
    }

    /// A span below this attempt's.
    fn below(&self, name: &'static str, began: Time, ended: Time) -> TraceSpan {
        TraceSpan {
            // An attempt and a step may begin in the same millisecond, but never have the same name.
            parent: Some(self.trace.span(self.name, self.began)),
            ..self.span(name, began, ended)
        }
    }

    /// The span of the whole life, where this attempt is what ends it: with a working node, or without one ever.
    fn root(&self, now: Time, failure: Option<&PhaseFault>, end: AttemptEnd) -> Option<TraceSpan> {
        if self.was_up || failure.is_some() || end == AttemptEnd::Other {
            return None;
        }
        let never = || {
            self.before.clone().unwrap_or_else(|| PhaseFault {
                step: "intent",
                message: format!("it was removed before it was a node: {}", self.reason).into(),
            })
        };
        Some(TraceSpan {
            id: self.trace.root(),
            parent: None,
            reason: self.reason.clone(),
            failure: (end == AttemptEnd::Gone).then(never),
            ..self.span(ROOT, self.decided, now)
        })
    }

    /// A step ended: the span before it, if that was another step, and what it makes itself.
    fn stepped(
        &mut self,
        step: Step,
        took: Span,
        now: Time,
        failure: Option<PhaseFault>,
    ) -> Vec<TraceSpan> {
        let mut began = now - took;
        if let Some((at, since)) = self.resumes
            && at == step
        {
            began = began.min(since);
            self.resumes = None;
        }
        let mut done = Vec::new();
        if std::mem::take(&mut self.first) && began > self.decided {
            done.push(self.below(Step::Intent.word(), self.decided, began));
        }
        match &mut self.step {
            // A drain is done in several parts, each with a time of its own.
            Some((same, span)) if *same == step => {
                span.ended = now.max(span.began);
                span.failure = failure;
            }
            _ => {
                let span = TraceSpan {
                    failure,
                    ..self.below(step.word(), began, now)
                };
                done.extend(self.step.take().map(|(_, before)| before));
                if step == Step::Drain {
                    self.step = Some((step, span));
                } else {
                    done.push(span);
                }
            }
        }
        done
    }
}

impl Observer for Lives {
    fn begun(&self, action: &Action, entry: Option<&JournalEntry>) {
        let now = self.clock.now();
        let new = entry.map(|entry| Attempt::of(action, entry, now));
        let name = name(&action.kind);
        let before = match new {
            Some(new) => self.attempts().insert(action.target.machine.clone(), new),
            None => self.attempts().remove(&action.target.machine),
        };
        if let Some(before) = before {
            let broken = PhaseFault {
                step: INTERRUPTED,
                message: format!("it was broken off; what follows it: {name}").into(),
            };
            self.close(&before, now, Some(broken), AttemptEnd::Other);
        }
        self.observer.begun(action, entry);
    }

    fn moment(&self, machine: &str, what: &'static str) {
        let now = self.clock.now();
        if let Some(attempt) = self.attempts().get_mut(machine)
            && let Some((_, span)) = &mut attempt.step
        {
            span.events.push((what, now));
        }
        self.observer.moment(machine, what);
    }

    fn step(&self, machine: &str, step: Step, took: Span, failure: Option<&Failure>) {
        let now = self.clock.now();
        let done = match self.attempts().get_mut(machine) {
            Some(attempt) => attempt.stepped(step, took, now, failure.map(fault)),
            None => Vec::new(),
        };
        for span in done {
            self.sink.take(span);
        }
        self.observer.step(machine, step, took, failure);
    }

    fn evicted(&self, ok: bool) {
        self.observer.evicted(ok);
    }

    fn turned(&self, took: Duration) {
        self.observer.turned(took);
    }

    fn ended(&self, action: &Action, failure: Option<&Failure>) {
        let attempt = self.attempts().remove(&action.target.machine);
        if let Some(attempt) = attempt {
            let end = match action.kind {
                Kind::Create(_) | Kind::Continue => AttemptEnd::Up,
                Kind::Remove { .. } | Kind::DeletePlaceholder | Kind::DropIntent => {
                    AttemptEnd::Gone
                }
                _ => AttemptEnd::Other,
            };
            self.close(&attempt, self.clock.now(), failure.map(fault), end);
        }
        self.observer.ended(action, failure);
    }

    fn stopped(&self) {
        // Who leads from now on goes on with these machines, and tells of that.
        let now = self.clock.now();
        for attempt in std::mem::take(&mut *self.attempts()).into_values() {
            let message = "the daemon ended, took another file, or leads no more; who leads then goes on with it";
            let broken = PhaseFault {
                step: INTERRUPTED,
                message: message.into(),
            };
            self.close(&attempt, now, Some(broken), AttemptEnd::Other);
        }
        self.observer.stopped();
    }

    fn not_recorded(&self, many: u64) {
        self.observer.not_recorded(many);
    }
}

fn fault(failure: &Failure) -> PhaseFault {
    PhaseFault {
        step: failure.step.word(),
        message: failure.message.as_str().into(),
    }
}

/// An action as a span is called.
fn name(kind: &Kind) -> &'static str {
    match kind {
        Kind::Create(_) => "create",
        Kind::Continue => "continue",
        Kind::Remove { .. } => "remove",
        Kind::Start => "start again",
        Kind::Release => "release",
        Kind::Relabel => "relabel",
        Kind::Update => "update in place",
        Kind::DeleteNode => "delete node",
        Kind::DeletePlaceholder => "delete placeholder",
        Kind::DropIntent => "drop intent",
    }
}

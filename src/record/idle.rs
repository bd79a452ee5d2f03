//! Times in which nothing was done, and why: something was on hold, or nothing was recorded. Derived from what each decision has
//! recorded since the first version, so that old records tell it, too.

use std::collections::VecDeque;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::change::ValueChange;
use super::line::{Deed, DeedKind, ReadLine, text};
use crate::model::time::{Span, Time};

/// What is shorter is not told, and what begins again sooner has not ended: a source that is read late for once is no news.
const SHORTEST: Span = Span::minutes(1);
/// A daemon that is at work records no less often: while nothing changes, a line says so every ten minutes (`QUIET` in `writer.rs`), with a
/// turn that comes within half a minute.
pub const LONGEST_SILENCE: Span = Span::minutes(11);
/// Changes of holds that are kept while a record is read; the latest.
const MOST: usize = 5_000;

/// A time in which nothing was done, in all or in part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct IdleTime {
    /// Since when.
    pub from: Time,
    /// Until when; `None`: as far as the record goes.
    pub until: Option<Time>,
    /// Why.
    #[serde(flatten)]
    pub cause: IdleCause,
    /// The decision with which it begins, and that with which it ends.
    #[serde(skip)]
    decisions: (u64, u64),
    /// The version of the program that recorded it.
    #[serde(skip)]
    program: Option<Arc<str>>,
}

/// Why nothing was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "idle")]
pub enum IdleCause {
    /// Something was on hold.
    OnHold {
        /// What: `everything`, `scale-up`, `scale-down`, `region NAME` or `pool NAME`.
        scope: Arc<str>,
        /// Why, in words.
        why: Arc<str>,
        /// Who held the Lease, where another instance did and is named.
        #[serde(skip_serializing_if = "Option::is_none")]
        holder: Option<Arc<str>>,
    },
    /// Nothing is recorded.
    Unrecorded {
        /// Why, as far as the record shows it.
        why: &'static str,
    },
}

/// The daemon ended in good order.
const STOPPED: &str = "the daemon was stopped, or was to record no more";
/// The next record is of another start.
const DIED: &str =
    "the daemon ended without a last word: it was killed or crashed, or its host went down";
/// The same daemon recorded again.
const SILENT: &str =
    "the daemon went on, but could not record or did not run, as on a host that sleeps";

/// A hold as a report has it.
#[derive(Clone, Debug)]
struct SeenHold {
    scope: Arc<str>,
    /// The reason's code; empty in a report of a program that had none.
    code: Arc<str>,
    holder: Option<Arc<str>>,
    why: Arc<str>,
    /// The sentence ends with the fault behind the hold.
    caused: bool,
}

impl SeenHold {
    /// Reads one, whatever program wrote it.
    fn of(value: &Value) -> Option<SeenHold> {
        let details = |key: &str| text(value.pointer("/details")?.get(key));
        Some(SeenHold {
            scope: text(value.get("scope"))?,
            code: details("code").unwrap_or_default(),
            holder: details("holder"),
            why: text(value.get("why")).unwrap_or_default(),
            caused: value.get("cause").is_some_and(Value::is_string),
        })
    }

    /// One of which no more is known than what is on hold.
    fn unexplained(scope: &Arc<str>) -> SeenHold {
        SeenHold {
            scope: scope.clone(),
            code: Arc::default(),
            holder: None,
            why: Arc::default(),
            caused: false,
        }
    }

    /// Whether it is the same hold for the same reason. Ages in the reason change all the while.
    fn goes_on_as(&self, other: &SeenHold) -> bool {
        (&self.scope, &self.code, &self.holder) == (&other.scope, &other.code, &other.holder)
    }
}

/// The same holds for the same reasons.
fn same(ours: &[SeenHold], theirs: &[SeenHold]) -> bool {
    let has = |list: &[SeenHold], one: &SeenHold| list.iter().any(|other| one.goes_on_as(other));
    ours.len() == theirs.len() && ours.iter().all(|one| has(theirs, one))
}

/// What was on hold for a while.
#[derive(Clone, Debug)]
struct Observation {
    at: Time,
    /// Up to here it is recorded that it was so.
    known: Time,
    /// The decisions at its beginning and its end.
    numbers: (u64, u64),
    program: Option<Arc<str>>,
    /// It begins with a whole state: perhaps with a start of the daemon.
    whole: bool,
    /// The record was ended after it in good order.
    ended: bool,
    holds: Vec<SeenHold>,
}

/// What was on hold by time, gathered record by record.
#[derive(Debug, Default)]
pub(super) struct HoldsByTime {
    seen: VecDeque<Observation>,
    program: Option<Arc<str>>,
}

impl HoldsByTime {
    /// Takes a record.
    pub(super) fn take(&mut self, line: &ReadLine) {
        if let Some(until) = line.skipped.until {
            self.reach(until);
        }
        if let Some(program) = &line.program {
            self.program = Some(program.as_str().into());
        }
        let Some(holds) = self.holds_of(line) else {
            self.reach(line.at);
            if line.what == "stopped"
                && let Some(last) = self.seen.back_mut()
            {
                last.ended = true;
            }
            return;
        };
        let number = line.number.unwrap_or(0);
        let whole = line.program.is_some();
        if let Some(last) = self.seen.back_mut()
            && !whole
            && !last.ended
            && line.at.since(last.known) <= LONGEST_SILENCE
            && same(&last.holds, &holds)
        {
            last.known = last.known.max(line.at);
            last.numbers.1 = number;
            for hold in holds.into_iter().filter(|hold| hold.caused) {
                let told = last.holds.iter_mut().find(|told| told.goes_on_as(&hold));
                if let Some(told) = told.filter(|told| !told.caused) {
                    *told = hold;
                }
            }
            return;
        }
        if let Some(last) = self.seen.back_mut()
            && !whole
            && line.at.since(last.known) <= LONGEST_SILENCE
        {
            last.known = last.known.max(line.at);
        }
        self.push(Observation {
            at: line.at,
            known: line.at,
            numbers: (number, number),
            program: self.program.clone(),
            whole,
            ended: false,
            holds,
        });
    }

    fn push(&mut self, observation: Observation) {
        self.seen.push_back(observation);
        if self.seen.len() > MOST {
            self.seen.pop_front();
        }
    }

    /// It was as before at this time, too: all the while, unless that is long.
    fn reach(&mut self, at: Time) {
        let Some(last) = self.seen.back_mut() else {
            return;
        };
        if at.since(last.known) <= LONGEST_SILENCE {
            last.known = last.known.max(at);
            return;
        }
        let again = Observation {
            at,
            known: at,
            whole: false,
            ended: false,
            ..last.clone()
        };
        self.push(again);
    }

    /// What a decision has on hold; `None`: the record is no decision, or has the holds of the one before.
    fn holds_of(&self, line: &ReadLine) -> Option<Vec<SeenHold>> {
        let point = line.point.as_ref()?;
        if point.holds.is_empty() {
            return Some(Vec::new());
        }
        let told = match (&line.state, &line.changes) {
            (Some(state), _) => serde_json::from_str::<WholeHolds>(state.get())
                .ok()
                .map(|whole| whole.decision.report.holds),
            (None, Some(changes)) if changes.get().contains("\"holds\"") => {
                let changes = serde_json::from_str::<Vec<ValueChange>>(changes.get());
                let mut changes = changes.unwrap_or_default().into_iter();
                changes.find_map(|change| match change {
                    ValueChange::Set(at, Value::Array(holds)) if at == HOLDS => Some(holds),
                    _ => None,
                })
            }
            _ => None,
        };
        if let Some(told) = told {
            return Some(told.iter().filter_map(SeenHold::of).collect());
        }
        let before = self.seen.back().map_or(&[][..], |last| &last.holds[..]);
        let mut known: Vec<&Arc<str>> = before.iter().map(|hold| &hold.scope).collect();
        let mut wanted: Vec<&Arc<str>> = point.holds.iter().collect();
        known.sort();
        wanted.sort();
        if known == wanted {
            return Some(before.to_vec());
        }
        Some(point.holds.iter().map(SeenHold::unexplained).collect())
    }

    /// Puts what was read of an earlier part of the record before this.
    pub(super) fn put_before(&mut self, mut earlier: HoldsByTime) {
        earlier.seen.append(&mut self.seen);
        while earlier.seen.len() > MOST {
            earlier.seen.pop_front();
        }
        self.seen = earlier.seen;
    }

    /// Up to when something is recorded; `None`: nothing is.
    pub(super) fn known(&self) -> Option<Time> {
        self.seen.back().map(|last| last.known)
    }

    /// The times in which nothing was done, in the order of their beginnings.
    pub(super) fn idle_times(&self) -> Vec<IdleTime> {
        let mut found = FoundIdle::default();
        let mut before: Option<&Observation> = None;
        for now in &self.seen {
            if let Some(before) = before {
                found.look_between(before, now);
            }
            found.look(now);
            before = Some(now);
        }
        if let Some(last) = before {
            found.end(last);
        }
        let mut found = found.times;
        found.sort_by_key(|idle| idle.from);
        found
    }
}

/// The holds of a whole state.
#[derive(Deserialize)]
struct WholeHolds {
    decision: HoldsDecision,
}

#[derive(Deserialize)]
struct HoldsDecision {
    report: HoldsReport,
}

#[derive(Deserialize)]
struct HoldsReport {
    #[serde(default)]
    holds: Vec<Value>,
}

/// Where a state has them.
const HOLDS: [&str; 3] = ["decision", "report", "holds"];

/// A hold that has begun.
#[derive(Debug)]
struct OpenHold {
    hold: SeenHold,
    from: Time,
    numbers: (u64, u64),
    program: Option<Arc<str>>,
    /// Since when it is no more; it may begin again at once.
    gone: Option<Time>,
}

/// Idle times on their way.
#[derive(Debug, Default)]
struct FoundIdle {
    open: Vec<OpenHold>,
    times: Vec<IdleTime>,
}

impl FoundIdle {
    /// Looks for a time without a record between two observations.
    fn look_between(&mut self, before: &Observation, now: &Observation) {
        let silence = now.at.since(before.known);
        let started = now.whole && now.numbers.0 <= before.numbers.1;
        let long = silence > LONGEST_SILENCE;
        if !long && (silence < SHORTEST || !(started || before.ended)) {
            return;
        }
        let why = match (before.ended, started) {
            (true, _) => STOPPED,
            (false, true) => DIED,
            (false, false) => SILENT,
        };
        self.times.push(IdleTime {
            from: before.known,
            until: Some(now.at),
            cause: IdleCause::Unrecorded { why },
            decisions: (before.numbers.1, now.numbers.0),
            program: before.program.clone(),
        });
        // What was on hold then is not known.
        for open in std::mem::take(&mut self.open) {
            let until = open.gone.unwrap_or(before.known);
            self.close(open, Some(until), until);
        }
    }

    /// Takes what is on hold now.
    fn look(&mut self, now: &Observation) {
        for open in &mut self.open {
            let goes_on = now.holds.iter().any(|hold| open.hold.goes_on_as(hold));
            if !goes_on {
                if open.gone.replace(open.gone.unwrap_or(now.at)).is_none() {
                    open.numbers.1 = now.numbers.0;
                }
                continue;
            }
            let back_at_once = open.gone.is_none_or(|gone| now.at.since(gone) < SHORTEST);
            if back_at_once {
                open.gone = None;
            }
            open.numbers.1 = now.numbers.1;
        }
        let is_over = |open: &mut OpenHold| {
            open.gone
                .is_some_and(|gone| now.known.since(gone) >= SHORTEST)
        };
        let over: Vec<OpenHold> = self.open.extract_if(.., is_over).collect();
        for open in over {
            let until = open.gone.unwrap_or(now.at);
            self.close(open, Some(until), until);
        }
        for hold in &now.holds {
            let open = self.open.iter_mut().find(|open| open.hold.goes_on_as(hold));
            match open {
                Some(open) if open.hold.caused || !hold.caused => {}
                Some(open) => open.hold = hold.clone(),
                None => self.open.push(OpenHold {
                    hold: hold.clone(),
                    from: now.at,
                    numbers: now.numbers,
                    program: now.program.clone(),
                    gone: None,
                }),
            }
        }
    }

    /// Nothing comes after this.
    fn end(&mut self, last: &Observation) {
        for open in std::mem::take(&mut self.open) {
            let (until, known) = (open.gone, open.gone.unwrap_or(last.known));
            self.close(open, until, known);
        }
        if last.ended {
            self.times.push(IdleTime {
                from: last.known,
                until: None,
                cause: IdleCause::Unrecorded { why: STOPPED },
                decisions: (last.numbers.1, last.numbers.1),
                program: last.program.clone(),
            });
        }
    }

    /// Tells of a hold that went on up to `known`, if that is long enough.
    fn close(&mut self, open: OpenHold, until: Option<Time>, known: Time) {
        if known.since(open.from) < SHORTEST {
            return;
        }
        let SeenHold {
            scope, why, holder, ..
        } = open.hold;
        self.times.push(IdleTime {
            from: open.from,
            until,
            cause: IdleCause::OnHold { scope, why, holder },
            decisions: open.numbers,
            program: open.program,
        });
    }
}

impl IdleTime {
    /// Whether it has something of a time.
    pub fn overlaps(&self, since: Option<Time>, until: Option<Time>) -> bool {
        until.is_none_or(|end| self.from <= end)
            && since.is_none_or(|begin| self.until.is_none_or(|until| until >= begin))
    }

    /// Whether it is the end of the record.
    pub(super) fn is_end(&self) -> bool {
        self.until.is_none() && matches!(self.cause, IdleCause::Unrecorded { .. })
    }

    /// The host that is to be asked for what was done then, where the record names who led.
    pub fn holder(&self) -> Option<&Arc<str>> {
        match &self.cause {
            IdleCause::OnHold { holder, .. } => holder.as_ref(),
            IdleCause::Unrecorded { .. } => None,
        }
    }

    /// It as rows among others: how it begins, and how it ends.
    fn deeds(self) -> impl Iterator<Item = Deed> {
        let (from, until) = (self.from, self.until);
        let (first, last) = self.decisions;
        let (begin, end) = match self.cause {
            IdleCause::Unrecorded { why } => {
                let why = why.to_owned();
                (DeedKind::Unrecorded { until, why }, None)
            }
            IdleCause::OnHold { scope, why, .. } => {
                let ended = until.map(|until| {
                    let (scope, why) = (scope.clone(), why.clone());
                    (
                        until,
                        DeedKind::HoldEnded {
                            scope,
                            why,
                            since: from,
                        },
                    )
                });
                (DeedKind::OnHold { scope, why, until }, ended)
            }
        };
        let program = self.program;
        let deed = move |at: Time, decision: u64, kind: DeedKind| Deed {
            at,
            decision,
            program: program.clone(),
            kind,
        };
        let end = end.map(|(until, kind)| deed(until, last, kind));
        [Some(deed(from, first, begin)), end].into_iter().flatten()
    }
}

/// Puts the rows of idle times among deeds, each where its time is. Who leads has rows of its own in records that tell it.
pub(super) fn put_among(
    deeds: &mut VecDeque<Deed>,
    idle: Vec<IdleTime>,
    wanted: impl Fn(Time) -> bool,
) {
    let told: Vec<Time> = deeds
        .iter()
        .filter(|deed| matches!(deed.kind, DeedKind::Leads { .. }))
        .map(|deed| deed.at)
        .collect();
    for one in idle {
        let from = one.from;
        let near = |at: &Time| at.since(from).max(from.since(*at)) < SHORTEST;
        if one.holder().is_some() && told.iter().any(near) {
            continue;
        }
        for row in one.deeds().filter(|row| wanted(row.at)) {
            let place = deeds.iter().rposition(|deed| deed.at <= row.at);
            deeds.insert(place.map_or(0, |place| place + 1), row);
        }
    }
}

#[cfg(test)]
#[path = "idle/tests.rs"]
mod tests;

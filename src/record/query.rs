//! What is asked of the record: deeds for `history`, numbers by time and machines for the page, the state behind a decision.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::deeds::FoundDeeds;
use super::frame::{SegmentEnd, SegmentReader};
use super::idle::IdleTime;
use super::line::{self, Deed, DeedKind, Point, ReadLine, machine};
use super::read::{ReadError, RebuiltState, RecordReader, segments_at};
use super::store::SegmentFile;
use crate::model::cluster::ObjectKey;
use crate::model::host_choice::HostChoice;
use crate::model::time::{Span, Time};

/// Machines that are told of at most; the latest.
const MOST_MACHINES: usize = 10_000;

/// Which part of the record is asked for. What is `None` asks for all.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Not before this.
    pub since: Option<Time>,
    /// Not after this.
    pub until: Option<Time>,
    /// What concerns this pod.
    pub pod: Option<ObjectKey>,
    /// What concerns this node.
    pub node: Option<String>,
    /// What concerns this machine.
    pub machine: Option<String>,
    /// What concerns machines of this pool.
    pub pool: Option<String>,
}

impl Filter {
    pub(super) fn holds_time(&self, at: Time) -> bool {
        self.since.is_none_or(|since| since <= at) && self.until.is_none_or(|until| at <= until)
    }

    /// Whether an action concerns what is asked for; `machines` are those of which one did.
    pub(super) fn concerns(&self, action: &Value, machines: &BTreeSet<Arc<str>>) -> bool {
        let name = machine(action);
        let is =
            |value: Option<&Value>, wanted: &str| value.and_then(Value::as_str) == Some(wanted);
        let lists = |pointer: &str, wanted: &str| match action.pointer(pointer) {
            Some(Value::Array(list)) => list.iter().any(|one| is(Some(one), wanted)),
            Some(Value::Object(map)) => map.contains_key(wanted),
            _ => false,
        };
        let of_machine = |wanted: &str| name.as_deref() == Some(wanted);
        let pod = self.pod.as_ref().is_none_or(|pod| {
            let pod = pod.to_string();
            let named = [
                "/reason/pods",
                "/precondition/pods",
                "/precondition/landing",
            ];
            named.iter().any(|list| lists(list, &pod))
                || name.as_ref().is_some_and(|name| machines.contains(name))
        });
        let node = self.node.as_ref().is_none_or(|node| {
            of_machine(node)
                || is(action.pointer("/target/node/name"), node)
                || lists("/reason/nodes", node)
                || lists("/reason/in_place_of", node)
        });
        let pool = self.pool.as_ref().is_none_or(|pool| {
            is(action.pointer("/kind/create/mark/pool"), pool)
                || is(action.pointer("/precondition/mark/pool"), pool)
                || name.as_ref().is_some_and(|name| machines.contains(name))
        });
        let asked = self
            .machine
            .as_ref()
            .is_none_or(|wanted| of_machine(wanted));
        pod && node && pool && asked
    }

    /// Whether everything is asked for.
    pub fn is_open(&self) -> bool {
        self.pod.is_none() && self.node.is_none() && self.machine.is_none() && self.pool.is_none()
    }
}

/// The record in a directory, or one segment of it.
#[derive(Clone, Debug)]
pub struct History {
    path: PathBuf,
}

/// Deeds of a part of the record.
#[derive(Clone, Debug)]
pub struct ToldDeeds {
    /// The latest deeds, in the order in which they were recorded.
    pub deeds: Vec<Deed>,
    /// The times in which nothing was done that have something of the part, whatever else is asked for.
    pub idle: Vec<IdleTime>,
    /// Up to when something is recorded; `None`: nothing is.
    pub known: Option<Time>,
    /// What of the part could not be read.
    pub damage: Vec<String>,
}

/// A decision of the record and all that it was made of.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// When.
    pub at: Time,
    /// Counts decisions since the start of its daemon.
    pub number: u64,
    /// The program that decided.
    pub program: Arc<str>,
    /// `snapshot`, `policy`, `memory` and `decision`, as JSON.
    pub state: Value,
}

/// A machine in the record.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RecordedMachine {
    /// The machine's name.
    pub name: Arc<str>,
    /// The pool, where the record has the machine's making.
    pub pool: Option<Arc<str>>,
    /// The instance type, where the record has the machine's making.
    pub instance_type: Option<Arc<str>>,
    /// The host, where the record has an action on the machine.
    pub host: Option<Arc<str>>,
    /// When it was planned.
    pub planned: Option<Time>,
    /// Why it was made, in words.
    pub why: Option<String>,
    /// The steps of its life that ended, in that order.
    pub phases: Vec<RecordedStep>,
    /// When it became a working node.
    pub working: Option<Time>,
    /// When it was gone.
    pub removed: Option<Time>,
    /// The last failure of an action on it that was not followed by success.
    pub failure: Option<String>,
}

/// A step of a machine's life that ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecordedStep {
    /// The step, such as `clone`.
    pub step: Arc<str>,
    /// When the step ended.
    pub at: Time,
    /// How long the step took.
    pub took: Span,
    /// Whether it came to its end.
    pub ok: bool,
}

impl History {
    /// The record at this path: a directory, or one segment.
    ///
    /// # Errors
    /// There is none, or it may not be read.
    pub fn open(path: &Path) -> Result<History, ReadError> {
        let segments = segments_at(path)?;
        if let [file] = &segments[..]
            && file.path == path
            && let Err(SegmentEnd::Damaged(why)) = whole_head(path)?
        {
            return Err(ReadError::NoRecord {
                path: path.to_owned(),
                why,
            });
        }
        Ok(History {
            path: path.to_owned(),
        })
    }

    /// When the record begins; `None` where nothing is in it yet.
    ///
    /// # Errors
    /// It may not be read.
    pub fn began(&self) -> Result<Option<Time>, ReadError> {
        let segments = segments_at(&self.path)?;
        Ok(segments.iter().map(|segment| segment.began).min())
    }

    /// The segments that may have something of the time that is asked for. One ends when the next begins, but where the
    /// clock was set back in between.
    pub(super) fn segments(&self, filter: &Filter) -> Result<Vec<SegmentFile>, ReadError> {
        let all = segments_at(&self.path)?;
        let nexts = all.iter().skip(1).map(|next| Some(next.began));
        let nexts = nexts.chain(std::iter::once(None));
        let wanted = all.iter().zip(nexts).filter(|(segment, next)| {
            let over = |since| next.is_some_and(|next| segment.began <= next && next <= since);
            filter.since.is_none_or(|since| !over(since))
                && filter.until.is_none_or(|until| segment.began <= until)
        });
        Ok(wanted.map(|(segment, _)| segment.clone()).collect())
    }

    /// The latest `most` deeds, in the order in which they were recorded.
    ///
    /// # Errors
    /// It may not be read.
    pub fn deeds(&self, filter: &Filter, most: usize) -> Result<Vec<Deed>, ReadError> {
        Ok(self.find_deeds(filter, most)?.deeds)
    }

    /// [`deeds`](Self::deeds), and what of that part of the record could not be read.
    ///
    /// # Errors
    /// It may not be read.
    pub fn find_deeds(&self, filter: &Filter, most: usize) -> Result<ToldDeeds, ReadError> {
        let mut records = RecordReader::of(self.segments(filter)?);
        let mut found = FoundDeeds::new(filter, most);
        while let Some(line) = records.next()? {
            found.look(&line);
        }
        let known = found.holds.known();
        let (deeds, idle) = found.finish();
        Ok(ToldDeeds {
            deeds: deeds.into(),
            idle,
            known,
            damage: records.damage,
        })
    }

    /// Numbers by time: at most `most` points. Where there are more, neighbours become one, with the most pods pending.
    ///
    /// # Errors
    /// The record may not be read.
    pub fn points(&self, filter: &Filter, most: usize) -> Result<Vec<Point>, ReadError> {
        let most = most.max(3);
        let mut points: Vec<Point> = Vec::new();
        let mut records = RecordReader::of(self.segments(filter)?);
        let mut last: Option<Point> = None;
        while let Some(line) = records.next()? {
            // Up to here it was as before.
            if let (Some(until), Some(last)) = (line.skipped.until, &last)
                && filter.holds_time(until)
            {
                points.push(Point {
                    at: until,
                    makes: 0,
                    removes: 0,
                    ..last.clone()
                });
            }
            if let Some(point) = line.point {
                if filter.holds_time(point.at) {
                    points.push(point.clone());
                }
                last = Some(point);
            }
            if points.len() >= most * 2 {
                points = thin(points, most);
            }
        }
        if points.len() > most {
            points = thin(points, most);
        }
        Ok(points)
    }

    /// Machines in the order of their first record.
    ///
    /// # Errors
    /// The record may not be read.
    pub fn machines(&self, filter: &Filter) -> Result<Vec<RecordedMachine>, ReadError> {
        let mut records = RecordReader::of(self.segments(filter)?);
        let mut order: VecDeque<Arc<str>> = VecDeque::new();
        let mut found: BTreeMap<Arc<str>, RecordedMachine> = BTreeMap::new();
        while let Some(line) = records.next()? {
            if !filter.holds_time(line.at) {
                continue;
            }
            let mut about = |name: Arc<str>, tell: &mut dyn FnMut(&mut RecordedMachine)| {
                let machine = found.entry(name.clone()).or_insert_with(|| {
                    order.push_back(name.clone());
                    RecordedMachine {
                        name,
                        ..RecordedMachine::default()
                    }
                });
                tell(machine);
                if order.len() > MOST_MACHINES
                    && let Some(oldest) = order.pop_front()
                {
                    found.remove(&oldest);
                }
            };
            let plan = line.plan.iter();
            for planned in plan.filter_map(|action| DeedKind::planned(action, &line)) {
                let at = line.at;
                if let DeedKind::Planned { machine, .. } = &planned {
                    about(machine.clone(), &mut |one| one.planned(&planned, at));
                }
            }
            if let (Some(action), "ended") = (&line.action, line.what.as_str())
                && let Some(name) = machine(action)
            {
                about(name, &mut |one| one.ended(action, &line));
            }
            if let (Some(name), Some(phase)) = (line.machine.clone(), phase(&line)) {
                about(name, &mut |one| one.phases.push(phase.clone()));
            }
        }
        let nothing = BTreeSet::new();
        let machines = order.iter().filter_map(|name| found.remove(name));
        let asked = machines.filter(|one| {
            let action = serde_json::json!({
                "target": {"machine": one.name, "node": {"name": one.name}},
                "precondition": {"mark": {"pool": one.pool}},
            });
            filter.pod.is_some() || filter.concerns(&action, &nothing)
        });
        Ok(asked.collect())
    }

    /// All that a decision was made of. `None` when the record has no such decision.
    ///
    /// # Errors
    /// The record may not be read.
    pub fn state(&self, number: u64, at: Time) -> Result<Option<Recorded>, ReadError> {
        let filter = Filter {
            since: Some(at),
            until: Some(at),
            ..Filter::default()
        };
        let mut found = None;
        self.decisions(&filter, |decision| {
            if decision.number == number && decision.at == at {
                found = Some(decision.clone());
            }
        })?;
        Ok(found)
    }

    /// Why a machine came to its host that a decision of exactly this time made, as that decision has it. `None` where the record does
    /// not have it, or where reading ends because `go_on`, asked before every record, says no.
    ///
    /// # Errors
    /// The record may not be read.
    pub fn chosen_host(
        &self,
        machine: &str,
        made: Time,
        mut go_on: impl FnMut() -> bool,
    ) -> Result<Option<HostChoice>, ReadError> {
        let filter = Filter {
            since: Some(made),
            until: Some(made),
            ..Filter::default()
        };
        for segment in self.segments(&filter)? {
            let mut records = RecordReader::of([segment]);
            while let Some(line) = records.next()? {
                if !go_on() {
                    return Ok(None);
                }
                if line.at == made
                    && let Some(choice) = line.chosen_host(machine)
                {
                    return Ok(Some(choice));
                }
                // Within a segment no decision is older than one before it.
                if line.at > made && line.number.is_some() {
                    break;
                }
            }
        }
        Ok(None)
    }

    /// Shows every recorded decision of a time with its state. Gives what could not be read.
    ///
    /// # Errors
    /// The record may not be read.
    pub fn decisions(
        &self,
        filter: &Filter,
        mut show: impl FnMut(&Recorded),
    ) -> Result<Vec<String>, ReadError> {
        let mut records = RecordReader::of(self.segments(filter)?);
        let mut built = RebuiltState::default();
        let mut program: Arc<str> = "".into();
        let mut damage = Vec::new();
        while let Some(line) = records.next()? {
            if let Some(by) = &line.program {
                program = by.as_str().into();
            }
            match built.take(&line) {
                Ok(true) if filter.holds_time(line.at) => {
                    if let Some(state) = built.state() {
                        show(&Recorded {
                            at: line.at,
                            number: line.number.unwrap_or(0),
                            program: program.clone(),
                            state: state.clone(),
                        });
                    }
                }
                Ok(_) => {}
                Err(error) => damage.push(format!("the record of {}: {error}", line.at)),
            }
        }
        damage.extend(records.damage);
        Ok(damage)
    }
}

/// Whether a file begins as a segment does.
fn whole_head(path: &Path) -> Result<Result<(), SegmentEnd>, ReadError> {
    let file = std::fs::File::open(path).map_err(|source| ReadError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    Ok(SegmentReader::open(file).map(drop))
}

/// Makes at most so many points of them, three at least, in the order of their times (a clock may have been set back). Of each of equal
/// parts of the time there stay the one with the most pending pods, the one after it, and the last: a peak is seen, and it ends
/// where it ended, however long nothing is decided after it.
pub(super) fn thin(mut points: Vec<Point>, most: usize) -> Vec<Point> {
    points.sort_by_key(|point| point.at);
    let parts = i128::try_from((most / 3).max(1)).unwrap_or(i128::MAX);
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return points;
    };
    let from = i128::from(first.at.0);
    let span = i128::from(last.at.0) - from + 1;
    let part_of = |point: &Point| (i128::from(point.at.0) - from) * parts / span;
    let mut thinned: Vec<Point> = Vec::with_capacity(most);
    let mut open: Option<(i128, PartOfTime)> = None;
    for point in points {
        let part = part_of(&point);
        match &mut open {
            Some((of, found)) if *of == part => found.take(point),
            _ => {
                thinned.extend(
                    open.take()
                        .into_iter()
                        .flat_map(|(_, found)| found.points()),
                );
                open = Some((part, PartOfTime::beginning_with(point)));
            }
        }
    }
    thinned.extend(open.into_iter().flat_map(|(_, found)| found.points()));
    thinned
}

/// What stays of the points of a part of the time. The peak has what was made and removed in all of it.
#[derive(Debug)]
struct PartOfTime {
    peak: Point,
    after: Option<Point>,
    last: Option<Point>,
}

impl PartOfTime {
    fn beginning_with(peak: Point) -> PartOfTime {
        PartOfTime {
            peak,
            after: None,
            last: None,
        }
    }

    fn take(&mut self, mut point: Point) {
        let makes = self.peak.makes + std::mem::take(&mut point.makes);
        let removes = self.peak.removes + std::mem::take(&mut point.removes);
        if point.pending() > self.peak.pending() {
            *self = PartOfTime::beginning_with(point);
        } else if self.after.is_none() {
            self.after = Some(point);
        } else {
            self.last = Some(point);
        }
        (self.peak.makes, self.peak.removes) = (makes, removes);
    }

    fn points(self) -> impl Iterator<Item = Point> {
        [Some(self.peak), self.after, self.last]
            .into_iter()
            .flatten()
    }
}

/// The step that a record says ended.
pub(super) fn phase(line: &ReadLine) -> Option<RecordedStep> {
    Some(RecordedStep {
        step: line::text(line.step.as_ref())?,
        at: line.at,
        took: line.took?,
        ok: line.ok?,
    })
}

impl RecordedMachine {
    fn planned(&mut self, deed: &DeedKind, at: Time) {
        let DeedKind::Planned {
            action,
            host,
            pool,
            instance_type,
            why,
            ..
        } = deed
        else {
            return;
        };
        self.host = Some(host.clone());
        if action == "create" {
            self.planned = Some(at);
            self.pool.clone_from(pool);
            self.instance_type.clone_from(instance_type);
            self.why = Some(why.clone());
        }
        if self.pool.is_none() {
            self.pool.clone_from(pool);
        }
    }

    fn ended(&mut self, action: &Value, line: &ReadLine) {
        self.failure = failure(line);
        if self.failure.is_some() {
            return;
        }
        match line::action(action).as_str() {
            "create" | "continue" => self.working = Some(line.at),
            "remove" | "delete_placeholder" | "drop_intent" => self.removed = Some(line.at),
            _ => {}
        }
    }
}

/// Why an action failed, in words: the step and what it said.
pub(super) fn failure(line: &ReadLine) -> Option<String> {
    let failure = line.failure.as_ref().filter(|failure| !failure.is_null())?;
    let step = line::text(failure.get("step"));
    let message = line::text(failure.get("message"));
    match (step, message) {
        (Some(step), Some(message)) => Some(format!("at {}: {message}", step.replace('_', " "))),
        _ => Some(failure.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(of: &[(i64, u32)]) -> Vec<Point> {
        let points = of.iter().map(|(at, pending)| Point {
            at: Time(*at),
            pods: [("held".into(), *pending)].into(),
            makes: 1,
            ..Point::default()
        });
        points.collect()
    }

    #[test]
    fn a_peak_ends_where_it_ended_however_few_points_are_kept() {
        // Eight pods wait for a second, and nothing is decided for a quarter of an hour.
        let mut all = Vec::new();
        for round in 0..100 {
            let begin = round * 900_000;
            all.extend([(begin, 0), (begin + 1_000, 8), (begin + 2_000, 0)]);
        }
        let thinned = thin(points(&all), 300);
        assert!(thinned.len() <= 300, "{}", thinned.len());
        let waits = thinned.windows(2).filter(|pair| pair[0].pending() > 0);
        let waits: Vec<i64> = waits.map(|pair| pair[1].at.0 - pair[0].at.0).collect();
        assert_eq!(waits, [1_000; 100]);
        let makes: u32 = thinned.iter().map(|point| point.makes).sum();
        assert_eq!(makes, 300);
        // Thinned again and again, as a long record is, they stay true and few.
        let few = thin(thinned, 20);
        assert!(
            few.len() <= 20 && few.iter().any(|point| point.pending() == 8),
            "{few:?}"
        );
        assert_eq!(
            few.last().map(|point| (point.at, point.pending())),
            Some((Time(89_102_000), 0))
        );
        assert_eq!(few.iter().map(|point| point.makes).sum::<u32>(), 300);
    }

    #[test]
    fn times_that_go_back_and_none_at_all_are_thinned_too() {
        assert!(thin(Vec::new(), 2).is_empty());
        assert_eq!(thin(points(&[(5, 1)]), 2).len(), 1);
        let back = thin(points(&[(5, 1), (3, 2), (i64::MAX, 1), (0, 4)]), 3);
        let back: Vec<(i64, u32)> = back
            .iter()
            .map(|point| (point.at.0, point.pending()))
            .collect();
        assert_eq!(back, [(0, 4), (3, 2), (i64::MAX, 1)]);
        // A clock that is set back again and again leaves no more points than one that is not.
        let restless: Vec<(i64, u32)> = (0..10_000).map(|at| (at % 7 * 1_000, 1)).collect();
        assert!(thin(points(&restless), 30).len() <= 30);
    }
}

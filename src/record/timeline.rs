//! The last days for the page: numbers, deeds and machines in one reading, the newest segment first, within limits.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::Value;

use super::deeds::FoundDeeds;
use super::idle::{self, HoldsByTime, IdleTime};
use super::line::{Deed, DeedKind, Point};
use super::query::{Filter, History, RecordedStep, phase, thin};
use super::read::{ReadError, RecordReader};

/// How much is told at most; what is older goes first.
#[derive(Clone, Copy, Debug)]
pub struct Most {
    /// Points; where there are more, neighbours become one.
    pub points: usize,
    /// Deeds.
    pub deeds: usize,
    /// Machines with the steps of their lives.
    pub machines: usize,
}

/// What a time was like, in the order in which it was.
#[derive(Debug, Default)]
pub struct Timeline {
    /// Numbers by time.
    pub points: Vec<Point>,
    /// What was decided, and what came of it. The actions as they were planned, and why hosts were chosen, are left out.
    pub deeds: Vec<Deed>,
    /// The times in which nothing was done.
    pub idle: Vec<IdleTime>,
    /// Steps that ended, by machine.
    pub steps: BTreeMap<Arc<str>, Vec<RecordedStep>>,
    /// Reading was given up; what is older than the first of these is missing.
    pub cut: bool,
    /// There were more deeds than may be told.
    pub more: bool,
    /// What could not be read.
    pub damage: Vec<String>,
}

impl History {
    /// The time that `filter` asks for. Reading ends where `go_on` says no, asked before every record, so that the
    /// newest part is there at all events.
    ///
    /// # Errors
    /// The record may not be read.
    pub fn timeline(
        &self,
        filter: &Filter,
        most: Most,
        mut go_on: impl FnMut() -> bool,
    ) -> Result<Timeline, ReadError> {
        let mut told = Timeline::default();
        let mut holds = HoldsByTime::default();
        // Each segment begins with a whole state and stands alone.
        for segment in self.segments(filter)?.into_iter().rev() {
            let mut part = Part::new(filter, most);
            let mut records = RecordReader::of([segment]);
            let mut whole = true;
            while let Some(line) = records.next()? {
                if !go_on() {
                    whole = false;
                    break;
                }
                part.take(&line);
            }
            told.damage.append(&mut records.damage);
            if !whole {
                // Half of a segment would be its older half, with a gap after it.
                told.cut = true;
                break;
            }
            holds.put_before(std::mem::take(&mut part.deeds.holds));
            part.put_before(&mut told, most);
        }
        told.tell_idle(filter, holds.idle_times(), most);
        Ok(told)
    }
}

impl Timeline {
    /// Takes the times in which nothing was done. The end of the record is none of them: whoever shows it runs.
    fn tell_idle(&mut self, filter: &Filter, mut idle: Vec<IdleTime>, most: Most) {
        idle.retain(|one| one.overlaps(filter.since, filter.until) && !one.is_end());
        if filter.is_open() {
            let mut deeds = VecDeque::from(std::mem::take(&mut self.deeds));
            idle::put_among(&mut deeds, idle.clone(), |at| filter.holds_time(at));
            let over = deeds.len().saturating_sub(most.deeds);
            self.more |= over > 0;
            deeds.drain(..over);
            self.deeds = deeds.into();
        }
        self.idle = idle;
    }
}

/// What one segment tells.
struct Part<'a> {
    filter: &'a Filter,
    most: Most,
    points: Vec<Point>,
    last: Option<Point>,
    deeds: FoundDeeds<'a>,
    steps: BTreeMap<Arc<str>, Vec<RecordedStep>>,
}

impl<'a> Part<'a> {
    fn new(filter: &'a Filter, most: Most) -> Part<'a> {
        Part {
            filter,
            most,
            points: Vec::new(),
            last: None,
            // One more shows that there are more.
            deeds: FoundDeeds::new(filter, most.deeds + 1),
            steps: BTreeMap::new(),
        }
    }

    fn take(&mut self, line: &super::line::ReadLine) {
        if let (Some(until), Some(last)) = (line.skipped.until, &self.last)
            && self.filter.holds_time(until)
        {
            // Up to here it was as before.
            self.points.push(Point {
                at: until,
                makes: 0,
                removes: 0,
                ..last.clone()
            });
        }
        if let Some(point) = &line.point {
            if self.filter.holds_time(point.at) {
                self.points.push(point.clone());
            }
            self.last = Some(point.clone());
        }
        if self.points.len() >= self.most.points.max(3) * 2 {
            self.points = thin(std::mem::take(&mut self.points), self.most.points);
        }
        self.deeds.look(line);
        for deed in self.deeds.deeds.iter_mut().rev().take(line.plan.len()) {
            if let DeedKind::Planned {
                planned,
                chosen_host,
                ..
            } = &mut deed.kind
            {
                *planned = Value::Null;
                *chosen_host = None;
            }
        }
        if let (Some(name), Some(phase)) = (&line.machine, phase(line))
            && self.filter.holds_time(line.at)
        {
            let steps = self.steps.entry(name.clone()).or_default();
            if steps.len() < MOST_STEPS {
                steps.push(phase);
            }
        }
        if self.steps.len() > self.most.machines * 2 {
            forget_oldest(&mut self.steps, self.most.machines);
        }
    }

    /// Puts this before what later segments told.
    fn put_before(self, told: &mut Timeline, most: Most) {
        let mut points = self.points;
        points.append(&mut told.points);
        if points.len() > most.points.max(3) {
            points = thin(points, most.points);
        }
        told.points = points;
        let mut deeds: Vec<Deed> = self.deeds.deeds.into();
        deeds.append(&mut told.deeds);
        let over = deeds.len().saturating_sub(most.deeds);
        told.more |= over > 0;
        deeds.drain(..over);
        told.deeds = deeds;
        for (name, mut steps) in self.steps {
            let later = told.steps.entry(name).or_default();
            steps.append(later);
            steps.truncate(MOST_STEPS);
            *later = steps;
        }
        forget_oldest(&mut told.steps, most.machines);
    }
}

/// Steps of one machine; a whole life has some fifteen.
const MOST_STEPS: usize = 64;

/// Keeps so many machines, those whose last step is the latest.
fn forget_oldest(steps: &mut BTreeMap<Arc<str>, Vec<RecordedStep>>, most: usize) {
    if steps.len() <= most {
        return;
    }
    let last = |steps: &[RecordedStep]| steps.last().map(|phase| phase.at);
    let mut order: Vec<_> = steps
        .iter()
        .map(|(name, steps)| (last(steps), name.clone()))
        .collect();
    order.sort();
    for (_, name) in order.iter().take(steps.len() - most) {
        steps.remove(name);
    }
}

//! What the steps of machines took lately, by pool: what a person compares a running step with. It is kept in a small file, as the record takes
//! long to read: what was usual before a restart is usual after it.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::journal::{JournalEntry, write_durably};
use crate::model::action::{Action, Kind};
use crate::model::region::Step;
use crate::model::time::Span;

/// Measured times that are kept of each step; older ones are forgotten.
const KEPT: usize = 50;
/// The file in the state directory.
pub(super) const FILE: &str = "usual-times.json";

/// The times of a pool's steps, the oldest first.
type PoolTimes = BTreeMap<Step, VecDeque<Span>>;

/// Times of steps that went well; clones are the same times.
#[derive(Clone, Debug, Default)]
pub struct UsualTimes(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// Where they are kept; `None`: nowhere.
    file: Option<PathBuf>,
    pools: BTreeMap<Arc<str>, PoolTimes>,
    /// The pools of machines that are worked on.
    pool_of: BTreeMap<Arc<str>, Arc<str>>,
    /// Whether the file has not all of them.
    changed: bool,
}

/// What a step usually takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsualTime {
    /// The median in milliseconds.
    pub median: i64,
    /// Of so many measured times.
    pub of: usize,
}

impl UsualTimes {
    /// Those that a daemon before this one kept of pools that there are (`wanted`). A file that cannot be read has none: they are measured anew.
    pub(super) fn begin(file: PathBuf, wanted: impl Fn(&str) -> bool) -> UsualTimes {
        let text = std::fs::read(&file).unwrap_or_default();
        let mut pools: BTreeMap<Arc<str>, PoolTimes> =
            serde_json::from_slice(&text).unwrap_or_default();
        pools.retain(|pool, _| wanted(pool));
        for times in pools.values_mut().flat_map(BTreeMap::values_mut) {
            times.drain(..times.len().saturating_sub(KEPT));
        }
        UsualTimes(Arc::new(Mutex::new(Known {
            file: Some(file),
            pools,
            ..Known::default()
        })))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody begins to work on a machine.
    pub(super) fn begun(&self, action: &Action, entry: Option<&JournalEntry>) {
        let mark = match (&action.kind, entry) {
            (Kind::Create(spec), _) => Some(&spec.mark),
            (_, Some(entry)) => Some(&entry.spec.mark),
            (_, None) => action.precondition.mark.as_ref(),
        };
        if let Some(mark) = mark {
            let pool = Arc::from(&*mark.pool);
            let machine = action.target.machine.clone();
            self.known().pool_of.insert(machine, pool);
        }
    }

    /// A step of a machine went well and took this long.
    pub(super) fn note(&self, machine: &str, step: Step, took: Span) {
        let mut known = self.known();
        let Some(pool) = known.pool_of.get(machine).cloned() else {
            return;
        };
        let times = known
            .pools
            .entry(pool)
            .or_default()
            .entry(step)
            .or_default();
        if times.len() == KEPT {
            times.pop_front();
        }
        times.push_back(took);
        known.changed = true;
    }

    /// The work on a machine ended: what was measured is kept.
    pub(super) fn ended(&self, machine: &str) {
        let mut known = self.known();
        known.pool_of.remove(machine);
        if !std::mem::take(&mut known.changed) {
            return;
        }
        let Some(file) = &known.file else { return };
        let written = serde_json::to_vec(&known.pools).map_err(std::io::Error::from);
        if let Err(error) = written.and_then(|text| write_durably(file, &text)) {
            let file = file.display();
            tracing::warn!(%error, "cannot write {file}: after a restart no step has a usual time");
        }
    }

    /// Every step that was measured, by pool, with what it usually takes.
    pub fn times(&self) -> BTreeMap<Arc<str>, BTreeMap<Step, UsualTime>> {
        let known = self.known();
        let pools = known.pools.iter().map(|(pool, steps)| {
            let steps = steps.iter().filter(|(_, times)| !times.is_empty());
            let steps = steps.map(|(step, times)| (*step, median(times)));
            (pool.clone(), steps.collect())
        });
        pools.collect()
    }

    /// What a step of this pool's machines usually takes; `None`: it was not measured.
    pub fn of(&self, pool: &str, step: Step) -> Option<UsualTime> {
        let known = self.known();
        let times = known.pools.get(pool)?.get(&step)?;
        (!times.is_empty()).then(|| median(times))
    }
}

fn median(times: &VecDeque<Span>) -> UsualTime {
    let mut sorted: Vec<i64> = times.iter().map(|took| took.0).collect();
    sorted.sort_unstable();
    UsualTime {
        median: sorted.get(sorted.len() / 2).copied().unwrap_or_default(),
        of: sorted.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_pool(pool: &str) -> UsualTimes {
        let usual = UsualTimes::default();
        let machine = format!("{pool}-1").as_str().into();
        usual.known().pool_of.insert(machine, pool.into());
        usual
    }

    #[test]
    fn the_median_of_the_last_fifty_is_usual() {
        let usual = of_pool("small");
        assert!(usual.times().is_empty());
        let note = |took: Span| usual.note("small-1", Step::Clone, took);
        // A slow beginning is forgotten, and one outlier does not count.
        for _ in 0..KEPT {
            note(Span::minutes(9));
        }
        for seconds in 1..=49 {
            note(Span::seconds(seconds));
        }
        note(Span::minutes(60));
        let median = UsualTime {
            median: 26_000,
            of: KEPT,
        };
        assert_eq!(usual.of("small", Step::Clone), Some(median));
        assert_eq!(usual.times()["small"].len(), 1);
        // A full clone of another pool is none of its own.
        assert_eq!(usual.of("gpu", Step::Clone), None);
        usual.note("unknown-1", Step::Clone, Span::minutes(1));
        assert_eq!(usual.times().len(), 1);
    }

    #[test]
    fn what_was_usual_before_a_restart_is_usual_after_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join(FILE);
        let usual = of_pool("small");
        usual.known().file = Some(file.clone());
        usual.note("small-1", Step::Join, Span::seconds(40));
        usual.ended("small-1");
        let again = UsualTimes::begin(file.clone(), |pool| pool == "small");
        let median = UsualTime {
            median: 40_000,
            of: 1,
        };
        assert_eq!(again.of("small", Step::Join), Some(median));
        // A pool that is gone is forgotten, and so is what is no such file.
        assert!(
            UsualTimes::begin(file.clone(), |_| false)
                .times()
                .is_empty()
        );
        std::fs::write(&file, "{\"small\":{\"no step\":[1]}}").expect("written");
        assert!(UsualTimes::begin(file, |_| true).times().is_empty());
    }
}

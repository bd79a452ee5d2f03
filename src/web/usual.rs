//! What the steps of a machine's life took lately: what a person compares a running step with.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use crate::model::region::Step;
use crate::model::time::Span;

/// Measured times that are kept of each step; older ones are forgotten.
const KEPT: usize = 50;

/// Times of steps that went well, since the start of the program.
#[derive(Debug, Default)]
pub(super) struct Usual {
    steps: Mutex<BTreeMap<Step, VecDeque<Span>>>,
}

/// What a step usually takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct UsualTime {
    /// The median in milliseconds.
    pub median: i64,
    /// Of so many measured times.
    pub of: usize,
}

impl Usual {
    /// A step went well and took this long.
    pub(super) fn note(&self, step: Step, took: Span) {
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        let times = steps.entry(step).or_default();
        if times.len() == KEPT {
            times.pop_front();
        }
        times.push_back(took);
    }

    /// Every step that was measured, with what it usually takes.
    pub(super) fn times(&self) -> BTreeMap<Step, UsualTime> {
        let steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        let times = steps.iter().map(|(step, times)| (*step, median(times)));
        times.collect()
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

    #[test]
    fn the_median_of_the_last_fifty_is_usual() {
        let usual = Usual::default();
        assert!(usual.times().is_empty());
        // A slow beginning is forgotten, and one outlier does not count.
        for _ in 0..KEPT {
            usual.note(Step::Clone, Span::minutes(9));
        }
        for seconds in 1..=49 {
            usual.note(Step::Clone, Span::seconds(seconds));
        }
        usual.note(Step::Clone, Span::minutes(60));
        let times = usual.times();
        assert_eq!(
            times[&Step::Clone],
            UsualTime {
                median: 26_000,
                of: KEPT
            }
        );
        assert_eq!(times.len(), 1);
    }
}

//! The time of a step: what somebody worked at it, and when it is up.

use std::future::Future;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::model::region::Step;
use crate::model::time::Span;

use super::work::{Stop, Work};

/// So much of a step's time is taken in the journal when somebody begins to work at it, and again
/// whenever that is used up. A crash loop therefore uses a step's time up at last, and a restart costs
/// a step this much of its time at most.
const CHARGE: Span = Span::seconds(15);
impl Work {
    /// Gives the time that was spent at a step so far, and charges it with the next part.
    pub(super) fn take_up(&self, step: Step) -> Result<Span, Stop> {
        let entry = self.entry()?;
        let mine = *self.spent();
        let spent = match mine {
            _ if entry.step != step || entry.spent == Span::ZERO => Span::ZERO,
            Some((at, exact)) if at == step => exact,
            _ => entry.spent,
        };
        *self.spent() = Some((step, spent));
        self.charge(step, spent)?;
        Ok(spent)
    }

    fn charge(&self, step: Step, spent: Span) -> Result<(), Stop> {
        self.record(|entry| {
            if entry.step == step {
                entry.spent = entry.spent.max(Span(spent.0.saturating_add(CHARGE.0)));
            }
        })
    }

    /// How long the step had been worked on when it was taken up, if it is the one that is under way.
    pub(super) fn spent_at(&self, step: Step) -> Span {
        match *self.spent() {
            Some((at, spent)) if at == step => spent,
            _ => Span::ZERO,
        }
    }

    pub(super) async fn within<T>(
        &self,
        step: Step,
        limit: Span,
        mut spent: Span,
        mut work: impl Future<Output = Result<T, Stop>> + Unpin,
    ) -> Result<T, Stop> {
        // Whoever comes back to a step has a moment for it, however late it is.
        let ends = limit.max(Span(spent.0.saturating_add(1_000)));
        loop {
            let part = Span(ends.0 - spent.0).min(CHARGE);
            let began = Instant::now();
            let done = timeout(part.to_std(), &mut work).await;
            spent = Span(spent.0.saturating_add(span(began.elapsed()).0));
            *self.spent() = Some((step, spent));
            match done {
                Ok(result) => return result,
                Err(_) if spent >= ends => return Err(self.out_of_time(step, limit)),
                Err(_) => self.charge(step, spent)?,
            }
        }
    }

    fn spent(&self) -> MutexGuard<'_, Option<(Step, Span)>> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time of a step is up. Whoever tries it again has the whole time for it: with what is left
    /// (nothing) a VM that can be shut down by now would never be.
    fn out_of_time(&self, step: Step, limit: Span) -> Stop {
        *self.spent() = None;
        let anew = self.record(|entry| {
            if entry.step == step {
                entry.spent = Span::ZERO;
            }
        });
        if let Err(stop) = anew {
            return stop;
        }
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let mut message = format!("not done within {limit}");
        if !last.text.is_empty() {
            message = format!("{message}; last: {}", last.text);
        }
        if last.outage {
            Stop::Transient(message)
        } else {
            Stop::Failed(message)
        }
    }
}

/// A duration of tokio's as a span.
pub(super) fn span(duration: Duration) -> Span {
    Span(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
}

//! What the notifier is told of the service, and what the service shows of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use super::ServiceShared;
use crate::cli::host_name::identity;
use crate::clock::Clock;
use crate::config::Settings;
use crate::controller::conditions::{self, ConditionInput, FoundConditions};
use crate::controller::control::ControlAnswer;
use crate::model::notice::NoticeSource;
use crate::model::time::{Span, Time};
use crate::notify::{self, NotifierParts, NotifierService, Whom};

/// So long after a gap in the record it is told that there was one.
const GAP: Span = Span::minutes(60);

/// What the service keeps for the notifier.
#[derive(Debug)]
pub(super) struct Telling {
    whom: watch::Sender<Whom>,
    wake_up: Arc<Notify>,
    /// How much was not recorded so far, and when that last grew.
    lost: Mutex<(u64, Option<Time>)>,
    /// Notifications that cannot be sent, and why.
    failing: Mutex<BTreeMap<Arc<str>, String>>,
}

impl Default for Telling {
    fn default() -> Telling {
        let teller = NoticeSource {
            host: identity(),
            cluster: String::new(),
        };
        let whom = Whom {
            targets: Arc::default(),
            teller,
        };
        Telling {
            whom: watch::Sender::new(whom),
            wake_up: Arc::default(),
            lost: Mutex::default(),
            failing: Mutex::default(),
        }
    }
}

impl Telling {
    /// Work with these settings begins.
    pub(super) fn begin(&self, settings: &Settings) {
        self.whom.send_modify(|whom| {
            whom.targets = settings.notifications.clone();
            settings
                .kubernetes
                .name
                .clone_into(&mut whom.teller.cluster);
        });
    }

    /// Whether there was a gap in the record lately.
    fn not_recording(&self, lost: u64, now: Time) -> bool {
        let mut known = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        if lost > known.0 {
            *known = (lost, Some(now));
        }
        known.1.is_some_and(|last| now.since(last) < GAP)
    }

    fn failing(&self) -> std::sync::MutexGuard<'_, BTreeMap<Arc<str>, String>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServiceShared {
    /// In which conditions a person must act now; `None` while nothing is configured.
    pub(super) fn conditions(&self) -> Option<FoundConditions> {
        let standing = self.standing().clone();
        if !standing.configured {
            return None;
        }
        let now = Clock::System.now();
        let turn = self.turns.borrow().clone();
        let lost = self.metrics.not_recorded_so_far();
        let failing = self.telling.failing().clone();
        Some(conditions::find(ConditionInput {
            turn: turn.as_deref(),
            problems: &standing.problems,
            not_recording: self.telling.not_recording(lost, now),
            failing: &failing,
            now,
        }))
    }
}

impl NotifierService for ServiceShared {
    fn fails(&self, failing: BTreeMap<Arc<str>, String>) {
        *self.telling.failing() = failing;
    }

    fn look(&self) -> Option<FoundConditions> {
        self.conditions()
    }

    fn problem(&self, problem: Option<String>) {
        ServiceShared::problem(self, "notifications", problem);
    }

    fn sent(&self, name: &str, ok: bool) {
        self.metrics.notified(name, ok);
    }
}

/// Begins to tell people.
pub(super) fn begin(shared: &Arc<ServiceShared>) -> JoinHandle<()> {
    tokio::spawn(notify::run(NotifierParts {
        whom: shared.telling.whom.subscribe(),
        service: shared.clone(),
        state: shared.state.clone(),
        clock: Clock::System,
        wake_up: shared.telling.wake_up.clone(),
    }))
}

/// Sends a test to one, or to all; what could not be sent before is tried again, too.
pub(super) async fn test(shared: &ServiceShared, name: Option<&str>, by: &str) -> ControlAnswer {
    let whom = shared.telling.whom.borrow().clone();
    tracing::info!(name, by, "a test of the notifications");
    match notify::test(&whom, name, Clock::System.now()).await {
        Ok(tried) => {
            shared.telling.wake_up.notify_one();
            crate::controller::answers::json(&tried)
        }
        Err(why) => ControlAnswer::Error(why),
    }
}

//! Tells people: Events and the status ConfigMap, beside the loop and never in its way.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::agent::executor::Ended;
use crate::agent::news::{self, Told};
use crate::agent::turn::Turn;
use crate::config::settings::Settings;
use crate::kube::Client;
use crate::kube::events::{Event, EventRecorder, recorder};
use crate::kube::status;
use crate::model::action::Action;

/// The status ConfigMap is written when it changed, at most this often.
const STATUS_SPACING: Duration = Duration::from_secs(30);

/// Takes news from the loop.
#[derive(Debug)]
pub struct Announcer {
    events: EventRecorder,
    told: Told,
    namespace: String,
    turns: watch::Sender<Option<Arc<Turn>>>,
}

impl Announcer {
    /// An announcer, and the work it needs done beside the loop.
    pub fn new(
        kube: &Client,
        settings: &Settings,
        host: String,
    ) -> (Announcer, impl Future<Output = ()> + Send + use<>) {
        let (events, sending) = recorder(kube.clone(), host);
        let (turns, newest) = watch::channel(None);
        let namespace = settings.kubernetes.namespace.clone();
        let writing = write_status(kube.clone(), namespace.clone(), newest);
        let announcer = Announcer { events, told: Told::default(), namespace, turns };
        (announcer, async move {
            futures::future::join(sending, writing).await;
        })
    }

    /// A turn was taken.
    pub fn decided(&mut self, turn: &Arc<Turn>) {
        if turn.snapshot.leader {
            self.tell(news::of_decision(turn), turn);
            self.turns.send_replace(Some(turn.clone()));
        }
    }

    /// An action of `turn` was begun.
    pub fn begun(&mut self, action: &Action, turn: &Turn) {
        for event in news::of_beginning(action, turn, &self.namespace) {
            self.events.record(event);
        }
    }

    /// An action ended.
    pub fn ended(&mut self, ended: &Ended) {
        for event in news::of_ending(ended, &self.namespace) {
            self.events.record(event);
        }
    }

    fn tell(&mut self, news: Vec<Event>, turn: &Turn) {
        for event in self.told.fresh(news, turn.at) {
            self.events.record(event);
        }
    }
}

/// Keeps the status ConfigMap as new as it needs to be.
async fn write_status(
    kube: Client,
    namespace: String,
    mut newest: watch::Receiver<Option<Arc<Turn>>>,
) {
    let mut written: Option<String> = None;
    let mut next = Instant::now();
    while newest.changed().await.is_ok() {
        sleep_until(next).await;
        let Some(turn) = newest.borrow_and_update().clone() else { continue };
        let (report, snapshot) = (&turn.decision.report, &turn.snapshot);
        // Its times change with every turn; what they are about does not.
        let gist = status::gist(report, snapshot);
        if written.as_ref() == Some(&gist) {
            continue;
        }
        match kube.write_status(&namespace, report, snapshot, turn.at).await {
            Ok(()) => written = Some(gist),
            Err(error) => tracing::debug!(%error, "the status ConfigMap could not be written"),
        }
        next = Instant::now() + STATUS_SPACING;
    }
}

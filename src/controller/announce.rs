//! Tells people: Events and the status ConfigMap, beside the loop and never in its way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::config::settings::Settings;
use crate::controller::executor::{Ended, Overdue};
use crate::controller::turn::Turn;
use crate::controller::turn_events::{self, SentEvents};
use crate::kubernetes::KubeClient;
use crate::kubernetes::events::{Event, EventRecorder, recorder};
use crate::kubernetes::status::{StatusInput, StatusWriter};
use crate::model::action::Action;
use crate::model::cluster::ReadyStatus;
use crate::model::report::NodeVerdict;

/// The status is looked at this often when no turn comes.
const STATUS_POLL: Duration = Duration::from_mins(1);
/// After a write that failed.
const STATUS_PAUSE: Duration = Duration::from_secs(10);

/// Takes news from the loop.
#[derive(Debug)]
pub struct Announcer {
    events: EventRecorder,
    sent: SentEvents,
    /// Machines that are left alone because of a contradiction, and what it is.
    contradicted: BTreeMap<Arc<str>, String>,
    namespace: String,
    turns: watch::Sender<Option<Arc<Turn>>>,
}

impl Announcer {
    /// An announcer, and the work it needs done beside the loop.
    pub fn new(
        kube: &KubeClient,
        settings: &Settings,
        host: String,
    ) -> (Announcer, impl Future<Output = ()> + Send + use<>) {
        let (events, sending) = recorder(kube.clone(), host);
        let (turns, newest) = watch::channel(None);
        let namespace = settings.kubernetes.namespace.clone();
        let writing = write_status(kube.clone(), namespace.clone(), newest);
        let announcer = Announcer {
            events,
            sent: SentEvents::default(),
            contradicted: BTreeMap::new(),
            namespace,
            turns,
        };
        (announcer, async move {
            futures::future::join(sending, writing).await;
        })
    }

    /// A turn was taken.
    pub fn decided(&mut self, turn: &Arc<Turn>) {
        if let Some(growth) = turn.decision.report.scale_up {
            tracing::info!(
                turn = turn.number,
                nodes = growth.nodes,
                price = growth.price,
                "machines are planned"
            );
        }
        if turn.snapshot.leader {
            self.log_contradictions(turn);
            self.send_new(turn_events::of_decision(turn, &self.namespace), turn);
            self.turns.send_replace(Some(turn.clone()));
        }
    }

    /// Says in the log that a machine is left alone, and that it is not any more; each once.
    fn log_contradictions(&mut self, turn: &Turn) {
        let machines = turn.snapshot.machines.iter();
        let found: BTreeMap<Arc<str>, String> = machines
            .filter_map(|(name, machine)| {
                let found = machine.contradiction.as_ref()?;
                Some((name.clone(), found.why.to_string()))
            })
            .collect();
        for (machine, why) in &found {
            if self.contradicted.get(machine) != Some(why) {
                tracing::warn!(%machine, %why, "the machine is left alone: its node and its VM contradict each other");
            }
        }
        let ended = self.contradicted.keys();
        for machine in ended.filter(|machine| !found.contains_key(*machine)) {
            tracing::info!(%machine, "the machine's node and VM agree again");
        }
        self.contradicted = found;
    }

    /// An action of `turn` was begun.
    pub fn begun(&mut self, action: &Action, turn: &Turn) {
        for event in turn_events::of_beginning(action, turn, &self.namespace) {
            self.events.record(event);
        }
    }

    /// An action ended; `turn` is the last one that was taken.
    pub fn ended(&mut self, ended: &Ended, turn: &Turn) {
        for event in turn_events::of_ending(ended, &self.namespace, turn) {
            self.events.record(event);
        }
    }

    /// An action has been waiting for a while.
    pub fn waits(&mut self, overdue: &Overdue, turn: &Turn) {
        let Overdue { machine, wait, .. } = overdue;
        let seconds = turn.at.since(wait.since).0 / 1000;
        if wait.hindered {
            tracing::warn!(%machine, seconds, waits_for = %wait.what, "an action makes no progress");
        } else {
            tracing::info!(%machine, seconds, waits_for = %wait.what, "an action takes its time");
        }
        self.send_new(turn_events::of_wait(overdue, turn), turn);
    }

    fn send_new(&mut self, events: Vec<Event>, turn: &Turn) {
        for event in self.sent.drop_repeated(events, turn.at) {
            self.events.record(event);
        }
    }
}

/// Keeps the status ConfigMap as new as it needs to be.
async fn write_status(
    kube: KubeClient,
    namespace: String,
    mut newest: watch::Receiver<Option<Arc<Turn>>>,
) {
    let mut writer = StatusWriter::default();
    loop {
        // A sign of life is due now and then even if no turn comes.
        if let Ok(Err(_)) = timeout(STATUS_POLL, newest.changed()).await {
            return;
        }
        let Some(turn) = newest.borrow_and_update().clone() else {
            continue;
        };
        let input = status_input(&turn);
        let now = kube.clock().now();
        // Numbers that are not known yet would be wrong ones.
        let read = turn.decision.report.unread.is_empty();
        let failed = || {
            turn.snapshot
                .sources
                .values()
                .any(|source| !source.complete && source.error.is_some())
        };
        if !read && !failed() {
            continue;
        }
        if let Some(text) = writer.render(&input, now) {
            match kube.write_status(&namespace, &text, now).await {
                Ok(()) => writer.written(input, now),
                Err(error) => {
                    tracing::debug!(%error, "the status ConfigMap could not be written");
                    sleep(STATUS_PAUSE).await;
                }
            }
        }
    }
}

fn status_input(turn: &Turn) -> StatusInput {
    let report = &turn.decision.report;
    let mut input = StatusInput {
        pools: report.pools.clone(),
        holds: report.holds.clone(),
        ..StatusInput::default()
    };
    for (name, node) in &turn.snapshot.cluster.nodes {
        if !matches!(report.nodes.get(name), Some(NodeVerdict::NotAutoscaled)) {
            continue;
        }
        if node.ready.status == ReadyStatus::True {
            input.other_ready += 1;
        } else {
            input.other_unready += 1;
        }
    }
    input
}

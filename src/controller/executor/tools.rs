//! What actions are done with.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::rngs::StdRng;
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit};
use tokio::time::Instant;

use crate::clock::Clock;
use crate::config::settings::Settings;
use crate::controller::journal::{Journal, JournalEntry};
use crate::controller::nominations::PodNominator;
use crate::controller::on_wire::WireBook;
use crate::controller::openings::OpeningOrder;
use crate::controller::region::Doubts;
use crate::kubernetes::ClusterStore;
use crate::model::action::Action;
use crate::model::cluster::ReadyStatus;
use crate::model::region::{Failure, RegionName, Step};
use crate::model::time::Span;

use super::concurrency::{CloneLimits, ConcurrencyLimits};
use super::follow::TaskTimes;
use super::node::is_starting;
use super::waits::ActionWaits;

/// Hears what the executor does, for metrics, the record and traces.
pub trait Observer: Send + Sync + fmt::Debug {
    /// An action begins, on the machine of this journal entry if there is one.
    fn begun(&self, action: &Action, entry: Option<&JournalEntry>);
    /// Something happened in the step that a machine is in.
    fn moment(&self, _machine: &str, _what: &'static str) {}
    /// A step of a machine's life ended after `took`.
    fn step(&self, machine: &str, step: Step, took: Span, failure: Option<&Failure>);
    /// An eviction was answered.
    fn evicted(&self, ok: bool);
    /// A turn of the loop ended after `took`.
    fn turned(&self, took: Duration);
    /// An action came to its end.
    fn ended(&self, action: &Action, failure: Option<&Failure>);
    /// Everything that was being done was ended: somebody else leads.
    fn stopped(&self) {}
    /// Decisions and events could not be recorded.
    fn not_recorded(&self, many: u64);
}

/// Hears nothing.
#[derive(Debug)]
pub struct Nothing;

impl Observer for Nothing {
    fn begun(&self, _: &Action, _: Option<&JournalEntry>) {}
    fn step(&self, _: &str, _: Step, _: Span, _: Option<&Failure>) {}
    fn evicted(&self, _: bool) {}
    fn turned(&self, _: Duration) {}
    fn ended(&self, _: &Action, _: Option<&Failure>) {}
    fn not_recorded(&self, _: u64) {}
}

/// Everything an action needs; cheap to clone.
#[derive(Clone, Debug)]
pub struct Tools {
    /// What time it is.
    pub clock: Clock,
    /// The configuration.
    pub settings: Arc<Settings>,
    /// PVE by region.
    pub pve: BTreeMap<RegionName, crate::pve::Client>,
    /// Kubernetes.
    pub kube: crate::kubernetes::KubeClient,
    /// The watched view of Kubernetes.
    pub store: ClusterStore,
    /// The journal.
    pub journal: Journal,
    /// Seeded random numbers: token secrets. From the operating system's randomness but in simulations.
    pub random: Arc<Mutex<StdRng>>,
    /// Who hears of steps.
    pub observer: Arc<dyn Observer>,
    /// How many clones may run at once, by storage.
    pub clones: CloneLimits,
    /// How long PVE's tasks usually take.
    pub task_times: TaskTimes,
    /// How many guest agents may be asked at once, by region and host.
    pub agent_pings: ConcurrencyLimits,
    /// Who has addresses on the wire.
    pub wire: WireBook,
    /// VMs that look otherwise than their region's watcher may have read them.
    pub doubts: Doubts,
    /// How many machines are being worked on.
    pub active_tasks: Arc<AtomicUsize>,
    /// Which pods the nodes that are made are made for.
    pub nominations: PodNominator,
    /// What the actions wait for.
    pub waits: ActionWaits,
    /// Counts works, to tell two on one machine apart.
    pub works: Arc<AtomicU64>,
}

/// Agents of one host that are asked at the same time while their guests boot.
const PINGS_PER_HOST: usize = 1;

impl Tools {
    /// The random numbers, locked.
    pub fn rng(&self) -> MutexGuard<'_, StdRng> {
        self.random.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock of the node that begins to take pods, if pods are nominated ([`PodNominator::lock_opening`]).
    pub(super) async fn lock_opening(&self) -> Option<OwnedMutexGuard<()>> {
        if self.settings.policy.scale_up.nominate_pods {
            self.nominations.lock_opening().await
        } else {
            None
        }
    }

    /// Whether a node that arrived takes pods now. It does not wait for others beyond `by`.
    pub(super) fn opening_order(&self, node: &Arc<str>, by: Instant) -> OpeningOrder {
        let ordered = self.settings.policy.scale_up.nominate_pods && !planted!(OpensAtOnce);
        if !ordered || Instant::now() >= by {
            return OpeningOrder::Now(Vec::new());
        }
        let take_pods = |names: &BTreeSet<Arc<str>>| {
            self.store.with(|cluster| {
                let open = names.iter().filter(|name| {
                    let shown = cluster.nodes.get(*name);
                    shown.is_some_and(|shown| {
                        shown.ready.status == ReadyStatus::True && !is_starting(shown)
                    })
                });
                open.cloned().collect()
            })
        };
        self.nominations.openings.order(node, take_pods)
    }

    /// Nominates the pods of a node that is about to take pods, if the configuration wants that.
    pub(super) async fn nominate(&self, node: &Arc<str>) {
        if self.settings.policy.scale_up.nominate_pods {
            let nominations = &self.nominations;
            nominations.nominate(&self.kube, &self.store, node).await;
        }
    }

    /// Waits for a permit to ask an agent of a host that may not answer: such a question holds one of
    /// pvedaemon's three workers for three seconds (`Agent.pm`, `qga_check_running`).
    pub(super) async fn ping_permit(
        &self,
        region: &str,
        host: &str,
    ) -> Option<OwnedSemaphorePermit> {
        let key = format!("{region}/{host}");
        // The semaphore is never closed.
        self.agent_pings
            .of(key, PINGS_PER_HOST)
            .acquire_owned()
            .await
            .ok()
    }
}

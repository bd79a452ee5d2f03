//! The newest view of the cluster, kept by the watches, with the freshness of every source.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::value::RawValue;
use tokio::sync::watch;

use super::early::Early;
use super::intern::Interner;
use super::kinds::{Applied, ViewChange, WatchedKind};
use super::list::ListItem;
use super::translate::{PriorityClass, RuntimeClass};
use super::wire;
use crate::model::cluster::{Cluster, ObjectKey};
use crate::model::foreign::ForeignText;
use crate::model::snapshot::SourceState;
use crate::model::time::{Span, Time};

/// Objects that are reported by name at most, per kind; the rest is a number.
const MAX_NAMED: usize = 5;

/// Counts changes by what changed. A receiver compares with what it saw last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangeCounts {
    /// Anything at all, freshness and errors of a source included, but no mere sign of life.
    pub total: u64,
    /// Pods that became unschedulable.
    pub unschedulable: u64,
    /// Pods otherwise, in what decisions read.
    pub pods: u64,
    /// Pods in what no decision waits for: they run now, or are ready, or no longer.
    pub quiet: u64,
    /// Nodes.
    pub nodes: u64,
    /// The rest of the view.
    pub other: u64,
    /// A source became complete, failed or recovered.
    pub sources: u64,
}

/// What one watch has been through, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindStats {
    /// Full lists done.
    pub lists: u64,
    /// Watches opened.
    pub watches: u64,
    /// Events taken, bookmarks included.
    pub events: u64,
    /// Lists and watches that failed.
    pub failures: u64,
    /// Objects that are not understood in full now.
    pub problems: u64,
}

/// A view of the cluster at one moment.
#[derive(Clone, Debug, Default)]
pub struct ClusterView {
    /// Pods, nodes and the rest.
    pub cluster: Cluster,
    /// Each source's state: `kube/pods` and so on.
    pub sources: BTreeMap<Arc<str>, SourceState>,
    /// The changes this view contains.
    pub changes: ChangeCounts,
}

/// The store; clones are the same store.
#[derive(Clone, Debug)]
pub struct ClusterStore {
    inner: Arc<StoreInner>,
}

#[derive(Debug)]
struct StoreInner {
    state: Mutex<ClusterState>,
    changes: watch::Sender<ChangeCounts>,
}

#[derive(Debug, Default)]
pub(super) struct ClusterState {
    pub(super) cluster: Cluster,
    pub(super) interner: Interner,
    pub(super) priorities: BTreeMap<Arc<str>, PriorityClass>,
    pub(super) runtimes: BTreeMap<Arc<str>, RuntimeClass>,
    /// DaemonSets as read: they are translated anew when a class that they may name changes.
    pub(super) daemon_templates: BTreeMap<ObjectKey, Box<wire::WireDaemonSet>>,
    /// The kinds that are away because of the connection or the API server itself.
    outage: BTreeSet<WatchedKind>,
    pub(super) early: Early,
    sources: BTreeMap<WatchedKind, WatchedSource>,
}

#[derive(Debug, Default)]
struct WatchedSource {
    complete: bool,
    as_of: Time,
    failure: Option<String>,
    /// What is behind the failure, in the same words for all sources that it hinders.
    cause: Option<ForeignText>,
    /// Not understood in full, taken for the worst: said, but no reason for distrust.
    problems: BTreeMap<ObjectKey, String>,
    /// Not readable at all: the view lacks them or shows them as they were.
    unreadable: BTreeMap<ObjectKey, String>,
    stats: KindStats,
}

impl WatchedSource {
    fn error(&self) -> Option<String> {
        let unreadable = (!self.unreadable.is_empty()).then(|| {
            let names = named(&self.unreadable);
            format!("{} objects cannot be read: {names}", self.unreadable.len())
        });
        match (&self.failure, unreadable) {
            (Some(failure), Some(unreadable)) => Some(format!("{failure}; {unreadable}")),
            (failure, unreadable) => failure.clone().or(unreadable),
        }
    }
}

impl WatchedSource {
    /// What is behind the error, unless it is objects of this source alone.
    fn cause(&self) -> Option<ForeignText> {
        let shared = self.failure.is_some() && self.unreadable.is_empty();
        self.cause.clone().filter(|_| shared)
    }
}

fn named(objects: &BTreeMap<ObjectKey, String>) -> String {
    let shown: Vec<String> = objects
        .iter()
        .take(MAX_NAMED)
        .map(|(key, why)| format!("{}: {why}", show(key)))
        .collect();
    shown.join("; ")
}

/// A cluster-wide object has a name alone.
fn show(key: &ObjectKey) -> String {
    key.to_string().trim_start_matches('/').to_owned()
}

impl Default for ClusterStore {
    fn default() -> ClusterStore {
        ClusterStore::new()
    }
}

impl ClusterStore {
    /// An empty store; no source is complete.
    pub fn new() -> ClusterStore {
        let mut state = ClusterState::default();
        for kind in WatchedKind::ALL {
            state.sources.insert(kind, WatchedSource::default());
        }
        ClusterStore {
            inner: Arc::new(StoreInner {
                state: Mutex::new(state),
                changes: watch::Sender::new(ChangeCounts::default()),
            }),
        }
    }

    /// The view now. 3,000 pods cost well under a millisecond: everything big is shared.
    pub fn view(&self) -> ClusterView {
        let state = self.state();
        ClusterView {
            cluster: state.cluster.clone(),
            sources: state
                .sources
                .iter()
                .map(|(kind, source)| {
                    let source = SourceState {
                        complete: source.complete,
                        as_of: source.as_of,
                        error: source.error().map(ForeignText::from),
                        cause: source.cause(),
                    };
                    (kind.source().into(), source)
                })
                .collect(),
            changes: *self.inner.changes.borrow(),
        }
    }

    /// Looks at the view without copying it. `look` must be quick: the watches wait for it.
    pub fn with<T>(&self, look: impl FnOnce(&Cluster) -> T) -> T {
        look(&self.state().cluster)
    }

    /// The addresses at which the API server is reached, as far as they are known. The next decision reads them; none waits for them.
    pub fn set_api_addresses(&self, addresses: BTreeSet<IpAddr>) {
        self.state().cluster.api_addresses = addresses;
    }

    /// Is told of changes.
    pub fn changes(&self) -> watch::Receiver<ChangeCounts> {
        self.inner.changes.subscribe()
    }

    /// Every source has been read completely at least once.
    pub fn complete(&self) -> bool {
        self.state().sources.values().all(|source| source.complete)
    }

    /// Objects that are not understood in full, as `kube/pods default/web: …`.
    pub fn problems(&self) -> Vec<String> {
        let state = self.state();
        state
            .sources
            .iter()
            .flat_map(|(kind, source)| {
                source
                    .problems
                    .iter()
                    .chain(&source.unreadable)
                    .map(|(key, why)| format!("{} {}: {why}", kind.source(), show(key)))
            })
            .collect()
    }

    /// What each watch has been through.
    pub fn stats(&self) -> BTreeMap<WatchedKind, KindStats> {
        let state = self.state();
        state
            .sources
            .iter()
            .map(|(kind, source)| {
                let problems = source.problems.len() + source.unreadable.len();
                let counted = KindStats {
                    problems: u64::try_from(problems).unwrap_or(u64::MAX),
                    ..source.stats
                };
                (*kind, counted)
            })
            .collect()
    }

    fn state(&self) -> MutexGuard<'_, ClusterState> {
        // Every change under this lock leaves the maps whole: a poisoned one is still good.
        self.inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self, what: impl FnOnce(&mut ChangeCounts)) {
        self.inner.changes.send_modify(|changes| {
            changes.total += 1;
            what(changes);
        });
    }

    fn notify_object(&self, kind: WatchedKind, what: ViewChange) {
        if what == ViewChange::None {
            return;
        }
        self.notify(|changes| match kind {
            WatchedKind::Pods if what == ViewChange::Unschedulable => changes.unschedulable += 1,
            WatchedKind::Pods if what == ViewChange::Quiet => changes.quiet += 1,
            WatchedKind::Pods => changes.pods += 1,
            WatchedKind::Nodes => changes.nodes += 1,
            _ => changes.other += 1,
        });
    }

    /// Takes one object of a list.
    pub(super) fn take_listed(&self, listed: &mut Listed, item: ListItem<'_>) {
        let mut state = self.state();
        state.early.at(listed.asked);
        let applied = match item {
            ListItem::Whole(raw) => state.put_object(listed.kind, raw),
            ListItem::TooLarge(metadata) => ClusterState::pass_over(listed.kind, metadata),
        };
        listed.plain |= applied.changed == ViewChange::Plain;
        listed.changed = listed.changed.max(applied.changed);
        if let Some(key) = state.note(listed.kind, applied) {
            listed.seen.insert(key);
        }
    }

    /// The clock was set ahead by `step`, or back, and shows `now`: every source is as old as it was,
    /// and no object is of the future.
    pub fn step(&self, step: Span, now: Time) {
        let mut state = self.state();
        let state = &mut *state;
        for source in state.sources.values_mut() {
            source.as_of = (source.as_of + step).min(now);
        }
        if let Some(came) = &mut state.cluster.unschedulable_at {
            *came = (*came + step).min(now);
        }
        state.early.step(step);
        state.early.at(now);
        for node in state.cluster.nodes.values_mut() {
            state.early.tame_node(node);
        }
        let young = state.cluster.pods.iter();
        let young: Vec<ObjectKey> = young
            .filter(|(_, pod)| pod.created > now)
            .map(|(key, _)| key.clone())
            .collect();
        for key in young {
            if let Some(pod) = state.cluster.pods.get_mut(&key) {
                state.early.tame_pod(pod);
            }
        }
    }

    /// Ends a full list; it is as new as the moment before it was asked for.
    pub(super) fn end_list(&self, listed: &Listed) {
        let (kind, as_of) = (listed.kind, listed.asked);
        let (changed, mut plain) = (listed.changed, listed.plain);
        let mut state = self.state();
        for key in state.keys(kind) {
            if !listed.seen.contains(&key) {
                plain |= state.remove_object(kind, &key);
            }
        }
        if changed == ViewChange::Unschedulable {
            state.cluster.unschedulable_at = Some(as_of);
        }
        let mut recovered = false;
        let mut failed = false;
        if let Some(source) = state.sources.get_mut(&kind) {
            source.problems.retain(|key, _| listed.seen.contains(key));
            source.unreadable.retain(|key, _| listed.seen.contains(key));
            source.stats.lists += 1;
            failed = source.failure.take().is_some();
            recovered = !source.complete || failed;
            source.complete = true;
            source.as_of = source.as_of.max(as_of);
        }
        if failed {
            state.back(kind);
        }
        drop(state);
        self.notify_object(kind, changed);
        if plain && changed != ViewChange::Plain {
            self.notify_object(kind, ViewChange::Plain);
        }
        if recovered {
            self.notify(|changes| changes.sources += 1);
        }
    }

    /// Takes an added or changed object of a watch.
    pub(super) fn take_changed(&self, kind: WatchedKind, raw: &RawValue, now: Time) {
        let mut state = self.state();
        state.early.at(now);
        let applied = state.put_object(kind, raw);
        let changed = applied.changed;
        if changed == ViewChange::Unschedulable {
            state.cluster.unschedulable_at = Some(now);
        }
        state.note(kind, applied);
        state.alive(kind, now);
        drop(state);
        self.notify_object(kind, changed);
    }

    /// Takes a deleted object of a watch.
    pub(super) fn take_deleted(&self, kind: WatchedKind, meta: &wire::Meta, now: Time) {
        let key = ObjectKey::new(
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default(),
        );
        let mut state = self.state();
        let changed = state.remove_object(kind, &key);
        if let Some(source) = state.sources.get_mut(&kind) {
            source.problems.remove(&key);
            source.unreadable.remove(&key);
        }
        state.alive(kind, now);
        drop(state);
        self.notify_object(kind, changed.into());
    }

    /// A bookmark: nothing changed, and the view is right until now.
    pub(super) fn take_bookmark(&self, kind: WatchedKind, now: Time) {
        self.state().alive(kind, now);
    }

    /// A watch was opened: the API server took our resourceVersion.
    pub(super) fn watch_opened(&self, kind: WatchedKind) {
        let mut state = self.state();
        let mut recovered = false;
        if let Some(source) = state.sources.get_mut(&kind) {
            source.stats.watches += 1;
            recovered = source.failure.take().is_some();
        }
        if recovered {
            state.back(kind);
        }
        drop(state);
        if recovered {
            self.notify(|changes| changes.sources += 1);
        }
    }

    /// A list or watch failed; the view stays as it is and ages. `cause` is what is behind it, in the same words for
    /// all kinds that it hinders.
    pub(super) fn failed(
        &self,
        kind: WatchedKind,
        message: &str,
        cause: Option<&str>,
        trouble: FailureScope,
    ) {
        let mut state = self.state();
        let mut news = false;
        if let Some(source) = state.sources.get_mut(&kind) {
            source.stats.failures += 1;
            news = source.failure.is_none();
            source.failure = Some(message.to_owned());
            source.cause = cause.map(ForeignText::from);
        }
        if news {
            state.away(kind, message, trouble);
        }
        drop(state);
        if news {
            self.notify(|changes| changes.sources += 1);
        }
    }
}

/// Whose trouble it is that a list or watch failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureScope {
    /// The way to the API server's, or its own: it concerns every kind, and is said once.
    Shared,
    /// This kind's alone.
    Own,
}

/// A full list under way.
#[derive(Debug)]
pub(super) struct Listed {
    kind: WatchedKind,
    /// The moment before it was asked for.
    asked: Time,
    seen: BTreeSet<ObjectKey>,
    /// The most that an object changed.
    changed: ViewChange,
    /// Some object changed something plain.
    plain: bool,
}

impl Listed {
    /// Begins a full list at `asked`: what is not seen until its end is gone.
    pub(super) fn new(kind: WatchedKind, asked: Time) -> Listed {
        Listed {
            kind,
            asked,
            seen: BTreeSet::new(),
            changed: ViewChange::None,
            plain: false,
        }
    }
}

impl ClusterState {
    /// A kind is not watched any more. One broken connection is one warning, however many watches went
    /// over it.
    fn away(&mut self, kind: WatchedKind, message: &str, trouble: FailureScope) {
        let source = kind.source();
        match trouble {
            FailureScope::Own => tracing::warn!(source, error = message, "cannot watch"),
            FailureScope::Shared if self.outage.is_empty() => tracing::warn!(
                source,
                error = message,
                "cannot watch the cluster; every kind is tried again until it answers"
            ),
            FailureScope::Shared => tracing::debug!(source, error = message, "cannot watch"),
        }
        if trouble == FailureScope::Shared {
            self.outage.insert(kind);
        }
    }

    /// A kind is watched again.
    fn back(&mut self, kind: WatchedKind) {
        let source = kind.source();
        if !self.outage.remove(&kind) {
            tracing::info!(source, "watching again");
        } else if self.outage.is_empty() {
            tracing::info!("watching the cluster again");
        }
    }

    fn alive(&mut self, kind: WatchedKind, now: Time) {
        if let Some(source) = self.sources.get_mut(&kind) {
            source.stats.events += 1;
            source.as_of = source.as_of.max(now);
        }
    }

    /// Keeps what was not understood, says it once, and returns the object's key.
    fn note(&mut self, kind: WatchedKind, applied: Applied) -> Option<ObjectKey> {
        let key = applied.key;
        let source = self.sources.get_mut(&kind)?;
        let named = key.clone().unwrap_or_else(|| ObjectKey::new("", "?"));
        let mut keep = |map: fn(&mut WatchedSource) -> &mut BTreeMap<ObjectKey, String>,
                        why: Option<String>| {
            let map = map(source);
            match why {
                None => {
                    map.remove(&named);
                }
                Some(why) if map.get(&named) != Some(&why) => {
                    tracing::warn!(source = kind.source(), object = show(&named), %why, "not understood");
                    map.insert(named.clone(), why);
                }
                Some(_) => {}
            }
        };
        let problems = (!applied.problems.is_empty()).then(|| applied.problems.join("; "));
        keep(|watched| &mut watched.problems, problems);
        keep(|watched| &mut watched.unreadable, applied.unreadable);
        key
    }
}

//! What a decision may not do now, by region, and why.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::reasons::{Held, Hindrance};

use crate::observed::view::MachineView;

/// What is held, and why. The first reason of a kind is kept for the verdicts.
#[derive(Debug)]
pub(crate) struct Holds {
    /// What stops everything, what has begun too.
    pub(crate) everything: Option<Arc<Hindrance>>,
    /// Somebody paused it: nothing is begun, and what has begun is finished.
    pub(crate) paused: Option<Arc<Hindrance>>,
    pub(crate) grow: Option<Arc<Hindrance>>,
    pub(crate) shrink: Option<Arc<Hindrance>>,
    /// Too many nodes are not Ready: cluster-autoscaler's `ClusterUnhealthy`.
    pub(crate) unhealthy: Option<Arc<Hindrance>>,
    pub(crate) grow_in: BTreeMap<Arc<str>, Arc<Hindrance>>,
    pub(crate) shrink_in: BTreeMap<Arc<str>, Arc<Hindrance>>,
    pub(crate) configured: BTreeSet<Arc<str>>,
    /// What was not read yet of Kubernetes since the start, if something was not.
    pub(crate) unread: Option<Arc<Hindrance>>,
    /// Regions of which nothing was read yet since the start.
    pub(crate) unread_regions: BTreeMap<Arc<str>, Arc<Hindrance>>,
    pub(crate) unknown_region: Arc<Hindrance>,
}

type Allowed<'a> = Result<(), &'a Arc<Hindrance>>;

fn find_first<'a>(reasons: impl IntoIterator<Item = Option<&'a Arc<Hindrance>>>) -> Allowed<'a> {
    reasons.into_iter().flatten().next().map_or(Ok(()), Err)
}

impl Default for Holds {
    fn default() -> Holds {
        Holds {
            everything: None,
            paused: None,
            grow: None,
            shrink: None,
            unhealthy: None,
            grow_in: BTreeMap::new(),
            shrink_in: BTreeMap::new(),
            configured: BTreeSet::new(),
            unread: None,
            unread_regions: BTreeMap::new(),
            unknown_region: Arc::new(Held::RegionNotConfigured.into()),
        }
    }
}

impl Holds {
    /// Whether machines may be made in a region.
    pub(crate) fn may_grow(&self, region: &str) -> Allowed<'_> {
        find_first([
            self.everything.as_ref(),
            self.paused.as_ref(),
            self.grow.as_ref(),
            self.unhealthy.as_ref(),
            self.grow_in.get(region),
            self.unknown(region),
        ])
    }

    /// Whether something may be begun in a region that takes nothing away and makes no machine: an unhealthy cluster does not stop it.
    pub(crate) fn may_begin(&self, region: &str) -> Allowed<'_> {
        find_first([self.paused.as_ref()])?;
        self.may_continue(region)
    }

    /// Whether machines under way may be continued in a region: neither a pause nor an unhealthy cluster stops them.
    pub(crate) fn may_continue(&self, region: &str) -> Allowed<'_> {
        find_first([
            self.everything.as_ref(),
            self.grow.as_ref(),
            self.grow_in.get(region),
            self.unknown(region),
        ])
    }

    /// Whether what never worked may be deleted in a region: an unhealthy cluster does not stop that.
    pub(crate) fn may_clear(&self, region: &str) -> Allowed<'_> {
        find_first([
            self.everything.as_ref(),
            self.paused.as_ref(),
            self.shrink.as_ref(),
            self.shrink_in.get(region),
            self.unknown(region),
        ])
    }

    /// Whether working nodes, or what is left of them, may be removed in a region.
    pub(crate) fn may_shrink(&self, region: &str) -> Allowed<'_> {
        self.may_clear(region)?;
        find_first([self.unhealthy.as_ref()])
    }

    fn unknown(&self, region: &str) -> Option<&Arc<Hindrance>> {
        (!self.configured.contains(region)).then_some(&self.unknown_region)
    }

    /// Whether both views are good enough to begin a quarantine by.
    pub(crate) fn may_observe_in(&self, region: &str) -> bool {
        self.may_observe() && !self.shrink_in.contains_key(region) && self.unknown(region).is_none()
    }

    /// Whether who is behind a node cannot be known yet, for its region was not read yet since the start:
    /// Kubernetes is read first. `known` is the machine behind it, if that is known all the same.
    pub(crate) fn in_the_dark(&self, machine: Option<&MachineView<'_>>) -> bool {
        match machine {
            Some(machine) => self.unread_regions.contains_key(&machine.seen.region),
            None => !self.unread_regions.is_empty(),
        }
    }

    /// What was not read yet since the start, if something was not: of what depends on it nothing can be said.
    pub(crate) fn unread(&self) -> Option<&Arc<Hindrance>> {
        let regions = self.unread_regions.values();
        self.unread.iter().chain(regions).next()
    }

    /// What was not read yet of Kubernetes.
    pub(crate) fn unread_kubernetes(&self) -> Option<&Arc<Hindrance>> {
        self.unread.as_ref()
    }

    /// What was not read yet of all that tells how things are in a region.
    pub(crate) fn unread_in(&self, region: &str) -> Option<&Arc<Hindrance>> {
        self.unread
            .as_ref()
            .or_else(|| self.unread_regions.get(region))
    }

    /// Whether the view of Kubernetes is good enough to keep timers by.
    pub(crate) fn may_observe(&self) -> bool {
        self.shrink.is_none() && self.grow.is_none()
    }
}

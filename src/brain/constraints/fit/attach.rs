//! How many volumes a node can still attach.
//!
//! Source: kube-scheduler's plugin `NodeVolumeLimits` (`CSILimits`): every volume counts once for a
//! node, however many pods use it there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::reasons::{FilterFailure, VolumeFilterFailure};

use super::volumes::VolumeNeed;
use crate::constraints::claims::Attached;

/// Volumes of one driver that a pod needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Volumes {
    /// By their handles.
    pub(crate) known: BTreeSet<Arc<str>>,
    /// Claims whose volume is still to be made.
    pub(crate) fresh: BTreeSet<Arc<str>>,
}

/// What a pod needs attached, by driver; drivers without any limit are left out.
pub(crate) type Attach = BTreeMap<Arc<str>, Volumes>;

/// The limits of a node, and what counts against them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AttachSlots {
    limits: BTreeMap<Arc<str>, i32>,
    /// Volumes that pods on the node use.
    used: BTreeSet<Attached>,
    /// Volumes that are attached to the node, whether a pod uses them or not.
    attached: BTreeSet<Attached>,
}

impl AttachSlots {
    /// A node with these limits and volumes; `None` when it has no limit.
    pub(crate) fn new(
        limits: BTreeMap<Arc<str>, i32>,
        mut used: BTreeSet<Attached>,
        mut attached: BTreeSet<Attached>,
    ) -> Option<Arc<AttachSlots>> {
        used.retain(|(driver, _)| limits.contains_key(driver));
        attached.retain(|(driver, _)| limits.contains_key(driver));
        (!limits.is_empty()).then(|| {
            Arc::new(AttachSlots {
                limits,
                used,
                attached,
            })
        })
    }

    /// Whether nothing is attached.
    pub(crate) fn unused(&self) -> bool {
        self.used.is_empty() && self.attached.is_empty()
    }

    /// How many volumes of a driver it attaches, if that is limited.
    pub(crate) fn limit(&self, driver: &str) -> Option<i32> {
        self.limits.get(driver).copied()
    }

    /// How many more volumes of a driver it attaches, if that is limited.
    pub(crate) fn left(&self, driver: &Arc<str>) -> Option<i64> {
        let limit = i64::from(self.limit(driver)?);
        Some(limit - i64::try_from(self.used_of(driver)).unwrap_or(i64::MAX))
    }

    /// A volume that is attached and that no pod uses counts twice for the pod that needs it, as it
    /// does for kube-scheduler.
    fn new_on(&self, driver: &Arc<str>, volumes: &Volumes) -> usize {
        let both = volumes.known.iter().chain(&volumes.fresh);
        both.filter(|handle| !self.used.contains(&(driver.clone(), (*handle).clone())))
            .count()
    }

    fn used_of(&self, driver: &Arc<str>) -> usize {
        let all = self.used.union(&self.attached);
        all.filter(|(of, _)| of == driver).count()
    }

    /// Why a pod that needs these may not come, if it may not.
    pub(crate) fn filter_failure(&self, need: &VolumeNeed) -> Option<FilterFailure> {
        need.attach.iter().find_map(|(driver, volumes)| {
            let limit = *self.limits.get(driver)?;
            let (more, used) = (self.new_on(driver, volumes), self.used_of(driver));
            let most = usize::try_from(limit).unwrap_or(0);
            (more > 0 && used + more > most).then(|| {
                let volume = VolumeFilterFailure::AttachLimit {
                    driver: driver.clone(),
                    more,
                    limit: most,
                    used,
                };
                FilterFailure::Volume { volume }
            })
        })
    }

    fn take(&mut self, need: &VolumeNeed) {
        for (driver, volumes) in &need.attach {
            if self.limits.contains_key(driver) {
                let both = volumes.known.iter().chain(&volumes.fresh);
                self.used
                    .extend(both.map(|handle| (driver.clone(), handle.clone())));
            }
        }
    }
}

/// Pods that need these volumes come to a place with these slots.
pub(crate) fn take(slots: &mut Option<Arc<AttachSlots>>, need: Option<&VolumeNeed>) {
    if let (Some(slots), Some(need)) = (slots, need)
        && !need.attach.is_empty()
    {
        Arc::make_mut(slots).take(need);
    }
}

//! What changed from one recorded state to the next, by the path of each value in JSON.
//!
//! Maps are compared by key, all else as a whole. Two views share most of what they hold, so that comparing them costs
//! little and nothing is written as JSON but what differs.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::cluster::Cluster;
use crate::model::decision::Decision;
use crate::model::memory::Memory;
use crate::model::policy::Policy;
use crate::model::region::{Region, RegionName};
use crate::model::report::Report;
use crate::model::shared::Shared;
use crate::model::snapshot::Snapshot;

/// All that a decision was made of, and what came of it.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct RecordedState<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) policy: &'a Policy,
    pub(super) memory: &'a Memory,
    pub(super) decision: &'a Decision,
}

/// One value that is another now, or is no more: a path, and the value if there is one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum ValueChange {
    /// It has this value now.
    Set(Vec<Cow<'static, str>>, Value),
    /// It is gone.
    Gone((Vec<Cow<'static, str>>,)),
}

/// The changes from one state to the next.
#[derive(Debug, Default)]
struct StateChanges {
    found: Vec<ValueChange>,
    path: Vec<Cow<'static, str>>,
}

/// The changes that make `new` of `old`.
pub(super) fn between(old: RecordedState<'_>, new: RecordedState<'_>) -> Vec<ValueChange> {
    let mut changes = StateChanges::default();
    changes.within("snapshot", |c| c.snapshot(old.snapshot, new.snapshot));
    changes.whole("policy", old.policy, new.policy);
    changes.within("memory", |c| c.memory(old.memory, new.memory));
    changes.within("decision", |c| {
        let (old, new) = (old.decision, new.decision);
        let Decision {
            plan,
            report,
            memory,
            wake,
        } = new;
        c.whole("plan", &old.plan, plan);
        c.within("report", |c| c.report(&old.report, report));
        c.within("memory", |c| c.memory(&old.memory, memory));
        c.whole("wake", &old.wake, wake);
    });
    changes.found
}

/// Compares fields of two values that are read as a map, or as a whole.
macro_rules! compare {
    ($changes:ident, $old:ident, $how:ident: $($field:ident),*) => {
        $($changes.$how(stringify!($field), &$old.$field, $field);)*
    };
}

impl StateChanges {
    fn within(&mut self, name: &'static str, look: impl FnOnce(&mut StateChanges)) {
        self.path.push(Cow::Borrowed(name));
        look(self);
        self.path.pop();
    }

    fn at(&self, last: Cow<'static, str>) -> Vec<Cow<'static, str>> {
        let mut path = self.path.clone();
        path.push(last);
        path
    }

    fn set(&mut self, last: Cow<'static, str>, value: &impl Serialize) {
        // Plain data always serialises.
        let value = serde_json::to_value(value).unwrap_or_default();
        let path = self.at(last);
        self.found.push(ValueChange::Set(path, value));
    }

    fn whole<T: PartialEq + Serialize>(&mut self, name: &'static str, old: &T, new: &T) {
        if old != new {
            self.set(Cow::Borrowed(name), new);
        }
    }

    fn map<K: Ord + Serialize, V: PartialEq + Serialize>(
        &mut self,
        name: &'static str,
        old: &BTreeMap<K, V>,
        new: &BTreeMap<K, V>,
    ) {
        self.within(name, |c| c.entries(old.iter(), new.iter()));
    }

    /// The entries of two maps, in the order of their keys.
    fn entries<'a, K: Ord + Serialize + 'a, V: PartialEq + Serialize + 'a>(
        &mut self,
        old: impl Iterator<Item = (&'a K, &'a V)>,
        new: impl Iterator<Item = (&'a K, &'a V)>,
    ) {
        let (mut old, mut new) = (old.peekable(), new.peekable());
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => return,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((old, _)), Some((new, _))) => old.cmp(new),
            };
            let before = (order != Ordering::Greater).then(|| old.next()).flatten();
            let after = (order != Ordering::Less).then(|| new.next()).flatten();
            match (before, after) {
                (Some((_, was)), Some((_, is))) if was == is => {}
                (_, Some((key, is))) => self.set(text(key), is),
                (Some((key, _)), None) => {
                    let path = self.at(text(key));
                    self.found.push(ValueChange::Gone((path,)));
                }
                (None, None) => {}
            }
        }
    }

    fn snapshot(&mut self, old: &Snapshot, new: &Snapshot) {
        let Snapshot {
            version,
            taken,
            cluster_id,
            sources,
            cluster,
            regions,
            machines,
            leader,
            lease,
            cluster_id_error,
            paused,
            awake,
            former,
        } = new;
        compare!(self, old, whole: version, taken, cluster_id, leader, lease, cluster_id_error, paused, awake);
        compare!(self, old, map: sources, machines, former);
        self.within("cluster", |c| c.cluster(&old.cluster, cluster));
        self.within("regions", |c| c.regions(&old.regions, regions));
    }

    fn cluster(&mut self, old: &Cluster, new: &Cluster) {
        let Cluster {
            pods,
            unschedulable_at,
            nodes,
            daemon_sets,
            budgets,
            claims,
            volumes,
            storage_classes,
            csi_drivers,
            capacities,
            csi_nodes,
            attachments,
            namespaces,
        } = new;
        self.within("pods", |c| c.entries(old.pods.iter(), pods.iter()));
        compare!(self, old, whole: unschedulable_at);
        compare!(self, old, map: nodes, daemon_sets, budgets, claims, volumes, storage_classes, csi_drivers,
            capacities, csi_nodes, attachments, namespaces);
    }

    /// Regions by name; what is in one changes with each look at PVE, but little of it.
    fn regions(
        &mut self,
        old: &BTreeMap<RegionName, Shared<Region>>,
        new: &BTreeMap<RegionName, Shared<Region>>,
    ) {
        let same = old.keys().eq(new.keys());
        if !same {
            self.entries(old.iter(), new.iter());
            return;
        }
        for ((name, old), new) in old.iter().zip(new.values()) {
            let Region {
                quorate,
                hosts,
                vms,
                storages,
                templates,
                mappings,
            } = &**new;
            self.path.push(Cow::Owned(name.to_string()));
            compare!(self, old, whole: quorate);
            compare!(self, old, map: hosts, vms, storages, templates, mappings);
            self.path.pop();
        }
    }

    fn memory(&mut self, old: &Memory, new: &Memory) {
        let Memory {
            version,
            began,
            unneeded_since,
            last_scale_up,
            last_scale_down,
            last_scale_down_failure,
            backoff,
            host_backoff,
            retried,
            counted_failures,
            learned,
            batch,
            quarantine,
            serial,
            evicted,
            settled,
            consolidation,
            bookings,
            replacements,
            unreplaceable,
            no_better_plan,
            provisioning,
            power,
            last_vmids,
            last_hosts,
            last_addresses,
        } = new;
        compare!(self, old, whole: version, began, last_scale_up, last_scale_down, last_scale_down_failure,
            counted_failures, batch, serial, consolidation, no_better_plan);
        compare!(self, old, map: unneeded_since, backoff, host_backoff, retried, learned, quarantine, evicted, settled,
            bookings, replacements, unreplaceable, provisioning, power, last_vmids, last_hosts, last_addresses);
    }

    fn report(&mut self, old: &Report, new: &Report) {
        let Report {
            holds,
            unread,
            pods,
            nodes,
            pools,
            hosts,
            warnings,
            warnings_details,
            scale_up,
            networks,
        } = new;
        compare!(self, old, whole: holds, unread, warnings, warnings_details, scale_up);
        compare!(self, old, map: pods, nodes, pools, hosts, networks);
    }
}

/// A key as JSON writes it.
fn text(key: &impl Serialize) -> Cow<'static, str> {
    match serde_json::to_value(key) {
        Ok(Value::String(text)) => Cow::Owned(text),
        Ok(other) => Cow::Owned(other.to_string()),
        Err(_) => Cow::Borrowed(""),
    }
}

/// Applies changes to a state in JSON.
pub(super) fn apply(state: &mut Value, changes: Vec<ValueChange>) {
    for change in changes {
        let (path, value) = match change {
            ValueChange::Set(path, value) => (path, Some(value)),
            ValueChange::Gone((path,)) => (path, None),
        };
        let Some((last, way)) = path.split_last() else {
            continue;
        };
        let mut place = &mut *state;
        for step in way {
            if !place.is_object() {
                *place = Value::Object(serde_json::Map::new());
            }
            let Value::Object(map) = place else {
                return;
            };
            place = map.entry(step.clone()).or_insert(Value::Null);
        }
        if !place.is_object() {
            *place = Value::Object(serde_json::Map::new());
        }
        if let Value::Object(map) = place {
            match value {
                Some(value) => map.insert(last.clone().into_owned(), value),
                None => map.remove(&**last),
            };
        }
    }
}

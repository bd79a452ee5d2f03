//! What changed from one recorded state to the next, by the path of each value in JSON.
//!
//! Maps are compared by key, all else as a whole. Two views share most of what they hold, so that comparing them costs
//! little and nothing is written as JSON but what differs.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::ser::SerializeSeq;
use serde::{Deserialize, Serialize, Serializer};
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
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub(super) enum ValueChange {
    /// It has this value now.
    Set(Vec<Cow<'static, str>>, Value),
    /// It is gone.
    Gone((Vec<Cow<'static, str>>,)),
}

/// The changes that make `new` of `old`: written as they are found, so that those of a whole cluster, as after a start, are never in
/// memory beside it.
#[derive(Clone, Copy, Debug)]
pub(super) struct StateDifference<'a> {
    pub(super) old: RecordedState<'a>,
    pub(super) new: RecordedState<'a>,
}

impl Serialize for StateDifference<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut changes = StateChanges {
            written: serializer.serialize_seq(None)?,
            error: None,
            path: Vec::new(),
        };
        changes.state(self.old, self.new);
        let StateChanges { written, error, .. } = changes;
        error.map_or_else(|| written.end(), Err)
    }
}

/// Where the changes from one state to the next go.
struct StateChanges<W: SerializeSeq> {
    written: W,
    /// Why nothing is written any more.
    error: Option<W::Error>,
    path: Vec<Cow<'static, str>>,
}

/// Compares fields of two values that are read as a map, or as a whole.
macro_rules! compare {
    ($changes:ident, $old:ident, $how:ident: $($field:ident),*) => {
        $($changes.$how(stringify!($field), &$old.$field, $field);)*
    };
}

impl<W: SerializeSeq> StateChanges<W> {
    fn state(&mut self, old: RecordedState<'_>, new: RecordedState<'_>) {
        self.within("snapshot", |c| c.snapshot(old.snapshot, new.snapshot));
        self.whole("policy", old.policy, new.policy);
        self.within("memory", |c| c.memory(old.memory, new.memory));
        self.within("decision", |c| {
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
    }

    fn within(&mut self, name: &'static str, look: impl FnOnce(&mut StateChanges<W>)) {
        self.path.push(Cow::Borrowed(name));
        look(self);
        self.path.pop();
    }

    /// Writes one change: [`ValueChange`] reads it.
    fn write(&mut self, last: Cow<'static, str>, value: Option<&impl Serialize>) {
        if self.error.is_some() {
            return;
        }
        self.path.push(last);
        let written = match value {
            Some(value) => self.written.serialize_element(&(&self.path, value)),
            None => self.written.serialize_element(&(&self.path,)),
        };
        self.path.pop();
        self.error = written.err();
    }

    fn set(&mut self, last: Cow<'static, str>, value: &impl Serialize) {
        self.write(last, Some(value));
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
                (Some((key, _)), None) => self.write(text(key), None::<&()>),
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
            on_wire,
            nominations_refused,
        } = new;
        compare!(self, old, whole: version, taken, cluster_id, leader, lease, cluster_id_error, paused, awake,
            nominations_refused);
        compare!(self, old, map: sources, machines, former, on_wire);
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
            api_addresses,
        } = new;
        self.within("pods", |c| c.entries(old.pods.iter(), pods.iter()));
        compare!(self, old, whole: unschedulable_at, api_addresses);
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
                mediated,
                lacking,
                host_addresses,
            } = &**new;
            self.path.push(Cow::Owned(name.to_string()));
            compare!(self, old, whole: quorate, lacking, host_addresses);
            compare!(self, old, map: hosts, vms, storages, templates, mappings, mediated);
            self.path.pop();
        }
    }

    fn memory(&mut self, old: &Memory, new: &Memory) {
        let Memory {
            version,
            began,
            unneeded_since,
            unneeded_before_removal,
            removals,
            last_scale_up,
            last_scale_down,
            last_scale_down_failure,
            backoff,
            host_backoff,
            retried,
            counted_failures,
            transient_failures,
            shut_out,
            learned,
            learned_at,
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
            no_better_plan_with_nodes,
            no_better_plan_with_machines,
            no_better_plan_with_fewer_domains,
            provisioning,
            power,
            last_vmids,
            last_hosts,
            last_addresses,
        } = new;
        compare!(self, old, whole: version, began, last_scale_up, last_scale_down, last_scale_down_failure,
            counted_failures, batch, serial, consolidation, no_better_plan, no_better_plan_with_nodes,
            no_better_plan_with_machines, no_better_plan_with_fewer_domains);
        compare!(self, old, map: unneeded_since, unneeded_before_removal, removals, backoff, host_backoff, retried, transient_failures, shut_out, learned, learned_at, quarantine, evicted, settled,
            bookings, replacements, unreplaceable, provisioning, power, last_vmids, last_hosts, last_addresses);
    }

    fn report(&mut self, old: &Report, new: &Report) {
        let Report {
            holds,
            unread,
            pods,
            nodes,
            pools,
            coming,
            hosts,
            warnings,
            warnings_details,
            scale_up,
            storages,
            devices,
            own_cpus,
            networks,
            chosen_hosts,
            takes_pods_after,
        } = new;
        compare!(self, old, whole: holds, unread, warnings, warnings_details, scale_up);
        compare!(self, old, map: pods, nodes, pools, coming, hosts, storages, devices, own_cpus, networks, chosen_hosts, takes_pods_after);
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::model::cluster::ObjectKey;
    use crate::model::report::PodVerdict;
    use crate::model::time::Time;

    /// A decision whose report has the pods of these numbers, and that is made again at a time.
    fn decision(pods: std::ops::Range<usize>, wake: i64) -> Decision {
        let mut report = Report::default();
        for number in pods {
            let key = ObjectKey::new("default", format!("web-{number}"));
            let node = format!("general-{number:05}");
            report
                .pods
                .insert(key, PodVerdict::fits_node(node.as_str().into()));
        }
        Decision {
            plan: Vec::new(),
            report,
            memory: Memory::default(),
            wake: Some(Time(wake)),
        }
    }

    /// What an empty cluster looks like at a time.
    pub(in crate::record) fn snapshot(taken: i64) -> Snapshot {
        let value = serde_json::json!({
            "version": 1, "taken": Time(taken), "cluster_id": null, "sources": {}, "cluster": {},
            "regions": {}, "machines": {}, "leader": true,
        });
        serde_json::from_value(value).expect("a snapshot")
    }

    /// Pods come, stay and go: the old state with the changes that are read is the new one. While changes are written, memory
    /// holds a tenth of their text at most.
    #[test]
    fn changes_are_written_as_they_are_found_and_make_the_new_state() {
        let (policy, memory) = (Policy::default(), Memory::default());
        let snapshots = [snapshot(1), snapshot(2)];
        let decisions = [decision(0..50, 3), decision(40..2_000, 4)];
        let [old, new] = [0, 1].map(|which| RecordedState {
            snapshot: &snapshots[which],
            policy: &policy,
            memory: &memory,
            decision: &decisions[which],
        });
        let difference = StateDifference { old, new };
        let text = serde_json::to_string(&difference).expect("it is written");
        let counted = allocation_counter::measure(|| {
            serde_json::to_writer(std::io::sink(), &difference).expect("it is written");
        });
        let most = u64::try_from(text.len() / 10).expect("a number");
        assert!(counted.bytes_max < most, "{counted:?} of {}", text.len());

        let changes: Vec<ValueChange> = serde_json::from_str(&text).expect("it is read");
        let gone = |change: &ValueChange| matches!(change, ValueChange::Gone(_));
        assert_eq!(changes.iter().filter(|change| gone(change)).count(), 40);
        let mut state = serde_json::to_value(old).expect("it is plain");
        assert_ne!(state, serde_json::to_value(new).expect("it is plain"));
        apply(&mut state, changes);
        assert_eq!(state, serde_json::to_value(new).expect("it is plain"));
    }
}

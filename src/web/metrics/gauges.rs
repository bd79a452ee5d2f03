//! The gauges: how things stood after the last turn. What is of the cluster is told by the instance that leads alone: whoever adds up the
//! instances of a high-availability set-up would find everything twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::SeriesLabels;
use super::stores::StoreGauges;
use crate::controller::conditions::FoundConditions;
use crate::controller::turn::Turn;
use crate::model::cluster::{Node, ReadyStatus};
use crate::model::condition::ConditionKind;
use crate::model::policy::STARTUP_TAINT;
use crate::model::report::{NodeVerdict, PoolState, Report, Scope};
use crate::model::snapshot::Snapshot;
use crate::model::time::Time;

/// A gauge that takes any number.
pub(super) type FloatGauge = Gauge<f64, AtomicU64>;
/// One for each of several things.
pub(super) type FloatGauges = Family<SeriesLabels, FloatGauge>;

/// The registry of what is somebody's.
macro_rules! whose {
    (own, $own:ident, $cluster:ident) => {
        &mut *$own
    };
    (cluster, $own:ident, $cluster:ident) => {
        &mut *$cluster
    };
}

/// Registers one gauge or family per line: field, name, help. `own` are those of the instance, `cluster` those of the cluster.
macro_rules! gauges {
    ($($whose:ident $prefix:literal { $($field:ident: $kind:ty = $name:literal, $help:literal;)* })*) => {
        /// Every gauge.
        #[derive(Debug)]
        pub(super) struct Gauges {
            stores: StoreGauges,
            $($($field: $kind,)*)*
        }

        impl Gauges {
            /// All of them, registered.
            pub(super) fn register(own: &mut Registry, cluster: &mut Registry) -> Gauges {
                $($(let $field = <$kind>::default();)*)*
                $(
                    let (prefix, registry): (&str, _) = ($prefix, whose!($whose, own, cluster));
                    let within = if prefix.is_empty() {
                        registry
                    } else {
                        registry.sub_registry_with_prefix(prefix)
                    };
                    $(within.register($name, $help, $field.clone());)*
                )*
                let stores = StoreGauges::register(cluster);
                let gauges = Gauges { stores, $($($field,)*)* };
                let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
                gauges.build.get_or_create(&version).set(1.0);
                for (kind, _) in ConditionKind::ALL {
                    gauges.condition.get_or_create(&of_kind(*kind)).set(0.0);
                }
                gauges
            }
        }
    };
}

gauges! {
    // kproximate's eight, under its names.
    cluster "" {
        kp_total: FloatGauge = "kpnodes_total", "Machines there are";
        kp_running: FloatGauge = "kpnodes_running", "Machines whose VM runs";
        cpu_provisioned: FloatGauge = "cpu_provisioned_total", "Cores of all machines";
        memory_provisioned: FloatGauge = "memory_provisioned_total", "Memory of all machines in bytes";
        cpu_allocatable: FloatGauge = "cpu_allocatable_total", "Allocatable cores of the machines' nodes";
        memory_allocatable: FloatGauge = "memory_allocatable_total", "Allocatable memory of the machines' nodes in bytes";
        cpu_allocated: FloatGauge = "cpu_allocated_total", "Cores requested by pods on the machines' nodes";
        memory_allocated: FloatGauge = "memory_allocated_total", "Memory requested by pods on the machines' nodes in bytes";
    }
    // cluster-autoscaler's, where the meaning is the same.
    cluster "cluster_autoscaler" {
        safe: FloatGauge = "cluster_safe_to_autoscale", "Whether nothing holds everything back";
        nodes: FloatGauges = "nodes_count", "Nodes of the cluster, by state";
        max_nodes: FloatGauge = "max_nodes_count", "Upper limit of nodes: those that are not ours, and the max of all pools or of all together";
        groups: FloatGauges = "node_groups_count", "Pools";
        group_min: FloatGauges = "node_group_min_count", "Minimum number of nodes of a pool";
        group_max: FloatGauges = "node_group_max_count", "Maximum number of nodes of a pool";
        group_target: FloatGauges = "node_group_target_count", "Nodes of a pool, including machines on their way";
        group_backoff: FloatGauges = "node_group_backoff_status", "Whether a pool waits after a failure";
        group_healthiness: FloatGauges = "node_group_healthiness", "Whether no more nodes of a pool are unready than allowed";
        unschedulable: FloatGauges = "unschedulable_pods_count", "Pods that wait for a node";
        cores: FloatGauge = "cluster_cpu_current_cores", "Cores of all nodes";
        memory: FloatGauge = "cluster_memory_current_bytes", "Memory of all nodes";
        unneeded: FloatGauge = "unneeded_nodes_count", "Nodes that are candidates for removal";
        unremovable: FloatGauges = "unremovable_nodes_count", "Nodes that stay, by reason";
        pending_deletions: FloatGauge = "pending_node_deletions", "Nodes being removed";
        cooldown: FloatGauge = "scale_down_in_cooldown", "Whether scale-down is on hold";
        activity: FloatGauges = "last_activity", "When an activity last began, in Unix seconds; if it never did, when the memory began";
    }
    own "pve_autoscaler" {
        build: FloatGauges = "build_info", "The program's version";
        leader: FloatGauge = "leader", "Whether this instance holds the lease";
        paused: FloatGauge = "paused", "Whether somebody said pause";
        view_age: FloatGauges = "view_age_seconds", "Age of each view that decisions rest on";
        host_clock: FloatGauges = "host_clock_ahead_seconds", "How far a PVE host's clock is ahead of this one's";
        view_complete: FloatGauges = "view_complete", "Whether each view was read completely";
        kubeconfig_expiry: FloatGauge = "kubeconfig_expiry_timestamp_seconds", "When the kubeconfig's client certificate ends; 0 without one";
        config_valid: FloatGauge = "config_valid", "Whether the configuration file, as it is now, is valid";
        policies_agree: FloatGauge = "broker_policy_agrees", "Whether the broker runs with the same policy";
        condition: FloatGauges = "condition", "Whether a condition holds that people are notified of, by kind; a removal counts after two hours";
    }
    cluster "pve_autoscaler" {
        drifted: FloatGauges = "drifted_nodes", "Nodes of a pool that were made with what the configuration says otherwise now";
        machines: FloatGauges = "machines", "Machines, by pool and step";
        verdicts: FloatGauges = "pending_pods", "Pods that are not bound, by what becomes of them";
        holds: FloatGauges = "holds", "What is on hold, by scope";
        warnings: FloatGauge = "warnings", "Things that a person should look at";
    }
}

impl Gauges {
    /// Shows of a turn what is of this instance.
    pub(super) fn show_own(&self, turn: &Turn) {
        let snapshot = &*turn.snapshot;
        self.leader.set(flag(snapshot.leader));
        self.paused.set(flag(snapshot.paused.is_some()));
        self.show_views(turn);
        self.show_clocks(snapshot);
    }

    /// Shows of a turn what is of the cluster. Series of what is gone disappear.
    pub(super) fn show_cluster(&self, turn: &Turn) {
        let (snapshot, report) = (&*turn.snapshot, &turn.decision.report);
        // What was not read yet would be counted as none: what was known before a reload stands.
        if report.unread.is_empty() {
            self.show_machines(snapshot);
        }
        if report.knows_kubernetes() {
            self.show_nodes(snapshot, report);
        }
        self.show_pools(turn);
        self.show_pods(report);
        self.show_state(turn);
        self.stores.show(report);
        self.unneeded
            .set(count(turn.decision.memory.unneeded_since.len()));
    }

    fn show_machines(&self, snapshot: &Snapshot) {
        let mut steps: BTreeMap<(String, String), usize> = BTreeMap::new();
        let (mut running, mut cpus, mut bytes) = (0, 0u64, 0i64);
        for machine in snapshot.machines.values() {
            let step = machine
                .step
                .map_or_else(|| "unknown".to_owned(), |(step, _)| name(&step));
            *steps.entry((machine.mark.pool.clone(), step)).or_default() += 1;
            running += usize::from(machine.vm.as_ref().is_some_and(|vm| vm.running));
            let vm = snapshot
                .regions
                .get(&machine.region)
                .and_then(|region| region.vms.get(&machine.mark.vmid));
            if let (Some(vm), Some(_)) = (vm, &machine.vm) {
                cpus += u64::from(vm.cpus);
                bytes = bytes.saturating_add(vm.memory);
            }
        }
        self.kp_total.set(count(snapshot.machines.len()));
        self.kp_running.set(count(running));
        self.cpu_provisioned
            .set(float(i64::try_from(cpus).unwrap_or(i64::MAX)));
        self.memory_provisioned.set(float(bytes));
        let series = steps
            .into_iter()
            .map(|((pool, step), number)| (vec![("pool", pool), ("step", step)], count(number)));
        fill(&self.machines, series);
        self.show_allocation(snapshot);
    }

    fn show_allocation(&self, snapshot: &Snapshot) {
        let ours: BTreeSet<&Arc<str>> = snapshot
            .machines
            .values()
            .filter_map(|machine| machine.node.as_ref())
            .collect();
        let (mut cpu, mut memory) = (0i64, 0i64);
        for node in ours
            .iter()
            .filter_map(|name| snapshot.cluster.nodes.get(*name))
        {
            cpu = cpu.saturating_add(node.allocatable.cpu_milli);
            memory = memory.saturating_add(node.allocatable.memory);
        }
        self.cpu_allocatable.set(float(cpu) / 1000.0);
        self.memory_allocatable.set(float(memory));
        let (mut cpu, mut memory) = (0i64, 0i64);
        for pod in snapshot.cluster.pods.values() {
            if pod.node.as_ref().is_some_and(|node| ours.contains(node)) && !pod.phase.terminal() {
                cpu = cpu.saturating_add(pod.shape.requests.cpu_milli);
                memory = memory.saturating_add(pod.shape.requests.memory);
            }
        }
        self.cpu_allocated.set(float(cpu) / 1000.0);
        self.memory_allocated.set(float(memory));
    }

    fn show_nodes(&self, snapshot: &Snapshot, report: &Report) {
        let mut states: BTreeMap<&str, usize> = ["ready", "unready", "notStarted", "unregistered"]
            .into_iter()
            .map(|state| (state, 0))
            .collect();
        let (mut cpu, mut memory) = (0i64, 0i64);
        for node in snapshot.cluster.nodes.values() {
            *states.entry(state(node)).or_default() += 1;
            cpu = cpu.saturating_add(node.capacity.cpu_milli);
            memory = memory.saturating_add(node.capacity.memory);
        }
        let unregistered = snapshot
            .machines
            .values()
            .filter(|machine| machine.node.is_none())
            .count();
        states.insert("unregistered", unregistered);
        fill(
            &self.nodes,
            states
                .into_iter()
                .map(|(state, number)| (vec![("state", state.to_owned())], count(number))),
        );
        self.cores.set(float(cpu) / 1000.0);
        self.memory.set(float(memory));
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        let mut leaving = 0;
        for verdict in report.nodes.values() {
            match verdict {
                NodeVerdict::Kept { reason, .. } => *reasons.entry(reason.name()).or_default() += 1,
                NodeVerdict::Leaving { .. } => leaving += 1,
                NodeVerdict::Replaced { .. } => *reasons.entry("BeingReplaced").or_default() += 1,
                NodeVerdict::NotAutoscaled | NodeVerdict::Unread { .. } => {}
            }
        }
        fill(
            &self.unremovable,
            reasons
                .into_iter()
                .map(|(reason, number)| (vec![("reason", reason.to_owned())], count(number))),
        );
        self.pending_deletions.set(count(leaving));
    }

    fn show_pools(&self, turn: &Turn) {
        let report = &turn.decision.report;
        let read = report.pools.iter().filter(|(_, pool)| !pool.unread);
        let scale_down = &turn.settings.policy.scale_down;
        let healthy = |pool: &PoolState| {
            let all = u64::from(pool.unready) + u64::from(pool.ready);
            let percent = u64::from(scale_down.max_total_unready_percent);
            pool.unready <= scale_down.ok_total_unready
                || u64::from(pool.unready) * 100 <= percent * all
        };
        fill(
            &self.group_healthiness,
            read.map(|(name, pool)| {
                let series = vec![("node_group", name.to_string())];
                (series, flag(healthy(pool)))
            }),
        );
        if report.knows_kubernetes() {
            let others = report.nodes.values();
            let others = others.filter(|verdict| matches!(verdict, NodeVerdict::NotAutoscaled));
            let pools = report.pools.values().map(|pool| u64::from(pool.max));
            let all = match u64::from(turn.settings.policy.scale_up.max_nodes_total) {
                0 => u64::MAX,
                limit => limit,
            };
            let most = all.min(others.count() as u64 + pools.sum::<u64>());
            self.max_nodes
                .set(count(usize::try_from(most).unwrap_or(usize::MAX)));
        }
        let series = |value: fn(&PoolState) -> f64| {
            let pools = report.pools.iter();
            pools.map(move |(pool, state)| (vec![("node_group", pool.to_string())], value(state)))
        };
        fill(
            &self.groups,
            [(
                vec![("node_group_type", "autoscaled".to_owned())],
                count(report.pools.len()),
            )]
            .into_iter(),
        );
        fill(&self.group_min, series(|pool| f64::from(pool.min)));
        fill(&self.group_max, series(|pool| f64::from(pool.max)));
        fill(
            &self.group_target,
            report
                .pools
                .iter()
                .filter(|(_, pool)| !pool.unread)
                .map(|(name, pool)| {
                    let target = pool.ready.saturating_add(pool.coming);
                    (vec![("node_group", name.to_string())], f64::from(target))
                }),
        );
        let drifted = report.pools.iter().filter(|(_, pool)| !pool.unread);
        fill(
            &self.drifted,
            drifted.map(|(name, pool)| {
                let series = vec![("pool", name.to_string())];
                (series, f64::from(pool.drifted))
            }),
        );
        fill(
            &self.group_backoff,
            series(|pool| flag(pool.backoff_until.is_some())),
        );
    }

    fn show_pods(&self, report: &Report) {
        let verdicts = [
            "fits_node",
            "fits_machine",
            "triggers",
            "batched",
            "held",
            "no_compatible_pool",
            "ignored",
            "unread",
        ];
        let mut numbers: BTreeMap<&str, usize> =
            verdicts.into_iter().map(|verdict| (verdict, 0)).collect();
        for verdict in report.pods.values() {
            *numbers.entry(verdict.name()).or_default() += 1;
        }
        let waiting = numbers
            .iter()
            .filter(|(verdict, _)| **verdict != "ignored")
            .map(|(_, number)| number)
            .sum();
        fill(
            &self.unschedulable,
            [(vec![("type", "unschedulable".to_owned())], count(waiting))].into_iter(),
        );
        fill(
            &self.verdicts,
            numbers
                .into_iter()
                .map(|(verdict, number)| (vec![("verdict", verdict.to_owned())], count(number))),
        );
    }

    fn show_state(&self, turn: &Turn) {
        let report = &turn.decision.report;
        let held = |scope: Scope| report.holds.iter().any(|hold| hold.scope == scope);
        self.safe.set(flag(!held(Scope::Everything)));
        self.cooldown
            .set(flag(held(Scope::ScaleDown) || held(Scope::Everything)));
        // A series that comes and goes is no line in a picture: these scopes are there always.
        let always = [Scope::Everything, Scope::ScaleUp, Scope::ScaleDown];
        let mut holds: BTreeMap<&Scope, usize> = always.iter().map(|scope| (scope, 0)).collect();
        for hold in &report.holds {
            *holds.entry(&hold.scope).or_default() += 1;
        }
        fill(
            &self.holds,
            holds
                .into_iter()
                .map(|(scope, number)| (vec![("scope", scope.to_string())], count(number))),
        );
        self.warnings.set(count(report.warnings.len()));
        let memory = &turn.decision.memory;
        let since = |last: Option<Time>| last.or(memory.began).unwrap_or(turn.at);
        for (activity, at) in [
            ("main", turn.at),
            ("autoscaling", turn.at),
            ("scaleUp", since(memory.last_scale_up)),
            ("scaleDown", since(memory.last_scale_down)),
        ] {
            self.begun(activity, at);
        }
    }

    fn show_views(&self, turn: &Turn) {
        let sources = || turn.snapshot.sources.iter();
        fill(
            &self.view_age,
            // A view that was never read has no age.
            sources()
                .filter(|(_, source)| source.complete)
                .map(|(name, source)| {
                    (
                        vec![("source", name.to_string())],
                        seconds_between(source.as_of, turn.at),
                    )
                }),
        );
        fill(
            &self.view_complete,
            sources()
                .map(|(name, source)| (vec![("source", name.to_string())], flag(source.complete))),
        );
    }

    /// Hosts whose clock is not known have no series.
    fn show_clocks(&self, snapshot: &Snapshot) {
        let regions = snapshot.regions.iter();
        let hosts = regions.flat_map(|(name, region)| {
            let of_region = region.hosts.iter();
            of_region.filter_map(move |(host, seen)| Some((name, host, seen.clock_ahead?)))
        });
        let series = hosts.map(|(region, host, ahead)| {
            let labels = vec![("region", region.to_string()), ("host", host.to_string())];
            (labels, float(ahead.0) / 1000.0)
        });
        fill(&self.host_clock, series);
    }

    fn begun(&self, activity: &str, at: Time) {
        let series = vec![("activity", activity.to_owned())];
        self.activity.get_or_create(&series).set(seconds(at));
    }

    /// When the kubeconfig's client certificate ends.
    pub(super) fn kubeconfig_expires(&self, at: Option<Time>) {
        self.kubeconfig_expiry.set(at.map_or(0.0, seconds));
    }

    /// Whether the file is valid.
    pub(super) fn config_valid(&self, valid: bool) {
        self.config_valid.set(flag(valid));
    }

    /// In which conditions a person must act.
    pub(super) fn conditions(&self, found: &FoundConditions, now: Time) {
        for (kind, _) in ConditionKind::ALL {
            if let Some(holds) = found.holds(*kind, now) {
                let series = of_kind(*kind);
                self.condition.get_or_create(&series).set(flag(holds));
            }
        }
    }

    /// Whether the broker runs with our policy.
    pub(super) fn policies_agree(&self, agree: bool) {
        self.policies_agree.set(flag(agree));
    }
}

/// The series of a condition.
fn of_kind(kind: ConditionKind) -> SeriesLabels {
    vec![("kind", kind.name().to_owned())]
}

/// Replaces all series of a family.
pub(super) fn fill(family: &FloatGauges, series: impl Iterator<Item = (SeriesLabels, f64)>) {
    family.clear();
    for (labels, value) in series {
        family.get_or_create(&labels).set(value);
    }
}

fn state(node: &Node) -> &'static str {
    let starting = node.taints.iter().any(|taint| &*taint.key == STARTUP_TAINT);
    match (node.ready.status, starting) {
        (_, true) => "notStarted",
        (ReadyStatus::True, false) => "ready",
        (_, false) => "unready",
    }
}

/// The name that a plain enum has in JSON.
pub(super) fn name<T: serde::Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        _ => "unknown".to_owned(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a metric: 53 bits are plenty")]
pub(super) fn float(value: i64) -> f64 {
    value as f64
}

fn count(number: usize) -> f64 {
    float(i64::try_from(number).unwrap_or(i64::MAX))
}

fn flag(value: bool) -> f64 {
    f64::from(u8::from(value))
}

fn seconds(at: Time) -> f64 {
    float(at.0) / 1000.0
}

fn seconds_between(from: Time, to: Time) -> f64 {
    float(to.since(from).0) / 1000.0
}

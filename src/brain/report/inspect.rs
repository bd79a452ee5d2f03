//! Parts of a decision, asked for one at a time: what a drain of a node would do, how full a node is,
//! what a node that does not exist yet would be. For explanations and for conformance cases.

use model::cluster::ObjectKey;
use model::memory::Memory;
use model::policy::{Policy, PoolPolicy};
use model::reasons::Blocked;
use model::region::{Region, TemplateCopy};
use model::resources::Resources;
use model::scheduling::{Labels, PodShape, Taint};
use model::snapshot::Snapshot;
use model::time::Time;

use crate::constraints::fit::{self, NodeView};
use crate::decision::turn::DecisionBuilder;
use crate::observed::reach;
use crate::scale_down::consolidate;
use crate::scale_down::drain_rules::{self, Budgets, DrainOutcome, DrainRules};
use crate::scale_down::shrink;
use crate::scale_down::utilization::{self, UtilizationRules};
use crate::simulation::capacity;
use crate::simulation::offer;

pub use crate::observed::reach::CopyRefused;

/// What a drain of one node would do to its pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrainPreview {
    /// They are evicted, or have ended and go.
    pub evict: Vec<ObjectKey>,
    /// A DaemonSet's, or said to be like that: they block nothing.
    pub daemons: Vec<ObjectKey>,
    /// Static, long dead or going already.
    pub ignored: Vec<ObjectKey>,
    /// These block: pod, cluster-autoscaler's `BlockingPodReason`, and the rule in words.
    pub blocked: Vec<(ObjectKey, Blocked)>,
}

/// What a drain of `node` would do, by the rules that look at single pods. Ended pods of the node
/// count as well.
pub fn drain(
    snapshot: &Snapshot,
    policy: &Policy,
    memory: &Memory,
    node: &str,
    now: Time,
) -> DrainPreview {
    let turn = DecisionBuilder::begin(snapshot, policy, memory, now);
    let budgets = Budgets::of(&turn.view, &[]);
    let settings = turn
        .view
        .machine_of_node(node)
        .map_or(&policy.scale_down, |machine| {
            shrink::settings(&turn, machine)
        });
    let machine = turn.view.machine_of_node(node);
    let rules = DrainRules {
        settings,
        expendable: policy.scale_up.expendable_priority,
        budgets: &budgets,
        strict: machine.is_some_and(|machine| consolidate::of(machine).is_some()),
        now,
    };
    let mut drain = DrainPreview::default();
    let pods = &snapshot.cluster.pods;
    for (key, pod) in pods.iter().filter(|(_, p)| p.node.as_deref() == Some(node)) {
        if pod.phase.terminal() {
            drain.evict.push(key.clone());
            continue;
        }
        match drain_rules::decide_outcome(key, pod, rules) {
            DrainOutcome::Stays if drain_rules::daemon(pod) => drain.daemons.push(key.clone()),
            DrainOutcome::Stays => drain.ignored.push(key.clone()),
            DrainOutcome::Goes if pod.deletion.is_some() => drain.ignored.push(key.clone()),
            DrainOutcome::Goes | DrainOutcome::Moves => drain.evict.push(key.clone()),
            DrainOutcome::Blocks(block) => drain.blocked.push((key.clone(), block.why)),
        }
    }
    drain
}

/// A share of a node that is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestedShare {
    /// Which resource decides.
    pub resource: &'static str,
    /// Requested, in millicores or units.
    pub used: i128,
    /// What of the resource there is to request, in the unit of `used`.
    pub of: i128,
}

/// How full a node is; an amount that it does not report is an error.
pub fn utilization(
    snapshot: &Snapshot,
    policy: &Policy,
    memory: &Memory,
    node: &str,
    now: Time,
) -> Result<RequestedShare, String> {
    let turn = DecisionBuilder::begin(snapshot, policy, memory, now);
    let machine = turn.view.machine_of_node(node);
    let named = snapshot.cluster.nodes.get(node);
    let (named, index) = named
        .zip(turn.view.node_index(node))
        .ok_or_else(|| format!("there is no node {node}"))?;
    let settings = machine.map_or(&policy.scale_down, |machine| {
        shrink::settings(&turn, machine)
    });
    let counting = UtilizationRules {
        settings,
        expendable: policy.scale_up.expendable_priority,
        now,
    };
    let instance_type = machine.and_then(|machine| machine.instance_type);
    let share = utilization::of(named, (&turn.view, index), instance_type, counting)
        .map_err(|why| why.to_string())?;
    let (used, of) = share.parts();
    Ok(RequestedShare {
        resource: share.resource,
        used,
        of,
    })
}

/// What a new node of a pool and type on a host would be, as decisions take it to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeTemplate {
    /// The labels of the new node, with the host name that was asked for.
    pub labels: Labels,
    /// The taints it keeps.
    pub taints: Vec<Taint>,
    /// What pods can have of it.
    pub allocatable: Resources,
}

/// See [`NodeTemplate`]; `None` when pool or type are not in the policy.
pub fn node_template(
    snapshot: &Snapshot,
    policy: &Policy,
    pool_name: &str,
    type_name: &str,
    (region, host): (&str, &str),
    name: &str,
) -> Option<NodeTemplate> {
    let (pool_name, pool) = policy.pools.get_key_value(pool_name)?;
    let pool = pool.at(region)?;
    let (type_name, instance_type) = policy.instance_types.get_key_value(type_name)?;
    let copies = snapshot
        .regions
        .get(&pool.region)
        .and_then(|seen| seen.templates.get(&pool.template));
    let disk = copies
        .and_then(|copies| copies.first())
        .map_or(0, |copy| copy.disk);
    let zone = policy.zone_of(&pool.region, &host.into());
    Some(NodeTemplate {
        labels: offer::labels(
            pool_name,
            pool,
            type_name,
            instance_type,
            &offer::NodeAt {
                host,
                zone: &zone,
                name,
                vmid: offer::NO_VMID,
            },
        ),
        taints: pool.taints.clone(),
        allocatable: capacity::predicted(pool, instance_type, disk),
    })
}

/// Whether a DaemonSet of this shape places a pod on a node.
pub fn daemon_fits(snapshot: &Snapshot, shape: &PodShape, node: &str) -> bool {
    snapshot.cluster.nodes.get(node).is_some_and(|of| {
        let place = NodeView {
            name: node,
            labels: &of.labels,
            taints: &of.taints,
            unschedulable: of.unschedulable,
        };
        fit::filter_failure(shape, place).is_none()
    })
}

/// The copy of its template that a machine of a pool on a host would be cloned from, or why there is none.
pub fn template_for<'a>(
    region: &'a Region,
    pool: &PoolPolicy,
    host: &str,
) -> Result<&'a TemplateCopy, CopyRefused> {
    reach::copy(region, pool, host)
}

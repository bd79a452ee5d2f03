//! How full a node is, by what its pods request.
//!
//! Source: cluster-autoscaler's `simulator/utilization/info.go`: the larger of CPU and memory; on a node
//! with GPUs their share alone. Fractions are compared exactly.

use crate::model::cluster::Node;
use crate::model::policy::{InstanceType, ScaleDown};
use crate::model::resources::Resources;
use crate::model::time::Time;

use super::by_node::Running;
use super::drain_rules;
use super::view::{Keyed, View};

/// Resources that decide alone on nodes that have them.
const GPUS: [&str; 3] = ["nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915"];

/// A share of a node: `used` of `of`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Utilization {
    pub(super) resource: &'static str,
    used: i128,
    of: i128,
}

impl Utilization {
    /// In thousandths, rounded down.
    pub(super) fn permille(self) -> i64 {
        i64::try_from(self.used.saturating_mul(1000) / self.of.max(1)).unwrap_or(i64::MAX)
    }

    /// How much of how much.
    pub(super) fn parts(self) -> (i128, i128) {
        (self.used, self.of)
    }

    /// Whether it is so many thousandths, or less.
    pub(super) fn at_most(self, permille: i64) -> bool {
        self.used.saturating_mul(1000) <= self.of.saturating_mul(i128::from(permille))
    }

    fn more_than(self, other: Utilization) -> bool {
        self.used.saturating_mul(other.of) > other.used.saturating_mul(self.of)
    }
}

/// What is counted and what is not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counting<'a> {
    pub(super) settings: &'a ScaleDown,
    /// Pods of a lower priority do not count.
    pub(super) expendable: i32,
    pub(super) now: Time,
}

/// The pods of a node: what is asked of every one, and the pods themselves.
pub(super) type Pods<'v, 'a> = (&'v [Running<'a>], &'v [Keyed<'a>]);

/// The pods of a node, as [`of`] takes them.
pub(super) fn pods<'v, 'a>(view: &'v View<'a>, node: &str) -> Pods<'v, 'a> {
    (view.running(node), view.pods(node))
}

/// The utilisation of a node that runs these pods; `kind` says which GPUs it shall have. An amount
/// that the node does not report is an error, never a silent zero.
pub(super) fn of(
    node: &Node,
    pods: Pods<'_, '_>,
    kind: Option<&InstanceType>,
    counting: Counting<'_>,
) -> Result<Utilization, String> {
    let has = |gpu: &&str| {
        node.allocatable.get(gpu) > 0
            || node.capacity.get(gpu) > 0
            || kind.is_some_and(|kind| kind.extended.get(*gpu).is_some_and(|n| *n > 0))
    };
    if let Some(gpu) = GPUS.into_iter().find(has) {
        if node.allocatable.get(gpu) <= 0 {
            // No GPU has come up: nothing can be using one.
            return Ok(Utilization {
                resource: gpu,
                used: 0,
                of: 1,
            });
        }
        return share(node, pods, gpu, |asked| asked.get(gpu), counting);
    }
    let cpu = share(node, pods, "cpu", |asked| asked.cpu_milli, counting)?;
    let memory = share(node, pods, "memory", |asked| asked.memory, counting)?;
    Ok(if memory.more_than(cpu) { memory } else { cpu })
}

fn share(
    node: &Node,
    pods: Pods<'_, '_>,
    resource: &'static str,
    amount: impl Fn(&Resources) -> i64,
    counting: Counting<'_>,
) -> Result<Utilization, String> {
    let offered = node.allocatable.get(resource);
    if offered <= 0 {
        return Err(format!("the node reports no allocatable {resource}"));
    }
    let (mut used, mut apart) = (0i128, 0i128);
    let (running, all) = pods;
    for (pod, (_, whole)) in running.iter().zip(all) {
        let amount = i128::from(amount(&pod.shape.requests).max(0));
        let settings = counting.settings;
        if (pod.deleting && drain_rules::long_terminating(whole, counting.now))
            || pod.shape.priority < counting.expendable
        {
            continue;
        }
        let set_aside = (settings.ignore_daemonsets && drain_rules::daemonic(pod.shape))
            || (settings.ignore_mirrors && pod.mirror);
        if set_aside {
            apart += amount;
        } else {
            used += amount;
        }
    }
    let of = i128::from(offered) - apart;
    if of <= 0 {
        return Err(format!(
            "the pods that do not count request all {resource} there is"
        ));
    }
    Ok(Utilization { resource, used, of })
}

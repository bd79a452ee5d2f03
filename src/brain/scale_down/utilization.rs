//! How full a node is, by what its pods request.
//!
//! Source: cluster-autoscaler's `simulator/utilization/info.go`: the larger of CPU and memory; on a node
//! with GPUs their share alone. Fractions are compared exactly.

use model::cluster::Node;
use model::policy::{InstanceType, ScaleDown};
use model::reasons::Kept;
use model::resources::Resources;
use model::time::Time;

use crate::index::NodeIndex;
use crate::observed::view::SnapshotView;
use crate::scale_down::drain_rules;

/// Resources that decide alone on nodes that have them.
const GPUS: [&str; 3] = ["nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915"];

/// A share of a node: `used` of `of`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Utilization {
    pub(crate) resource: &'static str,
    used: i128,
    of: i128,
}

impl Utilization {
    /// In thousandths, rounded down.
    pub(crate) fn permille(self) -> i64 {
        i64::try_from(self.used.saturating_mul(1000) / self.of.max(1)).unwrap_or(i64::MAX)
    }

    /// How much of how much.
    pub(crate) fn parts(self) -> (i128, i128) {
        (self.used, self.of)
    }

    /// Whether the utilisation is at most `permille` / 1000.
    pub(crate) fn at_most(self, permille: i64) -> bool {
        self.used.saturating_mul(1000) <= self.of.saturating_mul(i128::from(permille))
    }

    fn more_than(self, other: Utilization) -> bool {
        self.used.saturating_mul(other.of) > other.used.saturating_mul(self.of)
    }
}

/// What is counted and what is not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UtilizationRules<'a> {
    pub(crate) settings: &'a ScaleDown,
    /// Pods of a lower priority do not count.
    pub(crate) expendable: i32,
    pub(crate) now: Time,
}

/// What the pods of a node request of a resource.
#[derive(Clone, Copy, Debug, Default)]
struct RequestedAmount {
    used: i128,
    /// By those that are set aside.
    apart: i128,
}

/// The utilisation of a node, which has an index in the view; `instance_type` says which GPUs it shall have. An
/// amount that the node does not report is an error, never a silent zero.
pub(crate) fn of(
    node: &Node,
    pods: (&SnapshotView<'_>, NodeIndex),
    instance_type: Option<&InstanceType>,
    counting: UtilizationRules<'_>,
) -> Result<Utilization, Kept> {
    let has = |gpu: &&str| {
        node.allocatable.get(gpu) > 0
            || node.capacity.get(gpu) > 0
            || instance_type.is_some_and(|of| of.extended.get(*gpu).is_some_and(|n| *n > 0))
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
        let [asked] = asked(pods, |requests| [requests.get(gpu)], counting);
        return share(node, gpu, asked);
    }
    let amounts = |requests: &Resources| [requests.cpu_milli, requests.memory];
    let [cpu, memory] = asked(pods, amounts, counting);
    let (cpu, memory) = (share(node, "cpu", cpu)?, share(node, "memory", memory)?);
    Ok(if memory.more_than(cpu) { memory } else { cpu })
}

/// What the pods of a node request of some resources.
fn asked<const N: usize>(
    (view, node): (&SnapshotView<'_>, NodeIndex),
    amounts: impl Fn(&Resources) -> [i64; N],
    counting: UtilizationRules<'_>,
) -> [RequestedAmount; N] {
    let mut sums = [RequestedAmount::default(); N];
    let settings = counting.settings;
    let pods = view.running_at(node).iter();
    for (pod, (_, whole)) in pods.zip(view.pods_at(node)) {
        let shape = view.kinds()[pod.kind].shape;
        if (pod.deleting && drain_rules::long_terminating(whole, counting.now))
            || shape.priority < counting.expendable
        {
            continue;
        }
        let set_aside = (settings.ignore_daemonsets && drain_rules::daemonic(shape))
            || (settings.ignore_mirrors && pod.mirror);
        for (sum, amount) in sums.iter_mut().zip(amounts(&shape.requests)) {
            let amount = i128::from(amount.max(0));
            if set_aside {
                sum.apart += amount;
            } else {
                sum.used += amount;
            }
        }
    }
    sums
}

fn share(node: &Node, resource: &'static str, asked: RequestedAmount) -> Result<Utilization, Kept> {
    let offered = node.allocatable.get(resource);
    if offered <= 0 {
        let resource = resource.into();
        return Err(Kept::NotReported { resource });
    }
    let RequestedAmount { used, apart } = asked;
    let of = i128::from(offered) - apart;
    if of <= 0 {
        let resource = resource.into();
        return Err(Kept::NothingToCount { resource });
    }
    Ok(Utilization { resource, used, of })
}

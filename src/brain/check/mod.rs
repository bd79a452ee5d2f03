//! The independent verifier: may this action be done, on the newest view?
//!
//! It knows nothing of how a plan was made and shares no function with the deciding code, so that a
//! mistake there does not repeat itself here. It has no memory: what only time can tell (quarantines,
//! timers) it checks by what the action itself says of it. The executor asks [`check`] right before
//! an action begins and does nothing that it refuses; [`check_plan`] looks at a whole plan, for what
//! holds one by one and not together.
//!
//! Of kube-scheduler's filters it asks anew, for pods that must move where they shall land
//! ([`CheckRule::Landing`]), and for pods that a new machine is for on that machine ([`CheckRule::Unfit`],
//! [`CheckRule::Replacement`]): cordon, taints, node selector and affinity with every operator and field, host
//! ports, every resource and pod slots, reach of volumes (bound, waiting for a consumer with its allowed
//! topologies or a free volume of its own over the whole plan, zone labels, local), attach limits, claims for one pod alone, anti-affinity both ways with
//! namespace selectors. Disruption budgets ([`CheckRule::Budget`]) and the ceilings of pools, hosts and cluster
//! are added up over the whole plan. Not asked: required pod affinity and topology spread (with the cluster's
//! default, `minDomains` and policies), which depend on the order in which pods come, and which a
//! later removal of the same plan may change after a pod was placed rightly: a refusal here would keep a right
//! plan from ever being done. For those stands the second opinion in the tests (`tests/naive`).

mod addresses;
mod consolidation;
mod cpus;
mod create;
mod devices;
mod drain;
mod existing;
mod general;
mod hosts;
mod in_place;
mod landing;
pub(super) mod matching;
pub(super) mod neighbours;
mod newcomer;
mod removal;
mod storages;
mod supply;
#[cfg(test)]
mod tests;
mod together;
mod volumes;

use std::fmt;

use serde::{Deserialize, Serialize};

use model::action::{Action, Kind};
use model::policy::Policy;
use model::snapshot::Snapshot;
use model::time::Time;

/// Why an action is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("refused by the rule {rule}: {why}")]
pub struct Refusal {
    /// The rule that is broken.
    pub rule: CheckRule,
    /// What is wrong, with names and numbers.
    pub why: String,
}

/// The rules, roughly in the order they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckRule {
    /// The action's or the view's format is not this program's.
    Version,
    /// Only the holder of the lease acts.
    Leader,
    /// Nothing happens while paused.
    Paused,
    /// Nothing happens before the cluster id is known.
    ClusterId,
    /// The action was planned on a view that is too old now, or that lies in the future.
    PlanAge,
    /// A source was never read completely, or is too old.
    View,
    /// The region is configured, seen, and has quorum.
    Region,
    /// Too many nodes are not Ready (`ClusterUnhealthy`).
    ClusterUnhealthy,
    /// Pool, instance type and template are those of the configuration.
    Pool,
    /// The host is online and the pool may use it.
    Host,
    /// The template is where the action says, and the host can clone it.
    Template,
    /// The VMID is in the range and nothing has it.
    Vmid,
    /// The addresses are those that the pool's networks give, and nothing has them.
    Address,
    /// The name is a DNS label and nothing has it.
    Name,
    /// The mark says what the target says.
    Mark,
    /// The bootstrap token's id is well formed and no other machine has it.
    Token,
    /// `max` and the ceilings of a pool.
    PoolMax,
    /// `max_nodes_total`.
    NodesTotal,
    /// `max_in_flight`.
    InFlight,
    /// The host's memory.
    HostMemory,
    /// The host's CPUs, its number of machines, and what must stay free of it.
    HostCapacity,
    /// The storages that the machine's disks go to: that the host has them, and their room.
    Storage,
    /// The PCI devices that the machine gets: that the host has them, and nobody else.
    Device,
    /// The CPUs that the machine gets for itself: that the host has them, and nobody else.
    Cpus,
    /// Nobody needs the new machine any more.
    Needed,
    /// A pod that the new machine is for could not run on it.
    Unfit,
    /// The machine is not known, or is elsewhere than the action says.
    Target,
    /// The VM does not carry our mark, the same as was planned with, exactly once.
    Ours,
    /// The node is not the one the action means.
    Node,
    /// Name, UUID and annotation of nodes and VM say different things about which node is the machine's.
    Identity,
    /// The machine's pool is not configured any more: nothing is destroyed for that.
    Unconfigured,
    /// The machine is leaving and must not be brought up, or is not leaving and cannot be released.
    Leaving,
    /// Undrained removal of a machine that has a node.
    Undrained,
    /// A working node may go only for being unneeded or unready.
    Working,
    /// The machine failed, and its pool keeps it to be looked into.
    KeptFailed,
    /// A host is evacuated, or is not.
    Evacuated,
    /// A node is not outdated, or its pool does not replace outdated nodes.
    Outdated,
    /// Scale-down is switched off: by configuration or by annotation.
    Disabled,
    /// It is not underused.
    Utilization,
    /// It was not unneeded or unready for long enough, or is too young.
    Timer,
    /// `min` of the pool.
    PoolMin,
    /// A pod on it may not be evicted.
    BlockingPod,
    /// A pod came in between.
    Stranger,
    /// A disruption budget.
    Budget,
    /// A pod has no place to go.
    Landing,
    /// `max_parallel`, `max_parallel_drain`.
    Parallel,
    /// The pool has no more nodes than its `max`.
    Surplus,
    /// The least that all pools together must keep, or the most they may have.
    Totals,
    /// Only a part of an atomic pool would go.
    Atomic,
    /// The pool is not consolidated, or not in this way.
    Consolidation,
    /// A replacement does not save what it must.
    Saving,
    /// What shall take a node's place does not work, or does not fit.
    Replacement,
    /// A budget of the pool.
    NodeBudget,
    /// The VM of a node to delete is still there, or the node is alive.
    VmGone,
    /// What stands there is not the placeholder of an intended clone.
    Placeholder,
    /// An intent is dropped while its VM is there.
    Intent,
    /// The VM to start runs, is locked, or is not ours to switch on.
    Power,
    /// What is to change in place does not differ, or was given up.
    InPlace,
    /// Two actions of one plan are about the same thing.
    Twice,
}

impl fmt::Display for CheckRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

type CheckResult = Result<(), Refusal>;

fn refuse<T>(rule: CheckRule, why: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal {
        rule,
        why: why.into(),
    })
}

fn ensure(holds: bool, rule: CheckRule, why: impl FnOnce() -> String) -> CheckResult {
    if holds { Ok(()) } else { refuse(rule, why()) }
}

/// What the rules look at.
#[derive(Clone, Copy)]
struct Case<'a> {
    snapshot: &'a Snapshot,
    policy: &'a Policy,
    now: Time,
}

/// Whether `action` may begin at `now`, by the newest view.
pub fn check(action: &Action, snapshot: &Snapshot, policy: &Policy, now: Time) -> CheckResult {
    let case = Case {
        snapshot,
        policy,
        now,
    };
    general::check(case, action)?;
    match &action.kind {
        Kind::Create(spec) => {
            create::check(case, action, spec)?;
            together::creations(case, &[action])?;
            supply::check(case, &[action])
        }
        Kind::Continue => existing::may_continue(case, action),
        Kind::Remove { drain } => {
            removal::check(case, action, *drain)?;
            together::removals(case, &[action])
        }
        Kind::Start => existing::may_start(case, action),
        Kind::Release => existing::release(case, action),
        Kind::Relabel => existing::relabel(case, action),
        Kind::Update => {
            in_place::check(case, action)?;
            in_place::together(case, 1)
        }
        Kind::DeleteNode => existing::delete_node(case, action),
        Kind::DeletePlaceholder => existing::delete_placeholder(case, action),
        Kind::DropIntent => existing::drop_intent(case, action),
    }
}

/// Whether `action` may begin at `now` beside others that were begun since the view was taken, which it
/// does not show yet: alone, and with them within all limits and budgets. What goes as a whole is begun
/// one by one, so that is asked by [`check_plan`] alone.
pub fn check_beside(
    action: &Action,
    begun: &[&Action],
    snapshot: &Snapshot,
    policy: &Policy,
    now: Time,
) -> CheckResult {
    check(action, snapshot, policy, now)?;
    let case = Case {
        snapshot,
        policy,
        now,
    };
    together::distinct(begun.iter().copied().chain([action]))?;
    let alike: fn(&Kind) -> bool = match action.kind {
        Kind::Create(_) => |kind| matches!(kind, Kind::Create(_)),
        Kind::Remove { .. } => |kind| matches!(kind, Kind::Remove { .. }),
        Kind::Update => |kind| matches!(kind, Kind::Update),
        _ => return Ok(()),
    };
    let others = begun.iter().copied().filter(|other| alike(&other.kind));
    let all: Vec<&Action> = others.chain([action]).collect();
    match action.kind {
        Kind::Create(_) => together::creations(case, &all),
        Kind::Update => in_place::together(case, all.len()),
        _ => together::removals(case, &all),
    }
}

/// Whether all actions of a plan may be done together: each by itself, and limits, budgets and
/// landing places over all of them.
pub fn check_plan(plan: &[Action], snapshot: &Snapshot, policy: &Policy, now: Time) -> CheckResult {
    for action in plan {
        check(action, snapshot, policy, now)?;
    }
    let case = Case {
        snapshot,
        policy,
        now,
    };
    together::distinct(plan)?;
    let of = |wanted: fn(&Kind) -> bool| -> Vec<&Action> {
        plan.iter().filter(|action| wanted(&action.kind)).collect()
    };
    let creations = of(|kind| matches!(kind, Kind::Create(_)));
    together::creations(case, &creations)?;
    supply::check(case, &creations)?;
    let removals = of(|kind| matches!(kind, Kind::Remove { .. }));
    together::removals(case, &removals)?;
    in_place::together(case, of(|kind| matches!(kind, Kind::Update)).len())?;
    together::whole_pools(case, &removals)
}

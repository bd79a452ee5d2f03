//! Which nodes could go, before their pods are placed elsewhere: the rules that look at one node.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::cluster::{Node, ObjectKey};
use model::disruption::ConsolidationPolicy;
use model::drift::Outdated;
use model::guard::{DO_NOT_DISRUPT, Guard, SCALE_DOWN_DISABLED, disables_scale_down};
use model::reasons::{Kept, Reasons, Removed, Replacing, Unneeded};
use model::region::{Failure, Step};
use model::report::NodeVerdict;
use model::time::{Span, Time};

use crate::constraints::fit::volumes::VolumeNeed;
use crate::constraints::shape::Keyed;
use crate::decision::turn::DecisionBuilder;
use crate::index::{NodeIndex, ShapeId};
use crate::observed::view::{MachinePhase, MachineView};
use crate::scale_down::consolidate::intents;
use crate::scale_down::consolidate::{self, cost};
use crate::scale_down::drain_rules::{self, Budgets, DrainOutcome, DrainRules};
use crate::scale_down::evacuate::Evacuees;
use crate::scale_down::mode::Mode;
use crate::scale_down::removals;
use crate::scale_down::shrink::{KeepReason, ready, settings};
use crate::scale_down::surplus;
use crate::scale_down::utilization::{self, Utilization, UtilizationRules};
use crate::simulation::places;
use crate::simulation::world::SimCluster;

/// cluster-autoscaler's taint on a node it removes; the value is the Unix time of that.
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";
/// How long [`TO_BE_DELETED`] counts.
const TAINT_HOLDS: Span = Span::minutes(5);

/// A node that could go.
#[derive(Debug)]
pub(crate) struct RemovalCandidate<'a> {
    pub(crate) name: &'a Arc<str>,
    pub(crate) node: &'a Node,
    /// The simulated node that stands for this node.
    pub(crate) index: NodeIndex,
    pub(crate) utilization: Utilization,
    /// Why it could go.
    pub(crate) mode: Mode,
    /// The price of the node, in millionths per hour.
    pub(crate) price: i64,
    /// What its evictions cost.
    pub(crate) cost: i128,
    /// Pods that a drain has to do with.
    pub(crate) pods: Vec<Keyed<'a>>,
    /// What needs another place, by shape.
    pub(crate) loads: Vec<PodsToMove<'a>>,
    /// Draining it takes more evictions at once than its budgets allow.
    pub(crate) risky: bool,
    /// Where its pods would go.
    pub(crate) landing: BTreeMap<ObjectKey, Arc<str>>,
}

/// Pods that are alike and need another place.
#[derive(Debug)]
pub(crate) struct PodsToMove<'a> {
    pub(crate) shape: ShapeId,
    pub(crate) need: Option<Arc<VolumeNeed>>,
    /// Pods that run there.
    pub(crate) pods: Vec<Keyed<'a>>,
    /// Pending pods that this decision has put there.
    pub(crate) new_pods: usize,
}

impl PodsToMove<'_> {
    /// With how many pods they are.
    pub(crate) fn counted(&self) -> (&Self, usize) {
        (self, self.pods.len() + self.new_pods)
    }
}

impl RemovalCandidate<'_> {
    /// Nothing needs another place.
    pub(crate) fn empty(&self) -> bool {
        self.loads.is_empty()
    }
}

/// Nodes that stay, and why.
type Staying = Vec<(Arc<str>, KeepReason)>;
/// How many nodes and machines each pool has.
type NodesPerPool<'a> = BTreeMap<&'a str, u32>;

/// All candidates, and why the other nodes of ours stay. Nodes that are not ours, or are leaving, or
/// being replaced, get their verdict here.
pub(crate) fn find<'a>(
    turn: &mut DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
    budgets: &Budgets<'a>,
    mut evacuees: Evacuees<'a>,
) -> (Vec<RemovalCandidate<'a>>, Staying) {
    let (mut candidates, mut kept) = (Vec::new(), Vec::new());
    let nodes_per_pool = surplus::have(turn);
    let nodes = &turn.view.snapshot.cluster.nodes;
    for (index, (name, node)) in (0..).map(NodeIndex).zip(nodes) {
        if let Some(verdict) = find_settled(turn, index, name) {
            turn.report.nodes.insert(name.clone(), verdict);
            continue;
        }
        let judge = || {
            let machine = turn.view.machine_at(index)?;
            let at = (index, name);
            Some(judge(
                turn,
                world,
                (budgets, &nodes_per_pool),
                machine,
                at,
                node,
            ))
        };
        match evacuees.take(index).or_else(judge) {
            Some(Ok(candidate)) => candidates.push(candidate),
            Some(Err(keep)) => kept.push((name.clone(), keep)),
            None => {}
        }
    }
    (candidates, kept)
}

/// The verdict on a node about which nothing is to be decided.
fn find_settled(turn: &DecisionBuilder<'_>, index: NodeIndex, name: &str) -> Option<NodeVerdict> {
    let Some(machine) = turn.view.machine_at(index) else {
        // Its machine may be in what was not read yet.
        return Some(match turn.holds.unread() {
            Some(why) => NodeVerdict::Unread { why: why.clone() },
            None => NodeVerdict::NotAutoscaled,
        });
    };
    if machine.phase == MachinePhase::Leaving && !machine.resumable() {
        return Some(NodeVerdict::Leaving {
            why: Removed::UnderWay {
                reason: turn.memory.removals.get(machine.name).cloned(),
            },
            moves: BTreeMap::new(),
        });
    }
    let (by, replacement) = intents::find_replacing(turn, name)?;
    (!intents::works(turn, by)).then(|| NodeVerdict::Replaced {
        by: by.clone(),
        why: Replacing::OnItsWay {
            by: by.clone(),
            saving: replacement.saving,
        },
        moves: BTreeMap::new(),
        others: Reasons::default(),
    })
}

/// Puts candidates in the order in which they are tried. By class: first nodes that a machine was made to replace, nodes on evacuated hosts
/// and outdated nodes; then empty ones, unneeded ones, those of pools above their `max`, and those of consolidation. Within a class, nodes
/// whose last removal failed come last: where their pods cannot be evicted, they still take the pods of others. Then: above `max` the lowest
/// eviction cost first, in consolidation the highest price per eviction cost. Then the longest unneeded, the least utilised, the fewest
/// pods, and the name.
pub(crate) fn sort(candidates: &mut [RemovalCandidate<'_>], turn: &DecisionBuilder<'_>) {
    candidates.sort_by_cached_key(|candidate| {
        let since = turn.memory.unneeded_since.get(candidate.name);
        let machine = turn.view.machine_of_node(candidate.name);
        let class = match candidate.mode {
            Mode::Replaced { .. } | Mode::Evacuated { .. } | Mode::Outdated { .. } => 0,
            _ if candidate.empty() => 1,
            Mode::Unneeded => 2,
            Mode::AboveMax { .. } => 3,
            Mode::Consolidate => 4,
        };
        let saving = match candidate.mode {
            Mode::Consolidate => cost::price_per_eviction(candidate.price, candidate.cost),
            Mode::AboveMax { .. } => candidate.cost.saturating_neg(),
            _ => 0,
        };
        (
            class,
            machine.is_some_and(|machine| removal_failed(turn, machine)),
            std::cmp::Reverse(saving),
            since.is_none(),
            since.copied(),
            candidate.utilization.permille(),
            candidate.pods.len(),
            candidate.name.clone(),
        )
    });
}

/// How the last attempt to remove the node of a machine ended, if it failed.
pub(crate) fn last_failure<'a>(machine: &MachineView<'a>) -> Option<&'a Failure> {
    let failure = machine.seen.failure.as_ref()?;
    (failure.step > Step::Done).then_some(failure)
}

/// Whether an attempt to remove the node of a machine failed a short while ago. A failure stands with a machine until the next attempt, if
/// one comes.
pub(crate) fn removal_failed(turn: &DecisionBuilder<'_>, machine: &MachineView<'_>) -> bool {
    let lately = turn.now() - turn.view.policy.scale_up.backoff_reset;
    last_failure(machine).is_some_and(|failure| failure.at >= lately)
}

fn judge<'a>(
    turn: &DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
    (budgets, nodes_per_pool): (&Budgets<'a>, &NodesPerPool<'_>),
    machine: &MachineView<'a>,
    (index, name): (NodeIndex, &'a Arc<str>),
    node: &'a Node,
) -> Result<RemovalCandidate<'a>, KeepReason> {
    let (utilization, mode) =
        find_eligible_mode(turn, nodes_per_pool, machine, (index, name), node)?;
    let candidate = build_candidate(
        turn,
        world,
        budgets,
        machine,
        (index, name, node),
        (utilization, mode),
    )?;
    if !candidate.loads.is_empty()
        && matches!(candidate.mode, Mode::Consolidate)
        && consolidate::of(machine).is_some_and(|how| how.policy == ConsolidationPolicy::WhenEmpty)
    {
        return Err(KeepReason::because(Kept::NotEmpty));
    }
    Ok(candidate)
}

/// How a node on a host that a person evacuates could go, or what keeps it; `None` for other nodes. One that is not Ready goes when it
/// has been so for `unready_time`, however much is requested of it: what runs there cannot be seen, and until then its kubelet may be back.
pub(crate) fn judge_evacuee<'a>(
    turn: &DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
    budgets: &Budgets<'a>,
    (index, name): (NodeIndex, &'a Arc<str>),
    node: &'a Node,
) -> Option<Result<RemovalCandidate<'a>, KeepReason>> {
    let machine = turn.view.machine_at(index)?;
    let mode = Mode::Evacuated {
        host: machine.seen.host.clone(),
        since: places::evacuated(turn, machine)?,
        missing: None,
    };
    if !is_there(machine) {
        return None;
    }
    if !ready(node) {
        // Since when is not known: it goes by the rules for nodes of other hosts.
        let since = node.ready.since?;
        if let Err(keep) = check_unready(turn, machine, since) {
            return Some(Err(keep));
        }
    }
    judge_given_up(turn, world, budgets, (index, name, node), mode)
}

/// How a Ready node that is outdated could go, or what keeps it; `None` for other nodes.
pub(crate) fn judge_outdated<'a>(
    turn: &DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
    budgets: &Budgets<'a>,
    index: NodeIndex,
    outdated: Outdated,
) -> Option<Result<RemovalCandidate<'a>, KeepReason>> {
    let machine = turn.view.machine_at(index)?;
    let (name, node) = machine.node?;
    if !may_be_given_up(machine) {
        return None;
    }
    let mode = Mode::Outdated {
        outdated,
        missing: None,
    };
    judge_given_up(turn, world, budgets, (index, name, node), mode)
}

/// Whether a machine of a configured pool has a node that came up, and that does not go for good yet.
fn is_there(machine: &MachineView<'_>) -> bool {
    let there = machine.phase == MachinePhase::Up || machine.resumable();
    there && machine.pool.is_some()
}

/// Whether a machine has a Ready node that works, or whose removal may be taken back. Other nodes are not given up for being outdated.
pub(crate) fn may_be_given_up(machine: &MachineView<'_>) -> bool {
    is_there(machine) && machine.ready()
}

/// What keeps a node that is not Ready since a time, on a host that a person evacuates.
fn check_unready(
    turn: &DecisionBuilder<'_>,
    machine: &MachineView<'_>,
    since: Time,
) -> Result<(), KeepReason> {
    if places::host_is_off(turn, machine) || !places::host_answers(turn, machine) {
        let host = machine.seen.host.clone();
        return Err(KeepReason::because(Kept::HostOffline { host }));
    }
    let settings = settings(turn, machine);
    if !settings.unready_enabled {
        return Err(KeepReason::because(Kept::UnreadyDisabled));
    }
    removals::check_waited(turn.now(), since, settings.unready_time, Unneeded::Unready)
}

/// A node that is given up: neither its utilisation counts nor whether scale-down is on. What a pod or an annotation forbids
/// does.
fn judge_given_up<'a>(
    turn: &DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
    budgets: &Budgets<'a>,
    (index, name, node): (NodeIndex, &'a Arc<str>, &'a Node),
    mode: Mode,
) -> Option<Result<RemovalCandidate<'a>, KeepReason>> {
    let machine = turn.view.machine_at(index)?;
    let found = check_annotations(turn, node)
        .and_then(|()| measure_utilization(turn, machine, index, node))
        .and_then(|used| {
            build_candidate(
                turn,
                world,
                budgets,
                machine,
                (index, name, node),
                (used, mode),
            )
        });
    Some(found)
}

/// A node that could go by these rules, with its pods; or the pod that blocks.
fn build_candidate<'a>(
    turn: &DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
    budgets: &Budgets<'a>,
    machine: &MachineView<'a>,
    (index, name, node): (NodeIndex, &'a Arc<str>, &'a Node),
    (utilization, mode): (Utilization, Mode),
) -> Result<RemovalCandidate<'a>, KeepReason> {
    let now = turn.now();
    let rules = DrainRules {
        settings: settings(turn, machine),
        expendable: turn.view.policy.scale_up.expendable_priority,
        budgets,
        strict: consolidate::of(machine).is_some(),
        now,
    };
    let loads = list_pods_to_move(turn, world, index, rules)?;
    let on_node = turn.view.pods_at(index).iter();
    let pods: Vec<Keyed<'a>> = on_node
        .filter(|(_, pod)| drain_rules::concerned(pod, now))
        .copied()
        .collect();
    Ok(RemovalCandidate {
        name,
        node,
        index,
        utilization,
        mode,
        price: cost::price(turn.view.policy, machine),
        cost: cost::of_pods(&pods),
        risky: budgets.risky(&pods),
        pods,
        loads,
        landing: BTreeMap::new(),
    })
}

/// The pods that need another place when a node is removed, or the pod that keeps it from being removed.
fn list_pods_to_move<'a>(
    turn: &DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
    index: NodeIndex,
    rules: DrainRules<'_, '_>,
) -> Result<Vec<PodsToMove<'a>>, KeepReason> {
    let mut moving: BTreeMap<(ShapeId, Option<VolumeNeed>), Vec<Keyed<'a>>> = BTreeMap::new();
    for (key, pod) in turn.view.pods_at(index) {
        match drain_rules::decide_outcome(key, pod, rules) {
            DrainOutcome::Stays | DrainOutcome::Goes => {}
            DrainOutcome::Blocks(block) => {
                let mut keep = KeepReason::because(Kept::BlockedByPod {
                    pod: (*key).clone(),
                    blocked: Box::new(block.why),
                })
                .pod(key);
                keep.until = block.until;
                return Err(keep);
            }
            DrainOutcome::Moves => {
                let id = world.intern(&key.namespace, &pod.shape);
                let need = turn.view.need(key, pod);
                moving.entry((id, need)).or_default().push((*key, *pod));
            }
        }
    }
    let moving = moving.into_iter().map(|((shape, need), pods)| PodsToMove {
        shape,
        need: need.map(Arc::new),
        pods,
        new_pods: 0,
    });
    let new_pods = world.nodes[index].new_pods.iter();
    let new_pods = new_pods.map(|(shape, need, new_pods)| PodsToMove {
        shape: *shape,
        need: need.clone(),
        pods: Vec::new(),
        new_pods: *new_pods,
    });
    let mut loads: Vec<PodsToMove<'a>> = moving.chain(new_pods).collect();
    sort_hardest_first(world, &mut loads);
    Ok(loads)
}

/// Important pods first, then large ones: they are hardest to place.
pub(crate) fn sort_hardest_first(world: &SimCluster<'_>, loads: &mut [PodsToMove<'_>]) {
    loads.sort_by_cached_key(|load| {
        let shape = world.shapes[load.shape];
        let size = crate::simulation::offer::price(&shape.shape.requests);
        let first = load.pods.first().map(|(key, _)| (*key).clone());
        (
            std::cmp::Reverse(shape.shape.priority),
            std::cmp::Reverse(size),
            first,
        )
    });
}

/// The rules that do not look at single pods.
fn find_eligible_mode(
    turn: &DecisionBuilder<'_>,
    nodes_per_pool: &NodesPerPool<'_>,
    machine: &MachineView<'_>,
    (index, name): (NodeIndex, &Arc<str>),
    node: &Node,
) -> Result<(Utilization, Mode), KeepReason> {
    let other = |why: Kept| Err(KeepReason::because(why));
    let Some(pool) = machine.pool else {
        return other(Kept::PoolNotConfigured {
            pool: machine.pool_name().into(),
        });
    };
    match &machine.phase {
        MachinePhase::Up => {}
        MachinePhase::Leaving if machine.resumable() => {}
        MachinePhase::Untouchable(why) => {
            return other(Kept::LeftAlone {
                machine: why.clone(),
            });
        }
        MachinePhase::Coming if places::host_is_off(turn, machine) => {
            let host = machine.seen.host.clone();
            return other(Kept::HostOffline { host });
        }
        MachinePhase::Coming => return other(Kept::ComingUp),
        MachinePhase::Failed | MachinePhase::Overdue => {
            return other(match machine.kept {
                Some(until) => Kept::FailedAndKept { until },
                None => Kept::Failed,
            });
        }
        MachinePhase::Leaving | MachinePhase::NoNode | MachinePhase::NoVm => {
            return other(Kept::VmGone);
        }
    }
    check_annotations(turn, node)?;
    let settings = settings(turn, machine);
    if !settings.enabled || !turn.view.policy.scale_down.enabled || pool.scale_down_disabled {
        return other(Kept::ScaleDownDisabled);
    }
    if !places::host_answers(turn, machine) || (!ready(node) && places::host_is_off(turn, machine))
    {
        let host = machine.seen.host.clone();
        return other(Kept::HostOffline { host });
    }
    if !ready(node) && !settings.unready_enabled {
        return other(Kept::UnreadyDisabled);
    }
    if let Some(replacement) = turn.memory.replacements.get(machine.name) {
        let nodes = replacement.nodes.keys().cloned().collect();
        return other(Kept::Replacement { nodes });
    }
    find_mode(turn, nodes_per_pool, machine, (index, name), node)
}

/// The annotations that keep a node.
fn check_annotations(turn: &DecisionBuilder<'_>, node: &Node) -> Result<(), KeepReason> {
    let value = |key: &str| node.annotations.get(key).map(|value| &**value);
    if disables_scale_down(node) {
        let annotation = SCALE_DOWN_DISABLED.into();
        return Err(KeepReason::because(Kept::DisabledAnnotation { annotation }));
    }
    let guard = value(DO_NOT_DISRUPT);
    if let Some(Guard { until }) = Guard::of(guard, node.created, turn.now()) {
        let annotation = DO_NOT_DISRUPT.into();
        let mut keep = KeepReason::because(Kept::DoNotDisrupt { annotation });
        keep.until = until;
        return Err(keep);
    }
    let foreign = node
        .taints
        .iter()
        .find(|taint| &*taint.key == TO_BE_DELETED)
        .and_then(|taint| taint.value.parse::<i64>().ok())
        .map(|seconds| Time(seconds.saturating_mul(1000)) + TAINT_HOLDS)
        .filter(|until| *until > turn.now());
    match foreign {
        Some(until) => Err(KeepReason::because(Kept::RemovedByOthers {
            taint: TO_BE_DELETED.into(),
        })
        .until(until)),
        None => Ok(()),
    }
}

/// By which rules a node could go.
fn find_mode(
    turn: &DecisionBuilder<'_>,
    nodes_per_pool: &NodesPerPool<'_>,
    machine: &MachineView<'_>,
    (index, name): (NodeIndex, &Arc<str>),
    node: &Node,
) -> Result<(Utilization, Mode), KeepReason> {
    let utilization = measure_utilization(turn, machine, index, node)?;
    let usual = find_usual_mode(turn, machine, node, utilization);
    let pool = machine.pool_name();
    let max = machine.pool.map_or(0, |policy| policy.max);
    let have = nodes_per_pool.get(pool).copied().unwrap_or(0);
    let mode = match usual {
        _ if ready(node)
            && let Some((by, replacement)) = intents::find_replacing(turn, name)
            && let Some(rest) = intents::find_rest(turn, by, replacement, Some(name)) =>
        {
            Mode::Replaced {
                by: by.clone(),
                rest,
            }
        }
        Err(otherwise) if have > max && ready(node) => Mode::AboveMax {
            have,
            max,
            otherwise,
        },
        usual => usual?,
    };
    Ok((utilization, mode))
}

/// By which rules a node could go, surpluses and replacements apart. A node that is not Ready is
/// cluster-autoscaler's business in every pool.
fn find_usual_mode(
    turn: &DecisionBuilder<'_>,
    machine: &MachineView<'_>,
    node: &Node,
    utilization: Utilization,
) -> Result<Mode, KeepReason> {
    match consolidate::of(machine).filter(|_| ready(node)) {
        None => check_underused(turn, machine, node, utilization).map(|()| Mode::Unneeded),
        Some(how) if how.policy == ConsolidationPolicy::Never => {
            Err(KeepReason::because(Kept::NeverConsolidated))
        }
        Some(_) => Ok(Mode::Consolidate),
    }
}

fn measure_utilization(
    turn: &DecisionBuilder<'_>,
    machine: &MachineView<'_>,
    index: NodeIndex,
    node: &Node,
) -> Result<Utilization, KeepReason> {
    let counting = UtilizationRules {
        settings: settings(turn, machine),
        expendable: turn.view.policy.scale_up.expendable_priority,
        now: turn.now(),
    };
    utilization::of(node, (&turn.view, index), machine.instance_type, counting)
        .map_err(KeepReason::because)
}

/// The node is requested no more than its threshold.
fn check_underused(
    turn: &DecisionBuilder<'_>,
    machine: &MachineView<'_>,
    node: &Node,
    utilization: Utilization,
) -> Result<(), KeepReason> {
    let threshold = settings(turn, machine).utilization_threshold_permille;
    if utilization.at_most(threshold) {
        return Ok(());
    }
    Err(KeepReason::because(Kept::NotUnderutilized {
        resource: utilization.resource.into(),
        requested_permille: utilization.permille(),
        threshold_permille: threshold,
        ready: ready(node),
    }))
}

//! Which nodes could go, before their pods are placed elsewhere: the rules that look at one node.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::cluster::{Node, PodKey};
use crate::model::report::NodeVerdict;

use super::drain_rules::{self, Budgets, Fate};
use super::fit::volumes::{self, Need};
use super::shrink::{Keep, ready, settings};
use super::turn::Turn;
use super::utilization::{self, Counting, Utilization};
use super::view::{Keyed, Known, Standing};
use super::world::{ShapeId, World};

const DISABLED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";

/// A node that could go.
#[derive(Debug)]
pub(super) struct Candidate<'a> {
    pub(super) name: &'a Arc<str>,
    pub(super) node: &'a Node,
    /// Its place in the world.
    pub(super) bin: usize,
    pub(super) utilization: Utilization,
    /// Pods that a drain has to do with.
    pub(super) pods: Vec<Keyed<'a>>,
    /// What needs another place, by shape.
    pub(super) loads: Vec<Load<'a>>,
    /// Draining it takes more evictions at once than its budgets allow.
    pub(super) risky: bool,
    /// Where its pods would go.
    pub(super) landing: BTreeMap<PodKey, Arc<str>>,
}

/// Equal pods that need another place.
#[derive(Debug)]
pub(super) struct Load<'a> {
    pub(super) shape: ShapeId,
    pub(super) need: Option<Arc<Need>>,
    /// Pods that run there.
    pub(super) pods: Vec<Keyed<'a>>,
    /// Pending pods that this decision has put there.
    pub(super) guests: usize,
}

impl Candidate<'_> {
    /// Nothing needs another place.
    pub(super) fn empty(&self) -> bool {
        self.loads.is_empty()
    }
}

type Kept = Vec<(Arc<str>, Keep)>;

/// All candidates, and why the other nodes of ours stay. Nodes that are not ours, or are leaving,
/// get their verdict here.
pub(super) fn find<'a>(
    turn: &mut Turn<'a>,
    world: &mut World<'a>,
    budgets: &Budgets<'a>,
) -> (Vec<Candidate<'a>>, Kept) {
    let (mut candidates, mut kept) = (Vec::new(), Vec::new());
    let nodes = &turn.view.snapshot.cluster.nodes;
    for (name, node) in nodes {
        let verdict = match turn.view.behind(name) {
            None => Some(NodeVerdict::NotAutoscaled),
            Some(known) if known.standing == Standing::Leaving && !known.resumable() => {
                Some(NodeVerdict::Leaving {
                    why: "it is being taken down".to_owned(),
                })
            }
            Some(_) => None,
        };
        if let Some(verdict) = verdict {
            turn.report.nodes.insert(name.clone(), verdict);
            continue;
        }
        let judged = turn
            .view
            .behind(name)
            .map(|known| judge(turn, world, budgets, known, name, node));
        match judged {
            Some(Ok(candidate)) => candidates.push(candidate),
            Some(Err(keep)) => kept.push((name.clone(), keep)),
            None => {}
        }
    }
    (candidates, kept)
}

/// Empty ones first, then those longest unneeded, then the least used; by name in the end.
pub(super) fn sort(candidates: &mut [Candidate<'_>], turn: &Turn<'_>) {
    candidates.sort_by_cached_key(|candidate| {
        let since = turn.memory.unneeded_since.get(candidate.name);
        (
            !candidate.empty(),
            since.is_none(),
            since.copied(),
            candidate.utilization.permille(),
            candidate.pods.len(),
            candidate.name.clone(),
        )
    });
}

fn judge<'a>(
    turn: &Turn<'a>,
    world: &mut World<'a>,
    budgets: &Budgets<'a>,
    known: &Known<'a>,
    name: &'a Arc<str>,
    node: &'a Node,
) -> Result<Candidate<'a>, Keep> {
    let utilization = eligible(turn, known, name, node)?;
    let settings = settings(turn, known);
    let now = turn.now();
    let expendable = turn.view.policy.scale_up.expendable_priority;
    let mut loads: BTreeMap<(ShapeId, Option<Need>), Vec<Keyed<'a>>> = BTreeMap::new();
    let mut pods = Vec::new();
    for (key, pod) in turn.view.pods(name) {
        if drain_rules::concerned(pod, now) {
            pods.push((*key, *pod));
        }
        match drain_rules::fate(key, pod, settings, expendable, budgets, now) {
            Fate::Stays | Fate::Goes => {}
            Fate::Blocks(reason, why) => {
                return Err(Keep::because(reason, format!("{key}: {why}")).pod(key));
            }
            Fate::Moves => {
                let id = world.intern(&key.namespace, &pod.shape);
                let need = volumes::need(key, pod, &turn.view.snapshot.cluster);
                loads.entry((id, need)).or_default().push((*key, *pod));
            }
        }
    }
    let Some(bin) = world.by_name.get(name).copied() else {
        return Err(Keep::because("NoNodeInfo", "nothing is known of it"));
    };
    let mut loads: Vec<Load<'a>> = loads
        .into_iter()
        .map(|((shape, need), pods)| Load {
            shape,
            need: need.map(Arc::new),
            pods,
            guests: 0,
        })
        .collect();
    for (shape, need, guests) in &world.bins[bin].guests {
        loads.push(Load {
            shape: *shape,
            need: need.clone(),
            pods: Vec::new(),
            guests: *guests,
        });
    }
    hardest_first(world, &mut loads);
    Ok(Candidate {
        name,
        node,
        bin,
        utilization,
        risky: budgets.risky(&pods),
        pods,
        loads,
        landing: BTreeMap::new(),
    })
}

/// Important pods first, then large ones: they are hardest to place.
fn hardest_first(world: &World<'_>, loads: &mut [Load<'_>]) {
    loads.sort_by_cached_key(|load| {
        let shape = world.shapes[load.shape];
        let size = super::offer::price(&shape.shape.requests);
        let first = load.pods.first().map(|(key, _)| (*key).clone());
        (
            std::cmp::Reverse(shape.shape.priority),
            std::cmp::Reverse(size),
            first,
        )
    });
}

/// The rules that do not look at single pods.
fn eligible(
    turn: &Turn<'_>,
    known: &Known<'_>,
    name: &str,
    node: &Node,
) -> Result<Utilization, Keep> {
    let other = |why: String| Err(Keep::because("NotUnneededOtherReason", why));
    let settings = settings(turn, known);
    let Some(pool) = known.pool else {
        return Err(Keep::because(
            "NotAutoscaled",
            format!("its pool {} is not in the configuration", known.pool_name()),
        ));
    };
    match &known.standing {
        Standing::Up => {}
        Standing::Leaving if known.resumable() => {}
        Standing::Untouchable(why) => {
            return Err(Keep::because("NotAutoscaled", format!("hands off: {why}")));
        }
        Standing::Coming => return other("it is still coming up".to_owned()),
        Standing::Failed | Standing::Overdue => {
            return other("its machine failed and is cleared away".to_owned());
        }
        Standing::Leaving | Standing::NoNode | Standing::NoVm => {
            return other("its VM is gone".to_owned());
        }
    }
    if node
        .annotations
        .get(DISABLED)
        .is_some_and(|value| &**value == "true")
    {
        let why = format!("its annotation {DISABLED} is true");
        return Err(Keep::because("ScaleDownDisabledAnnotation", why));
    }
    let do_not_disrupt = node.annotations.get(DO_NOT_DISRUPT).map(|value| &**value);
    if drain_rules::forbids(do_not_disrupt) {
        let why = format!("it is annotated with {DO_NOT_DISRUPT}");
        return Err(Keep::because("ScaleDownDisabledAnnotation", why));
    }
    if !settings.enabled || !turn.view.policy.scale_down.enabled || pool.scale_down_disabled {
        return other("scale-down is switched off in the configuration".to_owned());
    }
    underused(turn, known, name, node)
}

/// The node is requested less than its threshold.
fn underused(
    turn: &Turn<'_>,
    known: &Known<'_>,
    name: &str,
    node: &Node,
) -> Result<Utilization, Keep> {
    let settings = settings(turn, known);
    let counting = Counting {
        settings,
        // cluster-autoscaler's default; the configuration has no switch for it.
        ignore_mirrors: false,
        expendable: turn.view.policy.scale_up.expendable_priority,
        now: turn.now(),
    };
    let utilization = utilization::of(node, turn.view.pods(name), known.kind, counting)
        .map_err(|why| Keep::because("UnexpectedError", why))?;
    let threshold = settings.utilization_threshold_permille;
    if !utilization.below(threshold) {
        let permille = utilization.permille();
        let state = if ready(node) {
            ""
        } else {
            ", though it is not Ready"
        };
        return Err(Keep::because(
            "NotUnderutilized",
            format!(
                "{}.{} % of its {} is requested, the threshold is {}.{} %{state}",
                permille / 10,
                permille % 10,
                utilization.resource,
                threshold / 10,
                threshold % 10
            ),
        ));
    }
    Ok(utilization)
}

//! Which pods count: those that kube-scheduler found no place for and that a node could help, and
//! those on nodes that are leaving. Pods that are alike are one group.

use crate::decision::pod_to_place::PodToPlace;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use model::cluster::{ObjectKey, Phase, Pod};
use model::guard;
use model::reasons::{Excess, Ignored, Reasons, Refused};
use model::report::PodVerdict;
use model::scheduling::DEFAULT_SCHEDULER;
use model::time::{Span, Time};

use crate::constraints::fit::volumes::VolumeNeed;
use crate::decision::turn::DecisionBuilder;
use crate::index::{DemandIndex, IndexVec, ShapeId};
use crate::observed::view::MachineView;
use crate::simulation::unseen::UnseenPods;
use crate::simulation::world::SimCluster;

/// A pod with this annotation waits that long before it calls for a node.
const DELAY: &str = "cluster-autoscaler.kubernetes.io/pod-scale-up-delay";

/// Pods that are alike and need a place.
#[derive(Clone, Debug)]
pub(crate) struct Group<'a> {
    pub(crate) shape: ShapeId,
    /// What their claims ask.
    pub(crate) need: Option<Arc<VolumeNeed>>,
    /// In the order of creation, then name.
    pub(crate) pods: Vec<PodToPlace<'a>>,
    pub(crate) origin: Origin,
}

/// How a pod comes to want a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// It waits: it may call for a new node.
    Waits,
    /// It is bound to a node that is leaving: it may call for a new node.
    Leaves,
    /// It takes room and calls for nothing, and must not push another off its place.
    Fresh,
}

impl Group<'_> {
    /// Groups of a lower rank are placed first.
    pub(crate) fn rank(&self, world: &SimCluster<'_>) -> (bool, Reverse<i32>) {
        let priority = world.shapes[self.shape].shape.priority;
        (!self.calls(), Reverse(priority))
    }

    /// Whether they may call for a new node.
    pub(crate) fn calls(&self) -> bool {
        self.origin != Origin::Fresh
    }
}

/// Groups of pods that need a place.
pub(crate) type Groups<'a> = IndexVec<DemandIndex, Group<'a>>;

/// What asks for room, in kube-scheduler's order: priority first, then age, then name.
#[derive(Debug, Default)]
pub(crate) struct Demand<'a> {
    pub(crate) groups: Groups<'a>,
    /// Nodes that pods are nominated for, by the pod's UID.
    pub(crate) nominated: BTreeMap<&'a Arc<str>, Arc<str>>,
}

/// What becomes of an unbound pod before anything is placed.
enum Triage {
    Ignored(Ignored),
    /// The pod's constraints are beyond the budget of work, and why: it takes no room and calls for no node.
    TooComplex(Excess),
    /// Not tried by the scheduler yet: it takes room but calls for nothing.
    Fresh(Ignored),
    Nominated(Arc<str>),
    Counts,
}

/// Groups by shape and by how they come to want a place; those with claims by what these ask too.
#[derive(Default)]
struct GroupsFound<'a> {
    plain: IndexVec<ShapeId, [Vec<PodToPlace<'a>>; 3]>,
    claiming: BTreeMap<(ShapeId, VolumeNeed, Origin), Vec<PodToPlace<'a>>>,
}

impl<'a> GroupsFound<'a> {
    fn add(
        &mut self,
        shape: ShapeId,
        need: Option<VolumeNeed>,
        origin: Origin,
        to_place: PodToPlace<'a>,
    ) {
        if let Some(need) = need {
            let group = self.claiming.entry((shape, need, origin)).or_default();
            return group.push(to_place);
        }
        self.plain.get_or_grow(shape)[origin as usize].push(to_place);
    }

    fn groups(self) -> impl Iterator<Item = Group<'a>> {
        let plain = (0..).map(ShapeId).zip(self.plain);
        let plain = plain.flat_map(|(shape, both)| {
            [Origin::Waits, Origin::Leaves, Origin::Fresh]
                .into_iter()
                .zip(both)
                .map(move |(origin, pods)| Group {
                    shape,
                    need: None,
                    pods,
                    origin,
                })
        });
        let claiming = self.claiming.into_iter();
        plain.chain(claiming.flat_map(|((shape, need, origin), pods)| {
            // Of pods that share a claim for one pod alone only one gets a place: each stands for itself.
            let size = if need.alone.is_empty() { pods.len() } else { 1 };
            let need = Arc::new(need);
            let groups: Vec<Group<'a>> = pods
                .chunks(size)
                .map(|pods| Group {
                    shape,
                    need: Some(need.clone()),
                    pods: pods.to_vec(),
                    origin,
                })
                .collect();
            groups
        }))
    }
}

/// Puts the pods on their nodes that kube-scheduler has nominated for one: no other pod may have that room.
pub(crate) fn place_nominated<'a>(turn: &mut DecisionBuilder<'a>, world: &mut SimCluster<'a>) {
    for (key, pod) in turn.view.without_place() {
        if pod.node.is_some() || pod.nominated.is_none() {
            continue;
        }
        match classify(turn, pod) {
            Triage::Nominated(node) => {
                let need = turn.view.need(key, pod);
                world.welcome(&node, key, pod, need.as_ref());
                if let Some(need) = need {
                    turn.claim_reservations.reserve(key, Some(&need));
                }
            }
            Triage::Ignored(_) => keep_nominated(turn, world, key, pod),
            Triage::TooComplex(_) | Triage::Fresh(_) | Triage::Counts => {}
        }
    }
}

/// Sorts the pods; nominated ones are on their nodes already ([`place_nominated`]). `evacuated` run on hosts that a person evacuates,
/// and have no place elsewhere.
pub(crate) fn collect<'a>(
    turn: &mut DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
    evacuated: &BTreeMap<&'a ObjectKey, &'a Pod>,
) -> Demand<'a> {
    let mut found = GroupsFound::default();
    let mut nominated = BTreeMap::new();
    let mut unseen = UnseenPods::default();
    let mut pods = turn.view.without_place();
    if !evacuated.is_empty() {
        pods.extend(evacuated.iter().map(|(key, pod)| (*key, *pod)));
        pods.sort_unstable_by_key(|(key, _)| *key);
        // A removal that may be taken back has its pods among them already.
        pods.dedup_by_key(|(key, _)| *key);
    }
    turn.reserve_lines(pods.len());
    for (key, pod) in pods {
        let mut line = None;
        let origin = if pod.node.is_some() {
            if !displaced(turn, pod) && !evacuated.contains_key(key) {
                continue;
            }
            Origin::Leaves
        } else {
            let class = classify(turn, pod);
            let at = turn.line(key);
            line = Some(at);
            match class {
                Triage::Ignored(why) => {
                    turn.answer(at, PodVerdict::Ignored { why });
                    continue;
                }
                Triage::Nominated(node) => {
                    nominated.insert(&pod.uid, node.clone());
                    turn.answer(at, PodVerdict::fits_node(node));
                    continue;
                }
                Triage::TooComplex(excess) => {
                    let why = Refused::TooComplex { excess };
                    let why = Reasons::new([("*".into(), why.into())].into());
                    turn.answer(at, PodVerdict::NoCompatiblePool { why });
                    continue;
                }
                Triage::Fresh(why) => {
                    if why == Ignored::NotUnschedulable {
                        unseen.add(pod);
                    }
                    turn.answer(at, PodVerdict::Ignored { why });
                    Origin::Fresh
                }
                Triage::Counts => Origin::Waits,
            }
        };
        let id = world.intern(&key.namespace, &pod.shape);
        let need = turn.view.need(key, pod);
        found.add(id, need, origin, PodToPlace { key, pod, line });
    }
    unseen.report(turn);
    Demand {
        groups: in_order(world, found).into(),
        nominated,
    }
}

/// Keeps the room on its nominated node for a pod that no machine is made for: kube-scheduler keeps it too.
fn keep_nominated<'a>(
    turn: &DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
    key: &'a ObjectKey,
    pod: &'a Pod,
) {
    let Some(node) = &pod.nominated else {
        return;
    };
    let index = world.by_name.get(node).copied();
    let nodes = &turn.view.snapshot.cluster.nodes;
    if let Some(index) = index.filter(|_| nodes.contains_key(node))
        && pod.deletion.is_none()
        && !pod.phase.terminal()
    {
        let need = turn.view.need(key, pod);
        let id = world.intern(&key.namespace, &pod.shape);
        world.put(index, id, 1, false);
        world.supply(index, need.as_ref(), 1);
    }
}

fn in_order<'a>(world: &SimCluster<'a>, found: GroupsFound<'a>) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = found.groups().filter(|g| !g.pods.is_empty()).collect();
    for group in &mut groups {
        // They come in the order of their names.
        group.pods.sort_by_key(|one| age(one.pod));
    }
    groups.sort_by_key(|group| {
        let first = group.pods[0];
        (group.rank(world), age(first.pod), first.key)
    });
    groups
}

fn age(pod: &Pod) -> Time {
    pod.created
}

/// Whether a pod on a node that is leaving will need another place. A pod that is being deleted has its successor already, but a StatefulSet's waits for it to be gone.
pub(crate) fn displaced(turn: &DecisionBuilder<'_>, pod: &Pod) -> bool {
    let nodes = &turn.view.snapshot.cluster.nodes;
    let Some(name) = pod.node.as_ref().filter(|name| nodes.contains_key(*name)) else {
        return false;
    };
    let Some(owner) = &pod.shape.owner else {
        return false;
    };
    let settled = pod.phase.terminal() || pod.mirror || guard::is_daemon(&pod.shape);
    let succeeded = pod.deletion.is_some() && &*owner.kind != "StatefulSet";
    let cutoff = turn.view.policy.scale_up.expendable_priority;
    !settled
        && !succeeded
        && pod.shape.priority >= cutoff
        && turn.view.leaving(name)
        // What may be taken back is not counted as gone.
        && !turn.view.machine_of_node(name).is_some_and(MachineView::resumable)
}

fn classify(turn: &mut DecisionBuilder<'_>, pod: &Pod) -> Triage {
    let shape = &pod.shape;
    let cutoff = turn.view.policy.scale_up.expendable_priority;
    let owned_by = |kind: &str| shape.owner.as_ref().is_some_and(|o| *o.kind == *kind);
    if pod.phase != Phase::Pending {
        return Triage::Ignored(Ignored::Phase { phase: pod.phase });
    }
    if pod.deletion.is_some() {
        return Triage::Ignored(Ignored::BeingDeleted);
    }
    if pod.gated {
        return Triage::Ignored(Ignored::Gated);
    }
    if pod.mirror || owned_by("Node") {
        return Triage::Ignored(Ignored::Static);
    }
    if guard::is_daemon(shape) {
        return Triage::Ignored(Ignored::DaemonSet);
    }
    if !shape.scheduler.is_empty() && &*shape.scheduler != DEFAULT_SCHEDULER {
        return Triage::Ignored(Ignored::OtherScheduler {
            scheduler: shape.scheduler.clone(),
        });
    }
    if shape.devices {
        return Triage::Ignored(Ignored::Devices);
    }
    if shape.priority < cutoff {
        return Triage::Ignored(Ignored::Expendable {
            priority: shape.priority,
            cutoff,
        });
    }
    if let Some(node) = pod.nominated.as_ref().filter(|name| {
        // A nomination for a node that is gone, or going, is none.
        turn.view.snapshot.cluster.nodes.contains_key(*name) && !turn.view.leaving(name)
    }) {
        return Triage::Nominated(node.clone());
    }
    if let Some(excess) = &shape.left_out {
        return Triage::TooComplex(excess.clone());
    }
    if pod.unschedulable_since.is_none() {
        return Triage::Fresh(Ignored::NotUnschedulable);
    }
    let wanted = shape
        .annotations
        .get(DELAY)
        .and_then(|text| Span::from_go(text));
    let least = turn.view.policy.scale_up.new_pod_delay;
    // The annotation may only lengthen it.
    let longer = wanted.filter(|wanted| *wanted >= least);
    let delay = longer.unwrap_or(least);
    let due = pod.created + delay;
    if delay > Span::ZERO && due > turn.now() {
        turn.wake_at(due);
        return Triage::Fresh(match longer {
            Some(_) => Ignored::DelayAnnotation {
                annotation: DELAY.into(),
                until: due,
            },
            None => Ignored::NewPodDelay { until: due },
        });
    }
    Triage::Counts
}

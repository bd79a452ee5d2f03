//! The pods that need new machines, in the order in which they are served.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::catalog::Catalog;
use crate::constraints::fit::volumes::VolumeNeed;
use crate::decision::pod_to_place::PodToPlace;
use crate::decision::turn::DecisionBuilder;
use crate::index::{GroupIndex, IndexVec, ListIndex, PendingPodIndex, RowIndex, RunIndex, ShapeId};
use crate::simulation::demand::Group;
use crate::simulation::inter_pod::Preferences;
use crate::simulation::offer;
use crate::simulation::pack::RefusalsByChoice;
use crate::simulation::world::SimCluster;
use model::cluster::ObjectKey;
use model::reasons::{FilterFailure, Reasons, Refused};
use model::report::PodVerdict;
use model::resources::Resources;
use model::time::Time;

/// Pods of one group that still need a place.
#[derive(Debug)]
pub(super) struct PendingGroup<'a> {
    pub(super) shape: ShapeId,
    pub(super) need: Option<Arc<VolumeNeed>>,
    pub(super) pods: IndexVec<PendingPodIndex, PodToPlace<'a>>,
    /// The pods before this one have a place.
    pub(super) next: PendingPodIndex,
    /// Which row of the `FitMatrix` answers for it: which offers' empty nodes could hold one of its pods.
    pub(super) row: RowIndex,
    /// Which of [`PendingGroups::runs`] it is in.
    pub(super) run: RunIndex,
    /// Other pods matter to it.
    pub(super) dependent: bool,
    /// The pods' preferences about other pods beside them.
    pub(super) preferences: Option<Arc<Preferences>>,
    /// Every pod needs a node of its own.
    pub(super) alone: bool,
    /// Why choices were not taken, for its verdicts.
    pub(super) why: Arc<RefusalsByChoice>,
}

/// Groups that follow one another and ask the same of a node.
#[derive(Debug)]
pub(super) struct GroupRun<'a> {
    pub(super) groups: Range<GroupIndex>,
    /// What each of their pods asks.
    pub(super) asked: &'a Resources,
    /// Which row of the `FitMatrix` answers for them.
    pub(super) row: RowIndex,
    /// Every pod needs a node of its own.
    pub(super) alone: bool,
    /// What one pod is worth, in the units of the default price.
    pub(super) worth: i128,
    /// Pods that still need a place.
    pub(super) left: usize,
}

/// The pods that need new machines.
#[derive(Debug)]
pub(super) struct PendingGroups<'a> {
    /// In the order in which they are served: priority, then those whose pods each need a node of their own, then the worth of one pod, the highest first.
    pub(super) groups: IndexVec<GroupIndex, PendingGroup<'a>>,
    pub(super) runs: IndexVec<RunIndex, GroupRun<'a>>,
    /// The first pod of each group that is not among them: no pool can run it, or it waits for a claim.
    pub(super) left_out: Vec<(ShapeId, PodToPlace<'a>)>,
}

impl PendingGroup<'_> {
    /// How many pods still need a place.
    pub(super) fn left(&self) -> usize {
        self.pods.len() - self.next.position()
    }
}

impl<'a> PendingGroups<'a> {
    /// Finds out which choice could hold which group, and puts the groups in order. A group that none could hold has no
    /// compatible pool: its pods are told so and are not pending here.
    pub(super) fn sort_out(
        turn: &mut DecisionBuilder<'a>,
        world: &mut SimCluster<'a>,
        catalog: &mut Catalog<'_, 'a>,
        groups: Vec<Group<'a>>,
    ) -> PendingGroups<'a> {
        let mut left_out = Vec::new();
        let hopeful = groups.into_iter().filter_map(|group| {
            let first = (group.shape, group.pods[0]);
            let admitted = admit(turn, world, catalog, group);
            if admitted.is_none() {
                left_out.push(first);
            }
            admitted
        });
        let mut pending: Vec<PendingGroup<'a>> = hopeful.collect();
        pending.sort_by_cached_key(|group| {
            let shape = world.shapes[group.shape].shape;
            let worth = Reverse(offer::price(&shape.requests));
            let rank = (Reverse(shape.priority), !group.alone, worth);
            let first = group.pods[PendingPodIndex(0)];
            (rank, group.row, first.pod.created, first.key)
        });
        let runs = join_runs(world, &mut pending);
        PendingGroups {
            groups: pending.into(),
            runs,
            left_out,
        }
    }

    /// The UIDs of all pods that are pending.
    pub(super) fn uids(&self) -> BTreeSet<Arc<str>> {
        let pods = self.groups.iter().flat_map(|group| &group.pods);
        pods.map(|one| one.pod.uid.clone()).collect()
    }

    /// Tells all pods that their batch is open `until` then.
    pub(super) fn wait(&self, turn: &mut DecisionBuilder<'a>, until: Time) {
        for to_place in self.groups.iter().flat_map(|group| &group.pods) {
            turn.say(*to_place, &PodVerdict::Batched { until });
        }
    }

    /// Adds a group of pods that all have a place, after all others. It is no run with those before it.
    pub(super) fn append_placed(
        &mut self,
        world: &mut SimCluster<'a>,
        catalog: &mut Catalog<'_, 'a>,
        group: Group<'a>,
    ) -> GroupIndex {
        let row = catalog.rows.of(world, catalog.choices, &group);
        let mut placed = read(world, catalog, group, row);
        placed.next = PendingPodIndex(placed.pods.len());
        let index = self.groups.next_index();
        let mut alone = [placed];
        let runs = join_runs(world, &mut alone);
        for (mut run, mut own) in runs.into_vec().into_iter().zip(alone) {
            run.groups = index..GroupIndex(index.0 + 1);
            own.run = self.runs.push(run);
            self.groups.push(own);
        }
        index
    }

    /// How many pods still need a place.
    pub(super) fn left(&self) -> usize {
        self.groups.iter().map(PendingGroup::left).sum()
    }

    /// Takes the next pods of a group off the list.
    pub(super) fn take_next(
        &mut self,
        turn: &mut DecisionBuilder<'a>,
        group: GroupIndex,
        count: usize,
    ) -> Vec<PodToPlace<'a>> {
        let of = &mut self.groups[group];
        let pods = of.pods.tail(of.next)[..count].to_vec();
        of.next.0 += count;
        self.runs[of.run].left -= count;
        for to_place in &pods {
            turn.claim_reservations
                .reserve(to_place.key, of.need.as_deref());
        }
        pods
    }

    /// `placed` pods of a group have a place in the new plan, where `before` of the same pods had one.
    pub(super) fn replace_placed(&mut self, group: GroupIndex, before: usize, placed: usize) {
        let of = &mut self.groups[group];
        let run = &mut self.runs[of.run];
        of.next = PendingPodIndex((of.next.0 + placed).saturating_sub(before));
        run.left = (run.left + before).saturating_sub(placed);
    }
}

/// A group as it is pending; `None` where it is not, and its verdict is said.
fn admit<'a>(
    turn: &mut DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
    catalog: &mut Catalog<'_, 'a>,
    group: Group<'a>,
) -> Option<PendingGroup<'a>> {
    let index = catalog.rows.of(world, catalog.choices, &group);
    let row = catalog.rows.get(index);
    let why = row.why.clone();
    if let Some(verdict) = waits_for_claim(turn, group.pods[0].key, group.need.as_deref()) {
        turn.say(group.pods[0], &verdict);
        return None;
    }
    if !row.hopeful() {
        let verdict = if row.known {
            PodVerdict::NoCompatiblePool { why }
        } else {
            PodVerdict::Held { why }
        };
        for to_place in &group.pods {
            turn.say(*to_place, &verdict);
        }
        return None;
    }
    Some(read(world, catalog, group, index))
}

/// A group with what is asked of it while plans are made.
fn read<'a>(
    world: &mut SimCluster<'a>,
    catalog: &Catalog<'_, 'a>,
    group: Group<'a>,
    row: RowIndex,
) -> PendingGroup<'a> {
    let rules = world.rules(group.shape);
    let preferences = world.preferences(group.shape, false);
    let ports = &world.shapes[group.shape].shape.host_ports;
    PendingGroup {
        shape: group.shape,
        need: group.need,
        pods: group.pods.into(),
        next: PendingPodIndex(0),
        row,
        run: RunIndex(0),
        dependent: rules.is_some(),
        preferences,
        alone: rules.is_some_and(|rules| rules.need_a_node_each()) || !ports.is_empty(),
        why: catalog.rows.get(row).why.clone(),
    }
}

/// Joins groups that follow one another and ask the same of a node, and tells each which run it is in.
fn join_runs<'a>(
    world: &SimCluster<'a>,
    groups: &mut [PendingGroup<'a>],
) -> IndexVec<RunIndex, GroupRun<'a>> {
    let mut runs: IndexVec<RunIndex, GroupRun<'a>> = IndexVec::default();
    for (index, group) in groups.iter_mut().enumerate() {
        let shape = world.shapes[group.shape].shape;
        let (row, alone, left) = (group.row, group.alone, group.left());
        let last = runs.last_mut();
        let last = last.filter(|run| (run.row, run.alone) == (row, alone));
        if let Some(run) = last {
            run.left += left;
            run.groups.end = GroupIndex(index + 1);
        } else {
            // A pod is worth something even if it asks for nothing.
            let worth = i128::from(offer::price(&shape.requests)).saturating_add(1);
            runs.push(GroupRun {
                groups: GroupIndex(index)..GroupIndex(index + 1),
                asked: &shape.requests,
                row,
                alone,
                worth,
                left,
            });
        }
        group.run = RunIndex(runs.len() - 1);
    }
    runs
}

/// The verdict on a pod whose claim is for one pod alone and goes to another.
pub(super) fn waits_for_claim(
    turn: &DecisionBuilder<'_>,
    key: &ObjectKey,
    need: Option<&VolumeNeed>,
) -> Option<PodVerdict> {
    let volume = turn.claim_reservations.refusal(key, need)?;
    let filter_failure = Box::new(FilterFailure::Volume { volume });
    let refusals = Refused::FilterFailure { filter_failure }.into();
    let why: Reasons = Arc::new(RefusalsByChoice::from([("*".into(), refusals)]));
    Some(PodVerdict::Held { why })
}

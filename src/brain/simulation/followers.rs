//! Followers: pods that must be on the node of a pod that has no place yet, their *target*.
//!
//! On nodes that work kube-scheduler puts a target wherever it has room, and followers that find no room beside it wait for ever. To a machine on its way a
//! target goes with room for its followers beside it. Without that it asks for a new machine, which scale-up makes for all of them.

use std::collections::{BTreeMap, BTreeSet};

use model::resources::Resources;

use crate::index::{CounterId, DemandIndex};
use crate::simulation::demand::{Group, Groups};
use crate::simulation::world::{NodeOrigin, SimCluster, SimNode};

/// The followers of each target.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    by_target: BTreeMap<DemandIndex, TargetRoom>,
}

/// What a target needs beside itself.
#[derive(Debug, Default)]
pub(crate) struct TargetRoom {
    /// Groups of followers, those of followers too: first those that follow the target itself. A group that wants its own pods
    /// together is among its followers.
    pub(crate) followers: Vec<DemandIndex>,
    /// What the followers of one pod of the target ask for.
    pub(crate) beside: Resources,
}

impl Followers {
    /// What the pods of a group need beside them, if they are targets.
    pub(crate) fn of(&self, target: DemandIndex) -> Option<&TargetRoom> {
        self.by_target.get(&target)
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_target.is_empty()
    }

    /// Finds them, where machines are on their way.
    pub(crate) fn find(world: &mut SimCluster<'_>, groups: &Groups<'_>) -> Followers {
        let on_its_way =
            |node: &SimNode| !node.closed && matches!(node.origin, NodeOrigin::Machine(_));
        if !world.nodes.iter().any(on_its_way) {
            return Followers::default();
        }
        let direct = Direct::find(world, groups);
        let mut by_target = BTreeMap::new();
        for target in direct.followers.keys() {
            let mut room = TargetRoom::default();
            let mut above = BTreeSet::from([*target]);
            direct.add(*target, 1, (world, groups), &mut above, &mut room);
            by_target.insert(*target, room);
        }
        Followers { by_target }
    }
}

/// Who follows whom, at one remove.
#[derive(Debug, Default)]
struct Direct {
    /// By target: its followers, each with the counter of the pods that it must be with one of.
    followers: BTreeMap<DemandIndex, BTreeMap<DemandIndex, CounterId>>,
    /// By counter: how many pods have no place yet that it will count.
    targets: BTreeMap<CounterId, usize>,
}

impl Direct {
    fn find(world: &mut SimCluster<'_>, groups: &Groups<'_>) -> Direct {
        let mut found = Direct::default();
        let mut waiting: BTreeMap<CounterId, Vec<DemandIndex>> = BTreeMap::new();
        let calling = |(_, group): &(DemandIndex, &Group<'_>)| group.calls();
        for (index, group) in groups.indexed().filter(calling) {
            let Some(rules) = world.rules(group.shape) else {
                continue;
            };
            for counter in world.inter_pod.missing_on_node(&rules) {
                waiting.entry(counter).or_default().push(index);
            }
        }
        if waiting.is_empty() {
            return found;
        }
        for (target, group) in groups.indexed().filter(calling) {
            for counter in world.inter_pod.counters_of(group.shape) {
                let Some(followers) = waiting.get(counter) else {
                    continue;
                };
                *found.targets.entry(*counter).or_default() += group.pods.len();
                let of_target = found.followers.entry(target).or_default();
                of_target.extend(followers.iter().map(|follower| (*follower, *counter)));
            }
        }
        found
    }

    /// Adds what `pods` pods of a target need beside them. `above`: the groups that these follow, which are not counted again.
    fn add(
        &self,
        target: DemandIndex,
        pods: usize,
        (world, groups): (&SimCluster<'_>, &Groups<'_>),
        above: &mut BTreeSet<DemandIndex>,
        room: &mut TargetRoom,
    ) {
        let Some(followers) = self.followers.get(&target) else {
            return;
        };
        for (follower, counter) in followers {
            let all = groups[*follower].pods.len();
            let count = if *follower == target {
                all.saturating_sub(1)
            } else if above.insert(*follower) {
                let targets = self.targets.get(counter).copied().unwrap_or(1).max(1);
                all.saturating_mul(pods).div_ceil(targets).min(all)
            } else {
                continue;
            };
            if !room.followers.contains(follower) {
                room.followers.push(*follower);
            }
            let asked = &world.shapes[groups[*follower].shape].shape.requests;
            room.beside.add(&asked.times(count));
            if *follower != target {
                self.add(*follower, count, (world, groups), above, room);
            }
        }
    }
}

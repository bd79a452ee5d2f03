//! Targets and followers that wait together. A *follower* must be on the node of another pod, its *target* (required pod affinity
//! within `kubernetes.io/hostname`).
//!
//! Nothing moves a target once it is bound. On a machine on its way that has no room beside it, its followers would wait for ever. So a
//! target goes there with its followers or, where a new machine could hold all of them, not at all: scale-up places them together.
//!
//! Only where pods are nominated for the nodes of machines on their way: else kube-scheduler takes the first node that takes pods, as it
//! does on nodes that work in any case.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::resources::Resources;
use model::scheduling::PodShape;

use crate::constraints::fit::amounts;
use crate::constraints::shape::HOSTNAME_LABEL;
use crate::decision::turn::DecisionBuilder;
use crate::index::{CounterId, DemandIndex, FitPlaceIndex, KeyId, NodeIndex};
use crate::simulation::demand::{Groups, TargetStanding};
use crate::simulation::fit_index::FitIndex;
use crate::simulation::inter_pod::Rules;
use crate::simulation::inter_pod::topology::DomainsByKey;
use crate::simulation::offer::{Choice, ChoiceList, Daemon, Offer};
use crate::simulation::pack::{self, PlacedPods};
use crate::simulation::work;
use crate::simulation::world::{NodeOrigin, Saved, SimCluster};

/// Groups of followers of one target, and targets of one follower, at most. Where there are more, each pod is placed by itself.
const MAX_GROUPS: usize = 32;

/// Offers of which one more machine may be made.
pub(crate) type OpenOffers<'c, 'a> = Vec<(&'c Choice<'a>, &'c Offer<'a>)>;

/// Lists those of some choices.
pub(crate) type ListOpen<'c, 'a> =
    fn(&DecisionBuilder<'a>, &'c ChoiceList<'a>) -> OpenOffers<'c, 'a>;

/// Who follows whom, of the groups that have no place yet.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    /// By target: the groups that follow it. A group whose pods want each other is among its own.
    of_target: BTreeMap<DemandIndex, Vec<DemandIndex>>,
    /// By follower: its targets.
    of_follower: BTreeMap<DemandIndex, Vec<DemandIndex>>,
}

/// Pods that go to one node together: one pod of a target, or all of one whose pods want each other, with its share of followers.
#[derive(Debug)]
struct TargetUnit {
    /// Groups with how many pods of each; a target comes before its followers.
    parts: Vec<(DemandIndex, usize)>,
    /// What they ask together.
    asked: Resources,
}

impl Followers {
    /// Finds them, where pods are nominated and a machine is on its way.
    pub(crate) fn find<'a>(
        turn: &DecisionBuilder<'a>,
        world: &mut SimCluster<'a>,
        groups: &Groups<'a>,
    ) -> Followers {
        let mut found = Followers::default();
        let mut nodes = world.nodes.indexes();
        let nominates = turn.view.policy.scale_up.nominate_pods;
        if !(nominates && nodes.any(|node| is_coming(world, node))) {
            return found;
        }
        let mut following: BTreeMap<CounterId, Vec<DemandIndex>> = BTreeMap::new();
        for (index, group) in groups.indexed().filter(|(_, group)| group.calls()) {
            if !follows(world.shapes[group.shape].shape) {
                continue;
            }
            let rules = world.rules(group.shape);
            let counter = rules.and_then(|rules| world.inter_pod.wanted_on_node(&rules));
            if let Some(counter) = counter {
                following.entry(counter).or_default().push(index);
            }
        }
        if following.is_empty() {
            return found;
        }
        let mut followed: BTreeMap<CounterId, Vec<DemandIndex>> = BTreeMap::new();
        for (index, group) in groups.indexed().filter(|(_, group)| group.calls()) {
            let counters = world.inter_pod.counters_of(group.shape);
            world.inter_pod.work(counters.len());
            for counter in counters.iter().filter(|of| following.contains_key(*of)) {
                followed.entry(*counter).or_default().push(index);
            }
        }
        for (counter, targets) in followed {
            let followers = &following[&counter];
            if targets.len().max(followers.len()) > MAX_GROUPS {
                continue;
            }
            for target in &targets {
                found
                    .of_target
                    .entry(*target)
                    .or_default()
                    .extend(followers);
            }
            for follower in followers {
                found.of_follower.insert(*follower, targets.clone());
            }
        }
        found
    }

    /// The groups that follow a target.
    fn of(&self, target: DemandIndex) -> &[DemandIndex] {
        self.of_target.get(&target).map_or(&[], Vec::as_slice)
    }

    /// Takes the places on machines on their way (nodes by the pod's UID) from targets without a follower there, while followers of theirs
    /// have no place: these have come since.
    pub(crate) fn release(
        &self,
        world: &SimCluster<'_>,
        groups: &Groups<'_>,
        places: &mut BTreeMap<Arc<str>, NodeIndex>,
    ) {
        for (target, followers) in &self.of_target {
            let followers = followers
                .iter()
                .flat_map(|follower| &groups[*follower].pods);
            let followers = followers.map(|follower| places.get(&follower.pod.uid).copied());
            let followers: BTreeSet<Option<NodeIndex>> = followers.collect();
            if !followers.contains(&None) {
                continue;
            }
            let pods = &groups[*target].pods;
            world.inter_pod.work(pods.len() + followers.len());
            for pod in pods {
                let place = places.get(&pod.pod.uid).copied();
                let alone = place.filter(|_| !followers.contains(&place));
                if alone.is_some_and(|node| is_coming(world, node)) {
                    places.remove(&pod.pod.uid);
                }
            }
        }
    }

    /// The next pod of a target that waits, with its share of the followers that wait; `None` where no other pod has to be with it.
    fn find_unit(
        &self,
        world: &mut SimCluster<'_>,
        groups: &Groups<'_>,
        target: DemandIndex,
    ) -> Option<TargetUnit> {
        let left = |group: DemandIndex| groups[group].pods.len();
        if left(target) == 0 {
            return None;
        }
        let first = is_first_of_its_kind(world, groups, target);
        let mut parts = vec![(target, if first { left(target) } else { 1 })];
        let mut at = 0;
        while let Some((followed, count)) = parts.get(at).copied() {
            at += 1;
            for follower in self.of(followed) {
                let known = parts.iter().any(|(group, _)| group == follower);
                if known || left(*follower) == 0 {
                    continue;
                }
                let targets = &self.of_follower[follower];
                world.inter_pod.work(targets.len());
                let count = if !targets.contains(follower) {
                    let all: usize = targets.iter().map(|target| left(*target)).sum();
                    let share = left(*follower).saturating_mul(count);
                    share.div_ceil(all.max(1)).min(left(*follower))
                } else if is_first_of_its_kind(world, groups, *follower) {
                    left(*follower)
                } else {
                    // They go where others of their kind are.
                    continue;
                };
                if parts.len() > MAX_GROUPS {
                    return None;
                }
                parts.push((*follower, count));
            }
        }
        let mut asked = Resources::default();
        for (group, count) in &parts {
            let requests = &world.shapes[groups[*group].shape].shape.requests;
            amounts::sum_up(&mut asked, requests, *count);
        }
        (asked.pods > 1).then_some(TargetUnit { parts, asked })
    }
}

/// Puts targets on what there is.
pub(crate) struct TargetPlacing<'c, 'a> {
    followers: Followers,
    /// The first place of a machine on its way: those before it are of nodes that work.
    first_machine: FitPlaceIndex,
    /// What a new machine could be, and which of it may be made now; listed once it is asked for.
    choices: &'c ChoiceList<'a>,
    list_open: ListOpen<'c, 'a>,
    open: Option<OpenOffers<'c, 'a>>,
}

impl<'c, 'a> TargetPlacing<'c, 'a> {
    /// Nothing is placed yet.
    pub(crate) fn new(
        followers: Followers,
        first_machine: FitPlaceIndex,
        (choices, list_open): (&'c ChoiceList<'a>, ListOpen<'c, 'a>),
    ) -> TargetPlacing<'c, 'a> {
        TargetPlacing {
            followers,
            first_machine,
            choices,
            list_open,
            open: None,
        }
    }

    /// Whether a group has followers, or had when nothing was placed.
    pub(crate) fn has(&self, target: DemandIndex) -> bool {
        !self.followers.of(target).is_empty()
    }

    /// Places what fits of a target: on nodes that work as any other group, on machines on their way with its followers. What is left goes there alone unless
    /// a new machine could hold a pod of it with its followers. Returns whether anything was placed, followers included. `rank` is the rank that the
    /// target is of.
    pub(crate) fn settle(
        &mut self,
        turn: &mut DecisionBuilder<'a>,
        world: &mut SimCluster<'a>,
        groups: &mut Groups<'a>,
        (target, rank): (DemandIndex, &[DemandIndex]),
        fit_index: &mut FitIndex,
    ) -> bool {
        groups[target].standing = TargetStanding::Free;
        let mut placed = fit_index.up_to(self.first_machine, |nodes| {
            pack::settle(turn, world, &mut groups[target], nodes, false)
        });
        // Followers of pods that have a place follow these first.
        let followers = self.followers.of(target).iter();
        for follower in followers.filter(|of| **of != target && rank.binary_search(of).is_ok()) {
            placed |= pack::settle(turn, world, &mut groups[*follower], fit_index, false);
        }
        if pack::is_stranded(world, groups[target].shape) {
            return placed;
        }
        placed |= self.place_units(turn, world, groups, target, fit_index);
        if let Some(unit) = self.followers.find_unit(world, groups, target) {
            let held_back = self.fits_on_new(turn, world, groups, &unit);
            groups[target].standing = if held_back {
                TargetStanding::HeldBack
            } else {
                TargetStanding::Provisional
            };
            if held_back {
                return placed;
            }
        }
        pack::settle(turn, world, &mut groups[target], fit_index, false) || placed
    }

    /// Places units of a target on machines on their way, first fit. Returns whether anything was placed.
    fn place_units(
        &self,
        turn: &mut DecisionBuilder<'a>,
        world: &mut SimCluster<'a>,
        groups: &mut Groups<'a>,
        target: DemandIndex,
        fit_index: &mut FitIndex,
    ) -> bool {
        let mut placed = false;
        let mut from = self.first_machine;
        while !work::used_up(turn, world, 0)
            && let Some(unit) = self.followers.find_unit(world, groups, target)
        {
            let found = fit_index.find(&world.nodes, from, &unit.asked, |node| {
                let fits = unit.asked.fits(&world.nodes[node].free);
                fits.then_some(node)
            });
            let Some((place, node)) = found else {
                break;
            };
            from = place;
            if unit.put(turn, world, groups, node) {
                placed = true;
            } else {
                from.0 += 1;
            }
        }
        placed
    }

    /// Whether an empty node of an offer could hold a unit, and one more machine of it may be made.
    fn fits_on_new(
        &mut self,
        turn: &DecisionBuilder<'a>,
        world: &mut SimCluster<'a>,
        groups: &Groups<'a>,
        unit: &TargetUnit,
    ) -> bool {
        let (choices, list_open) = (self.choices, self.list_open);
        let open = self.open.get_or_insert_with(|| list_open(turn, choices));
        world.inter_pod.work(open.len());
        let mut open = open.iter();
        !work::used_up(turn, world, 0)
            && open.any(|(choice, offer)| unit.fits_on_new(world, groups, choice, offer))
    }
}

impl TargetUnit {
    /// Puts the pods on one node, where it takes all of them. Returns whether it did.
    fn put<'a>(
        &self,
        turn: &mut DecisionBuilder<'a>,
        world: &mut SimCluster<'a>,
        groups: &mut Groups<'a>,
        node: NodeIndex,
    ) -> bool {
        let mut there = FitIndex::over(&[node], world);
        let mut undo: Vec<(NodeIndex, Saved)> = Vec::new();
        let fits = self.parts.iter().all(|(group, count)| {
            let of = &groups[*group];
            let need = of.need.as_deref();
            // These come off its list one by one.
            world.inter_pod.work(of.pods.len());
            if turn
                .claim_reservations
                .refusal(of.pods[0].key, need)
                .is_some()
            {
                return false;
            }
            let asked = (of.shape, need);
            pack::put_unforced(world, asked, *count, &mut there, &mut undo) == *count
        });
        if !fits {
            for (at, saved) in undo.into_iter().rev() {
                world.restore(at, saved);
            }
            return false;
        }
        for (group, count) in &self.parts {
            let of = &mut groups[*group];
            let pods: Vec<_> = of.pods.drain(..*count).collect();
            pack::place_pods(turn, world, of, &pods, |_, _, _| {
                vec![PlacedPods::free(node, *count)]
            });
        }
        true
    }

    /// Whether an empty node of an offer could hold them, rules of theirs about each other aside.
    fn fits_on_new(
        &self,
        world: &mut SimCluster<'_>,
        groups: &Groups<'_>,
        choice: &Choice<'_>,
        offer: &Offer<'_>,
    ) -> bool {
        if !self.asked.fits(&offer.free) {
            return false;
        }
        world.inter_pod.work(self.parts.len());
        let each_fits = self.parts.iter().all(|(group, _)| {
            let of = &groups[*group];
            let volume = of.need.as_deref().and_then(|need| {
                let given = &world.assumed;
                choice.volume_filter_failure(offer, need, &world.free_volumes, given)
            });
            let shape = world.shapes[of.shape].shape;
            volume.is_none() && choice.filter_failure(offer, shape).is_none()
        });
        if !each_fits {
            return false;
        }
        // Rules that were not asked for before may bring further keys.
        let parts = self.parts.iter();
        let rules: Vec<Option<Arc<Rules>>> = parts
            .map(|(group, _)| world.rules(groups[*group].shape))
            .collect();
        let keys = world.inter_pod.key_ids();
        let domains: DomainsByKey = keys
            .map(|key| world.inter_pod.domain(key, &offer.labels))
            .collect();
        let daemons = offer.residents.iter().map(Daemon::pod);
        let at = |key: KeyId| domains[key];
        rules.iter().enumerate().all(|(part, rules)| {
            let Some(rules) = rules else {
                return true;
            };
            let most = match part {
                0 => world.inter_pod.most_beside(rules, at, &daemons),
                _ => world.inter_pod.most_with_targets(rules, at),
            };
            most > 0
        })
    }
}

/// Whether a place is of a machine on its way, and open.
fn is_coming(world: &SimCluster<'_>, node: NodeIndex) -> bool {
    let node = &world.nodes[node];
    !node.closed && matches!(node.origin, NodeOrigin::Machine(_))
}

/// Whether pods of a shape must be on the node of others.
fn follows(shape: &PodShape) -> bool {
    let mut terms = shape.pod_affinity.iter();
    terms.any(|term| *term.topology_key == *HOSTNAME_LABEL)
}

/// Whether pods of a group want each other, and none that they want has a place yet.
fn is_first_of_its_kind(
    world: &mut SimCluster<'_>,
    groups: &Groups<'_>,
    group: DemandIndex,
) -> bool {
    let rules = world.rules(groups[group].shape);
    rules.is_some_and(|rules| world.inter_pod.first_of_its_kind(&rules))
}

//! Reads a world into plain numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::BoundInput;
use super::apart::{self, Clique};
use super::problem::{Amounts, CoverProblem, ExistingNode, MachineOption, PODS, PodClass, holds};
use crate::check::matching::mismatch_with;
use crate::constraints::fit::NEW;
use crate::constraints::shape::{NamespacedShape, Resident};
use crate::index::{
    ChoiceIndex, CliqueIndex, IndexVec, NodeFiltersId, PodClassIndex, PoolIndex, RoomIndex, ShapeId,
};
use crate::simulation::offer::{Choice, ChoiceList};
use crate::simulation::world::{SimCluster, SimNode};
use model::resources::Resources;
use model::scheduling::{Labels, NodeTerm, PodShape, Toleration};

/// Questions whether a pod's selector and tolerations let it onto a node there is, at most; what is not asked counts as a
/// yes, which only lowers the bound.
const MAX_QUESTIONS: usize = 200_000;

/// What the filters that look at labels and taints read of a pod.
type NodeFilters<'a> = (&'a Labels, &'a Option<Vec<NodeTerm>>, &'a [Toleration]);

/// The key of a class of pods: pods that differ in one part of it are in different classes.
type PodClassKey = (NodeFiltersId, Amounts, Vec<CliqueIndex>);

/// Classes of pods by their indexes, and a shape of each, in the same order.
type FoundClasses<'a> = (IndexVec<PodClassIndex, PodClass>, Vec<&'a PodShape>);

/// The names of the resources that somebody asks for, in the order of amounts.
struct ResourceNames(Vec<Arc<str>>);

impl ResourceNames {
    fn of<'n>(&'n self, of: &'n Resources) -> impl Iterator<Item = i64> + 'n {
        let fixed = [of.cpu_milli, of.memory, of.ephemeral, of.pods];
        let extended = self.0.iter().map(|name| of.get(name));
        let all = fixed.into_iter().chain(extended);
        all.map(|amount| amount.max(0))
    }

    fn amounts(&self, of: &Resources) -> Amounts {
        let mut amounts: Amounts = Vec::with_capacity(4 + self.0.len()).into();
        amounts.extend(self.of(of));
        amounts
    }
}

/// The world as a problem. `kept` are the machines made for the `min` of each pool.
pub(super) fn read_problem(
    world: &SimCluster<'_>,
    choices: &ChoiceList<'_>,
    before: &BoundInput,
    kept: IndexVec<PoolIndex, i128>,
) -> CoverProblem {
    let asked = before.asked.indexed();
    let asked = asked.filter(|(_, count)| **count > 0);
    let pods: Vec<(NamespacedShape<'_>, u64)> = asked
        .map(|(shape, count)| (world.shapes[shape], *count))
        .collect();
    let names = pods
        .iter()
        .flat_map(|(pod, _)| &pod.shape.requests.extended);
    let names: BTreeSet<&Arc<str>> = names
        .filter(|(_, n)| **n > 0)
        .map(|(name, _)| name)
        .collect();
    let names = ResourceNames(names.into_iter().cloned().collect());
    let candidates = choices.iter().map(|of| candidate(of, &names));
    let candidates: IndexVec<ChoiceIndex, MachineOption> = candidates.collect();
    let (cliques, within) = apart::find_cliques(&pods);
    let (mut classes, shapes) = find_classes(&pods, &within, &names);
    for (class, shape) in classes.iter_mut().zip(&shapes) {
        class.may = may_be_made(shape, &class.amounts, choices, &candidates);
    }
    // One that only a node there is could take: that it is placed is all that is known.
    let known: Vec<bool> = classes
        .iter()
        .map(|class| class.may.contains(&true))
        .collect();
    let mut keep = known.iter();
    classes.retain(|_| *keep.next().unwrap_or(&false));
    let shapes = shapes.into_iter().zip(&known);
    let shapes: Vec<&PodShape> = shapes
        .filter(|(_, is_known)| **is_known)
        .map(|(s, _)| s)
        .collect();
    let rooms = rooms(world, before, &names, &classes, &shapes, &cliques);
    CoverProblem {
        classes,
        candidates,
        rooms,
        cliques: cliques.len(),
        kept,
    }
}

/// What a choice offers at most on a host it can be made on.
fn candidate(choice: &Choice<'_>, names: &ResourceNames) -> MachineOption {
    let mut amounts = names.amounts(&Resources::default());
    for offer in choice.offers.iter().filter(|offer| offer.copy.is_ok()) {
        for (most, amount) in amounts.iter_mut().zip(names.of(&offer.free)) {
            *most = amount.max(*most);
        }
    }
    MachineOption {
        amounts,
        price: i128::from(choice.price),
        pool: choice.pool_index,
    }
}

/// Alike pods together, with a shape of each.
fn find_classes<'a>(
    pods: &[(NamespacedShape<'a>, u64)],
    within: &[Vec<CliqueIndex>],
    names: &ResourceNames,
) -> FoundClasses<'a> {
    let mut ids: BTreeMap<NodeFilters<'a>, NodeFiltersId> = BTreeMap::new();
    let mut known: BTreeMap<PodClassKey, PodClassIndex> = BTreeMap::new();
    let (mut classes, mut shapes): FoundClasses<'a> = (IndexVec::default(), Vec::new());
    for ((pod, count), cliques) in pods.iter().zip(within) {
        let shape = pod.shape;
        let requirements = (
            &shape.node_selector,
            &shape.node_affinity,
            &shape.tolerations[..],
        );
        let next = NodeFiltersId(ids.len());
        let requirements = *ids.entry(requirements).or_insert(next);
        let mut amounts = names.amounts(&shape.requests);
        // Every pod takes one slot, whatever it says.
        amounts[PODS] = 1;
        let key = (requirements, amounts, cliques.clone());
        let class = *known.entry(key).or_insert_with_key(|(_, asked, _)| {
            shapes.push(shape);
            classes.push(PodClass {
                amounts: asked.clone(),
                count: 0,
                may: IndexVec::default(),
                cliques: cliques.clone(),
            })
        });
        classes[class].count += i128::from(*count);
    }
    (classes, shapes)
}

/// By choice: whether one such pod could be on some machine of it.
fn may_be_made(
    shape: &PodShape,
    asked: &Amounts,
    choices: &ChoiceList<'_>,
    candidates: &IndexVec<ChoiceIndex, MachineOption>,
) -> IndexVec<ChoiceIndex, bool> {
    let both = choices.iter().zip(candidates);
    both.map(|(choice, candidate)| {
        let mut offers = choice.offers.iter().filter(|offer| offer.copy.is_ok());
        let taints = &choice.policy.taints;
        holds(&candidate.amounts, asked)
            && offers.any(|offer| mismatch_with(shape, NEW, &offer.labels, taints).is_none())
    })
    .collect()
}

/// The places that could take any of the pods.
fn rooms(
    world: &SimCluster<'_>,
    before: &BoundInput,
    names: &ResourceNames,
    classes: &IndexVec<PodClassIndex, PodClass>,
    shapes: &[&PodShape],
    cliques: &IndexVec<CliqueIndex, Clique<'_>>,
) -> IndexVec<RoomIndex, ExistingNode> {
    let mut questions = 0;
    let mut bars = cliques.with_each(world.shapes.with_each(None));
    let mut rooms = IndexVec::default();
    for (index, free) in &before.rooms {
        let (node, amounts) = (&world.nodes[*index], names.amounts(free));
        let fits = classes.iter().zip(shapes).map(|(class, shape)| {
            if !holds(&amounts, &class.amounts) {
                return false;
            }
            questions += 1;
            questions > MAX_QUESTIONS
                || mismatch_with(shape, &node.name, &node.labels, &node.taints).is_none()
        });
        let may: IndexVec<PodClassIndex, bool> = fits.collect();
        if !may.contains(&true) {
            continue;
        }
        let barred = stays(node, world, cliques, &mut bars);
        let most = apart::count_most_in_room(cliques, &node.labels, &barred);
        rooms.push(ExistingNode { amounts, may, most });
    }
    rooms
}

/// By clique: whether a pod that stays on a place keeps its pods off. `known` remembers the answers.
fn stays(
    node: &SimNode,
    world: &SimCluster<'_>,
    cliques: &IndexVec<CliqueIndex, Clique<'_>>,
    known: &mut IndexVec<CliqueIndex, IndexVec<ShapeId, Option<bool>>>,
) -> IndexVec<CliqueIndex, bool> {
    // What this decision put there could be elsewhere in another plan.
    let moves = |shape: ShapeId| -> u64 {
        let new_pods = node.new_pods.iter().filter(|(of, ..)| *of == shape);
        new_pods.map(|(_, _, count)| *count as u64).sum()
    };
    let stays = |r: &&Resident| !r.deleting && !world.expendable(r.shape);
    let stay = node.residents.iter().filter(stays);
    let stay: Vec<ShapeId> = stay
        .filter(|resident| resident.count > moves(resident.shape))
        .map(|resident| resident.shape)
        .collect();
    let of = cliques.iter().zip(known);
    of.map(|(clique, barred)| {
        stay.iter().any(|shape| {
            *barred[*shape].get_or_insert_with(|| clique.barred_by(world.shapes[*shape]))
        })
    })
    .collect()
}

//! One trial: these nodes gone, their pods on what is left and on one machine that is cheaper.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::cost;
use crate::constraints::fit::NEW;
use crate::constraints::shape::HOSTNAME_LABEL;
use crate::decision::turn::DecisionBuilder;
use crate::index::{ChoiceIndex, NodeIndex, OfferIndex, PlannedIndex};
use crate::observed::view::MachineView;
use crate::scale_down::candidates::RemovalCandidate;
use crate::scale_down::rehearsal::{self, RehearsalUndo, Unplaced};
use crate::scale_up::limits::LimitTracker;
use crate::scale_up::one_machine;
use crate::simulation::offer::{self, Choice, ChoiceList};
use crate::simulation::pack::FitIndex;
use crate::simulation::world::{NodeOrigin, SimCluster};
use model::cluster::ObjectKey;
use model::policy::Policy;
use model::reasons::{Refusals, Refused};

/// What trials are made with.
pub(super) struct ReplacementSearch<'b, 'a> {
    pub(super) choices: &'b ChoiceList<'a>,
    pub(super) limits: &'b LimitTracker,
    /// Where pods may be sent, in order.
    pub(super) order: &'b [NodeIndex],
    /// Nodes that exist, and to which consolidation sends no pods: unneeded ones, which may go soon, and restless ones.
    pub(super) spare: &'b [NodeIndex],
    /// Places that stand for new machines, by choice and offer.
    pub(super) places: BTreeMap<(ChoiceIndex, OfferIndex), NodeIndex>,
    /// Work steps that this decision had made when the search began.
    pub(super) steps_at_begin: u64,
}

/// A topology key and one of its values.
type Domain = (Arc<str>, Arc<str>);

/// A machine that would do.
#[derive(Clone, Debug)]
pub(super) struct ReplacementMachine {
    pub(super) choice: ChoiceIndex,
    pub(super) offer: OfferIndex,
    pub(super) saving: i64,
    /// The pods it is for, sorted.
    pub(super) pods: Vec<ObjectKey>,
    /// Where the other pods would go.
    pub(super) moves: BTreeMap<ObjectKey, Arc<str>>,
    /// Why cheaper choices lost, and more expensive ones.
    pub(super) others: BTreeMap<Arc<str>, Refusals>,
}

/// The cheapest machine that takes the place of these nodes, if it saves enough. The world is as it
/// was afterwards.
pub(super) fn find_replacement<'a>(
    turn: &DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
    search: &mut ReplacementSearch<'_, 'a>,
    nodes: &[&RemovalCandidate<'a>],
) -> Option<ReplacementMachine> {
    let mut undo = RehearsalUndo::default();
    for node in nodes {
        rehearsal::close(world, node.index, &mut undo);
    }
    if fits_on_spare_nodes(world, search, nodes) {
        undo.roll_back(world);
        return None;
    }
    let open = rehearsal::open(world, search.order, &BTreeSet::new(), None);
    let mut fit_index = FitIndex::over(&open, world);
    let mut domains: BTreeSet<Domain> = BTreeSet::new();
    let mut moves = BTreeMap::new();
    let mut unplaced = Vec::new();
    for node in nodes {
        let lone = find_lone_domains(world, node);
        if lone.is_empty() {
            let left = rehearsal::reschedule(world, node, &mut fit_index, &mut moves, &mut undo);
            unplaced.extend(left);
            continue;
        }
        // Its pods would leave a domain that nothing else is in: only a machine there will do.
        domains.extend(lone);
        unplaced.extend(node.loads.iter().map(|load| Unplaced {
            load,
            pods: load.pods.clone(),
        }));
    }
    let found = if unplaced.is_empty() {
        None
    } else {
        find_cheapest(turn, world, search, nodes, &unplaced, &domains)
    };
    undo.roll_back(world);
    let machine = found?;
    is_order_independent(world, search, nodes, &machine, &open)
        .then_some(ReplacementMachine { moves, ..machine })
}

/// Whether the pods find room on what is left and the machine in whatever order they come.
fn is_order_independent<'a>(
    world: &mut SimCluster<'a>,
    search: &mut ReplacementSearch<'_, 'a>,
    nodes: &[&RemovalCandidate<'a>],
    machine: &ReplacementMachine,
    open: &[NodeIndex],
) -> bool {
    let new_node = search.place(world, (machine.choice, machine.offer));
    let mut undo = RehearsalUndo::default();
    for node in nodes {
        rehearsal::close(world, node.index, &mut undo);
    }
    world.reopen(new_node);
    // The new machine's name is not known yet: it may be filled first, or last.
    let rest = rehearsal::by_name(world, open.to_vec());
    let first: Vec<NodeIndex> = [new_node].into_iter().chain(rest.iter().copied()).collect();
    let last: Vec<NodeIndex> = rest.into_iter().chain([new_node]).collect();
    let order_independent = [first, last].iter().all(|order| {
        let mut fit_index = FitIndex::indexed(order, world);
        rehearsal::is_order_independent(world, nodes, &mut fit_index)
    });
    world.close(new_node);
    undo.roll_back(world);
    order_independent
}

/// Whether the pods would fit on what there is, with the nodes that are unneeded or not yet quiet: then
/// no machine is made, and it shows in a while what goes.
fn fits_on_spare_nodes<'a>(
    world: &mut SimCluster<'a>,
    search: &ReplacementSearch<'_, 'a>,
    nodes: &[&RemovalCandidate<'a>],
) -> bool {
    if search.spare.is_empty() {
        return false;
    }
    let mut undo = RehearsalUndo::default();
    let mut opened = Vec::new();
    for node in search.spare {
        if world.nodes[*node].closed {
            world.reopen(*node);
            opened.push(*node);
        }
    }
    let order: Vec<NodeIndex> = search.order.iter().chain(search.spare).copied().collect();
    let gone: BTreeSet<NodeIndex> = nodes.iter().map(|node| node.index).collect();
    let open = rehearsal::open(world, &order, &gone, None);
    let mut moves = BTreeMap::new();
    let mut fit_index = FitIndex::over(&open, world);
    let fits = nodes.iter().all(|node| {
        rehearsal::reschedule(world, node, &mut fit_index, &mut moves, &mut undo).is_empty()
    });
    undo.roll_back(world);
    for node in opened {
        world.close(node);
    }
    fits
}

fn find_cheapest<'a>(
    turn: &DecisionBuilder<'a>,
    world: &mut SimCluster<'a>,
    search: &mut ReplacementSearch<'_, 'a>,
    nodes: &[&RemovalCandidate<'a>],
    unplaced: &[Unplaced<'_, 'a>],
    domains: &BTreeSet<Domain>,
) -> Option<ReplacementMachine> {
    let olds: Vec<&MachineView<'a>> = nodes
        .iter()
        .filter_map(|node| turn.view.machine_of_node(node.name))
        .collect();
    let price = nodes
        .iter()
        .fold(0i64, |sum, node| sum.saturating_add(node.price));
    let most = price.saturating_sub(sum_min_savings(turn.view.policy, &olds));
    let (choices, limits) = (search.choices, search.limits);
    let nothing_wanted = BTreeSet::new();
    let order = choices.indexed().map(|(index, choice)| {
        let unrequested = choice.count_unrequested(&nothing_wanted);
        ((choice.price, unrequested), index)
    });
    let mut by_price: Vec<((i64, u32), ChoiceIndex)> = order.collect();
    by_price.sort_unstable();
    let find_host = |index: ChoiceIndex| {
        may_replace(turn, limits, &choices[index], &olds, most)?;
        choose_host(world, search, index, unplaced, domains)
    };
    let mut others = BTreeMap::new();
    let found = one_machine::choose_for_one_machine(
        (choices, limits),
        &by_price,
        find_host,
        |index, why| {
            let why = why.unwrap_or(Refused::AnotherCheaper);
            others.insert(choices[index].label.clone(), why.into());
        },
    );
    found.map(|(choice, offer)| ReplacementMachine {
        choice,
        offer,
        saving: price.saturating_sub(choices[choice].price),
        pods: list_pods(unplaced),
        moves: BTreeMap::new(),
        others,
    })
}

/// What must be saved at least on these nodes.
pub(super) fn sum_min_savings(policy: &Policy, olds: &[&MachineView<'_>]) -> i64 {
    olds.iter()
        .filter_map(|machine| {
            let how = super::of(machine)?;
            Some(how.min_saving.wanted(cost::price(policy, machine)))
        })
        .fold(0, i64::saturating_add)
}

fn list_pods(unplaced: &[Unplaced<'_, '_>]) -> Vec<ObjectKey> {
    let mut pods: Vec<ObjectKey> = unplaced
        .iter()
        .flat_map(|unplaced| &unplaced.pods)
        .map(|(key, _)| (*key).clone())
        .collect();
    pods.sort();
    pods
}

/// Whether a choice may take the place of these machines, whatever the host.
fn may_replace(
    turn: &DecisionBuilder<'_>,
    limits: &LimitTracker,
    choice: &Choice<'_>,
    olds: &[&MachineView<'_>],
    most: i64,
) -> Result<(), Refused> {
    if choice.price > most {
        return Err(Refused::TooDear {
            price: choice.price,
            most: most.max(0),
        });
    }
    // In another region the same type may cost less.
    let same = |machine: &&&MachineView<'_>| {
        *machine.seen.mark.instance_type == **choice.type_name
            && machine.seen.region == choice.policy.region
    };
    if let Some(old) = olds.iter().find(same) {
        let node = old.name.clone();
        return Err(Refused::SameType { node });
    }
    let heavier = |machine: &&&MachineView<'_>| {
        machine
            .pool
            .is_some_and(|pool| pool.weight > choice.policy.weight)
    };
    if let Some(old) = olds.iter().find(heavier) {
        let node = old.name.clone();
        return Err(Refused::WeighsLessThanNode { node });
    }
    limits.admits(turn, choice)
}

/// The host on which the machine has room for the pods: of those, the one that the pool's strategy takes.
fn choose_host<'a>(
    world: &mut SimCluster<'a>,
    search: &mut ReplacementSearch<'_, 'a>,
    index: ChoiceIndex,
    unplaced: &[Unplaced<'_, 'a>],
    domains: &BTreeSet<Domain>,
) -> Result<OfferIndex, Refused> {
    let choice = &search.choices[index];
    let mut refusal = None;
    let mut offers: Vec<OfferIndex> = choice.offers.indexes().collect();
    offers.sort_by_key(|offer| search.limits.host_rank(choice, &choice.offers[*offer]));
    for at in offers {
        let offer = &choice.offers[at];
        let elsewhere = domains
            .iter()
            .find(|(key, value)| offer.labels.get(key) != Some(value));
        let verdict = match elsewhere {
            Some((key, domain)) => Err(Refused::LastOfDomain {
                key: key.clone(),
                domain: domain.clone(),
            }),
            None => search
                .limits
                .host_admits(choice, offer)
                .and_then(|()| has_room_for(world, search, (index, at), unplaced)),
        };
        match verdict {
            Ok(()) => return Ok(at),
            Err(why) => refusal = refusal.or(Some(why)),
        }
    }
    Err(refusal.unwrap_or(Refused::NoHost))
}

/// Whether one machine of an offer has room for the pods.
fn has_room_for<'a>(
    world: &mut SimCluster<'a>,
    search: &mut ReplacementSearch<'_, 'a>,
    at: (ChoiceIndex, OfferIndex),
    unplaced: &[Unplaced<'_, 'a>],
) -> Result<(), Refused> {
    let choice = &search.choices[at.0];
    let offer = &choice.offers[at.1];
    for Unplaced { load, .. } in unplaced {
        let shape = world.shapes[load.shape].shape;
        if let Some(filter_failure) = choice.filter_failure(offer, shape) {
            let filter_failure = Box::new(filter_failure);
            return Err(Refused::FilterFailure { filter_failure });
        }
    }
    let new_node = search.place(world, at);
    world.reopen(new_node);
    let loads: Vec<_> = unplaced
        .iter()
        .map(|unplaced| (unplaced.load, unplaced.pods.len()))
        .collect();
    let mut undo = RehearsalUndo::default();
    let mut fit_index = FitIndex::over(&[new_node], world);
    let laid = rehearsal::lay_in_rounds(world, &loads, &mut fit_index, &mut undo);
    let left = unplaced.iter().zip(laid.left).find_map(|(unplaced, left)| {
        let first = unplaced.pods.len().checked_sub(left).filter(|_| left > 0)?;
        unplaced.pods.get(first).map(|(key, _)| *key)
    });
    undo.roll_back(world);
    world.close(new_node);
    match left {
        None => Ok(()),
        Some(key) => Err(Refused::NotAllPods { pod: key.clone() }),
    }
}

impl<'a> ReplacementSearch<'_, 'a> {
    /// The closed place that stands for a new machine of an offer in trials.
    fn place(&mut self, world: &mut SimCluster<'a>, at: (ChoiceIndex, OfferIndex)) -> NodeIndex {
        if let Some(new_node) = self.places.get(&at) {
            return *new_node;
        }
        let choice = &self.choices[at.0];
        let offer = &choice.offers[at.1];
        // A name that no node has, and another for each place: a domain of its own.
        let name = format!("{NEW}{}", self.places.len()).into();
        let named = (name, offer::NO_VMID);
        // No `PlannedMachines` are beside this world: only that the node is a planned one counts.
        let origin = NodeOrigin::Planned(PlannedIndex(0));
        let new_node = offer::place(world, choice, offer, named, origin);
        world.close(new_node);
        self.places.insert(at, new_node);
        new_node
    }
}

/// Domains over which pods of a node must be spread and of which nothing is left without the node.
/// kube-scheduler would forget such a domain and crowd the others; consolidation keeps it.
pub(crate) fn find_lone_domains(
    world: &SimCluster<'_>,
    node: &RemovalCandidate<'_>,
) -> Vec<Domain> {
    let mut lone = Vec::new();
    let labels = &world.nodes[node.index].labels;
    for load in &node.loads {
        let spreads = world.inter_pod.constraints(world.shapes[load.shape]);
        for spread in spreads.iter().filter(|spread| spread.hard) {
            let key = &spread.topology_key;
            let Some(value) = labels.get(key).filter(|_| **key != *HOSTNAME_LABEL) else {
                continue;
            };
            let others = world.nodes.indexed().any(|(index, other)| {
                index != node.index
                    && other.ready
                    && !other.closed
                    && other.labels.get(key) == Some(value)
            });
            if !others {
                lone.push((key.clone(), value.clone()));
            }
        }
    }
    lone
}

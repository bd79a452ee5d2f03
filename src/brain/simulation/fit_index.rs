//! Places in the order in which they are filled.

use model::resources::Resources;

use crate::constraints::fit::amounts;
use crate::index::{FitPlaceIndex, FitStretchIndex, IndexVec, NodeIndex, indexes_in};
use crate::simulation::world::{SimCluster, SimNodes};

/// Places of a fit index that share one bound: a stretch.
const STRETCH: usize = 32;

/// The stretch that a place is in.
fn stretch_of(place: FitPlaceIndex) -> FitStretchIndex {
    FitStretchIndex(place.0 / STRETCH)
}

/// Places in the order in which they are filled, with a bound on what each stretch of them still
/// has free, so that full ones are passed over together.
#[derive(Debug, Default)]
pub(crate) struct FitIndex {
    nodes: IndexVec<FitPlaceIndex, NodeIndex>,
    /// By stretch: at least what any place of it has free.
    bounds: IndexVec<FitStretchIndex, Bound>,
    /// Where the place of each node is, in a fit index that can be told of changes.
    places: IndexVec<NodeIndex, Option<FitPlaceIndex>>,
    /// Places from here on are passed over for now ([`FitIndex::up_to`]).
    end: Option<FitPlaceIndex>,
}

/// At least what is free on some places.
#[derive(Clone, Copy, Debug)]
struct Bound {
    cpu_milli: i64,
    memory: i64,
    ephemeral: i64,
    pods: i64,
}

impl Bound {
    const NOTHING: Bound = Bound {
        cpu_milli: i64::MIN,
        memory: i64::MIN,
        ephemeral: i64::MIN,
        pods: i64::MIN,
    };

    fn raise(&mut self, free: &Resources) {
        self.cpu_milli = self.cpu_milli.max(free.cpu_milli);
        self.memory = self.memory.max(free.memory);
        self.ephemeral = self.ephemeral.max(free.ephemeral);
        self.pods = self.pods.max(free.pods);
    }

    /// Whether one of the places might hold so much.
    fn may_hold(&self, asked: &Resources) -> bool {
        let fits = |amount: i64, free: i64| amount <= 0 || amount <= free;
        self.pods > 0
            && fits(asked.cpu_milli, self.cpu_milli)
            && fits(asked.memory, self.memory)
            && fits(asked.ephemeral, self.ephemeral)
    }
}

impl FitIndex {
    /// A fit index over these places.
    pub(crate) fn over(order: &[NodeIndex], world: &SimCluster<'_>) -> FitIndex {
        let mut fit_index = FitIndex::default();
        for node in order {
            fit_index.push(*node, world);
        }
        fit_index
    }

    /// Whether it has no place.
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The nodes of its places, in order.
    pub(crate) fn nodes(&self) -> &[NodeIndex] {
        &self.nodes
    }

    /// The node of a place, if it has so many and this one is not passed over for now.
    pub(crate) fn node(&self, place: FitPlaceIndex) -> Option<NodeIndex> {
        let node = self.nodes.get(place).copied();
        node.filter(|_| self.end.is_none_or(|end| place < end))
    }

    /// Does something on the places before `end` alone.
    pub(crate) fn up_to<T>(
        &mut self,
        end: FitPlaceIndex,
        run: impl FnOnce(&mut FitIndex) -> T,
    ) -> T {
        self.end = Some(end);
        let done = run(self);
        self.end = None;
        done
    }

    /// Adds a place at the end.
    pub(crate) fn push(&mut self, node: NodeIndex, world: &SimCluster<'_>) {
        if self.nodes.len().is_multiple_of(STRETCH) {
            self.bounds.push(Bound::NOTHING);
        }
        self.nodes.push(node);
        if let Some(bound) = self.bounds.last_mut() {
            bound.raise(&world.nodes[node].free);
        }
    }

    /// A place has more free than before.
    pub(crate) fn raise(&mut self, place: FitPlaceIndex, world: &SimCluster<'_>) {
        let free = &world.nodes[self.nodes[place]].free;
        self.bounds[stretch_of(place)].raise(free);
    }

    /// A fit index that can be told of places with more free than before ([`FitIndex::lift`]).
    pub(crate) fn indexed(order: &[NodeIndex], world: &SimCluster<'_>) -> FitIndex {
        let mut fit_index = FitIndex::over(order, world);
        let last = order.iter().max().map_or(0, |last| last.0 + 1);
        fit_index.places = IndexVec::from(vec![None; last]);
        for (place, node) in fit_index.nodes.indexed() {
            fit_index.places[*node] = Some(place);
        }
        fit_index
    }

    /// These places may have more free than before, or are open again.
    pub(crate) fn lift(&mut self, nodes: &[NodeIndex], world: &SimCluster<'_>) {
        for node in nodes {
            if let Some(place) = self.places.get(*node).copied().flatten() {
                self.bounds[stretch_of(place)].raise(&world.nodes[*node].free);
            }
        }
    }

    /// The first place from `from` on that might hold one pod that asks this, and that `accept` takes.
    pub(crate) fn find<T>(
        &mut self,
        nodes: &SimNodes,
        from: FitPlaceIndex,
        asked: &Resources,
        mut accept: impl FnMut(NodeIndex) -> Option<T>,
    ) -> Option<(FitPlaceIndex, T)> {
        let all = self.nodes.next_index();
        let last = self.end.map_or(all, |end| end.min(all));
        let mut at = from;
        while at < last {
            let stretch = stretch_of(at);
            let whole = FitPlaceIndex((stretch.0 + 1) * STRETCH).min(all);
            let end = whole.min(last);
            if self.bounds[stretch].may_hold(asked) {
                let mut bound = Bound::NOTHING;
                for place in indexes_in(at..end) {
                    let index = self.nodes[place];
                    if nodes[index].closed {
                        continue;
                    }
                    let free = &nodes[index].free;
                    bound.raise(free);
                    if amounts::full(asked, free) {
                        continue;
                    }
                    if let Some(found) = accept(index) {
                        return Some((place, found));
                    }
                }
                if at.0.is_multiple_of(STRETCH) && end == whole {
                    self.bounds[stretch] = bound;
                }
            }
            at = end;
        }
        None
    }
}

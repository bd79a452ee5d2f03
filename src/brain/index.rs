//! Indexes. Each kind of list that the brain refers into has an index type of its own, so that the index of one list is
//! never used in another.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Index, IndexMut, Range};

/// An index into one kind of list.
pub(crate) trait ListIndex: Copy {
    /// The index of the element at a position.
    fn at(position: usize) -> Self;

    /// The position of the element, from 0 on.
    fn position(self) -> usize;
}

/// The indexes of a range, in order.
pub(crate) fn indexes_in<I: ListIndex>(range: Range<I>) -> impl Iterator<Item = I> {
    (range.start.position()..range.end.position()).map(I::at)
}

/// Declares index types.
macro_rules! index_types {
    ($($(#[$attribute:meta])* $name:ident;)+) => {$(
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) struct $name(pub(crate) usize);

        impl ListIndex for $name {
            fn at(position: usize) -> $name {
                $name(position)
            }

            fn position(self) -> usize {
                self.0
            }
        }
    )+};
}

index_types! {
    /// Index of a simulated node in `SimCluster::nodes`. The nodes of the snapshot come first, in its order, so that such a
    /// node's position in the snapshot is its index.
    NodeIndex;

    /// Index of pods of one kind among the residents of a simulated node.
    ResidentIndex;

    /// Index of a place in `FitIndex::nodes`: in the order in which places are filled.
    FitPlaceIndex;

    /// Index of a stretch of such places, in `FitIndex::bounds`.
    FitStretchIndex;

    /// Index of a choice among the decision's choices. A choice is a pool with one of its instance types in one region.
    ChoiceIndex;

    /// Index of an instance type of a pool, among those of all pools. The choices of a pool in several regions with one type have the
    /// same: at equal weight and price their hosts are those of one pool to its strategy.
    PoolTypeIndex;

    /// Index of numbers that are given once, in `NumberRooms`: of the addresses of a network, or the VMIDs of a region.
    NumberIndex;

    /// Index of an offer among those of its choice. An offer is the choice on one host.
    OfferIndex;

    /// Index of an offer in the catalogue: among the offers of all choices.
    CatalogOfferIndex;

    /// Index of a tier in `CandidateOrder::tiers`: of the choices of one weight. 0 is the heaviest.
    TierIndex;

    /// Index of a machine of ours in `MachineViews`, which has them in the order of their names.
    MachineIndex;

    /// Index of a namespace with a shape in `ByNode::kinds`, which may have one more than once.
    RunningKindIndex;

    /// Index of a pod in `ByNode::bound`, which has the pods that run node by node.
    BoundPodIndex;

    /// Index of a kind of pods, that is of the shape of the first that came, in `SimCluster::shapes`. Pods that `Alike` takes
    /// for one kind have the same.
    ShapeId;

    /// Index of what pods may ask of other pods and of volumes, in `Alike`.
    TraitsId;

    /// Index of a set of equal volumes in `FreeVolumes::sets`. Those that are to be taken first come first.
    EqualVolumesId;

    /// Index of a list of matching sets in `FreeVolumes::matching`.
    MatchingId;

    /// Index of a pod's line in the report.
    LineIndex;

    /// Index of a NUMA node of a host.
    NumaIndex;

    /// Index of a socket of a host.
    SocketIndex;

    /// Index of a pool in the policy, which has its pools in the order of their names.
    PoolIndex;

    /// Index of a pool in one of its regions, among all pools in all of their regions: in `LimitTracker::demands`.
    PoolRegionIndex;

    /// Index of a host among those of all regions, in the order of regions and of their hosts.
    HostIndex;

    /// Index of a storage among those of all regions, as `StorageIndexes` counts them.
    StorageIndex;

    /// Index of a PCI mapping on one host, in `HostMappings`.
    HostMappingIndex;

    /// Index of a row of the fit matrix: of what groups ask of an empty node.
    RowIndex;

    /// Index of a group of pods that need new machines, in `PendingGroups::groups`.
    GroupIndex;

    /// Index of a run of such groups, in `PendingGroups::runs`.
    RunIndex;

    /// Index of a group of pods in the demand: of all that need a place.
    DemandIndex;

    /// Index of a lot of a second plan, in `Problem::lots`, and of the replanned group whose pods it is.
    LotIndex;

    /// Index of a launch option in `Problem::options`: of what a machine of a second plan can become.
    LaunchOptionIndex;

    /// Index of a site in `LaunchOption::sites`: of a host on which the option is offered.
    SiteIndex;

    /// Index of a choice in `Filler::choices`: of a choice that whole machines are filled for.
    FillChoiceIndex;

    /// Index of a class of launch options in `Problem::classes`.
    LaunchOptionClassIndex;

    /// Index of a place that stays as it is in `Problem::fixed`, and of what comes to it in `Draft::fixed`.
    FixedIndex;

    /// Index of a machine of a second plan that is laid out, in `Draft::machines`.
    DraftMachineIndex;

    /// Index of a machine of a second plan that is an answer, in `BetterPlan::made`: those without pods are left out there.
    MadeIndex;

    /// Index of pods that change their place together, in `Movables::all`.
    MovableIndex;

    /// Index of a rule about topology domains in `DomainRules::rules`.
    DomainRuleIndex;

    /// Index of a planned machine in `PlannedMachines::machines`, and of its node in `PlannedMachines::fit_index`.
    PlannedIndex;

    /// Index of a removal group, while candidates are bound into groups.
    RemovalGroupIndex;

    /// Index of a removal group among those that are unneeded and can go.
    UnneededIndex;

    /// Index of a load among those that are laid together: of pods of a node that goes, which are alike.
    LoadIndex;

    /// Index of a counter in `InterPodConstraints`.
    CounterId;

    /// Index of what a counter has counted, in `CounterRules::counters`.
    TallyIndex;

    /// Index of a preferred affinity term of a pod, and of its counter in `Preferences::near`.
    NearTermIndex;

    /// Index of a preferred anti-affinity term of a pod, and of its counter in `Preferences::apart`.
    ApartTermIndex;

    /// Index of a resource in the amounts of a `CoverProblem`.
    ResourceIndex;

    /// Index of a class of pods in `CoverProblem::classes`.
    PodClassIndex;

    /// Index of a place there is in `CoverProblem::rooms`.
    RoomIndex;

    /// Index of a clique of a `CoverProblem`: of pods that exclude each other.
    CliqueIndex;

    /// Index of what the filters that look at labels and taints read of pods, while classes of pods are found.
    NodeFiltersId;

    /// Index of a row of a `Tableau`.
    TableauRowIndex;

    /// Index of a column of a `Tableau`.
    TableauColumnIndex;

    /// Index of a variable that a row or a column of a `Tableau` stands for.
    TableauVariableId;

    /// Index of a topology key in `TopologyDomains`.
    KeyId;

    /// Index of a class of nodes with equal labels, taints and cordon, in `NodeClasses`.
    ClassId;

    /// Index of what some kinds of pods ask of labels and taints, in `NodeClasses`.
    RequirementsId;

    /// Index of a sort of pods that are to be shared among a few machines, in `LoadSearch::sorts`.
    PodSortIndex;

    /// Index of a lot that a machine is filled with on trial, in `FillSearch::lots`.
    FillLotIndex;

    /// Index of a unit of pods in the list of those that are placed one after the other in one way.
    UnitIndex;

    /// Index of what pods of a second plan ask of one resource, in `Lot::asked` and all amounts in the same order.
    AmountIndex;

    /// Index of a pod of a group that needs new machines, in `PendingGroup::pods`.
    PendingPodIndex;

    /// Index of a DaemonSet that runs on new nodes, in `FitMatrix::daemons`.
    NewDaemonIndex;

    /// Index of a change in `Draft::undo`: those from a mark on are taken back.
    UndoIndex;
}

/// A list whose elements are referred to by one type of index. What needs no index is that of a slice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct IndexVec<I, T> {
    items: Vec<T>,
    index: PhantomData<I>,
}

impl<I, T> Default for IndexVec<I, T> {
    fn default() -> IndexVec<I, T> {
        IndexVec::from(Vec::new())
    }
}

impl<I, T> From<Vec<T>> for IndexVec<I, T> {
    fn from(items: Vec<T>) -> IndexVec<I, T> {
        IndexVec {
            items,
            index: PhantomData,
        }
    }
}

impl<I, T> FromIterator<T> for IndexVec<I, T> {
    fn from_iter<A: IntoIterator<Item = T>>(items: A) -> IndexVec<I, T> {
        IndexVec::from(Vec::from_iter(items))
    }
}

impl<I, T> IndexVec<I, T> {
    /// The elements alone.
    pub(crate) fn into_vec(self) -> Vec<T> {
        self.items
    }
}

impl<I: ListIndex, T> IndexVec<I, T> {
    /// Adds an element at the end; says its index.
    pub(crate) fn push(&mut self, item: T) -> I {
        let index = I::at(self.items.len());
        self.items.push(item);
        index
    }

    /// Allocates so much for more elements, and nothing beyond.
    pub(crate) fn reserve(&mut self, more: usize) {
        self.items.reserve_exact(more);
    }

    /// The index that the next element will have.
    pub(crate) fn next_index(&self) -> I {
        I::at(self.items.len())
    }

    /// The element of an index, if the list is that long.
    pub(crate) fn get(&self, index: I) -> Option<&T> {
        self.items.get(index.position())
    }

    /// The element of an index to change, if the list is that long.
    pub(crate) fn get_mut(&mut self, index: I) -> Option<&mut T> {
        self.items.get_mut(index.position())
    }

    /// Adds an element at an index; those from there on move up.
    pub(crate) fn insert(&mut self, index: I, item: T) {
        self.items.insert(index.position(), item);
    }

    /// Takes the element of an index away; those after it move down.
    pub(crate) fn remove(&mut self, index: I) -> T {
        self.items.remove(index.position())
    }

    /// Takes all elements from an index on away.
    pub(crate) fn truncate(&mut self, end: I) {
        self.items.truncate(end.position());
    }

    /// The elements from an index on.
    pub(crate) fn tail(&self, first: I) -> &[T] {
        &self.items[first.position()..]
    }

    /// The elements of a range of indexes.
    pub(crate) fn slice(&self, range: Range<I>) -> &[T] {
        &self.items[range.start.position()..range.end.position()]
    }

    /// The index of the first element that is wanted, if there is one.
    pub(crate) fn index_of(&self, wanted: impl FnMut(&T) -> bool) -> Option<I> {
        self.items.iter().position(wanted).map(I::at)
    }

    /// A list with the same indexes, and the same value at each.
    pub(crate) fn with_each<U: Clone>(&self, value: U) -> IndexVec<I, U> {
        IndexVec::from(vec![value; self.items.len()])
    }

    /// The index of the last element, if there is one.
    pub(crate) fn last_index(&self) -> Option<I> {
        self.indexes().next_back()
    }

    /// Keeps some of the elements; those after one that goes move down.
    pub(crate) fn retain(&mut self, keep: impl FnMut(&T) -> bool) {
        self.items.retain(keep);
    }

    /// The indexes of all elements, in order.
    pub(crate) fn indexes(&self) -> impl DoubleEndedIterator<Item = I> + Clone + use<I, T> {
        (0..self.items.len()).map(I::at)
    }

    /// The indexes from one on, in order.
    pub(crate) fn indexes_from(&self, first: I) -> impl DoubleEndedIterator<Item = I> + use<I, T> {
        (first.position()..self.items.len()).map(I::at)
    }

    /// All elements with their indexes, in order.
    pub(crate) fn indexed(&self) -> impl DoubleEndedIterator<Item = (I, &T)> + Clone {
        let items = self.items.iter().enumerate();
        items.map(|(position, item)| (I::at(position), item))
    }
}

impl<I, T: Default> IndexVec<I, T> {
    /// Adds elements at the end until there are so many.
    pub(crate) fn grow_to(&mut self, len: usize) {
        if self.items.len() < len {
            self.items.resize_with(len, T::default);
        }
    }
}

impl<I: ListIndex, T: Default> IndexVec<I, T> {
    /// The element of an index, which is added at the end, with those before it, where the list is not that long.
    pub(crate) fn get_or_grow(&mut self, index: I) -> &mut T {
        self.grow_to(index.position() + 1);
        &mut self.items[index.position()]
    }
}

impl<I: ListIndex, T> Index<I> for IndexVec<I, T> {
    type Output = T;

    fn index(&self, index: I) -> &T {
        &self.items[index.position()]
    }
}

impl<I: ListIndex, T> IndexMut<I> for IndexVec<I, T> {
    fn index_mut(&mut self, index: I) -> &mut T {
        &mut self.items[index.position()]
    }
}

impl<I, T> Deref for IndexVec<I, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}

impl<I, T> DerefMut for IndexVec<I, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.items
    }
}

impl<I, T> Extend<T> for IndexVec<I, T> {
    fn extend<A: IntoIterator<Item = T>>(&mut self, items: A) {
        self.items.extend(items);
    }
}

impl<I, T> IntoIterator for IndexVec<I, T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> std::vec::IntoIter<T> {
        self.items.into_iter()
    }
}

impl<'v, I, T> IntoIterator for &'v mut IndexVec<I, T> {
    type Item = &'v mut T;
    type IntoIter = std::slice::IterMut<'v, T>;

    fn into_iter(self) -> std::slice::IterMut<'v, T> {
        self.items.iter_mut()
    }
}

impl<'v, I, T> IntoIterator for &'v IndexVec<I, T> {
    type Item = &'v T;
    type IntoIter = std::slice::Iter<'v, T>;

    fn into_iter(self) -> std::slice::Iter<'v, T> {
        self.items.iter()
    }
}

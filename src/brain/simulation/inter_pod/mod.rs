//! Pods among pods: affinity, anti-affinity and topology spread, counted as pods come and go.
//!
//! Every constraint becomes a [`counter`]: pods of one kind by domain. A pod that is put somewhere is
//! added to the counters that its shape feeds; what a shape may do ([`rules`]) is read from them. So
//! nothing is ever counted twice, and asking costs the same in a large cluster as in a small one.

mod counter;
mod numbers;
pub(crate) mod preferences;
pub(crate) mod rules;
pub(crate) mod topology;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use model::label_list::LabelList;
use model::scheduling::{LabelSelector, Labels, Operator, PodTerm, Requirement, SpreadConstraint};

use crate::constraints::fit::selector;
use crate::constraints::shape::NamespacedShape;
use crate::index::{CounterId, IndexVec, KeyId, NodeIndex, ShapeId};
use crate::simulation::world::{SimNode, SimNodes, SimShapes};
use counter::{CountedPods, Counter, SpreadScope, Who};
pub(crate) use numbers::{Asks, CounterRules, Even, Tally};
pub(crate) use preferences::{Evenness, Preferences};
pub(crate) use rules::Rules;
use rules::SpreadRule;
use topology::{DomainId, NOWHERE, TopologyDomains};

/// What counting looks at besides the counters.
#[derive(Debug)]
pub(crate) struct Surroundings<'w, 'a> {
    namespaces: &'a BTreeMap<Arc<str>, Labels>,
    topology: &'w TopologyDomains,
}

/// Pods of one shape that came to a place, or left it.
#[derive(Clone, Copy, Debug)]
struct CounterChange {
    node: u32,
    /// Negative when they left.
    count: i64,
    deleting: bool,
}

/// All counters, and the rules compiled to them.
#[derive(Debug)]
pub(crate) struct InterPodConstraints<'a> {
    topology: TopologyDomains,
    counters: IndexVec<CounterId, Counter<'a>>,
    known: BTreeMap<CountedPods<'a>, CounterId>,
    /// The counters for spreading: places matter to no other.
    spreading: Vec<CounterId>,
    /// Counters of pods that hold an anti-affinity term, with the term and its owner's namespace.
    averse: Vec<(&'a str, &'a PodTerm, CounterId)>,
    /// The counters that pods of a shape are counted in.
    feeds: IndexVec<ShapeId, Vec<CounterId>>,
    /// Where pods of a shape came and went, for counters made later.
    changes: IndexVec<ShapeId, Vec<CounterChange>>,
    rules: IndexVec<ShapeId, Option<Arc<Rules>>>,
    namespaces: &'a BTreeMap<Arc<str>, Labels>,
    /// For pods of a controller that name no spread constraint themselves.
    default_spread: &'a [SpreadConstraint],
    /// See [`InterPodConstraints::steps`].
    steps: Cell<u64>,
}

impl Surroundings<'_, '_> {
    /// Whether a term of a pod in `namespace` takes in a pod.
    fn takes(&self, term: &PodTerm, namespace: &str, pod: NamespacedShape<'_>) -> bool {
        takes_in(self.namespaces, term, namespace, pod)
    }
}

/// Whether a term of a pod in `namespace` takes in a pod; `namespaces` are those there are, with their
/// labels.
pub(crate) fn takes_in(
    namespaces: &BTreeMap<Arc<str>, Labels>,
    term: &PodTerm,
    namespace: &str,
    pod: NamespacedShape<'_>,
) -> bool {
    let named = || term.namespaces.iter().any(|name| **name == *pod.namespace);
    let own = term.namespaces.is_empty()
        && term.namespace_selector.is_none()
        && pod.namespace == namespace;
    let by_label = || {
        let nothing = Labels::new();
        let labels = namespaces.get(pod.namespace).unwrap_or(&nothing);
        selector::selects(term.namespace_selector.as_ref(), labels)
    };
    (own || named() || by_label()) && selector::selects(term.selector.as_ref(), &pod.shape.labels)
}

impl<'a> InterPodConstraints<'a> {
    /// No pods, no places.
    pub(crate) fn new(
        namespaces: &'a BTreeMap<Arc<str>, Labels>,
        default_spread: &'a [SpreadConstraint],
    ) -> InterPodConstraints<'a> {
        InterPodConstraints {
            topology: TopologyDomains::default(),
            counters: IndexVec::default(),
            known: BTreeMap::new(),
            spreading: Vec::new(),
            averse: Vec::new(),
            feeds: IndexVec::default(),
            changes: IndexVec::default(),
            rules: IndexVec::default(),
            namespaces,
            default_spread,
            steps: Cell::new(0),
        }
    }

    /// Gets to know the next shape. Anti-affinity concerns others, so its terms are counted from the
    /// beginning.
    pub(crate) fn add_shape(&mut self, shapes: &SimShapes<'a>, nodes: &SimNodes) {
        let Some(id) = shapes.last_index() else {
            return;
        };
        let pod = shapes[id];
        let around = Surroundings {
            namespaces: self.namespaces,
            topology: &self.topology,
        };
        self.work(self.counters.len());
        let others = self.counters.indexes().filter(|counter| {
            let who = &self.counters[*counter].subject.who;
            !who.holding() && who.takes_in(&around, pod)
        });
        self.feeds.push(others.collect());
        self.changes.push(Vec::new());
        self.rules.push(None);
        for term in &pod.shape.pod_anti_affinity {
            let who = Who::Holding(pod.namespace, term);
            let before = self.counters.len();
            let counter = self.counter(
                shapes,
                nodes,
                who,
                &term.topology_key,
                SpreadScope::default(),
            );
            self.counters[counter].hard = true;
            if self.counters.len() > before {
                self.averse.push((pod.namespace, term, counter));
            } else {
                // Who holds a term is known by its own terms: nothing is searched.
                self.feeds[id].push(counter);
            }
        }
        let feeds = &mut self.feeds[id];
        feeds.sort_unstable();
        feeds.dedup();
    }

    /// Steps that were made so far: kinds of pods compared with terms, and rules asked of places.
    pub(crate) fn steps(&self) -> u64 {
        self.steps.get()
    }

    /// Counts steps.
    pub(crate) fn work(&self, steps: usize) {
        let steps = u64::try_from(steps).unwrap_or(u64::MAX);
        self.steps.set(self.steps.get().saturating_add(steps));
    }

    /// Gets to know the next place.
    pub(crate) fn add_node(&mut self, node: &SimNode) {
        self.topology.add_node(&node.labels);
        let around = Surroundings {
            namespaces: self.namespaces,
            topology: &self.topology,
        };
        for counter in &self.spreading {
            self.counters[*counter].add_node(&around, node);
        }
    }

    /// `count` pods of a shape come to a place, or leave it where `count` is negative. `counted` is false where the place is
    /// closed: there they are remembered and counted in no counter.
    pub(crate) fn put(
        &mut self,
        index: NodeIndex,
        id: ShapeId,
        count: i64,
        deleting: bool,
        counted: bool,
    ) {
        let changes = &mut self.changes[id];
        let here = u32::try_from(index.0).unwrap_or(u32::MAX);
        match changes.last_mut() {
            Some(last) if last.node == here && last.deleting == deleting => {
                last.count = last.count.saturating_add(count);
            }
            _ => changes.push(CounterChange {
                node: here,
                count,
                deleting,
            }),
        }
        if counted {
            self.count(index, id, count, deleting);
        }
    }

    /// Counts pods of a shape in or out, where they are remembered already.
    pub(crate) fn count(&mut self, index: NodeIndex, id: ShapeId, count: i64, deleting: bool) {
        for counter in &self.feeds[id] {
            let counter = &mut self.counters[*counter];
            if !(deleting && counter.subject.who.living()) {
                let domain = self.topology.of(counter.subject.key, index);
                counter.add(index, domain, count);
            }
        }
    }

    /// A place is closed, or open again; its pods are counted apart.
    pub(crate) fn turn(&mut self, index: NodeIndex, open: bool) {
        for counter in &self.spreading {
            let counter = &mut self.counters[*counter];
            let domain = self.topology.of(counter.subject.key, index);
            counter.turn(index, domain, open);
        }
    }

    /// Whether no counter would see a place otherwise if it had these labels, its domains being the
    /// same.
    pub(crate) fn indifferent(&self, index: NodeIndex, labels: &Labels) -> bool {
        let counters = self.spreading.iter().map(|id| &self.counters[*id]);
        let mut chosen = counters.filter(|counter| counter.subject.scope.chosen.is_some());
        chosen.all(|counter| counter.would_see(index, labels))
    }

    /// The domains of a place, by key.
    pub(crate) fn at(&self, index: NodeIndex) -> impl Fn(KeyId) -> DomainId + Copy {
        move |key| self.topology.of(key, index)
    }

    /// How many topology keys are in use.
    pub(crate) fn keys(&self) -> usize {
        self.topology.len()
    }

    /// The topology keys that are in use.
    pub(crate) fn key_ids(&self) -> impl Iterator<Item = KeyId> + use<> {
        self.topology.keys()
    }

    /// The domain that a node with these labels would be in.
    pub(crate) fn domain(&mut self, key: KeyId, labels: &Labels) -> DomainId {
        self.topology.domain(key, labels)
    }

    /// The rules of a shape; `None` when other pods do not matter to it.
    pub(crate) fn rules(
        &mut self,
        shapes: &SimShapes<'a>,
        nodes: &SimNodes,
        id: ShapeId,
    ) -> Option<Arc<Rules>> {
        if self.rules[id]
            .as_ref()
            .is_none_or(|rules| rules.seen < self.averse.len())
        {
            let before = self.rules[id].take();
            let mut rules = match before {
                Some(rules) => (*rules).clone(),
                None => self.compile(shapes, nodes, id),
            };
            let around = Surroundings {
                namespaces: self.namespaces,
                topology: &self.topology,
            };
            self.work(self.averse.len() - rules.seen);
            for (namespace, term, counter) in &self.averse[rules.seen..] {
                if around.takes(term, namespace, shapes[id]) {
                    rules.forbidden.push(*counter);
                }
            }
            rules.seen = self.averse.len();
            self.rules[id] = Some(Arc::new(rules));
        }
        self.rules[id].clone().filter(|rules| !rules.empty())
    }

    /// The topology key over which required anti-affinity keeps pods of two shapes from one node, if any
    /// does; `has` says which keys the node has.
    pub(crate) fn at_odds<'s>(
        &self,
        one: NamespacedShape<'s>,
        other: NamespacedShape<'s>,
        has: impl Fn(&str) -> bool,
    ) -> Option<&'s Arc<str>> {
        let around = self.around();
        let against = |holder: NamespacedShape<'s>, pod: NamespacedShape<'s>| {
            let mut terms = holder.shape.pod_anti_affinity.iter();
            terms.find(|term| has(&term.topology_key) && around.takes(term, holder.namespace, pod))
        };
        let term = against(one, other).or_else(|| against(other, one));
        term.map(|term| &term.topology_key)
    }

    /// From now on a shape's spreading reckons with the domains that new nodes for it could be in; `of` lists
    /// those of a key, given the keys that a node must have to count at all.
    pub(crate) fn open(
        &mut self,
        id: ShapeId,
        mut of: impl FnMut(&mut TopologyDomains, KeyId, &[KeyId]) -> Vec<DomainId>,
    ) {
        let Some(rules) = &mut self.rules[id] else {
            return;
        };
        for spread in &mut Arc::make_mut(rules).spread {
            let subject = &self.counters[spread.counter].subject;
            spread.open = of(&mut self.topology, subject.key, &subject.scope.keys);
        }
    }

    /// No new nodes are planned any more: only domains that nodes are in count.
    pub(crate) fn close(&mut self) {
        for rules in self.rules.iter_mut().flatten() {
            if rules.spread.iter().any(|spread| !spread.open.is_empty()) {
                for spread in &mut Arc::make_mut(rules).spread {
                    spread.open.clear();
                }
            }
        }
    }

    /// No new nodes are planned in domains that none is in by now: they count no more.
    pub(crate) fn close_unreached(&mut self) {
        let counters = &self.counters;
        for rules in self.rules.iter_mut().flatten() {
            let reached =
                |spread: &SpreadRule, domain: &DomainId| counters[spread.counter].knows(*domain);
            let all =
                |spread: &SpreadRule| spread.open.iter().all(|domain| reached(spread, domain));
            if rules.spread.iter().all(all) {
                continue;
            }
            for spread in &mut Arc::make_mut(rules).spread {
                let counter = &counters[spread.counter];
                spread.open.retain(|domain| counter.knows(*domain));
            }
        }
    }

    /// The domains, with their topology key, that pods with these rules are spread over, that new nodes could be in, and that no
    /// counted pod is in.
    pub(crate) fn empty_domains(&self, rules: &Rules) -> Vec<(KeyId, DomainId)> {
        let spread = rules.spread.iter();
        let open = spread.flat_map(|spread| {
            let counter = &self.counters[spread.counter];
            let empty = spread
                .open
                .iter()
                .filter(|domain| counter.pods(**domain) == 0);
            empty.map(|domain| (counter.subject.key, *domain))
        });
        open.collect()
    }

    /// No new nodes are planned in a domain: it counts for nobody as long as none is in it. Says what the rules were.
    pub(crate) fn close_domain(
        &mut self,
        key: KeyId,
        domain: DomainId,
    ) -> IndexVec<ShapeId, Option<Arc<Rules>>> {
        let before = self.rules.clone();
        let counters = &self.counters;
        for rules in self.rules.iter_mut().flatten() {
            let concerned = |spread: &SpreadRule| {
                counters[spread.counter].subject.key == key && spread.open.contains(&domain)
            };
            if !rules.spread.iter().any(concerned) {
                continue;
            }
            let spread = Arc::make_mut(rules).spread.iter_mut();
            for rule in spread.filter(|rule| concerned(rule)) {
                rule.open.retain(|open| *open != domain);
            }
        }
        before
    }

    /// The rules are again what they were before a domain was closed. Those that came to be known since stay.
    pub(crate) fn reopen_domains(&mut self, before: IndexVec<ShapeId, Option<Arc<Rules>>>) {
        for (rules, former) in self.rules.iter_mut().zip(before) {
            if former.is_some() {
                *rules = former;
            }
        }
    }

    /// The rules of a shape, if they were asked for before.
    pub(crate) fn known_rules(&self, id: ShapeId) -> Option<&Rules> {
        self.rules[id].as_deref()
    }

    fn compile(&mut self, shapes: &SimShapes<'a>, nodes: &SimNodes, id: ShapeId) -> Rules {
        let pod = shapes[id];
        let (namespace, shape) = (pod.namespace, pod.shape);
        let mut rules = Rules::default();
        for term in &shape.pod_anti_affinity {
            let who = Who::Taken(namespace, term);
            let itself = who.takes_in(&self.around(), pod);
            let counter = self.counter(
                shapes,
                nodes,
                who,
                &term.topology_key,
                SpreadScope::default(),
            );
            rules.unwanted.push((counter, itself));
        }
        if !shape.pod_affinity.is_empty() {
            let all = Who::All(namespace, &shape.pod_affinity);
            rules.wants_itself = all.takes_in(&self.around(), pod);
            for term in &shape.pod_affinity {
                let key = &term.topology_key;
                let counter = self.counter(shapes, nodes, all.clone(), key, SpreadScope::default());
                rules.wanted.push(counter);
            }
        }
        let constraints = self.constraints(pod);
        let hard: Vec<&'a SpreadConstraint> = constraints.iter().filter(|s| s.hard).collect();
        let mut keys: Vec<KeyId> = hard
            .iter()
            .map(|constraint| self.key(nodes, &constraint.topology_key))
            .collect();
        keys.sort_unstable();
        keys.dedup();
        for constraint in hard {
            let spread = self.spread(shapes, nodes, pod, constraint, &keys);
            rules.spread.push(spread);
        }
        for counter in rules.counters() {
            self.counters[counter].hard = true;
        }
        rules
    }

    /// The spread constraints of a pod: its own, else the cluster's, for pods that a controller keeps
    /// several of.
    pub(crate) fn constraints(&self, pod: NamespacedShape<'a>) -> &'a [SpreadConstraint] {
        if pod.shape.spread.is_empty() && replicated(pod) {
            self.default_spread
        } else {
            &pod.shape.spread
        }
    }

    fn spread(
        &mut self,
        shapes: &SimShapes<'a>,
        nodes: &SimNodes,
        pod: NamespacedShape<'a>,
        constraint: &SpreadConstraint,
        keys: &[KeyId],
    ) -> SpreadRule {
        let shape = pod.shape;
        let who = match &shape.owner {
            // A default constraint has no selector: kube-scheduler takes that of the pod's controller.
            Some(owner) if shape.spread.is_empty() => Who::Owned(pod.namespace, &owner.uid),
            _ => {
                let selected = selector_of(constraint, &shape.labels);
                // An empty selector counts no pod, not even the next one once it is there
                // (`countPodsMatchSelector`): it only asks for the key.
                let empty = |s: &LabelSelector| s.labels.is_empty() && s.expressions.is_empty();
                Who::Selected(pod.namespace, selected.filter(|s| !empty(s)))
            }
        };
        let counts_itself = who.takes_in(&self.around(), pod);
        let selects_nodes = !shape.node_selector.is_empty() || shape.node_affinity.is_some();
        let scope = SpreadScope {
            keys: keys.to_vec(),
            chosen: (selects_nodes && constraint.honor_affinity)
                .then_some((&shape.node_selector, shape.node_affinity.as_deref())),
            tolerating: constraint.honor_taints.then_some(&shape.tolerations[..]),
        };
        SpreadRule {
            counter: self.counter(shapes, nodes, who, &constraint.topology_key, scope),
            max_skew: i64::from(constraint.max_skew),
            min_domains: constraint
                .min_domains
                .map_or(1, |min| usize::try_from(min).unwrap_or(1)),
            counts_itself,
            open: Vec::new(),
        }
    }

    fn around(&self) -> Surroundings<'_, 'a> {
        Surroundings {
            namespaces: self.namespaces,
            topology: &self.topology,
        }
    }

    fn key(&mut self, nodes: &SimNodes, name: &Arc<str>) -> KeyId {
        self.topology
            .key(name, nodes.iter().map(|node| &*node.labels))
    }

    /// The counter of a subject; a new one counts all that is there.
    fn counter(
        &mut self,
        shapes: &SimShapes<'a>,
        nodes: &SimNodes,
        who: Who<'a>,
        key: &Arc<str>,
        scope: SpreadScope<'a>,
    ) -> CounterId {
        let key = self.key(nodes, key);
        let subject = CountedPods { who, key, scope };
        if let Some(known) = self.known.get(&subject) {
            return *known;
        }
        let mut counter = Counter::new(subject.clone());
        let id = self.counters.next_index();
        if counter.spreads() {
            let around = self.around();
            for node in nodes {
                counter.add_node(&around, node);
            }
            self.spreading.push(id);
        }
        let living = subject.who.living();
        // Nobody that came before holds a term that is new.
        let first = if subject.who.holding() {
            self.feeds.last_index().unwrap_or_default()
        } else {
            ShapeId(0)
        };
        self.work(self.feeds.len() - first.0);
        for shape in self.feeds.indexes_from(first) {
            let around = Surroundings {
                namespaces: self.namespaces,
                topology: &self.topology,
            };
            if !subject.who.takes_in(&around, shapes[shape]) {
                continue;
            }
            self.feeds[shape].push(id);
            for change in &self.changes[shape] {
                let index = NodeIndex(change.node as usize);
                if nodes[index].closed || (change.deleting && living) {
                    continue;
                }
                let domain = self.topology.of(key, index);
                if domain != NOWHERE {
                    counter.add(index, domain, change.count);
                }
            }
        }
        self.counters.push(counter);
        self.known.insert(subject, id);
        id
    }
}

/// Whether a controller keeps several of a pod.
fn replicated(pod: NamespacedShape<'_>) -> bool {
    let kinds = ["ReplicaSet", "StatefulSet", "ReplicationController"];
    let owner = pod.shape.owner.as_ref();
    owner.is_some_and(|owner| kinds.contains(&&*owner.kind))
}

/// The selector with `matchLabelKeys` merged in.
fn selector_of(constraint: &SpreadConstraint, labels: &LabelList) -> Option<LabelSelector> {
    let mut selector = constraint.selector.clone()?;
    for key in &constraint.match_label_keys {
        if let Some(value) = labels.get(key) {
            selector.expressions.push(Requirement {
                key: key.clone(),
                operator: Operator::In,
                values: vec![value.clone()],
            });
        }
    }
    Some(selector)
}

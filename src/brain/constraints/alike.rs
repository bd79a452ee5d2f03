//! Pods that placing cannot tell from each other are one kind.
//!
//! Kinds are what a decision costs: each is asked of each node. Many pods have labels of their own (their
//! number in a StatefulSet, the Job they are of), and controllers that nothing counts them by. What no selector
//! of any pod names, and what spreads nothing, makes no kind of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::scheduling::{LabelSelector, PodShape, PodTraits};
use model::snapshot::Snapshot;

use crate::constraints::shape::NamespacedShape;
use crate::index::{ShapeId, TraitsId};

/// Controllers whose pods are told from others': DaemonSets by their templates, the others by
/// kube-scheduler's own spread constraints (`pod_topology_spread/common.go`: `helper.DefaultSelector`).
const COUNTED: [&str; 4] = [
    "ReplicaSet",
    "StatefulSet",
    "ReplicationController",
    "DaemonSet",
];

/// Kinds of pods.
#[derive(Debug)]
pub(crate) struct Alike<'a> {
    named: NamedKeys,
    traits: BTreeMap<&'a PodTraits, TraitsId>,
    kinds: BTreeMap<Features<'a>, ShapeId>,
    /// Equal shapes are mostly one allocation, and so are equal traits, and comparing addresses is cheap.
    /// Only ever looked up, never walked: addresses decide nothing.
    seen_traits: Recent<TraitsId, TRAITS_SLOT_BITS>,
    seen_shapes: Recent<(&'a str, ShapeId), SHAPE_SLOT_BITS>,
}

/// What makes a kind of pod.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Features<'a> {
    traits: TraitsId,
    namespace: &'a str,
    /// Kind and UID of its controller, where that matters.
    controller: Option<(&'a str, &'a str)>,
    /// Labels that some selector names.
    labels: Vec<(&'a str, &'a str)>,
}

impl<'a> Alike<'a> {
    /// No kinds yet, of pods of a snapshot and of others that are given, and of none beside these.
    pub(crate) fn of<'o>(
        snapshot: &Snapshot,
        others: impl Iterator<Item = NamespacedShape<'o>>,
    ) -> Alike<'a> {
        Alike {
            named: NamedKeys::of(snapshot, others),
            traits: BTreeMap::new(),
            kinds: BTreeMap::new(),
            seen_traits: Recent::default(),
            seen_shapes: Recent::default(),
        }
    }

    /// The kind of a pod; the next index for the first of its kind.
    pub(crate) fn kind(&mut self, pod: NamespacedShape<'a>) -> ShapeId {
        let address = std::ptr::from_ref(pod.shape).addr();
        if let Some((namespace, id)) = self.seen_shapes.get(address)
            && (std::ptr::eq(*namespace, pod.namespace) || *namespace == pod.namespace)
        {
            return *id;
        }
        let features = Features {
            traits: self.traits(pod.namespace, &pod.shape.traits),
            namespace: pod.namespace,
            controller: controller(pod.shape),
            labels: self.named.of_pod(pod).collect(),
        };
        let next = ShapeId(self.kinds.len());
        let id = *self.kinds.entry(features).or_insert(next);
        self.seen_shapes.put(address, (pod.namespace, id));
        id
    }

    /// Whether two pods are of one kind.
    pub(crate) fn same(&self, one: NamespacedShape<'_>, other: NamespacedShape<'_>) -> bool {
        one.namespace == other.namespace
            && one.shape.traits == other.shape.traits
            && controller(one.shape) == controller(other.shape)
            && self.named.of_pod(one).eq(self.named.of_pod(other))
    }

    fn traits(&mut self, namespace: &str, traits: &'a PodTraits) -> TraitsId {
        let address = std::ptr::from_ref(traits).addr();
        if let Some(id) = self.seen_traits.get(address) {
            return *id;
        }
        debug_assert!(
            self.named.know(namespace, traits),
            "its selectors are not among those that were looked at"
        );
        let next = TraitsId(self.traits.len());
        let id = *self.traits.entry(traits).or_insert(next);
        self.seen_traits.put(address, id);
        id
    }
}

fn controller(shape: &PodShape) -> Option<(&str, &str)> {
    let owner = shape.owner.as_ref()?;
    let counted = COUNTED.contains(&&*owner.kind);
    counted.then_some((&*owner.kind, &*owner.uid))
}

/// The keys of labels that selectors of pods name.
#[derive(Debug, Default)]
struct NamedKeys {
    /// By terms that select namespaces.
    everywhere: BTreeSet<Arc<str>>,
    /// By other terms, in the namespaces that they are about.
    within: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
}

impl NamedKeys {
    fn of<'o>(snapshot: &Snapshot, others: impl Iterator<Item = NamespacedShape<'o>>) -> NamedKeys {
        let mut named = NamedKeys::default();
        let mut seen: Recent<Arc<str>, TRAITS_SLOT_BITS> = Recent::default();
        for (rows, _) in snapshot.cluster.pods.rows() {
            for kind in rows.kinds() {
                let address = Arc::as_ptr(&kind.shape.traits).addr();
                let before = seen.get(address);
                if before.is_none_or(|namespace| *namespace != kind.namespace) {
                    seen.put(address, kind.namespace.clone());
                    named.add(&kind.namespace, &kind.shape.traits);
                }
            }
        }
        for (key, set) in &snapshot.cluster.daemon_sets {
            named.add(&key.namespace, &set.shape.traits);
        }
        for pod in others {
            named.add(pod.namespace, &pod.shape.traits);
        }
        named
    }

    fn add(&mut self, namespace: &str, traits: &PodTraits) {
        each_named(namespace, traits, |at, key| {
            let keys = match at {
                None => &mut self.everywhere,
                Some(named) => self.within.entry(named.into()).or_default(),
            };
            if !keys.contains(key) {
                keys.insert(key.clone());
            }
        });
    }

    /// Whether all that a pod's selectors name is known.
    fn know(&self, namespace: &str, traits: &PodTraits) -> bool {
        let mut all = true;
        each_named(namespace, traits, |at, key| {
            all &= match at {
                None => self.everywhere.contains(key),
                Some(named) => {
                    let keys = self.within.get(named);
                    keys.is_some_and(|keys| keys.contains(key))
                }
            };
        });
        all
    }

    /// The labels of a pod that some selector names, in the order of their keys.
    fn of_pod<'p>(&self, pod: NamespacedShape<'p>) -> impl Iterator<Item = (&'p str, &'p str)> {
        let within = self.within.get(pod.namespace);
        let labels = pod.shape.labels.iter();
        let named = labels.filter(move |(key, _)| {
            self.everywhere.contains(*key) || within.is_some_and(|keys| keys.contains(*key))
        });
        named.map(|(key, value)| (&**key, &**value))
    }
}

/// Each key of a label that selectors of a pod in a namespace name, with the namespace in which they look; `None` stands
/// for any.
fn each_named<'t>(
    namespace: &'t str,
    traits: &'t PodTraits,
    mut found: impl FnMut(Option<&'t str>, &'t Arc<str>),
) {
    for term in traits.terms() {
        let keys = || term.selector.iter().flat_map(keys);
        if term.namespace_selector.is_some() {
            keys().for_each(|key| found(None, key));
        }
        for at in &term.namespaces {
            keys().for_each(|key| found(Some(at), key));
        }
        if term.namespace_selector.is_none() && term.namespaces.is_empty() {
            keys().for_each(|key| found(Some(namespace), key));
        }
    }
    for spread in &traits.spread {
        let keys = spread.selector.iter().flat_map(keys);
        let all = keys.chain(&spread.match_label_keys);
        all.for_each(|key| found(Some(namespace), key));
    }
}

fn keys(selector: &LabelSelector) -> impl Iterator<Item = &Arc<str>> {
    let listed = selector.expressions.iter().map(|wanted| &wanted.key);
    selector.labels.keys().chain(listed)
}

/// Values by address, two to the power of `BITS` of them: a later one takes the place of an earlier one.
#[derive(Debug)]
struct Recent<T, const BITS: u32> {
    slots: Vec<Option<(usize, T)>>,
}

/// Bits of a slot's number in the table of shapes that were asked of last: 2^14 slots, for there may be as many shapes as
/// pods.
const SHAPE_SLOT_BITS: u32 = 14;
/// Bits of a slot's number in the table of traits that were asked of last: 2^12 slots, for there are about as many traits
/// as workloads.
const TRAITS_SLOT_BITS: u32 = 12;

impl<T, const BITS: u32> Default for Recent<T, BITS> {
    fn default() -> Recent<T, BITS> {
        let mut slots = Vec::new();
        slots.resize_with(1 << BITS, || None);
        Recent { slots }
    }
}

impl<T, const BITS: u32> Recent<T, BITS> {
    fn get(&self, address: usize) -> Option<&T> {
        let slot = self.slots[Self::slot(address)].as_ref();
        slot.filter(|(of, _)| *of == address)
            .map(|(_, value)| value)
    }

    fn put(&mut self, address: usize, value: T) {
        self.slots[Self::slot(address)] = Some((address, value));
    }

    /// Where an address is remembered.
    fn slot(address: usize) -> usize {
        let mixed = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        usize::try_from(mixed >> (u64::BITS - BITS)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;
    use crate::tests::lab::{lab, owner, shape};
    use model::scheduling::{Operator, PodTerm, Requirement, SpreadConstraint};

    /// How many kinds these pods are, one of which is in a view with the others.
    fn kinds(shapes: &[PodShape]) -> usize {
        kinds_beside(shapes, None)
    }

    /// [`kinds`] beside a pod of another namespace.
    fn kinds_beside(shapes: &[PodShape], other: Option<&PodShape>) -> usize {
        let of = |shape| NamespacedShape {
            namespace: "default",
            shape,
        };
        let other = other.map(|shape| NamespacedShape {
            namespace: "other",
            shape,
        });
        let known = shapes.iter().map(of).chain(other);
        let mut alike = Alike::of(&lab().snapshot, known);
        let all = shapes.iter().chain(shapes);
        let ids: BTreeSet<ShapeId> = all.map(|shape| alike.kind(of(shape))).collect();
        for (one, two) in shapes.iter().zip(&shapes[1..]) {
            let same = alike.kind(of(one)) == alike.kind(of(two));
            assert_eq!(alike.same(of(one), of(two)), same);
        }
        assert!(ids.iter().map(|id| id.0).eq(0..ids.len()));
        ids.len()
    }

    /// Three pods of one controller, each with a label of its own.
    fn numbered(change: impl Fn(usize, &mut PodShape)) -> Vec<PodShape> {
        let one = |number: usize| {
            let mut shape = shape("web-0", 100, 100);
            let value = number.to_string();
            shape.labels.insert("number".into(), value.into());
            change(number, &mut shape);
            shape
        };
        (0..3).map(one).collect()
    }

    fn names(key: &str, operator: Operator) -> LabelSelector {
        LabelSelector {
            expressions: vec![Requirement {
                key: key.into(),
                operator,
                values: Vec::new(),
            }],
            ..LabelSelector::default()
        }
    }

    #[test]
    fn labels_make_kinds_where_a_selector_names_them() {
        assert_eq!(kinds(&numbered(|_, _| {})), 1);
        let term = |selector| PodTerm {
            selector: Some(selector),
            ..PodTerm::default()
        };
        let listed = |shape: &mut PodShape, key: &str| {
            let term = term(names(key, Operator::Exists));
            shape.preferred_anti_pods.push((1, term));
        };
        assert_eq!(kinds(&numbered(|_, shape| listed(shape, "app"))), 1);
        assert_eq!(kinds(&numbered(|_, shape| listed(shape, "number"))), 3);
        // It is enough that one of them names it.
        let one = |number, shape: &mut PodShape| {
            if number == 2 {
                listed(shape, "number");
            }
        };
        assert_eq!(kinds(&numbered(one)), 3);
        let equal = |_, shape: &mut PodShape| {
            let mut selector = LabelSelector::default();
            selector.labels.insert("number".into(), "0".into());
            shape.pod_affinity.push(term(selector));
        };
        assert_eq!(kinds(&numbered(equal)), 3);
    }

    #[test]
    fn a_selector_names_labels_in_the_namespaces_that_it_is_about() {
        let plain = numbered(|_, _| {});
        let beside = |change: &dyn Fn(&mut PodTerm)| {
            let mut term = PodTerm {
                selector: Some(names("number", Operator::Exists)),
                ..PodTerm::default()
            };
            change(&mut term);
            let mut other = shape("other", 100, 100);
            other.pod_anti_affinity.push(term);
            kinds_beside(&plain, Some(&other))
        };
        assert_eq!(beside(&|_| {}), 1);
        assert_eq!(beside(&|term| term.namespaces.push("third".into())), 1);
        assert_eq!(beside(&|term| term.namespaces.push("default".into())), 3);
        let any = |term: &mut PodTerm| term.namespace_selector = Some(LabelSelector::default());
        assert_eq!(beside(&any), 3);
    }

    #[test]
    fn labels_make_kinds_where_a_spread_reads_them() {
        let spread = |selector: LabelSelector, keys: &[&str]| SpreadConstraint {
            max_skew: 1,
            topology_key: "zone".into(),
            hard: true,
            selector: Some(selector),
            min_domains: None,
            match_label_keys: keys.iter().map(|key| Arc::from(*key)).collect(),
            honor_affinity: true,
            honor_taints: false,
        };
        let with = |key: &'static str, keys: &'static [&'static str]| {
            kinds(&numbered(|_, shape| {
                let selector = names(key, Operator::Exists);
                shape.spread.push(spread(selector, keys));
            }))
        };
        assert_eq!(with("app", &[]), 1);
        assert_eq!(with("number", &[]), 3);
        assert_eq!(with("app", &["number"]), 3);
    }

    #[test]
    fn controllers_make_kinds_where_pods_are_counted_by_them() {
        let of = |kind: &str| {
            kinds(&numbered(|number, shape| {
                shape.owner = Some(owner(kind, &format!("{kind}-{number}")));
            }))
        };
        assert_eq!(of("Job"), 1);
        for kind in COUNTED {
            assert_eq!(of(kind), 3, "{kind}");
        }
        assert_eq!(
            kinds(&numbered(
                |n, shape| shape.priority = i32::try_from(n).unwrap_or(0)
            )),
            3
        );
        assert_eq!(
            Alike::of(&lab().snapshot, iter::empty()).named.within.len(),
            0
        );
    }
}

//! Pods that placing cannot tell from each other are one kind.
//!
//! Kinds are what a decision costs: each is asked of each node. Many pods have labels of their own (their
//! number in a StatefulSet, the Job they are of), and controllers that nothing counts them by. What no selector
//! of any pod names, and what spreads nothing, makes no kind of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::scheduling::{PodShape, PodTraits};
use crate::model::snapshot::Snapshot;

use super::world::Shape;

/// Index of a kind: of pods in the order in which they first came.
pub(super) type KindId = usize;

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
pub(super) struct Alike<'a> {
    /// The keys of labels that some selector names.
    named: BTreeSet<Arc<str>>,
    traits: BTreeMap<&'a PodTraits, usize>,
    kinds: BTreeMap<Features<'a>, KindId>,
    /// Equal shapes are mostly one allocation, and so are equal traits, and comparing addresses is cheap.
    /// Only ever looked up, never walked: addresses decide nothing.
    seen_traits: Recent<usize, TRAITS>,
    seen_shapes: Recent<(&'a str, KindId), SHAPES>,
}

/// What makes a kind of pod.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Features<'a> {
    /// Number of its traits.
    traits: usize,
    namespace: &'a str,
    /// The UID of its controller, where that matters.
    controller: Option<&'a str>,
    /// Labels that some selector names.
    labels: Vec<(&'a str, &'a str)>,
}

impl<'a> Alike<'a> {
    /// No kinds yet, of pods of a snapshot and of others that are given, and of none beside these.
    pub(super) fn of<'o>(
        snapshot: &Snapshot,
        others: impl Iterator<Item = &'o PodShape>,
    ) -> Alike<'a> {
        Alike {
            named: named(snapshot, others),
            traits: BTreeMap::new(),
            kinds: BTreeMap::new(),
            seen_traits: Recent::default(),
            seen_shapes: Recent::default(),
        }
    }

    /// The kind of a pod; the next number for the first of its kind.
    pub(super) fn kind(&mut self, pod: Shape<'a>) -> KindId {
        let address = std::ptr::from_ref(pod.shape).addr();
        if let Some((namespace, id)) = self.seen_shapes.get(address)
            && (std::ptr::eq(*namespace, pod.namespace) || *namespace == pod.namespace)
        {
            return *id;
        }
        let features = Features {
            traits: self.traits(&pod.shape.traits),
            namespace: pod.namespace,
            controller: controller(pod.shape),
            labels: self.named_labels(pod.shape),
        };
        let next = self.kinds.len();
        let id = *self.kinds.entry(features).or_insert(next);
        self.seen_shapes.put(address, (pod.namespace, id));
        id
    }

    fn traits(&mut self, traits: &'a PodTraits) -> usize {
        let address = std::ptr::from_ref(traits).addr();
        if let Some(id) = self.seen_traits.get(address) {
            return *id;
        }
        debug_assert!(
            selectors_keys(traits).all(|key| self.named.contains(key)),
            "its selectors are not among those that were looked at"
        );
        let next = self.traits.len();
        let id = *self.traits.entry(traits).or_insert(next);
        self.seen_traits.put(address, id);
        id
    }

    fn named_labels(&self, shape: &'a PodShape) -> Vec<(&'a str, &'a str)> {
        let labels = shape.labels.iter();
        let named = labels.filter(|(key, _)| self.named.contains(*key));
        named.map(|(key, value)| (&**key, &**value)).collect()
    }
}

fn controller(shape: &PodShape) -> Option<&str> {
    let owner = shape.owner.as_ref()?;
    COUNTED.contains(&&*owner.kind).then_some(&*owner.uid)
}

/// The keys of labels that some selector of a pod names.
fn named<'o>(
    snapshot: &Snapshot,
    others: impl Iterator<Item = &'o PodShape>,
) -> BTreeSet<Arc<str>> {
    let mut keys = BTreeSet::new();
    let mut seen: Recent<(), TRAITS> = Recent::default();
    let mut look = |shape: &PodShape| {
        let address = Arc::as_ptr(&shape.traits).addr();
        if seen.get(address).is_none() {
            seen.put(address, ());
            for key in selectors_keys(&shape.traits) {
                if !keys.contains(key) {
                    keys.insert(key.clone());
                }
            }
        }
    };
    for (rows, _) in snapshot.cluster.pods.rows() {
        rows.kinds().iter().for_each(|kind| look(&kind.shape));
    }
    let sets = snapshot.cluster.daemon_sets.values();
    sets.for_each(|set| look(&set.shape));
    others.for_each(&mut look);
    keys
}

/// The keys that the selectors of a pod's terms and spread constraints name.
fn selectors_keys(traits: &PodTraits) -> impl Iterator<Item = &Arc<str>> {
    let terms = traits.terms().map(|term| term.selector.as_ref());
    let spread = traits.spread.iter().map(|spread| spread.selector.as_ref());
    let own = traits
        .spread
        .iter()
        .flat_map(|spread| &spread.match_label_keys);
    terms
        .chain(spread)
        .flatten()
        .flat_map(|selector| {
            let listed = selector.expressions.iter().map(|wanted| &wanted.key);
            selector.labels.keys().chain(listed)
        })
        .chain(own)
}

/// Values by address, two to the power of `BITS` of them: a later one takes the place of an earlier one.
#[derive(Debug)]
struct Recent<T, const BITS: u32> {
    slots: Vec<Option<(usize, T)>>,
}

/// So many bits for shapes: there may be as many as pods.
const SHAPES: u32 = 14;
/// … and for traits, of which there are about as many as workloads.
const TRAITS: u32 = 12;

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
    use crate::brain::tests::lab::{lab, owner, shape};
    use crate::model::scheduling::{
        LabelSelector, Operator, PodTerm, Requirement, SpreadConstraint,
    };

    /// How many kinds these pods are, one of which is in a view with the others.
    fn kinds(shapes: &[PodShape]) -> usize {
        let mut alike = Alike::of(&lab().snapshot, shapes.iter());
        let all = shapes.iter().chain(shapes);
        let of = |shape| Shape {
            namespace: "default",
            shape,
        };
        let ids: BTreeSet<KindId> = all.map(|shape| alike.kind(of(shape))).collect();
        assert!(ids.iter().copied().eq(0..ids.len()));
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
        assert_eq!(Alike::of(&lab().snapshot, iter::empty()).named.len(), 0);
    }
}

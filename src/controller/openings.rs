//! Which new nodes begin to take pods after which others, and which ones together.
//!
//! A decision says after which nodes a node takes pods (`Report::takes_pods_after`). A node *arrives* when nothing but our startup
//! taint keeps pods off it. Where nodes are to wait for one another they begin together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::model::action::NodeRef;

/// The nodes that are about to take pods. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct NodeOpenings {
    state: Arc<Mutex<OpeningsState>>,
}

#[derive(Debug, Default)]
struct OpeningsState {
    /// By node those after which it takes pods, as the newest decision has it.
    after: BTreeMap<Arc<str>, Vec<Arc<str>>>,
    /// Nodes that arrived and whose machine is still being worked on.
    arrived: BTreeMap<Arc<str>, NodeRef>,
}

/// Whether a node may take pods now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OpeningOrder {
    /// It may, together with these others: each waits for one of them.
    Now(Vec<NodeRef>),
    /// It may once these take pods.
    After(BTreeSet<Arc<str>>),
}

/// A node that arrived. It counts as such until this is dropped.
#[derive(Debug)]
pub(super) struct NodeArrival {
    openings: NodeOpenings,
    name: Arc<str>,
}

impl Drop for NodeArrival {
    fn drop(&mut self) {
        self.openings.state().arrived.remove(&self.name);
    }
}

impl NodeOpenings {
    fn state(&self) -> MutexGuard<'_, OpeningsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A decision says after which nodes nodes take pods.
    pub(super) fn plan(&self, after: &BTreeMap<Arc<str>, Vec<Arc<str>>>) {
        let mut state = self.state();
        if state.after != *after {
            state.after.clone_from(after);
        }
    }

    /// Nothing but our startup taint, or one of its pool, keeps pods off this node.
    pub(super) fn arrive(&self, node: NodeRef) -> NodeArrival {
        let name = node.name.clone();
        self.state().arrived.insert(name.clone(), node);
        NodeArrival {
            openings: self.clone(),
            name,
        }
    }

    /// Whether a node that arrived may take pods now. `take_pods` says which of some nodes bear no startup taint of ours; one that bears
    /// a startup taint of its pool is still among those that arrived.
    pub(super) fn order(
        &self,
        node: &Arc<str>,
        take_pods: impl FnOnce(&BTreeSet<Arc<str>>) -> BTreeSet<Arc<str>>,
    ) -> OpeningOrder {
        let state = self.state();
        let awaited: BTreeSet<Arc<str>> = state.after.values().flatten().cloned().collect();
        let open = take_pods(&awaited);
        let is_pending =
            |name: &&Arc<str>| !open.contains(*name) || state.arrived.contains_key(*name);
        let first_of = |name: &Arc<str>| {
            let after = state.after.get(name).into_iter().flatten();
            after.filter(is_pending)
        };
        // Those that the node waits for, at first hand or through others, and who of them waits for whom.
        let mut reached: BTreeSet<Arc<str>> = BTreeSet::new();
        let mut waiting: BTreeMap<Arc<str>, Vec<Arc<str>>> = BTreeMap::new();
        walk(node, |name| {
            let first: Vec<Arc<str>> = first_of(name).cloned().collect();
            for other in &first {
                reached.insert(other.clone());
                waiting.entry(other.clone()).or_default().push(name.clone());
            }
            first
        });
        // Of these the ones that wait for the node in turn.
        let mut company: BTreeSet<Arc<str>> = BTreeSet::new();
        walk(node, |name| {
            let waits = waiting.get(name).cloned().unwrap_or_default();
            company.extend(waits.iter().cloned());
            waits
        });
        company.remove(node);
        let together =
            |name: &&Arc<str>| company.contains(*name) && state.arrived.contains_key(*name);
        let first: BTreeSet<Arc<str>> = reached
            .iter()
            .filter(|name| *name != node && !together(name))
            .cloned()
            .collect();
        if !first.is_empty() {
            return OpeningOrder::After(first);
        }
        let company = company.iter().filter(|name| !open.contains(*name));
        OpeningOrder::Now(
            company
                .filter_map(|name| state.arrived.get(name).cloned())
                .collect(),
        )
    }
}

/// Visits a node, those that `next` gives for it, those that it gives for these, and on; each once.
fn walk(from: &Arc<str>, mut next: impl FnMut(&Arc<str>) -> Vec<Arc<str>>) {
    let mut seen = BTreeSet::from([from.clone()]);
    let mut left = vec![from.clone()];
    while let Some(name) = left.pop() {
        for other in next(&name) {
            if seen.insert(other.clone()) {
                left.push(other);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [&str; 0] = [];

    fn openings(after: &[(&str, &[&str])]) -> NodeOpenings {
        let openings = NodeOpenings::default();
        let names = |of: &[&str]| of.iter().map(|name| Arc::from(*name)).collect();
        let after = after
            .iter()
            .map(|(node, others)| (Arc::from(*node), names(others)));
        openings.plan(&after.collect());
        openings
    }

    fn arrive(openings: &NodeOpenings, name: &str) -> NodeArrival {
        openings.arrive(NodeRef {
            name: name.into(),
            uid: "uid".into(),
        })
    }

    /// The order in words: `now`, with those that begin with it, or `after` those that it waits for.
    fn order(openings: &NodeOpenings, node: &str, open: &[&str]) -> (&'static str, Vec<String>) {
        let open: BTreeSet<Arc<str>> = open.iter().map(|name| Arc::from(*name)).collect();
        match openings.order(&node.into(), |_| open) {
            OpeningOrder::Now(company) => {
                let names = company.iter().map(|node| node.name.to_string());
                ("now", names.collect())
            }
            OpeningOrder::After(first) => {
                ("after", first.iter().map(ToString::to_string).collect())
            }
        }
    }

    fn said(what: &'static str, names: &[&str]) -> (&'static str, Vec<String>) {
        (what, names.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn nodes_that_wait_for_nobody_begin_at_once() {
        let openings = openings(&[("b", &["a"])]);
        let _a = arrive(&openings, "a");
        assert_eq!(order(&openings, "a", &NONE), said("now", &[]));
    }

    #[test]
    fn a_node_waits_until_the_other_one_takes_pods() {
        let openings = openings(&[("b", &["a"])]);
        let _b = arrive(&openings, "b");
        assert_eq!(order(&openings, "b", &NONE), said("after", &["a"]));
        let a = arrive(&openings, "a");
        assert_eq!(order(&openings, "b", &NONE), said("after", &["a"]));
        // A startup taint of its pool is still there.
        assert_eq!(order(&openings, "b", &["a"]), said("after", &["a"]));
        drop(a);
        assert_eq!(order(&openings, "b", &["a"]), said("now", &[]));
    }

    #[test]
    fn nodes_that_wait_for_one_another_begin_together_after_those_that_both_wait_for() {
        let openings = openings(&[("a", &["b"]), ("b", &["c", "a", "x"]), ("c", &["a"])]);
        let _a = arrive(&openings, "a");
        assert_eq!(
            order(&openings, "a", &NONE),
            said("after", &["b", "c", "x"])
        );
        let _b = arrive(&openings, "b");
        let _c = arrive(&openings, "c");
        assert_eq!(order(&openings, "a", &NONE), said("after", &["x"]));
        let x = arrive(&openings, "x");
        assert_eq!(order(&openings, "x", &NONE), said("now", &[]));
        assert_eq!(order(&openings, "c", &NONE), said("after", &["x"]));
        drop(x);
        assert_eq!(order(&openings, "c", &["x"]), said("now", &["a", "b"]));
        // One of them was opened by another, a moment ago.
        assert_eq!(order(&openings, "c", &["x", "b"]), said("now", &["a"]));
    }

    #[test]
    fn a_decision_without_an_order_ends_the_waiting() {
        let openings = openings(&[("b", &["a"])]);
        let _b = arrive(&openings, "b");
        openings.plan(&BTreeMap::new());
        assert_eq!(order(&openings, "b", &NONE), said("now", &[]));
    }

    /// Eighty nodes that all wait for one another: each is asked about once, and they begin together.
    #[test]
    fn many_nodes_that_wait_for_one_another_are_asked_about_once() {
        let names: Vec<String> = (0..80).map(|number| format!("n{number:02}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let after: Vec<(&str, &[&str])> = names.iter().map(|name| (*name, &names[..])).collect();
        let openings = openings(&after);
        let arrived: Vec<NodeArrival> = names.iter().map(|name| arrive(&openings, name)).collect();
        let mut asked = 0;
        let order = openings.order(&"n00".into(), |names| {
            asked += names.len();
            BTreeSet::new()
        });
        assert_eq!(asked, 80);
        assert!(matches!(order, OpeningOrder::Now(company) if company.len() == 79));
        drop(arrived);
    }
}

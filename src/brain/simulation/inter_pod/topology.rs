//! Topology keys and their domains, as numbers.
//!
//! A domain is a topology key together with one value that a node's label has. Only the keys that some
//! constraint names are kept.

use crate::index::{IndexVec, KeyId, ListIndex, NodeIndex};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use model::scheduling::Labels;

/// Index of a domain within its key. [`NOWHERE`] and [`FRESH`] are in no list; those of all lists are less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct DomainId(u32);

/// The node does not carry the key's label.
pub(crate) const NOWHERE: DomainId = DomainId(u32::MAX);
/// A domain that no node has yet: the host name of a node to come.
pub(crate) const FRESH: DomainId = DomainId(u32::MAX - 1);

/// The domain of a place, by topology key.
pub(crate) type DomainsByKey = IndexVec<KeyId, DomainId>;

impl ListIndex for DomainId {
    fn at(position: usize) -> DomainId {
        u32::try_from(position).map_or(NOWHERE, DomainId)
    }

    fn position(self) -> usize {
        self.0 as usize
    }
}

/// One topology key.
#[derive(Debug)]
struct TopologyKey {
    name: Arc<str>,
    known: BTreeMap<Arc<str>, DomainId>,
    values: IndexVec<DomainId, Arc<str>>,
    /// By simulated node.
    of_node: IndexVec<NodeIndex, DomainId>,
}

/// The keys in use, with the domain of every place.
#[derive(Debug, Default)]
pub(crate) struct TopologyDomains {
    keys: IndexVec<KeyId, TopologyKey>,
    places: usize,
}

impl TopologyDomains {
    /// The index of a key, if it is in use.
    pub(crate) fn find(&self, name: &str) -> Option<KeyId> {
        let mut keys = self.keys.indexed();
        keys.find(|(_, key)| *key.name == *name).map(|(id, _)| id)
    }

    /// Takes a key into use; `labels` are those of every place there is.
    pub(crate) fn key<'l>(
        &mut self,
        name: &Arc<str>,
        labels: impl Iterator<Item = &'l Labels>,
    ) -> KeyId {
        if let Some(known) = self.find(name) {
            return known;
        }
        let mut key = TopologyKey {
            name: name.clone(),
            known: BTreeMap::new(),
            values: IndexVec::default(),
            of_node: Vec::with_capacity(self.places).into(),
        };
        for of_node in labels {
            let domain = key.domain_of(of_node);
            key.of_node.push(domain);
        }
        self.keys.push(key)
    }

    /// A place more.
    pub(crate) fn add_node(&mut self, labels: &Labels) {
        self.places += 1;
        for key in &mut self.keys {
            let domain = key.domain_of(labels);
            key.of_node.push(domain);
        }
    }

    /// How many keys are in use.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The keys that are in use.
    pub(crate) fn keys(&self) -> impl Iterator<Item = KeyId> + use<> {
        self.keys.indexes()
    }

    /// The name of a key.
    pub(crate) fn name(&self, key: KeyId) -> &Arc<str> {
        &self.keys[key].name
    }

    /// The value of a domain; `None` for one that comes with a new node.
    pub(crate) fn value(&self, key: KeyId, domain: DomainId) -> Option<&Arc<str>> {
        self.keys[key].values.get(domain)
    }

    /// The domain of a place.
    pub(crate) fn of(&self, key: KeyId, index: NodeIndex) -> DomainId {
        self.keys[key].of_node[index]
    }

    /// A place gets other labels.
    pub(crate) fn relocate(&mut self, index: NodeIndex, labels: &Labels) {
        for key in &mut self.keys {
            key.of_node[index] = key.domain_of(labels);
        }
    }

    /// The domain that a node with these labels would be in.
    pub(crate) fn domain(&mut self, key: KeyId, labels: &Labels) -> DomainId {
        self.keys[key].domain_of(labels)
    }
}

impl TopologyKey {
    fn domain_of(&mut self, labels: &Labels) -> DomainId {
        let Some(value) = labels.get(&self.name) else {
            return NOWHERE;
        };
        if &**value == crate::constraints::fit::NEW {
            return FRESH;
        }
        match self.known.entry(value.clone()) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(free) => {
                let next = self.values.push(value.clone());
                *free.insert(next)
            }
        }
    }
}

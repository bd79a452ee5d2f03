//! What hosts have left of mediated devices: which mapping to ask a host for next, and what it told. Pure.
//!
//! A host is asked for one mapping in a poll, in turns where machines get devices of several. What it told stands until it is asked for that mapping
//! again: it is beside what the VMs have that ran then, which stand with it, so that what came and went since can be counted. What it did not tell is
//! not known.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::region::MediatedLeft;

/// What is left on each host, by mapping.
type MediatedTold = BTreeMap<Arc<str>, BTreeMap<Arc<str>, MediatedLeft>>;

/// What the hosts of a region told.
#[derive(Debug, Default)]
pub(super) struct MediatedBook {
    told: MediatedTold,
    /// The mapping that a host was asked for last.
    last: BTreeMap<Arc<str>, Arc<str>>,
}

impl MediatedBook {
    /// The mapping that each host is to be asked for now, of those that are named here with it. All others are forgotten, and what was told
    /// of these: an answer that does not come tells nothing.
    pub(super) fn due(
        &mut self,
        named: &BTreeMap<&Arc<str>, BTreeSet<&Arc<str>>>,
    ) -> Vec<(Arc<str>, Arc<str>)> {
        self.told.retain(|host, told| {
            let here = named.get(host);
            told.retain(|mapping, _| here.is_some_and(|here| here.contains(mapping)));
            here.is_some()
        });
        self.last.retain(|host, _| named.contains_key(host));
        let mut due = Vec::new();
        for (host, mappings) in named {
            let last = self.last.get(*host);
            let next = mappings
                .iter()
                .find(|mapping| last.is_some_and(|last| last < **mapping));
            let Some(mapping) = next.or(mappings.first()) else {
                continue;
            };
            if let Some(told) = self.told.get_mut(*host) {
                told.remove(*mapping);
            }
            self.last.insert((*host).clone(), (*mapping).clone());
            due.push(((*host).clone(), (*mapping).clone()));
        }
        self.told.retain(|_, told| !told.is_empty());
        due
    }

    /// Takes what a host told of a mapping while these VMs ran there.
    pub(super) fn record(
        &mut self,
        host: &Arc<str>,
        mapping: Arc<str>,
        left: BTreeMap<Arc<str>, u32>,
        running: BTreeSet<u32>,
    ) {
        let told = self.told.entry(host.clone()).or_default();
        told.insert(mapping, MediatedLeft { left, running });
    }

    /// What all of them told.
    pub(super) fn told(&self) -> &MediatedTold {
        &self.told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_take_turns_and_what_is_not_told_is_not_known() {
        let names: Vec<Arc<str>> = ["a", "b", "x", "y"].map(Arc::from).into();
        let [a, b, x, y] = &names[..] else {
            panic!("four names")
        };
        let named = BTreeMap::from([(a, BTreeSet::from([x, y])), (b, BTreeSet::from([x]))]);
        let mut book = MediatedBook::default();
        let asked = |book: &mut MediatedBook| {
            let due = book.due(&named).into_iter();
            due.map(|(host, mapping)| format!("{host}{mapping}"))
                .collect::<Vec<_>>()
                .join(" ")
        };
        let tell = |book: &mut MediatedBook, host: &Arc<str>, mapping: &Arc<str>| {
            let left = BTreeMap::from([("t".into(), 2)]);
            book.record(host, mapping.clone(), left, [9001].into());
        };
        let known = |book: &MediatedBook| {
            let all = book.told().iter();
            let all = all.flat_map(|(host, told)| {
                told.keys().map(move |mapping| format!("{host}{mapping}"))
            });
            all.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(asked(&mut book), "ax bx");
        tell(&mut book, a, x);
        tell(&mut book, b, x);
        assert_eq!(asked(&mut book), "ay bx");
        assert_eq!(known(&book), "ax", "b is asked again, and has not told yet");
        tell(&mut book, a, y);
        assert_eq!(asked(&mut book), "ax bx");
        assert_eq!(known(&book), "ay");
        tell(&mut book, a, x);
        let told = &book.told()[a][x];
        assert_eq!(told.left.get("t"), Some(&2));
        assert_eq!(told.running, BTreeSet::from([9001]));
        assert!(book.due(&BTreeMap::new()).is_empty());
        assert!(book.told().is_empty(), "nothing of them is asked any more");
    }
}

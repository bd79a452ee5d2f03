//! The pods of a cluster: a map in the order of their keys whose copies share what they hold.
//!
//! The daemon copies its view of the cluster in every turn, and a cluster may have 150,000 pods. Entries
//! stand in chunks; a copy takes the chunks along, and a change makes anew one chunk and one entry. Each chunk
//! keeps what walks over all pods read of its entries ([`Rows`]), until one of them is changed.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Index;
use std::slice;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::cluster::{ObjectKey, Pod};
use super::rows::Rows;

/// Entries of a chunk at most: a change copies so many pointers, a copy of the map a pointer for so many
/// entries.
const FULL: usize = 128;
/// A chunk that has shrunk so far is joined with a neighbour, if that leaves room for growth.
const SMALL: usize = FULL / 4;

type PodEntry = (ObjectKey, Pod);

/// Entries in order, never none.
#[derive(Default)]
struct Chunk {
    entries: Vec<Arc<PodEntry>>,
    /// Made when they are first asked for; whoever changes entries goes through [`changed`].
    rows: OnceLock<Rows>,
}

/// Pods by namespace and name.
#[derive(Clone, Default)]
pub struct Pods {
    chunks: Vec<Arc<Chunk>>,
    len: usize,
}

/// Walks over all pods in the order of their keys.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    chunks: slice::Iter<'a, Arc<Chunk>>,
    entries: slice::Iter<'a, Arc<PodEntry>>,
    left: usize,
}

impl From<Vec<Arc<PodEntry>>> for Chunk {
    fn from(entries: Vec<Arc<PodEntry>>) -> Chunk {
        let rows = OnceLock::new();
        Chunk { entries, rows }
    }
}

impl Clone for Chunk {
    /// It is copied to be changed, and its rows would be wrong then.
    fn clone(&self) -> Chunk {
        self.entries.clone().into()
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.entries).finish()
    }
}

/// The entries of a chunk, to be changed; copies of the map keep theirs.
fn changed(chunk: &mut Arc<Chunk>) -> &mut Vec<Arc<PodEntry>> {
    let chunk = Arc::make_mut(chunk);
    chunk.rows = OnceLock::new();
    &mut chunk.entries
}

fn both(entry: &PodEntry) -> (&ObjectKey, &Pod) {
    (&entry.0, &entry.1)
}

impl Pods {
    /// No pods.
    pub fn new() -> Pods {
        Pods::default()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A pod.
    pub fn get(&self, key: &ObjectKey) -> Option<&Pod> {
        self.get_key_value(key).map(|(_, pod)| pod)
    }

    /// A pod with its key.
    pub fn get_key_value(&self, key: &ObjectKey) -> Option<(&ObjectKey, &Pod)> {
        let (chunk, found) = self.find(key);
        Some(both(&self.chunks[chunk?].entries[found.ok()?]))
    }

    /// Whether a pod is there.
    pub fn contains_key(&self, key: &ObjectKey) -> bool {
        self.get(key).is_some()
    }

    /// A pod to be changed; copies of the map keep it as it was.
    pub fn get_mut(&mut self, key: &ObjectKey) -> Option<&mut Pod> {
        let (chunk, found) = self.find(key);
        let (chunk, position) = (chunk?, found.ok()?);
        let entry = &mut changed(&mut self.chunks[chunk])[position];
        Some(&mut Arc::make_mut(entry).1)
    }

    /// Puts a pod in, in the place of one with the same key.
    pub fn insert(&mut self, key: ObjectKey, pod: Pod) -> Option<Pod> {
        let (at, found) = self.find(&key);
        let entry = Arc::new((key, pod));
        let Some(at) = at else {
            self.chunks.push(Arc::new(vec![entry].into()));
            self.len = 1;
            return None;
        };
        let last = at + 1 == self.chunks.len();
        // Pods often come in the order of their keys, and then chunks stay full.
        if last && found == Err(FULL) {
            self.chunks.push(Arc::new(vec![entry].into()));
            self.len += 1;
            return None;
        }
        let chunk = changed(&mut self.chunks[at]);
        match found {
            Ok(position) => {
                let old = std::mem::replace(&mut chunk[position], entry);
                return Some(Arc::unwrap_or_clone(old).1);
            }
            Err(position) => {
                chunk.insert(position, entry);
                if chunk.len() > FULL {
                    let upper = chunk.split_off(FULL / 2);
                    self.chunks.insert(at + 1, Arc::new(upper.into()));
                }
            }
        }
        self.len += 1;
        None
    }

    /// Takes a pod out.
    pub fn remove(&mut self, key: &ObjectKey) -> Option<Pod> {
        let (at, found) = self.find(key);
        let (at, position) = (at?, found.ok()?);
        let chunk = changed(&mut self.chunks[at]);
        let entry = chunk.remove(position);
        let left = chunk.len();
        self.len -= 1;
        if left == 0 {
            self.chunks.remove(at);
        } else if left < SMALL {
            self.join(at.saturating_sub(1));
        }
        Some(Arc::unwrap_or_clone(entry).1)
    }

    /// Keeps the pods that `keep` says.
    pub fn retain(&mut self, mut keep: impl FnMut(&ObjectKey, &Pod) -> bool) {
        for chunk in &mut self.chunks {
            let kept = chunk.entries.iter().map(|entry| keep(&entry.0, &entry.1));
            let kept: Vec<bool> = kept.collect();
            let gone = kept.iter().filter(|kept| !**kept).count();
            if gone > 0 {
                let mut kept = kept.into_iter();
                changed(chunk).retain(|_| kept.next().unwrap_or(true));
                self.len -= gone;
            }
        }
        self.chunks.retain(|chunk| !chunk.entries.is_empty());
    }

    /// Takes all out.
    pub fn clear(&mut self) {
        *self = Pods::new();
    }

    /// All of them.
    pub fn iter(&self) -> Iter<'_> {
        Iter {
            chunks: self.chunks.iter(),
            entries: [].iter(),
            left: self.len,
        }
    }

    /// All of them in parts, in the order of their keys: what walks read of each, and the pods themselves.
    pub fn rows(&self) -> impl Iterator<Item = (&Rows, impl Iterator<Item = (&ObjectKey, &Pod)>)> {
        self.chunks.iter().map(|chunk| {
            let pods = || chunk.entries.iter().map(|entry| both(entry));
            (chunk.rows.get_or_init(|| Rows::of(pods())), pods())
        })
    }

    /// All of them, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&ObjectKey, &mut Pod)> {
        let chunks = self.chunks.iter_mut();
        let entries = chunks.flat_map(|chunk| changed(chunk).iter_mut());
        entries.map(|entry| {
            let (key, pod) = Arc::make_mut(entry);
            (&*key, pod)
        })
    }

    /// All keys.
    pub fn keys(&self) -> impl Iterator<Item = &ObjectKey> + Clone {
        self.iter().map(|(key, _)| key)
    }

    /// All pods without their keys.
    pub fn values(&self) -> impl Iterator<Item = &Pod> + Clone {
        self.iter().map(|(_, pod)| pod)
    }

    /// All pods without their keys, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Pod> {
        self.iter_mut().map(|(_, pod)| pod)
    }

    /// The chunk that a key belongs to, if there is any, and where in it the key is or should be.
    fn find(&self, key: &ObjectKey) -> (Option<usize>, Result<usize, usize>) {
        let first = |chunk: &Chunk| {
            let first = chunk.entries.first();
            first.map_or(Ordering::Less, |entry| entry.0.cmp(key))
        };
        let after = self
            .chunks
            .partition_point(|chunk| first(chunk) != Ordering::Greater);
        let chunk = after.saturating_sub(1);
        match self.chunks.get(chunk) {
            None => (None, Err(0)),
            Some(chunk_here) => {
                let found = chunk_here
                    .entries
                    .binary_search_by(|entry| entry.0.cmp(key));
                (Some(chunk), found)
            }
        }
    }

    /// Makes a chunk and the next one one, if that leaves it half empty.
    fn join(&mut self, at: usize) {
        let both = self.chunks.get(at..at + 2);
        let both = both.map_or(FULL, |both| both[0].entries.len() + both[1].entries.len());
        if both <= FULL / 2 {
            let upper = self.chunks.remove(at + 1);
            changed(&mut self.chunks[at]).extend(upper.entries.iter().cloned());
        }
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a ObjectKey, &'a Pod);

    fn next(&mut self) -> Option<(&'a ObjectKey, &'a Pod)> {
        loop {
            if let Some(entry) = self.entries.next() {
                self.left -= 1;
                return Some(both(entry));
            }
            self.entries = self.chunks.next()?.entries.iter();
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Iter<'_> {}

impl<'a> IntoIterator for &'a Pods {
    type Item = (&'a ObjectKey, &'a Pod);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl<'a> IntoIterator for &'a mut Pods {
    type Item = (&'a ObjectKey, &'a mut Pod);
    type IntoIter = Box<dyn Iterator<Item = (&'a ObjectKey, &'a mut Pod)> + 'a>;

    fn into_iter(self) -> Self::IntoIter {
        Box::new(self.iter_mut())
    }
}

impl FromIterator<(ObjectKey, Pod)> for Pods {
    fn from_iter<I: IntoIterator<Item = (ObjectKey, Pod)>>(pods: I) -> Pods {
        let mut all = Pods::new();
        all.extend(pods);
        all
    }
}

impl Extend<(ObjectKey, Pod)> for Pods {
    fn extend<I: IntoIterator<Item = (ObjectKey, Pod)>>(&mut self, pods: I) {
        for (key, pod) in pods {
            self.insert(key, pod);
        }
    }
}

impl Index<&ObjectKey> for Pods {
    type Output = Pod;

    /// A pod that must be there.
    ///
    /// # Panics
    ///
    /// When it is not.
    fn index(&self, key: &ObjectKey) -> &Pod {
        match self.get(key) {
            Some(pod) => pod,
            None => panic!("there is no pod {key}"),
        }
    }
}

impl PartialEq for Pods {
    fn eq(&self, other: &Pods) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl fmt::Debug for Pods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl Serialize for Pods {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self)
    }
}

impl<'de> Deserialize<'de> for Pods {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Pods, D::Error> {
        let pods = BTreeMap::<ObjectKey, Pod>::deserialize(deserializer)?;
        Ok(pods.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cluster::Phase;
    use crate::time::Time;

    fn key(n: u16) -> ObjectKey {
        ObjectKey::new(format!("ns-{}", n % 3), format!("pod-{:0>5}", n / 3))
    }

    fn pod(n: i64) -> Pod {
        Pod {
            uid: "uid".into(),
            shape: Arc::default(),
            node: None,
            nominated: None,
            phase: Phase::Pending,
            created: Time(n),
            arrival: 0,
            started: None,
            deletion: None,
            deletion_grace_seconds: None,
            unschedulable_since: None,
            gated: false,
            mirror: false,
            ready: false,
        }
    }

    fn same(pods: &Pods, map: &BTreeMap<ObjectKey, Pod>) {
        assert_eq!(pods.len(), map.len());
        assert_eq!(pods.iter().len(), map.len());
        assert!(pods.iter().eq(map.iter()));
        let rows = pods.rows().flat_map(|(rows, pods)| {
            let rows = rows.all().iter().map(|row| (row, &rows.kinds()[row.kind]));
            rows.zip(pods)
        });
        let read = rows.map(|((row, kind), (key, pod))| {
            assert_eq!((&row.node, row.ended), (&pod.node, pod.phase.terminal()));
            let gone = (row.deleting, row.mirror);
            assert_eq!(gone, (pod.deletion.is_some(), pod.mirror));
            assert_eq!((&kind.namespace, &kind.shape), (&key.namespace, &pod.shape));
            (key, pod)
        });
        assert!(read.eq(map.iter()));
        assert!(
            pods.chunks
                .iter()
                .all(|chunk| !chunk.entries.is_empty() && chunk.entries.len() <= FULL)
        );
    }

    proptest! {
        /// Whatever is done with it, it is the map that the standard library would make of it, and copies
        /// that were taken before stay as they were.
        #[test]
        fn it_is_a_map_and_copies_stay_as_they_were(
            steps in proptest::collection::vec((0..6u8, 0..1500u16), 0..60),
        ) {
            let mut pods: Pods = (0..400).map(|n| (key(n * 2), pod(0))).collect();
            let mut map: BTreeMap<ObjectKey, Pod> =
                pods.iter().map(|(key, pod)| (key.clone(), pod.clone())).collect();
            let mut copies = Vec::new();
            for (at, (step, n)) in (1..).zip(steps) {
                let key = key(n);
                copies.push((pods.clone(), map.clone()));
                match step {
                    0 | 1 => prop_assert_eq!(pods.insert(key.clone(), pod(at)), map.insert(key, pod(at))),
                    2 => prop_assert_eq!(pods.remove(&key), map.remove(&key)),
                    3 => {
                        let keep = |key: &ObjectKey| key.name.ends_with('1') || *key < self::key(n);
                        pods.retain(|key, _| keep(key));
                        map.retain(|key, _| keep(key));
                    }
                    4 => {
                        prop_assert_eq!(pods.get_mut(&key).is_some(), map.contains_key(&key));
                        for pod in [pods.get_mut(&key), map.get_mut(&key)].into_iter().flatten() {
                            pod.created = Time(at);
                            pod.node = Some(format!("node-{at}").into());
                            pod.mirror = at % 2 == 0;
                            pod.deletion = (at % 3 == 0).then_some(Time(at));
                        }
                    }
                    _ => {
                        pods.extend((0..200).map(|more| (self::key(n + more), pod(at))));
                        map.extend((0..200).map(|more| (self::key(n + more), pod(at))));
                    }
                }
                same(&pods, &map);
            }
            for (pods, map) in &copies {
                same(pods, map);
            }
        }
    }

    #[test]
    fn it_reads_and_writes_as_a_map() {
        let pods: Pods = (0..300).map(|n| (key(n), pod(i64::from(n)))).collect();
        let map: BTreeMap<&ObjectKey, &Pod> = pods.iter().collect();
        let text = serde_json::to_string(&pods).expect("text");
        assert_eq!(text, serde_json::to_string(&map).expect("text"));
        let read: Pods = serde_json::from_str(&text).expect("a map");
        assert_eq!(read, pods);
        assert_eq!(read[&key(7)].created, Time(7));
    }

    #[test]
    fn copies_share_all_but_what_changed() {
        let pods: Pods = (0..3000).map(|n| (key(n), pod(0))).collect();
        let mut copy = pods.clone();
        copy.insert(key(1234), pod(1));
        let both = pods.chunks.iter().zip(&copy.chunks);
        let other = both.filter(|(a, b)| !Arc::ptr_eq(a, b)).count();
        assert_eq!(other, 1);
    }
}

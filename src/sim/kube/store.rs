//! What the fake API server remembers: objects, the bounded history that watches read, and the
//! trace that two runs of a seed must share to the byte.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use super::bell::{Bell, BellListener};
use super::object::{deleting, list, name, namespace, number, seconds, set, text, uid};
use super::pki::CertificateSubject;
use super::resources::{EVENTS, LEASES, RESOURCES, Res};
use super::status::Status;
use crate::model::time::Time;

/// The alphabet of generated names and template hashes (`apimachinery/pkg/util/rand`).
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchEventKind {
    Added,
    Modified,
    Deleted,
}

impl WatchEventKind {
    /// The word on the wire.
    pub(super) fn word(self) -> &'static str {
        match self {
            WatchEventKind::Added => "ADDED",
            WatchEventKind::Modified => "MODIFIED",
            WatchEventKind::Deleted => "DELETED",
        }
    }
}

/// One entry of the history.
#[derive(Clone, Debug)]
pub(super) struct StoredChange {
    pub(super) version: u64,
    pub(super) resource: Res,
    pub(super) event: WatchEventKind,
    pub(super) object: Arc<Value>,
    pub(super) before: Option<Arc<Value>>,
}

/// The key of an object within its resource: namespace and name.
pub(super) type Key = (String, String);

/// A running FNV-1a digest of the trace, and its lines where they are kept.
#[derive(Debug)]
pub(super) struct Trace {
    digest: u64,
    lines: Option<Vec<String>>,
}

impl Trace {
    fn new(keep: bool) -> Trace {
        Trace {
            digest: 0xcbf2_9ce4_8422_2325,
            lines: keep.then(Vec::new),
        }
    }

    /// Adds a line.
    pub(super) fn add(&mut self, line: String) {
        for byte in line.bytes().chain([b'\n']) {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if let Some(lines) = &mut self.lines {
            lines.push(line);
        }
    }

    /// The digest and the kept lines.
    pub(super) fn shown(&self) -> (u64, Vec<String>) {
        (self.digest, self.lines.clone().unwrap_or_default())
    }
}

/// Everything the server knows.
#[derive(Debug)]
pub(super) struct State {
    /// The time of the operation under way.
    pub(super) now: Time,
    /// The operation under way is a dry run: nothing is kept.
    pub(super) dry: bool,
    pub(super) trace: Trace,
    /// What server-side apply's managers last applied, by object UID and manager.
    pub(super) applied: BTreeMap<(String, String), Value>,
    /// Whom the cluster issued certificates to, by the bearer that stands for them.
    pub(super) issued: BTreeMap<String, CertificateSubject>,
    /// When approved certificate requests will have been signed.
    pub(super) signing: BTreeMap<String, Time>,
    /// What broke a rule of the cluster, for the judge.
    pub(super) violations: Vec<String>,
    /// What callers other than kubelets changed, for the judge.
    pub(super) deeds: Vec<super::facts::ObjectChange>,
    objects: Vec<BTreeMap<Key, Arc<Value>>>,
    history: VecDeque<StoredChange>,
    history_limit: usize,
    version: u64,
    /// Changes up to this version are forgotten.
    forgotten: u64,
    bells: Vec<Bell>,
    /// Rings for every change the controllers may have to look at.
    any: Bell,
    rng: StdRng,
}

impl State {
    /// An empty store. `history_limit`: how many changes are kept for watches.
    pub(super) fn new(seed: u64, history_limit: usize, keep_trace: bool) -> State {
        State {
            now: Time(0),
            dry: false,
            trace: Trace::new(keep_trace),
            applied: BTreeMap::new(),
            issued: BTreeMap::new(),
            signing: BTreeMap::new(),
            violations: Vec::new(),
            deeds: Vec::new(),
            objects: RESOURCES.iter().map(|_| BTreeMap::new()).collect(),
            history: VecDeque::new(),
            history_limit,
            version: 1,
            forgotten: 0,
            bells: RESOURCES.iter().map(|_| Bell::default()).collect(),
            any: Bell::default(),
            rng: StdRng::seed_from_u64(seed),
        }
    }

    /// The version of the last write.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Watches can start from this version on, and no earlier.
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Rings when the resource changes.
    pub(super) fn bell(&self, res: Res) -> BellListener {
        self.bells[res.stored().0].listen()
    }

    /// Rings when anything changes but leases and events.
    pub(super) fn any_bell(&self) -> BellListener {
        self.any.listen()
    }

    /// The version of a resource's last change.
    pub(super) fn changed(&self, res: Res) -> u64 {
        self.bells[res.stored().0].last()
    }

    /// Changes after a version, oldest first.
    pub(super) fn since(&self, version: u64) -> impl Iterator<Item = &StoredChange> {
        let start = self.history.partition_point(|c| c.version <= version);
        self.history.range(start..)
    }

    /// Forgets the whole history, as a restarted or compacted server does.
    pub(super) fn forget(&mut self) {
        self.history.clear();
        self.forgotten = self.version;
    }

    /// All objects of a resource, by namespace and name.
    pub(super) fn all(&self, res: Res) -> &BTreeMap<Key, Arc<Value>> {
        &self.objects[res.stored().0]
    }

    /// All objects of a resource, shared, so that the store may be written meanwhile.
    pub(super) fn snapshot(&self, res: Res) -> Vec<Arc<Value>> {
        self.all(res).values().cloned().collect()
    }

    /// One object.
    pub(super) fn get(&self, res: Res, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.all(res)
            .get(&(namespace.to_owned(), name.to_owned()))
            .cloned()
    }

    /// A seeded random number, below `below`.
    pub(super) fn roll(&mut self, below: u64) -> u64 {
        self.rng.random_range(0..below.max(1))
    }

    /// A version-4 UUID by the seed.
    pub(super) fn uuid(&mut self) -> String {
        let bits: u128 = self.rng.random();
        let bits = (bits & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
        let hex = format!("{bits:032x}");
        format!(
            "{}-{}-{}-{}-{}",
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..]
        )
    }

    /// Five characters, as `generateName` appends them.
    pub(super) fn suffix(&mut self) -> String {
        (0..5)
            .map(|_| char::from(ALPHABET[self.rng.random_range(0..ALPHABET.len())]))
            .collect()
    }

    fn record(
        &mut self,
        res: Res,
        event: WatchEventKind,
        object: Arc<Value>,
        before: Option<Arc<Value>>,
    ) {
        let version = self.version;
        self.trace.add(format!(
            "{} v{version} {} {} {}/{}",
            self.now.0,
            event.word(),
            res.row().plural,
            namespace(&object),
            name(&object),
        ));
        self.history.push_back(StoredChange {
            version,
            resource: res,
            event,
            object,
            before,
        });
        while self.history.len() > self.history_limit {
            if let Some(oldest) = self.history.pop_front() {
                self.forgotten = oldest.version;
            }
        }
        self.bells[res.0].ring(version);
        if !matches!(res, LEASES | EVENTS) {
            self.any.ring(version);
        }
    }

    fn stamp(&mut self, object: &mut Value) {
        self.version += 1;
        set(
            object,
            &["metadata", "resourceVersion"],
            json!(self.version.to_string()),
        );
    }

    /// Stores a new object: gives it its name, UID, time and version.
    pub(super) fn insert(&mut self, res: Res, mut object: Value) -> Result<Arc<Value>, Status> {
        let res = res.stored();
        if name(&object).is_empty() {
            let front = text(&object, "/metadata/generateName").to_owned();
            let generated = format!("{front}{}", self.suffix());
            set(&mut object, &["metadata", "name"], json!(generated));
        }
        let key = (namespace(&object).to_owned(), name(&object).to_owned());
        if self.objects[res.0].contains_key(&key) {
            return Err(Status::already_exists(res, &key.1));
        }
        let uid = self.uuid();
        set(&mut object, &["metadata", "uid"], json!(uid));
        let now = seconds(self.now);
        set(&mut object, &["metadata", "creationTimestamp"], json!(now));
        if res.row().generation {
            set(&mut object, &["metadata", "generation"], json!(1));
        }
        if self.dry {
            return Ok(Arc::new(object));
        }
        self.stamp(&mut object);
        let object = Arc::new(object);
        self.objects[res.0].insert(key, Arc::clone(&object));
        self.record(res, WatchEventKind::Added, Arc::clone(&object), None);
        Ok(object)
    }

    /// Takes an object over from another API server as that one shows it.
    pub(super) fn adopt(&mut self, res: Res, object: Value) {
        let key = (namespace(&object).to_owned(), name(&object).to_owned());
        self.objects[res.stored().0].insert(key, Arc::new(object));
    }

    /// Stores a new form of an object that exists. A write that changes nothing makes no version;
    /// one that takes the last finalizer of an object being deleted removes it.
    pub(super) fn replace(&mut self, res: Res, mut object: Value) -> Arc<Value> {
        let res = res.stored();
        let key = (namespace(&object).to_owned(), name(&object).to_owned());
        let Some(before) = self.objects[res.0].get(&key).cloned() else {
            return Arc::new(object);
        };
        set(
            &mut object,
            &["metadata", "resourceVersion"],
            before["metadata"]["resourceVersion"].clone(),
        );
        if *before == object || self.dry {
            return Arc::new(object);
        }
        if deleting(&object) && released(res, &object) {
            self.stamp(&mut object);
            let object = Arc::new(object);
            self.objects[res.0].insert(key, Arc::clone(&object));
            self.remove(res, &object);
            return object;
        }
        self.stamp(&mut object);
        let object = Arc::new(object);
        self.objects[res.0].insert(key, Arc::clone(&object));
        self.record(
            res,
            WatchEventKind::Modified,
            Arc::clone(&object),
            Some(before),
        );
        object
    }

    /// Changes an object in place through a function; nothing when it does not exist.
    pub(super) fn change(
        &mut self,
        res: Res,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut Value),
    ) {
        if let Some(old) = self.get(res, namespace, name) {
            let mut new = Value::clone(&old);
            change(&mut new);
            self.replace(res, new);
        }
    }

    /// Removes an object at once. The event carries its last form with a new version.
    pub(super) fn remove(&mut self, res: Res, object: &Value) -> Arc<Value> {
        let res = res.stored();
        let key = (namespace(object).to_owned(), name(object).to_owned());
        let Some(before) = self.objects[res.0].get(&key).cloned() else {
            return Arc::new(object.clone());
        };
        if self.dry {
            return before;
        }
        self.objects[res.0].remove(&key);
        let gone = uid(&before).to_owned();
        self.applied.retain(|(owner, _), _| *owner != gone);
        let mut last = Value::clone(&before);
        self.stamp(&mut last);
        let last = Arc::new(last);
        self.record(
            res,
            WatchEventKind::Deleted,
            Arc::clone(&last),
            Some(before),
        );
        last
    }
}

/// Whether nothing holds an object back whose deletion was asked for.
fn released(res: Res, object: &Value) -> bool {
    list(object, "/metadata/finalizers").is_empty()
        && list(object, "/spec/finalizers").is_empty()
        && (res != super::resources::PODS
            || number(object, "/metadata/deletionGracePeriodSeconds").unwrap_or(0) == 0)
}

/// A hash of a pod template, in the alphabet that Kubernetes uses for such.
pub(super) fn template_hash(template: &Value) -> String {
    let mut digest: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in template.to_string().bytes() {
        digest = (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let mut hash = String::new();
    for _ in 0..10 {
        let at = usize::try_from(digest % 27).unwrap_or(0);
        hash.push(char::from(ALPHABET[at]));
        digest /= 27;
    }
    hash
}

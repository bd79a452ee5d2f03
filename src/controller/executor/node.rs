//! A machine's node: found by the rule of identity, labelled, and let in when it is Ready.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join, join_all};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::config::cloud_init::{self, GapValues};
use crate::controller::in_place::WrittenAnnotations;
use crate::controller::journal::JournalEntry;
use crate::controller::openings::OpeningOrder;
use crate::kubernetes::ChangeCounts;
use crate::model::action::NodeRef;
use crate::model::cluster::{Node, ReadyStatus};
use crate::model::facts::{self, Facts};
use crate::model::identity::{Contradiction, NodeIdentity, Signs, annotation};
use crate::model::policy::{
    INSTANCE_TYPE_LABEL, InstanceType, MACHINE_ANNOTATION, POOL_LABEL, REGION_LABEL, STARTUP_TAINT,
    Terms, ZONE_LABEL,
};
use crate::model::region::Step;
use crate::model::scheduling::{Labels, Taint};
use crate::pve::VmConfig;

use super::restart::Restart;
use super::vm;
use super::work::{Stop, Work};

/// The view is looked at again at least this often, whether it said that it changed or not.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// The node lifecycle controller takes these off a Ready node within a second …
const PASSING_TAINTS: [&str; 2] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/network-unavailable",
];
/// … and our startup taint waits no longer for these than this.
const PASSING: Duration = Duration::from_secs(15);
/// A node whose kubelet has `--cloud-provider=external` carries it until a cloud controller manager has been at it.
const CLOUD_TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// A node that is ready waits no longer than this for the nodes after which it takes pods: machines of one template come up about
/// as fast, and the pods that are booked on it wait meanwhile.
const OPENS_WITHIN: Duration = Duration::from_mins(2);
/// Nodes that begin to take pods together and whose pods are nominated at a time.
const TOGETHER: usize = 4;
/// Nodes that are named where one waits for more.
const NAMED: usize = 3;
/// Deleting a token is tried for this long; the token expires by itself in any case.
const TOKEN_PATIENCE: Duration = Duration::from_mins(1);

impl Work {
    /// What the configuration promised when the machine was planned; without such terms what it says
    /// now. `None`: it does not know the machine's pool or type any more.
    pub(super) fn terms(&self) -> Result<Option<Arc<Terms>>, Stop> {
        if let Some(terms) = self.entry()?.spec.terms {
            return Ok(Some(terms));
        }
        let policy = &self.tools.settings.policy;
        let kind = policy.instance_types.get(self.mark.instance_type.as_str());
        let pool = policy.pools.get(self.mark.pool.as_str());
        Ok(kind
            .zip(pool)
            .map(|(kind, pool)| Arc::new(Terms::of(pool, kind))))
    }

    /// The machine's instance type.
    pub(super) fn instance_type(&self) -> Result<InstanceType, Stop> {
        let name = self.mark.instance_type.as_str();
        let terms = self.terms()?.ok_or_else(|| {
            Stop::Failed(format!(
                "instance type {name} or pool {} is not in the configuration any more",
                self.mark.pool
            ))
        })?;
        Ok(terms.kind.clone())
    }

    /// Fills a text of the configuration in for this machine.
    pub(super) fn filled(&self, what: &str, text: &str) -> Result<String, Stop> {
        let entry = self.entry()?;
        facts::fill(text, &self.facts(&entry)).map_err(|why| unfilled(what, text, &why))
    }

    /// As [`Work::filled`], for a text that may name the machine's network cards and zone, and `further` names.
    pub(super) fn filled_for_node(
        &self,
        what: &str,
        text: &str,
        cards: &GapValues,
        further: &[(&str, &str)],
    ) -> Result<String, Stop> {
        let entry = self.entry()?;
        cloud_init::filled_for_node(text, &self.facts(&entry), cards, further)
            .map_err(|why| unfilled(what, text, &why))
    }

    fn facts<'a>(&'a self, entry: &'a JournalEntry) -> Facts<'a> {
        Facts {
            machine: &self.machine,
            vmid: self.mark.vmid,
            host: &entry.target.host,
            region: &entry.target.region,
            pool: &self.mark.pool,
            instance_type: &self.mark.instance_type,
        }
    }

    /// The labels of its type and pool as the configuration has them, with gaps.
    fn written_labels(&self) -> Result<Labels, Stop> {
        let mut labels = Labels::new();
        if let Some(terms) = self.terms()? {
            labels.extend(terms.kind.labels.clone());
            labels.extend(terms.labels.clone());
        }
        Ok(labels)
    }

    /// The labels its node shall carry.
    pub(super) fn node_labels(&self) -> Result<Labels, Stop> {
        let entry = self.entry()?;
        let (mut labels, problem) =
            facts::fill_labels(&self.written_labels()?, &self.facts(&entry));
        if let Some(problem) = problem {
            return Err(Stop::Failed(problem));
        }
        let zone = self.zone(&entry);
        let ours: [(&str, &str); 4] = [
            (POOL_LABEL, &self.mark.pool),
            (INSTANCE_TYPE_LABEL, &self.mark.instance_type),
            (ZONE_LABEL, &zone),
            (REGION_LABEL, &entry.target.region),
        ];
        labels.extend(ours.map(|(key, value)| (Arc::from(key), Arc::from(value))));
        Ok(labels)
    }

    /// What the zone of its node is called.
    pub(super) fn zone(&self, entry: &JournalEntry) -> Arc<str> {
        let policy = &self.tools.settings.policy;
        policy.zone_of(&entry.target.region, &entry.target.host)
    }

    /// The taints its node starts with, our startup taint apart.
    pub(super) fn pool_taints(&self) -> Result<Vec<Taint>, Stop> {
        Ok(self.terms()?.map_or_else(Vec::new, |terms| {
            let taints = terms.taints.iter().chain(&terms.startup_taints);
            taints.cloned().collect()
        }))
    }
}

fn unfilled(what: &str, text: &str, why: &str) -> Stop {
    Stop::Failed(format!("{what} {text:?}: {why}"))
}

/// The SMBIOS UUID that PVE gave the VM.
pub(super) async fn uuid(work: &Work) -> Result<Arc<str>, Stop> {
    let config = vm::ours(work).await?;
    config.uuid.ok_or_else(|| {
        Stop::Failed(
            "the VM has no SMBIOS UUID (smbios1); its node could not be told from others"
                .to_owned(),
        )
    })
}

/// What the machine's node must show, when its VM has this UUID.
fn signs<'a>(work: &'a Work, entry: &'a JournalEntry, uuid: Option<&'a str>) -> Signs<'a> {
    Signs {
        machine: &work.machine,
        region: &entry.target.region,
        vmid: work.mark.vmid,
        uuid,
        remembered: entry.uuid.as_deref(),
    }
}

/// What the nodes in the watched view say of the machine, when its VM has this UUID.
pub(super) fn identity(work: &Work, uuid: &str) -> Result<NodeIdentity, Stop> {
    let entry = work.entry()?;
    let signs = signs(work, &entry, Some(uuid));
    Ok(work
        .tools
        .store
        .with(|cluster| signs.identify(&cluster.nodes)))
}

/// The machine's node in the watched view, when its VM has this UUID.
pub(super) fn registered(work: &Work, uuid: &str) -> Option<(Arc<str>, Node)> {
    let identity = identity(work, uuid).ok()?;
    let name = identity.agreed()?;
    let node = work
        .tools
        .store
        .with(|cluster| cluster.nodes.get(name).cloned())?;
    Some((name.clone(), node))
}

/// The machine's node, every node that shows a sign of it read afresh; `None` when none does. Whatever is
/// contradicted stops the work: a node on this VM may be full of pods under another name. `off`: a removal of
/// ours has switched the VM off; then it is known by the UUID it had.
pub(super) async fn own(
    work: &Work,
    config: &VmConfig,
    off: bool,
) -> Result<Option<(Arc<str>, Node)>, Stop> {
    let entry = work.entry()?;
    let had = entry.uuid.as_deref().filter(|_| off);
    let signs = signs(work, &entry, had.or(config.uuid.as_deref()));
    let mut names: BTreeSet<Arc<str>> = work.tools.store.with(|cluster| {
        let nodes = cluster.nodes.iter();
        let touching = nodes.filter(|(name, node)| signs.touch(name, node));
        touching.map(|(name, _)| name.clone()).collect()
    });
    names.insert(work.machine.clone());
    let kube = &work.tools.kube;
    let mut nodes = BTreeMap::new();
    for name in names {
        let node = work
            .patiently_kube("reading the node", || kube.node(&name))
            .await?;
        nodes.extend(node.map(|node| (name, node)));
    }
    match signs.identify(&nodes) {
        NodeIdentity::None => Ok(None),
        NodeIdentity::Agreed(name) => Ok(nodes.remove_entry(&name)),
        NodeIdentity::Contradiction(found) => Err(hands_off(&found)),
    }
}

/// Nothing is done to a machine whose node is contradicted.
fn hands_off(found: &Contradiction) -> Stop {
    Stop::Failed(format!("left alone: {}", found.why))
}

/// Whether a node is there that needs no join; a stop when nodes contradict each other.
pub(super) fn has_joined(work: &Work, uuid: &str) -> Result<bool, Stop> {
    match identity(work, uuid)? {
        NodeIdentity::None => Ok(false),
        NodeIdentity::Agreed(_) => Ok(true),
        NodeIdentity::Contradiction(found) => Err(hands_off(&found)),
    }
}

/// Waits for a while; says whether the node with this UUID was Ready within it.
pub(super) async fn becomes_ready(work: &Work, uuid: &str, wait: Duration) -> bool {
    let ready = async {
        let mut changes = work.tools.store.changes();
        while registered(work, uuid).is_none_or(|(_, node)| node.ready.status != ReadyStatus::True)
        {
            changed(&mut changes).await;
        }
    };
    timeout(wait, ready).await.is_ok()
}

/// Waits until the node is there.
pub(super) async fn registers(work: &Work, uuid: &str) -> Result<Arc<str>, Stop> {
    let mut changes = work.tools.store.changes();
    let mut restart = Restart::new();
    loop {
        match identity(work, uuid)? {
            NodeIdentity::Agreed(name) => return Ok(name),
            NodeIdentity::None => {
                work.progress("no node with the VM's name and UUID has appeared");
            }
            NodeIdentity::Contradiction(found) => work.note(found.why),
        }
        restart.of_vm_that_is_off(work).await?;
        changed(&mut changes).await;
    }
}

/// Labels the node, waits until it is Ready, and takes the startup taint away.
pub(super) async fn initialized(work: &Work, name: &Arc<str>) -> Result<(), Stop> {
    let labels = work.node_labels()?;
    let uuid = uuid(work).await?;
    let annotations = annotations(work, &uuid)?;
    let mut changes = work.tools.store.changes();
    let mut labelled = false;
    let (mut ready, mut nominated, mut arrived) = (None, None, None);
    // Half of the step's time is the node's own.
    let half = work.tools.settings.deadlines.initialize.to_std() / 2;
    let spent = work.spent_at(Step::Initialize).to_std();
    let opens_by = Instant::now() + half.saturating_sub(spent);
    let mut restart = Restart::new();
    loop {
        let Some((_, node)) = registered(work, &uuid) else {
            arrived = None;
            work.note(match identity(work, &uuid)? {
                NodeIdentity::Contradiction(found) => found.why.into(),
                NodeIdentity::None | NodeIdentity::Agreed(_) => "the node went away".to_owned(),
            });
            changed(&mut changes).await;
            continue;
        };
        let reference = NodeRef {
            name: name.clone(),
            uid: node.uid.clone(),
        };
        if !labelled {
            label(work, &reference, &labels, &Labels::new()).await?;
            annotate(work, &reference, &annotations).await?;
            labelled = true;
        }
        if node.ready.status == ReadyStatus::True {
            let since = *ready.get_or_insert_with(Instant::now);
            if let Some(taint) = passing_taint(&node).filter(|_| since.elapsed() < PASSING) {
                work.progress(format!("the node still has the taint {taint}"));
            } else {
                let openings = &work.tools.nominations.openings;
                arrived.get_or_insert_with(|| openings.arrive(reference.clone()));
                let by = opens_by.min(since + OPENS_WITHIN);
                if takes_pods(work, (&reference, &node), by, &mut nominated).await? {
                    return Ok(());
                }
            }
        } else {
            arrived = None;
            let why = node
                .ready
                .why
                .as_deref()
                .unwrap_or("its kubelet says nothing");
            work.progress(format!("node {name} is not Ready: {why}"));
            restart.of_vm_that_is_off(work).await?;
        }
        changed(&mut changes).await;
    }
}

/// Takes our startup taint away when it is the node's turn, by `by` at the latest. Says whether no startup taint is left. `nominated`: when
/// its pods were nominated last.
async fn takes_pods(
    work: &Work,
    (reference, node): (&NodeRef, &Node),
    by: Instant,
    nominated: &mut Option<Instant>,
) -> Result<bool, Stop> {
    if is_starting(node) {
        if let OpeningOrder::After(first) = work.tools.opening_order(&reference.name, by) {
            work.progress(waits_for(&first));
            return Ok(false);
        }
        let opening = work.tools.lock_opening().await;
        // Whoever began to take pods before may have begun together with this one.
        let shown = work.tools.store.with(|cluster| {
            let newest = cluster.nodes.get(&reference.name);
            newest.is_some_and(is_starting)
        });
        let order = work.tools.opening_order(&reference.name, by);
        if shown && let OpeningOrder::Now(company) = order {
            open(work, reference, &company).await?;
        }
        drop(opening);
        *nominated = Some(Instant::now());
        return Ok(false);
    }
    // The pool's own startup taints go when what they stand for is there, a CNI for instance.
    let Some(key) = startup_taint(work, node)? else {
        return Ok(true);
    };
    work.progress(format!("the node still has the startup taint {key}"));
    // kube-scheduler clears a nomination whenever it tries the pod in the meantime. Not at every
    // change of the cluster: it is a walk over all pods.
    if nominated.is_none_or(|at| at.elapsed() >= LOOK_AGAIN) {
        work.tools.nominate(&reference.name).await;
        *nominated = Some(Instant::now());
    }
    Ok(false)
}

/// Whether a node bears our startup taint.
pub(super) fn is_starting(node: &Node) -> bool {
    node.taints.iter().any(|taint| *taint.key == *STARTUP_TAINT)
}

/// Nominates the pods of a node, and of those that begin with it, and takes their startup taints away at one time.
async fn open(work: &Work, node: &NodeRef, company: &[NodeRef]) -> Result<(), Stop> {
    let (tools, kube) = (&work.tools, &work.tools.kube);
    let nodes: Vec<&NodeRef> = std::iter::once(node).chain(company).collect();
    for some in nodes.chunks(TOGETHER) {
        join_all(some.iter().map(|one| tools.nominate(&one.name))).await;
    }
    let own = work.patiently_kube("taking the startup taint away", || {
        kube.remove_taint(node, STARTUP_TAINT)
    });
    // What fails here is done again by the work on that node's machine.
    let others = company
        .iter()
        .map(|other| kube.remove_taint(other, STARTUP_TAINT));
    let (own, _) = join(own, join_all(others)).await;
    own?;
    tools
        .nominations
        .wait_until_tried(&tools.store, &node.name)
        .await;
    work.progress("the startup taint is being taken away");
    Ok(())
}

/// Says why a node that is ready takes no pods yet.
fn waits_for(first: &BTreeSet<Arc<str>>) -> String {
    let names: Vec<&str> = first.iter().take(NAMED).map(|name| &**name).collect();
    let more = match first.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "the node takes pods after {}{more}: pods that others must run beside go there, and would come here without room for the others",
        names.join(", ")
    )
}

/// Writes the host that the VM is on now on its node; both are read afresh. Gives the node's name where it bears the startup taint, and
/// is still to be initialised.
pub(super) async fn follows_its_vm(work: &Work) -> Result<Option<Arc<str>>, Stop> {
    let config = vm::ours(work).await?;
    if let Some(lock) = &config.lock {
        return Err(Stop::Transient(format!("the VM is locked ({lock})")));
    }
    let Some((name, node)) = own(work, &config, false).await? else {
        return Err(Stop::Transient("the node went away".to_owned()));
    };
    let reference = NodeRef {
        name,
        uid: node.uid.clone(),
    };
    let labels = host_labels(work)?;
    label(work, &reference, &labels, &Labels::new()).await?;
    Ok(is_starting(&node).then_some(reference.name))
}

/// Writes labels and annotations on a node.
async fn label(
    work: &Work,
    node: &NodeRef,
    labels: &Labels,
    annotations: &Labels,
) -> Result<(), Stop> {
    let kube = &work.tools.kube;
    work.patiently_kube("labelling the node", || {
        kube.label_node(node, labels, annotations)
    })
    .await?;
    Ok(())
}

/// Remembers which annotations of the file the node has.
fn annotated(work: &Work) -> Result<(), Stop> {
    let settings = &work.tools.settings;
    work.record(|entry| {
        let now = WrittenAnnotations::of(settings, &work.mark, &entry.target.host);
        entry.written.annotations = Some(now);
    })
}

/// Writes the annotations that the file names now on the node of a machine that works, and takes those off that it does not name any more.
pub(super) async fn annotated_anew(work: &Work) -> Result<(), Stop> {
    let config = vm::ours(work).await?;
    let Some((name, node)) = own(work, &config, false).await? else {
        return Err(Stop::Transient("the node went away".to_owned()));
    };
    let reference = NodeRef {
        name,
        uid: node.uid,
    };
    let uuid = config.uuid.as_deref().unwrap_or_default();
    let set = annotations(work, uuid)?;
    annotate(work, &reference, &set).await
}

/// Writes these annotations on the node, and takes those off that were written before and are not among them.
async fn annotate(work: &Work, node: &NodeRef, set: &Labels) -> Result<(), Stop> {
    let before = work.entry()?.written.annotations.unwrap_or_default();
    let mut gone = before.texts;
    gone.retain(|key, _| !set.contains_key(key));
    let gone: Vec<Arc<str>> = gone.into_keys().collect();
    let kube = &work.tools.kube;
    work.patiently_kube("annotating the node", || {
        kube.annotate_node(node, set, &gone)
    })
    .await?;
    annotated(work)
}

/// The labels that may name the host: its zone, and those that the configuration fills in.
fn host_labels(work: &Work) -> Result<Labels, Stop> {
    let written = work.written_labels()?;
    let mut labels = work.node_labels()?;
    let filled = |key: &Arc<str>| written.get(key).is_some_and(|text| facts::has_gaps(text));
    labels.retain(|key, _| **key == *ZONE_LABEL || filled(key));
    Ok(labels)
}

/// A taint that Kubernetes' own controllers take off a node right after it became Ready, while ours is there too. A pod that
/// kube-scheduler tries before that loses its nomination.
fn passing_taint(node: &Node) -> Option<&str> {
    let mut taints = node.taints.iter().filter(|_| is_starting(node));
    let taint = taints.find(|taint| PASSING_TAINTS.contains(&&*taint.key));
    taint.map(|taint| &*taint.key)
}

/// A startup taint of its pool, or the one that a cloud controller takes away, that the node still carries.
fn startup_taint(work: &Work, node: &Node) -> Result<Option<Arc<str>>, Stop> {
    if node.taints.iter().any(|taint| &*taint.key == CLOUD_TAINT) {
        let said = format!("{CLOUD_TAINT}, which a cloud controller manager takes away");
        return Ok(Some(said.into()));
    }
    let carried = |taint: &&Taint| node.taints.iter().any(|other| other.key == taint.key);
    Ok(work.terms()?.and_then(|terms| {
        let mut taints = terms.startup_taints.iter();
        taints.find(carried).map(|taint| taint.key.clone())
    }))
}

fn annotations(work: &Work, uuid: &str) -> Result<Labels, Stop> {
    let entry = work.entry()?;
    let pool = work.tools.settings.pools.get(work.mark.pool.as_str());
    let written = pool
        .map(|pool| pool.annotations.clone())
        .unwrap_or_default();
    let mut annotations = Labels::new();
    for (key, text) in written {
        let text = if facts::has_gaps(&text) {
            work.filled(&format!("annotation {key}"), &text)?.into()
        } else {
            text
        };
        annotations.insert(key, text);
    }
    let identity = annotation(&entry.target.region, work.mark.vmid, uuid);
    annotations.insert(Arc::from(MACHINE_ANNOTATION), Arc::from(identity));
    Ok(annotations)
}

/// Deletes the machine's bootstrap token, as far as that is possible in short time. Nobody remembers whether there is one: another leader may
/// have made it, and the answer to its making may have been lost.
pub(super) async fn drop_token(work: &Work) {
    let kube = &work.tools.kube;
    let id = work.mark.token.as_str();
    if id.is_empty() {
        return;
    }
    let deletion = work.patiently_kube("deleting the bootstrap token", || kube.delete_token(id));
    if !matches!(timeout(TOKEN_PATIENCE, deletion).await, Ok(Ok(()))) {
        tracing::warn!(machine = %work.machine, token = id, "the bootstrap token could not be deleted; it expires by itself");
    }
}

async fn changed(changes: &mut watch::Receiver<ChangeCounts>) {
    // Either is fine: a change, or a while without one.
    let _ = timeout(LOOK_AGAIN, changes.changed()).await;
    sleep(Duration::from_millis(10)).await;
}

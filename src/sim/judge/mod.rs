//! What must hold in a simulated world, whatever happens: looked at again and again beside the
//! daemon, over facts that the fakes themselves keep. It shares no code with what it judges.

mod addresses;
mod deeds;
mod known;
mod need;
mod rest;
#[cfg(test)]
mod tests;
mod vms;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Deserialize as _;
use serde_json::{Value, json};

use super::broker::Broker;
use super::guests::KubeGuests;
use super::kube::Kube;
use super::pve::{Pve, VmFacts};
use super::wire::SimWire;
use crate::model::time::{Span, Time};
use known::SeenMachine;

/// What every mark begins with.
const MARK: &str = "pve-autoscaler:v1 ";
/// The label that names a node's pool.
const POOL_LABEL: &str = "pve-autoscaler.io/pool";
/// Most findings that are kept; a world that is broken a hundred times is broken.
const MOST_FINDINGS: usize = 100;

/// What a pool promises: how many machines there may be, and the node that it makes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolRule {
    /// The pool's name.
    pub name: String,
    /// Least machines.
    pub min: usize,
    /// Most machines.
    pub max: usize,
    /// Allocatable of a new node, as in a node's status (`{"cpu": "4", "memory": "3Gi", …}`).
    pub allocatable: Value,
    /// Labels of a new node.
    pub labels: BTreeMap<String, String>,
    /// Taints of a new node, as in its spec.
    pub taints: Vec<Value>,
    /// Hosts that its machines may be on; empty for all.
    pub hosts: Vec<String>,
    /// Hosts that they may not be on.
    pub exclude_hosts: Vec<String>,
    /// It replaces nodes that work, and makes machines for that.
    pub replaces: bool,
}

/// What the configuration promises for all pools together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JudgeTerms {
    /// How long what lost its other half is only looked at.
    pub quarantine: Span,
    /// How long a pool waits at least after a machine of it failed.
    pub backoff: Span,
    /// Up to this many machines without a node are few, however few machines there are.
    pub few_lost: usize,
    /// More of a hundred machines without node are too many.
    pub lost_percent: usize,
}

/// The judge of one world.
#[derive(Debug)]
pub struct Judge {
    kube: Kube,
    pve: Pve,
    /// Whose kubelet is whose, whatever it says.
    guests: Option<KubeGuests>,
    /// Knows which machines the daemon asked for that were too many.
    broker: Option<Broker>,
    /// Devices with addresses that are neither in PVE nor in Kubernetes.
    wire: SimWire,
    /// The PVE clusters of the other regions: their machines' nodes are for their judges.
    elsewhere: Vec<Pve>,
    /// SMBIOS UUIDs of all VMs that there ever were elsewhere.
    uuids_elsewhere: BTreeSet<String>,
    terms: Option<JudgeTerms>,
    /// The cluster id in the marks of the machines that may be touched.
    cluster: String,
    pools: Vec<PoolRule>,
    /// VMs that were there before.
    foreign: BTreeSet<u32>,
    /// VMs whose mark a person took away, and since when it is away; `None` while it is back.
    disowned: BTreeMap<u32, Option<Time>>,
    /// VMIDs whose intent a person took away before there was a mark, and when.
    unclaimed: BTreeMap<u32, Time>,
    /// Tokens that were there before.
    tokens: BTreeSet<String>,
    /// How many of the fakes' records were read already.
    changes: usize,
    requests: u64,
    deeds: usize,
    refusals: usize,
    violations: usize,
    /// What was seen of this cluster's machines, by VMID.
    machines: BTreeMap<u32, SeenMachine>,
    /// SMBIOS UUIDs of all machines there ever were.
    uuids: BTreeSet<String>,
    /// Since when nodes forbid their removal, by name.
    disabled: BTreeMap<String, Time>,
    /// Since when there is no quorum.
    no_quorum: Option<Time>,
    /// Since when somebody else holds the Lease.
    no_lease: Option<Time>,
    /// When somebody last waited for a node.
    wanted: Time,
    /// Machines in a row that never worked, and when the removal of the last of them began, by pool.
    failures: BTreeMap<String, (u32, Time)>,
    /// When the daemon last changed something.
    busy: Time,
    /// What made room or took demand away at the last look.
    relief: need::Relief,
    /// From here on, how long a pod may wait that a new node would take.
    patience: Option<Span>,
    /// When it looked first.
    began: Option<Time>,
    /// Since when nothing goes wrong any more.
    calm: Option<Time>,
    /// Since when such pods wait, by UID.
    waiting: BTreeMap<String, Time>,
    findings: BTreeSet<String>,
}

/// What a mark says, read by the judge's own eyes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ReadMark {
    machine: String,
    pool: String,
    cluster: String,
    vmid: u64,
    /// When it was planned.
    created: Option<Time>,
}

fn mark(description: &str) -> Option<ReadMark> {
    let line = description.lines().rfind(|l| !l.trim().is_empty())?;
    let value: Value = serde_json::from_str(line.trim().strip_prefix(MARK)?).ok()?;
    let text = |key: &str| value[key].as_str().map(str::to_owned);
    Some(ReadMark {
        machine: text("machine")?,
        pool: text("pool")?,
        cluster: text("cluster")?,
        vmid: value["vmid"].as_u64()?,
        created: Time::deserialize(&value["created"]).ok(),
    })
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or("")
}

impl Judge {
    /// A judge of a world as it is now: the VMs and tokens that are there are somebody else's.
    /// `name`: the cluster's configured name, the second half of its id.
    pub fn new(kube: Kube, pve: Pve, name: &str, pools: Vec<PoolRule>) -> Judge {
        let foreign = pve.vms().iter().map(|vm| vm.vmid).collect();
        let tokens = tokens(&kube);
        let (changes, violations) = (pve.changes().len(), kube.violations().len());
        let (requests, deeds) = (pve.request_count(), kube.deeds_since(0).len());
        let cluster = format!("{}/{name}", kube.cluster_uid());
        Judge {
            kube,
            pve,
            guests: None,
            broker: None,
            wire: SimWire::default(),
            elsewhere: Vec::new(),
            uuids_elsewhere: BTreeSet::new(),
            terms: None,
            cluster,
            pools,
            foreign,
            disowned: BTreeMap::new(),
            unclaimed: BTreeMap::new(),
            tokens,
            changes,
            requests,
            deeds,
            refusals: 0,
            violations,
            machines: BTreeMap::new(),
            uuids: BTreeSet::new(),
            disabled: BTreeMap::new(),
            no_quorum: None,
            no_lease: None,
            wanted: Time(i64::MAX),
            failures: BTreeMap::new(),
            busy: Time::default(),
            relief: need::Relief::default(),
            patience: None,
            began: None,
            calm: None,
            waiting: BTreeMap::new(),
            findings: BTreeSet::new(),
        }
    }

    /// Lets it know whose kubelet is whose, and what the configuration promises.
    #[must_use]
    pub fn knowing(self, guests: KubeGuests, terms: JudgeTerms) -> Judge {
        Judge {
            guests: Some(guests),
            terms: Some(terms),
            ..self
        }
    }

    /// Lets it know the broker, which refuses what would be too many before anything of it is to be seen in PVE.
    #[must_use]
    pub fn behind(self, broker: Broker) -> Judge {
        Judge {
            broker: Some(broker),
            ..self
        }
    }

    /// Lets it know what else is on the wire that machines are on.
    #[must_use]
    pub fn on_wire(self, wire: SimWire) -> Judge {
        Judge { wire, ..self }
    }

    /// Lets it know the PVE clusters of the other regions. Its pools are those of its own region.
    #[must_use]
    pub fn beside(self, elsewhere: Vec<Pve>) -> Judge {
        Judge { elsewhere, ..self }
    }

    /// From now on nothing goes wrong any more, so that pods a new node would take have to get one
    /// within this span.
    pub fn expect_progress(&mut self, patience: Span) {
        self.patience = Some(patience);
        self.calm = None;
        self.waiting.clear();
    }

    /// A person took away all that shows that a VM is ours which has no mark yet, or is still to be cloned: the daemon's
    /// intent. The daemon cannot know of it, and may ask for the machine that is one too many; the broker knows, and
    /// refuses it.
    pub fn disown(&mut self, vmid: u32, now: Time) {
        self.unclaimed.insert(vmid, now);
    }

    /// Looks at the world. Call it about every second.
    pub fn look(&mut self, now: Time) {
        self.began = self.began.or(Some(now));
        if self.patience.is_some() {
            self.calm = self.calm.or(Some(now));
        }
        self.look_elsewhere();
        self.look_at_hindrances(now);
        self.look_at_acts(now);
        self.look_at_requests();
        self.look_at_refusals(now);
        let ours = self.ours();
        self.remember(now, &ours);
        self.look_for_relief(now);
        self.count(now, &ours);
        let violations = self.kube.violations();
        for violation in violations.iter().skip(self.violations) {
            self.find(violation.clone());
        }
        self.violations = violations.len();
        self.look_at_pods(now, &ours);
        self.look_at_addresses(now, &ours);
    }

    /// Whose nodes are for other judges.
    fn look_elsewhere(&mut self) {
        let vms = self.elsewhere.iter().flat_map(Pve::vms);
        let uuids = vms.map(|vm| vm.uuid).filter(|uuid| !uuid.is_empty());
        self.uuids_elsewhere.extend(uuids);
    }

    /// What was done in Kubernetes and in PVE since the last look, in the order in which it was done: a Node that goes
    /// right after its VM was there when the VM stopped.
    fn look_at_acts(&mut self, now: Time) {
        let deeds = self.kube.deeds_since(self.deeds);
        self.deeds += deeds.len();
        let changes = self.pve.changes_since(self.changes);
        self.changes += changes.len();
        let mut deeds = deeds.iter().peekable();
        for change in &changes {
            while let Some(deed) = deeds.next_if(|deed| deed.at < change.at) {
                self.look_at_deed(deed);
            }
            self.look_at_change(now, change);
        }
        for deed in deeds {
            self.look_at_deed(deed);
        }
    }

    /// What was found so far; empty when all is well.
    pub fn findings(&self) -> Vec<String> {
        self.findings.iter().cloned().collect()
    }

    /// Looks every second until the future is dropped, on the clock given.
    pub async fn preside(&mut self, clock: crate::clock::Clock) {
        loop {
            self.look(clock.now());
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
    }

    /// Machines that are not foreign, half-made ones included.
    fn ours(&self) -> Vec<VmFacts> {
        let vms = self.pve.vms().into_iter();
        vms.filter(|vm| !vm.template && !vm.container && !self.foreign.contains(&vm.vmid))
            .collect()
    }

    fn nodes(&self) -> Vec<Arc<Value>> {
        self.kube.objects("v1", "Node")
    }

    fn find(&mut self, what: String) {
        if self.findings.len() < MOST_FINDINGS {
            self.findings.insert(what);
        }
    }

    /// Never more machines than allowed, never two of a name.
    ///
    /// What a person took from the daemon does not count, nor when it is back: another was made in its place then,
    /// and nothing is too many that the daemon made.
    fn count(&mut self, now: Time, ours: &[VmFacts]) {
        let most: usize = self.pools.iter().map(|p| p.max).sum();
        let made = ours
            .iter()
            .filter(|vm| !self.disowned.contains_key(&vm.vmid));
        let made: Vec<&VmFacts> = made.collect();
        // Nor does a placeholder of which only the broker knows: of what is left of it, it knows no pool.
        let known = made
            .iter()
            .filter(|vm| !self.unclaimed.contains_key(&vm.vmid));
        let count = known.count();
        if count > most {
            self.find(format!("{now}: {count} machines, at most {most} allowed"));
        }
        let mut pools: BTreeMap<String, usize> = BTreeMap::new();
        let mut names = BTreeSet::new();
        for seen in made.iter().filter_map(|vm| mark(&vm.description)) {
            *pools.entry(seen.pool).or_default() += 1;
            if !names.insert(seen.machine.clone()) {
                self.find(format!("{now}: two VMs are machine {}", seen.machine));
            }
        }
        for (pool, count) in pools {
            let count = count + self.count_elsewhere(&pool);
            let rule = self.pools.iter().find(|p| p.name == pool);
            let max = rule.map_or(0, |p| p.max);
            if count > max {
                self.find(format!(
                    "{now}: pool {pool} has {count} machines, at most {max} allowed"
                ));
            }
        }
    }

    /// Machines of a pool in other regions: its `max` is over all of them.
    fn count_elsewhere(&self, pool: &str) -> usize {
        let vms = self.elsewhere.iter().flat_map(Pve::vms);
        let marks = vms.filter_map(|vm| mark(&vm.description));
        marks.filter(|seen| seen.pool == pool).count()
    }

    /// Pods that wait too long for a node that a pool with room would make.
    fn look_at_pods(&mut self, now: Time, ours: &[VmFacts]) {
        let Some(patience) = self.patience else {
            return;
        };
        let mut still = BTreeMap::new();
        let mut late = Vec::new();
        for pod in self.kube.unschedulable() {
            let open = self.pools.iter().any(|pool| {
                let there = ours
                    .iter()
                    .filter_map(|vm| mark(&vm.description))
                    .filter(|seen| seen.pool == pool.name)
                    .count();
                let there = there + self.count_elsewhere(&pool.name);
                there < pool.max && self.kube.would_take(&node_of(pool), &pod)
            });
            if !open {
                continue;
            }
            let uid = text(&pod, "/metadata/uid").to_owned();
            let since = *self.waiting.get(&uid).unwrap_or(&now);
            if now.since(since) > patience {
                late.push(format!(
                    "pod {} waits since {since} for a node that a pool would make",
                    text(&pod, "/metadata/name")
                ));
            }
            still.insert(uid, since);
        }
        self.waiting = still;
        for pod in late {
            self.find(pod);
        }
    }
}

/// The node that a pool would make, as far as scheduling looks at it.
fn node_of(pool: &PoolRule) -> Value {
    json!({
        "metadata": {"name": format!("{}-new", pool.name), "labels": pool.labels},
        "spec": {"taints": pool.taints},
        "status": {"allocatable": pool.allocatable},
    })
}

fn system_uuid(node: &Value) -> String {
    text(node, "/status/nodeInfo/systemUUID").to_lowercase()
}

fn pool_of(node: &Value) -> Option<&str> {
    node["metadata"]["labels"][POOL_LABEL].as_str()
}

/// The ids of all bootstrap tokens but those that a person made for an image to join with, and says so.
fn tokens(kube: &Kube) -> BTreeSet<String> {
    kube.objects("v1", "Secret")
        .iter()
        .filter(|s| text(s, "/type") == "bootstrap.kubernetes.io/token")
        .filter(|s| text(s, "/metadata/labels/made-by") != "person")
        .map(|s| text(s, "/metadata/name").replace("bootstrap-token-", ""))
        .collect()
}

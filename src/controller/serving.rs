//! Serving certificates of our machines' kubelets: requests are approved that ask for what a machine is, and nothing more.
//!
//! Nobody in Kubernetes approves these by itself: a kubelet says itself which names and addresses it has, and a certificate for
//! somebody else's address would let it pass for that. Here each request is held against what PVE says of the machine's VM.

mod judge;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::config::settings::{AddressSource, Settings};
use crate::controller::turn::Turn;
use crate::kubernetes::events::reason;
use crate::kubernetes::lease::Holder;
use crate::kubernetes::serving::ServingRequest;
use crate::kubernetes::{Event, EventRecorder, InvolvedObject};
use crate::model::action::NodeRef;
use crate::model::cluster::Node;
use crate::model::identity::{NodeIdentity, Signs};
use crate::model::mark::Ownership;
use crate::model::reasons::Held;
use crate::model::region::{Machine, RegionName};
use crate::model::report::Scope;
use crate::pve::VmConfig;

use judge::KnownKubelet;

/// Between two looks for requests.
const EVERY: Duration = Duration::from_secs(10);
/// Requests that were refused are remembered; more are looked at and told of again.
const REMEMBERED: usize = 10_000;
/// A request that was refused is looked at again after this time, and after twice as long each time.
const FIRST: Duration = Duration::from_secs(20);
const LAST: Duration = Duration::from_mins(30);
/// Requests of one kubelet in one look, the newest: others wait for the next.
const OF_ONE: usize = 3;
/// Requests for which PVE and Kubernetes are asked in one look.
const IN_A_LOOK: usize = 50;

/// What requests are judged by.
#[derive(Debug)]
pub(super) struct Approver {
    pub(super) settings: Arc<Settings>,
    pub(super) kube: crate::kubernetes::KubeClient,
    pub(super) clients: BTreeMap<RegionName, crate::pve::Client>,
    pub(super) holder: watch::Receiver<Holder>,
    pub(super) turns: watch::Receiver<Option<Arc<Turn>>>,
    pub(super) events: EventRecorder,
}

/// A request that was refused.
#[derive(Debug)]
struct RefusedRequest {
    why: String,
    /// When it is looked at again, and how long that is put off.
    again: Instant,
    pause: Duration,
}

/// What becomes of a request.
enum RequestVerdict {
    /// It is what the machine is.
    Approve,
    /// It is of a machine of ours, and not right.
    Wrong(Box<(Option<NodeRef>, String)>),
    /// What it is judged by could not be read: looked at again.
    Later(String),
}

impl Approver {
    /// Looks now and then, while the lease is ours.
    pub(super) async fn run(self) {
        let mut refused = BTreeMap::new();
        // What was said last: while it stays the same it is no news.
        let mut said = String::new();
        loop {
            sleep(EVERY).await;
            let ours = self.holder.borrow().ours;
            let turn = self.turns.borrow().clone();
            let Some(turn) = turn.filter(|turn| ours && !is_blind(turn)) else {
                continue;
            };
            let of_machines = |username: &str| machine_of(username, &turn).is_some();
            match self.kube.serving_requests(of_machines).await {
                Ok(requests) => {
                    said.clear();
                    for request in due(requests, &refused) {
                        self.decide(&request, &turn, &mut refused).await;
                    }
                }
                Err(error) => {
                    let error = error.to_string();
                    if error != said {
                        tracing::warn!(
                            error,
                            "requests for serving certificates cannot be read; if a right is missing, `pve-autoscaler doctor` says which"
                        );
                        said = error;
                    }
                }
            }
        }
    }

    async fn decide(
        &self,
        request: &ServingRequest,
        turn: &Turn,
        refused: &mut BTreeMap<String, RefusedRequest>,
    ) {
        let name = &request.name;
        let (node, why) = match self.verdict(request, turn).await {
            // Another may lead by now, and asks PVE itself.
            RequestVerdict::Approve if !self.holder.borrow().ours => return,
            RequestVerdict::Approve => match self.kube.approve(request).await {
                Ok(()) => {
                    tracing::info!(
                        request = name,
                        user = request.username,
                        "a serving certificate is approved"
                    );
                    return;
                }
                Err(error) => (
                    None,
                    format!("its approval failed and is tried again: {error}"),
                ),
            },
            RequestVerdict::Later(why) => {
                tracing::debug!(
                    request = name,
                    why,
                    "a serving certificate is looked at again"
                );
                return;
            }
            RequestVerdict::Wrong(wrong) => *wrong,
        };
        if !remember(refused, &request.uid, &why) {
            return;
        }
        tracing::warn!(
            request = name,
            user = request.username,
            why,
            "a request for a serving certificate is left alone"
        );
        if let Some(node) = node {
            self.events.record(Event {
                about: InvolvedObject::node(&node),
                reason: reason::CERTIFICATE_LEFT_ALONE,
                warning: true,
                message: format!(
                    "The request {name} for a serving certificate is left alone: {why}."
                ),
            });
        }
    }

    async fn verdict(&self, request: &ServingRequest, turn: &Turn) -> RequestVerdict {
        let Some((machine, known)) = machine_of(&request.username, turn) else {
            return RequestVerdict::Later("its node is no machine of ours any more".to_owned());
        };
        let wrong = |node: Option<&Node>, why: String| {
            let node = node.map(|node| NodeRef {
                name: machine.clone(),
                uid: node.uid.clone(),
            });
            RequestVerdict::Wrong(Box::new((node, why)))
        };
        if let Err(why) = judge::judge_form(request, machine) {
            return wrong(turn.snapshot.cluster.nodes.get(machine), why);
        }
        let node = match self.kube.node(machine).await {
            Ok(Some(node)) => node,
            Ok(None) => return RequestVerdict::Later("its node is not there".to_owned()),
            Err(error) => return RequestVerdict::Later(error.to_string()),
        };
        if let Some(found) = &known.contradiction {
            return wrong(Some(&node), found.why.to_string());
        }
        let config = match self.config(machine, known).await {
            Ok(config) => config,
            Err(why) => return RequestVerdict::Later(why),
        };
        if let Err(why) = is_its_vm(machine, known, (&config, &node)) {
            return wrong(Some(&node), why);
        }
        let domain = config.raw.get("searchdomain").map(String::as_str);
        let known = KnownKubelet {
            node: machine,
            domain: domain.unwrap_or_default(),
            addresses: addresses(known, &config),
            finds_addresses: finds_addresses(&config),
            others: self.others((machine, known), turn),
        };
        match judge::judge(request, &known) {
            Ok(()) => RequestVerdict::Approve,
            Err(why) => wrong(Some(&node), why),
        }
    }

    /// The configuration of the machine's VM, read now.
    async fn config(&self, name: &str, machine: &Machine) -> Result<VmConfig, String> {
        let client = self.clients.get(&machine.region);
        let client = client.ok_or_else(|| format!("the region of {name} is not known"))?;
        let config = client.vm_config(&machine.host, machine.mark.vmid).await;
        config.map_err(|error| error.to_string())
    }

    /// Addresses that are somebody else's, and whose.
    fn others(&self, (machine, own): (&str, &Machine), turn: &Turn) -> BTreeMap<IpAddr, String> {
        let mut others = BTreeMap::new();
        for (name, node) in &turn.snapshot.cluster.nodes {
            if **name != *machine {
                let all = node.addresses.iter();
                others.extend(all.map(|address| (*address, format!("node {name} has it"))));
            }
        }
        for (name, other) in &turn.snapshot.machines {
            if **name != *machine {
                let all = other.mark.addresses.values().flatten();
                others.extend(
                    all.map(|address| (*address, format!("it is reserved for machine {name}"))),
                );
            }
        }
        for (name, region) in &turn.snapshot.regions {
            let is_own = |vmid: u32| *name == own.region && vmid == own.mark.vmid;
            let theirs = region.vms.iter().filter(|(vmid, _)| !is_own(**vmid));
            for (vmid, vm) in theirs {
                let all = vm.addresses.iter().flatten();
                others.extend(all.map(|address| (*address, format!("VM {vmid} has it"))));
            }
        }
        for network in self.settings.networks.values() {
            let gateways = [&network.ipv4, &network.ipv6].into_iter();
            let gateways = gateways.filter_map(AddressSource::gateway);
            others.extend(gateways.map(|address| (address, "it is a gateway".to_owned())));
        }
        let server = self.kube.authority().map(|authority| authority.server);
        if let Some(address) = server.as_deref().and_then(judge::address_of) {
            others.insert(address, "the API server has it".to_owned());
        }
        others
    }
}

/// Puts off the next look at a request that was refused; whether the reason is news.
fn remember(refused: &mut BTreeMap<String, RefusedRequest>, uid: &str, why: &str) -> bool {
    if refused.len() >= REMEMBERED {
        refused.clear();
    }
    let before = refused.get(uid);
    let pause = before.map_or(FIRST, |before| (before.pause * 2).min(LAST));
    let is_news = before.is_none_or(|before| before.why != why);
    let now = RefusedRequest {
        why: why.to_owned(),
        again: Instant::now() + pause,
        pause,
    };
    refused.insert(uid.to_owned(), now);
    is_news
}

/// Whether the view is not good enough for anything: a node or a VM that has an address might not be in it. While somebody has paused
/// the daemon certificates are approved all the same, as machines that are being made are made to their end.
fn is_blind(turn: &Turn) -> bool {
    let mut holds = turn.decision.report.holds.iter();
    holds.any(|hold| {
        hold.scope == Scope::Everything && !matches!(hold.why.held, Held::Paused { .. })
    })
}

/// The machine of ours whose kubelet a user is.
fn machine_of<'t>(username: &str, turn: &'t Turn) -> Option<(&'t Arc<str>, &'t Machine)> {
    let name = username.strip_prefix("system:node:")?;
    turn.snapshot.machines.get_key_value(name)
}

/// The requests that are to be looked at now: of each kubelet the newest, without those that were refused a short time ago.
fn due(
    mut requests: Vec<ServingRequest>,
    refused: &BTreeMap<String, RefusedRequest>,
) -> Vec<ServingRequest> {
    let now = Instant::now();
    requests.retain(|request| {
        let before = refused.get(&request.uid);
        before.is_none_or(|before| before.again <= now)
    });
    requests.sort_by(|a, b| (&b.created, &b.name).cmp(&(&a.created, &a.name)));
    let mut of_one: BTreeMap<String, usize> = BTreeMap::new();
    requests.retain(|request| {
        let count = of_one.entry(request.username.clone()).or_default();
        *count += 1;
        *count <= OF_ONE
    });
    requests.truncate(IN_A_LOOK);
    requests
}

/// The addresses of a machine's VM: those that are reserved for it, and those in its configuration. What the guest agent tells the
/// guest tells, so that it proves nothing.
fn addresses(machine: &Machine, config: &VmConfig) -> BTreeSet<IpAddr> {
    let reserved = machine.mark.addresses.values().flatten().copied();
    reserved.chain(config.addresses()).collect()
}

/// Whether a card of the VM is told to find an address by itself.
fn finds_addresses(config: &VmConfig) -> bool {
    let cards = config.raw.iter();
    let mut cards = cards.filter(|(key, _)| key.starts_with("ipconfig"));
    cards.any(|(_, value)| {
        let mut parts = value.split(',');
        parts.any(|part| part.ends_with("=dhcp") || part.ends_with("=auto"))
    })
}

/// The VM carries the machine's mark, and the node is on it by the rule of identity.
fn is_its_vm(
    name: &Arc<str>,
    machine: &Machine,
    (config, node): (&VmConfig, &Node),
) -> Result<(), String> {
    match config.ownership() {
        Ownership::Marked(mark) if mark == machine.mark => {}
        _ => return Err("its VM does not carry its mark any more".to_owned()),
    }
    let signs = Signs {
        machine: name,
        region: &machine.region,
        vmid: machine.mark.vmid,
        uuid: config.uuid.as_deref(),
        remembered: machine.remembered.as_deref(),
    };
    let nodes = BTreeMap::from([(name.clone(), node.clone())]);
    match signs.identify(&nodes) {
        NodeIdentity::Agreed(_) => Ok(()),
        NodeIdentity::None => Err("its node does not show the VM's UUID".to_owned()),
        NodeIdentity::Contradiction(found) => Err(found.why.to_string()),
    }
}

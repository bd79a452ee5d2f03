//! From what there is and what was answered to what is proposed, each choice with its reason. Pure.

use std::collections::BTreeSet;

use super::answers::SetupAnswers;
use super::cluster::KubeFound;
use super::free::{self, Vmids};
use super::hardware;
use super::images::ImagesFound;
use super::network;
use super::room;
use super::survey::{self, Existing, Survey};
use super::templates::{self, TemplateSource};
use crate::config::file::{ChannelKind, Method};
use crate::config::scalar::VmidRange;
use crate::config::settings::{Channel, RegionSettings};
use crate::config::syntax::dns_label;
use crate::kubernetes::bootstrap;
use crate::model::words;

/// Machines that a pool may have at first.
const MAX: u32 = 5;
/// What things are called where nobody says otherwise.
pub(super) const POOL: &str = "workers";
pub(super) const TEMPLATE: &str = "debian";
pub(super) const NETWORK: &str = "machines";
pub(super) const RESOURCE_POOL: &str = "pve-autoscaler";
pub(super) const TOKEN: &str = "pve-autoscaler@pve!daemon";
pub(super) const SECRET: &str = "/etc/pve-autoscaler/pve-token";

/// One thing that was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SetupChoice {
    /// The answer that says otherwise.
    pub(super) key: &'static str,
    pub(super) value: String,
    pub(super) why: String,
    /// A person at the terminal is asked.
    pub(super) ask: bool,
    /// It was answered.
    pub(super) answered: bool,
}

/// What is proposed.
#[derive(Clone, Debug, Default)]
pub(super) struct Proposal {
    pub(super) choices: Vec<SetupChoice>,
    pub(super) wanted: SetupSpec,
    /// What is not there and cannot be chosen; nothing is done while there is any.
    pub(super) missing: Vec<String>,
    /// What a person should know.
    pub(super) notes: Vec<String>,
}

impl Proposal {
    pub(super) fn choose(
        &mut self,
        key: &'static str,
        value: impl Into<String>,
        why: impl Into<String>,
        answered: bool,
    ) {
        self.choices.push(SetupChoice {
            key,
            value: value.into(),
            why: if answered {
                "as answered".to_owned()
            } else {
                why.into()
            },
            ask: false,
            answered,
        });
    }

    /// The last choice is worth a question.
    pub(super) fn ask(&mut self) {
        if let Some(choice) = self.choices.last_mut() {
            choice.ask = true;
        }
    }
}

/// What the configuration is to say.
#[derive(Clone, Debug, Default)]
pub(super) struct SetupSpec {
    pub(super) vmids: String,
    pub(super) token: Option<TokenWanted>,
    pub(super) template: TemplateWanted,
    pub(super) network: Option<NetworkWanted>,
    pub(super) types: Vec<TypeWanted>,
    pub(super) pool: PoolWanted,
}

/// PVE by an API token.
#[derive(Clone, Debug, Default)]
pub(super) struct TokenWanted {
    pub(super) endpoints: Vec<String>,
    pub(super) fingerprint: Option<String>,
    pub(super) ca_file: Option<String>,
    pub(super) id: String,
    pub(super) secret_file: String,
    pub(super) resource_pool: String,
}

/// The template.
#[derive(Clone, Debug, Default)]
pub(super) struct TemplateWanted {
    pub(super) name: String,
    pub(super) source: TemplateSource,
    /// Why machines ask for their addresses by DHCP, where the template's own configuration does not say that they do.
    pub(super) dhcp: Option<&'static str>,
    /// The template's storage has no linked clones: machines are full clones.
    pub(super) full: bool,
    pub(super) bridge: Option<String>,
    pub(super) vlan: Option<u16>,
}

/// The network that `setup` proposes for fixed addresses.
#[derive(Clone, Debug, Default)]
pub(super) struct NetworkWanted {
    pub(super) subnet: String,
    pub(super) ranges: Vec<String>,
    pub(super) gateway: String,
    pub(super) nameservers: Vec<String>,
}

/// A size of machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TypeWanted {
    pub(super) name: String,
    pub(super) cores: u32,
    pub(super) memory: String,
}

/// The pool.
#[derive(Clone, Debug, Default)]
pub(super) struct PoolWanted {
    pub(super) name: String,
    pub(super) min: u32,
    pub(super) max: u32,
    pub(super) hosts: Vec<String>,
    /// `join.method`, where it is not kubeadm.
    pub(super) join: Option<&'static str>,
}

/// Proposes a configuration for where none is yet, or only part of one: what the file has stays. `images` is what a
/// template could be built of.
pub(super) fn choose(
    survey: &Survey,
    answers: &SetupAnswers,
    (existing, here): (&Existing, bool),
    images: &ImagesFound,
) -> Proposal {
    let mut proposal = Proposal::default();
    let channel = survey::channel(answers, existing, here);
    kubernetes(survey, answers, &mut proposal);
    let settings = &existing.settings;
    let region = existing.region();
    let of_file = region.and_then(|(name, _)| settings.policy.regions.get(name));
    let machines = match of_file.filter(|_| !existing.lacks_range) {
        Some(range) => {
            let range = (range.vmid_first, range.vmid_last);
            note_outside(survey, range, &mut proposal);
            range
        }
        None => {
            match region {
                Some((_, region)) => way_of_file(answers, region, &mut proposal),
                None => way(answers, channel, &mut proposal),
            }
            range(survey, answers, &mut proposal)
        }
    };
    let name = &settings.kubernetes.name;
    proposal.notes.extend(survey.ours.tell_other_names(name));
    let mut templates = settings.templates.keys();
    match (templates.next(), templates.next()) {
        (None, _) => templates::choose(survey, answers, (channel, machines, images), &mut proposal),
        (Some(one), None) => proposal.wanted.template.name = one.to_string(),
        (Some(_), Some(_)) => {
            let text = "the file has several templates and no pool: write the pool by hand";
            proposal.missing.push(text.to_owned());
        }
    }
    network::choose(survey, answers, &mut proposal);
    hardware::choose(survey, answers, &mut proposal);
    pool(survey, answers, &mut proposal);
    proposal
}

/// An administrator's kubeconfig, where the daemon has none that is good.
pub(super) fn kubernetes(survey: &Survey, answers: &SetupAnswers, proposal: &mut Proposal) {
    let given = answers.kubernetes.kubeconfig.as_ref();
    let needed = survey.kubeconfig_lacks.is_some() || survey.policy.is_missing();
    if let Some(path) = given.filter(|_| needed) {
        let shown = path.display().to_string();
        proposal.choose("kubernetes.kubeconfig", shown, "", true);
    } else if let Some(lacks) = &survey.kubeconfig_lacks {
        let why = format!("an administrator's, for a moment; the daemon's own: {lacks}");
        proposal.choose("kubernetes.kubeconfig", "", why, false);
        proposal.ask();
        proposal.missing.push(format!(
            "kubernetes.kubeconfig: the path of an administrator's kubeconfig, such as a copy of a control plane node's \
             /etc/kubernetes/admin.conf (the daemon's own: {lacks})"
        ));
    }
    if let Some(server) = &answers.kubernetes.server {
        proposal.choose("kubernetes.server", &**server, "", true);
        if let Err(why) = bootstrap::check_server(server) {
            proposal.missing.push(format!("kubernetes.server: {why}"));
        }
    } else if let Some(why) = survey
        .server_unfit
        .as_ref()
        .filter(|_| survey.kubeconfig_lacks.is_some())
    {
        proposal.choose("kubernetes.server", "", &**why, false);
        proposal.ask();
        proposal.missing.push(format!("kubernetes.server: {why}"));
    }
    let Some(kube) = &survey.kube else {
        return;
    };
    match kube.method() {
        Some(Method::Kubeadm) => proposal.notes.extend(warn_of_kubeadm(kube)),
        Some(method) => {
            let why = format!("the API server says {}", kube.version);
            let shown = if method == Method::K3s { "k3s" } else { "rke2" };
            proposal.choose("pool.join.method", shown, why, false);
            proposal.wanted.pool.join = Some(shown);
        }
        None => proposal.notes.push(
            "the cluster has no kube-public/cluster-info, so kubeadm did not make it, and machines do not join by `kubeadm join`: \
             set [pool.NAME.join], docs/joining.md"
                .to_owned(),
        ),
    }
}

/// What machines that run `kubeadm join` would fail on.
fn warn_of_kubeadm(kube: &KubeFound) -> Option<String> {
    let lacks = kube.kubeadm_lacks.join(", ");
    (!lacks.is_empty()).then(|| {
        format!(
            "the cluster has kube-public/cluster-info, and not what `kubeadm join` reads besides in kube-system: {lacks}. Machines would not join by it: \
             `kubeadm init phase upload-config all` on a control plane node makes it where kubeadm made the cluster; else set [pool.NAME.join], docs/joining.md"
        )
    })
}

fn way(answers: &SetupAnswers, channel: ChannelKind, proposal: &mut Proposal) {
    let proxmox = &answers.proxmox;
    let answered = proxmox.channel.is_some();
    if channel == ChannelKind::Local {
        let why = "the daemon runs on a PVE host and reaches PVE through the broker: no password, no token";
        proposal.choose("proxmox.channel", "local", why, answered);
        return;
    }
    let why = "the daemon does not run on a PVE host";
    proposal.choose("proxmox.channel", "token", why, answered);
    let endpoints = proxmox.endpoints.clone().unwrap_or_default();
    if endpoints.is_empty() {
        proposal.missing.push(
            "proxmox.endpoints: where PVE's API answers, such as [\"https://192.0.2.11:8006\"]; with proxmox.fingerprint or ca_file"
                .to_owned(),
        );
    }
    let id = proxmox.token_id.clone().unwrap_or_else(|| TOKEN.to_owned());
    if !id
        .split_once('!')
        .is_some_and(|(user, _)| user.contains('@'))
    {
        proposal.missing.push(format!(
            "proxmox.token_id: {id:?} is not USER@REALM!NAME, such as {TOKEN}"
        ));
    }
    let why = "a user of its own with the least privileges";
    proposal.choose("proxmox.token_id", &*id, why, proxmox.token_id.is_some());
    let resource_pool = resource_pool(answers, proposal);
    let shown = |path: &std::path::PathBuf| path.display().to_string();
    let secret = proxmox.token_secret_file.as_ref().map(shown);
    proposal.wanted.token = Some(TokenWanted {
        endpoints,
        fingerprint: proxmox.fingerprint.clone(),
        ca_file: proxmox.ca_file.as_ref().map(shown),
        id,
        secret_file: secret.unwrap_or_else(|| SECRET.to_owned()),
        resource_pool,
    });
}

/// What there is to choose of the daemon's way to PVE where the file has it, and lacks the range alone.
fn way_of_file(answers: &SetupAnswers, region: &RegionSettings, proposal: &mut Proposal) {
    let Channel::Token {
        endpoints,
        token_id,
        secret_file,
        ca_file,
        fingerprint,
    } = &region.channel
    else {
        return;
    };
    proposal.wanted.token = Some(TokenWanted {
        endpoints: endpoints.clone(),
        fingerprint: fingerprint.clone(),
        ca_file: ca_file.as_ref().map(|file| file.display().to_string()),
        id: token_id.clone(),
        secret_file: secret_file.display().to_string(),
        resource_pool: resource_pool(answers, proposal),
    });
}

/// The resource pool that machines come to.
fn resource_pool(answers: &SetupAnswers, proposal: &mut Proposal) -> String {
    let answered = answers.proxmox.resource_pool.clone();
    let is_answered = answered.is_some();
    let pool = answered.unwrap_or_else(|| RESOURCE_POOL.to_owned());
    let why = "the resource pool of the machines, so that the token has rights on them and on no other VM";
    proposal.choose("proxmox.resource_pool", &*pool, why, is_answered);
    pool
}

/// Says which machines of ours are outside of the range.
fn note_outside(survey: &Survey, (first, last): Vmids, proposal: &mut Proposal) {
    if let Some(named) = survey.ours.named_outside((first, last)) {
        proposal.notes.push(format!(
            "machines of ours outside of the VMIDs {first} to {last} are left alone, and never removed: {named}. A range in proxmox.vmids that holds them, too, takes them back"
        ));
    }
}

/// The machines' VMIDs: where machines of ours are, the range that they are in. `(0, 0)` where there is none.
pub(super) fn range(survey: &Survey, answers: &SetupAnswers, proposal: &mut Proposal) -> Vmids {
    let range = machines(survey, answers, proposal);
    if range.1 > 0 {
        note_outside(survey, range, proposal);
    }
    range
}

fn machines(survey: &Survey, answers: &SetupAnswers, proposal: &mut Proposal) -> Vmids {
    let ours = survey.ours.vmids();
    let guests = survey.pve.resources.guests.keys().copied();
    // The VM of a trial goes by itself, or with the next trial, which looks for it in the range.
    let stays = |vmid: &u32| !ours.contains(vmid) && !survey.pve.trials.contains_key(vmid);
    let others: BTreeSet<u32> = guests.filter(stays).collect();
    let answered = answers.proxmox.vmids.as_deref();
    let range = match answered.map(read_range) {
        Some(Ok(range)) => Some(range),
        Some(Err(why)) => {
            proposal.missing.push(format!("proxmox.vmids: {why}"));
            None
        }
        None => {
            // One that could not be read may be ours, and the range is not to end before it.
            let known: BTreeSet<u32> = others.difference(&survey.pve.unread).copied().collect();
            let around = free::around_machines(&ours, &known);
            around.or_else(|| free::for_machines(&others))
        }
    };
    let Some(range) = range else {
        if answered.is_none() {
            let text = "proxmox.vmids: a range of VMIDs for machines alone; no thousand is free";
            proposal.missing.push(text.to_owned());
        }
        return (0, 0);
    };
    let text = format!("{}-{}", range.0, range.1);
    let count = others.range(range.0..=range.1).count();
    let why = match survey.ours.named_in(range) {
        Some(named) if count == 0 => {
            format!("machines of ours are in it, by their marks, and no other guest: {named}")
        }
        Some(named) => format!("machines of ours are in it, by their marks: {named}"),
        None => "for machines alone; no other guest has a VMID in it".to_owned(),
    };
    proposal.choose("proxmox.vmids", &*text, why, answered.is_some());
    proposal.ask();
    proposal
        .notes
        .extend(warn_of_others(survey, &others, range));
    proposal.notes.extend(tell_trials(survey, range));
    proposal.wanted.vmids = text;
    range
}

/// What there is to say of VMs of `template try` in the machines' range.
fn tell_trials(survey: &Survey, (first, last): Vmids) -> Vec<String> {
    let trials = survey.pve.trials.range(first..=last);
    let told = trials.map(|(vmid, template)| {
        format!(
            "VM {vmid} in {first}-{last} is of `pve-autoscaler template try`, which removes it at its end; where that was interrupted or told to keep it, \
             the next `pve-autoscaler template try {template}` removes it"
        )
    });
    told.collect()
}

/// What there is to say of other guests in the machines' range.
fn warn_of_others(survey: &Survey, others: &BTreeSet<u32>, range: Vmids) -> Option<String> {
    let (first, last) = range;
    let count = others.range(first..=last).count();
    let unread = survey.pve.unread.range(first..=last).count();
    let unread = if unread > 0 {
        format!(
            ". {unread} of these guests could not be read (their hosts may be off), and whose they are is not known"
        )
    } else {
        String::new()
    };
    (count > 0).then(|| {
        let taken = match count {
            1 => format!("1 VMID of {first}-{last} is"),
            _ => format!("{count} VMIDs of {first}-{last} are"),
        };
        format!(
            "{taken} taken by other guests, which are not touched; machines get the rest{unread}"
        )
    })
}

pub(super) fn read_range(text: &str) -> Result<Vmids, String> {
    let value = serde_json::Value::String(text.to_owned());
    let range: Result<VmidRange, _> = serde_json::from_value(value);
    range
        .map(|range| (range.first, range.last))
        .map_err(|error| format!("{text:?}: {error}"))
}

/// A name that becomes a table of the file and part of nodes' names.
pub(super) fn label(proposal: &mut Proposal, key: &str, name: &str) {
    if !dns_label(name) {
        proposal.missing.push(format!(
            "{key}: {name:?} is not lower-case letters, digits and '-'"
        ));
    }
}

/// The pool's name: as answered, else the one that machines of ours carry.
pub(super) fn pool_name(survey: &Survey, answers: &SetupAnswers) -> String {
    let former = || survey.ours.pool().map(str::to_owned);
    let name = answers.pool.name.clone().or_else(former);
    name.unwrap_or_else(|| POOL.to_owned())
}

fn pool(survey: &Survey, answers: &SetupAnswers, proposal: &mut Proposal) {
    let pool = &answers.pool;
    let name = pool_name(survey, answers);
    let why = if survey.ours.pool() == Some(&*name) {
        "machines of ours are of this pool, by their marks; its nodes' names begin with it"
    } else {
        "its nodes' names begin with it"
    };
    proposal.choose("pool.name", &*name, why, pool.name.is_some());
    proposal.ask();
    label(proposal, "pool.name", &name);
    for (other, named) in survey.ours.other_pools(&name) {
        proposal.notes.push(format!(
            "machines of ours are of the pool {other}, which this file would not have, and stay as they are until it has it: {named}. Write [pool.{other}] \
             into it (max = 0 to have them removed)"
        ));
    }
    let min = pool.min.unwrap_or(0);
    proposal.choose(
        "pool.min",
        min.to_string(),
        "no node while no pod needs one",
        pool.min.is_some(),
    );
    let (most, why) = most(survey, answers, proposal);
    let max = pool.max.unwrap_or(most.max(min));
    proposal.choose("pool.max", max.to_string(), why, pool.max.is_some());
    proposal.ask();
    if min > max {
        proposal
            .missing
            .push(format!("pool.min: {min} is above pool.max, {max}"));
    }
    let hosts = pool.hosts.clone().unwrap_or_default();
    check_hosts(survey, &hosts, proposal);
    if !hosts.is_empty() {
        proposal.choose("pool.hosts", hosts.join(", "), "", true);
    }
    let types = &proposal.wanted.types;
    let unfit = hardware::unfit(survey, types, &hosts);
    proposal.missing.extend(unfit);
    proposal.wanted.pool = PoolWanted {
        name,
        min,
        max,
        hosts,
        join: proposal.wanted.pool.join,
    };
}

fn check_hosts(survey: &Survey, hosts: &[String], proposal: &mut Proposal) {
    for host in hosts {
        if !survey.pve.resources.hosts.contains_key(host.as_str()) {
            proposal
                .missing
                .push(format!("pool.hosts: there is no host {host}"));
        }
    }
}

/// What answers name for a file that is configured already, and PVE does not have: a host, a template, a bridge. The rest of such answers is
/// for the configuration's own rules.
pub(super) fn check_named(survey: &Survey, answers: &SetupAnswers, proposal: &mut Proposal) {
    check_hosts(
        survey,
        answers.pool.hosts.as_deref().unwrap_or_default(),
        proposal,
    );
    if let Some(vmid) = answers.template.vmid {
        templates::check_vmid(survey, vmid, proposal);
    }
    network::check_bridge(survey, answers, proposal);
}

/// The most nodes that are proposed, and why: what the hosts have room for, with the machines of the pool that are there.
fn most(survey: &Survey, answers: &SetupAnswers, proposal: &Proposal) -> (u32, String) {
    let hosts = answers.pool.hosts.as_deref().unwrap_or_default();
    let there = survey.ours.count_of(&pool_name(survey, answers));
    let there = u32::try_from(there).unwrap_or(u32::MAX);
    let room = room::count(survey, &proposal.wanted, hosts);
    let all = room
        .as_ref()
        .map_or(MAX, |room| room.machines.saturating_add(there));
    let most = all.clamp(1, MAX).max(there);
    let why = match room.filter(|_| all < MAX) {
        Some(room) if there > 0 => format!(
            "{} of it there, and besides these {}",
            words::are(there, "machine"),
            room.bound
        ),
        Some(room) => room.bound,
        None if there > MAX => format!("{} of it there", words::are(there, "machine")),
        None => "a beginning, which can be raised at any time".to_owned(),
    };
    (most, format!("the most nodes of the pool: {why}"))
}

/// Sizes that are answered for a file that has its pool already.
pub(super) fn sizes(
    survey: &Survey,
    answers: &SetupAnswers,
    existing: &Existing,
    proposal: &mut Proposal,
) {
    let types = answers.pool.instance_types.iter().flatten();
    // What is no size is refused where it is written.
    let types: Vec<TypeWanted> = types.filter_map(|text| hardware::read(text).ok()).collect();
    let mut pools = existing.settings.policy.pools.values();
    let of_file = pools
        .next()
        .map(|pool| pool.hosts.iter().map(ToString::to_string));
    let hosts = answers.pool.hosts.clone();
    let hosts = hosts
        .or_else(|| Some(of_file?.collect()))
        .unwrap_or_default();
    proposal
        .missing
        .extend(hardware::unfit(survey, &types, &hosts));
}

#[cfg(test)]
mod tests;

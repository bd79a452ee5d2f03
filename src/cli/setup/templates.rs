//! Which template machines are cloned from: one that is there and looks like a node's, or one that is built.

use std::collections::{BTreeMap, BTreeSet};

use super::answers::SetupAnswers;
use super::choose::{Proposal, TEMPLATE, label, pool_name, read_range};
use super::cluster::KubeFound;
use super::free::{self, Vmids};
use super::images::ImagesFound;
use super::survey::Survey;
use crate::config::file::{BuildMethod, ChannelKind, Method};
use crate::config::settings::TemplateSettings;
use crate::config::storage_names::StorageNames;
use crate::controller::disk_storages;
use crate::controller::inspection::{self, WHOLE};
use crate::controller::template_mark::is_built;
use crate::model::network::{fixed_addresses, without_fixed_addresses};
use crate::model::region::GuestKind;
use crate::model::words;
use crate::pve::{ClusterResources, StorageResource, VmConfig};

/// What a name or tag of a template has in it that is made for Kubernetes.
const HINTS: [&str; 4] = ["k8s", "kube", "node", "worker"];
/// Where images and cloud-init snippets are put.
pub(super) const FILES: &str = "local";

/// What machines are cloned from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TemplateSource {
    /// The VM of this VMID.
    Vmid(u32),
    /// The templates of this name, one a host.
    Named(String),
    /// One that is built.
    Build(BuildWanted),
}

impl Default for TemplateSource {
    fn default() -> TemplateSource {
        TemplateSource::Vmid(0)
    }
}

/// A template to build.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BuildWanted {
    pub(super) vmids: String,
    /// A URL, with its checksum …
    pub(super) image: String,
    pub(super) checksum: String,
    /// … or a volume that is there.
    pub(super) volume: Option<String>,
    /// On these hosts; all that a pool may use where none is named.
    pub(super) hosts: Vec<String>,
    pub(super) storage: StorageNames,
    pub(super) kubernetes: String,
    /// What it is built for.
    pub(super) method: BuildMethod,
    /// Commands at its end.
    pub(super) commands: Vec<String>,
}

/// Chooses it.
pub(super) fn choose(
    survey: &Survey,
    answers: &SetupAnswers,
    (channel, machines, images): (ChannelKind, Vmids, &ImagesFound),
    proposal: &mut Proposal,
) {
    let answered = &answers.template;
    let former = survey.ours.template(&pool_name(survey, answers));
    let name = answered.name.as_deref().or(former).unwrap_or(TEMPLATE);
    name.clone_into(&mut proposal.wanted.template.name);
    label(proposal, "template.name", name);
    if former == Some(name) {
        let why = "what machines of ours call their template, by their marks";
        proposal.choose("template.name", name, why, answered.name.is_some());
    }
    let candidates = candidates(survey);
    let likely: Vec<u32> = candidates
        .iter()
        .filter(|(_, one)| one.likely)
        .map(|(vmid, _)| *vmid)
        .collect();
    let build = match (answered.build, answered.vmid) {
        (Some(build), _) => build,
        (None, Some(_)) => false,
        (None, None) => likely.is_empty(),
    };
    let said = answered.build.is_some() || answered.vmid.is_some();
    if !build {
        let vmid = answered
            .vmid
            .or_else(|| likely.first().copied())
            .or_else(|| candidates.keys().next().copied());
        let Some(vmid) = vmid else {
            proposal.missing.push("template: there is no template with a guest agent and a cloud-init drive; template.build = true builds one".to_owned());
            return;
        };
        take(survey, (vmid, said), &candidates, proposal);
        return;
    }
    let why = say_why_built(survey, &candidates);
    proposal.choose("template", "build", why, said);
    proposal.ask();
    if channel == ChannelKind::Token {
        proposal
            .missing
            .push(say_template_is_wanted(answered.build, &candidates));
        return;
    }
    self::build(survey, answers, (machines, images), proposal);
}

/// That a token cannot build a template, and which of those that are there could be answered.
fn say_template_is_wanted(
    build: Option<bool>,
    candidates: &BTreeMap<u32, TemplateCandidate>,
) -> String {
    let key = if build == Some(true) {
        "template.build"
    } else {
        "template.vmid"
    };
    let there: Vec<String> = candidates.keys().map(u32::to_string).collect();
    let there = if there.is_empty() {
        String::new()
    } else {
        format!(" (there are {})", there.join(", "))
    };
    format!(
        "{key}: with a token a template must be there (the daemon's token may not build one): build it on a host, or as docs/template.md says, \
         and answer its template.vmid{there}"
    )
}

/// Why a template is built, although others are there. Those that were built before are named as such: one of them serves where its
/// definition is the same.
fn say_why_built(survey: &Survey, candidates: &BTreeMap<u32, TemplateCandidate>) -> String {
    let templates = &survey.pve.templates;
    let is_built = |vmid: &u32| {
        let config = templates.get(vmid);
        config.is_some_and(|config| is_built(*vmid, config))
    };
    let (built, others): (BTreeMap<_, _>, BTreeMap<_, _>) = candidates
        .iter()
        .map(|(vmid, one)| (*vmid, one.clone()))
        .partition(|(vmid, _)| is_built(vmid));
    if !built.is_empty() {
        return format!(
            "{} there from earlier builds: {}; one with the same definition is used as it is",
            words::are(built.len(), "template"),
            named(&built)
        );
    }
    match others.len() {
        0 => "no template has a guest agent and a cloud-init drive".to_owned(),
        _ => format!(
            "no template looks made for Kubernetes; {} there: {}",
            words::are(others.len(), "other"),
            named(&others)
        ),
    }
}

/// A template that could be one for machines.
#[derive(Clone, Debug)]
struct TemplateCandidate {
    name: String,
    /// It looks made for Kubernetes.
    likely: bool,
}

fn candidates(survey: &Survey) -> BTreeMap<u32, TemplateCandidate> {
    let any = TemplateSettings::default();
    let guests = survey.pve.resources.guests.iter();
    let templates = guests.filter(|(_, guest)| guest.kind == GuestKind::Qemu && guest.template);
    let fit = templates.filter_map(|(vmid, guest)| {
        let config = survey.pve.templates.get(vmid)?;
        let drives = config.disks.values().filter(|disk| disk.cloud_init).count();
        if drives != 1 || inspection::obstacle(*vmid, config, &any).is_some() {
            return None;
        }
        let words = guest.tags.iter().map(String::as_str).chain([&*guest.name]);
        let mut words = words.map(str::to_ascii_lowercase);
        Some((
            *vmid,
            TemplateCandidate {
                name: guest.name.to_string(),
                likely: words.any(|word| HINTS.iter().any(|hint| word.contains(hint))),
            },
        ))
    });
    fit.collect()
}

/// Whether a template that is there looks made for Kubernetes.
pub(super) fn has_likely(survey: &Survey) -> bool {
    candidates(survey).values().any(|one| one.likely)
}

fn named(candidates: &BTreeMap<u32, TemplateCandidate>) -> String {
    let all = candidates.iter();
    let all: Vec<String> = all
        .map(|(vmid, one)| format!("{vmid} ({})", one.name))
        .collect();
    all.join(", ")
}

/// Says so where a VM is not there, or is no template. One whose configuration cannot be read may be a good one.
pub(super) fn check_vmid(survey: &Survey, vmid: u32, proposal: &mut Proposal) {
    let listed = survey.pve.resources.guests.get(&vmid);
    if !survey.pve.templates.contains_key(&vmid) && listed.is_none_or(|guest| !guest.template) {
        proposal.missing.push(format!(
            "template.vmid: VM {vmid} is not there, or is no template"
        ));
    }
}

/// Takes a template that is there.
fn take(
    survey: &Survey,
    (vmid, said): (u32, bool),
    candidates: &BTreeMap<u32, TemplateCandidate>,
    proposal: &mut Proposal,
) {
    let Some(config) = survey.pve.templates.get(&vmid) else {
        proposal.missing.push(format!(
            "template.vmid: VM {vmid} is not there, or is no template"
        ));
        return;
    };
    if let Some(why) = inspection::obstacle(vmid, config, &TemplateSettings::default()) {
        proposal.missing.push(format!("template.vmid: {why}"));
    }
    let name = candidates.get(&vmid).map_or("", |one| &*one.name);
    let others: Vec<u32> = candidates
        .iter()
        .filter(|(other, one)| **other != vmid && one.name == name)
        .map(|(other, _)| *other)
        .collect();
    let source = choose_source(survey, (vmid, said), (name, &others), proposal);
    let mut why =
        format!("{name} has a guest agent and a cloud-init drive and looks made for Kubernetes");
    if candidates.len() > 1 + others.len() {
        why = format!("{why}; there are: {}, or \"build\"", named(candidates));
    }
    proposal.choose("template", vmid.to_string(), why, said);
    proposal.ask();
    let resources = &survey.pve.resources;
    proposal.wanted.template.source = source;
    let address = config.raw.get("ipconfig0");
    let fixed = |text: &String| fixed_addresses(text).next().is_some();
    proposal.wanted.template.dhcp = match address {
        None => Some("the template names no address"),
        Some(text) if fixed(text) => Some("the template's fixed address would be all machines'"),
        Some(_) => None,
    };
    further_addresses(vmid, config, proposal);
    let host = resources
        .guests
        .get(&vmid)
        .map(|guest| guest.host.clone())
        .unwrap_or_default();
    let storages = resources.storages.get(&host);
    let disks = config
        .disks
        .values()
        .filter(|disk| !disk.cdrom && !disk.storage.is_empty());
    let found: Vec<_> = disks
        .filter_map(|disk| Some((disk, storages?.get(&disk.storage)?)))
        .collect();
    proposal.wanted.template.full = found
        .iter()
        .any(|(_, storage)| WHOLE.contains(&&*storage.plugin));
    let own = found.iter().find(|(_, storage)| !storage.shared);
    if let Some((disk, _)) = own.filter(|_| others.is_empty() && resources.hosts.len() > 1) {
        proposal.notes.push(format!(
            "template {vmid} is on {}, which {host} has for itself: machines are made on {host} alone, until each host has a template of \
             the same name (vm_name), or one is built (template = \"build\")",
            disk.storage
        ));
    }
    seen_later(proposal, config);
}

/// Whether the file names the template by its VMID, or by its name with the others of that name.
fn choose_source(
    survey: &Survey,
    (vmid, said): (u32, bool),
    (name, others): (&str, &[u32]),
    proposal: &mut Proposal,
) -> TemplateSource {
    let of_all_hosts = name_on_hosts(survey, vmid).is_some();
    if name.is_empty() || others.is_empty() || (said && !of_all_hosts) {
        return TemplateSource::Vmid(vmid);
    }
    if said {
        let all: BTreeSet<u32> = others.iter().copied().chain([vmid]).collect();
        let all: Vec<u32> = all.into_iter().collect();
        proposal.notes.push(format!(
            "{} are templates of the name {name}, each for its own host: vm_name stands in the file and no VMID, so that machines are made on all of these hosts",
            words::each(&all)
        ));
    }
    TemplateSource::Named(name.to_owned())
}

/// The name by which a template stands for those of other hosts, too: its disks are its host's own, so that by its VMID machines would be
/// made there alone, and others of its name are on other hosts.
pub(super) fn name_on_hosts(survey: &Survey, vmid: u32) -> Option<String> {
    let (pve, resources) = (&survey.pve, &survey.pve.resources);
    let host_of = |vmid: &u32| Some(&*resources.guests.get(vmid)?.host);
    let host = host_of(&vmid)?;
    let storages = resources.storages.get(host)?;
    let is_own = |storage: &str| storages.get(storage).is_some_and(|of| !of.shared);
    let mut disks = pve.templates.get(&vmid)?.disks.values();
    let has_own = disks.any(|disk| !disk.cdrom && is_own(&disk.storage));
    let candidates = candidates(survey);
    let name = &candidates.get(&vmid)?.name;
    let others = candidates.iter();
    let others = others.filter(|(other, one)| **other != vmid && one.name == *name);
    let hosts: Vec<Option<&str>> = others.map(|(other, _)| host_of(other)).collect();
    let is_alone = !hosts.is_empty() && !hosts.contains(&Some(host));
    (has_own && is_alone && !name.is_empty()).then(|| name.clone())
}

/// Says so where further network cards have fixed addresses, of which the file that is written says nothing.
fn further_addresses(vmid: u32, config: &VmConfig, proposal: &mut Proposal) {
    let keys = config.raw.iter();
    let further = keys.filter(|(key, value)| {
        let card = key.strip_prefix("ipconfig").filter(|card| *card != "0");
        card.is_some_and(|card| config.raw.contains_key(&format!("net{card}")))
            && fixed_addresses(value).next().is_some()
    });
    for (key, value) in further {
        proposal.missing.push(format!(
            "template.vmid: VM {vmid} has a fixed address ({key}: {value}) that all its machines would have; qm set {vmid} --{key} {}",
            without_fixed_addresses(value)
        ));
    }
}

fn seen_later(proposal: &mut Proposal, config: &VmConfig) {
    if config.net0.is_none() {
        proposal
            .notes
            .push("the template has no network card: answer network.bridge".to_owned());
    }
}

/// Describes a template to build.
fn build(
    survey: &Survey,
    answers: &SetupAnswers,
    (machines, images): (Vmids, &ImagesFound),
    proposal: &mut Proposal,
) {
    let answered = &answers.template;
    let mut build = BuildWanted::default();
    storage(survey, answers, proposal, &mut build);
    kubernetes(survey, answers, proposal, &mut build);
    if let Some(hosts) = &answered.hosts {
        for host in hosts {
            if !survey.pve.resources.hosts.contains_key(&**host) {
                let why = format!("template.hosts: there is no host {host}");
                proposal.missing.push(why);
            }
        }
        proposal.choose("template.hosts", hosts.join(", "), "", true);
        build.hosts.clone_from(hosts);
    }
    let resources = &survey.pve.resources;
    images.choose(answered, resources, (proposal, &mut build));
    let taken: BTreeSet<u32> = survey.pve.resources.guests.keys().copied().collect();
    let range = answered.vmids.as_deref().map(read_range);
    let templates = survey.pve.templates.iter();
    let built = templates.filter(|(vmid, config)| is_built(**vmid, config));
    let built: BTreeSet<u32> = built.map(|(vmid, _)| *vmid).collect();
    let around = free::around(&built, &taken, machines);
    match range.unwrap_or_else(|| {
        let free = around.or_else(|| free::for_templates(&taken, machines));
        free.ok_or_else(|| {
            "twenty VMIDs for built templates; none are free near those of the machines".to_owned()
        })
    }) {
        Ok((first, last)) => {
            let text = format!("{first}-{last}");
            let why = match around {
                Some(_) => "for built templates alone; some are there from before",
                None => "for built templates alone, apart from machines'",
            };
            proposal.choose("template.vmids", &*text, why, answered.vmids.is_some());
            build.vmids = text;
        }
        Err(why) => proposal.missing.push(format!("template.vmids: {why}")),
    }
    proposal.wanted.template.source = TemplateSource::Build(build);
}

/// What of Kubernetes a template is built with: what the cluster is made of, in the version that its API server has.
fn kubernetes(
    survey: &Survey,
    answers: &SetupAnswers,
    proposal: &mut Proposal,
    build: &mut BuildWanted,
) {
    let answered = &answers.template;
    let kube = survey.kube.as_ref();
    let release = kube.map(|kube| kube.version.trim_start_matches('v').to_owned());
    let (found, why) = match kube.and_then(KubeFound::method) {
        Some(Method::K3s) => {
            build.method = BuildMethod::K3s;
            (release, "the API server's release")
        }
        Some(Method::Rke2) => {
            build.method = BuildMethod::Command;
            (release, "the API server's release")
        }
        _ => (kube.and_then(KubeFound::minor), "the API server's minor"),
    };
    match answered.kubernetes.clone().or(found) {
        Some(version) if build.method == BuildMethod::Command => {
            let command = format!(
                "curl -sfL https://get.rke2.io | INSTALL_RKE2_TYPE=agent INSTALL_RKE2_METHOD=tar INSTALL_RKE2_VERSION=v{version} sh -"
            );
            let why = "RKE2's own script installs its agent, of the API server's release";
            proposal.choose("template.commands", &*command, why, false);
            build.commands = vec![command];
        }
        Some(version) => {
            proposal.choose(
                "template.kubernetes",
                &*version,
                why,
                answered.kubernetes.is_some(),
            );
            build.kubernetes = version;
        }
        // Without a kubeconfig that is missing already.
        None if survey.kube.is_none() => {}
        None => proposal
            .missing
            .push("template.kubernetes: the API server tells no version to go by".to_owned()),
    }
}

/// The storage of a build: where disks may lie, that all hosts have, with linked clones and the most room. Where no storage is on all hosts
/// it is a list, of which each host takes the first that it has.
fn storage(
    survey: &Survey,
    answers: &SetupAnswers,
    proposal: &mut Proposal,
    build: &mut BuildWanted,
) {
    let resources = &survey.pve.resources;
    let fit = fitting(resources);
    let answered = answers.template.storage.clone();
    let is_answered = answered.is_some();
    let names = answered.unwrap_or_else(|| cover(&fit));
    if names.first().is_empty() {
        proposal.missing.push(
            "template.storage: no storage that is available is for VM disks (content images)"
                .to_owned(),
        );
        return;
    }
    let others = fit.keys().filter(|other| !names.contains(other));
    let others: Vec<&str> = others.copied().collect();
    let each = names.iter().filter_map(|name| {
        let one = fit.get(name)?;
        let (head, on) = if names.is_list() {
            (format!("{name} "), words::names(&one.hosts))
        } else {
            (String::new(), words::count(one.hosts.len(), "host"))
        };
        Some(if one.shared {
            format!("{head}shared by {on}: one template serves all")
        } else {
            let free = words::bytes(one.free);
            format!("{head}on {on}, each with a template of its own; {free} free")
        })
    });
    let mut why = each.collect::<Vec<String>>().join(", ");
    if names.is_list() {
        why = format!(
            "no storage for VM disks is on all hosts, and each takes the first that it has: {why}"
        );
    }
    if !others.is_empty() {
        why = format!("{why}; there are also: {}", others.join(", "));
    }
    for name in names.iter() {
        let mut of_hosts = resources.storages.values();
        if is_answered && !of_hosts.any(|of| of.contains_key(name)) {
            proposal
                .missing
                .push(format!("template.storage: there is no storage {name}"));
        }
    }
    let typed: Vec<&str> = names.iter().collect();
    proposal.choose("template.storage", typed.join(", "), why, is_answered);
    if !others.is_empty() {
        proposal.ask();
    }
    build.storage = names;
}

/// The best storage, and, as long as a host has none of them, the best for the hosts that are left.
fn cover(fit: &BTreeMap<&str, DiskStorage<'_>>) -> StorageNames {
    let mut left: BTreeSet<&str> = fit.values().flat_map(|one| &one.hosts).copied().collect();
    let mut names = Vec::new();
    while !left.is_empty() {
        let best = fit.iter().max_by_key(|(_, one)| {
            let more = one.hosts.intersection(&left).count();
            (more, one.shared, one.free)
        });
        let Some((name, one)) = best else {
            break;
        };
        names.push((*name).to_owned());
        left.retain(|host| !one.hosts.contains(host));
    }
    names.into_iter().collect()
}

/// The storage that a build's disks come to on a host: the one that the host takes of those that are named, or, where it takes none, one
/// that it has.
pub(super) fn storage_on<'s>(
    names: &'s StorageNames,
    host: &str,
    resources: &'s ClusterResources,
) -> Option<(&'s str, &'s StorageResource)> {
    let of_host = resources.storages.get(host)?;
    let found = |name: &'s str| Some((name, of_host.get(name)?));
    let chosen = disk_storages::choose(names, host, resources).and_then(found);
    chosen.or_else(|| names.iter().find_map(found))
}

/// A storage for disks.
#[derive(Clone, Debug, Default)]
struct DiskStorage<'a> {
    hosts: BTreeSet<&'a str>,
    shared: bool,
    /// The least free bytes on a host.
    free: i64,
}

fn fitting(resources: &ClusterResources) -> BTreeMap<&str, DiskStorage<'_>> {
    let mut all: BTreeMap<&str, DiskStorage<'_>> = BTreeMap::new();
    for (host, of_host) in &resources.storages {
        for (name, storage) in of_host {
            let images = storage.content.iter().any(|content| content == "images");
            if !storage.active || !images || WHOLE.contains(&&*storage.plugin) {
                continue;
            }
            let free = storage.free();
            let fit = all.entry(&**name).or_insert(DiskStorage {
                free,
                ..DiskStorage::default()
            });
            fit.hosts.insert(host);
            fit.shared |= storage.shared;
            fit.free = fit.free.min(free);
        }
    }
    all
}

/// The whole list of kinds of content that PVE's storage `local` is to hold, where it cannot yet hold what a build puts there; else
/// nothing. `downloads`: the build downloads an image to it.
pub(super) fn content_lacking(
    resources: &ClusterResources,
    downloads: bool,
) -> Option<BTreeSet<String>> {
    let mut of = resources
        .storages
        .values()
        .filter_map(|of_host| of_host.get(FILES));
    let held: BTreeSet<String> = of.next()?.content.iter().cloned().collect();
    let mut wanted = held.clone();
    wanted.insert("snippets".to_owned());
    if downloads {
        wanted.insert("import".to_owned());
    }
    // An empty list is one that was not told.
    (!held.is_empty() && wanted != held).then_some(wanted)
}

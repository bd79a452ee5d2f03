//! What the broker may do: it follows from the rest of the file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::networks::Networks;
use super::regions::ResolvedRegions;
use super::templates::one_line;
use super::{Problems, each};
use crate::config::file::{self, ConfigFile};
use crate::config::new_vm::NewVm;
use crate::config::place::KeyPath;
use crate::config::settings::{
    BootDiskAllow, BrokerAllow, BrokerSettings, Channel, NetworkSettings, PoolAllow,
    TemplateSettings, TypeAllow,
};
use crate::config::storage_names::StorageNames;
use crate::config::syntax;
use crate::config::vm_options::VmOptions;
use crate::model::policy::{InstanceType, Policy, PoolPolicy};
use crate::model::topology::Topologies;

/// `[broker]`, and what it may do: everything that the regions with the local channel need.
pub(super) fn broker(
    file: &ConfigFile,
    regions: &ResolvedRegions,
    (all, networks): (&BTreeMap<Arc<str>, TemplateSettings>, &Networks),
    policy: &Policy,
    problems: &mut Problems,
) -> BrokerSettings {
    let extra = &file.broker;
    check(extra, problems);
    let is_local = |region: &Arc<str>| is_on_local_channel(regions, region);
    let templates: Vec<&TemplateSettings> = all
        .values()
        .filter(|template| is_local(&template.region))
        .collect();
    let of = |more: &[String], pick: fn(&TemplateSettings) -> Option<&String>| {
        let named = templates.iter().filter_map(|template| pick(template));
        sorted(named.chain(more).cloned())
    };
    let local = policy.pools.iter().filter_map(|(name, pool)| {
        let there = pool.everywhere().find(|there| is_local(&there.region));
        Some((name, there?))
    });
    let pools: BTreeMap<String, PoolAllow> = local
        .map(|(name, pool)| (name.to_string(), pool_allow(pool, all)))
        .collect();
    let networks = used_networks(&pools, networks);
    let types = types(&pools, policy);
    let most = |of: fn(&TypeAllow) -> i64| types.values().map(of).max().unwrap_or(0);
    BrokerSettings {
        socket: extra.socket.clone(),
        group: extra.group.clone(),
        allow: BrokerAllow {
            vmids: regions
                .iter()
                .filter(|(name, _)| is_local(name))
                .map(|(_, region)| (region.vmids.first, region.vmids.last))
                .collect(),
            template_vmids: sorted(templates.iter().filter_map(|template| template.vmid)),
            template_names: of(&[], |template| template.vm_name.as_ref()),
            template_tags: tags(&templates),
            storages: storages(&templates, &extra.storages),
            iso_storages: iso_storages(&templates),
            iso_region: iso_region(&templates),
            bridges: bridges(&templates, &extra.bridges),
            resource_pools: of(&extra.resource_pools, |template| {
                template.resource_pool.as_ref()
            }),
            template_pools: template_pools(all, is_local),
            template_groups: template_groups(all, is_local),
            template_firewalls: template_firewalls(all, is_local),
            template_options: template_options(all, is_local),
            template_boot_disks: template_boot_disks(all, is_local),
            new_vms: new_vms(all, is_local),
            max_cores: types.values().map(|kind| kind.cores).max().unwrap_or(0),
            max_memory: most(|kind| kind.memory),
            max_disk: most(|kind| kind.disk),
            pools,
            types,
            networks,
            topologies: topologies(regions),
            max_machines: Some(policy.scale_up.max_nodes_total).filter(|most| *most > 0),
            max_cpu_milli: policy.totals.max_cpu_milli,
            max_memory_total: policy.totals.max_memory,
            cluster_name: file.kubernetes.name.clone(),
            quarantine: file.scale_down.quarantine.0,
        },
    }
}

/// Whether a region is the PVE cluster of this host, which is reached as root.
fn is_on_local_channel(regions: &ResolvedRegions, region: &Arc<str>) -> bool {
    let region = regions.get(region);
    region.is_some_and(|region| region.settings.channel == Channel::Local)
}

/// The resource pools of the templates in regions with the local channel.
fn template_pools(
    all: &BTreeMap<Arc<str>, TemplateSettings>,
    is_local: impl Fn(&Arc<str>) -> bool,
) -> BTreeMap<String, String> {
    let local = all
        .iter()
        .filter(|(_, template)| is_local(&template.region));
    let named = local.filter_map(|(name, of)| Some((name.to_string(), of.resource_pool.clone()?)));
    named.collect()
}

/// The security groups of these templates' cards.
fn template_groups(
    all: &BTreeMap<Arc<str>, TemplateSettings>,
    is_local: impl Fn(&Arc<str>) -> bool,
) -> BTreeMap<String, Vec<(String, u8)>> {
    let local = all
        .iter()
        .filter(|(_, template)| is_local(&template.region));
    let named = local.filter_map(|(name, of)| {
        let said = of.cards().any(|(_, card)| card.groups.is_some());
        let groups = of.cards().flat_map(|(number, card)| {
            let groups = card.groups.unwrap_or_default().into_iter();
            groups.map(move |group| (group, number))
        });
        said.then(|| (name.to_string(), groups.collect()))
    });
    named.collect()
}

/// The templates of these whose machines' firewalls are switched on.
fn template_firewalls(
    all: &BTreeMap<Arc<str>, TemplateSettings>,
    is_local: impl Fn(&Arc<str>) -> bool,
) -> BTreeSet<String> {
    let local = all
        .iter()
        .filter(|(_, template)| is_local(&template.region));
    let on = local.filter(|(_, template)| template.switches_firewall_on());
    on.map(|(name, _)| name.to_string()).collect()
}

/// PVE's options of these templates' machines.
fn template_options(
    all: &BTreeMap<Arc<str>, TemplateSettings>,
    is_local: impl Fn(&Arc<str>) -> bool,
) -> BTreeMap<String, VmOptions> {
    let local = all
        .iter()
        .filter(|(_, template)| is_local(&template.region));
    let options = local.map(|(name, of)| (name.to_string(), of.hardware.options.clone()));
    options.filter(|(_, options)| !options.is_empty()).collect()
}

/// Options and limits of the boot disks of these templates' machines.
fn template_boot_disks(
    all: &BTreeMap<Arc<str>, TemplateSettings>,
    is_local: impl Fn(&Arc<str>) -> bool,
) -> BTreeMap<String, BootDiskAllow> {
    let local = all
        .iter()
        .filter(|(_, template)| is_local(&template.region));
    let said = local.filter(|(_, of)| !of.hardware.boot_disk.is_empty());
    let allowed = said.map(|(name, of)| {
        let allow = BootDiskAllow {
            slot: of.boot_disk.clone(),
            options: of.hardware.boot_disk.clone(),
        };
        (name.to_string(), allow)
    });
    allowed.collect()
}

/// What VMs of these templates are made of, where none is cloned.
fn new_vms(
    all: &BTreeMap<Arc<str>, TemplateSettings>,
    is_local: impl Fn(&Arc<str>) -> bool,
) -> BTreeMap<String, Arc<NewVm>> {
    let local = all
        .iter()
        .filter(|(_, template)| is_local(&template.region));
    let new = local.filter_map(|(name, of)| Some((name.to_string(), of.new_vm.clone()?)));
    new.collect()
}

/// What is said of the hosts of the region with the local channel.
fn topologies(regions: &ResolvedRegions) -> Topologies {
    let local = regions
        .values()
        .filter(|region| region.settings.channel == Channel::Local);
    let hosts = local.flat_map(|region| region.policy.topologies.clone());
    hosts.collect()
}

/// Where ISOs for cloud-init come to.
fn iso_storages(templates: &[&TemplateSettings]) -> Vec<String> {
    let named = templates
        .iter()
        .filter_map(|template| template.cloud_init.as_ref());
    let names = named.flat_map(|cloud_init| cloud_init.storage.iter());
    sorted(names.map(str::to_owned))
}

/// The region of those ISOs: only one is this host's.
fn iso_region(templates: &[&TemplateSettings]) -> Option<String> {
    let mut named = templates
        .iter()
        .filter(|template| template.cloud_init.is_some());
    Some(named.next()?.region.to_string())
}

/// The sizes of the pools' instance types.
fn types(pools: &BTreeMap<String, PoolAllow>, policy: &Policy) -> BTreeMap<String, TypeAllow> {
    let named = pools.values().flat_map(|pool| &pool.types);
    let types = named.filter_map(|name| {
        let kind = policy.instance_types.get(&**name)?;
        Some((name.clone(), type_allow(kind)))
    });
    types.collect()
}

/// The storages of full clones and of further disks, and more.
fn storages(templates: &[&TemplateSettings], more: &[String]) -> Vec<String> {
    let clones = templates
        .iter()
        .filter_map(|template| template.storage.as_ref());
    let disks = templates
        .iter()
        .flat_map(|template| template.hardware.disks.values());
    let named = clones.chain(disks.map(|disk| &disk.storage));
    let named = named.flat_map(StorageNames::iter).map(str::to_owned);
    sorted(named.chain(more.iter().cloned()))
}

/// The bridges of all cards of these templates, and more.
fn bridges(templates: &[&TemplateSettings], more: &[String]) -> Vec<String> {
    let cards = templates.iter().flat_map(|template| template.cards());
    let named = cards.filter_map(|(_, card)| card.bridge);
    sorted(named.chain(more.iter().cloned()))
}

/// The networks that pools of the local channel have addresses of.
fn used_networks(
    pools: &BTreeMap<String, PoolAllow>,
    networks: &Networks,
) -> BTreeMap<String, NetworkSettings> {
    let used = pools.values().flat_map(|pool| pool.networks.values());
    let used = used.filter_map(|name| {
        let network = networks.get(&**name)?;
        Some((name.clone(), network.settings.clone()))
    });
    used.collect()
}

/// The tags of the templates that are found by them.
fn tags(templates: &[&TemplateSettings]) -> Vec<Vec<String>> {
    let tags = templates.iter().map(|template| template.tags.clone());
    sorted(tags.filter(|tags| !tags.is_empty()))
}

fn pool_allow(pool: &PoolPolicy, templates: &BTreeMap<Arc<str>, TemplateSettings>) -> PoolAllow {
    let texts = |list: &[Arc<str>]| sorted(list.iter().map(ToString::to_string));
    let template = templates.get(&pool.template);
    PoolAllow {
        max: pool.max,
        max_cpu_milli: pool.max_cpu_milli,
        max_memory: pool.max_memory,
        types: texts(&pool.instance_types),
        networks: pool
            .networks
            .iter()
            .map(|(card, name)| (*card, name.to_string()))
            .collect(),
        hosts: texts(&pool.hosts),
        exclude_hosts: texts(&pool.host_rules.exclude),
        template_vmid: template.and_then(|template| template.vmid),
        template_name: template.and_then(|template| template.vm_name.clone()),
        template_tags: template.map_or_else(Vec::new, |template| template.tags.clone()),
        new_vm: template
            .filter(|template| template.new_vm.is_some())
            .map(|_| pool.template.to_string()),
        disks: template
            .into_iter()
            .flat_map(|template| &template.hardware.disks)
            .map(|(slot, disk)| (slot.clone(), disk.values().collect()))
            .collect(),
        pinning: pool.pinning,
    }
}

fn type_allow(kind: &InstanceType) -> TypeAllow {
    TypeAllow {
        cores: kind.cores,
        memory: kind.memory,
        disk: kind.disk,
        pci: kind.pci.clone(),
    }
}

fn sorted<T: Ord>(items: impl Iterator<Item = T>) -> Vec<T> {
    items.collect::<BTreeSet<T>>().into_iter().collect()
}

fn check(broker: &file::BrokerTable, problems: &mut Problems) {
    let path = KeyPath::default().at("broker");
    problems.unless(broker.socket.is_absolute(), &path.at("socket"), || {
        "expected an absolute path".to_owned()
    });
    problems.text(
        &path.at("group"),
        Some(&broker.group),
        one_line,
        "a group's name",
    );
    let id: fn(&str) -> bool = syntax::pve_id;
    for (key, list, holds, expected) in [
        ("storages", &broker.storages, id, "a storage's name"),
        ("bridges", &broker.bridges, id, "a bridge such as vmbr0"),
        (
            "resource_pools",
            &broker.resource_pools,
            syntax::pve_pool,
            "a resource pool's name",
        ),
    ] {
        each(list, &path.at(key), holds, expected, problems);
    }
}

//! What the broker may do: it follows from the rest of the file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::regions::Regions;
use super::templates::one_line;
use super::{Problems, each};
use crate::config::file::{self, File};
use crate::config::place::KeyPath;
use crate::config::settings::{Broker, BrokerAllow, Channel, Template};
use crate::config::syntax;
use crate::model::policy::Policy;

/// `[broker]`, and what it may do: everything that the regions with the local channel need.
pub(super) fn broker(
    file: &File,
    regions: &Regions,
    templates: &BTreeMap<Arc<str>, Template>,
    policy: &Policy,
    problems: &mut Problems,
) -> Broker {
    let extra = &file.broker;
    check(extra, problems);
    let is_local = |region: &Arc<str>| {
        regions
            .get(region)
            .is_some_and(|region| region.settings.channel == Channel::Local)
    };
    let templates: Vec<&Template> = templates
        .values()
        .filter(|template| is_local(&template.region))
        .collect();
    let of = |more: &[String], pick: fn(&Template) -> Option<&String>| {
        let named = templates.iter().filter_map(|template| pick(template));
        sorted(named.chain(more).cloned())
    };
    let types: Vec<_> = policy
        .pools
        .values()
        .filter(|pool| is_local(&pool.region))
        .flat_map(|pool| &pool.instance_types)
        .filter_map(|name| policy.instance_types.get(name))
        .collect();
    Broker {
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
            storages: of(&extra.storages, |template| template.storage.as_ref()),
            bridges: of(&extra.bridges, |template| template.bridge.as_ref()),
            resource_pools: of(&extra.resource_pools, |template| {
                template.resource_pool.as_ref()
            }),
            device_mappings: sorted(extra.device_mappings.iter().cloned()),
            max_cores: types.iter().map(|kind| kind.cores).max().unwrap_or(0),
            max_memory: types.iter().map(|kind| kind.memory).max().unwrap_or(0),
            max_disk: types.iter().map(|kind| kind.disk).max().unwrap_or(0),
            cluster_name: file.kubernetes.name.clone(),
            quarantine: file.scale_down.quarantine.0,
        },
    }
}

fn sorted<T: Ord>(items: impl Iterator<Item = T>) -> Vec<T> {
    items.collect::<BTreeSet<T>>().into_iter().collect()
}

fn check(broker: &file::Broker, problems: &mut Problems) {
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
        (
            "device_mappings",
            &broker.device_mappings,
            id,
            "a resource mapping's name",
        ),
    ] {
        each(list, &path.at(key), holds, expected, problems);
    }
}

//! Regions, templates and what the broker may do.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Problems, each, name, shared};
use crate::config::file::{self, ChannelKind, CloneKind, File};
use crate::config::place::KeyPath;
use crate::config::scalar::VmidRange;
use crate::config::settings::{Broker, BrokerAllow, Channel, Region, Template};
use crate::config::syntax;
use crate::model::policy::{Policy, RegionPolicy};
use crate::model::time::Span;

/// A region with where it stands in the file.
pub(super) struct ResolvedRegion {
    pub(super) path: KeyPath,
    pub(super) policy: RegionPolicy,
    pub(super) vmids: VmidRange,
    pub(super) settings: Region,
}

pub(super) type Regions = BTreeMap<Arc<str>, ResolvedRegion>;

/// PVE is asked at most this often.
const MIN_POLL: Span = Span::seconds(5);

/// The regions; `[proxmox]` is the region `default`.
pub(super) fn regions(file: &File, problems: &mut Problems) -> Regions {
    let root = KeyPath::default();
    let mut regions = Regions::new();
    if let Some(region) = &file.proxmox {
        problems.unless(
            !file.region.contains_key("default"),
            &root.at("proxmox"),
            || "[proxmox] and [region.default] are the same; keep one of them".to_owned(),
        );
        regions.insert(
            shared("default"),
            resolve(region, root.at("proxmox"), problems),
        );
    }
    for (key, region) in &file.region {
        let path = root.at("region").at(key);
        name(&path, key, 63, problems);
        regions.insert(shared(key), resolve(region, path, problems));
    }
    let local: Vec<&ResolvedRegion> = regions
        .values()
        .filter(|region| region.settings.channel == Channel::Local)
        .collect();
    for region in local.iter().skip(1) {
        problems.add(
            &region.path,
            "only one region can have channel = \"local\": that of this host; expected channel = \"token\"",
        );
    }
    regions
}

fn resolve(region: &file::Region, path: KeyPath, problems: &mut Problems) -> ResolvedRegion {
    let vmids = problems
        .require(
            region.vmids,
            &path.at("vmids"),
            "a range of VMIDs such as \"9000-9999\"",
        )
        .unwrap_or_default();
    problems.unless(region.poll.0 >= MIN_POLL, &path.at("poll"), || {
        format!("expected at least {MIN_POLL}: PVE's own view is 10 seconds old")
    });
    problems.unless(
        region.max_clones_per_storage > 0,
        &path.at("max_clones_per_storage"),
        || "expected at least 1".to_owned(),
    );
    ResolvedRegion {
        policy: RegionPolicy {
            vmid_first: vmids.first,
            vmid_last: vmids.last,
            host_memory_reserve: region.host_memory_reserve.0,
        },
        vmids,
        settings: Region {
            channel: channel(region, &path, problems),
            poll: region.poll.0,
            max_clones_per_storage: region.max_clones_per_storage,
        },
        path,
    }
}

fn channel(region: &file::Region, path: &KeyPath, problems: &mut Problems) -> Channel {
    if region.channel == ChannelKind::Local {
        for (key, set) in [
            ("endpoints", !region.endpoints.is_empty()),
            ("token_id", region.token_id.is_some()),
            ("token_secret_file", region.token_secret_file.is_some()),
            ("ca_file", region.ca_file.is_some()),
            ("fingerprint", region.fingerprint.is_some()),
        ] {
            problems.unless(!set, &path.at(key), || {
                "only with channel = \"token\"".to_owned()
            });
        }
        return Channel::Local;
    }
    let endpoints = path.at("endpoints");
    problems.unless(!region.endpoints.is_empty(), &endpoints, || {
        "channel = \"token\" needs at least one endpoint, such as \"https://pve1.example:8006\""
            .to_owned()
    });
    each(
        &region.endpoints,
        &endpoints,
        syntax::endpoint,
        "https://HOST or https://HOST:PORT",
        problems,
    );
    let token_id = problems.require(
        region.token_id.clone(),
        &path.at("token_id"),
        "the token's id, user@realm!name",
    );
    if let Some(id) = &token_id {
        problems.unless(syntax::token_id(id), &path.at("token_id"), || {
            "expected user@realm!name".to_owned()
        });
    }
    let secret = path.at("token_secret_file");
    let secret_file = problems.require(
        region.token_secret_file.clone(),
        &secret,
        "the file with the token's secret",
    );
    for (key, file) in [
        ("token_secret_file", &region.token_secret_file),
        ("ca_file", &region.ca_file),
    ] {
        let absolute = file.as_ref().is_none_or(|file| file.is_absolute());
        problems.unless(absolute, &path.at(key), || {
            "expected an absolute path".to_owned()
        });
    }
    match (&region.ca_file, &region.fingerprint) {
        (None, None) => problems.add(
            &path.at("ca_file"),
            "is missing; expected ca_file (a copy of /etc/pve/pve-root-ca.pem) or fingerprint",
        ),
        (Some(_), Some(_)) => problems.add(
            &path.at("fingerprint"),
            "expected either ca_file or fingerprint",
        ),
        (_, Some(fingerprint)) => problems.unless(
            syntax::fingerprint(fingerprint),
            &path.at("fingerprint"),
            || "expected a SHA-256 fingerprint: 32 pairs of hex digits joined by ':'".to_owned(),
        ),
        (_, None) => {}
    }
    Channel::Token {
        endpoints: region.endpoints.clone(),
        token_id: token_id.unwrap_or_default(),
        secret_file: secret_file.unwrap_or_default(),
        ca_file: region.ca_file.clone(),
        fingerprint: region.fingerprint.clone(),
    }
}

/// The region that something names, or the only one.
pub(super) fn region_of(
    named: Option<&str>,
    regions: &Regions,
    path: &KeyPath,
    problems: &mut Problems,
) -> Option<Arc<str>> {
    let known = || {
        regions
            .keys()
            .map(|name| &**name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    match named {
        Some(named) => {
            let found = regions.get_key_value(named).map(|(name, _)| name.clone());
            problems.unless(found.is_some(), path, || {
                format!("there is no region {named:?}; expected one of: {}", known())
            });
            found
        }
        None if regions.len() == 1 => regions.keys().next().cloned(),
        None => {
            problems.add(
                path,
                if regions.is_empty() {
                    "there is no region; expected a table [proxmox] or [region.NAME]".to_owned()
                } else {
                    format!("is missing; expected one of the regions {}", known())
                },
            );
            None
        }
    }
}

/// The templates.
pub(super) fn templates(
    file: &File,
    regions: &Regions,
    problems: &mut Problems,
) -> BTreeMap<Arc<str>, Template> {
    let mut templates = BTreeMap::new();
    for (key, template) in &file.template {
        let path = KeyPath::default().at("template").at(key);
        name(&path, key, 63, problems);
        let region = region_of(
            template.region.as_deref(),
            regions,
            &path.at("region"),
            problems,
        );
        check_template(
            template,
            &path,
            region.as_ref().and_then(|name| regions.get(name)),
            problems,
        );
        templates.insert(
            shared(key),
            Template {
                region: region.unwrap_or_default(),
                vmid: template.vmid,
                vm_name: template.vm_name.clone(),
                full_clone: template.clone == CloneKind::Full,
                storage: template.storage.clone(),
                boot_disk: template.boot_disk.clone(),
                bridge: template.bridge.clone(),
                vlan: template.vlan,
                resource_pool: template.resource_pool.clone(),
                cpu_type: template.cpu_type.clone(),
                ipconfig: template.ipconfig.clone(),
                ssh_keys: (!template.ssh_keys.is_empty()).then(|| template.ssh_keys.join("\n")),
                ci_user: template.ci_user.clone(),
                nameserver: template.nameserver.clone(),
                searchdomain: template.searchdomain.clone(),
            },
        );
    }
    templates
}

fn check_template(
    template: &file::Template,
    path: &KeyPath,
    region: Option<&ResolvedRegion>,
    problems: &mut Problems,
) {
    match (template.vmid, &template.vm_name) {
        (None, None) => problems.add(
            &path.at("vmid"),
            "is missing; expected the template's vmid or vm_name",
        ),
        (Some(_), Some(_)) => problems.add(&path.at("vm_name"), "expected either vmid or vm_name"),
        (Some(vmid), None) => {
            problems.unless(vmid >= 100, &path.at("vmid"), || {
                "expected a VMID, 100 or more".to_owned()
            });
            let inside = region.is_some_and(|region| region.vmids.contains(vmid));
            problems.unless(!inside, &path.at("vmid"), || {
                "lies inside the region's vmids, which are for machines alone".to_owned()
            });
        }
        (None, Some(vm_name)) => {
            problems.unless(
                syntax::dns_subdomain(&vm_name.to_ascii_lowercase()),
                &path.at("vm_name"),
                || "expected a VM's name: letters, digits, '-' and '.'".to_owned(),
            );
        }
    }
    problems.unless(
        template.storage.is_none() || template.clone == CloneKind::Full,
        &path.at("storage"),
        || "only with clone = \"full\": a linked clone is where its template is".to_owned(),
    );
    let text = |key: &str,
                value: &Option<String>,
                holds: fn(&str) -> bool,
                expected: &str,
                problems: &mut Problems| {
        let fine = value.as_deref().is_none_or(holds);
        problems.unless(fine, &path.at(key), || format!("expected {expected}"));
    };
    text(
        "storage",
        &template.storage,
        syntax::pve_id,
        "a storage's name",
        problems,
    );
    text(
        "boot_disk",
        &template.boot_disk,
        syntax::disk,
        "a disk such as scsi0 or virtio0",
        problems,
    );
    text(
        "bridge",
        &template.bridge,
        syntax::pve_id,
        "a bridge such as vmbr0",
        problems,
    );
    text(
        "resource_pool",
        &template.resource_pool,
        syntax::pve_pool,
        "a resource pool's name",
        problems,
    );
    for (key, value) in [
        ("cpu_type", &template.cpu_type),
        ("ipconfig", &template.ipconfig),
        ("ci_user", &template.ci_user),
        ("nameserver", &template.nameserver),
        ("searchdomain", &template.searchdomain),
    ] {
        text(
            key,
            value,
            one_line,
            "one line of text, not empty",
            problems,
        );
    }
    let vlan = template.vlan.is_none_or(|tag| (1..=4094).contains(&tag));
    problems.unless(vlan, &path.at("vlan"), || {
        "expected a VLAN tag, 1 to 4094".to_owned()
    });
    problems.unless(
        template.vlan.is_none() || template.bridge.is_some(),
        &path.at("vlan"),
        || "needs bridge: net0 is written as a whole".to_owned(),
    );
    each(
        &template.ssh_keys,
        &path.at("ssh_keys"),
        ssh_key,
        "a public key such as \"ssh-ed25519 AAAA… name\"",
        problems,
    );
}

fn one_line(text: &str) -> bool {
    !text.trim().is_empty() && !text.contains(char::is_control)
}

fn ssh_key(text: &str) -> bool {
    one_line(text)
        && ["ssh-", "ecdsa-", "sk-"]
            .iter()
            .any(|kind| text.starts_with(kind))
        && text.split_whitespace().count() >= 2
}

/// `[broker]`, and what it may do: everything that the regions with the local channel need.
pub(super) fn broker(
    file: &File,
    regions: &Regions,
    templates: &BTreeMap<Arc<str>, Template>,
    policy: &Policy,
    problems: &mut Problems,
) -> Broker {
    let path = KeyPath::default().at("broker");
    let extra = &file.broker;
    problems.unless(extra.socket.is_absolute(), &path.at("socket"), || {
        "expected an absolute path".to_owned()
    });
    problems.unless(one_line(&extra.group), &path.at("group"), || {
        "expected a group's name".to_owned()
    });
    each(
        &extra.storages,
        &path.at("storages"),
        syntax::pve_id,
        "a storage's name",
        problems,
    );
    each(
        &extra.bridges,
        &path.at("bridges"),
        syntax::pve_id,
        "a bridge such as vmbr0",
        problems,
    );
    each(
        &extra.resource_pools,
        &path.at("resource_pools"),
        syntax::pve_pool,
        "a resource pool's name",
        problems,
    );
    each(
        &extra.device_mappings,
        &path.at("device_mappings"),
        syntax::pve_id,
        "a resource mapping's name",
        problems,
    );
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
    items
        .collect::<std::collections::BTreeSet<T>>()
        .into_iter()
        .collect()
}

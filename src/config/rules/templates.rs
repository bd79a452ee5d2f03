//! Templates: what machines are cloned from.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::regions::{ResolvedRegion, ResolvedRegions, region_of};
use super::{
    Problems, builds, cloud_init, creations, each, hardware, ipconfig, name, options, shared,
};
use crate::config::file::{self, CloneKind, ConfigFile};
use crate::config::new_vm;
use crate::config::place::KeyPath;
use crate::config::settings::{NetCardSettings, TemplateSettings};
use crate::config::syntax;
use crate::model::network::fixed_addresses;

/// What a bridge's name is expected to be.
pub(super) const BRIDGE: &str = "a bridge such as vmbr0, at most 15 characters";
/// What name servers are expected to be.
pub(super) const NAME_SERVERS: &str =
    "addresses of name servers with spaces between, such as \"192.0.2.1 192.0.2.2\"";
/// What a search domain is expected to be.
pub(super) const SEARCH_DOMAINS: &str =
    "a DNS domain such as home.example, or some with spaces between";
/// Further network cards of a machine at most: the broker lets so many be written.
pub(super) const MAX_NICS: usize = 7;
/// MB a second of a network card at most: more than any card has.
const MAX_RATE: u32 = 100_000;

/// The region of a template, which is looked at by what that region is.
fn checked_region(
    template: &file::Template,
    regions: &ResolvedRegions,
    path: &KeyPath,
    problems: &mut Problems,
) -> Option<Arc<str>> {
    let named = template.region.as_deref();
    let region = region_of(named, regions, &path.at("region"), problems);
    let resolved = region.as_ref().and_then(|name| regions.get(name));
    check_template(template, path, resolved, problems);
    region
}

/// The templates.
pub(super) fn templates(
    file: &ConfigFile,
    regions: &ResolvedRegions,
    problems: &mut Problems,
) -> BTreeMap<Arc<str>, TemplateSettings> {
    let mut templates = BTreeMap::new();
    for (key, template) in &file.template {
        let path = KeyPath::default().at("template").at(key);
        name(&path, key, 63, problems);
        let region = checked_region(template, regions, &path, problems);
        let hardware = hardware::hardware(template, &path, problems);
        let disk = hardware.boot_disk.clone();
        templates.insert(
            shared(key),
            TemplateSettings {
                region: region.unwrap_or_default(),
                vmid: template.vmid,
                vm_name: vm_name(key, template),
                tags: tags(&template.tags),
                full_clone: template.clone == CloneKind::Full,
                storage: template.storage.clone(),
                boot_disk: match &template.create {
                    Some(_) => Some(new_vm::DISK.to_owned()),
                    None => template.boot_disk.clone(),
                },
                bridge: template.bridge.clone(),
                vlan: template.vlan,
                firewall: template.firewall,
                security_groups: template.security_groups.clone(),
                vm_firewall: template.vm_firewall,
                mtu: template.mtu,
                multiqueue: template.multiqueue,
                rate: template.rate,
                nic_model: template.nic_model.map(file::NicModel::called),
                hardware,
                nics: template.nic.iter().map(card).collect(),
                resource_pool: template.resource_pool.clone(),
                cpu_type: hardware::cpu(template, &path, problems),
                ipconfig: template.ipconfig.clone(),
                ssh_keys: template.ssh_keys.as_ref().map(|keys| keys.join("\n")),
                ci_user: template.ci_user.clone(),
                nameserver: template.nameserver.clone(),
                searchdomain: template.searchdomain.clone(),
                first_boot: false,
                ci_upgrade: template.ci_upgrade,
                cloud_init: template
                    .cloud_init
                    .as_ref()
                    .map(|texts| cloud_init::texts(texts, &path.at("cloud_init"), problems)),
                build: template.build.clone().map(Arc::new),
                new_vm: creations::new_vm((template, disk), &path, problems),
                pools: BTreeMap::new(),
            },
        );
    }
    builds::check_apart(file, problems);
    builds::check_pools(&templates, regions, problems);
    hardware::check_macs(&templates, regions, problems);
    options::check_channels(&templates, regions, problems);
    templates
}

/// Of a template that is built: how its VM is found.
fn check_built(template: &file::Template, path: &KeyPath, problems: &mut Problems) {
    let path = path.at("build");
    let by_name = template.vmid.is_none() && template.tags.is_empty();
    problems.unless(by_name, &path, || {
        "a template that is built is found by its name; expected neither vmid nor tags beside it".to_owned()
    });
}

fn check_template(
    template: &file::Template,
    path: &KeyPath,
    region: Option<&ResolvedRegion>,
    problems: &mut Problems,
) {
    check_source(template, path, region, problems);
    if let Some(build) = &template.build {
        builds::check(build, &path.at("build"), region, problems);
        check_built(template, path, problems);
    }
    problems.unless(
        template.storage.is_none() || template.clone == CloneKind::Full,
        &path.at("storage"),
        || "only with clone = \"full\": a linked clone is where its template is".to_owned(),
    );
    if let Some(storage) = &template.storage {
        problems.storages(&path.at("storage"), storage);
    }
    let disk: fn(&str) -> bool = syntax::disk;
    let line = "one line of text, not empty";
    for (key, value, holds, expected) in [
        (
            "boot_disk",
            &template.boot_disk,
            disk,
            "a disk such as scsi0 or virtio0: ide0 to ide3, sata0 to sata5, scsi0 to scsi30 or virtio0 to virtio15",
        ),
        ("bridge", &template.bridge, syntax::bridge, BRIDGE),
        (
            "resource_pool",
            &template.resource_pool,
            syntax::pve_pool,
            "a resource pool's name",
        ),
        ("cpu_type", &template.cpu_type, one_line, line),
        (
            "ci_user",
            &template.ci_user,
            syntax::user,
            "a user's name: letters, digits, '_', '-' and '.', at most 32, a letter or '_' first",
        ),
    ] {
        problems.text(&path.at(key), value.as_deref(), holds, expected);
    }
    check_names(template, path, problems);
    if let Some(why) = template.ipconfig.as_deref().and_then(ipconfig::fault) {
        problems.add(&path.at("ipconfig"), why);
    }
    check_card(path, template.vlan, template.mtu, problems);
    check_rate(path, template.rate, problems);
    check_groups(
        template.security_groups.as_deref(),
        template.firewall,
        path,
        problems,
    );
    check_nics(&template.nic, &path.at("nic"), problems);
    each(
        template.ssh_keys.as_deref().unwrap_or_default(),
        &path.at("ssh_keys"),
        ssh_key,
        "a public key such as \"ssh-ed25519 AAAA… name\"",
        problems,
    );
}

/// How machines look names up.
fn check_names(template: &file::Template, path: &KeyPath, problems: &mut Problems) {
    problems.text(
        &path.at("nameserver"),
        template.nameserver.as_deref(),
        syntax::name_servers,
        NAME_SERVERS,
    );
    problems.text(
        &path.at("searchdomain"),
        template.searchdomain.as_deref(),
        syntax::search_domains,
        SEARCH_DOMAINS,
    );
}

fn card(nic: &file::NetCard) -> NetCardSettings {
    NetCardSettings {
        bridge: nic.bridge.clone(),
        vlan: nic.vlan,
        firewall: nic.firewall,
        groups: nic.security_groups.clone(),
        mtu: nic.mtu,
        multiqueue: nic.multiqueue,
        rate: nic.rate,
        model: nic.model.map(file::NicModel::called),
        ipconfig: nic.ipconfig.clone(),
        network: nic.network.as_deref().map(shared),
    }
}

/// What is the same for every network card.
pub(super) fn check_card(
    path: &KeyPath,
    vlan: Option<u16>,
    mtu: Option<u16>,
    problems: &mut Problems,
) {
    let vlan = vlan.is_none_or(|tag| (1..=4094).contains(&tag));
    problems.unless(vlan, &path.at("vlan"), || {
        "expected a VLAN tag, 1 to 4094".to_owned()
    });
    let mtu = mtu.is_none_or(|mtu| mtu == 1 || (576..=65520).contains(&mtu));
    problems.unless(mtu, &path.at("mtu"), || {
        "expected an MTU, 576 to 65520, or 1 for the bridge's".to_owned()
    });
}

/// How much a card sends and receives at most.
fn check_rate(path: &KeyPath, rate: Option<u32>, problems: &mut Problems) {
    let rate = rate.is_none_or(|rate| (1..=MAX_RATE).contains(&rate));
    problems.unless(rate, &path.at("rate"), || {
        format!("expected MB a second, 1 to {MAX_RATE}")
    });
}

/// Security groups: each named once, of a card that passes through the firewall.
fn check_groups(
    groups: Option<&[String]>,
    firewall: Option<bool>,
    path: &KeyPath,
    problems: &mut Problems,
) {
    let groups = groups.unwrap_or_default();
    let path = path.at("security_groups");
    let expected = "a security group's name: 2 to 18 letters, digits, '-' and '_', a letter first";
    each(groups, &path, syntax::security_group, expected, problems);
    let passes = groups.is_empty() || firewall != Some(false);
    problems.unless(passes, &path, || {
        "the card does not pass through the firewall; expected firewall = true beside it".to_owned()
    });
}

/// Further network cards.
fn check_nics(nics: &[file::NetCard], path: &KeyPath, problems: &mut Problems) {
    problems.unless(nics.len() <= MAX_NICS, path, || {
        format!("expected at most {MAX_NICS} further network cards")
    });
    for (position, nic) in nics.iter().enumerate() {
        let path = path.at(&position);
        let named = problems.require(
            nic.bridge.as_deref(),
            &path.at("bridge"),
            "a bridge such as vmbr0",
        );
        problems.text(&path.at("bridge"), named, syntax::bridge, BRIDGE);
        let both = nic.network.is_some() && nic.ipconfig.is_some();
        problems.unless(!both, &path.at("ipconfig"), || {
            "expected either network or ipconfig: the network gives the card its addresses"
                .to_owned()
        });
        check_card(&path, nic.vlan, nic.mtu, problems);
        check_rate(&path, nic.rate, problems);
        check_groups(
            nic.security_groups.as_deref(),
            nic.firewall,
            &path,
            problems,
        );
        let Some(text) = nic.ipconfig.as_deref() else {
            continue;
        };
        if let Some(why) = ipconfig::fault(text) {
            problems.add(&path.at("ipconfig"), why);
        } else if fixed_addresses(text).next().is_some() {
            problems.add(
                &path.at("ipconfig"),
                "every machine would have this address: expected ip=dhcp or ip6=auto, or network for an address for each",
            );
        }
    }
}

/// The name of the template's VM: the file's, or the one that builds give it.
fn vm_name(key: &str, template: &file::Template) -> Option<String> {
    let chosen = template.vmid.is_some() || !template.tags.is_empty();
    let built = template.build.is_some() && !chosen;
    let default = || format!("pve-autoscaler-{key}");
    template.vm_name.clone().or_else(|| built.then(default))
}

/// As PVE keeps them: in lower case, sorted, each once.
fn tags(tags: &[String]) -> Vec<String> {
    let lower = tags.iter().map(|tag| tag.to_ascii_lowercase());
    lower.collect::<BTreeSet<String>>().into_iter().collect()
}

/// Which VM it is: by VMID, by name or by tags, and not one of the machines to be.
fn check_source(
    template: &file::Template,
    path: &KeyPath,
    region: Option<&ResolvedRegion>,
    problems: &mut Problems,
) {
    let (by_vmid, by_name, by_tags) = (path.at("vmid"), path.at("vm_name"), path.at("tags"));
    let tagged = !template.tags.is_empty();
    match (template.vmid, &template.vm_name) {
        (None, None) if template.build.is_some() && !tagged => {}
        // Told beside the keys that do not go with it.
        _ if template.create.is_some() => {}
        (None, None) if !tagged => problems.add(
            &by_vmid,
            "is missing; expected the template's vmid, vm_name or tags, or [template.NAME.create]",
        ),
        (Some(_), Some(_)) => problems.add(&by_name, "expected either vmid or vm_name"),
        (Some(_), _) | (_, Some(_)) if tagged => {
            problems.add(&by_tags, "expected one of vmid, vm_name and tags");
        }
        (Some(vmid), None) => {
            problems.unless(vmid >= 100, &by_vmid, || {
                "expected a VMID, 100 or more".to_owned()
            });
            let inside = region.is_some_and(|region| region.vmids.contains(vmid));
            problems.unless(!inside, &by_vmid, || {
                "lies inside the region's vmids, which are for machines alone".to_owned()
            });
        }
        (None, Some(vm_name)) => {
            let fine = syntax::dns_subdomain(&vm_name.to_ascii_lowercase());
            problems.unless(fine, &by_name, || {
                "expected a VM's name: letters, digits, '-' and '.'".to_owned()
            });
        }
        (None, None) => {}
    }
    each(
        &tags(&template.tags),
        &by_tags,
        syntax::tag,
        "a tag: letters, digits, '_', '-', '+' and '.'",
        problems,
    );
}

pub(super) fn one_line(text: &str) -> bool {
    !text.trim().is_empty() && !text.contains(char::is_control)
}

/// PVE asks `ssh-keygen`, and refuses the whole write for a key that was cut when it was pasted.
fn ssh_key(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let (Some(kind), Some(key)) = (words.next(), words.next()) else {
        return false;
    };
    one_line(text)
        && ["ssh-", "ecdsa-", "sk-"]
            .iter()
            .any(|start| kind.starts_with(start))
        && STANDARD
            .decode(key)
            .is_ok_and(|key| key_fields(&key).is_some_and(|fields| is_key(kind, &fields)))
}

/// The fields of a public key, each with its length before it; `None` when one is cut.
fn key_fields(mut rest: &[u8]) -> Option<Vec<&[u8]>> {
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (field, after) = after.split_at_checked(length)?;
        fields.push(field);
        rest = after;
    }
    Some(fields)
}

/// The first field says the key's kind once more, and there is more.
fn is_key(kind: &str, fields: &[&[u8]]) -> bool {
    fields.len() > 1 && fields[0] == kind.as_bytes()
}

#[cfg(test)]
mod tests {
    use super::ssh_key;

    #[test]
    fn a_key_that_was_cut_is_none() {
        let key = "AAAAC3NzaC1lZDI1NTE5AAAAIJ9K7oYVlC2pbAsN5DepToDsCjVAlu0F9brXSYx4zY9b";
        assert!(ssh_key(&format!("ssh-ed25519 {key} admin")));
        assert!(ssh_key(&format!("ssh-ed25519 {key}")));
        for text in [
            format!("ssh-ed25519 {} admin", &key[..64]),
            format!("ssh-rsa {key}"),
            format!("ssh-ed25519 {key}\nssh-ed25519 {key}"),
            "ssh-ed25519".to_owned(),
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5".to_owned(),
            "ssh-ed25519 AAAA admin".to_owned(),
            format!("command=\"x\" ssh-ed25519 {key}"),
        ] {
            assert!(!ssh_key(&text), "{text}");
        }
    }
}

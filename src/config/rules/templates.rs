//! Templates: what machines are cloned from.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::regions::{Regions, ResolvedRegion, region_of};
use super::{Problems, each, name, shared};
use crate::config::file::{self, CloneKind, File};
use crate::config::place::KeyPath;
use crate::config::settings::Template;
use crate::config::syntax;

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
    check_source(template, path, region, problems);
    problems.unless(
        template.storage.is_none() || template.clone == CloneKind::Full,
        &path.at("storage"),
        || "only with clone = \"full\": a linked clone is where its template is".to_owned(),
    );
    let id: fn(&str) -> bool = syntax::pve_id;
    let line = "one line of text, not empty";
    for (key, value, holds, expected) in [
        ("storage", &template.storage, id, "a storage's name"),
        (
            "boot_disk",
            &template.boot_disk,
            syntax::disk,
            "a disk such as scsi0 or virtio0",
        ),
        ("bridge", &template.bridge, id, "a bridge such as vmbr0"),
        (
            "resource_pool",
            &template.resource_pool,
            syntax::pve_pool,
            "a resource pool's name",
        ),
        ("cpu_type", &template.cpu_type, one_line, line),
        ("ipconfig", &template.ipconfig, one_line, line),
        ("ci_user", &template.ci_user, one_line, line),
        ("nameserver", &template.nameserver, one_line, line),
        ("searchdomain", &template.searchdomain, one_line, line),
    ] {
        problems.text(&path.at(key), value.as_deref(), holds, expected);
    }
    let vlan = template.vlan.is_none_or(|tag| (1..=4094).contains(&tag));
    problems.unless(vlan, &path.at("vlan"), || {
        "expected a VLAN tag, 1 to 4094".to_owned()
    });
    each(
        &template.ssh_keys,
        &path.at("ssh_keys"),
        ssh_key,
        "a public key such as \"ssh-ed25519 AAAA… name\"",
        problems,
    );
}

/// Which VM it is: by VMID or by name, and not one of the machines to be.
fn check_source(
    template: &file::Template,
    path: &KeyPath,
    region: Option<&ResolvedRegion>,
    problems: &mut Problems,
) {
    let (by_vmid, by_name) = (path.at("vmid"), path.at("vm_name"));
    match (template.vmid, &template.vm_name) {
        (None, None) => problems.add(
            &by_vmid,
            "is missing; expected the template's vmid or vm_name",
        ),
        (Some(_), Some(_)) => problems.add(&by_name, "expected either vmid or vm_name"),
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
    }
}

pub(super) fn one_line(text: &str) -> bool {
    !text.trim().is_empty() && !text.contains(char::is_control)
}

fn ssh_key(text: &str) -> bool {
    one_line(text)
        && ["ssh-", "ecdsa-", "sk-"]
            .iter()
            .any(|kind| text.starts_with(kind))
        && text.split_whitespace().count() >= 2
}

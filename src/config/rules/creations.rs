//! VMs that are made of settings: what of it can be told to be wrong before anything is made.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::pools::ResolvedPool;
use super::{Problems, syntax};
use crate::config::file::{self, BootDevice, Firmware};
use crate::config::new_vm::{NewVm, usual_order};
use crate::config::place::KeyPath;
use crate::config::settings::TemplateSettings;
use crate::model::policy::InstanceType;

/// What files can be imported from (`UPLOAD_IMPORT_EXT_RE_1` of PVE::Storage), those apart that hold a whole VM.
const IMAGES: [&str; 3] = [".qcow2", ".raw", ".vmdk"];

/// What an ISO's name ends with (`ISO_EXT_RE_0`).
const ISOS: [&str; 2] = [".iso", ".img"];

/// `[template.NAME.create]`, with what of the template goes with the call.
pub(super) fn new_vm(
    (template, disk): (&file::Template, BTreeMap<String, String>),
    path: &KeyPath,
    problems: &mut Problems,
) -> Option<Arc<NewVm>> {
    let written = template.create.as_ref()?;
    let at = path.at("create");
    check(written, &at, problems);
    check_beside(template, path, problems);
    let mut create = written.clone();
    if create.boot.is_empty() {
        create.boot = usual_order(&create);
    }
    create.cloud_init_drive &= template.cloud_init.is_none();
    let model = template.nic_model.map_or("virtio", file::NicModel::called);
    let bridge = template.bridge.as_deref().unwrap_or_default();
    Some(Arc::new(NewVm {
        create,
        net: format!("{model},bridge={bridge}"),
        disk,
        pool: template.resource_pool.clone(),
    }))
}

fn check(create: &file::Create, at: &KeyPath, problems: &mut Problems) {
    problems.storages(&at.at("storage"), &create.storage);
    let image = create.image.as_deref();
    problems.text(
        &at.at("image"),
        image,
        |text| {
            let kind = IMAGES.iter().any(|end| text.ends_with(end));
            kind && is_volume(text, "import")
        },
        "a volume such as local:import/talos-nocloud-amd64.qcow2",
    );
    let iso = |text: &str| {
        let lower = text.to_ascii_lowercase();
        ISOS.iter().any(|end| lower.ends_with(end)) && is_volume(text, "iso")
    };
    let expected = "a volume such as local:iso/metal-amd64.iso";
    problems.text(&at.at("iso"), create.iso.as_deref(), iso, expected);
    check_firmware((create.bios, create.secure_boot), at, problems);
    let boot = at.at("boot");
    let from = |device| create.boot.contains(&device);
    problems.unless(
        !from(BootDevice::Cdrom) || create.iso.is_some(),
        &boot,
        || "names the CD drive, and there is no iso".to_owned(),
    );
    for (place, device) in create.boot.iter().enumerate() {
        problems.unless(
            !create.boot[..place].contains(device),
            &boot.at(&place),
            || "is there twice".to_owned(),
        );
    }
}

/// Only UEFI's firmware looks at who signed what it starts.
pub(super) fn check_firmware(
    (bios, secure_boot): (Firmware, bool),
    at: &KeyPath,
    problems: &mut Problems,
) {
    let signed = !secure_boot || bios == Firmware::Ovmf;
    problems.unless(signed, &at.at("secure_boot"), || {
        "expected bios = \"ovmf\" beside it".to_owned()
    });
}

/// `STORAGE:KIND/FILE`.
fn is_volume(text: &str, kind: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'+');
    text.split_once(':').is_some_and(|(storage, rest)| {
        let file = rest.split_once('/').filter(|(of, _)| *of == kind);
        let file = file.map_or("", |(_, file)| file);
        syntax::pve_id(storage) && !file.is_empty() && file.bytes().all(plain)
    })
}

/// Keys of the template that mean a VM to clone.
fn check_beside(template: &file::Template, path: &KeyPath, problems: &mut Problems) {
    for (key, set) in [
        ("vmid", template.vmid.is_some()),
        ("vm_name", template.vm_name.is_some()),
        ("tags", !template.tags.is_empty()),
        ("build", template.build.is_some()),
        ("clone", template.clone != file::CloneKind::Linked),
        ("storage", template.storage.is_some()),
        ("boot_disk", template.boot_disk.is_some()),
    ] {
        problems.unless(!set, &path.at(key), || {
            "means a VM to clone, and [template.NAME.create] has none cloned; expected one of the two".to_owned()
        });
    }
    problems.require(
        template.bridge.as_deref(),
        &path.at("bridge"),
        "the bridge of its network card, such as vmbr0",
    );
}

/// A disk that is made empty needs a size.
pub(super) fn check_disks(
    templates: &BTreeMap<Arc<str>, TemplateSettings>,
    pools: &BTreeMap<Arc<str>, ResolvedPool>,
    kinds: &BTreeMap<Arc<str>, InstanceType>,
    problems: &mut Problems,
) {
    for pool in pools.values() {
        let new = |name: &Arc<str>| templates.get(name)?.new_vm.as_ref();
        let mut places = pool.policy.everywhere();
        let empty =
            places.any(|there| new(&there.template).is_some_and(|new| new.create.image.is_none()));
        if !empty {
            continue;
        }
        for name in &pool.policy.instance_types {
            let sized = kinds.get(name).is_none_or(|kind| kind.disk > 0);
            let path = KeyPath::default()
                .at("instance_type")
                .at(&**name)
                .at("disk");
            problems.unless(sized, &path, || {
                format!(
                    "is missing; the disks of pool {} are made empty ([template.{}.create] without an image), and somebody must say how large",
                    pool.path, pool.policy.template
                )
            });
        }
    }
}

/// What pools want of machines that VMs made so never have: a guest agent that tells them to join, a drive that brings them addresses.
pub(super) fn check_pools(
    templates: &BTreeMap<Arc<str>, TemplateSettings>,
    pools: &BTreeMap<Arc<str>, ResolvedPool>,
    problems: &mut Problems,
) {
    for (name, template) in templates {
        let Some(new) = &template.new_vm else {
            continue;
        };
        let at = KeyPath::default().at("template").at(&**name).at("create");
        let here = || {
            pools
                .values()
                .filter_map(move |pool| Some((pool, pool.policy.of_template(name)?)))
        };
        let asking = here().find(|(pool, _)| !pool.settings.join.asks_nobody());
        if let Some((pool, _)) = asking.filter(|_| !new.create.agent) {
            problems.add(
                &at.at("agent"),
                format!(
                    "its machines have no guest agent, and {} tells them by it to join ({}): expected agent = true with an image that has one, or {}.join with method = \"self\" or delivery = \"cloud-init\"",
                    pool.path, pool.settings.join.method.called(), pool.path
                ),
            );
        }
        let bare = !new.create.cloud_init_drive && template.cloud_init.is_none();
        let given = here().find_map(|(pool, there)| Some((pool, there.networks.values().next()?)));
        if let Some((pool, network)) = given.filter(|_| bare) {
            problems.add(
                &at.at("cloud_init_drive"),
                format!(
                    "nothing brings the addresses of [network.{network}] to machines of {}: expected cloud_init_drive = true, a table [template.{name}.cloud_init], or no network, so that machines ask DHCP",
                    pool.path
                ),
            );
        }
    }
}

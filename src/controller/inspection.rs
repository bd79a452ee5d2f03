//! What a template is looked at for before machines are made of it. Pure: it reads the configuration that PVE tells.
//!
//! A clone inherits its template's configuration but for what the first write sets anew
//! ([`crate::controller::vm_config`]): what is wrong in the template is wrong in every machine.

mod inherited;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::config::hardware::may_have_options;
use crate::config::settings::TemplateSettings;
use crate::pve::{StorageResource, VmConfig};

pub use inherited::{has_fixed_address, shared_addresses};

/// Types of storages without linked clones, whatever the format of a volume (`PVE::Storage::LVMPlugin`, `ISCSIPlugin`:
/// `volume_has_feature`). Those of files clone any format: the clone is a qcow2 file on top of it.
pub const WHOLE: [&str; 3] = ["lvm", "iscsi", "iscsidirect"];
/// Types of storages that clone linked what `qm template` made a base image, and nothing else. btrfs takes other raw files
/// as well; what plugins of others take nobody knows here.
const OF_BASES: [&str; 9] = [
    "dir",
    "nfs",
    "cifs",
    "glusterfs",
    "cephfs",
    "lvmthin",
    "zfspool",
    "zfs",
    "rbd",
];

/// What is wrong with a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateFault {
    /// No machine made of it would ever join, or PVE makes none: none is tried.
    pub fatal: bool,
    /// It is one to pools alone that have no network on this network card.
    pub card: Option<u8>,
    /// What it is and what helps; begins with the template as `VM N`.
    pub text: String,
}

/// Everything that is wrong with the template `vmid`. `is_shared` tells whether all hosts have the same storage of a name.
pub fn inspect(
    vmid: u32,
    config: &VmConfig,
    template: &TemplateSettings,
    is_shared: impl Fn(&str) -> bool,
) -> Vec<TemplateFault> {
    let mut faults = Vec::new();
    {
        let mut add = |fatal: bool, text: String| {
            let text = format!("VM {vmid} {text}");
            let card = None;
            faults.push(TemplateFault { fatal, card, text });
        };
        start(vmid, config, template, &mut add);
        disks(vmid, config, template, &mut add);
        hardware(vmid, config, &mut add);
        inherited::of_one_vm(vmid, config, template, &mut add);
        inherited::of_files(vmid, config, is_shared, &mut add);
        inherited::of_no_use(vmid, config, template, &mut add);
    }
    let shared = shared_addresses(vmid, config, template).into_iter();
    faults.extend(shared.map(|(card, text)| TemplateFault {
        fatal: true,
        card: Some(card),
        text,
    }));
    faults
}

/// The first fault for which no machine is made of the template, whatever the pool.
pub fn obstacle(vmid: u32, config: &VmConfig, template: &TemplateSettings) -> Option<String> {
    // No machine fails for a file that some hosts lack alone.
    let faults = inspect(vmid, config, template, |_| true).into_iter();
    faults
        .filter(|fault| fault.fatal && fault.card.is_none())
        .map(|fault| fault.text)
        .next()
}

/// Why PVE makes no linked clone of the template `vmid`, and what helps: a disk of it is where none can be. `plugin` tells
/// the type of a storage on the template's host; where it does not, nothing is said. Cloud-init drives and TPM states
/// are copied in any case, images in CD drives only named (qemu-server `API2/Qemu.pm`, `clone_vm`).
pub fn unlinkable(
    vmid: u32,
    config: &VmConfig,
    plugin: impl Fn(&str) -> Option<Arc<str>>,
) -> Option<String> {
    if !config.template {
        return None;
    }
    let disks = config.disks.iter();
    let mut linked = disks.filter(|(key, disk)| !disk.cdrom && !key.starts_with("tpmstate"));
    let copied = |kind: &str| {
        if kind.starts_with("iscsi") {
            "clone = \"full\" and storage in the template's table copy it to another storage"
        } else {
            "clone = \"full\" in the template's table copies it"
        }
    };
    let why = linked.find_map(|(key, disk)| {
        let (storage, volume) = (&disk.storage, &disk.volume);
        let kind = plugin(storage)?;
        if WHOLE.contains(&&*kind) {
            return Some(format!(
                "its {key} is on {storage} ({kind}), which has no linked clones; {}",
                copied(&kind)
            ));
        }
        let base = volume.rsplit(['/', ':']).next()?.starts_with("base-");
        let wrong = OF_BASES.contains(&&*kind) && !base;
        wrong.then(|| {
            format!(
                "its {key} is {volume}, which is no base image, and PVE links no clone to it; qm template {vmid} --disk {key} makes it one, or {}",
                copied(&kind)
            )
        })
    });
    why.map(|why| format!("VM {vmid}: {why}"))
}

/// Why no new disk of a VM can be put on the storage `name`, and what helps: PVE refuses it in the middle of a machine's making ("does
/// not support vm images", "can't allocate space in iscsi storage"). Nothing where PVE does not tell what the storage is for.
pub fn refuses_disks(name: &str, storage: &StorageResource) -> Option<String> {
    let (content, kind) = (&storage.content, &*storage.plugin);
    let other = "another storage in the template's table";
    if matches!(kind, "iscsi" | "iscsidirect") {
        return Some(format!(
            "storage {name} ({kind}) has the LUNs of its target, and PVE makes none there; {other}"
        ));
    }
    if content.is_empty() || content.iter().any(|of| of == "images") {
        return None;
    }
    Some(if can_hold(kind, "images") {
        format!(
            "storage {name} is not for disks of VMs (its content is {}); pvesm set {name} --content {}, or {other}",
            content.join(","),
            with_content(storage, "images")
        )
    } else {
        format!("storage {name} ({kind}) is of a type that holds no disks of VMs; {other}")
    })
}

/// What `pvesm set --content` is told so that a storage holds content of one more kind: with `none` beside it PVE refuses.
pub fn with_content(storage: &StorageResource, content: &str) -> String {
    let held = storage.content.iter().map(String::as_str);
    let all: BTreeSet<&str> = held.filter(|of| *of != "none").collect();
    let all: Vec<&str> = all.into_iter().chain([content]).collect();
    all.join(",")
}

/// Whether storages of a type can hold content of a kind, such as `iso`, once `pvesm set --content` names it (`plugindata` of
/// `PVE::Storage::*Plugin`). Of types that are not PVE's own nobody knows here.
pub fn can_hold(plugin: &str, content: &str) -> bool {
    match plugin {
        "cephfs" => !matches!(content, "images" | "rootdir"),
        "esxi" => content == "import",
        "iscsi" | "iscsidirect" | "zfs" => content == "images",
        "lvm" | "lvmthin" | "rbd" | "zfspool" => matches!(content, "images" | "rootdir"),
        "pbs" => content == "backup",
        _ => true,
    }
}

/// Whether it can be cloned and its machines can be reached.
fn start(
    vmid: u32,
    config: &VmConfig,
    template: &TemplateSettings,
    add: &mut impl FnMut(bool, String),
) {
    if !config.template {
        add(
            true,
            format!("is no template; qm template {vmid} makes it one"),
        );
    }
    if let Some(lock) = &config.lock {
        add(
            true,
            format!(
                "is locked ({lock}), and PVE clones no locked VM; where `pvenode task list --source active --vmid {vmid}` on its host shows no task, `qm unlock {vmid}` there takes the lock away"
            ),
        );
    }
    if !config.agent && !template.first_boot {
        add(
            true,
            format!(
                "has no guest agent enabled, and its machines are joined through it; qm set {vmid} --agent enabled=1, and qemu-guest-agent installed in it"
            ),
        );
    }
    let net = config.raw.keys().any(|key| numbered(key, "net"));
    if !net {
        add(
            false,
            format!(
                "has no network card; qm set {vmid} --net0 virtio,bridge=vmbr0, or bridge in the template's table"
            ),
        );
    }
}

fn disks(
    vmid: u32,
    config: &VmConfig,
    template: &TemplateSettings,
    add: &mut impl FnMut(bool, String),
) {
    let drives = config.disks.iter().filter(|(_, disk)| disk.cloud_init);
    let drives: Vec<&str> = drives.map(|(key, _)| &**key).collect();
    match drives[..] {
        // An ISO comes in its place.
        [] if template.cloud_init.is_some() => {}
        [] => add(
            false,
            format!(
                "has no cloud-init drive; its machines get no host name, no network settings and no growing disk by it; qm set {vmid} --ide2 STORAGE:cloudinit"
            ),
        ),
        [_] => {}
        [first, second, ..] => add(
            false,
            format!(
                "has two cloud-init drives, {first} and {second}, and the guest reads either; qm set {vmid} --delete {second}"
            ),
        ),
    }
    let boot = match template.boot_disk.as_deref() {
        Some(key) => config.disks.get_key_value(key),
        None => config.boot_disk(),
    };
    if boot.is_none() {
        let wanted = template.boot_disk.as_deref();
        add(
            true,
            format!("has no {}", wanted.unwrap_or("disk that it boots from")),
        );
    }
    if let Some((slot, _)) = boot {
        boot_disk_options(slot, config, template, add);
    }
    further_disks(config, template, add);
    let missing = config.boot_order.iter().find(|key| {
        let key: &str = key;
        !config.raw.contains_key(key)
    });
    if let Some(missing) = missing {
        add(
            false,
            format!(
                "has {missing} in its boot order, which it does not have; qm set {vmid} --boot order=DISK"
            ),
        );
    }
    let first = config.boot_order.first();
    if let Some(net) = first.filter(|key| numbered(key, "net")) {
        add(
            false,
            format!(
                "boots from the network first ({net}), which delays every machine; qm set {vmid} --boot order=DISK"
            ),
        );
    }
}

/// Options of the boot disk that one in its place cannot have.
fn boot_disk_options(
    slot: &str,
    config: &VmConfig,
    template: &TemplateSettings,
    add: &mut impl FnMut(bool, String),
) {
    let options = &template.hardware.boot_disk;
    let has = |key: &str| options.contains_key(key);
    if options.is_empty() {
        return;
    }
    let without = |key: &str| {
        format!(
            "boots from {slot}, and a disk there has no option {key}: take it from boot_disk_options"
        )
    };
    if !may_have_options(slot) {
        add(
            true,
            format!(
                "boots from {slot}, whose options are not written: move the disk to scsi0, or take boot_disk_options from the file"
            ),
        );
    } else if has("ssd") && slot.starts_with("virtio") {
        add(true, without("ssd"));
    } else if has("iothread") && slot.starts_with("sata") {
        add(true, without("iothread"));
    }
    let controller = config.raw.get("scsihw").map(String::as_str);
    let threaded = options.get("iothread").is_some_and(|on| on == "1");
    if threaded && slot.starts_with("scsi") && controller != Some("virtio-scsi-single") {
        add(
            false,
            format!(
                "has the controller {}, under which {slot} gets no thread of its own; --scsihw virtio-scsi-single",
                controller.unwrap_or("lsi")
            ),
        );
    }
}

/// Places that machines' further disks are to have.
fn further_disks(
    config: &VmConfig,
    template: &TemplateSettings,
    add: &mut impl FnMut(bool, String),
) {
    let controller = config.raw.get("scsihw").map(String::as_str);
    for (slot, disk) in &template.hardware.disks {
        if config.raw.contains_key(slot) {
            add(
                true,
                format!(
                    "has something at {slot}, where its machines are to have a further disk; another slot for that, or qm set on the template without {slot}"
                ),
            );
        }
        let threaded = disk.options.contains(",iothread=1") && slot.starts_with("scsi");
        if threaded && controller != Some("virtio-scsi-single") {
            add(
                false,
                format!(
                    "has the controller {}, under which {slot} gets no thread of its own; --scsihw virtio-scsi-single, or slot = \"virtio1\"",
                    controller.unwrap_or("lsi")
                ),
            );
        }
    }
}

/// What its machines run on.
fn hardware(vmid: u32, config: &VmConfig, add: &mut impl FnMut(bool, String)) {
    let text = |key: &str| config.raw.get(key).map(String::as_str);
    let bios = text("bios").unwrap_or("seabios");
    if bios == "ovmf" && !config.disks.contains_key("efidisk0") {
        add(
            false,
            format!(
                "boots by UEFI without an EFI disk, so that its machines forget their boot entries; qm set {vmid} --efidisk0 STORAGE:1,efitype=4m"
            ),
        );
    }
    let vga = text("vga").unwrap_or_default();
    if let Some(port) = vga
        .split(',')
        .next()
        .filter(|kind| numbered(kind, "serial"))
        && text(port).is_none()
    {
        add(
            false,
            format!(
                "shows its screen on {port}, which it does not have; qm set {vmid} --{port} socket"
            ),
        );
    }
    if text("kvm") == Some("0") {
        add(
            false,
            format!(
                "runs without hardware virtualisation (kvm: 0), ten times slower; qm set {vmid} --delete kvm"
            ),
        );
    }
}

/// `net0`, `usb3`: a bus with a number.
fn numbered(key: &str, bus: &str) -> bool {
    key.strip_prefix(bus).is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests;

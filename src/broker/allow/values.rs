//! Whether a parameter's value may be, by the policy alone. The error says what would be right.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::config::vm_options::SMBIOS;
use crate::model::cpus::CpuSet;
use crate::model::mark::{self, Mark, Ownership};
use crate::model::network::fixed_addresses;
use crate::model::region::VMIDS;
use crate::model::topology::Pinning;
use crate::pve::{IsoFile, MAX_STDIN, Net, OUR_RULE, Upid, component, decoded, iso_volume};

use super::BrokerPolicy;

type ValueCheck = Result<(), String>;

/// Keys that a configuration write may remove: what doubles a template's CPUs.
const DELETABLE: [&str; 3] = ["balloon", "sockets", "vcpus"];
/// Such keys with a number behind: a template's PCI devices, in the place of which a machine has those of its type.
const DELETABLE_NUMBERED: [&str; 2] = ["hostpci", "numa"];
/// Disks' keys: a template's drive for cloud-init gives way to an ISO; that it is that drive is seen in `against`.
const DELETABLE_DRIVES: [&str; 3] = ["ide", "sata", "scsi"];
/// Tasks whose state and log may be read: those that the listed calls start.
const TASKS: [&str; 10] = [
    "qmclone",
    "qmcreate",
    "qmconfig",
    "resize",
    "qmstart",
    "qmstop",
    "qmshutdown",
    "qmdestroy",
    "hastart",
    "hastop",
];
/// Longest shutdown in seconds: PVE holds the VM's lock that long.
const MAX_SHUTDOWN: u64 = 3600;
/// Longest page of a task's log or list.
const MAX_PAGE: u64 = 1000;
/// Longest description in characters (qemu-server, `description`: 8 KiB).
const MAX_DESCRIPTION: usize = 8 * 1024;
/// Longest value that is only compared.
const MAX_COMPARED: usize = 512;
/// Longest tag list in characters; PVE sets no limit.
const MAX_TAGS: usize = 1024;
/// Longest word of a guest command: PVE takes 512 KiB for the whole request.
const MAX_GUEST_TEXT: usize = 128 * 1024;

/// A value that has one spelling only.
pub(super) fn as_it_is(value: &str) -> String {
    value.to_owned()
}

/// A value that means the same without blanks around it.
pub(super) fn trimmed(value: &str) -> String {
    value.trim().to_owned()
}

/// `sshkeys`, which come percent-encoded once more: decoded, trimmed and encoded anew, as the
/// daemon does it.
pub(super) fn keys_again(value: &str) -> String {
    if value.contains(char::is_whitespace) {
        // Not encoded: [`ssh_keys`] refuses it.
        return value.to_owned();
    }
    component(decoded(value).trim())
}

/// A value that is compared, once the mark is known, with the only one that may be.
pub(super) fn compared(_: &BrokerPolicy, value: &str) -> ValueCheck {
    when(value.len() <= MAX_COMPARED, "shorter")
}

fn when(right: bool, wanted: &str) -> ValueCheck {
    if right {
        Ok(())
    } else {
        Err(format!("must be {wanted}"))
    }
}

/// A whole number in plain decimal: no sign, no leading zero, no exponent.
fn decimal(value: &str) -> Option<u64> {
    let plain = value.bytes().all(|byte| byte.is_ascii_digit());
    let canonical = value == "0" || !value.starts_with('0');
    (plain && canonical).then(|| value.parse().ok())?
}

/// A VMID as PVE writes it.
pub(super) fn vmid(value: &str) -> Option<u32> {
    let number = u32::try_from(decimal(value)?).ok();
    number.filter(|number| VMIDS.contains(number))
}

/// A host's name: one DNS label.
pub(super) fn is_host(value: &str) -> bool {
    is_label(value) && value != "localhost"
}

/// A storage's name, as PVE has them (`pve-storage-id`).
pub(super) fn is_storage(value: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (2..=100).contains(&value.len())
        && value.bytes().all(fine)
        && value.starts_with(|first: char| first.is_ascii_alphabetic())
        && value.ends_with(|last: char| last.is_ascii_alphanumeric())
}

fn is_label(value: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=63).contains(&value.len())
        && value.bytes().all(fine)
        && !value.starts_with('-')
        && !value.ends_with('-')
}

/// A task that a listed call starts for a VM, by root. PVE writes nothing after a UPID's last colon, and reads
/// none that has more.
pub(super) fn is_our_task(upid: &Upid) -> bool {
    TASKS.contains(&upid.kind())
        && vmid(upid.id()).is_some()
        && upid.user() == "root@pam"
        && upid.as_str().ends_with(':')
}

pub(super) fn host(_: &BrokerPolicy, value: &str) -> ValueCheck {
    when(is_host(value), "the name of a host")
}

pub(super) fn any_vmid(_: &BrokerPolicy, value: &str) -> ValueCheck {
    when(vmid(value).is_some(), "a VMID")
}

pub(super) fn our_vmid(policy: &BrokerPolicy, value: &str) -> ValueCheck {
    let inside = vmid(value).is_some_and(|vmid| policy.in_range(vmid));
    when(inside, "a VMID in the configured range")
}

pub(super) fn dns_name(_: &BrokerPolicy, value: &str) -> ValueCheck {
    when(is_label(value), "a DNS label")
}

/// What of a storage is listed: disks, or ISOs for cloud-init where there are some.
pub(super) fn images_or_isos(policy: &BrokerPolicy, value: &str) -> ValueCheck {
    let new = !policy.allow.new_vms.is_empty();
    let isos = value == "iso" && (new || !policy.allow.iso_storages.is_empty());
    when(
        value == "images" || isos || (new && value == "import"),
        "images, or iso with [template.NAME.cloud_init], or those and import with [template.NAME.create]",
    )
}

pub(super) fn iso(_: &BrokerPolicy, value: &str) -> ValueCheck {
    when(value == "iso", "iso")
}

/// The name of an ISO for cloud-init of a VM in the range; whose machine's it is, is compared with the VM's mark in `against`.
pub(super) fn our_iso(policy: &BrokerPolicy, value: &str) -> ValueCheck {
    let named = IsoFile::named(value).filter(|file| file.owner.is_some());
    let ours = named.is_some_and(|file| policy.in_range(file.vmid));
    when(ours, "the name of an ISO of a VM in the configured range")
}

/// A file in base64, in its one spelling.
pub(super) fn base64(_: &BrokerPolicy, value: &str) -> ValueCheck {
    let file = STANDARD.decode(value);
    when(file.is_ok_and(|file| !file.is_empty()), "a file in base64")
}

/// A CD drive, empty or with an ISO for cloud-init; whose it is, is compared with the VM's mark in `against`.
pub(super) fn iso_drive(policy: &BrokerPolicy, value: &str) -> ValueCheck {
    let volume = value.strip_suffix(",media=cdrom").unwrap_or_default();
    let named = |storage: &str| policy.allow.iso_storages.iter().any(|one| one == storage);
    let right = volume == "none" || iso_volume(volume).is_some_and(|(storage, _)| named(storage));
    when(
        right,
        "none,media=cdrom or an ISO for cloud-init on a storage that the configuration names",
    )
}

pub(super) fn any_bridge(_: &BrokerPolicy, value: &str) -> ValueCheck {
    when(value == "any_bridge", "any_bridge")
}

pub(super) fn hour(_: &BrokerPolicy, value: &str) -> ValueCheck {
    when(value == "hour", "hour")
}

pub(super) fn average(_: &BrokerPolicy, value: &str) -> ValueCheck {
    when(value == "AVERAGE", "AVERAGE")
}

pub(super) fn active(_: &BrokerPolicy, value: &str) -> ValueCheck {
    when(value == "active", "active")
}

pub(super) fn count(_: &BrokerPolicy, value: &str) -> ValueCheck {
    let small = decimal(value).is_some_and(|number| u32::try_from(number).is_ok());
    when(small, "a whole number")
}

pub(super) fn page(_: &BrokerPolicy, value: &str) -> ValueCheck {
    let fits = decimal(value).is_some_and(|number| (1..=MAX_PAGE).contains(&number));
    when(fits, "1 to 1000")
}

pub(super) fn seconds(_: &BrokerPolicy, value: &str) -> ValueCheck {
    let fits = decimal(value).is_some_and(|number| number <= MAX_SHUTDOWN);
    when(fits, "at most an hour in seconds")
}

pub(super) fn flag(_: &BrokerPolicy, value: &str) -> ValueCheck {
    when(value == "0" || value == "1", "0 or 1")
}

pub(super) fn one(_: &BrokerPolicy, value: &str) -> ValueCheck {
    when(value == "1", "1")
}

pub(super) fn group(_: &BrokerPolicy, value: &str) -> ValueCheck {
    when(value == "group", "group")
}

/// A security group that the file names; that it is one of this machine's card is seen in `against`.
pub(super) fn security_group(policy: &BrokerPolicy, value: &str) -> ValueCheck {
    let mut named = policy.allow.template_groups.values().flatten();
    let right = named.any(|(group, _)| group == value);
    when(right, "a security group that the configuration names")
}

pub(super) fn card(_: &BrokerPolicy, value: &str) -> ValueCheck {
    let number = value.strip_prefix("net").and_then(decimal);
    let right = number.is_some_and(|number| number < 8);
    when(right, "a network card, net0 to net7")
}

/// By it a rule is known for ours.
pub(super) fn our_rule(_: &BrokerPolicy, value: &str) -> ValueCheck {
    when(value == OUR_RULE, OUR_RULE)
}

/// The place of a rule.
pub(super) fn position(value: &str) -> Option<usize> {
    usize::try_from(decimal(value)?).ok()
}

pub(super) fn zero(_: &BrokerPolicy, value: &str) -> ValueCheck {
    when(value == "0", "0")
}

/// A description for a new VM: exactly one intact mark, of a cluster of ours. Name and VMID are
/// compared with the call's in [`mark_of_clone`].
pub(super) fn new_description(policy: &BrokerPolicy, value: &str) -> ValueCheck {
    kept_description(policy, value)
}

/// A description with exactly one intact mark of ours; which one is compared with the VM's in
/// `against`.
pub(super) fn kept_description(policy: &BrokerPolicy, value: &str) -> ValueCheck {
    if value.chars().count() > MAX_DESCRIPTION {
        return Err("must be at most 8 KiB".to_owned());
    }
    match mark::read(value) {
        Ownership::Marked(mark) => our_cluster(policy, &mark.cluster),
        Ownership::Unmarked => Err("must carry a mark in its last line".to_owned()),
        Ownership::UnknownVersion(version) => {
            Err(format!("carries a mark of the unknown version {version}"))
        }
        Ownership::Damaged(why) => Err(why.into()),
    }
}

/// The mark in the description of a clone, which names the VM that is to be.
pub(in crate::broker) fn mark_of_clone(
    description: &str,
    newid: u32,
    name: &str,
) -> Result<Mark, String> {
    let Ownership::Marked(mark) = mark::read(description) else {
        return Err("the description must carry a mark in its last line".to_owned());
    };
    if mark.vmid != newid {
        return Err(format!("the mark names VM {}, not {newid}", mark.vmid));
    }
    if mark.machine != name {
        return Err(format!(
            "the mark names machine {}, not {name}",
            mark.machine
        ));
    }
    Ok((*mark).clone())
}

/// A cluster id of ours: a UID and the configured name.
pub(in crate::broker) fn our_cluster(policy: &BrokerPolicy, cluster: &str) -> ValueCheck {
    let name = policy.allow.cluster_name.as_str();
    let ours = cluster
        .rsplit_once('/')
        .is_some_and(|(uid, of)| of == name && !uid.is_empty() && !uid.contains('/'));
    if ours && !name.is_empty() {
        Ok(())
    } else {
        Err(format!(
            "the mark is of cluster {cluster:?}, not of one named {name:?}"
        ))
    }
}

fn listed(list: &[String], value: &str, what: &str) -> ValueCheck {
    when(
        list.iter().any(|item| item == value),
        &format!("a {what} that the configuration names"),
    )
}

pub(super) fn storage(policy: &BrokerPolicy, value: &str) -> ValueCheck {
    listed(&policy.allow.storages, value, "storage")
}

pub(super) fn resource_pool(policy: &BrokerPolicy, value: &str) -> ValueCheck {
    listed(&policy.allow.resource_pools, value, "resource pool")
}

/// PVE's tag characters, separated by `;`.
pub(super) fn tags(_: &BrokerPolicy, value: &str) -> ValueCheck {
    let fine = |c: char| c.is_ascii_alphanumeric() || "_-+.".contains(c);
    let tag =
        |tag: &str| !tag.is_empty() && tag.chars().all(fine) && !tag.starts_with(['-', '+', '.']);
    let right = value.len() <= MAX_TAGS && value.split(';').all(tag);
    when(right, "tags separated by ;")
}

pub(super) fn cores(policy: &BrokerPolicy, value: &str) -> ValueCheck {
    let most = u64::from(policy.allow.max_cores);
    let fits = decimal(value).is_some_and(|number| (1..=most).contains(&number));
    when(fits, &format!("1 to {most}, the largest instance type's"))
}

pub(super) fn memory(policy: &BrokerPolicy, value: &str) -> ValueCheck {
    let most = u64::try_from(policy.allow.max_memory).unwrap_or(0) >> 20;
    let fits = decimal(value).is_some_and(|number| (1..=most).contains(&number));
    when(
        fits,
        &format!("1 to {most} MiB, the largest instance type's"),
    )
}

fn configured(set: &std::collections::BTreeSet<String>, value: &str) -> ValueCheck {
    let right = set.contains(value);
    when(right, "what a template in the configuration says")
}

pub(super) fn sockets(policy: &BrokerPolicy, value: &str) -> ValueCheck {
    let listed = &policy.guest.sockets;
    let right = listed.iter().any(|sockets| sockets.to_string() == value);
    when(right, "what a template in the configuration says")
}

pub(super) fn numa(policy: &BrokerPolicy, value: &str) -> ValueCheck {
    let listed = &policy.guest.numas;
    let right = listed.iter().any(|on| u8::from(*on).to_string() == value);
    let pinned = value == "1" && pinnings(policy).any(|pinning| pinning != Pinning::default());
    when(
        right || pinned,
        "what a template in the configuration says, or a pool with cpu_pinning or hugepages",
    )
}

/// What pools give their machines for themselves; that it is this machine's pool is seen in `against`.
fn pinnings(policy: &BrokerPolicy) -> impl Iterator<Item = Pinning> + '_ {
    policy.allow.pools.values().map(|pool| pool.pinning)
}

/// CPUs, where some pool gives its machines some of their own; that they are this machine's is seen in `against`.
pub(super) fn affinity(policy: &BrokerPolicy, value: &str) -> ValueCheck {
    let right = CpuSet::read(value).is_some_and(|set| set.affinity() == value);
    let right = right && pinnings(policy).any(|pinning| pinning.cpus);
    when(
        right,
        "CPUs such as 2-5 of a machine whose pool has cpu_pinning",
    )
}

/// A guest's NUMA node whose memory is bound to one of its host's; that it is this machine's is seen in `against`.
pub(super) fn numa_node(policy: &BrokerPolicy, value: &str) -> ValueCheck {
    let keys = ["cpus", "hostnodes", "memory", "policy"];
    let parts = value.split(',').map(|part| part.split_once('='));
    let named = parts.map(|part| part.map(|(key, _)| key));
    let right = named.eq(keys.map(Some)) && pinnings(policy).any(|pinning| pinning.cpus);
    when(right, "a NUMA node of a machine whose pool has cpu_pinning")
}

pub(super) fn hugepages(policy: &BrokerPolicy, value: &str) -> ValueCheck {
    let mut sizes = pinnings(policy).filter_map(|pinning| pinning.hugepages);
    let right = sizes.any(|size| size.value() == value);
    when(right, "what a pool in the configuration says")
}

pub(super) fn startup(policy: &BrokerPolicy, value: &str) -> ValueCheck {
    configured(&policy.guest.startups, value)
}

/// An option of PVE's as some template has it; that it is this one, and the machine's template, is seen in `against`.
pub(super) fn vm_option(policy: &BrokerPolicy, value: &str) -> ValueCheck {
    let mut named = policy.allow.template_options.values().flatten();
    let right = named.any(|(_, own)| own == value);
    when(right, "what a template in the configuration says")
}

/// The firmware's tables, of which a template says a part; the rest is compared with the VM's own in `against`.
pub(super) fn smbios(policy: &BrokerPolicy, value: &str) -> ValueCheck {
    let mut templates = policy.allow.template_options.values();
    let named = templates.any(|options| options.contains_key(SMBIOS));
    when(
        named && value.len() <= MAX_COMPARED,
        "what a template in the configuration says, beside the VM's own UUID",
    )
}

/// A limit that some pool has; that it is the machine's is seen in `against`.
pub(super) fn cpu_limit(policy: &BrokerPolicy, value: &str) -> ValueCheck {
    let mut limits = policy.guest.cpu_limits.values();
    let right = limits.any(|limit| limit == value);
    when(right, "what a pool in the configuration says")
}

/// The disk that a machine boots from, with options that some template has for it; it is compared with the VM's own in `against`.
pub(super) fn boot_disk(policy: &BrokerPolicy, value: &str) -> ValueCheck {
    when(
        !policy.allow.template_boot_disks.is_empty() && value.len() <= MAX_COMPARED,
        "the VM's own disk, with options that a template in the configuration names",
    )
}

/// A disk that machines of some pool get; that it is this machine's, and that it has none there, is seen in `against`. Or that which it boots from.
pub(super) fn further_disk(policy: &BrokerPolicy, value: &str) -> ValueCheck {
    if boot_disk(policy, value).is_ok() {
        return Ok(());
    }
    let pools = policy.allow.pools.values();
    let right = pools
        .flat_map(|pool| pool.disks.values().flatten())
        .any(|disk| disk == value);
    when(
        right,
        "a further disk that a template in the configuration names",
    )
}

pub(super) fn cpu_type(policy: &BrokerPolicy, value: &str) -> ValueCheck {
    configured(&policy.guest.cpu_types, value)
}

pub(super) fn ipconfig(policy: &BrokerPolicy, value: &str) -> ValueCheck {
    let addresses: Vec<IpAddr> = fixed_addresses(value).collect();
    let mut networks = policy.allow.networks.values();
    if networks.any(|network| network.ipconfig(&addresses).is_ok_and(|text| text == value)) {
        return Ok(());
    }
    configured(&policy.guest.ipconfigs, value)
}

pub(super) fn ci_user(policy: &BrokerPolicy, value: &str) -> ValueCheck {
    configured(&policy.guest.users, value)
}

pub(super) fn searchdomain(policy: &BrokerPolicy, value: &str) -> ValueCheck {
    configured(&policy.guest.searchdomains, value)
}

pub(super) fn nameserver(policy: &BrokerPolicy, value: &str) -> ValueCheck {
    configured(&policy.guest.nameservers, value)?;
    let right = value
        .split_whitespace()
        .all(|item| item.parse::<IpAddr>().is_ok());
    when(right, "addresses separated by blanks")
}

/// `sshkeys`, decoded, must be what some template says.
pub(super) fn ssh_keys(policy: &BrokerPolicy, value: &str) -> ValueCheck {
    let right = policy
        .guest
        .ssh_keys
        .iter()
        .any(|keys| component(keys) == value);
    when(
        right,
        "the percent-encoded keys of a template in the configuration",
    )
}

/// The form of a NIC; bridge, VLAN and the rest are compared with the VM's own in `against`.
pub(super) fn net(_: &BrokerPolicy, value: &str) -> ValueCheck {
    let net = Net::read(value);
    let fine = |c: char| c.is_ascii_alphanumeric() || "=,:;-_.".contains(c);
    let right = value.len() <= 256 && value.chars().all(fine) && !net.model.is_empty();
    when(right, "a NIC")
}

pub(super) fn deletable(policy: &BrokerPolicy, value: &str) -> ValueCheck {
    let numbered = |key: &str, stem: &&str| {
        let number = key.strip_prefix(*stem);
        number.is_some_and(|number| decimal(number).is_some_and(|number| number < 16))
    };
    let right = value.split(',').all(|key| {
        let mut stems = DELETABLE_NUMBERED.iter();
        DELETABLE.contains(&key)
            || is_drive(key)
            || stems.any(|stem| numbered(key, stem))
            || (policy.guest.no_ssh_keys && key == "sshkeys")
    });
    when(
        right,
        "balloon, sockets, vcpus, hostpci0 to hostpci15, numa0 to numa7, the drive for cloud-init, or sshkeys where a template has ssh_keys = []",
    )
}

/// Whether a key that may be deleted names a drive.
pub(super) fn is_drive(key: &str) -> bool {
    let mut numbers = DELETABLE_DRIVES
        .iter()
        .filter_map(|bus| key.strip_prefix(bus));
    numbers.any(|number| decimal(number).is_some_and(|number| number <= 30))
}

/// A device that a machine of some instance type gets; that it is this machine's is seen in `against`.
pub(super) fn pci_device(policy: &BrokerPolicy, value: &str) -> ValueCheck {
    let types = policy.allow.types.values();
    let mut devices = types.flat_map(|kind| &kind.pci);
    let right = devices.any(|device| device.value() == value);
    when(
        right,
        "a PCI device that an instance type names, by its mapping",
    )
}

pub(super) fn digest(_: &BrokerPolicy, value: &str) -> ValueCheck {
    let right = (1..=40).contains(&value.len()) && value.bytes().all(|b| b.is_ascii_hexdigit());
    when(right, "a digest in hexadecimal")
}

/// A disk's key; that it is a disk of this VM is seen in `against`.
pub(super) fn disk_key(_: &BrokerPolicy, value: &str) -> ValueCheck {
    let right = ["ide", "sata", "scsi", "virtio"]
        .iter()
        .filter_map(|bus| value.strip_prefix(bus))
        .any(|number| decimal(number).is_some_and(|number| number <= 30));
    when(right, "a disk such as scsi0")
}

/// A size in bytes; in KiB, MiB or GiB with the letter behind it.
pub(in crate::broker) fn disk_bytes(value: &str) -> Option<u64> {
    let (number, shift) = match value.as_bytes().last()? {
        b'K' => (&value[..value.len() - 1], 10),
        b'M' => (&value[..value.len() - 1], 20),
        b'G' => (&value[..value.len() - 1], 30),
        _ => (value, 0),
    };
    decimal(number)?.checked_mul(1 << shift)
}

/// An absolute size up to the largest instance type's; growing by `+` would let repeated calls pass any
/// limit.
pub(super) fn size(policy: &BrokerPolicy, value: &str) -> ValueCheck {
    let most = u64::try_from(policy.allow.max_disk).unwrap_or(0);
    let right = disk_bytes(value).is_some_and(|bytes| bytes > 0 && bytes <= most);
    when(
        right,
        "an absolute size up to the largest instance type's disk",
    )
}

pub(super) fn guest_text(_: &BrokerPolicy, value: &str) -> ValueCheck {
    when(value.len() <= MAX_GUEST_TEXT, "at most 128 KiB")
}

pub(super) fn guest_input(_: &BrokerPolicy, value: &str) -> ValueCheck {
    when(value.len() <= MAX_STDIN, "at most 64 KiB")
}

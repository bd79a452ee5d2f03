//! The options of a VM's configuration: their types, and who may set them.

use super::device_formats::features;
use super::schema::ParamKind::{Boolean, Enum, Format, Integer, Number, Pattern, Properties, Text};
use super::schema::{
    DNS_NAME, ParamSchema, STORAGE, anything, is_disk, many, may, split, tag_list, url_encoded,
};

/// Every option of a VM's configuration (`PUT /nodes/{node}/qemu/{vmid}/config`).
pub(super) const OPTIONS: &[ParamSchema] = &[
    may("acpi", Boolean),
    may("affinity", Format("pve-cpuset", None, anything)),
    may("agent", Properties),
    may("allow-ksm", Boolean),
    may("amd-sev", Format("pve-qemu-sev-fmt", None, anything)),
    may("arch", Enum(&["x86_64", "aarch64"])),
    may("args", Text(None)),
    may("audio0", Properties),
    may("autostart", Boolean),
    may("balloon", Integer(Some(0), None)),
    may("bios", Enum(&["seabios", "ovmf"])),
    may("boot", Format("pve-qm-boot", None, anything)),
    may("bootdisk", Pattern(r"(ide|sata|scsi|virtio)\d+", is_disk)),
    may("cdrom", Format("pve-qm-ide", None, anything)),
    may("cicustom", Format("pve-qm-cicustom", None, anything)),
    may("cipassword", Text(None)),
    may("citype", Enum(&["configdrive2", "nocloud", "opennebula"])),
    may("ciupgrade", Boolean),
    may("ciuser", Text(None)),
    may("cores", Integer(Some(1), None)),
    may("cpu", Format("pve-vm-cpu-conf", None, anything)),
    may("cpulimit", Number(Some(0), Some(128))),
    may("cpuunits", Integer(Some(1), Some(262_144))),
    may("description", Text(Some(8192))),
    may("efidisk0", Properties),
    may("freeze", Boolean),
    may("hookscript", Format("pve-volume-id", None, anything)),
    many("hostpci[n]", Format("pve-qm-hostpci", None, anything), 16),
    may("hotplug", Format("pve-hotplug-features", None, anything)),
    may("hugepages", Enum(&["any", "2", "1024"])),
    many("ide[n]", Properties, 4),
    may("intel-tdx", Format("pve-qemu-tdx-fmt", None, anything)),
    many(
        "ipconfig[n]",
        Format("pve-qm-ipconfig", None, ip_config),
        32,
    ),
    may("ivshmem", Properties),
    may("keephugepages", Boolean),
    may(
        "keyboard",
        Enum(&[
            "de", "de-ch", "da", "en-gb", "en-us", "es", "fi", "fr", "fr-be", "fr-ca", "fr-ch",
            "hu", "is", "it", "ja", "lt", "mk", "nl", "no", "pl", "pt", "pt-br", "sv", "sl", "tr",
        ]),
    ),
    may("kvm", Boolean),
    may("localtime", Boolean),
    may(
        "lock",
        Enum(&[
            "backup",
            "clone",
            "create",
            "migrate",
            "rollback",
            "snapshot",
            "snapshot-delete",
            "suspending",
            "suspended",
        ]),
    ),
    may("machine", Properties),
    may("memory", Properties),
    may("migrate_downtime", Number(Some(0), None)),
    may("migrate_speed", Integer(Some(0), None)),
    may("name", DNS_NAME),
    may("nameserver", Format("address-list", None, anything)),
    many("net[n]", Properties, 32),
    may("numa", Boolean),
    many("numa[n]", Properties, 8),
    may("onboot", Boolean),
    may(
        "ostype",
        Enum(&[
            "other", "wxp", "w2k", "w2k3", "w2k8", "wvista", "win7", "win8", "win10", "win11",
            "l24", "l26", "solaris",
        ]),
    ),
    many(
        "parallel[n]",
        Pattern(r"/dev/parport\d+|/dev/usb/lp\d+", parallel),
        3,
    ),
    may("protection", Boolean),
    may("reboot", Boolean),
    may("rng0", Format("pve-qm-rng", None, anything)),
    many("sata[n]", Properties, 6),
    many("scsi[n]", Properties, 31),
    may(
        "scsihw",
        Enum(&[
            "lsi",
            "lsi53c810",
            "virtio-scsi-pci",
            "virtio-scsi-single",
            "megasas",
            "pvscsi",
        ]),
    ),
    may("searchdomain", Text(None)),
    many("serial[n]", Pattern(r"(/dev/.+|socket)", serial), 4),
    may("shares", Integer(Some(0), Some(50_000))),
    may("smbios1", Format("pve-qm-smbios1", Some(512), anything)),
    may("smp", Integer(Some(1), None)),
    may("sockets", Integer(Some(1), None)),
    may("spice_enhancements", Properties),
    may("sshkeys", Format("urlencoded", None, url_encoded)),
    may(
        "startdate",
        Pattern(
            r"(now|\d{4}-\d{1,2}-\d{1,2}(T\d{1,2}:\d{1,2}:\d{1,2})?)",
            start_date,
        ),
    ),
    may("startup", Format("pve-startup-order", None, startup_order)),
    may("tablet", Boolean),
    may("tags", Format("pve-tag-list", None, tag_list)),
    may("tdf", Boolean),
    may("template", Boolean),
    may("tpmstate0", Properties),
    many("unused[n]", Properties, 256),
    many("usb[n]", Properties, 14),
    may("vcpus", Integer(Some(1), None)),
    may("vga", Properties),
    many("virtio[n]", Properties, 16),
    many("virtiofs[n]", Properties, 10),
    may(
        "vmgenid",
        Pattern(
            r"(?:[a-fA-F0-9]{8}(?:-[a-fA-F0-9]{4}){3}-[a-fA-F0-9]{12}|[01])",
            generation_id,
        ),
    ),
    may("vmstatestorage", STORAGE),
    may("watchdog", Format("pve-qm-watchdog", None, anything)),
];

/// The option that a key names.
pub(super) fn option(key: &str) -> Option<&'static ParamSchema> {
    OPTIONS.iter().find(|option| option.is(key))
}

/// Who may set an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionRight {
    /// Who has one of these privileges on the VM.
    Any(&'static [&'static str]),
    /// root@pam in person.
    Root,
}

/// Who may set the option `key` (Qemu.pm, `check_vm_modify_config_perm`).
pub(super) fn right(key: &str) -> OptionRight {
    let stem = key.trim_end_matches(|c: char| c.is_ascii_digit());
    if is_disk(key) || stem == "unused" {
        return OptionRight::Any(&["VM.Config.Disk"]);
    }
    match key {
        "cores" | "cpu" | "cpulimit" | "cpuunits" | "numa" | "smp" | "sockets" | "vcpus" => {
            OptionRight::Any(&["VM.Config.CPU"])
        }
        "memory" | "balloon" | "shares" | "allow-ksm" => OptionRight::Any(&["VM.Config.Memory"]),
        "acpi" | "hotplug" | "kvm" | "machine" | "scsihw" | "smbios1" | "tablet" | "vga"
        | "watchdog" | "audio0" | "rng0" => OptionRight::Any(&["VM.Config.HWType"]),
        "agent" | "autostart" | "bios" | "description" | "keyboard" | "localtime"
        | "migrate_downtime" | "migrate_speed" | "name" | "onboot" | "ostype" | "protection"
        | "reboot" | "startdate" | "startup" | "tdf" | "template" | "tags" => {
            OptionRight::Any(&["VM.Config.Options"])
        }
        "freeze" => OptionRight::Any(&["VM.PowerMgmt"]),
        "boot" | "bootdisk" | "vmstatestorage" | "cdrom" => OptionRight::Any(&["VM.Config.Disk"]),
        "cicustom" | "cipassword" | "citype" | "ciuser" | "ciupgrade" | "nameserver"
        | "searchdomain" | "sshkeys" => {
            OptionRight::Any(&["VM.Config.Cloudinit", "VM.Config.Network"])
        }
        _ => match stem {
            "ipconfig" => OptionRight::Any(&["VM.Config.Cloudinit", "VM.Config.Network"]),
            "net" => OptionRight::Any(&["VM.Config.Network"]),
            "numa" => OptionRight::Any(&["VM.Config.CPU"]),
            "serial" | "usb" | "hostpci" => OptionRight::Any(&["VM.Config.HWType"]),
            "virtiofs" => OptionRight::Any(&["VM.Config.Disk"]),
            _ => OptionRight::Root,
        },
    }
}

/// Options that a running VM takes at once; all others wait for the next start.
pub(super) fn applies_running(key: &str) -> bool {
    const AT_ONCE: &[&str] = &[
        "lock",
        "migrate_downtime",
        "migrate_speed",
        "name",
        "onboot",
        "shares",
        "startup",
        "description",
        "protection",
        "vmstatestorage",
        "hookscript",
        "tags",
        // Of the VM's cgroup: `vmconfig_hotplug_pending` writes them there, whatever `hotplug` says.
        "cpulimit",
        "cpuunits",
        // Of cloud-init: the drive is not made anew for them, though.
        "cicustom",
        "cipassword",
        "citype",
        "ciupgrade",
        "ciuser",
        "nameserver",
        "searchdomain",
        "sshkeys",
    ];
    let stem = key.trim_end_matches(|c: char| c.is_ascii_digit());
    AT_ONCE.contains(&key) || ["unused", "ipconfig"].contains(&stem)
}

/// Options that the default `hotplug` (network, disk, usb) gives to a running VM at once; and another CD in a drive. `now` is the VM's own
/// `hotplug`: whether it has a tablet goes by that, and it may change as long as neither CPUs nor memory are in it.
pub(super) fn hotplugged(key: &str, value: &str, now: &str) -> bool {
    let gives = |text: &str, wanted: &[&str]| {
        let mut features = features(text).into_iter();
        features.any(|feature| wanted.contains(&feature))
    };
    match key {
        "tablet" => return gives(now, &["usb"]),
        "hotplug" => {
            return ![value, now]
                .iter()
                .any(|text| gives(text, &["cpu", "memory"]));
        }
        _ => {}
    }
    let stem = key.trim_end_matches(|c: char| c.is_ascii_digit());
    let cd = is_disk(key) && value.split(',').any(|part| part == "media=cdrom");
    cd || matches!(stem, "net" | "scsi" | "virtio" | "usb")
}

/// Options that PVE answers as numbers: integers and booleans of the schema.
pub(super) fn is_numeric(key: &str) -> bool {
    option(key).is_some_and(|option| matches!(option.kind, Integer(..) | Boolean | Number(..)))
}

/// `order=1,up=30,down=60`, or the bare order (PVE::JSONSchema, `pve_parse_startup_order`).
fn startup_order(text: &str) -> Result<(), String> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let right = split(text).all(|part| {
        let (key, number) = part.split_once('=').unwrap_or(("order", part));
        ["order", "up", "down"].contains(&key) && digits(number)
    });
    if right {
        Ok(())
    } else {
        Err("unable to parse startup options".to_owned())
    }
}

fn ip_config(text: &str) -> Result<(), String> {
    for part in text.split(',') {
        let Some((key, value)) = part.split_once('=') else {
            return Err("unable to parse ipconfig".to_owned());
        };
        let address = value.split('/').next().unwrap_or_default();
        let fine = match key {
            "ip" => {
                value == "dhcp"
                    || (value.contains('/') && address.parse::<std::net::Ipv4Addr>().is_ok())
            }
            "gw" => value.parse::<std::net::Ipv4Addr>().is_ok(),
            "ip6" => {
                matches!(value, "dhcp" | "auto")
                    || (value.contains('/') && address.parse::<std::net::Ipv6Addr>().is_ok())
            }
            "gw6" => value.parse::<std::net::Ipv6Addr>().is_ok(),
            _ => false,
        };
        if !fine {
            let family = if key.ends_with('6') { "ipv6" } else { "ipv4" };
            let kind = match key {
                "gw" | "gw6" => "address",
                _ => "network configuration",
            };
            return Err(format!(
                "format error\n{key}: invalid format - value does not look like a valid {family} {kind}\n"
            ));
        }
    }
    Ok(())
}

fn parallel(text: &str) -> bool {
    let digits = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    text.strip_prefix("/dev/parport").is_some_and(digits)
        || text.strip_prefix("/dev/usb/lp").is_some_and(digits)
}

fn serial(text: &str) -> bool {
    text == "socket" || text.len() > "/dev/".len() && text.starts_with("/dev/")
}

fn start_date(text: &str) -> bool {
    text == "now"
        || text.starts_with(|first: char| first.is_ascii_digit())
            && text
                .bytes()
                .all(|byte| byte.is_ascii_digit() || b"-T:".contains(&byte))
}

fn generation_id(text: &str) -> bool {
    matches!(text, "0" | "1") || is_uuid(text)
}

/// Whether a text is a UUID in its usual form.
pub(super) fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

//! A VM's configuration, read leniently.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::Value;

use super::perl::{self, Fields};
use super::resources::{GuestPromise, addresses};
use crate::model::mark::{self, Ownership};
use crate::model::pci::PciUse;
use crate::model::topology::Pins;

/// What `GET …/config` gives: everything as text, and what the program needs of it parsed. Parsing
/// is total: what PVE would not write is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VmConfig {
    /// Every scalar key as text.
    pub raw: BTreeMap<String, String>,
    /// The description; empty when there is none.
    pub description: String,
    /// SHA-1 of the configuration, to be given back with a change.
    pub digest: Option<Arc<str>>,
    /// SMBIOS UUID, lower case.
    pub uuid: Option<Arc<str>>,
    /// VM name.
    pub name: Arc<str>,
    /// The configuration's lock, such as `clone`.
    pub lock: Option<Arc<str>>,
    /// A template.
    pub template: bool,
    /// Disks and CD drives by key (`scsi0`, `ide2`, `efidisk0` …).
    pub disks: BTreeMap<Arc<str>, Disk>,
    /// The first NIC.
    pub net0: Option<Net>,
    /// Devices in boot order; empty when the configuration does not say.
    pub boot_order: Vec<Arc<str>>,
    /// Logical CPUs: cores × sockets.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mib: i64,
    /// The guest agent is configured and enabled.
    pub agent: bool,
}

/// A disk, or what stands in a disk's place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// The volume behind it, `storage:volume`, or `none`.
    pub volume: String,
    /// The storage of that volume; empty for `none` and for host paths.
    pub storage: Arc<str>,
    /// Size in bytes, when the configuration says it.
    pub size: Option<i64>,
    /// It is the cloud-init drive.
    pub cloud_init: bool,
    /// It is a CD drive (the cloud-init drive is one).
    pub cdrom: bool,
}

/// Queues of a network card at most (qemu-server, `queues`).
pub const MAX_QUEUES: u32 = 64;

/// A NIC.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Net {
    /// `virtio`, `e1000` …
    pub model: String,
    /// MAC address.
    pub mac: Option<String>,
    /// Bridge or VNet.
    pub bridge: Option<String>,
    /// VLAN.
    pub tag: Option<u16>,
    /// Everything else, in order (`firewall=1`, `mtu=1`).
    pub rest: Vec<(String, String)>,
}

impl VmConfig {
    /// The network cards by their numbers, 0 for `net0`.
    pub fn cards(&self) -> BTreeMap<u8, Net> {
        let cards = self.raw.iter().filter_map(|(key, value)| {
            let number = key.strip_prefix("net")?.parse().ok()?;
            Some((number, Net::read(value)))
        });
        cards.collect()
    }

    /// What the VM is promised of its host.
    pub fn promise(&self) -> GuestPromise {
        let number = |key: &str| self.raw.get(key).and_then(|text| text.parse::<i64>().ok());
        let least = number("balloon").filter(|mib| *mib > 0);
        GuestPromise {
            onboot: number("onboot") == Some(1),
            memory_min: least.map(|mib| mib.saturating_mul(1 << 20)),
            addresses: self.addresses(),
            devices: PciUse::all(self.raw.iter().map(|(key, value)| (&**key, &**value))),
            pins: Pins::of(self.raw.iter().map(|(key, value)| (&**key, &**value))),
        }
    }

    /// The fixed addresses that it gives the VM.
    pub fn addresses(&self) -> Vec<IpAddr> {
        addresses(self.raw.iter().map(|(key, value)| (&**key, &**value)))
    }

    /// Reads the data of `GET /nodes/{node}/qemu/{vmid}/config`.
    pub fn read(data: &Value) -> VmConfig {
        let raw: BTreeMap<String, String> = data
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.clone(), perl::text(value)?)))
            .collect();
        let fields = Fields::of(data);
        let text = |key: &str| raw.get(key).map(String::as_str);
        let sockets = fields.count("sockets").max(1);
        VmConfig {
            description: text("description").unwrap_or_default().to_owned(),
            digest: text("digest").map(Arc::from),
            uuid: text("smbios1")
                .and_then(|text| option(text, "uuid"))
                .map(|uuid| Arc::from(uuid.to_ascii_lowercase())),
            name: text("name").unwrap_or_default().into(),
            lock: text("lock").filter(|lock| !lock.is_empty()).map(Arc::from),
            template: fields.flag("template"),
            disks: raw
                .iter()
                .filter(|(key, _)| is_disk(key))
                .map(|(key, value)| (Arc::from(key.as_str()), Disk::read(value)))
                .collect(),
            net0: text("net0").map(Net::read),
            boot_order: text("boot").map(boot_order).unwrap_or_default(),
            cpus: fields.count("cores").max(1).saturating_mul(sockets),
            memory_mib: memory(text("memory").unwrap_or("512")),
            agent: text("agent").is_some_and(agent_enabled),
            raw,
        }
    }

    /// The VM's tags, which PVE separates by semicolons, commas or blanks.
    pub fn tags(&self) -> Vec<String> {
        let text = self.raw.get("tags").map_or("", String::as_str);
        let tags = text.split([';', ',', ' ']).filter(|tag| !tag.is_empty());
        tags.map(str::to_owned).collect()
    }

    /// What the description says about whose VM it is.
    pub fn ownership(&self) -> Ownership {
        mark::read(&self.description)
    }

    /// The disk it boots from: the first hard disk in the boot order, else `bootdisk`, else the
    /// first disk of the usual buses.
    pub fn boot_disk(&self) -> Option<(&Arc<str>, &Disk)> {
        let hard = |key: &str| {
            self.disks
                .get_key_value(key)
                .filter(|(key, disk)| !disk.cdrom && bootable(key))
        };
        let ordered = self.boot_order.iter().find_map(|key| hard(key));
        let named = || self.raw.get("bootdisk").and_then(|key| hard(key));
        let usual = || {
            ["scsi0", "virtio0", "sata0", "ide0"]
                .iter()
                .find_map(|key| hard(key))
        };
        ordered.or_else(named).or_else(usual)
    }
}

impl Disk {
    fn read(value: &str) -> Disk {
        let mut disk = Disk::default();
        for (index, part) in value.split(',').enumerate() {
            match part.split_once('=') {
                Some(("file" | "volume", volume)) => volume.clone_into(&mut disk.volume),
                Some(("size", size)) => disk.size = bytes(size),
                Some(("media", "cdrom")) => disk.cdrom = true,
                None if index == 0 => part.clone_into(&mut disk.volume),
                Some(_) | None => {}
            }
        }
        if let Some((storage, volume)) = disk.volume.split_once(':')
            && !disk.volume.starts_with('/')
        {
            disk.storage = storage.into();
            let name = volume.rsplit('/').next().unwrap_or(volume);
            disk.cloud_init =
                volume == "cloudinit" || (name.starts_with("vm-") && name.contains("-cloudinit"));
        }
        disk
    }
}

impl Net {
    /// Reads a `netN` value.
    pub fn read(value: &str) -> Net {
        let mut net = Net::default();
        for (index, part) in value.split(',').enumerate() {
            let (key, text) = part.split_once('=').unwrap_or((part, ""));
            match key {
                "model" => text.clone_into(&mut net.model),
                "macaddr" => net.mac = Some(text.to_owned()),
                "bridge" => net.bridge = Some(text.to_owned()),
                "tag" => net.tag = text.parse().ok(),
                _ if index == 0 => {
                    key.clone_into(&mut net.model);
                    net.mac = (!text.is_empty()).then(|| text.to_owned());
                }
                _ => net.rest.push((key.to_owned(), text.to_owned())),
            }
        }
        net
    }

    /// The value for `netN` that keeps everything of this NIC but its bridge and VLAN.
    pub fn write(&self) -> String {
        let mut text = match &self.mac {
            Some(mac) => format!("{}={mac}", self.model),
            None => self.model.clone(),
        };
        if let Some(bridge) = &self.bridge {
            text.push_str(",bridge=");
            text.push_str(bridge);
        }
        if let Some(tag) = self.tag {
            text.push_str(",tag=");
            text.push_str(&tag.to_string());
        }
        for (key, value) in &self.rest {
            text.push(',');
            text.push_str(key);
            text.push('=');
            text.push_str(value);
        }
        text
    }
}

/// The value of `key` in a property string `a=1,b=2`.
pub(super) fn option<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.split(',')
        .filter_map(|part| part.split_once('='))
        .find(|(name, _)| *name == key)
        .map(|(_, value)| value)
}

/// `ide0`, `sata1`, `scsi30`, `virtio5`, `efidisk0`, `tpmstate0`; not `scsihw`, not `unused0`.
fn is_disk(key: &str) -> bool {
    ["ide", "sata", "scsi", "virtio", "efidisk", "tpmstate"]
        .iter()
        .filter_map(|bus| key.strip_prefix(bus))
        .any(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn bootable(key: &str) -> bool {
    !key.starts_with("efidisk") && !key.starts_with("tpmstate")
}

/// `order=scsi0;net0`, or the old `cdn` letters, which name no device.
fn boot_order(text: &str) -> Vec<Arc<str>> {
    option(text, "order")
        .unwrap_or_default()
        .split(';')
        .filter(|device| !device.is_empty())
        .map(Arc::from)
        .collect()
}

/// `1`, `enabled=1,fstrim_cloned_disks=1`.
fn agent_enabled(text: &str) -> bool {
    let enabled = option(text, "enabled").or_else(|| text.split(',').next());
    enabled.is_some_and(|value| value == "1")
}

/// `2048`, `current=2048`.
fn memory(text: &str) -> i64 {
    let text = option(text, "current").unwrap_or(text);
    text.parse().unwrap_or(0)
}

/// `32G`, `528K`, `1.5T`, `4194304`: a disk size of PVE in bytes (units of 1024).
fn bytes(text: &str) -> Option<i64> {
    let (digits, unit) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1i64 << 10),
        b'M' => (&text[..text.len() - 1], 1 << 20),
        b'G' => (&text[..text.len() - 1], 1 << 30),
        b'T' => (&text[..text.len() - 1], 1 << 40),
        _ => (text, 1),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let whole: i64 = whole.parse().ok().filter(|whole| *whole >= 0)?;
    let mut total = whole.checked_mul(unit)?;
    let mut part = unit;
    for digit in fraction.bytes() {
        if !digit.is_ascii_digit() {
            return None;
        }
        part /= 10;
        total = total.checked_add(part.checked_mul(i64::from(digit - b'0'))?)?;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_clone_reads_as_pve_shows_it() {
        let config = VmConfig::read(&json!({
            "name": "small-k3x9p", "cores": "2", "sockets": 1, "memory": "2048",
            "agent": "enabled=1,fstrim_cloned_disks=1", "digest": "abc",
            "smbios1": "uuid=0B5F3A6E-0000-4000-8000-0123456789AB,base64=1",
            "boot": "order=ide2;scsi0;net0", "scsihw": "virtio-scsi-single",
            "scsi0": "local-lvm:vm-9001-disk-0,discard=on,size=32G",
            "scsi1": "/dev/disk/by-id/x,size=1T",
            "ide2": "local-lvm:vm-9001-cloudinit,media=cdrom,size=4M",
            "efidisk0": "local-lvm:vm-9001-disk-1,size=528K",
            "net0": "virtio=BC:24:11:00:11:22,bridge=vmbr0,firewall=1,tag=20",
            "lock": "backup", "template": 0, "description": "hello\n", "onboot": null,
        }));
        assert_eq!(
            config.uuid.as_deref(),
            Some("0b5f3a6e-0000-4000-8000-0123456789ab")
        );
        assert_eq!(
            (config.cpus, config.memory_mib, config.agent),
            (2, 2048, true)
        );
        assert_eq!(config.lock.as_deref(), Some("backup"));
        assert_eq!(config.disks.len(), 4);
        let (key, disk) = config.boot_disk().expect("a boot disk");
        assert_eq!(
            (&**key, &*disk.storage, disk.size),
            ("scsi0", "local-lvm", Some(32 << 30))
        );
        assert!(config.disks["ide2"].cloud_init && config.disks["ide2"].cdrom);
        assert_eq!(&*config.disks["scsi1"].storage, "");
        let net = config.net0.clone().expect("a NIC");
        assert_eq!((net.bridge.as_deref(), net.tag), (Some("vmbr0"), Some(20)));
        assert_eq!(Net::read(&net.write()), net);
        assert_eq!(config.ownership(), Ownership::Unmarked);
    }

    #[test]
    fn cloud_init_on_file_storage_is_known() {
        let disk = Disk::read("local:9001/vm-9001-cloudinit.qcow2,media=cdrom");
        assert!(disk.cloud_init);
        assert_eq!(&*disk.storage, "local");
        assert!(!Disk::read("none,media=cdrom").cloud_init);
    }

    #[test]
    fn sizes_read_as_pve_writes_them() {
        for (text, size) in [
            ("32G", Some(32i64 << 30)),
            ("528K", Some(528 << 10)),
            ("2252M", Some(2252 << 20)),
            ("1.5T", Some((1 << 40) + 5 * ((1i64 << 40) / 10))),
            ("4194304", Some(4_194_304)),
            ("-1G", None),
            ("G", None),
            ("99999999999T", None),
        ] {
            assert_eq!(bytes(text), size, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_configuration_panics(
            keys in prop::collection::btree_map(
                "(scsi0|ide2|boot|net0|smbios1|agent|memory|cores|description|[a-z0-9]{1,9})",
                "(\\PC{0,30}|[a-z0-9:=,./;-]{0,60})",
                0..12,
            ),
        ) {
            let config = VmConfig::read(&json!(keys));
            let _ = (config.boot_disk(), config.ownership());
            prop_assert_eq!(config.raw, keys);
        }

        #[test]
        fn any_size_is_read_without_panic(text in "[0-9.]{0,25}[KMGT]?") {
            let _ = bytes(&text);
        }
    }
}

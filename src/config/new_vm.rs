//! VMs that PVE makes of settings, without a template. Daemon and broker make the parameters of that call by the same function:
//! the broker passes what it would have sent itself, and nothing else.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::file::{BootDevice, Chipset, Create, Firmware, ScsiController};
use super::hardware::with_options;
use crate::model::mark::Mark;

/// The disk that such a machine boots from.
pub const DISK: &str = "scsi0";
/// Where an ISO lies.
const CD: &str = "ide2";
/// Where PVE's cloud-init drive is.
const CLOUD_INIT: &str = "ide0";

/// What a machine's VM is made of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NewVm {
    /// `[template.NAME.create]`, its boot order complete.
    pub create: Create,
    /// `net0`, as far as the call says it: model and bridge. The rest is written before the first start.
    pub net: String,
    /// Options and limits of the disk, by PVE's names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub disk: BTreeMap<String, String>,
    /// The PVE resource pool that it is made in.
    pub pool: Option<String>,
}

impl NewVm {
    /// The parameters of PVE's call that makes the VM with this mark, notes, and a disk of so many bytes on a storage; its `vmid` is among
    /// them.
    pub fn params(
        &self,
        mark: &Mark,
        notes: &str,
        (storage, disk): (&str, i64),
    ) -> Vec<(String, String)> {
        let create = &self.create;
        let mut all: Vec<(&str, String)> = vec![
            ("vmid", mark.vmid.to_string()),
            ("name", mark.machine.clone()),
            ("description", notes.to_owned()),
            ("ostype", "l26".to_owned()),
            ("agent", u8::from(create.agent).to_string()),
            ("machine", chipset(create.machine).to_owned()),
            ("scsihw", controller(create.scsi_controller).to_owned()),
            (DISK, self.disk(storage, disk)),
            ("net0", self.net.clone()),
            ("boot", format!("order={}", self.order())),
            ("serial0", "socket".to_owned()),
            ("smbios1", smbios(mark)),
        ];
        if create.bios == Firmware::Ovmf {
            let keys = u8::from(create.secure_boot);
            all.push(("bios", "ovmf".to_owned()));
            all.push((
                "efidisk0",
                format!("{storage}:1,efitype=4m,pre-enrolled-keys={keys}"),
            ));
        }
        if create.tpm {
            all.push(("tpmstate0", format!("{storage}:1,version=v2.0")));
        }
        if let Some(iso) = &create.iso {
            all.push((CD, format!("{iso},media=cdrom")));
        }
        if create.cloud_init_drive {
            all.push((CLOUD_INIT, format!("{storage}:cloudinit")));
        }
        all.extend(self.pool.clone().map(|pool| ("pool", pool)));
        let all = all.into_iter();
        all.map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// The disk: imported, and grown later, or empty and as large as it shall be, in whole GiB.
    fn disk(&self, storage: &str, bytes: i64) -> String {
        const GIB: i64 = 1 << 30;
        let (size, from) = match &self.create.image {
            Some(image) => (0, format!(",import-from={image}")),
            None => (
                bytes.max(0).saturating_add(GIB - 1).div_euclid(GIB),
                String::new(),
            ),
        };
        let thread = match self.create.scsi_controller {
            ScsiController::VirtioScsiSingle => ",iothread=1",
            ScsiController::VirtioScsiPci => "",
        };
        let usual = format!("{storage}:{size},discard=on{thread}");
        format!("{}{from}", with_options(&usual, &self.disk))
    }

    /// The storage on which parameters of that call make the VM's disk: one of those that the file names, or the first of them.
    pub fn storage_of<'s>(&'s self, disk: Option<&'s str>) -> &'s str {
        let named = disk.and_then(|disk| disk.split(':').next());
        let known = named.filter(|name| self.create.storage.contains(name));
        known.unwrap_or_else(|| self.create.storage.first())
    }

    fn order(&self) -> String {
        let keys = self.create.boot.iter().map(|device| match device {
            BootDevice::Disk => DISK,
            BootDevice::Cdrom => CD,
            BootDevice::Network => "net0",
        });
        keys.collect::<Vec<&str>>().join(";")
    }
}

/// What machines boot from whose file does not say it.
pub fn usual_order(create: &Create) -> Vec<BootDevice> {
    let mut order = vec![BootDevice::Disk];
    if create.iso.is_some() {
        order.push(BootDevice::Cdrom);
    } else if create.image.is_none() {
        order.push(BootDevice::Network);
    }
    order
}

fn chipset(chipset: Chipset) -> &'static str {
    match chipset {
        Chipset::Q35 => "q35",
        Chipset::Pc => "pc",
    }
}

fn controller(controller: ScsiController) -> &'static str {
    match controller {
        ScsiController::VirtioScsiSingle => "virtio-scsi-single",
        ScsiController::VirtioScsiPci => "virtio-scsi-pci",
    }
}

/// What the guest, its firmware and a boot server can read of the machine before there is any drive: its UUID, and its name in
/// the words that cloud-init's NoCloud and Talos look for.
fn smbios(mark: &Mark) -> String {
    let serial = STANDARD.encode(format!("ds=nocloud;h={}", mark.machine));
    format!("base64=1,serial={serial},uuid={}", uuid(mark))
}

/// The SMBIOS UUID of the machine: of its mark, so that nobody has to believe another one. It is known to whoever knows the mark,
/// as every UUID is known to whoever may read a VM's configuration.
pub fn uuid(mark: &Mark) -> String {
    let mut hash = Sha256::digest(mark.line());
    // Version 8 of RFC 9562: whatever its maker wants.
    hash[6] = (hash[6] & 0x0f) | 0x80;
    hash[8] = (hash[8] & 0x3f) | 0x80;
    let mut text = String::new();
    for (place, byte) in hash.iter().take(16).enumerate() {
        if matches!(place, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::time::Time;

    fn mark() -> Mark {
        Mark {
            cluster: "0b5f/home".into(),
            machine: "edge-k3x9p".into(),
            vmid: 9001,
            pool: "edge".into(),
            instance_type: "s2".into(),
            template: "talos".into(),
            token: String::new(),
            created: Time(1_795_000_000_000),
            addresses: BTreeMap::new(),
            cpus: crate::model::cpus::CpuSet::new(),
            unknown: [].into(),
        }
    }

    fn of(change: impl FnOnce(&mut Create)) -> BTreeMap<String, String> {
        with_disk(BTreeMap::new(), change)
    }

    fn with_disk(
        disk: BTreeMap<String, String>,
        change: impl FnOnce(&mut Create),
    ) -> BTreeMap<String, String> {
        let mut create = Create {
            storage: "ceph".into(),
            ..Create::default()
        };
        change(&mut create);
        if create.boot.is_empty() {
            create.boot = usual_order(&create);
        }
        let new = NewVm {
            create,
            net: "virtio,bridge=vmbr0".into(),
            disk,
            pool: None,
        };
        let params = new.params(&mark(), "notes", ("ceph", (20 << 30) - 1));
        params.into_iter().collect()
    }

    #[test]
    fn a_vm_boots_from_what_there_is() {
        let empty = of(|_| {});
        assert_eq!(empty["scsi0"], "ceph:20,discard=on,iothread=1");
        assert_eq!(empty["boot"], "order=scsi0;net0");
        for key in ["efidisk0", "tpmstate0", "ide2"] {
            assert!(!empty.contains_key(key), "{key}");
        }
        let image = of(|create| create.image = Some("local:import/a.qcow2".into()));
        assert_eq!(
            image["scsi0"],
            "ceph:0,discard=on,iothread=1,import-from=local:import/a.qcow2"
        );
        assert_eq!(image["boot"], "order=scsi0");
        let iso = of(|create| {
            create.iso = Some("local:iso/a.iso".into());
            create.bios = Firmware::Ovmf;
            create.tpm = true;
            create.cloud_init_drive = false;
        });
        assert_eq!(iso["ide2"], "local:iso/a.iso,media=cdrom");
        assert_eq!(iso["boot"], "order=scsi0;ide2");
        assert_eq!(iso["efidisk0"], "ceph:1,efitype=4m,pre-enrolled-keys=0");
        assert_eq!(iso["tpmstate0"], "ceph:1,version=v2.0");
        assert!(!iso.contains_key("ide0"));
    }

    /// What the file says of the disk comes in the place of what is usual, and beside it.
    #[test]
    fn a_disk_has_the_options_and_limits_of_the_file() {
        let pairs = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter();
            pairs
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect::<BTreeMap<String, String>>()
        };
        let limits = pairs(&[("mbps_wr", "50"), ("cache", "writeback")]);
        assert_eq!(
            with_disk(limits.clone(), |_| {})["scsi0"],
            "ceph:20,cache=writeback,discard=on,iothread=1,mbps_wr=50"
        );
        assert_eq!(
            with_disk(limits, |create| create.image =
                Some("local:import/a.qcow2".into()))["scsi0"],
            "ceph:0,cache=writeback,discard=on,iothread=1,mbps_wr=50,import-from=local:import/a.qcow2"
        );
        let off = pairs(&[("discard", "ignore"), ("iothread", "0")]);
        assert_eq!(
            with_disk(off, |_| {})["scsi0"],
            "ceph:20,discard=ignore,iothread=0"
        );
    }

    #[test]
    fn each_mark_has_a_uuid_of_its_own() {
        let other = Mark {
            created: Time(1_795_000_000_001),
            ..mark()
        };
        assert_ne!(uuid(&mark()), uuid(&other));
        let text = uuid(&mark());
        let parts: Vec<usize> = text.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12]);
        let smbios = &of(|_| {})["smbios1"];
        let name = "ZHM9bm9jbG91ZDtoPWVkZ2UtazN4OXA=";
        assert_eq!(*smbios, format!("base64=1,serial={name},uuid={text}"));
    }
}

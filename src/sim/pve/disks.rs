//! Disks of VMs and the volumes behind them.

use super::kinds::StorageKind;
use super::schema::{is_disk, split};
use super::spec::GIB;
use super::world::{PveWorld, SimVm};

/// The machine that has the pools of ZFS over iSCSI.
pub(super) const ISCSI_PORTAL: &str = "192.0.2.9";
/// Size of a cloud-init drive in bytes.
pub(super) const CLOUDINIT_SIZE: u64 = 4 << 20;

/// A volume on a storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DiskVolume {
    /// `STORAGE:NAME`.
    pub(super) id: String,
    /// Storage.
    pub(super) storage: String,
    /// The host that has it; empty on shared storage.
    pub(super) host: String,
    /// Owner.
    pub(super) vmid: u32,
    /// Virtual size in bytes.
    pub(super) size: u64,
    /// Bytes that are written.
    pub(super) used: u64,
    /// Bytes that ZFS keeps for it without `sparse`, written or not (`refreservation`).
    pub(super) reserved: u64,
    /// `qcow2` or `raw`.
    pub(super) format: &'static str,
    /// The base image of a linked clone, where the storage shows it.
    pub(super) parent: Option<String>,
    /// When it was made, seconds since the epoch.
    pub(super) ctime: i64,
}

impl DiskVolume {
    /// Bytes that it takes. Beside a snapshot, as a base image has one, what is kept for a volume is kept once more.
    pub(super) fn taken(&self) -> u64 {
        let base = self.id.rsplit([':', '/']).next();
        match base.is_some_and(|name| name.starts_with("base-")) {
            _ if self.reserved == 0 => self.used,
            true => self.reserved + self.used,
            false => self.reserved.max(self.used),
        }
    }
}

/// What ZFS keeps for a volume of so many bytes: itself, and its metadata at the most (`volsize_to_reservation`, as seen
/// with ZFS 2.3 and blocks of 16 KiB).
pub(super) fn zfs_reservation(size: u64) -> u64 {
    size + size / 64 + (2 << 20)
}

/// A drive as a VM's configuration writes it: a volume and options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Drive {
    /// Volume, `none`, `STORAGE:SIZE` or `STORAGE:cloudinit`.
    pub(super) file: String,
    /// Options in order.
    pub(super) options: Vec<(String, String)>,
}

impl Drive {
    /// Reads `FILE[,KEY=VALUE…]` or `file=FILE,…`.
    pub(super) fn parse(text: &str) -> Drive {
        let mut drive = Drive {
            file: String::new(),
            options: Vec::new(),
        };
        for part in text.split(',').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some(("file" | "volume", value)) => value.clone_into(&mut drive.file),
                Some((key, value)) => drive.options.push((key.to_owned(), value.to_owned())),
                None => part.clone_into(&mut drive.file),
            }
        }
        drive
    }

    /// An option's value.
    pub(super) fn option(&self, key: &str) -> Option<&str> {
        self.options
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value.as_str())
    }

    /// Sets an option.
    pub(super) fn set(&mut self, key: &str, value: &str) {
        match self.options.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => value.clone_into(old),
            None => self.options.push((key.to_owned(), value.to_owned())),
        }
    }

    /// A CD drive without a volume of its own (cloud-init drives have one).
    pub(super) fn is_empty_cdrom(&self) -> bool {
        self.file == "none" || self.file == "cdrom"
    }

    /// A cloud-init drive.
    pub(super) fn is_cloudinit(&self) -> bool {
        let name = self.file.rsplit(['/', ':']).next().unwrap_or_default();
        self.file.ends_with(":cloudinit")
            || name.ends_with("-cloudinit")
            || name.contains("-cloudinit.")
    }

    /// A CD drive with an ISO in it, which belongs to no VM.
    pub(super) fn is_iso(&self) -> bool {
        self.file.contains(":iso/")
    }

    /// The storage of the drive's volume; empty where it has none.
    pub(super) fn storage(&self) -> &str {
        self.file.split_once(':').map_or("", |(storage, _)| storage)
    }
}

impl std::fmt::Display for Drive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.file)?;
        self.options
            .iter()
            .try_for_each(|(key, value)| write!(f, ",{key}={value}"))
    }
}

/// Whether a text is a size as `resize` takes it.
pub(super) fn is_size(text: &str) -> bool {
    let text = text.strip_prefix('+').unwrap_or(text);
    let number = text.strip_suffix(['K', 'M', 'G', 'T']).unwrap_or(text);
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    match number.split_once('.') {
        Some((whole, part)) => digits(whole) && digits(part),
        None => digits(number),
    }
}

/// A size in bytes, from `8G`, `512M` or plain bytes.
pub(super) fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = match text.chars().last()? {
        'K' => (&text[..text.len() - 1], 1 << 10),
        'M' => (&text[..text.len() - 1], 1 << 20),
        'G' => (&text[..text.len() - 1], GIB),
        'T' => (&text[..text.len() - 1], GIB << 10),
        _ => (text, 1),
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let whole: u64 = whole.parse().ok()?;
    let mut bytes = whole.checked_mul(unit)?;
    let mut weight = unit;
    for digit in part.chars() {
        weight /= 10;
        bytes = bytes.checked_add(weight * u64::from(digit.to_digit(10)?))?;
    }
    Some(bytes)
}

/// A size as configurations write it.
pub(super) fn format_size(bytes: u64) -> String {
    match bytes {
        bytes if bytes.is_multiple_of(GIB) => format!("{}G", bytes / GIB),
        bytes if bytes.is_multiple_of(1 << 20) => format!("{}M", bytes >> 20),
        bytes => format!("{}K", bytes >> 10),
    }
}

/// The size of a volume for firmware, which PVE chooses whatever is asked for: of an EFI disk that of the variables it is filled with
/// (`OVMF.pm`, `create_efidisk`; the files of pve-edk2-firmware), as large as the storage makes one of so few bytes; of a TPM's state 4 MiB
/// (`Drive.pm`, `TPMSTATE_DISK_SIZE`). `None` for all other drives.
pub(super) fn firmware_size(key: &str, drive: &Drive, kind: StorageKind) -> Option<u64> {
    const MIB: u64 = 1 << 20;
    let bytes = match key {
        "tpmstate0" => return Some(4 * MIB),
        "efidisk0" if drive.option("efitype") == Some("4m") => 528 << 10,
        "efidisk0" => 128 << 10,
        _ => return None,
    };
    let step = match kind {
        // An extent.
        StorageKind::Lvm | StorageKind::LvmThin => 4 * MIB,
        StorageKind::ZfsPool | StorageKind::Zfs | StorageKind::Rbd => MIB,
        _ => 1,
    };
    Some(u64::next_multiple_of(bytes, step))
}

impl SimVm {
    /// The VM's drives with a volume, by key in PVE's order.
    pub(super) fn drives(&self) -> Vec<(String, Drive)> {
        self.config
            .iter()
            .filter(|(key, _)| is_disk(key))
            .map(|(key, text)| (key.clone(), Drive::parse(text)))
            .filter(|(_, drive)| !drive.is_empty_cdrom() && !drive.is_iso())
            .collect()
    }

    /// The ISOs in its CD drives.
    pub(super) fn isos(&self) -> impl Iterator<Item = Drive> + '_ {
        let drives = self.config.iter().filter(|(key, _)| is_disk(key));
        let drives = drives.map(|(_, text)| Drive::parse(text));
        drives.filter(Drive::is_iso)
    }

    /// The size of the disk it boots from, in bytes.
    pub(super) fn boot_disk(&self) -> u64 {
        let size = |drive: &Drive| drive.option("size").and_then(parse_size);
        let drives = self.drives();
        let order = self
            .config
            .get("boot")
            .and_then(|boot| boot.strip_prefix("order="))
            .unwrap_or_default();
        let boots = order
            .split(';')
            .find_map(|key| drives.iter().find(|(name, _)| name == key));
        boots
            .or_else(|| {
                drives
                    .iter()
                    .find(|(_, drive)| drive.option("media") != Some("cdrom"))
            })
            .and_then(|(_, drive)| size(drive))
            .unwrap_or_default()
    }
}

/// What a new volume is to be.
#[derive(Clone, Debug)]
pub(super) struct NewVolume<'a> {
    pub(super) storage: &'a str,
    pub(super) host: &'a str,
    pub(super) vmid: u32,
    pub(super) size: u64,
    pub(super) used: u64,
    pub(super) parent: Option<&'a str>,
    pub(super) cloudinit: bool,
    /// A full copy of another volume.
    pub(super) copied: bool,
    pub(super) base: bool,
    pub(super) ctime: i64,
}

/// The format of a new volume.
fn format_of(kind: StorageKind, new: &NewVolume<'_>) -> &'static str {
    if new.cloudinit {
        kind.cloudinit_format(new.copied)
    } else {
        kind.format()
    }
}

/// What PVE says when `zfs create` fails: the words of `zfs`, and of a pool behind iSCSI the command alone, whose words stand in the
/// task's log.
fn zfs_refusal(kind: StorageKind, storage: &str, name: &str, why: &str) -> String {
    match kind {
        StorageKind::Zfs => format!(
            "command '/usr/bin/ssh -o 'BatchMode=yes' -i /etc/pve/priv/zfs/{ISCSI_PORTAL}_id_rsa root@{ISCSI_PORTAL} zfs create -V {storage}/{name}' failed: exit code 1"
        ),
        _ => format!("zfs error: cannot create '{storage}/{name}': {why}"),
    }
}

impl PveWorld {
    /// The part of a volume's key that says where: a host, or nothing for shared storage.
    pub(super) fn place<'a>(&self, storage: &str, host: &'a str) -> &'a str {
        match self.storages.get(storage) {
            Some(storage) if storage.shared => "",
            _ => host,
        }
    }

    /// The volume `id` as `host` sees it.
    pub(super) fn volume(&self, id: &str, host: &str) -> Option<&DiskVolume> {
        let storage = id.split_once(':')?.0;
        self.volumes
            .get(&(self.place(storage, host).to_owned(), id.to_owned()))
    }

    /// The volume `id` as `host` sees it, to change it.
    pub(super) fn volume_mut(&mut self, id: &str, host: &str) -> Option<&mut DiskVolume> {
        let storage = id.split_once(':')?.0;
        let key = (self.place(storage, host).to_owned(), id.to_owned());
        self.volumes.get_mut(&key)
    }

    /// Bytes used and available on a storage as `host` sees it.
    pub(super) fn space(&self, storage: &str, host: &str) -> (u64, u64) {
        let Some(spec) = self.storages.get(storage) else {
            return (0, 0);
        };
        let place = self.place(storage, host);
        let volumes: u64 = self
            .volumes
            .values()
            .filter(|volume| volume.storage == storage && volume.host == place)
            .map(DiskVolume::taken)
            .sum();
        let filled = self
            .filled
            .get(&(place.to_owned(), storage.to_owned()))
            .copied()
            .unwrap_or(0);
        let used = (spec.used + volumes + filled).min(spec.total);
        (used, (spec.total - used).saturating_sub(spec.kept))
    }

    /// Whether `host` can use a storage, else PVE's words.
    pub(super) fn usable(&self, storage: &str, host: &str) -> Result<(), String> {
        let Some(spec) = self.storages.get(storage) else {
            return Err(format!("storage '{storage}' does not exist"));
        };
        if spec
            .hosts
            .as_ref()
            .is_some_and(|hosts| !hosts.iter().any(|name| name == host))
        {
            return Err(format!(
                "storage '{storage}' is not available on node '{host}'"
            ));
        }
        if !spec.active {
            return Err(format!("storage '{storage}' is not online"));
        }
        Ok(())
    }

    /// Whether a storage is for content of a kind, else PVE's words when it starts a VM with a volume of it (`QemuServer.pm`,
    /// `check_volume_storage_type`).
    pub(super) fn holds_content(&self, storage: &str, content: &str) -> Result<(), String> {
        let spec = self.storages.get(storage);
        if spec.is_some_and(|spec| !split(&spec.content).any(|kind| kind == content)) {
            return Err(format!(
                "storage '{storage}' does not support content-type '{content}'"
            ));
        }
        Ok(())
    }

    /// Whether PVE can make volumes on a storage, else its words: the LUNs of a target are there or not (`ISCSIPlugin.pm`, `alloc_image`).
    pub(super) fn makes_volumes(&self, storage: &str) -> Result<(), String> {
        let kind = self.storages.get(storage).map(|spec| spec.kind);
        if kind == Some(StorageKind::Iscsi) {
            return Err("can't allocate space in iscsi storage".to_owned());
        }
        Ok(())
    }

    /// Makes a volume for a drive that a configuration names, where the storage takes disks of VMs at all.
    pub(super) fn allocate_image(&mut self, new: &NewVolume<'_>) -> Result<String, String> {
        let (name, spec) = (new.storage, self.storages.get(new.storage));
        if spec.is_some_and(|spec| !split(&spec.content).any(|kind| kind == "images")) {
            return Err(format!("storage '{name}' does not support vm images"));
        }
        self.makes_volumes(name)?;
        self.allocate(new)
    }

    /// Makes a volume and returns its id.
    pub(super) fn allocate(&mut self, new: &NewVolume<'_>) -> Result<String, String> {
        self.usable(new.storage, new.host)?;
        let kind = self
            .storages
            .get(new.storage)
            .map_or(StorageKind::Dir, |spec| spec.kind);
        let place = self.place(new.storage, new.host).to_owned();
        let (_, available) = self.space(new.storage, new.host);
        let thick = self.storages.get(new.storage).is_some_and(|of| !of.sparse);
        let reserves = kind.is_zfs() && thick && new.parent.is_none();
        let reserved = if reserves {
            zfs_reservation(new.size)
        } else {
            0
        };
        let full = match kind {
            // A thin pool hands out volumes while it is full; what waits then is what guests write. Of Ceph nobody has seen it.
            StorageKind::LvmThin | StorageKind::Rbd => false,
            StorageKind::ZfsPool | StorageKind::Zfs => available == 0 || available < reserved,
            _ => available < new.used,
        };
        let id = self.free_name(kind, &place, new)?;
        if full && kind.is_zfs() {
            let name = id.rsplit([':', '/']).next().unwrap_or_default();
            return Err(zfs_refusal(kind, new.storage, name, "out of space"));
        }
        if full {
            return Err(format!(
                "unable to create image on storage '{}': No space left on device",
                new.storage
            ));
        }
        let volume = DiskVolume {
            id: id.clone(),
            storage: new.storage.to_owned(),
            host: place.clone(),
            vmid: new.vmid,
            size: new.size,
            used: new.used,
            reserved,
            format: format_of(kind, new),
            parent: new.parent.filter(|_| kind.names_base()).map(str::to_owned),
            ctime: new.ctime,
        };
        self.volumes.insert((place, id.clone()), volume);
        Ok(id)
    }

    fn free_name(
        &self,
        kind: StorageKind,
        place: &str,
        new: &NewVolume<'_>,
    ) -> Result<String, String> {
        let NewVolume { storage, vmid, .. } = *new;
        if kind == StorageKind::Iscsi {
            // A LUN that is there: target, unit, and a name that no other has.
            return Ok(format!("{storage}:0.0.{vmid}.scsi-{vmid:016x}"));
        }
        let is_base = new.base && kind.has_bases();
        let stem = if is_base { "base" } else { "vm" };
        let format = format_of(kind, new);
        let parent = new.parent.filter(|_| kind.names_base());
        let file = |name: &str| match (kind.is_block(), parent) {
            (true, Some(parent)) => {
                let base = parent.rsplit([':', '/']).next().unwrap_or_default();
                format!("{storage}:{base}/{name}")
            }
            (true, None) => format!("{storage}:{name}"),
            (false, Some(parent)) => {
                let base = parent.split_once(':').map_or(parent, |(_, base)| base);
                format!("{storage}:{base}/{vmid}/{name}.{format}")
            }
            (false, None) => format!("{storage}:{vmid}/{name}.{format}"),
        };
        if new.cloudinit {
            let name = format!("vm-{vmid}-cloudinit");
            let id = file(&name);
            if !self.volumes.contains_key(&(place.to_owned(), id.clone())) {
                return Ok(id);
            }
            return Err(match kind {
                StorageKind::ZfsPool | StorageKind::Zfs => {
                    zfs_refusal(kind, storage, &name, "dataset already exists")
                }
                StorageKind::LvmThin | StorageKind::Lvm => format!(
                    "lvcreate '{storage}/{name}' error:   Logical Volume \"{name}\" already exists in volume group \"{storage}\""
                ),
                StorageKind::Rbd => {
                    format!("rbd create '{name}' error: rbd: create error: (17) File exists")
                }
                _ => format!("disk image '{id}' already exists"),
            });
        }
        // PVE looks at names alone: a number taken by any volume of this VM is not free.
        let taken = |number: u32| {
            let name = format!("{vmid}-disk-{number}");
            self.volumes.values().any(|volume| {
                volume.storage == storage
                    && volume.host == place
                    && volume.vmid == vmid
                    && volume.id.contains(&name)
            })
        };
        let number = (0..100)
            .find(|number| !taken(*number))
            .ok_or("unable to allocate an image name")?;
        Ok(file(&format!("{stem}-{vmid}-disk-{number}")))
    }

    /// Removes a volume; a missing one is fine.
    pub(super) fn free(&mut self, id: &str, host: &str) {
        if let Some((storage, _)) = id.split_once(':') {
            let key = (self.place(storage, host).to_owned(), id.to_owned());
            self.volumes.remove(&key);
        }
    }

    /// A linked clone that still needs the volume `base`.
    pub(super) fn child_of(&self, base: &str, host: &str) -> Option<&DiskVolume> {
        let place = base
            .split_once(':')
            .map_or("", |(storage, _)| self.place(storage, host));
        self.volumes
            .values()
            .find(|volume| volume.host == place && volume.parent.as_deref() == Some(base))
    }
}

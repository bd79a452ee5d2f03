//! A VM's configuration: reading and changing it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::disks::{
    CLOUDINIT_SIZE, Drive, NewVolume, firmware_size, format_size, parse_size, zfs_reservation,
};
use super::locks::VM_LOCK;
use super::options::{applies_running, hotplugged, option};
use super::schema::{is_disk, split};
use super::wire::{ErrorAnswer, ParamValue};
use super::world::{PveWorld, SimVm};
use super::{CheckedCall, Pve};
use crate::model::time::Time;

/// Parameters of the calls that are no options.
const NO_OPTIONS: &[&str] = &[
    "node",
    "vmid",
    "delete",
    "revert",
    "force",
    "digest",
    "skiplock",
    "background_delay",
    "import-working-storage",
    "storage",
    "pool",
    "start",
    "bwlimit",
];

/// A change to a configuration.
#[derive(Clone, Debug, Default)]
pub(super) struct Edit {
    pub(super) set: BTreeMap<String, String>,
    numbers: BTreeSet<String>,
    delete: Vec<String>,
    revert: Vec<String>,
    force: bool,
    digest: Option<String>,
    skiplock: bool,
    by: String,
    root: bool,
}

impl Edit {
    /// Reads and checks the parameters of a call, its caller's rights included.
    pub(super) fn read(
        pve: &Pve,
        asked: &CheckedCall,
        creating: bool,
    ) -> Result<Edit, ErrorAnswer> {
        let list = |name: &str| {
            split(asked.text(name))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        only_root(asked, "skiplock")?;
        let mut edit = Edit {
            delete: list("delete"),
            revert: list("revert"),
            force: asked.flag("force"),
            digest: asked.given("digest").map(str::to_owned),
            skiplock: asked.flag("skiplock"),
            by: asked.caller.name.clone(),
            root: asked.caller.is_root(),
            ..Edit::default()
        };
        for (key, given) in asked
            .params
            .iter()
            .filter(|(key, _)| !NO_OPTIONS.contains(&key.as_str()))
        {
            let text = match given {
                ParamValue::Text(text) => text,
                ParamValue::Number(text) => {
                    edit.numbers.insert(key.clone());
                    text
                }
                ParamValue::List(_) => continue,
            };
            edit.set.insert(key.clone(), pve.normal(key, text)?);
        }
        if edit.is_empty() && !creating {
            return Err(ErrorAnswer::die("no options specified"));
        }
        edit.check_keys()?;
        let keys = edit.set.keys().chain(&edit.delete);
        pve.check_rights(asked, keys, creating)?;
        // Of a VM to be made its task looks at them.
        if !creating && edit.set.keys().chain(&edit.delete).any(|key| key == "tags") {
            pve.world(|world, _| world.check_tags(asked))?;
        }
        Ok(edit)
    }

    fn check_keys(&self) -> Result<(), ErrorAnswer> {
        for (word, keys) in [("revert", &self.revert), ("delete", &self.delete)] {
            for key in keys {
                if option(key).is_none() {
                    return Err(ErrorAnswer::parameter(
                        word,
                        format!("unknown option '{key}'"),
                    ));
                }
                if self.set.contains_key(key) {
                    let why = format!("you can't use '-{key}' and -{word} {key}' at the same time");
                    return Err(ErrorAnswer::parameter("delete", why));
                }
            }
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.set.is_empty() && self.delete.is_empty() && self.revert.is_empty()
    }
}

/// An option that only root@pam in person may use.
pub(super) fn only_root(asked: &CheckedCall, name: &str) -> Result<(), ErrorAnswer> {
    if asked.flag(name) && !asked.caller.is_root() {
        return Err(ErrorAnswer::parameter(
            name,
            "Only root may use this option.",
        ));
    }
    Ok(())
}

impl Pve {
    fn normal(&self, key: &str, text: &str) -> Result<String, ErrorAnswer> {
        let made = self.world(|world, _| world.spec.makes.get(key).cloned());
        made.map_or_else(|| super::values::normal(key, text), Ok)
    }

    /// `PUT config`: waits for the VM's lock while the caller waits.
    pub(super) async fn config_set(&self, asked: CheckedCall) -> Result<Value, ErrorAnswer> {
        let edit = Edit::read(self, &asked, false)?;
        self.world(|world, _| world.check_edit(&asked.node, asked.vmid, &edit))
            .map_err(ErrorAnswer::die)?;
        self.write_config(&asked.node, asked.vmid, &edit)
            .await
            .map_err(ErrorAnswer::die)?;
        Ok(Value::Null)
    }

    /// `POST config`: the same in a task. With `background_delay` the answer waits for the task's
    /// end, at most so many seconds, and is nothing when it ended well.
    pub(super) async fn config_set_later(&self, asked: CheckedCall) -> Result<Value, ErrorAnswer> {
        let edit = Edit::read(self, &asked, false)?;
        self.world(|world, _| world.check_edit(&asked.node, asked.vmid, &edit))
            .map_err(ErrorAnswer::die)?;
        let (vmid, delay) = (asked.vmid, asked.seconds("background_delay"));
        let id = vmid.to_string();
        let user = asked.caller.name.clone();
        let upid = self.fork(
            &asked.node.clone(),
            "qmconfig",
            &id,
            &user,
            false,
            |worker| {
                Box::pin(async move {
                    worker
                        .pve
                        .write_config(&asked.node, asked.vmid, &edit)
                        .await
                })
            },
        );
        let Some(delay) = delay else { return Ok(upid) };
        match self
            .task_end(upid.as_str().unwrap_or_default(), delay)
            .await
        {
            None => Ok(upid),
            Some(exit) if exit == "OK" => Ok(Value::Null),
            Some(exit) => Err(ErrorAnswer::die(format!(
                "failed to update VM {vmid}: {exit}"
            ))),
        }
    }

    pub(super) async fn write_config(
        &self,
        node: &str,
        vmid: u32,
        edit: &Edit,
    ) -> Result<(), String> {
        let _lock = self.lock_vm(vmid, VM_LOCK).await?;
        self.world(|world, now| world.edit(node, vmid, edit, now))
    }
}

impl PveWorld {
    /// What is looked at before the lock is waited for, and once more with it.
    fn check_edit(&self, node: &str, vmid: u32, edit: &Edit) -> Result<(), String> {
        let vm = self.vm(node, vmid)?;
        if edit
            .digest
            .as_ref()
            .is_some_and(|digest| *digest != vm.digest())
        {
            return Err("checksum mismatch (file change by other user?)".to_owned());
        }
        if !edit.skiplock {
            vm.check_lock()?;
        }
        if edit.set.contains_key("memory") || edit.set.contains_key("balloon") {
            let wanted = |key: &str| {
                let pending = vm.pending.get(key).and_then(Option::as_ref);
                edit.set.get(key).or(pending).or_else(|| vm.config.get(key))
            };
            let number = |text: Option<&String>| text.and_then(|text| text.parse::<u64>().ok());
            let memory = number(wanted("memory")).unwrap_or(512);
            if number(wanted("balloon")).is_some_and(|balloon| balloon > memory) {
                return Err(
                    "balloon value too large (must be smaller than assigned memory)".to_owned(),
                );
            }
        }
        Ok(())
    }

    /// Changes a configuration; the lock is held. As in PVE, what was changed before an error stays.
    pub(super) fn edit(
        &mut self,
        node: &str,
        vmid: u32,
        edit: &Edit,
        now: Time,
    ) -> Result<(), String> {
        self.check_edit(node, vmid, edit)?;
        self.writable(node, vmid)?;
        let mut vm = self.vm(node, vmid)?.clone();
        let outcome = self.edit_vm(&mut vm, edit, now);
        // Noted before it takes effect: what the VM was when somebody changed it.
        self.note(now, &edit.by, vmid, "config");
        self.vms.insert(vmid, vm);
        self.touch(vmid, now);
        outcome
    }

    fn edit_vm(&mut self, vm: &mut SimVm, edit: &Edit, now: Time) -> Result<(), String> {
        for key in &edit.revert {
            vm.pending.remove(key);
        }
        for key in &edit.delete {
            self.remove_option(vm, key, edit.force)?;
        }
        for (key, value) in &edit.set {
            if key == "boot" {
                check_boot(vm, edit, value)?;
            }
            let value = self.prepare(vm, key, value, edit.root, now)?;
            if is_disk(key) {
                self.give_way(vm, key);
                park(vm, key, &value);
            }
            let now = vm.text("hotplug");
            let at_once = !vm.run.is_on() || applies_running(key) || hotplugged(key, &value, now);
            vm.pending.remove(key);
            // Its line is none that PVE reads back, and what is in force stays.
            if key == "affinity" && value.is_empty() {
                continue;
            }
            if edit.numbers.contains(key) {
                vm.numbers.insert(key.clone());
            } else {
                vm.numbers.remove(key);
            }
            if at_once && value.is_empty() {
                vm.config.remove(key);
            } else if at_once {
                vm.config.insert(key.clone(), value);
            } else if vm.config.get(key) != Some(&value) {
                vm.pending.insert(key.clone(), Some(value));
            }
        }
        Ok(())
    }

    fn remove_option(&mut self, vm: &mut SimVm, key: &str, force: bool) -> Result<(), String> {
        vm.pending.remove(key);
        let Some(old) = vm.config.get(key).cloned() else {
            return Ok(());
        };
        if key.starts_with("unused") || is_disk(key) {
            let drive = Drive::parse(&old);
            if vm.flag("protection") {
                return Err(if key.starts_with("unused") {
                    format!(
                        "can't remove unused disk '{}' - protection mode enabled",
                        drive.file
                    )
                } else {
                    format!("can't remove drive '{key}' - protection mode enabled")
                });
            }
            vm.config.remove(key);
            if key.starts_with("unused") || force || drive.is_cloudinit() {
                self.free(&drive.file, &vm.host);
            } else if !drive.is_empty_cdrom() && !drive.is_iso() {
                keep_unused(vm, drive.file);
            }
        } else if vm.run.is_on()
            && !applies_running(key)
            && !hotplugged(key, &old, vm.text("hotplug"))
        {
            vm.pending.insert(key.to_owned(), None);
        } else {
            vm.config.remove(key);
        }
        Ok(())
    }

    /// The value to store: volumes are made, addresses filled in.
    pub(super) fn prepare(
        &mut self,
        vm: &SimVm,
        key: &str,
        value: &str,
        root: bool,
        now: Time,
    ) -> Result<String, String> {
        if is_disk(key) {
            return self.prepare_drive(vm, (key, value), root, now);
        }
        if key
            .strip_prefix("net")
            .is_some_and(|rest| rest.parse::<u32>().is_ok())
        {
            let mut parts: Vec<String> = value.split(',').map(str::to_owned).collect();
            if let Some(first) = parts.first_mut()
                && !first.contains('=')
            {
                let old = vm
                    .text(key)
                    .split(',')
                    .next()
                    .and_then(|part| part.split_once('='));
                let mac = old.map_or_else(|| self.mac(), |(_, mac)| mac.to_owned());
                *first = format!("{first}={mac}");
            }
            // As `print_property_string` writes: the model first, the rest by name.
            if let Some(others) = parts.get_mut(1..) {
                others.sort();
            }
            return Ok(parts.join(","));
        }
        if key == "machine" {
            super::device_formats::check_machine(value)?;
        }
        if key == "vmgenid" && value == "1" {
            return Ok(self.uuid());
        }
        Ok(value.to_owned())
    }

    fn prepare_drive(
        &mut self,
        vm: &SimVm,
        (key, value): (&str, &str),
        root: bool,
        now: Time,
    ) -> Result<String, String> {
        let mut drive = Drive::parse(value);
        if drive.is_empty_cdrom() || (root && drive.file.starts_with('/')) {
            return Ok(drive.to_string());
        }
        let Some((storage, name)) = drive
            .file
            .split_once(':')
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
        else {
            return Err(format!("unable to parse volume ID '{}'", drive.file));
        };
        if drive.is_iso() {
            return self.prepare_iso(&drive, &vm.host);
        }
        let cloudinit = name == "cloudinit";
        let gib = name.parse::<f64>().ok();
        if !cloudinit && gib.is_none() {
            let Some(volume) = self.volume(&drive.file, &vm.host) else {
                return Err(format!("volume '{}' does not exist", drive.file));
            };
            let size = format_size(volume.size);
            if drive.option("media") != Some("cdrom") {
                drive.set("size", &size);
            }
            return Ok(drive.to_string());
        }
        let import = drive.option("import-from");
        let import = import.map(|source| self.import_size(source, &vm.host));
        let import = import.transpose()?;
        let kind = self.storages.get(&storage).map(|spec| spec.kind);
        let fixed = import.or(kind.and_then(|kind| firmware_size(key, &drive, kind)));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a size in MiB"
        )]
        let size = if cloudinit {
            CLOUDINIT_SIZE
        } else {
            fixed.unwrap_or(((gib.unwrap_or_default() * 1024.0) as u64) << 20)
        };
        let new = NewVolume {
            storage: &storage,
            host: &vm.host,
            vmid: vm.vmid,
            size,
            used: if cloudinit { size } else { size / 100 },
            parent: None,
            cloudinit,
            copied: false,
            base: false,
            ctime: now.0 / 1_000,
        };
        drive.file = self.allocate_image(&new)?;
        drive.options.retain(|(key, _)| key != "import-from");
        if cloudinit {
            drive.set("media", "cdrom");
        } else {
            drive.set("size", &format_size(size));
        }
        Ok(drive.to_string())
    }

    /// At the power's return the pending changes become the configuration.
    pub(super) fn settle(&mut self, vmid: u32) {
        if let Some(vm) = self.vms.get_mut(&vmid) {
            for (key, value) in std::mem::take(&mut vm.pending) {
                match value {
                    Some(value) => vm.config.insert(key, value),
                    None => vm.config.remove(&key),
                };
            }
        }
    }

    /// Resizes a drive; the lock is held.
    pub(super) fn resize(
        &mut self,
        node: &str,
        vmid: u32,
        key: &str,
        size: &str,
    ) -> Result<(), String> {
        self.writable(node, vmid)?;
        let vm = self.vm(node, vmid)?;
        let text = vm
            .config
            .get(key)
            .ok_or_else(|| format!("disk '{key}' does not exist"))?;
        let mut drive = Drive::parse(text);
        if drive.option("media") == Some("cdrom") {
            return Err("you can't resize a cdrom".to_owned());
        }
        let host = vm.host.clone();
        let volume = self.volume(&drive.file, &host);
        let old = volume
            .ok_or_else(|| format!("volume '{}' does not exist", drive.file))?
            .size;
        let bytes = parse_size(size.trim_start_matches('+'))
            .ok_or_else(|| format!("unable to parse size '{size}'"))?;
        let new = if size.starts_with('+') {
            old.saturating_add(bytes)
        } else {
            bytes
        };
        if new < old {
            return Err("shrinking disks is not supported".to_owned());
        }
        if new == old {
            return Ok(());
        }
        let (_, available) = self.space(drive.storage(), &host);
        if let Some(volume) = self.volume_mut(&drive.file, &host) {
            if volume.reserved > 0 {
                let reserved = zfs_reservation(new);
                if reserved - volume.reserved > available {
                    let dataset = drive.file.replace(':', "/");
                    return Err(format!(
                        "zfs error: cannot set property for '{dataset}': size is greater than available space"
                    ));
                }
                volume.reserved = reserved;
            }
            volume.size = new;
        }
        drive.set("size", &format_size(new));
        self.vm_mut(node, vmid)?
            .config
            .insert(key.to_owned(), drive.to_string());
        Ok(())
    }
}

/// A drive that gives way to another volume becomes an unused one.
fn park(vm: &mut SimVm, key: &str, value: &str) {
    let Some(old) = vm.config.get(key).map(|text| Drive::parse(text)) else {
        return;
    };
    if !old.is_empty_cdrom() && !old.is_iso() && old.file != Drive::parse(value).file {
        keep_unused(vm, old.file);
    }
}

fn keep_unused(vm: &mut SimVm, volume: String) {
    let slot = (0..256)
        .map(|n| format!("unused{n}"))
        .find(|slot| !vm.config.contains_key(slot));
    if let Some(slot) = slot {
        vm.config.insert(slot, volume);
    }
}

fn check_boot(vm: &SimVm, edit: &Edit, value: &str) -> Result<(), String> {
    let order = value.strip_prefix("order=").unwrap_or_default();
    for device in split(order) {
        let exists = vm.config.contains_key(device) || edit.set.contains_key(device);
        if !exists || edit.delete.iter().any(|key| key == device) {
            return Err(format!(
                "invalid bootorder: device '{device}' does not exist'"
            ));
        }
    }
    Ok(())
}

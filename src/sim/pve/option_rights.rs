//! Who may set which option of a VM, by its name, by what of the host its value reaches, and by what the VM has there already
//! (qemu-server, `PVE/API2/Qemu.pm`).

use super::access::Caller;
use super::disks::Drive;
use super::options::{OptionRight, right};
use super::schema::is_disk;
use super::wire::ErrorAnswer;
use super::{CheckedCall, Pve, properties};

impl Pve {
    /// Whether the caller may set or delete these options; `creating`: of a VM that the call makes.
    pub(super) fn check_rights<'a>(
        &self,
        asked: &CheckedCall,
        keys: impl Iterator<Item = &'a String>,
        creating: bool,
    ) -> Result<(), ErrorAnswer> {
        if asked.caller.is_root() {
            return Ok(());
        }
        // A VM to be made has its rights from the pool it is made in.
        let path = asked.given("pool").map_or_else(
            || format!("/vms/{}", asked.vmid),
            |pool| format!("/pool/{pool}"),
        );
        for key in keys {
            match right(key) {
                OptionRight::Root => {
                    return Err(ErrorAnswer::die(format!(
                        "only root can set '{key}' config"
                    )));
                }
                // Of the others the value says what is needed, that which is there and that which is to be.
                OptionRight::Any(privileges) if creating || !goes_by_value(key) => {
                    self.need(&asked.caller, &path, privileges)?;
                }
                OptionRight::Any(_) => {}
            }
            if key == "startup" {
                self.need(&asked.caller, "/", &["Sys.Modify"])?;
            }
            if creating {
                self.check_new(asked, &path, key)?;
            } else {
                self.check_change(asked, &path, key)?;
            }
            self.check_places(asked, key)?;
        }
        Ok(())
    }

    /// What an option of a VM that is made needs beside the right to its name.
    fn check_new(&self, asked: &CheckedCall, path: &str, key: &str) -> Result<(), ErrorAnswer> {
        let value = asked.text(key);
        if value.is_empty() {
            return Ok(());
        }
        if stem(key) == "serial" && value != "socket" {
            return Err(ErrorAnswer::die(format!(
                "only root can set '{key}' config for real devices"
            )));
        }
        if is_disk(key) {
            let drive = Drive::parse(value);
            if drive.is_cloudinit() || drive.option("media") == Some("cdrom") {
                self.need(&asked.caller, path, &["VM.Config.CDROM"])?;
            }
        }
        self.check_parts_of_host(&asked.caller, key, value)
    }

    /// What a change of an option needs, or its removal: a right to what is there, and to what comes in its place.
    fn check_change(&self, asked: &CheckedCall, path: &str, key: &str) -> Result<(), ErrorAnswer> {
        let new = asked.given(key);
        let old = self.world(|world, _| {
            let vm = world.vm(&asked.node, asked.vmid).ok()?;
            let pending = || vm.pending.get(key).cloned().flatten();
            let held = vm.config.get(key).cloned();
            // What waits for the next start is looked at where it is taken away.
            if new.is_none() {
                held.or_else(pending)
            } else {
                held
            }
        });
        if stem(key) == "serial" {
            return self.check_serial(asked, path, key, old.as_deref());
        }
        for value in old.as_deref().into_iter().chain(new) {
            if value.is_empty() {
                continue;
            }
            if goes_by_value(key) {
                for privilege in of_value(key, value) {
                    self.need(&asked.caller, path, &[privilege])?;
                }
            }
            self.check_parts_of_host(&asked.caller, key, value)?;
        }
        Ok(())
    }

    /// A serial port of the host is root's, whether it is there or is to be.
    fn check_serial(
        &self,
        asked: &CheckedCall,
        path: &str,
        key: &str,
        old: Option<&str>,
    ) -> Result<(), ErrorAnswer> {
        let new = asked.given(key);
        if old.is_none() && new.is_none() {
            return Ok(());
        }
        let sockets = old.into_iter().chain(new).all(|value| value == "socket");
        if sockets {
            return self.need(&asked.caller, path, &["VM.Config.HWType"]);
        }
        if new.is_some() {
            return Err(ErrorAnswer::die(format!(
                "only root can modify '{key}' config for real devices"
            )));
        }
        Err(ErrorAnswer::die(format!(
            "only root can delete '{key}' config for real devices"
        )))
    }

    /// What an option reaches by its new value: storages, and what a card is plugged into.
    fn check_places(&self, asked: &CheckedCall, key: &str) -> Result<(), ErrorAnswer> {
        let value = asked.text(key);
        if is_disk(key)
            && value.contains("/dev/") | value.starts_with('/') | value.contains("import-from=/")
        {
            return Err(ErrorAnswer::die(
                "Only root can pass arbitrary filesystem paths.",
            ));
        }
        if is_disk(key) && !value.is_empty() {
            let drive = Drive::parse(value);
            let path = format!("/storage/{}", drive.storage());
            if drive.is_iso() {
                let any = ["Datastore.AllocateSpace", "Datastore.Audit"];
                self.need(&asked.caller, &path, &any)?;
            } else if !drive.is_empty_cdrom() {
                self.need(&asked.caller, &path, &["Datastore.AllocateSpace"])?;
            }
        }
        if key.starts_with("net")
            && let Some(path) = self.world(|world, _| world.path_of_card(value))
        {
            self.need(&asked.caller, &path, &["SDN.Use"])?;
        }
        Ok(())
    }

    /// What of the host a value reaches (`check_usb_perm`, `check_hostpci_perm`, `check_rng_perm`, `check_dir_perm`), and whoever clones a
    /// VM that has it (`check_mapping_access`).
    pub(super) fn check_parts_of_host(
        &self,
        caller: &Caller,
        key: &str,
        value: &str,
    ) -> Result<(), ErrorAnswer> {
        let named = |bare, part| properties(value, bare).get(part).copied();
        let mapping = match stem(key) {
            "hostpci" => return self.may_use(caller, key, value),
            "usb" => match (named("host", "host"), named("host", "mapping")) {
                (Some(host), _) if host.eq_ignore_ascii_case("spice") => None,
                (Some(_), _) => {
                    return Err(ErrorAnswer::die(format!(
                        "only root can set '{key}' config for real devices"
                    )));
                }
                (None, Some(mapping)) => Some(format!("usb/{mapping}")),
                (None, None) => {
                    return Err(ErrorAnswer::die("either 'host' or 'mapping' must be set."));
                }
            },
            "rng" => named("source", "source")
                .filter(|source| *source == "/dev/hwrng")
                .map(|_| "hwrng".to_owned()),
            "virtiofs" => named("dirid", "dirid").map(|id| format!("dir/{id}")),
            _ => None,
        };
        let Some(mapping) = mapping else {
            return Ok(());
        };
        self.need(caller, &format!("/mapping/{mapping}"), &["Mapping.Use"])
    }

    /// Whether the caller may clone a VM with what it has of its host.
    pub(super) fn check_cloned_parts(
        &self,
        caller: &Caller,
        source: u32,
    ) -> Result<(), ErrorAnswer> {
        if caller.is_root() {
            return Ok(());
        }
        let config = self.world(|world, _| world.vms.get(&source).map(|vm| vm.config.clone()));
        config
            .iter()
            .flatten()
            .try_for_each(|(key, value)| self.check_parts_of_host(caller, key, value))
    }
}

/// An option's name without its number.
fn stem(key: &str) -> &str {
    key.trim_end_matches(|last: char| last.is_ascii_digit())
}

/// Whether PVE asks for rights by an option's value, and not by its name.
fn goes_by_value(key: &str) -> bool {
    is_disk(key)
        || matches!(
            stem(key),
            "unused" | "serial" | "usb" | "hostpci" | "virtiofs"
        )
}

/// The privileges on the VM, all of which a value of such an option needs.
fn of_value(key: &str, value: &str) -> &'static [&'static str] {
    match stem(key) {
        "usb" | "hostpci" => &["VM.Config.HWType"],
        "virtiofs" => &["VM.Config.Disk"],
        _ => {
            let drive = Drive::parse(value);
            if drive.is_cloudinit() {
                &["VM.Config.Cloudinit", "VM.Config.CDROM"]
            } else if drive.option("media") == Some("cdrom") {
                &["VM.Config.CDROM"]
            } else {
                &["VM.Config.Disk"]
            }
        }
    }
}

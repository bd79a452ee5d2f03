//! Who may set which option of a VM, by its name and by what of the host its value reaches (qemu-server, `PVE/API2/Qemu.pm`).

use super::disks::Drive;
use super::options::{OptionRight, right};
use super::schema::is_disk;
use super::wire::ErrorAnswer;
use super::{CheckedCall, Pve, properties};

impl Pve {
    /// Whether the caller may set or delete these options.
    pub(super) fn check_rights<'a>(
        &self,
        asked: &CheckedCall,
        keys: impl Iterator<Item = &'a String>,
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
                OptionRight::Any(privileges) => self.need(&asked.caller, &path, privileges)?,
            }
            if key == "startup" {
                self.need(&asked.caller, "/", &["Sys.Modify"])?;
            }
            if key.starts_with("hostpci") {
                self.check_device(asked, key)?;
            }
            let value = asked.text(key);
            self.check_parts_of_host(asked, key, value)?;
            if is_disk(key)
                && value.contains("/dev/")
                    | value.starts_with('/')
                    | value.contains("import-from=/")
            {
                return Err(ErrorAnswer::die(
                    "Only root can pass arbitrary filesystem paths.",
                ));
            }
            if is_disk(key) && !value.is_empty() {
                let drive = Drive::parse(value);
                if drive.is_cloudinit() || drive.option("media") == Some("cdrom") {
                    self.need(&asked.caller, &path, &["VM.Config.CDROM"])?;
                }
                if drive.is_iso() {
                    let path = format!("/storage/{}", drive.storage());
                    let any = ["Datastore.AllocateSpace", "Datastore.Audit"];
                    self.need(&asked.caller, &path, &any)?;
                } else if !drive.is_empty_cdrom() {
                    let path = format!("/storage/{}", drive.storage());
                    self.need(&asked.caller, &path, &["Datastore.AllocateSpace"])?;
                }
            }
            if key.starts_with("net")
                && let Some(path) = self.world(|world, _| world.path_of_card(value))
            {
                self.need(&asked.caller, &path, &["SDN.Use"])?;
            }
        }
        Ok(())
    }

    /// What of the host a value reaches (`check_usb_perm`, `check_rng_perm`, `check_dir_perm`); nothing is given where it is deleted.
    fn check_parts_of_host(
        &self,
        asked: &CheckedCall,
        key: &str,
        value: &str,
    ) -> Result<(), ErrorAnswer> {
        let stem = key.trim_end_matches(|last: char| last.is_ascii_digit());
        let named = |bare, part| properties(value, bare).get(part).copied();
        let mapping = match (stem, value) {
            (_, "") => None,
            ("serial", device) if device != "socket" => {
                return Err(ErrorAnswer::die(format!(
                    "only root can modify '{key}' config for real devices"
                )));
            }
            ("usb", _) => match (named("host", "host"), named("host", "mapping")) {
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
            ("rng", _) => named("source", "source")
                .filter(|source| *source == "/dev/hwrng")
                .map(|_| "hwrng".to_owned()),
            ("virtiofs", _) => named("dirid", "dirid").map(|id| format!("dir/{id}")),
            _ => None,
        };
        let Some(mapping) = mapping else {
            return Ok(());
        };
        self.need(
            &asked.caller,
            &format!("/mapping/{mapping}"),
            &["Mapping.Use"],
        )
    }
}

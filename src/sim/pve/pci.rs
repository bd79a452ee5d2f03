//! PCI devices that VMs get: mappings, who may use them, and which device a VM gets when it starts (qemu-server,
//! `PCI.pm`; pve-manager, `PVE/API2/Cluster/Mapping/PCI.pm`). Words of errors as there.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::access::Caller;
use super::schema::config_id;
use super::values::{is_boolean, is_true};
use super::wire::ErrorAnswer;
use super::world::{PveWorld, SimVm};
use super::{Pve, properties};

/// Devices that a VM has at most.
const MOST: u32 = 16;
/// Properties of a device, and those that are flags.
const PROPERTIES: [&str; 12] = [
    "device-id",
    "driver",
    "host",
    "legacy-igd",
    "mapping",
    "mdev",
    "pcie",
    "rombar",
    "romfile",
    "sub-device-id",
    "sub-vendor-id",
    "vendor-id",
];
const FLAGS: [&str; 4] = ["legacy-igd", "pcie", "rombar", "x-vga"];
/// What PVE says of `pcie=1` on another machine type than q35. Perl adds where.
const NO_PCIE: &str =
    "q35 machine model is not enabled at /usr/share/perl5/PVE/QemuServer/PCI.pm line 510.";

/// Whether the text of a device can be stored.
pub(super) fn verify(key: &str, text: &str) -> Result<(), String> {
    for (name, value) in properties(text, "host") {
        let known = PROPERTIES.contains(&name) || FLAGS.contains(&name);
        if !known {
            return Err(format!(
                "format error\n{key}.{name}: property is not defined in schema and the schema does not allow additional properties"
            ));
        }
        if FLAGS.contains(&name) && !is_boolean(value) {
            return Err(format!(
                "format error\n{key}.{name}: type check ('boolean') failed - got '{value}'"
            ));
        }
        if name == "mapping"
            && let Err(why) = config_id(value)
        {
            return Err(format!(
                "format error\n{key}.mapping: invalid format - {why}\n"
            ));
        }
        if name == "host" && !value.split(';').all(is_address) {
            return Err(format!(
                "format error\n{key}.host: value does not match the regex pattern"
            ));
        }
    }
    Ok(())
}

/// `0000:01:00.0`, or without domain or function (`$PCIRE`).
fn is_address(text: &str) -> bool {
    let hex = |text: &str, digits: usize| {
        let fine = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        text.len() == digits && text.bytes().all(fine)
    };
    let (address, function) = text.split_once('.').unwrap_or((text, "0"));
    let (bus, slot) = address.rsplit_once(':').unwrap_or_default();
    let (domain, bus) = bus.split_once(':').unwrap_or(("0000", bus));
    let right = domain.len() >= 4 && hex(domain, domain.len());
    right && hex(bus, 2) && hex(slot, 2) && hex(function, 1)
}

/// The devices of a configuration, by key in PVE's order.
fn devices(vm: &SimVm) -> impl Iterator<Item = (String, &str)> {
    (0..MOST).filter_map(|number| {
        let key = format!("hostpci{number}");
        let text = vm.config.get(&key)?;
        Some((key, text.as_str()))
    })
}

/// The functions that an address names; one without a function is all of them, here the first.
fn functions(address: &str) -> Vec<String> {
    let one = |part: &str| {
        let part = part.trim();
        let domain = if part.matches(':').count() < 2 {
            "0000:"
        } else {
            ""
        };
        let function = if part.contains('.') { "" } else { ".0" };
        format!("{domain}{part}{function}")
    };
    address.split(';').map(one).collect()
}

impl Pve {
    /// Whether the caller may use what a device's text names.
    pub(super) fn may_use(
        &self,
        caller: &Caller,
        key: &str,
        value: &str,
    ) -> Result<(), ErrorAnswer> {
        if caller.is_root() {
            return Ok(());
        }
        let options = properties(value, "host");
        if options.contains_key("host") {
            return Err(ErrorAnswer::die(format!(
                "only root can set '{key}' config for non-mapped devices"
            )));
        }
        match options.get("mapping") {
            Some(mapping) => {
                self.need(caller, &format!("/mapping/pci/{mapping}"), &["Mapping.Use"])
            }
            None => Err(ErrorAnswer::die("either 'host' or 'mapping' must be set.")),
        }
    }
}

impl PveWorld {
    /// The mappings that the caller may see.
    pub(super) fn mappings(&self, caller: &Caller) -> Value {
        let seen = self.spec.mappings.iter().filter(|(id, _)| {
            let privileges = ["Mapping.Audit", "Mapping.Modify", "Mapping.Use"];
            self.allowed(caller, &format!("/mapping/pci/{id}"), &privileges)
        });
        let rows = seen.map(|(id, hosts)| {
            let map = hosts.iter().flat_map(|(host, devices)| {
                devices.iter().map(move |path| {
                    format!(
                        "id=10de:1b38,iommugroup=14,node={host},path={path},subsystem-id=10de:11d9"
                    )
                })
            });
            let map: Vec<String> = map.collect();
            json!({ "id": id, "type": "pci", "map": map, "description": "", "digest": "" })
        });
        json!(rows.collect::<Vec<_>>())
    }

    /// The devices that a VM gets when it starts now.
    pub(super) fn choose_devices(
        &self,
        node: &str,
        vm: &SimVm,
    ) -> Result<BTreeSet<String>, String> {
        let held_by = |id: &String| {
            let mut others = self
                .vms
                .values()
                .filter(|other| other.vmid != vm.vmid && other.host == node && other.run.is_on());
            others.find(|other| other.devices.contains(id))
        };
        let mut chosen: BTreeSet<String> = BTreeSet::new();
        for (key, text) in devices(vm) {
            let options = properties(text, "host");
            let pcie = options.get("pcie").is_some_and(|value| is_true(value));
            if pcie && !vm.text("machine").contains("q35") {
                return Err(NO_PCIE.to_owned());
            }
            let alternatives = self.alternatives(node, &options)?;
            if let [only] = &alternatives[..] {
                for id in only {
                    if !chosen.insert(id.clone()) {
                        return Err(format!("device '{id}' assigned more than once"));
                    }
                    if let Some(other) = held_by(id) {
                        let vmid = other.vmid;
                        return Err(format!("PCI device '{id}' already in use by VMID '{vmid}'"));
                    }
                }
                continue;
            }
            let free = alternatives.into_iter().find(|ids| {
                ids.iter()
                    .all(|id| !chosen.contains(id) && held_by(id).is_none())
            });
            let Some(free) = free else {
                return Err(format!("could not find a free device for '{key}'"));
            };
            chosen.extend(free);
        }
        Ok(chosen)
    }

    /// The devices that would do, each by its functions.
    fn alternatives(
        &self,
        node: &str,
        options: &std::collections::BTreeMap<&str, &str>,
    ) -> Result<Vec<Vec<String>>, String> {
        match (options.get("host"), options.get("mapping")) {
            (Some(_), Some(_)) => Err("Cannot set both 'host' and 'mapping'.".to_owned()),
            (Some(host), None) => Ok(vec![functions(host)]),
            (None, Some(mapping)) => {
                let hosts = self.spec.mappings.get(*mapping);
                let devices = hosts.and_then(|hosts| hosts.get(node));
                match devices.filter(|devices| !devices.is_empty()) {
                    Some(devices) => Ok(devices.iter().map(|path| functions(path)).collect()),
                    None => Err(format!("PCI device mapping not found for '{mapping}'")),
                }
            }
            (None, None) => Err("Either 'host' or 'mapping' must be set.".to_owned()),
        }
    }

    /// Notes the devices of a VM that runs; one that cannot have its own has none.
    pub(super) fn hold_devices(&mut self, vmid: u32) {
        let Some(vm) = self.vms.get(&vmid) else {
            return;
        };
        let devices = self.choose_devices(&vm.host, vm).unwrap_or_default();
        if let Some(vm) = self.vms.get_mut(&vmid) {
            vm.devices = devices;
        }
    }
}

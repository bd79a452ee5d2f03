//! PCI devices that VMs get: mappings, who may use them, which device a VM gets when it starts, or of which it gets a mediated one, and how many of
//! these are left (qemu-server, `PCI.pm`, `PCI/Mdev.pm`; pve-manager, `PVE/API2/Cluster/Mapping/PCI.pm`, `PVE/API2/Hardware/PCI.pm`). Words of
//! errors as there.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::access::Caller;
use super::params::ON_NODE;
use super::schema::{ParamKind, config_id, must};
use super::table::{ApiMethod, CallDuration, CallHandler, NeededPrivilege, call};
use super::values::{is_boolean, is_true};
use super::wire::ErrorAnswer;
use super::world::{PveWorld, SimVm};
use super::{CheckedCall, Pve, properties};

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

/// A PCI device that a VM has while it runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HeldDevice {
    /// One function, by its address.
    Whole(String),
    /// A mediated device.
    Part {
        /// The address of the device that made it.
        of: String,
        /// Its type.
        mdev: String,
        /// Of which `hostpciN` it is.
        key: String,
    },
}

/// The calls that are answered here alone.
pub(super) const CALLS: &[ApiMethod] = &[call(
    "GET",
    "/nodes/{node}/hardware/pci/{pci-id-or-mapping}/mdev",
    CallHandler::MediatedLeft,
    CallDuration::Read,
    NeededPrivilege::Any("/", &["Sys.Audit", "Sys.Modify"]),
    &[
        ON_NODE,
        &[must(
            "pci-id-or-mapping",
            ParamKind::Pattern(
                r"(?:(?:[0-9a-fA-F]{4}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F])|([a-zA-Z][a-zA-Z0-9_-]+)",
                is_mapping_or_address,
            ),
        )],
    ],
)];

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
        if name == "mdev" && (value.is_empty() || value.contains(['/', '.', ':'])) {
            return Err(format!(
                "format error\n{key}.mdev: value does not match the regex pattern"
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

/// A mapping's name, or the address of one function.
fn is_mapping_or_address(text: &str) -> bool {
    config_id(text).is_ok() || (is_address(text) && text.contains('.'))
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
            let mut row =
                json!({ "id": id, "type": "pci", "map": map, "description": "", "digest": "" });
            if self.spec.mdev_mappings.contains(id) {
                row["mdev"] = json!(1);
            }
            row
        });
        json!(rows.collect::<Vec<_>>())
    }

    /// The devices that a VM gets when it starts now.
    pub(super) fn choose_devices(
        &self,
        node: &str,
        vm: &SimVm,
    ) -> Result<BTreeSet<HeldDevice>, String> {
        let held_by = |id: &String| {
            let mut others = self.others(node, vm.vmid);
            others.find(|other| other.devices.contains(&HeldDevice::Whole(id.clone())))
        };
        let mut chosen: BTreeSet<String> = BTreeSet::new();
        let mut parts: BTreeSet<HeldDevice> = BTreeSet::new();
        for (key, text) in devices(vm) {
            let options = properties(text, "host");
            let pcie = options.get("pcie").is_some_and(|value| is_true(value));
            if pcie && !vm.text("machine").contains("q35") {
                return Err(NO_PCIE.to_owned());
            }
            let alternatives = self.alternatives(node, &options)?;
            if let Some(mdev) = options.get("mdev") {
                let part =
                    self.choose_part((node, vm.vmid), &alternatives, mdev, (&key, &parts))?;
                parts.insert(part);
                continue;
            }
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
        parts.extend(chosen.into_iter().map(HeldDevice::Whole));
        Ok(parts)
    }

    /// The other VMs that run on a host.
    fn others<'w>(&'w self, node: &'w str, vmid: u32) -> impl Iterator<Item = &'w SimVm> {
        let all = self.vms.values();
        all.filter(move |other| other.vmid != vmid && other.host == node && other.run.is_on())
    }

    /// The mediated device that a VM gets: of the first device that can make one. Those that cannot are told in warnings alone.
    fn choose_part(
        &self,
        (node, vmid): (&str, u32),
        alternatives: &[Vec<String>],
        mdev: &str,
        (key, own): (&str, &BTreeSet<HeldDevice>),
    ) -> Result<HeldDevice, String> {
        if alternatives.iter().any(|ids| ids.len() > 1) {
            return Err("cannot use mediated device with multifunction device".to_owned());
        }
        let held = self.others(node, vmid).flat_map(|other| &other.devices);
        let held: Vec<&HeldDevice> = held.chain(own).collect();
        let mut devices = alternatives.iter().flatten();
        let free = devices.find(|id| {
            let types = self.types_left(node, id, &held);
            types.get(mdev).is_some_and(|left| *left > 0)
        });
        let of = free.ok_or("could not create mediated device")?.clone();
        Ok(HeldDevice::Part {
            of,
            mdev: mdev.to_owned(),
            key: key.to_owned(),
        })
    }

    /// How many mediated devices of each of its types a device can still make; no types while it is passed on whole.
    fn types_left(&self, node: &str, id: &str, held: &[&HeldDevice]) -> BTreeMap<String, u32> {
        let whole = HeldDevice::Whole(id.to_owned());
        let types = self.spec.mediated.get(node).and_then(|of| of.get(id));
        let Some(types) = types.filter(|_| !held.contains(&&whole)) else {
            return BTreeMap::new();
        };
        let mut used: BTreeMap<&str, u32> = BTreeMap::new();
        for device in held {
            if let HeldDevice::Part { of, mdev, .. } = device
                && of == id
            {
                *used.entry(mdev).or_default() += 1;
            }
        }
        let left = types.iter().map(|(mdev, most)| {
            let own = used.get(&**mdev).copied().unwrap_or_default();
            let other = used.len() > usize::from(own > 0);
            let left = if other { 0 } else { most.saturating_sub(own) };
            (mdev.clone(), left)
        });
        left.collect()
    }

    /// What is left of a mapping's mediated devices, or of a device's by its address: of each type the number of the first device that has it
    /// (pve-manager, `PVE/API2/Hardware/PCI.pm`).
    pub(super) fn mediated_left(&self, node: &str, asked: &CheckedCall) -> Value {
        let named = asked.text("pci-id-or-mapping");
        let devices = if is_address(named) {
            functions(named)
        } else {
            let hosts = self.spec.mappings.get(named);
            let devices = hosts.and_then(|hosts| hosts.get(node)).into_iter();
            let devices = devices.flatten().filter(|path| !path.contains(';'));
            devices.flat_map(|path| functions(path)).collect()
        };
        let held: Vec<&HeldDevice> = self
            .others(node, 0)
            .flat_map(|other| &other.devices)
            .collect();
        let mut types: BTreeMap<String, u32> = BTreeMap::new();
        for id in devices {
            for (mdev, left) in self.types_left(node, &id, &held) {
                types.entry(mdev).or_insert(left);
            }
        }
        let rows = types.into_iter().map(|(mdev, left)| {
            json!({ "type": mdev, "available": left, "description": "num_heads=4, frl_config=60", "name": mdev })
        });
        json!(rows.collect::<Vec<_>>())
    }

    /// A mapping's mark must be as its devices are (`PVE::Mapping::PCI::assert_valid`).
    fn check_mark(&self, node: &str, mapping: &str, devices: &[String]) -> Result<(), String> {
        let marked = u8::from(self.spec.mdev_mappings.contains(mapping));
        for path in devices {
            let id = functions(path).into_iter().next().unwrap_or_default();
            let types = self.spec.mediated.get(node).and_then(|of| of.get(&id));
            let capable = u8::from(types.is_some());
            if marked != capable {
                return Err(format!(
                    "PCI device mapping invalid (hardware probably changed): 'mdev' does not match for '{mapping}' ({capable} != {marked})"
                ));
            }
        }
        Ok(())
    }

    /// The devices that would do, each by its functions.
    fn alternatives(
        &self,
        node: &str,
        options: &BTreeMap<&str, &str>,
    ) -> Result<Vec<Vec<String>>, String> {
        match (options.get("host"), options.get("mapping")) {
            (Some(_), Some(_)) => Err("Cannot set both 'host' and 'mapping'.".to_owned()),
            (Some(host), None) => Ok(vec![functions(host)]),
            (None, Some(mapping)) => {
                let hosts = self.spec.mappings.get(*mapping);
                let devices = hosts.and_then(|hosts| hosts.get(node));
                match devices.filter(|devices| !devices.is_empty()) {
                    Some(devices) => {
                        self.check_mark(node, mapping, devices)?;
                        Ok(devices.iter().map(|path| functions(path)).collect())
                    }
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

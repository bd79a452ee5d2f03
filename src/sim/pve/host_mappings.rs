//! USB devices and directories of hosts that VMs get by mappings (pve-manager, `PVE/API2/Cluster/Mapping/{USB,Dir}.pm`; qemu-server,
//! `USB.pm` and `Virtiofs.pm`). Words of errors as there.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::access::Caller;
use super::properties;
use super::world::{PveWorld, SimVm};

impl PveWorld {
    /// The mappings of a kind that a caller may see: by name the hosts that have one.
    pub(super) fn host_mappings(
        &self,
        caller: &Caller,
        kind: &str,
        all: &BTreeMap<String, Vec<String>>,
    ) -> Value {
        let privileges = ["Mapping.Audit", "Mapping.Modify", "Mapping.Use"];
        let seen = all
            .iter()
            .filter(|(id, _)| self.allowed(caller, &format!("/mapping/{kind}/{id}"), &privileges));
        let rows = seen.map(|(id, hosts)| {
            let what = match kind {
                "usb" => "id=1050:0407",
                _ => "path=/srv/data",
            };
            let map = hosts.iter().map(|host| format!("{what},node={host}"));
            json!({ "id": id, "type": kind, "map": map.collect::<Vec<_>>(), "description": "" })
        });
        json!(rows.collect::<Vec<_>>())
    }

    /// Whether a VM may start on a host with the USB devices and directories that its configuration names by their mappings.
    pub(super) fn check_host_mappings(&self, node: &str, vm: &SimVm) -> Result<(), String> {
        let on_host = |hosts: &Vec<String>| hosts.iter().any(|host| host == node);
        for (key, value) in &vm.config {
            let stem = key.trim_end_matches(|last: char| last.is_ascii_digit());
            match stem {
                "usb" => {
                    let properties = properties(value, "host");
                    let Some(mapping) = properties.get("mapping").copied() else {
                        continue;
                    };
                    let hosts = self.spec.usb_mappings.get(mapping);
                    if !hosts.is_some_and(on_host) {
                        return Err(format!("USB device mapping not found for '{mapping}'"));
                    }
                }
                "virtiofs" => {
                    let properties = properties(value, "dirid");
                    let Some(mapping) = properties.get("dirid").copied() else {
                        continue;
                    };
                    let Some(hosts) = self.spec.dir_mappings.get(mapping) else {
                        return Err(format!("Directory ID {mapping} does not exist."));
                    };
                    if !on_host(hosts) {
                        return Err(format!("No directory mapping for node {node}."));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

//! What a VM says of itself: configuration, status, cloud-init.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::options::is_numeric;
use super::table::CallHandler;
use super::wire::{ErrorAnswer, encode};
use super::world::{PveWorld, Run, SimVm};
use super::{CheckedCall, Pve};
use crate::model::time::Time;

/// What PVE shows of a password.
const HIDDEN: &str = "**********";

impl Pve {
    /// A container's configuration; its changes take effect at once.
    pub(super) fn container_config(&self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        self.world(|world, _| {
            let (host, vmid) = (&asked.node, asked.vmid);
            let found = world.vms.get(&vmid);
            let found = found.filter(|vm| vm.host == *host && vm.container);
            let missing = || {
                let file = format!("nodes/{host}/lxc/{vmid}.conf");
                ErrorAnswer::die(format!("Configuration file '{file}' does not exist"))
            };
            Ok(found.ok_or_else(missing)?.config_answer(true))
        })
    }

    pub(super) fn vm_read(
        &self,
        act: CallHandler,
        asked: &CheckedCall,
    ) -> Result<Value, ErrorAnswer> {
        self.world(|world, now| {
            let vm = world
                .vm(&asked.node, asked.vmid)
                .map_err(ErrorAnswer::die)?;
            match act {
                CallHandler::VmConfig => match asked.given("snapshot") {
                    Some(name) => Err(ErrorAnswer::die(format!(
                        "snapshot '{name}' does not exist"
                    ))),
                    None => Ok(vm.config_answer(asked.flag("current"))),
                },
                CallHandler::VmPending => Ok(vm.pending_answer()),
                CallHandler::VmCurrent => Ok(world.current(vm, now)),
                CallHandler::VmFeature => Ok(world.feature(vm, asked.text("feature"))),
                CallHandler::VmSnapshots => Ok(json!([{
                    "name": "current", "description": "You are here!", "digest": vm.digest(),
                    "running": u8::from(vm.run.is_on()),
                }])),
                CallHandler::CloudInit => Ok(vm.cloud_init()),
                CallHandler::CloudInitDump => Ok(json!(vm.dump(asked.text("type")))),
                _ => {
                    if vm.drives().iter().any(|(_, drive)| drive.is_cloudinit()) {
                        Ok(Value::Null)
                    } else {
                        Err(ErrorAnswer::die("No cloudinit drive found"))
                    }
                }
            }
        })
    }
}

impl PveWorld {
    /// `status/current`: the truth, without staleness.
    pub(super) fn current(&self, vm: &SimVm, now: Time) -> Value {
        let on = vm.run.process();
        let mut row = json!({
            "vmid": vm.vmid, "status": if on.is_some() { "running" } else { "stopped" },
            "qmpstatus": match vm.run { Run::Stopped => "stopped", Run::Running { .. } => "running", Run::Paused { .. } => "paused" },
            "cpus": vm.cpus(), "maxmem": vm.memory_mib() << 20, "maxdisk": vm.boot_disk(),
            "cpu": 0, "mem": 0, "disk": 0, "netin": 0, "netout": 0, "diskread": 0, "diskwrite": 0, "uptime": 0,
            "ha": { "managed": u8::from(self.ha.contains_key(&vm.vmid)) },
        });
        if let Some(state) = self.ha.get(&vm.vmid) {
            row["ha"]["state"] = json!(state);
        }
        if let Some((since, pid)) = on {
            row["pid"] = json!(pid);
            row["uptime"] = json!(now.since(since).0 / 1_000);
            row["cpu"] = json!(0.01);
            row["mem"] = json!((vm.memory_mib() << 20) / 2);
            row["running-qemu"] = json!("10.1.2");
            row["running-machine"] = json!("pc-i440fx-10.1+pve0");
        }
        row["name"] = json!(vm.title());
        for key in ["tags", "lock"] {
            if let Some(text) = vm.config.get(key) {
                row[key] = json!(text);
            }
        }
        if vm.flag("template") {
            row["template"] = json!(1);
        }
        if super::properties(vm.text("agent"), "enabled").get("enabled") == Some(&"1") {
            row["agent"] = json!(1);
        }
        row
    }

    fn feature(&self, vm: &SimVm, feature: &str) -> Value {
        let shared = vm
            .drives()
            .iter()
            .all(|(_, drive)| !super::power::is_local(self, drive));
        let nodes: Vec<&String> = if shared {
            self.hosts.keys().collect()
        } else {
            vec![&vm.host]
        };
        let has = feature != "clone" || vm.flag("template");
        json!({ "hasFeature": u8::from(has), "nodes": nodes })
    }
}

impl SimVm {
    /// A value as PVE answers it.
    fn answered(&self, key: &str, value: &str) -> Value {
        match key {
            "cipassword" => json!(HIDDEN),
            _ if is_numeric(key) || self.numbers.contains(key) => match value.parse::<i64>() {
                Ok(number) => json!(number),
                Err(_) => json!(value),
            },
            _ => json!(value),
        }
    }

    /// `GET config`: with the pending changes merged in, or as applied now.
    pub(super) fn config_answer(&self, current: bool) -> Value {
        let mut config = self.config.clone();
        if !current {
            for (key, value) in &self.pending {
                match value {
                    Some(value) => config.insert(key.clone(), value.clone()),
                    None => config.remove(key),
                };
            }
        }
        let mut answer: serde_json::Map<String, Value> = config
            .iter()
            .map(|(key, value)| (key.clone(), self.answered(key, value)))
            .collect();
        answer.insert("digest".to_owned(), json!(self.digest()));
        Value::Object(answer)
    }

    /// `GET pending`.
    pub(super) fn pending_answer(&self) -> Value {
        let keys: BTreeSet<&String> = self.config.keys().chain(self.pending.keys()).collect();
        let mut rows: Vec<Value> = keys
            .into_iter()
            .map(|key| {
                let mut row = json!({ "key": key });
                if let Some(value) = self.config.get(key) {
                    row["value"] = self.answered(key, value);
                }
                match self.pending.get(key) {
                    Some(Some(value)) => row["pending"] = self.answered(key, value),
                    Some(None) => row["delete"] = json!(1),
                    None => {}
                }
                row
            })
            .collect();
        rows.push(json!({ "key": "digest", "value": self.digest() }));
        json!(rows)
    }
}

impl SimVm {
    fn cloud_init(&self) -> Value {
        let keys = self.config.iter().filter(|(key, _)| {
            matches!(
                key.as_str(),
                "cicustom"
                    | "cipassword"
                    | "ciuser"
                    | "ciupgrade"
                    | "citype"
                    | "nameserver"
                    | "searchdomain"
                    | "sshkeys"
                    | "name"
            ) || key.starts_with("ipconfig")
        });
        let rows = keys.map(|(key, value)| {
            let mut row = json!({ "key": key, "value": value });
            if let Some(pending) = self.pending.get(key).cloned().flatten() {
                row["pending"] = json!(pending);
            }
            row
        });
        json!(rows.collect::<Vec<_>>())
    }

    /// What PVE generates for cloud-init; the custom files of `cicustom` are not looked at.
    fn dump(&self, kind: &str) -> String {
        match kind {
            "user" => {
                let name = self.text("name");
                let upgrade = self.text("ciupgrade") != "0";
                let user = self
                    .config
                    .get("ciuser")
                    .map(|user| format!("user: {user}\n"))
                    .unwrap_or_default();
                format!(
                    "#cloud-config\nhostname: {name}\nmanage_etc_hosts: true\nfqdn: {name}\n{user}package_upgrade: {upgrade}\n"
                )
            }
            "network" => format!(
                "version: 1\nconfig:\n    - type: physical\n      name: eth0\n      ipconfig: {}\n",
                self.text("ipconfig0")
            ),
            _ => format!("instance-id: {}\n", encode(&self.digest())),
        }
    }
}

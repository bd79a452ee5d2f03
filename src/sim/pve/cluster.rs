//! Reading the cluster: hosts, resources, storages, and what a VM is doing.

use serde_json::{Value, json};

use super::disks::ISCSI_PORTAL;
use super::kinds::StorageKind;
use super::schema::split;
use super::table::CallHandler;
use super::wire::ErrorAnswer;
use super::world::{PveWorld, Shown, SimHost, SimVm};
use super::{CheckedCall, Pve, access::Caller};
use crate::model::time::Time;

impl Pve {
    pub(super) fn cluster_read(
        &self,
        act: CallHandler,
        asked: &CheckedCall,
    ) -> Result<Value, ErrorAnswer> {
        if act == CallHandler::Permissions {
            return Ok(self.permissions(asked));
        }
        self.world(|world, now| match act {
            CallHandler::Version | CallHandler::NodeVersion => Ok(world.version()),
            CallHandler::LoginForm => Ok(Value::Null),
            CallHandler::ClusterStatus => Ok(world.status(&asked.node)),
            CallHandler::ClusterResources => Ok(world.resources(asked, now)),
            CallHandler::ClusterOptions => Ok(world.cluster_options(&asked.caller)),
            CallHandler::NextId => world.next_id(asked),
            CallHandler::HaList => Ok(world.ha_list()),
            CallHandler::HaAdd => world.ha_add(asked),
            CallHandler::HaRemove => world.ha_remove(asked),
            CallHandler::Mappings => Ok(world.mappings(&asked.caller)),
            CallHandler::MediatedLeft => Ok(world.mediated_left(&asked.node, asked)),
            CallHandler::UsbMappings => {
                Ok(world.host_mappings(&asked.caller, "usb", &world.spec.usb_mappings))
            }
            CallHandler::DirMappings => {
                Ok(world.host_mappings(&asked.caller, "dir", &world.spec.dir_mappings))
            }
            CallHandler::Pools => Ok(world.pool_list(asked)),
            CallHandler::Storages => Ok(world.storage_definitions(&asked.caller)),
            CallHandler::Nodes => Ok(world.nodes(&asked.caller, now)),
            CallHandler::NodeStatus => Ok(world.node_status(&asked.node, now)),
            CallHandler::NodeTime => {
                let host = world.hosts.get(&asked.node);
                let seconds = now.0 / 1_000 + host.map_or(0, |host| host.spec.clock_ahead);
                Ok(json!({ "time": seconds, "localtime": seconds, "timezone": "UTC" }))
            }
            CallHandler::NodeLoad => Ok(world.rrddata(&asked.node, now)),
            CallHandler::NodeNetwork => Ok(world.network(asked)),
            CallHandler::VNets => Ok(world.vnets(&asked.caller)),
            CallHandler::NodeStorages => Ok(world.node_storages(asked)),
            CallHandler::StorageStatus => world.storage_status(asked),
            CallHandler::StorageContent => world.storage_content(asked),
            CallHandler::VmList => Ok(world.vm_list(asked, now)),
            _ => Err(ErrorAnswer::not_implemented("", "")),
        })
    }
}

impl PveWorld {
    fn version(&self) -> Value {
        let release = self
            .spec
            .version
            .rsplit_once('.')
            .map_or(self.spec.version.as_str(), |(release, _)| release);
        json!({ "version": self.spec.version, "release": release, "repoid": "5155a0f50e2c3a3e" })
    }

    fn status(&self, local: &str) -> Value {
        // A host in no cluster has no line of the cluster, and the number 0.
        let alone = self.spec.cluster.is_empty();
        let mut rows = Vec::new();
        if !alone {
            rows.push(json!({
                "type": "cluster", "id": "cluster", "name": self.spec.cluster, "nodes": self.hosts.len(),
                "quorate": u8::from(self.quorate), "version": self.hosts.len(),
            }));
        }
        rows.extend(self.members().enumerate().map(|(at, host)| {
            let name = &host.spec.name;
            json!({
                "type": "node", "id": format!("node/{name}"), "name": name, "nodeid": if alone { 0 } else { at + 1 },
                "ip": host.spec.address, "online": u8::from(host.offline_since.is_none()),
                "local": u8::from(name == local), "level": "",
            })
        }));
        json!(rows)
    }

    fn next_id(&self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        if let Some(vmid) = asked.given("vmid") {
            let taken = vmid
                .parse()
                .is_ok_and(|vmid: u32| self.vms.contains_key(&vmid));
            return if taken {
                Err(ErrorAnswer::parameter(
                    "vmid",
                    format!("VM {vmid} already exists"),
                ))
            } else {
                Ok(json!(vmid))
            };
        }
        let [lower, upper] = self.spec.next_id;
        match (lower..upper).find(|vmid| !self.vms.contains_key(vmid)) {
            Some(vmid) => Ok(json!(vmid.to_string())),
            None => Err(ErrorAnswer::die(format!(
                "unable to get any free VMID in range [{lower}, {upper}]"
            ))),
        }
    }

    fn resources(&self, asked: &CheckedCall, now: Time) -> Value {
        let wanted = asked.given("type");
        let is = |kind: &str| wanted.is_none_or(|wanted| wanted == kind);
        let mut rows = Vec::new();
        if is("vm") {
            let seen = self.vms.values().filter(|vm| {
                self.allowed(&asked.caller, &format!("/vms/{}", vm.vmid), &["VM.Audit"])
            });
            rows.extend(seen.map(|vm| self.vm_resource(&asked.caller, vm, now)));
        }
        if is("node") {
            rows.extend(
                self.members()
                    .map(|host| self.node_row(&asked.caller, host, now, true)),
            );
        }
        if is("storage") {
            rows.extend(self.storage_resources(&asked.caller));
        }
        if is("sdn") {
            rows.extend(self.members().map(|host| {
                let name = &host.spec.name;
                let status = if host.offline_since.is_none() {
                    "ok"
                } else {
                    "unknown"
                };
                json!({
                    "id": format!("sdn/{name}/localnetwork"), "node": name, "sdn": "localnetwork",
                    "status": status, "type": "sdn",
                })
            }));
        }
        json!(rows)
    }

    /// The hosts that are in the cluster.
    fn members(&self) -> impl Iterator<Item = &SimHost> {
        self.hosts.values().filter(|host| !host.removed)
    }

    fn vm_resource(&self, caller: &Caller, vm: &SimVm, now: Time) -> Value {
        let kind = if vm.container { "lxc" } else { "qemu" };
        let mut row = json!({
            "id": format!("{kind}/{}", vm.vmid), "type": kind, "vmid": vm.vmid, "node": vm.host, "status": "unknown",
        });
        if let Some(shown) = self.shown(vm, now) {
            fill(&mut row, shown, now);
            if let Some(cpus) = self.cpus_without_cores(vm) {
                row["maxcpu"] = cpus;
            }
        }
        for key in ["tags", "lock"] {
            if let Some(text) = vm.config.get(key) {
                row[key] = json!(text);
            }
        }
        let pool = self
            .pools
            .iter()
            .find(|(_, members)| members.contains(&vm.vmid));
        // Who may not see the pool does not see that the VM is in it (Cluster.pm, `resources`).
        if let Some((pool, _)) = pool
            && self.allowed(caller, &format!("/pool/{pool}"), &["Pool.Audit"])
        {
            row["pool"] = json!(pool);
        }
        if let Some(state) = self.ha.get(&vm.vmid) {
            row["hastate"] = json!(state);
        }
        row
    }

    /// What PVE shows as the CPUs of a container without `cores`: its `cpulimit`, which may be a part of one, else all CPUs of its
    /// host (pve-container, `PVE::LXC::vmstatus`). `None` for other guests.
    fn cpus_without_cores(&self, vm: &SimVm) -> Option<Value> {
        if !vm.container || vm.number("cores", 0) > 0 {
            return None;
        }
        let host = self.hosts.get(&vm.host)?;
        let limit = serde_json::from_str::<Value>(vm.text("cpulimit")).ok();
        let limit = limit.filter(|limit| limit.as_f64().is_some_and(|limit| limit > 0.0));
        Some(limit.unwrap_or_else(|| json!(host.spec.cpus)))
    }

    fn node_row(&self, caller: &Caller, host: &SimHost, now: Time, resource: bool) -> Value {
        let name = &host.spec.name;
        let online = host.offline_since.is_none();
        let mut row = json!({
            "id": format!("node/{name}"), "node": name, "type": "node", "level": "",
            "status": if online { "online" } else { "offline" },
        });
        if resource && host.maintenance {
            row["hastate"] = json!("maintenance");
        }
        if !resource {
            row["ssl_fingerprint"] = json!(format!("{:0<95}", "AA:").replace("00", ":0"));
        }
        if online && self.allowed(caller, &format!("/nodes/{name}"), &["Sys.Audit"]) {
            row["cpu"] = json!(f64::from(host.cpu_permille) / 1000.0);
            row["maxcpu"] = json!(host.spec.cpus);
            row["mem"] = json!(self.memory_used(name));
            row["maxmem"] = json!(host.spec.memory);
            row["uptime"] = json!(now.since(host.booted).0 / 1_000);
            row["disk"] = json!(super::GIB * 8);
            row["maxdisk"] = json!(super::GIB * 96);
            row["cgroup-mode"] = json!(2);
        }
        row
    }

    fn nodes(&self, caller: &Caller, now: Time) -> Value {
        json!(
            self.members()
                .map(|host| self.node_row(caller, host, now, false))
                .collect::<Vec<_>>()
        )
    }

    /// Memory that the host's own system and its running machines take, in bytes.
    pub(super) fn memory_used(&self, host: &str) -> u64 {
        let running = self
            .vms
            .values()
            .filter(|vm| vm.host == host && vm.run.is_on());
        let own = self.hosts.get(host).map_or(0, |host| host.own_memory);
        own + running.map(|vm| vm.memory_mib() << 20).sum::<u64>()
    }

    fn node_status(&self, name: &str, now: Time) -> Value {
        let Some(host) = self.hosts.get(name) else {
            return Value::Null;
        };
        let used = self.memory_used(name).min(host.spec.memory);
        let free = host.spec.memory - used;
        let (total, taken) = (96 * super::GIB, 8 * super::GIB);
        json!({
            "cpu": f64::from(host.cpu_permille) / 1000.0, "idle": 0, "wait": 0.001,
            "cpuinfo": {
                "cpus": host.spec.cpus, "cores": host.spec.cpus.div_ceil(2), "sockets": 1,
                "model": "Simulated CPU", "mhz": "3000.000", "flags": host.spec.cpu_flags, "hvm": "1", "user_hz": 100,
            },
            "memory": { "total": host.spec.memory, "used": used, "free": free, "available": free },
            "swap": { "total": 0, "used": 0, "free": 0 },
            "rootfs": { "total": total, "used": taken, "free": total - taken, "avail": total - taken },
            "loadavg": ["0.10", "0.12", "0.09"], "uptime": now.since(host.booted).0 / 1_000,
            "kversion": "Linux 6.17.2-1-pve #1 SMP PREEMPT_DYNAMIC", "ksm": { "shared": 0 },
            "current-kernel": {
                "sysname": "Linux", "release": "6.17.2-1-pve", "version": "#1 SMP PREEMPT_DYNAMIC", "machine": "x86_64",
            },
            "boot-info": { "mode": "efi", "secureboot": 0 },
            "pveversion": format!("pve-manager/{}/5155a0f50e2c3a3e", self.spec.version),
        })
    }

    fn storage_row(&self, storage: &str, host: &str) -> Value {
        let Some(spec) = self.storages.get(storage) else {
            return Value::Null;
        };
        let mut row = json!({
            "storage": storage, "type": spec.kind.as_str(), "content": spec.content, "enabled": 1,
            "active": u8::from(spec.active), "shared": u8::from(spec.shared), "total": 0, "avail": 0, "used": 0,
        });
        if spec.active {
            let (used, available) = self.space(storage, host);
            row["total"] = json!(spec.total);
            row["used"] = json!(used);
            row["avail"] = json!(available);
            #[expect(clippy::cast_precision_loss, reason = "a fraction for people")]
            let fraction = if spec.total == 0 {
                0.0
            } else {
                used as f64 / spec.total as f64
            };
            row["used_fraction"] = json!(fraction);
        }
        row
    }

    fn on_host(&self, host: &str) -> impl Iterator<Item = &super::StorageSpec> {
        let host = host.to_owned();
        self.storages.values().filter(move |spec| {
            spec.hosts
                .as_ref()
                .is_none_or(|hosts| hosts.contains(&host))
        })
    }

    fn node_storages(&self, asked: &CheckedCall) -> Value {
        let content = asked.given("content");
        let held = |spec: &super::StorageSpec| {
            content.is_none_or(|wanted| {
                split(wanted).all(|one| split(&spec.content).any(|held| held == one))
            })
        };
        let rows = self
            .on_host(&asked.node)
            .filter(|spec| {
                asked.given("storage").is_none_or(|name| name == spec.name) && held(spec)
            })
            .filter(|spec| self.sees_storage(&asked.caller, &spec.name))
            .map(|spec| self.storage_row(&spec.name, &asked.node));
        json!(rows.collect::<Vec<_>>())
    }

    fn sees_storage(&self, caller: &Caller, storage: &str) -> bool {
        self.allowed(
            caller,
            &format!("/storage/{storage}"),
            &["Datastore.Audit", "Datastore.AllocateSpace"],
        )
    }

    fn storage_resources(&self, caller: &Caller) -> Vec<Value> {
        let mut rows = Vec::new();
        for host in self.hosts.values() {
            let name = &host.spec.name;
            for spec in self
                .on_host(name)
                .filter(|spec| self.sees_storage(caller, &spec.name))
            {
                let online = host.offline_since.is_none() && spec.active;
                let mut row = json!({
                    "id": format!("storage/{name}/{}", spec.name), "type": "storage", "storage": spec.name,
                    "node": name, "plugintype": spec.kind.as_str(), "content": spec.content,
                    "shared": u8::from(spec.shared), "status": if online { "available" } else { "unknown" },
                });
                if online {
                    row["disk"] = json!(self.space(&spec.name, name).0);
                    row["maxdisk"] = json!(spec.total);
                }
                rows.push(row);
            }
        }
        rows
    }

    fn storage_definitions(&self, caller: &Caller) -> Value {
        let seen = self
            .storages
            .values()
            .filter(|spec| self.sees_storage(caller, &spec.name));
        let rows = seen.map(|spec| {
            let mut row = json!({ "storage": spec.name, "type": spec.kind.as_str(), "content": spec.content });
            if spec.shared {
                row["shared"] = json!(1);
            }
            if let Some(path) = PveWorld::directory(spec.kind, &spec.name) {
                row["path"] = json!(path);
            }
            let volumes_in = spec.volumes_in.as_ref().unwrap_or(&spec.name);
            match spec.kind {
                StorageKind::ZfsPool | StorageKind::Rbd => row["pool"] = json!(volumes_in),
                StorageKind::Zfs => {
                    row["pool"] = json!(volumes_in);
                    row["portal"] = json!(ISCSI_PORTAL);
                    row["target"] = json!("iqn.2003-01.org.example:vms");
                    row["iscsiprovider"] = json!("LIO");
                }
                StorageKind::CephFs => row["fs-name"] = json!(volumes_in),
                StorageKind::Pbs => {
                    row["server"] = json!("backup");
                    row["datastore"] = json!(volumes_in);
                }
                StorageKind::Iscsi => {
                    row["portal"] = json!(ISCSI_PORTAL);
                    row["target"] = json!(format!("iqn.2003-01.org.example:{volumes_in}"));
                }
                StorageKind::Lvm => row["vgname"] = json!(volumes_in),
                StorageKind::LvmThin => {
                    row["vgname"] = json!("pve");
                    row["thinpool"] = json!(volumes_in);
                }
                StorageKind::Nfs => {
                    row["server"] = json!("nas");
                    row["export"] = json!(format!("/export/{volumes_in}"));
                }
                StorageKind::Dir | StorageKind::Btrfs => {}
            }
            if let Some(hosts) = &spec.hosts {
                row["nodes"] = json!(hosts.join(","));
            }
            row
        });
        json!(rows.collect::<Vec<_>>())
    }

    fn storage_status(&self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        let name = asked.text("storage");
        if !self.storages.contains_key(name) {
            return Err(ErrorAnswer::die(format!("storage '{name}' does not exist")));
        }
        if self.on_host(&asked.node).all(|spec| spec.name != name) {
            return Err(ErrorAnswer::die(format!(
                "storage '{name}' is not available on node '{}'",
                asked.node
            )));
        }
        Ok(self.storage_row(name, &asked.node))
    }

    fn storage_content(&self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        let name = asked.text("storage");
        self.usable(name, &asked.node).map_err(ErrorAnswer::die)?;
        if asked.given("content") == Some("import") {
            return Ok(self.image_rows(name, &asked.node));
        }
        if asked.given("content") == Some("iso") {
            return Ok(self.iso_rows(name, &asked.node));
        }
        if asked.given("content") == Some("snippets") {
            return Ok(self.snippet_rows(asked, name));
        }
        let place = self.place(name, &asked.node).to_owned();
        let spec = self.storages.get(name);
        let block = spec.is_some_and(|spec| spec.kind.is_block());
        // The base is told as a snapshot, and the time of making is not told.
        let snapshots =
            spec.is_some_and(|spec| spec.kind.is_zfs() || spec.kind == StorageKind::Rbd);
        let kind = asked
            .given("content")
            .is_none_or(|wanted| wanted == "images");
        let rows = self
            .volumes
            .values()
            .filter(|volume| kind && volume.storage == name && volume.host == place)
            .filter(|volume| {
                asked
                    .given("vmid")
                    .is_none_or(|vmid| volume.vmid.to_string() == vmid)
            })
            .map(|volume| {
                let mut row = json!({
                    "volid": volume.id, "vmid": volume.vmid, "size": volume.size,
                    "format": volume.format, "content": "images", "ctime": volume.ctime,
                });
                // How much of a file is written PVE tells, and of a volume it does not; of those of ZFS and Ceph not when they were made either.
                if block {
                    row["ctime"] = json!(volume.ctime.to_string());
                } else {
                    row["used"] = json!(volume.used);
                }
                if let Some(parent) = &volume.parent {
                    let name = parent.split_once(':');
                    let name = name.map_or(parent.as_str(), |(_, name)| name);
                    row["parent"] = if snapshots {
                        json!(format!("{name}@__base__"))
                    } else {
                        json!(name)
                    };
                }
                if snapshots && let Some(row) = row.as_object_mut() {
                    row.remove("ctime");
                }
                row
            });
        Ok(json!(rows.collect::<Vec<_>>()))
    }

    fn vm_list(&self, asked: &CheckedCall, now: Time) -> Value {
        let rows = self
            .vms
            .values()
            .filter(|vm| vm.host == asked.node && !vm.container)
            .filter(|vm| self.allowed(&asked.caller, &format!("/vms/{}", vm.vmid), &["VM.Audit"]))
            .map(|vm| self.current(vm, now));
        json!(rows.collect::<Vec<_>>())
    }

    fn ha_list(&self) -> Value {
        let rows = self.ha.iter().map(|(vmid, state)| {
            json!({ "sid": format!("vm:{vmid}"), "type": "vm", "state": state, "max_restart": 1, "max_relocate": 1 })
        });
        json!(rows.collect::<Vec<_>>())
    }

    fn ha_add(&mut self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        let vmid = resource(asked)?;
        if !self.vms.contains_key(&vmid) {
            return Err(ErrorAnswer::die(format!("unable to read vm {vmid} config")));
        }
        if self.ha.contains_key(&vmid) {
            return Err(ErrorAnswer::die(format!(
                "resource ID 'vm:{vmid}' already defined"
            )));
        }
        self.ha
            .insert(vmid, asked.given("state").unwrap_or("started").to_owned());
        Ok(Value::Null)
    }

    fn ha_remove(&mut self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        let vmid = resource(asked)?;
        match self.ha.remove(&vmid) {
            Some(_) => Ok(Value::Null),
            None => Err(ErrorAnswer::die(format!("no such resource 'vm:{vmid}'"))),
        }
    }

    fn pool_list(&self, asked: &CheckedCall) -> Value {
        let seen = self.pools.iter().filter(|(name, _)| {
            asked
                .given("poolid")
                .is_none_or(|wanted| wanted == name.as_str())
                && self.allowed(&asked.caller, &format!("/pool/{name}"), &["Pool.Audit"])
        });
        let rows = seen.map(|(name, members)| {
            let mut row = json!({ "poolid": name });
            if asked.given("poolid").is_some() {
                let machines = members.iter().filter_map(|vmid| self.vms.get(vmid));
                let members = machines.map(|vm| {
                    let kind = if vm.container { "lxc" } else { "qemu" };
                    json!({ "id": format!("{kind}/{}", vm.vmid), "type": kind, "vmid": vm.vmid, "node": vm.host })
                });
                row["members"] = json!(members.collect::<Vec<_>>());
            }
            row
        });
        json!(rows.collect::<Vec<_>>())
    }
}

fn resource(asked: &CheckedCall) -> Result<u32, ErrorAnswer> {
    let sid = asked.text("sid");
    let vmid = sid.strip_prefix("vm:").unwrap_or(sid).parse();
    vmid.map_err(|_| {
        ErrorAnswer::parameter(
            "sid",
            "invalid format - value does not look like a valid ha resource id\n",
        )
    })
}

/// What a broadcast says, as the resources show it.
fn fill(row: &mut Value, shown: &Shown, now: Time) {
    let on = shown.run.process();
    row["status"] = json!(if on.is_some() { "running" } else { "stopped" });
    row["name"] = json!(shown.name);
    row["template"] = json!(u8::from(shown.template));
    row["maxcpu"] = json!(shown.cpus);
    row["maxmem"] = json!(shown.memory);
    row["maxdisk"] = json!(shown.disk);
    row["uptime"] = json!(on.map_or(0, |(since, _)| now.since(since).0 / 1_000));
    row["cpu"] = if on.is_some() { json!(0.01) } else { json!(0) };
    row["mem"] = json!(if on.is_some() { shown.memory / 2 } else { 0 });
    for key in ["disk", "netin", "netout", "diskread", "diskwrite"] {
        row[key] = json!(0);
    }
}

//! A PVE of a few VMs behind the broker's seam: reads are answered, changes are kept for the test.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::broker::forward::{ForwardResult, PveAnswer, PveChannel};
use crate::broker::policy::{BrokerPolicy, GuestValues};
use crate::config::file::{BootDevice, Create};
use crate::config::new_vm::NewVm;
use crate::config::settings::{AddressSource, BrokerAllow, NetworkSettings, PoolAllow, TypeAllow};
use crate::model::mark::Mark;
use crate::model::network::AddressRange;
use crate::model::time::{Span, Time};
use crate::pve::{HttpMethod, PveRequest};

/// The only host.
pub(in crate::broker) const HOST: &str = "pve1";
/// Our cluster.
pub(in crate::broker) const CLUSTER: &str = "0b5f3a6e/home";
/// What a task's call gives.
pub(in crate::broker) const UPID: &str =
    "UPID:pve1:0003A1B2:00C3D4E5:66F0A1B2:qmclone:9000:root@pam:";

/// A mark of ours for `vmid`.
pub(in crate::broker) fn mark(vmid: u32) -> Mark {
    Mark {
        cluster: CLUSTER.into(),
        machine: format!("small-{vmid:05}"),
        vmid,
        pool: "small".into(),
        instance_type: "s2".into(),
        template: "debian-13".into(),
        token: "abc123".into(),
        created: Time(1_795_000_000_000),
        addresses: BTreeMap::new(),
        cpus: crate::model::cpus::CpuSet::new(),
        unknown: [].into(),
    }
}

/// A mark of ours for a machine that is made of settings.
pub(in crate::broker) fn bare(vmid: u32) -> Mark {
    Mark {
        machine: format!("bare-{vmid:05}"),
        pool: "bare".into(),
        template: "bare".into(),
        token: String::new(),
        ..mark(vmid)
    }
}

/// What machines of the pool `bare` are made of.
pub(in crate::broker) fn new_vm() -> NewVm {
    let create = Create {
        storage: ["ceph", "nvme"].into(),
        image: Some("local:import/a.qcow2".to_owned()),
        boot: vec![BootDevice::Disk, BootDevice::Network],
        ..Create::default()
    };
    NewVm {
        create,
        net: "virtio,bridge=vmbr0".to_owned(),
        disk: BTreeMap::new(),
        pool: Some("k8s".to_owned()),
    }
}

/// VMIDs 9001 to 9099, template 9000, one of everything else.
pub(in crate::broker) fn policy() -> BrokerPolicy {
    let text = |text: &str| text.to_owned();
    BrokerPolicy {
        allow: BrokerAllow {
            vmids: vec![(9001, 9099)],
            template_vmids: vec![9000],
            template_names: vec![text("debian-13")],
            storages: vec![text("ceph")],
            iso_storages: vec![text("local")],
            iso_region: Some(text("home")),
            bridges: vec![text("vmbr0"), text("vmbr1")],
            resource_pools: vec![text("k8s")],
            template_pools: [(text("debian-13"), text("k8s"))].into(),
            template_groups: [(text("debian-13"), vec![(text("web"), 0)])].into(),
            max_cores: 8,
            max_memory: 16 << 30,
            max_disk: 64 << 30,
            pools: [(
                text("small"),
                PoolAllow {
                    max: 20,
                    types: vec![text("s2")],
                    template_vmid: Some(9000),
                    template_name: Some(text("debian-13")),
                    ..PoolAllow::default()
                },
            )]
            .into_iter()
            .chain([(
                text("bare"),
                PoolAllow {
                    max: 20,
                    types: vec![text("s2")],
                    exclude_hosts: vec![text("pve2")],
                    new_vm: Some(text("bare")),
                    ..PoolAllow::default()
                },
            )])
            .collect(),
            types: [(
                text("s2"),
                TypeAllow {
                    cores: 8,
                    memory: 16 << 30,
                    disk: 64 << 30,
                    pci: Vec::new(),
                },
            )]
            .into(),
            new_vms: [(text("bare"), Arc::new(new_vm()))].into(),
            cluster_name: text("home"),
            quarantine: Span::minutes(10),
            ..BrokerAllow::default()
        },
        hash: text("hash"),
        group: text("root"),
        socket: "/nowhere".into(),
        guest: GuestValues {
            cpu_types: [text("host")].into(),
            ipconfigs: [text("ip=dhcp")].into(),
            users: [text("debian")].into(),
            nameservers: [text("192.0.2.53")].into(),
            searchdomains: [text("example.org")].into(),
            ssh_keys: [text("ssh-ed25519 AAAA+/= a b!")].into(),
            vlans: [20].into(),
            mtus: [1400].into(),
            multiqueues: [true].into(),
            rates: [125].into(),
            cpu_units: [(text("small"), 300)].into(),
            ..GuestValues::default()
        },
    }
}

/// The same, with a network for the pool.
pub(in crate::broker) fn networked() -> BrokerPolicy {
    let mut policy = policy();
    let address = |last: u8| std::net::IpAddr::from([192, 0, 2, last]);
    let network = NetworkSettings {
        ipv4: AddressSource::Ranges {
            prefix: 24,
            gateway: Some(address(1)),
            ranges: vec![AddressRange {
                first: address(50),
                last: address(59),
            }],
        },
        ..NetworkSettings::default()
    };
    policy.allow.networks.insert("lan".to_owned(), network);
    let pool = policy.allow.pools.get_mut("small").expect("there");
    pool.networks.insert(0, "lan".to_owned());
    policy
}

/// The mark with an address.
pub(in crate::broker) fn mark_at(vmid: u32, last: u8) -> Mark {
    Mark {
        addresses: [(0, vec![[192, 0, 2, last].into()])].into(),
        ..mark(vmid)
    }
}

/// VMs by VMID, all on [`HOST`], and what was sent.
#[derive(Debug, Default)]
pub(in crate::broker) struct World {
    /// Configurations.
    pub(in crate::broker) vms: Mutex<BTreeMap<u32, Value>>,
    /// Answers by path, before anything else.
    pub(in crate::broker) answers: Mutex<BTreeMap<String, ForwardResult>>,
    /// Everything sent, in order.
    pub(in crate::broker) sent: Mutex<Vec<PveRequest>>,
    /// Every call waits for a permit of it, if it is set.
    pub(in crate::broker) hang: Mutex<Option<Arc<Semaphore>>>,
}

impl World {
    /// One VM of every kind: 9001 ours, 9002 unmarked, 9003 another cluster's, 9004 with an edited
    /// mark, 9005 a copy, 9006 the placeholder of a clone, 9007 with a doubled mark, 9008 of an
    /// unknown version, 9009 ours but a template, 9010 ours in a clone that is stuck, 9000 the
    /// template, 200 a template not named, 300 a foreign VM, 400 ours outside the range.
    pub(in crate::broker) fn new() -> World {
        let world = World::default();
        let ours = |vmid: u32| mark(vmid).describe("made for the shop");
        let other = Mark {
            cluster: "0b5f3a6e/other".into(),
            ..mark(9003)
        };
        for (vmid, description) in [
            (9001, ours(9001)),
            (9002, "a VM of somebody".to_owned()),
            (9003, other.line()),
            (9004, mark(9004).line().replace("small", "large")),
            (9005, ours(9001)),
            (9006, String::new()),
            (
                9007,
                format!("{}\n{}", mark(9007).line(), mark(9007).line()),
            ),
            (9008, mark(9008).line().replace(":v1 ", ":v2 ")),
            (9009, ours(9009)),
            (9010, ours(9010)),
            (9000, String::new()),
            (200, String::new()),
            (300, "production".to_owned()),
            (400, ours(400)),
        ] {
            world.put(vmid, &description);
        }
        for vmid in [9000, 200, 9009] {
            world.set(vmid, "template", json!(1));
        }
        world.set(9000, "name", json!("debian-13"));
        world.placeholder(9006);
        world.set(9010, "lock", json!("clone"));
        world
    }

    /// Makes a VM with this description.
    pub(in crate::broker) fn put(&self, vmid: u32, description: &str) {
        let config = json!({
            "name": format!("small-{vmid:05}"), "cores": 2, "memory": "2048", "digest": "d1d1",
            "scsi0": format!("ceph:vm-{vmid}-disk-0,size=8G"),
            "ide2": format!("ceph:vm-{vmid}-cloudinit,media=cdrom"),
            "scsi1": "/dev/sda,size=1T",
            "net0": "virtio=BC:24:11:00:11:22,bridge=vmbr9,firewall=1,tag=7",
            "description": description,
        });
        self.vms.lock().expect("held").insert(vmid, config);
    }

    /// Puts at `vmid` what PVE writes there when a clone begins.
    pub(in crate::broker) fn placeholder(&self, vmid: u32) {
        let config =
            json!({"lock": "clone", "digest": "d1d1", "description": " qmclone temporary file"});
        self.vms.lock().expect("held").insert(vmid, config);
    }

    /// Sets one key of a VM's configuration.
    pub(in crate::broker) fn set(&self, vmid: u32, key: &str, value: Value) {
        let mut vms = self.vms.lock().expect("held");
        vms.get_mut(&vmid).expect("a VM")[key] = value;
    }

    /// From now on `path` is answered with `status` and this data.
    pub(in crate::broker) fn answer(&self, path: &str, status: u16, body: &Value) {
        let sent = ForwardResult::Answer(PveAnswer {
            status,
            reason: String::new(),
            body: body.to_string().into_bytes(),
        });
        let mut answers = self.answers.lock().expect("held");
        answers.insert(path.to_owned(), sent);
    }

    /// What was sent that changes something, or consumes a result.
    pub(in crate::broker) fn changes(&self) -> Vec<PveRequest> {
        let sent = self.sent.lock().expect("held");
        let changing = |request: &&PveRequest| {
            request.method != HttpMethod::Get || request.path.ends_with("/exec-status")
        };
        sent.iter().filter(changing).cloned().collect()
    }

    fn read(&self, path: &str) -> (u16, Value) {
        let vms = self.vms.lock().expect("held");
        if path == "/cluster/resources" {
            let host = json!({"type": "node", "node": HOST, "status": "online"});
            let all: Vec<Value> = vms
                .keys()
                .map(|vmid| json!({"type": "qemu", "node": HOST, "vmid": vmid, "name": format!("small-{vmid:05}"), "maxcpu": 2, "maxmem": 2i64 << 30}))
                .chain([host])
                .collect();
            return (200, json!({ "data": all }));
        }
        if path == "/cluster/status" {
            let hosts =
                [HOST, "pve2"].map(|name| json!({"type": "node", "name": name, "online": 1}));
            return (200, json!({ "data": hosts }));
        }
        let vmid = path
            .strip_prefix("/nodes/pve1/qemu/")
            .and_then(|rest| rest.strip_suffix("/config"))
            .and_then(|vmid| vmid.parse::<u32>().ok());
        let Some(vmid) = vmid else {
            return (200, json!({ "data": [] }));
        };
        if let Some(config) = vms.get(&vmid) {
            return (200, json!({ "data": config }));
        }
        let text =
            format!("Configuration file 'nodes/pve1/qemu-server/{vmid}.conf' does not exist\n");
        (500, json!({ "data": null, "message": text }))
    }
}

impl PveChannel for World {
    fn send<'a>(&'a self, request: &'a PveRequest, _: Instant) -> BoxFuture<'a, ForwardResult> {
        self.sent.lock().expect("held").push(request.clone());
        let prepared = self
            .answers
            .lock()
            .expect("held")
            .get(&request.path)
            .cloned();
        let sent = prepared.unwrap_or_else(|| {
            let (status, body) = match request.method {
                HttpMethod::Get => self.read(&request.path),
                HttpMethod::Post | HttpMethod::Put | HttpMethod::Delete => {
                    (200, json!({ "data": UPID }))
                }
            };
            ForwardResult::Answer(PveAnswer {
                status,
                reason: String::new(),
                body: body.to_string().into_bytes(),
            })
        });
        let hang = self.hang.lock().expect("held").clone();
        async move {
            if let Some(hang) = hang {
                hang.acquire().await.expect("open").forget();
            }
            sent
        }
        .boxed()
    }

    fn channel(&self) -> &'static str {
        "https"
    }

    fn last_error(&self) -> Option<String> {
        None
    }
}

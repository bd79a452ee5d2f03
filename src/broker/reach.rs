//! What a call may be about: hosts of the cluster, VMs of the range, templates of the policy.
//!
//! A daemon that was taken over must not read what root can read: configurations hold notes, `args`
//! and addresses, and PVE connects to whatever host a path names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::config::vm_options;
use crate::model::cpus::CpuSet;
use crate::model::network::fixed_addresses;
use crate::model::pci::PciUse;
use crate::model::topology::is_numa;
use crate::pve::iso_volume;
use crate::pve::perl::{self, Fields};
use crate::pve::sound;

use super::allow::AdmittedCall;
use super::allow::against::may_go;
use super::owned;
use super::policy::BrokerPolicy;
use super::service::{BrokerService, Ends, Reply, place};

/// How long a list of the cluster's hosts is good.
const MEMBERS: Duration = Duration::from_mins(1);
/// A host that is not in the list is looked for anew at most this often.
const AGAIN: Duration = Duration::from_secs(5);

/// What was learnt of PVE that reads are held against.
#[derive(Debug, Default)]
pub(super) struct MembersAndTemplates {
    members: Mutex<Option<(Instant, BTreeSet<String>)>>,
    /// VMs outside the ranges that were seen to be templates of the policy, by name.
    templates: Mutex<BTreeSet<u32>>,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MembersAndTemplates {
    /// Another policy names other templates.
    pub(super) fn forget_templates(&self) {
        held(&self.templates).clear();
    }

    /// Whether `host` is in the list, and the list's age.
    fn member(&self, host: &str) -> Option<(bool, Duration)> {
        let members = held(&self.members);
        let (read, hosts) = members.as_ref()?;
        Some((hosts.contains(host), read.elapsed()))
    }

    /// Keeps the hosts that `/cluster/status` names; an answer without any is none.
    pub(super) fn learn_members(&self, status: &Value) {
        let entries = status.as_array().into_iter().flatten().map(Fields::of);
        let hosts: BTreeSet<String> = entries
            .filter(|entry| entry.text("type").as_deref() == Some("node"))
            .filter_map(|entry| entry.text("name"))
            .collect();
        if !hosts.is_empty() {
            *held(&self.members) = Some((Instant::now(), hosts));
        }
    }
}

impl BrokerService {
    /// Every host that the call names is one of the cluster's.
    pub(super) async fn hosts_are_members(
        &self,
        call: &AdmittedCall,
        end: Instant,
    ) -> Result<(), Ends> {
        for host in call.hosts() {
            self.is_member(host, end).await?;
        }
        Ok(())
    }

    async fn is_member(&self, host: &str, end: Instant) -> Result<(), Ends> {
        let known = self.known.member(host);
        let fresh = match known {
            Some((true, age)) => age < MEMBERS,
            Some((false, age)) => age < AGAIN,
            None => false,
        };
        if !fresh {
            match self.read(&["cluster", "status"], &[], end).await {
                Ok(status) => self.known.learn_members(&status),
                // A cluster that does not answer now has the hosts that it had.
                Err(_) if known.is_some_and(|(member, _)| member) => return Ok(()),
                Err(ends) => return Err(ends),
            }
        }
        match self.known.member(host) {
            Some((true, _)) => Ok(()),
            Some((false, _)) => Err(Reply::refused(&format!(
                "{host} is no host of this cluster (`pvecm nodes` lists them)"
            ))),
            None => Err(Reply::not_sent(
                "cannot look before the call: PVE names no hosts of the cluster",
            )),
        }
    }

    /// The rule of a firewall that a call removes is one of ours, of a VM with our mark, and may go.
    pub(super) async fn own_rule(
        &self,
        policy: &BrokerPolicy,
        call: &AdmittedCall,
        end: Instant,
    ) -> Result<(), Ends> {
        let (host, vmid) = place(call)?;
        let (mark, _, _) = self.ours(policy, call, end).await?;
        let path = [
            "nodes",
            host,
            "qemu",
            &vmid.to_string(),
            "firewall",
            "rules",
        ];
        let rules = self.read(&path, &[], end).await?;
        may_go(policy, call, &mark, &rules).map_err(|why| Reply::refused(&why))
    }

    /// The host of the VM that a call names, by PVE's list.
    pub(super) async fn host_of(&self, call: &AdmittedCall, end: Instant) -> Result<String, Ends> {
        let resources = self.resources(end).await?;
        let vmid = call.subject().map(i64::from);
        let entries = resources.as_array().into_iter().flatten().map(Fields::of);
        let mut entries = entries.filter(|entry| vmid.is_some() && entry.integer("vmid") == vmid);
        let host = entries.find_map(|entry| entry.text("node"));
        host.ok_or_else(|| Reply::refused("PVE's list has no such VM"))
    }

    /// Refuses a read of a VM that lies in no range and is no template of the policy.
    pub(super) async fn in_reach(
        &self,
        policy: &BrokerPolicy,
        call: &AdmittedCall,
        end: Instant,
    ) -> Result<(), Ends> {
        if self.reaches(policy, call, end).await? {
            return Ok(());
        }
        let vmid = call.subject().unwrap_or_default();
        Err(Reply::refused(&format!(
            "VM {vmid} lies in no range of the configuration and is no template of it; \
             nothing of it is told (vmids of the region; vmid, vm_name or tags of the template)"
        )))
    }

    /// Whether the VM that a read is about lies in a range, or is a template of the policy.
    pub(super) async fn reaches(
        &self,
        policy: &BrokerPolicy,
        call: &AdmittedCall,
        end: Instant,
    ) -> Result<bool, Ends> {
        let (Some(host), Some(vmid)) = (call.host.as_deref(), call.subject()) else {
            return Err(Reply::refused("the call names no VM"));
        };
        let allow = &policy.allow;
        if policy.in_range(vmid)
            || allow.template_vmids.contains(&vmid)
            || held(&self.known.templates).contains(&vmid)
        {
            return Ok(true);
        }
        if allow.template_names.is_empty() && allow.template_tags.is_empty() {
            return Ok(false);
        }
        let config = self.config(host, vmid, end).await?;
        if owned::template(policy, vmid, &config).is_err() {
            return Ok(false);
        }
        held(&self.known.templates).insert(vmid);
        Ok(true)
    }
}

/// Of a list that a call asks for what the daemon needs of it. `None` when the answer cannot be read.
pub(super) fn told(policy: &BrokerPolicy, call: &AdmittedCall, body: &[u8]) -> Option<Vec<u8>> {
    match call.rule.name {
        "disks" if call.param("content") != Some("images") => our_files(policy, body),
        "disks" => our_disks(policy, body),
        "pci-mappings" => mapped_devices(policy, body),
        "mediated-left" => mediated_left(policy, body),
        "usb-mappings" => mapping_names(policy, "usb", body),
        "dir-mappings" => mapping_names(policy, "dir", body),
        "bridges" => bridges(policy, body),
        "vnet-zones" => some(&["vnet", "zone"], body),
        "security-groups" => some(&["group"], body),
        "firewall-rules" => groups_of_rules(body),
        "firewall-options" | "cluster-firewall" => firewall_switch(body),
        _ => some(&["poolid"], body),
    }
}

/// Of a guest's configuration what its host has to keep for it: its memory, the least that ballooning leaves it, and whether
/// it starts with its host; which addresses of the configured ranges it has, so that no machine gets them; and which PCI devices
/// and CPUs, where machines get some. Its notes, `args` and other addresses are nobody's business. `None` when the answer cannot be read.
pub(super) fn promise(policy: &BrokerPolicy, body: &[u8]) -> Option<Vec<u8>> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let data = body.get("data").filter(|data| data.is_object())?;
    // What of it cannot be read would look like nothing once it is left out.
    sound::promise(data).ok()?;
    let fields = Fields::of(data);
    let mut told = serde_json::Map::new();
    for key in ["memory", "balloon", "onboot"] {
        if let Some(number) = fields.integer(key) {
            told.insert(key.to_owned(), json!(number));
        }
    }
    if policy.gives_cpus() {
        told.extend(cpus(data));
    }
    for (key, value) in data.as_object()? {
        let numbered = |stem: &str| {
            let number = key.strip_prefix(stem);
            number.is_some_and(|number| number.parse::<u8>().is_ok())
        };
        if numbered("hostpci") && policy.gives_devices() {
            let device = PciUse::read(value.as_str().unwrap_or_default());
            told.extend(device.map(|device| (key.clone(), json!(device.to_string()))));
            continue;
        }
        if !numbered("ipconfig") && !numbered("net") {
            continue;
        }
        let networks = || policy.allow.networks.values();
        let addresses = fixed_addresses(value.as_str().unwrap_or_default())
            .filter(|address| networks().any(|network| network.contains(*address)));
        let texts: Vec<String> = addresses
            .map(|address| format!("{}={address}", if address.is_ipv6() { "ip6" } else { "ip" }))
            .collect();
        if !texts.is_empty() {
            told.insert(key.clone(), json!(texts.join(",")));
        }
    }
    Some(json!({ "data": told }).to_string().into_bytes())
}

/// Of a guest's configuration which CPUs and NUMA nodes of its host it keeps for itself, as it says so.
fn cpus(data: &Value) -> Vec<(String, Value)> {
    let pairs = data.as_object().into_iter().flatten();
    let pairs = pairs.filter_map(|(key, value)| Some((key, perl::text(value)?)));
    let told = pairs.filter_map(|(key, text)| {
        if key == "affinity" {
            let set = CpuSet::read(&text);
            // What cannot be read is not told, but that there is something.
            return Some((key, set.map_or("?".to_owned(), |set| set.affinity())));
        }
        let memory = |part: &&str| part.starts_with("hostnodes=") || part.starts_with("memory=");
        let parts: Vec<&str> = text.split(',').filter(memory).collect();
        is_numa(key).then(|| (key, parts.join(",")))
    });
    told.map(|(key, text)| (key.clone(), json!(text))).collect()
}

/// Of the mappings of PCI devices which hosts have which devices, if machines get some: the names of other devices of a host are
/// no business of a daemon that gives none. `None` when the answer cannot be read.
fn mapped_devices(policy: &BrokerPolicy, body: &[u8]) -> Option<Vec<u8>> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let data = body.get("data")?;
    // A device that is left out may be one of another mapping, too.
    sound::mappings(data).ok()?;
    let entries = data.as_array()?.iter();
    let entries = entries.filter(|_| policy.gives_devices());
    let told = entries.filter_map(|entry| {
        let map = entry.get("map").and_then(Value::as_array);
        let devices = map.into_iter().flatten().filter_map(Value::as_str);
        let devices: Vec<String> = devices.map(where_it_is).collect();
        let mut told = json!({ "id": entry.get("id")?, "map": devices });
        if let Some(mark) = entry.get("mdev") {
            told["mdev"] = mark.clone();
        }
        Some(told)
    });
    let told: Vec<Value> = told.collect();
    Some(json!({ "data": told }).to_string().into_bytes())
}

/// Of the types of mediated devices of a mapping how many are left of those that machines get. `None` when the answer cannot be read.
fn mediated_left(policy: &BrokerPolicy, body: &[u8]) -> Option<Vec<u8>> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let data = body.get("data")?;
    sound::mediated(data).ok()?;
    let types = policy.allow.types.values();
    let devices = types.flat_map(|kind| &kind.pci);
    let given: BTreeSet<&str> = devices
        .filter_map(|device| device.mdev.as_deref())
        .collect();
    let rows = data.as_array()?.iter().map(Fields::of);
    let told = rows.filter_map(|row| {
        let mdev = row.text("type").filter(|mdev| given.contains(&**mdev))?;
        Some(json!({ "type": mdev, "available": row.integer("available")? }))
    });
    let told: Vec<Value> = told.collect();
    Some(json!({ "data": told }).to_string().into_bytes())
}

/// Of the mappings of USB devices or directories the names of those that the file gives machines. `None` when the answer cannot be read.
fn mapping_names(policy: &BrokerPolicy, kind: &str, body: &[u8]) -> Option<Vec<u8>> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let data = body.get("data")?;
    sound::named_rows(data).ok()?;
    let options = policy.allow.template_options.values();
    let given: BTreeSet<String> = options
        .flat_map(|options| vm_options::mappings(options, kind))
        .collect();
    let names = data.as_array()?.iter().map(Fields::of);
    let names = names.filter_map(|entry| entry.text("id"));
    let told = names.filter(|name| given.contains(name));
    let told: Vec<Value> = told.map(|name| json!({ "id": name })).collect();
    Some(json!({ "data": told }).to_string().into_bytes())
}

/// Host and address of a device in a mapping.
fn where_it_is(device: &str) -> String {
    let parts = device.split(',');
    let parts = parts.filter(|part| part.starts_with("node=") || part.starts_with("path="));
    parts.collect::<Vec<&str>>().join(",")
}

/// Of the disks on a storage those that a range's VMIDs have in their names; the answer as it goes to
/// the daemon. `None` when the answer cannot be read.
fn our_disks(policy: &BrokerPolicy, body: &[u8]) -> Option<Vec<u8>> {
    let mut body: Value = serde_json::from_slice(body).ok()?;
    let disks = body.get_mut("data")?.as_array_mut()?;
    let ours = disks.drain(..).filter(|disk| {
        let vmid = Fields::of(disk).integer("vmid");
        vmid.and_then(|vmid| u32::try_from(vmid).ok())
            .is_some_and(|vmid| policy.in_range(vmid))
    });
    let ours: Vec<Value> = ours.collect();
    Some(json!({ "data": ours }).to_string().into_bytes())
}

/// Of the files on a storage the ISOs of a range's VMs, by their names, and those that the policy makes VMs of. `None` when the
/// answer cannot be read.
pub(super) fn our_files(policy: &BrokerPolicy, body: &[u8]) -> Option<Vec<u8>> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let files = body.get("data")?.as_array()?.iter();
    let ours = files.filter_map(|file| {
        let volume = Fields::of(file).text("volid")?;
        if policy.makes_vms_of(&volume) {
            return Some(json!({ "volid": volume }));
        }
        let (_, iso) = iso_volume(&volume)?;
        let told = json!({ "volid": volume, "size": file.get("size"), "content": "iso" });
        policy.in_range(iso.vmid).then_some(told)
    });
    let ours: Vec<Value> = ours.collect();
    Some(json!({ "data": ours }).to_string().into_bytes())
}

/// Of the options of a VM's firewall, or of the datacenter's, whether it is on: policies are nobody's business. `None` when the answer cannot be read.
fn firewall_switch(body: &[u8]) -> Option<Vec<u8>> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let options = body.get("data").filter(|data| data.is_object())?;
    let on = Fields::of(options).flag("enable");
    let told = json!({ "data": { "enable": u8::from(on) } });
    Some(told.to_string().into_bytes())
}

/// Of a firewall's rules their places, and of those that are security groups what they are: addresses and ports that others wrote are
/// nobody's business. `None` when the answer cannot be read.
fn groups_of_rules(body: &[u8]) -> Option<Vec<u8>> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let rules = body.get("data")?.as_array()?.iter();
    let told = rules.map(|rule| {
        let group = rule.get("type").is_some_and(|kind| kind == "group");
        let all = [
            "pos", "digest", "type", "action", "iface", "enable", "comment",
        ];
        let keys = if group { &all[..] } else { &all[..4] };
        let pairs = keys.iter();
        let pairs = pairs.filter_map(|key| Some(((*key).to_owned(), rule.get(key)?.clone())));
        Value::Object(pairs.collect())
    });
    let told: Vec<Value> = told.collect();
    Some(json!({ "data": told }).to_string().into_bytes())
}

/// A list of PVE's with these fields alone; an entry without the first of them is left out. `None` when the answer cannot be read.
fn some(keys: &[&str], body: &[u8]) -> Option<Vec<u8>> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let entries = body.get("data")?.as_array()?.iter();
    let told = entries.filter_map(|entry| {
        entry.get(*keys.first()?)?;
        let fields = keys.iter().filter_map(|key| Some((*key, entry.get(*key)?)));
        Some(json!(fields.collect::<BTreeMap<&str, &Value>>()))
    });
    let told: Vec<Value> = told.collect();
    Some(json!({ "data": told }).to_string().into_bytes())
}

/// The fields of a bridge that the daemon is told: `doctor` judges by them whether a machine's network card works there.
const OF_BRIDGE: [&str; 8] = [
    "iface",
    "type",
    "bridge_vlan_aware",
    "bridge_vids",
    "bridge_ports",
    "ovs_ports",
    "vlanaware",
    "mtu",
];

/// A host's bridges with [`OF_BRIDGE`], and those addresses of the host and its gateway that lie in configured ranges: no other address and
/// no comment is told. `None` when the answer cannot be read.
fn bridges(policy: &BrokerPolicy, body: &[u8]) -> Option<Vec<u8>> {
    let given = |text: &Value| {
        let address = text.as_str()?.split('/').next()?.parse().ok()?;
        let mut networks = policy.allow.networks.values();
        networks
            .any(|network| network.contains(address))
            .then_some(())
    };
    let addresses = ["cidr", "cidr6", "gateway", "gateway6"];
    let mut body: Value = serde_json::from_slice(body).ok()?;
    for entry in body.get_mut("data")?.as_array_mut()? {
        let Some(entry) = entry.as_object_mut() else {
            continue;
        };
        entry.retain(|key, value| !addresses.contains(&&**key) || given(value).is_some());
    }
    let keys = [&OF_BRIDGE[..], &addresses].concat();
    some(&keys, body.to_string().as_bytes())
}

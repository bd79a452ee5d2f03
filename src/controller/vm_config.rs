//! What a machine's VM configuration must say, and the smallest write that makes it so. Pure.
//!
//! A clone inherits `ciupgrade`, `protection`, `onboot`, tags and more from its template; the first
//! write after the clone undoes that. Source: `qemu-server` `PVE/API2/Qemu.pm`, clone and update.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::hardware::{balloon, cpu_keys, cpu_limit, mac, may_have_options, with_options};
use crate::config::settings::{NetCardSettings, PoolSettings, Settings, TemplateSettings};
use crate::config::vm_options;
use crate::controller::disk_storages::chosen_of;
use crate::model::chosen_storages::ChosenStorages;
use crate::model::cpus::CpuSet;
use crate::model::mark::Mark;
use crate::model::policy::InstanceType;
use crate::model::topology::is_numa;
use crate::model::words;
use crate::pve::{MAX_QUEUES, VmConfig};

/// The tag that every machine carries, for people; it proves nothing.
pub const TAG: &str = "pve-autoscaler";

/// One configuration write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Write {
    /// Keys to set.
    pub set: BTreeMap<String, String>,
    /// Keys to delete.
    pub delete: Vec<String>,
}

impl Write {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.delete.is_empty()
    }
}

/// What a machine does not share with others: the cloud-init keys that `[network.NAME]` decides, MAC addresses, CPUs and NUMA nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnKeys {
    /// `ipconfigN` by the number of the network card.
    pub ipconfigs: BTreeMap<u8, String>,
    /// `nameserver`.
    pub nameserver: Option<String>,
    /// `searchdomain`.
    pub searchdomain: Option<String>,
    /// MAC addresses by the number of the network card, where the template has a prefix for them.
    pub macs: BTreeMap<u8, String>,
    /// `affinity`, `numaN` and the like, where its pool gives it CPUs or huge pages for itself.
    pub cpus: BTreeMap<String, String>,
    /// The storages that were chosen for its further disks, where the file lists several.
    pub storages: ChosenStorages,
}

impl OwnKeys {
    /// These keys and those for the CPUs that a mark reserves, on the host where the machine's VM is.
    ///
    /// # Errors
    /// The configuration does not give it these CPUs any more.
    pub fn with_cpus(
        mut self,
        settings: &Settings,
        mark: &Mark,
        at: (&str, &str),
        kind: &InstanceType,
    ) -> Result<OwnKeys, String> {
        let (region, host) = at;
        let pool = settings.policy.pools.get(mark.pool.as_str());
        let pinning = pool
            .and_then(|pool| pool.at(region))
            .map(|pool| pool.pinning);
        let policy = settings.policy.regions.get(region);
        let topology = policy.and_then(|policy| policy.topologies.get(host));
        let topology = topology.map(|topology| &**topology);
        let size = (kind.cores, kind.memory);
        self.cpus = cpu_keys(
            pinning.unwrap_or_default(),
            (host, topology),
            &mark.cpus,
            size,
        )?;
        Ok(self)
    }

    /// The keys for the addresses that a mark reserves, by the networks of its pool, and for its MAC addresses.
    ///
    /// # Errors
    /// The configuration does not give it these addresses any more.
    pub fn of(settings: &Settings, mark: &Mark) -> Result<OwnKeys, String> {
        let mut keys = OwnKeys::with_addresses(settings, mark)?;
        let template = settings.templates.get(mark.template.as_str());
        let prefix = template.and_then(|template| template.hardware.mac_prefix.as_deref());
        if let (Some(template), Some(prefix)) = (template, prefix) {
            let cards = template.cards();
            let macs = cards.map(|(card, _)| (card, mac(prefix, mark.vmid, card)));
            keys.macs.extend(macs);
        }
        Ok(keys)
    }

    /// The keys for the addresses that a mark reserves, by the networks of its pool.
    ///
    /// # Errors
    /// The configuration does not give it these addresses any more.
    pub fn with_addresses(settings: &Settings, mark: &Mark) -> Result<OwnKeys, String> {
        let mut keys = OwnKeys::default();
        let pool = settings.policy.pools.get(mark.pool.as_str());
        let pool = pool.map(|pool| pool.of_template(&mark.template).unwrap_or(pool));
        for (card, addresses) in &mark.addresses {
            let name = pool.and_then(|pool| pool.networks.get(card));
            let network = name.and_then(|name| settings.networks.get(name));
            let Some((name, network)) = name.zip(network) else {
                return Err(format!(
                    "pool {} has no network for net{card} any more, and {} is reserved for it",
                    mark.pool,
                    words::names(addresses.iter().map(ToString::to_string))
                ));
            };
            let text = network.ipconfig(addresses);
            let text = text.map_err(|why| format!("network {name} has changed: {why}"))?;
            keys.ipconfigs.insert(*card, text);
            if keys.nameserver.is_none() {
                keys.nameserver.clone_from(&network.nameserver);
            }
            if keys.searchdomain.is_none() {
                keys.searchdomain.clone_from(&network.searchdomain);
            }
        }
        Ok(keys)
    }
}

/// What `current` (the configuration as PVE tells it, values as text) lacks.
pub fn write(
    current: &BTreeMap<String, String>,
    machine: &str,
    instance_type: &InstanceType,
    (template, network): (&TemplateSettings, &OwnKeys),
    pool: &PoolSettings,
) -> Write {
    let mut wanted = plain(machine, instance_type, template, pool);
    let least = least_memory(current, instance_type, pool, network);
    wanted.extend(least.map(|least| ("balloon".to_owned(), least)));
    wanted.extend(of_template(template, network));
    wanted.extend(numbered(instance_type, network));
    wanted.extend(network.cpus.clone());
    for (name, value) in &template.hardware.options {
        let now = current.get(name).map(String::as_str);
        wanted.insert(name.clone(), vm_options::written(name, value, now));
    }
    for (number, card) in template.cards() {
        let key = format!("net{number}");
        let mac = network.macs.get(&number);
        if let Some(net) = net(current.get(&key), (card, mac), instance_type.cores) {
            wanted.insert(key, net);
        }
    }
    wanted.extend(boot_disk(current, template));
    // A disk that is there is never written anew: it has data, and its place would get an empty one.
    let disks = template.hardware.disks.iter();
    let missing = disks.filter(|(slot, _)| !current.contains_key(*slot));
    wanted.extend(missing.map(|(slot, disk)| {
        let chosen = network.storages.at(Some(slot)).map(|name| &**name);
        let storage = chosen_of(&disk.storage, chosen);
        (slot.clone(), disk.value_on(storage))
    }));
    let mut write = Write::default();
    // Logical CPUs are cores × sockets; a template with two sockets would double them. Its minimum of memory would take of what pods are
    // promised, and its 0 the device by which PVE reads how much memory the guest uses.
    for (key, harmless) in [("sockets", "1"), ("vcpus", ""), ("balloon", "")] {
        if wanted.contains_key(key) {
            continue;
        }
        if current.get(key).is_some_and(|value| value != harmless) {
            write.delete.push(key.to_owned());
        }
    }
    // A template's keys let in whoever has them; PVE has no other word for none than that the key is not there.
    if template.ssh_keys.as_deref() == Some("") && current.contains_key("sshkeys") {
        write.delete.push("sshkeys".to_owned());
    }
    // Where the type says which devices its machines have, those are all: only they were planned.
    if !instance_type.pci.is_empty() {
        let further = current.keys().filter(|key| is_device(key));
        let further = further.filter(|key| !wanted.contains_key(*key));
        write.delete.extend(further.cloned());
    }
    // NUMA nodes are ours alone too: those of a template are of its own size, the memory would not sum up, and the VM not start.
    let further = current.keys().filter(|key| is_numa(key));
    let further = further.filter(|key| !wanted.contains_key(*key));
    write.delete.extend(further.cloned());
    for (key, value) in wanted {
        if !same(&key, current.get(&key).map(String::as_str), &value) {
            write.set.insert(key, value);
        }
    }
    write
}

/// The disk that a VM boots from with the options that the file has for it, if it lacks some: its volume stays. None in a place where options are
/// not written.
fn boot_disk(
    current: &BTreeMap<String, String>,
    template: &TemplateSettings,
) -> Option<(String, String)> {
    let options = &template.hardware.boot_disk;
    if options.is_empty() {
        return None;
    }
    let config = VmConfig::read(&serde_json::json!(current));
    let found = || config.boot_disk().map(|(slot, _)| slot.to_string());
    let slot = template.boot_disk.clone().or_else(found)?;
    let disk = current.get(&slot).filter(|_| may_have_options(&slot))?;
    let written = with_options(disk, options);
    (parts(disk) != parts(&written)).then_some((slot, written))
}

/// What every machine gets.
fn plain(
    machine: &str,
    instance_type: &InstanceType,
    template: &TemplateSettings,
    pool: &PoolSettings,
) -> BTreeMap<String, String> {
    let hardware = &template.hardware;
    let sockets = hardware.sockets.unwrap_or(1).max(1);
    let memory = instance_type.memory;
    let mut wanted = vec![
        ("name", machine.to_owned()),
        ("cores", (instance_type.cores / sockets).to_string()),
        ("memory", (memory / (1 << 20)).to_string()),
        ("protection", "0".to_owned()),
        ("tags", tags(pool).join(";")),
    ];
    if sockets > 1 {
        wanted.push(("sockets", sockets.to_string()));
    }
    if let Some(on) = hardware.numa {
        wanted.push(("numa", u8::from(on).to_string()));
    }
    wanted.extend(in_place(Some(template), pool));
    let wanted = wanted.into_iter();
    wanted.map(|(key, value)| (key.to_owned(), value)).collect()
}

/// PVE's `balloon` in MiB: the memory that PVE leaves the machine. Without the key a VM has the device, by which PVE 9 shows what its guest
/// uses and not what its process has of the host, and PVE takes nothing of its memory: a minimum below what pods are promised would lie to
/// kube-scheduler about the node. 0 is no device. Machines with CPUs or huge pages of their own have none: a guest gives its free pages back
/// by the device, must wait for them later, and of the host's huge pages another VM may have them by then.
fn least_memory(
    current: &BTreeMap<String, String>,
    instance_type: &InstanceType,
    pool: &PoolSettings,
    network: &OwnKeys,
) -> Option<String> {
    let least = pool
        .balloon
        .map(|taken| balloon(instance_type.memory, taken));
    // PVE holds the memory that it is told against the minimum that the VM has, also where the same call deletes that: such a template's is
    // written as 0 first, and deleted next.
    let memory = instance_type.memory / (1 << 20);
    let inherited = current.get("balloon").and_then(|text| text.parse().ok());
    let above = inherited.is_some_and(|inherited: i64| inherited > memory);
    let least = least.or_else(|| (above || !network.cpus.is_empty()).then_some(0));
    least.map(|least| least.to_string())
}

/// What of that may change while a machine runs, tags apart: others may give it some. A template that the file does
/// not name any more says nothing.
pub(super) fn in_place(
    template: Option<&TemplateSettings>,
    pool: &PoolSettings,
) -> BTreeMap<&'static str, String> {
    let mut wanted = BTreeMap::new();
    if let Some(hardware) = template.map(|template| &template.hardware) {
        // Unless the file says so the autoscaler, not the host's boot, decides which machines run.
        wanted.insert("onboot", u8::from(hardware.onboot).to_string());
        wanted.extend(hardware.startup.clone().map(|order| ("startup", order)));
        wanted.extend(vm_options::in_place(&hardware.options));
    }
    let units = pool.cpu_units.map(|units| units.to_string());
    wanted.extend(units.map(|units| ("cpuunits", units)));
    let limit = pool.cpu_limit_milli.map(cpu_limit);
    wanted.extend(limit.map(|limit| ("cpulimit", limit)));
    wanted
}

/// What the table of the template says, and what comes with a network's addresses.
fn of_template(
    template: &TemplateSettings,
    network: &OwnKeys,
) -> impl Iterator<Item = (String, String)> {
    let first = |one: &Option<String>, other: &Option<String>| one.clone().or(other.clone());
    let keys = template.ssh_keys.as_ref().filter(|keys| !keys.is_empty());
    // An upgrade at first boot costs minutes and may change the kubelet: PVE's default would be one.
    let upgrade = u8::from(template.ci_upgrade).to_string();
    let optional = [
        ("ciupgrade", Some(upgrade)),
        ("cpu", template.cpu_type.clone()),
        ("ciuser", template.ci_user.clone()),
        (
            "nameserver",
            first(&network.nameserver, &template.nameserver),
        ),
        (
            "searchdomain",
            first(&network.searchdomain, &template.searchdomain),
        ),
        (
            "sshkeys",
            keys.map(|keys| crate::pve::component(keys.trim())),
        ),
    ];
    let optional = optional.into_iter();
    let optional = optional.filter_map(|(key, value)| Some((key.to_owned(), value?)));
    let cards = template.cards();
    let cards = cards.filter_map(|(card, of)| Some((format!("ipconfig{card}"), of.ipconfig?)));
    optional.chain(cards)
}

/// What a machine has several of: addresses by network card, PCI devices.
fn numbered(
    instance_type: &InstanceType,
    network: &OwnKeys,
) -> impl Iterator<Item = (String, String)> {
    let addresses = network.ipconfigs.iter();
    let addresses = addresses.map(|(card, text)| (format!("ipconfig{card}"), text.clone()));
    let devices = instance_type.pci.iter().enumerate();
    let devices = devices.map(|(at, device)| (format!("hostpci{at}"), device.value()));
    addresses.chain(devices)
}

/// `hostpci0`, `hostpci15`.
fn is_device(key: &str) -> bool {
    is_numbered(key, "hostpci")
}

fn is_numbered(key: &str, stem: &str) -> bool {
    let number = key.strip_prefix(stem);
    number.is_some_and(|number| number.parse::<u8>().is_ok())
}

/// Whether PVE's value already means what is wanted. Absent keys mean PVE's default.
pub(super) fn same(key: &str, current: Option<&str>, wanted: &str) -> bool {
    match (key, current) {
        ("tags", Some(current)) => tag_set(current) == tag_set(wanted),
        ("onboot" | "protection" | "numa", None) => wanted == "0",
        // Numbers that PVE may tell as 1.50 or 1.5.
        ("cpulimit" | "migrate_downtime", Some(current)) => {
            current.parse::<f64>() == wanted.parse::<f64>()
        }
        ("affinity", Some(current)) => CpuSet::read(current) == CpuSet::read(wanted),
        (key, Some(current)) if is_numa(key) => {
            let sorted = |text: &str| text.split(',').map(str::to_owned).collect::<BTreeSet<_>>();
            sorted(current) == sorted(wanted)
        }
        (key, Some(current)) if is_numbered(key, "net") => parts(current) == parts(wanted),
        (key, Some(current)) if is_device(key) => {
            let sorted = |text: &str| text.split(',').map(str::to_owned).collect::<BTreeSet<_>>();
            sorted(current) == sorted(wanted)
        }
        (_, Some(current)) => current.trim_end() == wanted.trim_end(),
        (_, None) => false,
    }
}

/// The parts of a property string in PVE's order: the first stays, the others are sorted by name
/// (`JSONSchema::print_property_string`), whatever order they were sent in.
fn parts(text: &str) -> Vec<&str> {
    let mut parts: Vec<&str> = text.trim_end().split(',').collect();
    if let Some(others) = parts.get_mut(1..) {
        others.sort_unstable();
    }
    parts
}

/// Tags one by one, as PVE separates them.
pub fn split_tags(text: &str) -> Vec<&str> {
    let tags = text.split([';', ',', ' ']);
    tags.filter(|tag| !tag.is_empty()).collect()
}

fn tag_set(text: &str) -> Vec<String> {
    let tags = split_tags(text).into_iter();
    let mut tags: Vec<String> = tags.map(str::to_lowercase).collect();
    tags.sort();
    tags.dedup();
    tags
}

/// The tags of a pool's machines, in lower case and sorted, ours among them.
pub fn tags(pool: &PoolSettings) -> Vec<String> {
    let mut tags: Vec<String> = pool.tags.iter().map(|tag| tag.to_lowercase()).collect();
    tags.push(TAG.to_owned());
    tags.sort();
    tags.dedup();
    tags
}

/// The tags that a clone gets or loses so that it has those of its pool: PVE looks at both. `own`: the tags of each copy of its template.
pub fn changed_tags(pool: &PoolSettings, own: &[BTreeSet<String>]) -> BTreeSet<String> {
    let gets: BTreeSet<String> = tags(pool).into_iter().collect();
    let had = |tag: &String| !own.is_empty() && own.iter().all(|of| of.contains(tag));
    let added = gets.iter().filter(|tag| !had(tag));
    let lost = own.iter().flatten().filter(|tag| !gets.contains(*tag));
    added.chain(lost).cloned().collect()
}

/// A network card with what the file wants of it, for a VM with so many cores; the rest stays.
fn net(
    current: Option<&String>,
    (card, mac): (NetCardSettings, Option<&String>),
    cores: u32,
) -> Option<String> {
    let firewall = card.passes_firewall().map(|on| u8::from(on).to_string());
    let mtu = card.mtu.map(|mtu| mtu.to_string());
    let queues = card
        .multiqueue
        .map(|on| if on { cores.min(MAX_QUEUES) } else { 0 }.to_string());
    let vlan = card.vlan.map(|vlan| vlan.to_string());
    let rate = card.rate.map(|rate| rate.to_string());
    let wanted = [
        ("bridge", card.bridge),
        ("tag", vlan),
        ("firewall", firewall),
        ("mtu", mtu),
        ("queues", queues),
        ("rate", rate),
    ];
    let as_it_is = card.model.is_none() && mac.is_none();
    if as_it_is && wanted.iter().all(|(_, value)| value.is_none()) {
        return None;
    }
    let mut parts: Vec<(String, Option<String>)> = current
        .map_or("virtio", String::as_str)
        .split(',')
        .map(|part| match part.split_once('=') {
            Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
            None => (part.to_owned(), None),
        })
        .collect();
    // The first part is the model with the MAC address.
    if let Some((model, address)) = parts.first_mut() {
        if let Some(wanted_model) = card.model {
            wanted_model.clone_into(model);
        }
        if let Some(mac) = mac {
            *address = Some(mac.clone());
        }
    }
    for (key, value) in wanted {
        if value.is_some() {
            parts.retain(|(name, _)| name != key);
            parts.push((key.to_owned(), value));
        }
    }
    let text: Vec<String> = parts
        .into_iter()
        .map(|(key, value)| value.map_or(key.clone(), |value| format!("{key}={value}")))
        .collect();
    Some(self::parts(&text.join(",")).join(","))
}

#[cfg(test)]
mod tests;

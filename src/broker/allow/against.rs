//! Whether a call may be, judged against the VM's present configuration.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::config::hardware::{balloon, cpu_keys, mac, may_have_options, with_options};
use crate::config::vm_options;
use crate::model::mark::{self, Mark, Ownership};
use crate::model::pci::PciDevice;
use crate::model::topology::is_numa;
use crate::pve::{FirewallRule, IsoFile, MAX_QUEUES, Net, VmConfig, iso_volume};

use super::{AdmittedCall, BrokerPolicy, VmProof};

/// Judges `call` on the VM that carries `mark` and has `config` now.
pub(in crate::broker) fn check(
    policy: &BrokerPolicy,
    call: &AdmittedCall,
    mark: &Mark,
    config: &VmConfig,
) -> Result<(), String> {
    if let Some(name) = call.param("name")
        && name != mark.machine
    {
        return Err(format!(
            "parameter name: the machine is named {}",
            mark.machine
        ));
    }
    if let Some(description) = call.param("description") {
        same_mark(description, mark)?;
    }
    beside_configuration(policy, call, mark)?;
    cores(policy, call, config)?;
    for (name, value) in &call.params {
        if let Some(card) = number(name, "ipconfig") {
            ipconfig(policy, mark, (card, value))?;
        }
        if let Some(card) = number(name, "net") {
            net(policy, (card, value), mark, config)?;
        }
    }
    if let Some(units) = call.param("cpuunits") {
        cpu_units(policy, units, mark)?;
    }
    if let Some(limit) = call.param("cpulimit")
        && policy
            .guest
            .cpu_limits
            .get(&mark.pool)
            .is_none_or(|own| own != limit)
    {
        return Err(format!(
            "parameter cpulimit: that of pool {} is another",
            mark.pool
        ));
    }
    memory_kept(policy, call, mark)?;
    further_disks(policy, call, mark, config)?;
    pci_devices(policy, call, mark)?;
    named_options(policy, call, mark, config)?;
    own_cpus(policy, call, mark)?;
    iso_drives(policy, call, mark, config)?;
    if let Some(key) = call.param("disk") {
        let disk = config.disks.get(key);
        if disk.is_none_or(|disk| disk.cdrom || disk.cloud_init || disk.storage.is_empty()) {
            return Err(format!(
                "parameter disk: the VM has no disk {key} that may grow"
            ));
        }
    }
    same_digest(call, config)
}

/// The configuration is the one that the caller read. Of a firewall's rules the digest is another one.
fn same_digest(call: &AdmittedCall, config: &VmConfig) -> Result<(), String> {
    if let (Some(given), Some(read)) = (call.param("digest"), config.digest.as_deref())
        && call.rule.needs == VmProof::MarkAndDigest
        && given != read
    {
        return Err("checksum mismatch (file changed since it was read)".to_owned());
    }
    Ok(())
}

/// Judges calls that change a VM's resource pool or firewall, which PVE does not keep in the VM's configuration.
fn beside_configuration(
    policy: &BrokerPolicy,
    call: &AdmittedCall,
    mark: &Mark,
) -> Result<(), String> {
    match call.rule.name {
        "move-to-pool" => its_resource_pool(policy, call, mark),
        "add-security-group" => its_security_group(policy, call, mark),
        "switch-firewall-on" => its_firewall(policy, mark),
        "upload-iso" => its_iso(policy, call, mark),
        _ => Ok(()),
    }
}

/// The file's name says that it is this machine's, of this cluster and region.
fn its_iso(policy: &BrokerPolicy, call: &AdmittedCall, mark: &Mark) -> Result<(), String> {
    let file = call.param("filename").and_then(IsoFile::named);
    let owner = policy.iso_owner(&mark.cluster);
    if file.is_some_and(|file| file.is_of(&owner, mark.vmid)) {
        return Ok(());
    }
    Err(format!(
        "parameter filename: it is no ISO of VM {} of this cluster and region",
        mark.vmid
    ))
}

/// The file says that the firewall of this template's machines is switched on.
fn its_firewall(policy: &BrokerPolicy, mark: &Mark) -> Result<(), String> {
    if policy.allow.template_firewalls.contains(&mark.template) {
        return Ok(());
    }
    Err(format!(
        "the configuration leaves the firewall of machines of template {} as it is",
        mark.template
    ))
}

/// The resource pool that the file gives the machine's template, and no other.
fn its_resource_pool(
    policy: &BrokerPolicy,
    call: &AdmittedCall,
    mark: &Mark,
) -> Result<(), String> {
    let own = policy.allow.template_pools.get(&mark.template);
    if own.map(String::as_str) == call.param("poolid") {
        return Ok(());
    }
    Err(format!(
        "parameter poolid: the configuration names {} for machines of template {}",
        own.map_or("none", String::as_str),
        mark.template
    ))
}

/// A security group that the file gives this card of the machine's template.
fn its_security_group(
    policy: &BrokerPolicy,
    call: &AdmittedCall,
    mark: &Mark,
) -> Result<(), String> {
    let given = call.param("action").zip(call.param("iface"));
    let mut own = groups(policy, mark).iter();
    if own.any(|(group, card)| given == Some((group, &format!("net{card}")))) {
        return Ok(());
    }
    Err(format!(
        "parameter action: the configuration does not name it for this card of machines of template {}",
        mark.template
    ))
}

fn groups<'a>(policy: &'a BrokerPolicy, mark: &Mark) -> &'a [(String, u8)] {
    let own = policy.allow.template_groups.get(&mark.template);
    own.map_or(&[], Vec::as_slice)
}

/// The rule at the call's place, of those that the VM's firewall has now, is one of ours that the file does not want any more.
pub(in crate::broker) fn may_go(
    policy: &BrokerPolicy,
    call: &AdmittedCall,
    mark: &Mark,
    rules: &Value,
) -> Result<(), String> {
    let rules = FirewallRule::read_all(rules)?;
    let position = call.position.ok_or("the call names no rule")?;
    // Both with PVE's words, by which the client knows them.
    let rule = rules.get(position);
    let rule = rule.ok_or_else(|| format!("no rule at position {position}"))?;
    if rule.digest.as_deref() != call.param("digest") {
        // With PVE's words, by which the client knows it.
        return Err("detected modified configuration - file changed since it was read".to_owned());
    }
    if !policy.allow.template_groups.contains_key(&mark.template) {
        return Err("the configuration says nothing of the machine's security groups".to_owned());
    }
    if !rule.is_too_much(groups(policy, mark), &rules) {
        return Err(
            "the rule is somebody else's, or one that the configuration wants to stay".to_owned(),
        );
    }
    Ok(())
}

/// No ballooning, or what the pool leaves the machine: nothing that pods are promised may be taken.
fn memory_kept(policy: &BrokerPolicy, call: &AdmittedCall, mark: &Mark) -> Result<(), String> {
    let Some(given) = call.param("balloon").filter(|given| *given != "0") else {
        return Ok(());
    };
    let taken = policy.guest.balloons.get(&mark.pool);
    let kind = policy.allow.types.get(&mark.instance_type);
    let kept = taken
        .zip(kind)
        .map(|(taken, kind)| balloon(kind.memory, *taken));
    if kept.is_some_and(|kept| kept.to_string() == given) {
        return Ok(());
    }
    Err(format!(
        "parameter balloon: machines of pool {} have {}",
        mark.pool,
        kept.map_or_else(|| "0".to_owned(), |kept| format!("{kept} MiB"))
    ))
}

/// The disks that machines of its pool get beside their template's, each once and at its place.
fn further_disks(
    policy: &BrokerPolicy,
    call: &AdmittedCall,
    mark: &Mark,
    config: &VmConfig,
) -> Result<(), String> {
    let pool = policy.allow.pools.get(&mark.pool);
    for (name, value) in &call.params {
        let numbered = name.ends_with(|last: char| last.is_ascii_digit());
        let stem = name.trim_end_matches(|last: char| last.is_ascii_digit());
        let is_disk = numbered && ["scsi", "virtio", "sata"].contains(&stem);
        if !is_disk || is_boot_disk(policy, (name, value), mark, config) {
            continue;
        }
        let own = pool.and_then(|pool| pool.disks.get(name));
        if own.is_none_or(|own| !own.contains(value)) {
            let own = own.into_iter().flatten().map(String::as_str);
            let own: Vec<&str> = own.collect();
            return Err(format!(
                "parameter {name}: machines of pool {} have {} there",
                mark.pool,
                if own.is_empty() {
                    "no further disk".to_owned()
                } else {
                    own.join(" or ")
                }
            ));
        }
        // PVE would take the old one for unused, and it would stay behind.
        if config.raw.contains_key(name) {
            return Err(format!("parameter {name}: the VM has a disk there already"));
        }
    }
    Ok(())
}

/// Whether a value is the disk that the machine boots from, with the options that the file gives it and nothing else changed.
fn is_boot_disk(
    policy: &BrokerPolicy,
    (name, value): (&str, &str),
    mark: &Mark,
    config: &VmConfig,
) -> bool {
    let Some(allow) = policy.allow.template_boot_disks.get(&mark.template) else {
        return false;
    };
    let found = || config.boot_disk().map(|(slot, _)| &**slot);
    let slot = allow.slot.as_deref().or_else(found);
    let disk = config.disks.get(name);
    let plain = disk.is_some_and(|disk| !disk.cdrom && !disk.cloud_init);
    let now = config.raw.get(name);
    let same = now.is_some_and(|now| with_options(now, &allow.options) == value);
    slot == Some(name) && plain && may_have_options(name) && same
}

/// The devices that machines of its instance type get, each at its place.
fn pci_devices(policy: &BrokerPolicy, call: &AdmittedCall, mark: &Mark) -> Result<(), String> {
    let kind = policy.allow.types.get(&mark.instance_type);
    let devices = kind.map_or(&[][..], |kind| &kind.pci);
    for (name, value) in &call.params {
        let Some(number) = name.strip_prefix("hostpci") else {
            continue;
        };
        let place = number.parse::<usize>().ok();
        let device = place.and_then(|place| devices.get(place));
        if device.is_none_or(|device| device.value() != *value) {
            return Err(format!(
                "parameter {name}: instance type {} has {}",
                mark.instance_type,
                device.map_or_else(|| "no such device".to_owned(), PciDevice::value)
            ));
        }
    }
    Ok(())
}

/// PVE's options as the file has them for machines of this template, each by its name.
fn named_options(
    policy: &BrokerPolicy,
    call: &AdmittedCall,
    mark: &Mark,
    config: &VmConfig,
) -> Result<(), String> {
    let options = policy.allow.template_options.get(&mark.template);
    for (name, value) in &call.params {
        if call.rule.name != "config" || !vm_options::may_be_named(name) {
            continue;
        }
        let now = config.raw.get(name).map(String::as_str);
        let own = options.and_then(|options| options.get(name));
        let own = own.map(|own| vm_options::written(name, own, now));
        if own.as_ref() != Some(value) {
            return Err(format!(
                "parameter {name}: the configuration gives machines of template {} {} there",
                mark.template,
                own.as_deref().unwrap_or("nothing")
            ));
        }
    }
    Ok(())
}

/// The CPUs that its mark reserves for it, with its memory beside them and in huge pages, as the file has it for its pool on this host.
fn own_cpus(policy: &BrokerPolicy, call: &AdmittedCall, mark: &Mark) -> Result<(), String> {
    let asked = call.params.iter().filter(|(name, value)| {
        let numa = name == "numa" && !policy.guest.numas.contains(&(value == "1"));
        numa || matches!(name.as_str(), "affinity" | "hugepages") || is_numa(name)
    });
    let asked: Vec<&(String, String)> = asked.collect();
    if asked.is_empty() {
        return Ok(());
    }
    let host = call.host.as_deref().unwrap_or_default();
    let keys = own_cpu_keys(policy, mark, host)?;
    for (name, value) in asked {
        let own = keys.get(name);
        if own.is_none_or(|own| own != value) {
            return Err(format!(
                "parameter {name}: the configuration gives machines of pool {} {} there",
                mark.pool,
                own.map_or("nothing", String::as_str)
            ));
        }
    }
    Ok(())
}

/// What the file writes for the CPUs of a machine with this mark on a host.
pub(in crate::broker) fn own_cpu_keys(
    policy: &BrokerPolicy,
    mark: &Mark,
    host: &str,
) -> Result<BTreeMap<String, String>, String> {
    let pool = policy.allow.pools.get(&mark.pool);
    let pinning = pool.map(|pool| pool.pinning).unwrap_or_default();
    let kind = policy.allow.types.get(&mark.instance_type);
    let size = kind.map_or((0, 0), |kind| (kind.cores, kind.memory));
    let topology = policy.allow.topologies.get(host);
    let topology = topology.map(|topology| &**topology);
    cpu_keys(pinning, (host, topology), &mark.cpus, size)
        .map_err(|why| format!("the CPUs of machine {}: {why}", mark.machine))
}

/// The machine's own ISO for cloud-init, in a CD drive that holds nothing of somebody else's, or in the place of PVE's own drive for
/// cloud-init, which alone may be deleted.
fn iso_drives(
    policy: &BrokerPolicy,
    call: &AdmittedCall,
    mark: &Mark,
    config: &VmConfig,
) -> Result<(), String> {
    let owner = policy.iso_owner(&mark.cluster);
    let own =
        |volume: &str| iso_volume(volume).is_some_and(|(_, file)| file.is_of(&owner, mark.vmid));
    // What an older program put in.
    let old = |volume: &str| iso_volume(volume).is_some_and(|(_, file)| file.may_be_of(mark.vmid));
    for (name, value) in &call.params {
        if number(name, "ide").is_none() {
            continue;
        }
        let volume = value.strip_suffix(",media=cdrom").unwrap_or_default();
        if volume != "none" && !own(volume) {
            return Err(format!(
                "parameter {name}: it is no ISO of VM {}",
                mark.vmid
            ));
        }
        let now = config.disks.get(name.as_str());
        let free = now.is_none_or(|disk| {
            let empty = disk.cdrom && disk.volume == "none";
            own(&disk.volume)
                || old(&disk.volume)
                || (volume != "none" && (disk.cloud_init || empty))
        });
        if !free {
            return Err(format!("parameter {name}: the VM has something else there"));
        }
    }
    let deleted = call.param("delete").unwrap_or_default().split(',');
    for key in deleted.filter(|key| super::values::is_drive(key)) {
        if config.disks.get(key).is_some_and(|disk| !disk.cloud_init) {
            return Err(format!(
                "parameter delete: {key} is no drive for cloud-init"
            ));
        }
    }
    Ok(())
}

/// The number of a network card in a parameter's name.
fn number(name: &str, stem: &str) -> Option<u8> {
    name.strip_prefix(stem)?.parse().ok()
}

fn same_mark(description: &str, mark: &Mark) -> Result<(), String> {
    match mark::read(description) {
        Ownership::Marked(given) if *given == *mark => Ok(()),
        _ => Err("parameter description: the mark must stay as it is".to_owned()),
    }
}

/// Cores × sockets of the outcome: a template with two sockets would double what `cores` says.
fn cores(policy: &BrokerPolicy, call: &AdmittedCall, config: &VmConfig) -> Result<(), String> {
    let number = |text: &str| text.parse::<u32>().unwrap_or(u32::MAX);
    let given = call.param("sockets").map(number);
    let there = || config.raw.get("cores").map_or(1, |text| number(text));
    let cores = call.param("cores").map(number);
    let Some(cores) = cores.or_else(|| given.map(|_| there())) else {
        return Ok(());
    };
    let deleted = call
        .param("delete")
        .is_some_and(|keys| keys.split(',').any(|key| key == "sockets"));
    let sockets = match config.raw.get("sockets") {
        Some(text) if !deleted => number(text),
        _ => 1,
    };
    let sockets = given.unwrap_or(sockets);
    if cores.saturating_mul(sockets.max(1)) > policy.allow.max_cores {
        return Err(format!(
            "parameter cores: {cores} cores on {sockets} sockets are more than the largest instance type has"
        ));
    }
    Ok(())
}

/// The addresses that are reserved for the machine, as its pool's network writes them; else what a template says.
fn ipconfig(policy: &BrokerPolicy, mark: &Mark, (card, value): (u8, &str)) -> Result<(), String> {
    let fail = |why: String| Err(format!("parameter ipconfig{card}: {why}"));
    let Some(addresses) = mark.addresses.get(&card) else {
        return if policy.guest.ipconfigs.contains(value) {
            Ok(())
        } else {
            fail(format!(
                "no address is reserved for network card {card} of the machine"
            ))
        };
    };
    let pool = policy.allow.pools.get(&mark.pool);
    let network = pool.and_then(|pool| policy.allow.networks.get(pool.networks.get(&card)?));
    let Some(network) = network else {
        return fail(format!("pool {} has no network for it", mark.pool));
    };
    match network.ipconfig(addresses) {
        Ok(own) if own == value => Ok(()),
        Ok(own) => fail(format!("must be {own}, which is reserved for the machine")),
        Err(why) => fail(why),
    }
}

/// The weight that the file gives the machine's pool, and no other.
fn cpu_units(policy: &BrokerPolicy, units: &str, mark: &Mark) -> Result<(), String> {
    match policy.guest.cpu_units.get(&mark.pool) {
        Some(wanted) if wanted.to_string() == units => Ok(()),
        Some(wanted) => Err(format!(
            "parameter cpuunits: pool {} has {wanted}",
            mark.pool
        )),
        None => Err(format!(
            "parameter cpuunits: the configuration names none for pool {}",
            mark.pool
        )),
    }
}

/// Whether an option of a network card may be written so: each to what the policy names alone.
fn net_option(
    policy: &BrokerPolicy,
    (key, value): (&str, &str),
    (card, mark): (u8, &Mark),
) -> bool {
    let guest = &policy.guest;
    match key {
        "firewall" => {
            // No other template's table takes a card's groups out of force.
            let mut groups = groups(policy, mark).iter();
            let grouped = groups.any(|(_, number)| *number == card);
            let on = |on: &bool| u8::from(*on).to_string() == value;
            guest.firewalls.iter().any(on) && (value == "1" || !grouped)
        }
        "mtu" => guest.mtus.iter().any(|mtu| mtu.to_string() == value),
        "rate" => guest.rates.iter().any(|rate| rate.to_string() == value),
        "queues" => {
            let kind = policy.allow.types.get(&mark.instance_type);
            let cores = kind.map_or(0, |kind| kind.cores.min(MAX_QUEUES));
            let queues = |on: &bool| if *on { cores } else { 0 }.to_string() == value;
            guest.multiqueues.iter().any(queues)
        }
        _ => false,
    }
}

/// Whether a card may have this model and MAC address: its own, those of the template's table, or none yet.
fn named_card(
    policy: &BrokerPolicy,
    wanted: &Net,
    current: &Net,
    (card, mark): (u8, &Mark),
) -> bool {
    let guest = &policy.guest;
    let model = wanted.model == current.model || guest.models.contains(&*wanted.model);
    let own = |given: &String| {
        let mut prefixes = guest.mac_prefixes.iter();
        prefixes.any(|prefix| mac(prefix, mark.vmid, card) == *given)
    };
    model && (wanted.mac == current.mac || wanted.mac.as_ref().is_some_and(own))
}

/// Only bridge, VLAN, firewall, MTU, queues and rate may differ, and only to what the policy names.
fn net(
    policy: &BrokerPolicy,
    (card, value): (u8, &str),
    mark: &Mark,
    config: &VmConfig,
) -> Result<(), String> {
    let wanted = Net::read(value);
    let fail = |why: &str| Err(format!("parameter net{card}: {why}"));
    let bridges = &policy.allow.bridges;
    let current = config.raw.get(&format!("net{card}"));
    let Some(current) = &current.map(|text| Net::read(text)) else {
        // A template without this card: the plainest one, on a bridge of the policy.
        let plain = Net::read("virtio");
        let listed = wanted
            .bridge
            .as_ref()
            .is_some_and(|bridge| bridges.contains(bridge));
        let tag = wanted
            .tag
            .is_none_or(|tag| policy.guest.vlans.contains(&tag));
        if listed
            && tag
            && named_card(policy, &wanted, &plain, (card, mark))
            && wanted
                .rest
                .iter()
                .all(|(key, option)| net_option(policy, (key, option), (card, mark)))
            && !repeated(&wanted)
            && parts(&wanted.write()) == parts(value)
        {
            return Ok(());
        }
        return fail(
            "must be as the configuration says, virtio by default, on a bridge that it names",
        );
    };
    if wanted.bridge != current.bridge
        && !wanted
            .bridge
            .as_ref()
            .is_some_and(|bridge| bridges.contains(bridge))
    {
        return fail("the bridge must stay or be one that the configuration names");
    }
    if wanted.tag != current.tag
        && !wanted
            .tag
            .is_some_and(|tag| policy.guest.vlans.contains(&tag))
    {
        return fail("the VLAN must stay or be one that the configuration names");
    }
    let allowed =
        |(key, option): &&(String, String)| net_option(policy, (key, option), (card, mark));
    let fresh = |pair: &&(String, String)| !current.rest.contains(*pair);
    let changed = wanted.rest.iter().filter(fresh);
    let named = |key: &str| wanted.rest.iter().any(|(name, _)| name == key);
    let same = named_card(policy, &wanted, current, (card, mark))
        && changed.clone().count() == changed.filter(allowed).count()
        && current.rest.iter().all(|(key, _)| named(key));
    if !same || repeated(&wanted) || parts(&wanted.write()) != parts(value) {
        return fail(
            "only bridge, tag, firewall, mtu, queues and rate may change, and to what the configuration names",
        );
    }
    Ok(())
}

/// An option of a network card stands twice: which one counts is PVE's affair.
fn repeated(net: &Net) -> bool {
    let keys: BTreeSet<&str> = net.rest.iter().map(|(key, _)| key.as_str()).collect();
    keys.len() != net.rest.len()
}

/// The parts of a card, sorted: written anew it has every key once and in one spelling, and nothing is hidden in it.
fn parts(text: &str) -> Vec<&str> {
    let mut parts: Vec<&str> = text.split(',').collect();
    parts.sort_unstable();
    parts
}

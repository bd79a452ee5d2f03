//! Which machines have drifted: what they were made with is not what the file says now, and cannot change in place; or they were moved
//! away from the CPUs that they were given. Pure.
//!
//! The terms of a machine say what its pods were promised. Of the other settings the journal keeps a hash for each part,
//! taken when the machine's VM was configured: a setting that a newer program brings changes none while it is not used.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::config::new_vm::NewVm;
use crate::config::settings::{
    AddressSource, JoinMethod, JoinSettings, PoolSettings, Settings, TemplateSettings,
};
use crate::config::vm_options;
use crate::controller::journal::{JournalEntry, UNKNOWN_TEMPLATE};
use crate::controller::machines::Observed;
use crate::controller::vm_config::OwnKeys;
use crate::model::action::NO_TEMPLATE;
use crate::model::cpu_loss::CpuLoss;
use crate::model::drift::Drift;
use crate::model::mark::Mark;
use crate::model::policy::{InstanceType, Policy, Terms};
use crate::model::region::{Machine, RegionName, Step};
use crate::model::topology::Pinning;

/// Hashes by part.
pub type MadeOf = BTreeMap<Drift, String>;

/// What a machine with this mark is made with by these settings; nothing where they know its pool or template no more.
pub fn made_of(settings: &Settings, mark: &Mark) -> MadeOf {
    let pool = settings.pools.get(mark.pool.as_str());
    let template = settings.templates.get(mark.template.as_str());
    let Some((pool, template)) = pool.zip(template) else {
        return MadeOf::new();
    };
    let policy = settings.policy.pools.get(mark.pool.as_str());
    let pinning = policy.map(|policy| policy.pinning).unwrap_or_default();
    let policy = policy.map(|policy| policy.of_template(&mark.template).unwrap_or(policy));
    let networks = policy.map(|policy| &policy.networks);
    [
        (Drift::Template, source(template)),
        (Drift::Hardware, hardware(template, pool, pinning)),
        (Drift::Network, network(template, networks, settings)),
        (Drift::CloudInit, cloud_init(template)),
        (Drift::Kubelet, kubelet(pool)),
        (Drift::Join, join(pool)),
        (Drift::Endpoint, json!(pool.join.endpoint)),
    ]
    .map(|(part, value)| (part, hash(&value)))
    .into()
}

/// The part of a machine that is told to join by these settings.
pub fn endpoint(join: &JoinSettings) -> String {
    hash(&json!(join.endpoint))
}

/// Eight bytes tell two texts of one person apart.
fn hash(value: &Value) -> String {
    let text = serde_json::to_vec(&set(value)).unwrap_or_default();
    let bytes = Sha256::digest(text);
    bytes
        .iter()
        .take(8)
        .fold(String::new(), |mut digits, byte| {
            let _ = write!(digits, "{byte:02x}");
            digits
        })
}

/// A value without what is not set, at any depth: it counts as not there. Items of a list keep their places.
fn set(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, field)| !field.is_null());
            let fields = fields.map(|(key, field)| (key.clone(), set(field)));
            fields.collect::<serde_json::Map<String, Value>>().into()
        }
        Value::Array(items) => items.iter().map(set).collect(),
        other => other.clone(),
    }
}

/// Which template the file names. How it is built changes no machine: the template that is built by it does ([`is_of_former_copy`]).
fn source(template: &TemplateSettings) -> Value {
    json!({
        "vmid": template.vmid, "name": template.vm_name, "tags": some(&template.tags),
        "storage": template.storage, "full": template.full_clone.then_some(true), "new": template.new_vm.as_deref().map(new_vm),
    })
}

/// The part of `[template.NAME.create]` that a machine drifts by: not the resource pool, into which machines are moved, and not the
/// network card, which is among the hardware.
fn new_vm(new: &NewVm) -> Value {
    let mut create = json!(new.create);
    // Machines that are older than the key have none either.
    create["tpm"] = json!(new.create.tpm.then_some(true));
    create
}

fn hardware(template: &TemplateSettings, pool: &PoolSettings, pinning: Pinning) -> Value {
    let hardware = &template.hardware;
    let disks = hardware.disks.iter();
    let disks: BTreeMap<&String, String> =
        disks.map(|(slot, disk)| (slot, disk.written())).collect();
    let options = vm_options::from_the_next_start(&hardware.options);
    let cards = template.cards().map(|(number, card)| {
        json!({
            "number": number, "bridge": card.bridge, "vlan": card.vlan, "firewall": card.firewall,
            "mtu": card.mtu, "multiqueue": card.multiqueue, "rate": card.rate, "model": card.model,
        })
    });
    json!({
        "cpu": template.cpu_type, "sockets": hardware.sockets, "numa": hardware.numa,
        "mac": hardware.mac_prefix, "disks": (!disks.is_empty()).then_some(disks),
        "cards": cards.collect::<Vec<Value>>(), "balloon": pool.balloon, "boot": template.boot_disk,
        "pinning": (pinning != Pinning::default()).then_some(pinning),
        "options": (!options.is_empty()).then_some(options),
        "boot_options": (!hardware.boot_disk.is_empty()).then_some(&hardware.boot_disk),
    })
}

/// What its networks tell a machine beside its addresses, and the firewall that its security groups want: a group that is a card's first
/// comes to machines that are there, and does nothing while their firewall is off. The names of networks are nothing to a machine, and
/// whether they give it its addresses its mark tells.
fn network(
    template: &TemplateSettings,
    networks: Option<&BTreeMap<u8, Arc<str>>>,
    settings: &Settings,
) -> Value {
    let source = |source: &AddressSource| match source {
        AddressSource::None => Value::Null,
        AddressSource::Guest(word) => json!(word),
        AddressSource::Ranges {
            prefix, gateway, ..
        } => json!({ "prefix": prefix, "gateway": gateway }),
    };
    let of_card = |(card, name): (&u8, &Arc<str>)| {
        let network = settings.networks.get(name)?;
        Some(json!({
            "number": card, "ipv4": source(&network.ipv4), "ipv6": source(&network.ipv6),
            "nameserver": network.nameserver, "search": network.searchdomain,
        }))
    };
    let networks: Vec<Value> = networks.into_iter().flatten().filter_map(of_card).collect();
    let passes = template.cards().filter(|(_, card)| {
        // Where the file says it of the card itself it is among the hardware.
        card.firewall.is_none() && card.passes_firewall() == Some(true)
    });
    let passes: Vec<u8> = passes.map(|(number, _)| number).collect();
    json!({
        "networks": some(&networks), "passes": some(&passes),
        "firewall": template.switches_firewall_on().then_some(true),
    })
}

fn cloud_init(template: &TemplateSettings) -> Value {
    let own = template.cloud_init.as_ref();
    let own = own.map(|own| {
        json!({
            "user": own.user_data, "vendor": own.vendor_data, "network": own.network_config,
            "machine": own.machine_config,
        })
    });
    let cards = template.cards().map(|(_, card)| card.ipconfig);
    json!({
        "keys": template.ssh_keys, "user": template.ci_user, "nameserver": template.nameserver,
        "search": template.searchdomain, "upgrade": template.ci_upgrade.then_some(true), "own": own,
        "ipconfigs": cards.collect::<Vec<Option<String>>>(),
    })
}

fn kubelet(pool: &PoolSettings) -> Value {
    json!({
        "settings": (!pool.kubelet.is_empty()).then_some(&pool.kubelet),
        "arguments": (!pool.join.kubelet_args.is_empty()).then_some(&pool.join.kubelet_args),
    })
}

fn join(pool: &PoolSettings) -> Value {
    let script = match &pool.join.method {
        JoinMethod::Command { script, .. } => Some(script),
        _ => None,
    };
    json!({
        "method": pool.join.method.called(), "script": script,
        "first_boot": pool.join.at_first_boot.then_some(true), "provider": pool.join.provider_id,
        "socket": pool.join.cri_socket,
    })
}

fn some<T>(list: &[T]) -> Option<&[T]> {
    (!list.is_empty()).then_some(list)
}

/// What of a machine is not as the file says; `None` where it is not known what it was made with, or the file does
/// not have its pool any more.
fn of(
    machine: &Machine,
    entry: &JournalEntry,
    settings: &Settings,
    now: &MadeOf,
) -> Option<Vec<Drift>> {
    let terms = machine.terms.as_ref()?;
    let mut found = against_terms(terms, &machine.mark, &settings.policy)?;
    if now.is_empty() {
        found.push(Drift::Template);
    }
    if OwnKeys::with_addresses(settings, &machine.mark).is_err() {
        found.push(Drift::Network);
    }
    // A part that an older program did not know is nobody's drift: what the machine was made with is not known of it.
    let made_of = &entry.made_of;
    let other = |(part, hash): &(&Drift, &String)| made_of.get(part).is_some_and(|of| of != *hash);
    found.extend(now.iter().filter(other).map(|(part, _)| *part));
    found.sort_unstable();
    found.dedup();
    Some(found)
}

fn against_terms(terms: &Terms, mark: &Mark, policy: &Policy) -> Option<Vec<Drift>> {
    let pool = policy.pools.get(mark.pool.as_str())?;
    let mut found = Vec::new();
    let Some(there) = pool.of_template(&mark.template) else {
        // The pool takes another template now.
        return Some(vec![Drift::Template]);
    };
    let named = there.instance_types.iter();
    let named = named.into_iter().any(|name| **name == *mark.instance_type);
    let kind = policy.instance_types.get(mark.instance_type.as_str());
    // What a machine costs is no part of it.
    let same = |known: &&InstanceType| {
        let priced = InstanceType {
            price: terms.kind.price,
            ..(*known).clone()
        };
        priced == terms.kind
    };
    if !named || !kind.as_ref().is_some_and(same) {
        found.push(Drift::InstanceType);
    }
    for (part, as_promised) in [
        (Drift::Labels, terms.labels == there.labels),
        (
            Drift::Taints,
            terms.taints == there.taints && terms.startup_taints == there.startup_taints,
        ),
        (
            Drift::Reservations,
            terms.reserved == there.reserved && terms.max_pods == there.max_pods,
        ),
        (Drift::Template, terms.arch == there.arch),
    ] {
        if !as_promised {
            found.push(part);
        }
    }
    Some(found)
}

/// Whether the VM that a machine was cloned from is no copy of its template any more, and another one is there to clone from.
///
/// `template build` gives the template before another name, and a person who replaces a template by hand renames or destroys the
/// one before, or takes its VMID for the new one. While nothing newer can be cloned, no machine is behind.
fn is_of_former_copy(entry: &JournalEntry, observed: &Observed) -> bool {
    let (spec, region) = (&entry.spec, &observed.region);
    let template = spec.mark.template.as_str();
    if matches!(spec.template_vmid, NO_TEMPLATE | UNKNOWN_TEMPLATE) {
        return false;
    }
    let copies = region
        .templates
        .get(template)
        .map_or(&[][..], Vec::as_slice);
    if !copies
        .iter()
        .any(|copy| copy.fault.is_none() && !copy.redefined)
    {
        return false;
    }
    if let Some(copy) = copies.iter().find(|copy| copy.vmid == spec.template_vmid) {
        let uuids = copy.uuid.as_ref().zip(spec.template_uuid.as_ref());
        return uuids.is_some_and(|(there, then)| there != then);
    }
    let named = observed.templates.get(template);
    let named = named.is_some_and(|vmids| vmids.contains(&spec.template_vmid));
    // PVE tells neither names nor tags of guests on a host that is offline: whether the VM is still a copy is not known then.
    let told = region.vms.get(&spec.template_vmid).is_none_or(|vm| {
        let host = region.hosts.get(&vm.host);
        vm.unread.is_none() && host.is_some_and(|host| host.online)
    });
    !named && told
}

/// Whether a machine that has CPUs for itself was moved to a host where they are not: it is the one that came, and not a machine of
/// that host whose CPUs it has now.
fn has_left_its_cpus(
    machine: &Machine,
    entry: &JournalEntry,
    observed: &Observed,
    policy: &Policy,
) -> bool {
    let moved = entry.made_on.as_ref();
    let moved = moved.is_some_and(|host| *host != machine.host);
    moved && CpuLoss::find(machine, &observed.region, policy).is_some()
}

/// Whether it is told of a machine what has drifted: it works, or worked and is being removed. The latter counts until its node is gone:
/// its pool replaces so many at once and no more. Of an entry that was made from a VM's mark it is not known how far the machine came.
fn has_worked(machine: &Machine, entry: &JournalEntry) -> bool {
    let worked = entry.reached.is_none_or(|reached| reached >= Step::Done);
    machine.step.is_some_and(|(step, _)| {
        step == Step::Done || (step > Step::Done && machine.node.is_some() && worked)
    })
}

/// Writes into the machines that became nodes what of them has drifted.
pub fn mark(
    machines: &mut BTreeMap<Arc<str>, Machine>,
    regions: &BTreeMap<RegionName, Observed>,
    journal: &BTreeMap<Arc<str>, JournalEntry>,
    settings: &Settings,
) {
    // Machines of one pool and template are made of the same.
    let mut all: BTreeMap<(String, String), MadeOf> = BTreeMap::new();
    for (name, machine) in machines {
        let entry = journal.get(name);
        let entry = entry.filter(|entry| has_worked(machine, entry));
        let entry = entry.filter(|entry| !entry.made_of.is_empty());
        let drifted = entry.and_then(|entry| {
            let mark = &machine.mark;
            let now = all.entry((mark.pool.clone(), mark.template.clone()));
            let now = now.or_insert_with(|| made_of(settings, mark));
            let mut found = of(machine, entry, settings, now)?;
            let observed = regions.get(&machine.region);
            if observed.is_some_and(|of| has_left_its_cpus(machine, entry, of, &settings.policy)) {
                found.push(Drift::Cpus);
            }
            let former = observed.is_some_and(|observed| is_of_former_copy(entry, observed));
            if former && !found.contains(&Drift::Template) {
                found.push(Drift::Template);
                found.sort_unstable();
            }
            Some(found)
        });
        if let Some(vm) = machine.vm.as_mut().filter(|vm| vm.marked) {
            vm.drifted = drifted;
        }
    }
}

#[cfg(test)]
mod tests;

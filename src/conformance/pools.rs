//! Instance types, pools and hosts of a case, as the policy and the region they stand for.
//!
//! A case may say more than a pool of ours can: types of several architectures or pod limits in one
//! pool, or a label that may take several values. Such a pool becomes several, and its types become
//! variants; the names of the case stay what `then` speaks of ([`CaseNames`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::hosts::{HostRules, StorageFloor};
use crate::model::pci::PciDevice;
use crate::model::policy::{InstanceType, PoolPolicy, Reserved};
use crate::model::resources::Resources;
use crate::model::scheduling::{Labels, Taint};
use crate::model::time::Time;
use crate::model::topology::{HugePages, Pinning};
use crate::model::words;

use super::containers;
use super::disruption;
use super::fields::CaseFields;
use super::networks;
use super::objects::{listed, name_of, named, numbered};
use super::scalars::{
    decimal, gives, label_key, millionths, node_labels, permille, quantity, resource, resources,
    several, text, texts, truth, whole,
};
use super::settings;
use super::short;
use super::stage::{REGION, TEMPLATE};
use super::templates::MISSING;
use super::value::{CaseEntry, CaseError, CaseValue};

/// Pods of a node where nothing is said: the kubelet's default.
const PODS: u32 = 110;
/// Nodes of a pool where nothing is said: as good as unlimited.
const UNLIMITED: u32 = 1_000_000;

/// What the case calls pools and types that have other names here.
#[derive(Clone, Debug, Default)]
pub(super) struct CaseNames {
    /// Real pool to the pool of the case.
    pub(super) pools: BTreeMap<Arc<str>, String>,
    /// Real type to the type of the case.
    pub(super) types: BTreeMap<Arc<str>, String>,
}

impl CaseNames {
    /// What the case calls a pool.
    pub(super) fn pool<'n>(&'n self, real: &'n str) -> &'n str {
        self.pools.get(real).map_or(real, String::as_str)
    }

    /// What the case calls a type.
    pub(super) fn kind<'n>(&'n self, real: &'n str) -> &'n str {
        self.types.get(real).map_or(real, String::as_str)
    }
}

/// A type as the case says it.
#[derive(Clone, Debug)]
struct Sized {
    name: String,
    /// The VM's: CPU in millicores.
    size: Resources,
    overhead: Resources,
    pods: u32,
    labels: Labels,
    arch: String,
    price: Option<i64>,
    attach_limits: BTreeMap<Arc<str>, i32>,
    /// PCI devices of its host that a machine gets, by mapping.
    pci: Vec<PciDevice>,
}

/// All that pools and types of a case come to.
#[derive(Debug, Default)]
pub(super) struct Catalogue {
    pub(super) types: BTreeMap<Arc<str>, InstanceType>,
    pub(super) pools: BTreeMap<Arc<str>, PoolPolicy>,
    pub(super) names: CaseNames,
}

/// Reads `types` and `pools`.
pub(super) fn read(case: &mut CaseFields<'_>, now: Time) -> Result<Catalogue, CaseError> {
    let mut types = Vec::new();
    if let Some(value) = case.take("types") {
        for (name, item) in named(value)? {
            types.push(kind(&item, name.as_ref())?);
        }
    }
    let mut catalogue = Catalogue::default();
    if let Some(value) = case.take("pools") {
        for (name, item) in listed(value)? {
            // Without `{i}` it is one pool, which has at most so many machines.
            let pools = if item.has_index() {
                numbered(name, item)?
            } else {
                vec![(name, item)]
            };
            for (name, item) in pools {
                pool(&mut catalogue, &types, &item, name.as_ref(), now)?;
            }
        }
    }
    Ok(catalogue)
}

fn kind(value: &CaseValue, name: Option<&String>) -> Result<Sized, CaseError> {
    let mut fields = CaseFields::of(value, "an instance type")?;
    let name = name_of(&mut fields, name, "an instance type")?;
    let kind = sized(&mut fields, name)?;
    fields.done()?;
    Ok(kind)
}

/// The keys of a type, which may also stand in a pool that has only one.
fn sized(fields: &mut CaseFields<'_>, name: String) -> Result<Sized, CaseError> {
    let mut size = Resources::default();
    if let Some(value) = fields.take("cpu") {
        size.cpu_milli = quantity(value)?.milli();
    }
    if let Some(value) = fields.any(&["mem", "memory"]) {
        size.memory = quantity(value)?.units();
    }
    if let Some(value) = fields.any(&["ephemeral", "ephemeral-storage", "disk"]) {
        size.ephemeral = quantity(value)?.units();
    }
    for entry in fields
        .take("ext")
        .and_then(CaseValue::map)
        .unwrap_or_default()
    {
        let amount = quantity(&entry.value)?.units();
        size.extended.insert(resource(&entry.key).into(), amount);
    }
    let pods = fields.with("pods", whole::<u32>)?.unwrap_or(PODS);
    let overhead = fields.with("overhead", resources)?.unwrap_or_default();
    let mut labels = fields.with("labels", node_labels)?.unwrap_or_default();
    if let Some(os) = fields.with("os", text)? {
        labels.insert(label_key("os").into(), os.into());
    }
    let arch = fields.with("arch", text)?.unwrap_or("amd64").to_owned();
    let attach = fields.any(&["attach", "attach_limits"]);
    let attach = attach.map(containers::attach_limits).transpose()?;
    Ok(Sized {
        name,
        size,
        overhead,
        pods,
        labels,
        arch,
        price: fields.with("price", millionths)?,
        pci: fields.with("pci", devices)?.unwrap_or_default(),
        attach_limits: attach
            .unwrap_or_default()
            .into_iter()
            .map(|(driver, limit)| (driver.into(), limit))
            .collect(),
    })
}

/// `[gpu, gpu]`: a device of the mapping for each; `["vgpu,mdev=nvidia-63"]`: a mediated one of it.
fn devices(value: &CaseValue) -> Result<Vec<PciDevice>, CaseError> {
    let names = texts(value)?.into_iter();
    let devices = names.map(|name| {
        let (mapping, mdev) = match name.split_once(",mdev=") {
            Some((mapping, mdev)) => (mapping, Some(mdev.into())),
            None => (&*name, None),
        };
        PciDevice {
            mapping: mapping.into(),
            mdev,
            ..PciDevice::default()
        }
    });
    Ok(devices.collect())
}

/// Values a label of a pool may take: each makes a variant of every type.
type Choices = Vec<(String, Vec<String>)>;

fn pool(
    catalogue: &mut Catalogue,
    known: &[Sized],
    value: &CaseValue,
    name: Option<&String>,
    now: Time,
) -> Result<(), CaseError> {
    let mut fields = CaseFields::of(value, "a pool")?;
    let name = name_of(&mut fields, name, "a pool")?;
    let mut policy = PoolPolicy {
        region: REGION.into(),
        template: fields.with("template", text)?.unwrap_or(TEMPLATE).into(),
        networks: networks::of_pool(&mut fields)?,
        pinning: pinning(&mut fields)?,
        min: fields
            .any(&["min", "minSize", "minNodes"])
            .map(whole)
            .transpose()?
            .unwrap_or(0),
        weight: fields.with("weight", whole)?.unwrap_or(0),
        taints: fields.with("taints", taints)?.unwrap_or_default(),
        startup_taints: fields.with("startup_taints", taints)?.unwrap_or_default(),
        ..PoolPolicy::default()
    };
    policy.max = match fields.any(&["max", "count", "maxSize", "maxNodes"]) {
        Some(value) if value.scalar() == Some("unlimited") => UNLIMITED,
        Some(value) => whole(value)?,
        None => UNLIMITED,
    };
    ceilings(&mut fields, &mut policy)?;
    if fields.with("ready", truth)? == Some(false) {
        policy.template = MISSING.into();
    }
    policy.scale_down_disabled = fields.with("scale_down_disabled", truth)?.unwrap_or(false);
    policy.atomic = fields.with("atomic", truth)?.unwrap_or(false);
    policy.consolidation = fields.with("consolidation", disruption::consolidation)?;
    policy.rollout = disruption::rollout(&mut fields)?;
    policy.budgets = fields
        .with("budgets", disruption::budgets)?
        .unwrap_or_default();
    if let Some(value) = fields.take("disruption") {
        disruption::block(value, &mut policy)?;
    }
    host_rules(&mut fields, &mut policy.host_rules)?;
    let own_settings = fields.take("scale_down");
    let regions = fields.take("regions");
    let zones = fields.any(&["zones", "hosts"]).map(texts).transpose()?;
    let mut zones = zones.unwrap_or_default();
    let mut choices = requirements(&mut fields, &mut zones)?;
    policy.hosts = zones.iter().map(|zone| zone.as_str().into()).collect();
    let mut types = types_of(&mut fields, known, &name, &mut policy)?;
    keep_arches(&mut choices, &mut types);
    let others = fields.take("policy");
    fields.done()?;
    if let Some(value) = own_settings {
        policy.scale_down = Some(settings::scale_down(value, now)?);
    }
    if let Some(value) = others {
        policy = settings::overlay(&policy, value, now, "a pool's policy")?;
    }
    policy = super::regions::over(&policy, regions)?;
    let variants = types
        .iter()
        .flat_map(|kind| variants(kind, &choices))
        .collect();
    add(catalogue, &name, &policy, variants);
    Ok(())
}

/// What all its machines together may have.
fn ceilings(fields: &mut CaseFields<'_>, policy: &mut PoolPolicy) -> Result<(), CaseError> {
    if let Some(value) = fields.take("limits") {
        let limits = resources(value)?;
        // A limit of 0 is one: no machine is within it.
        policy.max_cpu_milli = gives(value, "cpu").then_some(limits.cpu_milli);
        policy.max_memory = gives(value, "memory").then_some(limits.memory);
    }
    Ok(())
}

/// Which hosts it takes, by the names that the configuration has for it.
fn host_rules(fields: &mut CaseFields<'_>, rules: &mut HostRules) -> Result<(), CaseError> {
    if let Some(value) = fields.take("host_strategy") {
        rules.strategy = serde_json::from_value(value.json()).map_err(|_| {
            value.expected("spread, max-memory, max-cpu, balanced, round-robin or pack")
        })?;
    }
    rules.max_per_host = fields.with("max_per_host", whole)?;
    if let Some(names) = fields.with("exclude_hosts", texts)? {
        rules.exclude = names.iter().map(|name| name.as_str().into()).collect();
    }
    if let Some(value) = fields.take("min_free_memory") {
        rules.min_free_memory = quantity(value)?.units();
    }
    if let Some(value) = fields.take("min_free_cores") {
        rules.min_free_cpu_milli = quantity(value)?.milli();
    }
    rules.min_free_storage = fields.with("min_free_storage", floor)?;
    rules.max_cpu_load = fields.with("max_cpu_load", permille)?;
    rules.max_memory_load = fields.with("max_memory_load", permille)?;
    rules.max_pressure = fields.with("max_pressure", permille)?;
    Ok(())
}

/// What stays free of a storage: `50Gi`, `10%`.
fn floor(value: &CaseValue) -> Result<StorageFloor, CaseError> {
    let Some(percent) = text(value)?.strip_suffix('%') else {
        return Ok(StorageFloor::Bytes(quantity(value)?.units()));
    };
    let part = decimal(percent, 1).filter(|part| (0..1000).contains(part));
    let part = part.ok_or_else(|| value.expected("an amount, or a percentage below 100"))?;
    Ok(StorageFloor::Permille(part))
}

/// What its machines have of their host's CPUs and memory for themselves, by the names that the configuration has for it.
fn pinning(fields: &mut CaseFields<'_>) -> Result<Pinning, CaseError> {
    let hugepages = fields.with("hugepages", |value| match text(value)? {
        "2M" => Ok(HugePages::TwoMib),
        "1G" => Ok(HugePages::OneGib),
        "any" => Ok(HugePages::Any),
        _ => Err(value.expected("2M, 1G or any")),
    })?;
    Ok(Pinning {
        cpus: fields.with("cpu_pinning", truth)?.unwrap_or(false),
        hugepages,
    })
}

/// Taints as the model has them.
pub(super) fn taints(value: &CaseValue) -> Result<Vec<Taint>, CaseError> {
    several(value)
        .into_iter()
        .map(|item| {
            serde_json::from_value(strip(short::taint(item)?))
                .map_err(|error| item.wrong(error.to_string()))
        })
        .collect()
}

fn strip(mut taint: serde_json::Value) -> serde_json::Value {
    if let Some(taint) = taint.as_object_mut() {
        taint.remove("timeAdded");
    }
    taint
}

/// `requirements: {zone: [z1, z2], tier: [a, b]}`: zones restrict the hosts, other labels may take
/// any of their values.
fn requirements(
    fields: &mut CaseFields<'_>,
    zones: &mut Vec<String>,
) -> Result<Choices, CaseError> {
    let Some(value) = fields.take("requirements") else {
        return Ok(Vec::new());
    };
    let mut choices = Vec::new();
    let mut add = |key: &str, values: Vec<String>| match label_key(key) {
        "topology.kubernetes.io/zone" => *zones = values,
        key => choices.push((key.to_owned(), values)),
    };
    if let Some(items) = value.list() {
        for item in items {
            let mut fields = CaseFields::of(item, "a requirement")?;
            let key = text(fields.need("key")?)?;
            if fields
                .with("operator", text)?
                .is_some_and(|word| word != "In")
            {
                return Err(item.wrong(
                    "expected the operator In: a pool has labels, or values to choose from",
                ));
            }
            add(key, texts(fields.need("values")?)?);
            fields.done()?;
        }
        return Ok(choices);
    }
    let entries: &[CaseEntry] = value
        .map()
        .ok_or_else(|| value.expected("labels with the values they may take, as {tier: [a, b]}"))?;
    for entry in entries {
        add(&entry.key, texts(&entry.value)?);
    }
    Ok(choices)
}

/// Architectures are of types: a choice of them is a choice of types.
fn keep_arches(choices: &mut Choices, types: &mut Vec<Sized>) {
    choices.retain(|(key, values)| {
        let of_types = key == label_key("arch");
        if of_types {
            types.retain(|kind| values.contains(&kind.arch));
        }
        !of_types
    });
}

/// The types of a pool: named ones, its own single one, or all there are.
fn types_of(
    fields: &mut CaseFields<'_>,
    known: &[Sized],
    name: &str,
    policy: &mut PoolPolicy,
) -> Result<Vec<Sized>, CaseError> {
    let own = fields.value().get("cpu").is_some() || fields.value().get("mem").is_some();
    let own = own || fields.value().get("memory").is_some();
    if own {
        return Ok(vec![sized(fields, name.to_owned())?]);
    }
    policy.labels = fields.with("labels", node_labels)?.unwrap_or_default();
    let mut types = chosen_types(fields, known)?;
    if let Some(value) = fields.take("pods") {
        let pods = whole(value)?;
        for kind in &mut types {
            kind.pods = pods;
        }
    }
    if let Some(overhead) = fields.with("overhead", resources)? {
        for kind in &mut types {
            kind.overhead = overhead.clone();
        }
    }
    if let Some(arch) = fields.with("arch", texts)? {
        types.retain(|kind| arch.contains(&kind.arch));
    }
    if let Some(os) = fields.with("os", text)? {
        for kind in &mut types {
            kind.labels.insert(label_key("os").into(), os.into());
        }
    }
    if let Some(value) = fields.any(&["attach", "attach_limits"]) {
        for (driver, limit) in containers::attach_limits(value)? {
            for kind in &mut types {
                kind.attach_limits.insert(driver.as_str().into(), limit);
            }
        }
    }
    if types.is_empty() {
        return Err(fields.value().wrong(format!(
            "the pool {name} has no instance type: give it cpu and mem, or types"
        )));
    }
    Ok(types)
}

/// The types that `types` names or describes; all there are where it is absent.
fn chosen_types(fields: &mut CaseFields<'_>, known: &[Sized]) -> Result<Vec<Sized>, CaseError> {
    let mut types = Vec::new();
    match fields.any(&["types", "type"]) {
        None => types.extend(known.iter().cloned()),
        Some(value) if value.map().is_some() => {
            for (name, item) in named(value)? {
                types.push(kind(&item, name.as_ref())?);
            }
        }
        Some(value) => {
            for item in several(value) {
                if item.map().is_some() {
                    types.push(kind(item, None)?);
                    continue;
                }
                let wanted = text(item)?;
                let found = known
                    .iter()
                    .find(|kind| kind.name == wanted)
                    .ok_or_else(|| {
                        let names: Vec<&str> = known.iter().map(|kind| &*kind.name).collect();
                        item.wrong(format!(
                            "there is no instance type {wanted:?}; known: {}",
                            words::names(&names)
                        ))
                    })?;
                types.push(found.clone());
            }
        }
    }
    Ok(types)
}

/// A type with every combination of the labels that its pool leaves open.
fn variants(kind: &Sized, choices: &Choices) -> Vec<(String, Sized)> {
    let mut all = vec![(kind.name.clone(), kind.clone())];
    for (key, values) in choices {
        all = all
            .into_iter()
            .flat_map(|(origin, kind)| {
                values.iter().map(move |value| {
                    let mut variant = kind.clone();
                    variant.name = format!("{}.{value}", kind.name);
                    variant
                        .labels
                        .insert(key.as_str().into(), value.as_str().into());
                    (origin.clone(), variant)
                })
            })
            .collect();
    }
    all
}

/// What types must agree in to be in one pool of ours.
type PoolKey = (String, u32, i64, i64);

fn add(catalogue: &mut Catalogue, name: &str, policy: &PoolPolicy, types: Vec<(String, Sized)>) {
    let mut groups: Vec<(PoolKey, Vec<Arc<str>>)> = Vec::new();
    for (origin, kind) in types {
        let cores = cores(kind.size.cpu_milli);
        let spare = i64::from(cores) * 1000 - kind.size.cpu_milli;
        let fit = (
            kind.arch.clone(),
            kind.pods,
            spare.saturating_add(kind.overhead.cpu_milli),
            kind.overhead.memory,
        );
        let real: Arc<str> = unique(catalogue, &kind).into();
        if *origin != *real {
            catalogue.names.types.insert(real.clone(), origin);
        }
        let made = InstanceType {
            cores,
            memory: kind.size.memory,
            disk: kind.size.ephemeral,
            pci: kind.pci,
            extended: kind.size.extended,
            labels: kind.labels,
            price: kind.price,
            attach_limits: kind.attach_limits,
        };
        catalogue.types.insert(real.clone(), made);
        match groups.iter_mut().find(|(known, _)| *known == fit) {
            Some((_, types)) => types.push(real),
            None => groups.push((fit, vec![real])),
        }
    }
    for (index, ((arch, max_pods, cpu, memory), instance_types)) in groups.into_iter().enumerate() {
        let real: Arc<str> = match index {
            0 => name.into(),
            _ => format!("{name}-part{index}").into(),
        };
        if index > 0 {
            catalogue.names.pools.insert(real.clone(), name.to_owned());
        }
        let part = |policy: &PoolPolicy| PoolPolicy {
            instance_types: instance_types.clone(),
            arch: arch.as_str().into(),
            max_pods,
            min: if index == 0 { policy.min } else { 0 },
            reserved: Reserved {
                cpu_milli: cpu,
                memory,
                ..policy.reserved.clone()
            },
            ..policy.clone()
        };
        let further = policy.further.iter();
        let further = further.map(|(region, there)| (region.clone(), part(there)));
        let further = further.collect();
        let whole = PoolPolicy {
            further,
            ..part(policy)
        };
        catalogue.pools.insert(real, whole);
    }
}

/// A name that no other type of the case has, unless that one is the same.
fn unique(catalogue: &Catalogue, kind: &Sized) -> String {
    let same = |known: &InstanceType| {
        known.memory == kind.size.memory
            && known.labels == kind.labels
            && known.extended == kind.size.extended
            && known.price == kind.price
            && known.pci == kind.pci
            && known.attach_limits == kind.attach_limits
            && known.disk == kind.size.ephemeral
            && known.cores == cores(kind.size.cpu_milli)
    };
    let mut name = kind.name.clone();
    while catalogue
        .types
        .get(name.as_str())
        .is_some_and(|known| !same(known))
    {
        name.push('\'');
    }
    name
}

/// Whole cores that hold so many millicores.
fn cores(milli: i64) -> u32 {
    let milli = milli.max(0);
    u32::try_from(milli / 1000 + i64::from(milli % 1000 > 0)).unwrap_or(u32::MAX)
}

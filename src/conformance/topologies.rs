//! What the CPUs of a host of a case are to each other, in the words of the configuration's `[region.NAME.topology.HOST]`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::cpus::CpuSet;
use crate::model::topology::{HostTopology, NumaNode};

use super::fields::CaseFields;
use super::scalars::{quantity, several, text, whole};
use super::value::{CaseError, CaseValue};

/// Reads `topology: {numa: ["0-7", "8-15"], threads: 2, reserved: "0-1"}`.
pub(super) fn read(value: &CaseValue) -> Result<HostTopology, CaseError> {
    let mut fields = CaseFields::of(value, "a topology")?;
    let numa = sets(fields.need("numa")?)?;
    let all = numa.iter().fold(CpuSet::new(), |all, set| all.with(set));
    let mut parts = |key: &'static str, usual: Vec<CpuSet>| match fields.take(key) {
        None => Ok(usual),
        Some(value) => {
            let sets = sets(value)?;
            let named = sets.iter().fold(CpuSet::new(), |all, set| all.with(set));
            if named == all {
                Ok(sets)
            } else {
                Err(value.wrong(format!("{key} must name the CPUs of numa, which are {all}")))
            }
        }
    };
    let sockets = parts("sockets", vec![all.clone()])?;
    let caches = parts("caches", numa.clone())?;
    let named_cores = parts("cores", Vec::new())?;
    let threads = fields.with("threads", whole::<usize>)?;
    let cores = match threads {
        Some(0) => return Err(value.wrong("a core has at least one thread")),
        Some(_) if !named_cores.is_empty() => {
            return Err(value.wrong("a topology has the key cores or the key threads"));
        }
        None if !named_cores.is_empty() => named_cores,
        threads => numa
            .iter()
            .flat_map(|node| divide_into_cores(node, threads.unwrap_or(1)))
            .collect(),
    };
    let reserved = fields.with("reserved", cpus)?.unwrap_or_default();
    let memory = fields.with("numa_memory", |value| memories(value, numa.len()))?;
    let memory = memory.unwrap_or_default();
    let devices = fields.with("devices", |value| devices(value, numa.len()))?;
    fields.done()?;
    let nodes = numa.into_iter().enumerate().map(|(at, cpus)| NumaNode {
        cpus,
        memory: memory.get(at).copied(),
    });
    Ok(HostTopology {
        numa: nodes.collect(),
        sockets,
        caches,
        cores,
        reserved,
        devices: devices.unwrap_or_default(),
    })
}

/// CPUs such as `0-3,8`.
pub(super) fn cpus(value: &CaseValue) -> Result<CpuSet, CaseError> {
    let written = text(value)?;
    CpuSet::read(written).ok_or_else(|| value.expected("CPUs such as \"0-3,8\""))
}

/// Lists of CPUs, none of which is in two of them.
fn sets(value: &CaseValue) -> Result<Vec<CpuSet>, CaseError> {
    let mut seen = CpuSet::new();
    let mut all = Vec::new();
    for item in several(value) {
        let set = cpus(item)?;
        let twice = set.both(&seen);
        if !twice.is_empty() {
            return Err(item.wrong(format!("the CPUs {twice} are named twice")));
        }
        seen = seen.with(&set);
        all.push(set);
    }
    Ok(all)
}

/// Cores of so many threads, which are the CPUs beside each other.
fn divide_into_cores(node: &CpuSet, threads: usize) -> Vec<CpuSet> {
    let cpus: Vec<u16> = node.iter().collect();
    let cores = cpus.chunks(threads.max(1));
    cores.map(|core| core.iter().copied().collect()).collect()
}

/// A size for each NUMA node, or one for each alike.
fn memories(value: &CaseValue, nodes: usize) -> Result<Vec<i64>, CaseError> {
    if value.scalar().is_some() {
        return Ok(vec![quantity(value)?.units(); nodes]);
    }
    let sizes = several(value);
    if sizes.len() != nodes {
        let wanted = format!("one size for each of the {nodes} NUMA nodes");
        return Err(value.expected(&wanted));
    }
    let sizes = sizes.into_iter().map(|size| Ok(quantity(size)?.units()));
    sizes.collect()
}

/// `{gpu: 1}`: the NUMA nodes that devices of a mapping are in.
fn devices(
    value: &CaseValue,
    nodes: usize,
) -> Result<BTreeMap<Arc<str>, BTreeSet<usize>>, CaseError> {
    let entries = value
        .map()
        .ok_or_else(|| value.expected("NUMA nodes by mapping, as {gpu: 1}"))?;
    let entries = entries.iter().map(|entry| {
        let list: BTreeSet<usize> = cpus(&entry.value)?.iter().map(usize::from).collect();
        if list.last().is_none_or(|last| *last >= nodes) {
            let wanted = format!("numbers of the host's {nodes} NUMA nodes, from 0");
            return Err(entry.value.expected(&wanted));
        }
        Ok((entry.key.as_str().into(), list))
    });
    entries.collect()
}

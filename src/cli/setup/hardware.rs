//! What the hosts have: sizes of machines that fit, bridges.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use super::answers::SetupAnswers;
use super::choose::{Proposal, TypeWanted};
use super::survey::Survey;
use crate::config::scalar::Size;
use crate::model::words;

/// Sizes that are proposed: name, cores, GiB of memory.
const SIZES: [(&str, u32, i64); 3] = [("small", 2, 4), ("medium", 4, 8), ("large", 8, 16)];
/// A machine takes at most this part of a host: two fit on it beside nothing else.
const PART: i64 = 2;
const MIB: i64 = 1 << 20;
const GIB: i64 = 1 << 30;

/// Sizes that the hosts carry.
pub(super) fn choose(survey: &Survey, answers: &SetupAnswers, proposal: &mut Proposal) {
    let types = match &answers.pool.instance_types {
        Some(answered) => answered.iter().map(|text| read(text)).collect(),
        None => Ok(fitting(survey)),
    };
    let types = match types {
        Ok(types) if types.is_empty() => {
            let text = "pool.instance_types: at least one size, such as 2x4GiB";
            proposal.missing.push(text.to_owned());
            return;
        }
        Ok(types) => types,
        Err(why) => {
            proposal.missing.push(format!("pool.instance_types: {why}"));
            return;
        }
    };
    let shown = types
        .iter()
        .map(|one| format!("{}x{}", one.cores, one.memory));
    let shown: Vec<String> = shown.collect();
    let why = "the smallest host carries two of each; the autoscaler takes what fits the pods best";
    let answered = answers.pool.instance_types.is_some();
    proposal.choose("pool.instance_types", shown.join(", "), why, answered);
    proposal.ask();
    proposal.wanted.types = types;
}

/// The proposed sizes that fit; the smallest in any case.
fn fitting(survey: &Survey) -> Vec<TypeWanted> {
    let hosts = survey.pve.resources.hosts.values();
    let online: Vec<_> = hosts
        .filter(|host| host.online && host.memory > 0)
        .collect();
    let cores = online.iter().map(|host| host.cpus).min().unwrap_or(0);
    let memory = online.iter().map(|host| host.memory).min().unwrap_or(0);
    let fit =
        |at: usize, cpus: u32, gib: i64| at == 0 || (cpus <= cores && gib * GIB <= memory / PART);
    let sizes = SIZES.into_iter().enumerate();
    let fitting = sizes.filter(|(at, (_, cpus, gib))| fit(*at, *cpus, *gib));
    fitting
        .map(|(_, (name, cores, gib))| TypeWanted {
            name: name.to_owned(),
            cores,
            memory: format!("{gib}GiB"),
        })
        .collect()
}

/// `2x4GiB`: cores and memory.
pub(super) fn read(text: &str) -> Result<TypeWanted, String> {
    let wrong = || format!("{text:?} is not cores and memory, such as 2x4GiB");
    let (cores, memory) = text.split_once('x').ok_or_else(wrong)?;
    let cores: u32 = cores.trim().parse().map_err(|_| wrong())?;
    let memory = memory.trim();
    let size = serde_json::from_value::<Size>(serde_json::Value::String(memory.to_owned()));
    let size = size.map_err(|_| wrong())?;
    if size.0 % MIB != 0 || size.0 < 512 * MIB {
        return Err(format!(
            "{text:?}: expected whole MiB of memory, at least 512MiB, such as {cores}x4GiB"
        ));
    }
    let known = SIZES.iter();
    let mut known = known.filter(|(_, cpus, gib)| *cpus == cores && gib * GIB == size.0);
    let name = match known.next() {
        Some((name, ..)) => (*name).to_owned(),
        None => format!("c{cores}-{}", memory.to_ascii_lowercase()),
    };
    Ok(TypeWanted {
        name: name.replace(|one: char| !one.is_ascii_alphanumeric(), "-"),
        cores,
        memory: memory.to_owned(),
    })
}

/// What there is to say of sizes that no host carries, of those that the pool may use (all, where none is named). PVE starts no VM with
/// more CPUs than the host has.
pub(super) fn unfit(survey: &Survey, types: &[TypeWanted], hosts: &[String]) -> Vec<String> {
    let named = survey.pve.resources.hosts.iter();
    let named =
        named.filter(|(name, _)| hosts.is_empty() || hosts.iter().any(|one| *one == ***name));
    let named: Vec<_> = named.map(|(_, host)| host).collect();
    // Of a host that is off nobody knows what it has.
    if named.is_empty() || named.iter().any(|host| !host.online || host.memory <= 0) {
        return Vec::new();
    }
    let cores = named.iter().map(|host| host.cpus).max().unwrap_or(0);
    let memory = named.iter().map(|host| host.memory).max().unwrap_or(0);
    let unfit = types.iter().filter(|one| {
        let size = bytes(one).unwrap_or(0);
        !named
            .iter()
            .any(|host| one.cores <= host.cpus && size <= host.memory)
    });
    let said = unfit.map(|one| {
        format!(
            "pool.instance_types: {}x{} fits on no host: the most that one has is {} and {} of memory",
            one.cores,
            one.memory,
            words::count(cores as usize, "CPU"),
            words::bytes(memory)
        )
    });
    said.collect()
}

fn bytes(size: &TypeWanted) -> Option<i64> {
    bytes_of(&size.memory)
}

/// Bytes of a size as the file has it, such as `4GiB`.
pub(super) fn bytes_of(text: &str) -> Option<i64> {
    let size = serde_json::Value::String(text.to_owned());
    serde_json::from_value::<Size>(size).ok().map(|size| size.0)
}

/// The bridges that every host has that is online.
pub(super) fn bridges(survey: &Survey) -> BTreeSet<String> {
    let mut hosts = survey.pve.bridges.values();
    let Some(first) = hosts.next() else {
        return BTreeSet::new();
    };
    let mut all: BTreeSet<String> = first.keys().cloned().collect();
    for bridges in hosts {
        all.retain(|name| bridges.contains_key(name));
    }
    all
}

/// The network of a bridge (of the first bridge that has one, where none is named), with the hosts' gateway in it.
pub(super) fn bridge_net(survey: &Survey, bridge: Option<&str>) -> Option<(IpNet, Option<IpAddr>)> {
    let all = survey.pve.bridges.values().flatten();
    let mut named = all.filter(|(name, _)| bridge.is_none_or(|bridge| bridge == *name));
    named.find_map(|(_, at)| {
        let net = at.cidr.filter(|net| net.addr().is_ipv4())?;
        Some((net, at.gateway.filter(|gateway| net.contains(gateway))))
    })
}

//! Nodes of a case, and the machines behind them.

use std::net::IpAddr;
use std::sync::Arc;

use crate::model::cluster::{Node, Readiness, ReadyStatus};
use crate::model::drift::Drift;
use crate::model::network::NicAddresses;
use crate::model::policy::{LEAVING_TAINT, PoolPolicy, STARTUP_TAINT, ZONE_LABEL};
use crate::model::region::{Busy, Failure, Step};
use crate::model::resources::Resources;
use crate::model::scheduling::{Labels, Taint};
use crate::model::time::{Span, Time};
use crate::model::words;

use super::fields::CaseFields;
use super::networks;
use super::objects::{name_of, named};
use super::pools::taints;
use super::scalars::{labels, node_labels, resource, resources, several, span, text, time, truth};
use super::stage::{CaseWorld, Cast, DISK, MachineOwn, REGION, uuid};
use super::topologies::cpus;
use super::value::{CaseError, CaseValue};

/// The zone of a node that is not ours.
const ZONE: &str = "z1";
const DISABLED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
const STATES: &str =
    "ready, notready, inflight, registered, uninitialized, deleting, novm, nonode, failed";
const DAY: Span = Span::minutes(24 * 60);
const MINUTE: Span = Span::minutes(1);

/// Reads `nodes`.
pub(super) fn read(case: &mut CaseFields<'_>, stage: &mut CaseWorld) -> Result<(), CaseError> {
    if let Some(value) = case.take("nodes") {
        for (name, item) in named(value)? {
            node(stage, &item, name.as_ref())?;
        }
    }
    Ok(())
}

fn node(stage: &mut CaseWorld, value: &CaseValue, name: Option<&String>) -> Result<(), CaseError> {
    let mut fields = CaseFields::of(value, "a node")?;
    let name = name_of(&mut fields, name, "a node")?;
    let state = fields.with("state", text)?.unwrap_or("ready").to_owned();
    if !STATES.split(", ").any(|known| known == state) && state != "initialized" {
        return Err(value.wrong(format!("expected a state of {STATES}; found {state:?}")));
    }
    let coming = ["inflight", "registered", "uninitialized", "failed"].contains(&&*state);
    let age = fields
        .with("age", span)?
        .unwrap_or(if coming { MINUTE } else { DAY });
    let cast = cast(stage, &mut fields, &name, &state, stage.now - age)?;
    let mut node = match &cast {
        Some(cast) => stage
            .node_for(cast)
            .ok_or_else(|| value.wrong(format!("the pool {} has no such type", cast.pool)))?,
        None => foreign(&name, stage.now - age),
    };
    shape(&mut fields, &mut node)?;
    let host = fields.any(&["zone", "host"]).map(text).transpose()?;
    match host {
        Some("none") => {
            node.labels.remove(ZONE_LABEL);
        }
        Some(zone) => {
            let of_region = cast.as_ref().map_or(REGION, |cast| &cast.region);
            let zone = stage.policy.zone_of(of_region, &zone.into());
            node.labels.insert(ZONE_LABEL.into(), zone);
        }
        None => {}
    }
    standing(stage, &mut fields, &mut node, &state)?;
    let teaches = fields.with("teaches", truth)?;
    let addresses = fields.with("addresses", networks::addresses)?;
    let addresses = addresses.unwrap_or_default();
    if let Some(cast) = cast {
        let own = own(stage, &mut fields, &cast, &addresses)?;
        stage.add_machine(&cast, own);
        let own_amounts = value.get("alloc").is_some() || value.get("allocatable").is_some();
        machine(
            stage,
            &mut fields,
            &cast,
            &state,
            own_amounts && teaches != Some(true),
        )?;
        if let Some(pool) = stage.policy.pools.get(cast.pool.as_str())
            && matches!(&*state, "registered" | "uninitialized")
        {
            node.taints.push(Taint::no_schedule(STARTUP_TAINT, ""));
            node.taints.extend(pool.startup_taints.clone());
        }
    }
    fields.done()?;
    node.addresses = addresses;
    if !matches!(&*state, "inflight" | "nonode" | "failed") {
        stage.snapshot.cluster.nodes.insert(name.into(), node);
    }
    Ok(())
}

/// The machine behind a node of a pool.
fn cast(
    stage: &CaseWorld,
    fields: &mut CaseFields<'_>,
    name: &str,
    state: &str,
    created: Time,
) -> Result<Option<Cast>, CaseError> {
    let kind = fields.with("type", text)?;
    let Some(pool_value) = fields.take("pool") else {
        return Ok(None);
    };
    let wanted = text(pool_value)?;
    let parts: Vec<_> = stage
        .policy
        .pools
        .iter()
        .filter(|(real, _)| stage.names.pool(real) == wanted)
        .collect();
    let of_kind =
        |real: &str| kind.is_none_or(|kind| real == kind || stage.names.kind(real) == kind);
    let found = parts.iter().find_map(|(real, pool)| {
        let kind = pool.instance_types.iter().find(|real| of_kind(real))?;
        Some((*real, *pool, kind))
    });
    let Some((pool_name, pool, kind)) = found else {
        let known: Vec<&str> = stage
            .policy
            .pools
            .keys()
            .map(|real| stage.names.pool(real))
            .collect();
        return Err(pool_value.wrong(match kind {
            Some(kind) if !parts.is_empty() => {
                format!("the pool {wanted} has no instance type {kind:?}")
            }
            _ => format!(
                "there is no pool {wanted:?}; known: {}",
                words::names(&known)
            ),
        }));
    };
    let host = fields.value().get("zone").or(fields.value().get("host"));
    let host = host.map(text).transpose()?.filter(|host| *host != "none");
    let regions = stage.snapshot.regions.values();
    let first = regions.flat_map(|region| region.hosts.keys()).next();
    let usual = pool.hosts.first().or(first).cloned();
    let step = match fields.with("step", text)? {
        Some(step) => serde_json::from_value(step.into())
            .map_err(|error| fields.value().wrong(format!("step: {error}")))?,
        None => match state {
            "inflight" => Step::Start,
            "registered" | "uninitialized" => Step::Initialize,
            "deleting" => Step::Drain,
            "failed" => Step::Join,
            _ => Step::Done,
        },
    };
    Ok(Some(Cast {
        name: name.into(),
        pool: pool_name.to_string(),
        kind: kind.to_string(),
        region: region(fields, pool)?,
        host: host
            .map(Into::into)
            .or(usual)
            .unwrap_or_else(|| "z1".into()),
        step,
        created,
    }))
}

/// What a machine has for itself: addresses of its pool's networks, CPUs of its host; and what it was made with that is otherwise now.
fn own(
    stage: &CaseWorld,
    fields: &mut CaseFields<'_>,
    cast: &Cast,
    addresses: &[IpAddr],
) -> Result<MachineOwn, CaseError> {
    let pool = stage.policy.pools.get(cast.pool.as_str());
    let pool = pool.and_then(|pool| pool.at(&cast.region));
    Ok(MachineOwn {
        addresses: pool.map_or_else(NicAddresses::new, |pool| {
            networks::of_machine(stage, pool, addresses)
        }),
        cpus: fields.with("affinity", cpus)?.unwrap_or_default(),
        drifted: fields.with("drifted", drifted)?,
    })
}

/// `[template, labels]`: parts of what the machine was made with, by their names in JSON.
fn drifted(value: &CaseValue) -> Result<Vec<Drift>, CaseError> {
    let parts = several(value).into_iter();
    let parts = parts.map(|part| {
        serde_json::from_value(text(part)?.into())
            .map_err(|error| part.wrong(format!("drifted: {error}")))
    });
    parts.collect()
}

/// The region of a node of a pool: where nothing is said, the usual one if the pool is in it.
fn region(fields: &mut CaseFields<'_>, pool: &PoolPolicy) -> Result<Arc<str>, CaseError> {
    let named = fields.with("region", text)?;
    let usual = || pool.at(REGION).unwrap_or(pool).region.clone();
    let region = named.map_or_else(usual, Arc::from);
    if pool.at(&region).is_none() {
        let text = format!("its pool has no machines in {region}");
        return Err(fields.value().wrong(text));
    }
    Ok(region)
}

/// A node that is not ours. What a case does not say of it is plenty.
fn foreign(name: &str, created: Time) -> Node {
    let labels = [
        ("kubernetes.io/hostname", name),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
        (ZONE_LABEL, ZONE),
    ];
    Node {
        uid: format!("uid-{name}").into(),
        system_uuid: uuid(name),
        provider_id: None,
        created,
        deletion: None,
        labels: labels
            .into_iter()
            .map(|(key, value)| (key.into(), value.into()))
            .collect::<Labels>()
            .into(),
        annotations: Labels::new().into(),
        taints: Vec::new(),
        unschedulable: false,
        allocatable: Resources {
            cpu_milli: 1_000_000,
            memory: 1 << 50,
            ephemeral: DISK,
            pods: 110,
            ..Resources::default()
        },
        capacity: Resources::default(),
        ready: Readiness {
            status: ReadyStatus::True,
            since: Some(created),
            why: None,
        },
        kubelet_version: "v1.34.1".into(),
        addresses: Vec::new(),
    }
}

/// Amounts, labels, annotations, taints.
fn shape(fields: &mut CaseFields<'_>, node: &mut Node) -> Result<(), CaseError> {
    let amounts = fields.any(&["alloc", "allocatable"]);
    if let Some(value) = amounts {
        let given = resources(value)?;
        for entry in value.map().unwrap_or_default() {
            match resource(&entry.key) {
                "cpu" => node.allocatable.cpu_milli = given.cpu_milli,
                "memory" => node.allocatable.memory = given.memory,
                "ephemeral-storage" => node.allocatable.ephemeral = given.ephemeral,
                "pods" => node.allocatable.pods = given.pods,
                other => {
                    node.allocatable
                        .extended
                        .insert(other.into(), given.get(other));
                }
            }
        }
        node.allocatable.extended.retain(|_, amount| *amount != 0);
    }
    node.capacity = match fields.with("capacity", resources)? {
        Some(capacity) => capacity,
        None => node.allocatable.clone(),
    };
    node.labels
        .extend(fields.with("labels", node_labels)?.unwrap_or_default());
    node.annotations = fields
        .with("annotations", labels)?
        .unwrap_or_default()
        .into();
    node.taints
        .extend(fields.with("taints", taints)?.unwrap_or_default());
    node.unschedulable = fields
        .any(&["unschedulable", "cordoned"])
        .map(truth)
        .transpose()?
        .unwrap_or(false);
    if fields.with("eligible", truth)? == Some(false) {
        node.annotations.insert(DISABLED.into(), "true".into());
    }
    Ok(())
}

/// Readiness, and what a leaving node carries.
fn standing(
    stage: &CaseWorld,
    fields: &mut CaseFields<'_>,
    node: &mut Node,
    state: &str,
) -> Result<(), CaseError> {
    let now = stage.now;
    let unready = matches!(state, "notready" | "registered" | "uninitialized");
    let ready = fields.with("ready", truth)?.unwrap_or(!unready);
    let since = fields
        .any(&["unready_for", "ready_for"])
        .map(span)
        .transpose()?;
    let usual = if ready {
        now.since(node.created)
    } else {
        Span::minutes(5)
    };
    node.ready = Readiness {
        status: if ready {
            ReadyStatus::True
        } else {
            ReadyStatus::False
        },
        since: Some(now - since.unwrap_or(usual.min(now.since(node.created)))),
        why: None,
    };
    if state == "notready"
        && !node
            .taints
            .iter()
            .any(|t| &*t.key == "node.kubernetes.io/not-ready")
    {
        node.taints
            .push(Taint::no_schedule("node.kubernetes.io/not-ready", ""));
    }
    if state == "deleting" {
        node.unschedulable = true;
        let at = fields
            .with("since", |value| time(value, now))?
            .unwrap_or(now - MINUTE);
        let value = (at.0 / 1000).to_string();
        node.taints.push(Taint::no_schedule(LEAVING_TAINT, &value));
        if fields.value().get("pool").is_none() {
            node.deletion = Some(at);
        }
    }
    Ok(())
}

/// What the executor and its journal say of a machine.
fn machine(
    stage: &mut CaseWorld,
    fields: &mut CaseFields<'_>,
    cast: &Cast,
    state: &str,
    odd_size: bool,
) -> Result<(), CaseError> {
    let now = stage.now;
    let busy = match fields.with("busy", text)? {
        Some("up") => Some(Busy::Up),
        Some("down") => Some(Busy::Down),
        Some("none" | "false") => None,
        Some(_) => return Err(fields.value().wrong("expected busy: up, down or none")),
        None => match state {
            "inflight" | "registered" | "uninitialized" => Some(Busy::Up),
            "deleting" => Some(Busy::Down),
            _ => None,
        },
    };
    let usual = (state == "failed").then(|| Failure {
        advice: None,
        step: cast.step,
        message: "kubeadm join failed".into(),
        at: now - MINUTE,
        transient: false,
        host: None,
    });
    let failure = fields
        .with("failure", |value| failure(value, cast.step, now))?
        .or(usual);
    let unused = cast.step < Step::Start;
    let without_vm = state == "novm" || fields.with("vm", truth)? == Some(false);
    let Some(machine) = stage.snapshot.machines.get_mut(&cast.name) else {
        return Ok(());
    };
    machine.busy = busy;
    machine.failure = failure;
    if !matches!(state, "inflight" | "nonode" | "failed") {
        machine.node = Some(cast.name.clone());
    }
    let vmid = machine.mark.vmid;
    if without_vm || unused {
        machine.vm = None;
        stage.region().vms.remove(&vmid);
    } else if odd_size && let Some(vm) = stage.region().vms.get_mut(&vmid) {
        // A node whose amounts the case gives says nothing about its type.
        vm.cpus += 1;
    }
    Ok(())
}

fn failure(value: &CaseValue, step: Step, now: Time) -> Result<Failure, CaseError> {
    if value.scalar().is_some() {
        return Ok(Failure {
            advice: None,
            step,
            message: text(value)?.into(),
            at: now - MINUTE,
            transient: false,
            host: None,
        });
    }
    let mut fields = CaseFields::of(value, "a failure")?;
    let step = match fields.with("step", text)? {
        Some(step) => serde_json::from_value(step.into())
            .map_err(|error| value.wrong(format!("step: {error}")))?,
        None => step,
    };
    let failure = Failure {
        advice: None,
        step,
        message: fields.with("message", text)?.unwrap_or("it failed").into(),
        at: fields
            .with("at", |value| time(value, now))?
            .unwrap_or(now - MINUTE),
        transient: fields.with("transient", truth)?.unwrap_or(false),
        host: None,
    };
    fields.done()?;
    Ok(failure)
}

//! What a case gives: everything that stands in the world before something is decided.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::kubernetes::manifests::Manifests;
use crate::kubernetes::workloads;
use crate::model::cluster::{Cluster, ObjectKey, Pod};
use crate::model::memory::{Backoff, Memory};
use crate::model::snapshot::SourceState;
use crate::model::time::{Span, Time};
use crate::model::words;

use super::budgets;
use super::fields::CaseFields;
use super::guests;
use super::hosts;
use super::networks;
use super::nodes;
use super::objects::{self, named};
use super::pods::{self, PodDraft};
use super::pools;
use super::regions;
use super::scalars::{shared, span, text, time, truth};
use super::settings;
use super::stage::CaseWorld;
use super::storage;
use super::templates;
use super::value::{CaseError, CaseValue};

/// Milliseconds by which a pod is older than the next one of the file: their order is theirs.
const ORDER: i64 = 1;

/// Reads the world of a case, from its first pool to its last pod.
pub(super) fn begin(case: &mut CaseFields<'_>) -> Result<CaseWorld, CaseError> {
    let mut stage = CaseWorld::new();
    if let Some(value) = case.any(&["now", "clock"]) {
        let now = time(value, stage.now)?;
        stage.set_clock(now);
    }
    let catalogue = pools::read(case, stage.now)?;
    stage.policy.instance_types = catalogue.types;
    stage.policy.pools = catalogue.pools;
    stage.names = catalogue.names;
    networks::read(case, &mut stage)?;
    templates::read(case, &mut stage)?;
    hosts::read(case, &mut stage)?;
    regions::read(case, &mut stage)?;
    templates::check(case, &stage)?;
    add(case, &mut stage)?;
    hosts::tell_mediated(&mut stage);
    Ok(stage)
}

/// Reads what may come later too: objects, guests, nodes, pods, settings, memory.
pub(super) fn add(case: &mut CaseFields<'_>, stage: &mut CaseWorld) -> Result<(), CaseError> {
    if let Some(value) = case.take("settings") {
        settings::read(value, &mut stage.policy, stage.now)?;
    }
    let mut manifests = Manifests::default();
    let later = objects::read(case, &mut manifests, stage)?;
    let (mut drafts, mut made) = (Vec::new(), Manifests::default());
    for (value, mut object) in later {
        if object["kind"].as_str() == Some("Node") {
            manifests.put(&object).map_err(|text| value.wrong(text))?;
        } else {
            if object["metadata"].is_object() && object["metadata"]["namespace"].is_null() {
                object["metadata"]["namespace"] = "default".into();
            }
            for claim in workloads::claims(&object) {
                made.put(&claim).map_err(|text| value.wrong(text))?;
            }
            for object in workloads::pods(object) {
                let object = pods::from_manifest(object, stage.now)?;
                drafts.push((value.clone(), from_manifest(object)));
            }
        }
    }
    guests::read(case, stage)?;
    nodes::read(case, stage)?;
    if let Some(value) = case.take("pods") {
        for (name, item) in pod_items(value)? {
            for draft in pods::drafts(&item, &name, stage.now)? {
                drafts.push((item.clone(), draft));
            }
        }
    }
    let order = i64::try_from(drafts.len()).unwrap_or(0) * ORDER;
    for (index, (value, draft)) in drafts.iter().enumerate() {
        let older = order - i64::try_from(index).unwrap_or(0) * ORDER;
        put_pods(stage, &mut manifests, value, draft, Span(older))?;
    }
    merge(&mut stage.snapshot.cluster, manifests.into_cluster());
    for (key, claim) in made.into_cluster().claims {
        // A claim that the case has is the one that the controller found.
        stage.snapshot.cluster.claims.entry(key).or_insert(claim);
    }
    storage::bind(&mut stage.snapshot.cluster);
    storage::give_owners(&mut stage.snapshot.cluster);
    budgets::settle(&mut stage.snapshot.cluster, &stage.budgets);
    if let Some(value) = case.take("memory") {
        memory(value, stage)?;
    }
    if let Some(value) = case.take("sources") {
        sources(value, stage)?;
    }
    if let Some(leader) = case.with("leader", truth)? {
        stage.snapshot.leader = leader;
    }
    if let Some(quorate) = case.with("quorate", truth)? {
        stage.region().quorate = quorate;
    }
    if let Some(why) = case.take("paused") {
        let why = text(why)?;
        stage.snapshot.paused = (why != "false").then(|| why.to_owned());
    }
    Ok(())
}

fn from_manifest(object: Json) -> PodDraft {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    PodDraft {
        names: vec![name.to_owned()],
        object,
    }
}

/// The entries of `pods`: a list, or a map by name. A name alone is a pod of which nothing else is said.
fn pod_items(value: &CaseValue) -> Result<Vec<(String, CaseValue)>, CaseError> {
    if let Some(entries) = value.map() {
        return Ok(entries
            .iter()
            .map(|entry| (entry.key.clone(), entry.value.clone()))
            .collect());
    }
    let items = value
        .list()
        .ok_or_else(|| value.expected("pods as a list, or a map by name"))?;
    Ok(items
        .iter()
        .enumerate()
        .map(|(index, item)| match item.scalar() {
            Some(name) => (name.to_owned(), item.emptied()),
            None if items.len() == 1 => ("pod".to_owned(), item.clone()),
            None => (format!("pod{index}"), item.clone()),
        })
        .collect())
}

fn put_pods(
    stage: &mut CaseWorld,
    manifests: &mut Manifests,
    value: &CaseValue,
    draft: &PodDraft,
    older: Span,
) -> Result<(), CaseError> {
    let mut object = draft.object.clone();
    let admitted = stage.classes.admit(&mut object);
    admitted.map_err(|text| value.wrong(text))?;
    let (view, problems) = manifests.pod(&object);
    let own = ["manifest", "kind", "spec"];
    let strict = own.iter().all(|key| value.get(key).is_none());
    if let Some(problem) = problems.into_iter().next().filter(|_| strict) {
        return Err(value.wrong(problem));
    }
    let (key, mut pod) = view.ok_or_else(|| value.wrong("expected a pod with a name"))?;
    if let Some(node) = &pod.node
        && !manifests.has_node(node)
    {
        known_node(stage, value, node)?;
    }
    pod.created = pod.created - older;
    pod.started = pod.started.map(|since| since - older);
    pod.unschedulable_since = pod.unschedulable_since.map(|since| since - older);
    let disks = pod.shape.host_ports.iter().any(|port| port.port == 0);
    for name in &draft.names {
        let key = ObjectKey::new(key.namespace.clone(), name.as_str());
        let mut pod = Pod {
            uid: format!("uid-{key}").into(),
            ..pod.clone()
        };
        if disks {
            // Which of several reads a disk is told by the name.
            object["metadata"]["name"] = name.as_str().into();
            let (view, _) = manifests.pod(&object);
            pod.shape = view.map_or(pod.shape, |(_, own)| own.shape);
        }
        stage.snapshot.cluster.pods.insert(key, pod);
    }
    Ok(())
}

/// A pod on a node that is not there is mostly a slip of the pen.
fn known_node(stage: &CaseWorld, value: &CaseValue, node: &Arc<str>) -> Result<(), CaseError> {
    let snapshot = &stage.snapshot;
    if snapshot.cluster.nodes.contains_key(node) || value.get("manifest").is_some() {
        return Ok(());
    }
    let known: Vec<&str> = snapshot.cluster.nodes.keys().map(|name| &**name).collect();
    Err(value.wrong(format!(
        "the pod runs on {node:?}, which is no node; known: {}",
        words::names(&known)
    )))
}

/// Puts what was read into what there is; objects of the same name are replaced.
fn merge(into: &mut Cluster, from: Cluster) {
    into.nodes.extend(from.nodes);
    into.daemon_sets.extend(from.daemon_sets);
    into.budgets.extend(from.budgets);
    into.claims.extend(from.claims);
    into.volumes.extend(from.volumes);
    into.storage_classes.extend(from.storage_classes);
    into.csi_drivers.extend(from.csi_drivers);
    into.capacities.extend(from.capacities);
    into.csi_nodes.extend(from.csi_nodes);
    into.attachments.extend(from.attachments);
    into.namespaces.extend(from.namespaces);
}

fn memory(value: &CaseValue, stage: &mut CaseWorld) -> Result<(), CaseError> {
    let now = stage.now;
    let mut fields = CaseFields::of(value, "the memory")?;
    let mut memory = stage.memory.clone();
    if let Some(value) = fields.any(&["unneeded_since", "unneeded"]) {
        memory.unneeded_since = unneeded(value, stage)?;
    }
    for (key, slot) in [
        ("last_scale_up", &mut memory.last_scale_up),
        ("last_scale_down", &mut memory.last_scale_down),
        (
            "last_scale_down_failure",
            &mut memory.last_scale_down_failure,
        ),
    ] {
        if let Some(at) = fields.with(key, |value| time(value, now))? {
            *slot = Some(at);
        }
    }
    // `born` is what older cases say.
    if let Some(value) = fields.any(&["began", "born"]) {
        memory.began = Some(time(value, now)?);
    }
    if let Some(value) = fields.take("backoff") {
        for (name, item) in named(value)? {
            // `{ng: true}`, or the length alone.
            let short = item.scalar().filter(|_| name.is_some());
            let long = match short {
                Some("true") => item.emptied(),
                Some(length) => item.emptied().with_text("length", length),
                None => item.clone(),
            };
            let (name, backoff) = backoff(&long, name.as_ref(), now)?;
            memory.backoff.insert(name.as_str().into(), backoff);
        }
    }
    let rest = fields.rest();
    for entry in rest {
        let one = CaseValue {
            at: entry.at.clone(),
            data: super::value::CaseData::Map(vec![entry.clone()]),
        };
        memory = settings::overlay::<Memory>(&memory, &one, now, "the memory")?;
    }
    stage.memory = memory;
    Ok(())
}

/// `{n1: 5m ago}`, or one time for every node.
fn unneeded(value: &CaseValue, stage: &CaseWorld) -> Result<BTreeMap<Arc<str>, Time>, CaseError> {
    let now = stage.now;
    if let Some(entries) = value.map() {
        return entries
            .iter()
            .map(|entry| Ok((entry.key.as_str().into(), time(&entry.value, now)?)))
            .collect();
    }
    if value.scalar() == Some("none") {
        return Ok(BTreeMap::new());
    }
    let since = time(value, now)?;
    let nodes = stage.snapshot.cluster.nodes.keys();
    Ok(nodes.map(|name| (name.clone(), since)).collect())
}

fn backoff(
    value: &CaseValue,
    name: Option<&String>,
    now: Time,
) -> Result<(String, Backoff), CaseError> {
    let mut fields = CaseFields::of(value, "a back-off")?;
    let name = objects::name_of(&mut fields, name, "a back-off")?;
    let length = fields.with("length", span)?.unwrap_or(Span::minutes(5));
    let failed = fields.with("failed", |value| time(value, now))?;
    let failed = failed.unwrap_or(now - Span::minutes(1));
    let backoff = Backoff {
        advice: None,
        until: fields
            .with("until", |value| time(value, now))?
            .unwrap_or(failed + length),
        length,
        failed,
        message: fields.with("message", text)?.unwrap_or("it failed").into(),
    };
    fields.done()?;
    Ok((name, backoff))
}

/// `{kube/pods: {age: 5m}, pve/home: {complete: false}}`.
fn sources(value: &CaseValue, stage: &mut CaseWorld) -> Result<(), CaseError> {
    for (name, item) in named(value)? {
        let mut fields = CaseFields::of(&item, "a source")?;
        let name = objects::name_of(&mut fields, name.as_ref(), "a source")?;
        let age = fields.with("age", span)?.unwrap_or(Span::ZERO);
        let state = SourceState {
            complete: fields.with("complete", truth)?.unwrap_or(true),
            as_of: stage.now - age,
            error: fields.with("error", shared)?.map(|text| (&*text).into()),
            cause: None,
        };
        fields.done()?;
        let name: Arc<str> = name.into();
        stage.fixed.insert(name.clone());
        stage.snapshot.sources.insert(name, state);
    }
    Ok(())
}

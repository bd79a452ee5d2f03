//! Storage of a case: classes, claims, volumes, and what CSI drivers say, from their short forms to Kubernetes' own.

use serde_json::{Value as Json, json};

use crate::model::cluster::{Claim, Cluster, ObjectKey};
use crate::model::scheduling::Volume;
use crate::model::time::Time;

use super::containers;
use super::fields::CaseFields;
use super::objects::{meta, name_of};
use super::scalars::{label_key, quantity, several, text, texts, truth};
use super::short;
use super::value::{CaseError, CaseValue};

/// Volumes that claims are bound to are free for no other.
pub(super) fn bind(cluster: &mut Cluster) {
    let bound = cluster.claims.values().filter(|claim| claim.bound);
    for name in bound.filter_map(|claim| claim.volume.as_ref()) {
        if let Some(volume) = cluster.volumes.get_mut(name) {
            volume.free = None;
        }
    }
}

/// A claim in the short form that names no pod is of the pod whose ephemeral volume asks for it, if there is one.
pub(super) fn give_owners(cluster: &mut Cluster) {
    let unsaid = |claim: &Claim| claim.owner.as_deref() == Some("");
    for (key, pod) in &cluster.pods {
        for volume in &pod.shape.volumes {
            let Volume::Ephemeral { name, .. } = volume else {
                continue;
            };
            let of = ObjectKey::new(key.namespace.clone(), format!("{}-{name}", key.name));
            if let Some(claim) = cluster.claims.get_mut(&of).filter(|claim| unsaid(claim)) {
                claim.owner = Some(pod.uid.clone());
            }
        }
    }
    for claim in cluster.claims.values_mut() {
        claim.owner.take_if(|owner| owner.is_empty());
    }
}

pub(super) fn storage_class(
    value: &CaseValue,
    name: Option<&String>,
    now: Time,
) -> Result<Json, CaseError> {
    let mut fields = CaseFields::of(value, "a StorageClass")?;
    let mut metadata = meta(&mut fields, name, "a StorageClass", now)?;
    if fields.with("default", truth)? == Some(true) {
        metadata["annotations"] = json!({"storageclass.kubernetes.io/is-default-class": "true"});
    }
    let mode = fields.any(&["binding", "volumeBindingMode"]).map(text);
    let mode = mode.transpose()?.unwrap_or("WaitForFirstConsumer");
    if !["WaitForFirstConsumer", "Immediate"].contains(&mode) {
        return Err(value.wrong(format!(
            "expected binding WaitForFirstConsumer or Immediate, found {mode:?}"
        )));
    }
    let provisioner = fields.any(&["provisioner", "driver"]).map(text);
    let provisioner = provisioner.transpose()?.unwrap_or("csi.example.com");
    let topologies = fields.any(&["topologies", "allowedTopologies"]);
    let topologies = topologies
        .map(|value| {
            several(value)
                .into_iter()
                .map(topology)
                .collect::<Result<Json, _>>()
        })
        .transpose()?;
    fields.done()?;
    Ok(json!({
        "kind": "StorageClass",
        "metadata": metadata,
        "provisioner": provisioner,
        "volumeBindingMode": mode,
        "allowedTopologies": topologies,
    }))
}

/// `{zone: [z1, z2]}`, or Kubernetes' form.
fn topology(value: &CaseValue) -> Result<Json, CaseError> {
    if value.get("matchLabelExpressions").is_some() {
        return Ok(value.json());
    }
    let entries = value
        .map()
        .ok_or_else(|| value.expected("a topology, such as {zone: [z1, z2]}"))?;
    let labels = entries
        .iter()
        .map(|entry| Ok(json!({"key": label_key(&entry.key), "values": texts(&entry.value)?})))
        .collect::<Result<Json, CaseError>>()?;
    Ok(json!({ "matchLabelExpressions": labels }))
}

pub(super) fn claim(
    value: &CaseValue,
    name: Option<&String>,
    now: Time,
) -> Result<Json, CaseError> {
    let mut fields = CaseFields::of(value, "a claim")?;
    let mut metadata = meta(&mut fields, name, "a claim", now)?;
    if let Some(node) = fields.any(&["selectedNode"]).map(text).transpose()? {
        metadata["annotations"]["volume.kubernetes.io/selected-node"] = node.into();
    }
    let class = fields
        .any(&["class", "storageClassName"])
        .map(text)
        .transpose()?;
    let volume = fields
        .any(&["volume", "volumeName", "pv"])
        .map(text)
        .transpose()?;
    let phase = fields.with("phase", text)?;
    let modes = fields
        .any(&["modes", "accessModes"])
        .map(texts)
        .transpose()?;
    let size = size(&mut fields)?;
    let selector = fields.take("selector");
    let selector = selector.map(|value| short::selector(value, &json!({})));
    // Without a word its owner is settled when the pods are there ([`give_owners`]).
    let owner = fields.with("pod", text)?;
    let owner_uid = owner.map_or(String::new(), |pod| format!("uid-{pod}"));
    metadata["ownerReferences"] = json!([{"kind": "Pod", "uid": owner_uid, "controller": true}]);
    let (mode, attributes) = (volume_mode(&mut fields)?, attributes(&mut fields)?);
    let usual = if volume.is_some() { "Bound" } else { "Pending" };
    fields.done()?;
    Ok(json!({
        "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": {
            "storageClassName": class,
            "volumeName": volume,
            "accessModes": modes.unwrap_or_else(usual_modes),
            "resources": {"requests": {"storage": size}},
            "selector": selector.transpose()?,
            "volumeMode": mode,
            "volumeAttributesClassName": attributes,
        },
        "status": {"phase": phase.unwrap_or(usual)},
    }))
}

/// The size of a claim or volume.
fn size(fields: &mut CaseFields<'_>) -> Result<String, CaseError> {
    let Some(value) = fields.any(&["size", "storage", "capacity"]) else {
        return Ok("1Gi".to_owned());
    };
    quantity(value)?;
    Ok(text(value)?.to_owned())
}

fn usual_modes() -> Vec<String> {
    vec!["ReadWriteOnce".to_owned()]
}

fn volume_mode(fields: &mut CaseFields<'_>) -> Result<String, CaseError> {
    let Some(value) = fields.any(&["mode", "volumeMode"]) else {
        return Ok("Filesystem".to_owned());
    };
    match text(value)? {
        mode @ ("Block" | "Filesystem") => Ok(mode.to_owned()),
        mode => Err(value.wrong(format!("expected Block or Filesystem, found {mode:?}"))),
    }
}

fn attributes(fields: &mut CaseFields<'_>) -> Result<Option<String>, CaseError> {
    let value = fields.any(&["attributes", "volumeAttributesClassName"]);
    value
        .map(text)
        .transpose()
        .map(|name| name.map(str::to_owned))
}

/// The claim that a volume is kept for: `name`, `namespace/name`, or Kubernetes' form.
fn claim_ref(value: &CaseValue) -> Result<Json, CaseError> {
    if value.map().is_some() {
        return Ok(value.json());
    }
    let written = text(value)?;
    let (namespace, name) = written.split_once('/').unwrap_or(("default", written));
    Ok(json!({"namespace": namespace, "name": name}))
}

pub(super) fn volume(
    value: &CaseValue,
    name: Option<&String>,
    now: Time,
) -> Result<Json, CaseError> {
    let mut fields = CaseFields::of(value, "a volume")?;
    let metadata = meta(&mut fields, name, "a volume", now)?;
    let mut terms = Vec::new();
    if let Some(value) = fields.any(&["nodeAffinity", "affinity"]) {
        let long = value
            .get("required")
            .and_then(|value| value.get("nodeSelectorTerms"));
        for item in several(long.unwrap_or(value)) {
            terms.push(short::node_term(item)?);
        }
    }
    if let Some(zones) = fields.any(&["zone", "zones"]).map(texts).transpose()? {
        let key = label_key("zone");
        terms.push(json!({"matchExpressions": [{"key": key, "operator": "In", "values": zones}]}));
    }
    let driver = fields.with("driver", text)?.unwrap_or("csi.example.com");
    let handle = fields.with("handle", text)?;
    let mut spec = json!({});
    if !terms.is_empty() {
        spec["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": terms}});
    }
    if fields.with("local", truth)? == Some(true) {
        spec["local"] = json!({"path": "/x"});
    } else if fields.take("hostPath").is_some() {
        spec["hostPath"] = json!({"path": "/x"});
    } else {
        let own = metadata["name"].as_str().unwrap_or_default();
        spec["csi"] = json!({"driver": driver, "volumeHandle": handle.unwrap_or(own)});
    }
    let class = fields.any(&["class", "storageClassName"]).map(text);
    let modes = fields.any(&["modes", "accessModes"]).map(texts);
    spec["storageClassName"] = class.transpose()?.into();
    spec["accessModes"] = modes.transpose()?.unwrap_or_else(usual_modes).into();
    spec["capacity"] = json!({"storage": size(&mut fields)?});
    spec["volumeMode"] = volume_mode(&mut fields)?.into();
    spec["volumeAttributesClassName"] = attributes(&mut fields)?.into();
    if let Some(value) = fields.any(&["claim", "claimRef"]) {
        spec["claimRef"] = claim_ref(value)?;
    }
    let phase = fields.with("phase", text)?;
    fields.done()?;
    Ok(json!({
        "kind": "PersistentVolume",
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": phase},
    }))
}

pub(super) fn csi_driver(
    value: &CaseValue,
    name: Option<&String>,
    now: Time,
) -> Result<Json, CaseError> {
    // `csidrivers: {csi.example.com: true}`: whether it publishes what it has free.
    let (metadata, publishes) = match name {
        Some(name) if value.map().is_none() => (json!({"name": name}), truth(value)?),
        _ => {
            let mut fields = CaseFields::of(value, "a CSIDriver")?;
            let metadata = meta(&mut fields, name, "a CSIDriver", now)?;
            let publishes = fields.with("storageCapacity", truth)?;
            fields.done()?;
            (metadata, publishes == Some(true))
        }
    };
    let spec = json!({"storageCapacity": publishes});
    Ok(json!({"kind": "CSIDriver", "metadata": metadata, "spec": spec}))
}

pub(super) fn storage_capacity(
    value: &CaseValue,
    name: Option<&String>,
    now: Time,
) -> Result<Json, CaseError> {
    let mut fields = CaseFields::of(value, "a CSIStorageCapacity")?;
    let metadata = meta(&mut fields, name, "a CSIStorageCapacity", now)?;
    let class =
        text(fields.any(&["class", "storageClassName"]).ok_or_else(|| {
            value.wrong("a CSIStorageCapacity needs the key \"class\"".to_owned())
        })?)?;
    let mut topology = fields
        .any(&["nodes", "nodeTopology"])
        .map(|value| short::selector(value, &json!({})))
        .transpose()?;
    if let Some(zones) = fields.any(&["zone", "zones"]).map(texts).transpose()? {
        let zone = json!({"key": label_key("zone"), "operator": "In", "values": zones});
        topology = Some(json!({"matchExpressions": [zone]}));
    }
    let mut amount = |keys: &[&'static str]| -> Result<Option<String>, CaseError> {
        let Some(value) = fields.any(keys) else {
            return Ok(None);
        };
        quantity(value)?;
        Ok(Some(text(value)?.to_owned()))
    };
    let free = amount(&["capacity", "free"])?;
    let largest = amount(&["maximumVolumeSize", "largest"])?;
    fields.done()?;
    Ok(json!({
        "kind": "CSIStorageCapacity",
        "metadata": metadata,
        "storageClassName": class,
        "nodeTopology": topology,
        "capacity": free,
        "maximumVolumeSize": largest,
    }))
}

pub(super) fn csi_node(
    value: &CaseValue,
    name: Option<&String>,
    _now: Time,
) -> Result<Json, CaseError> {
    // `csinodes: {n1: {csi.example.com: 10}}`: the drivers alone.
    let (name, limits) = match (name, value.get("drivers")) {
        (Some(name), None) => (name.clone(), value.clone()),
        _ => {
            let mut fields = CaseFields::of(value, "a CSINode")?;
            let name = name_of(&mut fields, name, "a CSINode")?;
            let limits = fields.need("drivers")?.clone();
            fields.done()?;
            (name, limits)
        }
    };
    let drivers: Vec<Json> = containers::attach_limits(&limits)?
        .into_iter()
        .map(|(driver, limit)| json!({"name": driver, "allocatable": {"count": limit}}))
        .collect();
    Ok(json!({"kind": "CSINode", "metadata": {"name": name}, "spec": {"drivers": drivers}}))
}

pub(super) fn attachment(
    value: &CaseValue,
    name: Option<&String>,
    now: Time,
) -> Result<Json, CaseError> {
    let mut fields = CaseFields::of(value, "a VolumeAttachment")?;
    let node = text(fields.need("node")?)?;
    let own = value.get("volume").or_else(|| value.get("pv"));
    let own = own.and_then(CaseValue::scalar).unwrap_or_default();
    let own = name.cloned().unwrap_or_else(|| format!("{node}-{own}"));
    let metadata = meta(&mut fields, Some(&own), "a VolumeAttachment", now)?;
    let volume = fields.any(&["volume", "pv"]).map(text).transpose()?;
    let driver = fields.any(&["driver", "attacher"]).map(text).transpose()?;
    fields.done()?;
    Ok(json!({
        "kind": "VolumeAttachment",
        "metadata": metadata,
        "spec": {
            "nodeName": node,
            "attacher": driver.unwrap_or("csi.example.com"),
            "source": {"persistentVolumeName": volume},
        },
    }))
}

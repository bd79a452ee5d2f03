//! Claims and volumes.

use std::sync::Arc;

use super::{ObjectReader, nonempty, uid};
use crate::kubernetes::wire;
use crate::model::cluster::{
    Claim, ClaimRequest, Free, ObjectKey, PersistentVolume, StorageCapacity, ZoneLabel,
};
use crate::model::quantity::Quantity;

/// The annotation that says the class in the place of the field, on old claims and volumes.
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// A PersistentVolumeClaim's view.
pub(in crate::kubernetes) fn claim(
    reader: &mut ObjectReader<'_>,
    claim: &wire::WireClaim,
) -> Option<(ObjectKey, Claim)> {
    let annotation = |key: &str| {
        let annotations = claim.metadata.annotations.as_ref();
        annotations.and_then(|all| all.get(key)).map(String::as_str)
    };
    let phase = claim.status.phase.as_deref();
    let modes = claim.spec.access_modes.as_deref().unwrap_or_default();
    // The old annotation wins over the field (`component-helpers/storage/volume`).
    let class = annotation(OLD_CLASS).or(claim.spec.storage_class_name.as_deref());
    let selected = nonempty(annotation("volume.kubernetes.io/selected-node"));
    let unbound = nonempty(claim.spec.volume_name.as_deref()).is_none();
    let view = Claim {
        volume: nonempty(claim.spec.volume_name.as_deref()).map(|n| reader.interner.text(n)),
        class: class.map(|class| reader.interner.text(class)),
        bound: phase == Some("Bound"),
        lost: phase == Some("Lost"),
        deleting: claim.metadata.deletion_timestamp.is_some(),
        once_pod: modes.iter().any(|mode| mode == "ReadWriteOncePod"),
        selected_node: selected.map(|name| reader.interner.text(name)),
        owner: reader.owner(&claim.metadata).map(|owner| owner.uid.clone()),
        asks: unbound.then(|| Arc::new(asks(reader, claim))),
    };
    Some((reader.key(&claim.metadata)?, view))
}

/// A PersistentVolume's view.
pub(in crate::kubernetes) fn persistent_volume(
    reader: &mut ObjectReader<'_>,
    volume: &wire::WirePersistentVolume,
) -> Option<(Arc<str>, PersistentVolume)> {
    let name = reader.name(&volume.metadata)?;
    let affinity = volume.spec.node_affinity.as_ref();
    let csi = volume.spec.csi.as_ref();
    let label = |key: &str| {
        volume
            .metadata
            .labels
            .as_ref()?
            .get(key)
            .map(String::as_str)
    };
    let view = PersistentVolume {
        node_affinity: affinity
            .and_then(|affinity| affinity.required.as_ref())
            .map(|terms| reader.node_terms(terms)),
        zones: ZoneLabel::among(label),
        driver: nonempty(csi.and_then(|csi| csi.driver.as_deref()))
            .map(|driver| reader.interner.text(driver)),
        handle: nonempty(csi.and_then(|csi| csi.volume_handle.as_deref())).map(Into::into),
        local: volume.spec.local.is_some() || volume.spec.host_path.is_some(),
        deleting: volume.metadata.deletion_timestamp.is_some(),
        free: free(reader, volume).map(Arc::new),
    };
    Some((name, view))
}

/// What a claim asks of a volume that exists.
fn asks(reader: &mut ObjectReader<'_>, claim: &wire::WireClaim) -> ClaimRequest {
    let spec = &claim.spec;
    let requests = spec.resources.as_ref();
    let requests = requests.and_then(|resources| resources.requests.as_ref());
    ClaimRequest {
        uid: uid(&claim.metadata),
        // What cannot be read no volume offers.
        storage: storage(reader, "resources.requests.storage", requests).unwrap_or(i64::MAX),
        modes: reader.texts(spec.access_modes.as_deref()),
        block: spec.volume_mode.as_deref() == Some("Block"),
        selector: spec.selector.as_ref().map(|s| reader.selector(s)),
        attributes: reader.text(spec.volume_attributes_class_name.as_deref()),
    }
}

/// What a volume offers to claims; `None` for one that is bound, or was, unless a person keeps it for a
/// claim: that counts in every phase.
fn free(reader: &mut ObjectReader<'_>, volume: &wire::WirePersistentVolume) -> Option<Free> {
    let phase = volume.status.phase.as_deref();
    let spec = &volume.spec;
    let kept = spec.claim_ref.as_ref();
    let kept = kept.is_some_and(|claim| nonempty(claim.uid.as_deref()).is_none());
    if matches!(phase, Some("Bound" | "Released" | "Failed")) && !kept {
        return None;
    }
    let annotations = volume.metadata.annotations.as_ref();
    let class = annotations.and_then(|all| all.get(OLD_CLASS));
    let class = class.map(String::as_str);
    let claim = spec.claim_ref.as_ref();
    Some(Free {
        class: reader.text(class.or(spec.storage_class_name.as_deref())),
        storage: storage(reader, "capacity.storage", spec.capacity.as_ref()).unwrap_or(0),
        modes: reader.texts(spec.access_modes.as_deref()),
        block: spec.volume_mode.as_deref() == Some("Block"),
        labels: reader.labels(volume.metadata.labels.as_ref()),
        attributes: reader.text(spec.volume_attributes_class_name.as_deref()),
        claim: claim.map(|claim| {
            let namespace = reader.text(claim.namespace.as_deref());
            ObjectKey::new(namespace, reader.text(claim.name.as_deref()))
        }),
        claim_uid: reader.text(claim.and_then(|claim| claim.uid.as_deref())),
        available: phase == Some("Available"),
    })
}

/// A CSIStorageCapacity's view. An amount that cannot be read is as none: kube-scheduler was given a number,
/// but it is not known which.
pub(in crate::kubernetes) fn storage_capacity(
    reader: &mut ObjectReader<'_>,
    capacity: &wire::WireStorageCapacity,
) -> Option<(ObjectKey, StorageCapacity)> {
    let limit = match &capacity.maximum_volume_size {
        Some(size) => Some(("maximumVolumeSize", size)),
        None => capacity.capacity.as_ref().map(|free| ("capacity", free)),
    };
    let view = StorageCapacity {
        class: reader.text(capacity.storage_class_name.as_deref()),
        nodes: capacity.node_topology.as_ref().map(|s| reader.selector(s)),
        largest: limit.and_then(|(field, amount)| bytes(reader, field, amount)),
    };
    Some((reader.key(&capacity.metadata)?, view))
}

/// An amount of storage in bytes, 0 where none is said; `None` for one that cannot be read.
fn storage(
    reader: &mut ObjectReader<'_>,
    field: &str,
    amounts: Option<&wire::WireResourceList>,
) -> Option<i64> {
    match amounts.and_then(|amounts| amounts.get("storage")) {
        Some(amount) => bytes(reader, &format!("spec.{field}"), amount),
        None => Some(0),
    }
}

fn bytes(reader: &mut ObjectReader<'_>, field: &str, amount: &wire::WireQuantity) -> Option<i64> {
    let read = amount.to_string().parse::<Quantity>().map(Quantity::units);
    read.inspect_err(|error| reader.problems.push(format!("{field}: {error}")))
        .ok()
}

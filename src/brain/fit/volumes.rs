//! Volumes: where a pod's claims let it run.
//!
//! Source: kube-scheduler's plugins `VolumeBinding` (`FindPodVolumes`), `VolumeZone` and, for
//! `ReadWriteOncePod`, `VolumeRestrictions`. Attach limits: [`super::attach`]. A claim that no node can help (unbound with immediate binding, lost, being deleted,
//! missing) is a refusal, with its reason: no node is ever made for it.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::model::cluster::{
    Claim, Cluster, PersistentVolume, Pod, PodKey, StorageClass, ZoneLabel,
};
use crate::model::scheduling::{Labels, NodeTerm, Volume};

use super::Misfit;
use super::attach::Attach;
use super::selector;
use crate::brain::claims::claim_name;
use crate::brain::view::View;

/// What the provisioner of classes without dynamic volumes is called.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// What a pod's claims ask of its node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::brain) struct Need {
    /// No node helps before this is settled.
    pub(in crate::brain) refusal: Option<String>,
    /// One set of alternatives for each bound volume or class: the node must match one of each.
    pub(in crate::brain) alternatives: Vec<Vec<NodeTerm>>,
    /// Labels of bound volumes that a node must share, if it has any of them.
    pub(in crate::brain) zones: Vec<ZoneLabel>,
    /// Volumes that count against the node's limits.
    pub(in crate::brain) attach: Attach,
    /// A bound volume that is being deleted: it stays until its claim goes, and nobody makes a node for it.
    pub(in crate::brain) doomed: Option<Arc<str>>,
    /// A bound volume that lives on one node and nowhere else: never a new node.
    pub(in crate::brain) local: Option<Arc<str>>,
    /// The scheduler has chosen this node already and its volume is being made there.
    pub(in crate::brain) selected: Option<Arc<str>>,
    /// An unbound claim of a class without provisioner: only a volume that exists can serve it.
    pub(in crate::brain) fixed: Option<Arc<str>>,
    /// Claims that one pod alone may use (`ReadWriteOncePod`), by name.
    pub(in crate::brain) alone: BTreeSet<Arc<str>>,
}

/// Reads what the claims of `pod` ask; `None` for a pod without claims.
pub(in crate::brain) fn need(key: &PodKey, pod: &Pod, view: &View<'_>) -> Option<Need> {
    let cluster = &view.snapshot.cluster;
    let mut need: Option<Need> = None;
    for volume in &pod.shape.volumes {
        let Some(name) = claim_name(key, volume) else {
            continue;
        };
        let need = need.get_or_insert_default();
        let (ephemeral, class) = match volume {
            Volume::Ephemeral { class, .. } => (true, class.as_ref()),
            _ => (false, None),
        };
        match cluster
            .claims
            .get(&PodKey::new(key.namespace.clone(), name.clone()))
        {
            Some(claim) => {
                if claim.once_pod && !ephemeral {
                    if let Some(user) = view.claims.user(key, &name) {
                        let why =
                            format!("the claim {name} is for one pod alone, and {user} uses it");
                        refuse(need, why);
                    }
                    need.alone.insert(name.clone());
                }
                of_claim(need, &name, claim, cluster);
                attach(need, view, &key.namespace, &name, claim);
            }
            // Its claim will be made for it once it is seen; the class is known.
            None if ephemeral => {
                of_class(need, &name, class, cluster);
                let class = class.or_else(|| default_class(cluster).map(|(name, _)| name));
                let claim = Claim {
                    class: class.cloned(),
                    ..Claim::default()
                };
                attach(need, view, &key.namespace, &name, &claim);
            }
            None => refuse(need, format!("the claim {name} does not exist")),
        }
    }
    need
}

fn refuse(need: &mut Need, why: String) {
    need.refusal.get_or_insert(why);
}

/// Notes the volume of a claim where its driver has limits.
fn attach(need: &mut Need, view: &View<'_>, namespace: &str, name: &str, claim: &Claim) {
    let found = view
        .claims
        .volume(&view.snapshot.cluster, namespace, name, claim);
    if let Some(((driver, handle), known)) = found {
        let volumes = need.attach.entry(driver).or_default();
        let list = if known {
            &mut volumes.known
        } else {
            &mut volumes.fresh
        };
        list.insert(handle);
    }
}

fn of_claim(need: &mut Need, name: &str, claim: &Claim, cluster: &Cluster) {
    if claim.deleting {
        return refuse(need, format!("the claim {name} is being deleted"));
    }
    if claim.lost {
        return refuse(need, format!("the claim {name} has lost its volume"));
    }
    match &claim.volume {
        Some(volume) if claim.bound => match cluster.volumes.get(volume) {
            Some(found) => of_volume(need, volume, found),
            None => refuse(
                need,
                format!("the volume {volume} of the claim {name} does not exist"),
            ),
        },
        Some(volume) => refuse(
            need,
            format!("the claim {name} is not yet bound to its volume {volume}"),
        ),
        None => {
            if let Some(node) = &claim.selected_node {
                need.selected = Some(node.clone());
            }
            of_class(need, name, claim.class.as_ref(), cluster);
        }
    }
}

fn of_volume(need: &mut Need, name: &Arc<str>, volume: &PersistentVolume) {
    if volume.deleting {
        need.doomed.get_or_insert_with(|| name.clone());
    }
    need.zones.extend(volume.zones.iter().cloned());
    if let Some(terms) = &volume.node_affinity {
        need.alternatives.push(terms.clone());
    }
    if volume.local {
        need.local.get_or_insert_with(|| name.clone());
    }
}

fn of_class(need: &mut Need, claim: &str, class: Option<&Arc<str>>, cluster: &Cluster) {
    let found = match class {
        Some(name) if name.is_empty() => None,
        Some(name) => cluster.storage_classes.get(name).map(|c| (name, c)),
        None => default_class(cluster),
    };
    let Some((name, class)) = found else {
        return refuse(
            need,
            match class {
                Some(name) if !name.is_empty() => {
                    format!("the storage class {name} of the claim {claim} does not exist")
                }
                _ => format!("the claim {claim} has no storage class and is not bound"),
            },
        );
    };
    if !class.wait_for_consumer {
        return refuse(
            need,
            format!("the claim {claim} is not bound and its class {name} binds immediately"),
        );
    }
    if &*class.provisioner == NO_PROVISIONER {
        need.fixed.get_or_insert_with(|| claim.into());
    }
    if !class.topologies.is_empty() {
        need.alternatives.push(class.topologies.clone());
    }
}

/// The default class; the newest wins, then the name.
fn default_class(cluster: &Cluster) -> Option<(&Arc<str>, &StorageClass)> {
    cluster
        .storage_classes
        .iter()
        .filter(|(_, class)| class.default)
        .min_by_key(|(name, class)| (std::cmp::Reverse(class.created), (*name).clone()))
}

/// What keeps a pod with this need off a node; `new` for one that does not exist yet.
pub(in crate::brain) fn misfit(
    need: &Need,
    name: &str,
    labels: &Labels,
    new: bool,
) -> Option<Misfit> {
    if let Some(why) = &need.refusal {
        return Some(Misfit::Volume(why.clone()));
    }
    if new && let Some(volume) = &need.local {
        return Some(Misfit::Volume(format!(
            "pinned by local volume {volume}: it lives on the node it was made on"
        )));
    }
    if new && let Some(volume) = &need.doomed {
        return Some(Misfit::Volume(format!(
            "its volume {volume} is being deleted: no node is made for it"
        )));
    }
    if let Some(zone) = need.zones.iter().find(|zone| !zone.admits(labels)) {
        return Some(Misfit::Volume(format!(
            "its volume is of {}={}",
            zone.key,
            zone.values.join(" or ")
        )));
    }
    if let Some(claim) = &need.fixed {
        // Which free volumes there are is not in the view: assume none that a node could bring.
        return Some(Misfit::Volume(format!(
            "the claim {claim} waits for a volume that somebody must make: its class has no provisioner"
        )));
    }
    if let Some(node) = need.selected.as_ref().filter(|node| &***node != name) {
        return Some(Misfit::Volume(format!(
            "its volume is being made for the node {node}"
        )));
    }
    let unmet = need
        .alternatives
        .iter()
        .find(|terms| !selector::any_term(terms, name, labels))?;
    let words: Vec<String> = unmet
        .iter()
        .flat_map(|term| &term.expressions)
        .map(selector::words)
        .collect();
    Some(Misfit::Volume(format!(
        "its volume can be reached only where {}",
        words.join(" or ")
    )))
}

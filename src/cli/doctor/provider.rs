//! The ids that a cloud controller manager knows nodes by.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::finding::Findings;
use super::kubernetes::ReachedCluster;
use crate::model::facts::{self, Facts};

/// What a cloud controller manager for Proxmox calls its regions stands in the ids of the nodes that there are.
pub(super) async fn look(cluster: &ReachedCluster, findings: &mut Findings) {
    let (client, settings) = (&cluster.client, &cluster.here.settings);
    let written = |name: &Arc<str>| settings.pools.get(name)?.join.provider_id.as_deref();
    let mut ours = BTreeSet::new();
    let pools = settings.policy.pools.iter();
    let places = pools.flat_map(|(name, pool)| pool.everywhere().map(move |there| (name, there)));
    for (name, pool) in places {
        let facts = Facts {
            machine: name,
            vmid: 0,
            host: "",
            region: &pool.region,
            pool: name,
            instance_type: "",
        };
        let id = written(name).and_then(|text| facts::fill(text, &facts).ok());
        ours.extend(id.and_then(|id| region_of(&id).map(|region| (name, region.to_owned()))));
    }
    if ours.is_empty() {
        return;
    }
    let nodes = match client.nodes().await {
        Ok(nodes) => nodes,
        Err(error) => {
            findings.unseen(format!("kubernetes: cannot read the nodes: {error}"));
            return;
        }
    };
    let ids = nodes
        .iter()
        .filter_map(|(_, node)| node.provider_id.as_deref());
    let theirs: BTreeSet<&str> = ids.filter_map(region_of).collect();
    let before = findings.0.len();
    for (pool, region) in ours {
        if !theirs.is_empty() && !theirs.contains(&*region) {
            let theirs: Vec<&str> = theirs.iter().copied().collect();
            findings
                .warning(format!(
                    "pool {pool}: join.provider_id gives nodes ids of the region {region:?}; nodes there are have {}. A cloud controller manager that does not know a region cannot find its VMs",
                    theirs.join(", ")
                ))
                .mend(format!(
                    "write one of them in provider_id of [pool.{pool}.join], or add the region to the cloud controller manager's configuration"
                ));
        }
    }
    if findings.0.len() == before {
        findings.fine(if theirs.is_empty() {
            "kubernetes: no node has an id of Proxmox' cloud controller manager that join.provider_id could differ from"
        } else {
            "kubernetes: join.provider_id gives nodes ids of the regions that the nodes there are have"
        });
    }
}

/// The region in `proxmox://REGION/VMID`.
fn region_of(id: &str) -> Option<&str> {
    let (region, _) = id.strip_prefix("proxmox://")?.split_once('/')?;
    Some(region)
}

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
    for (pool, region) in ours {
        if !theirs.is_empty() && !theirs.contains(&*region) {
            let theirs: Vec<&str> = theirs.iter().copied().collect();
            findings.warning(format!(
                "pool {pool}: join.provider_id gives nodes ids of the region {region:?}; nodes there are have {}. A cloud controller manager that does not know a region cannot find its VMs",
                theirs.join(", ")
            ));
        }
    }
}

/// The region in `proxmox://REGION/VMID`.
fn region_of(id: &str) -> Option<&str> {
    let (region, _) = id.strip_prefix("proxmox://")?.split_once('/')?;
    Some(region)
}

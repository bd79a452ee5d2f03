//! Nodes that run Talos: machines beside them join by a machine configuration, for Talos has no kubeadm and no shell.

use super::finding::Findings;
use super::kubernetes::ReachedCluster;

/// What Talos calls itself.
const TALOS: &str = "Talos";

/// Recommends Talos' own way to join where the nodes there are run it.
pub(super) async fn look(cluster: &ReachedCluster, findings: &mut Findings) {
    let settings = &cluster.here.settings;
    let mut told = settings
        .policy
        .pools
        .iter()
        .filter(|(_, pool)| !pool.joins_itself)
        .map(|(name, _)| name)
        .peekable();
    if told.peek().is_none() {
        return;
    }
    let nodes = match cluster.client.find_nodes().await {
        Ok(nodes) => nodes,
        Err(error) => {
            findings.unseen(format!("kubernetes: cannot read the nodes: {error}"));
            return;
        }
    };
    let mut of_talos = nodes.iter().filter(|node| node.os_image.starts_with(TALOS));
    let Some(node) = of_talos.next() else {
        findings.fine("kubernetes: no node runs Talos, where machines are told to join");
        return;
    };
    for pool in told {
        findings
            .warning(format!(
                "pool {pool}: its machines are told to join, and nodes of this cluster run Talos (as {} does), which takes no commands",
                node.name
            ))
            .mend(format!(
                "method = \"self\" in [pool.{pool}.join], and machine_config_file in its template's cloud_init: docs/talos.md"
            ));
    }
}

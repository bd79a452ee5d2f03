//! What `kubeadm join` reads with a machine's bootstrap token: whether it is there, and whether the token may read it.

use super::endpoint;
use super::finding::Findings;
use super::kubernetes::{RBAC, ReachedCluster};
use crate::kubernetes::{ConfigMapSeen, KubeError};

/// What makes the ConfigMaps and the right to them.
const UPLOAD: &str = "kubeadm init phase upload-config all, on a control plane node, makes it and the right of bootstrap tokens to read it";
/// What a failed question is followed by.
const AGAIN: &str = "run this again; if it stays, see the API server's log";

/// Looks at what machines read that join by kubeadm.
pub(super) async fn look(cluster: &ReachedCluster, findings: &mut Findings) {
    if !endpoint::some_join_by_kubeadm(&cluster.here.settings) {
        return;
    }
    if let Err(error) = judge(cluster, findings).await {
        findings.unseen(format!("kubernetes: {error}")).mend(AGAIN);
    }
}

async fn judge(cluster: &ReachedCluster, findings: &mut Findings) -> Result<(), KubeError> {
    let client = &cluster.client;
    let (mut readable, mut hidden) = (Vec::new(), Vec::new());
    for (name, seen) in client.kubeadm_config().await? {
        let wrong = match seen {
            ConfigMapSeen::Gone => Some("is not there".to_owned()),
            ConfigMapSeen::Without(key) => Some(format!("has no {key}")),
            ConfigMapSeen::There | ConfigMapSeen::Forbidden => {
                match client.token_may_read(name).await? {
                    Some(false) => Some("may not be read with a bootstrap token".to_owned()),
                    Some(true) if seen == ConfigMapSeen::There => {
                        readable.push(name);
                        None
                    }
                    _ => {
                        hidden.push(name);
                        None
                    }
                }
            }
        };
        if let Some(wrong) = wrong {
            findings
                .wrong(format!(
                    "kubernetes: the ConfigMap {name} in kube-system {wrong}: kubeadm join ends there, and no machine becomes a node"
                ))
                .mend(UPLOAD);
        }
    }
    if !hidden.is_empty() {
        findings
            .unseen(format!(
                "kubernetes: whether machines can read {} in kube-system, as kubeadm join does, was not looked at: the rights for that came with a newer rbac.yaml than the cluster has",
                hidden.join(" and ")
            ))
            .mend(RBAC);
    }
    if !readable.is_empty() {
        findings.fine(format!(
            "kubernetes: bootstrap tokens may read {} in kube-system, as kubeadm join does",
            readable.join(" and ")
        ));
    }
    Ok(())
}

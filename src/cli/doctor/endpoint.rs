//! The address that machines join at: whether an API server answers there with a certificate of the CA that joining
//! machines are told.

use super::finding::Findings;
use super::kubernetes::ReachedCluster;
use crate::config::settings::{JoinMethod, PoolSettings};
use crate::controller::{join, secret_file};
use crate::kubernetes::certificate;
use crate::kubernetes::{ClusterInfo, Unreached};

/// Looks whether machines can learn where to join, and whether that is a place.
pub(super) async fn look(cluster: &ReachedCluster, findings: &mut Findings) {
    let settings = &cluster.here.settings;
    let mut pools = settings.pools.values();
    if settings.pools.is_empty() || pools.any(by_kubeadm) {
        look_at_cluster_info(cluster, findings).await;
    }
    judge_others(cluster, findings);
}

fn by_kubeadm(pool: &PoolSettings) -> bool {
    pool.join.method == JoinMethod::Kubeadm
}

/// What kubeadm's machines read.
async fn look_at_cluster_info(cluster: &ReachedCluster, findings: &mut Findings) {
    let info = match cluster.client.cluster_info().await {
        Ok(info) => info,
        Err(error) => {
            findings
                .wrong(format!(
                    "kubernetes: {error}; machines join by kubeadm and need it"
                ))
                .mend("kubeadm init phase bootstrap-token, on a control plane node, makes it; join.endpoint does not replace its CA. Of a cluster of k3s or RKE2 the pools say join.method");
            return;
        }
    };
    findings.fine(format!(
        "kubernetes: cluster-info is there; machines join at {}",
        info.endpoint
    ));
    let pools = cluster.here.settings.pools.values();
    let pools = pools.filter(|pool| by_kubeadm(pool));
    let mut addresses: Vec<&str> = pools
        .map(|pool| pool.join.endpoint.as_deref().unwrap_or(&info.endpoint))
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    for address in addresses {
        try_at(address, &info, findings).await;
    }
}

/// What agents join with: a server; a secret for commands.
fn judge_others(cluster: &ReachedCluster, findings: &mut Findings) {
    let (client, settings) = (&cluster.client, &cluster.here.settings);
    for (name, pool) in settings.pools.iter().filter(|(_, pool)| !by_kubeadm(pool)) {
        if pool.join.method == JoinMethod::Itself {
            findings.fine(format!(
                "pool {name}: machines join by themselves; no token is made for them"
            ));
            continue;
        }
        let port = (pool.join.method == JoinMethod::Rke2).then_some(join::RKE2_PORT);
        let authority = client.authority();
        let endpoint = match (&pool.join.endpoint, &authority) {
            (_, None) => Err("the kubeconfig has no certificate-authority".to_owned()),
            (Some(named), _) => Ok(named.clone()),
            (None, Some(authority)) => join::endpoint(&authority.server, port),
        };
        let trust = match &authority {
            Some(authority) if !matches!(pool.join.method, JoinMethod::Command { .. }) => {
                certificate::bundle_hash(&authority.ca_pem).map(drop)
            }
            _ => Ok(()),
        };
        match endpoint.and_then(|endpoint| trust.map(|()| endpoint)) {
            Ok(endpoint) => findings.fine(format!(
                "pool {name}: machines join by {} at {endpoint}",
                pool.join.method.called()
            )),
            Err(why) => {
                findings.wrong(format!("pool {name}: {why}")).mend(format!(
                    "endpoint in [pool.{name}.join] names the address that machines join at; the CA comes from the kubeconfig (certificate-authority-data)"
                ));
            }
        }
        if let JoinMethod::Command {
            secret_file: Some(path),
            ..
        } = &pool.join.method
        {
            match secret_file::read(path) {
                Ok(_) => findings.fine(format!(
                    "pool {name}: secret_file {} is readable",
                    path.display()
                )),
                Err(why) => {
                    let shown = path.display();
                    findings.wrong(format!("pool {name}: {why}")).mend(format!(
                        "chown root:pve-autoscaler {shown} && chmod 0640 {shown}; or another secret_file in [pool.{name}.join]"
                    ));
                }
            }
        }
    }
}

async fn try_at(address: &str, info: &ClusterInfo, findings: &mut Findings) {
    match info.try_at(address).await {
        Ok(()) => findings.fine(format!(
            "kubernetes: {address} answers with a certificate of cluster-info's CA"
        )),
        Err(Unreached::Distrusted(why)) => findings
            .wrong(format!(
                "kubernetes: {address} answers with a certificate that cluster-info's CA did not sign for it: {why}; no machine would join there"
            ))
            .mend("kubectl -n kube-public get configmap cluster-info -o yaml shows CA and address; join.endpoint in a pool's table names another address"),
        Err(Unreached::Silent(why)) => findings
            .warning(format!(
                "kubernetes: from this host {address} does not answer, where machines join: {why}"
            ))
            .mend("see that guests reach it; join.endpoint in a pool's table names another address"),
    }
}

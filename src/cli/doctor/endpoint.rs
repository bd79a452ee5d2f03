//! The address that machines join at: whether an API server answers there with a certificate of the CA that joining
//! machines are told.

use super::finding::Findings;
use super::kubernetes::ReachedCluster;
use crate::config::settings::{JoinMethod, PoolSettings, Settings};
use crate::controller::{join, secret_file};
use crate::kubernetes::{ClusterInfo, Unreached};
use crate::kubernetes::{bootstrap, certificate};

/// Looks whether machines can learn where to join, and whether that is a place.
pub(super) async fn look(cluster: &ReachedCluster, findings: &mut Findings) {
    if some_join_by_kubeadm(&cluster.here.settings) {
        look_at_cluster_info(cluster, findings).await;
    }
    judge_others(cluster, findings);
}

/// Whether machines join by kubeadm: of some pool, or of those that may come where there is none yet.
pub(super) fn some_join_by_kubeadm(settings: &Settings) -> bool {
    let mut pools = settings.pools.values();
    settings.pools.is_empty() || pools.any(by_kubeadm)
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
    let server = cluster.client.credentials().server;
    judge_loopback("cluster-info", &info.endpoint, &server, findings);
    let pools = &cluster.here.settings.pools;
    for (name, pool) in pools.iter().filter(|(_, pool)| by_kubeadm(pool)) {
        if let Some(endpoint) = &pool.join.endpoint {
            let what = format!("endpoint in [pool.{name}.join]");
            judge_loopback(&what, endpoint, &server, findings);
        }
    }
    let pools = pools.values().filter(|pool| by_kubeadm(pool));
    let mut addresses: Vec<&str> = pools
        .map(|pool| pool.join.endpoint.as_deref().unwrap_or(&info.endpoint))
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    for address in addresses {
        try_at(address, &info, findings).await;
    }
}

/// Whether `what` names a loopback address to machines, each of which would look for the API server in itself. Where the kubeconfig's own
/// `server` is one, too, the API server may listen on this host alone, as the simulator's does for guests that are processes here.
fn judge_loopback(what: &str, endpoint: &str, server: &str, findings: &mut Findings) {
    if !is_loopback(endpoint) {
        return;
    }
    let text = format!(
        "kubernetes: {what} sends machines to {endpoint}, where each of them finds only itself: no machine joins by it"
    );
    let is_here = server.strip_prefix("https://").is_some_and(is_loopback);
    let found = if is_here {
        findings.warning(text)
    } else {
        findings.wrong(text)
    };
    found.mend(if what == "cluster-info" {
        "kubectl -n kube-public edit configmap cluster-info, with https:// and the API server's address as machines reach it, and its port, at server: `kubeadm join` goes on with that one, also where join.endpoint names another"
    } else {
        "the API server's address as machines reach it, and its port, or without the key the one in cluster-info"
    });
}

/// Whether the host in `host:port` is whoever asks.
fn is_loopback(endpoint: &str) -> bool {
    let host = endpoint.rsplit_once(':').map_or(endpoint, |(host, _)| host);
    bootstrap::is_loopback(host)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_each_machine_itself_is_wrong() {
        let said = |what: &str, endpoint: &str, server: &str| {
            let mut findings = Findings::default();
            judge_loopback(what, endpoint, server, &mut findings);
            findings.0.first().map(|found| {
                assert!(!found.mend.is_empty());
                format!("{}: {}", found.grade.word(), found.text)
            })
        };
        let remote = "https://10.0.0.5:6443";
        for endpoint in [
            "10.0.0.5:6443",
            "[2001:db8::1]:6443",
            "api.example.org:6443",
        ] {
            assert_eq!(said("cluster-info", endpoint, remote), None, "{endpoint}");
        }
        for endpoint in [
            "127.0.0.1:6443",
            "127.1.2.3:6443",
            "localhost:6443",
            "[::1]:6443",
        ] {
            let wrong = format!(
                "WRONG: kubernetes: cluster-info sends machines to {endpoint}, where each of them finds only itself: no machine joins by it"
            );
            let told = said("cluster-info", endpoint, remote);
            assert_eq!(told.as_deref(), Some(&*wrong));
            let told = said("endpoint in [pool.p.join]", endpoint, remote);
            assert!(
                told.is_some_and(|told| told.starts_with("WRONG: ")),
                "{endpoint}"
            );
            // The whole cluster is on this host, as far as anybody can tell.
            let told = said("cluster-info", endpoint, "https://127.0.0.1:6443");
            assert!(
                told.is_some_and(|told| told.starts_with("warning: ")),
                "{endpoint}"
            );
        }
    }
}

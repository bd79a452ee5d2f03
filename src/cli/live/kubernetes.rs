//! Kubernetes: reachable, the clock, the credentials, the rights.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{ClusterId, Findings, MAX_SKEW};
use crate::agent::{join, secret_file};
use crate::clock::Clock;
use crate::config::Settings;
use crate::config::settings::{JoinMethod, Pool};
use crate::kube::access::Right;
use crate::kube::{Client, Connector, Credentials, ServerVersion, Unobserved};
use crate::kube::{bootstrap, certificate};
use crate::model::facts::{self, Facts};
use crate::model::time::Time;

/// Looks; gives the cluster's id when it could be read.
pub(super) async fn look(
    settings: &Settings,
    clock: Clock,
    findings: &mut Findings,
) -> Option<ClusterId> {
    let connector = Connector::File {
        path: settings.kubernetes.kubeconfig.clone(),
        context: settings.kubernetes.context.clone(),
    };
    let client = Client::new(connector, clock, Arc::new(Unobserved)).await;
    let credentials = client.credentials();
    if let Some(error) = &credentials.error {
        findings.wrong(format!("kubernetes: {error}"));
        return None;
    }
    let version = match client.server_version().await {
        Ok(version) => version,
        Err(error) => {
            findings.wrong(format!("kubernetes: {error}"));
            return None;
        }
    };
    judge(&version, &credentials, clock.now(), findings);
    rights(&client, settings, findings).await;
    joining(&client, settings, findings).await;
    provider_ids(&client, settings, findings).await;
    match client.kube_system_uid().await {
        Ok(uid) => Some(format!("{uid}/{}", settings.kubernetes.name).into()),
        Err(error) => {
            findings.wrong(format!("kubernetes: {error}"));
            None
        }
    }
}

fn judge(version: &ServerVersion, credentials: &Credentials, now: Time, findings: &mut Findings) {
    findings.fine(format!(
        "kubernetes: {} at {}",
        version.version, credentials.server
    ));
    if let Some(theirs) = version.time {
        let skew = now.since(theirs).max(theirs.since(now));
        if skew > MAX_SKEW {
            findings.warning(format!(
                "kubernetes: the API server's clock and this host's differ by {skew}; is time synchronised?"
            ));
        }
    }
    match (&credentials.warning, credentials.expires) {
        (Some(warning), _) => findings.warning(format!("kubernetes: {warning}")),
        (None, Some(expires)) => {
            findings.fine(format!(
                "kubernetes: the kubeconfig's certificate ends {expires}"
            ));
        }
        (None, None) => {}
    }
}

async fn rights(client: &Client, settings: &Settings, findings: &mut Findings) {
    let needed = match bootstrap::rights(&settings.kubernetes.namespace) {
        Ok(needed) => needed,
        Err(error) => {
            findings.wrong(format!("kubernetes: {error}"));
            return;
        }
    };
    let mut missing = Vec::new();
    let unused =
        |right: &Right| right.resource == "pods/status" && !settings.policy.scale_up.nominate_pods;
    for right in needed.into_iter().filter(|right| !unused(right)) {
        match client.may(&right).await {
            Ok(true) => {}
            Ok(false) => missing.push(right.to_string()),
            Err(error) => {
                findings.wrong(format!("kubernetes: cannot ask for our rights: {error}"));
                return;
            }
        }
    }
    if missing.is_empty() {
        findings.fine("kubernetes: all rights that the daemon needs are granted");
    } else {
        findings.wrong(format!(
            "kubernetes: these rights are missing: {}; apply contrib/kubernetes/rbac.yaml (`pve-autoscaler kubeconfig` does)",
            missing.join(", ")
        ));
    }
}

/// What machines join with: cluster-info for kubeadm, a server for agents, secrets for commands.
async fn joining(client: &Client, settings: &Settings, findings: &mut Findings) {
    let pools = || settings.pools.iter();
    let by_kubeadm = |pool: &Pool| pool.join.method == JoinMethod::Kubeadm;
    if settings.pools.is_empty() || pools().any(|(_, pool)| by_kubeadm(pool)) {
        match client.cluster_info().await {
            Ok(info) => findings.fine(format!(
                "kubernetes: cluster-info is there; machines join at {}",
                info.endpoint
            )),
            Err(error) => findings.wrong(format!(
                "kubernetes: {error}; machines join by kubeadm and need it (kubeadm makes it; join.endpoint does not replace its CA). Of a cluster of k3s or RKE2 the pools say join.method"
            )),
        }
    }
    for (name, pool) in pools().filter(|(_, pool)| !by_kubeadm(pool)) {
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
            Err(why) => findings.wrong(format!("pool {name}: {why}")),
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
                Err(why) => findings.wrong(format!("pool {name}: {why}")),
            }
        }
    }
}

/// What a cloud controller manager for Proxmox calls its regions stands in the ids of the nodes that there are.
async fn provider_ids(client: &Client, settings: &Settings, findings: &mut Findings) {
    let written = |name: &Arc<str>| settings.pools.get(name)?.join.provider_id.as_deref();
    let mut ours = BTreeMap::new();
    for (name, pool) in &settings.policy.pools {
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
            findings.wrong(format!("kubernetes: cannot read the nodes: {error}"));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::time::Span;

    #[test]
    fn a_clock_that_is_off_and_a_certificate_that_ends_are_said() {
        let now = Time(1_795_000_000_000);
        let version = ServerVersion {
            version: "v1.34.1".into(),
            time: Some(now - Span::minutes(2)),
        };
        let credentials = Credentials {
            server: "https://10.0.0.1:6443".into(),
            warning: Some("the certificate ends in 3 days".into()),
            ..Credentials::default()
        };
        let mut findings = Findings::default();
        judge(&version, &credentials, now, &mut findings);
        let said: Vec<String> = findings.0.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "ok: kubernetes: v1.34.1 at https://10.0.0.1:6443",
                "warning: kubernetes: the API server's clock and this host's differ by 2m; is time synchronised?",
                "warning: kubernetes: the certificate ends in 3 days",
            ]
        );
    }
}

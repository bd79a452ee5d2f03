//! The API server's addresses: machines whose networks have ranges get none of them, whether a node has it or a load balancer does.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::config::settings::{JoinMethod, Settings};
use crate::kubernetes::{ClusterStore, KubeClient, server_address};

/// How often it is looked again what cluster-info says, and what a name stands for.
const AGAIN: Duration = Duration::from_mins(5);

/// Keeps the view's addresses up to date as long as the daemon runs. Those that are written as addresses are there at once.
pub(super) fn keep(
    kube: KubeClient,
    store: ClusterStore,
    settings: &Arc<Settings>,
) -> impl Future<Output = ()> + use<> {
    let settings = settings.clone();
    let written = servers(&kube, &settings);
    let literal = written
        .iter()
        .filter_map(|server| server_address::literal(server));
    if !settings.policy.networks.is_empty() {
        store.set_api_addresses(literal.filter(|address| !address.is_loopback()).collect());
    }
    async move {
        if settings.policy.networks.is_empty() {
            // Nobody gets an address from us.
            return std::future::pending().await;
        }
        let mut known: BTreeMap<String, BTreeSet<IpAddr>> = BTreeMap::new();
        let mut of_info = None;
        loop {
            // While it cannot be read, what it said last stands.
            if asks_cluster_info(&settings)
                && let Ok(info) = kube.cluster_info().await
            {
                of_info = Some(info.endpoint);
            }
            let mut named = servers(&kube, &settings);
            named.extend(of_info.clone());
            known.retain(|server, _| named.contains(server));
            for server in named {
                let found = server_address::resolve(&server).await;
                // A name server that does not answer takes no address away.
                if !found.is_empty() {
                    known.insert(server, found);
                }
            }
            store.set_api_addresses(known.values().flatten().copied().collect());
            tokio::time::sleep(AGAIN).await;
        }
    }
}

/// What the kubeconfig and the pools call it.
fn servers(kube: &KubeClient, settings: &Settings) -> BTreeSet<String> {
    let own = kube.authority().map(|authority| authority.server);
    let own = own.unwrap_or_else(|| kube.credentials().server);
    let pools = settings.pools.values();
    let joined = pools.filter_map(|pool| pool.join.endpoint.clone());
    joined.chain([own]).collect()
}

/// Whether machines of some pool join at what cluster-info says.
fn asks_cluster_info(settings: &Settings) -> bool {
    let mut pools = settings.pools.values();
    pools.any(|pool| pool.join.method == JoinMethod::Kubeadm)
}

//! The addresses of networks: which are taken and by whom, and how many are left for machines.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use futures::stream::{self, StreamExt as _};

use super::finding::Findings;
use super::kubernetes::ReachedCluster;
use super::region::{AT_A_TIME, SeenRegion};
use crate::config::Settings;
use crate::kubernetes::server_address;
use crate::model::mark::Ownership;
use crate::model::network::{Family, NetworkPolicy};
use crate::model::region::GuestKind;
use crate::model::words;
use crate::pve::{Bridge, VmConfig};

/// Guests whose configuration is read, and hosts whose bridges are.
const MAX_READ: usize = 1_000;
/// Addresses, or guests, that are named in one finding.
const MAX_NAMED: usize = 10;

/// The addresses that the cluster has.
#[derive(Clone, Debug, Default)]
pub(super) struct ClusterAddresses {
    /// Those of its nodes with the node's name; `None` where they could not be read.
    nodes: Option<Arc<BTreeMap<IpAddr, Arc<str>>>>,
    /// Those at which the API server is reached, with what says so.
    api: Arc<BTreeMap<IpAddr, String>>,
}

/// Reads the addresses of nodes and of the API server, where networks give addresses at all.
pub(super) async fn of_cluster(cluster: &ReachedCluster) -> ClusterAddresses {
    if cluster.here.settings.policy.networks.is_empty() {
        return ClusterAddresses::default();
    }
    let (nodes, api) = tokio::join!(of_nodes(cluster), of_api(cluster));
    ClusterAddresses {
        nodes: nodes.map(Arc::new),
        api: Arc::new(api),
    }
}

/// The addresses at which the API server is reached: by the kubeconfig, by cluster-info, and by the pools.
async fn of_api(cluster: &ReachedCluster) -> BTreeMap<IpAddr, String> {
    let mut named = vec![(
        cluster.client.credentials().server,
        "the kubeconfig".to_owned(),
    )];
    let info = tokio::time::timeout(cluster.here.patience, cluster.client.cluster_info()).await;
    let info = info.ok().and_then(Result::ok);
    named.extend(info.map(|info| (info.endpoint, "cluster-info".to_owned())));
    for (name, pool) in &cluster.here.settings.pools {
        let endpoint = pool.join.endpoint.clone();
        named.extend(endpoint.map(|at| (at, format!("endpoint in [pool.{name}.join]"))));
    }
    let mut found = BTreeMap::new();
    for (server, by) in named {
        for address in server_address::resolve(&server).await {
            found
                .entry(address)
                .or_insert_with(|| format!("the API server's, by {by}"));
        }
    }
    found
}

async fn of_nodes(cluster: &ReachedCluster) -> Option<BTreeMap<IpAddr, Arc<str>>> {
    let nodes = tokio::time::timeout(cluster.here.patience, cluster.client.nodes()).await;
    let nodes = nodes.ok()?.ok()?;
    let all = nodes.iter().flat_map(|(name, node)| {
        let addresses = node.addresses.iter();
        addresses.map(move |address| (*address, name.clone()))
    });
    Some(all.collect())
}

/// Who has addresses of a region's networks.
#[derive(Debug, Default)]
struct Holders {
    /// Reserved for machines of ours, by their marks.
    ours: BTreeSet<IpAddr>,
    /// Others that the daemon sees, and gives nobody else: guests and nodes.
    others: BTreeMap<IpAddr, String>,
    /// Whose addresses have no place in a range: the API server's, those of hosts, and the gateways that they use.
    fixed: BTreeMap<IpAddr, String>,
    /// Guests of which it is not known which addresses they have.
    unknown: Vec<u32>,
    /// How many guests were not looked at: their hosts are offline, or there are more than [`MAX_READ`].
    left_out: usize,
}

/// Looks at the networks of the region's pools.
pub(super) async fn look(region: &SeenRegion, findings: &mut Findings) {
    let of = &region.region;
    let settings = &of.here.settings;
    let pools = settings.policy.pools_in(&of.name).map(|(_, pool)| pool);
    let used: BTreeSet<&Arc<str>> = pools.flat_map(|pool| pool.networks.values()).collect();
    if used.is_empty() {
        return;
    }
    let mut holders = Holders::default();
    of_guests(region, &mut holders).await;
    of_hosts(region, &mut holders).await;
    let api = of.addresses.api.iter();
    let api = api.map(|(address, whose)| (*address, whose.clone()));
    holders.fixed.extend(api);
    if holders.left_out > 0 {
        findings.unseen(format!(
            "region {}: the addresses of {} were not read, since their hosts are offline or there are more than {MAX_READ}; one of them may lie in a network's ranges",
            of.name,
            words::count(holders.left_out, "guest")
        ));
    }
    match &of.addresses.nodes {
        Some(nodes) => {
            let nodes = nodes.iter();
            let nodes = nodes.map(|(address, node)| (*address, format!("the node {node}")));
            for (address, node) in nodes {
                holders.others.entry(address).or_insert(node);
            }
        }
        None => {
            findings.unseen(format!(
                "region {}: the addresses of the cluster's nodes could not be read; one of them may lie in a network's ranges",
                of.name
            ));
        }
    }
    for name in used {
        if let Some(network) = settings.policy.networks.get(name) {
            judge(
                name,
                network,
                &holders,
                most(&of.name, name, settings),
                findings,
            );
        }
    }
}

/// How many machines the region's pools may have that get an address of a network.
fn most(region: &str, network: &Arc<str>, settings: &Settings) -> u128 {
    let pools = settings.policy.pools_in(region);
    let cards = pools.map(|(_, pool)| {
        let cards = pool.networks.values().filter(|name| *name == network);
        cards.count() as u128 * u128::from(pool.max)
    });
    cards.sum()
}

/// What the configurations of guests name, and what marks of ours reserve. A template's address is nobody's.
async fn of_guests(region: &SeenRegion, holders: &mut Holders) {
    let (client, seen) = (&region.region.client, &region.seen);
    let cluster = region.region.cluster.as_ref();
    let is_online = |host: &Arc<str>| seen.resources.hosts.get(host).is_some_and(|of| of.online);
    let guests = seen.resources.guests.iter();
    let guests = guests.filter(|(_, guest)| !guest.template && is_online(&guest.host));
    let all = seen.resources.guests.values();
    let all = all.filter(|guest| !guest.template).count();
    holders.left_out = all - guests.clone().count().min(MAX_READ);
    let asked = guests.take(MAX_READ).map(|(vmid, guest)| async move {
        let known = seen.configs.get(vmid);
        let read = match known {
            Some(config) => Ok(config.promise()),
            None => client.guest_promise(&guest.host, guest.kind, *vmid).await,
        };
        (*vmid, guest, known, read)
    });
    let mut asked = stream::iter(asked).buffered(AT_A_TIME);
    while let Some((vmid, guest, known, read)) = asked.next().await {
        let mark = match known.map(VmConfig::ownership) {
            Some(Ownership::Marked(mark)) if cluster.is_none_or(|id| *mark.cluster == **id) => {
                Some(mark)
            }
            _ => None,
        };
        match (read, mark) {
            (_, Some(mark)) => holders.ours.extend(mark.addresses.values().flatten()),
            (Ok(promise), None) => {
                let kind = match guest.kind {
                    GuestKind::Qemu => "VM",
                    GuestKind::Lxc => "container",
                };
                let name = format!("{kind} {vmid} {}", guest.name);
                let all = promise.addresses.into_iter();
                holders
                    .others
                    .extend(all.map(|address| (address, name.trim_end().to_owned())));
            }
            (Err(_), None) => holders.unknown.push(vmid),
        }
    }
}

/// The hosts' own addresses, and their gateways.
async fn of_hosts(region: &SeenRegion, holders: &mut Holders) {
    let (client, seen) = (&region.region.client, &region.seen);
    for (host, member) in &seen.status.members {
        let address = member.address.as_ref().and_then(|text| text.parse().ok());
        let own = address.map(|address: IpAddr| (address, format!("the host {host}'s own")));
        holders.fixed.extend(own);
    }
    let online = seen.resources.hosts.iter().filter(|(_, host)| host.online);
    let asked = online
        .take(MAX_READ)
        .map(|(host, _)| async move { (host, client.bridges(host).await) });
    let mut asked = stream::iter(asked).buffered(AT_A_TIME);
    while let Some((host, bridges)) = asked.next().await {
        // `network` tells of a host whose bridges cannot be read.
        for (name, bridge) in bridges.unwrap_or_default() {
            let own: Vec<IpAddr> = own(&bridge).collect();
            for address in bridge.addresses() {
                let whose = if own.contains(&address) {
                    format!("the host {host}'s own, on {name}")
                } else {
                    format!("the gateway of the host {host}")
                };
                holders.fixed.insert(address, whose);
            }
        }
    }
}

fn own(bridge: &Bridge) -> impl Iterator<Item = IpAddr> {
    let nets = [bridge.cidr, bridge.cidr6].into_iter().flatten();
    nets.map(|net| net.addr())
}

fn judge(
    name: &str,
    network: &NetworkPolicy,
    holders: &Holders,
    most: u128,
    findings: &mut Findings,
) {
    for (address, whose) in &holders.fixed {
        if network.contains(*address) {
            findings
                .wrong(format!(
                    "network {name}: {address} lies in its ranges, and is {whose}: no machine gets it while the daemon knows whose it is, and one would where it does not"
                ))
                .mend(format!(
                    "exclude = [\"{address}\"] in [network.{name}], or ranges without it"
                ));
        }
    }
    if !holders.unknown.is_empty() {
        let unknown = holders.unknown.iter().take(MAX_NAMED);
        let unknown: Vec<String> = unknown.map(u32::to_string).collect();
        findings
            .warning(format!(
                "network {name}: it gives no address while it is not known which ones {} have: {}",
                words::count(holders.unknown.len(), "guest"),
                unknown.join(", ")
            ))
            .mend("see why PVE does not tell their configurations (pvesh get /nodes/HOST/qemu/VMID/config)");
    }
    for family in network.families() {
        judge_room(name, network, family, holders, most, findings);
    }
}

/// How many addresses of a family are free, and who has the others.
fn judge_room(
    name: &str,
    network: &NetworkPolicy,
    family: Family,
    holders: &Holders,
    most: u128,
    findings: &mut Findings,
) {
    let within = |address: &IpAddr| Family::of(*address) == family && network.contains(*address);
    let ours = holders.ours.iter().filter(|address| within(address));
    let ours = ours.count() as u128;
    let others = holders.others.iter().filter(|(address, _)| {
        within(address) && !holders.ours.contains(*address) && !holders.fixed.contains_key(*address)
    });
    let others: Vec<String> = others
        .map(|(address, whose)| format!("{address} {whose}"))
        .collect();
    let fixed = holders.fixed.keys();
    let fixed = fixed.filter(|address| within(address) && !holders.ours.contains(*address));
    let size = network.size(family);
    let taken = ours + (others.len() + fixed.count()) as u128;
    let free = size.saturating_sub(taken);
    let wanted = most.saturating_sub(ours);
    let mut have = String::new();
    if ours > 0 {
        let _ = write!(have, "; machines of ours have {ours}");
    }
    if !others.is_empty() {
        let _ = write!(have, "; taken: {}", some(&others));
    }
    let of = format!(
        "network {name}: {free} of {size} addresses in {} are free",
        network.words(family)
    );
    let more = format!("more ranges in [network.{name}], or a smaller max");
    if free == 0 && wanted > 0 {
        findings
            .wrong(format!(
                "network {name}: no address in {} is free{have}",
                network.words(family)
            ))
            .mend(more);
    } else if free < wanted {
        findings
            .warning(format!(
                "{of}, and the pools may make {wanted} more machines{have}"
            ))
            .mend(more);
    } else {
        findings.fine(format!("{of}{have}"));
    }
}

/// The first few of a list, and how many more there are.
fn some(list: &[String]) -> String {
    let mut text = words::names(list.iter().take(MAX_NAMED));
    if list.len() > MAX_NAMED {
        let _ = write!(text, " and {} more", list.len() - MAX_NAMED);
    }
    text
}

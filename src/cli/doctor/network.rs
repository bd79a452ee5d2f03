//! What a clone needs beside its template: a bridge on every host, and a resource pool.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::stream::{self, StreamExt as _};

use super::bridges::{self, BridgesOfHosts};
use super::finding::Findings;
use super::mends;
use super::region::{AT_A_TIME, RegionSeen, SeenRegion};
use super::templates;
use crate::config::Settings;
use crate::config::settings::Channel;
use crate::pve::Client;

/// Hosts whose bridges are read: PVE clusters have rarely more.
const MAX_HOSTS: usize = 64;

/// Looks at the bridges and resource pools that the templates of a region name.
pub(super) async fn look(region: &SeenRegion, findings: &mut Findings) {
    let SeenRegion { region, seen } = region;
    let (client, name, settings) = (&region.client, &*region.name, &*region.here.settings);
    let found = read_bridges(client, name, seen, findings).await;
    for (template_name, template) in templates::of(name, settings) {
        let hosts = hosts(seen, template_name, settings);
        let cards = bridges::wanted(seen, template);
        bridges::judge(template_name, &cards, &hosts, &found, findings);
    }
    pools(client, name, settings, findings).await;
}

/// The bridges of every host that answers.
async fn read_bridges(
    client: &Client,
    name: &str,
    seen: &RegionSeen,
    findings: &mut Findings,
) -> BridgesOfHosts {
    let mut found = BTreeMap::new();
    let online = seen.resources.hosts.iter().filter(|(_, host)| host.online);
    let asked = online
        .take(MAX_HOSTS)
        .map(|(host, _)| async move { (host, client.bridges(host).await) });
    let mut asked = stream::iter(asked).buffered(AT_A_TIME);
    while let Some((host, bridges)) = asked.next().await {
        match bridges {
            Ok(bridges) => {
                found.insert(host.clone(), bridges);
            }
            Err(error) => {
                findings
                    .warning(format!(
                        "region {name}: the bridges of {host}: {}",
                        error.words()
                    ))
                    .mend(mends::of_call(&error, Some(&**host)));
            }
        }
    }
    found
}

/// The hosts that machines of a template may come to.
fn hosts<'a>(seen: &'a RegionSeen, template: &str, settings: &'a Settings) -> Vec<&'a Arc<str>> {
    let pools = settings.policy.pools.values();
    let pools = pools.filter_map(|pool| pool.of_template(template));
    let pools: Vec<_> = pools.collect();
    let all = seen.resources.hosts.keys();
    all.filter(|host| pools.iter().any(|pool| pool.may_use(host)))
        .collect()
}

/// Resource pools that templates name. A token sees those that it may audit.
async fn pools(client: &Client, name: &str, settings: &Settings, findings: &mut Findings) {
    let of_machines = templates::of(name, settings)
        .filter_map(|(template, of)| Some((template, of.resource_pool.as_deref()?, true)));
    let of_builds = templates::of(name, settings).filter_map(|(template, of)| {
        let build = of.build.as_ref()?;
        Some((template, build.resource_pool.as_deref()?, false))
    });
    let wanted: Vec<(&Arc<str>, &str, bool)> = of_machines.chain(of_builds).collect();
    if wanted.is_empty() {
        return;
    }
    let found = match client.pools().await {
        Ok(found) => found,
        Err(error) => {
            findings
                .warning(format!(
                    "region {name}: the resource pools: {}",
                    error.words()
                ))
                .mend(mends::of_call(&error, None));
            return;
        }
    };
    let region = settings.regions.get(name);
    let all_seen = region.is_some_and(|region| region.channel == Channel::Local);
    for (template, pool, of_machines) in wanted {
        if found.contains(pool) {
            let moves = all_seen || !of_machines || holds(client, pool, "Pool.Allocate").await;
            let but = if moves {
                ""
            } else {
                "; machines that are there do not follow into it without Pool.Allocate"
            };
            findings.fine(format!("template {template}: resource pool {pool}{but}"));
        } else if all_seen || holds(client, pool, "Pool.Audit").await {
            findings
                .wrong(format!(
                    "template {template}: there is no resource pool {pool}"
                ))
                .mend(format!("pvesh create /pools --poolid {pool} makes it"));
        } else {
            findings
                .warning(format!(
                    "template {template}: whether there is a resource pool {pool} cannot be seen without Pool.Audit on /pool/{pool}"
                ))
                .mend(format!(
                    "pveum acl modify /pool/{pool} --tokens TOKEN --roles PVEPoolUser, with the token_id of the file"
                ));
        }
    }
}

/// Whether the caller has a privilege on a resource pool.
async fn holds(client: &Client, pool: &str, privilege: &str) -> bool {
    let held = client.permissions(&format!("/pool/{pool}")).await;
    held.is_ok_and(|held| held.contains(privilege))
}

//! How loaded hosts are, where pools bound that: whether PVE tells it. A host that does not tell gets no machine of theirs.

use std::sync::Arc;

use futures::stream::{self, StreamExt as _};

use super::finding::Findings;
use super::region::{AT_A_TIME, SeenRegion};
use crate::model::hosts::{LoadKind, untold_loads};
use crate::model::policy::PoolPolicy;
use crate::model::region::HostLoad;
use crate::model::words;

/// A pool with its name.
type NamedPool<'a> = (&'a Arc<str>, &'a PoolPolicy);

/// Asks the hosts that pools may use which bound their load.
pub(super) async fn look(region: &SeenRegion, findings: &mut Findings) {
    let SeenRegion { region, seen } = region;
    let name = &*region.name;
    let pools = region.here.settings.policy.pools_in(name);
    let pools: Vec<NamedPool<'_>> = pools
        .filter(|(_, pool)| pool.host_rules.bounds_load())
        .collect();
    let hosts = seen.resources.hosts.iter().filter_map(|(host, about)| {
        let users = pools.iter().filter(|(_, pool)| pool.may_use(host));
        let users: Vec<NamedPool<'_>> = users.copied().collect();
        (about.online && !users.is_empty()).then_some((host, users))
    });
    let asked = hosts
        .map(|(host, users)| async move { (host, users, region.client.host_load(host).await) });
    let mut asked = stream::iter(asked).buffered(AT_A_TIME);
    let mut telling: Vec<&str> = Vec::new();
    while let Some((host, users, load)) = asked.next().await {
        match load {
            Ok(load) if judge(host, &users, &load, findings) => telling.push(host),
            Ok(_) => {}
            Err(error) => {
                findings.unseen(format!(
                    "host {host}: how loaded it is, which pools bound: {error}"
                ));
            }
        }
    }
    if !telling.is_empty() {
        findings.fine(format!(
            "region {name}: PVE tells how loaded {} {}",
            words::names(&telling),
            if telling.len() == 1 { "is" } else { "are" }
        ));
    }
}

/// Says what PVE does not tell of a host; whether it tells all that is bounded.
fn judge(host: &str, users: &[NamedPool<'_>], load: &HostLoad, findings: &mut Findings) -> bool {
    let rules = users.iter().map(|(name, pool)| (*name, &pool.host_rules));
    let untold = untold_loads(load, rules);
    for (key, pools) in &untold {
        let of = if pools.len() == 1 { "pool" } else { "pools" };
        let mend = if *key == LoadKind::CpuPressure.key() {
            "PVE tells pressure from version 9 on, with a kernel that has PSI (`cat /proc/pressure/cpu` on the host; psi=1 on its command \
             line); else take max_pressure out, or set it to 1 for the pool"
        } else {
            "a host tells some minutes after its start; else `systemctl status pvestatd` on it"
        };
        findings
            .warning(format!(
                "host {host}: PVE does not tell what {key} bounds, so that {of} {} may make no machine there",
                words::names(pools)
            ))
            .mend(mend);
    }
    untold.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_bounded_and_not_told_is_named_by_its_key_and_pools() {
        let name: Arc<str> = "small".into();
        let mut pool = PoolPolicy::default();
        pool.host_rules.max_cpu_load = Some(900);
        pool.host_rules.max_pressure = Some(300);
        let said = |load: HostLoad| {
            let mut findings = Findings::default();
            let tells = judge("pve1", &[(&name, &pool)], &load, &mut findings);
            assert_eq!(tells, findings.0.is_empty());
            let said = findings.0.iter().map(ToString::to_string);
            said.collect::<Vec<_>>().join("\n")
        };
        let mut load = HostLoad {
            cpu: Some(10),
            ..HostLoad::default()
        };
        let old = said(load);
        let words = "warning: host pve1: PVE does not tell what max_pressure bounds, so that pool small may make no machine there";
        assert!(
            old.starts_with(words) && old.contains("from version 9"),
            "{old}"
        );
        assert_eq!(old.matches("warning").count(), 1, "{old}");
        load.cpu_pressure = Some(0);
        load.memory_pressure = Some(0);
        load.io_pressure = Some(0);
        assert_eq!(said(load), "");
        assert!(said(HostLoad::default()).contains("max_cpu_load"));
    }
}

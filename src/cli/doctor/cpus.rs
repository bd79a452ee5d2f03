//! The CPU type of machines against the CPUs of the hosts that a pool may use: QEMU starts no VM of a type of which its host lacks
//! something.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::stream::{self, StreamExt as _};

use super::finding::Findings;
use super::mends;
use super::region::{AT_A_TIME, RegionSeen, SeenRegion};
use super::templates::copies;
use crate::config::Settings;
use crate::model::policy::PoolPolicy;
use crate::model::words;
use crate::pve::cpu_types::{self, GENERIC};

/// Flags named in a line; more are only counted.
const MAX_NAMED: usize = 6;
/// A flag that every x86 CPU with 64 bits has: without it the list is another architecture's, or nobody's.
const X86: &str = "sse2";

/// The flags of hosts' CPUs, by host.
type FlagsOfHosts = BTreeMap<Arc<str>, BTreeSet<String>>;

/// Asks the hosts of pools whose CPU type asks for something.
pub(super) async fn look(region: &SeenRegion, findings: &mut Findings) {
    let SeenRegion { region, seen } = region;
    let (client, name, settings) = (&region.client, &*region.name, &*region.here.settings);
    let pools = || settings.policy.pools_in(name);
    let demanding = |pool: &PoolPolicy| {
        let cpus = cpus(seen, pool, settings);
        let nothing = BTreeSet::new();
        cpus.iter()
            .any(|cpu| !cpu_types::lacking(cpu, &nothing).is_empty())
    };
    let used = |host: &str| pools().any(|(_, pool)| pool.may_use(host) && demanding(pool));
    let hosts = seen.resources.hosts.iter();
    let hosts = hosts.filter(|(host, about)| about.online && used(host));
    let asked = hosts.map(|(host, _)| async move { (host, client.node_status(host).await) });
    let mut asked = stream::iter(asked).buffered(AT_A_TIME);
    let mut flags = FlagsOfHosts::new();
    while let Some((host, status)) = asked.next().await {
        match status {
            Ok(status) if status.cpu_flags.contains(X86) => {
                flags.insert(host.clone(), status.cpu_flags);
            }
            Ok(_) => {
                findings.unseen(format!(
                    "host {host}: PVE does not tell what its CPU can do"
                ));
            }
            Err(error) => {
                findings
                    .unseen(format!(
                        "host {host}: what its CPU can do: {}",
                        error.words()
                    ))
                    .mend(mends::of_call(&error, Some(&**host)));
            }
        }
    }
    for (pool_name, pool) in pools() {
        let hosts = flags.iter().filter(|(host, _)| pool.may_use(host));
        let hosts: Vec<(&str, &BTreeSet<String>)> =
            hosts.map(|(host, flags)| (&**host, flags)).collect();
        for cpu in cpus(seen, pool, settings) {
            judge((pool_name, &pool.template), &cpu, &hosts, findings);
        }
    }
}

/// The CPUs that a pool's machines have, as PVE writes them: the file's, else those of the template's copies.
fn cpus(seen: &RegionSeen, pool: &PoolPolicy, settings: &Settings) -> BTreeSet<String> {
    let Some(template) = settings.templates.get(&pool.template) else {
        return BTreeSet::new();
    };
    if let Some(cpu) = &template.cpu_type {
        return BTreeSet::from([cpu.clone()]);
    }
    let configs = copies(seen, template).filter_map(|(vmid, _)| seen.configs.get(vmid));
    let cpus = configs.filter_map(|config| config.raw.get("cpu"));
    cpus.cloned().collect()
}

/// Says on which hosts machines with this CPU do not start.
fn judge(
    (pool, template): (&str, &str),
    cpu: &str,
    hosts: &[(&str, &BTreeSet<String>)],
    findings: &mut Findings,
) {
    if hosts.is_empty() || cpu_types::lacking(cpu, &BTreeSet::new()).is_empty() {
        return;
    }
    let kind = cpu_types::cpu_type(cpu);
    let mut groups: BTreeMap<Vec<&str>, Vec<&str>> = BTreeMap::new();
    let mut able = Vec::new();
    for (host, flags) in hosts {
        let lacks = cpu_types::lacking(cpu, flags);
        if lacks.is_empty() {
            able.push(*host);
        } else {
            groups.entry(lacks).or_default().push(host);
        }
    }
    if groups.is_empty() {
        findings.fine(format!(
            "pool {pool}: {} what CPU type {kind} asks for",
            have(&able)
        ));
        return;
    }
    let runs_on_all = |kind: &&&str| {
        let mut hosts = hosts.iter();
        hosts.all(|(_, flags)| cpu_types::lacking(kind, flags).is_empty())
    };
    let other = GENERIC.iter().find(runs_on_all).copied();
    let other = other.unwrap_or("kvm64");
    for (lacks, unable) in groups {
        let more = lacks.len().saturating_sub(MAX_NAMED);
        let mut named: Vec<String> = lacks
            .iter()
            .take(MAX_NAMED)
            .map(|flag| (*flag).to_owned())
            .collect();
        named.extend((more > 0).then(|| format!("{more} more")));
        let text = format!(
            "pool {pool}: CPU type {kind} of template {template} asks for what the CPU of {} does not have ({}): PVE starts no machine there",
            words::names(&unable),
            words::names(&named)
        );
        let excluded: Vec<String> = unable.iter().map(|host| format!("\"{host}\"")).collect();
        let of_type = cpu_types::lacking(kind, &BTreeSet::new());
        let flags_alone = lacks.iter().all(|flag| !of_type.contains(flag));
        let instead = if flags_alone {
            format!(
                "take {} out of cpu_flags in [template.{template}], or out of the CPU of the template's VM",
                words::names(&named)
            )
        } else {
            format!(
                "cpu_type = \"{other}\" in [template.{template}], which every host of the pool runs"
            )
        };
        if able.is_empty() {
            findings.wrong(text).mend(instead);
        } else {
            findings.warning(text).mend(format!(
                "{instead}, or exclude_hosts = [{}] in [pool.{pool}]",
                words::names(&excluded)
            ));
        }
    }
}

/// Names of hosts, and that they have something.
fn have(hosts: &[&str]) -> String {
    let verb = if hosts.len() == 1 { "has" } else { "have" };
    format!("{} {verb}", words::names(hosts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_lack_the_same_are_told_in_one_line_with_what_to_type() {
        let flags =
            |text: &str| -> BTreeSet<String> { text.split(' ').map(str::to_owned).collect() };
        let old = flags("sse2 ssse3 sse4_1 sse4_2 popcnt aes");
        let older = flags("sse2 ssse3 sse4_1 sse4_2 popcnt");
        let new = flags(
            "sse2 ssse3 sse4_1 sse4_2 popcnt aes avx avx2 bmi1 bmi2 f16c fma abm movbe xsave",
        );
        let said = |cpu: &str, hosts: &[(&str, &BTreeSet<String>)]| {
            let mut findings = Findings::default();
            judge(("small", "debian"), cpu, hosts, &mut findings);
            let said = findings.0.iter().map(ToString::to_string);
            said.collect::<Vec<_>>()
        };
        let hosts = [("a", &new), ("b", &old), ("c", &old)];
        let found = said("x86-64-v3,flags=+aes", &hosts);
        assert_eq!(
            found,
            [
                "warning: pool small: CPU type x86-64-v3 of template debian asks for what the CPU of b, c does not have (abm, avx, avx2, bmi1, bmi2, f16c, 3 more): PVE starts no machine there; cpu_type = \"x86-64-v2-AES\" in [template.debian], which every host of the pool runs, or exclude_hosts = [\"b\", \"c\"] in [pool.small]"
            ]
        );
        let found = said("EPYC", &[("a", &new), ("b", &old), ("d", &older)]);
        assert_eq!(found.len(), 3, "{found:#?}");
        let all = "WRONG: pool small: CPU type EPYC of template debian asks for what the CPU of";
        assert!(found.iter().all(|line| line.starts_with(all)), "{found:#?}");
        let instead = "cpu_type = \"x86-64-v2\" in [template.debian]";
        assert!(
            found.iter().all(|line| line.contains(instead)),
            "{found:#?}"
        );
        assert_eq!(
            said("x86-64-v2-AES", &[("a", &new), ("b", &old)]),
            ["ok: pool small: a, b have what CPU type x86-64-v2-AES asks for"]
        );
        assert_eq!(said("host", &hosts), Vec::<String>::new());
        assert_eq!(said("custom-mine", &hosts), Vec::<String>::new());
    }
}

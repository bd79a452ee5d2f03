//! What of the file's settings of VMs came with a newer release of Proxmox VE than a host has: PVE makes the machine there, and refuses to
//! give it what it does not know. Of a cluster that is being upgraded each host is judged by itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::stream::{self, StreamExt as _};

use super::finding::Findings;
use super::mends;
use super::region::{AT_A_TIME, SeenRegion};
use crate::config::Settings;
use crate::config::settings::TemplateSettings;
use crate::config::vm_options::releases::{self, PveRelease};
use crate::model::words;
use crate::pve::{NodeStatus, PveVersion};

/// A setting that not every release knows.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NewerSetting {
    /// As the file has it: the key, and the part of its value that is meant.
    called: String,
    /// The table that it stands in.
    table: String,
    /// The first release that knows it.
    since: PveRelease,
}

/// Which hosts have which version, as they tell it, with the release that it is.
type VersionsOfHosts = BTreeMap<Arc<str>, (String, PveRelease)>;

/// Asks the hosts of pools whose machines get such a setting.
pub(super) async fn look(region: &SeenRegion, findings: &mut Findings) {
    let SeenRegion { region, seen } = region;
    let (client, name, settings) = (&region.client, &*region.name, &*region.here.settings);
    let used = |host: &str| {
        let mut pools = settings.policy.pools_in(name);
        pools.any(|(_, pool)| pool.may_use(host) && !newer_of(&pool.template, settings).is_empty())
    };
    let hosts = seen.resources.hosts.iter();
    let hosts = hosts.filter(|(host, about)| about.online && used(host));
    let asked = hosts.map(|(host, _)| async move { (host, client.node_status(host).await) });
    let mut asked = stream::iter(asked).buffered(AT_A_TIME);
    let mut versions = VersionsOfHosts::new();
    while let Some((host, status)) = asked.next().await {
        match status {
            Ok(status) => match told(&status) {
                Some(version) => {
                    versions.insert(host.clone(), version);
                }
                None => {
                    findings
                        .unseen(format!("host {host}: PVE does not tell its version"))
                        .mend(format!("pveversion, on {host}"));
                }
            },
            Err(error) => {
                findings
                    .unseen(format!(
                        "host {host}: which version of PVE it has: {}",
                        error.words()
                    ))
                    .mend(mends::of_call(&error, Some(&**host)));
            }
        }
    }
    for (pool_name, pool) in settings.policy.pools_in(name) {
        let hosts = versions.iter().filter(|(host, _)| pool.may_use(host));
        let hosts: Vec<HostOfPool<'_>> = hosts
            .map(|(host, (version, release))| (&**host, &**version, *release))
            .collect();
        for newer in newer_of(&pool.template, settings) {
            judge(pool_name, &newer, &hosts, findings);
        }
    }
}

/// What of a file's settings the host that answers does not know, for whoever is about to write that file.
pub(in crate::cli) fn notes(settings: &Settings, version: &PveVersion) -> Vec<String> {
    let Some(release) = version.release() else {
        return Vec::new();
    };
    let templates = settings.templates.iter();
    let newer = templates.flat_map(|(name, of)| newer_in(name, of));
    let unknown = newer.filter(|newer| newer.since > release);
    let notes = unknown.map(|NewerSetting { called, table, since }| {
        format!(
            "{called} in {table} is known to PVE from {} on, and the host that answers has {}: PVE refuses it there. Take it out, or upgrade; \
             `pve-autoscaler doctor` looks at each host",
            shown(since),
            version.version
        )
    });
    notes.collect()
}

fn told(status: &NodeStatus) -> Option<(String, PveRelease)> {
    Some((status.version()?.to_owned(), status.release()?))
}

/// A host that a pool may use, its version, and the release that this is.
type HostOfPool<'a> = (&'a str, &'a str, PveRelease);

/// What of a template's settings not every release knows.
fn newer_of(template: &str, settings: &Settings) -> Vec<NewerSetting> {
    let found = settings.templates.get(template);
    found.map_or_else(Vec::new, |of| newer_in(template, of))
}

fn newer_in(name: &str, template: &TemplateSettings) -> Vec<NewerSetting> {
    let options = template.hardware.options.iter();
    let of_options = options.filter_map(|(option, value)| {
        let (part, since) = releases::came_with(option, value)?;
        let called = part.map_or_else(|| option.clone(), |part| format!("{part} of {option}"));
        Some(NewerSetting {
            called,
            table: format!("[template.{name}.options]"),
            since,
        })
    });
    let cpu = template
        .cpu_type
        .as_deref()
        .and_then(releases::cpu_came_with);
    let of_cpu = cpu.map(|(part, since)| NewerSetting {
        called: if part == "nested-virt" {
            format!("{part} of cpu_flags")
        } else {
            format!("{part} of cpu_type")
        },
        table: format!("[template.{name}]"),
        since,
    });
    of_options.chain(of_cpu).collect()
}

/// Says on which hosts PVE refuses a setting.
fn judge(pool: &str, newer: &NewerSetting, hosts: &[HostOfPool<'_>], findings: &mut Findings) {
    let NewerSetting {
        called,
        table,
        since,
    } = newer;
    if hosts.is_empty() {
        return;
    }
    let (able, unable): (Vec<_>, Vec<_>) =
        hosts.iter().partition(|(_, _, release)| release >= since);
    let names = |of: &[&HostOfPool<'_>]| {
        let names: Vec<&str> = of.iter().map(|(host, _, _)| *host).collect();
        words::names(&names)
    };
    if unable.is_empty() {
        let verb = if able.len() == 1 { "knows" } else { "know" };
        findings.fine(format!(
            "pool {pool}: {} {verb} {called} in {table}",
            names(&able)
        ));
        return;
    }
    let with_version = unable
        .iter()
        .map(|(host, version, _)| format!("{host} ({version})"));
    let with_version: Vec<String> = with_version.collect();
    let since = shown(*since);
    let verb = if unable.len() == 1 { "has" } else { "have" };
    let text = format!(
        "pool {pool}: {called} in {table} is known to PVE from {since} on, and {} {verb} an older one: PVE refuses it, and no machine comes up there",
        words::names(&with_version)
    );
    let instead = format!("take it out, or upgrade {} to PVE {since}", names(&unable));
    if able.is_empty() {
        findings.wrong(text).mend(instead);
    } else {
        let excluded: Vec<String> = unable
            .iter()
            .map(|(host, _, _)| format!("\"{host}\""))
            .collect();
        findings.warning(text).mend(format!(
            "{instead}, or exclude_hosts = [{}] in [pool.{pool}]",
            words::names(&excluded)
        ));
    }
}

/// A release as people write it: that of a whole major version without its minor one.
fn shown((major, minor): PveRelease) -> String {
    match minor {
        0 => major.to_string(),
        minor => format!("{major}.{minor}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cluster that is being upgraded. It finds a judgement by the host that answered, or by the cluster's newest host.
    #[test]
    fn each_host_of_a_mixed_cluster_is_judged_by_its_own_release() {
        let newer = |called: &str, since| NewerSetting {
            called: called.to_owned(),
            table: "[template.debian.options]".to_owned(),
            since,
        };
        let said = |newer: &NewerSetting, hosts: &[HostOfPool<'_>]| {
            let mut findings = Findings::default();
            judge("small", newer, hosts, &mut findings);
            let said = findings.0.iter().map(ToString::to_string);
            said.collect::<Vec<_>>()
        };
        let (old, new) = (("a", "8.4.21", (8, 4)), ("b", "9.0.3", (9, 0)));
        let older = ("c", "8.3.5", (8, 3));
        let ksm = newer("allow-ksm", (9, 0));
        assert_eq!(
            said(&ksm, &[old, new, older]),
            [
                "warning: pool small: allow-ksm in [template.debian.options] is known to PVE from 9 on, and a (8.4.21), c (8.3.5) have an older one: PVE refuses it, and no machine comes up there; take it out, or upgrade a, c to PVE 9, or exclude_hosts = [\"a\", \"c\"] in [pool.small]"
            ]
        );
        assert_eq!(
            said(&ksm, &[old]),
            [
                "WRONG: pool small: allow-ksm in [template.debian.options] is known to PVE from 9 on, and a (8.4.21) has an older one: PVE refuses it, and no machine comes up there; take it out, or upgrade a to PVE 9"
            ]
        );
        assert_eq!(
            said(&ksm, &[new]),
            ["ok: pool small: b knows allow-ksm in [template.debian.options]"]
        );
        let virtiofs = said(&newer("virtiofs0", (8, 4)), &[old, older]);
        assert!(
            virtiofs.len() == 1 && virtiofs[0].contains("from 8.4 on, and c (8.3.5) has"),
            "{virtiofs:?}"
        );
        assert_eq!(said(&ksm, &[]), Vec::<String>::new());
    }
}

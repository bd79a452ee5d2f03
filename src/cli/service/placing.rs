//! Whether the pinning service runs on the daemon's own host, for `status`, where pools give machines CPUs of their own there. The
//! service of another host leaves its report on that host, where this daemon cannot read it.

use crate::cli::host_topology;
use crate::clock::Clock;
use crate::config::settings::Channel;
use crate::controller::status::DaemonStatus;
use crate::controller::turn::Turn;
use crate::model::policy::Policy;
use crate::model::time::Time;
use crate::pinning::{PinningReport, Roots};

/// Says so of this host, after a turn.
pub(super) fn tell(status: &mut DaemonStatus, turn: Option<&Turn>) {
    if let Some(turn) = turn
        && let Ok(host) = host_topology::name()
    {
        let here = (&*host, &Roots::default());
        // A region behind a token may be another PVE cluster, with a host of the same name.
        let is_here = |region: &str| {
            let region = turn.settings.regions.get(region);
            region.is_some_and(|region| region.channel == Channel::Local)
        };
        note(
            status,
            (&turn.settings.policy, &is_here),
            here,
            Clock::System.now(),
        );
    }
}

/// Says so in the note of this host, where a pool gives machines CPUs of their own there.
fn note(
    status: &mut DaemonStatus,
    (policy, is_here): (&Policy, &dyn Fn(&str) -> bool),
    (host, roots): (&str, &Roots),
    now: Time,
) {
    let here = status
        .hosts
        .iter_mut()
        .filter(|(region, _)| is_here(region));
    for (region, hosts) in here {
        let pins = |host: &str| {
            let mut pools = policy.pools_in(region);
            pools.any(|(_, pool)| pool.pinning.cpus && pool.may_use(host))
        };
        if let Some(of) = hosts.get_mut(host)
            && pins(host)
        {
            of.notes.push(words(PinningReport::read(roots, now)));
        }
    }
}

fn words(report: Result<Option<PinningReport>, String>) -> String {
    match report {
        Ok(Some(report)) => match report.problems().next() {
            None => report.summary(),
            Some(problem) => format!("{}: {problem}", report.summary()),
        },
        Ok(None) => {
            "vCPUs are where PVE put them: pve-autoscaler-pinning.service does not run".to_owned()
        }
        Err(why) => why,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::model::policy::PoolPolicy;
    use crate::model::report::HostState;
    use crate::model::time::Span;
    use crate::pinning::PinningOutcome;

    const NOW: Time = Time(1_795_000_000_000);

    /// It finds a note on a host of a pool that pins nothing, or on another host than this, and an old report that is believed.
    #[test]
    fn this_host_is_told_of_where_a_pool_pins() {
        let folder = tempfile::tempdir().expect("a folder");
        let roots = Roots::below(folder.path());
        let mut pool = PoolPolicy {
            region: "default".into(),
            ..PoolPolicy::default()
        };
        pool.pinning.cpus = true;
        let mut policy = Policy::default();
        let mut other = pool.clone();
        other.region = "east".into();
        policy.pools.insert("other".into(), other);
        policy.pools.insert("small".into(), pool);
        let is_here = |region: &str| region == "default";
        let said = |policy: &Policy, host: &str| {
            let hosts: BTreeMap<Arc<str>, HostState> = ["pve1", "pve2"]
                .map(|host| (host.into(), HostState::default()))
                .into();
            let mut status = DaemonStatus {
                hosts: BTreeMap::from([("default".into(), hosts.clone()), ("east".into(), hosts)]),
                ..DaemonStatus::default()
            };
            note(&mut status, (policy, &is_here), (host, &roots), NOW);
            let elsewhere = &status.hosts["east"];
            assert!(
                elsewhere.values().all(|of| of.notes.is_empty()),
                "{elsewhere:?}"
            );
            let hosts = &status.hosts["default"];
            let notes = hosts
                .iter()
                .map(|(host, of)| format!("{host}: {}", of.notes.join("; ")));
            notes.collect::<Vec<_>>()
        };
        let idle =
            "pve1: vCPUs are where PVE put them: pve-autoscaler-pinning.service does not run";
        assert_eq!(said(&policy, "pve1"), [idle, "pve2: "]);
        assert_eq!(said(&policy, "elsewhere"), ["pve1: ", "pve2: "]);
        let mut report = PinningReport {
            at: NOW,
            next: NOW + Span::seconds(30),
            outcome: PinningOutcome::default(),
        };
        report.write(&roots).expect("written");
        let placed = "pve2: vCPUs are placed on this host: 0 vCPUs of 0 machines";
        assert_eq!(said(&policy, "pve2"), ["pve1: ", placed]);
        report.next = NOW - Span::minutes(5);
        report.write(&roots).expect("written");
        let late = &said(&policy, "pve1")[0];
        assert!(
            late.contains("nobody has placed vCPUs on this host since"),
            "{late}"
        );
        if let Some(pool) = policy.pools.get_mut("small") {
            pool.pinning.cpus = false;
        }
        assert_eq!(said(&policy, "pve1"), ["pve1: ", "pve2: "]);
    }
}

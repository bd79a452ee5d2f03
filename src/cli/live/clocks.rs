//! The clocks of the hosts, against each other and against ours.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Findings, MAX_SKEW};
use crate::agent::clocks;
use crate::clock::Clock;
use crate::model::time::Span;
use crate::model::words;
use crate::pve::{Client, Resources};

/// Hosts whose clocks are read: PVE clusters have rarely more.
const MAX_CLOCKS: usize = 64;

/// The clocks of the hosts that answer.
pub(super) async fn read(
    client: &Client,
    name: &str,
    resources: &Resources,
    findings: &mut Findings,
) -> BTreeMap<Arc<str>, Span> {
    let mut clocks = BTreeMap::new();
    let online = resources.hosts.iter().filter(|(_, host)| host.online);
    for (host, _) in online.take(MAX_CLOCKS) {
        let sent = Clock::System.now();
        match client.host_time(host).await {
            Ok(Some(theirs)) => {
                let ahead = clocks::ahead(sent, theirs, Clock::System.now());
                clocks.insert(host.clone(), ahead);
            }
            Ok(None) => {}
            Err(error) => findings.warning(format!("region {name}: the clock of {host}: {error}")),
        }
    }
    clocks
}

/// Clocks against each other and against ours.
pub(super) fn judge(clocks: &BTreeMap<Arc<str>, Span>, name: &str, findings: &mut Findings) {
    let by_time = || clocks.iter().map(|(host, ahead)| (*ahead, host));
    let (Some((least, behind)), Some((most, before))) = (by_time().min(), by_time().max()) else {
        return;
    };
    let before_clocks = findings.0.len();
    let apart = Span(most.0 - least.0);
    if apart > MAX_SKEW {
        findings.warning(format!(
            "region {name}: the clocks of {behind} and {before} are {apart} apart; is time synchronised? guests begin with their host's"
        ));
    }
    let (off, host) = if most.0 > -least.0 {
        (most, before)
    } else {
        (Span(-least.0), behind)
    };
    if off > MAX_SKEW {
        findings.warning(format!(
            "region {name}: the clock of {host} and this host's differ by {off}; is time synchronised?"
        ));
    }
    if findings.0.len() == before_clocks {
        let hosts = words::count(clocks.len(), "host");
        findings.fine(format!(
            "region {name}: the clocks of {hosts} and ours agree"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_compared_with_each_other_and_with_ours() {
        let said = |clocks: [i64; 2]| {
            let hosts = [
                ("pve1".into(), Span::seconds(clocks[0])),
                ("pve2".into(), Span::seconds(clocks[1])),
            ];
            let mut findings = Findings::default();
            judge(&BTreeMap::from(hosts), "default", &mut findings);
            let said = findings.0.iter().map(ToString::to_string);
            said.collect::<Vec<_>>()
        };
        let apart = "warning: region default: the clocks of pve1 and pve2 are 40s apart; is time synchronised? guests begin with their host's";
        let off = |host: &str| {
            format!(
                "warning: region default: the clock of {host} and this host's differ by 45s; is time synchronised?"
            )
        };
        assert_eq!(
            said([-20, 9]),
            ["ok: region default: the clocks of 2 hosts and ours agree"]
        );
        assert_eq!(said([-20, 20]), [apart]);
        assert_eq!(said([5, 45]), [apart.to_owned(), off("pve2")]);
        assert_eq!(said([-45, -5]), [apart.to_owned(), off("pve1")]);
        assert_eq!(said([45, 44]), [off("pve1")]);
    }
}

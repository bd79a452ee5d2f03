//! The clocks of the hosts, against each other and against ours.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::stream::{self, StreamExt as _};

use super::MAX_SKEW;
use super::finding::Findings;
use super::mends;
use super::region::{AT_A_TIME, SeenRegion};
use crate::clock::Clock;
use crate::controller::clocks;
use crate::model::time::Span;
use crate::model::words;

/// Hosts whose clocks are read: PVE clusters have rarely more.
const MAX_CLOCKS: usize = 64;
/// What shows whether a clock follows the others.
const SYNCHRONISE: &str = "chronyc tracking, or timedatectl, on each of them";

/// Compares the clocks of the hosts that answer.
pub(super) async fn look(region: &SeenRegion, findings: &mut Findings) {
    let name = &region.region.name;
    let clocks = read(region, findings).await;
    judge(&clocks, name, findings);
}

/// The clocks of the hosts that answer.
async fn read(region: &SeenRegion, findings: &mut Findings) -> BTreeMap<Arc<str>, Span> {
    let (name, client) = (&region.region.name, &region.region.client);
    let online = region.seen.resources.hosts.iter();
    let online = online.filter(|(_, host)| host.online).take(MAX_CLOCKS);
    let asked = online.map(|(host, _)| async move {
        let sent = Clock::System.now();
        let told = client.host_time(host).await;
        let ahead = |theirs| clocks::ahead(sent, theirs, Clock::System.now());
        (host.clone(), told.map(|theirs| theirs.map(ahead)))
    });
    let mut asked = stream::iter(asked).buffered(AT_A_TIME);
    let mut clocks = BTreeMap::new();
    while let Some((host, told)) = asked.next().await {
        match told {
            Ok(Some(ahead)) => {
                clocks.insert(host, ahead);
            }
            Ok(None) => {}
            Err(error) => {
                findings
                    .warning(format!(
                        "region {name}: the clock of {host}: {}",
                        error.words()
                    ))
                    .mend(mends::of_call(&error, Some(&host)));
            }
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
        )).mend(SYNCHRONISE);
    }
    let (off, host) = if most.0 > -least.0 {
        (most, before)
    } else {
        (Span(-least.0), behind)
    };
    if off > MAX_SKEW {
        findings.warning(format!(
            "region {name}: the clock of {host} and this host's differ by {off}; is time synchronised?"
        )).mend(SYNCHRONISE);
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
            let said = findings.0.iter();
            let said = said.map(|found| format!("{}: {}", found.grade.word(), found.text));
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

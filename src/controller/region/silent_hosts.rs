//! Hosts that PVE lists as online and that answer no call: they hang, or their network does. They are asked nothing but one cheap call until
//! they answer that, so that they hold up nobody else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, timeout_at};

use super::questions::is_heard;
use crate::model::foreign::ForeignText;
use crate::model::region::Region;
use crate::pve::Client;

/// A poll waits for the answers of silent hosts this long. Who needs longer is heard in a later poll.
const MOMENT: Duration = Duration::from_secs(1);

/// The silent hosts of a region.
#[derive(Debug, Default)]
pub(in crate::controller) struct SilentHosts {
    /// Why each counts as one.
    known: BTreeMap<Arc<str>, ForeignText>,
    /// Those that are being asked.
    asked: BTreeSet<Arc<str>>,
    /// The questions to them, which outlive a poll; each ends with whether the host was heard.
    asking: JoinSet<(Arc<str>, bool)>,
}

impl SilentHosts {
    /// Whether a host is one.
    pub(in crate::controller) fn has(&self, host: &str) -> bool {
        self.known.contains_key(host)
    }

    /// A host has answered nothing.
    pub(super) fn add(&mut self, host: Arc<str>, why: &ForeignText) {
        let why = format!("PVE lists it as online, and it does not answer: {why}");
        self.known.insert(host, ForeignText::new(why));
    }

    /// Forgets hosts that are not online any more: that PVE tells.
    pub(super) fn keep(&mut self, online: impl Fn(&str) -> bool) {
        self.known.retain(|host, _| online(host));
    }

    /// Asks each once more, and waits a moment for those that answer: they are none any more.
    pub(super) async fn ask_again(&mut self, client: &Client) {
        while let Some(ended) = self.asking.try_join_next() {
            self.end(ended);
        }
        for host in self.known.keys() {
            if self.asked.insert(host.clone()) {
                let (client, host) = (client.clone(), host.clone());
                self.asking.spawn(async move {
                    let heard = is_heard(&client.host_time(&host).await);
                    (host, heard)
                });
            }
        }
        let until = Instant::now() + MOMENT;
        while let Ok(Some(ended)) = timeout_at(until, self.asking.join_next()).await {
            self.end(ended);
        }
    }

    /// A question ended.
    fn end(&mut self, ended: Result<(Arc<str>, bool), JoinError>) {
        match ended {
            Ok((host, heard)) => {
                self.asked.remove(&host);
                if heard {
                    self.known.remove(&host);
                }
            }
            // Whose question it was is not told: all are asked once more.
            Err(_) => self.asked.clear(),
        }
    }

    /// Says which hosts of a region are silent.
    pub(super) fn mark(&self, region: &mut Region) {
        for (host, why) in &self.known {
            if let Some(host) = region.hosts.get_mut(host) {
                host.silent = true;
                host.unread.get_or_insert_with(|| why.clone());
            }
        }
    }
}

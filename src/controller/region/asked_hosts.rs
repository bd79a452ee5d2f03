//! Questions to hosts that not every poll asks: a host's load (each minute, where a pool bounds it), its clock, its bridges, the bytes that
//! the file systems of its storages keep for root (twice an hour each), and, of the whole region, the definitions of storages.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::RegionWatcher;
use crate::model::policy::PoolPolicy;
use crate::pve::ClusterResources;

/// No further host is asked for its load, or what a storage keeps, in a poll after this long.
const ASKING: Duration = Duration::from_secs(10);

impl RegionWatcher {
    /// Asks hosts how loaded they are, if a pool bounds that. The time for it is bounded: hosts that are slow are asked in
    /// the next poll.
    pub(super) async fn read_loads(&mut self, resources: &ClusterResources) {
        if !self.settings.policy.loads_in(&self.name) {
            return;
        }
        let began = Instant::now();
        let online = resources.hosts.iter().filter(|(_, host)| host.online);
        for host in self.loads.due(online.map(|(name, _)| name), began) {
            if began.elapsed() > ASKING {
                return;
            }
            let load = self.client.host_load(&host).await;
            if let Err(error) = &load {
                tracing::debug!(region = %self.name, %host, %error, "cannot read a host's load");
            }
            self.loads.record(host, Instant::now(), load.ok());
        }
    }

    /// Asks a host for its clock, or for what a storage keeps for root, if one is due; in turns with re-readings, if one is `waiting`.
    /// True if a host was asked. One that does not tell is no failure.
    pub(super) async fn ask_a_host(&mut self, resources: &ClusterResources, waiting: bool) -> bool {
        self.host_was_last = if waiting && self.host_was_last {
            false
        } else {
            self.read_clock(resources).await
                || self.read_kept_space_again(resources).await
                || self.read_backings_again().await
                || self.read_bridges_again().await
        };
        self.host_was_last
    }

    async fn read_clock(&mut self, resources: &ClusterResources) -> bool {
        let online = resources.hosts.iter().filter(|(_, host)| host.online);
        let sent = self.clock.now();
        let due = self.clocks.due(online.map(|(name, _)| name), sent);
        let Some(host) = due else {
            return false;
        };
        let theirs = match self.client.host_time(&host).await {
            Ok(theirs) => theirs,
            Err(error) => {
                tracing::debug!(region = %self.name, %host, %error, "cannot read a host's clock");
                None
            }
        };
        self.clocks.record(host, sent, theirs, self.clock.now());
        true
    }

    async fn read_kept_space_again(&mut self, resources: &ClusterResources) -> bool {
        let due = self.kept_space.due(resources, Instant::now());
        let Some(at) = due else {
            return false;
        };
        self.read_kept_space(at).await;
        true
    }

    async fn read_kept_space(&mut self, (host, storage): (Arc<str>, Arc<str>)) {
        let kept = self.client.kept_space(&host, &storage).await;
        if let Err(error) = &kept {
            tracing::debug!(region = %self.name, %host, %storage, %error, "cannot read what a storage keeps for root");
        }
        let now = Instant::now();
        self.kept_space
            .record((host, storage), now, kept.ok().flatten());
    }

    /// Takes what file systems keep for root off what is free on them; those that were never asked are asked. The time for it is
    /// bounded: those that are left are asked in the next poll.
    pub(super) async fn tell_kept_space(&mut self, resources: &mut ClusterResources) {
        let began = Instant::now();
        for at in self.kept_space.unknown(resources) {
            if began.elapsed() > ASKING {
                break;
            }
            self.read_kept_space(at).await;
        }
        self.kept_space.apply(resources);
    }

    /// Asks hosts that pools may use for their bridges, if they never were. The time for it is bounded: those that are left are asked in the
    /// next poll.
    pub(super) async fn read_new_bridges(&mut self, resources: &ClusterResources) {
        let policy = &self.settings.policy;
        let pools: Vec<&PoolPolicy> = policy.pools_in(&self.name).map(|(_, pool)| pool).collect();
        let hosts = resources.hosts.iter().filter(|(_, host)| host.online);
        let used = hosts.filter(|(name, _)| pools.iter().any(|pool| pool.may_use(name)));
        let began = Instant::now();
        for host in self.bridges.unknown(used.map(|(name, _)| name)) {
            if began.elapsed() > ASKING {
                return;
            }
            self.read_bridges(host).await;
        }
    }

    async fn read_bridges_again(&mut self) -> bool {
        let Some(host) = self.bridges.due(&self.last, Instant::now()) else {
            return false;
        };
        self.read_bridges(host).await;
        true
    }

    async fn read_bridges(&mut self, host: Arc<str>) {
        let bridges = self.client.bridges(&host).await;
        if let Err(error) = &bridges {
            tracing::debug!(region = %self.name, %host, %error, "cannot read a host's bridges");
        }
        // An empty list is what a damaged answer reads as, or one to a token that may use none: it tells nothing.
        let told = bridges.ok().filter(|of| !of.is_empty());
        let names = told.map(|of| of.into_keys().map(Arc::from).collect());
        self.bridges.record(host, Instant::now(), names);
    }

    async fn read_backings_again(&mut self) -> bool {
        let due = self.backings.is_due(Instant::now());
        if due {
            self.read_backings().await;
        }
        due
    }

    async fn read_backings(&mut self) {
        let told = self.client.storage_backings().await;
        if let Err(error) = &told {
            tracing::debug!(region = %self.name, %error, "cannot read the definitions of the storages");
        }
        self.backings.record(Instant::now(), told.ok());
    }

    /// Says what each storage's volumes lie in; the definitions are read if there is a storage that they were never read for.
    pub(super) async fn tell_backings(&mut self, resources: &mut ClusterResources) {
        if self.backings.is_wanted(resources, Instant::now()) {
            self.read_backings().await;
        }
        self.backings.apply(resources);
    }
}

//! A whole world in this process: a fake PVE cluster, a fake Kubernetes cluster, guests that join
//! it, and the real daemon between them. Nothing of the daemon is replaced but its ways out: they
//! end in the fakes' routers instead of in sockets.
//!
//! Everything runs on tokio's clock and on seeds. On a paused current-thread runtime hours pass in
//! seconds and a seed replays to the byte.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::map_request;
use futures::future::BoxFuture;
use http::HeaderValue;
use http::header::AUTHORIZATION;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::config::settings::Channel;
use crate::config::{self, ConfigErrors, Settings};
use crate::controller::daemon::{self, DaemonError, DaemonParts};
use crate::controller::executor::{Nothing, Observer};
use crate::controller::on_wire::WireBook;
use crate::controller::state::{StateError, StateFiles};
use crate::controller::turn::Turn;
use crate::model::on_wire::HolderSign;
use crate::model::time::Time;
use crate::pve::transport::Transport;
use crate::pve::transport::memory::RouterTransport;
use crate::sim::broker::Broker;
use crate::sim::faults::{CallCounter, Faults, Style};
use crate::sim::guests::{GuestSpec, KubeGuests};
use crate::sim::kube::{Kube, KubeSpec};
use crate::sim::pve::{Pve, PveSpec};
use crate::sim::wire::SimWire;
use crate::web::Metrics;
use crate::web::metrics::Metered;
use crate::wire::{Wire, WireAnswer};

/// When simulated worlds begin: a Thursday, 08:00 UTC.
pub const EPOCH: Time = Time(1_767_254_400_000);

/// The daemon's user name at the API server.
pub const DAEMON: &str = "pve-autoscaler";
/// The daemon's identity in the Lease, to which each start adds its own part.
pub const IDENTITY: &str = "simulated";

/// What a world is like.
#[derive(Clone, Debug)]
pub struct WorldSpec {
    /// Everything that is drawn comes from here.
    pub seed: u64,
    /// Proxmox VE.
    pub pve: PveSpec,
    /// Kubernetes.
    pub kube: KubeSpec,
    /// The guests.
    pub guests: GuestSpec,
    /// The daemon's configuration file.
    pub config: String,
}

/// A second, third, … PVE cluster: its API, its guests, and the way there. Nothing of it is shared with the first one but
/// the Kubernetes cluster that its guests join.
#[derive(Debug)]
pub struct FurtherRegion {
    /// Proxmox VE.
    pub pve: Pve,
    /// The guests; a VMID may be in use in every region.
    pub guests: KubeGuests,
    /// What goes wrong between the daemon and this PVE.
    pub faults: Faults,
    /// The token as which the daemon comes: it is not on a host of this region.
    token: String,
}

impl FurtherRegion {
    /// This PVE as the daemon reaches it: by its token, with the faults of the way there.
    fn way(&self) -> Router {
        self.faults
            .wrap(self.pve.router_as(&self.token), Style::Pve)
    }
}

/// A running world.
#[derive(Debug)]
pub struct World {
    /// The clock of Kubernetes, PVE and the guests.
    pub clock: Clock,
    /// The clock of the host that the daemon runs on; it shows the same until somebody sets it.
    pub host_clock: Clock,
    /// Kubernetes.
    pub kube: Kube,
    /// Proxmox VE.
    pub pve: Pve,
    /// The guests.
    pub guests: KubeGuests,
    /// The daemon's settings.
    pub settings: Arc<Settings>,
    /// What goes wrong between the daemon and PVE.
    pub pve_faults: Faults,
    /// What goes wrong between the daemon and Kubernetes.
    pub kube_faults: Faults,
    /// The daemon's turns.
    pub turns: watch::Sender<Option<Arc<Turn>>>,
    /// Asks the daemon for a turn.
    pub wake_up: Arc<Notify>,
    /// The broker's stand-in between the daemon and PVE.
    pub broker: Broker,
    /// Devices on the wire that are neither in PVE nor in Kubernetes.
    pub wire: SimWire,
    /// Further regions, by name, each with a PVE cluster of its own.
    pub further: BTreeMap<Arc<str>, FurtherRegion>,
    /// Who hears what the daemon does.
    pub observer: Arc<dyn Observer>,
    /// Who hears of the daemon's calls to Kubernetes.
    pub kube_observer: Arc<dyn crate::kubernetes::CallObserver>,
    /// The bearer token with which the daemon comes to Kubernetes: it may do what that user may. Without one it may do everything.
    pub kube_token: Option<String>,
    /// What counts the daemon's calls to PVE, if something does.
    pub pve_meter: Option<Arc<Metrics>>,
    seed: u64,
}

impl World {
    /// Begins a world in which all regions of the configuration are one PVE cluster. Needs a tokio runtime.
    ///
    /// # Errors
    /// When the configuration is wrong.
    pub fn new(spec: WorldSpec) -> Result<World, ConfigErrors> {
        World::with_regions(spec, BTreeMap::new())
    }

    /// Begins a world in which the regions that `further` names are PVE clusters of their own, which the daemon reaches by
    /// the token that the configuration names for them. Needs a tokio runtime.
    ///
    /// # Errors
    /// When the configuration is wrong.
    pub fn with_regions(
        spec: WorldSpec,
        further: BTreeMap<String, PveSpec>,
    ) -> Result<World, ConfigErrors> {
        let settings = Arc::new(config::parse(&spec.config, "the simulated configuration")?);
        let clock = Clock::starting_at(EPOCH);
        let kube = Kube::new(spec.kube, clock, spec.seed);
        let further = (1..).zip(further).map(|(number, (name, pve))| {
            let seed = spec.seed ^ (number << 8);
            let guests = KubeGuests::new(kube.public_router(), spec.guests.clone(), clock, seed);
            let token = match settings.regions.get(&*name).map(|region| &region.channel) {
                Some(Channel::Token { token_id, .. }) => token_id.clone(),
                _ => String::new(),
            };
            let site = FurtherRegion {
                pve: Pve::new(pve, Arc::new(guests.clone()), clock, seed),
                guests,
                faults: Faults::new(seed ^ 1),
                token,
            };
            (name.into(), site)
        });
        let further = further.collect();
        let guests = KubeGuests::new(kube.public_router(), spec.guests, clock, spec.seed);
        let pve = Pve::new(spec.pve, Arc::new(guests.clone()), clock, spec.seed);
        let pools = settings.policy.pools.iter();
        let pools = pools.map(|(name, pool)| {
            let most = usize::try_from(pool.max).unwrap_or(usize::MAX);
            (name.to_string(), most)
        });
        let broker = Broker::new(pve.clone(), clock, pools.collect());
        Ok(World {
            clock,
            host_clock: Clock::settable(EPOCH),
            kube,
            pve,
            guests,
            settings,
            pve_faults: Faults::new(spec.seed ^ 1),
            kube_faults: Faults::new(spec.seed ^ 2),
            turns: watch::Sender::new(None),
            wake_up: Arc::new(Notify::new()),
            broker,
            wire: SimWire::default(),
            further,
            observer: Arc::new(Nothing),
            kube_observer: Arc::new(crate::kubernetes::Unobserved),
            kube_token: None,
            pve_meter: None,
            seed: spec.seed,
        })
    }

    /// PVE as the daemon reaches it: the broker, and behind it PVE with the faults of the way there.
    pub fn pve_way(&self) -> Router {
        let pve = self.pve.router_as("root@pam");
        self.broker.wrap(self.pve_faults.wrap(pve, Style::Pve))
    }

    /// The wire as the daemon's host sees it, of which nothing was asked yet.
    pub fn wire_way(&self) -> WireBook {
        let sites = self.further.values().map(|site| site.pve.clone());
        WireBook::new(Arc::new(WorldWire {
            devices: self.wire.clone(),
            sites: sites.chain([self.pve.clone()]).collect(),
        }))
    }

    /// Kubernetes as the daemon reaches it.
    pub fn kube_way(&self) -> Router {
        let kube = match &self.kube_token {
            Some(token) => add_token(self.kube.public_router(), token),
            None => self.kube.router_as(DAEMON),
        };
        self.kube_faults.wrap(kube, Style::Kubernetes)
    }

    /// Runs the daemon with its state in `state`, until it is dropped or cannot go on. `counter`
    /// counts its calls, if given. `start` tells starts of the same world apart.
    ///
    /// # Errors
    /// Why it cannot go on.
    pub async fn daemon(
        &self,
        state: &Path,
        counter: Option<&CallCounter>,
        start: u64,
    ) -> Result<std::convert::Infallible, WorldError> {
        let parts = self.parts(state, counter, start).await?;
        Ok(daemon::run(parts).await?)
    }

    /// Runs the daemon until `stop` is cancelled: then it ends well.
    ///
    /// # Errors
    /// Why it cannot go on.
    pub async fn daemon_until(
        &self,
        state: &Path,
        start: u64,
        stop: CancellationToken,
    ) -> Result<(), WorldError> {
        let parts = self.parts(state, None, start).await?;
        Ok(daemon::run_until(parts, stop).await?)
    }

    async fn parts(
        &self,
        state: &Path,
        counter: Option<&CallCounter>,
        start: u64,
    ) -> Result<DaemonParts, WorldError> {
        let counted = |router: Router| match counter {
            Some(counter) => counter.wrap(router),
            None => router,
        };
        let kube = crate::kubernetes::KubeClient::new(
            crate::kubernetes::in_memory(counted(self.kube_way())).known_as(
                crate::kubernetes::Authority {
                    server: self.kube.endpoint(),
                    ca_pem: self.kube.authority(),
                },
            ),
            self.host_clock,
            self.kube_observer.clone(),
        )
        .await;
        let mut pve: BTreeMap<Arc<str>, Arc<dyn Transport>> = BTreeMap::new();
        for name in self.settings.regions.keys() {
            let way = match self.further.get(name) {
                Some(site) => site.way(),
                None => self.pve_way(),
            };
            let way: Arc<dyn Transport> = Arc::new(RouterTransport::new(counted(way)));
            let way: Arc<dyn Transport> = match &self.pve_meter {
                Some(metrics) => Arc::new(Metered::new(way, metrics.clone())),
                None => way,
            };
            pve.insert(name.clone(), way);
        }
        let rng = StdRng::seed_from_u64(self.seed.wrapping_mul(0x9e37_79b9).wrapping_add(start));
        Ok(DaemonParts {
            settings: self.settings.clone(),
            clock: self.host_clock,
            random: Arc::new(Mutex::new(rng)),
            kube,
            pve,
            wire: self.wire_way(),
            state: StateFiles::open(state)?,
            identity: IDENTITY.to_owned(),
            observer: self.observer.clone(),
            turns: self.turns.clone(),
            wake_up: self.wake_up.clone(),
            begins: None,
        })
    }
}

/// Requests to this router as of whoever has the token.
fn add_token(router: Router, token: &str) -> Router {
    let bearer = format!("Bearer {token}");
    router.layer(map_request(move |mut request: Request| {
        let bearer = HeaderValue::from_str(&bearer);
        if let Ok(bearer) = bearer {
            request.headers_mut().insert(AUTHORIZATION, bearer);
        }
        std::future::ready(request)
    }))
}

/// How long the simulated host waits for an answer.
const SILENCE: Duration = Duration::from_millis(1_500);
/// What guests answer with.
const GUESTS_MAC: &str = "bc:24:11:00:00:01";

/// All that is on the wire: devices, and the VMs that run.
#[derive(Debug)]
struct WorldWire {
    devices: SimWire,
    sites: Vec<Pve>,
}

impl WorldWire {
    /// Whether a VM runs that cloud-init gave an address.
    fn is_guests(&self, address: IpAddr) -> bool {
        let vms = self.sites.iter().flat_map(Pve::vms);
        let mut values = vms.filter(|vm| vm.running).flat_map(|vm| vm.config);
        values.any(|(key, value)| {
            key.starts_with("ipconfig")
                && value.split(',').any(|part| {
                    let text = part.split_once('=').map_or("", |(_, text)| text);
                    text.split('/').next().unwrap_or_default().parse() == Ok(address)
                })
        })
    }
}

impl Wire for WorldWire {
    fn ask(&self, address: IpAddr) -> BoxFuture<'_, WireAnswer> {
        Box::pin(async move {
            let device = self.devices.asks(address);
            let guest = || self.is_guests(address).then(|| GUESTS_MAC.into());
            match device.or_else(guest) {
                Some(mac) => WireAnswer::Held {
                    sign: HolderSign::Neighbour,
                    mac: Some(mac),
                },
                None => {
                    tokio::time::sleep(SILENCE).await;
                    WireAnswer::Silent
                }
            }
        })
    }
}

/// Why a simulated daemon ended.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// The daemon's state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// It could not go on.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
}

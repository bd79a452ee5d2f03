//! The root process between the daemon and Proxmox VE.
//!
//! It listens on a unix socket that only root and one group can open, speaks HTTP/1.1 with PVE's
//! own paths, and forwards what `allow` admits to this host's pveproxy as root@pam. Every call on
//! an existing VM but two reads needs that VM's mark, which the broker reads itself right before;
//! a small race remains for calls that take no digest (somebody edits the VM in the milliseconds
//! between). Its policy is the root-owned configuration file, so the daemon cannot widen it.

mod allow;
mod audit;
pub mod binding;
mod census;
mod clones;
mod destroy;
pub mod direct;
mod durable;
mod fallback;
mod form;
mod forward;
mod gate;
mod http;
mod intents;
mod isos;
mod listen;
mod owned;
mod peer;
mod perl;
mod policy;
mod reach;
mod records;
mod removals;
mod service;
#[cfg(test)]
mod tests;
mod ticket;
mod waits;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use systemd::daemon;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::clock::Clock;

use forward::Forward;
use policy::BrokerPolicy;
use service::BrokerService;

/// After being told to stop: what is under way may end, which takes a change's whole time at most.
const STOP: Duration = Duration::from_secs(43);
/// Watchdog pings when systemd asks for none.
const QUIET: Duration = Duration::from_hours(1);

/// How the broker is started.
#[derive(Clone, Debug)]
pub struct BrokerOptions {
    /// The configuration file; it must belong to root and be writable by nobody else.
    pub config: PathBuf,
    /// Where it finds PVE on this host.
    pub paths: Paths,
}

impl BrokerOptions {
    /// The broker of this host, with its policy from `config`.
    pub fn new(config: PathBuf) -> BrokerOptions {
        BrokerOptions {
            config,
            paths: Paths::default(),
        }
    }
}

/// What the broker finds on a PVE host, and where.
#[derive(Clone, Debug)]
pub struct Paths {
    /// This host's directory in the cluster file system: certificates.
    pub node: PathBuf,
    /// Defaults of pveproxy (`LISTEN_IP`).
    pub pveproxy: PathBuf,
    /// Port of pveproxy.
    pub port: u16,
    /// The broker's own directory: intents, the learnt cluster id.
    pub state: PathBuf,
    /// Perl.
    pub perl: PathBuf,
    /// systemd-run.
    pub systemd_run: PathBuf,
    /// Uid that the configuration file must belong to.
    pub owner: u32,
    /// The HTTP API must have been useless for this long before calls go through Perl: a pveproxy
    /// that restarts is back sooner.
    pub fallback_after: Duration,
}

impl Default for Paths {
    fn default() -> Paths {
        Paths {
            node: "/etc/pve/local".into(),
            pveproxy: "/etc/default/pveproxy".into(),
            port: 8006,
            state: "/var/lib/pve-autoscaler-broker".into(),
            perl: "/usr/bin/perl".into(),
            systemd_run: "/usr/bin/systemd-run".into(),
            owner: 0,
            fallback_after: Duration::from_secs(15),
        }
    }
}

/// Why the broker cannot run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the broker cannot run: {0}")]
pub struct BrokerError(String);

/// Runs the broker until SIGTERM or SIGINT. SIGHUP reads the configuration again; a file that
/// cannot be used leaves the old policy in force. Made for a current-thread runtime.
///
/// # Errors
/// The configuration cannot be used, or the socket or the state directory cannot.
pub async fn run(options: BrokerOptions) -> Result<(), BrokerError> {
    let policy = BrokerPolicy::read(&options.config, options.paths.owner)
        .map_err(|error| BrokerError(error.to_string()))?;
    let listener = listen::listen(&policy.socket, &policy.group).map_err(BrokerError)?;
    let hash = policy.hash.clone();
    let way = Arc::new(Forward::new(options.paths.clone()));
    let service = BrokerService::new(policy, way, &options.paths.state, Clock::System);
    let service = Arc::new(service.map_err(BrokerError)?);
    let (stop, stopping) = watch::channel(false);
    let mut signals = Signals::new()?;
    notify(&[("READY", "1"), ("STATUS", "listening")]);
    tracing::info!(policy_hash = hash, "the broker listens");
    let mut serving = std::pin::pin!(http::serve(&listener, &service, stopping));
    let beat = daemon::watchdog_enabled().unwrap_or(0);
    let beat = if beat == 0 {
        QUIET
    } else {
        Duration::from_micros(beat / 2)
    };
    let mut beats = tokio::time::interval(beat.max(Duration::from_millis(100)));
    loop {
        tokio::select! {
            biased;
            // It ends only when it is told to; should it end by itself, systemd starts it anew.
            () = &mut serving => return Err(BrokerError("its socket is gone".to_owned())),
            _ = signals.terminate.recv() => break,
            _ = signals.interrupt.recv() => break,
            _ = signals.hang_up.recv() => reload(&service, &options),
            _ = beats.tick() => notify(&[("WATCHDOG", "1")]),
        }
    }
    notify(&[("STOPPING", "1")]);
    let _ = stop.send(true);
    let _ = tokio::time::timeout(STOP, serving).await;
    Ok(())
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new() -> Result<Signals, BrokerError> {
        let on = |kind: SignalKind| {
            signal(kind).map_err(|error| BrokerError(format!("cannot wait for signals: {error}")))
        };
        Ok(Signals {
            terminate: on(SignalKind::terminate())?,
            interrupt: on(SignalKind::interrupt())?,
            hang_up: on(SignalKind::hangup())?,
        })
    }
}

fn reload(service: &BrokerService, options: &BrokerOptions) {
    match BrokerPolicy::read(&options.config, options.paths.owner) {
        Ok(policy) => {
            tracing::info!(
                policy_hash = policy.hash,
                "the configuration was read again"
            );
            service.set_policy(policy);
        }
        Err(error) => {
            tracing::error!(%error, "the configuration was not read again; the old policy stays");
        }
    }
}

/// Tells systemd; that there is none is no error.
fn notify(state: &[(&str, &str)]) {
    if let Err(error) = daemon::notify(state.iter()) {
        tracing::debug!(%error, "cannot notify systemd");
    }
}

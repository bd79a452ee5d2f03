//! `doctor`, and `check --live`: does what the file names exist, and can the daemon do what it will have to?
//!
//! Every file here has one subject. A probe is a function that looks at it and notes findings; `probes` lists them
//! all, so that another one is a file and a line there. Gathering is apart from judging; judging is pure.

mod addresses;
mod admission;
mod bridges;
mod broker;
mod builds;
mod clocks;
mod clones;
mod cloud_init;
mod collector;
mod cpus;
mod daemon;
mod devices;
mod disks;
mod endpoint;
mod endpoints;
pub(in crate::cli) mod finding;
mod firewall;
mod hosts;
mod journal;
mod kubeadm;
mod kubernetes;
mod lease;
mod load;
mod mail;
mod mends;
mod network;
mod new_vms;
mod posts;
mod probe;
mod probes;
mod provider;
mod range;
pub(super) mod region;
pub(super) mod releases;
mod report;
pub(super) mod rights;
pub(super) mod skew;
mod state;
mod tags;
mod talos;
pub(super) mod templates;
#[cfg(test)]
mod tests;
mod topology;
pub(super) mod user;
mod wire;

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;

use self::kubernetes::ReachedCluster;
use self::probe::look_at;
use self::region::{ReachedRegion, RegionSeen, SeenRegion};
use super::args::{DoctorOptions, LookOptions, STATE_DIRECTORY};
use super::{CliFailure, in_force, load, runtime};
use crate::config::{self, Settings};
use crate::model::time::Span;

use finding::Findings;
pub(super) use finding::Grade;
pub(super) use report::{DoctorDocument, DoctorReport};

/// Tokens and certificates are made with times in them: a clock that is off by more than this makes
/// some of them invalid.
const MAX_SKEW: Span = Span::seconds(30);
/// Nothing is wrong, and not everything could be looked at. A command line or a file that is wrong ends so, too.
const EXIT_UNSEEN: u8 = 2;

/// Our cluster's id, when it is known.
type ClusterId = Arc<str>;

/// What is looked at on this host, and with what patience.
#[derive(Clone, Debug)]
pub(super) struct Here {
    pub(super) settings: Arc<Settings>,
    /// The file's path, as the daemon names its own.
    pub(super) file: String,
    /// What stands in the file, as the daemon tells which file it runs with.
    pub(super) digest: String,
    /// The daemon's own directory.
    pub(super) state: PathBuf,
    /// Whether a person named that directory.
    pub(super) state_is_named: bool,
    /// The daemon's control socket.
    pub(super) control: PathBuf,
    /// Whether a daemon listens there.
    pub(super) runs: bool,
    /// How long each probe may take.
    pub(super) patience: Duration,
}

impl Here {
    /// With this file and these options.
    pub(super) fn of(path: &Path, settings: Settings, options: &LookOptions) -> Here {
        Here {
            file: in_force::whole_path(path),
            digest: in_force::digest_of(path),
            settings: Arc::new(settings),
            state_is_named: options.state_directory.is_some(),
            state: options
                .state_directory
                .clone()
                .unwrap_or_else(|| PathBuf::from(STATE_DIRECTORY)),
            runs: UnixStream::connect(&options.control.socket).is_ok(),
            control: options.control.socket.clone(),
            patience: options.patience(),
        }
    }

    /// In a folder where nothing is.
    #[cfg(test)]
    fn of_test(folder: &Path) -> Here {
        let settings = crate::config::parse("version = 1\n", "test").expect("it is valid");
        Here {
            settings: Arc::new(settings),
            file: folder.join("config.toml").display().to_string(),
            digest: String::new(),
            state: folder.join("state"),
            state_is_named: true,
            control: folder.join("run/control.sock"),
            runs: false,
            patience: Duration::from_secs(1),
        }
    }
}

/// Looks at everything and says what was found.
pub(super) fn run(path: &Path, options: &DoctorOptions) -> Result<(), CliFailure> {
    let mut report = as_user(&options.look.user);
    if report.verdict() < Grade::Wrong {
        let settings = load(path)?;
        file(path, &settings, &mut report);
        let here = Here::of(path, settings, &options.look);
        runtime()?.block_on(look(&here, &mut report));
    }
    let text = || report.text(!options.quiet);
    options.output.show_graded(&report.document(), text)?;
    ended(report.verdict())
}

/// How the program ends after this verdict.
pub(super) fn ended(verdict: Grade) -> Result<(), CliFailure> {
    match verdict {
        Grade::Fine | Grade::Warning => Ok(()),
        Grade::Unseen => Err(CliFailure::Code(ExitCode::from(EXIT_UNSEEN))),
        Grade::Wrong => Err(CliFailure::Said),
    }
}

/// Goes on with the rights of this user, if this is root. Before anything is read: the file itself may be one that the
/// daemon cannot read.
pub(super) fn as_user(name: &str) -> DoctorReport {
    let mut findings = Findings::default();
    user::go_on_as(name, &mut findings);
    let mut report = DoctorReport::default();
    report.add("user", findings);
    report
}

/// What the file says of itself.
fn file(path: &Path, settings: &Settings, report: &mut DoctorReport) {
    let mut findings = Findings::default();
    let shown = path.display();
    if settings.configured {
        findings.fine(format!("file: {shown} is valid"));
    } else {
        let lacks = if settings.regions.is_empty() {
            "[proxmox]"
        } else {
            "[pool.NAME]"
        };
        findings
            .warning(format!(
                "file: {shown} has no {lacks}: the service runs and does nothing"
            ))
            .mend(format!(
                "{} proposes it; or write it into {shown}: README.md has an example",
                config::command_for("pve-autoscaler setup", &shown.to_string())
            ));
    }
    for warning in &settings.warnings {
        findings.warning(format!("file: {warning}"));
    }
    report.add("file", findings);
}

/// Looks at everything that the settings name, and at the daemon's own directory. First the cluster and the regions are
/// reached, side by side; then every probe looks at what was reached.
pub(super) async fn look(here: &Here, report: &mut DoctorReport) {
    daemon::settled(here).await;
    let mut found = Findings::default();
    let here = &daemon::with_its_directory(here, &mut found).await;
    report.add("daemon", found);
    let regions = here.settings.regions.keys();
    let regions = join_all(regions.map(|name| region::reach(here, name)));
    let local = look_at("this host", &probes::HERE, here, here.patience);
    let (local, (found, cluster), regions) = tokio::join!(local, kubernetes::reach(here), regions);
    report.looked.extend(local);
    report.add("kubernetes", found);
    let id = cluster.as_ref().and_then(|cluster| cluster.id.clone());
    let addresses = match &cluster {
        Some(cluster) => addresses::of_cluster(cluster).await,
        None => addresses::ClusterAddresses::default(),
    };
    let of_cluster = of_cluster(here, cluster.as_ref());
    let of_regions = regions.into_iter().map(|(found, region)| {
        let (id, addresses) = (id.clone(), addresses.clone());
        let kubernetes = cluster.as_ref().map(|cluster| cluster.client.clone());
        async move {
            let looked = match region {
                Some((mut region, seen)) => {
                    (region.cluster, region.addresses) = (id, addresses);
                    region.kubernetes = kubernetes;
                    of_region(here, region, seen).await
                }
                None => Vec::new(),
            };
            (found, looked)
        }
    });
    let (of_cluster, of_regions) = tokio::join!(of_cluster, join_all(of_regions));
    report.looked.extend(of_cluster);
    for (found, looked) in of_regions {
        report.add("region", found);
        report.looked.extend(looked);
    }
}

async fn of_cluster(here: &Here, cluster: Option<&ReachedCluster>) -> Vec<probe::ProbeFindings> {
    match cluster {
        Some(cluster) => look_at("kubernetes", &probes::CLUSTER, cluster, here.patience).await,
        None => Vec::new(),
    }
}

async fn of_region(
    here: &Here,
    region: ReachedRegion,
    seen: Option<RegionSeen>,
) -> Vec<probe::ProbeFindings> {
    let about = format!("region {}", region.name);
    let mut looked = look_at(&about, &probes::REGION, &region, here.patience).await;
    if let Some(seen) = seen {
        let seen = SeenRegion { region, seen };
        looked.extend(look_at(&about, &probes::SEEN, &seen, here.patience).await);
    }
    looked
}

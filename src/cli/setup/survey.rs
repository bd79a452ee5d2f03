//! What there is: PVE's hosts, storages, bridges, templates and machines; the configuration file. [`cluster`] looks at Kubernetes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use futures::stream::{self, StreamExt as _};

use super::answers::{ProxmoxAnswers, SetupAnswers};
use super::choose::TOKEN;
use super::cluster::{self, KubeFound};
use super::former::FormerMachines;
use super::policy::PolicyFound;
use super::range;
use crate::broker::direct::Direct;
use crate::cli::args::CONTROL_SOCKET;
use crate::cli::channels;
use crate::config::file::ChannelKind;
use crate::config::settings::{Channel, RegionSettings};
use crate::config::{self, Settings};
use crate::controller::control;
use crate::controller::status::DaemonStatus;
use crate::controller::template_mark::read_trial;
use crate::model::mark::Ownership;
use crate::model::region::GuestKind;
use crate::pve::transport::Transport;
use crate::pve::transport::https::TokenOptions;
use crate::pve::transport::token_file::TokenFile;
use crate::pve::{Bridge, Client, ClusterResources, ClusterStatus, PveVersion, VmConfig};

/// Calls to PVE at the same time.
const AT_A_TIME: usize = 4;
/// Hosts whose bridges are read, and guests whose addresses are.
const MAX_READ: usize = 500;
/// Where a PVE host has the certificates of its own.
const PVE_HERE: &str = "/etc/pve/local";

/// All that was found.
#[derive(Clone, Debug, Default)]
pub(super) struct Survey {
    pub(super) pve: PveFound,
    /// `None` where no kubeconfig leads to a cluster.
    pub(super) kube: Option<KubeFound>,
    /// The API server does not answer, so that nothing of the cluster is known: what was tried, and what to do.
    pub(super) silent: Option<String>,
    /// The machines that are there and ours.
    pub(super) ours: FormerMachines,
    /// Why the API server's address in the administrator's kubeconfig is none for the daemon.
    pub(super) server_unfit: Option<String>,
    /// The daemon's kubeconfig: what is wrong with it; `None`: it works and may do all that is needed.
    pub(super) kubeconfig_lacks: Option<String>,
    /// Whether the admission policy holds the daemon.
    pub(super) policy: PolicyFound,
    /// The digest of the file that the running daemon has read; `None` where none answers.
    pub(super) in_force: Option<String>,
}

/// What was found of PVE.
#[derive(Clone, Debug, Default)]
pub(super) struct PveFound {
    pub(super) version: PveVersion,
    pub(super) status: ClusterStatus,
    pub(super) resources: ClusterResources,
    /// The configurations of the VMs that are templates.
    pub(super) templates: BTreeMap<u32, VmConfig>,
    /// Each host's bridges.
    pub(super) bridges: BTreeMap<Arc<str>, BTreeMap<String, Bridge>>,
    /// The zones of VNets.
    pub(super) vnet_zones: BTreeMap<String, String>,
    /// Guests whose configuration could not be read: neither their addresses are known nor whose they are.
    pub(super) unread: BTreeSet<u32>,
    /// The configurations of the VMs that carry a mark, of whichever cluster it is.
    pub(super) marked: BTreeMap<u32, VmConfig>,
    /// VMs that `template try` made with this configuration, and removes: the template of each.
    pub(super) trials: BTreeMap<u32, String>,
    /// Addresses that hosts have, and configurations of guests that carry no mark.
    pub(super) addresses: BTreeSet<IpAddr>,
    /// Resource pools.
    pub(super) pools: BTreeSet<String>,
}

/// The configuration file as it is.
#[derive(Clone, Debug, Default)]
pub(super) struct Existing {
    /// The file's text; `None` where there is no file.
    pub(super) text: Option<String>,
    pub(super) settings: Settings,
    /// Its only region has no range of VMIDs; the one in the settings stands for what is to be chosen.
    pub(super) lacks_range: bool,
}

impl Existing {
    /// Reads it. A file that is wrong is not touched: its errors are for a person. One that has a region and no range for its machines is to be
    /// completed.
    pub(super) fn read(path: &Path) -> Result<Existing, config::ConfigErrors> {
        if !path.exists() {
            let settings = config::parse("version = 1\n", "nothing")?;
            return Ok(Existing {
                text: None,
                settings,
                lacks_range: false,
            });
        }
        let text = config::read(path)?;
        let name = path.display().to_string();
        let (settings, lacks_range) = match config::parse(&text, &name) {
            Ok(settings) => (settings, false),
            Err(errors) => (range::complete(&text, &name, errors)?, true),
        };
        Ok(Existing {
            text: Some(text),
            settings,
            lacks_range,
        })
    }

    /// The region that the file has, if it is one alone.
    pub(super) fn region(&self) -> Option<(&Arc<str>, &RegionSettings)> {
        let mut regions = self.settings.regions.iter();
        let one = regions.next();
        if regions.next().is_some() { None } else { one }
    }
}

/// The way to PVE of whoever runs this.
#[derive(Clone, Debug)]
pub(super) struct Admin {
    pub(super) client: Client,
    /// root on a host of the cluster.
    pub(super) here: bool,
    /// The daemon's own token, which gives nobody rights.
    pub(super) is_daemons: bool,
    /// The configuration file.
    pub(super) file: PathBuf,
}

impl Admin {
    /// Opens it: this host's own way, or an administrator's token. Nothing is sent yet.
    pub(super) fn open(answers: &SetupAnswers, existing: &Existing) -> anyhow::Result<Admin> {
        let proxmox = &answers.proxmox;
        let of_admin = proxmox.admin_token_id.as_deref();
        let of_admin = of_admin.zip(proxmox.admin_token_secret_file.as_deref());
        // It is for the first run: where its secret is gone again, the other ways are left.
        if let Some((id, secret)) = of_admin.filter(|(_, secret)| secret.exists()) {
            return Ok(Admin::remote(https(proxmox, id, secret)?));
        }
        if Path::new(PVE_HERE).exists() {
            let direct = Direct::open().map_err(|why| anyhow!("{why}"))?;
            return Ok(Admin {
                client: Client::new(Arc::new(direct)),
                here: true,
                is_daemons: false,
                file: PathBuf::new(),
            });
        }
        let of_daemon = proxmox.token_secret_file.as_deref();
        let of_daemon = of_daemon.filter(|secret| secret.exists());
        if let Some((id, secret)) = proxmox.token_id.as_deref().zip(of_daemon) {
            return Ok(Admin::daemons(https(proxmox, id, secret)?));
        }
        if let Some((_, region)) = existing.region()
            && matches!(region.channel, Channel::Token { .. })
        {
            let socket = &existing.settings.broker.socket;
            return Ok(Admin::daemons(channels::open(region, socket)?));
        }
        // The configuration is gone, and its token may not be.
        if let Some(secret) = of_daemon.filter(|_| proxmox.endpoints.is_some()) {
            return Ok(Admin::daemons(https(proxmox, TOKEN, secret)?));
        }
        if let Some((id, secret)) = of_admin {
            return Ok(Admin::remote(https(proxmox, id, secret)?));
        }
        bail!(
            "this is no PVE host (there is no {PVE_HERE}). Run it as root on a host of the PVE cluster; or answer by --answers how PVE is \
             reached: proxmox.endpoints, admin_token_id, admin_token_secret_file, and fingerprint or ca_file"
        )
    }

    /// A command as it is typed for the configuration file.
    pub(super) fn command(&self, command: &str) -> String {
        config::command_for(command, &self.file.display().to_string())
    }

    fn daemons(transport: Arc<dyn Transport>) -> Admin {
        Admin {
            is_daemons: true,
            ..Admin::remote(transport)
        }
    }

    fn remote(transport: Arc<dyn Transport>) -> Admin {
        Admin {
            client: Client::new(transport),
            here: false,
            is_daemons: false,
            file: PathBuf::new(),
        }
    }
}

/// HTTPS with a token, to the endpoints that were answered.
fn https(proxmox: &ProxmoxAnswers, id: &str, secret: &Path) -> anyhow::Result<Arc<dyn Transport>> {
    let endpoints = proxmox.endpoints.clone().unwrap_or_default();
    if endpoints.is_empty() {
        bail!("a token is answered and proxmox.endpoints is not");
    }
    let options = TokenOptions {
        endpoints,
        token_id: id.to_owned(),
        // It is read from the file.
        secret: String::new().into(),
        ca_file: proxmox.ca_file.clone(),
        fingerprint: proxmox.fingerprint.clone(),
    };
    let token = TokenFile::open(options, secret).with_context(|| format!("the token {id}"))?;
    Ok(Arc::new(token))
}

/// Looks at everything. PVE must answer; a cluster that does not is told by what is missing.
pub(super) async fn look(
    admin: &Admin,
    answers: &SetupAnswers,
    existing: &Existing,
) -> anyhow::Result<Survey> {
    let name = &existing.settings.kubernetes.name;
    let pve = pve(&admin.client, name).await.context("PVE")?;
    let found = cluster::look(answers, existing).await?;
    let of_cluster = found.kube.as_ref().map(|kube| (&*kube.uid, &**name));
    Ok(Survey {
        ours: FormerMachines::among(&pve.marked, of_cluster),
        pve,
        kube: found.kube,
        silent: found.silent,
        server_unfit: cluster::server_unfit(answers, existing),
        kubeconfig_lacks: found.lacks,
        policy: found.policy,
        in_force: in_force().await,
    })
}

/// Which file the running daemon has read.
async fn in_force() -> Option<String> {
    let answer = control::ask(Path::new(CONTROL_SOCKET), &control::ControlCommand::Status).await;
    let status: DaemonStatus = serde_json::from_value(answer.ok()?).ok()?;
    Some(status.configuration)
}

/// What there is of PVE; `name` is the cluster's in the file.
async fn pve(client: &Client, name: &str) -> anyhow::Result<PveFound> {
    let (version, status, resources) = tokio::try_join!(
        client.version(),
        client.cluster_status(),
        client.resources()
    )?;
    let mut resources = resources;
    client.tell_kept_space(&mut resources).await;
    let pools = client.pools().await?;
    // PVE without the SDN has no such call.
    let vnet_zones = client.vnet_zones().await.unwrap_or_default();
    let mut found = PveFound {
        version,
        addresses: status.addresses().collect(),
        status,
        pools,
        vnet_zones,
        unread: resources.guests.keys().copied().skip(MAX_READ).collect(),
        ..PveFound::default()
    };
    read_guests(client, &resources, name, &mut found).await;
    let online = resources.hosts.iter().filter(|(_, host)| host.online);
    let asked = online
        .take(MAX_READ)
        .map(|(host, _)| async move { (host.clone(), client.bridges(host).await) });
    let mut asked = stream::iter(asked).buffered(AT_A_TIME);
    while let Some((host, bridges)) = asked.next().await {
        let bridges = bridges?;
        found
            .addresses
            .extend(bridges.values().flat_map(Bridge::addresses));
        found.bridges.insert(host, bridges);
    }
    drop(asked);
    found.resources = resources;
    Ok(found)
}

/// Reads the guests' configurations: of templates and of VMs with a mark all, of others the addresses, and which are of trials of the
/// cluster that has this name in the file.
async fn read_guests(
    client: &Client,
    resources: &ClusterResources,
    name: &str,
    found: &mut PveFound,
) {
    let guests: Vec<_> = resources.guests.iter().take(MAX_READ).collect();
    let asked = guests.iter().map(|(vmid, guest)| async move {
        if guest.kind == GuestKind::Qemu {
            let config = client.vm_config(&guest.host, **vmid).await;
            (
                **vmid,
                config.map(|config| (config.promise(), Some(config))),
            )
        } else {
            let promise = client.guest_promise(&guest.host, guest.kind, **vmid).await;
            (**vmid, promise.map(|promise| (promise, None)))
        }
    });
    let mut asked = stream::iter(asked).buffered(AT_A_TIME);
    while let Some((vmid, read)) = asked.next().await {
        // A guest that is just being removed, or whose host is off, says nothing; that is told where its address would count.
        let Ok((promise, config)) = read else {
            found.unread.insert(vmid);
            continue;
        };
        let template = resources
            .guests
            .get(&vmid)
            .is_some_and(|guest| guest.template);
        let marked = |config: &VmConfig| matches!(config.ownership(), Ownership::Marked(_));
        match config {
            // Whose its addresses are is known once the cluster is.
            Some(config) if !template && marked(&config) => {
                found.marked.insert(vmid, config);
                continue;
            }
            Some(config) if template => {
                found.templates.insert(vmid, config);
            }
            Some(config) => {
                let trial = read_trial(vmid, &config, name);
                found.trials.extend(trial.map(|mark| (vmid, mark.template)));
            }
            None => {}
        }
        found.addresses.extend(promise.addresses);
    }
}

/// The channel that the daemon gets.
pub(super) fn channel(answers: &SetupAnswers, existing: &Existing, here: bool) -> ChannelKind {
    let of_file = existing.region().map(|(_, region)| match region.channel {
        Channel::Local => ChannelKind::Local,
        Channel::Token { .. } => ChannelKind::Token,
    });
    let fitting = if here {
        ChannelKind::Local
    } else {
        ChannelKind::Token
    };
    answers.proxmox.channel.or(of_file).unwrap_or(fitting)
}

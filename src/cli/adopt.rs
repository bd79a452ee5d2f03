//! `adopt`: this host's broker and state directory come to serve another Kubernetes cluster.
//!
//! A rebuilt cluster has another id. Whatever carries the id of the one before is not ours any more:
//! the daemon leaves it alone, and the broker refuses every change for the new one until a person
//! has looked at what is left and says so here. No VM is adopted: what runs in it belonged to a
//! cluster that is no more, or that lives on elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};

use super::args::{AdoptOptions, BROKER_DIRECTORY, STATE_DIRECTORY};
use super::{CliFailure, channels, load, output, runtime, write};
use crate::broker::binding::{Binding, BindingRecord};
use crate::clock::Clock;
use crate::config::Settings;
use crate::controller::journal::{Former, Journal};
use crate::kubernetes::{Connector, KubeClient, Unobserved};
use crate::model::mark::Ownership;
use crate::model::region::GuestKind;
use crate::model::words;
use crate::pve;

/// A VM that carries the mark of a former cluster.
#[derive(Debug)]
struct FormerVm {
    region: Arc<str>,
    vmid: u32,
    name: String,
    host: Arc<str>,
    running: bool,
    cluster: String,
}

/// All that is left of other clusters on this host, and in the regions.
#[derive(Debug)]
struct Leftovers {
    /// The directories that are not there.
    missing: Vec<String>,
    /// The id of the cluster that the kubeconfig leads to.
    ours: String,
    /// The one that the broker is bound to.
    bound: Option<String>,
    journal: Former,
    records: Vec<BindingRecord>,
    vms: Vec<FormerVm>,
}

/// Shows what is left of former clusters, asks, and binds.
pub(super) fn run(config: &Path, options: &AdoptOptions) -> Result<(), CliFailure> {
    let settings = load(config)?;
    let found = runtime()?.block_on(look(&settings, options))?;
    say(&found.text())?;
    if found.agrees() {
        return say("nothing is to be adopted: broker and journal serve this cluster\n");
    }
    if !options.yes && !confirmed(&found)? {
        return Err(anyhow::anyhow!("nothing was changed: the answer was not yes").into());
    }
    let aside = Journal::set_aside(&options.state_directory, &found.journal)?;
    if !aside.is_empty() {
        say(&format!(
            "the journal of {} lies in {} now\n",
            words::count(found.journal.machines(), "machine"),
            aside
        ))?;
    }
    let binding = Binding::at(&options.broker_directory);
    if found.bound.is_some() || !found.records.is_empty() {
        binding
            .bind(&found.ours, &found.records)
            .map_err(|why| anyhow::anyhow!("{why}; run it as root"))?;
        say(&format!("the broker serves {} now\n", found.ours))?;
    }
    say(
        "next: systemctl reload-or-restart pve-autoscaler; then `pve-autoscaler doctor`\n\
         a pool that backed off over this, as `pve-autoscaler status` says, begins again by `pve-autoscaler retry POOL`\n",
    )
}

async fn look(settings: &Settings, options: &AdoptOptions) -> anyhow::Result<Leftovers> {
    if !settings.configured {
        bail!(
            "nothing is configured: the cluster to adopt is the one that the configuration names"
        );
    }
    let missing = missing(options)?;
    let connector = Connector::File {
        path: settings.kubernetes.kubeconfig.clone(),
        context: settings.kubernetes.context.clone(),
    };
    let client = KubeClient::new(connector, Clock::System, Arc::new(Unobserved)).await;
    let uid = client
        .kube_system_uid()
        .await
        .context("cannot ask which cluster this is")?;
    let ours = format!("{uid}/{}", settings.kubernetes.name);
    let binding = Binding::at(&options.broker_directory);
    let root = |why: String| anyhow::anyhow!("{why}; run it as root");
    let bound = binding.cluster().map_err(root)?;
    let records = binding.of_others(&ours).map_err(root)?;
    let journal = Journal::former(&options.state_directory, &ours)?;
    let former: BTreeSet<&str> = bound
        .iter()
        .map(String::as_str)
        .chain(journal.clusters())
        .filter(|cluster| *cluster != ours)
        .collect();
    let mut vms = Vec::new();
    for (name, region) in &settings.regions {
        let transport = channels::open(region, &settings.broker.socket)?;
        let client = pve::Client::new(transport);
        vms.extend(
            left(&client, name, settings, &ours, &former)
                .await
                .with_context(|| {
                    format!("region {name}: cannot look for VMs of former clusters")
                })?,
        );
    }
    Ok(Leftovers {
        missing,
        ours,
        bound,
        journal,
        records,
        vms,
    })
}

/// The directories that are not there, in words: of a host without a broker that is as it should be.
///
/// # Errors
/// None is there, or one that a person named.
fn missing(options: &AdoptOptions) -> anyhow::Result<Vec<String>> {
    let both = [
        ("state", &options.state_directory, STATE_DIRECTORY),
        ("broker", &options.broker_directory, BROKER_DIRECTORY),
    ];
    let away = both.iter().filter(|(_, path, _)| !path.is_dir());
    let away: Vec<_> = away.collect();
    if let Some((key, path, _)) = away
        .iter()
        .find(|(_, path, usual)| path.as_path() != Path::new(usual) || away.len() == both.len())
    {
        bail!(
            "--{key}-directory {}: there is no such directory; run it on the daemon's host, or name the one that is there",
            path.display()
        );
    }
    let told = away.iter();
    let told = told.map(|(key, path, _)| format!("there is no {key} directory {}", path.display()));
    Ok(told.collect())
}

/// The VMs in a region's range whose mark names one of these clusters, or another of our name.
async fn left(
    client: &pve::Client,
    name: &Arc<str>,
    settings: &Settings,
    ours: &str,
    former: &BTreeSet<&str>,
) -> anyhow::Result<Vec<FormerVm>> {
    let Some(range) = settings.policy.regions.get(name) else {
        return Ok(Vec::new());
    };
    let resources = client.resources().await?;
    let guests = resources.guests.range(range.vmid_first..=range.vmid_last);
    let mut found = Vec::new();
    for (vmid, guest) in guests.filter(|(_, guest)| guest.kind == GuestKind::Qemu) {
        let Ownership::Marked(mark) = client.vm_config(&guest.host, *vmid).await?.ownership()
        else {
            continue;
        };
        let of_our_name = mark.cluster.split_once('/').map(|(_, name)| name)
            == Some(settings.kubernetes.name.as_str());
        if mark.cluster != ours && (of_our_name || former.contains(&*mark.cluster)) {
            found.push(FormerVm {
                region: name.clone(),
                vmid: *vmid,
                name: guest.name.to_string(),
                host: guest.host.clone(),
                running: guest.running(),
                cluster: mark.cluster.clone(),
            });
        }
    }
    Ok(found)
}

impl Leftovers {
    /// Nothing stands in the way of this cluster.
    fn agrees(&self) -> bool {
        self.journal.machines() == 0
            && self.records.is_empty()
            && self.bound.as_ref().is_none_or(|bound| *bound == self.ours)
    }

    fn text(&self) -> String {
        let mut text = format!("this cluster is {}\n", self.ours);
        for missing in &self.missing {
            let _ = writeln!(text, "{missing}: nothing was looked at there");
        }
        match &self.bound {
            Some(bound) if *bound == self.ours => {
                let _ = writeln!(text, "the broker of this host is bound to it");
            }
            Some(bound) => {
                let _ = writeln!(text, "the broker of this host is bound to {bound}");
            }
            None => {
                let _ = writeln!(text, "the broker of this host is not bound yet");
            }
        }
        for (cluster, machines) in self.journal.by_cluster() {
            let _ = writeln!(
                text,
                "the journal has {} of {cluster}: {}",
                words::count(machines.len(), "machine"),
                machines.join(", ")
            );
        }
        for record in &self.records {
            let _ = writeln!(
                text,
                "the broker has a {} of VM {} ({}) of {} on record",
                record.what, record.vmid, record.machine, record.cluster
            );
        }
        text + &self.vms_text()
    }

    fn vms_text(&self) -> String {
        let mut by_cluster: BTreeMap<&str, Vec<&FormerVm>> = BTreeMap::new();
        for vm in &self.vms {
            by_cluster.entry(&vm.cluster).or_default().push(vm);
        }
        let mut text = String::new();
        for (cluster, vms) in by_cluster {
            let _ = writeln!(
                text,
                "{} of {cluster}; none is adopted, changed or removed:",
                words::count(vms.len(), "VM")
            );
            for vm in vms {
                let state = if vm.running { "running" } else { "stopped" };
                let _ = writeln!(
                    text,
                    "  {} {} on {} (region {}), {state}; if nobody needs it: qm stop {0} && qm destroy {0} --purge",
                    vm.vmid, vm.name, vm.host, vm.region
                );
            }
        }
        text
    }
}

/// Sentences to standard output, folded to a terminal.
fn say(text: &str) -> Result<(), CliFailure> {
    write(&output::sentences(text))
}

/// Asks the person at the terminal.
fn confirmed(found: &Leftovers) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!("nobody can be asked here: look at the list, then say --yes; nothing was changed");
    }
    let question = format!(
        "Serve {} from now on, and set aside what is on record of others?\n",
        found.ours
    );
    let mut shown = std::io::stdout();
    write!(shown, "{}Type yes: ", output::sentences(&question))?;
    shown.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(answer.trim() == "yes")
}

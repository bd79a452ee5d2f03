//! The command line. The comments are the help texts and the man pages.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

use super::complete;
use super::control::{EvacuateOptions, NotifyTestOptions, PauseOptions, RetryOptions};
use super::examples;
use super::host_pinning::HostPinningOptions;
use super::mail_relay::MailRelayOptions;
use super::output::OutputFormat;
use super::place::ForceOptions;
use super::replay::options::ReplayOptions;
use super::template::options::TemplateCommand;
use super::watch::WatchOptions;
use crate::config::DEFAULT_PATH;
use crate::model::cluster::ObjectKey;
use crate::simulator_args::{DemoOptions, SimCommand};
use crate::typed_number::whole;

/// Where the daemon listens for `status`, `pause`, `resume`, `retry`, `evacuate`, `notify-test`, `snapshot`, `plan` and `explain`.
pub(super) const CONTROL_SOCKET: &str = "/run/pve-autoscaler/control.sock";

/// The daemon's own directory.
pub(super) const STATE_DIRECTORY: &str = "/var/lib/pve-autoscaler";

/// The record of decisions in it.
pub(super) const RECORD_DIRECTORY: &str = "/var/lib/pve-autoscaler/record";

/// The broker's own directory.
pub(super) const BROKER_DIRECTORY: &str = "/var/lib/pve-autoscaler-broker";

/// Node autoscaler for Kubernetes on Proxmox VE.
///
/// Pods that no node can run get a node: a VM cloned from a template, joined with kubeadm. A node
/// that is not needed any more is drained, deleted and its VM destroyed.
#[derive(Debug, Parser)]
#[command(name = "pve-autoscaler", version, max_term_width = 100)]
#[command(after_help = examples::TOP)]
pub struct Cli {
    /// The configuration file.
    #[arg(long, global = true, value_name = "FILE", default_value = DEFAULT_PATH)]
    pub(super) config: PathBuf,
    #[command(subcommand)]
    pub(super) command: CliCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum CliCommand {
    /// The daemon, as the service pve-autoscaler.service runs it.
    #[command(after_help = examples::RUN)]
    Run(RunOptions),
    /// The broker: the small root process through which the daemon reaches PVE on this host.
    ///
    /// It listens on the socket that systemd hands it, or on [broker] socket, and lets pass only what
    /// the configuration file allows.
    #[command(after_help = examples::BROKER)]
    Broker,
    /// Set everything up: look at PVE and Kubernetes, propose a configuration with its reasons, and after a yes make the daemon's
    /// access to both, a template and the file.
    ///
    /// Run it as root on a PVE host, or anywhere with an administrator's API token in --answers. It shows everything before it
    /// does any of it. Run again it proposes what is still missing, and what is answered otherwise than the file has it. Whatever
    /// is not answered is chosen.
    #[command(after_help = examples::SETUP)]
    Setup(SetupOptions),
    /// Check the configuration file and say everything that is wrong with it.
    #[command(after_help = examples::CHECK)]
    Check(CheckOptions),
    /// Look at all that the daemon needs, with the daemon's rights, and say what to type to mend what is wrong.
    ///
    /// Run it as root: it goes on as the daemon's user before it reads anything. Each line is ok, a warning, wrong, or unseen where nothing
    /// could be looked at. Everything is looked at side by side, and what hangs holds nothing else up. It changes nothing, and so it boots
    /// no machine: `pve-autoscaler template try NAME` clones and starts one, asks its guest what a join would find, and destroys it.
    #[command(after_help = examples::DOCTOR)]
    Doctor(DoctorOptions),
    /// Show what would be done now, and why: for every pod, node and pool. Never acts.
    #[command(after_help = examples::PLAN)]
    Plan(PlanOptions),
    /// Explain one pod or one node in full: what every node and every possible new machine would be to
    /// the pod, with numbers; what would become of each pod of the node. Never acts.
    #[command(subcommand, after_help = examples::EXPLAIN)]
    Explain(ExplainCommand),
    /// Save what the daemon sees, without secrets, for `plan --snapshot` and for bug reports.
    #[command(after_help = examples::SNAPSHOT)]
    Snapshot(SnapshotOptions),
    /// What was decided and done, and why: from the record in the state directory, with the daemon running or not.
    ///
    /// One line a decision that did something, and one for how it ended; one where something goes on hold or nothing is recorded. Root and the daemon's user may read the record.
    #[command(after_help = "Examples:\n  pve-autoscaler history --since 24h\n  \
        pve-autoscaler history --since 'yesterday 16:00' --until 'yesterday 17:00'\n  \
        pve-autoscaler history --pod shop/web-7d4b9c6f5-x2x9k --detail")]
    History(HistoryOptions),
    /// Decide anew what was recorded, with this version of the program or another configuration, and show every difference.
    ///
    /// Without --config each decision is made with the configuration that was in force then: a test of this version
    /// before it is installed. With it, what would have been done under that file; at the end what that comes to, in machines, price and
    /// removals. Never acts. Exit codes: 0 no difference,
    /// 1 differences or a failure.
    #[command(after_help = "Examples:\n  pve-autoscaler replay\n  \
        pve-autoscaler replay --config new.toml --since 24h\n  \
        pve-autoscaler replay --record /tmp/support/record")]
    Replay(ReplayOptions),
    /// Write all that a bug report needs into one archive, known secrets blotted out: configuration, status, plan, record, log, versions.
    ///
    /// Names of pods, nodes and hosts are in it, hashed with --hash-names. What cannot be had is left out. Run it as root on the daemon's host.
    #[command(after_help = examples::SUPPORT_BUNDLE)]
    SupportBundle(SupportBundleOptions),
    /// Show how things stand: pools, machines, what is on hold and why.
    #[command(after_help = examples::STATUS)]
    Status(StatusOptions),
    /// Stop making and removing machines until `resume`. What has begun is finished.
    #[command(after_help = examples::PAUSE)]
    Pause(PauseOptions),
    /// End a pause.
    #[command(after_help = examples::RESUME)]
    Resume(ControlOptions),
    /// End a pool's back-off, once you have mended what made its machines fail.
    ///
    /// A pool whose machines failed waits, and so does each host on which a clone or a start of it failed: five minutes
    /// first, then twice as long each time. This ends all waits of the pool at once, and says which. What fails after it
    /// counts as the first failure.
    #[command(after_help = examples::RETRY)]
    Retry(RetryOptions),
    /// Empty a host: its nodes are drained and removed, and no machine is made there until `--end`.
    ///
    /// For a host that is to be rebooted, repaired or given back. Pods that have room on nodes of other hosts go there; for
    /// others machines are made elsewhere first, and a node goes once all of its pods have a place on nodes that work. Disruption
    /// budgets, annotations and `max_drain_parallelism` count; what keeps a node is told by `status` and `explain node`.
    #[command(after_help = examples::EVACUATE)]
    Evacuate(EvacuateOptions),
    /// Send a test to those whom the configuration notifies, and say what came back.
    ///
    /// The daemon sends it, as it sends all others: with its rights, its view of the network and the configuration that is
    /// in force. Quiet hours and severities do not count. It ends with 1 when one could not be sent.
    #[command(after_help = examples::NOTIFY_TEST)]
    NotifyTest(NotifyTestOptions),
    /// Make the daemon's kubeconfig with an admin's: apply the RBAC manifest and (Kubernetes 1.30 or newer) the admission
    /// policy, have the cluster sign a client certificate for a year, write it for root and the daemon's group.
    #[command(after_help = examples::KUBECONFIG)]
    Kubeconfig(KubeconfigOptions),
    /// Set the password with which a person logs in to the page, and Prometheus to `/metrics`.
    ///
    /// It is asked for at the terminal, or read from the first line of standard input. The file gets its bcrypt hash alone.
    /// The daemon takes the change up within seconds; a new password ends the person's sessions.
    #[command(after_help = examples::WEB_PASSWORD)]
    WebPassword(WebPasswordOptions),
    /// Let this host serve another Kubernetes cluster than before, one that was built anew for instance.
    ///
    /// Run it as root. It shows what is left of the clusters before: which one the broker is bound to,
    /// machines in the journal, clones and removals on record, VMs with their mark. Then it asks, binds
    /// the broker to the cluster of the kubeconfig, and sets journal and records of others aside. VMs of
    /// another cluster are never adopted, changed or removed.
    #[command(after_help = examples::ADOPT)]
    Adopt(AdoptOptions),
    /// Print what the CPUs of this host are to each other, as the table that pools with cpu_pinning need.
    ///
    /// Run it on each host that such machines shall be on, and paste what it prints into the configuration: PVE's API does not
    /// tell it. It asks the kernel, reserves the first core for PVE itself, and changes nothing.
    #[command(after_help = examples::HOST_TOPOLOGY)]
    HostTopology(HostTopologyOptions),
    /// Put each vCPU of machines with CPUs of their own on one of them, on this host; for pve-autoscaler-pinning.service.
    ///
    /// Machines are found by their mark and `affinity` in /etc/pve; no other VM is touched. It needs neither the daemon nor its
    /// configuration file: enable the service on each host where it is wanted.
    #[command(after_help = examples::HOST_PINNING)]
    HostPinning(HostPinningOptions),
    /// Build templates as the configuration says, list them, remove those that nothing needs.
    #[command(subcommand, after_help = examples::TEMPLATE)]
    Template(TemplateCommand),
    /// Make a configuration of another autoscaler's settings, with what each of them became.
    #[command(subcommand, after_help = examples::MIGRATE)]
    Migrate(MigrateCommand),
    /// Print the JSON schema of the configuration file.
    #[command(after_help = examples::SCHEMA)]
    Schema,
    // Carried out by the simulator's program.
    #[command(flatten)]
    Simulator(SimulatorCommand),
    /// Name the machines that stay when the package is removed; for the package's own script.
    #[command(hide = true)]
    Staying(StayingOptions),
    /// Hand one mail from the daemon to the host's sendmail; for the service pve-autoscaler-mail@.
    #[command(hide = true)]
    MailRelay(MailRelayOptions),
    /// Write man pages, completions, schema and reference manual into a directory.
    #[command(hide = true)]
    Generate(GenerateOptions),
}

/// The commands that the simulator's program carries out.
#[derive(Debug, Subcommand)]
pub enum SimulatorCommand {
    /// Run the real daemon on a simulated cluster, with a timeline in the terminal: a workload comes and goes, and after each round anew.
    #[command(after_help = examples::DEMO)]
    Demo(DemoOptions),
    /// Run conformance cases: small worlds in files, and what must be decided in each.
    ///
    /// Every *.yaml, *.yml and *.toml below the directory is read; docs/conformance.md says how cases are
    /// written. One line a case, `ok ID` or `FAIL ID: expected …, got …`, then the counts; exit code 1 when
    /// one fails.
    #[command(after_help = examples::CONFORMANCE,
              override_usage = "pve-autoscaler conformance [OPTIONS] DIRECTORY\n       pve-autoscaler conformance --fixtures")]
    Conformance(ConformanceOptions),
    /// Serve a simulated Proxmox VE or Kubernetes on the network.
    #[command(subcommand, after_help = examples::SIM)]
    Sim(SimCommand),
}

/// Whose settings to take over.
#[derive(Debug, Subcommand)]
pub(super) enum MigrateCommand {
    /// Read kproximate's settings as you have them, and print a configuration that does the same here.
    ///
    /// Above each line stands what it was, what has no equal says why, and lines with DECIDE are for a person. Read are Helm values,
    /// ConfigMaps, Secrets and Deployments as kubectl prints them, lists of environment variables, and files of lines such
    /// as kpNodeCores=2; several together, of which a later one counts before an earlier one. Secrets are never printed: it
    /// says where they go. Nothing is changed. docs/moving.md has the way from there.
    #[command(after_help = examples::MIGRATE_KPROXIMATE)]
    Kproximate(KproximateOptions),
}

#[derive(Debug, Args)]
pub(super) struct KproximateOptions {
    /// The files; `-` is standard input.
    #[arg(value_name = "FILE", required = true)]
    pub(super) files: Vec<PathBuf>,
}

/// What to explain.
#[derive(Debug, Subcommand)]
pub(super) enum ExplainCommand {
    /// Why a pod is pending, what would run it, and which of its preferences (preferred affinity, `PreferNoSchedule`,
    /// `ScheduleAnyway`) the place that the plan has for it meets, and why not the others.
    #[command(after_help = examples::EXPLAIN_POD)]
    Pod {
        /// The pod: NAMESPACE/NAME, or NAME for the namespace default.
        #[arg(value_parser = super::explain::key, add = complete::pods())]
        pod: ObjectKey,
        #[command(flatten)]
        options: ExplainOptions,
    },
    /// Why a node stays or goes, and what becomes of its pods.
    #[command(visible_alias = "machine", after_help = examples::EXPLAIN_NODE)]
    Node {
        /// The node, or a machine on its way up.
        #[arg(value_parser = super::explain::name, add = complete::nodes())]
        node: String,
        #[command(flatten)]
        options: ExplainOptions,
    },
}

#[derive(Debug, Args)]
pub(super) struct ExplainOptions {
    #[command(flatten)]
    pub(super) output: OutputOptions,
    /// Explain on a saved view instead of asking the daemon; timers begin with it, as for `plan`.
    #[arg(long, value_name = "FILE", conflicts_with = "watch")]
    pub(super) snapshot: Option<PathBuf>,
    #[command(flatten)]
    pub(super) watch: WatchOptions,
}

#[derive(Debug, Args)]
pub(super) struct RunOptions {
    /// Where the daemon keeps its memory and journal.
    #[arg(long, value_name = "DIRECTORY", default_value = STATE_DIRECTORY)]
    pub(super) state_directory: PathBuf,
    /// Where `status`, `plan`, `pause` … reach it.
    #[arg(long, value_name = "PATH", default_value = CONTROL_SOCKET)]
    pub(super) control_socket: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct PlanOptions {
    #[command(flatten)]
    pub(super) output: OutputOptions,
    /// Plan on a saved view instead of asking the daemon. Timers begin with the view: a batch of
    /// pods counts as closed, nothing counts as unneeded for long enough.
    #[arg(long, value_name = "FILE", conflicts_with = "watch")]
    pub(super) snapshot: Option<PathBuf>,
    #[command(flatten)]
    pub(super) watch: WatchOptions,
}

#[derive(Debug, Args)]
pub(super) struct SnapshotOptions {
    #[command(flatten)]
    pub(super) control: ControlOptions,
    /// Where to write it. Default: standard output.
    #[arg(long, value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
    #[command(flatten)]
    pub(super) force: ForceOptions,
}

/// Which part of the record.
#[derive(Debug, Args)]
pub(super) struct PartOptions {
    /// Not before this: a time by this host's clock such as '2026-11-23 16:00', 16:00 (today), 'yesterday 16:00' or yesterday (its
    /// beginning), one that names its zone such as '2026-11-23T16:00:00Z', or how long ago, such as 24h or '2 days'.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(super) since: Option<String>,
    /// Not after this; written as --since is.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(super) until: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct HistoryOptions {
    #[command(flatten)]
    pub(super) part: PartOptions,
    /// What concerns this pod: NAMESPACE/NAME, or NAME for the namespace default.
    #[arg(long, value_name = "POD", value_parser = super::explain::key, add = complete::pods())]
    pub(super) pod: Option<ObjectKey>,
    /// What concerns this node.
    #[arg(long, value_name = "NAME", value_parser = super::explain::name, add = complete::nodes())]
    pub(super) node: Option<String>,
    /// What concerns this machine, and why its host was chosen.
    #[arg(long, value_name = "NAME", value_parser = super::explain::name, add = complete::machines())]
    pub(super) machine: Option<String>,
    /// What concerns machines of this pool.
    #[arg(long, value_name = "NAME", value_parser = super::explain::name, add = complete::pools())]
    pub(super) pool: Option<String>,
    /// The latest lines at most.
    #[arg(long, value_name = "NUMBER", default_value_t = 500, allow_negative_numbers = true,
          value_parser = whole::<u32>(1..=u32::MAX.into()))]
    pub(super) limit: u32,
    /// Each action of a decision on a line of its own, with all its pods and why the host of a new machine was chosen.
    #[arg(long)]
    pub(super) detail: bool,
    /// The record: its directory, or one segment of it.
    #[arg(long, value_name = "PATH", default_value = RECORD_DIRECTORY)]
    pub(super) record: PathBuf,
    /// The record of the daemon that answers there, such as a demo's, in place of --record.
    #[arg(long, value_name = "PATH", conflicts_with = "record")]
    pub(super) socket: Option<PathBuf>,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    pub(super) output: OutputFormat,
}

#[derive(Debug, Args)]
pub(super) struct SupportBundleOptions {
    #[command(flatten)]
    pub(super) control: ControlOptions,
    /// The archive. Default: pve-autoscaler-support-TIME.tar.gz in this directory.
    #[arg(long, value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
    /// The part of the record and of the log that goes into it: not before this, such as 48h or '2026-11-23 16:00'.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "48h",
        allow_hyphen_values = true
    )]
    pub(super) since: String,
    /// Leave the record of decisions out.
    #[arg(long)]
    pub(super) without_record: bool,
    /// Put a token in the place of each name and address; README.txt in the archive says what stays.
    #[arg(long)]
    pub(super) hash_names: bool,
    /// As root: let `doctor` look with this user's rights, as the daemon has them.
    #[arg(long, value_name = "USER", default_value = super::doctor::user::DAEMON)]
    pub(super) user: String,
    /// The daemon's own directory. Default: that of the daemon at --socket; /var/lib/pve-autoscaler, where the package's does not answer.
    #[arg(long, value_name = "DIRECTORY")]
    pub(super) state_directory: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct CheckOptions {
    /// The file, as --config names it.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) file: Option<PathBuf>,
    /// Also look at Kubernetes and PVE, as `pve-autoscaler doctor` does, which says more of what to type.
    #[arg(long)]
    pub(super) live: bool,
    #[command(flatten)]
    pub(super) look: LookOptions,
}

/// How `doctor` and `check --live` look.
#[derive(Debug, Args)]
pub(super) struct LookOptions {
    /// As root: look with this user's rights, as the daemon has them.
    #[arg(long, value_name = "USER", default_value = super::doctor::user::DAEMON)]
    pub(super) user: String,
    /// The daemon's own directory. Default: that of the daemon at --socket; /var/lib/pve-autoscaler where none says.
    #[arg(long, value_name = "DIRECTORY")]
    pub(super) state_directory: Option<PathBuf>,
    #[command(flatten)]
    pub(super) control: ControlOptions,
    /// How many seconds each look may take; what takes longer is said to be unseen.
    #[arg(long, value_name = "SECONDS", default_value_t = 20, allow_negative_numbers = true, value_parser = whole::<u64>(1..=600))]
    pub(super) timeout: u64,
}

impl LookOptions {
    /// How long each look may take.
    pub(super) fn patience(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

#[derive(Debug, Args)]
pub(super) struct DoctorOptions {
    #[command(flatten)]
    pub(super) look: LookOptions,
    /// Leave out what is as it should be.
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    pub(super) output: OutputFormat,
}

#[derive(Debug, Args)]
pub(super) struct SetupOptions {
    /// An administrator's kubeconfig, such as a copy of a control plane node's /etc/kubernetes/admin.conf; it is not kept.
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Answers in a file (docs/setup.md); nobody is asked then.
    #[arg(long, value_name = "FILE")]
    pub(super) answers: Option<PathBuf>,
    /// Write what was answered to a file for --answers, and what was chosen behind #.
    #[arg(long, value_name = "FILE")]
    pub(super) save_answers: Option<PathBuf>,
    #[command(flatten)]
    pub(super) force: ForceOptions,
    /// Show everything and change nothing.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Do it without asking.
    #[arg(long, conflicts_with = "dry_run")]
    pub(super) yes: bool,
}

#[derive(Debug, Args)]
pub(super) struct HostTopologyOptions {
    /// The region in the configuration; default is that of [proxmox].
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = super::host_topology::word)]
    pub(super) region: String,
    /// The host's name in PVE. Default: this host's.
    #[arg(long, value_name = "NAME", value_parser = super::host_topology::word)]
    pub(super) host: Option<String>,
    /// CPUs that no machine gets, such as 0-1,32-33. Default: those of the first core.
    #[arg(long, value_name = "CPUS")]
    pub(super) reserved: Option<String>,
    /// Where the kernel tells of its CPUs.
    #[arg(long, hide = true, value_name = "DIRECTORY", default_value = super::host_topology::SYS)]
    pub(super) sys: PathBuf,
    /// Where the kernel tells of its PCI devices.
    #[arg(long, hide = true, value_name = "DIRECTORY", default_value = super::host_topology::PCI)]
    pub(super) pci: PathBuf,
    /// PVE's mappings of PCI devices.
    #[arg(long, hide = true, value_name = "FILE", default_value = super::host_topology::MAPPINGS)]
    pub(super) mappings: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct AdoptOptions {
    /// Do not ask: what is listed was looked at.
    #[arg(long)]
    pub(super) yes: bool,
    /// The daemon's own directory.
    #[arg(long, value_name = "DIRECTORY", default_value = STATE_DIRECTORY)]
    pub(super) state_directory: PathBuf,
    /// The broker's own directory.
    #[arg(long, value_name = "DIRECTORY", default_value = BROKER_DIRECTORY)]
    pub(super) broker_directory: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct KubeconfigOptions {
    /// An admin's kubeconfig, such as a control plane node's /etc/kubernetes/admin.conf.
    #[arg(long, value_name = "FILE", required_unless_present = "print_manifest")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Context in it. Default: its current one.
    #[arg(long, value_name = "NAME")]
    pub(super) context: Option<String>,
    /// The API server's address for the daemon, such as 192.0.2.5:6443 (https:// is added). Default: the admin's.
    #[arg(long, value_name = "URL")]
    pub(super) server: Option<String>,
    /// Namespace of the Lease and the status ConfigMap, as kubernetes.namespace in the configuration.
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    pub(super) namespace: String,
    /// Where the result goes.
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/pve-autoscaler/kubeconfig"
    )]
    pub(super) output: PathBuf,
    #[command(flatten)]
    pub(super) force: ForceOptions,
    /// The group that may read it.
    #[arg(long, value_name = "GROUP", default_value = "pve-autoscaler")]
    pub(super) group: String,
    /// Leave the RBAC manifest and the admission policy to you: they must have been applied.
    #[arg(long)]
    pub(super) no_apply: bool,
    /// Print the RBAC manifest and the admission policy, and do nothing.
    #[arg(long)]
    pub(super) print_manifest: bool,
}

#[derive(Debug, Args)]
pub(super) struct WebPasswordOptions {
    /// The person, or the scraper.
    #[arg(value_name = "NAME")]
    pub(super) name: String,
    /// Take the person's line away instead.
    #[arg(long)]
    pub(super) remove: bool,
    /// The file. Default: [web] users_file, and /etc/pve-autoscaler/web-users where there is none.
    #[arg(long, value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
}

/// Which cases to run, and how to tell what came of them.
#[derive(Debug, Args)]
pub struct ConformanceOptions {
    /// Where the cases are, or one file of them.
    #[arg(value_name = "DIRECTORY", required_unless_present = "fixtures")]
    pub directory: Option<PathBuf>,
    /// Only cases whose id has this text in it.
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,
    /// Print the worlds that cases can begin with (`fixture: NAME`), and do nothing.
    #[arg(long)]
    pub fixtures: bool,
    /// How to print; as JSON one object a line, without the counts.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub output: Format,
}

/// How a command reaches the daemon.
#[derive(Debug, Args)]
pub(super) struct ControlOptions {
    /// The daemon's control socket.
    #[arg(long, value_name = "PATH", default_value = CONTROL_SOCKET)]
    pub(super) socket: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct OutputOptions {
    #[command(flatten)]
    pub(super) control: ControlOptions,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Table)]
    pub(super) output: OutputFormat,
}

#[derive(Debug, Args)]
pub(super) struct StatusOptions {
    #[command(flatten)]
    pub(super) output: OutputOptions,
    #[command(flatten)]
    pub(super) watch: WatchOptions,
}

#[derive(Debug, Args)]
pub(super) struct StayingOptions {
    #[command(flatten)]
    pub(super) control: ControlOptions,
    /// Where PVE keeps its configuration files.
    #[arg(long, value_name = "DIRECTORY", default_value = "/etc/pve")]
    pub(super) pve_directory: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct GenerateOptions {
    /// The directory; it is made.
    pub(super) directory: PathBuf,
}

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// For programs.
    Json,
}

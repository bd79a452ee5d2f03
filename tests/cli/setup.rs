//! `setup` against the simulators on the wire: from nothing to a file that `doctor` passes, and again.

use std::io::{self, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use pve_autoscaler::model::cpus::CpuSet;
use pve_autoscaler::model::mark::Mark;
use pve_autoscaler::model::network::NicAddresses;
use pve_autoscaler::model::time::Time;
use pve_autoscaler::pve::transport::https::{Https, TokenOptions};
use pve_autoscaler::pve::transport::{HttpMethod, PveRequest, Transport as _};
use pve_autoscaler::sim::pve::{AclSpec, PveSpec, TokenSpec, VNetSpec};
use serde_json::Value;

use super::live::own_name;
use super::simulators::Simulators;
use super::templates::{clone_as, make_trial, wait_until_listed};
use super::terminal::on_terminal;
use super::{program, text};

/// What an administrator's token may do.
const ADMIN: &[&str] = &[
    "Datastore.Allocate",
    "Datastore.Audit",
    "Permissions.Modify",
    "Pool.Allocate",
    "Pool.Audit",
    "Realm.AllocateUser",
    "SDN.Audit",
    "SDN.Use",
    "Sys.Audit",
    "Sys.Modify",
    "User.Modify",
    "VM.Audit",
];

/// The template of the simulator's default world whose disks lie on shared storage.
const TEMPLATE: u32 = 9_000;

/// A cluster with an administrator's token, and a folder for everything.
pub(super) struct Place {
    pub(super) simulators: Simulators,
    config: PathBuf,
    answers: PathBuf,
}

impl Place {
    fn new() -> Place {
        Place::of(PveSpec::default())
    }

    pub(super) fn of(mut spec: PveSpec) -> Place {
        spec.tokens.push(TokenSpec {
            id: "root@pam!setup".to_owned(),
            secret: "11111111-0000-4000-8000-000000000001".to_owned(),
            privsep: true,
            acl: vec![AclSpec {
                path: "/".to_owned(),
                privileges: ADMIN.iter().map(|one| (*one).to_owned()).collect(),
            }],
        });
        let simulators = Simulators::start(&spec);
        let path = |name: &str| simulators.path(name);
        std::fs::write(
            path("admin.secret"),
            "11111111-0000-4000-8000-000000000001\n",
        )
        .expect("written");
        let (config, answers) = (path("config.toml"), path("answers.toml"));
        let kubeconfig = path("daemon.conf");
        let text = format!(
            "# ours\nversion = 1\n[kubernetes]\nkubeconfig = \"{}\"\n[web]\nlisten = \"127.0.0.1:0\"\n",
            kubeconfig.display()
        );
        std::fs::write(&config, text).expect("written");
        let place = Place {
            simulators,
            config,
            answers,
        };
        place.answer("");
        place
    }

    /// Answers how both are reached, and more.
    pub(super) fn answer(&self, more: &str) {
        let path = |name: &str| self.simulators.path(name).display().to_string();
        let text = format!(
            "[kubernetes]\nkubeconfig = \"{}\"\nserver = \"{}\"\n[proxmox]\nendpoints = [\"{}\"]\nfingerprint = \"{}\"\n\
             admin_token_id = \"root@pam!setup\"\nadmin_token_secret_file = \"{}\"\ntoken_secret_file = \"{}\"\n{more}",
            path("admin.conf"),
            self.simulators.kube,
            self.simulators.pve,
            self.simulators.fingerprint,
            path("admin.secret"),
            path("daemon.secret"),
        );
        std::fs::write(&self.answers, text).expect("written");
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program();
        command
            .arg("setup")
            .args(arguments)
            .arg("--config")
            .arg(&self.config);
        command
    }

    pub(super) fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = self.command(arguments);
        let output = command.arg("--answers").arg(&self.answers).output();
        let output = output.expect("it runs");
        let said = text(&output.stdout) + &text(&output.stderr);
        (output.status.code(), said)
    }

    pub(super) fn file(&self) -> String {
        std::fs::read_to_string(&self.config).expect("it is there")
    }

    pub(super) fn doctor(&self) -> (Option<i32>, String) {
        let output = program()
            .args(["doctor", "--quiet", "--user", &own_name(), "--config"])
            .arg(&self.config)
            .arg("--state-directory")
            .arg(self.simulators.path("state"))
            .arg("--socket")
            .arg(self.simulators.path("control.sock"))
            .output()
            .expect("it runs");
        let said = text(&output.stdout) + &text(&output.stderr);
        (output.status.code(), said)
    }
}

#[test]
fn from_nothing_to_a_file_that_doctor_passes_and_again() {
    let place = Place::new();
    let before = place.file();
    let (code, said) = place.run(&["--dry-run"]);
    assert_eq!(code, Some(0), "{said}");
    for words in [
        "pve1  online  32    128Gi   vmbr0",
        "proxmox.vmids",
        "8000-8999",
        "\n  template               9000\n",
        "pveum role add NodeAutoscalerMachines --privs '",
        "pveum acl modify /pool/pve-autoscaler --users pve-autoscaler@pve --roles NodeAutoscalerMachines",
        "+ [pool.workers]",
        "Nothing was changed (--dry-run).",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    let (code, said) = place.run(&[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("then say --yes; nothing was changed"),
        "{said}"
    );
    assert_eq!(place.file(), before);
    for name in ["daemon.conf", "daemon.secret"] {
        assert!(!place.simulators.path(name).exists(), "{name}");
    }

    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    // With the file that was given.
    let doctor = format!("pve-autoscaler doctor --config {}", place.config.display());
    let done = format!("\nDone. Look at it: {doctor}; pve-autoscaler status; ");
    assert!(said.contains(&done), "{said}");
    let secret = std::fs::read_to_string(place.simulators.path("daemon.secret"));
    let secret = secret.expect("it is there");
    assert!(!said.contains(secret.trim()), "a secret is told: {said}");
    // Where the group is not there, or this is not root: once for all files.
    let told: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("chown root:pve-autoscaler"))
        .collect();
    assert!(told.len() <= 1, "{said}");
    for line in told {
        assert!(line.starts_with("note: "), "{line}");
        for (name, count) in [("daemon.conf", 1), ("daemon.secret", 1), ("config.toml", 0)] {
            let file = place.simulators.path(name).display().to_string();
            assert_eq!(line.matches(&format!(" {file}")).count(), count, "{line}");
        }
    }
    // The configuration holds no secrets, and the mail service, a user of its own, reads it.
    let written = std::fs::metadata(place.simulators.path("config.toml")).expect("it is there");
    assert_eq!(written.permissions().mode() & 0o444, 0o444, "{written:?}");
    let file = place.file();
    assert!(file.starts_with(before.trim_end()), "{file}");
    let (code, found) = place.doctor();
    assert_eq!(code, Some(0), "{found}\n{file}");

    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("Nothing is to be done"), "{said}");
    assert!(said.contains(&format!("`{doctor}` looks closer")), "{said}");
    assert_eq!(place.file(), file);

    // What is answered anew is changed, and nothing else.
    place.answer("[pool]\nmax = 9\n");
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    let changed = file.replace("max = 5 ", "max = 9 ");
    assert_ne!(changed, file);
    assert_eq!(place.file(), changed);
    // Each as it was, that of the first run among them.
    for (name, text) in [
        ("config.toml.before-setup", &before),
        ("config.toml.before-setup.2", &file),
    ] {
        let kept = std::fs::read_to_string(place.simulators.path(name));
        assert_eq!(kept.expect("it is kept"), *text, "{name}");
    }
}

/// Answers of the API server to calls of an administrator, with the path of each: deletions, and what is read.
fn as_administrator(simulators: &Simulators, deleted: &[String], read: &str) -> Option<String> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let file = kube::config::Kubeconfig::read_from(simulators.path("admin.conf"));
        let options = kube::config::KubeConfigOptions::default();
        let file = file.expect("it is there");
        let config = kube::Config::from_custom_kubeconfig(file, &options).await;
        let client = kube::Client::try_from(config.expect("a configuration"));
        let client = client.expect("a client");
        for path in deleted {
            let request = http::Request::delete(path).body(Vec::new());
            let gone = client.request_text(request.expect("a request")).await;
            gone.unwrap_or_else(|error| panic!("{path}: {error}"));
        }
        if read.is_empty() {
            return None;
        }
        let request = http::Request::get(read).body(Vec::new());
        let answer = client.request_text(request.expect("a request")).await;
        Some(answer.unwrap_or_else(|error| panic!("{read}: {error}")))
    })
}

/// Somebody deletes what binds the admission policy.
fn unbind_policy(simulators: &Simulators) {
    let paths = ["tokens", "nodes", "pods"].map(|name| {
        format!("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/pve-autoscaler-{name}")
    });
    as_administrator(simulators, &paths, "");
}

/// The UID of kube-system.
pub(super) fn cluster_uid(simulators: &Simulators) -> String {
    let read = as_administrator(simulators, &[], "/api/v1/namespaces/kube-system");
    let namespace: serde_json::Value = serde_json::from_str(&read.expect("read")).expect("JSON");
    let uid = namespace["metadata"]["uid"].as_str();
    uid.expect("it has one").to_owned()
}

/// What was said, on one line.
pub(super) fn on_one_line(said: &str) -> String {
    said.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// `docs/tasks.md`, 8, without a backup: the configuration is gone, the machines are not. It finds a setup that proposes another range, with
/// which they are never managed again, other names, or one that takes another cluster's machine for one of ours.
#[test]
fn machines_that_are_there_keep_their_range_and_names() {
    let place = Place::new();
    let uid = cluster_uid(&place.simulators);
    let mark = |cluster: String, vmid: u32| Mark {
        cluster,
        machine: format!("batch-{vmid}"),
        vmid,
        pool: "batch".to_owned(),
        instance_type: "small".to_owned(),
        template: "base".to_owned(),
        token: "abc123".to_owned(),
        created: Time(1_795_000_000_000),
        addresses: NicAddresses::new(),
        cpus: CpuSet::new(),
        unknown: [].into(),
    };
    let ours = mark(format!("{uid}/default"), 7_003);
    let copied = mark(format!("{uid}/default"), 7_003);
    let strange = mark("77aa/default".to_owned(), 6_003);
    let renamed = mark(format!("{uid}/home"), 5_003);
    for (vmid, mark) in [
        (7_003, ours),
        (4_003, copied),
        (6_003, strange),
        (5_003, renamed),
    ] {
        let named = (&*mark.machine, &*mark.line());
        clone_as(&place.simulators, TEMPLATE, vmid, named);
    }
    // An interrupted trial left a VM at the end of the range, which is to reach to it as before.
    make_trial(&place.simulators, TEMPLATE, 7_999);
    wait_until_listed(&place.simulators, &[4_003, 5_003, 6_003, 7_003, 7_999]);
    let (code, said) = place.run(&["--dry-run"]);
    assert_eq!(code, Some(0), "{said}");
    for words in [
        "1 machine of ours, by the marks of the VMs: 7003 (batch-7003)\n",
        "machines of ours are in it, by their marks, and no other guest: 7003 (batch-7003)\n",
        "machines of ours are of this pool, by their marks",
        "what machines of ours call their template, by their marks",
        "under the name \"home\", and the file has \"default\"",
        "are left alone: 5003.",
        "VM 7999 in 7000-7999 is of `pve-autoscaler template try`",
        "the next `pve-autoscaler template try debian` removes it",
        "+ vmids = \"7000-7999\"",
        "+ [template.base]",
        "+ [pool.batch]",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    // Another range that is answered leaves the machine behind, and that is said.
    place.answer("vmids = \"3000-3999\"\n");
    let (code, said) = place.run(&["--dry-run"]);
    assert_eq!(code, Some(0), "{said}");
    let words = "machines of ours outside of the VMIDs 3000 to 3999 are left alone, and never removed: 7003";
    assert!(said.contains(words), "{said}");
    place.answer("");
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(place.file().contains("vmids = \"7000-7999\""), "{said}");
}

/// The daemon's kubeconfig is there, and nobody answers. It finds a setup that says that there is none and wants an administrator's, and one
/// that hides the silence behind an administrator's that is gone.
#[test]
fn an_api_server_that_is_silent_is_told_as_that() {
    let place = Place::new();
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    let own = place.simulators.path("daemon.conf");
    let before = std::fs::read_to_string(&own).expect("it is there");
    let admin = place.simulators.path("admin.conf");
    // One takes connections and says nothing; the other refuses them.
    let mute = TcpListener::bind("127.0.0.1:0").expect("a port");
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port");
    let [mute_at, closed_at] = [&mute, &closed].map(|one| {
        let address = one.local_addr().expect("bound");
        format!("https://{address}")
    });
    drop(closed);
    for (silent, kubeconfig) in [
        (&closed_at, String::new()),
        (&mute_at, String::new()),
        (&closed_at, "/nowhere/admin.conf".to_owned()),
    ] {
        std::fs::write(&own, before.replace(&place.simulators.kube, silent)).expect("written");
        place.answer("");
        let given = format!("server = \"{}\"", place.simulators.kube);
        super::service::replace(&place.answers, &given, "");
        let given = format!("kubeconfig = \"{}\"", admin.display());
        let instead = if kubeconfig.is_empty() {
            String::new()
        } else {
            format!("kubeconfig = \"{kubeconfig}\"")
        };
        super::service::replace(&place.answers, &given, &instead);
        let (code, said) = place.run(&["--yes"]);
        assert_eq!(code, Some(1), "{said}");
        let told = on_one_line(&said);
        for words in [
            "Kubernetes: its API server does not answer",
            &format!(
                "the API server {silent} of the daemon's kubeconfig {}",
                own.display()
            ),
            "get version",
            "(at most 10 s for a connection, 30 s for an answer)",
            &format!("curl -k {silent}/version"),
            "nothing was changed",
        ] {
            assert!(told.contains(words), "{words:?} is not in {said}");
        }
        for words in [
            "no kubeconfig leads to it",
            "the path of an administrator's",
        ] {
            assert!(!told.contains(words), "{said}");
        }
    }
    drop(mute);
    // An administrator's that leads to nobody is told in the same way.
    std::fs::remove_file(&own).expect("removed");
    place.answer("");
    let text = std::fs::read_to_string(&admin).expect("it is there");
    let text = text.replace(&place.simulators.kube, &closed_at);
    std::fs::write(&admin, text).expect("written");
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(1), "{said}");
    let told = on_one_line(&said);
    let words = format!(
        "the API server {closed_at} of kubernetes.kubeconfig {} does not answer",
        admin.display()
    );
    assert!(told.contains(&words), "{said}");
}

/// It finds a setup that says `403` and not what to do. kubeadm's admin.conf has no rights of its own.
#[test]
fn an_administrator_without_rights_is_told_what_to_take() {
    let place = Place::new();
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    let binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/pve-autoscaler";
    as_administrator(&place.simulators, &[binding.to_owned()], "");
    let weak = place.simulators.path("weak.conf");
    std::fs::rename(place.simulators.path("daemon.conf"), &weak).expect("moved");
    let given = place.simulators.path("admin.conf").display().to_string();
    super::service::replace(&place.answers, &given, &weak.display().to_string());
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(1), "{said}");
    let told = on_one_line(&said);
    for words in [
        &*format!(
            "kubernetes.kubeconfig {}: list nodes was refused with 403",
            weak.display()
        ),
        "ClusterRoleBinding kubeadm:cluster-admins",
        "/etc/kubernetes/super-admin.conf",
        "ClusterRole cluster-admin",
    ] {
        assert!(told.contains(words), "{words:?} is not in {said}");
    }
}

/// On a terminal what is told is folded at words; commands and files stay as they are to be copied.
#[test]
fn what_setup_tells_fits_a_terminal() {
    const COLUMNS: u16 = 60;
    let place = Place::new();
    let path = |path: &PathBuf| path.display().to_string();
    let said = on_terminal(
        COLUMNS,
        &[
            "setup",
            "--dry-run",
            "--config",
            &path(&place.config),
            "--answers",
            &path(&place.answers),
        ],
    );
    assert!(said.contains("\nTo do\n"), "{said}");
    let (found, steps) = said.split_once("\nTo do\n").expect("both");
    // The title of a step, and where it goes on; below it stands what a person would type.
    let titles = steps.lines().filter(|line| {
        let number = line.trim_start().split_once(". ").map(|(number, _)| number);
        number.is_some_and(|number| number.parse::<u8>().is_ok())
    });
    let titles: Vec<&str> = titles.collect();
    assert!(titles.len() >= 3, "{said}");
    for line in found.lines().chain(titles) {
        let is_a_word = !line.trim().contains(' ');
        assert!(
            line.chars().count() <= usize::from(COLUMNS) || is_a_word,
            "{line:?} in {said}"
        );
    }
    // A command is one line.
    assert!(
        said.lines().any(
            |line| line.contains("pveum role add NodeAutoscalerMachines") && line.ends_with('\'')
        ),
        "{said}"
    );
}

/// It finds a setup that says that all is as it should be while doctor warns, one that makes the daemon's kubeconfig anew for it, and one
/// that asks for an administrator's kubeconfig that is gone, as it should be.
#[test]
fn an_admission_policy_that_is_not_in_force_is_proposed() {
    let place = Place::new();
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    let kubeconfig = || std::fs::read_to_string(place.simulators.path("daemon.conf"));
    let before = kubeconfig().expect("it is there");
    unbind_policy(&place.simulators);
    let (_, found) = place.doctor();
    assert!(
        found.contains("admission-policy.yaml is not in force"),
        "{found}"
    );
    let step = "  1. apply the admission policy, which is not in force\n     kubectl --kubeconfig ";
    let (code, said) = place.run(&["--dry-run"]);
    assert_eq!(code, Some(0), "{said}");
    for words in [
        "Admission policy: not in force",
        step,
        "Nothing was changed (--dry-run).",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    assert!(!said.contains("  2. "), "nothing else is due: {said}");

    // The administrator's kubeconfig is gone: it is said, and what can be done is done.
    let admin = place.simulators.path("admin.conf");
    let aside = place.simulators.path("aside.conf");
    std::fs::rename(&admin, &aside).expect("moved");
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    for words in [
        "only an administrator can apply it",
        "Nothing else is to be done",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    assert!(!said.contains("all is as it should be"), "{said}");
    std::fs::rename(&aside, &admin).expect("moved");

    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    for words in [
        "applied ValidatingAdmissionPolicyBinding pve-autoscaler-pods",
        "it is in force: what it forbids is refused",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    assert_eq!(kubeconfig().expect("it is there"), before);
    let (code, found) = place.doctor();
    assert_eq!(code, Some(0), "{found}");
    assert!(
        !found.contains("admission-policy.yaml is not in force"),
        "{found}"
    );
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("Nothing is to be done: all is as it should be"),
        "{said}"
    );
}

/// PVE's web interface makes tokens with privilege separation, and such a one of root's has no rights. It finds advice to give the
/// administrator's token a right on the daemon's resource pool.
#[test]
fn an_administrators_token_without_rights_is_told_how_to_be_made() {
    let place = Place::new();
    let secret = place.simulators.path("admin.secret");
    std::fs::write(&secret, "00000000-0000-4000-8000-000000000002\n").expect("written");
    super::service::replace(&place.answers, "root@pam!setup", "root@pam!sim");
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(1), "{said}");
    for words in [
        "Pool.Allocate",
        "With privilege separation, as PVE's web interface makes tokens, it has none of its user's",
        "--privsep 0` makes one that has them. Or type the commands above as root on a host",
        "FAILED at step 2 of 3",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    assert!(!said.contains("give the API token a role"), "{said}");
}

/// A copy of `admin.conf` as the daemon's own works, and doctor warns of it. It finds a setup that says that all is as it should be, and
/// advice that ends at the file that is there.
#[test]
fn an_administrators_kubeconfig_as_the_daemons_own_is_told() {
    let place = Place::new();
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    let own = place.simulators.path("daemon.conf");
    std::fs::copy(place.simulators.path("admin.conf"), &own).expect("copied");
    let told = "it may do more than the daemon needs";
    let makes = format!(
        "--kubeconfig ADMIN_KUBECONFIG --output {} --force",
        own.display()
    );
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    for words in [told, &makes, "Nothing else is to be done"] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    assert!(!said.contains("all is as it should be"), "{said}");
    let (_, found) = place.doctor();
    let found = found.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [told, &makes] {
        assert!(found.contains(words), "{words:?} is not in {found}");
    }
}

/// PVE asks for the right to a VNet in its own zone. It finds a setup whose commands give a right that nobody asks for, and a doctor that
/// wants to see the zone, which a token with no more rights than it needs does not.
#[test]
fn the_right_to_a_vnet_is_given_in_its_zone() {
    let mut spec = PveSpec::default();
    spec.vnets.push(VNetSpec {
        name: "blue".to_owned(),
        zone: "office".to_owned(),
        ..VNetSpec::default()
    });
    let place = Place::of(spec);
    place.answer("[network]\nbridge = \"blue\"\n");
    let (code, said) = place.run(&["--dry-run"]);
    assert_eq!(code, Some(0), "{said}");
    let right = "pveum acl modify /sdn/zones/office/blue --users pve-autoscaler@pve --roles NodeAutoscalerNetwork";
    assert!(said.contains(right), "{said}");
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    let (code, found) = place.doctor();
    assert_eq!(code, Some(0), "{found}\n{}", place.file());
}

/// PVE 8 has another privilege for the guest agent, and refuses a role with those of 9.
#[test]
fn on_pve_8_the_daemon_is_given_its_privilege_for_the_guest_agent() {
    let place = Place::of(PveSpec {
        version: "8.4.21".to_owned(),
        ..PveSpec::default()
    });
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("VM.Monitor") && !said.contains("VM.GuestAgent"),
        "{said}"
    );
    let (code, found) = place.doctor();
    assert_eq!(code, Some(0), "{found}\n{}", place.file());
    // The rights are those that are asked for there, and no others.
    let roles = ask_pve(&place.simulators, HttpMethod::Get, "/access/roles", &[]);
    let roles = roles.to_string();
    assert!(
        roles.contains("VM.Monitor") && !roles.contains("VM.GuestAgent"),
        "{roles}"
    );
    // What somebody wrote into the file that 8 does not know is told by both.
    let file = place.file();
    let mut lines = file.lines();
    let table = lines.find_map(|line| line.strip_prefix("[template.")?.strip_suffix(']'));
    let table = format!("[template.{}.options]", table.expect("a template"));
    let options = format!("\n{table}\nallow-ksm = false\n");
    std::fs::write(&place.config, file.clone() + &options).expect("written");
    let (_, said) = place.run(&["--dry-run"]);
    let note = format!(
        "note: allow-ksm in {table} is known to PVE from 9 on, and the host that answers has 8.4.21"
    );
    assert!(said.contains(&note), "{said}");
    let (code, found) = place.doctor();
    assert_eq!(code, Some(1), "{found}");
    let wrong = format!("allow-ksm in {table} is known");
    assert!(found.contains(&wrong), "{found}");
}

/// As Ansible runs it: the same answers again change nothing, also when what only the first run needs is gone.
#[test]
fn the_same_answers_again_change_nothing() {
    let place = Place::new();
    place.answer(
        "vmids = \"7000-7099\"\ntoken_id = \"scale@pve!daemon\"\nresource_pool = \"nodes\"\n\
         [template]\nname = \"base\"\nvmid = 9001\n\
         [network]\nbridge = \"vmbr0\"\nvlan = 20\naddresses = \"ranges\"\nranges = [\"192.0.2.60-192.0.2.69\", \"192.0.2.80\"]\n\
         [pool]\nname = \"batch\"\nmin = 1\nmax = 3\nhosts = [\"pve1\", \"pve2\"]\ninstance_types = [\"4x8GiB\", \"6x24GiB\"]\n",
    );
    let last = |said: &str| said.lines().last().unwrap_or_default().to_owned();
    let (code, said) = place.run(&["--dry-run"]);
    assert_eq!(
        (code, &*last(&said)),
        (Some(0), "changed: would be"),
        "{said}"
    );
    let (code, said) = place.run(&["--yes"]);
    assert_eq!((code, &*last(&said)), (Some(0), "changed: yes"), "{said}");
    // A list that a person writes in another way says the same.
    let file = place.file();
    let spread = file.replace("[\"pve1\", \"pve2\"]", "[\n  \"pve1\",\n  \"pve2\",\n]");
    assert_ne!(spread, file);
    std::fs::write(&place.config, &spread).expect("written");
    for name in ["admin.conf", "admin.secret"] {
        std::fs::remove_file(place.simulators.path(name)).expect("removed");
    }
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("Nothing is to be done"), "{said}");
    assert_eq!(last(&said), "changed: no", "{said}");
    let (code, said) = place.run(&["--dry-run"]);
    assert_eq!((code, &*last(&said)), (Some(0), "changed: no"), "{said}");
    assert_eq!(place.file(), spread);
    // What PVE does not have is refused as it is the first time.
    for (answers, words) in [
        (
            "[pool]\nhosts = [\"pve1\", \"pve9\"]\n",
            "pool.hosts: there is no host pve9",
        ),
        (
            "[template]\nvmid = 500\n",
            "template.vmid: VM 500 is not there, or is no template",
        ),
        (
            "[network]\nbridge = \"vmbr9\"\n",
            "network.bridge: no host has vmbr9; on every host: vmbr0",
        ),
    ] {
        place.answer(answers);
        let (code, said) = place.run(&["--yes"]);
        assert_eq!(code, Some(1), "{answers}: {said}");
        assert!(said.contains(words), "{words:?} is not in {said}");
        assert_eq!(place.file(), spread, "{answers}");
    }
    // A second pool: who answers nothing of a pool is asked for none.
    let more = "\n[pool.more]\ntemplate = \"base\"\ninstance_types = [\"medium\"]\nmax = 2\n";
    std::fs::write(&place.config, format!("{spread}{more}")).expect("written");
    place.answer("");
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    place.answer("[pool]\nmax = 4\n");
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("answer pool.name, one of batch, more"),
        "{said}"
    );
}

#[test]
fn what_is_wrong_is_named_by_its_answer_before_anything_is_done() {
    let place = Place::new();
    let before = place.file();
    for (answers, words) in [
        (
            "[pool]\nmin = 7\nmax = 3\n",
            "pool.min: 7 is above pool.max, 3",
        ),
        (
            "[pool]\nhosts = [\"pve9\"]\n",
            "pool.hosts: there is no host pve9",
        ),
        (
            "[pool]\ninstance_types = [\"big\"]\n",
            "pool.instance_types: \"big\" is not cores and memory",
        ),
        (
            "[pool]\nname = \"My Pool\"\n",
            "pool.name: \"My Pool\" is not lower-case letters",
        ),
        (
            "[template]\nvmid = 100\n",
            "template.vmid: VM 100 is not there, or is no template",
        ),
        (
            "[template]\nbuild = true\n",
            "template.build: with a token a template must be there",
        ),
        (
            "[pool]\ninstance_types = [\"999x4GiB\", \"2x4GiB\"]\n",
            "pool.instance_types: 999x4GiB fits on no host: the most that one has is 32 CPUs and 128Gi of memory",
        ),
        (
            "[pool]\ninstance_types = [\"2x999GiB\"]\n",
            "pool.instance_types: 2x999GiB fits on no host",
        ),
        ("vmids = \"9-1\"\n", "proxmox.vmids: \"9-1\": "),
        (
            "colour = 1\n",
            "proxmox.colour: unknown key `colour`; the keys here are ",
        ),
        (
            "[pool]\nmax = \"many\"\n",
            "pool.max = \"many\": expected a whole number, 0 to 5000, found string \"many\"",
        ),
        (
            "[pool]\ninstance_types = \"2x4GiB\"\n",
            "pool.instance_types = \"2x4GiB\": expected a list, found string",
        ),
        (
            "[network]\naddresses = \"static\"\n",
            "network.addresses = \"static\": unknown value `static`, expected `dhcp` or `ranges`",
        ),
    ] {
        place.answer(answers);
        let (code, said) = place.run(&["--yes"]);
        assert_ne!(code, Some(0), "{answers}: {said}");
        assert!(said.contains(words), "{words:?} is not in {said}");
        assert_eq!(place.file(), before, "{answers}");
        assert!(
            !place.simulators.path("daemon.secret").exists(),
            "{answers}"
        );
    }
    // The kubeconfig of a control plane names an address that only it can reach.
    place.answer("");
    let text = std::fs::read_to_string(&place.answers).expect("it is there");
    std::fs::write(&place.answers, text.replace("server = ", "# ")).expect("written");
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("\n  kubernetes.server: kubeconfig "),
        "{said}"
    );
    // Cut to the width of a line.
    let told = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        told.contains("by kubernetes.server = https://ADDRESS:6443")
            && !told.contains("by --server"),
        "{said}"
    );
    // No administrator's kubeconfig, and none of the daemon's.
    place.answer("");
    let text = std::fs::read_to_string(&place.answers).expect("it is there");
    let without = text.replace("kubeconfig = ", "# ");
    std::fs::write(&place.answers, without).expect("written");
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("kubernetes.kubeconfig: the path of an administrator's kubeconfig"),
        "{said}"
    );
}

/// It finds a setup that shows a step which cannot be done, and then does it.
#[test]
fn an_address_that_is_no_api_servers_is_refused_by_its_answer() {
    let place = Place::new();
    let given = format!("server = \"{}\"", place.simulators.kube);
    for (server, words) in [
        ("a b", "kubernetes.server: \"a b\": it is not a URL"),
        (
            "192.0.2.2:99999",
            "kubernetes.server: \"192.0.2.2:99999\": its port is no port",
        ),
        (
            "http://192.0.2.2:6443",
            "kubernetes.server: \"http://192.0.2.2:6443\": an API server speaks HTTPS",
        ),
    ] {
        place.answer("");
        super::service::replace(&place.answers, &given, &format!("server = {server:?}"));
        for how in ["--dry-run", "--yes"] {
            let (code, said) = place.run(&[how]);
            assert_eq!(code, Some(1), "{server}: {said}");
            assert!(said.contains(words), "{words:?} is not in {said}");
            assert!(said.contains("nothing was changed"), "{said}");
        }
    }
    assert!(!place.simulators.path("daemon.conf").exists());
}

/// Gives another address of the server at `address`, which a connection is handed on to for as long as the test lives.
/// No name: a bare machine may know none, not even `localhost`.
fn forward_to(address: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let other = listener.local_addr().expect("bound").to_string();
    let address = address.to_owned();
    thread::spawn(move || {
        for came in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(&address) else {
                return;
            };
            let (mut back, mut there) = (came.try_clone(), server.try_clone());
            let (mut came, mut server) = (came, server);
            thread::spawn(move || {
                let _ = there.as_mut().map(|there| io::copy(&mut came, there));
                let _ = there.map(|there| there.shutdown(Shutdown::Write));
            });
            thread::spawn(move || {
                let _ = back.as_mut().map(|back| io::copy(&mut server, back));
                let _ = back.map(|back| back.shutdown(Shutdown::Write));
            });
        }
    });
    other
}

/// On a host that is set up another address is answered. It finds a setup that says that nothing is to be done.
#[test]
fn another_server_that_is_answered_later_makes_another_kubeconfig() {
    let place = Place::new();
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    let kubeconfig = || std::fs::read_to_string(place.simulators.path("daemon.conf"));
    let before = kubeconfig().expect("it is there");
    let other = forward_to(place.simulators.kube.trim_start_matches("https://"));
    let given = format!("server = \"{}\"", place.simulators.kube);
    super::service::replace(&place.answers, &given, &format!("server = \"{other}\""));
    let (code, said) = place.run(&["--dry-run"]);
    assert_eq!(code, Some(0), "{said}");
    let words = format!("--server {other} --output ");
    assert!(said.contains(&words), "{said}");
    assert_eq!(kubeconfig().expect("it is there"), before);
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    let after = kubeconfig().expect("it is there");
    assert!(after.contains(&format!("https://{other}")), "{after}");
    let (_, said) = place.run(&["--yes"]);
    assert!(said.contains("Nothing is to be done"), "{said}");
    // Without an administrator's kubeconfig it cannot be done, and it is said what is needed for it.
    place.answer("");
    let admin = place.simulators.path("admin.conf").display().to_string();
    super::service::replace(&place.answers, &format!("kubeconfig = \"{admin}\""), "");
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(1), "{said}");
    let told = said.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "kubernetes.kubeconfig: the path of an administrator's kubeconfig",
        &format!(
            "it leads to https://{other}, and kubernetes.server is {}",
            place.simulators.kube
        ),
    ] {
        assert!(told.contains(words), "{words:?} is not in {said}");
    }
    assert_eq!(kubeconfig().expect("it is there"), after);
}

/// It finds a setup that says `401` and not which token is meant.
#[test]
fn a_token_that_pve_refuses_is_named_with_what_to_type() {
    let place = Place::new();
    let secret = place.simulators.path("admin.secret");
    std::fs::write(&secret, "11111111-0000-4000-8000-00000000000f\n").expect("written");
    let (code, said) = place.run(&["--dry-run"]);
    assert_eq!(code, Some(1), "{said}");
    let named = format!(
        "PVE does not take the token root@pam!setup with the secret in {}",
        secret.display()
    );
    for words in [&*named, "`pveum user token list root@pam`"] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
}

/// It finds a setup that writes over whatever it is given, and one that writes in a dry run.
#[test]
fn files_that_setup_did_not_write_stay_as_they_are() {
    let place = Place::new();
    let saved = place.simulators.path("saved.toml");
    let save = saved.display().to_string();
    let (code, said) = place.run(&["--dry-run", "--save-answers", &save]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("What would be saved in "), "{said}");
    assert!(!saved.exists());
    let before = place.file();
    let config = place.config.display().to_string();
    let (code, said) = place.run(&["--yes", "--save-answers", &config]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("is no file of answers: nothing was written"),
        "{said}"
    );
    assert_eq!(place.file(), before);
    // A kubeconfig that somebody else made is moved away by a person.
    let own = place.simulators.path("daemon.conf");
    std::fs::write(&own, "apiVersion: v1\nkind: Config\n").expect("written");
    let (code, said) = place.run(&["--yes", "--save-answers", &save]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("is no kubeconfig of ours"), "{said}");
    assert!(said.contains("move it away"), "{said}");
    assert_eq!(place.file(), before);
    std::fs::remove_file(&own).expect("removed");
    // Answers are written over answers.
    for _ in 0..2 {
        let (code, said) = place.run(&["--yes", "--save-answers", &save]);
        assert_eq!(code, Some(0), "{said}");
    }
    assert!(saved.exists());
}

/// A file of answers whose keys behind `#` are taken; how many these are.
fn uncomment(saved: &str) -> (String, usize) {
    let is_key = |line: &&str| {
        let behind = line.strip_prefix('#').unwrap_or_default();
        behind.starts_with(|first: char| first.is_ascii_lowercase())
    };
    let count = saved.lines().filter(is_key).count();
    let lines = saved.lines().map(|line| {
        let taken = is_key(&line).then(|| line.trim_start_matches('#'));
        taken.unwrap_or(line).to_owned() + "\n"
    });
    (lines.collect(), count)
}

/// It finds comments that no file of answers takes: keys and values of another form, and keys that are there twice.
#[test]
fn what_was_chosen_is_taken_from_the_answers_that_are_saved() {
    let mut spec = PveSpec::default();
    spec.images.push("local:import/debian-13.qcow2".to_owned());
    for storage in &mut spec.storages {
        if storage.name == "local" {
            "backup,import,iso,vztmpl".clone_into(&mut storage.content);
        }
    }
    let place = Place::of(spec);
    let saved = place.simulators.path("saved.toml");
    let save = saved.display().to_string();
    let read = || std::fs::read_to_string(&saved).expect("it is saved");
    for (more, least) in [
        ("", 10),
        ("[network]\naddresses = \"ranges\"\n[pool]\nmin = 1\n", 12),
        (
            "channel = \"local\"\n[template]\nbuild = true\nmirror = \"http://127.0.0.1:9\"\nimage = \"local:import/debian-13.qcow2\"\n",
            9,
        ),
    ] {
        place.answer(more);
        let (code, said) = place.run(&["--dry-run"]);
        assert_eq!(code, Some(0), "{said}");
        let steps = said.split("\nTo do\n").nth(1).expect("steps").to_owned();
        // Nothing is done without a yes, and the answers are saved.
        let (code, said) = place.run(&["--save-answers", &save]);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("then say --yes"), "{said}");
        let (taken, count) = uncomment(&read());
        assert!(count >= least, "{count} of {least}: {}", read());
        for table in ["kubernetes", "proxmox", "template", "network", "pool"] {
            let header = format!("\n[{table}]\n");
            assert!(
                !taken.contains(&format!("{header}\n")),
                "it is empty: {taken}"
            );
            assert!(taken.matches(&header).count() <= 1, "{taken}");
        }
        std::fs::write(&place.answers, &taken).expect("written");
        let (code, said) = place.run(&["--dry-run"]);
        assert_eq!(code, Some(0), "{said}\n{taken}");
        assert_eq!(said.split("\nTo do\n").nth(1), Some(&*steps), "{taken}");
        // All of it is answered now, and nothing is left to be chosen.
        let (code, said) = place.run(&["--save-answers", &save]);
        assert_eq!(code, Some(1), "{said}");
        let (all, count) = uncomment(&read());
        assert_eq!(count, 0, "{all}");
        let tables = |text: &str| toml::from_str::<toml::Table>(text).expect("TOML");
        assert_eq!(tables(&all), tables(&taken));
    }
}

/// More nodes than addresses are told of before the file is written.
#[test]
fn fewer_addresses_than_nodes_are_told_before_the_file_is_written() {
    let place = Place::new();
    place.answer("[network]\nranges = [\"192.0.2.60-192.0.2.61\"]\n[pool]\nmax = 5\n");
    let (code, said) = place.run(&["--dry-run"]);
    assert_eq!(code, Some(0), "{said}");
    let told = said.find("note: network.machines.ranges: 2 addresses for 5");
    let step = said.find("To do");
    assert!(told.is_some() && told < step, "{said}");
}

/// No mirror can be reached. It finds a setup that says no more than that an image is missing, that writes a volume as a URL, or that
/// takes one that is not there.
#[test]
fn without_internet_a_template_is_built_of_a_volume_that_is_there() {
    let mut spec = PveSpec::default();
    spec.images.push("local:import/debian-13.qcow2".to_owned());
    for storage in &mut spec.storages {
        if storage.name == "local" {
            "backup,import,iso,vztmpl".clone_into(&mut storage.content);
        }
    }
    let place = Place::of(spec);
    let build = |more: &str| {
        place.answer(&format!(
            "channel = \"local\"\n[template]\nbuild = true\nmirror = \"http://127.0.0.1:9\"\n{more}"
        ));
        let (code, said) = place.run(&["--dry-run"]);
        (code, said.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let (code, said) = build("");
    assert_eq!(code, Some(1), "{said}");
    for words in [
        "note: http://127.0.0.1:9: ",
        "template.image: the newest image of Debian could not be looked up; a volume of these (storages hold local:import/debian-13.qcow2)",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    let (code, said) = build("image = \"local:import/other.qcow2\"\n");
    assert_eq!(code, Some(1), "{said}");
    let words = "template.image: no host has local:import/other.qcow2; storages hold local:import/debian-13.qcow2";
    assert!(said.contains(words), "{said}");
    let (code, said) = build("image = \"https://images.example/debian.qcow2\"\n");
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("template.checksum: the image's sum, as sha512:"),
        "{said}"
    );
    let (code, said) = build("image = \"local:import/debian-13.qcow2\"\n");
    assert_eq!(code, Some(0), "{said}");
    for words in [
        "+ volume = \"local:import/debian-13.qcow2\"",
        "pvesm set local --content backup,import,iso,snippets,vztmpl",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    assert!(!said.contains("image = "), "{said}");
}

/// The token is there, its secret is not: PVE tells it only once.
#[test]
fn a_token_whose_secret_is_lost_is_said_and_not_replaced() {
    let place = Place::new();
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    std::fs::remove_file(place.simulators.path("daemon.secret")).expect("removed");
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(1), "{said}");
    let words = "pveum user token remove pve-autoscaler@pve daemon";
    assert!(said.contains(words), "{said}");
}

/// The configuration is gone, and its token with the secret is not. It finds a setup that tells who has the secret to put it where it is, one that
/// wants an administrator's token for it, and one that makes a token or rights that are there.
#[test]
fn a_token_whose_secret_is_there_is_taken_where_the_configuration_is_gone() {
    let place = Place::new();
    let before = place.file();
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    let file = place.file();
    let secret = || std::fs::read_to_string(place.simulators.path("daemon.secret"));
    let of_first = secret().expect("it is there");
    let admin = place.simulators.path("admin.secret");
    let of_admin = std::fs::read_to_string(&admin).expect("it is there");
    for how_reached in ["with the administrator's token", "without it"] {
        std::fs::write(&place.config, &before).expect("written");
        for how in ["--dry-run", "--yes"] {
            let (code, said) = place.run(&[how]);
            assert_eq!(code, Some(0), "{how_reached}: {said}");
            assert!(said.contains("  1. change "), "{said}");
            assert!(!said.contains("  2. ") && !said.contains("pveum"), "{said}");
        }
        assert_eq!(place.file(), file, "{how_reached}");
        assert_eq!(secret().expect("it is there"), of_first, "{how_reached}");
        let (code, found) = place.doctor();
        assert_eq!(code, Some(0), "{how_reached}: {found}");
        let _ = std::fs::remove_file(&admin);
    }
    // No file at all, as after `mv`: what stood in it of the kubeconfig is missing, too.
    std::fs::remove_file(&place.config).expect("removed");
    let (code, said) = place.run(&["--dry-run"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(". write "), "{said}");
    assert!(!said.contains("pveum"), "{said}");
    // Another template: the token gets the rights that it lacks, and stays what it is.
    std::fs::write(&place.config, &before).expect("written");
    place.answer("[template]\nvmid = 9001\n");
    std::fs::write(&admin, of_admin).expect("written");
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    for words in [
        "  1. give the daemon's user in PVE these privileges, of which its token lacks some; the token stays as it is\n",
        "     pveum acl modify /vms/9001 --users pve-autoscaler@pve --roles NodeAutoscalerTemplate\n",
        "  done: NodeAutoscalerTemplate on /vms/9001\n",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    assert!(!said.contains("token add"), "{said}");
    assert_eq!(secret().expect("it is there"), of_first);
    let (_, found) = place.doctor();
    assert!(
        !found.contains("pve-autoscaler@pve!daemon lacks"),
        "{found}"
    );
}

/// Calls PVE as an administrator does, with what is to be said and the answer.
fn ask_pve(
    simulators: &Simulators,
    method: HttpMethod,
    path: &str,
    params: &[(&'static str, &str)],
) -> Value {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let way = Https::new(&TokenOptions {
        endpoints: vec![simulators.pve.clone()],
        token_id: "root@pam!setup".to_owned(),
        secret: "11111111-0000-4000-8000-000000000001".to_owned().into(),
        ca_file: None,
        fingerprint: Some(simulators.fingerprint.clone()),
    });
    let request = PveRequest {
        call: "test",
        method,
        path: path.to_owned(),
        params: params
            .iter()
            .map(|(key, value)| ((*key).into(), (*value).to_owned()))
            .collect(),
        multipart: false,
        timeout: Duration::from_secs(10),
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let way = way.expect("a way");
    runtime.block_on(way.call(request)).expect("PVE does it")
}

/// Takes a privilege out of a role, as an administrator does by mistake.
fn take_out_of_role(simulators: &Simulators, role: &str, privilege: &str) {
    let roles = ask_pve(simulators, HttpMethod::Get, "/access/roles", &[]);
    let roles = roles.as_array().expect("a list");
    let of_role = roles.iter().find(|one| one["roleid"] == role);
    let held = of_role.and_then(|one| one["privs"].as_str());
    let held = held.expect("its privileges");
    let left: Vec<&str> = held.split(',').filter(|one| *one != privilege).collect();
    assert_ne!(left.join(","), held, "{privilege} was not in it");
    let path = format!("/access/roles/{role}");
    let privs = [("privs", &*left.join(","))];
    ask_pve(simulators, HttpMethod::Put, &path, &privs);
}

/// An administrator made the token in PVE's web interface, where privilege separation is on: what its user is given is not the token's, so
/// that it is given each role, too.
#[test]
fn a_token_with_privilege_separation_is_given_the_roles_itself() {
    let place = Place::new();
    let user = [("userid", "pve-autoscaler@pve")];
    ask_pve(&place.simulators, HttpMethod::Post, "/access/users", &user);
    let path = "/access/users/pve-autoscaler@pve/token/daemon";
    let made = ask_pve(&place.simulators, HttpMethod::Post, path, &[]);
    assert_eq!(made["info"]["privsep"], "1", "{made}");
    let secret = made["value"].as_str().expect("its secret");
    let file = place.simulators.path("daemon.secret");
    std::fs::write(&file, secret).expect("written");
    let mode = std::fs::Permissions::from_mode(0o640);
    std::fs::set_permissions(&file, mode).expect("changed");
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    let typed = "     pveum acl modify /pool/pve-autoscaler --users pve-autoscaler@pve --tokens 'pve-autoscaler@pve!daemon' --roles NodeAutoscalerMachines\n";
    assert!(said.contains(typed), "{said}");
    assert!(!said.contains("user token add"), "{said}");
    let (code, found) = place.doctor();
    assert_eq!(code, Some(0), "{found}");
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("changed: no"), "{said}");
}

/// Found by it: setup said "all is as it should be" beside a role that had lost a privilege, which `doctor` calls wrong.
#[test]
fn a_role_that_lost_a_privilege_gets_it_back() {
    let place = Place::new();
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    let (role, privilege) = ("NodeAutoscalerMachines", "VM.PowerMgmt");
    take_out_of_role(&place.simulators, role, privilege);
    let (code, found) = place.doctor();
    assert_eq!(code, Some(1), "{found}");
    assert!(found.contains(privilege), "{found}");
    // The daemon's own token gives nobody rights: that is said, and all else is as it is.
    let secret = place.simulators.path("admin.secret");
    let away = place.simulators.path("away.secret");
    std::fs::rename(&secret, &away).expect("moved");
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    let told = on_one_line(&said);
    for words in [
        "note: the daemon's token pve-autoscaler@pve!daemon lacks rights that its configuration needs (doctor names them)",
        "Nothing else is to be done.",
        "changed: no",
    ] {
        assert!(told.contains(words), "{words:?} is not in {said}");
    }
    std::fs::rename(&away, &secret).expect("moved");
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    for words in [
        "  1. give the daemon's user in PVE these privileges, of which its token lacks some; the token stays as it is\n",
        "     pveum role modify NodeAutoscalerMachines --privs '",
        "  done: role NodeAutoscalerMachines\n",
        "changed: yes",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    let (code, found) = place.doctor();
    assert_eq!(code, Some(0), "{found}");
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("Nothing is to be done: all is as it should be"),
        "{said}"
    );
}

/// It finds a setup that says the same of a secret that is wrong as of one that is missing, and one that goes on with it.
#[test]
fn a_secret_that_is_not_the_tokens_is_told_with_what_is_wrong() {
    let place = Place::new();
    let before = place.file();
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    let configured = place.file();
    let secret = place.simulators.path("daemon.secret");
    for (text, wrong) in [
        (
            "11111111-0000-4000-8000-00000000000f\n",
            "PVE does not take it (",
        ),
        ("\n", "it is empty."),
        (
            "value: 11111111-0000-4000-8000-00000000000f\n",
            "it has more in it than the secret; expected that alone",
        ),
    ] {
        std::fs::write(&secret, text).expect("written");
        for file in [&before, &configured] {
            std::fs::write(&place.config, file).expect("written");
            let (code, said) = place.run(&["--yes"]);
            assert_eq!(code, Some(1), "{said}");
            let told = on_one_line(&said);
            let named = format!(
                "the token pve-autoscaler@pve!daemon is there already, and its secret in {} cannot be used: ",
                secret.display()
            );
            for words in [
                &*named,
                wrong,
                "(pveum user token remove pve-autoscaler@pve daemon)",
                "nothing was changed",
            ] {
                assert!(told.contains(words), "{words:?} is not in {said}");
            }
            assert_eq!(place.file(), *file, "{said}");
            let kept = std::fs::read_to_string(&secret);
            assert_eq!(kept.expect("it is there"), text, "{said}");
        }
    }
}

/// A region is what a person writes into the file first. It finds a setup that calls the file wrong for want of what it would propose, one that
/// gives the token rights on all VMs, and one that hides what else is wrong.
#[test]
fn a_region_without_vmids_is_completed() {
    let place = Place::new();
    let before = place.file();
    let region = format!(
        "[proxmox]\nchannel = \"token\"\nendpoints = [\"{}\"]\ntoken_id = \"pve-autoscaler@pve!daemon\"\ntoken_secret_file = \"{}\"\nfingerprint = \"{}\"\n",
        place.simulators.pve,
        place.simulators.path("daemon.secret").display(),
        place.simulators.fingerprint,
    );
    // Behind it stands something that is the person's.
    let begun = format!("{before}{region}\n# mine\n[scale_up]\n");
    std::fs::write(&place.config, &begun).expect("written");
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("  proxmox.vmids          8000-8999\n"),
        "{said}"
    );
    let file = place.file();
    let completed = format!(
        "{before}{region}vmids = \"8000-8999\"  # for machines alone\n\n# mine\n[scale_up]\n"
    );
    assert!(file.starts_with(&completed), "{file}");
    assert!(
        file.contains("\nresource_pool = \"pve-autoscaler\""),
        "{file}"
    );
    let (code, found) = place.doctor();
    assert_eq!(code, Some(0), "{found}\n{file}");
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("Nothing is to be done"), "{said}");

    // It is gone from a file that is configured, too.
    let line = "vmids = \"8000-8999\"  # for machines alone\n";
    super::service::replace(&place.config, line, "");
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    let again = "vmids = \"8000-8999\"\n";
    assert_eq!(place.file(), file.replace(line, again), "{said}");

    // What else is wrong is told, and that alone.
    super::service::replace(&place.config, again, "colour = 1\n");
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("proxmox.colour: unknown key"), "{said}");
    assert!(!said.contains("vmids: is missing"), "{said}");

    // Nothing but the name of the table, for a daemon on a host.
    std::fs::write(&place.config, format!("{before}[proxmox]\n")).expect("written");
    let (code, said) = place.run(&["--dry-run"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("+ vmids = \"8000-8999\"  # for machines alone\n"),
        "{said}"
    );
    assert!(!said.contains("pveum"), "{said}");
}

/// At a terminal: what is typed is taken, what is left empty is what was proposed, what is wrong is asked again.
#[test]
fn a_person_is_asked_at_the_terminal() {
    let place = Place::new();
    // How both are reached comes from a file that is configured that far: a person on a host needs none of it.
    let path = |name: &str| place.simulators.path(name).display().to_string();
    let region = format!(
        "[proxmox]\nchannel = \"token\"\nendpoints = [\"{}\"]\ntoken_id = \"scaler@pve!sim\"\ntoken_secret_file = \"{}\"\nfingerprint = \"{}\"\nvmids = \"9100-9199\"\n",
        place.simulators.pve,
        path("secret"),
        place.simulators.fingerprint,
    );
    let file = place.file();
    std::fs::write(&place.config, format!("{file}{region}")).expect("written");
    let save = path("saved.toml");
    let type_in = |arguments: &[&str], answers: &[&str]| {
        let command = place.command(arguments);
        let words: Vec<String> = std::iter::once(command.get_program())
            .chain(command.get_args())
            .map(|word| format!("'{}'", word.to_string_lossy()))
            .collect();
        let mut script = Command::new("script")
            .args(["-qefc", &words.join(" "), "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script is part of every Debian");
        let mut input = script.stdin.take().expect("it is piped");
        for answer in answers {
            writeln!(input, "{answer}").expect("it reads");
        }
        text(&script.wait_with_output().expect("it ends").stdout)
    };
    // The API server's address, the template (a question first, then one that is not there), addresses, sizes, the pool's name, its most nodes
    // (wrong, then right); and no.
    let server = place.simulators.kube.clone();
    let answers = [
        &*server, "?", "500", "9001", "dhcp", "2x4GiB", "", "many", "4", "n",
    ];
    let kubeconfig = path("admin.conf");
    let said = type_in(&["--kubeconfig", &kubeconfig], &answers);
    let kept = said.split("for a file that --answers takes:").nth(1);
    let kept = kept.unwrap_or_else(|| panic!("what was answered is lost: {said}"));
    assert!(kept.contains("max = 4"), "{said}");
    let said = type_in(
        &["--kubeconfig", &kubeconfig, "--save-answers", &save],
        &answers,
    );
    assert!(!said.contains("that --answers takes"), "{said}");
    for words in [
        "expected build, or the VMID of a template that is there; Enter takes",
        "which only the control plane itself can reach",
        "vmid = 9001",
        "template.vmid: VM 500 is not there, or is no template",
        "pool.max: the most nodes of the pool: a beginning",
        "\"many\" is no number of nodes",
        "max = 4",
        "[y/N]",
        "Nothing was changed.",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    assert_eq!(place.file(), format!("{file}{region}"));
    let saved = std::fs::read_to_string(save).expect("it is there");
    assert!(saved.contains("max = 4"), "{saved}");
}

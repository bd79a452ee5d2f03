//! The program against the simulators on the wire: `check --live`, `kubeconfig`, `run`.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use nix::unistd::{User, geteuid};
use pve_autoscaler::sim::pve::{AclSpec, PveSpec, StorageKind};
use serde_json::{Value, json};

use super::simulators::{Process, Simulators};
use super::templates::{make_trial, wait_until_listed};
use super::terminal::on_terminal;
use super::{program, text};

pub(crate) const TEMPLATE: &str = "debian-13-k8s";
/// How often something is looked for that comes with time, and the pause in between.
const TRIES: u32 = 600;
const PAUSE: Duration = Duration::from_millis(100);

/// The name of the user who runs this.
pub(crate) fn own_name() -> String {
    let user = User::from_uid(geteuid()).expect("users can be looked up");
    user.expect("this user has a name").name
}

/// What `check --live` says with the rights of a user, and how it ends.
fn check_as(user: &str, config: &Path) -> (Option<i32>, String) {
    let folder = config.parent().expect("a folder");
    let output = program()
        .args(["check", "--live", "--user", user, "--config"])
        .arg(config)
        .arg("--state-directory")
        .arg(folder.join("state"))
        .arg("--socket")
        .arg(folder.join("control.sock"))
        .output();
    let output = output.expect("it runs");
    let said = text(&output.stdout) + &text(&output.stderr);
    (output.status.code(), said)
}

/// What `check --live` says of a world, and how it ends.
fn check(spec: &PveSpec, template: &str, vmids: &str) -> (Option<i32>, String) {
    check_changed(spec, template, vmids, &[])
}

/// As [`check`], with parts of the configuration replaced.
fn check_changed(
    spec: &PveSpec,
    template: &str,
    vmids: &str,
    changes: &[(&str, &str)],
) -> (Option<i32>, String) {
    let simulators = Simulators::start(spec);
    let config = simulators.config(&simulators.path("admin.conf"), template, vmids);
    let mut file = std::fs::read_to_string(&config).expect("it is there");
    for (from, to) in changes {
        assert!(file.contains(from), "{from} is not in {file}");
        file = file.replace(from, to);
    }
    std::fs::write(&config, file).expect("written");
    check_as(&own_name(), &config)
}

/// A command that is asked to show it again does so: each picture has a line that begins with this.
fn watched(socket: &Path, command: &[&str], begins: &str) {
    let watch = program()
        .args(command)
        .args(["--watch=1", "--socket"])
        .arg(socket)
        .stdout(Stdio::piped())
        .spawn();
    let mut watch = Process(watch.expect("it starts"));
    let output = BufReader::new(watch.0.stdout.take().expect("it is piped"));
    let pictures = output.lines().map(|line| line.expect("text"));
    let mut pictures = pictures.filter(|line| !line.is_empty() && line.starts_with(begins));
    let (first, second) = (pictures.next(), pictures.next());
    assert!(first.is_some() && second.is_some(), "{command:?}");
}

/// The daemon of a configuration, with a state of its own and this control socket; it ends with the test.
fn start_daemon(simulators: &Simulators, config: &Path, socket: &Path) -> Process {
    let daemon = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"))
        .arg("--config")
        .arg(config)
        .arg("run")
        .arg("--state-directory")
        .arg(simulators.path("state"))
        .arg("--control-socket")
        .arg(socket)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    Process(daemon.expect("it starts"))
}

#[test]
fn check_live_says_that_all_is_well() {
    let simulators = Simulators::start(&PveSpec::default());
    let made = kubeconfig(&simulators);
    assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
    let config = simulators.config(&simulators.path("kubeconfig"), TEMPLATE, "9100-9120");
    let (code, said) = check_as(&own_name(), &config);
    assert_eq!(code, Some(0), "{said}");
    for words in [
        "ok: kubernetes: v1.34.1 at https://127.0.0.1:",
        "ok: kubernetes: all rights that the daemon needs are granted",
        "ok: region default: PVE 9.2.11 with 3 hosts",
        "ok: template debian: VM 9000 on host pve1",
        "ok: user: looked with the rights of ",
        "ok: file: kubeconfig /",
        "ok: file: token_secret_file /",
        "ok: kubernetes: cluster-info is there; machines join at ",
        " answers with a certificate of cluster-info's CA",
        "ok: kubernetes: bootstrap tokens may read kubeadm-config and kubelet-config in kube-system",
        "ok: kubernetes: bootstrap tokens for machines may be made (dry run)",
        "ok: kubernetes: admission-policy.yaml is in force",
        "ok: kubernetes: nobody holds the Lease",
        "ok: daemon: it can listen on 127.0.0.1:0",
        "ok: daemon: none answers at ",
        "ok: region default: the cluster has quorum",
        "ok: region default: VMIDs 9100 to 9120: 0 machines of ours",
        "ok: region default: the token scaler@pve!sim has the privileges that it needs on /, ",
        "ok: template debian: bridge vmbr0 on pve1, pve2, pve3",
        "ok: region default: no disks without a VM on ",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    // The simulator's API server listens on this host alone, and so does the kubeconfig's.
    let complaints = said
        .lines()
        .filter(|line| line.contains("warning:") || line.contains("WRONG:"));
    let complaints: Vec<&str> = complaints.collect();
    let words = "warning: kubernetes: cluster-info sends machines to 127.0.0.1:";
    assert!(
        complaints.len() == 1 && complaints[0].contains(words),
        "{complaints:#?}"
    );
}

#[test]
fn check_live_says_what_is_wrong_with_templates() {
    let (code, said) = check(&PveSpec::default(), "debian-14-k8s", "9100-9120");
    assert_eq!(code, Some(1), "{said}");
    let missing =
        "WRONG: template debian: there is no template of the name debian-14-k8s in region default";
    assert!(said.contains(missing), "{said}");
    // The daemon has a token, which may not build one.
    let made = "; one is made by hand, as docs/template.md says, or built by `pve-autoscaler template build` as root on a PVE host, with a token that may";
    assert!(said.contains(made), "{said}");

    let mut spec = PveSpec::default();
    let machine = spec.machines.iter_mut().find(|vm| vm.vmid == 9000);
    let config = &mut machine.expect("the template").config;
    assert_eq!(
        config.insert("agent".into(), "0".into()).as_deref(),
        Some("1")
    );
    let (code, said) = check(&spec, TEMPLATE, "9100-9120");
    assert_eq!(code, Some(1), "{said}");
    let mute = "WRONG: template debian: VM 9000 has no guest agent enabled, and its machines are joined through it; qm set 9000 --agent";
    assert!(said.contains(mute), "{said}");
}

/// What is said of the template where somebody set this key of its VM, as lines.
fn said_with(key: &str, value: &str, changes: &[(&str, &str)]) -> Vec<String> {
    let mut spec = PveSpec::default();
    let machine = spec.machines.iter_mut().find(|vm| vm.vmid == 9000);
    let config = &mut machine.expect("the template").config;
    config.insert(key.into(), value.into());
    let (_, said) = check_changed(&spec, TEMPLATE, "9100-9120", changes);
    let lines = said
        .lines()
        .filter(|line| line.contains("template debian: VM 9000"));
    lines.map(str::to_owned).collect()
}

/// Each of these is inherited by every machine; some keep machines from being made.
#[test]
fn check_live_says_what_machines_inherit_that_is_for_one_vm_alone() {
    let down = "virtio=BC:24:11:00:00:01,bridge=vmbr0";
    for (key, value, words) in [
        (
            "ipconfig0",
            "ip=192.0.2.50/24,gw=192.0.2.1",
            "WRONG: template debian: VM 9000 has a fixed address (ipconfig0: ip=192.0.2.50/24,gw=192.0.2.1) that all its machines would have, and pool general may have 2; \
             qm set 9000 --ipconfig0 ip=dhcp, or a network in the pool's table",
        ),
        (
            "net0",
            &*format!("{down},link_down=1"),
            "WRONG: template debian: VM 9000 has no link at net0 (link_down=1), and no machine would reach anything; qm set 9000 --net0 virtio=BC:24:11:00:00:01,bridge=vmbr0",
        ),
        (
            "freeze",
            "1",
            "WRONG: template debian: VM 9000 starts with its CPUs frozen (freeze: 1), and so would all its machines: none would boot; qm set 9000 --delete freeze",
        ),
        (
            "args",
            "-no-fd-bootchk",
            "warning: template debian: VM 9000 has arguments of its own for QEMU (args)",
        ),
        (
            "hugepages",
            "1024",
            "warning: template debian: VM 9000 takes its memory from huge pages (hugepages: 1024)",
        ),
        (
            "cicustom",
            "vendor=local:snippets/agent.yaml",
            "warning: template debian: VM 9000 has its cloud-init data from vendor=local:snippets/agent.yaml (cicustom)",
        ),
    ] {
        let said = said_with(key, value, &[]);
        let [line] = &said[..] else {
            panic!("{key}: {said:?}")
        };
        assert!(line.starts_with(words), "{words:?} is not in {line}");
    }
}

/// An address of the file's, or a pool of one machine, takes a fixed address' harm away; all hosts have what is on a shared storage.
#[test]
fn check_live_passes_what_machines_may_inherit() {
    let named = format!("vm_name = \"{TEMPLATE}\"");
    let dhcp = format!("{named}\nipconfig = \"ip=dhcp\"");
    let network = "max = 2\nnetwork = \"lan\"\n[network.lan]\nsubnet = \"192.0.2.0/24\"\nranges = [\"192.0.2.60-192.0.2.69\"]\n";
    let fixed = ("ipconfig0", "ip=192.0.2.50/24");
    for ((key, value), changes) in [
        (fixed, vec![(&*named, &*dhcp)]),
        (fixed, vec![("max = 2\n", "max = 1\n")]),
        (fixed, vec![("max = 2\n", network)]),
        (("cicustom", "vendor=shared:snippets/agent.yaml"), vec![]),
        (("numa0", "cpus=0-1,memory=2048"), vec![]),
    ] {
        let said = said_with(key, value, &changes);
        let [line] = &said[..] else {
            panic!("{key}: {said:?}")
        };
        assert!(line.starts_with("ok: template debian: VM 9000"), "{line}");
    }
}

/// Where a linked clone is not possible PVE says so only when it is asked for one.
#[test]
fn check_live_says_that_a_storage_has_no_linked_clones() {
    let mut spec = PveSpec::default();
    let storage = spec.storages.iter_mut().find(|one| one.name == "shared");
    storage.expect("the template's storage").kind = StorageKind::Lvm;
    let (code, said) = check(&spec, TEMPLATE, "9100-9120");
    assert_eq!(code, Some(1), "{said}");
    let whole = "WRONG: template debian: VM 9000: its scsi0 is on shared (lvm), which has no linked clones; \
                 clone = \"full\" in the template's table copies it";
    assert!(said.contains(whole), "{said}");
    let full = "[template.debian]\nclone = \"full\"";
    let (_, said) = check_changed(&spec, TEMPLATE, "9100-9120", &[("[template.debian]", full)]);
    assert!(!said.contains("linked"), "{said}");
}

/// PVE refuses a full clone to CephFS, whatever its content is, and to a directory for other things.
#[test]
fn check_live_says_that_a_storage_holds_no_disks() {
    for (kind, words) in [
        (
            StorageKind::CephFs,
            "WRONG: template debian: storage files (cephfs) is of a type that holds no disks of VMs; another storage in the template's table",
        ),
        (
            StorageKind::Dir,
            "WRONG: template debian: storage files is not for disks of VMs (its content is iso); pvesm set files --content iso,images, or another",
        ),
    ] {
        let mut spec = PveSpec::default();
        let mut files = spec.storages[0].clone();
        (files.name, files.kind) = ("files".to_owned(), kind);
        "iso".clone_into(&mut files.content);
        spec.storages.push(files);
        let full = "[template.debian]\nclone = \"full\"\nstorage = \"files\"";
        let changes = [("[template.debian]", full)];
        let (code, said) = check_changed(&spec, TEMPLATE, "9100-9120", &changes);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
}

#[test]
fn check_live_warns_of_foreign_vms_and_of_clocks() {
    let mut spec = PveSpec::default();
    spec.hosts[1].clock_ahead = 90;
    let (code, said) = check(&spec, TEMPLATE, "100-140");
    assert_eq!(code, Some(0), "{said}");
    let foreign =
        "warning: region default: VMs in our range that are not ours, and are left alone: 100, 101";
    assert!(said.contains(foreign), "{said}");
    // Clocks are told to the second, and the hosts are asked one after the other.
    let apart = said.lines().find(|line| line.contains("the clocks of"));
    let apart = apart.unwrap_or_else(|| panic!("{said}"));
    assert!(apart.contains("and pve2 are 1m"), "{apart}");
    assert!(
        said.contains("the clock of pve2 and this host's differ by 1m"),
        "{said}"
    );
}

/// What an interrupted trial left is nobody else's: all who look at the range say what removes it.
#[test]
fn the_vm_of_a_trial_is_told_with_what_removes_it() {
    let simulators = Simulators::start(&PveSpec::default());
    let made = kubeconfig(&simulators);
    assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
    let config = simulators.config(&simulators.path("kubeconfig"), TEMPLATE, "9100-9120");
    make_trial(&simulators, 9_000, 9_120);
    wait_until_listed(&simulators, &[9_120]);

    let (code, said) = check_as(&own_name(), &config);
    assert_eq!(code, Some(0), "{said}");
    let warned = "warning: region default: VM 9120 in our range is of `pve-autoscaler template try`, which tries the template debian with it; unless that runs on pve1, \
        it was interrupted or told to keep the VM; `pve-autoscaler template try debian` removes it before it tries anew";
    assert!(said.contains(warned), "{said}");
    assert!(!said.contains("that are not ours"), "{said}");

    let socket = simulators.path("control.sock");
    let _daemon = start_daemon(&simulators, &config, &socket);
    let warning = "VM 9120 (pve-autoscaler-trial-9120): `pve-autoscaler template try` tries the template debian with it, and removes it at its end; the next \
        `pve-autoscaler template try debian` removes it";
    asked(&socket, "plan", |plan| {
        plan["report"]["warnings"].to_string().contains(warning)
    });
    let output = program().args(["status", "--socket"]).arg(&socket).output();
    let said = text(&output.expect("it runs").stdout);
    assert!(said.contains(warning), "{said}");
    assert!(!said.contains("somebody else's"), "{said}");
}

#[test]
fn check_live_says_that_a_bridge_is_missing() {
    let mut spec = PveSpec::default();
    spec.hosts[1].bridges = vec!["vmbr9".to_owned()];
    let (code, said) = check(&spec, TEMPLATE, "9100-9120");
    assert_eq!(code, Some(1), "{said}");
    let missing = "WRONG: template debian: there is no bridge vmbr0 that may be used on pve2;";
    assert!(said.contains(missing), "{said}");

    // The file's own is asked for instead of the template's.
    let named = format!("vm_name = \"{TEMPLATE}\"\nbridge = \"vmbr9\"");
    let changes = [(format!("vm_name = \"{TEMPLATE}\""), named)];
    let changes = changes.each_ref().map(|(from, to)| (&**from, &**to));
    let (code, said) = check_changed(&spec, TEMPLATE, "9100-9120", &changes);
    assert_eq!(code, Some(1), "{said}");
    let missing = "there is no bridge vmbr9 that may be used on pve1, pve3;";
    assert!(said.contains(missing), "{said}");
}

#[test]
fn check_live_says_that_a_resource_pool_is_missing_or_cannot_be_seen() {
    let named = format!("vm_name = \"{TEMPLATE}\"\nresource_pool = \"k9s\"");
    let changes = [(format!("vm_name = \"{TEMPLATE}\""), named)];
    let changes = changes.each_ref().map(|(from, to)| (&**from, &**to));
    let mut spec = PveSpec::default();
    let (code, said) = check_changed(&spec, TEMPLATE, "9100-9120", &changes);
    assert_eq!(code, Some(1), "{said}");
    let missing = "WRONG: template debian: there is no resource pool k9s; pvesh create /pools --poolid k9s makes it";
    assert!(said.contains(missing), "{said}");

    // A pool that is there, and whether a token may move machines into it.
    let there = format!("vm_name = \"{TEMPLATE}\"\nresource_pool = \"k8s\"");
    let there = [(changes[0].0, &*there)];
    let stays = "template debian: resource pool k8s; machines that are there do not follow into it without Pool.Allocate";
    let (code, said) = check_changed(&spec, TEMPLATE, "9100-9120", &there);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(stays), "{said}");
    let mut more = spec.clone();
    let privileges = &mut more.tokens[0].acl[0].privileges;
    privileges.push("Pool.Allocate".to_owned());
    let (_, said) = check_changed(&more, TEMPLATE, "9100-9120", &there);
    assert!(said.contains("resource pool k8s\n"), "{said}");

    spec.tokens[0].acl[0]
        .privileges
        .retain(|one| one != "Pool.Audit");
    let (code, said) = check_changed(&spec, TEMPLATE, "9100-9120", &changes);
    assert_eq!(code, Some(0), "{said}");
    let unseen = "warning: template debian: whether there is a resource pool k9s cannot be seen without Pool.Audit";
    assert!(said.contains(unseen), "{said}");
}

/// A group that is not there lets nothing through, and one behind a firewall that stays off keeps nothing out.
#[test]
fn check_live_looks_at_security_groups_and_the_firewalls_switch() {
    let named = |more: &str| format!("vm_name = \"{TEMPLATE}\"\nsecurity_groups = [\"web\"]{more}");
    let changes = |more: &str| [(format!("vm_name = \"{TEMPLATE}\""), named(more))];
    let switched = changes("");
    let switched = switched.each_ref().map(|(from, to)| (&**from, &**to));
    let changes = changes("\nvm_firewall = false");
    let changes = changes.each_ref().map(|(from, to)| (&**from, &**to));
    let mut spec = PveSpec::default();
    let (code, said) = check_changed(&spec, TEMPLATE, "9100-9120", &changes);
    assert_eq!(code, Some(1), "{said}");
    for words in [
        "WRONG: template debian: there is no security group web; its rule would let nothing through; pvesh create /cluster/firewall/groups --group web makes it, without rules",
        "warning: template debian: the firewall of VM 9000 is off and vm_firewall is false, so that security groups of its machines do nothing; pvesh set /nodes/pve1/qemu/9000/firewall/options --enable 1",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    spec.security_groups = vec!["web".to_owned()];
    spec.firewall_on = vec![9000];
    let (code, said) = check_changed(&spec, TEMPLATE, "9100-9120", &changes);
    assert_eq!(code, Some(0), "{said}");
    for words in [
        "ok: template debian: security group web",
        "ok: template debian: the firewall of VM 9000 is on",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    // It is switched on for machines, unless the file says otherwise.
    spec.firewall_on.clear();
    let (code, said) = check_changed(&spec, TEMPLATE, "9100-9120", &switched);
    assert_eq!(code, Some(0), "{said}");
    let words =
        "ok: template debian: the firewall of its machines is switched on before their first start";
    assert!(said.contains(words), "{said}");
    // Without a word of groups nobody looks.
    let (_, said) = check(&spec, TEMPLATE, "9100-9120");
    assert!(!said.contains("firewall"), "{said}");
}

/// Mappings of USB devices and directories that a template's options name: without one no machine starts.
#[test]
fn check_live_looks_at_mappings_that_options_name() {
    let line = format!("vm_name = \"{TEMPLATE}\"");
    let with = format!(
        "{line}\n[template.debian.options]\nusb0 = \"mapping=key\"\nvirtiofs0 = \"dirid=data\""
    );
    let changes = [(&*line, &*with)];
    let mut spec = PveSpec::default();
    let more = "Mapping.Use".to_owned();
    spec.tokens[0].acl[0].privileges.push(more);
    let (code, said) = check_changed(&spec, TEMPLATE, "9100-9120", &changes);
    assert_eq!(code, Some(1), "{said}");
    for words in [
        "WRONG: template debian: PVE shows no mapping of USB devices key, so that no machine of it starts; add it (Datacenter, Resource Mappings); a token sees it with Mapping.Use on /mapping/usb/key",
        "WRONG: template debian: PVE shows no mapping of directories data, so that no machine of it starts",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    let hosts = || spec.hosts.iter().map(|host| host.name.clone()).collect();
    let (usb, dir) = (hosts(), hosts());
    spec.usb_mappings = [("key".to_owned(), usb)].into();
    spec.dir_mappings = [("data".to_owned(), dir)].into();
    let (code, said) = check_changed(&spec, TEMPLATE, "9100-9120", &changes);
    assert_eq!(code, Some(0), "{said}");
    for words in [
        "ok: template debian: mapping of USB devices key",
        "ok: template debian: mapping of directories data",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
}

/// Parts of cards: the mapping's mark, and on each host how many of the type are left.
#[test]
fn check_live_looks_at_mediated_devices() {
    let kind = "[instance_type.small]";
    let with = format!("{kind}\npci = [{{ mapping = \"vgpu\", mdev = \"nvidia-63\" }}]");
    let changes = [(kind, &*with)];
    let mut spec = PveSpec::default();
    let more = ["Mapping.Use", "VM.Config.HWType"].map(str::to_owned);
    spec.tokens[0].acl[0].privileges.extend(more);
    let card = "0000:41:00.0".to_owned();
    let hosts = ["pve1", "pve2"].map(|host| (host.to_owned(), vec![card.clone()]));
    spec.mappings = [("vgpu".to_owned(), hosts.into())].into();
    for (host, mdev) in [("pve1", "nvidia-63"), ("pve2", "nvidia-64")] {
        let types = BTreeMap::from([(mdev.to_owned(), 3)]);
        let cards = BTreeMap::from([(card.clone(), types)]);
        spec.mediated.insert(host.to_owned(), cards);
    }
    let (code, said) = check_changed(&spec, TEMPLATE, "9100-9120", &changes);
    assert_eq!(code, Some(1), "{said}");
    let words = "the mapping vgpu is not marked for mediated devices, and PVE starts no machine with one of it; mark it (Datacenter, Resource Mappings: Use with Mediated Devices)";
    assert!(said.contains(words), "{said}");
    spec.mdev_mappings.insert("vgpu".to_owned());
    let (_, said) = check_changed(&spec, TEMPLATE, "9100-9120", &changes);
    assert!(!said.contains("marked"), "{said}");
    for words in [
        "3 more mediated devices nvidia-63 of the mapping vgpu on pve1",
        "pve2 has no mediated device nvidia-63 of the mapping vgpu: its types are nvidia-64",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
}

/// A privilege is missed by name and path on the wire, too; src/cli/doctor/tests takes away each one of the table.
#[test]
fn check_live_says_which_privileges_a_token_lacks() {
    for (privilege, path) in [
        ("VM.Clone", "/vms/9000"),
        ("SDN.Use", "/sdn/zones/localnetwork/vmbr0"),
    ] {
        let mut spec = PveSpec::default();
        let held = &mut spec.tokens[0].acl[0].privileges;
        let before = held.len();
        held.retain(|one| one != privilege);
        assert_eq!(held.len() + 1, before, "{privilege}");
        let (code, said) = check(&spec, TEMPLATE, "9100-9120");
        assert_eq!(code, Some(1), "{said}");
        let lacks =
            format!("WRONG: region default: the token scaler@pve!sim lacks {privilege} on {path};");
        assert!(said.contains(&lacks), "{lacks:?} is not in {said}");
    }
}

/// Machines get ISOs for cloud-init: a storage that takes none is told, and what a token needs for them.
#[test]
fn check_live_says_what_keeps_isos_for_cloud_init_away() {
    let table = |storage: &str| {
        format!("[template.debian.cloud_init]\nstorage = \"{storage}\"\n[instance_type.small]")
    };
    let mut spec = PveSpec::default();
    for (storage, words) in [
        (
            "local",
            "ok: template debian: storage local takes cloud-init's ISOs",
        ),
        (
            "shared",
            "WRONG: template debian: storage shared takes no ISOs (content iso), and cloud-init's come to it; pvesm set shared --content images,iso",
        ),
        (
            "local-lvm",
            "cloud-init's come to it; another storage in the template's cloud_init: type lvmthin holds no files",
        ),
        (
            "attic",
            "WRONG: template debian: the host pve1 has no storage attic (cloud_init.storage)",
        ),
        (
            "local",
            "lacks Datastore.Allocate, Datastore.AllocateTemplate on /storage/local; VM.Config.CDROM on /vms/9100;",
        ),
    ] {
        let changes = [("[instance_type.small]", &*table(storage))];
        let (_, said) = check_changed(&spec, TEMPLATE, "9100-9120", &changes);
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    let more = [
        "VM.Config.CDROM",
        "Datastore.Allocate",
        "Datastore.AllocateTemplate",
    ];
    let held = &mut spec.tokens[0].acl[0].privileges;
    held.extend(more.map(str::to_owned));
    let changes = [("[instance_type.small]", &*table("local"))];
    let (code, said) = check_changed(&spec, TEMPLATE, "9100-9120", &changes);
    assert_eq!(code, Some(0), "{said}");
}

/// Of a list each host takes the first storage that it has for ISOs; a host with none of them is told, with what each lacks.
#[test]
fn check_live_says_where_isos_of_a_list_come_to_and_which_host_has_no_storage_for_them() {
    let mut spec = PveSpec::default();
    let local = spec.storages.iter_mut().find(|of| of.name == "local");
    let local = local.expect("it is there");
    let mut files = local.clone();
    local.hosts = Some(vec!["pve1".to_owned(), "pve2".to_owned()]);
    "files".clone_into(&mut files.name);
    files.hosts = Some(vec!["pve2".to_owned()]);
    spec.storages.push(files);
    let table =
        "[template.debian.cloud_init]\nstorage = [\"files\", \"local\"]\n[instance_type.small]";
    let changes = [("[instance_type.small]", table)];
    let (code, said) = check_changed(&spec, TEMPLATE, "9100-9120", &changes);
    assert_eq!(code, Some(1), "{said}");
    for words in [
        "ok: template debian: cloud-init's ISOs come to local on pve1, files on pve2",
        "WRONG: template debian: cloud-init's ISOs come to no storage of the host pve3 (cloud_init.storage): none of the storages files or local takes content iso there: the host pve3 has no storage files, the host pve3 has no storage local;",
        // The token needs each of them.
        "Datastore.AllocateTemplate on /storage/files",
        "Datastore.AllocateTemplate on /storage/local",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
}

#[test]
fn check_live_says_what_hosts_lack_for_vms_that_are_made_of_settings() {
    let machine = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(machine.path(), "machine: {type: worker}\n").expect("written");
    let image = "local:import/a.qcow2";
    let mut spec = PveSpec::default();
    let file = |storage: &str| {
        format!(
            "bridge = \"vmbr0\"\n[template.debian.create]\nstorage = \"{storage}\"\nimage = \"{image}\"\n\
             [template.debian.cloud_init]\nstorage = \"local\"\nmachine_config_file = \"{}\"",
            machine.path().display()
        )
    };
    let named = format!("vm_name = \"{TEMPLATE}\"");
    let said_of = |spec: &PveSpec, storage: &str, mode: u32| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(machine.path(), mode).expect("changed");
        let changes = [
            (&*named, &*file(storage)),
            ("max = 2", "max = 2\njoin.method = \"self\""),
        ];
        check_changed(spec, TEMPLATE, "9100-9120", &changes).1
    };
    let said = said_of(&spec, "attic", 0o644);
    for words in [
        "no machine is made on pve1, pve2, pve3: it has no storage attic",
        "has mode 0644; wanted are owner root",
        "VM.Config.CDROM on /vms/9100",
        "ok: pool general: machines join by themselves; no token is made for them",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    let words = "no machine is made on pve1, pve2, pve3: there is no local:import/a.qcow2";
    let said = said_of(&spec, "shared", 0o600);
    assert!(said.contains(words), "{said}");
    spec.images = vec![image.to_owned()];
    let said = said_of(&spec, "shared", 0o600);
    for words in [
        "ok: template debian: VMs are made of settings on pve1, pve2, pve3",
        "is a worker's machine configuration",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
}

#[test]
fn check_live_asks_for_the_rights_to_approve_serving_certificates() {
    let simulators = Simulators::start(&PveSpec::default());
    let made = kubeconfig(&simulators);
    assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
    let config = simulators.config(&simulators.path("kubeconfig"), TEMPLATE, "9100-9120");
    let file = std::fs::read_to_string(&config).expect("it is there");
    let asked = file.replace(
        "[kubernetes]\n",
        "[kubernetes]\nserving_certificates = true\n",
    );
    std::fs::write(&config, asked).expect("written");
    let (code, said) = check_as(&own_name(), &config);
    assert_eq!(code, Some(1), "{said}");
    for words in [
        "update certificatesigningrequests/approval.certificates.k8s.io",
        "approve signers.certificates.k8s.io kubernetes.io/kubelet-serving",
        "serving-certificates.yaml",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
}

/// A token that sees its own machines alone promises their hosts' memory a second time.
#[test]
fn check_live_says_that_guests_are_not_seen() {
    let mut spec = PveSpec::default();
    let acl = &mut spec.tokens[0].acl;
    acl[0].privileges.retain(|one| one != "VM.Audit");
    for path in ["/vms/9000", "/vms/9100"] {
        acl.push(AclSpec {
            path: path.to_owned(),
            privileges: [&acl[0].privileges[..], &["VM.Audit".to_owned()]].concat(),
        });
    }
    let (code, said) = check(&spec, TEMPLATE, "9100-9120");
    assert_eq!(code, Some(0), "{said}");
    let unseen = "warning: region default: the token scaler@pve!sim lacks VM.Audit on /vms: ";
    assert!(said.contains(unseen), "{said}");
    let (_, said) = check(&PveSpec::default(), TEMPLATE, "9100-9120");
    assert!(!said.contains("VM.Audit"), "{said}");
}

/// Root may read everything: the check goes on with the rights of the daemon's user, before it reads anything.
#[test]
fn check_live_judges_with_the_rights_of_the_daemons_user() {
    const OTHER: &str = "nobody";
    if !geteuid().is_root() || User::from_name(OTHER).ok().flatten().is_none() {
        println!("skipped: only root can go on as another user, such as {OTHER}");
        return;
    }
    let simulators = Simulators::start(&PveSpec::default());
    let admin = simulators.path("admin.conf");
    let config = simulators.config(&admin, TEMPLATE, "9100-9120");
    let mode = |path: &Path, mode: u32| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, mode).expect("it is ours");
    };
    let (folder, secret) = (simulators.folder.path(), simulators.path("secret"));
    for (path, bits) in [
        // The control socket would lie there.
        (folder, 0o777),
        (&config, 0o644),
        (&admin, 0o644),
        (&secret, 0o644),
    ] {
        mode(path, bits);
    }
    let (code, said) = check_as(OTHER, &config);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("ok: user: looked with the rights of nobody"),
        "{said}"
    );
    let denied = |path: &Path, bits: u32, words: &str| {
        let good = std::fs::metadata(path).expect("it is there").permissions();
        mode(path, bits);
        let (code, said) = check_as(OTHER, &config);
        std::fs::set_permissions(path, good).expect("it is ours");
        assert!(code == Some(1) || code == Some(2), "{said}");
        assert!(
            said.contains(words) && said.contains("Permission denied"),
            "{said}"
        );
    };
    denied(&secret, 0o600, "WRONG: file: token_secret_file");
    denied(&admin, 0o600, "WRONG: file: kubeconfig");
    denied(&config, 0o600, "config.toml");
    denied(folder, 0o700, "config.toml");

    let (_, said) = check_as("no-such-user", &config);
    assert!(
        said.contains("warning: user: there is no user no-such-user"),
        "{said}"
    );
}

/// Asks the daemon, until it answers what is wanted.
fn asked(socket: &Path, command: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let mut last = String::new();
    for _ in 0..TRIES {
        let output = program()
            .args([command, "-o", "json", "--socket"])
            .arg(socket)
            .output()
            .expect("it runs");
        match serde_json::from_slice::<Value>(&output.stdout) {
            Ok(answer) if wanted(&answer) => return answer,
            _ => last = text(&output.stdout) + &text(&output.stderr),
        }
        std::thread::sleep(PAUSE);
    }
    panic!("{command} never said it: {last}");
}

/// The daemon's names are offered to a shell that asks with the words typed so far.
fn names_are_completed(socket: &Path) {
    let offered = |words: &[&str]| {
        let output = program()
            .env("PVE_AUTOSCALER_COMPLETE", "fish")
            .args(["--", "pve-autoscaler"])
            .arg("--config=/nonexistent")
            .args(words)
            .output()
            .expect("it runs");
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let socket = socket.to_str().expect("a path in UTF-8");
    assert_eq!(offered(&["retry", "--socket", socket, "gen"]), "general\n");
    assert_eq!(offered(&["retry", "--socket", socket, "x"]), "");
}

pub(crate) fn kubeconfig(simulators: &Simulators) -> Output {
    program()
        .arg("kubeconfig")
        .arg("--kubeconfig")
        .arg(simulators.path("admin.conf"))
        // The administrator's leads to this host alone, which the command would not take.
        .arg("--server")
        .arg(&simulators.kube)
        .arg("--output")
        .arg(simulators.path("kubeconfig"))
        .output()
        .expect("it runs")
}

/// The daemon of a configuration whose pool has its addresses of the network `lan` and a machine at least, and its control socket.
fn start_networked_daemon(simulators: &Simulators, network: &str) -> (Process, PathBuf) {
    let made = kubeconfig(simulators);
    assert_eq!(made.status.code(), Some(0), "{}", text(&made.stderr));
    let config = simulators.config(&simulators.path("kubeconfig"), TEMPLATE, "9100-9120");
    let file = std::fs::read_to_string(&config).expect("it is there");
    let wanted = file.replace("max = 2\n", "min = 1\nmax = 2\nnetwork = \"lan\"\n");
    assert_ne!(wanted, file);
    std::fs::write(&config, format!("{wanted}[network.lan]\n{network}")).expect("written");
    let socket = simulators.path("control.sock");
    (start_daemon(simulators, &config, &socket), socket)
}

/// Whoever looks for the machine behind an address finds it, from its clone on, in both that are asked, as text and as JSON.
#[test]
fn status_and_explain_name_a_machines_addresses() {
    let simulators = Simulators::start(&PveSpec::default());
    let network = "subnet = \"192.0.2.0/24\"\nranges = [\"192.0.2.50-192.0.2.51\"]\n\
                   subnet6 = \"2001:db8::/64\"\nranges6 = [\"2001:db8::50-2001:db8::5f\"]\n";
    let (_daemon, socket) = start_networked_daemon(&simulators, network);
    let machines = |status: &Value| status["machines"].as_object().cloned().unwrap_or_default();
    let status = asked(&socket, "status", |status| !machines(status).is_empty());
    let (machine, facts) = machines(&status).into_iter().next().expect("one");
    let addresses = json!({"0": ["192.0.2.50", "2001:db8::50"]});
    assert_eq!(facts["addresses"], addresses, "{status}");
    let said = |arguments: &[&str]| {
        let mut command = program();
        let command = command.args(arguments).arg("--socket").arg(&socket);
        let output = command.output().expect("it runs");
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let story = said(&["explain", "node", &machine, "-o", "json"]);
    let story: Value = serde_json::from_str(&story).expect("JSON");
    assert_eq!(story["machine"]["addresses"], addresses, "{story}");
    for (arguments, place) in [
        (&["status", "-o", "wide"][..], " in default"),
        (&["explain", "node", &*machine][..], ""),
    ] {
        let said = said(arguments);
        let host = facts["host"].as_str().expect("a name");
        let wanted = format!(" {host}{place}, 192.0.2.50, 2001:db8::50");
        assert!(said.contains(&wanted), "{wanted:?} is not in {said}");
    }
}

/// The real daemon asks the real kernel: all addresses of the loopback network are this host's own, so that no machine is made, and
/// `status` says of each who has it.
#[test]
fn addresses_that_answer_on_the_wire_are_given_to_nobody() {
    let simulators = Simulators::start(&PveSpec::default());
    let network =
        "subnet = \"127.0.0.0/24\"\nranges = [\"127.0.0.50-127.0.0.51\"]\nask_on_wire = true\n";
    let (_daemon, socket) = start_networked_daemon(&simulators, network);
    let found = |status: &Value| status["networks"]["lan"]["v4"]["on_wire"].clone();
    let status = asked(&socket, "status", |status| {
        found(status)
            .as_object()
            .is_some_and(|found| found.len() == 2)
    });
    for address in ["127.0.0.50", "127.0.0.51"] {
        assert_eq!(found(&status)[address]["sign"], "own_host", "{status}");
    }
    assert_eq!(status["networks"]["lan"]["v4"]["free"], 0, "{status}");
    let mut shown = program();
    let shown = shown.arg("status").arg("--socket").arg(&socket).output();
    let shown = text(&shown.expect("it runs").stdout);
    assert!(
        shown.contains("127.0.0.51 is an address of the daemon's own host"),
        "{shown}"
    );
    let plan = asked(&socket, "plan", |plan| plan["plan"].is_array());
    assert_eq!(plan["plan"], Value::Array(Vec::new()), "{plan}");
}

/// The command makes a key, an administrator's approval has the cluster sign its certificate, and the daemon runs
/// with that certificate in its TLS handshakes and no right beyond the manifest's.
#[test]
fn the_daemon_runs_with_the_kubeconfig_that_the_command_makes() {
    let simulators = Simulators::start(&PveSpec::default());
    let made = kubeconfig(&simulators);
    let said = text(&made.stdout) + &text(&made.stderr);
    assert_eq!(made.status.code(), Some(0), "{said}");
    assert!(
        said.contains("user pve-autoscaler at https://127.0.0.1:"),
        "{said}"
    );
    // The certificate's end stands as times do elsewhere, and a terminal gets no line that is wider than it.
    let until = said.split(", until ").nth(1).unwrap_or_default();
    let until = until.lines().next().unwrap_or_default();
    let read: Option<jiff::civil::DateTime> = until.parse().ok();
    assert!(read.is_some() && until.contains(' '), "{said}");
    let again = simulators.path("again.conf");
    let admin = simulators.path("admin.conf");
    let name = |path: &Path| path.to_str().expect("a path in UTF-8").to_owned();
    let shown = on_terminal(
        60,
        &[
            "kubeconfig",
            "--kubeconfig",
            &name(&admin),
            "--server",
            &simulators.kube,
            "--output",
            &name(&again),
        ],
    );
    for line in shown.lines() {
        let one = line.split_whitespace().count() == 1;
        assert!(line.chars().count() <= 60 || one, "{line:?}: {shown}");
    }
    assert!(shown.contains("\n    "), "it goes on further in: {shown}");
    let path = simulators.path("kubeconfig");
    let file = std::fs::read_to_string(&path).expect("it is there");
    assert!(file.contains("client-certificate-data"), "{file}");
    assert!(!file.contains("token:"), "{file}");

    let config = simulators.config(&path, TEMPLATE, "9100-9120");
    let (code, said) = check_as(&own_name(), &config);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("all rights that the daemon needs are granted"),
        "{said}"
    );

    let socket = simulators.path("control.sock");
    let mut daemon = start_daemon(&simulators, &config, &socket);
    let plan = asked(&socket, "plan", |plan| {
        plan["report"]["holds"]
            .as_array()
            .is_some_and(Vec::is_empty)
    });
    assert_eq!(plan["plan"], Value::Array(Vec::new()), "{plan}");

    watched(&socket, &["status"], "pve-autoscaler ");
    watched(&socket, &["plan", "-o", "json"], "  \"schema_version\"");
    // What is not there may come: it is asked for again.
    watched(&socket, &["explain", "node", "w-1"], "");
    watched(&socket, &["explain", "pod", "a/b"], "");
    let retry = |pool: &str| {
        let mut command = program();
        let command = command.args(["retry", pool, "--socket"]).arg(&socket);
        let output = command.output().expect("it runs");
        let said = text(&output.stdout) + &text(&output.stderr);
        (output.status.code(), said)
    };
    let (code, said) = retry("general");
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("no failure holds the pool general back"),
        "{said}"
    );
    let (code, said) = retry("genral");
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("there is no pool genral; the pools are general"),
        "{said}"
    );
    names_are_completed(&socket);
    let (_, said) = check_as(&own_name(), &config);
    assert!(
        said.contains("ok: daemon: it answers and runs with this file"),
        "{said}"
    );
    assert!(
        said.contains("ok: kubernetes: this host holds the Lease"),
        "{said}"
    );
    let file = std::fs::read_to_string(&config).expect("it is there");
    std::fs::write(&config, file + "# edited\n").expect("written");
    let (_, said) = check_as(&own_name(), &config);
    assert!(
        said.contains("another configuration than this file; systemctl reload"),
        "{said}"
    );

    let id = nix::unistd::Pid::from_raw(i32::try_from(daemon.0.id()).expect("an id"));
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM).expect("it runs");
    assert_eq!(daemon.0.wait().expect("it ends").code(), Some(0));
}

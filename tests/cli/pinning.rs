//! `host-pinning` on a made-up host, with a process that runs.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use pve_autoscaler::model::cpus::CpuSet;
use pve_autoscaler::model::mark::Mark;
use pve_autoscaler::model::time::Time;
use pve_autoscaler::sim::pve::PveSpec;
use tempfile::TempDir;

use super::service::{replace, until};
use super::traces::Stage;
use super::{program, text};

/// A process that ends with the test.
struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Guest {
    /// One whose thread has the name that KVM gives that of a vCPU.
    fn starts() -> Guest {
        let script = "printf 'CPU 0/KVM' >/proc/self/comm; read -r _";
        let child = Command::new("bash")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .spawn();
        let guest = Guest(child.expect("bash"));
        for _ in 0..1_000 {
            if guest.told("Name:") == "CPU 0/KVM" {
                return guest;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("it has no name");
    }

    /// What the kernel tells of it.
    fn told(&self, key: &str) -> String {
        let path = format!("/proc/{}/status", self.0.id());
        let status = std::fs::read_to_string(path).expect("it runs");
        let mut lines = status.lines();
        let value = lines.find_map(|line| line.strip_prefix(key));
        value.expect("the key").trim().to_owned()
    }
}

fn write(root: &TempDir, path: &str, text: &str) {
    let path = root.path().join(path);
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    std::fs::write(path, text).expect("written");
}

/// A host with these CPUs on which the VM runs that the process stands for.
fn host(cpus: &CpuSet, guest: &Guest, notes: &str, affinity: u16) -> TempDir {
    let root = tempfile::tempdir().expect("a directory");
    let system = "sys/devices/system";
    write(&root, &format!("{system}/cpu/online"), &cpus.to_string());
    for cpu in cpus.iter() {
        let of = format!("{system}/cpu/cpu{cpu}/topology");
        write(
            &root,
            &format!("{of}/thread_siblings_list"),
            &cpu.to_string(),
        );
        write(&root, &format!("{of}/physical_package_id"), "0");
    }
    write(&root, &format!("{system}/node/online"), "0");
    write(
        &root,
        &format!("{system}/node/node0/cpulist"),
        &cpus.to_string(),
    );
    write(
        &root,
        &format!("{system}/node/node0/meminfo"),
        "Node 0 MemTotal:  33554432 kB\n",
    );
    let pid = guest.0.id();
    let conf = format!("#{notes}\naffinity: {affinity}\ncores: 1\n");
    write(&root, "etc/pve/qemu-server/910.conf", &conf);
    write(&root, "run/qemu-server/910.pid", &format!("{pid}\n"));
    write(
        &root,
        &format!("proc/{pid}/cmdline"),
        "/usr/bin/kvm\0-id\0910\0",
    );
    let tasks = root.path().join(format!("proc/{pid}/task"));
    symlink(format!("/proc/{pid}/task"), tasks).expect("linked");
    root
}

fn pins(root: &TempDir, options: &[&str]) -> Output {
    let mut command = program();
    command.arg("host-pinning").args(options);
    command.arg("--root").arg(root.path());
    command.output().expect("it runs")
}

/// Nobody is left after `--once` to give governors back; after a crash of the service its unit does.
#[test]
fn governors_are_given_back_after_a_crash_and_not_set_once() {
    let root = tempfile::tempdir().expect("a directory");
    let governor = "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor";
    write(&root, governor, "performance\n");
    let state = "run/pve-autoscaler-pinning/governors.json";
    let before = r#"{"1":{"first":"powersave","given":"performance"}}"#;
    write(&root, state, before);
    let output = pins(&root, &["--once", "--governor", "performance"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("--once sets no --governor"), "{said}");
    let output = pins(&root, &["--give-back"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert_eq!(said, "CPU 1: governor powersave, as before\n");
    let is = std::fs::read_to_string(root.path().join(governor)).expect("it is there");
    assert_eq!(is.trim(), "powersave");
}

/// The mark of VM 910, with this CPU of its own.
fn mark(cpu: u16) -> Mark {
    Mark {
        cluster: "uid/home".into(),
        machine: "fast-abcde".into(),
        vmid: 910,
        pool: "fast".into(),
        instance_type: "f1".into(),
        template: "debian".into(),
        token: "abcdef".into(),
        created: Time(0),
        addresses: BTreeMap::new(),
        cpus: CpuSet::read(&cpu.to_string()).expect("a list"),
        unknown: [].into(),
    }
}

#[test]
fn a_vcpu_is_put_on_its_cpu_and_nobody_elses_is() {
    let guest = Guest::starts();
    let allowed = guest.told("Cpus_allowed_list:");
    let cpus = CpuSet::read(&allowed).expect("a list");
    let last = cpus.iter().last().expect("a CPU");
    let mark = mark(last);
    let theirs = host(&cpus, &guest, "mine", last);
    let output = pins(&theirs, &["--once"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.contains("0 vCPUs of 0 machines"), "{said}");
    assert_eq!(guest.told("Cpus_allowed_list:"), allowed, "it is not ours");

    let ours = host(&cpus, &guest, &mark.line().replace(':', "%3A"), last);
    let output = pins(&ours, &["--show"]);
    assert!(text(&output.stdout).contains("does not run on this host"));
    assert_eq!(
        guest.told("Cpus_allowed_list:"),
        allowed,
        "--show changes nothing"
    );
    let output = pins(&ours, &["--once"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    let wanted = format!("VM 910 (fast-abcde), CPUs {last}: 0 on {last}");
    assert!(said.contains(&wanted), "{said}");
    assert_eq!(guest.told("Cpus_allowed_list:"), last.to_string());
}

/// The service looks once an hour, and is woken by the kernel when QEMU writes its process id: the vCPU is placed at once, and nothing looks
/// again without news. It finds a service that waits for its next look, and one that looks without end.
#[test]
fn a_vm_that_starts_is_seen_at_once_and_nobody_looks_without_end() {
    let guest = Guest::starts();
    let allowed = guest.told("Cpus_allowed_list:");
    let cpus = CpuSet::read(&allowed).expect("a list");
    let last = cpus.iter().last().expect("a CPU");
    let root = host(&cpus, &guest, &mark(last).line().replace(':', "%3A"), last);
    let pid = root.path().join("run/qemu-server/910.pid");
    std::fs::remove_file(&pid).expect("removed");
    let mut command = program();
    command.args(["host-pinning", "--every", "3600", "--root"]);
    let _service = Guest(command.arg(root.path()).spawn().expect("it runs"));
    let report = root.path().join("run/pve-autoscaler-pinning/report.json");
    // When the last look was.
    let at = || {
        let text = std::fs::read_to_string(&report).unwrap_or_default();
        let told: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        told["at"].to_string()
    };
    let placed = || std::fs::read_to_string(&report).unwrap_or_default();
    until("the first look", placed, &["\"machines\":{}"], &[]);
    let first = at();
    // Another VM's files are no start, and neither is what a VM makes later.
    write(&root, "run/qemu-server/911.vnc", "");
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(at(), first, "nothing has started");
    write(
        &root,
        "run/qemu-server/910.pid",
        &format!("{}\n", guest.0.id()),
    );
    until("the look", placed, &["\"machines\":{\"910\":"], &[]);
    assert_eq!(guest.told("Cpus_allowed_list:"), last.to_string());
    let second = at();
    assert_ne!(second, first);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(at(), second, "there are no news");
    // Of a burst of starts one look is made, and not one a file.
    for vmid in 920..990 {
        write(&root, &format!("run/qemu-server/{vmid}.qmp"), "");
    }
    until("a look at the burst", at, &[], &[&second]);
    let mut looks = BTreeSet::new();
    for _ in 0..150 {
        looks.insert(at());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!((1..=3).contains(&looks.len()), "{looks:?}");
}

/// A daemon on a host on which a pool pins, and no service places vCPUs. It finds a status that is silent about it, and one that
/// says it of a host that it cannot see.
#[test]
fn status_says_whether_vcpus_are_placed_on_the_daemons_host() {
    let here = nix::unistd::gethostname().expect("a name");
    let here = here.to_string_lossy();
    let here = here.split('.').next().unwrap_or_default().to_owned();
    let mut spec = PveSpec::default();
    let other = spec.hosts[0].name.clone();
    for machine in &mut spec.machines {
        if machine.host == spec.hosts[1].name {
            machine.host.clone_from(&here);
        }
    }
    spec.hosts[1].name.clone_from(&here);
    let stage = Stage::of(spec, 9);
    let socket = stage.path("broker.sock");
    stage.open_broker(&socket);
    let file = std::fs::read_to_string(&stage.config).expect("it is there");
    let token = [
        "channel",
        "endpoints",
        "token_id",
        "token_secret",
        "fingerprint",
    ];
    let lines = file
        .lines()
        .filter(|line| !token.iter().any(|key| line.starts_with(key)));
    let cores: Vec<String> = (0..32).map(|cpu| format!("\"{cpu}\"")).collect();
    let topology = |host: &str| {
        format!(
            "[proxmox.topology.{host}]\nnuma = [\"0-31\"]\ncores = [{}]\n",
            cores.join(", ")
        )
    };
    let file = lines.collect::<Vec<_>>().join("\n");
    let broker = format!("[broker]\nsocket = \"{}\"\n", socket.display());
    let file = format!("{file}\n{}{}{broker}", topology(&here), topology(&other));
    std::fs::write(&stage.config, file).expect("written");
    replace(&stage.config, "max = 2\n", "max = 2\ncpu_pinning = true\n");
    let _daemon = stage.daemon("log");
    let status = || {
        let output = program()
            .args(["status", "-o", "json", "--socket"])
            .arg(stage.path("control.sock"))
            .output()
            .expect("it runs");
        text(&output.stdout) + &text(&output.stderr)
    };
    let words = "vCPUs are where PVE put them: pve-autoscaler-pinning.service does not run";
    let said = until("status", status, &[words], &[]);
    let told: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let hosts = &told["hosts"]["default"];
    assert!(hosts[&here]["notes"].to_string().contains(words), "{said}");
    assert!(hosts[&other].is_object(), "{said}");
    assert_eq!(said.matches(words).count(), 1, "{said}");
}

//! `template build|prune` in two PVE clusters whose hosts have the same names, and on machines that are not what their names say.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pve_autoscaler::clock::Clock;
use pve_autoscaler::controller::template_mark::{BuildStage, TemplateMark};
use pve_autoscaler::pve::ConfigUpdate;
use pve_autoscaler::sim::pve::PveSpec;

use super::simulators::Simulators;
use super::templates::{Bench, IMAGE, SUM, administrator, clone_as, wait_until_listed};

/// What the kernel calls the machine that the tests run on, as PVE would call it.
fn this_machine() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("it has a name");
    let name = name.trim().split('.').next().unwrap_or_default();
    name.to_owned()
}

/// A cluster whose hosts are called as those of the other one, at addresses of their own.
fn west(bench: &Bench) -> Simulators {
    let mut spec = PveSpec {
        cluster: "west".to_owned(),
        ..PveSpec::default()
    };
    for host in &mut spec.hosts {
        host.address = host.address.replace("192.0.2.", "198.51.100.");
    }
    let folder = tempfile::tempdir().expect("a folder");
    Bench::cluster(folder, &mut spec, &bench.simulators.path("files/west"))
}

/// Makes the configuration one of two regions, with a template to be built in each.
fn with_west(bench: &Bench, west: &Simulators) {
    let text = std::fs::read_to_string(&bench.config).expect("it is there");
    let text = text.replace("[proxmox]", "[region.east]").replace(
        "[template.debian]\n",
        "[template.debian]\nregion = \"east\"\n",
    );
    let text = format!(
        "{text}
[region.west]
channel = \"token\"
endpoints = [\"{}\"]
token_id = \"scaler@pve!sim\"
token_secret_file = \"{}\"
fingerprint = \"{}\"
vmids = \"9100-9120\"
[template.debian-west]
region = \"west\"
vm_name = \"built\"
[template.debian-west.build]
vmids = \"8000-8019\"
image = \"{IMAGE}\"
checksum = \"sha256:{SUM}\"
storage = \"local-lvm\"
kubernetes = \"1.34\"
[pool.west]
template = \"debian-west\"
instance_types = [\"small\"]
max = 2
",
        west.pve,
        west.path("secret").display(),
        west.fingerprint
    );
    std::fs::write(&bench.config, text).expect("written");
}

/// The folder of a host's snippets.
fn snippets(bench: &Bench, host: &str) -> PathBuf {
    let host = bench.simulators.path("files").join(host);
    host.join("var/lib/vz/snippets")
}

/// How ssh was called.
fn calls_of_ssh(bench: &Bench) -> String {
    std::fs::read_to_string(bench.simulators.path("files/ssh.log")).expect("it was called")
}

/// It finds a build that goes to a host by its name, which the other cluster's host has, too, or that trusts a key of the name.
#[test]
fn a_template_of_another_cluster_comes_to_that_clusters_hosts() {
    let bench = Bench::new();
    let west = west(&bench);
    with_west(&bench, &west);
    let said = bench.good(&["build", "debian-west"]);
    assert!(said.contains("3 templates built, 0 up to date"), "{said}");
    for host in ["pve1", "pve2", "pve3"] {
        assert!(snippets(&bench, &format!("west/{host}")).exists(), "{host}");
        assert!(!snippets(&bench, host).exists(), "{host}");
    }
    let calls = calls_of_ssh(&bench);
    for line in calls.lines() {
        assert!(line.contains(" root@198.51.100."), "{line}");
        for word in ["HostKeyAlias", "KnownHostsFile"] {
            assert!(!line.contains(word), "{line}");
        }
    }
    let said = bench.good(&["build"]);
    assert!(said.contains("3 templates built, 3 up to date"), "{said}");
    assert!(snippets(&bench, "pve1").exists());
    assert_eq!(
        bench.listed(),
        [
            "debian pve1 8000 built ready current 0",
            "debian pve2 8001 built ready current 0",
            "debian pve3 8002 built ready current 0",
            "debian-west pve1 8000 built ready current 0",
            "debian-west pve2 8001 built ready current 0",
            "debian-west pve3 8002 built ready current 0",
        ]
    );
}

/// Behind a token: the host may be another cluster's. It finds a build that writes on this machine since it has the name.
#[test]
fn a_host_that_is_called_as_this_machine_is_not_this_machine() {
    let mut spec = PveSpec::default();
    let name = this_machine();
    let mut host = spec.hosts[0].clone();
    host.name.clone_from(&name);
    "192.0.2.14".clone_into(&mut host.address);
    spec.hosts.push(host);
    let bench = Bench::of(spec);
    let files = bench.simulators.path("files");
    std::fs::create_dir_all(&files).expect("made");
    std::fs::write(files.join("at-192.0.2.14"), &name).expect("written");
    bench.good(&["build", "--host", &name]);
    assert!(snippets(&bench, &name).exists());
    assert!(calls_of_ssh(&bench).contains(" root@192.0.2.14 "));
}

#[test]
fn a_host_that_cannot_be_reached_is_told_with_what_to_type_and_nothing_is_made() {
    let mut spec = PveSpec::default();
    spec.hosts[1].address = String::new();
    let bench = Bench::of(spec);
    let (code, said) = bench.run(&["build", "--host", "pve2"]);
    assert_eq!(code, Some(1), "{said}");
    let told = "cannot be brought to pve2: PVE of region default names no address of it";
    assert!(said.contains(told), "{said}");
    assert!(!said.contains("downloading"), "{said}");

    // The address leads to a host of somebody else's.
    let files = bench.simulators.path("files");
    std::fs::create_dir_all(&files).expect("made");
    std::fs::write(files.join("called-192.0.2.11"), "mail").expect("written");
    let (code, said) = bench.run(&["build", "--host", "pve1"]);
    assert_eq!(code, Some(1), "{said}");
    for words in [
        "by ssh: the host at this address is called mail; root of this machine must reach root@192.0.2.11, the address of pve1 that PVE of region default names",
        "type `ssh root@192.0.2.11` here as root",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    assert!(!snippets(&bench, "pve1").exists());
    assert!(bench.good(&["list"]).contains("no template is built"));
}

/// Makes the VM of a build.
fn make_building(bench: &Bench, vmid: u32, by: String, machine: Option<&str>, hours: i64) {
    let mark = TemplateMark {
        template: "debian".to_owned(),
        cluster: "default".to_owned(),
        vmid,
        definition: String::new(),
        stage: BuildStage::Building,
        by,
        machine: machine.map(str::to_owned),
        begun: Clock::System.now().0 / 1_000 - hours * 3_600,
        unknown: [].into(),
    };
    clone_as(&bench.simulators, 9_000, vmid, ("built", &mark.describe()));
    // A build's VM is protected once it is a template, and the one that was cloned here is.
    let update = ConfigUpdate {
        set: BTreeMap::from([("protection".to_owned(), "0".to_owned())]),
        ..ConfigUpdate::default()
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let client = administrator(&bench.simulators);
    let taken = runtime.block_on(client.update_config("pve1", vmid, &update));
    taken.expect("it is unprotected");
}

/// Builds that another machine began. It finds one that is taken for dead while it may be under way, and one that is taken for alive since
/// a process of this machine has its number.
#[test]
fn a_process_of_another_machine_is_neither_alive_nor_dead() {
    let bench = Bench::new();
    let other = Some("0b0b0b0b0b0b");
    let alive = format!("{}/{}", this_machine(), bench.simulators.process());
    make_building(&bench, 8_000, "pve1/7".to_owned(), other, 0);
    make_building(&bench, 8_001, alive.clone(), other, 48);
    // As older versions wrote it, in a region that may be another cluster.
    make_building(&bench, 8_002, alive.clone(), None, 48);
    make_building(&bench, 8_003, alive, None, 0);
    wait_until_listed(&bench.simulators, &[8_000, 8_001, 8_002, 8_003]);
    let (code, said) = bench.run(&["build", "--host", "pve1"]);
    assert_eq!(code, Some(1), "{said}");
    let told = "VM 8000 is being built by process 7 of a machine called pve1, whose processes nobody sees from here; it counts as over ";
    assert!(said.contains(told), "{said}");
    let told = "Where it runs no more, `qm stop 8000; qm destroy 8000` on pve1 removes the VM now";
    assert!(said.contains(told), "{said}");
    let said = bench.good(&["prune"]);
    for words in [
        "VM 8000 (built) is being built by process 7 of a machine called pve1",
        "VM 8001 (built) is removed",
        "VM 8002 (built) is removed",
        "VM 8003 (built) is being built by process ",
        "2 templates removed",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
}

/// A pool that may not use a host takes no template there, whatever other pools of the region may use.
#[test]
fn templates_come_to_the_hosts_of_their_own_pools() {
    let bench = Bench::new();
    let text = std::fs::read_to_string(&bench.config).expect("it is there");
    let own = text.replace(
        "[pool.general]\n",
        "[pool.general]\nhosts = [\"pve2\", \"pve3\"]\n",
    );
    let text = format!(
        "{own}
[template.other]
vm_name = \"other\"
[pool.other]
template = \"other\"
instance_types = [\"small\"]
max = 1
"
    );
    std::fs::write(&bench.config, text).expect("written");
    let said = bench.good(&["build"]);
    assert!(said.contains("2 templates built, 0 up to date"), "{said}");
    assert!(!said.contains("debian on pve1"), "{said}");
}

//! `template try` against a simulated cluster whose guests are scripts.

use super::templates::{Bench, protect};

/// What a guest that is as it should be tells; the script fills in NAME and CLOCK.
const FACTS: &str = "system=Debian GNU/Linux 13 (trixie)\nkernel=6.12.48\nhostname=NAME\nmachine_id=own\nhost_keys=own\n\
    cloud_init=done\njoined=no\nkubeadm=v1.34.2\nkubelet=v1.34.2\nruntime=/run/containerd/containerd.sock\nswap=0\n\
    forward=1\naddress=192.0.2.7\nclock=CLOCK\nroot_bytes=0\napi=yes\n";

/// A cluster with the template built on one host, and guests that tell `facts`.
fn bench(facts: &str) -> Bench {
    let bench = Bench::new();
    let said = bench.good(&["build", "--host", "pve2"]);
    assert!(said.contains("1 template built"), "{said}");
    let path = bench.simulators.path("guests/facts");
    std::fs::write(path, facts).expect("written");
    // The simulated API server is at an address of this machine, where no guest could join.
    let text = std::fs::read_to_string(&bench.config).expect("it is there");
    let text = text + "\n[pool.general.join]\nendpoint = \"api.example:6443\"\n";
    std::fs::write(&bench.config, text).expect("written");
    bench
}

/// VMIDs of all VMs but the templates that were built.
fn left(bench: &Bench) -> Vec<u32> {
    let mut left = bench.vmids();
    left.retain(|vmid| (9100..=9120).contains(vmid));
    left
}

#[test]
fn a_good_template_passes_and_nothing_is_left() {
    let bench = bench(FACTS);
    let said = bench.good(&["try"]);
    for words in [
        "cloning VM 8000 to VM 9120",
        "the agent answers, ",
        "the first boot is over, ",
        "removing VM 9120",
        "ok: template debian on pve2: it boots Debian GNU/Linux 13 (trixie), Linux 6.12.48",
        "ok: template debian on pve2: it took its VM's name",
        "ok: template debian on pve2: kubeadm v1.34.2, kubelet v1.34.2",
        "ok: template debian on pve2: its kubelet v1.34.2 goes with the API server v1.34.1",
        "ok: template debian on pve2: its kubeadm v1.34.2 goes with the API server v1.34.1",
        "ok: template debian on pve2: it reaches the API server at api.example:6443",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    assert!(
        !said.contains("WRONG") && !said.contains("warning"),
        "{said}"
    );
    assert!(left(&bench).is_empty());
    let tried = std::fs::read_to_string(bench.simulators.path("guests/tried"));
    assert_eq!(tried.expect("the guest was asked"), "api.example:6443\n");
}

/// After a change of the definition that not all hosts have yet, the older copy has the lower VMID.
#[test]
fn without_a_host_the_copy_of_the_definition_as_it_is_is_tried() {
    let bench = bench(FACTS);
    let text = std::fs::read_to_string(&bench.config).expect("it is there");
    let changed = text.replace(
        "kubernetes = \"1.34\"",
        "kubernetes = \"1.34\"\npackages = [\"gizmo\"]",
    );
    assert_ne!(changed, text);
    std::fs::write(&bench.config, changed).expect("written");
    bench.good(&["build", "--host", "pve3"]);
    let said = bench.good(&["try"]);
    assert!(said.contains("cloning VM 8001 to VM 9120"), "{said}");
    assert!(said.contains("ok: template debian on pve3"), "{said}");
    assert!(!said.contains("debian on pve2"), "{said}");
    let said = bench.good(&["try", "--host", "pve2"]);
    assert!(said.contains("cloning VM 8000 to VM 9120"), "{said}");
}

#[test]
fn what_would_fail_a_join_is_said_and_ends_with_1() {
    let facts = FACTS.replace("hostname=NAME", "hostname=localhost");
    let bench = bench(&facts.replace("machine_id=own", "machine_id=template"));
    let (code, said) = bench.run(&["try", "debian", "--host", "pve2"]);
    assert_eq!(code, Some(1), "{said}");
    for words in [
        "WRONG: template debian on pve2: the guest is called localhost and its VM pve-autoscaler-trial-9120",
        "WRONG: template debian on pve2: /etc/machine-id is the template's",
        "truncate -s 0 /etc/machine-id",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    assert!(left(&bench).is_empty());
}

/// The guest's kubelet and kubeadm are told as newer and older than the simulated API server, which is v1.34.1.
#[test]
fn versions_that_may_not_join_are_said() {
    let bench = bench(FACTS);
    let tell = |version: &str| {
        let facts = FACTS.replace("v1.34.2", version);
        std::fs::write(bench.simulators.path("guests/facts"), facts).expect("written");
    };
    tell("v1.36.0");
    let (code, said) = bench.run(&["try"]);
    assert_eq!(code, Some(1), "{said}");
    let words = "WRONG: template debian on pve2: its kubelet v1.36.0 is newer than the API server v1.34.1, and no kubelet may be; \
        kubernetes = \"1.34\" in [template.debian.build], and pve-autoscaler template build debian; or upgrade the control plane first";
    assert!(said.contains(words), "{said}");
    tell("v1.33.1");
    let said = bench.good(&["try"]);
    for words in [
        "ok: template debian on pve2: its kubelet v1.33.1 goes with the API server v1.34.1",
        "warning: template debian on pve2: its kubeadm v1.33.1 is older than the API server v1.34.1",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    // Nobody listens there.
    let path = bench.simulators.path("admin.conf");
    let text = std::fs::read_to_string(&path).expect("it is there");
    let gone = text.replace(&bench.simulators.kube, "https://127.0.0.1:1");
    assert_ne!(gone, text);
    std::fs::write(&path, gone).expect("written");
    let said = bench.good(&["try"]);
    let words = "unseen: template debian on pve2: not compared with the API server, which did not tell its version: kubelet, kubeadm (";
    assert!(said.contains(words) && !said.contains("WRONG"), "{said}");
    assert!(left(&bench).is_empty());
}

#[test]
fn a_guest_that_refuses_commands_is_told_of_and_removed() {
    let bench = bench(FACTS);
    let text = std::fs::read_to_string(&bench.config).expect("it is there");
    std::fs::write(&bench.config, text + "\n[lifecycle]\nos = \"3s\"\n").expect("written");
    bench.guests("refuse");
    let (code, said) = bench.run(&["try"]);
    assert_eq!(code, Some(1), "{said}");
    for words in [
        "is guest-exec blocked in its configuration",
        "The command guest-exec has been disabled for this instance",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    assert!(left(&bench).is_empty());
}

#[test]
fn a_mute_guest_is_kept_if_that_is_wanted_and_removed_by_the_next_trial() {
    let bench = bench(FACTS);
    let text = std::fs::read_to_string(&bench.config).expect("it is there");
    std::fs::write(&bench.config, text + "\n[lifecycle]\nagent = \"2s\"\n").expect("written");
    bench.guests("mute");
    let (code, said) = bench.run(&["try", "--keep"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("the guest agent did not answer within 2s"),
        "{said}"
    );
    assert!(said.contains("VM 9120 is kept"), "{said}");
    assert_eq!(left(&bench), [9120]);
    // As the clone of a protected template is until it is configured.
    protect(&bench, 9120);
    bench.guests_no_more("mute");
    let said = bench.good(&["try"]);
    assert!(
        said.contains("removing VM 9120, which an earlier trial left"),
        "{said}"
    );
    assert!(left(&bench).is_empty());
}

#[test]
fn what_cannot_be_tried_is_said() {
    let bench = bench(FACTS);
    let (code, said) = bench.run(&["try", "rocky"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("the configuration has no template rocky; it has debian"),
        "{said}"
    );
    let (code, said) = bench.run(&["try", "--host", "pve1"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("there is none on the host pve1; there is on pve2"),
        "{said}"
    );
    let (code, said) = bench.run(&["try", "--ipconfig", "foo"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("--ipconfig: \"foo\": expected ip=, gw=, ip6= or gw6=")
            && !said.contains("cloning"),
        "{said}"
    );
    let (code, said) = bench.run(&["try", "--pool", "batch"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("no pool batch uses the template debian"),
        "{said}"
    );
    assert!(left(&bench).is_empty());
}

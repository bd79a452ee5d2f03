//! The demo from outside: it ends by itself, with nothing left, and a seed tells the same story twice.

use std::process::Command;

use super::{program, text};

fn story() -> String {
    let output = program()
        .args(["demo", "--once", "--seed", "5", "--speed", "10000"])
        .output()
        .expect("it runs");
    let said = text(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{said}{}",
        text(&output.stderr)
    );
    said
}

#[test]
fn the_demo_ends_with_nothing_left_and_a_seed_tells_the_same_story() {
    let said = story();
    for words in [
        "Seed 5, 10000 simulated seconds in a second",
        "A workload arrives.",
        "» create general-",
        "cloning the template",
        "joining with kubeadm",
        "in service",
        "The workload is gone.",
        "is gone, VM and all",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    let last = said.trim_end().lines().last().unwrap_or_default();
    assert!(
        last.ends_with("All machines are gone; nothing is left behind."),
        "{said}"
    );
    assert!(said == story(), "two runs of one seed differ");
}

/// Two PVE clusters: a pool is over both, one of them is away while the workload grows, and nothing is left of either.
#[test]
fn with_two_regions_one_of_them_may_be_away() {
    let story = || {
        let output = program()
            .args(["demo", "--once", "--regions", "2", "--speed", "10000"])
            .output()
            .expect("it runs");
        let said = text(&output.stdout);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}{error}");
        said
    };
    let said = story();
    for words in [
        "two simulated Proxmox VE clusters",
        " in east, VMID 91",
        " in west, VMID 91",
        "west does not answer any more",
        "west answers again",
        "All machines are gone; nothing is left behind.",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    assert!(said == story(), "two runs of one seed differ");
    let output = program().args(["demo", "--regions", "3"]).output();
    let output = output.expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--regions"));
}

#[test]
fn without_the_simulators_program_it_says_where_it_looked_and_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let alone = folder.path().join("bin/pve-autoscaler");
    std::fs::create_dir(folder.path().join("bin")).expect("made");
    std::fs::copy(env!("CARGO_BIN_EXE_pve-autoscaler"), &alone).expect("copied");
    for arguments in [
        &["demo", "--once"][..],
        &["conformance", "--fixtures"],
        &["sim", "kube"],
    ] {
        let output = Command::new(&alone)
            .args(arguments)
            .output()
            .expect("it runs");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let said = text(&output.stderr);
        for words in [
            "bin/pve-autoscaler-simulator nor ",
            "libexec/pve-autoscaler/simulator; ",
            "install the package",
        ] {
            assert!(said.contains(words), "{words:?} is not in {said}");
        }
    }
    // Help and mistakes need no other program.
    for (arguments, code) in [(["demo", "--help"], 0), (["demo", "--fly"], 2)] {
        let output = Command::new(&alone)
            .args(arguments)
            .output()
            .expect("it runs");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
    }
}

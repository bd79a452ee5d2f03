//! `doctor` of clusters in which much is not as it should be at the same time: each is told, with its grade and what to type.

use std::collections::BTreeMap;

use pve_autoscaler::sim::kube::{KubeSpec, KubeUserSpec, PolicyRule};
use pve_autoscaler::sim::pve::{AdminAct, GIB, MachineSpec, PveSpec, StorageSpec};
use serde_json::{Value, json};

use super::doctor::examine;
use super::service::replace;
use super::traces::Stage;

const EVERYTHING: &str = "may-do-everything";
const READING: &str = "may-read";

/// A user of the daemon's name who may do this, on everything.
fn daemon(token: &str, verbs: &[&str]) -> KubeUserSpec {
    let all = || vec!["*".to_owned()];
    KubeUserSpec {
        name: "pve-autoscaler".to_owned(),
        token: token.to_owned(),
        rules: vec![PolicyRule {
            verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
            api_groups: all(),
            resources: all(),
            ..PolicyRule::default()
        }],
        ..KubeUserSpec::default()
    }
}

/// Both clusters, with a storage that is on no host, and the daemon's two kubeconfigs.
fn begin() -> Stage {
    let mut spec = PveSpec::default();
    let attic = StorageSpec {
        name: "attic".to_owned(),
        active: false,
        ..spec.storages[2].clone()
    };
    spec.storages.push(attic);
    let kube = KubeSpec {
        // Nobody listens there, which is told at once.
        endpoint: "https://127.0.0.1:1".to_owned(),
        users: vec![
            daemon(EVERYTHING, &["*"]),
            daemon(READING, &["get", "list", "watch"]),
        ],
        ..KubeSpec::default()
    };
    let stage = Stage::of_both(spec, kube, 9);
    replace(&stage.path("kubeconfig"), "sim-admin-token", EVERYTHING);
    stage
}

/// A disk stays whose VM is gone, as of a clone whose worker was killed.
fn leave_a_disk(stage: &Stage, vmid: u32, host: &str) {
    stage.act(&AdminAct::AddMachine(MachineSpec {
        vmid,
        host: host.to_owned(),
        container: false,
        template: false,
        running: false,
        storage: "local-lvm".to_owned(),
        disk: GIB,
        disk_used: 0,
        cloudinit: false,
        pool: None,
        config: BTreeMap::new(),
    }));
    stage.act(&AdminAct::Configure {
        vmid,
        key: "scsi0".to_owned(),
        value: None,
    });
    stage.act(&AdminAct::Destroy { vmid });
}

/// Each of these findings is told: probe, grade, words of the text and of what to type.
fn all_told(stage: &Stage, wanted: &[[&str; 4]]) {
    let output = examine(&stage.config, &["-o", "json"]);
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(output.status.code(), Some(1), "{told:#}");
    let findings = told["findings"].as_array().expect("a list");
    for [probe, grade, text, mend] in wanted {
        let has = |finding: &Value, key: &str, words: &str| {
            let said = finding[key].as_str().unwrap_or_default();
            said.contains(words)
        };
        let found = findings.iter().any(|finding| {
            finding["probe"] == *probe
                && finding["grade"] == *grade
                && has(finding, "text", text)
                && has(finding, "mend", mend)
        });
        assert!(
            found,
            "{probe}: {grade}: {text:?}; {mend:?} is not in {told:#}"
        );
    }
}

/// One run for all that can be wrong side by side. It finds a doctor whose probe is gone, or says of one of them that all is well.
#[test]
fn faults_that_stand_side_by_side_are_each_told() {
    let stage = begin();
    replace(
        &stage.config,
        "vm_name = \"debian-13-k8s\"\n",
        "vm_name = \"debian-13-k8s\"\nclone = \"full\"\nstorage = \"attic\"\n",
    );
    replace(
        &stage.config,
        "max = 2\n",
        "max = 2\nhosts = [\"pve1\", \"pve2\"]\n[pool.general.join]\nprovider_id = \"proxmox://{{ region }}/{{ vmid }}\"\n",
    );
    stage.make(
        "/api/v1/nodes",
        &json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": "cp-1" },
            "spec": { "providerID": "proxmox://home/100" },
            "status": { "nodeInfo": { "kubeletVersion": "v1.34.1" } },
        }),
    );
    stage.make(
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
        &json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": "pve-autoscaler", "namespace": "kube-system" },
            "spec": { "holderIdentity": "elsewhere_0000000000000007", "leaseDurationSeconds": 30 },
        }),
    );
    stage.act(&AdminAct::Maintenance {
        host: "pve2".to_owned(),
        on: true,
    });
    leave_a_disk(&stage, 9105, "pve2");
    all_told(
        &stage,
        &[
            [
                "admission",
                "warning",
                "admission-policy.yaml is not in force: pve-autoscaler could make any Secret in kube-system",
                "kubectl apply -f /usr/share/pve-autoscaler/kubernetes/admission-policy.yaml",
            ],
            [
                "lease",
                "warning",
                "kubernetes: elsewhere_0000000000000007 holds the Lease",
                "systemctl stop pve-autoscaler on elsewhere, if this host is to lead",
            ],
            [
                "provider",
                "warning",
                "pool general: join.provider_id gives nodes ids of the region \"default\"; nodes there are have home.",
                "provider_id of [pool.general.join]",
            ],
            [
                "hosts",
                "warning",
                "pool general: host pve2 is in maintenance",
                "ha-manager crm-command node-maintenance disable pve2",
            ],
            [
                "templates",
                "wrong",
                "template debian: storage attic is not available on any host",
                "pvesm status --storage attic",
            ],
            [
                "disks",
                "warning",
                "cut short: local-lvm:vm-9105-disk-0 (host pve2)",
                "pvesm free VOLUME",
            ],
            // What the other run sees the other side of.
            [
                "admission",
                "ok",
                "bootstrap tokens for machines may be made",
                "",
            ],
            ["version", "ok", "the cluster has quorum", ""],
        ],
    );
}

/// The rest, of which each excludes one of those: there is no namespace for a Lease, no token can be made, and PVE changes nothing.
#[test]
fn a_cluster_that_takes_nothing_is_told_as_that() {
    let stage = begin();
    replace(&stage.path("kubeconfig"), EVERYTHING, READING);
    replace(
        &stage.config,
        "name = \"home\"\n",
        "name = \"home\"\nnamespace = \"autoscaling\"\n",
    );
    stage.act(&AdminAct::Quorum(false));
    all_told(
        &stage,
        &[
            [
                "admission",
                "wrong",
                "no bootstrap token can be made for a machine (dry run): ",
                "kubernetes/rbac.yaml",
            ],
            [
                "admission",
                "wrong",
                "cannot create resource \"secrets\"",
                "the answer names what refuses it",
            ],
            [
                "lease",
                "wrong",
                "there is no namespace autoscaling for the Lease and the status ConfigMap",
                "kubectl create namespace autoscaling, or another kubernetes.namespace",
            ],
            [
                "version",
                "wrong",
                "region default: the cluster has no quorum; nothing is changed until it has",
                "pvecm status, on each host",
            ],
            // What the other run sees the other side of.
            [
                "admission",
                "ok",
                "another Secret than a bootstrap token is refused (dry run)",
                "",
            ],
            ["hosts", "ok", "pool general: hosts pve1, pve2, pve3", ""],
            ["disks", "ok", "no disks without a VM on ", ""],
        ],
    );
}

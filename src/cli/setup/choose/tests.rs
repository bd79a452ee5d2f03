//! What setup proposes for hosts and clusters of several kinds.

use std::sync::Arc;

use serde_json::json;

use super::super::answers::Addresses;
use super::super::images::Image;
use super::super::survey::PveFound;
use super::super::text;
use super::*;
use crate::pve::{Bridge, GuestResource, HostResource, StorageResource, VmConfig};

/// Two hosts with local ZFS and no template, a kubeconfig that works.
fn survey() -> Survey {
    let host = HostResource {
        online: true,
        cpus: 8,
        memory: 32 << 30,
        ..HostResource::default()
    };
    let storage = |plugin: &str, content: &[&str]| StorageResource {
        active: true,
        total: 500 << 30,
        plugin: plugin.into(),
        content: content.iter().map(|one| (*one).to_owned()).collect(),
        ..StorageResource::default()
    };
    let storages: std::collections::BTreeMap<Arc<str>, StorageResource> = [
        ("local", storage("dir", &["iso", "vztmpl"])),
        ("local-zfs", storage("zfspool", &["images", "rootdir"])),
        ("san", storage("lvm", &["images"])),
    ]
    .map(|(name, storage)| (name.into(), storage))
    .into();
    let bridge = |last: u8| Bridge {
        cidr: format!("192.0.2.{last}/24").parse().ok(),
        gateway: "192.0.2.1".parse().ok(),
        ..Bridge::default()
    };
    let mut pve = PveFound::default();
    for (last, name) in [(11, "pve1"), (12, "pve2")] {
        pve.resources.hosts.insert(name.into(), host.clone());
        pve.resources.storages.insert(name.into(), storages.clone());
        let bridges = [("vmbr0", bridge(last)), ("vmbr1", Bridge::default())];
        let bridges = bridges.map(|(name, at)| (name.to_owned(), at));
        pve.bridges.insert(name.into(), bridges.into());
        pve.addresses
            .extend(bridge(last).cidr.map(|net| net.addr()));
    }
    Survey {
        pve,
        kube: Some(KubeFound {
            version: "v1.34.2".to_owned(),
            server: "https://192.0.2.5:6443".to_owned(),
            kubeadm: true,
            ..KubeFound::default()
        }),
        ..Survey::default()
    }
}

fn images() -> ImagesFound {
    ImagesFound {
        looked: true,
        newest: Some(Image {
            url: "https://images.example/debian-13.qcow2".to_owned(),
            checksum: format!("sha512:{}", "0".repeat(128)),
        }),
        ..ImagesFound::default()
    }
}

fn nothing() -> Existing {
    let settings = crate::config::parse("version = 1\n", "test");
    Existing {
        text: None,
        settings: settings.expect("it is valid"),
    }
}

fn proposed(survey: &Survey, answers: &SetupAnswers) -> (Proposal, String) {
    let existing = nothing();
    let proposal = choose(survey, answers, (&existing, true), &images());
    let text = text::new(&existing, &proposal.wanted);
    (proposal, text)
}

#[test]
fn a_new_host_gets_a_whole_configuration_that_is_valid() {
    let (proposal, text) = proposed(&survey(), &SetupAnswers::default());
    assert_eq!(proposal.missing, Vec::<String>::new());
    let settings = crate::config::parse(&text, "test");
    let settings = settings.unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    assert!(settings.configured);
    assert_eq!(settings.warnings, Vec::<String>::new());
    insta::assert_snapshot!(text);
}

#[test]
fn a_cluster_of_k3s_gets_a_template_and_a_pool_for_k3s() {
    for (version, lines) in [
        (
            "v1.34.2+k3s1",
            [
                "method = \"k3s\"",
                "kubernetes = \"1.34.2+k3s1\"",
                "[pool.workers.join]\nmethod = \"k3s\"",
            ],
        ),
        (
            "v1.34.2+rke2r1",
            [
                "method = \"command\"",
                "INSTALL_RKE2_VERSION=v1.34.2+rke2r1 sh -",
                "[pool.workers.join]\nmethod = \"rke2\"",
            ],
        ),
    ] {
        let mut survey = survey();
        survey.kube = survey.kube.map(|kube| KubeFound {
            version: version.to_owned(),
            kubeadm: false,
            ..kube
        });
        let answers = SetupAnswers {
            template: super::super::answers::TemplateAnswers {
                hosts: Some(vec!["pve2".to_owned()]),
                ..Default::default()
            },
            ..SetupAnswers::default()
        };
        let (proposal, text) = proposed(&survey, &answers);
        assert_eq!(proposal.missing, Vec::<String>::new());
        for line in lines {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(text.contains("hosts = [\"pve2\"]"), "{text}");
        let settings = crate::config::parse(&text, "test");
        assert!(settings.is_ok_and(|settings| settings.configured), "{text}");
    }
}

/// Such a cluster has cluster-info, and its machines fail in the first step of their join.
#[test]
fn a_cluster_without_what_kubeadm_reads_is_told() {
    let notes = |lacks: &[&'static str]| {
        let mut survey = survey();
        survey.kube = survey.kube.map(|kube| KubeFound {
            kubeadm_lacks: lacks.to_vec(),
            ..kube
        });
        proposed(&survey, &SetupAnswers::default()).0.notes
    };
    let before = notes(&[]);
    let all = notes(&["kubeadm-config", "kubelet-config"]);
    assert_eq!(all.len(), before.len() + 1, "{all:?}");
    for words in [
        "in kube-system: kubeadm-config, kubelet-config. ",
        "`kubeadm init phase upload-config all`",
        "[pool.NAME.join]",
    ] {
        assert!(all.iter().any(|note| note.contains(words)), "{all:?}");
    }
}

#[test]
fn a_machine_takes_at_most_half_of_the_smallest_host() {
    let mut survey = survey();
    if let Some(host) = survey.pve.resources.hosts.get_mut("pve2") {
        host.memory = 17 << 30;
        host.cpus = 6;
    }
    let (proposal, _) = proposed(&survey, &SetupAnswers::default());
    let names: Vec<&str> = proposal.wanted.types.iter().map(|one| &*one.name).collect();
    assert_eq!(names, ["small", "medium"]);
    // What guests are promised leaves room for three.
    for (vmid, host, memory) in [(100, "pve1", 30_i64), (101, "pve2", 5)] {
        let guest = GuestResource {
            host: host.into(),
            status: "running".into(),
            memory: memory << 30,
            ..GuestResource::default()
        };
        survey.pve.resources.guests.insert(vmid, guest);
    }
    let (proposal, _) = proposed(&survey, &SetupAnswers::default());
    assert_eq!(proposal.wanted.pool.max, 3);
}

#[test]
fn ranges_are_proposed_where_no_dhcp_is() {
    let mut answers = SetupAnswers::default();
    answers.network.addresses = Some(Addresses::Ranges);
    let mut survey = survey();
    survey
        .pve
        .addresses
        .insert("192.0.2.250".parse().expect("an address"));
    let (proposal, text) = proposed(&survey, &answers);
    assert_eq!(proposal.missing, Vec::<String>::new());
    crate::config::parse(&text, "test").unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    let network = proposal.wanted.network.expect("a network");
    assert_eq!(network.subnet, "192.0.2.0/24");
    assert_eq!(network.ranges, ["192.0.2.218-192.0.2.249"]);
    assert_eq!(network.gateway, "192.0.2.1");
    // Where a guest could not be read, no address is known to be free.
    survey.pve.unread = 1;
    let (proposal, _) = proposed(&survey, &answers);
    assert!(
        proposal
            .missing
            .iter()
            .any(|one| one.starts_with("network.ranges:"))
    );
    survey.pve.unread = 0;
    // On a bridge without an address nothing can be found: that is said, and nothing is guessed.
    answers.network.bridge = Some("vmbr1".to_owned());
    let (proposal, _) = proposed(&survey, &answers);
    let missing: Vec<&str> = proposal
        .missing
        .iter()
        .filter_map(|one| one.split(':').next())
        .collect();
    assert_eq!(
        missing,
        [
            "network.subnet",
            "network.ranges",
            "network.gateway",
            "network.nameservers"
        ]
    );
}

/// A template that is there is taken only where it looks like a node's; a bare one is told of.
#[test]
fn templates_that_are_there_are_judged_by_what_they_have() {
    let mut survey = survey();
    let add = |survey: &mut Survey, vmid: u32, name: &str, agent: &str| {
        let guest = GuestResource {
            host: "pve1".into(),
            name: name.into(),
            template: true,
            ..GuestResource::default()
        };
        survey.pve.resources.guests.insert(vmid, guest);
        let config = json!({"template": 1, "agent": agent, "scsi0": "local-zfs:base-8000-disk-0,size=8G", "boot": "order=scsi0",
            "net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0", "ide2": "local-zfs:vm-8000-cloudinit,media=cdrom"});
        survey.pve.templates.insert(vmid, VmConfig::read(&config));
    };
    add(&mut survey, 200, "debian-13", "1");
    add(&mut survey, 201, "kube-node", "0");
    let source = |survey: &Survey| {
        proposed(survey, &SetupAnswers::default())
            .0
            .wanted
            .template
            .source
    };
    assert!(matches!(source(&survey), TemplateSource::Build(_)));
    add(&mut survey, 202, "kube-node", "1");
    assert_eq!(source(&survey), TemplateSource::Vmid(202));
    // The other one of the name has no agent and is none.
    add(&mut survey, 201, "kube-node", "1");
    assert_eq!(
        source(&survey),
        TemplateSource::Named("kube-node".to_owned())
    );
}

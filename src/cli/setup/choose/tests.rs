//! What setup proposes for hosts and clusters of several kinds.

use std::net::IpAddr;
use std::sync::Arc;

use serde_json::json;

use super::super::answers::Addresses;
use super::super::former::FormerMachines;
use super::super::former::tests::{CLUSTER, mark, vm};
use super::super::images::Image;
use super::super::survey::PveFound;
use super::super::text;
use super::*;
use crate::controller::template_mark::{BuildStage, TemplateMark};
use crate::kubernetes::survey::NodeFound;
use crate::model::mark::Mark;
use crate::model::tolerant::UnknownFields;
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
        settings: settings.expect("it is valid"),
        ..Existing::default()
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
    for (vmid, host, memory) in [(100, "pve1", 30_i64), (101, "pve2", 3)] {
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
    assert_eq!(
        why(&proposal, "pool.max"),
        "the most nodes of the pool: the hosts' memory that no guest is promised holds 3 of the smallest"
    );
    // The storage of the template has room for one disk on each host.
    for storages in survey.pve.resources.storages.values_mut() {
        if let Some(storage) = storages.get_mut("local-zfs") {
            storage.used = storage.total - (40 << 30);
        }
    }
    survey.pve.resources.guests.clear();
    let (proposal, _) = proposed(&survey, &SetupAnswers::default());
    assert_eq!(proposal.wanted.pool.max, 2);
    let why = why(&proposal, "pool.max");
    assert!(
        why.ends_with("local-zfs on pve2 has 40Gi for disks of 32Gi each"),
        "{why}"
    );
}

/// The reason of a choice.
fn why<'a>(proposal: &'a Proposal, key: &str) -> &'a str {
    let mut choices = proposal.choices.iter();
    let choice = choices.find(|choice| choice.key == key);
    &choice
        .unwrap_or_else(|| panic!("nothing is said of {key}"))
        .why
}

/// A VM with a mark, which the cluster may take for its own.
fn add_machine(survey: &mut Survey, mark: &Mark) {
    let guest = GuestResource {
        host: "pve1".into(),
        ..GuestResource::default()
    };
    survey.pve.resources.guests.insert(mark.vmid, guest);
    survey.pve.marked.insert(mark.vmid, vm(&mark.line()));
    survey.ours = FormerMachines::among(&survey.pve.marked, Some(CLUSTER));
}

/// The configuration is gone, the machines are not. It finds a setup that leaves them for another range and other names, and one that takes
/// another cluster's for ours.
#[test]
fn machines_that_are_there_keep_their_range_and_names() {
    let mut survey = survey();
    let strange = Mark {
        cluster: "77aa/default".to_owned(),
        ..mark(9_003, "batch")
    };
    add_machine(&mut survey, &strange);
    let (proposal, _) = proposed(&survey, &SetupAnswers::default());
    assert_eq!(proposal.wanted.vmids, "8000-8999", "another cluster's");
    assert_eq!(proposal.wanted.pool.name, "workers");

    let ours = mark(9_004, "batch");
    add_machine(&mut survey, &ours);
    let (proposal, _) = proposed(&survey, &SetupAnswers::default());
    // From the other cluster's machine on.
    assert_eq!(proposal.wanted.vmids, "9004-9999");
    assert_eq!(
        why(&proposal, "proxmox.vmids"),
        "machines of ours are in it, by their marks, and no other guest: 9004 (batch-9004)"
    );
    let first = Mark {
        cluster: ours.cluster.clone(),
        ..mark(9_003, "batch")
    };
    add_machine(&mut survey, &first);
    add_machine(&mut survey, &mark(9_010, "web"));
    let (proposal, text) = proposed(&survey, &SetupAnswers::default());
    assert_eq!(proposal.missing, Vec::<String>::new());
    assert_eq!(proposal.wanted.vmids, "9000-9999");
    for line in [
        "vmids = \"9000-9999\"",
        "[template.base.build]\nvmids = \"8900-8919\"",
        "[pool.batch]\ntemplate = \"base\"",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(why(&proposal, "pool.name").contains("by their marks"));
    assert!(why(&proposal, "template.name").contains("by their marks"));
    let noted = |proposal: &Proposal, words: &str| {
        let mut notes = proposal.notes.iter();
        assert!(
            notes.any(|note| note.contains(words)),
            "{words}: {:?}",
            proposal.notes
        );
    };
    noted(&proposal, "Write [pool.web] into it");
    noted(&proposal, ": 9010 (web-9010).");
    assert!(
        !proposal
            .notes
            .iter()
            .any(|note| note.contains("taken by") || note.contains("outside of")),
        "{:?}",
        proposal.notes
    );

    // What is answered is taken, and what it leaves out is told.
    let mut answers = SetupAnswers::default();
    answers.proxmox.vmids = Some("7000-7999".to_owned());
    answers.pool.name = Some("web".to_owned());
    let (proposal, text) = proposed(&survey, &answers);
    assert!(text.contains("[pool.web]\n"), "{text}");
    noted(
        &proposal,
        "outside of the VMIDs 7000 to 7999 are left alone, and never removed: 9003 (batch-9003), 9004 (batch-9004), 9010 (web-9010)",
    );
    noted(&proposal, "Write [pool.batch] into it");
}

/// A trial's VM has the last VMID of the range that it was made in: a range that ends before it, or another one, is not the one that the next
/// trial looks into.
#[test]
fn the_vm_of_a_trial_takes_nothing_from_the_range() {
    let mut survey = survey();
    let guest = GuestResource::default();
    survey.pve.resources.guests.insert(9_999, guest);
    let vmids = |survey: &Survey| {
        let (proposal, _) = proposed(survey, &SetupAnswers::default());
        (proposal.wanted.vmids, proposal.notes)
    };
    assert_eq!(vmids(&survey).0, "8000-8999", "somebody else's");
    survey.pve.trials.insert(9_999, "debian".to_owned());
    for with_machine in [false, true] {
        if with_machine {
            add_machine(&mut survey, &mark(9_004, "batch"));
        }
        let (range, notes) = vmids(&survey);
        assert_eq!(range, "9000-9999");
        let told = "VM 9999 in 9000-9999 is of `pve-autoscaler template try`, which removes it at its end; where that was interrupted or told to keep it, \
            the next `pve-autoscaler template try debian` removes it";
        assert!(notes.iter().any(|note| note == told), "{notes:?}");
        assert!(
            !notes.iter().any(|note| note.contains("taken by")),
            "{notes:?}"
        );
    }
}

/// Nobody knows whose a VM is that cannot be read: the range is not cut off at it, and it is not called ours.
#[test]
fn a_vm_that_cannot_be_read_may_be_ours() {
    let mut survey = survey();
    add_machine(&mut survey, &mark(9_004, "batch"));
    let guest = GuestResource::default();
    survey.pve.resources.guests.insert(9_003, guest);
    survey.pve.unread.insert(9_003);
    let (proposal, _) = proposed(&survey, &SetupAnswers::default());
    assert_eq!(proposal.wanted.vmids, "9000-9999");
    assert_eq!(
        why(&proposal, "proxmox.vmids"),
        "machines of ours are in it, by their marks: 9004 (batch-9004)"
    );
    let told = "1 VMID of 9000-9999 is taken by other guests, which are not touched; machines get the rest. 1 of these guests could not be read";
    assert!(
        proposal.notes.iter().any(|note| note.starts_with(told)),
        "{:?}",
        proposal.notes
    );
}

/// More machines are there than a new pool would have, on hosts without room for one more.
#[test]
fn a_pool_has_room_for_the_machines_that_are_there() {
    let mut survey = survey();
    for host in survey.pve.resources.hosts.values_mut() {
        host.memory = 4 << 30;
    }
    for vmid in 9_000..9_003 {
        add_machine(&mut survey, &mark(vmid, "workers"));
    }
    let (proposal, _) = proposed(&survey, &SetupAnswers::default());
    assert_eq!(proposal.wanted.pool.max, 3);
    let why_so = why(&proposal, "pool.max");
    assert!(
        why_so.contains(": 3 machines are of it there, and besides these the hosts' memory"),
        "{why_so}"
    );
    for vmid in 9_003..9_007 {
        add_machine(&mut survey, &mark(vmid, "workers"));
    }
    let (proposal, _) = proposed(&survey, &SetupAnswers::default());
    assert_eq!(proposal.wanted.pool.max, 7);
}

/// Their marks say which addresses the daemon gave them.
#[test]
fn machines_that_are_there_keep_their_addresses() {
    let mut survey = survey();
    let address: IpAddr = "192.0.2.50".parse().expect("an address");
    let with = Mark {
        addresses: [(0, vec![address])].into(),
        ..mark(9_003, "workers")
    };
    add_machine(&mut survey, &with);
    // Its node and its VM have it, as they should.
    if let Some(kube) = &mut survey.kube {
        kube.nodes.push(NodeFound {
            name: "workers-9003".to_owned(),
            addresses: vec![address],
            ..NodeFound::default()
        });
    }
    let (proposal, text) = proposed(&survey, &SetupAnswers::default());
    crate::config::parse(&text, "test").unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    let network = proposal.wanted.network.as_ref().expect("a network");
    assert_eq!(network.ranges, ["192.0.2.50-192.0.2.81"]);
    for key in ["network.addresses", "network.ranges"] {
        let why = why(&proposal, key);
        assert!(why.contains("by their marks"), "{key}: {why}");
    }
    // Of another cluster's machine it is taken.
    survey.ours = FormerMachines::default();
    let mut answers = SetupAnswers::default();
    answers.network.addresses = Some(Addresses::Ranges);
    survey
        .pve
        .addresses
        .extend((80..=254).filter_map(|last| format!("192.0.2.{last}").parse::<IpAddr>().ok()));
    let (proposal, _) = proposed(&survey, &answers);
    let network = proposal.wanted.network.expect("a network");
    assert_eq!(network.ranges, ["192.0.2.18-192.0.2.49"]);
}

/// The API server's address may be a load balancer's, which no node has and no guest. It finds a setup that knows addresses of nodes alone, and
/// one that does not look at what the administrator answers.
#[test]
fn the_api_servers_address_is_in_no_range_that_is_proposed() {
    let mut survey = survey();
    let mut answers = SetupAnswers::default();
    answers.network.addresses = Some(Addresses::Ranges);
    let ranges = |survey: &Survey, answers: &SetupAnswers| {
        let network = proposed(survey, answers).0.wanted.network;
        network.expect("a network").ranges
    };
    assert_eq!(ranges(&survey, &answers), ["192.0.2.223-192.0.2.254"]);
    answers.kubernetes.server = Some("https://192.0.2.240:6443".to_owned());
    assert_eq!(ranges(&survey, &answers), ["192.0.2.208-192.0.2.239"]);
    // By cluster-info, or by the name that the kubeconfig has for it.
    if let Some(kube) = &mut survey.kube {
        kube.api.insert(IpAddr::from([192, 0, 2, 230]));
    }
    assert_eq!(ranges(&survey, &answers), ["192.0.2.198-192.0.2.229"]);
    // What is answered stays, and it is told.
    answers.network.ranges = Some(vec!["192.0.2.5-192.0.2.12".to_owned()]);
    let (proposal, _) = proposed(&survey, &answers);
    let words =
        "has 192.0.2.5 (the API server's), 192.0.2.11, 192.0.2.12: machines get none of them";
    let mut notes = proposal.notes.iter();
    assert!(
        notes.any(|note| note.contains(words)),
        "{:?}",
        proposal.notes
    );
    assert_eq!(
        proposal.wanted.network.expect("a network").ranges,
        ["192.0.2.5-192.0.2.12"]
    );
}

/// What `--save-answers` has behind `#`, taken as it is, is the same proposal. It finds a choice that no answer says, but for those that none can
/// say, and an image without its sum.
#[test]
fn what_was_chosen_can_be_answered() {
    let mut of_k3s = survey();
    of_k3s.kube = of_k3s.kube.map(|kube| KubeFound {
        version: "v1.34.2+k3s1".to_owned(),
        kubeadm: false,
        ..kube
    });
    let mut with_machines = survey();
    add_machine(&mut with_machines, &mark(9_003, "batch"));
    for (survey, answered) in [
        (&survey(), "[network]\naddresses = \"ranges\"\n"),
        (&survey(), "[pool]\nmax = 7\n"),
        (&of_k3s, ""),
        (&with_machines, "[network]\nvlan = 20\n"),
    ] {
        let answers: SetupAnswers = toml::from_str(answered).expect("answers");
        let (proposal, text) = proposed(survey, &answers);
        assert_eq!(proposal.missing, Vec::<String>::new());
        let saved = answers.text(&SetupAnswers::of_choices(&proposal));
        let saved = saved.expect("TOML");
        let lines = saved.lines().filter(|line| !line.starts_with("# "));
        let lines: Vec<&str> = lines.map(|line| line.trim_start_matches('#')).collect();
        let taken = toml::from_str::<SetupAnswers>(&lines.join("\n"));
        let taken = taken.unwrap_or_else(|error| panic!("{error}\n{saved}"));
        // Nothing was looked up: the image is answered.
        let existing = nothing();
        let again = choose(survey, &taken, (&existing, true), &ImagesFound::default());
        assert_eq!(again.missing, Vec::<String>::new(), "{saved}");
        assert_eq!(text::new(&existing, &again.wanted), text, "{saved}");
        let open = again.choices.iter().filter(|choice| !choice.answered);
        let open: Vec<&str> = open.map(|choice| choice.key).collect();
        let unanswerable: &[&str] = if text.contains("[pool.workers.join]") {
            &["pool.join.method"]
        } else {
            &[]
        };
        assert_eq!(open, unanswerable, "{saved}");
    }
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
    survey.pve.unread.insert(100);
    let (proposal, _) = proposed(&survey, &answers);
    assert!(
        proposal
            .missing
            .iter()
            .any(|one| one.starts_with("network.ranges:"))
    );
    survey.pve.unread.clear();
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
    let why = |survey: &Survey| {
        let (proposal, _) = proposed(survey, &SetupAnswers::default());
        let choice = proposal.choices.iter().find(|of| of.key == "template");
        choice.map_or_else(String::new, |of| of.why.clone())
    };
    assert_eq!(
        why(&survey),
        "no template looks made for Kubernetes; 1 other is there: 200 (debian-13)"
    );
    // After a loss of the file one that was built is there.
    let mark = TemplateMark {
        template: "debian".to_owned(),
        cluster: "home".to_owned(),
        vmid: 203,
        definition: "0123456789ab".to_owned(),
        stage: BuildStage::Ready,
        by: "pve1/77".to_owned(),
        machine: None,
        begun: 1_764_000_000,
        unknown: UnknownFields::new(),
    };
    add(&mut survey, 203, "pve-autoscaler-debian", "1");
    let config = survey.pve.templates.get_mut(&203).expect("it was added");
    config.description = mark.describe();
    assert_eq!(
        why(&survey),
        "1 template is there from earlier builds: 203 (pve-autoscaler-debian); one with the same definition is used as it is"
    );
    add(&mut survey, 202, "kube-node", "1");
    assert_eq!(source(&survey), TemplateSource::Vmid(202));
    // The other one of the name has no agent and is none.
    add(&mut survey, 201, "kube-node", "1");
    assert_eq!(
        source(&survey),
        TemplateSource::Named("kube-node".to_owned())
    );
}

/// Found by it: with a token, which cannot build, a person answers the VMID of one of two hosts' templates, and the other host got no machine.
#[test]
fn a_template_that_each_host_has_for_itself_is_taken_by_its_name() {
    let mut survey = survey();
    let add = |survey: &mut Survey, vmid: u32, host: &str| {
        let guest = GuestResource {
            host: host.into(),
            name: "debian-13".into(),
            template: true,
            ..GuestResource::default()
        };
        survey.pve.resources.guests.insert(vmid, guest);
        let config = json!({"template": 1, "agent": "1", "scsi0": "local-zfs:base-8000-disk-0,size=8G", "boot": "order=scsi0",
            "net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0", "ide2": "local-zfs:vm-8000-cloudinit,media=cdrom"});
        survey.pve.templates.insert(vmid, VmConfig::read(&config));
    };
    let mut answers = SetupAnswers::default();
    answers.template.vmid = Some(200);
    add(&mut survey, 200, "pve1");
    let source = |survey: &Survey| {
        let (proposal, _) = proposed(survey, &answers);
        let noted = proposal
            .notes
            .iter()
            .any(|note| note.contains("vm_name stands in the file"));
        (proposal.wanted.template.source, noted)
    };
    let by_vmid = (TemplateSource::Vmid(200), false);
    let by_name = (TemplateSource::Named("debian-13".to_owned()), true);
    assert_eq!(source(&survey), by_vmid, "the only one");
    add(&mut survey, 201, "pve2");
    assert_eq!(source(&survey), by_name);
    // The same answers again change nothing.
    let (_, text) = proposed(&survey, &answers);
    assert!(text.contains("vm_name = \"debian-13\""), "{text}");
    let settings = crate::config::parse(&text, "test").expect("it is valid");
    let existing = Existing {
        text: Some(text.clone()),
        settings,
        ..Existing::default()
    };
    let again = |survey: &Survey| {
        let named = templates::name_on_hosts(survey, 200);
        text::changed(&existing, &answers, named.as_deref()).expect("it is changed")
    };
    assert_eq!(again(&survey), text);
    // Of two on one host the name would mean both.
    add(&mut survey, 202, "pve1");
    assert_eq!(source(&survey), by_vmid);
    let changed = again(&survey);
    assert!(
        changed.contains("vmid = 200") && !changed.contains("vm_name"),
        "{changed}"
    );
    // What all hosts can clone is taken as it was answered.
    survey.pve.resources.guests.remove(&202);
    for storages in survey.pve.resources.storages.values_mut() {
        for storage in storages.values_mut() {
            storage.shared = true;
        }
    }
    assert_eq!(source(&survey), by_vmid);
}

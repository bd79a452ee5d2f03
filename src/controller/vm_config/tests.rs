//! The first write, against configurations as templates pass them on.

mod hardware;

use super::*;
use crate::model::pci::PciDevice;

fn config(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

fn none() -> OwnKeys {
    OwnKeys::default()
}

fn kind() -> InstanceType {
    InstanceType {
        cores: 4,
        memory: 8 << 30,
        ..InstanceType::default()
    }
}

fn applied(mut config: BTreeMap<String, String>, write: Write) -> BTreeMap<String, String> {
    for key in &write.delete {
        config.remove(key);
    }
    config.extend(write.set);
    config
}

#[test]
fn what_a_template_passes_on_is_undone_once() {
    let inherited = config(&[
        ("name", "m"),
        ("cores", "2"),
        ("memory", "2048"),
        ("protection", "1"),
        ("onboot", "1"),
        ("sockets", "2"),
        ("tags", "Template;gold"),
        ("net0", "virtio=AA:BB:CC:00:11:22,bridge=vmbr0,firewall=1"),
    ]);
    let template = TemplateSettings {
        bridge: Some("vmbr7".into()),
        vlan: Some(42),
        ..TemplateSettings::default()
    };
    let pool = PoolSettings {
        tags: vec!["K8s".into()],
        ..PoolSettings::default()
    };
    let first = write(&inherited, "m", &kind(), (&template, &none()), &pool);
    assert_eq!(first.set["memory"], "8192");
    assert_eq!(first.set["ciupgrade"], "0");
    assert_eq!(first.set["tags"], "k8s;pve-autoscaler");
    assert_eq!(
        first.set["net0"],
        "virtio=AA:BB:CC:00:11:22,bridge=vmbr7,firewall=1,tag=42"
    );
    assert_eq!(first.delete, ["sockets"]);
    let second = write(
        &applied(inherited, first),
        "m",
        &kind(),
        (&template, &none()),
        &pool,
    );
    assert!(second.is_empty(), "{second:?}");
}

#[test]
fn a_type_with_devices_has_those_in_the_place_of_the_templates() {
    let device = |mapping: &str, pcie| PciDevice {
        mapping: mapping.into(),
        pcie,
        ..PciDevice::default()
    };
    let mut with = kind();
    with.pci = vec![device("gpu", true), device("sound", false)];
    let inherited = || {
        config(&[
            ("hostpci0", "0000:01:00.0"),
            ("hostpci1", "mapping=sound"),
            ("hostpci3", "mapping=gpu"),
        ])
    };
    let write = |before: &BTreeMap<String, String>, kind: &InstanceType| {
        let template = TemplateSettings::default();
        super::write(
            before,
            "m",
            kind,
            (&template, &none()),
            &PoolSettings::default(),
        )
    };
    let first = write(&inherited(), &with);
    assert_eq!(first.set["hostpci0"], "mapping=gpu,pcie=1");
    assert!(!first.set.contains_key("hostpci1"), "{first:?}");
    assert_eq!(first.delete, ["hostpci3"]);
    let mut after = applied(inherited(), first);
    after.insert("hostpci0".to_owned(), "pcie=1,mapping=gpu".to_owned());
    assert!(write(&after, &with).is_empty());
    // A type that names none leaves the template's.
    let plain = write(&inherited(), &kind());
    assert!(plain.delete.is_empty() && !plain.set.contains_key("hostpci0"));
}

/// PVE starts no VM whose NUMA nodes have another memory than the VM, and each machine has its type's.
#[test]
fn the_numa_nodes_of_a_template_are_taken_away() {
    let inherited = || {
        config(&[
            ("memory", "2048"),
            ("numa", "1"),
            ("numa0", "cpus=0-1,memory=1024"),
            ("numa1", "cpus=2-3,memory=1024,hostnodes=1,policy=bind"),
        ])
    };
    let write = |before: &BTreeMap<String, String>, own: &OwnKeys| {
        let template = TemplateSettings::default();
        super::write(
            before,
            "m",
            &kind(),
            (&template, own),
            &PoolSettings::default(),
        )
    };
    let first = write(&inherited(), &none());
    assert_eq!(first.delete, ["numa0", "numa1"]);
    assert!(!first.set.contains_key("numa"), "{first:?}");
    assert!(write(&applied(inherited(), first), &none()).is_empty());
    // What a pool with CPUs for each machine says stays.
    let mut own = none();
    let node = "cpus=0-3,hostnodes=0,memory=8192,policy=bind";
    own.cpus.insert("numa0".to_owned(), node.to_owned());
    let first = write(&inherited(), &own);
    assert_eq!((&*first.set["numa0"], &*first.delete[0]), (node, "numa1"));
    assert_eq!(first.delete.len(), 1, "{first:?}");
}

#[test]
fn a_network_that_is_right_already_is_left_alone_in_whatever_order() {
    let template = TemplateSettings {
        bridge: Some("vmbr0".into()),
        ..TemplateSettings::default()
    };
    for nic in [
        "virtio=AA:BB:CC:00:11:22,bridge=vmbr0,firewall=1",
        "virtio=AA:BB:CC:00:11:22,firewall=1,bridge=vmbr0",
        "virtio=AA:BB:CC:00:11:22,bridge=vmbr0,mtu=1,queues=4,tag=7",
    ] {
        let write = write(
            &config(&[("net0", nic)]),
            "m",
            &kind(),
            (&template, &none()),
            &PoolSettings::default(),
        );
        assert!(!write.set.contains_key("net0"), "{nic}: {write:?}");
    }
}

#[test]
fn a_network_card_gets_what_the_file_says_and_keeps_the_rest() {
    let template = TemplateSettings {
        firewall: Some(false),
        mtu: Some(1400),
        multiqueue: Some(true),
        ..TemplateSettings::default()
    };
    let pool = PoolSettings {
        cpu_units: Some(300),
        ..PoolSettings::default()
    };
    let before = config(&[(
        "net0",
        "virtio=AA:BB:CC:00:11:22,bridge=vmbr0,firewall=1,queues=2,rate=5",
    )]);
    let first = write(&before, "m", &kind(), (&template, &none()), &pool);
    assert_eq!(
        first.set["net0"],
        "virtio=AA:BB:CC:00:11:22,bridge=vmbr0,firewall=0,mtu=1400,queues=4,rate=5"
    );
    assert_eq!(first.set["cpuunits"], "300");
    // The template's rate stays unless the file has one.
    let limited = TemplateSettings {
        rate: Some(125),
        ..template.clone()
    };
    let limited = write(&before, "m", &kind(), (&limited, &none()), &pool);
    assert_eq!(
        limited.set["net0"],
        "virtio=AA:BB:CC:00:11:22,bridge=vmbr0,firewall=0,mtu=1400,queues=4,rate=125"
    );
    let second = write(
        &applied(before, first),
        "m",
        &kind(),
        (&template, &none()),
        &pool,
    );
    assert!(second.is_empty(), "{second:?}");
}

#[test]
fn further_cards_are_made_or_changed_each_by_its_number() {
    let card = |bridge: &str, vlan| NetCardSettings {
        bridge: Some(bridge.into()),
        vlan,
        ..NetCardSettings::default()
    };
    let mut second = card("vmbr2", None);
    (second.mtu, second.multiqueue) = (Some(9000), Some(true));
    second.ipconfig = Some("ip=dhcp".into());
    let template = TemplateSettings {
        nics: vec![card("vmbr1", Some(30)), second],
        ..TemplateSettings::default()
    };
    let write = |before: &BTreeMap<String, String>| {
        let mut network = none();
        network.ipconfigs.insert(1, "ip=192.0.2.50/24".into());
        super::write(
            before,
            "m",
            &kind(),
            (&template, &network),
            &PoolSettings::default(),
        )
    };
    let net2 = "e1000=AA:BB:CC:00:11:33,bridge=vmbr0,firewall=1";
    let before = config(&[
        ("net0", "virtio=AA:BB:CC:00:11:22,bridge=vmbr0"),
        ("net2", net2),
    ]);
    let first = write(&before);
    assert!(!first.set.contains_key("net0"), "{first:?}");
    assert_eq!(first.set["net1"], "virtio,bridge=vmbr1,tag=30");
    assert_eq!(
        first.set["net2"],
        "e1000=AA:BB:CC:00:11:33,bridge=vmbr2,firewall=1,mtu=9000,queues=4"
    );
    assert_eq!(first.set["ipconfig1"], "ip=192.0.2.50/24");
    assert_eq!(first.set["ipconfig2"], "ip=dhcp");
    // PVE gives a new card its MAC.
    let mut after = applied(before, first);
    after.insert(
        "net1".into(),
        "virtio=AA:BB:CC:00:11:44,bridge=vmbr1,tag=30".into(),
    );
    assert!(write(&after).is_empty());
}

/// `ssh_keys = []` takes a template's keys away; without the key they stay.
#[test]
fn an_empty_list_of_ssh_keys_is_none_at_all() {
    let of = |keys: Option<&str>, current: &[(&str, &str)]| {
        let template = TemplateSettings {
            ssh_keys: keys.map(str::to_owned),
            ..TemplateSettings::default()
        };
        let current = current.iter();
        let current = current.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let write = write(
            &current.collect(),
            "m",
            &kind(),
            (&template, &none()),
            &PoolSettings::default(),
        );
        (write.delete, write.set.contains_key("sshkeys"))
    };
    let there = [("sshkeys", "ssh-ed25519%20AAAA%20me")];
    assert_eq!(of(Some(""), &there), (vec!["sshkeys".to_owned()], false));
    assert_eq!(of(Some(""), &[]), (vec![], false));
    assert_eq!(of(None, &there), (vec![], false));
    assert_eq!(of(Some("ssh-ed25519 BBBB me"), &there), (vec![], true));
}

#[test]
fn ssh_keys_are_encoded_as_pve_wants() {
    let template = TemplateSettings {
        ssh_keys: Some("ssh-ed25519 AAA+b= me\n".into()),
        ..TemplateSettings::default()
    };
    let write = write(
        &BTreeMap::new(),
        "m",
        &kind(),
        (&template, &none()),
        &PoolSettings::default(),
    );
    assert_eq!(write.set["sshkeys"], "ssh-ed25519%20AAA%2Bb%3D%20me");
}

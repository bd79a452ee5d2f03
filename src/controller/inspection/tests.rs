//! What is found wrong with templates, and what is right.

use super::*;
use crate::config::settings::{CloudInitSettings, TemplateUser};
use serde_json::{Value, json};

fn good() -> Value {
    json!({
        "template": 1, "agent": "1", "boot": "order=scsi0", "net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0",
        "scsi0": "local:base-8000-disk-0,size=8G", "ide2": "local:vm-8000-cloudinit,media=cdrom",
        "vga": "serial0", "serial0": "socket", "protection": 1, "balloon": 512, "onboot": 1, "tags": "old",
        "hostpci0": "mapping=gpu",
    })
}

fn said(change: &Value) -> Vec<TemplateFault> {
    let mut config = good();
    let object = config.as_object_mut().expect("an object");
    for (key, value) in change.as_object().expect("an object") {
        if value.is_null() {
            object.remove(key);
        } else {
            object.insert(key.clone(), value.clone());
        }
    }
    let template = TemplateSettings::default();
    inspect(8000, &VmConfig::read(&config), &template, |name| {
        name == "shared"
    })
}

#[test]
fn what_the_first_write_sets_anew_is_no_fault() {
    assert_eq!(said(&json!({})), []);
}

#[test]
fn every_fault_is_one_sentence_and_those_that_stop_machines_are_told_apart() {
    for (change, fatal, words) in [
        (
            json!({"template": null}),
            true,
            "is no template; qm template 8000",
        ),
        (json!({"agent": null}), true, "no guest agent enabled"),
        (
            json!({"agent": "enabled=0"}),
            true,
            "no guest agent enabled",
        ),
        (json!({"lock": "backup"}), true, "is locked (backup)"),
        (
            json!({"scsi0": null, "boot": null}),
            true,
            "no disk that it boots from",
        ),
        (json!({"ide2": null}), false, "no cloud-init drive"),
        (
            json!({"ide0": "local:vm-8000-cloudinit-2,media=cdrom"}),
            false,
            "two cloud-init drives, ide0 and ide2",
        ),
        (json!({"net0": null}), false, "no network card"),
        (
            json!({"boot": "order=net0;scsi0"}),
            false,
            "boots from the network first (net0)",
        ),
        (
            json!({"boot": "order=scsi0;ide0"}),
            false,
            "has ide0 in its boot order",
        ),
        (json!({"bios": "ovmf"}), false, "without an EFI disk"),
        (json!({"serial0": null}), false, "its screen on serial0"),
        (json!({"kvm": 0}), false, "without hardware virtualisation"),
        (
            json!({"hostpci0": "0000:01:00.0"}),
            false,
            "the device 0000:01:00.0 through (hostpci0)",
        ),
        (json!({"usb0": "host=1234:5678"}), false, "USB device"),
        (
            json!({"affinity": "0-3"}),
            false,
            "pinned to the host's CPUs 0-3",
        ),
        (
            json!({"hookscript": "local:snippets/x"}),
            false,
            "hook script local:snippets/x",
        ),
        (
            json!({"cicustom": "user=local:snippets/u"}),
            false,
            "cloud-init data from user=local:snippets/u (cicustom)",
        ),
        (
            json!({"cicustom": "user=shared:snippets/u,vendor=local:snippets/v"}),
            false,
            "cloud-init data from vendor=local:snippets/v (cicustom)",
        ),
        (
            json!({"freeze": 1}),
            true,
            "none would boot; qm set 8000 --delete freeze",
        ),
        (
            json!({"net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0,link_down=1,tag=7"}),
            true,
            "no link at net0 (link_down=1), and no machine would reach anything; qm set 8000 --net0 virtio=BC:24:11:00:00:01,bridge=vmbr0,tag=7",
        ),
        (
            json!({"net1": "virtio=BC:24:11:00:00:02,bridge=vmbr1,link_down=1"}),
            false,
            "no link at net1 (link_down=1), and no machine would reach anything by it; qm set 8000 --net1 virtio=",
        ),
        (
            json!({"args": "-device x"}),
            false,
            "or lead out of the guest; qm set 8000 --delete args",
        ),
        (
            json!({"hugepages": "1024"}),
            false,
            "huge pages (hugepages: 1024)",
        ),
    ] {
        let faults = said(&change);
        let [fault] = &faults[..] else {
            panic!("{change}: {faults:?}")
        };
        assert!(fault.text.starts_with("VM 8000 "), "{fault:?}");
        assert!(fault.text.contains(words), "{change}: {fault:?}");
        assert_eq!(fault.fatal, fatal, "{fault:?}");
    }
}

/// A key that PVE takes, the link that is up, cloud-init data that all hosts have, and NUMA nodes, which no machine keeps.
#[test]
fn what_is_right_for_every_machine_is_no_fault() {
    for change in [
        json!({"freeze": 0}),
        json!({"net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0,link_down=0"}),
        json!({"cicustom": "user=shared:snippets/u,vendor=shared:snippets/v"}),
        json!({"numa": 1, "numa0": "cpus=0-1,memory=2048"}),
        json!({"ipconfig0": "ip=192.0.2.50/24,gw=192.0.2.1"}),
    ] {
        assert_eq!(said(&change), [], "{change}");
    }
}

fn user(max: u32, networks: &[u8]) -> TemplateUser {
    TemplateUser {
        max,
        networks: networks.iter().copied().collect(),
        hugepages: false,
    }
}

/// A fixed address is one machine's: it is a fault to those pools alone whose machines would get it, and to no other use of
/// the template.
#[test]
fn a_fixed_address_of_a_template_is_a_fault_where_machines_would_share_it() {
    let config = |card: &str, drive: bool| {
        let mut config = good();
        config["net1"] = json!("virtio=BC:24:11:00:00:02,bridge=vmbr1");
        config[card] = json!("ip=192.0.2.50/24,gw=192.0.2.1");
        if !drive {
            config.as_object_mut().expect("an object").remove("ide2");
        }
        VmConfig::read(&config)
    };
    let of = |pools: &[(&str, TemplateUser)]| TemplateSettings {
        pools: pools
            .iter()
            .map(|(name, of)| ((*name).into(), of.clone()))
            .collect(),
        ..TemplateSettings::default()
    };
    let shared = |card: &str, template: &TemplateSettings| {
        shared_addresses(8000, &config(card, true), template)
    };
    let two = of(&[("web", user(2, &[]))]);
    let told = shared("ipconfig0", &two);
    assert_eq!(
        told[&0],
        "VM 8000 has a fixed address (ipconfig0: ip=192.0.2.50/24,gw=192.0.2.1) that all its machines would have, and pool web may have 2; \
         qm set 8000 --ipconfig0 ip=dhcp, or a network in the pool's table, which gives each an address of its own"
    );
    let told = shared(
        "ipconfig1",
        &of(&[("a", user(1, &[0])), ("b", user(1, &[]))]),
    );
    assert!(told[&1].contains("pools a and b may have 2"), "{told:?}");
    for (card, pools) in [
        // One machine alone, also beside a pool with a network and one that is being removed.
        ("ipconfig0", vec![("a", user(1, &[]))]),
        (
            "ipconfig0",
            vec![
                ("a", user(1, &[])),
                ("b", user(9, &[0])),
                ("c", user(0, &[])),
            ],
        ),
        ("ipconfig1", vec![("a", user(9, &[0, 1]))]),
        // The card is not there.
        ("ipconfig2", vec![("a", user(9, &[]))]),
    ] {
        assert!(shared(card, &of(&pools)).is_empty(), "{card} {pools:?}");
    }
    // The file's own address, and a network configuration of its own, take its place.
    let named = TemplateSettings {
        ipconfig: Some("ip=dhcp".to_owned()),
        ..two.clone()
    };
    assert!(shared("ipconfig0", &named).is_empty());
    assert_eq!(shared("ipconfig1", &named).len(), 1);
    let texts = |network_config: Option<&str>| TemplateSettings {
        cloud_init: Some(Arc::new(CloudInitSettings {
            network_config: network_config.map(str::to_owned),
            ..CloudInitSettings::default()
        })),
        ..two.clone()
    };
    assert!(shared("ipconfig0", &texts(Some("version: 2"))).is_empty());
    assert_eq!(shared("ipconfig0", &texts(None)).len(), 1);
    // Without a drive nobody tells the guest.
    assert!(shared_addresses(8000, &config("ipconfig0", false), &two).is_empty());
    // It is told with the others, and does not stop the pools that it does not concern.
    let given = config("ipconfig0", true);
    let faults = inspect(8000, &given, &two, |_| true);
    assert!(
        faults
            .iter()
            .any(|fault| fault.fatal && fault.card == Some(0))
    );
    assert_eq!(obstacle(8000, &given, &two), None);
    assert!(has_fixed_address(&given));
    assert!(!has_fixed_address(&VmConfig::read(&good())));
}

#[test]
fn huge_pages_of_pools_take_the_place_of_the_templates() {
    let mut config = good();
    config["hugepages"] = json!("2");
    let config = VmConfig::read(&config);
    let with = |hugepages: &[bool]| {
        let pools = hugepages.iter().enumerate().map(|(at, hugepages)| {
            let user = TemplateUser {
                hugepages: *hugepages,
                ..user(3, &[])
            };
            (Arc::from(at.to_string()), user)
        });
        let template = TemplateSettings {
            pools: pools.collect(),
            ..TemplateSettings::default()
        };
        inspect(8000, &config, &template, |_| true).len()
    };
    assert_eq!((with(&[true]), with(&[true, false]), with(&[])), (0, 1, 1));
}

#[test]
fn the_tables_own_settings_count() {
    let with =
        |template: &TemplateSettings| inspect(8000, &VmConfig::read(&good()), template, |_| true);
    let named = TemplateSettings {
        boot_disk: Some("virtio7".to_owned()),
        ..TemplateSettings::default()
    };
    assert_eq!(with(&named)[0].text, "VM 8000 has no virtio7");
    // Who joins at the first boot needs neither agent nor PVE's own drive.
    let bare = serde_json::json!({"template": 1, "net0": "virtio,bridge=vmbr0", "scsi0": "a:base-8000-disk-0", "boot": "order=scsi0"});
    let bare = |template: &TemplateSettings| {
        inspect(8000, &VmConfig::read(&bare), template, |_| true).len()
    };
    let first = TemplateSettings {
        first_boot: true,
        cloud_init: Some(std::sync::Arc::default()),
        ..TemplateSettings::default()
    };
    assert_eq!((bare(&TemplateSettings::default()), bare(&first)), (2, 0));
}

/// By `volume_has_feature` of PVE's storage plugins, which looks at the storage's type and the volume's name.
#[test]
fn where_pve_links_no_clone_is_known_by_storage_and_volume() {
    let why = |kind: &str, volume: &str| {
        let raw = json!({"template": 1, "digest": "d", "scsi0": format!("s:{volume},size=8G"),
            "ide2": "s:vm-8000-cloudinit,media=cdrom", "tpmstate0": "s:vm-8000-disk-1,size=4M"});
        unlinkable(8000, &VmConfig::read(&raw), |_| Some(kind.into()))
    };
    for (kind, volume) in [
        ("lvmthin", "base-8000-disk-0"),
        ("dir", "8000/base-8000-disk-0.raw"),
        ("nfs", "8000/base-8000-disk-0.qcow2"),
        ("rbd", "base-7000-disk-0/base-8000-disk-0"),
        ("btrfs", "8000/vm-8000-disk-0.raw"),
        ("zfs", "base-8000-disk-0"),
        ("somebodys", "thing"),
    ] {
        assert_eq!(why(kind, volume), None, "{kind} {volume}");
    }
    for (kind, volume, words) in [
        (
            "lvm",
            "base-8000-disk-0",
            "(lvm), which has no linked clones",
        ),
        (
            "lvm",
            "base-8000-disk-0.qcow2",
            "(lvm), which has no linked clones",
        ),
        (
            "iscsidirect",
            "lun0",
            "has no linked clones; clone = \"full\"",
        ),
        ("zfspool", "vm-8000-disk-0", "which is no base image"),
        ("zfs", "vm-8000-disk-0", "which is no base image"),
        ("rbd", "vm-8000-disk-0", "which is no base image"),
    ] {
        let said = why(kind, volume).unwrap_or_default();
        assert!(said.contains(words), "{kind} {volume}: {said}");
    }
}

#[test]
fn a_storage_for_other_things_is_refused_with_what_its_type_allows() {
    let why = |kind: &str, content: &[&str]| {
        let content = content.iter().map(|one| (*one).to_owned()).collect();
        let storage = StorageResource {
            plugin: kind.into(),
            content,
            ..StorageResource::default()
        };
        refuses_disks("s", &storage)
    };
    assert_eq!(why("rbd", &["images"]), None);
    assert_eq!(why("btrfs", &["iso", "images"]), None);
    assert_eq!(why("dir", &[]), None, "nobody told");
    let said = why("iscsi", &["images"]).unwrap_or_default();
    assert!(said.contains("PVE makes none there; another"), "{said}");
    for kind in ["cephfs", "esxi", "pbs"] {
        let said = why(kind, &["backup"]).unwrap_or_default();
        assert!(said.contains("of a type that holds no disks"), "{said}");
        assert!(!said.contains("pvesm set"), "no content helps: {said}");
    }
    let said = why("nfs", &["backup", "iso"]).unwrap_or_default();
    assert!(
        said.contains("pvesm set s --content backup,iso,images"),
        "{said}"
    );
    for (kind, content, can) in [
        ("cephfs", "snippets", true),
        ("btrfs", "import", true),
        ("somebodys", "iso", true),
        ("rbd", "iso", false),
        ("zfspool", "snippets", false),
        ("zfs", "rootdir", false),
    ] {
        assert_eq!(can_hold(kind, content), can, "{kind} {content}");
    }
}

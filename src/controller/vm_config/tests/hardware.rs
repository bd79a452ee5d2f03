//! How machines start, their sockets, further disks, cards and MAC addresses.

use super::*;
use crate::config::hardware::{FurtherDiskSettings, Hardware};

fn disk(storage: &str, options: &str) -> FurtherDiskSettings {
    FurtherDiskSettings {
        storage: storage.into(),
        size: 100 << 30,
        options: options.to_owned(),
    }
}

/// As PVE keeps what was written: a disk that was made has a volume.
fn kept(config: BTreeMap<String, String>, write: Write) -> BTreeMap<String, String> {
    let mut config = applied(config, write);
    for slot in ["scsi1", "virtio3"] {
        if let Some(value) = config.get_mut(slot) {
            *value = value.replace(":100", ":vm-9000-disk-1,size=100G");
        }
    }
    config
}

#[test]
fn all_of_it_is_written_once_and_stays() {
    let hardware = Hardware {
        onboot: true,
        startup: Some("order=20,up=10".into()),
        sockets: Some(2),
        numa: Some(true),
        mac_prefix: None,
        disks: [
            ("scsi1".to_owned(), disk("fast", ",iothread=1")),
            ("virtio3".to_owned(), disk("slow", "")),
        ]
        .into(),
        boot_disk: BTreeMap::new(),
        options: [
            ("migrate_downtime".to_owned(), "0.5".to_owned()),
            ("smbios1".to_owned(), "sku=a".to_owned()),
            ("tablet".to_owned(), "0".to_owned()),
        ]
        .into(),
    };
    let template = TemplateSettings {
        hardware,
        cpu_type: Some("host,flags=+aes".into()),
        ..TemplateSettings::default()
    };
    let pool = PoolSettings {
        cpu_limit_milli: Some(2500),
        balloon: Some(1 << 30),
        ..PoolSettings::default()
    };
    let uuid = "uuid=0b5f3a6e-0000-4000-8000-0123456789ab";
    let inherited = || {
        config(&[
            ("sockets", "4"),
            ("cores", "1"),
            ("scsi0", "local:base-1"),
            ("smbios1", uuid),
            ("tablet", "1"),
        ])
    };
    let write = |before: &BTreeMap<String, String>| {
        super::write(before, "m", &kind(), (&template, &none()), &pool)
    };
    let first = write(&inherited());
    let smbios = format!("base64=1,sku=YQ==,{uuid}");
    for (key, value) in [
        ("onboot", "1"),
        ("startup", "order=20,up=10"),
        ("sockets", "2"),
        ("cores", "2"),
        ("numa", "1"),
        ("cpulimit", "2.5"),
        ("memory", "8192"),
        ("balloon", "7168"),
        ("cpu", "host,flags=+aes"),
        ("scsi1", "fast:100,iothread=1"),
        ("virtio3", "slow:100"),
        ("migrate_downtime", "0.5"),
        ("smbios1", &*smbios),
        ("tablet", "0"),
    ] {
        assert_eq!(first.set.get(key).map(String::as_str), Some(value), "{key}");
    }
    assert!(first.delete.is_empty(), "{first:?}");
    let mut after = kept(inherited(), first);
    assert!(write(&after).is_empty());
    // PVE may tell the number otherwise; a disk that is there is left as it is, whatever became of it.
    after.insert("cpulimit".into(), "2.50".into());
    after.insert("migrate_downtime".into(), "0.50".into());
    after.insert("scsi1".into(), "elsewhere:vm-9000-disk-7,size=200G".into());
    assert!(write(&after).is_empty());
}

#[test]
fn without_a_word_of_it_machines_are_as_they_were() {
    let inherited = config(&[("numa", "1"), ("startup", "order=1"), ("cpulimit", "3")]);
    let (template, pool) = (TemplateSettings::default(), PoolSettings::default());
    let write = write(&inherited, "m", &kind(), (&template, &none()), &pool);
    for key in [
        "numa", "startup", "cpulimit", "sockets", "smbios1", "tablet",
    ] {
        assert!(!write.set.contains_key(key), "{write:?}");
    }
    assert_eq!(&*write.set["cores"], "4");
    assert!(!write.set.contains_key("balloon") && write.delete.is_empty());
}

/// The device that PVE reads a guest's memory by is there, whatever the template has, and PVE takes nothing; beside CPUs of its own a machine has none.
#[test]
fn a_machine_has_the_balloon_device_and_keeps_its_memory() {
    let (template, pool) = (TemplateSettings::default(), PoolSettings::default());
    let write = |before: &BTreeMap<String, String>, own: &OwnKeys| {
        super::write(before, "m", &kind(), (&template, own), &pool)
    };
    for of_template in ["512", "0"] {
        let inherited = config(&[("balloon", of_template)]);
        let first = write(&inherited, &none());
        assert_eq!(first.delete, ["balloon"], "{of_template}");
        assert!(!first.set.contains_key("balloon"), "{first:?}");
        let after = kept(inherited, first);
        assert!(!after.contains_key("balloon") && write(&after, &none()).is_empty());
    }
    // PVE takes no memory below the minimum that is there, even where that goes in the same call.
    let inherited = config(&[("balloon", "16384")]);
    let first = write(&inherited, &none());
    assert_eq!(first.set["balloon"], "0");
    assert!(first.delete.is_empty(), "{first:?}");
    let after = kept(inherited, first);
    let second = write(&after, &none());
    assert!(
        second.set.is_empty() && second.delete == ["balloon"],
        "{second:?}"
    );
    let pinned = OwnKeys {
        cpus: [("hugepages".to_owned(), "1024".to_owned())].into(),
        ..OwnKeys::default()
    };
    let first = write(&config(&[]), &pinned);
    assert_eq!(first.set["balloon"], "0");
    let after = kept(config(&[]), first);
    assert!(write(&after, &pinned).is_empty());
}

#[test]
fn a_card_gets_its_model_and_a_mac_of_its_vmid() {
    let template = TemplateSettings {
        nic_model: Some("e1000"),
        nics: vec![NetCardSettings {
            bridge: Some("vmbr1".into()),
            ..NetCardSettings::default()
        }],
        ..TemplateSettings::default()
    };
    let mut network = none();
    for card in [0, 1] {
        network.macs.insert(card, mac("02:00:00", 9000, card));
    }
    let before = config(&[("net0", "virtio=AA:BB:CC:00:11:22,bridge=vmbr0,firewall=1")]);
    let write = |before: &BTreeMap<String, String>| {
        super::write(
            before,
            "m",
            &kind(),
            (&template, &network),
            &PoolSettings::default(),
        )
    };
    let first = write(&before);
    assert_eq!(
        first.set["net0"],
        "e1000=02:00:00:01:19:40,bridge=vmbr0,firewall=1"
    );
    assert_eq!(first.set["net1"], "virtio=02:00:00:01:19:41,bridge=vmbr1");
    assert!(write(&applied(before, first)).is_empty());
}

#[test]
fn cpus_of_its_own_take_the_place_of_what_the_template_has_of_numa() {
    let (template, pool) = (TemplateSettings::default(), PoolSettings::default());
    let node = "cpus=0-3,hostnodes=1,memory=8192,policy=bind";
    let keys = [("affinity", "0-0"), ("numa", "1"), ("numa0", node)];
    let own = OwnKeys {
        cpus: keys.map(|(key, value)| (key.into(), value.into())).into(),
        ..none()
    };
    let write = |before: &BTreeMap<String, String>| {
        super::write(before, "m", &kind(), (&template, &own), &pool)
    };
    let inherited = config(&[
        ("affinity", "4-7"),
        ("numa0", "cpus=0-1,memory=1024"),
        ("numa1", "cpus=2-3,memory=1024"),
    ]);
    let first = write(&inherited);
    for (key, value) in keys {
        assert_eq!(first.set.get(key).map(String::as_str), Some(value), "{key}");
    }
    assert_eq!(first.delete, ["numa1"]);
    let mut after = applied(inherited.clone(), first);
    assert!(write(&after).is_empty());
    // PVE may tell the same otherwise.
    after.insert("affinity".into(), "0,0".into());
    after.insert(
        "numa0".into(),
        "cpus=0-3,memory=8192,policy=bind,hostnodes=1".into(),
    );
    assert!(write(&after).is_empty());
    after.insert("affinity".into(), "0-1".into());
    assert!(!write(&after).is_empty());
}

/// The options of the disk that a machine boots from are written once, beside those that it has; its volume and its size stay.
#[test]
fn a_boot_disk_gets_options_and_keeps_what_it_is() {
    let options = [("cache", "writeback"), ("mbps_rd", "100")];
    let options = options.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let template = |boot_disk: Option<&str>| TemplateSettings {
        boot_disk: boot_disk.map(str::to_owned),
        hardware: Hardware {
            boot_disk: options.clone().into(),
            ..Hardware::default()
        },
        ..TemplateSettings::default()
    };
    let own = OwnKeys::default();
    let pool = PoolSettings::default();
    let written = |current: &BTreeMap<String, String>, boot_disk: Option<&str>| {
        let template = template(boot_disk);
        let write = write(
            current,
            "a",
            &InstanceType::default(),
            (&template, &own),
            &pool,
        );
        let disks = write.set.into_iter();
        disks
            .filter(|(key, _)| key.starts_with("scsi") || key.starts_with("ide"))
            .collect::<Vec<_>>()
    };
    let disk = "local:9000/base-9000-disk-0.qcow2/9100/vm-9100-disk-0.qcow2";
    let had = format!("{disk},cache=none,discard=on,size=20G");
    let wanted = format!("{disk},cache=writeback,discard=on,mbps_rd=100,size=20G");
    let mut vm = config(&[
        ("scsi0", &had),
        ("scsi1", "local:1,size=1G"),
        ("boot", "order=scsi0"),
    ]);
    assert_eq!(written(&vm, None), [("scsi0".to_owned(), wanted.clone())]);
    assert_eq!(
        written(&vm, Some("scsi1")),
        [(
            "scsi1".to_owned(),
            "local:1,cache=writeback,mbps_rd=100,size=1G".to_owned()
        )]
    );
    // PVE may tell it in another order.
    for kept in [
        wanted,
        format!("{disk},discard=on,size=20G,mbps_rd=100,cache=writeback"),
    ] {
        vm.insert("scsi0".to_owned(), kept);
        assert_eq!(written(&vm, None), []);
    }
    let odd = config(&[("ide2", "local:2,size=1G"), ("boot", "order=ide2")]);
    assert_eq!(written(&odd, None), [], "no place for options");
}

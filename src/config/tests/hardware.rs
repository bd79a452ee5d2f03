//! What the file says of machines' hardware.

use super::{SMALL, errors, messages, parse};
use crate::config::hardware::with_options;

fn with(template: &str, pool: &str) -> String {
    let text = SMALL.replace("vmid = 8000", &format!("vmid = 8000\n{template}"));
    text.replace("max = 3", &format!("max = 3\n{pool}"))
}

#[test]
fn hardware_is_written_as_pve_writes_it() {
    let template = "cpu_type = \"host\"\ncpu_flags = [\"+aes\", \"-pcid\"]\nsockets = 2\nnuma = true\nonboot = true\n\
        nic_model = \"e1000e\"\nmac_prefix = \"bc:24:11\"\nstartup = { order = 20, up = \"10s\", down = \"2m\" }\n\
        [[template.debian.disk]]\nstorage = \"fast\"\nsize = \"100GiB\"\nssd = true\ndiscard = true\niothread = true\ncache = \"none\"\nbackup = false\n\
        [[template.debian.disk]]\nstorage = \"slow\"\nsize = \"1TiB\"\nslot = \"virtio7\"";
    let pool = "cpu_limit = 1.5\nballoon = true\n[pool.small.kubelet.system_reserved]\nmemory = \"512MiB\"";
    let settings = parse(&with(template, pool), "test.toml").unwrap_or_else(|e| panic!("{e}"));
    let template = &settings.templates["debian"];
    assert_eq!(template.cpu_type.as_deref(), Some("host,flags=+aes;-pcid"));
    assert_eq!(template.nic_model, Some("e1000e"));
    let hardware = &template.hardware;
    assert_eq!(hardware.startup.as_deref(), Some("order=20,up=10,down=120"));
    assert_eq!(
        (hardware.sockets, hardware.numa, hardware.onboot),
        (Some(2), Some(true), true)
    );
    assert_eq!(hardware.mac_prefix.as_deref(), Some("BC:24:11"));
    let allowed = &settings.broker.allow;
    assert_eq!(allowed.storages, ["fast", "slow"]);
    let disks = &allowed.pools["small"].disks;
    let of = |slot: &str| {
        disks[slot]
            .iter()
            .map(String::as_str)
            .collect::<Vec<&str>>()
    };
    assert_eq!(
        of("scsi1"),
        ["fast:100,backup=0,cache=none,discard=on,iothread=1,ssd=1"]
    );
    assert_eq!(of("virtio7"), ["slow:1024"]);
    let pool = &settings.pools["small"];
    assert_eq!(
        (pool.cpu_limit_milli, pool.balloon),
        (Some(1500), Some(512 << 20))
    );
    assert_eq!(settings.warnings.len(), 1, "{:?}", settings.warnings);
    let said = "pool.small.cpu_limit: pods on a node of instance type s are promised more CPUs than the 1500m";
    assert!(
        settings.warnings[0].starts_with(said),
        "{:?}",
        settings.warnings
    );
}

/// Lines of the template, and what is said of them.
const OF_TEMPLATES: [(&str, &str); 16] = [
    (
        "sockets = 3",
        "pool.small.template = \"debian\": its machines have 3 sockets (template.debian.sockets), and the 2 cores of instance type s",
    ),
    (
        "sockets = 0",
        "template.debian.sockets = 0: expected 1 to 8",
    ),
    (
        "cpu_flags = [\"+aes\"]",
        "cpu_flags: expected a cpu_type without flags beside it",
    ),
    (
        "cpu_type = \"host,flags=+aes\"\ncpu_flags = [\"+pcid\"]",
        "expected a cpu_type without flags",
    ),
    (
        "cpu_type = \"host\"\ncpu_flags = [\"+avx512f\"]",
        "cpu_flags.0 = \"+avx512f\": expected + or - and one of nested-virt, ",
    ),
    (
        "cpu_type = \"host\"\ncpu_flags = [\"aes\"]",
        "cpu_flags.0 = \"aes\": expected + or -",
    ),
    (
        "cpu_type = \"host\"\ncpu_flags = [\"+aes\", \"-aes\"]",
        "cpu_flags.1 = \"-aes\": is named twice",
    ),
    ("nic_model = \"ne2k\"", "unknown value `ne2k`"),
    (
        "nic_model = \"e1000\"\nmtu = 9000",
        "mtu = 9000: PVE sets it for virtio cards alone, and this one is e1000",
    ),
    (
        "[[template.debian.nic]]\nbridge = \"vmbr1\"\nmodel = \"e1000\"\nmultiqueue = true",
        "nic.0.multiqueue = true: only virtio cards",
    ),
    ("rate = 0", "rate = 0: expected MB a second, 1 to 100000"),
    (
        "[[template.debian.nic]]\nbridge = \"vmbr1\"\nrate = 100001",
        "nic.0.rate = 100001: expected MB a second",
    ),
    (
        "mac_prefix = \"BD:24:11\"",
        "mac_prefix = \"BD:24:11\": expected the first three bytes",
    ),
    ("mac_prefix = \"BC:24\"", "mac_prefix = \"BC:24\": expected"),
    (
        "startup = { up = \"1500ms\" }",
        "startup.up = \"1500ms\": expected whole seconds",
    ),
    ("[template.debian.startup]", "expected order, up or down"),
];

/// Lines of a further disk of one GiB, and what is said of them.
const OF_DISKS: [(&str, &str); 6] = [
    (
        "slot = \"scsi0\"",
        "disk.0.slot = \"scsi0\": expected scsi1 to scsi7",
    ),
    ("slot = \"ide1\"", "expected scsi1 to scsi7"),
    (
        "slot = \"scsi2\"",
        "disk.0.slot = \"scsi2\": scsi2 is the boot_disk",
    ),
    (
        "slot = \"virtio1\"\nssd = true",
        "disk.0.ssd = true: a disk at virtio1 has no such option",
    ),
    (
        "slot = \"sata1\"\niothread = true",
        "disk.0.iothread = true: a disk at sata1 has no thread",
    ),
    (
        "[[template.debian.disk]]\nstorage = \"fast\"\nsize = \"1500MiB\"\nslot = \"scsi1\"",
        "disk.1.slot = \"scsi1\": another disk is at scsi1 already",
    ),
];

/// Lines of the pool, and what is said of them.
const OF_POOLS: [(&str, &str); 3] = [
    (
        "cpu_limit = 0",
        "cpu_limit = 0: expected PVE's cpulimit, more than 0",
    ),
    ("cpu_limit = 129", "expected PVE's cpulimit"),
    (
        "balloon = true",
        "balloon = true: the host may take what is kept from pods, and nothing is",
    ),
];

#[test]
fn what_pve_would_refuse_is_an_error_of_the_file() {
    let of_templates = OF_TEMPLATES.map(|(lines, said)| (with(lines, ""), said));
    let of_pools = OF_POOLS.map(|(lines, said)| (with("", lines), said));
    let of_disks = OF_DISKS.map(|(lines, said)| {
        let disk = format!(
            "boot_disk = \"scsi2\"\n[[template.debian.disk]]\nstorage = \"fast\"\nsize = \"1GiB\"\n{lines}"
        );
        (with(&disk, ""), said)
    });
    let none = "[[template.debian.disk]]";
    let more = [
        (with(none, ""), "disk.0.storage: is missing"),
        (with(none, ""), "disk.0.size: is missing"),
        (
            of_disks[5].0.clone(),
            "disk.1.size = \"1500MiB\": expected whole GiB",
        ),
    ];
    let all = of_templates
        .into_iter()
        .chain(of_pools)
        .chain(of_disks)
        .chain(more);
    let wrong = all.filter_map(|(text, said)| {
        let told = messages(&text);
        (!told.contains(said)).then(|| format!("{text}: {told}, not {said}"))
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// MAC addresses come from VMIDs: two regions with the same of these would have the same addresses, if the prefix were one.
#[test]
fn one_mac_prefix_is_for_vmids_of_one_region() {
    let two = |prefix: &str, vmids: &str| {
        let regions = "[region.a]\nvmids = \"9000-9019\"\n[region.b]\nvmids = \"VMIDS\"\nchannel = \"token\"\n\
             endpoints = [\"https://b:8006\"]\ntoken_id = \"u@pve!tt\"\ntoken_secret_file = \"/b\"\nca_file = \"/b.pem\"";
        let text = SMALL.replace(
            "[proxmox]\nvmids = \"9000-9019\"",
            &regions.replace("VMIDS", vmids),
        );
        let text = text.replace(
            "vmid = 8000",
            "vmid = 8000\nregion = \"a\"\nmac_prefix = \"02:00:00\"",
        );
        format!(
            "{text}[template.far]\nregion = \"b\"\nvmid = 8000\nmac_prefix = \"{prefix}\"\n[pool.far]\ntemplate = \"far\"\ninstance_types = [\"s\"]\nmax = 1\n"
        )
    };
    let told = messages(&two("02:00:00", "9010-9030"));
    assert!(
        told.contains(
            "template.far.mac_prefix = \"02:00:00\": template debian of another region has it too"
        ),
        "{told}"
    );
    assert_eq!(messages(&two("02:00:01", "9010-9030")), "");
    assert_eq!(messages(&two("02:00:00", "9020-9030")), "");
    assert_eq!(messages(&two("02:00:01", "2097140-2097151")), "");
    for vmids in ["2097140-2097152", "2106152-2106171"] {
        let far = messages(&two("02:00:01", vmids));
        assert!(
            far.contains("template.far.mac_prefix = \"02:00:01\": MAC addresses come from VMIDs")
                && far.contains("up to 2097151; the region has them up to"),
            "{far}"
        );
    }
}

/// Options and limits of disks come to the file's settings by PVE's names, to VMs that are made of settings, and to the broker.
#[test]
fn disks_have_options_and_limits() {
    let lines = "[template.debian.boot_disk_options]\ncache = \"writeback\"\nssd = true\naio = \"threads\"\nmbps_rd = 200\nmbps_wr = 100\niops_rd = 2000\n\
        iops_wr = 1000\n[[template.debian.disk]]\nstorage = \"fast\"\nsize = \"1GiB\"\nmbps_wr = 50\naio = \"native\"\n";
    let settings = parse(&with(lines, ""), "test.toml").unwrap_or_else(|e| panic!("{e}"));
    let hardware = &settings.templates["debian"].hardware;
    let disk = with_options("local:vm-1,size=8G", &hardware.boot_disk);
    assert_eq!(
        disk,
        "local:vm-1,aio=threads,cache=writeback,iops_rd=2000,iops_wr=1000,mbps_rd=200,mbps_wr=100,size=8G,ssd=1"
    );
    let allowed = &settings.broker.allow;
    assert_eq!(
        allowed.template_boot_disks["debian"].options,
        hardware.boot_disk
    );
    let further = &allowed.pools["small"].disks["scsi1"];
    assert_eq!(
        further.iter().collect::<Vec<_>>(),
        ["fast:1,aio=native,mbps_wr=50"]
    );
    for (lines, said) in [
        (
            "mbps_rd = 0",
            "boot_disk_options.mbps_rd = 0: expected 1 to 100000",
        ),
        (
            "iops_wr = 10000001",
            "boot_disk_options.iops_wr = 10000001: expected 1 to 10000000",
        ),
        (
            "aio = \"native\"\ncache = \"writeback\"",
            "boot_disk_options.aio = \"native\": QEMU takes native with the caches none and directsync alone",
        ),
    ] {
        let told = messages(&with(
            &format!("[template.debian.boot_disk_options]\n{lines}\n"),
            "",
        ));
        assert!(told.contains(said), "{lines}: {told}");
    }
    for (slot, lines, said) in [
        (
            "virtio0",
            "ssd = true",
            "ssd = true: a disk at virtio0 has no such option",
        ),
        (
            "sata0",
            "iothread = true",
            "iothread = true: a disk at sata0 has no thread",
        ),
        (
            "ide0",
            "cache = \"none\"",
            "the boot_disk is ide0; expected scsi0 to scsi7",
        ),
    ] {
        let lines =
            format!("boot_disk = \"{slot}\"\n[template.debian.boot_disk_options]\n{lines}\n");
        let told = messages(&with(&lines, ""));
        assert!(told.contains(said), "{lines}: {told}");
    }
}

/// A type with mediated devices, and what is wrong with an entry, by its place.
#[test]
fn parts_of_cards_are_tables_with_their_type() {
    let of = |pci: &str| {
        let devices = format!("memory = \"4GiB\"\nextended = {{ \"a.b/c\" = 1 }}\npci = {pci}");
        SMALL.replace("memory = \"4GiB\"", &devices)
    };
    let text = of("[\"gpu,pcie=1\", { mapping = \"vgpu\", mdev = \"nvidia-63\", pcie = true }]");
    let settings = parse(&text, "test.toml").unwrap_or_else(|e| panic!("{e}"));
    let devices = &settings.policy.instance_types["s"].pci;
    let values: Vec<String> = devices
        .iter()
        .map(crate::model::pci::PciDevice::value)
        .collect();
    let wanted = ["mapping=gpu,pcie=1", "mapping=vgpu,mdev=nvidia-63,pcie=1"];
    assert_eq!(values, wanted);
    assert_eq!(&settings.broker.allow.types["s"].pci, devices);
    for (pci, said) in [
        (
            "[{ mapping = \"vgpu\", mdev = \"nvidia.63\" }]",
            "expected a type of mediated device as PVE calls it",
        ),
        ("[{ mapping = \"vgpu\", mdev = 63 }]", "found the number 63"),
        (
            "[{ mapping = \"1\", mdev = \"nvidia-63\" }]",
            "expected the name of a mapping of PCI devices",
        ),
        (
            "[{ mdev = \"nvidia-63\" }]",
            "the key mapping is missing here",
        ),
        (
            "[{ mapping = \"vgpu\", mdev = \"nvidia-63\", xvga = true }]",
            "unknown key `xvga`",
        ),
        (
            "[\"vgpu,mdev=nvidia-63\"]",
            "for a mediated device, a table such as { mapping = \"vgpu\", mdev = \"nvidia-63\" }",
        ),
        (
            "[\"vgpu\", { mapping = \"vgpu\", mdev = \"nvidia-63\" }]",
            "another entry has the mapping vgpu as well; expected both to be whole devices, or of one mdev type",
        ),
        (
            "[{ mapping = \"vgpu\", mdev = \"nvidia-63\" }, { mapping = \"vgpu\", mdev = \"nvidia-64\" }]",
            "another entry has the mapping vgpu as well",
        ),
    ] {
        let told = errors(&of(pci));
        assert!(told.contains(said), "{pci}: {told}");
        assert!(told.contains("test.toml:14:"), "{pci}: {told}");
        assert!(told.contains("instance_type.s.pci"), "{pci}: {told}");
    }
}

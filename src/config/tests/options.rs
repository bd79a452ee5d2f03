//! PVE's options of VMs by their names.

use super::{SMALL, messages, parse};

const TOKEN: &str = "channel = \"token\"\nendpoints = [\"https://192.0.2.1:8006\"]\ntoken_id = \"a@pve!b\"\n\
     token_secret_file = \"/etc/secret\"\nca_file = \"/etc/ca\"";

/// The small file with options of its template, and more lines of the template before them.
fn with(template: &str, options: &str) -> String {
    SMALL.replace(
        "vmid = 8000",
        &format!("vmid = 8000\n{template}\n[template.debian.options]\n{options}"),
    )
}

#[test]
fn options_are_written_as_pve_takes_them() {
    let options = "rng0 = \"source=/dev/urandom\"\nwatchdog = \"model=i6300esb,action=reset\"\ntablet = false\nlocaltime = true\n\
         keyboard = \"de\"\nhotplug = \"network,disk,usb\"\nshares = 500\nmigrate_downtime = 0.5\nusb0 = \"mapping=key\"\n\
         smbios1 = \"manufacturer=Shop\"\nserial1 = \"/dev/ttyS0\"\n";
    let settings = parse(&with("", options), "test.toml").unwrap_or_else(|e| panic!("{e}"));
    let found = &settings.templates["debian"].hardware.options;
    let told: Vec<String> = found
        .iter()
        .map(|(name, of)| format!("{name}={of}"))
        .collect();
    assert_eq!(
        told,
        [
            "hotplug=network,disk,usb",
            "keyboard=de",
            "localtime=1",
            "migrate_downtime=0.5",
            "rng0=source=/dev/urandom",
            "serial1=/dev/ttyS0",
            "shares=500",
            "smbios1=manufacturer=Shop",
            "tablet=0",
            "usb0=mapping=key",
            "watchdog=model=i6300esb,action=reset",
        ]
    );
    assert_eq!(&settings.broker.allow.template_options["debian"], found);
    assert!(settings.warnings.is_empty(), "{:?}", settings.warnings);
    // Who names none has the broker's policy as it was.
    let plain = parse(SMALL, "test.toml").unwrap_or_else(|e| panic!("{e}"));
    assert!(plain.broker.allow.template_options.is_empty());
    assert_ne!(plain.policy_hash(), settings.policy_hash());
}

/// Lines of options, and what is said of them.
const WRONG: [(&str, &str); 30] = [
    (
        "rng = \"source=/dev/urandom\"",
        "template.debian.options.rng: PVE has no such option of a VM; did you mean `rng0`? the options here are acpi, ",
    ),
    (
        "onbot = true",
        "options.onbot: PVE has no such option of a VM; did you mean `onboot` of [template.debian]?",
    ),
    ("usb14 = \"spice\"", "usb0 to usb13"),
    (
        "args = \"-S\"",
        "options.args: cannot be set here: arguments of QEMU reach every file and device of the host",
    ),
    (
        "hookscript = \"local:snippets/a.sh\"",
        "cannot be set here: the host runs it as root",
    ),
    (
        "ivshmem = \"size=1\"",
        "cannot be set here: it is memory that the host and other guests share",
    ),
    (
        "cores = 4",
        "options.cores: cannot be set here: expected instance_type.NAME.cores",
    ),
    ("balloon = 0", "expected pool.NAME.balloon"),
    ("affinity = \"0-1\"", "expected pool.NAME.cpu_pinning"),
    (
        "numa0 = \"cpus=0\"",
        "expected pool.NAME.cpu_pinning, or template.debian.numa",
    ),
    (
        "net1 = \"virtio,bridge=vmbr0\"",
        "[[template.debian.nic]] for further cards",
    ),
    ("scsi1 = \"local:10\"", "expected [[template.debian.disk]]"),
    (
        "description = \"x\"",
        "the mark that proves whose the VM is stands there",
    ),
    ("protection = true", "with it PVE refuses to remove the VM"),
    ("onboot = true", "expected template.debian.onboot"),
    (
        "cicustom = \"user=local:snippets/a\"",
        "expected [template.debian.cloud_init]",
    ),
    (
        "start = true",
        "is no option of a VM but a parameter of the call",
    ),
    ("tablet = 2", "options.tablet = 2: expected true or false"),
    (
        "tablet = \"no\"",
        "options.tablet = \"no\": expected true or false",
    ),
    (
        "keyboard = \"dvorak\"",
        "options.keyboard = \"dvorak\": expected one of de, de-ch",
    ),
    (
        "watchdog = \"modell=ib700\"",
        "options.watchdog = \"modell=ib700\": PVE has no \"modell\" in it; expected model, action",
    ),
    (
        "smbios1 = \"uuid=0b5f3a6e-0000-4000-8000-0123456789ab\"",
        "uuid is each machine's own",
    ),
    (
        "hotplug = \"network,memory\"",
        "options.hotplug = \"network,memory\": memory needs NUMA nodes in the guest; expected template.debian.numa = true beside it",
    ),
    (
        "vlan = 20",
        "options.vlan: is no option of PVE's but a key of [template.debian]; expected it there, above the line [template.debian.options]",
    ),
    (
        "nic_model = \"e1000\"",
        "options.nic_model: is no option of PVE's but a key of [template.debian]",
    ),
    (
        "security_groups = [\"web\"]",
        "options.security_groups = [\"web\"]: is no option of PVE's but a key of [template.debian]",
    ),
    (
        "tags = [\"web\"]",
        "options.tags = [\"web\"]: cannot be set here: expected pool.NAME.tags",
    ),
    (
        "vmid = 8001",
        "cannot be set here: each machine gets its own of region.NAME.vmids; expected template.debian.vmid",
    ),
    (
        "boot_dsk = \"scsi0\"",
        "did you mean `boot_disk` of [template.debian]?",
    ),
    (
        "vga = [\"std\"]",
        "expected true or false, a number, or text in quotes as PVE writes it, found a list",
    ),
];

#[test]
fn what_pve_does_not_take_or_the_program_sets_itself_is_an_error_of_the_file() {
    let wrong = WRONG.iter().filter_map(|(line, said)| {
        let told = messages(&with("", line));
        (!told.contains(said)).then(|| format!("{line}: {told}, not {said}"))
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let numa = with("numa = true", "hotplug = \"network,memory\"");
    assert_eq!(messages(&numa), "");
}

/// What only root@pam in person may set goes through the broker, and with a token it is an error that says so.
#[test]
fn what_a_token_may_not_set_is_an_error_on_its_channel() {
    let on_token = |line: &str| with("", line).replace("[proxmox]", &format!("[proxmox]\n{TOKEN}"));
    for line in [
        "serial0 = \"/dev/ttyS0\"",
        "usb0 = \"host=1-2\"",
        "parallel0 = \"/dev/parport0\"",
        "amd-sev = \"snp\"",
        "intel-tdx = \"tdx,attestation=1\"",
        "spice_enhancements = \"foldersharing=1\"",
    ] {
        assert_eq!(messages(&with("", line)), "", "{line}");
        let told = messages(&on_token(line));
        let said = format!(
            "options.{line}: PVE lets root@pam in person alone set it, and no API token; expected region.default.channel = \"local\""
        );
        assert!(told.contains(&said), "{told}");
    }
    for line in [
        "serial0 = \"socket\"",
        "usb0 = \"mapping=key\"",
        "rng0 = \"/dev/hwrng\"",
        "virtiofs0 = \"data\"",
    ] {
        assert_eq!(messages(&on_token(line)), "", "{line}");
    }
}

/// `machine` stands in the tables of VMs that are made or built, too: both say the same chipset.
#[test]
fn the_machine_has_the_chipset_of_its_tables() {
    let created = |chipset: &str, machine: &str| {
        let small = SMALL.replace("memory = \"4GiB\"", "memory = \"4GiB\"\ndisk = \"20GiB\"");
        small.replace(
            "vmid = 8000",
            &format!(
                "bridge = \"vmbr0\"\n[template.debian.create]\nstorage = \"ceph\"\nmachine = \"{chipset}\"\nagent = true\n\
                 [template.debian.options]\nmachine = \"{machine}\""
            ),
        )
    };
    for (chipset, machine, same) in [
        ("q35", "q35,viommu=virtio", true),
        ("q35", "pc-q35-9.2+pve1", true),
        ("pc", "pc-i440fx-9.2", true),
        ("q35", "pc-i440fx-9.2", false),
        ("pc", "q35", false),
    ] {
        let told = messages(&created(chipset, machine));
        let said = format!(
            "options.machine = \"{machine}\": is of another chipset than machine = \"{chipset}\" of its table create"
        );
        assert_eq!(told.contains(&said), !same, "{chipset} {machine}: {told}");
        assert_eq!(told.is_empty(), same, "{chipset} {machine}: {told}");
    }
    // Of a template that a person made nothing is known here.
    assert_eq!(messages(&with("", "machine = \"q35\"")), "");
}

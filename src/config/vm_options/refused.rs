//! PVE's options of VMs, and parameters of the call that makes one, that `[template.NAME.options]` may not name, and what to use
//! in their place.

/// Of a parameter of the call that makes a VM.
const OF_THE_CALL: &str = "it is no option of a VM but a parameter of the call that makes one";
/// Of what a bare number of disks and drives would undo.
const DISKS: &str = "disks are planned with their storages: expected [[template.NAME.disk]] for further ones, template.NAME.boot_disk and instance_type.NAME.disk \
     for the first";
const OF_CLOUD_INIT: &str =
    "expected [template.NAME.cloud_init], which says what cloud-init is told";

/// By name, `[n]` standing for a number, why it may not be named.
pub(super) const REFUSED: &[(&str, &str)] = &[
    // What breaks out of the guest.
    (
        "args",
        "arguments of QEMU reach every file and device of the host, and with them a guest leaves its VM; no key here gives any",
    ),
    (
        "hookscript",
        "the host runs it as root; no key here names one. What a machine runs for itself is in its image or in [template.NAME.cloud_init]",
    ),
    (
        "ivshmem",
        "it is memory that the host and other guests share with the machine; no key here gives any",
    ),
    // What the program plans with.
    (
        "affinity",
        "which CPUs a machine has is planned: expected pool.NAME.cpu_pinning",
    ),
    (
        "arch",
        "pods are placed by it: expected pool.NAME.arch, and a template for it",
    ),
    (
        "balloon",
        "pods are promised the memory: expected pool.NAME.balloon",
    ),
    ("cores", "expected instance_type.NAME.cores"),
    (
        "cpu",
        "expected template.NAME.cpu_type and template.NAME.cpu_flags",
    ),
    ("cpulimit", "expected pool.NAME.cpu_limit"),
    ("cpuunits", "expected pool.NAME.cpu_units"),
    (
        "hostpci[n]",
        "devices are planned: expected instance_type.NAME.pci, by PVE's mappings",
    ),
    ("hugepages", "expected pool.NAME.hugepages"),
    (
        "keephugepages",
        "huge pages are planned as free when their VM is gone: expected pool.NAME.hugepages, without it",
    ),
    ("memory", "expected instance_type.NAME.memory"),
    ("numa", "expected template.NAME.numa"),
    (
        "numa[n]",
        "NUMA nodes come with the CPUs that a machine gets: expected pool.NAME.cpu_pinning, or template.NAME.numa",
    ),
    (
        "smp",
        "expected instance_type.NAME.cores and template.NAME.sockets",
    ),
    ("sockets", "expected template.NAME.sockets"),
    (
        "vcpus",
        "a machine has all its CPUs from the start: expected instance_type.NAME.cores",
    ),
    // What proves whose the VM is, and what the program does with it.
    (
        "agent",
        "the program talks to the guest by it: expected agent in [template.NAME.create], or the template's own",
    ),
    (
        "description",
        "the mark that proves whose the VM is stands there: expected pool.NAME.description",
    ),
    (
        "freeze",
        "a VM that is stopped at its start becomes no node",
    ),
    (
        "lock",
        "with it PVE refuses every change of the VM, its removal too",
    ),
    (
        "name",
        "it is the machine's and its node's, and each has its own: the pool's name is the beginning of it",
    ),
    ("onboot", "expected template.NAME.onboot"),
    (
        "protection",
        "with it PVE refuses to remove the VM, and the program could take no machine away",
    ),
    ("startup", "expected [template.NAME.startup]"),
    (
        "tags",
        "expected pool.NAME.tags, or template.NAME.tags for those that the template itself has",
    ),
    ("template", "a VM that is a template cannot be started"),
    (
        "vmgenid",
        "PVE makes a new one for each VM, and one that several have is none",
    ),
    // Disks, drives and firmware.
    (
        "bios",
        "it goes with the EFI disk: expected bios in [template.NAME.create] or [template.NAME.build], or the template's own",
    ),
    (
        "boot",
        "expected template.NAME.create.boot, or the template's own with template.NAME.boot_disk",
    ),
    (
        "bootdisk",
        "expected template.NAME.create.boot, or template.NAME.boot_disk",
    ),
    ("cdrom", "expected template.NAME.create.iso"),
    (
        "efidisk0",
        "expected bios = \"ovmf\" in [template.NAME.create] or [template.NAME.build], or the template's own",
    ),
    ("ide[n]", DISKS),
    ("sata[n]", DISKS),
    ("scsi[n]", DISKS),
    (
        "scsihw",
        "expected scsi_controller in [template.NAME.create] or [template.NAME.build], or the template's own",
    ),
    (
        "tpmstate0",
        "expected tpm = true in [template.NAME.create] or [template.NAME.build], or the template's own",
    ),
    ("unused[n]", DISKS),
    ("virtio[n]", DISKS),
    // Network and cloud-init.
    ("cicustom", OF_CLOUD_INIT),
    (
        "cipassword",
        "the file has no secrets: expected template.NAME.ssh_keys, or [template.NAME.cloud_init]",
    ),
    ("citype", OF_CLOUD_INIT),
    ("ciupgrade", "expected template.NAME.ci_upgrade"),
    ("ciuser", "expected template.NAME.ci_user"),
    (
        "ipconfig[n]",
        "expected ipconfig in [template.NAME] or [[template.NAME.nic]], or pool.NAME.network",
    ),
    (
        "nameserver",
        "expected template.NAME.nameserver or network.NAME.nameserver",
    ),
    (
        "net[n]",
        "expected bridge, vlan, nic_model and the like in [template.NAME] for net0, and [[template.NAME.nic]] for further cards",
    ),
    (
        "searchdomain",
        "expected template.NAME.searchdomain or network.NAME.searchdomain",
    ),
    ("sshkeys", "expected template.NAME.ssh_keys"),
    // Of the call.
    ("archive", OF_THE_CALL),
    ("bwlimit", OF_THE_CALL),
    ("force", OF_THE_CALL),
    ("ha-managed", OF_THE_CALL),
    ("import-working-storage", OF_THE_CALL),
    ("live-restore", OF_THE_CALL),
    (
        "node",
        "which host gets a machine is planned: expected pool.NAME.hosts",
    ),
    ("pool", "expected template.NAME.resource_pool"),
    ("start", OF_THE_CALL),
    (
        "storage",
        "expected storage in [template.NAME] or [template.NAME.create]",
    ),
    ("unique", OF_THE_CALL),
    (
        "vmid",
        "each machine gets its own of region.NAME.vmids; expected template.NAME.vmid for the template's",
    ),
];

//! PVE's options of VMs, and parameters of the call that makes one, that `[template.NAME.options]` may not name, and what to use
//! in their place.

/// Of a parameter of the call that makes a VM.
const OF_THE_CALL: &str = "it is no option of a VM but a parameter of the call that makes one";
/// Of what a bare number of disks and drives would undo.
const DISKS: &str = "disks are planned with their storages: expected [[template.NAME.disk]] for further ones, boot_disk and the instance type's disk for \
     the first";
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
        "which CPUs a machine has is planned: expected cpu_pinning of the pool",
    ),
    (
        "arch",
        "pods are placed by it: expected arch of the pool, and a template for it",
    ),
    (
        "balloon",
        "pods are promised the memory: expected balloon of the pool",
    ),
    ("cores", "expected cores of the instance type"),
    ("cpu", "expected cpu_type and cpu_flags of the template"),
    ("cpulimit", "expected cpu_limit of the pool"),
    ("cpuunits", "expected cpu_units of the pool"),
    (
        "hostpci[n]",
        "devices are planned: expected pci of the instance type, by PVE's mappings",
    ),
    ("hugepages", "expected hugepages of the pool"),
    (
        "keephugepages",
        "huge pages are planned as free when their VM is gone: expected hugepages of the pool, without it",
    ),
    ("memory", "expected memory of the instance type"),
    ("numa", "expected numa of the template"),
    (
        "numa[n]",
        "NUMA nodes come with the CPUs that a machine gets: expected cpu_pinning of the pool, or numa of the template",
    ),
    (
        "smp",
        "expected cores of the instance type and sockets of the template",
    ),
    ("sockets", "expected sockets of the template"),
    (
        "vcpus",
        "a machine has all its CPUs from the start: expected cores of the instance type",
    ),
    // What proves whose the VM is, and what the program does with it.
    (
        "agent",
        "the program talks to the guest by it: expected agent in [template.NAME.create], or the template's own",
    ),
    (
        "description",
        "the mark that proves whose the VM is stands there: expected description of the pool",
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
    ("onboot", "expected onboot of the template"),
    (
        "protection",
        "with it PVE refuses to remove the VM, and the program could take no machine away",
    ),
    ("startup", "expected [template.NAME.startup]"),
    ("tags", "expected tags of the pool"),
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
        "expected boot in [template.NAME.create], or the template's own with boot_disk",
    ),
    (
        "bootdisk",
        "expected boot in [template.NAME.create], or boot_disk of the template",
    ),
    ("cdrom", "expected iso in [template.NAME.create]"),
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
        "the file has no secrets: expected ssh_keys of the template, or [template.NAME.cloud_init]",
    ),
    ("citype", OF_CLOUD_INIT),
    ("ciupgrade", "expected ci_upgrade of the template"),
    ("ciuser", "expected ci_user of the template"),
    (
        "ipconfig[n]",
        "expected ipconfig of the template or of its nic, or network of the pool",
    ),
    (
        "nameserver",
        "expected nameserver of the template or network",
    ),
    (
        "net[n]",
        "expected bridge, vlan, nic_model and the like of the template for net0, and [[template.NAME.nic]] for further cards",
    ),
    (
        "searchdomain",
        "expected searchdomain of the template or network",
    ),
    ("sshkeys", "expected ssh_keys of the template"),
    // Of the call.
    ("archive", OF_THE_CALL),
    ("bwlimit", OF_THE_CALL),
    ("force", OF_THE_CALL),
    ("ha-managed", OF_THE_CALL),
    ("import-working-storage", OF_THE_CALL),
    ("live-restore", OF_THE_CALL),
    (
        "node",
        "which host gets a machine is planned: expected hosts of the pool",
    ),
    ("pool", "expected resource_pool of the template"),
    ("start", OF_THE_CALL),
    (
        "storage",
        "expected storage of the template, or in [template.NAME.create]",
    ),
    ("unique", OF_THE_CALL),
    ("vmid", "expected vmids of the region"),
];

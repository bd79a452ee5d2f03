//! The list. It holds exactly the calls of `pve::calls`; a test makes each of them and expects it
//! here, and expects everything else of PVE's schema to be refused.

use super::{AllowRule, AllowedParam, BrokerPolicy, HttpMethod, PathSegment, VmProof};
use super::{mediated, values};
use PathSegment::{Fixed, Host, Iso, Isos, Position, Storage, Upid, Vmid};

/// An optional parameter that appears once.
const fn may(
    name: &'static str,
    check: fn(&BrokerPolicy, &str) -> Result<(), String>,
) -> AllowedParam {
    AllowedParam {
        name,
        required: false,
        most: 1,
        tidy: values::as_it_is,
        check,
        loggable: true,
    }
}

/// A parameter that each call must have.
const fn must(
    name: &'static str,
    check: fn(&BrokerPolicy, &str) -> Result<(), String>,
) -> AllowedParam {
    AllowedParam {
        required: true,
        ..may(name, check)
    }
}

/// A parameter whose value is written in one spelling before it is judged.
const fn tidied(tidy: fn(&str) -> String, param: AllowedParam) -> AllowedParam {
    AllowedParam { tidy, ..param }
}

/// A parameter whose value is left out of audit lines.
const fn hushed(param: AllowedParam) -> AllowedParam {
    AllowedParam {
        loggable: false,
        ..param
    }
}

pub(super) const fn read(
    name: &'static str,
    path: &'static [PathSegment],
    params: &'static [AllowedParam],
) -> AllowRule {
    AllowRule {
        name,
        method: HttpMethod::Get,
        path,
        params,
        needs: VmProof::Nothing,
    }
}

/// A read about one VM.
const fn look(
    name: &'static str,
    path: &'static [PathSegment],
    params: &'static [AllowedParam],
) -> AllowRule {
    AllowRule {
        needs: VmProof::Reach,
        ..read(name, path, params)
    }
}

/// Words of a guest command at most: the guest protocol has four and a few arguments.
const MAX_COMMAND: usize = 16;

/// The rules of a VM's firewall.
const RULES_OF_VM: &[PathSegment] = &[
    Fixed("nodes"),
    Host,
    Fixed("qemu"),
    Vmid,
    Fixed("firewall"),
    Fixed("rules"),
];

/// The options of a VM's firewall.
const OPTIONS_OF_FIREWALL: &[PathSegment] = &[
    Fixed("nodes"),
    Host,
    Fixed("qemu"),
    Vmid,
    Fixed("firewall"),
    Fixed("options"),
];

/// Every call that may pass.
pub(in crate::broker) static RULES: &[AllowRule] = &[
    read("version", &[Fixed("version")], &[]),
    read("cluster-status", &[Fixed("cluster"), Fixed("status")], &[]),
    read("resources", &[Fixed("cluster"), Fixed("resources")], &[]),
    read("node-status", &[Fixed("nodes"), Host, Fixed("status")], &[]),
    read(
        "host-load",
        &[Fixed("nodes"), Host, Fixed("rrddata")],
        &[must("timeframe", values::hour), must("cf", values::average)],
    ),
    read("host-time", &[Fixed("nodes"), Host, Fixed("time")], &[]),
    read(
        "bridges",
        &[Fixed("nodes"), Host, Fixed("network")],
        &[must("type", values::any_bridge)],
    ),
    read(
        "vnet-zones",
        &[Fixed("cluster"), Fixed("sdn"), Fixed("vnets")],
        &[],
    ),
    read("pools", &[Fixed("pools")], &[]),
    read(
        "pci-mappings",
        &[Fixed("cluster"), Fixed("mapping"), Fixed("pci")],
        &[],
    ),
    mediated::LEFT,
    read(
        "usb-mappings",
        &[Fixed("cluster"), Fixed("mapping"), Fixed("usb")],
        &[],
    ),
    read(
        "dir-mappings",
        &[Fixed("cluster"), Fixed("mapping"), Fixed("dir")],
        &[],
    ),
    read("storages", &[Fixed("storage")], &[]),
    read(
        "kept-space",
        &[
            Fixed("nodes"),
            Host,
            Fixed("storage"),
            Storage,
            Fixed("status"),
        ],
        &[],
    ),
    read(
        "disks",
        &[
            Fixed("nodes"),
            Host,
            Fixed("storage"),
            Storage,
            Fixed("content"),
        ],
        &[must("content", values::images_or_isos)],
    ),
    AllowRule {
        name: "upload-iso",
        method: HttpMethod::Post,
        path: &[
            Fixed("nodes"),
            Host,
            Fixed("storage"),
            Storage,
            Fixed("upload"),
        ],
        params: &[
            must("content", values::iso),
            must("filename", values::our_iso),
            hushed(must("file", values::base64)),
        ],
        needs: VmProof::Iso,
    },
    AllowRule {
        name: "remove-iso",
        method: HttpMethod::Delete,
        path: &[
            Fixed("nodes"),
            Host,
            Fixed("storage"),
            Storage,
            Fixed("content"),
            Isos,
            Iso,
        ],
        params: &[],
        needs: VmProof::Iso,
    },
    look(
        "vm-config",
        &[Fixed("nodes"), Host, Fixed("qemu"), Vmid, Fixed("config")],
        &[may("current", values::flag)],
    ),
    // Of a container its part in the host's capacity is told, and nothing else.
    read(
        "container-config",
        &[Fixed("nodes"), Host, Fixed("lxc"), Vmid, Fixed("config")],
        &[may("current", values::flag)],
    ),
    look(
        "vm-status",
        &[
            Fixed("nodes"),
            Host,
            Fixed("qemu"),
            Vmid,
            Fixed("status"),
            Fixed("current"),
        ],
        &[],
    ),
    look(
        "active-tasks",
        &[Fixed("nodes"), Host, Fixed("tasks")],
        &[
            must("source", values::active),
            must("vmid", values::any_vmid),
            may("limit", values::page),
        ],
    ),
    look(
        "task-status",
        &[Fixed("nodes"), Host, Fixed("tasks"), Upid, Fixed("status")],
        &[],
    ),
    look(
        "task-log",
        &[Fixed("nodes"), Host, Fixed("tasks"), Upid, Fixed("log")],
        &[may("start", values::count), may("limit", values::page)],
    ),
    AllowRule {
        name: "clone",
        method: HttpMethod::Post,
        path: &[Fixed("nodes"), Host, Fixed("qemu"), Vmid, Fixed("clone")],
        params: &[
            must("newid", values::our_vmid),
            must("name", values::dns_name),
            hushed(tidied(
                values::trimmed,
                must("description", values::new_description),
            )),
            may("pool", values::resource_pool),
            may("target", values::host),
            may("full", values::flag),
            may("storage", values::storage),
        ],
        needs: VmProof::Template,
    },
    // Beyond the mark each parameter is what the broker itself makes of the file, to the letter: `create_vm` compares them.
    AllowRule {
        name: "create",
        method: HttpMethod::Post,
        path: &[Fixed("nodes"), Host, Fixed("qemu")],
        params: &[
            must("vmid", values::our_vmid),
            must("name", values::dns_name),
            hushed(tidied(
                values::trimmed,
                must("description", values::new_description),
            )),
            may("pool", values::resource_pool),
            must("ostype", values::compared),
            must("agent", values::compared),
            must("machine", values::compared),
            must("scsihw", values::compared),
            must("scsi0", values::compared),
            must("net0", values::compared),
            must("boot", values::compared),
            must("serial0", values::compared),
            must("smbios1", values::compared),
            may("bios", values::compared),
            may("efidisk0", values::compared),
            may("tpmstate0", values::compared),
            may("ide2", values::compared),
            may("ide0", values::compared),
        ],
        needs: VmProof::Settings,
    },
    AllowRule {
        name: "config",
        method: HttpMethod::Put,
        path: &[Fixed("nodes"), Host, Fixed("qemu"), Vmid, Fixed("config")],
        params: &[
            may("name", values::dns_name),
            hushed(tidied(
                values::trimmed,
                may("description", values::kept_description),
            )),
            may("tags", values::tags),
            may("cores", values::cores),
            may("memory", values::memory),
            may("sockets", values::sockets),
            may("numa", values::numa),
            may("numa0", values::numa_node),
            may("numa1", values::numa_node),
            may("numa2", values::numa_node),
            may("numa3", values::numa_node),
            may("numa4", values::numa_node),
            may("numa5", values::numa_node),
            may("numa6", values::numa_node),
            may("numa7", values::numa_node),
            may("affinity", values::affinity),
            may("hugepages", values::hugepages),
            may("balloon", values::count),
            may("cpuunits", values::count),
            may("cpulimit", values::cpu_limit),
            may("startup", values::startup),
            may("onboot", values::flag),
            may("protection", values::zero),
            may("ciupgrade", values::flag),
            tidied(values::trimmed, may("cpu", values::cpu_type)),
            tidied(values::trimmed, may("ipconfig0", values::ipconfig)),
            tidied(values::trimmed, may("ipconfig1", values::ipconfig)),
            tidied(values::trimmed, may("ipconfig2", values::ipconfig)),
            tidied(values::trimmed, may("ipconfig3", values::ipconfig)),
            tidied(values::trimmed, may("ipconfig4", values::ipconfig)),
            tidied(values::trimmed, may("ipconfig5", values::ipconfig)),
            tidied(values::trimmed, may("ipconfig6", values::ipconfig)),
            tidied(values::trimmed, may("ipconfig7", values::ipconfig)),
            tidied(values::trimmed, may("ciuser", values::ci_user)),
            tidied(values::trimmed, may("nameserver", values::nameserver)),
            tidied(values::trimmed, may("searchdomain", values::searchdomain)),
            hushed(tidied(values::keys_again, may("sshkeys", values::ssh_keys))),
            may("net0", values::net),
            may("net1", values::net),
            may("net2", values::net),
            may("net3", values::net),
            may("net4", values::net),
            may("net5", values::net),
            may("net6", values::net),
            may("net7", values::net),
            may("hostpci0", values::pci_device),
            may("hostpci1", values::pci_device),
            may("hostpci2", values::pci_device),
            may("hostpci3", values::pci_device),
            may("hostpci4", values::pci_device),
            may("hostpci5", values::pci_device),
            may("hostpci6", values::pci_device),
            may("hostpci7", values::pci_device),
            may("hostpci8", values::pci_device),
            may("hostpci9", values::pci_device),
            may("hostpci10", values::pci_device),
            may("hostpci11", values::pci_device),
            may("hostpci12", values::pci_device),
            may("hostpci13", values::pci_device),
            may("hostpci14", values::pci_device),
            may("hostpci15", values::pci_device),
            may("ide0", values::iso_drive),
            may("ide1", values::iso_drive),
            may("ide2", values::iso_drive),
            may("ide3", values::iso_drive),
            may("scsi0", values::boot_disk),
            may("virtio0", values::boot_disk),
            may("sata0", values::boot_disk),
            may("scsi1", values::further_disk),
            may("scsi2", values::further_disk),
            may("scsi3", values::further_disk),
            may("scsi4", values::further_disk),
            may("scsi5", values::further_disk),
            may("scsi6", values::further_disk),
            may("scsi7", values::further_disk),
            may("virtio1", values::further_disk),
            may("virtio2", values::further_disk),
            may("virtio3", values::further_disk),
            may("virtio4", values::further_disk),
            may("virtio5", values::further_disk),
            may("virtio6", values::further_disk),
            may("virtio7", values::further_disk),
            may("sata1", values::further_disk),
            may("sata2", values::further_disk),
            may("sata3", values::further_disk),
            may("sata4", values::further_disk),
            may("sata5", values::further_disk),
            may("acpi", values::vm_option),
            may("allow-ksm", values::vm_option),
            may("amd-sev", values::vm_option),
            may("audio0", values::vm_option),
            may("autostart", values::vm_option),
            may("hotplug", values::vm_option),
            may("intel-tdx", values::vm_option),
            may("keyboard", values::vm_option),
            may("kvm", values::vm_option),
            may("localtime", values::vm_option),
            may("machine", values::vm_option),
            may("migrate_downtime", values::vm_option),
            may("migrate_speed", values::vm_option),
            may("ostype", values::vm_option),
            may("parallel0", values::vm_option),
            may("parallel1", values::vm_option),
            may("parallel2", values::vm_option),
            may("reboot", values::vm_option),
            may("rng0", values::vm_option),
            may("serial0", values::vm_option),
            may("serial1", values::vm_option),
            may("serial2", values::vm_option),
            may("serial3", values::vm_option),
            may("shares", values::vm_option),
            may("smbios1", values::smbios),
            may("spice_enhancements", values::vm_option),
            may("startdate", values::vm_option),
            may("tablet", values::vm_option),
            may("tdf", values::vm_option),
            may("usb0", values::vm_option),
            may("usb1", values::vm_option),
            may("usb2", values::vm_option),
            may("usb3", values::vm_option),
            may("usb4", values::vm_option),
            may("usb5", values::vm_option),
            may("usb6", values::vm_option),
            may("usb7", values::vm_option),
            may("usb8", values::vm_option),
            may("usb9", values::vm_option),
            may("usb10", values::vm_option),
            may("usb11", values::vm_option),
            may("usb12", values::vm_option),
            may("usb13", values::vm_option),
            may("vga", values::vm_option),
            may("virtiofs0", values::vm_option),
            may("virtiofs1", values::vm_option),
            may("virtiofs2", values::vm_option),
            may("virtiofs3", values::vm_option),
            may("virtiofs4", values::vm_option),
            may("virtiofs5", values::vm_option),
            may("virtiofs6", values::vm_option),
            may("virtiofs7", values::vm_option),
            may("virtiofs8", values::vm_option),
            may("virtiofs9", values::vm_option),
            may("vmstatestorage", values::vm_option),
            may("watchdog", values::vm_option),
            may("delete", values::deletable),
            tidied(str::to_ascii_lowercase, may("digest", values::digest)),
        ],
        needs: VmProof::MarkAndDigest,
    },
    read(
        "security-groups",
        &[Fixed("cluster"), Fixed("firewall"), Fixed("groups")],
        &[],
    ),
    read(
        "cluster-firewall",
        &[Fixed("cluster"), Fixed("firewall"), Fixed("options")],
        &[],
    ),
    look("firewall-rules", RULES_OF_VM, &[]),
    look("firewall-options", OPTIONS_OF_FIREWALL, &[]),
    AllowRule {
        name: "switch-firewall-on",
        method: HttpMethod::Put,
        path: OPTIONS_OF_FIREWALL,
        params: &[must("enable", values::one)],
        needs: VmProof::Mark,
    },
    AllowRule {
        name: "add-security-group",
        method: HttpMethod::Post,
        path: RULES_OF_VM,
        params: &[
            must("type", values::group),
            must("action", values::security_group),
            must("iface", values::card),
            must("enable", values::one),
            must("comment", values::our_rule),
        ],
        needs: VmProof::Mark,
    },
    AllowRule {
        name: "remove-firewall-rule",
        method: HttpMethod::Delete,
        path: &[
            Fixed("nodes"),
            Host,
            Fixed("qemu"),
            Vmid,
            Fixed("firewall"),
            Fixed("rules"),
            Position,
        ],
        params: &[must("digest", values::digest)],
        needs: VmProof::OwnRule,
    },
    AllowRule {
        name: "move-to-pool",
        method: HttpMethod::Put,
        path: &[Fixed("pools")],
        params: &[
            must("poolid", values::resource_pool),
            must("vms", values::our_vmid),
            must("allow-move", values::one),
        ],
        needs: VmProof::MarkOfNamed,
    },
    AllowRule {
        name: "resize",
        method: HttpMethod::Put,
        path: &[Fixed("nodes"), Host, Fixed("qemu"), Vmid, Fixed("resize")],
        params: &[must("disk", values::disk_key), must("size", values::size)],
        needs: VmProof::MarkAndDigest,
    },
    AllowRule {
        name: "start",
        method: HttpMethod::Post,
        path: &[
            Fixed("nodes"),
            Host,
            Fixed("qemu"),
            Vmid,
            Fixed("status"),
            Fixed("start"),
        ],
        params: &[],
        needs: VmProof::Mark,
    },
    AllowRule {
        name: "shutdown",
        method: HttpMethod::Post,
        path: &[
            Fixed("nodes"),
            Host,
            Fixed("qemu"),
            Vmid,
            Fixed("status"),
            Fixed("shutdown"),
        ],
        params: &[must("timeout", values::seconds)],
        needs: VmProof::Mark,
    },
    AllowRule {
        name: "stop",
        method: HttpMethod::Post,
        path: &[
            Fixed("nodes"),
            Host,
            Fixed("qemu"),
            Vmid,
            Fixed("status"),
            Fixed("stop"),
        ],
        params: &[may("overrule-shutdown", values::flag)],
        needs: VmProof::Mark,
    },
    AllowRule {
        name: "destroy",
        method: HttpMethod::Delete,
        path: &[Fixed("nodes"), Host, Fixed("qemu"), Vmid],
        params: &[may("purge", values::flag)],
        needs: VmProof::MarkOrRecord,
    },
    AllowRule {
        name: "agent-ping",
        method: HttpMethod::Post,
        path: &[
            Fixed("nodes"),
            Host,
            Fixed("qemu"),
            Vmid,
            Fixed("agent"),
            Fixed("ping"),
        ],
        params: &[],
        needs: VmProof::Mark,
    },
    AllowRule {
        name: "agent-exec",
        method: HttpMethod::Post,
        path: &[
            Fixed("nodes"),
            Host,
            Fixed("qemu"),
            Vmid,
            Fixed("agent"),
            Fixed("exec"),
        ],
        params: &[
            hushed(AllowedParam {
                most: MAX_COMMAND,
                ..must("command", values::guest_text)
            }),
            hushed(may("input-data", values::guest_input)),
        ],
        needs: VmProof::Mark,
    },
    AllowRule {
        name: "agent-exec-status",
        method: HttpMethod::Get,
        path: &[
            Fixed("nodes"),
            Host,
            Fixed("qemu"),
            Vmid,
            Fixed("agent"),
            Fixed("exec-status"),
        ],
        params: &[must("pid", values::count)],
        needs: VmProof::Mark,
    },
];

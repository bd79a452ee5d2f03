//! What a host's hardware does not have, and what options of PVE's do not allow together.

use super::{GONE_DEVICE, IOMMU, OLD, Rule, log, say};

const BOUND: &str = "{host}'s own driver keeps the device, or another of its IOMMU group: `lspci -nnk` there shows which; have vfio-pci take it when {host} boots (`options vfio-pci ids=VENDOR:DEVICE` in /etc/modprobe.d, then `update-initramfs -u`), or leave {host} out (`exclude_hosts`)";
const CONFIDENTIAL: &str = "leave {host} out (`exclude_hosts`), switch it on in the firmware of {host}, or take `amd-sev` or `intel-tdx` from `options` in {template_table} (or from the template's VM)";
const OVMF: &str = "have the template with OVMF (`bios = \"ovmf\"` where it is built or created), or take `amd-sev` or `intel-tdx` from `options` in {template_table}";
const SNP: &str = "take `type=snp` from `amd-sev` in `options` of {template_table}, or have a template without an EFI disk";
const USB_NUMBER: &str = "name `usb0` to `usb4` alone in `options` of {template_table}, or have a template of a newer `machine` with `ostype = \"l26\"`";
const DIRECTORY: &str =
    "make the directory on {host}, or edit its mapping (Datacenter, Resource Mappings)";
const HOTPLUG: &str =
    "take `memory` from `hotplug` (`options` in {template_table}, or `qm config` of the template)";
const VIOMMU: &str = "correct `machine` in `options` of {template_table} (or of the template's VM): `viommu=intel` wants a q35 machine, and `aw-bits` is 39 or 48 beside it";
const WATCHDOG: &str = "set `watchdog` in `options` of {template_table} (or of the template's VM, `qm set VMID --watchdog i6300esb`) to `model=i6300esb`: PVE puts the other one where it cannot be";
const ACLS: &str = "take `expose-acl` from `virtiofs0` and its like in `options` of {template_table} (or of the template's VM)";
const RNG: &str = "{host} has no such source of random numbers: set `rng0` in `options` of {template_table} to `source=/dev/urandom`, or leave {host} out (`exclude_hosts`)";
const PORT: &str = "{host} has no such port: take it from `options` in {template_table}, or leave {host} out (`exclude_hosts`)";
const NONE_LEFT: &str = "{host} has no more mediated devices of the type of `mdev` in `pci` of the instance type (or of the template's VM), or has no such type: `pvesh get /nodes/{host}/hardware/pci/MAPPING/mdev` shows what is left; stop a VM that has one, correct `mdev`, or leave {host} out (`exclude_hosts`)";
const VGPU_DRIVER: &str = "`systemctl status nvidia-vgpu-mgr` and `journalctl -k` on {host} say why NVIDIA's driver did not make the mediated device (its license, a virtual function that another VM keeps)";

/// The rows.
pub(super) const RULES: &[Rule] = &[
    // PCI devices: QEMU's hw/vfio, in the log of the start.
    log(
        "group {number} is not viable",
        "other devices of the IOMMU group are {host}'s own: `ls /sys/kernel/iommu_groups/{number}/devices` there shows them; have vfio-pci take all of them, map all of them, or put the card into another slot",
    ),
    log(
        "failed to open /dev/vfio/{number}: Device or resource busy",
        "something else on {host} has the device: `fuser -v /dev/vfio/{number}` there shows it (a VM that was left, a VM whose device lies in the same IOMMU group); stop that",
    ),
    log(
        "failed to open /dev/vfio/{number}: No such file or directory",
        BOUND,
    ),
    log(
        "VFIO_MAP_DMA failed: Cannot allocate memory",
        "a machine with a passed-through device has all its memory from its start on, and {host} has not that much: free some there, or let the region plan with less of it (`host_memory_reserve`)",
    ),
    // qemu-server src/PVE/QemuServer/PCI.pm, `prepare_pci_device`; pve-common src/PVE/SysFSTools.pm.
    say("can't unbind/bind PCI group to VFIO '{*}'", BOUND),
    say("Cannot bind {*} to vfio", BOUND),
    say(
        "Cannot find vfio-pci module!",
        "`modprobe vfio-pci` on {host} says why it cannot be loaded: a kernel that is none of PVE's, or one that was removed by an update since {host} booted (`uname -r`)",
    ),
    say("Cannot open iommu_group", IOMMU),
    say("no pci device info for device '{*}'", GONE_DEVICE),
    // And `PCI/Mdev.pm`; pve-guest-common src/PVE/Mapping/PCI.pm, `assert_valid`.
    say("could not create mediated device", NONE_LEFT),
    say("vgpu type '{*}' not available for", NONE_LEFT),
    say("pci device '{*}' has no available instances of", NONE_LEFT),
    say("pci device '{*}' has no type", NONE_LEFT),
    say("failed to query NVIDIA vGPU types for", VGPU_DRIVER),
    say("could not set vgpu type to", VGPU_DRIVER),
    say("unable to reset vgpu type for", VGPU_DRIVER),
    say(
        "cannot use mediated device with multifunction device",
        "map the functions of the card on {host} one by one (Datacenter, Resource Mappings): several at once make no mediated device",
    ),
    say(
        "'mdev' does not match for '{mapping}'",
        "mark the mapping for mediated devices, or take the mark away, as the device on {host} is (Datacenter, Resource Mappings: Use with Mediated Devices)",
    ),
    // qemu-server src/PVE/QemuServer/USB.pm; pve-guest-common src/PVE/Mapping/USB.pm.
    say(
        "USB device mapping not found for '{mapping}'",
        "map the device on {host} (Datacenter, Resource Mappings), correct `usb0` and its like in `options` of {template_table}, or leave {host} out (`exclude_hosts`)",
    ),
    say(
        "USB Mapping invalid",
        "edit the mapping for {host} (Datacenter, Resource Mappings): the device is not there, or at another port (`lsusb` on {host})",
    ),
    say(
        "More than one USB mapping per host not supported",
        "let the mapping have one device on {host} (Datacenter, Resource Mappings)",
    ),
    say(
        "using usb{number} is only possible with machine type",
        USB_NUMBER,
    ),
    // qemu-server src/PVE/QemuServer/Virtiofs.pm; pve-guest-common src/PVE/Mapping/Dir.pm.
    say(
        "No directory mapping for node {host}.",
        "map a directory on {host} (Datacenter, Resource Mappings), or leave {host} out (`exclude_hosts`)",
    ),
    say(
        "Directory ID {mapping} does not exist",
        "make the directory mapping {mapping} (Datacenter, Resource Mappings), or correct `virtiofs0` and its like in `options` of {template_table}",
    ),
    say("directory mapping invalid", DIRECTORY),
    say(
        "virtiofsd is not installed",
        "`apt install virtiofsd` on {host}",
    ),
    say("Please disable ACLs for virtiofs on Windows VMs", ACLS),
    say(
        "Memory hotplug does not work in combination with virtio-fs",
        HOTPLUG,
    ),
    // qemu-server src/PVE/QemuServer/Memory.pm.
    say(
        "NUMA needs to be enabled for memory hotplug",
        "set `numa = true` in {template_table}, or take `memory` from `hotplug` (`options` there, or `qm config` of the template)",
    ),
    say(
        "cannot enable memory hotplugging with custom NUMA topology",
        HOTPLUG,
    ),
    say(
        "minimum memory must be {number}MB",
        "give the pool instance types of at least {number} MiB `memory`, or take `memory` from `hotplug` (`options` in {template_table}, or `qm config` of the template)",
    ),
    say(
        "Total memory is bigger than {number}MB",
        "give the pool instance types of at most {number} MiB `memory`, or take `memory` from `hotplug` (`options` in {template_table}, or `qm config` of the template)",
    ),
    say(
        "memory size ({*}) must be aligned to {number} for hotplugging",
        "give the pool instance types whose `memory` is a multiple of {number} MiB, or take `memory` from `hotplug` (`options` in {template_table}, or `qm config` of the template)",
    ),
    say(
        "missing NUMA node{number} cpus",
        "give `numa{number}` of the template's VM its `cpus`, or take it away (`qm set VMID --delete numa{number}`)",
    ),
    // qemu-server src/PVE/QemuServer/CPUConfig.pm and OVMF.pm; src/PVE/API2/Qemu.pm, `create_disks`.
    say("Your CPU does not support AMD SEV", CONFIDENTIAL),
    say("Your CPU does not support Intel TDX", CONFIDENTIAL),
    say("To use AMD SEV, you need to change the BIOS to OVMF", OVMF),
    say(
        "To use Intel TDX, you need to change the BIOS to OVMF",
        OVMF,
    ),
    say("SEV-SNP uses consolidated read-only firmware", SNP),
    say("Attempting to configure SEV-SNP with pflash devices", SNP),
    say(
        "host-hw-capabilities.json does not exist",
        "`systemctl restart query-machine-capabilities` on {host} finds out what its CPU has, and `systemctl status query-machine-capabilities` says why it could not",
    ),
    say(
        "OVMF (UEFI) BIOS is not supported on 32-bit CPU types",
        "set `cpu_type` in {template_table} to one of 64 bits (`x86-64-v2-AES`, `host`)",
    ),
    // qemu-server src/PVE/QemuServer/Machine.pm.
    say(
        "to use Intel vIOMMU please set the machine type to q35",
        VIOMMU,
    ),
    say("Intel vIOMMU supports only 39 or 48 bits", VIOMMU),
    say("cannot set aw-bits if no vIOMMU is configured", VIOMMU),
    // qemu-server src/PVE/QemuServer/RNG.pm.
    say("cannot create VirtIO RNG device: source file", RNG),
    say("Cannot start VM with passed-through RNG device", RNG),
    // qemu-server src/PVE/QemuServer.pm, `config_to_command` and `print_vga_device`.
    say("no such serial device", PORT),
    say("no such parallel device", PORT),
    say(
        "missing libraries for '{option}' detected",
        "`apt install libgl1 libegl1` on {host}, or another `vga` in `options` of {template_table}",
    ),
    say(
        "no DRM render node detected",
        "set another `vga` in `options` of {template_table}, or leave {host} out (`exclude_hosts`): it has no GPU for that one",
    ),
    say("Detected old QEMU binary", OLD),
    // QEMU, of an option or a device that this version or this host's kernel does not have; in the log of the start.
    log("Device 'ib700' can't go on PCI bus", WATCHDOG),
    log(
        "Could not access KVM kernel module",
        "see on {host} whether the kernel's module is loaded (`lsmod`, `modprobe kvm_intel` or `modprobe kvm_amd`) and virtualisation is on in its firmware, or leave it out (`exclude_hosts`)",
    ),
    log("unsupported machine type", OLD),
];

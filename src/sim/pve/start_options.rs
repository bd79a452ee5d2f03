//! What PVE and QEMU find wrong of a VM's options when it starts, though they could be written (qemu-server, `QemuServer/USB.pm`,
//! `QemuServer/Memory.pm`, `QemuServer/Virtiofs.pm`). Words of errors as there.

use super::device_formats::features;
use super::properties;
use super::values::is_true;
use super::world::SimVm;

/// What QEMU says of the watchdog that is none on the PCI bus, where PVE puts both.
pub(super) const NO_PCI_WATCHDOG: &str =
    "kvm: -device ib700,bus=pci.0,addr=0x4: Device 'ib700' can't go on PCI bus";
/// MiB that a VM has at least whose memory can grow.
const STATIC_MEMORY: u64 = 1_024;
/// USB devices that older machines can have, and systems that the newer controller is none for.
const OLD_USB: u32 = 5;
/// The first version of machines that can have more.
const NEW_USB: (u32, u32) = (7, 1);

/// Whether a VM starts with its options.
pub(super) fn check(vm: &SimVm) -> Result<(), String> {
    check_usb(vm)?;
    check_memory(vm)?;
    check_directories(vm)?;
    if properties(vm.text("watchdog"), "model").get("model") == Some(&"ib700") {
        return Err(NO_PCI_WATCHDOG.to_owned());
    }
    Ok(())
}

fn check_usb(vm: &SimVm) -> Result<(), String> {
    let new = matches!(vm.text("ostype"), "l26" | "win8" | "win10" | "win11")
        && version(vm.text("machine")).is_none_or(|version| version >= NEW_USB);
    let numbers = vm.config.keys().filter_map(|key| key.strip_prefix("usb"));
    let mut numbers = numbers.filter_map(|number| number.parse::<u32>().ok());
    match numbers.find(|number| *number >= OLD_USB && !new) {
        Some(number) => Err(format!(
            "using usb{number} is only possible with machine type >= 7.1 and ostype l26 or windows > 7"
        )),
        None => Ok(()),
    }
}

/// The version that a machine type names.
fn version(machine: &str) -> Option<(u32, u32)> {
    let kind = properties(machine, "type").get("type").copied()?;
    let (_, version) = kind.rsplit_once('-')?;
    let (major, rest) = version.split_once('.')?;
    let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn check_memory(vm: &SimVm) -> Result<(), String> {
    if !features(vm.text("hotplug")).contains(&"memory") {
        return Ok(());
    }
    if !vm.flag("numa") {
        return Err("NUMA needs to be enabled for memory hotplug".to_owned());
    }
    if (0..8).any(|at| vm.config.contains_key(&format!("numa{at}"))) {
        return Err("cannot enable memory hotplugging with custom NUMA topology".to_owned());
    }
    if vm.memory_mib() < STATIC_MEMORY {
        return Err(format!("minimum memory must be {STATIC_MEMORY}MB"));
    }
    if directories(vm).next().is_some() {
        return Err("Memory hotplug does not work in combination with virtio-fs.".to_owned());
    }
    Ok(())
}

fn check_directories(vm: &SimVm) -> Result<(), String> {
    let windows = vm.text("ostype").starts_with('w');
    let acls = directories(vm).any(|value| {
        let parts = properties(value, "dirid");
        parts.get("expose-acl").is_some_and(|acl| is_true(acl))
    });
    if windows && acls {
        return Err("Please disable ACLs for virtiofs on Windows VMs, otherwise the virtiofs shared directory cannot be mounted.".to_owned());
    }
    Ok(())
}

/// The directories of its host that a VM has.
fn directories(vm: &SimVm) -> impl Iterator<Item = &str> {
    let all = vm.config.iter();
    all.filter(|(key, _)| key.starts_with("virtiofs"))
        .map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A VM that runs Linux, with these options.
    fn vm(options: &str) -> SimVm {
        let mut vm = SimVm::new(9000, "pve1");
        let options = ["ostype=l26", "memory=512"]
            .into_iter()
            .chain(options.split(' '));
        for (key, value) in options.filter_map(|option| option.split_once('=')) {
            vm.config.insert(key.to_owned(), value.to_owned());
        }
        vm
    }

    /// As PVE's own code said of such VMs.
    #[test]
    fn a_start_is_refused_in_pves_words() {
        for options in [
            "",
            "watchdog=i6300esb",
            "watchdog=action=reset",
            "usb13=spice",
            "usb4=spice ostype=other",
            "hotplug=memory,disk numa=1 memory=1024",
            "virtiofs0=data,expose-acl=1",
            "virtiofs0=data ostype=win11",
        ] {
            assert_eq!(check(&vm(options)), Ok(()), "{options}");
        }
        for (options, words) in [
            ("watchdog=model=ib700,action=reset", "can't go on PCI bus"),
            ("watchdog=ib700", "can't go on PCI bus"),
            (
                "usb5=spice ostype=other",
                "using usb5 is only possible with machine type >= 7.1",
            ),
            (
                "usb13=spice machine=pc-i440fx-7.0",
                "using usb13 is only possible with machine type >= 7.1",
            ),
            ("hotplug=memory memory=1024", "NUMA needs to be enabled"),
            ("hotplug=memory numa=1", "minimum memory must be 1024MB"),
            (
                "hotplug=memory numa=1 memory=1024 virtiofs0=data",
                "Memory hotplug does not work in combination with virtio-fs.",
            ),
            (
                "virtiofs0=data,expose-acl=1 ostype=win11",
                "Please disable ACLs for virtiofs on Windows VMs",
            ),
        ] {
            let why = check(&vm(options)).expect_err(options);
            assert!(why.contains(words), "{options}: {why}");
        }
    }
}

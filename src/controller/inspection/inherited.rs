//! What every machine inherits of its template, and what is for one VM, or for none that is to join.

use std::collections::BTreeMap;

use super::numbered;
use crate::config::settings::TemplateSettings;
use crate::model::network::{fixed_addresses, without_fixed_addresses};
use crate::model::words::each;
use crate::pve::VmConfig;

/// The keys of a bus with their values.
fn keys<'a>(config: &'a VmConfig, bus: &str) -> Vec<(&'a str, &'a str)> {
    let keys = config.raw.iter();
    keys.filter(|(key, _)| numbered(key, bus))
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect()
}

/// Devices of the host, CPUs and memory that every clone inherits, and that are for one VM.
pub(super) fn of_one_vm(
    vmid: u32,
    config: &VmConfig,
    template: &TemplateSettings,
    add: &mut impl FnMut(bool, String),
) {
    for (name, value) in keys(config, "hostpci") {
        if !value.contains("mapping=") {
            add(
                false,
                format!(
                    "passes the device {value} through ({name}), which one machine of a host can have; a mapping of alike devices (--{name} mapping=NAME) is for several"
                ),
            );
        }
    }
    for (name, value) in keys(config, "usb") {
        if !value.contains("mapping=")
            && !value.starts_with("spice")
            && !value.starts_with("host=spice")
        {
            add(
                false,
                format!(
                    "passes the USB device {value} through ({name}), which one machine of a host can have; qm set {vmid} --delete {name}"
                ),
            );
        }
    }
    if let Some(cores) = config.raw.get("affinity") {
        add(
            false,
            format!(
                "is pinned to the host's CPUs {cores} (affinity), and so would all its machines be; qm set {vmid} --delete affinity"
            ),
        );
    }
    // Where each pool says which huge pages its machines have, those take the place of the template's.
    let pools = &template.pools;
    let own = !pools.is_empty() && pools.values().all(|pool| pool.hugepages);
    if let Some(pages) = config.raw.get("hugepages").filter(|_| !own) {
        add(
            false,
            format!(
                "takes its memory from huge pages (hugepages: {pages}), and so would all its machines, while they are planned as if they took plain memory; qm set {vmid} --delete hugepages, or hugepages in the pool's table"
            ),
        );
    }
}

/// Files that every clone inherits, and that only some hosts may have.
pub(super) fn of_files(
    vmid: u32,
    config: &VmConfig,
    is_shared: impl Fn(&str) -> bool,
    add: &mut impl FnMut(bool, String),
) {
    if let Some(hook) = config.raw.get("hookscript") {
        add(
            false,
            format!(
                "has the hook script {hook}, which runs for every machine and must be on every host; qm set {vmid} --delete hookscript"
            ),
        );
    }
    if let Some(custom) = config.raw.get("cicustom") {
        let local = custom.split(',').filter(|part| {
            let volume = part.split_once('=').map_or(*part, |(_, volume)| volume);
            let storage = volume.split_once(':').map(|(storage, _)| storage);
            !storage.is_some_and(&is_shared)
        });
        let local: Vec<&str> = local.collect();
        if !local.is_empty() {
            add(
                false,
                format!(
                    "has its cloud-init data from {} (cicustom): a machine starts only on hosts that have this file; qm set {vmid} --delete cicustom, or the file on a storage that all hosts share",
                    local.join(",")
                ),
            );
        }
    }
}

/// Settings with which no clone boots or reaches anything, and those that lead out of the guest.
pub(super) fn of_no_use(
    vmid: u32,
    config: &VmConfig,
    template: &TemplateSettings,
    add: &mut impl FnMut(bool, String),
) {
    if config.raw.get("freeze").is_some_and(|value| value == "1") {
        add(
            true,
            format!(
                "starts with its CPUs frozen (freeze: 1), and so would all its machines: none would boot; qm set {vmid} --delete freeze"
            ),
        );
    }
    if config.raw.contains_key("args") {
        add(
            false,
            format!(
                "has arguments of its own for QEMU (args), which every machine inherits and nobody looks at: they may name files of the host or lead out of the guest; qm set {vmid} --delete args"
            ),
        );
    }
    let cards = keys(config, "net");
    let is_down = |value: &str| value.split(',').any(|part| part == "link_down=1");
    let made =
        (1..=template.nics.len()).any(|number| !config.raw.contains_key(&format!("net{number}")));
    let all = !made && cards.iter().all(|(_, value)| is_down(value));
    for (name, value) in cards.iter().filter(|(_, value)| is_down(value)) {
        let parts = value.split(',').filter(|part| *part != "link_down=1");
        let up: Vec<&str> = parts.collect();
        let reached = if all {
            "no machine would reach anything"
        } else {
            "no machine would reach anything by it"
        };
        add(
            all,
            format!(
                "has no link at {name} (link_down=1), and {reached}; qm set {vmid} --{name} {}",
                up.join(",")
            ),
        );
    }
}

/// Whether the VM has a fixed address on some card.
pub fn has_fixed_address(config: &VmConfig) -> bool {
    keys(config, "ipconfig")
        .iter()
        .any(|(_, value)| fixed_addresses(value).next().is_some())
}

/// The fixed addresses of the template's own VM that more than one machine would have, by the number of the network card; each says
/// what helps. A pool whose network, or a table that gives the card an `ipconfig`, takes the place of such an address is not meant.
pub fn shared_addresses(
    vmid: u32,
    config: &VmConfig,
    template: &TemplateSettings,
) -> BTreeMap<u8, String> {
    let mut found = BTreeMap::new();
    // An ISO tells a guest what PVE's own drive would, unless the file says what it is told.
    let is_told = match &template.cloud_init {
        Some(texts) => texts.network_config.is_none(),
        None => config.disks.values().any(|disk| disk.cloud_init),
    };
    if !is_told {
        return found;
    }
    for (key, value) in keys(config, "ipconfig") {
        let number = key.strip_prefix("ipconfig");
        let Some(card) = number.and_then(|number| number.parse::<u8>().ok()) else {
            continue;
        };
        if fixed_addresses(value).next().is_none() {
            continue;
        }
        let of_file = template.cards().find(|(number, _)| *number == card);
        let of_file = of_file.map(|(_, of_file)| of_file).unwrap_or_default();
        let is_there = of_file.bridge.is_some() || config.raw.contains_key(&format!("net{card}"));
        if of_file.ipconfig.is_some() || !is_there {
            continue;
        }
        let users = template.pools.iter();
        let users = users.filter(|(_, pool)| pool.max > 0 && !pool.networks.contains(&card));
        let users: Vec<_> = users.collect();
        let machines: u64 = users.iter().map(|(_, pool)| u64::from(pool.max)).sum();
        if machines < 2 {
            continue;
        }
        let network = match card {
            0 => "a network in the pool's table",
            _ => "a network in a [[template.NAME.nic]] for that card",
        };
        found.insert(
            card,
            format!(
                "VM {vmid} has a fixed address ({key}: {value}) that all its machines would have, and {} {} may have {machines}; qm set {vmid} --{key} {}, or {network}, which gives each an address of its own",
                if users.len() == 1 { "pool" } else { "pools" },
                each(&users.iter().map(|(name, _)| name).collect::<Vec<_>>()),
                without_fixed_addresses(value)
            ),
        );
    }
    found
}

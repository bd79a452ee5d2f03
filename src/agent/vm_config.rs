//! What a machine's VM configuration must say, and the smallest write that makes it so. Pure.
//!
//! A clone inherits `ciupgrade`, `protection`, `onboot`, tags and more from its template; the first
//! write after the clone undoes that. Source: `qemu-server` `PVE/API2/Qemu.pm`, clone and update.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::settings::{NetCard, Pool, Settings, Template};
use crate::model::mark::Mark;
use crate::model::policy::InstanceType;
use crate::model::words;
use crate::pve::MAX_QUEUES;

/// The tag that every machine carries, for people; it proves nothing.
pub const TAG: &str = "pve-autoscaler";

/// One configuration write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Write {
    /// Keys to set.
    pub set: BTreeMap<String, String>,
    /// Keys to delete.
    pub delete: Vec<String>,
}

impl Write {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.delete.is_empty()
    }
}

/// The cloud-init keys of a VM's configuration that `[network.NAME]` decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkKeys {
    /// `ipconfigN` by the number of the network card.
    pub ipconfigs: BTreeMap<u8, String>,
    /// `nameserver`.
    pub nameserver: Option<String>,
    /// `searchdomain`.
    pub searchdomain: Option<String>,
}

impl NetworkKeys {
    /// The keys for the addresses that a mark reserves, by the networks of its pool.
    ///
    /// # Errors
    /// The configuration does not give it these addresses any more.
    pub fn of(settings: &Settings, mark: &Mark) -> Result<NetworkKeys, String> {
        let mut keys = NetworkKeys::default();
        let pool = settings.policy.pools.get(mark.pool.as_str());
        for (card, addresses) in &mark.addresses {
            let name = pool.and_then(|pool| pool.networks.get(card));
            let network = name.and_then(|name| settings.networks.get(name));
            let Some((name, network)) = name.zip(network) else {
                return Err(format!(
                    "pool {} has no network for net{card} any more, and {} is reserved for it",
                    mark.pool,
                    words::names(addresses.iter().map(ToString::to_string))
                ));
            };
            let text = network.ipconfig(addresses);
            let text = text.map_err(|why| format!("network {name} has changed: {why}"))?;
            keys.ipconfigs.insert(*card, text);
            if keys.nameserver.is_none() {
                keys.nameserver.clone_from(&network.nameserver);
            }
            if keys.searchdomain.is_none() {
                keys.searchdomain.clone_from(&network.searchdomain);
            }
        }
        Ok(keys)
    }
}

/// What `current` (the configuration as PVE tells it, values as text) lacks.
pub fn write(
    current: &BTreeMap<String, String>,
    machine: &str,
    instance_type: &InstanceType,
    (template, network): (&Template, &NetworkKeys),
    pool: &Pool,
) -> Write {
    let mut wanted = plain(machine, instance_type, pool);
    wanted.extend(of_template(template, network));
    wanted.extend(numbered(instance_type, network));
    for (number, card) in template.cards() {
        let key = format!("net{number}");
        if let Some(net) = net(current.get(&key), card, instance_type.cores) {
            wanted.insert(key, net);
        }
    }
    let mut write = Write::default();
    // Logical CPUs are cores × sockets; a template with two sockets would double them.
    for (key, harmless) in [("sockets", "1"), ("vcpus", "")] {
        if current.get(key).is_some_and(|value| value != harmless) {
            write.delete.push(key.to_owned());
        }
    }
    // Where the type says which devices its machines have, those are all: only they were planned.
    if !instance_type.pci.is_empty() {
        let further = current.keys().filter(|key| is_device(key));
        let further = further.filter(|key| !wanted.contains_key(*key));
        write.delete.extend(further.cloned());
    }
    for (key, value) in wanted {
        if !same(&key, current.get(&key).map(String::as_str), &value) {
            write.set.insert(key, value);
        }
    }
    write
}

/// What every machine gets.
fn plain(machine: &str, instance_type: &InstanceType, pool: &Pool) -> BTreeMap<String, String> {
    let mut wanted = vec![
        ("name", machine.to_owned()),
        ("cores", instance_type.cores.to_string()),
        ("memory", (instance_type.memory / (1 << 20)).to_string()),
        // A ballooned node would lie to kube-scheduler about its memory.
        ("balloon", "0".to_owned()),
        // The autoscaler, not the host's boot, decides which machines run.
        ("onboot", "0".to_owned()),
        ("protection", "0".to_owned()),
        ("tags", tags(pool).join(";")),
    ];
    if let Some(units) = pool.cpu_units {
        wanted.push(("cpuunits", units.to_string()));
    }
    let wanted = wanted.into_iter();
    wanted.map(|(key, value)| (key.to_owned(), value)).collect()
}

/// What the table of the template says, and what comes with a network's addresses.
fn of_template(
    template: &Template,
    network: &NetworkKeys,
) -> impl Iterator<Item = (String, String)> {
    let first = |one: &Option<String>, other: &Option<String>| one.clone().or(other.clone());
    let keys = template.ssh_keys.as_ref();
    // An upgrade at first boot costs minutes and may change the kubelet: PVE's default would be one.
    let upgrade = u8::from(template.ci_upgrade).to_string();
    let optional = [
        ("ciupgrade", Some(upgrade)),
        ("cpu", template.cpu_type.clone()),
        ("ciuser", template.ci_user.clone()),
        (
            "nameserver",
            first(&network.nameserver, &template.nameserver),
        ),
        (
            "searchdomain",
            first(&network.searchdomain, &template.searchdomain),
        ),
        (
            "sshkeys",
            keys.map(|keys| crate::pve::component(keys.trim())),
        ),
    ];
    let optional = optional.into_iter();
    let optional = optional.filter_map(|(key, value)| Some((key.to_owned(), value?)));
    let cards = template.cards();
    let cards = cards.filter_map(|(card, of)| Some((format!("ipconfig{card}"), of.ipconfig?)));
    optional.chain(cards)
}

/// What a machine has several of: addresses by network card, PCI devices.
fn numbered(
    instance_type: &InstanceType,
    network: &NetworkKeys,
) -> impl Iterator<Item = (String, String)> {
    let addresses = network.ipconfigs.iter();
    let addresses = addresses.map(|(card, text)| (format!("ipconfig{card}"), text.clone()));
    let devices = instance_type.pci.iter().enumerate();
    let devices = devices.map(|(at, device)| (format!("hostpci{at}"), device.value()));
    addresses.chain(devices)
}

/// `hostpci0`, `hostpci15`.
fn is_device(key: &str) -> bool {
    is_numbered(key, "hostpci")
}

fn is_numbered(key: &str, stem: &str) -> bool {
    let number = key.strip_prefix(stem);
    number.is_some_and(|number| number.parse::<u8>().is_ok())
}

/// Whether PVE's value already means what is wanted. Absent keys mean PVE's default.
fn same(key: &str, current: Option<&str>, wanted: &str) -> bool {
    match (key, current) {
        ("tags", Some(current)) => tag_set(current) == tag_set(wanted),
        ("onboot" | "protection", None) => wanted == "0",
        (key, Some(current)) if is_numbered(key, "net") => parts(current) == parts(wanted),
        (key, Some(current)) if is_device(key) => {
            let sorted = |text: &str| text.split(',').map(str::to_owned).collect::<BTreeSet<_>>();
            sorted(current) == sorted(wanted)
        }
        (_, Some(current)) => current.trim_end() == wanted.trim_end(),
        (_, None) => false,
    }
}

/// The parts of a property string in PVE's order: the first stays, the others are sorted by name
/// (`JSONSchema::print_property_string`), whatever order they were sent in.
fn parts(text: &str) -> Vec<&str> {
    let mut parts: Vec<&str> = text.trim_end().split(',').collect();
    if let Some(others) = parts.get_mut(1..) {
        others.sort_unstable();
    }
    parts
}

fn tag_set(text: &str) -> Vec<String> {
    let mut tags: Vec<String> = text
        .split([';', ',', ' '])
        .filter(|tag| !tag.is_empty())
        .map(str::to_lowercase)
        .collect();
    tags.sort();
    tags.dedup();
    tags
}

fn tags(pool: &Pool) -> Vec<String> {
    let mut tags: Vec<String> = pool.tags.iter().map(|tag| tag.to_lowercase()).collect();
    tags.push(TAG.to_owned());
    tags.sort();
    tags.dedup();
    tags
}

/// A network card with what the file wants of it, for a VM with so many cores; model, MAC and the rest stay.
fn net(current: Option<&String>, card: NetCard, cores: u32) -> Option<String> {
    let firewall = card.firewall.map(|on| u8::from(on).to_string());
    let mtu = card.mtu.map(|mtu| mtu.to_string());
    let queues = card
        .multiqueue
        .map(|on| if on { cores.min(MAX_QUEUES) } else { 0 }.to_string());
    let vlan = card.vlan.map(|vlan| vlan.to_string());
    let wanted = [
        ("bridge", card.bridge),
        ("tag", vlan),
        ("firewall", firewall),
        ("mtu", mtu),
        ("queues", queues),
    ];
    if wanted.iter().all(|(_, value)| value.is_none()) {
        return None;
    }
    let mut parts: Vec<(String, Option<String>)> = current
        .map_or("virtio", String::as_str)
        .split(',')
        .map(|part| match part.split_once('=') {
            Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
            None => (part.to_owned(), None),
        })
        .collect();
    for (key, value) in wanted {
        if value.is_some() {
            parts.retain(|(name, _)| name != key);
            parts.push((key.to_owned(), value));
        }
    }
    let text: Vec<String> = parts
        .into_iter()
        .map(|(key, value)| value.map_or(key.clone(), |value| format!("{key}={value}")))
        .collect();
    Some(self::parts(&text.join(",")).join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::pci::PciDevice;

    fn config(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    fn none() -> NetworkKeys {
        NetworkKeys::default()
    }

    fn kind() -> InstanceType {
        InstanceType {
            cores: 4,
            memory: 8 << 30,
            ..InstanceType::default()
        }
    }

    fn applied(mut config: BTreeMap<String, String>, write: Write) -> BTreeMap<String, String> {
        for key in &write.delete {
            config.remove(key);
        }
        config.extend(write.set);
        config
    }

    #[test]
    fn what_a_template_passes_on_is_undone_once() {
        let inherited = config(&[
            ("name", "m"),
            ("cores", "2"),
            ("memory", "2048"),
            ("protection", "1"),
            ("onboot", "1"),
            ("sockets", "2"),
            ("tags", "Template;gold"),
            ("net0", "virtio=AA:BB:CC:00:11:22,bridge=vmbr0,firewall=1"),
        ]);
        let template = Template {
            bridge: Some("vmbr7".into()),
            vlan: Some(42),
            ..Template::default()
        };
        let pool = Pool {
            tags: vec!["K8s".into()],
            ..Pool::default()
        };
        let first = write(&inherited, "m", &kind(), (&template, &none()), &pool);
        assert_eq!(first.set["memory"], "8192");
        assert_eq!(first.set["ciupgrade"], "0");
        assert_eq!(first.set["tags"], "k8s;pve-autoscaler");
        assert_eq!(
            first.set["net0"],
            "virtio=AA:BB:CC:00:11:22,bridge=vmbr7,firewall=1,tag=42"
        );
        assert_eq!(first.delete, ["sockets"]);
        let second = write(
            &applied(inherited, first),
            "m",
            &kind(),
            (&template, &none()),
            &pool,
        );
        assert!(second.is_empty(), "{second:?}");
    }

    #[test]
    fn a_type_with_devices_has_those_in_the_place_of_the_templates() {
        let device = |mapping: &str, pcie| PciDevice {
            mapping: mapping.into(),
            pcie,
            ..PciDevice::default()
        };
        let mut with = kind();
        with.pci = vec![device("gpu", true), device("sound", false)];
        let inherited = || {
            config(&[
                ("hostpci0", "0000:01:00.0"),
                ("hostpci1", "mapping=sound"),
                ("hostpci3", "mapping=gpu"),
            ])
        };
        let write = |before: &BTreeMap<String, String>, kind: &InstanceType| {
            let template = Template::default();
            super::write(before, "m", kind, (&template, &none()), &Pool::default())
        };
        let first = write(&inherited(), &with);
        assert_eq!(first.set["hostpci0"], "mapping=gpu,pcie=1");
        assert!(!first.set.contains_key("hostpci1"), "{first:?}");
        assert_eq!(first.delete, ["hostpci3"]);
        let mut after = applied(inherited(), first);
        after.insert("hostpci0".to_owned(), "pcie=1,mapping=gpu".to_owned());
        assert!(write(&after, &with).is_empty());
        // A type that names none leaves the template's.
        let plain = write(&inherited(), &kind());
        assert!(plain.delete.is_empty() && !plain.set.contains_key("hostpci0"));
    }

    #[test]
    fn a_network_that_is_right_already_is_left_alone_in_whatever_order() {
        let template = Template {
            bridge: Some("vmbr0".into()),
            ..Template::default()
        };
        for nic in [
            "virtio=AA:BB:CC:00:11:22,bridge=vmbr0,firewall=1",
            "virtio=AA:BB:CC:00:11:22,firewall=1,bridge=vmbr0",
            "virtio=AA:BB:CC:00:11:22,bridge=vmbr0,mtu=1,queues=4,tag=7",
        ] {
            let write = write(
                &config(&[("net0", nic)]),
                "m",
                &kind(),
                (&template, &none()),
                &Pool::default(),
            );
            assert!(!write.set.contains_key("net0"), "{nic}: {write:?}");
        }
    }

    #[test]
    fn a_network_card_gets_what_the_file_says_and_keeps_the_rest() {
        let template = Template {
            firewall: Some(false),
            mtu: Some(1400),
            multiqueue: Some(true),
            ..Template::default()
        };
        let pool = Pool {
            cpu_units: Some(300),
            ..Pool::default()
        };
        let before = config(&[(
            "net0",
            "virtio=AA:BB:CC:00:11:22,bridge=vmbr0,firewall=1,queues=2,rate=5",
        )]);
        let first = write(&before, "m", &kind(), (&template, &none()), &pool);
        assert_eq!(
            first.set["net0"],
            "virtio=AA:BB:CC:00:11:22,bridge=vmbr0,firewall=0,mtu=1400,queues=4,rate=5"
        );
        assert_eq!(first.set["cpuunits"], "300");
        let second = write(
            &applied(before, first),
            "m",
            &kind(),
            (&template, &none()),
            &pool,
        );
        assert!(second.is_empty(), "{second:?}");
    }

    #[test]
    fn further_cards_are_made_or_changed_each_by_its_number() {
        let card = |bridge: &str, vlan| NetCard {
            bridge: Some(bridge.into()),
            vlan,
            ..NetCard::default()
        };
        let mut second = card("vmbr2", None);
        (second.mtu, second.multiqueue) = (Some(9000), Some(true));
        second.ipconfig = Some("ip=dhcp".into());
        let template = Template {
            nics: vec![card("vmbr1", Some(30)), second],
            ..Template::default()
        };
        let write = |before: &BTreeMap<String, String>| {
            let mut network = none();
            network.ipconfigs.insert(1, "ip=192.0.2.50/24".into());
            super::write(
                before,
                "m",
                &kind(),
                (&template, &network),
                &Pool::default(),
            )
        };
        let net2 = "e1000=AA:BB:CC:00:11:33,bridge=vmbr0,firewall=1";
        let before = config(&[
            ("net0", "virtio=AA:BB:CC:00:11:22,bridge=vmbr0"),
            ("net2", net2),
        ]);
        let first = write(&before);
        assert!(!first.set.contains_key("net0"), "{first:?}");
        assert_eq!(first.set["net1"], "virtio,bridge=vmbr1,tag=30");
        assert_eq!(
            first.set["net2"],
            "e1000=AA:BB:CC:00:11:33,bridge=vmbr2,firewall=1,mtu=9000,queues=4"
        );
        assert_eq!(first.set["ipconfig1"], "ip=192.0.2.50/24");
        assert_eq!(first.set["ipconfig2"], "ip=dhcp");
        // PVE gives a new card its MAC.
        let mut after = applied(before, first);
        after.insert(
            "net1".into(),
            "virtio=AA:BB:CC:00:11:44,bridge=vmbr1,tag=30".into(),
        );
        assert!(write(&after).is_empty());
    }

    #[test]
    fn ssh_keys_are_encoded_as_pve_wants() {
        let template = Template {
            ssh_keys: Some("ssh-ed25519 AAA+b= me\n".into()),
            ..Template::default()
        };
        let write = write(
            &BTreeMap::new(),
            "m",
            &kind(),
            (&template, &none()),
            &Pool::default(),
        );
        assert_eq!(write.set["sshkeys"], "ssh-ed25519%20AAA%2Bb%3D%20me");
    }
}

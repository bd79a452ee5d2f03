//! What the broker lets pass, from the root-owned configuration file and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::config::hardware::cpu_limit;
use crate::config::settings::{BrokerAllow, Settings};
use crate::pve::IsoOwner;

/// The policy in the form in which it is asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct BrokerPolicy {
    /// Ranges, templates, storages, bridges, limits.
    pub(super) allow: BrokerAllow,
    /// Hash of `allow`, which the daemon compares with its own.
    pub(super) hash: String,
    /// Group whose members may talk to the broker.
    pub(super) group: String,
    /// The broker's socket, for when it binds it itself.
    pub(super) socket: std::path::PathBuf,
    /// Guest settings that may be written: exactly what some template in the file says.
    pub(super) guest: GuestValues,
}

/// Values for guests that the file names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GuestValues {
    /// `cpu`.
    pub(super) cpu_types: BTreeSet<String>,
    /// `ipconfigN`.
    pub(super) ipconfigs: BTreeSet<String>,
    /// `ciuser`.
    pub(super) users: BTreeSet<String>,
    /// `nameserver`.
    pub(super) nameservers: BTreeSet<String>,
    /// `searchdomain`.
    pub(super) searchdomains: BTreeSet<String>,
    /// `sshkeys`, plain and trimmed.
    pub(super) ssh_keys: BTreeSet<String>,
    /// Machines of some template have no `sshkeys`, whatever the template's VM has.
    pub(super) no_ssh_keys: bool,
    /// VLAN tags of network cards.
    pub(super) vlans: BTreeSet<u16>,
    /// `firewall` of network cards.
    pub(super) firewalls: BTreeSet<bool>,
    /// `mtu` of network cards.
    pub(super) mtus: BTreeSet<u16>,
    /// `queues` of network cards: as many as the VM's type has cores (true), or none.
    pub(super) multiqueues: BTreeSet<bool>,
    /// `rate` of network cards, in MB a second.
    pub(super) rates: BTreeSet<u32>,
    /// Models of network cards.
    pub(super) models: BTreeSet<&'static str>,
    /// First halves of MAC addresses.
    pub(super) mac_prefixes: BTreeSet<String>,
    /// `startup`.
    pub(super) startups: BTreeSet<String>,
    /// `sockets`.
    pub(super) sockets: BTreeSet<u32>,
    /// `numa`.
    pub(super) numas: BTreeSet<bool>,
    /// `cpuunits`, by pool.
    pub(super) cpu_units: BTreeMap<String, u32>,
    /// `cpulimit`, by pool.
    pub(super) cpu_limits: BTreeMap<String, String>,
    /// Bytes that ballooning may take of a machine, by pool.
    pub(super) balloons: BTreeMap<String, i64>,
}

/// Why there is no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot use {file} as the broker's policy: {why}")]
pub(super) struct PolicyError {
    file: String,
    why: String,
}

impl BrokerPolicy {
    /// Reads `path`, which must belong to `owner` (root) and be writable by nobody else.
    pub(super) fn read(path: &Path, owner: u32) -> Result<BrokerPolicy, PolicyError> {
        let fail = |why: String| PolicyError {
            file: path.display().to_string(),
            why,
        };
        let metadata = std::fs::metadata(path).map_err(|error| fail(error.to_string()))?;
        check_owner(metadata.uid(), metadata.mode(), owner).map_err(fail)?;
        let settings = crate::config::load_for_broker(path)
            .map_err(|errors| fail(errors.without_secrets().to_string()))?;
        Ok(BrokerPolicy::of(&settings))
    }

    /// The policy of `settings`.
    pub(super) fn of(settings: &Settings) -> BrokerPolicy {
        let mut guest = GuestValues::default();
        for template in settings.templates.values() {
            let mut add = |set: fn(&mut GuestValues) -> &mut BTreeSet<String>,
                           value: &Option<String>| {
                if let Some(value) = value {
                    set(&mut guest).insert(value.trim().to_owned());
                }
            };
            add(|values| &mut values.cpu_types, &template.cpu_type);
            add(|values| &mut values.users, &template.ci_user);
            add(|values| &mut values.nameservers, &template.nameserver);
            add(|values| &mut values.searchdomains, &template.searchdomain);
            let keys = template.ssh_keys.clone().filter(|keys| !keys.is_empty());
            add(|values| &mut values.ssh_keys, &keys);
            guest.no_ssh_keys |= template.ssh_keys.as_deref() == Some("");
            let hardware = &template.hardware;
            guest.mac_prefixes.extend(hardware.mac_prefix.clone());
            guest.startups.extend(hardware.startup.clone());
            guest.sockets.extend(hardware.sockets);
            guest.numas.extend(hardware.numa);
            for (_, card) in template.cards() {
                guest.models.extend(card.model);
                guest.vlans.extend(card.vlan);
                guest.firewalls.extend(card.passes_firewall());
                guest.mtus.extend(card.mtu);
                guest.multiqueues.extend(card.multiqueue);
                guest.rates.extend(card.rate);
                let text = card.ipconfig.map(|text| text.trim().to_owned());
                guest.ipconfigs.extend(text);
            }
        }
        for (name, pool) in &settings.pools {
            if let Some(units) = pool.cpu_units {
                guest.cpu_units.insert(name.to_string(), units);
            }
            if let Some(limit) = pool.cpu_limit_milli {
                guest.cpu_limits.insert(name.to_string(), cpu_limit(limit));
            }
            if let Some(taken) = pool.balloon {
                guest.balloons.insert(name.to_string(), taken);
            }
        }
        for network in settings.broker.allow.networks.values() {
            guest.nameservers.extend(network.nameserver.clone());
            guest.searchdomains.extend(network.searchdomain.clone());
        }
        BrokerPolicy {
            allow: settings.broker.allow.clone(),
            hash: settings.policy_hash(),
            group: settings.broker.group.clone(),
            socket: settings.broker.socket.clone(),
            guest,
        }
    }

    /// Machines of some instance type get PCI devices of their hosts.
    pub(super) fn gives_devices(&self) -> bool {
        self.allow.types.values().any(|kind| !kind.pci.is_empty())
    }

    /// Machines of some pool get CPUs of their hosts for themselves.
    pub(super) fn gives_cpus(&self) -> bool {
        self.allow.pools.values().any(|pool| pool.pinning.cpus)
    }

    /// Whose ISOs those of a cluster's machines are, by their names.
    pub(super) fn iso_owner(&self, cluster: &str) -> IsoOwner {
        let region = self.allow.iso_region.as_deref();
        IsoOwner::of(cluster, region.unwrap_or_default())
    }

    /// A volume is one that VMs are made of.
    pub(super) fn makes_vms_of(&self, volume: &str) -> bool {
        let mut all = self.allow.new_vms.values();
        all.any(|new| {
            let named = [&new.create.image, &new.create.iso];
            named.iter().any(|named| named.as_deref() == Some(volume))
        })
    }

    /// `vmid` lies in one of our ranges.
    pub(super) fn in_range(&self, vmid: u32) -> bool {
        let inside = |range: &(u32, u32)| (range.0..=range.1).contains(&vmid);
        self.allow.vmids.iter().any(inside)
    }
}

fn check_owner(uid: u32, mode: u32, owner: u32) -> Result<(), String> {
    if uid != owner {
        return Err(format!(
            "it belongs to uid {uid}; whoever can write it decides what is done as root (chown root)"
        ));
    }
    if mode & 0o022 != 0 {
        return Err(format!(
            "its mode {:o} lets others write it (chmod go-w)",
            mode & 0o7777
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_others_can_write_is_no_policy() {
        assert_eq!(check_owner(0, 0o100_644, 0), Ok(()));
        assert_eq!(check_owner(0, 0o100_600, 0), Ok(()));
        for (uid, mode) in [(1000, 0o644), (0, 0o664), (0, 0o646), (0, 0o666)] {
            assert!(check_owner(uid, mode, 0).is_err(), "{uid} {mode:o}");
        }
    }

    #[test]
    fn ranges_are_inclusive() {
        let policy = BrokerPolicy {
            allow: BrokerAllow {
                vmids: vec![(9000, 9099), (200, 200)],
                ..BrokerAllow::default()
            },
            ..BrokerPolicy::default()
        };
        for vmid in [9000, 9099, 200] {
            assert!(policy.in_range(vmid));
        }
        for vmid in [8999, 9100, 199, 201, 0] {
            assert!(!policy.in_range(vmid));
        }
        assert!(!BrokerPolicy::default().in_range(9000), "no range, no VM");
    }
    /// A file with every kind of text that may have gaps.
    const TEXTS: &str = r##"
version = 1
[kubernetes]
kubeconfig = "/etc/pve-autoscaler/kubeconfig"
[region.home]
vmids = "9000-9099"
[template.debian]
vmid = 900
[template.debian.cloud_init]
storage = "local"
user_data = "#cloud-config\nfqdn: {{ machine }}\n"
network_config = "version: 2\n# {{ zone }}\n"
[instance_type.s]
cores = 2
memory = "4GiB"
[pool.small]
template = "debian"
instance_types = ["s"]
max = 3
labels = { where = "{{ host }}" }
annotations = { "example.com/host" = "{{ host }}" }
[pool.small.join]
provider_id = "proxmox://{{ region }}/{{ vmid }}"
method = "command"
command = "join {{ machine }}"
[notification.ops]
kind = "webhook"
url = "https://example.com/hook"
body = "{{ title | tojson }}"
"##;

    fn read(text: &str) -> Result<BrokerPolicy, String> {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("pve-autoscaler.toml");
        std::fs::write(&file, text).expect("written");
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&file, mode).expect("a mode");
        let owner = std::fs::metadata(&file).expect("metadata").uid();
        BrokerPolicy::read(&file, owner).map_err(|error| error.to_string())
    }

    /// The first configuration of a machine has what its network says in the place of what its template does.
    #[test]
    fn a_machines_nameserver_is_its_templates_or_its_networks() {
        let text = r#"
version = 1
[kubernetes]
kubeconfig = "/etc/pve-autoscaler/kubeconfig"
[region.home]
vmids = "9000-9099"
[template.debian]
vmid = 900
nameserver = "192.0.2.1"
searchdomain = "example.org"
[instance_type.s]
cores = 2
memory = "4GiB"
[pool.small]
template = "debian"
instance_types = ["s"]
max = 3
network = "lan"
[pool.small.join]
method = "command"
command = "join"
[network.lan]
subnet = "192.0.2.0/24"
ranges = ["192.0.2.50-192.0.2.99"]
nameservers = ["192.0.2.251"]
searchdomain = "lan.example.org"
"#;
        let policy = read(text).expect("a policy");
        let servers: Vec<&str> = policy.guest.nameservers.iter().map(|one| &**one).collect();
        assert_eq!(servers, ["192.0.2.1", "192.0.2.251"]);
        let domains: Vec<&str> = policy
            .guest
            .searchdomains
            .iter()
            .map(|one| &**one)
            .collect();
        assert_eq!(domains, ["example.org", "lan.example.org"]);
    }

    #[test]
    fn the_policy_is_the_daemons_although_no_text_is_tried() {
        let settings = crate::config::parse(TEXTS, "file").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(read(TEXTS), Ok(BrokerPolicy::of(&settings)));
        // Each gap by itself names what is not known. The daemon refuses the file for that; root reads no such language.
        for (at, _) in TEXTS.match_indices("{{ ") {
            let bad = format!("{}{{{{ no_such_{}", &TEXTS[..at], &TEXTS[at + 3..]);
            let refused = crate::config::parse(&bad, "file").map_err(|errors| errors.to_string());
            assert!(refused.is_err_and(|why| why.contains("no_such_")), "{bad}");
            let taken = read(&bad).expect("a policy");
            assert_eq!(taken.hash, BrokerPolicy::of(&settings).hash, "{bad}");
        }
        let wrong = read(&TEXTS.replace("max = 3", "max = -3"));
        assert!(wrong.is_err_and(|why| why.contains("pool.small.max")));
    }
}

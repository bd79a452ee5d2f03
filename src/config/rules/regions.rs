//! Regions: where PVE is, and how it is reached.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::hosts::{self, RegionHosts};
use super::{Problems, each, name, shared, topology};
use crate::config::file::{self, ChannelKind, ConfigFile};
use crate::config::place::KeyPath;
use crate::config::scalar::VmidRange;
use crate::config::settings::{Channel, RegionSettings};
use crate::config::syntax;
use crate::model::policy::{RegionPolicy, ZoneNames};
use crate::model::time::Span;

/// A region with where it stands in the file.
pub(super) struct ResolvedRegion {
    pub(super) path: KeyPath,
    pub(super) policy: RegionPolicy,
    /// The file does not say what its zones are called.
    zone_unset: bool,
    pub(super) vmids: VmidRange,
    /// How much heavier pools are here than they say.
    pub(super) weight: i32,
    /// What it says of hosts, for its pools.
    pub(super) hosts: RegionHosts,
    pub(super) settings: RegionSettings,
}

pub(super) type ResolvedRegions = BTreeMap<Arc<str>, ResolvedRegion>;

/// PVE is asked at most this often.
const MIN_POLL: Span = Span::seconds(5);

/// The regions; `[proxmox]` is the region `default`.
pub(super) fn regions(file: &ConfigFile, problems: &mut Problems) -> ResolvedRegions {
    let root = KeyPath::default();
    let mut regions = ResolvedRegions::new();
    if let Some(region) = &file.proxmox {
        problems.unless(
            !file.region.contains_key("default"),
            &root.at("proxmox"),
            || "[proxmox] and [region.default] are the same; keep one of them".to_owned(),
        );
        regions.insert(
            shared("default"),
            resolve(region, root.at("proxmox"), problems),
        );
    }
    for (key, region) in &file.region {
        let path = root.at("region").at(key);
        name(&path, key, 63, problems);
        regions.insert(shared(key), resolve(region, path, problems));
    }
    // Hosts of two clusters may have one name.
    let several = regions.len() > 1;
    for region in regions
        .values_mut()
        .filter(|region| several && region.zone_unset)
    {
        region.policy.zones = ZoneNames::RegionHost;
    }
    let local: Vec<&ResolvedRegion> = regions
        .values()
        .filter(|region| region.settings.channel == Channel::Local)
        .collect();
    for region in local.iter().skip(1) {
        problems.add(
            &region.path,
            "only one region can have channel = \"local\": that of this host; expected channel = \"token\"",
        );
    }
    regions
}

fn resolve(region: &file::RegionTable, path: KeyPath, problems: &mut Problems) -> ResolvedRegion {
    let vmids = problems
        .require(
            region.vmids,
            &path.at("vmids"),
            "a range of VMIDs such as \"9000-9999\"",
        )
        .unwrap_or_default();
    problems.unless(region.poll.0 >= MIN_POLL, &path.at("poll"), || {
        format!("expected at least {MIN_POLL}: PVE's own view is 10 seconds old")
    });
    problems.unless(
        region.max_clones_per_storage > 0,
        &path.at("max_clones_per_storage"),
        || "expected at least 1".to_owned(),
    );
    ResolvedRegion {
        policy: RegionPolicy {
            vmid_first: vmids.first,
            vmid_last: vmids.last,
            host_memory_reserve: region.host_memory_reserve.0,
            capacity: hosts::counting(region),
            hosts: hosts::overrides(region, &path, problems),
            zones: match region.zone {
                Some(file::ZoneNamesValue::RegionHost) => ZoneNames::RegionHost,
                Some(file::ZoneNamesValue::Host) | None => ZoneNames::Host,
            },
            price_permille: region.price_factor.map(|factor| factor.0),
            topologies: topology::of_region(region, &path, problems),
        },
        weight: region.weight,
        zone_unset: region.zone.is_none(),
        hosts: hosts::of_region(region, &path, problems),
        vmids,
        settings: RegionSettings {
            channel: channel(region, &path, problems),
            poll: region.poll.0,
            max_clones_per_storage: region.max_clones_per_storage,
        },
        path,
    }
}

fn channel(region: &file::RegionTable, path: &KeyPath, problems: &mut Problems) -> Channel {
    if region.channel == ChannelKind::Local {
        check_local(region, path, problems);
        return Channel::Local;
    }
    let endpoints = path.at("endpoints");
    problems.unless(!region.endpoints.is_empty(), &endpoints, || {
        "channel = \"token\" needs at least one endpoint, such as \"https://pve1.example:8006\""
            .to_owned()
    });
    each(
        &region.endpoints,
        &endpoints,
        syntax::endpoint,
        "https://HOST or https://HOST:PORT",
        problems,
    );
    let id_path = path.at("token_id");
    let id = region.token_id.clone();
    let token_id = problems.require(id, &id_path, "the token's id, user@realm!name");
    problems.text(
        &id_path,
        token_id.as_deref(),
        syntax::token_id,
        "user@realm!name",
    );
    let secret_file = problems.require(
        region.token_secret_file.clone(),
        &path.at("token_secret_file"),
        "the file with the token's secret",
    );
    for (key, file) in [
        ("token_secret_file", &region.token_secret_file),
        ("ca_file", &region.ca_file),
    ] {
        let absolute = file.as_ref().is_none_or(|file| file.is_absolute());
        problems.unless(absolute, &path.at(key), || {
            "expected an absolute path".to_owned()
        });
    }
    check_trust(region, path, problems);
    Channel::Token {
        endpoints: region.endpoints.clone(),
        token_id: token_id.unwrap_or_default(),
        secret_file: secret_file.unwrap_or_default(),
        ca_file: region.ca_file.clone(),
        fingerprint: region.fingerprint.clone(),
    }
}

/// What only the token channel needs must not be there with the local one: a reader would take it
/// for being in use.
fn check_local(region: &file::RegionTable, path: &KeyPath, problems: &mut Problems) {
    for (key, set) in [
        ("endpoints", !region.endpoints.is_empty()),
        ("token_id", region.token_id.is_some()),
        ("token_secret_file", region.token_secret_file.is_some()),
        ("ca_file", region.ca_file.is_some()),
        ("fingerprint", region.fingerprint.is_some()),
    ] {
        problems.unless(!set, &path.at(key), || {
            "only with channel = \"token\"".to_owned()
        });
    }
}

/// Either a CA or a fingerprint: TLS without one would trust anybody.
fn check_trust(region: &file::RegionTable, path: &KeyPath, problems: &mut Problems) {
    let print = path.at("fingerprint");
    match (&region.ca_file, region.fingerprint.as_deref()) {
        (None, None) => problems.add(
            &path.at("ca_file"),
            "is missing; expected ca_file (a copy of /etc/pve/pve-root-ca.pem) or fingerprint",
        ),
        (Some(_), Some(_)) => problems.add(&print, "expected either ca_file or fingerprint"),
        (None, fingerprint) => problems.text(
            &print,
            fingerprint,
            syntax::fingerprint,
            "a SHA-256 fingerprint: 32 pairs of hex digits joined by ':'",
        ),
        (Some(_), None) => {}
    }
}

/// Each PVE host has a certificate of its own, so that a fingerprint is that of one endpoint.
pub(super) fn warn(file: &ConfigFile, warnings: &mut Vec<String>) {
    for (name, region) in super::region_tables(file) {
        if region.fingerprint.is_none() || region.endpoints.len() < 2 {
            continue;
        }
        let table = match name {
            "default" if file.proxmox.is_some() => "proxmox".to_owned(),
            name => format!("region.{name}"),
        };
        warnings.push(format!(
            "{table}.fingerprint: it is the certificate of one host, and endpoints names {}: those whose certificate is another are never used; ca_file, a copy of /etc/pve/pve-root-ca.pem, fits all hosts of a cluster",
            region.endpoints.len()
        ));
    }
}

/// The region that something names, or the only one.
pub(super) fn region_of(
    named: Option<&str>,
    regions: &ResolvedRegions,
    path: &KeyPath,
    problems: &mut Problems,
) -> Option<Arc<str>> {
    let known = || {
        regions
            .keys()
            .map(|name| &**name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    match named {
        Some(named) => {
            let found = regions.get_key_value(named).map(|(name, _)| name.clone());
            problems.unless(found.is_some(), path, || {
                format!("there is no region {named:?}; expected one of: {}", known())
            });
            found
        }
        None if regions.len() == 1 => regions.keys().next().cloned(),
        None => {
            problems.add(
                path,
                if regions.is_empty() {
                    "there is no region; expected a table [proxmox] or [region.NAME]".to_owned()
                } else {
                    format!("is missing; expected one of the regions {}", known())
                },
            );
            None
        }
    }
}

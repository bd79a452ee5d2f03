//! Disks without a VM: what a clone leaves whose worker was killed while it copied. PVE has such a disk in no
//! configuration, so nothing proves whose it is: it is named, and left to a person.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use futures::stream::{self, StreamExt as _};

use super::finding::Findings;
use super::mends;
use super::region::{AT_A_TIME, SeenRegion};
use crate::config::Settings;
use crate::pve::{Client, ClusterResources};

/// Storages that are looked through; each costs a call, and a slow one its deadline.
const MAX_STORAGES: usize = 64;
/// Disks named in the finding.
const MAX_NAMED: usize = 10;

/// Looks through the storages for VM disks.
pub(super) async fn look(region: &SeenRegion, findings: &mut Findings) {
    let (of, resources) = (&region.region, &region.seen.resources);
    look_through(&of.client, &of.name, resources, &of.here.settings, findings).await;
}

async fn look_through(
    client: &Client,
    name: &str,
    resources: &ClusterResources,
    settings: &Settings,
    findings: &mut Findings,
) {
    let Some(region) = settings.policy.regions.get(name) else {
        return;
    };
    let range = region.vmid_first..=region.vmid_last;
    let mut left = Vec::new();
    let mut looked = BTreeSet::new();
    let places = places(resources).into_iter().take(MAX_STORAGES);
    let asked = places.map(|(host, storage)| async move {
        let disks = client.disks(&host, &storage).await;
        (host, storage, disks)
    });
    let mut asked = stream::iter(asked).buffered(AT_A_TIME);
    while let Some((host, storage, disks)) = asked.next().await {
        match disks {
            Ok(disks) => {
                looked.insert(storage.to_string());
                let stray = stray(&disks, &range, resources);
                left.extend(stray.map(|volume| format!("{volume} (host {host})")));
            }
            Err(error) => {
                findings
                    .warning(format!(
                        "region {name}: the disks on storage {storage} of host {host}: {}",
                        error.words()
                    ))
                    .mend(mends::of_call(&error, Some(&*host)));
            }
        }
    }
    if left.is_empty() {
        if !looked.is_empty() {
            let storages: Vec<String> = looked.into_iter().collect();
            findings.fine(format!(
                "region {name}: no disks without a VM on {}",
                storages.join(", ")
            ));
        }
        return;
    }
    let more = match left.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    left.truncate(MAX_NAMED);
    findings
        .warning(format!(
            "region {name}: disks with VMIDs of our range and no VM, as a clone leaves them that was cut short: {}{more}",
            left.join(", ")
        ))
        .mend("`pvesm free VOLUME` on the host removes one, unless another cluster's VM on the same storage has that VMID");
}

/// Where disks may lie, and a host to ask there: a shared storage is asked for once.
fn places(resources: &ClusterResources) -> Vec<(Arc<str>, Arc<str>)> {
    let mut shared: BTreeSet<&str> = BTreeSet::new();
    let mut places = Vec::new();
    for (host, storages) in &resources.storages {
        if !resources.hosts.get(host).is_some_and(|host| host.online) {
            continue;
        }
        for (name, storage) in storages {
            let images = storage.content.iter().any(|content| content == "images");
            let first = !storage.shared || shared.insert(name);
            if storage.active && images && first {
                places.push((host.clone(), name.clone()));
            }
        }
    }
    places
}

/// The disks that a clone made and no VM has. CSI drivers name their volumes after VMIDs, too; those names have
/// another form, and the volumes hold data.
fn stray<'a>(
    disks: &'a BTreeMap<String, u32>,
    range: &RangeInclusive<u32>,
    resources: &ClusterResources,
) -> impl Iterator<Item = &'a str> {
    disks
        .iter()
        .filter(|(volume, vmid)| {
            range.contains(vmid)
                && !resources.guests.contains_key(vmid)
                && is_clones(volume, **vmid)
        })
        .map(|(volume, _)| &**volume)
}

/// Whether PVE's own clone names a disk so: `STORAGE:[…/]vm-9000-disk-0[.qcow2]`, or `…-cloudinit`.
fn is_clones(volume: &str, vmid: u32) -> bool {
    let name = volume.rsplit([':', '/']).next().unwrap_or("");
    let stem = name.split('.').next().unwrap_or("");
    let rest = stem.strip_prefix(&format!("vm-{vmid}-"));
    rest.is_some_and(|rest| {
        rest == "cloudinit"
            || rest.strip_prefix("disk-").is_some_and(|number| {
                !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
            })
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use axum::Router;
    use axum::extract::Request;
    use serde_json::json;

    use super::*;
    use crate::config::parse;
    use crate::pve::transport::memory::RouterTransport;
    use crate::pve::{GuestResource, HostResource, StorageResource};

    const FILE: &str = r#"
version = 1
[proxmox]
vmids = "9000-9019"
[template.debian]
vmid = 8000
[instance_type.s]
cores = 2
memory = "4GiB"
[pool.small]
template = "debian"
instance_types = ["s"]
max = 3
"#;

    /// Two hosts; `thin` is each one's own, `ceph` is shared, `iso` holds no disks, `off` is not active.
    fn resources() -> ClusterResources {
        let storage = |shared, active, content: &str| StorageResource {
            shared,
            active,
            content: vec![content.to_owned()],
            ..StorageResource::default()
        };
        let storages: BTreeMap<Arc<str>, StorageResource> = [
            ("ceph", storage(true, true, "images")),
            ("iso", storage(false, true, "iso")),
            ("off", storage(false, false, "images")),
            ("thin", storage(false, true, "images")),
        ]
        .map(|(name, storage)| (name.into(), storage))
        .into();
        let host = |online| HostResource {
            online,
            ..HostResource::default()
        };
        ClusterResources {
            hosts: [("pve1", true), ("pve2", true), ("pve3", false)]
                .map(|(name, online)| (name.into(), host(online)))
                .into(),
            guests: [(9001, GuestResource::default())].into(),
            storages: ["pve1", "pve2", "pve3"]
                .map(|host| (host.into(), storages.clone()))
                .into(),
        }
    }

    #[tokio::test]
    async fn disks_without_a_vm_are_named_and_nothing_that_may_be_data() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = asked.clone();
        let router = Router::new().fallback(move |request: Request| {
            let path = request.uri().to_string();
            let volumes = if path.contains("/pve1/storage/thin") {
                json!([])
            } else if path.contains("/storage/thin") {
                json!([
                    {"volid": "thin:vm-9001-disk-0", "vmid": 9001},
                    {"volid": "thin:vm-9002-disk-0", "vmid": 9002},
                    {"volid": "thin:vm-9003-cloudinit", "vmid": "9003"},
                    {"volid": "thin:vm-9004-pvc-0b5f", "vmid": 9004},
                    {"volid": "thin:vm-9005-state-before", "vmid": 9005},
                    {"volid": "thin:vm-7000-disk-0", "vmid": 7000},
                ])
            } else {
                json!([{"volid": "ceph:9006/vm-9006-disk-12.qcow2", "vmid": 9006}])
            };
            seen.lock().expect("no panic").push(path);
            async move { axum::Json(json!({ "data": volumes })) }
        });
        let client = Client::new(Arc::new(RouterTransport::new(router)));
        let settings = parse(FILE, "test").unwrap_or_else(|errors| panic!("{errors}"));
        let mut findings = Findings::default();
        look_through(&client, "default", &resources(), &settings, &mut findings).await;
        assert_eq!(
            *asked.lock().expect("no panic"),
            [
                "/api2/json/nodes/pve1/storage/ceph/content?content=images",
                "/api2/json/nodes/pve1/storage/thin/content?content=images",
                "/api2/json/nodes/pve2/storage/thin/content?content=images",
            ]
        );
        let said: Vec<String> = findings.0.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 1, "{said:?}");
        let named = "cut short: ceph:9006/vm-9006-disk-12.qcow2 (host pve1), thin:vm-9002-disk-0 (host pve2), \
                     thin:vm-9003-cloudinit (host pve2); `pvesm free VOLUME`";
        assert!(
            said[0].starts_with("warning: region default: ") && said[0].contains(named),
            "{said:?}"
        );
    }
}

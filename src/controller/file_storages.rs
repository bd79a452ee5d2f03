//! Which of the storages that the file lists for files a host takes: the first that it has, enabled, available and with the content type. Files
//! are ISOs for cloud-init, and what a template is built from.

use crate::config::storage_names::StorageNames;
use crate::controller::disk_storages;
use crate::controller::inspection::{can_hold, with_content};
use crate::pve::ClusterResources;

/// Why a host has no files of this content type on a storage; what helps stands behind a semicolon.
pub fn lack(name: &str, content: &str, host: &str, resources: &ClusterResources) -> Option<String> {
    let found = match disk_storages::available(name, host, resources) {
        Ok(found) => found,
        Err(why) => return Some(why),
    };
    if found.content.iter().any(|one| one == content) {
        return None;
    }
    if !can_hold(&found.plugin, content) {
        return Some(format!(
            "storage {name} is of type {}, which cannot have the content type {content}; name another storage",
            found.plugin
        ));
    }
    let since = if content == "import" {
        " (PVE 8.4 and newer; before, copy the image to the host and give it as `volume`)"
    } else {
        ""
    };
    Some(format!(
        "storage {name} does not have the content type {content}; `pvesm set {name} --content {}` adds it{since}",
        with_content(found, content)
    ))
}

/// The storage that a host takes of these for files of this content type.
pub fn choose<'n>(
    names: &'n StorageNames,
    content: &str,
    host: &str,
    resources: &ClusterResources,
) -> Option<&'n str> {
    let mut names = names.iter();
    names.find(|name| lack(name, content, host, resources).is_none())
}

/// Why a host takes none of these: of each storage what is wrong with it.
pub fn explain_none(
    names: &StorageNames,
    content: &str,
    host: &str,
    resources: &ClusterResources,
) -> String {
    let each = names
        .iter()
        .filter_map(|name| lack(name, content, host, resources));
    let each: Vec<String> = each.collect();
    match &each[..] {
        [only] => only.clone(),
        // With several there is one way more out: whichever is easiest.
        _ => {
            let whats = each
                .iter()
                .map(|why| why.split("; ").next().unwrap_or_default());
            format!(
                "none of the storages {names} takes content {content} there: {}",
                whats.collect::<Vec<_>>().join(", ")
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::pve::StorageResource;

    fn resources(of_host: &[(&str, bool, &str, &str)]) -> ClusterResources {
        let storages = of_host.iter().map(|(name, active, plugin, content)| {
            let storage = StorageResource {
                active: *active,
                content: content.split(',').map(str::to_owned).collect(),
                plugin: (*plugin).into(),
                ..StorageResource::default()
            };
            ((*name).into(), storage)
        });
        ClusterResources {
            storages: BTreeMap::from([("pve1".into(), storages.collect())]),
            ..ClusterResources::default()
        }
    }

    #[test]
    fn a_host_takes_the_first_that_has_the_content() {
        let names = StorageNames::from(["nas", "local", "files"]);
        for (of_host, wanted) in [
            (
                &[
                    ("local", true, "dir", "iso"),
                    ("files", true, "dir", "iso,images"),
                ][..],
                Some("local"),
            ),
            (
                &[
                    ("nas", false, "nfs", "iso"),
                    ("files", true, "dir", "images,iso"),
                ],
                Some("files"),
            ),
            (
                &[
                    ("nas", true, "nfs", "images"),
                    ("local", true, "dir", "iso"),
                ],
                Some("local"),
            ),
            (&[("nas", true, "nfs", "images")], None),
            (&[("other", true, "dir", "iso")], None),
        ] {
            let seen = resources(of_host);
            assert_eq!(choose(&names, "iso", "pve1", &seen), wanted, "{of_host:?}");
            assert_eq!(choose(&names, "iso", "pve2", &seen), None);
        }
    }

    #[test]
    fn what_each_lacks_is_told_and_of_one_what_helps() {
        let seen = resources(&[
            ("nas", false, "nfs", "iso"),
            ("local", true, "dir", "backup,vztmpl"),
            ("thin", true, "lvmthin", "images"),
        ]);
        assert_eq!(
            explain_none(
                &["nas", "local", "thin", "gone"].into(),
                "iso",
                "pve1",
                &seen
            ),
            "none of the storages nas, local, thin or gone takes content iso there: storage nas is not available on the host pve1, storage local does not have the content type iso, storage thin is of type lvmthin, which cannot have the content type iso, the host pve1 has no storage gone"
        );
        assert_eq!(
            explain_none(&"local".into(), "import", "pve1", &seen),
            "storage local does not have the content type import; `pvesm set local --content backup,vztmpl,import` adds it (PVE 8.4 and newer; before, copy the image to the host and give it as `volume`)"
        );
    }
}

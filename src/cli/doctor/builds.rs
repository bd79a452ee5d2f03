//! What templates are built with: whether each host that builds one has the storages, what may lie on them, and room. The daemon does not
//! need it: the next `template build` does, and that may be the night when a template is to be mended.

use std::collections::BTreeMap;

use super::finding::Findings;
use super::region::SeenRegion;
use super::templates;
use crate::cli::template;
use crate::config::file::Build;
use crate::config::settings::Channel;
use crate::config::storage_names::StorageNames;
use crate::controller::{disk_storages, file_storages};
use crate::model::words;
use crate::pve::ClusterResources;

/// An image of a cloud has some hundred MiB.
const ROOM_OF_AN_IMAGE: i64 = 1 << 30;
/// Cloud-init's data is a few KiB.
const ROOM_OF_A_SNIPPET: i64 = 1 << 20;

/// Looks at the builds of a region's templates.
pub(super) fn look(region: &SeenRegion, findings: &mut Findings) {
    let SeenRegion { region, seen } = region;
    let (name, settings) = (&*region.name, &*region.here.settings);
    let here = settings.regions.get(name);
    // A token is not shown a storage that it has no right on, and a build may be done with another's rights.
    let all_shown = here.is_some_and(|here| here.channel == Channel::Local);
    for (template, of) in templates::of(name, settings) {
        let Some(build) = of.build.as_deref() else {
            continue;
        };
        let resources = &seen.resources;
        let hosts = match template::hosts_of_build(settings, (&**template, build), resources) {
            Ok(hosts) => hosts,
            Err(_) if !all_shown => continue,
            Err(why) => {
                findings
                    .warning(format!("template {template}: it cannot be built: {why}"))
                    .mend(format!("storage or hosts in [template.{template}.build]"));
                continue;
            }
        };
        // A host that is away is told by `hosts`.
        let online = hosts.iter().map(String::as_str);
        let online: Vec<&str> = online.filter(|host| resources.is_online(host)).collect();
        let mut lacking: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for host in &online {
            for why in lacks(build, host, resources, all_shown) {
                lacking.entry(why).or_default().push(host);
            }
        }
        for (why, on) in &lacking {
            tell_lack(template, why, &on.join(", "), findings);
        }
        let known = |host: &&str| all_shown || are_shown(build, host, resources);
        if lacking.is_empty() && !online.is_empty() && online.iter().all(known) {
            let has = if online.len() == 1 { "has" } else { "have" };
            findings.fine(format!(
                "template {template}: {} {has} what it is built with: storages for its disks, its image and cloud-init's data",
                online.join(", ")
            ));
        }
    }
}

/// Says what hinders a build; what helps stands behind a semicolon.
fn tell_lack(template: &str, why: &str, hosts: &str, findings: &mut Findings) {
    let (what, mend) = match why.split_once("; ") {
        Some((what, mend)) => (what, mend.to_owned()),
        None => (
            why,
            format!("see to that storage, or name another in [template.{template}.build]"),
        ),
    };
    findings
        .warning(format!(
            "template {template}: the next build of it on {hosts} would fail: {what}"
        ))
        .mend(mend);
}

/// Whether all of these storages are among those that we are shown of a host.
fn is_shown(names: &StorageNames, host: &str, resources: &ClusterResources) -> bool {
    let of_host = resources.storages.get(host);
    let mut names = names.iter();
    names.all(|name| of_host.is_some_and(|of| of.contains_key(name)))
}

/// Whether all storages that a build names are among those that we are shown of a host.
fn are_shown(build: &Build, host: &str, resources: &ClusterResources) -> bool {
    let image = build.image.as_ref().map(|_| &build.image_storage);
    let mut all = [&build.storage, &build.snippet_storage]
        .into_iter()
        .chain(image);
    all.all(|names| is_shown(names, host, resources))
}

/// What hinders a build on a host; what helps stands behind a semicolon.
fn lacks(build: &Build, host: &str, resources: &ClusterResources, all_shown: bool) -> Vec<String> {
    let judged = |names: &StorageNames| all_shown || is_shown(names, host, resources);
    let mut lacks = Vec::new();
    let disks = &build.storage;
    let chosen = disk_storages::choose(disks, host, resources);
    if judged(disks) && chosen.is_none() && disks.is_list() {
        lacks.push(format!(
            "storage: {}",
            disk_storages::explain_none(disks, host, resources)
        ));
    } else if judged(disks) {
        let storage = chosen.unwrap_or_else(|| disks.first());
        let why = file_storages::lack(storage, "images", host, resources);
        lacks.extend(why.map(|why| format!("storage: {why}")));
    }
    let snippets = ("snippet_storage", "snippets", ROOM_OF_A_SNIPPET);
    if judged(&build.snippet_storage) {
        lacks.extend(lack_of_files(
            snippets,
            &build.snippet_storage,
            host,
            resources,
        ));
    }
    let image = ("image_storage", "import", ROOM_OF_AN_IMAGE);
    if build.image.is_some() && judged(&build.image_storage) {
        lacks.extend(lack_of_files(image, &build.image_storage, host, resources));
    }
    lacks
}

/// What hinders that a file comes to the host's storage of those that a key names.
fn lack_of_files(
    (key, content, room): (&str, &str, i64),
    names: &StorageNames,
    host: &str,
    resources: &ClusterResources,
) -> Option<String> {
    let Some(taken) = file_storages::choose(names, content, host, resources) else {
        let why = file_storages::explain_none(names, content, host, resources);
        return Some(format!("{key}: {why}"));
    };
    let found = resources.storages.get(host)?.get(taken)?;
    let left = found.total - found.used - found.kept;
    // A storage whose size PVE does not tell is none that is full.
    (found.total > 0 && left < room).then(|| {
        format!(
            "{key}: storage {taken} has {} left, and {} {}; make room on it, or name another storage",
            words::bytes(left.max(0)),
            words::bytes(room),
            if content == "import" { "is what an image may need" } else { "shall be there" }
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pve::StorageResource;

    fn storage(plugin: &str, content: &str, left: i64) -> StorageResource {
        StorageResource {
            active: true,
            total: 100 << 30,
            used: (100 << 30) - left,
            plugin: plugin.into(),
            content: content.split(',').map(str::to_owned).collect(),
            ..StorageResource::default()
        }
    }

    /// `local` holds the image and cloud-init's data, `local-lvm` the disks. Each of these spoils one of them.
    #[test]
    fn what_a_host_lacks_is_told_by_the_key_that_names_it() {
        let mut build = Build {
            storage: "local-lvm".into(),
            image: Some("https://example.org/x.qcow2".to_owned()),
            ..Build::default()
        };
        let told = |build: &Build, local: Option<StorageResource>, all_shown| {
            let disks = ("local-lvm".into(), storage("lvmthin", "images", 50 << 30));
            let local = local.map(|local| ("local".into(), local));
            let of_host = std::iter::once(disks).chain(local).collect();
            let resources = ClusterResources {
                storages: BTreeMap::from([("pve1".into(), of_host)]),
                ..ClusterResources::default()
            };
            lacks(build, "pve1", &resources, all_shown)
        };
        let whole = || storage("dir", "import,snippets", 50 << 30);
        assert_eq!(told(&build, Some(whole()), true), Vec::<String>::new());
        let begins = |lacks: Vec<String>, wanted: &[&str]| {
            assert_eq!(lacks.len(), wanted.len(), "{lacks:#?}");
            for (lack, begin) in lacks.iter().zip(wanted) {
                assert!(lack.starts_with(begin), "{lack}");
            }
        };
        begins(
            told(&build, Some(storage("dir", "import", 50 << 30)), true),
            &[
                "snippet_storage: storage local does not have the content type snippets; `pvesm set local --content import,snippets`",
            ],
        );
        begins(
            told(
                &build,
                Some(storage("dir", "import,snippets", 300 << 20)),
                true,
            ),
            &[
                "image_storage: storage local has 300Mi left, and 1Gi is what an image may need; make room",
            ],
        );
        // What a token is not shown may be there.
        begins(
            told(&build, None, true),
            &["snippet_storage: ", "image_storage: "],
        );
        begins(told(&build, None, false), &[]);
        // What lies on a storage already is not downloaded.
        build.volume = build.image.take();
        begins(
            told(&build, Some(storage("dir", "snippets", 300 << 20)), true),
            &[],
        );
        build.storage = "local".into();
        begins(
            told(&build, Some(whole()), true),
            &["storage: storage local does not have the content type images; "],
        );
    }
}

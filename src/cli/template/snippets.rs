//! Cloud-init's data of a build's first boot, which lies on a storage for snippets while the build runs; what an interrupted build
//! left of it is found by its name and removed through PVE.
//!
//! A file carries no mark, and PVE does not give its text. What proves that nobody needs one is that it has our name, a VMID of the
//! build's range of which no VM is there, and that it is older than any build is between the file and the VM. A storage that hosts
//! share may be shared with another PVE cluster, whose VMs nobody here sees: what lies there is told, and stays.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, bail};

use super::{TemplateRegion, host, is_shared, tell};
use crate::cli::CliFailure;
use crate::config::file::Build;
use crate::model::time::{Span, Time};
use crate::pve::ClusterResources;
use crate::pve::building::SnippetFile;

/// A build makes its VM seconds after the file; younger ones may be of one that is about to.
const SETTLED: Span = Span::minutes(10);
/// The removal of a small file.
const REMOVAL: Duration = Duration::from_mins(3);

/// The name of the file of a build.
pub(super) fn file_name(template: &str, vmid: u32) -> String {
    format!("pve-autoscaler-{template}-{vmid}.yaml")
}

/// The VMID in the name of a volume that a build of the template has written.
fn vmid_of(volume: &str, template: &str) -> Option<u32> {
    let (_, name) = volume.split_once(":snippets/")?;
    let vmid = name
        .strip_prefix(&format!("pve-autoscaler-{template}-"))?
        .strip_suffix(".yaml")?;
    let vmid: u32 = vmid.parse().ok()?;
    (file_name(template, vmid) == name).then_some(vmid)
}

/// A file of which no VM is there.
#[derive(Debug)]
struct LeftSnippet {
    host: String,
    storage: String,
    volume: String,
    vmid: u32,
    file: SnippetFile,
    /// Why it stays.
    kept: Option<String>,
}

/// What came of a clean-up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cleaned {
    pub(super) removed: usize,
    pub(super) failed: usize,
}

/// The files of one template's builds.
#[derive(Debug)]
pub(super) struct BuildSnippets<'a> {
    pub(super) place: &'a TemplateRegion,
    pub(super) template: &'a str,
    pub(super) build: &'a Build,
    /// VMs of builds that are over, with when each was begun: they were removed just now, or would be.
    pub(super) over: &'a BTreeMap<u32, Time>,
}

impl BuildSnippets<'_> {
    /// Removes what no build needs any more, and says what stays.
    pub(super) async fn clean(&self, dry_run: bool) -> Result<Cleaned, CliFailure> {
        let mut cleaned = Cleaned::default();
        for left in self.find().await? {
            let about = format!("{} on {}: {}", self.template, left.host, left.volume);
            let said = if let Some(why) = &left.kept {
                format!("{about} stays: {why}")
            } else if dry_run {
                cleaned.removed += 1;
                format!("{about} would be removed")
            } else {
                match self.remove(&left).await {
                    Ok(()) => {
                        cleaned.removed += 1;
                        format!("{about} is removed")
                    }
                    Err(error) => {
                        cleaned.failed += 1;
                        format!("{about} is still there: {error:#}")
                    }
                }
            };
            tell(&format!("{said}\n"))?;
        }
        Ok(cleaned)
    }

    /// The files of which no VM is there, on each storage that the build names.
    async fn find(&self) -> Result<Vec<LeftSnippet>, CliFailure> {
        let resources = self.place.client.resources().await?;
        let mut found = Vec::new();
        for storage in self.build.snippet_storage.iter() {
            for host in hosts(&resources, storage) {
                found.extend(self.find_on(storage, host, &resources).await?);
            }
        }
        Ok(found)
    }

    /// Those on a storage of a host. A host that does not tell its files is said.
    async fn find_on(
        &self,
        storage: &str,
        host: &str,
        resources: &ClusterResources,
    ) -> Result<Vec<LeftSnippet>, CliFailure> {
        let files = match self.place.client.snippets(host, storage).await {
            Ok(files) => files,
            Err(error) => {
                tell(&format!(
                    "{} on {host}: what interrupted builds left on {storage} is not known: {error}\n",
                    self.template
                ))?;
                return Ok(Vec::new());
            }
        };
        let ours = self.ours(resources, files);
        if ours.is_empty() {
            return Ok(Vec::new());
        }
        // Who may not ask for the time keeps what nobody can tell the age of.
        let now = self.place.client.host_time(host).await.unwrap_or(None);
        let shared = is_shared(resources, storage, host);
        let left = ours.into_iter().map(|(vmid, volume, file)| LeftSnippet {
            host: host.to_owned(),
            storage: storage.to_owned(),
            kept: if shared {
                Some(format!("{storage} is shared, maybe with another PVE cluster whose build needs it; `rm` it if not"))
            } else {
                self.kept(vmid, file, now)
            },
            volume,
            vmid,
            file,
        });
        Ok(left.collect())
    }

    /// Those that have the name of a build's file and no VM.
    fn ours(
        &self,
        resources: &ClusterResources,
        files: BTreeMap<String, SnippetFile>,
    ) -> Vec<(u32, String, SnippetFile)> {
        let range = self
            .build
            .vmids
            .map_or(0..=0, |range| range.first..=range.last);
        let files = files.into_iter().filter_map(|(volume, file)| {
            let vmid = vmid_of(&volume, self.template)?;
            let there = resources.guests.contains_key(&vmid) && !self.over.contains_key(&vmid);
            (range.contains(&vmid) && !there).then_some((vmid, volume, file))
        });
        files.collect()
    }

    /// Why a file is not to be removed: the VM of its build may be about to come. `now`: the host's clock.
    fn kept(&self, vmid: u32, file: SnippetFile, now: Option<Time>) -> Option<String> {
        let Some(written) = file.written else {
            return Some("nobody tells when it was written".to_owned());
        };
        // That of the build that is over, and not of one that began anew with its VMID.
        let of_it = |begun: &Time| written.since(*begun) < SETTLED;
        if self.over.get(&vmid).is_some_and(of_it) {
            return None;
        }
        let Some(now) = now else {
            return Some("nobody tells what time it is there".to_owned());
        };
        let age = now.since(written);
        (age < SETTLED).then(|| {
            format!("it was written within the last {SETTLED}: a build may be about to make its VM")
        })
    }

    /// Removes a file after a look whether all is still as it was.
    async fn remove(&self, left: &LeftSnippet) -> anyhow::Result<()> {
        let client = &self.place.client;
        let storage = &*left.storage;
        let resources = client.resources().await?;
        if resources.guests.contains_key(&left.vmid) {
            bail!("VM {} is there now", left.vmid);
        }
        match client
            .snippets(&left.host, storage)
            .await?
            .get(&left.volume)
        {
            None => return Ok(()),
            Some(file) if *file != left.file => bail!("it was written anew"),
            Some(_) => {}
        }
        let task = client
            .remove_snippet(&left.host, storage, &left.volume)
            .await;
        let task = task.with_context(|| {
            format!("PVE does not remove it (`rm` in the folder of {storage} on the host does)")
        })?;
        let quiet = |_: &str| Ok(());
        host::follow(self.place, "the removal", &task, REMOVAL, quiet).await
    }
}

/// The hosts to ask: all that have the storage, or one where all have the same.
fn hosts<'a>(resources: &'a ClusterResources, storage: &str) -> Vec<&'a str> {
    let mut hosts = Vec::new();
    for (host, of_host) in &resources.storages {
        let Some(found) = of_host.get(storage) else {
            continue;
        };
        if !resources.is_online(host) || !found.active {
            continue;
        }
        hosts.push(&**host);
        if found.shared {
            break;
        }
    }
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_file_says_of_which_build_it_is() {
        assert_eq!(
            vmid_of("local:snippets/pve-autoscaler-debian-8000.yaml", "debian"),
            Some(8000)
        );
        for (volume, template) in [
            ("local:snippets/pve-autoscaler-debian-8000.yaml", "deb"),
            (
                "local:snippets/pve-autoscaler-debian-arm-8000.yaml",
                "debian",
            ),
            ("local:snippets/pve-autoscaler-debian-08000.yaml", "debian"),
            ("local:snippets/pve-autoscaler-debian-+8000.yaml", "debian"),
            (
                "local:snippets/pve-autoscaler-debian-8000.yaml.bak",
                "debian",
            ),
            ("local:snippets/x/pve-autoscaler-debian-8000.yaml", "debian"),
            ("local:iso/pve-autoscaler-debian-8000.yaml", "debian"),
            ("local:snippets/debian-8000.yaml", "debian"),
        ] {
            assert_eq!(vmid_of(volume, template), None, "{volume}");
        }
    }
}

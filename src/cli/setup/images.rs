//! Which image a template is built of: the newest cloud image of Debian, with its checksum, as the mirror has it now; or, where no mirror
//! can be reached, one that a person names.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, bail};

use super::answers::TemplateAnswers;
use super::choose::Proposal;
use super::templates::{BuildWanted, storage_on};
use crate::model::words;
use crate::pve::{Client, ClusterResources};

/// Where Debian publishes cloud images.
pub(super) const MIRROR: &str = "https://cloud.debian.org/images/cloud";
/// The release that templates are built of.
const RELEASE: &str = "trixie";
const STEM: &str = "debian-13-genericcloud-amd64-";
/// The longest that a list may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// The largest list that is read, in bytes.
const MAX_LIST: usize = 4 << 20;

/// An image that does not change, and how to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Image {
    pub(super) url: String,
    pub(super) checksum: String,
}

/// The images and volumes that a template could be built of, as far as somebody looked for them.
#[derive(Clone, Debug, Default)]
pub(super) struct ImagesFound {
    /// Somebody looked: a template may have to be built.
    pub(super) looked: bool,
    /// Debian's newest; `None` where it could not be looked up, or another one is answered.
    pub(super) newest: Option<Image>,
    /// Volumes to import from that storages hold already, each with its hosts. Looked for where no newest image is known.
    pub(super) volumes: BTreeMap<String, BTreeSet<String>>,
    /// Storages that did not say what they hold.
    pub(super) silent: BTreeSet<String>,
}

/// Whether an answer names a volume, and no URL.
pub(super) fn is_volume(answer: &str) -> bool {
    answer.contains(":import/") && !answer.contains("://")
}

impl ImagesFound {
    /// Looks which volumes storages hold that disks can be imported from.
    pub(super) async fn look_for_volumes(&mut self, client: &Client, resources: &ClusterResources) {
        for (host, storages) in &resources.storages {
            if !resources.is_online(host) {
                continue;
            }
            for (storage, about) in storages {
                let imports = about.content.iter().any(|content| content == "import");
                if !about.active || !imports {
                    continue;
                }
                match client.images(host, storage).await {
                    Ok(volumes) => {
                        for volume in volumes {
                            self.volumes
                                .entry(volume)
                                .or_default()
                                .insert(host.to_string());
                        }
                    }
                    Err(_) => {
                        self.silent.insert(format!("{storage} on {host}"));
                    }
                }
            }
        }
    }

    /// The volumes, for people.
    fn told(&self, hosts: usize) -> String {
        let volumes = self.volumes.iter().map(|(volume, on)| {
            if on.len() == hosts {
                volume.clone()
            } else {
                let on: Vec<&str> = on.iter().map(String::as_str).collect();
                format!("{volume} (on {})", on.join(", "))
            }
        });
        let volumes: Vec<String> = volumes.collect();
        let mut text = if volumes.is_empty() {
            "no storage holds a volume to import".to_owned()
        } else {
            format!("storages hold {}", volumes.join(", "))
        };
        if !self.silent.is_empty() {
            text = format!(
                "{text}; not known is what {} holds",
                words::names(self.silent.iter())
            );
        }
        text
    }

    /// Builds on those hosts alone that have the volume, where others would be built on, too.
    fn choose_hosts(
        &self,
        volume: &str,
        resources: &ClusterResources,
        (proposal, build): (&mut Proposal, &mut BuildWanted),
    ) {
        let storage = volume.split(':').next().unwrap_or_default();
        let on = self.volumes.get(volume);
        let has = |host: &str| on.is_some_and(|on| on.contains(host));
        let is_silent = |host: &str| self.silent.contains(&format!("{storage} on {host}"));
        let having = resources.storages.keys().filter_map(|host| {
            let (name, found) = storage_on(&build.storage, host, resources)?;
            Some((&**host, found.shared.then_some(name)))
        });
        let having: Vec<(&str, Option<&str>)> = having.collect();
        // One template serves all hosts that share its storage.
        let apart = |able: &dyn Fn(&str) -> bool| {
            let mut served: BTreeSet<&str> = BTreeSet::new();
            let able = having.iter().filter(|(host, _)| able(host));
            let first = able.filter(|(_, shared)| shared.is_none_or(|name| served.insert(name)));
            first.map(|(host, _)| *host).collect::<Vec<&str>>()
        };
        let builders = apart(&|host| resources.is_online(host));
        if !builders.iter().any(|host| !has(host) && !is_silent(host)) {
            return;
        }
        let able = apart(&has);
        let able: Vec<String> = able.into_iter().map(str::to_owned).collect();
        if able.is_empty() {
            proposal.missing.push(format!(
                "template.image: {volume} is on {}, where storage {} is not; copy it to a host that has both, or name another storage",
                words::names(on.into_iter().flatten()),
                build.storage
            ));
            return;
        }
        let others = builders
            .into_iter()
            .filter(|host| !able.iter().any(|one| one == host));
        let why = format!(
            "{volume} is there and not on {}",
            words::names(others.collect::<Vec<_>>().iter())
        );
        proposal.choose("template.hosts", able.join(", "), why, false);
        build.hosts = able;
    }

    /// Says which of the hosts that were answered lack the volume.
    fn check_hosts(&self, volume: &str, hosts: &[String], proposal: &mut Proposal) {
        let storage = volume.split(':').next().unwrap_or_default();
        let on = self.volumes.get(volume);
        for host in hosts {
            let has = on.is_some_and(|on| on.contains(&**host));
            if !has && !self.silent.contains(&format!("{storage} on {host}")) {
                proposal
                    .missing
                    .push(format!("template.hosts: {host} has no {volume}"));
            }
        }
    }

    /// Chooses the image of a build.
    pub(super) fn choose(
        &self,
        answered: &TemplateAnswers,
        resources: &ClusterResources,
        (proposal, build): (&mut Proposal, &mut BuildWanted),
    ) {
        let online = resources.hosts.values().filter(|host| host.online).count();
        match (&answered.image, &answered.checksum, &self.newest) {
            (Some(volume), sum, _) if is_volume(volume) => {
                proposal.choose("template.image", &**volume, "", true);
                build.volume = Some(volume.clone());
                if sum.is_some() {
                    proposal.missing.push(format!(
                        "template.checksum: {volume} is a volume that is there, whose sum nobody looks at: leave it out"
                    ));
                }
                let storage = volume.split(':').next().unwrap_or_default();
                let is_silent = self
                    .silent
                    .iter()
                    .any(|of| of.split(" on ").next() == Some(storage));
                if !self.volumes.contains_key(volume) && !is_silent {
                    let there = self.told(online);
                    proposal
                        .missing
                        .push(format!("template.image: no host has {volume}; {there}"));
                } else {
                    match &answered.hosts {
                        None => self.choose_hosts(volume, resources, (proposal, build)),
                        Some(hosts) => self.check_hosts(volume, hosts, proposal),
                    }
                }
            }
            (Some(url), Some(sum), _) => {
                build.image.clone_from(url);
                build.checksum.clone_from(sum);
                proposal.choose("template.image", &**url, "", true);
            }
            (Some(url), None, _) => {
                proposal.choose("template.image", &**url, "", true);
                let why = "the image's sum, as sha512:…, which its publisher gives beside it: an image that was changed on its way is not used";
                proposal.choose("template.checksum", "", why, false);
                proposal.ask();
                proposal.missing.push(format!("template.checksum: {why}"));
            }
            (None, None, Some(image)) => {
                build.image.clone_from(&image.url);
                build.checksum.clone_from(&image.checksum);
                let why = "Debian's newest, by its date: the file stays what it is";
                proposal.choose("template.image", &*image.url, why, false);
            }
            (None, None, None) => {
                let why = format!(
                    "the newest image of Debian could not be looked up; a volume of these ({}), or the URL of a cloud image that the hosts \
                     can reach",
                    self.told(online)
                );
                proposal.choose("template.image", "", &*why, false);
                proposal.ask();
                proposal.missing.push(format!("template.image: {why}"));
            }
            (None, Some(_), _) => proposal.missing.push(
                "template.checksum needs template.image, the URL of the image that has that sum"
                    .to_owned(),
            ),
        }
    }
}

/// Looks it up: the directory of the newest date, and the sum in it.
pub(super) async fn newest(mirror: &str) -> anyhow::Result<Image> {
    let client = reqwest::Client::builder().timeout(PATIENCE).build()?;
    let release = format!("{}/{RELEASE}/", mirror.trim_end_matches('/'));
    let index = text(&client, &release).await?;
    let dated = newest_directory(&index)
        .with_context(|| format!("{release} lists no directory of a date"))?;
    let directory = format!("{release}{dated}/");
    let sums = text(&client, &format!("{directory}SHA512SUMS")).await?;
    let file = format!("{STEM}{dated}.qcow2");
    let sum = sum_of(&sums, &file)
        .with_context(|| format!("{directory}SHA512SUMS has no sum of {file}"))?;
    Ok(Image {
        url: format!("{directory}{file}"),
        checksum: format!("sha512:{sum}"),
    })
}

async fn text(client: &reqwest::Client, url: &str) -> anyhow::Result<String> {
    let answer = client.get(url).send().await?.error_for_status()?;
    let mut answer = answer;
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MAX_LIST {
            bail!("{url} is no list: it is larger than {MAX_LIST} bytes");
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The last of the links to directories like `20251117-2299/`.
fn newest_directory(index: &str) -> Option<&str> {
    let links = index.split("href=\"").skip(1);
    let names = links.filter_map(|link| link.split('"').next()?.strip_suffix('/'));
    names.filter(|name| is_dated(name)).max()
}

fn is_dated(name: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    name.split_once('-')
        .is_some_and(|(date, number)| date.len() == 8 && digits(date) && digits(number))
}

fn sum_of<'a>(sums: &'a str, file: &str) -> Option<&'a str> {
    let lines = sums.lines().filter_map(|line| line.split_once(' '));
    let mut found = lines.filter(|(_, name)| name.trim_start_matches([' ', '*']) == file);
    let (sum, _) = found.next()?;
    let hex = sum.len() == 128 && sum.bytes().all(|byte| byte.is_ascii_hexdigit());
    hex.then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It finds a setup that asks for no image, that asks a second time for what was typed, and that takes any volume.
    #[test]
    fn without_a_mirror_a_person_is_asked_for_a_volume_or_a_url_and_its_sum() {
        let mut resources = ClusterResources::default();
        for host in ["pve1", "pve2"] {
            let online = crate::pve::HostResource {
                online: true,
                ..crate::pve::HostResource::default()
            };
            resources.hosts.insert(host.into(), online);
            let disks = crate::pve::StorageResource {
                active: true,
                ..crate::pve::StorageResource::default()
            };
            let of_host = resources.storages.entry(host.into()).or_default();
            of_host.insert("disks".into(), disks);
        }
        let all = ["pve1".to_owned(), "pve2".to_owned()];
        let found = ImagesFound {
            looked: true,
            volumes: [
                ("local:import/a.qcow2".to_owned(), all.clone().into()),
                ("local:import/b.raw".to_owned(), [all[1].clone()].into()),
            ]
            .into(),
            ..ImagesFound::default()
        };
        let on: &dyn Fn(&[String]) -> String = &|hosts| {
            let answered = TemplateAnswers {
                image: Some("local:import/b.raw".to_owned()),
                hosts: Some(hosts.to_vec()),
                ..TemplateAnswers::default()
            };
            let mut proposal = Proposal::default();
            let build = &mut BuildWanted::default();
            found.choose(&answered, &resources, (&mut proposal, build));
            proposal.missing.join("; ")
        };
        assert_eq!(on(&all[1..]), "");
        assert_eq!(on(&all), "template.hosts: pve1 has no local:import/b.raw");
        let choose = |image: Option<&str>, checksum: Option<&str>| {
            let answered = TemplateAnswers {
                image: image.map(str::to_owned),
                checksum: checksum.map(str::to_owned),
                ..TemplateAnswers::default()
            };
            let mut build = BuildWanted {
                storage: "disks".into(),
                ..BuildWanted::default()
            };
            let mut proposal = Proposal::default();
            found.choose(&answered, &resources, (&mut proposal, &mut build));
            let open = proposal
                .choices
                .iter()
                .filter(|one| one.ask && !one.answered);
            let asked: Vec<&str> = open.map(|one| one.key).collect();
            (asked, proposal.missing.join("; "), build)
        };
        let (asked, missing, _) = choose(None, None);
        assert_eq!(asked, ["template.image"]);
        let told = "storages hold local:import/a.qcow2, local:import/b.raw (on pve2)";
        assert!(missing.contains(told), "{missing}");
        let (asked, missing, build) = choose(Some("local:import/b.raw"), None);
        assert_eq!((asked.len(), &*missing), (0, ""));
        assert_eq!(build.volume.as_deref(), Some("local:import/b.raw"));
        assert_eq!(build.hosts, ["pve2"], "pve1 has no such volume");
        let (_, missing, build) = choose(Some("local:import/a.qcow2"), None);
        assert_eq!((&*missing, build.hosts.len()), ("", 0));
        let (_, missing, _) = choose(Some("local:import/c.raw"), None);
        assert!(
            missing.contains("no host has local:import/c.raw"),
            "{missing}"
        );
        let url = "https://images.example/debian.qcow2";
        let (asked, missing, _) = choose(Some(url), None);
        assert_eq!(asked, ["template.checksum"]);
        assert!(missing.starts_with("template.checksum: "), "{missing}");
        let (asked, missing, build) = choose(Some(url), Some("sha256:00"));
        assert_eq!((asked.len(), &*missing), (0, ""));
        assert_eq!((&*build.image, &*build.checksum), (url, "sha256:00"));
    }

    #[test]
    fn the_newest_directory_and_its_sum_are_found() {
        let index = "<a href=\"../\">up</a> <a href=\"20250703-2162/\">x</a>\n\
            <a href=\"20251117-2299/\">y</a> <a href=\"latest/\">z</a> <a href=\"daily/\">d</a>";
        assert_eq!(newest_directory(index), Some("20251117-2299"));
        assert_eq!(newest_directory("<a href=\"latest/\">z</a>"), None);
        let sum = "0f".repeat(64);
        let sums = format!("{}  other.qcow2\n{sum}  wanted.qcow2\n", "1".repeat(128));
        assert_eq!(sum_of(&sums, "wanted.qcow2"), Some(&*sum));
        assert_eq!(sum_of(&sums, "wanted.raw"), None);
        assert_eq!(sum_of("<html> wanted.qcow2", "wanted.qcow2"), None);
    }
}

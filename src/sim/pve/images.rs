//! Images that disks are imported from, and the files of storages.

use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};

use super::kinds::StorageKind;
use super::spec::GIB;
use super::tasks::{Worker, WorkerEnd};
use super::wire::ErrorAnswer;
use super::world::{PveWorld, SimVm};
use super::{CheckedCall, Pve, properties};

/// The virtual size of every image.
const SIZE: u64 = 3 * GIB;
/// What an image takes on its storage.
const USED: u64 = 400 << 20;
/// How long a download takes.
const DOWNLOAD: Duration = Duration::from_millis(500);
/// What can be imported from (`UPLOAD_IMPORT_EXT_RE_1` of PVE::Storage).
const FORMATS: [&str; 4] = [".qcow2", ".raw", ".vmdk", ".ova"];

/// Whether a text is a URL as `download-url` takes it.
pub(super) fn is_url(text: &str) -> bool {
    text.starts_with("http://") || text.starts_with("https://")
}

impl Pve {
    /// `download-url`: the early checks, then a task.
    pub(super) fn download(&self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        let storage = asked.text("storage").to_owned();
        let content = asked.text("content");
        self.world(|world, _| {
            world.usable(&storage, &asked.node)?;
            let spec = world.storages.get(&storage);
            let kind = spec.map_or(StorageKind::Dir, |spec| spec.kind);
            if !kind.has_files() {
                return Err(format!(
                    "can't upload to storage type '{}', not a file based storage!",
                    kind.as_str()
                ));
            }
            let has = spec.is_some_and(|spec| spec.content.split(',').any(|one| one == content));
            if !has {
                return Err(format!(
                    "storage '{storage}' is not configured for content-type '{content}'"
                ));
            }
            Ok(())
        })
        .map_err(ErrorAnswer::die)?;
        let file = asked.text("filename").to_owned();
        let named = FORMATS.iter().any(|format| file.ends_with(format));
        if content == "import" && (!named || file.contains('/')) {
            return Err(ErrorAnswer::parameter(
                "filename",
                "invalid filename or wrong extension",
            ));
        }
        let (node, user) = (asked.node.clone(), asked.caller.name.clone());
        let asked = asked.clone();
        Ok(
            self.fork(&node, "download", &file.clone(), &user, false, |worker| {
                Box::pin(download(worker, asked, storage, file))
            }),
        )
    }
}

async fn download(worker: Worker, asked: CheckedCall, storage: String, file: String) -> WorkerEnd {
    let url = asked.text("url").to_owned();
    worker.log(format!("downloading {url} to {file}"));
    tokio::time::sleep(DOWNLOAD).await;
    let volume = format!("{storage}:import/{file}");
    let wanted = asked.given("checksum").map(str::to_owned);
    worker.pve.world(|world, _| {
        let Some(sum) = world.spec.downloads.get(&url).cloned() else {
            return Err("download failed: exit code 8".to_owned());
        };
        if let Some(wanted) = wanted.filter(|wanted| *wanted != sum) {
            return Err(format!(
                "checksum mismatch: got '{sum}' != expect '{wanted}'"
            ));
        }
        let (_, available) = world.space(&storage, &asked.node);
        if available < USED {
            return Err("download failed: exit code 3".to_owned());
        }
        let place = world.place(&storage, &asked.node).to_owned();
        world.images.insert((place, volume), SIZE);
        Ok(())
    })
}

impl PveWorld {
    /// The virtual size of what a disk is imported from, or PVE's words. What is no image is taken for a small one.
    pub(super) fn import_size(&self, source: &str, host: &str) -> Result<u64, String> {
        let Some((storage, name)) = source.split_once(':') else {
            return Ok(SIZE);
        };
        if !name.starts_with("import/") {
            return Ok(SIZE);
        }
        self.usable(storage, host)?;
        let key = (self.place(storage, host).to_owned(), source.to_owned());
        let size = self.images.get(&key).copied();
        size.ok_or_else(|| format!("volume '{source}' does not exist"))
    }

    /// Lays down the images that the spec has.
    pub(super) fn lay_images(&mut self) {
        let hosts: Vec<String> = self.hosts.keys().cloned().collect();
        for volume in self.spec.images.clone() {
            let storage = volume.split(':').next().unwrap_or_default();
            for host in &hosts {
                let place = self.place(storage, host).to_owned();
                self.images.insert((place, volume.clone()), SIZE);
            }
        }
    }

    /// The images on a storage, as its content lists them.
    pub(super) fn image_rows(&self, storage: &str, host: &str) -> Value {
        let place = self.place(storage, host);
        let begin = format!("{storage}:");
        let images = self.images.iter();
        let here = images.filter(|((at, id), _)| at == place && id.starts_with(&begin));
        let rows = here.map(|((_, id), _)| {
            let format = id.rsplit('.').next().unwrap_or_default();
            json!({ "volid": id, "size": USED, "format": format, "content": "import", "ctime": 0 })
        });
        json!(rows.collect::<Vec<_>>())
    }

    /// Cloud-init's own data (`cicustom`) must be there when the VM starts.
    pub(super) fn check_snippets(&self, vm: &SimVm) -> WorkerEnd {
        for (_, volume) in properties(vm.text("cicustom"), "") {
            let (storage, _) = volume.split_once(':').unwrap_or_default();
            let Some(spec) = self.storages.get(storage) else {
                return Err(format!("storage '{storage}' does not exist"));
            };
            let there = match &spec.files {
                Some(_) => self
                    .file(volume, &vm.host)
                    .is_some_and(|file| file.is_file()),
                None => self.volume(volume, &vm.host).is_some(),
            };
            if !there {
                return Err(format!("volume '{volume}' does not exist"));
            }
        }
        Ok(())
    }

    /// The file of a volume on the simulator's machine, where the storage has files.
    fn file(&self, volume: &str, host: &str) -> Option<PathBuf> {
        let (storage, name) = volume.split_once(':')?;
        let files = self.storages.get(storage)?.files.as_ref()?;
        Some(PathBuf::from(files.replace("{host}", host)).join(name))
    }

    /// The snippets on a storage, as its content lists them to who may allocate there. Their time is that of their last writing, which
    /// a test can set; PVE tells that of their last change.
    pub(super) fn snippet_rows(&self, asked: &CheckedCall, storage: &str) -> Value {
        let path = format!("/storage/{storage}");
        let may = self.allowed(&asked.caller, &path, &["Datastore.Allocate"]);
        let folder = self.file(&format!("{storage}:snippets"), &asked.node);
        let folder = folder.filter(|_| may).map(std::fs::read_dir);
        let files = folder.into_iter().flatten().flatten().flatten();
        let rows = files.filter_map(|file| {
            let about = file.metadata().ok()?;
            let since = about.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
            Some(json!({
                "volid": format!("{storage}:snippets/{}", file.file_name().to_string_lossy()),
                "size": about.len(), "format": "snippet", "content": "snippets", "ctime": since.as_secs(),
            }))
        });
        json!(rows.collect::<Vec<_>>())
    }

    /// Removes a snippet.
    pub(super) fn remove_snippet(&self, volume: &str, host: &str) -> WorkerEnd {
        let gone = self
            .file(volume, host)
            .is_some_and(|file| std::fs::remove_file(file).is_ok());
        if gone {
            Ok(())
        } else {
            Err(format!("volume '{volume}' does not exist"))
        }
    }

    /// Where a storage's files are on a host, as its definition says; volumes without files are nowhere.
    pub(super) fn directory(kind: StorageKind, name: &str) -> Option<String> {
        match kind {
            StorageKind::Dir if name == "local" => Some("/var/lib/vz".to_owned()),
            StorageKind::Dir | StorageKind::Btrfs => Some(format!("/mnt/{name}")),
            StorageKind::Nfs | StorageKind::CephFs => Some(format!("/mnt/pve/{name}")),
            _ => None,
        }
    }
}

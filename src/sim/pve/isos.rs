//! ISOs: they are uploaded, put into CD drives, and removed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use http::HeaderValue;
use serde_json::{Value, json};

use super::disks::Drive;
use super::facts::IsoFacts;
use super::schema::split;
use super::tasks::{Worker, WorkerEnd};
use super::wire::{ErrorAnswer, ParamValue, ParamValues};
use super::world::{PveWorld, SimVm};
use super::{CheckedCall, Pve};
use crate::sim::guests::GuestVm;

/// How long PVE takes to copy a small file, or to remove it.
const COPY: Duration = Duration::from_millis(300);
/// Where pveproxy puts what is sent to it.
const SENT: &str = "/var/tmp/pveupload-";

/// ISOs on shared storages that several clusters have, by volume.
pub(super) type IsoExports = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// Whether a path is one of pveproxy's.
pub(super) fn is_upload(text: &str) -> bool {
    let digits = text.strip_prefix(SENT);
    digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The parts of a form with a file: plain values, and name and content of the file. pveproxy wants `content` before the file, and
/// takes nothing else than what is written so.
fn parts(kind: &str, body: &[u8]) -> Option<(ParamValues, String, Vec<u8>)> {
    let boundary = kind.strip_prefix("multipart/form-data; boundary=")?;
    let open = format!("--{boundary}\r\n");
    let mut params = ParamValues::new();
    let mut rest = body.strip_prefix(open.as_bytes())?;
    loop {
        let end = find(rest, b"\r\n\r\n")?;
        let head = std::str::from_utf8(&rest[..end]).ok()?;
        let value = &rest[end + 4..];
        let close = find(value, format!("\r\n--{boundary}").as_bytes())?;
        let after = &value[close + 4 + boundary.len()..];
        let value = &value[..close];
        let words = head.lines().next()?;
        let words = words.strip_prefix("Content-Disposition: form-data; name=\"")?;
        let (name, more) = words.split_once('"')?;
        if name == "filename" {
            let file = more.strip_prefix("; filename=\"")?.strip_suffix('"')?;
            let last = after == b"--\r\n" && params.contains_key("content");
            return last.then(|| (params, file.to_owned(), value.to_vec()));
        }
        let text = std::str::from_utf8(value).ok()?.to_owned();
        params.insert(name.to_owned(), ParamValue::Text(text));
        rest = after.strip_prefix(b"\r\n")?;
    }
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|part| part == wanted)
}

impl Pve {
    /// A file was sent: it lies on the host that was asked, and its call learns where.
    pub(super) fn sent(
        &self,
        kind: Option<&HeaderValue>,
        body: &Bytes,
    ) -> Result<ParamValues, ErrorAnswer> {
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let Some((mut params, name, content)) = parts(kind, body) else {
            return Err(ErrorAnswer::bare(501, "multipart form data expected"));
        };
        let number = self.world(|world, _| {
            let number = world.uploads.len();
            world.uploads.insert(format!("{SENT}{number:08x}"), content);
            number
        });
        params.insert("filename".to_owned(), ParamValue::Text(name));
        params.insert(
            "tmpfilename".to_owned(),
            ParamValue::Text(format!("{SENT}{number:08x}")),
        );
        Ok(params)
    }

    /// `upload`: the early checks, then a task that copies the file.
    pub(super) fn upload(&self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        let (storage, name) = (
            asked.text("storage").to_owned(),
            asked.text("filename").to_owned(),
        );
        let takes = self.world(|world, _| {
            world.usable(&storage, &asked.node)?;
            let spec = world.storages.get(&storage);
            let other = spec.filter(|spec| !spec.kind.has_files());
            if let Some(spec) = other {
                let kind = spec.kind.as_str();
                return Err(format!("can't upload to storage type '{kind}'"));
            }
            Ok(spec.is_some_and(|spec| split(&spec.content).any(|one| one == "iso")))
        });
        let takes = takes.map_err(ErrorAnswer::die)?;
        if asked.text("content") != "iso"
            || name.strip_suffix(".iso").is_none()
            || name.contains('/')
        {
            return Err(ErrorAnswer::parameter("filename", "wrong file extension"));
        }
        if !takes {
            return Err(ErrorAnswer::die(format!(
                "storage '{storage}' does not support 'iso' content"
            )));
        }
        let (node, user) = (asked.node.clone(), asked.caller.name.clone());
        let from = asked.text("tmpfilename").to_owned();
        let at = asked.node.clone();
        Ok(self.fork(&node, "imgcopy", "", &user, false, |worker| {
            Box::pin(copy(worker, at, (storage, name), from))
        }))
    }

    /// `DELETE` of a volume that is no VM's.
    pub(super) fn remove_volume(&self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        let volume = asked.text("volume").to_owned();
        let snippet = volume.contains(":snippets/");
        if !volume.contains(":iso/") && !snippet {
            return Err(ErrorAnswer::die(format!(
                "unable to parse volume ID '{volume}'"
            )));
        }
        let (node, user) = (asked.node.clone(), asked.caller.name.clone());
        let id = asked.text("storage").to_owned();
        Ok(
            self.fork(&node.clone(), "imgdel", &id, &user, false, |worker| {
                Box::pin(async move {
                    tokio::time::sleep(COPY).await;
                    worker.pve.world(|world, _| {
                        if snippet {
                            return world.remove_snippet(&volume, &node);
                        }
                        match world.remove_iso(&volume, &node) {
                            Some(_) => Ok(()),
                            None => Err(format!("volume '{volume}' does not exist")),
                        }
                    })
                })
            }),
        )
    }

    /// The ISOs that there are.
    pub fn isos(&self) -> Vec<IsoFacts> {
        self.world(|world, _| {
            let isos = world.all_isos().into_iter();
            let isos = isos.map(|((host, volume), content)| IsoFacts {
                host,
                volume,
                content,
            });
            isos.collect()
        })
    }

    /// From now on the shared storages of this cluster and of the other are the same exports: what the one brings there as an ISO, the
    /// other sees and removes. Neither has an ISO there yet.
    pub fn share_isos(&self, other: &Pve) {
        let exports = IsoExports::default();
        for pve in [self, other] {
            pve.world(|world, _| world.exports = Some(exports.clone()));
        }
    }
}

async fn copy(
    worker: Worker,
    host: String,
    (storage, name): (String, String),
    from: String,
) -> WorkerEnd {
    tokio::time::sleep(COPY).await;
    worker.pve.world(|world, _| {
        let (_, available) = world.space(&storage, &host);
        let Some(content) = world.uploads.get(&from).cloned() else {
            return Err(format!("no such file '{from}'"));
        };
        if available < content.len() as u64 {
            return Err("command '/bin/cp' failed: exit code 1".to_owned());
        }
        world.add_iso(&format!("{storage}:iso/{name}"), &host, content);
        world.uploads.insert(from, Vec::new());
        Ok(())
    })
}

impl PveWorld {
    fn iso_key(&self, volume: &str, host: &str) -> (String, String) {
        let storage = volume.split_once(':').map_or("", |(storage, _)| storage);
        (self.place(storage, host).to_owned(), volume.to_owned())
    }

    /// The exports that a volume is on, where its storage is shared with another cluster.
    fn exports_of(&self, volume: &str, host: &str) -> Option<IsoExports> {
        let (place, _) = self.iso_key(volume, host);
        self.exports.clone().filter(|_| place.is_empty())
    }

    fn add_iso(&mut self, volume: &str, host: &str, content: Vec<u8>) {
        if let Some(exports) = self.exports_of(volume, host) {
            let mut exports = exports.lock().unwrap_or_else(PoisonError::into_inner);
            exports.insert(volume.to_owned(), content);
        } else {
            let key = self.iso_key(volume, host);
            self.isos.insert(key, content);
        }
    }

    fn remove_iso(&mut self, volume: &str, host: &str) -> Option<Vec<u8>> {
        if let Some(exports) = self.exports_of(volume, host) {
            let mut exports = exports.lock().unwrap_or_else(PoisonError::into_inner);
            return exports.remove(volume);
        }
        let key = self.iso_key(volume, host);
        self.isos.remove(&key)
    }

    /// All ISOs, by place and volume.
    fn all_isos(&self) -> BTreeMap<(String, String), Vec<u8>> {
        let mut all = self.isos.clone();
        if let Some(exports) = &self.exports {
            let exports = exports.lock().unwrap_or_else(PoisonError::into_inner);
            let shared = exports.iter();
            all.extend(shared.map(|(id, content)| ((String::new(), id.clone()), content.clone())));
        }
        all
    }

    /// An ISO as a host sees it.
    pub(super) fn iso(&self, volume: &str, host: &str) -> Option<Vec<u8>> {
        if let Some(exports) = self.exports_of(volume, host) {
            let exports = exports.lock().unwrap_or_else(PoisonError::into_inner);
            return exports.get(volume).cloned();
        }
        self.isos.get(&self.iso_key(volume, host)).cloned()
    }

    /// An ISO for a drive of a VM on a host; it must be there.
    pub(super) fn prepare_iso(&self, drive: &Drive, host: &str) -> Result<String, String> {
        let there = self.iso(&drive.file, host).is_some();
        let missing = || format!("volume '{}' does not exist", drive.file);
        there.then(|| drive.to_string()).ok_or_else(missing)
    }

    /// PVE's own drive for cloud-init is no unused disk when something else comes into its place: it goes.
    pub(super) fn give_way(&mut self, vm: &mut SimVm, key: &str) {
        let old = vm.config.get(key).map(|text| Drive::parse(text));
        if let Some(old) = old.filter(|old| old.is_cloudinit() && !vm.run.is_on()) {
            self.free(&old.file, &vm.host);
            vm.config.remove(key);
        }
    }

    /// The ISOs on a storage, as its content lists them.
    pub(super) fn iso_rows(&self, storage: &str, host: &str) -> Value {
        let place = self.place(storage, host);
        let begin = format!("{storage}:");
        let all = self.all_isos();
        let here = all
            .iter()
            .filter(|((at, id), _)| at == place && id.starts_with(&begin));
        let rows = here.map(|((_, id), content)| {
            json!({ "volid": id, "size": content.len(), "format": "iso", "content": "iso", "ctime": 0 })
        });
        json!(rows.collect::<Vec<_>>())
    }

    /// The guest with what is in its CD drive.
    pub(super) fn with_seed(&self, guest: GuestVm) -> GuestVm {
        let vm = self.vms.get(&guest.vmid);
        let seed = vm.and_then(|vm| {
            let iso = vm.isos().next()?;
            self.iso(&iso.file, &vm.host)
        });
        GuestVm { seed, ..guest }
    }
}

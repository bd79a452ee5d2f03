//! The calls by which templates are built. A person's command makes them, never the daemon: the broker passes none of
//! them on.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::calls::{host_path, pair, vm_path};
use super::client::Client;
use super::encode::path;
use super::perl::Fields;
use super::transport::{CallError, HttpMethod};
use super::types::deadline;
use super::upid::Upid;
use crate::model::time::Time;

/// The names of these calls in errors.
pub(super) const CALLS: [&str; 6] = [
    "download_image",
    "images",
    "make_template",
    "remove_snippet",
    "snippets",
    "storages",
];

/// What PVE is to download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Download {
    /// Where from.
    pub url: String,
    /// The file's name on the storage.
    pub file: String,
    /// `sha512` and its like.
    pub algorithm: String,
    /// The digits.
    pub checksum: String,
}

/// A file on a storage for snippets, as PVE tells of it: its text is not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnippetFile {
    /// When it was written, by the clock of whoever has the files; `None` when that is not told.
    pub written: Option<Time>,
    /// The file's size in bytes; `None` when that is not told.
    pub size: Option<i64>,
}

/// Reads the files in the data of `GET /nodes/{node}/storage/{storage}/content`.
pub(super) fn read_snippets(data: &Value) -> BTreeMap<String, SnippetFile> {
    let entries = data.as_array().into_iter().flatten().map(Fields::of);
    let files = entries.filter_map(|entry| {
        let written = entry.integer("ctime").filter(|seconds| *seconds > 0);
        let file = SnippetFile {
            written: written.map(|seconds| Time(seconds.saturating_mul(1_000))),
            size: entry.integer("size"),
        };
        Some((entry.text("volid")?, file))
    });
    files.collect()
}

impl Client {
    /// `GET /nodes/{host}/storage/{storage}/content?content=snippets`: the files there, by volume. Who has no `Datastore.Allocate` on
    /// the storage is told of none.
    pub async fn snippets(
        &self,
        host: &str,
        storage: &str,
    ) -> Result<BTreeMap<String, SnippetFile>, CallError> {
        let at = host_path(host, &["storage", storage, "content"])?;
        let params = vec![pair("content", "snippets")];
        let data = self
            .get("snippets", at, params, deadline::READ_HOST)
            .await?;
        Ok(read_snippets(&data))
    }

    /// `DELETE /nodes/{host}/storage/{storage}/content/{volume}` of such a file.
    pub async fn remove_snippet(
        &self,
        host: &str,
        storage: &str,
        volume: &str,
    ) -> Result<Upid, CallError> {
        let begin = format!("{storage}:snippets");
        let name = volume.strip_prefix(&*begin).unwrap_or(volume);
        // PVE takes what follows as one name, with its slash.
        let at = host_path(host, &["storage", storage, "content"])?
            + &path(&[&begin, name.trim_start_matches('/')]);
        self.task("remove_snippet", HttpMethod::Delete, at, vec![])
            .await
    }

    /// `GET /storage`: the directory of each storage that has one and that the caller may see.
    pub async fn storage_paths(&self) -> Result<BTreeMap<String, String>, CallError> {
        let data = self
            .get("storages", path(&["storage"]), vec![], deadline::READ)
            .await?;
        let entries = data.as_array().into_iter().flatten().map(Fields::of);
        let paths = entries.filter_map(|entry| Some((entry.text("storage")?, entry.text("path")?)));
        Ok(paths.collect())
    }

    /// `GET /nodes/{host}/storage/{storage}/content?content=import`: the volumes that disks can be imported from.
    pub async fn images(&self, host: &str, storage: &str) -> Result<BTreeSet<String>, CallError> {
        let at = host_path(host, &["storage", storage, "content"])?;
        let import = vec![pair("content", "import")];
        let data = self.get("images", at, import, deadline::READ_HOST).await?;
        let entries = data.as_array().into_iter().flatten().map(Fields::of);
        Ok(entries.filter_map(|entry| entry.text("volid")).collect())
    }

    /// `POST /nodes/{host}/storage/{storage}/download-url` for an image to import from. PVE leaves a file alone that is there
    /// with the right checksum.
    pub async fn download_image(
        &self,
        host: &str,
        storage: &str,
        download: &Download,
    ) -> Result<Upid, CallError> {
        let at = host_path(host, &["storage", storage, "download-url"])?;
        let params = vec![
            pair("content", "import"),
            pair("filename", download.file.as_str()),
            pair("url", download.url.as_str()),
            pair("checksum", download.checksum.as_str()),
            pair("checksum-algorithm", download.algorithm.as_str()),
        ];
        self.task("download_image", HttpMethod::Post, at, params)
            .await
    }

    /// `POST …/qemu/{vmid}/template`: a VM that is off becomes a template.
    pub async fn make_template(&self, host: &str, vmid: u32) -> Result<Upid, CallError> {
        let at = vm_path(host, vmid, &["template"])?;
        self.task("make_template", HttpMethod::Post, at, vec![])
            .await
    }
}

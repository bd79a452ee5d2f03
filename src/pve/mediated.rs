//! Mediated devices: what hosts have left of them, and which mappings are marked for them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::calls::host_path;
use super::client::Client;
use super::encode::path;
use super::perl::{self, Fields};
use super::sound;
use super::transport::CallError;
use super::types::deadline;

/// Reads the data of `GET /nodes/{node}/hardware/pci/{mapping}/mdev`.
pub(super) fn read(data: &Value) -> BTreeMap<Arc<str>, u32> {
    let rows = data.as_array().into_iter().flatten().map(Fields::of);
    let types = rows.filter_map(|row| {
        let left = row.integer("available")?.max(0);
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        Some((Arc::from(row.text("type")?), left))
    });
    types.collect()
}

/// Reads which mappings the data of `GET /cluster/mapping/pci` marks.
fn read_marked(data: &Value) -> BTreeSet<Arc<str>> {
    let rows = data.as_array().into_iter().flatten();
    let marked = rows.filter(|row| row.get("mdev").and_then(perl::integer) == Some(1));
    let names = marked.filter_map(|row| Fields::of(row).text("id"));
    names.map(Arc::from).collect()
}

impl Client {
    /// `GET /nodes/{host}/hardware/pci/{mapping}/mdev`: how many mediated devices of each type the host can make of a mapping, beside those of VMs
    /// that run. Of several cards of the mapping PVE tells a type's number of the first one that knows the type. A card of NVIDIA's with
    /// virtual functions tells 1 as long as there is room for one more, and then nothing of the type.
    pub async fn mediated_left(
        &self,
        host: &str,
        mapping: &str,
    ) -> Result<BTreeMap<Arc<str>, u32>, CallError> {
        let at = host_path(host, &["hardware", "pci", mapping, "mdev"])?;
        let asked = ("mediated_left", at);
        let data = self
            .get_sound(asked, vec![], deadline::READ_HOST, sound::mediated)
            .await?;
        Ok(read(&data))
    }

    /// `GET /cluster/mapping/pci`: the mappings that are marked for mediated devices (`mdev`). PVE starts no VM with a device of a mapping whose
    /// mark is not as the device is.
    pub async fn mediated_mappings(&self) -> Result<BTreeSet<Arc<str>>, CallError> {
        let asked = ("mediated_mappings", path(&["cluster", "mapping", "pci"]));
        let data = self
            .get_sound(asked, vec![], deadline::READ, sound::mappings)
            .await?;
        Ok(read_marked(&data))
    }
}

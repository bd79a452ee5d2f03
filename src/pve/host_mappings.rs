//! Mappings of USB devices and directories, by name: what hosts have of them the choice of a host does not look at.

use std::collections::BTreeSet;

use super::client::Client;
use super::encode::path;
use super::perl::Fields;
use super::sound;
use super::transport::CallError;
use super::types::deadline;

impl Client {
    /// `GET /cluster/mapping/usb`: the mappings of USB devices that the caller may see, by name.
    pub async fn usb_mappings(&self) -> Result<BTreeSet<String>, CallError> {
        self.mapping_names("usb_mappings", "usb").await
    }

    /// `GET /cluster/mapping/dir`: the mappings of directories that the caller may see, by name.
    pub async fn dir_mappings(&self) -> Result<BTreeSet<String>, CallError> {
        self.mapping_names("dir_mappings", "dir").await
    }

    async fn mapping_names(
        &self,
        call: &'static str,
        kind: &str,
    ) -> Result<BTreeSet<String>, CallError> {
        let asked = (call, path(&["cluster", "mapping", kind]));
        let data = self
            .get_sound(asked, vec![], deadline::READ, sound::named_rows)
            .await?;
        let entries = data.as_array().into_iter().flatten().map(Fields::of);
        Ok(entries.filter_map(|entry| entry.text("id")).collect())
    }
}

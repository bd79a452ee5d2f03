//! What a storage's file system keeps for root.

use serde_json::Value;

use super::calls::host_path;
use super::client::Client;
use super::perl::Fields;
use super::resources::ClusterResources;
use super::transport::CallError;
use super::types::deadline;

/// Reads the data of `GET /nodes/{node}/storage/{storage}/status`.
pub(super) fn read(data: &Value) -> Option<i64> {
    let fields = Fields::of(data);
    let number = |key: &str| fields.integer(key).filter(|bytes| *bytes >= 0);
    let (total, used, free) = (number("total")?, number("used")?, number("avail")?);
    let kept = total.saturating_sub(used).saturating_sub(free).max(0);
    // PVE has zeros for a storage that it could not reach.
    (total > 0).then_some(kept)
}

impl Client {
    /// `GET /nodes/{host}/storage/{storage}/status`: bytes of a storage that are neither used nor free; `None` where PVE does not
    /// tell, as of a storage that is not there now.
    pub async fn kept_space(&self, host: &str, storage: &str) -> Result<Option<i64>, CallError> {
        let at = host_path(host, &["storage", storage, "status"])?;
        let data = self
            .get("kept_space", at, vec![], deadline::READ_HOST)
            .await?;
        Ok(read(&data))
    }

    /// Asks each storage on a file system, on each host that is online; one that does not tell keeps nothing.
    pub async fn tell_kept_space(&self, resources: &mut ClusterResources) {
        for (host, storages) in &mut resources.storages {
            if !resources.hosts.get(host).is_some_and(|host| host.online) {
                continue;
            }
            for (name, storage) in storages {
                if storage.active && storage.has_files_of_images() {
                    let kept = self.kept_space(host, name).await.ok().flatten();
                    storage.kept = kept.unwrap_or(0);
                }
            }
        }
    }
}

//! Where a VM belongs beside its host: PVE's resource pools.

use super::calls::{pair, request};
use super::client::Client;
use super::encode::path;
use super::texts::FailureCause;
use super::transport::{CallError, HttpMethod};
use super::types::deadline;

impl Client {
    /// `PUT /pools` with `allow-move`: the VM is in this resource pool from now on and in no other, also when it was there
    /// already. PVE knows it since pve-manager 8.1; older ones answer 501.
    pub async fn move_to_pool(&self, vmid: u32, pool: &str) -> Result<(), CallError> {
        let params = vec![
            pair("poolid", pool),
            pair("vms", vmid.to_string()),
            pair("allow-move", "1"),
        ];
        let at = path(&["pools"]);
        let asked = request(
            "move_to_pool",
            HttpMethod::Put,
            at,
            params,
            deadline::CHANGE,
        );
        match self.send(asked).await {
            Err(error) if error.cause() == FailureCause::PoolMember => Ok(()),
            answered => answered.map(drop),
        }
    }
}

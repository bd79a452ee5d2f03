//! Whose an ISO for cloud-init is that comes or goes.

use tokio::time::Instant;

use super::allow::AdmittedCall;
use super::policy::BrokerPolicy;
use super::service::{BrokerService, Ends, Reply};
use crate::pve::{HttpMethod, IsoFile, decoded};

impl BrokerService {
    /// An ISO comes to a VM that is ours. It goes whoever has its VMID now, if its name says that it was a machine's of this cluster and
    /// region. A name that an older program wrote says no such thing: there the VM of its VMID must be ours.
    pub(super) async fn own_iso(
        &self,
        policy: &BrokerPolicy,
        call: &AdmittedCall,
        end: Instant,
    ) -> Result<(), Ends> {
        if call.rule.method != HttpMethod::Delete {
            return self.ours(policy, call, end).await.map(drop);
        }
        let name = decoded(call.path.rsplit('/').next().unwrap_or_default());
        let file = IsoFile::named(&name);
        let file = file.ok_or_else(|| Reply::refused("the file is no ISO of a machine"))?;
        let Some(owner) = file.owner else {
            return self.ours(policy, call, end).await.map(drop);
        };
        let learnt = self.cluster.learnt().ok_or_else(|| {
            Reply::refused("which cluster's ISOs are ours is not known before its first machine")
        })?;
        if owner == policy.iso_owner(&learnt) {
            return Ok(());
        }
        Err(Reply::refused(
            "the ISO is of a machine of another cluster or region",
        ))
    }
}

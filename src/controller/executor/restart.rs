//! A machine that has joined and is not Ready yet, and whose VM went off meanwhile: it is started again.

use std::time::Duration;

use tokio::time::Instant;

use crate::pve::FailureCause;

use super::guest::went_off;
use super::vm;
use super::work::{Stop, Work, is_transient};

/// Between two looks at a VM whose node is not Ready, from `GET …/status/current`.
const LOOK: Duration = Duration::from_secs(15);

/// Looks now and then whether the VM is off, and has started it at most once.
pub(super) struct Restart {
    looked: Instant,
    started: bool,
}

impl Restart {
    pub(super) fn new() -> Self {
        Restart {
            looked: Instant::now(),
            started: false,
        }
    }

    /// Starts the VM where it is off: its host went down with it, or somebody stopped it. Its kubelet has joined, and comes back
    /// with it. One that goes off again has failed; a VM of the HA manager is left to it. A host that gives no answer is asked later.
    pub(super) async fn of_vm_that_is_off(&mut self, work: &Work) -> Result<(), Stop> {
        if self.looked.elapsed() < LOOK {
            return Ok(());
        }
        self.looked = Instant::now();
        let status = match work.pve.vm_status(&work.host()?, work.mark.vmid).await {
            Ok(status) => status,
            // It may have moved: find it again.
            Err(error) if error.cause() == FailureCause::Gone => {
                return vm::ours(work).await.map(drop);
            }
            Err(error) => {
                if is_transient(&error) {
                    work.note_outage(error.to_string());
                } else {
                    work.note(error.to_string());
                }
                return Ok(());
            }
        };
        if status.running || status.ha_managed {
            return Ok(());
        }
        if self.started {
            return Err(went_off(work).await);
        }
        self.started = true;
        work.note("its VM went off after its node had joined; it is started again".to_owned());
        vm::switched_on(work).await
    }
}

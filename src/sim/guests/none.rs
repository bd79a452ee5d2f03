//! Guests with nothing in them: they boot, their agent answers, every command ends well and silent.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::Instant;

use super::{ExecError, GuestExecResult, GuestVm, Guests};

/// Guests for tests that look at PVE alone.
#[derive(Debug)]
pub struct NoGuests {
    boot: Duration,
    shutdown: Duration,
    /// When each was powered on.
    on: Mutex<BTreeMap<u32, Instant>>,
}

impl NoGuests {
    /// Guests whose agent answers `boot` after the power came and who need `shutdown` to go down.
    pub fn new(boot: Duration, shutdown: Duration) -> NoGuests {
        NoGuests {
            boot,
            shutdown,
            on: Mutex::new(BTreeMap::new()),
        }
    }

    fn up(&self, vmid: u32) -> bool {
        let on = self.on.lock().unwrap_or_else(PoisonError::into_inner);
        on.get(&vmid)
            .is_some_and(|since| since.elapsed() >= self.boot)
    }
}

impl Guests for NoGuests {
    fn power_on(&self, vm: GuestVm) {
        let mut on = self.on.lock().unwrap_or_else(PoisonError::into_inner);
        on.insert(vm.vmid, Instant::now());
    }

    fn power_off(&self, vmid: u32, graceful: bool) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if graceful {
                tokio::time::sleep(self.shutdown).await;
            }
            let mut on = self.on.lock().unwrap_or_else(PoisonError::into_inner);
            on.remove(&vmid);
        })
    }

    fn ping(&self, vmid: u32) -> BoxFuture<'_, bool> {
        Box::pin(async move { self.up(vmid) })
    }

    /// The program `/nope` is missing; every other ends with 0 and gives back its standard input.
    fn exec(
        &self,
        vmid: u32,
        argv: Vec<String>,
        stdin: Vec<u8>,
    ) -> BoxFuture<'_, Result<GuestExecResult, ExecError>> {
        Box::pin(async move {
            if !self.up(vmid) {
                return Err(ExecError::NotRunning);
            }
            match argv.first().map(String::as_str) {
                None | Some("/nope") => Err(ExecError::Agent(
                    "Guest agent command failed, error was 'Failed to execute child process “/nope” (No such file or directory)'"
                        .to_owned(),
                )),
                Some(_) => Ok(GuestExecResult { exit_code: Some(0), stdout: stdin, ..GuestExecResult::default() }),
            }
        })
    }
}

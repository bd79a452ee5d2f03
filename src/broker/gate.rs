//! Who may be at PVE at a time, and how much of its answers lies in memory.
//!
//! The daemon and root have lanes of their own: whatever the daemon's user does, `doctor` and a
//! person's calls get through. A pass holds its share of the bytes until the answer was read by the
//! client: whoever asks and does not read stops itself, and nobody else.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::pve::PveRequest;

use super::peer::PeerProcess;

/// Calls of the daemon at a time: it works on some machines side by side, and PVE has three workers.
const CALLS: usize = 8;
/// Calls of root at a time.
const ROOTS_CALLS: usize = 2;
/// Calls that may wait in one lane.
const QUEUE: usize = 16;
/// A call that could not begin within this is given back.
const WAIT: Duration = Duration::from_secs(5);
/// KiB of answers of the daemon's calls.
const KIBS: usize = 40 * 1024;
/// KiB of answers of root's calls.
const ROOTS_KIBS: usize = 24 * 1024;
/// Longest list of guests and storages, or of disks: ten thousand VMs are 6 MB.
const LIST: usize = 16 * 1024 * 1024;
/// Longest other answer: the rest are configurations, a page of a log, a guest command's few lines.
const ANSWER: usize = 1024 * 1024;

/// How many calls the daemon and root may have at PVE at once, each of its own.
#[derive(Debug)]
pub(super) struct Gate {
    daemon: CallerLimits,
    root: CallerLimits,
}

#[derive(Debug)]
struct CallerLimits {
    calls: Arc<Semaphore>,
    kibs: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// A call's leave to be at PVE.
#[derive(Debug)]
pub(super) struct Pass {
    _call: OwnedSemaphorePermit,
    kibs: OwnedSemaphorePermit,
}

/// The part of the bytes that an answer takes until it was read. Its clones are one.
#[derive(Clone, Debug)]
pub(super) struct MemoryShare {
    _kibs: Arc<OwnedSemaphorePermit>,
}

/// Bytes of an answer to a request at most.
pub(super) fn most(request: &PveRequest) -> usize {
    longest(&request.path)
}

fn longest(path: &str) -> usize {
    let list = path == "/cluster/resources" || path.ends_with("/content");
    if list { LIST } else { ANSWER }
}

impl Default for Gate {
    fn default() -> Gate {
        Gate {
            daemon: CallerLimits::new(CALLS, KIBS),
            root: CallerLimits::new(ROOTS_CALLS, ROOTS_KIBS),
        }
    }
}

impl Gate {
    /// Waits for a place in the lane of `peer`, for a call of this path. The error says why there is
    /// none; nothing was sent then.
    pub(super) async fn enter(&self, peer: PeerProcess, path: &str) -> Result<Pass, String> {
        let lane = if peer.uid == 0 {
            &self.root
        } else {
            &self.daemon
        };
        lane.enter(longest(path)).await
    }
}

impl CallerLimits {
    fn new(calls: usize, kibs: usize) -> CallerLimits {
        CallerLimits {
            calls: Arc::new(Semaphore::new(calls)),
            kibs: Arc::new(Semaphore::new(kibs)),
            waiting: AtomicUsize::new(0),
        }
    }

    async fn enter(&self, bytes: usize) -> Result<Pass, String> {
        let waiting = WaitingCall::new(&self.waiting);
        if waiting.before >= QUEUE {
            return Err(format!("{QUEUE} calls wait already; ask again"));
        }
        let size = u32::try_from(bytes / 1024).unwrap_or(u32::MAX);
        let both = async {
            // The bytes last: they are kept beyond the call.
            let call = Arc::clone(&self.calls).acquire_owned().await;
            let kibs = Arc::clone(&self.kibs).acquire_many_owned(size).await;
            (call, kibs)
        };
        match timeout(WAIT, both).await {
            Ok((Ok(call), Ok(kibs))) => Ok(Pass { _call: call, kibs }),
            Ok(_) | Err(_) => Err(format!(
                "other calls were at PVE, or their answers were not read, for {} s; ask again",
                WAIT.as_secs()
            )),
        }
    }
}

/// One that waits, until it is dropped.
struct WaitingCall<'a> {
    of: &'a AtomicUsize,
    before: usize,
}

impl WaitingCall<'_> {
    fn new(of: &AtomicUsize) -> WaitingCall<'_> {
        let before = of.fetch_add(1, Ordering::Relaxed);
        WaitingCall { of, before }
    }
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        self.of.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pass {
    /// The call is over; what is kept is the share of an answer of so many bytes.
    pub(super) fn done(mut self, bytes: usize) -> MemoryShare {
        let kept = bytes.div_ceil(1024);
        let spare = self.kibs.num_permits().saturating_sub(kept);
        drop(self.kibs.split(spare));
        MemoryShare {
            _kibs: Arc::new(self.kibs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(uid: u32) -> PeerProcess {
        PeerProcess {
            uid,
            gid: 1,
            pid: 1,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lane_has_its_calls_and_its_bytes_and_root_has_its_own() {
        let gate = Gate::default();
        let mut calls = Vec::new();
        for _ in 0..CALLS {
            calls.push(gate.enter(peer(990), "/version").await.expect("a place"));
        }
        let full = gate.enter(peer(990), "/version").await.expect_err("full");
        assert!(full.contains("for 5 s"), "{full}");
        assert!(gate.enter(peer(0), "/version").await.is_ok(), "root's lane");
        // An answer that is not read keeps its bytes and no call.
        let share = calls.pop().expect("one").done(ANSWER);
        let next = gate
            .enter(peer(990), "/version")
            .await
            .expect("a call is over");
        drop((share, next, calls));
        let mut shares = Vec::new();
        for _ in 0..KIBS * 1024 / LIST {
            let pass = gate.enter(peer(990), "/cluster/resources").await;
            shares.push(pass.expect("bytes are left").done(LIST));
        }
        assert!(gate.enter(peer(990), "/cluster/resources").await.is_err());
        assert!(
            gate.enter(peer(990), "/version").await.is_ok(),
            "a small one fits"
        );
        // A short answer gives back what it does not need.
        shares.pop();
        for _ in 0..100 {
            let pass = gate.enter(peer(990), "/cluster/resources").await;
            shares.push(pass.expect("room for a list").done(10_000));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_has_an_end() {
        let gate = Arc::new(Gate::default());
        let held = gate.enter(peer(990), "/nodes/p/storage/s/content").await;
        let ask = || {
            let gate = Arc::clone(&gate);
            tokio::spawn(async move { gate.enter(peer(990), "/cluster/resources").await.map(drop) })
        };
        let rest: Vec<_> = {
            let mut passes = Vec::new();
            for _ in 1..CALLS {
                passes.push(gate.enter(peer(990), "/version").await.expect("a place"));
            }
            passes
        };
        let waiting: Vec<_> = (0..QUEUE).map(|_| ask()).collect();
        tokio::task::yield_now().await;
        let refused = gate.enter(peer(990), "/version").await.expect_err("full");
        assert!(refused.contains("16 calls wait"), "{refused}");
        drop((held, rest));
        for one in waiting {
            assert!(one.await.expect("ended").is_ok(), "they come through");
        }
        assert!(gate.enter(peer(990), "/version").await.is_ok());
    }
}

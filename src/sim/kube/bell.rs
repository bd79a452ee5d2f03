//! Bells that ring when something changes.
//!
//! Who waits is woken in the order in which they began to wait. A channel of tokio's (`sync::watch`) wakes those who
//! wait for it in an order drawn from random numbers of tokio's own, so that a seed would not replay to the byte.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

/// Rings; those who listen hear the end of it when it is dropped.
#[derive(Debug, Default)]
pub(super) struct Bell(Arc<SharedBell>);

#[derive(Debug, Default)]
struct SharedBell {
    /// The version of the last change.
    last: AtomicU64,
    over: AtomicBool,
    waiting: Notify,
}

impl Bell {
    /// Something changed, and this is the version now.
    pub(super) fn ring(&self, version: u64) {
        self.0.last.store(version, Ordering::SeqCst);
        self.0.waiting.notify_waiters();
    }

    /// The version of the last change.
    pub(super) fn last(&self) -> u64 {
        self.0.last.load(Ordering::SeqCst)
    }

    /// Listens from now on.
    pub(super) fn listen(&self) -> BellListener {
        BellListener {
            heard: self.last(),
            bell: Arc::clone(&self.0),
        }
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::SeqCst);
        self.0.waiting.notify_waiters();
    }
}

/// One who listens.
#[derive(Debug)]
pub(super) struct BellListener {
    bell: Arc<SharedBell>,
    /// The version heard last.
    heard: u64,
}

impl BellListener {
    /// The version of the last change, which is heard with this.
    pub(super) fn hear(&mut self) -> u64 {
        self.heard = self.bell.last.load(Ordering::SeqCst);
        self.heard
    }

    /// Waits for a change that was not heard yet; `false` when there will be none any more.
    pub(super) async fn changed(&mut self) -> bool {
        let bell = Arc::clone(&self.bell);
        loop {
            let rings = bell.waiting.notified();
            tokio::pin!(rings);
            // Whatever rings from here on is heard.
            rings.as_mut().enable();
            if bell.over.load(Ordering::SeqCst) {
                return false;
            }
            let before = self.heard;
            if self.hear() != before {
                return true;
            }
            rings.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn listeners_are_woken_in_the_order_in_which_they_came() {
        let bell = Bell::default();
        let woken = Arc::new(Mutex::new(Vec::new()));
        let tasks: Vec<_> = (0..20)
            .map(|number| {
                let (mut listener, woken) = (bell.listen(), woken.clone());
                tokio::spawn(async move {
                    while listener.changed().await {
                        woken.lock().expect("not poisoned").push(number);
                    }
                })
            })
            .collect();
        tokio::task::yield_now().await;
        for version in [1, 2] {
            bell.ring(version);
            tokio::task::yield_now().await;
        }
        drop(bell);
        for task in tasks {
            task.await.expect("it ends with the bell");
        }
        let woken = woken.lock().expect("not poisoned").clone();
        assert_eq!(woken, (0..20).chain(0..20).collect::<Vec<_>>());
    }
}

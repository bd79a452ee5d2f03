//! The view that a decision is being made on, where a panic's hook finds it: it goes into the record with the decision, and a decision that
//! panics has none.

use std::cell::RefCell;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use super::journal::write_durably;
use crate::model::snapshot::Snapshot;

/// The largest view that is kept, in bytes: the hook has the memory of a process that is at its end.
const MOST: usize = 64 << 20;

thread_local! {
    /// A panic's hook runs on the thread that panicked.
    static DECIDED_ON: RefCell<Option<Arc<Snapshot>>> = const { RefCell::new(None) };
}

/// Decides on this view: a panic meanwhile is one of a decision on it.
pub fn decide_on<T>(view: &Arc<Snapshot>, decide: impl FnOnce() -> T) -> T {
    DECIDED_ON.with(|held| *held.borrow_mut() = Some(view.clone()));
    let decided = decide();
    DECIDED_ON.with(|held| held.borrow_mut().take());
    decided
}

/// Writes the view that this thread decides on, as `snapshot` shows it. Nothing where it does not decide, or where the view is too large.
pub(super) fn keep(file: &Path) -> std::io::Result<()> {
    let held = DECIDED_ON.try_with(|held| held.try_borrow().ok()?.clone());
    let Some(view) = held.ok().flatten() else {
        return Ok(());
    };
    let mut text = BoundedText(Vec::new());
    match serde_json::to_writer(&mut text, &*view) {
        Ok(()) => write_durably(file, &text.0),
        Err(error) if error.is_io() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Takes no more than [`MOST`] bytes.
struct BoundedText(Vec<u8>);

impl Write for BoundedText {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > MOST {
            return Err(std::io::Error::other("the view is too large to be kept"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

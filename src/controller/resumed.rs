//! Who ended a pause. The control socket's answer knows it, and the loop records it: so it is noted in the state directory in between.

use super::journal::write_durably;
use super::state::{StateError, StateFiles};
use crate::model::foreign;

/// Where it is noted.
const FILE: &str = "resumed";
/// Longest name kept, in characters.
const MAX: usize = 200;

impl StateFiles {
    /// Notes who is about to end the pause.
    pub fn note_resumed(&self, by: &str) -> Result<(), StateError> {
        let path = self.path(FILE);
        write_durably(&path, by.as_bytes()).map_err(|source| StateError::new("write", path, source))
    }

    /// Who ended the pause, told once; `None` where nobody noted it, as when the file of the pause was taken away by hand.
    pub fn take_resumed(&self) -> Option<String> {
        let path = self.path(FILE);
        let by = std::fs::read_to_string(&path).ok()?;
        // One that stays would be told of the next pause, too, were it not overwritten then.
        let _ = std::fs::remove_file(path);
        Some(foreign::line(&by, MAX)).filter(|by| !by.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_resumed_is_told_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = StateFiles::open(folder.path()).expect("opens");
        assert_eq!(files.take_resumed(), None);
        files.note_resumed("ann\u{1b}[31m").expect("noted");
        assert_eq!(files.take_resumed().as_deref(), Some(r"ann\u{1b}[31m"));
        assert_eq!(files.take_resumed(), None);
    }
}

//! Files that a person has us write: what is there already is not written over, unless it is what we wrote, or the person says so.

use std::path::Path;

use anyhow::bail;
use clap::Args;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::bounded_file;

/// The word that lets any file be written over.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct ForceOptions {
    /// Write over a file that is there and that this command did not write.
    #[arg(long)]
    pub(super) force: bool,
}

impl ForceOptions {
    /// Whether `path` may be written: nothing is there, or what `is_ours` knows by its bytes. A pipe or a terminal may always be.
    ///
    /// # Errors
    /// Another file is there.
    pub(super) fn check(
        self,
        path: &Path,
        (what, is_ours): (&str, fn(&[u8]) -> bool),
    ) -> anyhow::Result<()> {
        let Ok(found) = std::fs::metadata(path) else {
            // What cannot be looked at is told by whoever writes.
            return Ok(());
        };
        if self.force || !found.is_file() || found.len() == 0 {
            return Ok(());
        }
        let ours = bounded_file::read(path, bounded_file::SNAPSHOT);
        if ours.is_ok_and(|bytes| is_ours(&bytes)) {
            return Ok(());
        }
        bail!(
            "{} is there already and is no {what}: nothing was written; name another file, or --force writes over it",
            path.display()
        )
    }
}

/// Enough of a snapshot to know one.
#[derive(Deserialize)]
struct SnapshotHead {
    #[serde(rename = "version")]
    _version: u32,
    #[serde(rename = "taken")]
    _taken: IgnoredAny,
    #[serde(rename = "sources")]
    _sources: IgnoredAny,
    #[serde(rename = "cluster")]
    _cluster: IgnoredAny,
}

/// Whether it is a snapshot, of any version.
pub(super) fn is_snapshot(bytes: &[u8]) -> bool {
    serde_json::from_slice::<SnapshotHead>(bytes).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_ours_is_written_over_unless_somebody_says_so() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let ask = |force: bool| {
            let ours: fn(&[u8]) -> bool = |bytes| bytes.starts_with(b"# ours");
            ForceOptions { force }.check(&path, ("list of ours", ours))
        };
        assert!(ask(false).is_ok(), "nothing is there");
        for (text, may) in [("", true), ("# ours\n", true), ("version = 1\n", false)] {
            std::fs::write(&path, text).expect("written");
            let said = ask(false).map_err(|error| error.to_string());
            assert_eq!(said.is_ok(), may, "{said:?}");
            assert!(ask(true).is_ok());
        }
        let said = ask(false).expect_err("refused").to_string();
        assert!(
            said.contains("is no list of ours: nothing was written") && said.contains("--force"),
            "{said}"
        );
        assert!(
            ForceOptions { force: false }
                .check(Path::new("/dev/null"), ("snapshot", is_snapshot))
                .is_ok()
        );
    }

    #[test]
    fn a_snapshot_is_known() {
        let view =
            br#"{"cluster":{},"sources":{},"taken":"2026-11-21T12:00:00Z","version":1,"x":[]}"#;
        assert!(is_snapshot(view));
        assert!(!is_snapshot(b"{\"version\":1}") && !is_snapshot(b"version = 1\n"));
    }
}

//! What is read from files, and read again once they change.

use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Between two looks at the files.
const LOOK: Duration = Duration::from_secs(1);

/// By what a change of a file shows: when its inode changed, which inode, how long it is. A file that is not there has none.
type Sign = Option<(i64, i64, u64, u64)>;

/// A value of files. While they cannot be used the last good value stays.
pub(super) struct ReloadedFiles<T> {
    files: Vec<PathBuf>,
    read: Box<dyn Fn() -> Result<T, String> + Send + Sync>,
    now: Mutex<Now<T>>,
}

struct Now<T> {
    value: Arc<T>,
    signs: Vec<Sign>,
    problem: Option<String>,
    looked: Instant,
}

impl<T> ReloadedFiles<T> {
    /// Reads it for the first time.
    ///
    /// # Errors
    /// What `read` says.
    pub(super) fn open(
        files: Vec<PathBuf>,
        read: impl Fn() -> Result<T, String> + Send + Sync + 'static,
    ) -> Result<ReloadedFiles<T>, String> {
        // A change while they are read is seen by the next look.
        let signs = signs(&files);
        let value = Arc::new(read()?);
        let now = Now {
            value,
            signs,
            problem: None,
            looked: Instant::now(),
        };
        Ok(ReloadedFiles {
            files,
            read: Box::new(read),
            now: Mutex::new(now),
        })
    }

    /// The value of the files as they are, or as they were when they could be used last.
    pub(super) fn get(&self) -> Arc<T> {
        let mut now = self.now();
        if now.looked.elapsed() >= LOOK {
            now.looked = Instant::now();
            let signs = signs(&self.files);
            if signs != now.signs {
                now.signs = signs;
                self.take_up(&mut now);
            }
        }
        now.value.clone()
    }

    fn take_up(&self, now: &mut Now<T>) {
        match (self.read)() {
            Ok(value) => {
                tracing::info!(files = %self.names(), "changed files of [web] were taken up");
                now.value = Arc::new(value);
                now.problem = None;
            }
            Err(problem) => {
                tracing::warn!("{problem}; what was read before stays in force");
                now.problem = Some(problem);
            }
        }
    }

    fn names(&self) -> String {
        let names = self.files.iter().map(|file| file.display().to_string());
        names.collect::<Vec<_>>().join(", ")
    }

    /// Why the files could not be used when they were looked at last.
    pub(super) fn problem(&self) -> Option<String> {
        self.now().problem.clone()
    }

    fn now(&self) -> MutexGuard<'_, Now<T>> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> fmt::Debug for ReloadedFiles<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReloadedFiles")
            .field("files", &self.files)
            .finish()
    }
}

fn signs(files: &[PathBuf]) -> Vec<Sign> {
    let sign = |file: &PathBuf| {
        let about = std::fs::metadata(file).ok()?;
        Some((about.ctime(), about.ctime_nsec(), about.ino(), about.len()))
    };
    files.iter().map(sign).collect()
}

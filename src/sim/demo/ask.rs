//! The demo's control socket: the daemon's own commands, asked from a second terminal; and who carries them out, for the page, too.

use std::ffi::OsStr;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::net::UnixListener;

use crate::controller::answering::Answering;
use crate::controller::control::{self, ControlAnswer, ControlCommand, Handler, SocketClock};
use crate::controller::state::StateFiles;
use crate::controller::status::DaemonStatus;
use crate::sim::world::World;

use super::page::{Touched, status};

/// Who asks without a name, in the daemon's log and record.
const SOMEBODY: &str = "a command at the demo";

/// The socket, listening.
#[derive(Debug)]
pub(super) struct Socket {
    listener: UnixListener,
    file: SocketFile,
}

/// The socket's file, which goes when whoever serves is dropped: so the demo ends.
#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Socket {
    /// Listens there.
    ///
    /// # Errors
    /// The path cannot be had.
    pub(super) async fn open(path: PathBuf) -> std::io::Result<Socket> {
        // A directory that is not there is a slip of whoever typed it: the demo leaves none behind.
        let directory = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        if let Some(directory) = directory {
            let is_missing = |error| {
                Error::new(
                    ErrorKind::NotFound,
                    format!("the directory {}: {error}", directory.display()),
                )
            };
            std::fs::metadata(directory).map_err(is_missing)?;
        }
        let listener = control::bind(&path).await?;
        let file = SocketFile(path);
        Ok(Socket { listener, file })
    }

    /// What to type for it.
    pub(super) fn command(&self) -> String {
        let program = std::env::current_exe().ok();
        let found = std::env::var_os("PATH").unwrap_or_default();
        let program = program.and_then(|own| beside(&own, &found));
        let program = program.unwrap_or_else(|| "pve-autoscaler".to_owned());
        let path = quoted(&self.file.0.to_string_lossy());
        format!("{program} status --socket {path}")
    }

    /// Answers for ever, in the world's time.
    pub(super) async fn serve(self, world: &World, answers: DemoAnswers, pace: u32) {
        let handler: Handler = Arc::new(move |command, by| {
            let by = by.unwrap_or_else(|| SOMEBODY.to_owned());
            answers.answer(command, by)
        });
        let pace = SocketClock {
            clock: world.clock,
            seconds: pace,
        };
        let Socket { listener, file } = self;
        control::serve(listener, pace, handler).await;
        drop(file);
    }
}

/// Carries out what commands and those who are logged in on the page ask for.
#[derive(Clone, Debug)]
pub(super) struct DemoAnswers {
    answering: Arc<Answering>,
    touched: Touched,
}

impl DemoAnswers {
    /// Of this world, whose daemon has its state there.
    pub(super) fn of(world: &World, state: StateFiles, touched: &Touched) -> DemoAnswers {
        let seen = world.turns.subscribe();
        let record = state.record().display().to_string();
        let answering = Answering {
            state,
            turns: world.turns.subscribe(),
            wake_up: world.wake_up.clone(),
            status: Arc::new(move || DaemonStatus {
                record: record.clone(),
                ..status(seen.borrow().as_deref())
            }),
        };
        DemoAnswers {
            answering: Arc::new(answering),
            touched: touched.clone(),
        }
    }

    /// Does it for who asks.
    pub(super) fn answer(
        &self,
        command: ControlCommand,
        by: impl AsRef<str> + Send + 'static,
    ) -> BoxFuture<'static, ControlAnswer> {
        if command.changes() {
            self.touched.note();
        }
        let answering = self.answering.clone();
        Box::pin(async move { answering.answer(command, by.as_ref()).await })
    }
}

/// The daemon's program beside the simulator's, as one types it in any folder: its name where `path` (PATH) leads to it, else its
/// whole path; none where it is installed: then it is found by its name.
fn beside(own: &Path, path: &OsStr) -> Option<String> {
    const NAME: &str = "pve-autoscaler";
    let program = own.with_file_name(NAME);
    if own.file_name() != Some("pve-autoscaler-simulator".as_ref()) || !program.is_file() {
        return None;
    }
    let mut folders = std::env::split_paths(path);
    let first = folders.find(|folder| folder.join(NAME).is_file());
    let whole = |path: &Path| path.canonicalize().ok();
    if first.is_some_and(|folder| whole(&folder.join(NAME)) == whole(&program)) {
        return Some(NAME.to_owned());
    }
    Some(quoted(&program.to_string_lossy()))
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_type_is_what_a_shell_finds() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("a b")).expect("made");
        std::fs::write(path("a b/pve-autoscaler"), "").expect("written");
        let own = path("a b/pve-autoscaler-simulator");
        let whole = format!("'{}'", path("a b/pve-autoscaler").display());
        let nowhere = OsStr::new("/nowhere:/usr/bin");
        assert_eq!(beside(&own, nowhere), Some(whole));
        let found = path("a b");
        assert_eq!(
            beside(&own, found.as_os_str()).as_deref(),
            Some("pve-autoscaler")
        );
        assert_eq!(
            beside(Path::new("/usr/libexec/pve-autoscaler/simulator"), nowhere),
            None
        );
        assert_eq!(beside(&path("pve-autoscaler-simulator"), nowhere), None);
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}

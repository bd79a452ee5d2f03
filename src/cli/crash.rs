//! What a panic leaves: a line in the log, a record in the state directory, and no process.
//!
//! Why it ends and nothing is caught: `docs/decisions/0019-a-panic-ends-the-process.md`.

use std::any::Any;
use std::panic::PanicHookInfo;

use crate::clock::Clock;
use crate::controller::state::StateFiles;
use crate::model::foreign::ForeignText;
use crate::model::time::{Span, Time};

/// From here on a panic anywhere in the process is told, recorded where there is a state directory, and the end.
pub(super) fn end_on_panic(state: Option<StateFiles>) {
    // systemd reads the level of a line from its beginning.
    let level = std::env::var_os("JOURNAL_STREAM").map_or("", |_| "<3>");
    std::panic::set_hook(Box::new(move |panic| {
        let said = said(panic);
        super::say(&format!(
            "{level}pve-autoscaler: {said}; this is a fault of the program: please report it"
        ));
        if let Some(state) = &state {
            let recorded = state.record_panic(said, Clock::System.now());
            for error in [recorded, state.keep_panicked_view()]
                .into_iter()
                .filter_map(Result::err)
            {
                super::say(&format!("{level}pve-autoscaler: {error}"));
            }
        }
        std::process::abort();
    }));
}

/// A panic of an earlier daemon is told for this long.
const NEWS: Span = Span::minutes(60);

/// What there is to tell of the panics of earlier daemons.
#[derive(Debug)]
pub(super) struct News(Option<(Time, String)>);

impl News {
    /// Looks at the state directory and says in the log what is there.
    pub(super) fn of(state: &StateFiles) -> News {
        let found = state.after_panics(Clock::System.now());
        if let Some((_, word)) = &found {
            tracing::error!("{word}");
        }
        News(found)
    }

    /// What is to be said of it now.
    pub(super) fn word(&self) -> Option<String> {
        let fresh = |at: Time| Clock::System.now().since(at) < NEWS;
        let found = self.0.as_ref().filter(|(at, _)| fresh(*at));
        found.map(|(_, word)| word.clone())
    }
}

/// A panic in one line.
fn said(panic: &PanicHookInfo<'_>) -> ForeignText {
    let place = panic
        .location()
        .map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
    ForeignText::new(format!("panicked at {place}: {}", text(panic.payload())))
}

fn text(payload: &(dyn Any + Send)) -> &str {
    let owned = payload.downcast_ref::<String>().map(String::as_str);
    owned
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("no text")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::process::ExitStatusExt as _;
    use std::path::PathBuf;
    use std::process::Command;
    use std::sync::Arc;

    use super::*;
    use crate::controller::panicked_view::decide_on;
    use crate::model::cluster::Cluster;
    use crate::model::policy::Policy;
    use crate::model::snapshot::{Lease, Snapshot, VERSION};

    /// What is decided on.
    fn view() -> Snapshot {
        Snapshot {
            version: VERSION,
            taken: Time(1_795_000_000_000),
            cluster_id: Some("uid/default".into()),
            sources: BTreeMap::new(),
            cluster: Cluster::default(),
            regions: BTreeMap::new(),
            machines: BTreeMap::new(),
            leader: true,
            lease: Lease::default(),
            cluster_id_error: None,
            paused: Some("lunch".to_owned()),
            awake: None,
            former: BTreeMap::new(),
            on_wire: BTreeMap::new(),
            nominations_refused: false,
        }
    }

    /// Names the state directory to the child.
    const DIRECTORY: &str = "PVE_AUTOSCALER_TEST_PANIC";

    /// The other half of the test below, in a process of its own. Alone it does nothing.
    #[tokio::test]
    async fn child() {
        let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else {
            return;
        };
        let state = StateFiles::open(&directory).expect("it opens");
        end_on_panic(Some(state));
        // A task whose end nobody waits for: tokio alone would catch it and go on.
        tokio::spawn(async {
            decide_on::<()>(&Arc::new(view()), || panic!("a\0b\nWATCHDOG=1"));
        });
        tokio::time::sleep(std::time::Duration::from_mins(1)).await;
    }

    #[test]
    fn a_panic_in_any_task_ends_the_process_and_is_recorded() {
        let directory = tempfile::tempdir().expect("a directory");
        let output = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "cli::crash::tests::child", "--nocapture"])
            .env(DIRECTORY, directory.path())
            .env_remove("JOURNAL_STREAM")
            .output()
            .expect("it runs");
        assert_eq!(
            output.status.signal(),
            Some(nix::libc::SIGABRT),
            "{output:?}"
        );
        let told = String::from_utf8_lossy(&output.stderr);
        let line = told
            .lines()
            .find(|line| line.starts_with("pve-autoscaler: panicked at src/cli/crash.rs:"));
        assert!(
            line.is_some_and(|line| line.contains(r"a\u{0}b WATCHDOG=1; this is a fault")),
            "{told}"
        );
        let state = StateFiles::open(directory.path()).expect("it opens");
        let word = state
            .after_panics(Clock::System.now())
            .expect("there was one");
        assert!(word.1.contains(r"a\u{0}b WATCHDOG=1"), "{word:?}");
        // The view that was decided on is what `plan --snapshot` reads.
        let kept = directory.path().join("panicked-view.json");
        let kept = crate::cli::plan::read_for(&kept, &Policy::default()).expect("a view");
        assert_eq!(kept, view());
    }
}

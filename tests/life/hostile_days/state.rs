//! What happens on the daemon's host: its state is spoilt or lost, its clock is wrong, another daemon is there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pve_autoscaler::model::time::Span;
use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use serde_json::{Value, json};

use super::STORM;
use super::remedy::Remedy;
use super::stage::{Stage, entries};

/// The daemon's Lease.
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/pve-autoscaler";
/// Starts of the second installation are counted from here.
const SECOND: u64 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Act {
    /// `memory.json` is cut off, garbage, empty, of another version or gone.
    SpoilMemory,
    /// A machine's file in the journal is cut off, garbage, empty or gone.
    SpoilEntry,
    /// The whole state directory is gone.
    LoseState,
    /// A backup of the state directory is put back.
    OldState,
    /// The host's clock is set ahead.
    ClockAhead,
    /// The host's clock is set back.
    ClockBack,
    /// A second installation with a state directory of its own.
    SecondInstallation,
    /// Somebody else takes the Lease, and lets it run out.
    LeaseTaken,
    /// `kubectl delete lease`.
    LeaseDeleted,
}

pub(super) const ALL: [Act; 9] = [
    Act::SpoilMemory,
    Act::SpoilEntry,
    Act::LoseState,
    Act::OldState,
    Act::ClockAhead,
    Act::ClockBack,
    Act::SecondInstallation,
    Act::LeaseTaken,
    Act::LeaseDeleted,
];

/// Does it, and says what undoes it; `None` when there is nobody whom it can happen to.
pub(super) async fn perform(act: Act, stage: &Stage<'_>, rng: &mut StdRng) -> Option<Remedy> {
    let state = stage.scene.state();
    match act {
        Act::SpoilMemory => {
            let path = state.join("memory.json");
            if !path.exists() {
                return None;
            }
            stage.while_stopped(|| spoil(stage, &path, rng)).await;
            Some(Remedy::Nothing)
        }
        Act::SpoilEntry => {
            let names: Vec<String> = entries(state).into_keys().collect();
            let path = state.join("journal").join(names.choose(rng)?);
            let spoilt = || {
                stage.forget(state);
                // The daemon may have removed it in its last second.
                if path.exists() {
                    spoil(stage, &path, rng);
                }
            };
            stage.while_stopped(spoilt).await;
            Some(Remedy::Nothing)
        }
        Act::LoseState => {
            let lost = || {
                stage.forget(state);
                empty(state);
                stage.note("the state is lost");
            };
            stage.while_stopped(lost).await;
            Some(Remedy::Nothing)
        }
        Act::OldState => {
            let files = copy_of(state);
            (!entries(state).is_empty()).then_some(Remedy::State(files))
        }
        Act::ClockAhead | Act::ClockBack => {
            let by = Span::seconds(rng.random_range(10..7_200));
            let by = if act == Act::ClockAhead {
                by
            } else {
                Span(-by.0)
            };
            stage.scene.world.host_clock.set_ahead(by);
            Some(Remedy::Clock(Span(-by.0)))
        }
        Act::SecondInstallation => Some(second(stage, rng).await),
        Act::LeaseTaken => {
            let now = stage.scene.world.clock.now().to_string();
            let lease = json!({"spec": {
                "holderIdentity": "somebody else", "acquireTime": now, "renewTime": now,
                "leaseDurationSeconds": rng.random_range(20..240),
            }});
            let request =
                http::Request::patch(LEASE).header("content-type", "application/merge-patch+json");
            let answer = crate::patch(stage.scene, request, lease.to_string()).await;
            (answer["kind"] == "Lease").then_some(Remedy::Nothing)
        }
        Act::LeaseDeleted => {
            let delete = http::Request::delete(LEASE);
            let answer: Value = crate::call(stage.scene, delete, "{}".to_owned()).await;
            (answer["status"] == "Success").then_some(Remedy::Nothing)
        }
    }
}

/// A daemon with a state directory of its own, for some minutes of the storm.
async fn second(stage: &Stage<'_>, rng: &mut StdRng) -> Remedy {
    let time = Duration::from_secs(rng.random_range(120..900));
    let ends = (tokio::time::Instant::now() + time).min(stage.began + STORM);
    for start in SECOND.. {
        let daemon = stage
            .scene
            .world
            .daemon(stage.elsewhere.path(), None, start);
        stage.note("the second installation begins");
        match tokio::time::timeout_at(ends, daemon).await {
            Ok(Err(error)) => stage.note(format!("the second installation ended: {error}")),
            Err(_) => break,
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    stage.forget(stage.elsewhere.path());
    Remedy::Nothing
}

/// Spoils a file in one of the ways in which files are spoilt.
fn spoil(stage: &Stage<'_>, path: &Path, rng: &mut StdRng) {
    let text = std::fs::read(path).expect("it is readable");
    let spoilt = match rng.random_range(0..5) {
        0 => Some(text[..text.len() / 2].to_vec()),
        1 => Some(vec![0; text.len()]),
        2 => Some(Vec::new()),
        3 => Some(br#"{"version":999}"#.to_vec()),
        _ => None,
    };
    let shown = path.file_name().map(|name| name.to_string_lossy());
    stage.note(format!(
        "{shown:?} is spoilt: {:?}",
        spoilt.as_ref().map(Vec::len)
    ));
    match spoilt {
        Some(text) => std::fs::write(path, text).expect("written"),
        None => std::fs::remove_file(path).expect("removed"),
    }
}

/// The journal's files that no daemon can read.
pub(super) fn unreadable(state: &Path) -> Vec<PathBuf> {
    let Ok(files) = std::fs::read_dir(state.join("journal")) else {
        return Vec::new();
    };
    let known = entries(state);
    let mut unknown: Vec<PathBuf> = files
        .flatten()
        .filter(|file| !known.contains_key(&*file.file_name().to_string_lossy()))
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .collect();
    unknown.sort();
    unknown
}

fn empty(state: &Path) {
    std::fs::remove_dir_all(state).expect("removed");
    std::fs::create_dir(state).expect("made");
}

/// The files of a state directory, by their paths in it.
fn copy_of(state: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut copy = BTreeMap::new();
    for folder in ["", "journal"] {
        let Ok(files) = std::fs::read_dir(state.join(folder)) else {
            continue;
        };
        for file in files.flatten() {
            // A file that is just being replaced is not in the copy.
            if let Ok(text) = std::fs::read(file.path()) {
                let name = Path::new(folder).join(file.file_name());
                copy.insert(name.to_string_lossy().into_owned(), text);
            }
        }
    }
    copy
}

/// Puts an old copy in the place of the state directory.
pub(super) async fn put_back(stage: &Stage<'_>, files: BTreeMap<String, Vec<u8>>) {
    let state = stage.scene.state();
    let back = || {
        stage.forget(state);
        empty(state);
        for (name, text) in files {
            let path = state.join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        // It may name what was never made, and what another has made in its place.
        stage.forget(state);
    };
    stage.while_stopped(back).await;
}

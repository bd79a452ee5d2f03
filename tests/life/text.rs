//! Words of others: what a guest prints, and what an earlier daemon kept of it, steers nobody and kills nothing.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pve_autoscaler::controller::status::DaemonStatus;
use pve_autoscaler::model::foreign::steers;
use pve_autoscaler::model::memory::{Backoff, Memory, VERSION};
use pve_autoscaler::model::time::{Span, Time};
use pve_autoscaler::sim::guests::{GuestFault, GuestSpec};
use pve_autoscaler::sim::workload::{Workload, WorkloadPods};
use serde_json::Value;

use super::common::{Scene, simulate};
use super::{HASTY, call, events};

/// Every text in a document, keys included.
fn texts(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => found.push(text.clone()),
        Value::Array(list) => list.iter().for_each(|item| texts(item, found)),
        Value::Object(map) => {
            for (key, item) in map {
                found.push(key.clone());
                texts(item, found);
            }
        }
        _ => {}
    }
}

/// No text of the document steers whoever shows it.
fn expect_clean(what: &str, document: &Value) {
    let mut found = Vec::new();
    texts(document, &mut found);
    for text in found {
        assert!(!text.chars().any(steers), "{what}: {text:?}");
    }
}

/// What all that shows a failure tells of it.
async fn told(scene: &Scene) -> Vec<String> {
    let turn = scene.world.turns.borrow().clone().expect("a turn");
    let status = DaemonStatus::of(&turn);
    expect_clean("status", &serde_json::to_value(&status).expect("JSON"));
    assert!(!status.line().chars().any(steers), "{:?}", status.line());
    let mut told = vec![status.line()];
    texts(&serde_json::to_value(&status).expect("JSON"), &mut told);
    for event in events(scene).await {
        assert!(!event.chars().any(steers), "{event:?}");
        told.push(event);
    }
    let path = "/api/v1/namespaces/kube-system/configmaps/pve-autoscaler-status";
    let map = call(scene, http::Request::get(path), String::new()).await;
    let text = map["data"]["status"].as_str().expect("a text").to_owned();
    assert!(!text.chars().any(|c| c != '\n' && steers(c)), "{text:?}");
    told.push(text);
    for file in files(scene.state()) {
        let document = serde_json::from_str(&file).expect("JSON");
        expect_clean("a state file", &document);
        texts(&document, &mut told);
    }
    told
}

fn files(directory: &std::path::Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("it is there") {
        let path = entry.expect("read").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            found.push(std::fs::read_to_string(path).expect("read"));
        }
    }
    found
}

/// Gathers the secrets of the bootstrap tokens that the cluster is given, for ever.
async fn gather_secrets(scene: &Scene, found: &RefCell<BTreeSet<String>>) {
    let path = "/api/v1/namespaces/kube-system/secrets";
    loop {
        let list = call(scene, http::Request::get(path), String::new()).await;
        for secret in list["items"].as_array().into_iter().flatten() {
            let data = secret["data"]["token-secret"].as_str();
            let decoded = data.and_then(|data| STANDARD.decode(data).ok());
            found
                .borrow_mut()
                .extend(decoded.and_then(|bytes| String::from_utf8(bytes).ok()));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[test]
fn what_a_guest_prints_steers_nobody_and_holds_no_token() {
    simulate(async {
        let guests = GuestSpec {
            fates: BTreeMap::from([(0, GuestFault::JoinRaves)]),
            ..GuestSpec::default()
        };
        let scene = Scene::new(5, HASTY, guests);
        let stays = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(5));
        let mut failed = false;
        let secrets = RefCell::new(BTreeSet::<String>::new());
        let looks = async {
            let mut turns = scene.world.turns.subscribe();
            while turns.changed().await.is_ok() {
                let turn = turns.borrow_and_update().clone().expect("a turn");
                let status = DaemonStatus::of(&turn);
                expect_clean("status", &serde_json::to_value(&status).expect("JSON"));
                assert!(!status.line().chars().any(steers), "{:?}", status.line());
                failed |= status
                    .machines
                    .values()
                    .any(|machine| machine.failure.is_some());
                if failed && turn.decision.memory.backoff.values().next().is_some() {
                    let told = told(&scene).await;
                    let said = |part: &str| told.iter().filter(|text| text.contains(part)).count();
                    // In the memory, in the status, in its line and in an Event; and as it was printed.
                    assert!(said("\u{201c}quoted\u{201d}") >= 3, "{told:#?}");
                    assert!(said(r"\u{202e}txt.exe") >= 3, "{told:#?}");
                    let secrets = secrets.borrow();
                    for secret in secrets.iter() {
                        let half = &secret[..secret.len() / 2];
                        assert_eq!(said(half), 0, "{half} is in {told:#?}");
                    }
                    return secrets.len();
                }
            }
            0
        };
        let seen = tokio::select! {
            biased;
            seen = looks => seen,
            () = gather_secrets(&scene, &secrets) => 0,
            () = scene.live(None, 0, stays.clone(), Duration::from_mins(6)) => 0,
        };
        assert!(failed, "no join failed");
        assert!(seen > 0, "no token was ever made");
    });
}

/// A daemon of an earlier version kept what a guest printed as it came: the next one must live with the file.
#[test]
fn a_poisoned_memory_is_taken_up_and_cleaned() {
    simulate(async {
        let scene = Scene::new(5, HASTY, GuestSpec::default());
        let poison = r"x\u0000\u001b[2J\nWATCHDOG=1\n\u009b\u202e";
        let now = scene.world.clock.now();
        let memory = Memory {
            version: VERSION,
            began: Some(Time(now.0 - 60_000)),
            backoff: BTreeMap::from([(
                Arc::from("general"),
                Backoff {
                    advice: None,
                    until: now + Span::minutes(2),
                    length: Span::minutes(2),
                    failed: now,
                    message: "POISON".into(),
                },
            )]),
            ..Memory::default()
        };
        let file = serde_json::to_string(&memory).expect("written");
        let path = scene.state().join("memory.json");
        std::fs::write(&path, file.replace("POISON", poison)).expect("written");
        let visit = || Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(4));
        scene.live(None, 0, visit(), Duration::from_secs(90)).await;
        let told = told(&scene).await;
        let seen = |text: &&String| text.contains(r"x\u{0}\u{1b}[2J WATCHDOG=1 \u{9b}\u{202e}");
        // The back-off holds, says so in the status line, and the file is clean by now.
        assert!(told.iter().filter(seen).count() >= 3, "{told:#?}");
        scene.live(None, 1, visit(), Duration::from_mins(12)).await;
        scene.nothing_is_left();
        assert!(scene.machines_made() >= 1, "the back-off never ended");
    });
}

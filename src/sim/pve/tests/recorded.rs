//! Answers of PVE's own code to sequences of requests, held against the simulator's: status, reason,
//! what is wrong with which parameter, and how tasks ended. Recorded with pve-manager 9.2.11 and
//! qemu-server 9.2.6 as `docs/operations.md` tells; what hung on QEMU, guest or machine is left out.

use std::time::Duration;

use http::Method;
use serde_json::Value;

use super::super::PveSpec;
use super::{Bench, send};

/// The world before the first request, and the requests with PVE's answers.
const RECORDED: &str = include_str!("recorded.json");
/// The same of CPUs, NUMA nodes, huge pages, devices, cards, disks, the firewall, resource pools, changes of a running VM and moves to
/// another host: several sequences, each from the world's beginning. What has `as` in it was asked with that API token.
const HARDWARE: &str = include_str!("recorded_hardware.json");
/// The same of options that nobody plans with (`[template.NAME.options]`), of CD drives, and of disks of firmware and TPM: of a VM that is
/// off, at its start, while it runs, of one that is made with them and of clones; as root@pam and with three API tokens.
const OPTIONS: &str = include_str!("recorded_options.json");
/// What PVE 8.4 (pve-manager 8.4.21, qemu-server 8.4.10) answered otherwise when it was asked the sequences of [`OPTIONS`] that it names: for
/// the number of the sequence and of the request the answer. To all others of these it answered the same.
const OPTIONS_ON_8: &str = include_str!("recorded_options_on_8.json");

#[tokio::test(start_paused = true)]
async fn the_simulator_answers_as_pve_did() {
    let recorded: Value = serde_json::from_str(RECORDED).expect("JSON");
    let steps = recorded["steps"].as_array().expect("steps");
    assert!(steps.len() > 100, "{} requests", steps.len());
    play(&recorded["world"], steps).await;
}

#[tokio::test(start_paused = true)]
async fn the_simulator_answers_of_hardware_as_pve_did() {
    let asked = play_all(HARDWARE).await;
    assert!(asked > 280, "{asked} requests");
}

#[tokio::test(start_paused = true)]
async fn the_simulator_answers_of_options_as_pve_did() {
    let asked = play_all(OPTIONS).await;
    assert!(asked > 900, "{asked} requests");
}

/// It finds a simulated PVE 8 that takes what 8 does not know, and one that refuses more than 8 does.
#[tokio::test(start_paused = true)]
async fn the_simulator_answers_of_options_as_pve_8_did() {
    let mut recorded: Value = serde_json::from_str(OPTIONS).expect("JSON");
    let on_8: Value = serde_json::from_str(OPTIONS_ON_8).expect("JSON");
    recorded["world"]["version"] = on_8["version"].clone();
    let number = |value: &Value| usize::try_from(value.as_u64().expect("a number")).expect("small");
    for other in on_8["otherwise"].as_array().expect("a list") {
        let step = &mut recorded["runs"][number(&other["run"])][number(&other["step"])];
        for key in ["status", "reason", "errors", "exit"] {
            match other.get(key) {
                Some(value) => step[key] = value.clone(),
                None => drop(step.as_object_mut().expect("a step").remove(key)),
            }
        }
    }
    let mut asked = 0;
    for run in on_8["runs"].as_array().expect("a list") {
        let steps = recorded["runs"][number(run)].as_array().expect("steps");
        play(&recorded["world"], steps).await;
        asked += steps.len();
    }
    assert!(asked > 200, "{asked} requests");
}

/// Plays several sequences, each from the world's beginning; how many requests they were.
async fn play_all(text: &str) -> usize {
    let recorded: Value = serde_json::from_str(text).expect("JSON");
    let runs = recorded["runs"].as_array().expect("runs");
    let mut asked = 0;
    for run in runs {
        let steps = run.as_array().expect("steps");
        play(&recorded["world"], steps).await;
        asked += steps.len();
    }
    asked
}

/// Asks the simulator the same from the same beginning.
async fn play(world: &Value, steps: &[Value]) {
    let spec: PveSpec = serde_json::from_value(world.clone()).expect("a world");
    let bench = Bench::made(spec, 7, Duration::from_secs(1), Duration::from_secs(1));
    let mut last = String::new();
    for step in steps {
        let text = |key: &str| step[key].as_str().unwrap_or_default();
        let method: Method = text("method").parse().expect("a method");
        let path = text("path").replace("{upid}", &last);
        let by = match text("as") {
            "" => bench.root.clone(),
            token => bench.pve.router_as(token),
        };
        let answer = send(&by, method, &path, text("form"), &[]).await;
        assert_eq!(u64::from(answer.status), step["status"], "{step}");
        if answer.status != 200 {
            assert_eq!(answer.reason, text("reason"), "{step}");
        }
        assert_eq!(answer.body.get("errors"), step.get("errors"), "{step}");
        if !step["exit"].is_null() {
            last = answer.upid();
            assert_eq!(bench.end(&last).await, step["exit"], "{step}");
        }
        if let Some(fields) = step["fields"].as_object() {
            for (key, kind) in fields {
                assert_eq!(kind_of(&answer.body["data"][key]), kind, "{key}: {step}");
            }
        }
        tokio::time::sleep(Duration::from_secs(step["pause"].as_u64().unwrap_or(0))).await;
    }
}

/// The JSON type: PVE writes the same number now as a number, now as text.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "flag",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

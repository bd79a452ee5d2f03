//! Answers of PVE's own code to a sequence of requests, held against the simulator's: status, reason,
//! what is wrong with which parameter, and how tasks ended. Recorded with pve-manager 9.2.11 and
//! qemu-server 9.2.6 as `docs/operations.md` tells; what hung on QEMU, guest or machine is left out.

use std::time::Duration;

use http::Method;
use serde_json::Value;

use super::super::PveSpec;
use super::Bench;

/// The world before the first request, and the requests with PVE's answers.
const RECORDED: &str = include_str!("recorded.json");

#[tokio::test(start_paused = true)]
async fn the_simulator_answers_as_pve_did() {
    let recorded: Value = serde_json::from_str(RECORDED).expect("JSON");
    let spec: PveSpec = serde_json::from_value(recorded["world"].clone()).expect("a world");
    let bench = Bench::made(spec, 7, Duration::from_secs(1), Duration::from_secs(1));
    let steps = recorded["steps"].as_array().expect("steps");
    assert!(steps.len() > 100, "{} requests", steps.len());
    let mut last = String::new();
    for step in steps {
        let text = |key: &str| step[key].as_str().unwrap_or_default();
        let method: Method = text("method").parse().expect("a method");
        let path = text("path").replace("{upid}", &last);
        let answer = bench.call(method, &path, text("form")).await;
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

//! The guest agent, and that a seed replays.

use std::time::Duration;

use http::Method;
use serde_json::json;
use tokio::time::Instant;

use super::super::{AdminAct, PveSpec, TEMPLATE};
use super::Bench;
use super::power::VM;

#[tokio::test(start_paused = true)]
async fn the_agent_and_its_oddities() {
    let bench = Bench::cloned().await;
    let ping = || bench.call(Method::POST, "/nodes/pve1/qemu/5001/agent/ping", "");
    ping().await.refused(500, "VM 5001 is not running");
    assert_eq!(bench.power("start", "").await, "OK");
    let began = Instant::now();
    ping().await.refused(500, "QEMU guest agent is not running");
    assert!(began.elapsed() >= Duration::from_secs(3));
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(ping().await.data(), &json!({ "result": {} }));
    let name = bench.get("/nodes/pve1/qemu/5001/agent/get-host-name").await;
    assert_eq!(name.data(), &json!({ "result": { "host-name": "web" } }));
    let exec =
        |form: &'static str| bench.call(Method::POST, "/nodes/pve1/qemu/5001/agent/exec", form);
    let began = Instant::now();
    let nope = exec("command=%2Fnope").await;
    nope.refused(596, "Broken pipe");
    assert!(nope.body.is_null());
    assert!(began.elapsed() >= Duration::from_secs(5));
    let wide = exec("command=%2Fbin%2Fcat&input-data=%E2%80%A6").await;
    assert!(wide.body["message"].to_string().contains("Wide character"));
    let pid = exec("command=%2Fbin%2Ftrue").await.data()["pid"]
        .as_i64()
        .expect("a pid");
    assert_eq!(bench.power("reboot", "").await, "OK");
    tokio::time::sleep(Duration::from_secs(20)).await;
    let forgotten = bench
        .call(
            Method::GET,
            "/nodes/pve1/qemu/5001/agent/exec-status",
            &format!("pid={pid}"),
        )
        .await;
    forgotten.refused(500, "Agent error: PID ld does not exist");
    let big = format!("command=cat&input-data={}", "x".repeat(65_537));
    let big = bench
        .call(Method::POST, "/nodes/pve1/qemu/5001/agent/exec", &big)
        .await;
    assert_eq!(
        big.body["errors"]["input-data"],
        json!("value may only be 65536 characters long")
    );
    bench
        .call(Method::POST, "/nodes/pve1/qemu/100/agent/ping", "")
        .await
        .refused(500, "No QEMU guest agent configured");
    let off = AdminAct::Configure {
        vmid: 5001,
        key: "agent".to_owned(),
        value: Some("0".to_owned()),
    };
    bench.pve.administer(&off).expect("configured");
    let began = Instant::now();
    ping().await.refused(500, "QEMU guest agent is not running");
    assert!(began.elapsed() < Duration::from_secs(1));
}

/// One life of a cluster under a fixed sequence of calls, with all that it answered.
async fn history(seed: u64) -> String {
    let bench = Bench::seeded(PveSpec::default(), seed);
    let path = format!("/nodes/pve1/qemu/{TEMPLATE}/clone");
    let mut said = Vec::new();
    let mut upids = Vec::new();
    for vmid in 5001..5005 {
        let answer = bench
            .call(Method::POST, &path, &format!("newid={vmid}"))
            .await;
        upids.push(answer.upid());
        said.push(format!("{answer:?}"));
    }
    for upid in upids {
        said.push(bench.end(&upid).await);
    }
    bench
        .call(Method::POST, &format!("{VM}/status/start"), "")
        .await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    said.push(format!("{:?}", bench.get("/cluster/resources").await));
    said.push(serde_json::to_string(&bench.pve.dump(1_000)).expect("a dump"));
    said.join("\n")
}

#[tokio::test(start_paused = true)]
async fn a_seed_replays_to_the_byte() {
    let one = history(1).await;
    assert_eq!(one, history(1).await);
    assert_ne!(one, history(2).await);
}

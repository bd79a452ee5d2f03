//! A hostile client on the socket: nonsense, too much of it, answers that nobody reads.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;

use super::rig::{PEER, rig};
use super::wire::{Broker, Host, say};
use crate::broker::allow::RawRequest;
use crate::broker::peer::PeerProcess;

#[tokio::test]
async fn what_is_no_http_or_too_much_of_it_does_no_harm() {
    let host = Host::new().await;
    let broker = host.broker();
    let talk = async |bytes: Vec<u8>| {
        let mut stream = UnixStream::connect(&broker.socket)
            .await
            .expect("connected");
        let _ = stream.write_all(&bytes).await;
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    };
    let line = "GET /api2/json/version HTTP/1.1\r\nHost: x\r\n";
    for bytes in [
        b"\x16\x03\x01\x02\x00".to_vec(),
        b"nonsense\r\n\r\n".to_vec(),
        format!("{line}{}\r\n", "a: b\r\n".repeat(100)).into_bytes(),
        format!("{line}a: {}\r\n\r\n", "x".repeat(64 * 1024)).into_bytes(),
    ] {
        let answer = talk(bytes).await;
        assert!(!answer.contains(" 200 "), "{answer}");
    }
    let start = "POST /api2/json/nodes/pve1/qemu/9001/status/start HTTP/1.1\r\nHost: x\r\n";
    let large = format!(
        "{start}Content-Length: 600000\r\n\r\n{}",
        "x".repeat(600_000)
    );
    assert!(talk(large.into_bytes()).await.contains("refused-by-broker"));
    let smuggled =
        format!("{start}Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    talk(smuggled.into_bytes()).await;
    assert!(host.seen("POST").len() <= 1);
    // It still serves.
    broker.client.version().await.expect("version");
}

/// A connection on which this was sent and nothing is read.
async fn silent(broker: &Broker, text: &str) -> UnixStream {
    let mut stream = UnixStream::connect(&broker.socket)
        .await
        .expect("connected");
    stream.write_all(text.as_bytes()).await.expect("sent");
    stream
}

async fn answer(mut stream: UnixStream) -> String {
    let mut answer = vec![0; 4096];
    let read = stream.read(&mut answer).await.unwrap_or(0);
    String::from_utf8_lossy(&answer[..read]).into_owned()
}

#[tokio::test]
async fn answers_that_nobody_reads_stop_who_asks_for_them() {
    let host = Host::new().await;
    let large =
        json!([{"type": "node", "node": "pve1", "status": "online", "x": "x".repeat(12 << 20)}]);
    let resources = "GET /api2/json/cluster/resources ";
    host.on(resources, &[say(&large)]);
    let broker = host.broker();
    broker.client.version().await.expect("version");
    let request = format!("{resources}HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut streams = Vec::new();
    for _ in 0..6 {
        streams.push(silent(&broker, &request).await);
    }
    // Fewer than root has places for, with the one that the client keeps. The last is told to come
    // again, when it has waited: nothing was sent for it.
    let last = answer(streams.pop().expect("one")).await;
    assert!(last.contains("not-sent"), "{last}");
    let fetched = host.seen(resources).len();
    assert!((1..=3).contains(&fetched), "{fetched} answers of 12 MiB");
    // Small answers have room, and large ones again when the others were read or given up.
    broker.client.version().await.expect("version");
    drop(streams);
    let mut tries = 0;
    while broker.client.resources().await.is_err() {
        tries += 1;
        assert!(tries < 100, "the bytes never came back");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn more_connections_than_there_are_places_are_told_so() {
    let host = Host::new().await;
    let broker = host.broker();
    let idle = "GET /api2/json/version HTTP/1.1\r\n";
    let mut first = silent(&broker, idle).await;
    let mut streams = Vec::new();
    for _ in 0..40 {
        streams.push(silent(&broker, "").await);
    }
    let told = answer(streams.pop().expect("one")).await;
    assert!(told.starts_with("HTTP/1.1 503 "), "{told}");
    assert!(
        told.contains("x-pve-autoscaler-outcome: not-sent"),
        "{told}"
    );
    assert!(told.contains("too many connections"), "{told}");
    // Who has a place keeps it.
    first.write_all(b"Host: x\r\n\r\n").await.expect("sent");
    assert!(answer(first).await.contains(" 200 "));
    drop(streams);
    let mut tries = 0;
    while broker.client.version().await.is_err() {
        tries += 1;
        assert!(tries < 100, "the places never came back");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_few_calls_are_at_pve_at_a_time_and_roots_come_through() {
    let rig = Arc::new(rig());
    let hang = Arc::new(Semaphore::new(0));
    *rig.world.hang.lock().expect("held") = Some(Arc::clone(&hang));
    let ask = |uid: u32| {
        let rig = Arc::clone(&rig);
        tokio::spawn(async move {
            let raw = RawRequest {
                method: "GET",
                path: "/api2/json/version",
                query: None,
                content_type: None,
                body: b"",
            };
            let reply = rig.service.answer(PeerProcess { uid, ..PEER }, raw).await;
            (
                reply.outcome,
                String::from_utf8_lossy(&reply.body).into_owned(),
            )
        })
    };
    let calls: Vec<_> = (0..40).map(|_| ask(990)).collect();
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    let sent = || rig.world.sent.lock().expect("held").len();
    assert_eq!(sent(), 8);
    let root = ask(0);
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert_eq!(sent(), 9, "root does not queue behind the daemon");
    // Those that wait are given back in time, those beyond the queue at once.
    tokio::time::sleep(Duration::from_secs(6)).await;
    hang.add_permits(100);
    assert_eq!(root.await.expect("ended").0, "done");
    let mut ends = Vec::new();
    for call in calls {
        ends.push(call.await.expect("ended"));
    }
    let of = |words: &str| {
        ends.iter()
            .filter(|(outcome, body)| *outcome == words || body.contains(words))
            .count()
    };
    assert_eq!((of("done"), of("not-sent")), (8, 32));
    assert_eq!(
        (of("for 5 s"), of("16 calls wait already")),
        (16, 16),
        "{ends:?}"
    );
    assert_eq!(sent(), 9, "what was given back was never sent");
    assert_eq!(ask(990).await.expect("ended").0, "done");
}

//! The page from outside: what is served, to whom, and when it is computed.

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::*;
use crate::model::host_choice::{HostChoice, HostStanding};
use crate::model::hosts::HostStrategy;
use crate::model::reasons::{FilterFailure, Refused};

/// What a browser gets at an address of this host.
async fn page(server: &Server, path: &str) -> String {
    ask(server, path, "Host: localhost\r\nConnection: close\r\n").await
}

async fn ask(server: &Server, path: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(server.address).await.expect("connects");
    let request = format!("GET {path} HTTP/1.1\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.expect("writes");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("reads");
    text
}

/// What JSON an answer has.
fn body(answer: &str) -> Value {
    let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

/// A stream of events, read event by event.
struct Events(BufReader<TcpStream>);

impl Events {
    async fn open(server: &Server) -> Events {
        let mut stream = TcpStream::connect(server.address).await.expect("connects");
        let request = "GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
        stream.write_all(request.as_bytes()).await.expect("writes");
        Events(BufReader::new(stream))
    }

    /// Lines up to one that begins so; what follows there.
    async fn until(&mut self, begin: &str) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).await.ok()? == 0 {
                return None;
            }
            if let Some(rest) = line.strip_prefix(begin) {
                return Some(rest.trim().to_owned());
            }
        }
    }

    async fn view(&mut self) -> Value {
        let data = self.until("data: ").await.expect("an event");
        serde_json::from_str(&data).expect("JSON")
    }
}

/// Every file that a file of the page names is served, and nothing names another server.
#[tokio::test]
async fn the_page_is_whole_and_asks_nobody_else() {
    let server = start().await;
    let mut wanted = vec!["/".to_owned()];
    let mut seen = 0;
    while let Some(path) = wanted.get(seen).cloned() {
        seen += 1;
        let answer = page(&server, &path).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        for header in [
            "content-security-policy: default-src 'none'; script-src 'self'; ",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cache-control: no-cache",
        ] {
            assert!(answer.contains(header), "{path} lacks {header}: {answer}");
        }
        let text = answer.replace("http://www.w3.org/2000/svg", "");
        assert!(
            !text.contains("http://") && !text.contains("https://"),
            "{path} names a server"
        );
        for (before, after) in [("src=\"", '"'), ("href=\"/page", '"'), ("from \"./", '"')] {
            for part in text.split(before).skip(1) {
                let name = part.split(after).next().unwrap_or_default();
                let named = match before {
                    "src=\"" => name.to_owned(),
                    _ => format!("/page/{}", name.trim_start_matches('/')),
                };
                if !wanted.contains(&named) {
                    wanted.push(named);
                }
            }
        }
    }
    let served: std::collections::BTreeSet<&str> = assets::paths().collect();
    let named: std::collections::BTreeSet<&str> = wanted.iter().map(String::as_str).collect();
    assert_eq!(served, named);
}

/// Inline scripts and styles are what the policy forbids: the page would look broken, silently.
#[test]
fn nothing_is_inline() {
    let text = include_str!("../page/index.html");
    for word in ["style=", "<style", "onclick", "<script>", "javascript:"] {
        assert!(!text.contains(word), "{word}");
    }
    for (name, text) in [
        ("now.js", include_str!("../page/now.js")),
        ("stores.js", include_str!("../page/stores.js")),
        ("why.js", include_str!("../page/why.js")),
        ("main.js", include_str!("../page/main.js")),
        ("table.js", include_str!("../page/table.js")),
        ("dom.js", include_str!("../page/dom.js")),
        ("live.js", include_str!("../page/live.js")),
        ("demo.js", include_str!("../page/demo.js")),
        ("theme.js", include_str!("../page/theme.js")),
        ("login.js", include_str!("../page/login.js")),
        ("acts.js", include_str!("../page/acts.js")),
        ("when.js", include_str!("../page/when.js")),
        ("chart.js", include_str!("../page/chart.js")),
        ("legend.js", include_str!("../page/legend.js")),
    ] {
        for word in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
        ] {
            assert!(!text.contains(word), "{name} has {word}");
        }
    }
}

#[tokio::test]
async fn a_browser_that_has_a_file_is_not_sent_it_again() {
    let server = start().await;
    let first = page(&server, "/page/main.js").await;
    let tag = first.lines().find_map(|line| line.strip_prefix("etag: "));
    let tag = tag.expect("a tag");
    let headers = format!("Host: localhost\r\nIf-None-Match: {tag}\r\nConnection: close\r\n");
    let again = ask(&server, "/page/main.js", &headers).await;
    assert!(again.starts_with("HTTP/1.1 304"), "{again}");
}

/// A stranger's name that leads here, another site's page: neither reads what is served. Scrapers do, by any name.
#[tokio::test]
async fn strangers_names_and_pages_get_nothing_but_metrics() {
    let server = start().await;
    for path in [
        "/",
        "/api/events",
        "/api/find?q=",
        "/api/explain/pod/default/b",
        "/page/main.js",
    ] {
        let answer = ask(
            &server,
            path,
            "Host: rebind.example:9808\r\nConnection: close\r\n",
        )
        .await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{path}: {answer}");
        assert!(!answer.contains("small-a"), "{answer}");
        let cross = "Host: localhost\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: cors\r\nConnection: close\r\n";
        let answer = ask(&server, path, cross).await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{path}: {answer}");
    }
    let answer = ask(
        &server,
        "/metrics",
        "Host: pve1.example:9808\r\nConnection: close\r\n",
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn the_stream_tells_what_status_and_plan_tell() {
    let server = start().await;
    let mut events = Events::open(&server).await;
    let view = events.view().await;
    let turn = turn();
    let status = serde_json::to_value(DaemonStatus::of(&turn)).expect("plain data");
    assert_eq!(view["status"], status);
    assert_eq!(view["pending"]["total"], 1);
    assert_eq!(view["pending"]["pods"][0]["pod"], "default/b");
    assert_eq!(
        view["pending"]["sentences"][0],
        json!(["waits for machine small-b", ""])
    );
    let nodes: Vec<&str> = view["nodes"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|node| node["name"].as_str())
        .collect();
    assert_eq!(nodes, ["cp", "small-a"]);
    assert_eq!(view["nodes"][1]["asked_cpu_milli"], 500);
    assert_eq!(view["nodes"][1]["machine"], "small-a");
}

#[tokio::test]
async fn a_host_names_its_guests_and_whose_they_are() {
    let server = start().await;
    let mut turn = turn();
    let mut snapshot = serde_json::to_value(&*turn.snapshot).expect("plain data");
    let vms = &mut snapshot["regions"]["default"]["vms"];
    vms["9000"]["host"] = "pve1".into();
    vms["100"] = json!({"host": "pve1", "name": "router", "running": true, "memory": 1024});
    turn.snapshot = Arc::new(serde_json::from_value(snapshot).expect("a snapshot"));
    server.turns.send_replace(Some(Arc::new(turn)));
    let view = Events::open(&server).await.view().await;
    let guests = &view["hosts"]["default"]["pve1"]["guests"];
    assert_eq!(guests[0]["name"], "router", "{view}");
    assert_eq!(guests[0]["machine"], Value::Null);
    assert_eq!(guests[1]["machine"], "small-a");
}

/// How a machine differs from the file, its CPUs, and the NUMA nodes that these are of.
#[tokio::test]
async fn a_machine_that_drifted_and_has_cpus_of_its_own_is_told_with_both() {
    let server = start().await;
    let mut turn = turn();
    let cores: Vec<String> = (0..12).map(|core| format!("\"{core}\"")).collect();
    let file = format!(
        "version = 1\n[proxmox]\nvmids = \"9000-9010\"\n[proxmox.topology.pve1]\n\
         numa = [\"0-3\", \"4-7\", \"8-11\"]\ncores = [{}]\n",
        cores.join(", ")
    );
    turn.settings = Arc::new(crate::config::parse(&file, "t.toml").expect("settings"));
    let mut snapshot = serde_json::to_value(&*turn.snapshot).expect("plain data");
    let machine = &mut snapshot["machines"]["small-a"];
    machine["host"] = "pve1".into();
    machine["mark"]["cpus"] = "2-5".into();
    machine["vm"]["drifted"] = json!(["labels", "cloud_init"]);
    turn.snapshot = Arc::new(serde_json::from_value(snapshot).expect("a snapshot"));
    server.turns.send_replace(Some(Arc::new(turn)));
    let view = Events::open(&server).await.view().await;
    let machine = &view["status"]["machines"]["small-a"];
    assert_eq!(
        machine["drifted"],
        json!(["labels", "cloud_init"]),
        "{view}"
    );
    assert_eq!(machine["cpus"], "2-5");
    assert_eq!(view["numa"], json!({"small-a": [0, 1]}));
}

/// Why a machine came to its host, in the view and in its explanation: of one on its way up that was planned by exactly that decision.
#[tokio::test]
async fn a_machine_on_its_way_up_says_why_it_came_to_its_host() {
    let server = start().await;
    let mut turn = turn();
    let choice = HostChoice {
        host: "pve1".into(),
        strategy: HostStrategy::Pack,
        standing: HostStanding::default(),
        other: None,
    };
    let mut decision = (*turn.decision).clone();
    let chosen = &mut decision.report.chosen_hosts;
    chosen.insert("small-b".into(), choice);
    turn.decision = Arc::new(decision);
    turn.made.decided(&turn);
    server.turns.send_replace(Some(Arc::new(turn)));
    let view = Events::open(&server).await.view().await;
    let made = &view["made"];
    assert_eq!(made.as_object().map(serde_json::Map::len), Some(1));
    let made = &made["small-b"];
    assert_eq!(made["choice"]["host"], "pve1");
    assert_eq!(
        made["why"],
        "pack: no guest, 0 of memory free; no other host of its region can take it"
    );
    let told = body(&page(&server, "/api/explain/node/small-b").await);
    assert_eq!(&told["story"]["machine"]["made"], made);
    let told = body(&page(&server, "/api/explain/node/small-a").await);
    assert_eq!(told["story"]["machine"]["made"], Value::Null);
}

/// Two who look share one view; when both are gone nothing of it is kept; a turn that nobody sees costs nothing.
#[tokio::test]
async fn one_view_for_all_and_none_for_nobody() {
    let server = start().await;
    assert!(server.viewers.keep_nothing());
    let mut one = Events::open(&server).await;
    let first = one.view().await;
    let mut other = Events::open(&server).await;
    let same = other.view().await;
    // Made at different times they would tell different clocks.
    assert_eq!(first["now"], same["now"]);
    assert!(!server.viewers.keep_nothing());
    let mut next = turn();
    next.number += 1;
    server.turns.send_replace(Some(Arc::new(next)));
    let (later, too) = (one.view().await, other.view().await);
    assert_eq!(
        later["status"]["turns"].as_u64(),
        first["status"]["turns"].as_u64().map(|turns| turns + 1)
    );
    assert_eq!(later["now"], too["now"]);
    drop((one, other));
    for _ in 0..200 {
        if server.viewers.keep_nothing() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(
        server.viewers.keep_nothing(),
        "the view outlives its viewers"
    );
    server.turns.send_replace(Some(Arc::new(turn())));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(server.viewers.keep_nothing(), "a view was made for nobody");
}

#[tokio::test]
async fn viewers_have_a_limit_and_leave_room_for_scrapers() {
    let server = start().await;
    let mut all = Vec::new();
    for _ in 0..live::MAX_VIEWERS {
        let mut events = Events::open(&server).await;
        events.view().await;
        all.push(events);
    }
    let one_more = page(&server, "/api/events").await;
    assert!(
        one_more.starts_with("HTTP/1.1 503") && one_more.contains("12 pages are open"),
        "{one_more}"
    );
    let metrics = get(server.address, "/metrics").await;
    assert!(metrics.starts_with("HTTP/1.1 200"), "{metrics}");
    all.pop();
    for _ in 0..200 {
        let mut events = Events::open(&server).await;
        if events.until("data: ").await.is_some() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("a place that was given up is not given again");
}

/// The clock is paused: a beat comes, the stream ends by itself before its connection is too old, and the server's end
/// does not wait for those who look.
#[tokio::test(start_paused = true)]
async fn a_stream_beats_ends_and_holds_nothing_up() {
    let server = start().await;
    let mut events = Events::open(&server).await;
    assert_eq!(events.until("event: ").await.as_deref(), Some("view"));
    assert_eq!(events.until("event: ").await.as_deref(), Some("beat"));
    let began = tokio::time::Instant::now();
    while events.until("event: ").await.is_some() {}
    let lived = began.elapsed();
    assert!(lived < Duration::from_mins(5), "{lived:?}");
    let mut events = Events::open(&server).await;
    events.view().await;
    let stopped = tokio::time::Instant::now();
    server.stop.send(()).expect("it runs");
    server.task.await.expect("it ends");
    assert!(
        stopped.elapsed() < Duration::from_secs(1),
        "{:?}",
        stopped.elapsed()
    );
    assert!(events.until("event: ").await.is_none());
}

/// For those who press Tab.
#[test]
fn names_are_told_by_how_they_begin() {
    use crate::controller::answers::TurnQuestion;
    use crate::controller::control::{ControlAnswer, NameKind};
    let names =
        |kind, prefix: &str| match TurnQuestion::Names(kind, prefix.to_owned()).answer(&turn()) {
            ControlAnswer::Ok(names) => names,
            ControlAnswer::Error(why) => panic!("{why}"),
        };
    assert_eq!(names(NameKind::Pods, "default/b"), json!(["default/b"]));
    assert_eq!(names(NameKind::Pods, "b"), json!([]));
    assert_eq!(names(NameKind::Nodes, "small-a"), json!(["small-a"]));
    assert_eq!(names(NameKind::Machines, "small-a"), json!(["small-a"]));
    let hosts = names(NameKind::Hosts, "");
    assert!(
        hosts
            .as_array()
            .is_some_and(|hosts| hosts.contains(&json!("pve1"))),
        "{hosts}"
    );
}

/// A name like others that there are, and a view that may not have it.
#[test]
fn what_is_not_seen_is_told_with_names_like_it_and_with_what_is_not_read() {
    use crate::controller::answers::TurnQuestion;
    use crate::controller::control::ControlAnswer;
    use crate::model::cluster::ObjectKey;
    let said = |turn: &Turn, question: &TurnQuestion| match question.answer(turn) {
        ControlAnswer::Ok(found) => panic!("{found}"),
        ControlAnswer::Error(why) => why,
    };
    let (pod, node) = (
        TurnQuestion::Pod(ObjectKey::new("shop", "web")),
        TurnQuestion::Node("small-x".to_owned()),
    );
    let mut turn = turn();
    assert_eq!(
        said(&turn, &pod),
        "no pod shop/web is seen; ended pods are not kept in view"
    );
    assert_eq!(
        said(&turn, &node),
        "no node or machine small-x is seen; names like it: small-a, small-b"
    );
    let mut snapshot = (*turn.snapshot).clone();
    let refused = |complete| SourceState {
        complete,
        as_of: NOW,
        error: Some("connection refused".into()),
        cause: None,
    };
    snapshot.sources = BTreeMap::from([
        (Arc::from("kube/pods"), refused(false)),
        (Arc::from("kube/nodes"), refused(true)),
    ]);
    turn.snapshot = Arc::new(snapshot);
    assert_eq!(
        said(&turn, &pod),
        "no pod shop/web is seen; it may be there all the same: kube/pods was not yet read completely: connection refused"
    );
    assert_eq!(
        said(&turn, &node),
        format!(
            "no node or machine small-x is seen; names like it: small-a, small-b; it may be there all the same: kube/nodes was last read at {NOW}: connection refused"
        )
    );
}

/// What the page answers of one thing are the words of `explain` and `plan`, by the same code.
#[tokio::test]
async fn one_thing_is_explained_as_explain_does_it() {
    use crate::controller::answers::TurnQuestion;
    use crate::controller::control::ControlAnswer;
    let server = start().await;
    let told = body(&page(&server, "/api/explain/pod/default/b").await);
    let ControlAnswer::Ok(story) = TurnQuestion::Pod(waiting()).answer(&turn()) else {
        panic!("the pod is there");
    };
    assert_eq!(told["story"], story);
    assert_eq!(told["sentence"][0], "waits for machine small-b");
    let told = body(&page(&server, "/api/explain/node/small-a").await);
    assert_eq!(told["story"]["machine"]["vmid"], 9000);
    assert_eq!(told["sentence"][0], "NotUnderutilized");
    let gone = page(&server, "/api/explain/node/%3Cscript%3E").await;
    assert!(gone.starts_with("HTTP/1.1 404"), "{gone}");
    assert_eq!(
        body(&gone)["error"],
        "no node or machine <script> is seen; there are cp, small-a, small-b"
    );
    assert!(gone.contains("content-type: application/json"), "{gone}");
    let pods = body(&page(&server, "/api/pods/small-a").await);
    assert_eq!(pods["pods"][0]["pod"], "default/a");
    let found = body(&page(&server, "/api/find?q=small").await);
    assert_eq!(found["nodes"], json!(["small-a"]));
    assert_eq!(found["machines"], json!(["small-b"]));
    let found = body(&page(&server, "/api/find?q=default/b").await);
    assert_eq!(found["pods"], json!(["default/b"]));
}

/// Posts JSON as the page does.
async fn suppose(server: &Server, headers: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(server.address).await.expect("connects");
    let length = body.len();
    let request = format!(
        "POST /api/what-if HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.expect("writes");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("reads");
    text
}

#[tokio::test]
async fn what_cannot_be_supposed_is_told_in_words() {
    let server = start().await;
    let typed = "Content-Type: application/json\r\n";
    let large = json!({"manifests": "x".repeat(100_000)}).to_string();
    for (headers, asked, status, wanted) in [
        (typed, "{}", "422", "Nothing is supposed"),
        (
            typed,
            "{\"manifests\": \"kind: Service\"}",
            "422",
            "Nothing is supposed. No pod comes of: Service.",
        ),
        (
            typed,
            "{\"manifests\": \"a: [\"}",
            "422",
            "The manifests are no YAML",
        ),
        (
            typed,
            "{\"changes\": [{\"key\": \"pool.a.max\", \"value\": \"x\"}]}",
            "422",
            "x is no value",
        ),
        (typed, "{\"other\": 1}", "400", "unknown field"),
        (typed, large.as_str(), "422", "at most 65536 are read"),
        ("", "{}", "400", "Content-Type"),
    ] {
        let answer = suppose(&server, headers, asked).await;
        let begin = format!("HTTP/1.1 {status}");
        let why = body(&answer)["error"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert!(
            answer.starts_with(&begin) && why.contains(wanted),
            "{asked:.40}: {answer}"
        );
    }
    let cross = format!("{typed}Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n");
    let answer = suppose(&server, &cross, "{}").await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    let huge = json!({"manifests": "x".repeat(200_000)}).to_string();
    let answer = suppose(&server, typed, &huge).await;
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 4"),
        "{answer}"
    );
}

/// The view of this test has no sources that were read: the plan holds, and says so.
#[tokio::test]
async fn a_pod_that_is_supposed_is_judged_and_nothing_changes() {
    let server = start().await;
    let pod = "kind: Pod\nmetadata: {name: new}\nspec: {containers: [{name: c, image: x}]}";
    let asked = json!({ "manifests": pod }).to_string();
    let answer = suppose(&server, "Content-Type: application/json\r\n", &asked).await;
    let outcome = &body(&answer)["outcome"];
    assert_eq!(outcome["pods"][0]["name"], "default/new", "{answer}");
    let found = body(&page(&server, "/api/find?q=new").await);
    assert_eq!(found["pods"], json!([]));
}

#[tokio::test]
async fn before_the_first_turn_it_says_so() {
    let server = start().await;
    server.turns.send_replace(None);
    let view = Events::open(&server).await.view().await;
    assert_eq!(view["status"]["at"], Value::Null);
    assert!(
        view["line"]
            .as_str()
            .is_some_and(|line| line.contains("not configured")),
        "{view}"
    );
    let told = page(&server, "/api/explain/node/small-a").await;
    assert!(told.starts_with("HTTP/1.1 503"), "{told}");
}

/// 500 nodes and 5,000 pods of which 1,000 wait: what one view costs, once a turn and for all who look.
#[tokio::test]
async fn a_view_of_a_large_cluster_is_small_and_soon_made() {
    let mut large = turn();
    let (mut snapshot, mut decision) = ((*large.snapshot).clone(), (*large.decision).clone());
    let (pod, node) = {
        let cluster = &snapshot.cluster;
        (
            cluster.pods[&waiting()].clone(),
            cluster.nodes["small-a"].clone(),
        )
    };
    for number in 0..500 {
        let name: Arc<str> = format!("node-{number:03}").into();
        snapshot.cluster.nodes.insert(name.clone(), node.clone());
        decision
            .report
            .nodes
            .insert(name, NodeVerdict::NotAutoscaled);
    }
    let filter_failure = Box::new(FilterFailure::Insufficient {
        resource: "cpu".into(),
        asked: 64_000,
        free: 2_000,
        new_node: true,
    });
    let lacks = Refused::FilterFailure { filter_failure };
    let why = Arc::new(BTreeMap::from([(Arc::from("small/s"), lacks.into())]));
    for number in 0..5_000 {
        let key = ObjectKey::new("default", format!("pod-{number:04}"));
        let place = (number % 5 > 0).then(|| format!("node-{:03}", number % 500).into());
        if place.is_none() {
            let verdict = PodVerdict::NoCompatiblePool { why: why.clone() };
            decision.report.pods.insert(key.clone(), verdict);
        }
        let pod = Pod {
            node: place,
            ..pod.clone()
        };
        snapshot.cluster.pods.insert(key, pod);
    }
    (large.snapshot, large.decision) = (Arc::new(snapshot), Arc::new(decision));
    let server = start().await;
    server.turns.send_replace(Some(Arc::new(large)));
    let began = Clock::System.now();
    let mut events = Events::open(&server).await;
    let data = events.until("data: ").await.expect("an event");
    let took = Clock::System.now().since(began);
    let view: Value = serde_json::from_str(&data).expect("JSON");
    assert_eq!(view["nodes"].as_array().map(Vec::len), Some(502));
    assert_eq!(view["nodes"][2]["pods"], 10, "{}", view["nodes"][2]);
    assert_eq!(view["pending"]["total"], 1_001);
    // Pods of one reason share its words.
    assert_eq!(
        view["pending"]["sentences"].as_array().map(Vec::len),
        Some(2)
    );
    assert!(data.len() < 400_000, "{} bytes", data.len());
    assert!(took < Span::seconds(5), "{took}");
}

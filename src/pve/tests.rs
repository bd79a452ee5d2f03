//! The client against routers and recorders in this process.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::response::IntoResponse as _;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::StatusCode;
use serde_json::{Value, json};

use crate::model::region::GuestKind;

use super::transport::memory::RouterTransport;
use super::*;

const UPID: &str = "UPID:pve1:0003A1B2:00C3D4E5:66F0A1B2:qmclone:9000:root@pam:";

/// Answers every call from a function and keeps what was asked.
struct Recorder<F> {
    asked: Arc<Mutex<Vec<PveRequest>>>,
    answer: F,
}

impl<F> std::fmt::Debug for Recorder<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recorder")
    }
}

impl<F> Transport for Recorder<F>
where
    F: Fn(&PveRequest) -> Result<Value, CallError> + Send + Sync,
{
    fn call(&self, request: PveRequest) -> BoxFuture<'_, Result<Value, CallError>> {
        let answer = (self.answer)(&request);
        self.asked.lock().expect("not poisoned").push(request);
        async move { answer }.boxed()
    }
}

type Asked = Arc<Mutex<Vec<PveRequest>>>;

fn recorded<F>(answer: F) -> (Client, Asked)
where
    F: Fn(&PveRequest) -> Result<Value, CallError> + Send + Sync + 'static,
{
    let asked = Asked::default();
    let recorder = Recorder {
        asked: Arc::clone(&asked),
        answer,
    };
    (Client::new(Arc::new(recorder)), asked)
}

/// Calls about what of a VM stands elsewhere than in its configuration.
async fn place(client: &Client) {
    client.move_to_pool(9001, "k8s").await.expect("move");
    client.security_groups().await.expect("groups");
    let on = client.has_datacenter_firewall_on().await;
    assert!(!on.expect("options"));
    client.firewall_rules("pve1", 9001).await.expect("rules");
    let on = client.has_firewall_on("pve1", 9000).await;
    assert!(!on.expect("options"));
    let on = client.switch_firewall_on("pve1", 9001).await;
    on.expect("the switch");
    let added = client.add_security_group("pve1", 9001, "web", 0).await;
    added.expect("a rule more");
    let rule = FirewallRule {
        digest: Some("abc".into()),
        ..FirewallRule::default()
    };
    let removed = client.remove_firewall_rule("pve1", 9001, &rule).await;
    removed.expect("a rule less");
}

/// Calls about images of CDs.
async fn mappings(client: &Client) {
    client.pci_mappings().await.expect("of PCI devices");
    let left = client.mediated_left("pve1", "vgpu").await;
    left.expect("mediated devices");
    let marked = client.mediated_mappings().await;
    marked.expect("marked mappings");
    client.usb_mappings().await.expect("of USB devices");
    client.dir_mappings().await.expect("of directories");
}

async fn images(client: &Client) {
    client.isos("pve1", "local").await.expect("isos");
    let name = super::iso_name(&super::IsoOwner::of("u/home", "default"), 9001, b"an image");
    let sent = client.upload_iso("pve1", "local", &name, b"an image").await;
    sent.expect("upload");
    let removed = client
        .remove_iso("pve1", &format!("local:iso/{name}"))
        .await;
    removed.expect("removal");
}

/// A VM that is made of settings, with the notes of a clone.
fn settings_of(clone: &CloneVm) -> Vec<(String, String)> {
    let all = [
        ("vmid", "9050"),
        ("name", clone.name.as_str()),
        ("description", clone.description.as_str()),
        ("ostype", "l26"),
        ("agent", "1"),
        ("machine", "q35"),
        ("scsihw", "virtio-scsi-single"),
        ("scsi0", "ceph:20,discard=on,iothread=1"),
        ("net0", "virtio,bridge=vmbr0"),
        ("boot", "order=scsi0;net0"),
        ("serial0", "socket"),
        ("smbios1", "base64=1,serial=eA,uuid=0"),
    ];
    let all = all.into_iter();
    all.map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// Calls that make a VM.
async fn make(client: &Client, clone: &CloneVm) {
    client.clone_vm("pve1", 9000, clone).await.expect("clone");
    let made = client.create_vm("pve1", settings_of(clone)).await;
    made.expect("create");
    for content in ["iso", "import"] {
        let files = client.files("pve1", "local", content).await;
        files.expect("files");
    }
}

/// Calls that PVE answers with a task.
const TASKS: [&str; 7] = [
    "clone",
    "create_vm",
    "destroy",
    "resize",
    "shutdown",
    "start",
    "stop",
];

/// Makes every call once and gives what went out.
pub(crate) async fn all_calls() -> Vec<PveRequest> {
    let (client, asked) = recorded(|request| {
        Ok(match request.call {
            "agent_exec" => json!({"pid": 7}),
            call if TASKS.contains(&call) => json!(UPID),
            "cluster_status" => json!([{"type": "node", "name": "pve1"}]),
            "resources" => json!([{"type": "node", "node": "pve1", "status": "online"}]),
            "vm_config" => json!({"digest": "abc"}),
            "vm_status" => json!({"status": "stopped"}),
            "active_tasks" | "dir_mappings" | "firewall_rules" | "mediated_left"
            | "mediated_mappings" | "pci_mappings" | "security_groups" | "usb_mappings" => {
                json!([])
            }
            "cluster_firewall" | "firewall_options" | "guest_promise" => json!({}),
            _ => Value::Null,
        })
    });
    let upid: Upid = UPID.parse().expect("a UPID");
    let clone = CloneVm {
        newid: 9001,
        name: "small-k3x9p".into(),
        description: crate::model::mark::Mark {
            cluster: "0b5f3a6e/home".into(),
            machine: "small-k3x9p".into(),
            vmid: 9001,
            pool: "small".into(),
            instance_type: "s2".into(),
            template: "debian-13".into(),
            token: "abc123".into(),
            created: crate::model::time::Time(1_795_000_000_000),
            addresses: std::collections::BTreeMap::new(),
            cpus: crate::model::cpus::CpuSet::new(),
            unknown: [].into(),
        }
        .describe("text"),
        pool: Some("k8s".into()),
        target: Some("pve2".into()),
        full: Some(Some("ceph".into())),
    };
    let update = ConfigUpdate {
        set: [("cores".to_owned(), "2".to_owned())].into(),
        delete: vec!["sockets".into()],
        digest: Some("abc".into()),
    };
    client.version().await.expect("version");
    client.cluster_status().await.expect("status");
    client.resources().await.expect("resources");
    client.node_status("pve1").await.expect("node");
    client.host_time("pve1").await.expect("time");
    client.host_load("pve1").await.expect("load");
    client.bridges("pve1").await.expect("bridges");
    client.vnet_zones().await.expect("zones");
    client.pools().await.expect("pools");
    mappings(&client).await;
    client.permissions("/vms/9000").await.expect("privileges");
    client.disks("pve1", "local-lvm").await.expect("disks");
    client.kept_space("pve1", "local").await.expect("space");
    client.storage_backings().await.expect("backings");
    images(&client).await;
    client.vm_config("pve1", 9001).await.expect("config");
    for kind in [GuestKind::Qemu, GuestKind::Lxc] {
        let promise = client.guest_promise("pve1", kind, 300).await;
        promise.expect("promise");
    }
    client.vm_status("pve1", 9001).await.expect("status");
    make(&client, &clone).await;
    client
        .update_config("pve1", 9001, &update)
        .await
        .expect("update");
    place(&client).await;
    client
        .resize("pve1", 9001, "scsi0", 1025)
        .await
        .expect("resize");
    client.start("pve1", 9001).await.expect("start");
    client
        .shutdown("pve1", 9001, Duration::from_mins(1))
        .await
        .expect("shutdown");
    client.stop("pve1", 9001, true).await.expect("stop");
    client.destroy("pve1", 9001).await.expect("destroy");
    client.task_status(&upid).await.expect("task");
    client.task_log(&upid, 10).await.expect("log");
    client.active_tasks("pve1", 9000).await.expect("tasks");
    ask_agent(&client).await;
    asked.lock().expect("not poisoned").clone()
}

/// Makes the calls of the guest agent.
async fn ask_agent(client: &Client) {
    client.agent_ping("pve1", 9001).await.expect("ping");
    client
        .agent_exec("pve1", 9001, &["/bin/sh", "-c", "true"], "hush")
        .await
        .expect("exec");
    let refused = client
        .agent_exec("pve1", 9001, &["/bin/sh"], "é")
        .await
        .expect_err("not sent");
    assert_eq!(refused.outcome, CallEffect::NotSent);
    client
        .agent_exec_status("pve1", 9001, 7)
        .await
        .expect("exec status");
}

#[tokio::test]
async fn what_is_sent_stands_in_pves_schema() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/pve/api-schema.json");
    let Ok(text) = std::fs::read_to_string(file) else {
        println!("skipped: the API schema is not beside this repository");
        return;
    };
    let mut schema: Vec<Value> = serde_json::from_str(&text).expect("the schema is JSON");
    // The schema leaves containers, device mappings, the removal of firewall rules and the datacenter's firewall out.
    for more in [
        include_str!("../sim/pve/tests/containers.json"),
        include_str!("../sim/pve/tests/mappings.json"),
        include_str!("../sim/pve/tests/firewall.json"),
        include_str!("../sim/pve/tests/load.json"),
        include_str!("../sim/pve/tests/sdn.json"),
    ] {
        schema.extend(serde_json::from_str::<Vec<Value>>(more).expect("JSON"));
    }
    for request in all_calls().await {
        let mut segments: Vec<&str> = request.path.split('/').collect();
        if request.call == "remove_iso" {
            // PVE takes what stands behind `content` as one name, with its slash.
            segments.pop();
        }
        let known = schema.iter().find(|entry| {
            let path = entry["path"].as_str().expect("a path");
            let pattern: Vec<&str> = path.split('/').collect();
            entry["method"] == request.method.to_string()
                && pattern.len() == segments.len()
                && pattern
                    .iter()
                    .zip(&segments)
                    .all(|(want, have)| want.starts_with('{') || want == have)
        });
        let entry = known.unwrap_or_else(|| panic!("{request:?} is no call of PVE"));
        let allowed: BTreeSet<&str> = entry["parameters"]["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, _)| key.as_str())
            .collect();
        // The file itself comes in the form's part `filename`.
        for (key, _) in request.params.iter().filter(|(key, _)| key != "file") {
            // What a VM has several of stands there once.
            let stem = key.trim_end_matches(|last: char| last.is_ascii_digit());
            let named = allowed.contains(key.as_str()) || allowed.contains(&*format!("{stem}[n]"));
            assert!(named, "{request:?}: {key}");
        }
    }
}

#[tokio::test]
async fn the_wire_form_of_calls_is_pves() {
    let calls = all_calls().await;
    let target = |call: &str| {
        calls
            .iter()
            .find(|request| request.call == call)
            .map(|request| (request.target(), request.body()))
            .expect("the call was made")
    };
    assert_eq!(
        target("task_status").0,
        "/api2/json/nodes/pve1/tasks/UPID%3Apve1%3A0003A1B2%3A00C3D4E5%3A66F0A1B2%3Aqmclone%3A9000%3Aroot%40pam%3A/status"
    );
    assert_eq!(
        target("vm_config").0,
        "/api2/json/nodes/pve1/qemu/9001/config?current=1",
        "what is in force"
    );
    assert_eq!(
        target("agent_exec").1.expect("a body"),
        "command=%2Fbin%2Fsh&command=-c&command=true&input-data=hush"
    );
    assert_eq!(
        target("resize").1.expect("a body"),
        "disk=scsi0&size=2K",
        "rounded up"
    );
    assert_eq!(
        target("destroy"),
        ("/api2/json/nodes/pve1/qemu/9001?purge=1".to_owned(), None)
    );
    assert_eq!(
        target("update_config").1.expect("a body"),
        "cores=2&delete=sockets&digest=abc"
    );
}

#[tokio::test]
async fn no_parameter_value_is_shown_by_debug() {
    for request in all_calls().await {
        let shown = format!("{request:?}");
        for (_, value) in request
            .params
            .iter()
            .filter(|(_, value)| value.len() > 3 && value != "9000" && value != "active")
        {
            assert!(!shown.contains(value.as_str()), "{shown}");
        }
    }
}

#[tokio::test]
async fn a_host_that_is_none_is_never_sent() {
    let (client, asked) = recorded(|_| Ok(Value::Null));
    for host in ["", "..", "a/b", "a%2fb", "a b", "pve1?x", &"x".repeat(64)] {
        let error = client.vm_config(host, 100).await.expect_err("refused");
        assert_eq!(error.outcome, CallEffect::NotSent, "{host}");
    }
    assert!(asked.lock().expect("not poisoned").is_empty());
}

#[tokio::test]
async fn resources_are_sorted_out_however_perl_spells_them() {
    let (client, _) = recorded(|_| {
        Ok(json!([
            {"type": "node", "node": "pve1", "status": "online", "maxcpu": 8, "maxmem": "1000", "mem": 10},
            {"type": "node", "node": "pve2", "status": "offline"},
            {"type": "qemu", "node": "pve1", "vmid": "101", "name": "a", "status": "running",
             "template": "0", "tags": "b;a", "maxcpu": 2, "maxmem": 5, "lock": "backup", "pool": "p"},
            {"type": "qemu", "node": "pve1", "vmid": 102, "status": "unknown"},
            {"type": "lxc", "node": "pve1", "vmid": 103, "status": "stopped"},
            {"type": "lxc", "node": "pve1", "vmid": 104, "status": "running", "maxcpu": 0.5, "maxmem": 5},
            {"type": "lxc", "node": "pve1", "vmid": 105, "status": "running", "maxcpu": "2.25", "maxmem": 5},
            {"type": "storage", "node": "pve1", "storage": "ceph", "shared": 1,
             "status": "available", "maxdisk": 10, "disk": 4, "content": "images,rootdir"},
            {"type": "sdn", "node": "pve1", "sdn": "z"}
        ]))
    });
    let resources = client.resources().await.expect("resources");
    assert!(resources.hosts["pve1"].online && !resources.hosts["pve2"].online);
    assert_eq!(resources.hosts["pve1"].memory, 1000);
    assert_eq!(resources.guests.len(), 5);
    // A part of a CPU counts as one.
    let cpus = [101, 103, 104, 105].map(|vmid| resources.guests[&vmid].cpus);
    assert_eq!(cpus, [2, 0, 1, 3]);
    let vm = &resources.guests[&101];
    assert!(vm.running() && !vm.template);
    assert_eq!((vm.tags.len(), vm.lock.as_deref()), (2, Some("backup")));
    assert_eq!(&*resources.guests[&102].name, "");
    let storage = crate::model::region::Storage::from(&resources.storages["pve1"]["ceph"]);
    assert_eq!((storage.free, storage.shared), (6, true));
}

#[tokio::test]
async fn quorum_is_read_and_a_single_host_has_it() {
    for (data, quorate) in [
        (
            json!([{"type": "node", "name": "pve1", "online": 1, "local": 1}]),
            true,
        ),
        (
            json!([{"type": "cluster", "name": "c", "quorate": 0}, {"type": "node", "name": "pve1", "online": 1}]),
            false,
        ),
        (
            json!([{"type": "cluster", "name": "c", "quorate": "1"}, {"type": "node", "name": "pve1", "online": 1}]),
            true,
        ),
    ] {
        let (client, _) = recorded(move |_| Ok(data.clone()));
        let status = client.cluster_status().await.expect("status");
        assert_eq!(status.quorate, quorate, "{status:?}");
    }
    for none in [json!([]), Value::Null] {
        let (client, _) = recorded(move |_| Ok(none.clone()));
        let error = client.cluster_status().await.expect_err("no answer");
        assert_eq!(error.outcome, CallEffect::Unknown);
        assert!(error.to_string().contains("cannot be used"), "{error}");
    }
}

#[tokio::test]
async fn an_exec_result_is_there_only_after_the_end() {
    let (client, _) = recorded(|_| Ok(json!({"exited": 0})));
    let status = client.agent_exec_status("pve1", 1000, 5).await;
    assert_eq!(status, Ok(None));
    let (client, _) =
        recorded(|_| Ok(json!({"exited": 1, "exitcode": "3", "out-data": "a", "err-data": "b"})));
    let result = client.agent_exec_status("pve1", 1000, 5).await;
    let result = result.expect("read").expect("ended");
    assert_eq!((result.exit_code, result.stdout.raw()), (Some(3), "a"));
}

#[tokio::test]
async fn an_exec_that_timed_out_in_pve_may_have_run() {
    let text = "VM 9 qga command 'guest-exec' failed - got timeout";
    let (client, _) = recorded(move |_| Err(CallError::new(CallEffect::Refused, text)));
    let error = client.agent_exec("pve1", 900, &["true"], "").await;
    assert_eq!(error.expect_err("failed").outcome, CallEffect::Unknown);
}

#[tokio::test]
async fn a_task_without_an_id_is_an_unknown_outcome() {
    let (client, _) = recorded(|_| Ok(Value::Null));
    let error = client.start("pve1", 900).await.expect_err("no UPID");
    assert_eq!(error.outcome, CallEffect::Unknown);
    assert_eq!(error.call, "POST /nodes/pve1/qemu/900/status/start");
    // A PVE that resizes at once gives none, and that is well.
    assert_eq!(client.resize("pve1", 900, "scsi0", 1024).await, Ok(None));
}

/// Gives `states` one after the other, the last for ever.
fn scripted(states: Vec<Result<Value, CallError>>) -> (Client, Asked) {
    let at = Mutex::new(0);
    recorded(move |_| {
        let mut at = at.lock().expect("not poisoned");
        let state = states[(*at).min(states.len() - 1)].clone();
        *at += 1;
        state
    })
}

fn stopped(text: &str) -> Value {
    json!({"status": "stopped", "exitstatus": text})
}

#[tokio::test(start_paused = true)]
async fn a_task_is_followed_to_its_end() {
    let upid: Upid = UPID.parse().expect("a UPID");
    let running = || Ok(json!({"status": "running"}));
    let broken = || Err(CallError::new(CallEffect::Unknown, "broke"));
    let minute = Duration::from_mins(1);
    for (last, end) in [
        ("OK", TaskEnd::Ok),
        ("WARNINGS: 2", TaskEnd::Warnings("WARNINGS: 2".into())),
        ("WARNINGS: many", TaskEnd::Failed("WARNINGS: many".into())),
        ("no space", TaskEnd::Failed("no space".into())),
    ] {
        let (client, asked) = scripted(vec![running(), broken(), running(), Ok(stopped(last))]);
        let got = client.wait_task(&upid, minute, Poll::default()).await;
        assert_eq!(got, Ok(end));
        assert_eq!(asked.lock().expect("not poisoned").len(), 4);
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_task_has_ends_of_its_own() {
    let upid: Upid = UPID.parse().expect("a UPID");
    let minute = Duration::from_mins(1);
    let (client, asked) = scripted(vec![Ok(json!({"status": "running"}))]);
    let start = tokio::time::Instant::now();
    let got = client.wait_task(&upid, minute, Poll::default()).await;
    assert!(matches!(got, Err(WaitError::Deadline { .. })), "{got:?}");
    assert_eq!(start.elapsed(), minute);
    // 100, 200, 400, 800, 1600 ms, then every 2 s.
    assert!(asked.lock().expect("not poisoned").len() < 40);

    let (client, asked) = scripted(vec![Err(CallError::new(CallEffect::Unknown, "broke"))]);
    let got = client.wait_task(&upid, minute, Poll::default()).await;
    assert!(matches!(got, Err(WaitError::Lost { .. })), "{got:?}");
    assert_eq!(asked.lock().expect("not poisoned").len(), 9);

    let mut gone = CallError::new(CallEffect::Refused, "Parameter verification failed.");
    gone.errors.insert("upid".into(), "no such task".into());
    let (client, asked) = scripted(vec![Err(gone)]);
    let got = client.wait_task(&upid, minute, Poll::default()).await;
    assert!(matches!(got, Err(WaitError::Lost { .. })), "{got:?}");
    assert_eq!(asked.lock().expect("not poisoned").len(), 1);
}

#[tokio::test]
async fn a_log_longer_than_a_page_is_read_to_its_tail() {
    let (client, asked) = recorded(|request| {
        let number = |key: &str| -> usize {
            let found = request.params.iter().find(|(name, _)| name == key);
            found.expect("given").1.parse().expect("a number")
        };
        let (start, limit) = (number("start"), number("limit"));
        let lines: Vec<Value> = (start..1200.min(start + limit))
            .map(|n| json!({"n": n + 1, "t": format!("line {n}")}))
            .collect();
        Ok(json!(lines))
    });
    let upid: Upid = UPID.parse().expect("a UPID");
    let log = client.task_log(&upid, 3).await.expect("a log");
    assert_eq!(log, ["line 1197", "line 1198", "line 1199"]);
    assert_eq!(asked.lock().expect("not poisoned").len(), 3);
}

/// PVE has words in the place of lines that are not there.
#[tokio::test]
async fn a_log_without_a_line_has_none() {
    let upid: Upid = UPID.parse().expect("a UPID");
    let log_of = async |lines: Value| {
        let (client, _) = scripted(vec![Ok(lines)]);
        client.task_log(&upid, 3).await.expect("a log")
    };
    let empty = json!([{"n": 1, "t": "no content"}]);
    assert_eq!(log_of(empty).await, [""; 0]);
    let told = json!([{"n": 1, "t": "no content"}, {"n": 2, "t": "TASK OK"}]);
    assert_eq!(log_of(told).await, ["no content", "TASK OK"]);
}

fn memory(router: Router) -> Client {
    Client::new(Arc::new(RouterTransport::new(router)))
}

#[tokio::test(start_paused = true)]
async fn the_memory_end_classifies_like_the_others() {
    let answer = |status: u16, body: &'static str| {
        memory(Router::new().fallback(move || async move {
            let status = StatusCode::from_u16(status).expect("a status");
            (status, body).into_response()
        }))
    };
    let outcome = async |client: Client| client.start("pve1", 900).await.map_err(|e| e.outcome);
    let upid: Upid = UPID.parse().expect("a UPID");
    let fine = r#"{"data":"UPID:pve1:0003A1B2:00C3D4E5:66F0A1B2:qmclone:9000:root@pam:"}"#;
    assert_eq!(outcome(answer(200, fine)).await, Ok(upid));
    assert_eq!(outcome(answer(500, "{}")).await, Err(CallEffect::Refused));
    assert_eq!(outcome(answer(595, "")).await, Err(CallEffect::NotSent));
    assert_eq!(outcome(answer(596, "")).await, Err(CallEffect::Unknown));
    let silent = memory(Router::new().fallback(std::future::pending::<StatusCode>));
    let start = tokio::time::Instant::now();
    assert_eq!(outcome(silent).await, Err(CallEffect::Unknown));
    assert!(
        start.elapsed() >= Duration::from_secs(30),
        "after pveproxy's own time"
    );
}

#[tokio::test]
async fn what_pve_would_not_take_is_not_sent() {
    let client = memory(Router::new());
    let input = "x".repeat(MAX_STDIN + 1);
    let error = client.agent_exec("pve1", 900, &["cat"], &input).await;
    assert_eq!(error.expect_err("too large").outcome, CallEffect::NotSent);
    let update = ConfigUpdate {
        set: [("description".to_owned(), "x".repeat(600 * 1024))].into(),
        ..ConfigUpdate::default()
    };
    let error = client.update_config("pve1", 900, &update).await;
    assert_eq!(error.expect_err("too large").outcome, CallEffect::NotSent);
}

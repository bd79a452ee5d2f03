//! Nothing touches a VM that is not ours: attacks one by one, and generated ones.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::world::{CLUSTER, HOST, UPID, World, mark, policy};
use crate::broker::allow::Raw;
use crate::broker::peer::Peer;
use crate::broker::service::{Reply, Service};
use crate::clock::Clock;
use crate::model::mark::Mark;
use crate::model::time::{Span, Time};
use crate::pve::{Method, Request, form};

const PEER: Peer = Peer {
    uid: 990,
    gid: 990,
    pid: 7,
};

/// A broker on a world of its own. The directory lives as long as the rest.
struct Set {
    world: Arc<World>,
    service: Service,
    state: tempfile::TempDir,
}

fn set() -> Set {
    let world = Arc::new(World::new());
    let state = tempfile::tempdir().expect("a directory");
    let way = Arc::clone(&world);
    let clock = Clock::starting_at(Time(1_795_000_000_000));
    let service = Service::new(policy(), way, state.path(), clock).expect("a service");
    Set {
        world,
        service,
        state,
    }
}

impl Set {
    async fn send(&self, method: &str, path: &str, params: &[(&str, &str)]) -> Reply {
        let params: Vec<(String, String)> = params
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let text = form(&params);
        let in_query = method == "GET" || method == "DELETE";
        let raw = Raw {
            method,
            path: &format!("/api2/json{path}"),
            query: (in_query && !text.is_empty()).then_some(text.as_str()),
            content_type: (!in_query).then_some("application/x-www-form-urlencoded"),
            body: if in_query { b"" } else { text.as_bytes() },
        };
        self.service.answer(PEER, raw).await
    }

    async fn clone_of(&self, template: u32, newid: u32, mark: &Mark) -> Reply {
        let (id, description) = (newid.to_string(), mark.line());
        let params = [
            ("newid", id.as_str()),
            ("name", mark.machine.as_str()),
            ("description", description.as_str()),
        ];
        let path = format!("/nodes/{HOST}/qemu/{template}/clone");
        self.send("POST", &path, &params).await
    }

    fn refused(&self, reply: &Reply, what: &str) {
        let text = String::from_utf8_lossy(&reply.body);
        assert_eq!(reply.outcome, "refused-by-broker", "{what}: {text}");
        assert_eq!(reply.status, 403, "{what}");
        assert!(self.world.changes().is_empty(), "{what}");
    }

    fn intent(&self, vmid: u32) -> Option<Value> {
        let path = self.state.path().join(format!("intents/{vmid}.json"));
        let bytes = std::fs::read(path).ok()?;
        Some(serde_json::from_slice(&bytes).expect("an intent is JSON"))
    }
}

/// Every listed call on an existing VM that needs its mark.
fn marked_calls(vmid: u32) -> Vec<(&'static str, String, Vec<(&'static str, &'static str)>)> {
    let at = |rest: &str| format!("/nodes/{HOST}/qemu/{vmid}{rest}");
    vec![
        ("PUT", at("/config"), vec![("tags", "a")]),
        (
            "PUT",
            at("/resize"),
            vec![("disk", "scsi0"), ("size", "32G")],
        ),
        ("POST", at("/status/start"), vec![]),
        ("POST", at("/status/shutdown"), vec![("timeout", "60")]),
        ("POST", at("/status/stop"), vec![("overrule-shutdown", "1")]),
        ("DELETE", at(""), vec![("purge", "1")]),
        ("POST", at("/agent/ping"), vec![]),
        (
            "POST",
            at("/agent/exec"),
            vec![("command", "/bin/sh"), ("input-data", "x")],
        ),
        ("GET", at("/agent/exec-status"), vec![("pid", "7")]),
    ]
}

#[tokio::test]
async fn calls_on_our_vm_pass_and_on_any_other_do_not() {
    for (method, path, params) in marked_calls(9001) {
        let set = set();
        let reply = set.send(method, &path, &params).await;
        assert_eq!(reply.outcome, "done", "{method} {path}: {reply:?}");
        let sent = set.world.changes();
        assert_eq!(sent.len(), 1, "{method} {path}");
        assert_eq!(sent[0].path, path);
    }
    for vmid in [
        9002, 9003, 9004, 9005, 9006, 9007, 9008, 9009, 9000, 200, 300, 400,
    ] {
        for (method, path, params) in marked_calls(vmid) {
            let set = set();
            let reply = set.send(method, &path, &params).await;
            set.refused(&reply, &format!("{method} {path}"));
        }
    }
}

#[tokio::test]
async fn reads_pass_whatever_the_vm() {
    for vmid in [9001, 9002, 9000, 300] {
        for path in ["config", "status/current"] {
            let set = set();
            let path = format!("/nodes/{HOST}/qemu/{vmid}/{path}");
            assert_eq!(set.send("GET", &path, &[]).await.outcome, "done", "{path}");
        }
    }
}

#[tokio::test]
async fn a_vm_that_is_gone_is_pves_own_answer() {
    let set = set();
    let path = format!("/nodes/{HOST}/qemu/9050/status/start");
    let reply = set.send("POST", &path, &[]).await;
    assert_eq!((reply.outcome, reply.status), ("refused", 500));
    assert!(String::from_utf8_lossy(&reply.body).contains("does not exist"));
    assert!(set.world.changes().is_empty());
}

#[tokio::test]
async fn a_mark_that_cannot_be_read_now_is_no_mark() {
    for status in [595, 596, 200] {
        let set = set();
        let path = format!("/nodes/{HOST}/qemu/9001/config");
        set.world.answer(&path, status, &Value::Null);
        let path = format!("/nodes/{HOST}/qemu/9001/status/stop");
        let reply = set.send("POST", &path, &[]).await;
        assert_ne!(reply.outcome, "done", "{status}");
        assert!(set.world.changes().is_empty(), "{status}");
    }
}

#[tokio::test]
async fn the_digest_that_was_judged_goes_along() {
    let set = set();
    let path = format!("/nodes/{HOST}/qemu/9001/config");
    set.send("PUT", &path, &[("tags", "a")]).await;
    let sent = set.world.changes();
    assert!(sent[0].params.contains(&("digest".into(), "d1d1".into())));
    let reply = set
        .send("PUT", &path, &[("tags", "a"), ("digest", "d2")])
        .await;
    assert_eq!(reply.outcome, "refused-by-broker");
    assert!(String::from_utf8_lossy(&reply.body).contains("checksum mismatch"));
    assert_eq!(set.world.changes().len(), 1);
}

#[tokio::test]
async fn values_are_judged_against_the_vms_own() {
    let longer = mark(9001).describe("new words above");
    let other = Mark {
        pool: "large".into(),
        ..mark(9001)
    };
    let (other, bare) = (other.line(), mark(9001).line());
    let doubled = format!("{bare}\n{bare}");
    let table: Vec<(&str, &str, bool)> = vec![
        ("name", "small-9001", true),
        ("name", "small-9002", false),
        ("description", &longer, true),
        ("description", &bare, true),
        ("description", &other, false),
        ("description", &doubled, false),
        ("description", "no mark", false),
        ("description", "", false),
        ("cores", "8", true),
        ("cores", "9", false),
        ("cores", "0", false),
        ("cores", "4.0", false),
        ("cores", "04", false),
        ("memory", "16384", true),
        ("memory", "16385", false),
        ("memory", "current=1", false),
        ("balloon", "0", true),
        ("balloon", "1", false),
        ("protection", "1", false),
        ("onboot", "yes", false),
        ("cpu", "host", true),
        ("cpu", "host,flags=+x", false),
        ("ipconfig0", "ip=dhcp", true),
        ("ipconfig0", "ip=192.0.2.1/24", false),
        ("ciuser", "debian", true),
        ("ciuser", "root", false),
        ("nameserver", "192.0.2.53", true),
        ("nameserver", "192.0.2.54", false),
        ("searchdomain", "example.org", true),
        ("searchdomain", "example.com", false),
        ("sshkeys", "ssh-ed25519%20AAAA%2B%2F%3D%20a%20b!", true),
        ("sshkeys", "ssh-ed25519%20AAAA%2B%2F%3D%20a%20b%21%0A", true),
        ("sshkeys", "ssh-ed25519%20BBBB", false),
        ("sshkeys", "ssh-ed25519 AAAA+/= a b!", false),
        ("tags", "a;b-1_x", true),
        ("tags", "a b", false),
        ("tags", "", false),
        ("delete", "sockets,vcpus", true),
        ("delete", "description", false),
        ("delete", "sockets,net0", false),
        (
            "net0",
            "virtio=BC:24:11:00:11:22,bridge=vmbr0,firewall=1,tag=20",
            true,
        ),
        (
            "net0",
            "virtio=BC:24:11:00:11:22,firewall=1,bridge=vmbr1,tag=7",
            true,
        ),
        (
            "net0",
            "virtio=BC:24:11:00:11:22,bridge=vmbr9,firewall=1,tag=7",
            true,
        ),
        (
            "net0",
            "virtio=BC:24:11:00:11:22,bridge=vmbr2,firewall=1,tag=20",
            false,
        ),
        (
            "net0",
            "virtio=BC:24:11:00:11:22,bridge=vmbr0,firewall=1,tag=21",
            false,
        ),
        (
            "net0",
            "virtio=BC:24:11:00:11:22,bridge=vmbr0,firewall=1",
            false,
        ),
        (
            "net0",
            "virtio=BC:24:11:00:11:22,bridge=vmbr0,firewall=0,tag=20",
            false,
        ),
        (
            "net0",
            "virtio=BC:24:11:00:11:22,bridge=vmbr0,tag=20",
            false,
        ),
        (
            "net0",
            "virtio=BC:24:11:00:11:23,bridge=vmbr0,firewall=1,tag=20",
            false,
        ),
        (
            "net0",
            "e1000=BC:24:11:00:11:22,bridge=vmbr0,firewall=1,tag=20",
            false,
        ),
        (
            "net0",
            "virtio=BC:24:11:00:11:22,bridge=vmbr2,bridge=vmbr0,firewall=1,tag=20",
            false,
        ),
        (
            "net0",
            "virtio=BC:24:11:00:11:22,bridge=vmbr0,firewall=1,tag=20,tag=9",
            false,
        ),
        ("digest", "../x", false),
    ];
    for (name, value, passes) in table {
        let set = set();
        let path = format!("/nodes/{HOST}/qemu/9001/config");
        let reply = set.send("PUT", &path, &[(name, value)]).await;
        if passes {
            assert_eq!(reply.outcome, "done", "{name}={value}: {reply:?}");
        } else {
            set.refused(&reply, &format!("{name}={value}"));
        }
    }
}

#[tokio::test]
async fn two_sockets_do_not_double_the_cores() {
    let set = set();
    set.world.set(9001, "sockets", json!("2"));
    let path = format!("/nodes/{HOST}/qemu/9001/config");
    let reply = set.send("PUT", &path, &[("cores", "8")]).await;
    set.refused(&reply, "8 cores on 2 sockets");
    for params in [
        vec![("cores", "4")],
        vec![("cores", "8"), ("delete", "sockets")],
    ] {
        assert_eq!(set.send("PUT", &path, &params).await.outcome, "done");
    }
}

#[tokio::test]
async fn disks_grow_by_size_only_and_only_disks() {
    for (disk, size, passes) in [
        ("scsi0", "64G", true),
        ("scsi0", "8388608K", true),
        ("scsi0", "65G", false),
        ("scsi0", "+1G", false),
        ("scsi0", "1T", false),
        ("scsi0", "0", false),
        ("scsi0", "1.5G", false),
        ("scsi0", "18446744073709551615G", false),
        ("scsi1", "32G", false),
        ("scsi2", "32G", false),
        ("ide2", "32G", false),
        ("efidisk0", "32G", false),
        ("scsi0,scsi1", "32G", false),
        ("net0", "32G", false),
    ] {
        let set = set();
        let path = format!("/nodes/{HOST}/qemu/9001/resize");
        let reply = set
            .send("PUT", &path, &[("disk", disk), ("size", size)])
            .await;
        if passes {
            assert_eq!(reply.outcome, "done", "{disk} {size}: {reply:?}");
        } else {
            set.refused(&reply, &format!("{disk} {size}"));
        }
    }
}

#[tokio::test]
async fn a_clone_needs_our_mark_our_range_and_a_named_template() {
    let set_up = set();
    let reply = set_up.clone_of(9000, 9050, &mark(9050)).await;
    assert_eq!(reply.outcome, "done", "{reply:?}");
    let intent = set_up.intent(9050).expect("an intent");
    assert_eq!(
        (&intent["task"], &intent["host"]),
        (&json!(UPID), &json!(HOST))
    );

    let of_cluster = |cluster: &str| Mark {
        cluster: cluster.into(),
        ..mark(9050)
    };
    for (what, template, newid, mark) in [
        ("a template not named", 200, 9050, mark(9050)),
        ("a VM that is no template", 9001, 9050, mark(9050)),
        ("a foreign VM", 300, 9050, mark(9050)),
        ("outside the range", 9000, 500, mark(500)),
        ("the template's own VMID", 9000, 9000, mark(9000)),
        ("a mark of another VMID", 9000, 9050, mark(9051)),
        ("another cluster", 9000, 9050, of_cluster("0b5f3a6e/other")),
        ("no UID", 9000, 9050, of_cluster("/home")),
        ("a longer name", 9000, 9050, of_cluster("0b5f3a6e/x/home")),
        ("a VMID that exists", 9000, 9002, mark(9002)),
    ] {
        let set = set();
        let reply = set.clone_of(template, newid, &mark).await;
        set.refused(&reply, what);
        assert_eq!(set.intent(newid), None, "{what}");
    }
    // A template by its name, too, but not a VM that only has the name.
    let set = set();
    set.world.put(9060, "");
    set.world.set(9060, "name", json!("debian-13"));
    let reply = set.clone_of(9060, 9050, &mark(9050)).await;
    set.refused(&reply, "a VM with a template's name");
    set.world.set(9060, "template", json!("1"));
    assert_eq!(set.clone_of(9060, 9050, &mark(9050)).await.outcome, "done");
}

#[tokio::test]
async fn a_clones_parameters_are_the_policys() {
    let line = mark(9050).line();
    let base = [
        ("newid", "9050"),
        ("name", "small-9050"),
        ("description", line.as_str()),
    ];
    for (extra, passes) in [
        (("storage", "ceph"), true),
        (("storage", "local"), false),
        (("full", "1"), true),
        (("full", "2"), false),
        (("pool", "k8s"), true),
        (("pool", "other"), false),
        (("target", "pve2"), true),
        (("target", "../pve2"), false),
        (("target", "localhost"), false),
        (("format", "raw"), false),
        (("snapname", "a"), false),
        (("bwlimit", "1"), false),
        (("name", "small-9050"), false),
        (("newid", "9051"), false),
        (("vmid", "300"), false),
        (("node", "pve2"), false),
        (("skiplock", "1"), false),
    ] {
        let set = set();
        let mut params = base.to_vec();
        params.push(extra);
        let reply = set
            .send("POST", &format!("/nodes/{HOST}/qemu/9000/clone"), &params)
            .await;
        if passes {
            assert_eq!(reply.outcome, "done", "{extra:?}: {reply:?}");
        } else {
            set.refused(&reply, &format!("{extra:?}"));
        }
    }
}

#[tokio::test]
async fn the_cluster_learnt_first_is_the_only_one() {
    let set = set();
    assert_eq!(set.clone_of(9000, 9050, &mark(9050)).await.outcome, "done");
    let other = Mark {
        cluster: "ffff/home".into(),
        ..mark(9051)
    };
    let reply = set.clone_of(9000, 9051, &other).await;
    assert_eq!(reply.outcome, "refused-by-broker");
    set.world.put(
        9052,
        &Mark {
            vmid: 9052,
            ..other
        }
        .line(),
    );
    let path = format!("/nodes/{HOST}/qemu/9052/status/stop");
    let reply = set.send("POST", &path, &[]).await;
    assert_eq!(reply.outcome, "refused-by-broker");
    let learnt = std::fs::read_to_string(set.state.path().join("cluster")).expect("learnt");
    assert_eq!(learnt.trim(), CLUSTER);
}

#[tokio::test]
async fn the_intent_of_a_refused_clone_is_forgotten_and_of_an_open_one_kept() {
    let path = format!("/nodes/{HOST}/qemu/9000/clone");
    for (status, kept) in [(500, false), (595, false), (596, true), (200, true)] {
        let set = set();
        set.world.answer(&path, status, &json!({"data": UPID}));
        set.clone_of(9000, 9050, &mark(9050)).await;
        assert_eq!(set.intent(9050).is_some(), kept, "{status}");
        // The same machine again: its intent from before stays, whatever comes back.
        if kept {
            set.world.answer(&path, 500, &json!({"data": null}));
            set.clone_of(9000, 9050, &mark(9050)).await;
            assert!(set.intent(9050).is_some(), "{status}, asked again");
        }
        // Another machine cannot take the VMID over while the first may be under way.
        let other = Mark {
            machine: "small-other".into(),
            ..mark(9050)
        };
        if kept {
            let reply = set.clone_of(9000, 9050, &other).await;
            assert_eq!(reply.outcome, "refused-by-broker");
        }
    }
}

/// A placeholder that an intent of ours names.
async fn with_placeholder(task_known: bool) -> Set {
    let set = set();
    let path = format!("/nodes/{HOST}/qemu/9000/clone");
    if !task_known {
        set.world.answer(&path, 596, &Value::Null);
    }
    set.clone_of(9000, 9050, &mark(9050)).await;
    set.world.put(9050, "");
    set.world.set(9050, "lock", json!("clone"));
    set.world.sent.lock().expect("held").clear();
    set
}

fn tasks(upid: &str) -> Value {
    json!({"data": [{"upid": upid, "status": "RUNNING"}]})
}

const DESTROY: &str = "/nodes/pve1/qemu/9050";

#[tokio::test(start_paused = true)]
async fn a_dead_clone_goes_after_its_quarantine_past_its_lock() {
    for task_known in [true, false] {
        let set = with_placeholder(task_known).await;
        let reply = set.send("DELETE", DESTROY, &[("purge", "1")]).await;
        set.refused(&reply, "in quarantine");
        tokio::time::advance(Span::minutes(10).to_std()).await;
        // The clone still runs.
        set.world.answer("/nodes/pve1/tasks", 200, &tasks(UPID));
        let reply = set.send("DELETE", DESTROY, &[("purge", "1")]).await;
        set.refused(&reply, "under way");
        let failed = json!({"data": {"status": "stopped", "exitstatus": "no space left"}});
        let task = crate::pve::path(&["nodes", HOST, "tasks", UPID, "status"]);
        set.world.answer(&task, 200, &failed);
        // Another clone of the same template hides it only while its own task is not known.
        let another = UPID.replace("66F0A1B2", "66F0A1B3");
        set.world.answer("/nodes/pve1/tasks", 200, &tasks(&another));
        let reply = set.send("DELETE", DESTROY, &[("purge", "1")]).await;
        if task_known {
            assert_eq!(reply.outcome, "done");
            continue;
        }
        set.refused(&reply, "perhaps under way");
        set.world
            .answer("/nodes/pve1/tasks", 200, &json!({"data": []}));
        let reply = set.send("DELETE", DESTROY, &[("purge", "1")]).await;
        assert_eq!(reply.outcome, "done", "{reply:?}");
        let sent: Vec<Request> = set.world.changes();
        assert!(sent[0].params.contains(&("skiplock".into(), "1".into())));
    }
}

#[tokio::test(start_paused = true)]
async fn a_placeholder_is_not_ours_without_proof() {
    // Without an intent.
    let bare = set();
    tokio::time::advance(Span::minutes(60).to_std()).await;
    let path = format!("/nodes/{HOST}/qemu/9006");
    let reply = bare.send("DELETE", &path, &[("purge", "1")]).await;
    bare.refused(&reply, "no intent");
    // Of a clone that failed since the VMID was somebody's.
    let set = with_placeholder(true).await;
    tokio::time::advance(Span::minutes(60).to_std()).await;
    let task = crate::pve::path(&["nodes", HOST, "tasks", UPID, "status"]);
    let failed = "close (rename) atomic file '/etc/pve/nodes/pve1/qemu-server/9050.conf' failed: File exists";
    let data = json!({"data": {"status": "stopped", "exitstatus": failed}});
    set.world.answer(&task, 200, &data);
    let reply = set.send("DELETE", DESTROY, &[("purge", "1")]).await;
    set.refused(&reply, "somebody else's");
    // With another lock, or with somebody's description, or after a week.
    let data = json!({"data": {"status": "stopped", "exitstatus": "no space"}});
    set.world.answer(&task, 200, &data);
    set.world.set(9050, "lock", json!("backup"));
    let reply = set.send("DELETE", DESTROY, &[("purge", "1")]).await;
    set.refused(&reply, "another lock");
    set.world.set(9050, "lock", json!("clone"));
    set.world
        .set(9050, "description", json!("pve-autoscaler:v1 {}"));
    let reply = set.send("DELETE", DESTROY, &[("purge", "1")]).await;
    set.refused(&reply, "a damaged mark");
    set.world.set(9050, "description", json!(""));
    tokio::time::advance(Span::minutes(7 * 24 * 60).to_std()).await;
    let reply = set.send("DELETE", DESTROY, &[("purge", "1")]).await;
    set.refused(&reply, "an intent of last week");
}

#[tokio::test(start_paused = true)]
async fn a_marked_clone_that_is_stuck_goes_like_a_placeholder() {
    let set = set();
    let path = format!("/nodes/{HOST}/qemu/9010");
    let reply = set.send("DELETE", &path, &[("purge", "1")]).await;
    set.refused(&reply, "in quarantine since its mark was made");
    tokio::time::advance(Span::minutes(10).to_std()).await;
    set.world.answer("/nodes/pve1/tasks", 200, &tasks(UPID));
    let reply = set.send("DELETE", &path, &[("purge", "1")]).await;
    set.refused(&reply, "some clone is under way");
    set.world
        .answer("/nodes/pve1/tasks", 200, &json!({"data": []}));
    assert_eq!(
        set.send("DELETE", &path, &[("purge", "1")]).await.outcome,
        "done"
    );
}

#[tokio::test]
async fn an_intent_ends_when_the_machine_shows_its_mark() {
    let set = set();
    set.clone_of(9000, 9050, &mark(9050)).await;
    assert!(set.intent(9050).is_some());
    set.world.put(9050, &mark(9050).line());
    let path = format!("/nodes/{HOST}/qemu/9050/status/start");
    assert_eq!(set.send("POST", &path, &[]).await.outcome, "done");
    assert_eq!(set.intent(9050), None);
}

/// Whether what reached PVE may have: the VM in its path carries our mark, or it is a clone of our
/// template that carries one.
fn rightful(request: &Request) -> bool {
    let param = |name: &str| {
        let found = request.params.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.clone())
    };
    let named = ["lock", "args", "hookscript", "import-from", "hostpci0"];
    if request
        .params
        .iter()
        .any(|(name, _)| named.contains(&name.as_str()))
    {
        return false;
    }
    if request.path == "/nodes/pve1/qemu/9000/clone" {
        let id = param("newid").and_then(|id| id.parse().ok()).unwrap_or(0);
        return (9001..=9099).contains(&id) && param("description").is_some();
    }
    let start = "/nodes/pve1/qemu/9001";
    request.path == start || request.path.starts_with(&format!("{start}/"))
}

fn word() -> impl Strategy<Value = String> {
    let words = [
        "api2",
        "json",
        "nodes",
        "pve1",
        "pve2",
        "localhost",
        "qemu",
        "lxc",
        "9000",
        "9001",
        "9002",
        "9003",
        "9004",
        "9005",
        "9006",
        "9007",
        "9008",
        "9009",
        "200",
        "300",
        "400",
        "config",
        "clone",
        "resize",
        "status",
        "start",
        "stop",
        "shutdown",
        "current",
        "agent",
        "ping",
        "exec",
        "exec-status",
        "tasks",
        "cluster",
        "resources",
        "access",
        "storage",
        "..",
        ".",
        "",
        "%2e%2e",
        "9001%2f..%2f9002",
        "9001;9002",
        "9001%00",
        "move_disk",
        "template",
        "snapshot",
        "migrate",
    ];
    prop::sample::select(words.to_vec()).prop_map(str::to_owned)
}

fn target() -> impl Strategy<Value = String> {
    let vmid = prop::sample::select(vec![
        "9001",
        "9002",
        "9003",
        "9004",
        "9005",
        "9006",
        "9007",
        "9008",
        "9009",
        "9000",
        "200",
        "300",
        "400",
        "9099",
        "09001",
        "9001%20",
        "+9001",
        "9001/../9002",
    ]);
    let rest = prop::sample::select(vec![
        "",
        "/config",
        "/clone",
        "/resize",
        "/status/start",
        "/status/stop",
        "/status/shutdown",
        "/agent/ping",
        "/agent/exec",
        "/agent/exec-status",
        "/template",
        "/migrate",
        "/move_disk",
        "/../9002/status/stop",
        "/config/../../9002/config",
        "%2fconfig",
        "/config/",
    ]);
    prop_oneof![
        3 => (vmid, rest).prop_map(|(vmid, rest)| format!("/api2/json/nodes/pve1/qemu/{vmid}{rest}")),
        1 => prop::collection::vec(word(), 0..9).prop_map(|words| format!("/{}", words.join("/"))),
    ]
}

fn parameter() -> impl Strategy<Value = String> {
    let names = vec![
        "newid",
        "name",
        "description",
        "tags",
        "cores",
        "memory",
        "purge",
        "skiplock",
        "lock",
        "args",
        "hookscript",
        "scsi0",
        "hostpci0",
        "disk",
        "size",
        "timeout",
        "pid",
        "command",
        "storage",
        "vmid",
        "node",
        "delete",
        "digest",
        "overrule-shutdown",
        "import-from",
        "target",
    ];
    let values = vec![
        "9001".to_owned(),
        "9002".to_owned(),
        "9050".to_owned(),
        "1".to_owned(),
        "0".to_owned(),
        "scsi0".to_owned(),
        "16G".to_owned(),
        "small-9050".to_owned(),
        "small-9001".to_owned(),
        "/etc/shadow".to_owned(),
        "local:0,import-from=/dev/sda".to_owned(),
        "a%3Bb".to_owned(),
        "a;vmid=9002".to_owned(),
        "ceph".to_owned(),
        "pve2".to_owned(),
        crate::pve::percent(&mark(9050).line()),
        crate::pve::percent(&mark(9001).line()),
        crate::pve::percent(&mark(9002).line()),
    ];
    (prop::sample::select(names), prop::sample::select(values))
        .prop_map(|(name, value)| format!("{name}={value}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]
    #[test]
    fn no_generated_request_changes_a_vm_that_is_not_ours(
        method in prop::sample::select(vec!["GET", "POST", "PUT", "DELETE", "PATCH", "post"]),
        path in target(),
        params in prop::collection::vec(parameter(), 0..5),
        in_query in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let sent = runtime.expect("a runtime").block_on(async {
            let set = set();
            let text = params.join("&");
            let raw = Raw {
                method,
                path: &path,
                query: (in_query && !text.is_empty()).then_some(text.as_str()),
                content_type: (!in_query).then_some("application/x-www-form-urlencoded"),
                body: if in_query { b"" } else { text.as_bytes() },
            };
            set.service.answer(PEER, raw).await;
            set.world.changes()
        });
        for request in sent {
            prop_assert!(request.method == Method::Get || rightful(&request), "{request:?} {:?}", request.params);
        }
    }
}

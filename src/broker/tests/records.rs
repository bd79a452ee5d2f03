//! What the broker knows of its own: whose a VMID is, since when, and what a person protected.

use serde_json::{Value, json};

use super::rig::{Rig, rig};
use super::world::{HOST, UPID, mark};
use crate::model::mark::Mark;
use crate::model::time::{Span, Time};

const VM: &str = "/nodes/pve1/qemu/9050";
const CONFIG: &str = "/nodes/pve1/qemu/9050/config";

fn failed(rig: &Rig) {
    let path = crate::pve::path(&["nodes", HOST, "tasks", UPID, "status"]);
    let data = json!({"data": {"status": "stopped", "exitstatus": "no space left"}});
    rig.world.answer(&path, 200, &data);
}

fn tasks(rig: &Rig, list: &Value) {
    rig.world
        .answer("/nodes/pve1/tasks", 200, &json!({ "data": list }));
}

/// A clone of ours to 9050 failed long ago, and its VM is gone.
async fn old_intent() -> Rig {
    let rig = rig();
    assert_eq!(rig.clone_of(9000, 9050, &mark(9050)).await.outcome, "done");
    failed(&rig);
    tasks(&rig, &json!([]));
    tokio::time::advance(Span::minutes(60).to_std()).await;
    rig.world.sent.lock().expect("held").clear();
    rig
}

#[tokio::test(start_paused = true)]
async fn an_administrators_clone_at_an_old_intents_vmid_is_not_ours() {
    let later = UPID.replace("66F0A1B2", "66F0B1B2");
    // It runs, it failed, or its worker died; whoever began it.
    for (user, task) in [
        ("root@pam", json!({"status": "RUNNING"})),
        ("ann@pve", json!({"status": "RUNNING"})),
        ("root@pam", json!({"status": "no space", "endtime": 2})),
        (
            "ann@pve",
            json!({"status": "unexpected status", "endtime": 2}),
        ),
    ] {
        let rig = old_intent().await;
        rig.world.placeholder(9050);
        let mut task = task;
        task["upid"] = json!(later.replace("root@pam", user));
        tasks(&rig, &json!([task]));
        let reply = rig.send("DELETE", VM, &[("purge", "1")]).await;
        rig.refused(&reply, user);
        assert!(String::from_utf8_lossy(&reply.body).contains("somebody else"));
    }
    // Clones that ended well, or began before ours, left nothing here.
    for (upid, status) in [
        (later.clone(), "OK"),
        (later.clone(), "WARNINGS: 1"),
        (UPID.replace("66F0A1B2", "66F0A1B1"), "no space"),
        (later.replace("qmclone", "qmigrate"), "no space"),
    ] {
        let rig = old_intent().await;
        rig.world.placeholder(9050);
        tasks(
            &rig,
            &json!([{"upid": upid, "status": status, "endtime": 2}]),
        );
        let reply = rig.send("DELETE", VM, &[("purge", "1")]).await;
        assert_eq!(reply.outcome, "done", "{upid} {status}: {reply:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_several_clones_whose_task_is_ours_is_not_guessed() {
    let rig = rig();
    let clone = format!("/nodes/{HOST}/qemu/9000/clone");
    rig.world.answer(&clone, 596, &Value::Null);
    rig.clone_of(9000, 9050, &mark(9050)).await;
    rig.world.placeholder(9050);
    rig.world.sent.lock().expect("held").clear();
    tokio::time::advance(Span::minutes(60).to_std()).await;
    let at = |seconds: i64, id: &str| {
        let upid = UPID.replace("66F0A1B2", &format!("{:08X}", 1_795_000_000 + seconds));
        let upid = upid.replace(":9000:", &format!(":{id}:"));
        json!({"upid": upid, "status": "no space", "endtime": 2})
    };
    for list in [
        json!([at(1, "9000"), at(2, "9000")]),
        json!([at(1, "300")]),
        json!([at(361, "9000")]),
    ] {
        tasks(&rig, &list);
        rig.refused(&rig.send("DELETE", VM, &[]).await, &list.to_string());
    }
    tasks(&rig, &json!([at(1, "9000"), at(-61, "300")]));
    assert_eq!(rig.send("DELETE", VM, &[]).await.outcome, "done");
}

#[tokio::test(start_paused = true)]
async fn an_intent_is_withdrawn_when_its_vmid_is_seen_to_be_anothers() {
    // The administrator's VM is there, or on its way and named.
    for (description, lock) in [
        ("production", Value::Null),
        ("", json!("create")),
        ("", json!("clone")),
    ] {
        let rig = old_intent().await;
        rig.world.put(9050, description);
        rig.world.set(9050, "lock", lock.clone());
        rig.send("GET", CONFIG, &[]).await;
        assert_eq!(rig.intent(9050), None, "{description} {lock}");
        rig.world.placeholder(9050);
        let said = rig.said("DELETE", VM, &[("purge", "1")]).await;
        assert!(said.contains("no intent of ours"), "{said}");
    }
    // So it is where another machine of ours is there, or a template.
    let rig = old_intent().await;
    let other = Mark {
        machine: "small-other".into(),
        ..mark(9050)
    };
    rig.world.put(9050, &other.line());
    rig.send("GET", CONFIG, &[]).await;
    assert_eq!(rig.intent(9050), None);
    let rig = old_intent().await;
    rig.world.placeholder(9050);
    rig.world.set(9050, "template", json!(1));
    rig.send("GET", CONFIG, &[]).await;
    assert_eq!(rig.intent(9050), None);
    // An answer that cannot be read right says nothing.
    let rig = old_intent().await;
    rig.world.put(9050, "production");
    rig.world.set(9050, "digest", Value::Null);
    rig.send("GET", CONFIG, &[]).await;
    assert!(rig.intent(9050).is_some());
    // So it is when the removal itself finds it.
    let rig = old_intent().await;
    rig.world.put(9050, "");
    rig.world.set(9050, "lock", json!("clone"));
    let said = rig.said("DELETE", VM, &[("purge", "1")]).await;
    assert!(said.contains("of somebody else"), "{said}");
    assert_eq!(rig.intent(9050), None);
    // What is being made or destroyed stays ours.
    for lock in ["clone", "destroyed"] {
        let rig = old_intent().await;
        rig.world.placeholder(9050);
        rig.world.set(9050, "lock", json!(lock));
        rig.send("GET", CONFIG, &[]).await;
        assert!(rig.intent(9050).is_some(), "{lock}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_intent_is_withdrawn_when_nothing_comes_of_it() {
    let look = async |rig: &Rig| rig.send("GET", "/cluster/resources", &[]).await;
    let clone = format!("/nodes/{HOST}/qemu/9000/clone");
    // PVE began it: a minute later its VM is there, or never will be. It did not answer: not before
    // the quarantine is over.
    for (status, early, late) in [(200, 59, 60), (596, 599, 600)] {
        let rig = rig();
        rig.world.answer(&clone, status, &json!({ "data": UPID }));
        rig.clone_of(9000, 9050, &mark(9050)).await;
        tokio::time::advance(std::time::Duration::from_secs(early)).await;
        look(&rig).await;
        assert!(rig.intent(9050).is_some(), "{status}");
        tokio::time::advance(std::time::Duration::from_secs(late - early)).await;
        rig.world
            .answer("/cluster/resources", 200, &json!({"data": []}));
        look(&rig).await;
        assert!(rig.intent(9050).is_some(), "no reading at all: {status}");
        rig.world
            .answers
            .lock()
            .expect("held")
            .remove("/cluster/resources");
        look(&rig).await;
        assert_eq!(rig.intent(9050), None, "{status}");
    }
    // A VM that is there keeps its record; a container or a template has none of ours.
    for (kind, template, kept) in [("qemu", 0, true), ("lxc", 0, false), ("qemu", 1, false)] {
        let rig = old_intent().await;
        let entry = json!({"type": kind, "vmid": 9050, "node": HOST, "template": template});
        let host = json!({"type": "node", "node": HOST, "status": "online"});
        rig.world
            .answer("/cluster/resources", 200, &json!({ "data": [host, entry] }));
        look(&rig).await;
        assert_eq!(rig.intent(9050).is_some(), kept, "{kind} {template}");
    }
    // What was seen is forgotten with the VM, and not before.
    let rig = rig();
    let ping = "/nodes/pve1/qemu/9001/agent/ping";
    assert_eq!(rig.send("POST", ping, &[]).await.outcome, "done");
    look(&rig).await;
    assert!(rig.intent(9001).is_some());
    rig.world.vms.lock().expect("held").remove(&9001);
    look(&rig).await;
    assert_eq!(rig.intent(9001), None);
}

/// A call that PVE did not answer may still begin a clone, but not at a VMID that something else has.
#[tokio::test]
async fn an_open_intent_is_withdrawn_when_its_vmid_is_taken() {
    for (kind, kept) in [("qemu", true), ("lxc", false)] {
        let rig = rig();
        let clone = format!("/nodes/{HOST}/qemu/9000/clone");
        rig.world.answer(&clone, 596, &Value::Null);
        rig.clone_of(9000, 9050, &mark(9050)).await;
        let entry = json!({"type": kind, "vmid": 9050, "node": HOST});
        let host = json!({"type": "node", "node": HOST, "status": "online"});
        rig.world
            .answer("/cluster/resources", 200, &json!({ "data": [host, entry] }));
        rig.send("GET", "/cluster/resources", &[]).await;
        assert_eq!(rig.intent(9050).is_some(), kept, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_marks_time_is_no_clock() {
    let rig = rig();
    let mark = Mark {
        created: Time(0),
        ..mark(9010)
    };
    rig.world.put(9010, &mark.line());
    rig.world.set(9010, "lock", json!("clone"));
    tasks(&rig, &json!([]));
    let path = "/nodes/pve1/qemu/9010";
    let reply = rig.send("DELETE", path, &[]).await;
    rig.refused(&reply, "seen for the first time");
    assert!(String::from_utf8_lossy(&reply.body).contains("quarantine"));
    tokio::time::advance(Span::minutes(9).to_std()).await;
    rig.refused(&rig.send("DELETE", path, &[]).await, "not yet");
    tokio::time::advance(Span::minutes(1).to_std()).await;
    assert_eq!(rig.send("DELETE", path, &[]).await.outcome, "done");
}

#[tokio::test]
async fn a_persons_protection_stays() {
    let path = "/nodes/pve1/qemu/9001/config";
    let protected = async || {
        let rig = rig();
        rig.world.set(9001, "protection", json!(1));
        rig
    };
    // The template's goes with the first write, also when that is asked for twice.
    let rig = protected().await;
    let first = [("protection", "0"), ("cores", "2")];
    rig.world.answer(path, 596, &Value::Null);
    rig.send("PUT", path, &first).await;
    rig.world.answers.lock().expect("held").clear();
    assert_eq!(rig.send("PUT", path, &first).await.outcome, "done");
    // From then on it is a person's.
    let before = rig.world.changes().len();
    for params in [vec![("protection", "0")], first.to_vec()] {
        let said = rig.said("PUT", path, &params).await;
        assert!(said.contains("qm set 9001 --protection 0"), "{said}");
    }
    assert_eq!(rig.world.changes().len(), before);
    // Other writes go on, and so does one that takes nothing off.
    assert_eq!(
        rig.send("PUT", path, &[("tags", "a")]).await.outcome,
        "done"
    );
    rig.world.set(9001, "protection", json!(0));
    assert_eq!(rig.send("PUT", path, &first).await.outcome, "done");
    // A start counts as well; a ping does not.
    for (call, kept) in [("status/start", true), ("agent/ping", false)] {
        let rig = protected().await;
        let other = format!("/nodes/pve1/qemu/9001/{call}");
        assert_eq!(rig.send("POST", &other, &[]).await.outcome, "done");
        let outcome = rig.send("PUT", path, &first).await.outcome;
        assert_eq!(outcome == "refused-by-broker", kept, "{call}");
    }
    // Of a machine that another host's broker made its tag tells that it was configured.
    for (tags, kept) in [
        ("k8s;pve-autoscaler", true),
        ("gold", false),
        ("not-pve-autoscaler", false),
    ] {
        let rig = protected().await;
        rig.world.set(9001, "tags", json!(tags));
        let outcome = rig.send("PUT", path, &first).await.outcome;
        assert_eq!(outcome == "refused-by-broker", kept, "{tags}");
    }
}

/// Finds a reading of PVE's own rows: what of them cannot be read hid a VM of ours, or made it somebody else's.
#[tokio::test(start_paused = true)]
async fn a_row_that_cannot_be_read_withdraws_no_record() {
    for (key, value) in [
        ("vmid", json!("x")),
        ("type", json!(5)),
        ("type", json!("lxc")),
        ("node", Value::Null),
        ("template", json!("x")),
    ] {
        let rig = old_intent().await;
        let mut entry = json!({"type": "qemu", "id": "qemu/9050", "vmid": 9050, "node": HOST});
        entry[key] = value.clone();
        let host = json!({"type": "node", "node": HOST, "status": "online"});
        rig.world
            .answer("/cluster/resources", 200, &json!({ "data": [host, entry] }));
        rig.send("GET", "/cluster/resources", &[]).await;
        assert!(rig.intent(9050).is_some(), "{key} {value}");
        // Neither does a list that may hide anybody.
        let nobodys = json!({"node": HOST, "status": "running"});
        rig.world.answer(
            "/cluster/resources",
            200,
            &json!({ "data": [host, nobodys] }),
        );
        rig.send("GET", "/cluster/resources", &[]).await;
        assert!(rig.intent(9050).is_some(), "{key}");
    }
}

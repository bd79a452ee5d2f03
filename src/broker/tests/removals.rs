//! Removals that were cut short: what PVE leaves goes when, and only when, the removal was ours.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::rig::{self, Rig};
use super::world::{CLUSTER, HOST, UPID, mark};
use crate::broker::removals::Removal;
use crate::broker::service::Reply;
use crate::model::mark::Mark;
use crate::model::time::Span;

const PATH: &str = "/nodes/pve1/qemu/9001";
const TASK: &str = "UPID:pve1:0003A1B2:00C3D4E5:66F0A1B2:qmdestroy:9001:root@pam:";

async fn destroy(rig: &Rig) -> Reply {
    rig.world.sent.lock().expect("held").clear();
    rig.send("DELETE", PATH, &[("purge", "1")]).await
}

fn removal(rig: &Rig, vmid: u32) -> Option<Value> {
    let path = rig.state.path().join(format!("removals/{vmid}.json"));
    let bytes = std::fs::read(path).ok()?;
    Some(serde_json::from_slice(&bytes).expect("a removal is JSON"))
}

/// What PVE writes in the place of a configuration whose disks are gone.
fn remains(rig: &Rig, vmid: u32) {
    let mut vms = rig.world.vms.lock().expect("held");
    vms.insert(vmid, json!({"lock": "destroyed", "digest": "d2d2"}));
}

fn tasks(rig: &Rig, list: &Value) {
    rig.world
        .answer("/nodes/pve1/tasks", 200, &json!({ "data": list }));
}

/// VM 9001 was destroyed by us, and that was cut short.
async fn interrupted() -> Rig {
    let rig = rig::rig();
    rig.world.answer(PATH, 200, &json!({ "data": TASK }));
    assert_eq!(destroy(&rig).await.outcome, "done");
    remains(&rig, 9001);
    rig
}

#[tokio::test]
async fn a_removal_of_ours_that_was_cut_short_is_finished_past_the_lock() {
    let rig = interrupted().await;
    let recorded = removal(&rig, 9001).expect("recorded");
    assert_eq!(recorded["machine"], json!("small-09001"));
    assert_eq!(recorded["cluster"], json!(CLUSTER));
    assert_eq!(recorded["task"], json!(TASK));
    // Not while a task is at it.
    tasks(&rig, &json!([{"upid": TASK, "status": "RUNNING"}]));
    rig.refused(&destroy(&rig).await, "under way");
    tasks(&rig, &json!([]));
    // As often as it takes; also when a try is refused, or its outcome is unknown.
    for (status, outcome) in [(500, "refused"), (596, "unknown"), (200, "done")] {
        rig.world.answer(PATH, status, &json!({ "data": TASK }));
        let reply = destroy(&rig).await;
        assert_eq!(reply.outcome, outcome, "{reply:?}");
        let sent = rig.world.changes();
        assert!(sent[0].params.contains(&("skiplock".into(), "1".into())));
        assert!(removal(&rig, 9001).is_some(), "{status}");
    }
    // Nothing else is done to it.
    let path = format!("{PATH}/status/start");
    let reply = rig.send("POST", &path, &[]).await;
    assert_eq!(reply.outcome, "refused-by-broker");
}

#[tokio::test]
async fn remains_wait_for_each_task_that_runs_on_their_vm_and_for_no_other() {
    let again = TASK.replace("66F0A1B2", "66F0A1F0");
    let elsewhere = TASK.replace(":9001:", ":9002:");
    for (upid, ended, holds) in [
        (TASK, None, true),
        (&*again, None, true),
        (TASK, Some(1_727_046_200), false),
        (&*again, Some(1_727_046_300), false),
        (&*elsewhere, None, false),
    ] {
        let rig = interrupted().await;
        let status = ended.map_or("RUNNING", |_| "OK");
        let mut task = json!({"upid": upid, "status": status});
        if let Some(at) = ended {
            task["endtime"] = json!(at);
        }
        // PVE lists tasks as active for a while after their end.
        tasks(&rig, &json!([task]));
        let reply = destroy(&rig).await;
        if holds {
            rig.refused(&reply, upid);
        } else {
            assert_eq!(reply.outcome, "done", "{upid} {ended:?}: {reply:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_others_left_or_what_holds_more_than_the_lock_stays() {
    // Nobody's, as far as we know.
    let rig = rig::rig();
    remains(&rig, 9001);
    rig.refused(&destroy(&rig).await, "no record");
    // Something is left that PVE would not leave.
    for (key, value) in [
        ("name", "small-09001"),
        ("scsi0", "ceph:vm-9001-disk-0,size=8G"),
        ("description", "mine"),
        ("smbios1", "uuid=1"),
        ("template", "1"),
        ("protection", "1"),
    ] {
        let rig = interrupted().await;
        rig.world.set(9001, key, json!(value));
        rig.refused(&destroy(&rig).await, key);
    }
    // Another lock, or none: a mark is asked for as ever.
    for lock in [json!("backup"), json!("clone"), json!(null)] {
        let rig = interrupted().await;
        rig.world.set(9001, "lock", lock.clone());
        rig.refused(&destroy(&rig).await, &lock.to_string());
    }
    // After a week nobody knows any more.
    let rig = interrupted().await;
    tokio::time::advance(Span::minutes(7 * 24 * 60 + 1).to_std()).await;
    rig.refused(&destroy(&rig).await, "a removal of last week");
    // A damaged record proves nothing.
    let rig = interrupted().await;
    std::fs::write(rig.state.path().join("removals/9001.json"), "{").expect("written");
    rig.refused(&destroy(&rig).await, "a damaged record");
}

#[tokio::test]
async fn what_is_left_on_another_host_is_not_what_we_removed() {
    let rig = interrupted().await;
    let path = state(&rig, "removals/9001.json");
    let text = std::fs::read_to_string(&path).expect("recorded");
    std::fs::write(&path, text.replace("\"pve1\"", "\"pve2\"")).expect("written");
    let reply = destroy(&rig).await;
    rig.refused(&reply, "it was to be destroyed on pve2");
    assert!(String::from_utf8_lossy(&reply.body).contains("on pve2, not pve1"));
    // Nor what another cluster's daemon removed.
    let rig = interrupted().await;
    let path = state(&rig, "removals/9001.json");
    let text = std::fs::read_to_string(&path).expect("recorded");
    std::fs::write(&path, text.replace(CLUSTER, "ffff/home")).expect("written");
    rig.refused(&destroy(&rig).await, "another cluster's removal");
}

fn state(rig: &Rig, file: &str) -> std::path::PathBuf {
    rig.state.path().join(file)
}

#[tokio::test]
async fn a_removal_that_was_not_carried_out_proves_nothing() {
    for (status, kept) in [(500, false), (595, false), (596, true), (200, true)] {
        let rig = rig::rig();
        rig.world.answer(PATH, status, &json!({ "data": TASK }));
        destroy(&rig).await;
        assert_eq!(removal(&rig, 9001).is_some(), kept, "{status}");
    }
    // What the broker refuses itself is not recorded either.
    let rig = rig::rig();
    for vmid in [9002, 9003, 9006, 300, 400] {
        let path = format!("/nodes/pve1/qemu/{vmid}");
        let reply = rig.send("DELETE", &path, &[]).await;
        assert_eq!(reply.outcome, "refused-by-broker", "{vmid}");
        assert_eq!(removal(&rig, vmid), None, "{vmid}");
    }
}

#[tokio::test]
async fn a_removal_is_forgotten_once_the_vm_is_gone_or_another_has_its_vmid() {
    let rig = interrupted().await;
    let look = || rig.send("GET", "/cluster/resources", &[]);
    look().await;
    assert!(removal(&rig, 9001).is_some(), "it is still there");
    // No reading of the region says nothing.
    rig.world
        .answer("/cluster/resources", 200, &json!({"data": []}));
    look().await;
    assert!(removal(&rig, 9001).is_some(), "nothing was read");
    // A row without its number hid the VM, when PVE's own rows were read.
    let rows = json!([
        {"type": "node", "node": HOST, "status": "online"},
        {"type": "qemu", "id": "qemu/9001", "vmid": "x", "node": HOST},
    ]);
    rig.world
        .answer("/cluster/resources", 200, &json!({ "data": rows }));
    look().await;
    assert!(removal(&rig, 9001).is_some(), "its row cannot be read");
    rig.world.answers.lock().expect("held").clear();
    rig.world.vms.lock().expect("held").remove(&9001);
    look().await;
    assert_eq!(removal(&rig, 9001), None, "it is gone");
    // Somebody else's remains at the same VMID are not ours then.
    remains(&rig, 9001);
    rig.refused(&destroy(&rig).await, "somebody else's");
    // Another machine of ours has the VMID.
    let rig = interrupted().await;
    let other = Mark {
        machine: "small-other".into(),
        ..mark(9001)
    };
    rig.world.put(9001, &other.line());
    let path = format!("{PATH}/status/start");
    assert_eq!(rig.send("POST", &path, &[]).await.outcome, "done");
    assert_eq!(removal(&rig, 9001), None, "another machine is there");
    let record = rig.intent(9001).expect("recorded");
    assert_eq!(record["machine"], json!("small-other"));
}

/// What is recorded of a machine may be gone before its removal is over.
#[tokio::test]
async fn a_removal_is_forgotten_where_nothing_else_is_recorded() {
    let rig = interrupted().await;
    rig.service.intents.forget(9001).expect("forgotten");
    rig.world.vms.lock().expect("held").remove(&9001);
    rig.send("GET", "/cluster/resources", &[]).await;
    assert_eq!(removal(&rig, 9001), None);
}

/// What a newer version knows of a machine's removal stays, and is not the next machine's at its VMID.
#[tokio::test]
async fn what_a_newer_version_wrote_of_a_removal_is_its_machines() {
    let rig = interrupted().await;
    let records = &rig.service.removals;
    let known = records.get(9001, rig.service.clock.now());
    let known = known.expect("it is read").expect("it is there");
    let again = |record: &Removal| {
        let mut newer = serde_json::to_value(&known).expect("plain data");
        newer["rack"] = json!(3);
        std::fs::write(state(&rig, "removals/9001.json"), newer.to_string()).expect("written");
        records.record(record).expect("recorded");
        removal(&rig, 9001)
            .expect("it is there")
            .get("rack")
            .cloned()
    };
    assert_eq!(again(&known), Some(json!(3)));
    let other = Removal {
        machine: "small-other".into(),
        ..known.clone()
    };
    assert_eq!(again(&other), None);
    let elsewhere = Removal {
        cluster: "ffff/home".into(),
        ..known.clone()
    };
    assert_eq!(again(&elsewhere), None);
}

/// PVE must have time to answer, or nobody knows whether the VM goes.
#[tokio::test(start_paused = true)]
async fn a_removal_whose_checks_took_its_time_is_not_sent() {
    for (seconds, outcome) in [(36, "done"), (38, "not-sent")] {
        let rig = rig::rig();
        let hang = Arc::new(Semaphore::new(0));
        *rig.world.hang.lock().expect("held") = Some(Arc::clone(&hang));
        let late = async {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            hang.add_permits(100);
        };
        let (reply, ()) = tokio::join!(destroy(&rig), late);
        assert_eq!(reply.outcome, outcome, "{seconds} s: {reply:?}");
        let sent = outcome == "done";
        assert_eq!(!rig.world.changes().is_empty(), sent);
        assert_eq!(removal(&rig, 9001).is_some(), sent);
    }
}

/// A removal without an answer may still be carried out: what it leaves must be known then.
#[tokio::test]
async fn the_removal_of_a_vm_that_is_still_there_is_not_forgotten() {
    let rig = rig::rig();
    rig.world.answer(PATH, 596, &Value::Null);
    assert_eq!(destroy(&rig).await.outcome, "unknown");
    let path = format!("{PATH}/status/start");
    assert_eq!(rig.send("POST", &path, &[]).await.outcome, "done");
    assert!(removal(&rig, 9001).is_some());
}

#[tokio::test(start_paused = true)]
async fn the_remains_of_a_dead_clones_removal_go_too() {
    let rig = rig::rig();
    rig.clone_of(9000, 9050, &mark(9050)).await;
    rig.world.placeholder(9050);
    tokio::time::advance(Span::minutes(10).to_std()).await;
    let task = crate::pve::path(&["nodes", HOST, "tasks", UPID, "status"]);
    let failed = json!({"data": {"status": "stopped", "exitstatus": "no space"}});
    rig.world.answer(&task, 200, &failed);
    let path = "/nodes/pve1/qemu/9050";
    assert_eq!(rig.send("DELETE", path, &[]).await.outcome, "done");
    remains(&rig, 9050);
    let reply = rig.send("DELETE", path, &[]).await;
    assert_eq!(reply.outcome, "done", "{reply:?}");
}

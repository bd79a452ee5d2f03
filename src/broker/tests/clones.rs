//! Clones: their marks, their intents, and what is left of them when they die.

use serde_json::{Value, json};

use super::rig::{self, Rig};
use super::world::{CLUSTER, HOST, UPID, mark};
use crate::model::mark::Mark;
use crate::model::time::Span;
use crate::pve::PveRequest;

#[tokio::test]
async fn a_clone_needs_our_mark_our_range_and_a_named_template() {
    let rig = rig::rig();
    let reply = rig.clone_of(9000, 9050, &mark(9050)).await;
    assert_eq!(reply.outcome, "done", "{reply:?}");
    let intent = rig.intent(9050).expect("an intent");
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
        let rig = rig::rig();
        let reply = rig.clone_of(template, newid, &mark).await;
        rig.refused(&reply, what);
        assert_eq!(rig.intent(newid), None, "{what}");
    }
    // A template by its name, too, but not a VM that only has the name.
    let rig = rig::rig();
    rig.world.put(9060, "");
    rig.world.set(9060, "name", json!("debian-13"));
    let reply = rig.clone_of(9060, 9050, &mark(9050)).await;
    rig.refused(&reply, "a VM with a template's name");
    rig.world.set(9060, "template", json!("1"));
    assert_eq!(rig.clone_of(9060, 9050, &mark(9050)).await.outcome, "done");
}

#[tokio::test]
async fn a_clones_parameters_are_the_policys() {
    let line = mark(9050).line();
    let base = [
        ("newid", "9050"),
        ("name", "small-09050"),
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
        (("name", "small-09050"), false),
        (("newid", "9051"), false),
        (("vmid", "300"), false),
        (("node", "pve2"), false),
        (("skiplock", "1"), false),
    ] {
        let rig = rig::rig();
        let mut params = base.to_vec();
        params.push(extra);
        let reply = rig
            .send("POST", &format!("/nodes/{HOST}/qemu/9000/clone"), &params)
            .await;
        if passes {
            assert_eq!(reply.outcome, "done", "{extra:?}: {reply:?}");
        } else {
            rig.refused(&reply, &format!("{extra:?}"));
        }
    }
}

#[tokio::test]
async fn the_cluster_learnt_first_is_the_only_one() {
    let rig = rig::rig();
    assert_eq!(rig.clone_of(9000, 9050, &mark(9050)).await.outcome, "done");
    let other = Mark {
        cluster: "ffff/home".into(),
        ..mark(9051)
    };
    let reply = rig.clone_of(9000, 9051, &other).await;
    assert_eq!(reply.outcome, "refused-by-broker");
    rig.world.put(
        9052,
        &Mark {
            vmid: 9052,
            ..other
        }
        .line(),
    );
    let path = format!("/nodes/{HOST}/qemu/9052/status/stop");
    let reply = rig.send("POST", &path, &[]).await;
    assert_eq!(reply.outcome, "refused-by-broker");
    let learnt = std::fs::read_to_string(rig.state.path().join("cluster")).expect("learnt");
    assert_eq!(learnt.trim(), CLUSTER);
}

#[tokio::test]
async fn the_intent_of_a_refused_clone_is_forgotten_and_of_an_open_one_kept() {
    let path = format!("/nodes/{HOST}/qemu/9000/clone");
    for (status, kept) in [(500, false), (595, false), (596, true), (200, true)] {
        let rig = rig::rig();
        rig.world.answer(&path, status, &json!({"data": UPID}));
        rig.clone_of(9000, 9050, &mark(9050)).await;
        assert_eq!(rig.intent(9050).is_some(), kept, "{status}");
        // The same machine again: its intent from before stays, whatever comes back.
        if kept {
            rig.world.answer(&path, 500, &json!({"data": null}));
            let reply = rig.clone_of(9000, 9050, &mark(9050)).await;
            assert_ne!(reply.outcome, "refused-by-broker", "{status}: {reply:?}");
            assert!(rig.intent(9050).is_some(), "{status}, asked again");
        }
        // Another machine cannot take the VMID over while the first may be under way.
        let other = Mark {
            machine: "small-other".into(),
            ..mark(9050)
        };
        if kept {
            let reply = rig.clone_of(9000, 9050, &other).await;
            assert_eq!(reply.outcome, "refused-by-broker");
        }
        // … but once its task is known to have ended, it can.
        if status == 200 {
            let ended = json!({"data": {"status": "stopped", "exitstatus": "no space"}});
            rig.world.answer(&task_path(), 200, &ended);
            rig.world.answer(&path, 200, &json!({"data": UPID}));
            assert_eq!(rig.clone_of(9000, 9050, &other).await.outcome, "done");
        }
    }
}

/// A placeholder that an intent of ours names.
async fn with_placeholder(task_known: bool) -> Rig {
    let rig = rig::rig();
    let path = format!("/nodes/{HOST}/qemu/9000/clone");
    if !task_known {
        rig.world.answer(&path, 596, &Value::Null);
    }
    rig.clone_of(9000, 9050, &mark(9050)).await;
    rig.world.placeholder(9050);
    rig.world.sent.lock().expect("held").clear();
    rig
}

fn tasks(upid: &str) -> Value {
    json!({"data": [{"upid": upid, "status": "RUNNING"}]})
}

/// Where the clone's task tells how it stands.
fn task_path() -> String {
    crate::pve::path(&["nodes", HOST, "tasks", UPID, "status"])
}

const DESTROY: &str = "/nodes/pve1/qemu/9050";

#[tokio::test(start_paused = true)]
async fn a_dead_clone_goes_after_its_quarantine_past_its_lock() {
    for task_known in [true, false] {
        let rig = with_placeholder(task_known).await;
        let reply = rig.send("DELETE", DESTROY, &[("purge", "1")]).await;
        rig.refused(&reply, "in quarantine");
        tokio::time::advance(Span::minutes(10).to_std()).await;
        // The clone still runs.
        rig.world.answer("/nodes/pve1/tasks", 200, &tasks(UPID));
        let reply = rig.send("DELETE", DESTROY, &[("purge", "1")]).await;
        rig.refused(&reply, "under way");
        let failed = json!({"data": {"status": "stopped", "exitstatus": "no space left"}});
        let task = task_path();
        rig.world.answer(&task, 200, &failed);
        // Another clone of the same template hides it: it may be somebody's who got the VMID.
        let another = UPID.replace("66F0A1B2", "66F0A1B3");
        rig.world.answer("/nodes/pve1/tasks", 200, &tasks(&another));
        let reply = rig.send("DELETE", DESTROY, &[("purge", "1")]).await;
        rig.refused(&reply, "perhaps another's");
        if task_known {
            // … unless another machine of ours is known to be made by it.
            let clone = format!("/nodes/{HOST}/qemu/9000/clone");
            rig.world.answer(&clone, 200, &json!({ "data": another }));
            assert_eq!(rig.clone_of(9000, 9051, &mark(9051)).await.outcome, "done");
            rig.world.sent.lock().expect("held").clear();
            let reply = rig.send("DELETE", DESTROY, &[("purge", "1")]).await;
            assert_eq!(reply.outcome, "done", "{reply:?}");
            continue;
        }
        rig.world
            .answer("/nodes/pve1/tasks", 200, &json!({"data": []}));
        let reply = rig.send("DELETE", DESTROY, &[("purge", "1")]).await;
        assert_eq!(reply.outcome, "done", "{reply:?}");
        let sent: Vec<PveRequest> = rig.world.changes();
        assert!(sent[0].params.contains(&("skiplock".into(), "1".into())));
    }
}

/// A daemon that did not hear the answer to its clone asks for the same clone again, and the VM is there by then.
#[tokio::test]
async fn the_same_clone_may_be_asked_for_again_and_another_not() {
    let rig = rig::rig();
    assert_eq!(rig.clone_of(9000, 9050, &mark(9050)).await.outcome, "done");
    rig.world.placeholder(9050);
    assert_eq!(rig.clone_of(9000, 9050, &mark(9050)).await.outcome, "done");
    let other = Mark {
        machine: "small-other".into(),
        ..mark(9050)
    };
    let reply = rig.clone_of(9000, 9050, &other).await;
    assert_eq!(reply.outcome, "refused-by-broker", "{reply:?}");
}

/// What a machine is cloned from, and whether its VM is there, tells a call that is asked for again from another clone over that VM.
#[tokio::test]
async fn a_machine_that_is_there_or_of_another_template_is_not_cloned_again() {
    let rig = rig::rig();
    rig.world.set(200, "name", json!("debian-13"));
    assert_eq!(rig.clone_of(9000, 9050, &mark(9050)).await.outcome, "done");
    rig.world.placeholder(9050);
    let reply = rig.clone_of(200, 9050, &mark(9050)).await;
    let said = String::from_utf8_lossy(&reply.body).into_owned();
    assert!(said.contains("already exists"), "{said}");
    rig.world.put(9050, &mark(9050).line());
    let start = format!("/nodes/{HOST}/qemu/9050/status/start");
    assert_eq!(rig.send("POST", &start, &[]).await.outcome, "done");
    let reply = rig.clone_of(9000, 9050, &mark(9050)).await;
    let said = String::from_utf8_lossy(&reply.body).into_owned();
    assert!(said.contains("already exists"), "{said}");
}

/// PVE did not answer the clone of a machine that showed its mark later: it came, so nothing is awaited any more at its VMID.
#[tokio::test]
async fn a_vmid_can_be_had_at_once_after_a_machine_that_was_there() {
    let rig = rig::rig();
    let path = format!("/nodes/{HOST}/qemu/9000/clone");
    rig.world.answer(&path, 596, &Value::Null);
    rig.clone_of(9000, 9050, &mark(9050)).await;
    rig.world.answer(&path, 200, &json!({"data": UPID}));
    rig.world.put(9050, &mark(9050).line());
    let start = format!("/nodes/{HOST}/qemu/9050/status/start");
    assert_eq!(rig.send("POST", &start, &[]).await.outcome, "done");
    rig.world.vms.lock().expect("held").remove(&9050);
    let other = Mark {
        machine: "small-other".into(),
        ..mark(9050)
    };
    let reply = rig.clone_of(9000, 9050, &other).await;
    assert_eq!(reply.outcome, "done", "{reply:?}");
}

/// A clone of which nothing is known holds its VMID for the quarantine, and no longer.
#[tokio::test(start_paused = true)]
async fn a_vmid_can_be_had_after_the_quarantine_of_a_clone_that_nobody_knows_of() {
    let rig = rig::rig();
    let path = format!("/nodes/{HOST}/qemu/9000/clone");
    rig.world.answer(&path, 596, &Value::Null);
    rig.clone_of(9000, 9050, &mark(9050)).await;
    let other = Mark {
        machine: "small-other".into(),
        ..mark(9050)
    };
    rig.world.answer(&path, 200, &json!({"data": UPID}));
    let reply = rig.clone_of(9000, 9050, &other).await;
    assert_eq!(reply.outcome, "refused-by-broker", "{reply:?}");
    tokio::time::advance(Span::minutes(10).to_std()).await;
    let reply = rig.clone_of(9000, 9050, &other).await;
    assert_eq!(reply.outcome, "done", "{reply:?}");
}

/// What a record says of another host or another cluster proves nothing here.
#[tokio::test(start_paused = true)]
async fn a_dead_clone_of_another_host_or_another_cluster_stays() {
    let failed = json!({"data": {"status": "stopped", "exitstatus": "no space left"}});
    let none = json!({"data": []});
    let asked = async |edit: Option<(&str, &str)>| {
        let rig = with_placeholder(true).await;
        if let Some((from, to)) = edit {
            let path = rig.state.path().join("intents/9050.json");
            let text = std::fs::read_to_string(&path).expect("recorded");
            assert!(text.contains(from), "{text}");
            std::fs::write(&path, text.replace(from, to)).expect("written");
        }
        tokio::time::advance(Span::minutes(10).to_std()).await;
        rig.world.answer(&task_path(), 200, &failed);
        rig.world.answer("/nodes/pve1/tasks", 200, &none);
        let reply = rig.send("DELETE", DESTROY, &[("purge", "1")]).await;
        (rig, reply)
    };
    assert_eq!(asked(None).await.1.outcome, "done");
    for edit in [
        ("\"host\":\"pve1\"", "\"host\":\"pve2\""),
        (CLUSTER, "ffff/home"),
    ] {
        let (rig, reply) = asked(Some(edit)).await;
        rig.refused(&reply, edit.1);
    }
}

/// The task of the dead clone is not known, and the one that runs is another machine's.
#[tokio::test(start_paused = true)]
async fn a_dead_clone_does_not_wait_for_the_clone_of_another_intent() {
    let rig = with_placeholder(false).await;
    rig.world.answers.lock().expect("held").clear();
    let reply = rig.clone_of(9000, 9051, &mark(9051)).await;
    assert_eq!(reply.outcome, "done", "{reply:?}");
    tokio::time::advance(Span::minutes(10).to_std()).await;
    rig.world.answer("/nodes/pve1/tasks", 200, &tasks(UPID));
    let reply = rig.send("DELETE", DESTROY, &[("purge", "1")]).await;
    assert_eq!(reply.outcome, "done", "{reply:?}");
}

/// An intent of ours names the VMID, and somebody else's clone of the same template was quicker.
#[tokio::test(start_paused = true)]
async fn what_has_a_name_notes_or_a_disk_is_no_placeholder() {
    for more in [
        None,
        Some(("name", "mine")),
        Some(("description", "mine")),
        Some(("scsi0", "ceph:vm-9050-disk-0,size=8G")),
    ] {
        let rig = with_placeholder(true).await;
        tokio::time::advance(Span::minutes(10).to_std()).await;
        let failed = json!({"data": {"status": "stopped", "exitstatus": "no space left"}});
        rig.world.answer(&task_path(), 200, &failed);
        if let Some((key, value)) = more {
            rig.world.set(9050, key, json!(value));
        }
        let reply = rig.send("DELETE", DESTROY, &[("purge", "1")]).await;
        match more {
            None => assert_eq!(reply.outcome, "done", "{reply:?}"),
            Some((key, _)) => rig.refused(&reply, key),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_placeholder_is_not_ours_without_proof() {
    // Without an intent.
    let bare = rig::rig();
    tokio::time::advance(Span::minutes(60).to_std()).await;
    let path = format!("/nodes/{HOST}/qemu/9006");
    let reply = bare.send("DELETE", &path, &[("purge", "1")]).await;
    bare.refused(&reply, "no intent");
    // Of a clone that failed since the VMID was somebody's.
    let rig = with_placeholder(true).await;
    tokio::time::advance(Span::minutes(60).to_std()).await;
    let task = task_path();
    let failed = "close (rename) atomic file '/etc/pve/nodes/pve1/qemu-server/9050.conf' failed: File exists";
    let data = json!({"data": {"status": "stopped", "exitstatus": failed}});
    rig.world.answer(&task, 200, &data);
    let reply = rig.send("DELETE", DESTROY, &[("purge", "1")]).await;
    rig.refused(&reply, "somebody else's");
    // Of a clone that ended well, and so left none.
    let data = json!({"data": {"status": "stopped", "exitstatus": "OK"}});
    rig.world.answer(&task, 200, &data);
    let reply = rig.send("DELETE", DESTROY, &[("purge", "1")]).await;
    rig.refused(&reply, "ended well");
    // With another lock, or with somebody's description, or after a week.
    let data = json!({"data": {"status": "stopped", "exitstatus": "no space"}});
    rig.world.answer(&task, 200, &data);
    rig.world.set(9050, "lock", json!("backup"));
    let reply = rig.send("DELETE", DESTROY, &[("purge", "1")]).await;
    rig.refused(&reply, "another lock");
    rig.world.set(9050, "lock", json!("clone"));
    rig.world
        .set(9050, "description", json!("pve-autoscaler:v1 {}"));
    let reply = rig.send("DELETE", DESTROY, &[("purge", "1")]).await;
    rig.refused(&reply, "a damaged mark");
    rig.world.set(9050, "description", json!(""));
    tokio::time::advance(Span::minutes(7 * 24 * 60).to_std()).await;
    let reply = rig.send("DELETE", DESTROY, &[("purge", "1")]).await;
    rig.refused(&reply, "an intent of last week");
}

#[tokio::test(start_paused = true)]
async fn a_marked_clone_that_is_stuck_goes_like_a_placeholder() {
    let rig = rig::rig();
    let path = format!("/nodes/{HOST}/qemu/9010");
    let reply = rig.send("DELETE", &path, &[("purge", "1")]).await;
    rig.refused(&reply, "in quarantine since its mark was made");
    tokio::time::advance(Span::minutes(10).to_std()).await;
    rig.world.answer("/nodes/pve1/tasks", 200, &tasks(UPID));
    let reply = rig.send("DELETE", &path, &[("purge", "1")]).await;
    rig.refused(&reply, "some clone is under way");
    rig.world
        .answer("/nodes/pve1/tasks", 200, &json!({"data": []}));
    assert_eq!(
        rig.send("DELETE", &path, &[("purge", "1")]).await.outcome,
        "done"
    );
}

#[tokio::test]
async fn an_intent_becomes_a_record_when_the_machine_shows_its_mark() {
    let rig = rig::rig();
    rig.clone_of(9000, 9050, &mark(9050)).await;
    assert!(rig.intent(9050).is_some());
    rig.world.put(9050, &mark(9050).line());
    let path = format!("/nodes/{HOST}/qemu/9050/status/start");
    assert_eq!(rig.send("POST", &path, &[]).await.outcome, "done");
    let record = rig.intent(9050).expect("a record");
    assert_eq!(record["settled"], json!(true));
    // It proves nothing any more of a placeholder at that VMID.
    rig.world.placeholder(9050);
    let said = rig.said("DELETE", DESTROY, &[("purge", "1")]).await;
    assert!(said.contains("no intent of ours"), "{said}");
}

/// The first call for machine 9050 was lost, the second one made it; it is gone again.
async fn with_an_open_clone() -> Rig {
    let rig = rig::rig();
    let path = format!("/nodes/{HOST}/qemu/9000/clone");
    rig.world.answer(&path, 596, &Value::Null);
    rig.clone_of(9000, 9050, &mark(9050)).await;
    rig.world.answer(&path, 200, &json!({ "data": UPID }));
    tokio::time::advance(Span::minutes(1).to_std()).await;
    assert_eq!(rig.clone_of(9000, 9050, &mark(9050)).await.outcome, "done");
    rig.world.put(9050, &mark(9050).line());
    let start = format!("{DESTROY}/status/start");
    assert_eq!(rig.send("POST", &start, &[]).await.outcome, "done");
    rig.world.vms.lock().expect("held").remove(&9050);
    rig
}

/// PVE shows which VMs there are.
async fn region_is_read(rig: &Rig) {
    let reply = rig.send("GET", "/cluster/resources", &[]).await;
    assert_eq!(reply.status, 200);
    rig.world.sent.lock().expect("held").clear();
}

#[tokio::test(start_paused = true)]
async fn what_a_clone_leaves_that_comes_when_its_machine_is_gone_is_ours() {
    let ended = json!({"data": {"status": "stopped", "exitstatus": "OK"}});
    for seen_gone in [true, false] {
        let rig = with_an_open_clone().await;
        if seen_gone {
            region_is_read(&rig).await;
            let record = rig.intent(9050).expect("a clone may still come");
            assert_eq!(record["settled"], json!(false));
            assert_eq!(record["task"], Value::Null);
        }
        // Nobody else gets the VMID while it may come.
        let other = Mark {
            machine: "small-other".into(),
            ..mark(9050)
        };
        if seen_gone {
            let reply = rig.clone_of(9000, 9050, &other).await;
            assert_eq!(reply.outcome, "refused-by-broker");
        }
        rig.world.placeholder(9050);
        region_is_read(&rig).await;
        let reply = rig.send("DELETE", DESTROY, &[("purge", "1")]).await;
        rig.refused(&reply, "in quarantine");
        tokio::time::advance(Span::minutes(10).to_std()).await;
        rig.world.answer(&task_path(), 200, &ended);
        // The late clone is the template's only one that we do not know; it died.
        let late = UPID.replace("66F0A1B2", &format!("{:X}", 1_795_000_000 + 200));
        let died =
            json!({"data": [{"upid": late, "status": "no space", "endtime": 1_795_000_300}]});
        rig.world.answer("/nodes/pve1/tasks", 200, &died);
        let reply = rig.send("DELETE", DESTROY, &[("purge", "1")]).await;
        assert_eq!(reply.outcome, "done", "{reply:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_somebody_elses_clone_left_stays_though_one_of_ours_may_have_come() {
    let at = |seconds: i64, user: &str| {
        let task = UPID.replace("66F0A1B2", &format!("{:X}", 1_795_000_000 + seconds));
        let task = task.replace("root@pam", user);
        json!({"upid": task, "status": "no space", "endtime": 1_795_000_900})
    };
    for (what, tasks) in [
        ("a person's", vec![at(200, "mara@pam")]),
        (
            "one more than we asked for",
            vec![at(200, "root@pam"), at(210, "root@pam")],
        ),
        ("one that began too late", vec![at(500, "root@pam")]),
    ] {
        let rig = with_an_open_clone().await;
        region_is_read(&rig).await;
        rig.world.placeholder(9050);
        tokio::time::advance(Span::minutes(10).to_std()).await;
        let tasks = json!({ "data": tasks });
        rig.world.answer("/nodes/pve1/tasks", 200, &tasks);
        let reply = rig.send("DELETE", DESTROY, &[("purge", "1")]).await;
        rig.refused(&reply, what);
    }
}

#[tokio::test(start_paused = true)]
async fn an_open_clone_is_forgotten_when_it_cannot_come_any_more() {
    let rig = with_an_open_clone().await;
    region_is_read(&rig).await;
    assert!(rig.intent(9050).is_some());
    tokio::time::advance(Span::minutes(10).to_std()).await;
    region_is_read(&rig).await;
    assert_eq!(rig.intent(9050), None);
    rig.world.placeholder(9050);
    let said = rig.said("DELETE", DESTROY, &[("purge", "1")]).await;
    assert!(said.contains("no intent of ours"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_dead_clone_of_a_protected_template_loses_its_protection_past_its_lock() {
    let rig = rig::rig();
    let path = format!("/nodes/{HOST}/qemu/9050/config");
    rig.world.put(9050, &mark(9050).line());
    rig.world.set(9050, "lock", json!("clone"));
    rig.world.set(9050, "protection", json!(1));
    rig.world
        .answer("/nodes/pve1/tasks", 200, &json!({"data": []}));
    let unprotect = [("protection", "0")];
    let reply = rig.send("PUT", &path, &unprotect).await;
    rig.refused(&reply, "in quarantine");
    tokio::time::advance(Span::minutes(60).to_std()).await;
    // Anything beside it meets the lock, as PVE means it.
    let more = [("protection", "0"), ("cores", "2")];
    rig.send("PUT", &path, &more).await;
    assert_eq!(rig.send("PUT", &path, &unprotect).await.outcome, "done");
    let sent: Vec<PveRequest> = rig.world.changes();
    let past = |request: &PveRequest| request.params.contains(&("skiplock".into(), "1".into()));
    assert_eq!(sent.iter().map(past).collect::<Vec<_>>(), [false, true]);
    let reply = rig.send("DELETE", DESTROY, &[("purge", "1")]).await;
    assert_eq!(reply.outcome, "done", "{reply:?}");
}

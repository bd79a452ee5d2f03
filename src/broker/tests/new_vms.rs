//! VMs that are made of settings: what the file says, to the letter, and what is left of them when they die.

use serde_json::{Value, json};

use super::rig::{self, Rig};
use super::world::{HOST, UPID, bare, mark, new_vm};
use crate::broker::service::Reply;
use crate::model::mark::Mark;
use crate::model::time::Span;

const PATH: &str = "/nodes/pve1/qemu";
/// The size of the instance type's disk.
const DISK: i64 = 64 << 30;

fn params(mark: &Mark) -> Vec<(String, String)> {
    new_vm().params(mark, &mark.describe("for the shop"), ("ceph", DISK))
}

async fn send(rig: &Rig, path: &str, params: &[(String, String)]) -> Reply {
    let pairs: Vec<(&str, &str)> = params.iter().map(|(k, v)| (&**k, &**v)).collect();
    rig.send("POST", path, &pairs).await
}

#[tokio::test]
async fn what_the_file_says_passes_and_its_intent_stands() {
    let rig = rig::rig();
    let reply = send(&rig, PATH, &params(&bare(9050))).await;
    assert_eq!(reply.outcome, "done", "{reply:?}");
    let intent = rig.intent(9050).expect("an intent");
    let told = (&intent["template"], &intent["host"], &intent["task"]);
    assert_eq!(told, (&json!(1), &json!(HOST), &json!(UPID)));
    // It counts: its VMID is taken until it is there or was given up.
    let other = Mark {
        machine: "bare-00000".into(),
        ..bare(9050)
    };
    let reply = send(&rig, PATH, &params(&other)).await;
    assert_eq!(reply.outcome, "refused-by-broker");
}

/// Of a list in the file any storage may be the VM's, but one for all of its disks.
#[tokio::test]
async fn a_vm_is_made_on_one_storage_of_the_list() {
    let of = |storage| {
        let mark = bare(9050);
        new_vm().params(&mark, &mark.describe("for the shop"), (storage, DISK))
    };
    let rig = rig::rig();
    let reply = send(&rig, PATH, &of("nvme")).await;
    assert_eq!(reply.outcome, "done", "{reply:?}");
    let rig = rig::rig();
    let reply = send(&rig, PATH, &of("fast")).await;
    rig.refused(&reply, "not listed");
    let mut mixed = of("nvme");
    let drive = mixed.iter_mut().find(|(key, _)| key == "ide0");
    let (_, drive) = drive.expect("the cloud-init drive");
    "ceph:cloudinit".clone_into(drive);
    let rig = rig::rig();
    let reply = send(&rig, PATH, &mixed).await;
    rig.refused(&reply, "two storages");
}

/// Each of these would make a VM that is not the file's. A broker that compares one key less lets one of them pass.
#[tokio::test]
async fn one_key_that_differs_is_refused() {
    let whole = params(&bare(9050));
    let keys: Vec<String> = whole.iter().map(|(key, _)| key.clone()).collect();
    for key in &keys {
        for value in [
            None,
            Some("1"),
            Some("local:0,import-from=/etc/shadow"),
            Some("ceph:vm-300-disk-0"),
        ] {
            let mut params = whole.clone();
            match value {
                None => params.retain(|(name, _)| name != key),
                Some(value) => {
                    for (name, given) in &mut params {
                        if name == key {
                            value.clone_into(given);
                        }
                    }
                }
            }
            // The agent is switched on by the same value.
            if params == whole {
                continue;
            }
            let rig = rig::rig();
            let reply = send(&rig, PATH, &params).await;
            rig.refused(&reply, &format!("{key} {value:?}"));
            assert_eq!(rig.intent(9050), None, "{key} {value:?}");
        }
    }
    for further in [
        ("archive", "local:backup/a.vma"),
        ("force", "1"),
        ("start", "1"),
        ("args", "-S"),
        ("hookscript", "local:snippets/a"),
        ("cores", "2"),
        ("scsi1", "ceph:vm-300-disk-0"),
        ("ide2", "local:iso/a.iso,media=cdrom"),
        ("lock", "backup"),
        ("template", "1"),
        ("unique", "1"),
        ("vmid", "9051"),
    ] {
        let rig = rig::rig();
        let mut params = whole.clone();
        params.push((further.0.to_owned(), further.1.to_owned()));
        let reply = send(&rig, PATH, &params).await;
        rig.refused(&reply, &format!("{further:?}"));
    }
}

#[tokio::test]
async fn only_marks_of_pools_that_are_made_so_pass() {
    for (what, path, mark) in [
        ("a pool whose VMs are cloned", PATH, mark(9050)),
        (
            "settings of a pool that clones",
            PATH,
            Mark {
                template: "bare".into(),
                ..mark(9050)
            },
        ),
        ("outside the range", PATH, bare(500)),
        ("a VMID that exists", PATH, bare(9002)),
        ("a host that it may not use", "/nodes/pve2/qemu", bare(9050)),
        (
            "no name of the pool",
            PATH,
            Mark {
                machine: "small-09050".into(),
                ..bare(9050)
            },
        ),
        (
            "another cluster",
            PATH,
            Mark {
                cluster: "0b5f3a6e/other".into(),
                ..bare(9050)
            },
        ),
        (
            "a type that the pool does not have",
            PATH,
            Mark {
                instance_type: "huge".into(),
                ..bare(9050)
            },
        ),
    ] {
        let rig = rig::rig();
        let reply = send(&rig, path, &params(&mark)).await;
        rig.refused(&reply, what);
    }
}

fn task(vmid: u32, user: &str, started: &str) -> Value {
    let upid = format!("UPID:pve1:0003A1B2:00C3D4E5:{started}:qmcreate:{vmid}:{user}:");
    json!({"upid": upid, "endtime": 1, "status": "unexpected status"})
}

/// The placeholder of a create that died, after its quarantine, with what PVE's list of tasks shows.
async fn destroyed(tasks: Value, lock: &str, age: Span) -> Reply {
    let rig = rig::rig();
    let reply = send(&rig, PATH, &params(&bare(9050))).await;
    assert_eq!(reply.outcome, "done");
    let path = rig.state.path().join("intents/9050.json");
    let mut intent = rig.intent(9050).expect("an intent");
    intent["task"] = json!("UPID:pve1:0003A1B2:00C3D4E5:6AFD0000:qmcreate:9050:root@pam:");
    std::fs::write(&path, intent.to_string()).expect("written");
    tokio::time::advance(age.to_std()).await;
    rig.world.placeholder(9050);
    rig.world.set(9050, "lock", json!(lock));
    rig.world.set(9050, "description", json!(""));
    rig.world
        .answer("/nodes/pve1/tasks", 200, &json!({ "data": tasks }));
    let failed = json!({"data": {"status": "stopped", "exitstatus": "unexpected status"}});
    let own = "/nodes/pve1/tasks/UPID%3Apve1%3A0003A1B2%3A00C3D4E5%3A6AFD0000%3Aqmcreate%3A9050%3Aroot%40pam%3A/status";
    rig.world.answer(own, 200, &failed);
    rig.send("DELETE", "/nodes/pve1/qemu/9050", &[("purge", "1")])
        .await
}

#[tokio::test(start_paused = true)]
async fn what_a_dead_create_left_goes_after_its_quarantine_and_nothing_else() {
    let hour = Span::minutes(60);
    let own = || task(9050, "root@pam", "6AFD0000");
    let reply = destroyed(json!([own()]), "create", hour).await;
    assert_eq!(reply.outcome, "done", "{reply:?}");
    // Others make other VMs meanwhile.
    let other = task(9051, "root@pam", "6AFD0001");
    let reply = destroyed(json!([own(), other]), "create", hour).await;
    assert_eq!(reply.outcome, "done", "{reply:?}");
    for (what, tasks, lock, age) in [
        ("in quarantine", json!([own()]), "create", Span::ZERO),
        ("a clone's lock", json!([own()]), "clone", hour),
        ("a backup's lock", json!([own()]), "backup", hour),
        (
            "somebody else's at the same VMID",
            json!([own(), task(9050, "ann@pam", "6AFD0001")]),
            "create",
            hour,
        ),
    ] {
        let reply = destroyed(tasks, lock, age).await;
        assert_eq!(reply.outcome, "refused-by-broker", "{what}: {reply:?}");
    }
}

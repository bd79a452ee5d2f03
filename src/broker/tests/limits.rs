//! Machines, cores and memory stay within the configuration's limits, whoever asks.

use futures::future::join_all;
use serde_json::json;

use super::rig::{Rig, rig, rig_with};
use super::world::{HOST, UPID, mark, policy};
use crate::broker::policy::BrokerPolicy;
use crate::config::settings::{PoolAllow, TypeAllow};
use crate::model::mark::Mark;
use crate::model::time::Span;

/// The policy with this change of its pool.
fn limited(change: impl FnOnce(&mut PoolAllow)) -> BrokerPolicy {
    let mut policy = policy();
    change(policy.allow.pools.get_mut("small").expect("the pool"));
    policy
}

/// A world in which nothing of ours is.
fn empty(policy: BrokerPolicy) -> Rig {
    let rig = rig_with(policy);
    for vmid in [9001, 9010] {
        rig.world.vms.lock().expect("held").remove(&vmid);
    }
    rig
}

async fn clones(rig: &Rig, vmids: std::ops::Range<u32>) -> Vec<String> {
    let calls = vmids.map(|vmid| async move {
        let reply = rig.clone_of(9000, vmid, &mark(vmid)).await;
        format!(
            "{}: {}",
            reply.outcome,
            String::from_utf8_lossy(&reply.body)
        )
    });
    join_all(calls).await
}

#[tokio::test]
async fn of_forty_clones_at_once_pass_as_many_as_the_pool_may_have() {
    let rig = empty(limited(|pool| pool.max = 2));
    let said = clones(&rig, 9020..9060).await;
    let done = said.iter().filter(|said| said.starts_with("done")).count();
    assert_eq!((done, rig.world.changes().len()), (2, 2));
    let words = "pool small would have 3 machines with those being made, its most is 2";
    let refused = said.iter().filter(|said| said.contains(words)).count();
    assert_eq!(refused, 38, "{said:?}");
    // A broker that was started anew counts what was let through.
    let rig = rig.again(limited(|pool| pool.max = 2));
    let said = clones(&rig, 9060..9061).await;
    assert!(said[0].contains("3 machines"), "{said:?}");
    // The same machine again is no other machine.
    let first = rig.clone_of(9000, 9020, &mark(9020)).await;
    assert_eq!(first.outcome, "done", "{first:?}");
}

/// New machines get other VMIDs than those whose clone failed: what is recorded of these is replaced by nothing.
#[tokio::test]
async fn clones_that_are_over_and_left_no_vm_take_no_room() {
    let rig = empty(limited(|pool| pool.max = 2));
    let said = clones(&rig, 9020..9022).await;
    assert!(said.iter().all(|said| said.starts_with("done")), "{said:?}");
    let said = clones(&rig, 9022..9023).await;
    assert!(said[0].contains("3 machines"), "they run: {said:?}");
    let status = UPID.replace(':', "%3A").replace('@', "%40");
    let status = format!("/nodes/{HOST}/tasks/{status}/status");
    let failed = json!({ "data": { "status": "stopped", "exitstatus": "no space left" } });
    rig.world.answer(&status, 200, &failed);
    let said = clones(&rig, 9022..9024).await;
    assert!(said.iter().all(|said| said.starts_with("done")), "{said:?}");
    // What a clone that is over has made counts, however it looks.
    rig.world.placeholder(9022);
    rig.world.put(9023, &mark(9023).line());
    let said = clones(&rig, 9024..9025).await;
    assert!(said[0].contains("3 machines"), "{said:?}");
    // Nor do they keep a machine from being started.
    let path = "/nodes/pve1/qemu/9023/status/start";
    let start = rig.send("POST", path, &[]).await;
    assert_eq!(start.outcome, "done", "{start:?}");
}

#[tokio::test]
async fn an_answer_without_a_list_is_no_empty_region() {
    for data in [json!(null), json!({}), json!("")] {
        let rig = rig_with(limited(|pool| pool.max = 2));
        let answer = json!({ "data": data });
        rig.world.answer("/cluster/resources", 200, &answer);
        let said = clones(&rig, 9020..9021).await;
        assert!(said[0].contains("cannot be used"), "{data}: {said:?}");
        assert_eq!(rig.world.changes().len(), 0);
    }
}

#[tokio::test]
async fn marked_vms_count_whoever_made_them_and_others_do_not() {
    // Two are ours, in a range full of others' VMs.
    let rig = rig_with(limited(|pool| pool.max = 2));
    let said = clones(&rig, 9020..9021).await;
    assert!(said[0].contains("3 machines"), "{said:?}");
    let rig = rig_with(limited(|pool| pool.max = 3));
    let said = clones(&rig, 9020..9022).await;
    assert!(said[0].starts_with("done"), "{said:?}");
    assert!(said[1].contains("4 machines"), "{said:?}");
    // Nor do machines of another pool count for this one.
    let mut two = limited(|pool| pool.max = 3);
    let small = two.allow.pools["small"].clone();
    two.allow.pools.insert("large".to_owned(), small);
    let rig = rig_with(two);
    let large = Mark {
        pool: "large".into(),
        machine: "large-09001".into(),
        ..mark(9001)
    };
    rig.world.put(9001, &large.line());
    let said = clones(&rig, 9020..9023).await;
    let done = said.iter().filter(|said| said.starts_with("done")).count();
    assert_eq!(done, 2, "{said:?}");
}

/// Nobody can look at them, so that their names would make them machines.
#[tokio::test]
async fn a_container_or_a_template_with_a_machines_name_is_no_machine() {
    for (kind, template, counts) in [("qemu", 0, true), ("lxc", 0, false), ("qemu", 1, false)] {
        let rig = empty(limited(|pool| pool.max = 1));
        let row = serde_json::json!({"type": kind, "node": HOST, "vmid": 9040, "name": "small-12345", "template": template});
        let host = serde_json::json!({"type": "node", "node": HOST, "status": "online"});
        let all = serde_json::json!({ "data": [host, row] });
        rig.world.answer("/cluster/resources", 200, &all);
        let config = format!("/nodes/{HOST}/qemu/9040/config");
        rig.world.answer(&config, 595, &serde_json::Value::Null);
        let said = clones(&rig, 9020..9021).await;
        assert_eq!(!said[0].starts_with("done"), counts, "{kind}: {said:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_lost_its_mark_stops_counting() {
    let rig = rig_with(limited(|pool| pool.max = 2));
    assert!(clones(&rig, 9020..9021).await[0].contains("3 machines"));
    rig.world.put(9001, "mine now");
    tokio::time::advance(Span::minutes(2).to_std()).await;
    assert!(clones(&rig, 9020..9021).await[0].starts_with("done"));
}

#[tokio::test]
async fn a_machine_whose_host_is_away_counts_by_record_and_by_name() {
    for recorded in [true, false] {
        let rig = rig_with(limited(|pool| pool.max = 2));
        if recorded {
            let ping = format!("/nodes/{HOST}/qemu/9001/agent/ping");
            assert_eq!(rig.send("POST", &ping, &[]).await.outcome, "done");
        }
        for vmid in [9001, 9002] {
            let path = format!("/nodes/{HOST}/qemu/{vmid}/config");
            rig.world.answer(&path, 595, &json!(null));
        }
        // 9002 has a machine's name here; nothing else tells what it is.
        let said = clones(&rig, 9020..9021).await;
        assert!(said[0].contains("would have 4 machines"), "{said:?}");
    }
}

/// A change of the policy, and what the refusal says.
type Limit = (fn(&mut BrokerPolicy), &'static str);

#[tokio::test]
async fn cores_and_memory_count_by_instance_type() {
    let cases: [Limit; 6] = [
        (
            |p| small(p).max_cpu_milli = Some(31_999),
            "pool small would have 32000 millicores, its most is 31999",
        ),
        (
            |p| small(p).max_memory = Some((64 << 30) - 1),
            "pool small would have 65536 MiB of memory, its most is 65535",
        ),
        (
            |p| p.allow.max_cpu_milli = Some(31_999),
            "the region would have 32000 millicores",
        ),
        (
            |p| p.allow.max_memory_total = Some((64 << 30) - 1),
            "the region would have 65536 MiB",
        ),
        (
            |p| p.allow.max_machines = Some(3),
            "the region would have 4 machines",
        ),
        (|p| small(p).max = 3, "pool small would have 4 machines"),
    ];
    for (change, words) in cases {
        let mut policy = policy();
        change(&mut policy);
        let rig = rig_with(policy);
        let said = clones(&rig, 9020..9022).await;
        assert!(said[0].starts_with("done"), "{words}: {said:?}");
        assert!(said[1].contains(words), "{words}: {said:?}");
    }
    // At the limit itself there is room.
    let mut policy = policy();
    small(&mut policy).max_cpu_milli = Some(32_000);
    small(&mut policy).max_memory = Some(64 << 30);
    policy.allow.max_machines = Some(4);
    let said = clones(&rig_with(policy), 9020..9022).await;
    assert!(said.iter().all(|said| said.starts_with("done")), "{said:?}");
}

fn small(policy: &mut BrokerPolicy) -> &mut PoolAllow {
    policy.allow.pools.get_mut("small").expect("the pool")
}

#[tokio::test]
async fn a_clone_is_what_its_pool_says() {
    let mut policy = policy();
    policy.allow.template_vmids.push(200);
    policy
        .allow
        .types
        .insert("s9".to_owned(), TypeAllow::default());
    small(&mut policy).hosts = vec!["pve1".to_owned()];
    for (what, template, mark) in [
        (
            "not in the configuration",
            9000,
            Mark {
                pool: "other".into(),
                ..mark(9050)
            },
        ),
        (
            "does not have",
            9000,
            Mark {
                instance_type: "s9".into(),
                ..mark(9050)
            },
        ),
        ("not the template of pool", 200, mark(9050)),
        (
            "not named after",
            9000,
            Mark {
                machine: "web-1".into(),
                ..mark(9050)
            },
        ),
        (
            "not named after",
            9000,
            Mark {
                machine: "small-123456".into(),
                ..mark(9050)
            },
        ),
        (
            "not named after",
            9000,
            Mark {
                machine: "smallx12345".into(),
                ..mark(9050)
            },
        ),
    ] {
        let rig = rig_with(policy.clone());
        let reply = rig.clone_of(template, 9050, &mark).await;
        rig.refused(&reply, what);
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        assert!(text.contains(what), "{what}: {text}");
    }
    let rig = rig_with(policy);
    let line = mark(9050).line();
    let params = [
        ("newid", "9050"),
        ("name", "small-09050"),
        ("description", &*line),
        ("target", "pve2"),
    ];
    let said = rig
        .said("POST", "/nodes/pve1/qemu/9000/clone", &params)
        .await;
    assert!(said.contains("may not use host pve2"), "{said}");
}

#[tokio::test]
async fn no_machine_is_larger_than_its_type() {
    let config = format!("/nodes/{HOST}/qemu/9001/config");
    let start = format!("/nodes/{HOST}/qemu/9001/status/start");
    let mut policy = policy();
    let largest = TypeAllow {
        cores: 32,
        memory: 64 << 30,
        disk: 0,
        pci: Vec::new(),
    };
    policy.allow.types.insert("s32".to_owned(), largest);
    policy.allow.max_cores = 32;
    policy.allow.max_memory = 64 << 30;
    policy.allow.max_disk = 128 << 30;
    let rig = rig_with(policy.clone());
    for (key, value) in [("cores", "9"), ("memory", "16385")] {
        let said = rig.said("PUT", &config, &[(key, value)]).await;
        assert!(
            said.contains("its instance type s2 has 8 and 16384"),
            "{said}"
        );
    }
    let resize = format!("/nodes/{HOST}/qemu/9001/resize");
    let disk = async |size: &str| {
        let reply = rig
            .send("PUT", &resize, &[("disk", "scsi0"), ("size", size)])
            .await;
        (
            reply.outcome,
            String::from_utf8_lossy(&reply.body).into_owned(),
        )
    };
    assert!(
        disk("65G")
            .await
            .1
            .contains("larger than the 64 GiB of its instance type s2")
    );
    assert_eq!(disk("64G").await.0, "done");
    rig.world.sent.lock().expect("held").clear();
    // A clone has its template's size until it is configured.
    rig.world.set(9001, "cores", json!(16));
    let said = rig.said("POST", &start, &[]).await;
    assert!(said.contains("would have 16 cores"), "{said}");
    rig.world.set(9001, "cores", json!(2));
    rig.world.set(9001, "memory", json!("32768"));
    let said = rig.said("POST", &start, &[]).await;
    assert!(said.contains("and 32768 MiB"), "{said}");
    assert!(rig.world.changes().is_empty());
    // What a person gives it after that is the person's affair.
    assert_eq!(
        rig.send("PUT", &config, &[("memory", "16384")])
            .await
            .outcome,
        "done"
    );
    assert_eq!(rig.send("POST", &start, &[]).await.outcome, "done");
    // A type that the configuration does not have has no size.
    small(&mut policy).types.clear();
    policy.allow.types.remove("s2");
    let rig = rig_with(policy);
    let said = rig.said("POST", &start, &[]).await;
    assert!(
        said.contains("s2 of VM 9001 is not in the configuration"),
        "{said}"
    );
}

#[tokio::test]
async fn above_a_limit_nothing_is_configured_or_started() {
    let rig = rig_with(limited(|pool| pool.max = 1));
    let said = rig
        .said("POST", "/nodes/pve1/qemu/9001/status/start", &[])
        .await;
    assert!(
        said.contains("VM 9001 is not started: pool small would have 2 machines"),
        "{said}"
    );
    let said = rig
        .said("PUT", "/nodes/pve1/qemu/9001/config", &[("cores", "2")])
        .await;
    assert!(said.contains("VM 9001 is not given its size"), "{said}");
    assert!(rig.world.changes().is_empty());
    // What leads to less goes on.
    for (method, path, params) in [
        ("PUT", "/nodes/pve1/qemu/9001/config", vec![("tags", "a")]),
        (
            "POST",
            "/nodes/pve1/qemu/9001/status/shutdown",
            vec![("timeout", "60")],
        ),
        ("DELETE", "/nodes/pve1/qemu/9001", vec![("purge", "1")]),
    ] {
        assert_eq!(
            rig.send(method, path, &params).await.outcome,
            "done",
            "{path}"
        );
    }
}

#[tokio::test]
async fn the_vmid_of_csi_volumes_is_no_machines() {
    let mut policy = policy();
    policy.allow.vmids = vec![(9001, 10_050)];
    let rig = rig_with(policy);
    let reply = rig.clone_of(9000, 9999, &mark(9999)).await;
    rig.refused(&reply, "9999");
    assert!(String::from_utf8_lossy(&reply.body).contains("Proxmox CSI plugin"));
    // One from before this was known goes, but never with somebody's volumes.
    for vmid in [9999, 9001] {
        rig.world.put(vmid, &mark(vmid).line());
        let volume = format!("ceph:vm-{vmid}-pvc-0b5f,size=8G");
        rig.world.set(vmid, "scsi7", json!(volume));
        let path = format!("/nodes/pve1/qemu/{vmid}");
        let said = rig.said("DELETE", &path, &[("purge", "1")]).await;
        assert!(said.contains("-pvc-0b5f attached"), "{said}");
        assert!(rig.world.changes().is_empty());
    }
    rig.world.set(
        9999,
        "scsi7",
        json!("local:9999/vm-9999-disk-3.qcow2,size=8G"),
    );
    rig.world
        .set(9999, "scsi8", json!("ceph:vm-9998-pvc-1,size=8G"));
    rig.world
        .set(9999, "vmstate", json!("ceph:vm-9999-state-before"));
    let reply = rig
        .send("DELETE", "/nodes/pve1/qemu/9999", &[("purge", "1")])
        .await;
    assert_eq!(reply.outcome, "done", "{reply:?}");
    let sent = rig.world.changes();
    let names: Vec<&str> = sent[0].params.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["purge"], "disks that no VM has stay");
}

#[tokio::test]
async fn a_clone_that_the_checks_kept_too_long_is_not_sent() {
    let rig = rig();
    rig.world.answer("/cluster/resources", 595, &json!(null));
    let reply = rig.clone_of(9000, 9050, &mark(9050)).await;
    assert_eq!(reply.outcome, "not-sent");
    assert!(rig.world.changes().is_empty());
    assert_eq!(rig.intent(9050), None);
}

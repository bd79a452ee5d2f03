//! CPUs of machines for themselves: those that their mark reserves, on the host that the file has a topology of.

use std::sync::Arc;

use serde_json::{Value, json};

use super::rig::{rig, rig_with};
use super::world::{HOST, mark, policy};
use crate::broker::policy::BrokerPolicy;
use crate::model::cpus::CpuSet;
use crate::model::mark::Mark;
use crate::model::topology::{HostTopology, HugePages, NumaNode, Pinning};

fn cpus(text: &str) -> CpuSet {
    CpuSet::read(text).expect("a list")
}

/// Machines of the pool get CPUs, on a host with two NUMA nodes of eight.
fn pinned(hugepages: Option<HugePages>) -> BrokerPolicy {
    let mut policy = policy();
    let pool = policy.allow.pools.get_mut("small").expect("there");
    pool.pinning = Pinning {
        cpus: true,
        hugepages,
    };
    let numa = ["0-7", "8-15"].map(|text| NumaNode {
        cpus: cpus(text),
        memory: None,
    });
    let topology = HostTopology {
        numa: numa.into(),
        sockets: vec![cpus("0-15")],
        caches: vec![cpus("0-7"), cpus("8-15")],
        cores: (0..16).map(|cpu| CpuSet::from_iter([cpu])).collect(),
        reserved: cpus("0"),
        devices: std::collections::BTreeMap::new(),
    };
    let topologies = &mut policy.allow.topologies;
    topologies.insert(HOST.into(), Arc::new(topology));
    policy
}

fn marked(text: &str) -> String {
    let mark = Mark {
        cpus: cpus(text),
        ..mark(9001)
    };
    mark.line()
}

#[tokio::test]
async fn a_machine_gets_the_cpus_of_its_mark_and_the_memory_beside_them() {
    let path = format!("/nodes/{HOST}/qemu/9001/config");
    let node = "cpus=0-7,hostnodes=1,memory=16384,policy=bind";
    for (name, value, passes) in [
        ("affinity", "8-15", true),
        ("affinity", "8-14", false),
        ("affinity", "7-14", false),
        ("affinity", "8,9-15", false),
        ("affinity", "", false),
        ("affinity", "8-15 --x", false),
        ("numa", "1", true),
        ("numa", "0", false),
        ("numa", "2", false),
        ("numa0", node, true),
        ("numa1", node, false),
        (
            "numa0",
            "cpus=0-7,hostnodes=0,memory=16384,policy=bind",
            false,
        ),
        (
            "numa0",
            "cpus=0-7,hostnodes=1,memory=8192,policy=bind",
            false,
        ),
        ("numa0", "cpus=0-7,memory=16384", false),
        ("hugepages", "2", false),
        ("delete", "numa1", true),
        ("delete", "affinity", false),
        ("keephugepages", "1", false),
    ] {
        let rig = rig_with(pinned(None));
        rig.world.put(9001, &marked("8-15"));
        let reply = rig.send("PUT", &path, &[(name, value)]).await;
        if passes {
            assert_eq!(reply.outcome, "done", "{name}={value}: {reply:?}");
        } else {
            rig.refused(&reply, &format!("{name}={value}"));
        }
    }
    // A mark without CPUs, with reserved ones, with others than there are: the machine gets none.
    for text in ["0-7", "9-16", "8-14"] {
        let rig = rig_with(pinned(None));
        rig.world.put(9001, &marked(text));
        let reply = rig.send("PUT", &path, &[("affinity", text)]).await;
        rig.refused(&reply, text);
    }
    let rig = rig_with(pinned(None));
    let reply = rig.send("PUT", &path, &[("affinity", "8-15")]).await;
    rig.refused(&reply, "a mark without CPUs");
    // Where no pool has CPUs of its own nobody gets any.
    for (name, value) in [
        ("affinity", "8-15"),
        ("numa", "1"),
        ("numa0", node),
        ("hugepages", "1024"),
    ] {
        let rig = super::rig::rig();
        rig.world.put(9001, &marked("8-15"));
        let reply = rig.send("PUT", &path, &[(name, value)]).await;
        rig.refused(&reply, &format!("{name} of a pool without"));
    }
}

#[tokio::test]
async fn huge_pages_are_of_the_size_that_the_pool_has() {
    let path = format!("/nodes/{HOST}/qemu/9001/config");
    for (value, passes) in [("1024", true), ("2", false), ("any", false)] {
        let rig = rig_with(pinned(Some(HugePages::OneGib)));
        rig.world.put(9001, &marked("8-15"));
        let reply = rig.send("PUT", &path, &[("hugepages", value)]).await;
        assert_eq!(reply.outcome == "done", passes, "{value}: {reply:?}");
    }
}

#[tokio::test]
async fn which_cpus_guests_have_is_told_where_machines_get_some() {
    let guest = "/nodes/pve1/qemu/300/config";
    for (rig, tells) in [(rig_with(pinned(None)), true), (rig(), false)] {
        for (key, value) in [
            ("affinity", "3,1-2"),
            ("numa0", "cpus=0-1,hostnodes=1,memory=1024,policy=bind"),
            ("args", "-secret"),
        ] {
            rig.world.set(300, key, json!(value));
        }
        let reply = rig.send("GET", guest, &[]).await;
        let body: Value = serde_json::from_slice(&reply.body).expect("JSON");
        let data = &body["data"];
        let wanted = |value: &str| if tells { json!(value) } else { json!(null) };
        assert_eq!(data["affinity"], wanted("1-3"));
        assert_eq!(data["numa0"], wanted("hostnodes=1,memory=1024"));
        assert_eq!(data["args"], json!(null));
        rig.world.set(300, "affinity", json!("every second"));
        let reply = rig.send("GET", guest, &[]).await;
        let body: Value = serde_json::from_slice(&reply.body).expect("JSON");
        assert_eq!(body["data"]["affinity"], wanted("?"));
    }
}

fn marked_as(vmid: u32, text: &str) -> Mark {
    Mark {
        cpus: cpus(text),
        ..mark(vmid)
    }
}

/// A clone gets no CPU that another machine of ours has on that host: one that is there, or one whose clone is under way.
#[tokio::test]
async fn a_clone_gets_no_cpu_of_another_machine() {
    let rig = rig_with(pinned(None));
    rig.world.put(9040, &marked_as(9040, "1-7,15").line());
    let reply = rig.clone_of(9000, 9050, &marked_as(9050, "8-15")).await;
    let said = String::from_utf8_lossy(&reply.body).into_owned();
    assert_eq!(reply.outcome, "refused-by-broker", "{said}");
    let words = "small-09050 does not get the CPUs 15 of pve1: VM 9040 has them";
    assert!(said.contains(words), "{said}");
    // A broker that knows nothing of earlier looks.
    let rig = rig.again(pinned(None));
    rig.world.put(9040, &mark(9040).line());
    let first = rig.clone_of(9000, 9050, &marked_as(9050, "8-15")).await;
    assert_eq!(first.outcome, "done", "{first:?}");
    let reply = rig.clone_of(9000, 9051, &marked_as(9051, "1-8")).await;
    let said = String::from_utf8_lossy(&reply.body).into_owned();
    assert!(
        said.contains("the CPUs 8 of pve1: VM 9050 has them"),
        "{said}"
    );
    assert_eq!(rig.intent(9050).expect("there")["cpus"][0], "pve1");
    // The same after a new start, by the record.
    let rig = rig.again(pinned(None));
    let reply = rig.clone_of(9000, 9051, &marked_as(9051, "1-8")).await;
    assert_eq!(reply.outcome, "refused-by-broker", "{reply:?}");
}

/// PVE shows a VM on its template's host until its clone ends; its CPUs are of the host that it goes to.
#[tokio::test]
async fn a_clone_under_way_has_the_cpus_of_the_host_that_it_goes_to() {
    let mut policy = pinned(None);
    let topologies = &mut policy.allow.topologies;
    let here = Arc::clone(&topologies[HOST]);
    topologies.insert("pve2".into(), here);
    let rig = rig_with(policy);
    let path = format!("/nodes/{HOST}/qemu/9000/clone");
    let clone = async |vmid: u32, target: Option<&str>| {
        let mark = marked_as(vmid, "8-15");
        let (newid, description) = (vmid.to_string(), mark.line());
        let mut params = vec![
            ("newid", newid.as_str()),
            ("name", mark.machine.as_str()),
            ("description", description.as_str()),
        ];
        params.extend(target.map(|target| ("target", target)));
        let reply = rig.send("POST", &path, &params).await;
        rig.world.placeholder(vmid);
        let said = String::from_utf8_lossy(&reply.body).into_owned();
        (reply.outcome, said)
    };
    assert_eq!(clone(9050, Some("pve2")).await.0, "done");
    assert_eq!(
        clone(9051, None).await.0,
        "done",
        "other CPUs: another host's"
    );
    let (outcome, said) = clone(9052, Some("pve2")).await;
    assert_eq!(outcome, "refused-by-broker", "{said}");
    let words = "small-09052 does not get the CPUs 8-15 of pve2: VM 9050 has them";
    assert!(said.contains(words), "{said}");
}

/// Of two machines with one CPU the one that was configured first has it, else the lower VMID; a VM on another host is in nobody's way.
#[tokio::test]
async fn a_vm_gets_no_affinity_with_a_cpu_of_another_machine() {
    let path = |vmid: u32| format!("/nodes/{HOST}/qemu/{vmid}/config");
    let write = async |rig: &super::rig::Rig, vmid: u32| {
        rig.send("PUT", &path(vmid), &[("affinity", "8-15")]).await
    };
    let rig = rig_with(pinned(None));
    rig.world.put(9050, &marked_as(9050, "8-15").line());
    rig.world.put(9051, &marked_as(9051, "8-15").line());
    let reply = write(&rig, 9051).await;
    let said = String::from_utf8_lossy(&reply.body).into_owned();
    let words = "VM 9051 does not get the CPUs 8-15 of pve1: VM 9050 has them";
    assert!(said.contains(words), "{said}");
    assert!(rig.world.changes().is_empty());
    assert_eq!(write(&rig, 9050).await.outcome, "done");
    assert_eq!(write(&rig, 9050).await.outcome, "done", "once more");
    assert_eq!(write(&rig, 9051).await.outcome, "refused-by-broker");
    // Nor is it started.
    let start = format!("/nodes/{HOST}/qemu/9051/status/start");
    let reply = rig.send("POST", &start, &[]).await;
    assert_eq!(reply.outcome, "refused-by-broker", "{reply:?}");
    // The one that was configured has it, whatever its VMID.
    let rig = rig_with(pinned(None));
    rig.world.put(9051, &marked_as(9051, "8-15").line());
    assert_eq!(write(&rig, 9051).await.outcome, "done");
    rig.world.put(9050, &marked_as(9050, "8-15").line());
    assert_eq!(write(&rig, 9050).await.outcome, "refused-by-broker");
    assert_eq!(write(&rig, 9051).await.outcome, "done", "once more");
}

/// A mark that somebody changed gives a machine that is configured already no CPU that another one has.
#[tokio::test]
async fn a_configured_vm_gets_no_other_affinity_with_a_cpu_of_another_machine() {
    let write = async |rig: &super::rig::Rig, vmid: u32, key: &str, value: &str| {
        let path = format!("/nodes/{HOST}/qemu/{vmid}/config");
        rig.send("PUT", &path, &[(key, value)]).await
    };
    let rig = rig_with(pinned(None));
    rig.world.put(9050, &mark(9050).line());
    assert_eq!(write(&rig, 9050, "cores", "8").await.outcome, "done");
    rig.world.put(9051, &marked_as(9051, "8-15").line());
    let reply = write(&rig, 9051, "affinity", "8-15").await;
    assert_eq!(reply.outcome, "done", "{reply:?}");
    rig.world.put(9050, &marked_as(9050, "8-15").line());
    assert_eq!(write(&rig, 9050, "cores", "8").await.outcome, "done");
    let reply = write(&rig, 9050, "affinity", "8-15").await;
    assert_eq!(reply.outcome, "refused-by-broker", "{reply:?}");
    // What it has it keeps: nothing is given to it.
    rig.world.set(9050, "affinity", serde_json::json!("8-15"));
    let reply = write(&rig, 9050, "affinity", "8-15").await;
    assert_eq!(reply.outcome, "done", "{reply:?}");
}

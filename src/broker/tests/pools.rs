//! PVE's resource pools: which VM may be moved to which.

use serde_json::json;

use super::rig::{rig, rig_with};
use super::world::{mark, policy};
use crate::broker::policy::BrokerPolicy;
use crate::model::mark::Mark;

/// Machines of `debian-13` are in `k8s`, those of `other` in `more`; `spare` is for clones alone.
fn pooled() -> BrokerPolicy {
    let mut policy = policy();
    let pair = |template: &str, pool: &str| (template.to_owned(), pool.to_owned());
    policy.allow.template_pools = [pair("debian-13", "k8s"), pair("other", "more")].into();
    let pools = ["k8s", "more", "spare"];
    policy.allow.resource_pools = pools.map(str::to_owned).into();
    policy
}

fn params<'a>(pool: &'a str, vms: &'a str) -> [(&'a str, &'a str); 3] {
    [("poolid", pool), ("vms", vms), ("allow-move", "1")]
}

#[tokio::test]
async fn a_machine_comes_to_its_templates_resource_pool_and_to_no_other() {
    for (pool, passes) in [
        ("k8s", true),
        ("more", false),
        ("spare", false),
        ("prod", false),
    ] {
        let rig = rig_with(pooled());
        let reply = rig.send("PUT", "/pools", &params(pool, "9001")).await;
        if passes {
            assert_eq!(reply.outcome, "done", "{reply:?}");
            let sent = rig.world.changes();
            assert_eq!(sent.len(), 1, "{sent:?}");
            assert_eq!(sent[0].path, "/pools");
        } else {
            rig.refused(&reply, pool);
        }
    }
    let rig = rig_with(pooled());
    let other = Mark {
        template: "other".into(),
        ..mark(9001)
    };
    rig.world.put(9001, &other.line());
    let reply = rig.send("PUT", "/pools", &params("k8s", "9001")).await;
    rig.refused(&reply, "the pool of another template");
    let reply = rig.send("PUT", "/pools", &params("more", "9001")).await;
    assert_eq!(reply.outcome, "done", "{reply:?}");
    // A template that the file gives no resource pool.
    let mut none = policy();
    none.allow.template_pools.clear();
    let rig = rig_with(none);
    let reply = rig.send("PUT", "/pools", &params("k8s", "9001")).await;
    rig.refused(&reply, "a pool that is for clones");
}

/// Each VM of the world that is not ours, one that is not there, and those of hosts that PVE does not show.
#[tokio::test]
async fn nobody_elses_vm_is_moved() {
    for vmid in [
        "9002", "9003", "9004", "9005", "9006", "9007", "9008", "9009", "9000", "200", "300",
        "400", "9050",
    ] {
        let rig = rig_with(pooled());
        let reply = rig.send("PUT", "/pools", &params("k8s", vmid)).await;
        rig.refused(&reply, vmid);
    }
    // PVE's list cannot be read: nothing is known of the VM.
    let rig = rig_with(pooled());
    rig.world
        .answer("/cluster/resources", 200, &json!({"data": null}));
    let reply = rig.send("PUT", "/pools", &params("k8s", "9001")).await;
    assert_eq!(reply.outcome, "not-sent", "{reply:?}");
    assert!(rig.world.changes().is_empty());
}

#[tokio::test]
async fn one_vm_is_moved_and_nothing_else_done_to_a_pool() {
    for wrong in [
        vec![("poolid", "k8s"), ("vms", "9001")],
        vec![("poolid", "k8s"), ("vms", "9001"), ("allow-move", "0")],
        vec![("poolid", "k8s"), ("vms", "9001,300"), ("allow-move", "1")],
        vec![("poolid", "k8s"), ("vms", "9001 300"), ("allow-move", "1")],
        vec![("poolid", "k8s"), ("allow-move", "1")],
        vec![("vms", "9001"), ("allow-move", "1")],
        [&params("k8s", "9001")[..], &[("delete", "1")]].concat(),
        [&params("k8s", "9001")[..], &[("storage", "local")]].concat(),
        [&params("k8s", "9001")[..], &[("comment", "x")]].concat(),
        [&params("k8s", "9001")[..], &[("vms", "300")]].concat(),
    ] {
        let rig = rig_with(pooled());
        let reply = rig.send("PUT", "/pools", &wrong).await;
        rig.refused(&reply, &format!("{wrong:?}"));
    }
    for (method, path) in [
        ("POST", "/pools"),
        ("DELETE", "/pools"),
        ("PUT", "/pools/k8s"),
    ] {
        let rig = rig();
        let reply = rig.send(method, path, &[("poolid", "k8s")]).await;
        rig.refused(&reply, &format!("{method} {path}"));
    }
}

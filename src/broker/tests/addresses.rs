//! Addresses of machines: those of the pool's network, each for one machine.

use serde_json::json;

use super::rig::rig_with;
use super::world::{HOST, mark, mark_at, networked};

#[tokio::test]
async fn a_clone_reserves_an_address_of_its_pools_network_that_no_other_has() {
    let rig = rig_with(networked());
    let refused = async |vmid: u32, last: u8, why: &str| {
        let reply = rig.clone_of(9000, vmid, &mark_at(vmid, last)).await;
        let said = String::from_utf8_lossy(&reply.body).into_owned();
        assert_eq!(reply.outcome, "refused-by-broker", "{said}");
        assert!(said.contains(why), "{said}");
    };
    refused(9050, 60, "192.0.2.60 is not in the ranges").await;
    let without = rig.clone_of(9000, 9050, &mark(9050)).await;
    assert_eq!(without.outcome, "refused-by-broker", "{without:?}");
    assert_eq!(
        rig.clone_of(9000, 9050, &mark_at(9050, 50)).await.outcome,
        "done"
    );
    // The first is not there yet: its intent holds the address.
    refused(
        9051,
        50,
        "small-09051 does not get the address 192.0.2.50: VM 9050 has it reserved already",
    )
    .await;
    rig.world.put(9052, &mark_at(9052, 52).line());
    refused(9051, 52, "VM 9052 has it reserved already").await;
    assert_eq!(
        rig.clone_of(9000, 9051, &mark_at(9051, 51)).await.outcome,
        "done"
    );
}

#[tokio::test]
async fn only_the_address_of_the_mark_is_written() {
    let rig = rig_with(networked());
    rig.world.put(9050, &mark_at(9050, 50).line());
    rig.world.put(9052, &mark(9052).line());
    let path = |vmid: u32| format!("/nodes/{HOST}/qemu/{vmid}/config");
    let write = async |vmid: u32, value: &str| {
        let params = [("ipconfig0", value), ("cores", "2")];
        rig.send("PUT", &path(vmid), &params).await
    };
    for (vmid, value, why) in [
        (
            9050,
            "ip=192.0.2.51/24,gw=192.0.2.1",
            "must be ip=192.0.2.50/24,gw=192.0.2.1",
        ),
        (
            9050,
            "ip=192.0.2.50/24",
            "what a template in the configuration says",
        ),
        (
            9050,
            "ip=192.0.2.50/16,gw=192.0.2.1",
            "what a template in the configuration says",
        ),
        (9050, "ip=dhcp", "must be ip=192.0.2.50/24"),
        (
            9052,
            "ip=192.0.2.50/24,gw=192.0.2.1",
            "no address is reserved",
        ),
    ] {
        let reply = write(vmid, value).await;
        rig.refused(&reply, value);
        let said = String::from_utf8_lossy(&reply.body).into_owned();
        assert!(said.contains(why), "{said}");
    }
    assert_eq!(
        write(9050, "ip=192.0.2.50/24,gw=192.0.2.1").await.outcome,
        "done"
    );
}

/// Two clones came to one address, by different daemons: the one that was configured keeps it, else the lower VMID.
#[tokio::test]
async fn of_two_with_one_address_one_is_configured() {
    let rig = rig_with(networked());
    for vmid in [9050, 9051, 9052] {
        rig.world.put(vmid, &mark_at(vmid, 50).line());
        rig.world.set(vmid, "status", json!("stopped"));
    }
    let write = async |vmid: u32| {
        let params = [
            ("ipconfig0", "ip=192.0.2.50/24,gw=192.0.2.1"),
            ("cores", "2"),
        ];
        let path = format!("/nodes/{HOST}/qemu/{vmid}/config");
        rig.send("PUT", &path, &params).await
    };
    let said =
        |reply: &crate::broker::service::Reply| String::from_utf8_lossy(&reply.body).into_owned();
    let reply = write(9051).await;
    assert!(
        said(&reply).contains("VM 9051 does not get the address 192.0.2.50: VM 9050 has it"),
        "{}",
        said(&reply)
    );
    assert_eq!(write(9050).await.outcome, "done");
    assert_eq!(
        write(9050).await.outcome,
        "done",
        "it may be written once more"
    );
    assert_eq!(write(9052).await.outcome, "refused-by-broker");
}

#[tokio::test]
async fn a_further_card_is_on_a_bridge_of_the_file_and_has_the_address_of_the_mark() {
    let mut policy = networked();
    let pool = policy.allow.pools.get_mut("small").expect("there");
    let network = pool.networks.remove(&0).expect("there");
    pool.networks.insert(1, network);
    let mut on_second = mark_at(9050, 50);
    let addresses = on_second.addresses.remove(&0).expect("there");
    on_second.addresses.insert(1, addresses);
    let rig = || {
        let rig = rig_with(policy.clone());
        rig.world.put(9050, &on_second.line());
        rig
    };
    let path = format!("/nodes/{HOST}/qemu/9050/config");
    for (name, value, passes) in [
        ("ipconfig1", "ip=192.0.2.50/24,gw=192.0.2.1", true),
        ("ipconfig1", "ip=192.0.2.51/24,gw=192.0.2.1", false),
        ("ipconfig0", "ip=192.0.2.50/24,gw=192.0.2.1", false),
        ("ipconfig2", "ip=192.0.2.50/24,gw=192.0.2.1", false),
        ("net1", "virtio,bridge=vmbr0,tag=20", true),
        ("net1", "virtio,bridge=vmbr9", false),
        ("net1", "virtio,bridge=vmbr0,tag=21", false),
        ("net1", "e1000,bridge=vmbr0", false),
        ("net8", "virtio,bridge=vmbr0", false),
        ("ipconfig8", "ip=dhcp", false),
    ] {
        let rig = rig();
        let reply = rig.send("PUT", &path, &[(name, value)]).await;
        if passes {
            assert_eq!(reply.outcome, "done", "{name}={value}: {reply:?}");
        } else {
            rig.refused(&reply, &format!("{name}={value}"));
        }
    }
    // A card that is there keeps its model and MAC.
    let rig = rig();
    let there = "e1000=BC:24:11:00:11:33,bridge=vmbr0";
    rig.world.set(9050, "net2", json!(there));
    for (value, passes) in [
        ("e1000=BC:24:11:00:11:33,bridge=vmbr1", true),
        ("virtio=BC:24:11:00:11:33,bridge=vmbr1", false),
        ("e1000=BC:24:11:00:11:34,bridge=vmbr1", false),
    ] {
        let reply = rig.send("PUT", &path, &[("net2", value)]).await;
        assert_eq!(reply.outcome == "done", passes, "{value}: {reply:?}");
    }
}

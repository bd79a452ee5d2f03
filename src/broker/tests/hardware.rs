//! Hardware that templates and pools name: what of it a machine may be given.

use std::collections::BTreeSet;

use serde_json::json;

use super::rig::rig_with;
use super::world::{HOST, mark, policy};
use crate::broker::policy::BrokerPolicy;
use crate::config::hardware::mac;
use crate::config::settings::BootDiskAllow;
use crate::model::mark::Mark;

fn disks(values: &[&str]) -> BTreeSet<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

/// Machines of the pool get a disk, a start order and so on.
fn equipped() -> BrokerPolicy {
    let mut policy = policy();
    let pool = policy.allow.pools.get_mut("small").expect("there");
    pool.disks.insert(
        "scsi2".to_owned(),
        disks(&["fast:100,iothread=1", "lists:100,iothread=1"]),
    );
    let mut other = pool.clone();
    other.disks = [("scsi2".to_owned(), disks(&["fast:200"]))].into();
    policy.allow.pools.insert("other".to_owned(), other);
    let guest = &mut policy.guest;
    guest.startups = ["order=20".to_owned()].into();
    guest.sockets = [2].into();
    guest.numas = [true].into();
    guest.models = ["e1000"].into();
    guest.mac_prefixes = ["02:00:00".to_owned()].into();
    guest.cpu_limits = [
        ("small".to_owned(), "2.5".to_owned()),
        ("other".to_owned(), "4".to_owned()),
    ]
    .into();
    guest.balloons = [("small".to_owned(), 1 << 30)].into();
    policy
}

#[tokio::test]
async fn a_machine_gets_what_its_template_and_pool_name_and_nothing_else() {
    let path = format!("/nodes/{HOST}/qemu/9001/config");
    for (name, value, passes) in [
        ("scsi2", "fast:100,iothread=1", true),
        ("scsi2", "lists:100,iothread=1", true),
        ("scsi2", "lists:100", false),
        ("scsi2", "fast:100", false),
        ("scsi2", "fast:101,iothread=1", false),
        ("scsi2", "slow:100,iothread=1", false),
        ("scsi2", "fast:200", false),
        ("scsi2", "fast:vm-300-disk-0", false),
        ("scsi2", "/dev/sda", false),
        ("scsi2", "fast:0,import-from=/dev/sda", false),
        ("scsi3", "fast:100,iothread=1", false),
        ("virtio1", "fast:100,iothread=1", false),
        ("scsi0", "fast:100,iothread=1", false),
        ("scsihw", "lsi", false),
        ("startup", "order=20", true),
        ("startup", "order=1", false),
        ("sockets", "2", true),
        ("sockets", "4", false),
        ("numa", "1", true),
        ("numa", "0", false),
        ("numa0", "cpus=0-1", false),
        ("cpulimit", "2.5", true),
        ("cpulimit", "4", false),
        ("cpulimit", "0", false),
        ("balloon", "0", true),
        ("balloon", "15360", true),
        ("balloon", "15359", false),
        ("balloon", "1024", false),
        ("onboot", "1", true),
    ] {
        let rig = rig_with(equipped());
        let reply = rig.send("PUT", &path, &[(name, value)]).await;
        if passes {
            assert_eq!(reply.outcome, "done", "{name}={value}: {reply:?}");
        } else {
            rig.refused(&reply, &format!("{name}={value}"));
        }
    }
}

#[tokio::test]
async fn a_disk_that_is_there_is_not_put_out_of_its_place() {
    let rig = rig_with(equipped());
    rig.world
        .set(9001, "scsi2", json!("fast:vm-9001-disk-1,size=100G"));
    let path = format!("/nodes/{HOST}/qemu/9001/config");
    let reply = rig
        .send("PUT", &path, &[("scsi2", "fast:100,iothread=1")])
        .await;
    rig.refused(&reply, "has a disk there already");
}

#[tokio::test]
async fn sockets_do_not_multiply_a_machine_past_the_largest_type() {
    let rig = rig_with(equipped());
    let path = format!("/nodes/{HOST}/qemu/9001/config");
    let both = [("sockets", "2"), ("cores", "8")];
    let reply = rig.send("PUT", &path, &both).await;
    rig.refused(
        &reply,
        "8 cores on 2 sockets are more than the largest instance type has",
    );
    let half = [("sockets", "2"), ("cores", "4")];
    assert_eq!(rig.send("PUT", &path, &half).await.outcome, "done");
}

#[tokio::test]
async fn a_card_may_have_the_model_that_is_named_and_the_mac_of_its_vmid() {
    let own = mac("02:00:00", 9001, 0);
    let (of_card, of_vm) = (mac("02:00:00", 9001, 1), mac("02:00:00", 9002, 0));
    let path = format!("/nodes/{HOST}/qemu/9001/config");
    let given = |model: &str, mac: &str| format!("{model}={mac},bridge=vmbr0");
    for (value, passes) in [
        (given("e1000", &own), true),
        (given("virtio", &own), true),
        (given("rtl8139", &own), false),
        (given("virtio", &of_card), false),
        (given("virtio", &of_vm), false),
        (given("virtio", "02:00:00:00:00:01"), false),
        (given("virtio", "BC:24:11:00:00:01"), false),
    ] {
        let rig = rig_with(equipped());
        rig.world
            .set(9001, "net0", json!("virtio=BC:24:11:00:11:22,bridge=vmbr0"));
        let reply = rig.send("PUT", &path, &[("net0", &value)]).await;
        assert_eq!(reply.outcome == "done", passes, "{value}: {reply:?}");
    }
    // A card that the template does not have.
    for (value, passes) in [
        (format!("e1000={of_card},bridge=vmbr0"), true),
        (format!("virtio={own},bridge=vmbr0"), false),
        ("rtl8139,bridge=vmbr0".to_owned(), false),
    ] {
        let rig = rig_with(equipped());
        let reply = rig.send("PUT", &path, &[("net1", &value)]).await;
        assert_eq!(reply.outcome == "done", passes, "{value}: {reply:?}");
    }
}

#[tokio::test]
async fn the_limit_of_another_pool_is_not_this_machines() {
    let other = Mark {
        pool: "other".into(),
        ..mark(9001)
    };
    let rig = rig_with(equipped());
    rig.world.put(9001, &other.line());
    let path = format!("/nodes/{HOST}/qemu/9001/config");
    for (name, value, passes) in [
        ("cpulimit", "4", true),
        ("cpulimit", "2.5", false),
        ("balloon", "15360", false),
        ("scsi2", "fast:200", true),
    ] {
        let reply = rig.send("PUT", &path, &[(name, value)]).await;
        assert_eq!(reply.outcome == "done", passes, "{name}={value}: {reply:?}");
    }
}

/// Of the disk that a machine boots from the options change that the file has for its template, and nothing else of it: not its volume, no other
/// option, no other disk.
#[tokio::test]
async fn a_boot_disk_gets_the_options_of_the_file_and_nothing_else() {
    let path = format!("/nodes/{HOST}/qemu/9001/config");
    let with_options = |template: &str, slot: Option<&str>| {
        let mut policy = policy();
        let options = [("cache", "writeback"), ("mbps_wr", "50")];
        let options = options.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let allow = BootDiskAllow {
            slot: slot.map(str::to_owned),
            options: options.into(),
        };
        policy.allow.template_boot_disks = [(template.to_owned(), allow)].into();
        policy
    };
    let now = "ceph:vm-9001-disk-0,cache=none,discard=on,size=8G";
    let right = "ceph:vm-9001-disk-0,cache=writeback,discard=on,mbps_wr=50,size=8G";
    for (template, slot, name, value, passes) in [
        ("debian-13", None, "scsi0", right, true),
        ("debian-13", Some("scsi0"), "scsi0", right, true),
        ("debian-13", Some("scsi1"), "scsi0", right, false),
        ("debian-13", Some("scsi1"), "scsi1", right, false),
        ("other", None, "scsi0", right, false),
        ("debian-13", None, "scsi0", now, false),
        ("debian-13", None, "virtio0", right, false),
        ("debian-13", None, "scsi2", right, false),
        (
            "debian-13",
            None,
            "scsi0",
            "ceph:vm-300-disk-0,cache=writeback,discard=on,mbps_wr=50,size=8G",
            false,
        ),
        (
            "debian-13",
            None,
            "scsi0",
            "ceph:8,cache=writeback,discard=on,mbps_wr=50,size=8G",
            false,
        ),
        (
            "debian-13",
            None,
            "scsi0",
            "ceph:vm-9001-disk-0,cache=writeback,discard=on,mbps_wr=50,ro=1,size=8G",
            false,
        ),
        (
            "debian-13",
            None,
            "scsi0",
            "/dev/sda,cache=writeback,mbps_wr=50",
            false,
        ),
    ] {
        let rig = rig_with(with_options(template, slot));
        rig.world.set(9001, "scsi0", json!(now));
        let reply = rig.send("PUT", &path, &[(name, value)]).await;
        if passes {
            assert_eq!(reply.outcome, "done", "{name}={value}: {reply:?}");
        } else {
            rig.refused(&reply, &format!("{template} {slot:?} {name}={value}"));
        }
    }
}

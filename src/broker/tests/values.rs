//! Values of configuration writes and resizes, judged against policy and VM.

use serde_json::json;

use super::rig::rig;
use super::world::{HOST, mark};
use crate::model::mark::Mark;

type Row = (&'static str, &'static str, bool);

/// Key, value, and whether it passes.
const VALUES: &[Row] = &[
    ("name", "small-09001", true),
    ("name", "small-09002", false),
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
    ("cpuunits", "300", true),
    ("cpuunits", "301", false),
    ("cpuunits", "0300", false),
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
    // A template's minimum: without the key PVE takes nothing of the machine's memory.
    ("delete", "balloon", true),
    ("delete", "description", false),
    ("delete", "sshkeys", false),
    ("delete", "sockets,net0", false),
    ("digest", "../x", false),
];

/// The VM has `virtio=BC:24:11:00:11:22,bridge=vmbr9,firewall=1,tag=7`.
const NICS: &[Row] = &[
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
    (
        "net0",
        "virtio=BC:24:11:00:11:22,bridge=vmbr0,firewall=1,mtu=1400,queues=8,tag=20",
        true,
    ),
    (
        "net0",
        "virtio=BC:24:11:00:11:22,bridge=vmbr0,firewall=1,mtu=1500,tag=20",
        false,
    ),
    (
        "net0",
        "virtio=BC:24:11:00:11:22,bridge=vmbr0,firewall=1,queues=4,tag=20",
        false,
    ),
    (
        "net0",
        "virtio=BC:24:11:00:11:22,bridge=vmbr0,firewall=1,queues=0,tag=20",
        false,
    ),
    (
        "net0",
        "virtio=BC:24:11:00:11:22,bridge=vmbr0,firewall=1,mtu=1400,mtu=1400,tag=20",
        false,
    ),
    (
        "net0",
        "virtio=BC:24:11:00:11:22,bridge=vmbr0,firewall=1,rate=5,tag=20",
        false,
    ),
    (
        "net0",
        "virtio=BC:24:11:00:11:22,bridge=vmbr0,firewall=1,rate=125,tag=20",
        true,
    ),
    (
        "net0",
        "virtio=BC:24:11:00:11:22,bridge=vmbr0,firewall=1,rate=125,rate=5,tag=20",
        false,
    ),
    (
        "net0",
        "virtio=BC:24:11:00:11:22,bridge=vmbr0,firewall=1,firewall=0,tag=20",
        false,
    ),
];

/// Cards that the VM does not have: the plainest one, on a bridge of the file, with what the file names.
const NEW_NICS: &[Row] = &[
    ("net1", "virtio,bridge=vmbr0", true),
    ("net1", "virtio,bridge=vmbr1,tag=20", true),
    ("net1", "virtio,bridge=vmbr0,mtu=1400,queues=8", true),
    ("net1", "virtio,bridge=vmbr2", false),
    ("net1", "virtio", false),
    ("net1", "virtio,bridge=vmbr0,tag=21", false),
    ("net1", "virtio,bridge=vmbr0,mtu=1500", false),
    ("net1", "virtio,bridge=vmbr0,rate=5", false),
    ("net1", "virtio,bridge=vmbr0,rate=125", true),
    ("net1", "virtio,bridge=vmbr0,trunks=1", false),
    ("net1", "virtio,bridge=vmbr0,mtu=1400,mtu=1400", false),
    ("net1", "virtio,bridge=vmbr2,bridge=vmbr0", false),
    ("net1", "virtio,bridge=vmbr0,tag=9,tag=20", false),
    ("net1", "virtio,bridge=vmbr0,tag=020", false),
    ("net1", "e1000,bridge=vmbr0", false),
    ("net1", "virtio=BC:24:11:00:11:22,bridge=vmbr0", false),
];

async fn judged(name: &str, value: &str, passes: bool) {
    let rig = rig();
    let path = format!("/nodes/{HOST}/qemu/9001/config");
    let reply = rig.send("PUT", &path, &[(name, value)]).await;
    if passes {
        assert_eq!(reply.outcome, "done", "{name}={value}: {reply:?}");
    } else {
        rig.refused(&reply, &format!("{name}={value}"));
    }
}

#[tokio::test]
async fn values_are_the_policys_and_the_vms_own() {
    for (name, value, passes) in VALUES.iter().chain(NICS).chain(NEW_NICS) {
        judged(name, value, *passes).await;
    }
}

#[tokio::test]
async fn a_mark_stays_as_it_is() {
    let longer = mark(9001).describe("new words above");
    let other = Mark {
        pool: "large".into(),
        ..mark(9001)
    };
    let (other, bare) = (other.line(), mark(9001).line());
    let doubled = format!("{bare}\n{bare}");
    let below = format!("{bare}\nwords below");
    for (description, passes) in [
        (longer.as_str(), true),
        (&bare, true),
        (&other, false),
        (&doubled, false),
        (&below, false),
        ("no mark", false),
        ("", false),
    ] {
        judged("description", description, passes).await;
    }
}

#[tokio::test]
async fn two_sockets_do_not_double_the_cores() {
    let rig = rig();
    rig.world.set(9001, "sockets", json!("2"));
    let path = format!("/nodes/{HOST}/qemu/9001/config");
    let reply = rig.send("PUT", &path, &[("cores", "8")]).await;
    rig.refused(&reply, "8 cores on 2 sockets");
    for params in [
        vec![("cores", "4")],
        vec![("cores", "8"), ("delete", "sockets")],
    ] {
        assert_eq!(rig.send("PUT", &path, &params).await.outcome, "done");
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
        ("scsi3", "32G", false),
        ("scsi4", "32G", false),
        ("efidisk0", "32G", false),
        ("scsi0,scsi1", "32G", false),
        ("net0", "32G", false),
    ] {
        let rig = rig();
        // A disk of cloud-init's that somebody attached as no CD, and a CD.
        let cloud_init = json!("ceph:vm-9001-cloudinit,size=4M");
        rig.world.set(9001, "scsi3", cloud_init);
        let cd = json!("local:iso/debian.iso,media=cdrom,size=700M");
        rig.world.set(9001, "scsi4", cd);
        let path = format!("/nodes/{HOST}/qemu/9001/resize");
        let reply = rig
            .send("PUT", &path, &[("disk", disk), ("size", size)])
            .await;
        if passes {
            assert_eq!(reply.outcome, "done", "{disk} {size}: {reply:?}");
        } else {
            rig.refused(&reply, &format!("{disk} {size}"));
        }
    }
}

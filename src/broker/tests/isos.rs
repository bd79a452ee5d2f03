//! ISOs for cloud-init: of machines of ours, on storages that the configuration names, by name, and nothing else.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::rig::{rig, rig_with};
use super::world::{HOST, policy};

/// Of the same VMID.
const OF_OTHERS: &str = "pve-autoscaler-9001-0123456789ab-0123456789abcdef.iso";
const ISO: &str = "pve-autoscaler-9001-ab3a9a27d9c0-0123456789abcdef.iso";

fn upload(storage: &str) -> String {
    format!("/nodes/{HOST}/storage/{storage}/upload")
}

#[tokio::test]
async fn an_iso_comes_as_a_file_for_a_machine_of_ours() {
    let file = STANDARD.encode("hidden-content");
    let with = |name: &'static str| {
        [
            ("content", "iso"),
            ("filename", name),
            ("file", file.as_str()),
        ]
    };
    let rig = rig();
    let reply = rig.send("POST", &upload("local"), &with(ISO)).await;
    assert_eq!(reply.outcome, "done", "{reply:?}");
    let sent = rig.world.changes();
    let sent = sent.last().expect("it was sent");
    assert!(sent.multipart, "{sent:?}");
    let (kind, body) = sent.content().expect("a body");
    let body = String::from_utf8(body).expect("text");
    assert!(kind.starts_with("multipart/form-data; boundary="));
    let last = format!(
        "name=\"filename\"; filename=\"{ISO}\"\r\nContent-Type: application/octet-stream\r\n\r\nhidden-content\r\n--"
    );
    assert!(
        body.contains(&last) && body.contains("name=\"content\"\r\n\r\niso\r\n"),
        "{body}"
    );
    for (storage, name) in [
        ("ceph", ISO),
        (
            "local",
            "pve-autoscaler-8999-ab3a9a27d9c0-0123456789abcdef.iso",
        ),
        (
            "local",
            "pve-autoscaler-09001-ab3a9a27d9c0-0123456789abcdef.iso",
        ),
        (
            "local",
            "../pve-autoscaler-9001-ab3a9a27d9c0-0123456789abcdef.iso",
        ),
        (
            "local",
            "pve-autoscaler-9001-ab3a9a27d9c0-0123456789abcdef.img",
        ),
        ("local", "debian-13.iso"),
        // As older programs wrote it, and of another cluster or region.
        ("local", "pve-autoscaler-9001-0123456789abcdef.iso"),
        ("local", OF_OTHERS),
        // In the range, and not ours.
        (
            "local",
            "pve-autoscaler-9002-ab3a9a27d9c0-0123456789abcdef.iso",
        ),
    ] {
        let rig = super::rig::rig();
        let reply = rig.send("POST", &upload(storage), &with(name)).await;
        assert_ne!(reply.outcome, "done", "{storage} {name}");
        assert!(rig.world.changes().is_empty(), "{storage} {name}");
    }
    let broken = [
        ("content", "iso"),
        ("filename", ISO),
        ("file", "no base64!"),
    ];
    let other = [
        ("content", "vztmpl"),
        ("filename", ISO),
        ("file", file.as_str()),
    ];
    for params in [broken, other] {
        let rig = super::rig::rig();
        let reply = rig.send("POST", &upload("local"), &params).await;
        rig.refused(&reply, &format!("{params:?}"));
    }
}

/// A broker that has seen a machine of its cluster.
async fn bound_rig() -> super::rig::Rig {
    let rig = rig();
    let params = [("content", "iso"), ("filename", ISO), ("file", "eA==")];
    let reply = rig.send("POST", &upload("local"), &params).await;
    assert_eq!(reply.outcome, "done", "{reply:?}");
    rig
}

#[tokio::test]
async fn only_isos_of_the_range_go_and_are_told_of() {
    let at = |volume: &str| format!("/nodes/{HOST}/storage/local/content/{volume}");
    let gone = "local%3Aiso/pve-autoscaler-9077-ab3a9a27d9c0-0123456789abcdef.iso";
    // The broker knows whose ISOs are ours by the first machine that it sees.
    let strange = rig();
    let reply = strange.send("DELETE", &at(gone), &[]).await;
    strange.refused(&reply, "no machine was seen");
    let rig_of_ours = bound_rig().await;
    let reply = rig_of_ours.send("DELETE", &at(gone), &[]).await;
    assert_eq!(reply.outcome, "done", "{reply:?}");
    // An older program's name says nothing of its cluster: the VM must be ours.
    let old = |vmid: u32| {
        at(&format!(
            "local%3Aiso/pve-autoscaler-{vmid}-0123456789abcdef.iso"
        ))
    };
    let reply = rig_of_ours.send("DELETE", &old(9001), &[]).await;
    assert_eq!(reply.outcome, "done", "{reply:?}");
    let reply = rig_of_ours.send("DELETE", &old(9077), &[]).await;
    assert_ne!(reply.outcome, "done", "no VM proves it");
    for volume in [
        "local%3Aiso/debian-13.iso",
        "local%3Aiso/pve-autoscaler-8999-ab3a9a27d9c0-0123456789abcdef.iso",
        "ceph%3Aiso/pve-autoscaler-9001-ab3a9a27d9c0-0123456789abcdef.iso",
        "local%3Aimport/pve-autoscaler-9001-ab3a9a27d9c0-0123456789abcdef.iso",
        "local%3Aiso%2Fpve-autoscaler-9001-ab3a9a27d9c0-0123456789abcdef.iso",
        "local%3Aiso/..%2Fpve-autoscaler-9001-ab3a9a27d9c0-0123456789abcdef.iso",
        "local%3Avm-9001-disk-0",
        &format!("local%3Aiso/{OF_OTHERS}"),
    ] {
        let rig = bound_rig().await;
        let reply = rig.send("DELETE", &at(volume), &[]).await;
        assert_eq!(reply.outcome, "refused-by-broker", "{volume}: {reply:?}");
        assert_eq!(rig.world.changes().len(), 1, "the upload alone: {volume}");
    }
    let body = br#"{"data":[
        {"volid":"local:iso/pve-autoscaler-9001-ab3a9a27d9c0-0123456789abcdef.iso","size":7,"content":"iso","ctime":3},
        {"volid":"local:iso/pve-autoscaler-8000-ab3a9a27d9c0-0123456789abcdef.iso","size":7},
        {"volid":"local:iso/debian-13.iso","size":7}]}"#;
    let told = crate::broker::reach::our_files(&policy(), body).expect("a list");
    let told: Value = serde_json::from_slice(&told).expect("JSON");
    assert_eq!(
        told["data"],
        serde_json::json!([{"volid": "local:iso/pve-autoscaler-9001-ab3a9a27d9c0-0123456789abcdef.iso", "size": 7, "content": "iso"}])
    );
    let mut without = policy();
    without.allow.iso_storages.clear();
    without.allow.new_vms.clear();
    let rig = rig_with(without);
    let list = format!("/nodes/{HOST}/storage/local/content");
    let reply = rig.send("GET", &list, &[("content", "iso")]).await;
    rig.refused(&reply, "no storage for ISOs");
}

const OWN: &str = "local:iso/pve-autoscaler-9001-ab3a9a27d9c0-0123456789abcdef.iso,media=cdrom";
const OLD: &str = "local:iso/pve-autoscaler-9001-0123456789abcdef.iso,media=cdrom";
const OTHERS: &str = "local:iso/pve-autoscaler-9001-0123456789ab-0123456789abcdef.iso,media=cdrom";
const OF_9003: &str = "local:iso/pve-autoscaler-9003-ab3a9a27d9c0-0123456789abcdef.iso,media=cdrom";
const ELSEWHERE: &str =
    "ceph:iso/pve-autoscaler-9001-ab3a9a27d9c0-0123456789abcdef.iso,media=cdrom";
const WRITABLE: &str = "local:iso/pve-autoscaler-9001-ab3a9a27d9c0-0123456789abcdef.iso";
const DEBIAN: &str = "local:iso/debian-13.iso,media=cdrom";
const PVES: &str = "ceph:vm-9001-cloudinit,media=cdrom";
const DISK: &str = "ceph:vm-9001-disk-1,size=8G";
const NONE: &str = "none,media=cdrom";

/// The drive that the VM has before and what is in it, what is written, and whether that may be.
const WRITES: [(&str, &str, &str, &str, bool); 23] = [
    ("", "", "ide2", OWN, true),
    ("ide2", NONE, "ide2", OWN, true),
    ("ide2", PVES, "ide2", OWN, true),
    ("ide2", OWN, "ide2", NONE, true),
    ("ide2", OWN, "ide2", OWN, true),
    ("ide2", OLD, "ide2", NONE, true),
    ("ide2", OLD, "ide2", OWN, true),
    ("ide2", NONE, "ide2", OLD, false),
    ("ide2", NONE, "ide2", OTHERS, false),
    ("scsi1", PVES, "delete", "scsi1", true),
    ("", "", "delete", "scsi7", true),
    ("ide2", DEBIAN, "ide2", OWN, false),
    ("ide0", DISK, "ide0", OWN, false),
    ("ide2", DEBIAN, "ide2", NONE, false),
    ("ide2", PVES, "ide2", NONE, false),
    ("", "", "ide2", OF_9003, false),
    ("", "", "ide2", ELSEWHERE, false),
    ("", "", "ide2", WRITABLE, false),
    ("", "", "ide2", DEBIAN, false),
    ("", "", "ide2", "/dev/sda,media=cdrom", false),
    ("", "", "scsi7", OWN, false),
    ("scsi1", DISK, "delete", "scsi1", false),
    ("ide2", DEBIAN, "delete", "ide2", false),
];

#[tokio::test]
async fn a_drive_gets_the_machines_own_iso_in_the_place_of_pves_own() {
    let path = format!("/nodes/{HOST}/qemu/9001/config");
    for (drive, before, key, value, passes) in WRITES {
        let rig = rig();
        if !drive.is_empty() {
            rig.world.set(9001, drive, Value::from(before));
        }
        let reply = rig.send("PUT", &path, &[(key, value)]).await;
        let what = format!("{drive}: {before}, {key}={value}");
        if passes {
            assert_eq!(reply.outcome, "done", "{what}: {reply:?}");
        } else {
            rig.refused(&reply, &what);
        }
    }
}

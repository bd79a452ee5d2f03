//! Nothing touches a VM that is not ours.

use serde_json::Value;

use super::rig::rig;
use super::world::HOST;

/// Method, path and parameters of a call.
type Sample = (&'static str, String, Vec<(&'static str, &'static str)>);

/// Every listed call on an existing VM that needs its mark.
fn marked_calls(vmid: u32) -> Vec<Sample> {
    let at = |rest: &str| format!("/nodes/{HOST}/qemu/{vmid}{rest}");
    vec![
        ("PUT", at("/config"), vec![("tags", "a")]),
        (
            "PUT",
            at("/resize"),
            vec![("disk", "scsi0"), ("size", "32G")],
        ),
        (
            "POST",
            at("/firewall/rules"),
            vec![
                ("type", "group"),
                ("action", "web"),
                ("iface", "net0"),
                ("enable", "1"),
                ("comment", "pve-autoscaler"),
            ],
        ),
        ("POST", at("/status/start"), vec![]),
        ("POST", at("/status/shutdown"), vec![("timeout", "60")]),
        ("POST", at("/status/stop"), vec![("overrule-shutdown", "1")]),
        ("DELETE", at(""), vec![("purge", "1")]),
        ("POST", at("/agent/ping"), vec![]),
        (
            "POST",
            at("/agent/exec"),
            vec![("command", "/bin/sh"), ("input-data", "x")],
        ),
        ("GET", at("/agent/exec-status"), vec![("pid", "7")]),
    ]
}

#[tokio::test]
async fn calls_on_our_vm_pass_and_on_any_other_do_not() {
    for (method, path, params) in marked_calls(9001) {
        let rig = rig();
        let reply = rig.send(method, &path, &params).await;
        assert_eq!(reply.outcome, "done", "{method} {path}: {reply:?}");
        let sent = rig.world.changes();
        assert_eq!(sent.len(), 1, "{method} {path}");
        assert_eq!(sent[0].path, path);
    }
    for vmid in [
        9002, 9003, 9004, 9005, 9006, 9007, 9008, 9009, 9000, 200, 300, 400,
    ] {
        for (method, path, params) in marked_calls(vmid) {
            let rig = rig();
            let reply = rig.send(method, &path, &params).await;
            rig.refused(&reply, &format!("{method} {path}"));
        }
    }
}

#[tokio::test]
async fn a_vm_that_is_gone_is_pves_own_answer() {
    let rig = rig();
    let path = format!("/nodes/{HOST}/qemu/9050/status/start");
    let reply = rig.send("POST", &path, &[]).await;
    assert_eq!((reply.outcome, reply.status), ("refused", 500));
    assert!(String::from_utf8_lossy(&reply.body).contains("does not exist"));
    assert!(rig.world.changes().is_empty());
}

#[tokio::test]
async fn a_mark_that_cannot_be_read_now_is_no_mark() {
    for status in [595, 596, 200] {
        let rig = rig();
        let path = format!("/nodes/{HOST}/qemu/9001/config");
        rig.world.answer(&path, status, &Value::Null);
        let path = format!("/nodes/{HOST}/qemu/9001/status/stop");
        let reply = rig.send("POST", &path, &[]).await;
        assert_ne!(reply.outcome, "done", "{status}");
        assert!(rig.world.changes().is_empty(), "{status}");
    }
}

#[tokio::test]
async fn the_digest_that_was_judged_goes_along() {
    let rig = rig();
    let path = format!("/nodes/{HOST}/qemu/9001/config");
    rig.send("PUT", &path, &[("tags", "a")]).await;
    let sent = rig.world.changes();
    assert!(sent[0].params.contains(&("digest".into(), "d1d1".into())));
    let reply = rig
        .send("PUT", &path, &[("tags", "a"), ("digest", "d2")])
        .await;
    assert_eq!(reply.outcome, "refused-by-broker");
    assert!(String::from_utf8_lossy(&reply.body).contains("checksum mismatch"));
    assert_eq!(rig.world.changes().len(), 1);
}

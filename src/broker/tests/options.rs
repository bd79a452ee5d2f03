//! PVE's options that the file names for a template's machines: those, and no others.

use serde_json::json;

use super::rig::rig_with;
use super::world::{HOST, mark, policy};
use crate::broker::policy::BrokerPolicy;
use crate::config::vm_options;
use crate::model::mark::Mark;

const UUID: &str = "uuid=0b5f3a6e-0000-4000-8000-0123456789ab";

/// Machines of `debian-13` get some options, those of another template others.
fn named() -> BrokerPolicy {
    let mut policy = policy();
    let options = |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    };
    policy.allow.template_options = [
        (
            "debian-13".to_owned(),
            options(&[
                ("rng0", "source=/dev/urandom"),
                ("tablet", "0"),
                ("usb0", "mapping=key"),
                ("serial1", "/dev/ttyS0"),
                ("smbios1", "sku=a"),
            ]),
        ),
        (
            "other".to_owned(),
            options(&[("tablet", "1"), ("vga", "none"), ("kvm", "0")]),
        ),
    ]
    .into();
    policy
}

#[tokio::test]
async fn a_machine_gets_the_options_of_its_template_and_no_others() {
    let path = format!("/nodes/{HOST}/qemu/9001/config");
    let (own, others) = (
        format!("base64=1,sku=YQ==,{UUID}"),
        format!("base64=1,sku=Yg==,{UUID}"),
    );
    for (name, value, passes) in [
        ("rng0", "source=/dev/urandom", true),
        ("rng0", "source=/dev/hwrng", false),
        ("rng0", "0", false),
        ("tablet", "0", true),
        // Another template's.
        ("tablet", "1", false),
        ("vga", "none", false),
        ("kvm", "0", false),
        ("acpi", "0", false),
        ("usb0", "mapping=key", true),
        ("usb1", "mapping=key", false),
        ("usb0", "host=1-2", false),
        ("serial1", "/dev/ttyS0", true),
        ("serial0", "/dev/ttyS0", false),
        ("serial1", "/dev/sda", false),
        ("machine", "q35", false),
        ("virtiofs0", "data", false),
        ("amd-sev", "snp", false),
        ("smbios1", &*own, true),
        ("smbios1", &*others, false),
        ("smbios1", "base64=1,sku=YQ==", false),
        (
            "smbios1",
            "base64=1,sku=YQ==,uuid=0b5f3a6e-0000-4000-8000-000000000000",
            false,
        ),
        ("smbios1", UUID, false),
        // What no file can name is no parameter at all.
        ("args", "-S", false),
        ("hookscript", "local:snippets/a", false),
        ("lock", "backup", false),
        ("vmgenid", "1", false),
        ("ivshmem", "size=1", false),
    ] {
        let rig = rig_with(named());
        rig.world.set(9001, "smbios1", json!(UUID));
        let reply = rig.send("PUT", &path, &[(name, value)]).await;
        if passes {
            assert_eq!(reply.outcome, "done", "{name}={value}: {reply:?}");
        } else {
            rig.refused(&reply, &format!("{name}={value}"));
        }
    }
}

#[tokio::test]
async fn the_options_of_another_template_are_its_machines() {
    let rig = rig_with(named());
    let other = Mark {
        template: "other".into(),
        ..mark(9001)
    };
    rig.world.put(9001, &other.line());
    let path = format!("/nodes/{HOST}/qemu/9001/config");
    for (name, value, passes) in [
        ("tablet", "1", true),
        ("kvm", "0", true),
        ("tablet", "0", false),
        ("usb0", "mapping=key", false),
    ] {
        let reply = rig.send("PUT", &path, &[(name, value)]).await;
        assert_eq!(reply.outcome == "done", passes, "{name}={value}: {reply:?}");
    }
}

/// A file without options lets none pass, and none is deleted.
#[tokio::test]
async fn without_a_word_in_the_file_no_option_passes() {
    let path = format!("/nodes/{HOST}/qemu/9001/config");
    for name in vm_options::names() {
        let rig = rig_with(policy());
        let reply = rig.send("PUT", &path, &[(&*name, "1")]).await;
        rig.refused(&reply, &name);
        let rig = rig_with(named());
        let reply = rig.send("PUT", &path, &[("delete", &*name)]).await;
        rig.refused(&reply, &format!("delete {name}"));
    }
}

/// Of PVE's mappings of USB devices and directories the names are told that the file gives machines, and nothing else. It finds a broker that
/// passes the list on as it is, and one that takes a list that cannot be read for an empty one.
#[tokio::test]
async fn of_mappings_the_names_are_told_that_the_file_has() {
    let row =
        |id: &str| json!({"id": id, "map": ["node=pve1,id=1050:0407"], "description": "the safe"});
    for (kind, told) in [("usb", json!([{"id": "key"}])), ("dir", json!([]))] {
        let path = format!("/cluster/mapping/{kind}");
        let rig = rig_with(named());
        let rows = json!([row("key"), row("other")]);
        rig.world.answer(&path, 200, &json!({ "data": rows }));
        let reply = rig.send("GET", &path, &[]).await;
        let body: serde_json::Value = serde_json::from_slice(&reply.body).expect("JSON");
        assert_eq!(body, json!({ "data": told }));
        for odd in [json!(null), json!([{"map": []}]), json!([null])] {
            rig.world.answer(&path, 200, &json!({ "data": odd }));
            let reply = rig.send("GET", &path, &[]).await;
            assert_eq!(reply.outcome, "not-sent", "{odd}");
        }
        let reply = rig.send("GET", &format!("{path}/key"), &[]).await;
        rig.refused(&reply, "one mapping");
    }
}

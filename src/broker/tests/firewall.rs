//! The firewall of machines: which security groups come and go, and what of other rules is told.

use serde_json::{Value, json};

use super::rig::{Rig, rig_with};
use super::world::{HOST, mark, policy};
use crate::broker::policy::BrokerPolicy;
use crate::model::mark::Mark;

/// Machines of `debian-13` have `web` on `net0` and `db` on `net1`.
fn grouped() -> BrokerPolicy {
    let mut policy = policy();
    let text = |text: &str| text.to_owned();
    let groups = |named: &[(&str, u8)]| {
        named
            .iter()
            .map(|(name, card)| (text(name), *card))
            .collect()
    };
    policy.allow.template_groups = [
        (text("debian-13"), groups(&[("web", 0), ("db", 1)])),
        (text("other"), groups(&[("adm", 0)])),
    ]
    .into();
    policy
}

fn rules(vmid: u32) -> String {
    format!("/nodes/{HOST}/qemu/{vmid}/firewall/rules")
}

fn group<'a>(name: &'a str, card: &'a str) -> [(&'a str, &'a str); 5] {
    [
        ("type", "group"),
        ("action", name),
        ("iface", card),
        ("enable", "1"),
        ("comment", "pve-autoscaler"),
    ]
}

#[tokio::test]
async fn a_card_gets_the_groups_that_the_file_gives_it_and_no_other_rule() {
    for (name, card, passes) in [
        ("web", "net0", true),
        ("db", "net1", true),
        ("web", "net1", false),
        ("db", "net0", false),
        ("adm", "net0", false),
        ("none", "net0", false),
        ("web", "net00", false),
        ("web", "net8", false),
        ("web", "eth0", false),
    ] {
        let rig = rig_with(grouped());
        let reply = rig.send("POST", &rules(9001), &group(name, card)).await;
        if passes {
            assert_eq!(reply.outcome, "done", "{name} {card}: {reply:?}");
        } else {
            rig.refused(&reply, &format!("{name} {card}"));
        }
    }
    for (key, value) in [
        ("type", "in"),
        ("action", "ACCEPT"),
        ("enable", "0"),
        ("comment", "Ann's"),
        ("comment", ""),
    ] {
        let rig = rig_with(grouped());
        let params = group("web", "net0");
        let params = params.map(|(name, old)| (name, if name == key { value } else { old }));
        let reply = rig.send("POST", &rules(9001), &params).await;
        rig.refused(&reply, &format!("{key}={value}"));
    }
    for (key, value) in [
        ("source", "0.0.0.0/0"),
        ("macro", "SSH"),
        ("pos", "0"),
        ("log", "info"),
    ] {
        let rig = rig_with(grouped());
        let params = [&group("web", "net0")[..], &[(key, value)]].concat();
        let reply = rig.send("POST", &rules(9001), &params).await;
        rig.refused(&reply, &format!("{key}={value}"));
    }
    let rig = rig_with(grouped());
    let other = Mark {
        template: "other".into(),
        ..mark(9001)
    };
    rig.world.put(9001, &other.line());
    let reply = rig.send("POST", &rules(9001), &group("web", "net0")).await;
    rig.refused(&reply, "the group of another template");
}

/// The firewall of VM 9001: somebody's rules at 0 and 1, then ours: one that is wanted at 2, the same again, one that is not wanted,
/// and one that somebody switched off.
fn firewall() -> Value {
    let rule = |pos: u32, action: &str, comment: &str, enable: u8| {
        json!({
            "pos": pos, "type": "group", "action": action, "iface": "net0", "enable": enable, "comment": comment, "digest": "d5d5",
        })
    };
    json!([
        {"pos": 0, "type": "in", "action": "ACCEPT", "source": "198.51.100.7", "comment": "pve-autoscaler", "enable": 1, "digest": "d5d5"},
        rule(1, "old", "Ann's", 1),
        rule(2, "web", "pve-autoscaler", 1),
        rule(3, "web", "pve-autoscaler", 1),
        rule(4, "old", "pve-autoscaler", 1),
        rule(5, "web", "pve-autoscaler", 0),
    ])
}

fn with_rules(policy: BrokerPolicy, vmid: u32) -> Rig {
    let rig = rig_with(policy);
    rig.world
        .answer(&rules(vmid), 200, &json!({ "data": firewall() }));
    rig
}

#[tokio::test]
async fn a_rule_of_ours_that_the_file_does_not_want_goes_and_no_other() {
    let remove = async |rig: &Rig, vmid: u32, position: &str, digest: &str| {
        let path = format!("{}/{position}", rules(vmid));
        rig.send("DELETE", &path, &[("digest", digest)]).await
    };
    for (position, goes) in [
        ("0", false),
        ("1", false),
        ("2", false),
        ("3", true),
        ("4", true),
        ("5", true),
        ("6", false),
        ("04", false),
        ("-1", false),
        ("x", false),
    ] {
        let rig = with_rules(grouped(), 9001);
        let reply = remove(&rig, 9001, position, "d5d5").await;
        if goes {
            assert_eq!(reply.outcome, "done", "{position}: {reply:?}");
            assert_eq!(rig.world.changes().len(), 1);
        } else {
            rig.refused(&reply, position);
        }
    }
    // The rules are others than those that the daemon read: by PVE's words it knows that it shall look again.
    let rig = with_rules(grouped(), 9001);
    let reply = remove(&rig, 9001, "4", "aaaa").await;
    rig.refused(&reply, "another digest");
    let said = String::from_utf8_lossy(&reply.body).into_owned();
    assert!(said.contains("detected modified configuration"), "{said}");
    let rig = with_rules(grouped(), 9001);
    let path = format!("{}/4", rules(9001));
    let reply = rig.send("DELETE", &path, &[]).await;
    rig.refused(&reply, "no digest");
    for vmid in [9002, 9003, 9004, 9005, 9007, 9008, 9009, 9000, 300, 400] {
        let rig = with_rules(grouped(), vmid);
        let reply = remove(&rig, vmid, "4", "d5d5").await;
        rig.refused(&reply, &format!("VM {vmid}"));
    }
    // The file says nothing of security groups: no rule is anybody's business.
    let mut silent = grouped();
    silent.allow.template_groups.remove("debian-13");
    let rig = with_rules(silent, 9001);
    let reply = remove(&rig, 9001, "4", "d5d5").await;
    rig.refused(&reply, "a file without groups");
    // What cannot be read is no list without rules.
    let rig = rig_with(grouped());
    rig.world
        .answer(&rules(9001), 200, &json!({ "data": null }));
    let reply = remove(&rig, 9001, "4", "d5d5").await;
    rig.refused(&reply, "an answer that is none");
}

/// It is switched on where the file says so, of machines with our mark, and never off.
#[tokio::test]
async fn the_firewall_of_a_machine_is_switched_on_where_the_file_says_so() {
    let options = |vmid: u32| format!("/nodes/{HOST}/qemu/{vmid}/firewall/options");
    let mut on = grouped();
    on.allow.template_firewalls = ["debian-13".to_owned()].into();
    let switched = async |policy: &BrokerPolicy, vmid: u32, params: &[(&str, &str)]| {
        let rig = rig_with(policy.clone());
        let reply = rig.send("PUT", &options(vmid), params).await;
        (rig, reply)
    };
    let (_, reply) = switched(&on, 9001, &[("enable", "1")]).await;
    assert_eq!(reply.outcome, "done", "{reply:?}");
    for params in [
        &[("enable", "0")][..],
        &[],
        &[("enable", "1"), ("policy_in", "ACCEPT")],
        &[("delete", "enable")],
    ] {
        let (rig, reply) = switched(&on, 9001, params).await;
        rig.refused(&reply, &format!("{params:?}"));
    }
    for vmid in [9002, 9003, 9004, 9005, 9007, 9008, 9009, 9000, 300, 400] {
        let (rig, reply) = switched(&on, vmid, &[("enable", "1")]).await;
        rig.refused(&reply, &format!("VM {vmid}"));
    }
    let (rig, reply) = switched(&grouped(), 9001, &[("enable", "1")]).await;
    rig.refused(&reply, "a file that leaves it as it is");
}

/// Addresses and ports of others' rules are not told, nor anything of guests outside the range.
#[tokio::test]
async fn of_a_firewall_its_groups_are_told() {
    let rig = with_rules(grouped(), 9001);
    let reply = rig.send("GET", &rules(9001), &[]).await;
    let told: Value = serde_json::from_slice(&reply.body).expect("JSON");
    let told = told["data"].as_array().expect("rules");
    assert_eq!(told.len(), 6);
    assert_eq!(
        told[0],
        json!({"pos": 0, "type": "in", "action": "ACCEPT", "digest": "d5d5"})
    );
    assert_eq!(told[1..], firewall().as_array().expect("rules")[1..]);
    let rig = with_rules(grouped(), 300);
    let reply = rig.send("GET", &rules(300), &[]).await;
    rig.refused(&reply, "another's firewall");
    let rig = rig_with(grouped());
    rig.world.answer(
        "/cluster/firewall/groups",
        200,
        &json!({"data": [{"group": "web", "comment": "the safe", "digest": "x"}]}),
    );
    let reply = rig.send("GET", "/cluster/firewall/groups", &[]).await;
    let told: Value = serde_json::from_slice(&reply.body).expect("JSON");
    assert_eq!(told, json!({"data": [{"group": "web"}]}));
}

/// Whether the datacenter's firewall is on is told, and no policy of it. Nobody switches it through the broker. It finds a broker that passes
/// PVE's answer on as it is, one that takes a switch that nobody touched for on, and one that passes a change.
#[tokio::test]
async fn of_the_datacenters_firewall_its_switch_is_told() {
    let options = "/cluster/firewall/options";
    for (answer, on) in [
        (json!({"enable": 1, "policy_in": "DROP", "digest": "x"}), 1),
        (json!({"enable": "1"}), 1),
        (json!({"enable": 1_795_000_000}), 1),
        (json!({"enable": 0, "log_ratelimit": "enable=1"}), 0),
        (json!({"digest": "x"}), 0),
    ] {
        let rig = rig_with(grouped());
        rig.world.answer(options, 200, &json!({ "data": answer }));
        let reply = rig.send("GET", options, &[]).await;
        let told: Value = serde_json::from_slice(&reply.body).expect("JSON");
        assert_eq!(told, json!({"data": {"enable": on}}), "{answer}");
    }
    let rig = rig_with(grouped());
    rig.world.answer(options, 200, &json!({ "data": null }));
    let reply = rig.send("GET", options, &[]).await;
    assert_eq!(reply.outcome, "not-sent", "an answer that is none");
    for (method, path, params) in [
        ("PUT", options, &[("enable", "1")][..]),
        ("PUT", options, &[("enable", "0")]),
        ("PUT", options, &[("policy_in", "ACCEPT")]),
        ("GET", options, &[("enable", "1")]),
        ("GET", "/cluster/firewall/rules", &[]),
        ("GET", "/cluster/firewall/groups/web", &[]),
        ("GET", "/nodes/pve1/firewall/options", &[]),
    ] {
        let rig = rig_with(grouped());
        let reply = rig.send(method, path, params).await;
        rig.refused(&reply, &format!("{method} {path} {params:?}"));
    }
}

/// A card passes through the firewall, or not, as some template's table has it; where it has security groups, none takes it out. It finds a
/// broker that takes groups of another card for this one's, and one that lets a switch pass that no table has.
#[tokio::test]
async fn a_cards_firewall_is_as_a_table_has_it_and_on_where_the_card_has_groups() {
    let path = format!("/nodes/{HOST}/qemu/9001/config");
    let cards = [
        "virtio=BC:24:11:00:11:22,bridge=vmbr0",
        "virtio,bridge=vmbr0",
    ];
    for (tables, card, value, passes) in [
        (&[true, false][..], 0, "1", true),
        (&[true, false], 0, "0", false),
        (&[true, false], 1, "1", true),
        (&[true, false], 1, "0", true),
        (&[true, false], 1, "2", false),
        (&[true, false], 1, "01", false),
        (&[true], 0, "1", true),
        (&[true], 1, "1", true),
        (&[true], 1, "0", false),
        (&[false], 0, "0", false),
        (&[false], 0, "1", false),
        (&[false], 1, "0", true),
        (&[false], 1, "1", false),
        (&[], 0, "1", false),
        (&[], 1, "1", false),
        (&[], 1, "0", false),
    ] {
        // Its machines have `web` on net0 and nothing on net1.
        let mut policy = policy();
        policy.guest.firewalls = tables.iter().copied().collect();
        let rig = rig_with(policy);
        rig.world.set(9001, "net0", json!(cards[0]));
        let name = format!("net{card}");
        let wanted = format!("{},firewall={value}", cards[card]);
        let reply = rig.send("PUT", &path, &[(&name, &wanted)]).await;
        let what = format!("{name}={wanted} with {tables:?}");
        if passes {
            assert_eq!(reply.outcome, "done", "{what}: {reply:?}");
        } else {
            rig.refused(&reply, &what);
        }
    }
}

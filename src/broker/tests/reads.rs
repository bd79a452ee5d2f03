//! What a daemon that was taken over can read: hosts of the cluster, VMs of the range, templates.

use serde_json::json;

use super::rig::{PEER, rig, rig_with};
use super::waits::Lines;
use super::world::{CLUSTER, HOST, mark, policy};
use crate::broker::allow::RawRequest;
use crate::pve::PveRequest;

#[tokio::test]
async fn configurations_and_states_are_told_of_the_range_and_of_templates_alone() {
    for (vmid, told) in [
        (9001, true),
        (9002, true),
        (9000, true),
        (300, false),
        (400, false),
        (200, false),
        (77_777, false),
    ] {
        for page in ["config", "status/current"] {
            let rig = rig();
            let path = format!("/nodes/{HOST}/qemu/{vmid}/{page}");
            let reply = rig.send("GET", &path, &[]).await;
            let sent = rig.world.sent.lock().expect("held").clone();
            if told {
                assert_eq!(reply.outcome, "done", "{path}: {reply:?}");
                assert_eq!(sent.last().expect("sent").path, path);
            } else if vmid == 77_777 {
                // The broker looks for a template of that VMID: PVE's own words.
                assert_eq!(reply.outcome, "refused", "{path}");
            } else if page == "config" {
                let told: serde_json::Value = serde_json::from_slice(&reply.body).expect("JSON");
                assert_eq!(told, json!({"data": {"memory": 2048}}), "{path}");
            } else {
                rig.refused(&reply, &path);
                let text = String::from_utf8_lossy(&reply.body).into_owned();
                assert!(
                    text.contains("no range") && !text.contains("production"),
                    "{text}"
                );
            }
        }
    }
    // With no template by name nothing is looked at.
    let mut strict = policy();
    strict.allow.template_names.clear();
    let rig = rig_with(strict);
    rig.said("GET", "/nodes/pve1/qemu/300/status/current", &[])
        .await;
    let sent = rig.world.sent.lock().expect("held");
    assert!(
        sent.iter().all(|request| !request.path.contains("/qemu/")),
        "{sent:?}"
    );
}

/// A host has to keep memory for guests that start with it: that much is told of anybody's, in numbers.
#[tokio::test]
async fn of_others_guests_their_part_in_the_hosts_capacity_is_told() {
    let path = |kind: &str| format!("/nodes/pve1/{kind}/300/config");
    let rig = rig();
    for (key, value) in [
        ("onboot", json!("1")),
        ("balloon", json!(1024)),
        ("memory", json!("2048")),
        ("args", json!("-secret")),
        ("description", json!("the safe's number is 1234")),
        ("net0", json!("virtio=BC:24:11:00:00:01,bridge=vmbr0")),
        ("unused0", json!(7)),
    ] {
        rig.world.set(300, key, value);
    }
    let told = |body: &[u8]| serde_json::from_slice::<serde_json::Value>(body).expect("JSON");
    let reply = rig.send("GET", &path("qemu"), &[("current", "1")]).await;
    let numbers = json!({"data": {"onboot": 1, "balloon": 1024, "memory": 2048}});
    assert_eq!(told(&reply.body), numbers);
    // A container's, in whatever words.
    for (answer, wanted) in [
        (
            json!({"onboot": 1, "memory": 512, "hostname": "dns"}),
            json!({"onboot": 1, "memory": 512}),
        ),
        (json!({"onboot": "1; rm", "memory": "all"}), json!({})),
        (json!({}), json!({})),
    ] {
        rig.world
            .answer(&path("lxc"), 200, &json!({"data": answer}));
        let reply = rig.send("GET", &path("lxc"), &[]).await;
        assert_eq!(told(&reply.body), json!({"data": wanted}));
    }
    for odd in [json!({"data": "odd"}), json!([]), json!({"data": null})] {
        rig.world.answer(&path("lxc"), 200, &odd);
        let reply = rig.send("GET", &path("lxc"), &[]).await;
        assert_eq!(reply.outcome, "not-sent", "{odd}");
    }
    // Nothing else of a container is, and nothing of another guest's earlier states.
    rig.said("GET", "/nodes/pve1/lxc/300/status/current", &[])
        .await;
    rig.said("GET", &path("lxc"), &[("snapshot", "old")]).await;
    rig.said("GET", "/nodes/evil/lxc/300/config", &[]).await;
}

/// Addresses in a configured range are told, that no machine gets them; nothing else of a network card is.
#[tokio::test]
async fn of_others_addresses_those_in_the_ranges_are_told() {
    let rig = super::rig::rig_with(super::world::networked());
    for (key, value) in [
        (
            "ipconfig0",
            "ip=192.0.2.51/24,gw=192.0.2.1,ip6=2001:db8::1/64",
        ),
        ("ipconfig1", "ip=10.0.0.1/24"),
        ("net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0"),
    ] {
        rig.world.set(300, key, json!(value));
    }
    let told = |body: &[u8]| serde_json::from_slice::<serde_json::Value>(body).expect("JSON");
    let reply = rig.send("GET", "/nodes/pve1/qemu/300/config", &[]).await;
    assert_eq!(told(&reply.body)["data"]["ipconfig0"], "ip=192.0.2.51");
    assert_eq!(told(&reply.body)["data"]["ipconfig1"], json!(null));
    assert_eq!(told(&reply.body)["data"]["net0"], json!(null));
    let lxc = "/nodes/pve1/lxc/300/config";
    let net = "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:02,ip=192.0.2.52/24,gw=192.0.2.1";
    rig.world
        .answer(lxc, 200, &json!({"data": {"net0": net, "hostname": "dns"}}));
    let reply = rig.send("GET", lxc, &[]).await;
    assert_eq!(
        told(&reply.body),
        json!({"data": {"net0": "ip=192.0.2.52"}})
    );
}

#[tokio::test]
async fn a_template_is_known_by_its_name_too() {
    let rig = rig();
    let (config, status) = (
        "/nodes/pve1/qemu/300/config",
        "/nodes/pve1/qemu/300/status/current",
    );
    rig.world.set(300, "name", json!("debian-13"));
    rig.said("GET", status, &[]).await;
    rig.world.set(300, "template", json!(1));
    assert_eq!(rig.send("GET", config, &[]).await.outcome, "done");
    assert_eq!(rig.send("GET", status, &[]).await.outcome, "done");
    // Another policy may name other templates.
    let mut other = policy();
    other.allow.template_names = vec!["other".to_owned()];
    rig.service.set_policy(other);
    rig.said("GET", status, &[]).await;
}

/// A file that names its templates by tags alone. It finds a broker that looks at no VM unless some template is named.
#[tokio::test]
async fn a_template_is_known_by_its_tags_where_the_file_has_no_name() {
    let mut tagged = policy();
    tagged.allow.template_names.clear();
    tagged.allow.template_tags = vec![vec!["golden".to_owned(), "debian".to_owned()]];
    let rig = rig_with(tagged);
    let status = "/nodes/pve1/qemu/300/status/current";
    rig.world.set(300, "template", json!(1));
    for tags in ["", "golden", "debian;silver"] {
        rig.world.set(300, "tags", json!(tags));
        rig.said("GET", status, &[]).await;
    }
    rig.world.set(300, "tags", json!("debian;golden;more"));
    assert_eq!(rig.send("GET", status, &[]).await.outcome, "done");
}

#[tokio::test]
async fn tasks_are_told_of_those_vms_alone() {
    let rig = rig();
    for (vmid, told) in [
        ("9001", true),
        ("9000", true),
        ("300", false),
        ("400", false),
    ] {
        let params = [("source", "active"), ("vmid", vmid)];
        let reply = rig.send("GET", "/nodes/pve1/tasks", &params).await;
        assert_eq!(reply.outcome == "done", told, "{vmid}: {reply:?}");
        for (kind, page) in [("qmstop", "status"), ("qmclone", "log")] {
            let upid = format!("UPID:pve1:0003A1B2:00C3D4E5:66F0A1B2:{kind}:{vmid}:root@pam:");
            let path = crate::pve::path(&["nodes", "pve1", "tasks", &upid, page]);
            let reply = rig.send("GET", &path, &[]).await;
            assert_eq!(reply.outcome == "done", told, "{upid}: {reply:?}");
        }
    }
    let upid = "UPID:pve1:0003A1B2:00C3D4E5:66F0A1B2:qmstop::root@pam:";
    let path = crate::pve::path(&["nodes", "pve1", "tasks", upid, "log"]);
    // `said` holds that it is refused.
    rig.said("GET", &path, &[]).await;
}

#[tokio::test]
async fn of_a_storages_disks_the_ranges_own_are_told() {
    let rig = rig();
    let path = "/nodes/pve1/storage/ceph/content";
    let list = json!({"data": [
        {"volid": "ceph:vm-9050-disk-0", "vmid": 9050, "size": 1},
        {"volid": "ceph:vm-9051-disk-0", "vmid": "9051", "notes": "x"},
        {"volid": "ceph:vm-300-disk-0", "vmid": 300, "notes": "payroll"},
        {"volid": "ceph:iso", "vmid": null},
    ]});
    rig.world.answer(path, 200, &list);
    let reply = rig.send("GET", path, &[("content", "images")]).await;
    let text = String::from_utf8_lossy(&reply.body).into_owned();
    assert!(
        text.contains("vm-9050") && text.contains("vm-9051"),
        "{text}"
    );
    assert!(!text.contains("300") && !text.contains("iso"), "{text}");
    rig.world.answer(path, 200, &json!({"data": "odd"}));
    let reply = rig.send("GET", path, &[("content", "images")]).await;
    assert_eq!(reply.outcome, "not-sent");
}

#[tokio::test]
async fn of_lists_what_is_needed_of_them_is_told() {
    let rig = rig();
    for (path, params, key) in [
        ("/nodes/pve1/network", vec![("type", "any_bridge")], "iface"),
        ("/cluster/sdn/vnets", vec![], "vnet"),
        ("/pools", vec![], "poolid"),
    ] {
        let list = json!({"data": [{key: "k8s", "cidr": "192.0.2.1/24", "comment": "secret"}, {"odd": 1}]});
        rig.world.answer(path, 200, &list);
        let reply = rig.send("GET", path, &params).await;
        let told: serde_json::Value = serde_json::from_slice(&reply.body).expect("JSON");
        assert_eq!(told, json!({"data": [{key: "k8s"}]}), "{path}");
        rig.world.answer(path, 200, &json!({"data": null}));
        assert_eq!(rig.send("GET", path, &params).await.outcome, "not-sent");
    }
}

/// It finds a broker that hides what `doctor` judges bridges by, and one that tells of addresses that no machine could get.
#[tokio::test]
async fn of_bridges_it_is_told_what_cards_meet_there() {
    let rig = super::rig::rig_with(super::world::networked());
    let path = "/nodes/pve1/network";
    let cards = json!({
        "iface": "vmbr0", "type": "bridge", "bridge_vlan_aware": 1, "bridge_vids": "2-99", "bridge_ports": "eno1", "mtu": "9000",
    });
    let mut whole = cards.clone();
    for (key, value) in [
        ("cidr", "192.0.2.51/24"),
        ("gateway", "192.0.2.1"),
        ("cidr6", "2001:db8::11/64"),
        ("address", "192.0.2.51"),
        ("comments", "secret"),
    ] {
        whole[key] = json!(value);
    }
    rig.world.answer(path, 200, &json!({ "data": [whole] }));
    let reply = rig.send("GET", path, &[("type", "any_bridge")]).await;
    let told: serde_json::Value = serde_json::from_slice(&reply.body).expect("JSON");
    let mut wanted = cards;
    wanted["cidr"] = json!("192.0.2.51/24");
    assert_eq!(told, json!({ "data": [wanted] }));
    let vnets = json!({"data": [{"vnet": "blue", "zone": "office", "alias": "secret"}]});
    rig.world.answer("/cluster/sdn/vnets", 200, &vnets);
    let reply = rig.send("GET", "/cluster/sdn/vnets", &[]).await;
    let told: serde_json::Value = serde_json::from_slice(&reply.body).expect("JSON");
    assert_eq!(told, json!({"data": [{"vnet": "blue", "zone": "office"}]}));
}

#[tokio::test(start_paused = true)]
async fn a_host_is_one_of_the_clusters() {
    for (method, path, params) in [
        ("GET", "/nodes/evil/status", vec![]),
        ("GET", "/nodes/10/time", vec![]),
        (
            "GET",
            "/nodes/evil/storage/ceph/content",
            vec![("content", "images")],
        ),
        ("GET", "/nodes/evil/qemu/9001/config", vec![]),
        ("POST", "/nodes/evil/qemu/9001/status/stop", vec![]),
        ("DELETE", "/nodes/PVE1/qemu/9001", vec![]),
    ] {
        let rig = rig();
        let said = rig.said(method, path, &params).await;
        assert!(said.contains("is no host of this cluster"), "{said}");
        let sent = rig.world.sent.lock().expect("held");
        assert!(
            sent.iter().all(|request| request.path == "/cluster/status"),
            "{sent:?}"
        );
    }
    let rig = rig();
    let line = super::world::mark(9050).line();
    let params = [
        ("newid", "9050"),
        ("name", "small-09050"),
        ("description", &*line),
        ("target", "evil"),
    ];
    let said = rig
        .said("POST", "/nodes/pve1/qemu/9000/clone", &params)
        .await;
    assert!(said.contains("evil is no host"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn the_clusters_hosts_are_read_now_and_then() {
    let rig = rig();
    rig.said("GET", "/nodes/evil/status", &[]).await;
    // The list is read once a minute, and for an unknown host once in five seconds.
    let looks = || {
        let sent = rig.world.sent.lock().expect("held");
        sent.iter()
            .filter(|request| request.path == "/cluster/status")
            .count()
    };
    let before = looks();
    for _ in 0..20 {
        rig.said("GET", "/nodes/evil/status", &[]).await;
        rig.send("GET", "/nodes/pve1/status", &[]).await;
    }
    assert_eq!(looks(), before);
    tokio::time::advance(std::time::Duration::from_secs(5)).await;
    rig.said("GET", "/nodes/evil/status", &[]).await;
    rig.send("GET", "/nodes/pve1/status", &[]).await;
    assert_eq!(looks(), before + 1);
    tokio::time::advance(std::time::Duration::from_mins(1)).await;
    assert_eq!(
        rig.send("GET", "/nodes/pve1/status", &[]).await.outcome,
        "done"
    );
    assert_eq!(looks(), before + 2);
    // A cluster that does not answer has the hosts that it had, and no others.
    rig.world.answer("/cluster/status", 595, &json!(null));
    tokio::time::advance(std::time::Duration::from_mins(1)).await;
    assert_eq!(
        rig.send("GET", "/nodes/pve1/status", &[]).await.outcome,
        "done"
    );
    assert_eq!(
        rig.send("GET", "/nodes/evil/status", &[]).await.outcome,
        "not-sent"
    );
    // An answer without hosts is none.
    let rig = super::rig::rig();
    rig.world.answer(
        "/cluster/status",
        200,
        &json!({"data": [{"type": "cluster", "name": "evil"}]}),
    );
    assert_eq!(
        rig.send("GET", "/nodes/evil/status", &[]).await.outcome,
        "not-sent"
    );
}

#[tokio::test]
async fn what_is_judged_is_what_pve_gets() {
    for (body, sent) in [
        ("ciuser=%20debian%0a", ("ciuser", "debian")),
        ("cpu=host%20", ("cpu", "host")),
        ("ipconfig0=%09ip%3Ddhcp", ("ipconfig0", "ip=dhcp")),
        ("nameserver=192.0.2.53%0a", ("nameserver", "192.0.2.53")),
        ("searchdomain=+example.org", ("searchdomain", "example.org")),
        ("%63ores=%34", ("cores", "4")),
        ("digest=D1D1", ("digest", "d1d1")),
        (
            "sshkeys=ssh-ed25519%2520AAAA%252b%252F%253d%2520a%2520b%2521%250a",
            ("sshkeys", "ssh-ed25519%20AAAA%2B%2F%3D%20a%20b!"),
        ),
    ] {
        let rig = rig();
        let raw = RawRequest {
            method: "PUT",
            path: "/api2/json/nodes/%70ve1/qemu/900%31/config",
            query: None,
            content_type: Some("application/x-www-form-urlencoded"),
            body: body.as_bytes(),
        };
        let reply = rig.service.answer(PEER, raw).await;
        assert_eq!(reply.outcome, "done", "{body}: {reply:?}");
        let changes = rig.world.changes();
        assert_eq!(changes[0].path, "/nodes/pve1/qemu/9001/config");
        let (name, value) = sent;
        assert_eq!(
            changes[0].params[0],
            (name.to_owned(), value.to_owned()),
            "{body}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_are_counted_when_they_are_many_and_no_change_is_lost() {
    let (rig, (lines, _guard)) = (rig(), Lines::listen());
    let flood = async || {
        for turn in 0..100 {
            // Refused by the list, by what the VM is, and a read.
            rig.send("POST", "/nodes/pve1/qemu/9001/migrate", &[]).await;
            rig.send("POST", "/nodes/pve1/qemu/9002/status/stop", &[])
                .await;
            rig.send("GET", "/nodes/pve1/qemu/300/status/current", &[])
                .await;
            if turn % 10 == 0 {
                rig.send("POST", "/nodes/pve1/qemu/9001/status/stop", &[])
                    .await;
            }
        }
    };
    flood().await;
    let said = lines.taken();
    let of = |said: &[String], words: &str| said.iter().filter(|line| line.contains(words)).count();
    assert_eq!(of(&said, "outcome=\"refused-by-broker\""), 30, "{said:#?}");
    assert_eq!(of(&said, "call=\"stop\""), 10 + 10, "{said:#?}");
    assert!(
        of(&said, "call=\"vm-status\"") > 0,
        "reads are refused in the open"
    );
    // Their number is told although nothing more comes.
    tokio::time::sleep(std::time::Duration::from_secs(61)).await;
    let said = lines.taken();
    assert_eq!(said.len(), 1, "{said:#?}");
    assert!(said[0].contains("calls=270"), "{said:?}");
    // The next minute has lines again.
    flood().await;
    assert_eq!(of(&lines.taken(), "outcome=\"refused-by-broker\""), 30);
}

/// What the broker says of itself takes nothing, and asks PVE for its version once.
#[tokio::test]
async fn the_brokers_own_page_is_a_plain_read() {
    let rig = rig();
    let version = json!({"data": {"version": "9.2.11"}});
    rig.world.answer("/version", 200, &version);
    let ask = async |method: &str, query: Option<&str>, body: &[u8]| {
        let raw = RawRequest {
            method,
            path: "/broker/info",
            query,
            content_type: None,
            body,
        };
        rig.service.answer(PEER, raw).await
    };
    for (method, query, body) in [
        ("POST", None, &b""[..]),
        ("GET", Some("a=b"), b""),
        ("GET", None, b"a=b"),
    ] {
        let reply = ask(method, query, body).await;
        assert_eq!(reply.outcome, "refused-by-broker", "{method} {query:?}");
    }
    for times in 1..3 {
        let reply = ask("GET", None, b"").await;
        let said: serde_json::Value = serde_json::from_slice(&reply.body).expect("JSON");
        assert_eq!(said["data"]["pve_version"], "9.2.11", "{said}");
        // The cluster that it serves is the one of the first machine.
        let served = (times == 2).then_some(CLUSTER);
        assert_eq!(said["data"]["cluster"].as_str(), served, "{said}");
        let of_version = |request: &&PveRequest| request.path == "/version";
        let sent = rig.world.sent.lock().expect("held").clone();
        assert_eq!(sent.iter().filter(of_version).count(), 1);
        let reply = rig.clone_of(9000, 9050, &mark(9050)).await;
        assert_eq!(reply.outcome, "done", "{reply:?}");
    }
}

/// Who looks into the journal finds PVE's reason there.
#[tokio::test]
async fn the_line_of_a_refused_call_has_pves_words() {
    let rig = rig();
    let start = "/nodes/pve1/qemu/9001/status/start";
    let (lines, _guard) = Lines::listen();
    let refused = json!({"data": null, "message": "no space left\n"});
    rig.world.answer(start, 500, &refused);
    let reply = rig.send("POST", start, &[]).await;
    assert_eq!(reply.outcome, "refused");
    let said = lines.taken();
    let told = said.iter().any(|line| line.contains("no space left"));
    assert!(told, "{said:?}");
}

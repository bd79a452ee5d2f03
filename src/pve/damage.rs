//! Whatever answers under PVE's address: every answer is read, or refused, and none ends the program.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::resources::{ClusterResources, GuestPromise};
use super::transport::answer::HttpAnswer;
use super::types::{
    BrokerInfo, ClusterStatus, ExecResult, NodeStatus, PveVersion, Task, TaskState, VmStatus,
};
use super::vm_config::VmConfig;
use super::{
    FirewallRule, TagRules, bridges, building, calls, isos, kept_space, mediated, sound,
    storage_backings,
};
use crate::model::foreign::steers;
use crate::model::region;
use crate::model::topology::Pins;

/// Keys of PVE's answers that are read.
const KEYS: &str = "
    data message errors node type vmid name status template lock pool tags hastate maxcpu cpu maxmem mem
    maxdisk disk uptime storage plugintype content shared cpuinfo cpus cores sockets model memory total
    used loadavg pveversion kversion qmpstatus ha managed upid endtime exitstatus exited exitcode signal
    out-data err-data out-truncated version release policy_hash channel last_error quorate online id ip
    digest description smbios1 net0 scsi0 boot agent affinity numa0 numa1 hostpci0 hostpci1 balloon onboot ipconfig0 ipconfig1 map iface cidr
    cidr6 gateway bridge_ports bridge_vids mtu pos action enable comment avail volid ctime user-tag-access user-allow user-allow-list
    registered-tags allowed-tags pool vgname server export path";

/// Any JSON of these keys, with values that PVE never sends.
fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        Just(json!("9223372036854775808")),
        Just(json!("-1e308")),
        Just(json!("1e308")),
        Just(json!(
            "UPID:pve1:00000000:FFFFFFFF:99999999:qmclone:4294967296:root@pam:"
        )),
        Just(json!("a\0b\u{1b}[2J\u{202e}\nWATCHDOG=1")),
        Just(json!("\u{e2}\u{80}\u{9c}")),
        "\\PC{0,20}".prop_map(Value::from),
    ];
    let key = proptest::sample::select(KEYS.split_whitespace().collect::<Vec<_>>());
    leaf.prop_recursive(4, 60, 8, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::btree_map(key.clone(), inner, 0..12).prop_map(|map| {
                Value::Object(
                    map.into_iter()
                        .map(|(key, value)| (key.to_owned(), value))
                        .collect(),
                )
            }),
        ]
    })
}

proptest! {
    #[test]
    fn no_answer_ends_the_program(data in document(), kind in proptest::sample::select(vec!["node", "qemu", "lxc", "storage"])) {
        let rows = match &data {
            Value::Object(map) => {
                let mut map = map.clone();
                map.insert("type".to_owned(), json!(kind));
                map.insert("node".to_owned(), json!("pve1"));
                json!([map, data])
            }
            other => other.clone(),
        };
        let resources = ClusterResources::read(&rows);
        for storage in resources.storages.values().flat_map(|storages| storages.values()) {
            let _ = region::Storage::from(storage);
        }
        let _ = (BrokerInfo::read(&data), PveVersion::read(&data).major(), ClusterStatus::read(&rows));
        let _ = (NodeStatus::read(&data), VmStatus::read(&data), Task::read_all(&rows), ExecResult::read(&data));
        let config = VmConfig::read(&data);
        let _ = (config.boot_disk(), config.ownership(), config.promise());
        let bridges = bridges::read(&rows);
        for bridge in bridges.values() {
            let _ = (bridge.mtu(), bridge.passes(20), bridge.addresses().count());
        }
        let _ = (FirewallRule::read_all(&rows), calls::read_mappings(&rows), storage_backings::read(&rows), kept_space::read(&data), mediated::read(&rows));
        let _ = (TagRules::read(&data).allows("prod"), isos::read(&rows), building::read_snippets(&rows));
        if let TaskState::Failed(text) | TaskState::Warnings(text) = TaskState::read(&data) {
            prop_assert!(!text.chars().any(steers), "{text:?}");
        }
    }

    /// Whatever a guest's configuration holds: what it may take is read, or the guest counts as unread.
    #[test]
    fn what_a_guest_may_take_never_counts_as_none(
        data in document(), odd in document(), key in proptest::sample::select(vec!["ipconfig0", "net3", "hostpci0", "affinity", "numa1"]),
    ) {
        let mut config = json!({"name": "shop", "memory": 512, "onboot": 1});
        let told = if data.is_array() { odd } else { data };
        config[key] = told.clone();
        let promise = GuestPromise::read(&config);
        let taken = !promise.addresses.is_empty() || !promise.devices.is_empty()
            || promise.pins.as_ref().is_none_or(|pins| *pins != Pins::default());
        let text: String = told.as_str().unwrap_or_default().split_whitespace().collect();
        let parts = text.split(',').filter_map(|part| part.split_once('='));
        // What says nothing of an address, a CPU or a NUMA node of the host.
        let none = match key {
            "numa1" => text.is_empty() || (text.contains('=') && !text.contains("hostnodes")),
            "affinity" => !text.is_empty() && text.trim_matches(',').is_empty(),
            "ipconfig0" | "net3" => text.contains('=') && parts.clone().all(|(key, _)| !matches!(key, "ip" | "ip6")),
            _ => false,
        };
        prop_assert!(taken || none || sound::promise(&config).is_err(), "{config}");
    }

    #[test]
    fn no_refusal_ends_the_program_or_steers(
        data in document(), status in any::<u16>(), reason in "(?s).{0,40}", cut in 0usize..200,
    ) {
        let mut body = json!({"data": null, "message": data, "errors": data}).to_string().into_bytes();
        body.truncate(cut.max(1) * 4);
        let answer = HttpAnswer { status, reason, body: &body };
        if let Err(error) = answer.read() {
            prop_assert!(!error.to_string().chars().any(steers), "{error}");
            let _ = error.cause();
        }
    }
}

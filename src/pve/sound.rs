//! What an answer must show before it counts as one: where a guest is and whose it is, whether it runs, and what is under
//! way, is decided by it. A missing answer is not an empty one, and a row that cannot be read may be anybody's.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::calls::is_host;
use super::perl;
use super::upid::Upid;

/// VMIDs that PVE gives (pve-common `JSONSchema`, `pve-vmid`).
const VMIDS: std::ops::RangeInclusive<i64> = 100..=999_999_999;
/// Most of an odd value that is told, in characters.
const TOLD: usize = 60;

/// Why an answer cannot be used; what of it is odd.
pub(crate) type Unsound = String;

/// `/cluster/resources`: hosts, and guests that are told apart.
pub(crate) fn resources(data: &Value) -> Result<(), Unsound> {
    let mut hosts = BTreeSet::new();
    let mut guests = BTreeSet::new();
    for row in rows(data)? {
        let kind = word(row, "type")?.ok_or_else(|| odd(row, "type"))?;
        let id = match row.get("id") {
            None => None,
            Some(id) => Some(id.as_str().ok_or_else(|| odd(row, "id"))?),
        };
        let claimed = id.and_then(|id| id.split_once('/')).map(|(kind, _)| kind);
        let says = |known: &str| kind == known || claimed == Some(known);
        if !["qemu", "lxc", "node"].iter().any(|known| says(known)) {
            continue;
        }
        let host = host(row, "node")?;
        if kind == "node" {
            word(row, "status")?.ok_or_else(|| odd(row, "status"))?;
            if claimed.is_some_and(|claimed| claimed != "node") || !hosts.insert(host) {
                return Err(format!("it has two rows that may be of host {host}"));
            }
            continue;
        }
        let vmid = row.get("vmid").and_then(perl::integer);
        let vmid = vmid.filter(|vmid| VMIDS.contains(vmid));
        let vmid = vmid.ok_or_else(|| odd(row, "vmid"))?;
        if id.is_some_and(|id| id != format!("{kind}/{vmid}")) {
            return Err(odd(row, "id"));
        }
        if !guests.insert(vmid) {
            return Err(format!("it has two rows for VMID {vmid}"));
        }
        word(row, "status")?;
        word(row, "lock")?;
        bit(row, "template")?;
    }
    if hosts.is_empty() {
        return Err("it names no host".to_owned());
    }
    Ok(())
}

/// `/cluster/status`: the hosts, and of more than one whether they have quorum.
pub(super) fn cluster(data: &Value) -> Result<(), Unsound> {
    let (mut hosts, mut clusters) = (BTreeSet::new(), 0);
    for row in rows(data)? {
        match word(row, "type")?.ok_or_else(|| odd(row, "type"))? {
            "cluster" => {
                bit(row, "quorate")?.ok_or_else(|| odd(row, "quorate"))?;
                clusters += 1;
            }
            "node" => {
                bit(row, "online")?;
                let name = host(row, "name")?;
                if !hosts.insert(name) {
                    return Err(format!("it has two rows for host {name}"));
                }
            }
            _ => {}
        }
    }
    match (hosts.len(), clusters) {
        (0, _) => Err("it names no host".to_owned()),
        (1, 0) | (_, 1) => Ok(()),
        _ => Err(format!("it names {clusters} clusters of these hosts")),
    }
}

/// `…/config` of a VM: PVE gives every configuration a digest, and writes texts as texts.
pub(crate) fn config(data: &Value) -> Result<(), Unsound> {
    let config = object(data)?;
    word(config, "digest")?.ok_or_else(|| odd(config, "digest"))?;
    word(config, "lock")?;
    bit(config, "template")?;
    for key in ["description", "smbios1", "tags"] {
        if config.get(key).is_some_and(|value| !value.is_string()) {
            return Err(odd(config, key));
        }
    }
    Ok(())
}

/// `…/status/current` of VM `vmid`, which it names: it runs, or it does not.
pub(super) fn status(data: &Value, vmid: u32) -> Result<(), Unsound> {
    let status = object(data)?;
    if let Some(named) = status.get("vmid")
        && perl::integer(named) != Some(i64::from(vmid))
    {
        return Err(format!("it is of VM {}, not {vmid}", told(named)));
    }
    if !matches!(word(status, "status")?, Some("running" | "stopped")) {
        return Err(odd(status, "status"));
    }
    word(status, "lock")?;
    match status.get("ha") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Object(ha)) => bit(ha, "managed").map(drop),
        Some(_) => Err(odd(status, "ha")),
    }
}

/// `/nodes/{node}/tasks`: every row names its task.
pub(crate) fn tasks(data: &Value) -> Result<(), Unsound> {
    for row in rows(data)? {
        let upid = row.get("upid").and_then(Value::as_str);
        if upid.is_none_or(|upid| upid.parse::<Upid>().is_err()) {
            return Err(odd(row, "upid"));
        }
        let end = row.get("endtime").filter(|end| !end.is_null());
        if end.is_some_and(|end| !is_time(end)) {
            return Err(odd(row, "endtime"));
        }
        let text = row.get("status").filter(|status| !status.is_null());
        // The last word of a task that has ended is any text. Of one that may run it decides whether it does.
        let steers = |text: &str| end.is_none() && text.chars().any(char::is_control);
        if text.is_some_and(|status| status.as_str().is_none_or(steers)) {
            return Err(odd(row, "status"));
        }
    }
    Ok(())
}

fn is_time(value: &Value) -> bool {
    perl::integer(value).is_some_and(|seconds| seconds > 0)
}

fn rows(data: &Value) -> Result<Vec<&Map<String, Value>>, Unsound> {
    let list = data.as_array();
    let list = list.ok_or_else(|| format!("it is no list but {}", told(data)))?;
    list.iter().map(object).collect()
}

fn object(data: &Value) -> Result<&Map<String, Value>, Unsound> {
    let object = data.as_object();
    object.ok_or_else(|| format!("{} stands where an object should", told(data)))
}

/// A word of PVE's own (a type, a state, a lock, a digest): nothing, or a text without blanks and control characters.
fn word<'a>(row: &'a Map<String, Value>, key: &str) -> Result<Option<&'a str>, Unsound> {
    let Some(value) = row.get(key).filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    let text = value.as_str().ok_or_else(|| odd(row, key))?;
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(odd(row, key));
    }
    Ok(Some(text))
}

/// A flag: nothing, or 0 or 1, however Perl writes it.
fn bit(row: &Map<String, Value>, key: &str) -> Result<Option<bool>, Unsound> {
    match row.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(set)) => Ok(Some(*set)),
        Some(Value::String(text)) if text == "0" || text == "1" => Ok(Some(text == "1")),
        Some(Value::Number(number)) if matches!(number.as_u64(), Some(0 | 1)) => {
            Ok(Some(number.as_u64() == Some(1)))
        }
        // Perl's false is an empty text as well.
        Some(Value::String(text)) if text.is_empty() => Ok(Some(false)),
        Some(_) => Err(odd(row, key)),
    }
}

fn host<'a>(row: &'a Map<String, Value>, key: &str) -> Result<&'a str, Unsound> {
    let name = row.get(key).and_then(Value::as_str);
    name.filter(|name| is_host(name))
        .ok_or_else(|| odd(row, key))
}

/// What is odd about a row, by its id where it has one.
fn odd(row: &Map<String, Value>, key: &str) -> Unsound {
    let of = ["id", "upid", "name"].iter().find_map(|id| {
        let named = row.get(*id)?.as_str()?;
        Some(format!(" of {named:?}"))
    });
    let of = of.filter(|_| key != "id").unwrap_or_default();
    match row.get(key) {
        None => format!("{key}{of} is not there"),
        Some(value) => format!("{key}{of} is {}", told(value)),
    }
}

fn told(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= TOLD {
        return text;
    }
    let cut: String = text.chars().take(TOLD).collect();
    format!("{cut}…")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn list() -> Value {
        json!([
            {"id": "qemu/9100", "type": "qemu", "vmid": 9100, "node": "pve1", "status": "unknown", "lock": null},
            {"id": "lxc/300", "type": "lxc", "vmid": "300", "node": "pve1", "status": "running", "template": 0},
            {"id": "node/pve1", "type": "node", "node": "pve1", "status": "online"},
            {"id": "storage/pve1/local", "type": "storage", "storage": "local", "node": "pve1"},
            {"id": "sdn/pve1/localnetwork", "type": "sdn", "node": 7},
        ])
    }

    #[test]
    fn a_list_that_may_hide_a_guest_is_none() {
        assert_eq!(resources(&list()), Ok(()));
        for (row, key, value) in [
            (0, "vmid", Value::Null),
            (0, "vmid", json!(9101)),
            (0, "vmid", json!(-9100)),
            (0, "vmid", json!(300)),
            (0, "type", json!("")),
            (0, "type", json!(5)),
            (0, "type", json!("sdn")),
            (0, "id", json!(9100)),
            (0, "node", Value::Null),
            (0, "node", json!("pve1\0")),
            (0, "lock", json!(["clone"])),
            (0, "template", json!("x")),
            (2, "node", json!("")),
            (2, "type", json!({})),
            (2, "status", Value::Null),
        ] {
            let mut damaged = list();
            damaged[row][key] = value.clone();
            assert!(resources(&damaged).is_err(), "{key} of row {row}: {value}");
        }
        for row in [0, 1, 2] {
            let mut damaged = list();
            let twice = damaged[row].clone();
            damaged.as_array_mut().expect("a list").push(twice);
            assert!(resources(&damaged).is_err(), "row {row} twice");
        }
        for none in [Value::Null, json!([]), json!({}), json!("x"), json!([1])] {
            assert!(resources(&none).is_err(), "{none}");
        }
    }

    #[test]
    fn quorum_is_believed_of_hosts_that_are_one_cluster() {
        let node = |name: &str| json!({"type": "node", "name": name, "online": 1});
        let quorate = json!({"type": "cluster", "name": "c", "quorate": 1});
        let good = [
            json!([node("pve1")]),
            json!([quorate, node("a"), node("b")]),
        ];
        for good in good {
            assert_eq!(cluster(&good), Ok(()));
        }
        let odd = json!({"type": "cluster", "name": "c", "quorate": "yes"});
        let bad = [
            json!([node("a"), node("b")]),
            json!([odd, node("a")]),
            json!([quorate]),
            json!([quorate, quorate, node("a")]),
            json!([quorate, node("a"), node("a")]),
        ];
        for bad in bad {
            assert!(cluster(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_no_configuration_shows_no_missing_mark() {
        let good = json!({"digest": "d1", "description": "x", "template": 1, "lock": "clone"});
        assert_eq!(config(&good), Ok(()));
        assert_eq!(config(&json!({"digest": "d1"})), Ok(()));
        for (key, value) in [
            ("digest", Value::Null),
            ("digest", json!("")),
            ("description", Value::Null),
            ("description", json!(-1)),
            ("smbios1", json!([])),
            ("lock", json!("")),
            ("template", json!(2)),
        ] {
            let mut damaged = good.clone();
            damaged[key] = value.clone();
            assert!(config(&damaged).is_err(), "{key}: {value}");
        }
    }

    #[test]
    fn a_status_is_of_its_vm_and_says_whether_it_runs() {
        let good = json!({"vmid": "9100", "status": "running", "ha": {"managed": 0}});
        assert_eq!(status(&good, 9100), Ok(()));
        assert!(status(&good, 9101).is_err());
        for (key, value) in [
            ("status", Value::Null),
            ("status", json!("unknown")),
            ("status", json!("running\0")),
            ("ha", json!([])),
            ("ha", json!({"managed": "maybe"})),
        ] {
            let mut damaged = good.clone();
            damaged[key] = value.clone();
            assert!(status(&damaged, 9100).is_err(), "{key}: {value}");
        }
    }

    #[test]
    fn a_list_of_tasks_that_may_hide_one_is_none() {
        let upid = "UPID:pve1:0003A1B2:00C3D4E5:66F0A1B2:qmclone:9000:root@pam:";
        let good = json!([{"upid": upid, "status": "RUNNING"}, {"upid": upid, "endtime": 5, "status": "OK"}]);
        assert_eq!(tasks(&good), Ok(()));
        assert_eq!(tasks(&json!([])), Ok(()));
        let failed =
            json!([{"upid": upid, "endtime": 5, "status": "copy failed:\t\u{1b}[31mno space"}]);
        assert_eq!(tasks(&failed), Ok(()));
        for (key, value) in [
            ("upid", Value::Null),
            ("upid", json!("x")),
            ("endtime", json!(-1)),
            ("endtime", json!([])),
            ("status", json!("RUN\0")),
            ("status", json!(1)),
        ] {
            let mut damaged = good.clone();
            damaged[0][key] = value.clone();
            assert!(tasks(&damaged).is_err(), "{key}: {value}");
        }
        assert!(tasks(&Value::Null).is_err());
    }
}

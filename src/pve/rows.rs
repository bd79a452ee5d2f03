//! Lists of PVE's, row by row: a row that cannot be read costs the guest or the host that it is of, and nobody else.
//!
//! A list is mended before it is used. Each guest and host that has rows in it gets one row that can be read; where PVE's
//! cannot, ours says so under [`ODD`], and holds what is sure: whose row it is, and where. A row of which nobody can tell
//! whose it is spoils the whole list, since it may hide anybody.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::calls::is_host;
use super::perl;
use super::sound::{Unsound, bit, host, odd, rows, word};

/// Why PVE's own row cannot be read: a key of ours in a mended row.
pub(crate) const ODD: &str = "pve-autoscaler-odd";
/// VMIDs that PVE gives (pve-common `JSONSchema`, `pve-vmid`).
const VMIDS: std::ops::RangeInclusive<i64> = 100..=999_999_999;
/// The most bytes of memory or of a disk that a guest, a host or a storage is believed to have: 64 PiB.
pub(super) const MOST_BYTES: i64 = 1 << 56;
/// The most CPUs that a guest or a host is believed to have.
const MOST_CPUS: i64 = 1 << 16;
/// Keys of rows of guests and hosts that are amounts, and the most that each is believed.
const AMOUNTS: [(&str, i64); 4] = [
    ("maxmem", MOST_BYTES),
    ("mem", MOST_BYTES),
    ("maxdisk", MOST_BYTES),
    ("maxcpu", MOST_CPUS),
];

type ResourceRow = Map<String, Value>;

/// Whose a row is.
#[derive(Debug)]
enum Whose<'a> {
    /// One of these guests, of this kind as far as that is told.
    Guest(BTreeSet<u32>),
    /// One of these hosts; none where its name cannot be read.
    Host(BTreeSet<&'a str>),
    /// A storage, a network, a pool: nothing hangs on there being one more.
    Other,
}

/// The rows of one guest or host, and what is wrong with them.
#[derive(Debug, Default)]
struct SubjectRows<'a> {
    rows: Vec<&'a ResourceRow>,
    wrong: Option<Unsound>,
}

impl<'a> SubjectRows<'a> {
    fn add(&mut self, row: &'a ResourceRow, wrong: Option<Unsound>) {
        self.rows.push(row);
        self.wrong = self.wrong.take().or(wrong);
    }

    /// What is wrong, twofold rows included.
    fn wrong(&self) -> Option<Unsound> {
        let twice = (self.rows.len() > 1).then(|| "it has more than one row".to_owned());
        self.wrong.clone().or(twice)
    }

    /// The hosts that its rows name.
    fn hosts(&self) -> BTreeSet<&'a str> {
        let hosts = self.rows.iter().filter_map(|row| host(row, "node").ok());
        hosts.collect()
    }
}

/// `/cluster/resources`, with one row that can be read for each guest and host that has any.
pub(crate) fn resources(data: &Value) -> Result<Value, Unsound> {
    let mut guests: BTreeMap<u32, SubjectRows<'_>> = BTreeMap::new();
    let mut hosts: BTreeMap<&str, SubjectRows<'_>> = BTreeMap::new();
    let mut mended = Vec::new();
    for row in rows(data)? {
        match whose(row)? {
            Whose::Guest(vmids) => {
                for vmid in &vmids {
                    let wrong = guest(row, *vmid).err();
                    guests.entry(*vmid).or_default().add(row, wrong);
                }
            }
            Whose::Host(names) => {
                for name in names {
                    let wrong = of_host(row, name).err();
                    hosts.entry(name).or_default().add(row, wrong);
                }
            }
            Whose::Other => mended.push(Value::Object(row.clone())),
        }
    }
    if hosts.is_empty() {
        return Err("it names no host".to_owned());
    }
    let mut doubtful: BTreeMap<&str, Unsound> = BTreeMap::new();
    for (vmid, found) in &guests {
        let Some(wrong) = found.wrong() else {
            mended.push(Value::Object(found.rows[0].clone()));
            continue;
        };
        mended.push(mended_guest(*vmid, found, &wrong));
        // It is counted on one of the hosts that are named, and may be on another one.
        for other in found.hosts().into_iter().skip(1) {
            let why = format!("VM {vmid} may be there or elsewhere: {wrong}");
            doubtful.entry(other).or_insert(why);
        }
    }
    for (name, found) in &hosts {
        let wrong = found.wrong().or_else(|| doubtful.remove(name));
        mended.push(match wrong {
            None => Value::Object(found.rows[0].clone()),
            Some(wrong) => mended_host(name, found, &wrong),
        });
    }
    Ok(Value::Array(mended))
}

/// Whose a row is; an error where it may be anybody's.
fn whose(row: &ResourceRow) -> Result<Whose<'_>, Unsound> {
    let kind = word(row, "type").ok().flatten();
    let id = row.get("id").and_then(Value::as_str);
    let claimed = id.and_then(|id| id.split_once('/'));
    let is = |known: &str| kind == Some(known) || claimed.is_some_and(|(said, _)| said == known);
    let named = row.get("vmid").and_then(perl::integer);
    if is("qemu") || is("lxc") || (kind.is_none() && named.is_some()) {
        let claimed = claimed.filter(|(said, _)| ["qemu", "lxc"].contains(said));
        let claimed = claimed.and_then(|(_, vmid)| vmid.parse().ok());
        let vmids = [named, claimed].into_iter().flatten();
        let vmids = vmids.filter(|vmid| VMIDS.contains(vmid));
        let vmids: BTreeSet<u32> = vmids.filter_map(|vmid| u32::try_from(vmid).ok()).collect();
        if vmids.is_empty() {
            return Err(odd(row, "vmid"));
        }
        return Ok(Whose::Guest(vmids));
    }
    if is("node") {
        let claimed = claimed.filter(|(said, name)| *said == "node" && is_host(name));
        let names = host(row, "node").ok().into_iter();
        return Ok(Whose::Host(
            names.chain(claimed.map(|(_, name)| name)).collect(),
        ));
    }
    if kind.is_none() && claimed.is_none() {
        return Err(odd(row, "type"));
    }
    Ok(Whose::Other)
}

/// What of a guest's row must be readable: where the guest is, which it is, whether it runs, and what it has.
fn guest(row: &ResourceRow, vmid: u32) -> Result<(), Unsound> {
    let kind = word(row, "type")?.ok_or_else(|| odd(row, "type"))?;
    if row.get("vmid").and_then(perl::integer) != Some(i64::from(vmid)) {
        return Err(odd(row, "vmid"));
    }
    let id = row.get("id");
    let right = format!("{kind}/{vmid}");
    if !["qemu", "lxc"].contains(&kind) || id.is_some_and(|id| id.as_str() != Some(&right)) {
        return Err(odd(row, "id"));
    }
    host(row, "node")?;
    word(row, "status")?;
    word(row, "lock")?;
    bit(row, "template")?;
    amounts(row)
}

/// What of a host's row must be readable: which host it is, whether it is online, and what it has.
fn of_host(row: &ResourceRow, name: &str) -> Result<(), Unsound> {
    if word(row, "type")? != Some("node") {
        return Err(odd(row, "type"));
    }
    if host(row, "node")? != name {
        return Err(odd(row, "node"));
    }
    if let Some(id) = row.get("id")
        && id.as_str() != Some(&format!("node/{name}"))
    {
        return Err(odd(row, "id"));
    }
    word(row, "status")?.ok_or_else(|| odd(row, "status"))?;
    amounts(row)?;
    let cpu = row.get("cpu").filter(|cpu| !cpu.is_null());
    let part = |value: &Value| perl::number(value).is_some_and(|load| (0.0..=1e6).contains(&load));
    match cpu {
        Some(cpu) if !part(cpu) => Err(odd(row, "cpu")),
        _ => Ok(()),
    }
}

fn amounts(row: &ResourceRow) -> Result<(), Unsound> {
    for (key, most) in AMOUNTS {
        if row.get(key).is_some_and(|value| !is_amount(value, most)) {
            return Err(odd(row, key));
        }
    }
    Ok(())
}

/// Nothing, or a number that is believed.
pub(super) fn is_amount(value: &Value, most: i64) -> bool {
    value.is_null() || perl::integer(value).is_some_and(|amount| (0..=most).contains(&amount))
}

/// Type and id say so, both. Any other guest may be a VM: what is taken for a container is looked at by nobody, and a machine behind
/// it would count as gone.
fn is_container(row: &ResourceRow) -> bool {
    let id = row.get("id").and_then(Value::as_str);
    let claimed = id.and_then(|id| id.split_once('/'));
    word(row, "type").ok().flatten() == Some("lxc")
        && claimed.is_some_and(|(kind, _)| kind == "lxc")
}

fn mended_guest(vmid: u32, found: &SubjectRows<'_>, wrong: &str) -> Value {
    let row = found.rows[0];
    let id = row.get("id").and_then(Value::as_str);
    let claimed = id.and_then(|id| id.split_once('/'));
    let named = row.get("vmid").and_then(perl::integer);
    let numbers = [named, claimed.and_then(|(_, number)| number.parse().ok())];
    let mut numbers = numbers.into_iter().flatten();
    let other = numbers.any(|other| VMIDS.contains(&other) && other != i64::from(vmid));
    // Of two rows nobody knows which is true, and one with two VMIDs may be another guest's.
    let mut mended = if found.rows.len() == 1 && !other {
        row.clone()
    } else {
        ResourceRow::new()
    };
    for key in ["status", "lock"] {
        if word(&mended, key).is_err() {
            mended.remove(key);
        }
    }
    if bit(&mended, "template").is_err() {
        mended.remove("template");
    }
    for (key, most) in AMOUNTS {
        if mended.get(key).is_some_and(|value| !is_amount(value, most)) {
            mended.remove(key);
        }
    }
    let container = found.rows.iter().all(|one| is_container(one));
    let kind = if container { "lxc" } else { "qemu" };
    mended.insert("type".to_owned(), json!(kind));
    mended.insert("id".to_owned(), json!(format!("{kind}/{vmid}")));
    mended.insert("vmid".to_owned(), json!(vmid));
    let host = found.hosts().into_iter().next().unwrap_or_default();
    mended.insert("node".to_owned(), json!(host));
    mended.insert(ODD.to_owned(), json!(wrong));
    Value::Object(mended)
}

fn mended_host(name: &str, found: &SubjectRows<'_>, wrong: &str) -> Value {
    let status = |row: &&ResourceRow| word(row, "status").ok().flatten().map(str::to_owned);
    let states: BTreeSet<Option<String>> = found.rows.iter().map(status).collect();
    let mut mended =
        json!({ "type": "node", "id": format!("node/{name}"), "node": name, ODD: wrong });
    if let Some(Some(told)) = states
        .into_iter()
        .next_back()
        .filter(|_| found.rows.len() == 1)
    {
        mended["status"] = json!(told);
    }
    mended
}

/// `/cluster/status`: the hosts, and of more than one whether they have quorum, which must be readable. A row of a host whose
/// name cannot be read stays, without one: that host has no other.
pub(super) fn cluster(data: &Value) -> Result<Value, Unsound> {
    let mut hosts: BTreeMap<&str, SubjectRows<'_>> = BTreeMap::new();
    let (mut mended, mut nameless) = (Vec::new(), None);
    for row in rows(data)? {
        let id = row.get("id").and_then(Value::as_str);
        let claimed = id.and_then(|id| id.strip_prefix("node/"));
        let kind = word(row, "type").ok().flatten();
        if kind == Some("cluster") {
            bit(row, "quorate")?.ok_or_else(|| odd(row, "quorate"))?;
            mended.push(Value::Object(row.clone()));
        } else if kind == Some("node") || claimed.is_some() {
            let names = host(row, "name").ok().into_iter();
            let names: BTreeSet<&str> = names.chain(claimed.filter(|name| is_host(name))).collect();
            if names.is_empty() {
                nameless = Some(odd(row, "name"));
            }
            for name in names {
                let wrong = member(row, name).err();
                hosts.entry(name).or_default().add(row, wrong);
            }
        } else if kind.is_none() {
            // It may be the one that tells of quorum.
            return Err(odd(row, "type"));
        }
    }
    let known = hosts.len() + usize::from(nameless.is_some());
    match (known, mended.len()) {
        (0, _) => return Err("it names no host".to_owned()),
        (1, 0) | (_, 1) => {}
        (_, clusters) => return Err(format!("it names {clusters} clusters of these hosts")),
    }
    for (name, found) in &hosts {
        mended.push(match found.wrong() {
            None => Value::Object(found.rows[0].clone()),
            Some(wrong) => json!({ "type": "node", "name": name, ODD: wrong }),
        });
    }
    mended.extend(nameless.map(|wrong| json!({ "type": "node", ODD: wrong })));
    Ok(Value::Array(mended))
}

fn member(row: &ResourceRow, name: &str) -> Result<(), Unsound> {
    word(row, "type")?.ok_or_else(|| odd(row, "type"))?;
    bit(row, "online")?;
    if host(row, "name")? == name {
        Ok(())
    } else {
        Err(odd(row, "name"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> Value {
        json!([
            {"id": "qemu/9100", "type": "qemu", "vmid": 9100, "node": "pve1", "status": "unknown", "lock": null, "maxmem": 5},
            {"id": "lxc/300", "type": "lxc", "vmid": "300", "node": "pve1", "status": "running", "template": 0},
            {"id": "node/pve1", "type": "node", "node": "pve1", "status": "online", "maxmem": 7},
            {"id": "storage/pve1/local", "type": "storage", "storage": "local", "node": "pve1"},
            {"id": "sdn/pve1/localnetwork", "type": "sdn", "node": 7},
        ])
    }

    /// The ids of mended rows that are ours.
    fn marked(data: &Value) -> Vec<String> {
        let mended = resources(data).expect("a list");
        let rows = mended.as_array().expect("rows").iter();
        let odd = rows.filter(|row| row.get(ODD).is_some());
        odd.map(|row| row["id"].as_str().expect("an id").to_owned())
            .collect()
    }

    #[test]
    fn a_row_that_cannot_be_read_costs_its_guest_or_host_alone() {
        assert_eq!(marked(&list()), Vec::<String>::new());
        let guest = ["qemu/9100"].as_slice();
        for (row, key, value, whose) in [
            (0, "vmid", Value::Null, guest),
            (0, "vmid", json!(9101), &["qemu/9100", "qemu/9101"]),
            (0, "vmid", json!(-9100), guest),
            (0, "vmid", json!(300), &["qemu/300", "qemu/9100"]),
            (0, "type", json!(""), guest),
            (0, "type", json!(5), guest),
            (0, "type", json!("sdn"), guest),
            (0, "id", json!(9100), guest),
            (0, "node", Value::Null, guest),
            (0, "node", json!("pve1\0"), guest),
            (0, "lock", json!(["clone"]), guest),
            (0, "template", json!("x"), guest),
            (0, "maxmem", json!(-1), guest),
            (0, "maxmem", json!(u64::MAX), guest),
            (0, "maxcpu", json!([4]), guest),
            (2, "node", json!(""), &["node/pve1"]),
            (2, "type", json!({}), &["node/pve1"]),
            (2, "status", Value::Null, &["node/pve1"]),
            (2, "maxmem", json!(1e300), &["node/pve1"]),
            (2, "cpu", json!(-0.5), &["node/pve1"]),
        ] {
            let mut damaged = list();
            damaged[row][key] = value.clone();
            let marked = marked(&damaged);
            assert_eq!(marked, whose, "{key} of row {row}: {value}");
        }
        for (row, whose) in [(0, "qemu/9100"), (1, "lxc/300"), (2, "node/pve1")] {
            let mut damaged = list();
            let twice = damaged[row].clone();
            damaged.as_array_mut().expect("a list").push(twice);
            assert_eq!(marked(&damaged), [whose], "row {row} twice");
        }
    }

    #[test]
    fn a_guest_whose_type_and_id_do_not_both_say_container_may_be_a_vm() {
        let kind = |row: Value| {
            let mut damaged = list();
            damaged[0] = row;
            let mended = resources(&damaged).expect("a list");
            let mut rows = mended.as_array().expect("rows").iter();
            let row = rows.find(|row| row["vmid"] == json!(9100)).expect("a row");
            assert!(row.get(ODD).is_some(), "{row}");
            row["type"].as_str().expect("a type").to_owned()
        };
        for (told, id, wanted) in [
            (json!("lxc"), json!("qemu/9100"), "qemu"),
            (json!("qemu"), json!("lxc/9100"), "qemu"),
            (json!("lxc"), json!(9100), "qemu"),
            (json!(5), json!("lxc/9100"), "qemu"),
            (json!("lxc"), json!("lxc/9100"), "lxc"),
        ] {
            let row = json!({"type": told, "id": id, "vmid": 9100, "node": "pve1", "maxmem": -1});
            assert_eq!(kind(row), wanted, "type {told}, id {id}");
        }
        // Of two rows the first is not truer.
        let mut damaged = list();
        let mut twice = damaged[1].clone();
        (twice["type"], twice["id"]) = (json!("qemu"), json!("qemu/300"));
        damaged.as_array_mut().expect("a list").push(twice);
        assert_eq!(marked(&damaged), ["qemu/300"]);
    }

    #[test]
    fn a_row_that_may_be_anybodys_spoils_the_list() {
        for none in [Value::Null, json!([]), json!({}), json!("x"), json!([1])] {
            assert!(resources(&none).is_err(), "{none}");
        }
        let mut damaged = list();
        damaged[0] = json!({"type": "qemu", "node": "pve1", "status": "running"});
        assert!(resources(&damaged).is_err(), "a guest without a VMID");
        damaged[0] = json!({"node": "pve1", "status": "running"});
        assert!(resources(&damaged).is_err(), "a row of nobody");
    }

    #[test]
    fn a_guest_with_rows_on_two_hosts_leaves_neither_hosts_room_known() {
        let mut damaged = list();
        let rows = damaged.as_array_mut().expect("a list");
        rows.push(json!({"type": "node", "node": "pve2", "status": "online", "maxmem": 7}));
        let mut twice = rows[0].clone();
        twice["node"] = json!("pve2");
        rows.push(twice);
        assert_eq!(marked(&damaged), ["qemu/9100", "node/pve2"]);
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
            let mended = cluster(&good).expect("a cluster");
            assert!(!mended.to_string().contains(ODD), "{mended}");
        }
        let odd = json!({"type": "cluster", "name": "c", "quorate": "yes"});
        let bad = [
            json!([node("a"), node("b")]),
            json!([odd, node("a")]),
            json!([quorate]),
            json!([quorate, quorate, node("a")]),
            json!([node("a"), {"type": 5, "name": "c", "quorate": 1}]),
        ];
        for bad in bad {
            assert!(cluster(&bad).is_err(), "{bad}");
        }
        for row in [
            node("a"),
            json!({"type": "node", "name": null, "online": 1}),
            json!({"type": "node", "name": "c", "online": "maybe"}),
        ] {
            let mended = cluster(&json!([quorate, node("a"), row])).expect("a cluster");
            assert!(mended.to_string().contains(ODD), "{mended}");
        }
    }
}

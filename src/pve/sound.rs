//! What an answer must show before it counts as one: where a guest is and whose it is, whether it runs, and what is under
//! way, is decided by it. A missing answer is not an empty one. Of lists, single rows that cannot be read are told ([`rows`](super::rows)).

use std::net::IpAddr;

use serde_json::{Map, Value};

use super::calls::is_host;
use super::perl;
use super::upid::Upid;
use super::vm_config::option;
use crate::model::pci::PciUse;
use crate::model::topology::is_numa;

/// Most of an odd value that is told, in characters.
const TOLD: usize = 60;

/// Why an answer cannot be used; what of it is odd.
pub(crate) type Unsound = String;

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
    takings(config)
}

/// `…/config` of a guest that is somebody else's: an object in which can be read what the guest takes that nobody else can have.
pub(crate) fn promise(data: &Value) -> Result<(), Unsound> {
    takings(object(data)?)
}

/// Addresses, devices, CPUs and NUMA nodes in a guest's configuration. What of them cannot be read may be any: it is not none.
fn takings(config: &Map<String, Value>) -> Result<(), Unsound> {
    for (key, value) in config {
        let numbered = |stem: &str| {
            let number = key.strip_prefix(stem);
            number.is_some_and(|number| number.parse::<u8>().is_ok())
        };
        let text = value.as_str();
        let text = text.filter(|text| !text.chars().any(char::is_control));
        let fits = if numbered("ipconfig") {
            text.is_some_and(|text| has_only_ip_keys(text) && has_readable_addresses(text))
        } else if numbered("net") {
            text.is_some_and(|text| text.contains('=') && has_readable_addresses(text))
        } else if numbered("hostpci") {
            text.and_then(PciUse::read)
                .is_some_and(|device| is_device(&device))
        } else if key == "affinity" {
            text.is_some_and(|text| !text.is_empty())
        } else if is_numa(key) {
            text.is_some_and(|text| text.is_empty() || text.contains('='))
        } else {
            true
        };
        if !fits {
            return Err(odd(config, key));
        }
    }
    Ok(())
}

/// Whether a text has the keys of an `ipconfigN`, and no others.
fn has_only_ip_keys(value: &str) -> bool {
    value.split(',').all(|part| {
        let key = part.split_once('=').map_or("", |(key, _)| key.trim());
        matches!(key, "ip" | "gw" | "ip6" | "gw6")
    })
}

/// Whether what stands as an address in an `ipconfigN` or a container's `netN` is one, or says that there is none.
fn has_readable_addresses(value: &str) -> bool {
    let parts = value.split(',').filter_map(|part| part.split_once('='));
    let mut addresses = parts.filter(|(key, _)| matches!(key.trim(), "ip" | "ip6"));
    addresses.all(|(_, text)| {
        let address = text.split('/').next().unwrap_or(text).trim();
        matches!(address, "dhcp" | "auto" | "manual") || address.parse::<IpAddr>().is_ok()
    })
}

/// Whether a device is named as PVE names them.
fn is_device(device: &PciUse) -> bool {
    match device {
        PciUse::Mapping(name) | PciUse::Mdev { mapping: name, .. } => name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)),
        PciUse::Device(addresses)
        | PciUse::MdevOf {
            device: addresses, ..
        } => addresses.split(';').all(|address| {
            let address = address.trim();
            let fits = |byte: u8| byte.is_ascii_hexdigit() || b":.".contains(&byte);
            address.contains(':') && address.bytes().all(fits)
        }),
    }
}

/// `/cluster/mapping/usb` and `/cluster/mapping/dir`: each row has its name. One that has none may be any of those that the file names.
pub(crate) fn named_rows(data: &Value) -> Result<(), Unsound> {
    for row in rows(data)? {
        word(row, "id")?.ok_or_else(|| odd(row, "id"))?;
    }
    Ok(())
}

/// `/cluster/mapping/pci`: each mapping's devices can be read. One whose devices cannot may have those of another.
pub(crate) fn mappings(data: &Value) -> Result<(), Unsound> {
    for row in rows(data)? {
        let Some(map) = row.get("map") else { continue };
        let devices = map.as_array().ok_or_else(|| odd(row, "map"))?;
        if !devices.is_empty() {
            word(row, "id")?.ok_or_else(|| odd(row, "id"))?;
        }
        let fits = |device: &Value| {
            let text = device.as_str();
            text.is_some_and(|text| {
                option(text, "node").is_some_and(is_host)
                    && option(text, "path")
                        .is_some_and(|path| is_device(&PciUse::Device(path.into())))
            })
        };
        if !devices.iter().all(fits) {
            return Err(odd(row, "map"));
        }
    }
    Ok(())
}

/// `/nodes/{node}/hardware/pci/{mapping}/mdev`: each type with its number. A number that cannot be read may be any.
pub(crate) fn mediated(data: &Value) -> Result<(), Unsound> {
    for row in rows(data)? {
        word(row, "type")?.ok_or_else(|| odd(row, "type"))?;
        if row.get("available").and_then(perl::integer).is_none() {
            return Err(odd(row, "available"));
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
        let steers = |word: &str| end.is_none() && word.chars().any(char::is_control);
        if text.is_some_and(|status| status.as_str().is_none_or(steers)) {
            return Err(odd(row, "status"));
        }
    }
    Ok(())
}

fn is_time(value: &Value) -> bool {
    perl::integer(value).is_some_and(|seconds| seconds > 0)
}

pub(super) fn rows(data: &Value) -> Result<Vec<&Map<String, Value>>, Unsound> {
    let list = data.as_array();
    let list = list.ok_or_else(|| format!("it is no list but {}", told(data)))?;
    list.iter().map(object).collect()
}

fn object(data: &Value) -> Result<&Map<String, Value>, Unsound> {
    let object = data.as_object();
    object.ok_or_else(|| format!("{} stands where an object should", told(data)))
}

/// A word of PVE's own (a type, a state, a lock, a digest): nothing, or a text without blanks and control characters.
pub(super) fn word<'a>(row: &'a Map<String, Value>, key: &str) -> Result<Option<&'a str>, Unsound> {
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
pub(super) fn bit(row: &Map<String, Value>, key: &str) -> Result<Option<bool>, Unsound> {
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

pub(super) fn host<'a>(row: &'a Map<String, Value>, key: &str) -> Result<&'a str, Unsound> {
    let name = row.get(key).and_then(Value::as_str);
    name.filter(|name| is_host(name))
        .ok_or_else(|| odd(row, key))
}

/// What is odd about a row, by its id where it has one.
pub(super) fn odd(row: &Map<String, Value>, key: &str) -> Unsound {
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

    /// Of each thing that only one guest can have: what is no answer, and what is one.
    #[test]
    fn what_a_guest_takes_is_known_or_the_guest_is_not() {
        let good = json!({
            "ipconfig0": "ip=192.0.2.5/24,gw=192.0.2.1,ip6=auto", "net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0", "net1": "name=eth0,ip=dhcp",
            "hostpci0": "0000:01:00.0;0000:01:00.1,pcie=1", "hostpci1": "mapping=gpu_1,pcie=1", "affinity": "3,5-6", "numa0": "cpus=0-1,hostnodes=0,memory=512",
            "numa": 1, "onboot": "1", "scsi0": "local:vm-300-disk-0,size=4G",
        });
        assert_eq!(promise(&good), Ok(()));
        assert_eq!(promise(&json!({})), Ok(()));
        for (key, values) in [
            (
                "ipconfig0",
                json!([
                    null,
                    "",
                    "-1",
                    "gw=x,other=1",
                    5,
                    [],
                    {},
                    true,
                    "ip=\u{0}1",
                    "ip=192.0.2.5\u{0}/24",
                    "ip=x/24",
                    "ip=-1"
                ]),
            ),
            (
                "net1",
                json!([null, "", "-1", 7, ["ip=192.0.2.5/24"], "ip=192.0.2.500/24"]),
            ),
            (
                "hostpci0",
                json!([
                    null,
                    1,
                    [],
                    {},
                    false,
                    "",
                    "pcie=1",
                    "0000:01\u{7}:00.0",
                    "-1",
                    "host=card"
                ]),
            ),
            ("hostpci1", json!(["mapping=g\u{e2}", "mapping="])),
            (
                "affinity",
                json!([null, "", 3, -1, 1e300, [], {}, true, "0-\u{0}3"]),
            ),
            ("numa0", json!([null, "-1", 7, [], {"cpus": 1}, false])),
        ] {
            for value in values.as_array().expect("values") {
                let mut damaged = good.clone();
                damaged[key] = value.clone();
                assert!(promise(&damaged).is_err(), "{key}: {value}");
                damaged["digest"] = json!("d1");
                assert!(config(&damaged).is_err(), "{key}: {value} of ours");
            }
        }
        for none in [Value::Null, json!([]), json!("x"), json!(1)] {
            assert!(promise(&none).is_err(), "{none}");
        }
    }

    #[test]
    fn mappings_of_which_one_cannot_be_read_are_none() {
        let good = json!([{"id": "gpu", "map": ["node=pve1,path=0000:01:00.0,id=10de:1eb8", "node=pve2,path=02:00"]}, {"id": "nic"}]);
        assert_eq!(mappings(&good), Ok(()));
        for (key, value) in [
            ("id", Value::Null),
            ("id", json!(5)),
            ("map", Value::Null),
            ("map", json!("node=pve1,path=0000:01:00.0")),
            ("map", json!([5])),
            ("map", json!(["node=pve1"])),
            ("map", json!(["node=pve1,path=\u{0}"])),
        ] {
            let mut damaged = good.clone();
            damaged[0][key] = value.clone();
            assert!(mappings(&damaged).is_err(), "{key}: {value}");
        }
        assert!(mappings(&json!({})).is_err());
    }

    #[test]
    fn mediated_devices_of_which_one_number_cannot_be_read_are_none() {
        let good = json!([{"type": "nvidia-63", "available": 4, "description": "frl_config=60\nmax"}, {"type": "nvidia-64", "available": "0", "name": "GRID T4-2Q"}]);
        assert_eq!(mediated(&good), Ok(()));
        assert_eq!(mediated(&json!([])), Ok(()));
        for (key, value) in [
            ("type", Value::Null),
            ("type", json!("")),
            ("type", json!(63)),
            ("available", Value::Null),
            ("available", json!("many")),
            ("available", json!([])),
        ] {
            let mut damaged = good.clone();
            damaged[0][key] = value.clone();
            assert!(mediated(&damaged).is_err(), "{key}: {value}");
        }
        assert!(mediated(&json!({})).is_err());
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

//! What an answer must show before it counts as one: where a guest is and whose it is, whether it runs, and what is under
//! way, is decided by it. A missing answer is not an empty one. Of lists, single rows that cannot be read are told ([`rows`](super::rows)).

use serde_json::{Map, Value};

use super::calls::is_host;
use super::perl;
use super::upid::Upid;

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

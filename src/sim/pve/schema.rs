//! The types of parameters and how PVE checks them (its JSONSchema.pm), with its words.

use std::collections::BTreeMap;

use super::wire::{ErrorAnswer, ParamValue, ParamValues};

/// What a parameter may hold.
#[derive(Clone, Copy, Debug)]
pub(super) enum ParamKind {
    /// An integer within bounds.
    Integer(Option<i64>, Option<i64>),
    /// A number within bounds.
    Number(Option<i64>, Option<i64>),
    /// `0` or `1`.
    Boolean,
    /// Text of at most so many characters.
    Text(Option<usize>),
    /// One of these.
    Enum(&'static [&'static str]),
    /// Text that matches the schema's pattern, checked by the function.
    Pattern(
        #[cfg_attr(
            not(test),
            expect(dead_code, reason = "read where the table meets the schema")
        )]
        &'static str,
        fn(&str) -> bool,
    ),
    /// Text in one of PVE's formats of at most so many characters; the function says what is wrong.
    Format(
        #[cfg_attr(
            not(test),
            expect(dead_code, reason = "read where the table meets the schema")
        )]
        &'static str,
        Option<usize>,
        fn(&str) -> Result<(), String>,
    ),
    /// A property string; the handler reads it.
    Properties,
    /// A list of text.
    List,
    /// A name of a disk of a VM.
    Disk,
}

/// One parameter. A name ending in `[n]` stands for the numbered ones below `count`.
#[derive(Clone, Copy, Debug)]
pub(super) struct ParamSchema {
    /// The parameter's name.
    pub(super) name: &'static str,
    /// What it holds.
    pub(super) kind: ParamKind,
    /// It may be missing.
    pub(super) optional: bool,
    /// It only makes sense with this other one.
    pub(super) requires: Option<&'static str>,
    /// How many numbered ones.
    pub(super) count: u32,
}

/// A parameter that must be given.
pub(super) const fn must(name: &'static str, kind: ParamKind) -> ParamSchema {
    ParamSchema {
        name,
        kind,
        optional: false,
        requires: None,
        count: 0,
    }
}

/// A parameter that may be given.
pub(super) const fn may(name: &'static str, kind: ParamKind) -> ParamSchema {
    ParamSchema {
        name,
        kind,
        optional: true,
        requires: None,
        count: 0,
    }
}

/// A parameter that may be given together with another.
pub(super) const fn with(
    name: &'static str,
    kind: ParamKind,
    requires: &'static str,
) -> ParamSchema {
    ParamSchema {
        name,
        kind,
        optional: true,
        requires: Some(requires),
        count: 0,
    }
}

/// Numbered parameters.
pub(super) const fn many(name: &'static str, kind: ParamKind, count: u32) -> ParamSchema {
    ParamSchema {
        name,
        kind,
        optional: true,
        requires: None,
        count,
    }
}

impl ParamSchema {
    /// Whether this describes the parameter `name`.
    pub(super) fn is(&self, name: &str) -> bool {
        let Some(stem) = self.name.strip_suffix("[n]") else {
            return self.name == name;
        };
        name.strip_prefix(stem)
            .is_some_and(|number| numbers(number, self.count))
    }
}

/// Bounds of a VMID.
pub(super) const VMID: ParamKind = ParamKind::Integer(Some(100), Some(999_999_999));
/// A host's name.
pub(super) const NODE: ParamKind = ParamKind::Format("pve-node", None, node_name);
/// A storage's name.
pub(super) const STORAGE: ParamKind = ParamKind::Format("pve-storage-id", None, storage_id);
/// A configuration's identifier, such as a snapshot's name.
pub(super) const CONFIG_ID: ParamKind = ParamKind::Format("pve-configid", Some(40), config_id);
/// A VM's name.
pub(super) const DNS_NAME: ParamKind = ParamKind::Format("dns-name", None, dns_name);

/// Checks parameters against their descriptions, of which those of `lacking` do not hold; a lone value of a list becomes a list.
pub(super) fn verify(
    described: &[&[ParamSchema]],
    lacking: &[&str],
    mut params: ParamValues,
) -> Result<ParamValues, ErrorAnswer> {
    let find = |name: &str| {
        described
            .iter()
            .flat_map(|group| group.iter())
            .find(|param| param.is(name) && !lacking.contains(&name))
    };
    let mut errors = BTreeMap::new();
    for (name, given) in &mut params {
        let Some(param) = find(name) else {
            errors.insert(
                name.clone(),
                "property is not defined in schema and the schema does not allow additional properties".to_owned(),
            );
            continue;
        };
        if let (ParamKind::List, ParamValue::Text(text) | ParamValue::Number(text)) =
            (param.kind, &*given)
        {
            *given = ParamValue::List(vec![text.clone()]);
        }
        if let Err(why) = check(param.kind, given) {
            // Of a property string the property is named with the parameter before it.
            let of = format!("format error\n{name}.");
            errors.insert(name.clone(), why.replacen("format error\n", &of, 1));
        }
    }
    for param in described.iter().flat_map(|group| group.iter()) {
        if !param.optional && !params.contains_key(param.name) {
            errors.insert(
                param.name.to_owned(),
                "property is missing and it is not optional".to_owned(),
            );
        }
        if let Some(other) = param.requires
            && params.contains_key(param.name)
            && !params.contains_key(other)
        {
            errors.insert(
                other.to_owned(),
                format!("missing property - '{}' requires this property", param.name),
            );
        }
    }
    if errors.is_empty() {
        Ok(params)
    } else {
        Err(ErrorAnswer::parameters(errors))
    }
}

fn type_error(kind: &str, got: &str) -> String {
    format!("type check ('{kind}') failed - got '{got}'")
}

fn check(kind: ParamKind, given: &ParamValue) -> Result<(), String> {
    let text = match given {
        ParamValue::Text(text) | ParamValue::Number(text) => text.as_str(),
        ParamValue::List(_) if matches!(kind, ParamKind::List) => return Ok(()),
        ParamValue::List(_) => return Err(type_error("string", "ARRAY")),
    };
    match kind {
        ParamKind::Integer(least, most) => {
            let number: i64 = text.parse().map_err(|_| type_error("integer", text))?;
            bounds(number, least, most).map_err(|why| match kind {
                // Its format is looked at before its bounds, and holds them.
                ParamKind::Integer(Some(100), Some(999_999_999)) => {
                    "invalid format - value does not look like a valid VM ID\n".to_owned()
                }
                _ => why,
            })
        }
        ParamKind::Number(least, most) => {
            let number: f64 = text.parse().map_err(|_| type_error("number", text))?;
            #[expect(clippy::cast_precision_loss, reason = "bounds are small")]
            let below = least.is_some_and(|least| number < least as f64);
            #[expect(clippy::cast_precision_loss, reason = "bounds are small")]
            let above = most.is_some_and(|most| number > most as f64);
            match (below, above) {
                (true, _) => Err(minimum(least)),
                (_, true) => Err(maximum(most)),
                _ => Ok(()),
            }
        }
        ParamKind::Boolean if matches!(text, "0" | "1") => Ok(()),
        ParamKind::Boolean => Err(type_error("boolean", text)),
        ParamKind::Text(limit) => length(text, limit),
        ParamKind::Enum(values) if values.contains(&text) => Ok(()),
        ParamKind::Enum(values) => Err(format!(
            "value '{text}' does not have a value in the enumeration '{}'",
            values.join(", ")
        )),
        ParamKind::Pattern(_, matches) if matches(text) => Ok(()),
        ParamKind::Pattern(..) => Err("value does not match the regex pattern".to_owned()),
        ParamKind::Format(_, limit, verify) => {
            length(text, limit)?;
            verify(text).map_err(|why| format!("invalid format - {why}\n"))
        }
        ParamKind::Disk if is_disk(text) => Ok(()),
        ParamKind::Disk => Err(format!(
            "value '{text}' does not have a value in the enumeration '{}'",
            disks().join(", ")
        )),
        ParamKind::Properties | ParamKind::List => Ok(()),
    }
}

fn bounds(number: i64, least: Option<i64>, most: Option<i64>) -> Result<(), String> {
    if least.is_some_and(|least| number < least) {
        return Err(minimum(least));
    }
    if most.is_some_and(|most| number > most) {
        return Err(maximum(most));
    }
    Ok(())
}

fn minimum(least: Option<i64>) -> String {
    format!(
        "value must have a minimum value of {}",
        least.unwrap_or_default()
    )
}

fn maximum(most: Option<i64>) -> String {
    format!(
        "value must have a maximum value of {}",
        most.unwrap_or_default()
    )
}

fn length(text: &str, limit: Option<usize>) -> Result<(), String> {
    match limit {
        Some(limit) if text.chars().count() > limit => {
            Err(format!("value may only be {limit} characters long"))
        }
        _ => Ok(()),
    }
}

/// The buses of a VM's drives and how many each takes, in PVE's order.
const BUSES: [(&str, u32); 4] = [("ide", 4), ("scsi", 31), ("virtio", 16), ("sata", 6)];

/// The drives a VM can have, in PVE's order.
pub(super) fn disks() -> Vec<String> {
    BUSES
        .iter()
        .flat_map(|(bus, count)| (0..*count).map(move |number| format!("{bus}{number}")))
        .chain(["efidisk0".to_owned(), "tpmstate0".to_owned()])
        .collect()
}

/// Whether a key names a drive.
pub(super) fn is_disk(key: &str) -> bool {
    let numbered = |(bus, count): &(&str, u32)| {
        key.strip_prefix(bus)
            .is_some_and(|number| numbers(number, *count))
    };
    matches!(key, "efidisk0" | "tpmstate0") || BUSES.iter().any(numbered)
}

/// Whether a text is a number below `count`, written as PVE does.
fn numbers(text: &str, count: u32) -> bool {
    (text == "0" || !text.starts_with('0'))
        && !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && text.parse::<u32>().is_ok_and(|number| number < count)
}

fn node_name(text: &str) -> Result<(), String> {
    let fine = text.len() <= 63
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.ends_with(|last: char| last.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if fine {
        Ok(())
    } else {
        Err("value does not look like a valid node name".to_owned())
    }
}

fn storage_id(text: &str) -> Result<(), String> {
    let fine = text.len() >= 2
        && text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.ends_with(|last: char| last.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if fine {
        Ok(())
    } else {
        Err(format!("storage ID '{text}' contains illegal characters"))
    }
}

pub(super) fn config_id(text: &str) -> Result<(), String> {
    let fine = text.len() >= 2
        && text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if fine {
        Ok(())
    } else {
        Err(format!("invalid configuration ID '{text}'"))
    }
}

fn dns_name(text: &str) -> Result<(), String> {
    let label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    if text.split('.').all(label) {
        Ok(())
    } else {
        Err("value does not look like a valid DNS name".to_owned())
    }
}

/// `pve-configid-list`, but of configuration keys: names only.
pub(super) fn key_list(text: &str) -> Result<(), String> {
    split(text).try_for_each(|key| {
        if key
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        {
            Ok(())
        } else {
            Err(format!("invalid configuration ID '{key}'"))
        }
    })
}

/// `pve-tag-list`.
pub(super) fn tag_list(text: &str) -> Result<(), String> {
    split(text).try_for_each(|tag| {
        let fine = tag.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '_')
            && tag
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_-+.".contains(&byte));
        if fine {
            Ok(())
        } else {
            Err("invalid characters in tag".to_owned())
        }
    })
}

/// `urlencoded`: percent-encoded text without blanks.
pub(super) fn url_encoded(text: &str) -> Result<(), String> {
    let fine = text
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"%-_.!~*'()".contains(&byte));
    if fine {
        Ok(())
    } else {
        Err(format!("invalid urlencoded string: {text}"))
    }
}

/// A format that the handlers look at, if anybody.
#[expect(clippy::unnecessary_wraps, reason = "it stands among checks that fail")]
pub(super) fn anything(_: &str) -> Result<(), String> {
    Ok(())
}

/// Splits one of PVE's lists: commas, semicolons, blanks, NUL.
pub(super) fn split(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', ';', ' ', '\t', '\n', '\0'])
        .filter(|part| !part.is_empty())
}

//! Texts of the configuration with `{{ … }}` in them, and what of a machine may stand there.
//!
//! The language is minijinja's. What is not known is an error, and a text that never ends is one too.

use std::sync::{Arc, OnceLock};

use minijinja::{Environment, ErrorKind, UndefinedBehavior, Value};

use crate::scheduling::Labels;

/// What the language itself has names for.
const FUNCTIONS: [&str; 3] = ["dict", "namespace", "range"];
/// Steps that filling in one text may take.
const FUEL: u64 = 10_000;

/// What a text may say of its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts<'a> {
    /// `machine`: its name, which is its node's too.
    pub machine: &'a str,
    /// `vmid`.
    pub vmid: u32,
    /// `host`.
    pub host: &'a str,
    /// `region`.
    pub region: &'a str,
    /// `pool`.
    pub pool: &'a str,
    /// `instance_type`.
    pub instance_type: &'a str,
}

impl Facts<'_> {
    fn pairs(&self) -> Vec<(&str, Value)> {
        vec![
            ("host", self.host.into()),
            ("instance_type", self.instance_type.into()),
            ("machine", self.machine.into()),
            ("pool", self.pool.into()),
            ("region", self.region.into()),
            ("vmid", self.vmid.into()),
        ]
    }
}

/// Whether something is to be filled in.
pub fn has_gaps(text: &str) -> bool {
    text.contains('{')
}

/// The text with its gaps filled in.
///
/// # Errors
/// What is wrong with it, and what is known where it names something that is not.
pub fn fill(text: &str, facts: &Facts<'_>) -> Result<String, String> {
    fill_with(text, facts, &[])
}

/// The text with its gaps filled in; `more`: what else it may name.
///
/// # Errors
/// As [`fill`].
pub fn fill_with(text: &str, facts: &Facts<'_>, more: &[(&str, &str)]) -> Result<String, String> {
    let more = more.iter();
    let more = more.map(|(name, value)| (*name, Value::from(*value)));
    fill_all(text, facts, more.collect())
}

/// As [`fill_with`], for names that may stand for lists and tables, too.
///
/// # Errors
/// As [`fill`], with the line of the text.
pub fn fill_values(
    text: &str,
    facts: &Facts<'_>,
    more: &[(&str, serde_json::Value)],
) -> Result<String, String> {
    let more = more.iter();
    let more = more.map(|(name, value)| (*name, value_of(value)));
    fill_all(text, facts, more.collect())
}

fn value_of(json: &serde_json::Value) -> Value {
    use serde_json::Value as Json;
    match json {
        Json::Null => Value::from(()),
        Json::Bool(flag) => Value::from(*flag),
        Json::Number(number) => match number.as_i64() {
            Some(number) => Value::from(number),
            None => Value::from(number.to_string()),
        },
        Json::String(text) => Value::from(text),
        Json::Array(items) => items.iter().map(value_of).collect(),
        Json::Object(pairs) => {
            let pairs = pairs.iter();
            Value::from_pairs(pairs.map(|(key, value)| (key.as_str(), value_of(value))))
        }
    }
}

fn fill_all(text: &str, facts: &Facts<'_>, more: Vec<(&str, Value)>) -> Result<String, String> {
    static ENVIRONMENT: OnceLock<Environment<'static>> = OnceLock::new();
    let environment = ENVIRONMENT.get_or_init(|| {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_fuel(Some(FUEL));
        environment
    });
    let mut pairs = facts.pairs();
    pairs.extend(more);
    let template = environment
        .template_from_str(text)
        .map_err(|error| wrong(&error))?;
    // A name in a branch that is not taken today is wrong all the same.
    let mut unknown: Vec<String> = template.undeclared_variables(false).into_iter().collect();
    unknown.sort();
    let known =
        |name: &str| FUNCTIONS.contains(&name) || pairs.iter().any(|(known, _)| *known == name);
    if let Some(name) = unknown.iter().find(|name| !known(name)) {
        let names: Vec<&str> = pairs.iter().map(|(key, _)| *key).collect();
        return Err(format!(
            "it names {name:?}, which is not known here; known are {}",
            names.join(", ")
        ));
    }
    let context = Value::from_pairs(pairs);
    template.render(context).map_err(|error| wrong(&error))
}

fn wrong(error: &minijinja::Error) -> String {
    match error.kind() {
        ErrorKind::OutOfFuel => "it takes too long to fill in".to_owned(),
        kind => {
            // Of a text of one line that is no news.
            let line = error.line().filter(|line| *line > 1);
            let line = line.map_or_else(String::new, |line| format!("line {line}: "));
            let detail = error.detail().map(|detail| format!(": {detail}"));
            let detail = detail.unwrap_or_default();
            format!("{line}it cannot be filled in: {kind}{detail}")
        }
    }
}

/// Labels with their gaps filled in, and what is wrong with those that could not be: they are left out.
pub fn fill_labels(labels: &Labels, facts: &Facts<'_>) -> (Labels, Option<String>) {
    let mut problem = None;
    let mut filled = Labels::new();
    for (key, value) in labels {
        if !has_gaps(value) {
            filled.insert(key.clone(), value.clone());
            continue;
        }
        match fill(value, facts) {
            Ok(text) if is_label_value(&text) => {
                filled.insert(key.clone(), Arc::from(text));
            }
            Ok(text) => {
                problem = Some(format!(
                    "label {key}: {value:?} comes to {text:?} for machine {}, which is no label's value",
                    facts.machine
                ));
            }
            Err(why) => problem = Some(format!("label {key}: {value:?}: {why}")),
        }
    }
    (filled, problem)
}

/// Whether any of these has gaps.
pub fn any_gaps(labels: &Labels) -> bool {
    labels.values().any(|value| has_gaps(value))
}

/// A label's value: empty, or at most 63 letters, digits, '-', '_' and '.', the first and last a letter or digit.
pub fn is_label_value(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    let middle = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    text.is_empty()
        || (bytes.len() <= 63
            && edge(bytes.first())
            && edge(bytes.last())
            && bytes.iter().all(middle))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: Facts<'_> = Facts {
        machine: "small-abcde",
        vmid: 9001,
        host: "pve1",
        region: "home",
        pool: "small",
        instance_type: "s",
    };

    #[test]
    fn gaps_are_filled_in_and_what_is_not_known_is_said() {
        let fill = |text: &str| fill(text, &FACTS);
        assert_eq!(
            fill("proxmox://{{ region }}/{{ vmid }}").as_deref(),
            Ok("proxmox://home/9001")
        );
        assert_eq!(
            fill("{{ host | upper }}-{{ machine }}-{{ pool }}-{{ instance_type }}").as_deref(),
            Ok("PVE1-small-abcde-small-s")
        );
        assert_eq!(fill("plain").as_deref(), Ok("plain"));
        assert_eq!(
            fill("{{ hsot }}"),
            Err("it names \"hsot\", which is not known here; known are host, instance_type, machine, pool, region, vmid".to_owned())
        );
        // Not only where the branch is taken.
        assert!(fill("{% if vmid < 5 %}{{ hsot }}{% endif %}").is_err());
        assert!(fill("{{ host").is_err());
        let endless =
            "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}";
        assert_eq!(
            fill(endless),
            Err("it takes too long to fill in".to_owned())
        );
        assert_eq!(
            fill_with("{{ endpoint }}", &FACTS, &[("endpoint", "a:1")]).as_deref(),
            Ok("a:1")
        );
    }

    #[test]
    fn a_label_that_cannot_be_is_left_out_and_told_of() {
        let labels: Labels = [
            ("a", "x"),
            ("b", "{{ host }}"),
            ("c", "{{ host }}/{{ vmid }}"),
        ]
        .map(|(key, value)| (Arc::from(key), Arc::from(value)))
        .into();
        assert!(any_gaps(&labels));
        let (filled, problem) = fill_labels(&labels, &FACTS);
        let shown: Vec<(&str, &str)> = filled.iter().map(|(k, v)| (&**k, &**v)).collect();
        assert_eq!(shown, [("a", "x"), ("b", "pve1")]);
        assert!(problem.is_some_and(|why| why.contains("pve1/9001")));
        for (text, right) in [("", true), ("a.b_c-1", true), ("-a", false), ("a/b", false)] {
            assert_eq!(is_label_value(text), right, "{text}");
        }
    }
}

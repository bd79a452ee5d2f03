//! Deeds in words: the same on the terminal and on the page.

use serde_json::Value;

use super::beginning::BeginCause;
use super::line::{Deed, DeedKind};
use crate::model::time::{Span, Time};

/// What an action does, as the end of a sentence that begins with the decision.
pub fn does(action: &str) -> &str {
    match action {
        "create" => "make",
        "continue" => "go on with",
        "remove" => "remove",
        "release" => "keep after all",
        "delete_node" => "delete the Node of",
        "delete_placeholder" => "delete the placeholder of",
        "drop_intent" => "forget",
        "start" => "start",
        "relabel" => "relabel",
        "update" => "update in place the VM of",
        other => other,
    }
}

/// What a deed is, and why. `after`: how long what ended took, where that is known; `clock` writes points in time.
pub fn deed(deed: &Deed, after: Option<Span>, clock: impl Fn(Time) -> String) -> (String, String) {
    let plain = |what: String| (what, String::new());
    match &deed.kind {
        DeedKind::Planned {
            action,
            machine,
            host,
            why,
            ..
        } => (format!("{} {machine} on {host}", does(action)), why.clone()),
        DeedKind::Begun { .. } => begun(&deed.kind),
        DeedKind::NotBegun {
            action,
            machine,
            why,
        } => (
            format!("not begun: {} {machine}", does(action)),
            why.clone(),
        ),
        DeedKind::Ended {
            action,
            machine,
            failure,
        } => ended(action, machine, failure.as_deref(), after),
        // What is asked of something is asked by its name.
        DeedKind::Asked { asked, why, by } if asked == "retry" || asked.starts_with("evacuate") => {
            let by = by.as_deref().unwrap_or(SOMEBODY);
            plain(format!("{by} asked: {asked} {why}"))
        }
        DeedKind::Asked { asked, why, by } => {
            let (reason, signed) = split_signature(why);
            let by = by.as_deref().or(signed).unwrap_or(SOMEBODY);
            (format!("{by} asked: {asked}"), reason.to_owned())
        }
        DeedKind::Leads { leader: None } => plain("this host's instance leads".to_owned()),
        DeedKind::Leads { leader: Some(host) } => (
            format!("the instance on {host} leads"),
            format!("what it does is in its own record: type history on {host}"),
        ),
        DeedKind::Pod { verdict, report } => (
            format!("the pod: {}", pod_word(verdict.as_deref(), report)),
            said(report, clock),
        ),
        DeedKind::Node { verdict, report } => (
            format!("the node: {}", node_word(verdict.as_deref(), report)),
            said(report, clock),
        ),
        DeedKind::Lost { many } => {
            let lost = match many {
                1 => "one decision or event".to_owned(),
                many => format!("{many} decisions and events"),
            };
            (
                format!("{lost} could not be recorded"),
                "the log of that time says why".to_owned(),
            )
        }
        DeedKind::OnHold { .. } | DeedKind::HoldEnded { .. } | DeedKind::Unrecorded { .. } => {
            idle(deed)
        }
    }
}

/// Who asked, where the record does not say who it was.
const SOMEBODY: &str = "somebody";

/// The reason of a pause, or of its end, and who signed it (`storage move (by ann)`; of older versions without a reason `by ann`).
fn split_signature(why: &str) -> (&str, Option<&str>) {
    if let Some(by) = why.strip_prefix("by ") {
        return ("", Some(by));
    }
    let signed = why.strip_suffix(')');
    match signed.and_then(|signed| signed.rsplit_once(" (by ")) {
        Some((reason, by)) => (reason, Some(by)),
        None => (why, None),
    }
}

/// Changed keys of a configuration that are named.
const NAMED_KEYS: usize = 6;

/// How a record begins, or goes on.
fn begun(kind: &DeedKind) -> (String, String) {
    let DeedKind::Begun {
        program,
        cause,
        host,
        changed,
        former_program,
        former_host,
    } = kind
    else {
        return (String::new(), String::new());
    };
    let what = match cause {
        None => format!("a record begins, version {program}"),
        Some(BeginCause::Started) => {
            let place = host.as_ref().filter(|_| former_host.is_some());
            let place = place.map_or_else(String::new, |host| format!(" on {host}"));
            format!("the daemon starts{place}, version {program}")
        }
        Some(BeginCause::Configured) => "the daemon has a configuration now".to_owned(),
        Some(BeginCause::Reloaded) => "the configuration is read anew".to_owned(),
        Some(BeginCause::Again) => "the daemon's loop starts anew".to_owned(),
        Some(BeginCause::Segment) => "the record goes on in a new segment".to_owned(),
    };
    let mut why = Vec::new();
    match cause {
        Some(BeginCause::Configured) => why.push("it ran without one before".to_owned()),
        Some(BeginCause::Reloaded) => why.push(changed_keys(changed)),
        Some(BeginCause::Again) => why.push("it ended with an error, which the log has".to_owned()),
        _ => {}
    }
    why.extend(former_host.as_ref().map(|host| format!("before on {host}")));
    why.extend(
        former_program
            .as_ref()
            .map(|program| format!("before it was version {program}")),
    );
    (what, why.join("; "))
}

/// The keys that were changed before a configuration was read anew.
fn changed_keys(changed: &[String]) -> String {
    if changed.is_empty() {
        return "nothing in the file was changed".to_owned();
    }
    let (named, more) = changed.split_at(changed.len().min(NAMED_KEYS));
    let named = named.join(", ");
    match more.len() {
        0 => format!("changed: {named}"),
        more => format!("changed: {named} and {more} more"),
    }
}

/// Why nothing was done.
fn idle(deed: &Deed) -> (String, String) {
    match &deed.kind {
        DeedKind::OnHold { scope, why, .. } => (format!("on hold: {scope}"), why.to_string()),
        DeedKind::HoldEnded { scope, why, since } => {
            let lasted = whole_seconds(deed.at.since(*since));
            let because = if why.is_empty() {
                String::new()
            } else {
                format!(": {why}")
            };
            (
                format!("no longer on hold: {scope}"),
                format!("after {lasted}{because}"),
            )
        }
        DeedKind::Unrecorded { until, why } => {
            let long = until.map(|until| whole_seconds(until.since(deed.at)));
            let what = long.map_or_else(
                || "nothing is recorded after this".to_owned(),
                |long| format!("nothing is recorded for {long}"),
            );
            (what, why.clone())
        }
        _ => (String::new(), String::new()),
    }
}

/// How an action ended.
fn ended(
    action: &str,
    machine: &str,
    failure: Option<&str>,
    after: Option<Span>,
) -> (String, String) {
    if let Some(failure) = failure {
        let what = format!("failed: {} {machine}", does(action));
        return (what, failure.to_owned());
    }
    let after = after.map(|after| format!("after {}", whole_seconds(after)));
    let what = match action {
        "create" | "continue" => format!("{machine} is a working node"),
        "remove" => format!("{machine} is gone"),
        other => format!("done: {} {machine}", does(other)),
    };
    (what, after.unwrap_or_default())
}

fn whole_seconds(span: Span) -> Span {
    Span(span.0 / 1_000 * 1_000)
}

/// A verdict on a pod in words.
fn pod_word(verdict: Option<&str>, report: &Value) -> String {
    let words = match verdict {
        None if report.get("node").is_some() => "bound",
        None => "gone",
        Some("fits_node") => "fits on a node",
        Some("fits_machine") => "waits for a machine",
        Some("triggers") => "a machine is made for it",
        Some("batched") => "waits for its batch",
        Some("held") => "held back",
        Some("no_compatible_pool") => "no pool can run it",
        Some("ignored") => "calls for no node",
        Some("unread") => "not known yet",
        Some(other) => other,
    };
    words.to_owned()
}

/// A verdict on a node in words.
fn node_word(verdict: Option<&str>, report: &Value) -> String {
    let code = report.pointer("/details/code").and_then(Value::as_str);
    match (verdict, code) {
        // It stays for now, and that is the least of what is to be said of it.
        (Some("kept"), Some("given_up")) => "given up".to_owned(),
        (Some(other), _) => other.replace('_', " "),
        (None, _) => "gone".to_owned(),
    }
}

/// What a verdict says, whatever its form: a node, a machine, reasons.
fn said(report: &Value, clock: impl Fn(Time) -> String) -> String {
    let text = |key: &str| report.get(key).map(plain);
    let until = report.get("until").and_then(Value::as_str);
    // A sentence that names the time itself says what is then.
    let why = report.get("why").and_then(Value::as_str);
    let until = until.filter(|until| !why.is_some_and(|why| why.contains(until)));
    let until = until.and_then(Time::find_in);
    let until = until.map(|(_, at, _)| format!("until {}", clock(at)));
    let mut parts = ["node", "machine", "why", "by"].map(text).to_vec();
    parts.push(until);
    parts
        .into_iter()
        .flatten()
        .filter(|text| !text.is_empty())
        .collect::<Vec<_>>()
        .join("; ")
}

/// JSON as text for people.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Object(map) => {
            let parts = map
                .iter()
                .map(|(key, value)| format!("{key}: {}", plain(value)));
            parts.collect::<Vec<_>>().join("; ")
        }
        Value::Array(list) => list.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

//! `history`: what was decided and done, and why, from the record. Asks no daemon, but where its record is if its socket is named.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::args::{ControlOptions, HistoryOptions};
use super::causes::{SharedCauses, WhyCell};
use super::control;
use super::output::OutputFormat;
use super::render::{one_line, whole_seconds};
use super::table::table;
use super::times::{local, part_at, zone_name};
use super::{CliFailure, print};
use crate::clock::Clock;
use crate::controller::control::ControlCommand;
use crate::model::time::Time;
use crate::model::words;
use crate::record::{Deed, DeedKind, Filter, History, ToldDeeds};

/// As `-o json` prints it.
#[derive(Serialize, JsonSchema)]
pub(super) struct HistoryOutput<'a> {
    /// The version of this form.
    schema_version: u32,
    /// The same number, under the name that it had at first.
    version: u32,
    /// The versions of the program that recorded these deeds, in that order.
    programs: &'a [Arc<str>],
    /// What was decided and done, the oldest first.
    deeds: &'a [Deed],
    /// What of the record could not be read.
    unread: Vec<String>,
}

/// Tells what was done.
pub(super) fn run(options: &HistoryOptions) -> Result<(), CliFailure> {
    let (record, now) = match &options.socket {
        Some(socket) => record_of(socket)?,
        None => (options.record.clone(), Clock::System.now()),
    };
    let filter = Filter {
        pod: options.pod.clone(),
        node: options.node.clone(),
        machine: options.machine.clone(),
        pool: options.pool.clone(),
        ..part_at(&options.part, now)?
    };
    let history = History::open(&record)?;
    let most = usize::try_from(options.limit)?;
    let ToldDeeds {
        deeds: before,
        damage: unread,
    } = history.find_deeds(&filter, most.saturating_add(BEFORE))?;
    let deeds = &before[before.len().saturating_sub(most)..];
    let programs = programs_of(deeds);
    if matches!(options.output, OutputFormat::Json | OutputFormat::Yaml) {
        let told = HistoryOutput {
            schema_version: SCHEMA_VERSION,
            version: SCHEMA_VERSION,
            programs: &programs,
            deeds,
            unread,
        };
        return options.output.show(&told, String::new);
    }
    for problem in &unread {
        super::say(&format!("pve-autoscaler: {}", one_line(problem)));
    }
    if deeds.is_empty() {
        return print(&nothing_found(&history, &filter, &TimeZone::system())?);
    }
    if deeds.len() == most {
        let lines = match most {
            1 => "line".to_owned(),
            many => format!("{many} lines"),
        };
        super::say(&format!(
            "pve-autoscaler: the latest {lines}; --limit, --since and --until tell of others"
        ));
    }
    let depth = if options.detail {
        HistoryDepth::Everything
    } else if options.machine.is_some() {
        HistoryDepth::Hosts
    } else {
        HistoryDepth::Lines
    };
    let wide = options.output == OutputFormat::Wide;
    let text = told(
        deeds,
        &planned_at(&before),
        (depth, wide),
        &TimeZone::system(),
    );
    let text = recorded_by(&programs) + &text;
    super::write(&options.output.laid_out(&text))
}

/// The version of `-o json`.
const SCHEMA_VERSION: u32 = 1;

/// The versions of the program that recorded these deeds, in that order.
fn programs_of(deeds: &[Deed]) -> Vec<Arc<str>> {
    let mut programs: Vec<Arc<str>> = Vec::new();
    for program in deeds.iter().filter_map(|deed| deed.program.as_ref()) {
        if !programs.contains(program) {
            programs.push(program.clone());
        }
    }
    programs
}

/// The line above the table: which programs recorded what it tells.
fn recorded_by(programs: &[Arc<str>]) -> String {
    let those = match programs {
        [] => return String::new(),
        [one] => format!("version {one}"),
        several => format!("versions {}", words::names(several)),
    };
    format!("Recorded by {}\n", one_line(&those))
}

/// Deeds among which names are looked for that the record knows.
const LOOKED_AT: usize = 10_000;

/// That there is nothing to tell, of what time the record is, and what it has instead of an unknown name.
fn nothing_found(
    history: &History,
    filter: &Filter,
    zone: &TimeZone,
) -> Result<String, CliFailure> {
    let all = history.deeds(&Filter::default(), LOOKED_AT)?;
    let (Some(began), Some(last)) = (history.began()?, all.last()) else {
        return Ok("Nothing is in the record yet.\n".to_owned());
    };
    let whole = filter.since.is_none() && filter.until.is_none();
    let mut text = if whole {
        "Nothing that concerns what you ask for is in the record.\n"
    } else {
        "Nothing was done in that time that concerns what you ask for.\n"
    }
    .to_owned();
    for (what, wanted, known) in names_asked_for(filter, &all) {
        if known.contains(&wanted) {
            continue;
        }
        let mut named: Vec<&str> = known.iter().map(String::as_str).collect();
        let near = similar::get_close_matches(wanted.as_str(), &named, NAMED, ALIKE);
        if !near.is_empty() {
            named = near;
        }
        let named = match named.len() {
            0 => String::new(),
            1..=NAMED => format!("; it knows {}", named.join(", ")),
            more => format!(
                "; it knows {} and {} more",
                named[..NAMED].join(", "),
                more - NAMED
            ),
        };
        let _ = writeln!(text, "The record knows no {what} {wanted}{named}.");
    }
    for (from, until, host) in led_elsewhere(&all) {
        if !overlaps(filter, from, until) {
            continue;
        }
        let until = until.map_or_else(String::new, |until| {
            format!(" until {}", local(until, zone))
        });
        let _ = writeln!(
            text,
            "From {}{until} the instance on {host} led, and what it did is in its own record: type history on {host}.",
            local(from, zone),
        );
    }
    let _ = writeln!(
        text,
        "The record begins at {}; what was done last in it was at {} ({}).",
        local(began, zone),
        local(last.at, zone),
        zone_name(zone)
    );
    Ok(text)
}

/// Since when and until when (`None`: it still does) another instance led, and on which host.
fn led_elsewhere(deeds: &[Deed]) -> Vec<(Time, Option<Time>, Arc<str>)> {
    let mut spans: Vec<(Time, Option<Time>, Arc<str>)> = Vec::new();
    for deed in deeds {
        let DeedKind::Leads { leader } = &deed.kind else {
            continue;
        };
        if let Some((_, until @ None, _)) = spans.last_mut() {
            *until = Some(deed.at);
        }
        spans.extend(leader.clone().map(|host| (deed.at, None, host)));
    }
    spans
}

/// Whether such a span has something of the time that is asked for.
fn overlaps(filter: &Filter, from: Time, until: Option<Time>) -> bool {
    filter.until.is_none_or(|end| from <= end)
        && filter
            .since
            .is_none_or(|begin| until.is_none_or(|until| until >= begin))
}

/// Names that are named instead of an unknown one.
const NAMED: usize = 5;

/// How alike a name must be to an unknown one to stand for all, 1 being the same.
const ALIKE: f32 = 0.7;

/// What is asked for by name, and the names of that kind in some deeds. Pods are left out: most of them have none.
fn names_asked_for(
    filter: &Filter,
    deeds: &[Deed],
) -> Vec<(&'static str, String, BTreeSet<String>)> {
    let mut known: [BTreeSet<String>; 3] = Default::default();
    for deed in deeds {
        match &deed.kind {
            DeedKind::Planned {
                machine,
                node,
                pool,
                ..
            } => {
                known[0].insert(machine.to_string());
                known[1].extend(node.as_ref().map(ToString::to_string));
                known[2].extend(pool.as_ref().map(ToString::to_string));
            }
            DeedKind::NotBegun { machine, .. } | DeedKind::Ended { machine, .. } => {
                known[0].insert(machine.to_string());
            }
            _ => {}
        }
    }
    // A machine's node has its name.
    let machines = known[0].clone();
    known[1].extend(machines);
    let wanted = [&filter.machine, &filter.node, &filter.pool];
    let kinds = ["machine", "node", "pool"].into_iter().zip(wanted);
    let all = kinds.zip(known);
    all.filter_map(|((kind, wanted), known)| Some((kind, wanted.clone()?, known)))
        .collect()
}

/// Where the daemon that answers at a socket has its record, and the time by its clock.
fn record_of(socket: &Path) -> Result<(PathBuf, Time), CliFailure> {
    let socket = ControlOptions {
        socket: socket.to_owned(),
    };
    let (answer, now) = control::ask_with_time(&socket, &ControlCommand::Status)?;
    let record = answer.get("record").and_then(Value::as_str);
    let record = record.filter(|path| !path.is_empty());
    let record = record.context("the daemon there does not say where its record is; is it of another version? Name it by --record")?;
    Ok((record.into(), now))
}

/// When it was first decided what becomes of a machine.
type PlannedAt = BTreeMap<(Arc<str>, Course), Time>;

/// What becomes of a machine by several actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Course {
    Up,
    Down,
    Other,
}

impl Course {
    fn of(action: &str) -> Course {
        match action {
            "create" | "continue" => Course::Up,
            "remove" | "delete_placeholder" | "drop_intent" | "delete_node" => Course::Down,
            _ => Course::Other,
        }
    }
}

/// Deeds that are read beyond those that are shown: what ends in one that is shown was planned in one before it.
const BEFORE: usize = 1_000;

/// When the courses of all machines were decided on.
fn planned_at(deeds: &[Deed]) -> PlannedAt {
    let mut planned = PlannedAt::new();
    for deed in deeds {
        if let DeedKind::Planned {
            machine, action, ..
        } = &deed.kind
        {
            let key = (machine.clone(), Course::of(action));
            planned.entry(key).or_insert(deed.at);
        }
    }
    planned
}

/// How much is told of what was planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HistoryDepth {
    /// A line a decision and kind of action.
    Lines,
    /// A line an action, and why the host of a new machine was chosen.
    Hosts,
    /// A line an action, and all that is behind it.
    Everything,
}

/// A row: when, what, and why.
type DeedRow = (String, String, WhyCell);

/// Deeds as a table. What several of them say is told once below it; `wide`: in each row.
fn told(
    deeds: &[Deed],
    planned: &PlannedAt,
    (depth, wide): (HistoryDepth, bool),
    zone: &TimeZone,
) -> String {
    let mut rows: Vec<DeedRow> = Vec::new();
    let mut group: Vec<&Deed> = Vec::new();
    for deed in deeds {
        let together = group.last().is_some_and(|last| {
            depth == HistoryDepth::Lines
                && (last.at, last.decision) == (deed.at, deed.decision)
                && verb(last) == verb(deed)
        });
        if !together {
            rows.extend(plan_row(&group, zone));
            group.clear();
        }
        match &deed.kind {
            DeedKind::Planned { .. } => {
                group.push(deed);
                if depth != HistoryDepth::Lines {
                    rows.extend(plan_row(&group, zone));
                    rows.extend(details(deed, depth));
                    group.clear();
                }
            }
            _ => rows.push(row(deed, planned, zone)),
        }
    }
    rows.extend(plan_row(&group, zone));
    let time = format!("TIME ({})", zone_name(zone));
    let mut causes = SharedCauses::among(wide, rows.iter().map(|(_, _, why)| why));
    let rows = rows.into_iter().map(|(at, what, why)| {
        let why = causes.write(&why);
        vec![at, what, why]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let mut text = table(&[&time, "WHAT", "WHY"], &rows);
    let mut below = String::new();
    causes.tell(&mut below);
    if !below.is_empty() {
        let _ = write!(text, "\n{}\n", below.trim_end());
    }
    text
}

/// The kind of action of a plan.
fn verb(deed: &Deed) -> Option<&str> {
    match &deed.kind {
        DeedKind::Planned { action, .. } => Some(action),
        _ => None,
    }
}

/// What an action does, as the end of a sentence that begins with the decision.
fn does(action: &str) -> &str {
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

/// Hosts that are named where machines are made or removed together. Of more their number is told.
const NAMED_HOSTS: usize = 4;

/// One line for actions of one kind that were planned together.
fn plan_row(group: &[&Deed], zone: &TimeZone) -> Option<DeedRow> {
    let first = group.first()?;
    let (mut machines, mut whys) = (Vec::new(), Vec::new());
    let mut hosts: Vec<&str> = Vec::new();
    for deed in group {
        if let DeedKind::Planned {
            machine, why, host, ..
        } = &deed.kind
        {
            machines.push(machine.to_string());
            if !whys.contains(&one_line(why)) {
                whys.push(one_line(why));
            }
            if !hosts.contains(&&**host) {
                hosts.push(host);
            }
        }
    }
    let hosts = if hosts.len() > NAMED_HOSTS {
        words::count(hosts.len(), "host")
    } else {
        words::each(&hosts)
    };
    let what = format!(
        "{} {} on {hosts}",
        does(verb(first)?),
        words::some(&machines)
    );
    let whys = whys.iter().map(|why| failure_in(why));
    Some((
        local(first.at, zone),
        one_line(&what),
        WhyCell::of_each(whys.collect()),
    ))
}

/// What is behind an action.
fn details(deed: &Deed, depth: HistoryDepth) -> Vec<DeedRow> {
    let DeedKind::Planned {
        planned,
        pool,
        instance_type,
        chosen_host,
        ..
    } = &deed.kind
    else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    let mut tell = |name: &str, text: String| {
        if !text.is_empty() {
            let name = format!("  {}", one_line(name));
            lines.push((String::new(), name, WhyCell::one(&text, "")));
        }
    };
    let list = |value: Option<&Value>| {
        let list = value.and_then(Value::as_array).map(Vec::as_slice);
        let names = list.unwrap_or_default().iter().filter_map(Value::as_str);
        names.collect::<Vec<_>>().join(", ")
    };
    // In the words of `plan`.
    if let Some(chosen) = chosen_host {
        tell(&format!("why on {}", chosen.host), chosen.to_string());
    }
    if depth == HistoryDepth::Hosts {
        return lines;
    }
    let kind = instance_type.as_deref().unwrap_or_default();
    let vmid = planned.pointer("/target/vmid").map(ToString::to_string);
    let short = [
        ("pool", pool.as_deref().unwrap_or_default()),
        ("type", kind),
        ("VMID", vmid.as_deref().unwrap_or_default()),
    ];
    let short = short.iter().filter(|(_, text)| !text.is_empty());
    let short: Vec<String> = short.map(|(name, text)| format!("{name} {text}")).collect();
    tell(&format!("decision {}", deed.decision), short.join(", "));
    tell("for pods", list(planned.pointer("/reason/pods")));
    tell(
        "pods that move",
        list(planned.pointer("/precondition/pods")),
    );
    let landing = planned.pointer("/precondition/landing");
    let landing = landing.and_then(Value::as_object).into_iter().flatten();
    let landing: Vec<String> = landing
        .map(|(pod, node)| format!("{pod} to {}", node.as_str().unwrap_or_default()))
        .collect();
    tell("where they fit", landing.join(", "));
    lines
}

/// One line for what is no plan.
fn row(deed: &Deed, planned: &PlannedAt, zone: &TimeZone) -> DeedRow {
    let (what, why) = match &deed.kind {
        DeedKind::Planned { machine, why, .. } => (machine.to_string(), why.clone()),
        DeedKind::Begun { program } => {
            (format!("a record begins, version {program}"), String::new())
        }
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
        } => ended(
            action,
            machine,
            failure.as_deref(),
            planned.get(&(machine.clone(), Course::of(action))),
            deed.at,
        ),
        // What is asked of something is asked by its name.
        DeedKind::Asked { asked, why, by } if asked == "retry" || asked.starts_with("evacuate") => {
            let by = by.as_ref().map(|by| format!("by {by}"));
            let what = format!("somebody asked: {asked} {why}");
            (what, by.unwrap_or_default())
        }
        DeedKind::Asked { asked, why, .. } => (format!("somebody asked: {asked}"), why.clone()),
        DeedKind::Leads { leader: None } => {
            ("this host's instance leads".to_owned(), String::new())
        }
        DeedKind::Leads { leader: Some(host) } => (
            format!("the instance on {host} leads"),
            format!("what it does is in its own record: type history on {host}"),
        ),
        DeedKind::Pod { verdict, report } => (
            format!("the pod: {}", pod_word(verdict.as_deref())),
            said(report, zone),
        ),
        DeedKind::Node { verdict, report } => (
            format!("the node: {}", node_word(verdict.as_deref(), report)),
            said(report, zone),
        ),
        DeedKind::Lost { many } => (
            format!("{many} decisions and events could not be recorded"),
            "the log of that time says why".to_owned(),
        ),
    };
    let why = WhyCell::of_each(vec![failure_in(&one_line(&why))]);
    (local(deed.at, zone), one_line(&what), why)
}

/// What stands before the words of a failure, and the words: how far a machine came, and why it is removed, are told with the
/// same words right after each other.
fn failure_in(why: &str) -> (String, String) {
    let is_head =
        |head: &str| head == "it failed" || (head.starts_with("at ") && !head.contains(','));
    match why.split_once(": ") {
        Some((head, words)) if is_head(head) => (head.to_owned(), words.to_owned()),
        _ => (String::new(), why.to_owned()),
    }
}

/// How an action ended.
fn ended(
    action: &str,
    machine: &str,
    failure: Option<&str>,
    planned: Option<&Time>,
    at: Time,
) -> (String, String) {
    if let Some(failure) = failure {
        let what = format!("failed: {} {machine}", does(action));
        return (what, failure.to_owned());
    }
    let after = planned.map(|planned| format!("after {}", whole_seconds(at.since(*planned))));
    let what = match action {
        "create" | "continue" => format!("{machine} is a working node"),
        "remove" => format!("{machine} is gone"),
        other => format!("done: {} {machine}", does(other)),
    };
    (what, after.unwrap_or_default())
}

/// A verdict on a pod in words.
fn pod_word(verdict: Option<&str>) -> String {
    let words = match verdict {
        None => "bound or gone",
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
fn said(report: &Value, zone: &TimeZone) -> String {
    let text = |key: &str| report.get(key).map(plain);
    let until = report.get("until").and_then(Value::as_str);
    // A sentence that names the time itself says what is then.
    let why = report.get("why").and_then(Value::as_str);
    let until = until.filter(|until| !why.is_some_and(|why| why.contains(until)));
    let until = until.and_then(|at| at.parse::<Timestamp>().ok());
    let until = until.map(|at| format!("until {}", local(Time(at.as_millisecond()), zone)));
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

#[cfg(test)]
mod tests;

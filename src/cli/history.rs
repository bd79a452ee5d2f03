//! `history`: what was decided and done, and why, from the record. Asks no daemon, but where its record is if its socket is named.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::CliFailure;
use super::args::{ControlOptions, HistoryOptions};
use super::causes::{SharedCauses, WhyCell};
use super::control;
use super::output::{self, OutputFormat};
use super::render::one_line;
use super::table::table;
use super::times::{local, part_at, zone_name};
use crate::clock::Clock;
use crate::controller::control::ControlCommand;
use crate::model::time::Time;
use crate::model::words;
use crate::record::words::{deed as deed_in_words, does};
use crate::record::{Deed, DeedKind, Filter, History, IdleTime, ToldDeeds};

mod lacking;

use lacking::AskedTime;

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
    /// The times in which nothing was done that have something of the time that is asked for: something was on hold, or nothing is
    /// recorded. Of whatever is asked for besides.
    idle: &'a [IdleTime],
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
        idle,
        known,
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
            idle: &idle,
            unread,
        };
        return options.output.show(&told, String::new);
    }
    for problem in &unread {
        super::say_beside(&one_line(problem));
    }
    let zone = TimeZone::system();
    let asked = AskedTime {
        filter: &filter,
        idle: &idle,
        known,
        now,
        zone: &zone,
    };
    if deeds.is_empty() {
        return super::write(&output::sentences(&asked.nothing_found(&history)?));
    }
    if deeds.len() == most {
        let lines = match most {
            1 => "line".to_owned(),
            many => format!("{many} lines"),
        };
        super::say_beside(&format!(
            "the latest {lines}; --limit, --since and --until tell of others"
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
    let table = told(deeds, &planned_at(&before), (depth, wide), &zone);
    let text = recorded_by(&programs) + &asked.beside_rows() + &table;
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

/// Where the daemon that answers at a socket has its record, and the time by its clock.
pub(super) fn record_of(socket: &Path) -> Result<(PathBuf, Time), CliFailure> {
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
    let short = if short.is_empty() {
        "-".to_owned()
    } else {
        short.join(", ")
    };
    tell(&format!("decision {}", deed.decision), short);
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
    let after = match &deed.kind {
        DeedKind::Ended {
            action, machine, ..
        } => planned
            .get(&(machine.clone(), Course::of(action)))
            .map(|planned| deed.at.since(*planned)),
        _ => None,
    };
    let (what, why) = deed_in_words(deed, after, |at| local(at, zone));
    let why = WhyCell::of_each(vec![failure_in(&one_line(&why))]);
    (local(deed.at, zone), one_line(&what), why)
}

/// What stands before the words of a failure, and the words: how far a machine came, why it is removed, that its pool is on hold
/// and for how long it was are told with the same words right after each other.
fn failure_in(why: &str) -> (String, String) {
    let mut words = why;
    while let Some((head, rest)) = words.split_once(": ")
        && is_head_of_failure(head)
    {
        words = rest;
    }
    let head = why.strip_suffix(words).unwrap_or_default();
    (head.trim_end_matches(": ").to_owned(), words.to_owned())
}

/// Whether words only say of what the cause behind them is the cause.
fn is_head_of_failure(head: &str) -> bool {
    let lasted = head.strip_prefix("after ");
    head == "it failed"
        || head == "it backs off after a failure"
        || (head.starts_with("at ") && !head.contains(','))
        || lasted.is_some_and(|span| !span.contains(' '))
}

#[cfg(test)]
mod tests;

//! A decision that comes out otherwise, in words: what would be made and removed, what becomes of pods and nodes, each reason once. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use jiff::tz::TimeZone;
use serde_json::Value;

use crate::cli::render::one_line;
use crate::cli::times::{local, zone_name};
use crate::controller::wording::{act, node_verdict, pod_verdict};
use crate::model::action::{Action, Kind};
use crate::model::foreign;
use crate::model::report::Report;
use crate::model::time::Time;
use crate::model::words;
use crate::record::replay::{
    DecidedTwice, PoolSum, ReplayDifference, ReplayOutcome, ReplaySum, Replayed, WasIs,
};

/// Characters of a value that are shown.
const VALUE: usize = 160;
/// Values that are named where reports repeat the configuration.
const NAMED: usize = 8;

/// What a report and a decision have besides pods, nodes and holds, by the beginning of its path.
const SUBJECTS: [(&str, &str); 13] = [
    ("report.pools", "pools"),
    ("report.coming", "machines on their way"),
    ("report.hosts", "room on hosts"),
    ("report.storages", "room on storages"),
    ("report.devices", "PCI devices"),
    ("report.networks", "addresses of networks"),
    ("report.warnings", "warnings"),
    ("report.scale_up", "number and price of new machines"),
    ("report.chosen_hosts", "why machines come to their hosts"),
    (
        "report.takes_pods_after",
        "nodes that take pods after others",
    ),
    ("report.unread", "what was not read yet"),
    ("wake", "when it decides again"),
    ("memory", "what the next decision remembers"),
];
/// Paths that have lines of their own.
const TOLD: [&str; 4] = ["plan", "report.pods", "report.nodes", "report.holds"];

/// How decisions are shown.
#[derive(Debug)]
pub(super) struct ShownPart {
    pub(super) zone: TimeZone,
    /// Entries of a decision at most.
    pub(super) limit: usize,
    /// Every value, too, by its path, and no limit.
    pub(super) detail: bool,
}

impl ShownPart {
    /// A decision that is another now.
    pub(super) fn told(&self, outcome: &ReplayOutcome) -> String {
        let head = format!(
            "{} ({}), decision {}",
            local(outcome.at, &self.zone),
            zone_name(&self.zone),
            outcome.decision
        );
        let (differences, count) = match &outcome.replayed {
            Replayed::Same => return format!("{head}: the same\n"),
            Replayed::Unreadable { why } => return format!("{head}: {}\n", one_line(why)),
            Replayed::Differs { differences, count } => (differences, *count),
        };
        let mut text = format!("{head}: {}\n", words::count(count as u64, "difference"));
        let mut entries = match &outcome.twice {
            Some(twice) => entries(twice, outcome.at),
            None => Vec::new(),
        };
        if self.detail || outcome.twice.is_none() {
            entries.extend(differences.iter().map(by_path));
        } else {
            entries.extend(subjects(differences));
        }
        let limit = if self.detail { usize::MAX } else { self.limit };
        let left = entries.len().saturating_sub(limit);
        entries.truncate(limit);
        text.extend(entries);
        if left > 0 {
            let _ = writeln!(
                text,
                "  … and {left} more; --limit shows more, -o json has all"
            );
        }
        text
    }
}

/// What is done and said otherwise, each with its lines.
fn entries(twice: &DecidedTwice, now: Time) -> Vec<String> {
    let (was, is) = (&twice.was, &twice.is);
    let mut entries = actions(&was.plan, &is.plan);
    let holds = |report: &Report| -> BTreeSet<(String, String)> {
        let holds = report.holds.iter();
        holds
            .map(|hold| (hold.scope.to_string(), hold.why.to_string()))
            .collect()
    };
    let (held, holds) = (holds(&was.report), holds(&is.report));
    for (head, of) in [
        ("is no more on hold", held.difference(&holds)),
        ("is on hold", holds.difference(&held)),
    ] {
        entries.extend(of.map(|(scope, why)| format!("  {scope} {head}: {}\n", one_line(why))));
    }
    let pods = |report: &Report| -> BTreeMap<String, String> {
        let pods = report.pods.iter();
        pods.map(|(pod, verdict)| (pod.to_string(), sentence(pod_verdict(verdict, now))))
            .collect()
    };
    entries.extend(lots("pod", &pods(&was.report), &pods(&is.report)));
    let nodes = |report: &Report| -> BTreeMap<String, String> {
        let nodes = report.nodes.iter();
        nodes
            .map(|(node, verdict)| (node.to_string(), sentence(node_verdict(verdict, now))))
            .collect()
    };
    entries.extend(lots("node", &nodes(&was.report), &nodes(&is.report)));
    entries
}

fn sentence((what, why): (String, String)) -> String {
    let text = if why.is_empty() {
        what
    } else {
        format!("{what}: {why}")
    };
    one_line(&text)
}

/// What becomes of the same things otherwise; those of which the same is said have one entry.
fn lots(one: &str, was: &BTreeMap<String, String>, is: &BTreeMap<String, String>) -> Vec<String> {
    let mut lots: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    let names: BTreeSet<&String> = was.keys().chain(is.keys()).collect();
    for name in names {
        let (before, after) = (said_of(was, name), said_of(is, name));
        if before != after {
            lots.entry((before, after)).or_default().push(name);
        }
    }
    let entries = lots.into_iter().map(|((before, after), names)| {
        let many = if names.len() == 1 { "" } else { "s" };
        let names = one_line(&words::some(&names));
        format!("  {one}{many} {names}\n    was  {before}\n    is   {after}\n")
    });
    entries.collect()
}

fn said_of<'a>(all: &'a BTreeMap<String, String>, name: &str) -> &'a str {
    let said = all.get(name);
    said.map_or("nothing is said of it", String::as_str)
}

/// An action without its machine: what is done, on what, of what pool and type.
fn subject(action: &Action) -> (&'static str, String) {
    let (verb, place) = act(action);
    let of = match &action.kind {
        Kind::Create(spec) => format!("{}/{}", spec.mark.pool, spec.mark.instance_type),
        _ => place,
    };
    (verb, of)
}

/// An action in a line.
fn in_words(action: &Action) -> String {
    let (verb, place) = act(action);
    one_line(&format!(
        "{verb} {}: {place}; {}",
        action.target.machine, action.reason
    ))
}

/// What is done otherwise. Machines of one pool and type that are made, or not made, are one entry.
fn actions(was: &[Action], is: &[Action]) -> Vec<String> {
    let by_name = |plan: &[Action]| -> BTreeMap<(&'static str, Arc<str>), Action> {
        let plan = plan.iter();
        plan.map(|action| {
            (
                (act(action).0, action.target.machine.clone()),
                action.clone(),
            )
        })
        .collect()
    };
    let (before, after) = (by_name(was), by_name(is));
    let mut entries = Vec::new();
    for (head, here, there) in [("not done", &before, &after), ("done", &after, &before)] {
        let mut lots: BTreeMap<(&str, String), Vec<&Action>> = BTreeMap::new();
        for (key, action) in here {
            if !there.contains_key(key) {
                lots.entry(subject(action)).or_default().push(action);
            }
        }
        for ((verb, of), lot) in lots {
            let Some(first) = lot.first() else { continue };
            let example = in_words(first);
            entries.push(match lot.len() {
                1 => format!("  {head}: {example}\n"),
                many => format!(
                    "  {head}: {verb} {} ({}), such as {example}\n",
                    words::count(many as u64, "machine"),
                    one_line(&of)
                ),
            });
        }
    }
    for (key, action) in &before {
        let Some(other) = after.get(key).filter(|other| *other != action) else {
            continue;
        };
        let (was, is) = (in_words(action), in_words(other));
        entries.push(if was == is {
            format!("  otherwise: {was}\n{}", settings(action, other))
        } else {
            format!("  was: {was}\n  is:  {is}\n")
        });
    }
    let same = |one: &[Action], other: &[Action]| one.len() == other.len() && one != other;
    if entries.is_empty() && same(was, is) {
        entries.push("  the same is done in another order\n".to_owned());
    }
    entries
}

/// What two actions of the same words have otherwise, by the last word of each path.
fn settings(was: &Action, is: &Action) -> String {
    let [Ok(was), Ok(is)] = [was, is].map(serde_json::to_value) else {
        return String::new();
    };
    let mut text = String::new();
    for one in crate::record::replay::differences(&was, &is) {
        let name = one.at.rsplit('.').next().unwrap_or_default();
        let (was, is) = (
            setting(name, one.was.as_ref()),
            setting(name, one.is.as_ref()),
        );
        let _ = writeln!(text, "    {}: was {was}, is {is}", one_line(name));
    }
    text
}

/// A setting's value: bytes as people write them.
fn setting(name: &str, value: Option<&Value>) -> String {
    let bytes = value.and_then(Value::as_i64);
    match bytes.filter(|_| matches!(name, "disk" | "memory")) {
        Some(bytes) => words::bytes(bytes),
        None => json(value),
    }
}

/// How much of what else there is comes out otherwise: a line.
fn subjects(differences: &[ReplayDifference]) -> Option<String> {
    let mut numbers = [0usize; SUBJECTS.len()];
    let mut unknown = 0;
    let within = |at: &str, start: &str| {
        at.strip_prefix(start)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '_']))
    };
    for one in differences {
        if TOLD.iter().any(|start| within(&one.at, start)) {
            continue;
        }
        let known = SUBJECTS
            .iter()
            .position(|(start, _)| within(&one.at, start));
        match known.and_then(|known| numbers.get_mut(known)) {
            Some(number) => *number += 1,
            None => unknown += 1,
        }
    }
    let named = SUBJECTS.iter().map(|(_, words)| *words);
    let all = named.zip(numbers).chain([("others", unknown)]);
    let told: Vec<String> = all
        .filter(|(_, number)| *number > 0)
        .map(|(words, number)| format!("{words} ({number})"))
        .collect();
    let line = format!("  other values: {}; --detail has each\n", told.join(", "));
    (!told.is_empty()).then_some(line)
}

/// A value by its path.
fn by_path(difference: &ReplayDifference) -> String {
    let at = one_line(&difference.at);
    let (was, is) = (json(difference.was.as_ref()), json(difference.is.as_ref()));
    if at.starts_with("memory") {
        return format!("  {at}: was {was}, is {is}\n");
    }
    format!("  {at}\n    was  {was}\n    is   {is}\n")
}

fn json(value: Option<&Value>) -> String {
    match value {
        None => "nothing".to_owned(),
        Some(value) => foreign::line(&value.to_string(), VALUE),
    }
}

/// One line on what reports repeat of the configuration, which is another: it makes no decision another one.
pub(super) fn of_configuration(repeated: &BTreeMap<String, ReplayDifference>) -> String {
    if repeated.is_empty() {
        return String::new();
    }
    let told = repeated.values().take(NAMED).map(|one| {
        let at = one.at.strip_prefix("report.").unwrap_or(&one.at);
        let (was, is) = (json(one.was.as_ref()), json(one.is.as_ref()));
        one_line(&format!("{at} was {was}, is {is}"))
    });
    let told: Vec<String> = told.collect();
    let more = match repeated.len() - told.len() {
        0 => String::new(),
        left => format!("; and {left} more"),
    };
    format!(
        "what reports repeat of the configuration, and counts for no other decision: {}{more}\n",
        told.join("; ")
    )
}

/// What the whole record comes to.
pub(super) fn sum(sum: &ReplaySum) -> String {
    let mut text = String::new();
    let others: Vec<_> = sum.pools.iter().filter(|(_, pool)| differs(pool)).collect();
    let pods = &sum.pods_without_place;
    if sum.others > sum.not_counted {
        text.push_str(
            "in all (each decision was made on what was seen then, so a machine counts once for the pods that wait for it):\n",
        );
        for (name, pool) in &others {
            let _ = writeln!(text, "  pool {}: {}", one_line(name), of_pool(pool));
        }
        if others.is_empty() {
            text.push_str(
                "  as many machines are made and removed in every pool, at the same price\n",
            );
        }
        if pods.was != pods.is {
            let _ = writeln!(
                text,
                "  {} without a place for some time, {} then",
                words::are(pods.is, "pod"),
                pods.was
            );
        }
    }
    let same = sum.same;
    let _ = writeln!(
        text,
        "{}: {same} the same, {} others, {} that this version cannot read",
        words::count(sum.decisions, "recorded decision"),
        sum.others,
        sum.unreadable
    );
    text
}

fn differs(pool: &PoolSum) -> bool {
    let PoolSum {
        made,
        price_per_hour: price,
        removed,
    } = pool;
    made.was != made.is || price.was != price.is || removed.was != removed.is
}

fn of_pool(pool: &PoolSum) -> String {
    let number = |of: &WasIs<u64>, what: &str| match of.is.abs_diff(of.was) {
        0 => format!("as many {what} ({})", of.is),
        by if of.is > of.was => format!("{by} more {what} ({}, {} then)", of.is, of.was),
        by => format!("{by} fewer {what} ({}, {} then)", of.is, of.was),
    };
    let price = &pool.price_per_hour;
    let money = match price.is.saturating_sub(price.was) {
        0 => "at the same price".to_owned(),
        by if by > 0 => format!("for {} an hour more", words::price(by)),
        by => format!("for {} an hour less", words::price(by.saturating_neg())),
    };
    format!(
        "{}, {money}; {}",
        number(&pool.made, "made"),
        number(&pool.removed, "removed")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn outcome(differences: Vec<ReplayDifference>) -> ReplayOutcome {
        ReplayOutcome {
            at: Time(0),
            decision: 7,
            program: "0.0.9".into(),
            replayed: Replayed::Differs {
                count: differences.len(),
                differences,
            },
            configuration: Vec::new(),
            twice: None,
        }
    }

    fn difference(at: &str, was: Option<Value>, is: Option<Value>) -> ReplayDifference {
        let at = at.to_owned();
        ReplayDifference { at, was, is }
    }

    fn shown(limit: usize) -> ShownPart {
        ShownPart {
            zone: TimeZone::UTC,
            limit,
            detail: false,
        }
    }

    /// Of a decision whose form this program does not know, each value stands by its path.
    #[test]
    fn a_decision_of_another_form_is_told_by_its_paths() {
        let until = "memory.backoff.small.until";
        let differences = vec![
            difference("report.pods.default/web.verdict", Some(json!("held")), None),
            difference(until, Some(json!("2026-11-25T10:15:00Z")), None),
            difference("memory.unneeded_since.small-a", None, Some(json!("x"))),
        ];
        let text = shown(8).told(&outcome(differences.clone()));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].ends_with("decision 7: 3 differences"), "{text}");
        assert_eq!(
            lines[1..],
            [
                "  report.pods.default/web.verdict",
                "    was  \"held\"",
                "    is   nothing",
                "  memory.backoff.small.until: was \"2026-11-25T10:15:00Z\", is nothing",
                "  memory.unneeded_since.small-a: was nothing, is \"x\"",
            ],
            "{text}"
        );
        let text = shown(1).told(&outcome(differences));
        assert!(
            text.ends_with("  … and 2 more; --limit shows more, -o json has all\n"),
            "{text}"
        );
    }

    #[test]
    fn pods_of_which_the_same_is_said_are_one_entry() {
        let said = |text: &str, pods: std::ops::Range<u32>| -> BTreeMap<String, String> {
            pods.map(|n| (format!("a/{n}"), text.to_owned())).collect()
        };
        let (mut was, mut is) = (said("fits", 0..5), said("held back: full", 0..5));
        was.insert("a/same".into(), "waits".into());
        is.insert("a/same".into(), "waits".into());
        is.insert("a/new".into(), "waits".into());
        assert_eq!(
            lots("pod", &was, &is),
            [
                "  pods a/0 and 4 others\n    was  fits\n    is   held back: full\n",
                "  pod a/new\n    was  nothing is said of it\n    is   waits\n",
            ]
        );
    }

    #[test]
    fn what_else_differs_is_counted_by_what_it_is_about() {
        let at = |at: &str| difference(at, None, Some(json!(1)));
        let differences = [
            at("report.pods.a/b.verdict"),
            at("report.hosts.default.pve1.left_memory"),
            at("report.hosts.default.pve2.left_memory"),
            at("report.warnings_details.0"),
            at("wake"),
            at("other"),
        ];
        let line = subjects(&differences).expect("a line");
        assert_eq!(
            line,
            "  other values: room on hosts (2), warnings (1), when it decides again (1), others (1); --detail has each\n"
        );
    }

    #[test]
    fn the_sum_says_what_more_and_what_less_is_done() {
        let pool = |made: (u64, u64), price: (i64, i64), removed: (u64, u64)| PoolSum {
            made: WasIs {
                was: made.0,
                is: made.1,
            },
            price_per_hour: WasIs {
                was: price.0,
                is: price.1,
            },
            removed: WasIs {
                was: removed.0,
                is: removed.1,
            },
        };
        let found = ReplaySum {
            decisions: 9,
            same: 3,
            others: 6,
            pools: BTreeMap::from([
                ("a".into(), pool((3, 0), (300_000, 0), (3, 1))),
                ("b".into(), pool((1, 2), (100_000, 200_000), (1, 1))),
                ("c".into(), pool((1, 1), (1, 1), (0, 0))),
            ]),
            pods_without_place: WasIs { was: 0, is: 2 },
            ..ReplaySum::default()
        };
        let text = sum(&found);
        for line in [
            "  pool a: 3 fewer made (0, 3 then), for 0.3 an hour less; 2 fewer removed (1, 3 then)\n",
            "  pool b: 1 more made (2, 1 then), for 0.1 an hour more; as many removed (1)\n",
            " without a place for some time, 0 then\n",
            "9 recorded decisions: 3 the same, 6 others, 0 that this version cannot read\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(!text.contains("pool c"), "{text}");
    }
}

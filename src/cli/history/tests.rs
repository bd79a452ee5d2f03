//! How the history is told.

use super::*;
use crate::model::host_choice::{HostChoice, HostStanding};
use crate::model::hosts::HostStrategy;

#[test]
fn a_removal_took_its_own_time_and_not_its_machines_life() {
    let deed = |at: i64, kind: DeedKind| Deed {
        at: Time(at * 1_000),
        decision: 1,
        program: None,
        kind,
    };
    let planned = |action: &str| DeedKind::Planned {
        action: action.to_owned(),
        machine: "small-aaaaa".into(),
        host: "pve1".into(),
        node: None,
        pool: None,
        instance_type: None,
        why: "pods wait".to_owned(),
        chosen_host: None,
        planned: Value::Null,
    };
    let ended = |action: &str| DeedKind::Ended {
        action: action.to_owned(),
        machine: "small-aaaaa".into(),
        failure: None,
    };
    let deeds = [
        deed(0, planned("create")),
        // The daemon was started anew meanwhile, and goes on.
        deed(20, planned("continue")),
        deed(31, ended("continue")),
        deed(900, planned("remove")),
        deed(909, ended("remove")),
    ];
    let text = told(
        &deeds,
        &planned_at(&deeds),
        (HistoryDepth::Lines, false),
        &TimeZone::UTC,
    );
    let line = |words: &str| {
        let mut lines = text.lines();
        lines
            .find(|line| line.contains(words))
            .map(|line| line.trim_end().to_owned())
    };
    let node = line("is a working node").expect("it was made");
    assert!(node.ends_with("after 31s"), "{text}");
    let gone = line("is gone").expect("it was removed");
    assert!(gone.ends_with("after 9s"), "{text}");
}
#[test]
fn why_a_host_was_chosen_is_told_in_detail_and_of_one_machine() {
    let choice = HostChoice {
        host: "pve3".into(),
        strategy: HostStrategy::Pack,
        standing: HostStanding::default(),
        other: None,
    };
    let words = choice.to_string();
    let deeds = [Deed {
        at: Time(0),
        decision: 7,
        program: None,
        kind: DeedKind::Planned {
            action: "create".to_owned(),
            machine: "small-aaaaa".into(),
            host: "pve3".into(),
            node: None,
            pool: None,
            instance_type: None,
            why: "pods wait".to_owned(),
            chosen_host: Some(Box::new(choice)),
            planned: Value::Null,
        },
    }];
    let told = |depth| told(&deeds, &planned_at(&deeds), (depth, false), &TimeZone::UTC);
    let short = told(HistoryDepth::Lines);
    assert!(
        short.contains("make small-aaaaa on pve3") && !short.contains("why on"),
        "{short}"
    );
    for depth in [HistoryDepth::Hosts, HistoryDepth::Everything] {
        let text = told(depth);
        let line = text.lines().find(|line| line.contains("why on pve3"));
        let ends = line.is_some_and(|line| line.trim_end().ends_with(&words));
        assert!(ends, "{text}");
        let whole = depth == HistoryDepth::Everything;
        assert_eq!(text.contains("decision"), whole, "{text}");
    }
}

/// Two machines fail with the same words, which are told once below the rows; `-o wide` has them in each.
#[test]
fn what_several_rows_say_is_told_once() {
    let words = "VM 9000 is locked (backup); `qm unlock 9000` ends a lock that nobody needs";
    let failure = &format!("at clone: {words}");
    let failed = |at: i64, machine: &str, failure: &str| Deed {
        at: Time(at * 1_000),
        decision: 1,
        program: None,
        kind: DeedKind::Ended {
            action: "create".to_owned(),
            machine: machine.into(),
            failure: Some(failure.to_owned()),
        },
    };
    let deeds = [
        failed(0, "small-aaaaa", failure),
        failed(60, "small-bbbbb", failure),
        failed(
            90,
            "small-ccccc",
            "at join: the token is unknown to this server",
        ),
        failed(120, "small-ddddd", failure),
    ];
    let told = |wide| {
        told(
            &deeds,
            &planned_at(&deeds),
            (HistoryDepth::Lines, wide),
            &TimeZone::UTC,
        )
    };
    let short = told(false);
    assert_eq!(short.matches(words).count(), 1, "{short}");
    let rows: Vec<&str> = short.lines().skip(1).take(4).map(str::trim_end).collect();
    assert!(rows[0].ends_with("small-aaaaa  at clone (1)"), "{short}");
    assert!(rows[2].ends_with("at join: the token is unknown to this server"));
    assert!(rows[3].ends_with("small-ddddd  at clone (1)"), "{short}");
    assert!(
        short.ends_with(&format!("\n\nWhy\n  (1)  {words}\n")),
        "{short}"
    );
    let wide = told(true);
    assert_eq!(wide.matches(&**failure).count(), 3, "{wide}");
    assert!(!wide.contains("(1)"), "{wide}");
}

/// A machine that failed is removed for the same words, which were a second paragraph of the history right below the first.
#[test]
fn the_words_of_a_failure_are_told_once_for_the_failure_and_the_removal() {
    let words =
        "kubeadm join failed with code 1: [ERROR CRI]: could not connect to the container runtime";
    let ended = Deed {
        at: Time(0),
        decision: 1,
        program: None,
        kind: DeedKind::Ended {
            action: "create".to_owned(),
            machine: "small-aaaaa".into(),
            failure: Some(format!("at join: {words}")),
        },
    };
    let mut removed = planned_together(&[("small-aaaaa", "pve1", "")]).remove(0);
    if let DeedKind::Planned { action, why, .. } = &mut removed.kind {
        "remove".clone_into(action);
        *why = format!("it failed: {words}");
    }
    let deeds = [ended, removed];
    let told = |wide| {
        let depth = (HistoryDepth::Lines, wide);
        told(&deeds, &planned_at(&deeds), depth, &TimeZone::UTC)
    };
    let short = told(false);
    assert!(
        short.contains("at join (1)") && short.contains("it failed (1)"),
        "{short}"
    );
    assert_eq!(short.matches(words).count(), 1, "{short}");
    let wide = told(true);
    assert!(wide.contains(&format!("at join: {words}")), "{wide}");
    assert!(wide.contains(&format!("it failed: {words}")), "{wide}");
}

/// Found by it: through a pipe the words of one failure stood in four rows, since a hold and its end have them behind words of their own.
#[test]
fn a_hold_and_its_end_share_their_cause_with_the_failure() {
    let words = "VM 9000 is locked (backup); `qm unlock 9000` ends a lock that nobody needs";
    let unread =
        "pve/default was not yet read completely: no reading of this PVE cluster has ended";
    let held = |scope: &str, why: &str| {
        let (scope, why): (Arc<str>, Arc<str>) = (scope.into(), why.into());
        let begun = DeedKind::OnHold {
            scope: scope.clone(),
            why: why.clone(),
            until: Some(Time(153_000)),
        };
        let ended = DeedKind::HoldEnded {
            scope,
            why,
            since: Time(90_000),
        };
        [(90, begun), (153, ended)]
    };
    let failed = DeedKind::Ended {
        action: "create".to_owned(),
        machine: "small-aaaaa".into(),
        failure: Some(format!("at clone: {words}")),
    };
    let backs_off = format!("it backs off after a failure: at clone: {words}");
    let kinds = [(60, failed)].into_iter();
    let kinds = kinds.chain(held("pool small", &backs_off));
    let kinds = kinds.chain(held("region default", unread));
    let deeds = kinds.map(|(at, kind)| Deed {
        at: Time(at * 1_000),
        decision: 1,
        program: None,
        kind,
    });
    let deeds: Vec<Deed> = deeds.collect();
    let told = |wide| {
        let depth = (HistoryDepth::Lines, wide);
        told(&deeds, &planned_at(&deeds), depth, &TimeZone::UTC)
    };
    let short = told(false);
    for cause in [words, unread] {
        assert_eq!(short.matches(cause).count(), 1, "{short}");
    }
    let rows: Vec<&str> = short.lines().skip(1).take(5).map(str::trim_end).collect();
    for (row, end) in rows.iter().zip([
        "  at clone (1)",
        "it backs off after a failure: at clone (1)",
        "after 1m3s: it backs off after a failure: at clone (1)",
        "  (2)",
        "after 1m3s (2)",
    ]) {
        assert!(row.ends_with(end), "{end:?} does not end {row:?}");
    }
    assert_eq!(told(true).matches(words).count(), 3);
}

/// Machines that one decision makes, each with its reason.
fn planned_together(machines: &[(&str, &str, &str)]) -> Vec<Deed> {
    let deeds = machines.iter().map(|(machine, host, why)| Deed {
        at: Time(0),
        decision: 7,
        program: None,
        kind: DeedKind::Planned {
            action: "create".to_owned(),
            machine: (*machine).into(),
            host: (*host).into(),
            node: None,
            pool: None,
            instance_type: None,
            why: (*why).to_owned(),
            chosen_host: None,
            planned: Value::Null,
        },
    });
    deeds.collect()
}

/// Found by it: `make a and 3 others on pve1 and 2 others`, for `(1); 2 pods fit nowhere else: …; (2)`.
#[test]
fn hosts_of_one_line_are_named_and_its_causes_are_all_numbers_or_all_words() {
    let one = "2 pods fit nowhere else: default/web-1, default/web-2";
    let other = "2 pods fit nowhere else: default/web-3, default/web-4";
    let together = [
        ("a", "pve1", one),
        ("b", "pve2", other),
        ("c", "pve3", one),
        ("d", "pve1", one),
    ];
    let told = |deeds: &[Deed]| {
        told(
            deeds,
            &planned_at(deeds),
            (HistoryDepth::Lines, false),
            &TimeZone::UTC,
        )
    };
    let line = |text: &str| text.lines().nth(1).map(|line| line.trim_end().to_owned());
    let mut deeds = planned_together(&together);
    let text = told(&deeds);
    let words = format!("make a and 3 others on pve1, pve2 and pve3  {one}; {other}");
    assert!(
        line(&text).is_some_and(|line| line.ends_with(&words)),
        "{text}"
    );
    // Another row has one of the two.
    deeds.extend(
        planned_together(&[("e", "pve1", other)])
            .into_iter()
            .map(|deed| Deed {
                decision: 8,
                ..deed
            }),
    );
    let text = told(&deeds);
    let words = "make a and 3 others on pve1, pve2 and pve3  (1, 2)";
    assert!(
        line(&text).is_some_and(|line| line.ends_with(words)),
        "{text}"
    );
    assert!(
        text.ends_with(&format!("\n\nWhy\n  (1)  {one}\n  (2)  {other}\n")),
        "{text}"
    );
    let hosts = ["pve1", "pve2", "pve3", "pve4", "pve5"].map(|host| (host, host, one));
    let text = told(&planned_together(&hosts));
    assert!(text.contains("make pve1 and 4 others on 5 hosts"), "{text}");
}

/// What a node that is given up waits for says until when itself, and it is not just kept.
#[test]
fn a_node_that_is_given_up_is_told_as_that() {
    let at = "2026-01-01T08:03:36.5Z";
    let node = |verdict: Option<&str>, report: Value| {
        let deed = Deed {
            at: Time(0),
            decision: 1,
            program: None,
            kind: DeedKind::Node {
                verdict: verdict.map(str::to_owned),
                report,
            },
        };
        let (_, what, why) = row(&deed, &PlannedAt::new(), &TimeZone::UTC);
        (what, why)
    };
    let said = |what: &str, why: &str| (what.to_owned(), WhyCell::one(why, ""));
    let why = format!(
        "its host pve2 is evacuated since {at}; a machine is made in its place at {at} at the latest"
    );
    let given_up = serde_json::json!({
        "verdict": "kept", "reason": "BeingReplaced", "why": why, "until": at,
        "details": {"code": "given_up", "waits": {"code": "batch"}},
    });
    assert_eq!(
        node(Some("kept"), given_up),
        said("the node: given up", &why)
    );
    let kept = serde_json::json!({
        "verdict": "kept", "reason": "NotLongEnough", "why": "it is young", "until": at,
        "details": {"code": "too_young"},
    });
    assert_eq!(
        node(Some("kept"), kept),
        said("the node: kept", "it is young; until 2026-01-01 08:03:36")
    );
    assert_eq!(node(None, Value::Null), said("the node: gone", ""));
}

/// A record of a program that did not tell who asked has none; that of a pause and of its end stands in their reasons.
#[test]
fn who_asked_stands_beside_what_was_asked() {
    let row = |asked: &str, why: &str, by: Option<&str>| {
        let deed = Deed {
            at: Time(0),
            decision: 1,
            program: None,
            kind: DeedKind::Asked {
                asked: asked.to_owned(),
                why: why.to_owned(),
                by: by.map(str::to_owned),
            },
        };
        let (_, what, why) = row(&deed, &PlannedAt::new(), &TimeZone::UTC);
        (what, why)
    };
    for (asked, why, by, what, cell) in [
        (
            "evacuate",
            "pve2",
            Some("root"),
            "root asked: evacuate pve2",
            "",
        ),
        (
            "evacuate --end",
            "east/pve2",
            Some("ann"),
            "ann asked: evacuate --end east/pve2",
            "",
        ),
        (
            "retry",
            "general",
            None,
            "somebody asked: retry general",
            "",
        ),
        (
            "pause",
            "lunch (again) (by ann)",
            None,
            "ann asked: pause",
            "lunch (again)",
        ),
        ("pause", "by ann", None, "ann asked: pause", ""),
        ("pause", "lunch", None, "somebody asked: pause", "lunch"),
        ("resume", "by bob", None, "bob asked: resume", ""),
    ] {
        let wanted = (what.to_owned(), WhyCell::one(cell, ""));
        assert_eq!(row(asked, why, by), wanted);
    }
}

/// Deeds that are not shown have programs of their own, which are not named; one that recorded in two times is named once.
#[test]
fn only_programs_of_the_deeds_that_are_shown_are_named() {
    let deed = |program: Option<&str>| Deed {
        at: Time(0),
        decision: 1,
        program: program.map(Into::into),
        kind: DeedKind::Lost { many: 1 },
    };
    let deeds = ["0.1.0", "0.2.0", "0.1.0"].map(|program| deed(Some(program)));
    let head = |deeds: &[Deed]| recorded_by(&programs_of(deeds));
    assert_eq!(head(&deeds), "Recorded by versions 0.1.0, 0.2.0\n");
    assert_eq!(head(&deeds[1..2]), "Recorded by version 0.2.0\n");
    assert_eq!(head(&[]), "");
    assert_eq!(head(&[deed(None)]), "");
}

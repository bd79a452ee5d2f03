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
    let failure =
        "at clone: VM 9000 is locked (backup); `qm unlock 9000` ends a lock that nobody needs";
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
    assert_eq!(short.matches(failure).count(), 1, "{short}");
    let rows: Vec<&str> = short.lines().skip(1).take(4).map(str::trim_end).collect();
    assert!(rows[0].ends_with("small-aaaaa  (1)"), "{short}");
    assert!(rows[2].ends_with("at join: the token is unknown to this server"));
    assert!(rows[3].ends_with("small-ddddd  (1)"), "{short}");
    assert!(
        short.ends_with(&format!("\n\nWhy\n  (1)  {failure}\n")),
        "{short}"
    );
    let wide = told(true);
    assert_eq!(wide.matches(failure).count(), 3, "{wide}");
    assert!(!wide.contains("(1)"), "{wide}");
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

//! Which times nothing was done in, from records as they are written.

use super::super::deeds::FoundDeeds;
use super::super::query::Filter;
use super::*;

/// A record of so many seconds after eight.
fn line(second: i64, rest: &str) -> ReadLine {
    let at = at(second);
    let text = format!(r#"{{"at": "{at}", {rest}}}"#);
    serde_json::from_str(&text).expect("a record")
}

fn at(second: i64) -> Time {
    Time(1_767_254_400_000 + second * 1_000)
}

/// A decision that has this on hold: scope, code and sentence, and nothing else.
fn decision(number: u64, second: i64, holds: &[(&str, &str, &str)]) -> ReadLine {
    let scopes: Vec<&str> = holds.iter().map(|(scope, ..)| *scope).collect();
    let scopes = serde_json::to_string(&scopes).expect("JSON");
    let told = holds.iter().map(|(scope, code, why)| {
        serde_json::json!({"scope": scope, "why": why, "details": {"code": code}})
    });
    let told = serde_json::to_string(&told.collect::<Vec<_>>()).expect("JSON");
    let point = format!(r#""number": {number}, "point": {{"holds": {scopes}}}"#);
    if number == 1 {
        let state = format!(r#"{{"decision": {{"report": {{"holds": {told}}}}}}}"#);
        line(
            second,
            &format!(r#""what": "whole", "program": "0.1.0", {point}, "state": {state}"#),
        )
    } else {
        let changes = format!(r#"[[["decision", "report", "holds"], {told}]]"#);
        line(
            second,
            &format!(r#""what": "decision", {point}, "changes": {changes}"#),
        )
    }
}

fn times(lines: &[ReadLine]) -> Vec<(i64, Option<i64>, String)> {
    let mut holds = HoldsByTime::default();
    for line in lines {
        holds.take(line);
    }
    let second = |time: Time| (time.0 - at(0).0) / 1_000;
    let times = holds.idle_times().into_iter().map(|idle| {
        let words = match &idle.cause {
            IdleCause::OnHold { scope, why, .. } => format!("{scope}: {why}"),
            IdleCause::Unrecorded { why } => (*why).to_owned(),
        };
        (second(idle.from), idle.until.map(second), words)
    });
    times.collect()
}

const AWAY: (&str, &str, &str) = ("everything", "stale", "the view of kube/pods is 31s old");

#[test]
fn a_hold_is_told_from_its_beginning_to_its_end_and_a_short_one_is_not() {
    let older = ("everything", "stale", "the view of kube/pods is 95s old");
    let lines = [
        decision(1, 0, &[("everything", "not_read", "nothing is read")]),
        decision(2, 5, &[]),
        decision(3, 100, &[AWAY]),
        decision(4, 160, &[older]),
        // It is read once, and away again.
        decision(5, 170, &[]),
        decision(6, 190, &[AWAY]),
        decision(7, 300, &[]),
        decision(8, 400, &[]),
    ];
    let wanted = (100, Some(300), format!("{}: {}", AWAY.0, AWAY.2));
    assert_eq!(times(&lines), [wanted]);
}

#[test]
fn scopes_and_reasons_are_told_each_for_itself_and_to_the_end_of_the_record() {
    let pool = ("pool a", "backs_off", "it backs off");
    let lines = [
        decision(1, 0, &[]),
        decision(2, 10, &[pool]),
        decision(3, 20, &[pool, ("everything", "paused", "paused: lunch")]),
        decision(4, 120, &[pool, AWAY]),
        line(
            400,
            r#""what": "quiet", "skipped": {"quiet": 3, "until": "2026-01-01T08:06:40Z"}"#,
        ),
    ];
    assert_eq!(
        times(&lines),
        [
            (10, None, "pool a: it backs off".to_owned()),
            (20, Some(120), "everything: paused: lunch".to_owned()),
            (120, None, format!("everything: {}", AWAY.2)),
        ]
    );
}

#[test]
fn the_fault_behind_a_hold_is_told_once_it_is_known() {
    let caused = |second: i64, number: u64| {
        let hold = r#"{"scope": "everything", "why": "late: refused", "cause": "refused", "details": {"code": "stale"}}"#;
        line(
            second,
            &format!(
                r#""what": "decision", "number": {number}, "point": {{"holds": ["everything"]}}, "changes": [[["decision", "report", "holds"], [{hold}]]]"#
            ),
        )
    };
    let lines = [
        decision(1, 0, &[AWAY]),
        caused(30, 2),
        decision(3, 90, &[]),
        decision(4, 200, &[]),
    ];
    let wanted = (0, Some(90), "everything: late: refused".to_owned());
    assert_eq!(times(&lines), [wanted]);
}

#[test]
fn a_time_without_a_record_says_how_it_came() {
    let quiet = |until: i64| {
        let until = at(until);
        format!(r#""skipped": {{"quiet": 1, "until": "{until}"}}"#)
    };
    let stopped = |second: i64| {
        let rest = format!(r#""what": "stopped", {}"#, quiet(second));
        line(second, &rest)
    };
    // Stopped in good order, and started again at once: that is no news.
    let at_once = [
        decision(1, 0, &[]),
        stopped(30),
        decision(1, 35, &[]),
        decision(2, 60, &[]),
    ];
    assert_eq!(times(&at_once), []);
    let later = [
        decision(1, 0, &[AWAY]),
        stopped(300),
        decision(1, 900, &[AWAY]),
        decision(2, 1_000, &[]),
        stopped(1_200),
    ];
    let away = format!("everything: {}", AWAY.2);
    assert_eq!(
        times(&later),
        [
            (0, Some(300), away.clone()),
            (300, Some(900), STOPPED.to_owned()),
            (900, Some(1_000), away),
            (1_200, None, STOPPED.to_owned()),
        ]
    );
    let died = [
        decision(1, 0, &[]),
        decision(2, 60, &[]),
        decision(1, 400, &[]),
    ];
    assert_eq!(times(&died), [(60, Some(400), DIED.to_owned())]);
    // The daemon of a host that sleeps decides the same before and after.
    let slept = [
        decision(1, 0, &[]),
        line(600, &format!(r#""what": "quiet", {}"#, quiet(600))),
        line(9_000, &format!(r#""what": "quiet", {}"#, quiet(9_000))),
    ];
    assert_eq!(times(&slept), [(600, Some(9_000), SILENT.to_owned())]);
}

/// Segments are read one by one, the newest first; the hold is one all the same.
#[test]
fn a_hold_over_several_segments_is_one() {
    let read = |lines: &[ReadLine]| {
        let mut holds = HoldsByTime::default();
        for line in lines {
            holds.take(line);
        }
        holds
    };
    let whole = |number: u64, second: i64| {
        let hold = r#"{"scope": "everything", "why": "paused: a", "details": {"code": "paused"}}"#;
        line(
            second,
            &format!(
                r#""what": "whole", "program": "0.1.0", "number": {number}, "point": {{"holds": ["everything"]}}, "state": {{"decision": {{"report": {{"holds": [{hold}]}}}}}}"#
            ),
        )
    };
    let mut all = read(&[whole(7, 500), decision(8, 700, &[])]);
    all.put_before(read(&[
        whole(3, 0),
        line(
            490,
            r#""what": "quiet", "skipped": {"quiet": 1, "until": "2026-01-01T08:08:10Z"}"#,
        ),
    ]));
    let idle = all.idle_times();
    assert_eq!(idle.len(), 1, "{idle:?}");
    assert_eq!((idle[0].from, idle[0].until), (at(0), Some(at(700))));
}

#[test]
fn rows_stand_where_their_times_are_and_what_is_asked_of_one_thing_has_none() {
    let lines = [
        decision(1, 0, &[]),
        decision(2, 10, &[AWAY]),
        line(50, r#""what": "asked", "asked": "retry", "message": "a""#),
        decision(3, 100, &[]),
        line(120, r#""what": "asked", "asked": "retry", "message": "b""#),
    ];
    let rows = |filter: &Filter, most: usize| {
        let mut found = FoundDeeds::new(filter, most);
        for line in &lines {
            found.look(line);
        }
        let (deeds, idle) = found.finish();
        let rows = deeds.iter().map(|deed| {
            let word = match &deed.kind {
                DeedKind::OnHold { until, .. } => format!("hold until {until:?}"),
                DeedKind::HoldEnded { since, .. } => format!("held since {}", since.0),
                DeedKind::Asked { why, .. } => why.clone(),
                _ => "else".to_owned(),
            };
            ((deed.at.0 - at(0).0) / 1_000, deed.decision, word)
        });
        (rows.collect::<Vec<_>>(), idle.len())
    };
    let (all, idle) = rows(&Filter::default(), 10);
    let wanted = [
        (0, 1, "else".to_owned()),
        (10, 2, format!("hold until {:?}", Some(at(100)))),
        (50, 2, "a".to_owned()),
        (100, 3, format!("held since {}", at(10).0)),
        (120, 3, "b".to_owned()),
    ];
    assert_eq!((&all[..], idle), (&wanted[..], 1));
    assert_eq!(rows(&Filter::default(), 2).0, wanted[3..]);
    let of_time = Filter {
        since: Some(at(20)),
        until: Some(at(60)),
        ..Filter::default()
    };
    assert_eq!(rows(&of_time, 10), (vec![(50, 2, "a".to_owned())], 1));
    let of_pool = Filter {
        pool: Some("a".to_owned()),
        ..Filter::default()
    };
    assert_eq!(rows(&of_pool, 10), (vec![], 1));
}

/// Where the record says who leads, that has a row of its own.
#[test]
fn that_another_instance_leads_is_told_once() {
    let held = |number: u64, second: i64, holds: &str, what: &str| {
        line(
            second,
            &format!(
                r#""what": "decision", "number": {number}, "point": {{"holds": [{what}]}}, "changes": [[["decision", "report", "holds"], [{holds}]]]"#
            ),
        )
    };
    let hold = r#"{"scope": "everything", "why": "pve2_a does", "details": {"code": "not_leader", "holder": "pve2_a"}}"#;
    let leads = line(10, r#""what": "leads", "leader": "pve2""#);
    let mut lines = vec![
        decision(1, 0, &[]),
        held(2, 10, hold, "\"everything\""),
        held(3, 200, "", ""),
    ];
    let filter = Filter::default();
    let kinds = |lines: &[ReadLine]| {
        let mut found = FoundDeeds::new(&filter, 10);
        for line in lines {
            found.look(line);
        }
        let (deeds, idle) = found.finish();
        let held = deeds.iter().filter(|deed| {
            matches!(
                deed.kind,
                DeedKind::OnHold { .. } | DeedKind::HoldEnded { .. }
            )
        });
        let holder = idle[0].holder().map(ToString::to_string);
        (held.count(), holder)
    };
    let holder = Some("pve2_a".to_owned());
    assert_eq!(kinds(&lines), (2, holder.clone()));
    lines.insert(1, leads);
    assert_eq!(kinds(&lines), (0, holder));
}

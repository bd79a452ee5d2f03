use std::collections::BTreeSet;

use super::*;
use crate::config::notification::{Mail, NotificationChannel, Quiet};
use crate::model::condition::Severity;

/// Noon of a day, UTC.
const NOON: Time = Time(1_790_000_000_000 / 86_400_000 * 86_400_000 + 43_200_000);

fn target() -> NotificationSettings {
    NotificationSettings {
        way: NotificationChannel::Mail(Mail {
            to: vec!["root".to_owned()],
            from: "x".to_owned(),
            socket: "/none".into(),
        }),
        severities: BTreeSet::from([Severity::Critical, Severity::Warning]),
        pending_after: Span::minutes(20),
        repeat: Some(Span::minutes(24 * 60)),
        ended: true,
        quiet: None,
    }
}

fn condition(kind: ConditionKind) -> Condition {
    Condition {
        kind,
        subject: "s".into(),
        summary: "x".into(),
        details: "".into(),
        todo: "y".into(),
        since: None,
    }
}

fn seen(conditions: &[Condition]) -> FoundConditions {
    FoundConditions {
        there: conditions
            .iter()
            .map(|one| (one.key(), one.clone()))
            .collect(),
        ..FoundConditions::default()
    }
}

fn minute(number: i64) -> Time {
    NOON + Span::minutes(number)
}

/// One who is told all that is due at once, minute by minute; what it heard, with the minute.
struct Listener {
    ledger: Ledger,
    targets: Targets,
    heard: Vec<(i64, ConditionState, String)>,
}

impl Listener {
    fn new(target: NotificationSettings) -> Listener {
        Listener {
            ledger: Ledger::new(),
            targets: BTreeMap::from([("ops".into(), target)]),
            heard: Vec::new(),
        }
    }

    fn live(&mut self, minutes: std::ops::Range<i64>, seen: &FoundConditions) {
        for number in minutes {
            let now = minute(number);
            self.ledger.see(seen, &self.targets, now);
            let due = self.ledger.due("ops", &self.targets["ops"], now);
            for one in &due {
                self.heard.push((number, one.state, one.condition.key()));
            }
            self.ledger.told(&"ops".into(), &due, now);
        }
    }

    fn states(&self) -> Vec<(i64, ConditionState)> {
        self.heard
            .iter()
            .map(|(at, state, _)| (*at, *state))
            .collect()
    }
}

#[test]
fn a_condition_is_told_once_again_after_a_day_and_when_it_is_over() {
    let mut listener = Listener::new(target());
    let backs_off = seen(&[condition(ConditionKind::PoolBacksOff)]);
    listener.live(0..1_500, &backs_off);
    listener.live(1_500..1_600, &FoundConditions::default());
    let day = 24 * 60;
    assert_eq!(
        listener.states(),
        [
            (15, ConditionState::Began),
            (15 + day, ConditionState::Lasts),
            (1_510, ConditionState::Ended)
        ]
    );
    assert_eq!(listener.ledger, Ledger::new());
}

#[test]
fn what_flickers_is_one_condition_and_what_was_short_is_none() {
    let mut listener = Listener::new(target());
    let old = seen(&[condition(ConditionKind::ViewOld)]);
    // Each time it is back before it counts as over.
    for minutes in 0..30 {
        let now = if minutes % 3 == 2 {
            &FoundConditions::default()
        } else {
            &old
        };
        listener.live(minutes..minutes + 1, now);
    }
    listener.live(30..60, &FoundConditions::default());
    assert_eq!(
        listener.states(),
        [(10, ConditionState::Began), (31, ConditionState::Ended)]
    );
    // Nine minutes are less than ten, and nobody hears of it.
    let mut listener = Listener::new(target());
    listener.live(0..9, &old);
    listener.live(9..60, &FoundConditions::default());
    assert_eq!(listener.states(), []);
}

#[test]
fn a_restart_tells_nothing_twice_and_an_unseen_kind_stands() {
    let mut listener = Listener::new(target());
    let both = seen(&[
        condition(ConditionKind::TemplateFault),
        condition(ConditionKind::Crashed),
    ]);
    listener.live(0..30, &both);
    assert_eq!(listener.heard.len(), 2);
    let kept = serde_json::to_string(&listener.ledger).expect("plain data");
    let mut again = Listener::new(target());
    again.ledger = serde_json::from_str(&kept).expect("it is what was written");
    assert_eq!(again.ledger, listener.ledger);
    // After a start nothing was read yet: neither is over.
    let blind = FoundConditions {
        unknown: BTreeSet::from([ConditionKind::TemplateFault, ConditionKind::Crashed]),
        ..FoundConditions::default()
    };
    again.live(30..40, &blind);
    again.live(40..60, &both);
    assert_eq!(again.heard, []);
}

#[test]
fn quiet_hours_hold_back_all_but_what_is_excepted() {
    let quiet = Quiet {
        from: 12 * 60,
        to: 13 * 60,
        zone: jiff::tz::TimeZone::UTC,
        except: BTreeSet::from([Severity::Critical]),
    };
    let mut listener = Listener::new(NotificationSettings {
        quiet: Some(quiet),
        ..target()
    });
    let mut grave = condition(ConditionKind::HeldBack);
    grave.subject = "".into();
    let short = condition(ConditionKind::RegionHeldBack);
    let lasting = condition(ConditionKind::TemplateFault);
    listener.live(0..40, &seen(&[grave.clone(), short, lasting.clone()]));
    listener.live(40..90, &seen(&[grave, lasting]));
    let heard: Vec<(i64, &str)> = listener
        .heard
        .iter()
        .map(|(at, _, key)| (*at, key.as_str()))
        .collect();
    // What began and ended in them is not told at all.
    assert_eq!(heard, [(15, "held_back"), (60, "template_fault/s")]);
}

#[test]
fn pods_have_their_own_patience_by_the_age_of_the_oldest() {
    let mut listener = Listener::new(target());
    let mut pods = condition(ConditionKind::PodsHeld);
    pods.since = Some(minute(-18));
    listener.live(0..5, &seen(&[pods]));
    assert_eq!(listener.states(), [(2, ConditionState::Began)]);
    // A pod that is old already and was held for a moment only is no reason.
    let mut listener = Listener::new(target());
    let mut pods = condition(ConditionKind::PodsHeld);
    pods.since = Some(minute(-300));
    listener.live(0..1, &seen(&[pods]));
    listener.live(1..30, &FoundConditions::default());
    assert_eq!(listener.states(), []);
}

#[test]
fn severities_are_filtered_and_ends_may_be_left_out() {
    let mut listener = Listener::new(NotificationSettings {
        ended: false,
        repeat: None,
        ..target()
    });
    let all = seen(&[
        condition(ConditionKind::Warnings),
        condition(ConditionKind::TemplateFault),
    ]);
    listener.live(0..3_000, &all);
    listener.live(3_000..3_100, &FoundConditions::default());
    assert_eq!(listener.states(), [(15, ConditionState::Began)]);
    assert_eq!(listener.ledger, Ledger::new());
}

#[test]
fn who_does_not_lead_any_more_forgets_what_the_leader_tells() {
    let mut listener = Listener::new(target());
    let both = seen(&[
        condition(ConditionKind::TemplateFault),
        condition(ConditionKind::CredentialsEnd),
    ]);
    listener.live(0..30, &both);
    listener.heard.clear();
    let elsewhere = FoundConditions {
        led_elsewhere: true,
        ..seen(&[condition(ConditionKind::CredentialsEnd)])
    };
    listener.live(30..60, &elsewhere);
    assert_eq!(listener.states(), []);
    // It leads again: it does not know whether the other told.
    listener.live(60..90, &both);
    assert_eq!(listener.states(), [(75, ConditionState::Began)]);
}

#[test]
fn what_could_not_be_told_is_due_until_it_was_or_is_over() {
    let mut ledger = Ledger::new();
    let targets = BTreeMap::from([("ops".into(), target())]);
    let fault = seen(&[condition(ConditionKind::TemplateFault)]);
    for number in 0..100 {
        ledger.see(&fault, &targets, minute(number));
        let due = ledger.due("ops", &targets["ops"], minute(number));
        assert_eq!(due.len(), usize::from(number >= 15), "{number}");
    }
    for number in 100..110 {
        ledger.see(&FoundConditions::default(), &targets, minute(number));
        assert_eq!(ledger.due("ops", &targets["ops"], minute(number)), []);
    }
    assert_eq!(ledger, Ledger::new(), "nobody was told of it");
}

#[test]
fn a_clock_that_was_set_back_silences_nothing() {
    let mut listener = Listener::new(target());
    let fault = seen(&[condition(ConditionKind::TemplateFault)]);
    listener.live(10_000..10_030, &fault);
    listener.live(0..1_500, &fault);
    assert_eq!(
        listener.states(),
        [
            (10_015, ConditionState::Began),
            (24 * 60, ConditionState::Lasts)
        ]
    );
}

#[test]
fn a_notification_is_not_told_that_it_fails_but_others_are() {
    let mut fails = condition(ConditionKind::NotificationFails);
    fails.subject = "ops".into();
    let mut listener = Listener::new(target());
    listener.live(0..60, &seen(&[fails.clone()]));
    assert_eq!(listener.heard, []);
    let due = listener.ledger.due("other", &target(), minute(60));
    assert_eq!(due.len(), 1);
}

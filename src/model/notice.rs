//! A notice: what a person is told at one moment, of one condition or several. Its JSON is what webhooks get.

use std::fmt::Write as _;
use std::sync::OnceLock;

use minijinja::value::Serde;
use minijinja::{Environment, ErrorKind, UndefinedBehavior, Value};
use schemars::JsonSchema;
use serde::Serialize;

use crate::condition::{Condition, ConditionKind, Severity};
use crate::foreign::{self, ForeignText};
use crate::time::Time;
use crate::words;

/// Version of the JSON. It grows when a field goes or means something else, not when one comes.
pub const VERSION: u32 = 1;
/// Conditions of which a notice tells one by one; of the rest it tells how many.
const MOST: usize = 20;
/// Longest title, in characters.
const TITLE: usize = 200;
/// Longest part of a condition's details in a notice, in characters.
const DETAILS: usize = 500;
/// Steps that filling in one text may take.
const FUEL: u64 = 200_000;
/// What the language itself has names for.
const FUNCTIONS: [&str; 3] = ["dict", "namespace", "range"];

/// What happened to a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "State")]
pub enum ConditionState {
    /// It holds, and nobody was told yet.
    Began,
    /// It holds still.
    Lasts,
    /// It is over.
    Ended,
    /// It is none: somebody tries whether notices arrive.
    Test,
}

impl ConditionState {
    fn name(self) -> &'static str {
        match self {
            ConditionState::Began => "began",
            ConditionState::Lasts => "lasts",
            ConditionState::Ended => "ended",
            ConditionState::Test => "test",
        }
    }
}

/// What a person is told.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(title = "A notification of pve-autoscaler")]
pub struct Notice {
    /// The version of this form: 1.
    pub schema_version: u32,
    /// The version of this form once more, under the key that had it before there was `schema_version`.
    pub version: u32,
    /// When it was made.
    #[schemars(with = "String")]
    pub at: Time,
    /// The host that tells.
    pub host: String,
    /// The cluster's name in the configuration.
    pub cluster: String,
    /// The gravest severity of what is wrong; where all is over, of that.
    pub severity: Severity,
    /// One line: what happened.
    pub title: String,
    /// Several lines: the title's conditions with what to do.
    pub text: String,
    /// The conditions, twenty at most.
    pub conditions: Vec<NotifiedCondition>,
    /// How many more there are.
    pub more: usize,
}

/// A condition in a notice.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Told")]
pub struct NotifiedCondition {
    /// What happened to it.
    pub state: ConditionState,
    /// What tells it from others, the same in every notice about it.
    pub key: String,
    /// Which condition it is told of.
    pub kind: ConditionKind,
    /// How grave it is.
    pub severity: Severity,
    /// Whom it concerns; empty where there is only one.
    pub subject: String,
    /// What is wrong, in a sentence.
    pub summary: String,
    /// The fault behind it and the like; may be empty.
    pub details: String,
    /// What to do.
    pub todo: String,
    /// Since when it holds.
    #[schemars(with = "String")]
    pub since: Time,
    /// When it ended, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub ended: Option<Time>,
}

/// A condition that somebody is to be told of.
#[derive(Clone, Debug, PartialEq)]
pub struct Due {
    /// The condition.
    pub condition: Condition,
    /// What happened to it.
    pub state: ConditionState,
    /// Since when it holds.
    pub since: Time,
    /// When it ended, if it did.
    pub ended: Option<Time>,
}

/// Who tells.
#[derive(Clone, Debug, PartialEq)]
pub struct NoticeSource {
    /// This host's name.
    pub host: String,
    /// The cluster's name in the configuration.
    pub cluster: String,
}

impl Notice {
    /// A notice of these conditions; `None` where there are none.
    pub fn of(mut due: Vec<Due>, teller: &NoticeSource, now: Time) -> Option<Notice> {
        // What is wrong before what is over, the gravest first.
        due.sort_by_key(|due| {
            let over = due.state == ConditionState::Ended;
            (
                over,
                due.condition.kind.severity(),
                due.condition.kind,
                due.condition.key(),
            )
        });
        let first = due.first()?;
        let title = title(first, due.len() - 1, &teller.host);
        // They are sorted: what is wrong before what is over, the gravest first.
        let severity = first.condition.kind.severity();
        let more = due.len().saturating_sub(MOST);
        let conditions: Vec<NotifiedCondition> = due.iter().take(MOST).map(told).collect();
        let text = text(&conditions, more, teller);
        Some(Notice {
            schema_version: VERSION,
            version: VERSION,
            at: now,
            host: teller.host.clone(),
            cluster: teller.cluster.clone(),
            severity,
            title,
            text,
            conditions,
            more,
        })
    }

    /// A notice that somebody sends to see whether it arrives.
    pub fn test(teller: &NoticeSource, now: Time) -> Notice {
        let condition = Condition {
            kind: ConditionKind::Warnings,
            subject: "test".into(),
            summary: "This is a test: somebody typed `pve-autoscaler notify-test`.".into(),
            details: ForeignText::default(),
            todo: "Nothing is to be done.".into(),
            since: None,
        };
        let due = Due {
            condition,
            state: ConditionState::Test,
            since: now,
            ended: None,
        };
        let told = vec![told(&due)];
        Notice {
            schema_version: VERSION,
            version: VERSION,
            at: now,
            host: teller.host.clone(),
            cluster: teller.cluster.clone(),
            severity: Severity::Info,
            title: title(&due, 0, &teller.host),
            text: text(&told, 0, teller),
            conditions: told,
            more: 0,
        }
    }

    /// Notices as templates may meet them: several conditions, one that is over, texts with quotes, a test.
    pub fn samples() -> Vec<Notice> {
        let due = |kind, state| Due {
            condition: Condition {
                kind,
                subject: "a \"quoted\" name".into(),
                summary: "What is \"wrong\" \\ here.".into(),
                details: "said: {\"a\": 'b'}".into(),
                todo: "Do it.".into(),
                since: None,
            },
            state,
            since: Time(0),
            ended: (state == ConditionState::Ended).then_some(Time(1_000)),
        };
        let teller = NoticeSource {
            host: "pve1".to_owned(),
            cluster: "default".to_owned(),
        };
        let several = vec![
            due(ConditionKind::ViewOld, ConditionState::Began),
            due(ConditionKind::PoolBacksOff, ConditionState::Lasts),
            due(ConditionKind::NoLeader, ConditionState::Ended),
        ];
        let ended = vec![due(ConditionKind::PodsHeld, ConditionState::Ended)];
        let notices =
            [several, ended].map(|conditions| Notice::of(conditions, &teller, Time(2_000)));
        let mut notices: Vec<Notice> = notices.into_iter().flatten().collect();
        notices.push(Notice::test(&teller, Time(2_000)));
        notices
    }

    /// A text of the configuration with its gaps filled in from the notice. The filter `tojson` writes a text, a
    /// number or a list as JSON.
    ///
    /// # Errors
    /// What is wrong with it, and what is known where it names something that is not.
    pub fn fill(&self, text: &str) -> Result<String, String> {
        static ENVIRONMENT: OnceLock<Environment<'static>> = OnceLock::new();
        let environment = ENVIRONMENT.get_or_init(|| {
            let mut environment = Environment::new();
            environment.set_undefined_behavior(UndefinedBehavior::Strict);
            environment.set_fuel(Some(FUEL));
            environment
        });
        let template = environment
            .template_from_str(text)
            .map_err(|error| wrong(&error))?;
        let value = serde_json::to_value(self).map_err(|error| error.to_string())?;
        let serde_json::Value::Object(fields) = &value else {
            return Err("a notice is no object".to_owned());
        };
        let mut unknown: Vec<String> = template.undeclared_variables(false).into_iter().collect();
        unknown.sort();
        let known = |name: &String| FUNCTIONS.contains(&name.as_str()) || fields.contains_key(name);
        if let Some(name) = unknown.iter().find(|name| !known(name)) {
            let names: Vec<&str> = fields.keys().map(String::as_str).collect();
            return Err(format!(
                "it names {name:?}, which is not known here; known are {}",
                names.join(", ")
            ));
        }
        template
            .render(Value::from(Serde(&value)))
            .map_err(|error| wrong(&error))
    }
}

fn wrong(error: &minijinja::Error) -> String {
    match error.kind() {
        ErrorKind::OutOfFuel => "it takes too long to fill in".to_owned(),
        kind => match error.detail() {
            Some(detail) => format!("it cannot be filled in: {kind}: {detail}"),
            None => format!("it cannot be filled in: {kind}"),
        },
    }
}

fn title(first: &Due, more: usize, host: &str) -> String {
    let severity = first.condition.kind.severity();
    let state = match first.state {
        ConditionState::Began => severity.to_string(),
        ConditionState::Lasts => format!("{severity}, still"),
        ConditionState::Ended => "ended".to_owned(),
        ConditionState::Test => "test".to_owned(),
    };
    let more = match more {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let summary = &first.condition.summary;
    let title = format!("[pve-autoscaler {host}] {state}: {summary}{more}");
    foreign::line(&title, TITLE)
}

fn told(due: &Due) -> NotifiedCondition {
    let condition = &due.condition;
    NotifiedCondition {
        state: due.state,
        key: condition.key(),
        kind: condition.kind,
        severity: match due.state {
            ConditionState::Test => Severity::Info,
            _ => condition.kind.severity(),
        },
        subject: condition.subject.to_string(),
        summary: condition.summary.to_string(),
        details: condition.details.cut(DETAILS).to_string(),
        todo: condition.todo.to_string(),
        since: due.since,
        ended: due.ended,
    }
}

/// A time without its milliseconds, which nobody reads.
fn second(at: Time) -> Time {
    Time(at.0 / 1000 * 1000)
}

fn text(conditions: &[NotifiedCondition], more: usize, teller: &NoticeSource) -> String {
    let mut text = String::new();
    for told in conditions {
        let since = second(told.since);
        let when = match told.ended {
            Some(ended) => format!("ended {}, began {since}", second(ended)),
            None => format!("{}, since {since}", told.state.name()),
        };
        let _ = writeln!(text, "{} ({}, {when})", told.summary, told.severity);
        if told.state == ConditionState::Ended {
            text.push('\n');
            continue;
        }
        if !told.details.is_empty() {
            let _ = writeln!(text, "  {}", told.details);
        }
        let _ = writeln!(text, "  What to do: {}\n", told.todo);
    }
    if more > 0 {
        let _ = writeln!(
            text,
            "And {}; `pve-autoscaler status` has them.\n",
            words::count(more, "more condition")
        );
    }
    let NoticeSource { host, cluster } = teller;
    let _ = writeln!(
        text,
        "Told by pve-autoscaler on the host {host}, for the cluster {cluster}."
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_names_the_gravest_first_and_what_is_over_last() {
        let notice = &Notice::samples()[0];
        let states: Vec<ConditionState> = notice.conditions.iter().map(|told| told.state).collect();
        assert_eq!(
            states,
            [
                ConditionState::Began,
                ConditionState::Lasts,
                ConditionState::Ended
            ]
        );
        assert_eq!(
            notice.title,
            "[pve-autoscaler pve1] warning: What is \"wrong\" \\ here. (and 2 more)"
        );
        assert!(
            notice.text.contains("What to do: Do it."),
            "{}",
            notice.text
        );
        let ended = &Notice::samples()[1];
        assert!(ended.title.contains("ended: "), "{}", ended.title);
        assert!(!ended.text.contains("What to do"), "{}", ended.text);
    }

    #[test]
    fn a_flood_is_one_notice_of_bounded_length() {
        let due = |number: usize| Due {
            condition: Condition {
                kind: ConditionKind::Contradiction,
                subject: format!("m-{number:03}").into(),
                summary: "x".repeat(1_000).into(),
                details: "y".repeat(3_000).into(),
                todo: "Look.".into(),
                since: None,
            },
            state: ConditionState::Began,
            since: Time(0),
            ended: None,
        };
        let teller = NoticeSource {
            host: "h".to_owned(),
            cluster: "c".to_owned(),
        };
        let notice = Notice::of((0..500).map(due).collect(), &teller, Time(1)).expect("some");
        assert_eq!((notice.conditions.len(), notice.more), (MOST, 480));
        assert!(notice.title.chars().count() <= TITLE);
        assert!(notice.text.len() < 40_000, "{}", notice.text.len());
        assert!(notice.text.contains("And 480 more conditions;"));
    }

    #[test]
    fn a_template_knows_the_notice_and_nothing_else() {
        let notice = &Notice::samples()[0];
        let filled = notice.fill(
            "{\"t\": {{ title | tojson }}, \"k\": [{% for c in conditions %}{{ c.key | tojson }}{% if not loop.last %}, {% endif %}{% endfor %}]}",
        );
        let json: serde_json::Value =
            serde_json::from_str(&filled.expect("it is right")).expect("it is JSON");
        assert_eq!(json["t"], notice.title);
        assert_eq!(json["k"][0], "view_old/a \"quoted\" name");
        let unknown = notice.fill("{{ titel }}").expect_err("unknown");
        assert!(
            unknown.contains("\"titel\"") && unknown.contains("title"),
            "{unknown}"
        );
        let endless =
            "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}";
        let endless = notice.fill(endless).expect_err("endless");
        assert!(endless.contains("too long"), "{endless}");
    }
}

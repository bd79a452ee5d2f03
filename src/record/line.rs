//! Records as they are written and read. What a list of deeds or a picture needs stands beside the state, so that nobody
//! puts together states for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::beginning::{BeginCause, Beginning};
use super::change::{RecordedState, StateDifference};
use crate::model::action::Action;
use crate::model::decision::Decision;
use crate::model::host_choice::HostChoice;
use crate::model::region::{Failure, Step};
use crate::model::time::{Span, Time};

/// The format of records that this program writes.
pub(super) const FORMAT: u32 = 1;

/// A record on its way out.
#[derive(Debug, Serialize)]
pub(super) struct RecordLine<'a> {
    pub(super) format: u32,
    pub(super) at: Time,
    #[serde(flatten)]
    pub(super) what: LineContent<'a>,
}

/// What a record tells.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "what")]
pub(super) enum LineContent<'a> {
    /// A decision, with all that it was made of. Each segment begins with one.
    Whole {
        /// The program that decided.
        program: &'a str,
        /// Why the segment begins.
        beginning: &'a Beginning,
        /// See [`Decision`](What::Decision).
        number: u64,
        skipped: Skipped,
        point: Point,
        plan: &'a [Action],
        /// Why the machines that the plan makes come to their hosts.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        chosen_hosts: &'a BTreeMap<Arc<str>, HostChoice>,
        state: RecordedState<'a>,
    },
    /// A decision, by what differs from the recorded one before.
    Decision {
        /// Counts decisions since the daemon's start.
        number: u64,
        /// The decisions since the record before.
        skipped: Skipped,
        /// The decision in numbers.
        point: Point,
        /// What it does.
        plan: &'a [Action],
        /// Why the machines that the plan makes come to their hosts: as the report has it, of which a record has only what differs.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        chosen_hosts: &'a BTreeMap<Arc<str>, HostChoice>,
        /// What differs from the recorded state before.
        changes: StateDifference<'a>,
    },
    /// Decisions that planned and reported what the one before did.
    Quiet {
        /// How many, and until when.
        skipped: Skipped,
    },
    /// Nothing is recorded after this: the daemon ends, or its configuration was read anew.
    Stopped {
        /// The decisions since the record before.
        skipped: Skipped,
    },
    /// An action of a plan was not begun.
    NotBegun {
        /// The decision that planned it.
        number: u64,
        /// The action.
        action: &'a Action,
        /// Why.
        message: &'a str,
    },
    /// An action ended.
    Ended {
        /// The action.
        action: &'a Action,
        /// Why it failed, if it did.
        failure: Option<&'a Failure>,
    },
    /// Somebody had the daemon do something.
    Asked {
        /// `pause`, `resume`, `retry`, `evacuate` or `evacuate --end`.
        asked: &'a str,
        /// The reason of a pause, who resumed, the pool of a retry, or the host.
        message: &'a str,
        /// Who asked for a retry, an evacuation or its end.
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<&'a str>,
    },
    /// Who leads is another now.
    Leads {
        /// The host of the instance that leads; `None`: the one that records does.
        leader: Option<&'a str>,
    },
    /// A step of a machine's life ended.
    Step {
        /// The machine.
        machine: &'a str,
        /// The step.
        step: Step,
        /// How long it took.
        took: Span,
        /// Whether it came to its end.
        ok: bool,
    },
}

/// Decisions that are not recorded each for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Skipped {
    /// Those that planned and reported what the one before did.
    pub(super) quiet: u64,
    /// The time of the last of these.
    pub(super) until: Option<Time>,
    /// Decisions and events that could not be recorded.
    pub(super) lost: u64,
}

/// A record on its way in: what is not there, or not known, is passed over.
#[derive(Debug, Deserialize)]
pub(super) struct ReadLine {
    #[serde(default)]
    pub(super) format: u32,
    pub(super) at: Time,
    #[serde(default)]
    pub(super) what: String,
    #[serde(default)]
    pub(super) program: Option<String>,
    /// In no record of a program that did not tell it.
    #[serde(default)]
    beginning: Option<Value>,
    #[serde(default)]
    pub(super) number: Option<u64>,
    #[serde(default)]
    pub(super) skipped: Skipped,
    #[serde(default)]
    pub(super) point: Option<Point>,
    #[serde(default)]
    pub(super) plan: Vec<Value>,
    /// By machine; in no record of a program that did not tell it.
    #[serde(default)]
    pub(super) chosen_hosts: BTreeMap<Arc<str>, Value>,
    #[serde(default)]
    pub(super) state: Option<Box<RawValue>>,
    #[serde(default)]
    pub(super) changes: Option<Box<RawValue>>,
    #[serde(default)]
    pub(super) action: Option<Value>,
    #[serde(default)]
    pub(super) message: Option<String>,
    #[serde(default)]
    pub(super) asked: Option<String>,
    /// Who asked; in no record of a program that did not tell it.
    #[serde(default)]
    pub(super) by: Option<String>,
    /// Who leads, in a record that tells it: `None` is the one that recorded it.
    #[serde(default)]
    pub(super) leader: Option<Arc<str>>,
    #[serde(default)]
    pub(super) failure: Option<Value>,
    #[serde(default)]
    pub(super) machine: Option<Arc<str>>,
    #[serde(default)]
    pub(super) step: Option<Value>,
    #[serde(default)]
    pub(super) took: Option<Span>,
    #[serde(default)]
    pub(super) ok: Option<bool>,
}

impl ReadLine {
    /// That a record begins, with what is told of it; `None` of what is no first record of a segment.
    pub(super) fn begun(&self) -> Option<DeedKind> {
        let program = self.program.clone()?;
        // Of a program that told it otherwise, or not at all, nothing is known.
        let told = self.beginning.as_ref();
        let told = told.and_then(|told| Beginning::deserialize(told).ok());
        let Some(told) = told else {
            return Some(DeedKind::Begun {
                program,
                cause: None,
                host: None,
                changed: Vec::new(),
                former_program: None,
                former_host: None,
            });
        };
        let former = told.former.unwrap_or_default();
        let other = (!former.program.is_empty()).then_some(former.program);
        Some(DeedKind::Begun {
            former_program: other.filter(|other| *other != program),
            former_host: former.host.filter(|host| *host != told.host),
            program,
            cause: Some(told.cause),
            host: Some(told.host),
            changed: told.changed,
        })
    }

    /// Why a machine that this decision makes comes to its host. `None`: it makes no such machine, or tells it in a form of another program.
    pub(super) fn chosen_host(&self, machine: &str) -> Option<HostChoice> {
        HostChoice::deserialize(self.chosen_hosts.get(machine)?).ok()
    }
}

/// A decision in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Point {
    /// When it was taken.
    pub at: Time,
    /// Pods that are not bound, by their verdict's name in `plan -o json` (`held`, `triggers`, …).
    pub pods: BTreeMap<Arc<str>, u32>,
    /// Pools by name.
    pub pools: BTreeMap<Arc<str>, PoolPoint>,
    /// What was on hold: `everything`, `scale-up`, `scale-down`, `region NAME`, `pool NAME`.
    pub holds: Vec<Arc<str>>,
    /// Machines that the decision makes.
    pub makes: u32,
    /// Nodes and machines that it removes.
    pub removes: u32,
}

/// A pool in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolPoint {
    /// Working nodes.
    pub ready: u32,
    /// Machines on their way up.
    pub coming: u32,
    /// Machines on their way down.
    pub leaving: u32,
    /// Nodes that are not Ready.
    pub unready: u32,
}

impl Point {
    /// A decision in numbers.
    pub(super) fn of(decision: &Decision, at: Time) -> Point {
        use crate::model::action::Kind;
        let report = &decision.report;
        let mut point = Point {
            at,
            ..Point::default()
        };
        for verdict in report.pods.values() {
            *point.pods.entry(verdict.name().into()).or_default() += 1;
        }
        for (name, pool) in &report.pools {
            let numbers = PoolPoint {
                ready: pool.ready,
                coming: pool.coming,
                leaving: pool.leaving,
                unready: pool.unready,
            };
            point.pools.insert(name.clone(), numbers);
        }
        let scopes = report
            .holds
            .iter()
            .map(|hold| hold.scope.to_string().into());
        point.holds = scopes.collect();
        for action in &decision.plan {
            match action.kind {
                Kind::Create(_) => point.makes += 1,
                Kind::Remove { .. } => point.removes += 1,
                _ => {}
            }
        }
        point
    }

    /// Pods that wait for a node: those that no node has room for now.
    pub fn pending(&self) -> u32 {
        let waits = |name: &str| !matches!(name, "fits_node" | "ignored" | "unread");
        let waiting = self.pods.iter().filter(|(name, _)| waits(name));
        waiting.map(|(_, many)| many).sum()
    }

    /// Nodes of all pools that are there.
    pub fn nodes(&self) -> u32 {
        self.pools
            .values()
            .map(|pool| pool.ready + pool.unready)
            .sum()
    }

    /// Nodes of all pools that shall be there: those that are and stay, those on their way, and those that this
    /// decision makes.
    pub fn wanted(&self) -> u32 {
        let there = self.nodes() + self.pools.values().map(|pool| pool.coming).sum::<u32>();
        (there + self.makes).saturating_sub(self.removes)
    }
}

/// Something that was decided, or that came of it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Deed {
    /// When.
    pub at: Time,
    /// The number of the decision, counted since the start of its daemon; for what came later, of the one before it.
    pub decision: u64,
    /// The version of the program that recorded it; `None` where the record does not tell it.
    #[serde(skip)]
    pub program: Option<Arc<str>>,
    /// What.
    #[serde(flatten)]
    pub kind: DeedKind,
}

/// What was decided, or came of it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "deed")]
pub enum DeedKind {
    /// A record begins: the daemon was started, its configuration was read, or a new segment was due.
    Begun {
        /// The program's version.
        program: String,
        /// Which of these; `None` where the record does not tell it.
        #[serde(skip_serializing_if = "Option::is_none")]
        cause: Option<BeginCause>,
        /// The host of the daemon, where the record tells it.
        #[serde(skip_serializing_if = "Option::is_none")]
        host: Option<Arc<str>>,
        /// The keys of the configuration that were changed before it was read anew.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        changed: Vec<String>,
        /// The version of the program that recorded before, where it is another.
        #[serde(skip_serializing_if = "Option::is_none")]
        former_program: Option<String>,
        /// The host on which was recorded before, where it is another.
        #[serde(skip_serializing_if = "Option::is_none")]
        former_host: Option<Arc<str>>,
    },
    /// An action was planned.
    Planned {
        /// In words: `create`, `remove` and so on, as in the plan's JSON.
        action: String,
        /// The machine.
        machine: Arc<str>,
        /// The machine's host.
        host: Arc<str>,
        /// The machine's node, where there is one.
        node: Option<Arc<str>>,
        /// The machine's pool, where the plan tells it.
        pool: Option<Arc<str>>,
        /// The machine's instance type, where the plan tells it.
        instance_type: Option<Arc<str>>,
        /// Why, in words.
        why: String,
        /// Why a machine that is made comes to its host, where the record tells.
        #[serde(skip_serializing_if = "Option::is_none")]
        chosen_host: Option<Box<HostChoice>>,
        /// The action as it was planned.
        planned: Value,
    },
    /// An action could not be begun.
    NotBegun {
        /// Which.
        action: String,
        /// The machine.
        machine: Arc<str>,
        /// Why.
        why: String,
    },
    /// An action ended.
    Ended {
        /// Which.
        action: String,
        /// The machine.
        machine: Arc<str>,
        /// Why it failed; `None` when it was done.
        failure: Option<String>,
    },
    /// Somebody had the daemon do something.
    Asked {
        /// `pause`, `resume`, `retry`, `evacuate` or `evacuate --end`.
        asked: String,
        /// The reason of a pause with who paused, who resumed, the pool of a retry, or the host of an evacuation.
        why: String,
        /// Who asked for a retry, an evacuation or its end; `None` where the record does not tell it.
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// Another instance leads from now on, and its record has what is done; or this one leads again.
    Leads {
        /// The host of the instance that leads; `None`: the one whose record this is.
        leader: Option<Arc<str>>,
    },
    /// What becomes of a pod is another now. Told where one pod is asked for.
    Pod {
        /// The verdict's name; `None`: it is bound, or gone.
        verdict: Option<String>,
        /// The verdict as the report had it; of a bound pod `node` alone, of one that is gone nothing.
        report: Value,
    },
    /// Why a node stays or goes is another now. Told where one node is asked for.
    Node {
        /// The verdict's name; `None`: it is gone.
        verdict: Option<String>,
        /// The verdict as the report had it.
        report: Value,
    },
    /// Decisions could not be recorded.
    Lost {
        /// How many, with events.
        many: u64,
    },
    /// Something is on hold from now on, for a minute at least.
    OnHold {
        /// What: `everything`, `scale-up`, `scale-down`, `region NAME` or `pool NAME`.
        scope: Arc<str>,
        /// Why, in words.
        why: Arc<str>,
        /// Until when; `None`: as far as the record goes.
        until: Option<Time>,
    },
    /// Something is on hold no longer.
    HoldEnded {
        /// What.
        scope: Arc<str>,
        /// Why it was, in words.
        why: Arc<str>,
        /// Since when it was.
        since: Time,
    },
    /// Nothing is recorded from now on.
    Unrecorded {
        /// Until when; `None`: the record ends here.
        until: Option<Time>,
        /// Why, as far as the record shows it.
        why: String,
    },
}

impl DeedKind {
    /// A planned action, read from its JSON whatever program wrote it, with what `line` tells of its host.
    pub(super) fn planned(value: &Value, line: &ReadLine) -> Option<DeedKind> {
        let target = value.get("target")?;
        let machine = text(target.get("machine"))?;
        let mark = value.pointer("/kind/create/mark");
        let of_mark = |key: &str| text(mark?.get(key));
        Some(DeedKind::Planned {
            action: action(value),
            chosen_host: line.chosen_host(&machine).map(Box::new),
            machine,
            host: text(target.get("host"))?,
            node: text(target.pointer("/node/name")),
            pool: of_mark("pool"),
            instance_type: of_mark("instance_type"),
            why: why(value),
            planned: value.clone(),
        })
    }
}

/// The machine that an action is about.
pub(super) fn machine(action: &Value) -> Option<Arc<str>> {
    text(action.pointer("/target/machine"))
}

/// A kind of action as its JSON names it: a word, or an object with one.
pub(super) fn action(value: &Value) -> String {
    match value.get("kind") {
        Some(Value::String(name)) => name.clone(),
        Some(Value::Object(kind)) => kind.keys().next().cloned().unwrap_or_default(),
        _ => "unknown".to_owned(),
    }
}

/// The reason of an action in words; of one that this program does not know, its name.
fn why(value: &Value) -> String {
    use crate::model::action::Reason;
    let Some(reason) = value.get("reason") else {
        return String::new();
    };
    match serde_json::from_value::<Reason>(reason.clone()) {
        Ok(reason) => reason.to_string(),
        Err(_) => text(reason.get("why")).map_or_else(|| reason.to_string(), |why| why.to_string()),
    }
}

/// A text in JSON.
pub(super) fn text(value: Option<&Value>) -> Option<Arc<str>> {
    value?.as_str().map(Into::into)
}

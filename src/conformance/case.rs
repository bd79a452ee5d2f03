//! A case: what is given, then one or more steps of doing and expecting.

use super::act::{self, CaseAction};
use super::expect;
use super::fields::CaseFields;
use super::fixtures;
use super::given;
use super::scalars::{span, text};
use super::value::{CaseData, CaseEntry, CaseError, CaseValue, SourcePosition};
use crate::model::words;

/// Keys that say something about a case and do nothing.
const REMARKS: [&str; 8] = [
    "note",
    "decision",
    "title",
    "source",
    "tags",
    "comment",
    "description",
    "upstream",
];

/// A case as the file has it, with its file's defaults below it.
#[derive(Clone, Debug)]
pub(super) struct RawCase {
    pub(super) id: String,
    pub(super) at: SourcePosition,
    pub(super) value: CaseValue,
}

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CaseOutcome {
    /// As expected.
    Ok,
    /// Another test shows it: path and name.
    Covered(String),
    /// Not as expected, or not understood.
    Failed(String),
}

/// The cases of a document: one, a list of them, or `{defaults, cases}`.
pub(super) fn split(document: &CaseValue) -> Vec<Result<RawCase, CaseError>> {
    if let Some(items) = document.list() {
        return items.iter().map(|item| raw(item, None)).collect();
    }
    let Some(cases) = document.get("cases") else {
        return vec![raw(document, None)];
    };
    let known =
        |entry: &CaseEntry| ["cases", "defaults"].contains(&&*entry.key) || remark(&entry.key);
    let stray = document
        .map()
        .into_iter()
        .flatten()
        .find(|entry| !known(entry));
    let mut all: Vec<Result<RawCase, CaseError>> = Vec::new();
    if let Some(entry) = stray {
        all.push(Err(CaseError {
            at: entry.at.clone(),
            text: format!(
                "a file of cases has no key {:?}; known here: cases, defaults, note",
                entry.key
            ),
        }));
    }
    let defaults = document.get("defaults");
    match cases.list() {
        Some(items) => all.extend(items.iter().map(|item| raw(item, defaults))),
        None => all.push(Err(cases.expected("a list of cases"))),
    }
    all
}

fn remark(key: &str) -> bool {
    REMARKS.contains(&key)
}

fn raw(value: &CaseValue, defaults: Option<&CaseValue>) -> Result<RawCase, CaseError> {
    let id = value
        .get("id")
        .ok_or_else(|| value.expected("a case as a map with the key id"))?;
    let id = text(id)?.to_owned();
    Ok(RawCase {
        id,
        at: value.at.clone(),
        value: match defaults {
            Some(defaults) if value.get("covered_by").is_none() => value.over(defaults),
            _ => value.clone(),
        },
    })
}

/// Runs a case.
pub(super) fn run(raw: &RawCase) -> CaseOutcome {
    match attempt(raw) {
        Ok(result) => result,
        Err(wrong) => CaseOutcome::Failed(wrong.to_string()),
    }
}

fn attempt(raw: &RawCase) -> Result<CaseOutcome, CaseError> {
    let flat = match raw.value.get("given") {
        Some(given) => raw.value.over(given),
        None => raw.value.clone(),
    };
    let whole = fixtures::under(&flat)?;
    let mut fields = CaseFields::of(&whole, format!("the case {}", raw.id))?;
    for key in REMARKS {
        fields.take(key);
    }
    fields.take("id");
    fields.take("given");
    fields.take("fixture");
    if let Some(test) = fields.take("covered_by") {
        let test = text(test)?.to_owned();
        fields.done()?;
        return Ok(CaseOutcome::Covered(test));
    }
    let mut stage = given::begin(&mut fields)?;
    let mut steps = Vec::new();
    if let Some(value) = fields.take("steps") {
        let items = value
            .list()
            .ok_or_else(|| value.expected("a list of steps"))?;
        steps.extend(items.iter().cloned());
    }
    let own = ["when", "then", "alternatives"];
    let mut last = Vec::new();
    for key in own {
        if let Some(value) = fields.take(key) {
            last.push(CaseEntry {
                key: key.to_owned(),
                at: value.at.clone(),
                value: value.clone(),
            });
        }
    }
    fields.done()?;
    // `when` and `then` beside `steps` are the first step; `when` alone is that of every step.
    let of_all = last.iter().all(|entry| entry.key == "when") && !steps.is_empty();
    if of_all {
        for step in &mut steps {
            if let CaseData::Map(entries) = &mut step.data
                && !entries.iter().any(|entry| entry.key == "when")
            {
                entries.extend(last.iter().cloned());
            }
        }
    } else if !last.is_empty() {
        let value = CaseValue {
            at: raw.at.clone(),
            data: CaseData::Map(last),
        };
        steps.insert(0, value);
    }
    if steps.is_empty() {
        return Err(whole.wrong("a case needs the keys when and then, or steps, or covered_by"));
    }
    run_steps(&steps, &mut stage)
}

fn run_steps(
    steps: &[CaseValue],
    stage: &mut super::stage::CaseWorld,
) -> Result<CaseOutcome, CaseError> {
    let many = steps.len() > 1;
    for (index, value) in steps.iter().enumerate() {
        let misses = step(value, stage)?;
        if !misses.is_empty() {
            let which = if many {
                format!("step {}: ", index + 1)
            } else {
                String::new()
            };
            return Ok(CaseOutcome::Failed(format!("{which}{}", misses.join("; "))));
        }
    }
    Ok(CaseOutcome::Ok)
}

/// One step; the stage is then as the next one finds it.
fn step(value: &CaseValue, stage: &mut super::stage::CaseWorld) -> Result<Vec<String>, CaseError> {
    let mut fields = CaseFields::of(value, "a step")?;
    for key in REMARKS {
        fields.take(key);
    }
    if let Some(time) = fields.with("advance", span)? {
        stage.advance(time);
    }
    if let Some(value) = fields.take("delete") {
        act::delete(value, stage)?;
    }
    if let Some(value) = fields.take("add") {
        let mut added = CaseFields::of(value, "add")?;
        given::add(&mut added, stage)?;
        added.done()?;
    }
    let asked = fields.with("when", act::read)?;
    let says_when = asked.is_some();
    let when = asked.unwrap_or(CaseAction::Nothing);
    let apply = act::applied(fields.take("apply"))?;
    let then = fields.take("then");
    let alternatives = fields.take("alternatives");
    fields.done()?;
    if when != CaseAction::Nothing && then.is_none() && alternatives.is_none() {
        return Err(
            value.wrong("a step needs the key then: a case that expects nothing proves nothing")
        );
    }
    let expects = then.is_some() || alternatives.is_some();
    if !says_when && expects {
        return Err(value.wrong("a step that expects something needs the key when: nothing was done that it could come of"));
    }
    let says_something = |value: &CaseValue| {
        value.map().is_none_or(|keys| !keys.is_empty())
            && value.list().is_none_or(|items| !items.is_empty())
            && !value.is_null()
    };
    if [then, alternatives]
        .into_iter()
        .flatten()
        .any(|value| !says_something(value))
    {
        return Err(value.wrong("a case that expects nothing proves nothing"));
    }
    let nodes = &stage.snapshot.cluster.nodes;
    if let Some(node) = when.node().filter(|node| !nodes.contains_key(*node)) {
        let known: Vec<&str> = nodes.keys().map(|name| &**name).collect();
        let known = words::names(&known);
        return Err(value.wrong(format!("there is no node {node:?}; known: {known}")));
    }
    let outcome = act::perform(&when, stage);
    let misses = expect::judge(then, alternatives, &outcome)?;
    if apply {
        *stage = outcome.after;
    } else {
        stage.memory = outcome.after.memory;
    }
    Ok(misses)
}

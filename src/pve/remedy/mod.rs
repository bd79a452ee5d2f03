//! What to do where PVE refuses something, or a task of it fails: PVE's words in, one plain sentence out.
//!
//! [`rules`] has the words and the sentences. What is not known there has no advice, since a wrong one is worse than none. An
//! advice is ours: of what PVE said it repeats nothing but names that are written as such names are (a bridge's, a host's, …).

mod gaps;
mod rules;

use gaps::{Captured, Pattern};
use rules::{Rule, STATUSES};

use super::transport::{CallEffect, CallError, PveRequest};

/// What is known of the call or task that failed.
#[derive(Clone, Copy, Debug, Default)]
pub struct RemedyContext<'a> {
    /// The host that the call was about.
    pub host: Option<&'a str>,
    /// The VM that it was about.
    pub vmid: Option<u32>,
    /// The storage that it was about.
    pub storage: Option<&'a str>,
    /// The template in the file, of which the machine is made.
    pub template: Option<&'a str>,
    /// The pool in the file that the machine is of.
    pub pool: Option<&'a str>,
}

impl<'a> RemedyContext<'a> {
    /// What a request tells.
    fn of(request: &'a PveRequest) -> RemedyContext<'a> {
        let mut parts = request.path.split('/').skip(1);
        let host = match (parts.next(), parts.next()) {
            (Some("nodes"), host) => host,
            _ => None,
        };
        let (kind, id) = (parts.next(), parts.next());
        let param = |name: &str| {
            let param = request.params.iter().find(|(key, _)| key == name);
            param.map(|(_, value)| value.as_str())
        };
        RemedyContext {
            host,
            vmid: id
                .filter(|_| kind == Some("qemu"))
                .and_then(|id| id.parse().ok()),
            storage: id
                .filter(|_| kind == Some("storage"))
                .or_else(|| param("storage")),
            ..RemedyContext::default()
        }
    }

    /// What a gap is where PVE's words do not tell it.
    fn value(&self, gap: &str) -> Option<String> {
        let text = match gap {
            "host" => self.host?.to_owned(),
            "vmid" => self.vmid?.to_string(),
            "storage" => self.storage?.to_owned(),
            "template_table" => format!("[template.{}]", self.template?),
            "pool_table" => format!("[pool.{}]", self.pool?),
            _ => return None,
        };
        Some(text)
    }
}

/// What to do about a call that PVE refused or did not answer.
pub fn of_call(error: &CallError, request: &PveRequest) -> Option<String> {
    if matches!(
        error.outcome,
        CallEffect::NotSent | CallEffect::RefusedByBroker
    ) {
        return None;
    }
    let context = RemedyContext::of(request);
    let complaints = error
        .errors
        .iter()
        .map(|(name, why)| format!("{name}: {why}"));
    let mut texts = std::iter::once(error.message.to_string()).chain(complaints);
    let status = || {
        let (_, todo) = STATUSES
            .iter()
            .find(|(code, _)| error.status == Some(*code))?;
        Some(gaps::fill(todo, &Captured::default(), &|gap| {
            context.value(gap)
        }))
    };
    // Rules for words that say little lead to the log of a task, which a call that was refused has not.
    texts
        .find_map(|text| find(&text, |rule| !rule.vague).map(|found| found.advice(&context)))
        .or_else(status)
}

/// What to do about PVE's words.
pub fn of_text(text: &str, context: &RemedyContext<'_>) -> Option<String> {
    find(text, |_| true).map(|found| found.advice(context))
}

/// What to do about a failed task: by its last word, and where that says too little by the end of its log. Where that tells
/// nothing that is known, whoever reads it is not sent to read it.
pub fn of_task(text: &str, log: &str, context: &RemedyContext<'_>) -> Option<String> {
    let last = find(text, |_| true);
    let found = match last {
        Some(found) if !found.rule.vague => Some(found),
        vague => find(log, |rule| rule.in_logs).or(vague.filter(|_| log.is_empty())),
    };
    found.map(|found| found.advice(context))
}

/// A rule that fits, and what its gaps are in the text.
struct Found<'t> {
    rule: &'static Rule,
    captured: Captured<'t>,
}

impl Found<'_> {
    fn advice(&self, context: &RemedyContext<'_>) -> String {
        gaps::fill(self.rule.todo, &self.captured, &|gap| context.value(gap))
    }
}

/// What begins the words of a guest's agent: what follows is the guest's, whatever it sounds like.
const GUEST: &str = "Agent error: ";

fn find(text: &str, may: impl Fn(&Rule) -> bool) -> Option<Found<'_>> {
    let of_guest = text.contains(GUEST);
    let rules = rules::all().filter(|rule| may(rule));
    let mut rules = rules.filter(|rule| !of_guest || rule.says.starts_with(GUEST));
    rules.find_map(|rule| {
        let captured = Pattern(rule.says).find(text)?;
        Some(Found { rule, captured })
    })
}

#[cfg(test)]
mod tests;

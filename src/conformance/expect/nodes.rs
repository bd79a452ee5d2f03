//! Which nodes go, which stay and why, and what a drain would do.

use std::collections::BTreeSet;

use crate::conformance::act::CaseResult;
use crate::conformance::containers::names;
use crate::conformance::fields::CaseFields;
use crate::conformance::scalars::{count, several, text, time};
use crate::conformance::value::{CaseError, CaseValue};
use crate::model::cluster::ObjectKey;
use crate::model::report::NodeVerdict;

use super::{Misses, shown, speaks_of, wanted};

pub(super) fn judge(
    fields: &mut CaseFields<'_>,
    outcome: &CaseResult,
    misses: &mut Misses,
) -> Result<(), CaseError> {
    if let Some(value) = fields.any(&["removable", "unneeded"]) {
        let mut have: BTreeSet<String> = outcome.removed.iter().cloned().collect();
        have.extend(
            outcome
                .after
                .memory
                .unneeded_since
                .keys()
                .map(ToString::to_string),
        );
        complete("removable", value, &have, misses)?;
    }
    if let Some(value) = fields.take("removed") {
        removed(value, outcome, misses)?;
    }
    if let Some(value) = fields.take("replaced") {
        complete("replaced", value, &replaced(outcome), misses)?;
    }
    if let Some(value) = fields.take("unremovable") {
        for item in items(value)? {
            unremovable(&item, outcome, misses)?;
        }
    }
    drain(fields, outcome, misses)?;
    memory(fields, outcome, misses)
}

/// Nodes that a machine of the plan is made for, and that go once it works.
fn replaced(outcome: &CaseResult) -> BTreeSet<String> {
    let verdicts = outcome.last().map(|decision| &decision.report.nodes);
    let verdicts = verdicts.into_iter().flatten();
    verdicts
        .filter(|(_, verdict)| matches!(verdict, NodeVerdict::Replaced { .. }))
        .map(|(name, _)| name.to_string())
        .collect()
}

/// The nodes whose removal is planned. Those that are replaced go a little later, and may be among them.
fn removed(value: &CaseValue, outcome: &CaseResult, misses: &mut Misses) -> Result<(), CaseError> {
    let have: BTreeSet<String> = outcome.removed.iter().cloned().collect();
    let mut strict = Misses::new();
    complete("removed", value, &have, &mut strict)?;
    let more: BTreeSet<String> = have.union(&replaced(outcome)).cloned().collect();
    let mut lenient = Misses::new();
    complete("removed", value, &more, &mut lenient)?;
    if !lenient.is_empty() {
        misses.append(&mut strict);
    }
    Ok(())
}

/// A complete list of names, or their number.
fn complete(
    what: &str,
    value: &CaseValue,
    have: &BTreeSet<String>,
    misses: &mut Misses,
) -> Result<(), CaseError> {
    if value
        .scalar()
        .is_some_and(|text| text.parse::<usize>().is_ok())
    {
        let wanted = count(value)?;
        if have.len() != wanted {
            let names = shown(have);
            misses.push(format!(
                "expected {wanted} nodes {what}, got {}: {names}",
                have.len()
            ));
        }
        return Ok(());
    }
    let want: BTreeSet<String> = names(value)?.into_iter().collect();
    if want != *have {
        misses.push(format!(
            "expected {what}: {}, got {}",
            shown(&want),
            shown(have)
        ));
    }
    Ok(())
}

/// cluster-autoscaler's `BlockingPodReason`s: to it, the node stays as `BlockedByPod`.
const BLOCKING: [&str; 8] = [
    "ControllerNotFound",
    "MinReplicasReached",
    "NotReplicated",
    "LocalStorageRequested",
    "NotSafeToEvictAnnotation",
    "UnmovableKubeSystemPod",
    "NotEnoughPdb",
    "UnexpectedError",
];

struct Stays<'v> {
    node: &'v str,
    reason: Option<&'v CaseValue>,
    pod: Option<&'v str>,
    why: Option<&'v CaseValue>,
}

/// `[n1, {node: n2, reason: …, pod: …}]` or `{n2: reason}`.
fn items(value: &CaseValue) -> Result<Vec<Stays<'_>>, CaseError> {
    if let Some(entries) = value.map().filter(|_| value.get("node").is_none()) {
        return entries
            .iter()
            .map(|entry| stays(&entry.key, &entry.value))
            .collect();
    }
    several(value)
        .into_iter()
        .map(|item| {
            if let Some(node) = item.scalar() {
                return Ok(Stays {
                    node,
                    reason: None,
                    pod: None,
                    why: None,
                });
            }
            let mut fields = CaseFields::of(item, "a node that stays")?;
            let stays = Stays {
                node: text(fields.need("node")?)?,
                reason: fields.take("reason"),
                pod: fields.with("pod", text)?,
                why: fields.take("why"),
            };
            fields.done()?;
            Ok(stays)
        })
        .collect()
}

/// `n2: reason`, or `n2: {reason: …, pod: …, why: …}`.
fn stays<'v>(node: &'v str, value: &'v CaseValue) -> Result<Stays<'v>, CaseError> {
    if value.map().is_none() {
        return Ok(Stays {
            node,
            reason: Some(value),
            pod: None,
            why: None,
        });
    }
    let mut fields = CaseFields::of(value, "why a node stays")?;
    let stays = Stays {
        node,
        reason: fields.take("reason"),
        pod: fields.with("pod", text)?,
        why: fields.take("why"),
    };
    fields.done()?;
    Ok(stays)
}

fn unremovable(
    item: &Stays<'_>,
    outcome: &CaseResult,
    misses: &mut Misses,
) -> Result<(), CaseError> {
    let verdict = outcome.last().and_then(|d| d.report.nodes.get(item.node));
    let (reason, why, pod) = match verdict {
        None => ("NoNodeInfo", "no verdict".to_owned(), None),
        Some(NodeVerdict::NotAutoscaled) => ("NotAutoscaled", "it is not ours".to_owned(), None),
        Some(NodeVerdict::Unread { why }) => ("Unread", why.to_string(), None),
        Some(NodeVerdict::Kept {
            reason, why, pod, ..
        }) => (reason.name(), why.to_string(), pod.as_ref()),
        Some(NodeVerdict::Leaving { why, .. }) => ("CurrentlyBeingDeleted", why.to_string(), None),
        Some(NodeVerdict::Replaced { why, .. }) => ("BeingReplaced", why.to_string(), None),
    };
    let gone = outcome.removed.iter().any(|name| name == item.node);
    let got = if gone {
        format!("{} is planned to go: {why}", item.node)
    } else {
        format!("{reason} ({why})")
    };
    if gone {
        misses.push(format!("expected {} to stay, got {got}", item.node));
        return Ok(());
    }
    if item.reason.is_none() && outcome.after.memory.unneeded_since.contains_key(item.node) {
        misses.push(format!(
            "expected {} unremovable, got unneeded: {got}",
            item.node
        ));
    }
    if let Some(wanted_reason) = item.reason {
        let named = several(wanted_reason).into_iter().any(|one| {
            let by_pod = one.scalar() == Some("BlockedByPod") && BLOCKING.contains(&reason);
            by_pod || one.scalar() == Some(reason)
        });
        if !named {
            misses.push(format!(
                "expected {} to stay for {}, got {got}",
                item.node,
                wanted(wanted_reason)
            ));
        }
    }
    if let Some(wanted_why) = item.why
        && !speaks_of(wanted_why, &why)?
    {
        misses.push(format!(
            "expected {} to stay with {}, got {got}",
            item.node,
            wanted(wanted_why)
        ));
    }
    if let Some(wanted_pod) = item.pod
        && !pod.is_some_and(|pod| crate::conformance::act::matches(wanted_pod, pod))
    {
        let pod = pod.map_or("none".to_owned(), ToString::to_string);
        misses.push(format!(
            "expected the pod {wanted_pod} to keep {}, got {pod}",
            item.node
        ));
    }
    Ok(())
}

/// A complete list of pods, or their number.
fn complete_pods(
    what: &str,
    value: &CaseValue,
    have: &[ObjectKey],
    misses: &mut Misses,
) -> Result<(), CaseError> {
    let shown = || shown(have.iter().map(ToString::to_string));
    if super::as_number(value, what, have.len(), shown, misses)? {
        return Ok(());
    }
    let want = names(value)?;
    let is = |pattern: &str, key: &ObjectKey| crate::conformance::act::matches(pattern, key);
    let all = want.iter().all(|one| have.iter().any(|key| is(one, key)));
    let only = have.iter().all(|key| want.iter().any(|one| is(one, key)));
    if !(all && only) {
        let want = super::shown(want.iter().cloned());
        misses.push(format!("expected {what}: {want}, got {}", shown()));
    }
    Ok(())
}

/// `evict`, `ds`, `ignored`, `blocked` of `drain_rules`.
fn drain(
    fields: &mut CaseFields<'_>,
    outcome: &CaseResult,
    misses: &mut Misses,
) -> Result<(), CaseError> {
    let drain = outcome.drain.clone().unwrap_or_default();
    for (key, have) in [("evict", &drain.evict), ("ds", &drain.daemons)] {
        if let Some(value) = fields.take(key) {
            complete_pods(key, value, have, misses)?;
        }
    }
    if outcome.drain.is_some()
        && let Some(value) = fields.take("ignored")
    {
        complete_pods("ignored", value, &drain.ignored, misses)?;
    }
    let Some(value) = fields.take("blocked") else {
        return Ok(());
    };
    let got = || {
        shown(
            drain
                .blocked
                .iter()
                .map(|(pod, why)| format!("{} by {} ({why})", why.reason(), pod.name)),
        )
    };
    let blocked = !drain.blocked.is_empty();
    if let Some("true" | "false") = value.scalar() {
        if blocked != (value.scalar() == Some("true")) {
            misses.push(format!("expected blocked {}, got {}", value.named(), got()));
        }
        return Ok(());
    }
    for item in several(value) {
        let (pod, reason) = match item.map() {
            None => (None, Some(item)),
            Some(_) => {
                let mut fields = CaseFields::of(item, "what blocks")?;
                let pod = fields.with("pod", text)?;
                let reason = fields.take("reason");
                fields.done()?;
                (pod, reason)
            }
        };
        let mut hit = false;
        for (key, why) in &drain.blocked {
            let right = pod.is_none_or(|pod| crate::conformance::act::matches(pod, key));
            let named = reason.is_none_or(|reason| {
                several(reason)
                    .into_iter()
                    .any(|one| one.scalar() == Some(why.reason().name()))
            });
            hit |= right && named;
        }
        if !hit {
            misses.push(format!(
                "expected blocked by {} for {}, got {}",
                pod.unwrap_or("some pod"),
                reason.map_or_else(|| "any reason".to_owned(), wanted),
                got()
            ));
        }
    }
    Ok(())
}

/// `unneeded_since: {n1: 5m ago}`: the timers that are remembered.
fn memory(
    fields: &mut CaseFields<'_>,
    outcome: &CaseResult,
    misses: &mut Misses,
) -> Result<(), CaseError> {
    let Some(value) = fields.take("unneeded_since") else {
        return Ok(());
    };
    let entries = value
        .map()
        .ok_or_else(|| value.expected("times by node, as {n1: 5m ago}"))?;
    for entry in entries {
        let have = outcome.after.memory.unneeded_since.get(entry.key.as_str());
        let none = entry.value.scalar() == Some("none") || entry.value.is_null();
        let want = if none {
            None
        } else {
            Some(time(&entry.value, outcome.after.now)?)
        };
        if have.copied() != want {
            misses.push(format!(
                "expected {} unneeded since {}, got {}",
                entry.key,
                want.map_or_else(|| "never".to_owned(), |at| at.to_string()),
                have.map_or_else(
                    || "never".to_owned(),
                    |at| format!("{at}, it is {}", outcome.after.now)
                )
            ));
        }
    }
    Ok(())
}

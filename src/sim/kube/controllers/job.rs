//! Jobs: pods until enough have succeeded, counted by the tracking finalizer as upstream does.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{BURST, active, erase, from_template, owned, store};
use crate::model::time::{Span, Time};
use crate::sim::kube::object::{
    deleting, is_true, list, name, namespace, number, seconds, set, set_condition, text, time,
    truth, uid,
};
use crate::sim::kube::resources::{JOBS, PODS};
use crate::sim::kube::store::State;

const TRACKING: &str = "batch.kubernetes.io/job-tracking";

fn tracked(pod: &Value) -> bool {
    list(pod, "/metadata/finalizers")
        .iter()
        .any(|f| f == TRACKING)
}

/// Returns when the next finished job's time to live ends.
pub(super) fn reconcile(state: &mut State) -> Option<Time> {
    let mut next: Option<Time> = None;
    release_orphans(state);
    if state.all(JOBS).is_empty() {
        return None;
    }
    let pods = owned(state, PODS);
    for job in state.snapshot(JOBS) {
        let own = pods.get(uid(&job)).map_or(&[][..], Vec::as_slice);
        if deleting(&job) {
            continue;
        }
        if is_true(&job, "Complete") || is_true(&job, "Failed") {
            let end = expires(&job);
            if end.is_some_and(|e| e <= state.now) {
                erase(state, JOBS, &job);
            } else if let Some(end) = end {
                next = Some(next.map_or(end, |n| n.min(end)));
            }
            continue;
        }
        work(state, &job, own);
    }
    next
}

fn expires(job: &Value) -> Option<Time> {
    let after = number(job, "/spec/ttlSecondsAfterFinished")?;
    let end = time(job, "/status/completionTime")?;
    Some(end + Span::seconds(after))
}

/// Pods of jobs that are gone must not be held by the tracking finalizer.
fn release_orphans(state: &mut State) {
    if !state.all(PODS).values().any(|p| tracked(p)) {
        return;
    }
    let jobs: std::collections::BTreeSet<String> = state
        .all(JOBS)
        .values()
        .map(|j| uid(j).to_owned())
        .collect();
    for pod in state.snapshot(PODS) {
        let owner = list(&pod, "/metadata/ownerReferences")
            .iter()
            .find(|o| text(o, "/kind") == "Job");
        if tracked(&pod) && owner.is_none_or(|o| !jobs.contains(text(o, "/uid"))) {
            release(state, &pod);
        }
    }
}

fn release(state: &mut State, pod: &Value) {
    state.change(PODS, namespace(pod), name(pod), |p| {
        let kept: Vec<Value> = list(p, "/metadata/finalizers")
            .iter()
            .filter(|f| *f != TRACKING)
            .cloned()
            .collect();
        set(p, &["metadata", "finalizers"], Value::Array(kept));
    });
}

fn work(state: &mut State, job: &Value, own: &[Arc<Value>]) {
    let field = |key: &str| number(job, &format!("/spec/{key}")).unwrap_or(1);
    let counted = |key: &str| number(job, &format!("/status/{key}")).unwrap_or(0);
    let (mut succeeded, mut failed) = (counted("succeeded"), counted("failed"));
    for pod in own.iter().filter(|p| tracked(p)) {
        match text(pod, "/status/phase") {
            "Succeeded" => succeeded += 1,
            "Failed" => failed += 1,
            _ if deleting(pod) => failed += 1,
            _ => continue,
        }
        release(state, pod);
    }
    let living: Vec<&Arc<Value>> = own.iter().filter(|p| active(p)).collect();
    let running = i64::try_from(living.len()).unwrap_or(i64::MAX);
    let complete = succeeded >= field("completions");
    let failing = failed > field("backoffLimit");
    let suspended = truth(job, "/spec/suspend");
    let wanted = if complete || failing || suspended {
        0
    } else {
        field("parallelism").min(field("completions") - succeeded)
    };
    let burst = i64::try_from(BURST).unwrap_or(i64::MAX);
    for _ in running..wanted.min(running + burst) {
        let mut pod = from_template(job);
        set(
            &mut pod,
            &["metadata", "generateName"],
            json!(format!("{}-", name(job))),
        );
        set(&mut pod, &["metadata", "finalizers"], json!([TRACKING]));
        if !store(state, PODS, pod) {
            break;
        }
    }
    let surplus = usize::try_from(running - wanted).unwrap_or(0);
    for pod in living.iter().rev().take(surplus) {
        erase(state, PODS, pod);
    }
    let now = state.now;
    let mut new = job.clone();
    for (key, value) in [
        ("active", running.max(wanted)),
        ("succeeded", succeeded),
        ("failed", failed),
    ] {
        set(&mut new, &["status", key], json!(value));
    }
    if new["status"]["startTime"].is_null() && !suspended {
        set(&mut new, &["status", "startTime"], json!(seconds(now)));
    }
    if complete {
        set(&mut new, &["status", "active"], json!(0));
        set(&mut new, &["status", "completionTime"], json!(seconds(now)));
        set_condition(&mut new, "Complete", "True", "CompletionsReached", "", now);
    } else if failing {
        let why = "Job has reached the specified backoff limit";
        set_condition(&mut new, "Failed", "True", "BackoffLimitExceeded", why, now);
    }
    state.replace(JOBS, new);
}

//! A decision in words: one sentence for each pod, node and action, for whoever shows it. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::model::action::{Action, CreateSpec, Kind, Reason};
use crate::model::cluster::ObjectKey;
use crate::model::foreign::{self, ForeignText};
use crate::model::network::NicAddresses;
use crate::model::reasons::{Kept, Reasons, WaitsFor};
use crate::model::report::{NodeVerdict, PodVerdict};
use crate::model::time::{Span, Time};
use crate::model::words;

/// A planned machine as the plan shows it: `s2 from debian as VMID 9001 on pve1, CPUs 2-5, 192.0.2.50`.
fn creation(spec: &CreateSpec, place: &str) -> String {
    let mark = &spec.mark;
    let mut made = format!("{} from {} as {place}", mark.instance_type, mark.template);
    if !mark.cpus.is_empty() {
        let _ = write!(made, ", CPUs {}", mark.cpus);
    }
    if !spec.storages.is_empty() {
        let _ = write!(made, ", disks on {}", words::names(spec.storages.names()));
    }
    add_addresses(made, &mark.addresses)
}

/// Where a machine is, and behind it the addresses that it has of ours.
pub fn add_addresses(place: String, addresses: &NicAddresses) -> String {
    let addresses = addresses.values().flatten();
    addresses.fold(place, |text, address| format!("{text}, {address}"))
}

/// What an action does: a verb, and with what.
pub fn act(action: &Action) -> (&'static str, String) {
    let target = &action.target;
    let host = words::at(&target.region, &target.host);
    let place = format!("VMID {} on {host}", target.vmid);
    match &action.kind {
        Kind::Create(spec) => ("create", creation(spec, &place)),
        Kind::Continue => ("continue", place),
        Kind::Remove { drain: true } => ("remove", format!("{place}, its pods evicted first")),
        Kind::Remove { drain: false } => ("remove", place),
        Kind::Start => ("start", place),
        Kind::Relabel if action.reason == Reason::Reregistered => (
            "relabel",
            "its node is labelled and opened again".to_owned(),
        ),
        Kind::Relabel => (
            "relabel",
            format!("its node's zone becomes {}", target.host),
        ),
        Kind::Update => ("update in place", place),
        Kind::Release => (
            "release",
            target
                .node
                .as_ref()
                .map_or(place, |node| format!("node {}", node.name)),
        ),
        Kind::DeleteNode => (
            "delete node",
            target
                .node
                .as_ref()
                .map_or(place, |node| format!("node {}", node.name)),
        ),
        Kind::DeletePlaceholder => ("delete placeholder", place),
        Kind::DropIntent => ("drop intent", place),
    }
}

/// What becomes of a pod, and why.
pub fn pod_verdict(verdict: &PodVerdict, now: Time) -> (String, String) {
    match verdict {
        PodVerdict::FitsNode { node, preempts } => {
            (format!("fits on node {node}"), preempted(preempts))
        }
        PodVerdict::FitsMachine { machine } => {
            (format!("waits for machine {machine}"), String::new())
        }
        PodVerdict::Triggers { machine, others } => {
            (format!("gets machine {machine}"), reasons(others))
        }
        PodVerdict::Batched { until } => (
            format!("is planned for {}", when(*until, now)),
            String::new(),
        ),
        PodVerdict::Held { why } => ("has to wait".to_owned(), reasons(why)),
        PodVerdict::NoCompatiblePool { why } => ("no pool can run it".to_owned(), reasons(why)),
        PodVerdict::Ignored { why } => ("is left alone".to_owned(), one_line(&why.to_string())),
        PodVerdict::Unread { why } => ("is not judged yet".to_owned(), one_line(&why.to_string())),
    }
}

/// Who is preempted for a pod.
pub fn preempted(pods: &BTreeMap<ObjectKey, i32>) -> String {
    if pods.is_empty() {
        return String::new();
    }
    let named = pods
        .iter()
        .map(|(pod, priority)| format!("{pod} (priority {priority})"));
    let named: Vec<String> = named.collect();
    format!("kube-scheduler will preempt {}", named.join(", "))
}

/// Reasons by `pool/type`; pools that share a reason share a mention.
fn reasons(why: &Reasons) -> String {
    let mentions = mentions(why).into_iter();
    let mentions: Vec<String> = mentions
        .map(|(places, reason)| format!("{places}: {reason}"))
        .collect();
    mentions.join("; ")
}

/// The reasons that a verdict names by `pool/type`: where each holds, and the reason. None where it names none so.
pub fn reasons_by_place(verdict: &PodVerdict) -> Vec<(String, String)> {
    match verdict {
        PodVerdict::Triggers { others: why, .. }
        | PodVerdict::Held { why }
        | PodVerdict::NoCompatiblePool { why } => mentions(why),
        PodVerdict::FitsNode { .. }
        | PodVerdict::FitsMachine { .. }
        | PodVerdict::Batched { .. }
        | PodVerdict::Ignored { .. }
        | PodVerdict::Unread { .. } => Vec::new(),
    }
}

/// Each reason once, behind all places where it holds.
fn mentions(why: &Reasons) -> Vec<(String, String)> {
    let mut by_reason: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (place, reason) in why.iter() {
        by_reason.entry(reason.to_string()).or_default().push(place);
    }
    by_reason
        .into_iter()
        .map(|(reason, places)| (places.join(", "), one_line(&reason)))
        .collect()
}

/// What becomes of a node, and why.
pub fn node_verdict(verdict: &NodeVerdict, now: Time) -> (String, String) {
    match verdict {
        NodeVerdict::NotAutoscaled => ("not ours".to_owned(), String::new()),
        NodeVerdict::Unread { why } => ("not judged yet".to_owned(), one_line(&why.to_string())),
        NodeVerdict::Kept {
            reason,
            why,
            pod,
            until,
        } => {
            let text = one_line(&why.to_string()) + &kept_until(why, pod.as_ref(), *until, now);
            (reason.to_string(), text)
        }
        NodeVerdict::Leaving { why, .. } => ("leaving".to_owned(), one_line(&why.to_string())),
        NodeVerdict::Replaced { why, .. } => {
            ("being replaced".to_owned(), one_line(&why.to_string()))
        }
    }
}

/// What a node waits for that is to go and for which no machine can be made: its verdict without the reasons, and these by the places that
/// they hold for, as [`reasons_by_place`] has those of a pod.
pub fn without_machine(verdict: &NodeVerdict) -> Option<(String, Vec<(String, String)>)> {
    let NodeVerdict::Kept {
        why: Kept::GivenUp { cause, waits },
        ..
    } = verdict
    else {
        return None;
    };
    let WaitsFor::NoMachine { pod, refused } = &**waits else {
        return None;
    };
    let bare = WaitsFor::NoMachine {
        pod: pod.clone(),
        refused: Reasons::default(),
    };
    Some((one_line(&format!("{cause}; {bare}")), mentions(refused)))
}

/// What a node's verdict says beside its reason: the pod that keeps it, and when it is looked at again. A node that waits for a machine in its
/// place is not kept by one pod, or its reason names the pod.
pub fn kept_until(why: &Kept, pod: Option<&ObjectKey>, until: Option<Time>, now: Time) -> String {
    let waits_for_machine = match why {
        Kept::GivenUp { waits, .. } => !matches!(**waits, WaitsFor::Other { .. }),
        _ => false,
    };
    let mut text = String::new();
    if let Some(pod) = pod.filter(|_| !waits_for_machine) {
        let _ = write!(text, " (pod {pod})");
    }
    if let Some(until) = until {
        let _ = write!(text, "; looked at again {}", when(until, now));
    }
    text
}

/// A point in time as people say it: `in 5m` or `3m ago`.
pub fn when(at: Time, now: Time) -> String {
    if at > now {
        format!("in {}", whole_seconds(at.since(now)))
    } else {
        format!("{} ago", whole_seconds(now.since(at)))
    }
}

/// A span without its milliseconds.
pub fn whole_seconds(span: Span) -> Span {
    Span(span.0 / 1000 * 1000)
}

/// Text of others on one line: a pod's or guest's words must not write into somebody's terminal.
pub fn one_line(text: &str) -> String {
    foreign::line(text, ForeignText::MAX)
}

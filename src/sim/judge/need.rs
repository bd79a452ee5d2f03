//! Machines that nobody needed: made, brought up, and removed without a pod ever on them.
//!
//! What was made while things went wrong is not looked at: who can tell there what a machine was for. Nor is one
//! for which there was a reason to go by the time it worked: a pod had ended or gone, so that there was room
//! elsewhere or nobody to run, or a node had come back or was open to pods again.

use std::collections::BTreeSet;

use super::known::{SeenMachine, is_cordoned, is_ready, is_starting};
use super::{Judge, system_uuid, text};
use crate::model::time::{Span, Time};
use crate::sim::pve::MachineChange;

/// A view may be three minutes old, and a plan some more.
const OLD_VIEW: Span = Span::minutes(4);
/// A call may be carried out three minutes after it was sent, and a clone takes its time.
const LATE: Span = Span::minutes(8);

/// What was there at the last look.
#[derive(Debug, Default)]
pub(super) struct Relief {
    /// Pods that had not ended, by UID.
    pods: BTreeSet<String>,
    /// Nodes that took pods, by UID.
    open: BTreeSet<String>,
    /// When there last was some.
    last: Option<Time>,
}

impl Judge {
    /// Whether what is seen now first was asked for when nothing went wrong any more. What goes wrong from the very
    /// beginning of a story on, with a patience that is told before it, is part of that story.
    pub(super) fn calms(&self, now: Time) -> bool {
        self.calm
            .is_some_and(|since| self.calm == self.began || now.since(since) > LATE)
    }

    /// Whether something made room lately, so that a machine may be made that is not needed any more.
    pub(super) fn relieved(&self, now: Time) -> bool {
        self.relief
            .last
            .is_some_and(|last| now.since(last) < OLD_VIEW)
    }

    /// Looks for pods that are no more, and for nodes that take pods again.
    pub(super) fn look_for_relief(&mut self, now: Time) {
        let uid = |object: &serde_json::Value| text(object, "/metadata/uid").to_owned();
        let ended = |pod: &serde_json::Value| {
            matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
                || pod["metadata"]["deletionTimestamp"].is_string()
        };
        let pods = self.kube.objects("v1", "Pod");
        let pods: BTreeSet<String> = pods
            .iter()
            .filter(|pod| !ended(pod))
            .map(|pod| uid(pod))
            .collect();
        let nodes = self.nodes();
        let open = nodes
            .iter()
            .filter(|node| is_ready(node) && !is_cordoned(node) && !is_starting(node));
        // The first time that a machine of ours works is what it was made for.
        let back = open.clone().any(|node| {
            let mut machines = self.machines.values();
            let new =
                machines.any(|known| known.uuid == system_uuid(node) && known.first == Some(now));
            !self.relief.open.contains(&uid(node)) && !new
        });
        let open: BTreeSet<String> = open.map(|node| uid(node)).collect();
        let gone = !self.relief.pods.is_subset(&pods);
        let last = if back || gone {
            Some(now)
        } else {
            self.relief.last
        };
        self.relief = Relief { pods, open, last };
        if last == Some(now) {
            let coming = |known: &&mut SeenMachine| known.first.is_none_or(|first| first == now);
            for known in self.machines.values_mut().filter(coming) {
                known.relieved = true;
            }
        }
    }

    /// A machine goes by the daemon's will that worked, and on which no pod ever was.
    pub(super) fn look_at_need(&mut self, change: &MachineChange, known: &SeenMachine) {
        let needless = known.calm && known.worked && !known.served && !known.relieved;
        let asked_for = self.pools.iter().any(|pool| pool.min > 0);
        if change.what == "destroy" && needless && !asked_for {
            self.find(format!(
                "{}: machine {} was made and removed, and no pod was ever on it",
                change.at, change.name
            ));
        }
    }
}

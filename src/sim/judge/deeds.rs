//! What the daemon changed in Kubernetes: only nodes of ours, pods by eviction alone and none that may not go.

use serde_json::Value;

use super::known::{forbids, is_leaving, is_ready};
use super::{Judge, system_uuid, text};
use crate::model::time::Span;
use crate::sim::kube::ObjectChange;
use crate::sim::world::DAEMON;

/// A view may be three minutes old, and a plan some more.
const OLD_VIEW: Span = Span::minutes(4);
/// After this long everybody knows that the Lease is somebody else's.
const LEASE: Span = Span::seconds(45);
/// Pods with one of these are not evicted.
const PROTECTED: [(&str, &str); 2] = [
    ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
    ("karpenter.sh/do-not-disrupt", "true"),
];

impl Judge {
    pub(super) fn look_at_deed(&mut self, deed: &ObjectChange) {
        if deed.by != DAEMON {
            return;
        }
        // What it says is no change of what it looks after.
        // And nobody knew any more who sent a call that was under way for minutes.
        if deed.resource != "configmaps" && !deed.late {
            self.busy = deed.at;
            self.look_at_lease(deed);
        }
        match deed.resource.as_str() {
            "nodes" | "nodes/status" => self.look_at_node(deed),
            "pods/eviction" => self.look_at_eviction(deed),
            "pods/status" => self.look_at_nomination(deed),
            "pods" => self.find(format!(
                "{}: pod {} was changed ({}) without an eviction",
                deed.at, deed.name, deed.verb
            )),
            _ => {}
        }
    }

    fn look_at_lease(&mut self, deed: &ObjectChange) {
        if let Some(since) = self.no_lease
            && deed.at.since(since) > LEASE
        {
            self.find(format!(
                "{}: {} of {} {} without the lease, which is somebody else's since {since}",
                deed.at, deed.verb, deed.resource, deed.name
            ));
        }
    }

    fn look_at_node(&mut self, deed: &ObjectChange) {
        let (at, name) = (deed.at, &deed.name);
        let Some(before) = &deed.before else {
            return;
        };
        let uuid = system_uuid(before);
        if self.uuids_elsewhere.contains(&uuid) {
            return;
        }
        if !self.uuids.contains(&uuid) {
            self.find(format!(
                "{at}: {} of node {name}, which is not ours",
                deed.verb
            ));
            return;
        }
        let behind = self
            .machines
            .iter_mut()
            .find(|(_, known)| known.uuid == uuid || known.nodes.iter().any(|node| node == name));
        if deed.verb == "delete" {
            let mut running = false;
            if let Some((vmid, known)) = behind {
                // It went by the daemon's own will.
                known.nodes.clear();
                let vm = self.pve.vm(*vmid);
                running = vm.is_some_and(|vm| vm.running && vm.uuid == uuid);
            }
            if running && is_ready(before) {
                self.find(format!(
                    "{at}: node {name} was deleted while its VM runs and it is Ready"
                ));
            }
            return;
        }
        let leaves = deed.after.as_ref().is_some_and(|after| is_leaving(after));
        if leaves && !is_leaving(before) && is_ready(before) {
            self.look_at_leaving(deed);
        }
    }

    /// A node that works is about to go.
    fn look_at_leaving(&mut self, deed: &ObjectChange) {
        let (at, name) = (deed.at, &deed.name);
        let forbidden = deed.before.as_ref().is_some_and(|node| forbids(node));
        if let Some(since) = self.disabled.get(name).filter(|_| forbidden)
            && at.since(*since) > OLD_VIEW
        {
            self.find(format!(
                "{at}: node {name} is to go, which forbids it since {since}"
            ));
        }
        if self.patience.is_none() {
            return;
        }
        let homeless = self.kube.homeless_without(name, at - OLD_VIEW, at);
        if !homeless.is_empty() {
            self.find(format!(
                "{at}: node {name} is to go without need, its pods fit nowhere else: {}",
                homeless.join(", ")
            ));
        }
    }

    /// Of a pod's status nothing may change but its nominated node, from none to one or back, while the pod
    /// waits.
    fn look_at_nomination(&mut self, deed: &ObjectChange) {
        let (at, name) = (deed.at, &deed.name);
        let (Some(before), Some(after)) = (&deed.before, &deed.after) else {
            self.find(format!(
                "{at}: the status of pod {name}, which is gone, was changed"
            ));
            return;
        };
        let without = |pod: &Value| {
            let mut pod = pod.clone();
            if let Some(status) = pod["status"].as_object_mut() {
                status.remove("nominatedNodeName");
            }
            pod["metadata"]["resourceVersion"] = Value::Null;
            pod
        };
        let named = |pod: &Value| text(pod, "/status/nominatedNodeName").to_owned();
        let (was, is) = (named(before), named(after));
        let wrong = if without(before) != without(after) {
            "more than nominatedNodeName was changed"
        } else if !text(before, "/spec/nodeName").is_empty() {
            "it is bound"
        } else if !was.is_empty() && !is.is_empty() && was != is {
            "another nomination stood there"
        } else {
            return;
        };
        self.find(format!(
            "{at}: the status of pod {name} was changed (nominated for {was:?}, then {is:?}): {wrong}"
        ));
    }

    fn look_at_eviction(&mut self, deed: &ObjectChange) {
        let Some(pod) = &deed.before else {
            return;
        };
        let says = |key: &str, value: &str| pod["metadata"]["annotations"][key] == value;
        if let Some((key, value)) = PROTECTED.iter().find(|(key, value)| says(key, value)) {
            self.find(format!(
                "{}: pod {} was evicted from {} in spite of {key}={value}",
                deed.at,
                deed.name,
                text(pod, "/spec/nodeName")
            ));
        }
    }
}

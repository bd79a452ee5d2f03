//! Every pod that must move has a place: added up anew over all removals of a plan.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Case, Rule, Verdict, drain, ensure, matching, neighbours, refuse};
use crate::model::action::Action;
use crate::model::cluster::{Node, PodKey, ReadyStatus};
use crate::model::policy::{LEAVING_TAINT, STARTUP_TAINT};
use crate::model::region::Busy;
use crate::model::resources::Resources;
use crate::model::scheduling::HostPort;

/// What is left of a destination.
struct Left {
    free: Resources,
    ports: Vec<HostPort>,
}

pub(super) fn check(case: Case<'_>, removals: &[&Action]) -> Verdict {
    let going = drain::nodes_of(removals);
    let mut left: BTreeMap<&str, Left> = BTreeMap::new();
    let mut landed: BTreeMap<&PodKey, &Arc<str>> = BTreeMap::new();
    for action in removals {
        let from = action.target.node.as_ref().map_or("", |node| &node.name);
        for (key, to) in &action.precondition.landing {
            let Some(pod) = case.snapshot.cluster.pods.get(key) else {
                continue;
            };
            if pod.node.as_deref() != Some(from) || pod.phase.terminal() {
                continue;
            }
            let Some(node) = case.snapshot.cluster.nodes.get(to) else {
                return refuse(
                    Rule::Landing,
                    format!("{key} is to go to {to}, which is gone"),
                );
            };
            let stays = !going.contains(&to) && usable(case, to, node);
            ensure(stays, Rule::Landing, || {
                format!("{key} is to go to {to}, which is not ready or is leaving")
            })?;
            if let Some(why) = matching::mismatch(&pod.shape, to, node) {
                return refuse(Rule::Landing, format!("{key} may not go to {to}: {why}"));
            }
            let left = left.entry(to).or_insert_with(|| fresh(case, to, node));
            if let Some(why) = matching::lacking(&pod.shape.requests, &left.free) {
                return refuse(Rule::Landing, format!("{key} has no room on {to}: {why}"));
            }
            for port in &pod.shape.host_ports {
                let clash = left.ports.iter().any(|other| clash(port, other));
                ensure(!clash, Rule::Landing, || {
                    format!("port {} is taken on {to}", port.port)
                })?;
            }
            left.ports.extend(pod.shape.host_ports.iter().cloned());
            charge(&mut left.free, &pod.shape.requests);
            landed.insert(key, to);
        }
    }
    let mut gone: Vec<&str> = going.iter().map(|name| &***name).collect();
    gone.extend(
        case.snapshot
            .cluster
            .nodes
            .iter()
            .filter(|(name, node)| !usable(case, name, node) && leaving(case, name, node))
            .map(|(name, _)| &**name),
    );
    neighbours::check(case, &landed, &gone)
}

/// A node whose removal is under way: its pods are not counted as neighbours.
fn leaving(case: Case<'_>, name: &str, node: &Node) -> bool {
    let ours = |key: &str| node.taints.iter().any(|t| &*t.key == key);
    node.deletion.is_some()
        || ours(LEAVING_TAINT)
        || case.snapshot.machines.values().any(|machine| {
            let failed = machine.failure.is_some() || machine.vm.is_none();
            machine.node.as_deref() == Some(name) && (machine.busy == Some(Busy::Down) || failed)
        })
}

fn usable(case: Case<'_>, name: &str, node: &Node) -> bool {
    let marked = |key: &str| node.taints.iter().any(|t| &*t.key == key);
    let busy =
        case.snapshot.machines.values().any(|machine| {
            machine.node.as_deref() == Some(name) && machine.busy == Some(Busy::Down)
        });
    node.ready.status == ReadyStatus::True
        && node.deletion.is_none()
        && !marked(LEAVING_TAINT)
        && !marked(STARTUP_TAINT)
        && !busy
}

/// What a node has left of what runs on it or was nominated to it.
fn fresh(case: Case<'_>, name: &str, node: &Node) -> Left {
    let mut left = Left {
        free: node.allocatable.clone(),
        ports: Vec::new(),
    };
    for pod in case.snapshot.cluster.pods.values() {
        let here = match &pod.node {
            Some(node) => **node == *name,
            None => pod.nominated.as_deref() == Some(name) && pod.deletion.is_none(),
        };
        if here && !pod.phase.terminal() {
            charge(&mut left.free, &pod.shape.requests);
            left.ports.extend(pod.shape.host_ports.iter().cloned());
        }
    }
    left
}

fn charge(free: &mut Resources, asked: &Resources) {
    let before = free.pods;
    let mut asked = asked.clone();
    asked.raise_to(&Resources::default());
    free.subtract(&asked);
    free.pods = before.saturating_sub(1);
}

fn clash(a: &HostPort, b: &HostPort) -> bool {
    let any = |port: &HostPort| matches!(&*port.ip, "" | "0.0.0.0");
    let protocol = |port: &HostPort| match &*port.protocol {
        "" => "TCP".to_owned(),
        other => other.to_owned(),
    };
    a.port == b.port && protocol(a) == protocol(b) && (a.ip == b.ip || any(a) || any(b))
}

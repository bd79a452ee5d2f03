//! A world as a text that a person can read, close to the words of conformance cases.

use std::fmt::Write as _;

use crate::tests::lab::{Lab, MI};
use model::cluster::{Node, Pod};
use model::decision::Decision;
use model::hosts::HostRules;
use model::scheduling::{NodeTerm, PodShape, PodTerm, SpreadConstraint, Taint, Volume};

/// The world, and what was decided on it.
pub(in crate::tests) fn tell(lab: &Lab, decision: &Decision) -> String {
    let mut text = world(lab);
    text.push_str("plan:\n");
    for action in &decision.plan {
        let target = &action.target;
        let kind = match &action.kind {
            model::action::Kind::Create(spec) => {
                format!("create {}/{}", spec.mark.pool, spec.mark.instance_type)
            }
            other => format!("{other:?}"),
        };
        let _ = writeln!(
            text,
            "  - {{do: {kind}, machine: {}, host: {}, why: {}}}",
            target.machine, target.host, action.reason
        );
    }
    text.push_str("verdicts:\n");
    for (key, verdict) in &decision.report.pods {
        let _ = writeln!(text, "  {key}: {verdict:?}");
    }
    text
}

/// The world.
pub(in crate::tests) fn world(lab: &Lab) -> String {
    let mut text = String::from("\npools:\n");
    for (name, pool) in &lab.policy.pools {
        let mut line = format!(
            "{{name: {name}, types: {:?}, min: {}, max: {}",
            pool.instance_types, pool.min, pool.max
        );
        say(&mut line, "hosts", &pool.hosts, pool.hosts.is_empty());
        say(&mut line, "weight", &pool.weight, pool.weight == 0);
        let cores = pool.max_cpu_milli;
        say(&mut line, "cpu_ceiling", &cores, cores.is_none());
        let taints: Vec<String> = pool.taints.iter().map(taint).collect();
        say(&mut line, "taints", &taints, taints.is_empty());
        let rules = &pool.host_rules;
        say(
            &mut line,
            "host_rules",
            rules,
            *rules == HostRules::default(),
        );
        let _ = writeln!(text, "  - {line}}}");
    }
    for (name, region) in &lab.policy.regions {
        let _ = writeln!(text, "region {name}: {:?}", region.capacity);
    }
    text.push_str("daemonsets:\n");
    for (key, set) in &lab.snapshot.cluster.daemon_sets {
        let _ = writeln!(text, "  - {{name: {key}{}}}", shape(&set.shape));
    }
    text.push_str("nodes:\n");
    for (name, node) in &lab.snapshot.cluster.nodes {
        let _ = writeln!(text, "  - {{name: {name}{}}}", self::node(lab, name, node));
    }
    for (name, machine) in &lab.snapshot.machines {
        if machine.node.is_none() {
            let mark = &machine.mark;
            let _ = writeln!(
                text,
                "  - {{name: {name}, pool: {}, type: {}, zone: {}, state: inflight, step: {:?}, failed: {}}}",
                mark.pool,
                mark.instance_type,
                machine.host,
                machine.step.map(|(step, _)| step),
                machine.failure.is_some()
            );
        }
    }
    text.push_str("pods:\n");
    for (key, pod) in &lab.snapshot.cluster.pods {
        let _ = writeln!(text, "  - {{name: {key}{}}}", self::pod(pod));
    }
    text
}

fn say(line: &mut String, what: &str, value: &dyn std::fmt::Debug, dull: bool) {
    if !dull {
        let _ = write!(line, ", {what}: {value:?}");
    }
}

fn taint(taint: &Taint) -> String {
    format!("{}={}:{:?}", taint.key, taint.value, taint.effect)
}

fn node(lab: &Lab, name: &str, node: &Node) -> String {
    let mut line = String::new();
    let machine = lab.snapshot.machines.get(name);
    if let Some(machine) = machine {
        let mark = &machine.mark;
        let _ = write!(line, ", pool: {}, type: {}", mark.pool, mark.instance_type);
        let step = machine.step.map(|(step, _)| step);
        let _ = write!(line, ", step: {step:?}, busy: {:?}", machine.busy);
    }
    let zone = node.labels.get("topology.kubernetes.io/zone");
    let alloc = &node.allocatable;
    let _ = write!(
        line,
        ", zone: {zone:?}, alloc: {{cpu: {}m, memory: {}Mi, pods: {}}}, ready: {:?}",
        alloc.cpu_milli,
        alloc.memory / MI,
        alloc.pods,
        node.ready.status
    );
    let taints: Vec<String> = node.taints.iter().map(taint).collect();
    say(&mut line, "taints", &taints, taints.is_empty());
    say(&mut line, "unschedulable", &true, !node.unschedulable);
    let attach = lab.snapshot.cluster.csi_nodes.get(name);
    say(&mut line, "csinode", &attach, attach.is_none());
    line
}

fn pod(pod: &Pod) -> String {
    let mut line = shape(&pod.shape);
    say(&mut line, "node", &pod.node, pod.node.is_none());
    say(
        &mut line,
        "nominated",
        &pod.nominated,
        pod.nominated.is_none(),
    );
    say(&mut line, "gates", &pod.gated, !pod.gated);
    let fresh = pod.node.is_none() && pod.unschedulable_since.is_none();
    say(&mut line, "unschedulable", &false, !fresh);
    say(&mut line, "terminating", &true, pod.deletion.is_none());
    line
}

fn shape(shape: &PodShape) -> String {
    let asked = &shape.requests;
    let mut line = format!(
        ", req: {{cpu: {}m, memory: {}Mi, disk: {}, ext: {:?}}}, labels: {:?}",
        asked.cpu_milli,
        asked.memory / MI,
        asked.ephemeral,
        asked.extended,
        shape.labels
    );
    let owner = shape.owner.as_ref().map(|owner| &owner.kind);
    say(
        &mut line,
        "owner",
        &owner,
        owner.is_some_and(|o| &**o == "ReplicaSet"),
    );
    let (selector, priority) = (&shape.node_selector, shape.priority);
    say(&mut line, "nodeSelector", selector, selector.is_empty());
    let terms = shape.node_affinity.as_ref();
    let terms = terms.map(|terms| terms.iter().map(node_term).collect::<Vec<_>>());
    say(&mut line, "nodeAffinity", &terms, terms.is_none());
    let near: Vec<String> = shape.pod_affinity.iter().map(pod_term).collect();
    say(&mut line, "affinity", &near, near.is_empty());
    let far: Vec<String> = shape.pod_anti_affinity.iter().map(pod_term).collect();
    say(&mut line, "antiAffinity", &far, far.is_empty());
    let spread: Vec<String> = shape.spread.iter().map(self::spread).collect();
    say(&mut line, "spread", &spread, spread.is_empty());
    let ports: Vec<i32> = shape.host_ports.iter().map(|port| port.port).collect();
    say(&mut line, "hostPorts", &ports, ports.is_empty());
    let volumes: Vec<String> = shape.volumes.iter().map(volume).collect();
    say(&mut line, "volumes", &volumes, volumes.is_empty());
    let tolerations = &shape.tolerations;
    say(
        &mut line,
        "tolerations",
        tolerations,
        tolerations.is_empty(),
    );
    say(&mut line, "priority", &priority, priority == 0);
    let never = shape.never_preempts;
    say(&mut line, "preemptionPolicy", &"Never", !never);
    say(
        &mut line,
        "scheduler",
        &shape.scheduler,
        shape.scheduler.is_empty(),
    );
    line
}

fn node_term(term: &NodeTerm) -> String {
    let all = term.expressions.iter().chain(&term.fields);
    let all: Vec<String> = all
        .map(|wanted| format!("{} {:?} {:?}", wanted.key, wanted.operator, wanted.values))
        .collect();
    all.join(" and ")
}

fn pod_term(term: &PodTerm) -> String {
    let labels = term.selector.as_ref().map(|selector| &selector.labels);
    let mut text = format!("{} {labels:?}", term.topology_key);
    say(
        &mut text,
        "namespaces",
        &term.namespaces,
        term.namespaces.is_empty(),
    );
    let selector = term.namespace_selector.as_ref().map(|s| &s.labels);
    say(
        &mut text,
        "namespaceSelector",
        &selector,
        selector.is_none(),
    );
    text
}

fn spread(constraint: &SpreadConstraint) -> String {
    let labels = constraint
        .selector
        .as_ref()
        .map(|selector| &selector.labels);
    let mut text = format!(
        "{}:{} {labels:?}",
        constraint.topology_key, constraint.max_skew
    );
    say(&mut text, "soft", &true, constraint.hard);
    say(
        &mut text,
        "minDomains",
        &constraint.min_domains,
        constraint.min_domains.is_none(),
    );
    let keys = &constraint.match_label_keys;
    say(&mut text, "matchLabelKeys", keys, keys.is_empty());
    say(
        &mut text,
        "nodeAffinityPolicy",
        &"Ignore",
        constraint.honor_affinity,
    );
    say(
        &mut text,
        "nodeTaintsPolicy",
        &"Honor",
        !constraint.honor_taints,
    );
    text
}

fn volume(volume: &Volume) -> String {
    match volume {
        Volume::Claim(name) => name.to_string(),
        Volume::Ephemeral { class, .. } => format!("ephemeral {class:?}"),
        Volume::EmptyDir(_) => "emptyDir".to_owned(),
        Volume::HostPath(_) => "hostPath".to_owned(),
    }
}

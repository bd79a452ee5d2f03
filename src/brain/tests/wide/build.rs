//! From recipes to a world.

use std::sync::Arc;

use super::claims::{self, within};
use super::hosts;
use super::{
    DRIVER, HOSTNAME, HOSTS, NAMESPACES, NodeRecipe, PodRecipe, PoolRecipe, State, Twist, Wide,
    ZONE,
};
use crate::tests::lab::{GI, Lab, MI, lab, owner, shape};
use model::cluster::{DaemonSet, DisruptionBudget, ObjectKey, Phase, Pod, ReadyStatus};
use model::disruption::{Consolidation, ConsolidationPolicy, NodeBudget, Saving, Share};
use model::policy::LEAVING_TAINT;
use model::region::{Busy, Failure, Step};
use model::scheduling::{
    Effect, HostPort, LabelSelector, Labels, NodeTerm, Operator, PodShape, PodTerm, Requirement,
    SpreadConstraint, Taint, Toleration, Volume,
};
use model::time::Span;

const CHOICES: [(&str, &str); 4] = [("p", "one"), ("p", "four"), ("q", "two"), ("r", "gpu")];
const STARTUP: &str = "cni.example.com/starting";

impl Wide {
    /// The world.
    pub(in crate::tests) fn build(&self) -> Lab {
        let mut lab = self.policy();
        for (name, team) in [("default", Some("a")), ("other", Some("b")), ("bare", None)] {
            let mut labels = Labels::from([("kubernetes.io/metadata.name".into(), name.into())]);
            labels.extend(team.map(|team| (Arc::from("team"), Arc::from(team))));
            lab.snapshot.cluster.namespaces.insert(name.into(), labels);
        }
        lab = claims::add(lab);
        for (n, (milli, which)) in self.daemons.iter().enumerate() {
            lab = daemon(lab, &format!("agent{n}"), *milli, *which);
        }
        for (app, allowed) in self.allowed.iter().enumerate() {
            if let Some(allowed) = allowed {
                lab = budget(lab, app, *allowed);
            }
        }
        for (n, recipe) in self.nodes.iter().enumerate() {
            lab = node(lab, &format!("n{n}"), recipe);
        }
        for (n, recipe) in self.pods.iter().enumerate() {
            lab = pod(lab, n, recipe);
        }
        lab
    }

    fn policy(&self) -> Lab {
        let mut lab = lab()
            .kind("one", 1, 1024)
            .kind("two", 2, 2048)
            .kind("four", 4, 4096)
            .kind("gpu", 4, 4096)
            .edit_kind("gpu", |kind| {
                kind.extended.insert("example.com/gpu".into(), 2);
            })
            .edit_kind("two", |kind| {
                kind.attach_limits.insert(DRIVER.into(), 2);
                kind.disk = 30 * GI;
            })
            .pool("p", &["one", "four"])
            .pool("q", &["two"])
            .pool("r", &["gpu"]);
        for (name, recipe) in ["p", "q", "r"].into_iter().zip(&self.pools) {
            lab = pool(lab, name, recipe, self.consolidated);
        }
        lab.policy.scale_up.max_in_flight = self.in_flight;
        lab.policy.scale_up.max_nodes_total = self.nodes_total;
        lab.policy.scale_down.max_parallel_drain = 2;
        if self.default_spread {
            let spread = SpreadConstraint {
                selector: None,
                ..spread(true, 2, true, None, 0, "")
            };
            lab.policy.scale_up.default_spread.push(spread);
        }
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        for host in region.hosts.values_mut() {
            host.memory = self.host_gib * GI;
        }
        if let Some(recipe) = &self.hosts {
            hosts::apply(&mut lab, recipe);
        }
        lab
    }
}

fn pool(lab: Lab, name: &str, recipe: &PoolRecipe, consolidated: bool) -> Lab {
    let has = |bit: u8| recipe.traits & (1 << bit) != 0;
    lab.edit_pool(name, |pool| {
        pool.min = recipe.min;
        pool.max = recipe.max;
        pool.max_cpu_milli = recipe.cores.map(|cores| i64::from(cores) * 1000);
        pool.weight = recipe.weight;
        pool.labels
            .insert("tier".into(), format!("tier-{name}").into());
        if has(0) {
            pool.hosts = vec!["pve2".into()];
        }
        if has(1) {
            pool.taints.push(Taint::no_schedule("team", "x"));
        }
        if has(2) {
            pool.startup_taints.push(Taint::no_schedule(STARTUP, ""));
        }
        if has(3) {
            pool.budgets.push(NodeBudget {
                nodes: Share::Nodes(1),
                window: None,
                causes: std::collections::BTreeSet::default(),
            });
        }
        if has(4) {
            pool.reserved.cpu_milli = 100;
            pool.reserved.memory = 100 * MI;
            pool.max_pods = 5;
        }
        if consolidated {
            pool.consolidation = Some(Consolidation {
                policy: ConsolidationPolicy::WhenUnderused,
                after: Span::minutes(1),
                min_saving: Saving::default(),
            });
        }
    })
}

fn daemon(lab: Lab, name: &str, milli: i64, which: u8) -> Lab {
    lab.daemon(name, milli, milli).with(|lab| {
        let sets = &mut lab.snapshot.cluster.daemon_sets;
        let set: &mut DaemonSet = sets
            .get_mut(&ObjectKey::new("kube-system", name))
            .expect("just made");
        let shape = Arc::make_mut(&mut set.shape);
        match which {
            0 => {}
            1 => shape.tolerations.push(everything()),
            _ => {
                shape.node_selector.insert("tier".into(), "tier-q".into());
                shape.host_ports.push(port(80));
            }
        }
    })
}

fn budget(mut lab: Lab, app: usize, allowed: i32) -> Lab {
    for namespace in NAMESPACES {
        lab.snapshot.cluster.budgets.insert(
            ObjectKey::new(namespace, format!("budget{app}")),
            DisruptionBudget {
                selector: Some(selector(&format!("app{app}"))),
                allowed,
                always_allow_unhealthy: false,
                healthy: false,
            },
        );
    }
    lab
}

fn everything() -> Toleration {
    Toleration {
        exists: true,
        ..Toleration::default()
    }
}

fn port(port: i32) -> HostPort {
    HostPort {
        protocol: "TCP".into(),
        ip: "".into(),
        port,
    }
}

fn selector(app: &str) -> LabelSelector {
    LabelSelector {
        labels: Labels::from([("app".into(), app.into())]),
        ..LabelSelector::default()
    }
}

/// A node that is to be in a zone, with the machine behind it.
fn moved(mut lab: Lab, name: &str, host: usize) -> Lab {
    let host: Arc<str> = HOSTS[host].into();
    if let Some(machine) = lab.snapshot.machines.get_mut(name) {
        machine.host = host.clone();
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        if let Some(vm) = region.vms.get_mut(&machine.mark.vmid) {
            vm.host = host.clone();
        }
    }
    if let Some(node) = lab.snapshot.cluster.nodes.get_mut(name) {
        node.labels.insert(ZONE.into(), host);
    }
    lab
}

fn node(lab: Lab, name: &str, recipe: &NodeRecipe) -> Lab {
    let (pool, kind) = CHOICES[recipe.choice];
    let leaving = |node: &mut model::cluster::Node| {
        node.taints.push(Taint::no_schedule(LEAVING_TAINT, "0"));
        node.unschedulable = true;
    };
    let lab = match recipe.state {
        State::Foreign => lab.node(name, 2000, 2048),
        State::Cordoned => lab
            .node(name, 2000, 2048)
            .edit_node(name, |node| node.unschedulable = true),
        State::Tainted => lab.node(name, 2000, 2048).edit_node(name, |node| {
            node.taints.push(Taint::no_schedule("team", "x"));
            node.labels.insert("speed".into(), "7".into());
        }),
        State::Ours => lab.ours(name, pool, kind),
        State::Small => lab.ours(name, pool, kind).edit_node(name, |node| {
            node.allocatable.cpu_milli -= 300;
            node.allocatable.memory -= 300 * MI;
        }),
        State::Coming => lab.machine(name, pool, kind, Step::Agent),
        State::Registered => {
            let mut lab = lab.machine(name, pool, kind, Step::Initialize);
            lab.register(name, false);
            lab
        }
        State::Failed => lab
            .machine(name, pool, kind, Step::Join)
            .edit_machine(name, |machine| {
                machine.failure = Some(Failure {
                    advice: None,
                    step: Step::Join,
                    message: "no".into(),
                    at: machine.mark.created,
                    transient: false,
                    host: None,
                });
            }),
        State::Leaving => lab
            .ours(name, pool, kind)
            .edit_machine(name, |machine| machine.busy = Some(Busy::Down))
            .edit_node(name, leaving),
        State::Interrupted => lab.ours(name, pool, kind).edit_node(name, leaving),
        State::Lost => lab.ours(name, pool, kind).edit_node(name, |node| {
            node.ready.status = ReadyStatus::Unknown;
            node.taints.push(Taint {
                effect: Effect::NoExecute,
                ..Taint::no_schedule("node.kubernetes.io/unreachable", "")
            });
        }),
    };
    let mut lab = moved(lab, name, recipe.host);
    if let (Some(limit), true) = (recipe.attach, lab.snapshot.cluster.nodes.contains_key(name)) {
        let limits = [(Arc::from(DRIVER), Some(limit))].into();
        lab.snapshot.cluster.csi_nodes.insert(name.into(), limits);
    }
    lab
}

fn pod(mut lab: Lab, number: usize, recipe: &PodRecipe) -> Lab {
    let name = format!("pod{number}");
    let namespace = NAMESPACES[recipe.namespace];
    let app = format!("app{}", recipe.app);
    let nodes: Vec<Arc<str>> = lab.snapshot.cluster.nodes.keys().cloned().collect();
    let at = |wanted: usize| nodes.get(wanted % nodes.len().max(1)).cloned();
    let mut made = shape(&name, recipe.milli, recipe.mib);
    made.labels = [("app".into(), app.as_str().into())].into();
    made.labels
        .insert("version".into(), format!("v{}", number % 2).into());
    made.owner = Some(owner("ReplicaSet", &format!("{namespace}-{app}")));
    for twist in &recipe.twists {
        reshape(&mut made, twist, &app);
    }
    if made.priority < -10 {
        // Which of two equal ones is preempted nobody says.
        made.priority -= i32::try_from(number).unwrap_or(0);
    }
    let mut pod = Pod {
        uid: format!("uid-{name}").into(),
        shape: Arc::new(made),
        node: None,
        nominated: None,
        phase: Phase::Pending,
        created: lab.now - Span::minutes(60 + i64::try_from(number % 3).unwrap_or(0)),
        arrival: 0,
        started: None,
        deletion: None,
        deletion_grace_seconds: None,
        unschedulable_since: Some(lab.now),
        gated: false,
        mirror: false,
        ready: false,
    };
    if let Some(node) = recipe.node.and_then(at) {
        pod.node = Some(node);
        pod.phase = Phase::Running;
        pod.unschedulable_since = None;
        pod.ready = true;
    }
    for twist in &recipe.twists {
        match twist {
            Twist::Gated => pod.gated = pod.node.is_none(),
            Twist::Fresh => pod.unschedulable_since = None,
            Twist::Nominated(node) if pod.node.is_none() => pod.nominated = at(*node),
            Twist::Deleting => {
                pod.deletion = Some(lab.now);
                pod.deletion_grace_seconds = Some(30);
            }
            _ => {}
        }
    }
    lab.snapshot
        .cluster
        .pods
        .insert(ObjectKey::new(namespace, name), pod);
    lab
}

fn reshape(shape: &mut PodShape, twist: &Twist, app: &str) {
    match twist {
        Twist::Port(number) => shape.host_ports.push(port(*number)),
        Twist::Zone(zone) => {
            shape.node_selector.insert(ZONE.into(), HOSTS[*zone].into());
        }
        Twist::NodeTerm(which) => shape.node_affinity = Some(node_terms(*which)),
        Twist::Spread {
            zone,
            skew,
            hard,
            min_domains,
            policies,
        } => {
            let min_domains = min_domains.filter(|_| *hard);
            shape
                .spread
                .push(spread(*zone, *skew, *hard, min_domains, *policies, app));
        }
        Twist::Company {
            anti,
            zone,
            app,
            namespaces,
        } => {
            let term = company(*zone, *app, *namespaces);
            if *anti {
                shape.pod_anti_affinity.push(term);
            } else {
                shape.pod_affinity.push(term);
            }
        }
        Twist::Preferred(which) => match which {
            0 => shape.preferred_nodes.push((50, within(ZONE, &["pve3"]))),
            1 => shape.preferred_pods.push((50, company(true, 0, 0))),
            2 => shape.preferred_anti_pods.push((100, company(false, 0, 0))),
            _ => shape.preferred_nodes.push((100, within("tier", &["none"]))),
        },
        Twist::Tolerates(which) => shape.tolerations.push(match which {
            0 => everything(),
            1 => Toleration {
                key: Some("team".into()),
                value: "x".into(),
                ..Toleration::default()
            },
            2 => Toleration {
                key: Some("node.kubernetes.io/unschedulable".into()),
                exists: true,
                effect: Some(Effect::NoSchedule),
                ..Toleration::default()
            },
            _ => Toleration {
                key: Some("team".into()),
                exists: true,
                effect: Some(Effect::NoExecute),
                ..Toleration::default()
            },
        }),
        Twist::Priority(priority) => shape.priority = *priority,
        Twist::Timid => shape.never_preempts = true,
        Twist::Gpu(count) => {
            shape
                .requests
                .extended
                .insert("example.com/gpu".into(), *count);
        }
        Twist::Disk(gib) => shape.requests.ephemeral = *gib * GI,
        Twist::Claim(number) => shape
            .volumes
            .push(Volume::Claim(format!("claim{number}").into())),
        Twist::EphemeralVolume(zoned) => shape.volumes.push(Volume::Ephemeral {
            name: "scratch".into(),
            class: Some(if *zoned { "zoned" } else { "fast" }.into()),
        }),
        Twist::Local => shape.volumes.push(Volume::EmptyDir("cache".into())),
        Twist::Daemon => shape.owner = Some(owner("DaemonSet", "agent0")),
        Twist::Stateful => shape.owner = Some(owner("StatefulSet", app)),
        Twist::Bare => shape.owner = None,
        Twist::Elsewhere => shape.scheduler = "another".into(),
        Twist::Gated | Twist::Fresh | Twist::Nominated(_) | Twist::Deleting => {}
    }
}

fn node_terms(which: u8) -> Vec<NodeTerm> {
    let one = |key: &str, operator: Operator, values: &[&str]| NodeTerm {
        expressions: vec![Requirement {
            key: key.into(),
            operator,
            values: values.iter().map(|value| Arc::from(*value)).collect(),
        }],
        ..NodeTerm::default()
    };
    match which {
        0 => vec![one("tier", Operator::In, &["tier-p", "tier-r"])],
        1 => vec![one(ZONE, Operator::NotIn, &["pve1"])],
        2 => vec![one("tier", Operator::Exists, &[])],
        3 => vec![one("tier", Operator::DoesNotExist, &[])],
        4 => vec![one("speed", Operator::Gt, &["5"])],
        5 => vec![
            one("speed", Operator::Lt, &["5"]),
            one("tier", Operator::In, &["tier-q"]),
        ],
        6 => vec![],
        7 => vec![NodeTerm::default()],
        8 => vec![one(HOSTNAME, Operator::NotIn, &["n0"])],
        _ => vec![NodeTerm {
            fields: one("metadata.name", Operator::In, &["n1"]).expressions,
            ..NodeTerm::default()
        }],
    }
}

fn spread(
    zone: bool,
    max_skew: i32,
    hard: bool,
    min_domains: Option<i32>,
    policies: u8,
    app: &str,
) -> SpreadConstraint {
    let has = |bit: u8| policies & (1 << bit) != 0;
    let of = if has(3) { "app0" } else { app };
    let selector = if has(4) && has(0) {
        LabelSelector::default()
    } else {
        selector(of)
    };
    SpreadConstraint {
        max_skew,
        topology_key: if zone { ZONE } else { HOSTNAME }.into(),
        hard,
        selector: Some(selector),
        min_domains,
        match_label_keys: if has(2) {
            vec!["version".into()]
        } else {
            Vec::new()
        },
        honor_affinity: !has(0),
        honor_taints: has(1),
    }
}

fn company(zone: bool, app: u8, namespaces: u8) -> PodTerm {
    let team = |team: &str| LabelSelector {
        labels: Labels::from([("team".into(), team.into())]),
        ..LabelSelector::default()
    };
    PodTerm {
        selector: Some(selector(&format!("app{app}"))),
        topology_key: if zone { ZONE } else { HOSTNAME }.into(),
        namespaces: if namespaces == 1 {
            vec!["other".into()]
        } else {
            Vec::new()
        },
        namespace_selector: match namespaces {
            2 => Some(team("a")),
            3 => Some(LabelSelector::default()),
            4 => Some(team("b")),
            _ => None,
        },
    }
}

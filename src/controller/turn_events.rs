//! The Kubernetes Events of a turn, under cluster-autoscaler's reasons. Pure but for what was sent already.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::controller::executor::{Ended, Overdue};
use crate::controller::turn::Turn;
use crate::kubernetes::events::{Event, InvolvedObject, reason};
use crate::model::action::{Action, CreateSpec, Kind, NodeRef, Reason};
use crate::model::cluster::ObjectKey;
use crate::model::identity::Contradiction;
use crate::model::reasons::Reasons;
use crate::model::region::{Busy, Failure};
use crate::model::report::PodVerdict;
use crate::model::time::{Span, Time};

/// An event about an object with the same reason and text is sent again after this long (Karpenter: 2 min for most;
/// cluster-autoscaler: each loop). Pods that stay pending should not fill the event list.
const AGAIN: Span = Span::minutes(10);
/// Events about pods from one turn; the rest is in the report.
const MAX_PODS: usize = 100;

/// Contradicted machines, and nodes of one, that events tell of; the rest is in the report.
const MAX_NODES: usize = 20;

/// The events that were sent lately.
#[derive(Debug, Default)]
pub struct SentEvents {
    when: BTreeMap<(InvolvedObject, &'static str), (Time, String)>,
}

impl SentEvents {
    /// Drops events that were sent with the same text within [`AGAIN`].
    pub fn drop_repeated(&mut self, events: Vec<Event>, now: Time) -> Vec<Event> {
        self.when
            .retain(|_, (at, _)| *at <= now && now.since(*at) < AGAIN);
        events
            .into_iter()
            .filter(|event| {
                let key = (event.about.clone(), event.reason);
                if self
                    .when
                    .get(&key)
                    .is_some_and(|(_, said)| *said == event.message)
                {
                    return false;
                }
                self.when.insert(key, (now, event.message.clone()));
                true
            })
            .collect()
    }
}

/// What a decision says: of machines that are left alone, and of pods that stay pending.
pub fn of_decision(turn: &Turn, namespace: &str) -> Vec<Event> {
    let mut events = of_contradictions(turn, namespace);
    events.extend(of_lost_marks(turn, namespace));
    events.extend(of_pending(turn));
    events
}

/// Machines whose mark somebody took out of their VMs' descriptions, and their nodes.
fn of_lost_marks(turn: &Turn, namespace: &str) -> Vec<Event> {
    let machines = turn.snapshot.machines.iter();
    let lost = machines.filter_map(|(name, machine)| {
        let region = turn.snapshot.regions.get(&machine.region)?;
        let vm = machine.lost_mark(region)?;
        let (vmid, host) = (machine.mark.vmid, &vm.host);
        Some((
            name,
            format!(
                "machine {name} is left alone: its mark is not in the description of VM {vmid} on {host} any more; `explain node {name}` \
                 tells what to put back"
            ),
        ))
    });
    let mut events = Vec::new();
    for (name, message) in lost.take(MAX_NODES) {
        let node = node_of(name, turn).map(|node| InvolvedObject::node(&node));
        let about = node.into_iter().chain([InvolvedObject::status(namespace)]);
        events.extend(about.map(|about| Event {
            about,
            warning: true,
            reason: reason::LOST_MARK,
            message: message.clone(),
        }));
    }
    events
}

/// Machines whose node is contradicted, in one event for all, and one for each node that shows a sign of them.
fn of_contradictions(turn: &Turn, namespace: &str) -> Vec<Event> {
    let machines = turn.snapshot.machines.iter();
    let found: Vec<(&Arc<str>, &Contradiction)> = machines
        .filter_map(|(name, machine)| Some((name, machine.contradiction.as_ref()?)))
        .collect();
    if found.is_empty() {
        return Vec::new();
    }
    let event = |about, message| Event {
        about,
        warning: true,
        reason: reason::CONTRADICTION,
        message,
    };
    let said = |(name, contradiction): &(&Arc<str>, &Contradiction)| {
        format!("machine {name} is left alone: {}", contradiction.why)
    };
    let all: Vec<String> = found.iter().map(said).collect();
    let mut events = vec![event(InvolvedObject::status(namespace), all.join("; "))];
    let nodes = &turn.snapshot.cluster.nodes;
    let mut told = BTreeSet::new();
    for one in found.iter().take(MAX_NODES) {
        for name in one.1.nodes.iter().take(MAX_NODES) {
            if let Some(node) = nodes.get(name).filter(|_| told.insert(name)) {
                let node = NodeRef {
                    name: name.clone(),
                    uid: node.uid.clone(),
                };
                events.push(event(InvolvedObject::node(&node), said(one)));
            }
        }
    }
    events
}

/// Pods that stay pending. Where they are too many, each namespace is told of its first before another is told
/// of its second: nobody's pods silence another's.
fn of_pending(turn: &Turn) -> Vec<Event> {
    let pods = &turn.snapshot.cluster.pods;
    let mut told: BTreeMap<&str, usize> = BTreeMap::new();
    let mut all: Vec<(usize, &ObjectKey, &Reasons)> = Vec::new();
    for (key, verdict) in &turn.decision.report.pods {
        let (PodVerdict::NoCompatiblePool { why } | PodVerdict::Held { why }) = verdict else {
            continue;
        };
        let before = told.entry(&*key.namespace).or_default();
        if *before < MAX_PODS {
            all.push((*before, key, why));
            *before += 1;
        }
    }
    all.sort_by_key(|(before, key, _)| (*before, *key));
    let events = all.into_iter().filter_map(|(_, key, why)| {
        let pod = pods.get(key)?;
        let reasons: Vec<String> = why
            .iter()
            .map(|(pool, why)| format!("{pool}: {why}"))
            .collect();
        Some(Event {
            about: InvolvedObject::pod(key, &pod.uid),
            warning: false,
            reason: reason::NOT_TRIGGER_SCALE_UP,
            message: format!("pod didn't trigger scale-up: {}", reasons.join("; ")),
        })
    });
    events.take(MAX_PODS).collect()
}

/// What is told when an action begins.
pub fn of_beginning(action: &Action, turn: &Turn, namespace: &str) -> Vec<Event> {
    match &action.kind {
        Kind::Create(spec) => of_creation(action, spec, turn, namespace),
        Kind::Remove { .. } => of_removal(action, turn, namespace),
        Kind::DeletePlaceholder | Kind::DropIntent | Kind::DeleteNode => {
            let what = match &action.kind {
                Kind::DeletePlaceholder => "deleting the placeholder",
                Kind::DropIntent => "dropping the intent",
                _ => "deleting the node",
            };
            let (machine, why) = (&action.target.machine, &action.reason);
            vec![Event {
                about: InvolvedObject::status(namespace),
                warning: true,
                reason: reason::DELETE_UNREGISTERED,
                message: format!("{what} of {machine}: {why}"),
            }]
        }
        Kind::Start => vec![Event {
            about: InvolvedObject::status(namespace),
            warning: true,
            reason: reason::STARTED,
            message: format!(
                "starting the VM of machine {} on host {}: {}",
                action.target.machine, action.target.host, action.reason
            ),
        }],
        Kind::Update => of_update(action),
        Kind::Continue | Kind::Release | Kind::Relabel => Vec::new(),
    }
}

/// On the node, which is there for as long as its VM may be changed.
fn of_update(action: &Action) -> Vec<Event> {
    let node = action.target.node.iter();
    node.map(|node| Event {
        about: InvolvedObject::node(node),
        warning: false,
        reason: reason::UPDATED,
        message: format!(
            "updating VM {} of machine {} in place: {}",
            action.target.vmid, action.target.machine, action.reason
        ),
    })
    .collect()
}

fn of_creation(action: &Action, spec: &CreateSpec, turn: &Turn, namespace: &str) -> Vec<Event> {
    let (target, why) = (&action.target, &action.reason);
    let what = format!(
        "machine {} ({}) of pool {} on host {}",
        target.machine, spec.mark.instance_type, spec.mark.pool, target.host
    );
    let mut events = vec![Event {
        about: InvolvedObject::status(namespace),
        warning: false,
        reason: reason::SCALED_UP_GROUP,
        message: format!("creating {what}: {why}"),
    }];
    let pods = why.pending_pods();
    if !pods.is_empty() {
        let place = why.in_place_of();
        let place = place.map_or_else(String::new, |words| format!(", {words}"));
        let text = format!("pod triggered scale-up: {what}{place}");
        events.extend(of_pods(pods, turn, reason::TRIGGERED_SCALE_UP, &text));
    }
    events
}

fn of_removal(action: &Action, turn: &Turn, namespace: &str) -> Vec<Event> {
    let (target, why) = (&action.target, &action.reason);
    let pods = &action.precondition.pods;
    let empty = pods.is_empty();
    let words = format!(
        "removing machine {} on host {}: {why}",
        target.machine, target.host
    );
    let mut events = vec![Event {
        about: InvolvedObject::status(namespace),
        warning: matches!(why, Reason::Failed { .. }),
        reason: if empty {
            reason::SCALE_DOWN_EMPTY
        } else {
            reason::SCALE_DOWN
        },
        message: words.clone(),
    }];
    events.extend(target.node.iter().map(|node| Event {
        about: InvolvedObject::node(node),
        warning: false,
        reason: reason::SCALE_DOWN,
        message: words.clone(),
    }));
    let text = format!("deleting pod for node scale down: {}", target.machine);
    events.extend(of_pods(pods, turn, reason::SCALE_DOWN, &text));
    events
}

/// An event with this reason and text for each of these pods.
fn of_pods(pods: &[ObjectKey], turn: &Turn, reason: &'static str, text: &str) -> Vec<Event> {
    let known = &turn.snapshot.cluster.pods;
    let events = pods.iter().take(MAX_PODS).filter_map(|key| {
        Some(Event {
            about: InvolvedObject::pod(key, &known.get(key)?.uid),
            warning: false,
            reason,
            message: text.to_owned(),
        })
    });
    events.collect()
}

/// What is told when an action waits for long: on the node, and on the pods that it waits for.
pub fn of_wait(overdue: &Overdue, turn: &Turn) -> Vec<Event> {
    let machine = &overdue.machine;
    let mut events = Vec::new();
    if overdue.wait.hindered {
        let known = turn.snapshot.machines.get(machine);
        let leaves = known.is_some_and(|known| known.busy == Some(Busy::Down));
        let (what, why) = if leaves {
            ("the removal of", reason::SCALE_DOWN_FAILED)
        } else {
            ("the work on", reason::FAILED_TO_SCALE_UP_GROUP)
        };
        events.extend(node_of(machine, turn).map(|node| Event {
            about: InvolvedObject::node(&node),
            warning: true,
            reason: why,
            message: format!("{what} machine {machine} waits: {}", overdue.wait.what),
        }));
    }
    let pods = overdue.pods.iter().take(MAX_PODS);
    events.extend(pods.map(|(pod, (uid, why))| Event {
        about: InvolvedObject::pod(pod, uid),
        warning: true,
        reason: reason::SCALE_DOWN_FAILED,
        message: format!("the pod holds up the removal of node {machine}: {why}"),
    }));
    events
}

/// The node of a machine, if it has one.
fn node_of(machine: &str, turn: &Turn) -> Option<NodeRef> {
    let known = turn.snapshot.machines.get(machine);
    let named = known.and_then(|known| known.node.as_deref());
    let nodes = &turn.snapshot.cluster.nodes;
    let (name, node) = nodes.get_key_value(named.unwrap_or(machine))?;
    Some(NodeRef {
        name: name.clone(),
        uid: node.uid.clone(),
    })
}

/// The pods for which this machine is made, or that wait for it.
fn pods_for<'a>(ended: &'a Ended, turn: &'a Turn) -> Vec<ObjectKey> {
    let machine = &ended.action.target.machine;
    let pods = ended.action.reason.pending_pods().iter();
    let mut pods: BTreeSet<ObjectKey> = pods.cloned().collect();
    let verdicts = turn.decision.report.pods.iter();
    let waits = verdicts.filter(|(_, verdict)| {
        matches!(verdict, PodVerdict::FitsMachine { machine: for_it } | PodVerdict::Triggers { machine: for_it, .. } if for_it == machine)
    });
    pods.extend(waits.map(|(pod, _)| pod.clone()));
    let unbound = |pod: &ObjectKey| turn.decision.report.pods.contains_key(pod);
    pods.into_iter().filter(unbound).collect()
}

/// A machine that does not become a node: told on its node, if there is one, and on the pods that wait for it, before
/// it is taken away with all that could be looked at.
fn of_failed_creation(
    ended: &Ended,
    failure: &Failure,
    namespace: &str,
    turn: &Turn,
) -> Vec<Event> {
    let machine = &ended.action.target.machine;
    let (step, why) = (failure.step.word(), &failure.message);
    let message = format!("machine {machine} failed in step {step}: {why}");
    let event = |about: InvolvedObject| Event {
        about,
        warning: true,
        reason: reason::FAILED_TO_SCALE_UP_GROUP,
        message: message.clone(),
    };
    let mut events = vec![event(InvolvedObject::status(namespace))];
    events.extend(node_of(machine, turn).map(|node| event(InvolvedObject::node(&node))));
    let known = &turn.snapshot.cluster.pods;
    let pods = pods_for(ended, turn).into_iter().take(MAX_PODS);
    events.extend(
        pods.filter_map(|pod| Some(event(InvolvedObject::pod(&pod, &known.get(&pod)?.uid)))),
    );
    events
}

/// What is told when an action ends, by what the last turn saw.
pub fn of_ending(ended: &Ended, namespace: &str, turn: &Turn) -> Vec<Event> {
    let Err(failure) = &ended.result else {
        return Vec::new();
    };
    let machine = &ended.action.target.machine;
    match &ended.action.kind {
        Kind::Create(_) | Kind::Continue => of_failed_creation(ended, failure, namespace, turn),
        Kind::Remove { .. } => {
            let message = format!(
                "removing {machine} failed in step {}: {}",
                failure.step.word(),
                failure.message
            );
            let mut events = vec![Event {
                about: InvolvedObject::status(namespace),
                warning: true,
                reason: reason::SCALE_DOWN_FAILED,
                message: message.clone(),
            }];
            if let Some(node) = &ended.action.target.node {
                events.push(Event {
                    about: InvolvedObject::node(node),
                    warning: true,
                    reason: reason::SCALE_DOWN_FAILED,
                    message,
                });
            }
            events
        }
        Kind::Update => {
            let node = ended.action.target.node.iter();
            node.map(|node| Event {
                about: InvolvedObject::node(node),
                warning: true,
                reason: reason::UPDATED,
                message: format!("updating {machine} in place failed: {}", failure.message),
            })
            .collect()
        }
        _ => Vec::new(),
    }
}

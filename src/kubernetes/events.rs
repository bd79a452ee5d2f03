//! Kubernetes Events, with cluster-autoscaler's reasons, so that `kubectl describe pod` says why.
//!
//! Core v1 events, as cluster-autoscaler writes them. They are for people: never waited for, never
//! retried for long, and bounded in number. An event that repeats is counted in its first object;
//! an object gets a burst and then a trickle (client-go's `EventSourceObjectSpamFilter`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;
use tokio::sync::mpsc;

use super::client::{KubeClient, KubeRequest, encode};
use crate::model::action::NodeRef;
use crate::model::cluster::ObjectKey;
use crate::model::foreign;
use crate::model::time::{Span, Time};

/// Events that wait to be sent at most; more are dropped and counted.
const QUEUE: usize = 256;
/// Different events and objects that are remembered; the longest unused are forgotten.
const REMEMBERED: usize = 1_024;
/// Events about one object that may come at once …
const BURST: i64 = 25;
/// … and then one per this span.
const REFILL: Span = Span::minutes(5);
/// An event that repeats is written at most this often; how often it came in between is in its count.
const REPEAT: Span = Span::minutes(1);
/// Longest message that the API server takes (`pkg/apis/core/validation/events.go`).
const MAX_MESSAGE: usize = 1_024;
/// Event names are DNS subdomains of at most 253 characters; the suffix needs its room.
const MAX_OBJECT_NAME: usize = 220;
const COMPONENT: &str = "pve-autoscaler";

/// Reasons, spelled as cluster-autoscaler spells them where it has them.
pub mod reason {
    /// A machine is made for this pod.
    pub const TRIGGERED_SCALE_UP: &str = "TriggeredScaleUp";
    /// No node would help this pod, or none may be made.
    pub const NOT_TRIGGER_SCALE_UP: &str = "NotTriggerScaleUp";
    /// A pool grows, or did.
    pub const SCALED_UP_GROUP: &str = "ScaledUpGroup";
    /// A machine did not become a node.
    pub const FAILED_TO_SCALE_UP_GROUP: &str = "FailedToScaleUpGroup";
    /// The node is being removed, or this pod leaves with it.
    pub const SCALE_DOWN: &str = "ScaleDown";
    /// The removal failed or was given up.
    pub const SCALE_DOWN_FAILED: &str = "ScaleDownFailed";
    /// An empty node is being removed.
    pub const SCALE_DOWN_EMPTY: &str = "ScaleDownEmpty";
    /// The VM of a node was off and is started.
    pub const STARTED: &str = "StartedMachine";
    /// The VM of a node is brought in line with the file while it runs.
    pub const UPDATED: &str = "UpdatedInPlace";
    /// A Node object whose VM is gone was deleted.
    pub const DELETE_UNREGISTERED: &str = "DeleteUnregistered";
    /// Which node is a machine's is contradicted, and both are left alone. cluster-autoscaler has no word for it.
    pub const CONTRADICTION: &str = "IdentityContradiction";
    /// Somebody took the mark out of a machine's description, and the machine is left alone. Neither has it for this.
    pub const LOST_MARK: &str = "MarkLost";
    /// A kubelet asks for a serving certificate that is not of its machine. cluster-autoscaler approves none.
    pub const CERTIFICATE_LEFT_ALONE: &str = "ServingCertificateLeftAlone";
}

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InvolvedObject {
    kind: &'static str,
    namespace: Arc<str>,
    name: Arc<str>,
    uid: Arc<str>,
}

impl InvolvedObject {
    /// A pod.
    pub fn pod(key: &ObjectKey, uid: &Arc<str>) -> InvolvedObject {
        InvolvedObject {
            kind: "Pod",
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            uid: uid.clone(),
        }
    }

    /// A node; its events live in the namespace `default`.
    pub fn node(node: &NodeRef) -> InvolvedObject {
        InvolvedObject {
            kind: "Node",
            namespace: "".into(),
            name: node.name.clone(),
            uid: node.uid.clone(),
        }
    }

    /// The autoscaler as a whole: its status ConfigMap, as with cluster-autoscaler.
    pub fn status(namespace: &str) -> InvolvedObject {
        InvolvedObject {
            kind: "ConfigMap",
            namespace: namespace.into(),
            name: super::status::STATUS_NAME.into(),
            uid: "".into(),
        }
    }

    fn event_namespace(&self) -> &str {
        if self.namespace.is_empty() {
            "default"
        } else {
            &self.namespace
        }
    }
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    /// The object.
    pub about: InvolvedObject,
    /// One of [`reason`].
    pub reason: &'static str,
    /// `Warning` instead of `Normal`.
    pub warning: bool,
    /// One sentence.
    pub message: String,
}

/// Takes events and returns at once.
#[derive(Clone, Debug)]
pub struct EventRecorder {
    sender: mpsc::Sender<Event>,
    dropped: Arc<AtomicU64>,
}

impl EventRecorder {
    /// Hands an event over; when too many wait it is dropped.
    pub fn record(&self, event: Event) {
        if self.sender.try_send(event).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Events that were dropped because too many waited.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// A recorder and the future that sends what it takes; it ends when every recorder is gone and all
/// that waited is sent. `instance` names this host.
pub fn recorder(
    client: KubeClient,
    instance: String,
) -> (EventRecorder, impl Future<Output = ()> + Send) {
    let (sender, mut receiver) = mpsc::channel(QUEUE);
    let recorder = EventRecorder {
        sender,
        dropped: Arc::default(),
    };
    let run = async move {
        let mut correlator = Correlator::default();
        while let Some(event) = receiver.recv().await {
            let now = client.clock().now();
            if let Some(send) = correlator.take(&event, now) {
                deliver(&client, &instance, &event, &send, &mut correlator, now).await;
            }
        }
    };
    (recorder, run)
}

/// How an event is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
struct EventDelivery {
    /// The Event object to count it in; `None` for a new one.
    name: Option<String>,
    count: i64,
    first: Time,
}

/// Folds repetitions and holds back floods. Pure.
#[derive(Debug, Default)]
struct Correlator {
    known: BTreeMap<Event, SentEvent>,
    budgets: BTreeMap<InvolvedObject, EventBudget>,
    /// Makes names unique within one millisecond.
    serial: u64,
}

#[derive(Debug)]
struct SentEvent {
    name: Option<String>,
    count: i64,
    first: Time,
    sent: Option<Time>,
    last: Time,
}

#[derive(Debug)]
struct EventBudget {
    left: i64,
    filled: Time,
}

impl Correlator {
    fn take(&mut self, event: &Event, now: Time) -> Option<EventDelivery> {
        self.forget();
        let known = self.known.entry(event.clone()).or_insert(SentEvent {
            name: None,
            count: 0,
            first: now,
            sent: None,
            last: now,
        });
        known.count += 1;
        known.last = now;
        if known.sent.is_some_and(|sent| now.since(sent) < REPEAT) {
            return None;
        }
        let budget = self
            .budgets
            .entry(event.about.clone())
            .or_insert(EventBudget {
                left: BURST,
                filled: now,
            });
        let refills = now.since(budget.filled).0 / REFILL.0;
        budget.left = budget.left.saturating_add(refills).min(BURST);
        budget.filled = budget.filled + Span(refills * REFILL.0);
        if budget.left == 0 {
            return None;
        }
        budget.left -= 1;
        known.sent = Some(now);
        Some(EventDelivery {
            name: known.name.clone(),
            count: known.count,
            first: known.first,
        })
    }

    fn forget(&mut self) {
        if self.known.len() >= REMEMBERED {
            let oldest = self.known.iter().min_by_key(|(_, known)| known.last);
            if let Some(oldest) = oldest.map(|(event, _)| event.clone()) {
                self.known.remove(&oldest);
            }
        }
        if self.budgets.len() >= REMEMBERED {
            let oldest = self.budgets.iter().min_by_key(|(_, budget)| budget.filled);
            if let Some(oldest) = oldest.map(|(about, _)| about.clone()) {
                self.budgets.remove(&oldest);
            }
        }
    }

    fn named(&mut self, event: &Event, name: Option<String>) {
        if let Some(known) = self.known.get_mut(event) {
            known.name = name;
        }
    }

    fn new_name(&mut self, event: &Event, now: Time) -> String {
        self.serial += 1;
        let object: String = event.about.name.chars().take(MAX_OBJECT_NAME).collect();
        format!("{object}.{:x}{:04x}", now.0, self.serial % 0x1_0000)
    }
}

async fn deliver(
    client: &KubeClient,
    instance: &str,
    event: &Event,
    send: &EventDelivery,
    correlator: &mut Correlator,
    now: Time,
) {
    if let Some(name) = &send.name {
        match client.call(count_up(event, name, send.count, now)).await {
            Ok(_) => return,
            // the API server keeps events for an hour
            Err(error) if error.not_found() => correlator.named(event, None),
            Err(error) => {
                tracing::debug!(%error, "event not sent");
                return;
            }
        }
    }
    let name = correlator.new_name(event, now);
    match client.call(create(event, &name, instance, send, now)).await {
        Ok(_) => correlator.named(event, Some(name)),
        Err(error) => tracing::debug!(%error, "event not sent"),
    }
}

fn path(event: &Event) -> String {
    let namespace = encode(event.about.event_namespace());
    format!("/api/v1/namespaces/{namespace}/events")
}

/// Event times are whole seconds.
fn seconds(time: Time) -> String {
    Time(time.0.div_euclid(1_000) * 1_000).to_string()
}

fn count_up(event: &Event, name: &str, count: i64, now: Time) -> KubeRequest {
    let path = format!("{}/{}", path(event), encode(name));
    KubeRequest::new("patch", "events", name, path)
        .merge_patch(json!({ "count": count, "lastTimestamp": seconds(now) }))
        .expect_refusals(&[404])
}

fn create(
    event: &Event,
    name: &str,
    instance: &str,
    send: &EventDelivery,
    now: Time,
) -> KubeRequest {
    let InvolvedObject {
        kind,
        namespace,
        name: object,
        uid,
    } = &event.about;
    let mut message = foreign::line(&event.message, MAX_MESSAGE);
    if message.len() > MAX_MESSAGE {
        message = foreign::line(&message, MAX_MESSAGE / 4);
    }
    let mut involved = json!({ "kind": kind, "apiVersion": "v1", "name": &**object });
    if !namespace.is_empty() {
        involved["namespace"] = json!(&**namespace);
    }
    if !uid.is_empty() {
        involved["uid"] = json!(&**uid);
    }
    KubeRequest::new("create", "events", name, path(event)).json(json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "name": name, "namespace": event.about.event_namespace() },
        "involvedObject": involved,
        "reason": event.reason,
        "message": message,
        "type": if event.warning { "Warning" } else { "Normal" },
        "source": { "component": COMPONENT, "host": instance },
        "reportingComponent": COMPONENT,
        "reportingInstance": instance,
        "count": send.count,
        "firstTimestamp": seconds(send.first),
        "lastTimestamp": seconds(now),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(pod: &str, message: &str) -> Event {
        Event {
            about: InvolvedObject::pod(&ObjectKey::new("default", pod), &"uid-1".into()),
            reason: reason::NOT_TRIGGER_SCALE_UP,
            warning: false,
            message: message.into(),
        }
    }

    #[test]
    fn a_repeated_event_is_counted_in_its_first_object() {
        let mut correlator = Correlator::default();
        let start = Time(1_000_000);
        let first = correlator.take(&event("a", "x"), start).expect("sent");
        assert_eq!((first.name, first.count), (None, 1));
        correlator.named(&event("a", "x"), Some("a.1".into()));
        for second in 1..60 {
            assert_eq!(
                correlator.take(&event("a", "x"), start + Span::seconds(second)),
                None
            );
        }
        let again = correlator
            .take(&event("a", "x"), start + Span::seconds(60))
            .expect("sent again");
        assert_eq!((again.name.as_deref(), again.count), (Some("a.1"), 61));
        assert_eq!(again.first, start);
        let other = correlator
            .take(&event("a", "y"), start)
            .expect("another message");
        assert_eq!((other.name, other.count), (None, 1));
    }

    #[test]
    fn one_object_cannot_flood_and_another_is_not_held_back() {
        let mut correlator = Correlator::default();
        let start = Time(0);
        let sent = (0..1_000)
            .filter(|n| {
                correlator
                    .take(&event("noisy", &n.to_string()), start)
                    .is_some()
            })
            .count();
        assert_eq!(i64::try_from(sent), Ok(BURST));
        assert!(correlator.take(&event("quiet", "x"), start).is_some());
        let later = start + Span::minutes(5);
        assert!(correlator.take(&event("noisy", "later"), later).is_some());
        assert!(
            correlator
                .take(&event("noisy", "too soon"), later)
                .is_none()
        );
        assert!(correlator.known.len() <= REMEMBERED);
    }

    #[test]
    fn memory_is_bounded() {
        let mut correlator = Correlator::default();
        for number in 0..5_000 {
            correlator.take(&event(&format!("pod-{number}"), "x"), Time(number));
        }
        assert!(correlator.known.len() <= REMEMBERED);
        assert!(correlator.budgets.len() <= REMEMBERED);
    }

    #[test]
    fn long_names_and_messages_stay_within_the_servers_limits() {
        let mut correlator = Correlator::default();
        let long = event(&"p".repeat(253), &"ä".repeat(2_000));
        let name = correlator.new_name(&long, Time(1_795_000_000_000));
        assert!(name.len() <= 253, "{}", name.len());
        let send = EventDelivery {
            name: None,
            count: 1,
            first: Time(0),
        };
        let text = format!("{:?}", create(&long, &name, "host", &send, Time(0)));
        assert!(text.len() < 4_000);
    }
}

//! Pods that have room on a node and still wait are brought back into kube-scheduler's queue.
//!
//! kube-scheduler tries a pod that it refused again when something happens that may help it, and else after five
//! minutes (`podMaxInUnschedulablePodsDuration`). Not everything that helps is such an event: room that a node keeps for
//! a nominated pod becomes free without one when that pod is bound elsewhere (kubernetes/kubernetes#134859). The end of
//! a nomination is an event, for every waiting pod of no higher priority. So one of those that wait is nominated for the
//! node that has room for it, and the nomination is taken back at once. See `docs/decisions/nominated-nodes.md`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::model::cluster::{Cluster, Node, ObjectKey, Pod, ReadyStatus};
use crate::model::policy::LEAVING_TAINT;
use crate::model::report::PodVerdict;
use crate::model::scheduling::Effect;

/// A pod has had room on a node for so long before it is brought back: kube-scheduler's own backoff ends after ten
/// seconds.
const FIRST: Duration = Duration::from_secs(20);
/// How often a pod is brought back, each time after twice as long: then kube-scheduler has tried it by itself, and
/// what holds the pod is something that we do not see.
const TIMES: u32 = 3;

/// Which pods have room and wait.
#[derive(Debug, Default)]
pub(super) struct Requeue {
    /// By the pod's UID.
    waits: BTreeMap<Arc<str>, RequeueWait>,
}

/// A pod that has room on a node.
#[derive(Debug)]
struct RequeueWait {
    since: Instant,
    /// How often it was brought back.
    times: u32,
    priority: i32,
}

impl RequeueWait {
    fn waited(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    /// Whether it is to be brought back: after one, three and seven times [`FIRST`].
    fn is_due(&self, now: Instant) -> bool {
        self.times < TIMES && self.waited(now) >= FIRST * ((2 << self.times) - 1)
    }
}

/// A pod that is to be brought back, and the node that has room for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Back {
    pub(super) pod: ObjectKey,
    pub(super) uid: Arc<str>,
    pub(super) node: Arc<str>,
    /// How long it has had room.
    pub(super) waited: Duration,
}

impl Requeue {
    /// The pod that is to be brought back now, as this view and what was decided on it show: of those whose time
    /// has come the one of the highest priority, since the others come back with it.
    pub(super) fn due(
        &mut self,
        cluster: &Cluster,
        verdicts: &BTreeMap<ObjectKey, PodVerdict>,
        now: Instant,
    ) -> Option<Back> {
        let mut waits = BTreeMap::new();
        let mut due: Option<(i32, Back)> = None;
        for (key, verdict) in verdicts {
            let Some((pod, node)) = has_room(cluster, key, verdict) else {
                continue;
            };
            let priority = pod.shape.priority;
            let wait = self.waits.remove(&pod.uid).unwrap_or(RequeueWait {
                since: now,
                times: 0,
                priority,
            });
            if wait.is_due(now) && due.as_ref().is_none_or(|(highest, _)| priority > *highest) {
                let back = Back {
                    pod: key.clone(),
                    uid: pod.uid.clone(),
                    node: node.clone(),
                    waited: wait.waited(now),
                };
                due = Some((priority, back));
            }
            waits.insert(pod.uid.clone(), wait);
        }
        self.waits = waits;
        let (priority, back) = due?;
        // They come back with it.
        let all = self.waits.values_mut();
        for wait in all.filter(|wait| wait.priority <= priority && wait.waited(now) >= FIRST) {
            wait.times += 1;
        }
        Some(back)
    }
}

/// A pod that kube-scheduler refused although a node that takes it has room, and the node.
fn has_room<'v>(
    cluster: &'v Cluster,
    key: &ObjectKey,
    verdict: &'v PodVerdict,
) -> Option<(&'v Pod, &'v Arc<str>)> {
    let PodVerdict::FitsNode { node, preempts } = verdict else {
        return None;
    };
    let pod = cluster.pods.get(key)?;
    let refused = pod.unschedulable_since.is_some() && super::nominations::may_be_nominated(pod);
    let of = cluster.nodes.get(node)?;
    (refused && preempts.is_empty() && takes(of, pod)).then_some((pod, node))
}

/// Whether a node takes a pod now, as far as taints go.
fn takes(node: &Node, pod: &Pod) -> bool {
    let mut taints = node.taints.iter();
    node.ready.status == ReadyStatus::True
        && !node.unschedulable
        && taints.all(|taint| {
            let mut tolerations = pod.shape.tolerations.iter();
            *taint.key != *LEAVING_TAINT
                && (taint.effect == Effect::PreferNoSchedule
                    || tolerations.any(|toleration| toleration.tolerates(taint)))
        })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::controller::nominations::tests::{self as nominations, NODE};

    /// A pending pod that kube-scheduler refused, with other fields laid over it.
    fn pod(uid: &str, other: &Value) -> Pod {
        let mut fields = json!({"unschedulable_since": "2026-01-01T00:00:01Z"});
        for (key, value) in other.as_object().into_iter().flatten() {
            fields[key] = value.clone();
        }
        nominations::pod(uid, &fields)
    }

    fn cluster(pods: Vec<Pod>, node: &Value) -> Cluster {
        nominations::cluster(pods, Some(node))
    }

    /// All pods fit on the node.
    fn verdicts(cluster: &Cluster) -> BTreeMap<ObjectKey, PodVerdict> {
        let fits = || PodVerdict::FitsNode {
            node: NODE.into(),
            preempts: BTreeMap::new(),
        };
        cluster
            .pods
            .keys()
            .map(|key| (key.clone(), fits()))
            .collect()
    }

    /// Asked every ten seconds for so long: when which pod is brought back.
    fn over(seconds: u64, view: &Cluster) -> Vec<(u64, Arc<str>)> {
        let (mut requeue, begin) = (Requeue::default(), Instant::now());
        let fits = verdicts(view);
        let times = (0..seconds).step_by(10);
        let found = times.filter_map(|at| {
            let back = requeue.due(view, &fits, begin + Duration::from_secs(at))?;
            assert_eq!((&*back.node, back.waited.as_secs()), (NODE, at));
            Some((at, back.uid))
        });
        found.collect()
    }

    #[test]
    fn it_is_brought_back_three_times_after_twice_as_long_each() {
        let view = cluster(vec![pod("a", &json!({}))], &json!({}));
        let times: Vec<u64> = over(1000, &view).into_iter().map(|(at, _)| at).collect();
        assert_eq!(times, [20, 60, 140]);
    }

    #[test]
    fn the_highest_priority_brings_the_others_with_it() {
        let high = pod("b", &json!({"shape": {"priority": 10}}));
        let view = cluster(
            vec![pod("a", &json!({})), high, pod("c", &json!({}))],
            &json!({}),
        );
        let found = over(100, &view);
        assert_eq!(found, [(20, "b".into()), (60, "b".into())]);
    }

    #[test]
    fn who_has_room_anew_waits_anew() {
        let view = cluster(vec![pod("a", &json!({}))], &json!({}));
        let (mut requeue, begin) = (Requeue::default(), Instant::now());
        let fits = verdicts(&view);
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(requeue.due(&view, &fits, at(0)), None);
        assert_eq!(requeue.due(&view, &BTreeMap::new(), at(15)), None);
        assert_eq!(requeue.due(&view, &fits, at(25)), None);
        assert_eq!(requeue.due(&view, &fits, at(44)), None);
        assert!(requeue.due(&view, &fits, at(45)).is_some());
    }

    #[test]
    fn only_those_are_that_kube_scheduler_refused_and_a_node_takes() {
        let others = [
            json!({"unschedulable_since": null}),
            json!({"node": NODE}),
            json!({"nominated": NODE}),
            json!({"deletion": "2026-01-02T00:00:00Z"}),
            json!({"gated": true}),
            json!({"shape": {"scheduler": "volcano"}}),
            json!({"shape": {"never_preempts": true}}),
        ];
        for other in others {
            let view = cluster(vec![pod("a", &other)], &json!({}));
            assert_eq!(over(300, &view), [], "{other}");
        }
        let taint = |effect| json!({"taints": [{"key": "startup", "value": "", "effect": effect}]});
        let nodes = [
            json!({"unschedulable": true}),
            json!({"ready": {"status": "False", "since": "2026-01-01T00:00:00Z"}}),
            taint("NoSchedule"),
            taint("NoExecute"),
        ];
        for node in nodes {
            let view = cluster(vec![pod("a", &json!({}))], &node);
            assert_eq!(over(300, &view), [], "{node}");
        }
        let view = cluster(vec![pod("a", &json!({}))], &taint("PreferNoSchedule"));
        assert_eq!(over(30, &view).len(), 1);
        let tolerates = json!({"shape": {"tolerations": [{"key": "startup", "exists": true}]}});
        let view = cluster(vec![pod("a", &tolerates)], &taint("NoSchedule"));
        assert_eq!(over(30, &view).len(), 1);
    }
}

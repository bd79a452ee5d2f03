//! What a drain does with each pod of a node, and in which order. Pure: pods in, decision out.
//!
//! Tiers follow Karpenter's terminator and the kubelet's graceful shutdown: pods of the workload
//! before those of the system, those that something recreates elsewhere before DaemonSet pods.

use crate::model::cluster::{ObjectKey, Pod};
use crate::model::guard::{self, DO_NOT_DISRUPT, Guard, SAFE_TO_EVICT, is_daemon};
use crate::model::time::{Span, Time};

/// Priority of `system-cluster-critical`; at or above it a pod is critical.
const CRITICAL: i32 = 2_000_000_000;
/// A pod that should have ended this long ago does not hold a drain up (cluster-autoscaler's
/// `PodLongTerminatingExtraThreshold`).
const LONG_TERMINATING: Span = Span::seconds(30);

/// What becomes of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DrainAction {
    /// It ends with the node or does not matter: mirror pods, ended ones, those that tolerate the leaving.
    Left(&'static str),
    /// It is evicted in this tier, 0 first; a tier waits for those before it.
    Evicted {
        /// Tier.
        tier: u8,
        /// Failing to evict it does not fail the drain (DaemonSet pods).
        best_effort: bool,
        /// It is being deleted already and only waited for.
        going: bool,
    },
    /// It must not be evicted: the removal is given up.
    Blocks(String),
}

/// The last tier.
pub const LAST_TIER: u8 = 3;

/// What becomes of `pod` when its node is drained at `now`. `daemons`: pods of DaemonSets are evicted unless they
/// are annotated otherwise.
pub fn fate(pod: &Pod, now: Time, daemons: bool) -> DrainAction {
    let shape = &pod.shape;
    if pod.mirror {
        return DrainAction::Left("a static pod ends with its node");
    }
    if pod.phase.terminal() {
        return DrainAction::Left("it has ended");
    }
    let daemon = is_daemon(shape);
    if guard::tolerates_leaving(shape) {
        return DrainAction::Left("it tolerates the leaving taint");
    }
    if daemon && !guard::evicts_daemon(shape).unwrap_or(daemons) {
        return DrainAction::Left("pods of its DaemonSet end with their nodes");
    }
    let tier = 2 * u8::from(shape.priority >= CRITICAL) + u8::from(daemon);
    if let Some(deletion) = pod.deletion {
        return if now.since(deletion) > LONG_TERMINATING {
            DrainAction::Left("it should have ended long ago")
        } else {
            DrainAction::Evicted {
                tier,
                best_effort: daemon,
                going: true,
            }
        };
    }
    if !daemon {
        let annotation = |key: &str| shape.annotations.get(key);
        let refusing = annotation(SAFE_TO_EVICT).filter(|value| ***value != *"true");
        let guarding = annotation(DO_NOT_DISRUPT).filter(|_| Guard::of_pod(pod, now).is_some());
        for (key, value) in [(SAFE_TO_EVICT, refusing), (DO_NOT_DISRUPT, guarding)] {
            if let Some(value) = value {
                return DrainAction::Blocks(format!("its annotation {key} is {value}"));
            }
        }
    }
    DrainAction::Evicted {
        tier,
        best_effort: daemon,
        going: false,
    }
}

/// The pod that makes a planned removal void: one that came since the plan was made and would have
/// to move, or one that must not be evicted. `planned` are the pods that the plan expects.
pub fn obstacle<'a>(
    pods: &'a [(ObjectKey, Pod)],
    planned: &[ObjectKey],
    now: Time,
) -> Option<(&'a ObjectKey, String)> {
    pods.iter()
        .find_map(|(key, pod)| match fate(pod, now, true) {
            DrainAction::Blocks(why) => Some((key, why)),
            DrainAction::Evicted {
                best_effort: false,
                going: false,
                ..
            } if !planned.contains(key) => {
                Some((key, "it came after the removal was planned".to_owned()))
            }
            _ => None,
        })
}

/// Grace period for an eviction: the pod's own, at most `limit`.
pub fn grace_seconds(pod: &Pod, limit: Span) -> i64 {
    pod.shape.grace_seconds.clamp(0, (limit.0 / 1000).max(0))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::cluster::Phase;
    use crate::model::guard::{DAEMON_EVICTION, DAEMONSET_POD};
    use crate::model::policy::LEAVING_TAINT;
    use crate::model::scheduling::{Effect, Owner, PodShape, PodTraits, Toleration};

    fn pod(change: impl FnOnce(&mut PodShape)) -> Pod {
        let mut shape = PodShape::from(PodTraits {
            grace_seconds: 30,
            ..PodTraits::default()
        });
        change(&mut shape);
        Pod {
            uid: "u".into(),
            shape: Arc::new(shape),
            node: Some("n".into()),
            nominated: None,
            phase: Phase::Running,
            created: Time(0),
            arrival: 0,
            started: None,
            deletion: None,
            deletion_grace_seconds: None,
            unschedulable_since: None,
            gated: false,
            mirror: false,
            ready: true,
        }
    }

    fn owned(kind: &str) -> impl FnOnce(&mut PodShape) + '_ {
        move |shape| {
            shape.owner = Some(Arc::new(Owner {
                kind: kind.into(),
                name: "x".into(),
                uid: "o".into(),
            }));
        }
    }

    fn tier(pod: &Pod) -> Option<u8> {
        match fate(pod, Time(0), true) {
            DrainAction::Evicted { tier, .. } => Some(tier),
            _ => None,
        }
    }

    #[test]
    fn tm_04_workload_before_daemons_before_critical_ones() {
        let critical = |kind: &'static str| {
            pod(move |shape| {
                owned(kind)(shape);
                shape.priority = CRITICAL;
            })
        };
        let tiers: Vec<_> = [
            pod(owned("ReplicaSet")),
            pod(owned("DaemonSet")),
            critical("ReplicaSet"),
            critical("DaemonSet"),
        ]
        .iter()
        .map(tier)
        .collect();
        assert_eq!(tiers, [Some(0), Some(1), Some(2), Some(LAST_TIER)]);
    }

    #[test]
    fn tm_01_tm_02_who_tolerates_the_leaving_taint_stays() {
        let tolerating = |kind: &str, toleration: Toleration| {
            pod(|shape| {
                owned(kind)(shape);
                shape.tolerations = vec![toleration];
            })
        };
        let by_name = |key: &str, exists: bool, effect| Toleration {
            key: Some(key.into()),
            exists,
            effect,
            ..Toleration::default()
        };
        for kind in ["ReplicaSet", "DaemonSet"] {
            let tier_of = |toleration| tier(&tolerating(kind, toleration));
            let evicted = Some(u8::from(kind == "DaemonSet"));
            for exists in [false, true] {
                let ours = |effect| by_name(LEAVING_TAINT, exists, effect);
                assert_eq!(tier_of(ours(None)), None);
                assert_eq!(tier_of(ours(Some(Effect::NoSchedule))), None);
                assert_eq!(tier_of(ours(Some(Effect::NoExecute))), evicted);
            }
            let cordon = by_name("node.kubernetes.io/unschedulable", true, None);
            assert_eq!(tier_of(cordon), evicted);
        }
        let anything = Toleration {
            exists: true,
            ..Toleration::default()
        };
        assert_eq!(tier(&tolerating("ReplicaSet", anything.clone())), Some(0));
        assert_eq!(tier(&tolerating("DaemonSet", anything)), None);
    }

    #[test]
    fn tm_20_a_daemon_sets_pods_follow_their_annotation_before_the_configuration() {
        for (word, daemons, evicted) in [
            (None, true, true),
            (None, false, false),
            (Some("true"), false, true),
            (Some("false"), true, false),
            (Some("yes"), true, false),
        ] {
            let daemon = pod(|shape| {
                owned("DaemonSet")(shape);
                let word = word.map(|word| (DAEMON_EVICTION.into(), word.into()));
                shape.annotations.extend(word);
            });
            let is = matches!(fate(&daemon, Time(0), daemons), DrainAction::Evicted { .. });
            assert_eq!(is, evicted, "{word:?} {daemons}");
            // It means nothing on other pods.
            let other = pod(|shape| {
                owned("ReplicaSet")(shape);
                shape
                    .annotations
                    .insert(DAEMON_EVICTION.into(), "false".into());
            });
            assert_eq!(
                fate(&other, Time(0), daemons),
                fate(&pod(owned("ReplicaSet")), Time(0), true)
            );
        }
    }

    #[test]
    fn tm_05_tm_07_what_is_left_alone() {
        let mirror = Pod {
            mirror: true,
            ..pod(|_| ())
        };
        assert_eq!(tier(&mirror), None);
        let stuck = Pod {
            deletion: Some(Time(0)),
            ..pod(|_| ())
        };
        assert!(matches!(
            fate(&stuck, Time(31_000), true),
            DrainAction::Left(_)
        ));
        assert!(matches!(
            fate(&stuck, Time(30_000), true),
            DrainAction::Evicted { going: true, .. }
        ));
    }

    #[test]
    fn nx_15_a_pod_that_came_in_between_voids_the_plan() {
        let key = ObjectKey::new("default", "late");
        let pods = [(key.clone(), pod(owned("ReplicaSet")))];
        assert!(obstacle(&pods, &[], Time(0)).is_some());
        assert!(obstacle(&pods, std::slice::from_ref(&key), Time(0)).is_none());
        let daemon = [(key.clone(), pod(owned("DaemonSet")))];
        assert!(obstacle(&daemon, &[], Time(0)).is_none());
        // The plan leaves those out, too, that say they are like a DaemonSet's.
        for (word, is) in [("true", true), ("false", false)] {
            let alike = pod(|shape| {
                owned("CloneSet")(shape);
                let says = (DAEMONSET_POD.into(), word.into());
                shape.annotations.extend([says]);
            });
            let found = obstacle(&[(key.clone(), alike)], &[], Time(0)).is_none();
            assert_eq!(found, is, "{word}");
        }
    }

    #[test]
    fn nx_15_a_pod_that_was_annotated_in_between_voids_the_plan_too() {
        let key = ObjectKey::new("default", "web");
        let minute = Time(60_000);
        for (annotation, word, at, held) in [
            (DO_NOT_DISRUPT, "true", minute, true),
            (DO_NOT_DISRUPT, "90s", minute, true),
            (DO_NOT_DISRUPT, "30s", minute, false),
            (DO_NOT_DISRUPT, "1m", minute, false),
            (DO_NOT_DISRUPT, "please", minute, false),
            (SAFE_TO_EVICT, "false", minute, true),
            (SAFE_TO_EVICT, "no", minute, true),
            (SAFE_TO_EVICT, "", minute, true),
            (SAFE_TO_EVICT, "true", minute, false),
        ] {
            let pod = pod(|shape| {
                owned("ReplicaSet")(shape);
                shape.annotations.insert(annotation.into(), word.into());
            });
            let pods = [(key.clone(), pod)];
            let found = obstacle(&pods, std::slice::from_ref(&key), at);
            let said = found.map(|(_, why)| why);
            let expected = format!("its annotation {annotation} is {word}");
            assert_eq!(said, held.then_some(expected), "{annotation}={word}");
        }
        // The pod's time begins with its start.
        let mut late = pod(|shape| {
            shape
                .annotations
                .insert(DO_NOT_DISRUPT.into(), "30s".into());
        });
        late.started = Some(Time(45_000));
        assert!(matches!(fate(&late, minute, true), DrainAction::Blocks(_)));
    }

    #[test]
    fn grace_is_the_pods_own_within_the_limit() {
        let long = pod(|shape| shape.grace_seconds = 9_999);
        assert_eq!(grace_seconds(&long, Span::minutes(10)), 600);
    }
}

//! What people are told as Kubernetes Events: which news a turn holds, under cluster-autoscaler's
//! reasons. Pure but for what was told already.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::agent::executor::{self, Ended};
use crate::agent::turn::Turn;
use crate::model::action::{Action, Kind, Reason};
use crate::model::cluster::PodKey;
use crate::model::region::Step;
use crate::model::report::PodVerdict;
use crate::model::time::{Span, Time};

/// The same news about the same object is told again after this long (Karpenter: 2 min for most;
/// cluster-autoscaler: each loop). Pods that stay pending should not fill the event list.
const AGAIN: Span = Span::minutes(10);
/// Events about pods from one turn; the rest is in the report.
const MAX_PODS: usize = 100;

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    /// A pod.
    Pod(PodKey, Arc<str>),
    /// A node.
    Node(Arc<str>, Arc<str>),
    /// The autoscaler itself: its status ConfigMap.
    Status,
}

/// One piece of news.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// What it is about.
    pub about: About,
    /// `Warning` instead of `Normal`.
    pub warning: bool,
    /// Cluster-autoscaler's reason.
    pub reason: &'static str,
    /// In words.
    pub message: String,
}

/// What was told already.
#[derive(Debug, Default)]
pub struct Told {
    when: BTreeMap<(About, &'static str), (Time, String)>,
}

impl Told {
    /// The news that are new: not told with the same words lately.
    pub fn fresh(&mut self, news: Vec<News>, now: Time) -> Vec<News> {
        self.when.retain(|_, (at, _)| now.since(*at) < AGAIN);
        news.into_iter()
            .filter(|news| {
                let key = (news.about.clone(), news.reason);
                if self
                    .when
                    .get(&key)
                    .is_some_and(|(_, said)| *said == news.message)
                {
                    return false;
                }
                self.when.insert(key, (now, news.message.clone()));
                true
            })
            .collect()
    }
}

/// What a decision says about pods that stay pending.
pub fn of_decision(turn: &Turn) -> Vec<News> {
    let pods = &turn.snapshot.cluster.pods;
    let verdicts = turn.decision.report.pods.iter();
    let news = verdicts.filter_map(|(key, verdict)| {
        let (PodVerdict::Hopeless { why } | PodVerdict::Held { why }) = verdict else {
            return None;
        };
        let pod = pods.get(key)?;
        let reasons: Vec<String> = why
            .iter()
            .map(|(pool, why)| format!("{pool}: {why}"))
            .collect();
        Some(News {
            about: About::Pod(key.clone(), pod.uid.clone()),
            warning: false,
            reason: "NotTriggerScaleUp",
            message: format!("pod didn't trigger scale-up: {}", reasons.join("; ")),
        })
    });
    news.take(MAX_PODS).collect()
}

/// What is told when an action begins.
pub fn of_beginning(action: &Action, turn: &Turn) -> Vec<News> {
    let target = &action.target;
    match (&action.kind, &action.reason) {
        (Kind::Create(birth), reason) => {
            let what = format!(
                "machine {} ({}) of pool {} on host {}",
                target.machine, birth.mark.instance_type, birth.mark.pool, target.host
            );
            let mut news = vec![News {
                about: About::Status,
                warning: false,
                reason: "ScaledUpGroup",
                message: format!("creating {what}: {reason}"),
            }];
            if let Reason::PendingPods { pods } = reason {
                news.extend(pods.iter().take(MAX_PODS).filter_map(|key| {
                    let pod = turn.snapshot.cluster.pods.get(key)?;
                    Some(News {
                        about: About::Pod(key.clone(), pod.uid.clone()),
                        warning: false,
                        reason: "TriggeredScaleUp",
                        message: format!("pod triggered scale-up: {what}"),
                    })
                }));
            }
            news
        }
        (Kind::Remove { .. }, reason) => {
            let words = format!(
                "removing machine {} on host {}: {reason}",
                target.machine, target.host
            );
            let mut news = vec![News {
                about: About::Status,
                warning: matches!(reason, Reason::Failed { .. }),
                reason: if action.precondition.pods.is_empty() {
                    "ScaleDownEmpty"
                } else {
                    "ScaleDown"
                },
                message: words.clone(),
            }];
            if let Some(node) = &target.node {
                news.push(News {
                    about: About::Node(node.name.clone(), node.uid.clone()),
                    warning: false,
                    reason: "ScaleDown",
                    message: words,
                });
            }
            news.extend(
                action
                    .precondition
                    .pods
                    .iter()
                    .take(MAX_PODS)
                    .filter_map(|key| {
                        let pod = turn.snapshot.cluster.pods.get(key)?;
                        Some(News {
                            about: About::Pod(key.clone(), pod.uid.clone()),
                            warning: false,
                            reason: "ScaleDown",
                            message: format!(
                                "deleting pod for node scale down: {}",
                                target.machine
                            ),
                        })
                    }),
            );
            news
        }
        (Kind::ClearPlaceholder | Kind::DropIntent | Kind::DeleteNode, reason) => vec![News {
            about: About::Status,
            warning: true,
            reason: "ClusterAutoscalerCleanup",
            message: format!(
                "{} of {}: {reason}",
                executor::kind(&action.kind),
                target.machine
            ),
        }],
        (Kind::Continue | Kind::Release, _) => Vec::new(),
    }
}

/// What is told when an action ends.
pub fn of_ending(ended: &Ended) -> Vec<News> {
    let Err(failure) = &ended.result else {
        return Vec::new();
    };
    let machine = &ended.action.target.machine;
    match &ended.action.kind {
        Kind::Create(_) | Kind::Continue => vec![News {
            about: About::Status,
            warning: true,
            reason: "FailedToScaleUpGroup",
            message: format!(
                "machine {machine} failed in step {}: {}",
                step(failure.step),
                failure.message
            ),
        }],
        Kind::Remove { .. } => {
            let message = format!(
                "removing {machine} failed in step {}: {}",
                step(failure.step),
                failure.message
            );
            let mut news = vec![News {
                about: About::Status,
                warning: true,
                reason: "ScaleDownFailed",
                message: message.clone(),
            }];
            if let Some(node) = &ended.action.target.node {
                news.push(News {
                    about: About::Node(node.name.clone(), node.uid.clone()),
                    warning: true,
                    reason: "ScaleDownFailed",
                    message,
                });
            }
            news
        }
        _ => Vec::new(),
    }
}

/// A step in words, as it is written in files and metrics.
pub fn step(step: Step) -> String {
    format!("{step:?}").to_lowercase()
}

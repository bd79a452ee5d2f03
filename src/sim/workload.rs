//! What people run on a simulated cluster, as data: Deployments and Jobs that come, change size and
//! go at given times.

use axum::Router;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::guests::api::{Api, ApiError};
use super::guests::{DURATION, STOPPING};
use crate::model::time::Span;

/// Short names for benches, which have no other pods and steps.
pub use self::{WorkloadPods as Pods, WorkloadStep as Step};

/// How often a step is tried again that the API server refused or did not answer.
const TRIES: u32 = 20;
/// The pause between tries.
const AGAIN: std::time::Duration = std::time::Duration::from_secs(1);

/// A story: what happens, and when.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// The steps, in any order.
    pub steps: Vec<WorkloadStep>,
}

/// One thing that happens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkloadStep {
    /// When, from the beginning of the story.
    pub at: Span,
    /// What.
    #[serde(flatten)]
    pub act: Act,
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Act {
    /// A Deployment comes.
    Deploy {
        /// The Deployment's name; its pods have it as their label `app`.
        name: String,
        /// How many pods.
        replicas: u32,
        /// What each is like.
        #[serde(flatten)]
        pods: WorkloadPods,
    },
    /// A Deployment changes its size.
    Scale {
        /// Which.
        name: String,
        /// How many pods from now on.
        replicas: u32,
    },
    /// A Job comes.
    Job {
        /// The Job's name; its pods have it as their label `app`.
        name: String,
        /// How many pods shall succeed.
        completions: u32,
        /// How many run at once.
        parallelism: u32,
        /// How long each runs.
        runs: Span,
        /// What each is like.
        #[serde(flatten)]
        pods: WorkloadPods,
    },
    /// A disruption budget for the pods with the label `app`.
    Budget {
        /// The budget's name, and the value of `app` of the pods that it is for.
        name: String,
        /// `maxUnavailable`.
        most_unavailable: u32,
    },
    /// A Deployment, a Job or a budget goes.
    Delete {
        /// `deployment`, `job` or `budget`.
        kind: WorkloadKind,
        /// Which.
        name: String,
    },
    /// Any object comes, written out.
    Create {
        /// The path of its collection, such as `/apis/apps/v1/namespaces/default/daemonsets`.
        path: String,
        /// The object.
        object: Value,
    },
    /// Any object goes.
    Remove {
        /// The object's path at the API server.
        path: String,
    },
}

/// What [`Act::Delete`] deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkloadKind {
    /// `apps/v1 Deployment`.
    Deployment,
    /// `batch/v1 Job`.
    Job,
    /// `policy/v1 PodDisruptionBudget`.
    Budget,
}

impl WorkloadKind {
    fn collection(self) -> &'static str {
        match self {
            WorkloadKind::Deployment => "/apis/apps/v1/namespaces/default/deployments",
            WorkloadKind::Job => "/apis/batch/v1/namespaces/default/jobs",
            WorkloadKind::Budget => "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        }
    }
}

/// What the pods of a workload are like.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkloadPods {
    /// CPU request.
    pub cpu: String,
    /// Memory request.
    pub memory: String,
    /// How long a pod takes to stop; by default a second or two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopping: Option<Span>,
    /// Laid over the pod template by JSON merge patch: tolerations, selectors, volumes.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub template: Value,
}

impl WorkloadPods {
    /// Pods with these requests.
    pub fn of(cpu: &str, memory: &str) -> WorkloadPods {
        WorkloadPods {
            cpu: cpu.to_owned(),
            memory: memory.to_owned(),
            ..WorkloadPods::default()
        }
    }

    fn template(&self, app: &str, policy: &str, runs: Option<Span>) -> Value {
        let mut annotations = json!({});
        if let Some(runs) = runs {
            annotations[DURATION] = json!(format!("{}ms", runs.0));
        }
        if let Some(stopping) = self.stopping {
            annotations[STOPPING] = json!(format!("{}ms", stopping.0));
        }
        let mut template = json!({
            "metadata": {"labels": {"app": app}, "annotations": annotations},
            "spec": {
                "restartPolicy": policy,
                "containers": [{
                    "name": "main", "image": "registry.k8s.io/pause:3.10",
                    "resources": {"requests": {"cpu": self.cpu, "memory": self.memory}},
                }],
            },
        });
        if self.template.is_object() {
            super::kube::merge_patch(&mut template, &self.template);
        }
        template
    }
}

impl Workload {
    /// A deployment that comes, stays and goes: the shortest story there is.
    pub fn visit(name: &str, replicas: u32, pods: WorkloadPods, stays: Span) -> Workload {
        let name = name.to_owned();
        Workload {
            steps: vec![
                WorkloadStep {
                    at: Span::ZERO,
                    act: Act::Deploy {
                        name: name.clone(),
                        replicas,
                        pods,
                    },
                },
                WorkloadStep {
                    at: stays,
                    act: Act::Delete {
                        kind: WorkloadKind::Deployment,
                        name,
                    },
                },
            ],
        }
    }

    /// Hours of bursts and tides by a seed: a deployment that breathes, jobs that burst, a budget.
    /// Everything is gone `rest` before the end.
    pub fn random(seed: u64, length: Span, rest: Span) -> Workload {
        let mut rng = StdRng::seed_from_u64(seed);
        let last = Span((length.0 - rest.0).max(0));
        let mut steps = Vec::new();
        let mut add = |at: Span, act: Act| steps.push(WorkloadStep { at, act });
        let tide = || "tide".to_owned();
        add(
            Span::ZERO,
            Act::Deploy {
                name: tide(),
                replicas: 1,
                pods: WorkloadPods::of("400m", "512Mi"),
            },
        );
        add(
            Span::ZERO,
            Act::Budget {
                name: tide(),
                most_unavailable: 2,
            },
        );
        let mut at = Span::ZERO;
        let mut burst = 0;
        loop {
            at = Span(at.0 + rng.random_range(60_000..1_500_000));
            if at >= last {
                break;
            }
            if rng.random_range(0..3) == 0 {
                burst += 1;
                let wide: u32 = rng.random_range(2..12);
                add(
                    at,
                    Act::Job {
                        name: format!("burst-{burst}"),
                        completions: wide * rng.random_range(1..3),
                        parallelism: wide,
                        runs: Span::seconds(rng.random_range(30..600)),
                        pods: WorkloadPods::of(
                            ["500m", "1", "1500m"][rng.random_range(0..3)],
                            "1Gi",
                        ),
                    },
                );
            } else {
                add(
                    at,
                    Act::Scale {
                        name: tide(),
                        replicas: rng.random_range(0..24),
                    },
                );
            }
        }
        for number in 1..=burst {
            add(
                last,
                Act::Delete {
                    kind: WorkloadKind::Job,
                    name: format!("burst-{number}"),
                },
            );
        }
        for kind in [WorkloadKind::Deployment, WorkloadKind::Budget] {
            add(last, Act::Delete { kind, name: tide() });
        }
        Workload { steps }
    }

    /// When the last step is.
    pub fn length(&self) -> Span {
        self.steps.iter().map(|s| s.at).max().unwrap_or(Span::ZERO)
    }

    /// Plays the story against an API server where callers may do everything. Ends with its last
    /// step; a step that cannot be done is the error.
    pub async fn play(mut self, router: Router) -> anyhow::Result<()> {
        let api = Api::new(router);
        let begin = Instant::now();
        self.steps.sort_by_key(|s| s.at);
        for step in &self.steps {
            tokio::time::sleep_until(begin + step.at.to_std()).await;
            let mut outcome = perform(&api, &step.act).await;
            for _ in 0..TRIES {
                match &outcome {
                    Err(error) if error.code == 0 || error.code >= 500 => {
                        tokio::time::sleep(AGAIN).await;
                        outcome = perform(&api, &step.act).await;
                    }
                    _ => break,
                }
            }
            outcome?;
        }
        Ok(())
    }
}

async fn perform(api: &Api, act: &Act) -> Result<(), ApiError> {
    match ask(api, act).await {
        // The answer of an earlier try was lost.
        Err(error) if error.code == 409 && !matches!(act, Act::Scale { .. }) => Ok(()),
        Err(error)
            if error.code == 404 && matches!(act, Act::Delete { .. } | Act::Remove { .. }) =>
        {
            Ok(())
        }
        other => other.map(|_| ()),
    }
}

async fn ask(api: &Api, act: &Act) -> Result<Value, ApiError> {
    match act {
        Act::Deploy {
            name,
            replicas,
            pods,
        } => {
            let object = json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
                "spec": {
                    "replicas": replicas, "selector": {"matchLabels": {"app": name}},
                    "template": pods.template(name, "Always", None),
                },
            });
            api.post(WorkloadKind::Deployment.collection(), &object)
                .await
        }
        Act::Scale { name, replicas } => {
            let path = format!("{}/{name}", WorkloadKind::Deployment.collection());
            api.merge(&path, &json!({"spec": {"replicas": replicas}}))
                .await
        }
        Act::Job {
            name,
            completions,
            parallelism,
            runs,
            pods,
        } => {
            let object = json!({
                "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
                "spec": {
                    "completions": completions, "parallelism": parallelism, "backoffLimit": 1000,
                    "template": pods.template(name, "Never", Some(*runs)),
                },
            });
            api.post(WorkloadKind::Job.collection(), &object).await
        }
        Act::Budget {
            name,
            most_unavailable,
        } => {
            let object = json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                "metadata": {"name": name},
                "spec": {
                    "maxUnavailable": most_unavailable,
                    "selector": {"matchLabels": {"app": name}},
                },
            });
            api.post(WorkloadKind::Budget.collection(), &object).await
        }
        Act::Delete { kind, name } => {
            let path = format!("{}/{name}", kind.collection());
            let options = json!({"propagationPolicy": "Background"});
            api.delete(&path, &options).await
        }
        Act::Create { path, object } => api.post(path, object).await,
        Act::Remove { path } => {
            let options = json!({"propagationPolicy": "Background"});
            api.delete(path, &options).await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stories_are_data() {
        let story = Workload::random(5, Span::minutes(360), Span::minutes(60));
        assert!(story.length() == Span::minutes(300));
        let text = serde_json::to_string(&story).expect("it serialises");
        let read: Workload = serde_json::from_str(&text).expect("and reads");
        assert_eq!(read, story);
        let by_hand = r#"{"steps": [{"at": 0, "do": "deploy", "name": "web", "replicas": 3, "cpu": "1", "memory": "1Gi"}]}"#;
        let read: Workload = serde_json::from_str(by_hand).expect("it reads");
        assert_eq!(read.steps.len(), 1);
    }
}

//! What happens in the demo.

use serde_json::json;

use crate::model::time::Span;
use crate::sim::workload::{Act, Workload, WorkloadKind, WorkloadPods, WorkloadStep};

/// A web application comes and grows, a burst of batch jobs asks for the tainted pool, and all of it
/// goes again.
pub(super) fn workload() -> Workload {
    let web = "web".to_owned();
    let at = |seconds: i64, act: Act| WorkloadStep {
        at: Span::seconds(seconds),
        act,
    };
    Workload {
        steps: vec![
            at(
                40,
                Act::Deploy {
                    name: web.clone(),
                    replicas: 4,
                    pods: WorkloadPods::of("750m", "1Gi"),
                },
            ),
            at(
                40,
                Act::Budget {
                    name: web.clone(),
                    most_unavailable: 1,
                },
            ),
            at(
                130,
                Act::Scale {
                    name: web.clone(),
                    replicas: 12,
                },
            ),
            at(
                220,
                Act::Job {
                    name: "crunch".to_owned(),
                    completions: 6,
                    parallelism: 3,
                    runs: Span::seconds(90),
                    pods: batch(),
                },
            ),
            at(
                520,
                Act::Delete {
                    kind: WorkloadKind::Job,
                    name: "crunch".to_owned(),
                },
            ),
            at(
                540,
                Act::Delete {
                    kind: WorkloadKind::Deployment,
                    name: web.clone(),
                },
            ),
            at(
                540,
                Act::Delete {
                    kind: WorkloadKind::Budget,
                    name: web,
                },
            ),
        ],
    }
}

/// Pods that only the tainted pool takes.
fn batch() -> WorkloadPods {
    WorkloadPods {
        template: json!({"spec": {
            "nodeSelector": {"workload": "batch"},
            "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "batch", "effect": "NoSchedule"}],
        }}),
        ..WorkloadPods::of("3", "6Gi")
    }
}

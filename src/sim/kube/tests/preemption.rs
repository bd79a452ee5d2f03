//! Preemption, as kube-scheduler does it.

use serde_json::json;

use super::nominations::{add_pod, field, node_of, nominated};
use super::{PODS, add_node, cluster, items, pause, pod, run_pods};
use crate::sim::guests::api::Api;
use crate::sim::kube::Kube;

/// Nodes of four cores, each full of pods of one core with these priorities, named `NODE-NUMBER`.
async fn full(nodes: &[(&str, [i64; 4])]) -> (Kube, Api) {
    let (kube, api) = cluster();
    for (node, priorities) in nodes {
        add_node(&api, node, "4").await;
        // It takes pods when it is seen to be Ready; who came before would preempt on the other one.
        pause(10).await;
        for (number, priority) in priorities.iter().enumerate() {
            add_pod(&api, &format!("{node}-{number}"), "1", *priority).await;
            pause(2).await;
            run_pods(&api).await;
        }
    }
    (kube, api)
}

/// The pods that are on their way out, sorted.
async fn leaving(api: &Api) -> Vec<String> {
    let pods = items(&api.get(PODS).await.expect("pods"));
    let leaving = pods
        .iter()
        .filter(|pod| pod["metadata"]["deletionTimestamp"].is_string());
    let names = leaving.filter_map(|pod| pod["metadata"]["name"].as_str());
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort();
    names
}

#[tokio::test(start_paused = true)]
async fn as_few_pods_of_the_lowest_priority_go_as_will_do() {
    let (kube, api) = full(&[("n1", [50, 0, 10, 0]), ("n2", [50, 40, 40, 40])]).await;
    add_pod(&api, "high", "2", 100).await;
    pause(5).await;
    assert_eq!(leaving(&api).await, ["n1-1", "n1-3"]);
    assert_eq!(nominated(&kube, "high").as_deref(), Some("n1"));
    assert_eq!(node_of(&kube, "high"), None);
    let told = field(&kube, "high", "/status/conditions/0/message");
    assert_eq!(
        told.as_deref(),
        Some(
            "0/2 nodes are available: 2 Insufficient cpu. preemption: not eligible due to a terminating pod on the nominated node."
        )
    );
    // Nobody else is preempted while they leave, and their room is not given away.
    add_pod(&api, "low", "1", 0).await;
    pause(5).await;
    assert_eq!(leaving(&api).await, ["n1-1", "n1-3"]);
    run_pods(&api).await;
    pause(5).await;
    assert_eq!(node_of(&kube, "high").as_deref(), Some("n1"));
    assert_eq!(nominated(&kube, "high"), None, "bound");
    assert_eq!(node_of(&kube, "low"), None);
}

#[tokio::test(start_paused = true)]
async fn pods_whose_budget_is_spent_go_last() {
    let (kube, api) = full(&[("n1", [0, 0, 0, 0]), ("n2", [5, 5, 5, 5])]).await;
    for number in 0..4 {
        let budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": format!("of-n1-{number}"), "namespace": "default"},
            "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": format!("n1-{number}")}}},
        });
        let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
        api.post(budgets, &budget).await.expect("a budget");
    }
    pause(5).await;
    add_pod(&api, "high", "1", 100).await;
    pause(5).await;
    let leaving = leaving(&api).await;
    assert_eq!(leaving.len(), 1);
    assert!(leaving[0].starts_with("n2-"), "{leaving:?}");
    assert_eq!(nominated(&kube, "high").as_deref(), Some("n2"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_never_preempts_waits_and_so_does_one_of_the_same_priority() {
    let (kube, api) = full(&[("n1", [0, 0, 0, 0])]).await;
    let mut patient = pod("patient", "1");
    patient["spec"]["preemptionPolicy"] = json!("Never");
    patient["spec"]["priorityClassName"] = json!("class-of-high");
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": "class-of-high"}, "value": 100,
    });
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    api.post(classes, &class).await.expect("a class");
    api.post(PODS, &patient).await.expect("a pod");
    add_pod(&api, "equal", "1", 0).await;
    pause(30).await;
    assert!(leaving(&api).await.is_empty());
    for name in ["patient", "equal"] {
        assert_eq!(nominated(&kube, name), None, "{name}");
    }
}

//! Nominated nodes, as kube-scheduler honours them.

use serde_json::{Value, json};

use super::{add_node, cluster, pause, pod};
use crate::sim::guests::api::Api;
use crate::sim::kube::Kube;

const PODS: &str = "/api/v1/namespaces/default/pods";

pub(super) async fn add_pod(api: &Api, name: &str, cpu: &str, priority: i64) {
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": format!("class-of-{name}")}, "value": priority,
    });
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    api.post(classes, &class).await.expect("a class");
    let mut pod = pod(name, cpu);
    pod["spec"]["priorityClassName"] = json!(format!("class-of-{name}"));
    api.post(PODS, &pod).await.expect("a pod");
}

async fn nominate(api: &Api, name: &str, node: &str) {
    let status = json!({"status": {"nominatedNodeName": node}});
    api.merge(&format!("{PODS}/{name}/status"), &status)
        .await
        .expect("a nomination");
}

pub(super) fn field(kube: &Kube, name: &str, pointer: &str) -> Option<String> {
    let pods = kube.objects("v1", "Pod");
    let pod = pods.iter().find(|pod| pod["metadata"]["name"] == name)?;
    Some(pod.pointer(pointer)?.as_str()?.to_owned())
}

pub(super) fn node_of(kube: &Kube, name: &str) -> Option<String> {
    field(kube, name, "/spec/nodeName")
}

pub(super) fn nominated(kube: &Kube, name: &str) -> Option<String> {
    field(kube, name, "/status/nominatedNodeName")
}

/// A node that takes no pod yet.
async fn add_tainted(api: &Api, name: &str, cpu: &str) {
    add_node(api, name, cpu).await;
    taint(
        api,
        name,
        &json!([{"key": "starting", "effect": "NoSchedule"}]),
    )
    .await;
}

async fn taint(api: &Api, name: &str, taints: &Value) {
    let patch = json!({"spec": {"taints": taints}});
    api.merge(&format!("/api/v1/nodes/{name}"), &patch)
        .await
        .expect("a taint");
}

#[tokio::test(start_paused = true)]
async fn pods_of_one_priority_go_in_the_order_in_which_they_came() {
    for round in 0..4 {
        let (kube, api) = cluster();
        let came = |number: usize| format!("pod-{}", (number * 3 + round) % 5);
        for number in 0..5 {
            add_pod(&api, &came(number), "1", 0).await;
        }
        add_node(&api, "n1", "3").await;
        pause(5).await;
        for number in 0..5 {
            let there = node_of(&kube, &came(number)).is_some();
            assert_eq!(there, number < 3, "{number} in round {round}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_nominated_pod_gets_its_node_before_older_ones() {
    let (kube, api) = cluster();
    add_pod(&api, "older", "2", 0).await;
    pause(2).await;
    add_pod(&api, "younger", "2", 0).await;
    add_tainted(&api, "n1", "2").await;
    pause(5).await;
    nominate(&api, "younger", "n1").await;
    pause(30).await;
    assert_eq!(nominated(&kube, "younger").as_deref(), Some("n1"));
    taint(&api, "n1", &json!([])).await;
    pause(5).await;
    assert_eq!(node_of(&kube, "younger").as_deref(), Some("n1"));
    assert_eq!(node_of(&kube, "older"), None);
    assert_eq!(nominated(&kube, "younger"), None, "bound");
}

#[tokio::test(start_paused = true)]
async fn room_is_kept_against_no_pod_of_a_higher_priority() {
    let (kube, api) = cluster();
    add_pod(&api, "low", "2", 0).await;
    add_pod(&api, "high", "2", 10).await;
    add_tainted(&api, "n1", "2").await;
    pause(5).await;
    nominate(&api, "low", "n1").await;
    pause(5).await;
    taint(&api, "n1", &json!([])).await;
    pause(5).await;
    assert_eq!(node_of(&kube, "high").as_deref(), Some("n1"));
    assert_eq!(node_of(&kube, "low"), None);
    assert_eq!(nominated(&kube, "low"), None, "its attempt failed");
}

#[tokio::test(start_paused = true)]
async fn a_failed_attempt_clears_a_nomination_but_of_pods_that_never_preempt() {
    let (kube, api) = cluster();
    add_pod(&api, "web", "4", 0).await;
    let mut patient = pod("patient", "4");
    patient["spec"]["preemptionPolicy"] = json!("Never");
    api.post(PODS, &patient).await.expect("a pod");
    add_tainted(&api, "n1", "8").await;
    pause(5).await;
    nominate(&api, "web", "n1").await;
    nominate(&api, "patient", "n1").await;
    pause(60).await;
    // Nobody tried them: nothing happened that could help them.
    assert_eq!(nominated(&kube, "web").as_deref(), Some("n1"));
    add_node(&api, "n2", "1").await;
    pause(5).await;
    assert_eq!(nominated(&kube, "web"), None);
    assert_eq!(nominated(&kube, "patient").as_deref(), Some("n1"));
}

//! StatefulSets, claims, volumes, attachments.

use serde_json::{Value, json};

use super::{PODS, add_node, cluster, items, pause, run_pods};
use crate::sim::guests::api::Api;

const SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";

fn set(replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
        "spec": {
            "replicas": replicas, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
            "template": {
                "metadata": {"labels": {"app": "db"}},
                "spec": {"containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}]},
            },
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim_spec("standard")}],
        },
    })
}

fn claim_spec(class: &str) -> Value {
    json!({
        "accessModes": ["ReadWriteOnce"], "storageClassName": class,
        "resources": {"requests": {"storage": "1Gi"}},
    })
}

fn claim(name: &str, class: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": claim_spec(class)})
}

fn user_of(name: &str, claim: &str) -> Value {
    let mut pod = super::pod(name, "100m");
    pod["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]);
    pod
}

async fn names(api: &Api, path: &str) -> Vec<String> {
    let list = api.get(path).await.expect("a list");
    let names = items(&list).into_iter();
    names
        .map(|item| {
            item["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        })
        .collect()
}

async fn rounds(api: &Api, count: u32) {
    for _ in 0..count {
        pause(1).await;
        run_pods(api).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stateful_set_comes_in_order_goes_in_reverse_and_finds_its_volumes_again() {
    let (_kube, api) = cluster();
    add_node(&api, "n", "4").await;
    api.post(SETS, &set(2)).await.expect("created");
    pause(1).await;
    assert_eq!(
        names(&api, PODS).await,
        ["db-0"],
        "the second waits for the first"
    );
    rounds(&api, 4).await;
    assert_eq!(names(&api, PODS).await, ["db-0", "db-1"]);
    assert_eq!(names(&api, CLAIMS).await, ["data-db-0", "data-db-1"]);
    let bound = api
        .get(&format!("{CLAIMS}/data-db-1"))
        .await
        .expect("there");
    assert_eq!(bound["status"]["phase"], "Bound");
    let chosen = &bound["metadata"]["annotations"]["volume.kubernetes.io/selected-node"];
    assert_eq!(chosen, "n", "the class waits for the pod's node");
    let volume = bound["spec"]["volumeName"].clone();
    let on = items(&api.get(ATTACHMENTS).await.expect("a list"));
    assert_eq!(on.len(), 2);
    assert!(
        on.iter()
            .all(|one| one["spec"]["nodeName"] == "n" && one["status"]["attached"] == true)
    );

    let none = json!({"spec": {"replicas": 0}});
    api.merge(&format!("{SETS}/db"), &none)
        .await
        .expect("scaled");
    pause(1).await;
    let pods = items(&api.get(PODS).await.expect("a list"));
    let going = pods
        .iter()
        .filter(|pod| pod["metadata"]["deletionTimestamp"].is_string());
    let going: Vec<_> = going.map(|pod| pod["metadata"]["name"].clone()).collect();
    assert_eq!(going, ["db-1"], "the last goes first");
    rounds(&api, 4).await;
    assert_eq!(names(&api, PODS).await, Vec::<String>::new());
    pause(10).await;
    assert_eq!(names(&api, ATTACHMENTS).await, Vec::<String>::new());
    assert_eq!(names(&api, CLAIMS).await.len(), 2, "data outlives its pods");

    let two = json!({"spec": {"replicas": 2}});
    api.merge(&format!("{SETS}/db"), &two)
        .await
        .expect("scaled");
    rounds(&api, 5).await;
    let again = api
        .get(&format!("{CLAIMS}/data-db-1"))
        .await
        .expect("there");
    assert_eq!(again["spec"]["volumeName"], volume);
    assert_eq!(names(&api, VOLUMES).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_attachment_outlasts_its_pod_by_the_drivers_latency() {
    let (_kube, api) = cluster();
    add_node(&api, "n", "4").await;
    api.post(CLAIMS, &claim("c", "standard"))
        .await
        .expect("created");
    api.post(PODS, &user_of("p", "c")).await.expect("created");
    rounds(&api, 2).await;
    assert_eq!(names(&api, ATTACHMENTS).await.len(), 1);
    let now = json!({"gracePeriodSeconds": 0});
    api.delete(&format!("{PODS}/p"), &now).await.expect("gone");
    pause(3).await;
    assert_eq!(
        names(&api, ATTACHMENTS).await.len(),
        1,
        "detaching takes four seconds"
    );
    pause(3).await;
    assert_eq!(names(&api, ATTACHMENTS).await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_claim_in_use_stays_and_its_volume_goes_by_its_policy() {
    let (_kube, api) = cluster();
    add_node(&api, "n", "4").await;
    let keeping = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "keeping"},
        "provisioner": "csi.sim.pve-autoscaler.io", "reclaimPolicy": "Retain",
        "volumeBindingMode": "Immediate",
    });
    api.post(CLASSES, &keeping).await.expect("created");
    for class in ["standard", "keeping"] {
        api.post(CLAIMS, &claim(class, class))
            .await
            .expect("created");
    }
    pause(1).await;
    let bound = |name: &str| format!("{CLAIMS}/{name}");
    let phase =
        async |name: &str| api.get(&bound(name)).await.expect("there")["status"]["phase"].clone();
    assert_eq!(phase("keeping").await, "Bound", "at once");
    assert_eq!(phase("standard").await, "Pending", "until a pod needs it");
    for class in ["standard", "keeping"] {
        api.post(PODS, &user_of(class, class))
            .await
            .expect("created");
    }
    rounds(&api, 2).await;
    for class in ["standard", "keeping"] {
        api.delete(&bound(class), &json!({})).await.expect("taken");
    }
    pause(1).await;
    assert_eq!(names(&api, CLAIMS).await.len(), 2, "pods use them");
    let late = api.post(PODS, &user_of("late", "keeping")).await;
    late.expect("created");
    pause(1).await;
    let late = api.get(&format!("{PODS}/late")).await.expect("there");
    let why = late["status"]["conditions"][0]["message"]
        .as_str()
        .unwrap_or_default();
    assert!(
        why.contains("persistentvolumeclaim \"keeping\" is being deleted"),
        "{why}"
    );
    let now = json!({"gracePeriodSeconds": 0});
    for pod in ["standard", "keeping", "late"] {
        api.delete(&format!("{PODS}/{pod}"), &now)
            .await
            .expect("gone");
    }
    pause(2).await;
    assert_eq!(names(&api, CLAIMS).await, Vec::<String>::new());
    let left = items(&api.get(VOLUMES).await.expect("a list"));
    let left: Vec<_> = left
        .iter()
        .map(|one| (&one["spec"]["storageClassName"], &one["status"]["phase"]))
        .collect();
    assert_eq!(left, [(&json!("keeping"), &json!("Released"))]);
}

#[tokio::test(start_paused = true)]
async fn an_ephemeral_volume_lives_as_long_as_its_pod() {
    let (_kube, api) = cluster();
    add_node(&api, "n", "4").await;
    let mut pod = super::pod("p", "100m");
    pod["spec"]["volumes"] = json!([{"name": "scratch",
        "ephemeral": {"volumeClaimTemplate": {"spec": claim_spec("standard")}}}]);
    api.post(PODS, &pod).await.expect("created");
    rounds(&api, 2).await;
    assert_eq!(names(&api, CLAIMS).await, ["p-scratch"]);
    let made = api
        .get(&format!("{CLAIMS}/p-scratch"))
        .await
        .expect("there");
    assert_eq!(made["metadata"]["ownerReferences"][0]["name"], "p");
    assert_eq!(names(&api, VOLUMES).await.len(), 1);
    let now = json!({"gracePeriodSeconds": 0});
    api.delete(&format!("{PODS}/p"), &now).await.expect("gone");
    // The collector looks at pods' dependents from time to time.
    pause(60).await;
    for path in [CLAIMS, VOLUMES, ATTACHMENTS] {
        assert_eq!(names(&api, path).await, Vec::<String>::new(), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_goes_where_its_volume_is_or_waits_and_says_why() {
    let (_kube, api) = cluster();
    add_node(&api, "n", "4").await;
    let local = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "local"},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "standard",
            "persistentVolumeReclaimPolicy": "Retain", "local": {"path": "/mnt"},
            "claimRef": {"namespace": "default", "name": "here"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": ["m"]}]}]}},
        },
    });
    api.post(VOLUMES, &local).await.expect("created");
    let mut here = claim("here", "standard");
    here["spec"]["volumeName"] = json!("local");
    api.post(CLAIMS, &here).await.expect("created");
    api.post(PODS, &user_of("p", "here"))
        .await
        .expect("created");
    api.post(PODS, &user_of("q", "nowhere"))
        .await
        .expect("created");
    pause(1).await;
    let why = async |name: &str| {
        let pod = api.get(&format!("{PODS}/{name}")).await.expect("there");
        let message = &pod["status"]["conditions"][0]["message"];
        message.as_str().unwrap_or_default().to_owned()
    };
    let conflict = why("p").await;
    assert!(
        conflict.contains("didn't match PersistentVolume's node affinity"),
        "{conflict}"
    );
    let missing = why("q").await;
    assert!(
        missing.contains("persistentvolumeclaim \"nowhere\" not found"),
        "{missing}"
    );
    add_node(&api, "m", "4").await;
    rounds(&api, 2).await;
    let pod = api.get(&format!("{PODS}/p")).await.expect("there");
    assert_eq!(pod["spec"]["nodeName"], "m");
    assert_eq!(
        names(&api, ATTACHMENTS).await,
        Vec::<String>::new(),
        "no driver attaches a local volume"
    );
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_waits_gets_the_volume_that_a_person_made() {
    let (_kube, api) = cluster();
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fixed"},
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
    });
    api.post(CLASSES, &class).await.expect("created");
    let disk = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"},
        "spec": {
            "capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "fixed",
            "local": {"path": "/mnt"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": ["m"]}]}]}},
        },
    });
    api.post(VOLUMES, &disk).await.expect("created");
    for node in ["n", "m"] {
        add_node(&api, node, "4").await;
    }
    for name in ["one", "two"] {
        api.post(CLAIMS, &claim(name, "fixed"))
            .await
            .expect("created");
        api.post(PODS, &user_of(name, name)).await.expect("created");
    }
    rounds(&api, 2).await;
    let one = api.get(&format!("{PODS}/one")).await.expect("there");
    assert_eq!(one["spec"]["nodeName"], "m");
    let claim = api.get(&format!("{CLAIMS}/one")).await.expect("there");
    assert_eq!(claim["spec"]["volumeName"], "disk");
    assert_eq!(claim["status"]["capacity"]["storage"], "5Gi");
    let disk = api.get(&format!("{VOLUMES}/disk")).await.expect("there");
    assert_eq!(disk["spec"]["claimRef"]["name"], "one");
    assert_eq!(disk["status"]["phase"], "Bound");
    let two = api.get(&format!("{PODS}/two")).await.expect("there");
    let why = two["status"]["conditions"][0]["message"].as_str();
    let why = why.unwrap_or_default();
    assert!(
        why.contains("2 node(s) didn't find available persistent volumes to bind"),
        "{why}"
    );
    let now = json!({"gracePeriodSeconds": 0});
    api.delete(&format!("{PODS}/one"), &now)
        .await
        .expect("gone");
    api.delete(&format!("{CLAIMS}/one"), &json!({}))
        .await
        .expect("gone");
    rounds(&api, 2).await;
    let disk = api.get(&format!("{VOLUMES}/disk")).await.expect("there");
    assert_eq!(disk["status"]["phase"], "Released");
}

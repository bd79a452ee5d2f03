//! Which nominations are given and taken back, and which pods are brought back into the queue.

use serde_json::{Value, json};

use super::*;
use crate::kubernetes::ApiCall;
use crate::model::reasons::Held;
use crate::model::report::{Hold, PodVerdict};

pub(in crate::controller) const NODE: &str = "general-1";

/// A pending pod with other fields laid over it.
pub(in crate::controller) fn pod(uid: &str, other: &Value) -> Pod {
    let mut pod = json!({"uid": uid, "shape": {}, "created": "2026-01-01T00:00:00Z"});
    for (key, value) in other.as_object().into_iter().flatten() {
        pod[key] = value.clone();
    }
    serde_json::from_value(pod).unwrap_or_else(|error| panic!("a pod: {error}"))
}

/// These pods, and a node that is Ready with other fields laid over it.
pub(in crate::controller) fn cluster(pods: Vec<Pod>, node: Option<&Value>) -> Cluster {
    let mut cluster = Cluster::default();
    for pod in pods {
        cluster
            .pods
            .insert(ObjectKey::new("default", &*pod.uid.clone()), pod);
    }
    if let Some(other) = node {
        let mut node = json!({
            "uid": "node-uid", "created": "2026-01-01T00:00:00Z", "allocatable": {}, "capacity": {},
            "ready": {"status": "True", "since": "2026-01-01T00:00:00Z"},
        });
        for (key, value) in other.as_object().into_iter().flatten() {
            node[key] = value.clone();
        }
        let node = serde_json::from_value(node).unwrap_or_else(|error| panic!("{error}"));
        cluster.nodes.insert(NODE.into(), node);
    }
    cluster
}

#[test]
fn only_pods_that_wait_for_kube_scheduler_are_nominated() {
    let pods = vec![
        pod("waits", &json!({})),
        pod("unplanned", &json!({})),
        pod("bound", &json!({"node": "other"})),
        pod("nominated", &json!({"nominated": "other"})),
        pod("deleted", &json!({"deletion": "2026-01-02T00:00:00Z"})),
        pod("gated", &json!({"gated": true})),
        pod("runs", &json!({"phase": "Running"})),
        pod("foreign", &json!({"shape": {"scheduler": "volcano"}})),
        pod("patient", &json!({"shape": {"never_preempts": true}})),
    ];
    let planned = pods.iter().map(|pod| pod.uid.clone());
    let planned = planned.filter(|uid| &**uid != "unplanned").collect();
    let found = waiting(&cluster(pods, None), &planned);
    let found: Vec<&str> = found.iter().map(|(_, uid)| &**uid).collect();
    assert_eq!(found, ["waits"]);
}

/// A refusal for want of the right counts until a nomination passes. A pod that went meanwhile, a call without an answer, and a webhook that
/// refuses one tenant's pod say nothing of rights.
#[tokio::test]
async fn nominations_are_refused_until_one_passes() {
    let refused = |code: u16, message: &str| KubeError::Refused {
        call: ApiCall {
            verb: "patch",
            kind: "pods/status",
            name: "default/a".to_owned(),
        },
        code,
        reason: "".into(),
        message: message.into(),
        retry_after: None,
    };
    let nominations = given();
    let note = |result: Result<Nomination, KubeError>| {
        nominations.note_answer(&ObjectKey::new("default", "a"), &"a".into(), &result);
        nominations.is_refused()
    };
    assert!(!nominations.is_refused());
    let webhook = || {
        let said = "admission webhook \"policy.tenant.example\" denied the request: you cannot change pods";
        refused(403, said)
    };
    let no_right = || {
        let said = "pods \"a\" is forbidden: User \"system:serviceaccount:kube-system:pve-autoscaler\" cannot patch resource \"pods/status\" \
            in API group \"\" in the namespace \"default\"";
        refused(403, said)
    };
    assert!(!note(Err(refused(500, "away"))));
    assert!(!note(Err(webhook())));
    assert!(note(Err(no_right())));
    assert!(note(Ok(Nomination::Void)));
    assert!(note(Err(refused(500, "away"))));
    assert!(note(Err(webhook())));
    assert!(!note(Ok(Nomination::Written)));
    assert!(note(Err(no_right())));
}

fn given() -> PodNominator {
    let nominations = PodNominator::default();
    let node: Arc<str> = NODE.into();
    nominations.note_call(&ObjectKey::new("default", "a"), &"a".into(), &node);
    nominations
}

async fn pause(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_nomination_that_comes_to_nothing_is_taken_back_once() {
    let nominated = pod("a", &json!({"nominated": NODE}));
    let view = cluster(vec![nominated], Some(&json!({})));
    let nominations = given();
    pause(50).await;
    assert!(nominations.end_void_nominations(&view, true).is_empty());
    pause(15).await;
    let ended = nominations.end_void_nominations(&view, true);
    assert_eq!(ended.len(), 1);
    assert_eq!((&*ended[0].uid, &*ended[0].node), ("a", NODE));
    assert!(nominations.end_void_nominations(&view, true).is_empty());
}

#[tokio::test(start_paused = true)]
async fn it_goes_with_its_node() {
    for node in [
        None,
        Some(json!({"unschedulable": true})),
        Some(json!({"taints": [{"key": LEAVING_TAINT, "value": "", "effect": "NoSchedule"}]})),
    ] {
        let nominated = pod("a", &json!({"nominated": NODE}));
        let view = cluster(vec![nominated], node.as_ref());
        assert_eq!(
            given().end_void_nominations(&view, true).len(),
            1,
            "{node:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn it_goes_when_its_node_is_not_ready_any_more() {
    let broken = json!({"ready": {"status": "Unknown", "since": "2026-01-01T00:01:00Z"}});
    let nominated = pod("a", &json!({"nominated": NODE}));
    let view = cluster(vec![nominated], Some(&broken));
    let nominations = given();
    // A view may be late.
    assert!(nominations.end_void_nominations(&view, true).is_empty());
    pause(11).await;
    assert_eq!(nominations.end_void_nominations(&view, true).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn it_goes_when_the_plan_has_another_machine_for_the_pod() {
    let nominated = pod("a", &json!({"nominated": NODE}));
    let view = cluster(vec![nominated], Some(&json!({})));
    let nominations = given();
    let plan = |on: &[&str]| {
        let on = on.iter().map(|name| (Arc::from(*name), vec!["a".into()]));
        nominations.plan(&on.collect());
    };
    for here in [&[NODE][..], &[], &["general-2", NODE]] {
        plan(here);
        assert!(
            nominations.end_void_nominations(&view, true).is_empty(),
            "{here:?}"
        );
    }
    plan(&["general-2"]);
    assert_eq!(nominations.end_void_nominations(&view, true).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_stand_is_not_taken_back() {
    // Bound, gone, another pod of this name, cleared or changed by kube-scheduler.
    for other in [
        json!({"node": NODE}),
        json!({"uid": "b"}),
        json!({"nominated": "other"}),
        json!({}),
    ] {
        let nominations = given();
        let mut view = cluster(Vec::new(), Some(&json!({})));
        view.pods
            .insert(ObjectKey::new("default", "a"), pod("a", &other));
        pause(20).await;
        assert!(
            nominations.end_void_nominations(&view, true).is_empty(),
            "{other}"
        );
        let later = cluster(
            vec![pod("a", &json!({"nominated": NODE}))],
            Some(&json!({})),
        );
        pause(120).await;
        assert!(
            nominations.end_void_nominations(&later, true).is_empty(),
            "{other}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_view_that_does_not_show_it_yet_does_not_end_it() {
    let nominations = given();
    let before = cluster(vec![pod("a", &json!({}))], Some(&json!({})));
    assert!(nominations.end_void_nominations(&before, true).is_empty());
    pause(90).await;
    let view = cluster(
        vec![pod("a", &json!({"nominated": NODE}))],
        Some(&json!({})),
    );
    assert_eq!(nominations.end_void_nominations(&view, true).len(), 1);
}

/// A pod that kube-scheduler refused has room on a node for a minute, and something may keep the daemon from anything.
async fn brought_back(scope: Option<Scope>, wanted: bool) -> bool {
    let refused = json!({"unschedulable_since": "2026-01-01T00:00:01Z"});
    let view = cluster(vec![pod("a", &refused)], Some(&json!({})));
    let fits = PodVerdict::FitsNode {
        node: NODE.into(),
        preempts: BTreeMap::new(),
    };
    let holds = scope.map(|scope| Hold::new(scope, Held::RegionNotConfigured));
    let report = Report {
        pods: [(ObjectKey::new("default", "a"), fits)].into(),
        holds: holds.into_iter().collect(),
        ..Report::default()
    };
    let nominations = PodNominator::default();
    let mut found = false;
    for _ in 0..6 {
        found |= nominations.find_due(&view, &report, wanted).is_some();
        pause(10).await;
    }
    // What was waited for while it was held counts for nothing.
    let free = Report {
        holds: Vec::new(),
        ..report
    };
    assert!(found || nominations.find_due(&view, &free, true).is_none());
    found
}

#[tokio::test(start_paused = true)]
async fn nobody_is_brought_back_while_nothing_may_be_done() {
    assert!(brought_back(None, true).await);
    assert!(brought_back(Some(Scope::ScaleDown), true).await);
    assert!(!brought_back(Some(Scope::Everything), true).await);
    assert!(!brought_back(Some(Scope::ScaleUp), true).await);
    assert!(!brought_back(None, false).await);
}

#[tokio::test(start_paused = true)]
async fn nodes_begin_to_take_pods_one_after_the_other_and_none_waits_for_long() {
    let nominations = PodNominator::default();
    let first = nominations.lock_opening().await;
    assert!(first.is_some());
    let began = Instant::now();
    assert!(
        nominations.lock_opening().await.is_none(),
        "the first holds it"
    );
    assert_eq!(began.elapsed(), PATIENCE);
    drop(first);
    assert!(nominations.lock_opening().await.is_some());
}

#[tokio::test(start_paused = true)]
async fn who_does_not_lead_takes_nothing_back() {
    let nominations = given();
    pause(90).await;
    let view = cluster(
        vec![pod("a", &json!({"nominated": NODE}))],
        Some(&json!({})),
    );
    assert!(nominations.end_void_nominations(&view, false).is_empty());
    assert!(
        nominations.end_void_nominations(&view, true).is_empty(),
        "forgotten"
    );
}

//! What is found of a simulated cluster.

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use http::HeaderValue;
use tower::ServiceExt as _;

use super::*;
use crate::kubernetes::{KubeClient, in_memory};
use crate::model::time::Time;
use crate::sim::kube::{Kube, KubeSpec, KubeUserSpec, PolicyRule};

const MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";

async fn client_of(router: axum::Router, clock: Clock) -> KubeClient {
    KubeClient::new(in_memory(router), clock, Arc::new(Unobserved)).await
}

/// An administrator sees what machines would not find. The daemon, which may not look, calls nothing missing.
#[tokio::test(start_paused = true)]
async fn config_maps_of_kubeadm_that_are_gone_are_found_by_who_may_look() {
    let clock = Clock::starting_at(Time(1_795_000_000_000));
    let nodes = PolicyRule {
        verbs: vec!["list".to_owned()],
        api_groups: vec![String::new()],
        resources: vec!["nodes".to_owned()],
        ..PolicyRule::default()
    };
    let spec = KubeSpec {
        users: vec![KubeUserSpec {
            name: "pve-autoscaler".to_owned(),
            token: "of-the-daemon".to_owned(),
            rules: vec![nodes],
            ..KubeUserSpec::default()
        }],
        ..KubeSpec::default()
    };
    let kube = Kube::new(spec, clock, 7);
    let router = kube
        .public_router()
        .layer(from_fn(|mut request: Request, next: Next| {
            let token = HeaderValue::from_static("Bearer of-the-daemon");
            request.headers_mut().insert("authorization", token);
            next.run(request)
        }));
    let daemon = client_of(router, clock).await;
    let admin = client_of(kube.router(), clock).await;
    let whole = find(&admin).await.expect("it is read");
    assert_eq!(
        (whole.kubeadm, whole.kubeadm_lacks),
        (true, Vec::<&str>::new())
    );
    for (name, missing) in [
        ("kubelet-config", &["kubelet-config"][..]),
        ("kubeadm-config", &["kubeadm-config", "kubelet-config"][..]),
    ] {
        let request = http::Request::delete(format!("{MAPS}/{name}"))
            .body(Body::empty())
            .expect("a request");
        let answer = kube.router().oneshot(request).await.expect("an answer");
        assert!(answer.status().is_success(), "{answer:?}");
        let found = find(&admin).await.expect("it is read");
        assert_eq!(found.kubeadm_lacks, missing);
        let found = find(&daemon).await.expect("it is read");
        assert_eq!(found.kubeadm_lacks, Vec::<&str>::new());
    }
}

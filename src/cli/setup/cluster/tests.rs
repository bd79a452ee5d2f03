//! What is found of a simulated cluster.

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use http::HeaderValue;
use tower::ServiceExt as _;

use super::*;
use crate::kubernetes::{ApiCall, KubeClient, in_memory};
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
    let reads = |verb: &str, resource: &str| PolicyRule {
        verbs: vec![verb.to_owned()],
        api_groups: vec![String::new()],
        resources: vec![resource.to_owned()],
        ..PolicyRule::default()
    };
    let spec = KubeSpec {
        users: vec![KubeUserSpec {
            name: "pve-autoscaler".to_owned(),
            token: "of-the-daemon".to_owned(),
            rules: vec![reads("list", "nodes"), reads("get", "namespaces")],
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

/// What went wrong with a call, in words that the client has for it.
#[test]
fn a_server_that_is_away_is_told_from_one_that_says_no() {
    let call = || ApiCall {
        verb: "get",
        kind: "version",
        name: String::new(),
    };
    let not_sent = |message: &str| KubeError::NotSent {
        call: call(),
        message: message.into(),
    };
    let unknown = |code: Option<u16>, message: &str| KubeError::Unknown {
        call: call(),
        code,
        message: message.into(),
    };
    let refused = |code: u16| KubeError::Refused {
        call: call(),
        code,
        reason: "".into(),
        message: "no".into(),
        retry_after: None,
    };
    for (error, away) in [
        (not_sent("Connection refused (os error 111)"), true),
        (not_sent("deadline has elapsed"), true),
        (not_sent("invalid peer certificate: UnknownIssuer"), false),
        (not_sent("received fatal alert: CertificateExpired"), false),
        (unknown(None, "no answer within 30 s"), true),
        (unknown(Some(503), "no healthy upstream"), true),
        (
            unknown(None, "the answer cannot be used: it has no UID"),
            false,
        ),
        (refused(429), true),
        (refused(500), true),
        (refused(401), false),
        (refused(403), false),
    ] {
        assert_eq!(is_away(&error), away, "{error}");
    }
}

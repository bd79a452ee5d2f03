//! What a server of k3s or RKE2 has beside the API: its CAs for strangers, and kubelets' certificates for those who show a bootstrap token.
//!
//! Source: k3s `pkg/server/handlers` (`/cacerts`, `/v1-k3s/client-kubelet.crt`), `pkg/server/auth`.

use axum::body::Bytes;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, Method, StatusCode};

use super::auth::User;
use super::pki::{Pki, certificate_bearer};
use super::{KubeInner, spec::Distribution};

/// Whether these are paths of the supervisor.
pub(super) fn is_for(of: Distribution, segments: &[String]) -> bool {
    let front = segments.first().map_or("", String::as_str);
    of.program()
        .is_some_and(|program| front == "cacerts" || front == format!("v1-{program}"))
}

fn refused(code: StatusCode, why: &str) -> Response {
    (code, why.to_owned()).into_response()
}

/// Answers one request.
pub(super) fn answer(
    inner: &KubeInner,
    (method, segments): (&Method, &[String]),
    user: &User,
    headers: &HeaderMap,
    body: &Bytes,
) -> Response {
    if segments.len() == 1 {
        return inner.pki.pem().to_owned().into_response();
    }
    if !user.is_in("system:bootstrappers") && user.node().is_none() {
        return refused(StatusCode::FORBIDDEN, "forbidden");
    }
    let known = segments.len() == 2 && segments[1] == "client-kubelet.crt";
    if !known || method != Method::POST {
        return refused(StatusCode::NOT_FOUND, "404 page not found");
    }
    let program = inner.spec.distribution.program().unwrap_or_default();
    let header = |name: &str| {
        let value = headers.get(format!("{program}-{name}"));
        value.and_then(|value| value.to_str().ok()).unwrap_or("")
    };
    let (node, password) = (header("node-name"), header("node-password"));
    if node.is_empty() || password.is_empty() {
        return refused(StatusCode::BAD_REQUEST, "node name and password not set");
    }
    let request = String::from_utf8_lossy(body);
    let subject = match Pki::subject(&request) {
        Ok(subject) if subject.name == format!("system:node:{node}") => subject,
        _ => return refused(StatusCode::BAD_REQUEST, "the request is for another node"),
    };
    let mut state = inner.lock();
    let serial = state.roll(u64::MAX);
    match inner.pki.sign(&request, serial, state.now) {
        Ok(certificate) => {
            let bearer = certificate_bearer(&certificate);
            state.issued.insert(bearer, subject);
            certificate.into_response()
        }
        Err(error) => refused(StatusCode::BAD_REQUEST, &error.to_string()),
    }
}

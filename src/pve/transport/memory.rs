//! The end in this process: a router is called as a service, nothing leaves the program.

use std::fmt;

use axum::Router;
use axum::body::Body;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{HeaderName, HeaderValue};
use http_body_util::{BodyExt as _, Limited};
use serde_json::Value;
use tower::ServiceExt as _;

use super::answer::{HttpAnswer, reason};
use super::{CallEffect, CallError, MAX_ANSWER, MAX_BODY, PveRequest, Transport};

/// A short name for benches, which have no other memory.
pub use self::RouterTransport as Memory;

/// Calls an [`axum::Router`] that speaks PVE's API.
#[derive(Clone)]
pub struct RouterTransport {
    router: Router,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl RouterTransport {
    /// An end on `router`.
    pub fn new(router: Router) -> RouterTransport {
        RouterTransport {
            router,
            headers: Vec::new(),
        }
    }

    /// This end, sending one more header with every call (credentials of a simulated user).
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> RouterTransport {
        self.headers.push((name, value));
        self
    }

    async fn exchange(&self, request: &PveRequest) -> Result<Value, CallError> {
        let content = request.content();
        let length = content.as_ref().map_or(0, |(_, body)| body.len());
        if length > MAX_BODY {
            return Err(CallError::new(
                CallEffect::NotSent,
                "the request's body is larger than PVE takes (512 KiB)",
            ));
        }
        let mut builder = http::Request::builder()
            .method(request.method.as_http())
            .uri(request.target())
            .header(http::header::HOST, "pve");
        for (name, value) in &self.headers {
            builder = builder.header(name, value);
        }
        let mut body = Body::empty();
        if let Some((kind, bytes)) = content {
            builder = builder.header(http::header::CONTENT_TYPE, kind);
            body = Body::from(bytes);
        }
        let built = builder.body(body).map_err(|error| {
            CallError::new(CallEffect::NotSent, format!("cannot be written: {error}"))
        })?;
        let response = match self.router.clone().oneshot(built).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let (head, answer) = response.into_parts();
        let answer = Limited::new(answer, MAX_ANSWER).collect().await;
        let answer = answer.map_err(|error| {
            CallError::new(
                CallEffect::Unknown,
                format!("the answer broke off: {error}"),
            )
        })?;
        HttpAnswer {
            status: head.status.as_u16(),
            reason: reason(&head.extensions, head.status),
            body: &answer.to_bytes(),
        }
        .read()
    }
}

impl fmt::Debug for RouterTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memory")
    }
}

impl Transport for RouterTransport {
    fn call(&self, request: PveRequest) -> BoxFuture<'_, Result<Value, CallError>> {
        async move {
            match tokio::time::timeout(request.timeout, self.exchange(&request)).await {
                Ok(answer) => answer.map_err(|error| error.about(&request)),
                Err(_) => Err(CallError::new(
                    CallEffect::Unknown,
                    format!("no answer within {:?}", request.timeout),
                )
                .about(&request)),
            }
        }
        .boxed()
    }
}

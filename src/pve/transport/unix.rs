//! The end to the broker's unix socket: for `channel = "local"`.

use std::path::{Path, PathBuf};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::HeaderMap;
use serde_json::Value;

use super::answer::HttpAnswer;
use super::tls::{self, CertificateTrust};
use super::wire::{chain, client_builder, exchange};
use super::{CallEffect, CallError, MAX_ANSWER, PveRequest, Transport};

/// The header in which the broker says what became of a call.
pub const OUTCOME_HEADER: &str = "x-pve-autoscaler-outcome";

/// HTTP over the broker's socket.
#[derive(Debug)]
pub struct UnixSocket {
    client: reqwest::Client,
    path: PathBuf,
}

impl UnixSocket {
    /// An end on the socket at `path`; nothing is sent yet.
    pub fn new(path: &Path) -> Result<UnixSocket, CallError> {
        // No TLS is spoken here; reqwest wants a configuration all the same, so it trusts nobody.
        let nobody = tls::client(CertificateTrust::Leaves(Vec::new()))
            .map_err(|error| CallError::new(CallEffect::NotSent, error))?;
        let client = client_builder()
            .tls_backend_preconfigured(nobody)
            .unix_socket(path)
            .build()
            .map_err(|error| CallError::new(CallEffect::NotSent, chain(&error)))?;
        Ok(UnixSocket {
            client,
            path: path.to_owned(),
        })
    }

    async fn exchange(&self, request: &PveRequest) -> Result<Value, CallError> {
        let got = exchange(
            &self.client,
            "http://broker",
            request,
            HeaderMap::new(),
            (request.timeout, MAX_ANSWER),
        )
        .await
        .map_err(|error| CallError {
            message: format!("broker at {}: {}", self.path.display(), error.message).into(),
            ..error
        })?;
        let answer = HttpAnswer {
            status: got.status,
            reason: got.reason,
            body: &got.body,
        };
        let said = got.headers.get(OUTCOME_HEADER);
        match said.and_then(|value| value.to_str().ok()) {
            Some("done") => answer.read(),
            Some("refused") => Err(answer.error(CallEffect::Refused)),
            Some("refused-by-broker") => Err(answer.error(CallEffect::RefusedByBroker)),
            Some("not-sent") => Err(answer.error(CallEffect::NotSent)),
            Some("unknown") => Err(answer.error(CallEffect::Unknown)),
            // Not our broker, or one that speaks another language: nothing can be concluded.
            _ => Err(CallError {
                message: format!(
                    "what listens at {} answered without saying what became of the call; is it the broker of this version? ({})",
                    self.path.display(),
                    answer.error(CallEffect::Unknown).message,
                )
                .into(),
                ..answer.error(CallEffect::Unknown)
            }),
        }
    }
}

impl Transport for UnixSocket {
    fn call(&self, request: PveRequest) -> BoxFuture<'_, Result<Value, CallError>> {
        async move {
            // The broker takes plain forms alone, and makes of them what PVE wants.
            let request = PveRequest {
                multipart: false,
                ..request
            };
            self.exchange(&request)
                .await
                .map_err(|error| error.about(&request))
        }
        .boxed()
    }
}

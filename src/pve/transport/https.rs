//! The end over HTTPS with an API token: for `channel = "token"`.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{HeaderMap, HeaderValue, header};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use tokio::time::Instant;

use super::answer::HttpAnswer;
use super::tls::{self, CertificateTrust};
use super::wire::{client_builder, exchange};
use super::{CallEffect, CallError, HttpMethod, MAX_ANSWER, PveRequest, Transport};

/// How a PVE API is reached by token.
#[derive(Clone, Debug)]
pub struct TokenOptions {
    /// `https://host:8006`, tried in turn.
    pub endpoints: Vec<String>,
    /// `user@realm!name`.
    pub token_id: String,
    /// The token's secret.
    pub secret: SecretString,
    /// CA bundle to trust.
    pub ca_file: Option<PathBuf>,
    /// SHA-256 fingerprint of the leaf, as PVE shows it; goes before `ca_file`.
    pub fingerprint: Option<String>,
}

/// Why the end cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot set up the HTTPS channel to PVE: {0}")]
pub struct SetupError(pub(super) String);

/// HTTPS with an API token.
#[derive(Debug)]
pub struct Https {
    client: reqwest::Client,
    endpoints: Vec<String>,
    /// The endpoint that answered last.
    current: AtomicUsize,
    authorization: HeaderValue,
}

impl Https {
    /// Makes the end; nothing is sent yet.
    pub fn new(options: &TokenOptions) -> Result<Https, SetupError> {
        let trust = match (&options.fingerprint, &options.ca_file) {
            (Some(text), _) => {
                CertificateTrust::Leaves(vec![tls::parse(text).ok_or_else(|| {
                    SetupError(format!(
                        "fingerprint {text:?} is not 32 bytes in hexadecimal (AA:BB:…)"
                    ))
                })?])
            }
            (None, Some(path)) => {
                CertificateTrust::Issuers(crate::pve::certificates(path).map_err(SetupError)?)
            }
            (None, None) => {
                return Err(SetupError(
                    "neither ca_file nor fingerprint is set; for a publicly issued certificate \
                     name the system's bundle, /etc/ssl/certs/ca-certificates.crt"
                        .to_owned(),
                ));
            }
        };
        let endpoints = options
            .endpoints
            .iter()
            .map(|endpoint| check(endpoint))
            .collect::<Result<Vec<_>, _>>()?;
        if endpoints.is_empty() {
            return Err(SetupError("no endpoint is given".to_owned()));
        }
        let text = format!(
            "PVEAPIToken={}={}",
            options.token_id,
            options.secret.expose_secret().trim()
        );
        let mut authorization = HeaderValue::from_str(&text).map_err(|_| {
            SetupError("token id or secret has characters no header can carry".to_owned())
        })?;
        authorization.set_sensitive(true);
        let client = client_builder()
            .tls_backend_preconfigured(tls::client(trust).map_err(SetupError)?)
            .https_only(true)
            .build()
            .map_err(|error| SetupError(super::wire::chain(&error)))?;
        Ok(Https {
            client,
            endpoints,
            current: AtomicUsize::new(0),
            authorization,
        })
    }

    async fn attempts(&self, request: &PveRequest) -> Result<Value, CallError> {
        let end = Instant::now() + request.timeout;
        // A read that broke may be repeated, once more than there are endpoints; a change only
        // moves on when it was surely not sent.
        let most = self.endpoints.len() + usize::from(request.method == HttpMethod::Get);
        let mut last = CallError::new(CallEffect::NotSent, "no endpoint was tried");
        for attempt in 0..most {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let at = self.current.load(Ordering::Relaxed) % self.endpoints.len();
            match self.once(request, at, self.share(request, left)).await {
                Ok(answer) => return answer,
                Err(error) => {
                    // Whatever comes next, it begins at the next endpoint.
                    self.current.store(at + 1, Ordering::Relaxed);
                    let again = match error.outcome {
                        CallEffect::NotSent => attempt + 1 < self.endpoints.len(),
                        _ => request.method == HttpMethod::Get,
                    };
                    last = error;
                    if !again {
                        break;
                    }
                }
            }
        }
        Err(last)
    }

    /// The time of one attempt: a read leaves half for the next endpoint, lest one that accepts and
    /// never answers takes it all.
    fn share(&self, request: &PveRequest, left: Duration) -> Duration {
        if request.method == HttpMethod::Get && self.endpoints.len() > 1 {
            left / 2
        } else {
            left
        }
    }

    /// One exchange with one endpoint: the outer error is a connection's, the inner PVE's answer.
    async fn once(
        &self,
        request: &PveRequest,
        at: usize,
        timeout: Duration,
    ) -> Result<Result<Value, CallError>, CallError> {
        let endpoint = &self.endpoints[at];
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, self.authorization.clone());
        let got = exchange(
            &self.client,
            endpoint,
            request,
            headers,
            (timeout, MAX_ANSWER),
        )
        .await
        .map_err(|error| CallError {
            message: format!("{endpoint}: {}", error.message).into(),
            ..error
        })?;
        Ok(HttpAnswer {
            status: got.status,
            reason: got.reason,
            body: &got.body,
        }
        .read())
    }
}

fn check(endpoint: &str) -> Result<String, SetupError> {
    let endpoint = endpoint.trim_end_matches('/');
    let host = endpoint.strip_prefix("https://").unwrap_or_default();
    if host.is_empty() || host.contains(['/', '?', '#', '@']) {
        return Err(SetupError(format!(
            "endpoint {endpoint:?} is not of the form https://host:8006"
        )));
    }
    Ok(endpoint.to_owned())
}

impl Transport for Https {
    fn call(&self, request: PveRequest) -> BoxFuture<'_, Result<Value, CallError>> {
        async move {
            self.attempts(&request)
                .await
                .map_err(|error| error.about(&request))
        }
        .boxed()
    }
}

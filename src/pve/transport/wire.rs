//! One HTTP exchange over reqwest, for the ends that leave this process.

use std::time::Duration;

use http::HeaderMap;

use super::answer::reason;
use super::{CallEffect, CallError, MAX_BODY, PveRequest};

/// pveproxy drops a connection that idled 5 s: ours goes first, so that no request meets a closing
/// one.
const POOL_IDLE: Duration = Duration::from_secs(3);
/// Idle connections kept per endpoint: the loop reads with at most this many calls side by side.
const POOL_SIZE: usize = 4;
/// For the TCP (or unix) connection and TLS; shorter than every call's deadline, so that a
/// connection that never came is known as "not sent".
const CONNECT: Duration = Duration::from_secs(5);

/// What both ends ask of reqwest: HTTP/1.1 (PVE speaks nothing else), no proxy, no redirects, no
/// retries of its own, no connection kept longer than PVE keeps it.
pub(crate) fn client_builder() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .http1_only()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .pool_idle_timeout(POOL_IDLE)
        .pool_max_idle_per_host(POOL_SIZE)
        .connect_timeout(CONNECT)
}

/// A complete answer.
pub(crate) struct Exchange {
    pub(crate) status: u16,
    pub(crate) reason: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// Sends `request` to `base` (`https://host:8006`) and reads the whole answer, of at most so many bytes,
/// within `timeout`.
pub(crate) async fn exchange(
    client: &reqwest::Client,
    base: &str,
    request: &PveRequest,
    sent: HeaderMap,
    (timeout, most): (Duration, usize),
) -> Result<Exchange, CallError> {
    let content = request.content();
    let length = content.as_ref().map_or(0, |(_, body)| body.len());
    if length > MAX_BODY {
        return Err(CallError::new(
            CallEffect::NotSent,
            "the request's body is larger than PVE takes (512 KiB)",
        ));
    }
    let mut builder = client
        .request(
            request.method.as_http(),
            format!("{base}{}", request.target()),
        )
        .headers(sent)
        .timeout(timeout);
    if let Some((kind, body)) = content {
        builder = builder.header(http::header::CONTENT_TYPE, kind).body(body);
    }
    let mut response = builder.send().await.map_err(|error| failure(&error))?;
    let status = response.status();
    let reason = reason(response.extensions(), status);
    let headers = response.headers().clone();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| failure(&error))? {
        if body.len() + chunk.len() > most {
            return Err(CallError::new(
                CallEffect::Unknown,
                format!("the answer is larger than {most} bytes"),
            ));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Exchange {
        status: status.as_u16(),
        reason,
        headers,
        body,
    })
}

/// Only a connection that never stood is sure not to have carried the request.
fn failure(error: &reqwest::Error) -> CallError {
    let outcome = if error.is_connect() || error.is_builder() {
        CallEffect::NotSent
    } else {
        CallEffect::Unknown
    };
    CallError::new(outcome, chain(error))
}

/// An error and what it stands on, without repetition.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(cause) = below {
        let more = cause.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        below = cause.source();
    }
    text
}

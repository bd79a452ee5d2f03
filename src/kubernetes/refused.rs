//! What an answer of the API server that is not 2xx says.

use http::{StatusCode, header};
use serde::Deserialize;

use super::client::KubeReply;
use super::error::{ApiCall, KubeError};
use crate::model::time::Span;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ApiStatus {
    reason: Option<String>,
    message: Option<String>,
    details: Option<StatusDetails>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct StatusDetails {
    retry_after_seconds: Option<i64>,
    causes: Option<Vec<StatusCause>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StatusCause {
    message: Option<String>,
}

/// Text of an answer that is no `Status`, at most this long in an error.
const MAX_QUOTE: usize = 300;
/// Causes of a refusal that are told at most; a bad object may have one for every field.
const MAX_CAUSES: usize = 3;

/// The error for an answer that is not 2xx.
pub(super) fn refusal(
    call: &ApiCall,
    status: StatusCode,
    reply: &KubeReply,
    changes: bool,
) -> KubeError {
    let parsed: ApiStatus = serde_json::from_slice(&reply.body).unwrap_or_default();
    let mut message = parsed.message.unwrap_or_else(|| {
        let text = String::from_utf8_lossy(&reply.body);
        text.trim().chars().take(MAX_QUOTE).collect()
    });
    let details = parsed.details.unwrap_or_default();
    for cause in details.causes.into_iter().flatten().take(MAX_CAUSES) {
        // A blocked eviction names its budget here alone.
        if let Some(cause) = cause.message.filter(|cause| !message.contains(cause)) {
            message.push_str(": ");
            message.push_str(&cause);
        }
    }
    let code = status.as_u16();
    // A 5xx to a change may come after etcd took it ("etcdserver: request timed out").
    if changes && status.is_server_error() {
        return KubeError::Unknown {
            call: call.clone(),
            code: Some(code),
            message: message.into(),
        };
    }
    let header = reply
        .headers
        .get(header::RETRY_AFTER)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.trim().parse().ok());
    KubeError::Refused {
        call: call.clone(),
        code,
        reason: parsed.reason.unwrap_or_default().into(),
        message: message.into(),
        retry_after: header
            .or(details.retry_after_seconds)
            .filter(|seconds| *seconds >= 0)
            .map(|seconds| Span::seconds(seconds.min(MAX_RETRY_AFTER))),
    }
}

/// A longer `Retry-After`, in seconds, is cut to this. API servers ask for seconds; an hour is what the maintenance page of a load balancer says,
/// which may be over in a minute.
const MAX_RETRY_AFTER: i64 = 60;

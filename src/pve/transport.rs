//! The seam to PVE: one call in, data or a classified error out.
//!
//! Three ends: [`unix::UnixSocket`] to the broker, [`https::Https`] with an API token ([`token_file::TokenFile`] where its secret
//! stands in a file), [`memory::RouterTransport`] on a router in this process. All read answers in `answer` alone, so an error
//! means the same whichever way it came.

pub(crate) mod answer;
pub mod https;
pub mod memory;
pub mod tls;
pub mod token_file;
pub mod unix;
pub(crate) mod wire;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;

use super::remedy;
use super::texts::FailureCause;
use crate::model::foreign::ForeignText;
use crate::model::time::Span;

/// Every PVE path begins with this on the wire.
pub const BASE: &str = "/api2/json";
/// A call that was given up is carried out this long after it was sent at the latest: it may wait in a proxy, or in a
/// connection that stalls (docs/decisions/calls-that-come-late.md).
pub const LATE_CALL: Span = Span::minutes(5);
/// Largest request body in bytes: PVE refuses more with 501 (pve-http-server AnyEvent.pm).
pub const MAX_BODY: usize = 512 * 1024;
/// Largest answer read, in bytes: a guest command's output of 2 × 16 MiB is cut by PVE before, ten
/// thousand VMs in the resources are 6 MB.
pub const MAX_ANSWER: usize = 40 * 1024 * 1024;

/// An HTTP method that PVE knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HttpMethod {
    /// Reads; may be repeated.
    Get,
    /// Does.
    Post,
    /// Changes.
    Put,
    /// Removes.
    Delete,
}

impl HttpMethod {
    /// The method on the wire.
    pub fn as_http(self) -> http::Method {
        match self {
            HttpMethod::Get => http::Method::GET,
            HttpMethod::Post => http::Method::POST,
            HttpMethod::Put => http::Method::PUT,
            HttpMethod::Delete => http::Method::DELETE,
        }
    }

    /// Parameters go into the query, not into a form.
    pub fn has_query(self) -> bool {
        matches!(self, HttpMethod::Get | HttpMethod::Delete)
    }
}

impl fmt::Display for HttpMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HttpMethod::Get => "GET",
            HttpMethod::Post => "POST",
            HttpMethod::Put => "PUT",
            HttpMethod::Delete => "DELETE",
        })
    }
}

/// One call. Its `Debug` shows parameter names only: values may be secret.
#[derive(Clone, PartialEq, Eq)]
pub struct PveRequest {
    /// What is called, without ids: a label for metrics, such as `clone`.
    pub call: &'static str,
    /// The method.
    pub method: HttpMethod,
    /// Below [`BASE`], segments percent-encoded: `/nodes/pve1/qemu/100/config`.
    pub path: String,
    /// Query for GET and DELETE, form for POST and PUT; a repeated key is an array.
    pub params: Vec<(String, String)>,
    /// PVE takes files in no plain form: this one goes as `multipart/form-data`, its parameter `file` (base64) being the file. The
    /// broker takes it as a plain form, and sends it on as this.
    pub multipart: bool,
    /// The whole call must end in this time.
    pub timeout: Duration,
}

impl PveRequest {
    /// Path and, for GET and DELETE, query as they stand in the request line.
    pub fn target(&self) -> String {
        // The broker's own calls lie beside PVE's.
        let base = if self.path.starts_with("/broker/") {
            ""
        } else {
            BASE
        };
        if self.method.has_query() && !self.params.is_empty() {
            format!("{base}{}?{}", self.path, super::form(&self.params))
        } else {
            format!("{base}{}", self.path)
        }
    }

    /// What stands in the body for POST and PUT, and its content type.
    pub fn content(&self) -> Option<(String, Vec<u8>)> {
        let file = self
            .multipart
            .then(|| super::encode::multipart(&self.params));
        let form = || {
            let kind = "application/x-www-form-urlencoded".to_owned();
            Some((kind, self.body()?.into_bytes()))
        };
        file.flatten().or_else(form)
    }

    /// The plain form, for POST and PUT.
    pub fn body(&self) -> Option<String> {
        (!self.method.has_query()).then(|| super::form(&self.params))
    }
}

impl fmt::Debug for PveRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.params.iter().map(|(key, _)| key.as_str()).collect();
        write!(f, "{} {} {names:?}", self.method, self.path)
    }
}

/// A way to the PVE API.
pub trait Transport: Send + Sync + fmt::Debug {
    /// Makes one call and gives the answer's `data`.
    fn call(&self, request: PveRequest) -> BoxFuture<'_, Result<Value, CallError>>;
}

/// Whether a failed call was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallEffect {
    /// No: nothing was sent.
    NotSent,
    /// No: the broker does not allow it.
    RefusedByBroker,
    /// No: PVE answered with an error.
    Refused,
    /// Perhaps: look again before acting.
    Unknown,
}

impl fmt::Display for CallEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CallEffect::NotSent => "not sent",
            CallEffect::RefusedByBroker => "refused by the broker",
            CallEffect::Refused => "refused by PVE",
            CallEffect::Unknown => "outcome unknown",
        })
    }
}

/// A call that gave no data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError {
    /// Whether it was carried out.
    pub outcome: CallEffect,
    /// The answer's status, when one came.
    pub status: Option<u16>,
    /// What came back, or why nothing did.
    pub message: ForeignText,
    /// PVE's complaint about each parameter.
    pub errors: BTreeMap<ForeignText, ForeignText>,
    /// Method and path of the call.
    pub call: String,
    /// What to do about it, where the end knows that.
    pub advice: Option<String>,
}

impl CallError {
    /// An error without an answer.
    pub fn new(outcome: CallEffect, message: impl Into<ForeignText>) -> CallError {
        CallError {
            outcome,
            status: None,
            message: message.into(),
            errors: BTreeMap::new(),
            call: String::new(),
            advice: None,
        }
    }

    /// This error, naming the call it is about, and what to do about it if that is known.
    #[must_use]
    pub fn about(mut self, request: &PveRequest) -> CallError {
        self.call = format!("{} {}", request.method, request.path);
        if self.advice.is_none() {
            self.advice = remedy::of_call(&self, request);
        }
        self
    }

    /// What came back, without what to do about it: for whoever says that beside it.
    pub fn words(&self) -> String {
        let bare = CallError {
            advice: None,
            ..self.clone()
        };
        bare.to_string()
    }

    /// What the error is about, by PVE's text. What was not sent has no cause of PVE's.
    pub fn cause(&self) -> FailureCause {
        match self.outcome {
            CallEffect::NotSent => FailureCause::HostUnreachable,
            // The broker says what it sees itself (a taken VMID, a changed digest) in PVE's words.
            CallEffect::RefusedByBroker | CallEffect::Refused | CallEffect::Unknown => {
                match FailureCause::of(&self.message) {
                    FailureCause::Other => self
                        .errors
                        .values()
                        .map(|text| FailureCause::of(text))
                        .find(|cause| *cause != FailureCause::Other)
                        .unwrap_or(FailureCause::Other),
                    cause => cause,
                }
            }
        }
    }

    /// The call may have had its effect.
    pub fn maybe_done(&self) -> bool {
        self.outcome == CallEffect::Unknown
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.call.is_empty() {
            write!(f, "PVE call ")?;
        } else {
            write!(f, "PVE call {} ", self.call)?;
        }
        write!(f, "failed ({}", self.outcome)?;
        if let Some(status) = self.status {
            write!(f, ", status {status}")?;
        }
        write!(f, "): {}", self.message)?;
        for (parameter, complaint) in &self.errors {
            write!(f, "; {parameter}: {}", complaint.trim())?;
        }
        if let Some(advice) = &self.advice {
            write!(f, "; {advice}")?;
        }
        Ok(())
    }
}

impl std::error::Error for CallError {}

#[cfg(test)]
mod tests;

//! What went wrong with a call to the API server, and whether it may have been carried out.

use crate::model::foreign::ForeignText;
use crate::model::time::Span;

/// What is said of an API server that is silent; the span follows.
pub(super) const NO_ANSWER: &str = "no answer";

/// The API server in words.
pub(super) fn server_of(url: &str) -> String {
    if url.is_empty() {
        "Kubernetes".to_owned()
    } else {
        format!("Kubernetes at {url}")
    }
}

/// A call in words, for errors, logs and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiCall {
    /// Kubernetes' verb: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`.
    pub verb: &'static str,
    /// Plural resource, with the subresource: `pods`, `pods/eviction`.
    pub kind: &'static str,
    /// The object, `namespace/name` or `name`; empty for lists.
    pub name: String,
}

impl std::fmt::Display for ApiCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.verb, self.kind)?;
        if self.name.is_empty() {
            Ok(())
        } else {
            write!(f, " {}", self.name)
        }
    }
}

/// Why a call failed. The variant says whether a change may have been carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeError {
    /// It never left this host, or no connection came about: not carried out.
    #[error("{call} was not sent: {message}")]
    NotSent {
        /// The call.
        call: ApiCall,
        /// What hindered it, and what to do.
        message: ForeignText,
    },
    /// The API server said no: not carried out.
    #[error("{call} was refused with {code} {reason}: {message}")]
    Refused {
        /// The call.
        call: ApiCall,
        /// HTTP status.
        code: u16,
        /// `status.reason`, such as `NotFound`, `Conflict`, `AlreadyExists`; empty when absent.
        reason: ForeignText,
        /// `status.message`.
        message: ForeignText,
        /// `Retry-After`, or `details.retryAfterSeconds`.
        retry_after: Option<Span>,
    },
    /// Nobody knows: look again before acting. A read that failed this way can simply be repeated.
    #[error("the outcome of {call} is unknown: {message}")]
    Unknown {
        /// The call.
        call: ApiCall,
        /// HTTP status, if there was one.
        code: Option<u16>,
        /// What came instead of an answer.
        message: ForeignText,
    },
}

impl KubeError {
    /// The HTTP status, if an answer came.
    pub fn code(&self) -> Option<u16> {
        match self {
            KubeError::NotSent { .. } => None,
            KubeError::Refused { code, .. } => Some(*code),
            KubeError::Unknown { code, .. } => *code,
        }
    }

    /// The object is not there (404).
    pub fn not_found(&self) -> bool {
        matches!(self, KubeError::Refused { code: 404, .. })
    }

    /// The caller may not do this to any such object of the namespace: an authorizer says so, in Kubernetes' own words. An admission webhook
    /// that refuses this object alone may answer with 403, too.
    pub fn lacks_right(&self) -> bool {
        matches!(self, KubeError::Refused { code: 403, message, .. }
            if message.contains("\" cannot ") && message.contains(" resource \""))
    }

    /// Somebody else changed the object first, or a precondition failed (409).
    pub fn conflict(&self) -> bool {
        matches!(self, KubeError::Refused { code: 409, .. })
    }

    /// An object of this name is there already (409 `AlreadyExists`).
    pub fn already_exists(&self) -> bool {
        matches!(self, KubeError::Refused { code: 409, reason, .. } if *reason == "AlreadyExists")
    }

    /// A change may have been carried out all the same.
    pub fn maybe_done(&self) -> bool {
        matches!(self, KubeError::Unknown { .. })
    }

    /// What is behind it, in the same words for every call that it hinders: an API server that is away is one
    /// fault, however many calls find it so. A refusal of this call alone is told with the call.
    pub fn cause(&self) -> String {
        let (code, message) = match self {
            KubeError::NotSent { message, .. } => (None, message),
            KubeError::Unknown { code, message, .. } => (*code, message),
            KubeError::Refused {
                code: code @ (401 | 429 | 500..),
                message,
                ..
            } => (Some(*code), message),
            KubeError::Refused { .. } => return self.to_string(),
        };
        // How long was waited differs from call to call.
        let message = match message.split_once(NO_ANSWER) {
            Some((before, _)) => format!("{before}{NO_ANSWER}"),
            None => message.to_string(),
        };
        match code.filter(|code| *code >= 400) {
            Some(code) => format!("Kubernetes answers with {code}: {message}"),
            None => message,
        }
    }

    /// The call that failed.
    pub fn call(&self) -> &ApiCall {
        match self {
            KubeError::NotSent { call, .. }
            | KubeError::Refused { call, .. }
            | KubeError::Unknown { call, .. } => call,
        }
    }
}

/// An error with its causes, each said once.
pub(super) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

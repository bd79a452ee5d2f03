//! Which failures of a call pass by themselves.

use crate::pve::transport::{CallEffect, CallError};

/// Whether waiting may mend a Kubernetes call that failed. A change whose outcome is unknown counts: all our changes may be
/// repeated. So does a 403: every API server answers so for some seconds after its start, until it has read the roles.
pub(super) fn is_transient_kube(error: &crate::kubernetes::KubeError) -> bool {
    match error.code() {
        None => true,
        Some(code) => error.maybe_done() || matches!(code, 401 | 403 | 409 | 429 | 500..=599),
    }
}

/// Whether waiting may mend it: nothing wrong with the call itself.
pub(super) fn is_transient(error: &CallError) -> bool {
    match error.outcome {
        CallEffect::NotSent | CallEffect::Unknown => true,
        CallEffect::RefusedByBroker => false,
        CallEffect::Refused => {
            error.cause().passes()
                || matches!(error.status, Some(401 | 429 | 502..=504 | 595..=599))
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::{is_transient, is_transient_kube};
    use crate::kubernetes::{ApiCall, KubeError};
    use crate::pve::transport::{CallEffect, CallError};

    fn call() -> ApiCall {
        ApiCall {
            verb: "get",
            kind: "nodes",
            name: "m1".to_owned(),
        }
    }

    fn refused_with(code: u16) -> KubeError {
        KubeError::Refused {
            call: call(),
            code,
            reason: String::new().into(),
            message: "no".into(),
            retry_after: None,
        }
    }

    fn unknown_with(code: Option<u16>) -> KubeError {
        KubeError::Unknown {
            call: call(),
            code,
            message: "cut short".into(),
        }
    }

    #[test]
    fn of_kubernetes_what_passes_and_what_nobody_knows_is_tried_again() {
        for code in [401, 403, 409, 429, 500, 503, 599] {
            assert!(is_transient_kube(&refused_with(code)), "{code}");
        }
        for code in [400, 404, 410, 422, 499, 600] {
            assert!(!is_transient_kube(&refused_with(code)), "{code}");
            assert!(is_transient_kube(&unknown_with(Some(code))), "{code}");
        }
        assert!(is_transient_kube(&unknown_with(None)));
        let not_sent = KubeError::NotSent {
            call: call(),
            message: "no way".into(),
        };
        assert!(is_transient_kube(&not_sent));
    }

    #[test]
    fn of_pve_a_refusal_counts_by_its_words_or_its_status() {
        let error = |outcome, status, message: &str| CallError {
            status,
            ..CallError::new(outcome, message)
        };
        for outcome in [CallEffect::NotSent, CallEffect::Unknown] {
            assert!(is_transient(&error(outcome, None, "nobody answers")));
        }
        let locked = "VM is locked (backup)";
        for (status, message, passes) in [
            (500, locked, true),
            (500, "it cannot be", false),
            (400, "Parameter verification failed.", false),
            (403, "Permission check failed", false),
            (501, "Method not implemented", false),
            (401, "no ticket", true),
            (429, "too many", true),
            (502, "bad gateway", true),
            (504, "gateway timeout", true),
            (594, "it cannot be", false),
            (595, "it cannot be", true),
            (599, "it cannot be", true),
        ] {
            let refused = error(CallEffect::Refused, Some(status), message);
            assert_eq!(is_transient(&refused), passes, "{status} {message}");
            // What the broker does not allow it does not allow later either.
            let by_broker = error(CallEffect::RefusedByBroker, Some(status), message);
            assert!(!is_transient(&by_broker), "{status} {message}");
        }
    }
}

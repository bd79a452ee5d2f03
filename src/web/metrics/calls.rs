//! Calls to PVE and Kubernetes, counted at their seams.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;
use tokio::time::Instant;

use super::Metrics;
use crate::kubernetes::{CallObserver, CallOutcome};
use crate::pve::FailureCause;
use crate::pve::transport::{CallEffect, CallError, HttpMethod, PveRequest, Transport};

/// A transport whose calls are counted.
#[derive(Debug)]
pub struct Metered {
    inner: Arc<dyn Transport>,
    metrics: Arc<Metrics>,
}

impl Metered {
    /// Counts the calls of `inner`.
    pub fn new(inner: Arc<dyn Transport>, metrics: Arc<Metrics>) -> Metered {
        Metered { inner, metrics }
    }
}

impl Transport for Metered {
    fn call(&self, request: PveRequest) -> BoxFuture<'_, Result<Value, CallError>> {
        let (call, method) = (request.call, method(request.method));
        let began = Instant::now();
        Box::pin(async move {
            let result = self.inner.call(request).await;
            self.metrics
                .pve_call((call, method), result.as_ref().err(), began.elapsed());
            result
        })
    }
}

/// A method as a label.
fn method(method: HttpMethod) -> &'static str {
    match method {
        HttpMethod::Get => "get",
        HttpMethod::Post => "post",
        HttpMethod::Put => "put",
        HttpMethod::Delete => "delete",
    }
}

/// The methods of PVE's calls, as labels.
const METHODS: [&str; 4] = ["get", "post", "put", "delete"];

/// The ends of a call that are counted from zero. Each other end is a series from the first call on that ends so: all of them would be five
/// hundred series, of which hardly one is ever counted up.
const KNOWN_OUTCOMES: [&str; 2] = ["done", "refused"];

/// Whether a call failed as may be: what it asks for is not there, or not yet. Every guest boots for a while before its agent answers, and
/// VMs and tasks go while they are read.
fn is_absent(call: &str, method: &str, error: &CallError) -> bool {
    match error.cause() {
        FailureCause::AgentNotRunning | FailureCause::Agent(_) | FailureCause::Timeout => {
            call == "agent_ping"
        }
        FailureCause::Gone | FailureCause::NoSuchTask => method == "get",
        _ => false,
    }
}

impl Metrics {
    /// A PVE call is counted from zero.
    pub(super) fn pve_call_known(&self, call: &str) {
        for outcome in KNOWN_OUTCOMES {
            let series = vec![("call", call.to_owned()), ("outcome", outcome.to_owned())];
            drop(self.pve_calls.get_or_create(&series));
        }
    }

    /// The times of calls are counted from zero, too.
    pub(super) fn call_times_known(&self) {
        for method in METHODS {
            drop(
                self.pve_seconds
                    .get_or_create(&vec![("method", method.to_owned())]),
            );
        }
    }

    fn pve_call(
        &self,
        (call, method): (&'static str, &'static str),
        error: Option<&CallError>,
        took: Duration,
    ) {
        let absent = error.is_some_and(|error| is_absent(call, method, error));
        let outcome = match error.map(|error| error.outcome) {
            None => "done",
            Some(_) if absent => "absent",
            Some(CallEffect::NotSent) => "not_sent",
            Some(CallEffect::RefusedByBroker) => "refused_by_broker",
            Some(CallEffect::Refused) => "refused",
            Some(CallEffect::Unknown) => "unknown",
        };
        let series = vec![("call", call.to_owned()), ("outcome", outcome.to_owned())];
        self.pve_calls.get_or_create(&series).inc();
        self.pve_seconds
            .get_or_create(&vec![("method", method.to_owned())])
            .observe(took.as_secs_f64());
        if error.is_some() && !absent {
            self.error("cloudProviderError");
        }
    }
}

impl CallObserver for Metrics {
    fn called(&self, verb: &'static str, kind: &'static str, outcome: CallOutcome, took: Duration) {
        let call = vec![("verb", verb.to_owned()), ("kind", kind.to_owned())];
        // Which calls there are is told by the calls: the known ends of this one begin at zero with it.
        for other in KNOWN_OUTCOMES {
            let mut series = call.clone();
            series.push(("outcome", other.to_owned()));
            drop(self.kube_calls.get_or_create(&series));
        }
        let mut counted = call;
        counted.push(("outcome", outcome.label().to_owned()));
        self.kube_calls.get_or_create(&counted).inc();
        self.kube_seconds
            .get_or_create(&vec![("verb", verb.to_owned())])
            .observe(took.as_secs_f64());
        if outcome.is_error() {
            self.error("apiCallError");
        }
    }
}

//! Every metric, registered once. Gauges are made from the last turn when somebody asks; counters
//! and histograms are told of events.

mod calls;
mod events;
mod gauges;
mod observer;
mod process;
mod stores;
#[cfg(test)]
mod tests;
mod text;

use std::sync::{Mutex, PoisonError};

use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

pub use calls::Metered;

use crate::controller::turn::Turn;
use gauges::Gauges;
use process::Process;

/// The labels of one time series.
type SeriesLabels = Vec<(&'static str, String)>;
type Counters = Family<SeriesLabels, Counter>;
type Histograms = Family<SeriesLabels, Histogram, fn() -> Histogram>;

/// All metrics of the program.
#[derive(Debug)]
pub struct Metrics {
    /// What each instance tells.
    own: Registry,
    /// What the instance tells that leads.
    cluster: Registry,
    gauges: Gauges,
    process: Process,
    /// Held while the gauges are filled and written: one scrape must not see another's half.
    scrape: Mutex<()>,
    phases: Histograms,
    turns: Histograms,
    pve_calls: Counters,
    kube_calls: Counters,
    pve_seconds: Histograms,
    kube_seconds: Histograms,
    errors: Counters,
    scaled_up: Counter,
    failed_scale_ups: Counters,
    scaled_down: Counters,
    failed_scale_downs: Counters,
    evicted: Counters,
    record_lost: Counter,
    notifications: Counters,
    spans: Counters,
}

/// One second to some 70 minutes: from a fast start to a full clone of a large disk.
fn phase_buckets() -> Histogram {
    Histogram::new(exponential_buckets(1.0, 2.0, 13))
}

/// One millisecond to some 8 seconds.
fn turn_buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 14))
}

/// From a read on the same host to a call that nearly came to its deadline. Few: there is a series for each.
fn call_buckets() -> Histogram {
    Histogram::new([0.01, 0.05, 0.25, 1.0, 5.0, 30.0])
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

impl Metrics {
    /// All metrics, at their beginning.
    pub fn new() -> Metrics {
        let (mut own, mut cluster) = (Registry::default(), Registry::default());
        let gauges = Gauges::register(&mut own, &mut cluster);
        let process = Process::register(&mut own);
        let mut ours = Adder(own.sub_registry_with_prefix("pve_autoscaler"));
        let phases = ours.histogram(
            "phase_duration_seconds",
            "Time that a step of a machine's life took, by step and outcome",
            phase_buckets,
        );
        let pve_calls = ours.counter("pve_calls", "PVE calls, by call and outcome");
        let kube_calls = ours.counter("kube_calls", "Kubernetes calls, by verb, kind and outcome");
        let pve_seconds = ours.histogram(
            "pve_call_duration_seconds",
            "Time that PVE calls took, by HTTP method",
            call_buckets,
        );
        let kube_seconds = ours.histogram(
            "kube_call_duration_seconds",
            "Time that Kubernetes calls took, by verb; of watches until their headers came",
            call_buckets,
        );
        let about = "Removals that failed or were given up, by step";
        let failed_scale_downs = ours.counter("failed_scale_downs", about);
        let lost = "Decisions and events that could not be recorded";
        let record_lost = ours.single("record_lost", lost);
        let about = "Notices that were sent or could not be, by notification and outcome";
        let notifications = ours.counter("notifications", about);
        let about = "Spans of traces that were sent or lost, by outcome";
        let spans = ours.counter("trace_spans", about);
        let mut theirs = Adder(own.sub_registry_with_prefix("cluster_autoscaler"));
        let turns = theirs.histogram(
            "function_duration_seconds",
            "Time that a turn of the loop took",
            turn_buckets,
        );
        let errors = theirs.counter("errors", "Errors, by type");
        let failed_scale_ups = theirs.counter(
            "failed_scale_ups",
            "Machines that failed to become nodes, by step",
        );
        let scaled_down = theirs.counter("scaled_down_nodes", "Nodes removed, by reason");
        let evicted = theirs.counter("evicted_pods", "Pods evicted, by result");
        let scaled_up = theirs.single("scaled_up_nodes", "Nodes added");
        let metrics = Metrics {
            own,
            cluster,
            gauges,
            process,
            scrape: Mutex::new(()),
            phases,
            turns,
            pve_calls,
            kube_calls,
            pve_seconds,
            kube_seconds,
            errors,
            scaled_up,
            failed_scale_ups,
            scaled_down,
            failed_scale_downs,
            evicted,
            record_lost,
            notifications,
            spans,
        };
        metrics.begin();
        metrics
    }

    /// Everything in Prometheus' own format, for those who do not ask for OpenMetrics.
    pub fn plain_text(&self, turn: Option<&Turn>) -> String {
        text::prometheus(&self.text(turn))
    }

    /// Everything as OpenMetrics text, the gauges as of `turn`. What is of the cluster is there when this instance leads.
    pub fn text(&self, turn: Option<&Turn>) -> String {
        let _held = self.scrape.lock().unwrap_or_else(PoisonError::into_inner);
        let leads = turn.filter(|turn| turn.snapshot.leader);
        if let Some(turn) = turn {
            self.gauges.show_own(turn);
        }
        if let Some(turn) = leads {
            self.gauges.show_cluster(turn);
        }
        self.process.look();
        let mut text = String::new();
        let of_cluster = leads.map_or(Ok(()), |_| encode_registry(&mut text, &self.cluster));
        let all = of_cluster
            .and_then(|()| encode_registry(&mut text, &self.own))
            .and_then(|()| encode_eof(&mut text));
        // Writing into a string fails only if an encoder is broken; half a page is of no use then.
        if let Err(error) = all {
            tracing::error!(%error, "the metrics cannot be written");
            text.clear();
        }
        text
    }
}

/// Registers families.
struct Adder<'a>(&'a mut Registry);

impl Adder<'_> {
    fn counter(&mut self, name: &str, help: &str) -> Counters {
        let family = Counters::default();
        self.0.register(name, help, family.clone());
        family
    }

    fn single(&mut self, name: &str, help: &str) -> Counter {
        let counter = Counter::default();
        self.0.register(name, help, counter.clone());
        counter
    }

    fn histogram(&mut self, name: &str, help: &str, buckets: fn() -> Histogram) -> Histograms {
        let family = Histograms::new_with_constructor(buckets);
        self.0.register(name, help, family.clone());
        family
    }
}

//! Traces of machines' lives, where the configuration wants them.

use std::sync::Arc;

use crate::cli::host_name::identity;
use crate::clock::Clock;
use crate::config::Settings;
use crate::controller::executor::Observer;
use crate::trace::{Account, Exporter, Lives};
use crate::web::Metrics;

impl Account for Metrics {
    fn spans(&self, sent: u64, lost: u64) {
        self.trace_spans(sent, lost);
    }
}

/// Who hears what the executor does, and the way to the collector: none where no traces are wanted.
pub(super) fn begin(
    settings: &Settings,
    metrics: &Arc<Metrics>,
) -> (Arc<dyn Observer>, Option<Exporter>) {
    let observer: Arc<dyn Observer> = metrics.clone();
    let Some(telemetry) = &settings.telemetry else {
        return (observer, None);
    };
    let (exporter, sink) = Exporter::begin(telemetry, identity(), metrics.clone());
    let lives = Lives::new(observer, sink, Clock::System);
    (Arc::new(lives), Some(exporter))
}

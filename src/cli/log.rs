//! Logging: to the journal with structured fields under systemd, else to standard error.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// The environment variable with another filter, such as `debug` or `info,pve_autoscaler::pve=trace`.
pub(super) const FILTER_VARIABLE: &str = "PVE_AUTOSCALER_LOG";

/// Crates that log on `info` or `warn` what we log ourselves, with more sense, or not at all.
const DEFAULT_FILTER: &str = "info,kube_client=off,kube_runtime=off,tower=warn,hyper=warn,hyper_util=warn,h2=warn,rustls=warn,reqwest=warn";

/// Starts logging, once.
pub(super) fn start() {
    let (filter, complaint) = filter(std::env::var(FILTER_VARIABLE).ok());
    let registry = tracing_subscriber::registry().with(filter);
    // systemd sets this for a service whose output is the journal.
    let journal = std::env::var_os("JOURNAL_STREAM").and_then(|_| tracing_journald::layer().ok());
    let started = if let Some(journal) = journal {
        registry
            .with(journal.with_syslog_identifier("pve-autoscaler".to_owned()))
            .try_init()
    } else {
        let stderr = tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_ansi(std::io::stderr().is_terminal())
            .with_target(false);
        registry.with(stderr).try_init()
    };
    match (started, complaint) {
        (Err(error), _) => eprintln!("pve-autoscaler: logging did not start: {error}"),
        (Ok(()), Some(complaint)) => tracing::warn!("{complaint}"),
        (Ok(()), None) => {}
    }
}

/// The filter that is asked for; the default and a complaint when it makes no sense.
fn filter(asked: Option<String>) -> (EnvFilter, Option<String>) {
    let default = || EnvFilter::new(DEFAULT_FILTER);
    match asked.filter(|text| !text.is_empty()) {
        None => (default(), None),
        Some(text) => match EnvFilter::try_new(&text) {
            Ok(filter) => (filter, None),
            Err(error) => (
                default(),
                Some(format!(
                    "{FILTER_VARIABLE}={text:?} is not a filter ({error}); the default is used"
                )),
            ),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_makes_no_sense_is_complained_about() {
        assert!(filter(None).1.is_none());
        assert!(filter(Some("debug".into())).1.is_none());
        let (used, complaint) = filter(Some("a=b=c".into()));
        assert_eq!(used.to_string(), default_text());
        assert!(complaint.is_some_and(|text| text.contains("a=b=c")));
    }

    fn default_text() -> String {
        EnvFilter::new(DEFAULT_FILTER).to_string()
    }
}

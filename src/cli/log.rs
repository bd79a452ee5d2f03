//! Logging: to the journal with structured fields under systemd, else to standard error.

use std::fmt;
use std::io::IsTerminal as _;
use std::path::Path;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::journald::{self, JournaldLayer};
use crate::model::foreign;

/// The environment variable with another filter, such as `debug` or `info,pve_autoscaler::controller=debug`.
pub(super) const FILTER_VARIABLE: &str = "PVE_AUTOSCALER_LOG";

/// Crates that log on `info` or `warn` what we log ourselves, with more sense, or not at all.
const DEFAULT_FILTER: &str = "info,kube_client=off,kube_runtime=off,tower=warn,hyper=warn,hyper_util=warn,h2=warn,rustls=warn,reqwest=warn";

/// Starts logging, once.
pub(crate) fn start() {
    let (filter, complaint) = filter(std::env::var(FILTER_VARIABLE).ok());
    let registry = tracing_subscriber::registry().with(filter);
    // systemd sets this for a service whose output is the journal.
    let journal = std::env::var_os("JOURNAL_STREAM")
        .and_then(|_| JournaldLayer::open(Path::new(journald::SOCKET)).ok());
    let started = if let Some(journal) = journal {
        registry.with(journal).try_init()
    } else {
        let stderr = tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_ansi(std::io::stderr().is_terminal())
            .with_target(false)
            .fmt_fields(format::debug_fn(write_field).delimited(" "));
        registry.with(stderr).try_init()
    };
    match (started, complaint) {
        (Err(error), _) => super::say(&format!("pve-autoscaler: logging did not start: {error}")),
        (Ok(()), Some(complaint)) => tracing::warn!("{complaint}"),
        (Ok(()), None) => {}
    }
}

/// A field as it stands in a line of the log: a terminal may read it, and some of it is the text of others.
fn write_field(
    writer: &mut format::Writer<'_>,
    field: &tracing::field::Field,
    value: &dyn fmt::Debug,
) -> fmt::Result {
    let value = format!("{value:?}");
    let value = foreign::lines(&value);
    match field.name() {
        "message" => write!(writer, "{value}"),
        name => write!(writer, "{name}={value}"),
    }
}

/// The filter that is asked for; the default and a complaint when it makes no sense. Levels by target
/// are all it knows: what spans and fields would take costs a regular-expression engine in memory.
fn filter(asked: Option<String>) -> (Targets, Option<String>) {
    let default = || {
        DEFAULT_FILTER
            .parse()
            .unwrap_or_else(|_| everything(LevelFilter::INFO))
    };
    match asked.filter(|text| !text.is_empty()) {
        None => (default(), None),
        Some(text) => match text.parse() {
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

fn everything(level: LevelFilter) -> Targets {
    Targets::new().with_default(level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_makes_no_sense_is_complained_about() {
        assert!(filter(None).1.is_none());
        assert_eq!(
            filter(Some("debug".into())),
            (everything(LevelFilter::DEBUG), None)
        );
        let one = filter(Some("info,pve_autoscaler::controller=debug".into()));
        assert!(
            one.1.is_none()
                && one
                    .0
                    .would_enable("pve_autoscaler::controller", &tracing::Level::DEBUG)
        );
        let (used, complaint) = filter(Some("a=b=c".into()));
        assert_eq!(used, filter(None).0);
        assert!(
            !used.would_enable("kube_client", &tracing::Level::ERROR),
            "the default is read"
        );
        assert!(complaint.is_some_and(|text| text.contains("a=b=c")));
    }
}

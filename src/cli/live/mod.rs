//! `check --live`: does what the file names exist, and can we do what we will have to?
//!
//! Gathering is apart from judging; judging is pure.

mod broker;
mod clocks;
mod clones;
mod disks;
mod hosts;
mod kubernetes;
mod network;
mod region;
mod rights;
mod templates;
pub(super) mod user;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::channels;
use crate::agent::journal::Journal;
use crate::clock::Clock;
use crate::config::Settings;
use crate::config::settings::Channel;
use crate::model::time::Span;
use crate::model::words;
use crate::pve;

/// Tokens and certificates are made with times in them: a clock that is off by more than this makes
/// some of them invalid.
const MAX_SKEW: Span = Span::seconds(30);

/// What one look found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) grade: Grade,
    pub(super) text: String,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Grade {
    /// As it should be.
    Fine,
    /// It works, but somebody should look.
    Warning,
    /// It cannot work like this.
    Wrong,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let grade = match self.grade {
            Grade::Fine => "ok",
            Grade::Warning => "warning",
            Grade::Wrong => "WRONG",
        };
        write!(f, "{grade}: {}", self.text)
    }
}

/// Findings in the order they were made.
#[derive(Debug, Default)]
pub(super) struct Findings(pub(super) Vec<Finding>);

impl Findings {
    fn add(&mut self, grade: Grade, text: impl Into<String>) {
        let text = text.into();
        self.0.push(Finding { grade, text });
    }

    fn fine(&mut self, text: impl Into<String>) {
        self.add(Grade::Fine, text);
    }

    fn warning(&mut self, text: impl Into<String>) {
        self.add(Grade::Warning, text);
    }

    fn wrong(&mut self, text: impl Into<String>) {
        self.add(Grade::Wrong, text);
    }

    /// One line each.
    pub(super) fn text(&self) -> String {
        let lines = self.0.iter();
        lines.fold(String::new(), |text, finding| {
            text + &finding.to_string() + "\n"
        })
    }

    /// Whether anything cannot work.
    pub(super) fn any_wrong(&self) -> bool {
        self.0.iter().any(|finding| finding.grade == Grade::Wrong)
    }
}

/// Looks at everything that the settings name, and at the journal in the daemon's own directory.
pub(super) async fn look(settings: &Settings, state: &Path, mut findings: Findings) -> Findings {
    user::files(settings, &mut findings);
    let cluster = kubernetes::look(settings, Clock::System, &mut findings).await;
    if let Some(id) = &cluster {
        journal(state, id, &mut findings);
    }
    for (name, region) in &settings.regions {
        match channels::open(region, &settings.broker.socket) {
            Ok(transport) => {
                let client = pve::Client::new(transport);
                if region.channel == Channel::Local {
                    broker::look(&client, name, settings, cluster.as_ref(), &mut findings).await;
                }
                let looked = region::look(&client, name, settings, &mut findings).await;
                if let Some(seen) = looked {
                    region::judge(&seen, name, settings, cluster.as_ref(), &mut findings);
                    rights::look(&client, name, &seen, settings, &mut findings).await;
                    network::look(&client, name, &seen, settings, &mut findings).await;
                    disks::look(&client, name, &seen.resources, settings, &mut findings).await;
                }
            }
            Err(error) => findings.wrong(format!("region {name}: {error:#}")),
        }
    }
    findings
}

/// Whether the journal was written for this cluster.
fn journal(state: &Path, cluster: &str, findings: &mut Findings) {
    match Journal::former(state, cluster) {
        Ok(former) => {
            for (cluster, machines) in former.by_cluster() {
                findings.warning(format!(
                    "journal: {} of the cluster {cluster}, which is not this one: they are not counted; `pve-autoscaler adopt` sets them aside",
                    words::are(machines.len(), "machine")
                ));
            }
        }
        Err(error) => findings.warning(format!("journal: {error}")),
    }
}

/// Our cluster's id, when it is known.
type ClusterId = Arc<str>;

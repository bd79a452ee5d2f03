//! Notifications: those whom the configuration names are told when a person must do something, and when it is over.
//!
//! Nothing is queued: what is due is asked of the ledger each time somebody can be told, so that after an hour
//! without a network one notice says how things stand. It runs beside the loop and never in its way.

pub mod ledger;
pub mod mail;
mod webhook;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::clock::Clock;
use crate::config::notification::{NotificationChannel, NotificationSettings, Webhook};
use crate::controller::conditions::FoundConditions;
use crate::controller::journal::write_durably;
use crate::controller::state::StateFiles;
use crate::model::condition::Severity;
use crate::model::notice::{Due, Notice, NoticeSource};
use crate::model::time::Time;
use crate::model::tolerant;
use crate::model::words;

pub(crate) use crate::post::PostObstacle;
pub use ledger::{Ledger, Targets};

/// How often it is looked.
const LOOK: Duration = Duration::from_secs(5);
/// After a first failure it is tried again so soon; then twice as late each time …
const FIRST_PAUSE: Duration = Duration::from_secs(30);
/// … up to this.
const LONGEST_PAUSE: Duration = Duration::from_mins(30);
/// The ledger, in the state directory.
const FILE: &str = "notifications.json";

/// Who is to be told, and by whom.
#[derive(Clone, Debug)]
pub struct Whom {
    /// By name.
    pub targets: Arc<Targets>,
    /// Who tells.
    pub teller: NoticeSource,
}

/// What the notifier asks for and tells of itself.
pub trait NotifierService: Send + Sync {
    /// Which notifications cannot be sent now, and why.
    fn fails(&self, failing: BTreeMap<Arc<str>, String>);
    /// Which conditions hold now, those that fail included; `None` while nothing is configured.
    fn look(&self) -> Option<FoundConditions>;
    /// What is wrong with the notifications, if something is.
    fn problem(&self, problem: Option<String>);
    /// A notice was sent, or could not be.
    fn sent(&self, name: &str, ok: bool);
}

/// What the notifier is made of.
pub struct NotifierParts {
    /// Who is to be told; changes with the configuration.
    pub whom: watch::Receiver<Whom>,
    /// The daemon around it.
    pub service: Arc<dyn NotifierService>,
    /// Where the ledger lies.
    pub state: StateFiles,
    /// What time it is.
    pub clock: Clock,
    /// Asks for another try at once: somebody mended something.
    pub wake_up: Arc<Notify>,
}

impl fmt::Debug for NotifierParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotifierParts").finish_non_exhaustive()
    }
}

/// How sending to one goes.
#[derive(Debug, Default)]
struct Going {
    busy: bool,
    failures: u32,
    /// Not before this.
    next: Option<Instant>,
    /// Somebody asked for another try while one was under way.
    again: bool,
    /// Since when it fails, and why.
    fails: Option<(Time, String)>,
}

impl Going {
    /// Lets the next try come at once, after the one that is under way.
    fn try_again(&mut self) {
        self.next = None;
        self.again = self.busy;
    }
}

/// A sending that ended.
type EndedSending = (
    Arc<str>,
    NotificationSettings,
    Vec<Due>,
    Result<String, String>,
);

struct Notifier {
    parts: NotifierParts,
    ledger: Ledger,
    /// What is on disk.
    saved: Option<Ledger>,
    going: BTreeMap<Arc<str>, Going>,
    sending: JoinSet<EndedSending>,
    whom: Whom,
    unsaved: Option<String>,
}

/// Tells for as long as the process lives.
pub async fn run(parts: NotifierParts) {
    let ledger = load(&parts.state);
    let whom = parts.whom.borrow().clone();
    let mut notifier = Notifier {
        parts,
        saved: None,
        ledger,
        going: BTreeMap::new(),
        sending: JoinSet::new(),
        whom,
        unsaved: None,
    };
    loop {
        notifier.reconfigure();
        notifier.turn();
        let wake_up = notifier.parts.wake_up.clone();
        tokio::select! {
            Some(sent) = notifier.sending.join_next() => {
                // A task of ours that panicked has ended the process.
                if let Ok(sent) = sent {
                    notifier.ended(sent);
                }
            }
            () = wake_up.notified() => notifier.going.values_mut().for_each(Going::try_again),
            _ = notifier.parts.whom.changed() => {}
            () = sleep(LOOK) => {}
        }
    }
}

/// What was told before this start. Lost, it is told once more.
fn load(state: &StateFiles) -> Ledger {
    let path = state.path(FILE);
    let lost = |why: &dyn fmt::Display| {
        tracing::warn!(
            "{}: {why}; what people were told of is told once more",
            path.display()
        );
        Ledger::new()
    };
    match std::fs::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ledger::new(),
        Err(error) => lost(&error),
        // What a newer version noted besides is told by that one again.
        Ok(text) => match tolerant::read::<Ledger>(&text, ledger::VERSION) {
            Ok((ledger, _)) => ledger,
            Err(error) => lost(&error),
        },
    }
}

impl Notifier {
    /// Takes up another configuration. Whom it changes is tried at once.
    fn reconfigure(&mut self) {
        let whom = self.parts.whom.borrow_and_update().clone();
        let same = |name: &Arc<str>| self.whom.targets.get(name) == whom.targets.get(name);
        self.going.retain(|name, _| same(name));
        self.whom = whom;
    }

    fn turn(&mut self) {
        let failing = self.failing();
        self.tell_problem(&failing);
        self.parts.service.fails(failing);
        if self.whom.targets.is_empty() {
            return;
        }
        let now = self.parts.clock.now();
        if let Some(seen) = self.parts.service.look() {
            self.ledger.see(&seen, &self.whom.targets, now);
            self.save();
            self.send(now);
        }
    }

    /// What cannot be sent, by name, and why.
    fn failing(&self) -> BTreeMap<Arc<str>, String> {
        let failing = self.going.iter().filter_map(|(name, going)| {
            let (since, why) = going.fails.as_ref()?;
            let since = Time(since.0 / 1000 * 1000);
            let tries = words::count(u64::from(going.failures), "failure");
            Some((name.clone(), format!("{tries} since {since}: {why}")))
        });
        failing.collect()
    }

    fn tell_problem(&self, failing: &BTreeMap<Arc<str>, String>) {
        let mut problems: Vec<String> = Vec::new();
        for (name, why) in failing {
            let target = self.whom.targets.get(name);
            let to = target.map_or_else(String::new, NotificationSettings::told_to);
            problems.push(format!(
                "the notification {name} ({to}) cannot be sent, {why}; `pve-autoscaler notify-test {name}` tries it"
            ));
        }
        problems.extend(self.unsaved.clone());
        let problem = (!problems.is_empty()).then(|| problems.join("; "));
        self.parts.service.problem(problem);
    }

    /// Begins to send what is due to those who can be told.
    fn send(&mut self, now: Time) {
        for (name, target) in self.whom.targets.iter() {
            let going = self.going.entry(name.clone()).or_default();
            if going.busy || going.next.is_some_and(|next| Instant::now() < next) {
                continue;
            }
            let due = self.ledger.due(name, target, now);
            let Some(notice) = Notice::of(due.clone(), &self.whom.teller, now) else {
                continue;
            };
            going.busy = true;
            let (name, target) = (name.clone(), target.clone());
            self.sending.spawn(async move {
                let sent = deliver(&name, &target, &notice).await;
                (name, target, due, sent)
            });
        }
    }

    fn ended(&mut self, (name, target, due, sent): EndedSending) {
        self.parts.service.sent(&name, sent.is_ok());
        let now = self.parts.clock.now();
        if sent.is_ok() {
            self.ledger.told(&name, &due, now);
            self.save();
        }
        // The configuration is another by now: it is tried anew.
        if self.whom.targets.get(&name) != Some(&target) {
            return;
        }
        let going = self.going.entry(name.clone()).or_default();
        going.busy = false;
        match sent {
            Ok(said) => {
                let conditions = due.len();
                tracing::info!(notification = %name, conditions, %said, "people were told");
                *going = Going::default();
            }
            Err(why) => {
                let news = going.fails.as_ref().is_none_or(|(_, known)| *known != why);
                if news {
                    tracing::warn!(notification = %name, %why, "people could not be told");
                }
                let again = std::mem::take(&mut going.again);
                going.next = (!again).then(|| Instant::now() + pause(going.failures));
                going.failures = going.failures.saturating_add(1);
                let since = going.fails.as_ref().map_or(now, |(since, _)| *since);
                going.fails = Some((since, why));
            }
        }
    }

    /// Writes the ledger when it says something else than the file.
    fn save(&mut self) {
        let same = |saved: &Ledger| saved.says_as(&self.ledger);
        if self.saved.as_ref().is_some_and(same) {
            return;
        }
        let path = self.parts.state.path(FILE);
        let text = serde_json::to_vec(&self.ledger).map_err(std::io::Error::from);
        let written = text.and_then(|text| write_durably(&path, &text));
        self.unsaved = written.err().map(|error| {
            format!(
                "{} cannot be written: {error}; after a restart people are told once more",
                path.display()
            )
        });
        if self.unsaved.is_none() {
            self.saved = Some(self.ledger.clone());
        }
    }
}

/// The pause after so many failures before this one.
fn pause(failures: u32) -> Duration {
    let factor = 2u32.saturating_pow(failures.min(16));
    FIRST_PAUSE.saturating_mul(factor).min(LONGEST_PAUSE)
}

/// All that would keep a webhook from being told, as far as it is known without sending.
pub(crate) fn obstacles(webhook: &Webhook) -> Vec<PostObstacle> {
    webhook::obstacles(webhook)
}

async fn deliver(
    name: &str,
    target: &NotificationSettings,
    notice: &Notice,
) -> Result<String, String> {
    match &target.way {
        NotificationChannel::Webhook(webhook) => webhook::send(webhook, notice).await,
        NotificationChannel::Mail(mail) => mail::send(name, mail, notice).await,
    }
}

/// What came of a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// The notification's name.
    pub name: String,
    /// What it is and where it leads, without a secret.
    pub to: String,
    /// What is told to it.
    pub severities: Vec<Severity>,
    /// It was taken.
    pub ok: bool,
    /// What came back.
    pub said: String,
}

/// Sends a test to the one of this name, or to all, whatever the hour.
///
/// # Errors
/// There is none of this name, or none at all.
pub async fn test(whom: &Whom, name: Option<&str>, now: Time) -> Result<Vec<Tried>, String> {
    let names: Vec<&str> = whom.targets.keys().map(|name| &**name).collect();
    if names.is_empty() {
        return Err(
            "the configuration that is in force has no [notification.NAME]; after adding one: systemctl reload pve-autoscaler".to_owned(),
        );
    }
    if let Some(name) = name
        && !names.contains(&name)
    {
        return Err(format!(
            "there is no notification {name}; there are {}",
            words::names(&names)
        ));
    }
    let notice = Notice::test(&whom.teller, now);
    let wanted = whom.targets.iter();
    let wanted = wanted.filter(|(key, _)| name.is_none_or(|name| name == &***key));
    let tries = wanted.map(|(name, target)| {
        let notice = &notice;
        async move {
            let sent = deliver(name, target, notice).await;
            Tried {
                name: name.to_string(),
                to: target.told_to(),
                severities: target.severities.iter().copied().collect(),
                ok: sent.is_ok(),
                said: sent.unwrap_or_else(|why| why),
            }
        }
    });
    Ok(join_all(tries).await)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::condition::ConditionKind;

    /// Whoever was told something is not told it again after a downgrade. A condition that only the newer version has is left out, and
    /// that one alone.
    #[test]
    fn what_was_told_by_a_newer_version_is_not_told_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let files = StateFiles::open(directory.path()).expect("opens");
        let told = |kind: &str| {
            let condition = json!({
                "kind": kind, "subject": "small", "summary": "x", "details": "", "todo": "y", "colour": "red",
            });
            let at = Time(1_790_000_000_000);
            json!({"condition": condition, "since": at, "told": {"ops": at}, "shown": [1]})
        };
        let kind = ConditionKind::PoolBacksOff.name();
        let entries =
            json!({(format!("{kind}/small")): told(kind), "weather/small": told("weather")});
        let ledger = json!({"version": ledger::VERSION, "entries": entries, "pages": {}});
        std::fs::write(files.path(FILE), ledger.to_string()).expect("written");
        let read = serde_json::to_value(load(&files)).expect("plain data");
        let left = read["entries"].as_object().expect("a map");
        let keys: Vec<&str> = left.keys().map(String::as_str).collect();
        assert_eq!(keys, [format!("{kind}/small")]);
        assert!(
            read.pointer(&format!("/entries/{kind}~1small/told/ops"))
                .is_some(),
            "{read}"
        );
        let other = json!({"version": ledger::VERSION + 1, "entries": entries});
        std::fs::write(files.path(FILE), other.to_string()).expect("written");
        assert_eq!(load(&files), Ledger::new());
    }

    #[test]
    fn pauses_double_up_to_half_an_hour() {
        let pauses: Vec<u64> = (0..8).map(|failures| pause(failures).as_secs()).collect();
        assert_eq!(pauses, [30, 60, 120, 240, 480, 960, 1_800, 1_800]);
        assert_eq!(pause(u32::MAX), LONGEST_PAUSE);
    }
}

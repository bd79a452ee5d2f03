//! What was told to whom: which notices are due, each once, again after a while, and once more when it is over. Pure;
//! it is kept in the state directory, so that a restart tells nothing twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::config::notification::NotificationSettings;
use crate::controller::conditions::FoundConditions;
use crate::model::condition::{Condition, ConditionKind, Knows};
use crate::model::notice::{ConditionState, Due};
use crate::model::time::{Span, Time};
use crate::model::tolerant;

/// Version of the format on disk. Another one counts as lost.
pub const VERSION: u32 = 1;
/// What holds since longer than we have seen it may be gone at the next look: so long it is looked at.
const SETTLED: Span = Span::minutes(1);

/// Those who are told, by name.
pub type Targets = BTreeMap<Arc<str>, NotificationSettings>;

/// Every condition that holds, or that somebody was told of and not yet of its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ledger {
    /// [`VERSION`].
    pub version: u32,
    /// Without those of kinds that only a newer version has.
    #[serde(deserialize_with = "tolerant::known_entries")]
    entries: BTreeMap<String, LedgerEntry>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LedgerEntry {
    condition: Condition,
    /// When it was first seen.
    since: Time,
    /// When it was first missed, while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gone: Option<Time>,
    /// Who was told, and when last.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    told: BTreeMap<Arc<str>, Time>,
}

impl LedgerEntry {
    fn kind(&self) -> ConditionKind {
        self.condition.kind
    }

    /// Since when it holds, as far as is known.
    fn began(&self) -> Time {
        self.condition
            .since
            .map_or(self.since, |since| since.min(self.since))
    }

    /// When it ended, once that is sure.
    fn ended(&self, now: Time) -> Option<Time> {
        self.gone
            .filter(|gone| now.since(*gone) >= self.kind().calm())
    }

    /// Whether somebody who was told nothing is to be told.
    fn is_ripe(&self, target: &NotificationSettings, now: Time) -> bool {
        let patience = if self.kind().of_pods() {
            target.pending_after
        } else {
            self.kind().patience()
        };
        self.gone.is_none()
            && now.since(self.began()) >= patience
            && now.since(self.since) >= patience.min(SETTLED)
    }
}

impl Ledger {
    /// An empty one.
    pub fn new() -> Ledger {
        Ledger {
            version: VERSION,
            entries: BTreeMap::new(),
        }
    }

    /// The clock was set, or a file was edited: nothing lies in the future.
    pub fn end_future(&mut self, now: Time) {
        for entry in self.entries.values_mut() {
            entry.since = entry.since.min(now);
            entry.gone = entry.gone.map(|gone| gone.min(now));
            entry.told.values_mut().for_each(|at| *at = (*at).min(now));
        }
    }

    /// Takes in what is seen now.
    pub fn see(&mut self, seen: &FoundConditions, targets: &Targets, now: Time) {
        self.end_future(now);
        for (key, condition) in &seen.there {
            let entry = self
                .entries
                .entry(key.clone())
                .or_insert_with(|| LedgerEntry {
                    condition: condition.clone(),
                    since: now,
                    gone: None,
                    told: BTreeMap::new(),
                });
            entry.condition.clone_from(condition);
            entry.gone = None;
        }
        for (key, entry) in &mut self.entries {
            let unknown = seen.unknown.contains(&entry.kind());
            if !seen.there.contains_key(key) && !unknown && entry.gone.is_none() {
                entry.gone = Some(now);
            }
        }
        self.forget(seen, targets, now);
    }

    /// Drops what nobody has to be told of any more.
    fn forget(&mut self, seen: &FoundConditions, targets: &Targets, now: Time) {
        self.entries.retain(|_, entry| {
            // Who leads now begins to tell of it, and of its end.
            if seen.led_elsewhere && entry.kind().knows() == Knows::Leader {
                return false;
            }
            let over = entry.ended(now).is_some();
            let kind = entry.kind();
            entry.told.retain(|name, _| {
                let target = targets.get(name);
                target.is_some_and(|target| {
                    target.severities.contains(&kind.severity()) && (target.ended || !over)
                })
            });
            !over || !entry.told.is_empty()
        });
    }

    /// What this one is to be told now.
    pub fn due(&self, name: &str, target: &NotificationSettings, now: Time) -> Vec<Due> {
        let due = self.entries.values().filter_map(|entry| {
            let kind = entry.kind();
            let quiet = target.quiet.as_ref();
            if !target.severities.contains(&kind.severity())
                || quiet.is_some_and(|quiet| quiet.silences(kind.severity(), now))
                // That it cannot be told anything need not be told to it.
                || (kind == ConditionKind::NotificationFails && &*entry.condition.subject == name)
            {
                return None;
            }
            let ended = entry.ended(now);
            let again = |told: &Time| target.repeat.is_some_and(|after| now.since(*told) >= after);
            let state = match entry.told.get(name) {
                None if entry.is_ripe(target, now) => ConditionState::Began,
                Some(_) if ended.is_some() => ConditionState::Ended,
                Some(told) if entry.gone.is_none() && again(told) => ConditionState::Lasts,
                _ => return None,
            };
            Some(Due {
                condition: entry.condition.clone(),
                state,
                since: entry.began(),
                ended,
            })
        });
        due.collect()
    }

    /// Whether a restart with either would tell the same: texts may differ.
    pub fn says_as(&self, other: &Ledger) -> bool {
        let entries = self.entries.iter().zip(&other.entries);
        self.version == other.version
            && self.entries.len() == other.entries.len()
            && entries
                .into_iter()
                .all(|((key, ours), (other_key, theirs))| {
                    key == other_key
                        && (ours.since, ours.gone, &ours.told)
                            == (theirs.since, theirs.gone, &theirs.told)
                })
    }

    /// It was told this.
    pub fn told(&mut self, name: &Arc<str>, due: &[Due], now: Time) {
        for told in due {
            let key = told.condition.key();
            let Some(entry) = self.entries.get_mut(&key) else {
                continue;
            };
            if told.state == ConditionState::Ended {
                // What began anew meanwhile is news.
                entry.told.remove(name);
            } else {
                entry.told.insert(name.clone(), now);
            }
        }
        self.entries
            .retain(|_, entry| entry.ended(now).is_none() || !entry.told.is_empty());
    }
}

#[cfg(test)]
mod tests;

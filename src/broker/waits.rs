//! Waits for a guest: the daemon asks an agent the same question until something has come, twice a
//! second at times. The journal has one line for the first question, one for each change of the
//! answer, and one that counts the rest.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::allow::AdmittedCall;
use super::peer::PeerProcess;

/// A question that is repeated for longer than this is written again, with its count.
const AGAIN: Duration = Duration::from_mins(5);
/// A question that was not repeated for this long is over. The daemon pauses at most a few seconds
/// between two questions, a crowd of machines makes that a minute.
const OVER: Duration = Duration::from_mins(2);
/// Waits that are counted at the same time. Every further question has a line of its own.
const MOST: usize = 1_000;

/// The waits that go on.
#[derive(Debug, Default)]
pub(super) struct CallWaits(Mutex<BTreeMap<RepeatedCall, CallWait>>);

/// One question: who asks it, of which VM, and the digest of all its parameters, secrets among them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RepeatedCall {
    uid: u32,
    path: String,
    params: Vec<u8>,
}

#[derive(Debug)]
struct CallWait {
    call: &'static str,
    answer: (String, String),
    /// When the last line about it was written.
    written: Instant,
    /// When it was asked last.
    asked: Instant,
    /// Questions since that line.
    unwritten: u32,
}

/// A count that is due in the journal.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Repeated {
    pub(super) uid: u32,
    /// The call's name in the allow-list.
    pub(super) call: &'static str,
    pub(super) path: String,
    /// The outcome of every one of these calls.
    pub(super) outcome: String,
    /// Calls that had no line of their own.
    pub(super) times: u32,
    /// From the last line to the last call.
    pub(super) within: Duration,
}

impl CallWaits {
    /// Takes note of a call that was just answered. Returns whether it has a line of its own.
    pub(super) fn note(
        &self,
        peer: PeerProcess,
        call: &AdmittedCall,
        outcome: &str,
        detail: &str,
    ) -> bool {
        if !matches!(call.rule.name, "agent-ping" | "agent-exec") || outcome == "refused-by-broker"
        {
            return true;
        }
        let now = Instant::now();
        let answer = (outcome.to_owned(), detail.to_owned());
        let question = RepeatedCall {
            uid: peer.uid,
            path: call.path.clone(),
            params: digest(&call.params),
        };
        let mut waits = self.lock();
        if let Some(wait) = waits.get_mut(&question)
            && wait.answer == answer
        {
            wait.asked = now;
            wait.unwritten = wait.unwritten.saturating_add(1);
            return false;
        }
        // What was counted until now had another answer: `due` writes it first.
        if waits.len() < MOST || waits.contains_key(&question) {
            let wait = CallWait {
                call: call.rule.name,
                answer,
                written: now,
                asked: now,
                unwritten: 0,
            };
            waits.insert(question, wait);
        }
        true
    }

    /// The counts that are to be written now: of waits that are over, that last long, or, after a
    /// call on the VM at `path` with another answer, of the one on it.
    pub(super) fn due(&self, changed: Option<(&AdmittedCall, &str, &str)>) -> Vec<Repeated> {
        let now = Instant::now();
        let mut waits = self.lock();
        let mut due = Vec::new();
        waits.retain(|question, wait| {
            let over = now.duration_since(wait.asked) >= OVER;
            let other = changed.is_some_and(|(call, outcome, detail)| {
                question.path == call.path
                    && (wait.answer.0 != outcome
                        || wait.answer.1 != detail
                        || question.params != digest(&call.params))
            });
            if wait.unwritten > 0 && (over || other || now.duration_since(wait.written) >= AGAIN) {
                due.push(Repeated {
                    uid: question.uid,
                    call: wait.call,
                    path: question.path.clone(),
                    outcome: wait.answer.0.clone(),
                    times: std::mem::take(&mut wait.unwritten),
                    within: wait.asked.duration_since(wait.written),
                });
                wait.written = now;
            }
            !over
        });
        due
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<RepeatedCall, CallWait>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// SHA-256 of all parameters with their lengths: no two lists have the same text.
fn digest(params: &[(String, String)]) -> Vec<u8> {
    let mut hash = Sha256::new();
    for text in params.iter().flat_map(|(name, value)| [name, value]) {
        hash.update(text.len().to_le_bytes());
        hash.update(text.as_bytes());
    }
    hash.finalize().to_vec()
}

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

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::broker::allow::RULES;

    const PEER: PeerProcess = PeerProcess {
        uid: 990,
        gid: 990,
        pid: 7,
    };
    const NO: &str = "refused";
    const WHY: &str = "it is not running";
    const SHORT: Duration = Duration::from_mins(1);

    /// A question to the agent of this VM.
    fn question(vmid: u32, params: &[(&str, &str)]) -> AdmittedCall {
        let mut rules = RULES.iter();
        let text = |text: &str| text.to_owned();
        AdmittedCall {
            rule: rules
                .find(|rule| rule.name == "agent-exec")
                .expect("it is listed"),
            host: None,
            vmid: Some(vmid),
            task: None,
            position: None,
            path: format!("/nodes/pve1/qemu/{vmid}/agent/exec"),
            params: params
                .iter()
                .map(|(key, value)| (text(key), text(value)))
                .collect(),
        }
    }

    /// The question was asked twice, with the same answer: one is not written yet.
    fn asked_twice(call: &AdmittedCall) -> CallWaits {
        let waits = CallWaits::default();
        assert!(waits.note(PEER, call, NO, WHY));
        assert!(!waits.note(PEER, call, NO, WHY));
        waits
    }

    fn times(due: &[Repeated]) -> Vec<u32> {
        due.iter().map(|one| one.times).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_is_over_is_counted_once_and_one_question_is_no_wait() {
        let call = question(9001, &[]);
        let once = CallWaits::default();
        assert!(once.note(PEER, &call, NO, WHY));
        let twice = asked_twice(&call);
        assert_eq!(once.due(None), []);
        assert_eq!(twice.due(None), []);
        advance(OVER.checked_sub(Duration::from_millis(1)).expect("longer")).await;
        assert_eq!(twice.due(None), []);
        advance(Duration::from_millis(1)).await;
        assert_eq!(once.due(None), [], "it has its line");
        assert_eq!(times(&twice.due(None)), [1]);
        assert_eq!(twice.due(None), []);
        // It is forgotten: the same question begins a wait anew.
        assert!(twice.note(PEER, &call, NO, WHY));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_lasts_is_counted_now_and_then() {
        let call = question(9001, &[]);
        let waits = CallWaits::default();
        assert!(waits.note(PEER, &call, NO, WHY));
        for _ in 0..4 {
            advance(SHORT).await;
            assert!(!waits.note(PEER, &call, NO, WHY));
            assert_eq!(waits.due(None), []);
        }
        advance(SHORT).await;
        let due = waits.due(None);
        assert_eq!(times(&due), [4]);
        assert_eq!(due[0].within, SHORT * 4);
        assert_eq!((due[0].uid, due[0].call), (PEER.uid, "agent-exec"));
        // From here on it is counted anew.
        assert!(!waits.note(PEER, &call, NO, WHY));
        advance(SHORT).await;
        assert_eq!(waits.due(None), []);
    }

    #[tokio::test(start_paused = true)]
    async fn another_answer_of_the_same_vm_ends_the_count() {
        let call = question(9001, &[("command", "state")]);
        let other = question(9001, &[("command", "join")]);
        let elsewhere = question(9002, &[("command", "join")]);
        for (changed, outcome, why, counts) in [
            (&call, NO, WHY, false),
            (&call, "done", WHY, true),
            (&call, NO, "another reason", true),
            (&other, NO, WHY, true),
            (&elsewhere, "done", "another reason", false),
        ] {
            let waits = asked_twice(&call);
            let due = waits.due(Some((changed, outcome, why)));
            let what = format!("{}: {outcome}: {why}", changed.path);
            assert_eq!(times(&due), if counts { vec![1] } else { vec![] }, "{what}");
        }
    }

    /// Parameters with the same letters are not the same question, nor is that of another user.
    #[tokio::test(start_paused = true)]
    async fn a_question_is_the_same_by_user_vm_and_all_parameters() {
        let waits = asked_twice(&question(9001, &[("a", "bc")]));
        assert!(waits.note(PEER, &question(9001, &[("ab", "c")]), NO, WHY));
        assert!(waits.note(PEER, &question(9002, &[("a", "bc")]), NO, WHY));
        let root = PeerProcess { uid: 0, ..PEER };
        assert!(waits.note(root, &question(9001, &[("a", "bc")]), NO, WHY));
        assert!(!waits.note(PEER, &question(9001, &[("a", "bc")]), NO, WHY));
        // A refusal of the broker's own is written each time.
        for _ in 0..2 {
            let call = question(9003, &[]);
            assert!(waits.note(PEER, &call, "refused-by-broker", WHY));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_waits_are_counted_and_further_questions_have_their_lines() {
        let waits = CallWaits::default();
        let first = 9001;
        let most = u32::try_from(MOST).expect("small");
        for vmid in first..first + most {
            assert!(waits.note(PEER, &question(vmid, &[]), NO, WHY));
        }
        let further = question(first + most, &[]);
        for _ in 0..2 {
            assert!(waits.note(PEER, &further, NO, WHY), "it has no place");
        }
        // One that is counted already goes on to be, with its new answer.
        let counted = question(first, &[]);
        assert!(waits.note(PEER, &counted, "done", ""));
        assert!(!waits.note(PEER, &counted, "done", ""));
    }
}

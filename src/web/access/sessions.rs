//! Sessions of those who logged in: in memory, bounded in number and in time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rand::TryRng as _;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

/// Sessions at the same time; the one that was used longest ago goes for the next.
const MOST: usize = 64;
/// A session ends after this long in any case.
pub(super) const LIFE: Duration = Duration::from_hours(12);
/// It ends earlier when no page of it was open for this long.
const IDLE: Duration = Duration::from_hours(2);

/// A digest: what is kept of tokens, so that a copy of the memory opens no session.
pub(super) type Sum = [u8; 32];

/// All sessions, by the digest of their tokens.
#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<BTreeMap<Sum, LoginSession>>);

#[derive(Clone, Debug)]
struct LoginSession {
    user: Arc<str>,
    /// The digest of the person's hash: another password ends the sessions of the one before.
    by: Sum,
    began: Instant,
    used: Instant,
}

impl LoginSession {
    fn lives(&self, now: Instant) -> bool {
        now.duration_since(self.began) < LIFE && now.duration_since(self.used) < IDLE
    }
}

impl Sessions {
    /// Begins one, and gives its token.
    ///
    /// # Errors
    /// The operating system gives no randomness.
    pub(super) fn begin(&self, user: Arc<str>, hash: &str, now: Instant) -> Result<String, String> {
        let token = unguessable()?;
        let mut sessions = self.sessions();
        sessions.retain(|_, session| session.lives(now));
        if sessions.len() >= MOST {
            let oldest = sessions.iter().min_by_key(|(_, session)| session.used);
            if let Some(oldest) = oldest.map(|(sum, _)| *sum) {
                sessions.remove(&oldest);
            }
        }
        let session = LoginSession {
            user,
            by: sum(hash),
            began: now,
            used: now,
        };
        sessions.insert(sum(&token), session);
        Ok(token)
    }

    /// Whose session it is, when it has not ended and the person's hash is still the one that it began with.
    pub(super) fn user(
        &self,
        token: &str,
        now: Instant,
        hash_of: impl Fn(&str) -> Option<Sum>,
    ) -> Option<Arc<str>> {
        let mut sessions = self.sessions();
        let key = sum(token);
        let session = sessions.get_mut(&key)?;
        if !session.lives(now) || hash_of(&session.user) != Some(session.by) {
            sessions.remove(&key);
            return None;
        }
        session.used = now;
        Some(session.user.clone())
    }

    /// Ends one.
    pub(super) fn end(&self, token: &str) {
        self.sessions().remove(&sum(token));
    }

    fn sessions(&self) -> MutexGuard<'_, BTreeMap<Sum, LoginSession>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A text of 256 bits that nobody guesses.
pub(super) fn unguessable() -> Result<String, String> {
    let mut bytes = [0; 32];
    rand::rngs::SysRng
        .try_fill_bytes(&mut bytes)
        .map_err(|error| format!("the operating system gives no randomness: {error}"))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// The digest of a text.
pub(super) fn sum(text: &str) -> Sum {
    Sha256::digest(text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn sessions_end_and_are_few() {
        let sessions = Sessions::default();
        let begin = |at| sessions.begin("ann".into(), "hash", at).expect("a token");
        let hash = |_: &str| Some(sum("hash"));
        let now = Instant::now();
        let first = begin(now);
        let user = |token: &str, at| sessions.user(token, at, hash);
        assert_eq!(user(&first, now).as_deref(), Some("ann"));
        assert_eq!(user("", now), None);
        // Used all the time it lives for its life, and no longer.
        let mut at = now;
        while at + IDLE / 2 < now + LIFE {
            at += IDLE / 2;
            assert!(user(&first, at).is_some());
        }
        assert_eq!(user(&first, now + LIFE), None);
        let idle = begin(now);
        assert_eq!(user(&idle, now + IDLE), None);
        // Another password, or nobody of that name.
        for other in [Some(sum("other")), None] {
            let token = begin(now);
            assert_eq!(sessions.user(&token, now, |_| other), None);
            assert_eq!(user(&token, now), None, "it has ended for good");
        }
        let tokens: Vec<String> = (0..=MOST)
            .map(|number| begin(now + Duration::from_secs(number as u64)))
            .collect();
        assert_eq!(sessions.sessions().len(), MOST);
        let later = now + Duration::from_mins(2);
        assert_eq!(user(&tokens[0], later), None);
        assert!(user(&tokens[1], later).is_some());
        sessions.end(&tokens[1]);
        assert_eq!(user(&tokens[1], later), None);
    }
}

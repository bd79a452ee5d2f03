//! HTTPS with a token whose secret stands in a file: a file that changes is read again, and its secret is tried before it takes the
//! place of the one that works.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use tokio::time::Instant;

use super::https::{Https, SetupError, TokenOptions};
use super::{CallEffect, CallError, HttpMethod, PveRequest, Transport};
use crate::bounded_file;

/// How often the file is looked at, with the calls that come anyway: a region is read at least every 30 s.
const LOOK: Duration = Duration::from_secs(10);
/// After a 401 the secret in the file is tried at most this often: PVE writes each refusal to its log.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);
/// Longest wait for PVE's answer to a secret that is tried.
const TRIAL: Duration = Duration::from_secs(10);
/// The status of a call whose token is not taken.
const UNAUTHORIZED: u16 = 401;

/// What tells one state of a file from another, cheaply.
type FileStamp = Option<(SystemTime, u64)>;

/// A way to PVE by the token whose secret stands in a file.
#[derive(Debug)]
pub struct TokenFile {
    /// All but the secret.
    options: TokenOptions,
    path: PathBuf,
    held: Mutex<SecretInUse>,
    /// Held by whoever looks at the file and tries what is in it.
    looking: tokio::sync::Mutex<()>,
}

/// What is in use, and what is known of the file.
#[derive(Debug)]
struct SecretInUse {
    https: Arc<Https>,
    secret: SecretString,
    stamp: FileStamp,
    looked: Instant,
    /// When the file's secret was tried last, if it is not the one in use.
    tried: Option<Instant>,
    /// Why the file's secret is not the one in use.
    problem: Option<String>,
}

impl TokenFile {
    /// Reads the secret and makes the end; nothing is sent yet. `options.secret` is replaced by what the file has.
    ///
    /// # Errors
    /// The file cannot be read, or no end can be made of the options.
    pub fn open(options: TokenOptions, path: &Path) -> Result<TokenFile, SetupError> {
        let stamp = stamp(path);
        let secret = read(path).map_err(SetupError)?;
        let https = Https::new(&with(&options, &secret))?;
        let held = SecretInUse {
            https: Arc::new(https),
            secret,
            stamp,
            looked: Instant::now(),
            tried: None,
            problem: None,
        };
        Ok(TokenFile {
            options,
            path: path.to_owned(),
            held: Mutex::new(held),
            looking: tokio::sync::Mutex::default(),
        })
    }

    /// Why the file's secret is not the one in use, if it is not.
    pub fn problem(&self) -> Option<String> {
        self.held().problem.clone()
    }

    fn held(&self) -> MutexGuard<'_, SecretInUse> {
        // A poisoned lock guards plain data that is replaced as a whole: it is still good.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn attempt(&self, request: PveRequest) -> Result<Value, CallError> {
        self.look_at_times().await;
        let used = self.held().https.clone();
        let sent = used.call(request.clone()).await;
        match sent {
            Err(error) if error.status == Some(UNAUTHORIZED) => {
                // PVE did nothing, so that the call may be made once more with another secret.
                match self.after_refusal(&used).await {
                    Some(other) => other.call(request).await,
                    None => Err(error),
                }
            }
            sent => sent,
        }
        .map_err(|error| self.told(error))
    }

    /// Looks at the file if it was not looked at for a while. No call waits for another's look.
    async fn look_at_times(&self) {
        if self.held().looked.elapsed() < LOOK {
            return;
        }
        let Ok(_looking) = self.looking.try_lock() else {
            return;
        };
        let now = stamp(&self.path);
        let changed = {
            let mut held = self.held();
            held.looked = Instant::now();
            held.stamp != now
        };
        if changed {
            self.take(now).await;
        }
    }

    /// The secret in use was refused: gives the end of another one that PVE takes, if the file has one.
    async fn after_refusal(&self, used: &Arc<Https>) -> Option<Arc<Https>> {
        let _looking = self.looking.lock().await;
        let due = {
            let held = self.held();
            if !Arc::ptr_eq(&held.https, used) {
                // Another call has just taken it.
                return Some(held.https.clone());
            }
            held.tried
                .is_none_or(|tried| tried.elapsed() >= REFUSED_PAUSE)
        };
        if due {
            self.take(stamp(&self.path)).await;
        }
        let now = self.held().https.clone();
        (!Arc::ptr_eq(&now, used)).then_some(now)
    }

    /// Reads the file, tries its secret if it is another one, and takes it if PVE does.
    async fn take(&self, stamp: FileStamp) {
        let result = self.tried().await;
        let mut held = self.held();
        held.tried = Some(Instant::now());
        match result {
            Ok(taken) => {
                held.stamp = stamp;
                held.problem = None;
                if let Some((https, secret)) = taken {
                    held.https = Arc::new(https);
                    held.secret = secret;
                    held.tried = None;
                    tracing::info!(file = %self.path.display(), "took the new secret of the PVE token");
                }
            }
            Err(Untaken::Silent(why)) => {
                // The stamp stays the old one, so that the next look tries again.
                tracing::debug!(%why, "the new secret of the PVE token could not be tried");
            }
            Err(Untaken::Wrong(why)) => {
                held.stamp = stamp;
                if held.problem.as_ref() != Some(&why) {
                    tracing::warn!("{why}");
                }
                held.problem = Some(why);
            }
        }
    }

    /// The file's secret with its end, once PVE took it; `None` where it is the one in use.
    async fn tried(&self) -> Result<Option<(Https, SecretString)>, Untaken> {
        let kept = "the one that was read before stays in use";
        let secret = read(&self.path).map_err(|why| Untaken::Wrong(format!("{why}; {kept}")))?;
        if secret.expose_secret() == self.held().secret.expose_secret() {
            return Ok(None);
        }
        let https = Https::new(&with(&self.options, &secret))
            .map_err(|error| Untaken::Wrong(format!("{}: {error}; {kept}", self.path.display())))?;
        // Whoever may log in may make this call, whatever else is forbidden to him.
        let request = PveRequest {
            call: "version",
            method: HttpMethod::Get,
            path: "/version".to_owned(),
            params: Vec::new(),
            multipart: false,
            timeout: TRIAL,
        };
        match https.call(request).await {
            Ok(_) => Ok(Some((https, secret))),
            Err(error) if error.status == Some(UNAUTHORIZED) => Err(Untaken::Wrong(format!(
                "PVE does not take the new secret of the token {} in {} ({}); {kept}; {}",
                self.options.token_id,
                self.path.display(),
                error.message,
                self.to_type()
            ))),
            Err(error) if error.outcome == CallEffect::Refused => Ok(Some((https, secret))),
            Err(error) => Err(Untaken::Silent(error.to_string())),
        }
    }

    /// An error that says which token was refused, and what to do.
    fn told(&self, mut error: CallError) -> CallError {
        if error.status == Some(UNAUTHORIZED) {
            error.advice = Some(format!(
                "PVE does not take the token {} with the secret in {}; {}",
                self.options.token_id,
                self.path.display(),
                self.to_type()
            ));
        }
        error
    }

    /// What to type where PVE does not take the token.
    fn to_type(&self) -> String {
        let user = self.options.token_id.split('!').next().unwrap_or_default();
        format!(
            "`pveum user token list {user}`, on a host of it, shows whether the token is there and has not ended; a secret that is \
             written to the file is read again by itself"
        )
    }
}

/// Why the file's secret was not taken.
enum Untaken {
    /// PVE could not be asked.
    Silent(String),
    /// It is no secret, or PVE refuses it.
    Wrong(String),
}

impl Transport for TokenFile {
    fn call(&self, request: PveRequest) -> BoxFuture<'_, Result<Value, CallError>> {
        self.attempt(request).boxed()
    }
}

fn with(options: &TokenOptions, secret: &SecretString) -> TokenOptions {
    TokenOptions {
        secret: secret.clone(),
        ..options.clone()
    }
}

fn stamp(path: &Path) -> FileStamp {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

/// The secret in the file, without white space around it and the byte order mark that some editors write.
fn read(path: &Path) -> Result<SecretString, String> {
    let at = |why: &dyn std::fmt::Display| {
        format!("cannot read token_secret_file {}: {why}", path.display())
    };
    let text = bounded_file::read_text(path, bounded_file::TEXT).map_err(|error| at(&error))?;
    let secret = text.trim_start_matches('\u{feff}').trim();
    if secret.is_empty() {
        return Err(at(&"it is empty"));
    }
    // PVE's secrets are UUIDs. It would say of the rest no more than that the login failed.
    let foreign = |c: char| c == '=' || c.is_whitespace() || c.is_control();
    if secret.contains(foreign) {
        return Err(at(
            &"it has more in it than the secret; expected that alone, the `value` that `pveum user token add` prints",
        ));
    }
    Ok(SecretString::from(secret.to_owned()))
}

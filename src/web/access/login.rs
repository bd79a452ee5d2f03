//! Logging in and out: a form's name and password for a session's cookie.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::rejection::JsonRejection;
use axum::extract::{Extension, Json, State as Shared};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::kept::ReloadedFiles;
use super::sessions::{LIFE, Sessions, Sum, sum, unguessable};
use super::tries::Tries;
use super::users::Users;
use crate::web::WebState;
use crate::web::server::PeerAddress;

/// A password waits this long for those that are checked before it: one at a time, a quarter of a second each.
const PATIENCE: Duration = Duration::from_secs(10);
/// A scraper's password is checked by bcrypt again after this long; in between by a digest.
const PROOF_LIFE: Duration = Duration::from_mins(10);
/// Proofs that are kept.
const MOST_PROOFS: usize = 16;

/// Names, passwords, sessions.
#[derive(Debug)]
pub(super) struct Login {
    pub(super) users: ReloadedFiles<Users>,
    sessions: Sessions,
    tries: Tries,
    checking: Semaphore,
    proofs: Mutex<BTreeMap<Sum, Instant>>,
    /// Makes digests of passwords worthless elsewhere.
    salt: String,
    /// Whether the cookie goes over TLS alone.
    secure: bool,
}

/// Why a password was not taken.
#[derive(Debug)]
pub(super) enum LoginRefused {
    /// It is wrong, or nobody has the name.
    Wrong,
    /// This address has to wait.
    Wait(Duration),
    /// Too many are checked, or it could not be checked.
    Busy,
}

impl Login {
    /// One for these people.
    pub(super) fn of(users: ReloadedFiles<Users>, secure: bool) -> Result<Login, String> {
        Ok(Login {
            users,
            sessions: Sessions::default(),
            tries: Tries::default(),
            checking: Semaphore::new(1),
            proofs: Mutex::default(),
            salt: unguessable()?,
            secure,
        })
    }

    /// Under which name the cookie goes. The prefix has browsers take it from this host alone, over TLS.
    fn cookie(&self) -> &'static str {
        if self.secure {
            "__Host-pve-autoscaler"
        } else {
            "pve-autoscaler"
        }
    }

    /// The token in a request's cookies.
    fn token<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let cookies = headers.get_all(header::COOKIE).iter();
        let mut pairs = cookies
            .filter_map(|cookie| cookie.to_str().ok())
            .flat_map(|text| text.split(';'))
            .filter_map(|pair| pair.trim().split_once('='));
        pairs
            .find(|(name, _)| *name == self.cookie())
            .map(|(_, token)| token)
    }

    /// Who is logged in.
    pub(super) fn user(&self, headers: &HeaderMap) -> Option<Arc<str>> {
        let token = self.token(headers)?;
        let users = self.users.get();
        self.sessions
            .user(token, Instant::now(), |name| users.hash(name).map(sum))
    }

    /// Checks a person's password, one at a time.
    pub(super) async fn check(
        &self,
        from: IpAddr,
        name: &str,
        password: &SecretString,
    ) -> Result<(), LoginRefused> {
        let Ok(Ok(_slot)) = timeout(PATIENCE, self.checking.acquire()).await else {
            return Err(LoginRefused::Busy);
        };
        if let Some(wait) = self.tries.wait(from, Instant::now()) {
            return Err(LoginRefused::Wait(wait));
        }
        let users = self.users.get();
        let (asked, secret) = (name.to_owned(), password.clone());
        let checked = tokio::task::spawn_blocking(move || users.verify(&asked, &secret));
        match checked.await {
            Ok(true) => {
                self.tries.succeeded(from, Instant::now());
                Ok(())
            }
            Ok(false) => {
                self.tries.failed(from, Instant::now());
                // Not the name: it may be a password in the wrong field.
                tracing::warn!(%from, "a login to the web server failed");
                Err(LoginRefused::Wrong)
            }
            Err(error) => {
                tracing::error!(%error, "a password could not be checked");
                Err(LoginRefused::Busy)
            }
        }
    }

    /// Checks a name and password of basic authentication, which sends both with each request.
    pub(super) async fn check_again(
        &self,
        from: IpAddr,
        name: &str,
        password: &SecretString,
    ) -> Result<(), LoginRefused> {
        let proof = {
            let users = self.users.get();
            let hash = users.hash(name).ok_or(());
            hash.map(|hash| {
                let parts = [&self.salt, name, password.expose_secret(), hash];
                sum(&parts.join("\n"))
            })
        };
        if let Ok(proof) = &proof
            && self.is_proven(proof)
        {
            return Ok(());
        }
        self.check(from, name, password).await?;
        if let Ok(proof) = proof {
            self.keep(proof);
        }
        Ok(())
    }

    fn is_proven(&self, proof: &Sum) -> bool {
        let proofs = self.proofs.lock().unwrap_or_else(PoisonError::into_inner);
        proofs
            .get(proof)
            .is_some_and(|at| at.elapsed() < PROOF_LIFE)
    }

    fn keep(&self, proof: Sum) {
        let mut proofs = self.proofs.lock().unwrap_or_else(PoisonError::into_inner);
        proofs.retain(|_, at| at.elapsed() < PROOF_LIFE);
        if proofs.len() < MOST_PROOFS {
            proofs.insert(proof, Instant::now());
        }
    }
}

impl IntoResponse for LoginRefused {
    fn into_response(self) -> Response {
        let (status, why) = match &self {
            LoginRefused::Wrong => (
                StatusCode::UNAUTHORIZED,
                "Name or password is wrong.".to_owned(),
            ),
            LoginRefused::Wait(wait) => (
                StatusCode::TOO_MANY_REQUESTS,
                format!(
                    "Too many logins failed; try again in {} s.",
                    wait.as_secs() + 1
                ),
            ),
            LoginRefused::Busy => (
                StatusCode::SERVICE_UNAVAILABLE,
                "Too many log in at once; try again.".to_owned(),
            ),
        };
        let mut response = (status, Json(json!({"error": why}))).into_response();
        if let LoginRefused::Wait(wait) = self {
            let seconds = header::HeaderValue::from(wait.as_secs() + 1);
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        response
    }
}

/// What the form sends.
#[derive(Deserialize)]
pub(in crate::web) struct Form {
    user: String,
    password: SecretString,
}

/// Whether a login is wanted, and who is logged in.
pub(in crate::web) async fn session(
    Shared(state): Shared<WebState>,
    headers: HeaderMap,
) -> impl IntoResponse {
    let login = state.access.login.as_ref();
    let user = login.and_then(|login| login.user(&headers));
    let acts = user.is_some() && state.actor.is_some();
    let said = Json(json!({"login": login.is_some(), "user": user, "acts": acts}));
    ([(header::CACHE_CONTROL, "no-store")], said)
}

/// Gives a session's cookie for a name and a password.
pub(in crate::web) async fn log_in(
    Shared(state): Shared<WebState>,
    Extension(PeerAddress(from)): Extension<PeerAddress>,
    form: Result<Json<Form>, JsonRejection>,
) -> Response {
    let Some(login) = &state.access.login else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let form = match form {
        Ok(Json(form)) => form,
        // What was sent may have the password in it.
        Err(error) => {
            return (error.status(), "expected {user, password} as JSON\n").into_response();
        }
    };
    if let Err(refused) = login.check(from, &form.user, &form.password).await {
        return refused.into_response();
    }
    let users = login.users.get();
    let Some(hash) = users.hash(&form.user) else {
        return LoginRefused::Wrong.into_response();
    };
    let token = match login
        .sessions
        .begin(form.user.as_str().into(), hash, Instant::now())
    {
        Ok(token) => token,
        Err(error) => {
            tracing::error!("no session can begin: {error}");
            return LoginRefused::Busy.into_response();
        }
    };
    tracing::info!(user = %form.user, %from, "logged in to the page");
    let cookie = baked(login, &token, LIFE);
    (
        [(header::SET_COOKIE, cookie)],
        Json(json!({"user": form.user})),
    )
        .into_response()
}

/// Ends the session.
pub(in crate::web) async fn log_out(
    Shared(state): Shared<WebState>,
    headers: HeaderMap,
) -> Response {
    let Some(login) = &state.access.login else {
        return StatusCode::NOT_FOUND.into_response();
    };
    if let Some(token) = login.token(&headers) {
        login.sessions.end(token);
    }
    let cookie = baked(login, "", Duration::ZERO);
    ([(header::SET_COOKIE, cookie)], Json(json!({}))).into_response()
}

/// The cookie: for no script, for no request that another site's page makes.
fn baked(login: &Login, token: &str, life: Duration) -> String {
    let secure = if login.secure { "; Secure" } else { "" };
    format!(
        "{}={token}; Path=/; Max-Age={}; HttpOnly; SameSite=Strict{secure}",
        login.cookie(),
        life.as_secs()
    )
}

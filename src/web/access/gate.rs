//! Where a login is wanted, and what lets one pass.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State as Shared};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::SecretString;
use serde_json::json;

use super::login::{Login, LoginRefused};
use crate::web::WebState;
use crate::web::server::PeerAddress;

/// Who is logged in and asks.
#[derive(Clone, Debug)]
pub(in crate::web) struct Visitor(pub(in crate::web) Arc<str>);

/// What the page asks for is for those who are logged in, where a login is wanted.
pub(in crate::web) async fn page_gate(
    Shared(state): Shared<WebState>,
    mut request: Request,
    next: Next,
) -> Response {
    if let Some(login) = &state.access.login {
        let Some(user) = login.user(request.headers()) else {
            let why = json!({"error": "Log in first."});
            return (StatusCode::UNAUTHORIZED, Json(why)).into_response();
        };
        request.extensions_mut().insert(Visitor(user));
    }
    next.run(request).await
}

/// The metrics are for those who are logged in, and for scrapers by basic authentication.
pub(in crate::web) async fn metrics_gate(
    Shared(state): Shared<WebState>,
    request: Request,
    next: Next,
) -> Response {
    let Some(login) = &state.access.login else {
        return next.run(request).await;
    };
    match known(login, request.headers(), peer(&request)).await {
        Ok(()) => next.run(request).await,
        Err(refused) => {
            let mut response = refused.into_response();
            if response.status() == StatusCode::UNAUTHORIZED {
                let asks =
                    HeaderValue::from_static("Basic realm=\"pve-autoscaler\", charset=\"UTF-8\"");
                response
                    .headers_mut()
                    .insert(header::WWW_AUTHENTICATE, asks);
            }
            response
        }
    }
}

/// Whether the one who asks is told why, beyond yes and no.
pub(in crate::web) async fn tells_reasons(
    state: &WebState,
    headers: &HeaderMap,
    PeerAddress(from): PeerAddress,
) -> bool {
    let Some(login) = &state.access.login else {
        return true;
    };
    known(login, headers, Some(from)).await.is_ok()
}

fn peer(request: &Request) -> Option<IpAddr> {
    request.extensions().get().map(|PeerAddress(from)| *from)
}

/// By the cookie of a session, or by a name and a password.
async fn known(
    login: &Login,
    headers: &HeaderMap,
    from: Option<IpAddr>,
) -> Result<(), LoginRefused> {
    if login.user(headers).is_some() {
        return Ok(());
    }
    let (name, password) = basic(headers).ok_or(LoginRefused::Wrong)?;
    let from = from.ok_or(LoginRefused::Busy)?;
    login.check_again(from, &name, &password).await
}

/// The name and password of basic authentication.
fn basic(headers: &HeaderMap) -> Option<(String, SecretString)> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, code) = text.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(code.trim()).ok()?).ok()?;
    let (name, password) = text.split_once(':')?;
    Some((name.to_owned(), SecretString::from(password.to_owned())))
}

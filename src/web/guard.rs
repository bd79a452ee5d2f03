//! Who may ask for the page: a browser that was led here by this program's own address, and by no other page.
//!
//! A name of a stranger's domain that leads to this host (DNS rebinding) would let the stranger's page read what is
//! served here. It arrives with that name in `Host`, so names are taken that this host is known by, and addresses.

use std::net::IpAddr;

use axum::extract::{Request, State as Shared};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::WebState;

/// What each answer of the page says of itself: nothing comes from elsewhere, nothing is shown elsewhere.
const HEADERS: [(header::HeaderName, &str); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        header::HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        header::HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// Lets a request pass, or says why not.
pub(super) async fn guard(
    Shared(state): Shared<WebState>,
    request: Request,
    next: Next,
) -> Response {
    // A page under a stranger's name has no cookie of this one's.
    let any_name = state.access.wants_login();
    let mut response = match refuse(request.method(), request.headers(), any_name) {
        Some(why) => (StatusCode::FORBIDDEN, why).into_response(),
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, header::HeaderValue::from_static(value));
    }
    response
}

/// Why a request is not answered.
fn refuse(method: &Method, headers: &HeaderMap, any_name: bool) -> Option<&'static str> {
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    if !host.is_some_and(|host| any_name || names_this_host(host)) {
        return Some(
            "This page is served under localhost or an address of this host, not under this name.\n",
        );
    }
    if let Some(origin) = headers.get(header::ORIGIN)
        && *method != Method::GET
        && !host.is_some_and(|host| is_origin(origin.as_bytes(), host))
    {
        return Some("Another site's page may not ask for this.\n");
    }
    let from = headers
        .get("sec-fetch-site")
        .map(header::HeaderValue::as_bytes);
    match from {
        // A link on another page leads here, and shows the page in a tab of its own.
        Some(b"cross-site" | b"same-site") if *method != Method::GET || !is_navigation(headers) => {
            Some("Another site's page may not ask for this.\n")
        }
        _ => None,
    }
}

/// Whether a page that came from this `Host` asks. Where a browser says no `Sec-Fetch-Site` it says this.
fn is_origin(origin: &[u8], host: &str) -> bool {
    let name = origin
        .strip_prefix(b"https://")
        .or_else(|| origin.strip_prefix(b"http://"));
    name.is_some_and(|name| name.eq_ignore_ascii_case(host.as_bytes()))
}

/// Whether a person follows a link, and no page reads what comes.
fn is_navigation(headers: &HeaderMap) -> bool {
    headers
        .get("sec-fetch-mode")
        .is_some_and(|mode| mode.as_bytes() == b"navigate")
}

/// Whether a `Host` is an address or `localhost`, with or without a port.
fn names_this_host(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, "")) => name,
            Some((name, port)) if port.starts_with(':') => name,
            _ => return false,
        },
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_are_refused() {
        for good in [
            "localhost",
            "LOCALHOST:9808",
            "127.0.0.1:9808",
            "192.0.2.7",
            "[::1]:9808",
            "[2001:db8::1]",
        ] {
            assert!(names_this_host(good), "{good}");
        }
        for bad in [
            "",
            "rebind.example",
            "rebind.example:9808",
            "localhost.example",
            "127.0.0.1.example",
            "[::1",
            "[::1]x",
            "[localhost.example]:1",
            "::1",
        ] {
            assert!(!names_this_host(bad), "{bad}");
        }
    }

    #[test]
    fn another_sites_page_may_lead_here_and_not_read() {
        let headers = |pairs: &[(&'static str, &'static str)]| {
            let pairs = pairs.iter().map(|(name, value)| {
                let value = header::HeaderValue::from_static(value);
                (header::HeaderName::from_static(name), value)
            });
            pairs.collect::<HeaderMap>()
        };
        let refuse = |headers: &HeaderMap| refuse(&Method::GET, headers, false);
        let host = ("host", "localhost:9808");
        assert!(refuse(&headers(&[host])).is_none());
        assert!(refuse(&headers(&[host, ("sec-fetch-site", "same-origin")])).is_none());
        assert!(refuse(&headers(&[host, ("sec-fetch-site", "cross-site")])).is_some());
        let followed = [
            host,
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
        ];
        assert!(refuse(&headers(&followed)).is_none());
        // A form on another page is followed, too.
        assert!(super::refuse(&Method::POST, &headers(&followed), false).is_some());
        assert!(refuse(&headers(&[])).is_some());
    }
}

//! The HTTP client beneath kube's: what calls to the API server go through.
//!
//! kube would put one together itself (`ClientBuilder::try_from`), with credential plugins, repetitions and spans for each call. Plugins are refused
//! when a kubeconfig is read, and the other two are the caller's. Without them the daemon has half a megabyte less of code.

use base64::Engine as _;
use http::header::{AUTHORIZATION, HeaderValue};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::Config;
use kube::client::{Body, ConfigExt as _};
use kube::config::AuthInfo;
use secrecy::{ExposeSecret as _, SecretString};
use tower::util::MapRequest;
use tower::{BoxError, Layer as _, Service};

use super::tls;

/// A service that sends each request to the server of `config`, as its user, with its timeouts.
///
/// # Errors
/// What of the configuration makes no client: certificates, keys, a token.
pub(super) fn connect(
    config: &Config,
) -> Result<
    impl Service<
        Request<Body>,
        Response = Response<Incoming>,
        Error: Into<BoxError>,
        Future: Send + 'static,
    > + Send
    + use<>,
    String,
> {
    let refused = |error: kube::Error| format!("no client can be made of it: {error}");
    let mut http = HttpConnector::new();
    // It is given addresses with `https` too: TLS is the next one's.
    http.enforce_http(false);
    let https = tls::connector(config, http)
        .map_err(|why| format!("no client can be made of it: {why}"))?;
    let mut connector = TimeoutConnector::new(https);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let client: Client<_, Body> = Client::builder(TokioExecutor::new()).build(connector);

    let authorization = authorization(&config.auth_info)?;
    let client = MapRequest::new(client, move |mut request: Request<Body>| {
        if let Some(value) = &authorization {
            request.headers_mut().insert(AUTHORIZATION, value.clone());
        }
        request
    });
    let client = config.extra_headers_layer().map_err(refused)?.layer(client);
    Ok(config.base_uri_layer().layer(client))
}

/// The header that says who calls: of a user with a password or a token. A user with a client certificate has none.
fn authorization(user: &AuthInfo) -> Result<Option<HeaderValue>, String> {
    let text = if let (Some(name), Some(password)) = (&user.username, &user.password) {
        let both = SecretString::from(format!("{name}:{}", password.expose_secret()));
        let encoded = base64::engine::general_purpose::STANDARD.encode(both.expose_secret());
        SecretString::from(format!("Basic {encoded}"))
    } else if let Some(token) = &user.token {
        SecretString::from(format!("Bearer {}", token.expose_secret()))
    } else {
        return Ok(None);
    };
    let mut value = HeaderValue::from_str(text.expose_secret())
        .map_err(|_| "its user's token has a character that no request can carry".to_owned())?;
    value.set_sensitive(true);
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_told_by_password_or_token_and_one_with_a_certificate_by_neither() {
        let said = |user: &AuthInfo| {
            let value = authorization(user).expect("a header or none");
            value.map(|value| {
                assert!(value.is_sensitive(), "a log would show it");
                value.to_str().expect("plain text").to_owned()
            })
        };
        let mut user = AuthInfo {
            client_certificate: Some("/etc/kubernetes/client.pem".to_owned()),
            ..AuthInfo::default()
        };
        assert_eq!(said(&user), None);
        user.token = Some(SecretString::from("abc.def"));
        assert_eq!(said(&user).as_deref(), Some("Bearer abc.def"));
        // kubectl takes a password before a token, too.
        user.username = Some("ann".to_owned());
        user.password = Some(SecretString::from("s:cret"));
        assert_eq!(said(&user).as_deref(), Some("Basic YW5uOnM6Y3JldA=="));
        user.password = None;
        user.token = Some(SecretString::from("abc\ndef"));
        let refused = authorization(&user).expect_err("no header has a line break");
        assert!(!refused.contains("abc"), "{refused}");
    }
}

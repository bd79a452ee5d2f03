//! From a kubeconfig file to a client that cannot hang.
//!
//! Exec and auth-provider plugins are refused: they would run other people's programs inside the
//! daemon. Nothing here quotes the file: parsers' errors are reduced to line and column.

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use http::{HeaderValue, Request, Response};
use kube::Config;
use kube::client::{Body, ClientBuilder};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError};
use secrecy::{ExposeSecret as _, SecretString};
use tower::timeout::TimeoutLayer;
use tower::{BoxError, Service};

use super::{bootstrap, certificate, http_client};
use crate::bounded_file;
use crate::model::time::{Span, Time};
use crate::model::words;

/// Longest wait for the first header of an answer. kube has no bound of its own, so an API server
/// that accepts and never answers would freeze a caller for ever.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest silence within a body; longer than a watch, which the server ends after
/// 290 s.
pub const READ_TIMEOUT: Duration = Duration::from_secs(330);
/// Longest wait for a TCP connection and its TLS handshake.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long before its end a client certificate is warned about.
pub const EXPIRY_WARNING: Span = Span::minutes(14 * 24 * 60);

/// Where the client comes from.
#[derive(Clone)]
pub enum Connector {
    /// A kubeconfig file, re-read when it changes.
    File {
        /// Path of the file.
        path: PathBuf,
        /// Context in it; its `current-context` when absent.
        context: Option<String>,
    },
    /// A client made elsewhere: see [`in_memory`].
    Given(kube::Client, Option<Authority>),
}

/// The API server as the kubeconfig knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Authority {
    /// `https://host:port`.
    pub server: String,
    /// The CA certificates that it is believed by, PEM, to the byte.
    pub ca_pem: String,
}

impl Connector {
    /// A connector in this process that knows the API server as a kubeconfig would.
    #[must_use]
    pub fn known_as(self, authority: Authority) -> Connector {
        match self {
            Connector::Given(client, _) => Connector::Given(client, Some(authority)),
            file @ Connector::File { .. } => file,
        }
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Connector::File { path, context } => f
                .debug_struct("File")
                .field("path", path)
                .field("context", context)
                .finish(),
            Connector::Given(..) => f.write_str("Given"),
        }
    }
}

/// A connector to a service in this process, such as the simulator's `axum::Router`, under the
/// same header timeout as a real connection.
pub fn in_memory<S, B>(service: S) -> Connector
where
    S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: hyper::body::Body<Data = hyper::body::Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    Connector::Given(
        ClientBuilder::new(service, "default")
            .with_layer(&TimeoutLayer::new(HEADER_TIMEOUT))
            .build(),
        None,
    )
}

/// What a kubeconfig gave.
pub(super) struct LoadedKubeconfig {
    pub(super) client: kube::Client,
    /// End of the client certificate, when the user has one.
    pub(super) expires: Option<Time>,
    /// `https://host:port` of the cluster.
    pub(super) server: String,
    /// The cluster's CA certificates, PEM; `None` when the file has none.
    pub(super) ca_pem: Option<String>,
    /// How the daemon's credentials can come to others on their way to the server, if they can.
    pub(super) exposure: Option<String>,
    /// Every file that went into it.
    pub(super) files: Vec<PathBuf>,
}

/// `https://host:port` of the API server that a kubeconfig names.
///
/// # Errors
/// The file, the context and what is wrong with them.
pub async fn server(path: &Path, context: Option<&str>) -> Result<String, String> {
    Ok(load(path, context).await?.server)
}

/// The largest kubeconfig that is read, in bytes.
const LARGEST: u64 = 4 << 20;

/// Refuses what is no kubeconfig before it is read: a device may have no end, and a disk's image would take all memory. A pipe is fine.
///
/// # Errors
/// What it is instead.
pub(super) fn check_plain(path: &Path) -> Result<(), String> {
    use std::os::unix::fs::FileTypeExt as _;
    // What cannot be looked at cannot be read either, and that is told with what to do.
    let Ok(found) = std::fs::metadata(path) else {
        return Ok(());
    };
    let kind = found.file_type();
    if kind.is_char_device() || kind.is_block_device() {
        return Err("it is a device, and no kubeconfig".to_owned());
    }
    if found.len() > LARGEST {
        return Err(format!(
            "it is larger than {LARGEST} bytes; is it the right file?"
        ));
    }
    Ok(())
}

/// The files that a kubeconfig names in the context that is used, by their keys. None where it cannot be read, which is told where it is
/// read for its use.
pub fn named_files(path: &Path, context: Option<&str>) -> Vec<(&'static str, PathBuf)> {
    if check_plain(path).is_err() {
        return Vec::new();
    }
    let Ok(file) = Kubeconfig::read_from(path) else {
        return Vec::new();
    };
    let context = context.or(file.current_context.as_deref());
    let resolved = context.and_then(|context| resolve(&file, context).ok());
    let Some((cluster, _, user)) = resolved else {
        return Vec::new();
    };
    let files = [
        ("certificate-authority", cluster.certificate_authority),
        ("client-certificate", user.client_certificate),
        ("client-key", user.client_key),
        ("tokenFile", user.token_file),
    ];
    let named = files.into_iter();
    named
        .filter_map(|(key, at)| Some((key, PathBuf::from(at?))))
        .collect()
}

/// Reads the file and builds a client. Errors name file, context and what to do.
pub(super) async fn load(path: &Path, context: Option<&str>) -> Result<LoadedKubeconfig, String> {
    let at = |message: String| format!("kubeconfig {}: {message}", path.display());
    check_plain(path).map_err(at)?;
    let mut file = Kubeconfig::read_from(path)
        .map_err(|error| at(explain(&error, KubeconfigOwner::Daemon)))?;
    let context = context
        .map(str::to_owned)
        .or_else(|| file.current_context.clone())
        .ok_or_else(|| at("it has no current-context: set it, or set kubernetes.context".into()))?;
    let at = |message: String| at(format!("context {context:?}: {message}"));
    let (cluster, user_name, user) = resolve(&file, &context).map_err(&at)?;
    refuse_plugins(&user_name, &user).map_err(&at)?;
    if let Some(token) = &user.token {
        check_token(&user_name, token.expose_secret()).map_err(&at)?;
    }
    let token_file = read_token_file(&user_name, &mut file).map_err(&at)?;
    if let Some(server) = &cluster.server {
        check_server(server)
            .map_err(|why| at(format!("server {:?}: {why}", without_user(server))))?;
    }
    let expires = client_certificate(&user)
        .map_err(|error| at(format!("client certificate of user {user_name:?}: {error}")))?;
    let mut files = vec![path.to_owned()];
    files.extend(
        [
            user.client_certificate.as_ref(),
            user.client_key.as_ref(),
            cluster.certificate_authority.as_ref(),
        ]
        .into_iter()
        .flatten()
        .map(PathBuf::from),
    );
    files.extend(token_file);
    let server = cluster.server.clone().unwrap_or_default();
    let ca_pem = authority_of(&cluster);
    let exposure = exposure(&cluster);
    let client = build(file, &context).await.map_err(at)?;
    Ok(LoadedKubeconfig {
        client,
        expires,
        server,
        ca_pem,
        exposure,
        files,
    })
}

/// How credentials can come to others on their way to a cluster's API server: what is not checked, or not encrypted. To this host itself nothing
/// goes over a network.
fn exposure(cluster: &kube::config::Cluster) -> Option<String> {
    let server = cluster.server.as_deref().unwrap_or_default();
    let uri: http::Uri = server.parse().ok()?;
    if bootstrap::is_loopback(uri.host().unwrap_or_default()) {
        return None;
    }
    if uri.scheme_str() == Some("http") {
        return Some(format!(
            "{server} is no https: whoever is on the way reads the daemon's credentials"
        ));
    }
    let unchecked = cluster.insecure_skip_tls_verify == Some(true);
    unchecked.then(|| {
        "the kubeconfig has insecure-skip-tls-verify: whoever answers at the server's address is believed, and gets the daemon's credentials"
            .to_owned()
    })
}

/// The CA certificates of a cluster, in the file or beside it.
fn authority_of(cluster: &kube::config::Cluster) -> Option<String> {
    if let Some(data) = &cluster.certificate_authority_data {
        let pem = base64::engine::general_purpose::STANDARD
            .decode(data.trim())
            .ok()?;
        return String::from_utf8(pem).ok();
    }
    std::fs::read_to_string(cluster.certificate_authority.as_ref()?).ok()
}

pub(super) fn resolve(
    file: &Kubeconfig,
    name: &str,
) -> Result<(kube::config::Cluster, String, AuthInfo), String> {
    let context = file
        .contexts
        .iter()
        .find(|context| context.name == name)
        .and_then(|context| context.context.clone())
        .ok_or_else(|| {
            let known: Vec<&str> = file.contexts.iter().map(|c| c.name.as_str()).collect();
            format!("no such context; the file has: {}", words::names(&known))
        })?;
    let cluster = file
        .clusters
        .iter()
        .find(|cluster| cluster.name == context.cluster)
        .and_then(|cluster| cluster.cluster.clone())
        .ok_or_else(|| {
            format!(
                "it names cluster {:?}, which the file lacks",
                context.cluster
            )
        })?;
    if cluster
        .proxy_url
        .as_deref()
        .is_some_and(|url| !url.is_empty())
    {
        return Err(format!(
            "cluster {:?} has a proxy-url, and proxies are not supported: give the API server's own address",
            context.cluster
        ));
    }
    let user_name = context.user.unwrap_or_default();
    let user = file
        .auth_infos
        .iter()
        .find(|user| user.name == user_name)
        .and_then(|user| user.auth_info.clone())
        .ok_or_else(|| format!("it names user {user_name:?}, which the file lacks"))?;
    Ok((cluster, user_name, user))
}

/// Longest address of an API server, in bytes.
const MAX_SERVER: usize = 2_000;

/// Whether an API server's address is one that can be called. kube-client puts it together with each request's path
/// and panics where that makes no address: without a scheme at every call.
pub(super) fn check_server(server: &str) -> Result<http::Uri, String> {
    let refused = |why: &str| Err(format!("{why}; expected https://ADDRESS:6443"));
    if server.len() > MAX_SERVER {
        return refused("it is longer than an address can be");
    }
    let Ok(uri) = server.parse::<http::Uri>() else {
        return refused("it is not a URL");
    };
    match uri.scheme_str() {
        Some("https" | "http") => {}
        Some(_) => return refused("its scheme is not https"),
        None => return refused("it has no scheme"),
    }
    if uri.host().is_none_or(str::is_empty) {
        return refused("it names no host");
    }
    let port = uri.authority().map_or("", |authority| authority.as_str());
    if port.contains('@') {
        return refused("it has a user in it, and what is said of one belongs below users");
    }
    let port = port
        .rsplit_once(':')
        .filter(|(_, port)| !port.contains(']'));
    if port.is_some_and(|(_, port)| port.parse::<u16>().is_err()) {
        return refused("its port is no port");
    }
    Ok(uri)
}

/// A server's address for an error, without the user and password that stand before an `@`.
pub(super) fn without_user(server: &str) -> String {
    server
        .rsplit_once('@')
        .map_or_else(|| server.to_owned(), |(_, host)| format!("…@{host}"))
}

/// Bytes of a request's path and query at most: the longest is a list's `continue`, of some hundred.
const MAX_TARGET: usize = 32 * 1024;

/// Whether a request can be sent: kube-client puts the server's own path before it, and panics where both together are
/// too long for HTTP.
pub(super) fn check_target(uri: &http::Uri) -> Result<(), String> {
    let target = uri.path_and_query().map_or("", |target| target.as_str());
    if target.len() > MAX_TARGET {
        return Err(format!(
            "its path and query are longer than {MAX_TARGET} bytes"
        ));
    }
    Ok(())
}

fn refuse_plugins(name: &str, user: &AuthInfo) -> Result<(), String> {
    let key = if user.exec.is_some() {
        "exec"
    } else if user.auth_provider.is_some() {
        "auth-provider"
    } else {
        return Ok(());
    };
    Err(format!(
        "user {name:?} has the key {key:?}: credential plugins are not run by this daemon; make a \
         kubeconfig with a client certificate by `pve-autoscaler kubeconfig`"
    ))
}

/// Refuses a token that no request can carry: tower-http panics on it.
fn check_token(name: &str, token: &str) -> Result<(), String> {
    if HeaderValue::from_str(token).is_ok() {
        return Ok(());
    }
    let line_break = token.contains(['\n', '\r']);
    let why = if line_break {
        "a line break"
    } else {
        "a control character"
    };
    Err(format!(
        "the token of user {name:?} has {why} in it, and no token has one: write it anew, in one line"
    ))
}

/// Puts the token in a user's `tokenFile` into the kubeconfig as it was read, and gives the file's path. White space around the token is
/// left out, as kubectl does: kube-client sends it too, and no request can carry the line break at the end of a file.
fn read_token_file(name: &str, kubeconfig: &mut Kubeconfig) -> Result<Option<PathBuf>, String> {
    let mut users = kubeconfig.auth_infos.iter_mut();
    let user = users.find(|user| user.name == name);
    let Some(user) = user.and_then(|user| user.auth_info.as_mut()) else {
        return Ok(None);
    };
    // kube-client takes these before a file.
    if user.token.is_some() || (user.username.is_some() && user.password.is_some()) {
        return Ok(None);
    }
    let Some(path) = user.token_file.as_ref().map(PathBuf::from) else {
        return Ok(None);
    };
    let at = |why: String| format!("tokenFile {} of user {name:?}: {why}", path.display());
    let text = bounded_file::read_text(&path, bounded_file::TEXT)
        .map_err(|error| at(format!("it cannot be read: {error}")))?;
    let token = text.trim();
    if token.is_empty() {
        return Err(at("it is empty".to_owned()));
    }
    check_token(name, token).map_err(at)?;
    user.token = Some(SecretString::from(token.to_owned()));
    Ok(Some(path))
}

/// When the user's client certificate ends; `None` for token users.
fn client_certificate(user: &AuthInfo) -> Result<Option<Time>, String> {
    let pem = if let Some(data) = user
        .client_certificate_data
        .as_ref()
        .filter(|d| !d.is_empty())
    {
        base64::engine::general_purpose::STANDARD
            .decode(data.trim())
            .map_err(|_| "client-certificate-data is not base64".to_owned())?
    } else if let Some(path) = user.client_certificate.as_ref().filter(|p| !p.is_empty()) {
        std::fs::read(path).map_err(|error| format!("{path} cannot be read: {error}"))?
    } else {
        return Ok(None);
    };
    let chain = certificate::read_pem(&pem)?;
    Ok(chain.first().map(|leaf| leaf.expires))
}

pub(super) async fn build(file: Kubeconfig, context: &str) -> Result<kube::Client, String> {
    let options = KubeConfigOptions {
        context: Some(context.to_owned()),
        ..KubeConfigOptions::default()
    };
    let mut config = Config::from_custom_kubeconfig(file, &options)
        .await
        .map_err(|error| explain(&error, KubeconfigOwner::Daemon))?;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(READ_TIMEOUT);
    config.write_timeout = Some(HEADER_TIMEOUT);
    config.reset_reader_on_write = true;
    let service = http_client::connect(&config)?;
    Ok(ClientBuilder::new(service, config.default_namespace)
        .with_layer(&TimeoutLayer::new(HEADER_TIMEOUT))
        .build())
}

/// Who is meant to have a kubeconfig: what to do about one that cannot be read depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KubeconfigOwner {
    /// The daemon; made for it.
    Daemon,
    /// A person who may do all in the cluster.
    Administrator,
}

/// A kubeconfig error without any of the file's text.
pub(super) fn explain(error: &KubeconfigError, whose: KubeconfigOwner) -> String {
    match error {
        KubeconfigError::ReadConfig(error, _) => {
            let hint = match (error.kind(), whose) {
                (std::io::ErrorKind::NotFound, KubeconfigOwner::Daemon) => {
                    "`pve-autoscaler kubeconfig` makes the daemon's, of an administrator's such as a control plane node's /etc/kubernetes/admin.conf"
                }
                (std::io::ErrorKind::NotFound, KubeconfigOwner::Administrator) => {
                    "an administrator's is /etc/kubernetes/admin.conf on a control plane node, or ~/.kube/config where kubectl works: copy it here"
                }
                (std::io::ErrorKind::PermissionDenied, KubeconfigOwner::Daemon) => {
                    "it must be readable by the group pve-autoscaler (root:pve-autoscaler 0640)"
                }
                (std::io::ErrorKind::PermissionDenied, KubeconfigOwner::Administrator) => {
                    "it is another user's: run this as that user, or as root"
                }
                _ => "see that it is a plain file",
            };
            format!("it cannot be read ({error}): {hint}")
        }
        KubeconfigError::Parse(error) => match error.location() {
            Some(location) => format!("it is not a kubeconfig: line {}", location.line()),
            None => "it is not a kubeconfig".to_owned(),
        },
        other => other.to_string(),
    }
}

/// What tells one state of a file from another, cheaply.
pub(super) fn stamp(path: &Path) -> Option<(SystemTime, u64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

/// The warning for a client certificate that ends soon or has ended.
pub fn expiry_warning(expires: Time, now: Time) -> Option<String> {
    if expires <= now {
        return Some(format!(
            "the kubeconfig's client certificate ended at {expires}: renew it with `pve-autoscaler kubeconfig`"
        ));
    }
    let left = expires.since(now);
    (left <= EXPIRY_WARNING).then(|| {
        format!(
            "the kubeconfig's client certificate ends at {expires}, in {} days: renew it with `pve-autoscaler kubeconfig`",
            left.0 / Span::minutes(24 * 60).0
        )
    })
}

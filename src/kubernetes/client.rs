//! One call to the API server: a request with a deadline, an answer or an [`KubeError`] that says
//! whether it may have been carried out. Everything in [`crate::kubernetes`] goes through here.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use http::{HeaderMap, Method, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::client::Body;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::Instant;

use super::connect::{self, Connector};
use super::credential_state::CredentialState;
use super::error::{ApiCall, KubeError, NO_ANSWER, chain, server_of};
use super::observer::{CallObserver, CallOutcome};
use super::refused::refusal;
use crate::clock::Clock;
use crate::model::time::Time;

/// Longest a call may take, body and all. A list page of 100 pods takes well under a second.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest body that is read, in bytes: one object of the largest that etcd takes (1.5 MiB), of which
/// JSON makes nine (`\u003c` for one byte). Pages of a list are halved until they are below it.
pub const MAX_BODY: usize = 16 * 1024 * 1024;
const JSON: &str = "application/json";
/// The media type of a list that has only the metadata of its objects.
const NAMES: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
/// How often the kubeconfig's files are looked at.
pub const FILE_POLL: Duration = Duration::from_secs(30);
/// After a 401 the file is read again at most this often: a broken file must not be read per call.
const RELOAD_PAUSE: Duration = Duration::from_secs(5);
const USER_AGENT: &str = concat!("pve-autoscaler/", env!("CARGO_PKG_VERSION"));

/// The Kubernetes client. Clones share one connection.
#[derive(Clone, Debug)]
pub struct KubeClient {
    inner: Arc<ClientInner>,
}

struct ClientInner {
    connector: Connector,
    clock: Clock,
    observer: Arc<dyn CallObserver>,
    link: Mutex<Link>,
    /// Counts clients made: a watch that sees it change begins anew.
    generation: watch::Sender<u64>,
}

struct Link {
    client: Result<kube::Client, String>,
    expires: Option<Time>,
    server: String,
    exposure: Option<String>,
    ca_pem: Option<String>,
    /// The newest file was not taken, and why.
    error: Option<String>,
    stamps: BTreeMap<PathBuf, Option<(SystemTime, u64)>>,
    read: Option<Instant>,
}

impl fmt::Debug for ClientInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientInner")
            .field("connector", &self.connector)
            .finish_non_exhaustive()
    }
}

/// What a request carries.
#[derive(Debug)]
pub(super) enum RequestBody {
    Nothing,
    Json(serde_json::Value),
    /// RFC 7386.
    MergePatch(serde_json::Value),
    /// RFC 6902.
    JsonPatch(serde_json::Value),
    /// Server-side apply; JSON is YAML.
    Apply(serde_json::Value),
}

/// One request.
#[derive(Debug)]
pub(super) struct KubeRequest {
    pub(super) call: ApiCall,
    pub(super) path: String,
    pub(super) query: Vec<(&'static str, String)>,
    pub(super) payload: RequestBody,
    /// What form the answer shall have.
    accept: &'static str,
    /// The statuses of refusals that are an answer to whoever asks, and no error.
    expected: &'static [u16],
}

impl KubeRequest {
    pub(super) fn new(
        verb: &'static str,
        kind: &'static str,
        name: impl Into<String>,
        path: String,
    ) -> KubeRequest {
        KubeRequest {
            call: ApiCall {
                verb,
                kind,
                name: name.into(),
            },
            path,
            query: Vec::new(),
            payload: RequestBody::Nothing,
            accept: JSON,
            expected: &[],
        }
    }

    /// Takes refusals with these statuses for an answer: they do not count as errors.
    pub(super) fn expect_refusals(mut self, statuses: &'static [u16]) -> KubeRequest {
        self.expected = statuses;
        self
    }

    /// Asks for the metadata of a list's objects alone.
    pub(super) fn names_only(mut self) -> KubeRequest {
        self.accept = NAMES;
        self
    }

    pub(super) fn query(mut self, key: &'static str, value: impl Into<String>) -> KubeRequest {
        self.query.push((key, value.into()));
        self
    }

    pub(super) fn json(mut self, value: serde_json::Value) -> KubeRequest {
        self.payload = RequestBody::Json(value);
        self
    }

    pub(super) fn merge_patch(mut self, value: serde_json::Value) -> KubeRequest {
        self.payload = RequestBody::MergePatch(value);
        self
    }

    pub(super) fn json_patch(mut self, operations: serde_json::Value) -> KubeRequest {
        self.payload = RequestBody::JsonPatch(operations);
        self
    }

    pub(super) fn apply(mut self, value: serde_json::Value) -> KubeRequest {
        self.payload = RequestBody::Apply(value);
        self
    }

    /// Whether it changes something.
    fn changes(&self) -> bool {
        !matches!(self.call.verb, "get" | "list" | "watch")
    }

    fn build(self) -> Result<http::Request<Body>, http::Error> {
        let method = match self.call.verb {
            "create" => Method::POST,
            "update" => Method::PUT,
            "patch" => Method::PATCH,
            "delete" => Method::DELETE,
            _ => Method::GET,
        };
        let mut target = self.path;
        for (index, (key, value)) in self.query.iter().enumerate() {
            target.push(if index == 0 { '?' } else { '&' });
            target.push_str(key);
            target.push('=');
            target.push_str(&encode(value));
        }
        let builder = http::Request::builder()
            .method(method)
            .uri(target)
            .header(header::USER_AGENT, USER_AGENT)
            .header(header::ACCEPT, self.accept);
        match self.payload {
            RequestBody::Nothing => builder.body(Body::empty()),
            RequestBody::Json(value) => builder
                .header(header::CONTENT_TYPE, "application/json")
                .body(Body::from(value.to_string().into_bytes())),
            RequestBody::MergePatch(value) => builder
                .header(header::CONTENT_TYPE, "application/merge-patch+json")
                .body(Body::from(value.to_string().into_bytes())),
            RequestBody::JsonPatch(value) => builder
                .header(header::CONTENT_TYPE, "application/json-patch+json")
                .body(Body::from(value.to_string().into_bytes())),
            RequestBody::Apply(value) => builder
                .header(header::CONTENT_TYPE, "application/apply-patch+yaml")
                .body(Body::from(value.to_string().into_bytes())),
        }
    }
}

/// A whole answer with a 2xx status.
#[derive(Debug, Default)]
pub(super) struct KubeReply {
    pub(super) headers: HeaderMap,
    pub(super) body: hyper::body::Bytes,
}

/// An answer with a 2xx status whose body still comes.
pub(super) struct Stream {
    pub(super) body: Body,
}

impl KubeClient {
    /// A client; with a file that cannot be used it is made all the same, and every call says why
    /// until [`KubeClient::maintain`] finds a better file.
    pub async fn new(
        connector: Connector,
        clock: Clock,
        observer: Arc<dyn CallObserver>,
    ) -> KubeClient {
        let link = Link {
            client: match &connector {
                Connector::Given(client, _) => Ok(client.clone()),
                Connector::File { .. } => Err("the kubeconfig was not read yet".to_owned()),
            },
            expires: None,
            server: String::new(),
            exposure: None,
            ca_pem: None,
            error: None,
            stamps: BTreeMap::new(),
            read: None,
        };
        let client = KubeClient {
            inner: Arc::new(ClientInner {
                connector,
                clock,
                observer,
                link: Mutex::new(link),
                generation: watch::Sender::new(0),
            }),
        };
        client.reload().await;
        client
    }

    /// Looks at the kubeconfig's files every [`FILE_POLL`] and reads them again when one changed.
    /// Never returns; the daemon runs it as a task.
    pub async fn maintain(&self) {
        loop {
            tokio::time::sleep(FILE_POLL).await;
            let changed = {
                let link = self.link();
                link.stamps
                    .iter()
                    .any(|(path, stamp)| connect::stamp(path) != *stamp)
            };
            if changed {
                self.reload().await;
            }
        }
    }

    /// The state of our credentials now.
    pub fn credentials(&self) -> CredentialState {
        let link = self.link();
        CredentialState {
            expires: link.expires,
            warning: link
                .expires
                .and_then(|expires| connect::expiry_warning(expires, self.inner.clock.now())),
            error: link
                .error
                .clone()
                .or_else(|| link.client.as_ref().err().cloned()),
            server: link.server.clone(),
            exposure: link.exposure.clone(),
        }
    }

    /// The API server as the kubeconfig knows it; `None` where that says no CA.
    pub fn authority(&self) -> Option<connect::Authority> {
        if let Connector::Given(_, authority) = &self.inner.connector {
            return authority.clone();
        }
        let link = self.link();
        Some(connect::Authority {
            server: link.server.clone(),
            ca_pem: link.ca_pem.clone()?,
        })
    }

    /// The clock that this client's times are of.
    pub fn clock(&self) -> Clock {
        self.inner.clock
    }

    /// Changes whenever the client was made anew from a changed file.
    pub fn generation(&self) -> watch::Receiver<u64> {
        self.inner.generation.subscribe()
    }

    fn link(&self) -> MutexGuard<'_, Link> {
        // A poisoned lock guards plain data that is replaced as a whole: it is still good.
        self.inner
            .link
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    async fn reload(&self) {
        let Connector::File { path, context } = &self.inner.connector else {
            return;
        };
        let first = [(path.clone(), connect::stamp(path))];
        let loaded = connect::load(path, context.as_deref()).await;
        let mut link = self.link();
        link.read = Some(Instant::now());
        match loaded {
            Ok(loaded) => {
                link.stamps = loaded
                    .files
                    .into_iter()
                    .map(|file| {
                        let stamp = connect::stamp(&file);
                        (file, stamp)
                    })
                    .chain(first)
                    .collect();
                link.client = Ok(loaded.client);
                link.expires = loaded.expires;
                link.server = loaded.server;
                link.ca_pem = loaded.ca_pem;
                link.exposure.clone_from(&loaded.exposure);
                link.error = None;
                drop(link);
                self.inner.generation.send_modify(|count| *count += 1);
                tracing::info!(file = %path.display(), "read the kubeconfig");
                if let Some(exposure) = loaded.exposure {
                    tracing::warn!(
                        "{exposure}; `pve-autoscaler kubeconfig` makes one that is safe"
                    );
                }
            }
            Err(error) => {
                link.stamps.extend(first);
                if link.client.is_err() {
                    link.client = Err(error.clone());
                }
                tracing::error!(%error, "the kubeconfig cannot be used");
                link.error = Some(error);
            }
        }
    }

    /// After a 401: the credentials may have been rotated on disk since they were read.
    async fn unauthorized(&self) {
        let due = self
            .link()
            .read
            .is_none_or(|read| read.elapsed() >= RELOAD_PAUSE);
        if due {
            self.reload().await;
        }
    }

    /// Sends `request` and reads the whole answer, within [`CALL_TIMEOUT`].
    pub(super) async fn call(&self, request: KubeRequest) -> Result<KubeReply, KubeError> {
        let call = request.call.clone();
        let reply = self.call_unless_large(request).await?;
        reply.ok_or_else(|| KubeError::Unknown {
            call,
            code: Some(StatusCode::OK.as_u16()),
            message: format!("the answer is larger than {} MiB", MAX_BODY >> 20).into(),
        })
    }

    /// Like [`KubeClient::call`]; `None` when it was carried out and its answer is larger than [`MAX_BODY`].
    pub(super) async fn call_unless_large(
        &self,
        request: KubeRequest,
    ) -> Result<Option<KubeReply>, KubeError> {
        let started = Instant::now();
        let call = request.call.clone();
        let changes = request.changes();
        let expected = request.expected;
        let result = match tokio::time::timeout(CALL_TIMEOUT, self.exchange(request)).await {
            Ok(result) => result,
            Err(_) => Err(self.unanswered(call.clone(), CALL_TIMEOUT)),
        };
        self.observe(&call, &result, started, changes, expected);
        if result
            .as_ref()
            .is_err_and(|error| error.code() == Some(401))
        {
            self.unauthorized().await;
        }
        result
    }

    fn observe<T>(
        &self,
        call: &ApiCall,
        result: &Result<T, KubeError>,
        started: Instant,
        changes: bool,
        expected: &[u16],
    ) {
        let outcome = CallOutcome::of(result, expected);
        self.inner
            .observer
            .called(call.verb, call.kind, outcome, started.elapsed());
        match result {
            Ok(_) if changes => tracing::debug!(%call, "done"),
            Err(error) => tracing::debug!(%error, "call failed"),
            Ok(_) => {}
        }
    }

    /// Like [`KubeClient::call`], read as JSON.
    pub(super) async fn read<T: DeserializeOwned>(
        &self,
        request: KubeRequest,
    ) -> Result<T, KubeError> {
        let call = request.call.clone();
        let reply = self.call(request).await?;
        parse(call, &reply.body)
    }

    /// Sends a watch and returns its open body; only the wait for the headers is bounded here.
    pub(super) async fn open(&self, request: KubeRequest) -> Result<Stream, KubeError> {
        let started = Instant::now();
        let call = request.call.clone();
        let expected = request.expected;
        let opened = tokio::time::timeout(CALL_TIMEOUT, self.send(request)).await;
        let result = match opened {
            Ok(Ok(response)) if response.status().is_success() => Ok(Stream {
                body: response.into_body(),
            }),
            Ok(Ok(response)) => {
                let server = server_of(&self.link().server);
                match tokio::time::timeout(CALL_TIMEOUT, whole(&call, &server, response)).await {
                    Ok(Ok((status, reply))) => {
                        Err(refusal(&call, status, &reply.unwrap_or_default(), false))
                    }
                    Ok(Err(error)) => Err(error),
                    Err(_) => Err(self.unanswered(call.clone(), CALL_TIMEOUT)),
                }
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(self.unanswered(call.clone(), CALL_TIMEOUT)),
        };
        self.observe(&call, &result, started, false, expected);
        if result
            .as_ref()
            .is_err_and(|error| error.code() == Some(401))
        {
            self.unauthorized().await;
        }
        result
    }

    /// The error of a call that was given up after `patience`.
    pub(super) fn unanswered(&self, call: ApiCall, patience: Duration) -> KubeError {
        let server = server_of(&self.link().server);
        let seconds = patience.as_secs();
        KubeError::Unknown {
            call,
            code: None,
            message: format!("{server}: {NO_ANSWER} within {seconds} s").into(),
        }
    }

    async fn exchange(&self, request: KubeRequest) -> Result<Option<KubeReply>, KubeError> {
        let call = request.call.clone();
        let changes = request.changes();
        let response = self.send(request).await?;
        let server = server_of(&self.link().server);
        let (status, reply) = whole(&call, &server, response).await?;
        if status.is_success() {
            Ok(reply)
        } else {
            Err(refusal(&call, status, &reply.unwrap_or_default(), changes))
        }
    }

    async fn send(&self, request: KubeRequest) -> Result<http::Response<Body>, KubeError> {
        let call = request.call.clone();
        let not_sent = |message: String| KubeError::NotSent {
            call: call.clone(),
            message: message.into(),
        };
        let (client, server) = {
            let link = self.link();
            (link.client.clone().map_err(not_sent)?, link.server.clone())
        };
        let request = request
            .build()
            .map_err(|error| not_sent(format!("it cannot be written as HTTP: {error}")))?;
        connect::check_target(request.uri()).map_err(not_sent)?;
        client
            .send(request)
            .await
            .map_err(|error| transport_error(&call, &server, &error))
    }
}

/// Reads a body to its end; `None` when it is larger than [`MAX_BODY`].
async fn whole(
    call: &ApiCall,
    server: &str,
    response: http::Response<Body>,
) -> Result<(StatusCode, Option<KubeReply>), KubeError> {
    let (parts, body) = response.into_parts();
    let body = match Limited::new(body, MAX_BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return Ok((parts.status, None)),
        Err(error) => {
            return Err(KubeError::Unknown {
                call: call.clone(),
                code: Some(parts.status.as_u16()),
                message: format!("{server}: the answer broke off: {error}").into(),
            });
        }
    };
    let reply = KubeReply {
        headers: parts.headers,
        body,
    };
    Ok((parts.status, Some(reply)))
}

/// Reads a 2xx body. A change whose answer cannot be read was carried out, but how is not known.
pub(super) fn parse<T: DeserializeOwned>(call: ApiCall, body: &[u8]) -> Result<T, KubeError> {
    serde_json::from_slice(body).map_err(|error| KubeError::Unknown {
        call,
        code: None,
        message: format!("the answer cannot be read: {error}").into(),
    })
}

fn transport_error(call: &ApiCall, server: &str, error: &kube::Error) -> KubeError {
    let words = chain(error);
    // kube's word for all that its HTTP client says; the address it does not say.
    let words = words.strip_prefix("ServiceError: ").unwrap_or(&words);
    let mut words = words
        .strip_prefix("client error (Connect): ")
        .unwrap_or(words);
    words = words.strip_prefix("tcp connect error: ").unwrap_or(words);
    let message = format!("{}: {words}", server_of(server));
    if never_connected(error) {
        KubeError::NotSent {
            call: call.clone(),
            message: message.into(),
        }
    } else {
        KubeError::Unknown {
            call: call.clone(),
            code: None,
            message: message.into(),
        }
    }
}

/// Whether no connection came about, so that nothing can have been carried out.
fn never_connected(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(cause) = next {
        if cause
            .downcast_ref::<hyper_util::client::legacy::Error>()
            .is_some_and(hyper_util::client::legacy::Error::is_connect)
        {
            return true;
        }
        next = cause.source();
    }
    false
}

/// Percent-encodes one path segment or query value (RFC 3986 unreserved characters stay).
pub(super) fn encode(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes()
        .fold(String::with_capacity(text.len()), |mut out, byte| {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                out.push(char::from(byte));
            } else {
                let _ = write!(out, "%{byte:02X}");
            }
            out
        })
}

//! Serves a simulator's router on TCP, with TLS or without.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::middleware::map_response;
use axum::response::Response;
use http::{HeaderValue, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, ToSocketAddrs};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::bounded_file;

/// Connections at a time: as many as a thousand watching clients need; more wait.
const MAX_CONNECTIONS: usize = 1_024;
/// How long a client gets for its side of the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a client gets to say what it wants; idle connections end as pveproxy's do.
const HEADERS: Duration = Duration::from_secs(5);
/// The pause after the system had no descriptor left for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A certificate and its key.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ServerConfig>,
    chain: Vec<CertificateDer<'static>>,
    key: Arc<PrivateKeyDer<'static>>,
    leaf: CertificateDer<'static>,
    pem: String,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls")
            .field("fingerprint", &self.fingerprint())
            .finish()
    }
}

impl Tls {
    /// A fresh self-signed certificate for these names and addresses.
    pub fn self_signed(names: &[&str]) -> anyhow::Result<Tls> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let made = rcgen::generate_simple_self_signed(names)
            .context("making a self-signed certificate")?;
        Tls::from_pem(&made.cert.pem(), &made.signing_key.serialize_pem())
    }

    /// A certificate chain and key from PEM files.
    pub fn from_files(certificate: &Path, key: &Path) -> anyhow::Result<Tls> {
        let read = |path: &Path| {
            bounded_file::read_text(path, bounded_file::TEXT)
                .with_context(|| format!("reading {}", path.display()))
        };
        Tls::from_pem(&read(certificate)?, &read(key)?)
    }

    /// A certificate chain, leaf first, and its key as PEM.
    pub fn from_pem(certificate: &str, key: &str) -> anyhow::Result<Tls> {
        let chain = CertificateDer::pem_slice_iter(certificate.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .context("reading the certificate")?;
        let leaf = chain
            .first()
            .context("the certificate file has no certificate")?
            .clone();
        let key =
            PrivateKeyDer::from_pem_slice(key.as_bytes()).context("reading the private key")?;
        let tls = Tls {
            config: config(chain.clone(), key.clone_key(), None)?,
            chain,
            key: Arc::new(key),
            leaf,
            pem: certificate.to_owned(),
        };
        Ok(tls)
    }

    /// This TLS, asking clients for a certificate of this authority (PEM). They need not have one; the router finds
    /// it as [`PeerCertificate`] among a request's extensions.
    pub fn asking_clients(mut self, authority: &str) -> anyhow::Result<Tls> {
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(authority.as_bytes());
        roots
            .add(root.context("reading the clients' authority")?)
            .context("trusting the clients' authority")?;
        self.config = config(self.chain.clone(), self.key.clone_key(), Some(roots))?;
        Ok(self)
    }

    /// SHA-256 of the leaf certificate: upper-case hexadecimal pairs with colons.
    pub fn fingerprint(&self) -> String {
        let sum = Sha256::digest(&self.leaf);
        sum.iter()
            .map(|byte| format!("{byte:02X}"))
            .collect::<Vec<_>>()
            .join(":")
    }

    /// The certificate chain, PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }
}

/// The certificate a client showed in its TLS handshake, verified against the authority that it was asked for.
#[derive(Clone, Debug)]
pub struct PeerCertificate(pub CertificateDer<'static>);

/// How to speak TLS; with `clients`, asking for certificates of these authorities.
fn config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    clients: Option<RootCertStore>,
) -> anyhow::Result<Arc<ServerConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .context("choosing TLS versions")?;
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(roots) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build();
            builder.with_client_cert_verifier(verifier.context("verifying clients")?)
        }
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .context("pairing certificate and key")?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// A bound listener.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    tls: Option<Tls>,
    most: Option<u64>,
}

impl Listener {
    /// Binds an address; without `tls` it speaks plain HTTP.
    pub async fn bind(address: impl ToSocketAddrs, tls: Option<Tls>) -> io::Result<Listener> {
        Ok(Listener {
            tcp: TcpListener::bind(address).await?,
            tls,
            most: None,
        })
    }

    /// A listener on a socket that is bound already: whoever had to tell the address beforehand keeps it so.
    pub fn on(bound: std::net::TcpListener, tls: Option<Tls>) -> io::Result<Listener> {
        bound.set_nonblocking(true)?;
        Ok(Listener {
            tcp: TcpListener::from_std(bound)?,
            tls,
            most: None,
        })
    }

    /// This listener, ending each connection after a number of requests, as pveproxy does after 100.
    #[must_use]
    pub fn closing_after(mut self, requests: u64) -> Listener {
        self.most = Some(requests);
        self
    }

    /// Where it listens.
    pub fn url(&self) -> io::Result<String> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        Ok(format!("{scheme}://{}", self.tcp.local_addr()?))
    }

    /// Serves until dropped.
    pub async fn serve(self, router: Router) {
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let acceptor = self.tls.map(|tls| TlsAcceptor::from(tls.config));
        let mut connections = tokio::task::JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
                return;
            };
            let Ok((stream, _)) = self.tcp.accept().await else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let (mut router, acceptor) = (router.clone(), acceptor.clone());
            if let Some(most) = self.most {
                router = closing(router, most);
            }
            connections.spawn(async move {
                connection(stream, acceptor, router).await;
                drop(slot);
            });
        }
    }
}

/// The router for one connection, which its answer number `most` ends.
fn closing(router: Router, most: u64) -> Router {
    let answered = Arc::new(AtomicU64::new(0));
    router.layer(map_response(move |mut response: Response| {
        let number = answered.fetch_add(1, Ordering::Relaxed) + 1;
        async move {
            if number >= most {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(header::CONNECTION, close);
            }
            response
        }
    }))
}

/// One client, until it goes. What goes wrong is the client's to notice.
async fn connection(stream: TcpStream, acceptor: Option<TlsAcceptor>, router: Router) {
    let _ = stream.set_nodelay(true);
    match acceptor {
        None => speak(stream, router).await,
        Some(acceptor) => {
            if let Ok(Ok(stream)) = timeout(HANDSHAKE, acceptor.accept(stream)).await {
                let shown = stream.get_ref().1.peer_certificates();
                let router = match shown.and_then(<[_]>::first) {
                    None => router,
                    Some(leaf) => {
                        let peer = PeerCertificate(leaf.clone().into_owned());
                        router.layer(axum::Extension(peer))
                    }
                };
                speak(stream, router).await;
            }
        }
    }
}

async fn speak(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, router: Router) {
    let service = TowerToHyperService::new(router);
    let _ = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::routing::get;
    use tokio::time::timeout;

    use super::{Listener, Router, Tls};

    /// Long enough for a busy machine; nothing is measured.
    const PATIENCE: Duration = Duration::from_secs(30);

    fn router() -> Router {
        Router::new().route("/", get(async || "hello"))
    }

    #[tokio::test]
    async fn serves_with_its_own_certificate_and_without() {
        let tls = Tls::self_signed(&["localhost", "127.0.0.1"]).expect("a certificate");
        assert_eq!(tls.fingerprint().split(':').count(), 32);
        let root = reqwest::Certificate::from_pem(tls.pem().as_bytes()).expect("a certificate");
        for tls in [Some(tls), None] {
            let listener = Listener::bind("127.0.0.1:0", tls)
                .await
                .expect("an address");
            let url = listener.url().expect("an address");
            let server = tokio::spawn(listener.serve(router()));
            let provider = rustls::crypto::ring::default_provider();
            let _ = provider.install_default();
            let client = reqwest::Client::builder()
                .tls_certs_only([root.clone()])
                .build()
                .expect("a client");
            let answer = timeout(PATIENCE, client.get(&url).send())
                .await
                .expect("in time")
                .expect("an answer");
            assert_eq!(answer.text().await.expect("a body"), "hello");
            server.abort();
        }
    }

    #[tokio::test]
    async fn a_connection_ends_after_so_many_requests() {
        let listener = Listener::bind("127.0.0.1:0", None)
            .await
            .expect("an address");
        let listener = listener.closing_after(2);
        let url = listener.url().expect("an address");
        let server = tokio::spawn(listener.serve(router()));
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::new();
        let mut closed = Vec::new();
        for _ in 0..4 {
            let answer = timeout(PATIENCE, client.get(&url).send())
                .await
                .expect("in time")
                .expect("an answer");
            closed.push(answer.headers().contains_key("connection"));
            assert_eq!(answer.text().await.expect("a body"), "hello");
        }
        assert_eq!(closed, [false, true, false, true]);
        server.abort();
    }

    #[tokio::test]
    async fn a_certificate_needs_its_key() {
        let one = rcgen::generate_simple_self_signed(["one".to_owned()]).expect("a certificate");
        let two = rcgen::generate_simple_self_signed(["two".to_owned()]).expect("a certificate");
        assert!(Tls::from_pem(&one.cert.pem(), &one.signing_key.serialize_pem()).is_ok());
        assert!(Tls::from_pem(&one.cert.pem(), &two.signing_key.serialize_pem()).is_err());
        assert!(Tls::from_pem("nothing", &one.signing_key.serialize_pem()).is_err());
    }
}

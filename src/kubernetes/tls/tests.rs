use std::net::SocketAddr;

use rcgen::{CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::server::WebPkiClientVerifier;
use secrecy::SecretString;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

use super::*;

type Issuer = CertifiedIssuer<'static, KeyPair>;

fn issuer(name: &str) -> Issuer {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    CertifiedIssuer::self_signed(params, key).expect("an authority")
}

/// A certificate in PEM for `name`, and its key.
fn issued(issuer: &Issuer, name: &str, usage: ExtendedKeyUsagePurpose) -> (String, String) {
    let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
    params.extended_key_usages = vec![usage];
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, issuer).expect("signed");
    (certificate.pem(), key.serialize_pem())
}

fn base64(text: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// An API server's TLS with a certificate for `name`; says of each connection whether the client showed a certificate of `issuer`.
async fn server(
    issuer: &Issuer,
    name: &str,
) -> (
    SocketAddr,
    tokio::sync::mpsc::UnboundedReceiver<Option<bool>>,
) {
    let (chain, key) = issued(issuer, name, ExtendedKeyUsagePurpose::ServerAuth);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(issuer.der().clone()).expect("an authority");
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()
        .expect("a verifier");
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(clients)
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(chain.as_bytes()).expect("PEM")],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM"),
        )
        .expect("a certificate");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (told, heard) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        while let Ok((stream, _)) = listener.accept().await {
            let shown = acceptor.accept(stream).await.ok();
            let shown = shown.map(|stream| stream.get_ref().1.peer_certificates().is_some());
            let _ = told.send(shown);
        }
    });
    (address, heard)
}

fn config_of(address: SocketAddr) -> Config {
    Config::new(format!("https://{address}").parse().expect("a URI"))
}

async fn connects(config: &Config) -> Result<(), String> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    let connector = connector(config, http)?;
    let connected = connector.oneshot(config.cluster_url.clone()).await;
    connected.map(drop).map_err(|error| format!("{error:?}"))
}

#[tokio::test]
async fn a_server_is_believed_by_its_authority_and_its_name() {
    let ours = issuer("ours");
    let (address, mut heard) = server(&ours, "127.0.0.1").await;
    let mut config = config_of(address);
    config.root_cert = Some(vec![ours.der().to_vec()]);
    connects(&config).await.expect("its own authority");
    assert_eq!(
        heard.recv().await,
        Some(Some(false)),
        "nobody shows anything"
    );

    config.tls_server_name = Some("kubernetes.example".to_owned());
    let error = connects(&config).await.expect_err("another name");
    assert!(error.contains("NotValidForName"), "{error}");

    config.tls_server_name = None;
    config.root_cert = Some(vec![issuer("theirs").der().to_vec()]);
    let error = connects(&config).await.expect_err("another authority");
    assert!(error.contains("UnknownIssuer"), "{error}");

    // Without an authority the host's are asked, and they do not know it.
    config.root_cert = None;
    connects(&config).await.expect_err("nobody's authority");

    config.accept_invalid_certs = true;
    connects(&config)
        .await
        .expect("whoever it is, as the kubeconfig says");
}

#[tokio::test]
async fn a_server_of_another_name_is_believed_by_the_name_that_the_kubeconfig_has() {
    let ours = issuer("ours");
    let (address, _heard) = server(&ours, "kubernetes.example").await;
    let mut config = config_of(address);
    config.root_cert = Some(vec![ours.der().to_vec()]);
    connects(&config).await.expect_err("the address is no name");
    config.tls_server_name = Some("kubernetes.example".to_owned());
    connects(&config).await.expect("its name");
    config.tls_server_name = Some("a b".to_owned());
    let error = connects(&config).await.expect_err("no name");
    assert!(error.contains("tls-server-name"), "{error}");
}

#[tokio::test]
async fn a_user_shows_its_certificate_from_the_kubeconfig_or_from_files() {
    let ours = issuer("ours");
    let (address, mut heard) = server(&ours, "127.0.0.1").await;
    let (chain, key) = issued(&ours, "scaler", ExtendedKeyUsagePurpose::ClientAuth);
    let mut config = config_of(address);
    config.root_cert = Some(vec![ours.der().to_vec()]);
    config.auth_info.client_certificate_data = Some(base64(&chain));
    config.auth_info.client_key_data = Some(SecretString::from(base64(&key)));
    connects(&config).await.expect("connected");
    assert_eq!(heard.recv().await, Some(Some(true)));

    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).expect("written");
        Some(path.to_str().expect("plain").to_owned())
    };
    config.auth_info = AuthInfo {
        // kubectl takes an empty text for none.
        client_certificate_data: Some(String::new()),
        client_certificate: at("client.pem", &chain),
        client_key: at("client.key", &key),
        ..AuthInfo::default()
    };
    connects(&config).await.expect("connected");
    assert_eq!(heard.recv().await, Some(Some(true)));

    // Somebody else's authority: the server does not let it in.
    let (chain, key) = issued(
        &issuer("theirs"),
        "scaler",
        ExtendedKeyUsagePurpose::ClientAuth,
    );
    config.auth_info = AuthInfo {
        client_certificate: at("client.pem", &chain),
        client_key: at("client.key", &key),
        ..AuthInfo::default()
    };
    let _ = connects(&config).await;
    assert_eq!(heard.recv().await, Some(None));
}

#[test]
fn what_of_a_user_cannot_be_used_is_told_without_its_text() {
    let (chain, key) = issued(
        &issuer("theirs"),
        "scaler",
        ExtendedKeyUsagePurpose::ClientAuth,
    );
    let said = |chain: Option<&str>, key: Option<&str>| {
        let user = AuthInfo {
            client_certificate_data: chain.map(base64),
            client_key_data: key.map(|key| SecretString::from(base64(key))),
            ..AuthInfo::default()
        };
        find_identity(&user).map(|found| found.is_some())
    };
    assert_eq!(said(None, None), Ok(false));
    assert_eq!(said(Some(&chain), Some(&key)), Ok(true));
    let torn = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----BEGIN c2VjcmV0";
    for (chain, key, words) in [
        (Some(&*chain), None, "no client-key"),
        (None, Some(&*key), "no client-certificate"),
        (Some("plain"), Some(&*key), "no certificate in it"),
        (Some(&*key), Some(&*key), "no certificate in it"),
        (Some(&*chain), Some(&*chain), "no private key"),
        (Some(&*chain), Some(torn), "no private key"),
    ] {
        let error = said(chain, key).expect_err(words);
        assert!(error.contains(words), "{error}");
        assert!(!error.contains("c2Vj"), "{error}");
    }
    let user = AuthInfo {
        client_certificate_data: Some("%".to_owned()),
        ..AuthInfo::default()
    };
    let error = find_identity(&user).expect_err("no base64");
    assert_eq!(error, "its user's client-certificate-data is not base64");
    let user = AuthInfo {
        client_key: Some("/nowhere/client.key".to_owned()),
        ..AuthInfo::default()
    };
    let error = find_identity(&user).expect_err("no file");
    assert!(
        error.contains("client-key /nowhere/client.key cannot be read"),
        "{error}"
    );
}

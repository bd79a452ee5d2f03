//! TLS to the API server, as a kubeconfig says: whom it is believed to be, and the certificate that its user shows.
//!
//! kube would set it up itself (`ConfigExt::rustls_client_config`). With that comes its code for credential plugins, which are refused when a
//! kubeconfig is read, and beneath it libraries of JSON paths and of regular expressions: half a megabyte of code in the daemon.

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use kube::Config;
use kube::config::AuthInfo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use secrecy::ExposeSecret as _;

use crate::bounded_file;

/// Puts TLS upon `http` for addresses with `https`, and none for those with `http`.
///
/// # Errors
/// What of the kubeconfig cannot be used; nothing of its text.
pub(super) fn connector(
    config: &Config,
    http: HttpConnector,
) -> Result<HttpsConnector<HttpConnector>, String> {
    let mut builder = HttpsConnectorBuilder::new()
        .with_tls_config(client_config(config)?)
        .https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = ServerName::try_from(name.clone())
            .map_err(|_| "its tls-server-name is neither a name nor an address".to_owned())?;
        builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    Ok(builder.enable_http1().wrap_connector(http))
}

fn client_config(config: &Config) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be set up: {error}"))?;
    let builder = if config.accept_invalid_certs {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
    } else if let Some(authorities) = &config.root_cert {
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots
                .add(CertificateDer::from(authority.clone()))
                .map_err(|error| {
                    format!("a certificate of its certificate-authority cannot be used: {error}")
                })?;
        }
        builder.with_root_certificates(roots)
    } else {
        // A kubeconfig without an authority: those of the host, as kubectl takes them.
        let host = rustls_platform_verifier::Verifier::new(provider)
            .map_err(|error| format!("this host's CA certificates cannot be used: {error}"))?;
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(host))
    };
    match find_identity(&config.auth_info)? {
        Some((chain, key)) => builder
            .with_client_auth_cert(chain, key)
            .map_err(|error| format!("its user's client-key cannot be used: {error}")),
        None => Ok(builder.with_no_client_auth()),
    }
}

/// The client certificate of a user and its private key; `None` for a user without.
fn find_identity(
    user: &AuthInfo,
) -> Result<Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>, String> {
    let chain = read_pem(
        "client-certificate",
        user.client_certificate_data.as_deref(),
        user.client_certificate.as_deref(),
    )?;
    let key_data = user.client_key_data.as_ref();
    let key = read_pem(
        "client-key",
        key_data.map(secrecy::SecretBox::expose_secret),
        user.client_key.as_deref(),
    )?;
    let (chain, key) = match (chain, key) {
        (None, None) => return Ok(None),
        (Some(chain), Some(key)) => (chain, key),
        (Some(_), None) => {
            return Err("its user has a client-certificate and no client-key".to_owned());
        }
        (None, Some(_)) => {
            return Err("its user has a client-key and no client-certificate".to_owned());
        }
    };
    // The parser's own words may have a line of the file in them.
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&chain)
        .collect::<Result<_, _>>()
        .map_err(|_| "its user's client-certificate is not PEM".to_owned())?;
    if chain.is_empty() {
        return Err("its user's client-certificate has no certificate in it".to_owned());
    }
    let key = PrivateKeyDer::from_pem_slice(&key)
        .map_err(|_| "its user's client-key has no private key in PEM in it".to_owned())?;
    Ok(Some((chain, key)))
}

/// What a kubeconfig has as base64 in itself, or else in a file. Empty text counts as none, as it does to kubectl.
fn read_pem(what: &str, data: Option<&str>, path: Option<&str>) -> Result<Option<Vec<u8>>, String> {
    if let Some(data) = data.map(str::trim).filter(|data| !data.is_empty()) {
        return base64::engine::general_purpose::STANDARD
            .decode(data)
            .map(Some)
            .map_err(|_| format!("its user's {what}-data is not base64"));
    }
    let Some(path) = path.filter(|path| !path.is_empty()) else {
        return Ok(None);
    };
    bounded_file::read_text(Path::new(path), bounded_file::TEXT)
        .map(|text| Some(text.into_bytes()))
        .map_err(|error| format!("its user's {what} {path} cannot be read: {error}"))
}

/// Believes whoever answers, as `insecure-skip-tls-verify` asks; the server must have the key of its certificate all the same.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

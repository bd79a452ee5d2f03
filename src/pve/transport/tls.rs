//! Trusting a PVE host: by the cluster's CA, or by exactly one leaf certificate.
//!
//! Certificates of PVE hosts are often self-signed, sometimes with `CA:TRUE` on the leaf or without
//! a name in it, which no CA check lets pass; the SHA-256 fingerprint that PVE itself shows does.
//! Pinning replaces the chain only: the handshake's signatures are still checked, so the peer must
//! hold the certificate's key.

use std::fmt::Write as _;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use sha2::{Digest as _, Sha256};

/// SHA-256 of a certificate's DER form.
pub type CertificateFingerprint = [u8; 32];

/// What a server's certificate must be.
#[derive(Clone, Debug)]
pub enum CertificateTrust {
    /// Issued, for the name that was called, by one of these.
    Issuers(Vec<CertificateDer<'static>>),
    /// Exactly one of these leaves.
    Leaves(Vec<CertificateFingerprint>),
}

/// A TLS client that trusts nothing but `trust`; an error says why that cannot be.
pub fn client(trust: CertificateTrust) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Verifier::new(trust, &provider)?;
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("cannot set up TLS: {error}"))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth())
}

/// The fingerprint of a certificate.
pub fn fingerprint(certificate: &[u8]) -> CertificateFingerprint {
    Sha256::digest(certificate).into()
}

/// A fingerprint the way PVE shows it: `AA:BB:…`.
pub fn show(fingerprint: &CertificateFingerprint) -> String {
    let mut text = String::with_capacity(95);
    for (index, byte) in fingerprint.iter().enumerate() {
        let colon = if index == 0 { "" } else { ":" };
        let _ = write!(text, "{colon}{byte:02X}");
    }
    text
}

/// Reads a fingerprint: 64 hexadecimal digits, with colons between the bytes or without.
pub fn parse(text: &str) -> Option<CertificateFingerprint> {
    let digits: String = text.trim().chars().filter(|c| *c != ':').collect();
    if digits.len() != 64 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(bytes)
}

#[derive(Debug)]
struct Verifier {
    issuers: Option<Arc<WebPkiServerVerifier>>,
    leaves: Vec<CertificateFingerprint>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn new(trust: CertificateTrust, provider: &Arc<CryptoProvider>) -> Result<Verifier, String> {
        let (issuers, leaves) = match trust {
            CertificateTrust::Leaves(leaves) => (None, leaves),
            CertificateTrust::Issuers(certificates) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates {
                    roots
                        .add(certificate)
                        .map_err(|error| format!("cannot use a CA certificate: {error}"))?;
                }
                let verifier = WebPkiServerVerifier::builder_with_provider(
                    Arc::new(roots),
                    Arc::clone(provider),
                )
                .build()
                .map_err(|error| format!("cannot use the CA certificates: {error}"))?;
                (Some(verifier), Vec::new())
            }
        };
        Ok(Verifier {
            issuers,
            leaves,
            provider: Arc::clone(provider),
        })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let seen = fingerprint(end_entity);
        let Some(issuers) = &self.issuers else {
            if self.leaves.contains(&seen) {
                return Ok(ServerCertVerified::assertion());
            }
            return Err(Error::General(format!(
                "the server's certificate is not the trusted one; its SHA-256 fingerprint is {}",
                show(&seen)
            )));
        };
        issuers
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            .map_err(|error| {
                Error::General(format!(
                    "{error}; if the server is the right one, set its fingerprint {} instead of the CA",
                    show(&seen)
                ))
            })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_reads_back_in_either_spelling() {
        let print = fingerprint(b"a certificate");
        assert_eq!(parse(&show(&print)), Some(print));
        let bare = show(&print).replace(':', "").to_lowercase();
        assert_eq!(parse(&bare), Some(print));
        for wrong in ["", "AA:BB", &bare[1..], &format!("{bare}00"), "zz"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}

//! What we read out of X.509 certificates: when they end, and the hash that kubeadm pins.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};
use x509_parser::pem::Pem;

use crate::model::time::Time;

/// A certificate, as far as we care.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateInfo {
    /// `notAfter`.
    pub expires: Time,
    /// `sha256:` and the lower-case hex SHA-256 of the DER of its SubjectPublicKeyInfo: what
    /// kubeadm calls a CA certificate hash.
    pub public_key_hash: String,
    /// The common name of its subject, empty when it has none.
    pub common_name: String,
}

/// Reads all certificates of a PEM text; other blocks (keys) are passed over.
///
/// # Errors
/// When a block is damaged or no certificate is there. The text names the block by its number and
/// never quotes it.
pub fn read_pem(pem: &[u8]) -> Result<Vec<CertificateInfo>, String> {
    let mut found = Vec::new();
    for (index, block) in Pem::iter_from_buffer(pem).enumerate() {
        let number = index + 1;
        let block = block.map_err(|error| format!("PEM block {number} is damaged: {error}"))?;
        if block.label != "CERTIFICATE" {
            continue;
        }
        let certificate = block.parse_x509().map_err(|error| {
            format!("the certificate in PEM block {number} cannot be read: {error}")
        })?;
        let common_name = certificate
            .subject()
            .iter_common_name()
            .next()
            .and_then(|name| name.as_str().ok())
            .unwrap_or_default()
            .to_owned();
        found.push(CertificateInfo {
            expires: Time(
                certificate
                    .validity()
                    .not_after
                    .timestamp()
                    .saturating_mul(1_000),
            ),
            public_key_hash: hash(certificate.public_key().raw),
            common_name,
        });
    }
    if found.is_empty() {
        return Err("there is no PEM certificate in it".to_owned());
    }
    Ok(found)
}

/// The hash that k3s puts into its tokens: of the text where there is one certificate, of the root in DER where there
/// are several.
///
/// # Errors
/// When a block is damaged, no certificate is there, or several and not one of them is the root.
pub fn bundle_hash(pem: &str) -> Result<String, String> {
    let count = read_pem(pem.as_bytes())?.len();
    if count == 1 {
        return Ok(hex(pem.as_bytes()));
    }
    let mut roots = Vec::new();
    for block in Pem::iter_from_buffer(pem.as_bytes()).flatten() {
        let own = |of: &x509_parser::certificate::X509Certificate<'_>| {
            of.subject().as_raw() == of.issuer().as_raw()
        };
        if block.label == "CERTIFICATE" && block.parse_x509().is_ok_and(|of| own(&of)) {
            roots.push(hex(&block.contents));
        }
    }
    match &roots[..] {
        [root] => Ok(root.clone()),
        roots => Err(format!(
            "of {count} certificates {} sign themselves; wanted is one root",
            roots.len()
        )),
    }
}

fn hash(public_key: &[u8]) -> String {
    format!("sha256:{}", hex(public_key))
}

/// The lower-case hex SHA-256.
fn hex(of: &[u8]) -> String {
    Sha256::digest(of)
        .iter()
        .fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_says_when_it_ends_and_what_kubeadm_pins() {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::new(vec![]).expect("params");
        params.not_after = rcgen::date_time_ymd(2031, 5, 6);
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, "kubernetes");
        let certificate = params.self_signed(&key).expect("a certificate");
        let mut pem = key.serialize_pem();
        pem.push_str(&certificate.pem());
        let read = read_pem(pem.as_bytes()).expect("it reads");
        assert_eq!(read.len(), 1);
        assert_eq!(read[0].expires.to_string(), "2031-05-06T00:00:00Z");
        assert_eq!(read[0].common_name, "kubernetes");
        let expected = hash(&rcgen::PublicKeyData::subject_public_key_info(&key));
        assert_eq!(read[0].public_key_hash, expected);
        assert_eq!(expected.len(), "sha256:".len() + 64);
    }

    #[test]
    fn a_bundle_is_hashed_as_k3s_does() {
        use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
        let named = |name: &str| {
            let mut params = CertificateParams::new(vec![]).expect("params");
            params.distinguished_name.push(DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params
        };
        let (root_key, key) = (
            KeyPair::generate().expect("a key"),
            KeyPair::generate().expect("a key"),
        );
        let root = named("root").self_signed(&root_key).expect("a root");
        let params = named("root");
        let issuer = Issuer::from_params(&params, &root_key);
        let middle = named("middle")
            .signed_by(&key, &issuer)
            .expect("a certificate");
        assert_eq!(bundle_hash(&root.pem()), Ok(hex(root.pem().as_bytes())));
        let both = format!("{}{}", middle.pem(), root.pem());
        assert_eq!(bundle_hash(&both), Ok(hex(root.der())));
        assert!(bundle_hash(&format!("{0}{0}", middle.pem())).is_err());
        assert!(bundle_hash("").is_err());
    }

    #[test]
    fn what_is_no_certificate_is_refused_without_quoting_it() {
        assert!(read_pem(b"").is_err());
        let text = "-----BEGIN CERTIFICATE-----\nc2VjcmV0c2VjcmV0\n-----END CERTIFICATE-----\n";
        let error = read_pem(text.as_bytes()).expect_err("garbage");
        assert!(!error.contains("c2Vj"), "{error}");
    }

    proptest::proptest! {
        #[test]
        fn no_damaged_certificate_ends_the_program(
            edits in proptest::collection::vec((0usize..2_000, proptest::num::u8::ANY), 0..6),
            kept in 0usize..2_000,
        ) {
            static MADE: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(|| {
                let key = rcgen::KeyPair::generate().expect("a key");
                let mut params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).expect("params");
                params.distinguished_name.push(rcgen::DnType::CommonName, "kubernetes");
                params.self_signed(&key).expect("a certificate").der().to_vec()
            });
            let mut der = MADE.clone();
            for (at, byte) in edits {
                let at = at % der.len();
                der[at] = byte;
            }
            der.truncate(kept);
            let body = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, &der);
            let pem = format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n");
            if let Ok(read) = read_pem(pem.as_bytes()) {
                let _ = read[0].expires.to_string();
            }
        }
    }
}

//! The cluster's certificate authority and the signature of `cluster-info`.
//!
//! All keys are Ed25519, made from the seed: its signatures need no randomness, so that the same
//! seed yields the same bytes.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName,
    DnType, DnValue, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ED25519,
    SerialNumber,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use sha2::{Digest, Sha256};

use crate::model::time::Time;

/// PKCS #8 wrapping of an Ed25519 seed (RFC 8410).
const PKCS8_FRONT: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// A key pair that depends on its name alone.
pub(in crate::sim) fn key_pair(name: &str) -> Result<KeyPair, rcgen::Error> {
    let seed = Sha256::digest(name.as_bytes());
    let mut der = PKCS8_FRONT.to_vec();
    der.extend_from_slice(&seed);
    KeyPair::from_pkcs8_der_and_sign_algo(&PrivatePkcs8KeyDer::from(der), &PKCS_ED25519)
}

/// The cluster's certificate authority.
#[derive(Debug)]
pub(super) struct Pki {
    params: CertificateParams,
    key: KeyPair,
    pem: String,
}

/// Whom a certificate request names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CertificateSubject {
    pub(super) name: String,
    pub(super) organisations: Vec<String>,
}

fn words(value: &DnValue) -> String {
    match value {
        DnValue::Utf8String(text) => text.clone(),
        DnValue::PrintableString(text) => text.as_str().to_owned(),
        DnValue::Ia5String(text) => text.as_str().to_owned(),
        _ => String::new(),
    }
}

impl Pki {
    /// The authority of a cluster with this seed.
    pub(super) fn new(seed: u64, now: Time) -> Result<Pki, rcgen::Error> {
        let key = key_pair(&format!("cluster authority {seed}"))?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, "kubernetes");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
            KeyUsagePurpose::KeyCertSign,
        ];
        params.serial_number = Some(SerialNumber::from(1_u64));
        set_validity(&mut params, now, 10);
        let pem = params.self_signed(&key)?.pem();
        Ok(Pki { params, key, pem })
    }

    /// The authority's certificate.
    pub(super) fn pem(&self) -> &str {
        &self.pem
    }

    /// Whom a request in PEM names; its own signature is verified.
    pub(super) fn subject(request: &str) -> Result<CertificateSubject, rcgen::Error> {
        let request = CertificateSigningRequestParams::from_pem(request)?;
        let name = &request.params.distinguished_name;
        Ok(CertificateSubject {
            name: name.get(&DnType::CommonName).map(words).unwrap_or_default(),
            organisations: name
                .get(&DnType::OrganizationName)
                .map(words)
                .into_iter()
                .collect(),
        })
    }

    /// A server certificate with the authority's behind it, and its key, as PEM.
    pub(super) fn server(
        &self,
        names: &[&str],
        now: Time,
    ) -> Result<(String, String), rcgen::Error> {
        let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, now, 1);
        // Not every client's TLS takes Ed25519; the key need not be the same in every run.
        let key = KeyPair::generate()?;
        let issuer = Issuer::from_params(&self.params, &self.key);
        let leaf = params.signed_by(&key, &issuer)?.pem();
        Ok((format!("{leaf}{}", self.pem), key.serialize_pem()))
    }

    /// Signs a client certificate for a request.
    pub(super) fn sign(
        &self,
        request: &str,
        serial: u64,
        now: Time,
    ) -> Result<String, rcgen::Error> {
        let mut request = CertificateSigningRequestParams::from_pem(request)?;
        request.params.is_ca = IsCa::NoCa;
        request.params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        request.params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        request.params.serial_number = Some(SerialNumber::from(serial));
        set_validity(&mut request.params, now, 1);
        let issuer = Issuer::from_params(&self.params, &self.key);
        Ok(request.signed_by(&issuer)?.pem())
    }
}

/// Begin (the day before) and end of a certificate's life.
fn set_validity(params: &mut CertificateParams, now: Time, years: i32) {
    let date = jiff::Timestamp::from_millisecond(now.0 - 86_400_000)
        .unwrap_or_default()
        .to_zoned(jiff::tz::TimeZone::UTC)
        .date();
    let part = |n: i8| u8::try_from(n).unwrap_or(1);
    // 29 February has no namesake in most years.
    let (year, month, day) = (
        i32::from(date.year()),
        part(date.month()),
        part(date.day()).min(28),
    );
    params.not_before = rcgen::date_time_ymd(year, month, day);
    params.not_after = rcgen::date_time_ymd(year + years, month, day);
}

/// HMAC-SHA256 (RFC 2104).
fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0_u8; 64];
    if key.len() > block.len() {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let pad = |with: u8| block.map(|b| b ^ with);
    let inner = Sha256::new()
        .chain_update(pad(0x36))
        .chain_update(message)
        .finalize();
    Sha256::new()
        .chain_update(pad(0x5c))
        .chain_update(inner)
        .finalize()
        .into()
}

/// The detached JWS (HS256) that `cluster-info` carries for a bootstrap token
/// (`cluster-bootstrap/token/jws`).
pub(in crate::sim) fn detached_jws(content: &str, token_id: &str, token_secret: &str) -> String {
    let header = URL_SAFE_NO_PAD.encode(format!("{{\"alg\":\"HS256\",\"kid\":\"{token_id}\"}}"));
    let payload = URL_SAFE_NO_PAD.encode(content);
    let signature = hmac(
        token_secret.as_bytes(),
        format!("{header}.{payload}").as_bytes(),
    );
    format!("{header}..{}", URL_SAFE_NO_PAD.encode(signature))
}

/// Lower-case hexadecimal.
pub(in crate::sim) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The name a bearer token has that stands for a client certificate: whoever shows it is taken to
/// have proved possession of the certificate's key in the TLS handshake, which a router in memory
/// does not have.
pub(in crate::sim) fn certificate_bearer(pem: &str) -> String {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_or_else(
        |_| "certificate:unreadable".to_owned(),
        |der| certificate_bearer_of(&der),
    )
}

/// The name of the bearer token that stands for a certificate (DER) that was shown in a TLS handshake.
pub(in crate::sim) fn certificate_bearer_of(der: &[u8]) -> String {
    format!("certificate:{}", hex(&Sha256::digest(der)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hmac_is_as_rfc_4231_says() {
        assert_eq!(
            hex(&hmac(b"Jefe", b"what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(
            hex(&hmac(
                &[0xaa; 131],
                b"Test Using Larger Than Block-Size Key - Hash Key First"
            )),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }

    #[test]
    fn certificates_depend_on_the_seed_alone() {
        let now = Time(1_795_000_000_000);
        let one = Pki::new(1, now).expect("an authority");
        assert_eq!(one.pem(), Pki::new(1, now).expect("an authority").pem());
        assert_ne!(one.pem(), Pki::new(2, now).expect("an authority").pem());
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, "system:node:a");
        params
            .distinguished_name
            .push(DnType::OrganizationName, "system:nodes");
        let key = key_pair("a").expect("a key");
        let request = params.serialize_request(&key).expect("a request");
        let pem = request.pem().expect("as PEM");
        let subject = Pki::subject(&pem).expect("a subject");
        assert_eq!(subject.name, "system:node:a");
        assert_eq!(subject.organisations, ["system:nodes"]);
        let signed = one.sign(&pem, 7, now).expect("signed");
        assert_eq!(signed, one.sign(&pem, 7, now).expect("signed"));
        assert!(signed.contains("BEGIN CERTIFICATE"));
    }
}

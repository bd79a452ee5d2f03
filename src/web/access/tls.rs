//! The certificate of the web server.

use std::fmt;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use secrecy::ExposeSecret as _;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::kept::ReloadedFiles;
use crate::config::settings::WebTls;
use crate::controller::secret_file;
use crate::model::time::{Span, Time};

/// The longest chain in PEM, and the longest key, in bytes.
const LONGEST: u64 = 64 * 1024;
/// A certificate that ends within this time should have been renewed.
const SOON: Span = Span::minutes(3 * 24 * 60);

/// A certificate that a server can serve with.
pub(super) struct ServerCertificate {
    pub(super) server: Arc<ServerConfig>,
    /// When it ends, and the file that it is from.
    ends: Time,
    file: String,
}

impl fmt::Debug for ServerCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerCertificate")
            .field("ends", &self.ends)
            .finish_non_exhaustive()
    }
}

impl ServerCertificate {
    /// What there is to say of its end.
    pub(super) fn ends(&self, now: Time) -> Option<String> {
        let (file, ends) = (&self.file, self.ends);
        if ends <= now {
            return Some(format!(
                "tls_certificate {file}: ended at {ends}; browsers and Prometheus refuse it: renew it ([web])"
            ));
        }
        (ends <= now + SOON)
            .then(|| format!("tls_certificate {file}: ends at {ends}: renew it ([web])"))
    }
}

/// Reads certificate and key, and reads them again when they change.
pub(super) fn open(files: &WebTls) -> Result<ReloadedFiles<ServerCertificate>, String> {
    let paths = vec![files.certificate.clone(), files.key.clone()];
    let files = files.clone();
    ReloadedFiles::open(paths, move || read(&files))
}

fn read(files: &WebTls) -> Result<ServerCertificate, String> {
    let file = files.certificate.display().to_string();
    let at = |message: String| format!("tls_certificate {file}: {message} ([web])");
    let pem = text(&files.certificate).map_err(&at)?;
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|error| at(format!("is no PEM: {error}")))?;
    let first = chain.first().ok_or_else(|| {
        at(
            "has no certificate; expected -----BEGIN CERTIFICATE-----, the server's own first"
                .to_owned(),
        )
    })?;
    let (_, parsed) = X509Certificate::from_der(first)
        .map_err(|error| at(format!("its first certificate cannot be read: {error}")))?;
    let ends = Time(parsed.validity().not_after.timestamp().saturating_mul(1000));
    let key = key(&files.key)?;
    let mut server = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| {
            format!(
                "tls_key {}: cannot be used with tls_certificate {file}: {error}; both must be of one pair ([web])",
                files.key.display()
            )
        })?;
    server.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(ServerCertificate {
        server: Arc::new(server),
        ends,
        file,
    })
}

fn text(path: &Path) -> Result<Vec<u8>, String> {
    let unread = |error: std::io::Error| format!("cannot be read: {error}");
    let about = std::fs::metadata(path).map_err(unread)?;
    if !about.is_file() {
        // A pipe would hold us up for ever.
        return Err("is no file".to_owned());
    }
    let file = std::fs::File::open(path).map_err(unread)?;
    let mut bytes = Vec::new();
    file.take(LONGEST + 1)
        .read_to_end(&mut bytes)
        .map_err(unread)?;
    if bytes.len() as u64 > LONGEST {
        return Err(format!("is longer than {LONGEST} bytes"));
    }
    Ok(bytes)
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let pem = secret_file::read_as("tls_key", path, LONGEST)
        .map_err(|message| format!("{message} ([web])"))?;
    PrivateKeyDer::from_pem_slice(pem.expose_secret().as_bytes()).map_err(|_| {
        format!(
            "tls_key {}: has no private key in PEM without a passphrase ([web])",
            path.display()
        )
    })
}

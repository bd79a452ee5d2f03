//! Certificates out of PEM files.

use std::path::Path;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// Every certificate of the PEM file at `path`, in order; an error says why it gave none.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?
        .collect::<Result<_, _>>()
        .map_err(|error| format!("cannot read a certificate in {}: {error}", path.display()))?;
    if found.is_empty() {
        return Err(format!("{} holds no certificate", path.display()));
    }
    Ok(found)
}

//! Any other command: a script of the configuration, with what it needs in files.

use secrecy::{ExposeSecret as _, SecretString};

use super::payload::{FILES, JoinPayload};

/// The payload: `script` as it was filled in, `secret` and the cluster's CA in files that the script finds by its environment.
pub(super) fn payload(script: &str, secret: &SecretString, ca_pem: &str) -> SecretString {
    let (token_file, ca_file) = (format!("{FILES}/token"), format!("{FILES}/ca.crt"));
    let mut payload = JoinPayload::default();
    payload.file("0600", &token_file, secret.expose_secret());
    payload.file("0600", &ca_file, ca_pem);
    payload.run(&format!(
        "export PVE_AUTOSCALER_TOKEN_FILE={token_file}\nexport PVE_AUTOSCALER_CA_FILE={ca_file}\n{script}\n"
    ))
}

//! What goes to a guest over standard input: files, and a script that is started once.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::SecretString;

/// Where files lie that are there for as long as the join runs; a tmpfs.
pub(super) const FILES: &str = "/run/pve-autoscaler/files";

/// The lines that [`crate::controller::guest::JOIN`] reads. Contents are in base64: PVE garbles what is not ASCII on its way to the guest.
#[derive(Debug, Default)]
pub(super) struct JoinPayload(String);

impl JoinPayload {
    /// A file, its directory made where it is not there. Below [`FILES`] it goes when the join has ended.
    pub(super) fn file(&mut self, mode: &str, path: &str, content: &str) {
        let line = format!("file {mode} {path} {}\n", STANDARD.encode(content));
        self.0.push_str(&line);
    }

    /// The payload with the script that is started when all files are there.
    pub(super) fn run(mut self, script: &str) -> SecretString {
        let line = format!("run {}\n", STANDARD.encode(script));
        self.0.push_str(&line);
        SecretString::from(self.0)
    }
}

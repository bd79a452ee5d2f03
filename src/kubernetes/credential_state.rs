//! What is known of the credentials that the API server is asked with.

use crate::model::time::Time;

/// The state of our credentials, for the log, `/readyz` and the metric
/// `kubeconfig_expiry_timestamp`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CredentialState {
    /// When the client certificate ends; `None` without one (or with a given client).
    pub expires: Option<Time>,
    /// Set from 14 days before the end.
    pub warning: Option<String>,
    /// Why there is no client, or why the newest file was not taken.
    pub error: Option<String>,
    /// The API server's URL; empty with a given client.
    pub server: String,
    /// How the credentials can come to others on their way to it, if they can.
    pub exposure: Option<String>,
}

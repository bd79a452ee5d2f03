//! Bootstrap tokens: one per machine, made when its agent answers, deleted after it joined.
//!
//! Format: `cluster-bootstrap/token/api`. We may create and delete them, never read them; a token
//! whose secret was lost with a crash is therefore replaced.

use base64::Engine as _;
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;

use super::client::{KubeClient, KubeRequest};
use super::error::KubeError;
use crate::model::time::{Span, Time};

/// Longest life of a token.
pub const MAX_TOKEN_LIFE: Span = Span::minutes(15);
/// The group that kubeadm's CSR approval and RBAC rules name.
pub(super) const NODE_GROUP: &str = "system:bootstrappers:kubeadm:default-node-token";
pub(super) const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";

/// A bootstrap token; shown to the world as `id.secret`.
#[derive(Clone, Debug)]
pub struct BootstrapToken {
    /// `[a-z0-9]{6}`, public: the mark carries it.
    pub id: String,
    /// `[a-z0-9]{16}`.
    pub secret: SecretString,
    /// When the token cleaner deletes it if we do not; at most [`MAX_TOKEN_LIFE`] ahead.
    pub expires: Time,
    /// For people: the machine it is for.
    pub description: String,
}

impl BootstrapToken {
    /// `id.secret`, as kubeadm takes it.
    pub fn text(&self) -> SecretString {
        format!("{}.{}", self.id, self.secret.expose_secret()).into()
    }

    /// What is wrong with it, without saying what it is.
    fn problem(&self, now: Time) -> Option<String> {
        let plain = |text: &str, length: usize| {
            text.len() == length
                && text
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        };
        if !plain(&self.id, 6) || !plain(self.secret.expose_secret(), 16) {
            return Some("a token is six and sixteen characters of a-z and 0-9".to_owned());
        }
        (self.expires.since(now) > MAX_TOKEN_LIFE).then(|| {
            format!(
                "it would live until {}, longer than {MAX_TOKEN_LIFE}",
                self.expires
            )
        })
    }
}

/// The request that creates a token's Secret.
pub(super) fn creation(token: &BootstrapToken) -> KubeRequest {
    let name = name(&token.id);
    // Whole seconds: the token cleaner parses RFC 3339 and ignores what it cannot parse.
    let expires = Time(token.expires.0 / 1_000 * 1_000).to_string();
    let body = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": "kube-system",
            "labels": { "app.kubernetes.io/managed-by": "pve-autoscaler" },
        },
        "type": "bootstrap.kubernetes.io/token",
        "data": {
            "token-id": encoded(&token.id),
            "token-secret": encoded(token.secret.expose_secret()),
            "expiration": encoded(&expires),
            "usage-bootstrap-authentication": encoded("true"),
            "usage-bootstrap-signing": encoded("true"),
            "auth-extra-groups": encoded(NODE_GROUP),
            "description": encoded(&token.description),
        },
    });
    KubeRequest::new("create", "secrets", name.as_str(), SECRETS.to_owned())
        .json(body)
        .expect_refusals(&[409])
}

impl KubeClient {
    /// Creates the token's Secret.
    ///
    /// # Errors
    /// [`KubeError::already_exists`] when one with this id is there: [`KubeClient::replace_token`].
    pub async fn create_token(&self, token: &BootstrapToken) -> Result<(), KubeError> {
        let request = creation(token);
        if let Some(message) = token.problem(self.clock().now()) {
            return Err(KubeError::NotSent {
                call: request.call,
                message: message.into(),
            });
        }
        self.call(request).await.map(|_| ())
    }

    /// Deletes the token of this id; it is fine when there is none.
    pub async fn delete_token(&self, id: &str) -> Result<(), KubeError> {
        let name = name(id);
        let path = format!("{SECRETS}/{}", super::client::encode(&name));
        let request = KubeRequest::new("delete", "secrets", name, path);
        match self.call(request.expect_refusals(&[404])).await {
            Ok(_) => Ok(()),
            Err(error) if error.not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Creates the token, in the place of one with the same id whose secret nobody knows any more.
    pub async fn replace_token(&self, token: &BootstrapToken) -> Result<(), KubeError> {
        match self.create_token(token).await {
            Err(error) if error.already_exists() => {
                self.delete_token(&token.id).await?;
                self.create_token(token).await
            }
            other => other,
        }
    }
}

fn name(id: &str) -> String {
    format!("bootstrap-token-{id}")
}

fn encoded(text: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(text)
}

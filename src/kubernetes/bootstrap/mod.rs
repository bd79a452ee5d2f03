//! The command `pve-autoscaler kubeconfig`: from an admin's kubeconfig to the daemon's own.
//!
//! It applies the RBAC manifest and the admission policy, makes a key that never leaves this host, has the cluster sign a
//! client certificate for the user `pve-autoscaler` (CertificateSigningRequest, approved by the
//! admin), tries the result and writes it. Why a certificate: `docs/decisions/kubernetes-credentials.md`.

mod manifest;
#[cfg(test)]
mod tests;
mod write;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::Kubeconfig;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use super::certificate;
use super::client::{KubeClient, KubeRequest, encode};
use super::connect::{self, Connector};
use super::error::KubeError;
use crate::clock::Clock;
use crate::model::time::Time;

pub use manifest::{DOCTOR, MANIFEST, POLICY, SERVING, manifest_in, rights, serving_rights};
pub use write::{StagedCredentials, write_credentials};

/// The user whom the manifest binds and the certificate names.
pub const USER: &str = "pve-autoscaler";
/// How long the certificate is asked to last: a year. The cluster may give less.
const LIFE_SECONDS: u32 = 365 * 24 * 3_600;
const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
/// Looks for the signed certificate, one a second. Signing takes a second at most where it works.
const SIGN_TRIES: usize = 60;
/// Tries the new rights again, once a second, while they are not known everywhere.
const RIGHTS_TRIES: usize = 5;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct KubeconfigRequest {
    /// The admin's kubeconfig.
    pub admin: PathBuf,
    /// Context in it; its current one when absent.
    pub context: Option<String>,
    /// API server for the daemon; the admin's when absent.
    pub server: Option<String>,
    /// What stands before `server` and `context` where a person gives them: `--`, or the table of setup's answers.
    pub given_by: &'static str,
    /// The namespace of the Lease and the status ConfigMap (`kubernetes.namespace`).
    pub namespace: String,
    /// Where the result goes.
    pub output: PathBuf,
    /// Group that may read it.
    pub group: String,
    /// Whether the manifest and the admission policy are applied first.
    pub apply: bool,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// The objects that were applied, as `ClusterRole pve-autoscaler`.
    pub applied: Vec<String>,
    /// When the certificate ends.
    pub expires: Time,
    /// The API server in it.
    pub server: String,
    /// Why the file's owner is not as it should be, if it is not, and the command that mends it but for the file's name at its end.
    pub owner_hint: Option<String>,
}

/// Why there is no kubeconfig.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BootstrapError {
    /// The admin's kubeconfig cannot be used.
    #[error("{0}")]
    Admin(String),
    /// A call failed.
    #[error("{what}: {source}{}", advice_for_admin(source).unwrap_or_default())]
    Call {
        /// What the call was for.
        what: &'static str,
        /// The call's error.
        source: Box<KubeError>,
    },
    /// The cluster did not sign.
    #[error("certificate request {name} was not signed: {why}")]
    NotSigned {
        /// The request's name.
        name: String,
        /// The reason that the condition gives.
        why: String,
    },
    /// The key or the request could not be made.
    #[error("cannot make a key and a certificate request: {0}")]
    Key(String),
    /// The new kubeconfig does not work. Nothing was written.
    #[error(
        "the new kubeconfig for {server} does not work, and {} is as it was: {source}; see that the daemon's host reaches the API server by this \
         address ({given_by}server names another)",
        path.display()
    )]
    NotWorking {
        /// The API server in it.
        server: String,
        /// The file whose place it was to take.
        path: PathBuf,
        /// What stands before `server` where a person gives it.
        given_by: &'static str,
        /// The error of a call that the daemon makes.
        source: Box<KubeError>,
    },
    /// The file could not be written.
    #[error("cannot write {}: {why}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        why: String,
    },
}

/// What a person does about a call that the administrator's account may not make, as the end of a sentence; `None` where that is not the
/// fault.
pub fn advice_for_admin(error: &KubeError) -> Option<&'static str> {
    // What the API server says where rights lack: of RBAC, of the approval of certificates, of who gives more rights than it has. An
    // admission policy refuses with the same status and other words.
    const WORDS: [&str; 3] = [" cannot ", "not permitted to", "attempting to grant"];
    let KubeError::Refused {
        code: 403, message, ..
    } = error
    else {
        return None;
    };
    let lacks = WORDS.iter().any(|words| message.contains(words));
    lacks.then_some(
        "; the account in this kubeconfig has not the rights of an administrator (ClusterRole cluster-admin). Of kubeadm's admin.conf they come, from Kubernetes \
         1.29 on, by the ClusterRoleBinding kubeadm:cluster-admins. Where that is missing, take /etc/kubernetes/super-admin.conf, which kubeadm wrote on the first \
         control plane node, in the place of admin.conf; or make it there: kubectl --kubeconfig /etc/kubernetes/super-admin.conf create clusterrolebinding \
         kubeadm:cluster-admins --clusterrole=cluster-admin --group=kubeadm:cluster-admins. Elsewhere, take the kubeconfig of an account with cluster-admin",
    )
}

/// Does all of it.
pub async fn kubeconfig(request: &KubeconfigRequest, clock: Clock) -> Result<Made, BootstrapError> {
    let target = target(request)?;
    let same = |path: &Path| std::fs::canonicalize(path).ok();
    if same(&request.output).is_some_and(|output| Some(output) == same(&request.admin)) {
        return Err(BootstrapError::Admin(format!(
            "{} is the administrator's kubeconfig, and the daemon's would take its place: name another file for one of them",
            request.output.display()
        )));
    }
    let connector = Connector::File {
        path: request.admin.clone(),
        context: request.context.clone(),
    };
    let admin = client(connector, clock).await?;
    let applied = if request.apply {
        apply(&admin, &request.namespace).await?
    } else {
        Vec::new()
    };
    let identity = issue(&admin).await?;
    let text = render(&target, &identity);
    let unwritten = |why| BootstrapError::Write {
        path: request.output.clone(),
        why,
    };
    let write = || StagedCredentials::write(&request.output, text.expose_secret(), &request.group);
    let on_trial = write().map_err(unwritten)?;
    // The daemon's own way of reading it, and a call that needs the rights just given, before it takes the place of one that works.
    let as_daemon = Connector::File {
        path: on_trial.temporary.clone(),
        context: None,
    };
    let daemon = client(as_daemon, clock).await?;
    // It was read: whoever ends this while a wrong address does not answer must not leave a key behind. Waiting for a signal instead would
    // take Ctrl-C away from all that a setup does afterwards.
    drop(on_trial);
    let tried = try_out(&daemon).await;
    tried.map_err(|source| BootstrapError::NotWorking {
        server: target.server.clone(),
        path: request.output.clone(),
        given_by: request.given_by,
        source: Box::new(source),
    })?;
    let staged = write().map_err(unwritten)?;
    let owner_hint = staged.put_in_place().map_err(unwritten)?;
    Ok(Made {
        applied,
        expires: identity.expires,
        server: target.server,
        owner_hint,
    })
}

/// Uses the new rights. The API server's authorizer learns of new bindings within a second or two.
async fn try_out(daemon: &KubeClient) -> Result<(), KubeError> {
    let mut tries = 0;
    loop {
        match daemon.kube_system_uid().await {
            Ok(_) => return Ok(()),
            Err(error) if error.code() == Some(403) && tries < RIGHTS_TRIES => {
                tries += 1;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            Err(error) => return Err(error),
        }
    }
}

fn call(what: &'static str) -> impl Fn(KubeError) -> BootstrapError {
    move |source| BootstrapError::Call {
        what,
        source: Box::new(source),
    }
}

async fn client(connector: Connector, clock: Clock) -> Result<KubeClient, BootstrapError> {
    let client = KubeClient::new(connector, clock, Arc::new(super::Unobserved)).await;
    match client.credentials().error {
        None => Ok(client),
        Some(error) => Err(BootstrapError::Admin(error)),
    }
}

/// Applies the manifest, and the admission policy where the API server knows such (server-side apply); returns what was
/// applied.
async fn apply(admin: &KubeClient, namespace: &str) -> Result<Vec<String>, BootstrapError> {
    let mut objects = manifest::objects(namespace).map_err(BootstrapError::Admin)?;
    let known = admin.has_admission_policies().await;
    if known.map_err(call(
        "cannot look whether the API server has admission policies",
    ))? {
        objects.extend(manifest::policy().map_err(BootstrapError::Admin)?);
    }
    apply_all(admin, objects).await
}

/// Applies the admission policy alone, by the administrator's kubeconfig; gives the objects that were applied.
///
/// # Errors
/// The kubeconfig cannot be used, or a call failed; objects before it are applied.
pub async fn apply_policy(
    request: &KubeconfigRequest,
    clock: Clock,
) -> Result<Vec<String>, BootstrapError> {
    let connector = Connector::File {
        path: request.admin.clone(),
        context: request.context.clone(),
    };
    let admin = client(connector, clock).await?;
    let objects = manifest::policy().map_err(BootstrapError::Admin)?;
    apply_all(&admin, objects).await
}

async fn apply_all(
    admin: &KubeClient,
    objects: Vec<manifest::Object>,
) -> Result<Vec<String>, BootstrapError> {
    let mut applied = Vec::new();
    for object in objects {
        let said = object.said.clone();
        let request = KubeRequest::new("patch", object.kind, said.as_str(), object.path)
            .query("fieldManager", USER)
            .query("force", "true")
            .apply(object.content);
        admin.call(request).await.map_err(call(
            "cannot apply the RBAC manifest and the admission policy",
        ))?;
        applied.push(said);
    }
    Ok(applied)
}

/// A key and its certificate.
struct Identity {
    certificate: String,
    key: SecretString,
    expires: Time,
}

/// Makes a key and has the cluster sign a certificate for it.
async fn issue(admin: &KubeClient) -> Result<Identity, BootstrapError> {
    let (key, csr) = request().map_err(|error| BootstrapError::Key(error.to_string()))?;
    let name = format!("{USER}-{}", fingerprint(&csr));
    let body = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": { "name": name },
        "spec": {
            "request": STANDARD.encode(&csr),
            "signerName": SIGNER,
            "expirationSeconds": LIFE_SECONDS,
            "usages": ["digital signature", "client auth"],
        },
    });
    let create = KubeRequest::new(
        "create",
        "certificatesigningrequests",
        name.as_str(),
        REQUESTS.into(),
    );
    let made: Value = admin
        .read(create.json(body))
        .await
        .map_err(call("cannot ask for a certificate"))?;
    let signed = sign(admin, &name, made).await;
    // Whatever came of it, nobody needs the request any more.
    let path = format!("{REQUESTS}/{}", encode(&name));
    let delete = KubeRequest::new("delete", "certificatesigningrequests", name.as_str(), path);
    if let Err(error) = admin.call(delete).await {
        tracing::warn!(%error, "the certificate request stays behind; the cluster cleans it up");
    }
    let certificate = signed?;
    let read =
        certificate::read_pem(certificate.as_bytes()).map_err(|why| BootstrapError::NotSigned {
            name: name.clone(),
            why: format!("what came back is no certificate: {why}"),
        })?;
    let expires = read.first().map(|leaf| leaf.expires).unwrap_or_default();
    Ok(Identity {
        certificate,
        key,
        expires,
    })
}

fn request() -> Result<(SecretString, String), rcgen::Error> {
    let key = rcgen::KeyPair::generate()?;
    let mut params = rcgen::CertificateParams::new(Vec::<String>::new())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, USER);
    let csr = params.serialize_request(&key)?.pem()?;
    Ok((key.serialize_pem().into(), csr))
}

/// Twelve hex digits that tell this request from others.
fn fingerprint(csr: &str) -> String {
    use sha2::Digest;
    use std::fmt::Write as _;
    sha2::Sha256::digest(csr.as_bytes())
        .iter()
        .take(6)
        .fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// Approves the request and waits for the certificate.
async fn sign(admin: &KubeClient, name: &str, mut made: Value) -> Result<String, BootstrapError> {
    let path = format!("{REQUESTS}/{}", encode(name));
    made["status"]["conditions"] = json!([{
        "type": "Approved",
        "status": "True",
        "reason": "ApprovedByAdmin",
        "message": "approved by pve-autoscaler kubeconfig, run by an admin",
    }]);
    let approve = KubeRequest::new(
        "update",
        "certificatesigningrequests/approval",
        name,
        format!("{path}/approval"),
    );
    admin
        .call(approve.json(made))
        .await
        .map_err(call("cannot approve the certificate request"))?;
    for _ in 0..SIGN_TRIES {
        let get = KubeRequest::new("get", "certificatesigningrequests", name, path.clone());
        let now: Value = admin
            .read(get)
            .await
            .map_err(call("cannot look at the certificate request"))?;
        if let Some(data) = now["status"]["certificate"].as_str() {
            let pem = STANDARD
                .decode(data)
                .ok()
                .and_then(|pem| String::from_utf8(pem).ok());
            return pem.ok_or_else(|| BootstrapError::NotSigned {
                name: name.to_owned(),
                why: "the certificate is not PEM in base64".to_owned(),
            });
        }
        let conditions = now["status"]["conditions"].as_array();
        let refused = conditions
            .into_iter()
            .flatten()
            .find(|condition| matches!(condition["type"].as_str(), Some("Denied" | "Failed")));
        if let Some(condition) = refused {
            return Err(BootstrapError::NotSigned {
                name: name.to_owned(),
                why: condition["message"].as_str().unwrap_or("denied").to_owned(),
            });
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Err(BootstrapError::NotSigned {
        name: name.to_owned(),
        why: format!(
            "nothing came within {SIGN_TRIES} s; does kube-controller-manager sign {SIGNER}?"
        ),
    })
}

/// The API server that the daemon will talk to.
///
/// # Errors
/// The admin's kubeconfig cannot be used, or its server is one that only the control plane itself can reach.
pub fn server(request: &KubeconfigRequest) -> Result<String, BootstrapError> {
    target(request).map(|target| target.server)
}

/// The API server that the daemon will talk to, and how it is trusted.
#[derive(Debug)]
struct ApiServerTarget {
    server: String,
    ca: Option<Vec<u8>>,
}

fn target(request: &KubeconfigRequest) -> Result<ApiServerTarget, BootstrapError> {
    let path: &Path = &request.admin;
    let at = |why: String| BootstrapError::Admin(format!("kubeconfig {}: {why}", path.display()));
    connect::check_plain(path).map_err(at)?;
    let file = Kubeconfig::read_from(path).map_err(|error| {
        at(connect::explain(
            &error,
            connect::KubeconfigOwner::Administrator,
        ))
    })?;
    if file.clusters.is_empty() && file.contexts.is_empty() {
        return Err(at(
            "it names no cluster and no context: it is no kubeconfig".to_owned(),
        ));
    }
    let context = request
        .context
        .clone()
        .or_else(|| file.current_context.clone())
        .ok_or_else(|| {
            at(format!(
                "it has no current-context: name one by {}context",
                request.given_by
            ))
        })?;
    let (cluster, _, _) = connect::resolve(&file, &context).map_err(at)?;
    let ca = match (
        &cluster.certificate_authority_data,
        &cluster.certificate_authority,
    ) {
        (Some(data), _) => Some(
            STANDARD
                .decode(data.trim())
                .map_err(|_| at("certificate-authority-data is not base64".to_owned()))?,
        ),
        (None, Some(ca_file)) => Some(
            std::fs::read(ca_file)
                .map_err(|error| at(format!("{ca_file} cannot be read: {error}")))?,
        ),
        (None, None) => None,
    };
    let by = request.given_by;
    let given = request.server.as_deref().map(check_server).transpose();
    let given = given.map_err(|why| BootstrapError::Admin(format!("{by}server: {why}")))?;
    let server = given.or(cluster.server).unwrap_or_default();
    let uri = connect::check_server(&server).map_err(|why| {
        at(format!(
            "context {context:?}: server {:?}: {why}, or give one by {by}server",
            connect::without_user(&server)
        ))
    })?;
    let host = uri.host().unwrap_or_default();
    if request.server.is_none() && is_loopback(host) {
        return Err(at(format!(
            "its server is {server}, which only the control plane itself can reach: give the API \
             server's address by {by}server{} https://ADDRESS:6443",
            if by == "--" { "" } else { " =" }
        )));
    }
    Ok(ApiServerTarget { server, ca })
}

/// The API server's address that a person gave, as it stands in a kubeconfig.
///
/// # Errors
/// Why it is none.
pub fn check_server(given: &str) -> Result<String, String> {
    let server = with_scheme(given.trim());
    let uri = connect::check_server(&server)
        .map_err(|why| format!("{:?}: {why}", connect::without_user(given)))?;
    if uri.scheme_str() != Some("https") {
        return Err(format!(
            "{given:?}: an API server speaks HTTPS; expected https://ADDRESS:6443"
        ));
    }
    Ok(server.trim_end_matches('/').to_owned())
}

/// An address as people type it, `HOST:PORT`, is that of an API server, and these speak TLS.
fn with_scheme(given: &str) -> String {
    if given.contains("://") {
        given.to_owned()
    } else {
        format!("https://{given}")
    }
}

/// Whether an API server's host, a name or an address, is whatever host asks: nobody else reaches it there.
pub fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost"
        || bare
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// How a file begins that this command wrote.
const HEAD: &str = "# Made by `pve-autoscaler kubeconfig`";

/// Whether this command wrote a file, by its bytes.
pub fn is_ours(bytes: &[u8]) -> bool {
    bytes.starts_with(HEAD.as_bytes())
}

/// The file. Its texts are JSON strings or base64, both of which are YAML scalars.
fn render(target: &ApiServerTarget, identity: &Identity) -> SecretString {
    let server = Value::from(target.server.as_str());
    let ca = target.ca.as_ref().map_or_else(String::new, |pem| {
        format!("    certificate-authority-data: {}\n", STANDARD.encode(pem))
    });
    let certificate = STANDARD.encode(&identity.certificate);
    let key = STANDARD.encode(identity.key.expose_secret());
    format!(
        "{HEAD}; the certificate ends at {}.\n\
         apiVersion: v1\nkind: Config\ncurrent-context: {USER}\n\
         clusters:\n- name: {USER}\n  cluster:\n{ca}    server: {server}\n\
         users:\n- name: {USER}\n  user:\n    client-certificate-data: {certificate}\n    \
         client-key-data: {key}\n\
         contexts:\n- name: {USER}\n  context:\n    cluster: {USER}\n    user: {USER}\n",
        identity.expires
    )
    .into()
}

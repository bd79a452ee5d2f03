//! The Kubernetes cluster that a setup is for: by the daemon's own kubeconfig or an administrator's, and what these two lack.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};

use super::answers::SetupAnswers;
use super::policy::{self, PolicyFound};
use super::survey::Existing;
use crate::cli::doctor::user::DAEMON;
use crate::clock::Clock;
use crate::config::file::Method;
use crate::kubernetes::bootstrap::{self, KubeconfigRequest};
use crate::kubernetes::client::CALL_TIMEOUT;
use crate::kubernetes::connect::CONNECT_TIMEOUT;
use crate::kubernetes::server_address;
use crate::kubernetes::survey::NodeFound;
use crate::kubernetes::{Connector, KubeClient, KubeError, Unobserved};

/// What the kubeconfigs lead to.
#[derive(Clone, Debug, Default)]
pub(super) struct ClusterFound {
    /// `None` where no kubeconfig leads to a cluster.
    pub(super) kube: Option<KubeFound>,
    /// The daemon's kubeconfig: what is wrong with it; `None`: it works and may do all that is needed.
    pub(super) lacks: Option<String>,
    /// The API server of the daemon's kubeconfig does not answer, and no other kubeconfig is given: what was tried, and what to do. What the
    /// kubeconfig lacks is not known then.
    pub(super) silent: Option<String>,
    pub(super) policy: PolicyFound,
}

/// What was found of Kubernetes.
#[derive(Clone, Debug, Default)]
pub(super) struct KubeFound {
    /// `v1.34.1`.
    pub(super) version: String,
    pub(super) server: String,
    /// The UID of the namespace `kube-system`: the first half of the cluster id in marks.
    pub(super) uid: Arc<str>,
    pub(super) nodes: Vec<NodeFound>,
    /// The addresses at which the API server is reached, by the kubeconfig and by cluster-info.
    pub(super) api: BTreeSet<IpAddr>,
    /// `kube-public/cluster-info` is there: kubeadm made the cluster.
    pub(super) kubeadm: bool,
    /// ConfigMaps of kubeadm in `kube-system` that joining machines read and that are not there.
    pub(super) kubeadm_lacks: Vec<&'static str>,
}

impl KubeFound {
    /// What joins nodes to it; `None` where neither kubeadm nor k3s nor RKE2 made it.
    pub(super) fn method(&self) -> Option<Method> {
        match &*self.version {
            _ if self.kubeadm => Some(Method::Kubeadm),
            version if version.contains("+k3s") => Some(Method::K3s),
            version if version.contains("+rke2") => Some(Method::Rke2),
            _ => None,
        }
    }

    /// `1.34` of `v1.34.1`.
    pub(super) fn minor(&self) -> Option<String> {
        let mut parts = self.version.trim_start_matches('v').split('.');
        let (major, minor) = (parts.next()?, parts.next()?);
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        (digits(major) && digits(minor)).then(|| format!("{major}.{minor}"))
    }
}

/// Looks by the daemon's own kubeconfig, and by the administrator's where that one is not good.
pub(super) async fn look(
    answers: &SetupAnswers,
    existing: &Existing,
) -> anyhow::Result<ClusterFound> {
    let settings = &existing.settings.kubernetes;
    let own = Connector::File {
        path: settings.kubeconfig.clone(),
        context: settings.context.clone(),
    };
    let own = connect(own).await;
    let lacks = match &own {
        Ok(client) => match elsewhere(client, answers) {
            Some(why) => OwnLacks::This(why),
            None => lacks(client, &settings.namespace).await,
        },
        Err(why) => OwnLacks::This(format!("{why:#}")),
    };
    // An administrator's is used only where the daemon's own is not good: by then it is gone, as it should be.
    if let (Ok(client), OwnLacks::Nothing) = (&own, &lacks) {
        let kube = find(client).await;
        let kube = kube.map_err(|error| of_own(&settings.kubeconfig, client, &error))?;
        return Ok(ClusterFound {
            kube: Some(kube),
            policy: policy::look(client).await,
            ..ClusterFound::default()
        });
    }
    let (lacks, silent) = match (lacks, &own) {
        (OwnLacks::Answer(error), Ok(client)) => (
            Some(error.to_string()),
            Some(of_own(&settings.kubeconfig, client, &error).to_string()),
        ),
        (OwnLacks::This(why), _) => (Some(why), None),
        _ => (None, None),
    };
    let given = answers.kubernetes.kubeconfig.as_ref();
    // One that is gone, as it should be after the first run, is not what is wrong where the API server is away.
    let Some(path) = given.filter(|path| silent.is_none() || path.exists()) else {
        return Ok(ClusterFound {
            lacks,
            silent,
            ..ClusterFound::default()
        });
    };
    let admin = Connector::File {
        path: path.clone(),
        context: answers.kubernetes.context.clone(),
    };
    let admin = connect(admin).await.context("kubernetes.kubeconfig")?;
    let kube = find(&admin).await;
    let kube = kube.map_err(|error| of_admin(path, &admin, &error))?;
    let policy = match admin.has_admission_policies().await {
        // It comes with the daemon's kubeconfig.
        Ok(true) => PolicyFound::Unasked,
        Ok(false) => PolicyFound::NoApi,
        Err(error) => PolicyFound::Unseen(error.to_string()),
    };
    Ok(ClusterFound {
        kube: Some(kube),
        lacks,
        silent: None,
        policy,
    })
}

/// What is said where a call by the daemon's own kubeconfig failed.
fn of_own(path: &Path, client: &KubeClient, error: &KubeError) -> anyhow::Error {
    if !is_away(error) {
        return anyhow!("the daemon's kubeconfig {}: {error}", path.display());
    }
    let what = away(("the daemon's kubeconfig", path), client, error);
    anyhow!(
        "{what}. Whether that kubeconfig is good is not known until it answers, so that none was asked for; then run setup again. Where the cluster is \
         another now, or has another address: setup --kubeconfig FILE, with an administrator's kubeconfig that leads there"
    )
}

/// What is said where a call by the administrator's kubeconfig failed.
fn of_admin(path: &Path, client: &KubeClient, error: &KubeError) -> anyhow::Error {
    if is_away(error) {
        return anyhow::Error::msg(away(("kubernetes.kubeconfig", path), client, error));
    }
    let advice = bootstrap::advice_for_admin(error).unwrap_or_default();
    anyhow!("kubernetes.kubeconfig {}: {error}{advice}", path.display())
}

/// Whether nobody answers there, or somebody who cannot at present: what a kubeconfig lacks is another question.
fn is_away(error: &KubeError) -> bool {
    match error {
        // Somebody is there, and does not take the credentials, or is not whom the kubeconfig means.
        KubeError::NotSent { message, .. } => !["certificate", "fatal alert"]
            .iter()
            .any(|of_tls| message.to_ascii_lowercase().contains(of_tls)),
        KubeError::Refused { code, .. } => matches!(code, 429 | 500..),
        // What came whole and is no answer says that somebody is there.
        KubeError::Unknown { code, message, .. } => {
            !message.contains("cannot be used")
                && code.is_none_or(|code| matches!(code, 429 | 500..))
        }
    }
}

/// The words for an API server that is away: which one, what was tried, how long that is waited for, and where to look.
fn away((what, path): (&str, &Path), client: &KubeClient, error: &KubeError) -> String {
    let server = client.credentials().server;
    let server = server.trim_end_matches('/');
    format!(
        "the API server {server} of {what} {} does not answer as it should: {error} (at most {} s for a connection, {} s for an answer). \
         See that it answers this host: curl -k {server}/version",
        path.display(),
        CONNECT_TIMEOUT.as_secs(),
        CALL_TIMEOUT.as_secs()
    )
}

/// How the daemon's kubeconfig is asked for.
pub(super) fn kubeconfig_request(
    answers: &SetupAnswers,
    existing: &Existing,
) -> Option<KubeconfigRequest> {
    let settings = &existing.settings.kubernetes;
    Some(KubeconfigRequest {
        admin: answers.kubernetes.kubeconfig.clone()?,
        context: answers.kubernetes.context.clone(),
        server: answers.kubernetes.server.clone(),
        given_by: "kubernetes.",
        namespace: settings.namespace.clone(),
        output: settings.kubeconfig.clone(),
        group: DAEMON.to_owned(),
        apply: true,
    })
}

/// Why the API server's address in the administrator's kubeconfig is none for the daemon; `None` where it is one, or none is given.
pub(super) fn server_unfit(answers: &SetupAnswers, existing: &Existing) -> Option<String> {
    let request = kubeconfig_request(answers, existing)?;
    bootstrap::server(&request)
        .err()
        .map(|error| error.to_string())
}

/// Opens a way to Kubernetes; nothing is sent yet.
pub(super) async fn connect(connector: Connector) -> anyhow::Result<KubeClient> {
    let client = KubeClient::new(connector, Clock::System, Arc::new(Unobserved)).await;
    match client.credentials().error {
        Some(error) => bail!("{error}"),
        None => Ok(client),
    }
}

async fn find(client: &KubeClient) -> Result<KubeFound, KubeError> {
    let version = client.server_version().await?;
    let nodes = client.find_nodes().await?;
    let server = client.credentials().server;
    let mut api = server_address::resolve(&server).await;
    let kubeadm = match client.cluster_info().await {
        Ok(info) => {
            api.extend(server_address::resolve(&info.endpoint).await);
            true
        }
        Err(error) if error.not_found() => false,
        Err(error) => return Err(error),
    };
    let kubeadm_lacks = if kubeadm {
        client.missing_for_kubeadm().await?
    } else {
        Vec::new()
    };
    Ok(KubeFound {
        version: version.version,
        server,
        api,
        uid: client.kube_system_uid().await?,
        nodes,
        kubeadm,
        kubeadm_lacks,
    })
}

/// The daemon's own kubeconfig leads to another API server than the one that is answered. One that is none is told by its answer.
fn elsewhere(client: &KubeClient, answers: &SetupAnswers) -> Option<String> {
    let wanted = bootstrap::check_server(answers.kubernetes.server.as_deref()?).ok()?;
    let server = client.credentials().server;
    (server.trim_end_matches('/') != wanted)
        .then(|| format!("it leads to {server}, and kubernetes.server is {wanted}"))
}

/// What the daemon's own credentials lack.
#[derive(Debug)]
enum OwnLacks {
    Nothing,
    This(String),
    /// That is not known: the API server does not answer.
    Answer(KubeError),
}

async fn lacks(client: &KubeClient, namespace: &str) -> OwnLacks {
    if let Some(warning) = client.credentials().warning {
        return OwnLacks::This(warning);
    }
    let rights = match bootstrap::rights(namespace) {
        Ok(rights) => rights,
        Err(error) => return OwnLacks::This(error),
    };
    let failed = |error: KubeError| {
        if is_away(&error) {
            OwnLacks::Answer(error)
        } else {
            OwnLacks::This(error.to_string())
        }
    };
    // Whether it answers at all, before many questions are asked.
    if let Err(error) = client.server_version().await {
        return failed(error);
    }
    for right in rights {
        match client.may(&right).await {
            Ok(true) => {}
            Ok(false) => return OwnLacks::This(format!("the right {right} is missing")),
            Err(error) => return failed(error),
        }
    }
    OwnLacks::Nothing
}

#[cfg(test)]
mod tests;

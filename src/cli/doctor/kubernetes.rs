//! Kubernetes: reachable, the clock, the credentials, the rights.

use std::path::Path;
use std::sync::Arc;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use tokio::time::timeout;

use super::finding::Findings;
use super::probe::give_up;
use super::skew;
use super::{ClusterId, Here, MAX_SKEW};
use crate::cli::kubeconfig::command_over;
use crate::clock::Clock;
use crate::kubernetes::access::AccessRight;
use crate::kubernetes::bootstrap;
use crate::kubernetes::error::KubeError;
use crate::kubernetes::{Connector, CredentialState, KubeClient, ServerVersion, Unobserved};
use crate::model::time::Time;

/// Rights that are asked for at the same time.
const AT_A_TIME: usize = 8;

/// A Kubernetes cluster that answered.
#[derive(Debug)]
pub(super) struct ReachedCluster {
    pub(super) here: Here,
    pub(super) client: KubeClient,
    pub(super) id: Option<ClusterId>,
    /// The API server's version.
    pub(super) version: String,
    /// The minor of that version, where it can be read.
    pub(super) minor: Option<u32>,
}

/// Reaches the cluster of the kubeconfig, as far as that is possible within a probe's time.
pub(super) async fn reach(here: &Here) -> (Findings, Option<ReachedCluster>) {
    let mut findings = Findings::default();
    let reached = timeout(here.patience, connect(here, Clock::System, &mut findings)).await;
    let cluster = reached.unwrap_or_else(|_| {
        give_up("kubernetes", "API server", here.patience, &mut findings);
        None
    });
    (findings, cluster)
}

/// What gives the daemon its rights.
pub(super) const RBAC: &str = "kubectl apply -f /usr/share/pve-autoscaler/kubernetes/rbac.yaml (`pve-autoscaler kubeconfig` does it, too)";

/// What makes the daemon's own kubeconfig in place of the one that is there, which may be anybody's.
pub(super) fn own_instead(path: &Path) -> String {
    format!(
        "with an administrator's kubeconfig that lies elsewhere, {} makes the daemon's own",
        command_over(path)
    )
}

/// The status of a call whose credentials are not taken.
const UNAUTHORIZED: u16 = 401;

/// What is wrong where the API server does not tell its version, and what to do. Whether somebody answers there is no question where its
/// certificate or our credentials are what is wrong.
fn unreached(
    error: &KubeError,
    credentials: &CredentialState,
    (kubeconfig, now): (&Path, Time),
) -> (String, String) {
    let own = own_instead(kubeconfig);
    let server = &credentials.server;
    let said = error.to_string();
    let mut what = format!("kubernetes: {said}");
    if credentials.expires.is_some_and(|end| end <= now)
        && let Some(warning) = &credentials.warning
    {
        what = format!("{what}; {warning}");
    }
    let refuses_ours = ["Certificate", "UnknownCA", "DecryptError"];
    let alert = said.split_once("received fatal alert: ");
    let mend = if error.code() == Some(UNAUTHORIZED)
        || alert.is_some_and(|(_, alert)| refuses_ours.iter().any(|one| alert.contains(one)))
    {
        format!(
            "the API server does not take the credentials in the kubeconfig (they have ended, were taken back, or are of another cluster): {own} anew"
        )
    } else if let Some((_, why)) = said.split_once("invalid peer certificate: ") {
        if why.contains("certificate expired") || why.contains("not valid yet") {
            "on the control plane node: kubeadm certs check-expiration, and kubeadm certs renew apiserver where it has ended; timedatectl, here and there, shows whether a clock is wrong".to_owned()
        } else if why.contains("not valid for name") {
            format!(
                "`server` in the kubeconfig must be an address that the API server's certificate names: {own} with another by --server; or add this one to the API server's certSANs"
            )
        } else {
            format!(
                "the certificate at {server} is of no CA in the kubeconfig: if the cluster was made anew or is another, {own} with its CA; else see who answers there (curl -kv {server}/version)"
            )
        }
    } else {
        format!(
            "see that {server} answers from here (curl -k {server}/version); `server` in the kubeconfig names the address"
        )
    };
    (what, mend)
}

async fn connect(here: &Here, clock: Clock, findings: &mut Findings) -> Option<ReachedCluster> {
    let settings = &here.settings;
    let kubeconfig = &settings.kubernetes.kubeconfig;
    if std::fs::File::open(kubeconfig).is_err() {
        // That it is wrong, and what to do, is said of the file.
        findings
            .unseen(format!(
                "kubernetes: nothing of the cluster was looked at: the kubeconfig {} cannot be read",
                kubeconfig.display()
            ))
            .mend("run this again when it can");
        return None;
    }
    let connector = Connector::File {
        path: settings.kubernetes.kubeconfig.clone(),
        context: settings.kubernetes.context.clone(),
    };
    let client = KubeClient::new(connector, clock, Arc::new(Unobserved)).await;
    let credentials = client.credentials();
    if let Some(error) = &credentials.error {
        // The file that is there may be anybody's, and lies where this configuration says.
        findings
            .wrong(format!("kubernetes: {error}"))
            .mend(own_instead(kubeconfig));
        return None;
    }
    let version = match client.server_version().await {
        Ok(version) => version,
        Err(error) => {
            let (what, mend) = unreached(&error, &credentials, (kubeconfig, clock.now()));
            findings.wrong(what).mend(mend);
            return None;
        }
    };
    judge(&version, &credentials, (kubeconfig, clock.now()), findings);
    let id = match client.kube_system_uid().await {
        Ok(uid) => Some(format!("{uid}/{}", settings.kubernetes.name).into()),
        Err(error) => {
            findings.wrong(format!("kubernetes: {error}")).mend(RBAC);
            None
        }
    };
    Some(ReachedCluster {
        here: here.clone(),
        client,
        id,
        minor: skew::minor(&version.version),
        version: version.version,
    })
}

fn judge(
    version: &ServerVersion,
    credentials: &CredentialState,
    (kubeconfig, now): (&Path, Time),
    findings: &mut Findings,
) {
    findings.fine(format!(
        "kubernetes: {} at {}",
        version.version, credentials.server
    ));
    if let Some(exposure) = &credentials.exposure {
        findings
            .wrong(format!("kubernetes: {exposure}"))
            .mend(own_instead(kubeconfig));
    }
    if let Some(theirs) = version.time {
        let skew = now.since(theirs).max(theirs.since(now));
        if skew > MAX_SKEW {
            findings
                .warning(format!(
                    "kubernetes: the API server's clock and this host's differ by {skew}; is time synchronised?"
                ))
                .mend("chronyc tracking, or timedatectl, on both");
        }
    }
    match (&credentials.warning, credentials.expires) {
        (Some(warning), _) => {
            findings
                .warning(format!("kubernetes: {warning}"))
                .mend(format!(
                    "{}; then systemctl reload pve-autoscaler",
                    own_instead(kubeconfig)
                ));
        }
        (None, Some(expires)) => {
            findings.fine(format!(
                "kubernetes: the kubeconfig's certificate ends {expires}"
            ));
        }
        (None, None) => {}
    }
}

/// Asks for every right that the RBAC manifest grants.
pub(super) async fn look_at_rights(cluster: &ReachedCluster, findings: &mut Findings) {
    let (client, settings) = (&cluster.client, &cluster.here.settings);
    let serving = settings.kubernetes.serving_certificates;
    let needed = bootstrap::rights(&settings.kubernetes.namespace).and_then(|mut needed| {
        if serving {
            needed.extend(bootstrap::serving_rights()?);
        }
        Ok(needed)
    });
    let needed = match needed {
        Ok(needed) => needed,
        Err(error) => {
            findings
                .wrong(format!("kubernetes: {error}"))
                .mend("this program's own list of rights cannot be read: install the package anew, and report it");
            return;
        }
    };
    let unused = |right: &AccessRight| {
        right.resource == "pods/status" && !settings.policy.scale_up.nominate_pods
    };
    let needed = needed.into_iter().filter(|right| !unused(right));
    let asked = needed.map(|right| async move {
        let granted = match client.may(&right).await {
            Ok(granted) => granted,
            // A question changes nothing, so it may be asked twice: a connection that broke says nothing of the rights.
            Err(_) => client.may(&right).await?,
        };
        Ok::<_, KubeError>((!granted).then(|| right.to_string()))
    });
    let missing: Result<Vec<Option<String>>, KubeError> =
        stream::iter(asked).buffered(AT_A_TIME).try_collect().await;
    let missing: Vec<String> = match missing {
        Ok(missing) => missing.into_iter().flatten().collect(),
        Err(error) => {
            findings
                .wrong(format!("kubernetes: cannot ask for our rights: {error}"))
                .mend(RBAC);
            return;
        }
    };
    if missing.is_empty() {
        findings.fine("kubernetes: all rights that the daemon needs are granted");
    } else {
        findings
            .wrong(format!(
                "kubernetes: these rights are missing: {}",
                missing.join(", ")
            ))
            .mend(if serving {
                "kubectl apply -f /usr/share/pve-autoscaler/kubernetes/rbac.yaml -f /usr/share/pve-autoscaler/kubernetes/serving-certificates.yaml"
            } else {
                RBAC
            });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::error::ApiCall;
    use crate::model::time::Span;

    #[test]
    fn a_clock_that_is_off_and_a_certificate_that_ends_are_said() {
        let now = Time(1_795_000_000_000);
        let version = ServerVersion {
            version: "v1.34.1".into(),
            time: Some(now - Span::minutes(2)),
        };
        let credentials = CredentialState {
            server: "https://10.0.0.1:6443".into(),
            warning: Some("the certificate ends in 3 days".into()),
            exposure: Some("nobody is checked".into()),
            ..CredentialState::default()
        };
        let mut findings = Findings::default();
        let path = Path::new("/etc/own");
        judge(&version, &credentials, (path, now), &mut findings);
        let said = findings.0.iter();
        let said = said.map(|found| format!("{}: {}", found.grade.word(), found.text));
        let said: Vec<String> = said.collect();
        assert_eq!(
            said,
            [
                "ok: kubernetes: v1.34.1 at https://10.0.0.1:6443",
                "WRONG: kubernetes: nobody is checked",
                "warning: kubernetes: the API server's clock and this host's differ by 2m; is time synchronised?",
                "warning: kubernetes: the certificate ends in 3 days",
            ]
        );
    }

    #[test]
    fn what_is_typed_goes_by_why_the_api_server_is_not_reached() {
        let now = Time(1_795_000_000_000);
        let call = ApiCall {
            verb: "get",
            kind: "version",
            name: String::new(),
        };
        let refused = |code: u16| KubeError::Refused {
            call: call.clone(),
            code,
            reason: "Unauthorized".into(),
            message: "Unauthorized".into(),
            retry_after: None,
        };
        let broken = |message: &str| KubeError::NotSent {
            call: call.clone(),
            message: format!("Kubernetes at https://10.0.0.1:6443: {message}").into(),
        };
        let mut credentials = CredentialState {
            server: "https://10.0.0.1:6443".into(),
            expires: Some(now + Span::minutes(1)),
            warning: Some("it ends soon".into()),
            ..CredentialState::default()
        };
        let path = Path::new("/etc/own");
        for (error, words) in [
            (refused(401), "does not take the credentials"),
            (
                broken("connection error: received fatal alert: CertificateExpired"),
                "does not take the credentials",
            ),
            (
                broken("connection error: received fatal alert: ProtocolVersion"),
                "answers from here",
            ),
            (
                broken("invalid peer certificate: certificate expired: verification time 2"),
                "kubeadm certs check-expiration",
            ),
            (
                broken("invalid peer certificate: certificate not valid yet: verification time 2"),
                "timedatectl",
            ),
            (
                broken("invalid peer certificate: certificate not valid for name \"10.0.0.1\""),
                "--server",
            ),
            (
                broken("invalid peer certificate: UnknownIssuer"),
                "is of no CA in the kubeconfig",
            ),
            (broken("Connection refused"), "answers from here"),
            (refused(404), "answers from here"),
        ] {
            let (what, mend) = unreached(&error, &credentials, (path, now));
            assert_eq!(what, format!("kubernetes: {error}"));
            assert!(mend.contains(words), "{error}: {mend}");
            // Without --force the command is refused for a file that is there and was made by others.
            let named = mend.contains("pve-autoscaler kubeconfig");
            let takes_its_place = mend.contains("--output /etc/own --force makes the daemon's own");
            assert_eq!(named, takes_its_place, "{error}: {mend}");
        }
        credentials.expires = Some(now);
        let (what, _) = unreached(&refused(401), &credentials, (path, now));
        assert!(what.ends_with("Unauthorized; it ends soon"), "{what}");
    }
}

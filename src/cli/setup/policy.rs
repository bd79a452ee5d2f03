//! Whether the admission policy holds the daemon, asked by a dry run as `doctor` asks; and the step that applies it.

use std::time::Duration;

use anyhow::Context as _;

use super::cluster;
use crate::clock::Clock;
use crate::kubernetes::bootstrap::{self, KubeconfigRequest, USER};
use crate::kubernetes::{AdmissionPolicy, Connector, KubeClient, PolicyTrial};

/// Where the package has the policy.
const SHIPPED: &str = "/usr/share/pve-autoscaler/kubernetes/admission-policy.yaml";
/// Times that it is asked, once a second, whether a policy that was just applied holds: API servers learn of a new one within seconds.
const TRIES: usize = 15;

/// What is known of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum PolicyFound {
    /// Nobody was asked: the daemon's kubeconfig is missing or lacks something.
    #[default]
    Unasked,
    /// The daemon's kubeconfig is this other user's, whom the policy does not hold.
    OtherUser(String),
    /// The API server has no such policies.
    NoApi,
    /// These policies of it are not in force: they are not there, or not bound.
    Missing(Vec<&'static str>),
    InForce,
    /// Why it could not be seen.
    Unseen(String),
}

impl PolicyFound {
    /// Whether something of it is to be applied.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self, PolicyFound::Missing(_))
    }

    /// A line for what was found; `None` where all is well or nobody was asked.
    pub(super) fn show(&self) -> Option<String> {
        let words = match self {
            PolicyFound::Unasked | PolicyFound::InForce => return None,
            PolicyFound::OtherUser(name) => {
                &format!("it does not hold {name:?}, whose kubeconfig the daemon has")
            }
            PolicyFound::NoApi => {
                "this API server has no ValidatingAdmissionPolicy, which Kubernetes has from 1.30 on: RBAC alone holds the daemon"
            }
            PolicyFound::Missing(names) => &format!(
                "not in force ({}): RBAC alone holds the daemon there",
                names.join(", ")
            ),
            PolicyFound::Unseen(why) => &format!("whether it is in force is not known: {why}"),
        };
        Some(format!("  Admission policy: {words}\n"))
    }
}

/// Asks with the daemon's own kubeconfig.
pub(super) async fn look(own: &KubeClient) -> PolicyFound {
    let user = own.user_name().await;
    if let Ok(name) = &user
        && name != USER
    {
        return PolicyFound::OtherUser(name.clone());
    }
    match own.has_admission_policies().await {
        Ok(true) => {}
        Ok(false) => return PolicyFound::NoApi,
        Err(error) => return PolicyFound::Unseen(error.to_string()),
    }
    match user {
        Ok(_) => {}
        Err(error) => return PolicyFound::Unseen(error.to_string()),
    }
    let (mut missing, mut unseen) = (Vec::new(), None);
    for policy in AdmissionPolicy::ALL {
        match own.try_policy(policy).await {
            Ok(PolicyTrial::Passed(_)) => missing.push(policy.name()),
            // By the policy, or for want of a right; or there is nothing that it could let through.
            Ok(_) => {}
            // A refusal of another kind, such as of a server that is overloaded, says nothing of it.
            Err(error) => unseen = Some(error.to_string()),
        }
    }
    match unseen {
        _ if !missing.is_empty() => PolicyFound::Missing(missing),
        Some(why) => PolicyFound::Unseen(why),
        None => PolicyFound::InForce,
    }
}

/// The step that applies it.
#[derive(Clone, Debug)]
pub(super) struct PolicyStep {
    /// Has the administrator's kubeconfig, and where the daemon's own is.
    pub(super) request: KubeconfigRequest,
    /// The context of the daemon's own kubeconfig.
    pub(super) own_context: Option<String>,
}

impl PolicyStep {
    /// What it does, and what a person would type for it.
    pub(super) fn show(&self) -> String {
        let context = self.request.context.as_ref();
        let context = context.map(|context| format!(" --context {context}"));
        format!(
            "apply the admission policy, which is not in force\n     kubectl --kubeconfig {}{} apply -f {SHIPPED}\n",
            self.request.admin.display(),
            context.unwrap_or_default()
        )
    }

    /// Looks whether the administrator's kubeconfig can be used.
    pub(super) async fn look(&self) -> anyhow::Result<()> {
        let admin = Connector::File {
            path: self.request.admin.clone(),
            context: self.request.context.clone(),
        };
        let admin = cluster::connect(admin).await;
        admin.context("kubernetes.kubeconfig").map(drop)
    }

    /// Applies it, and waits until it holds the daemon; says what was done.
    pub(super) async fn run(&self) -> anyhow::Result<Vec<String>> {
        let applied = bootstrap::apply_policy(&self.request, Clock::System).await?;
        let mut done: Vec<String> = applied
            .iter()
            .map(|object| format!("applied {object}"))
            .collect();
        let own = Connector::File {
            path: self.request.output.clone(),
            context: self.own_context.clone(),
        };
        let own = cluster::connect(own).await?;
        let mut found = look(&own).await;
        for _ in 1..TRIES {
            if !found.is_missing() {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            found = look(&own).await;
        }
        done.push(if found == PolicyFound::InForce {
            "it is in force: what it forbids is refused (dry run)".to_owned()
        } else {
            format!("note: it was not seen in force within {TRIES} s; pve-autoscaler doctor says whether it is")
        });
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::body::Body;
    use serde_json::{Value, json};
    use tower::ServiceExt as _;

    use super::*;
    use crate::kubernetes::{Unobserved, in_memory};
    use crate::model::time::Time;
    use crate::sim::kube::{Kube, KubeSpec};

    /// What is found with these credentials in a cluster of this version, to which nobody has applied the policy.
    async fn found(version: &str, user: &str) -> PolicyFound {
        let clock = Clock::starting_at(Time(1_795_000_000_000));
        let spec = KubeSpec {
            version: version.to_owned(),
            ..KubeSpec::default()
        };
        let kube = Kube::new(spec, clock, 5);
        let router = in_memory(kube.router_as(user));
        look(&KubeClient::new(router, clock, Arc::new(Unobserved)).await).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_policy_is_missing_where_there_could_be_one_that_holds_the_user() {
        // Of nodes and pods there are none on which the others could be tried.
        let missing = PolicyFound::Missing(vec!["pve-autoscaler-tokens"]);
        assert_eq!(found("v1.34.1", USER).await, missing);
        assert_eq!(found("v1.30.0", USER).await, missing);
        assert_eq!(found("v1.29.14", USER).await, PolicyFound::NoApi);
        let other = PolicyFound::OtherUser("somebody".to_owned());
        assert_eq!(found("v1.34.1", "somebody").await, other);
        let told = PolicyFound::NoApi.show().expect("it is told");
        assert!(told.contains("from 1.30 on"), "{told}");
        assert_eq!(PolicyFound::InForce.show(), None);
    }

    /// It finds a setup that looks whether one policy is in force and takes it for all.
    #[tokio::test(start_paused = true)]
    async fn a_policy_that_is_missing_alone_is_named() {
        let clock = Clock::starting_at(Time(1_795_000_000_000));
        let kube = Kube::new(KubeSpec::default(), clock, 5);
        let create = async |path: &str, object: Value| {
            let request = http::Request::post(path)
                .header("content-type", "application/json")
                .body(Body::from(object.to_string()))
                .expect("a request");
            let answer = kube.router().oneshot(request).await.expect("an answer");
            assert!(answer.status().is_success(), "POST {path}: {answer:?}");
        };
        let group = "/apis/admissionregistration.k8s.io/v1";
        for object in serde_saphyr::from_multiple::<Value>(bootstrap::POLICY).expect("YAML") {
            let path = match object["kind"].as_str() {
                Some("ValidatingAdmissionPolicy") => "validatingadmissionpolicies",
                Some(_) => "validatingadmissionpolicybindings",
                None => continue,
            };
            if path == "validatingadmissionpolicies"
                || object["metadata"]["name"] != "pve-autoscaler-nodes"
            {
                create(&format!("{group}/{path}"), object).await;
            }
        }
        let own = in_memory(kube.router_as(USER));
        let own = KubeClient::new(own, clock, Arc::new(Unobserved)).await;
        assert_eq!(look(&own).await, PolicyFound::InForce, "there is no node");
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "cp-1" } });
        create("/api/v1/nodes", node).await;
        let found = look(&own).await;
        assert_eq!(found, PolicyFound::Missing(vec!["pve-autoscaler-nodes"]));
        let told = found.show().expect("it is told");
        assert!(
            told.contains("not in force (pve-autoscaler-nodes): "),
            "{told}"
        );
    }
}

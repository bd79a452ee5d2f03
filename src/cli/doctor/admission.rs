//! What admission says: whether a bootstrap token of ours would pass, and whether each policy of admission-policy.yaml is in
//! force. Both are asked by dry runs (`dryRun=All`), of which the API server stores nothing: that a policy is there would not
//! say that it is bound, nor that it judges our user.

use super::finding::Findings;
use super::kubernetes::{ReachedCluster, own_instead};
use crate::kubernetes::bootstrap::USER;
use crate::kubernetes::{AdmissionPolicy, KubeError, PolicyTrial};

/// First minor of Kubernetes 1 with ValidatingAdmissionPolicy in its stable form.
const OLDEST: u32 = 30;
/// What makes the policy apply.
const APPLY: &str = "kubectl apply -f /usr/share/pve-autoscaler/kubernetes/admission-policy.yaml (`pve-autoscaler kubeconfig` does it, too)";

/// Looks at both.
pub(super) async fn look(cluster: &ReachedCluster, findings: &mut Findings) {
    let client = &cluster.client;
    match client.try_token().await {
        Ok(()) => findings.fine("kubernetes: bootstrap tokens for machines may be made (dry run)"),
        Err(error) if error.code().is_none() => {
            findings.unseen(format!("kubernetes: whether bootstrap tokens may be made: {error}"));
            return;
        }
        Err(error) => findings
            .wrong(format!("kubernetes: no bootstrap token can be made for a machine (dry run): {error}"))
            .mend("the answer names what refuses it: a right (kubernetes/rbac.yaml), or an admission webhook or policy of the cluster"),
    }
    match client.user_name().await {
        Ok(name) if name == USER => {}
        Ok(name) => {
            findings
                .warning(format!(
                    "kubernetes: the kubeconfig is that of {name:?}, not of {USER}: it may do more than the daemon needs, and admission-policy.yaml does not hold it"
                ))
                .mend(own_instead(&cluster.here.settings.kubernetes.kubeconfig));
            return;
        }
        // Before 1.28 nobody can ask.
        Err(error) if error.not_found() => {}
        Err(error) => {
            findings.unseen(format!("kubernetes: whose the kubeconfig is: {error}"));
            return;
        }
    }
    if cluster.minor.is_some_and(|minor| minor < OLDEST) {
        findings.fine(format!(
            "kubernetes: admission-policy.yaml needs Kubernetes 1.{OLDEST}; RBAC alone holds the daemon here"
        ));
        return;
    }
    for policy in AdmissionPolicy::ALL {
        judge(policy, client.try_policy(policy).await, findings);
    }
}

/// What a policy lets nobody do, as it was seen on this object, and what the daemon's user could do without it.
fn describe(policy: AdmissionPolicy, object: &str) -> (String, String) {
    match policy {
        AdmissionPolicy::Tokens => (
            "another Secret than a bootstrap token is refused".to_owned(),
            format!("{USER} could make any Secret in kube-system"),
        ),
        AdmissionPolicy::Nodes => (
            format!("a change of the Node {object}, which is no machine of ours, is refused"),
            format!("{USER} could change and delete any Node, such as {object}"),
        ),
        AdmissionPolicy::Pods => (
            format!("another change of the status of pod {object} than a nomination is refused"),
            format!("{USER} could change the status of any pod, such as {object}"),
        ),
    }
}

/// Judges what came of doing what a policy forbids.
fn judge(policy: AdmissionPolicy, tried: Result<PolicyTrial, KubeError>, findings: &mut Findings) {
    let name = policy.name();
    match tried {
        Ok(PolicyTrial::Held(object)) => {
            let (refused, _) = describe(policy, &object);
            findings.fine(format!(
                "kubernetes: admission-policy.yaml is in force: {refused} ({name}, dry run)"
            ));
        }
        Ok(PolicyTrial::Passed(object)) => {
            let (_, possible) = describe(policy, &object);
            findings
                .warning(format!(
                    "kubernetes: admission-policy.yaml is not in force: {possible} ({name} or its binding is missing; dry run)"
                ))
                .mend(APPLY);
        }
        // The lines above, and those on rights, say what that means for us.
        Ok(PolicyTrial::RefusedElsewhere { object, message }) => {
            let (refused, _) = describe(policy, &object);
            findings.fine(format!("kubernetes: {refused} (dry run): {message}"));
        }
        Ok(PolicyTrial::Untried) => {}
        Err(error) => {
            findings.unseen(format!(
                "kubernetes: whether {name} of admission-policy.yaml is in force: {error}"
            ));
        }
    }
}

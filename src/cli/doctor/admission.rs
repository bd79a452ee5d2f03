//! What admission says: whether a bootstrap token of ours would pass, and whether admission-policy.yaml is in force.
//! Both are asked by dry runs (`dryRun=All`), of which the API server stores nothing: that a policy is there would not
//! say that it is bound, nor that it judges our user.

use super::finding::Findings;
use super::kubernetes::ReachedCluster;
use crate::kubernetes::KubeError;
use crate::kubernetes::bootstrap::USER;

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
                .mend("pve-autoscaler kubeconfig --kubeconfig ADMIN_KUBECONFIG makes the daemon's own");
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
    judge(&client.try_other_secret().await, findings);
}

/// Judges what came of making a Secret that is no bootstrap token.
fn judge(tried: &Result<(), KubeError>, findings: &mut Findings) {
    match tried {
        Ok(()) => findings
            .warning(format!(
                "kubernetes: admission-policy.yaml is not in force: {USER} could make any Secret in kube-system (dry run)"
            ))
            .mend(APPLY),
        Err(KubeError::Refused { message, .. }) if message.contains("pve-autoscaler-tokens") => {
            findings.fine("kubernetes: admission-policy.yaml is in force: another Secret than a bootstrap token is refused (dry run)");
        }
        // Another policy or a missing right: the lines above say what that means for us.
        Err(KubeError::Refused { message, .. }) => findings.fine(format!(
            "kubernetes: another Secret than a bootstrap token is refused (dry run): {message}"
        )),
        Err(error) => {
            findings.unseen(format!("kubernetes: whether admission-policy.yaml is in force: {error}"));
        }
    }
}

//! The Lease: whether its namespace is there, and who leads.

use super::finding::Findings;
use super::kubernetes::ReachedCluster;
use crate::cli::host_name;
use crate::kubernetes::{LEASE_NAME, LeaseName, lease};

/// Looks at the Lease that the daemon stands for.
pub(super) async fn look(cluster: &ReachedCluster, findings: &mut Findings) {
    let kubernetes = &cluster.here.settings.kubernetes;
    let namespace = &kubernetes.namespace;
    match cluster.client.namespace_is_there(namespace).await {
        Ok(true) => {}
        Ok(false) => {
            findings
                .wrong(format!(
                    "kubernetes: there is no namespace {namespace} for the Lease and the status ConfigMap"
                ))
                .mend(format!(
                    "kubectl create namespace {namespace}, or another kubernetes.namespace"
                ));
            return;
        }
        Err(error) => {
            findings.unseen(format!("kubernetes: the namespace {namespace}: {error}"));
            return;
        }
    }
    let lease = LeaseName {
        namespace: namespace.clone(),
        name: LEASE_NAME.to_owned(),
    };
    let ours = host_name::own();
    match cluster.client.lease_holder(&lease).await {
        Ok(holder) => judge(holder.as_deref(), ours.as_deref(), findings),
        Err(error) => {
            findings.unseen(format!(
                "kubernetes: the Lease {namespace}/{LEASE_NAME}: {error}"
            ));
        }
    }
}

/// Judges who holds the Lease.
fn judge(holder: Option<&str>, ours: Option<&str>, findings: &mut Findings) {
    match holder {
        None => findings.fine("kubernetes: nobody holds the Lease; a daemon that starts leads at once"),
        Some(holder) if Some(lease::host_of(holder)) == ours => {
            findings.fine("kubernetes: this host holds the Lease");
        }
        Some(holder) => findings
            .warning(format!(
                "kubernetes: {holder} holds the Lease: a daemon here waits until that one ends or is silent for half a minute"
            ))
            .mend(format!(
                "systemctl stop pve-autoscaler on {}, if this host is to lead",
                lease::host_of(holder)
            )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_elsewhere_is_told() {
        let said = |holder: Option<&str>| {
            let mut findings = Findings::default();
            judge(holder, Some("pve1"), &mut findings);
            findings.0[0].to_string()
        };
        assert!(said(None).starts_with("ok: kubernetes: nobody holds the Lease"));
        for ours in [lease::identity("pve1", 7), "pve1".to_owned()] {
            assert_eq!(
                said(Some(&ours)),
                "ok: kubernetes: this host holds the Lease"
            );
        }
        for other in [
            "pve1_2",
            "pve10_0000000000000007",
            "pve1-a_0000000000000007",
        ] {
            assert!(said(Some(other)).starts_with("warning: "), "{other}");
        }
        let elsewhere = said(Some("pve2_00000000000000ff"));
        assert!(
            elsewhere.starts_with("warning: kubernetes: pve2_00000000000000ff holds"),
            "{elsewhere}"
        );
        assert!(
            elsewhere.ends_with("on pve2, if this host is to lead"),
            "{elsewhere}"
        );
    }
}

//! Versions: how far kubelets may be behind the API server. Kubernetes' rule: none may be newer, and none more than three
//! minors older (two before 1.28).

use std::collections::BTreeMap;

use super::finding::Findings;
use super::kubernetes::ReachedCluster;
use crate::config::Settings;
use crate::model::words;

/// Since this minor a kubelet may be three older than its API server; before, two.
const THREE_SINCE: u32 = 28;
/// Nodes named in one finding.
const MAX_NAMED: usize = 5;

/// Compares the kubelets of all nodes with the API server.
pub(super) async fn look(cluster: &ReachedCluster, findings: &mut Findings) {
    let Some(server) = cluster.minor else {
        findings.unseen(format!(
            "kubernetes: the version {:?} of the API server cannot be read, so kubelets are not compared with it",
            cluster.version
        ));
        return;
    };
    judge_builds(server, &cluster.here.settings, findings);
    match cluster.client.nodes().await {
        Ok(nodes) => {
            let kubelets = nodes
                .iter()
                .map(|(name, node)| (&**name, &*node.kubelet_version));
            judge(server, kubelets, findings);
        }
        Err(error) => {
            findings.unseen(format!("kubernetes: the kubelets' versions: {error}"));
        }
    }
}

/// The minor of `v1.34.1`, also with what distributions add (`v1.34.1+k3s1`).
pub(super) fn minor(version: &str) -> Option<u32> {
    let mut parts = version.trim().strip_prefix('v')?.split('.');
    if parts.next()? != "1" {
        return None;
    }
    parts.next()?.parse().ok()
}

/// The oldest minor that a kubelet may have with this API server.
fn oldest(server: u32) -> u32 {
    server.saturating_sub(if server >= THREE_SINCE { 3 } else { 2 })
}

/// Compares the kubelets that templates are built with, where pools have machines of them.
fn judge_builds(server: u32, settings: &Settings, findings: &mut Findings) {
    for (name, template) in &settings.templates {
        let mut pools = settings.policy.pools.values();
        let used = pools.any(|pool| pool.of_template(name).is_some());
        let Some(build) = template.build.as_ref().filter(|_| used) else {
            continue;
        };
        let version = &build.kubernetes;
        let Some(of_build) = minor(&format!("v{version}")) else {
            // Without a version nothing of Kubernetes is installed.
            continue;
        };
        let oldest = oldest(server);
        let why = if of_build > server {
            "newer than the API server"
        } else if of_build < oldest {
            "too old for the API server"
        } else {
            findings.fine(format!(
                "template {name}: its build's kubernetes {version} goes with the API server 1.{server}"
            ));
            continue;
        };
        findings
            .wrong(format!(
                "template {name}: its build's kubernetes {version} is {why} 1.{server}: no kubelet of it may join"
            ))
            .mend(format!(
                "kubernetes = \"1.{server}\" in [template.{name}.build] (1.{oldest} to 1.{server} go), and pve-autoscaler template build {name}; the control plane is upgraded first"
            ));
    }
}

fn judge<'a>(
    server: u32,
    kubelets: impl Iterator<Item = (&'a str, &'a str)>,
    findings: &mut Findings,
) {
    let oldest = oldest(server);
    let mut by_version: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (node, version) in kubelets {
        by_version.entry(version).or_default().push(node);
    }
    let before = findings.0.len();
    for (version, nodes) in &by_version {
        let word = match minor(version) {
            Some(minor) if minor > server => "newer than",
            Some(minor) if minor < oldest => "too old for",
            None | Some(_) => continue,
        };
        let more = match nodes.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let named: Vec<&str> = nodes.iter().copied().take(MAX_NAMED).collect();
        findings
            .warning(format!(
                "kubernetes: the kubelet {version} of {}{more} is {word} the API server 1.{server}",
                words::names(&named)
            ))
            .mend(format!(
                "kubelets from 1.{oldest} to 1.{server} go with it: upgrade the control plane first, and the template's kubelet and kubeadm after it"
            ));
    }
    if by_version.is_empty() {
        findings.fine("kubernetes: no node is there yet whose kubelet could be older or newer than the API server");
    } else if findings.0.len() == before {
        let versions: Vec<&str> = by_version.keys().copied().collect();
        findings.fine(format!(
            "kubernetes: kubelets {} go with the API server 1.{server}",
            versions.join(", ")
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubelets_may_be_older_and_never_newer() {
        let said = |server: u32, version: &str| {
            let mut findings = Findings::default();
            judge(server, [("a", version)].into_iter(), &mut findings);
            findings
                .0
                .first()
                .map(|one| one.text.clone())
                .unwrap_or_default()
        };
        for (server, version, wanted) in [
            (34, "v1.34.9", "go with"),
            (34, "v1.31.0", "go with"),
            (34, "v1.31.0+k3s1", "go with"),
            (34, "v1.30.4", "too old for"),
            (34, "v1.35.0", "newer than"),
            (27, "v1.25.0", "go with"),
            (27, "v1.24.0", "too old for"),
        ] {
            let text = said(server, version);
            assert!(text.contains(wanted), "{server} {version}: {text:?}");
        }
        let mut findings = Findings::default();
        judge(34, std::iter::empty(), &mut findings);
        let said: Vec<String> = findings.0.iter().map(ToString::to_string).collect();
        assert!(
            said.len() == 1 && said[0].starts_with("ok: kubernetes: no node is there yet"),
            "{said:?}"
        );
    }
}

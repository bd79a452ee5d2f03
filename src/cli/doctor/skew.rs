//! Versions: which of kubelet and kubeadm go with an API server, by Kubernetes' policy. Nodes and builds are compared here, the programs
//! of a booted template by `template try`.
//!
//! Sources: kubernetes.io/releases/version-skew-policy, and of kubeadm the section *Version skew policy* of *Creating a cluster with
//! kubeadm*.

use std::collections::BTreeMap;

use super::finding::Findings;
use super::kubernetes::ReachedCluster;
use super::mends;
use crate::config::Settings;
use crate::config::file::{Build, BuildMethod};
use crate::model::words;

/// Since this minor a kubelet may be three older than its API server; before, two.
const THREE_SINCE: u32 = 28;
/// Since this minor kubeadm takes a kubelet that is three older than itself; before, one.
const KUBEADM_THREE_SINCE: u32 = 29;
/// Nodes named in one finding.
const MAX_NAMED: usize = 5;

/// How a version goes with another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum VersionFit {
    /// They may work together.
    Fits,
    /// It is newer than it may be.
    TooNew,
    /// It is older than it may be.
    TooOld,
}

/// Whether a kubelet may work with an API server, both by their minors: no newer one may, and no older one than
/// [`oldest_kubelet`].
pub(in crate::cli) fn compare_kubelet(server: u32, kubelet: u32) -> VersionFit {
    compare(kubelet, oldest_kubelet(server), server)
}

/// Whether kubeadm may join a node to a cluster, both by their minors. It refuses a cluster that is more than one older than itself. With
/// one that is older than the cluster Kubernetes promises nothing: it shall be the one that made or upgraded the control plane.
pub(in crate::cli) fn compare_kubeadm(server: u32, kubeadm: u32) -> VersionFit {
    compare(kubeadm, server, server + 1)
}

/// Whether kubeadm may start a kubelet, both by their minors. It refuses one that is too old; of a newer one it promises nothing.
pub(in crate::cli) fn compare_kubelet_with_kubeadm(kubeadm: u32, kubelet: u32) -> VersionFit {
    let behind = if kubeadm >= KUBEADM_THREE_SINCE { 3 } else { 1 };
    compare(kubelet, kubeadm.saturating_sub(behind), kubeadm)
}

fn compare(version: u32, oldest: u32, newest: u32) -> VersionFit {
    if version > newest {
        VersionFit::TooNew
    } else if version < oldest {
        VersionFit::TooOld
    } else {
        VersionFit::Fits
    }
}

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
pub(in crate::cli) fn minor(version: &str) -> Option<u32> {
    let mut parts = version.trim().strip_prefix('v')?.split('.');
    if parts.next()? != "1" {
        return None;
    }
    parts.next()?.parse().ok()
}

/// The oldest minor that a kubelet may have with this API server.
pub(in crate::cli) fn oldest_kubelet(server: u32) -> u32 {
    server.saturating_sub(if server >= THREE_SINCE { 3 } else { 2 })
}

/// Compares what templates are built with, where pools have machines of them.
fn judge_builds(server: u32, settings: &Settings, findings: &mut Findings) {
    for (name, template) in &settings.templates {
        let mut pools = settings.policy.pools.values();
        let used = pools.any(|pool| pool.of_template(name).is_some());
        if let Some(build) = template.build.as_ref().filter(|_| used) {
            let how = mends::of_build(name, settings);
            judge_build(server, (name, &how), build, findings);
        }
    }
}

/// Judges a build; `how` builds it anew.
fn judge_build(server: u32, (name, how): (&str, &str), build: &Build, findings: &mut Findings) {
    let version = &build.kubernetes;
    let Some(of_build) = minor(&format!("v{version}")) else {
        // Without a version nothing of Kubernetes is installed.
        return;
    };
    let oldest = oldest_kubelet(server);
    let why = match compare_kubelet(server, of_build) {
        VersionFit::TooNew => "newer than the API server",
        VersionFit::TooOld => "too old for the API server",
        VersionFit::Fits => {
            let has_kubeadm = build.method == BuildMethod::Kubeadm;
            if has_kubeadm && compare_kubeadm(server, of_build) != VersionFit::Fits {
                findings
                    .warning(format!(
                        "template {name}: its build's kubernetes {version} is older than the API server 1.{server}: its kubelet goes with it, and kubeadm shall be of the control plane's own minor"
                    ))
                    .mend(format!(
                        "kubernetes = \"1.{server}\" in [template.{name}.build], and {how}"
                    ));
            } else {
                findings.fine(format!(
                    "template {name}: its build's kubernetes {version} goes with the API server 1.{server}"
                ));
            }
            return;
        }
    };
    findings
        .wrong(format!(
            "template {name}: its build's kubernetes {version} is {why} 1.{server}: no kubelet of it may join"
        ))
        .mend(format!(
            "kubernetes = \"1.{server}\" in [template.{name}.build] (1.{oldest} to 1.{server} go), and {how}; the control plane is upgraded first"
        ));
}

fn judge<'a>(
    server: u32,
    kubelets: impl Iterator<Item = (&'a str, &'a str)>,
    findings: &mut Findings,
) {
    let oldest = oldest_kubelet(server);
    let mut by_version: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (node, version) in kubelets {
        by_version.entry(version).or_default().push(node);
    }
    let before = findings.0.len();
    for (version, nodes) in &by_version {
        let word = match minor(version).map(|minor| compare_kubelet(server, minor)) {
            Some(VersionFit::TooNew) => "newer than",
            Some(VersionFit::TooOld) => "too old for",
            None | Some(VersionFit::Fits) => continue,
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
    fn kubeadm_is_of_the_clusters_minor_or_the_next() {
        for (server, kubeadm, fit) in [
            (34, 33, VersionFit::TooOld),
            (34, 34, VersionFit::Fits),
            (34, 35, VersionFit::Fits),
            (34, 36, VersionFit::TooNew),
        ] {
            assert_eq!(compare_kubeadm(server, kubeadm), fit, "{server} {kubeadm}");
        }
        for (kubeadm, kubelet, fit) in [
            (34, 35, VersionFit::TooNew),
            (34, 34, VersionFit::Fits),
            (34, 31, VersionFit::Fits),
            (34, 30, VersionFit::TooOld),
            (29, 26, VersionFit::Fits),
            (28, 27, VersionFit::Fits),
            (28, 26, VersionFit::TooOld),
        ] {
            let got = compare_kubelet_with_kubeadm(kubeadm, kubelet);
            assert_eq!(got, fit, "{kubeadm} {kubelet}");
        }
    }

    /// The kubelet of a build may be older than the API server, and its kubeadm shall not. A build without kubeadm has a kubelet alone.
    #[test]
    fn an_older_build_is_a_warning_where_it_has_kubeadm() {
        let said = |version: &str, method: BuildMethod| {
            let build = Build {
                kubernetes: version.to_owned(),
                method,
                ..Build::default()
            };
            let mut findings = Findings::default();
            judge_build(34, ("debian", "build it"), &build, &mut findings);
            let said: Vec<String> = findings.0.iter().map(ToString::to_string).collect();
            said.join("\n")
        };
        for (version, method, begins) in [
            ("1.34", BuildMethod::Kubeadm, "ok: "),
            ("1.33", BuildMethod::Kubeadm, "warning: "),
            ("1.30", BuildMethod::Kubeadm, "WRONG: "),
            ("1.35.1", BuildMethod::Kubeadm, "WRONG: "),
            ("1.33", BuildMethod::K3s, "ok: "),
            ("1.35.0+k3s1", BuildMethod::K3s, "WRONG: "),
            ("", BuildMethod::Command, ""),
        ] {
            let text = said(version, method);
            let one = text.lines().count() == usize::from(!begins.is_empty());
            assert!(one && text.starts_with(begins), "{version}: {text:?}");
        }
        let text = said("1.33", BuildMethod::Kubeadm);
        let mend = "; kubernetes = \"1.34\" in [template.debian.build], and build it";
        assert!(text.ends_with(mend), "{text}");
    }

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

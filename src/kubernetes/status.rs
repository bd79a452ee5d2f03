//! The status ConfigMap, in the words of cluster-autoscaler's, so that what reads that one reads
//! ours: `kubectl -n NAMESPACE get configmap pve-autoscaler-status -o yaml`.
//!
//! Source of the format: cluster-autoscaler's `clusterstate/api` (`ClusterAutoscalerStatus`, YAML).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::json;

use super::client::{KubeClient, KubeRequest, encode};
use super::error::KubeError;
use crate::model::foreign;
use crate::model::report::{Hold, PoolState, Scope};
use crate::model::time::{Span, Time};

/// Name of the ConfigMap.
pub const STATUS_NAME: &str = "pve-autoscaler-status";
/// The key of its text.
const KEY: &str = "status";
/// The annotation in which cluster-autoscaler says when it wrote last.
const UPDATED: &str = "cluster-autoscaler.kubernetes.io/last-updated";
/// A status that changed is written at most this often …
pub const MIN_INTERVAL: Span = Span::seconds(15);
/// … and one that did not, this often: a sign of life.
pub const MAX_INTERVAL: Span = Span::minutes(5);

/// What the status tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatusInput {
    /// The newest report's pools.
    pub pools: BTreeMap<Arc<str>, PoolState>,
    /// The newest report's holds.
    pub holds: Vec<Hold>,
    /// Nodes that are no machines of ours: they count in the cluster's numbers.
    pub other_ready: u32,
    /// … and those of them that are not Ready.
    pub other_unready: u32,
}

/// The state words of one line, and since when.
type Since = BTreeMap<String, (&'static str, Time)>;

/// Writes the status when it is worth it; remembers since when each state holds.
#[derive(Debug, Default)]
pub struct StatusWriter {
    since: Since,
    written: Option<(Time, StatusInput)>,
}

impl StatusWriter {
    /// The text to write now, or nothing when the last one still says it.
    pub fn render(&mut self, input: &StatusInput, now: Time) -> Option<String> {
        if let Some((at, old)) = &self.written {
            let age = now.since(*at);
            let same = old.pools == input.pools
                && old.holds == input.holds
                && (old.other_ready, old.other_unready) == (input.other_ready, input.other_unready);
            if age < MIN_INTERVAL || (same && age < MAX_INTERVAL) {
                return None;
            }
        }
        Some(render(&mut self.since, input, now))
    }

    /// The text of [`StatusWriter::render`] was written.
    pub fn written(&mut self, input: StatusInput, now: Time) {
        self.written = Some((now, input));
    }
}

impl KubeClient {
    /// Puts the text into the ConfigMap, making it when it is not there.
    pub async fn write_status(
        &self,
        namespace: &str,
        text: &str,
        now: Time,
    ) -> Result<(), KubeError> {
        let base = format!("/api/v1/namespaces/{}/configmaps", encode(namespace));
        let content = json!({
            "metadata": { "annotations": { UPDATED: now.to_string() } },
            "data": { KEY: text },
        });
        let url = format!("{base}/{STATUS_NAME}");
        let name = format!("{namespace}/{STATUS_NAME}");
        let patch = KubeRequest::new("patch", "configmaps", name.as_str(), url);
        let patch = patch.merge_patch(content.clone());
        match self.call(patch.expect_refusals(&[404])).await {
            Err(error) if error.not_found() => {
                let mut whole = content;
                whole["apiVersion"] = json!("v1");
                whole["kind"] = json!("ConfigMap");
                whole["metadata"]["name"] = json!(STATUS_NAME);
                whole["metadata"]["namespace"] = json!(namespace);
                let create = KubeRequest::new("create", "configmaps", name, base);
                self.call(create.json(whole)).await.map(|_| ())
            }
            other => other.map(|_| ()),
        }
    }
}

fn render(since: &mut Since, input: &StatusInput, now: Time) -> String {
    let mut sum = PoolState::default();
    for pool in input.pools.values() {
        sum.ready += pool.ready;
        sum.unready += pool.unready;
        sum.coming += pool.coming;
        sum.leaving += pool.leaving;
    }
    sum.ready += input.other_ready;
    sum.unready += input.other_unready;
    let mut lines = StatusLines {
        text: String::new(),
        since,
        now,
    };
    let _ = writeln!(lines.text, "time: {}", quoted(&now.to_string()));
    lines.text.push_str("autoscalerStatus: Running\n");
    for hold in &input.holds {
        // Beyond cluster-autoscaler's format: what keeps us from acting.
        if lines.text.matches("holds:").count() == 0 {
            lines.text.push_str("holds:\n");
        }
        let said = format!("{}: {}", hold.scope, hold.why);
        let _ = writeln!(lines.text, "- {}", quoted(&said));
    }
    lines.text.push_str("clusterWide:\n");
    let stopped = input
        .holds
        .iter()
        .any(|hold| matches!(hold.scope, Scope::Everything | Scope::ScaleDown));
    lines.health(
        "",
        &sum,
        if stopped { "Unhealthy" } else { "Healthy" },
        None,
    );
    let growing = if sum.coming > 0 {
        "InProgress"
    } else {
        "NoActivity"
    };
    lines.activity("", "scaleUp", growing, None);
    let shrinking = if sum.leaving > 0 {
        "CandidatesPresent"
    } else {
        "NoCandidates"
    };
    lines.activity("", "scaleDown", shrinking, None);
    if !input.pools.is_empty() {
        lines.text.push_str("nodeGroups:\n");
    }
    for (name, pool) in &input.pools {
        lines.pool(name, pool);
    }
    lines.text
}

struct StatusLines<'a> {
    text: String,
    since: &'a mut Since,
    now: Time,
}

impl StatusLines<'_> {
    fn pool(&mut self, name: &Arc<str>, pool: &PoolState) {
        let _ = writeln!(self.text, "- name: {}", quoted(name));
        let health = if pool.unready > 0 {
            "Unhealthy"
        } else {
            "Healthy"
        };
        self.health(name, pool, health, Some(pool));
        let (growing, backoff) = match (&pool.backoff_until, pool.coming) {
            (Some(_), _) => ("Backoff", pool.backoff_message.as_deref()),
            (None, 0) => ("NoActivity", None),
            (None, _) => ("InProgress", None),
        };
        self.activity(name, "scaleUp", growing, backoff);
        let shrinking = if pool.leaving > 0 {
            "CandidatesPresent"
        } else {
            "NoCandidates"
        };
        self.activity(name, "scaleDown", shrinking, None);
    }

    fn health(
        &mut self,
        of: &str,
        nodes: &PoolState,
        status: &'static str,
        group: Option<&PoolState>,
    ) {
        let total = nodes.ready + nodes.unready;
        let _ = write!(
            self.text,
            "  health:\n    status: {status}\n    nodeCounts:\n      registered:\n        \
             total: {total}\n        ready: {}\n        notStarted: 0\n        beingDeleted: {}\n        \
             unready:\n          total: {}\n          resourceUnready: 0\n      longUnregistered: 0\n      \
             unregistered: {}\n",
            nodes.ready, nodes.leaving, nodes.unready, nodes.coming
        );
        if let Some(pool) = group {
            let target = (pool.ready + pool.unready + pool.coming).saturating_sub(pool.leaving);
            let _ = write!(
                self.text,
                "    cloudProviderTarget: {target}\n    minSize: {}\n    maxSize: {}\n",
                pool.min, pool.max
            );
        }
        self.times(&format!("{of}/health"), status);
    }

    fn activity(&mut self, of: &str, what: &str, status: &'static str, backoff: Option<&str>) {
        let _ = write!(self.text, "  {what}:\n    status: {status}\n");
        if let Some(message) = backoff {
            let _ = write!(
                self.text,
                "    backoffInfo:\n      errorCode: provisioningFailed\n      errorMessage: {}\n",
                quoted(message)
            );
        }
        self.times(&format!("{of}/{what}"), status);
    }

    fn times(&mut self, of: &str, status: &'static str) {
        let since = self
            .since
            .entry(of.to_owned())
            .and_modify(|(old, at)| {
                if *old != status {
                    (*old, *at) = (status, self.now);
                }
            })
            .or_insert((status, self.now));
        let _ = write!(
            self.text,
            "    lastProbeTime: {}\n    lastTransitionTime: {}\n",
            quoted(&self.now.to_string()),
            quoted(&since.1.to_string())
        );
    }
}

/// A YAML scalar that nothing in the text can break out of: a JSON string is one.
fn quoted(text: &str) -> String {
    foreign::json(&serde_json::Value::from(text).to_string()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::reasons::Held;

    fn input() -> StatusInput {
        let mut pools = BTreeMap::new();
        pools.insert(
            "small".into(),
            PoolState {
                min: 1,
                max: 5,
                ready: 2,
                coming: 1,
                ..PoolState::default()
            },
        );
        pools.insert(
            "gpu: \"x\"\n- name: evil".into(),
            PoolState {
                max: 1,
                backoff_until: Some(Time(9)),
                backoff_message: Some("kubeadm:\n  failed".into()),
                ..PoolState::default()
            },
        );
        StatusInput {
            pools,
            holds: Vec::new(),
            other_ready: 3,
            other_unready: 0,
        }
    }

    #[test]
    fn the_status_reads_like_cluster_autoscalers() {
        let mut writer = StatusWriter::default();
        let text = writer
            .render(&input(), Time(1_795_000_000_000))
            .expect("the first is written");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn it_is_written_when_it_changed_and_as_a_sign_of_life() {
        let mut writer = StatusWriter::default();
        let start = Time(1_795_000_000_000);
        assert!(writer.render(&input(), start).is_some());
        writer.written(input(), start);
        assert!(writer.render(&input(), start + Span::minutes(4)).is_none());
        assert!(writer.render(&input(), start + MAX_INTERVAL).is_some());
        let mut changed = input();
        let held = Held::NotLeader { holder: None };
        changed.holds.push(Hold::new(Scope::Everything, held));
        assert!(writer.render(&changed, start + Span::seconds(5)).is_none());
        let text = writer
            .render(&changed, start + MIN_INTERVAL)
            .expect("a change is written");
        assert!(text.contains("status: Unhealthy"), "{text}");
        let began = format!("lastTransitionTime: \"{}\"", start + MIN_INTERVAL);
        assert_eq!(text.matches(&began).count(), 1, "{text}");
    }
}

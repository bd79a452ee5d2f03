//! Our answer, and how it is compared with kube-scheduler's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pve_autoscaler::brain::{decide, explain};
use pve_autoscaler::clock::Clock;
use pve_autoscaler::kubernetes::ClusterView;
use pve_autoscaler::model::cluster::ObjectKey;
use pve_autoscaler::model::memory::Memory;
use pve_autoscaler::model::policy::Policy;
use pve_autoscaler::model::snapshot::{self, Lease, Snapshot};
use serde_json::Value;

/// Where the brain differs from kube-scheduler on purpose; `src/brain/README.md` has the same list.
const CHOICES: &[Choice] = &[
    Choice {
        name: "namespaces without labels",
        why: "kube-scheduler 1.36 takes a pod's namespaceSelector that an empty set of labels meets for \
              one of all namespaces; the API says it selects by the namespace's labels",
        applies: selects_unlabelled,
        by_the_filters: true,
    },
    Choice {
        name: "claims of ephemeral volumes",
        why: "kube-scheduler waits until the controller has made them; we plan as if it had",
        applies: has_ephemeral,
        by_the_filters: false,
    },
];

/// A documented difference.
pub(crate) struct Choice {
    pub(crate) name: &'static str,
    why: &'static str,
    /// Whether it is about a pod.
    applies: fn(&Value) -> bool,
    /// The filters differ so too.
    by_the_filters: bool,
}

fn has_ephemeral(pod: &Value) -> bool {
    let volumes = pod["spec"]["volumes"].as_array();
    volumes.is_some_and(|all| all.iter().any(|one| one.get("ephemeral").is_some()))
}

/// Whether a term of the pod selects namespaces by labels that they must not have.
fn selects_unlabelled(pod: &Value) -> bool {
    let affinity = &pod["spec"]["affinity"];
    let kinds = ["podAffinity", "podAntiAffinity"];
    let terms = kinds.map(|kind| &affinity[kind]["requiredDuringSchedulingIgnoredDuringExecution"]);
    let mut terms = terms.iter().filter_map(|terms| terms.as_array()).flatten();
    terms.any(|term| {
        let selector = &term["namespaceSelector"];
        let absent = |one: &Value| one["operator"] == "NotIn" || one["operator"] == "DoesNotExist";
        let all = selector["matchExpressions"].as_array();
        selector.get("matchLabels").is_none() && all.is_some_and(|all| all.iter().all(absent))
    })
}

/// The documented difference of the filters that is about a pod.
pub(crate) fn choice_of_filters(pod: &Value) -> Option<&'static Choice> {
    let mut choices = CHOICES.iter().filter(|choice| choice.by_the_filters);
    choices.find(|choice| (choice.applies)(pod))
}

/// Why each node is no place for a pod, by our answer; `None` where it is one.
pub(crate) type Answer = BTreeMap<String, Option<String>>;

/// Asks the brain about one pod that waits, as if it were the only one.
pub(crate) fn ours(view: &ClusterView, pod: &Value) -> Answer {
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
    let key = ObjectKey::new(text("namespace"), text("name"));
    let mut cluster = view.cluster.clone();
    cluster
        .pods
        .retain(|other, pod| pod.node.is_some() || *other == key);
    let now = Clock::System.now();
    let snapshot = Snapshot {
        version: snapshot::VERSION,
        taken: now,
        cluster_id: Some("uid/test".into()),
        sources: view.sources.clone(),
        cluster,
        regions: BTreeMap::new(),
        machines: BTreeMap::new(),
        leader: true,
        lease: Lease::default(),
        cluster_id_error: None,
        paused: None,
        awake: None,
        former: BTreeMap::new(),
        on_wire: BTreeMap::new(),
        nominations_refused: false,
    };
    let (policy, memory) = (Policy::default(), Memory::default());
    let decision = decide(&snapshot, &policy, &memory, now);
    let asked = explain::Asked {
        snapshot: &snapshot,
        policy: &policy,
        memory: &memory,
        decision: &decision,
        now,
    };
    let story = explain::pod(asked, &key).unwrap_or_else(|| panic!("{key} is not in the view"));
    story
        .nodes
        .into_iter()
        .map(|node| {
            (
                node.name.to_string(),
                node.filter_failure
                    .map(|filter_failure| filter_failure.to_string()),
            )
        })
        .collect()
}

/// What was compared.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) worlds: usize,
    pub(crate) pods: usize,
    pub(crate) nodes: usize,
    /// Nodes that both let a pod on.
    pub(crate) fits: usize,
    /// Our reasons, by their first words: says what was put to the test.
    pub(crate) reasons: BTreeMap<String, usize>,
    pub(crate) choices: BTreeMap<&'static str, usize>,
    /// Pods that were asked again because the first answers differed.
    pub(crate) again: usize,
    /// Objects that the API server refused.
    pub(crate) refused: BTreeMap<String, usize>,
}

impl Tally {
    /// The nodes on which the answers differ and no choice says why.
    pub(crate) fn compare(
        &mut self,
        pod: &Value,
        ours: &Answer,
        theirs: &BTreeSet<String>,
    ) -> Vec<String> {
        let mut differ = Vec::new();
        let mut found = Found::default();
        let names: BTreeSet<&String> = ours.keys().chain(theirs).collect();
        for name in names {
            let scheduler = theirs.contains(name);
            let reason = ours
                .get(name)
                .cloned()
                .unwrap_or(Some("no such node".to_owned()));
            let differs = reason.is_none() != scheduler;
            let choice = CHOICES
                .iter()
                .find(|choice| differs && (choice.applies)(pod));
            if differs && choice.is_none() {
                let we = reason.unwrap_or_else(|| "it fits".to_owned());
                differ.push(format!(
                    "{name}: kube-scheduler says {scheduler}, we say: {we}"
                ));
                continue;
            }
            found.nodes += 1;
            match (choice, reason) {
                (Some(choice), _) => found.choices.push(choice.name),
                (None, Some(why)) => found.reasons.push(kind(&why)),
                (None, None) => found.fits += 1,
            }
        }
        if differ.is_empty() {
            self.add(found);
        }
        differ
    }

    fn add(&mut self, found: Found) {
        self.pods += 1;
        self.nodes += found.nodes;
        self.fits += found.fits;
        for reason in found.reasons {
            *self.reasons.entry(reason).or_default() += 1;
        }
        for choice in found.choices {
            *self.choices.entry(choice).or_default() += 1;
        }
    }

    /// What was compared, in lines.
    pub(crate) fn report(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "{} worlds, {} pods, {} pairs of pod and node compared: {} fit; {} pods were asked twice",
            self.worlds, self.pods, self.nodes, self.fits, self.again
        )];
        let mut count = |title: &str, of: &BTreeMap<String, usize>| {
            for (name, count) in of {
                lines.push(format!("  {title} {count:6} {name}"));
            }
        };
        count("no:    ", &self.reasons);
        count("left out:", &self.refused);
        for choice in CHOICES {
            let count = self.choices.get(choice.name).copied().unwrap_or(0);
            lines.push(format!(
                "  choice: {count:5} {}: {}",
                choice.name, choice.why
            ));
        }
        lines
    }
}

#[derive(Default)]
struct Found {
    nodes: usize,
    fits: usize,
    reasons: Vec<String>,
    choices: Vec<&'static str>,
}

/// A reason without its names and numbers.
fn kind(why: &str) -> String {
    let words: Vec<&str> = why
        .split(' ')
        .filter(|word| {
            word.chars()
                .all(|c| c.is_ascii_alphabetic() || "-:".contains(c))
        })
        .take(3)
        .collect();
    words.join(" ")
}

/// Whether the view shows exactly these pods and nodes.
pub(crate) fn shows(
    view: &ClusterView,
    pods: &BTreeSet<ObjectKey>,
    nodes: &BTreeSet<Arc<str>>,
) -> bool {
    view.cluster.pods.keys().eq(pods) && view.cluster.nodes.keys().eq(nodes)
}

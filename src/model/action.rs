//! What the program can do to the world. [`Action`] is the only door to effects: every PVE or
//! Kubernetes call that changes something belongs to one of these variants.
//!
//! The brain names target, precondition and reason; the executor derives the steps and refuses
//! what the checker does not pass against the newest snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::chosen_storages::ChosenStorages;
use super::cluster::ObjectKey;
use super::drift::Outdated;
use super::foreign::ForeignText;
use super::in_place::ANNOTATIONS;
use super::mark::Mark;
use super::policy::Terms;
use super::reasons::{Aborted, GivenUp, told};
use super::region::RegionName;
use super::time::{Span, Time};
use super::words;

/// Version of the action format.
pub const VERSION: u32 = 1;

/// One action of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Action {
    /// Format version, [`VERSION`].
    pub version: u32,
    /// What to do.
    pub kind: Kind,
    /// To what.
    pub target: Target,
    /// What must hold right before it is done.
    pub precondition: Precondition,
    /// Why.
    pub reason: Reason,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Make a new machine and bring it up until its node is initialised. Precondition: the VMID is
    /// free, no machine has this name, the region is quorate, the host online.
    Create(Box<CreateSpec>),
    /// Bring an unfinished machine of ours further, from wherever it stands. Precondition: the VM
    /// carries our mark, or an intent names its placeholder.
    Continue,
    /// Take a machine down: cordon and drain its node if it has one, shut down, delete the Node,
    /// destroy the VM, delete its token. Precondition: our mark, re-read right before.
    Remove {
        /// Evict pods first and give up when one may not be evicted. False only where no pod can
        /// be lost: the machine never became a node, or its node is gone.
        drain: bool,
    },
    /// End an aborted removal: take our leaving taint off and uncordon. Precondition: the node's UID.
    Release,
    /// Delete a Node object of ours whose VM no longer exists. Precondition: the node's UID, and
    /// that no VM of the region has its UUID.
    DeleteNode,
    /// Destroy the locked placeholder that a dead clone left. Precondition: an intent names it, no
    /// clone task runs, the quarantine has passed.
    DeletePlaceholder,
    /// Drop the intent of a machine whose VM never came or is gone, and its token.
    DropIntent,
    /// Start the VM of a working node that is off, after its host's reboot for instance. Precondition:
    /// our mark, the Node, and a VM that is off, unlocked and not HA's.
    Start,
    /// Write on the Node which host its VM is on (`topology.kubernetes.io/zone`), after somebody migrated it.
    /// Precondition: our mark, the Node, and a VM on that host that no migration holds.
    Relabel,
    /// Bring the configuration of the VM of a working machine in line with the file, where PVE lets that change while
    /// it runs. Precondition: our mark, and a VM that is unlocked and not HA's.
    Update,
}

/// The lock of a VM that is being cloned.
pub const CLONE_LOCK: &str = "clone";
/// The lock of a VM that is being made of settings.
pub const CREATE_LOCK: &str = "create";

/// Whether a VM with this lock is being made.
pub fn is_being_made(lock: Option<&str>) -> bool {
    matches!(lock, Some(CLONE_LOCK | CREATE_LOCK))
}

/// In the place of a template's VMID for a machine that PVE makes of settings. No guest has it: VMIDs begin at 100.
pub const NO_TEMPLATE: u32 = 1;

/// All that is fixed when a machine is planned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSpec {
    /// The mark it will carry.
    pub mark: Mark,
    /// The template's VMID; [`NO_TEMPLATE`] where the VM is made of settings.
    pub template_vmid: u32,
    /// The host whose configuration directory holds the template: the clone call goes there. Without a template the host
    /// that makes the VM.
    pub template_host: Arc<str>,
    /// The template's SMBIOS UUID; `None` where it has none, or an older program planned the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_uuid: Option<Arc<str>>,
    /// The storages that its disks are made on, where the file lists several.
    #[serde(default, skip_serializing_if = "ChosenStorages::is_empty")]
    pub storages: ChosenStorages,
    /// What the configuration promised of it; `None` where an older program planned it, or where it is
    /// known by its mark alone: then the configuration of now says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<Arc<Terms>>,
}

impl CreateSpec {
    /// Whether PVE makes the VM of settings, and clones no template.
    pub fn is_new(&self) -> bool {
        self.template_vmid == NO_TEMPLATE
    }

    /// The lock that PVE holds on the VM while it makes it.
    pub fn lock(&self) -> &'static str {
        if self.is_new() {
            CREATE_LOCK
        } else {
            CLONE_LOCK
        }
    }
}

/// What an action is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// Region.
    pub region: RegionName,
    /// Host: where the VM is or will be.
    pub host: Arc<str>,
    /// VMID.
    pub vmid: u32,
    /// Machine name.
    pub machine: Arc<str>,
    /// The Kubernetes node, when there is one.
    #[serde(default)]
    pub node: Option<NodeRef>,
}

/// A node by name and UID: the name alone may have been used again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeRef {
    /// Name.
    pub name: Arc<str>,
    /// `metadata.uid`.
    pub uid: Arc<str>,
}

/// What must hold right before an action.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Precondition {
    /// The VM carries exactly this mark.
    pub mark: Option<Mark>,
    /// The VM's configuration has this digest (when it was read at planning).
    pub digest: Option<Arc<str>>,
    /// When the view it was planned on was taken.
    pub planned: Time,
    /// The view may be at most this old when the action starts.
    pub max_view_age: Span,
    /// Pods that the plan expects to move, for [`Kind::Remove`]: any other drainable pod on the
    /// node when the removal starts means somebody came in between, and it is given up.
    pub pods: Vec<ObjectKey>,
    /// Where each pod that must move will find room, for [`Kind::Remove`] of a working node: a node
    /// that stays. The checker adds it up anew; kube-scheduler may choose another place.
    pub landing: BTreeMap<ObjectKey, Arc<str>>,
}

/// Why an action is planned. The event and the log line say it in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "why")]
pub enum Reason {
    /// These pods are pending, or run on nodes that are given up, and fit on nothing else there is.
    PendingPods {
        /// The pods that this machine is for.
        pods: Vec<ObjectKey>,
        /// Nodes that are given up, in whose place it comes, and why they are: some of these pods run there.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        in_place_of: BTreeMap<Arc<str>, GivenUp>,
    },
    /// The pool is below its `min`.
    BelowMin {
        /// Nodes it has, and machines under way.
        have: u32,
        /// Nodes it shall have.
        min: u32,
        /// The pods that this machine is for as well.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pods: Vec<ObjectKey>,
        /// Nodes that are given up, in whose place it comes, and why they are: the `min` lacks them, or some of these pods run there.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        in_place_of: BTreeMap<Arc<str>, GivenUp>,
    },
    /// Half made; it goes on.
    Unfinished,
    /// Underused or empty for long enough.
    Unneeded {
        /// Since when.
        since: Time,
        /// The node's utilisation in thousandths.
        utilization_permille: i64,
    },
    /// Not Ready for long enough.
    Unready {
        /// Since when.
        since: Time,
    },
    /// It failed to become a node.
    Failed {
        /// What failed.
        message: ForeignText,
    },
    /// The VM is ours and no node belongs to it.
    NoNode,
    /// The node is ours and no VM belongs to it.
    NoVm,
    /// The removal that tainted the node is over or was given up.
    Aborted {
        /// Why; in JSON `message` and `details`.
        #[serde(flatten, with = "told::message")]
        #[schemars(with = "told::MessageForm<Aborted>")]
        because: Aborted,
    },
    /// The clone that made it is dead.
    DeadClone,
    /// The machine's Node exists and the VM is off.
    PoweredOff {
        /// Since when it was seen off.
        since: Time,
    },
    /// The machine's VM is on another host than the node's zone label says.
    Migrated {
        /// What the label says.
        from: Arc<str>,
    },
    /// The machine's Node was registered anew, after its Node object was deleted: it bears the startup taint again.
    Reregistered,
    /// The machine's VM has not what the file says.
    Differs {
        /// The settings, by PVE's names.
        keys: Vec<Arc<str>>,
    },
    /// A removal that was begun is brought to an end.
    NotWanted,
    /// The pool has more nodes than its `max`, and this one is the cheapest to take down.
    AboveMax {
        /// Since when it could go.
        since: Time,
        /// Nodes it has.
        have: u32,
        /// Nodes it may have.
        max: u32,
    },
    /// A person evacuates its host, and its pods fit elsewhere.
    Evacuated {
        /// The host.
        host: Arc<str>,
        /// Since when.
        since: Time,
    },
    /// The pool replaces outdated nodes, and the pods of this one fit elsewhere.
    Outdated {
        /// Why it is outdated.
        outdated: Outdated,
    },
    /// Consolidation: a cheaper machine for the pods of these nodes, which go once it works.
    Replaces {
        /// The nodes.
        nodes: Vec<Arc<str>>,
        /// The nodes' pods that nothing else has room for.
        pods: Vec<ObjectKey>,
        /// The saving of the replacement, in millionths per hour.
        saving: i64,
    },
    /// Consolidation: its pods fit elsewhere.
    Consolidated {
        /// Since when no pod came or went there.
        since: Time,
        /// The saving of the removal, in millionths per hour.
        saving: i64,
    },
    /// Consolidation: the machine that was made to replace it works.
    Replaced {
        /// The machine.
        by: Arc<str>,
        /// The saving together with the nodes of `others`, in millionths per hour. Once some are gone, the
        /// machine stays for their pods: then this is all that the rest costs.
        saving: i64,
        /// The other nodes it replaces that are to go yet.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        others: Vec<Arc<str>>,
        /// Nodes that went for the machine, or are going.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        gone: Vec<Arc<str>>,
    },
}

/// The pods that a machine is for, the first few by name. They need not be pending: those of a node that is given up run still.
fn pending(pods: &[ObjectKey]) -> String {
    let names: Vec<String> = pods.iter().take(3).map(ToString::to_string).collect();
    let more = if pods.len() > names.len() {
        ", …"
    } else {
        ""
    };
    let fit = if pods.len() == 1 { "fits" } else { "fit" };
    let all = words::count(pods.len(), "pod");
    format!("{all} {fit} nowhere else: {}{more}", names.join(", "))
}

/// How many nodes a pool has, and what that is held to.
fn pool_has(have: u32, key: &str, limit: u32) -> String {
    format!(
        "the pool has {}, its {key} is {limit}",
        words::count(have, "node")
    )
}

/// That a pool is below its `min`, and which pending pods the new machine is for as well.
fn below_min(have: u32, min: u32, pods: &[ObjectKey]) -> String {
    let below = pool_has(have, "min", min);
    if pods.is_empty() {
        return below;
    }
    format!("{below}; {}", pending(pods))
}

fn differing(keys: &[Arc<str>]) -> String {
    let of_node = keys.iter().filter(|key| ***key == *ANNOTATIONS).count();
    let what = match of_node {
        0 => "its VM is",
        all if all == keys.len() => "its node is",
        _ => "its VM and its node are",
    };
    format!("{what} not as the file says: {}", words::names(keys))
}

/// Nodes in words in whose place a machine comes, those of one cause together; empty where there is none.
fn in_place_of(nodes: &BTreeMap<Arc<str>, GivenUp>) -> String {
    let mut by_cause: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (node, cause) in nodes {
        let cause = match cause {
            GivenUp::HostEvacuated { host, .. } => format!("whose host {host} is evacuated"),
            GivenUp::Outdated { .. } => cause.to_string(),
        };
        by_cause.entry(cause).or_default().push(node);
    }
    let parts = by_cause.iter().map(|(cause, of_cause)| {
        let named = words::some(of_cause);
        format!("in place of {named}, {cause}")
    });
    parts.collect::<Vec<_>>().join("; ")
}

impl Reason {
    /// The pods that a new machine is for: they are pending, or run on a node in whose place it comes.
    pub fn pending_pods(&self) -> &[ObjectKey] {
        match self {
            Reason::PendingPods { pods, .. } | Reason::BelowMin { pods, .. } => pods,
            _ => &[],
        }
    }

    /// In whose place a new machine comes, in words such as `in place of general-h7cjk, whose host pve2 is evacuated`; `None` where it
    /// comes in the place of no node that is given up.
    pub fn in_place_of(&self) -> Option<String> {
        let words = self.given_up().map(in_place_of);
        words.filter(|words| !words.is_empty())
    }

    /// The nodes that are given up, in whose place a new machine comes, and why they are; `None` of what makes no machine for such.
    pub fn given_up(&self) -> Option<&BTreeMap<Arc<str>, GivenUp>> {
        match self {
            Reason::PendingPods { in_place_of, .. } | Reason::BelowMin { in_place_of, .. } => {
                Some(in_place_of)
            }
            _ => None,
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(words) = self.in_place_of() {
            write!(f, "{words}; ")?;
        }
        match self {
            Reason::PendingPods { pods, .. } => f.write_str(&pending(pods)),
            Reason::BelowMin {
                have, min, pods, ..
            } => f.write_str(&below_min(*have, *min, pods)),
            Reason::Unfinished => write!(f, "the machine is not finished"),
            Reason::Unneeded {
                since,
                utilization_permille,
            } => write!(
                f,
                "unneeded since {since}, {}.{} % of it requested",
                utilization_permille / 10,
                (utilization_permille % 10).abs()
            ),
            Reason::Unready { since } => write!(f, "not Ready since {since}"),
            Reason::Failed { message } => write!(f, "it failed: {message}"),
            Reason::Migrated { from } => {
                write!(f, "its VM was migrated, the node's zone is still {from}")
            }
            Reason::Reregistered => f.write_str(
                "its Node object was deleted and registered anew, so that it bears the startup taint again",
            ),
            Reason::Differs { keys } => f.write_str(&differing(keys)),
            Reason::NoNode => write!(f, "its VM has no node"),
            Reason::NoVm => write!(f, "its node has no VM"),
            Reason::Aborted { because } => write!(f, "the removal was given up: {because}"),
            Reason::DeadClone => write!(f, "the clone that made it is dead"),
            Reason::PoweredOff { since } => {
                write!(f, "its VM is off since {since}, and its Node exists")
            }
            Reason::NotWanted => f.write_str("its removal was begun and is brought to an end"),
            Reason::AboveMax { have, max, .. } => f.write_str(&pool_has(*have, "max", *max)),
            Reason::Evacuated { host, since } => {
                write!(f, "its host {host} is evacuated since {since}")
            }
            Reason::Outdated { outdated } => write!(f, "outdated: {outdated}"),
            Reason::Replaces {
                nodes,
                pods,
                saving,
            } => write!(
                f,
                "it is cheaper for {} than {}, which it replaces, by {} an hour",
                words::count(pods.len(), "pod"),
                nodes.join(", "),
                words::price(*saving)
            ),
            Reason::Consolidated { since, saving } => write!(
                f,
                "consolidation: its pods fit elsewhere, nothing changed there since {since}, it costs {} an hour",
                words::price(*saving)
            ),
            Reason::Replaced {
                by, saving, gone, ..
            } => {
                let how = if gone.is_empty() {
                    "and is cheaper by"
                } else {
                    "as it replaced others, and stays for their pods: without this node all costs less by"
                };
                let price = words::price(*saving);
                write!(f, "consolidation: {by} replaces it {how} {price} an hour")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drift::Drift;

    fn reason(in_place_of: BTreeMap<Arc<str>, GivenUp>) -> Reason {
        Reason::PendingPods {
            pods: vec![ObjectKey::new("default", "web-1")],
            in_place_of,
        }
    }

    #[test]
    fn a_machine_says_in_whose_place_it_comes() {
        let of_host = |host: &str, since: i64| GivenUp::HostEvacuated {
            host: host.into(),
            since: Time(since),
        };
        let outdated = GivenUp::Outdated {
            outdated: Outdated {
                drifted: vec![Drift::Template],
                expired: None,
            },
        };
        for (nodes, wanted) in [
            (
                vec![("a", of_host("pve2", 0))],
                "in place of a, whose host pve2 is evacuated",
            ),
            (
                vec![
                    ("a", of_host("pve2", 0)),
                    ("b", outdated.clone()),
                    ("c", of_host("pve2", 0)),
                ],
                "in place of b, outdated: the file says another template now; in place of a and c, whose host pve2 is evacuated",
            ),
            (
                vec![("a", of_host("pve2", 0)), ("b", of_host("pve3", 5))],
                "in place of a, whose host pve2 is evacuated; in place of b, whose host pve3 is evacuated",
            ),
        ] {
            let nodes = nodes.into_iter().map(|(node, cause)| (node.into(), cause));
            let reason = reason(nodes.collect());
            assert_eq!(reason.in_place_of().as_deref(), Some(wanted));
            assert_eq!(
                reason.to_string(),
                format!("{wanted}; 1 pod fits nowhere else: default/web-1")
            );
            let json = serde_json::to_value(&reason).expect("plain data");
            let read: Reason = serde_json::from_value(json).expect("it is read");
            assert_eq!(read, reason);
        }
    }

    /// As programs wrote it that did not tell in whose place a machine comes.
    #[test]
    fn a_reason_of_before_is_read() {
        let json = serde_json::json!({"why": "pending_pods", "pods": ["default/web-1"]});
        let read: Reason = serde_json::from_value(json.clone()).expect("it is read");
        assert_eq!(read, reason(BTreeMap::new()));
        assert_eq!(serde_json::to_value(&read).expect("plain data"), json);
        assert_eq!(read.in_place_of(), None);
        assert_eq!(read.to_string(), "1 pod fits nowhere else: default/web-1");
    }
}

//! What must be remembered between decisions and cannot be seen: timers, back-offs, lessons.
//!
//! Losing it may delay a removal, never hasten one: every timer that was lost counts from [`Memory::began`]. Of back-offs a
//! part is lost with it: a pool that has machines and none that works waits out a first one from there, any other pool that
//! waited is tried again at once, and lengths double from the first again. That costs a clone more that fails, which is
//! counted again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::action::Reason;
use super::cluster::ObjectKey;
use super::foreign::ForeignText;
use super::resources::Resources;
use super::scheduling::PodShape;
use super::time::{Span, Time};
use super::tolerant;

/// Version of the format that this program writes. Another version on disk counts as lost.
pub const VERSION: u32 = 1;

/// The brain's memory; written to the state directory after every decision that changed it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Memory {
    /// Format version, [`VERSION`].
    pub version: u32,
    /// When this memory began; set by the first decision. Timers that were lost count from here,
    /// and a pool that has machines but no healthy node waits out a first back-off from here.
    #[serde(alias = "born")] // as older programs wrote it
    pub began: Option<Time>,
    /// Node name to the time since when it is unneeded without a gap.
    pub unneeded_since: BTreeMap<Arc<str>, Time>,
    /// Nodes whose removal is under way, to the time since when they were unneeded: where the lease is lost for a moment, the removal goes
    /// on afterwards by the time that it began with.
    pub unneeded_before_removal: BTreeMap<Arc<str>, Time>,
    /// Machines whose removal was planned and is not over yet, and why they are removed. Nothing is decided by it: the report says why a
    /// node goes for as long as it takes. The times in a reason are told as they were.
    #[serde(
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "tolerant::known_entries"
    )]
    pub removals: BTreeMap<Arc<str>, Reason>,
    /// Last time a machine was planned or became a node.
    pub last_scale_up: Option<Time>,
    /// Last time a machine was removed for being unneeded.
    pub last_scale_down: Option<Time>,
    /// Last time a removal failed.
    pub last_scale_down_failure: Option<Time>,
    /// Back-offs by pool.
    pub backoff: BTreeMap<Arc<str>, Backoff>,
    /// Hosts on which a machine of a pool failed, by pool and host.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub host_backoff: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Backoff>>,
    /// Pools whose waits a person ended, and when: what a lost memory may have known of them is not waited for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub retried: BTreeMap<Arc<str>, Time>,
    /// Machines whose failure has been counted already.
    pub counted_failures: BTreeSet<Arc<str>>,
    /// Pools of which a machine failed by nobody's fault, and when the first one did since one of them came to work. The failure of a machine
    /// that was planned after that counts as any other does.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub transient_failures: BTreeMap<Arc<str>, Time>,
    /// Pools of which somebody shut a node out before a pod came to it, by a cordon or a taint, and when the first one was since a pod came to
    /// one. A machine that was planned after that and is shut out, too, counts as one that failed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shut_out: BTreeMap<Arc<str>, Time>,
    /// What nodes really offered, by `pool/instance type/template#promise`, where `promise` stands
    /// for the size and reservation they were made with: a lesson ends when the promise changes.
    pub learned: BTreeMap<Arc<str>, Resources>,
    /// When a node last offered what was learned, by the same names, to the hour. What no node has offered for a day is forgotten.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub learned_at: BTreeMap<Arc<str>, Time>,
    /// The batch of pending pods that is being gathered, or was planned for last.
    pub batch: Option<Batch>,
    /// Things in quarantine (orphans, placeholders, foreign nodes of ours) and since when.
    pub quarantine: BTreeMap<Arc<str>, Time>,
    /// Counts machines ever planned, so that names differ.
    pub serial: u64,
    /// Pods that were on nodes that are leaving, and those gone from there whose successors were not
    /// seen yet, by pod UID: room is kept for these.
    pub evicted: BTreeMap<Arc<str>, Evicted>,
    /// Nodes of pools with consolidation: what ran there, and since when.
    pub settled: BTreeMap<Arc<str>, Settled>,
    /// A consolidation that was found and waits to be found once more.
    pub consolidation: Option<FoundConsolidation>,
    /// Nodes and machines that pods without a place of their own were given one on, by name: UIDs of these
    /// pods. They wait for machines on their way, or are on nodes that are leaving.
    pub bookings: BTreeMap<Arc<str>, Vec<Arc<str>>>,
    /// Machines that were made to replace nodes, by machine name.
    pub replacements: BTreeMap<Arc<str>, Replacement>,
    /// Nodes whose replacement came to nothing, and until when none is tried again.
    pub unreplaceable: BTreeMap<Arc<str>, Time>,
    /// Stands for the last question of sizing to which a search found no better answer than the plan it began
    /// with: it is not asked again as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_better_plan: Option<u64>,
    /// As [`Memory::no_better_plan`], of a question in which spreading counts the domains alone that nodes are in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_better_plan_with_nodes: Option<u64>,
    /// As [`Memory::no_better_plan`], of a question in which pods that were put on machines on their way may go elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_better_plan_with_machines: Option<u64>,
    /// As [`Memory::no_better_plan`], of the questions in which a domain gets no machine. Those of the last decision.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub no_better_plan_with_fewer_domains: BTreeSet<u64>,
    /// Machines on their way up, by name: how long somebody has been at it.
    pub provisioning: BTreeMap<Arc<str>, Provisioning>,
    /// Machines that are working nodes and whose VM is off, or was, by name.
    pub power: BTreeMap<Arc<str>, Power>,
    /// The VMID that the last machine of a region was planned with, by region.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub last_vmids: BTreeMap<Arc<str>, u32>,
    /// The addresses that were given last, by network: one of each family at most.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub last_addresses: BTreeMap<Arc<str>, Vec<IpAddr>>,
    /// The host that the last machine of a pool with the strategy `round-robin` was planned on, by pool.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub last_hosts: BTreeMap<Arc<str>, Arc<str>>,
}

/// What is known of a machine's VM that was off while its Node existed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Power {
    /// Since when it is seen off.
    pub off: Option<Time>,
    /// When its start was first planned, while it is not seen running.
    pub asked: Option<Time>,
    /// When its start was last planned, while it is not seen running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tried: Option<Time>,
    /// When it was last started so. Until its host boots again it is not started once more.
    pub started: Option<Time>,
}

impl Memory {
    /// Every time that something happened at: none of them lies in the future.
    fn moments(&mut self) -> impl Iterator<Item = &mut Time> {
        let evicted = self.evicted.values_mut();
        let batch = self.batch.iter_mut();
        let hosts = self
            .host_backoff
            .values_mut()
            .flat_map(BTreeMap::values_mut);
        self.began
            .iter_mut()
            .chain(&mut self.last_scale_up)
            .chain(&mut self.last_scale_down)
            .chain(&mut self.last_scale_down_failure)
            .chain(self.unneeded_since.values_mut())
            .chain(self.unneeded_before_removal.values_mut())
            .chain(self.quarantine.values_mut())
            .chain(self.retried.values_mut())
            .chain(self.transient_failures.values_mut())
            .chain(self.shut_out.values_mut())
            .chain(self.learned_at.values_mut())
            .chain(self.backoff.values_mut().map(|backoff| &mut backoff.failed))
            .chain(hosts.map(|backoff| &mut backoff.failed))
            .chain(batch.flat_map(|batch| [&mut batch.first, &mut batch.last]))
            .chain(evicted.flat_map(|pod| {
                [Some(&mut pod.seen), pod.gone.as_mut()]
                    .into_iter()
                    .flatten()
            }))
            .chain(self.settled.values_mut().map(|settled| &mut settled.since))
            .chain(self.consolidation.iter_mut().map(|found| &mut found.since))
            .chain(self.replacements.values_mut().map(|made| &mut made.planned))
            .chain(
                self.provisioning
                    .values_mut()
                    .map(|counted| &mut counted.as_of),
            )
            .chain(self.power.values_mut().flat_map(|power| {
                let times = [
                    &mut power.off,
                    &mut power.asked,
                    &mut power.tried,
                    &mut power.started,
                ];
                times.into_iter().flatten()
            }))
    }

    /// A person has mended what made machines of this pool fail: it waits no more, neither as a whole nor on a host.
    /// Failures that come now count as the first, and what its nodes offer is learned anew from those there are.
    pub fn end_backoff(&mut self, pool: &Arc<str>, now: Time) {
        self.backoff.remove(pool);
        self.host_backoff.remove(pool);
        self.transient_failures.remove(pool);
        self.shut_out.remove(pool);
        let of_pool = |key: &Arc<str>| key.split('/').next() == Some(&**pool);
        self.learned.retain(|key, _| !of_pool(key));
        self.learned_at.retain(|key, _| !of_pool(key));
        self.retried.insert(pool.clone(), now);
    }

    /// Moves what lies in the future of `now` to it: the clock was set back while nobody looked. Timers
    /// begin anew then, and nothing comes early.
    pub fn end_future(&mut self, now: Time) {
        for time in self.moments() {
            *time = (*time).min(now);
        }
        for backoff in self.backoffs() {
            backoff.until = backoff.until.min(now + backoff.length);
        }
    }

    /// The clock was set ahead by `step`, or back: every time is moved with it, so that it is as long
    /// ago, or as far away, as it was.
    pub fn step(&mut self, step: Span) {
        for time in self.moments() {
            *time = *time + step;
        }
        for backoff in self.backoffs() {
            backoff.until = backoff.until + step;
        }
        for time in self.unreplaceable.values_mut() {
            *time = *time + step;
        }
    }

    /// Back-offs of pools and of hosts.
    fn backoffs(&mut self) -> impl Iterator<Item = &mut Backoff> {
        let hosts = self.host_backoff.values_mut();
        let hosts = hosts.flat_map(BTreeMap::values_mut);
        self.backoff.values_mut().chain(hosts)
    }
}

/// How long a machine has been on its way up while a daemon led.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provisioning {
    /// The time that counts.
    pub worked: Span,
    /// Until when it was added up.
    pub as_of: Time,
}

/// A pod of a node that is leaving.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evicted {
    /// The pod.
    pub pod: ObjectKey,
    /// What its successor will ask.
    pub shape: Arc<PodShape>,
    /// When it was first seen on a node that is leaving.
    pub seen: Time,
    /// When it was first seen gone.
    #[serde(default)]
    pub gone: Option<Time>,
}

/// The pods of a node, as a sum over their UIDs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settled {
    /// A hash of the UIDs of the pods, the same in any order.
    pub pods: u64,
    /// Since when it is the same.
    pub since: Time,
}

/// A consolidation that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FoundConsolidation {
    /// Nodes, their pods and the machine to make, in one text.
    pub what: String,
    /// Since when every decision finds the same.
    pub since: Time,
}

/// Nodes that a machine was made to replace. They go when it works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replacement {
    /// The nodes, by name, with their UIDs.
    pub nodes: BTreeMap<Arc<str>, Arc<str>>,
    /// The nodes whose removal was planned for the replacement: they may be gone from `nodes` since. From then on the
    /// machine stays for their pods.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub gone: BTreeSet<Arc<str>>,
    /// When it was planned.
    pub planned: Time,
    /// The saving of the replacement, in millionths per hour.
    pub saving: i64,
}

/// A pool that waits after failures, or makes nothing on a host after them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backoff {
    /// No new machine before this.
    pub until: Time,
    /// How long the present wait is; zero where a host is only taken last, after a failure that need not be its own.
    pub length: Span,
    /// The last failure.
    pub failed: Time,
    /// The message of the failure. The advice, where there is one, is its end.
    pub message: ForeignText,
    /// What to do about the failure, where PVE's words tell that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<ForeignText>,
}

impl Backoff {
    /// What failed, without what to do about it, which [`Backoff::advice`] says.
    pub fn words(&self) -> &str {
        let advice = self.advice.as_deref().unwrap_or_default();
        let words = self.message.strip_suffix(advice);
        words.map_or(&*self.message, |words| words.trim_end_matches("; "))
    }
}

/// A batch of pending pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batch {
    /// When its first pod was seen.
    pub first: Time,
    /// When it last grew.
    pub last: Time,
    /// A decision has planned for it: the next pod that comes begins another.
    #[serde(default)]
    pub closed: bool,
    /// UIDs of the pods seen.
    pub pods: BTreeSet<Arc<str>>,
}

//! How things stand, in one document: what `pve-autoscaler status` shows. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config;
use crate::controller::executor::ActionWait;
use crate::controller::trouble::{self, Trouble};
use crate::controller::turn::Turn;
use crate::controller::usual::UsualTime;
use crate::model::cluster::{ObjectKey, ReadyStatus};
use crate::model::cpus::CpuSet;
use crate::model::drift::Drift;
use crate::model::foreign::ForeignText;
use crate::model::in_place::Difference;
use crate::model::network::{Family, NicAddresses};
use crate::model::reasons::{GivenUp, Kept, Replacing, Unremovable, WaitsFor, told};
use crate::model::region::{Busy, Failure, Machine, Step, Vm};
use crate::model::report::{
    Hold, HostState, NetworkState, NodeVerdict, PodVerdict, PoolState, Report,
};
use crate::model::snapshot::{Snapshot, SourceState};
use crate::model::store_states::{DeviceStates, OwnCpuStates, StorageStates};
use crate::model::time::{Span, Time};
use crate::model::words;

/// The daemon's own directory, by the directory of its record as [`DaemonStatus::record`] names it; `None` where that is not known.
pub fn directory_of(record: &str) -> Option<&Path> {
    let directory = Path::new(record).parent();
    directory.filter(|directory| directory.is_absolute())
}

/// The state of the daemon and of what it looks after.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DaemonStatus {
    /// The program's version.
    pub version: String,
    /// False while the configuration file was not edited.
    pub configured: bool,
    /// The SHA-256 of the configuration file that is in force, in hexadecimal; empty when that is not known.
    #[serde(default)]
    pub configuration: String,
    /// The path of that file; empty when it is not known.
    #[serde(default)]
    pub configuration_file: String,
    /// The directory of the record of decisions; empty when it is not known.
    #[serde(default)]
    pub record: String,
    /// What is wrong with the daemon itself: a bad configuration file, a broker of another version.
    pub problems: Vec<String>,
    /// When the last turn was taken; `None` before the first.
    pub at: Option<Time>,
    /// Turns since the start.
    pub turns: u64,
    /// The cluster's id in our marks.
    pub cluster_id: Option<Arc<str>>,
    /// This instance holds the lease.
    pub leader: bool,
    /// The pause, if one holds.
    pub paused: Option<String>,
    /// Who holds the lease; empty when nobody does or that is not known.
    #[serde(default)]
    pub holder: String,
    /// Faults that keep the daemon from its work, each once, the worst first.
    #[serde(default)]
    pub troubles: Vec<Trouble>,
    /// What was not read since the start: the numbers of pools and pods are not known without it.
    #[serde(default)]
    pub unread: BTreeSet<Arc<str>>,
    /// What is on hold, and why.
    pub holds: Vec<Hold>,
    /// What a person should look at.
    pub warnings: Vec<String>,
    /// Pools.
    pub pools: BTreeMap<Arc<str>, PoolState>,
    /// By region, every host.
    #[serde(default)]
    pub hosts: BTreeMap<Arc<str>, BTreeMap<Arc<str>, HostState>>,
    /// By region, every storage that disks of machines are on or go to: a shared one under its name, any other under `HOST/NAME`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub storages: StorageStates,
    /// By region, mapping and host the PCI devices that machines can get.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: DeviceStates,
    /// By region, host and number of the NUMA node the CPUs that machines can get for themselves.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub own_cpus: OwnCpuStates,
    /// Networks, by family.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub networks: BTreeMap<Arc<str>, BTreeMap<Family, NetworkState>>,
    /// The machines by name.
    pub machines: BTreeMap<Arc<str>, MachineStatus>,
    /// Pods that are not bound: all, and those that a machine is coming for.
    pub pending: PendingCounts,
    /// How far the views can be trusted.
    pub sources: BTreeMap<Arc<str>, SourceState>,
}

/// A machine in the status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineStatus {
    /// The pool that the machine is of.
    pub pool: String,
    /// Name of the machine's instance type.
    pub instance_type: String,
    /// The region that its VM is in.
    #[serde(default)]
    pub region: Arc<str>,
    /// The host that its VM is on.
    pub host: Arc<str>,
    /// The CPUs of its host that it has for itself; absent where it runs on any.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub cpus: CpuSet,
    /// The addresses of ours that it has, by the number of the network card; absent where it has none.
    #[serde(default, skip_serializing_if = "NicAddresses::is_empty")]
    pub addresses: NicAddresses,
    /// VMID of its VM.
    pub vmid: u32,
    /// Name of its node, once there is one.
    pub node: Option<Arc<str>>,
    /// The step it is in, and since when.
    pub step: Option<(Step, Time)>,
    /// What this step usually takes in its pool, in milliseconds; absent where nothing is being done with it, or the step was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usual: Option<UsualTime>,
    /// What is being done with it.
    pub busy: Option<Busy>,
    /// What went wrong last.
    pub failure: Option<Failure>,
    /// What the work on it waits for at this moment.
    #[serde(default)]
    pub waits: Option<ActionWait>,
    /// What is wrong with a machine that became a node: it, its host or its node.
    #[serde(default)]
    pub ails: Option<ForeignText>,
    /// Whether the VM is off while its Node object exists.
    #[serde(default)]
    pub off: bool,
    /// What of its VM the file gives another value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differs: Vec<Difference>,
    /// What it was made with that the file says otherwise now; `None`: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drifted: Option<Vec<Drift>>,
    /// What keeps its node, where a person evacuates its host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stays: Option<WhyNodeStays>,
    /// Where a person evacuates its host: its node goes now, or is being taken down.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaves: bool,
}

/// What keeps a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WhyNodeStays {
    /// The rule.
    pub reason: Unremovable,
    /// The rule with numbers; in JSON `why` and `details`.
    #[serde(flatten, with = "told::why")]
    #[schemars(with = "told::WhyForm<Kept>")]
    pub why: Kept,
    /// The pod that keeps it, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<ObjectKey>,
}

/// Unbound pods in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PendingCounts {
    /// All of them.
    pub all: usize,
    /// They fit on a node there is or a machine on its way.
    pub awaited: usize,
    /// A machine would help but may not be made now.
    pub held: usize,
    /// No machine would help.
    pub no_compatible_pool: usize,
    /// They wait for others that may come, before a machine is planned.
    #[serde(default)]
    pub batched: usize,
    /// They are not the daemon's business: gated, expendable, too young.
    #[serde(default)]
    pub ignored: usize,
    /// Pods of which nothing is known, since what they are judged by was not read yet.
    #[serde(default)]
    pub unread: usize,
}

impl PendingCounts {
    /// What becomes of them, each lot with its number; those of all lots are all of them.
    pub fn lots(&self) -> Vec<String> {
        let lots = [
            (
                self.awaited,
                "waits",
                "wait",
                "for a node that is there or comes",
            ),
            (self.batched, "is", "are", "planned for soon"),
            (self.held, "is", "are", "on hold"),
            (self.no_compatible_pool, "fits", "fit", "no pool"),
            (self.ignored, "is", "are", "left alone"),
            (self.unread, "is", "are", "not judged yet"),
        ];
        let there = lots.into_iter().filter(|(count, ..)| *count > 0);
        there
            .map(|(count, one, many, what)| {
                format!("{count} {} {what}", if count == 1 { one } else { many })
            })
            .collect()
    }
}

impl DaemonStatus {
    /// The status after `turn`.
    pub fn of(turn: &Turn) -> DaemonStatus {
        let (snapshot, report) = (&turn.snapshot, &turn.decision.report);
        DaemonStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            configured: true,
            configuration: String::new(),
            configuration_file: String::new(),
            record: String::new(),
            problems: Vec::new(),
            at: Some(turn.at),
            turns: turn.number,
            cluster_id: snapshot.cluster_id.clone(),
            leader: snapshot.leader,
            holder: snapshot.lease.holder.clone(),
            troubles: trouble::find(
                snapshot,
                turn.settings.policy.scale_up.max_view_age,
                turn.at,
            ),
            unread: report.unread.clone(),
            paused: snapshot.paused.clone(),
            holds: report.holds.clone(),
            warnings: report.warnings.clone(),
            pools: report.pools.clone(),
            hosts: report.hosts.clone(),
            storages: report.storages.clone(),
            devices: report.devices.clone(),
            own_cpus: report.own_cpus.clone(),
            networks: report.networks.clone(),
            machines: snapshot
                .machines
                .iter()
                .map(|(name, machine)| {
                    let waits = turn.waits.of(name);
                    let ails = ails(snapshot, machine);
                    // The work may be further than what the last turn saw. Since when a step is worked at the journal knows.
                    let further = turn
                        .waits
                        .step(name)
                        .filter(|(step, _)| machine.step.is_none_or(|(seen, _)| seen < *step));
                    let evacuated = find_on_evacuated(snapshot, report, machine);
                    let mut status = MachineStatus {
                        step: further.or(machine.step),
                        stays: evacuated
                            .and_then(|(since, verdict)| find_what_keeps(machine, since, verdict)),
                        leaves: evacuated.is_some_and(|(_, verdict)| {
                            matches!(verdict, NodeVerdict::Leaving { .. })
                        }),
                        ..machine_status(snapshot, machine, waits, ails)
                    };
                    // What a standby did while it led is old: since then another one works.
                    if !snapshot.leader && !snapshot.lease.holder.is_empty() {
                        (status.step, status.failure) = (None, None);
                    }
                    let worked_at = status.step.filter(|_| status.busy.is_some());
                    status.usual =
                        worked_at.and_then(|(step, _)| turn.usual.of(&status.pool, step));
                    (name.clone(), status)
                })
                .collect(),
            pending: pending(report.pods.values()),
            sources: snapshot.sources.clone(),
        }
    }

    /// The status in one line, for systemd's `STATUS=`.
    pub fn line(&self) -> String {
        if !self.configured {
            let known = Some(&*self.configuration_file).filter(|file| !file.is_empty());
            return config::not_configured(known.unwrap_or(config::DEFAULT_PATH));
        }
        if self.at.is_none() {
            return match self.problems.first() {
                Some(problem) => format!("starting: {problem}"),
                None => "starting".to_owned(),
            };
        }
        let mut line = self.role();
        if self.unread.is_empty() {
            line.push_str("; ");
            line.push_str(&self.numbers());
        }
        let mut reasons = self.reasons();
        if let Some(reason) = reasons.next() {
            let _ = write!(line, "; {reason}");
        }
        let more = reasons.count();
        if more > 0 {
            let _ = write!(line, "; and {}", words::count(more, "more trouble"));
        }
        line
    }

    fn role(&self) -> String {
        match (&self.paused, self.leader) {
            (Some(_), _) => "paused".to_owned(),
            (None, true) => "leader".to_owned(),
            (None, false) if self.holder.is_empty() => "without the lease".to_owned(),
            (None, false) => format!("standby, {} leads", self.holder),
        }
    }

    fn numbers(&self) -> String {
        let sum = |number: fn(&PoolState) -> u32| self.pools.values().map(number).sum::<u32>();
        let unready = sum(|pool| pool.unready);
        let nodes = sum(|pool| pool.ready) + unready;
        let mut text = format!("{} of ours", words::count(nodes, "node"));
        if unready > 0 {
            let _ = write!(text, ", {unready} of them not ready");
        }
        let _ = write!(text, ", {} pending", words::count(self.pending.all, "pod"));
        for (count, verb) in [
            (sum(|pool| pool.coming), "coming"),
            (sum(|pool| pool.leaving), "leaving"),
        ] {
            if count > 0 {
                let _ = write!(text, ", {count} {verb}");
            }
        }
        text
    }

    /// What a headline has to name: faults, then what is wrong with the daemon, else what is on hold for another
    /// reason.
    fn reasons(&self) -> impl Iterator<Item = String> {
        // Of several regions what cannot be had says which is meant.
        let several = self.hosts.len() > 1;
        let faults = self
            .troubles
            .iter()
            .map(move |trouble| match &trouble.cause {
                Some(_) if several => trouble.to_string(),
                Some(cause) => cause.to_string(),
                None => trouble.effect.clone(),
            });
        let problems = self.problems.iter().cloned();
        let known = !self.troubles.is_empty() || !self.problems.is_empty();
        let held = self.holds.first().filter(|_| !known);
        let held = held.map(|hold| format!("{} on hold: {}", hold.scope, hold.why));
        faults.chain(problems).chain(held)
    }
}

/// The verdict on the node of a machine whose host a person evacuates, and since when.
fn find_on_evacuated<'a>(
    snapshot: &Snapshot,
    report: &'a Report,
    machine: &Machine,
) -> Option<(Time, &'a NodeVerdict)> {
    let region = snapshot.regions.get(&machine.region)?;
    let since = region.hosts.get(&machine.host)?.evacuated?;
    Some((since, report.nodes.get(machine.node.as_ref()?)?))
}

/// What keeps the node of a machine whose host is evacuated since then, by the verdict on the node.
fn find_what_keeps(machine: &Machine, since: Time, verdict: &NodeVerdict) -> Option<WhyNodeStays> {
    let (reason, why, pod) = match verdict {
        NodeVerdict::Kept {
            reason, why, pod, ..
        } => (*reason, why.clone(), pod.clone()),
        // A consolidation that was begun before goes on.
        NodeVerdict::Replaced { why, .. } => {
            let waits = match why {
                Replacing::OnItsWay { by, .. } => WaitsFor::MachineComing {
                    machine: by.clone(),
                },
                Replacing::Planned { by, .. } => WaitsFor::MachinePlanned {
                    machine: by.clone(),
                },
            };
            let host = machine.host.clone();
            let reason = waits.reason();
            let why = Kept::GivenUp {
                cause: Box::new(GivenUp::HostEvacuated { host, since }),
                waits: Box::new(waits),
            };
            (reason, why, None)
        }
        NodeVerdict::NotAutoscaled | NodeVerdict::Unread { .. } | NodeVerdict::Leaving { .. } => {
            return None;
        }
    };
    Some(WhyNodeStays { reason, why, pod })
}

/// What PVE and Kubernetes show to be wrong with a machine that became a node and that no task works on.
fn ails(snapshot: &Snapshot, machine: &Machine) -> Option<ForeignText> {
    let region = snapshot.regions.get(&machine.region);
    let row = region.and_then(|region| region.vms.get(&machine.mark.vmid));
    if let Some(why) = row.and_then(|vm| vm.unread.as_ref()) {
        return Some(format!("PVE's row of its VM cannot be read: {why}").into());
    }
    if region.is_some_and(|region| machine.lost_mark(region).is_some()) {
        return Some("its mark is not in its VM's description any more".into());
    }
    let node = snapshot.cluster.nodes.get(machine.node.as_ref()?)?;
    if machine.busy.is_some() || node.ready.status == ReadyStatus::True {
        return None;
    }
    let host = region.and_then(|region| region.hosts.get(&machine.host));
    let mut said = Vec::new();
    if host.is_some_and(|host| !host.online) {
        said.push(format!("its host {} is offline", machine.host));
    } else if is_off(snapshot, machine) {
        said.push("its VM is off".to_owned());
    } else if row.is_some_and(is_silent) {
        said.push("PVE does not tell yet whether its VM runs".to_owned());
    }
    let why = node
        .ready
        .why
        .as_deref()
        .unwrap_or("its kubelet says nothing");
    said.push(format!("its node is not Ready: {why}"));
    Some(said.join("; ").into())
}

/// So old may be what PVE's list of resources shows of a VM: its hosts tell it every ten seconds, and it shows a start some two later.
const LIST_AGE: Span = Span::seconds(15);

/// Whether PVE shows the VM of a machine off, asked since the machine came to where it is. Its list shows for some seconds how the VM was
/// before, and before its host has told anything, as after a boot, it shows a VM that does not run and has no name.
fn is_off(snapshot: &Snapshot, machine: &Machine) -> bool {
    let region = snapshot.regions.get(&machine.region);
    let row = region.and_then(|region| region.vms.get(&machine.mark.vmid));
    let source = snapshot
        .sources
        .get(format!("pve/{}", machine.region).as_str());
    let step = machine.step.zip(source);
    let is_old = step.is_some_and(|((_, since), read)| read.as_of < since + LIST_AGE);
    let vm = machine.vm.as_ref();
    !is_old && !row.is_some_and(is_silent) && vm.is_some_and(|vm| vm.marked && !vm.running)
}

/// Whether PVE tells nothing of a VM but that it is there: its host has not told it, or not for minutes.
fn is_silent(vm: &Vm) -> bool {
    vm.name.is_empty() && !vm.running
}

fn machine_status(
    snapshot: &Snapshot,
    machine: &Machine,
    waits: Option<ActionWait>,
    ails: Option<ForeignText>,
) -> MachineStatus {
    MachineStatus {
        pool: machine.mark.pool.clone(),
        instance_type: machine.mark.instance_type.clone(),
        region: machine.region.clone(),
        host: machine.host.clone(),
        cpus: machine.mark.cpus.clone(),
        addresses: machine.mark.addresses.clone(),
        vmid: machine.mark.vmid,
        node: machine.node.clone(),
        step: machine.step,
        busy: machine.busy,
        failure: machine.failure.clone(),
        waits,
        ails,
        off: machine.node.is_some() && is_off(snapshot, machine),
        differs: machine
            .vm
            .as_ref()
            .map_or_else(Vec::new, |vm| vm.differs.clone()),
        drifted: machine.vm.as_ref().and_then(|vm| vm.drifted.clone()),
        stays: None,
        leaves: false,
        usual: None,
    }
}

fn pending<'a>(verdicts: impl Iterator<Item = &'a PodVerdict>) -> PendingCounts {
    verdicts.fold(PendingCounts::default(), |mut pending, verdict| {
        pending.all += 1;
        match verdict {
            PodVerdict::FitsNode { .. }
            | PodVerdict::FitsMachine { .. }
            | PodVerdict::Triggers { .. } => {
                pending.awaited += 1;
            }
            PodVerdict::Held { .. } => pending.held += 1,
            PodVerdict::NoCompatiblePool { .. } => pending.no_compatible_pool += 1,
            PodVerdict::Batched { .. } => pending.batched += 1,
            PodVerdict::Ignored { .. } => pending.ignored += 1,
            PodVerdict::Unread { .. } => pending.unread += 1,
        }
        pending
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::cluster::{Node, Readiness};
    use crate::model::cpus::CpuSet;
    use crate::model::mark::Mark;
    use crate::model::reasons::{Ignored, Reasons, Removed};
    use crate::model::region::{Host, MachineVm, Region};
    use crate::model::resources::Resources;
    use crate::model::shared::Shared;
    use serde_json::json;

    /// A machine that became a node at the time 0 and is not Ready, and what PVE's list, read so many seconds later, has of its VM.
    fn listed(seconds: i64, name: &str, running: bool) -> (Snapshot, Machine) {
        let view = json!({"version": 1, "taken": "2026-01-02T00:00:00Z", "sources": {}, "leader": true,
            "cluster": {}, "regions": {}, "machines": {}});
        let mut snapshot: Snapshot =
            serde_json::from_value(view).unwrap_or_else(|error| panic!("a view: {error}"));
        let source = SourceState {
            complete: true,
            as_of: Time(0) + Span::seconds(seconds),
            error: None,
            cause: None,
        };
        snapshot.sources.insert("pve/default".into(), source);
        let mut region = Region::default();
        let host = Host {
            online: true,
            ..Host::default()
        };
        region.hosts.insert("pve1".into(), host);
        let vm = Vm {
            host: "pve1".into(),
            name: name.into(),
            running,
            ..Vm::default()
        };
        region.vms.insert(9000, vm);
        snapshot.regions.insert("default".into(), region.into());
        let node = Node {
            uid: "n".into(),
            system_uuid: "u".into(),
            provider_id: None,
            created: Time(0),
            deletion: None,
            labels: Shared::default(),
            annotations: Shared::default(),
            taints: Vec::new(),
            unschedulable: false,
            allocatable: Resources::default(),
            capacity: Resources::default(),
            ready: Readiness::default(),
            kubelet_version: "v1.36.0".into(),
            addresses: Vec::new(),
        };
        snapshot.cluster.nodes.insert("m".into(), node);
        let mark = Mark {
            cluster: "uid/home".into(),
            machine: "m".into(),
            vmid: 9000,
            pool: "p".into(),
            instance_type: "s".into(),
            template: "debian".into(),
            token: "abcdef".into(),
            created: Time(0),
            addresses: BTreeMap::new(),
            cpus: CpuSet::new(),
            unknown: [].into(),
        };
        let machine = Machine {
            terms: None,
            region: "default".into(),
            host: "pve1".into(),
            mark: mark.into(),
            storages: crate::model::chosen_storages::ChosenStorages::default(),
            intended: true,
            vm: Some(MachineVm {
                running,
                marked: true,
                ..MachineVm::default()
            }),
            node: Some("m".into()),
            contradiction: None,
            remembered: None,
            step: Some((Step::Done, Time(0))),
            failure: None,
            busy: None,
        };
        (snapshot, machine)
    }

    /// PVE's list is some seconds old, and has a VM without a name whose host has told nothing since it came up.
    #[test]
    fn a_vm_is_off_when_pve_tells_so_and_not_before() {
        for (seconds, name, running, off, words) in [
            (20, "m", false, true, "its VM is off; its node"),
            (20, "m", true, false, "its node is not Ready"),
            (10, "m", false, false, "its node is not Ready"),
            (-1, "m", false, false, "its node is not Ready"),
            (
                20,
                "",
                false,
                false,
                "PVE does not tell yet whether its VM runs; its node",
            ),
        ] {
            let (snapshot, machine) = listed(seconds, name, running);
            let ails = ails(&snapshot, &machine)
                .expect("it is not Ready")
                .to_string();
            let status = machine_status(&snapshot, &machine, None, None);
            assert_eq!(status.off, off, "{seconds} s, {name:?}, {running}: {ails}");
            assert!(ails.starts_with(words), "{seconds} s, {name:?}: {ails}");
        }
    }

    /// Where a host is evacuated each of its nodes says what becomes of it, that of a consolidation included which was begun before.
    #[test]
    fn a_node_of_an_evacuated_host_leaves_or_says_what_keeps_it() {
        let (mut snapshot, machine) = listed(20, "m", true);
        let told = |snapshot: &Snapshot, verdict: NodeVerdict| {
            let mut report = Report::default();
            report.nodes.insert("m".into(), verdict);
            let (since, verdict) = find_on_evacuated(snapshot, &report, &machine)?;
            Some(find_what_keeps(&machine, since, verdict))
        };
        let pod = || Some(ObjectKey::new("shop", "web-1"));
        let kept = |why: Kept| NodeVerdict::Kept {
            reason: why.reason(),
            why,
            pod: pod(),
            until: None,
        };
        assert_eq!(told(&snapshot, kept(Kept::Unknown)), None);
        let region = snapshot.regions.get_mut("default").expect("it is there");
        region.hosts.get_mut("pve1").expect("a host").evacuated = Some(Time(0));
        let stays = |why: Kept, pod: Option<ObjectKey>| {
            let reason = why.reason();
            Some(Some(WhyNodeStays { reason, why, pod }))
        };
        let known = told(&snapshot, kept(Kept::Unknown));
        assert_eq!(known, stays(Kept::Unknown, pod()));
        let leaving = NodeVerdict::Leaving {
            why: Removed::UnderWay { reason: None },
            moves: BTreeMap::new(),
        };
        assert_eq!(told(&snapshot, leaving), Some(None));
        let replaced = NodeVerdict::Replaced {
            by: "m-2".into(),
            why: Replacing::OnItsWay {
                by: "m-2".into(),
                saving: 1,
            },
            moves: BTreeMap::new(),
            others: Reasons::default(),
        };
        let waits = WaitsFor::MachineComing {
            machine: "m-2".into(),
        };
        let cause = GivenUp::HostEvacuated {
            host: "pve1".into(),
            since: Time(0),
        };
        let comes = Kept::GivenUp {
            cause: Box::new(cause),
            waits: Box::new(waits),
        };
        assert_eq!(told(&snapshot, replaced), stays(comes, None));
    }

    /// Whoever adds up the lots has all pods, those included that wait for their batch or are left alone.
    #[test]
    fn every_pod_without_a_node_is_in_one_lot() {
        let verdicts = [
            PodVerdict::Batched { until: Time(1) },
            PodVerdict::Ignored {
                why: Ignored::Gated,
            },
            PodVerdict::Held {
                why: Arc::default(),
            },
            PodVerdict::NoCompatiblePool {
                why: Arc::default(),
            },
            PodVerdict::FitsMachine {
                machine: "m".into(),
            },
            PodVerdict::FitsMachine {
                machine: "m".into(),
            },
        ];
        let counts = pending(verdicts.iter());
        let lots = counts.lots();
        let wanted = "2 wait for a node that is there or comes, 1 is planned for soon, 1 is on hold, 1 fits no pool, 1 is left alone";
        assert_eq!(lots.join(", "), wanted);
        let number = |lot: &String| lot.split(' ').next()?.parse::<usize>().ok();
        let sum: usize = lots.iter().filter_map(number).sum();
        assert_eq!(sum, counts.all);
    }

    /// "6 nodes, 3 not ready" would be three of the six.
    #[test]
    fn nodes_that_are_not_ready_are_among_those_that_are_counted() {
        let pool = PoolState {
            ready: 6,
            unready: 3,
            coming: 1,
            ..PoolState::default()
        };
        let status = DaemonStatus {
            configured: true,
            leader: true,
            at: Some(Time(0)),
            pools: [("p".into(), pool)].into(),
            ..DaemonStatus::default()
        };
        let wanted = "leader; 9 nodes of ours, 3 of them not ready, 0 pods pending, 1 coming";
        assert_eq!(status.line(), wanted);
    }
}

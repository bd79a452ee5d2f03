//! How things stand, in one document: what `pve-autoscaler status` shows. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::agent::turn::Turn;
use crate::model::region::{Busy, Failure, Machine, Step};
use crate::model::report::{Hold, PodVerdict, PoolState};
use crate::model::snapshot::SourceState;
use crate::model::time::Time;
use crate::model::words;

/// The state of the daemon and of what it looks after.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The program's version.
    pub version: String,
    /// False while the configuration file was not edited.
    pub configured: bool,
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
    /// What is held back, and why.
    pub holds: Vec<Hold>,
    /// What a person should look at.
    pub warnings: Vec<String>,
    /// Pools.
    pub pools: BTreeMap<Arc<str>, PoolState>,
    /// Machines.
    pub machines: BTreeMap<Arc<str>, MachineStatus>,
    /// Pods that are not bound: all, and those that a machine is coming for.
    pub pending: Pending,
    /// How far the views can be trusted.
    pub sources: BTreeMap<Arc<str>, SourceState>,
}

/// A machine in the status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MachineStatus {
    /// Its pool.
    pub pool: String,
    /// Its instance type.
    pub instance_type: String,
    /// Its host.
    pub host: Arc<str>,
    /// Its VMID.
    pub vmid: u32,
    /// Its node.
    pub node: Option<Arc<str>>,
    /// The step it is in, and since when.
    pub step: Option<(Step, Time)>,
    /// What is being done with it.
    pub busy: Option<Busy>,
    /// What went wrong last.
    pub failure: Option<Failure>,
}

/// Unbound pods in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// All of them.
    pub all: usize,
    /// They fit on a node there is or a machine on its way.
    pub awaited: usize,
    /// A machine would help but may not be made now.
    pub held: usize,
    /// No machine would help.
    pub hopeless: usize,
}

impl Status {
    /// The status after `turn`.
    pub fn of(turn: &Turn) -> Status {
        let (snapshot, report) = (&turn.snapshot, &turn.decision.report);
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            configured: true,
            problems: Vec::new(),
            at: Some(turn.at),
            turns: turn.number,
            cluster_id: snapshot.cluster_id.clone(),
            leader: snapshot.leader,
            paused: snapshot.paused.clone(),
            holds: report.holds.clone(),
            warnings: report.warnings.clone(),
            pools: report.pools.clone(),
            machines: snapshot
                .machines
                .iter()
                .map(|(name, machine)| (name.clone(), machine_status(machine)))
                .collect(),
            pending: pending(report.pods.values()),
            sources: snapshot.sources.clone(),
        }
    }

    /// The same in one line, for systemd's `STATUS=`.
    pub fn line(&self) -> String {
        if !self.configured {
            return "not configured: edit /etc/pve-autoscaler.toml, then systemctl reload pve-autoscaler".to_owned();
        }
        if self.at.is_none() {
            return "starting".to_owned();
        }
        let role = match (&self.paused, self.leader) {
            (Some(_), _) => "paused",
            (None, true) => "leader",
            (None, false) => "standby",
        };
        let sum = |number: fn(&PoolState) -> u32| self.pools.values().map(number).sum::<u32>();
        let mut line = format!(
            "{role}; {}, {} pending",
            words::count(sum(|pool| pool.ready), "node"),
            words::count(self.pending.all, "pod")
        );
        for (count, verb) in [
            (sum(|pool| pool.coming), "coming"),
            (sum(|pool| pool.leaving), "leaving"),
        ] {
            if count > 0 {
                let _ = write!(line, ", {count} {verb}");
            }
        }
        if let Some(hold) = self.holds.first() {
            let _ = write!(line, "; holding {}: {}", hold.scope, hold.why);
        }
        line
    }
}

fn machine_status(machine: &Machine) -> MachineStatus {
    MachineStatus {
        pool: machine.mark.pool.clone(),
        instance_type: machine.mark.instance_type.clone(),
        host: machine.host.clone(),
        vmid: machine.mark.vmid,
        node: machine.node.clone(),
        step: machine.step,
        busy: machine.busy,
        failure: machine.failure.clone(),
    }
}

fn pending<'a>(verdicts: impl Iterator<Item = &'a PodVerdict>) -> Pending {
    verdicts.fold(Pending::default(), |mut pending, verdict| {
        pending.all += 1;
        match verdict {
            PodVerdict::FitsNode { .. }
            | PodVerdict::FitsMachine { .. }
            | PodVerdict::Triggers { .. } => {
                pending.awaited += 1;
            }
            PodVerdict::Held { .. } => pending.held += 1,
            PodVerdict::Hopeless { .. } => pending.hopeless += 1,
            PodVerdict::Batched { .. } | PodVerdict::Ignored { .. } => {}
        }
        pending
    })
}

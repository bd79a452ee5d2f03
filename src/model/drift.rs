//! What a machine was made with that the file says otherwise now, where that cannot change in place. Karpenter's word
//! for such a machine is *drifted*.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::disruption::Rollout;
use super::region::Machine;
use super::time::{Span, Time};
use super::words;

/// A part of what a machine was made with.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Drift {
    /// Size, disk, labels or devices of its instance type; or the pool does not have the type any more.
    InstanceType,
    /// Labels of its pool.
    Labels,
    /// Taints of its pool.
    Taints,
    /// What kubelet and system keep, and the number of pods.
    Reservations,
    /// Which template it is cloned from, or the template was replaced by a newer one.
    Template,
    /// CPU type, sockets, NUMA, network cards, further disks.
    Hardware,
    /// The networks that its addresses are of, with gateway and name servers, and the firewall of its VM.
    Network,
    /// What cloud-init is told.
    CloudInit,
    /// Settings of the kubelet.
    Kubelet,
    /// How it joins.
    Join,
    /// Which API server it was told to join.
    Endpoint,
    /// The VM was moved to a host on which the CPUs that the machine was given for itself are not its alone.
    Cpus,
}

/// What of a machine is not as it should be, for people; `parts` are not empty.
pub fn tell(parts: &[Drift]) -> String {
    let of_file = parts.iter().filter(|part| **part != Drift::Cpus);
    let of_file: Vec<String> = of_file.map(ToString::to_string).collect();
    let file = format!("the file says another {} now", words::names(&of_file));
    let moved = "it was moved to a host on which its CPUs are not its alone";
    match (of_file.is_empty(), parts.contains(&Drift::Cpus)) {
        (false, true) => format!("{file}, and {moved}"),
        (true, true) => moved.to_owned(),
        (_, false) => file,
    }
}

/// Why a node is outdated: its machine has drifted, or is older than its pool lets it become. Karpenter's `Drifted` and `Expired`.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(deny_unknown_fields)]
pub struct Outdated {
    /// The parts that are not as they should be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drifted: Vec<Drift>,
    /// The age that its pool lets a node reach, and that this one has reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expired: Option<Span>,
}

impl Outdated {
    /// Why the node of a machine is outdated where its pool replaces such nodes like this; `None`: it is not.
    pub fn find(machine: &Machine, rollout: &Rollout, now: Time) -> Option<Outdated> {
        let vm = machine.vm.as_ref()?;
        let drifted = vm.drifted.as_ref().filter(|_| rollout.drifted);
        let drifted = drifted.cloned().unwrap_or_default();
        let age = now.since(machine.mark.created);
        let expired = rollout.expire_after.filter(|limit| age >= *limit);
        (!drifted.is_empty() || expired.is_some()).then_some(Outdated { drifted, expired })
    }
}

impl fmt::Display for Outdated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.drifted.is_empty(), self.expired) {
            (false, None) => f.write_str(&tell(&self.drifted)),
            (false, Some(age)) => {
                write!(f, "{}, and it is older than {age}", tell(&self.drifted))
            }
            (true, Some(age)) => write!(f, "it is older than {age}"),
            (true, None) => f.write_str("it was outdated"),
        }
    }
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Drift::InstanceType => "instance type",
            Drift::Labels => "labels",
            Drift::Taints => "taints",
            Drift::Reservations => "reservations",
            Drift::Template => "template",
            Drift::Hardware => "hardware",
            Drift::Network => "network",
            Drift::CloudInit => "cloud-init",
            Drift::Kubelet => "kubelet",
            Drift::Join => "join",
            Drift::Endpoint => "endpoint",
            Drift::Cpus => "CPUs of its own",
        })
    }
}

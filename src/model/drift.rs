//! What a machine was made with that the file says otherwise now, where that cannot change in place. Karpenter's word
//! for such a machine is *drifted*.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
    /// Which template it is cloned from, and how that is built.
    Template,
    /// CPU type, sockets, NUMA, network cards, further disks.
    Hardware,
    /// What cloud-init is told.
    CloudInit,
    /// Settings of the kubelet.
    Kubelet,
    /// How it joins.
    Join,
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
            Drift::CloudInit => "cloud-init",
            Drift::Kubelet => "kubelet",
            Drift::Join => "join",
        })
    }
}

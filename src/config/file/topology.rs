//! `[region.NAME.topology.HOST]` and what pools say of it: CPUs and memory of hosts for one machine alone.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::scalar::Size;

/// What the CPUs of a host are to each other, for pools with `cpu_pinning`: PVE's API does not tell it. `pve-autoscaler host-topology`
/// prints this table, read of the kernel of the host it runs on. A list of CPUs is written as the kernel does: `"0-3,32-35"`. More:
/// [machines](machines.md#cpus-of-their-own).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Topology {
    /// The CPUs of each NUMA node, in the order of their numbers; `""` for a node without any.
    #[schemars(length(min = 1))]
    pub numa: Option<Vec<String>>,
    /// Memory that machines may have of each NUMA node, in the same order. Default: it is not counted, and with too many machines
    /// on one node PVE cannot start the last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub numa_memory: Vec<Size>,
    /// The CPUs of each socket. Default: one socket has them all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<String>,
    /// CPUs that share a last-level cache. Default: those of a NUMA node do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub caches: Vec<String>,
    /// The CPUs of each core: one, or its threads, such as `["0,32", "1,33"]`.
    #[schemars(length(min = 1))]
    pub cores: Option<Vec<String>>,
    /// The NUMA nodes that the host's devices of a mapping are in, such as `{ gpu = "1" }`: machines with such a device get CPUs of those
    /// nodes where enough are free.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, String>,
    /// CPUs that no machine gets: for PVE itself, and for guests that have none of their own and run on all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved: Option<String>,
}

/// The size of huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HugePageSize {
    /// 2 MiB.
    #[serde(rename = "2M")]
    TwoMib,
    /// 1 GiB.
    #[serde(rename = "1G")]
    OneGib,
    /// 1 GiB where memory and host allow it, else 2 MiB.
    #[serde(rename = "any")]
    Any,
}

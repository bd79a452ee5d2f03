//! What the configuration says of hosts: which ones a pool uses, in which order, and how their capacity is counted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::region::HostLoad;

/// How the capacity of a region's hosts is counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostCounting {
    /// Memory that guests may be promised, in thousandths of what the host has.
    pub memory_overcommit_permille: i64,
    /// CPU that guests may be promised, in thousandths of what the host has; `None`: as much as they like.
    pub cpu_overcommit_permille: Option<i64>,
    /// CPU in millicores of each host that machines may not take.
    pub cpu_reserve_milli: i64,
    /// What disks of machines may grow to on a storage, in thousandths of its size.
    pub storage_overcommit_permille: i64,
    /// Machines of all pools on one host, at most.
    pub max_per_host: Option<u32>,
    /// Guests that are off and start with their host count too.
    pub onboot: bool,
    /// A VM with ballooning counts with the memory that it keeps at least.
    pub balloon_minimum: bool,
}

impl Default for HostCounting {
    fn default() -> HostCounting {
        HostCounting {
            memory_overcommit_permille: 1000,
            cpu_overcommit_permille: None,
            cpu_reserve_milli: 0,
            storage_overcommit_permille: 1000,
            max_per_host: None,
            onboot: true,
            balloon_minimum: false,
        }
    }
}

/// What of a storage stays free of new machines' disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StorageFloor {
    /// Bytes.
    Bytes(i64),
    /// Thousandths of the storage's size.
    Permille(i64),
}

impl StorageFloor {
    /// What stays free of a storage of a size, in bytes.
    pub fn of_total(self, total: i64) -> i64 {
        match self {
            StorageFloor::Bytes(bytes) => bytes.max(0),
            StorageFloor::Permille(part) => {
                let kept = i128::from(total.max(0)) * i128::from(part.max(0)) / 1000;
                i64::try_from(kept).unwrap_or(i64::MAX)
            }
        }
    }
}

/// The part that an amount is of a whole, in thousandths; of nothing as of 1.
pub fn share_permille(amount: i64, whole: i64) -> i64 {
    let part = i128::from(amount) * 1000 / i128::from(whole.max(1));
    i64::try_from(part).unwrap_or(i64::MIN)
}

/// Which of the hosts that may be used gets the next machine of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HostStrategy {
    /// The one with the fewest machines of the pool, then the one with the most memory that is not promised.
    #[default]
    Spread,
    /// The one with the most memory that is not promised.
    MaxMemory,
    /// The one with the most CPU that is not promised.
    MaxCpu,
    /// The one with the largest part of its CPU and its memory together that is not promised.
    Balanced,
    /// The one after the host of the machine that was planned last, by name.
    RoundRobin,
    /// One on which guests run before one that is empty, then the one with the least memory that is not promised.
    Pack,
}

impl fmt::Display for HostStrategy {
    /// Writes the strategy's name in the configuration.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HostStrategy::Spread => "spread",
            HostStrategy::MaxMemory => "max-memory",
            HostStrategy::MaxCpu => "max-cpu",
            HostStrategy::Balanced => "balanced",
            HostStrategy::RoundRobin => "round-robin",
            HostStrategy::Pack => "pack",
        })
    }
}

/// Which hosts a pool uses, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostRules {
    /// Which of them gets the next machine.
    pub strategy: HostStrategy,
    /// Hosts that it does not use, also where they are named among those that it uses.
    pub exclude: Vec<Arc<str>>,
    /// Machines of the pool on one host, at most.
    pub max_per_host: Option<u32>,
    /// CPU in millicores that a new machine leaves idle on its host, by what is in use; 0 for no such bound.
    pub min_free_cpu_milli: i64,
    /// Memory in bytes that a new machine leaves free on its host, by what is in use; 0 for no such bound.
    pub min_free_memory: i64,
    /// What a new machine leaves free on each storage that its disks go to. `None`: no such bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_free_storage: Option<StorageFloor>,
    /// What of its CPUs a host may have in use, in thousandths; with more it gets no machine. `None`: no such bound.
    pub max_cpu_load: Option<i64>,
    /// What of its memory a host may have in use, in thousandths; with more it gets no machine. `None`: no such bound.
    pub max_memory_load: Option<i64>,
    /// How much of the time something on a host may wait for CPU, memory or disk, in thousandths; with more it gets no machine.
    /// `None`: no such bound.
    pub max_pressure: Option<i64>,
}

impl HostRules {
    /// The most that a host may be loaded in one way.
    pub fn most(&self, kind: LoadKind) -> Option<i64> {
        match kind {
            LoadKind::Cpu => self.max_cpu_load,
            LoadKind::Memory => self.max_memory_load,
            _ => self.max_pressure,
        }
    }

    /// Whether it matters how loaded hosts are.
    pub fn bounds_load(&self) -> bool {
        LoadKind::ALL.iter().any(|kind| self.most(*kind).is_some())
    }
}

/// Bounds on a host's load that nobody can hold it to, since PVE did not tell that kind of load (`load` is what it told): by key of
/// the configuration, with the pools that set it. None of these pools makes a machine there.
pub fn untold_loads<'a>(
    load: &HostLoad,
    pools: impl Iterator<Item = (&'a Arc<str>, &'a HostRules)>,
) -> BTreeMap<&'static str, BTreeSet<&'a Arc<str>>> {
    let mut untold: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for (name, rules) in pools {
        for kind in LoadKind::ALL {
            if rules.most(kind).is_some() && load.of(kind).is_none() {
                untold.entry(kind.key()).or_default().insert(name);
            }
        }
    }
    untold
}

/// In which way a host is loaded.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum LoadKind {
    /// CPU in use.
    Cpu,
    /// Memory in use.
    Memory,
    /// Waiting for a CPU.
    CpuPressure,
    /// Waiting for memory.
    MemoryPressure,
    /// Waiting for a disk.
    IoPressure,
}

impl LoadKind {
    /// All of them.
    pub const ALL: [LoadKind; 5] = [
        LoadKind::Cpu,
        LoadKind::Memory,
        LoadKind::CpuPressure,
        LoadKind::MemoryPressure,
        LoadKind::IoPressure,
    ];

    /// The key of the configuration that bounds it.
    pub fn key(self) -> &'static str {
        match self {
            LoadKind::Cpu => "max_cpu_load",
            LoadKind::Memory => "max_memory_load",
            _ => "max_pressure",
        }
    }
}

impl fmt::Display for LoadKind {
    /// Writes what stands behind a percentage: *91.3 % of its CPUs are in use*.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LoadKind::Cpu => "of its CPUs are in use",
            LoadKind::Memory => "of its memory is in use",
            LoadKind::CpuPressure => "of the time something waits for a CPU",
            LoadKind::MemoryPressure => "of the time something waits for memory",
            LoadKind::IoPressure => "of the time something waits for a disk",
        })
    }
}

//! What worlds with a hidden plan are made of.

/// One thing that a pod may insist on, or wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Feature {
    /// A host port, one of three.
    Port,
    /// A zone by node selector.
    Zone,
    /// A pool by node selector.
    Pool,
    /// A pool's label by node affinity, one of two.
    Tier,
    SpreadZone,
    SpreadHost,
    /// Over zones and machines at once.
    SpreadBoth,
    /// Over zones or machines, as a wish.
    SpreadSoft,
    MinDomains,
    LabelKeys,
    HonorTaints,
    ApartHost,
    ApartZone,
    /// On no machine with a pod of another group.
    WithoutHost,
    /// In no zone with a pod of another group.
    WithoutZone,
    /// On a machine with a pod of another group.
    WithHost,
    /// In a zone with a pod of another group.
    WithZone,
    TogetherHost,
    TogetherZone,
    /// A claim whose volume is in one zone.
    ClaimZone,
    /// A claim whose volume is still to be made.
    ClaimNew,
    /// A claim whose volume is still to be made, of a class that two zones have.
    ClaimClass,
    Gpu,
    Disk,
    /// A higher priority.
    Urgent,
    WishZone,
    WishApart,
}

/// What else a world has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum With {
    /// Nodes of ours and others', partly filled.
    Nodes,
    /// Machines on their way.
    Coming,
    Daemons,
    /// Several pools: labels, taints, hosts, each with some of the types.
    Pools,
    Weights,
    Regions,
    Min,
    /// Pods of a lower priority that the plan has no room for.
    Noise,
    /// Few pods for each node.
    FewSlots,
    /// Types of odd ratios and prices.
    OddTypes,
    Gpus,
    AttachLimits,
    Reserved,
    /// No pod that waits fits on a node there is, as kube-scheduler leaves it.
    Settled,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) features: &'static [Feature],
    pub(super) with: &'static [With],
    /// In every world some plan that holds everybody is found.
    pub(super) holds: bool,
}

use Feature as F;
use With as W;

pub(super) const KINDS: &[Kind] = &[
    Kind {
        name: "nodes",
        features: &[
            F::ApartHost,
            F::WithHost,
            F::WithoutHost,
            F::WithZone,
            F::SpreadHost,
        ],
        with: &[W::Nodes, W::Daemons],
        holds: false,
    },
    Kind {
        name: "settled",
        features: &[
            F::ApartHost,
            F::WithHost,
            F::WithoutHost,
            F::WithZone,
            F::SpreadHost,
            F::SpreadZone,
        ],
        with: &[W::Nodes, W::Daemons, W::Settled],
        holds: false,
    },
    Kind {
        name: "settled claims",
        features: &[
            F::ClaimZone,
            F::ClaimNew,
            F::ClaimClass,
            F::SpreadZone,
            F::WithHost,
        ],
        holds: false,
        with: &[W::AttachLimits, W::Nodes, W::Settled],
    },
    Kind {
        name: "ports",
        features: &[F::Port, F::Port, F::ApartHost, F::WithHost],
        with: &[W::FewSlots, W::Daemons],
        holds: true,
    },
    Kind {
        name: "noise",
        features: &[
            F::ApartHost,
            F::SpreadZone,
            F::WithHost,
            F::Zone,
            F::Port,
            F::ClaimZone,
        ],
        with: &[W::Noise],
        holds: false,
    },
    Kind {
        name: "urgent",
        features: &[
            F::Urgent,
            F::Urgent,
            F::ApartHost,
            F::SpreadZone,
            F::WithHost,
            F::WithZone,
        ],
        with: &[W::Noise, W::Nodes],
        holds: false,
    },
    Kind {
        name: "pools",
        features: &[F::Pool, F::Tier, F::Zone, F::ApartHost, F::SpreadZone],
        with: &[W::Pools],
        holds: true,
    },
    Kind {
        name: "weights",
        features: &[F::Pool, F::Tier, F::WithHost, F::SpreadHost],
        with: &[W::Pools, W::Weights, W::Daemons],
        holds: true,
    },
    Kind {
        name: "regions",
        features: &[
            F::Zone,
            F::SpreadZone,
            F::ApartZone,
            F::WithHost,
            F::WithZone,
        ],
        holds: true,
        with: &[W::Regions],
    },
    Kind {
        name: "claims",
        features: &[
            F::ClaimZone,
            F::ClaimNew,
            F::ClaimClass,
            F::SpreadZone,
            F::WithHost,
        ],
        holds: false,
        with: &[W::AttachLimits, W::Nodes],
    },
    Kind {
        name: "gpus",
        features: &[F::Gpu, F::Gpu, F::WithHost, F::ApartHost, F::SpreadZone],
        with: &[W::Gpus],
        holds: true,
    },
    Kind {
        name: "gpu pools",
        features: &[F::Gpu, F::Gpu, F::Pool, F::WithHost],
        with: &[W::Gpus, W::Pools],
        holds: true,
    },
    Kind {
        name: "spread",
        features: &[
            F::SpreadZone,
            F::SpreadHost,
            F::SpreadBoth,
            F::SpreadSoft,
            F::MinDomains,
            F::LabelKeys,
            F::HonorTaints,
        ],
        with: &[],
        holds: true,
    },
    Kind {
        name: "spread on nodes",
        features: &[
            F::SpreadZone,
            F::SpreadHost,
            F::SpreadBoth,
            F::MinDomains,
            F::LabelKeys,
        ],
        holds: false,
        with: &[W::Nodes, W::Coming],
    },
    Kind {
        name: "company",
        features: &[
            F::WithoutHost,
            F::WithoutZone,
            F::WithHost,
            F::WithZone,
            F::TogetherHost,
            F::TogetherZone,
            F::ApartZone,
        ],
        with: &[],
        holds: true,
    },
    Kind {
        name: "min and coming",
        features: &[F::ApartHost, F::WithHost, F::SpreadZone, F::Zone],
        with: &[W::Min, W::Coming],
        holds: false,
    },
    Kind {
        name: "odd types",
        features: &[],
        with: &[W::OddTypes],
        holds: true,
    },
    Kind {
        name: "odd types with rules",
        features: &[F::ApartHost, F::WithHost, F::SpreadZone, F::Disk],
        with: &[W::OddTypes, W::Daemons, W::Reserved],
        holds: true,
    },
    Kind {
        name: "wishes",
        features: &[
            F::WishZone,
            F::WishApart,
            F::SpreadSoft,
            F::ApartHost,
            F::SpreadZone,
        ],
        holds: true,
        with: &[],
    },
    Kind {
        name: "everything",
        features: &[
            F::Port,
            F::Zone,
            F::Pool,
            F::Tier,
            F::SpreadZone,
            F::SpreadHost,
            F::SpreadBoth,
            F::SpreadSoft,
            F::MinDomains,
            F::LabelKeys,
            F::HonorTaints,
            F::ApartHost,
            F::ApartZone,
            F::WithoutHost,
            F::WithoutZone,
            F::WithHost,
            F::WithZone,
            F::TogetherHost,
            F::TogetherZone,
            F::ClaimZone,
            F::ClaimNew,
            F::ClaimClass,
            F::Gpu,
            F::Disk,
            F::Urgent,
            F::WishZone,
            F::WishApart,
        ],
        with: &[
            W::Nodes,
            W::Coming,
            W::Daemons,
            W::Pools,
            W::FewSlots,
            W::Gpus,
            W::AttachLimits,
            W::Min,
            W::Reserved,
        ],
        holds: false,
    },
];

/// What leaves as much room as the plan takes, or hardly more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    None,
    PoolMax(u32),
    NodesTotal,
    HostMemory(i64),
    HostCores,
    /// Machines of all pools on a host.
    PerHost,
    /// Machines of one pool on a host.
    PoolPerHost,
    PoolCores,
    PoolMemory,
    TotalCores,
    TotalMemory,
    InFlight,
    Vmids,
    Several,
}

impl Limit {
    pub(super) const ALL: [Limit; 16] = [
        Limit::None,
        Limit::PoolMax(0),
        Limit::NodesTotal,
        Limit::HostMemory(0),
        Limit::PoolMax(0),
        Limit::HostCores,
        Limit::PerHost,
        Limit::PoolPerHost,
        Limit::PoolMax(1),
        Limit::PoolCores,
        Limit::PoolMemory,
        Limit::TotalCores,
        Limit::TotalMemory,
        Limit::InFlight,
        Limit::Vmids,
        Limit::Several,
    ];
}

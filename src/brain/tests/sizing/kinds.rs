//! Of what kinds worlds are.

/// What pods insist on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tests) enum Kind {
    Plain,
    Spread,
    Affinity,
    Apart,
    Claims,
    Mixed,
}

impl Kind {
    pub(in crate::tests) const ALL: [Kind; 6] = [
        Kind::Plain,
        Kind::Spread,
        Kind::Affinity,
        Kind::Apart,
        Kind::Claims,
        Kind::Mixed,
    ];
}

/// Which limit leaves room for the plan and no more, or for a little more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tests) enum Limit {
    None,
    Machines(u32),
    Total,
    Hosts(i64),
    Cores,
    Memory,
    /// The cores of each host.
    HostCores,
    /// The machines of each host.
    PerHost,
    /// The types are two pools', each with a limit of its own.
    Pools,
    /// Machines, cores, memory and each host's memory at once.
    Several,
}

impl Limit {
    pub(in crate::tests) const ALL: [Limit; 12] = [
        Limit::Machines(0),
        Limit::None,
        Limit::Machines(1),
        Limit::Total,
        Limit::Hosts(0),
        Limit::Cores,
        Limit::Hosts(4),
        Limit::Memory,
        Limit::HostCores,
        Limit::PerHost,
        Limit::Pools,
        Limit::Several,
    ];
}

/// How sizes of types and pods come about, and what pods insist on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tests) enum Style {
    /// Sizes that people use; a pod insists on one thing.
    Usual,
    /// Sizes of any kind, pods from a few to a machine and to thirty, priorities; rules over other topologies as well.
    Wild,
}

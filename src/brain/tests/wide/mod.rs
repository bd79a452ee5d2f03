//! Generated worlds with every kind of constraint, for properties: small recipes that shrink well, and
//! what they come to as a world.

mod build;
pub(super) mod claims;
pub(super) mod hosts;
pub(super) mod story;

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

pub(super) const HOSTNAME: &str = "kubernetes.io/hostname";
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
pub(super) const HOSTS: [&str; 3] = ["pve1", "pve2", "pve3"];
pub(super) const NAMESPACES: [&str; 3] = ["default", "other", "bare"];
pub(super) const DRIVER: &str = "csi.example.com";

/// How a node stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Foreign,
    Ours,
    /// A machine without node.
    Coming,
    /// Its node is there with its startup taints.
    Registered,
    Failed,
    Leaving,
    /// Its drain was interrupted.
    Interrupted,
    /// It lost contact.
    Lost,
    Cordoned,
    Tainted,
    /// It came with less than was promised.
    Small,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct NodeRecipe {
    pub(super) state: State,
    /// Of which pool and type, where it is ours.
    pub(super) choice: usize,
    pub(super) host: usize,
    /// How many volumes it says it can attach.
    pub(super) attach: Option<i32>,
}

/// One thing that sets a pod apart.
#[derive(Clone, Debug)]
pub(super) enum Twist {
    Port(i32),
    Zone(usize),
    NodeTerm(u8),
    Spread {
        zone: bool,
        skew: i32,
        hard: bool,
        min_domains: Option<i32>,
        /// Bits: affinity ignored, taints honoured, `matchLabelKeys`, another app's pods, an empty selector.
        policies: u8,
    },
    /// Required: anti or not, over zone or host, of which app, in which namespaces.
    Company {
        anti: bool,
        zone: bool,
        app: u8,
        namespaces: u8,
    },
    Preferred(u8),
    Tolerates(u8),
    Priority(i32),
    /// `preemptionPolicy: Never`.
    Timid,
    Gpu(i64),
    Disk(i64),
    Claim(usize),
    EphemeralVolume(bool),
    Local,
    Gated,
    /// kube-scheduler has not tried it.
    Fresh,
    Nominated(usize),
    Deleting,
    Daemon,
    Stateful,
    Bare,
    Elsewhere,
}

#[derive(Clone, Debug)]
pub(super) struct PodRecipe {
    pub(super) milli: i64,
    pub(super) mib: i64,
    /// On which node, if on one.
    pub(super) node: Option<usize>,
    pub(super) namespace: usize,
    pub(super) app: u8,
    pub(super) twists: Vec<Twist>,
}

/// What limits a pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct PoolRecipe {
    pub(super) min: u32,
    pub(super) max: u32,
    pub(super) cores: Option<u32>,
    pub(super) weight: i32,
    /// Bits: one host, a taint, startup taints, a budget, reserved amounts.
    pub(super) traits: u8,
}

/// A world.
#[derive(Clone, Debug)]
pub(super) struct Wide {
    pub(super) pools: [PoolRecipe; 3],
    pub(super) nodes: Vec<NodeRecipe>,
    pub(super) pods: Vec<PodRecipe>,
    /// DaemonSets: what they ask, and for which nodes.
    pub(super) daemons: Vec<(i64, u8)>,
    pub(super) in_flight: u32,
    pub(super) nodes_total: u32,
    pub(super) host_gib: i64,
    /// What else is said of hosts.
    pub(super) hosts: Option<hosts::HostsRecipe>,
    pub(super) default_spread: bool,
    /// Evictions that the budget of each app allows, where it has one.
    pub(super) allowed: [Option<i32>; 3],
    pub(super) consolidated: bool,
    pub(super) minutes: i64,
}

fn twist() -> impl Strategy<Value = Twist> {
    let policies = (any::<bool>(), 1..3i32, of(1..4i32), 0..32u8);
    prop_oneof![
        (80..82i32).prop_map(Twist::Port),
        (0..3usize).prop_map(Twist::Zone),
        (0..10u8).prop_map(Twist::NodeTerm),
        (policies, prop::bool::weighted(0.8)).prop_map(
            |((zone, skew, min_domains, policies), hard)| Twist::Spread {
                zone,
                skew,
                hard,
                min_domains,
                policies,
            }
        ),
        (any::<bool>(), any::<bool>(), 0..3u8, 0..5u8).prop_map(|(anti, zone, app, namespaces)| {
            Twist::Company {
                anti,
                zone,
                app,
                namespaces,
            }
        }),
        (0..4u8).prop_map(Twist::Preferred),
        (0..4u8).prop_map(Twist::Tolerates),
        prop_oneof![1 => Just(100), 1 => Just(-5), 3 => Just(-100)].prop_map(Twist::Priority),
        Just(Twist::Timid),
        (0..3i64).prop_map(Twist::Gpu),
        (1..30i64).prop_map(Twist::Disk),
        (0..claims::COUNT).prop_map(Twist::Claim),
        any::<bool>().prop_map(Twist::EphemeralVolume),
        Just(Twist::Local),
        Just(Twist::Gated),
        Just(Twist::Fresh),
        (0..6usize).prop_map(Twist::Nominated),
        Just(Twist::Deleting),
        Just(Twist::Daemon),
        Just(Twist::Stateful),
        Just(Twist::Bare),
        Just(Twist::Elsewhere),
    ]
}

fn pod() -> impl Strategy<Value = PodRecipe> {
    let size = prop_oneof![
        4 => (0..1500i64, 0..1500i64),
        1 => (3000..5000i64, 100..200i64),
    ];
    let namespace = prop_oneof![3 => Just(0usize), 1 => 0..3usize];
    let more = (of(0..6usize), namespace, 0..3u8, vec(twist(), 0..3));
    (size, more).prop_map(|((milli, mib), (node, namespace, app, twists))| PodRecipe {
        milli,
        mib,
        node,
        namespace,
        app,
        twists,
    })
}

fn node() -> impl Strategy<Value = NodeRecipe> {
    let state = prop_oneof![
        3 => Just(State::Foreign),
        4 => Just(State::Ours),
        2 => Just(State::Coming),
        1 => Just(State::Registered),
        1 => Just(State::Failed),
        1 => Just(State::Leaving),
        1 => Just(State::Interrupted),
        1 => Just(State::Lost),
        1 => Just(State::Cordoned),
        1 => Just(State::Tainted),
        1 => Just(State::Small),
    ];
    let attach = prop_oneof![3 => Just(None), 1 => (0..3i32).prop_map(Some)];
    (state, 0..4usize, 0..3usize, attach).prop_map(|(state, choice, host, attach)| NodeRecipe {
        state,
        choice,
        host,
        attach,
    })
}

fn pool() -> impl Strategy<Value = PoolRecipe> {
    let cores = prop_oneof![3 => Just(None), 1 => (1..9u32).prop_map(Some)];
    let min = prop_oneof![4 => Just(0u32), 1 => 0..3u32];
    (min, 0..6u32, cores, 0..2i32, 0..32u8).prop_map(|(min, max, cores, weight, traits)| {
        PoolRecipe {
            min: min.min(max),
            max,
            cores,
            weight,
            traits,
        }
    })
}

/// Worlds of up to so many nodes and pods.
pub(super) fn wide(nodes: usize, pods: usize) -> impl Strategy<Value = Wide> {
    let rarely = prop::bool::weighted(0.2);
    let limits = (
        prop_oneof![4 => Just(100u32), 1 => 0..4u32],
        prop_oneof![4 => Just(0u32), 1 => 1..10u32],
        prop_oneof![3 => Just(64i64), 1 => 2..12i64],
        rarely,
    );
    let more = (
        vec((10..200i64, 0..3u8), 0..3),
        [of(0..3i32), of(0..3i32), of(0..3i32)],
        any::<bool>(),
        0..40i64,
    );
    let things = (vec(node(), 0..=nodes), vec(pod(), 0..=pods));
    let pools = [pool(), pool(), pool()];
    (pools, things, limits, more, hosts::hosts()).prop_map(
        |(pools, (nodes, pods), limits, more, hosts)| Wide {
            pools,
            nodes,
            pods,
            daemons: more.0,
            in_flight: limits.0,
            nodes_total: limits.1,
            host_gib: limits.2,
            hosts,
            default_spread: limits.3,
            allowed: more.1,
            consolidated: more.2,
            minutes: more.3,
        },
    )
}

//! Every reason has a sentence and a JSON form that is read back, whatever its numbers.

mod page;

use std::fmt::{Debug, Display};
use std::mem::discriminant;
use std::sync::Arc;

use proptest::prelude::*;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::*;
use crate::action::Reason;
use crate::cluster::{ObjectKey, ZoneLabel};
use crate::cpus::CpuSet;
use crate::disruption::{Cause, Share};
use crate::drift::{Drift, Outdated};
use crate::foreign::ForeignText;
use crate::hosts::LoadKind;
use crate::in_place::{Difference, FailedWrite};
use crate::lacking::{LackingPart, PartKind};
use crate::scheduling::{Effect, HostPort, LabelSelector, NodeTerm, Operator, Requirement, Taint};
use crate::time::{Span, Time};

/// One of each variant, and behind `;` further ones, where one cannot have all of its fields. The compiler refuses a list that lacks one.
macro_rules! one_of_each {
    ($type:ident: $($variant:ident $fields:tt),+ $(,)? $(; $($again:ident $others:tt),+ $(,)?)?) => {
        impl OneOfEach for $type {
            fn again() -> Vec<$type> {
                vec![$($(one_of_each!(@ $type $again $others)),+)?]
            }

            fn all() -> Vec<$type> {
                let all = vec![$(one_of_each!(@ $type $variant $fields)),+];
                for one in &all {
                    match one {
                        $($type::$variant { .. } => {}),+
                    }
                }
                all
            }
        }
    };
    (@ $type:ident $variant:ident ()) => { $type::$variant };
    (@ $type:ident $variant:ident { $($field:ident: $value:expr),+ $(,)? }) => {
        $type::$variant { $($field: $value),+ }
    };
}

trait OneOfEach: Sized {
    /// One of each variant.
    fn all() -> Vec<Self>;

    /// Further ones of some.
    fn again() -> Vec<Self>;

    /// All of them, those of one variant side by side.
    fn examples() -> Vec<Self> {
        let mut examples = Self::all();
        for one in Self::again() {
            let of_its = |other: &Self| discriminant(other) == discriminant(&one);
            let last = examples.iter().rposition(of_its);
            examples.insert(last.map_or(0, |last| last + 1), one);
        }
        examples
    }
}

fn pod() -> ObjectKey {
    ObjectKey::new("shop", "db-0")
}

fn requirement() -> Requirement {
    Requirement {
        key: "zone".into(),
        operator: Operator::In,
        values: vec!["z1".into(), "z2".into()],
    }
}

fn terms() -> Vec<NodeTerm> {
    let one = NodeTerm {
        expressions: vec![requirement()],
        fields: Vec::new(),
    };
    vec![one.clone(), one]
}

fn selector() -> LabelSelector {
    LabelSelector {
        labels: [("disk".into(), "ssd".into())].into_iter().collect(),
        expressions: vec![requirement()],
    }
}

one_of_each! { FilterFailure:
    Leaving(),
    Cordoned(),
    Taint { taint: Taint { key: "gpu".into(), value: "yes".into(), effect: Effect::NoSchedule }, compares_numbers: true },
    NodeSelector { key: "disk".into(), value: "ssd".into() },
    NodeAffinity { terms: terms() },
    Volume { volume: VolumeFilterFailure::Local { volume: "pv-1".into() } },
    HostPort { port: HostPort { protocol: "TCP".into(), ip: "".into(), port: 80 }, daemon_set: Some(ObjectKey::new("kube-system", "proxy")) },
    Insufficient { resource: "cpu".into(), asked: 2_500, free: 1_000, new_node: true },
    AntiAffinityOfOthers { key: "zone".into(), domain: Some("z1".into()) },
    AntiAffinity { key: "zone".into(), domain: Some("z1".into()), selectors: vec![selector()], namespaces: vec!["shop".into()] },
    AffinityLabel { key: "zone".into() },
    Affinity { key: "zone".into(), domain: Some("z1".into()), selectors: vec![selector()], namespaces: vec!["shop".into()], nowhere: false },
    SpreadLabel { key: "zone".into() },
    Spread {
        key: "zone".into(), domain: Some("z1".into()), pods: 3, least: 0, least_domain: Some("z2".into()), least_is_new: true, max_skew: 1,
        domains: Some(2), min_domains: Some(3),
    },
    DaemonSetAntiAffinity { key: "zone".into(), namespace: "kube-system".into() },
    ;
    Affinity { key: "zone".into(), domain: None, selectors: vec![selector()], namespaces: vec!["shop".into()], nowhere: true },
}

one_of_each! { VolumeFilterFailure:
    ClaimInUse { claim: "data".into(), user: pod() },
    ClaimReserved { claim: "data".into(), user: pod() },
    NoClaim { claim: "data".into() },
    ClaimNotOfPod { claim: "web-scratch".into() },
    ClaimDeleted { claim: "data".into() },
    ClaimLost { claim: "data".into() },
    NoVolume { claim: "data".into(), volume: "pv-1".into() },
    NotBound { claim: "data".into(), volume: "pv-1".into() },
    NoStorageClass { claim: "data".into(), class: "fast".into() },
    UnboundWithoutClass { claim: "data".into() },
    UnboundImmediate { claim: "data".into(), class: "fast".into() },
    NoneFree { claim: "data".into(), class: "fast".into(), storage: Some(1 << 30) },
    Local { volume: "pv-1".into() },
    BeingDeleted { volume: "pv-1".into() },
    Zone { zone: ZoneLabel { key: "zone".into(), values: vec!["z1".into(), "z2".into()] } },
    MadeElsewhere { node: "n1".into() },
    Unreachable { terms: terms() },
    NoFreeStorage { storage: NoFreeStorage::Unpublished { class: "fast".into(), asked: 1 << 30 } },
    Unserved {
        claim: None, class: "fast".into(), storage: 1 << 30, node: Some("n1".into()), taken: true,
        provision: Provision::Nobody,
    },
    AttachLimit { driver: "csi".into(), more: 2, limit: 16, used: 15 },
}

one_of_each! { Provision:
    Nobody(),
    Elsewhere { terms: terms() },
    NoFreeStorage { storage: NoFreeStorage::TooSmall { class: "fast".into(), asked: 1 << 31, most: 1 << 30 } },
}

one_of_each! { NoFreeStorage:
    Unpublished { class: "fast".into(), asked: 1 << 30 },
    TooSmall { class: "fast".into(), asked: 1 << 31, most: 1 << 30 },
    Elsewhere { class: "fast".into(), asked: 1 << 30, places: vec![selector(), LabelSelector::default()] },
}

one_of_each! { GivenUp:
    HostEvacuated { host: "pve1".into(), since: Time(0) },
    Outdated { outdated: Outdated { drifted: vec![Drift::Template], expired: Some(Span::minutes(60)) } },
}

one_of_each! { WaitsFor:
    MachineComing { machine: "p-2".into() },
    MachinePlanned { machine: "p-2".into() },
    Batch { until: Time(0) },
    NoMachine { pod: Some(ObjectKey::new("shop", "db-0")), refused: Reasons::new([("small/s".into(), Refused::PoolMax { machines: 3, max: 3, planned: 0 }.into())].into()) },
    Turn { after: "n1".into(), max: 1 },
    PoolBackOff { pool: "small".into(), until: Time(0) },
    Other { kept: Box::new(Kept::MaxDrainParallelism { draining: 1, max: 1 }) },
    ;
    NoMachine { pod: None, refused: Reasons::new([("small/s".into(), Refused::NoFreeVmid.into())].into()) },
}

one_of_each! { Kept:
    GivenUp {
        cause: Box::new(GivenUp::HostEvacuated { host: "pve1".into(), since: Time(0) }),
        waits: Box::new(WaitsFor::MachinePlanned { machine: "p-2".into() }),
    },
    PoweredOff {
        off: PoweredOff { since: Some(Time(0)), started: None, starting: true }, kept: Box::new(Kept::Needed),
    },
    PoolNotConfigured { pool: "small".into() },
    LeftAlone { machine: LeftAlone::NoMark },
    ComingUp(),
    Failed(),
    FailedAndKept { until: Time(0) },
    VmGone(),
    Unknown(),
    ScaleDownDisabled(),
    UnreadyDisabled(),
    HostOffline { host: "pve1".into() },
    Replacement { nodes: vec!["n1".into(), "n2".into()] },
    DisabledAnnotation { annotation: "a/b".into() },
    DoNotDisrupt { annotation: "a/b".into() },
    RemovedByOthers { taint: "a/b".into() },
    NeverConsolidated(),
    NotEmpty(),
    NotUnderutilized { resource: "cpu".into(), requested_permille: 720, threshold_permille: 500, ready: false },
    NotReported { resource: "cpu".into() },
    NothingToCount { resource: "cpu".into() },
    BlockedByPod { pod: pod(), blocked: Box::new(Blocked::Devices) },
    PodsExpected(),
    PodsMoveHere(),
    PodsOfDearerMoveHere { node: "n1".into() },
    NoPlace { expected: true, others: 2, nearest: Some("n1".into()), filter_failure: Some(Box::new(FilterFailure::Cordoned)) },
    LastOfDomain { key: "zone".into(), domain: "z1".into() },
    OneOrderOnly(),
    WorkUsedUp(),
    EnoughUnneeded(),
    Needed(),
    PoolTogether { pool: "small".into(), other: "n1".into(), kept: Box::new(Kept::ComingUp) },
    ReplacedTogether { by: "n3".into(), other: "n1".into(), kept: Box::new(Kept::ComingUp) },
    Held { hold: Arc::new(Held::Paused { reason: "lunch".into() }.into()) },
    Delayed { after: After::Addition, delay: Span::minutes(10), until: Time(0) },
    PoolMin { keeps: 1, min: 2 },
    LeastOfAll { of: Limit::Cpu, keeps: 1_500, least: 2_000 },
    MaxParallelism { leaving: 10, max: 10 },
    MaxDrainParallelism { draining: 1, max: 1 },
    NodeBudget { allowed: Share::Percent(10), nodes: 10, cause: Cause::Empty, disrupted: 1 },
    BudgetShared { budget: pod(), left: 1, wanted: 2 },
    NotLongEnough { state: Unneeded::Unready, since: Time(0), waited: Span::minutes(1), wanted: Span::minutes(10) },
    ChangeUnknown(),
    PodsChanged { since: Time(0), until: Time(1) },
    TooYoung { age: Span::minutes(1), least: Span::minutes(10) },
}

one_of_each! { Blocked:
    TooComplex { excess: Excess::Parts { parts: 20_001 } },
    Annotation { annotation: "a/b".into(), value: "false".into() },
    SeveralBudgets { budgets: 2 },
    Budget { budget: pod(), allowed: 1, left: 0, unready: true },
    Devices(),
    NoController(),
    CustomController { kind: "Foo".into() },
    SystemPod { timeout: Span::minutes(60), age: Span::minutes(1) },
    LocalStorage { volume: "tmp".into() },
}

one_of_each! { LeftAlone:
    OtherCluster { cluster: "uid/prod".into() },
    OtherMachine { machine: "small-aaaaa".into() },
    SeveralVms(),
    DamagedMark { damage: "it was edited".into() },
    UnknownVersion { version: "v7".into() },
    OtherMark(),
    MadeTemplate { vmid: 9000, host: "pve1".into() },
    Unreadable(),
    NoMark(),
    LostMark { vmid: 9_001, host: "pve1".into(), line: "pve-autoscaler:v1 {}".into() },
    OutsideRange { vmid: 9_200, first: 9_000, last: 9_099 },
    Contradiction { contradiction: "two nodes".into() },
}

one_of_each! { Refused:
    FilterFailure { filter_failure: Box::new(FilterFailure::Cordoned) },
    Held { hold: Arc::new(Held::NoClusterId.into()) },
    NoPool(),
    NoInstanceType(),
    PoolMax { machines: 3, max: 3, planned: 1 },
    NodesTotal { nodes: 3, max: 3 },
    BacksOff { until: Time(0) },
    InFlight { machines: 3, max: 3 },
    NoVmid { region: "default".into() },
    NetworkClosed { network: "lan".into(), unknown: UnknownAddresses { region: "default".into(), guests: 2, first: vec![GuestAt { vmid: 100, host: "pve1".into() }] } },
    NetworkFull { network: "lan".into(), ranges: Some("192.0.2.10-192.0.2.20".into()), on_wire: Some(3) },
    NoFreeVmid(),
    NoFreeName(),
    PoolCeiling { of: Limit::Cpu, would: 3_000, max: 2_000 },
    ClusterCeiling { of: Limit::Memory, would: 1 << 31, max: 1 << 30 },
    NoHostShown { region: "default".into(), excluded: vec!["pve1".into()] },
    NoHost(),
    Host { host: "pve1".into(), refusal: HostRefused::Offline },
    NoneOfHosts { hosts: 2, first: vec![Refused::NoHost, Refused::NoHost] },
    CarriesLess { winner: "small/s".into() },
    WeighsLess { pool: "small".into() },
    NotCheaper(),
    ForOtherPods(),
    TargetWaits { pod: pod() },
    TargetPlanned { pod: pod(), machine: "p-1".into() },
    PlannedBeside { filter_failure: Box::new(FilterFailure::Cordoned), pod: pod() },
    TooComplex { excess: Excess::Parts { parts: 20_001 } },
    Chained(),
    TooDear { price: 1_000, most: 0 },
    SameType { node: "n1".into() },
    WeighsLessThanNode { node: "n1".into() },
    LastOfDomain { key: "zone".into(), domain: "z1".into() },
    NotAllPods { pod: pod() },
    AnotherCheaper(),
}

one_of_each! { Excess:
    Parts { parts: 20_001 },
    Kinds(),
    Steps { steps: 12_000_000, budget: 10_000_000 },
    DisruptionBudgets { namespace: "shop".into() },
}

one_of_each! { HostRefused:
    Offline(),
    Maintenance(),
    Evacuated { since: Time(0) },
    Unread { why: "maxmem of \"node/pve1\" is -1".into() },
    NoTemplate { template: "base".into(), seen: 1, tied: Some("VM 9000 is cloned on its host pve2 alone, since its scsi0 is on local-lvm, which is not shared".into()) },
    TemplateFault { fault: ForeignText::new("VM 9000 on pve1 has no guest agent enabled") },
    StorageInactive { storage: "nfs".into(), template: 9000 },
    NoStorage { storage: "nfs".into(), template: 9000 },
    NoBridge { bridge: "vmbr1".into() },
    UnknownMemory(),
    UnknownCpus(),
    FewerCpus { has: 4_000, asks: 8_000 },
    BacksOff { until: Time(0) },
    PoolMax { machines: 2 },
    RegionMax { machines: 2 },
    Memory { left: 0, asks: 1 << 30 },
    Cpu { left: 0, asks: 4_000 },
    IdleMemory { idle: 0, asks: 1 << 30, keep: 1 << 30 },
    IdleCpu { idle: 0, asks: 4_000, keep: 1_000 },
    Load { of: LoadKind::Cpu, is: Some(913), most: 800 },
    StorageFree { storage: "nfs".into(), free: 0, asks: 1 << 30, keep: Some(10 << 30) },
    StorageGrowth { storage: "nfs".into(), left: 0, asks: 1 << 30, keep: Some(10 << 30) },
    StorageUnknown { storage: "nfs".into() },
    StorageNotShared { storage: "nfs".into(), template: 9000 },
    NoneOfStorages { each: vec![HostRefused::StorageFree { storage: "local-zfs".into(), free: 0, asks: 1 << 30, keep: None }, HostRefused::NoStorage { storage: "local-lvm".into(), template: 9000 }] },
    UnknownMapping { mapping: "gpu".into() },
    NoDevice { mapping: "gpu".into() },
    Devices { mapping: "gpu".into(), has: 2, free: 0, asks: 1 },
    MediatedDevices { mapping: "vgpu".into(), mdev: "nvidia-63".into(), has: 4, free: 0, asks: 1 },
    MixedDevices { mapping: "vgpu".into(), mdev: Some("nvidia-63".into()) },
    UntoldDevices { mapping: "vgpu".into(), mdev: "nvidia-63".into() },
    HugePages { nodes: 1, asks: 8 << 30 },
    UnreadDevices { mapping: "gpu".into(), guest: 101, guests: 2 },
    NoTopology(),
    OtherTopology { listed: 16, has: 32 },
    PinnedCpus { free: 2, asks: 4 },
    NumaMemory { cpus: 4, asks: 8 << 30 },
    UnreadCpus { guest: 101, guests: 2 },
}

/// A host's refusal is said of a host: this gives it one.
#[test]
fn every_refusal_of_a_host_has_words_of_its_own() {
    let said = HostRefused::all().into_iter().map(|refusal| {
        let host = "pve1".into();
        Refused::Host { host, refusal }.to_string()
    });
    let said: Vec<String> = said.collect();
    let different: std::collections::BTreeSet<&String> = said.iter().collect();
    assert!(said.iter().all(|words| words.contains("pve1")), "{said:#?}");
    assert_eq!(different.len(), said.len());
}

one_of_each! { Ignored:
    Phase { phase: crate::cluster::Phase::Running },
    BeingDeleted(),
    Gated(),
    Static(),
    DaemonSet(),
    OtherScheduler { scheduler: "mine".into() },
    Devices(),
    Expendable { priority: -20, cutoff: -10 },
    NotUnschedulable(),
    DelayAnnotation { annotation: "a/b".into(), until: Time(0) },
    NewPodDelay { until: Time(0) },
}

one_of_each! { Held:
    FormatVersion { seen: 2, reads: 1 },
    NotLeader { holder: Some("pve2".into()) },
    Paused { reason: "lunch".into() },
    NoClusterId(),
    ViewAhead { view: Time(1), now: Time(0) },
    MemoryAhead { remembered: Time(1), now: Time(0) },
    NotRead { sources: vec!["kube/pods".into()] },
    Stale { sources: vec!["kube/pods".into(), "kube/nodes".into()], age: Span::minutes(2), limit: Span::minutes(1) },
    RegionNotSeen { region: "default".into() },
    NoQuorum { region: "default".into() },
    RegionNotConfigured(),
    ScaleDownDisabled(),
    ClusterUnhealthy { unready: 4, nodes: 5, allowed: 3, percent: 45 },
    AboveMax { have: 3, max: 1, over: 2 },
    BelowMin { have: 0, min: 1, refused: Arc::new(Refused::NoHost) },
    BacksOff { failure: Some("a join failed".into()) },
    NoneWorks(),
}

one_of_each! { Removed:
    UnderWay { reason: Some(Reason::Evacuated { host: "pve1".into(), since: Time(0) }) },
    Planned { reason: Reason::NoVm },
    ;
    UnderWay { reason: None },
}

one_of_each! { Replacing:
    OnItsWay { by: "n3".into(), saving: 1_000 },
    Planned { by: "n3".into(), offer: "small/s".into(), nodes: vec!["n1".into()], saving: 1_000 },
}

one_of_each! { Aborted:
    Kept { reason: Unremovable::NotUnneededOtherReason, kept: Box::new(Kept::Needed) },
    NotWanted(),
}

one_of_each! { FateReason:
    Blocked { blocked: Box::new(Blocked::Devices) },
    Unplaced { kept: Box::new(Kept::OneOrderOnly) },
    OnceMachineWorks(),
    SuccessorThere { successor: ObjectKey::new("shop", "web-2"), node: Some("n2".into()) },
    SuccessorComes { to: "n2".into() },
    ;
    SuccessorThere { successor: ObjectKey::new("shop", "web-2"), node: None },
}

fn vm() -> VmAt {
    VmAt {
        region: "default".into(),
        vmid: 9_005,
        name: "web".into(),
    }
}

fn lacking(kind: PartKind, name: &str, pools: &[&str]) -> LackingPart {
    LackingPart {
        kind,
        name: name.into(),
        pools: pools.iter().map(|pool| Arc::from(*pool)).collect(),
    }
}

one_of_each! { Warning:
    FormerCluster { cluster: "uid/prod".into(), machines: 2 },
    NodesLost { lost: 4, running: 5 },
    Quarantined { machine: "small-aaaaa".into(), lost: Lost::Node },
    LeftAlone { machine: "small-aaaaa".into(), left_alone: LeftAlone::NoMark },
    PoolGone { machine: "small-aaaaa".into(), pool: "small".into() },
    FailedAndKept {
        machine: "small-aaaaa".into(), vmid: 9_001, host: "pve1".into(), failure: "a join failed".into(), until: Time(0),
    },
    NodesOfferLess {
        pool: "small".into(), instance_type: "s2".into(), cpu_milli: 1_500, memory: 3 << 30, reckoned_cpu_milli: 2_000, reckoned_memory: 4 << 30,
    },
    FailedAndAnnotated { machine: "small-aaaaa".into(), failure: "a join failed".into(), annotation: "a/b".into() },
    NotUpdated { machine: "small-aaaaa".into(), differences: vec![Difference {
        key: "tags".into(), is: "a".into(), wanted: "b".into(),
        failed: Some(FailedWrite { why: "PVE made \"c\" of it".into(), at: Time(0), for_good: true }),
    }] },
    PoweredOff { machine: "small-aaaaa".into(), vmid: 9_001, host: "pve1".into(), since: Time(0), started: Some(Time(1)) },
    HostOffline { region: "home".into(), host: "pve1".into(), machines: 2 },
    SchedulerSilent { pods: 3 },
    OrphanNode { node: "n1".into(), orphan: Orphan::LeftAlone },
    DamagedMark { vm: vm(), damage: "it was edited".into() },
    UnknownMark { vm: vm(), version: "v7".into() },
    OtherCluster { vm: vm(), cluster: "uid/prod".into() },
    CopiedMark { vm: vm(), original: 9_001, machine: "small-aaaaa".into() },
    HalfDestroyed { vm: vm(), host: "pve1".into() },
    TrialVm { vm: vm(), template: "debian".into() },
    ForeignVm { vm: vm(), being_made: false },
    UnreadMachine { vm: vm(), host: "pve1".into(), pool: "small".into() },
    UnreadVm { region: "default".into(), vmid: 9_005, host: "pve1".into() },
    UnreadRow { vm: vm(), host: "pve1".into(), why: "maxmem of \"qemu/9005\" is -1".into() },
    UnreadHost { region: "default".into(), host: "pve1".into(), why: "maxmem of \"node/pve1\" is -1".into() },
    TooComplex { namespaces: vec!["shop".into()], more: 1 },
    TooManyToReplan { pods: 3 },
    NominationsRefused(),
    NotMade { replacement: true, refused: Box::new(Refused::NoFreeVmid) },
    SharedZone { zone: "pve1".into(), regions: vec!["east".into(), "west".into()] },
    NoTemplate { pool: "small".into(), further_pools: Vec::new(), region: "default".into(), template: "debian".into(), fault: None },
    TemplateRedefined { region: "default".into(), template: "debian".into(), hosts: vec!["pve1".into(), "pve2".into()] },
    LostCpus { machine: "fast-aaaaa".into(), host: "pve2".into(), cpus: CpuSet::read("2-5").expect("a list"), shared: CpuSet::read("4-5").expect("a list"), with: Some(300), lacking: CpuSet::read("2").expect("a list"), untold: false, far: true },
    UnknownHost { region: "default".into(), host: "pve9".into(), hosts: vec!["pve1".into(), "pve2".into()] },
    Lacking { region: "default".into(), part: lacking(PartKind::SecurityGroup, "web", &["small"]) },
    ;
    Lacking { region: "default".into(), part: lacking(PartKind::Tag, "prod", &["small", "big"]) },
    Lacking { region: "default".into(), part: lacking(PartKind::PciMapping, "gpu", &["gpu"]) },
    Lacking { region: "default".into(), part: lacking(PartKind::UsbMapping, "key", &["small"]) },
    Lacking { region: "default".into(), part: lacking(PartKind::DirMapping, "data", &["small"]) },
    ForeignVm { vm: vm(), being_made: true },
    NoTemplate { pool: "big".into(), further_pools: vec!["gpu".into(), "small".into()], region: "default".into(), template: "debian".into(), fault: None },
    NoTemplate { pool: "small".into(), further_pools: Vec::new(), region: "default".into(), template: "debian".into(), fault: Some(ForeignText::new("VM 9000 on pve1 has no guest agent enabled")) },
    LostCpus { machine: "fast-aaaaa".into(), host: "pve3".into(), cpus: CpuSet::read("2-5").expect("a list"), shared: CpuSet::new(), with: None, lacking: CpuSet::new(), untold: true, far: false },
}

/// A fault of the template is one of every host's, and stands there once.
#[test]
fn what_every_host_says_is_said_once() {
    let said = |first: Vec<Refused>| Refused::NoneOfHosts { hosts: 3, first }.to_string();
    let same = vec![
        Refused::NoFreeVmid,
        Refused::NoFreeVmid,
        Refused::NoFreeVmid,
    ];
    assert_eq!(said(same), "none of 3 hosts will do: no VMID is free");
    let two = vec![
        Refused::NoFreeVmid,
        Refused::NoFreeName,
        Refused::NoFreeVmid,
    ];
    assert_eq!(
        said(two),
        "none of 3 hosts will do: no VMID is free; no unused name was found"
    );
}

/// What a machine lost, and what becomes of a node without one, is told apart in words.
#[test]
fn warnings_of_one_code_tell_what_happened() {
    let machine: Arc<str> = "small-aaaaa".into();
    let lost = [Lost::Node, Lost::Vm, Lost::Mark].map(|lost| {
        let machine = machine.clone();
        Warning::Quarantined { machine, lost }.to_string()
    });
    let orphans = [
        Orphan::Unchecked,
        Orphan::LeftAlone,
        Orphan::Deleted,
        Orphan::Quarantined,
    ]
    .map(|orphan| {
        let node = "n1".into();
        Warning::OrphanNode { node, orphan }.to_string()
    });
    let off = [None, Some(Time(1))].map(|started| {
        Warning::PoweredOff {
            machine: machine.clone(),
            vmid: 9_001,
            host: "pve1".into(),
            since: Time(0),
            started,
        }
        .to_string()
    });
    let all: Vec<String> = lost.into_iter().chain(orphans).chain(off).collect();
    let different: std::collections::BTreeSet<&String> = all.iter().collect();
    assert_eq!(different.len(), all.len(), "{all:#?}");
}

one_of_each! { HostNote:
    Offline(),
    Maintenance(),
    Evacuated { since: Time(0) },
    Unread { why: "maxmem of \"node/pve1\" is -1".into() },
    NoPool(),
    BacksOff { pool: "small".into(), until: Time(0), failure: "no space left".into() },
    TakenLast { pool: "small".into(), failure: "no space left".into() },
    LoadUntold { bound: "max_pressure".into(), pools: vec!["small".into()] },
    OwnCpus { free: 6, cpus: "2-7".into() },
    NoOwnCpus { host: "pve1".into(), refusal: HostRefused::NoTopology },
}

one_of_each! { StorageNote:
    NotAvailable { hosts: vec!["pve1".into(), "pve2".into()] },
    UnknownSize { pools: Vec::new() },
    NoRoom { pools: vec!["small".into(), "large".into()], asks: 20 << 30 },
    SharesSpace { with: vec!["local-zfs".into()] };
    UnknownSize { pools: vec!["small".into()] },
}

/// Every number, time and text of a document replaced by another.
fn changed(value: &Value, number: i64, text: &str) -> Value {
    match value {
        Value::Number(_) => number.into(),
        Value::String(_) => text.into(),
        Value::Array(items) => items.iter().map(|one| changed(one, number, text)).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| {
                // What stands for a variant stays as it is: another text is none.
                let named = matches!(
                    key.as_str(),
                    "code" | "operator" | "effect" | "why" | "phase" | "of"
                );
                let value = if named && value.is_string() {
                    value.clone()
                } else {
                    changed(value, number, text)
                };
                (key.clone(), value)
            })
            .collect(),
        other => other.clone(),
    }
}

trait Judged:
    OneOfEach + Clone + PartialEq + Debug + Display + Serialize + DeserializeOwned + JsonSchema
{
}
impl<R: OneOfEach + Clone + PartialEq + Debug + Display + Serialize + DeserializeOwned + JsonSchema>
    Judged for R
{
}

/// Each variant is one line of words, has a code of its own, and comes back from JSON as it was.
fn holds_of<R: Judged>() {
    let mut codes = std::collections::BTreeSet::new();
    for reason in R::examples() {
        let words = reason.to_string();
        assert!(!words.is_empty(), "{reason:?} has no words");
        assert!(!words.contains('\n') && !words.ends_with('.'), "{words:?}");
        let json = serde_json::to_value(&reason).expect("plain data");
        let code = json["code"].as_str().expect("a code").to_owned();
        codes.insert(code);
        let back: R = serde_json::from_value(json).expect("what was written");
        assert_eq!(back, reason);
    }
    assert_eq!(codes.len(), R::all().len(), "{codes:?}");
}

/// Whatever numbers and texts stand in a variant: it has words, equal ones have equal words, and JSON loses nothing.
fn holds_for<R: Judged>(number: i64, text: &str) -> Result<(), TestCaseError> {
    for reason in R::examples() {
        let json = serde_json::to_value(&reason).expect("plain data");
        let json = changed(&json, number, text);
        // Some texts and numbers are none that the field can have: then there is no such reason.
        let Ok(read) = serde_json::from_value::<R>(json.clone()) else {
            continue;
        };
        let again: R = serde_json::from_value(json).expect("it was read before");
        prop_assert_eq!(&again, &read);
        prop_assert_eq!(again.to_string(), read.to_string());
        let written = serde_json::to_value(&read).expect("plain data");
        prop_assert_eq!(
            serde_json::from_value::<R>(written).expect("it was written"),
            read
        );
    }
    Ok(())
}

/// The schema has each variant's code, all of its fields and none that is missing; and each field is in an example.
fn schema_describes<R: Judged>() {
    let schema = schemars::schema_for!(R).to_value();
    let known = schema["oneOf"].as_array().expect("a choice of variants");
    let examples = R::examples().into_iter();
    let examples: Vec<Value> = examples
        .map(|reason| serde_json::to_value(reason).expect("plain data"))
        .collect();
    for one in known {
        let code = &one["properties"]["code"]["const"];
        for key in one["properties"]
            .as_object()
            .into_iter()
            .flat_map(|of| of.keys())
        {
            let mut of_code = examples.iter().filter(|json| json["code"] == *code);
            assert!(
                of_code.any(|json| json.get(key).is_some()),
                "no example of {code} has {key}: docs/reasons.md does not show it"
            );
        }
    }
    for reason in R::examples() {
        let json = serde_json::to_value(&reason).expect("plain data");
        let of_code = |one: &&Value| one["properties"]["code"]["const"] == json["code"];
        let one = known.iter().find(of_code);
        let one = one.unwrap_or_else(|| panic!("{json} is not in the schema"));
        let fields = json.as_object().expect("an object");
        for key in fields.keys() {
            assert!(!one["properties"][key].is_null(), "{key} of {json}: {one}");
        }
        for key in one["required"].as_array().into_iter().flatten() {
            assert!(
                fields.contains_key(key.as_str().unwrap_or_default()),
                "{key} of {json}"
            );
        }
    }
    assert_eq!(known.len(), R::all().len());
}

/// Asks something of every family of reasons.
macro_rules! of_every_family {
    ($ask:ident($($argument:expr),*) $($then:tt)*) => {
        $ask::<FilterFailure>($($argument),*) $($then)*;
        $ask::<VolumeFilterFailure>($($argument),*) $($then)*;
        $ask::<Provision>($($argument),*) $($then)*;
        $ask::<NoFreeStorage>($($argument),*) $($then)*;
        $ask::<Refused>($($argument),*) $($then)*;
        $ask::<Excess>($($argument),*) $($then)*;
        $ask::<Ignored>($($argument),*) $($then)*;
        $ask::<Held>($($argument),*) $($then)*;
        $ask::<Kept>($($argument),*) $($then)*;
        $ask::<GivenUp>($($argument),*) $($then)*;
        $ask::<WaitsFor>($($argument),*) $($then)*;
        $ask::<Blocked>($($argument),*) $($then)*;
        $ask::<LeftAlone>($($argument),*) $($then)*;
        $ask::<Removed>($($argument),*) $($then)*;
        $ask::<Replacing>($($argument),*) $($then)*;
        $ask::<Aborted>($($argument),*) $($then)*;
        $ask::<FateReason>($($argument),*) $($then)*;
        $ask::<Warning>($($argument),*) $($then)*;
        $ask::<HostNote>($($argument),*) $($then)*;
        $ask::<StorageNote>($($argument),*) $($then)*;
    };
}

#[test]
fn the_schema_knows_every_reason() {
    of_every_family!(schema_describes());
}

#[test]
fn every_reason_has_words_and_a_code_and_comes_back_from_json() {
    of_every_family!(holds_of());
}

/// Records of earlier versions have the sentence and no reason, in a verdict and in a pod.
#[test]
fn what_was_too_complex_is_read_from_the_sentence_of_an_earlier_version() {
    use crate::scheduling::PodTraits;
    let sentences = [
        "too complex: its constraints have 20001 parts, more than one decision looks at; with fewer or simpler terms it counts again",
        "too complex: there are more kinds of pods than one decision looks at, and its namespace has most of them",
        "too complex: to weigh its constraints takes 12000000 steps, more than its namespace's share of the 10000000 of one decision leaves; with fewer or simpler affinity terms, or fewer kinds of pods, it counts again",
        "too complex: the disruption budgets of the namespace shop would be asked too often",
    ];
    let all = Excess::all();
    assert_eq!(sentences.len(), all.len());
    for (why, excess) in sentences.into_iter().zip(all) {
        let old = serde_json::json!({"code": "too_complex", "why": why});
        let refused: Refused = serde_json::from_value(old.clone()).expect("an earlier version's");
        let blocked: Blocked = serde_json::from_value(old).expect("an earlier version's");
        let pod: PodTraits =
            serde_json::from_value(serde_json::json!({"left_out": why})).expect("an earlier pod");
        assert_eq!(pod.left_out.as_ref(), Some(&excess));
        let again = serde_json::to_value(&pod).expect("plain data");
        let again: PodTraits = serde_json::from_value(again).expect("what was written");
        assert_eq!(again, pod);
        assert_eq!(
            serde_json::to_value(&refused).expect("plain data"),
            serde_json::json!({"code": "too_complex", "why": why, "excess": excess}),
            "the sentence stays where it was"
        );
        assert_eq!(
            blocked,
            Blocked::TooComplex {
                excess: excess.clone()
            }
        );
        assert_eq!(refused, Refused::TooComplex { excess });
    }
    for json in [
        serde_json::json!({"code": "too_complex", "why": "too much"}),
        serde_json::json!({"code": "too_complex"}),
    ] {
        assert!(serde_json::from_value::<Refused>(json).is_err());
    }
    let whole: PodTraits = serde_json::from_value(serde_json::json!({})).expect("nothing is there");
    assert_eq!(whole.left_out, None);
}

#[test]
fn cluster_autoscalers_names_are_the_names_in_json() {
    for reason in Kept::all() {
        let name = serde_json::to_value(reason.reason()).expect("plain data");
        assert_eq!(name, reason.reason().name());
    }
    for reason in Blocked::all() {
        let name = serde_json::to_value(reason.reason()).expect("plain data");
        assert_eq!(name, reason.reason().name());
    }
}

proptest! {
    #[test]
    fn no_number_or_text_is_too_much_for_a_reason(
        number in prop_oneof![any::<i64>(), 0i64..100, Just(i64::MAX), Just(i64::MIN)],
        text in prop_oneof!["\\PC{0,20}", "[a-z]{1,8}/[a-z]{1,8}", Just("2026-11-24T14:00:00Z".to_owned())],
    ) {
        of_every_family!(holds_for(number, &text)?);
    }
}

#[test]
fn a_verdict_carries_its_words_and_its_details() {
    use crate::report::NodeVerdict;
    let why = Kept::PoolMin { keeps: 1, min: 2 };
    let verdict = NodeVerdict::Kept {
        reason: why.reason(),
        why,
        pod: None,
        until: None,
    };
    let json = serde_json::to_value(&verdict).expect("plain data");
    assert_eq!(
        json,
        serde_json::json!({
            "verdict": "kept",
            "reason": "NodeGroupMinSizeReached",
            "why": "the pool would keep 1 node, its min is 2",
            "details": {"code": "pool_min", "keeps": 1, "min": 2},
            "pod": null,
            "until": null,
        })
    );
    assert_eq!(
        serde_json::from_value::<NodeVerdict>(json).expect("what was written"),
        verdict
    );
}

#[test]
fn a_pod_with_affinity_to_a_pod_that_is_nowhere_is_told_so() {
    let filter_failure = FilterFailure::Affinity {
        key: "zone".into(),
        domain: Some("z1".into()),
        selectors: vec![selector()],
        namespaces: vec!["shop".into()],
        nowhere: true,
    };
    let told = filter_failure.to_string();
    let expected = "its pod affinity over zone: there is no pod of the namespace shop with ";
    assert!(told.starts_with(expected), "{told}");
    assert!(
        told.ends_with(", and one must have a place first"),
        "{told}"
    );
}

#[test]
fn what_other_pods_forbid_is_told_with_what_would_change_it() {
    let app = |name: &str| LabelSelector {
        labels: [("app".into(), name.into())].into_iter().collect(),
        expressions: Vec::new(),
    };
    let affinity = |domain: Option<&str>, selectors: Vec<LabelSelector>, namespaces: &[&str]| {
        let domain = domain.map(Into::into);
        let key = "topology.kubernetes.io/zone".into();
        let namespaces = namespaces.iter().map(|name| (*name).into()).collect();
        let filter_failure = FilterFailure::Affinity {
            key,
            domain,
            selectors,
            namespaces,
            nowhere: false,
        };
        filter_failure.to_string()
    };
    let over = "its pod affinity over topology.kubernetes.io/zone:";
    for (told, expected) in [
        (
            affinity(Some("z1"), vec![app("cache"), app("db")], &[]),
            "no pod that all terms select (app=cache; app=db) is in zone z1",
        ),
        (
            affinity(Some("z1"), vec![app("cache")], &["shop"]),
            "no pod of the namespace shop with app=cache is in zone z1",
        ),
        (
            affinity(None, vec![LabelSelector::default()], &["a", "b"]),
            "no pod of the namespaces a, b is in the zone of a new node",
        ),
        (
            affinity(None, Vec::new(), &["shop"]),
            "a term without labelSelector selects no pod",
        ),
    ] {
        assert_eq!(told, format!("{over} {expected}"));
    }
    // What a record of an older version has.
    for (code, name) in [("affinity", "affinity"), ("anti_affinity", "anti-affinity")] {
        let old = serde_json::json!({"code": code, "key": "zone", "domain": "z1"});
        let old: FilterFailure = serde_json::from_value(old).expect("it is read");
        assert_eq!(
            old.to_string(),
            format!("its pod {name} over zone is not met")
        );
    }
    let spread = |least_domain: Option<&str>, least_is_new, few: Option<(usize, usize)>| {
        let filter_failure = FilterFailure::Spread {
            key: "zone".into(),
            domain: Some("a".into()),
            pods: 1,
            least: 0,
            least_domain: least_domain.map(Into::into),
            least_is_new,
            max_skew: 1,
            domains: few.map(|(domains, _)| domains),
            min_domains: few.map(|(_, min)| min),
        };
        filter_failure.to_string()
    };
    let over = "topology spread over zone: zone a would have 1 matching pod,";
    for (told, expected) in [
        (spread(Some("b"), false, None), "zone b has 0, maxSkew is 1"),
        (
            spread(Some("b"), true, None),
            "zone b, where no node is yet, has 0, maxSkew is 1",
        ),
        (spread(None, false, None), "the least has 0, maxSkew is 1"),
        (
            spread(None, false, Some((1, 3))),
            "the least counts as 0 since 1 domain has nodes that count and minDomains is 3, maxSkew is 1; a node in one more zone would help, or a smaller minDomains",
        ),
    ] {
        assert_eq!(told, format!("{over} {expected}"));
    }
}

#[test]
fn node_affinity_without_terms_or_with_odd_values_is_told_as_such() {
    let node_affinity = |operator, values: &[&str]| {
        let values = values.iter().map(|value| (*value).into()).collect();
        let key = "cpu".into();
        let requirement = Requirement {
            key,
            operator,
            values,
        };
        let term = NodeTerm {
            expressions: vec![requirement],
            fields: Vec::new(),
        };
        let terms = vec![NodeTerm::default(), term];
        FilterFailure::NodeAffinity { terms }.to_string()
    };
    let empty = "node affinity does not match: an empty term, which matches no node, or";
    assert_eq!(
        node_affinity(Operator::Gt, &["many"]),
        format!("{empty} cpu Gt [many] (not a whole number: it matches no node)")
    );
    assert_eq!(
        node_affinity(Operator::Lt, &["7"]),
        format!("{empty} cpu Lt [7]")
    );
    let none = FilterFailure::NodeAffinity { terms: Vec::new() }.to_string();
    assert_eq!(
        none,
        "node affinity does not match: its nodeSelectorTerms are empty, and match no node"
    );
    for terms in [Vec::new(), vec![NodeTerm::default()]] {
        let told = VolumeFilterFailure::Unreachable { terms }.to_string();
        assert!(
            told.ends_with("only where one of its terms matches, and there is none that could"),
            "{told}"
        );
    }
}

/// What stands for an amount that cannot be read is no number that somebody should read.
#[test]
fn an_amount_that_cannot_be_read_is_no_number() {
    for resource in ["cpu", "memory", "ephemeral-storage", "example.com/gpu"] {
        let filter_failure = FilterFailure::Insufficient {
            resource: resource.into(),
            asked: i64::MAX,
            free: 1 << 40,
            new_node: true,
        };
        let told = filter_failure.to_string();
        let words =
            format!("{resource}: asks an amount that cannot be read or counted, a node offers ");
        assert!(told.starts_with(&words), "{told}");
    }
    let storage = NoFreeStorage::Unpublished {
        class: "fast".into(),
        asked: i64::MAX,
    };
    let told = storage.to_string();
    assert!(
        told.ends_with("for a volume of an amount that cannot be read or counted"),
        "{told}"
    );
}

#[test]
fn older_words_are_read() {
    fn read<R: DeserializeOwned>(old: Value) -> R {
        serde_json::from_value(old).expect("it is read")
    }
    let json = |text: &str| -> Value { serde_json::from_str(text).expect("JSON") };
    let cordoned = || Box::new(FilterFailure::Cordoned);
    let refused: Refused = read(json(
        r#"{"code": "misfit", "misfit": {"code": "cordoned"}}"#,
    ));
    let filter_failure = cordoned();
    assert_eq!(refused, Refused::FilterFailure { filter_failure });
    let beside =
        r#"{"code": "planned_beside", "misfit": {"code": "cordoned"}, "pod": "shop/db-0"}"#;
    let Refused::PlannedBeside { filter_failure, .. } = read(json(beside)) else {
        panic!("{beside}");
    };
    assert_eq!(filter_failure, cordoned());
    let nowhere =
        r#"{"code": "no_place", "expected": false, "others": 2, "misfit": {"code": "cordoned"}}"#;
    let Kept::NoPlace { filter_failure, .. } = read(json(nowhere)) else {
        panic!("{nowhere}");
    };
    assert_eq!(filter_failure, Some(cordoned()));
    let claim = r#"{"code": "claim_promised", "claim": "data", "user": "shop/db-0"}"#;
    let claim: VolumeFilterFailure = read(json(claim));
    assert!(
        matches!(claim, VolumeFilterFailure::ClaimReserved { .. }),
        "{claim:?}"
    );
}

//! Why a node stays, in words.

use std::fmt::{self, Display, Formatter};

use crate::reasons::{After, Blocked, Kept, LeftAlone, Limit, PoweredOff, Unneeded, Unremovable};
use crate::time::Span;
use crate::words::{are, bytes, cores, count};

use super::Joined;

impl Display for Unremovable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Display for Kept {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Kept::GivenUp { cause, waits } => write!(f, "{cause}; {waits}"),
            Kept::PoweredOff { off, kept } => write!(f, "{off}; {kept}"),
            Kept::PoolNotConfigured { pool } => {
                write!(f, "its pool {pool} is not in the configuration")
            }
            Kept::LeftAlone { machine } => write!(f, "left alone: {machine}"),
            Kept::ComingUp | Kept::Failed | Kept::FailedAndKept { .. } | Kept::VmGone => {
                of_its_machine(self, f)
            }
            Kept::Unknown => write!(f, "nothing is known of it"),
            Kept::ScaleDownDisabled => {
                write!(f, "scale-down is switched off in the configuration")
            }
            Kept::UnreadyDisabled | Kept::HostOffline { .. } => of_readiness(self, f),
            Kept::Replacement { nodes } => {
                write!(f, "it was made to replace {}", Joined(nodes.iter(), ", "))
            }
            Kept::DisabledAnnotation { annotation } => {
                write!(f, "its annotation {annotation} is true")
            }
            Kept::DoNotDisrupt { annotation } => write!(f, "it is annotated with {annotation}"),
            Kept::RemovedByOthers { taint } => write!(
                f,
                "another autoscaler's taint {taint} says that it is being removed"
            ),
            Kept::NeverConsolidated => {
                write!(f, "the consolidation of its pool is set to never")
            }
            Kept::NotEmpty => write!(
                f,
                "pods run there, and its pool consolidates only empty nodes"
            ),
            Kept::NotUnderutilized { .. }
            | Kept::NotReported { .. }
            | Kept::NothingToCount { .. } => of_utilization(self, f),
            Kept::BlockedByPod { pod, blocked } => write!(f, "{pod}: {blocked}"),
            Kept::PodsExpected
            | Kept::PodsMoveHere
            | Kept::PodsOfDearerMoveHere { .. }
            | Kept::NoPlace { .. }
            | Kept::LastOfDomain { .. }
            | Kept::OneOrderOnly => of_places(self, f),
            Kept::WorkUsedUp => write!(
                f,
                "the budget of work of one decision is used up: to place the pods of other nodes took too much"
            ),
            Kept::EnoughUnneeded => write!(
                f,
                "enough nodes have become unneeded for now; the others follow"
            ),
            Kept::Needed => write!(f, "it is needed"),
            Kept::PoolTogether { pool, other, kept } => write!(
                f,
                "the nodes of the pool {pool} go together, and {other} stays: {kept}"
            ),
            Kept::ReplacedTogether { by, other, kept } => {
                write!(
                    f,
                    "{by} replaces it together with {other}, which stays: {kept}"
                )
            }
            Kept::Held { hold } => hold.fmt(f),
            limits => of_limits(limits, f),
        }
    }
}

/// How much of a node is requested.
fn of_utilization(kept: &Kept, f: &mut Formatter<'_>) -> fmt::Result {
    match kept {
        Kept::NotUnderutilized {
            resource,
            requested_permille,
            threshold_permille,
            ready,
        } => {
            let state = if *ready {
                ""
            } else {
                ", though it is not Ready"
            };
            write!(
                f,
                "{}.{} % of its {resource} is requested, the threshold is {}.{} %{state}",
                requested_permille / 10,
                requested_permille % 10,
                threshold_permille / 10,
                threshold_permille % 10
            )
        }
        Kept::NotReported { resource } => {
            write!(f, "the node reports no allocatable {resource}")
        }
        Kept::NothingToCount { resource } => write!(
            f,
            "the pods that do not count request all {resource} there is"
        ),
        _ => Ok(()),
    }
}

/// Where pods would go, or come.
fn of_places(kept: &Kept, f: &mut Formatter<'_>) -> fmt::Result {
    match kept {
        Kept::PodsExpected => write!(f, "pending pods are expected here"),
        Kept::PodsMoveHere => write!(f, "pods of other nodes will move here"),
        Kept::PodsOfDearerMoveHere { node } => {
            write!(f, "pods of {node}, which costs more, will move here")
        }
        Kept::NoPlace {
            expected,
            others,
            nearest,
            filter_failure,
        } => {
            if *expected {
                write!(f, "pending pods are expected here, and ")?;
            }
            if *others == 0 {
                return write!(f, "there is no other ready node that stays");
            }
            match *others {
                1 => f.write_str("the one other ready node does not hold it")?,
                _ => write!(f, "none of the {others} other ready nodes holds it")?,
            }
            match (nearest, filter_failure) {
                (Some(node), Some(filter_failure)) => write!(f, "; {node}: {filter_failure}"),
                _ => Ok(()),
            }
        }
        Kept::LastOfDomain { key, domain } => write!(
            f,
            "its pods are spread over {key}, and no other node is left in {domain}"
        ),
        Kept::OneOrderOnly => write!(
            f,
            "its pods fit elsewhere only in one order, and kube-scheduler may take another"
        ),
        _ => Ok(()),
    }
}

/// How the machine of a node stands that is no working node.
fn of_its_machine(kept: &Kept, f: &mut Formatter<'_>) -> fmt::Result {
    match kept {
        Kept::ComingUp => write!(f, "it is still coming up"),
        Kept::Failed => write!(f, "its machine failed and is being removed"),
        Kept::FailedAndKept { until } => write!(
            f,
            "its machine failed and is kept until {until} to be looked into"
        ),
        Kept::VmGone => write!(f, "its VM is gone"),
        _ => Ok(()),
    }
}

/// Why a node stays that is not Ready.
fn of_readiness(kept: &Kept, f: &mut Formatter<'_>) -> fmt::Result {
    match kept {
        Kept::HostOffline { host } => {
            write!(
                f,
                "its host {host} is offline, or answers no call: what becomes of it is decided once that is back"
            )
        }
        Kept::UnreadyDisabled => write!(
            f,
            "it is not Ready, and removing such nodes is switched off in the configuration (scale_down.unready_enabled)"
        ),
        _ => Ok(()),
    }
}

/// Limits and budgets.
fn of_limits(kept: &Kept, f: &mut Formatter<'_>) -> fmt::Result {
    match kept {
        Kept::Delayed {
            after,
            delay,
            until,
        } => write!(
            f,
            "nothing is removed for {delay} after {after}, until {until}"
        ),
        Kept::PoolMin { keeps, min } => {
            let keeps = count(*keeps, "node");
            write!(f, "the pool would keep {keeps}, its min is {min}")
        }
        Kept::LeastOfAll {
            of: Limit::Cpu,
            keeps,
            least,
        } => write!(
            f,
            "the pools would keep {} cores, limits.min_cpu is {}",
            cores(*keeps),
            cores(*least)
        ),
        Kept::LeastOfAll {
            of: Limit::Memory,
            keeps,
            least,
        } => write!(
            f,
            "the pools would keep {} of memory, limits.min_memory is {}",
            bytes(*keeps),
            bytes(*least)
        ),
        Kept::MaxParallelism { leaving, max } => {
            let leaving = are(*leaving, "node");
            write!(f, "{leaving} leaving, max_parallelism is {max}")
        }
        Kept::MaxDrainParallelism { draining, max } => {
            let draining = are(*draining, "node");
            write!(f, "{draining} draining, max_drain_parallelism is {max}")
        }
        Kept::NodeBudget {
            allowed,
            nodes,
            cause,
            disrupted,
        } => {
            let be = if *disrupted == 1 { "is" } else { "are" };
            write!(
                f,
                "a budget of its pool lets {allowed} of {nodes} nodes be disrupted at a time for being {cause}, {disrupted} {be}"
            )
        }
        Kept::BudgetShared {
            budget,
            left,
            wanted,
        } => write!(
            f,
            "the disruption budget {budget} has {} left beside other removals, {wanted} needed",
            count(*left, "eviction")
        ),
        others => of_times(others, f),
    }
}

/// What has not been so for long enough.
fn of_times(kept: &Kept, f: &mut Formatter<'_>) -> fmt::Result {
    match kept {
        Kept::NotLongEnough {
            state,
            since,
            waited,
            wanted,
        } => {
            // Nobody reads the milliseconds of a wait of minutes.
            let whole = Span(waited.0 - waited.0 % 1_000);
            let state = match state {
                Unneeded::Unneeded => "",
                Unneeded::Unready => "not Ready ",
            };
            write!(f, "{state}since {since}, that is {whole} of {wanted}")
        }
        Kept::ChangeUnknown => write!(f, "it is not known yet when its pods last changed"),
        Kept::PodsChanged { since, until } => write!(
            f,
            "a pod came or went at {since}, its pool lets it be until {until}"
        ),
        Kept::TooYoung { age, least } => {
            write!(f, "it is {age} old, no node is removed before {least}")
        }
        _ => Ok(()),
    }
}

impl Display for After {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            After::Addition => "an addition",
            After::Deletion => "a deletion",
            After::FailedDeletion => "a failed deletion",
            After::Beginning => "the daemon began to remember",
        })
    }
}

impl Display for Blocked {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Blocked::TooComplex { excess } => excess.fmt(f),
            Blocked::Annotation { annotation, value } => {
                write!(f, "its annotation {annotation} is {value}")
            }
            Blocked::SeveralBudgets { budgets } => write!(
                f,
                "it is in {budgets} disruption budgets, which the API server refuses to evict"
            ),
            Blocked::Budget {
                budget,
                allowed,
                left,
                unready,
            } => {
                let allowed = count(*allowed, "eviction");
                write!(
                    f,
                    "the disruption budget {budget} allows {allowed}, {left} left"
                )?;
                if *unready {
                    write!(
                        f,
                        "; the pod is not Ready, and unhealthyPodEvictionPolicy: AlwaysAllow would let it go"
                    )?;
                }
                Ok(())
            }
            Blocked::Devices => write!(
                f,
                "it uses devices by ResourceClaim; where else they are is not known"
            ),
            Blocked::NoController => write!(f, "no controller makes it anew"),
            Blocked::CustomController { kind } => {
                write!(f, "its controller is a {kind}, which may not make it anew")
            }
            Blocked::SystemPod { timeout, age } => write!(
                f,
                "a kube-system pod without disruption budget blocks until it is {timeout} old, it is {age}"
            ),
            Blocked::LocalStorage { volume } => write!(f, "its volume {volume} is on the node"),
        }
    }
}

impl Display for LeftAlone {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            LeftAlone::OtherCluster { cluster } => {
                write!(f, "its mark names the cluster {cluster}")
            }
            LeftAlone::OtherMachine { machine } => {
                write!(f, "its mark names the machine {machine}")
            }
            LeftAlone::SeveralVms => write!(
                f,
                "more than one VM carries its mark: destroy the copies, or take the line of the mark out of their descriptions (the VMs' Notes)"
            ),
            LeftAlone::DamagedMark { damage } => write!(f, "its mark is damaged: {damage}"),
            LeftAlone::UnknownVersion { version } => {
                write!(f, "its mark has the unknown version {version}")
            }
            LeftAlone::OtherMark => write!(f, "its VM carries another mark than its intent"),
            LeftAlone::MadeTemplate { vmid, host } => write!(
                f,
                "somebody made a template of its VM {vmid}, on {host}: keep it under another VMID (qm clone), and then, or where nobody wants it, \
                 qm destroy {vmid}; the machine is forgotten once it is gone"
            ),
            LeftAlone::Unreadable => write!(
                f,
                "its VM is there, and its configuration could not be read"
            ),
            LeftAlone::NoMark => write!(f, "its VM does not carry its mark"),
            LeftAlone::LostMark { vmid, host, line } => write!(
                f,
                "its mark is not in the description of its VM {vmid} on {host} any more; as the last line of that `{line}` makes it ours again, \
                 and another SMBIOS UUID makes it yours"
            ),
            LeftAlone::OutsideRange { vmid, first, last } => write!(
                f,
                "its VMID {vmid} is not in the range {first}-{last} (vmids); a range that holds it lets it go on"
            ),
            LeftAlone::Contradiction { contradiction } => {
                write!(f, "node and VM contradict each other: {contradiction}")
            }
        }
    }
}

impl Display for PoweredOff {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "its VM is off")?;
        if let Some(since) = self.since {
            write!(f, " since {since}")?;
        }
        if let Some(started) = self.started {
            write!(f, ", after it was started at {started}")?;
        } else if self.starting {
            write!(f, "; it is being started")?;
        }
        Ok(())
    }
}

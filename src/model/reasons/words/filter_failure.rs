//! Why a pod does not run on a node, in words.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use crate::cluster::ObjectKey;
use crate::reasons::{FilterFailure, NoFreeStorage, Provision, VolumeFilterFailure};
use crate::scheduling::{HOSTNAME_LABEL, HostPort, LabelSelector, NodeTerm, Operator, Requirement};
use crate::words::{amount, count};

use super::Joined;

impl Display for FilterFailure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            FilterFailure::Leaving => write!(f, "it is leaving"),
            FilterFailure::Cordoned => write!(f, "the node is cordoned"),
            FilterFailure::Taint {
                taint,
                compares_numbers,
            } => {
                write!(f, "does not tolerate the taint {}", taint.key)?;
                if !taint.value.is_empty() {
                    write!(f, "={}", taint.value)?;
                }
                write!(f, ":{:?}", taint.effect)?;
                if *compares_numbers {
                    let gate = "TaintTolerationComparisonOperators";
                    write!(
                        f,
                        "; its toleration compares numbers, which needs the feature gate {gate}"
                    )?;
                }
                Ok(())
            }
            FilterFailure::NodeSelector { key, value } => {
                write!(f, "node selector {key}={value} does not match")
            }
            FilterFailure::NodeAffinity { terms } if terms.is_empty() => {
                write!(
                    f,
                    "node affinity does not match: its nodeSelectorTerms are empty, and match no node"
                )
            }
            FilterFailure::NodeAffinity { terms } => {
                let terms = terms.iter().map(|term| {
                    let all = term.expressions.iter().chain(&term.fields);
                    let text = Joined(all, " and ").to_string();
                    if text.is_empty() {
                        return "an empty term, which matches no node".to_owned();
                    }
                    text
                });
                write!(
                    f,
                    "node affinity does not match: {}",
                    Joined(terms, ", or ")
                )
            }
            FilterFailure::Volume { volume } => volume.fmt(f),
            FilterFailure::HostPort { port, daemon_set } => of_port(port, daemon_set.as_ref(), f),
            FilterFailure::Insufficient {
                resource,
                asked,
                free,
                new_node,
            } => {
                let (asked, free) = (amount(resource, *asked), amount(resource, *free));
                if *new_node {
                    write!(
                        f,
                        "{resource}: asks {asked}, a node offers {free} after DaemonSets"
                    )
                } else {
                    write!(f, "{resource}: asks {asked}, {free} are free")
                }
            }
            others => of_other_pods(others, f),
        }
    }
}

/// What other pods forbid.
fn of_other_pods(filter_failure: &FilterFailure, f: &mut Formatter<'_>) -> fmt::Result {
    match filter_failure {
        FilterFailure::AntiAffinityOfOthers { key, domain } => write!(
            f,
            "a pod {} has anti-affinity to it over {key}",
            within(key, domain.as_ref())
        ),
        // An older record tells no more, nor does a term that chooses its namespaces by label and has no selector of pods.
        FilterFailure::AntiAffinity {
            key,
            selectors,
            namespaces,
            ..
        } if selectors.is_empty() && namespaces.is_empty() => {
            write!(f, "its pod anti-affinity over {key} is not met")
        }
        FilterFailure::AntiAffinity {
            key,
            domain,
            selectors,
            namespaces,
        } => write!(
            f,
            "its pod anti-affinity over {key}: a {} is {}",
            pod_of(selectors, namespaces),
            within(key, domain.as_ref())
        ),
        FilterFailure::AffinityLabel { .. } | FilterFailure::Affinity { .. } => {
            of_affinity(filter_failure, f)
        }
        FilterFailure::SpreadLabel { key } => {
            write!(f, "its topology spread needs a node with the label {key}")
        }
        FilterFailure::Spread { .. } => of_spread(filter_failure, f),
        FilterFailure::DaemonSetAntiAffinity { key, namespace } => write!(
            f,
            "anti-affinity over {key} keeps it from a DaemonSet's pod of the namespace {namespace} on each new node"
        ),
        _ => Ok(()),
    }
}

/// Why required pod affinity keeps a pod away.
fn of_affinity(filter_failure: &FilterFailure, f: &mut Formatter<'_>) -> fmt::Result {
    match filter_failure {
        FilterFailure::AffinityLabel { key } => {
            write!(f, "its pod affinity needs a node with the label {key}")
        }
        FilterFailure::Affinity {
            key,
            selectors,
            namespaces,
            ..
        } if selectors.is_empty() && namespaces.is_empty() => {
            write!(f, "its pod affinity over {key} is not met")
        }
        FilterFailure::Affinity { selectors, key, .. } if selectors.is_empty() => write!(
            f,
            "its pod affinity over {key}: a term without labelSelector selects no pod"
        ),
        FilterFailure::Affinity {
            key,
            selectors,
            namespaces,
            nowhere: true,
            ..
        } => write!(
            f,
            "its pod affinity over {key}: there is no {}, and one must have a place first",
            pod_of(selectors, namespaces)
        ),
        FilterFailure::Affinity {
            key,
            domain,
            selectors,
            namespaces,
            ..
        } => write!(
            f,
            "its pod affinity over {key}: no {} is {}",
            pod_of(selectors, namespaces),
            within(key, domain.as_ref())
        ),
        _ => Ok(()),
    }
}

/// Whoever has a host port, or a disk that pods of a node do not share.
fn of_port(port: &HostPort, daemon_set: Option<&ObjectKey>, f: &mut Formatter<'_>) -> fmt::Result {
    if port.port == 0 {
        match daemon_set {
            Some(set) => write!(
                f,
                "the DaemonSet {set} has {} on each new node",
                port.protocol
            ),
            None => write!(f, "another pod of the node has {}", port.protocol),
        }
    } else {
        write!(f, "host port {}/{} is taken", port.port, port.protocol)?;
        match daemon_set {
            Some(set) => write!(f, " by the DaemonSet {set} on each new node"),
            None => Ok(()),
        }
    }
}

/// Why topology spread keeps a pod away from a domain.
fn of_spread(filter_failure: &FilterFailure, f: &mut Formatter<'_>) -> fmt::Result {
    let FilterFailure::Spread {
        key,
        domain,
        pods,
        least,
        least_domain,
        least_is_new,
        max_skew,
        domains,
        min_domains,
    } = filter_failure
    else {
        return Ok(());
    };
    let there = named(key, domain.as_ref());
    let pods = count(*pods, "matching pod");
    write!(f, "topology spread over {key}: {there} would have {pods}, ")?;
    match (domains, min_domains, least_domain) {
        (Some(domains), Some(wanted), _) => {
            let has = if *domains == 1 { "has" } else { "have" };
            let domains = count(*domains, "domain");
            write!(
                f,
                "the least counts as 0 since {domains} {has} nodes that count and minDomains is {wanted}"
            )?;
        }
        (_, _, Some(name)) if *least_is_new => {
            write!(
                f,
                "{}, where no node is yet, has {least}",
                named(key, Some(name))
            )?;
        }
        (_, _, Some(name)) => write!(f, "{} has {least}", named(key, Some(name)))?,
        (_, _, None) => write!(f, "the least has {least}")?,
    }
    write!(f, ", maxSkew is {max_skew}")?;
    match min_domains {
        Some(_) if &**key == HOSTNAME_LABEL => {
            write!(f, "; one more node would help, or a smaller minDomains")
        }
        Some(_) => {
            let short = key.rsplit('/').next().unwrap_or(key);
            write!(
                f,
                "; a node in one more {short} would help, or a smaller minDomains"
            )
        }
        None => Ok(()),
    }
}

/// A domain of a topology key by name, such as `zone z1`, and of single nodes the node; one that comes with the node has no name yet.
fn named(key: &str, domain: Option<&Arc<str>>) -> String {
    let short = key.rsplit('/').next().unwrap_or(key);
    match domain {
        Some(domain) if key == HOSTNAME_LABEL => domain.to_string(),
        Some(domain) => format!("{short} {domain}"),
        None if key == HOSTNAME_LABEL => "a new node".to_owned(),
        None => format!("the {short} of a new node"),
    }
}

/// Where a pod is that is in a domain: `in zone z1`, `on a new node`.
fn within(key: &str, domain: Option<&Arc<str>>) -> String {
    let preposition = if key == HOSTNAME_LABEL { "on" } else { "in" };
    format!("{preposition} {}", named(key, domain))
}

/// A pod of these namespaces that all of these selectors take in: `pod of the namespace shop with app=web`.
fn pod_of(selectors: &[LabelSelector], namespaces: &[Arc<str>]) -> String {
    let namespaces = match namespaces {
        [] => String::new(),
        [one] => format!(" of the namespace {one}"),
        more => format!(" of the namespaces {}", Joined(more.iter(), ", ")),
    };
    let limited = selectors.iter();
    let limited = limited.filter(|selector| **selector != LabelSelector::default());
    let wanted: Vec<String> = limited.map(ToString::to_string).collect();
    match &wanted[..] {
        [] => format!("pod{namespaces}"),
        [one] => format!("pod{namespaces} with {one}"),
        more => format!(
            "pod{namespaces} that all terms select ({})",
            more.join("; ")
        ),
    }
}

impl Display for VolumeFilterFailure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            VolumeFilterFailure::ClaimInUse { claim, user } => {
                write!(
                    f,
                    "the claim {claim} is for one pod alone, and {user} uses it"
                )
            }
            VolumeFilterFailure::ClaimReserved { claim, user } => write!(
                f,
                "the claim {claim} is for one pod alone, and {user} gets it: this one waits"
            ),
            VolumeFilterFailure::NoClaim { claim } => write!(f, "the claim {claim} does not exist"),
            VolumeFilterFailure::ClaimNotOfPod { claim } => write!(
                f,
                "its ephemeral volume wants a claim {claim} of its own, and one of that name that was not made for the pod is there: \
                 delete that claim, or rename the volume"
            ),
            VolumeFilterFailure::ClaimDeleted { claim } => {
                write!(f, "the claim {claim} is being deleted")
            }
            VolumeFilterFailure::ClaimLost { claim } => {
                write!(f, "the claim {claim} has lost its volume")
            }
            VolumeFilterFailure::NoVolume { claim, volume } => {
                write!(f, "the volume {volume} of the claim {claim} does not exist")
            }
            VolumeFilterFailure::NotBound { claim, volume } => {
                write!(
                    f,
                    "the claim {claim} is not yet bound to its volume {volume}"
                )
            }
            VolumeFilterFailure::NoStorageClass { claim, class } => write!(
                f,
                "the storage class {class} of the claim {claim} does not exist"
            ),
            VolumeFilterFailure::UnboundWithoutClass { claim } => {
                write!(f, "the claim {claim} has no storage class and is not bound")
            }
            VolumeFilterFailure::UnboundImmediate { claim, class } => write!(
                f,
                "the claim {claim} is not bound and its class {class} binds immediately"
            ),
            VolumeFilterFailure::NoneFree {
                claim,
                class,
                storage,
            } => {
                write!(f, "claim {claim}: no existing volume of class {class}")?;
                if let Some(storage) = storage {
                    write!(f, " with {}", amount("storage", *storage))?;
                }
                write!(f, " is free; nothing can provision one")
            }
            others => of_a_node(others, f),
        }
    }
}

/// What is wrong with a volume on this node and not on others.
fn of_a_node(filter_failure: &VolumeFilterFailure, f: &mut Formatter<'_>) -> fmt::Result {
    match filter_failure {
        VolumeFilterFailure::Local { volume } => write!(
            f,
            "pinned by local volume {volume}: it lives on the node it was made on"
        ),
        VolumeFilterFailure::BeingDeleted { volume } => write!(
            f,
            "its volume {volume} is being deleted: no node is made for it"
        ),
        VolumeFilterFailure::Zone { zone } => {
            let values = zone.values.join(" or ");
            write!(f, "its volume is of {}={values}", zone.key)
        }
        VolumeFilterFailure::MadeElsewhere { node } => {
            write!(f, "its volume is being made for the node {node}")
        }
        VolumeFilterFailure::Unreachable { terms } => {
            write!(f, "its volume can be reached only where {}", any_of(terms))
        }
        VolumeFilterFailure::NoFreeStorage { storage } => storage.fmt(f),
        VolumeFilterFailure::Unserved {
            claim,
            class,
            storage,
            node,
            taken,
            provision,
        } => {
            match claim {
                Some(name) => write!(f, "claim {name}")?,
                None => write!(f, "its claim")?,
            }
            let storage = amount("storage", *storage);
            write!(
                f,
                ": no existing volume of class {class} with {storage} that "
            )?;
            match node {
                Some(name) => write!(f, "node {name}")?,
                None => write!(f, "a new node")?,
            }
            let left = if *taken { " is left" } else { "" };
            write!(f, " can reach{left}; {provision}")
        }
        VolumeFilterFailure::AttachLimit {
            driver,
            more,
            limit,
            used,
        } => write!(
            f,
            "it needs {} of {driver}, the node attaches {limit} and has {used}",
            count(*more, "more volume")
        ),
        _ => Ok(()),
    }
}

impl Display for Provision {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Provision::Nobody => write!(f, "nothing can provision one"),
            Provision::Elsewhere { terms } => {
                write!(f, "one is provisioned only where {}", any_of(terms))
            }
            Provision::NoFreeStorage { storage } => storage.fmt(f),
        }
    }
}

impl Display for NoFreeStorage {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            NoFreeStorage::Unpublished { class, asked } => write!(
                f,
                "no CSIStorageCapacity says that class {class} has free storage for a volume of {}",
                amount("storage", *asked)
            ),
            NoFreeStorage::TooSmall { class, asked, most } => write!(
                f,
                "class {class} has no free storage for a volume of {}: {} at most, wherever it is",
                amount("storage", *asked),
                amount("storage", *most)
            ),
            NoFreeStorage::Elsewhere {
                class,
                asked,
                places,
            } => write!(
                f,
                "class {class} has free storage for a volume of {} only where {}",
                amount("storage", *asked),
                Joined(places.iter(), " or ")
            ),
        }
    }
}

/// The requirements of some terms, each by itself, behind *only where*.
fn any_of(terms: &[NodeTerm]) -> String {
    let all = terms
        .iter()
        .flat_map(|term| term.expressions.iter().chain(&term.fields));
    let all = Joined(all, " or ").to_string();
    if all.is_empty() {
        return "one of its terms matches, and there is none that could".to_owned();
    }
    all
}

/// A requirement: `zone In [z1 z2]`.
impl Display for Requirement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let operator = match self.operator {
            Operator::In => "In",
            Operator::NotIn => "NotIn",
            Operator::Exists => "Exists",
            Operator::DoesNotExist => "DoesNotExist",
            Operator::Gt => "Gt",
            Operator::Lt => "Lt",
        };
        write!(f, "{} {operator}", self.key)?;
        if self.values.is_empty() {
            return Ok(());
        }
        write!(f, " [{}]", Joined(self.values.iter(), " "))?;
        let compares = matches!(self.operator, Operator::Gt | Operator::Lt);
        if compares
            && self
                .values
                .iter()
                .any(|value| value.parse::<i64>().is_err())
        {
            return write!(f, " (not a whole number: it matches no node)");
        }
        Ok(())
    }
}

/// A label selector, of nodes where it is empty: `zone=z1 and disk In [ssd nvme]`.
impl Display for LabelSelector {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.labels.is_empty() && self.expressions.is_empty() {
            return write!(f, "any node is");
        }
        let labels = self.labels.iter();
        let labels = labels.map(|(key, value)| format!("{key}={value}"));
        let all = labels.chain(self.expressions.iter().map(ToString::to_string));
        Joined(all, " and ").fmt(f)
    }
}

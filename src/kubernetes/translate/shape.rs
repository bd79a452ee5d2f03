//! From a pod's specification to the [`PodShape`] that equal pods share.

use std::sync::Arc;

use super::{ObjectReader, nonempty, pod_annotation};
use crate::kubernetes::wire::{self, Container, Meta, PodSpec, PodStatus};
use crate::model::scheduling::{
    Effect, HostPort, Owner, PodShape, PodTerm, PodTraits, SpreadConstraint, Toleration, Volume,
};

/// `spec.terminationGracePeriodSeconds` when it is absent.
const DEFAULT_GRACE: i64 = 30;

impl ObjectReader<'_> {
    pub(super) fn shape(&mut self, meta: &Meta, spec: &PodSpec, status: &PodStatus) -> PodShape {
        let affinity = spec.affinity.clone().unwrap_or_default();
        let nodes = affinity.node_affinity.unwrap_or_default();
        let together = affinity.pod_affinity.unwrap_or_default();
        let apart = affinity.pod_anti_affinity.unwrap_or_default();
        let owner = self.owner(meta);
        let forever = matches!(spec.restart_policy.as_deref(), None | Some("Always" | ""));
        let run_once = owner.is_none() && !forever;
        let traits = PodTraits {
            requests: self.pod_requests(spec, status),
            annotations: self.labels_if(meta.annotations.as_ref(), pod_annotation),
            node_selector: self.labels(spec.node_selector.as_ref()),
            node_affinity: nodes.required.as_ref().map(|terms| self.node_terms(terms)),
            preferred_nodes: nodes
                .preferred
                .iter()
                .flatten()
                .map(|p| (p.weight.unwrap_or(0), self.node_term(&p.preference)))
                .collect(),
            tolerations: self.tolerations(spec.tolerations.as_deref()),
            compared_taints: self.compared_taints(spec.tolerations.as_deref()),
            pod_affinity: self.pod_terms(together.required.as_deref()),
            pod_anti_affinity: self.pod_terms(apart.required.as_deref()),
            preferred_pods: self.preferred(together.preferred.as_deref()),
            preferred_anti_pods: self.preferred(apart.preferred.as_deref()),
            spread: spec
                .topology_spread_constraints
                .iter()
                .flatten()
                .map(|constraint| self.spread(constraint))
                .collect(),
            host_ports: self.host_ports(meta, spec),
            volumes: spec
                .volumes
                .iter()
                .flatten()
                .filter_map(|volume| self.volume(volume))
                .collect(),
            priority: spec.priority.unwrap_or(0),
            never_preempts: spec.preemption_policy.as_deref() == Some("Never"),
            devices: spec
                .resource_claims
                .as_ref()
                .is_some_and(|claims| !claims.is_empty()),
            run_once,
            left_out: None,
            scheduler: self.text(
                spec.scheduler_name
                    .as_deref()
                    .filter(|name| *name != "default-scheduler"),
            ),
            grace_seconds: spec
                .termination_grace_period_seconds
                .unwrap_or(DEFAULT_GRACE),
        };
        PodShape {
            labels: self.label_list(meta.labels.as_ref()),
            owner,
            traits: Arc::new(traits),
        }
    }

    pub(super) fn owner(&mut self, meta: &Meta) -> Option<Arc<Owner>> {
        let owner = meta
            .owner_references
            .iter()
            .flatten()
            .find(|owner| owner.controller == Some(true))?;
        Some(Arc::new(Owner {
            kind: self.text(owner.kind.as_deref()),
            name: self.text(owner.name.as_deref()),
            uid: self.text(owner.uid.as_deref()),
        }))
    }

    pub(super) fn tolerations(&mut self, all: Option<&[wire::WireToleration]>) -> Vec<Toleration> {
        all.unwrap_or_default()
            .iter()
            .filter_map(|toleration| self.toleration(toleration))
            .collect()
    }

    fn compared_taints(&mut self, all: Option<&[wire::WireToleration]>) -> Vec<Arc<str>> {
        all.unwrap_or_default()
            .iter()
            .filter(|toleration| matches!(toleration.operator.as_deref(), Some("Gt" | "Lt")))
            .map(|toleration| self.text(toleration.key.as_deref()))
            .collect()
    }

    /// `None` when it is of a kind we do not know: it then tolerates nothing.
    fn toleration(&mut self, toleration: &wire::WireToleration) -> Option<Toleration> {
        let exists = match toleration.operator.as_deref() {
            None | Some("" | "Equal") => false,
            Some("Exists") => true,
            // See `compared_taints`.
            Some("Gt" | "Lt") => return None,
            Some(other) => {
                self.problems.push(format!(
                    "toleration operator {other:?} is unknown and tolerates nothing"
                ));
                return None;
            }
        };
        let effect = match nonempty(toleration.effect.as_deref()) {
            None => None,
            Some(text) => Some(self.effect(text)?),
        };
        Some(Toleration {
            key: nonempty(toleration.key.as_deref()).map(|key| self.interner.text(key)),
            exists,
            value: self.text(toleration.value.as_deref()),
            effect,
        })
    }

    pub(super) fn effect(&mut self, text: &str) -> Option<Effect> {
        match text {
            "NoSchedule" => Some(Effect::NoSchedule),
            "PreferNoSchedule" => Some(Effect::PreferNoSchedule),
            "NoExecute" => Some(Effect::NoExecute),
            other => {
                self.problems
                    .push(format!("taint effect {other:?} is unknown"));
                None
            }
        }
    }

    fn pod_terms(&mut self, terms: Option<&[wire::WirePodTerm]>) -> Vec<PodTerm> {
        terms
            .unwrap_or_default()
            .iter()
            .map(|term| self.pod_term(term))
            .collect()
    }

    fn preferred(&mut self, terms: Option<&[wire::PreferredPod]>) -> Vec<(i32, PodTerm)> {
        terms
            .unwrap_or_default()
            .iter()
            .map(|term| {
                (
                    term.weight.unwrap_or(0),
                    self.pod_term(&term.pod_affinity_term),
                )
            })
            .collect()
    }

    fn pod_term(&mut self, term: &wire::WirePodTerm) -> PodTerm {
        PodTerm {
            selector: term.label_selector.as_ref().map(|s| self.selector(s)),
            topology_key: self.text(term.topology_key.as_deref()),
            namespaces: self.texts(term.namespaces.as_deref()),
            namespace_selector: term.namespace_selector.as_ref().map(|s| self.selector(s)),
        }
    }

    fn spread(&mut self, constraint: &wire::Spread) -> SpreadConstraint {
        SpreadConstraint {
            max_skew: constraint.max_skew.unwrap_or(1),
            topology_key: self.text(constraint.topology_key.as_deref()),
            hard: constraint.when_unsatisfiable.as_deref() != Some("ScheduleAnyway"),
            selector: constraint.label_selector.as_ref().map(|s| self.selector(s)),
            min_domains: constraint.min_domains,
            match_label_keys: self.texts(constraint.match_label_keys.as_deref()),
            honor_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
            honor_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
        }
    }

    /// Ports of containers and sidecars, as kube-scheduler's `NodePorts` reads them, and disks.
    fn host_ports(&mut self, meta: &Meta, spec: &PodSpec) -> Vec<HostPort> {
        let sidecar = |c: &&Container| c.restart_policy.as_deref() == Some("Always");
        let containers = spec
            .containers
            .iter()
            .flatten()
            .chain(spec.init_containers.iter().flatten().filter(sidecar));
        let mut ports = self.disks(meta, spec);
        for port in containers.flat_map(|container| container.ports.iter().flatten()) {
            // On the host's network the API server gives pods, though not templates, this default.
            let default = port
                .container_port
                .filter(|_| spec.host_network == Some(true));
            let Some(number) = port.host_port.filter(|port| *port > 0).or(default) else {
                continue;
            };
            ports.push(HostPort {
                protocol: self
                    .interner
                    .text(nonempty(port.protocol.as_deref()).unwrap_or("TCP")),
                ip: self.text(port.host_ip.as_deref().filter(|ip| *ip != "0.0.0.0")),
                port: number,
            });
        }
        ports.sort();
        ports.dedup();
        ports
    }

    fn volume(&mut self, volume: &wire::WireVolume) -> Option<Volume> {
        let name = volume.name.as_deref();
        if let Some(claim) = &volume.persistent_volume_claim {
            return Some(Volume::Claim(self.text(claim.claim_name.as_deref())));
        }
        if let Some(ephemeral) = &volume.ephemeral {
            let template = ephemeral.volume_claim_template.as_ref();
            let class = template.and_then(|template| template.spec.storage_class_name.as_deref());
            return Some(Volume::Ephemeral {
                name: self.text(name),
                class: class.map(|class| self.interner.text(class)),
            });
        }
        if let Some(empty) = &volume.empty_dir {
            // In memory it is lost with the pod anyway and holds nothing on the node's disk.
            let on_disk = empty.medium.as_deref() != Some("Memory");
            return on_disk.then(|| Volume::EmptyDir(self.text(name)));
        }
        volume
            .host_path
            .is_some()
            .then(|| Volume::HostPath(self.text(name)))
    }
}

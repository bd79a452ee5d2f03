//! A pod's effective request and a node's amounts.
//!
//! Source: `component-helpers/resource/helpers.go` `PodRequests` (KEP-753 sidecars, KEP-2837
//! pod-level resources, KEP-1287 in-place resize with status resources, as kube-scheduler calls it).

use super::ObjectReader;
use crate::kubernetes::wire::{Container, ContainerStatus, PodSpec, PodStatus, WireResourceList};
use crate::model::quantity::Quantity;
use crate::model::resources::{Resources, is_huge_pages};

impl ObjectReader<'_> {
    /// What the scheduler counts for the pod, with `pods` = 1.
    pub(super) fn pod_requests(&mut self, spec: &PodSpec, status: &PodStatus) -> Resources {
        let mut total = Resources::default();
        let infeasible = infeasible(status);
        for container in spec.containers.iter().flatten() {
            let status = held(container, status.container_statuses.as_deref());
            let asked = self.container(container, status, infeasible);
            total.add(&asked);
        }
        // Init containers run one after the other, beside the sidecars that were started before.
        let mut sidecars = Resources::default();
        let mut init_peak = Resources::default();
        for container in spec.init_containers.iter().flatten() {
            let sidecar = container.restart_policy.as_deref() == Some("Always");
            let status = held(container, status.init_container_statuses.as_deref());
            let mut asked = self.container(container, status.filter(|_| sidecar), infeasible);
            if sidecar {
                total.add(&asked);
                sidecars.add(&asked);
                asked.clone_from(&sidecars);
            } else {
                asked.add(&sidecars);
            }
            init_peak.raise_to(&asked);
        }
        total.raise_to(&init_peak);
        if let Some(resources) = &spec.resources {
            let mut own = resources.requests.clone().unwrap_or_default();
            for (name, limit) in resources.limits.iter().flatten() {
                // A limit stands in only where neither the pod nor a container asks.
                if !own.contains_key(name) && total.get(name) == 0 {
                    own.insert(name.clone(), limit.clone());
                }
            }
            self.replace(&mut total, &own, status, infeasible);
        }
        if let Some(overhead) = &spec.overhead {
            let overhead = self.asked("overhead", overhead);
            total.add(&overhead);
        }
        total.pods = 1;
        total
    }

    /// What one container counts for; `status` is what it holds, if it may be resized.
    fn container(
        &mut self,
        container: &Container,
        status: Option<&ContainerStatus>,
        infeasible: bool,
    ) -> Resources {
        let resources = container.resources.as_ref();
        let own = with_limits(
            resources.and_then(|r| r.requests.as_ref()),
            resources.and_then(|r| r.limits.as_ref()),
        );
        let name = container.name.as_deref().unwrap_or_default();
        let asked = self.asked(name, &own);
        let Some(in_force) = status.and_then(|status| status.resources.as_ref()) else {
            return asked;
        };
        let allocated = status.and_then(|status| status.allocated_resources.as_ref());
        let running = [in_force.requests.as_ref(), allocated];
        self.resized(name, asked, running, infeasible)
    }

    /// While a resize is under way the larger of old and new is held; once the node has refused it
    /// for good, the old alone.
    fn resized(
        &mut self,
        whose: &str,
        asked: Resources,
        held: [Option<&WireResourceList>; 2],
        infeasible: bool,
    ) -> Resources {
        let mut all = if infeasible {
            Resources::default()
        } else {
            asked
        };
        for amounts in held.into_iter().flatten() {
            all.raise_to(&self.asked(whose, amounts));
        }
        all
    }

    /// Pod-level requests take the place of the containers' sum, resource by resource.
    fn replace(
        &mut self,
        total: &mut Resources,
        own: &WireResourceList,
        status: &PodStatus,
        infeasible: bool,
    ) {
        let mut amounts = self.asked("the pod", own);
        if let Some(resources) = &status.resources {
            let held = [
                resources.requests.as_ref(),
                status.allocated_resources.as_ref(),
            ];
            amounts = self.resized("the pod", amounts, held, infeasible);
        }
        for name in own.keys() {
            match name.as_str() {
                "cpu" => total.cpu_milli = amounts.cpu_milli,
                "memory" => total.memory = amounts.memory,
                name if is_huge_pages(name) => {
                    let name = self.interner.text(name);
                    let amount = amounts.get(&name);
                    total.extended.insert(name, amount);
                }
                // No other resource can be asked for at pod level.
                _ => {}
            }
        }
    }

    /// Amounts that are asked for: what cannot be read is more than any node has.
    pub(super) fn asked(&mut self, whose: &str, amounts: &WireResourceList) -> Resources {
        self.amounts(amounts, i64::MAX, |name, error| {
            format!("request {name} of {whose:?}: {error}; it is taken to fit nowhere")
        })
    }

    /// Amounts that a node offers: what cannot be read is nothing.
    pub(super) fn offered(&mut self, field: &str, amounts: Option<&WireResourceList>) -> Resources {
        let Some(amounts) = amounts else {
            return Resources::default();
        };
        self.amounts(amounts, 0, |name, error| {
            format!("{field}.{name}: {error}; it is taken for nothing")
        })
    }

    fn amounts(
        &mut self,
        amounts: &WireResourceList,
        unreadable: i64,
        problem: impl Fn(&str, String) -> String,
    ) -> Resources {
        let mut resources = Resources::default();
        for (name, amount) in amounts {
            let parsed = amount.to_string().parse::<Quantity>();
            if let Err(error) = &parsed {
                self.problems.push(problem(name, error.to_string()));
            }
            let units = parsed
                .as_ref()
                .map_or(unreadable, |quantity| quantity.units());
            match name.as_str() {
                "cpu" => {
                    resources.cpu_milli = parsed.map_or(unreadable, Quantity::milli);
                }
                "memory" => resources.memory = units,
                "ephemeral-storage" => resources.ephemeral = units,
                "pods" => resources.pods = units,
                _ if units == 0 => {}
                other => {
                    let extended = self.interner.text(other);
                    resources.extended.insert(extended, units);
                }
            }
        }
        resources
    }
}

/// What a container holds now, as far as is known.
fn held<'s>(
    container: &Container,
    statuses: Option<&'s [ContainerStatus]>,
) -> Option<&'s ContainerStatus> {
    let mut statuses = statuses.unwrap_or_default().iter();
    statuses.find(|status| status.name == container.name)
}

/// Whether the node can never grant the resize that is asked for (`IsPodResizeInfeasible`).
fn infeasible(status: &PodStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    let pending =
        conditions.find(|condition| condition.kind.as_deref() == Some("PodResizePending"));
    pending.is_some_and(|condition| condition.reason.as_deref() == Some("Infeasible"))
}

/// Requests, filled up from the limits: the API server does this for pods, but not for templates.
fn with_limits(
    requests: Option<&WireResourceList>,
    limits: Option<&WireResourceList>,
) -> WireResourceList {
    let mut all = limits.cloned().unwrap_or_default();
    all.extend(
        requests
            .into_iter()
            .flatten()
            .map(|(name, amount)| (name.clone(), amount.clone())),
    );
    all
}

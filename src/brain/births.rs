//! The machines that a decision makes: names, VMIDs, marks, and the pods they are for.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::model::action::{Birth, Kind, Precondition, Reason, Target};
use crate::model::cluster::PodKey;
use crate::model::mark::Mark;

use super::names;
use super::offer::{Choice, HOSTNAME_LABEL, Offer};
use super::pack::Lane;
use super::turn::Turn;
use super::world::{Bin, Site, World};

/// Why a machine is made.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cause {
    /// For pods.
    Pods,
    /// For the pool's `min`.
    Min {
        /// Nodes it has.
        have: u32,
        /// Nodes it shall have.
        min: u32,
    },
}

#[derive(Debug)]
struct Newborn {
    target: Target,
    birth: Birth,
    cause: Cause,
    pods: Vec<PodKey>,
}

/// The machines planned so far.
#[derive(Debug)]
pub(super) struct Births {
    taken: BTreeSet<Arc<str>>,
    born: Vec<Newborn>,
    /// The place of each in the world.
    pub(super) lane: Lane,
}

impl Births {
    /// None yet.
    pub(super) fn begin(turn: &Turn<'_>) -> Births {
        Births {
            taken: names::taken(turn),
            born: Vec::new(),
            lane: Lane::default(),
        }
    }

    /// Plans one machine.
    pub(super) fn add(
        &mut self,
        turn: &mut Turn<'_>,
        choice: &Choice<'_>,
        offer: &Offer<'_>,
        vmid: u32,
        cause: Cause,
    ) -> Option<usize> {
        let copy = *offer.copy.as_ref().ok()?;
        let cluster = turn.view.snapshot.cluster_id.as_ref()?.to_string();
        let (machine, token) = names::fresh(turn, choice.pool, &mut self.taken)?;
        let mark = Mark {
            cluster,
            machine: machine.to_string(),
            vmid,
            pool: choice.pool.to_string(),
            instance_type: choice.type_name.to_string(),
            template: choice.policy.template.to_string(),
            token,
            created: turn.now(),
        };
        self.born.push(Newborn {
            target: Target {
                region: choice.policy.region.clone(),
                host: offer.host.clone(),
                vmid,
                machine,
                node: None,
            },
            birth: Birth {
                mark,
                template_vmid: copy.vmid,
                template_host: copy.host.clone(),
            },
            cause,
            pods: Vec::new(),
        });
        Some(self.born.len() - 1)
    }

    /// Puts a planned machine into the world, with its DaemonSets.
    pub(super) fn place<'a>(
        &mut self,
        world: &mut World<'a>,
        choice: &Choice<'a>,
        offer: &Offer<'a>,
        birth: usize,
    ) -> usize {
        let name = self.born[birth].target.machine.clone();
        let mut labels = offer.labels.clone();
        labels.insert(HOSTNAME_LABEL.into(), name.clone());
        let bin = world.add(Bin {
            name,
            site: Site::Planned(birth),
            labels,
            taints: choice.policy.taints.clone(),
            unschedulable: false,
            class: 0,
            ready: false,
            closed: false,
            free: offer.allocatable.clone(),
            ports: Vec::new(),
            residents: Vec::new(),
            guests: Vec::new(),
            receives: false,
        });
        for (namespace, shape) in &offer.residents {
            let id = world.intern(namespace, shape);
            world.put(bin, id, 1, false);
        }
        self.lane.push(bin, world);
        bin
    }

    /// These pods are what the machine at this site is for.
    pub(super) fn carry(&mut self, site: &Site, pods: impl Iterator<Item = PodKey>) {
        if let Site::Planned(birth) = site {
            self.born[*birth].pods.extend(pods);
        }
    }

    /// Writes the plan.
    pub(super) fn finish(self, turn: &mut Turn<'_>) {
        if !self.born.is_empty() {
            turn.memory.last_scale_up = Some(turn.now());
        }
        let max_view_age = turn.view.policy.scale_up.max_view_age;
        for newborn in self.born {
            let reason = match newborn.cause {
                Cause::Min { have, min } => Reason::BelowMin { have, min },
                Cause::Pods => Reason::PendingPods {
                    pods: sorted(newborn.pods),
                },
            };
            let precondition = Precondition {
                max_view_age,
                ..Precondition::default()
            };
            turn.act(
                Kind::Create(newborn.birth),
                newborn.target,
                precondition,
                reason,
            );
        }
    }
}

fn sorted(mut pods: Vec<PodKey>) -> Vec<PodKey> {
    pods.sort();
    pods
}

//! The machines that a decision makes: names, VMIDs, marks, and the pods they are for.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::model::action::{Birth, Kind, Precondition, Reason, Target};
use crate::model::cluster::PodKey;
use crate::model::mark::Mark;

use super::names;
use super::offer::{self, Choice, Offer};
use super::pack::Lane;
use super::turn::Turn;
use super::world::{Site, World};

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

/// A machine to be made.
#[derive(Debug)]
pub(super) struct Newborn {
    /// Its choice, as an index.
    pub(super) choice: usize,
    /// Its offer within the choice.
    pub(super) offer: usize,
    /// Its place in the world.
    pub(super) bin: usize,
    pub(super) cause: Cause,
    /// Groups with pods on it, without repetition.
    pub(super) groups: Vec<usize>,
    vmid: u32,
    name: Arc<str>,
    token: String,
    pods: Vec<PodKey>,
}

/// The machines planned so far.
#[derive(Debug)]
pub(super) struct Births {
    names: BTreeSet<Arc<str>>,
    tokens: BTreeSet<String>,
    pub(super) born: Vec<Newborn>,
    /// Their places, in the order they were opened.
    pub(super) lane: Lane,
}

impl Births {
    /// None yet.
    pub(super) fn begin(turn: &Turn<'_>) -> Births {
        Births {
            names: names::taken(turn),
            tokens: names::tokens(turn),
            born: Vec::new(),
            lane: Lane::default(),
        }
    }

    /// Plans one machine of an offer (by its indices) and puts it into the world, with its DaemonSets;
    /// says its place there, or `None` when no unused name was found.
    pub(super) fn add<'a>(
        &mut self,
        turn: &mut Turn<'a>,
        world: &mut World<'a>,
        choices: &[Choice<'a>],
        at: (usize, usize),
        vmid: u32,
        cause: Cause,
    ) -> Option<usize> {
        let (choice, offer) = (&choices[at.0], &choices[at.0].offers[at.1]);
        turn.view.snapshot.cluster_id.as_ref()?;
        let (name, token) = names::fresh(turn, choice.pool, &mut self.names, &mut self.tokens)?;
        let site = Site::Planned(self.born.len());
        let bin = offer::place(world, choice, offer, name.clone(), site);
        self.lane.push(bin, world);
        self.born.push(Newborn {
            choice: at.0,
            offer: at.1,
            bin,
            cause,
            groups: Vec::new(),
            vmid,
            name,
            token,
            pods: Vec::new(),
        });
        Some(bin)
    }

    /// These pods of a group are what the machine at this site is for.
    pub(super) fn carry(&mut self, site: &Site, group: usize, pods: impl Iterator<Item = PodKey>) {
        if let Site::Planned(birth) = site {
            let newborn = &mut self.born[*birth];
            newborn.pods.extend(pods);
            if newborn.groups.last() != Some(&group) && !newborn.groups.contains(&group) {
                newborn.groups.push(group);
            }
        }
    }

    /// Writes the plan.
    pub(super) fn finish(self, turn: &mut Turn<'_>, choices: &[Choice<'_>]) {
        if !self.born.is_empty() {
            turn.memory.last_scale_up = Some(turn.now());
        }
        let max_view_age = turn.view.policy.scale_up.max_view_age;
        for newborn in self.born {
            let choice = &choices[newborn.choice];
            let offer = &choice.offers[newborn.offer];
            let Some(birth) = birth(turn, &newborn, choice, offer) else {
                continue;
            };
            let target = Target {
                region: choice.policy.region.clone(),
                host: offer.host.clone(),
                vmid: newborn.vmid,
                machine: newborn.name,
                node: None,
            };
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
            turn.act(Kind::Create(birth), target, precondition, reason);
        }
    }
}

fn birth(
    turn: &Turn<'_>,
    newborn: &Newborn,
    choice: &Choice<'_>,
    offer: &Offer<'_>,
) -> Option<Birth> {
    let copy = *offer.copy.as_ref().ok()?;
    Some(Birth {
        mark: Mark {
            cluster: turn.view.snapshot.cluster_id.as_ref()?.to_string(),
            machine: newborn.name.to_string(),
            vmid: newborn.vmid,
            pool: choice.pool.to_string(),
            instance_type: choice.type_name.to_string(),
            template: choice.policy.template.to_string(),
            token: newborn.token.clone(),
            created: turn.now(),
        },
        template_vmid: copy.vmid,
        template_host: copy.host.clone(),
    })
}

fn sorted(mut pods: Vec<PodKey>) -> Vec<PodKey> {
    pods.sort();
    pods
}

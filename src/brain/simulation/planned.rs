//! The machines that a decision makes: names, VMIDs, marks, and the pods they are for.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use model::action::{CreateSpec, Kind, Precondition, Reason, Target};
use model::chosen_storages::ChosenStorages;
use model::cluster::ObjectKey;
use model::cpus::CpuSet;
use model::mark::Mark;
use model::network::NicAddresses;
use model::policy::Terms;
use model::reasons::{GivenUp, HostRefused, Refused};
use model::report::PodVerdict;
use model::tolerant::UnknownFields;

use crate::decision::addresses::AddressBook;
use crate::decision::cpu_book::CpuBook;
use crate::decision::names::Taken;
use crate::decision::pod_to_place::PodToPlace;
use crate::decision::turn::DecisionBuilder;
use crate::index::{
    ChoiceIndex, FitPlaceIndex, GroupIndex, IndexVec, NodeIndex, OfferIndex, PlannedIndex,
};
use crate::simulation::bookings;
use crate::simulation::disks::Layouts;
use crate::simulation::offer::{self, Choice, ChoiceList, Offer};
use crate::simulation::pack::FitIndex;
use crate::simulation::world::{NodeOrigin, SimCluster};

/// Why a machine is made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CreateReason {
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
pub(crate) struct PlannedMachine {
    /// The pool and type that it is made of: an index into the decision's choices.
    pub(crate) choice: ChoiceIndex,
    /// The host that it is made on: an index into the offers of that choice.
    pub(crate) offer: OfferIndex,
    /// The simulated node that stands for it: an index into `SimCluster::nodes`.
    pub(crate) node: NodeIndex,
    pub(crate) reason: CreateReason,
    /// The pods it is for.
    pub(crate) assigned: Vec<AssignedPods>,
    pub(crate) vmid: u32,
    name: Arc<str>,
    token: String,
}

/// Pods of one group on a machine that is to be made.
#[derive(Clone, Debug)]
pub(crate) struct AssignedPods {
    pub(crate) group: GroupIndex,
    /// Which pods of the group, in its order.
    pub(crate) pods: Range<usize>,
}

/// The machines planned so far.
#[derive(Debug)]
pub(crate) struct PlannedMachines {
    /// What names and tokens are taken, read from all there is when the first machine is planned.
    taken: Option<Taken>,
    pub(crate) machines: IndexVec<PlannedIndex, PlannedMachine>,
    /// The machines' places, in the order in which they were opened.
    pub(crate) fit_index: FitIndex,
}

impl PlannedMachine {
    /// Whether it is made for its pool's `min`, whatever pods come to it.
    pub(crate) fn is_for_min(&self) -> bool {
        matches!(self.reason, CreateReason::Min { .. })
    }

    /// The groups of its pods; one may come several times.
    pub(crate) fn groups(&self) -> impl Iterator<Item = GroupIndex> + '_ {
        self.assigned.iter().map(|assigned| assigned.group)
    }

    /// Whether pods of a group are on it.
    pub(crate) fn has(&self, group: GroupIndex) -> bool {
        self.groups().any(|of| of == group)
    }

    /// How many pods it is for.
    pub(crate) fn count(&self) -> usize {
        self.assigned
            .iter()
            .map(|assigned| assigned.pods.len())
            .sum()
    }
}

impl PlannedMachines {
    /// None yet.
    pub(crate) fn begin() -> PlannedMachines {
        PlannedMachines {
            taken: None,
            machines: IndexVec::default(),
            fit_index: FitIndex::default(),
        }
    }

    /// A machine's place has more free than before.
    pub(crate) fn raise(&mut self, machine: PlannedIndex, world: &SimCluster<'_>) {
        self.fit_index.raise(FitPlaceIndex(machine.0), world);
    }

    /// Plans one machine of an offer (by its indices) and puts it into the world, with its DaemonSets;
    /// says its place there, or `None` when no unused name was found.
    pub(crate) fn add<'a>(
        &mut self,
        turn: &mut DecisionBuilder<'a>,
        world: &mut SimCluster<'a>,
        choices: &ChoiceList<'a>,
        at: (ChoiceIndex, OfferIndex),
        vmid: u32,
        reason: CreateReason,
    ) -> Option<NodeIndex> {
        let (choice, offer) = (&choices[at.0], &choices[at.0].offers[at.1]);
        turn.view.snapshot.cluster_id.as_ref()?;
        let taken = self.taken.get_or_insert_with(|| Taken::of(turn));
        let (name, token) = taken.fresh(turn, choice.pool)?;
        let origin = NodeOrigin::Planned(self.machines.next_index());
        let node = offer::place(world, choice, offer, (name.clone(), vmid), origin);
        self.fit_index.push(node, world);
        self.machines.push(PlannedMachine {
            choice: at.0,
            offer: at.1,
            node,
            reason,
            assigned: Vec::new(),
            vmid,
            name,
            token,
        });
        Some(node)
    }

    /// These pods of a group are what the machine at this origin is for.
    pub(crate) fn assign(&mut self, origin: &NodeOrigin, group: GroupIndex, pods: Range<usize>) {
        let NodeOrigin::Planned(machine) = origin else {
            return;
        };
        let assigned = &mut self.machines[*machine].assigned;
        match assigned.last_mut() {
            Some(last) if last.group == group && last.pods.end == pods.start => {
                last.pods.end = pods.end;
            }
            _ => assigned.push(AssignedPods { group, pods }),
        }
    }

    /// A pod of a group goes from one planned machine to another; says which pod of the group.
    pub(crate) fn transfer(
        &mut self,
        group: GroupIndex,
        from: PlannedIndex,
        to: PlannedIndex,
    ) -> Option<usize> {
        let assigned = &mut self.machines[from].assigned;
        let at = assigned
            .iter()
            .rposition(|assigned| assigned.group == group)?;
        assigned[at].pods.end -= 1;
        let pod = assigned[at].pods.end;
        if assigned[at].pods.is_empty() {
            assigned.remove(at);
        }
        self.assign(&NodeOrigin::Planned(to), group, pod..pod + 1);
        Some(pod)
    }

    /// Writes the plan.
    /// Assigned pods are looked up with `pods`; `storages` tells on which storages the disks of the next machine are made, by the ways to lay them.
    pub(crate) fn finish<'k>(
        self,
        turn: &mut DecisionBuilder<'_>,
        choices: &ChoiceList<'_>,
        mut storages: impl FnMut(&Layouts) -> ChosenStorages,
        pods: impl Fn(&AssignedPods) -> &'k [PodToPlace<'k>],
    ) {
        if !self.machines.is_empty() {
            turn.memory.last_scale_up = Some(turn.now());
        }
        let max_view_age = turn.view.policy.scale_up.max_view_age;
        let mut book = AddressBook::of(turn);
        let mut cpu_book = CpuBook::of(turn);
        for planned in self.machines.into_vec() {
            let choice = &choices[planned.choice];
            let offer = &choice.offers[planned.offer];
            let pods = || planned.assigned.iter().flat_map(&pods);
            let of = (choice.policy, choice.instance_type);
            // Whether or not it is made: what was planned for it is no other machine's.
            let chosen = storages(&offer.takes.disks);
            let Some(cpus) = cpu_book.give(of, offer.host) else {
                tell_no_cpus(turn, (choice, offer), pods());
                continue;
            };
            let Some(addresses) = book.take(turn, choice.policy) else {
                let refused = book.refuse(turn.view.policy, choice.policy);
                tell_not_made(turn, choice, refused, pods());
                continue;
            };
            let Some(spec) = create_spec(turn, &planned, (choice, offer), (addresses, cpus)) else {
                continue;
            };
            let spec = CreateSpec {
                storages: chosen,
                ..spec
            };
            bookings::keep(turn, &planned.name, pods().map(|one| one.pod));
            let target = Target {
                region: choice.policy.region.clone(),
                host: offer.host.clone(),
                vmid: planned.vmid,
                machine: planned.name.clone(),
                node: None,
            };
            let mut in_place_of = given_up_nodes(turn, pods());
            let pods = sorted(pods().map(|one| one.key));
            let reason = match planned.reason {
                CreateReason::Min { have, min } => {
                    in_place_of.extend(missing_for_min(
                        turn,
                        choice.pool,
                        min.saturating_sub(have),
                    ));
                    Reason::BelowMin {
                        have,
                        min,
                        pods,
                        in_place_of,
                    }
                }
                CreateReason::Pods => Reason::PendingPods { pods, in_place_of },
            };
            let precondition = Precondition {
                max_view_age,
                ..Precondition::default()
            };
            turn.act(Kind::Create(Box::new(spec)), target, precondition, reason);
        }
    }
}

/// The nodes that are given up on which some of these pods run, and why they are.
fn given_up_nodes<'k>(
    turn: &DecisionBuilder<'_>,
    pods: impl Iterator<Item = &'k PodToPlace<'k>>,
) -> BTreeMap<Arc<str>, GivenUp> {
    let nodes = pods.filter_map(|one| one.pod.node.as_ref());
    let nodes = nodes.filter_map(|node| Some((node.clone(), turn.given_up.get(node)?.0.clone())));
    nodes.collect()
}

/// The nodes of a pool that are given up, and why, where its `min` lacks as many as `missing` for no other cause.
fn missing_for_min(
    turn: &DecisionBuilder<'_>,
    pool: &str,
    missing: u32,
) -> BTreeMap<Arc<str>, GivenUp> {
    let nodes = turn.given_up.iter().filter(|(name, (_, later))| {
        let machine = turn.view.machine_of_node(name);
        later.is_none() && machine.is_some_and(|machine| machine.pool_name() == pool)
    });
    let nodes: BTreeMap<Arc<str>, GivenUp> = nodes
        .map(|(name, (cause, _))| (name.clone(), cause.clone()))
        .collect();
    if nodes.len() >= missing as usize {
        nodes
    } else {
        BTreeMap::new()
    }
}

/// Tells pods that the machine planned for them is not made: by their numbers there were CPUs for it, and those that are left
/// do not go together, since machines before it got whole cores of other NUMA nodes than was counted.
fn tell_no_cpus<'k>(
    turn: &mut DecisionBuilder<'_>,
    (choice, offer): (&Choice<'_>, &Offer<'_>),
    pods: impl Iterator<Item = &'k PodToPlace<'k>>,
) {
    let refused = Refused::Host {
        host: offer.host.clone(),
        refusal: match choice.policy.page_nodes() {
            0 => HostRefused::NumaMemory {
                cpus: choice.instance_type.cores,
                asks: choice.instance_type.memory,
            },
            nodes => HostRefused::HugePages {
                nodes,
                asks: choice.instance_type.memory,
            },
        },
    };
    tell_not_made(turn, choice, refused, pods);
}

/// Tells pods why the machine planned for them is not made.
fn tell_not_made<'k>(
    turn: &mut DecisionBuilder<'_>,
    choice: &Choice<'_>,
    refused: Refused,
    pods: impl Iterator<Item = &'k PodToPlace<'k>>,
) {
    let why = BTreeMap::from([(choice.label.clone(), refused.into())]);
    let verdict = PodVerdict::Held { why: why.into() };
    for line in pods.filter_map(|one| one.line) {
        turn.answer(line, verdict.clone());
    }
}

fn create_spec(
    turn: &DecisionBuilder<'_>,
    planned: &PlannedMachine,
    (choice, offer): (&Choice<'_>, &Offer<'_>),
    (addresses, cpus): (NicAddresses, CpuSet),
) -> Option<CreateSpec> {
    let copy = *offer.copy.as_ref().ok()?;
    Some(CreateSpec {
        mark: Mark {
            cluster: turn.view.snapshot.cluster_id.as_ref()?.to_string(),
            machine: planned.name.to_string(),
            vmid: planned.vmid,
            pool: choice.pool.to_string(),
            instance_type: choice.type_name.to_string(),
            template: choice.policy.template.to_string(),
            token: if choice.policy.joins_itself {
                String::new()
            } else {
                planned.token.clone()
            },
            created: turn.now(),
            addresses,
            cpus,
            unknown: UnknownFields::new(),
        },
        template_vmid: copy.vmid,
        template_host: copy.host.clone(),
        template_uuid: copy.uuid.clone(),
        storages: ChosenStorages::default(),
        terms: Some(Arc::new(Terms::of(choice.policy, choice.instance_type))),
    })
}

fn sorted<'k>(pods: impl Iterator<Item = &'k ObjectKey>) -> Vec<ObjectKey> {
    let mut pods: Vec<ObjectKey> = pods.cloned().collect();
    pods.sort();
    pods
}

//! Which of the unneeded nodes go now: timers, delays, the pools' `min`, how many at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::action::Reason;
use model::cluster::Node;
use model::disruption::Cause;
use model::policy::ScaleDown;
use model::reasons::{After, Kept, Limit, Unneeded};
use model::time::{Span, Time};

use crate::decision::turn::DecisionBuilder;
use crate::observed::view::{MachinePhase, MachineView};
use crate::scale_down::candidates::RemovalCandidate;
use crate::scale_down::consolidate::{SECOND_LOOK, quiet};
use crate::scale_down::drain_rules::{self, Budgets};
use crate::scale_down::mode::Mode;
use crate::scale_down::node_budgets::NodeBudgets;
use crate::scale_down::removal_groups::{GroupKind, RemovalGroup};
use crate::scale_down::shrink::{KeepReason, ready, settings};
use crate::simulation::offer::Choice;
use crate::simulation::places;

/// What removals of this decision may still take.
#[derive(Clone, Debug)]
pub(crate) struct RemovalAllowance<'a> {
    budgets: Budgets<'a>,
    node_budgets: NodeBudgets<'a>,
    /// Removals, and drains among them.
    all: u32,
    drains: u32,
    /// Working nodes by pool, those planned to go taken away.
    working: BTreeMap<Arc<str>, u32>,
    /// CPU and memory of the VMs of all working nodes, those planned to go taken away.
    cpu_milli: i64,
    memory_bytes: i64,
    /// When a node of ours last came.
    added: Option<(Time, After)>,
}

impl<'a> RemovalAllowance<'a> {
    /// Counts what is under way on the nodes `leaving`.
    pub(crate) fn begin(
        turn: &DecisionBuilder<'a>,
        budgets: Budgets<'a>,
        leaving: &[&str],
    ) -> RemovalAllowance<'a> {
        let drains = leaving
            .iter()
            .filter(|node| {
                let now = turn.now();
                let mut pods = turn.view.pods(node).iter();
                pods.any(|(_, pod)| drain_rules::concerned(pod, now))
            })
            .count();
        let mut working: BTreeMap<Arc<str>, u32> = BTreeMap::new();
        let (mut cpu_milli, mut memory) = (0i64, 0i64);
        for machine in turn.view.machines.values() {
            if machine.phase == MachinePhase::Up {
                let counts = u32::from(!places::is_given_up(turn, machine));
                *working.entry(machine.pool_name().into()).or_insert(0) += counts;
                let (cpu, ram) = read_size(machine);
                cpu_milli = cpu_milli.saturating_add(cpu);
                memory = memory.saturating_add(ram);
            }
        }
        let created = turn
            .view
            .machines
            .values()
            .filter_map(|machine| machine.node)
            .map(|(_, node)| node.created.min(turn.now()))
            .max();
        RemovalAllowance {
            budgets,
            node_budgets: NodeBudgets::of(turn),
            all: u32::try_from(leaving.len()).unwrap_or(u32::MAX),
            drains: u32::try_from(drains).unwrap_or(u32::MAX),
            working,
            cpu_milli,
            memory_bytes: memory,
            added: created
                .max(turn.memory.last_scale_up)
                .map(|at| (at, After::Addition))
                .max(remembered_or_begun(
                    turn,
                    After::Addition,
                    turn.memory.last_scale_up,
                )),
        }
    }

    /// Whether the nodes of a group go now, and for what reasons; they are booked if so. They go together
    /// or not at all.
    pub(crate) fn admit(
        &mut self,
        turn: &DecisionBuilder<'a>,
        group: &RemovalGroup<'a>,
    ) -> Result<Vec<Reason>, Vec<(Arc<str>, KeepReason)>> {
        let saved = (group.nodes.len() > 1).then(|| self.clone());
        let together = matches!(group.kind, GroupKind::Pool(_));
        let room = if together {
            self.check_parallelism_of_all(turn, group)
        } else {
            Ok(())
        };
        let mut reasons = Vec::new();
        for candidate in &group.nodes {
            let parallel = match &room {
                Ok(()) if together => Ok(()),
                Ok(()) => self.check_parallelism(turn, candidate),
                Err(keep) => Err(keep.clone()),
            };
            match self.admit_one(turn, candidate, parallel) {
                Ok(reason) => reasons.push(reason),
                Err(keep) => {
                    // One node alone is booked last of all.
                    if let Some(saved) = saved {
                        *self = saved;
                    }
                    let why = keep.why.clone();
                    let nodes = group.nodes.iter();
                    return Err(nodes
                        .map(|node| {
                            let own = node.name == candidate.name;
                            let keep = if own {
                                keep.clone()
                            } else {
                                group.kind.keep(candidate.name, &why)
                            };
                            (node.name.clone(), keep)
                        })
                        .collect());
                }
            }
        }
        Ok(reasons)
    }

    fn admit_one(
        &mut self,
        turn: &DecisionBuilder<'a>,
        candidate: &RemovalCandidate<'a>,
        parallel: Result<(), KeepReason>,
    ) -> Result<Reason, KeepReason> {
        let Some(machine) = turn.view.machine_of_node(candidate.name) else {
            return Err(KeepReason::because(Kept::Unknown));
        };
        let settings = settings(turn, machine);
        let reason = find_due_reason(turn, machine, candidate, settings)?;
        if candidate.loads.iter().any(|load| load.new_pods > 0) {
            return Err(KeepReason::because(Kept::PodsExpected));
        }
        self.check_delays(turn, candidate, settings)?;
        self.check_min(turn, machine)?;
        self.check_totals(turn, machine)?;
        turn.holds
            .may_shrink(&machine.seen.region)
            .map_err(|why| KeepReason::because(Kept::Held { hold: why.clone() }))?;
        parallel?;
        self.check_pool_budgets(turn, machine, candidate)?;
        self.budgets
            .admit(&candidate.pods)
            .map_err(KeepReason::because)?;
        self.book(turn, machine, candidate);
        Ok(reason)
    }

    fn book(
        &mut self,
        turn: &DecisionBuilder<'_>,
        machine: &MachineView<'a>,
        candidate: &RemovalCandidate<'a>,
    ) {
        self.budgets.take(&candidate.pods);
        if !is_disrupted(machine, candidate) {
            self.node_budgets.take(machine.pool_name());
        }
        self.all += 1;
        self.drains += u32::from(!candidate.pods.is_empty());
        if machine.phase == MachinePhase::Up {
            if let Some(working) = self.working.get_mut(machine.pool_name()) {
                let counted = u32::from(!places::is_given_up(turn, machine));
                *working = working.saturating_sub(counted);
            }
            let (cpu, memory) = read_size(machine);
            self.cpu_milli = self.cpu_milli.saturating_sub(cpu);
            self.memory_bytes = self.memory_bytes.saturating_sub(memory);
        }
    }

    /// The pool's own budgets. A node that is not Ready is disrupted already, and so is one that a
    /// machine was made to replace.
    fn check_pool_budgets(
        &self,
        turn: &DecisionBuilder<'_>,
        machine: &MachineView<'_>,
        candidate: &RemovalCandidate<'_>,
    ) -> Result<(), KeepReason> {
        if !ready(candidate.node) {
            return Ok(());
        }
        let more = u32::from(!is_disrupted(machine, candidate));
        self.check_node_budgets(turn, machine, cause_of(candidate), more)
    }

    /// Whether so many more nodes of a machine's pool may be disrupted by the pool's budgets.
    pub(crate) fn check_node_budgets(
        &self,
        turn: &DecisionBuilder<'_>,
        machine: &MachineView<'_>,
        cause: Cause,
        more: u32,
    ) -> Result<(), KeepReason> {
        let budgets = machine.pool.map_or(&[][..], |pool| &pool.budgets);
        let now = turn.now();
        self.node_budgets
            .admit(machine.pool_name(), budgets, cause, more, now)
            .map_err(|spent| {
                let mut keep = KeepReason::because(spent.why);
                keep.until = spent.until;
                keep
            })
    }

    /// Whether the pools keep their `min`, and all together the least they must have, when a machine
    /// of this choice takes the place of these nodes.
    pub(crate) fn keeps_min_and_totals(
        &self,
        turn: &DecisionBuilder<'_>,
        nodes: &[&RemovalCandidate<'_>],
        made: &Choice<'_>,
    ) -> bool {
        let mut working = self.working.clone();
        *working.entry(made.pool.clone()).or_insert(0) += 1;
        let mut cpu = self
            .cpu_milli
            .saturating_add(i64::from(made.instance_type.cores) * 1000);
        let mut memory = self.memory_bytes.saturating_add(made.instance_type.memory);
        for machine in nodes
            .iter()
            .filter_map(|node| turn.view.machine_of_node(node.name))
        {
            let (less_cpu, less_memory) = read_size(machine);
            cpu = cpu.saturating_sub(less_cpu);
            memory = memory.saturating_sub(less_memory);
            let min = machine.pool.map_or(0, |pool| pool.min);
            let left = working.entry(machine.pool_name().into()).or_insert(0);
            if *left <= min {
                return false;
            }
            *left -= 1;
        }
        let totals = &turn.view.policy.totals;
        cpu >= totals.min_cpu_milli && memory >= totals.min_memory
    }

    /// Whether the pods of some nodes may be evicted by the disruption budgets that are left.
    pub(crate) fn may_evict(&self, candidate: &RemovalCandidate<'_>) -> bool {
        self.budgets.admit(&candidate.pods).is_ok()
    }

    fn check_delays(
        &self,
        turn: &DecisionBuilder<'_>,
        candidate: &RemovalCandidate<'_>,
        settings: &ScaleDown,
    ) -> Result<(), KeepReason> {
        let remembered = &turn.memory;
        // What was added for its sake does not keep a node.
        let replaced = matches!(candidate.mode, Mode::Replaced { .. }) || candidate.mode.gives_up();
        let added = self.added.filter(|_| !replaced);
        let since = |after, last| remembered_or_begun(turn, after, last);
        for (last, delay) in [
            (added, settings.delay_after_add),
            (
                since(After::Deletion, remembered.last_scale_down),
                settings.delay_after_delete,
            ),
            (
                since(After::FailedDeletion, remembered.last_scale_down_failure),
                settings.delay_after_failure,
            ),
        ] {
            let Some((until, after)) = last
                .map(|(last, after)| (last + delay, after))
                .filter(|(until, _)| *until > turn.now() && delay > Span::ZERO)
            else {
                continue;
            };
            let why = Kept::Delayed {
                after,
                delay,
                until,
            };
            return Err(KeepReason::because(why).until(until));
        }
        Ok(())
    }

    fn check_min(
        &self,
        turn: &DecisionBuilder<'_>,
        machine: &MachineView<'_>,
    ) -> Result<(), KeepReason> {
        // It is not among those that the pool keeps, and where the pool is at its max another one comes only when it goes.
        if places::is_given_up(turn, machine) {
            return Ok(());
        }
        let name = machine.pool_name();
        let min = turn.view.policy.pools.get(name).map_or(0, |pool| pool.min);
        let working = self.working.get(name).copied().unwrap_or(0);
        let keeps = working.saturating_sub(u32::from(machine.phase == MachinePhase::Up));
        if keeps >= min {
            return Ok(());
        }
        Err(KeepReason::because(Kept::PoolMin { keeps, min }))
    }

    fn check_totals(
        &self,
        turn: &DecisionBuilder<'_>,
        machine: &MachineView<'_>,
    ) -> Result<(), KeepReason> {
        let totals = &turn.view.policy.totals;
        let (cpu, memory) = match machine.phase {
            MachinePhase::Up => read_size(machine),
            _ => (0, 0),
        };
        let (cpu, memory) = (
            self.cpu_milli.saturating_sub(cpu),
            self.memory_bytes.saturating_sub(memory),
        );
        if cpu < totals.min_cpu_milli {
            return Err(KeepReason::because(Kept::LeastOfAll {
                of: Limit::Cpu,
                keeps: cpu,
                least: totals.min_cpu_milli,
            }));
        }
        if memory < totals.min_memory {
            return Err(KeepReason::because(Kept::LeastOfAll {
                of: Limit::Memory,
                keeps: memory,
                least: totals.min_memory,
            }));
        }
        Ok(())
    }

    fn check_parallelism(
        &self,
        turn: &DecisionBuilder<'_>,
        candidate: &RemovalCandidate<'_>,
    ) -> Result<(), KeepReason> {
        self.check_parallelism_of(turn, 1, u32::from(!candidate.pods.is_empty()))
    }

    /// A pool that goes as a whole may overshoot when nothing else is under way.
    fn check_parallelism_of_all(
        &self,
        turn: &DecisionBuilder<'_>,
        group: &RemovalGroup<'_>,
    ) -> Result<(), KeepReason> {
        let nodes = u32::try_from(group.nodes.len()).unwrap_or(u32::MAX);
        let with_pods = group.nodes.iter().filter(|node| !node.pods.is_empty());
        let drains = u32::try_from(with_pods.count()).unwrap_or(u32::MAX);
        // As long as nothing goes, a group may be larger than what is allowed at once.
        let counted_nodes = if self.all == 0 { 0 } else { nodes };
        let counted_drains = if self.drains == 0 { 0 } else { drains };
        self.check_parallelism_of(turn, counted_nodes, counted_drains)
    }

    fn check_parallelism_of(
        &self,
        turn: &DecisionBuilder<'_>,
        nodes: u32,
        drains: u32,
    ) -> Result<(), KeepReason> {
        let limits = &turn.view.policy.scale_down;
        if nodes > 0 && self.all.saturating_add(nodes) > limits.max_parallel {
            return Err(KeepReason::because(Kept::MaxParallelism {
                leaving: self.all,
                max: limits.max_parallel,
            }));
        }
        if drains > 0 && self.drains.saturating_add(drains) > limits.max_parallel_drain {
            return Err(KeepReason::because(Kept::MaxDrainParallelism {
                draining: self.drains,
                max: limits.max_parallel_drain,
            }));
        }
        Ok(())
    }
}

/// For which cause of the pools' own budgets a node goes.
pub(crate) fn cause_of(candidate: &RemovalCandidate<'_>) -> Cause {
    match candidate.mode {
        Mode::Outdated { .. } => Cause::Outdated,
        _ if candidate.empty() => Cause::Empty,
        _ => Cause::Underused,
    }
}

/// Whether a node counts as disrupted already: one that a machine was made to replace, one whose drain was interrupted, and one
/// that is not Ready.
fn is_disrupted(machine: &MachineView<'_>, candidate: &RemovalCandidate<'_>) -> bool {
    let replaced = matches!(candidate.mode, Mode::Replaced { .. });
    let unready = machine.phase == MachinePhase::Up && !machine.ready();
    replaced || unready || machine.phase == MachinePhase::Leaving
}

/// CPU and memory of a machine's VM, by its type.
fn read_size(machine: &MachineView<'_>) -> (i64, i64) {
    machine.instance_type.map_or((0, 0), |instance_type| {
        (
            i64::from(instance_type.cores).saturating_mul(1000),
            instance_type.memory.max(0),
        )
    })
}

/// The node could go for long enough by the rules it goes by, and is old enough.
fn find_due_reason(
    turn: &DecisionBuilder<'_>,
    machine: &MachineView<'_>,
    candidate: &RemovalCandidate<'_>,
    settings: &ScaleDown,
) -> Result<Reason, KeepReason> {
    let now = turn.now();
    let node = candidate.node;
    let unneeded = turn
        .memory
        .unneeded_since
        .get(candidate.name)
        .copied()
        .unwrap_or(now);
    let reason = match &candidate.mode {
        Mode::Replaced { by, rest } => {
            return Ok(Reason::Replaced {
                by: by.clone(),
                saving: rest.saving,
                others: rest.others.clone(),
                gone: rest.gone.clone(),
            });
        }
        // It was not Ready for long enough when it was chosen: that is why it goes without a look at how much is requested of it.
        Mode::Evacuated { .. } if let Some(since) = unready_since(node) => {
            return Ok(Reason::Unready { since });
        }
        Mode::Evacuated { host, since, .. } => {
            return Ok(Reason::Evacuated {
                host: host.clone(),
                since: *since,
            });
        }
        Mode::Outdated { outdated, .. } => {
            return Ok(Reason::Outdated {
                outdated: outdated.clone(),
            });
        }
        Mode::Consolidate => check_consolidated(turn, machine, candidate, unneeded)?,
        Mode::AboveMax { have, max, .. } => {
            check_waited(now, unneeded, settings.unneeded_time, Unneeded::Unneeded)?;
            Reason::AboveMax {
                since: unneeded,
                have: *have,
                max: *max,
            }
        }
        Mode::Unneeded if ready(node) => {
            check_waited(now, unneeded, settings.unneeded_time, Unneeded::Unneeded)?;
            Reason::Unneeded {
                since: unneeded,
                utilization_permille: candidate.utilization.permille(),
            }
        }
        Mode::Unneeded => {
            let since = unneeded.max(node.ready.since.unwrap_or(unneeded).min(now));
            check_waited(now, since, settings.unready_time, Unneeded::Unready)?;
            Reason::Unready { since }
        }
    };
    check_age(turn, candidate, settings)?;
    Ok(reason)
}

/// Since when a node is not Ready, if it is not.
fn unready_since(node: &Node) -> Option<Time> {
    node.ready.since.filter(|_| !ready(node))
}

/// In a consolidated pool: nothing came or went for long enough, and the second look found the same.
fn check_consolidated(
    turn: &DecisionBuilder<'_>,
    machine: &MachineView<'_>,
    candidate: &RemovalCandidate<'_>,
    unneeded: Time,
) -> Result<Reason, KeepReason> {
    let now = turn.now();
    let Some((since, until)) = quiet::since(turn, machine) else {
        return Err(KeepReason::because(Kept::ChangeUnknown));
    };
    if until > now {
        return Err(KeepReason::because(Kept::PodsChanged { since, until }).until(until));
    }
    check_waited(now, unneeded, SECOND_LOOK, Unneeded::Unneeded)?;
    Ok(Reason::Consolidated {
        since,
        saving: candidate.price,
    })
}

/// When something of this kind was last, or since when anything is remembered: what was before is not known, and may have been then.
fn remembered_or_begun(
    turn: &DecisionBuilder<'_>,
    after: After,
    last: Option<Time>,
) -> Option<(Time, After)> {
    let began = turn.memory.began.map(|began| (began, After::Beginning));
    last.map(|last| (last, after)).or(began)
}

/// Whether a node has been in a state for as long as is wanted.
pub(crate) fn check_waited(
    now: Time,
    since: Time,
    wanted: Span,
    state: Unneeded,
) -> Result<(), KeepReason> {
    let waited = now.since(since);
    if waited >= wanted {
        return Ok(());
    }
    let why = Kept::NotLongEnough {
        state,
        since,
        waited,
        wanted,
    };
    Err(KeepReason::because(why).until(since + wanted))
}

/// No node is removed right after it came.
pub(crate) fn check_age(
    turn: &DecisionBuilder<'_>,
    candidate: &RemovalCandidate<'_>,
    settings: &ScaleDown,
) -> Result<(), KeepReason> {
    let (now, created) = (turn.now(), candidate.node.created);
    if now.since(created) >= settings.min_node_age {
        return Ok(());
    }
    let why = Kept::TooYoung {
        age: now.since(created),
        least: settings.min_node_age,
    };
    Err(KeepReason::because(why).until(created + settings.min_node_age))
}

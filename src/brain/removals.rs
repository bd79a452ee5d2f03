//! Which of the unneeded nodes go now: timers, delays, the pools' `min`, how many at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::action::Reason;
use crate::model::policy::ScaleDown;
use crate::model::time::{Span, Time};

use super::candidates::Candidate;
use super::drain_rules::{self, Budgets};
use super::shrink::{Keep, ready, settings};
use super::turn::Turn;
use super::view::{Known, Standing};

/// What removals of this decision may still take.
#[derive(Debug)]
pub(super) struct Removals<'a> {
    budgets: Budgets<'a>,
    /// Removals, and drains among them.
    all: u32,
    drains: u32,
    /// Working nodes by pool, those planned to go taken away.
    working: BTreeMap<Arc<str>, u32>,
    /// When a node of ours last came.
    added: Option<Time>,
}

impl<'a> Removals<'a> {
    /// Counts what is under way on the nodes `leaving`.
    pub(super) fn begin(turn: &Turn<'a>, budgets: Budgets<'a>, leaving: &[&str]) -> Removals<'a> {
        let drains = leaving
            .iter()
            .filter(|node| {
                let now = turn.now();
                let mut pods = turn.view.pods(node).iter();
                pods.any(|(_, pod)| drain_rules::concerned(pod, now))
            })
            .count();
        let mut working: BTreeMap<Arc<str>, u32> = BTreeMap::new();
        for known in turn.view.machines.values() {
            if known.standing == Standing::Up {
                *working.entry(known.pool_name().into()).or_insert(0) += 1;
            }
        }
        let created = turn
            .view
            .machines
            .values()
            .filter_map(|known| known.node)
            .map(|(_, node)| node.created.min(turn.now()))
            .max();
        Removals {
            budgets,
            all: u32::try_from(leaving.len()).unwrap_or(u32::MAX),
            drains: u32::try_from(drains).unwrap_or(u32::MAX),
            working,
            added: created.max(turn.memory.last_scale_up).max(
                // What is not remembered counts from when the memory began.
                turn.memory
                    .born
                    .filter(|_| turn.memory.last_scale_up.is_none()),
            ),
        }
    }

    /// Whether an unneeded node goes now, and for what reason; it is booked if so.
    pub(super) fn admit(
        &mut self,
        turn: &Turn<'a>,
        candidate: &Candidate<'a>,
    ) -> Result<Reason, Keep> {
        let Some(known) = turn.view.behind(candidate.name) else {
            return Err(Keep::because("NoNodeInfo", "nothing is known of it"));
        };
        let settings = settings(turn, known);
        let reason = due(turn, candidate, settings)?;
        if candidate.loads.iter().any(|load| load.guests > 0) {
            let why = "pending pods are about to come here";
            return Err(Keep::because("NotUnneededOtherReason", why));
        }
        self.delays(turn, settings)?;
        self.keep_min(turn, known)?;
        turn.holds
            .may_shrink(&known.machine.region)
            .map_err(|why| Keep::because("NotUnneededOtherReason", why.to_string()))?;
        self.parallel(turn, candidate)?;
        self.budgets
            .admit(&candidate.pods)
            .map_err(|why| Keep::because("NotEnoughPdb", why))?;
        self.book(known, candidate);
        Ok(reason)
    }

    fn book(&mut self, known: &Known<'_>, candidate: &Candidate<'a>) {
        self.budgets.take(&candidate.pods);
        self.all += 1;
        self.drains += u32::from(!candidate.pods.is_empty());
        if known.standing == Standing::Up
            && let Some(working) = self.working.get_mut(known.pool_name())
        {
            *working = working.saturating_sub(1);
        }
    }

    fn delays(&self, turn: &Turn<'_>, settings: &ScaleDown) -> Result<(), Keep> {
        let memory = &turn.memory;
        for (what, last, delay) in [
            ("an addition", self.added, settings.delay_after_add),
            (
                "a deletion",
                memory.last_scale_down.or(memory.born),
                settings.delay_after_delete,
            ),
            (
                "a failed deletion",
                memory.last_scale_down_failure.or(memory.born),
                settings.delay_after_failure,
            ),
        ] {
            let Some(until) = last
                .map(|last| last + delay)
                .filter(|until| *until > turn.now() && delay > Span::ZERO)
            else {
                continue;
            };
            let why = format!("nothing is removed for {delay} after {what}, until {until}");
            return Err(Keep::because("NotUnneededOtherReason", why).until(until));
        }
        Ok(())
    }

    fn keep_min(&self, turn: &Turn<'_>, known: &Known<'_>) -> Result<(), Keep> {
        let name = known.pool_name();
        let min = turn.view.policy.pools.get(name).map_or(0, |pool| pool.min);
        let working = self.working.get(name).copied().unwrap_or(0);
        let stay = working.saturating_sub(u32::from(known.standing == Standing::Up));
        if stay >= min {
            return Ok(());
        }
        let why = format!("the pool would keep {stay} nodes, its min is {min}");
        Err(Keep::because("NodeGroupMinSizeReached", why))
    }

    fn parallel(&self, turn: &Turn<'_>, candidate: &Candidate<'_>) -> Result<(), Keep> {
        let limits = &turn.view.policy.scale_down;
        let reason = "NodeGroupMaxDeletionCountReached";
        if self.all >= limits.max_parallel {
            let why = format!(
                "{} nodes are leaving, max_parallel is {}",
                self.all, limits.max_parallel
            );
            return Err(Keep::because(reason, why));
        }
        if !candidate.pods.is_empty() && self.drains >= limits.max_parallel_drain {
            let why = format!(
                "{} nodes are draining, max_parallel_drain is {}",
                self.drains, limits.max_parallel_drain
            );
            return Err(Keep::because(reason, why));
        }
        Ok(())
    }
}

/// The node was unneeded, or unready, for long enough, and is old enough.
fn due(turn: &Turn<'_>, candidate: &Candidate<'_>, settings: &ScaleDown) -> Result<Reason, Keep> {
    let now = turn.now();
    let node = candidate.node;
    let unneeded = turn
        .memory
        .unneeded_since
        .get(candidate.name)
        .copied()
        .unwrap_or(now);
    let (since, wanted, name) = if ready(node) {
        (unneeded, settings.unneeded_time, "NotUnneededLongEnough")
    } else {
        let since = unneeded.max(node.ready.since.unwrap_or(unneeded).min(now));
        (since, settings.unready_time, "NotUnreadyLongEnough")
    };
    if now.since(since) < wanted {
        let until = since + wanted;
        let why = format!("since {since}, that is {} of {wanted}", now.since(since));
        return Err(Keep::because(name, why).until(until));
    }
    if now.since(node.created) < settings.min_node_age {
        let until = node.created + settings.min_node_age;
        let why = format!(
            "it is {} old, no node is removed before {}",
            now.since(node.created),
            settings.min_node_age
        );
        return Err(Keep::because("NotUnneededOtherReason", why).until(until));
    }
    Ok(if ready(node) {
        Reason::Unneeded {
            since,
            utilization_permille: candidate.utilization.permille(),
        }
    } else {
        Reason::Unready { since }
    })
}

//! Plans in which a topology domain gets no machine at all.
//!
//! Topology spread counts every zone that has a node. Where limits allow few machines, other pods may fill the only node of a zone. Then
//! spread pods cannot use that zone, and `maxSkew` caps the others. If that machine goes into a zone that has nodes already, its own zone
//! is out of the count.

use std::collections::BTreeSet;

use super::catalog::Catalog;
use super::first_plan::Visit;
use super::pending::{PendingGroup, PendingGroups};
use super::planner::Planner;
use super::second_plan::{Domains, repack_once};
use crate::index::KeyId;
use crate::simulation::inter_pod::Rules;
use crate::simulation::inter_pod::topology::{DomainId, FRESH};

/// Domains that are tried at most: each costs a plan.
const MAX_DOMAINS: usize = 6;
/// Machines that second plans may look at in a decision before the next domain is tried. Those that are left are tried in the next decision: what
/// found nothing is remembered.
const MAX_LOOKED: u64 = 4_000_000;
/// With more pods without a place no domain is tried.
const MAX_PODS: usize = 500;

/// Phase: where pods with topology spread have no place, makes the plan once more without machines in one domain after the other, as long as
/// that leaves fewer pods out; gives back the visits that still are. What found nothing is remembered, and not tried again as it is.
pub(super) fn repack<'p, 'a>(
    planner: &mut Planner<'p, 'a>,
    catalog: &mut Catalog<'p, 'a>,
    pending: &mut PendingGroups<'a>,
    mut visits: Vec<Visit>,
) -> Vec<Visit> {
    // Questions of earlier decisions that are not asked any more are forgotten.
    planner.turn.fewer_domains_before =
        std::mem::take(&mut planner.turn.memory.no_better_plan_with_fewer_domains);
    for (key, domain) in find_empty_domains(planner, pending) {
        let waiting = count_waiting(planner, pending);
        if waiting == 0 || waiting > MAX_PODS || planner.looked > MAX_LOOKED {
            break;
        }
        let rules = planner.world.inter_pod.close_domain(key, domain);
        visits = repack_once(
            planner,
            catalog,
            pending,
            visits,
            Domains::Without(key, domain),
        );
        if count_waiting(planner, pending) >= waiting {
            planner.world.inter_pod.reopen_domains(rules);
        }
    }
    visits
}

/// The domains, by key, that pods without a place are spread over and in which no counted pod is. A domain with counted pods stays: that
/// the smallest zone holds the others back is what spreading means.
fn find_empty_domains(
    planner: &Planner<'_, '_>,
    pending: &PendingGroups<'_>,
) -> Vec<(KeyId, DomainId)> {
    let inter_pod = &planner.world.inter_pod;
    let waiting = pending.groups.iter().filter(|group| group.left() > 0);
    let rules = waiting.filter_map(|group| inter_pod.known_rules(group.shape));
    let domains = rules.flat_map(|rules| inter_pod.empty_domains(rules));
    let wide: BTreeSet<(KeyId, DomainId)> = domains.filter(|(_, domain)| *domain < FRESH).collect();
    wide.into_iter().take(MAX_DOMAINS).collect()
}

/// How many pods that are spread have no place.
fn count_waiting(planner: &Planner<'_, '_>, pending: &PendingGroups<'_>) -> usize {
    let inter_pod = &planner.world.inter_pod;
    let spread = pending.groups.iter().filter(|group| {
        let rules = inter_pod.known_rules(group.shape);
        rules.is_some_and(Rules::is_spread)
    });
    spread.map(PendingGroup::left).sum()
}

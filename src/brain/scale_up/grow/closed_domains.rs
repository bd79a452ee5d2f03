//! Plans in which topology domains get no machine at all.
//!
//! Topology spread counts every zone that has a node. Where limits allow few machines, other pods may fill the only node of a zone. Then
//! spread pods cannot use that zone, and `maxSkew` caps the others. If that machine goes into a zone that has nodes already, its own zone
//! is out of the count. Sometimes several zones must be out of the count at once.

use std::collections::{BTreeMap, BTreeSet};

use super::catalog::Catalog;
use super::first_plan::Visit;
use super::pending::{PendingGroup, PendingGroups};
use super::planner::Planner;
use super::second_plan::{Domains, repack_once};
use crate::index::{NodeIndex, RowIndex, ShapeId};
use crate::simulation::inter_pod::topology::{DomainsByKey, FRESH, TopologyDomain};
use crate::simulation::inter_pod::{OpenDomain, Rules, SavedRules};

/// Domains that are tried at most. Each costs a plan by itself, and one together with those before it.
const MAX_DOMAINS: usize = 6;
/// With more pods without a place no domain is tried.
const MAX_PODS: usize = 500;

/// Phase: where pods with topology spread have no place, makes the plan once more without machines in some domains. Each is closed by itself,
/// and stays closed if that leaves fewer pods out. Then those that were of no use alone are closed on top of each other. What found nothing
/// is remembered, and not tried again as it is.
pub(super) fn repack<'p, 'a>(
    planner: &mut Planner<'p, 'a>,
    catalog: &mut Catalog<'p, 'a>,
    pending: &mut PendingGroups<'a>,
    visits: Vec<Visit>,
) {
    // Questions of earlier decisions that are not asked any more are forgotten.
    planner.turn.fewer_domains_before =
        std::mem::take(&mut planner.turn.memory.no_better_plan_with_fewer_domains);
    let domains = find_domains(planner, pending);
    let mut search = ClosedDomains {
        planner,
        catalog,
        pending,
        visits,
        closed: Vec::new(),
    };
    for domain in &domains {
        search.close_alone(*domain);
    }
    search.close_together(&domains);
}

/// The domains in which no machine is made.
struct ClosedDomains<'s, 'p, 'a> {
    planner: &'s mut Planner<'p, 'a>,
    catalog: &'s mut Catalog<'p, 'a>,
    pending: &'s mut PendingGroups<'a>,
    visits: Vec<Visit>,
    closed: Vec<TopologyDomain>,
}

impl ClosedDomains<'_, '_, '_> {
    /// Closes one more domain, if that leaves fewer pods out.
    fn close_alone(&mut self, domain: TopologyDomain) {
        let waiting = self.count_waiting();
        if !(1..=MAX_PODS).contains(&waiting) {
            return;
        }
        let rules = self.close(domain);
        if !self.leaves_fewer_out(waiting) {
            self.closed.pop();
            self.planner.world.inter_pod.reopen_domains(rules);
        }
    }

    /// Closes one domain after the other, whether or not that leaves fewer pods out. In the end those are open again that were closed since it last did.
    fn close_together(&mut self, domains: &[TopologyDomain]) {
        let mut useful = self.closed.len();
        let mut rules_before = None;
        for domain in domains {
            let waiting = self.count_waiting();
            if !(1..=MAX_PODS).contains(&waiting) {
                break;
            }
            if self.closed.contains(domain) || self.is_needed(*domain) {
                continue;
            }
            let rules = self.close(*domain);
            rules_before.get_or_insert(rules);
            // One alone was of no use.
            if self.closed.len() > 1 && self.leaves_fewer_out(waiting) {
                useful = self.closed.len();
                rules_before = None;
            }
        }
        if let Some(rules) = rules_before {
            self.closed.truncate(useful);
            self.planner.world.inter_pod.reopen_domains(rules);
        }
    }

    /// Closes one more domain. Returns what the rules were.
    fn close(&mut self, domain: TopologyDomain) -> SavedRules {
        self.closed.push(domain);
        self.planner.world.inter_pod.close_domain(domain)
    }

    /// Makes the plan once more. Returns whether fewer pods than so many wait now.
    fn leaves_fewer_out(&mut self, waiting: usize) -> bool {
        let visits = std::mem::take(&mut self.visits);
        self.visits = repack_once(
            self.planner,
            self.catalog,
            self.pending,
            visits,
            Domains::Without(&self.closed),
        );
        self.count_waiting() < waiting
    }

    /// How many pods that are spread have no place.
    fn count_waiting(&self) -> usize {
        let inter_pod = &self.planner.world.inter_pod;
        let spread = self.pending.groups.iter().filter(|group| {
            let rules = inter_pod.known_rules(group.shape);
            rules.is_some_and(Rules::is_spread)
        });
        spread.map(PendingGroup::left).sum()
    }

    /// Whether some pods could be on no new machine any more if this domain was closed too.
    fn is_needed(&self, domain: TopologyDomain) -> bool {
        let catalog = &*self.catalog;
        let is_open = |at: &DomainsByKey| {
            let mut closed = self.closed.iter().chain([&domain]);
            closed.all(|(key, shut)| at.get(*key) != Some(shut))
        };
        let rows: BTreeSet<RowIndex> = self.pending.groups.iter().map(|group| group.row).collect();
        rows.into_iter().any(|row| {
            let fits = catalog.rows.get(row).fits.indexed();
            let mut fits = fits.filter(|(_, fits)| **fits);
            !fits.any(|(offer, _)| is_open(&catalog.domains[offer]))
        })
    }
}

/// The domains that pods without a place are spread over and that count for machines of this plan alone: kube-scheduler counts a domain with a
/// node in any case. Those with fewest of these pods come first: they hold the others back.
fn find_domains(planner: &mut Planner<'_, '_>, pending: &PendingGroups<'_>) -> Vec<TopologyDomain> {
    let waiting = pending.groups.iter().filter(|group| group.left() > 0);
    let shapes: Vec<ShapeId> = waiting.map(|group| group.shape).collect();
    if shapes.is_empty() {
        return Vec::new();
    }
    let mut pods: BTreeMap<TopologyDomain, i64> = BTreeMap::new();
    for open in list_open(planner, &shapes) {
        *pods.entry(open.domain).or_default() += open.pods;
    }
    if pods.is_empty() {
        return Vec::new();
    }
    let planned = planner.planned.machines.iter().map(|planned| planned.node);
    let planned: Vec<NodeIndex> = planned.collect();
    for node in &planned {
        planner.world.close(*node);
    }
    for open in list_open(planner, &shapes) {
        if open.has_node {
            pods.remove(&open.domain);
        }
    }
    for node in planned {
        planner.world.reopen(node);
    }
    let mut domains: Vec<(i64, TopologyDomain)> = pods
        .into_iter()
        .filter(|(domain, _)| domain.1 < FRESH)
        .map(|(domain, pods)| (pods, domain))
        .collect();
    domains.sort_unstable();
    domains.truncate(MAX_DOMAINS);
    domains.into_iter().map(|(_, domain)| domain).collect()
}

/// The open domains of pods of these shapes; one may come several times.
fn list_open(planner: &Planner<'_, '_>, shapes: &[ShapeId]) -> Vec<OpenDomain> {
    let inter_pod = &planner.world.inter_pod;
    let rules = shapes
        .iter()
        .filter_map(|shape| inter_pod.known_rules(*shape));
    rules
        .flat_map(|rules| inter_pod.open_domains(rules))
        .collect()
}

//! Phase `tell`: a pod that waits because of other pods of the same decision is told which.
//!
//! What a group's verdict says until here is what rules say of a new node: that no pod it must be with is there, or that one it
//! must not be with is. Whether that pod waits itself, or goes to another machine of this plan, is known at the end.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::pending::PendingGroups;
use super::planner::Planner;
use crate::index::{GroupIndex, NodeIndex, PendingPodIndex, ShapeId};
use crate::simulation::inter_pod::Rules;
use model::cluster::ObjectKey;
use model::reasons::{FilterFailure, Reasons, Refusals, Refused};
use model::report::PodVerdict;

/// Groups that are looked at, and reasons that are written anew, at most in all: where thousands wait for thousands, the last of them
/// are told what is told without this phase.
const MAX_LOOKS: usize = 200_000;

/// Another pod of this decision that keeps pods of a group from their place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum OtherPod {
    /// It is wanted beside them, and has no place itself; and whether no pool can run it.
    Waits(ObjectKey, bool),
    /// It is wanted beside them, and goes to this machine.
    Wanted(ObjectKey, Arc<str>),
}

/// The reasons that were rewritten, old and new: by the address of the old ones, which stay alive here, and the pod that the new ones
/// name. Groups share their reasons, and the new ones are shared likewise.
type Rewritten = BTreeMap<(usize, Option<OtherPod>), (Reasons, Reasons)>;

/// Tells each pod that has no place which pod of this decision it waits for. It counts as held then, and not as a pod that no
/// pool can run, unless no pool can run the other one either.
pub(super) fn tell<'a>(planner: &mut Planner<'_, 'a>, pending: &PendingGroups<'a>) {
    let (mut rewritten, looks) = (Rewritten::new(), Cell::new(MAX_LOOKS));
    for (group, of) in pending.groups.indexed() {
        if of.left() == 0 || !of.dependent {
            continue;
        }
        let first = of.pods[of.next];
        let Some(rules) = planner.world.rules(of.shape) else {
            continue;
        };
        let (why, held) = match planner.turn.verdict(first) {
            Some(PodVerdict::Held { why }) => (why.clone(), true),
            Some(PodVerdict::NoCompatiblePool { why }) => (why.clone(), false),
            _ => continue,
        };
        let search = Search {
            planner,
            pending,
            group,
            rules: &rules,
            looks: &looks,
        };
        let other = search.find_wanted();
        let old = Arc::as_ptr(&why) as usize;
        let new = match rewritten.get(&(old, other.clone())) {
            // Of pods that must not be near, each group has its own.
            Some((_, new)) if rules.is_affinity_alone() => new.clone(),
            _ => search.rewrite(&why, other.as_ref()),
        };
        if looks.get() == 0 {
            return;
        }
        rewritten.insert((old, other.clone()), (why.clone(), new.clone()));
        if Arc::ptr_eq(&new, &why) {
            continue;
        }
        let never = matches!(other, Some(OtherPod::Waits(_, true)));
        let verdict = if held || !never {
            PodVerdict::Held { why: new }
        } else {
            PodVerdict::NoCompatiblePool { why: new }
        };
        for to_place in of.pods.tail(of.next) {
            planner.turn.say(*to_place, &verdict);
        }
    }
}

/// Looks for the pods of this decision that a waiting group's rules are about.
struct Search<'s, 'p, 'a> {
    planner: &'s Planner<'p, 'a>,
    pending: &'s PendingGroups<'a>,
    group: GroupIndex,
    rules: &'s Rules,
    /// How many more groups may be looked at and reasons written anew, for all groups together; [`MAX_LOOKS`] at first.
    looks: &'s Cell<usize>,
}

impl Search<'_, '_, '_> {
    /// Whether one more group may be looked at.
    fn may_look(&self) -> bool {
        let left = self.looks.get();
        self.looks.set(left.saturating_sub(1));
        left > 0
    }

    /// The pod that the group has required affinity to, if it is of this decision: one that waits, or else one that goes to a planned
    /// machine.
    fn find_wanted(&self) -> Option<OtherPod> {
        let inter_pod = &self.planner.world.inter_pod;
        let targetless = inter_pod.without_target(self.rules);
        if let Some(counter) = targetless.first() {
            let counted = |shape| inter_pod.is_counted(*counter, shape);
            let waiting = self.pending.groups.indexed();
            let waiting = waiting.take_while(|_| self.may_look());
            let mut waiting = waiting.filter(|(at, of)| *at != self.group && of.left() > 0);
            let target = waiting.find(|(_, of)| counted(of.shape));
            let target = target.map(|(_, of)| of.pods[of.next]);
            let target = target.or_else(|| {
                let left_out = self.pending.left_out.iter();
                let mut left_out = left_out.take_while(|_| self.may_look());
                let found = left_out.find(|(shape, _)| counted(*shape));
                found.map(|(_, first)| *first)
            })?;
            let verdict = self.planner.turn.verdict(target);
            let never = matches!(verdict, Some(PodVerdict::NoCompatiblePool { .. }));
            return Some(OtherPod::Waits(target.key.clone(), never));
        }
        let (pod, node) = self.find_planned(|shape, _| inter_pod.is_wanted(self.rules, shape))?;
        let machine = self.planner.world.nodes[node].name.clone();
        Some(OtherPod::Wanted(pod, machine))
    }

    /// The first pod on a planned machine that something is so of, given its shape and its simulated node, and that node.
    fn find_planned(
        &self,
        is: impl Fn(ShapeId, NodeIndex) -> bool,
    ) -> Option<(ObjectKey, NodeIndex)> {
        self.planner.planned.machines.iter().find_map(|machine| {
            let mut all = machine.assigned.iter().take_while(|_| self.may_look());
            let assigned = all.find(|assigned| {
                let shape = self.pending.groups[assigned.group].shape;
                !assigned.pods.is_empty() && is(shape, machine.node)
            })?;
            let pods = &self.pending.groups[assigned.group].pods;
            let first = PendingPodIndex(assigned.pods.start);
            Some((pods[first].key.clone(), machine.node))
        })
    }

    /// The reasons with the other pod named in those that it is the cause of.
    fn rewrite(&self, why: &Reasons, other: Option<&OtherPod>) -> Reasons {
        self.looks.set(self.looks.get().saturating_sub(why.len()));
        let mut known: BTreeMap<Arc<Refused>, Arc<Refused>> = BTreeMap::new();
        let mut changed = false;
        let all = why.iter().map(|(at, refusals)| {
            let named = refusals.iter().map(|refused| {
                let named = known.entry(refused.clone());
                let named = named.or_insert_with(|| self.name(refused, other));
                changed |= !Arc::ptr_eq(named, refused);
                named.clone()
            });
            let named: Vec<Arc<Refused>> = named.collect();
            let named = Refusals::try_from(named).unwrap_or_else(|_| refusals.clone());
            (at.clone(), named)
        });
        let all: BTreeMap<Arc<str>, Refusals> = all.collect();
        if changed { Arc::new(all) } else { why.clone() }
    }

    /// One reason, with the other pod named where it is the cause.
    fn name(&self, refused: &Arc<Refused>, other: Option<&OtherPod>) -> Arc<Refused> {
        let Refused::FilterFailure { filter_failure } = &**refused else {
            return refused.clone();
        };
        let named = match (&**filter_failure, other) {
            (FilterFailure::Affinity { .. }, Some(OtherPod::Waits(pod, _))) => {
                Some(Refused::TargetWaits { pod: pod.clone() })
            }
            (FilterFailure::Affinity { .. }, Some(OtherPod::Wanted(pod, machine))) => {
                Some(Refused::TargetPlanned {
                    pod: pod.clone(),
                    machine: machine.clone(),
                })
            }
            (
                FilterFailure::AntiAffinityOfOthers { key, domain }
                | FilterFailure::AntiAffinity { key, domain, .. }
                | FilterFailure::Spread { key, domain, .. },
                _,
            ) => self.find_in_domain(key, domain.as_ref()).map(|pod| {
                let filter_failure = filter_failure.clone();
                Refused::PlannedBeside {
                    filter_failure,
                    pod,
                }
            }),
            _ => None,
        };
        named.map_or_else(|| refused.clone(), Arc::new)
    }

    /// A pod of this plan in a domain of a topology key, of those that the group's rules keep apart.
    fn find_in_domain(&self, key: &Arc<str>, domain: Option<&Arc<str>>) -> Option<ObjectKey> {
        let (inter_pod, nodes) = (&self.planner.world.inter_pod, &self.planner.world.nodes);
        let domain = domain?;
        let found = self.find_planned(|shape, node| {
            nodes[node].labels.get(key) == Some(domain)
                && inter_pod.is_kept_apart(self.rules, key, shape)
        });
        found.map(|(pod, _)| pod)
    }
}

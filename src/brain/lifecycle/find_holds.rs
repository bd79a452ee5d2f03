//! What holds the brain back, in words and numbers. No decision on a stale or partial view: a
//! missing answer is not an empty one.

use crate::decision::holds::Holds;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::cluster::ReadyStatus;
use model::memory::Memory;
use model::reasons::{Held, Hindrance};
use model::report::{CLUSTER_ID, Hold, Scope};
use model::snapshot::{self, Lease, SourceState};
use model::time::{Span, Time};

use crate::decision::turn::DecisionBuilder;
use crate::lifecycle::sweep;
use crate::observed::view::{MachinePhase, SnapshotView};

/// Sources without which nothing of Kubernetes is known. Every other `kube/…` source that the
/// snapshot lists must be complete and fresh as well.
const NEEDED: [&str; 2] = ["kube/pods", "kube/nodes"];
/// Clocks are read one after another: this much of the future is none.
const SKEW: Span = Span::seconds(5);

/// Finds every hold and writes them into the report.
pub(crate) fn find(turn: &mut DecisionBuilder<'_>, before: &Memory) {
    let mut found = Vec::new();
    let mut holds = Holds {
        configured: turn.view.policy.regions.keys().cloned().collect(),
        ..Holds::default()
    };
    whole(&turn.view, before, &mut holds, &mut found);
    kubernetes(&turn.view, &mut holds, &mut found);
    regions(&turn.view, &mut holds, &mut found);
    cluster_health(&turn.view, &mut holds, &mut found);
    if !turn.view.policy.scale_down.enabled {
        found.push(Hold::new(Scope::ScaleDown, Held::ScaleDownDisabled));
    }
    turn.report.unread = unread(&turn.view);
    turn.report.holds = found;
    turn.holds = holds;
}

fn hold(scope: Scope, why: &Arc<Hindrance>) -> Hold {
    Hold {
        scope,
        why: why.clone(),
        until: None,
    }
}

/// A reason with the fault behind it, if one is known.
fn because(held: Held, cause: Option<&str>) -> Arc<Hindrance> {
    Arc::new(Hindrance {
        held,
        cause: cause.map(Arc::from),
    })
}

/// What stops everything.
fn whole(view: &SnapshotView<'_>, before: &Memory, holds: &mut Holds, found: &mut Vec<Hold>) {
    let snapshot = view.snapshot;
    let mut whys = Vec::new();
    let plain = |held: Held| because(held, None);
    if snapshot.version != snapshot::VERSION {
        whys.push(plain(Held::FormatVersion {
            seen: snapshot.version,
            reads: snapshot::VERSION,
        }));
    }
    if !snapshot.leader {
        whys.push(lease(&snapshot.lease));
    }
    if let Some(who) = &snapshot.paused {
        let reason = (&**who).into();
        let why = plain(Held::Paused { reason });
        holds.paused = Some(why.clone());
        found.push(hold(Scope::Everything, &why));
    }
    if snapshot.cluster_id.is_none() {
        let why = because(Held::NoClusterId, snapshot.cluster_id_error.as_deref());
        holds.unread = Some(why.clone());
        whys.push(why);
    }
    let ahead = snapshot
        .sources
        .values()
        .map(|source| source.as_of)
        .chain([snapshot.taken])
        .max()
        .unwrap_or_default();
    if ahead > view.now + SKEW {
        whys.push(plain(Held::ViewAhead {
            view: ahead,
            now: view.now,
        }));
    } else if let Some(remembered) = latest(before).filter(|time| *time > view.now + SKEW) {
        // One turn is let pass; from then on the remembered times have been moved.
        whys.push(plain(Held::MemoryAhead {
            remembered,
            now: view.now,
        }));
    }
    holds.everything = whys.first().cloned();
    found.extend(whys.iter().map(|why| hold(Scope::Everything, why)));
}

/// Why we do not hold the lease.
fn lease(lease: &Lease) -> Arc<Hindrance> {
    let holder = |holder: &str| (!holder.is_empty()).then(|| holder.into());
    match &lease.error {
        Some(error) => because(Held::NotLeader { holder: None }, Some(error)),
        None => because(
            Held::NotLeader {
                holder: holder(&lease.holder),
            },
            None,
        ),
    }
}

/// The latest time in the memory that cannot lie in the future.
fn latest(memory: &Memory) -> Option<Time> {
    memory
        .unneeded_since
        .values()
        .chain(memory.quarantine.values())
        .copied()
        .chain(memory.backoff.values().map(|backoff| backoff.failed))
        .chain(memory.batch.iter().map(|batch| batch.last))
        .chain(memory.settled.values().map(|settled| settled.since))
        .chain(memory.replacements.values().map(|made| made.planned))
        .chain(memory.began)
        .chain(memory.last_scale_up)
        .chain(memory.last_scale_down)
        .chain(memory.last_scale_down_failure)
        .max()
}

/// Why sources cannot be decided on, if they cannot: once for all that the same fault hinders. The views of
/// one cluster mostly fail together.
fn stale(sources: &[(&str, Option<&SourceState>)], limit: Span, now: Time) -> Vec<Arc<Hindrance>> {
    let mut unread: BTreeMap<Option<&str>, Vec<&str>> = BTreeMap::new();
    let mut old: BTreeMap<Option<&str>, (Vec<&str>, Span)> = BTreeMap::new();
    for (name, source) in sources {
        let reason = source.and_then(SourceState::reason);
        match source.filter(|source| source.complete) {
            None => unread.entry(reason).or_default().push(name),
            Some(source) if now.since(source.as_of) > limit && !planted!(StaleViewsUsed) => {
                let (names, age) = old.entry(reason).or_default();
                names.push(name);
                *age = now.since(source.as_of).max(*age);
            }
            Some(_) => {}
        }
    }
    let owned = |names: Vec<&str>| names.into_iter().map(Arc::from).collect();
    let unread = unread.into_iter().map(|(reason, names)| {
        let held = Held::NotRead {
            sources: owned(names),
        };
        because(held, reason)
    });
    let old = old.into_iter().map(|(reason, (names, age))| {
        let held = Held::Stale {
            sources: owned(names),
            age,
            limit,
        };
        because(held, reason)
    });
    unread.chain(old).collect()
}

fn kubernetes(view: &SnapshotView<'_>, holds: &mut Holds, found: &mut Vec<Hold>) {
    let sources = &view.snapshot.sources;
    let others = sources.keys().map(|name| &**name);
    let others = others.filter(|name| name.starts_with("kube/") && !NEEDED.contains(name));
    let names = NEEDED.into_iter().chain(others);
    let states: Vec<_> = names.map(|name| (name, sources.get(name))).collect();
    let never = |(_, state): &&(&str, Option<&SourceState>)| state.is_none_or(|s| !s.complete);
    let unread: Vec<_> = states.iter().filter(never).copied().collect();
    if let Some(why) = stale(&unread, Span::ZERO, view.now).first() {
        holds.unread.get_or_insert(why.clone());
    }
    let (up, down) = (&view.policy.scale_up, &view.policy.scale_down);
    for (scope, limit, slot) in [
        (Scope::ScaleUp, up.max_view_age, &mut holds.grow),
        (Scope::ScaleDown, down.max_view_age, &mut holds.shrink),
    ] {
        for why in stale(&states, limit, view.now) {
            found.push(hold(scope.clone(), &why));
            slot.get_or_insert(why);
        }
    }
}

fn regions(view: &SnapshotView<'_>, holds: &mut Holds, found: &mut Vec<Hold>) {
    for name in view.policy.regions.keys() {
        let source = format!("pve/{name}");
        let state = view.snapshot.sources.get(source.as_str());
        let seen = view.snapshot.regions.get(name);
        let scope = Scope::Region(name.clone());
        let source = [(source.as_str(), state)];
        let unread = state.is_none_or(|state| !state.complete);
        if unread && let Some(why) = stale(&source, Span::ZERO, view.now).first() {
            holds.unread_regions.insert(name.clone(), why.clone());
        }
        let both = match seen {
            // What is not known of it yet is not known: its source says what hinders the reading.
            _ if unread => None,
            None => Some(Held::RegionNotSeen {
                region: name.clone(),
            }),
            Some(region) if !region.quorate && !planted!(QuorumIgnored) => Some(Held::NoQuorum {
                region: name.clone(),
            }),
            Some(_) => None,
        };
        let both = both.map(|held| because(held, None));
        let up = view.policy.scale_up.max_view_age;
        let down = view.policy.scale_down.max_view_age;
        for (limit, slot) in [(up, &mut holds.grow_in), (down, &mut holds.shrink_in)] {
            let why = both
                .clone()
                .or_else(|| stale(&source, limit, view.now).into_iter().next());
            if let Some(why) = why {
                let hold = hold(scope.clone(), &why);
                if !found.contains(&hold) {
                    found.push(hold);
                }
                slot.insert(name.clone(), why);
            }
        }
    }
}

/// What was not read since the start, by name.
fn unread(view: &SnapshotView<'_>) -> BTreeSet<Arc<str>> {
    let sources = &view.snapshot.sources;
    let regions = view.policy.regions.keys();
    let needed = NEEDED.into_iter().map(Arc::from);
    let wanted = needed.chain(regions.map(|name| format!("pve/{name}").into()));
    let listed = sources.keys().filter(|name| name.starts_with("kube/"));
    let never = |name: &Arc<str>| sources.get(name).is_none_or(|source| !source.complete);
    let id = view.snapshot.cluster_id.is_none();
    let id = id.then(|| Arc::from(CLUSTER_ID));
    wanted
        .chain(listed.cloned())
        .filter(never)
        .chain(id)
        .collect()
}

/// Too many nodes are not Ready: something is wrong that adding and removing nodes does not cure
/// (`ok-total-unready-count`, `max-total-unready-percentage`). Nodes that are still coming up do not
/// count as unready, nor do those of which PVE shows that nothing runs behind them: after a power cut
/// the dead would otherwise stand in the way of those who replace them.
fn cluster_health(view: &SnapshotView<'_>, holds: &mut Holds, found: &mut Vec<Hold>) {
    let scale_down = &view.policy.scale_down;
    let nodes = &view.snapshot.cluster.nodes;
    let unready = nodes
        .iter()
        .filter(|(name, node)| {
            node.ready.status != ReadyStatus::True
                && !sweep::dead(view, name, node)
                && !view.machine_of_node(name).is_some_and(|machine| {
                    machine.kept.is_some()
                        || matches!(machine.phase, MachinePhase::Coming | MachinePhase::Leaving)
                })
        })
        .count();
    let percent = scale_down.max_total_unready_percent as usize;
    if unready > scale_down.ok_total_unready as usize && unready * 100 > percent * nodes.len() {
        let held = Held::ClusterUnhealthy {
            unready,
            nodes: nodes.len(),
            allowed: scale_down.ok_total_unready,
            percent,
        };
        let why = because(held, None);
        for scope in [Scope::ScaleUp, Scope::ScaleDown] {
            found.push(hold(scope, &why));
        }
        holds.unhealthy = Some(why);
    }
}

//! Pools that failed wait: 5 minutes at first. A failure after a back-off doubles it, up to 30 minutes. A failure during a back-off does not
//! double it: the back-off then ends one same length after that failure. Every failure counts once.
//!
//! A machine that fails before its VM runs (clone, configuration, start) is mostly the fault of one host: its pool makes nothing on
//! that host for a while, and goes on with its other hosts. Any failure makes a host the last that its pool takes, until a machine works there again.
//!
//! A failure by nobody's fault, such as a lock that PVE did not get in time, does not count, since another attempt may succeed at once. If that
//! attempt fails, too, waiting is all that is left: the failure of a machine that was planned after another had failed so counts.
//!
//! Source: cluster-autoscaler's `utils/backoff`, where a failure during a back-off does not double it either.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::foreign::ForeignText;
use model::memory::Backoff;
use model::region::Step;
use model::time::{Span, Time};

use super::shut_out;
use crate::decision::turn::DecisionBuilder;
use crate::observed::reach;
use crate::observed::view::{MachinePhase, MachineView};

/// Until when a pool waits, if it does.
pub(crate) fn find_end(turn: &DecisionBuilder<'_>, pool: &str) -> Option<Time> {
    if planted!(NoBackoff) {
        return None;
    }
    let counted = find_pool_backoff(turn, pool).map(|backoff| backoff.until);
    let everywhere = find_backoff_on_all_hosts(turn, pool).map(|backoff| backoff.until);
    counted
        .max(everywhere)
        .max(find_end_of_forgotten(turn, pool))
}

/// The failure for which a pool waits, if it does for one.
pub(crate) fn find_failure<'t>(
    turn: &'t DecisionBuilder<'_>,
    pool: &str,
) -> Option<&'t ForeignText> {
    let backoff = find_pool_backoff(turn, pool).or_else(|| find_backoff_on_all_hosts(turn, pool));
    backoff.map(|backoff| &backoff.message)
}

/// A failure on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FailedThere {
    /// The pool makes nothing there until then.
    Until(Time),
    /// The pool takes it last.
    Lately,
}

/// Whether a failure keeps a pool from a host, or makes that host the last one that the pool takes.
pub(crate) fn find_host_failure(
    turn: &DecisionBuilder<'_>,
    pool: &str,
    at: RegionHost<'_>,
) -> Option<FailedThere> {
    let backoff = find_host_backoff(turn, pool, at)?;
    let waits = backoff.until > turn.now() && !planted!(NoBackoff);
    Some(if waits {
        FailedThere::Until(backoff.until)
    } else {
        FailedThere::Lately
    })
}

/// The failure that is held against a host.
pub(crate) fn find_failure_on<'t>(
    turn: &'t DecisionBuilder<'_>,
    pool: &str,
    at: RegionHost<'_>,
) -> Option<&'t ForeignText> {
    Some(&find_host_backoff(turn, pool, at)?.message)
}

/// A region with one of its hosts.
type RegionHost<'a> = (&'a str, &'a Arc<str>);

fn find_host_backoff<'t>(
    turn: &'t DecisionBuilder<'_>,
    pool: &str,
    (region, host): RegionHost<'_>,
) -> Option<&'t Backoff> {
    let hosts = turn.memory.host_backoff.get(pool)?;
    hosts.get(&find_host_key(turn, pool, region, host))
}

/// What memory calls a host of a pool.
fn find_host_key(
    turn: &DecisionBuilder<'_>,
    pool: &str,
    region: &str,
    host: &Arc<str>,
) -> Arc<str> {
    let policy = turn.view.policy.pools.get(pool);
    policy.map_or_else(|| host.clone(), |policy| policy.host_key(region, host))
}

fn find_pool_backoff<'t>(turn: &'t DecisionBuilder<'_>, pool: &str) -> Option<&'t Backoff> {
    let backoff = turn.memory.backoff.get(pool);
    backoff.filter(|backoff| backoff.until > turn.now())
}

/// The back-off that ends first, where a pool waits on every host that could make a machine of it.
fn find_backoff_on_all_hosts<'t>(turn: &'t DecisionBuilder<'_>, name: &str) -> Option<&'t Backoff> {
    let failed = turn.memory.host_backoff.get(name)?;
    let pool = turn.view.policy.pools.get(name)?;
    let regions = &turn.view.snapshot.regions;
    let regions = pool
        .everywhere()
        .filter_map(|there| Some((there, regions.get(&there.region)?)));
    let usable = regions.flat_map(|(there, region)| {
        let hosts = region.hosts.keys();
        let has_a_copy =
            |host: &&Arc<str>| there.may_use(host) && reach::copy(region, there, host).is_ok();
        hosts
            .filter(has_a_copy)
            .map(|host| pool.host_key(&there.region, host))
    });
    let mut usable = usable.collect::<Vec<_>>().into_iter();
    let mut first: Option<&Backoff> = None;
    let all = usable.all(|host| {
        let waits = failed.get(&host).filter(|there| there.until > turn.now());
        let sooner = waits.filter(|there| first.is_none_or(|first| there.until < first.until));
        first = sooner.or(first);
        waits.is_some()
    });
    first.filter(|_| all)
}

/// A pool with machines from before this memory began, none of which works: its back-off may have
/// been lost with the memory, so it waits out a first one.
fn find_end_of_forgotten(turn: &DecisionBuilder<'_>, pool: &str) -> Option<Time> {
    let began = turn.memory.began?;
    let until = began + turn.view.policy.scale_up.backoff_first;
    if until <= turn.now() || turn.memory.retried.contains_key(pool) {
        return None;
    }
    let mut of_pool = turn
        .view
        .machines
        .values()
        .filter(|machine| machine.pool_name() == pool)
        .peekable();
    of_pool.peek()?;
    let (mut working, mut older) = (false, false);
    for machine in of_pool {
        working |= is_working(machine);
        older |= machine.seen.mark.created < began;
    }
    (older && !working).then_some(until)
}

fn is_working(machine: &MachineView<'_>) -> bool {
    machine.phase == MachinePhase::Up && machine.ready()
}

/// A failure that was not counted yet.
struct Failed {
    at: Time,
    machine: Arc<str>,
    pool: Arc<str>,
    host: Arc<str>,
    message: ForeignText,
    /// A sentence that says what a person can do about the failure; `message` ends with it.
    advice: Option<ForeignText>,
    /// The machine failed before its VM ran, so that the host is to blame and not the guest.
    before_it_ran: bool,
    /// Whether it counts, and by whose memory.
    kind: FailureKind,
    /// When the machine was planned.
    created: Time,
}

/// Whether a failure makes a pool or a host wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailureKind {
    /// It counts.
    Lasting,
    /// It is nobody's fault: it counts from the second on.
    Transient,
    /// Somebody shut its node out: it counts from the second on.
    ShutOut,
}

/// Counts the failures that were not counted yet, and forgets what is over.
pub(crate) fn count_failures(turn: &mut DecisionBuilder<'_>) {
    let scale_up = &turn.view.policy.scale_up;
    let lengths = Lengths {
        first: scale_up.backoff_first,
        max: scale_up.backoff_max,
        reset: scale_up.backoff_reset,
    };
    for failed in find_uncounted(turn) {
        turn.memory.counted_failures.insert(failed.machine.clone());
        if failed.kind != FailureKind::Lasting && !has_failed_before(turn, &failed) {
            continue;
        }
        let words = FailureWords {
            message: format!("{}: {}", failed.machine, failed.message).into(),
            advice: failed.advice,
        };
        let hosts = turn.memory.host_backoff.entry(failed.pool.clone());
        let hosts = hosts.or_default();
        let before = hosts.get(&failed.host);
        if failed.before_it_ran {
            let next = lengths.compute_next(before, failed.at, words);
            hosts.insert(failed.host, next);
            continue;
        }
        let lately = Backoff {
            advice: words.advice.clone(),
            failed: failed.at,
            message: words.message.clone(),
            until: before.map_or(failed.at, |before| before.until),
            length: before.map_or(Span::ZERO, |before| before.length),
        };
        hosts.insert(failed.host, lately);
        let of_pool = turn.memory.backoff.get(&failed.pool);
        let next = lengths.compute_next(of_pool, failed.at, words);
        turn.memory.backoff.insert(failed.pool, next);
    }
    forget_old_failures(turn, lengths.reset);
}

/// Whether a machine of the pool had failed by nobody's fault when this one was planned. The first such failure since a machine of the pool
/// came to work is remembered, so that machines that are made in turns do not excuse each other.
fn has_failed_before(turn: &mut DecisionBuilder<'_>, failed: &Failed) -> bool {
    let first = match failed.kind {
        FailureKind::ShutOut => &mut turn.memory.shut_out,
        FailureKind::Transient | FailureKind::Lasting => &mut turn.memory.transient_failures,
    };
    let Some(first) = first.get(&failed.pool) else {
        first.insert(failed.pool.clone(), failed.at);
        return false;
    };
    // The next machine may be planned in the turn that sees the first one fail.
    failed.created >= *first
}

/// A failure, and what to do about it.
struct FailureWords {
    message: ForeignText,
    advice: Option<ForeignText>,
}

/// How long is waited.
struct Lengths {
    first: Span,
    max: Span,
    reset: Span,
}

impl Lengths {
    /// The back-off after one more failure at `at`. `length` stays as it is where `before` had not ended then, doubles where it had, and begins
    /// anew where the failure before is longer ago than `reset`.
    fn compute_next(&self, before: Option<&Backoff>, at: Time, words: FailureWords) -> Backoff {
        let length = match before {
            Some(before) if at.since(before.failed) > self.reset => self.first,
            Some(before) if before.until > at => before.length,
            Some(before) => Span(before.length.0.saturating_mul(2))
                .max(self.first)
                .min(self.max),
            None => self.first,
        };
        let until = before.map_or(at + length, |before| before.until.max(at + length));
        let last = before.map_or(Time::default(), |before| before.failed);
        Backoff {
            advice: words.advice,
            until,
            length,
            failed: at.max(last),
            message: words.message,
        }
    }
}

/// The failures that were not counted yet, in their order.
fn find_uncounted(turn: &mut DecisionBuilder<'_>) -> Vec<Failed> {
    let now = turn.now();
    let mut wakes = Vec::new();
    let longest = turn.view.policy.scale_up.max_provision_time;
    let mut failed = Vec::new();
    for machine in turn.view.machines.values() {
        if turn.memory.counted_failures.contains(machine.name) {
            continue;
        }
        let (at, message, before_it_ran) = match (&machine.phase, &machine.seen.failure) {
            (MachinePhase::Failed, Some(failure)) => (
                failure.at.min(now),
                failure.message.clone(),
                failure.step <= Step::Start,
            ),
            // What is not read says of nobody that it is slow: it may be there for long.
            (MachinePhase::Overdue, _) if turn.holds.unread_in(&machine.seen.region).is_some() => {
                continue;
            }
            // Whose fault it is that it is slow nobody knows.
            (MachinePhase::Overdue, _) => {
                let message = format!("not initialised after {longest}");
                (now, message.into(), false)
            }
            _ => match shut_out::find(turn, machine) {
                Some((from, message)) if from <= now => (now, message, false),
                Some((from, _)) => {
                    wakes.push(from);
                    continue;
                }
                None => continue,
            },
        };
        let there = machine.seen.failure.as_ref();
        let advice = there.filter(|_| machine.phase == MachinePhase::Failed);
        let advice = advice.and_then(|failure| failure.advice.clone());
        let kind = match machine.phase {
            MachinePhase::Up => FailureKind::ShutOut,
            MachinePhase::Failed if there.is_some_and(|failure| failure.transient) => {
                FailureKind::Transient
            }
            _ => FailureKind::Lasting,
        };
        let there = there.and_then(|failure| failure.host.as_ref());
        let host = there.unwrap_or(&machine.seen.host);
        failed.push(Failed {
            at,
            machine: machine.name.clone(),
            pool: machine.pool_name().into(),
            host: find_host_key(turn, machine.pool_name(), &machine.seen.region, host),
            message,
            advice,
            before_it_ran,
            kind,
            created: machine.seen.mark.created,
        });
    }
    failed.sort_by(|a, b| (a.at, &a.machine).cmp(&(b.at, &b.machine)));
    for wake in wakes {
        turn.wake_at(wake);
    }
    failed
}

fn forget_old_failures(turn: &mut DecisionBuilder<'_>, reset: Span) {
    let now = turn.now();
    let machines = &turn.view.snapshot.machines;
    turn.memory
        .counted_failures
        .retain(|name| machines.contains_key(name));
    // Once that first back-off is over nobody asks for it any more.
    let began = turn.memory.began;
    let first = turn.view.policy.scale_up.backoff_first;
    turn.memory
        .retried
        .retain(|_, _| began.is_some_and(|began| began + first > now));
    let counts = |backoff: &Backoff| now.since(backoff.failed) <= reset || backoff.until > now;
    turn.memory.backoff.retain(|_, backoff| counts(backoff));
    forget_transient(turn, reset);
    if turn.memory.host_backoff.is_empty() {
        return;
    }
    let mut works_since: BTreeMap<(&str, Arc<str>), Time> = BTreeMap::new();
    for machine in turn
        .view
        .machines
        .values()
        .filter(|machine| is_working(machine))
    {
        let seen = machine.seen;
        let host = find_host_key(turn, machine.pool_name(), &seen.region, &seen.host);
        let there = (machine.pool_name(), host);
        let last = works_since.entry(there).or_default();
        *last = (*last).max(seen.mark.created);
    }
    let pools = &mut turn.memory.host_backoff;
    for (pool, hosts) in pools.iter_mut() {
        hosts.retain(|host, backoff| {
            let worked = works_since.get(&(&**pool, host.clone()));
            counts(backoff) && worked.is_none_or(|created| *created <= backoff.failed)
        });
    }
    pools.retain(|_, hosts| !hosts.is_empty());
}

/// Forgets failures that count from the second on and that are long ago, or after which a machine was made that works, or carries a pod.
fn forget_transient(turn: &mut DecisionBuilder<'_>, reset: Span) {
    let now = turn.now();
    let (view, last) = (&turn.view, &mut turn.memory.transient_failures);
    last.retain(|pool, at| {
        let mut of_pool = view
            .machines
            .values()
            .filter(|machine| machine.pool_name() == &**pool);
        let overcome =
            of_pool.any(|machine| is_working(machine) && machine.seen.mark.created > *at);
        now.since(*at) <= reset && !overcome
    });
    let mut shut_out = std::mem::take(&mut turn.memory.shut_out);
    shut_out.retain(|pool, at| {
        let mut of_pool = turn
            .view
            .machines
            .values()
            .filter(|machine| machine.pool_name() == &**pool);
        let overcome = of_pool.any(|machine| shut_out::is_overcome(turn, machine, *at));
        now.since(*at) <= reset && !overcome
    });
    turn.memory.shut_out = shut_out;
}

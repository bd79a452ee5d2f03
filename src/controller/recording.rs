//! What the loop tells the record of decisions.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::controller::askers::PersonOrder;
use crate::controller::daemon::DaemonParts;
use crate::controller::executor::Observer;
use crate::controller::host_decisions::HostDecisions;
use crate::controller::journal::JournalEntry;
use crate::controller::state::StateFiles;
use crate::controller::turn::Turn;
use crate::controller::usual::{self, UsualTimes};
use crate::kubernetes::lease;
use crate::model::action::Action;
use crate::model::memory::Memory;
use crate::model::policy::Policy;
use crate::model::region::{Failure, RegionName, Step};
use crate::model::snapshot::Snapshot;
use crate::model::time::Span;
use crate::record::{
    RecordLimits, RecordSender, RecordStart, RecordedTurn, TurnRecorder, WhenFull,
};

/// The record of this loop, if one is wanted, and what is asked of the record beside the loop.
#[derive(Debug)]
pub(super) struct Recording {
    on: Option<On>,
    made: HostDecisions,
    usual: UsualTimes,
}

#[derive(Debug)]
struct On {
    recorder: TurnRecorder,
    policy: Arc<Policy>,
    /// Where it is noted who asked for what.
    state: StateFiles,
    /// What was lost and is told.
    lost: Cell<u64>,
    /// Whether there was a turn: a pause that holds at the start is no news.
    begun: Cell<bool>,
    /// The reason of the pause that held in the last turn; `None`: there was no pause.
    paused: RefCell<Option<String>>,
    /// This host.
    own: String,
    /// The host of the other instance that leads, as it was told last; `None`: this one leads, or nothing was told.
    other: RefCell<Option<String>>,
    /// The evacuated hosts of the last turn.
    evacuated: RefCell<BTreeSet<(RegionName, Arc<str>)>>,
}

impl Recording {
    /// Begins, if the configuration wants it.
    pub(super) fn begin(parts: &DaemonParts) -> Recording {
        // A record that is not written any more may still be there.
        let made = HostDecisions::of_record(parts.state.record());
        let pools = &parts.settings.policy.pools;
        let usual = UsualTimes::begin(parts.state.path(usual::FILE), |pool| {
            pools.contains_key(pool)
        });
        let wanted = &parts.settings.recorder;
        if !wanted.enabled {
            let on = None;
            return Recording { on, made, usual };
        }
        let limits = RecordLimits {
            max_bytes: u64::try_from(wanted.max_size).unwrap_or(0),
            max_age: wanted.max_age,
        };
        let full = match parts.clock {
            Clock::System => WhenFull::LeaveOut,
            Clock::Virtual { .. } | Clock::Settable { .. } => WhenFull::Wait,
        };
        let start = RecordStart {
            host: parts.identity.clone(),
            ..parts.begins.clone().unwrap_or_default()
        };
        let recorder = TurnRecorder::begin(parts.state.record(), limits, full, start);
        let on = recorder.map(|recorder| On {
            recorder,
            policy: Arc::new(parts.settings.policy.clone()),
            state: parts.state.clone(),
            lost: Cell::new(0),
            begun: Cell::new(false),
            paused: RefCell::default(),
            own: parts.identity.clone(),
            other: RefCell::default(),
            evacuated: RefCell::default(),
        });
        Recording { on, made, usual }
    }

    /// Why machines came to their hosts, for those who ask after a turn.
    pub(super) fn made(&self) -> HostDecisions {
        self.made.clone()
    }

    /// What steps usually take, for those who ask after a turn.
    pub(super) fn usual(&self) -> UsualTimes {
        self.usual.clone()
    }

    /// An observer that tells the record, and those who ask what is usual, too.
    pub(super) fn hearing(&self, observer: &Arc<dyn Observer>, clock: Clock) -> Arc<dyn Observer> {
        Arc::new(Hearing {
            observer: observer.clone(),
            teller: self.on.as_ref().map(|on| on.recorder.teller()),
            usual: self.usual(),
            clock,
        })
    }

    /// A decision was made; `before` is what was remembered, if it was something else, and `retried` the pools whose waits somebody
    /// ended for it. What people asked for stands before what was decided because of it; at the beginning of a record nothing
    /// can stand before the first decision.
    pub(super) fn decided(
        &self,
        turn: &Turn,
        before: Option<Memory>,
        retried: &BTreeSet<Arc<str>>,
    ) {
        self.made.decided(turn);
        if let Some(on) = &self.on {
            let begun = on.begun.replace(true);
            if begun {
                on.leads(turn);
                on.asked(turn, retried);
            }
            on.recorder.decided(RecordedTurn {
                number: turn.number,
                at: turn.at,
                snapshot: turn.snapshot.clone(),
                policy: on.policy.clone(),
                memory: before,
                decision: turn.decision.clone(),
            });
            if !begun {
                on.paused.replace(turn.snapshot.paused.clone());
                on.evacuated.replace(evacuated(&turn.snapshot));
                on.leads(turn);
                on.asked(turn, retried);
            }
        }
    }

    /// Tells of what could not be recorded since this was last asked.
    pub(super) fn tell_lost(&self, observer: &dyn Observer) {
        if let Some(on) = &self.on {
            let all = on.recorder.lost();
            let news = all - on.lost.replace(all);
            if news > 0 {
                observer.not_recorded(news);
            }
        }
    }

    /// Records that an action was not begun, and why.
    pub(super) fn not_begun(&self, action: &Action, turn: &Turn, why: String) {
        if let Some(on) = &self.on {
            let teller = on.recorder.teller();
            teller.not_begun(turn.number, action, why, turn.at);
        }
    }
}

impl On {
    /// Tells who leads, where that is another instance than before. A Lease that nobody is known to hold says nothing, and one in this
    /// host's name is of an earlier start of this daemon.
    fn leads(&self, turn: &Turn) {
        let snapshot = &turn.snapshot;
        let holder = lease::host_of(&snapshot.lease.holder);
        if !snapshot.leader && (holder.is_empty() || holder == self.own) {
            return;
        }
        let other = (!snapshot.leader).then(|| holder.to_owned());
        if self.other.replace(other.clone()) != other {
            self.recorder.teller().leads(other, turn.at);
        }
    }

    /// Tells what people asked for since the turn before.
    fn asked(&self, turn: &Turn, retried: &BTreeSet<Arc<str>>) {
        let teller = self.recorder.teller();
        let paused = &turn.snapshot.paused;
        if self.paused.replace(paused.clone()) != *paused {
            match paused {
                Some(reason) => teller.asked("pause", reason, None, turn.at),
                None => {
                    let by = self.state.take_asker(PersonOrder::Resume);
                    let by = by.map_or_else(String::new, |by| format!("by {by}"));
                    teller.asked("resume", &by, None, turn.at);
                }
            }
        }
        for pool in retried {
            let by = self.state.take_asker(PersonOrder::Retry { pool });
            teller.asked("retry", pool, by, turn.at);
        }
        let now = evacuated(&turn.snapshot);
        let before = self.evacuated.replace(now.clone());
        let several = turn.snapshot.regions.len() > 1;
        let told = |region: &str, host: &str| {
            if several {
                format!("{region}/{host}")
            } else {
                host.to_owned()
            }
        };
        for (region, host) in now.difference(&before) {
            let by = self
                .state
                .take_asker(PersonOrder::Evacuate { region, host });
            teller.asked("evacuate", &told(region, host), by, turn.at);
        }
        for (region, host) in before.difference(&now) {
            let by = self
                .state
                .take_asker(PersonOrder::EndEvacuation { region, host });
            teller.asked("evacuate --end", &told(region, host), by, turn.at);
        }
    }
}

/// The hosts that a person evacuates, each with its region.
fn evacuated(snapshot: &Snapshot) -> BTreeSet<(RegionName, Arc<str>)> {
    let all = snapshot.regions.iter().flat_map(|(name, region)| {
        let hosts = region
            .hosts
            .iter()
            .filter(|(_, host)| host.evacuated.is_some());
        hosts.map(move |(host, _)| (name.clone(), host.clone()))
    });
    all.collect()
}

/// An observer, and beside it the record, if one is wanted, and what is usual.
#[derive(Debug)]
struct Hearing {
    observer: Arc<dyn Observer>,
    teller: Option<RecordSender>,
    usual: UsualTimes,
    clock: Clock,
}

impl Observer for Hearing {
    fn begun(&self, action: &Action, entry: Option<&JournalEntry>) {
        self.usual.begun(action, entry);
        self.observer.begun(action, entry);
    }

    fn moment(&self, machine: &str, what: &'static str) {
        self.observer.moment(machine, what);
    }

    fn step(&self, machine: &str, step: Step, took: Span, failure: Option<&Failure>) {
        let now = self.clock.now();
        if failure.is_none() {
            self.usual.note(machine, step, took);
        }
        if let Some(teller) = &self.teller {
            teller.step(machine, step, took, failure.is_none(), now);
        }
        self.observer.step(machine, step, took, failure);
    }

    fn evicted(&self, ok: bool) {
        self.observer.evicted(ok);
    }

    fn turned(&self, took: Duration) {
        self.observer.turned(took);
    }

    fn stopped(&self) {
        self.observer.stopped();
    }

    fn not_recorded(&self, many: u64) {
        self.observer.not_recorded(many);
    }

    fn ended(&self, action: &Action, failure: Option<&Failure>) {
        self.usual.ended(&action.target.machine);
        if let Some(teller) = &self.teller {
            teller.ended(action, failure, self.clock.now());
        }
        self.observer.ended(action, failure);
    }
}

//! The election's promise: never two leaders, whatever gets lost or stalls.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{Election, ElectionStep, LeaseRecord, Timing};

const TICK: Duration = Duration::from_millis(100);
const HOURS: u64 = 1;

/// The Lease with the API server's compare-and-swap.
#[derive(Default)]
struct Server {
    record: Option<LeaseRecord>,
    version: u64,
}

impl Server {
    fn write(&mut self, mut record: LeaseRecord, create: bool) -> Result<LeaseRecord, ()> {
        let current = self.record.as_ref().map(|r| r.version.clone());
        let fits = match (&current, create) {
            (None, true) => true,
            (Some(version), false) => *version == record.version,
            _ => false,
        };
        if !fits {
            return Err(());
        }
        self.version += 1;
        record.version = self.version.to_string();
        self.record = Some(record.clone());
        Ok(record)
    }
}

enum Flight {
    /// A read that reaches the server at the time, and whose answer is back at the second.
    Read {
        at: Duration,
        back: Option<Duration>,
    },
    Write {
        at: Duration,
        back: Option<Duration>,
        sent: Duration,
        record: LeaseRecord,
        create: bool,
    },
    ReadBack {
        back: Duration,
        answer: Option<LeaseRecord>,
    },
    WriteBack {
        back: Duration,
        sent: Duration,
        answer: Result<LeaseRecord, ()>,
    },
    Lost {
        until: Duration,
    },
    Idle {
        until: Duration,
    },
}

/// One contender with its own monotonic clock, which began at another time.
struct Contender {
    election: Election,
    offset: Duration,
    flight: Flight,
    stalled: Duration,
}

impl Contender {
    fn mono(&self, now: Duration) -> Duration {
        now + self.offset
    }

    /// Holds by its own judgement. A stalled process does not act, but one that wakes asks anew.
    fn holds(&self, now: Duration) -> bool {
        self.election.held_until(self.mono(now)).is_some()
    }

    fn begin(&mut self, now: Duration, rng: &mut StdRng) {
        let own = self.election.own().cloned();
        match own {
            Some(own) => self.send(now, Some(&own), rng),
            None => {
                let (at, back) = trip(now, rng);
                self.flight = Flight::Read { at, back };
            }
        }
    }

    fn send(&mut self, now: Duration, old: Option<&LeaseRecord>, rng: &mut StdRng) {
        let wall = "whatever the wall clock says";
        let record = self.election.write_over(old, wall);
        let (at, back) = trip(now, rng);
        self.flight = Flight::Write {
            at,
            back,
            sent: self.mono(now),
            record,
            create: old.is_none(),
        };
    }
}

/// When a request arrives and when its answer is back; a tenth is lost either way.
fn trip(now: Duration, rng: &mut StdRng) -> (Duration, Option<Duration>) {
    let slow = if rng.random_bool(0.05) { 30_000 } else { 300 };
    let at = now + Duration::from_millis(rng.random_range(1..slow));
    let back = at + Duration::from_millis(rng.random_range(1..slow));
    (at, (!rng.random_bool(0.1)).then_some(back))
}

fn advance(contender: &mut Contender, server: &mut Server, now: Duration, rng: &mut StdRng) {
    if now < contender.stalled {
        // the process stands still; what is under way on the network goes on
        if !matches!(contender.flight, Flight::Read { .. } | Flight::Write { .. }) {
            return;
        }
    }
    let timing = Timing::DEFAULT;
    let flight = std::mem::replace(&mut contender.flight, Flight::Idle { until: now });
    contender.flight = match flight {
        Flight::Read { at, back } if now >= at => match back {
            Some(back) => Flight::ReadBack {
                back,
                answer: server.record.clone(),
            },
            None => Flight::Lost {
                until: at + timing.call,
            },
        },
        Flight::Write {
            at,
            back,
            sent,
            record,
            create,
        } if now >= at => {
            let answer = server.write(record, create);
            match back {
                Some(back) => Flight::WriteBack { back, sent, answer },
                None => Flight::Lost {
                    until: at + timing.call,
                },
            }
        }
        Flight::ReadBack { back, answer } if now >= back => {
            let mono = contender.mono(now);
            match contender.election.observe(mono, answer) {
                ElectionStep::Create => return contender.send(now, None, rng),
                ElectionStep::Take(old) | ElectionStep::Renew(old) => {
                    return contender.send(now, Some(&old), rng);
                }
                ElectionStep::Wait(_) => Flight::Idle {
                    until: now + timing.retry,
                },
            }
        }
        Flight::WriteBack { back, sent, answer } if now >= back => {
            if let Ok(record) = answer {
                let mono = contender.mono(now);
                contender.election.written(sent, mono, record);
                Flight::Idle {
                    until: now + timing.retry,
                }
            } else {
                let (at, back) = trip(now, rng);
                Flight::Read { at, back }
            }
        }
        Flight::Lost { until } if now >= until => {
            let (at, back) = trip(now, rng);
            Flight::Read { at, back }
        }
        Flight::Idle { until } if now >= until => return contender.begin(now, rng),
        other => other,
    };
}

#[derive(Default)]
struct Outcome {
    led: u64,
    leaders: std::collections::BTreeSet<usize>,
    doubled: Option<Duration>,
}

fn simulate(seed: u64, give_up: Duration) -> Outcome {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut server = Server::default();
    let mut contenders: Vec<Contender> = (0..3)
        .map(|number| Contender {
            election: Election::new(
                format!("host-{number}"),
                Timing {
                    give_up,
                    ..Timing::DEFAULT
                },
            ),
            offset: Duration::from_secs(rng.random_range(0..1_000_000)),
            flight: Flight::Idle {
                until: Duration::ZERO,
            },
            stalled: Duration::ZERO,
        })
        .collect();
    let mut outcome = Outcome::default();
    let mut now = Duration::ZERO;
    while now < Duration::from_secs(HOURS * 3_600) {
        now += TICK;
        for contender in &mut contenders {
            if rng.random_bool(0.000_3) {
                contender.stalled = now + Duration::from_millis(rng.random_range(0..40_000));
            }
            advance(contender, &mut server, now, &mut rng);
        }
        let holders: Vec<usize> = (0..contenders.len())
            .filter(|number| contenders[*number].holds(now))
            .collect();
        outcome.led += u64::from(!holders.is_empty());
        outcome.leaders.extend(&holders);
        if holders.len() > 1 {
            outcome.doubled.get_or_insert(now);
        }
    }
    outcome
}

#[test]
fn there_are_never_two_leaders() {
    let mut changes = 0;
    for seed in 0..40 {
        let outcome = simulate(seed, Timing::DEFAULT.give_up);
        assert_eq!(outcome.doubled, None, "two leaders with seed {seed}");
        let ticks = HOURS * 36_000;
        assert!(
            outcome.led > ticks / 2,
            "seed {seed}: somebody led in {} of {ticks} ticks only",
            outcome.led
        );
        changes += usize::from(outcome.leaders.len() > 1);
    }
    assert!(
        changes > 10,
        "the faults are too mild to move the lease: {changes}"
    );
}

#[test]
fn a_holder_that_stops_too_late_is_found_out() {
    // The planted bug: giving up after the duration instead of before it.
    let late = Duration::from_secs(45);
    assert!(
        (0..40).any(|seed| simulate(seed, late).doubled.is_some()),
        "the model does not see two leaders where there are two"
    );
}

fn record(holder: &str, version: &str) -> LeaseRecord {
    LeaseRecord {
        version: version.into(),
        holder: holder.into(),
        duration: Duration::from_secs(30),
        transitions: 4,
        acquired: "then".into(),
    }
}

#[test]
fn a_lease_is_taken_only_after_it_stood_still_for_its_whole_duration() {
    let seconds = Duration::from_secs;
    let mut election = Election::new("me".into(), Timing::DEFAULT);
    let others = record("other", "7");
    assert_eq!(
        election.observe(seconds(100), Some(others.clone())),
        ElectionStep::Wait(seconds(130))
    );
    assert_eq!(
        election.observe(seconds(129), Some(others)),
        ElectionStep::Wait(seconds(130))
    );
    let renewed = record("other", "8");
    assert_eq!(
        election.observe(seconds(130), Some(renewed.clone())),
        ElectionStep::Wait(seconds(160))
    );
    assert_eq!(
        election.observe(seconds(160), Some(renewed.clone())),
        ElectionStep::Take(renewed.clone())
    );
    let mine = election.write_over(Some(&renewed), "now");
    assert_eq!(
        (mine.transitions, &*mine.acquired, &*mine.version),
        (5, "now", "8")
    );
}

#[test]
fn a_lease_that_was_given_back_is_free_at_once() {
    let mut election = Election::new("me".into(), Timing::DEFAULT);
    let free = record("", "9");
    assert_eq!(
        election.observe(Duration::ZERO, Some(free.clone())),
        ElectionStep::Take(free)
    );
    assert_eq!(election.observe(Duration::ZERO, None), ElectionStep::Create);
}

#[test]
fn holding_ends_by_the_time_of_sending_and_with_anothers_write() {
    let seconds = Duration::from_secs;
    let mut election = Election::new("me".into(), Timing::DEFAULT);
    election.written(seconds(10), seconds(14), record("me", "3"));
    assert_eq!(election.held_until(seconds(29)), Some(seconds(30)));
    assert_eq!(election.held_until(seconds(30)), None);
    let mine = election.write_over(Some(&record("me", "3")), "now");
    assert_eq!((mine.transitions, &*mine.acquired), (4, "then"));
    election.observe(seconds(15), Some(record("other", "4")));
    assert_eq!(election.held_until(seconds(15)), None);
}

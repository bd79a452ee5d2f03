//! Who has addresses on the wire that machines may get: asked right before, and remembered for a while.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::timeout;

use crate::clock::Clock;
use crate::model::on_wire::{AddressHolder, HolderSign};
use crate::model::time::{Span, Time};
use crate::wire::{Wire, WireAnswer};

/// How long no machine gets an address that somebody has. A device that restarts is silent for some minutes and keeps its
/// address so; and whoever frees an address, or mends a range that is full of others, waits no longer than this.
const KEPT: Span = Span::minutes(10);
/// How long no machine gets an address that somebody had less than a minute ago, by the kernel's table: after that the kernel asks again when it is
/// sent something.
const KEPT_FORMER: Span = Span::minutes(1);
/// An answer that takes longer is none. The wire's own time is less: 9 s where the kernel knew somebody.
const DEADLINE: Duration = Duration::from_secs(12);
/// How many addresses of a network that somebody has, one after the other, are an ordinary range with others in it. From then on each more is waited
/// for before the next is tried: perhaps a router answers for all.
const ROW: u32 = 8;
/// What is waited for after that, at most; the first time a second, and twice as long each time.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// The wire, and what was found on it.
#[derive(Clone, Debug)]
pub struct WireBook {
    wire: Arc<dyn Wire>,
    holders: Arc<Mutex<BTreeMap<IpAddr, AddressHolder>>>,
    /// How many addresses of a network somebody had, one after the other.
    rows: Arc<Mutex<BTreeMap<Arc<str>, u32>>>,
}

impl WireBook {
    /// Nothing was found yet.
    pub fn new(wire: Arc<dyn Wire>) -> WireBook {
        WireBook {
            wire,
            holders: Arc::default(),
            rows: Arc::default(),
        }
    }

    /// Takes note whether somebody had the addresses of a machine in a network. How long to wait before another one is tried.
    pub(super) fn pause(&self, network: &Arc<str>, held: bool) -> Duration {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        if !held {
            rows.remove(network);
            return Duration::ZERO;
        }
        let row = rows.entry(network.clone()).or_default();
        *row = row.saturating_add(1);
        match row.checked_sub(ROW + 1) {
            None => Duration::ZERO,
            Some(more) => Duration::from_secs(1 << more.min(6)).min(LONGEST_PAUSE),
        }
    }

    /// Who has addresses, of what was asked lately.
    pub fn holders(&self, now: Time) -> BTreeMap<IpAddr, AddressHolder> {
        let mut holders = self.lock();
        // What lies in the future was seen before the clock was set back: it is asked for again.
        holders.retain(|_, holder| holder.seen <= now && now < holder.until);
        holders.clone()
    }

    /// Asks who has an address, and remembers it; `None`: nobody, as far as this host can see.
    pub(super) async fn ask(&self, address: IpAddr, clock: Clock) -> Option<AddressHolder> {
        let answer = timeout(DEADLINE, self.wire.ask(address)).await;
        let unseen = |why: &str| {
            tracing::warn!(%address, %why, "the address could not be asked for on the wire; a machine gets it all the same");
        };
        match answer {
            Ok(WireAnswer::Held { sign, mac }) => {
                let seen = clock.now();
                let kept = match sign {
                    HolderSign::FormerNeighbour => KEPT_FORMER,
                    HolderSign::Neighbour | HolderSign::Tcp | HolderSign::OwnHost => KEPT,
                };
                let holder = AddressHolder {
                    sign,
                    mac,
                    seen,
                    until: seen + kept,
                };
                self.lock().insert(address, holder.clone());
                return Some(holder);
            }
            Ok(WireAnswer::Silent) => {}
            Ok(WireAnswer::Unseen(why)) => unseen(&why),
            Err(_) => unseen("the host's kernel did not answer in time"),
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<IpAddr, AddressHolder>> {
        // The map is consistent at every point where a panic could happen.
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures::future::BoxFuture;

    use super::*;

    /// Answers the same to every question.
    #[derive(Debug)]
    struct Says(Option<WireAnswer>);

    impl Wire for Says {
        fn ask(&self, _: IpAddr) -> BoxFuture<'_, WireAnswer> {
            let answer = self.0.clone();
            Box::pin(async move {
                match answer {
                    Some(answer) => answer,
                    None => std::future::pending().await,
                }
            })
        }
    }

    fn asked(answer: Option<WireAnswer>) -> (WireBook, Option<AddressHolder>, Time) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let clock = Clock::starting_at(Time(1_000_000));
            let book = WireBook::new(Arc::new(Says(answer)));
            let found = book.ask(IpAddr::from([192, 0, 2, 50]), clock).await;
            (book, found, clock.now())
        })
    }

    #[test]
    fn who_answers_is_remembered_for_a_while() {
        let held = |sign| Some(WireAnswer::Held { sign, mac: None });
        let spans = [
            (HolderSign::Neighbour, Span::minutes(10)),
            (HolderSign::Tcp, Span::minutes(10)),
            (HolderSign::OwnHost, Span::minutes(10)),
            (HolderSign::FormerNeighbour, Span::minutes(1)),
        ];
        for (sign, kept) in spans {
            let (book, found, now) = asked(held(sign));
            let found = found.expect("somebody has it");
            assert_eq!((found.seen, found.until), (now, now + kept), "{sign:?}");
            assert_eq!(book.holders(now + kept - Span(1)).len(), 1, "{sign:?}");
            assert_eq!(book.holders(now + kept).len(), 0, "{sign:?}");
        }
        let (book, _, now) = asked(held(HolderSign::Neighbour));
        assert_eq!(
            book.holders(now - Span(1)).len(),
            0,
            "the clock was set back"
        );
    }

    #[test]
    fn a_range_that_answers_everywhere_is_tried_more_and_more_seldom() {
        let book = WireBook::new(Arc::new(Says(None)));
        let (one, other): (Arc<str>, Arc<str>) = ("one".into(), "other".into());
        let pauses: Vec<u64> = (0..16).map(|_| book.pause(&one, true).as_secs()).collect();
        assert_eq!(pauses[..9], [0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(pauses[9..], [2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(book.pause(&other, true), Duration::ZERO);
        assert_eq!(book.pause(&one, false), Duration::ZERO);
        assert_eq!(book.pause(&one, true), Duration::ZERO, "it begins anew");
    }

    #[test]
    fn silence_and_a_wire_that_does_not_answer_hold_nobody_up() {
        let answers = [
            Some(WireAnswer::Silent),
            Some(WireAnswer::Unseen("no route".to_owned())),
            None,
        ];
        for answer in answers {
            let (book, found, now) = asked(answer.clone());
            assert_eq!(found, None, "{answer:?}");
            assert_eq!(book.holders(now).len(), 0, "{answer:?}");
            assert!(now <= Time(1_000_000) + Span::seconds(12), "{answer:?}");
        }
    }
}

//! Guessing passwords is slow: each address that failed often waits, and so do all strangers while many fail.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Failures of one address before it waits; each more doubles the wait.
const FREE: u32 = 5;
const LONGEST_WAIT: Duration = Duration::from_mins(1);
/// What is forgotten after this long without a failure.
const FORGET: Duration = Duration::from_hours(1);
/// Addresses that are remembered.
const MOST_PEERS: usize = 256;
/// Failures of all addresses together in a while; then those wait that have never logged in.
const MOST_FAILURES: usize = 60;
const WHILE: Duration = Duration::from_mins(10);

/// Who failed how often.
#[derive(Debug, Default)]
pub(super) struct Tries(Mutex<LoginFailures>);

#[derive(Debug, Default)]
struct LoginFailures {
    peers: BTreeMap<IpAddr, PeerFailures>,
    /// When the last failures of all were.
    failures: VecDeque<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct PeerFailures {
    failures: u32,
    until: Instant,
    last: Instant,
    /// It has logged in.
    good: bool,
}

impl Tries {
    /// How long this address has to wait before a password of it is looked at.
    pub(super) fn wait(&self, from: IpAddr, now: Instant) -> Option<Duration> {
        let mut known = self.known();
        let peer = known.peers.get(&network(from)).copied();
        let own = peer.and_then(|peer| peer.until.checked_duration_since(now));
        let own = own.filter(|wait| !wait.is_zero());
        if own.is_some() || peer.is_some_and(|peer| peer.good) {
            return own;
        }
        let old = |at: &Instant| now.duration_since(*at) >= WHILE;
        while known.failures.front().is_some_and(old) {
            known.failures.pop_front();
        }
        if known.failures.len() < MOST_FAILURES {
            return None;
        }
        known
            .failures
            .front()
            .map(|first| WHILE.saturating_sub(now.duration_since(*first)))
    }

    /// Notes a wrong password.
    pub(super) fn failed(&self, from: IpAddr, now: Instant) {
        let mut known = self.known();
        let peer = known.peer(from, now);
        peer.failures = peer.failures.saturating_add(1);
        let over = peer.failures.saturating_sub(FREE);
        if over > 0 {
            let wait = Duration::from_secs(1 << over.min(10));
            peer.until = now + wait.min(LONGEST_WAIT);
        }
        if known.failures.len() >= MOST_FAILURES {
            known.failures.pop_front();
        }
        known.failures.push_back(now);
    }

    /// Notes a right one.
    pub(super) fn succeeded(&self, from: IpAddr, now: Instant) {
        let mut known = self.known();
        let peer = known.peer(from, now);
        peer.failures = 0;
        peer.good = true;
    }

    fn known(&self) -> MutexGuard<'_, LoginFailures> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LoginFailures {
    /// What is known of an address; makes room for it.
    fn peer(&mut self, from: IpAddr, now: Instant) -> &mut PeerFailures {
        let from = network(from);
        if !self.peers.contains_key(&from) && self.peers.len() >= MOST_PEERS {
            // Those who have logged in are the last to go.
            let first = self
                .peers
                .iter()
                .min_by_key(|(_, peer)| (peer.good, peer.last));
            if let Some(first) = first.map(|(address, _)| *address) {
                self.peers.remove(&first);
            }
        }
        let new = PeerFailures {
            failures: 0,
            until: now,
            last: now,
            good: false,
        };
        let peer = self.peers.entry(from).or_insert(new);
        if now.duration_since(peer.last) >= FORGET {
            peer.failures = 0;
        }
        peer.last = now;
        peer
    }
}

/// An IPv6 host has a network of 64 bits to take addresses from.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
        IpAddr::V4(address) => address.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    #[tokio::test(start_paused = true)]
    async fn who_fails_often_waits_ever_longer_and_others_do_not() {
        let tries = Tries::default();
        let now = Instant::now();
        for _ in 0..FREE {
            assert_eq!(tries.wait(address(1), now), None);
            tries.failed(address(1), now);
        }
        assert_eq!(tries.wait(address(1), now), None);
        let mut waits = Vec::new();
        for _ in 0..8 {
            tries.failed(address(1), now);
            waits.extend(tries.wait(address(1), now).map(|wait| wait.as_secs()));
        }
        assert_eq!(waits, [2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(tries.wait(address(2), now), None);
        assert_eq!(tries.wait(address(1), now + LONGEST_WAIT), None);
        tries.succeeded(address(1), now + LONGEST_WAIT);
        tries.failed(address(1), now + LONGEST_WAIT);
        assert_eq!(tries.wait(address(1), now + LONGEST_WAIT), None);
    }

    #[tokio::test(start_paused = true)]
    async fn many_addresses_together_wait_and_who_is_known_does_not() {
        let tries = Tries::default();
        let now = Instant::now();
        tries.succeeded(address(200), now);
        for number in 0..MOST_FAILURES {
            let from = address(u8::try_from(number).expect("small"));
            assert_eq!(tries.wait(from, now), None, "{number}");
            tries.failed(from, now);
        }
        assert_eq!(tries.wait(address(201), now), Some(WHILE));
        assert_eq!(tries.wait(address(200), now), None);
        assert_eq!(tries.wait(address(201), now + WHILE), None);
        // Addresses without end: what is remembered has one, and who is known stays in it.
        for number in 0..100_000u32 {
            tries.failed(IpAddr::from(number.to_be_bytes()), now);
        }
        assert_eq!(tries.known().peers.len(), MOST_PEERS);
        assert_eq!(tries.known().failures.len(), MOST_FAILURES);
        assert!(tries.known().peers.contains_key(&address(200)));
    }

    #[test]
    fn one_ipv6_network_is_one_guesser() {
        let at = |text: &str| network(text.parse().expect("an address"));
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:0:0:1"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_eq!(at("::ffff:192.0.2.1"), address(1));
    }
}

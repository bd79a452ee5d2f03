//! Who acts: one of the instances that share a Lease, so that the package installed on three hosts
//! does not make triple nodes.
//!
//! client-go's rules (`tools/leaderelection`), on a monotonic clock alone: another's lease has run
//! out only when it was *observed* unchanged for its whole duration; every write names the
//! `resourceVersion` it replaces; and the holder stops acting [`Timing::give_up`] after it *sent*
//! its last successful write, before anybody may take over. Wall clocks are written for people and
//! never compared. A host that suspends stops its monotonic clock: fencing on every effect is the
//! answer to that, not this lease.

mod run;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use run::{Holder, Leadership, LeaseName, elect};

/// The name of our Lease; the RBAC manifest names it too.
pub const LEASE_NAME: &str = "pve-autoscaler";

/// The name under which an instance stands: its host's, and what tells it from another instance there.
pub fn identity(host: &str, chance: u64) -> String {
    format!("{host}_{chance:016x}")
}

/// The host of an instance that stands under this name; the whole name where it is of another form.
pub fn host_of(identity: &str) -> &str {
    match identity.rsplit_once('_') {
        Some((host, chance))
            if chance.len() == 16 && chance.bytes().all(|b| b.is_ascii_hexdigit()) =>
        {
            host
        }
        _ => identity,
    }
}

/// The spans of an election. `retry < give_up < duration`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long others must see the lease unchanged before they take it; whole seconds.
    pub duration: Duration,
    /// How long after sending its last successful write the holder goes on.
    pub give_up: Duration,
    /// Between two tries.
    pub retry: Duration,
    /// Longest wait for an answer of one try.
    pub call: Duration,
}

impl Timing {
    /// Twice client-go's defaults: a take-over may cost half a minute, a write every five seconds
    /// costs next to nothing.
    pub const DEFAULT: Timing = Timing {
        duration: Duration::from_secs(30),
        give_up: Duration::from_secs(20),
        retry: Duration::from_secs(5),
        call: Duration::from_secs(5),
    };
}

/// What a Lease says, as far as the election reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseRecord {
    /// `metadata.resourceVersion`.
    pub version: String,
    /// `spec.holderIdentity`; empty when it was given up.
    pub holder: String,
    /// `spec.leaseDurationSeconds`: what the holder asks others to wait.
    pub duration: Duration,
    /// `spec.leaseTransitions`.
    pub transitions: i32,
    /// `spec.acquireTime` as it stands.
    pub acquired: String,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElectionStep {
    /// Create the Lease.
    Create,
    /// Replace this record, by its version, with our own.
    Take(LeaseRecord),
    /// Write our own record again, by its version.
    Renew(LeaseRecord),
    /// It is somebody else's until then at least.
    Wait(Duration),
}

/// One contender's memory. Times are since any fixed point of its own monotonic clock.
#[derive(Clone, Debug)]
pub struct Election {
    identity: String,
    timing: Timing,
    /// The record as last seen, and when it was first seen so.
    seen: Option<(LeaseRecord, Duration)>,
    held_until: Option<Duration>,
}

impl Election {
    /// A contender. `identity` must be new for every start of the process: a lease held under an
    /// old start's name is somebody else's.
    pub fn new(identity: String, timing: Timing) -> Election {
        Election {
            identity,
            timing,
            seen: None,
            held_until: None,
        }
    }

    /// Until when we hold the lease, if we hold it.
    pub fn held_until(&self, now: Duration) -> Option<Duration> {
        self.held_until.filter(|until| now < *until)
    }

    /// The holder as last seen; empty when nobody holds it or nothing was seen.
    pub fn holder(&self) -> &str {
        self.seen.as_ref().map_or("", |(record, _)| &record.holder)
    }

    /// The record as last seen, and for how long it has stood like that.
    pub fn seen_for(&self, now: Duration) -> Option<(&LeaseRecord, Duration)> {
        let (record, since) = self.seen.as_ref()?;
        Some((record, now.saturating_sub(*since)))
    }

    /// Whether the Lease that was read last names us.
    pub fn names_us(&self) -> bool {
        self.holder() == self.identity
    }

    /// Takes in what was read (`None`: there is no Lease) and says what to do.
    pub fn observe(&mut self, now: Duration, read: Option<LeaseRecord>) -> ElectionStep {
        let Some(record) = read else {
            self.seen = None;
            return ElectionStep::Create;
        };
        let since = match &self.seen {
            Some((old, since)) if *old == record => *since,
            _ => now,
        };
        self.seen = Some((record.clone(), since));
        if record.holder == self.identity {
            return ElectionStep::Renew(record);
        }
        // Somebody else's write came after ours: whatever we thought we held is gone.
        self.held_until = None;
        if record.holder.is_empty() {
            return ElectionStep::Take(record);
        }
        let ends = since.saturating_add(record.duration);
        if now >= ends {
            ElectionStep::Take(record)
        } else {
            ElectionStep::Wait(ends)
        }
    }

    /// The record that [`ElectionStep::Create`], [`ElectionStep::Take`] and [`ElectionStep::Renew`] write over `old`.
    /// `wall` is this host's clock as text, for people.
    pub fn write_over(&self, old: Option<&LeaseRecord>, wall: &str) -> LeaseRecord {
        let renews = old.filter(|old| old.holder == self.identity);
        LeaseRecord {
            version: old.map(|old| old.version.clone()).unwrap_or_default(),
            holder: self.identity.clone(),
            duration: self.timing.duration,
            transitions: match (renews, old) {
                (Some(own), _) => own.transitions,
                (None, Some(other)) => other.transitions.saturating_add(1),
                (None, None) => 0,
            },
            acquired: renews.map_or_else(|| wall.to_owned(), |own| own.acquired.clone()),
        }
    }

    /// Our write, sent at `sent`, was carried out and the Lease is now `record`.
    pub fn written(&mut self, sent: Duration, now: Duration, record: LeaseRecord) {
        self.seen = Some((record, now));
        self.held_until = Some(sent.saturating_add(self.timing.give_up));
    }

    /// The record to renew without reading first: the one that we wrote last.
    pub fn own(&self) -> Option<&LeaseRecord> {
        self.seen
            .as_ref()
            .map(|(record, _)| record)
            .filter(|record| record.holder == self.identity)
    }

    /// We stop for good: nothing is held any more, whatever becomes of the last write.
    pub fn give_up(&mut self) {
        self.held_until = None;
    }
}

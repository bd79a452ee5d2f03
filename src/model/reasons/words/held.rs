//! What keeps the brain from acting, in words.

use std::fmt::{self, Display, Formatter};

use crate::reasons::{Held, Hindrance};
use crate::words::{count, some};

impl Display for Held {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Held::FormatVersion { seen, reads } => write!(
                f,
                "the view has format version {seen}, this program reads {reads}"
            ),
            Held::NotLeader { holder } => {
                write!(f, "this instance does not hold the lease")?;
                match holder {
                    Some(holder) => write!(f, ", {holder} does"),
                    None => Ok(()),
                }
            }
            Held::Paused { reason } => write!(f, "paused: {reason}"),
            Held::NoClusterId => write!(f, "{} is not known yet", crate::report::CLUSTER_ID),
            Held::ViewAhead { view, now } => write!(
                f,
                "the clock was set back: the view is of {view}, it is {now}"
            ),
            Held::MemoryAhead { remembered, now } => write!(
                f,
                "the clock was set back: something is remembered of {remembered}, it is {now}; timers start anew"
            ),
            Held::NotRead { sources } => {
                let verb = if sources.len() == 1 { "was" } else { "were" };
                write!(f, "{} {verb} not yet read completely", some(sources))
            }
            Held::Stale {
                sources,
                age,
                limit,
            } => write!(
                f,
                "the view of {} is {age} old, at most {limit} is allowed",
                some(sources)
            ),
            Held::RegionNotSeen { region } => {
                write!(f, "nothing was seen of the region {region} yet")
            }
            Held::NoQuorum { region } => {
                write!(f, "the PVE cluster of the region {region} has no quorum")
            }
            Held::RegionNotConfigured => write!(f, "its region is not in the configuration"),
            Held::ScaleDownDisabled => {
                write!(f, "scale-down is switched off in the configuration")
            }
            Held::ClusterUnhealthy {
                unready,
                nodes,
                allowed,
                percent,
            } => write!(
                f,
                "ClusterUnhealthy: {unready} of {nodes} nodes are not Ready, at most {allowed} or {percent} % are allowed"
            ),
            Held::AboveMax { .. }
            | Held::BelowMin { .. }
            | Held::BacksOff { .. }
            | Held::NoneWorks => of_pool(self, f),
        }
    }
}

/// What is on hold of a pool.
fn of_pool(held: &Held, f: &mut Formatter<'_>) -> fmt::Result {
    match held {
        Held::AboveMax { have, max, over } => write!(
            f,
            "it has {}, its max is {max}: none is made, and {over} shall go, those first that are the cheapest to take down",
            count(*have, "node")
        ),
        Held::BelowMin { have, min, refused } => {
            write!(f, "it has {have} nodes, its min is {min}, but {refused}")
        }
        Held::BacksOff { failure } => {
            write!(f, "it backs off")?;
            match failure {
                Some(failure) => write!(f, " after a failure: {failure}"),
                None => Ok(()),
            }
        }
        Held::NoneWorks => write!(
            f,
            "it has machines from before the memory began and none of them works"
        ),
        _ => Ok(()),
    }
}

impl Display for Hindrance {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.held.fmt(f)?;
        match &self.cause {
            Some(cause) => write!(f, ": {cause}"),
            None => Ok(()),
        }
    }
}

//! Why a node is given up that stays for now, and what it waits for, in words.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use super::Joined;
use crate::reasons::{GivenUp, Reasons, WaitsFor};
use crate::words::count;

impl Display for GivenUp {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            GivenUp::HostEvacuated { host, since } => {
                write!(f, "its host {host} is evacuated since {since}")
            }
            GivenUp::Outdated { outdated } => write!(f, "outdated: {outdated}"),
        }
    }
}

impl Display for WaitsFor {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            WaitsFor::MachineComing { machine } => {
                write!(f, "{machine} is on its way in its place")
            }
            WaitsFor::MachinePlanned { machine } => {
                write!(f, "{machine} is made in its place now")
            }
            WaitsFor::Batch { until } => write!(
                f,
                "a machine is made in its place at {until} at the latest, together with those for pods that come until then"
            ),
            WaitsFor::NoMachine { pod, refused } => {
                match pod {
                    Some(pod) => write!(
                        f,
                        "its pod {pod} fits on no other node, and no machine can be made for it now"
                    )?,
                    None => write!(
                        f,
                        "no machine can be made now for a pod of it that fits on no other node"
                    )?,
                }
                tell_each(refused, f)
            }
            WaitsFor::Turn { after, max } => write!(
                f,
                "it waits its turn: {after} goes before it, max_rollout_parallelism is {max}"
            ),
            WaitsFor::PoolBackOff { pool, until } => write!(
                f,
                "it waits its turn: new machines of the pool {pool} failed, which backs off until {until}"
            ),
            WaitsFor::Other { kept } => kept.fmt(f),
        }
    }
}

/// Refusals with the places that each is of: what many say alike is said once, and of many the first few are said.
fn tell_each(refused: &Reasons, f: &mut Formatter<'_>) -> fmt::Result {
    /// Different refusals that are said; `explain pod` has all.
    const MOST: usize = 3;
    let mut by_words: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (place, why) in refused.iter() {
        by_words.entry(why.to_string()).or_default().push(place);
    }
    for (words, places) in by_words.iter().take(MOST) {
        write!(f, "; {}: {words}", Joined(places.iter(), ", "))?;
    }
    match by_words.len().saturating_sub(MOST) {
        0 => Ok(()),
        more => write!(f, "; and {}", count(more, "more reason")),
    }
}

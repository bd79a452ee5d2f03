//! What happens on a day, drawn before it begins.

use std::collections::BTreeSet;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};

use super::belongings::{self, Belonging};
use super::remedy::Remedy;
use super::stage::Stage;
use super::{STORM, kubernetes, proxmox, state};

/// How many acts a day has; each happens once a day at most.
const ACTS: usize = 20;

/// Something that somebody does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Act {
    /// Somebody with kubectl, and the API server itself.
    Kubernetes(kubernetes::Act),
    /// Somebody with PVE's own tools.
    Proxmox(proxmox::Act),
    /// Somebody on the daemon's host.
    State(state::Act),
}

impl Act {
    /// Every act there is.
    pub(super) fn all() -> impl Iterator<Item = Act> {
        let kubernetes = kubernetes::ALL.into_iter().map(Act::Kubernetes);
        let proxmox = proxmox::ALL.into_iter().map(Act::Proxmox);
        let state = state::ALL.into_iter().map(Act::State);
        kubernetes.chain(proxmox).chain(state)
    }

    /// Does it, and says what undoes it; `None` when there is nobody whom it can happen to.
    pub(super) async fn perform(self, stage: &Stage<'_>, rng: &mut StdRng) -> Option<Remedy> {
        match self {
            Act::Kubernetes(act) => kubernetes::perform(act, stage, rng).await,
            Act::Proxmox(act) => proxmox::perform(act, stage, rng),
            Act::State(act) => state::perform(act, stage, rng).await,
        }
    }
}

/// One act of a day.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    /// When.
    pub(super) at: Duration,
    /// What.
    pub(super) act: Act,
    /// Whom it happens to is drawn from this.
    pub(super) luck: u64,
    /// How long until it is undone.
    pub(super) lasts: Duration,
}

/// All that a seed draws.
#[derive(Clone, Debug)]
pub(super) struct Day {
    /// What runs in the cluster beside the weather.
    pub(super) belongings: BTreeSet<Belonging>,
    /// What happens.
    pub(super) acts: Vec<Planned>,
}

impl Day {
    /// The day of a seed.
    pub(super) fn drawn(seed: u64) -> Day {
        let mut rng = StdRng::seed_from_u64(seed ^ 0x55);
        let belongings = belongings::ALL.into_iter();
        let belongings = belongings.filter(|_| rng.random_bool(0.6)).collect();
        let mut deck: Vec<Act> = Act::all().collect();
        deck.shuffle(&mut rng);
        let storm = STORM.as_secs();
        let acts = deck.into_iter().take(ACTS).map(|act| Planned {
            at: Duration::from_secs(rng.random_range(60..storm - 60)),
            act,
            luck: rng.random(),
            // Some are undone in the middle of what they set off, some only in the end.
            lasts: match rng.random_range(0..3) {
                0 => Duration::from_secs(rng.random_range(1..60)),
                1 => Duration::from_secs(rng.random_range(60..600)),
                _ => STORM,
            },
        });
        let acts = acts.collect();
        Day { belongings, acts }
    }
}

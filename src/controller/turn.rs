//! One turn of the loop, as published to whoever looks: control socket, web server, demo.

use std::sync::Arc;

use crate::config::settings::Settings;
use crate::controller::executor::ActionWaits;
use crate::controller::host_decisions::HostDecisions;
use crate::controller::usual::UsualTimes;
use crate::model::decision::Decision;
use crate::model::snapshot::Snapshot;
use crate::model::time::Time;

/// What one turn saw and decided.
#[derive(Clone, Debug)]
pub struct Turn {
    /// Counts turns since the start.
    pub number: u64,
    /// When it was taken.
    pub at: Time,
    /// Under which settings.
    pub settings: Arc<Settings>,
    /// What was seen.
    pub snapshot: Arc<Snapshot>,
    /// What was decided.
    pub decision: Arc<Decision>,
    /// What the actions wait for at the moment when this is asked.
    pub waits: ActionWaits,
    /// Why machines came to their hosts.
    pub made: HostDecisions,
    /// What the steps of machines usually take.
    pub usual: UsualTimes,
}

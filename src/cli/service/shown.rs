//! What the web server shows of the service.

use std::sync::Arc;

use super::Shared;
use super::answering::actor;
use crate::clock::Clock;
use crate::web::{State, Teller};

/// The metrics, how the loop is, its turns, and the status that `status` is told.
pub(super) fn shown(shared: &Arc<Shared>) -> State {
    let asked = shared.clone();
    State::new(
        shared.metrics.clone(),
        shared.health.subscribe(),
        shared.turns.subscribe(),
        Teller::new(move || asked.status()),
        Clock::System,
    )
    .recorded(shared.state.record())
    .acting(actor(shared.clone()))
}

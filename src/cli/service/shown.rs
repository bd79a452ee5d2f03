//! What the web server shows of the service.

use std::sync::Arc;

use super::ServiceShared;
use super::answering::actor;
use crate::clock::Clock;
use crate::web::{ConditionSource, StatusSource, WebState};

/// The metrics, how the loop is, its turns, and the status that `status` is told.
pub(super) fn shown(shared: &Arc<ServiceShared>) -> WebState {
    let (asked, watched) = (shared.clone(), shared.clone());
    WebState::new(
        shared.metrics.clone(),
        shared.health.subscribe(),
        shared.turns.subscribe(),
        StatusSource::new(move || asked.status()),
        Clock::System,
    )
    .watched(ConditionSource::new(move || watched.conditions()))
    .recorded(shared.state.record())
    .acting(actor(shared.clone()))
}

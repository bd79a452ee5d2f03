//! What the service answers on its control socket and on the page.

use std::sync::Arc;

use super::{ServiceShared, notifying};
use crate::controller::answering::Answering;
use crate::controller::control::{ControlAnswer, ControlCommand, Handler};
use crate::web::Actor;

/// Who asks by the control socket without a name, in the log and the record.
const HOST: &str = "a command on the host";

/// Answers the control socket.
pub(super) fn handler(shared: Arc<ServiceShared>) -> Handler {
    Arc::new(move |command, by| {
        let shared = shared.clone();
        Box::pin(async move { answer(&shared, command, by.as_deref().unwrap_or(HOST)).await })
    })
}

/// Does what a person asks for on the page.
pub(super) fn actor(shared: Arc<ServiceShared>) -> Actor {
    Actor::new(move |command, user| {
        let shared = shared.clone();
        Box::pin(async move { answer(&shared, command, &user).await })
    })
}

/// `by`: who asks, as the log and the record have it.
async fn answer(shared: &Arc<ServiceShared>, command: ControlCommand, by: &str) -> ControlAnswer {
    if let ControlCommand::NotifyTest { name } = command {
        return notifying::test(shared, name.as_deref(), by).await;
    }
    let asked = shared.clone();
    let answering = Answering {
        state: shared.state.clone(),
        turns: shared.turns.subscribe(),
        wake_up: shared.wake_up.clone(),
        status: Arc::new(move || asked.status()),
    };
    answering.answer(command, by).await
}

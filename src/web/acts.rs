//! What a person who is logged in may do: pause, resume, retry a pool, evacuate a host.

use std::fmt;
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Extension, State as Shared};
use axum::http::StatusCode;
use axum::response::Response;
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};

use super::WebState;
use super::access::Visitor;
use super::ask::{answer, refusal};
use crate::controller::control::{self, ControlAnswer, ControlCommand, EvacuationOrder};
use crate::model::foreign::{self, ForeignText};

/// Carries out what this person asks for.
type CommandHandler =
    dyn Fn(ControlCommand, Arc<str>) -> BoxFuture<'static, ControlAnswer> + Send + Sync;

/// Carries out what people ask for on the page, as the control socket does for commands.
#[derive(Clone)]
pub struct Actor(Arc<CommandHandler>);

impl Actor {
    /// One that does it so: the command, and the name of who asks.
    pub fn new(
        deed: impl Fn(ControlCommand, Arc<str>) -> BoxFuture<'static, ControlAnswer>
        + Send
        + Sync
        + 'static,
    ) -> Actor {
        Actor(Arc::new(deed))
    }
}

impl fmt::Debug for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Actor")
    }
}

/// What is asked for.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", tag = "do", deny_unknown_fields)]
pub(super) enum PageAction {
    Pause {
        reason: String,
    },
    Resume {},
    Retry {
        pool: String,
    },
    Evacuate {
        region: String,
        host: String,
        end: bool,
    },
}

impl PageAction {
    /// The command that does it.
    fn command(self, user: &str) -> ControlCommand {
        match self {
            PageAction::Pause { reason } => {
                let reason = foreign::line(reason.trim(), ForeignText::MAX);
                let reason = control::signed_reason(&reason, user);
                ControlCommand::Pause { reason }
            }
            PageAction::Resume {} => ControlCommand::Resume,
            PageAction::Retry { pool } => ControlCommand::Retry { pool },
            PageAction::Evacuate { region, host, end } => {
                let region = Some(region);
                ControlCommand::Evacuate(EvacuationOrder { host, region, end })
            }
        }
    }
}

/// The answer to what was done: `done` says whether it made a difference. What the daemon answers by itself says for each command something
/// else, and of a pause what was before it.
fn tell_done(command: &ControlCommand, answered: Value) -> Value {
    match command {
        ControlCommand::Pause { .. } => {
            let before = answered.is_string().then_some(answered);
            json!({"done": true, "reason_before": before})
        }
        ControlCommand::Resume => json!({"done": answered == Value::Bool(true)}),
        // Without a wait something is done, too: what the pool's nodes offer is learned anew.
        ControlCommand::Retry { .. } => json!({"done": true, "ended": answered}),
        ControlCommand::Evacuate(_) => {
            json!({"done": answered["changed"] == Value::Bool(true), "host": answered})
        }
        _ => json!({"done": true, "answer": answered}),
    }
}

/// Does what the person asks for, who is logged in.
pub(super) async fn act(
    Shared(state): Shared<WebState>,
    visitor: Option<Extension<Visitor>>,
    asked: Result<Json<PageAction>, JsonRejection>,
) -> Response {
    // Without a login everybody on the host could do it, and every program of theirs.
    let (Some(actor), Some(Extension(Visitor(user)))) = (&state.actor, visitor) else {
        return refusal(
            StatusCode::FORBIDDEN,
            "This is for those who are logged in.",
        );
    };
    let act = match asked {
        Ok(Json(act)) => act,
        Err(error) => return refusal(StatusCode::BAD_REQUEST, &error.body_text()),
    };
    let command = act.command(&user);
    match (actor.0)(command.clone(), user).await {
        ControlAnswer::Ok(answered) => answer(&tell_done(&command, answered)),
        ControlAnswer::Error(why) => refusal(StatusCode::CONFLICT, &why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by it: a pause that began was answered with `false`, since nothing was paused before, and a resume of nothing looked the same.
    #[test]
    fn done_says_whether_it_made_a_difference() {
        let pause = ControlCommand::Pause {
            reason: "storage move (by ann)".to_owned(),
        };
        let retry = ControlCommand::Retry {
            pool: "general".to_owned(),
        };
        let evacuate = ControlCommand::Evacuate(EvacuationOrder {
            host: "pve2".to_owned(),
            region: None,
            end: false,
        });
        let here = |changed: bool| json!({"changed": changed, "machines": ["general-aaaaa"], "coming": []});
        for (command, answered, told) in [
            (
                &pause,
                json!(false),
                json!({"done": true, "reason_before": null}),
            ),
            (
                &pause,
                json!("lunch (by bob)"),
                json!({"done": true, "reason_before": "lunch (by bob)"}),
            ),
            (&ControlCommand::Resume, json!(true), json!({"done": true})),
            (
                &ControlCommand::Resume,
                json!(false),
                json!({"done": false}),
            ),
            (&retry, json!([]), json!({"done": true, "ended": []})),
            (
                &retry,
                json!(["general: backs off"]),
                json!({"done": true, "ended": ["general: backs off"]}),
            ),
            (
                &evacuate,
                here(true),
                json!({"done": true, "host": here(true)}),
            ),
            (
                &evacuate,
                here(false),
                json!({"done": false, "host": here(false)}),
            ),
        ] {
            assert_eq!(tell_done(command, answered), told, "{command:?}");
        }
    }
}

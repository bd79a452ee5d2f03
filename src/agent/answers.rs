//! What the daemon answers from its last turn: the view, the plan, and stories of one pod or node.

use serde::Serialize;

use crate::agent::control::Answer;
use crate::agent::turn::Turn;
use crate::brain::explain::{self, Asked};
use crate::model::cluster::PodKey;

/// What is asked of a turn.
#[derive(Clone, Debug)]
pub enum Question {
    /// What was seen.
    Snapshot,
    /// What was decided.
    Plan,
    /// All about one pod.
    Pod(PodKey),
    /// All about one node.
    Node(String),
}

impl Question {
    /// The answer of one turn.
    pub fn answer(&self, turn: &Turn) -> Answer {
        let asked = Asked {
            snapshot: &turn.snapshot,
            policy: &turn.settings.policy,
            memory: &turn.decision.memory,
            decision: &turn.decision,
            now: turn.at,
        };
        match self {
            Question::Snapshot => json(&*turn.snapshot),
            Question::Plan => json(&*turn.decision),
            Question::Pod(key) => match explain::pod(asked, key) {
                Some(story) => json(&story),
                None => Answer::Error(format!(
                    "no pod {key} is seen; ended pods are not kept in view"
                )),
            },
            Question::Node(name) => match explain::node(asked, name) {
                Some(story) => json(&story),
                None => Answer::Error(format!("no node or machine {name} is seen")),
            },
        }
    }
}

/// A value as an answer.
pub fn json(value: &impl Serialize) -> Answer {
    match serde_json::to_value(value) {
        Ok(value) => Answer::Ok(value),
        Err(error) => Answer::Error(error.to_string()),
    }
}

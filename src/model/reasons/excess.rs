//! Why the constraints of a pod are beyond the budget of work of one decision.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::words::excess::read_sentence;

/// What there is too much of, so that the constraints of a pod are left out of a decision.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum Excess {
    /// The pod's constraints have more parts than are looked at of one pod.
    Parts {
        /// Parts that they have.
        parts: u64,
    },
    /// There are more kinds of pods than are looked at, and the pod's namespace has most of them.
    Kinds,
    /// To weigh the pod's constraints takes more steps than its namespace's share leaves.
    Steps {
        /// Steps that it takes.
        steps: u64,
        /// Steps of one decision, for the pods of all namespaces.
        budget: u64,
    },
    /// The disruption budgets of the pod's namespace would have to be compared with its pods too often.
    DisruptionBudgets {
        /// The namespace.
        namespace: Arc<str>,
    },
}

/// An [`Excess`] inside another reason, in JSON: `why`, the sentence, and `excess`, the reason.
#[derive(Debug, JsonSchema)]
pub struct ExcessForm {
    /// What was counted, in words.
    pub why: String,
    /// What was counted.
    pub excess: Excess,
}

#[derive(Serialize)]
struct WrittenExcess<'r> {
    why: String,
    excess: &'r Excess,
}

/// What earlier versions wrote is a sentence alone.
#[derive(Deserialize)]
struct ReadExcess {
    why: Option<String>,
    excess: Option<Excess>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ExcessOrSentence {
    Excess(Excess),
    Sentence(String),
}

/// Writes an [`ExcessForm`]; to be used with `flatten`.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(excess: &Excess, serializer: S) -> Result<S::Ok, S::Error> {
    let why = excess.to_string();
    WrittenExcess { why, excess }.serialize(serializer)
}

/// Reads an [`ExcessForm`], and the sentence alone where there is no more.
///
/// # Errors
/// There is neither, the reason has an unknown code, or the sentence is none that an earlier version wrote.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Excess, D::Error> {
    let read = ReadExcess::deserialize(deserializer)?;
    match (read.excess, read.why) {
        (Some(excess), _) => Ok(excess),
        (None, Some(why)) => of_sentence(&why),
        (None, None) => Err(serde::de::Error::missing_field("excess")),
    }
}

/// Reads an [`Excess`] by itself; earlier versions wrote its sentence in its place.
///
/// # Errors
/// The reason has an unknown code, or the sentence is none that an earlier version wrote.
pub fn deserialize_optional<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Excess>, D::Error> {
    match Option::<ExcessOrSentence>::deserialize(deserializer)? {
        None => Ok(None),
        Some(ExcessOrSentence::Excess(excess)) => Ok(Some(excess)),
        Some(ExcessOrSentence::Sentence(why)) => of_sentence(&why).map(Some),
    }
}

fn of_sentence<E: serde::de::Error>(why: &str) -> Result<Excess, E> {
    let unknown = || {
        E::custom(format!(
            "{why:?} is no sentence of a pod that is too complex"
        ))
    };
    read_sentence(why).ok_or_else(unknown)
}

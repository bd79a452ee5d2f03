//! Why: every reason that the brain gives, as a type with its numbers and names in fields.
//!
//! [`filter_failure`]: why a pod does not run on a node. [`removal`]: why a node stays. [`given_up`]: what one waits for that is to go. [`leaving`]: why it goes. [`held`]: what is on
//! hold, and why. [`refused`]: why no machine is made. [`excess`]: what is too complex. [`pods`]: why a pod is left alone. [`warning`]: what a person should look at. A reason's sentence is made in
//! [`words`] alone, by its `Display`; whoever has to tell reasons apart matches on them and never on their words.
//!
//! In JSON a reason stands under two keys ([`told`]): its sentence for people, and beside it `details`, an object with the
//! reason's `code` and its fields for programs. A code and a field keep their names and meaning; new ones may come.

pub mod excess;
pub mod filter_failure;
pub mod given_up;
pub mod held;
pub mod leaving;
pub mod pods;
pub mod refused;
pub mod removal;
#[cfg(test)]
mod tests;
pub mod warning;
pub mod words;

pub use excess::Excess;
pub use filter_failure::{FilterFailure, NoFreeStorage, Provision, VolumeFilterFailure};
pub use given_up::{GivenUp, WaitsFor};
pub use held::{Held, Hindrance};
pub use leaving::{Aborted, FateReason, Removed, Replacing};
pub use pods::Ignored;
pub use refused::{GuestAt, HostRefused, Reasons, Refusals, Refused, UnknownAddresses};
pub use removal::{After, Blocked, Kept, LeftAlone, Limit, PoweredOff, Unneeded, Unremovable};
pub use warning::{HostNote, Lost, Orphan, StorageNote, VmAt, Warning};

/// Reasons in JSON: two keys, the sentence and the details. To be used with `flatten`:
/// `#[serde(flatten, with = "reasons::told::why")]`.
pub mod told {
    use std::collections::BTreeMap;
    use std::fmt::Display;

    use schemars::JsonSchema;
    use serde::de::DeserializeOwned;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{FilterFailure, Reasons, Refusals};

    /// What [`why`] writes.
    #[derive(Debug, JsonSchema)]
    pub struct WhyForm<R> {
        /// The sentence.
        pub why: String,
        /// The reason.
        pub details: R,
    }

    /// What [`message`] writes.
    #[derive(Debug, JsonSchema)]
    pub struct MessageForm<R> {
        /// The sentence.
        pub message: String,
        /// The reason.
        pub details: R,
    }

    /// What [`whys`] writes.
    #[derive(Debug, JsonSchema)]
    pub struct WhysForm {
        /// The sentences, by `pool/type`.
        pub why: BTreeMap<String, String>,
        /// The reasons, by `pool/type`.
        pub details: BTreeMap<String, Refusals>,
    }

    /// What [`others`] writes.
    #[derive(Debug, JsonSchema)]
    pub struct OthersForm {
        /// The sentences, by `pool/type`.
        pub others: BTreeMap<String, String>,
        /// The reasons, by `pool/type`.
        pub others_details: BTreeMap<String, Refusals>,
    }

    /// What [`maybe_why`] writes.
    #[derive(Debug, JsonSchema)]
    pub struct MaybeWhyForm<R> {
        /// The sentence.
        pub why: Option<String>,
        /// The reason.
        #[schemars(skip_serializing_if = "Option::is_none")]
        pub details: Option<R>,
    }

    /// What [`filter_failure`] writes.
    #[derive(Debug, JsonSchema)]
    pub struct FilterFailureForm {
        /// The sentence.
        pub filter_failure: Option<String>,
        /// The reason.
        #[schemars(skip_serializing_if = "Option::is_none")]
        pub filter_failure_details: Option<FilterFailure>,
    }

    /// What [`further_filter_failures`] writes.
    #[derive(Debug, JsonSchema)]
    pub struct FurtherFilterFailuresForm {
        /// The sentences.
        #[schemars(skip_serializing_if = "Vec::is_empty")]
        pub further_filter_failures: Vec<String>,
        /// The reasons.
        #[schemars(skip_serializing_if = "Vec::is_empty")]
        pub further_filter_failures_details: Vec<FilterFailure>,
    }

    /// What [`held`] writes.
    #[derive(Debug, JsonSchema)]
    pub struct HeldForm {
        /// The sentences.
        pub held: Option<String>,
        /// The reasons.
        #[schemars(skip_serializing_if = "Option::is_none")]
        pub held_details: Option<Refusals>,
    }

    macro_rules! told {
        ($(#[$about:meta])* $name:ident, $words:literal, $details:literal) => {
            $(#[$about])*
            pub mod $name {
                use super::*;

                #[derive(Serialize)]
                struct ReasonForm<'r, R> {
                    #[serde(rename = $words)]
                    words: String,
                    #[serde(rename = $details)]
                    details: &'r R,
                }

                #[derive(Deserialize)]
                struct ReasonDetails<R> {
                    #[serde(rename = $details)]
                    details: R,
                }

                /// Writes both.
                ///
                /// # Errors
                /// Those of the serializer.
                pub fn serialize<R: Serialize + Display, S: Serializer>(
                    reason: &R,
                    serializer: S,
                ) -> Result<S::Ok, S::Error> {
                    let words = reason.to_string();
                    let details = reason;
                    ReasonForm { words, details }.serialize(serializer)
                }

                /// Reads the details; the sentence follows from them.
                ///
                /// # Errors
                /// There are no details, or they have an unknown code.
                pub fn deserialize<'de, R: DeserializeOwned, D: Deserializer<'de>>(
                    deserializer: D,
                ) -> Result<R, D::Error> {
                    let ReasonDetails { details } = ReasonDetails::deserialize(deserializer)?;
                    Ok(details)
                }
            }
        };
    }

    told! {
        /// `why` and `details`.
        why, "why", "details"
    }
    told! {
        /// `message` and `details`.
        message, "message", "details"
    }

    macro_rules! maybe {
        ($(#[$about:meta])* $name:ident, $words:literal, $details:literal) => {
            $(#[$about])*
            pub mod $name {
                use super::*;

                #[derive(Serialize)]
                struct OptionalReasonForm<'r, R> {
                    #[serde(rename = $words)]
                    words: Option<String>,
                    #[serde(rename = $details, skip_serializing_if = "Option::is_none")]
                    details: Option<&'r R>,
                }

                #[derive(Deserialize)]
                struct OptionalReasonDetails<R> {
                    #[serde(rename = $details, default = "none")]
                    details: Option<R>,
                }

                fn none<R>() -> Option<R> {
                    None
                }

                /// Writes both.
                ///
                /// # Errors
                /// Those of the serializer.
                pub fn serialize<R: Serialize + Display, S: Serializer>(
                    reason: &Option<R>,
                    serializer: S,
                ) -> Result<S::Ok, S::Error> {
                    let words = reason.as_ref().map(R::to_string);
                    let details = reason.as_ref();
                    OptionalReasonForm { words, details }.serialize(serializer)
                }

                /// Reads the details, if there are any.
                ///
                /// # Errors
                /// They have an unknown code.
                pub fn deserialize<'de, R: DeserializeOwned, D: Deserializer<'de>>(
                    deserializer: D,
                ) -> Result<Option<R>, D::Error> {
                    let OptionalReasonDetails { details } = OptionalReasonDetails::deserialize(deserializer)?;
                    Ok(details)
                }
            }
        };
    }

    maybe! {
        /// `why` and `details` where there may be no reason: then `why` is `null`, and there are no `details`.
        maybe_why, "why", "details"
    }
    maybe! {
        /// `filter_failure` and `filter_failure_details`; `null` and nothing where there is none.
        filter_failure, "filter_failure", "filter_failure_details"
    }

    /// `further_filter_failures` and `further_filter_failures_details`; nothing where there is none.
    pub mod further_filter_failures {
        use serde::{Deserialize, Deserializer, Serialize, Serializer};

        use crate::reasons::FilterFailure;

        #[derive(Serialize)]
        struct WrittenFilterFailures<'r> {
            #[serde(skip_serializing_if = "Vec::is_empty")]
            further_filter_failures: Vec<String>,
            #[serde(skip_serializing_if = "<[FilterFailure]>::is_empty")]
            further_filter_failures_details: &'r [FilterFailure],
        }

        #[derive(Deserialize)]
        struct FurtherFilterFailuresDetails {
            #[serde(default)]
            further_filter_failures_details: Vec<FilterFailure>,
        }

        /// Writes both.
        ///
        /// # Errors
        /// Those of the serializer.
        pub fn serialize<S: Serializer>(
            details: &[FilterFailure],
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            WrittenFilterFailures {
                further_filter_failures: details.iter().map(ToString::to_string).collect(),
                further_filter_failures_details: details,
            }
            .serialize(serializer)
        }

        /// Reads the details; the sentences follow from them.
        ///
        /// # Errors
        /// They have an unknown code.
        pub fn deserialize<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<Vec<FilterFailure>, D::Error> {
            let found = FurtherFilterFailuresDetails::deserialize(deserializer)?;
            Ok(found.further_filter_failures_details)
        }
    }
    maybe! {
        /// `held` and `held_details`; `null` and nothing where there is none.
        held, "held", "held_details"
    }

    macro_rules! each {
        ($(#[$about:meta])* $name:ident, $words:literal, $details:literal) => {
            $(#[$about])*
            pub mod $name {
                use super::*;

                #[derive(Serialize)]
                struct ReasonsForm<'r> {
                    #[serde(rename = $words)]
                    words: BTreeMap<&'r str, String>,
                    #[serde(rename = $details)]
                    details: &'r Reasons,
                }

                #[derive(Deserialize)]
                struct ReasonsDetails {
                    #[serde(rename = $details)]
                    details: Reasons,
                }

                /// Writes both.
                ///
                /// # Errors
                /// Those of the serializer.
                pub fn serialize<S: Serializer>(
                    details: &Reasons,
                    serializer: S,
                ) -> Result<S::Ok, S::Error> {
                    let words = details.iter();
                    let words = words.map(|(of, why)| (&**of, why.to_string())).collect();
                    ReasonsForm { words, details }.serialize(serializer)
                }

                /// Reads the details; the sentences follow from them.
                ///
                /// # Errors
                /// There are no details, or they have an unknown code.
                pub fn deserialize<'de, D: Deserializer<'de>>(
                    deserializer: D,
                ) -> Result<Reasons, D::Error> {
                    let ReasonsDetails { details } = ReasonsDetails::deserialize(deserializer)?;
                    Ok(details)
                }
            }
        };
    }

    each! {
        /// `why` and `details`, both by `pool/type`.
        whys, "why", "details"
    }
    each! {
        /// `others` and `others_details`, both by `pool/type`.
        others, "others", "others_details"
    }
}

//! What of a VM's configuration the file gives another value, where PVE lets that change while the VM runs.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::foreign::ForeignText;
use super::time::Time;

/// How many machines are changed in place at a time: a new value in the file must not be written to all of them at once.
pub const AT_ONCE: usize = 5;
/// The key of a machine's difference that lies in its node: the annotations of its pool.
pub const ANNOTATIONS: &str = "annotations";

/// A setting of a VM, or of its node, that is not what the file says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    /// The setting, by PVE's name of it; `annotations` of the node.
    pub key: Arc<str>,
    /// What the VM has, when its configuration was read last, or what was written to the node; empty where it has nothing.
    pub is: ForeignText,
    /// The value that the VM is to have.
    pub wanted: Arc<str>,
    /// What came of writing just this value, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedWrite>,
}

/// A value that could not be written. It stands in the journal: what a newer version knows of it besides is passed over.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct FailedWrite {
    /// What came back.
    pub why: ForeignText,
    /// When.
    pub at: Time,
    /// PVE takes the value for wrong, or makes another of it: it is not written again.
    pub for_good: bool,
}

impl Difference {
    /// Whether this value is not written again: another try would end as the last one.
    pub fn given_up(&self) -> bool {
        self.failed.as_ref().is_some_and(|failed| failed.for_good)
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference {
            key, is, wanted, ..
        } = self;
        let or_none = |text: &str| match text {
            "" => "nothing".to_owned(),
            text => text.to_owned(),
        };
        write!(
            f,
            "{key} is {}, the file says {}",
            or_none(is),
            or_none(wanted)
        )?;
        match &self.failed {
            Some(failed) if failed.for_good => write!(f, " (not written again: {})", failed.why),
            Some(failed) => write!(f, " (failed at {}: {})", failed.at, failed.why),
            None => Ok(()),
        }
    }
}

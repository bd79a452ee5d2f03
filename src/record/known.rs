//! Whether the record knows a name.

use serde_json::Value;

use super::line::machine;
use super::query::{Filter, History};
use super::read::{ReadError, RecordReader};

impl History {
    /// Whether the record has an action on a machine of this name; the newest segment is read first. False, too, where reading ends because
    /// `go_on`, asked before every record, says no.
    ///
    /// # Errors
    /// The record may not be read.
    pub fn has_machine(
        &self,
        name: &str,
        mut go_on: impl FnMut() -> bool,
    ) -> Result<bool, ReadError> {
        let is = |action: &Value| machine(action).is_some_and(|machine| *machine == *name);
        for segment in self.segments(&Filter::default())?.into_iter().rev() {
            let mut records = RecordReader::of([segment]);
            while let Some(line) = records.next()? {
                if !go_on() {
                    return Ok(false);
                }
                if line.plan.iter().chain(&line.action).any(is) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

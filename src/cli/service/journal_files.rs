//! Files of the journal that are no entries, as `status` tells of them.

use crate::controller::journal::UnreadableEntry;

/// Files that are named at once.
const MAX_TOLD: usize = 10;

/// Forgets those that are gone or that the daemon has written anew since, and says what is to be done about the others.
pub(super) fn tell(files: &mut Vec<UnreadableEntry>) -> Option<String> {
    files.retain(UnreadableEntry::is_still_unreadable);
    if files.is_empty() {
        return None;
    }
    let told = files.iter().take(MAX_TOLD).map(ToString::to_string);
    let told = told.collect::<Vec<_>>().join("; ");
    let rest = match files.len().saturating_sub(MAX_TOLD) {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    Some(format!(
        "a journal file is not a valid entry and is ignored: {told}{rest}; remove it when `status` shows its machine as you know it"
    ))
}

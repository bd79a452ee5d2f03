//! What `status` does with failures that are longer than a line of a terminal: each is told once, short, where it belongs,
//! and in full below. Pure.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::agent::status::DaemonStatus;
use crate::model::foreign::ForeignText;
use crate::model::reasons::Held;
use crate::model::report::Scope;

/// Columns of a terminal that people have at least.
const COLUMNS: usize = 100;
/// Characters of a failure in a table: beside the usual columns that is what fits.
const SHOWN: usize = 32;

/// The status with each failure told once and short: a back-off names the machine whose failure began it, while that is
/// there to tell of it, and a hold does not say again what its pool says.
pub(super) fn once(status: &DaemonStatus) -> DaemonStatus {
    let mut short = status.clone();
    for (name, pool) in &mut short.pools {
        let Some(message) = pool.backoff_message.clone() else {
            continue;
        };
        let scope = Scope::Pool(name.clone());
        for hold in &mut short.holds {
            if hold.scope == scope && matches!(hold.why.held, Held::BacksOff { .. }) {
                hold.why = Arc::new(Held::BacksOff { failure: None }.into());
            }
        }
        pool.backoff_message = Some(match teller(status, &message) {
            Some(machine) => ForeignText::new(format!("{machine} failed")),
            None => message.cut(SHOWN),
        });
    }
    for machine in short.machines.values_mut() {
        if let Some(failure) = &mut machine.failure {
            failure.message = failure.message.cut(SHOWN);
        }
    }
    short
}

/// The machine that is there to tell of the failure that a back-off's message holds.
fn teller<'a>(status: &'a DaemonStatus, message: &str) -> Option<&'a str> {
    let mut machines = status.machines.iter();
    let found = machines.find(|(_, machine)| {
        let failure = machine.failure.as_ref();
        failure.is_some_and(|failure| {
            !failure.message.is_empty() && message.contains(failure.message.as_str())
        })
    });
    found.map(|(name, _)| &**name)
}

/// The failures that [`once`] cut, in full.
pub(super) fn in_full(text: &mut String, status: &DaemonStatus) {
    let mut cut: Vec<(&str, &str)> = Vec::new();
    for (name, machine) in &status.machines {
        cut.extend(
            machine
                .failure
                .as_ref()
                .map(|failure| (&**name, failure.message.as_str())),
        );
    }
    for (name, pool) in &status.pools {
        let message = pool.backoff_message.as_deref().unwrap_or_default();
        if teller(status, message).is_none() {
            cut.push((&**name, message));
        }
    }
    cut.retain(|(_, message)| message.chars().count() > SHOWN);
    if cut.is_empty() {
        return;
    }
    text.push_str("What failed, in full\n");
    for (name, message) in cut {
        let _ = writeln!(text, "  {name}:");
        for line in wrapped(message, COLUMNS - 4) {
            let _ = writeln!(text, "    {line}");
        }
    }
    text.push('\n');
}

/// Words in lines of at most so many characters. A word that is longer goes over several.
fn wrapped(words: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut line, mut length) = (String::new(), 0);
    for word in words.split_whitespace() {
        let letters: Vec<char> = word.chars().collect();
        for (at, part) in letters.chunks(width.max(1)).enumerate() {
            let glue = usize::from(length > 0 && at == 0);
            if length > 0 && (at > 0 || length + glue + part.len() > width) {
                lines.push(std::mem::take(&mut line));
                length = 0;
            } else if glue > 0 {
                line.push(' ');
                length += 1;
            }
            line.extend(part);
            length += part.len();
        }
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_words_and_many_are_wrapped_and_none_is_lost() {
        let words = format!("{}{} end", "short words ".repeat(20), "x".repeat(250));
        let lines = wrapped(&words, 96);
        assert!(
            lines.iter().all(|line| line.chars().count() <= 96),
            "{lines:?}"
        );
        assert_eq!(lines.concat().replace(' ', ""), words.replace(' ', ""));
        assert_eq!(wrapped("one two", 7), ["one two"]);
        assert_eq!(wrapped("one two", 6), ["one", "two"]);
    }
}

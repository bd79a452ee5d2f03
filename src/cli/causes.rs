//! Causes of one answer, each told once: a cell of a table has the number of its cause, and what the number means stands
//! below the table, where it may be as long as it is. Pure.

use super::render::{one_line, section};

/// The causes told so far, in the order of their numbers.
#[derive(Debug)]
pub(super) struct Causes {
    known: Vec<String>,
    /// Causes stay where they are, however long and often they are there.
    wide: bool,
}

impl Causes {
    /// None yet.
    pub(super) fn new(wide: bool) -> Causes {
        let known = Vec::new();
        Causes { known, wide }
    }

    /// `what` for this cause: `would not run (2)`, or the cause itself where each row has its own.
    pub(super) fn of(&mut self, what: &str, cause: &str) -> String {
        self.of_all(what, [cause.to_owned()])
    }

    /// `what` for all of these causes together: `would not run (2, 3)`, or the causes themselves.
    pub(super) fn of_all(
        &mut self,
        what: &str,
        causes: impl IntoIterator<Item = String>,
    ) -> String {
        let causes = causes.into_iter().map(|cause| one_line(&cause));
        if self.wide {
            let causes: Vec<String> = causes.collect();
            return format!("{what}: {}", causes.join("; and "));
        }
        let numbers: Vec<String> = causes.map(|cause| self.number(cause).to_string()).collect();
        format!("{what} ({})", numbers.join(", "))
    }

    /// The number of a cause, 1 or more.
    fn number(&mut self, cause: String) -> usize {
        let at = self.known.iter().position(|known| *known == cause);
        let at = at.unwrap_or_else(|| {
            self.known.push(cause);
            self.known.len() - 1
        });
        at + 1
    }

    /// Whether this is one that stands below.
    pub(super) fn know(&self, cause: &str) -> bool {
        self.known.contains(&one_line(cause))
    }

    /// Tells what the numbers mean.
    pub(super) fn tell(&self, text: &mut String) {
        let rows = self.known.iter().enumerate();
        let rows = rows.map(|(at, cause)| vec![format!("({})", at + 1), cause.clone()]);
        section(text, "Why", &[], rows.collect());
    }
}

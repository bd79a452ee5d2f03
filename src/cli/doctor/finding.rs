//! What a look found: how good it is, what was looked at, and what to type to mend it.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

/// What one look found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(in crate::cli) struct Finding {
    pub(in crate::cli) grade: Grade,
    /// What was looked at, and what was seen.
    pub(in crate::cli) text: String,
    /// What to type, or to do, to mend it; empty where nothing is to be mended.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(in crate::cli) mend: String,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::cli) enum Grade {
    /// As it should be.
    #[serde(rename = "ok")]
    Fine,
    /// It works, but somebody should look.
    Warning,
    /// It could not be looked at: nothing is known of it.
    Unseen,
    /// It cannot work like this.
    Wrong,
}

impl Grade {
    /// The word that begins a line.
    pub(in crate::cli) fn word(self) -> &'static str {
        match self {
            Grade::Fine => "ok",
            Grade::Warning => "warning",
            Grade::Unseen => "unseen",
            Grade::Wrong => "WRONG",
        }
    }
}

impl Finding {
    /// Says what to type, or to do.
    pub(in crate::cli) fn mend(&mut self, mend: impl Into<String>) {
        self.mend = mend.into();
    }
}

/// One line.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.grade.word(), self.text)?;
        if !self.mend.is_empty() {
            write!(f, "; {}", self.mend)?;
        }
        Ok(())
    }
}

/// Findings in the order they were made.
#[derive(Debug, Default)]
pub(in crate::cli) struct Findings(pub(in crate::cli) Vec<Finding>);

impl Findings {
    fn add(&mut self, grade: Grade, text: impl Into<String>) -> &mut Finding {
        let finding = Finding {
            grade,
            text: text.into(),
            mend: String::new(),
        };
        let at = self.0.len();
        self.0.push(finding);
        &mut self.0[at]
    }

    /// It is as it should be.
    pub(in crate::cli) fn fine(&mut self, text: impl Into<String>) {
        self.add(Grade::Fine, text);
    }

    /// It works, but somebody should look.
    pub(in crate::cli) fn warning(&mut self, text: impl Into<String>) -> &mut Finding {
        self.add(Grade::Warning, text)
    }

    /// It could not be looked at.
    pub(in crate::cli) fn unseen(&mut self, text: impl Into<String>) -> &mut Finding {
        self.add(Grade::Unseen, text)
    }

    /// It cannot work like this.
    pub(in crate::cli) fn wrong(&mut self, text: impl Into<String>) -> &mut Finding {
        self.add(Grade::Wrong, text)
    }
}

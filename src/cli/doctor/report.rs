//! What doctor says: lines for people, one document for programs.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::Serialize;

use super::finding::{Finding, Findings, Grade};
use super::probe::ProbeFindings;

/// The version of the document; it changes when a field goes or means something else.
const VERSION: u32 = 1;

/// Everything that was found.
#[derive(Debug, Default)]
pub(in crate::cli) struct DoctorReport {
    pub(super) looked: Vec<ProbeFindings>,
}

/// The document of `-o json`.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct DoctorDocument<'a> {
    /// The version of this form.
    schema_version: u32,
    /// The version of this form once more, under the key that had it before there was `schema_version`.
    version: u32,
    /// The program's version.
    program: &'static str,
    /// The worst grade of all.
    verdict: Grade,
    /// Findings that are as they should be.
    ok: usize,
    /// Findings that somebody should look at.
    warnings: usize,
    /// Findings that cannot work.
    wrong: usize,
    /// What could not be looked at.
    unseen: usize,
    /// All of them, in the order in which they were looked at.
    findings: Vec<FindingLine<'a>>,
}

/// One finding.
#[derive(Serialize, JsonSchema)]
struct FindingLine<'a> {
    /// What was looked at, by a word of `docs/doctor.md`.
    probe: &'static str,
    #[serde(flatten)]
    finding: &'a Finding,
}

impl DoctorReport {
    /// Adds what a look found that is no probe's.
    pub(super) fn add(&mut self, probe: &'static str, findings: Findings) {
        self.looked.push(ProbeFindings::new(probe, findings));
    }

    fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.looked.iter().flat_map(|looked| &looked.found)
    }

    fn count(&self, grade: Grade) -> usize {
        self.findings().filter(|one| one.grade == grade).count()
    }

    /// The worst grade of all.
    pub(in crate::cli) fn verdict(&self) -> Grade {
        let grades = self.findings().map(|finding| finding.grade);
        grades.max().unwrap_or(Grade::Fine)
    }

    /// One line for each finding.
    pub(in crate::cli) fn lines(&self) -> String {
        self.findings().fold(String::new(), |mut text, finding| {
            let _ = writeln!(text, "{finding}");
            text
        })
    }

    /// A line for each finding, below it what to type, and the sum of all; what is fine only if that is wanted.
    pub(super) fn text(&self, all: bool) -> String {
        let mut text = String::new();
        for finding in self
            .findings()
            .filter(|one| all || one.grade != Grade::Fine)
        {
            let _ = writeln!(text, "{}: {}", finding.grade.word(), finding.text);
            if !finding.mend.is_empty() {
                let _ = writeln!(text, "    to mend it: {}", finding.mend);
            }
        }
        let [ok, warnings, wrong, unseen] = self.counts();
        let plural = if warnings == 1 { "warning" } else { "warnings" };
        let _ = writeln!(
            text,
            "\n{ok} ok, {warnings} {plural}, {wrong} wrong, {unseen} unseen"
        );
        text
    }

    fn counts(&self) -> [usize; 4] {
        [Grade::Fine, Grade::Warning, Grade::Wrong, Grade::Unseen].map(|grade| self.count(grade))
    }

    /// The document for programs.
    pub(super) fn document(&self) -> impl Serialize {
        let [ok, warnings, wrong, unseen] = self.counts();
        let looked = self.looked.iter();
        let lines = looked.flat_map(|looked| {
            let found = looked.found.iter();
            found.map(|finding| FindingLine {
                probe: looked.probe,
                finding,
            })
        });
        DoctorDocument {
            schema_version: VERSION,
            version: VERSION,
            program: env!("CARGO_PKG_VERSION"),
            verdict: self.verdict(),
            ok,
            warnings,
            wrong,
            unseen,
            findings: lines.collect(),
        }
    }
}

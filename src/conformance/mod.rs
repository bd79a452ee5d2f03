//! Conformance as data: cases in files that a person can read, run against the same brain that the
//! daemon has. `docs/conformance.md` is the schema.
//!
//! A case builds a small world ([`given`]: pools, nodes, pods …), does something with it ([`act`]:
//! plan, reconcile, ask for drain rules) and says what must come of it ([`expect`]). Objects of
//! Kubernetes go through the daemon's own reading of manifests, so that a pod's request is added up by the
//! code that does so in service.

mod act;
mod admission;
mod budgets;
mod case;
mod containers;
mod disruption;
mod expect;
mod fields;
pub mod fixtures;
mod flags;
mod given;
mod guests;
mod hosts;
mod nearest;
mod networks;
mod nodes;
mod objects;
mod pods;
mod pools;
mod regions;
mod scalars;
mod settings;
mod shape;
mod short;
mod stage;
mod storage;
mod syntax;
mod templates;
#[cfg(test)]
mod tests;
mod topologies;
mod value;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use crate::bounded_file;

use case::{CaseOutcome, RawCase};

/// Files below a directory at most; more than that is no directory of cases.
const MAX_FILES: usize = 10_000;
/// Bytes of one file at most.
const MAX_BYTES: u64 = 16 << 20;

/// What became of one case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CaseVerdict {
    /// The case's id; of a file that cannot be read, the file.
    pub id: String,
    /// The file, below the directory that was given.
    pub file: String,
    /// The line where the case begins.
    pub line: usize,
    /// As expected.
    pub ok: bool,
    /// The test that shows it instead, as `path::name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub covered_by: Option<String>,
    /// What was expected and what came, when it is not ok.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl std::fmt::Display for CaseVerdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.failure, &self.covered_by) {
            (Some(failure), _) => {
                write!(f, "FAIL {}: {}", self.id, failure.replace('\n', " "))
            }
            (None, Some(test)) => write!(f, "ok {} ({test})", self.id),
            (None, None) => write!(f, "ok {}", self.id),
        }
    }
}

/// Runs every case in the files below `directory` (or in that one file) whose id has `filter` in
/// it, and hands each verdict to `tell` as it comes. An error means that the directory itself cannot be read.
pub fn run(
    directory: &Path,
    filter: Option<&str>,
    mut tell: impl FnMut(&CaseVerdict),
) -> std::io::Result<Vec<CaseVerdict>> {
    let mut verdicts = Vec::new();
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    for path in files(directory)? {
        let name = path
            .strip_prefix(directory)
            .ok()
            .filter(|name| !name.as_os_str().is_empty())
            .unwrap_or(&path)
            .display()
            .to_string();
        for verdict in run_file(&path, &name, filter, &mut known) {
            tell(&verdict);
            verdicts.push(verdict);
        }
    }
    Ok(verdicts)
}

/// Case files below a directory, sorted.
fn files(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    if directory.is_file() {
        return Ok(vec![directory.to_owned()]);
    }
    let mut found = Vec::new();
    let mut folders = vec![directory.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            let of_cases = path
                .extension()
                .is_some_and(|e| e == "yaml" || e == "yml" || e == "toml");
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            } else if of_cases && found.len() < MAX_FILES {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn run_file(
    path: &Path,
    name: &str,
    filter: Option<&str>,
    known: &mut BTreeMap<String, String>,
) -> Vec<CaseVerdict> {
    let broken = |line: usize, failure: String| CaseVerdict {
        id: name.to_owned(),
        file: name.to_owned(),
        line,
        ok: false,
        covered_by: None,
        failure: Some(failure),
    };
    let text = match read(path) {
        Ok(text) => text,
        Err(error) => {
            return vec![broken(
                1,
                format!("{name}:1: expected a text file: {error}"),
            )];
        }
    };
    let file: Arc<str> = name.into();
    let read = if path.extension().is_some_and(|e| e == "toml") {
        syntax::toml(&file, &text)
    } else {
        syntax::yaml(&file, &text)
    };
    let mut verdicts = Vec::new();
    for document in read.documents.iter().filter(|document| !document.is_null()) {
        for raw in case::split(document) {
            match raw {
                Ok(raw) if filter.is_none_or(|filter| raw.id.contains(filter)) => {
                    verdicts.push(judge(&raw, name, known));
                }
                Ok(_) => {}
                Err(wrong) => verdicts.push(broken(wrong.at.line, wrong.to_string())),
            }
        }
    }
    if let Some(error) = read.error {
        verdicts.push(broken(error.at.line, error.to_string()));
    }
    verdicts
}

fn read(path: &Path) -> std::io::Result<String> {
    bounded_file::read_text(path, MAX_BYTES)
}

fn judge(raw: &RawCase, file: &str, known: &mut BTreeMap<String, String>) -> CaseVerdict {
    let mut verdict = CaseVerdict {
        id: raw.id.clone(),
        file: file.to_owned(),
        line: raw.at.line,
        ok: false,
        covered_by: None,
        failure: None,
    };
    let here = format!("{file}:{}", raw.at.line);
    if let Some(first) = known.get(&raw.id) {
        verdict.failure = Some(format!(
            "{here}: expected an id of its own, {} is in {first} already",
            raw.id
        ));
        return verdict;
    }
    known.insert(raw.id.clone(), here);
    match case::run(raw) {
        CaseOutcome::Ok => verdict.ok = true,
        CaseOutcome::Covered(test) => {
            verdict.ok = true;
            verdict.covered_by = Some(test);
        }
        CaseOutcome::Failed(why) => verdict.failure = Some(why),
    }
    verdict
}

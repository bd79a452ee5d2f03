//! Every conformance case in `tests/conformance`, as `pve-autoscaler conformance` runs them.

use std::collections::BTreeMap;
use std::path::Path;

use pve_autoscaler::conformance::{self, CaseVerdict};

/// Cases that do not hold yet, a line each: id, and why. The list may only shrink.
const MISSES: &str = include_str!("conformance/known-misses.txt");

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn verdicts() -> Vec<CaseVerdict> {
    conformance::run(&root().join("tests/conformance"), None, |_| ())
        .expect("the directory is there")
}

fn misses() -> BTreeMap<&'static str, &'static str> {
    MISSES
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_once(' ').unwrap_or((line, "")))
        .collect()
}

#[test]
fn every_case_holds_but_those_that_are_known_to_miss() {
    let misses = misses();
    let verdicts = verdicts();
    assert!(!verdicts.is_empty(), "no case was found");
    let mut wrong = Vec::new();
    for verdict in &verdicts {
        match (verdict.ok, misses.contains_key(verdict.id.as_str())) {
            (false, false) => wrong.push(verdict.to_string()),
            (true, true) => wrong.push(format!(
                "{} holds now: take it out of known-misses.txt",
                verdict.id
            )),
            _ => {}
        }
    }
    let unknown = misses
        .keys()
        .filter(|id| !verdicts.iter().any(|verdict| verdict.id == **id));
    wrong.extend(unknown.map(|id| format!("known-misses.txt names {id}, which is no case")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_case_that_another_test_covers_names_one_that_is_there() {
    let mut wrong = Vec::new();
    for verdict in verdicts() {
        let Some(test) = verdict.covered_by else {
            continue;
        };
        for one in test.split(',').map(str::trim) {
            let (path, name) = one.rsplit_once("::").unwrap_or((one, ""));
            let found = std::fs::read_to_string(root().join(path))
                .is_ok_and(|text| text.contains(&format!("fn {name}(")));
            if !found || name.is_empty() {
                wrong.push(format!("{}: there is no test {one}", verdict.id));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What docs/conformance.md shows as a case is one.
#[test]
fn the_case_in_the_documentation_holds() {
    let page = std::fs::read_to_string(root().join("docs/conformance.md")).expect("it is there");
    let folder = tempfile::tempdir().expect("a directory");
    let cases: Vec<&str> = page
        .split("```yaml\n")
        .skip(1)
        .filter_map(|block| block.split("```").next())
        .filter(|block| block.starts_with("id:"))
        .collect();
    assert!(!cases.is_empty(), "the page shows no case");
    std::fs::write(folder.path().join("page.yaml"), cases.join("---\n")).expect("it is written");
    let verdicts = conformance::run(folder.path(), None, |_| ()).expect("it is there");
    let wrong: Vec<String> = verdicts
        .iter()
        .filter(|v| !v.ok)
        .map(CaseVerdict::to_string)
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

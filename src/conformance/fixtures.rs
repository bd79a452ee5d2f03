//! Worlds that many cases begin with, by name. They are files of their own, in `fixtures/`.

use std::sync::Arc;

use super::scalars::text;
use super::syntax;
use super::value::{CaseData, CaseError, CaseValue};

const ALL: [(&str, &str); 2] = [
    ("KF", include_str!("fixtures/KF.yaml")),
    ("CF", include_str!("fixtures/CF.yaml")),
];

/// Names and texts of all fixtures.
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    ALL.into_iter()
}

/// A case laid over the fixture it names.
pub(super) fn under(case: &CaseValue) -> Result<CaseValue, CaseError> {
    let Some(named) = case.get("fixture") else {
        return Ok(case.clone());
    };
    let name = text(named)?;
    let Some((_, source)) = ALL.iter().find(|(known, _)| *known == name) else {
        let known: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
        return Err(named.wrong(format!(
            "there is no fixture {name:?}; known: {}",
            known.join(", ")
        )));
    };
    let file: Arc<str> = format!("fixture {name}").into();
    let read = syntax::yaml(&file, source);
    if let Some(error) = read.error {
        return Err(error);
    }
    let base = read.documents.into_iter().next().unwrap_or(CaseValue {
        at: case.at.clone(),
        data: CaseData::Map(Vec::new()),
    });
    Ok(case.over(&base))
}

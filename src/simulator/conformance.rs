//! `conformance`: runs case files against the brain and says of each whether it holds.

use std::io::Write as _;

use crate::cli::{CliFailure, ConformanceOptions, Format, print};
use crate::conformance::{self, CaseVerdict};
use crate::model::{foreign, words};

/// One line a case, then the counts.
pub(super) fn run(options: &ConformanceOptions) -> Result<(), CliFailure> {
    if options.fixtures {
        for (name, text) in conformance::fixtures::all() {
            print(&format!("# fixture: {name}\n{text}\n"))?;
        }
        return Ok(());
    }
    let directory = options
        .directory
        .as_deref()
        .unwrap_or_else(|| std::path::Path::new("."));
    let mut output = std::io::stdout().lock();
    let mut trouble = None;
    let json = matches!(options.output, Format::Json);
    let verdicts = conformance::run(directory, options.filter.as_deref(), |verdict| {
        if trouble.is_none() {
            trouble = tell(&mut output, verdict, json).err();
        }
    })
    .map_err(|error| anyhow::anyhow!("{} cannot be read: {error}", directory.display()))?;
    if let Some(error) = trouble {
        return Err(error.into());
    }
    let failed = verdicts.iter().filter(|verdict| !verdict.ok).count();
    let ok = verdicts.len() - failed;
    if !json {
        writeln!(
            output,
            "{}: {ok} ok, {failed} failed",
            words::count(verdicts.len(), "case")
        )?;
    }
    if verdicts.is_empty() {
        let which = options
            .filter
            .as_ref()
            .map_or_else(String::new, |text| format!(" whose id has {text:?} in it"));
        crate::cli::say(&format!(
            "pve-autoscaler: there is no case{which} in {} (*.yaml, *.yml, *.toml)",
            directory.display()
        ));
        return Err(CliFailure::Said);
    }
    if failed > 0 {
        return Err(CliFailure::Said);
    }
    Ok(())
}

fn tell(
    output: &mut impl std::io::Write,
    verdict: &CaseVerdict,
    json: bool,
) -> std::io::Result<()> {
    if json {
        writeln!(
            output,
            "{}",
            foreign::json(&serde_json::to_string(verdict)?)
        )?;
    } else {
        writeln!(output, "{}", foreign::lines(&verdict.to_string()))?;
    }
    output.flush()
}

//! Writes every mutant of some source files into one program: `mutants CRATE_ROOT [--without FILE] FILE...`.
//!
//! A build of the brain takes minutes, and a mutation tool that builds once for each mutant takes days. So all mutants
//! stand in one program, each behind a question to `mutant_switch`, a module that is added to the crate's root: the
//! environment variable `MUTANT` says which one is on while its tests run. Files are changed where they are:
//! `contrib/dev mutants` makes a copy of the tree first. What is printed says by number what each mutant does. A file of
//! numbers, one a line, names those to leave out: what the compiler refused.

mod find;
mod write;

use std::collections::BTreeSet;
use std::fs;

use anyhow::Context as _;

/// Asked by each mutant whether it is on; `{}` stands for the highest number. With `MUTANTS_REACHED`, the name of a file,
/// each mutant that asks is written there once: which tests come by it.
const SWITCH: &str = r#"
pub(crate) mod mutant_switch {
    use std::io::Write as _;
    use std::sync::atomic::{AtomicBool, Ordering};

    static ON: std::sync::LazyLock<u32> = std::sync::LazyLock::new(|| {
        let on = std::env::var("MUTANT").ok();
        on.and_then(|on| on.parse().ok()).unwrap_or(0)
    });
    static REACHED: std::sync::LazyLock<Option<std::fs::File>> = std::sync::LazyLock::new(|| {
        let name = std::env::var_os("MUTANTS_REACHED")?;
        Some(std::fs::File::create(name).expect("a file for what is reached"))
    });
    static SEEN: [AtomicBool; {} + 1] = [const { AtomicBool::new(false) }; {} + 1];

    pub(crate) fn on(mutant: u32) -> bool {
        if let Some(mut file) = REACHED.as_ref()
            && !SEEN[mutant as usize].swap(true, Ordering::Relaxed)
        {
            file.write_all(format!("{mutant}\n").as_bytes()).expect("what is reached can be written");
        }
        *ON == mutant
    }
}
"#;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let root = arguments
        .next()
        .context("the first argument is the crate's root file")?;
    let mut files = Vec::new();
    let mut without: BTreeSet<u32> = BTreeSet::new();
    while let Some(argument) = arguments.next() {
        if argument == "--without" {
            let file = arguments.next().context("--without takes a file")?;
            let text = fs::read_to_string(&file).with_context(|| format!("reading {file}"))?;
            without = text
                .lines()
                .filter_map(|line| line.trim().parse().ok())
                .collect();
        } else {
            files.push(argument);
        }
    }
    let mut number = 0;
    for file in &files {
        let text = fs::read_to_string(file).with_context(|| format!("reading {file}"))?;
        let mutants = find::mutants(&text).with_context(|| format!("parsing {file}"))?;
        let mut written = Vec::new();
        for mutant in mutants {
            number += 1;
            if !without.contains(&number) {
                println!("{number}\t{file}:{}\t{}", mutant.line, mutant.what);
                written.push((number, mutant));
            }
        }
        fs::write(file, write::changed(&text, &written))
            .with_context(|| format!("writing {file}"))?;
    }
    let text = fs::read_to_string(&root).with_context(|| format!("reading {root}"))?;
    let switch = SWITCH.replace("{}", &number.to_string());
    fs::write(&root, text + &switch).with_context(|| format!("writing {root}"))
}

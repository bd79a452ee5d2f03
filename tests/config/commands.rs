//! Commands that texts name exist: in the pages, in the program's own messages, and in what is shipped beside it.

use std::path::{Path, PathBuf};

use clap::{Arg, Command, CommandFactory as _};
use pve_autoscaler::cli::Cli;

use super::tables::root;

/// Where texts are that people read.
const PLACES: [&str; 7] = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs",
    "src",
    "contrib",
    "packaging",
];

/// Signs that stand around a word of a sentence or a usage, and are none of it.
const AROUND: [char; 8] = ['[', ']', '(', ')', ',', ';', ':', '.'];

/// All files at or below a path.
fn files(path: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(path) else {
        found.push(path.to_owned());
        return;
    };
    for entry in entries {
        files(&entry.expect("an entry").path(), found);
    }
}

/// What of a command does not exist, as a text names it: its words behind the program's name.
fn unknown(program: &Command, words: &[&str]) -> Option<String> {
    let mut command = program;
    let mut words = words.iter().map(|word| word.trim_matches(AROUND));
    let mut options = Vec::new();
    while let Some(word) = words.next() {
        if word == "--config" {
            words.next();
        } else if let Some(sub) = command.find_subcommand(word) {
            command = sub;
        } else if word.starts_with("--") {
            options.push(word);
        } else if command.has_subcommands() && word.starts_with(|c: char| c.is_ascii_lowercase()) {
            return Some(format!("there is no {} {word}", command.get_name()));
        } else {
            break;
        }
    }
    options.extend(words.filter(|word| word.starts_with("--")));
    let known = |option: &str| {
        let all = command.get_arguments().chain(program.get_arguments());
        let mut names = all.filter_map(Arg::get_long);
        names.any(|name| name == option) || ["help", "version"].contains(&option)
    };
    let names = options.into_iter().map(|option| {
        let name = option.trim_start_matches('-');
        name.split('=').next().unwrap_or_default()
    });
    let mut missing = names.filter(|name| !name.is_empty() && !known(name));
    let missing = missing.next()?;
    Some(format!("{} has no --{missing}", command.get_name()))
}

/// The commands in what stands between a text's backticks, and in what `doctor` says to type.
fn named(text: &str) -> Vec<&str> {
    let mut named: Vec<&str> = Vec::new();
    for line in text.lines() {
        let codes = line.split('`').skip(1).step_by(2);
        named.extend(codes.flat_map(|code| code.split(['&', '|', ';'])));
    }
    for rest in text.split("mend(").skip(1) {
        let rest = rest.trim_start();
        let rest = rest.strip_prefix("format!(").unwrap_or(rest).trim_start();
        let literal = rest
            .strip_prefix('"')
            .and_then(|rest| rest.split('"').next());
        let literal = literal.filter(|literal| literal.starts_with("pve-autoscaler "));
        named.extend(literal);
    }
    named
}

/// The words of our command behind the program's name; `None` for anything else. Without the name it is one where it begins with a
/// command of ours and has an option.
fn of_ours<'t>(program: &Command, code: &'t str) -> Option<Vec<&'t str>> {
    let mut words: Vec<&str> = code.split_whitespace().collect();
    let first = *words.first()?;
    if first == "pve-autoscaler" {
        words.remove(0);
        // A gap of a text that is filled in.
        let gap = words.first()?.starts_with(['{', '$']);
        return (!gap).then_some(words);
    }
    let has_option = words.iter().any(|word| word.starts_with("--"));
    let is_ours = has_option && program.find_subcommand(first).is_some();
    is_ours.then_some(words)
}

#[test]
fn commands_that_texts_name_exist() {
    let program = Cli::command();
    let mut found = Vec::new();
    for place in PLACES {
        files(&root().join(place), &mut found);
    }
    let mut complaints = Vec::new();
    let mut seen = 0;
    for path in found {
        // What is no text names no command.
        let Ok(text) = std::fs::read_to_string(&path) else {
            continue;
        };
        for code in named(&text) {
            let Some(words) = of_ours(&program, code) else {
                continue;
            };
            seen += 1;
            let wrong = unknown(&program, &words);
            complaints.extend(wrong.map(|why| format!("{}: `{code}`: {why}", path.display())));
        }
    }
    assert!(seen > 350, "{seen} commands");
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// What the test above would find, and what it would not complain of.
#[test]
fn a_command_that_does_not_exist_is_found() {
    let program = Cli::command();
    let wrong = |code: &str| {
        let words = of_ours(&program, code)?;
        unknown(&program, &words)
    };
    for code in [
        "pve-autoscaler doctor --try",
        "doctor --try NAME",
        "pve-autoscaler docter",
        "pve-autoscaler template tries debian",
        "pve-autoscaler --config FILE plan --pods 3",
    ] {
        assert!(wrong(code).is_some(), "{code}");
    }
    for code in [
        "pve-autoscaler template try NAME",
        "pve-autoscaler --config new.toml doctor",
        "pve-autoscaler check --config FILE",
        "pve-autoscaler retry [--socket PATH] POOL",
        "pve-autoscaler generate DIRECTORY",
        "pve-autoscaler {}, support bundle",
        "doctor --quiet",
        "doctor",
        "kubectl get --all-namespaces",
    ] {
        assert_eq!(wrong(code), None, "{code}");
    }
    let text =
        "say(\"`pve-autoscaler plan` says\").mend(\n  format!(\"pve-autoscaler status {x}\"))";
    let found = named(text);
    assert!(found.contains(&"pve-autoscaler plan"), "{found:?}");
    assert!(found.contains(&"pve-autoscaler status {x}"), "{found:?}");
}

//! The rules of the house, held by a test: who may use whom, how long things may be, what may not
//! be written down.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

#[path = "tidy/rooms.rs"]
mod rooms;

const MAX_FILE_LINES: usize = 600;
const MAX_FUNCTION_LINES: usize = 70;

/// What each module of the program's own crate may use besides itself, `model`, `clock` and `planted`;
/// docs/architecture.md has the picture. `lib` is not a module. What is a crate of its own has its list in
/// its Cargo.toml.
const MAY_USE: [(&str, &[&str]); 26] = [
    ("bounded_file", &[]),
    ("clock", &[]),
    ("wire", &[]),
    ("config", &[]),
    ("pve", &["bounded_file"]),
    ("kubernetes", &["bounded_file"]),
    ("broker", &["config", "pve"]),
    ("record", &["brain"]),
    (
        "controller",
        &["brain", "kubernetes", "pve", "config", "record", "wire"],
    ),
    // Cases go through the daemon's own reading of Kubernetes' objects.
    ("conformance", &["bounded_file", "brain", "kubernetes"]),
    ("post", &["controller", "pve"]),
    ("screen", &[]),
    // It runs on hosts that have nothing of the daemon.
    ("pinning", &["pve"]),
    ("notify", &["controller", "config", "post"]),
    ("trace", &["controller", "config", "post"]),
    (
        "web",
        &["controller", "config", "kubernetes", "pve", "record"],
    ),
    ("sim", &["bounded_file", "simulator_args"]),
    ("simulator_args", &["typed_number"]),
    ("typed_number", &[]),
    // The world and the demo in it run the real daemon on the simulator.
    (
        "sim::demo",
        &[
            "controller",
            "kubernetes",
            "pve",
            "config",
            "web",
            "brain",
            "broker",
            "screen",
            "simulator_args",
            "wire",
        ],
    ),
    // Neither `sim` nor `conformance`: they are not for hypervisors (docs/decisions/simulator-apart.md).
    (
        "cli",
        &[
            "controller",
            "bounded_file",
            "brain",
            "broker",
            "config",
            "kubernetes",
            "notify",
            "pinning",
            "pve",
            "record",
            "screen",
            "simulator_args",
            "trace",
            "typed_number",
            "web",
            "wire",
        ],
    ),
    (
        "simulator",
        &["cli", "conformance", "sim", "simulator_args"],
    ),
    // The programs: of the commands, of the daemon, of the broker, of the simulator.
    ("main", &["cli"]),
    ("bin/daemon", &["cli"]),
    ("bin/broker", &["cli"]),
    ("bin/simulator", &["simulator"]),
];

/// What may not stand in the brain: it is a function of plain data.
const NOT_IN_THE_BRAIN: [&str; 21] = [
    "async ",
    ".await",
    "tokio",
    "futures::",
    "kube::",
    "reqwest",
    "hyper",
    "axum",
    "tracing",
    "rand::",
    "std::fs",
    "std::net",
    "std::env",
    "std::thread",
    "std::process",
    "std::time",
    "crate::clock",
    "HashMap",
    "HashSet",
    "Mutex",
    "println!",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file below `folder` for which `wanted` holds.
fn files(folder: &Path, wanted: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries =
            std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        for entry in entries.map(|entry| entry.expect("readable").path()) {
            let name = entry
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            if entry.is_symlink() || name == "target" || name == ".git" {
                continue;
            }
            if entry.is_dir() {
                folders.push(entry);
            } else if wanted(&entry) {
                found.push(entry);
            }
        }
    }
    found.sort();
    found
}

fn is_rust(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "rs")
}

/// The program's sources without their tests: path below `src` and text.
fn sources() -> Vec<(String, String)> {
    let src = root().join("src");
    files(&src, &is_rust)
        .into_iter()
        .map(|path| {
            let name = path
                .strip_prefix(&src)
                .expect("below src")
                .display()
                .to_string();
            let text = std::fs::read_to_string(&path).expect("it is text");
            (name, text)
        })
        .filter(|(name, _)| {
            !name
                .split('/')
                .any(|part| matches!(part, "tests" | "tests.rs"))
        })
        .map(|(name, text)| {
            let program = text
                .split("#[cfg(test)]\nmod tests {")
                .next()
                .unwrap_or_default()
                .to_owned();
            (name, program)
        })
        .collect()
}

/// The benches: path below the root and text.
fn benches() -> Vec<(String, String)> {
    files(&root().join("benches"), &is_rust)
        .into_iter()
        .map(|path| {
            let name = path.strip_prefix(root()).expect("below the root");
            let text = std::fs::read_to_string(&path).expect("it is text");
            (name.display().to_string(), text)
        })
        .collect()
}

/// Whether this folder of `src` is a crate of its own.
fn is_member(module: &str) -> bool {
    root().join("src").join(module).join("Cargo.toml").is_file()
}

/// Every Cargo.toml with its folder: of the program, and of each member.
fn manifests() -> Vec<(PathBuf, toml::Table)> {
    let found = files(root(), &|path| path.ends_with("Cargo.toml"));
    assert!(found.len() >= 4, "{found:?}");
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("it is text");
        let folder = path.parent().expect("a folder").to_owned();
        (folder, text.parse().expect("it is TOML"))
    };
    found.into_iter().map(read).collect()
}

fn module_of(name: &str) -> String {
    let mut parts = name.trim_end_matches(".rs").split('/');
    let first = parts.next().unwrap_or_default();
    if first == "sim" && matches!(parts.next(), Some("demo" | "world")) {
        return "sim::demo".to_owned();
    }
    if first == "bin" {
        return name.trim_end_matches(".rs").to_owned();
    }
    first.to_owned()
}

/// Lines of code: comments speak of what they like.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .map(|line| line.split("//").next().unwrap_or_default())
}

fn none(complaints: &[String]) {
    let list = complaints
        .iter()
        .fold(String::new(), |mut list, complaint| {
            let _ = write!(list, "\n  {complaint}");
            list
        });
    assert!(
        complaints.is_empty(),
        "{} complaints:{list}",
        complaints.len()
    );
}

#[test]
fn modules_use_only_what_lies_further_in() {
    let rules: BTreeMap<&str, &[&str]> = MAY_USE.into_iter().collect();
    let mut complaints = Vec::new();
    for (name, text) in sources() {
        let module = module_of(&name);
        if module == "lib" || is_member(&module) {
            continue;
        }
        let Some(allowed) = rules.get(module.as_str()) else {
            complaints.push(format!("{name}: module {module} has no rule here"));
            continue;
        };
        let own = module.split("::").next().unwrap_or_default();
        for line in code(&text) {
            // A program names the library from outside; elsewhere this is a target of the log.
            let line = match module.as_str() {
                "main" | "bin/daemon" | "bin/broker" | "bin/simulator" => {
                    line.replace("pve_autoscaler::", "crate::")
                }
                _ => line.to_owned(),
            };
            if line.contains("crate::{") {
                complaints.push(format!("{name}: a line for each module, not crate::{{…}}"));
            }
            for used in line.split("crate::").skip(1) {
                let used = used
                    .split(|c: char| !(c.is_alphanumeric() || c == '_'))
                    .next()
                    .unwrap_or_default();
                let fine = used.is_empty()
                    || used == own
                    || matches!(used, "model" | "clock" | "planted")
                    || allowed.contains(&used);
                if !fine {
                    complaints.push(format!("{name} uses crate::{used}"));
                }
            }
        }
    }
    none(&complaints);
}

#[test]
fn the_brain_is_a_function_of_plain_data() {
    let mut complaints = Vec::new();
    for (name, text) in sources() {
        if !name.starts_with("brain/") {
            continue;
        }
        for line in code(&text) {
            for word in NOT_IN_THE_BRAIN {
                if line.contains(word) {
                    complaints.push(format!("{name}: {word}: {}", line.trim()));
                }
            }
        }
    }
    none(&complaints);
}

/// The rooms of the brain, from the ground up: each uses only what lies below it, and `check` nothing at all.
const ROOMS: [&str; 10] = [
    "check",
    "constraints",
    "observed",
    "decision",
    "simulation",
    "lifecycle",
    "scale_up",
    "scale_down",
    "budget",
    "report",
];

#[test]
fn the_rooms_of_the_brain_use_only_what_lies_below() {
    let mut complaints = Vec::new();
    let mut seen = BTreeSet::new();
    for (name, text) in sources() {
        let Some((room, _)) = name
            .strip_prefix("brain/")
            .and_then(|name| name.split_once('/'))
        else {
            continue;
        };
        let Some(floor) = ROOMS.iter().position(|other| *other == room) else {
            complaints.push(format!("{name}: {room} is no room in tests/tidy.rs"));
            continue;
        };
        seen.insert(room.to_owned());
        // As many times `super` as this lead from a file out of its room.
        let depth = name.matches('/').count() - usize::from(name.ends_with("/mod.rs"));
        let out = "super::".repeat(depth);
        for line in code(&text) {
            if line.contains(&out) {
                complaints.push(format!("{name} leaves its room by super: {}", line.trim()));
            }
            for used in line.split("crate::").skip(1) {
                let used = used
                    .split(|c: char| !(c.is_alphanumeric() || c == '_'))
                    .next()
                    .unwrap_or_default();
                if used.is_empty() {
                    complaints.push(format!("{name}: one line for each room: {}", line.trim()));
                }
                let above = ROOMS.iter().skip(floor + 1).any(|other| *other == used);
                if above || room == "check" && ROOMS.contains(&used) && used != room {
                    complaints.push(format!("{name} uses {used}: {}", line.trim()));
                }
            }
        }
    }
    assert_eq!(seen.len(), ROOMS.len(), "{seen:?}");
    none(&complaints);
}

/// The checker judges the deciding code, so it may not share its mistakes.
#[test]
fn the_checker_shares_no_helper_with_the_deciding_code() {
    let mut complaints = Vec::new();
    for (name, text) in sources() {
        let within = name.starts_with("brain/check/") || name == "brain/check.rs";
        for line in code(&text).filter(|line| line.trim_start().starts_with("use ")) {
            let line = line.trim();
            let reaches_out = line.contains("crate::") && !line.contains("crate::check")
                || name == "brain/check/mod.rs" && line.starts_with("use super::")
                || line.starts_with("use super::super::");
            if within && reaches_out {
                complaints.push(format!("{name}: {line}"));
            }
        }
    }
    none(&complaints);
}

/// Shell scripts of this repository, with their names: by what they begin with, since not all have an ending.
fn scripts(directory: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
        let path = entry.path();
        let name = path.strip_prefix(root()).expect("below the root");
        if path.is_dir() {
            if !matches!(name.to_str(), Some("target" | ".git" | "src" | "docs")) {
                scripts(&path, found);
            }
        } else if let Ok(text) = std::fs::read_to_string(&path)
            && ["#!/bin/bash", "#!/bin/sh", "# shellcheck shell="]
                .iter()
                .any(|start| text.starts_with(start))
        {
            found.push((name.display().to_string(), text));
        }
    }
}

/// `timeout` makes a process group in the background: what touches the terminal there is stopped without a word, and
/// Ctrl-C does not reach it. apt-get needs more care still, in one place (`apt_get` in needs.sh).
#[test]
fn scripts_leave_nothing_in_the_background_of_a_terminal() {
    let mut found = Vec::new();
    scripts(root(), &mut found);
    assert!(found.len() >= 15, "{found:?}");
    let mut complaints = Vec::new();
    for (name, text) in &found {
        for line in text.lines().map(str::trim_start) {
            let calls = |word: &str| {
                !line.starts_with('#')
                    && line
                        .split(|c: char| !(c.is_alphanumeric() || "-_./".contains(c)))
                        .any(|part| part == word)
            };
            let guarded = line.contains("timeout --foreground") || line.contains("setsid --wait");
            if calls("timeout") && !guarded {
                complaints.push(format!("{name}: {line}"));
            }
            // A message names it; what is downloaded alone, or into lists of its own, takes no lock.
            let harmless = [
                "say ",
                "die ",
                "echo ",
                "have ",
                "cannot ",
                "-q download ",
                "-o Dir::State::status=",
            ]
            .iter()
            .any(|word| line.contains(word));
            if calls("apt-get") && !harmless && name != "contrib/dev.d/needs.sh" {
                complaints.push(format!("{name}: use need_packages: {line}"));
            }
        }
    }
    none(&complaints);
}

/// Where a dev-dependency gives a library of the program one more feature, cargo builds that library, all that uses it
/// and this crate once more for the tests: four minutes of a fresh clone's first ten.
#[test]
fn tests_and_program_are_built_with_the_same_libraries() {
    let tree = |edges: &str| -> BTreeSet<String> {
        let output = std::process::Command::new(env!("CARGO"))
            .current_dir(root())
            .args(["tree", "--locked", "--offline", "--prefix", "none"])
            .args(["--format", "{p} {f}", "--edges", edges])
            .output()
            .expect("cargo runs");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines()
            .map(|line| line.trim_end_matches(" (*)").to_owned())
            .collect()
    };
    let program = tree("normal,build");
    assert!(program.len() > 100, "{program:?}");
    let tests = tree("normal,build,dev");
    let other: Vec<String> = program.difference(&tests).cloned().collect();
    none(&other);
}

/// Cargo would give a bench that is not named there a test harness, which knows no `--json`.
#[test]
fn every_bench_is_a_program_of_its_own() {
    let manifest: toml::Table = std::fs::read_to_string(root().join("Cargo.toml"))
        .expect("it is there")
        .parse()
        .expect("it is TOML");
    let named: BTreeSet<String> = manifest["bench"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|bench| bench["harness"].as_bool() == Some(false))
        .filter_map(|bench| {
            let name = bench["name"].as_str()?;
            let path = bench.get("path").and_then(toml::Value::as_str);
            Some(path.map_or_else(|| format!("benches/{name}.rs"), str::to_owned))
        })
        .collect();
    let there: BTreeSet<String> = benches()
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| name.matches('/').count() == 1 || name.ends_with("/main.rs"))
        .collect();
    assert_eq!(there, named);
}

#[test]
fn files_and_functions_fit_into_a_head() {
    let mut complaints = Vec::new();
    for (name, text) in sources().into_iter().chain(benches()) {
        let lines: Vec<&str> = text.lines().collect();
        if lines.len() > MAX_FILE_LINES {
            complaints.push(format!(
                "{name} has {} lines, at most {MAX_FILE_LINES}",
                lines.len()
            ));
        }
        for (function, length) in functions(&lines) {
            if length > MAX_FUNCTION_LINES {
                complaints.push(format!(
                    "{name}: {function} has {length} lines, at most {MAX_FUNCTION_LINES}"
                ));
            }
        }
    }
    none(&complaints);
}

/// Functions by name with their length; rustfmt closes a function at the depth where it began.
fn functions(lines: &[&str]) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let trimmed = line.trim_start();
        let depth = line.len() - trimmed.len();
        let head = trimmed
            .trim_start_matches(|c: char| c != 'f')
            .split_once("fn ");
        let begins = ["fn ", "pub ", "pub(", "async fn ", "const fn "]
            .iter()
            .any(|word| trimmed.starts_with(word));
        let Some((_, rest)) = trimmed
            .split_once("fn ")
            .filter(|_| begins && head.is_some())
        else {
            continue;
        };
        let name: String = rest
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        if trimmed.ends_with('}') && trimmed.contains('{') {
            continue;
        }
        let close = format!("{}}}", " ".repeat(depth));
        let semicolon =
            |line: &str| line.ends_with(';') && line.len() - line.trim_start().len() == depth;
        let end = lines[start..]
            .iter()
            .position(|line| **line == close || semicolon(line));
        found.push((name, end.map_or(1, |end| end + 1)));
    }
    found
}

#[test]
fn no_file_names_a_place_of_some_machine() {
    // In two parts, so that this file does not name them.
    let places = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/.cargo"),
        concat!("/ho", "me/"),
    ];
    let mut complaints = Vec::new();
    for path in files(root(), &|_| true) {
        let Ok(text) = std::fs::read_to_string(&path) else {
            continue;
        };
        let name = path
            .strip_prefix(root())
            .expect("below the root")
            .display()
            .to_string();
        for (number, line) in text.lines().enumerate() {
            // `pve://home/9001` is no place.
            let named = |place: &str| {
                line.match_indices(place)
                    .any(|(at, _)| !line[..at].ends_with('/'))
            };
            if places.iter().any(|place| named(place)) {
                complaints.push(format!("{name}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    none(&complaints);
}

#[test]
fn every_dependency_comes_from_crates_io_and_earns_its_place() {
    let read = |name: &str| {
        std::fs::read_to_string(root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    };
    let lock = read("Cargo.lock");
    let elsewhere: Vec<String> = lock
        .lines()
        .filter(|line| line.starts_with("source = "))
        .filter(|line| !line.contains("registry+https://github.com/rust-lang/crates.io-index"))
        .map(ToString::to_string)
        .collect();
    none(&elsewhere);
    let manifests = manifests();
    let table = read("docs/dependencies.md");
    let rows: Vec<(&str, &str)> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .collect();
    let reasonless: Vec<String> = rows
        .iter()
        .filter(|(_, why)| why.trim_end_matches('|').trim().is_empty())
        .map(|(name, _)| format!("docs/dependencies.md does not say what {name} is for"))
        .collect();
    none(&reasonless);
    let described: BTreeSet<&str> = rows.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        described.len(),
        rows.len(),
        "docs/dependencies.md names a crate twice"
    );
    let sections = ["dependencies", "dev-dependencies", "build-dependencies"];
    let wanted: BTreeSet<&str> = manifests
        .iter()
        .flat_map(|(_, manifest)| sections.iter().filter_map(|section| manifest.get(*section)))
        .filter_map(toml::Value::as_table)
        .flatten()
        .filter(|(_, terms)| terms.get("path").is_none())
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(
        described, wanted,
        "docs/dependencies.md and Cargo.toml differ"
    );
}

/// Whether the line names this crate: `NAME::` with nothing before it, or `::NAME::`. Where a module of ours has the same
/// name (`kube`), the second alone is the crate.
fn names_crate(line: &str, name: &str) -> bool {
    let ours = root().join("src").join(name).is_dir() && !is_member(name);
    line.match_indices(name).any(|(at, _)| {
        let word = |c: char| c.is_alphanumeric() || c == '_';
        let before = &line[..at];
        let outer = before.strip_suffix("::");
        let named = match outer {
            Some(before) => !before.ends_with(|c: char| word(c) || c == '>'),
            None => !ours && !before.ends_with(|c: char| word(c) || c == ':'),
        };
        named && line[at + name.len()..].starts_with("::")
    })
}

/// What nobody names is built for nothing; what tests alone name belongs to the dev-dependencies.
#[test]
fn every_dependency_is_used() {
    let src = root().join("src");
    let mut complaints = Vec::new();
    for (folder, manifest) in manifests() {
        let tests = folder.strip_prefix(root().join("tests")).ok();
        let own = folder.strip_prefix(&src).ok();
        // The program's own crate is what no member is.
        let is_ours = |path: &Path| match own {
            Some(own) => path.starts_with(own),
            None => {
                let module = path.iter().next().and_then(|part| part.to_str());
                !module.is_some_and(is_member)
            }
        };
        let text = |path: PathBuf| std::fs::read_to_string(path).expect("it is text");
        let program: Vec<String> = match tests {
            // A tool of the tests.
            Some(_) => files(&folder, &is_rust).into_iter().map(text).collect(),
            None => sources()
                .into_iter()
                .filter(|(name, _)| is_ours(Path::new(name)))
                .map(|(_, text)| text)
                .collect(),
        };
        let all: Vec<String> = ["src", "tests", "benches"]
            .iter()
            .flat_map(|name| files(&root().join(name), &is_rust))
            .filter(|path| match path.strip_prefix(&src) {
                Ok(path) => is_ours(path),
                Err(_) => own.is_none() && !path.starts_with(root().join("tests/mutants")),
            })
            .map(text)
            .collect();
        for (section, texts, where_) in [
            ("dependencies", &program, "the program"),
            ("dev-dependencies", &all, "tests and benches"),
        ] {
            let table = manifest.get(section).and_then(toml::Value::as_table);
            for name in table.into_iter().flat_map(toml::Table::keys) {
                let word = name.replace('-', "_");
                let used = texts.iter().any(|text| {
                    code(text).any(|line| {
                        names_crate(line, &word)
                            || line.contains(&format!("{word}!("))
                            || own.is_none() && line.contains(&format!("crate::{word}::"))
                    })
                });
                if !used {
                    complaints.push(format!(
                        "{name}: {where_} names it nowhere; take it out of [{section}] in {}/Cargo.toml",
                        folder.display()
                    ));
                }
            }
        }
    }
    none(&complaints);
}

/// Type names that may stand for more than one thing, each with the reason. A name belongs here only where two
/// crates must not know each other, or where others give the name.
const NAMES_FOR_TWO_THINGS: &[(&str, &str)] = &[];

/// The types that a text defines. An indented `type` is what a trait or an impl asks for, and is named by that.
fn types(text: &str) -> impl Iterator<Item = &str> {
    code(text).filter_map(|line| {
        let mut words = line.split_whitespace();
        let mut keyword = words.next()?;
        if keyword == "pub" || keyword.starts_with("pub(") {
            keyword = words.find(|word| !word.ends_with(')'))?;
        }
        let defines = match keyword {
            "struct" | "enum" | "trait" => true,
            "type" => !line.starts_with(' '),
            _ => false,
        };
        let name = words.next().filter(|_| defines)?;
        let end = name.find(|c: char| !(c.is_alphanumeric() || c == '_'));
        Some(&name[..end.unwrap_or(name.len())])
    })
}

/// One word, one concept: whoever reads a type's name far from its definition knows which type it is.
#[test]
fn a_type_name_stands_for_one_thing() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (file, text) in sources() {
        for name in types(&text) {
            places
                .entry(name.to_owned())
                .or_default()
                .push(file.clone());
        }
    }
    assert!(places.len() > 500, "only {} types", places.len());
    let mut complaints = Vec::new();
    for (name, reason) in NAMES_FOR_TWO_THINGS {
        if places.get(*name).is_none_or(|files| files.len() < 2) {
            complaints.push(format!("{name} need not be among the exceptions: {reason}"));
        }
        places.remove(*name);
    }
    for (name, files) in places {
        if files.len() > 1 {
            complaints.push(format!("{name} is defined in {}", files.join(", ")));
        }
    }
    none(&complaints);
}

#[test]
fn the_architecture_names_every_module() {
    let text = std::fs::read_to_string(root().join("docs/architecture.md")).expect("it is there");
    let missing: Vec<String> = sources()
        .iter()
        .map(|(name, _)| module_of(name))
        .filter(|module| {
            !matches!(module.as_str(), "main" | "lib" | "clock" | "sim::demo")
                && !module.starts_with("bin/")
        })
        .collect::<BTreeSet<_>>()
        .into_iter()
        .filter(|module| !text.contains(&format!("| `{module}` |")))
        .collect();
    none(&missing);
}

/// Every page of the documentation: its path below the root and its text.
fn pages() -> Vec<(PathBuf, String)> {
    let pages = files(root(), &|path| path.extension().is_some_and(|e| e == "md"));
    let read = |page: PathBuf| {
        let text =
            std::fs::read_to_string(&page).unwrap_or_else(|e| panic!("{}: {e}", page.display()));
        (
            page.strip_prefix(root())
                .expect("below the root")
                .to_owned(),
            text,
        )
    };
    pages.into_iter().map(read).collect()
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut dead = Vec::new();
    for (page, text) in pages() {
        let folder = root().join(&page);
        let folder = folder.parent().expect("it lies in a folder");
        for link in text.split("](").skip(1) {
            let link = link.split([')', ' ', '#']).next().unwrap_or_default();
            if !link.is_empty() && !link.contains("://") && !folder.join(link).exists() {
                dead.push(format!("{}: {link}", page.display()));
            }
        }
    }
    none(&dead);
}

/// How a heading is named in links to it, as GitHub does: lower case, without marks, blanks as hyphens.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter_map(|of| match of {
        ' ' => Some('-'),
        '-' | '_' => Some(of),
        _ => of.is_alphanumeric().then_some(of),
    });
    kept.collect()
}

/// The anchors of a page. Of headings that are alike the second has a number.
fn anchors(text: &str) -> BTreeSet<String> {
    let (mut anchors, mut code) = (BTreeSet::new(), false);
    for line in text.lines() {
        code ^= line.trim_start().starts_with("```");
        let heading = line.trim_start_matches('#');
        if code || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let name = anchor(heading);
        let again = (1..).map(|number| format!("{name}-{number}"));
        let mut names = std::iter::once(name.clone()).chain(again);
        anchors.extend(names.find(|name| !anchors.contains(name)));
    }
    anchors
}

#[test]
fn links_into_pages_meet_a_heading() {
    let pages: BTreeMap<PathBuf, String> = pages().into_iter().collect();
    let by_place: BTreeMap<PathBuf, BTreeSet<String>> = pages
        .iter()
        .map(|(page, text)| (normal(page), anchors(text)))
        .collect();
    let (mut dead, mut seen) = (Vec::new(), 0);
    for (page, text) in &pages {
        for link in text.split("](").skip(1) {
            let link = link.split([')', ' ']).next().unwrap_or_default();
            let Some((file, heading)) = link.split_once('#') else {
                continue;
            };
            let to = match file {
                "" => page.clone(),
                _ => page.parent().expect("it lies in a folder").join(file),
            };
            if let Some(anchors) = by_place.get(&normal(&to)) {
                seen += 1;
                if !anchors.contains(heading) {
                    dead.push(format!("{}: {link}", page.display()));
                }
            }
        }
    }
    assert!(seen > 100, "{seen} links were looked at");
    none(&dead);
}

/// A path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => drop(parts.pop()),
            std::path::Component::CurDir => {}
            part => parts.push(part),
        }
    }
    parts
}

/// The package has the pages without the sources, and fails to build where one of them links to what is left out.
#[test]
fn the_package_can_be_given_its_pages() {
    let staged = tempfile::tempdir().expect("a folder for the pages");
    let script = root().join("packaging/stage-pages.sh");
    let output = std::process::Command::new(script)
        .arg(staged.path())
        .output();
    let output = output.expect("the script runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let read = |page: &str| std::fs::read_to_string(staged.path().join(page)).expect(page);
    for page in [
        "README.md",
        "docs/architecture.md",
        "docs/decisions/machines-stay-open.md",
    ] {
        assert!(
            !read(page).contains("src/brain/README.md)"),
            "{page} links to sources"
        );
    }
}

/// A part that this machine cannot run ends with 77, as others do: `.ci/run` took a skipped end to end for one that went well.
#[test]
fn end_to_end_that_cannot_run_here_ends_as_skipped() {
    use std::os::unix::fs::PermissionsExt as _;
    let tools = tempfile::tempdir().expect("a folder");
    // A machine without namespaces.
    let unshare = tools.path().join("unshare");
    std::fs::write(&unshare, "#!/bin/sh\nexit 1\n").expect("written");
    let runs = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&unshare, runs).expect("it is ours");
    let path = std::env::var("PATH").unwrap_or_default();
    let output = std::process::Command::new(root().join("contrib/dev"))
        .arg("e2e")
        .env("PATH", format!("{}:{path}", tools.path().display()))
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(77), "{said}");
    assert!(said.contains("== skip: end to end"), "{said}");
}

#[test]
fn the_index_of_decisions_has_them_all() {
    let decisions = Path::new("docs/decisions");
    let pages = pages();
    let index = decisions.join("README.md");
    let (_, index) = pages
        .iter()
        .find(|(page, _)| *page == index)
        .expect("it is there");
    let missing: Vec<String> = pages
        .iter()
        .filter(|(page, _)| page.parent() == Some(decisions) && !page.ends_with("README.md"))
        .map(|(page, text)| {
            let title = text
                .lines()
                .next()
                .unwrap_or_default()
                .trim_start_matches("# ");
            let name = page.file_name().unwrap_or_default().display();
            format!("[{title}]({name})")
        })
        .filter(|line| !index.contains(line.as_str()))
        .map(|line| format!("docs/decisions/README.md lacks the line: - {line}"))
        .collect();
    none(&missing);
}

/// Every TOML block in the documentation that begins with `version` is a valid file.
#[test]
fn configurations_in_the_documentation_are_valid() {
    let mut checked = 0;
    let mut pages = files(&root().join("docs"), &|path| {
        path.extension().is_some_and(|e| e == "md")
    });
    pages.push(root().join("README.md"));
    for page in pages {
        let text =
            std::fs::read_to_string(&page).unwrap_or_else(|e| panic!("{}: {e}", page.display()));
        for block in text.split("```toml\n").skip(1) {
            let block = block.split("```").next().unwrap_or_default();
            if block.starts_with("version") {
                let name = page.display().to_string();
                let settings =
                    pve_autoscaler::config::parse(block, &name).unwrap_or_else(|e| panic!("{e}"));
                assert!(settings.configured, "{name}");
                checked += 1;
            }
        }
    }
    assert!(
        checked >= 2,
        "README.md and docs/configuration.md have a whole configuration each"
    );
}

/// Planted bugs are for tests: nothing of them is in a program that people run, and none is forgotten.
#[test]
fn planted_bugs_are_tried_by_tests_and_are_in_no_release() {
    let mut complaints = Vec::new();
    let manifest: toml::Table = std::fs::read_to_string(root().join("Cargo.toml"))
        .expect("it is there")
        .parse()
        .expect("it is TOML");
    for (name, profile) in manifest["profile"].as_table().expect("a table") {
        if profile.get("debug-assertions").is_some() {
            complaints.push(format!("profile {name} sets debug-assertions itself"));
        }
    }
    let sources = sources();
    let (_, list) = sources
        .iter()
        .find(|(name, _)| name == "planted/lib.rs")
        .expect("it is there");
    let (_, list) = list.split_once("pub enum Bug {").expect("the list");
    let (list, _) = list.split_once("\n    }").expect("its end");
    let bugs: Vec<&str> = code(list)
        .map(|line| line.trim().trim_end_matches(','))
        .filter(|line| !line.is_empty())
        .collect();
    assert!(bugs.len() >= 20, "{bugs:?}");
    let trials = std::fs::read_to_string(root().join("tests/life/planted.rs")).expect("it is text");
    let product = || sources.iter().filter(|(name, _)| name != "planted/lib.rs");
    for bug in bugs {
        let asked = format!("planted!({bug})");
        if !product().any(|(_, text)| code(text).any(|line| line.contains(&asked))) {
            complaints.push(format!("{bug} is planted nowhere"));
        }
        if !trials.contains(&format!("Bug::{bug}")) {
            complaints.push(format!("tests/life/planted.rs does not try {bug}"));
        }
    }
    for (name, text) in product() {
        if code(text).any(|line| line.contains("planted::")) {
            complaints.push(format!(
                "{name} plants bugs, or asks for them without the macro"
            ));
        }
    }
    none(&complaints);
}

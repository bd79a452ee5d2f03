//! The tables that say which key or command here does what something else does: each key is in the schema, each
//! command and option in the program.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::CommandFactory as _;
use pve_autoscaler::cli::Cli;
use pve_autoscaler::config;
use serde_json::Value;

/// The pages that have such tables; their last column is called "here", or ends with that word.
const PAGES: [&str; 3] = ["README.md", "docs/moving.md", "docs/peers.md"];

/// Programs of others whose lines may be named.
const PROGRAMS: [&str; 6] = [
    "apt",
    "contrib/dev",
    "journalctl",
    "kubectl",
    "qm",
    "systemctl",
];

/// Words in code that are neither a key nor a command.
const WORDS: [&str; 7] = [
    "cpu-cfs-quota",
    "cpu-cfs-quota-period",
    "cpupower",
    "guest-exec",
    "pack",
    "tuned",
    "{{ host }}",
];

/// A row of a table: where it is, and its last cell.
struct Row {
    place: String,
    here: String,
}

pub(super) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A page's text.
pub(super) fn read(page: &str) -> String {
    std::fs::read_to_string(root().join(page)).unwrap_or_else(|e| panic!("{page}: {e}"))
}

fn rows(page: &str) -> Vec<Row> {
    let text = read(page);
    let mut found = Vec::new();
    let mut columns = None;
    for (number, line) in text.lines().enumerate() {
        let Some(inner) = line
            .strip_prefix('|')
            .and_then(|rest| rest.strip_suffix('|'))
        else {
            columns = None;
            continue;
        };
        let cells: Vec<&str> = inner.split('|').map(str::trim).collect();
        let last = cells.last().copied().unwrap_or_default();
        let place = format!("{page}:{}", number + 1);
        match columns {
            None => columns = Some((cells.len(), last.ends_with("here"))),
            Some((_, false)) => {}
            Some((wanted, true)) => {
                assert_eq!(cells.len(), wanted, "{place}: the row has other columns");
                if !last.chars().all(|sign| sign == '-') {
                    found.push(Row {
                        place,
                        here: last.to_owned(),
                    });
                }
            }
        }
    }
    found
}

/// What stands between backquotes.
fn code(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// What the schema says of a key's place, `NAME` standing for any name.
fn in_schema<'s>(schema: &'s Value, path: &str) -> Result<&'s Value, String> {
    let resolved = |mut node: &'s Value| {
        while let Some(reference) = node["$ref"].as_str() {
            node = &schema["$defs"][reference.trim_start_matches("#/$defs/")];
        }
        node
    };
    let mut node = schema;
    for step in path.split('.') {
        if node["type"] == "array" {
            node = resolved(&node["items"]);
        }
        let known = &node["properties"][step];
        let next = match (known.is_null(), step) {
            (false, _) => known,
            (true, "NAME") if node["additionalProperties"].is_object() => {
                &node["additionalProperties"]
            }
            (true, _) => return Err(format!("there is no key {path}: {step} is not known")),
        };
        node = resolved(next);
    }
    Ok(node)
}

/// `key`, `key = value`, `[table]` or `[[list]]`.
fn key(schema: &Value, text: &str) -> Result<(), String> {
    if let Some(table) = text.strip_prefix('[') {
        let list = table.strip_prefix('[');
        let name = list.unwrap_or(table).trim_end_matches(']');
        let node = in_schema(schema, name)?;
        let is_list = node["type"] == "array";
        return if is_list == list.is_some() {
            Ok(())
        } else {
            Err(format!("{text} is a {}", node["type"]))
        };
    }
    let (path, value) = text.split_once(" = ").unwrap_or((text, ""));
    let node = in_schema(schema, path)?;
    if value.is_empty() {
        return Ok(());
    }
    let value: toml::Table =
        toml::from_str(&format!("value = {value}")).map_err(|e| e.to_string())?;
    let value = serde_json::to_value(&value["value"]).expect("it is plain");
    let among = |choices: &Value, one: &dyn Fn(&Value) -> bool| {
        choices.as_array().is_none_or(|all| all.iter().any(one))
    };
    let fits = among(&node["oneOf"], &|choice| choice["const"] == value)
        && among(&node["enum"], &|choice| *choice == value)
        && match node["type"].as_str() {
            Some("integer") => value.is_u64(),
            Some("boolean") => value.is_boolean(),
            Some("string") => value.is_string(),
            _ => true,
        };
    if fits {
        Ok(())
    } else {
        Err(format!("{path} cannot be {value}"))
    }
}

/// `pve-autoscaler COMMAND … --option …`: what is not a command or an option is an argument.
fn command(text: &str) -> Result<(), String> {
    let mut program = Cli::command();
    program.build();
    let mut at = &program;
    for word in text.split_whitespace().skip(1) {
        if let Some(option) = word.strip_prefix("--") {
            let option = option.split('=').next().unwrap_or_default();
            if !at
                .get_arguments()
                .any(|known| known.get_long() == Some(option))
            {
                return Err(format!(
                    "`{text}`: {} has no option --{option}",
                    at.get_name()
                ));
            }
        } else if let Some(next) = at.find_subcommand(word) {
            at = next;
        } else if at.get_positionals().next().is_none() {
            return Err(format!("`{text}`: {} has no command {word}", at.get_name()));
        }
    }
    match at.get_name() {
        "pve-autoscaler" => Err(format!("`{text}` names no command")),
        _ => Ok(()),
    }
}

/// One piece of code of a cell: whether it names a key or a command, or why it does not exist.
fn named(schema: &Value, text: &str) -> Result<bool, String> {
    let program = text.split(' ').next().unwrap_or_default();
    if program == "pve-autoscaler" {
        return command(text).map(|()| true);
    }
    let variable = text
        .split_once('=')
        .is_some_and(|(name, _)| name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_'));
    let label = text.contains('/') && !text.contains(' ');
    if PROGRAMS.contains(&program) || WORDS.contains(&text) || variable || label {
        return Ok(false);
    }
    key(schema, text).map(|()| true)
}

fn complaint(schema: &Value, row: &Row) -> Option<String> {
    let mut names = 0;
    for text in code(&row.here) {
        match named(schema, text) {
            Ok(counts) => names += usize::from(counts),
            Err(why) => return Some(format!("{}: {why}", row.place)),
        }
    }
    let answered = names > 0
        || row.here.starts_with("always")
        || row.here.contains("](")
        || PROGRAMS
            .iter()
            .any(|program| row.here.contains(&format!("`{program}")))
        || row.here.contains("=debug");
    // What is not here says what to use, or why nothing is needed.
    let missing = row.here.strip_prefix("not here");
    let explained = missing.is_some_and(|rest| rest.len() > 15);
    let whole = match missing {
        Some(_) => explained,
        None => answered,
    };
    (!whole).then(|| format!("{}: {:?} names nothing that is here", row.place, row.here))
}

#[test]
fn every_key_and_command_in_the_tables_of_others_exists() {
    let schema = config::schema::schema();
    let mut complaints = Vec::new();
    for page in PAGES {
        let rows = rows(page);
        assert!(
            rows.len() >= 15,
            "{page} has {} rows with a column \"here\"",
            rows.len()
        );
        complaints.extend(rows.iter().filter_map(|row| complaint(&schema, row)));
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// What the test above must notice.
#[test]
fn a_key_or_command_that_is_not_there_is_noticed() {
    let schema = config::schema::schema();
    let said = |here: &str| {
        let row = Row {
            place: PathBuf::from("page").display().to_string(),
            here: here.to_owned(),
        };
        complaint(&schema, &row).unwrap_or_default()
    };
    for (here, why) in [
        ("`pool.NAME.max_node`", "no key pool.NAME.max_node"),
        ("`pool.workers.max`", "workers is not known"),
        ("`scaledown.unneeded_time`", "scaledown is not known"),
        ("`[pool.NAME.kubelets]`", "kubelets is not known"),
        ("`[pool.NAME.budget]`", "is a \"array\""),
        ("`pool.NAME.host_strategy = \"fullest\"`", "cannot be"),
        ("`pool.NAME.min = true`", "cannot be"),
        ("`pve-autoscaler drain`", "no command drain"),
        ("`pve-autoscaler`", "names no command"),
        ("`pve-autoscaler plan --dry-run`", "no option --dry-run"),
        ("`pve-autoscaler template rebuild`", "no command rebuild"),
        ("somehow", "names nothing"),
        ("not here", "names nothing"),
        (
            "not here: `pool.NAME.pinning` instead",
            "pinning is not known",
        ),
    ] {
        assert!(said(here).contains(why), "{here}: {:?}", said(here));
    }
    for here in [
        "`pool.NAME.max`, `[[pool.NAME.budget]]`, `[pool.NAME.kubelet]`",
        "`pool.NAME.budget.schedule`",
        "`pool.NAME.host_strategy = \"pack\"`, `pool.NAME.min = 0`",
        "`pve-autoscaler replay --config new.toml`, `pve-autoscaler explain pod shop/db-0`",
        "not here: `kubectl drain NODE` empties one",
    ] {
        assert_eq!(said(here), "");
    }
}

/// Keys with their table that a text names in code: `scale_down.enabled`, `limits.max_cpu = 3`.
fn keys_in(text: &str) -> BTreeSet<&str> {
    let tables = [
        "broker",
        "kubernetes",
        "lifecycle",
        "limits",
        "proxmox",
        "recorder",
        "scale_down",
        "scale_up",
        "telemetry",
        "web",
    ];
    let spans = text
        .lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2));
    let keys = spans.filter_map(|span| {
        let path = span.split([' ', '=']).next()?;
        let (table, key) = path.split_once('.')?;
        let plain = !key.is_empty()
            && key
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_.".contains(&b));
        // `setup`'s answers have tables of these names, too, and `limits.rs` is a file.
        let other = [
            "kubernetes.kubeconfig",
            "kubernetes.context",
            "kubernetes.server",
            "kubernetes.io",
            "limits.rs",
        ]
        .contains(&path)
            || [
                "proxmox.node",
                "proxmox.vm",
                "proxmox.managed",
                "proxmox.endpoint",
                "proxmox.resource_pool",
            ]
            .contains(&path);
        (plain && !other && tables.contains(&table)).then_some(path)
    });
    keys.collect()
}

#[test]
fn keys_that_pages_and_helps_name_exist() {
    let schema = config::schema::schema();
    let mut pages: Vec<(String, String)> = vec![("README.md".to_owned(), read("README.md"))];
    let folder = std::fs::read_dir(root().join("docs")).expect("the pages");
    for page in folder.map(|entry| entry.expect("an entry").file_name()) {
        let page = format!("docs/{}", page.display());
        if Path::new(&page).extension().is_some_and(|end| end == "md") {
            let text = read(&page);
            pages.push((page, text));
        }
    }
    let mut program = Cli::command();
    program.build();
    for command in program.get_subcommands() {
        let help = command.clone().render_long_help().to_string();
        pages.push((format!("--help of {}", command.get_name()), help));
    }
    let mut count = 0;
    let mut wrong = Vec::new();
    for (page, text) in &pages {
        for path in keys_in(text) {
            count += 1;
            if let Err(why) = in_schema(&schema, path) {
                wrong.push(format!("{page}: {why}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(count > 40, "{count} keys were found");
    assert!(in_schema(&schema, "scale_down.max_parallel_drain").is_err());
}

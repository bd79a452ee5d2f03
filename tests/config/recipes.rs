//! The recipes: each is a file that our own reading takes, and what the pages tell to type exists.

use clap::CommandFactory as _;
use clap::error::ErrorKind;
use pve_autoscaler::cli::Cli;
use pve_autoscaler::config;

use super::tables::read;

/// Pages that promise whole files.
const PAGES: [&str; 2] = ["docs/recipes.md", "docs/moving.md"];

/// The fenced blocks of a language in a page.
fn blocks<'t>(text: &'t str, language: &str) -> Vec<&'t str> {
    let fence = format!("```{language}\n");
    let after = text.split(&*fence).skip(1);
    after.filter_map(|rest| rest.split("```").next()).collect()
}

#[test]
fn every_recipe_is_a_whole_file_without_a_warning() {
    for page in PAGES {
        let text = read(page);
        let files = blocks(&text, "toml");
        assert!(!files.is_empty(), "{page} has none");
        for (number, file) in files.iter().enumerate() {
            let name = format!("{page}, file {}", number + 1);
            let settings = config::parse(file, &name).unwrap_or_else(|e| panic!("{e}"));
            assert!(settings.configured, "{name} configures nothing");
            assert!(
                settings.warnings.is_empty(),
                "{name}: {:?}",
                settings.warnings
            );
        }
    }
}

/// What people come for.
const SOUGHT: [&str; 11] = [
    "First node",
    "Several pools",
    "GPU pool",
    "Pinned low-latency pool",
    "Static addresses",
    "Upgrades",
    "High availability",
    "k3s",
    "Two PVE clusters",
    "Moving from kproximate",
    "Moving from cluster-autoscaler",
];

/// Each recipe that people come for has one heading, and no other begins like it.
#[test]
fn what_people_come_for_has_one_heading_each() {
    let text = read("docs/recipes.md");
    let headings: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .collect();
    for sought in SOUGHT {
        let found = headings.iter().filter(|one| one.starts_with(sought));
        assert_eq!(found.count(), 1, "{sought}: {headings:?}");
    }
}

/// Recipes that the reference of all keys leads to, by their headings.
const NAMED: [&str; 6] = [
    "Six hosts with local ZFS",
    "Static addresses in a VLAN",
    "GPU pool",
    "Pinned low-latency pool",
    "Two PVE clusters",
    "k3s",
];

/// Who reads about the keys finds the whole files of usual installations.
#[test]
fn the_reference_of_the_keys_links_to_recipes_by_name() {
    let reference = config::reference::reference();
    let recipes = read("docs/recipes.md");
    for name in NAMED {
        let heading = format!("## {name}");
        assert!(recipes.lines().any(|line| line == heading), "{heading}");
        let link = format!("](recipes.md#{})", name.to_lowercase().replace(' ', "-"));
        assert!(reference.contains(&link), "{name}: {link}");
    }
}

/// A heading without a file is a recipe that nobody can cook.
#[test]
fn every_recipe_has_its_file() {
    let text = read("docs/recipes.md");
    let mut recipes = 0;
    for section in text.split("\n## ").skip(1) {
        let title = section.lines().next().unwrap_or_default();
        let elsewhere = section.contains("](moving.md#");
        assert!(
            !blocks(section, "toml").is_empty() || elsewhere,
            "{title} has no file"
        );
        recipes += 1;
    }
    assert!(recipes >= 10, "{recipes} recipes");
}

/// The program's lines in a block of commands: what stands between signs of the shell.
fn lines(block: &str) -> impl Iterator<Item = String> {
    let whole = block.replace("\\\n", " ");
    let lines: Vec<String> = whole
        .lines()
        .map(|line| line.split(" #").next().unwrap_or_default())
        .flat_map(|line| line.split(['|', '>', '&', ';', '<']))
        .map(|part| part.trim().to_owned())
        .filter(|part| part.starts_with("pve-autoscaler ") && !part.contains("pve-autoscaler_"))
        .collect();
    lines.into_iter()
}

/// Words as a shell takes them; quotes hold blanks together.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for sign in line.chars() {
        match (quote, sign) {
            (None, '\'' | '"') => quote = Some(sign),
            (Some(open), _) if sign == open => quote = None,
            (None, ' ') => words.push(String::new()),
            (_, _) => words.last_mut().expect("there is one").push(sign),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// What the program says of a line that it does not take.
fn refused(line: &str) -> Option<String> {
    let error = Cli::command().try_get_matches_from(words(line)).err()?;
    (error.kind() != ErrorKind::DisplayHelp).then(|| format!("`{line}`: {error}"))
}

#[test]
fn what_the_pages_tell_to_type_exists() {
    let mut complaints = Vec::new();
    let mut seen = 0;
    let folder = std::fs::read_dir(super::tables::root().join("docs")).expect("a folder");
    let mut pages: Vec<String> = folder
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| Some(format!("docs/{}.md", name.strip_suffix(".md")?)))
        .collect();
    pages.push("README.md".to_owned());
    for page in pages {
        let text = read(&page);
        for line in blocks(&text, "sh").into_iter().flat_map(lines) {
            seen += 1;
            complaints.extend(refused(&line).map(|why| format!("{page}: {why}")));
        }
    }
    assert!(seen > 40, "{seen} lines");
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

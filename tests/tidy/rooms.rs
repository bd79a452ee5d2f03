//! The pages of the brain's rooms, and the daemon's, name only what is there: a type, a function or a file that was renamed or has moved
//! is a complaint with page, line and word.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{ROOMS, code, files, is_rust, none, root};

/// Names on these pages that are neither code of the brain, of the model and of the configuration nor a key of the file: whose they are, and
/// the names.
const NAMES_OF_OTHERS: [(&str, &[&str]); 6] = [
    (
        "Kubernetes' API",
        &[
            "claimRef",
            "matchFields",
            "maxSkew",
            "namespaceSelector",
            "nominatedNodeName",
            "PodDisruptionBudgets",
            "ReadWriteOncePod",
        ],
    ),
    (
        "kube-scheduler",
        &["FindMatchingVolume", "VolumeRestrictions"],
    ),
    (
        "cluster-autoscaler and Karpenter",
        &["ClusterSnapshot", "RunOnce", "consolidateAfter"],
    ),
    ("Rust", &["Borrowed", "Cow", "None", "Ok", "Owned", "false"]),
    (
        "families of scenarios, and plain words",
        &["EX", "ST", "VMs"],
    ),
    (
        "pods, nodes, pools and the like in examples",
        &[
            "d", "db", "e", "evil", "four", "home", "m", "n1", "n2", "old", "p", "pve1", "shop",
            "v7hvw3",
        ],
    ),
];

/// Source files of some folders, by what they declare.
struct Sources {
    files: Vec<SourceFile>,
}

struct SourceFile {
    /// Below the root.
    path: PathBuf,
    /// Functions, types, constants and modules.
    items: BTreeSet<String>,
    /// Those, and variants, fields and parameters.
    declared: BTreeSet<String>,
    /// Types that it defines or gives functions to.
    types: BTreeSet<String>,
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The identifiers of a line.
fn words(line: &str) -> Vec<&str> {
    let words = line.split(|c| !is_word(c));
    words.filter(|word| !word.is_empty()).collect()
}

impl SourceFile {
    fn read(path: &Path) -> SourceFile {
        let text =
            std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let mut file = SourceFile {
            path: path
                .strip_prefix(root())
                .expect("below the root")
                .to_owned(),
            items: BTreeSet::new(),
            declared: BTreeSet::new(),
            types: BTreeSet::new(),
        };
        for line in code(&text) {
            file.declare(line);
        }
        file.declared.extend(file.items.iter().cloned());
        file
    }

    fn declare(&mut self, line: &str) {
        let all = words(line);
        for pair in all.windows(2) {
            let name = pair[1].to_owned();
            match pair[0] {
                "struct" | "enum" | "trait" | "type" => {
                    self.types.insert(name.clone());
                    self.items.insert(name);
                }
                "fn" | "const" | "static" | "mod" => {
                    self.items.insert(name);
                }
                _ => {}
            }
        }
        let trimmed = line.trim_start();
        if trimmed.starts_with("impl") {
            self.types.extend(all.iter().map(ToString::to_string));
        }
        // A variant stands at the beginning of its line.
        if trimmed.starts_with(char::is_uppercase) {
            self.declared.extend(all.first().map(ToString::to_string));
        }
        // A field or a parameter has its type behind a colon.
        for (at, _) in line.match_indices(": ") {
            let name = line[..at].rsplit(|c| !is_word(c)).next();
            self.declared.extend(name.map(str::to_owned));
        }
    }

    fn is_module(&self, name: &str) -> bool {
        let stem = self.path.file_stem().and_then(|stem| stem.to_str());
        let folder = self.path.parent().and_then(Path::file_name);
        stem == Some(name) || stem == Some("mod") && folder.is_some_and(|folder| folder == name)
    }
}

impl Sources {
    /// What the pages of the brain are compared with: the brain, the model and the configuration.
    fn of_brain() -> Sources {
        Sources::read(&["brain", "model", "config"])
    }

    /// What the daemon's page is compared with.
    fn of_daemon() -> Sources {
        Sources::read(&["controller", "brain", "model", "config"])
    }

    /// The sources in these folders of `src`, without their tests.
    fn read(folders: &[&str]) -> Sources {
        let is_source = |path: &Path| {
            let mut parts = path.iter();
            is_rust(path) && !parts.any(|part| part == "tests" || part == "tests.rs")
        };
        let of = |folder: &str| files(&root().join("src").join(folder), &is_source);
        let paths = folders.iter().copied().flat_map(of);
        Sources {
            files: paths.map(|path| SourceFile::read(&path)).collect(),
        }
    }

    fn declares(&self, name: &str) -> bool {
        self.files.iter().any(|file| file.declared.contains(name))
    }

    fn is_module(&self, name: &str) -> bool {
        self.files.iter().any(|file| file.is_module(name))
    }
}

/// One page of the brain, or the daemon's.
struct Page<'s> {
    /// The page's path below the root.
    name: String,
    /// Its folder below the root.
    folder: PathBuf,
    text: String,
    sources: &'s Sources,
}

/// What a page names.
struct Named {
    line: usize,
    word: String,
    /// In a picture, where what belongs to what is drawn and not written.
    in_picture: bool,
}

impl<'s> Page<'s> {
    fn all(sources: &'s Sources) -> Vec<Page<'s>> {
        let found = files(&root().join("src/brain"), &|path| {
            path.ends_with("README.md")
        });
        assert_eq!(
            found.len(),
            ROOMS.len() + 1,
            "one of each room, and the brain's own: {found:?}"
        );
        let pages = found.iter().map(|path| Page::read(path, sources));
        pages.collect()
    }

    fn of_daemon(sources: &'s Sources) -> Page<'s> {
        Page::read(&root().join("src/controller/README.md"), sources)
    }

    fn read(path: &Path, sources: &'s Sources) -> Page<'s> {
        let text = std::fs::read_to_string(path);
        let text = text.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let name = path.strip_prefix(root()).expect("below the root");
        Page {
            folder: name.parent().expect("a folder").to_owned(),
            name: name.display().to_string(),
            text,
            sources,
        }
    }

    /// The sources of the page's folder.
    fn here(&self) -> impl Iterator<Item = &'s SourceFile> {
        let files = self.sources.files.iter();
        files.filter(|file| file.path.starts_with(&self.folder))
    }

    /// Where a word leads that names a file or a folder: from the page's folder, from the brain's, from the sources, from
    /// the root, or to a file that lies deeper in the page's folder.
    fn find(&self, word: &str) -> Option<PathBuf> {
        let word = word.trim_end_matches('/');
        let from = [
            self.folder.as_path(),
            "src/brain".as_ref(),
            "src".as_ref(),
            "".as_ref(),
        ];
        let named = [word.to_owned(), format!("{word}.rs")];
        let mut near = from
            .iter()
            .flat_map(|from| named.iter().map(|word| from.join(word)));
        let near = near.find(|path| root().join(path).exists());
        near.or_else(|| {
            let deeper = files(&root().join(&self.folder), &|path| {
                named.iter().any(|word| path.ends_with(word))
            });
            let deeper = deeper.first()?.strip_prefix(root()).ok()?;
            Some(deeper.to_owned())
        })
    }

    /// Whether a word names a file or a folder, and not a label, a resource or a pod.
    fn is_path(&self, word: &str) -> bool {
        let ending = Path::new(word)
            .extension()
            .and_then(|ending| ending.to_str());
        if ending.is_some_and(|ending| matches!(ending, "rs" | "md" | "toml" | "yaml")) {
            return true;
        }
        let Some((first, _)) = word.split_once('/') else {
            return false;
        };
        ROOMS.contains(&first)
            || matches!(first, ".." | "src" | "docs" | "tests" | "contrib" | "model")
            || root().join(&self.folder).join(first).is_dir()
    }

    /// Whether a name that stands alone is known: in the room; as a type, variant or module of the brain; as a field or function of the
    /// model; as a key of the configuration; or in a file that the same line names.
    fn knows(&self, name: &str, named: &Named) -> bool {
        if self
            .here()
            .any(|file| file.declared.contains(name) || file.is_module(name))
        {
            return true;
        }
        let is_type = name.starts_with(char::is_uppercase);
        let outside = |file: &SourceFile| {
            let of_others = !file.path.starts_with("src/brain");
            (of_others || is_type || named.in_picture) && file.declared.contains(name)
        };
        let line = self.text.lines().nth(named.line - 1).unwrap_or_default();
        let beside = |word: &str| {
            let path = self.is_path(word).then(|| self.find(word)).flatten();
            let mut files = self.sources.files.iter();
            path.is_some_and(|path| files.any(|f| f.path == path && f.items.contains(name)))
        };
        ROOMS.contains(&name)
            || name == "model"
            || self.sources.files.iter().any(outside)
            || line.split('`').any(beside)
    }

    /// Whether `owner::name` is known: a type with such a function, variant or field, or a module with such an item.
    fn owns(&self, owner: &str, name: &str) -> bool {
        if owner == "model" || ROOMS.contains(&owner) {
            return self.sources.is_module(name);
        }
        let mut files = self.sources.files.iter();
        files.any(|file| {
            let of_type = file.types.contains(owner) && file.declared.contains(name);
            of_type || file.is_module(owner) && file.items.contains(name)
        })
    }

    /// The first part of a name that nothing is called: of `Type::function(…)`, `module::Type { field }`, `field.field`.
    fn unknown(&self, named: &Named) -> Option<String> {
        let mut rest = &named.word[..head(&named.word)];
        let mut owner: Option<&str> = None;
        loop {
            let at = rest.find([':', '.']);
            let name = &rest[..at.unwrap_or(rest.len())];
            let by_path = at.is_some_and(|at| rest[at..].starts_with(':'));
            let is_there = match owner {
                Some("") => self.sources.declares(name),
                Some(owner) => self.owns(owner, name),
                None if by_path => {
                    let files = &self.sources.files;
                    let is_type = files.iter().any(|file| file.types.contains(name));
                    is_type || self.sources.is_module(name) || name == "model"
                }
                None => self.knows(name, named) || at.is_some() && self.sources.declares(name),
            };
            if !is_there && !is_of_others(name) {
                return Some(name.to_owned());
            }
            rest = rest[at?..].trim_start_matches([':', '.']);
            // What follows a point may be a field of anything.
            owner = Some(if by_path { name } else { "" });
        }
    }

    /// What stands in backticks outside of pictures; it may go over the end of a line.
    fn in_backticks(&self) -> Vec<Named> {
        let mut found = Vec::new();
        let mut open: Option<Named> = None;
        for (line, text) in self.lines(false) {
            for (at, part) in text.split('`').enumerate() {
                if at > 0 {
                    let closed = open.take();
                    if closed.is_none() {
                        open = Some(Named {
                            line,
                            word: String::new(),
                            in_picture: false,
                        });
                    }
                    found.extend(closed);
                }
                if let Some(open) = &mut open {
                    open.word.push_str(part);
                }
            }
            if let Some(open) = &mut open {
                open.word.push(' ');
            }
        }
        found
    }

    /// What is code in pictures: what has `::` or `_` in it, and what begins with a capital letter and is no word in capitals.
    fn in_pictures(&self) -> Vec<Named> {
        let mut found = Vec::new();
        for (line, text) in self.lines(true) {
            let names = text.split(|c| !(is_word(c) || c == ':'));
            let names = names.map(|name| name.trim_matches(':')).filter(|name| {
                let capital = name.starts_with(char::is_uppercase);
                name.contains("::")
                    || name.contains('_')
                    || capital && name.contains(char::is_lowercase)
            });
            found.extend(names.map(|name| Named {
                line,
                word: name.to_owned(),
                in_picture: true,
            }));
        }
        found
    }

    /// The lines of pictures, or all others, with their numbers.
    fn lines(&self, of_pictures: bool) -> impl Iterator<Item = (usize, &str)> {
        let mut in_picture = false;
        let lines = self.text.lines().enumerate();
        lines.filter_map(move |(number, line)| {
            let fence = line.starts_with("```");
            in_picture ^= fence;
            (!fence && in_picture == of_pictures).then_some((number + 1, line))
        })
    }

    /// The rows of the table of files: the line, the files of the first cell, and the second cell.
    fn rows(&self) -> Vec<(usize, Vec<PathBuf>, &str)> {
        let mut rows = Vec::new();
        for (number, line) in self.text.lines().enumerate() {
            let cells = line
                .strip_prefix("| `")
                .and_then(|row| row.split_once(" | "));
            let Some((first, second)) = cells else {
                continue;
            };
            let mut folder = self.folder.clone();
            let mut files = Vec::new();
            for word in first
                .split('`')
                .step_by(2)
                .filter(|word| is_rust(Path::new(word)))
            {
                let path = folder.join(word);
                path.parent().expect("a folder").clone_into(&mut folder);
                files.push(path);
            }
            if !files.is_empty() {
                rows.push((number + 1, files, second));
            }
        }
        rows
    }
}

/// How much of a word is a name: identifiers with `::` or `.` between them.
fn head(word: &str) -> usize {
    let end = word.find(|c: char| !(is_word(c) || matches!(c, ':' | '.')));
    let head = &word[..end.unwrap_or(word.len())];
    head.trim_end_matches([':', '.']).len()
}

fn is_of_others(name: &str) -> bool {
    NAMES_OF_OTHERS
        .iter()
        .any(|(_, names)| names.contains(&name))
}

/// Whether what stands in backticks is code and no sentence, amount or name of an object.
fn is_code(word: &str) -> bool {
    let tail = &word[head(word)..];
    let ends = tail.is_empty() || tail.starts_with(['(', '[']) || tail.starts_with(" {");
    ends && word.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

#[test]
fn pages_of_rooms_name_what_is_there() {
    let (brain, daemon) = (Sources::of_brain(), Sources::of_daemon());
    let mut complaints = Vec::new();
    let mut seen = BTreeSet::new();
    let mut checked = 0;
    let pages = Page::all(&brain).into_iter();
    for page in pages.chain([Page::of_daemon(&daemon)]) {
        for named in page.in_backticks().into_iter().chain(page.in_pictures()) {
            let Named { line, word, .. } = &named;
            let place = format!("{}:{line}", page.name);
            if !named.in_picture && !word.contains(' ') && page.is_path(word) {
                checked += 1;
                if page.find(word).is_none() {
                    complaints.push(format!("{place}: there is no {word}"));
                }
            } else if named.in_picture || is_code(word) {
                checked += 1;
                seen.extend(words(&word[..head(word)]).into_iter().map(str::to_owned));
                if let Some(unknown) = page.unknown(&named) {
                    complaints.push(format!("{place}: nothing is called {unknown}: {word}"));
                }
            }
        }
    }
    assert!(checked > 1000, "only {checked} words");
    let others = NAMES_OF_OTHERS.iter().flat_map(|(_, names)| names.iter());
    let others = others.filter(|name| !seen.contains(**name));
    complaints.extend(others.map(|name| format!("no page names {name} of others any more")));
    none(&complaints);
}

/// A row of a page's table of files names files that are there, begins with what these define, and leaves no file of the room, or of the
/// daemon, out.
#[test]
fn pages_of_rooms_have_all_files() {
    let (brain, daemon) = (Sources::of_brain(), Sources::of_daemon());
    let mut complaints = Vec::new();
    let mut checked = 0;
    let is_room = |page: &Page<'_>| page.folder != Path::new("src/brain");
    let rooms = Page::all(&brain).into_iter().filter(is_room);
    for page in rooms.chain([Page::of_daemon(&daemon)]) {
        let mut told = BTreeSet::new();
        for (line, paths, what) in page.rows() {
            let place = format!("{}:{line}", page.name);
            let of_row = |file: &&SourceFile| paths.contains(&file.path);
            let defined: Vec<&SourceFile> = page.here().filter(of_row).collect();
            let is_test = |path: &PathBuf| path.ends_with("tests.rs");
            for path in paths.iter().filter(|path| !is_test(path)) {
                if !defined.iter().any(|file| file.path == *path) {
                    complaints.push(format!("{place}: there is no {}", path.display()));
                }
            }
            // `first`, `second`: and then what they are.
            let mut rest = what.strip_prefix("phase ").unwrap_or(what);
            while let Some((word, after)) =
                rest.strip_prefix('`').and_then(|rest| rest.split_once('`'))
            {
                checked += 1;
                let names = words(&word[..head(word)]);
                let there = |name: &&str| defined.iter().any(|file| file.declared.contains(*name));
                if is_code(word) && !names.iter().all(there) {
                    complaints.push(format!("{place}: {word} is not defined there"));
                }
                rest = after.strip_prefix(", ").unwrap_or_default();
            }
            told.extend(paths);
        }
        let left = page
            .here()
            .filter(|file| !told.contains(&file.path) && !file.path.ends_with("mod.rs"));
        complaints.extend(
            left.map(|file| format!("{} does not tell of {}", page.name, file.path.display())),
        );
    }
    assert!(checked > 150, "only {checked} words");
    none(&complaints);
}

/// Each room's page has an example, and a test of the brain holds it.
#[test]
fn examples_of_rooms_are_tests() {
    let tests = files(&root().join("src/brain"), &|path| {
        is_rust(path)
            && path
                .iter()
                .any(|part| part == "tests" || part == "tests.rs")
    });
    let texts: Vec<String> = tests
        .iter()
        .map(|path| {
            std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        })
        .collect();
    let untested = |room: &&str| {
        let call = format!("Example::of(\"{room}\")");
        let begins = format!("fn the_example_of_{room}()");
        !texts.iter().any(|text| {
            let test = text.split(&begins).nth(1).unwrap_or_default();
            let test = test.split("\n}\n").next().unwrap_or_default();
            test.contains(&call) && test.contains("page.end();")
        })
    };
    let rooms = ROOMS.iter().copied().filter(untested);
    let untested: Vec<String> = rooms
        .map(|room| {
            format!("no test the_example_of_{room} holds the example of src/brain/{room}/README.md")
        })
        .collect();
    none(&untested);
}

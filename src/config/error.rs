//! What is wrong with a file, all of it at once.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use toml::Spanned;
use toml::de::DeTable;

use super::place::{self, KeyPath};
use super::rules::RuleProblem;

/// Last parts of keys whose values are secrets as a whole, or may have some in them.
const SECRET_KEYS: [&str; 5] = ["url", "body", "user_data", "vendor_data", "network_config"];

/// A list of this many bytes is told again with each problem that has it; a longer one once.
const MAX_REPEATED: usize = 60;

/// Everything that is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    /// The file's name, as it was given.
    pub file: String,
    /// The problems, in the order of the text. Never empty.
    pub problems: Vec<ConfigProblem>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// Line and column, from 1; `None` for the file as a whole.
    pub position: Option<(usize, usize)>,
    /// The key, such as `pool.small.max`; empty for the file as a whole.
    pub key: String,
    /// The value as written, when the key has one.
    pub value: Option<String>,
    /// What is wrong or was expected.
    pub message: String,
    /// The line, with a caret under the place.
    pub excerpt: Option<String>,
}

impl std::error::Error for ConfigErrors {}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, problem) in self.problems.iter().enumerate() {
            if position > 0 {
                writeln!(f)?;
            }
            write!(f, "{}", self.file)?;
            if let Some((line, column)) = problem.position {
                write!(f, ":{line}:{column}")?;
            }
            write!(f, ": ")?;
            match (&problem.key, &problem.value) {
                (key, _) if key.is_empty() => {}
                (key, Some(value)) => write!(f, "{key} = {value}: ")?,
                (key, None) => write!(f, "{key}: ")?,
            }
            write!(f, "{}", problem.message)?;
            if let Some(excerpt) = &problem.excerpt {
                write!(f, "\n{excerpt}")?;
            }
        }
        Ok(())
    }
}

impl ConfigErrors {
    /// All of it in one line, without the excerpts.
    pub fn line(&self) -> String {
        let problems = self.problems.iter().map(|problem| {
            let mut short = self.clone();
            short.problems = vec![ConfigProblem {
                excerpt: None,
                ..problem.clone()
            }];
            short.to_string()
        });
        problems.collect::<Vec<_>>().join("; ")
    }

    /// Without what stands in the file itself: for those who shall not see it.
    #[must_use]
    pub fn without_values(mut self) -> ConfigErrors {
        for problem in &mut self.problems {
            (problem.value, problem.excerpt) = (None, None);
        }
        self
    }

    /// Without what is a secret by its key, and without the lines of a text that is no TOML, where nobody can tell: for the journal,
    /// which more people read than the file. `check` shows all of it.
    #[must_use]
    pub fn without_secrets(mut self) -> ConfigErrors {
        for problem in &mut self.problems {
            let last = problem.key.rsplit('.').next().unwrap_or_default();
            if problem.key.is_empty() || SECRET_KEYS.contains(&last) {
                (problem.value, problem.excerpt) = (None, None);
            }
        }
        self
    }

    /// The one problem of a file that could not be read.
    pub(super) fn whole(file: &str, message: String) -> ConfigErrors {
        ConfigErrors {
            file: file.to_owned(),
            problems: vec![ConfigProblem {
                position: None,
                key: String::new(),
                value: None,
                message,
                excerpt: None,
            }],
        }
    }
}

/// Problems of one text, by span.
#[derive(Debug)]
pub(super) struct Collector<'t> {
    text: &'t str,
    found: Vec<(usize, ConfigProblem)>,
}

impl<'t> Collector<'t> {
    pub(super) fn new(text: &'t str) -> Collector<'t> {
        Collector {
            text,
            found: Vec::new(),
        }
    }

    /// A problem at a span.
    pub(super) fn at_span(&mut self, path: Option<&KeyPath>, span: &Range<usize>, message: String) {
        let written = place::value_text(self.text, span);
        let is_key = path.is_some_and(|path| {
            let last = path.0.last().map_or("", String::as_str);
            written.trim_matches(['"', '\'']) == last
        });
        let problem = ConfigProblem {
            position: Some(place::line_and_column(self.text, span.start)),
            key: path.map(ToString::to_string).unwrap_or_default(),
            value: (path.is_some() && !is_key && !written.is_empty()).then_some(written),
            message,
            excerpt: Some(place::excerpt(self.text, span)),
        };
        self.found.push((span.start, problem));
    }

    /// A problem of syntax: there are no tables yet, so the lines themselves tell the key and the value.
    pub(super) fn at_syntax(&mut self, span: &Range<usize>, message: String) {
        let (key, value) = place::around(self.text, span.start);
        self.found.push((
            span.start,
            ConfigProblem {
                position: Some(place::line_and_column(self.text, span.start)),
                key,
                value,
                message,
                excerpt: Some(place::excerpt(self.text, span)),
            },
        ));
    }

    /// A problem by a rule.
    pub(super) fn of_rule(&mut self, root: &Spanned<DeTable<'_>>, found: RuleProblem) {
        let name = found.of_key.then(|| place::name_span_of(root, &found.path));
        match name.flatten() {
            Some(span) => self.at_span(Some(&found.path), &span, found.message),
            None => self.at_path(root, &found.path, found.message),
        }
    }

    /// A problem at a path, which need not be in the text.
    fn at_path(&mut self, root: &Spanned<DeTable<'_>>, path: &KeyPath, message: String) {
        match place::span_of(root, path) {
            Some(span) => {
                let present = place::path_of(root, &span).as_ref() == Some(path);
                self.at_span(Some(path), &span, message);
                if let (false, Some((_, problem))) = (present, self.found.last_mut()) {
                    problem.value = None;
                }
            }
            None => self.found.push((
                0,
                ConfigProblem {
                    position: Some((1, 1)),
                    key: path.to_string(),
                    value: None,
                    message,
                    excerpt: None,
                },
            )),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// All of them, in the order of the text.
    pub(super) fn finish(mut self, file: &str) -> ConfigErrors {
        self.found.sort_by_key(|(at, _)| *at);
        let mut problems: Vec<ConfigProblem> =
            self.found.into_iter().map(|(_, problem)| problem).collect();
        tell_lists_once(&mut problems);
        ConfigErrors {
            file: file.to_owned(),
            problems,
        }
    }
}

/// What stands before a list of all names that a table takes.
const LISTS: [&str; 2] = ["the keys here are ", "the options here are "];
/// In the place of a list that was told before.
const TOLD: &str = "told above";

/// A long list that several problems have at their ends is told with the first of them.
fn tell_lists_once(problems: &mut [ConfigProblem]) {
    let mut told: BTreeSet<String> = BTreeSet::new();
    for problem in problems {
        let begins = LISTS.iter().find_map(|begin| {
            let at = problem.message.find(begin)?;
            Some(at + begin.len())
        });
        let Some(at) = begins else { continue };
        let list = problem.message.split_off(at);
        // What is short is no burden, and whoever reads it need not look for it.
        let again = list.len() > MAX_REPEATED && told.contains(&list);
        problem.message.push_str(if again { TOLD } else { &list });
        told.insert(list);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_journal_gets_no_secret_of_the_file() {
        let told = |text: &str| {
            let errors = crate::config::parse(text, "file").expect_err("it is wrong");
            (errors.to_string(), errors.without_secrets().to_string())
        };
        let url = "version = 1\n[notification.ops]\nkind = \"webhook\"\nurl = \"ftp://SECRET@example.org\"\nseverities = [\"hurry\"]\n";
        let (all, journal) = told(url);
        assert!(all.contains("SECRET") && all.contains("hurry"), "{all}");
        assert!(
            !journal.contains("SECRET") && journal.contains("hurry"),
            "{journal}"
        );
        assert!(journal.contains("notification.ops.url"), "{journal}");
        let (all, journal) = told("version = 1\n[notification.ops]\nurl = \"SECRET\n");
        assert!(all.contains("SECRET"), "{all}");
        assert!(
            !journal.contains("SECRET") && journal.contains("file:3:"),
            "{journal}"
        );
    }
}

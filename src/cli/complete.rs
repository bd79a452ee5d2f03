//! What Tab offers in a shell: commands and options as clap knows them, and names that the daemon or the configuration file has.
//!
//! The shells' scripts (`generate`) run this program with [`VARIABLE`] set; it prints what fits and ends. A person waits
//! meanwhile: whatever does not answer at once offers nothing, and nothing is said of it.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{Bash, EnvCompleter, Fish, Shells, Zsh};
use tokio::time::timeout;

use super::args::CONTROL_SOCKET;
use super::{config_option, runtime};
use crate::config::DEFAULT_PATH;
use crate::controller::control::{self, ControlCommand, NameKind};

/// The environment variable by which a shell's script asks; its value is the shell.
const VARIABLE: &str = "PVE_AUTOSCALER_COMPLETE";
/// The program, as it is typed and as the scripts run it.
const NAME: &str = "pve-autoscaler";
/// A person who presses Tab waits no longer than this for names.
const PATIENCE: Duration = Duration::from_secs(1);
/// The namespace that may be left out before a pod's name.
const DEFAULT_NAMESPACE: &str = "default/";
/// A configuration file that is larger is not read for a completion, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// The shells.
const SHELLS: &[&dyn EnvCompleter] = &[&JoiningBash, &Zsh, &Fish];

/// Bash, whose words are split at '=': `--socket=/x` comes as three. They are one again before clap looks.
#[derive(Debug)]
struct JoiningBash;

impl EnvCompleter for JoiningBash {
    fn name(&self) -> &'static str {
        Bash.name()
    }

    fn is(&self, name: &str) -> bool {
        Bash.is(name)
    }

    fn write_registration(
        &self,
        var: &str,
        name: &str,
        bin: &str,
        completer: &str,
        buf: &mut dyn Write,
    ) -> std::io::Result<()> {
        Bash.write_registration(var, name, bin, completer, buf)
    }

    fn write_complete(
        &self,
        cmd: &mut clap::Command,
        args: Vec<OsString>,
        current_dir: Option<&Path>,
        buf: &mut dyn Write,
    ) -> std::io::Result<()> {
        let index = std::env::var("_CLAP_COMPLETE_INDEX");
        let index: usize = index
            .ok()
            .and_then(|index| index.parse().ok())
            .unwrap_or_default();
        let between = std::env::var("_CLAP_IFS").unwrap_or_else(|_| "\n".to_owned());
        let (words, index, kept) = join_words(&args, index);
        let found = clap_complete::engine::complete(cmd, words, index, current_dir)?;
        let found: Vec<String> = found
            .iter()
            .map(|one| one.get_value().to_string_lossy())
            .map(|value| value.strip_prefix(&*kept).unwrap_or(&value).to_owned())
            .collect();
        buf.write_all(found.join(&between).as_bytes())
    }
}

/// Words that bash split at '=' as one again, the place of the word at `index` then, and what of that word bash keeps
/// by itself.
fn join_words(args: &[OsString], index: usize) -> (Vec<OsString>, usize, String) {
    let (mut words, mut place, mut kept): (Vec<OsString>, _, _) =
        (Vec::new(), index, String::new());
    let mut rest = args.iter().enumerate().peekable();
    while let Some((at, word)) = rest.next() {
        let option = words
            .last()
            .is_some_and(|last| last.to_string_lossy().starts_with("--"));
        let joins = word == "=" && option && at < index;
        let (Some(last), true, Some((at, value))) = (words.last_mut(), joins, rest.peek().copied())
        else {
            words.push(word.clone());
            continue;
        };
        rest.next();
        last.push("=");
        if at == index {
            kept = last.to_string_lossy().into_owned();
        }
        last.push(value);
        place -= 2;
    }
    (words, place, kept)
}

/// Answers a shell and ends the program, if a shell asks.
pub(super) fn answer_shell() {
    CompleteEnv::with_factory(config_option::command)
        .var(VARIABLE)
        .shells(Shells(SHELLS))
        .complete();
}

/// The scripts by which shells ask: each one's file name and its text.
pub(super) fn scripts() -> std::io::Result<Vec<(String, String)>> {
    let mut scripts = Vec::new();
    for shell in SHELLS {
        let mut text = Vec::new();
        shell.write_registration(VARIABLE, NAME, NAME, NAME, &mut text)?;
        let mut text = String::from_utf8_lossy(&text).into_owned();
        if shell.name() == Zsh.name() {
            // zsh reads the file at the first Tab, as the body of a function of the file's name: that Tab is
            // answered too.
            text += "\nif [ \"$funcstack[1]\" = \"_pve-autoscaler\" ]; then\n    \
                     _clap_dynamic_completer_pve_autoscaler \"$@\"\nfi\n";
        }
        scripts.push((script_name(shell.name()), text));
    }
    Ok(scripts)
}

/// The file in which a shell looks for the script.
fn script_name(shell: &str) -> String {
    match shell {
        "bash" => format!("{NAME}.bash"),
        "zsh" => format!("_{NAME}"),
        shell => format!("{NAME}.{shell}"),
    }
}

/// Pods: NAMESPACE/NAME, and those of the namespace default by their name alone.
pub(super) fn pods() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        let Some(typed) = typed.to_str() else {
            return Vec::new();
        };
        let mut found = ask(NameKind::Pods, typed);
        if !typed.is_empty() && !typed.contains('/') {
            let short = ask(NameKind::Pods, &format!("{DEFAULT_NAMESPACE}{typed}"));
            found.extend(
                short
                    .iter()
                    .filter_map(|name| Some(name.strip_prefix(DEFAULT_NAMESPACE)?.to_owned())),
            );
        }
        offer(found)
    })
}

/// Nodes, and machines on their way up.
pub(super) fn nodes() -> ArgValueCompleter {
    asked(NameKind::Nodes)
}

/// Machines.
pub(super) fn machines() -> ArgValueCompleter {
    asked(NameKind::Machines)
}

/// Pools.
pub(super) fn pools() -> ArgValueCompleter {
    asked(NameKind::Pools)
}

/// Hosts.
pub(super) fn hosts() -> ArgValueCompleter {
    asked(NameKind::Hosts)
}

/// Templates of the configuration file.
pub(super) fn templates() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| offer(of_file("template", typed)))
}

/// Those whom the configuration file notifies.
pub(super) fn notifications() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| offer(of_file("notification", typed)))
}

fn asked(kind: NameKind) -> ArgValueCompleter {
    ArgValueCompleter::new(move |typed: &OsStr| match typed.to_str() {
        Some(typed) => offer(ask(kind, typed)),
        None => Vec::new(),
    })
}

/// The daemon's names. The socket is the one that the line being typed names.
fn ask(kind: NameKind, prefix: &str) -> BTreeSet<String> {
    let socket = option("--socket").unwrap_or_else(|| CONTROL_SOCKET.into());
    let command = ControlCommand::Names {
        kind,
        prefix: prefix.to_owned(),
    };
    let Ok(runtime) = runtime() else {
        return BTreeSet::new();
    };
    let asked = async { timeout(PATIENCE, control::ask(&socket, &command)).await };
    match runtime.block_on(asked) {
        Ok(Ok(names)) => serde_json::from_value(names).unwrap_or_default(),
        _ => BTreeSet::new(),
    }
}

/// The names of a table's tables in the configuration file that the line being typed names.
fn of_file(table: &str, typed: &OsStr) -> BTreeSet<String> {
    let path = option("--config").unwrap_or_else(|| DEFAULT_PATH.into());
    let names = read_names(&path, table).unwrap_or_default();
    let fits = |name: &String| typed.to_str().is_some_and(|typed| name.starts_with(typed));
    names.into_iter().filter(fits).collect()
}

fn read_names(path: &Path, table: &str) -> Option<BTreeSet<String>> {
    let about = std::fs::metadata(path).ok()?;
    if !about.is_file() || about.len() > MAX_FILE {
        return None;
    }
    let text = std::fs::read_to_string(path).ok()?;
    let file: toml::Table = text.parse().ok()?;
    Some(file.get(table)?.as_table()?.keys().cloned().collect())
}

/// What stands after an option in the line being typed, which follows `--` among this program's arguments.
fn option(name: &str) -> Option<PathBuf> {
    let words: Vec<OsString> = std::env::args_os()
        .skip_while(|word| word != "--")
        .collect();
    let (words, ..) = join_words(&words, words.len());
    let given = words.iter().enumerate().rev().find_map(|(at, word)| {
        if word == name {
            return words.get(at + 1).cloned();
        }
        let joined = word.to_str()?.strip_prefix(name)?.strip_prefix('=')?;
        Some(joined.into())
    });
    given.filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Candidates of those names that a shell takes as they are. Others (a name may be anybody's) are left to the person.
fn offer(names: BTreeSet<String>) -> Vec<CompletionCandidate> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._-/".contains(letter);
    let names = names.into_iter();
    let usual = names.filter(|name| !name.starts_with('-') && name.chars().all(plain));
    usual.map(CompletionCandidate::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_has_a_script_that_asks_this_program() {
        let scripts = scripts().expect("they are made");
        assert_eq!(scripts.len(), SHELLS.len());
        for (file, text) in scripts {
            assert!(file.contains(NAME));
            assert!(text.contains(VARIABLE), "{file}: {text}");
        }
    }

    #[test]
    fn words_that_bash_split_are_one_again() {
        let joined = |typed: &str, index| {
            let words: Vec<OsString> = typed.split(' ').map(Into::into).collect();
            let (words, index, kept) = join_words(&words, index);
            let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
            (words.join(" "), index, kept)
        };
        let whole = |words: &str, index, kept: &str| (words.to_owned(), index, kept.to_owned());
        assert_eq!(joined("p a --s = /x n", 5), whole("p a --s=/x n", 3, ""));
        assert_eq!(joined("p a --s = /x", 4), whole("p a --s=/x", 2, "--s="));
        assert_eq!(
            joined("p --s = x --t = y z", 7),
            whole("p --s=x --t=y z", 3, "")
        );
        assert_eq!(joined("p a = x", 3), whole("p a = x", 3, ""));
        assert_eq!(joined("p --s =", 2), whole("p --s =", 2, ""));
    }

    #[test]
    fn names_that_a_shell_would_read_otherwise_are_not_offered() {
        let names = [
            "shop/web-1",
            "a b",
            "$(reboot)",
            "-rf",
            "x;y",
            "node.1",
            "\u{1b}[2J",
        ];
        let offered = offer(names.into_iter().map(str::to_owned).collect());
        let offered: Vec<_> = offered.iter().map(|it| it.get_value().to_owned()).collect();
        assert_eq!(offered, ["node.1", "shop/web-1"]);
    }

    #[test]
    fn names_of_a_file_are_those_of_its_tables() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file.toml");
        std::fs::write(
            &path,
            "[template.debian]\nx = 1\n[template.rocky.build]\ny = 2\n[pool.z]\n",
        )
        .expect("written");
        let names = read_names(&path, "template").expect("it is read");
        assert_eq!(
            names,
            BTreeSet::from(["debian".to_owned(), "rocky".to_owned()])
        );
        assert_eq!(read_names(&path, "notification"), None);
        std::fs::write(&path, "[template.debian\n").expect("written");
        assert_eq!(read_names(&path, "template"), None);
        assert_eq!(read_names(folder.path(), "template"), None);
    }
}

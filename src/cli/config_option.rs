//! `--config`: which commands read a configuration file. Others do not show the option, and refuse it: who names a file
//! expects that it counts.

use anyhow::anyhow;
use clap::CommandFactory as _;

use super::CliFailure;
use super::args::{Cli, CliCommand, ExplainCommand};

/// Commands that ask the running daemon, which has its own file.
const ASKING: [&str; 7] = [
    "snapshot",
    "status",
    "pause",
    "resume",
    "retry",
    "evacuate",
    "notify-test",
];

/// Commands that ask the running daemon, too, but for a saved view, which they decide themselves.
const DECIDING: [&str; 2] = ["plan", "explain"];

/// Commands that need no file.
const WITHOUT_FILE: [&str; 9] = [
    "history",
    "kubeconfig",
    "host-topology",
    "host-pinning",
    "migrate",
    "schema",
    "demo",
    "conformance",
    "sim",
];

/// The command line, which shows `--config` where it is read.
pub(super) fn command() -> clap::Command {
    let whole = Cli::command();
    let config = whole.get_arguments().find(|one| one.get_id() == "config");
    let Some(hidden) = config.map(|config| config.clone().hide(true)) else {
        return whole;
    };
    // It has another meaning there, and no default.
    let of_replay = hidden
        .clone()
        .hide(false)
        .hide_default_value(true)
        .help("Decide by this file. Without it each decision is made with the configuration that was in force then");
    let whole = whole.mut_subcommand("replay", |command| command.arg(of_replay));
    // Without a saved view the daemon is asked, and naming a file is refused.
    let of_saved = hidden.clone().hide(false).help(
        "Decide by this file, with --snapshot alone: without that the daemon is asked, which decides by its own",
    );
    let whole = DECIDING.into_iter().fold(whole, |whole, name| {
        whole.mut_subcommand(name, |command| command.arg(of_saved.clone()))
    });
    let names = ASKING.into_iter().chain(WITHOUT_FILE);
    names.fold(whole, |whole, name| {
        whole.mut_subcommand(name, |command| command.arg(hidden.clone()))
    })
}

/// Refuses a file that was named on the command line and that the command would not read.
///
/// # Errors
/// The command `name` is one of those.
pub(super) fn refuse_unread(name: &str, command: &CliCommand) -> Result<(), CliFailure> {
    let saved = match command {
        CliCommand::Plan(options) => options.snapshot.is_some(),
        CliCommand::Explain(
            ExplainCommand::Pod { options, .. } | ExplainCommand::Node { options, .. },
        ) => options.snapshot.is_some(),
        _ => true,
    };
    let why = if !saved {
        "asks the daemon, which decides by its own file; with `--snapshot FILE` (`pve-autoscaler snapshot` saves one) --config counts"
    } else if ASKING.contains(&name) {
        "asks the daemon, which has its own file; --socket names another daemon"
    } else if WITHOUT_FILE.contains(&name) {
        "reads no configuration file"
    } else {
        return Ok(());
    };
    let said = anyhow!("`{name}` {why}: leave --config out");
    Err(CliFailure::Usage(said))
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches as _;

    use super::*;

    /// What is said of `--config` before a command line.
    fn refused(typed: &str) -> Option<String> {
        let words = "pve-autoscaler --config x"
            .split(' ')
            .chain(typed.split(' '));
        let matches = command().try_get_matches_from(words).expect("it is read");
        let cli = Cli::from_arg_matches(&matches).expect("it is read");
        let name = matches.subcommand_name().expect("there is one");
        match refuse_unread(name, &cli.command) {
            Ok(()) => None,
            Err(CliFailure::Usage(said)) => Some(said.to_string()),
            Err(other) => panic!("{other:?}"),
        }
    }

    /// Who reads the help does not meet the refusal.
    #[test]
    fn the_help_says_when_a_file_counts() {
        let help = |names: &[&str]| {
            let mut found = command();
            // What is global comes to the subcommands when the command line is built.
            found.build();
            for name in names {
                let below = found.find_subcommand(name).expect("it is there").clone();
                found = below;
            }
            let shown = found.render_long_help().to_string();
            shown.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let words = "--config <FILE> Decide by this file, with --snapshot alone";
        for names in [&["plan"][..], &["explain", "pod"], &["explain", "node"]] {
            let help = help(names);
            assert!(help.contains(words), "{names:?}: {help}");
            assert_eq!(
                help.matches("--config <FILE>").count(),
                1,
                "{names:?}: {help}"
            );
        }
        let help = help(&["check"]);
        assert!(
            help.contains("--config <FILE> The configuration file"),
            "{help}"
        );
    }

    #[test]
    fn a_file_that_would_not_count_is_refused() {
        for (typed, words) in [
            ("status", "asks the daemon"),
            ("history", "reads no configuration file"),
            ("plan", "--snapshot FILE"),
            ("explain pod a", "--snapshot FILE"),
            ("migrate kproximate x", "reads no"),
            ("sim pve", "reads no"),
        ] {
            let said = refused(typed).unwrap_or_else(|| panic!("{typed} takes it"));
            assert!(said.contains(words), "{typed}: {said}");
        }
        for typed in [
            "check",
            "plan --snapshot y",
            "explain node a --snapshot y",
            "template list",
            "replay",
        ] {
            assert_eq!(refused(typed), None, "{typed}");
        }
    }

    #[test]
    fn helps_show_it_where_it_counts() {
        let mut whole = command();
        whole.build();
        let shows = |whole: &mut clap::Command, name: &str| {
            let found = whole.find_subcommand_mut(name).expect("there is one");
            found
                .render_long_help()
                .to_string()
                .contains("--config <FILE>")
        };
        for name in ASKING.into_iter().chain(WITHOUT_FILE) {
            assert!(!shows(&mut whole, name), "{name}");
        }
        for name in ["run", "check", "doctor", "plan", "setup", "replay"] {
            assert!(shows(&mut whole, name), "{name}");
        }
    }

    /// A replay goes by the configurations in the record; a default would say otherwise.
    #[test]
    fn only_a_replay_has_no_default_for_it() {
        let mut whole = command();
        whole.build();
        let mut has_default = |name: &str| {
            let found = whole.find_subcommand_mut(name).expect("there is one");
            let help = found.render_long_help().to_string();
            help.contains("[default: /etc/pve-autoscaler.toml]")
        };
        assert!(has_default("doctor"));
        assert!(!has_default("replay"));
    }

    /// It counts before the command and behind it.
    #[test]
    fn a_file_for_a_replay_is_taken_wherever_it_stands() {
        for typed in ["--config x replay", "replay --config x"] {
            let words = ["pve-autoscaler"].into_iter().chain(typed.split(' '));
            let matches = command().try_get_matches_from(words).expect("it is read");
            let cli = Cli::from_arg_matches(&matches).expect("it is read");
            assert_eq!(cli.config, std::path::Path::new("x"), "{typed}");
            let (_, of_replay) = matches.subcommand().expect("there is one");
            let source = of_replay.value_source("config");
            assert_eq!(
                source,
                Some(clap::parser::ValueSource::CommandLine),
                "{typed}"
            );
        }
    }
}

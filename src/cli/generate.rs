//! What the package ships besides the program: man pages, completions, schema, reference manual.

use std::path::Path;

use anyhow::Context as _;
use roff::{Roff, roman};

use super::complete;
use super::config_option;
use super::manual;
use super::schemas;
use crate::config;

const NAME: &str = "pve-autoscaler";

/// What the program's page says beyond its help: what a service's user looks for there.
const BEYOND: &str = r#".SH "EXIT STATUS"
0 success, 1 failure, 2 wrong command line or configuration.
.SH SIGNALS
To \fBrun\fR and \fBbroker\fR:
.TP
SIGHUP
The configuration file is read again (systemctl reload pve\-autoscaler does it for both). One with errors is not taken
up.
.TP
SIGTERM, SIGINT
They end. What is being done to machines is taken up again at the next start.
.SH ENVIRONMENT
.TP
PVE_AUTOSCALER_LOG
What \fBrun\fR and \fBbroker\fR log: a level (error, warn, info, debug, trace), or levels by target, such as
info,pve_autoscaler::controller=debug.
.TP
NO_COLOR, TERM
Set to anything, the former takes the colours away; so does the latter as dumb.
.SH FILES
.TP
/etc/pve\-autoscaler.toml
The configuration, pve\-autoscaler.toml(5); an example is in /usr/share/doc/pve\-autoscaler/examples, its schema in
/usr/share/pve\-autoscaler/pve\-autoscaler.schema.json. The schemas of what \fB\-o json\fR prints lie beside it.
.TP
/etc/pve\-autoscaler/kubeconfig
Credentials for Kubernetes; \fBkubeconfig\fR makes them.
.TP
/run/pve\-autoscaler/control.sock, /run/pve\-autoscaler/pve.sock
The daemon's socket for \fBstatus\fR, \fBplan\fR, \fBpause\fR and others, and the broker's; for root and the group
pve\-autoscaler.
.TP
/var/lib/pve\-autoscaler, /var/lib/pve\-autoscaler\-broker
State of the daemon and of the broker.
.TP
/usr/libexec/pve\-autoscaler/daemon, /usr/libexec/pve\-autoscaler/broker
The programs of the services: \fBrun\fR and \fBbroker\fR without the other commands.
.TP
/usr/libexec/pve\-autoscaler/simulator
The program that \fBdemo\fR, \fBsim\fR and \fBconformance\fR run.
.SH "SEE ALSO"
/usr/share/doc/pve\-autoscaler/README.md: the way in; docs/operations.md there: how to run it and what to do when
something is wrong.
.PP
pve\-autoscaler.toml(5), systemctl(1), journalctl(1), qm(1)
"#;

/// A page for the command and for each below it.
fn pages(command: &clap::Command, directory: &Path) -> std::io::Result<()> {
    let usage = match command.get_overridden_usage() {
        Some(usage) => usage.to_string(),
        None => synopsis(command),
    };
    let shown = command
        .clone()
        .after_help(None::<&str>)
        .override_usage(usage);
    let page = clap_mangen::Man::new(shown)
        .source(concat!("pve-autoscaler ", env!("CARGO_PKG_VERSION")))
        .manual("pve-autoscaler");
    let mut text = Vec::new();
    page.render(&mut text)?;
    if let Some(help) = command.get_after_help() {
        text.extend_from_slice(render_after_help(&help.to_string()).as_bytes());
    }
    text.extend_from_slice(match command.get_name() {
        NAME => BEYOND.as_bytes(),
        _ => b".SH \"SEE ALSO\"\npve\\-autoscaler(1)\n",
    });
    std::fs::write(directory.join(page.get_filename()), text)?;
    command
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .try_for_each(|command| pages(command, directory))
}

/// A command line with all that it takes: `pve-autoscaler retry [--socket PATH] POOL`.
fn synopsis(command: &clap::Command) -> String {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let mut words = vec![name.to_owned()];
    let shown = |one: &&clap::Arg| {
        !one.is_hide_set() && !matches!(one.get_id().as_str(), "help" | "version")
    };
    let (places, options): (Vec<_>, Vec<_>) = command
        .get_arguments()
        .filter(shown)
        .partition(|one| one.is_positional());
    for one in options.into_iter().chain(places) {
        let short = one.get_short().map(|short| format!("-{short}"));
        let long = one.get_long().map(|long| format!("--{long}"));
        let names: Vec<String> = short.into_iter().chain(long).collect();
        let mut word = names.join("|");
        let takes = one.get_num_args().unwrap_or_default();
        if takes.takes_values() || one.is_positional() {
            let value = one.get_value_names().map(|names| names.join(" "));
            let value = value.unwrap_or_else(|| one.get_id().as_str().to_uppercase());
            word += match (word.is_empty(), takes.min_values()) {
                (true, _) => value,
                (false, 0) => format!(" [{value}]"),
                (false, _) => format!(" {value}"),
            }
            .as_str();
        }
        if takes.max_values() > 1 {
            word += "...";
        }
        words.push(if one.is_required_set() {
            word
        } else {
            format!("[{word}]")
        });
    }
    if command.has_subcommands() {
        words.push("COMMAND".to_owned());
    }
    words.join(" ")
}

/// The end of a command's help as sections of its man page: examples line by line as they are typed, exit codes as a text.
fn render_after_help(help: &str) -> String {
    let mut roff = Roff::new();
    let (mut examples, mut words) = (Vec::new(), Vec::new());
    for line in help.lines() {
        match line.strip_prefix("  ") {
            Some(example) => examples.push(example),
            None if line != "Examples:" => words.push(line),
            None => {}
        }
    }
    let words = words.join(" ");
    if let Some(codes) = words.trim().strip_prefix("Exit codes: ") {
        roff.control("SH", ["EXIT STATUS"]);
        roff.text([roman(codes)]);
    }
    if !examples.is_empty() {
        roff.control("SH", ["EXAMPLES"]);
        roff.control("nf", []);
        for line in examples {
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
    }
    // `render` would put once more what stands at the top of a page.
    roff.to_roff()
}

/// Writes everything into `directory`.
pub(super) fn run(directory: &Path) -> anyhow::Result<()> {
    let man = directory.join("man");
    let completions = directory.join("completions");
    for directory in [&man, &completions] {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
    }
    let mut whole = config_option::command()
        .disable_help_subcommand(true)
        .after_help(None::<&str>);
    whole.build();
    pages(&whole, &man)
        .with_context(|| format!("cannot write man pages into {}", man.display()))?;
    for (file, text) in complete::scripts().context("cannot make the shells' scripts")? {
        let path = completions.join(file);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let own = [
        ("man/pve-autoscaler.toml.5", manual::page()),
        ("pve-autoscaler.schema.json", config::schema::schema_text()),
        ("configuration.md", config::reference::reference()),
    ];
    for (name, text) in own.into_iter().chain(schemas::all()) {
        let path = directory.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Columns of the terminals that people begin with.
    const COLUMNS: usize = 80;

    fn all(command: &clap::Command, found: &mut Vec<(String, String)>) {
        if let Some(help) = command.get_after_help() {
            found.push((command.get_name().to_owned(), help.to_string()));
        }
        for below in command.get_subcommands() {
            all(below, found);
        }
    }

    #[test]
    fn examples_are_not_broken_where_they_are_copied_from() {
        let mut found = Vec::new();
        all(&config_option::command(), &mut found);
        assert!(found.len() > 20, "{}", found.len());
        for (name, help) in &found {
            for line in help.lines() {
                assert!(line.chars().count() <= COLUMNS, "{name}: {line}");
            }
        }
    }

    /// Whoever reads a command's help finds a line to copy.
    #[test]
    fn every_command_has_examples() {
        fn lacking(command: &clap::Command, path: &str, found: &mut Vec<String>) {
            let path = format!("{path} {}", command.get_name());
            let help = command.get_after_help().map(ToString::to_string);
            if !help.unwrap_or_default().contains("Examples:\n") {
                found.push(path.clone());
            }
            let below = command
                .get_subcommands()
                .filter(|below| !below.is_hide_set());
            for below in below {
                lacking(below, &path, found);
            }
        }
        let mut found = Vec::new();
        lacking(&config_option::command(), "", &mut found);
        assert!(found.is_empty(), "{found:#?}");
    }

    #[test]
    fn synopses_say_what_options_take() {
        let mut whole = config_option::command();
        whole.build();
        let mut line = |path: &[&str]| {
            let found = path.iter().try_fold(&mut whole, |command, name| {
                command.find_subcommand_mut(name)
            });
            synopsis(found.expect("there is one"))
        };
        assert_eq!(
            line(&["retry"]),
            "pve-autoscaler retry [--socket PATH] POOL"
        );
        assert_eq!(
            line(&["status"]),
            "pve-autoscaler status [--socket PATH] [-o|--output OUTPUT] [--watch [SECONDS]]"
        );
        assert_eq!(
            line(&["migrate", "kproximate"]),
            "pve-autoscaler migrate kproximate FILE..."
        );
        assert_eq!(line(&["migrate"]), "pve-autoscaler migrate COMMAND");
        assert_eq!(
            line(&["explain", "pod"]),
            "pve-autoscaler explain pod [--socket PATH] [-o|--output OUTPUT] [--snapshot FILE] [--watch [SECONDS]] [--config FILE] POD"
        );
    }

    #[test]
    fn examples_stand_in_a_page_as_they_are_typed() {
        let page = render_after_help(
            "Exit codes: 0 yes,\n1 no.\n\nExamples:\n  # a word\n  a -b \\\n    .c",
        );
        assert_eq!(
            page,
            ".SH \"EXIT STATUS\"\n0 yes, 1 no.\n.SH EXAMPLES\n.nf\n# a word\na \\-b \\\\\n  .c\n.fi\n"
        );
    }
}

//! What a stranger types: numbers and names that cannot be, files that are none, and nobody who reads.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::process::{Output, Stdio};

use tempfile::TempDir;

use super::terminal::on_terminal;
use super::{POOL, VIEW, file, program, text};

fn typed(arguments: &[&str]) -> Output {
    let output = program().args(arguments).stdin(Stdio::null()).output();
    output.expect("it runs")
}

/// What is said on standard error of a command that is refused.
fn refused(arguments: &[&str], code: i32) -> String {
    let output = typed(arguments);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    assert!(!said.contains("panicked"), "{arguments:?}: {said}");
    said
}

#[test]
fn numbers_that_cannot_be_are_refused_by_their_names() {
    for (arguments, words) in [
        (&["history", "--limit", "0"][..], "from 1 to 4294967295"),
        (&["history", "--limit", "-1"], "--limit"),
        (&["history", "--limit", "99999999999999999999"], "--limit"),
        (&["history", "--limit", "many"], "--limit"),
        (&["history", "--since", "2999-01-01"], "is in the future"),
        (&["replay", "--since", "2999-01-01"], "is in the future"),
        (
            &["support-bundle", "--since", "2999-01-01"],
            "is in the future",
        ),
        (
            &["history", "--since", "-5m"],
            "\"-5m\" is no point in time",
        ),
        (
            &["history", "--until", "-5m"],
            "\"-5m\" is no point in time",
        ),
        (&["history", "--since", "99999999999h"], "no point in time"),
        (
            &["history", "--since", "1h", "--until", "2h"],
            "is after --until",
        ),
        (&["doctor", "--timeout", "0"], "from 1 to 600"),
        (&["doctor", "--timeout", "-3"], "--timeout"),
        (&["status", "--watch", "0"], "from 1 to 3600"),
        (&["demo", "--seed", "-1"], "--seed"),
        (&["demo", "--speed", "-1"], "from 1 to 10000"),
        (&["demo", "--regions", "0"], "from 1 to 2"),
        (&["demo", "--page", "1"], "such as 127.0.0.1:9818"),
    ] {
        let said = refused(arguments, 2);
        assert!(
            said.contains(words),
            "{arguments:?}: {words:?} is not in {said}"
        );
    }
}

#[test]
fn names_that_cannot_be_are_refused_before_anybody_is_asked() {
    let long = "x".repeat(300);
    for name in ["", " ", "a\nb", "a\u{1b}[31mb", &*long] {
        for asked in [
            &["explain", "pod", name][..],
            &["explain", "node", name],
            &["retry", name],
            &["history", "--pod", name],
            &["history", "--node", name],
            &["history", "--machine", name],
            &["history", "--pool", name],
            &["host-topology", "--host", name],
            &["host-topology", "--region", name],
        ] {
            let said = refused(asked, 2);
            assert!(!said.contains("cannot reach"), "{asked:?}: {said}");
        }
    }
    // One that could be is asked for.
    for asked in [
        &["explain", "node", "käse"][..],
        &["explain", "pod", "a/käse"],
        &["retry", "käse"],
    ] {
        assert!(
            refused(asked, 1).contains("cannot reach the daemon"),
            "{asked:?}"
        );
    }
    assert!(refused(&["host-topology", "--host", "käse"], 2).contains("letters, digits"));
}

#[test]
fn files_that_are_none_are_told_by_what_they_are() {
    let (folder, config) = file(POOL);
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    std::fs::write(path("bad"), "{").expect("written");
    let (config, bad, none, directory) = (
        config.to_string_lossy(),
        path("bad"),
        path("none"),
        path(""),
    );
    for (arguments, code, words) in [
        (
            &["status", "--socket", &*bad][..],
            1,
            "it is a file and no socket",
        ),
        (
            &["pause", "--socket", &*directory],
            1,
            "it is a directory and no socket",
        ),
        (&["plan", "--socket", &*none], 1, "No such file"),
        (
            &["--config", &*config, "plan", "--snapshot", &*bad],
            1,
            "no whole JSON",
        ),
        (
            &[
                "--config",
                &*config,
                "explain",
                "pod",
                "a",
                "--snapshot",
                &*directory,
            ],
            1,
            "Is a directory",
        ),
        (
            &[
                "--config",
                &*config,
                "explain",
                "node",
                "a",
                "--snapshot",
                &*none,
            ],
            1,
            "No such file",
        ),
        (&["--config", &*directory, "check"], 2, "Is a directory"),
        (&["history", "--record", &*bad], 1, "is no record"),
        (&["history", "--record", &*none], 1, "there is no record in"),
        (&["replay", &*directory], 1, "there is no record in"),
        (&["replay", "--record", &*none], 1, "there is no record in"),
        (
            &["replay", &*directory, "--record", &*none],
            2,
            "cannot be used with",
        ),
        (
            &["kubeconfig", "--kubeconfig", &*none],
            1,
            "an administrator's is /etc/kubernetes/admin.conf",
        ),
        (&["conformance", &*none], 1, "No such file"),
    ] {
        let said = refused(arguments, code);
        assert!(
            said.contains(words),
            "{arguments:?}: {words:?} is not in {said}"
        );
        assert_eq!(
            said.matches("os error").count().max(1),
            1,
            "told twice: {said}"
        );
    }
    let bundle = path("bundle.tar.gz");
    let output = typed(&[
        "--config",
        &none,
        "support-bundle",
        "--socket",
        &none,
        "--file",
        &bundle,
    ]);
    for line in text(&output.stdout).lines() {
        assert!(line.matches("os error").count() < 2, "told twice: {line}");
    }
}

/// A configuration file and a snapshot in a folder that lives as long as the first value.
fn config_and_view() -> (TempDir, String, String) {
    let (folder, config) = file(POOL);
    let view = folder.path().join("view.json");
    std::fs::write(&view, VIEW).expect("written");
    let [config, view] = [config, view].map(|path| path.to_string_lossy().into_owned());
    (folder, config, view)
}

#[test]
fn nobody_who_reads_is_no_crash() {
    let (_folder, config, view) = config_and_view();
    let seen = ["--config", &config, "--snapshot", &view];
    for asked in [
        [&["plan"][..], &seen].concat(),
        [&["explain", "pod", "shop/db-0"][..], &seen].concat(),
        [&["explain", "node", "cp-1", "-o", "yaml"][..], &seen].concat(),
        vec!["schema"],
        vec!["help"],
        vec!["conformance", "--fixtures"],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = program()
            .args(&asked)
            .stdout(writer)
            .stderr(Stdio::piped())
            .output();
        let output = output.expect("it runs");
        assert_eq!(output.status.code(), Some(0), "{asked:?}");
        assert_eq!(text(&output.stderr), "", "{asked:?}");
        // `>&-`, as a shell has it.
        let line = "exec \"$0\" \"$@\" >&-";
        let shell = std::process::Command::new("sh")
            .args(["-c", line, env!("CARGO_BIN_EXE_pve-autoscaler")])
            .args(&asked)
            .output()
            .expect("sh runs");
        assert!(
            !text(&shell.stderr).contains("panicked"),
            "{asked:?}: {}",
            text(&shell.stderr)
        );
    }
    let full = || {
        let mut file = OpenOptions::new();
        file.write(true).open("/dev/full").expect("there is one")
    };
    let output = program()
        .arg("schema")
        .stdout(full())
        .stderr(Stdio::piped())
        .output();
    let output = output.expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("cannot write to standard output: No space left"),
        "{said}"
    );
    // An error that nobody can read is an error still, and no crash.
    let missing = ["check", "--config", "/nowhere/of.toml"];
    let ended = program().args(missing).stderr(full()).status();
    assert_eq!(ended.expect("it runs").code(), Some(2));
}

/// A terminal of twenty columns folds by itself; nothing is lost, and nothing crashes.
#[test]
fn a_terminal_without_room_gets_everything() {
    let (_folder, config, view) = config_and_view();
    for asked in [
        &["plan"][..],
        &["explain", "pod", "shop/db-0"],
        &["explain", "node", "cp-1"],
    ] {
        let asked = [asked, &["--config", &config, "--snapshot", &view]].concat();
        let piped = text(&typed(&asked).stdout);
        for columns in [1, 20] {
            let shown = on_terminal(columns, &asked);
            let plain = |word: &str| word.trim_end_matches(':').to_owned();
            let words: BTreeSet<String> = shown.split_whitespace().map(plain).collect();
            // Heads of columns are in capitals; a list names what it begins with by itself.
            let head = |word: &String| {
                !word.contains(|letter: char| letter.is_lowercase() || letter.is_ascii_digit())
            };
            let mut piped = piped.split_whitespace().map(plain);
            let lost = piped.find(|word| !words.contains(word) && !head(word));
            assert_eq!(lost, None, "{columns}: {asked:?}\n{shown}");
        }
    }
    assert!(on_terminal(20, &["help"]).contains("explain"));
}

/// It finds a command that writes over a configuration file, or a kubeconfig that it did not make.
#[test]
fn files_of_others_are_not_written_over() {
    let (folder, config) = file(POOL);
    let config = config.to_string_lossy().into_owned();
    let none = folder.path().join("none").to_string_lossy().into_owned();
    let said = refused(&["snapshot", "--socket", &none, "--file", &config], 1);
    assert!(
        said.contains("is no snapshot: nothing was written"),
        "{said}"
    );
    // A snapshot may take the place of an older one, and anything where a person says so.
    let view = folder.path().join("view.json");
    std::fs::write(&view, VIEW).expect("written");
    let view = view.to_string_lossy().into_owned();
    for arguments in [
        &["snapshot", "--socket", &*none, "--file", &*view][..],
        &["snapshot", "--socket", &none, "--file", &config, "--force"],
    ] {
        let said = refused(arguments, 1);
        assert!(said.contains("cannot reach the daemon"), "{said}");
    }
    let kubeconfig = ["kubeconfig", "--kubeconfig", &none, "--output"];
    let said = refused(&[&kubeconfig[..], &[&config]].concat(), 1);
    assert!(said.contains("is no kubeconfig of ours"), "{said}");
    let said = refused(&[&kubeconfig[..], &[&config, "--force"]].concat(), 1);
    assert!(said.contains("it cannot be read"), "{said}");
    let said = refused(
        &[
            "sim",
            "kube",
            "--listen",
            "127.0.0.1:0",
            "--kubeconfig",
            &config,
        ],
        1,
    );
    assert!(said.contains("is no simulator's kubeconfig"), "{said}");
    let text = std::fs::read_to_string(&config).expect("it is there");
    assert_eq!(text, POOL);
}

#[test]
fn directories_that_are_not_there_are_not_adopted_from() {
    let (_folder, config) = file(POOL);
    let config = config.to_string_lossy().into_owned();
    let said = refused(
        &[
            "adopt",
            "--config",
            &config,
            "--state-directory",
            "/nope",
            "--broker-directory",
            "/nope",
        ],
        1,
    );
    assert!(
        said.contains("--state-directory /nope: there is no such directory"),
        "{said}"
    );
}

#[test]
fn worlds_without_an_end_and_templates_without_a_name_are_refused() {
    for kind in ["pve", "kube"] {
        let said = refused(
            &[
                "sim",
                kind,
                "--listen",
                "127.0.0.1:0",
                "--spec",
                "/dev/zero",
            ],
            1,
        );
        assert!(said.contains("larger than"), "{said}");
    }
    for command in ["build", "try"] {
        assert!(refused(&["template", command, ""], 2).contains("expected a name"));
    }
    for name in ["a b", ""] {
        let said = refused(&["kubeconfig", "--print-manifest", "--namespace", name], 1);
        assert!(said.contains("is no name of a namespace"), "{said}");
    }
}

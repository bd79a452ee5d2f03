//! On a terminal: nothing is wider than it, nothing is lost for that, and a pipe gets everything unfolded.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::process::Stdio;

use nix::pty::{Winsize, openpty};
use serde_json::{Value, json};

use super::demo::Demo;
use super::{POOL, VIEW, file, program, text};

/// What a command says on a terminal of so many columns.
pub(crate) fn on_terminal(columns: u16, arguments: &[&str]) -> String {
    let own = std::env::var("TERM").unwrap_or_default();
    on_terminal_of(columns, arguments, &[("NO_COLOR", "1"), ("TERM", &own)])
}

/// The same of a command that need not succeed.
pub(crate) fn whatever_on_terminal(columns: u16, arguments: &[&str]) -> String {
    let own = std::env::var("TERM").unwrap_or_default();
    let (_, said) = ran_on_terminal(columns, arguments, &[("NO_COLOR", "1"), ("TERM", &own)]);
    said
}

/// The same with these variables and none else of those that a terminal is told by.
fn on_terminal_of(columns: u16, arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let (succeeded, said) = ran_on_terminal(columns, arguments, variables);
    assert!(succeeded, "{arguments:?}");
    said
}

/// Whether the command succeeded, and what it said.
fn ran_on_terminal(columns: u16, arguments: &[&str], variables: &[(&str, &str)]) -> (bool, String) {
    let size = Winsize {
        ws_row: 24,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let pty = openpty(Some(&size), None).expect("a terminal");
    let mut command = program();
    let mut process = command
        .args(arguments)
        .env_remove("NO_COLOR")
        .env_remove("TERM")
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .stdout(pty.slave)
        .stderr(Stdio::inherit())
        .spawn()
        .expect("it runs");
    // With the command goes the last hold on the other end.
    drop(command);
    let mut said = Vec::new();
    // The end of a terminal is an error: EIO.
    let _ = File::from(pty.master).read_to_end(&mut said);
    let succeeded = process.wait().expect("it ends").success();
    (succeeded, text(&said).replace("\r\n", "\n"))
}

/// The first picture of a command that shows several, on a terminal of 24 lines. It is ended then.
fn first_picture(columns: u16, arguments: &[&str]) -> String {
    let size = Winsize {
        ws_row: 24,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let pty = openpty(Some(&size), None).expect("a terminal");
    let mut command = program();
    let mut process = command
        .args(arguments)
        .env("NO_COLOR", "1")
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .stdout(pty.slave)
        .stderr(Stdio::inherit())
        .spawn()
        .expect("it runs");
    drop(command);
    let mut terminal = File::from(pty.master);
    let mut said = Vec::new();
    let mut part = [0; 4096];
    // What is below the picture is cleared at its end.
    while !text(&said).contains("\u{1b}[J") {
        let length = terminal.read(&mut part).expect("it goes on");
        said.extend(&part[..length]);
    }
    process.kill().expect("it ran until now");
    process.wait().expect("it ends");
    let said = text(&said).replace("\r\n", "\n").replace("\u{1b}[K", "");
    let (picture, _) = said.split_once("\u{1b}[J").expect("its end");
    picture.trim_start_matches("\u{1b}[H").to_owned()
}

fn says(arguments: &[&str]) -> String {
    let output = program().args(arguments).output().expect("it runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn widest(said: &str) -> usize {
    let lines = said.lines().map(|line| line.chars().count());
    lines.max().unwrap_or_default()
}

/// Fits into the terminals that people have; the words are those that a pipe gets, where that says all that it would.
fn fits(arguments: &[&str]) {
    let piped = says(arguments);
    for columns in [80, 60] {
        let shown = on_terminal(columns, arguments);
        assert!(
            widest(&shown) <= usize::from(columns),
            "{columns}: {arguments:?}\n{shown}"
        );
        for word in piped.split_whitespace() {
            let heads = !word.chars().any(char::is_lowercase);
            assert!(
                heads || shown.contains(word),
                "{columns}: {word} is not in\n{shown}"
            );
        }
    }
}

/// Found by it: lines of up to 400 characters, torn at the terminal's edge.
#[test]
fn what_replay_tells_fits_a_terminal() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let record = folder.join("tests/cli/records/0.1.0").display().to_string();
    let (_folder, config) = file(POOL);
    let config = config.display().to_string();
    let asked = ["--config", &config, "replay", &record];
    let output = program().args(asked).output().expect("it runs");
    let piped = text(&output.stdout);
    assert!(widest(&piped) > 80, "nothing is to be folded: {piped}");
    for columns in [80, 60] {
        let shown = whatever_on_terminal(columns, &asked);
        let torn = |line: &&str| {
            let is_a_word = !line.trim().contains(' ');
            line.chars().count() > usize::from(columns) && !is_a_word
        };
        let torn: Vec<&str> = shown.lines().filter(torn).collect();
        assert!(torn.is_empty(), "{columns}: {torn:#?}");
        // Nothing is lost for that but blanks.
        let letters = |text: &str| text.split_whitespace().collect::<String>();
        assert_eq!(letters(&shown), letters(&piped), "{columns}");
    }
}

/// Found by it: what `history` says in the place of a table was torn.
#[test]
fn what_history_says_of_names_that_it_does_not_know_fits_a_terminal() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let record = folder.join("tests/cli/records/0.1.0").display().to_string();
    for asked in [["--pod", "web"], ["--pool", "nope"]] {
        fits(&[&["history", "--record", &record][..], &asked].concat());
    }
}

/// Found by it: where nothing is at hand, the bundle says so in lines of 300 characters.
#[test]
fn what_the_support_bundle_says_fits_a_terminal() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    for columns in [80, 60] {
        let bundle = path(&format!("b{columns}.tar.gz"));
        let (config, state, socket) = (path("none.toml"), path("state"), path("none.sock"));
        let asked = [
            "--config",
            &config,
            "support-bundle",
            "--file",
            &bundle,
            "--state-directory",
            &state,
            "--socket",
            &socket,
        ];
        let shown = whatever_on_terminal(columns, &asked);
        assert!(shown.contains("Secrets are blotted"), "{shown}");
        for line in shown.lines() {
            let is_a_word = !line.trim().contains(' ');
            assert!(
                line.chars().count() <= usize::from(columns) || is_a_word,
                "{columns}: {line:?} in {shown}"
            );
        }
    }
}

/// It finds colours that nobody can switch off, and none at all.
#[test]
fn colours_are_for_terminals_that_take_them() {
    let (_folder, config, view) = crowd();
    let plan = ["plan", "--config", &config, "--snapshot", &view];
    let is_coloured =
        |variables: &[(&str, &str)]| on_terminal_of(80, &plan, variables).contains('\u{1b}');
    let xterm = ("TERM", "xterm-256color");
    for (variables, coloured) in [
        (&[xterm][..], true),
        (&[xterm, ("NO_COLOR", "")], true),
        (&[xterm, ("NO_COLOR", "0")], false),
        (&[xterm, ("NO_COLOR", "1")], false),
        (&[("TERM", "dumb")], false),
        (&[], false),
    ] {
        assert_eq!(is_coloured(variables), coloured, "{variables:?}");
    }
    assert!(!says(&plan).contains('\u{1b}'), "a pipe");
}

/// The view with more of everything: hosts, pools, nodes with taints, pods that nothing takes.
fn crowd() -> (tempfile::TempDir, String, String) {
    let mut view: Value = serde_json::from_str(VIEW).expect("JSON");
    let mut pool = POOL.to_owned();
    for number in 2..8 {
        view["regions"]["default"]["hosts"][format!("pve{number}")] =
            json!({"online": true, "cpus": 4 * number, "memory": 2_i64 << 30});
        let mut node = view["cluster"]["nodes"]["cp-1"].clone();
        node["uid"] = json!(format!("node-{number}"));
        node["taints"] = json!([{"key": "node-role.kubernetes.io/control-plane", "value": "", "effect": "NoSchedule"}]);
        view["cluster"]["nodes"][format!("a-node-of-somebody-else-{number}.example.com")] = node;
        let mut pod = view["cluster"]["pods"]["shop/db-0"].clone();
        pod["uid"] = json!(format!("pod-{number}"));
        pod["node"] = json!("cp-1");
        pod["phase"] = json!("Running");
        pod["shape"]["requests"]["cpu_milli"] = json!(1900);
        pod["shape"]["owner"] = json!({"kind": "ReplicaSet", "name": "shop", "uid": "shop"});
        view["cluster"]["pods"][format!("shop/storefront-of-many-words-{number}")] = pod;
        let _ = write!(
            pool,
            "[pool.further-{number}]\ntemplate = \"debian\"\ninstance_types = [\"small\", \"big\"]\nmax = {}\ntaints = [\"example.com/only-for-{number}:NoSchedule\"]\n\
             [pool.further-{number}.labels]\nof = \"{number}\"\n\
",
            number % 2
        );
    }
    let (folder, config) = file(&pool);
    let saved = folder.path().join("view.json");
    std::fs::write(&saved, view.to_string()).expect("written");
    let name = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let names = (name(&config), name(&saved));
    (folder, names.0, names.1)
}

/// What would run the pod stands below its heading, or has the heading beside it where there is no room for columns.
fn in_their_columns(shown: &str) {
    let table = shown.split("New machines\n").nth(1).unwrap_or_default();
    let table = table.split("\n\n").next().unwrap_or_default();
    let heading = table.lines().next().unwrap_or_default();
    let place = |line: &str, words: &str| line.find(words).map(|at| line[..at].chars().count());
    let column = place(heading, "  WOULD IT RUN").map(|at| at + 2);
    let mut answers = 0;
    for line in table.lines() {
        if let Some(at) = place(line, "would not run") {
            answers += 1;
            let listed = line.starts_with("    WOULD IT RUN: would");
            assert!(listed || Some(at) == column, "{line:?} in\n{shown}");
        }
    }
    assert!(answers > 5, "{shown}");
}

#[test]
fn what_explains_a_crowd_fits_into_the_terminal_and_tells_each_cause_once() {
    let (_folder, config, view) = crowd();
    let seen = ["--config", &config, "--snapshot", &view];
    for asked in [
        &["explain", "pod", "shop/db-0"][..],
        &["explain", "node", "cp-1"],
        &["plan"],
    ] {
        fits(&[asked, &seen[..]].concat());
    }
    let pod = [&["explain", "pod", "shop/db-0"][..], &seen[..]].concat();
    let told = says(&pod);
    let cause = "cpu: asks 5, a node offers 2 after DaemonSets";
    assert_eq!(told.matches(cause).count(), 1, "{told}");
    assert!(told.contains("would not run (1)"), "{told}");
    assert!(widest(&told) > 80, "a pipe has no width:\n{told}");
    let wide = says(&[&pod[..], &["-o", "wide"]].concat());
    assert!(
        wide.contains(&format!("would not run: {cause}")) && !wide.contains("(1)"),
        "{wide}"
    );
    // Tables are as wide as they are, and what is said above them is folded.
    let folded = on_terminal(60, &[&pod[..], &["-o", "wide"]].concat());
    let words = |text: &str| -> Vec<String> { text.split_whitespace().map(Into::into).collect() };
    assert_eq!(words(&folded), words(&wide));
    let rows = |text: &str| -> Vec<String> {
        let rows = text.lines().filter(|line| line.starts_with("  "));
        rows.map(Into::into).collect()
    };
    assert_eq!(rows(&folded), rows(&wide));
    for columns in [120, 100, 80, 60, 40] {
        in_their_columns(&on_terminal(columns, &pod));
    }
}

#[test]
fn the_running_demo_fits_into_the_terminal() {
    let mut demo = Demo::begin("120");
    let typed = demo.line(" status --socket ");
    let socket = typed.rsplit(' ').next().unwrap_or_default();
    demo.line("+ in service: ");
    let status = says(&["status", "--socket", socket, "-o", "json"]);
    let status: Value = serde_json::from_str(&status).expect("JSON");
    let machine = status["machines"]
        .as_object()
        .and_then(|all| all.keys().next());
    let machine = machine.expect("one is there").as_str();
    let node = says(&["explain", "node", machine, "--socket", socket]);
    let pod = node
        .split_whitespace()
        .find(|word| word.starts_with("default/"));
    let pod = pod.expect("a pod").trim_end_matches([',', ':', ';']);
    for columns in [80, 60] {
        for asked in [
            &["status"][..],
            &["plan"],
            &["explain", "node", machine],
            &["explain", "pod", pod],
        ] {
            let shown = on_terminal(columns, &[asked, &["--socket", socket]].concat());
            assert!(
                widest(&shown) <= usize::from(columns),
                "{columns}: {asked:?}\n{shown}"
            );
        }
    }
    // Hosts seldom change: who watches sees the machines before them. Who does not sees them in the order of the page.
    let watched = first_picture(80, &["status", "--watch", "--socket", socket]);
    assert!(
        widest(&watched) <= 80 && watched.lines().count() <= 24,
        "{watched}"
    );
    let (machines, hosts) = (watched.find("achines"), watched.find("\nHosts\n"));
    assert!(
        machines.is_some() && hosts.is_none_or(|hosts| machines < Some(hosts)),
        "{watched}"
    );
    let once = on_terminal(80, &["status", "--socket", socket]);
    assert!(once.find("\nHosts\n") < once.find("\nMachines\n"), "{once}");
    answers_are_folded(socket, &status, machine);
}

/// Found by it: answers of commands that change something, as wide as their sentences.
fn answers_are_folded(socket: &str, status: &Value, machine: &str) {
    let of = |key: &str| status["machines"][machine][key].as_str().expect("text");
    for asked in [["retry", of("pool")], ["evacuate", of("host")]] {
        let shown = on_terminal(60, &[&asked[..], &["--socket", socket]].concat());
        assert!(widest(&shown) <= 60, "{asked:?}\n{shown}");
        assert!(shown.contains("\n    "), "{asked:?}\n{shown}");
    }
}

/// On a terminal of so many columns no line is wider than it but for a single word that is, and no word of what a pipe
/// gets is lost.
fn folds(columns: u16, arguments: &[&str], piped: &str) -> String {
    let shown = on_terminal(columns, arguments);
    for line in shown.lines() {
        let fits = line.chars().count() <= usize::from(columns);
        let one = line.split_whitespace().count() == 1;
        assert!(fits || one, "{columns}: {line:?} of {arguments:?}\n{shown}");
    }
    let words: Vec<&str> = piped.split_whitespace().collect();
    let told: Vec<&str> = shown.split_whitespace().collect();
    assert_eq!(told, words, "{columns}: {arguments:?}");
    shown
}

/// Found by it: a `check` or a demo that is as wide as its sentences, an indent that takes the last columns, a line that
/// goes on where a new one begins.
#[test]
fn check_and_the_demo_fold_their_sentences() {
    let (_folder, config, _) = crowd();
    let check = ["--config", &config, "check"];
    let piped = says(&check);
    assert!(widest(&piped) > 70, "a pipe has no width:\n{piped}");
    for columns in [60, 40, 29, 20, 12] {
        let shown = folds(columns, &check, &piped);
        let goes_on = |line: &&str| line.starts_with(' ');
        assert_eq!(
            shown.lines().filter(|line| !goes_on(line)).count(),
            piped.lines().count(),
            "each sentence begins at the left: {shown}"
        );
    }
    let demo = ["demo", "--once", "--seed", "5", "--speed", "10000"];
    let piped = says(&demo);
    assert!(widest(&piped) > 80, "a pipe has no width:\n{piped}");
    for columns in [80, 60, 24] {
        let shown = folds(columns, &demo, &piped);
        let text = if columns < 30 { " " } else { "           " };
        let below = format!("\n{text}");
        assert!(shown.contains(&below), "{columns}: {shown}");
        folded_once(columns, &shown);
    }
}

/// The first sentences of the demo are folded by the terminal alone: a line of them ends where the next word has no room. Found by it: a
/// line that was folded by hand at 90 columns, and then once more by the terminal.
fn folded_once(columns: u16, shown: &str) {
    let head: Vec<&str> = shown.lines().take_while(|line| !line.is_empty()).collect();
    assert!(head.len() > 1, "{columns}: {shown}");
    for pair in head.windows(2) {
        let [line, next] = pair else { continue };
        let word = next.split_whitespace().next().unwrap_or_default();
        let wider = line.chars().count() + 1 + word.chars().count();
        assert!(
            wider > usize::from(columns),
            "{columns}: {word:?} has room behind {line:?}\n{shown}"
        );
    }
}

/// Found by it: tables that stay as wide as they are below 30 columns.
#[test]
fn on_the_narrowest_terminals_tables_are_lists() {
    let (_folder, config, view) = crowd();
    for columns in [28, 20, 12] {
        for asked in [&["explain", "pod", "shop/db-0"][..], &["plan"]] {
            let seen = ["--config", &config, "--snapshot", &view];
            let shown = on_terminal(columns, &[asked, &seen[..]].concat());
            for line in shown.lines() {
                let fits = line.chars().count() <= usize::from(columns);
                let one = line.split_whitespace().count() == 1;
                assert!(fits || one, "{columns}: {line:?} of {asked:?}\n{shown}");
            }
        }
    }
}

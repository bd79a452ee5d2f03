//! The demo from outside: it ends by itself, with nothing left, and a seed tells the same story twice.

use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

use super::{program, text};

fn story() -> String {
    let output = program()
        .args(["demo", "--once", "--seed", "5", "--speed", "10000"])
        .output()
        .expect("it runs");
    let said = text(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{said}{}",
        text(&output.stderr)
    );
    said
}

#[test]
fn the_demo_ends_with_nothing_left_and_a_seed_tells_the_same_story() {
    let said = story();
    for words in [
        "Seed 5, 10000 simulated seconds in a second",
        "A workload arrives.",
        "and » decided, + comes, - goes, ! went wrong",
        "» create general-",
        "+ cloning the template: general-",
        "+ joining with kubeadm: general-",
        "+ in service: general-",
        "  12 pods, 0 pending; 6 nodes, 6 Ready",
        "The workload is gone.",
        "- gone, VM and all: ",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    sums(&said);
    assert!(said == story(), "two runs of one seed differ");
}

/// At the end stand the sums, each beside the sign of the lines that it sums up; and these are not many.
fn sums(said: &str) {
    let (told, sums) = said
        .split_once("All machines are gone; nothing is left behind.\n")
        .unwrap_or_else(|| panic!("no end in {said}"));
    let begin = |sign: &str| told.matches(&format!("  {sign} ")).count();
    assert!(told.lines().count() < 75, "{} lines", told.lines().count());
    let made = told.matches("» create ").count();
    assert!(begin("»") == 2 * made && made > 4, "{said}");
    assert_eq!(begin("!"), 0, "{said}");
    for words in [
        "In 19m".to_owned(),
        format!("  » decided: {made} machines made, {made} removed"),
        format!("  + {made} machines in service, "),
        " after the decision (median), ".to_owned(),
        format!("  - {made} machines gone, VM and all"),
        "  ! 0 failures".to_owned(),
        " had no node at first and got one ".to_owned(),
    ] {
        assert!(sums.contains(&words), "{words:?} is not in {sums}");
    }
}

/// A demo that runs, ended with the test.
pub(crate) struct Demo {
    process: Child,
    said: Vec<String>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Demo {
    /// So many simulated seconds in a second.
    pub(crate) fn begin(speed: &str) -> Demo {
        Demo::of(&["--speed", speed])
    }

    /// With more arguments.
    fn of(more: &[&str]) -> Demo {
        let mut process = program()
            .args(["demo", "--seed", "5", "--page", "127.0.0.1:0"])
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs");
        let lines = BufReader::new(process.stdout.take().expect("piped")).lines();
        let said = Vec::new();
        Demo {
            process,
            said,
            lines,
        }
    }

    /// Reads until a line has these words, and gives it back; the story itself takes ten seconds.
    pub(crate) fn line(&mut self, words: &str) -> String {
        for line in self.lines.by_ref() {
            let line = line.expect("it can be read");
            self.said.push(line.clone());
            if line.contains(words) {
                return line;
            }
        }
        panic!("{words:?} is not in {:#?}", self.said);
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Does something to the demo's world, as its page does.
pub(crate) fn act(page: &str, deed: &str) {
    let body = format!("{{\"do\":\"{deed}\"}}");
    let mut way = TcpStream::connect(page).expect("it listens");
    let length = body.len();
    let request = format!(
        "POST /demo/act HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    way.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    way.read_to_string(&mut answer).expect("answered");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// What a person types, word for word but for the verb.
fn ask(typed: &str, verb: &str) -> String {
    let typed = typed.trim().replacen(" status ", &format!(" {verb} "), 1);
    let output = Command::new("sh")
        .args(["-c", &typed])
        .output()
        .expect("sh runs");
    assert!(output.status.success(), "{typed}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// The demo says what to type in a second terminal; that is typed here, with the commands that it names.
#[test]
fn the_running_demo_can_be_asked_from_a_second_terminal() {
    let mut demo = Demo::begin("120");
    demo.line("In a second terminal:");
    let typed = demo.line(" status --socket ");
    let socket = typed.rsplit(' ').next().unwrap_or_default().to_owned();
    demo.line("+ in service: ");
    let status = ask(&typed, "status");
    for words in ["POOL", "general", "batch", "pve2", "leader"] {
        assert!(status.contains(words), "{words:?} is not in {status}");
    }
    // Times are told by the demo's clock, whatever day it is where one looks.
    let turn = status.lines().find(|line| line.starts_with("turn "));
    let turn = turn.expect("the turn's line");
    let ago = turn.split(',').next().unwrap_or_default();
    assert!(ago.ends_with(" ago") || ago.contains("now"), "{turn}");
    assert!(!ago.contains(['d', 'h']), "days or hours: {turn}");
    let json = ask(&typed, "status -o json");
    let status: Value = serde_json::from_str(&json).expect("JSON");
    let machines = status["machines"].as_object().expect("machines").clone();
    let machine = machines.keys().next().expect("one is there");
    // Storages are all told where it is asked for, in text and in JSON.
    let regions = status["storages"].as_object().expect("regions");
    let storages = regions.values().filter_map(|of| of.as_object());
    let storages: Vec<&Value> = storages.flat_map(|of| of.values()).collect();
    let promised = |one: &&Value| one["promised"].as_i64().is_some_and(|bytes| bytes > 0);
    assert!(storages.iter().any(promised), "{json}");
    let wide = ask(&typed, "status -o wide");
    for words in ["STORAGE", "POOLS", "general: "] {
        assert!(wide.contains(words), "{words:?} is not in {wide}");
    }
    let plan = ask(&typed, "plan");
    assert!(
        plan.contains("NODE") && plan.contains(machine.as_str()),
        "{plan}"
    );
    let node = ask(&typed, &format!("explain node {machine}"));
    assert!(
        node.contains(machine.as_str()) && node.contains("POD"),
        "{node}"
    );
    // Why it is on its host is told later, by both in the same words.
    let made = node
        .lines()
        .find_map(|line| line.strip_prefix("It was made at "));
    let made = made.and_then(|made| made.split_once(" on ")?.1.split_once(": "));
    let (host, why) = made.unwrap_or_else(|| panic!("{node}"));
    assert!(why.starts_with("spread: "), "{node}");
    let history = ask(&typed, &format!("history --machine {machine}"));
    let line = history
        .lines()
        .find(|line| line.contains(&format!("why on {host}")));
    assert!(
        line.is_some_and(|line| line.trim_end().ends_with(why)),
        "{why} is not in {history}"
    );
    let pod = node
        .split_whitespace()
        .find(|word| word.starts_with("default/web-"));
    let pod = pod
        .expect("a pod of the workload")
        .trim_end_matches([',', ':', ';']);
    let story = ask(&typed, &format!("explain pod {pod}"));
    assert!(story.contains(pod), "{story}");
    // Its daemon does what it is told, too.
    ask(&typed, "pause lunch");
    let paused = ask(&typed, "status");
    assert!(paused.contains("paused: lunch"), "{paused}");
    ask(&typed, "resume");
    // Ctrl-C: the sums so far, and nothing is left of its files.
    let own = pid_of(&demo.process);
    nix::sys::signal::kill(own, nix::sys::signal::Signal::SIGINT).expect("it is ours");
    demo.line(" of the clusters' time, ");
    demo.line("  » decided: ");
    assert_eq!(demo.process.wait().expect("it ends").code(), Some(0));
    assert!(
        !Path::new(&socket).parent().expect("a folder").exists(),
        "{socket} is left"
    );
}

/// The number before these words in the sums.
fn number(sums: &[String], words: &str) -> usize {
    let line = sums.iter().find(|line| line.contains(words));
    let line = line.unwrap_or_else(|| panic!("{words:?} is not in {sums:#?}"));
    let before = line.split(words).next().unwrap_or_default();
    let word = before.split_whitespace().last().unwrap_or_default();
    word.parse().unwrap_or_else(|_| panic!("{line}"))
}

/// What a person adds, and what they break, stands in the sums of the story in which it came, and in no other's; and what
/// is summed up is what was told.
#[test]
fn sums_are_of_what_came_since_the_last_ones() {
    let mut demo = Demo::of(&["--speed", "400"]);
    let page = demo.line("The page: http://");
    let page = page.split("http://").nth(1).unwrap_or_default();
    let page = page.split('/').next().expect("an address").to_owned();
    demo.line("A workload arrives.");
    act(&page, "add-giant");
    let created = demo.line("(small on pve2, ");
    let name = created.split("» create ").nth(1).unwrap_or_default();
    let name = name.split(' ').next().unwrap_or_default().to_owned();
    // Only a machine in service is repaired; one under way is brought up again by what brings it up.
    while !demo.line("+ in service: ").contains(&name) {}
    act(&page, "kill-host");
    act(&page, "revive-host");
    for pods in [19, 18] {
        demo.line(" of the clusters' time, ");
        let told = std::mem::take(&mut demo.said);
        demo.line(" at most");
        demo.line("pods came");
        let sums = std::mem::take(&mut demo.said);
        assert_eq!(number(&sums, " pods came"), pods, "{told:#?}{sums:#?}");
        let begin = |sign: &str| told.iter().filter(|line| line.contains(sign)).count();
        let repairs = sums.iter().any(|line| line.contains(" repair"));
        let repairs = if repairs { number(&sums, " repair") } else { 0 };
        let failures = number(&sums, " failure");
        // The host that lost its power is a fault that the page asked for, and no failure.
        let faults = sums.iter().any(|line| line.contains(" fault"));
        let faults = if faults { number(&sums, " fault") } else { 0 };
        assert_eq!(begin("  ! "), failures + faults, "{told:#?}{sums:#?}");
        assert_eq!(begin(" is offline, with "), faults, "{told:#?}{sums:#?}");
        assert!(
            !told.iter().any(|line| line.contains("! start ")),
            "{told:#?}"
        );
        assert!(pods == 18 || repairs > 0, "VMs were off: {told:#?}");
        assert_eq!(
            begin("» create "),
            number(&sums, " machines made"),
            "{told:#?}"
        );
    }
}

/// What a person does on the page stands in the timeline with what comes of it, and at Ctrl-C the whole demo is summed up.
#[test]
fn what_a_person_breaks_is_told_as_that_and_as_gone_wrong() {
    let mut demo = Demo::of(&["--speed", "400"]);
    demo.line("After each such round it begins anew");
    let page = demo.line("The page: http://");
    let page = page.split("http://").nth(1).unwrap_or_default();
    let page = page.split('/').next().expect("an address").to_owned();
    demo.line("+ in service: ");
    act(&page, "kill-host");
    demo.line("You, on the page: pve2 has lost its power");
    demo.line("! host pve2 is offline, with ");
    act(&page, "revive-host");
    demo.line("+ host pve2 is online again");
    demo.line(" of the clusters' time, this round:");
    act(&page, "break-template");
    demo.line("You, on the page: The template is locked");
    demo.line("! template ");
    act(&page, "mend-template");
    demo.line("You, on the page: The template is unlocked");
    demo.line(" can be cloned again");
    let own = pid_of(&demo.process);
    nix::sys::signal::kill(own, nix::sys::signal::Signal::SIGINT).expect("it is ours");
    demo.line(" of the clusters' time, the whole demo:");
    demo.line("  » decided: ");
}

/// The timeline tells since when a host is evacuated by its own clock, as all else. Of a node that is gone `explain node` says where it is
/// told, and `history` who asked for it.
#[test]
fn an_evacuation_is_told_in_the_timeline_and_later() {
    let mut demo = Demo::begin("60");
    let typed = demo.line(" status --socket ");
    demo.line(" 6 nodes, 6 Ready");
    ask(&typed, "evacuate pve2");
    let removed = demo.line(": its host pve2 is evacuated since ");
    let (what, since) = removed
        .split_once(": its host pve2 is evacuated since ")
        .expect("both");
    let (minutes, seconds) = since.split_once(':').expect("a time of the story");
    let is_number = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    assert!(
        is_number(minutes) && is_number(seconds) && seconds.len() == 2,
        "{removed}"
    );
    let name = what.split("» remove ").nth(1).expect("a node").to_owned();
    while !demo.line("- gone, VM and all: ").contains(&name) {}
    let explain = typed
        .trim()
        .replacen(" status ", &format!(" explain node {name} "), 1);
    let output = Command::new("sh")
        .args(["-c", &explain])
        .output()
        .expect("sh runs");
    let said = text(&output.stderr);
    let words = format!(
        "no node or machine {name} is seen; `pve-autoscaler history --node {name}` has what became of it"
    );
    assert!(!output.status.success() && said.contains(&words), "{said}");
    let told = ask(&typed, &format!("history --node {name}"));
    assert!(told.contains(&format!("remove {name} on pve2")), "{told}");
    let told = ask(&typed, "history");
    let asked = told
        .lines()
        .find(|line| line.trim_end().ends_with(" asked: evacuate pve2"));
    assert!(
        asked.is_some_and(|line| !line.contains("somebody")),
        "{told}"
    );
}

/// `| head -1`: whoever read it went away, and with them the demo, which leaves nothing.
#[test]
fn a_demo_that_nobody_reads_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("control.sock");
    let mut process = program()
        .args([
            "demo",
            "--speed",
            "120",
            "--page",
            "127.0.0.1:0",
            "--socket",
        ])
        .arg(&socket)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    drop(process.stdout.take());
    assert_eq!(process.wait().expect("it ends").code(), Some(0));
    assert!(!socket.exists(), "it is left");
}

/// The status line that a request to the demo's page is answered with.
fn asked_of(page: &str, request: &str) -> String {
    let mut way = TcpStream::connect(page).expect("it listens");
    let request = format!("{request}\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    way.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    way.read_to_string(&mut answer).expect("answered");
    answer.lines().next().unwrap_or_default().to_owned()
}

/// With a file of users the demo's page is theirs alone, its world's buttons too; and a file that cannot be used is named with what makes it.
#[test]
fn a_demo_with_users_lets_in_nobody_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let users = folder.path().join("users");
    let named = users.to_str().expect("a path");
    let output = program()
        .args(["demo", "--page", "127.0.0.1:0", "--users", named])
        .output()
        .expect("it runs");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let parts = [
        "--users ",
        named,
        "`pve-autoscaler web-password NAME` makes it",
    ];
    assert!(parts.iter().all(|part| said.contains(part)), "{said}");

    let mut setting = program()
        .args(["web-password", "ann", "--file", named])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("it runs");
    let mut input = setting.stdin.take().expect("it is piped");
    writeln!(input, "correct horse battery").expect("it reads");
    drop(input);
    assert!(setting.wait().expect("it ends").success());
    let mut demo = Demo::of(&["--users", named]);
    let page = demo.line("The page: http://");
    let page = page.split("http://").nth(1).unwrap_or_default();
    let page = page.split('/').next().expect("an address").to_owned();
    demo.line("Who is in the file of --users may log in there, pause, retry and evacuate.");
    for request in [
        "GET /api/find?q= HTTP/1.1",
        "GET /api/events HTTP/1.1",
        "POST /demo/act HTTP/1.1",
        "POST /api/act HTTP/1.1",
    ] {
        let status = asked_of(&page, request);
        assert!(status.contains(" 401 "), "{request}: {status}");
    }
    let status = asked_of(&page, "GET /api/session HTTP/1.1");
    assert!(status.contains(" 200 "), "{status}");
}

/// Which PVE cluster a machine is in is told where there is more than one.
#[test]
fn with_two_regions_status_and_explain_name_that_of_a_machine() {
    for (regions, named) in [("2", true), ("1", false)] {
        let mut demo = Demo::of(&["--speed", "120", "--regions", regions]);
        let typed = demo.line(" status --socket ");
        demo.line("+ in service: ");
        let json: Value = serde_json::from_str(&ask(&typed, "status -o json")).expect("JSON");
        let machines = json["machines"].as_object().expect("machines");
        let (machine, facts) = machines.iter().next().expect("one is there");
        let place = format!("{} in {}", facts["host"], facts["region"]).replace('"', "");
        let explain = format!("explain node {machine}");
        for (asked, wide) in [
            ("status", "status -o wide"),
            (&*explain, &*format!("{explain} -o wide")),
        ] {
            let said = ask(&typed, asked);
            assert_eq!(said.contains(&place), named, "{said}");
            let said = ask(&typed, wide);
            assert!(said.contains(&place), "{said}");
        }
        let told: Value =
            serde_json::from_str(&ask(&typed, &format!("{explain} -o json"))).expect("JSON");
        assert_eq!(told["machine"]["region"], facts["region"]);
    }
}

#[test]
fn a_demo_that_cannot_listen_says_where_and_one_that_is_interrupted_did_not_end_well() {
    let folder = tempfile::tempdir().expect("a folder");
    let taken = folder.path().join("precious");
    std::fs::write(&taken, "text").expect("written");
    let output = program()
        .args(["demo", "--once", "--socket"])
        .arg(&taken)
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    for words in ["control socket", "precious", "no socket", "--socket"] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    assert_eq!(
        std::fs::read_to_string(&taken).expect("it is there"),
        "text"
    );
    let mut process = program()
        .args(["demo", "--once", "--speed", "20"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it runs");
    let mut lines = BufReader::new(process.stdout.take().expect("piped")).lines();
    let begun = lines.any(|line| line.is_ok_and(|line| line.contains("A workload arrives.")));
    assert!(begun);
    let own = pid_of(&process);
    nix::sys::signal::kill(own, nix::sys::signal::Signal::SIGTERM).expect("it is ours");
    assert_eq!(process.wait().expect("it ends").code(), Some(1));
}

fn pid_of(process: &Child) -> nix::unistd::Pid {
    nix::unistd::Pid::from_raw(i32::try_from(process.id()).expect("a pid"))
}

/// Two PVE clusters: a pool is over both, one of them is away while the workload grows, and nothing is left of either.
#[test]
fn with_two_regions_one_of_them_may_be_away() {
    let story = || {
        let output = program()
            .args(["demo", "--once", "--regions", "2", "--speed", "10000"])
            .output()
            .expect("it runs");
        let said = text(&output.stdout);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}{error}");
        said
    };
    let said = story();
    for words in [
        "two simulated Proxmox VE clusters",
        " in east, VMID 91",
        " in west, VMID 91",
        "west does not answer any more",
        "west answers again",
        "All machines are gone; nothing is left behind.",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    assert!(said == story(), "two runs of one seed differ");
    let output = program().args(["demo", "--regions", "3"]).output();
    let output = output.expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--regions"));
}

#[test]
fn without_the_simulators_program_it_says_where_it_looked_and_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let alone = folder.path().join("bin/pve-autoscaler");
    std::fs::create_dir(folder.path().join("bin")).expect("made");
    std::fs::copy(env!("CARGO_BIN_EXE_pve-autoscaler"), &alone).expect("copied");
    for arguments in [
        &["demo", "--once"][..],
        &["conformance", "--fixtures"],
        &["sim", "kube"],
    ] {
        let output = Command::new(&alone)
            .args(arguments)
            .output()
            .expect("it runs");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let said = text(&output.stderr);
        for words in [
            "bin/pve-autoscaler-simulator nor ",
            "libexec/pve-autoscaler/simulator; ",
            "install the package",
        ] {
            assert!(said.contains(words), "{words:?} is not in {said}");
        }
    }
    // Help and mistakes need no other program.
    for (arguments, code) in [(["demo", "--help"], 0), (["demo", "--fly"], 2)] {
        let output = Command::new(&alone)
            .args(arguments)
            .output()
            .expect("it runs");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
    }
}

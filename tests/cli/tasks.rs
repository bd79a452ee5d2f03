//! Tasks of an operator, `docs/tasks.md`: the commands of the page are typed as they stand there, those of 1 to 4 and 7 at the running
//! demo. `tasks_on_hosts.rs` has the others, and 4 with its `doctor`.

use std::fmt::Write as _;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::demo::{Demo, act};
use super::text;

const PAGE: &str = include_str!("../../docs/tasks.md");
/// Before anything that the demo's clock has shown.
const BEGINNING: &str = "2026-01-01T00:00:00Z";

/// The commands of a task's blocks, a line each, without comments.
pub(crate) fn commands(heading: &str) -> Vec<String> {
    commands_of(PAGE, heading)
}

/// The commands in the blocks of a page's section, a line each, without comments.
pub(crate) fn commands_of(page: &str, heading: &str) -> Vec<String> {
    let section = page
        .split("\n## ")
        .find(|section| section.starts_with(heading))
        .unwrap_or_else(|| panic!("no section {heading:?}"));
    let blocks = section.split("```sh\n").skip(1);
    let blocks = blocks.filter_map(|rest| rest.split("\n```").next());
    let lines = blocks.flat_map(str::lines);
    lines
        .map(|line| line.split("  #").next().unwrap_or(line).trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect()
}

/// The demo, and how it is asked.
struct Person {
    demo: Demo,
    page: String,
    /// What stands for `pve-autoscaler` at the beginning of a line.
    program: String,
    socket: String,
}

impl Person {
    /// `speed`: simulated seconds in a second.
    fn at_a_demo(speed: &str) -> Person {
        let mut demo = Demo::begin(speed);
        let page = demo.line("The page: http://");
        let page = page
            .split("http://")
            .nth(1)
            .and_then(|rest| rest.split('/').next());
        let page = page.expect("an address").to_owned();
        let typed = demo.line(" status --socket ");
        let (program, socket) = typed.trim().split_once(" status --socket ").expect("both");
        let (program, socket) = (program.to_owned(), socket.to_owned());
        Person {
            demo,
            page,
            program,
            socket,
        }
    }

    /// Types a line of the page with names in the place of capitals, and gives back what is said.
    fn types(&self, line: &str, names: &[(&str, &str)]) -> String {
        assert!(line.starts_with("pve-autoscaler "), "not at a demo: {line}");
        let mut typed = line.replacen("pve-autoscaler", &self.program, 1);
        for (capitals, name) in names {
            assert!(typed.contains(capitals), "{capitals} is not in {line}");
            typed = typed.replace(capitals, name);
        }
        if typed.contains(" history ") {
            // The demo's days are not those of who looks, and its record lies in its own directory.
            for ago in ["16h", "2h"] {
                typed = typed.replace(&format!("--since {ago}"), &format!("--since {BEGINNING}"));
            }
            let folder = Path::new(&self.socket).parent().expect("a folder");
            let _ = write!(typed, " --record {}", folder.join("record").display());
        } else {
            let _ = write!(typed, " --socket {}", self.socket);
        }
        let output = Command::new("sh").args(["-c", &typed]).output();
        let output = output.expect("sh runs");
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success(), "{typed}: {said}");
        said
    }

    /// Presses a button of the demo's page.
    fn presses(&self, deed: &str) {
        act(&self.page, deed);
    }

    /// Until the status is as it should be.
    fn waits(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..240 {
            let said = self.types("pve-autoscaler status -o json", &[]);
            let status: Value = serde_json::from_str(&said).expect("JSON");
            if holds(&status) {
                return status;
            }
            std::thread::sleep(Duration::from_millis(250));
        }
        panic!("{what}: not within a minute");
    }

    /// A pending pod whose name begins so.
    fn pending(&self, prefix: &str) -> String {
        let plan = self.types("pve-autoscaler plan -o json", &[]);
        let plan: Value = serde_json::from_str(&plan).expect("JSON");
        let pods = plan["report"]["pods"].as_object().expect("pods");
        let found = pods.keys().find(|name| name.starts_with(prefix));
        found
            .unwrap_or_else(|| panic!("no {prefix} in {pods:?}"))
            .clone()
    }
}

#[test]
fn the_page_has_the_ten_tasks_each_once() {
    let headings: Vec<&str> = PAGE
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .collect();
    assert_eq!(headings.len(), 10, "{headings:?}");
    for (number, heading) in (1..).zip(&headings) {
        assert!(heading.starts_with(&format!("{number}. ")), "{heading}");
        let anchor = heading
            .to_lowercase()
            .replace(['.', '?'], "")
            .replace(' ', "-");
        assert_eq!(
            PAGE.matches(&format!("| {number} | [")).count(),
            1,
            "{heading}"
        );
        assert!(PAGE.contains(&format!("](#{anchor}) |")), "{anchor}");
    }
}

/// Tasks 1 to 3: why, why, when; and 7, a pause.
#[test]
fn the_commands_that_ask_answer_at_the_demo() {
    let mut person = Person::at_a_demo("20");
    person.demo.line("+ in service: ");
    person.presses("add-giant");
    person.waits("a pod without prospect", |status| {
        status["pending"]["no_compatible_pool"] == 1
    });
    let pod = person.pending("default/yours-");
    let [explain] = &commands("1. ")[..] else {
        panic!("one command");
    };
    let said = person.types(explain, &[("POD", &pod)]);
    assert!(
        said.contains("No pool can run it") && said.contains("asks 64"),
        "{said}"
    );

    // One that is still coming up has another verdict.
    let is_up = |machine: &&Value| machine["node"].is_string() && machine["step"][0] == "done";
    let status = person.waits("a node", |status| {
        let machines = status["machines"].as_object();
        machines.is_some_and(|all| all.values().any(|machine| is_up(&machine)))
    });
    let mut machines = status["machines"].as_object().expect("machines").values();
    let node = machines
        .find(is_up)
        .and_then(|machine| machine["node"].as_str());
    let [explain] = &commands("2. ")[..] else {
        panic!("one command");
    };
    let said = person.types(explain, &[("NODE", node.expect("a node"))]);
    assert!(
        said.contains("NotUnderutilized") && said.contains("default/web-"),
        "{said}"
    );

    let [all, of_pool] = &commands("3. ")[..] else {
        panic!("two commands");
    };
    let said = person.types(all, &[]);
    assert!(
        said.contains("make general-") && said.contains("is a working node"),
        "{said}"
    );
    let said = person.types(of_pool, &[("POOL", "general")]);
    assert!(
        said.contains("pods fit nowhere else: default/web-"),
        "{said}"
    );

    let [pause, resume] = &commands("7. ")[..] else {
        panic!("two commands");
    };
    person.types(pause, &[]);
    person.waits("the pause", |status| {
        let reason = status["paused"].as_str();
        reason.is_some_and(|reason| reason.starts_with("storage move (by "))
    });
    person.types(resume, &[]);
    person.waits("its end", |status| status["paused"].is_null());
}

/// Task 4: the template is locked; the cause is told, it is mended, and the pool goes on. A demo has no host to look at, so that `doctor` is
/// typed in `tasks_on_hosts.rs`.
#[test]
fn a_template_that_fails_is_found_and_its_pool_goes_on_once_it_is_mended() {
    let mut person = Person::at_a_demo("20");
    person.demo.line("+ in service: ");
    person.presses("break-template");
    person.presses("add-workload");
    let [status, plan, history, _doctor, retry] = &commands("4. ")[..] else {
        panic!("five commands");
    };
    let ready = |status: &Value| status["pools"]["general"]["ready"].as_u64().unwrap_or(0);
    let held = |status: &Value| status["pending"]["held"].as_u64() > Some(0);
    let before = ready(&person.waits("pods that are held", held));
    // Whether a machine was begun before the lock was seen, or none is begun for it.
    let said = person.types(status, &[]) + &person.types(plan, &[]);
    assert!(
        said.contains("VM 9000 is locked (backup)") || said.contains("VM is locked (backup)"),
        "{said}"
    );
    let said = person.types(history, &[("POOL", "general")]);
    assert!(said.contains("general-"), "{said}");
    person.presses("mend-template");
    let said = person.types(retry, &[("POOL", "general")]);
    assert!(said.contains("general"), "{said}");
    person.waits("a machine more", |status| ready(status) > before);
}

//! `history` and `replay` by the program itself, on the record of a simulated day.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use crate::common::{Scene, simulate};
use crate::hosts::{fill, made, on, region};
use crate::waiting::{until, while_it_lives};
use crate::{HASTY, visit};
use pve_autoscaler::controller::askers::PersonOrder;
use pve_autoscaler::controller::state::StateFiles;
use pve_autoscaler::model::region::RegionName;
use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::workload::{Workload, WorkloadPods};
use serde_json::Value;

fn program(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_pve-autoscaler"))
        .env("TZ", "UTC")
        .args(arguments)
        .output();
    output.expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A machine that came and went.
fn day(config: &str) -> Scene {
    simulate(async {
        let scene = Scene::new(3, config, GuestSpec::default());
        scene.live(None, 0, visit(), Duration::from_mins(6)).await;
        scene.nothing_is_left();
        scene
    })
}

fn path(path: &Path) -> &str {
    path.to_str().expect("it is text")
}

#[test]
fn history_and_replay_answer_with_the_daemon_stopped() {
    let config = format!("{HASTY}\n[recorder]\nmax_size = \"1MiB\"\n");
    let scene = day(&config);
    let record = scene.state().join("record");
    let told = program(&["history", "--record", path(&record)]);
    let lines = text(&told.stdout);
    assert_eq!(told.status.code(), Some(0), "{}", text(&told.stderr));
    let line = |wanted: &str| {
        lines
            .lines()
            .find(|line| line.contains(wanted))
            .map(str::to_owned)
    };
    let made = line("make general-").unwrap_or_else(|| panic!("{lines}"));
    assert!(
        made.contains("1 pod fits nowhere else: default/web-"),
        "{made}"
    );
    assert!(made.trim_start().starts_with("2026-01-01 08:0"), "{made}");
    assert!(
        line("is a working node").is_some_and(|line| line.contains("after ")),
        "{lines}"
    );
    assert!(line("is gone").is_some(), "{lines}");
    let json = program(&[
        "history",
        "--record",
        path(&record),
        "--pool",
        "general",
        "-o",
        "json",
    ]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(
        (&json["schema_version"], &json["version"]),
        (&1.into(), &1.into())
    );
    assert_eq!(
        json["programs"],
        serde_json::json!([env!("CARGO_PKG_VERSION")])
    );
    assert!(
        json["deeds"]
            .as_array()
            .is_some_and(|deeds| deeds.len() >= 4),
        "{json}"
    );
    let none = program(&["history", "--record", path(&record), "--pool", "other"]);
    assert!(
        text(&none.stdout).starts_with("Nothing that concerns"),
        "{}",
        text(&none.stdout)
    );
    let same = program(&["replay", path(&record)]);
    assert_eq!(
        same.status.code(),
        Some(0),
        "{}{}",
        text(&same.stdout),
        text(&same.stderr)
    );
    assert!(
        text(&same.stdout).contains(" the same, 0 others, 0 that"),
        "{}",
        text(&same.stdout)
    );
    let file = scene.state().join("other.toml");
    std::fs::write(&file, config.replace("max = 3", "max = 0")).expect("written");
    let other = program(&["replay", "--config", path(&file), path(&record)]);
    assert_eq!(other.status.code(), Some(1));
    otherwise(&text(&other.stdout));
    for (arguments, said) in [
        (
            vec!["history", "--record", "/nowhere/at/all"],
            "there is no record in /nowhere/at/all",
        ),
        (
            vec!["history", "--record", path(&file)],
            "other.toml is no record: it does not begin",
        ),
    ] {
        let failed = program(&arguments);
        let all = text(&failed.stderr);
        assert_eq!(failed.status.code(), Some(1), "{arguments:?}");
        assert!(all.contains(said), "{arguments:?}: {all}");
    }
    ask_for_times(&record);
}

/// A day by its word, and a time of it, by the clock of who asks; all that is in the record was before.
fn ask_for_times(record: &Path) {
    for since in ["yesterday 16:00", "16:00 yesterday", "yesterday", "today"] {
        let late = program(&["history", "--record", path(record), "--since", since]);
        let all = text(&late.stdout) + &text(&late.stderr);
        assert_eq!(late.status.code(), Some(0), "{since}: {all}");
        assert!(
            all.contains("Nothing was done in that time"),
            "{since}: {all}"
        );
    }
    let replayed = program(&["replay", path(record), "--since", "yesterday 16:00"]);
    let all = text(&replayed.stderr);
    assert!(all.contains("or none in that time"), "{all}");
    let help = text(&program(&["history", "--help"]).stdout);
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("'yesterday 16:00'"), "{help}");
    for command in ["history", "replay"] {
        let wrong = program(&[command, "--since", "soon"]);
        let all = text(&wrong.stderr);
        assert_eq!(wrong.status.code(), Some(2), "{all}");
        assert!(
            all.contains("--since: \"soon\" is no point in time"),
            "{all}"
        );
    }
}

/// What is said where a pool may have no machine any more: in words, and what it comes to.
fn otherwise(said: &str) {
    let has = |words: &str| said.lines().any(|line| line.contains(words));
    for words in [
        "  not done: create general-",
        "  pod default/web-",
        "  pool general: 1 fewer made (0, 1 then), for 0.",
        "an hour less; ",
        "what the next decision remembers (",
    ] {
        assert!(has(words), "{words}:\n{said}");
    }
    let waits = ["    is   has to wait: ", "    is   no pool can run it: "];
    assert!(waits.into_iter().any(has), "{said}");
    assert!(!has("plan.0") && !has("report."), "{said}");
}

/// Of decisions with hundreds of differences JSON has each, in one document, and the table says the same of many pods once. It finds the bound
/// of fifty, of which nobody could have the rest.
#[test]
fn replay_has_every_difference() {
    let config = format!("{HASTY}\n[recorder]\nmax_size = \"8MiB\"\n");
    let scene = simulate(async {
        let scene = Scene::new(3, &config, GuestSpec::default());
        let pods = Workload::visit("web", 120, WorkloadPods::of("1", "1Gi"), Span::minutes(20));
        scene.live(None, 0, pods, Duration::from_mins(3)).await;
        scene
    });
    let record = scene.state().join("record");
    let file = scene.state().join("other.toml");
    std::fs::write(&file, config.replace("max = 3", "max = 0")).expect("written");
    let replay = |options: &[&str]| {
        let arguments = ["replay", "--config", path(&file), path(&record)];
        let output = program(&[&arguments[..], options].concat());
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let told: Value = serde_json::from_str(&replay(&["-o", "json"])).expect("one document");
    assert_eq!(told["schema_version"], 1);
    let decisions = told["decisions"].as_array().expect("a list");
    let most = decisions.iter().max_by_key(|one| one["count"].as_u64());
    let most = most.expect("decisions differ");
    let differences = most["differences"].as_array().expect("a list");
    assert_eq!(most["count"], differences.len());
    assert!(differences.len() > 50, "{}", differences.len());
    let sum = &told["sum"];
    assert_eq!(sum["others"], decisions.len());
    let made = &sum["pools"]["general"]["made"];
    assert!(made["was"].as_u64() > Some(0) && made["is"] == 0, "{sum}");

    let table = replay(&[]);
    assert!(table.contains("  pods default/web-"), "{table}");
    let longest = table.split("(UTC), decision ").map(|of| of.lines().count());
    let longest = longest.max().unwrap_or_default();
    assert!(longest < 60, "{longest} lines of a decision:\n{table}");
    let few = replay(&["--limit", "1"]);
    assert!(
        few.contains(" more; --limit shows more, -o json has all\n"),
        "{few}"
    );
    let paths = replay(&["--detail"]);
    assert!(paths.contains("\n  report.pods.default/web-"), "{paths}");
}

/// A host that a person evacuates, until no machine is there; then it may have machines again.
fn evacuation() -> Scene {
    let config = format!("{}\n[recorder]\nmax_size = \"16MiB\"\n", region(""));
    simulate(async {
        let scene = Scene::new(11, &config, GuestSpec::default());
        let person = async {
            tokio::time::sleep(Duration::from_mins(4)).await;
            assert_eq!(made(&scene), on([("pve1", 1), ("pve2", 1), ("pve3", 1)]));
            let files = StateFiles::open(scene.state()).expect("it is there");
            let (of, host): (RegionName, &str) = ("default".into(), "pve2");
            let order = PersonOrder::Evacuate { region: &of, host };
            files.note_asker(order, "ann").expect("noted");
            let now = scene.world.clock.now();
            assert!(files.evacuate(&of, host, now).expect("noted"));
            until(&scene, "the host has no machine", 30, || {
                !made(&scene).contains_key(host)
            })
            .await;
            let order = PersonOrder::EndEvacuation { region: &of, host };
            files.note_asker(order, "bob").expect("noted");
            assert!(files.end_evacuation(&of, host).expect("noted"));
            tokio::time::sleep(Duration::from_mins(1)).await;
        };
        while_it_lives(&scene, fill(3), person).await;
        scene
    })
}

/// Found by it: `2 pods fit nowhere else` of pods that ran all the time, `the node: kept` of one that was to go, and `somebody asked`
/// without a name.
#[test]
fn history_says_who_evacuates_and_in_whose_place_a_machine_comes() {
    let scene = evacuation();
    let record = scene.state().join("record");
    let history = |arguments: &[&str]| {
        let told = program(&[&["history", "--record", path(&record)], arguments].concat());
        assert_eq!(told.status.code(), Some(0), "{}", text(&told.stderr));
        text(&told.stdout)
    };
    let json: Value = serde_json::from_str(&history(&["-o", "json"])).expect("JSON");
    let deeds = json["deeds"].as_array().expect("a list");
    let planned = |action: &'static str| {
        let of_kind = deeds.iter().filter(move |deed| deed["action"] == action);
        of_kind.filter(|deed| deed["deed"] == "planned")
    };
    let gone = planned("remove").find(|deed| deed["host"] == "pve2");
    let gone = gone.expect("it was removed")["machine"].as_str();
    let gone = gone.expect("a name");
    let places = |deed: &&Value| deed["planned"]["reason"]["in_place_of"].is_object();
    let came: Vec<&Value> = planned("create").filter(places).collect();
    let [came] = came[..] else {
        panic!("{deeds:#?}");
    };
    let cause = &came["planned"]["reason"]["in_place_of"][gone];
    assert_eq!(
        (&cause["code"], &cause["host"]),
        (&"host_evacuated".into(), &"pve2".into()),
        "{came:#}"
    );
    let came = came["machine"].as_str().expect("a name");

    let lines = history(&[]);
    let line = |words: &str| {
        let mut all = lines.lines();
        let line = all.find(|line| line.contains(words));
        line.unwrap_or_else(|| panic!("{words}: {lines}"))
    };
    let made = line(&format!("make {came} on "));
    let place = format!(
        "  in place of {gone}, whose host pve2 is evacuated; 1 pod fits nowhere else: default/web-"
    );
    assert!(made.contains(&place), "{made}");
    for words in [
        "  ann asked: evacuate pve2",
        "  bob asked: evacuate --end pve2",
    ] {
        assert!(line(words).trim_end().ends_with(words), "{lines}");
    }
    // Of the node: what it waits for, one after the other, and the machine itself.
    let of_node = history(&["--node", gone]);
    for words in [
        "  the node: given up  ",
        &*format!("; {came} is made in its place now"),
        &*format!("; {came} is on its way in its place"),
        &*format!("make {came} on "),
        &*format!("{came} is a working node"),
        &*format!("remove {gone} on pve2"),
    ] {
        assert!(of_node.contains(words), "{words}: {of_node}");
    }
    let after = of_node.split("the node: given up").last();
    assert!(
        !after.unwrap_or_default().contains("the node: kept"),
        "{of_node}"
    );
}

/// In a cluster with a second host's instance each record has what its own instance did. `history` says from when to when another one led,
/// also where it is asked for something of that time.
#[test]
fn history_says_when_another_host_led() {
    let config = format!("{HASTY}\n[recorder]\nenabled = true\n");
    let scene = simulate(async {
        let scene = Scene::new(3, &config, GuestSpec::default());
        let story = async {
            tokio::time::sleep(Duration::from_mins(2)).await;
            lead_elsewhere(&scene, 5).await;
            hold_lease(&scene, "", 0).await;
            tokio::time::sleep(Duration::from_mins(2)).await;
        };
        tokio::select! {
            biased;
            () = scene.live_on(0, |_| {}) => unreachable!("the daemon ended"),
            () = story => {}
        }
        scene
    });
    let record = scene.state().join("record");
    let all = text(&program(&["history", "--record", path(&record)]).stdout);
    let at = |wanted: &str| {
        let rows: Vec<&str> = all.lines().filter(|line| line.contains(wanted)).collect();
        assert_eq!(rows.len(), 1, "{all}");
        rows[0].trim_start()[..16].to_owned()
    };
    assert_eq!(at("the instance on pve2 leads"), "2026-01-01 08:02");
    assert_eq!(at("this host's instance leads"), "2026-01-01 08:07");
    let of = |part: &[&str]| {
        let arguments = [
            &["history", "--record", path(&record), "--node", "web-1"],
            part,
        ]
        .concat();
        text(&program(&arguments).stdout)
    };
    let led = "until 2026-01-01 08:07";
    let told = of(&["--since", "2026-01-01 08:03", "--until", "2026-01-01 08:04"]);
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        told.contains("the instance on pve2 led") && told.contains(led),
        "{told}"
    );
    let before = of(&["--until", "2026-01-01 08:01"]);
    assert!(!before.contains("led"), "{before}");
}

/// A daemon that is paused for five minutes, stopped, and started again twenty minutes later.
fn paused_and_stopped() -> Scene {
    let config = format!("{HASTY}\n[recorder]\nenabled = true\n");
    simulate(async {
        let scene = Scene::new(3, &config, GuestSpec::default());
        let files = StateFiles::open(scene.state()).expect("it is there");
        let person = async {
            tokio::time::sleep(Duration::from_mins(2)).await;
            let pause = |reason| files.set_paused(reason).expect("written");
            pause(Some("storage move (by ann)"));
            tokio::time::sleep(Duration::from_mins(5)).await;
            pause(None);
            // Too short to be told as a hold.
            tokio::time::sleep(Duration::from_mins(1)).await;
            pause(Some("for a moment (by bob)"));
            tokio::time::sleep(Duration::from_secs(20)).await;
            pause(None);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = scene.live_until(Duration::from_mins(10), 0) => {}
            () = person => {}
        }
        tokio::time::sleep(Duration::from_mins(20)).await;
        tokio::select! {
            biased;
            () = scene.live_on(1, |_| {}) => unreachable!("the daemon ended"),
            () = tokio::time::sleep(Duration::from_mins(2)) => {}
        }
        scene
    })
}

/// Found by it: of a time in which all was on hold, or no daemon ran, `history` said that nothing was done.
#[test]
fn history_says_why_nothing_was_done() {
    let scene = paused_and_stopped();
    let record = scene.state().join("record");
    let history = |arguments: &[&str]| {
        let told = program(&[&["history", "--record", path(&record)], arguments].concat());
        assert_eq!(told.status.code(), Some(0), "{}", text(&told.stderr));
        text(&told.stdout)
    };
    let all = history(&["-o", "wide"]);
    let row = |words: &str| {
        let rows: Vec<&str> = all.lines().filter(|line| line.contains(words)).collect();
        assert_eq!(rows.len(), 1, "{words}: {all}");
        rows[0].trim().to_owned()
    };
    let held = row("  on hold: everything");
    assert!(held.starts_with("2026-01-01 08:02"), "{held}");
    assert!(held.ends_with("paused: storage move (by ann)"), "{held}");
    let ended = row("no longer on hold: everything");
    assert!(ended.starts_with("2026-01-01 08:07"), "{ended}");
    // It is seen with a turn, which comes within half a minute.
    assert!(
        ["  after 4m", "  after 5m"]
            .iter()
            .any(|words| ended.contains(words))
            && ended.ends_with(": paused: storage move (by ann)"),
        "{ended}"
    );
    let unrecorded = row("nothing is recorded for 20m");
    assert!(unrecorded.starts_with("2026-01-01 08:"), "{unrecorded}");
    assert!(
        unrecorded.contains("the daemon was stopped"),
        "{unrecorded}"
    );
    assert!(row("nothing is recorded after this").contains("the daemon was stopped"));
    // Where a time is asked for in which nothing was done, also of one thing.
    let held = "everything was on hold: paused: storage move (by ann).";
    for what in [&[][..], &["--pod", "web-1"], &["--pool", "general"]] {
        let of = |since: &str, until: &str| {
            let told = history(&[what, &["--since", since, "--until", until]].concat());
            assert!(told.starts_with("Nothing was done in that time"), "{told}");
            told
        };
        let told = of("2026-01-01 08:04", "2026-01-01 08:05");
        let sentence = told.lines().find(|line| line.ends_with(held));
        let sentence = sentence.unwrap_or_else(|| panic!("{told}"));
        assert!(
            sentence.starts_with("From 2026-01-01 08:02:")
                && sentence.contains(" until 2026-01-01 08:07:"),
            "{sentence}"
        );
        assert!(!told.contains("nothing is recorded"), "{told}");
        let told = of("2026-01-01 08:15", "2026-01-01 08:16");
        assert!(
            told.contains(" nothing is recorded: the daemon was stopped"),
            "{told}"
        );
        assert!(!told.contains("on hold"), "{told}");
    }
    // Beside rows: what began before the time that is asked for.
    let rows = history(&["--since", "2026-01-01 08:04", "--until", "2026-01-01 08:09"]);
    assert!(rows.lines().any(|line| line.ends_with(held)), "{rows}");
    assert!(rows.contains("somebody asked: resume"), "{rows}");
    let json: Value = serde_json::from_str(&history(&["-o", "json"])).expect("JSON");
    let idle = json["idle"].as_array().expect("a list");
    let kinds: Vec<&str> = idle.iter().filter_map(|one| one["idle"].as_str()).collect();
    assert_eq!(kinds, ["on_hold", "unrecorded", "unrecorded"], "{json:#}");
}

/// Another instance may have led while the rows that are asked for were made.
#[test]
fn history_of_one_thing_says_when_another_host_led() {
    let config = format!("{HASTY}\n[recorder]\nenabled = true\n");
    let scene = simulate(async {
        let scene = Scene::new(3, &config, GuestSpec::default());
        let story = async {
            tokio::time::sleep(Duration::from_mins(6)).await;
            lead_elsewhere(&scene, 4).await;
        };
        let pods = async {
            scene.play(visit()).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = scene.live_on(0, |_| {}) => unreachable!("the daemon ended"),
            () = scene.preside() => unreachable!("it looks for ever"),
            () = pods => unreachable!("it goes on for ever"),
            () = story => {}
        }
        scene
    });
    let record = scene.state().join("record");
    let of = |part: &[&str]| {
        let arguments = [
            &["history", "--record", path(&record), "--pool", "general"],
            part,
        ];
        text(&program(&arguments.concat()).stdout)
    };
    let led =
        "the instance on pve2 led, and what it did is in its own record: type history on pve2.";
    let rows = of(&[]);
    assert!(rows.contains("make general-"), "{rows}");
    let note = rows.lines().find(|line| line.ends_with(led));
    let note = note.unwrap_or_else(|| panic!("{rows}"));
    assert!(note.starts_with("From 2026-01-01 08:06:"), "{note}");
    let before = of(&["--until", "2026-01-01 08:05"]);
    assert!(
        before.contains("make general-") && !before.contains("pve2 led"),
        "{before}"
    );
}

/// Of a pod that is gone: on which node it was, and names like one that the record does not know.
#[test]
fn history_of_a_pod_ends_with_its_node_and_knows_names_like_another() {
    let config = format!("{HASTY}\n[recorder]\nenabled = true\n");
    let scene = day(&config);
    let record = scene.state().join("record");
    let history = |pod: &str| {
        let all = ["history", "-o", "wide", "--record", path(&record)];
        let told = program(&[&all[..], &["--pod", pod]].concat());
        text(&told.stdout)
    };
    let all = text(&program(&["history", "--record", path(&record), "-o", "json"]).stdout);
    let all: Value = serde_json::from_str(&all).expect("JSON");
    let deeds = all["deeds"].as_array().expect("a list").iter();
    let mut made = deeds.filter(|deed| deed["action"] == "create");
    let made = made.next().expect("a machine was made");
    let machine = made["machine"].as_str().expect("a name");
    let pod = made["planned"]["reason"]["pods"][0]
        .as_str()
        .expect("a pod");
    let told = history(pod);
    let rows: Vec<&str> = told
        .lines()
        .filter(|line| line.contains("  the pod: "))
        .collect();
    let bound = rows.iter().find(|row| row.contains("the pod: bound"));
    let bound = bound.unwrap_or_else(|| panic!("{told}"));
    assert!(
        bound.trim_end().ends_with(&format!("  {machine}")),
        "{told}"
    );
    assert!(
        rows.last()
            .is_some_and(|row| row.trim_end().ends_with("the pod: gone")),
        "{told}"
    );
    let unknown = history(&format!("{pod}x"));
    let sentence = format!("The record knows no pod {pod}x; it knows {pod}");
    assert!(
        unknown.lines().any(|line| line.starts_with(&sentence)),
        "{unknown}"
    );
}

/// The Lease is this holder's, renewed this many times.
async fn hold_lease(scene: &Scene, holder: &str, renewed: u64) {
    let at = format!(
        "2026-01-01T09:{:02}:{:02}.000000Z",
        renewed / 6,
        renewed % 6 * 10
    );
    let spec =
        serde_json::json!({"holderIdentity": holder, "leaseDurationSeconds": 30, "renewTime": at});
    let patch = http::Request::patch(LEASE).header("content-type", "application/merge-patch+json");
    let body = serde_json::json!({"spec": spec}).to_string();
    crate::patch(scene, patch, body).await;
}

/// An instance on pve2 leads for so many minutes.
async fn lead_elsewhere(scene: &Scene, minutes: u64) {
    for renewed in 0..minutes * 6 {
        hold_lease(scene, "pve2_0123456789abcdef", renewed).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
}

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/pve-autoscaler";

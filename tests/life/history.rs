//! `history` and `replay` by the program itself, on the record of a simulated day.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use crate::common::{Scene, simulate};
use crate::{HASTY, visit};
use pve_autoscaler::sim::guests::GuestSpec;

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
    assert!(
        text(&other.stdout).contains("plan"),
        "{}",
        text(&other.stdout)
    );
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

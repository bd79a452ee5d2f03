//! Records that earlier versions wrote: every later version reads and replays them.
//!
//! `tests/cli/records/VERSION` is never written anew: it is what a program of that time wrote of a demo. A version that changes what
//! is recorded adds a folder of its own here.

use std::path::{Path, PathBuf};

use pve_autoscaler::record::{Filter, History};

use super::{program, text};

/// A folder below `tests/cli/records`, how many decisions are in it, and what `history` says of it.
const RECORDS: [(&str, usize, &str); 1] = [(
    "0.1.0",
    197,
    "2026-01-01 08:00:41  make general-qmj5n and general-6xmpp on pve2 and pve3",
)];

fn record(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/cli/records")
        .join(version)
}

#[test]
fn each_folder_of_an_old_record_has_its_test() {
    let folders = std::fs::read_dir(record("")).expect("the folder of records");
    let mut folders: Vec<String> = folders
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    folders.sort();
    assert_eq!(folders, RECORDS.map(|(version, ..)| version.to_owned()));
}

#[test]
fn history_reads_what_earlier_versions_recorded() {
    for (version, _, line) in RECORDS {
        let output = program()
            .args(["history", "--record"])
            .arg(record(version))
            .env("TZ", "UTC")
            .output()
            .expect("it runs");
        let told = text(&output.stdout);
        assert!(
            output.status.success(),
            "{version}: {}",
            text(&output.stderr)
        );
        assert!(told.contains(line), "{version}:\n{told}");
        let head = told.lines().next();
        assert_eq!(head, Some(&*format!("Recorded by version {version}")));
        assert!(
            output.stderr.is_empty(),
            "{version}: {}",
            text(&output.stderr)
        );
    }
}

/// A record that another version began and a newer one goes on with. Rows that are not shown have no part in who recorded what is told.
#[test]
fn history_names_the_versions_of_the_rows_that_it_shows() {
    let folder = tempfile::tempdir().expect("a folder");
    let old = History::open(&record("0.1.0")).expect("a record");
    let (all, newer) = (Filter::default(), folder.path().join("newer"));
    std::fs::create_dir(&newer).expect("a folder of its own");
    old.copy(&all, folder.path(), &str::to_owned)
        .expect("copied");
    let by_newer = |text: &str| text.replace(r#""program":"0.1.0""#, r#""program":"0.2.0""#);
    old.copy(&all, &newer, &by_newer).expect("copied");
    // It is the segment after the one of the same time.
    let segment = "00000001-1767254400000.segment";
    let next = "00000002-1767254400000.segment";
    std::fs::rename(newer.join(segment), folder.path().join(next)).expect("renamed");
    let history = |arguments: &[&str]| {
        let output = program()
            .args(["history", "--record"])
            .arg(folder.path())
            .args(arguments)
            .output()
            .expect("it runs");
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    for (arguments, versions, list) in [
        (&["--limit", "1"][..], "version 0.2.0", &["0.2.0"][..]),
        (&[], "versions 0.1.0, 0.2.0", &["0.1.0", "0.2.0"]),
        (&["--pool", "nobodys"], "", &[]),
    ] {
        let told = history(arguments);
        let head = told.lines().next().unwrap_or_default();
        let recorded = head.strip_prefix("Recorded by ").unwrap_or_default();
        assert_eq!(recorded, versions, "{arguments:?}:\n{told}");
        let json = history(&[arguments, &["-o", "json"]].concat());
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["programs"], serde_json::json!(list), "{arguments:?}");
    }
}

/// What a program of that time did not record is left out, and keeps nobody from telling the rest.
#[test]
fn history_in_detail_of_a_record_without_the_choice_of_hosts_has_all_else() {
    let output = program()
        .args(["history", "--detail", "--record"])
        .arg(record("0.1.0"))
        .env("TZ", "UTC")
        .output()
        .expect("it runs");
    let told = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(told.contains("make general-qmj5n on pve2"), "{told}");
    assert!(
        told.contains("  for pods") && !told.contains("why on"),
        "{told}"
    );
}

#[test]
fn replay_decides_anew_what_earlier_versions_recorded() {
    for (version, decisions, _) in RECORDS {
        let output = program()
            .arg("replay")
            .arg(record(version))
            .output()
            .expect("it runs");
        let told = text(&output.stdout);
        // Another version may decide otherwise, and says so; it must be able to read each of them.
        let last = told.lines().last().unwrap_or_default();
        let head = format!("recorded by version {version}, decided anew by version ");
        assert!(told.starts_with(&head), "{version}:\n{told}");
        assert!(
            last.starts_with(&format!("{decisions} recorded decisions: "))
                && last.ends_with(" 0 that this version cannot read"),
            "{version}:\n{told}\n{}",
            text(&output.stderr)
        );
    }
}

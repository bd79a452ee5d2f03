//! Entries written, read again, damaged, copied and set aside.

use serde_json::{Value, json};

use super::*;
use crate::config::settings::{JoinMethod, PoolSettings};
use crate::controller::machines::machines;
use crate::model::cluster::Cluster;
use crate::model::mark::Mark;

fn entry(machine: &str) -> JournalEntry {
    let mark = Mark {
        cluster: "uid/home".into(),
        machine: machine.into(),
        vmid: 9001,
        pool: "small".into(),
        instance_type: "s2".into(),
        template: "debian".into(),
        token: "abcdef".into(),
        created: Time(1_000),
        addresses: BTreeMap::new(),
        cpus: crate::model::cpus::CpuSet::new(),
        unknown: [].into(),
    };
    let target = Target {
        region: "default".into(),
        host: "pve1".into(),
        vmid: 9001,
        machine: machine.into(),
        node: None,
    };
    JournalEntry::new(
        target,
        CreateSpec {
            mark,
            template_vmid: 9000,
            template_host: "pve1".into(),
            template_uuid: None,
            storages: crate::model::chosen_storages::ChosenStorages::default(),
            terms: None,
        },
        Time(1_000),
    )
}

#[test]
fn an_intent_survives_a_crash_and_goes_when_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let (journal, _) = Journal::open(directory.path()).expect("opens");
    journal.put(entry("small-aaaaa")).expect("is written");
    journal
        .update("small-aaaaa", |e| e.step = Step::Clone)
        .expect("is changed");
    let (again, unreadable) = Journal::open(directory.path()).expect("opens again");
    assert!(unreadable.is_empty());
    assert_eq!(again.get("small-aaaaa").map(|e| e.step), Some(Step::Clone));
    again.remove("small-aaaaa").expect("goes");
    again.remove("small-aaaaa").expect("is gone already");
    let (last, _) = Journal::open(directory.path()).expect("opens");
    assert!(last.entries().is_empty());
}

/// A way of joining that only a newer version knows is passed over, and the entry is read all the same.
#[test]
fn how_a_machine_joins_is_kept_as_far_as_it_is_known() {
    let directory = tempfile::tempdir().expect("a directory");
    let (journal, _) = Journal::open(directory.path()).expect("opens");
    let mut pool = PoolSettings::default();
    pool.join.method = JoinMethod::Command {
        script: "join".to_owned(),
        secret_file: Some("/etc/secret".into()),
    };
    pool.join.at_first_boot = true;
    pool.kubelet.insert("maxPods".to_owned(), json!(5));
    let planned = JournalEntry {
        joins: Some(Box::new(PlannedJoin::of(&pool))),
        ..entry("small-aaaaa")
    };
    journal.put(planned.clone()).expect("is written");
    let read = || {
        let (again, unreadable) = Journal::open(directory.path()).expect("opens again");
        assert!(unreadable.is_empty(), "{unreadable:?}");
        again.get("small-aaaaa").expect("it is there")
    };
    assert_eq!(read(), planned);
    let path = directory.path().join("small-aaaaa.json");
    let text = std::fs::read_to_string(&path).expect("it is there");
    let newer = text.replace("\"command\": {", "\"by_post\": {");
    assert_ne!(newer, text);
    std::fs::write(&path, newer).expect("written");
    let known = JournalEntry {
        joins: None,
        ..planned
    };
    assert_eq!(read(), known);
}

#[test]
fn what_cannot_be_read_is_said_and_kept() {
    let directory = tempfile::tempdir().expect("a directory");
    let bad = directory.path().join("x.json");
    std::fs::write(&bad, "{").expect("written");
    let (journal, unreadable) = Journal::open(directory.path()).expect("opens");
    assert!(journal.entries().is_empty());
    assert_eq!(unreadable.len(), 1);
    assert!(bad.exists());
}

#[test]
fn a_directory_in_the_journal_is_no_entry_and_keeps_none_from_being_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let (journal, _) = Journal::open(directory.path()).expect("opens");
    journal.put(entry("small-aaaaa")).expect("is written");
    std::fs::create_dir(directory.path().join("dir.json")).expect("made");
    std::os::unix::fs::symlink("nowhere", directory.path().join("link.json")).expect("made");
    let (again, unreadable) = Journal::open(directory.path()).expect("opens");
    assert_eq!(again.entries().len(), 1);
    let told: Vec<String> = unreadable.iter().map(ToString::to_string).collect();
    for wanted in [
        "dir.json: it is a directory, and an entry is a file",
        "link.json: it is a link to nothing",
    ] {
        assert!(told.iter().any(|told| told.ends_with(wanted)), "{told:?}");
    }
    assert!(unreadable.iter().all(UnreadableEntry::is_still_unreadable));
}

#[test]
fn a_file_that_is_written_anew_is_unreadable_no_more() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("small-aaaaa.json"), "").expect("written");
    std::fs::write(directory.path().join("small-bbbbb.json"), "").expect("written");
    let (journal, unreadable) = Journal::open(directory.path()).expect("opens");
    let still = || {
        let left = unreadable.iter().filter(|file| file.is_still_unreadable());
        left.count()
    };
    assert_eq!(still(), 2);
    journal.put(entry("small-aaaaa")).expect("is written");
    assert_eq!(still(), 1);
    std::fs::remove_file(directory.path().join("small-bbbbb.json")).expect("removed");
    assert_eq!(still(), 0);
}

/// All that a timer of the executor begins at moves with the clock.
#[test]
fn a_set_clock_moves_every_time_of_an_entry() {
    let directory = tempfile::tempdir().expect("a directory");
    let (journal, _) = Journal::open(directory.path()).expect("opens");
    let before = JournalEntry {
        since: Time(10_000),
        unanswered_clone: Some(Time(20_000)),
        power_off_sent: Some(Time(30_000)),
        ..entry("small-aaaaa")
    };
    journal.put(before).expect("is written");
    journal
        .step(Span::seconds(300), Time(400_000))
        .expect("is written");
    let after = journal.get("small-aaaaa").expect("it is there");
    let times = (after.since, after.unanswered_clone, after.power_off_sent);
    let moved = |at: i64| Time(at + 300_000);
    assert_eq!(
        times,
        (moved(10_000), Some(moved(20_000)), Some(moved(30_000)))
    );
}

/// Older programs wrote `birth` for `spec`.
#[test]
fn an_entry_that_an_older_program_wrote_is_read() {
    let directory = edited("small-aaaaa.json", |value| {
        let fields = value.as_object_mut().expect("an object");
        let spec = fields.remove("spec").expect("the key is there");
        fields.insert("birth".to_owned(), spec);
    });
    let (journal, unreadable) = Journal::open(directory.path()).expect("opens");
    assert!(unreadable.is_empty());
    assert_eq!(journal.get("small-aaaaa"), Some(entry("small-aaaaa")));
}

/// The program was downgraded while a machine is half made: it goes on, and what the newer version wrote stays in the file through every
/// write, at its place, also in what is never written anew, as the mark and the terms. Only the machine's end ends it.
#[test]
fn an_entry_that_a_newer_program_wrote_is_read_and_stays_whole() {
    let rack = json!({"row": 3});
    let directory = edited("small-aaaaa.json", |value| {
        value["rack"] = rack.clone();
        value["made_of"] = json!({"template": "0a1b", "weather": "2c3d"});
        for place in ["/target", "/spec", "/spec/mark", "/written"] {
            value.pointer_mut(place).expect("it is there")["rack"] = rack.clone();
        }
    });
    let (journal, unreadable) = Journal::open(directory.path()).expect("opens");
    assert!(unreadable.is_empty(), "{unreadable:?}");
    let found = journal.get("small-aaaaa").expect("it is there");
    assert_eq!(found.made_of.len(), 1, "{:?}", found.made_of);
    assert!(found.spec.mark.unknown.contains_key("rack"));
    journal
        .update("small-aaaaa", |entry| entry.step = Step::Clone)
        .expect("written");
    let (again, _) = Journal::open(directory.path()).expect("opens again");
    again
        .update("small-aaaaa", |entry| entry.step = Step::Configure)
        .expect("written");
    let path = directory.path().join("small-aaaaa.json");
    let document = || -> Value {
        let text = std::fs::read(&path).expect("it is there");
        serde_json::from_slice(&text).expect("JSON")
    };
    let whole = document();
    assert_eq!(whole["step"], "configure");
    for place in [
        "/rack",
        "/target/rack",
        "/spec/rack",
        "/spec/mark/rack",
        "/written/rack",
    ] {
        assert_eq!(whole.pointer(place), Some(&rack), "{place}: {whole}");
    }
    // Without it the newer version would take the machine for one that has drifted.
    assert_eq!(
        whole["made_of"],
        json!({"template": "0a1b", "weather": "2c3d"})
    );
    again.remove("small-aaaaa").expect("goes");
    again.put(entry("small-aaaaa")).expect("is written");
    let anew = document();
    assert!(anew.get("rack").is_none(), "{anew}");
}

/// A directory with an entry's file, of which `edit` changes the text.
fn edited(file: &str, edit: impl Fn(&mut Value)) -> tempfile::TempDir {
    let mut value = serde_json::to_value(entry("small-aaaaa")).expect("it serialises");
    edit(&mut value);
    let directory = tempfile::tempdir().expect("a directory");
    let text = serde_json::to_vec_pretty(&value).expect("it serialises");
    std::fs::write(directory.path().join(file), text).expect("written");
    directory
}

#[test]
fn a_file_whose_parts_contradict_each_other_is_no_entry() {
    let own = "small-aaaaa.json";
    let upid = "UPID:pve1:0000042E:0084E9D6:69562C42:qmclone:9000:root@pam:";
    for (file, key, value, why) in [
        (own, "/upid", json!(upid), None),
        (own, "/spec/template_vmid", json!(0), None),
        (
            "small-aaaaa copy.json",
            "/step",
            json!("intent"),
            Some("whose file is"),
        ),
        (
            own,
            "/target/machine",
            json!("../small-b"),
            Some("whose file is"),
        ),
        (
            own,
            "/spec/mark/machine",
            json!("small-b"),
            Some("its mark of \"small-b\""),
        ),
        (
            own,
            "/target/vmid",
            json!(9002),
            Some("its mark of VM 9001"),
        ),
        (own, "/spec/template_vmid", json!(99), Some("99 is no VMID")),
        (own, "/upid", json!("UPID:../x:"), Some("PVE task id")),
        (own, "/version", json!(2), Some("version 2 is unknown")),
        (own, "/step", json!("fly"), Some("unknown variant `fly`")),
    ] {
        let directory = edited(file, |entry| {
            *entry.pointer_mut(key).expect("the key is there") = value.clone();
        });
        let (journal, unreadable) = Journal::open(directory.path()).expect("opens");
        assert_eq!(journal.entries().is_empty(), why.is_some(), "{key} {value}");
        let told = unreadable
            .iter()
            .any(|file| file.to_string().contains(why.unwrap_or("nothing")));
        assert!(told == why.is_some(), "{key} {value}: {unreadable:?}");
    }
}

proptest::proptest! {
    /// Whatever stands in a file: it is an entry that can be worked with, or it is told.
    #[test]
    fn no_text_of_a_journal_ends_the_program(
        edits in proptest::collection::vec((0usize..40, 0usize..12), 0..5),
        text in "(?s).{0,40}",
        cut in proptest::option::of(0usize..1_000),
    ) {
        let nasty = [
            json!(null), json!(true), json!(0), json!(-1), json!(u64::MAX), json!(i64::MIN), json!(1e300), json!(text),
            json!("-009999-01-02T01:59:59Z"), json!("9999-12-30T22:00:00Z"), json!([]), json!({}),
        ];
        let directory = edited("small-aaaaa.json", |entry| {
            for (at, with) in &edits {
                replace(entry, &mut at.clone(), &nasty[*with]);
            }
        });
        let path = directory.path().join("small-aaaaa.json");
        if let Some(cut) = cut {
            let whole = std::fs::read(&path).expect("read");
            let cut = cut.min(whole.len());
            let all = [&whole[..cut], text.as_bytes(), &whole[cut..]].concat();
            std::fs::write(&path, all).expect("written");
        }
        let (journal, unreadable) = Journal::open(directory.path()).expect("opens");
        proptest::prop_assert_eq!(journal.entries().len() + unreadable.len(), 1);
        for now in [Time(0), Time(1_767_255_280_719)] {
            journal.step(Span::minutes(-90), now).expect("written");
            let entries = journal.entries();
            proptest::prop_assert!(entries.values().all(|entry| entry.since <= now));
            let of = entries.values().next().map_or("", |entry| entry.spec.mark.cluster.as_str());
            let regions = BTreeMap::new();
            let found = machines(of, &regions, &Cluster::default(), &entries, &BTreeMap::new());
            proptest::prop_assert_eq!(found.len(), entries.len());
        }
        let (again, _) = Journal::open(directory.path()).expect("opens");
        let text = |journal: &Journal| serde_json::to_string(&journal.entries()).expect("it is written");
        proptest::prop_assert_eq!(text(&again), text(&journal));
    }
}

/// Replaces the value at a place of a document, counted from its beginning.
fn replace(value: &mut Value, left: &mut usize, with: &Value) -> bool {
    if *left == 0 {
        value.clone_from(with);
        return true;
    }
    *left -= 1;
    match value {
        Value::Array(list) => list.iter_mut().any(|item| replace(item, left, with)),
        Value::Object(map) => map.values_mut().any(|item| replace(item, left, with)),
        _ => false,
    }
}

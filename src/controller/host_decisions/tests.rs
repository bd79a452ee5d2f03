//! What is told of a machine's host, and of which machines.

use serde_json::json;

use super::*;
use crate::controller::answers::TurnQuestion;
use crate::controller::control::ControlAnswer;
use crate::model::action::{Action, Kind, Precondition, Reason, Target, VERSION};
use crate::model::decision::Decision;
use crate::model::host_choice::{HostChoice, HostStanding};
use crate::model::hosts::HostStrategy;
use crate::model::memory::Memory;
use crate::model::reasons::Held;
use crate::model::report::{Hold, PodVerdict, Report, Scope};
use crate::model::snapshot::Snapshot;
use crate::model::time::Span;
use crate::record::{RecordLimits, RecordStart, RecordedTurn, TurnRecorder, WhenFull};

/// A turn at `at`, in milliseconds, that plans the machines `chosen` for pve1 and sees `machines`: each with the time when it was planned,
/// and its step.
fn turn(at: i64, chosen: &[&str], machines: &[(&str, i64, &str)]) -> Turn {
    let choice = HostChoice {
        host: "pve1".into(),
        strategy: HostStrategy::Spread,
        standing: HostStanding::default(),
        other: None,
    };
    let machine = |name: &str, created: i64, step: &str| {
        json!({
            "region": "default", "host": "pve1", "intended": true, "step": [step, Time(created)],
            "mark": {
                "cluster": "uid/test", "machine": name, "vmid": 9000, "pool": "p", "instance_type": "small",
                "template": "debian", "created": Time(created),
            },
        })
    };
    let machines = machines
        .iter()
        .map(|(name, created, step)| ((*name).to_owned(), machine(name, *created, step)));
    let machines: serde_json::Map<_, _> = machines.collect();
    let snapshot = json!({
        "version": 1, "taken": Time(at), "cluster_id": "uid/test", "sources": {}, "leader": true,
        "cluster": {}, "regions": {}, "machines": machines,
    });
    let snapshot: Snapshot =
        serde_json::from_value(snapshot).unwrap_or_else(|error| panic!("a snapshot: {error}"));
    let chosen = chosen.iter().map(|name| ((*name).into(), choice.clone()));
    let report = Report {
        chosen_hosts: chosen.collect(),
        ..Report::default()
    };
    Turn {
        number: 1,
        at: Time(at),
        settings: Arc::new(crate::config::parse("version = 1", "t.toml").expect("settings")),
        snapshot: Arc::new(snapshot),
        decision: Arc::new(Decision {
            plan: Vec::new(),
            report,
            memory: Memory::default(),
            wake: None,
        }),
        waits: crate::controller::executor::ActionWaits::default(),
        made: HostDecisions::default(),
        usual: crate::controller::usual::UsualTimes::default(),
    }
}

#[test]
fn a_machine_on_its_way_up_is_remembered_until_it_works() {
    let made = HostDecisions::default();
    let names = || -> Vec<String> {
        let names = made.under_way().into_keys();
        names.map(|name| name.to_string()).collect()
    };
    made.decided(&turn(1_000, &["a", "b", "c"], &[]));
    // b was not begun, and c is another one of that name.
    let seen = [("a", 1_000, "clone"), ("c", 500, "clone")];
    made.decided(&turn(2_000, &[], &seen));
    assert_eq!(names(), ["a"]);
    let told = made.find("a", Time(1_000)).expect("it is known");
    assert_eq!((told.at, &*told.choice.host), (Time(1_000), "pve1"));
    assert_eq!(told.why, told.choice.to_string());
    assert_eq!(made.find("a", Time(2_000)), None, "it is another one");
    made.decided(&turn(3_000, &["d"], &[("a", 1_000, "initialize")]));
    assert_eq!(names(), ["a", "d"]);
    made.decided(&turn(4_000, &[], &[("a", 1_000, "done")]));
    assert_eq!(names(), [""; 0]);
    assert_eq!(made.find("a", Time(1_000)), None, "there is no record");
}

#[test]
fn of_all_others_the_record_is_read_as_far_as_it_goes_back() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("record");
    let limits = RecordLimits {
        max_bytes: 1 << 20,
        max_age: Span::minutes(60),
    };
    let recorder =
        TurnRecorder::begin(path.clone(), limits, WhenFull::Wait, RecordStart::default())
            .expect("a thread");
    for (number, at, chosen) in [
        (1, 1_000, &["a"][..]),
        // What is decided of a again is no difference to the decision before.
        (2, 2_000, &["a", "b"]),
        (3, 3_000, &[]),
    ] {
        let turn = turn(at, chosen, &[]);
        recorder.decided(RecordedTurn {
            number,
            at: turn.at,
            snapshot: turn.snapshot,
            policy: Arc::default(),
            memory: None,
            decision: turn.decision,
        });
    }
    drop(recorder);
    let made = HostDecisions::of_record(path.clone());
    let found = |machine: &str, created: i64| made.find(machine, Time(created));
    for (machine, created) in [("a", 1_000), ("a", 2_000), ("b", 2_000)] {
        let told = found(machine, created).unwrap_or_else(|| panic!("{machine} at {created}"));
        assert_eq!((told.at, &*told.choice.host), (Time(created), "pve1"));
    }
    for (machine, created) in [("b", 1_000), ("a", 1_500), ("a", 3_000), ("c", 2_000)] {
        assert_eq!(found(machine, created), None, "{machine} at {created}");
    }
    // Whoever goes on asking of one machine has the record read once.
    let before = found("a", 2_000);
    std::fs::remove_dir_all(&path).expect("removed");
    assert_eq!(found("a", 2_000), before);
    assert_eq!(found("b", 2_000), None, "the record is gone");
}

/// A machine that another host's instance made: its own record knows why it is on its host, and this one knows who led.
#[test]
fn of_a_machine_that_another_instance_made_it_is_said_whose_record_has_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("record");
    let limits = RecordLimits {
        max_bytes: 1 << 20,
        max_age: Span::minutes(60),
    };
    let recorder =
        TurnRecorder::begin(path.clone(), limits, WhenFull::Wait, RecordStart::default())
            .expect("a thread");
    for (number, at, holder) in [
        (1, 0, None),
        (2, 100_000, Some("pve2_0123456789abcdef")),
        (3, 400_000, None),
    ] {
        let mut turn = turn(at, &[], &[]);
        let holds = holder.map(|holder: &str| {
            let holder = Some(holder.into());
            Hold::new(Scope::Everything, Held::NotLeader { holder })
        });
        let holds = holds.into_iter().collect();
        Arc::make_mut(&mut turn.decision).report.holds = holds;
        recorder.decided(RecordedTurn {
            number,
            at: turn.at,
            snapshot: turn.snapshot.clone(),
            policy: Arc::default(),
            memory: None,
            decision: turn.decision.clone(),
        });
    }
    drop(recorder);
    let made = HostDecisions::of_record(path);
    let maker = |created| made.maker("small-aaaaa", Time(created));
    assert_eq!(maker(200_000).as_deref(), Some("pve2"));
    for at in [50_000, 500_000] {
        assert_eq!(maker(at), None, "{at}");
    }
}

/// Found by it: `no node or machine NAME is seen`, and not a word of `history`, which knows it.
#[test]
fn of_a_machine_that_is_gone_it_is_said_where_it_is_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("record");
    let limits = RecordLimits {
        max_bytes: 1 << 20,
        max_age: Span::minutes(60),
    };
    let recorder =
        TurnRecorder::begin(path.clone(), limits, WhenFull::Wait, RecordStart::default())
            .expect("a thread");
    let mut turn = turn(1_000, &[], &[]);
    Arc::make_mut(&mut turn.decision).plan = vec![Action {
        version: VERSION,
        kind: Kind::Remove { drain: false },
        target: Target {
            region: "default".into(),
            host: "pve1".into(),
            vmid: 9000,
            machine: "small-aaaaa".into(),
            node: None,
        },
        precondition: Precondition::default(),
        reason: Reason::NoNode,
    }];
    recorder.decided(RecordedTurn {
        number: 1,
        at: turn.at,
        snapshot: turn.snapshot.clone(),
        policy: Arc::default(),
        memory: None,
        decision: turn.decision.clone(),
    });
    drop(recorder);
    let said = |turn: &Turn, name: &str| match TurnQuestion::Node(name.to_owned()).answer(turn) {
        ControlAnswer::Error(why) => why,
        ControlAnswer::Ok(story) => panic!("{story}"),
    };
    let nowhere = |name: &str| format!("no node or machine {name} is seen");
    assert_eq!(said(&turn, "small-aaaaa"), nowhere("small-aaaaa"));
    turn.made = HostDecisions::of_record(path.clone());
    assert_eq!(
        said(&turn, "small-aaaaa"),
        nowhere("small-aaaaa")
            + "; `pve-autoscaler history --node small-aaaaa` has what became of it"
    );
    assert_eq!(said(&turn, "small-aaaab"), nowhere("small-aaaab"));
    std::fs::remove_dir_all(&path).expect("removed");
    assert_eq!(said(&turn, "small-aaaaa"), nowhere("small-aaaaa"));
}

/// Found by it: `ended pods are not kept in view`, and not a word of `history`, which knows the pod.
#[test]
fn of_a_pod_that_is_gone_it_is_said_where_it_is_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("record");
    let limits = RecordLimits {
        max_bytes: 1 << 20,
        max_age: Span::minutes(60),
    };
    let recorder =
        TurnRecorder::begin(path.clone(), limits, WhenFull::Wait, RecordStart::default())
            .expect("a thread");
    let mut turn = turn(1_000, &[], &[]);
    let report = &mut Arc::make_mut(&mut turn.decision).report;
    let verdict = PodVerdict::fits_node("small-aaaaa".into());
    report.pods.insert(ObjectKey::new("shop", "web-1"), verdict);
    recorder.decided(RecordedTurn {
        number: 1,
        at: turn.at,
        snapshot: turn.snapshot.clone(),
        policy: Arc::default(),
        memory: None,
        decision: turn.decision.clone(),
    });
    drop(recorder);
    turn.made = HostDecisions::of_record(path);
    let said = |name: &str| {
        let asked = TurnQuestion::Pod(ObjectKey::new("shop", name));
        match asked.answer(&turn) {
            ControlAnswer::Error(why) => why,
            ControlAnswer::Ok(story) => panic!("{story}"),
        }
    };
    assert_eq!(
        said("web-1"),
        "no pod shop/web-1 is seen; `pve-autoscaler history --pod shop/web-1` has what became of it"
    );
    assert_eq!(
        said("web-2"),
        "no pod shop/web-2 is seen; ended pods are not kept in view"
    );
}

//! What the record is after whatever happened to it.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;

use tempfile::TempDir;

use super::super::change::tests::snapshot;
use super::super::query::{Filter, History};
use super::super::store::segments;
use super::super::{BeginCause, Deed, DeedKind, Most, RecordedMachine, Timeline};
use super::*;
use crate::model::action::{Kind, Precondition, Reason, Target, VERSION};
use crate::model::cluster::ObjectKey;
use crate::model::decision::Decision;
use crate::model::host_choice::{HostChoice, HostStanding};
use crate::model::hosts::HostStrategy;
use crate::model::memory::Memory;
use crate::model::report::{PodVerdict, Report};

const LIMITS: RecordLimits = RecordLimits {
    max_bytes: 1 << 20,
    max_age: Span::minutes(60 * 24),
};

/// A decision whose report has a pod on this node.
fn decided(number: u64, at: i64, why: &str) -> RecordedTurn {
    let mut report = Report::default();
    let verdict = PodVerdict::fits_node(why.into());
    report
        .pods
        .insert(ObjectKey::new("default", "web"), verdict);
    RecordedTurn {
        number,
        at: Time(at),
        snapshot: Arc::new(snapshot(at)),
        policy: Arc::default(),
        memory: None,
        decision: Arc::new(Decision {
            plan: Vec::new(),
            report,
            memory: Memory::default(),
            wake: None,
        }),
    }
}

/// Of a daemon that was started.
fn start() -> RecordStart {
    RecordStart {
        host: "pve1".to_owned(),
        ..RecordStart::default()
    }
}

fn place() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("record");
    (directory, path)
}

/// The numbers of the decisions that can be read, and what is said of damage.
fn read(path: &Path) -> (Vec<u64>, Vec<String>) {
    let mut numbers = Vec::new();
    let history = History::open(path).expect("it is there");
    let damage = history
        .decisions(&Filter::default(), |decision| numbers.push(decision.number))
        .expect("it is read");
    (numbers, damage)
}

fn write(path: &Path, decisions: impl IntoIterator<Item = RecordedTurn>) {
    let recorder =
        TurnRecorder::begin(path.to_owned(), LIMITS, WhenFull::Wait, start()).expect("a thread");
    for decision in decisions {
        recorder.decided(decision);
    }
}

/// Text that does not compress well.
fn noise(seed: u64, length: usize) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'0' + u8::try_from(state % 64).unwrap_or(0))
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn what_says_the_same_is_a_counter_and_what_differs_is_a_record() {
    let (_directory, path) = place();
    let same =
        (2..=1_000).map(|number| decided(number, i64::try_from(number).unwrap_or(0), "young"));
    let recorder =
        TurnRecorder::begin(path.clone(), LIMITS, WhenFull::Wait, start()).expect("a thread");
    recorder.decided(decided(1, 1, "young"));
    for decision in same {
        recorder.decided(decision);
    }
    recorder.decided(decided(1_001, 1_001, "gated"));
    drop(recorder);
    let took = segments(&path).expect("read");
    assert_eq!(
        (took.len(), took[0].bytes),
        (1, 4096),
        "999 decisions that said the same took room"
    );
    assert_eq!(read(&path), (vec![1, 1_001], vec![]));
    let points = History::open(&path)
        .and_then(|history| history.points(&Filter::default(), 100))
        .expect("points");
    let times: Vec<i64> = points.iter().map(|point| point.at.0).collect();
    assert_eq!(times, [1, 1_000, 1_001], "when it changed is known");
    let mode = |path: &Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    assert_eq!(mode(&segments(&path).expect("read")[0].path), 0o600);
}

#[test]
fn a_torn_tail_is_cut_and_writing_goes_on() {
    let (_directory, path) = place();
    write(&path, [decided(1, 1, "a"), decided(2, 2, "b")]);
    let segment = segments(&path).expect("read").remove(0).path;
    let bytes = std::fs::read(&segment).expect("read");
    // Killed while it wrote the second decision: what says that it was stopped came later.
    let stopped = super::super::frame::whole(&bytes[..bytes.len() - 1]).0;
    let torn = usize::try_from(stopped).expect("a length") - 3;
    std::fs::write(&segment, &bytes[..torn]).expect("written");
    assert_eq!(read(&path), (vec![1], vec![]));
    write(&path, [decided(1, 3, "c")]);
    assert_eq!(read(&path), (vec![1, 1], vec![]));
    let cut = std::fs::metadata(&segment).expect("there").len();
    let whole = super::super::frame::whole(&*std::fs::read(&segment).expect("read")).0;
    assert!(cut < torn as u64 && cut == whole, "{cut}, {whole}");
}

#[test]
fn a_segment_that_is_damaged_loses_itself_alone_from_there_on() {
    let (_directory, path) = place();
    for start in 0..3 {
        write(
            &path,
            [decided(start * 10, 1, "a"), decided(start * 10 + 1, 2, "b")],
        );
    }
    let segment = segments(&path).expect("read").remove(1).path;
    let mut bytes = std::fs::read(&segment).expect("read");
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    std::fs::write(&segment, bytes).expect("written");
    let (numbers, damage) = read(&path);
    assert_eq!(numbers, [0, 1, 20, 21]);
    assert_eq!(damage.len(), 1);
    assert!(damage[0].contains("00000002-"), "{damage:?}");
}

#[test]
fn it_never_takes_more_than_it_may_and_the_newest_stays() {
    let (_directory, path) = place();
    let noisy = (1..=400).map(|number| {
        let at = i64::try_from(number).unwrap_or(0);
        decided(number, at, &noise(number, 8_000))
    });
    let recorder =
        TurnRecorder::begin(path.clone(), LIMITS, WhenFull::Wait, start()).expect("a thread");
    let mut most = 0;
    for decision in noisy {
        recorder.decided(decision);
        std::thread::sleep(Duration::from_millis(4));
        let bytes: u64 = segments(&path)
            .unwrap_or_default()
            .iter()
            .map(|one| one.bytes)
            .sum();
        most = most.max(bytes);
    }
    drop(recorder);
    assert!(
        most > LIMITS.max_bytes / 2,
        "{most}: it was never near its bound"
    );
    assert!(most <= LIMITS.max_bytes + 16_384, "{most}");
    let (numbers, damage) = read(&path);
    assert_eq!((numbers.last(), damage.len()), (Some(&400), 0));
    assert!(numbers.len() > 50 && numbers[0] > 100, "{numbers:?}");
}

#[test]
fn a_disk_that_cannot_be_written_is_said_once_and_it_begins_again_by_itself() {
    let (directory, path) = place();
    // Something else has its name: whoever runs this as root meets that too.
    std::fs::write(&path, "not a directory").expect("written");
    let recorder = TurnRecorder::with_retry(
        path.clone(),
        LIMITS,
        (WhenFull::Wait, start()),
        Duration::from_millis(20),
    )
    .expect("a thread");
    for number in 1..=5 {
        recorder.decided(decided(number, 1, &number.to_string()));
        std::thread::sleep(Duration::from_millis(5));
    }
    std::fs::remove_file(&path).expect("removed");
    std::thread::sleep(Duration::from_millis(200));
    recorder.decided(decided(6, 2, "again"));
    drop(recorder);
    assert_eq!(read(&path).0, [6]);
    let deeds = History::open(&path)
        .and_then(|history| history.deeds(&Filter::default(), 10))
        .expect("deeds");
    assert_eq!(deeds[0].kind, DeedKind::Lost { many: 5 });
    drop(directory);
}

#[test]
fn a_clock_that_is_set_back_begins_a_segment() {
    let (_directory, path) = place();
    write(
        &path,
        [
            decided(1, 5_000, "a"),
            decided(2, 1_000, "a"),
            decided(3, 6_000, "b"),
        ],
    );
    let began: Vec<i64> = segments(&path)
        .expect("read")
        .iter()
        .map(|one| one.began.0)
        .collect();
    assert_eq!(began, [5_000, 1_000]);
    assert_eq!(read(&path), (vec![1, 2, 3], vec![]));
    let since = Filter {
        since: Some(Time(4_000)),
        ..Filter::default()
    };
    let mut numbers = Vec::new();
    let history = History::open(&path).expect("it is there");
    history
        .decisions(&since, |decision| numbers.push(decision.number))
        .expect("it is read");
    assert_eq!(numbers, [1, 3]);
}

#[test]
fn steps_and_ends_are_told_with_their_machine() {
    let (_directory, path) = place();
    let recorder =
        TurnRecorder::begin(path.clone(), LIMITS, WhenFull::Wait, start()).expect("a thread");
    let teller = recorder.teller();
    recorder.decided(decided(1, 1, "a"));
    teller.step("general-a", Step::Clone, Span::seconds(40), true, Time(2));
    drop(recorder);
    teller.step("general-a", Step::Start, Span::seconds(1), true, Time(3));
    let history = History::open(&path).expect("it is there");
    let machines: Vec<RecordedMachine> = history.machines(&Filter::default()).expect("read");
    assert_eq!(machines.len(), 1);
    let phases: Vec<(&str, i64)> = machines[0]
        .phases
        .iter()
        .map(|phase| (&*phase.step, phase.took.0))
        .collect();
    assert_eq!(phases, [("clone", 40_000)]);
}

/// A decision that acts on these machines and says why each came to pve1.
fn planned(number: u64, at: i64, machines: &[&str]) -> RecordedTurn {
    let choice = HostChoice {
        host: "pve1".into(),
        strategy: HostStrategy::Pack,
        standing: HostStanding::default(),
        other: None,
    };
    let action = |machine: &str| Action {
        version: VERSION,
        kind: Kind::Continue,
        target: Target {
            region: "default".into(),
            host: "pve1".into(),
            vmid: 9000,
            machine: machine.into(),
            node: None,
        },
        precondition: Precondition::default(),
        reason: Reason::PendingPods {
            pods: Vec::new(),
            in_place_of: BTreeMap::new(),
        },
    };
    let mut turn = decided(number, at, "young");
    let decision = Arc::make_mut(&mut turn.decision);
    decision.plan = machines.iter().map(|machine| action(machine)).collect();
    let chosen = machines
        .iter()
        .map(|machine| ((*machine).into(), choice.clone()));
    decision.report.chosen_hosts = chosen.collect();
    turn
}

/// Also where the decision before said the same, which the record's differences do not have again.
#[test]
fn why_a_host_was_chosen_stands_with_each_plan() {
    let (_directory, path) = place();
    let turns = [
        planned(1, 1, &["a"]),
        planned(2, 2, &["a", "b"]),
        decided(3, 3, "young"),
    ];
    write(&path, turns);
    let history = History::open(&path).expect("it is there");
    let chosen = |deeds: Vec<Deed>| -> Vec<(Arc<str>, Option<String>)> {
        let chosen = deeds.into_iter().filter_map(|deed| match deed.kind {
            DeedKind::Planned {
                machine,
                chosen_host,
                ..
            } => Some((machine, chosen_host.map(|chosen| chosen.to_string()))),
            _ => None,
        });
        chosen.collect()
    };
    let deeds = history.deeds(&Filter::default(), 10).expect("read");
    let told = chosen(deeds);
    let names: Vec<&str> = told.iter().map(|(machine, _)| &**machine).collect();
    assert_eq!(names, ["a", "a", "b"]);
    for (machine, why) in &told {
        let why = why.as_deref().unwrap_or_default();
        assert!(why.starts_with("pack: no guest, "), "{machine}: {why}");
    }
    // The page's picture has no use for it.
    let most = Most {
        points: 9,
        deeds: 9,
        machines: 9,
    };
    let timeline = history.timeline(&Filter::default(), most, || true);
    let left: Vec<_> = chosen(timeline.expect("read").deeds);
    assert_eq!(left.len(), 3);
    assert!(left.iter().all(|(_, why)| why.is_none()), "{left:?}");
}

#[test]
fn a_copy_is_gone_over_and_is_a_record() {
    let (directory, path) = place();
    write(
        &path,
        [
            decided(1, 1, "hunter22 says"),
            decided(2, 2, "hunter22 again"),
        ],
    );
    let to = directory.path().join("copy");
    std::fs::create_dir(&to).expect("made");
    let history = History::open(&path).expect("it is there");
    let clean = |text: &str| text.replace("hunter22", "<redacted>");
    history
        .copy(&Filter::default(), &to, &clean)
        .expect("copied");
    assert_eq!(read(&to), (vec![1, 2], vec![]));
    let mut reasons = Vec::new();
    let copied = History::open(&to).expect("it is there");
    copied
        .decisions(&Filter::default(), |decision| {
            let why = decision
                .state
                .pointer("/decision/report/pods/default~1web/node");
            reasons.extend(why.and_then(|why| why.as_str()).map(str::to_owned));
        })
        .expect("read");
    assert_eq!(reasons, ["<redacted> says", "<redacted> again"]);
}

/// Three runs of the daemon, each with a segment of five decisions and a machine.
fn three_runs(path: &Path) {
    for run in 1..=3 {
        let recorder = TurnRecorder::begin(path.to_owned(), LIMITS, WhenFull::Wait, start())
            .expect("a thread");
        for number in 1..=5 {
            let at = run * 1_000 + number;
            let number = u64::try_from(number).unwrap_or(0);
            recorder.decided(decided(number, at, &at.to_string()));
        }
        let name = format!("general-{run}");
        let at = Time(run * 1_000 + 6);
        recorder
            .teller()
            .step(&name, Step::Clone, Span::seconds(run), true, at);
    }
}

/// A page that asks for fourteen days gets what was newest, whole, when reading takes too long.
#[test]
fn a_timeline_that_is_given_up_has_the_newest_part_and_no_gap() {
    let (_directory, path) = place();
    three_runs(&path);
    let history = History::open(&path).expect("it is there");
    let most = Most {
        points: 100,
        deeds: 100,
        machines: 100,
    };
    let told = |records: usize| {
        let mut left = records;
        let go_on = || {
            left = left.saturating_sub(1);
            left > 0
        };
        history
            .timeline(&Filter::default(), most, go_on)
            .expect("read")
    };
    let times =
        |told: &Timeline| -> Vec<i64> { told.points.iter().map(|point| point.at.0).collect() };
    let runs = |from: i64| -> Vec<i64> {
        (from..=3)
            .flat_map(|run| (1..=5).map(move |number| run * 1_000 + number))
            .collect()
    };
    let whole = told(1_000);
    assert!(!whole.cut && whole.damage.is_empty(), "{whole:?}");
    assert_eq!(times(&whole), runs(1));
    let names: Vec<&str> = whole.steps.keys().map(|name| &**name).collect();
    assert_eq!(names, ["general-1", "general-2", "general-3"]);
    let begun = whole
        .deeds
        .iter()
        .filter(|deed| matches!(deed.kind, DeedKind::Begun { .. }));
    let begun: Vec<i64> = begun.map(|deed| deed.at.0).collect();
    assert_eq!(begun, [1_001, 2_001, 3_001]);
    // Somewhere within the second newest segment.
    let part = told(10);
    assert!(part.cut, "{part:?}");
    assert_eq!(times(&part), runs(3));
    let nothing = told(3);
    assert!(nothing.cut && nothing.points.is_empty(), "{nothing:?}");
}

#[test]
fn a_timeline_keeps_to_its_limits_and_the_newest() {
    let (_directory, path) = place();
    three_runs(&path);
    let history = History::open(&path).expect("it is there");
    let most = Most {
        points: 4,
        deeds: 2,
        machines: 1,
    };
    let told = history
        .timeline(&Filter::default(), most, || true)
        .expect("read");
    assert!(told.points.len() <= 4, "{told:?}");
    assert!(told.points.is_sorted_by_key(|point| point.at), "{told:?}");
    assert!(told.more);
    let deeds: Vec<i64> = told.deeds.iter().map(|deed| deed.at.0).collect();
    assert_eq!(deeds, [2_001, 3_001]);
    let names: Vec<&str> = told.steps.keys().map(|name| &**name).collect();
    assert_eq!(names, ["general-3"]);
    let late = Filter {
        since: Some(Time(3_003)),
        ..Filter::default()
    };
    let told = history.timeline(&late, most, || true).expect("read");
    assert_eq!(told.points.first().map(|point| point.at.0), Some(3_003));
}

/// After a start of the daemon no pod is in a report until pods were read: that says nothing of a pod.
#[test]
fn a_pod_is_not_taken_for_gone_by_what_was_not_read_yet() {
    let (_directory, path) = place();
    let without = |number: u64, at: i64, unread: &[&str]| {
        let mut turn = decided(number, at, "n1");
        let mut decision = (*turn.decision).clone();
        decision.report.pods.clear();
        decision.report.unread = unread.iter().map(|name| Arc::from(*name)).collect();
        turn.decision = Arc::new(decision);
        turn
    };
    write(&path, [decided(1, 1_000, "n1")]);
    let starts = [
        without(1, 2_000, &["kube/pods"]),
        without(2, 2_100, &["kube/pods", "kube/nodes"]),
        decided(3, 2_200, "n1"),
    ];
    write(&path, starts);
    let filter = Filter {
        pod: Some(ObjectKey::new("default", "web")),
        ..Filter::default()
    };
    let told = || -> Vec<Option<String>> {
        let history = History::open(&path).expect("it is there");
        let deeds = history.deeds(&filter, 100).expect("it is read").into_iter();
        let verdicts = deeds.filter_map(|deed| match deed.kind {
            DeedKind::Pod { verdict, .. } => Some(verdict),
            _ => None,
        });
        verdicts.collect()
    };
    let fits = Some("fits_node".to_owned());
    assert_eq!(told(), std::slice::from_ref(&fits));
    // It went while nobody looked: that is told once it is known.
    write(
        &path,
        [
            without(1, 3_000, &["kube/pods"]),
            without(2, 3_100, &["pve/default"]),
        ],
    );
    assert_eq!(told(), [fits, None]);
}

/// How each record in a directory begins, in words.
fn beginnings(path: &Path) -> Vec<(String, String)> {
    let history = History::open(path).expect("it is there");
    let deeds = history.deeds(&Filter::default(), 100).expect("it is read");
    let begun = deeds
        .iter()
        .filter(|deed| matches!(deed.kind, DeedKind::Begun { .. }));
    let clock = |at: Time| at.to_string();
    begun
        .map(|deed| super::super::words::deed(deed, None, clock))
        .collect()
}

/// A start, a first configuration, a reload with what was changed, the next segment, another host, and another program.
#[test]
fn how_a_record_begins_is_told() {
    let (_directory, path) = place();
    let run = |start: RecordStart, turns: &[RecordedTurn]| {
        let recorder = TurnRecorder::begin(path.clone(), LIMITS, WhenFull::Wait, start);
        for turn in turns {
            recorder.as_ref().expect("a thread").decided(turn.clone());
        }
    };
    run(start(), &[decided(1, 1_000, "a")]);
    let keys: Vec<String> = (0..8).map(|key| format!("pool.p{key}.max")).collect();
    let reload = |changed: &[String]| RecordStart {
        cause: BeginCause::Reloaded,
        changed: changed.to_vec(),
        ..start()
    };
    let configured = RecordStart {
        cause: BeginCause::Configured,
        ..start()
    };
    run(configured, &[decided(1, 1_500, "a")]);
    run(reload(&keys), &[decided(1, 2_000, "a")]);
    run(reload(&keys[..2]), &[decided(1, 3_000, "a")]);
    let later = 3_000 + SEGMENT_AGE.0;
    run(
        reload(&[]),
        &[decided(1, 4_000, "a"), decided(2, later + 4_000, "b")],
    );
    let moved = RecordStart {
        host: "pve2".to_owned(),
        ..RecordStart::default()
    };
    run(moved.clone(), &[decided(1, later + 5_000, "a")]);
    let again = RecordStart {
        cause: BeginCause::Again,
        ..moved
    };
    run(again, &[decided(1, later + 6_000, "a")]);
    let told = beginnings(&path);
    let told: Vec<(&str, &str)> = told.iter().map(|(what, why)| (&**what, &**why)).collect();
    let starts = format!("the daemon starts, version {PROGRAM}");
    let moves = format!("the daemon starts on pve2, version {PROGRAM}");
    let named = keys[..6].join(", ");
    let reloaded = "the configuration is read anew";
    assert_eq!(
        told,
        [
            (&*starts, ""),
            (
                "the daemon has a configuration now",
                "it ran without one before"
            ),
            (reloaded, &*format!("changed: {named} and 2 more")),
            (reloaded, "changed: pool.p0.max, pool.p1.max"),
            (reloaded, "nothing in the file was changed"),
            ("the record goes on in a new segment", ""),
            (&*moves, "before on pve1"),
            (
                "the daemon's loop starts anew",
                "it ended with an error, which the log has"
            ),
        ]
    );
}

/// A record of a program that did not tell its host, nor why it began; the next program says which that was.
#[test]
fn an_upgrade_is_told_after_a_record_of_an_older_program() {
    let (_directory, path) = place();
    std::fs::create_dir(&path).expect("made");
    let mut segment = SegmentWriter::begin(Vec::new()).expect("begun");
    let old = serde_json::json!({
        "format": 1, "at": Time(1_000), "what": "whole", "program": "0.0.9", "number": 1,
    });
    segment.add(&old).expect("added");
    std::fs::write(path.join("00000001-1000.segment"), segment.file()).expect("written");
    write(&path, [decided(1, 2_000, "a")]);
    assert_eq!(
        beginnings(&path),
        [
            ("a record begins, version 0.0.9".to_owned(), String::new()),
            (
                format!("the daemon starts, version {PROGRAM}"),
                "before it was version 0.0.9".to_owned()
            ),
        ]
    );
}

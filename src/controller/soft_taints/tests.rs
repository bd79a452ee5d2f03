//! Which nodes get the taint of deletion candidates, and which lose it.

use serde_json::{Value, json};

use super::*;
use crate::model::decision::Decision;
use crate::model::memory::Memory;
use crate::model::reasons::Held;
use crate::model::region::Busy;
use crate::model::report::{Hold, Report};
use crate::model::time::Time;

/// A turn of a leader with five nodes, named by what they are. `tainted` has the taint and stays; `foreign` has the taint and counts as
/// unneeded, and is no machine of ours.
fn turn(file: &str) -> Turn {
    let node = |taints: Value| {
        json!({
            "uid": "uid", "created": "2026-01-01T00:00:00Z", "allocatable": {}, "capacity": {},
            "taints": taints, "ready": {"status": "True"},
        })
    };
    let taint = json!([{"key": CANDIDATE_TAINT, "value": "", "effect": "PreferNoSchedule"}]);
    let machine = |node: &str, host: &str| {
        json!({
            "region": "default", "host": host, "intended": true, "node": node,
            "mark": {
                "cluster": "uid/test", "machine": node, "vmid": 9000, "pool": "p", "instance_type": "small",
                "template": "debian", "created": "2026-01-01T00:00:00Z",
            },
        })
    };
    let snapshot = json!({
        "version": 1, "taken": "2026-01-02T00:00:00Z", "cluster_id": "uid/test", "sources": {}, "leader": true,
        "cluster": {"nodes": {
            "evacuated": node(json!([])), "foreign": node(taint.clone()), "tainted": node(taint),
            "unneeded": node(json!([])), "used": node(json!([])),
        }},
        "regions": {"default": {"hosts": {"pve2": {"evacuated": "2026-01-02T00:00:00Z"}}}},
        "machines": {
            "evacuated": machine("evacuated", "pve2"), "tainted": machine("tainted", "pve1"),
            "unneeded": machine("unneeded", "pve1"), "used": machine("used", "pve1"),
        },
    });
    let snapshot: Snapshot =
        serde_json::from_value(snapshot).unwrap_or_else(|error| panic!("a snapshot: {error}"));
    let unneeded = ["foreign", "unneeded"].map(|name| (name.into(), Time(0)));
    let memory = Memory {
        unneeded_since: unneeded.into(),
        ..Memory::default()
    };
    let decision = Decision {
        plan: Vec::new(),
        report: Report::default(),
        memory,
        wake: None,
    };
    Turn {
        number: 1,
        at: Time(0),
        settings: Arc::new(crate::config::parse(file, "file").unwrap_or_else(|e| panic!("{e}"))),
        snapshot: Arc::new(snapshot),
        decision: Arc::new(decision),
        waits: crate::controller::executor::ActionWaits::default(),
        made: crate::controller::host_decisions::HostDecisions::default(),
        usual: crate::controller::usual::UsualTimes::default(),
    }
}

/// The nodes that get the taint, as `+NODE`, and those that lose it, as `-NODE`.
fn told(turn: &Turn) -> Vec<String> {
    let calls = calls(turn);
    let calls = calls.iter();
    let told =
        calls.map(|call| format!("{}{}", if call.wanted { '+' } else { '-' }, call.node.name));
    told.collect()
}

const FILE: &str = "version = 1\n";

#[test]
fn nodes_of_ours_that_may_go_soon_get_it_and_others_lose_it() {
    assert_eq!(told(&turn(FILE)), ["+evacuated", "-tainted", "+unneeded"]);
    let off = format!("{FILE}[scale_down]\nmax_bulk_soft_taint_count = 0\n");
    assert_eq!(told(&turn(&off)), ["-tainted"]);
}

#[test]
fn a_pool_keeps_as_many_without_it_as_its_min() {
    let pool = "[proxmox]\nvmids = \"9000-9999\"\n[instance_type.small]\ncores = 2\nmemory = \"2GiB\"\n[template.debian]\nvmid = 100\n[pool.p]\ntemplate = \"debian\"\n\
        instance_types = [\"small\"]\nmax = 9\n";
    let with_min = |min: u32| turn(&format!("{FILE}{pool}min = {min}\n"));
    // Three stay in service once the host is empty: `tainted`, `unneeded` and `used`.
    assert_eq!(told(&with_min(2)), ["+evacuated", "-tainted", "+unneeded"]);
    assert_eq!(told(&with_min(3)), ["+evacuated", "-tainted"]);
    // One that is not Ready is none that the pool keeps.
    let mut unready = with_min(2);
    let nodes = &mut Arc::make_mut(&mut unready.snapshot).cluster.nodes;
    nodes.get_mut("used").expect("there").ready.status = ReadyStatus::Unknown;
    assert_eq!(told(&unready), ["+evacuated", "-tainted"]);
    let mut two = with_min(2);
    let unneeded = &mut Arc::make_mut(&mut two.decision).memory.unneeded_since;
    unneeded.insert("tainted".into(), Time(1));
    assert_eq!(told(&two), ["+evacuated", "-tainted", "+unneeded"]);
    let unneeded = &mut Arc::make_mut(&mut two.decision).memory.unneeded_since;
    unneeded.insert("unneeded".into(), Time(2));
    assert_eq!(told(&two), ["+evacuated"]);
}

#[test]
fn whoever_does_not_lead_or_does_not_see_writes_nothing() {
    let mut follows = turn(FILE);
    Arc::make_mut(&mut follows.snapshot).leader = false;
    assert_eq!(told(&follows), [""; 0]);
    let mut paused = turn(FILE);
    let hold = Hold::new(
        Scope::Everything,
        Held::Paused {
            reason: "lunch".into(),
        },
    );
    Arc::make_mut(&mut paused.decision).report.holds.push(hold);
    assert_eq!(told(&paused), [""; 0]);
}

#[test]
fn a_node_that_comes_or_goes_is_left_alone() {
    let others = ["+evacuated", "-tainted"];
    for (step, busy) in [(Step::Initialize, None), (Step::Drain, Some(Busy::Down))] {
        let mut turn = turn(FILE);
        let machines = &mut Arc::make_mut(&mut turn.snapshot).machines;
        let machine = machines.get_mut("unneeded").expect("there");
        (machine.step, machine.busy) = (Some((step, Time(0))), busy);
        assert_eq!(told(&turn), others, "{step:?}");
        // A removal that was given up is over.
        let machines = &mut Arc::make_mut(&mut turn.snapshot).machines;
        machines.get_mut("unneeded").expect("there").busy = None;
        let given_up = told(&turn).len() > others.len();
        assert_eq!(given_up, step == Step::Drain);
    }
    let mut turn = turn(FILE);
    let nodes = &mut Arc::make_mut(&mut turn.snapshot).cluster.nodes;
    let leaving = crate::model::scheduling::Taint::no_schedule(LEAVING_TAINT, "0");
    let tainted = nodes.get_mut("tainted").expect("there");
    tainted.taints.push(leaving);
    assert_eq!(told(&turn), ["+evacuated", "+unneeded"]);
}

#[test]
fn nodes_whose_calls_are_refused_hold_up_no_others() {
    let call = |name: &str| SoftTaintCall {
        node: NodeRef {
            name: name.into(),
            uid: format!("uid-{name}").into(),
        },
        wanted: true,
    };
    let all = || ["a", "b", "c", "d", "e"].map(call).to_vec();
    let mut state = SoftTaintState::default();
    let names = |calls: Vec<SoftTaintCall>| -> Vec<String> {
        let names = calls.iter().map(|call| call.node.name.to_string());
        names.collect()
    };
    assert_eq!(names(state.next(all(), 2)), ["a", "b"]);
    assert_eq!(names(state.next(all(), 2)), [""; 0], "two are under way");
    // Both are refused.
    state.refused = std::mem::take(&mut state.under_way);
    assert_eq!(names(state.next(all(), 2)), ["c", "d"]);
    state.under_way.clear();
    assert_eq!(names(state.next(all(), 9)), ["c", "d", "e", "a", "b"]);
    // Those of nodes that are gone, or are as they should be, are forgotten.
    state.under_way.clear();
    assert_eq!(names(state.next(vec![call("b"), call("c")], 9)), ["c", "b"]);
    assert_eq!(state.refused.len(), 1);
}

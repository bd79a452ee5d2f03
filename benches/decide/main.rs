//! Deciding: how long a decision takes, what it allocates and how many nodes it makes, over sizes.
//!
//! W1 is Karpenter's generator (seed 42), from fresh state; W2 cluster-autoscaler's
//! `BenchmarkBinpackingEstimate`; W3 the shapes of its `BenchmarkFilterOutSchedulable`; W4 a large
//! cluster of ours, a decision alone and a turn of the daemon's loop after one pod changed, which copies
//! the view first, with what is resident then; W5 the same autoscaler's scale-down of 2,000 nodes;
//! W1u, W4u and W5u are W1, W4 and W5 with a label of each pod's own;
//! `claims` are pods of StatefulSets, of which no two are equal; `sizing` pods of many sizes; `tenant` a tenant's pods
//! with hundreds of affinity terms each, among others' that wait.

mod claims;
#[path = "../common/mod.rs"]
mod common;
mod sizing;
mod tenant;
mod worlds;

use std::hint::black_box;
use std::process::{Command, ExitCode};

use common::{Measured, Report, Row, measure, process};
use pve_autoscaler::model::decision::Decision;
use serde_json::Value;
use worlds::{Outcome, World};

/// Karpenter reports so many nodes for 20,000 pods (kubernetes-sigs/karpenter#1938).
const KARPENTER_NODES: u64 = 8_031;

/// What W4 may have resident, in bytes.
const RESIDENT: u64 = 250_000_000;
/// … and when each pod has a label of its own.
const RESIDENT_NUMBERED: u64 = 150_000_000;
/// The arguments of the process that says what is resident in a W4 of as many nodes as the next one says: with equal
/// pods …
const HOLD: &str = "--hold";
/// … and with pods that each have a label of their own.
const HOLD_NUMBERED: &str = "--hold-numbered";

fn main() -> ExitCode {
    let hold_is = |argument: &String| argument == HOLD || argument == HOLD_NUMBERED;
    let mut arguments = std::env::args().skip_while(|argument| !hold_is(argument));
    if let (Some(what), Some(nodes)) = (arguments.next(), arguments.next()) {
        let nodes = nodes.parse().expect("a number of nodes");
        hold(nodes, what == HOLD_NUMBERED);
        return ExitCode::SUCCESS;
    }
    let mut report = Report::new("A decision: seconds, allocations, nodes and their lower bound");
    for pods in [1_000, 5_000, 10_000, 20_000] {
        let row = decided("W1", pods, &worlds::diverse(pods));
        let row = row.exactly("unplaced", 0);
        report.add(match pods {
            20_000 => row
                .at_most("seconds", 0.2)
                .at_most("nodes", KARPENTER_NODES),
            _ => row,
        });
    }
    let row = decided("W1u", 20_000, &worlds::diverse(20_000).numbered());
    let row = row.exactly("unplaced", 0).at_most("seconds", 0.25);
    report.add(row.at_most("nodes", KARPENTER_NODES));
    for pods in [1_000, 10_000, 50_000] {
        let row = decided("W2", pods, &worlds::binpacking(pods, pods / 50));
        let row = row.exactly("unplaced", 0);
        report.add(match pods {
            50_000 => row.at_most("seconds", 0.05).exactly("nodes", 2_595),
            _ => row,
        });
    }
    for (nodes, pods, shapes) in [
        (1_000, 3_000, 1),
        (1_000, 12_000, 1),
        (1_000, 12_000, 100),
        (200, 60_000, 1),
    ] {
        let size = format!("{nodes} nodes, {pods} pods of {shapes} shapes");
        let row = decided("W3", size, &worlds::no_compatible_pool(nodes, pods, shapes));
        report.add(row.exactly("nodes", 0).at_most("seconds", 0.05));
    }
    for nodes in [500, 1_000, 5_000] {
        add_large(&mut report, nodes, false);
    }
    add_large(&mut report, 5_000, true);
    for nodes in [500, 1_000, 2_000] {
        let row = scaled_down("W5", nodes, &worlds::idle(nodes));
        report.add(match nodes {
            2_000 => row.at_most("seconds", 0.2),
            _ => row,
        });
    }
    report.add(scaled_down("W5u", 2_000, &worlds::idle(2_000).numbered()));
    add_unequal(&mut report);
    add_tenant(&mut report);
    report.finish()
}

fn scaled_down(workload: &str, nodes: usize, world: &World) -> Row {
    let measured = measure(|| world.decide());
    Row::new(workload, nodes)
        .measured(&measured)
        .field("removed", worlds::removed(&measured.value))
        .exactly("removed", (nodes * 3 / 5) as u64)
}

/// A large cluster at work; `numbered`: each pod with a label of its own.
fn add_large(report: &mut Report, nodes: usize, numbered: bool) {
    let mut world = large(nodes, numbered);
    let name = if numbered { "W4u" } else { "W4" };
    let row = decided(&format!("{name} cold"), nodes, &world);
    report.add(match nodes {
        5_000 => row.at_most("seconds", if numbered { 0.4 } else { 1.0 }),
        _ => row,
    });
    world.one_more();
    let measured = measure(|| world.turn());
    let row = row_of(&format!("{name} one pod later"), nodes, &world, &measured);
    let row = row.field("resident_bytes", resident(nodes, numbered));
    report.add(match nodes {
        5_000 => row
            .at_most("seconds", if numbered { 0.4 } else { 0.1 })
            .at_most(
                "resident_bytes",
                if numbered {
                    RESIDENT_NUMBERED
                } else {
                    RESIDENT
                },
            ),
        _ => row,
    });
}

fn large(nodes: usize, numbered: bool) -> World {
    let world = worlds::large(nodes);
    if numbered { world.numbered() } else { world }
}

/// A tenant's pods cost others nothing, whether they are looked at or left out.
fn add_tenant(report: &mut Report) {
    for (pods, terms) in [(150, 30), (150, 300), (500, 1_000)] {
        let world = tenant::hostile(pods, terms);
        let measured = measure(|| world.decide());
        let without = tenant::others_without(&measured.value);
        let row = row_of(
            "tenant",
            format!("{pods} pods of {terms} terms"),
            &world,
            &measured,
        )
        .field("others_unplaced", without);
        report.add(row.exactly("others_unplaced", 0).at_most("seconds", 1.0));
    }
}

/// Pods with claims, of which no two are equal; and pods of many sizes: without limits; with so few machines that some have no place; and the same once more with the
/// memory of that decision, as every turn has it until something changes.
fn add_unequal(report: &mut Report) {
    for pods in [1_000, 3_000] {
        let row = decided("claims", pods, &claims::stateful(pods));
        report.add(row.exactly("unplaced", 0));
    }
    for pods in [30, 60, 200, 1_000] {
        report.add(decided("sizing", pods, &sizing::unequal(pods, None)));
        let most = u32::try_from(pods / 10).unwrap_or(u32::MAX);
        let mut world = sizing::unequal(pods, Some(most));
        report.add(decided("sizing, pods left out", pods, &world));
        world.memory = world.decide().memory;
        report.add(decided("sizing, once more", pods, &world));
    }
    for (size, world) in [
        ("60 pods, 11 apart, 10 machines", sizing::apart()),
        ("43 pods over zones, 5 machines", sizing::over_zones()),
    ] {
        let row = decided("sizing, one machine too few", size, &world);
        report.add(row.at_most("seconds", 0.5));
    }
}

fn decided(workload: &str, size: impl Into<Value>, world: &World) -> Row {
    row_of(workload, size, world, &measure(|| world.decide()))
}

fn row_of(
    workload: &str,
    size: impl Into<Value>,
    world: &World,
    measured: &Measured<Decision>,
) -> Row {
    let Outcome {
        nodes,
        placed,
        left,
    } = worlds::outcome(&measured.value);
    let growth = measured.value.report.scale_up.unwrap_or_default();
    let least = world.lower_bound(&measured.value);
    Row::new(workload, size)
        .measured(measured)
        .field("nodes", nodes)
        .field("lower_bound", least.nodes)
        .field("price", growth.price)
        .field("lower_bound_price", least.price)
        .field("placed", placed)
        .field("unplaced", left)
}

/// What a process has resident that holds W4 as the daemon does ([`hold`]): asked of one that has done
/// nothing else.
fn resident(nodes: usize, numbered: bool) -> u64 {
    let program = std::env::current_exe().expect("a bench has a path");
    let output = Command::new(program)
        .args([
            if numbered { HOLD_NUMBERED } else { HOLD },
            &nodes.to_string(),
        ])
        .output()
        .expect("a bench can be started again");
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().expect("a number of bytes")
}

/// Holds what the daemon holds: the watches' view, the last turn's snapshot and decision, and this turn's.
fn hold(nodes: usize, numbered: bool) {
    let mut world = large(nodes, numbered);
    let last = (world.snapshot.clone(), world.decide());
    world.one_more();
    let this = (world.snapshot.clone(), world.decide());
    let memory = process::memory(std::process::id()).expect("a process can see itself");
    black_box((world, last, this));
    println!("{}", memory.resident);
}

//! Deciding: how long a decision takes, what it allocates and how many nodes it makes, over sizes.
//!
//! W1 is Karpenter's generator (seed 42), from fresh state; W2 cluster-autoscaler's
//! `BenchmarkBinpackingEstimate`; W3 the shapes of its `BenchmarkFilterOutSchedulable`; W4 a large
//! cluster of ours, cold and after one pod changed; W5 the same autoscaler's scale-down of 2,000 nodes.

#[path = "../common/mod.rs"]
mod common;
mod worlds;

use common::{Measured, Report, Row, measure};
use pve_autoscaler::model::decision::Decision;
use serde_json::Value;
use worlds::{Outcome, World};

/// Karpenter reports so many nodes for 20,000 pods (kubernetes-sigs/karpenter#1938).
const KARPENTER_NODES: u64 = 8_031;

fn main() {
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
        let row = decided("W3", size, &worlds::hopeless(nodes, pods, shapes));
        report.add(row.exactly("nodes", 0).at_most("seconds", 0.05));
    }
    for nodes in [500, 1_000, 5_000] {
        for (name, changed) in [("W4 cold", false), ("W4 one pod later", true)] {
            let mut world = worlds::large(nodes);
            if changed {
                world.one_more();
            }
            let row = decided(name, nodes, &world);
            report.add(match (nodes, changed) {
                (5_000, false) => row.at_most("seconds", 1.0),
                _ => row,
            });
        }
    }
    for nodes in [500, 1_000, 2_000] {
        let world = worlds::idle(nodes);
        let measured = measure(|| world.decide());
        let row = Row::new("W5", nodes)
            .measured(&measured)
            .field("removed", worlds::removed(&measured.value))
            .exactly("removed", (nodes * 3 / 5) as u64);
        report.add(match nodes {
            2_000 => row.at_most("seconds", 0.2),
            _ => row,
        });
    }
    report.finish();
}

fn decided(workload: &str, size: impl Into<Value>, world: &World) -> Row {
    let measured: Measured<Decision> = measure(|| world.decide());
    let Outcome {
        nodes,
        placed,
        left,
    } = worlds::outcome(&measured.value);
    Row::new(workload, size)
        .measured(&measured)
        .field("nodes", nodes)
        .field("placed", placed)
        .field("unplaced", left)
}

//! The example of the room's page, number by number.

use super::{CoverProblem, levy, pose_problem};
use crate::index::{ChoiceIndex, PodClassIndex, ResourceIndex};
use crate::report::explain::Asked;
use crate::tests::lab::{GI, Lab, lab};
use crate::tests::pages::example::{Example, grouped, price};
use crate::tests::pages::{limited, three_types};
use model::decision::Decision;

const CPU: ResourceIndex = ResourceIndex(0);
const MEMORY: ResourceIndex = ResourceIndex(1);

/// The world of the example: nine pods, each larger than half of a machine.
fn nine_pods(page: &mut Example) -> Lab {
    let [cores, gib] = page.numbers("of the type four ({} CPU, {}Gi)");
    let [milli, mib] = page.numbers("each asks {}m and {}Mi.");
    lab()
        .kind("four", u32::try_from(cores).expect("few"), gib * 1024)
        .pool("p", &["four"])
        .pods("web", 9, milli, mib)
}

fn pose(lab: &Lab, decision: &Decision) -> CoverProblem {
    pose_problem(Asked {
        snapshot: &lab.snapshot,
        policy: &lab.policy,
        memory: &lab.memory,
        decision,
        now: lab.now,
    })
}

/// `a / b`, rounded up.
fn divide_up(a: i128, b: i128) -> i128 {
    (a + b - 1) / b
}

#[test]
fn the_example_of_report() {
    let mut page = Example::of("report");
    let lab = nine_pods(&mut page);
    let decision = lab.decide();
    let growth = decision.report.scale_up.expect("machines");
    let kind = &lab.policy.instance_types["four"];
    let (cores, gib) = (i64::from(kind.cores), kind.memory / GI);
    let each = growth.price / i64::from(growth.nodes);
    page.says(&format!(
        "so one costs {cores} × {} + {gib} × {} = {} an hour.",
        price(20_000),
        price(10_000),
        price(cores * 20_000 + gib * 10_000)
    ));
    assert_eq!(each, cores * 20_000 + gib * 10_000);
    page.says(&format!(
        "Growth says {} nodes, price {} (in millionths an hour).",
        growth.nodes,
        grouped(growth.price)
    ));
    let problem = pose(&lab, &decision);
    let ([class], [option]) = (&*problem.classes, &*problem.candidates) else {
        panic!("{problem:?}")
    };
    assert!(problem.rooms.is_empty());
    let [cpu, memory, disk, pods] = *class.amounts else {
        panic!("{class:?}")
    };
    assert_eq!(disk, 0);
    page.says(&format!(
        "one class (amounts {cpu} millicores, {} bytes, no disk, {pods} pod; count {}) and one candidate ({} millicores, {} bytes, \
         its disk, its pod slots; price {}).",
        grouped(memory),
        class.count,
        option.amounts[CPU],
        grouped(option.amounts[MEMORY]),
        grouped(option.price)
    ));
    levies(&mut page, &problem);
    let bound = lab.lower_bound(&decision);
    page.says(&format!(
        "with a price of 1 for each machine rates::find_rates gives rates, and proof::prove verifies {}.",
        bound.nodes
    ));
    page.says(&format!(
        "proves {} × {} = {}.",
        bound.nodes,
        grouped(option.price),
        grouped(bound.price)
    ));
    page.says(&format!("nine machines at {} an hour", price(bound.price)));
    assert_eq!((bound.nodes, bound.price), (growth.nodes, growth.price));
    the_example_of_scale_up(&mut page);
    page.end();
}

/// The two levies that the page tells of.
fn levies(page: &mut Example, problem: &CoverProblem) {
    let all = levy::list_levies(problem);
    let ([class], [option]) = (&*problem.classes, &*problem.candidates) else {
        panic!("{problem:?}")
    };
    let (asked, size) = (class.amounts[CPU], option.amounts[CPU]);
    let amount = all.iter().find(|levy| *levy.pays == [i128::from(asked)]);
    let amount = amount.expect("the levy of what is asked of CPU");
    let ([pays], [most]) = (&*amount.pays, &*amount.machine) else {
        panic!("{amount:?}")
    };
    page.says(&format!(
        "the levy amount of CPU: each pod pays {}, all pay {}, a machine collects {} at most. That proves ⌈{} / {}⌉ = {} machines.",
        pays,
        grouped(amount.total),
        most,
        grouped(amount.total),
        most,
        divide_up(amount.total, *most)
    ));
    let steps = all
        .iter()
        .find(|levy| *levy.pays == [1] && *levy.machine == [1]);
    let steps = steps.expect("the levy of steps of CPU");
    page.says(&format!(
        "the levy steps of θ = {asked}: each pod pays ⌊{asked} / {asked}⌋ = {}, all pay {}, a machine collects ⌊{size} / {asked}⌋ = {}. \
         That proves {}.",
        steps.pays[PodClassIndex(0)],
        steps.total,
        steps.machine[ChoiceIndex(0)],
        divide_up(steps.total, steps.machine[ChoiceIndex(0)])
    ));
}

/// This folder's page compares the plan of the example in scale_up's page with what the bound proves: both come out as it says.
fn the_example_of_scale_up(page: &mut Example) {
    let mut other = Example::of("scale_up");
    let (lab, _) = three_types(&mut other);
    let decision = lab.decide();
    let growth = decision.report.scale_up.expect("machines");
    let bound = lab.lower_bound(&decision);
    page.says(&format!(
        "the plan has {} machines for {}, and the bound proves {} machines and {}, each for itself.",
        growth.nodes,
        price(growth.price),
        bound.nodes,
        price(bound.price)
    ));
    let first = limited(&mut other, &lab).decide();
    let first = first.report.scale_up.expect("machines");
    page.says(&format!(
        "There a plan of {} machines exists ({}), and none for less than {}:",
        first.nodes,
        price(first.price),
        price(growth.price)
    ));
}

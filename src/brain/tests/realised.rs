//! What comes of a plan whose pods nobody nominates: kube-scheduler takes pods in its queue's order, and fills whatever
//! node has come up by then. Nodes come up in any order; pods that find no place call for machines more.

use super::lab::{GI, Lab, MI, lab};
use super::sizing::SeededRng;
use model::action::Kind;
use model::reasons::Warning;

/// Types: cores and GiB.
const TYPES: [(&str, u32, i64); 3] = [("small", 2, 4), ("medium", 4, 8), ("large", 8, 16)];
const WORLDS: u64 = 20;

/// A pod: its name, thousandths of a core, bytes.
type Asked = (String, i64, i64);

/// Machines and their price: planned at first, and made in the end.
#[derive(Debug, Default)]
struct Realised {
    planned: (u32, i64),
    made: (u32, i64),
}

fn world(pods: &[Asked], nominate: bool) -> Lab {
    let mut lab = lab();
    for (name, cores, gib) in TYPES {
        lab = lab.kind(name, cores, gib << 10);
    }
    lab = lab.pool("ng", &["small", "medium", "large"]);
    for (place, (name, milli, memory)) in (1..).zip(pods) {
        lab = lab.pod(name, *milli, memory / MI);
        lab = lab.edit(name, |pod| pod.arrival = place);
    }
    lab.with(|lab| lab.policy.scale_up.nominate_pods = nominate)
}

/// Cores in thousandths and memory of the machines of a plan.
fn machines(lab: &Lab) -> Vec<(i64, i64)> {
    let plan = lab.decide().plan;
    let kinds = plan.iter().filter_map(|action| match &action.kind {
        Kind::Create(spec) => Some(spec.mark.instance_type.clone()),
        _ => None,
    });
    let sizes = kinds.map(|kind| {
        let (_, cores, gib) = TYPES
            .iter()
            .find(|(name, ..)| **name == *kind)
            .expect("a type");
        (i64::from(*cores) * 1000, gib * GI)
    });
    sizes.collect()
}

/// What default prices come to.
fn price(of: &[(i64, i64)]) -> i64 {
    let prices = of
        .iter()
        .map(|(milli, memory)| milli * 20 + memory / GI * 10_000);
    prices.sum()
}

fn realise(pods: &[Asked], nominate: bool, rng: &mut SeededRng) -> Realised {
    let mut waiting = pods.to_vec();
    let mut realised = Realised::default();
    while !waiting.is_empty() {
        let lab = world(&waiting, nominate);
        let mut made = machines(&lab);
        assert!(!made.is_empty(), "pods wait for nothing");
        let count = u32::try_from(made.len()).expect("few");
        let more = (count, price(&made));
        if realised.made == (0, 0) {
            realised.planned = more;
        }
        realised.made = (realised.made.0 + more.0, realised.made.1 + more.1);
        while !made.is_empty() {
            let (mut milli, mut memory) = made.swap_remove(rng.below(made.len()));
            waiting.retain(|(_, asked, bytes)| {
                let fits = *asked <= milli && *bytes <= memory;
                if fits {
                    (milli, memory) = (milli - asked, memory - bytes);
                }
                !fits
            });
        }
    }
    realised
}

/// So many pods of many sizes, in the order in which they came.
fn pods(count: usize, rng: &mut SeededRng) -> Vec<Asked> {
    let size = |rng: &mut SeededRng, least: usize, most: usize, unit: i64| {
        unit * i64::try_from(least + rng.below(most - least + 1)).expect("a size")
    };
    let pods = (0..count).map(|number| {
        let milli = size(rng, 2, 30, 50);
        // Their names say nothing of the order in which they came.
        let name = format!("pod-{:03}", number * 37 % 101);
        (name, milli, size(rng, 1, 30, 100 * MI))
    });
    pods.collect()
}

fn all(count: usize, nominate: bool) -> Realised {
    let mut sum = Realised::default();
    for seed in 0..WORLDS {
        let mut rng = SeededRng::new(seed);
        let pods = pods(count, &mut rng);
        let one = realise(&pods, nominate, &mut rng);
        sum.planned = (sum.planned.0 + one.planned.0, sum.planned.1 + one.planned.1);
        sum.made = (sum.made.0 + one.made.0, sum.made.1 + one.made.1);
    }
    sum
}

#[test]
fn plans_come_true_where_nobody_nominates_pods() {
    for count in [20, 50] {
        let (tight, rehearsed) = (all(count, true), all(count, false));
        eprintln!("{count} pods: tightest {tight:?}, rehearsed {rehearsed:?}");
        // Machines made for a hundred planned.
        let ratio = rehearsed.made.0 * 100 / rehearsed.planned.0;
        assert!(ratio <= 110, "{count} pods: {rehearsed:?}");
        assert!(
            rehearsed.made.1 <= tight.made.1,
            "{count} pods: the tightest plan costs {tight:?} in the end, the rehearsed one {rehearsed:?}"
        );
    }
}

/// Where the API server refuses nominations, plans are those that are made without them, and a warning says so; where the configuration wants
/// none, nothing is said.
#[test]
fn plans_count_on_no_nominations_that_are_refused() {
    let mut differ = 0;
    for case in 0..WORLDS {
        let pods = pods(20, &mut SeededRng::new(case));
        let (with, without) = (world(&pods, true), world(&pods, false));
        let refused = world(&pods, true).with(|lab| lab.snapshot.nominations_refused = true);
        let sizes = |lab: &Lab| machines(lab);
        assert_eq!(sizes(&refused), sizes(&without), "world {case}");
        differ += usize::from(sizes(&with) != sizes(&without));
        let told = |lab: &Lab| lab.decide().report.warnings_details;
        assert_eq!(told(&refused), [Warning::NominationsRefused]);
        let unwanted = refused.with(|lab| lab.policy.scale_up.nominate_pods = false);
        assert_eq!(told(&unwanted), []);
    }
    assert!(differ > 0, "the tightest plan is made either way");
}

//! Who waits although a plan holds everybody, in worlds of kinds that come together seldom: ports, priorities, several pools and
//! regions, claims, devices, several rules at once, nodes that are partly filled.
//!
//! Each world begins with machines and pods on them, which the second opinion's filters let there (`tests/naive`); then the machines
//! are forgotten, and a limit is set that leaves room for them. `PROPTEST_CASES` says how many worlds of each kind are tried,
//! `PVE_AUTOSCALER_WORLDS_FROM` the number of the first one, `PVE_AUTOSCALER_KIND` of which kind alone, and
//! `PVE_AUTOSCALER_SHRINKS` how many of those that fail are made as small as they go and told.

mod kinds;
mod plant;

use proptest::test_runner::Config;

use super::lab::{Lab, lab, made, verdict};
use super::naive::{Naive, said};
use super::sizing::first_world;
use super::wide::story::tell;
use kinds::{KINDS, Kind};
use model::cluster::ObjectKey;
use model::decision::Decision;
use model::policy::VOLUMES_VMID;
use model::region::Step;
use model::report::PodVerdict;
use model::scheduling::{HOSTNAME_LABEL, LabelSelector, Labels, PodTerm};
use plant::{World, name_place};

/// Who of the plan waits.
fn waits(world: &World, decision: &Decision) -> Vec<String> {
    let pods = world.on.iter().filter_map(|(key, _)| {
        let verdict = decision.report.pods.get(key);
        let placed = verdict.is_some_and(PodVerdict::is_placed);
        (!placed).then(|| format!("{key}: {verdict:?}"))
    });
    pods.collect()
}

/// Why the second opinion does not lay down what was decided.
fn lay_down(lab: &Lab, decision: &Decision) -> Result<(), (ObjectKey, String)> {
    let mut naive = Naive::of(lab, decision);
    for action in &decision.plan {
        let target = &action.target;
        if let Some(at) = naive.find(&target.machine) {
            let spot = &mut naive.world.nodes[at];
            name_place(lab, spot, &target.region, &target.host);
        }
    }
    naive.lay_all(&said(lab, decision))
}

fn price(decision: &Decision) -> i64 {
    let growth = decision.report.scale_up.as_ref();
    growth.map_or(0, |growth| growth.price)
}

/// How worlds of a kind come out.
#[derive(Debug, Default)]
struct Tally {
    worlds: usize,
    pods: usize,
    /// Somebody waits.
    waits: usize,
    /// The checker or the second opinion refuses a plan.
    refused: usize,
    /// Plans that may be compared by price, those that are dearer than the one the world is made around, by how many ten-thousandths
    /// in all, and the most.
    priced: usize,
    dearer: usize,
    over: i64,
    worst: i64,
    /// What failed first.
    first: Option<String>,
}

impl Tally {
    /// Tells of a world that fails, and of the first few as small as they go.
    fn miss(&mut self, world: &World, what: &str, fails: impl Fn(&World) -> bool) {
        eprintln!("{what}");
        let told = self.waits + self.dearer + self.refused;
        if told <= shrinks() {
            let small = world.clone().shrink(&fails);
            let lab = small.build();
            let decision = lab.try_decide();
            let story = decision.map_or_else(|why| why, |decision| tell(&lab, &decision));
            eprintln!("{}{story}", small.tell());
        }
        let first = self.first.take();
        self.first = first.or_else(|| Some(format!("{what}{}", world.tell())));
    }

    fn add(&mut self, name: &str, world: &World) {
        self.worlds += 1;
        self.pods += world.on.len();
        let lab = world.build();
        let decision = lab.try_decide();
        let verdict = match &decision {
            Err(why) => Err(why.clone()),
            Ok(decision) => lay_down(&lab, decision).map_err(|(key, why)| format!("{key} {why}")),
        };
        let decision = match (decision, verdict) {
            (Ok(decision), Ok(())) => decision,
            (_, Err(why)) | (Err(why), _) => {
                self.refused += 1;
                return self.miss(world, &format!("{name}: {why}"), is_refused);
            }
        };
        let waiting = waits(world, &decision);
        if !waiting.is_empty() {
            self.waits += 1;
            let what = format!("{name}, {:?}: {waiting:?}", world.limit);
            return self.miss(world, &what, is_left_out);
        }
        if !world.priced {
            return;
        }
        let (price, known) = (price(&decision), world.price());
        let over = (price - known).max(0) * 10_000 / known.max(1);
        self.priced += 1;
        self.over += over;
        self.worst = self.worst.max(over);
        if over > 0 {
            self.dearer += 1;
            let what = format!("{name}, {:?}: costs {price}, not {known}", world.limit);
            self.miss(world, &what, is_dear);
        }
    }
}

fn is_left_out(world: &World) -> bool {
    let decision = world.build().try_decide();
    decision.is_ok_and(|decision| !waits(world, &decision).is_empty())
}

fn is_dear(world: &World) -> bool {
    let decision = world.build().try_decide();
    decision.is_ok_and(|decision| {
        waits(world, &decision).is_empty() && price(&decision) > world.price()
    })
}

fn is_refused(world: &World) -> bool {
    let lab = world.build();
    let decision = lab.try_decide();
    decision.is_ok_and(|decision| lay_down(&lab, &decision).is_err())
}

fn shrinks() -> usize {
    let said = std::env::var("PVE_AUTOSCALER_SHRINKS");
    said.map_or(0, |said| said.parse().expect("a number"))
}

fn tally(kind: &Kind, pods: usize, cases: u64) -> Tally {
    let mut tally = Tally::default();
    let first = first_world();
    for case in first..first + cases {
        if let Some(world) = World::plant(kind, pods, case) {
            let name = format!("{} of {pods} pods, world {case}", kind.name);
            tally.add(&name, &world);
        }
    }
    eprintln!("{}, {pods} pods: {tally:?}", kind.name);
    tally
}

/// What of these kinds holds in every run. Nodes are filled before plans are made, in kube-scheduler's order, so that with these a plan that holds everybody may be missed.
#[test]
fn a_plan_that_holds_everybody_is_found() {
    let cases = u64::from(Config::default().cases / 32).max(4);
    for kind in KINDS.iter().filter(|kind| kind.holds) {
        let tally = tally(kind, 12, cases);
        let first = tally.first.unwrap_or_default();
        assert_eq!((tally.waits, tally.refused), (0, 0), "{first}");
    }
}

/// The numbers of all kinds: `PROPTEST_CASES=960 cargo test -p pve-autoscaler-brain --lib hidden -- --ignored --nocapture`. No plan is
/// refused, whatever else.
#[test]
#[ignore = "tells, and takes minutes"]
fn plans_beside_hidden_ones() {
    let only = std::env::var("PVE_AUTOSCALER_KIND").ok();
    let cases = u64::from(Config::default().cases);
    let kinds = KINDS.iter();
    let kinds = kinds.filter(|kind| only.as_deref().is_none_or(|name| name == kind.name));
    for kind in kinds {
        for (pods, part) in [(12, 1), (30, 8), (60, 16)] {
            let tally = tally(kind, pods, (cases / part).max(1));
            assert_eq!(tally.refused, 0, "{}", tally.first.unwrap_or_default());
        }
    }
}

/// Four pods of which a small machine holds two, and the small type and the large one in pools of their own; with so many VMIDs.
fn two_pools(first: u32, last: u32) -> Lab {
    let lab = lab()
        .kind("small", 2, 4096)
        .kind("large", 8, 16_384)
        .pool("s", &["small"])
        .pool("l", &["large"])
        .pods("web", 4, 1000, 256);
    lab.with(|lab| {
        let home = lab.policy.regions.get_mut("home").expect("home");
        (home.vmid_first, home.vmid_last) = (first, last);
    })
}

/// VMIDs limit how many machines there may be, as other limits do: where few are left, larger ones are made.
#[test]
fn few_vmids_call_for_larger_machines() {
    assert_eq!(made(&two_pools(9000, 9001).decide()), ["small", "small"]);
    assert_eq!(made(&two_pools(9000, 9000).decide()), ["large"]);
    // One of these two is no machine's.
    let (first, last) = (VOLUMES_VMID, VOLUMES_VMID + 1);
    assert_eq!(made(&two_pools(first, last).decide()), ["large"]);
}

/// A target that fits on a machine on its way, where there is no room for its follower, goes to a new machine with it. There they both
/// have their place in the decisions that follow.
#[test]
fn a_target_goes_to_a_new_machine_with_its_follower_and_not_to_one_on_its_way() {
    let mut lab = lab()
        .kind("small", 4, 8192)
        .kind("large", 8, 16_384)
        .pool("p", &["small", "large"])
        .machine("m0", "p", "small", Step::Agent)
        .pod("target-0", 3000, 1024)
        .pod("follower-0", 2000, 1024)
        .shape("follower-0", |shape| {
            shape.pod_affinity.push(PodTerm {
                selector: Some(LabelSelector {
                    labels: Labels::from([("app".into(), "target".into())]),
                    ..LabelSelector::default()
                }),
                topology_key: HOSTNAME_LABEL.into(),
                ..PodTerm::default()
            });
        });
    let first = lab.turn();
    assert_eq!(made(&first), ["large"]);
    let new = &first.plan[0].target.machine;
    for pod in ["target-0", "follower-0"] {
        let PodVerdict::Triggers { machine, .. } = verdict(&first, pod) else {
            panic!("{:?}", first.report.pods);
        };
        assert_eq!(machine, new);
    }
    // m0 has room for the target alone: it takes pods after the new one.
    assert_eq!(
        first.report.takes_pods_after["m0"],
        std::slice::from_ref(new)
    );
    let again = lab.turn();
    for pod in ["target-0", "follower-0"] {
        let PodVerdict::FitsMachine { machine } = verdict(&again, pod) else {
            panic!("{:?}", again.report.pods);
        };
        assert_eq!(machine, new);
    }
    assert!(made(&again).is_empty(), "{:?}", again.plan);
}

//! What comes of a plan: machines that were made over machines that were planned, and their price. A plan is
//! worth what kube-scheduler makes of it, which takes pods in its queue's order and fills whatever node is there
//! while nodes come up one by one.
//!
//! The real daemon in the simulator, in virtual time: pods of many sizes come at once, nothing is there yet,
//! and each machine takes a time of its own to come up. In some worlds each pod is alone; in others some
//! are targets, and those after a target may only run on its node (required affinity).

mod common;

use std::cell::Cell;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::scene::{Scene, roomy, simulate};
use common::{Report, Row};
use pve_autoscaler::model::action::Kind;
use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::guests::{GuestSpec, Range};
use pve_autoscaler::sim::workload::{Act, Step, Workload};
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::json;

/// The daemon leads and has seen everything.
const BEGIN: Duration = Duration::from_secs(45);
/// Pods that do not run after this time never will.
const PATIENCE: Duration = Duration::from_mins(30);
/// Between two looks at them.
const LOOK: Duration = Duration::from_secs(5);
/// Worlds of each size, unless `--worlds N` says otherwise.
const WORLDS: u64 = 40;
/// The targets: machines made over machines planned.
const NOMINATED: f64 = 1.02;
const NOT_NOMINATED: f64 = 1.10;
/// Types by name, cores and GiB; a price goes with the size, as the default ones do.
const TYPES: [(&str, u32, u32); 3] = [("small", 2, 4), ("medium", 4, 8), ("large", 8, 16)];

/// As many followers a target has at most: with it they fit on the largest type.
const MOST_FOLLOWERS: usize = 4;

/// Whether pods of a world have required affinity to one another.
#[derive(Clone, Copy)]
enum Company {
    /// Nothing.
    Alone,
    /// Followers must run on their target's node.
    Followers,
}

impl Company {
    fn name(self) -> &'static str {
        match self {
            Company::Alone => "alone",
            Company::Followers => "followers",
        }
    }
}

fn main() -> ExitCode {
    let mut report = Report::new("Machines made over machines planned (virtual time)");
    let mut arguments = std::env::args().skip_while(|argument| argument != "--worlds");
    let given = arguments.nth(1).and_then(|worlds| worlds.parse().ok());
    let worlds = given.unwrap_or(WORLDS);
    for (company, pods) in [
        (Company::Alone, 20),
        (Company::Alone, 50),
        (Company::Followers, 20),
        (Company::Followers, 50),
    ] {
        let of = |nominate: bool| {
            let began = common::now();
            let runs = (0..worlds).map(|seed| simulate(run(seed, pods, company, nominate)));
            let runs: Vec<Run> = runs.collect();
            (runs, began.elapsed().as_secs_f64())
        };
        let (nominated, left) = (of(true), of(false));
        // The best that is known of a world: the cheapest plan of either run.
        let both = nominated.0.iter().zip(&left.0);
        let best: f64 = both
            .map(|(one, other)| one.planned.1.min(other.planned.1).min(other.made.1))
            .sum();
        for (nominate, (runs, seconds), most) in
            [(true, nominated, NOMINATED), (false, left, NOT_NOMINATED)]
        {
            let sum = |of: fn(&Run) -> f64| runs.iter().map(of).sum::<f64>();
            let (planned, made) = (sum(|run| run.planned.0), sum(|run| run.made.0));
            let (price_planned, price) = (sum(|run| run.planned.1), sum(|run| run.made.1));
            let more = runs.iter().filter(|run| run.made.0 > run.planned.0).count();
            let pods_left = runs.iter().map(|run| run.left).sum::<usize>();
            let row = Row::new("realised", pods)
                .field("seconds", seconds)
                .field("pods_are", company.name())
                .field("nominate_pods", nominate)
                .field("worlds", worlds)
                .field("planned", planned)
                .field("made", made)
                .field("worlds_with_more", more)
                .field("pods_left", pods_left)
                .field("made_over_planned", made / planned)
                .field("price_over_planned", price / price_planned)
                .field("price_over_best", price / best)
                .at_most("made_over_planned", most);
            report.add(if nominate {
                row.at_most("pods_left", 0_usize)
            } else {
                row
            });
        }
    }
    report.finish()
}

/// Machines and their price: of the first plan, and of all that were made until every pod ran, or none more did.
struct Run {
    planned: (f64, f64),
    made: (f64, f64),
    /// Pods that never ran.
    left: usize,
}

fn config(nominate: bool) -> String {
    let types = TYPES
        .map(|(name, cores, memory)| {
            format!("[instance_type.{name}]\ncores = {cores}\nmemory = \"{memory}GiB\"\ndisk = \"20GiB\"\nprice = 0.0{cores}\n")
        })
        .concat();
    format!(
        "version = 1
[kubernetes]
name = \"bench\"
[proxmox]
vmids = \"9100-9999\"
[template.debian]
vmid = 9000
{types}
[pool.general]
template = \"debian\"
instance_types = [\"small\", \"medium\", \"large\"]
max = 100
[scale_up]
max_in_flight = 100
nominate_pods = {nominate}
"
    )
}

/// Pods of many sizes and without an owner in common, all there at once, in an order that says nothing of who follows whom.
fn workload(rng: &mut StdRng, pods: usize, company: Company) -> Workload {
    let mut target = 0;
    let mut steps: Vec<Step> = (0..pods)
        .map(|number| {
            let follows = match company {
                Company::Alone => false,
                Company::Followers => {
                    number > 0 && number - target <= MOST_FOLLOWERS && rng.random_range(0..3) < 2
                }
            };
            if !follows {
                target = number;
            }
            let cpu = rng.random_range(2..=30) * 50;
            let memory = rng.random_range(1..=30) * 100;
            let size = match company {
                Company::Alone => (cpu, memory),
                Company::Followers => (cpu / 2, memory / 2),
            };
            create(number, size, follows.then_some(target))
        })
        .collect();
    if matches!(company, Company::Followers) {
        steps.shuffle(rng);
    }
    Workload { steps }
}

/// The pod of this number, which asks for thousandths of a core and MiB, on the node of its target if it has one.
fn create(number: usize, (cpu, memory): (u32, u32), target: Option<usize>) -> Step {
    let mut object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("pod-{number}"), "labels": {"app": format!("app-{number}")}},
        "spec": {"containers": [{
            "name": "main", "image": "registry.k8s.io/pause:3.10",
            "resources": {"requests": {"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")}},
        }]},
    });
    if let Some(target) = target {
        object["spec"]["affinity"] = json!({
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
                "labelSelector": {"matchLabels": {"app": format!("app-{target}")}},
                "topologyKey": "kubernetes.io/hostname",
            }]},
        });
    }
    let path = "/api/v1/namespaces/default/pods".to_owned();
    let act = Act::Create { path, object };
    Step {
        at: Span::ZERO,
        act,
    }
}

async fn run(seed: u64, pods: usize, company: Company, nominate: bool) -> Run {
    let mut rng = StdRng::seed_from_u64(seed);
    let seconds = |least: i64, most: i64| Range {
        min: Span::seconds(least),
        max: Span::seconds(most),
    };
    let guests = GuestSpec {
        boot: seconds(6, 60),
        ready: seconds(2, 12),
        ..GuestSpec::default()
    };
    let workload = workload(&mut rng, pods, company);
    let scene = Scene::new(seed, &config(nominate), roomy(), guests);
    let made: Arc<Mutex<Vec<(u64, f64)>>> = Arc::default();
    let watching = watch_plans(&scene, &made);
    let left = Cell::new(pods);
    let story = async {
        tokio::time::sleep(BEGIN).await;
        let played = workload.play(scene.world.kube.router()).await;
        played.expect("the workload plays");
        // A target that kube-scheduler put on a node without room for its followers keeps them waiting for good.
        let until = tokio::time::Instant::now() + PATIENCE;
        while left.get() > 0 && tokio::time::Instant::now() < until {
            tokio::time::sleep(LOOK).await;
            let pods = scene.world.kube.objects("v1", "Pod");
            let waiting = pods
                .iter()
                .filter(|pod| pod["status"]["phase"] != "Running");
            left.set(waiting.count());
        }
    };
    scene
        .live(async {
            tokio::select! {
                () = story => {}
                () = watching => {}
            }
        })
        .await;
    let made = made.lock().expect("nobody panicked");
    let first = made.first().expect("machines were made").0;
    let sum = |of: &dyn Fn(u64) -> bool| {
        let prices = made.iter().filter(|(turn, _)| of(*turn));
        prices.fold((0.0, 0.0), |(count, price), (_, one)| {
            (count + 1.0, price + one)
        })
    };
    Run {
        planned: sum(&|turn| turn == first),
        made: sum(&|_| true),
        left: left.get(),
    }
}

/// Notes every machine that a turn plans to make: the turn's number and the machine's price.
async fn watch_plans(scene: &Scene, made: &Mutex<Vec<(u64, f64)>>) {
    let mut turns = scene.world.turns.subscribe();
    let mut names = std::collections::BTreeSet::new();
    while turns.changed().await.is_ok() {
        let Some(turn) = turns.borrow_and_update().clone() else {
            continue;
        };
        for action in &turn.decision.plan {
            if let Kind::Create(spec) = &action.kind
                && names.insert(action.target.machine.clone())
            {
                let kind = spec.mark.instance_type.as_str();
                let kind = &turn.settings.policy.instance_types[kind];
                #[expect(clippy::cast_precision_loss, reason = "prices are small")]
                let price = kind.price.unwrap_or(0) as f64;
                made.lock()
                    .expect("nobody panicked")
                    .push((turn.number, price));
            }
        }
    }
}

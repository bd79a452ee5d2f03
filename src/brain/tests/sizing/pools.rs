//! Worlds of a few pods and two or three pools that differ by labels, taints, types and `max`, against all plans there are.
//!
//! Pools have equal weight. Labels and taints are such that some pods ask for them or tolerate them, or none does. The search here is written apart
//! from the deciding code: pods of a group are equal, so a set of pods is how many there are of each group; it knows what the cheapest machine of a
//! pool for each set costs, and goes through all ways to share pods among machines within the pools' limits.

use proptest::test_runner::Config;

use super::super::lab::{Lab, lab};
use super::plant::{HOSTNAME, ZONE, spread};
use super::{SeededRng, first_world, outcome};
use model::scheduling::{Effect, LabelSelector, Labels, PodTerm, Taint, Toleration};

/// The label that some pools have, and the taint.
const LABEL: (&str, &str) = ("disk", "ssd");
const TAINT: (&str, &str) = ("only", "batch");
/// No limit.
const ANY: u32 = 100;
/// Pods in one world at most.
const MAX_PODS: usize = 8;

/// An instance type: cores, GiB, thousandths of the price an hour.
#[derive(Clone, Copy, Debug)]
struct Size {
    cores: u32,
    gib: i64,
    price: i64,
}

#[derive(Clone, Debug)]
struct Pool {
    types: Vec<usize>,
    max: u32,
    labelled: bool,
    tainted: bool,
    max_pods: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Plain,
    /// Over machines, with a skew of one.
    Even,
    /// Each on a machine of its own.
    Apart,
}

/// Equal pods: thousandths of a core, MiB.
#[derive(Clone, Copy, Debug)]
struct Group {
    count: usize,
    milli: i64,
    mib: i64,
    rule: Rule,
    /// Asks for the label.
    selects: bool,
    tolerates: bool,
}

/// A DaemonSet's pod: thousandths of a core, MiB, whether it tolerates the taint.
type Daemon = (i64, i64, bool);

#[derive(Clone, Debug)]
struct World {
    sizes: Vec<Size>,
    pools: Vec<Pool>,
    daemon: Option<Daemon>,
    groups: Vec<Group>,
}

fn taint() -> Taint {
    Taint {
        key: TAINT.0.into(),
        value: TAINT.1.into(),
        effect: Effect::NoSchedule,
    }
}

fn toleration() -> Toleration {
    Toleration {
        key: Some(TAINT.0.into()),
        exists: true,
        value: "".into(),
        effect: None,
    }
}

fn chance(rng: &mut SeededRng, one_in: usize) -> bool {
    rng.below(one_in) == 0
}

impl World {
    fn of(rng: &mut SeededRng) -> World {
        let sizes = (0..2 + rng.below(2)).map(|_| {
            let (cores, gib) = rng.one(&[(2, 4), (2, 8), (4, 4), (4, 8), (4, 16), (8, 8), (8, 16)]);
            let fair = i64::from(cores) * 2 + gib;
            let price = fair * i64::try_from(60 + rng.below(80)).expect("few") / 100;
            Size { cores, gib, price }
        });
        let sizes: Vec<Size> = sizes.collect();
        let pools = (0..2 + rng.below(2)).map(|_| {
            let mut types: Vec<usize> = (0..sizes.len()).filter(|_| !chance(rng, 3)).collect();
            if types.is_empty() {
                types.push(rng.below(sizes.len()));
            }
            Pool {
                types,
                max: rng.one(&[ANY, ANY, 1, 2]),
                labelled: chance(rng, 3),
                tainted: chance(rng, 5),
                max_pods: rng.one(&[110, 110, 110, 4]),
            }
        });
        let pools = pools.collect();
        let daemon = chance(rng, 3).then(|| (200, 128, chance(rng, 2)));
        let mut world = World {
            sizes,
            pools,
            daemon,
            groups: Vec::new(),
        };
        let mut left = 3 + rng.below(MAX_PODS - 2);
        while left > 0 && world.groups.len() < 4 {
            let count = 1 + rng.below(left.min(3));
            left -= count;
            world.groups.push(Group {
                count,
                milli: rng.one(&[250, 500, 800, 1000, 1500, 1900, 2000]),
                mib: rng.one(&[256, 512, 1024, 2048, 3000, 4096]),
                rule: rng.one(&[Rule::Plain, Rule::Plain, Rule::Even, Rule::Apart]),
                selects: chance(rng, 6),
                tolerates: chance(rng, 4),
            });
        }
        world
    }

    fn build(&self) -> Lab {
        let mut lab = lab();
        for (at, size) in self.sizes.iter().enumerate() {
            let name = format!("t{at}");
            lab = lab.kind(&name, size.cores, size.gib << 10);
            lab = lab.edit_kind(&name, |kind| kind.price = Some(size.price * 1000));
        }
        for (at, of) in self.pools.iter().enumerate() {
            let types: Vec<String> = of.types.iter().map(|size| format!("t{size}")).collect();
            let types: Vec<&str> = types.iter().map(String::as_str).collect();
            let name = format!("p{at}");
            lab = lab.pool(&name, &types).edit_pool(&name, |pool| {
                pool.max = of.max;
                pool.max_pods = of.max_pods;
                if of.labelled {
                    pool.labels.insert(LABEL.0.into(), LABEL.1.into());
                }
                if of.tainted {
                    pool.taints.push(taint());
                }
            });
        }
        if let Some((milli, mib, tolerates)) = self.daemon {
            lab = lab.daemon("agent", milli, mib).with(|lab| {
                for daemon in lab.snapshot.cluster.daemon_sets.values_mut() {
                    let shape = std::sync::Arc::make_mut(&mut daemon.shape);
                    shape.tolerations.extend(tolerates.then(toleration));
                }
            });
        }
        for (at, group) in self.groups.iter().enumerate() {
            let name = format!("app{at}");
            lab = lab.pods(&name, group.count, group.milli, group.mib);
            let own = || Some(of_app(&name));
            lab = lab.shapes(&format!("{name}-"), |shape| {
                shape.tolerations.extend(group.tolerates.then(toleration));
                if group.selects {
                    shape.node_selector.insert(LABEL.0.into(), LABEL.1.into());
                }
                match group.rule {
                    Rule::Plain => {}
                    Rule::Even => shape.spread.push(spread(1, HOSTNAME, own())),
                    Rule::Apart => shape.pod_anti_affinity.push(PodTerm {
                        selector: own(),
                        topology_key: HOSTNAME.into(),
                        ..PodTerm::default()
                    }),
                }
            });
        }
        lab
    }

    /// The price of the cheapest machine of a pool that holds exactly these pods. `least`: of each group, the fewest pods on any machine that counts
    /// for its spread; such a machine has that many or one more.
    fn price_of(&self, pool: &Pool, set: &[usize], least: &[usize]) -> Option<i64> {
        let (mut milli, mut mib) = match self.daemon {
            Some((milli, mib, tolerates)) if tolerates || !pool.tainted => (milli, mib),
            _ => (0, 0),
        };
        let mut pods = set.iter().sum::<usize>() + usize::from(milli > 0);
        for ((group, &here), &least) in self.groups.iter().zip(set).zip(least) {
            let count = i64::try_from(here).expect("few");
            milli += group.milli * count;
            mib += group.mib * count;
            // A taint keeps no node from being counted, a node selector does.
            let is_counted = !group.selects || pool.labelled;
            let may = is_counted && (group.tolerates || !pool.tainted);
            let fits = match group.rule {
                Rule::Plain => true,
                Rule::Apart => here <= 1,
                Rule::Even => !is_counted || (least..=least + 1).contains(&here),
            };
            if !fits || (here > 0 && !may) {
                return None;
            }
        }
        pods = pods.max(1);
        if pods > usize::try_from(pool.max_pods).expect("few") {
            return None;
        }
        let sizes = pool.types.iter().map(|size| self.sizes[*size]);
        let fit =
            sizes.filter(|size| milli <= i64::from(size.cores) * 1000 && mib <= size.gib << 10);
        fit.map(|size| size.price * 1000).min()
    }

    /// What the cheapest plan for all pods costs, if there is one.
    fn cheapest(&self) -> Option<i64> {
        let mut bases: Vec<Vec<usize>> = vec![Vec::new()];
        for group in &self.groups {
            let most = if group.rule == Rule::Even {
                group.count
            } else {
                0
            };
            let more = bases
                .iter()
                .flat_map(|base| (0..=most).map(|least| [base.as_slice(), &[least]].concat()));
            bases = more.collect();
        }
        let all: Vec<usize> = self.groups.iter().map(|group| group.count).collect();
        let sets = subsets(&all);
        let prices = bases.iter().filter_map(|least| {
            let machines = sets.iter().filter(|set| set.iter().any(|count| *count > 0));
            let prices = |set: &Vec<usize>| {
                let pools = self.pools.iter();
                pools
                    .map(|pool| self.price_of(pool, set, least))
                    .collect::<Vec<_>>()
            };
            let machines = machines.map(|set| (set.clone(), prices(set)));
            let machines: Vec<Machine> = machines
                .filter(|(_, prices)| prices.iter().any(Option::is_some))
                .collect();
            let mut known = std::collections::BTreeMap::new();
            let limits: Vec<u32> = self.pools.iter().map(|pool| pool.max).collect();
            share(&machines, &all, &limits, &mut known)
        });
        prices.min()
    }
}

/// What a machine can hold, and what it costs in each pool.
type Machine = (Vec<usize>, Vec<Option<i64>>);

fn subsets(all: &[usize]) -> Vec<Vec<usize>> {
    let mut sets = vec![Vec::new()];
    for count in all {
        let more = sets.iter().flat_map(|set: &Vec<usize>| {
            (0..=*count).map(|here| [set.as_slice(), &[here]].concat())
        });
        sets = more.collect();
    }
    sets
}

/// The least price of machines for these pods within what is left of the pools' limits.
fn share(
    machines: &[Machine],
    left: &[usize],
    limits: &[u32],
    known: &mut std::collections::BTreeMap<(Vec<usize>, Vec<u32>), Option<i64>>,
) -> Option<i64> {
    let Some(first) = left.iter().position(|count| *count > 0) else {
        return Some(0);
    };
    let key = (left.to_vec(), limits.to_vec());
    if let Some(known) = known.get(&key) {
        return *known;
    }
    let mut best = None;
    for (set, prices) in machines {
        // Some machine holds the first pod that is left.
        if set[first] == 0 || set.iter().zip(left).any(|(here, left)| here > left) {
            continue;
        }
        let rest: Vec<usize> = left
            .iter()
            .zip(set)
            .map(|(left, here)| left - here)
            .collect();
        for (pool, price) in prices.iter().enumerate() {
            let Some(price) = price.filter(|_| limits[pool] > 0) else {
                continue;
            };
            let mut after = limits.to_vec();
            // A pool without a limit is always the same.
            if after[pool] < ANY {
                after[pool] -= 1;
            }
            if let Some(others) = share(machines, &rest, &after, known) {
                best = best.into_iter().chain([price + others]).min();
            }
        }
    }
    known.insert(key, best);
    best
}

/// How plans compare with the best.
#[derive(Debug, Default)]
struct Tally {
    worlds: usize,
    /// Somebody waits, and there is a plan for all.
    waits: Vec<u64>,
    /// Worlds with plans that cost more than the cheapest, with by how many hundredths.
    dearer: Vec<(u64, i64)>,
}

fn tally(cases: u64) -> Tally {
    let mut tally = Tally::default();
    let first = first_world();
    for case in first..first + cases {
        let world = World::of(&mut SeededRng::new(case));
        let Some(cheapest) = world.cheapest() else {
            continue;
        };
        tally.worlds += 1;
        let (waits, price) = outcome(&world.build());
        if !waits.is_empty() {
            eprintln!("world {case}, all could be placed for {cheapest}: {waits:?}: {world:?}");
            tally.waits.push(case);
            continue;
        }
        assert!(
            cheapest <= price,
            "world {case}: the search is wrong: {cheapest}, {price}: {world:?}"
        );
        if price > cheapest {
            eprintln!("world {case}: {price}, the cheapest {cheapest}: {world:?}");
            tally
                .dearer
                .push((case, (price - cheapest) * 100 / cheapest));
        }
    }
    eprintln!(
        "{} worlds, {} wait, {} dearer: {tally:?}",
        tally.worlds,
        tally.waits.len(),
        tally.dearer.len()
    );
    tally
}

/// Selects the pods of an app.
fn of_app(app: &str) -> LabelSelector {
    LabelSelector {
        labels: Labels::from([("app".into(), app.into())]),
        ..LabelSelector::default()
    }
}

/// Nodes of another zone than pods with topology spread over host names must be in do not count for it.
#[test]
fn machines_in_another_zone_are_no_domains_of_a_spread_over_host_names() {
    let lab = lab()
        .kind("t", 8, 8 << 10)
        .pool("p", &["t"])
        .edit_pool("p", |pool| pool.hosts = vec!["pve1".into(), "pve2".into()])
        .pods("b", 2, 250, 512)
        .pods("c", 3, 2000, 4096)
        .shapes("b-", |shape| {
            shape.node_selector.insert(ZONE.into(), "pve1".into());
            shape.spread.push(spread(1, HOSTNAME, Some(of_app("b"))));
        });
    let (waits, price) = outcome(&lab);
    assert_eq!(waits, Vec::<String>::new());
    assert_eq!(price, 2 * 240_000, "two machines");
}

#[test]
fn plans_over_several_pools_are_the_cheapest() {
    let tally = tally(u64::from(Config::default().cases).clamp(100, 20_000));
    assert!(tally.worlds > 50, "{tally:?}");
    assert_eq!(tally.waits, Vec::<u64>::new(), "{tally:?}");
    assert!(tally.dearer.len() * 100 <= tally.worlds, "{tally:?}");
}

/// The numbers of `PROPTEST_CASES` worlds, and no judgement.
#[test]
#[ignore = "tells, and takes minutes"]
fn how_plans_over_several_pools_compare() {
    tally(u64::from(Config::default().cases));
}

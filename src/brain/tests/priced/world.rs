//! Ordinary worlds: some sizes of machines, pods of many sizes, no limits.

use super::packing::{Bin, Item, Packing};
use crate::tests::lab::{Lab, lab};
use crate::tests::sizing::SeededRng;
use model::scheduling::{LabelSelector, Labels, PodTerm, SpreadConstraint};

/// A topology key that is a label of the pool.
const RACK: &str = "rack";

/// Cores and GiB.
const TYPES: [(u32, u32); 6] = [(2, 4), (4, 8), (8, 16), (16, 32), (4, 16), (16, 16)];
/// Those of worlds with a given number of types.
const MORE_TYPES: [(u32, u32); 12] = [
    (2, 4),
    (4, 8),
    (8, 16),
    (16, 32),
    (4, 16),
    (16, 16),
    (2, 8),
    (8, 32),
    (8, 8),
    (6, 12),
    (12, 24),
    (12, 48),
];
/// Units are a tenth of a core and a quarter of a GiB.
const MILLI: i64 = 100;
const MIB: i64 = 256;

/// An instance type, with the price that it has by its own word.
#[derive(Clone, Copy, Debug)]
struct Size {
    cores: u32,
    gib: u32,
    price: Option<u32>,
}

/// Alike pods, in units.
#[derive(Clone, Copy, Debug)]
struct Lot {
    count: u32,
    cpu: usize,
    memory: usize,
    /// No two of them on one node.
    apart: bool,
}

#[derive(Clone, Debug)]
pub(super) struct World {
    sizes: Vec<Size>,
    lots: Vec<Lot>,
    /// A DaemonSet takes one unit of cores and one of memory of each node.
    daemon: bool,
    /// Alike pods have a priority of their own, and are spread over racks, of which there is one.
    idle_rules: bool,
}

impl World {
    /// The world of this number. Types have default prices or their own by turns; every third world has a size of its own
    /// for each pod, every third a DaemonSet, and in every other some alike pods keep apart.
    pub(super) fn throw(pods: u32, number: u64) -> World {
        let mut rng = SeededRng::new(number);
        let mut sizes = TYPES.to_vec();
        for _ in 0..rng.below(4) {
            sizes.remove(rng.below(sizes.len()));
        }
        World::of(sizes, pods, (number, rng))
    }

    /// As [`World::throw`], with so many types.
    pub(super) fn throw_with(types: usize, pods: u32, number: u64) -> World {
        let mut rng = SeededRng::new(number);
        let mut sizes = MORE_TYPES.to_vec();
        while sizes.len() > types {
            sizes.remove(rng.below(sizes.len()));
        }
        World::of(sizes, pods, (number, rng))
    }

    /// The world with rules that no plan needs a machine more for.
    pub(super) fn with_idle_rules(self) -> World {
        World {
            idle_rules: true,
            ..self
        }
    }

    fn of(sizes: Vec<(u32, u32)>, pods: u32, (number, mut rng): (u64, SeededRng)) -> World {
        let own_prices = rng.below(2) == 0;
        let size = |(cores, gib): (u32, u32)| Size {
            cores,
            gib,
            price: own_prices.then(|| {
                let percent = 80 + 5 * u32::try_from(rng.below(9)).expect("few");
                (cores * 20_000 + gib * 10_000) * percent / 100
            }),
        };
        let mut world = World {
            sizes: sizes.into_iter().map(size).collect(),
            lots: Vec::new(),
            daemon: number % 3 == 1,
            idle_rules: false,
        };
        let all_differ = number % 3 == 2;
        let some_apart = rng.below(2) == 0;
        let mut left = pods;
        while left > 0 {
            let most = if all_differ { 1 } else { 2 + pods / 20 };
            let count = 1 + rng.below(usize::try_from(left.min(most)).expect("few"));
            let count = u32::try_from(count).expect("few");
            let (cpu, memory) = world.size_of_pods(all_differ, &mut rng);
            world.lots.push(Lot {
                count,
                cpu,
                memory,
                apart: some_apart && count > 1 && rng.below(4) == 0,
            });
            left -= count;
        }
        world
    }

    /// A size that some machine has room for: one that people ask for, or any.
    fn size_of_pods(&self, any: bool, rng: &mut SeededRng) -> (usize, usize) {
        let bins = self.bins();
        loop {
            let (cpu, memory) = if any {
                (1 + rng.below(30), 1 + rng.below(24))
            } else {
                (
                    rng.one(&[1, 2, 3, 5, 5, 10, 10, 15, 20, 25, 30, 40]),
                    rng.one(&[1, 1, 2, 3, 4, 4, 6, 8, 10, 16, 24]),
                )
            };
            let fits = |bin: &Bin| cpu <= bin.cpu && memory <= bin.memory;
            if bins.iter().any(fits) {
                return (cpu, memory);
            }
        }
    }

    fn bins(&self) -> Vec<Bin> {
        let whole = |number: u32| usize::try_from(number).expect("few") - usize::from(self.daemon);
        let bin = |size: &Size| Bin {
            cpu: whole(size.cores * 10),
            memory: whole(size.gib * 4),
            price: size
                .price
                .unwrap_or(size.cores * 20_000 + size.gib * 10_000),
        };
        self.sizes.iter().map(bin).collect()
    }

    /// The world as numbers alone.
    pub(super) fn packing(&self) -> Packing {
        let mut items: Vec<Item> = Vec::new();
        for lot in &self.lots {
            let item = Item {
                cpu: lot.cpu,
                memory: lot.memory,
                count: lot.count,
                apart: lot.apart,
            };
            let alike = |of: &&mut Item| {
                !of.apart && !item.apart && (of.cpu, of.memory) == (item.cpu, item.memory)
            };
            match items.iter_mut().find(alike) {
                Some(of) => of.count += item.count,
                None => items.push(item),
            }
        }
        Packing {
            bins: self.bins(),
            items,
        }
    }

    /// The world as the brain sees it.
    pub(super) fn build(&self) -> Lab {
        let mut lab = lab();
        let names: Vec<String> = (0..self.sizes.len()).map(|at| format!("t{at}")).collect();
        for (name, size) in names.iter().zip(&self.sizes) {
            lab = lab
                .kind(name, size.cores, i64::from(size.gib) << 10)
                .edit_kind(name, |kind| kind.price = size.price.map(i64::from));
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        // No limit binds, that of pods of a node neither.
        lab = lab
            .pool("workers", &names)
            .edit_pool("workers", |pool| pool.max_pods = 500);
        if self.idle_rules {
            lab = lab.edit_pool("workers", |pool| {
                pool.labels.insert(RACK.into(), "one".into());
            });
        }
        if self.daemon {
            lab = lab.daemon("agent", MILLI, MIB);
        }
        for (at, lot) in self.lots.iter().enumerate() {
            let name = format!("app{at}");
            let units = |size: usize| i64::try_from(size).expect("a size");
            let count = usize::try_from(lot.count).expect("few");
            lab = lab.pods(
                &name,
                count,
                units(lot.cpu) * MILLI,
                units(lot.memory) * MIB,
            );
            let own = LabelSelector {
                labels: Labels::from([("app".into(), name.as_str().into())]),
                ..LabelSelector::default()
            };
            if self.idle_rules {
                lab = lab.shapes(&format!("{name}-"), |shape| {
                    shape.priority = i32::try_from(at % 5).expect("few");
                    shape.spread.push(spread(RACK, &own));
                });
            }
            if lot.apart {
                lab = lab.shapes(&format!("{name}-"), |shape| {
                    shape.pod_anti_affinity.push(PodTerm {
                        selector: Some(own.clone()),
                        topology_key: "kubernetes.io/hostname".into(),
                        ..PodTerm::default()
                    });
                });
            }
        }
        lab
    }
}

fn spread(key: &str, own: &LabelSelector) -> SpreadConstraint {
    SpreadConstraint {
        max_skew: 1,
        topology_key: key.into(),
        hard: true,
        selector: Some(own.clone()),
        min_domains: None,
        match_label_keys: Vec::new(),
        honor_affinity: true,
        honor_taints: false,
    }
}

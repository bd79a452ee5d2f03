//! The cheapest plan for a few pods: all plans are tried, but for those that what pods pay shows to be too dear.
//!
//! A plan's price is what all its pods pay and what each machine costs over what its own pods pay. So where a plan must be
//! cheaper than one that is known, all machines together may cost so much more than they are paid, and no more.

use std::collections::BTreeMap;

use super::knapsack::Table;
use super::packing::{Filling, PARTS, Packing};

pub(super) struct Exhaust<'p> {
    packing: &'p Packing,
    pays: Vec<i64>,
    table: Table,
    /// Items in the order in which they are placed: those that pay most first.
    order: Vec<usize>,
    /// So many loads, begun or whole, may be looked at yet.
    steps: u64,
    /// What could not be placed with so much to spare.
    failed: BTreeMap<Vec<u32>, i64>,
    plan: Vec<Filling>,
}

/// A load that is being put together.
struct Load {
    bin: usize,
    cpu: usize,
    memory: usize,
    pods: Vec<u32>,
    /// What the machine costs over what its pods pay.
    over: i64,
}

/// What came of a search.
pub(super) enum Found {
    Plan(Vec<Filling>),
    /// There is none.
    None,
    /// The steps are spent.
    Spent,
}

/// A plan that costs less than this many millionths, which is a price that a plan can have. No load may pay more than its
/// machine costs.
pub(super) fn find_below(packing: &Packing, pays: &[u64], below: u64, steps: u64) -> Found {
    let signed = |pay: u64| i64::try_from(pay).expect("a price");
    let mut order: Vec<usize> = (0..packing.items.len()).collect();
    order.retain(|item| packing.items[*item].count > 0);
    order.sort_by_key(|item| std::cmp::Reverse(pays[*item]));
    let mut exhaust = Exhaust {
        packing,
        pays: pays.iter().map(|pay| signed(*pay)).collect(),
        table: Table::of(packing, pays),
        order,
        steps,
        failed: BTreeMap::new(),
        plan: Vec::new(),
    };
    let counts = packing.items.iter().zip(pays);
    let all: u64 = counts.map(|(item, pay)| u64::from(item.count) * pay).sum();
    // The dearest price that is less.
    let most = signed(below * PARTS) - signed(packing.step() * PARTS);
    let spare = most - signed(all);
    let rest: Vec<u32> = packing.items.iter().map(|item| item.count).collect();
    if exhaust.place(&rest, spare) {
        return Found::Plan(exhaust.plan);
    }
    if exhaust.steps == 0 {
        Found::Spent
    } else {
        Found::None
    }
}

impl Exhaust<'_> {
    /// Places what is left; its machines may cost so much more than they are paid.
    fn place(&mut self, rest: &[u32], spare: i64) -> bool {
        let Some(first) = self.order.iter().position(|item| rest[*item] > 0) else {
            return spare >= 0;
        };
        if self.failed.get(rest).is_some_and(|failed| *failed >= spare) {
            return false;
        }
        let mut loads = Vec::new();
        for bin in 0..self.packing.bins.len() {
            let size = self.packing.bins[bin];
            let mut load = Load {
                bin,
                cpu: size.cpu,
                memory: size.memory,
                pods: vec![0; rest.len()],
                over: i64::try_from(u64::from(size.price) * PARTS).expect("a price"),
            };
            self.load(rest, (first, first), spare, &mut load, &mut loads);
        }
        loads.sort_by_key(|(over, _)| *over);
        for (over, filling) in loads {
            let left: Vec<u32> = rest.iter().zip(&filling.pods).map(|(a, b)| a - b).collect();
            self.plan.push(filling);
            if self.place(&left, spare - over) {
                return true;
            }
            self.plan.pop();
            if self.steps == 0 {
                return false;
            }
        }
        let failed = self.failed.entry(rest.to_vec()).or_insert(spare);
        *failed = spare.max(*failed);
        false
    }

    /// All loads with pods of the first item that is left to which nothing could be added.
    fn load(
        &mut self,
        rest: &[u32],
        (first, at): (usize, usize),
        spare: i64,
        load: &mut Load,
        loads: &mut Vec<(i64, Filling)>,
    ) {
        let most = i64::try_from(self.table.most(load.cpu, load.memory)).expect("a price");
        if self.steps == 0 || load.over - most > spare {
            return;
        }
        self.steps -= 1;
        let Some(&item) = self.order.get(at) else {
            if load.over <= spare && !self.takes_more(rest, load) {
                let filling = Filling {
                    bin: load.bin,
                    pods: load.pods.clone(),
                };
                if self.packing.cheapen(filling.clone()).bin == load.bin {
                    loads.push((load.over, filling));
                }
            }
            return;
        };
        let size = self.packing.items[item];
        let fit = (load.cpu / size.cpu).min(load.memory / size.memory);
        let fit = if size.apart { fit.min(1) } else { fit };
        let fit = fit.min(usize::try_from(rest[item]).expect("few"));
        let least = usize::from(at == first);
        for count in (least..=fit).rev() {
            let (cpu, memory, over) = (load.cpu, load.memory, load.over);
            load.cpu -= size.cpu * count;
            load.memory -= size.memory * count;
            load.over -= self.pays[item] * i64::try_from(count).expect("few");
            load.pods[item] = u32::try_from(count).expect("few");
            self.load(rest, (first, at + 1), spare, load, loads);
            (load.cpu, load.memory, load.over) = (cpu, memory, over);
            load.pods[item] = 0;
        }
    }

    /// Whether a pod that is left has room beside the load: then a plan with that pod there is as good.
    fn takes_more(&self, rest: &[u32], load: &Load) -> bool {
        self.order.iter().any(|item| {
            let (size, there) = (self.packing.items[*item], load.pods[*item]);
            rest[*item] > there
                && size.cpu <= load.cpu
                && size.memory <= load.memory
                && !(size.apart && there > 0)
        })
    }
}

/// The search for cheaper plans ends: nothing costs less than nothing.
#[test]
fn no_pods_need_no_machine_and_that_costs_nothing() {
    use super::packing::{Bin, Item};
    let bin = Bin {
        cpu: 10,
        memory: 10,
        price: 50,
    };
    let item = |count| Item {
        cpu: 6,
        memory: 6,
        count,
        apart: false,
    };
    let packing = |count| Packing {
        bins: vec![bin],
        items: vec![item(count)],
    };
    let pays = [50 * PARTS];
    let cheaper = |count, below| match find_below(&packing(count), &pays, below, 1000) {
        Found::Plan(plan) => Some(plan.len()),
        Found::None => None,
        Found::Spent => panic!("a few steps are enough"),
    };
    assert_eq!((cheaper(0, 50), cheaper(0, 0)), (Some(0), None));
    assert_eq!((cheaper(2, 150), cheaper(2, 100)), (Some(2), None));
}

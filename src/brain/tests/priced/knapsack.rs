//! Which pods pay most on one machine: exactly, by a table over both resources.

use super::packing::{Filling, Packing};

/// Some pods of one item, taken together or not at all.
struct Chunk {
    item: usize,
    count: u32,
    /// Whether the best load has them, by what is there for the items up to this one.
    taken: Vec<bool>,
}

/// The most that pods pay in whatever room there is, and how.
pub(super) struct Table {
    /// Cells of one row: rows are by cores, cells by memory.
    row: usize,
    most: Vec<u64>,
    chunks: Vec<Chunk>,
}

/// For each bin the load whose pods pay most, with what they pay. No other load of the machine pays more.
pub(super) fn best_fillings(packing: &Packing, pays: &[u64]) -> Vec<(u64, Filling)> {
    let table = Table::of(packing, pays);
    let bins = 0..packing.bins.len();
    bins.map(|bin| table.read(packing, bin)).collect()
}

impl Table {
    pub(super) fn of(packing: &Packing, pays: &[u64]) -> Table {
        let cpu = packing.bins.iter().map(|bin| bin.cpu).max().unwrap_or(0);
        let memory = packing.bins.iter().map(|bin| bin.memory).max();
        let row = memory.unwrap_or(0) + 1;
        let mut table = Table {
            row,
            most: vec![0; (cpu + 1) * row],
            chunks: Vec::new(),
        };
        for (item, pay) in pays.iter().enumerate().filter(|(_, pay)| **pay > 0) {
            let most = (0..packing.bins.len()).map(|bin| packing.most(item, bin));
            let (mut left, mut part) = (most.max().unwrap_or(0), 1);
            // Any number up to the most is a sum of some of these parts.
            while left > 0 {
                let count = left.min(part);
                table.add(packing, item, count, *pay);
                (left, part) = (left - count, part * 2);
            }
        }
        table
    }

    /// The most that pods pay in a room.
    pub(super) fn most(&self, cpu: usize, memory: usize) -> u64 {
        self.most[cpu * self.row + memory]
    }
    fn add(&mut self, packing: &Packing, item: usize, count: u32, pay: u64) {
        let size = packing.items[item];
        let times = usize::try_from(count).expect("few");
        let (cpu, memory) = (size.cpu * times, size.memory * times);
        assert!(cpu > 0, "rows are read before they are written");
        let (row, pay) = (self.row, pay * u64::from(count));
        let mut taken = vec![false; self.most.len()];
        for at in (cpu..self.most.len() / row).rev() {
            let (before, rest) = self.most.split_at_mut(at * row);
            let without = &mut rest[memory..row];
            let below = &before[(at - cpu) * row..][..row - memory];
            let taken = &mut taken[at * row + memory..];
            for ((without, below), taken) in without.iter_mut().zip(below).zip(taken) {
                if *below + pay > *without {
                    (*without, *taken) = (*below + pay, true);
                }
            }
        }
        self.chunks.push(Chunk { item, count, taken });
    }

    fn read(&self, packing: &Packing, bin: usize) -> (u64, Filling) {
        let size = packing.bins[bin];
        let mut at = size.cpu * self.row + size.memory;
        let mut pods = vec![0; packing.items.len()];
        let paid = self.most[at];
        for chunk in self.chunks.iter().rev() {
            if chunk.taken[at] {
                let item = packing.items[chunk.item];
                let times = usize::try_from(chunk.count).expect("few");
                at -= (item.cpu * self.row + item.memory) * times;
                pods[chunk.item] += chunk.count;
            }
        }
        (paid, Filling { bin, pods })
    }
}

/// The most that pods pay on a machine, by trying all loads.
fn try_all(packing: &Packing, pays: &[u64], item: usize, room: (usize, usize)) -> u64 {
    let Some(of) = packing.items.get(item) else {
        return 0;
    };
    let most = (room.0 / of.cpu).min(room.1 / of.memory);
    let most = if of.apart { most.min(1) } else { most };
    let most = most.min(usize::try_from(of.count).expect("few"));
    let each = (0..=most).map(|count| {
        let room = (room.0 - count * of.cpu, room.1 - count * of.memory);
        let pay = pays[item] * u64::try_from(count).expect("few");
        pay + try_all(packing, pays, item + 1, room)
    });
    each.max().unwrap_or(0)
}

#[test]
fn the_best_load_is_the_best_of_all_loads() {
    use super::packing::{Bin, Item};
    use crate::tests::sizing::SeededRng;
    for seed in 0..200 {
        let mut rng = SeededRng::new(seed);
        let bins: Vec<Bin> = (0..3)
            .map(|_| Bin {
                cpu: 4 + rng.below(8),
                memory: 4 + rng.below(8),
                price: 1,
            })
            .collect();
        let items: Vec<Item> = (0..5)
            .map(|_| Item {
                cpu: 1 + rng.below(5),
                memory: 1 + rng.below(5),
                count: 1 + u32::try_from(rng.below(5)).expect("few"),
                apart: rng.below(4) == 0,
            })
            .collect();
        let pays: Vec<u64> = (0..5).map(|_| rng.below(9) as u64).collect();
        let packing = Packing { bins, items };
        for (paid, filling) in best_fillings(&packing, &pays) {
            let bin = packing.bins[filling.bin];
            let best = try_all(&packing, &pays, 0, (bin.cpu, bin.memory));
            let counts = filling.pods.iter().zip(&pays);
            let sum: u64 = counts.map(|(count, pay)| u64::from(*count) * pay).sum();
            assert_eq!((paid, sum), (best, best), "{seed}: {packing:?}, {pays:?}");
            let mut alone = packing.clone();
            for (item, count) in alone.items.iter_mut().zip(&filling.pods) {
                assert!(*count <= item.count);
                item.count = *count;
            }
            assert_eq!(alone.price(&[filling]), 1);
        }
    }
}

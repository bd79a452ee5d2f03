//! Pods and sizes of machines without anything else, and plans for them.

/// Prices are counted in so many parts of a millionth where pods pay them together.
pub(super) const PARTS: u64 = 1000;

/// A machine that can be made: what it has for pods, in the units of the world, and its price in millionths.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bin {
    pub(super) cpu: usize,
    pub(super) memory: usize,
    pub(super) price: u32,
}

/// Alike pods: what one asks for, how many there are, and whether no two of them may be on one machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) cpu: usize,
    pub(super) memory: usize,
    pub(super) count: u32,
    pub(super) apart: bool,
}

/// What one machine holds: its bin's place, and how many pods of each item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Filling {
    pub(super) bin: usize,
    pub(super) pods: Vec<u32>,
}

#[derive(Clone, Debug)]
pub(super) struct Packing {
    pub(super) bins: Vec<Bin>,
    pub(super) items: Vec<Item>,
}

impl Packing {
    pub(super) fn pods(&self) -> u32 {
        self.items.iter().map(|item| item.count).sum()
    }

    /// The most pods of an item that a machine of a bin holds.
    pub(super) fn most(&self, item: usize, bin: usize) -> u32 {
        let (item, bin) = (self.items[item], self.bins[bin]);
        let most = (bin.cpu / item.cpu).min(bin.memory / item.memory);
        let most = if item.apart { most.min(1) } else { most };
        u32::try_from(most).expect("few").min(item.count)
    }

    /// The price of the cheapest machine that holds a pod of an item, or any of its size.
    pub(super) fn cheapest(&self, item: usize) -> u32 {
        let item = self.items[item];
        let hold = |bin: &&Bin| item.cpu <= bin.cpu && item.memory <= bin.memory;
        let prices = self.bins.iter().filter(hold).map(|bin| bin.price);
        prices.min().expect("each pod fits somewhere")
    }

    /// Every price is a multiple of this, and so is every plan's.
    pub(super) fn step(&self) -> u64 {
        let divide = |a: u64, b: u64| {
            let (mut a, mut b) = (a, b);
            while b > 0 {
                (a, b) = (b, a % b);
            }
            a
        };
        let prices = self.bins.iter().map(|bin| u64::from(bin.price));
        prices.fold(0, divide)
    }

    /// Takes pods off that a machine of this filling holds; what the filling has beyond those that are left is taken off it.
    pub(super) fn take(&mut self, mut filling: Filling) -> Filling {
        for (item, pods) in self.items.iter_mut().zip(&mut filling.pods) {
            *pods = item.count.min(*pods);
            item.count -= *pods;
        }
        filling
    }

    /// The same load on the cheapest machine that holds it.
    pub(super) fn cheapen(&self, mut filling: Filling) -> Filling {
        let bins = (0..self.bins.len()).filter(|bin| self.holds(*bin, &filling.pods));
        let cheapest = bins.min_by_key(|bin| self.bins[*bin].price);
        filling.bin = cheapest.expect("the one that it is on");
        filling
    }

    fn holds(&self, bin: usize, pods: &[u32]) -> bool {
        let bin = self.bins[bin];
        let sum = |size: fn(&Item) -> usize| -> usize {
            let sizes = self.items.iter().zip(pods);
            sizes
                .map(|(item, count)| size(item) * usize::try_from(*count).expect("few"))
                .sum()
        };
        let mut both = self.items.iter().zip(pods);
        sum(|item| item.cpu) <= bin.cpu
            && sum(|item| item.memory) <= bin.memory
            && both.all(|(item, count)| !item.apart || *count <= 1)
    }

    /// The price of a plan, which has each pod once and no machine that holds too much.
    pub(super) fn price(&self, plan: &[Filling]) -> u64 {
        for filling in plan {
            assert!(self.holds(filling.bin, &filling.pods), "{filling:?}");
        }
        for (at, item) in self.items.iter().enumerate() {
            let placed: u32 = plan.iter().map(|filling| filling.pods[at]).sum();
            assert_eq!(placed, item.count, "pods of item {at}");
        }
        plan.iter().map(|filling| self.price_of(filling)).sum()
    }

    pub(super) fn price_of(&self, filling: &Filling) -> u64 {
        u64::from(self.bins[filling.bin].price)
    }
}

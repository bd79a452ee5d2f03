//! CPUs of hosts that machines get for themselves, in one decision: how many are free once others are planned. Which ones a machine
//! gets is said when the plan is written.

use model::reasons::HostRefused;

use crate::decision::cpu_book::CpuBook;
use crate::decision::cpus::{CpuCounts, CpuDemand, NumaCpus};
use crate::decision::turn::DecisionBuilder;
use crate::index::{HostIndex, IndexVec};
use crate::simulation::takes::Cpus;

/// What is free on each host; `None` where no machine gets any.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct CpuRooms(IndexVec<HostIndex, Option<HostCpuRoom>>);

#[derive(Clone, Debug, Hash)]
struct HostCpuRoom {
    free: CpuCounts,
    /// What machines that are planned have; nothing where there was nothing for one.
    planned: Vec<(CpuDemand, NumaCpus)>,
}

/// Nothing is free for one more machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoCpus {
    wanted: CpuDemand,
    free: usize,
}

impl CpuRooms {
    /// The free CPUs that a snapshot shows, less those of machines under way.
    pub(crate) fn of(turn: &DecisionBuilder<'_>) -> CpuRooms {
        let book = CpuBook::of(turn);
        let regions = turn.view.snapshot.regions.iter();
        let hosts = regions.flat_map(|(name, region)| {
            let book = &book;
            region.hosts.keys().map(move |host| book.at(name, host))
        });
        let rooms = hosts.map(|free| {
            Some(HostCpuRoom {
                free: free?.counts(),
                planned: Vec::new(),
            })
        });
        CpuRooms(rooms.collect())
    }

    fn at(&self, host: HostIndex) -> Option<&HostCpuRoom> {
        self.0.get(host)?.as_ref()
    }

    /// Takes what a planned machine needs.
    pub(crate) fn take(&mut self, cpus: Option<Cpus>) {
        let Some((cpus, room)) = cpus.zip(self.room(cpus)) else {
            return;
        };
        let parts = room.free.place(cpus.demand).unwrap_or_default();
        room.free.take(cpus.demand, &parts);
        room.planned.push((cpus.demand, parts));
    }

    /// Gives back what [`CpuRooms::take`] took.
    pub(crate) fn give(&mut self, cpus: Option<Cpus>) {
        let Some((cpus, room)) = cpus.zip(self.room(cpus)) else {
            return;
        };
        let mut planned = room.planned.iter();
        if let Some(at) = planned.rposition(|(demand, _)| *demand == cpus.demand) {
            let (demand, parts) = room.planned.remove(at);
            room.free.give(demand, &parts);
        }
    }

    fn room(&mut self, cpus: Option<Cpus>) -> Option<&mut HostCpuRoom> {
        self.0.get_mut(cpus?.host)?.as_mut()
    }

    /// Whether there are CPUs for one more machine, once another one's are given back.
    pub(crate) fn admit(&self, cpus: Option<Cpus>, given: Option<Cpus>) -> Result<(), NoCpus> {
        let Some(cpus) = cpus else {
            return Ok(());
        };
        if let Some(given) = given.filter(|given| given.host == cpus.host) {
            let mut back = CpuRooms(vec![self.at(cpus.host).cloned()].into());
            let at = |of: Cpus| {
                Some(Cpus {
                    host: HostIndex(0),
                    ..of
                })
            };
            back.give(at(given));
            return back.admit(at(cpus), None);
        }
        let room = self.at(cpus.host);
        let free = room.map_or(0, |room| room.free.count());
        let placed = room.and_then(|room| room.free.place(cpus.demand));
        let wanted = cpus.demand;
        placed.map(drop).ok_or(NoCpus { wanted, free })
    }
}

impl NoCpus {
    /// Why a host takes no machine.
    pub(crate) fn refusal(self) -> HostRefused {
        let CpuDemand {
            cpus,
            memory,
            page_nodes,
            ..
        } = self.wanted;
        if page_nodes > 0 {
            return HostRefused::HugePages {
                nodes: page_nodes,
                asks: memory,
            };
        }
        if self.free >= cpus as usize {
            return HostRefused::NumaMemory { cpus, asks: memory };
        }
        HostRefused::PinnedCpus {
            free: self.free,
            asks: cpus,
        }
    }
}

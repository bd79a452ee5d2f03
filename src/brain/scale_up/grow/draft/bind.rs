//! What each planned machine would be made of, within all limits of pools, hosts and the cluster together.

use std::cmp::Reverse;

use smallvec::SmallVec;

use super::state::{Draft, DraftMachine};
use super::{LaunchOption, LaunchOptionSet, Problem};
use crate::index::{
    DraftMachineIndex, HostIndex, IndexVec, LaunchOptionClassIndex, LaunchOptionIndex, PoolIndex,
    SiteIndex, TierIndex,
};
use crate::scale_up::hosts::{HostCapacity, HostRank, MachineSize};
use crate::scale_up::limits::RemainingMachines;
use crate::scale_up::numbers::NumberRooms;
use crate::scale_up::stores::Stores;

/// Planned machines that are asked to take another option or another host, at most, where limits leave no option for
/// the next machine.
pub(super) const MAX_MACHINES_ASKED: usize = 48;
/// Options of the next machine for which each of them is asked, at most.
const MAX_OPTIONS_ASKED: usize = 8;

/// Hosts of options that are asked for the price of one look ([`Problem::look`]).
const SITES_A_LOOK: usize = 16;

/// What options are ordered by where one resource runs short.
type SizeOf = fn(&LaunchOption) -> (i64, i64);

/// What limits leave.
#[derive(Clone, Debug)]
pub(super) struct RemainingLimits {
    pools: IndexVec<PoolIndex, RemainingMachines>,
    total: RemainingMachines,
    hosts: IndexVec<HostIndex, HostCapacity>,
    stores: Stores,
    numbers: NumberRooms,
}

impl RemainingMachines {
    pub(super) fn admits(&self, option: &LaunchOption) -> bool {
        self.machines > 0 && option.cpu_milli <= self.cpu_milli && option.memory <= self.memory
    }

    fn take(&mut self, option: &LaunchOption) {
        // What is taken back may go below nothing on the way; and what is configured is no reason to panic,
        // however absurd.
        self.machines = self.machines.wrapping_sub(1);
        self.cpu_milli = self.cpu_milli.wrapping_sub(option.cpu_milli);
        self.memory = self.memory.wrapping_sub(option.memory);
    }

    fn give(&mut self, option: &LaunchOption) {
        self.machines = self.machines.wrapping_add(1);
        self.cpu_milli = self.cpu_milli.wrapping_add(option.cpu_milli);
        self.memory = self.memory.wrapping_add(option.memory);
    }
}

impl LaunchOption {
    /// The order of options within a plan: tier, price, then what was not requested. Of those that limits allow the first is taken.
    pub(in crate::scale_up::grow) fn rank(&self) -> (TierIndex, i64, u32) {
        (self.tier, self.price, self.unrequested)
    }

    /// What a machine of it takes of its host.
    fn size(&self) -> MachineSize {
        MachineSize {
            cpu_milli: self.cpu_milli,
            memory: self.memory,
        }
    }
}

impl RemainingLimits {
    pub(super) fn of(problem: &Problem) -> RemainingLimits {
        RemainingLimits {
            pools: problem.pools.clone(),
            total: problem.total.clone(),
            hosts: problem.hosts.clone(),
            stores: problem.stores.clone(),
            numbers: problem.numbers.clone(),
        }
    }

    /// Whether no further machine may be made at all.
    pub(super) fn closed(&self) -> bool {
        self.total.machines == 0
    }

    /// The site for one more machine of an option: the host that its pool's strategy takes.
    pub(super) fn site(&self, problem: &Problem, option: LaunchOptionIndex) -> Option<SiteIndex> {
        let of = &problem.options[option];
        let wanted = &problem.number_demands[of.pool_region];
        if !self.total.admits(of) || !self.pools[of.pool].admits(of) || !self.numbers.admits(wanted)
        {
            return None;
        }
        let demand = &problem.demands[of.pool_region];
        let sites = of.sites.indexed();
        let sites = sites.filter(|(index, site)| {
            self.hosts[site.host].admits(demand, of.size()).is_ok()
                && self.stores.admit(&of.takes[*index]).is_ok()
        });
        let best = sites.min_by_key(|(_, site)| self.hosts[site.host].rank(demand, site.host));
        best.map(|(index, _)| index)
    }

    /// This site for one more machine of the option, if limits admit one there, else another of the same option.
    pub(super) fn site_or_other(
        &self,
        problem: &Problem,
        (option, site): (LaunchOptionIndex, SiteIndex),
    ) -> Option<(LaunchOptionIndex, SiteIndex)> {
        let best = self.site(problem, option)?;
        let of = &problem.options[option];
        let demand = &problem.demands[of.pool_region];
        let admitted = self.hosts[of.sites[site].host]
            .admits(demand, of.size())
            .is_ok()
            && self.stores.admit(&of.takes[site]).is_ok();
        Some((option, if admitted { site } else { best }))
    }

    pub(super) fn take(&mut self, problem: &Problem, option: LaunchOptionIndex, site: SiteIndex) {
        let of = &problem.options[option];
        self.pools[of.pool].take(of);
        self.total.take(of);
        self.hosts[of.sites[site].host].take(of.pool, of.size());
        self.stores.take(&of.takes[site]);
        self.numbers.take(&problem.number_demands[of.pool_region]);
    }

    pub(super) fn give(&mut self, problem: &Problem, option: LaunchOptionIndex, site: SiteIndex) {
        let of = &problem.options[option];
        self.pools[of.pool].give(of);
        self.total.give(of);
        self.hosts[of.sites[site].host].give(of.pool, of.size());
        self.stores.give(&of.takes[site]);
        self.numbers.give(&problem.number_demands[of.pool_region]);
    }

    /// Chooses the type of a planned machine, and its host: the first of these options that all limits allow, in the order of
    /// [`LaunchOption::rank`]. Where the same type of a pool has several options of one rank (on hosts that are not alike, or in several
    /// regions), the pool's strategy takes the host among all of them.
    pub(super) fn choose_option(
        &self,
        problem: &Problem,
        options: &LaunchOptionSet,
    ) -> Option<(LaunchOptionIndex, SiteIndex)> {
        let mut options = options.iter();
        let mut best = options.find_map(|option| Some((option, self.site(problem, option)?)))?;
        let first = &problem.options[best.0];
        // Those of one rank come one after the other.
        let twins = options.take_while(|option| problem.options[*option].rank() == first.rank());
        for option in twins {
            if problem.options[option].pool_type != first.pool_type {
                continue;
            }
            if let Some(site) = self.site(problem, option)
                && self.host_rank(problem, (option, site)) < self.host_rank(problem, best)
            {
                best = (option, site);
            }
        }
        Some(best)
    }

    /// How good the host of a site is for one more machine of an option.
    fn host_rank(
        &self,
        problem: &Problem,
        (option, site): (LaunchOptionIndex, SiteIndex),
    ) -> HostRank {
        let of = &problem.options[option];
        let host = of.sites[site].host;
        self.hosts[host].rank(&problem.demands[of.pool_region], host)
    }
}

impl Draft<'_> {
    /// Binds a machine to the first option that can carry it within all limits ([`RemainingLimits::choose_option`]); where there is none,
    /// another machine may have to become one of another option, or go to another host ([`Draft::make_way`], [`Draft::make_room`]). Returns whether it is bound; the
    /// caller has saved the machine and takes all back if not.
    pub(super) fn bind(&mut self, at: DraftMachineIndex) -> bool {
        if let Some((option, site)) = self.machines[at].bound.take() {
            self.limits.give(self.problem, option, site);
        }
        let found = self
            .limits
            .choose_option(self.problem, &self.machines[at].options);
        if let Some(found) = found {
            self.set(at, found);
            return true;
        }
        !self.limits.closed() && (self.make_way(at) || self.make_room(at))
    }

    /// A machine more, of this option and no other, where limits have one.
    pub(super) fn open(&mut self, option: LaunchOptionIndex) -> Option<DraftMachineIndex> {
        let site = self.limits.site(self.problem, option)?;
        let at = self.make();
        self.machines[at].options = LaunchOptionSet::none(self.problem.options.len());
        self.machines[at].options.insert(option);
        self.set(at, (option, site));
        Some(at)
    }

    /// Binds a machine to an option of the same choice whose machines are of this class, where limits have one and it can carry
    /// what is on the machine; else it stays as it is.
    pub(super) fn move_to_class(&mut self, at: DraftMachineIndex, class: LaunchOptionClassIndex) {
        let problem = self.problem;
        let Some((option, site)) = self.machines[at].bound else {
            return;
        };
        self.limits.give(problem, option, site);
        let choice = problem.options[option].choice;
        let found = {
            let options = self.machines[at].options.iter();
            let mut options = options.filter(|other| {
                let of = &problem.options[*other];
                of.choice == choice && of.class == class
            });
            options.find_map(|other| Some((other, self.limits.site(problem, other)?)))
        };
        self.set(at, found.unwrap_or((option, site)));
    }

    pub(super) fn set(
        &mut self,
        at: DraftMachineIndex,
        (option, site): (LaunchOptionIndex, SiteIndex),
    ) {
        self.limits.take(self.problem, option, site);
        self.machines[at].bound = Some((option, site));
    }

    /// How many looks it takes to ask the hosts of all options of a machine: with many types on many hosts that is most of the work.
    fn looks_at_sites(&self, at: DraftMachineIndex) -> usize {
        let options = self.machines[at].options.iter();
        let sites = options.map(|option| self.problem.options[option].sites.len());
        1 + sites.sum::<usize>() / SITES_A_LOOK
    }

    /// Binds a machine to an option that another makes way for, by becoming one of another option or going to another host.
    fn make_way(&mut self, at: DraftMachineIndex) -> bool {
        let mut asked = 0;
        let looks = self.looks_at_sites(at);
        for other in self.machines.indexes() {
            let Some((option, site)) = self.machines[other].bound.filter(|_| other != at) else {
                continue;
            };
            asked += 1;
            if asked > MAX_MACHINES_ASKED || !self.problem.look(looks) {
                return false;
            }
            self.limits.give(self.problem, option, site);
            let wanted = self.machines[at].options.iter();
            let wanted =
                wanted.filter_map(|mine| Some((mine, self.limits.site(self.problem, mine)?)));
            let wanted: SmallVec<[_; MAX_OPTIONS_ASKED]> = wanted.take(MAX_OPTIONS_ASKED).collect();
            for (mine, mine_site) in wanted {
                self.limits.take(self.problem, mine, mine_site);
                let instead = self
                    .limits
                    .choose_option(self.problem, &self.machines[other].options);
                self.limits.give(self.problem, mine, mine_site);
                if let Some(instead) = instead {
                    self.save(other);
                    self.set(other, instead);
                    self.set(at, (mine, mine_site));
                    return true;
                }
            }
            self.limits.take(self.problem, option, site);
        }
        false
    }

    /// Binds all machines again, each to the smallest option that can carry it: where memory or CPUs of hosts, pools or the cluster run
    /// short, several may have to become smaller and more expensive ones, for one more. [`Draft::rebind`] makes them cheaper again as far as
    /// limits allow.
    fn make_room(&mut self, at: DraftMachineIndex) -> bool {
        if self.machines.len() > MAX_MACHINES_ASKED {
            return false;
        }
        let sizes: [SizeOf; 2] = [
            |of| (of.memory, of.cpu_milli),
            |of| (of.cpu_milli, of.memory),
        ];
        sizes.into_iter().any(|size| self.bind_smallest(at, size))
    }

    /// [`Draft::make_room`] by one measure; all is as it was where not every machine finds an option.
    fn bind_smallest(
        &mut self,
        at: DraftMachineIndex,
        size: impl Fn(&LaunchOption) -> (i64, i64),
    ) -> bool {
        let options = &self.problem.options;
        let least = |machine: &DraftMachine| {
            machine
                .options
                .iter()
                .map(|option| size(&options[option]))
                .min()
        };
        let bound = |machine: &DraftMachine| Some(size(&options[machine.bound?.0]));
        let others = self.machines.indexes();
        let others: Vec<DraftMachineIndex> = others
            .filter(|other| *other != at && self.machines[*other].bound.is_some())
            .collect();
        let smaller = |other: &&DraftMachineIndex| {
            let machine = &self.machines[**other];
            least(machine).map(|(first, _)| first) < bound(machine).map(|(first, _)| first)
        };
        // One alone has been asked to make way.
        let looks = others.len().saturating_mul(self.looks_at_sites(at));
        if others.iter().filter(smaller).count() < 2 || !self.problem.look(looks) {
            return false;
        }
        // The largest first, which fit on fewest hosts.
        let mut order: Vec<DraftMachineIndex> = others.iter().copied().chain([at]).collect();
        order.sort_by_key(|one| Reverse(least(&self.machines[*one])));
        let mark = self.mark();
        for other in others {
            self.save(other);
            self.unbook(other);
            self.machines[other].bound = None;
        }
        for one in order {
            let possible = self.machines[one].options.iter();
            let mut possible: SmallVec<[LaunchOptionIndex; 16]> = possible.collect();
            possible.sort_by_key(|option| size(&self.problem.options[*option]));
            let found = possible
                .into_iter()
                .find_map(|option| Some((option, self.limits.site(self.problem, option)?)));
            match found {
                Some(found) => self.set(one, found),
                None => {
                    self.unbook(at);
                    self.machines[at].bound = None;
                    self.rollback(mark);
                    return false;
                }
            }
        }
        true
    }

    /// Binds every machine to the cheapest option that limits let it have now, or have if another makes way for less.
    pub(super) fn rebind(&mut self) {
        for at in self.machines.indexes().rev() {
            if self.machines[at].load.counts.is_empty() {
                continue;
            }
            let Some((option, site)) = self.machines[at].bound else {
                continue;
            };
            if self.machines[at].options.first() == Some(option) {
                continue;
            }
            self.save(at);
            self.limits.give(self.problem, option, site);
            let found = self
                .limits
                .choose_option(self.problem, &self.machines[at].options);
            self.set(at, found.unwrap_or((option, site)));
        }
        self.exchange_options();
    }
}

//! Makes a world around a plan, with the second opinion's filters: a pod of the plan is laid where they let it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::lab::{GI, Lab, lab};
use super::super::naive::Naive;
use super::super::naive::spots;
use super::super::regions::{self, Second};
use super::super::sizing::{SIZES, SeededRng};
use super::super::wide::claims::within;
use super::kinds::{Feature, Kind, Limit, With};
use filters::{NodeInfo, NodeInfos, Site};
use model::cluster::{Claim, ObjectKey, PersistentVolume, Phase, StorageClass};
use model::decision::Decision;
use model::policy::{POOL_LABEL, REGION_LABEL, ZONE_LABEL, ZoneNames};
use model::region::Step;
use model::resources::Resources;
use model::scheduling::{
    HOSTNAME_LABEL, HostPort, LabelSelector, Labels, PodShape, PodTerm, SpreadConstraint, Taint,
    Toleration, Volume,
};

const HOSTS: [&str; 3] = ["pve1", "pve2", "pve3"];
const DRIVER: &str = "csi.example.com";
const GPU: &str = "example.com/gpu";
/// Cores and GiB, in ratios that few worlds have.
const ODD: [(u32, i64); 12] = [
    (1, 16),
    (16, 16),
    (3, 5),
    (2, 3),
    (7, 9),
    (5, 40),
    (24, 24),
    (2, 64),
    (16, 12),
    (1, 1),
    (6, 7),
    (9, 50),
];

/// A machine of the plan.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    name: Arc<str>,
    region: Arc<str>,
    host: Arc<str>,
    pool: Arc<str>,
    kind: Arc<str>,
}

/// A world with its plan.
#[derive(Clone, Debug)]
pub(super) struct World {
    /// Without limits.
    base: Lab,
    machines: Vec<Machine>,
    /// Where pods that wait go: all but those of a lower priority.
    pub(super) on: Vec<(ObjectKey, Arc<str>)>,
    pub(super) limit: Limit,
    /// What it costs may be compared.
    pub(super) priced: bool,
}

/// What is thrown on the way.
struct Planter<'k> {
    kind: &'k Kind,
    rng: SeededRng,
    lab: Lab,
    machines: Vec<Machine>,
    /// Names of groups.
    groups: Vec<String>,
}

impl World {
    pub(super) fn plant(kind: &Kind, pods: usize, case: u64) -> Option<World> {
        let seed = kind.name.bytes().fold(case, |seed, byte| {
            seed.wrapping_mul(257).wrapping_add(u64::from(byte))
        });
        let mut planter = Planter {
            kind,
            rng: SeededRng::new(seed),
            lab: lab(),
            machines: Vec::new(),
            groups: Vec::new(),
        };
        planter.throw_types();
        planter.throw_pools();
        planter.throw_nodes();
        planter.throw_machines(pods);
        let on = planter.throw_pods(pods);
        let has = |with| kind.with.contains(&with);
        let weights = planter
            .lab
            .policy
            .pools
            .values()
            .flat_map(model::policy::PoolPolicy::everywhere)
            .map(|pool| pool.weight)
            .collect::<BTreeSet<_>>();
        // A few worlds in a row have limits of all kinds.
        let limit = Limit::ALL[usize::try_from(case).expect("few") * 5 % Limit::ALL.len()];
        let mut world = World {
            base: planter.lab,
            machines: planter.machines,
            on,
            limit,
            priced: weights.len() < 2 && !has(With::Noise) && limit != Limit::InFlight,
        };
        world.drop_unused();
        world.priced &= !world.leaves_zones_out();
        if has(With::Settled) {
            world.settle();
        }
        if world.on.is_empty() || !world.holds() {
            return None;
        }
        if has(With::Min) {
            world.set_mins(&mut planter.rng);
        }
        if has(With::Noise) {
            world.add_noise(&mut planter.rng);
        }
        Some(world)
    }

    pub(super) fn drop_unused(&mut self) {
        let on = &self.on;
        self.machines
            .retain(|machine| on.iter().any(|(_, at)| *at == machine.name));
    }

    /// Whether pods are spread over zones of which the plan leaves some without a machine: plans open these too, and cost more.
    fn leaves_zones_out(&self) -> bool {
        let pods = self.base.snapshot.cluster.pods.values();
        let spread = pods.flat_map(|pod| &pod.shape.spread);
        let spread = spread.filter(|of| of.hard && *of.topology_key == *ZONE_LABEL);
        let regions = self.base.snapshot.regions.len();
        let all = self.all();
        let zones: BTreeSet<[&Arc<str>; 2]> = all.iter().map(|it| [&it[0], &it[1]]).collect();
        spread.count() > 0 && zones.len() < HOSTS.len() * regions
    }

    /// Pods that the plan has on nodes run there, and those that fit on a node are taken away.
    fn settle(&mut self) {
        let nodes = &self.base.snapshot.cluster.nodes;
        let (stand, wait) = std::mem::take(&mut self.on)
            .into_iter()
            .partition(|(_, at)| nodes.contains_key(at));
        self.on = wait;
        let stand: Vec<(ObjectKey, Arc<str>)> = stand;
        for (key, node) in stand {
            bind(&mut self.base, &key, node);
        }
        let base = self.base.clone();
        let alone = World {
            machines: Vec::new(),
            ..self.clone()
        };
        let naive = opinion(&base, alone.spots());
        for (key, _) in self.on.clone() {
            if (0..naive.world.nodes.len()).any(|at| naive.fits(&key, at).is_ok()) {
                self.base.snapshot.cluster.pods.remove(&key);
                self.on.retain(|(other, _)| *other != key);
            }
        }
        self.drop_unused();
    }

    /// How many of a pool's machines there are and are planned.
    fn of_pool(&self, pool: &str) -> u32 {
        let there = self.base.snapshot.machines.values();
        let there = there.filter(|machine| machine.mark.pool == pool).count();
        let planned = self
            .machines
            .iter()
            .filter(|machine| *machine.pool == *pool);
        u32::try_from(there + planned.count()).expect("few")
    }

    fn set_mins(&mut self, rng: &mut SeededRng) {
        let names: Vec<Arc<str>> = self.base.policy.pools.keys().cloned().collect();
        for name in names {
            let most = usize::try_from(self.of_pool(&name)).expect("few");
            let min = u32::try_from(rng.below(most + 1)).expect("few");
            edit_pool(&mut self.base, &name, |pool| pool.min = min);
        }
    }

    fn add_noise(&mut self, rng: &mut SeededRng) {
        let count = 1 + rng.below(self.on.len());
        for at in 0..count {
            let milli = rng.one(&[100, 500, 1000, 3000]);
            let mib = rng.one(&[128, 1024, 4096]);
            let name = format!("noise{}-{at}", at % 3);
            let lab = self.base.clone().pod(&name, milli, mib);
            let groups: Vec<String> = self.on.iter().map(|(key, _)| app_of(&key.name)).collect();
            let other = groups[rng.below(groups.len())].clone();
            let twist = rng.below(6);
            self.base = lab.shape(&name, |shape| {
                shape.priority = -1;
                match twist {
                    0 => shape.pod_anti_affinity.push(term(&other, HOSTNAME_LABEL)),
                    1 => shape.pod_affinity.push(term(&other, HOSTNAME_LABEL)),
                    2 => shape.pod_anti_affinity.push(term(&other, ZONE_LABEL)),
                    3 => shape.spread.push(spread(1, ZONE_LABEL, &other)),
                    _ => {}
                }
            });
        }
    }

    /// What the machines of the plan cost.
    pub(super) fn price(&self) -> i64 {
        let policy = &self.base.policy;
        let prices = self.machines.iter().map(|machine| {
            let kind = &policy.instance_types[&machine.kind];
            let default = i64::from(kind.cores) * 20_000 + kind.memory / GI * 10_000;
            policy.price_in(&machine.region, kind.price.unwrap_or(default))
        });
        prices.sum()
    }

    fn spots(&self) -> Vec<NodeInfo> {
        let nothing = Decision {
            plan: Vec::new(),
            report: model::report::Report::default(),
            memory: model::memory::Memory::default(),
            wake: None,
        };
        let mut spots = spots::all(&self.base, &nothing);
        spots.extend(
            self.machines
                .iter()
                .map(|machine| spot(&self.base, machine)),
        );
        spots
    }

    /// Whether the plan is one: the second opinion lays all its pods down.
    pub(super) fn holds(&self) -> bool {
        let mut naive = opinion(&self.base, self.spots());
        naive.lay_all(&self.on).is_ok()
    }

    /// The world with its limit.
    pub(super) fn build(&self) -> Lab {
        let mut lab = self.base.clone();
        let limits = match self.limit {
            Limit::Several => vec![
                Limit::PoolMax(0),
                Limit::HostMemory(0),
                Limit::TotalCores,
                Limit::PoolMemory,
            ],
            one => vec![one],
        };
        for limit in limits {
            self.set_limit(&mut lab, limit);
        }
        lab
    }

    /// Each machine there is and that is planned: region, host, pool, type.
    fn all(&self) -> Vec<[Arc<str>; 4]> {
        let there = self.base.snapshot.machines.values().map(|machine| {
            let mark = &machine.mark;
            let (pool, kind) = (Arc::from(&*mark.pool), Arc::from(&*mark.instance_type));
            [machine.region.clone(), machine.host.clone(), pool, kind]
        });
        let planned = self.machines.iter().map(|machine| {
            [
                machine.region.clone(),
                machine.host.clone(),
                machine.pool.clone(),
                machine.kind.clone(),
            ]
        });
        there.chain(planned).collect()
    }

    fn set_limit(&self, lab: &mut Lab, limit: Limit) {
        let all = self.all();
        let kind = |name: &Arc<str>| &self.base.policy.instance_types[name];
        let sum = |of: &dyn Fn(&[Arc<str>; 4]) -> bool| -> (i64, i64) {
            let kinds = all.iter().filter(|it| of(it)).map(|it| kind(&it[3]));
            let sizes = kinds.map(|kind| (i64::from(kind.cores) * 1000, kind.memory));
            sizes.fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1))
        };
        let mut of_pool_by_host: BTreeMap<[Arc<str>; 3], u32> = BTreeMap::new();
        for [region, host, pool, _] in &all {
            let key = [region.clone(), host.clone(), pool.clone()];
            *of_pool_by_host.entry(key).or_default() += 1;
        }
        let pools: Vec<Arc<str>> = lab.policy.pools.keys().cloned().collect();
        let regions: Vec<Arc<str>> = lab.policy.regions.keys().cloned().collect();
        match limit {
            Limit::None | Limit::Several => {}
            Limit::PoolMax(more) => {
                for pool in pools {
                    let max = self.of_pool(&pool) + more;
                    edit_pool(lab, &pool, |pool| pool.max = max);
                }
            }
            Limit::NodesTotal => {
                let others = lab.snapshot.cluster.nodes.keys();
                let others = others.filter(|name| !lab.snapshot.machines.contains_key(*name));
                let most = all.len() + others.count();
                lab.policy.scale_up.max_nodes_total = u32::try_from(most).expect("few");
            }
            Limit::HostMemory(_) | Limit::HostCores | Limit::PerHost => {
                self.limit_hosts(lab, limit);
            }
            Limit::PoolPerHost => {
                for pool in pools {
                    let of = of_pool_by_host.iter().filter(|(key, _)| key[2] == pool);
                    let most = of.map(|(_, count)| *count).max().unwrap_or(1);
                    edit_pool(lab, &pool, |pool| pool.host_rules.max_per_host = Some(most));
                }
            }
            Limit::PoolCores | Limit::PoolMemory => {
                for pool in pools {
                    let (cores, memory) = sum(&|it| it[2] == pool);
                    edit_pool(lab, &pool, |pool| match limit {
                        Limit::PoolCores => pool.max_cpu_milli = Some(cores),
                        _ => pool.max_memory = Some(memory),
                    });
                }
            }
            Limit::TotalCores => {
                lab.policy.totals.max_cpu_milli = Some(sum(&|_| true).0);
            }
            Limit::TotalMemory => lab.policy.totals.max_memory = Some(sum(&|_| true).1),
            Limit::InFlight => {
                let coming = lab.snapshot.machines.values();
                let coming = coming.filter(|it| it.node.is_none()).count();
                let most = self.machines.len() + coming;
                lab.policy.scale_up.max_in_flight = u32::try_from(most.max(1)).expect("few");
            }
            Limit::Vmids => {
                for region in regions {
                    let count = all.iter().filter(|it| it[0] == region).count().max(1);
                    let policy = lab.policy.regions.get_mut(&region).expect("it is there");
                    policy.vmid_last = policy.vmid_first + u32::try_from(count).expect("few") - 1;
                }
            }
        }
    }

    /// What all pools together may take of each host.
    fn limit_hosts(&self, lab: &mut Lab, limit: Limit) {
        let all = self.all();
        let kind = |it: &[Arc<str>; 4]| &self.base.policy.instance_types[&it[3]];
        let regions: Vec<Arc<str>> = lab.policy.regions.keys().cloned().collect();
        for region in regions {
            let state = lab.snapshot.regions.get_mut(&region).expect("it is there");
            let policy = lab.policy.regions.get_mut(&region).expect("it is there");
            let mut most = 1;
            for (name, host) in &mut state.hosts {
                let here = |it: &&[Arc<str>; 4]| it[0] == region && it[1] == *name;
                let here = || all.iter().filter(here);
                match limit {
                    Limit::HostMemory(more) => {
                        let memory: i64 = here().map(|it| kind(it).memory).sum();
                        host.memory = (memory + more * GI).max(GI / 2);
                    }
                    Limit::HostCores => {
                        // The core more is the reserve.
                        host.cpus = here().map(|it| kind(it).cores).sum::<u32>() + 1;
                        policy.capacity.cpu_overcommit_permille = Some(1000);
                        policy.capacity.cpu_reserve_milli = 1000;
                    }
                    _ => {
                        most = most.max(u32::try_from(here().count()).expect("few"));
                        policy.capacity.max_per_host = Some(most);
                    }
                }
            }
        }
    }

    /// The world made smaller while it still fails, and still has its plan.
    pub(super) fn shrink(mut self, fails: &dyn Fn(&World) -> bool) -> World {
        loop {
            let before = self.size();
            let keys: Vec<ObjectKey> = self.base.snapshot.cluster.pods.keys().cloned().collect();
            for key in keys {
                let mut less = self.clone();
                less.on.retain(|(other, _)| *other != key);
                less.base.snapshot.cluster.pods.remove(&key);
                less.drop_unused();
                self.take(less, fails);
            }
            self.shrink_nodes(fails);
            self.shrink_policy(fails);
            self.simplify(fails);
            if self.size() == before {
                return self;
            }
        }
    }

    fn size(&self) -> usize {
        let (policy, cluster) = (&self.base.policy, &self.base.snapshot.cluster);
        let types = policy.pools.values().map(|pool| pool.instance_types.len());
        cluster.pods.keys().count()
            + cluster.nodes.len()
            + cluster.daemon_sets.len()
            + self.base.snapshot.machines.len()
            + policy.pools.len()
            + types.sum::<usize>()
    }

    /// Takes nodes, machines and DaemonSets away one by one.
    fn shrink_nodes(&mut self, fails: &dyn Fn(&World) -> bool) {
        let snapshot = &self.base.snapshot;
        let nodes = snapshot.cluster.nodes.keys();
        let names: BTreeSet<Arc<str>> = nodes.chain(snapshot.machines.keys()).cloned().collect();
        let sets: Vec<ObjectKey> = snapshot.cluster.daemon_sets.keys().cloned().collect();
        for name in names {
            let mut less = self.clone();
            less.base.snapshot.cluster.nodes.remove(&name);
            let pods = &self.base.snapshot.cluster.pods;
            let used = pods.values().any(|pod| pod.node.as_ref() == Some(&name));
            if used || self.on.iter().any(|(_, at)| *at == name) {
                continue;
            }
            less.base.snapshot.machines.remove(&name);
            for region in less.base.snapshot.regions.values_mut() {
                region.vms.retain(|_, vm| vm.name != name);
            }
            self.take(less, fails);
        }
        for key in sets {
            let mut less = self.clone();
            less.base.snapshot.cluster.daemon_sets.remove(&key);
            self.take(less, fails);
        }
    }

    /// Takes pools and types away that the plan does not use.
    fn shrink_policy(&mut self, fails: &dyn Fn(&World) -> bool) {
        let names: Vec<Arc<str>> = self.base.policy.pools.keys().cloned().collect();
        for name in names {
            if self.of_pool(&name) == 0 && self.base.policy.pools.len() > 1 {
                let mut less = self.clone();
                less.base.policy.pools.remove(&name);
                self.take(less, fails);
            }
            let kinds = self.base.policy.pools.get(&name);
            let kinds = kinds.map_or_else(Vec::new, |pool| pool.instance_types.clone());
            for kind in kinds {
                let used = self.all().iter().any(|it| it[2] == name && it[3] == kind);
                let mut less = self.clone();
                if used || !less.base.policy.pools.contains_key(&name) {
                    continue;
                }
                edit_pool(&mut less.base, &name, |pool| {
                    pool.instance_types.retain(|other| *other != kind);
                });
                if !less.base.policy.pools[&name].instance_types.is_empty() {
                    self.take(less, fails);
                }
            }
        }
    }

    /// Takes rules from pods one by one.
    fn simplify(&mut self, fails: &dyn Fn(&World) -> bool) {
        let rules: [fn(&mut PodShape); 10] = [
            |shape| shape.spread.clear(),
            |shape| shape.pod_affinity.clear(),
            |shape| shape.pod_anti_affinity.clear(),
            |shape| shape.tolerations.clear(),
            |shape| shape.node_selector.clear(),
            |shape| shape.node_affinity = None,
            |shape| shape.host_ports.clear(),
            |shape| shape.volumes.clear(),
            |shape| {
                shape.preferred_nodes.clear();
                shape.preferred_anti_pods.clear();
            },
            |shape| shape.priority = 0,
        ];
        let keys: Vec<ObjectKey> = self.base.snapshot.cluster.pods.keys().cloned().collect();
        for key in keys {
            for rule in rules {
                let mut less = self.clone();
                let pods = &mut less.base.snapshot.cluster.pods;
                let pod = pods.get_mut(&key).expect("it is there");
                let mut shape = (*pod.shape).clone();
                rule(&mut shape);
                if shape == *pod.shape {
                    continue;
                }
                pod.shape = Arc::new(shape);
                self.take(less, fails);
            }
        }
    }

    fn take(&mut self, less: World, fails: &dyn Fn(&World) -> bool) {
        if !less.on.is_empty() && less.holds() && fails(&less) {
            *self = less;
        }
    }

    /// The plan in words.
    pub(super) fn tell(&self) -> String {
        use std::fmt::Write as _;
        let mut text = format!("\nlimit {:?}, price {}\n", self.limit, self.price());
        for Machine {
            name,
            region,
            host,
            pool,
            kind,
        } in &self.machines
        {
            let on = self.on.iter().filter(|(_, at)| at == name);
            let on: Vec<&str> = on.map(|(key, _)| &*key.name).collect();
            let _ = writeln!(
                text,
                "  {name}: {pool}/{kind} on {region}/{host}: {}",
                on.join(" ")
            );
        }
        for (key, at) in &self.on {
            if !self.machines.iter().any(|machine| machine.name == *at) {
                let _ = writeln!(text, "  {} on {at}", key.name);
            }
        }
        text
    }
}

fn bind(lab: &mut Lab, key: &ObjectKey, node: Arc<str>) {
    let pod = lab.snapshot.cluster.pods.get_mut(key).expect("laid");
    pod.node = Some(node);
    pod.phase = Phase::Running;
    pod.unschedulable_since = None;
    pod.ready = true;
}

/// The second opinion on a world with these spots.
pub(super) fn opinion(lab: &Lab, nodes: Vec<NodeInfo>) -> Naive<'_> {
    let world = NodeInfos {
        nodes,
        cluster: &lab.snapshot.cluster,
        default_spread: &lab.policy.scale_up.default_spread,
        claims_come: true,
        gone: Vec::new(),
    };
    Naive { lab, world }
}

fn spot(lab: &Lab, machine: &Machine) -> NodeInfo {
    let Machine {
        name,
        region,
        host,
        pool,
        kind,
    } = machine;
    let mut spot = spots::template(lab, name, pool, kind, host, Site::Planned);
    name_place(lab, &mut spot, region, host);
    spot.empty = false;
    spot
}

/// The spot is in this region, on this host.
pub(super) fn name_place(lab: &Lab, spot: &mut NodeInfo, region: &Arc<str>, host: &Arc<str>) {
    let zone = lab.policy.zone_of(region, host);
    spot.labels.insert(ZONE_LABEL.into(), zone);
    spot.labels.insert(REGION_LABEL.into(), region.clone());
}

fn edit_pool(lab: &mut Lab, name: &str, change: impl Fn(&mut model::policy::PoolPolicy)) {
    let pool = lab.policy.pools.get_mut(name).expect("a pool of this name");
    change(pool);
    for there in pool.further.values_mut() {
        change(there);
    }
}

fn app_of(pod: &str) -> String {
    pod.rsplit_once('-').map_or(pod, |(app, _)| app).to_owned()
}

fn selector(app: &str) -> LabelSelector {
    LabelSelector {
        labels: Labels::from([("app".into(), app.into())]),
        ..LabelSelector::default()
    }
}

fn term(app: &str, key: &str) -> PodTerm {
    PodTerm {
        selector: Some(selector(app)),
        topology_key: key.into(),
        ..PodTerm::default()
    }
}

fn spread(skew: i32, key: &str, app: &str) -> SpreadConstraint {
    SpreadConstraint {
        max_skew: skew,
        topology_key: key.into(),
        hard: true,
        selector: Some(selector(app)),
        min_domains: None,
        match_label_keys: Vec::new(),
        honor_affinity: true,
        honor_taints: false,
    }
}

impl Planter<'_> {
    fn has(&self, with: With) -> bool {
        self.kind.with.contains(&with)
    }

    fn throw_types(&mut self) {
        let odd = self.has(With::OddTypes);
        let count = self.rng.one(&[1, 2, 3, 3, 4, 6, 10]);
        let mut sizes = if odd { ODD.to_vec() } else { SIZES.to_vec() };
        let mut lab = std::mem::replace(&mut self.lab, lab());
        let prices = if odd { self.rng.below(4) } else { 0 };
        let gpus = self.has(With::Gpus);
        let attach = self.has(With::AttachLimits).then(|| 1 + self.rng.below(4));
        for at in 0..count {
            let (cores, gib) = sizes.remove(self.rng.below(sizes.len()));
            let name = format!("t{at}");
            lab = lab.kind(&name, cores, gib << 10);
            let default = i64::from(cores) * 20_000 + gib * 10_000;
            let price = match prices {
                0 => None,
                1 => Some(50_000),
                2 => Some(default * i64::try_from(50 + self.rng.below(100)).expect("few") / 100),
                _ if at == 0 => Some(0),
                _ => None,
            };
            let gpu = gpus && (at == 0 || self.rng.below(3) == 0);
            let devices = 1 + i64::try_from(self.rng.below(4)).expect("few");
            lab = lab.edit_kind(&name, |kind| {
                kind.price = price;
                if gpu {
                    kind.extended.insert(GPU.into(), devices);
                    kind.price = Some(default + devices * 100_000);
                }
                if let Some(limit) = attach {
                    let limit = i32::try_from(limit).expect("few");
                    kind.attach_limits.insert(DRIVER.into(), limit);
                }
            });
        }
        self.lab = lab;
    }

    fn throw_pools(&mut self) {
        let kinds: Vec<Arc<str>> = self.lab.policy.instance_types.keys().cloned().collect();
        let count = if self.has(With::Pools) {
            2 + self.rng.below(2)
        } else {
            1
        };
        for at in 0..count {
            let name = ["a", "b", "c"][at];
            let mut mine: Vec<&str> = Vec::new();
            for kind in &kinds {
                if count == 1 || self.rng.below(2) == 0 {
                    mine.push(kind);
                }
            }
            if mine.is_empty() {
                mine.push(&kinds[self.rng.below(kinds.len())]);
            }
            let lab = std::mem::replace(&mut self.lab, lab());
            let mut lab = lab.pool(name, &mine);
            let weights = self.has(With::Weights);
            let (few, several) = (self.has(With::FewSlots), count > 1);
            let reserved = self.has(With::Reserved);
            let rng = &mut self.rng;
            lab = lab.edit_pool(name, |pool| {
                pool.labels.insert("tier".into(), name.into());
                if several && rng.below(3) == 0 {
                    pool.taints.push(Taint::no_schedule("team", "x"));
                }
                if several && rng.below(4) == 0 {
                    pool.hosts = vec![HOSTS[rng.below(3)].into(), HOSTS[rng.below(3)].into()];
                    pool.hosts.sort();
                    pool.hosts.dedup();
                }
                if weights {
                    pool.weight = i32::try_from(rng.below(3)).expect("few");
                }
                if few {
                    pool.max_pods = u32::try_from(2 + rng.below(4)).expect("few");
                }
                if reserved && rng.below(2) == 0 {
                    pool.reserved.cpu_milli = 120;
                    pool.reserved.memory = 300 << 20;
                }
            });
            self.lab = lab;
        }
        if self.has(With::Regions) {
            self.throw_regions();
        }
        if self.has(With::Daemons) {
            self.throw_daemons();
        }
        self.add_classes();
    }

    fn throw_regions(&mut self) {
        let second = self.rng.one(&[Second::There, Second::There, Second::Dear]);
        regions::split(&mut self.lab, second);
        if self.rng.below(2) == 0 {
            for region in self.lab.policy.regions.values_mut() {
                region.zones = ZoneNames::RegionHost;
            }
        }
        if self.rng.below(3) == 0 {
            for pool in self.lab.policy.pools.values_mut() {
                pool.weight = 1;
            }
        }
    }

    fn throw_daemons(&mut self) {
        let count = 1 + self.rng.below(2);
        for at in 0..count {
            let milli = self.rng.one(&[50, 100, 200]);
            let lab = std::mem::replace(&mut self.lab, lab());
            self.lab = lab.daemon(&format!("agent{at}"), milli, 128);
            let everywhere = self.rng.below(2) == 0;
            let key = ObjectKey::new("kube-system", format!("agent{at}"));
            let set = self
                .lab
                .snapshot
                .cluster
                .daemon_sets
                .get_mut(&key)
                .expect("made");
            if everywhere {
                Arc::make_mut(&mut set.shape).tolerations.push(Toleration {
                    exists: true,
                    ..Toleration::default()
                });
            }
        }
    }

    fn add_classes(&mut self) {
        let class = |topologies| StorageClass {
            provisioner: DRIVER.into(),
            wait_for_consumer: true,
            topologies,
            ..StorageClass::default()
        };
        let classes = &mut self.lab.snapshot.cluster.storage_classes;
        classes.insert("sc".into(), class(Vec::new()));
        let two = vec![within(ZONE_LABEL, &["pve1", "pve3"])];
        classes.insert("two".into(), class(two));
    }

    /// A pool, one of its types, a region and a host where it may be.
    fn choice(&mut self) -> [Arc<str>; 4] {
        let pools: Vec<Arc<str>> = self.lab.policy.pools.keys().cloned().collect();
        let name = pools[self.rng.below(pools.len())].clone();
        let pool = self.lab.policy.pools[&name].clone();
        let kind = pool.instance_types[self.rng.below(pool.instance_types.len())].clone();
        let there: Vec<_> = pool.everywhere().cloned().collect();
        let there = &there[self.rng.below(there.len())];
        let hosts: Vec<&str> = HOSTS
            .into_iter()
            .filter(|host| there.may_use(host))
            .collect();
        let host = hosts[self.rng.below(hosts.len())];
        [name, kind, there.region.clone(), host.into()]
    }

    /// Nodes there are, and machines on their way.
    fn throw_nodes(&mut self) {
        let mut names: Vec<Arc<str>> = Vec::new();
        if self.has(With::Nodes) {
            for at in 0..self.rng.below(4) {
                let name = format!("n{at}");
                let [pool, kind, _, host] = self.choice();
                let lab = std::mem::replace(&mut self.lab, lab());
                let bare = self.rng.below(4);
                let lab = if self.rng.below(3) == 0 {
                    let zoned = |lab: Lab| {
                        lab.edit_node(&name, |node| {
                            if bare > 0 {
                                node.labels.insert(ZONE_LABEL.into(), host.clone());
                            }
                        })
                    };
                    zoned(lab.node(&name, 4000, 8192))
                } else {
                    lab.ours(&name, &pool, &kind).on_host(&name, &host)
                };
                self.lab = lab;
                if self.has(With::AttachLimits) {
                    let kinds = &self.lab.policy.instance_types;
                    let limit = kinds
                        .values()
                        .find_map(|kind| kind.attach_limits.get(DRIVER));
                    let said = [(Arc::from(DRIVER), limit.copied())].into();
                    let nodes = &mut self.lab.snapshot.cluster.csi_nodes;
                    nodes.insert(name.as_str().into(), said);
                }
                names.push(name.into());
            }
        }
        if self.has(With::Coming) {
            for at in 0..self.rng.below(3) {
                let name = format!("m{at}");
                let [pool, kind, _, host] = self.choice();
                let lab = std::mem::replace(&mut self.lab, lab());
                let mut lab = lab.machine(&name, &pool, &kind, Step::Agent);
                let machine = lab.snapshot.machines.get_mut(&*name).expect("made");
                machine.host = host.clone();
                let vmid = machine.mark.vmid;
                let home = lab.snapshot.regions.get_mut("home").expect("home");
                home.vms.get_mut(&vmid).expect("made").host = host;
                self.lab = lab;
            }
        }
        let sets: Vec<_> = self
            .lab
            .snapshot
            .cluster
            .daemon_sets
            .clone()
            .into_iter()
            .collect();
        for node in names {
            for (key, set) in &sets {
                let runs =
                    filters::bears(&set.shape, &self.lab.snapshot.cluster.nodes[&node].taints);
                if runs {
                    let name = format!("{}-{node}", key.name);
                    let lab = std::mem::replace(&mut self.lab, lab());
                    self.lab = lab.bound(&name, &node, 0, 0).edit(&name, |pod| {
                        pod.shape = set.shape.clone();
                    });
                }
            }
        }
    }

    fn throw_machines(&mut self, pods: usize) {
        let few = self.rng.below(2) == 0;
        let count = if few {
            1 + pods / 8 + self.rng.below(pods / 8 + 1)
        } else {
            (pods / 4).max(2) + self.rng.below(pods / 6 + 1)
        };
        for at in 0..count {
            let [pool, kind, region, host] = self.choice();
            self.machines.push(Machine {
                name: format!("h{at}").into(),
                region,
                host,
                pool,
                kind,
            });
        }
    }

    fn size_of_pods(&mut self) -> (i64, i64) {
        let rng = &mut self.rng;
        if rng.below(2) == 0 {
            let milli = rng.one(&[100, 250, 500, 500, 1000, 1000, 1500, 2000, 3000]);
            let mib = rng.one(&[128, 256, 512, 1024, 1024, 2048, 3072, 4096]);
            return (milli, mib);
        }
        let kinds: Vec<_> = self.lab.policy.instance_types.values().collect();
        let kind = kinds[rng.below(kinds.len())];
        let part = |whole: i64, step: i64, rng: &mut SeededRng| {
            (whole * rng.one(&[1, 2, 3, 4, 6, 8, 10, 12]) / 24 / step * step).max(step)
        };
        let milli = part(i64::from(kind.cores) * 1000, 50, rng);
        (milli, part(kind.memory >> 20, 64, rng))
    }

    /// Throws pods, and lays them down until there are so many that wait.
    fn throw_pods(&mut self, most: usize) -> Vec<(ObjectKey, Arc<str>)> {
        let existing = self.lab.snapshot.cluster.nodes.len();
        let bound_groups = if existing > 0 {
            1 + self.rng.below(3)
        } else {
            0
        };
        let mut thrown = 0;
        let mut at = 0;
        while thrown < 2 * most + 4 {
            let count = 1 + self.rng.below(if most > 20 { 10 } else { 5 });
            self.throw_group(&format!("g{at}"), count);
            thrown += count;
            at += 1;
        }
        let world = World {
            base: self.lab.clone(),
            machines: self.machines.clone(),
            on: Vec::new(),
            limit: Limit::None,
            priced: true,
        };
        let base = self.lab.clone();
        let mut naive = opinion(&base, world.spots());
        let mut on: Vec<(ObjectKey, Arc<str>)> = Vec::new();
        let mut bound: Vec<(ObjectKey, Arc<str>)> = Vec::new();
        let groups = self.groups.clone();
        for (number, group) in groups.iter().enumerate() {
            let prefix = format!("{group}-");
            let keys = base.snapshot.cluster.pods.keys();
            let keys = keys.filter(|key| key.name.starts_with(&prefix));
            for key in keys.cloned().collect::<Vec<_>>() {
                let stands = number < bound_groups;
                let spots = naive.world.nodes.iter().enumerate();
                let usable = spots.filter(|(_, spot)| !stands || spot.site == Site::Node);
                let mut usable: Vec<usize> = usable.map(|(at, _)| at).collect();
                let mut place = None;
                while !usable.is_empty() && (stands || on.len() < most) {
                    let at = usable.swap_remove(self.rng.below(usable.len()));
                    if naive.fits(&key, at).is_ok() {
                        place = Some(at);
                        break;
                    }
                }
                let Some(at) = place else {
                    self.lab.snapshot.cluster.pods.remove(&key);
                    continue;
                };
                naive.lay(&key, at);
                let name = naive.world.nodes[at].name.clone();
                if stands {
                    bound.push((key, name));
                } else {
                    on.push((key, name));
                }
            }
        }
        drop(naive);
        for (key, node) in bound {
            bind(&mut self.lab, &key, node);
        }
        if self.rng.below(2) == 0 {
            self.fill_up(&mut on);
        }
        on
    }

    /// One pod more on each machine that takes all that is left there, or hardly less.
    fn fill_up(&mut self, on: &mut Vec<(ObjectKey, Arc<str>)>) {
        for (number, machine) in self.machines.clone().iter().enumerate() {
            if !on.iter().any(|(_, at)| *at == machine.name) {
                continue;
            }
            let world = World {
                base: self.lab.clone(),
                machines: self.machines.clone(),
                on: on.clone(),
                limit: Limit::None,
                priced: true,
            };
            let mut naive = opinion(&world.base, world.spots());
            if naive.lay_all(on).is_err() {
                return;
            }
            let at = naive.find(&machine.name).expect("it is there");
            let spot = &naive.world.nodes[at];
            let mut left: Resources = spot.offers.clone();
            for pod in &spot.pods {
                left.subtract(&pod.shape.requests);
            }
            let percent = self.rng.one(&[100, 100, 90]);
            let (milli, mib) = (
                left.cpu_milli * percent / 100,
                (left.memory >> 20) * percent / 100,
            );
            if milli <= 0 || mib <= 0 || left.pods < 1 {
                continue;
            }
            let name = format!("fill{number}-0");
            let tied = self.rng.below(4) == 0;
            let lab = std::mem::replace(&mut self.lab, lab());
            self.lab = lab.pod(&name, milli, mib).shape(&name, |shape| {
                tolerate(shape);
                if tied {
                    let pool = machine.pool.clone();
                    shape.node_selector.insert(POOL_LABEL.into(), pool);
                }
            });
            on.push((ObjectKey::new("default", name), machine.name.clone()));
        }
    }

    fn throw_group(&mut self, name: &str, count: usize) {
        let (milli, mib) = self.size_of_pods();
        let mut features: Vec<Feature> = Vec::new();
        let many = self.rng.one(&[0, 0, 1, 1, 1, 2]);
        for _ in 0..many {
            if !self.kind.features.is_empty() {
                features.push(self.rng.one(self.kind.features));
            }
        }
        let seed = self.rng.below(1 << 30);
        let tolerant = self.rng.below(2) == 0;
        let groups = self.groups.clone();
        let other = (!groups.is_empty()).then(|| groups[self.rng.below(groups.len())].clone());
        let pools: Vec<Arc<str>> = self.lab.policy.pools.keys().cloned().collect();
        for pod in 0..count {
            let lab = std::mem::replace(&mut self.lab, lab());
            let pod_name = format!("{name}-{pod}");
            let mut lab = lab.pod(&pod_name, milli, mib);
            for feature in &features {
                let mut rng = SeededRng::new(u64::try_from(seed).expect("few"));
                if let Feature::ClaimZone | Feature::ClaimNew | Feature::ClaimClass = feature {
                    lab = claim(lab, &pod_name, *feature, HOSTS[rng.below(3)]);
                }
                let regions = self.kind.with.contains(&With::Regions);
                lab = lab.shape(&pod_name, |shape| {
                    insist(
                        shape,
                        *feature,
                        &mut rng,
                        Around {
                            name,
                            pod,
                            other: other.as_deref(),
                            pools: &pools,
                            regions,
                        },
                    );
                });
            }
            if tolerant {
                lab = lab.shape(&pod_name, tolerate);
            }
            self.lab = lab;
        }
        self.groups.push(name.into());
    }
}

fn tolerate(shape: &mut PodShape) {
    shape.tolerations.push(Toleration {
        key: Some("team".into()),
        value: "x".into(),
        ..Toleration::default()
    });
}

#[derive(Clone, Copy)]
struct Around<'a> {
    name: &'a str,
    pod: usize,
    other: Option<&'a str>,
    pools: &'a [Arc<str>],
    regions: bool,
}

fn insist(shape: &mut PodShape, feature: Feature, rng: &mut SeededRng, around: Around<'_>) {
    let Around {
        name,
        pod,
        other,
        pools,
        regions,
    } = around;
    let host = HOSTS[rng.below(3)];
    let zone: Arc<str> = if regions {
        format!("{}.{host}", rng.one(&["home", "attic"])).into()
    } else {
        host.into()
    };
    match feature {
        Feature::Port => shape.host_ports.push(HostPort {
            protocol: "TCP".into(),
            ip: "".into(),
            port: rng.one(&[80, 81, 443]),
        }),
        Feature::Zone => {
            shape.node_selector.insert(ZONE_LABEL.into(), zone);
        }
        Feature::Pool => {
            let pool = pools[rng.below(pools.len())].clone();
            shape.node_selector.insert(POOL_LABEL.into(), pool);
        }
        Feature::Tier => {
            let tiers = [rng.one(&["a", "b", "c"]), rng.one(&["a", "b"])];
            shape.node_affinity = Some(vec![within("tier", &tiers)]);
        }
        Feature::SpreadZone
        | Feature::SpreadHost
        | Feature::SpreadBoth
        | Feature::SpreadSoft
        | Feature::MinDomains
        | Feature::LabelKeys
        | Feature::HonorTaints => insist_on_spread(shape, feature, rng, (name, pod)),
        Feature::ApartHost => shape.pod_anti_affinity.push(term(name, HOSTNAME_LABEL)),
        Feature::ApartZone => shape.pod_anti_affinity.push(term(name, ZONE_LABEL)),
        Feature::WithoutHost | Feature::WithoutZone | Feature::WithHost | Feature::WithZone => {
            let Some(other) = other else { return };
            match feature {
                Feature::WithoutHost => shape.pod_anti_affinity.push(term(other, HOSTNAME_LABEL)),
                Feature::WithoutZone => shape.pod_anti_affinity.push(term(other, ZONE_LABEL)),
                Feature::WithHost => shape.pod_affinity.push(term(other, HOSTNAME_LABEL)),
                _ => shape.pod_affinity.push(term(other, ZONE_LABEL)),
            }
        }
        Feature::TogetherHost => shape.pod_affinity.push(term(name, HOSTNAME_LABEL)),
        Feature::TogetherZone => shape.pod_affinity.push(term(name, ZONE_LABEL)),
        Feature::ClaimZone | Feature::ClaimNew | Feature::ClaimClass => {}
        Feature::Gpu => {
            let count = rng.one(&[1, 1, 2]);
            shape.requests.extended.insert(GPU.into(), count);
        }
        Feature::Disk => shape.requests.ephemeral = rng.one(&[4, 9, 15]) * GI,
        Feature::Urgent => shape.priority = rng.one(&[100, 1000]),
        Feature::WishZone => shape
            .preferred_nodes
            .push((50, within(ZONE_LABEL, &[host]))),
        Feature::WishApart => shape
            .preferred_anti_pods
            .push((50, term(name, HOSTNAME_LABEL))),
    }
}

fn insist_on_spread(
    shape: &mut PodShape,
    feature: Feature,
    rng: &mut SeededRng,
    (name, pod): (&str, usize),
) {
    let skew = rng.one(&[1, 1, 2]);
    match feature {
        Feature::SpreadZone => shape.spread.push(spread(skew, ZONE_LABEL, name)),
        Feature::SpreadHost => shape.spread.push(spread(skew, HOSTNAME_LABEL, name)),
        Feature::SpreadBoth => {
            shape.spread.push(spread(skew, ZONE_LABEL, name));
            shape.spread.push(spread(1, HOSTNAME_LABEL, name));
        }
        Feature::SpreadSoft => {
            let key = rng.one(&[ZONE_LABEL, HOSTNAME_LABEL]);
            shape.spread.push(SpreadConstraint {
                hard: false,
                ..spread(1, key, name)
            });
        }
        Feature::MinDomains => {
            let key = rng.one(&[ZONE_LABEL, HOSTNAME_LABEL]);
            shape.spread.push(SpreadConstraint {
                min_domains: Some(rng.one(&[2, 3])),
                ..spread(skew, key, name)
            });
        }
        Feature::LabelKeys => {
            let version: Arc<str> = format!("v{}", pod % 2).into();
            shape.labels.insert("version".into(), version);
            let key = rng.one(&[ZONE_LABEL, HOSTNAME_LABEL]);
            shape.spread.push(SpreadConstraint {
                match_label_keys: vec!["version".into()],
                ..spread(skew, key, name)
            });
        }
        Feature::HonorTaints => shape.spread.push(SpreadConstraint {
            honor_taints: true,
            ..spread(skew, ZONE_LABEL, name)
        }),
        _ => {}
    }
}

fn claim(lab: Lab, pod: &str, feature: Feature, zone: &str) -> Lab {
    let lab = lab.shape(pod, |shape| shape.volumes.push(Volume::Claim(pod.into())));
    lab.with(|lab| {
        let cluster = &mut lab.snapshot.cluster;
        let bound = feature == Feature::ClaimZone;
        let claim = Claim {
            volume: bound.then(|| pod.into()),
            class: Some(
                if feature == Feature::ClaimClass {
                    "two"
                } else {
                    "sc"
                }
                .into(),
            ),
            bound,
            ..Claim::default()
        };
        cluster.claims.insert(ObjectKey::new("default", pod), claim);
        if bound {
            let volume = PersistentVolume {
                driver: Some(DRIVER.into()),
                handle: Some(pod.into()),
                node_affinity: Some(vec![within(ZONE_LABEL, &[zone])]),
                ..PersistentVolume::default()
            };
            cluster.volumes.insert(pod.into(), volume);
        }
    })
}

//! Makes a world around a plan.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::lab::{GI, Lab, lab};
use super::SeededRng;
use super::kinds::{Kind, Limit, Style};
use model::cluster::{Claim, ObjectKey, PersistentVolume, StorageClass, ZoneLabel};
use model::region::{Host, Step};
use model::scheduling::{LabelSelector, Labels, PodShape, PodTerm, SpreadConstraint, Volume};

pub(super) const HOSTS: [&str; 3] = ["pve1", "pve2", "pve3"];
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
pub(super) const HOSTNAME: &str = "kubernetes.io/hostname";
const DRIVER: &str = "csi.example.com";
/// Cores and GiB of usual instance types.
pub(in crate::tests) const SIZES: [(u32, i64); 10] = [
    (2, 4),
    (4, 8),
    (8, 16),
    (2, 8),
    (4, 16),
    (4, 4),
    (8, 8),
    (8, 32),
    (1, 2),
    (12, 24),
];

/// What the pods of a group insist on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    Plain,
    /// Over zones, with this skew.
    Spread(i32),
    /// On a machine with a pod of this group.
    With(usize),
    /// All on one machine.
    Together,
    /// In the zone of a pod of this group.
    Near(usize),
    /// Each on a machine of its own.
    Apart,
    /// Over machines, with a skew of one.
    Even,
    /// Each in a zone of its own.
    ZoneEach,
    /// On no machine with a pod of this group.
    Without(usize),
    /// Each with a claim; of a volume on this host, or of one that is still to be made.
    Claim(Option<usize>),
}

/// Equal pods: thousandths of a core, MiB.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) milli: i64,
    pub(super) mib: i64,
    pub(super) rule: Rule,
    pub(super) priority: i32,
    /// By pod: its machine.
    pub(super) on: Vec<usize>,
}

#[derive(Clone, Debug)]
struct Machine {
    size: usize,
    host: usize,
    milli: i64,
    mib: i64,
}

/// A world with the plan it was made around.
#[derive(Clone, Debug)]
pub(in crate::tests) struct World {
    /// Of types: cores and GiB.
    pub(super) sizes: Vec<(u32, i64)>,
    machines: Vec<Machine>,
    pub(super) groups: Vec<Group>,
    pub(super) limit: Limit,
    style: Style,
    /// How many pods of middling size fill a machine.
    density: i64,
    /// So much of everything is left on each machine, for the pod that fills it up.
    spare: i64,
}

impl World {
    /// A world of so many types and pods at most.
    pub(in crate::tests) fn plant(
        kind: Kind,
        types: usize,
        pods: usize,
        (limit, style): (Limit, Style),
        rng: &mut SeededRng,
    ) -> World {
        let sizes = match (style, types) {
            (Style::Wild, types) => any_sizes(types, rng),
            (Style::Usual, 1) => vec![SIZES[1 + rng.below(2)]],
            (Style::Usual, types) => SIZES[..types].to_vec(),
        };
        let mut world = World {
            sizes,
            machines: Vec::new(),
            groups: Vec::new(),
            limit,
            style,
            density: rng.one(&[3, 6, 12]),
            spare: 0,
        };
        let tight = rng.below(3);
        let count = match tight {
            0 => (pods / 4).max(2) + rng.below(pods / 6 + 1),
            _ => 1 + pods / 8 + rng.below(pods / 8 + 1),
        };
        for at in 0..count {
            let size = rng.below(world.sizes.len());
            let (cores, gib) = world.sizes[size];
            world.machines.push(Machine {
                size,
                host: if at < HOSTS.len() {
                    at
                } else {
                    rng.below(HOSTS.len())
                },
                milli: i64::from(cores) * 1000,
                mib: gib << 10,
            });
        }
        let mut tries = 0;
        while world.pods() < pods && tries < pods * 4 {
            tries += 1;
            world.group(kind, pods - world.pods(), rng);
        }
        if tight == 2 {
            world.fill_up(rng);
        }
        world.drop_unused();
        world
    }

    /// A world of plain pods whose machines are full.
    pub(in crate::tests) fn full(types: usize, pods: usize, rng: &mut SeededRng) -> World {
        let mut world = World {
            sizes: SIZES[..types].to_vec(),
            machines: Vec::new(),
            groups: Vec::new(),
            limit: Limit::None,
            style: Style::Usual,
            density: 6,
            spare: 50,
        };
        let count = 1 + pods / 6;
        for at in 0..count {
            let size = rng.below(world.sizes.len());
            let (cores, gib) = world.sizes[size];
            world.machines.push(Machine {
                size,
                host: at % HOSTS.len(),
                milli: i64::from(cores) * 1000,
                mib: gib << 10,
            });
        }
        let mut tries = 0;
        while world.pods() + count < pods && tries < pods * 4 {
            tries += 1;
            let left = pods - count - world.pods();
            let (milli, mib) = size_of_pods(rng);
            let count = 1 + rng.below(left.min(2 + pods / 20));
            world.add((milli, mib), Rule::Plain, count, rng);
        }
        world.fill_up(rng);
        world
    }

    fn group(&mut self, kind: Kind, most: usize, rng: &mut SeededRng) {
        let (milli, mib) = match self.style {
            Style::Usual => size_of_pods(rng),
            Style::Wild => self.any_size_of_pods(rng),
        };
        let kind = match kind {
            Kind::Mixed => rng.one(&Kind::ALL[..5]),
            kind => kind,
        };
        // Half of the pods of any kind insist on nothing.
        let plain = rng.below(2) == 0;
        let rule = match kind {
            _ if plain && kind != Kind::Plain => Rule::Plain,
            Kind::Plain | Kind::Mixed => Rule::Plain,
            Kind::Spread => Rule::Spread(1 + i32::from(rng.below(3) == 0)),
            Kind::Affinity => return self.followers((milli, mib), most, rng),
            Kind::Apart => Rule::Apart,
            Kind::Claims => Rule::Claim((rng.below(2) == 0).then(|| rng.below(HOSTS.len()))),
        };
        let rule = match self.style {
            Style::Usual => rule,
            Style::Wild => self.another(rule, rng),
        };
        let count = 1 + rng.below(most.min(6));
        self.add((milli, mib), rule, count, rng);
    }

    /// A rule, or one like it.
    fn another(&self, rule: Rule, rng: &mut SeededRng) -> Rule {
        let groups = self.groups.len();
        match (rule, rng.below(3)) {
            (Rule::Spread(_), 0) => Rule::Even,
            (Rule::Apart, 0) => Rule::ZoneEach,
            (Rule::Apart, 1) if groups > 0 => Rule::Without(rng.below(groups)),
            _ => rule,
        }
    }

    /// Of any size up to that of the largest type.
    fn any_size_of_pods(&self, rng: &mut SeededRng) -> (i64, i64) {
        let (cores, gib) = *rng.one(&self.sizes.iter().collect::<Vec<_>>());
        let part = |whole: i64, rng: &mut SeededRng| {
            let most = usize::try_from(whole * 2 / self.density).expect("a size");
            1 + i64::try_from(rng.below(most)).expect("a size")
        };
        let milli = part(i64::from(cores) * 100, rng) * 10;
        (milli, part(gib * 64, rng) * 16)
    }

    /// One pod more on each machine that takes all that is left there, or hardly less.
    fn fill_up(&mut self, rng: &mut SeededRng) {
        for at in 0..self.machines.len() {
            let Machine { milli, mib, .. } = self.machines[at];
            let percent = match self.style {
                Style::Usual => 100,
                Style::Wild => rng.one(&[90, 95, 98]),
            };
            let (milli, mib) = (milli * percent / 100, mib * percent / 100);
            if milli > 0 && mib > 0 {
                (self.machines[at].milli, self.machines[at].mib) = (0, 0);
                self.groups.push(Group {
                    milli,
                    mib,
                    rule: Rule::Plain,
                    priority: 0,
                    on: vec![at],
                });
            }
        }
    }

    /// A target, and followers that insist on its machine or its zone.
    fn followers(&mut self, (milli, mib): (i64, i64), most: usize, rng: &mut SeededRng) {
        if rng.below(4) == 0 {
            let count = 1 + rng.below(most.min(5));
            return self.add((milli.min(1000), mib.min(1024)), Rule::Together, count, rng);
        }
        let target = self.groups.len();
        let targets = if rng.below(3) == 0 { 2 } else { 1 };
        self.add((milli, mib), Rule::Plain, targets.min(most), rng);
        let left = most.saturating_sub(targets);
        if self.groups.len() == target || left == 0 {
            return;
        }
        let milli = rng.one(&[100, 250, 500, 1000, 2000]);
        let mib = rng.one(&[128, 256, 512, 1024]);
        let rule = if rng.below(3) == 0 {
            Rule::Near(target)
        } else {
            Rule::With(target)
        };
        let count = 1 + rng.below(left.min(6));
        self.add((milli, mib), rule, count, rng);
    }

    /// Adds as many of `count` pods as the machines hold.
    fn add(&mut self, (milli, mib): (i64, i64), rule: Rule, count: usize, rng: &mut SeededRng) {
        let mut group = Group {
            milli,
            mib,
            rule,
            priority: match self.style {
                Style::Usual => 0,
                Style::Wild => rng.one(&[0, 0, 0, 100]),
            },
            on: Vec::new(),
        };
        for pod in 0..count {
            let fits = (0..self.machines.len()).filter(|at| {
                let machine = &self.machines[*at];
                machine.milli >= milli + self.spare
                    && machine.mib >= mib + self.spare
                    && self.allows(&group, pod, *at)
            });
            let fits: Vec<usize> = fits.collect();
            if fits.is_empty() {
                break;
            }
            let at = rng.one(&fits);
            self.machines[at].milli -= milli;
            self.machines[at].mib -= mib;
            group.on.push(at);
        }
        if !group.on.is_empty() {
            self.groups.push(group);
        }
    }

    fn allows(&self, group: &Group, pod: usize, at: usize) -> bool {
        let host = |at: usize| self.machines[at].host;
        match group.rule {
            Rule::Plain | Rule::Claim(None) => true,
            Rule::Spread(_) => host(at) == pod % HOSTS.len(),
            Rule::With(target) => self.groups[target].on.contains(&at),
            Rule::Near(target) => self.groups[target]
                .on
                .iter()
                .any(|on| host(*on) == host(at)),
            Rule::Together => group.on.iter().all(|on| *on == at),
            Rule::Apart | Rule::Even => !group.on.contains(&at),
            Rule::ZoneEach => group.on.iter().all(|on| host(*on) != host(at)),
            Rule::Without(other) => !self.groups[other].on.contains(&at),
            Rule::Claim(Some(zone)) => host(at) == zone,
        }
    }

    fn drop_unused(&mut self) {
        let used: Vec<usize> = (0..self.machines.len())
            .filter(|at| self.groups.iter().any(|group| group.on.contains(at)))
            .collect();
        for group in &mut self.groups {
            for on in &mut group.on {
                *on = used.iter().position(|at| at == on).expect("it is used");
            }
        }
        self.machines = used.iter().map(|at| self.machines[*at].clone()).collect();
    }

    pub(in crate::tests) fn pods(&self) -> usize {
        self.groups.iter().map(|group| group.on.len()).sum()
    }

    /// What the plan costs that it was made around.
    pub(in crate::tests) fn price(&self) -> i64 {
        let machines = self.machines.iter();
        machines.map(|machine| self.price_of(machine.size)).sum()
    }

    /// What a machine of a type costs.
    pub(super) fn price_of(&self, size: usize) -> i64 {
        let (cores, gib) = self.sizes[size];
        i64::from(cores) * 20_000 + gib * 10_000
    }

    pub(in crate::tests) fn build(&self) -> Lab {
        let mut lab = lab();
        let names: Vec<String> = (0..self.sizes.len())
            .map(|size| format!("t{size}"))
            .collect();
        for (name, (cores, gib)) in names.iter().zip(&self.sizes) {
            lab = lab.kind(name, *cores, gib << 10);
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        lab = match self.limit {
            Limit::Pools => {
                let of = |pool: usize| {
                    let mine = (0..names.len()).filter(|size| size % 2 == pool);
                    mine.map(|size| names[size]).collect::<Vec<&str>>()
                };
                let lab = lab.pool("ng", &of(0));
                if names.len() > 1 {
                    lab.pool("ot", &of(1))
                } else {
                    lab
                }
            }
            _ => lab.pool("ng", &names),
        };
        lab = self.limit(lab);
        for (index, group) in self.groups.iter().enumerate() {
            let name = format!("app{index}");
            lab = lab.pods(&name, group.on.len(), group.milli, group.mib);
            let prefix = format!("{name}-");
            lab = lab.shapes(&prefix, |shape| {
                shape.priority = group.priority;
                insist(shape, group.rule, &name);
            });
            if let Rule::Claim(zone) = group.rule {
                for pod in 0..group.on.len() {
                    lab = claim(lab, &format!("{name}-{pod}"), zone);
                }
            }
        }
        lab
    }

    /// The world with so many machines of its plan on their way, the first ones: nothing runs there yet.
    pub(super) fn build_beside(&self, coming: usize) -> Lab {
        let mut lab = self.build();
        for (at, machine) in self.machines.iter().take(coming).enumerate() {
            let (name, size) = (format!("m{at}"), machine.size);
            let apart = self.limit == Limit::Pools && !size.is_multiple_of(2);
            let pool = if apart { "ot" } else { "ng" };
            lab = lab.machine(&name, pool, &format!("t{size}"), Step::Agent);
            let host = HOSTS[machine.host];
            lab = lab.edit_machine(&name, |machine| machine.host = host.into());
            lab.clone_vm(&name);
        }
        lab
    }

    /// How many machines the plan has.
    pub(super) fn machines(&self) -> usize {
        self.machines.len()
    }

    fn limit(&self, lab: Lab) -> Lab {
        let machines = u32::try_from(self.machines.len()).expect("few");
        let mut by_host: BTreeMap<usize, (u32, i64, u32)> =
            (0..HOSTS.len()).map(|host| (host, (0, 0, 0))).collect();
        let (mut cores, mut gib) = (0, 0);
        for machine in &self.machines {
            let (more, memory) = self.sizes[machine.size];
            let host = by_host.entry(machine.host).or_default();
            *host = (host.0 + more, host.1 + memory, host.2 + 1);
            cores += i64::from(more) * 1000;
            gib += memory;
        }
        // A size of nothing is one that is not known.
        let memory = |lab: Lab, more: i64| {
            on_hosts(lab, |index, host| {
                host.memory = (by_host[&index].1 + more).max(1) * GI;
            })
        };
        match self.limit {
            Limit::None => lab,
            Limit::Machines(more) => lab.edit_pool("ng", |pool| pool.max = machines + more),
            Limit::Cores => lab.edit_pool("ng", |pool| pool.max_cpu_milli = Some(cores)),
            Limit::Memory => lab.edit_pool("ng", |pool| pool.max_memory = Some(gib * GI)),
            Limit::Total => lab.with(|lab| lab.policy.scale_up.max_nodes_total = machines),
            Limit::Hosts(more) => memory(lab, more),
            Limit::HostCores => {
                let lab = on_hosts(lab, |index, host| host.cpus = by_host[&index].0.max(1));
                lab.with(|lab| {
                    for region in lab.policy.regions.values_mut() {
                        region.capacity.cpu_overcommit_permille = Some(1000);
                    }
                })
            }
            Limit::PerHost => lab.with(|lab| {
                let most = by_host.values().map(|(_, _, machines)| *machines).max();
                for region in lab.policy.regions.values_mut() {
                    region.capacity.max_per_host = most;
                }
            }),
            Limit::Pools => lab.with(|lab| {
                for (index, pool) in lab.policy.pools.values_mut().enumerate() {
                    let mine = self.machines.iter();
                    let mine = mine.filter(|machine| machine.size % 2 == index);
                    pool.max = u32::try_from(mine.count()).expect("few");
                }
            }),
            Limit::Several => memory(lab, 0).edit_pool("ng", |pool| {
                pool.max = machines;
                pool.max_cpu_milli = Some(cores);
                pool.max_memory = Some(gib * GI);
            }),
        }
    }
}

fn on_hosts(lab: Lab, change: impl Fn(usize, &mut Host)) -> Lab {
    lab.with(|lab| {
        for region in lab.snapshot.regions.values_mut() {
            for (index, host) in HOSTS.iter().enumerate() {
                change(index, region.hosts.get_mut(*host).expect("a host"));
            }
        }
    })
}

/// Types of any sizes: cores and GiB.
fn any_sizes(types: usize, rng: &mut SeededRng) -> Vec<(u32, i64)> {
    let mut sizes: Vec<(u32, i64)> = Vec::new();
    while sizes.len() < types {
        let cores = rng.one(&[1, 2, 3, 4, 6, 8, 12, 16, 24]);
        let size = (cores, i64::from(cores) * rng.one(&[1, 2, 3, 4, 8]));
        if !sizes.contains(&size) {
            sizes.push(size);
        }
    }
    sizes
}

fn size_of_pods(rng: &mut SeededRng) -> (i64, i64) {
    let milli = rng.one(&[100, 250, 500, 500, 1000, 1000, 1500, 2000, 3000]);
    let mib = rng.one(&[128, 256, 512, 1024, 1024, 2048, 3072, 4096]);
    (milli, mib)
}

pub(super) fn spread(skew: i32, key: &str, selector: Option<LabelSelector>) -> SpreadConstraint {
    SpreadConstraint {
        max_skew: skew,
        topology_key: key.into(),
        hard: true,
        selector,
        min_domains: None,
        match_label_keys: Vec::new(),
        honor_affinity: true,
        honor_taints: false,
    }
}

fn insist(shape: &mut PodShape, rule: Rule, name: &str) {
    let app = |name: &str| {
        Some(LabelSelector {
            labels: Labels::from([("app".into(), name.into())]),
            ..LabelSelector::default()
        })
    };
    let term = |name: &str, key: &str| PodTerm {
        selector: app(name),
        topology_key: key.into(),
        ..PodTerm::default()
    };
    match rule {
        Rule::Plain | Rule::Claim(_) => {}
        Rule::Spread(skew) => shape.spread.push(spread(skew, ZONE, app(name))),
        Rule::With(target) => shape
            .pod_affinity
            .push(term(&format!("app{target}"), HOSTNAME)),
        Rule::Near(target) => shape.pod_affinity.push(term(&format!("app{target}"), ZONE)),
        Rule::Together => shape.pod_affinity.push(term(name, HOSTNAME)),
        Rule::Apart => shape.pod_anti_affinity.push(term(name, HOSTNAME)),
        Rule::ZoneEach => shape.pod_anti_affinity.push(term(name, ZONE)),
        Rule::Without(other) => shape
            .pod_anti_affinity
            .push(term(&format!("app{other}"), HOSTNAME)),
        Rule::Even => shape.spread.push(spread(1, HOSTNAME, app(name))),
    }
}

fn claim(lab: Lab, pod: &str, zone: Option<usize>) -> Lab {
    let lab = lab.shape(pod, |shape| shape.volumes.push(Volume::Claim(pod.into())));
    lab.with(|lab| {
        let cluster = &mut lab.snapshot.cluster;
        cluster.storage_classes.insert(
            "sc".into(),
            StorageClass {
                provisioner: DRIVER.into(),
                wait_for_consumer: true,
                ..StorageClass::default()
            },
        );
        let volume: Option<Arc<str>> = zone.map(|_| pod.into());
        let claim = Claim {
            volume: volume.clone(),
            class: Some("sc".into()),
            bound: volume.is_some(),
            ..Claim::default()
        };
        cluster.claims.insert(ObjectKey::new("default", pod), claim);
        if let (Some(zone), Some(name)) = (zone, volume) {
            let volume = PersistentVolume {
                driver: Some(DRIVER.into()),
                handle: Some(name.clone()),
                zones: vec![ZoneLabel {
                    key: ZONE.into(),
                    values: [HOSTS[zone].into()].into(),
                }],
                ..PersistentVolume::default()
            };
            cluster.volumes.insert(name, volume);
        }
    })
}

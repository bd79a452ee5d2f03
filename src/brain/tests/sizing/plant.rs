//! Makes a world around a plan.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::lab::{GI, Lab, lab};
use super::Dice;
use model::cluster::{Claim, PersistentVolume, PodKey, StorageClass, ZoneLabel};
use model::scheduling::{LabelSelector, Labels, PodShape, PodTerm, SpreadConstraint, Volume};

const HOSTS: [&str; 3] = ["pve1", "pve2", "pve3"];
const ZONE: &str = "topology.kubernetes.io/zone";
const HOSTNAME: &str = "kubernetes.io/hostname";
const DRIVER: &str = "csi.example.com";
/// Cores and GiB.
const SIZES: [(u32, i64); 10] = [
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

/// What pods insist on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tests) enum Kind {
    Plain,
    Spread,
    Affinity,
    Apart,
    Claims,
    Mixed,
}

impl Kind {
    pub(in crate::tests) const ALL: [Kind; 6] = [
        Kind::Plain,
        Kind::Spread,
        Kind::Affinity,
        Kind::Apart,
        Kind::Claims,
        Kind::Mixed,
    ];
}

/// Which limit leaves room for the plan and no more, or for a little more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tests) enum Limit {
    None,
    Machines(u32),
    Total,
    Hosts(i64),
    Cores,
}

impl Limit {
    pub(in crate::tests) const ALL: [Limit; 7] = [
        Limit::Machines(0),
        Limit::None,
        Limit::Machines(1),
        Limit::Total,
        Limit::Hosts(0),
        Limit::Cores,
        Limit::Hosts(4),
    ];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
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
    /// Each with a claim; of a volume on this host, or of one that is still to be made.
    Claim(Option<usize>),
}

/// Equal pods: thousandths of a core, MiB.
#[derive(Clone, Debug)]
struct Group {
    milli: i64,
    mib: i64,
    rule: Rule,
    /// By pod: its machine.
    on: Vec<usize>,
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
    sizes: Vec<(u32, i64)>,
    machines: Vec<Machine>,
    groups: Vec<Group>,
    limit: Limit,
    /// So much of everything is left on each machine, for the pod that fills it up.
    spare: i64,
}

impl World {
    /// A world of so many types and pods at most.
    pub(in crate::tests) fn plant(
        kind: Kind,
        types: usize,
        pods: usize,
        limit: Limit,
        dice: &mut Dice,
    ) -> World {
        let sizes = match types {
            1 => vec![SIZES[1 + dice.below(2)]],
            types => SIZES[..types].to_vec(),
        };
        let mut world = World {
            sizes,
            machines: Vec::new(),
            groups: Vec::new(),
            limit,
            spare: 0,
        };
        let tight = dice.below(3);
        let count = match tight {
            0 => (pods / 4).max(2) + dice.below(pods / 6 + 1),
            _ => 1 + pods / 8 + dice.below(pods / 8 + 1),
        };
        for at in 0..count {
            let size = dice.below(world.sizes.len());
            let (cores, gib) = world.sizes[size];
            world.machines.push(Machine {
                size,
                host: if at < HOSTS.len() {
                    at
                } else {
                    dice.below(HOSTS.len())
                },
                milli: i64::from(cores) * 1000,
                mib: gib << 10,
            });
        }
        let mut tries = 0;
        while world.pods() < pods && tries < pods * 4 {
            tries += 1;
            world.group(kind, pods - world.pods(), dice);
        }
        if tight == 2 {
            world.fill_up();
        }
        world.drop_unused();
        world
    }

    /// A world of plain pods whose machines are full.
    pub(in crate::tests) fn full(types: usize, pods: usize, dice: &mut Dice) -> World {
        let mut world = World {
            sizes: SIZES[..types].to_vec(),
            machines: Vec::new(),
            groups: Vec::new(),
            limit: Limit::None,
            spare: 50,
        };
        let count = 1 + pods / 6;
        for at in 0..count {
            let size = dice.below(world.sizes.len());
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
            let (milli, mib) = size_of_pods(dice);
            let count = 1 + dice.below(left.min(2 + pods / 20));
            world.add((milli, mib), Rule::Plain, count, dice);
        }
        world.fill_up();
        world
    }

    fn group(&mut self, kind: Kind, most: usize, dice: &mut Dice) {
        let (milli, mib) = size_of_pods(dice);
        let kind = match kind {
            Kind::Mixed => dice.one(&Kind::ALL[..5]),
            kind => kind,
        };
        // Half of the pods of any kind insist on nothing.
        let plain = dice.below(2) == 0;
        let rule = match kind {
            _ if plain && kind != Kind::Plain => Rule::Plain,
            Kind::Plain | Kind::Mixed => Rule::Plain,
            Kind::Spread => Rule::Spread(1 + i32::from(dice.below(3) == 0)),
            Kind::Affinity => return self.followers((milli, mib), most, dice),
            Kind::Apart => Rule::Apart,
            Kind::Claims => Rule::Claim((dice.below(2) == 0).then(|| dice.below(HOSTS.len()))),
        };
        let count = 1 + dice.below(most.min(6));
        self.add((milli, mib), rule, count, dice);
    }

    /// One pod more on each machine that takes all that is left there.
    fn fill_up(&mut self) {
        for at in 0..self.machines.len() {
            let Machine { milli, mib, .. } = self.machines[at];
            if milli > 0 && mib > 0 {
                (self.machines[at].milli, self.machines[at].mib) = (0, 0);
                self.groups.push(Group {
                    milli,
                    mib,
                    rule: Rule::Plain,
                    on: vec![at],
                });
            }
        }
    }

    /// A target, and followers that insist on its machine or its zone.
    fn followers(&mut self, (milli, mib): (i64, i64), most: usize, dice: &mut Dice) {
        if dice.below(4) == 0 {
            let count = 1 + dice.below(most.min(5));
            return self.add(
                (milli.min(1000), mib.min(1024)),
                Rule::Together,
                count,
                dice,
            );
        }
        let target = self.groups.len();
        let targets = if dice.below(3) == 0 { 2 } else { 1 };
        self.add((milli, mib), Rule::Plain, targets.min(most), dice);
        let left = most.saturating_sub(targets);
        if self.groups.len() == target || left == 0 {
            return;
        }
        let milli = dice.one(&[100, 250, 500, 1000, 2000]);
        let mib = dice.one(&[128, 256, 512, 1024]);
        let rule = if dice.below(3) == 0 {
            Rule::Near(target)
        } else {
            Rule::With(target)
        };
        let count = 1 + dice.below(left.min(6));
        self.add((milli, mib), rule, count, dice);
    }

    /// Adds as many of `count` pods as the machines hold.
    fn add(&mut self, (milli, mib): (i64, i64), rule: Rule, count: usize, dice: &mut Dice) {
        let mut group = Group {
            milli,
            mib,
            rule,
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
            let at = dice.one(&fits);
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
            Rule::Apart => !group.on.contains(&at),
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
        let prices = self.machines.iter().map(|machine| {
            let (cores, gib) = self.sizes[machine.size];
            i64::from(cores) * 20_000 + gib * 10_000
        });
        prices.sum()
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
        lab = lab.pool("ng", &names);
        lab = self.limit(lab);
        for (index, group) in self.groups.iter().enumerate() {
            let name = format!("app{index}");
            lab = lab.pods(&name, group.on.len(), group.milli, group.mib);
            let prefix = format!("{name}-");
            lab = lab.shapes(&prefix, |shape| insist(shape, group.rule, &name));
            if let Rule::Claim(zone) = group.rule {
                for pod in 0..group.on.len() {
                    lab = claim(lab, &format!("{name}-{pod}"), zone);
                }
            }
        }
        lab
    }

    fn limit(&self, lab: Lab) -> Lab {
        let machines = u32::try_from(self.machines.len()).expect("few");
        let mut memory = BTreeMap::from([(0, 0), (1, 0), (2, 0)]);
        let mut cores = 0;
        for machine in &self.machines {
            let (of, gib) = self.sizes[machine.size];
            *memory.entry(machine.host).or_insert(0) += gib;
            cores += i64::from(of) * 1000;
        }
        match self.limit {
            Limit::None => lab,
            Limit::Machines(more) => lab.edit_pool("ng", |pool| pool.max = machines + more),
            Limit::Cores => lab.edit_pool("ng", |pool| pool.max_cpu_milli = Some(cores)),
            Limit::Total => lab.with(|lab| lab.policy.scale_up.max_nodes_total = machines),
            Limit::Hosts(more) => lab.with(|lab| {
                for region in lab.snapshot.regions.values_mut() {
                    for (index, host) in HOSTS.iter().enumerate() {
                        let host = region.hosts.get_mut(*host).expect("a host");
                        // A size of nothing is one that is not known.
                        host.memory = (memory[&index] + more).max(1) * GI;
                    }
                }
            }),
        }
    }
}

fn size_of_pods(dice: &mut Dice) -> (i64, i64) {
    let milli = dice.one(&[100, 250, 500, 500, 1000, 1000, 1500, 2000, 3000]);
    let mib = dice.one(&[128, 256, 512, 1024, 1024, 2048, 3072, 4096]);
    (milli, mib)
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
        Rule::Spread(skew) => shape.spread.push(SpreadConstraint {
            max_skew: skew,
            topology_key: ZONE.into(),
            hard: true,
            selector: app(name),
            min_domains: None,
            match_label_keys: Vec::new(),
            honor_affinity: true,
            honor_taints: false,
        }),
        Rule::With(target) => shape
            .pod_affinity
            .push(term(&format!("app{target}"), HOSTNAME)),
        Rule::Near(target) => shape.pod_affinity.push(term(&format!("app{target}"), ZONE)),
        Rule::Together => shape.pod_affinity.push(term(name, HOSTNAME)),
        Rule::Apart => shape.pod_anti_affinity.push(term(name, HOSTNAME)),
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
        cluster.claims.insert(PodKey::new("default", pod), claim);
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

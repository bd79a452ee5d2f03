//! What a new machine could be: one offer for each pool, instance type and host.

use crate::constraints::shape::HOSTNAME_LABEL;
use crate::decision::cpu_book;
use crate::index::{
    CatalogOfferIndex, ChoiceIndex, ClassId, HostIndex, IndexVec, NodeIndex, OfferIndex, PoolIndex,
    PoolRegionIndex, PoolTypeIndex,
};
use std::collections::BTreeSet;
use std::sync::Arc;

use model::action::Target;
use model::cluster::ObjectKey;
use model::facts::{self, Facts};
use model::mark::Mark;
use model::policy::{
    INSTANCE_TYPE_LABEL, InstanceType, POOL_LABEL, PoolPolicy, REGION_LABEL, ZONE_LABEL,
};
use model::reasons::{FilterFailure, HostRefused, Refused};
use model::region::{RegionName, TemplateCopy};
use model::resources::Resources;
use model::scheduling::{HostPort, Labels, PodShape};

use crate::constraints::fit::attach::AttachSlots;
use crate::constraints::fit::volumes::{self, VolumeNeed};
use crate::constraints::fit::{self, NEW, NodeView, amounts, ports};
use crate::constraints::free_volumes::{AssumedBindings, FreeVolumes, VolumeBindings, VolumeNode};
use crate::constraints::shape::NamespacedShape;
use crate::decision::turn::DecisionBuilder;
use crate::observed::reach;
use crate::simulation::capacity;
use crate::simulation::disks::StorageIndexes;
use crate::simulation::slots;
use crate::simulation::takes::{self, HostMappings, Takes};
use crate::simulation::world::{NodeOrigin, SimCluster, SimNode};

const OS_LABEL: &str = "kubernetes.io/os";
const ARCH_LABEL: &str = "kubernetes.io/arch";

/// The VMID of a machine that has none yet; PVE's begin at 100.
pub(crate) const NO_VMID: u32 = 0;

/// What stands for the name of a machine that has none yet where a label names it: unlike [`NEW`] a label may have it.
const ANY_NAME: &str = "new";

/// Default price in millionths an hour of one core …
const CORE_PRICE: i64 = 20_000;
/// … and of one GiB of memory: memory is what a host runs out of first, CPU can be shared.
const GIB_PRICE: i64 = 10_000;
/// … and of one PCI device: more than what any host without one could be filled with, so that a machine with a device is made
/// for who asks for it, and for others where nothing else will do.
const DEVICE_PRICE: i64 = 100_000_000;

/// What a new machine could be, by index.
pub(crate) type ChoiceList<'a> = IndexVec<ChoiceIndex, Choice<'a>>;

/// The offers of a choice, by index.
pub(crate) type OfferList<'a> = IndexVec<OfferIndex, Offer<'a>>;

/// A pool in one of its regions with one of its instance types.
#[derive(Debug)]
pub(crate) struct Choice<'a> {
    pub(crate) pool: &'a Arc<str>,
    /// The pool as it is in the region.
    pub(crate) policy: &'a PoolPolicy,
    pub(crate) type_name: &'a Arc<str>,
    pub(crate) instance_type: &'a InstanceType,
    /// Price of one node.
    pub(crate) price: i64,
    /// `pool/type`, as reports name it, and `pool/type in REGION` where the pool is in several regions.
    pub(crate) label: Arc<str>,
    pub(crate) pool_index: PoolIndex,
    /// The pool in this region.
    pub(crate) pool_region: PoolRegionIndex,
    /// The pool and the type, in whatever region.
    pub(crate) pool_type: PoolTypeIndex,
    /// The index of its first offer; of the others see [`Choice::index_in_catalog`].
    first: CatalogOfferIndex,
    /// What volumes a node of it can attach.
    pub(crate) slots: Option<Arc<AttachSlots>>,
    /// The offers of this pool and type, one for each host; empty when the region shows no host that the pool may use.
    pub(crate) offers: OfferList<'a>,
    /// Why there is no offer, where there is none.
    pub(crate) nowhere: Arc<Refused>,
}

impl Choice<'_> {
    /// Which of the offers of all choices one of its offers is.
    pub(crate) fn index_in_catalog(&self, offer: OfferIndex) -> CatalogOfferIndex {
        CatalogOfferIndex(self.first.0 + offer.0)
    }

    /// How much its nodes have that was not requested: extended resources that are not among the wanted ones, taints and labels of
    /// its pool and type. Of two choices that are alike otherwise the one with less is taken: a GPU type never wins by its name.
    pub(crate) fn count_unrequested(&self, wanted: &BTreeSet<&Arc<str>>) -> u32 {
        let extended = self.offers.first().map(|offer| &offer.free.extended);
        let extra = extended.into_iter().flatten();
        let extra = extra.filter(|(name, amount)| **amount > 0 && !wanted.contains(name));
        let labels = self.policy.labels.len() + self.instance_type.labels.len();
        let all = extra.count() * 16 + self.policy.taints.len() * 4 + labels;
        u32::try_from(all).unwrap_or(u32::MAX)
    }
}

/// A choice on one host.
#[derive(Debug)]
pub(crate) struct Offer<'a> {
    pub(crate) host: &'a Arc<str>,
    pub(crate) host_index: HostIndex,
    /// The template to clone, or why no machine can be made on this host.
    pub(crate) copy: Result<&'a TemplateCopy, HostRefused>,
    pub(crate) labels: Labels,
    /// Allocatable, modelled or learned.
    pub(crate) allocatable: Resources,
    /// Allocatable minus the DaemonSets that will run there.
    pub(crate) free: Resources,
    /// Host ports that those take.
    pub(crate) ports: Vec<HostPort>,
    /// The DaemonSets that will run there.
    pub(crate) residents: Vec<Daemon<'a>>,
    /// What a machine of the offer takes of its host beside CPU and memory.
    pub(crate) takes: Takes,
}

/// A DaemonSet's pod that is to come to a node.
#[derive(Clone, Debug)]
pub(crate) struct Daemon<'a> {
    pub(crate) key: &'a ObjectKey,
    /// The template's.
    pub(crate) shape: &'a Arc<PodShape>,
    /// What its pods ask for beyond the template: admission (a `LimitRange`, the vertical pod
    /// autoscaler) makes pods larger, never templates.
    more: Resources,
}

impl<'a> Daemon<'a> {
    /// Whether two pods are of the same set, and ask the same.
    pub(crate) fn same(&self, other: &Daemon<'_>) -> bool {
        self.key.namespace == other.key.namespace
            && Arc::ptr_eq(self.shape, other.shape)
            && self.more == other.more
    }

    /// What filters read of its pod.
    pub(crate) fn pod(&self) -> NamespacedShape<'a> {
        NamespacedShape {
            namespace: &self.key.namespace,
            shape: self.shape,
        }
    }

    /// Puts it on a place.
    pub(crate) fn put(&self, world: &mut SimCluster<'a>, index: NodeIndex) {
        let id = world.intern(&self.key.namespace, self.shape);
        world.put(index, id, 1, false);
        amounts::take_more(&mut world.nodes[index].free, &self.more);
    }
}

impl Offer<'_> {
    /// What volumes see of a node of it.
    pub(crate) fn at(&self) -> VolumeNode<'_> {
        VolumeNode {
            name: NEW,
            labels: &self.labels,
            new: true,
        }
    }

    /// A host port that is taken on an empty node is a DaemonSet's: names it.
    fn name_daemon(&self, filter_failure: FilterFailure) -> FilterFailure {
        let FilterFailure::HostPort { port, .. } = filter_failure else {
            return filter_failure;
        };
        let has = |daemon: &&Daemon<'_>| {
            let theirs = &daemon.shape.host_ports;
            theirs.iter().any(|other| ports::conflict(&port, other))
        };
        let daemon_set = self.residents.iter().find(has);
        let daemon_set = daemon_set.map(|daemon| daemon.key.clone());
        FilterFailure::HostPort { port, daemon_set }
    }
}

impl Choice<'_> {
    /// What filters read of a node of this offer.
    pub(crate) fn place<'b>(&'b self, offer: &'b Offer<'_>) -> NodeView<'b> {
        NodeView {
            name: NEW,
            labels: &offer.labels,
            taints: &self.policy.taints,
            unschedulable: false,
        }
    }

    /// Why a pod of this shape fits on no empty node of this offer, if it does not.
    pub(crate) fn filter_failure(
        &self,
        offer: &Offer<'_>,
        shape: &PodShape,
    ) -> Option<FilterFailure> {
        self.filter_failures(offer, shape).next()
    }

    /// All that keeps a pod of this shape off an empty node of this offer, in the order of the filters.
    pub(crate) fn filter_failures<'s>(
        &'s self,
        offer: &'s Offer<'_>,
        shape: &'s PodShape,
    ) -> impl Iterator<Item = FilterFailure> + 's {
        let shortage =
            std::iter::once_with(|| fit::all_shortages(shape, &offer.free, &offer.ports));
        let shortage = shortage
            .flatten()
            .map(|filter_failure| offer.name_daemon(filter_failure));
        fit::filter_failures(shape, self.place(offer)).chain(shortage)
    }

    /// Why claims may not be used on an empty node of this offer, if they may not; volumes were given to
    /// others as `given` says.
    pub(crate) fn volume_filter_failure(
        &self,
        offer: &Offer<'_>,
        need: &VolumeNeed,
        free_volumes: &FreeVolumes<'_>,
        assumed: &AssumedBindings,
    ) -> Option<FilterFailure> {
        let at = offer.at();
        volumes::filter_failure(need, at.name, at.labels, at.new)
            .or_else(|| self.slots.as_ref()?.filter_failure(need))
            .or_else(|| {
                assumed
                    .filter_failure(free_volumes, need, at)
                    .map(|volume| FilterFailure::Volume { volume })
            })
    }
}

/// All choices of the policy, in the order of pools and, within a pool, of its types and then its regions.
pub(crate) fn choices<'a>(turn: &DecisionBuilder<'a>) -> ChoiceList<'a> {
    let policy = turn.view.policy;
    let stores = (
        &StorageIndexes::of(turn.view.snapshot),
        &HostMappings::of(turn.view.snapshot, policy),
    );
    let mut choices = ChoiceList::default();
    let (mut first, mut regions, mut types) = (0, 0, 0);
    for (position, (pool, of)) in policy.pools.iter().enumerate() {
        for type_name in &of.instance_types {
            let Some(instance_type) = policy.instance_types.get(type_name) else {
                continue;
            };
            for (region, there) in of.everywhere().enumerate() {
                let offers = offers(turn, stores, pool, there, type_name, instance_type);
                let before = first;
                first += offers.len();
                choices.push(Choice {
                    pool,
                    policy: there,
                    type_name,
                    instance_type,
                    price: policy.price_in(&there.region, price_of_type(instance_type)),
                    label: label(pool, of, there, type_name),
                    pool_index: PoolIndex(position),
                    pool_region: PoolRegionIndex(regions + region),
                    pool_type: PoolTypeIndex(types),
                    first: CatalogOfferIndex(before),
                    slots: slots::promised(turn, pool, Some(instance_type)),
                    offers,
                    nowhere: nowhere(turn, there),
                });
            }
            types += 1;
        }
        regions += of.everywhere().count();
    }
    choices
}

/// How reports name a choice.
fn label(pool: &str, of: &PoolPolicy, there: &PoolPolicy, type_name: &str) -> Arc<str> {
    if of.further.is_empty() {
        return format!("{pool}/{type_name}").into();
    }
    format!("{pool}/{type_name} in {}", there.region).into()
}

/// The choice that a machine is, or would be, made of.
pub(crate) fn choice_of<'b, 'a>(
    choices: &'b ChoiceList<'a>,
    mark: &Mark,
    region: &str,
) -> Option<&'b Choice<'a>> {
    let of_pool = |choice: &&Choice<'_>| {
        **choice.pool == *mark.pool && **choice.type_name == *mark.instance_type
    };
    let mut choices = choices.iter().filter(of_pool);
    choices.find(|choice| *choice.policy.region == *region)
}

/// The choice of a planned machine, by its mark, and the offer of its host.
pub(crate) fn offer_of<'b, 'a>(
    choices: &'b ChoiceList<'a>,
    mark: &Mark,
    target: &Target,
) -> Option<(&'b Choice<'a>, &'b Offer<'a>)> {
    let choice = choice_of(choices, mark, &target.region)?;
    let mut offers = choice.offers.iter();
    let offer = offers.find(|offer| *offer.host == target.host)?;
    Some((choice, offer))
}

/// Why a region offers nothing to a pool.
fn nowhere(turn: &DecisionBuilder<'_>, pool: &PoolPolicy) -> Arc<Refused> {
    let region = &pool.region;
    if let Some(hold) = turn.holds.unread_in(region).cloned() {
        return Arc::new(Refused::Held { hold });
    }
    let hosts = turn.view.snapshot.regions.get(region);
    let shown = hosts.map_or_else(Vec::new, |seen| seen.hosts.keys().cloned().collect());
    let usable = shown.iter().all(|host: &Arc<str>| pool.may_use(host));
    Arc::new(Refused::NoHostShown {
        region: region.clone(),
        excluded: if usable { Vec::new() } else { shown },
    })
}

/// The price of a machine of a type: what the configuration says, else by its size and its PCI devices.
pub(crate) fn price_of_type(instance_type: &InstanceType) -> i64 {
    let devices = i64::try_from(instance_type.pci.len()).unwrap_or(i64::MAX);
    let default = || {
        let devices = devices.saturating_mul(DEVICE_PRICE);
        price(&instance_type.capacity()).saturating_add(devices)
    };
    instance_type.price.unwrap_or_else(default).max(0)
}

/// The default price of an amount of CPU and memory.
pub(crate) fn price(of: &Resources) -> i64 {
    i64::try_from(price_of_cpu(of) + price_of_memory(of)).unwrap_or(i64::MAX)
}

/// The part of it that is for CPU.
pub(crate) fn price_of_cpu(of: &Resources) -> i128 {
    i128::from(of.cpu_milli.max(0)) * i128::from(CORE_PRICE) / 1000
}

/// The part of it that is for memory.
pub(crate) fn price_of_memory(of: &Resources) -> i128 {
    i128::from(of.memory.max(0)) * i128::from(GIB_PRICE) / (1 << 30)
}

fn offers<'a>(
    turn: &DecisionBuilder<'a>,
    (storages, devices): (&StorageIndexes, &HostMappings),
    pool_name: &Arc<str>,
    pool: &'a PoolPolicy,
    type_name: &Arc<str>,
    instance_type: &'a InstanceType,
) -> OfferList<'a> {
    let Some(region) = turn.view.snapshot.regions.get(&pool.region) else {
        return OfferList::default();
    };
    let lesson = capacity::lesson_key(pool_name, type_name, pool, instance_type);
    let learned = turn.memory.learned.get(&lesson);
    let before = count_hosts_before(turn, &pool.region);
    let copies = region.templates.get(&pool.template);
    let disk = copies.and_then(|copies| copies.first());
    let disk = disk.map_or(0, |copy| copy.disk);
    let floor = pool.host_rules.min_free_storage;
    let hosts = region.hosts.keys().enumerate();
    hosts
        .filter(|(_, host)| pool.may_use(host))
        .map(|(position, host)| {
            let copy = reach::copy(region, pool, host).map_err(HostRefused::from);
            let reachable = takes::reachable(region, host, instance_type)
                .and_then(|()| cpu_book::reachable(turn, pool, host));
            let copy = copy.and_then(|copy| reachable.map(|()| copy));
            // Of a host that cannot clone now all copies tell what it would offer.
            let disk = copy.as_ref().map_or(disk, |copy| copy.disk);
            let host_index = HostIndex(before + position);
            let takes = copy.as_ref().map_or_else(
                |_| Takes::default(),
                |copy| Takes {
                    disks: storages.layouts(
                        (&pool.region, host),
                        (copy, instance_type),
                        floor,
                        |of| reach::usable(region, (pool, copy), host, of),
                    ),
                    devices: devices.of_machine((&pool.region, host), instance_type),
                    cpus: cpus_taken(turn, (pool, instance_type), (host, host_index)),
                },
            );
            let allocatable = learned
                .cloned()
                .unwrap_or_else(|| capacity::predicted(pool, instance_type, disk));
            let zone = turn.view.policy.zone_of(&pool.region, host);
            let at = NodeAt {
                host,
                zone: &zone,
                name: NEW,
                vmid: NO_VMID,
            };
            let labels = labels(pool_name, pool, type_name, instance_type, &at);
            let mut offer = Offer {
                host,
                host_index,
                copy,
                labels,
                free: allocatable.clone(),
                allocatable,
                ports: Vec::new(),
                residents: Vec::new(),
                takes,
            };
            add_daemons(turn, pool, &mut offer);
            offer
        })
        .collect()
}

/// The hosts of all regions before this one, by which hosts of a decision are numbered.
fn count_hosts_before(turn: &DecisionBuilder<'_>, region: &RegionName) -> usize {
    let regions = turn.view.snapshot.regions.iter();
    let before = regions.take_while(|(name, _)| *name != region);
    before.map(|(_, earlier)| earlier.hosts.len()).sum()
}

/// The CPUs that a machine gets for itself on a host, if its pool pins CPUs.
fn cpus_taken(
    turn: &DecisionBuilder<'_>,
    of: (&PoolPolicy, &InstanceType),
    (host, host_index): (&Arc<str>, HostIndex),
) -> Option<takes::Cpus> {
    let demand = cpu_book::demand_at(turn, of, host)?;
    Some(takes::Cpus {
        host: host_index,
        demand,
    })
}

/// Where a node is, or would be, and what it is called.
#[derive(Debug)]
pub(crate) struct NodeAt<'a> {
    pub(crate) host: &'a str,
    pub(crate) zone: &'a Arc<str>,
    pub(crate) name: &'a str,
    pub(crate) vmid: u32,
}

/// The labels of a node of a pool and type.
pub(crate) fn labels(
    pool_name: &Arc<str>,
    pool: &PoolPolicy,
    type_name: &Arc<str>,
    instance_type: &InstanceType,
    at: &NodeAt<'_>,
) -> Labels {
    let mut labels = instance_type.labels.clone();
    labels.extend(pool.labels.iter().map(|(k, v)| (k.clone(), v.clone())));
    if facts::any_gaps(&labels) {
        // A node that has no name yet has labels with one all the same: pods spread over such a label, or repel each other by it.
        let unnamed = at.name == NEW;
        let facts = Facts {
            machine: if unnamed { ANY_NAME } else { at.name },
            vmid: at.vmid,
            host: at.host,
            region: &pool.region,
            pool: pool_name,
            instance_type: type_name,
        };
        // What cannot be filled in fails its machine, with the reason; pods cannot count on it.
        labels = facts::fill_labels(&labels, &facts).0;
    }
    // A template of another system says so in its pool's or type's labels.
    let os = labels
        .entry(OS_LABEL.into())
        .or_insert_with(|| "linux".into())
        .clone();
    let own: [(&str, Arc<str>); 8] = [
        (POOL_LABEL, pool_name.clone()),
        (INSTANCE_TYPE_LABEL, type_name.clone()),
        (ZONE_LABEL, at.zone.clone()),
        (REGION_LABEL, pool.region.clone()),
        (HOSTNAME_LABEL, at.name.into()),
        (ARCH_LABEL, pool.arch.clone()),
        // The kubelet still sets the old names too (`kubelet_node_status.go`).
        ("beta.kubernetes.io/os", os),
        ("beta.kubernetes.io/arch", pool.arch.clone()),
    ];
    labels.extend(own.into_iter().map(|(key, value)| (key.into(), value)));
    labels
}

/// Adds the DaemonSets whose pods will run on a node of this offer.
fn add_daemons<'a>(turn: &DecisionBuilder<'a>, pool: &PoolPolicy, offer: &mut Offer<'a>) {
    for daemon in daemons(turn, &offer.labels, pool, NEW) {
        amounts::take(&mut offer.free, &daemon.shape.requests, 1);
        amounts::take_more(&mut offer.free, &daemon.more);
        offer.ports.extend(daemon.shape.host_ports.iter().cloned());
        offer.residents.push(daemon);
    }
}

/// The DaemonSets that will place a pod on a node with these labels.
pub(crate) fn daemons<'a>(
    turn: &DecisionBuilder<'a>,
    labels: &Labels,
    pool: &PoolPolicy,
    name: &str,
) -> Vec<Daemon<'a>> {
    let place = NodeView {
        name,
        labels,
        taints: &pool.taints,
        unschedulable: false,
    };
    turn.view
        .snapshot
        .cluster
        .daemon_sets
        .iter()
        .filter(|(_, set)| fit::filter_failure(&set.shape, place).is_none())
        .map(|(key, set)| {
            let mut more = Resources::default();
            if let Some(asked) = turn.view.daemon_requests.get(&*set.uid) {
                more = asked.clone();
                more.raise_to(&set.shape.requests);
                more.subtract(&set.shape.requests);
            }
            Daemon {
                key,
                shape: &set.shape,
                more,
            }
        })
        .collect()
}

/// Puts a machine of an offer into the world under a name and with a VMID, with its DaemonSets.
pub(crate) fn place<'a>(
    world: &mut SimCluster<'a>,
    choice: &Choice<'a>,
    offer: &Offer<'a>,
    (name, vmid): (Arc<str>, u32),
    origin: NodeOrigin,
) -> NodeIndex {
    let (pool, instance_type) = (choice.policy, choice.instance_type);
    let labels = if facts::any_gaps(&pool.labels) || facts::any_gaps(&instance_type.labels) {
        let at = NodeAt {
            host: offer.host,
            zone: offer.labels.get(ZONE_LABEL).unwrap_or(offer.host),
            name: &name,
            vmid,
        };
        labels(choice.pool, pool, choice.type_name, instance_type, &at)
    } else {
        let mut labels = offer.labels.clone();
        labels.insert(HOSTNAME_LABEL.into(), name.clone());
        labels
    };
    let node = world.add(SimNode {
        name,
        origin,
        labels: labels.into(),
        taints: choice.policy.taints.clone(),
        unschedulable: false,
        class: ClassId(0),
        ready: false,
        closed: false,
        free: offer.allocatable.clone(),
        ports: Vec::new(),
        residents: IndexVec::default(),
        slots: choice.slots.clone(),
        new_pods: Vec::new(),
        bindings: VolumeBindings::default(),
        receives: false,
    });
    for daemon in &offer.residents {
        daemon.put(world, node);
    }
    node
}

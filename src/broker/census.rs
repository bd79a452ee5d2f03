//! How many machines there are, and what they take: counted on PVE's own reading and on the durable
//! intents, never on what the daemon says.
//!
//! A machine counts with the size of its mark's instance type, whatever it has now: the broker lets
//! no machine be configured larger than that, nor started before it is.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::model::cpus::CpuSet;
use crate::model::mark::Mark;
use crate::pve::perl::Fields;
use crate::pve::{VmConfig, rows};

use super::allow::AdmittedCall;
use super::intents::CloneIntent;
use super::owned;
use super::policy::BrokerPolicy;
use super::service::{BrokerService, Ends, Reply, in_time, unusable};

/// A VM that was somebody else's is looked at again after this.
const FOREIGN: Duration = Duration::from_mins(10);
/// Before a machine is counted against a clone that would be refused, it is looked at again when the
/// last look is older than this.
const SURE: Duration = Duration::from_mins(1);
/// Letters that a machine's name has after its pool's: `-xxxxx`.
const TAIL: usize = 6;

/// What VMs of the range were seen to be.
#[derive(Debug, Default)]
pub(super) struct Census {
    looked: Mutex<BTreeMap<u32, MachineReading>>,
}

#[derive(Clone, Debug)]
struct MachineReading {
    at: Instant,
    /// Pool and instance type of its mark; `None` when it is not ours.
    machine: Option<MarkedMachine>,
}

/// What a machine is, by its mark.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MarkedMachine {
    pool: String,
    instance_type: String,
    addresses: Vec<IpAddr>,
    /// Of the host where it is.
    cpus: CpuSet,
}

impl MarkedMachine {
    fn of(mark: &Mark) -> MarkedMachine {
        MarkedMachine {
            pool: mark.pool.clone(),
            instance_type: mark.instance_type.clone(),
            addresses: mark.addresses.values().flatten().copied().collect(),
            cpus: mark.cpus.clone(),
        }
    }
}

impl Census {
    fn looked(&self) -> MutexGuard<'_, BTreeMap<u32, MachineReading>> {
        self.looked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A configuration was read just now, with this mark of ours or none.
    pub(super) fn note(&self, vmid: u32, mark: Option<&Mark>) {
        let looked = MachineReading {
            at: Instant::now(),
            machine: mark.map(MarkedMachine::of),
        };
        self.looked().insert(vmid, looked);
    }

    /// Only VMs that are there are remembered.
    pub(super) fn keep(&self, there: &BTreeSet<u32>) {
        self.looked().retain(|vmid, _| there.contains(vmid));
    }

    fn last(&self, vmid: u32) -> Option<MachineReading> {
        self.looked().get(&vmid).cloned()
    }
}

/// Machines and what they take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Used {
    machines: u32,
    cpu_milli: i64,
    memory: i64,
}

impl Used {
    fn add(&mut self, cpu_milli: i64, memory: i64) {
        self.machines = self.machines.saturating_add(1);
        self.cpu_milli = self.cpu_milli.saturating_add(cpu_milli);
        self.memory = self.memory.saturating_add(memory);
    }
}

#[derive(Debug, Default)]
struct MachineCounts {
    all: Used,
    pools: BTreeMap<String, Used>,
    /// VMIDs of the machines by the addresses that are reserved for them.
    addresses: BTreeMap<IpAddr, BTreeSet<u32>>,
    /// VMIDs of the machines that have CPUs for themselves, with them, by host.
    cpus: BTreeMap<String, Vec<(u32, CpuSet)>>,
}

impl MachineCounts {
    /// One machine more, on this host; `present` is what PVE shows of it, for a type that the policy does not have.
    fn add(
        &mut self,
        policy: &BrokerPolicy,
        (vmid, host, kind): (u32, &str, &MarkedMachine),
        present: (i64, i64),
    ) {
        if !kind.cpus.is_empty() {
            let there = self.cpus.entry(host.to_owned()).or_default();
            there.push((vmid, kind.cpus.clone()));
        }
        for address in &kind.addresses {
            self.addresses.entry(*address).or_default().insert(vmid);
        }
        let size = policy.allow.types.get(&kind.instance_type);
        let (cpu, memory) = size.map_or(present, |size| {
            (i64::from(size.cores).saturating_mul(1000), size.memory)
        });
        self.all.add(cpu, memory);
        self.pools
            .entry(kind.pool.clone())
            .or_default()
            .add(cpu, memory);
    }

    /// An address of a machine that is another VM's too, of those that `keeps` names.
    fn shares(&self, mark: &Mark, keeps: impl Fn(u32) -> bool) -> Option<(IpAddr, u32)> {
        let all = mark.addresses.values().flatten();
        let mut shared = all.filter_map(|address| {
            let holders = self.addresses.get(address)?.iter().copied();
            let mut others = holders.filter(|vmid| *vmid != mark.vmid && keeps(*vmid));
            Some((*address, others.next()?))
        });
        shared.next()
    }

    /// What a machine on this host would have together with another one that `keeps` names, and why it does not get it.
    fn shared(&self, (mark, host): (&Mark, &str), keeps: impl Fn(u32) -> bool) -> Option<String> {
        if let Some((address, other)) = self.shares(mark, &keeps) {
            return Some(format!("the address {address}: VM {other} has it"));
        }
        let there = self.cpus.get(host).into_iter().flatten();
        let mut others = there.filter(|(vmid, _)| *vmid != mark.vmid && keeps(*vmid));
        others.find_map(|(other, cpus)| {
            let both = cpus.both(&mark.cpus);
            (!both.is_empty()).then(|| format!("the CPUs {both} of {host}: VM {other} has them"))
        })
    }

    /// What is above a limit of `pool` or of all pools, if anything is.
    fn above(&self, policy: &BrokerPolicy, pool: &str) -> Option<String> {
        let allow = &policy.allow;
        let none = Used::default();
        let mut over = String::new();
        let mut say = |what: &str, have: &Used, machines, cpu: Option<i64>, memory: Option<i64>| {
            if let Some(most) = machines
                && have.machines > most
            {
                let _ = write!(
                    over,
                    "{what} would have {} machines with those being made, its most is {most}; ",
                    have.machines
                );
            }
            if let Some(most) = cpu
                && have.cpu_milli > most
            {
                let _ = write!(
                    over,
                    "{what} would have {} millicores, its most is {most}; ",
                    have.cpu_milli
                );
            }
            if let Some(most) = memory
                && have.memory > most
            {
                let _ = write!(
                    over,
                    "{what} would have {} MiB of memory, its most is {}; ",
                    have.memory >> 20,
                    most >> 20
                );
            }
        };
        if let Some(limits) = allow.pools.get(pool) {
            let have = self.pools.get(pool).unwrap_or(&none);
            let name = format!("pool {pool}");
            say(
                &name,
                have,
                Some(limits.max),
                limits.max_cpu_milli,
                limits.max_memory,
            );
        }
        say(
            "the region",
            &self.all,
            allow.max_machines,
            allow.max_cpu_milli,
            allow.max_memory_total,
        );
        let over = over.trim_end_matches("; ");
        (!over.is_empty()).then(|| over.to_owned())
    }
}

impl BrokerService {
    /// All guests of the region. An answer that cannot be read right is an error: it must not be taken for a region
    /// without some. A guest whose row cannot be read has one that says so.
    pub(super) async fn resources(&self, end: Instant) -> Result<Value, Ends> {
        let path = ["cluster", "resources"];
        let data = self.read(&path, &[], end).await?;
        rows::resources(&data).map_err(|why| unusable(&path, &why))
    }

    /// One machine more with this mark, on this host, stays within all limits.
    pub(super) async fn room_for(
        &self,
        policy: &BrokerPolicy,
        (mark, host): (&Mark, &str),
        resources: Value,
        end: Instant,
    ) -> Result<(), Ends> {
        let mut seen = CountedOn::at_once(resources);
        loop {
            let mut count = self.count(policy, &seen, Some(mark.vmid), end).await?;
            count.add(policy, (mark.vmid, host, &MarkedMachine::of(mark)), (0, 0));
            if let Some(shared) = count.shared((mark, host), |_| true) {
                if seen.sure.is_some() {
                    return Err(Reply::refused(&format!(
                        "{} does not get {shared} reserved already",
                        mark.machine
                    )));
                }
                seen = self.look_again(policy, seen.resources, end).await?;
                continue;
            }
            let Some(over) = count.above(policy, &mark.pool) else {
                return Ok(());
            };
            if seen.sure.is_some() {
                return Err(Reply::refused(&format!(
                    "{over}; raise max in the configuration, or wait for a removal"
                )));
            }
            seen = self.look_again(policy, seen.resources, end).await?;
        }
    }

    /// The machine may be given its size or be started: it has none that is larger than its instance
    /// type's, and with it no limit is exceeded.
    pub(super) async fn size_allowed(
        &self,
        policy: &BrokerPolicy,
        call: &AdmittedCall,
        (mark, config, record): (&Mark, &VmConfig, &CloneIntent),
        end: Instant,
    ) -> Result<(), Ends> {
        let starts = call.rule.name == "start";
        let sizes = ["cores", "memory", "size", "affinity"];
        if !starts && !sizes.iter().any(|key| call.param(key).is_some()) {
            return Ok(());
        }
        owned::sized(policy, call, mark, config, record).map_err(|why| Reply::refused(&why))?;
        // One list of the region at a time lies in memory.
        let _one = self.counting.lock().await;
        let resources = self.resources(end).await?;
        let mut seen = CountedOn::at_once(resources);
        loop {
            let count = self.count(policy, &seen, None, end).await?;
            // Of two with one address or CPU the one that was configured first keeps it, else the lower VMID; the same rule
            // as the daemon's, so that one of them does come up.
            let keeps = |vmid: u32| match self.intents.get(vmid, self.clock.now()) {
                Ok(held) => {
                    let configured = held.is_some_and(|held| held.configured);
                    configured || (!record.configured && vmid < mark.vmid)
                }
                // What cannot be read may have been configured.
                Err(_) => true,
            };
            let host = call.host.as_deref().unwrap_or_default();
            let affinity = call.param("affinity");
            let has = config.raw.get("affinity").map(|text| &**text);
            let new = !record.configured || (affinity.is_some() && affinity != has);
            let shared = count.shared((mark, host), keeps).filter(|_| new);
            if let Some(shared) = shared {
                return Err(Reply::refused(&format!(
                    "VM {} does not get {shared}",
                    mark.vmid
                )));
            }
            let Some(over) = count.above(policy, &mark.pool) else {
                return Ok(());
            };
            if seen.sure.is_some() {
                let what = if starts { "started" } else { "given its size" };
                return Err(Reply::refused(&format!(
                    "VM {} is not {what}: {over}; raise max in the configuration, or remove machines",
                    mark.vmid
                )));
            }
            seen = self.look_again(policy, seen.resources, end).await?;
        }
    }

    /// Looks again, before something is refused, at what was counted from memory; and which clones are over without
    /// a VM, because they failed or somebody destroyed what they made: these take no room. `resources` are read
    /// again after that, because a clone may just have ended well.
    async fn look_again(
        &self,
        policy: &BrokerPolicy,
        resources: Value,
        end: Instant,
    ) -> Result<CountedOn, Ends> {
        let there: BTreeSet<u32> = entries(&resources).map(|(vmid, _)| vmid).collect();
        let now = self.clock.now();
        let mut ended = BTreeSet::new();
        for vmid in self.intents.vmids() {
            if !there.contains(&vmid)
                && let Ok(Some(intent)) = self.intents.get(vmid, now)
                && !intent.settled
                && !self.may_run(policy, &intent, end).await
            {
                ended.insert(vmid);
            }
        }
        let resources = if ended.is_empty() {
            resources
        } else {
            self.resources(end).await?
        };
        Ok(CountedOn {
            resources,
            sure: Some(SURE),
            ended,
        })
    }

    /// Counts the machines that were seen and the intents whose VM is not there yet, but for `except`.
    async fn count(
        &self,
        policy: &BrokerPolicy,
        seen: &CountedOn,
        except: Option<u32>,
        end: Instant,
    ) -> Result<MachineCounts, Ends> {
        let sure = seen.sure;
        let mut count = MachineCounts::default();
        let mut there = BTreeSet::new();
        let entries = entries(&seen.resources);
        let now = self.clock.now();
        for (vmid, entry) in entries.filter(|(vmid, _)| policy.in_range(*vmid)) {
            there.insert(vmid);
            let qemu = entry.text("type").as_deref() == Some("qemu");
            if !qemu || entry.flag("template") || Some(vmid) == except {
                continue;
            }
            if let Some(kind) = self.kind_of(policy, entry, vmid, sure, end).await? {
                let cpu = i64::from(entry.count("maxcpu")).saturating_mul(1000);
                let node = entry.text("node").unwrap_or_default();
                // PVE shows a VM on its template's host until the clone ends.
                let record = self.intents.get(vmid, now).unwrap_or(None);
                let record = record.filter(|record| !record.settled);
                let target = record.and_then(|record| record.cpus);
                let host = target.map_or(node, |(host, _)| host);
                count.add(
                    policy,
                    (vmid, &host, &kind),
                    (cpu, entry.integer("maxmem").unwrap_or(0)),
                );
            }
        }
        for vmid in self.intents.vmids() {
            if there.contains(&vmid) || seen.ended.contains(&vmid) || Some(vmid) == except {
                continue;
            }
            // One that cannot be read or is too old proves nothing.
            if let Ok(Some(intent)) = self.intents.get(vmid, now)
                && !intent.settled
            {
                let kind = kind_of_intent(&intent);
                let host = intent.cpus.as_ref().map_or("", |(host, _)| host);
                count.add(policy, (vmid, host, &kind), (0, 0));
            }
        }
        Ok(count)
    }

    /// What the VM of an entry of the resources is, when it is ours.
    async fn kind_of(
        &self,
        policy: &BrokerPolicy,
        entry: Fields<'_>,
        vmid: u32,
        sure: Option<Duration>,
        end: Instant,
    ) -> Result<Option<MarkedMachine>, Ends> {
        let record = self.intents.get(vmid, self.clock.now()).unwrap_or(None);
        let last = self.census.last(vmid);
        let age = last.as_ref().map(|looked| looked.at.elapsed());
        let told = record
            .as_ref()
            .is_some_and(|record| tells_cpus(policy, record));
        let known = match (sure, age) {
            (Some(sure), Some(age)) => age < sure,
            (Some(_), None) => false,
            (None, Some(age)) => record.is_some() || age < FOREIGN,
            (None, None) => told,
        };
        if known {
            let seen = last.map(|looked| looked.machine);
            return Ok(seen.unwrap_or_else(|| record.as_ref().map(kind_of_intent)));
        }
        in_time(end)?;
        let host = entry.text("node").unwrap_or_default();
        match self.config(&host, vmid, end).await {
            Ok(config) => {
                self.noticed(policy, vmid, &config);
                let lock = config.lock.as_deref();
                let mark = self.mark(policy, vmid, &config).ok();
                Ok(mark.as_ref().map(MarkedMachine::of).or_else(|| {
                    let made = record.as_ref();
                    let made = made.filter(|made| lock == Some(made.lock()));
                    made.map(kind_of_intent)
                }))
            }
            // Whose it is its row does not tell; what it was when it was looked at last it is still.
            Err(_) if entry.text(rows::ODD).is_some() && record.is_none() => match last {
                Some(looked) => Ok(looked.machine),
                None => {
                    let why = entry.text(rows::ODD).unwrap_or_default();
                    let why = format!("nobody knows whose VM {vmid} is: {why}");
                    Err(unusable(&["cluster", "resources"], &why))
                }
            },
            // Its host is away: by what is recorded of it, or by its name.
            Err(_) => Ok(record
                .as_ref()
                .map(kind_of_intent)
                .or_else(|| by_name(policy, &entry.text("name").unwrap_or_default()))),
        }
    }

    /// A configuration of a VM in the range was read: whose it is, and that a record about somebody
    /// else's is withdrawn.
    pub(super) fn noticed(&self, policy: &BrokerPolicy, vmid: u32, config: &VmConfig) {
        let mark = self.mark(policy, vmid, config).ok();
        let now = self.clock.now();
        let record = self.intents.get(vmid, now).unwrap_or(None);
        let Some(record) = record else {
            self.census.note(vmid, mark.as_ref());
            return;
        };
        let lock = config.lock.as_deref();
        let bare = owned::placeholder(vmid, config).is_ok() && !config.template;
        let theirs = match &mark {
            Some(mark) => mark.machine != record.machine || mark.cluster != record.cluster,
            // What is being made or destroyed shows no mark.
            None => {
                !(lock == Some(super::removals::LOCK) || (record.may_be_placeholder(lock) && bare))
            }
        };
        if theirs {
            tracing::warn!(
                vmid,
                machine = record.machine,
                "this VMID is another's now: what is recorded of our clone does not count any more"
            );
            if let Err(why) = self.intents.forget(vmid) {
                tracing::error!(why, "the record of a clone is still there");
            }
        }
        if theirs || mark.is_some() {
            self.census.note(vmid, mark.as_ref());
        }
    }
}

/// What machines are counted on.
struct CountedOn {
    /// `/cluster/resources`.
    resources: Value,
    /// What was last looked at longer ago than this is looked at; `None` looks at what was never looked at alone.
    sure: Option<Duration>,
    /// VMIDs of clones that are over and left no VM.
    ended: BTreeSet<u32>,
}

impl CountedOn {
    /// Resources that were read just now; all else is counted from memory.
    fn at_once(resources: Value) -> CountedOn {
        CountedOn {
            resources,
            sure: None,
            ended: BTreeSet::new(),
        }
    }
}

/// The resources that have a VMID.
pub(super) fn entries(resources: &Value) -> impl Iterator<Item = (u32, Fields<'_>)> {
    let all = resources.as_array().into_iter().flatten().map(Fields::of);
    all.filter_map(|entry| {
        let vmid = u32::try_from(entry.integer("vmid")?).ok()?;
        Some((vmid, entry))
    })
}

/// Whether a record says which CPUs the machine has for itself, if its pool gives it some: older ones do not.
fn tells_cpus(policy: &BrokerPolicy, record: &CloneIntent) -> bool {
    let pool = policy.allow.pools.get(&record.pool);
    record.cpus.is_some() || !pool.is_some_and(|pool| pool.pinning.cpus)
}

fn kind_of_intent(intent: &CloneIntent) -> MarkedMachine {
    MarkedMachine {
        pool: intent.pool.clone(),
        instance_type: intent.instance_type.clone(),
        addresses: intent.addresses.clone(),
        cpus: {
            let cpus = intent.cpus.as_ref().map(|(_, cpus)| cpus.clone());
            cpus.unwrap_or_default()
        },
    }
}

/// A VM that cannot be read, by its name: `POOL-xxxxx`.
fn by_name(policy: &BrokerPolicy, name: &str) -> Option<MarkedMachine> {
    let pool = name.get(..name.len().checked_sub(TAIL)?)?;
    let tail = name.get(pool.len()..)?;
    let named = policy.allow.pools.contains_key(pool) && tail.starts_with('-');
    named.then(|| MarkedMachine {
        pool: pool.to_owned(),
        instance_type: String::new(),
        addresses: Vec::new(),
        cpus: CpuSet::new(),
    })
}

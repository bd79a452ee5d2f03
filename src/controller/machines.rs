//! Joins what PVE shows, what Kubernetes shows and what the journal remembers into our machines.
//! Pure.
//!
//! A VM is a machine when its mark is ours and intact; a VM without a mark only while it is the
//! locked placeholder of a clone that the journal intends, or what PVE has left of it: while the
//! journal says that it is being destroyed, or after somebody else began to destroy what was seen with our mark. Which node is a machine's is for [`identity`] to say.
//!
//! [`identity`]: crate::model::identity

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::controller::in_place::Beside;
use crate::controller::journal::JournalEntry;
use crate::model::chosen_storages::ChosenStorages;
use crate::model::cluster::Cluster;
use crate::model::identity::{NodeIdentity, NodeSigns};
use crate::model::mark::{Mark, Ownership};
use crate::model::region::{Busy, GuestKind, Machine, MachineVm, Region, RegionName, Step, Vm};
use crate::model::shared::Shared;
use crate::pve::VmConfig;

/// A region as observed: the brain's view and what was read of single VMs beside it.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The view.
    pub region: Shared<Region>,
    /// SMBIOS UUID and digest by VMID, of VMs whose configuration was read.
    pub facts: BTreeMap<u32, LastVmConfig>,
    /// The VMs that are copies of each configured template by what PVE lists of them.
    pub templates: BTreeMap<Arc<str>, BTreeSet<u32>>,
}

/// What a VM's configuration said when it was last read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastVmConfig {
    /// SMBIOS UUID, lower case.
    pub uuid: Option<Arc<str>>,
    /// The digest.
    pub digest: Option<Arc<str>>,
    /// All of it.
    pub config: Option<Arc<VmConfig>>,
    /// The VM's resource pool and firewall rules.
    pub beside: Beside,
}

/// All machines by name. `cluster_id` as in the marks.
pub fn machines(
    cluster_id: &str,
    regions: &BTreeMap<RegionName, Observed>,
    cluster: &Cluster,
    journal: &BTreeMap<Arc<str>, JournalEntry>,
    busy: &BTreeMap<Arc<str>, Busy>,
) -> BTreeMap<Arc<str>, Machine> {
    let mut machines = BTreeMap::new();
    for (name, observed) in regions {
        for (vmid, vm) in &observed.region.vms {
            let Some(mark) = our_mark(vm, *vmid, cluster_id) else {
                continue;
            };
            let seen = seen(vm, observed.facts.get(vmid), true);
            let machine = Machine {
                terms: None,
                region: name.clone(),
                host: vm.host.clone(),
                mark: mark.clone(),
                storages: ChosenStorages::default(),
                intended: false,
                node: None,
                contradiction: None,
                remembered: None,
                vm: Some(seen),
                step: None,
                failure: None,
                busy: None,
            };
            machines.insert(Arc::from(mark.machine.as_str()), machine);
        }
    }
    let own = |entry: &JournalEntry| cluster_id.is_empty() || entry.spec.mark.cluster == cluster_id;
    for (name, entry) in journal.iter().filter(|(_, entry)| own(entry)) {
        let machine = machines
            .entry(name.clone())
            .or_insert_with(|| intended(entry, regions));
        machine.intended = true;
        machine.remembered.clone_from(&entry.uuid);
        machine.step = Some((entry.step, entry.since));
        machine.terms.clone_from(&entry.spec.terms);
        machine.storages.clone_from(&entry.spec.storages);
        machine.failure.clone_from(&entry.failure);
        if is_being_cloned(machine) {
            machine.host = entry.target.host.clone();
        }
    }
    for (name, work) in busy {
        if let Some(machine) = machines.get_mut(name) {
            machine.busy = Some(*work);
        }
    }
    let nodes = NodeSigns::of(&cluster.nodes);
    for machine in machines.values_mut() {
        match machine.signs().map(|signs| nodes.identify(&signs)) {
            Some(NodeIdentity::Agreed(node)) => machine.node = Some(node),
            Some(NodeIdentity::Contradiction(found)) => machine.contradiction = Some(found),
            Some(NodeIdentity::None) | None => {}
        }
    }
    machines
}

/// Whether PVE may still show the VM on its template's host: the end of a clone moves it, and the view hears of that some seconds after
/// the executor, which reads the VM itself. What the machine will take counts where it will be. One that has failed is removed where it is.
fn is_being_cloned(machine: &Machine) -> bool {
    let coming = machine.step.is_some_and(|(step, _)| step <= Step::Start);
    coming && machine.failure.is_none() && machine.vm.is_some()
}

/// The machines of other clusters in the journal, by cluster id: a state directory outlives the
/// cluster that it was written for. Nothing while our own id is not known.
pub fn former(
    cluster_id: &str,
    journal: &BTreeMap<Arc<str>, JournalEntry>,
) -> BTreeMap<Arc<str>, Vec<Arc<str>>> {
    let mut former: BTreeMap<Arc<str>, Vec<Arc<str>>> = BTreeMap::new();
    for (name, entry) in journal {
        let cluster = entry.spec.mark.cluster.as_str();
        if !cluster_id.is_empty() && cluster != cluster_id {
            former.entry(cluster.into()).or_default().push(name.clone());
        }
    }
    former
}

/// The mark of a VM that is ours: intact, of our cluster, and made for this very VMID.
fn our_mark<'a>(vm: &'a Vm, vmid: u32, cluster_id: &str) -> Option<&'a Shared<Mark>> {
    match &vm.ownership {
        Some(Ownership::Marked(mark))
            if vm.kind == GuestKind::Qemu
                && !vm.template
                && mark.cluster == cluster_id
                && mark.vmid == vmid =>
        {
            Some(mark)
        }
        _ => None,
    }
}

/// A machine known from the journal alone, with its placeholder if a clone is under way, or with what
/// is left of it if its removal was cut short.
fn intended(entry: &JournalEntry, regions: &BTreeMap<RegionName, Observed>) -> Machine {
    let target = &entry.target;
    let observed = regions.get(&target.region);
    let placeholder = observed.and_then(|observed| {
        let vm = observed.region.vms.get(&target.vmid)?;
        let unmarked = matches!(vm.ownership, None | Some(Ownership::Unmarked));
        let locked = match vm.lock.as_deref() {
            // A machine whose VM once carried our mark has no clone under way: a placeholder at its VMID is another
            // machine's, or a person's.
            Some(lock) if lock == entry.spec.lock() => !entry.was_ours(),
            Some("destroyed") => entry.step == Step::Destroy || entry.was_ours(),
            _ => false,
        };
        (unmarked && locked && vm.kind == GuestKind::Qemu && !vm.running).then(|| {
            (
                vm.host.clone(),
                seen(vm, observed.facts.get(&target.vmid), false),
            )
        })
    });
    let (host, vm) = placeholder.unzip();
    Machine {
        terms: None,
        region: target.region.clone(),
        host: host.unwrap_or_else(|| target.host.clone()),
        mark: entry.spec.mark.clone().into(),
        storages: entry.spec.storages.clone(),
        intended: true,
        vm,
        node: None,
        contradiction: None,
        remembered: entry.uuid.clone(),
        step: None,
        failure: None,
        busy: None,
    }
}

fn seen(vm: &Vm, facts: Option<&LastVmConfig>, marked: bool) -> MachineVm {
    let facts = facts.cloned().unwrap_or_default();
    MachineVm {
        running: vm.running,
        lock: vm.lock.clone(),
        ha: vm.ha,
        marked,
        uuid: facts.uuid,
        digest: facts.digest,
        differs: Vec::new(),
        drifted: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::action::{CreateSpec, Target};
    use crate::model::cluster::{Node, Readiness};
    use crate::model::resources::Resources;
    use crate::model::time::Time;

    const CLUSTER: &str = "uid/home";

    fn mark(vmid: u32, cluster: &str) -> Mark {
        Mark {
            cluster: cluster.into(),
            machine: format!("small-{vmid}"),
            vmid,
            pool: "small".into(),
            instance_type: "s2".into(),
            template: "debian".into(),
            token: "abcdef".into(),
            created: Time(0),
            addresses: BTreeMap::new(),
            cpus: crate::model::cpus::CpuSet::new(),
            unknown: [].into(),
        }
    }

    fn region(vms: &[(u32, Option<Ownership>, Option<&str>)]) -> BTreeMap<RegionName, Observed> {
        let mut observed = Observed::default();
        for (vmid, ownership, lock) in vms {
            let vm = Vm {
                host: "pve1".into(),
                ownership: ownership.clone(),
                lock: lock.map(Arc::from),
                ..Vm::default()
            };
            observed.region.vms.insert(*vmid, vm);
            let uuid = Some(Arc::from(format!("uuid-{vmid}")));
            observed.facts.insert(
                *vmid,
                LastVmConfig {
                    uuid,
                    ..LastVmConfig::default()
                },
            );
        }
        BTreeMap::from([(RegionName::from("default"), observed)])
    }

    fn cluster_with_node(name: &str, uuid: &str) -> Cluster {
        let node = Node {
            uid: "n1".into(),
            system_uuid: uuid.into(),
            provider_id: None,
            created: Time(0),
            deletion: None,
            labels: Shared::default(),
            annotations: Shared::default(),
            taints: Vec::new(),
            unschedulable: false,
            allocatable: Resources::default(),
            capacity: Resources::default(),
            ready: Readiness::default(),
            kubelet_version: "v1.36.0".into(),
            addresses: Vec::new(),
        };
        Cluster {
            nodes: BTreeMap::from([(Arc::from(name), node)]),
            ..Cluster::default()
        }
    }

    fn entry(vmid: u32) -> (Arc<str>, JournalEntry) {
        let mark = mark(vmid, CLUSTER);
        let name: Arc<str> = mark.machine.as_str().into();
        let target = Target {
            region: "default".into(),
            host: "pve1".into(),
            vmid,
            machine: name.clone(),
            node: None,
        };
        let spec = CreateSpec {
            mark,
            template_vmid: 9000,
            template_host: "pve1".into(),
            template_uuid: None,
            storages: ChosenStorages::default(),
            terms: None,
        };
        (name, JournalEntry::new(target, spec, Time(0)))
    }

    #[test]
    fn only_an_intact_mark_of_ours_for_this_vmid_makes_a_machine() {
        let marked = |mark: Mark| Some(Ownership::Marked(mark.into()));
        let regions = region(&[
            (1, marked(mark(1, CLUSTER)), None),
            (2, marked(mark(2, "uid/other")), None),
            (3, marked(mark(1, CLUSTER)), None),
            (4, Some(Ownership::Damaged("x".into())), None),
            (5, Some(Ownership::Unmarked), Some("clone")),
            (6, None, None),
        ]);
        let found = machines(
            CLUSTER,
            &regions,
            &cluster_with_node("small-1", "uuid-1"),
            &BTreeMap::new(),
            &BTreeMap::new(),
        );
        assert_eq!(found.keys().map(|k| &**k).collect::<Vec<_>>(), ["small-1"]);
        assert_eq!(found["small-1"].node.as_deref(), Some("small-1"));
        assert!(!found["small-1"].intended);
    }

    #[test]
    fn a_node_that_shows_less_than_all_contradicts() {
        let marked = Some(Ownership::Marked(mark(1, CLUSTER).into()));
        let regions = region(&[(1, marked, None)]);
        let (name, mut entry) = entry(1);
        entry.step = Step::Done;
        let mut seen = |cluster: &Cluster, uuid: Option<&str>| {
            entry.uuid = uuid.map(Arc::from);
            let journal = BTreeMap::from([(name.clone(), entry.clone())]);
            let found = machines(CLUSTER, &regions, cluster, &journal, &BTreeMap::new());
            let machine = &found["small-1"];
            (machine.node.is_some(), machine.contradiction.is_some())
        };
        let right = cluster_with_node("small-1", "uuid-1");
        assert_eq!(seen(&right, Some("uuid-1")), (true, false));
        assert_eq!(seen(&right, Some("uuid-before")), (false, true));
        assert_eq!(seen(&cluster_with_node("x", "uuid-1"), None), (false, true));
        assert_eq!(
            seen(&cluster_with_node("small-1", "x"), None),
            (false, true)
        );
        assert_eq!(seen(&cluster_with_node("x", "x"), None), (false, false));
    }

    #[test]
    fn a_uuid_counts_from_the_first_start_on() {
        let marked = Some(Ownership::Marked(mark(1, CLUSTER).into()));
        let regions = region(&[(1, marked, None)]);
        for (step, contradicts) in [
            (Step::Configure, false),
            (Step::Resize, false),
            (Step::Start, true),
            (Step::Join, true),
        ] {
            let (name, mut entry) = entry(1);
            (entry.step, entry.uuid) = (step, Some("uuid-for-a-while".into()));
            let journal = BTreeMap::from([(name, entry)]);
            let cluster = Cluster::default();
            let found = machines(CLUSTER, &regions, &cluster, &journal, &BTreeMap::new());
            let contradiction = &found["small-1"].contradiction;
            assert_eq!(contradiction.is_some(), contradicts, "{step:?}");
        }
    }

    #[test]
    fn an_intent_owns_a_locked_placeholder_and_nothing_else() {
        let journal = BTreeMap::from([entry(5), entry(6), entry(7)]);
        let regions = region(&[
            (5, Some(Ownership::Unmarked), Some("clone")),
            (6, Some(Ownership::Unmarked), None),
        ]);
        let cluster = cluster_with_node("small-5", "uuid-5");
        let found = machines(CLUSTER, &regions, &cluster, &journal, &BTreeMap::new());
        assert!(found["small-5"].vm.as_ref().is_some_and(|vm| !vm.marked));
        assert_eq!(found["small-5"].node, None, "a placeholder has no node");
        assert_eq!(found["small-6"].vm, None, "somebody else took the VMID");
        assert_eq!(found["small-7"].vm, None);
    }

    #[test]
    fn what_is_left_of_a_vm_is_a_machines_while_it_is_being_destroyed() {
        for (step, marked, lock, there) in [
            (Step::Destroy, false, "destroyed", true),
            (Step::Shutdown, false, "destroyed", false),
            (Step::Done, false, "destroyed", false),
            // Somebody else's removal of what was seen with our mark.
            (Step::Done, true, "destroyed", true),
            (Step::Destroy, false, "backup", false),
            (Step::Done, true, "backup", false),
            (Step::Join, false, "clone", true),
            (Step::Join, true, "clone", false),
        ] {
            let (name, mut entry) = entry(5);
            (entry.step, entry.marked) = (step, marked);
            let regions = region(&[(5, Some(Ownership::Unmarked), Some(lock))]);
            let found = machines(
                CLUSTER,
                &regions,
                &cluster_with_node("small-5", "uuid-5"),
                &BTreeMap::from([(name, entry)]),
                &BTreeMap::new(),
            );
            let machine = &found["small-5"];
            assert_eq!(machine.vm.is_some(), there, "{step:?} {marked} {lock}");
            assert_eq!(machine.node, None);
        }
    }
}

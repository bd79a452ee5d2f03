//! Rules for machines there are: going on, releasing, clearing away.

use super::{Case, CheckResult, CheckRule, Refusal, ensure, refuse};
use model::action::{Action, Kind, Reason, is_being_made};
use model::cluster::{Node, ReadyStatus};
use model::identity::{self, NodeIdentity};
use model::mark::Ownership;
use model::policy::{
    LEAVING_TAINT, MACHINE_ANNOTATION, POOL_LABEL, REGION_LABEL, STARTUP_TAINT, ZONE_LABEL,
};
use model::region::{Busy, Host, Machine, Step, Vm};

/// The machine an action is about, where the action says it is, and ours.
pub(super) fn machine<'a>(case: Case<'a>, action: &Action) -> Result<&'a Machine, Refusal> {
    let target = &action.target;
    let Some(machine) = case.snapshot.machines.get(&target.machine) else {
        return refuse(
            CheckRule::Target,
            format!("no machine {} is known", target.machine),
        );
    };
    let same = machine.region == target.region
        && machine.mark.vmid == target.vmid
        && machine.host == target.host;
    ensure(same, CheckRule::Target, || {
        format!(
            "{} is VM {} on {} in {} now",
            target.machine, machine.mark.vmid, machine.host, machine.region
        )
    })?;
    ensure(
        case.policy.pools.contains_key(machine.mark.pool.as_str()),
        CheckRule::Unconfigured,
        || format!("its pool {} is not configured", machine.mark.pool),
    )?;
    ours(case, action, machine)?;
    identified(case, machine)?;
    Ok(machine)
}

/// The nodes say what the view says of the machine's node, and nothing against it: the rule is applied anew, to
/// every node there is.
fn identified(case: Case<'_>, machine: &Machine) -> CheckResult {
    let Some(signs) = machine.signs() else {
        return Ok(());
    };
    let nodes = &case.snapshot.cluster.nodes;
    // Whether one that has just gone may be missing is another rule's question.
    let named = machine.node.as_ref();
    let named = named.filter(|name| nodes.contains_key(*name));
    match signs.identify(nodes) {
        NodeIdentity::Contradiction(found) => refuse(CheckRule::Identity, found.why),
        said => ensure(said.agreed() == named, CheckRule::Identity, || {
            format!("its node is {:?}, not {named:?}", said.agreed())
        }),
    }
}

/// The mark is ours, unedited, on one VM, and what was planned with.
fn ours(case: Case<'_>, action: &Action, machine: &Machine) -> CheckResult {
    let mark = &machine.mark;
    let id = case.snapshot.cluster_id.as_deref();
    ensure(
        Some(mark.cluster.as_str()) == id && *mark.machine == *action.target.machine,
        CheckRule::Ours,
        || format!("its mark is of {} in {}", mark.machine, mark.cluster),
    )?;
    let planned = action.precondition.mark.as_ref();
    ensure(
        planned.is_none_or(|planned| *planned == **mark),
        CheckRule::Ours,
        || "it carries another mark than it was planned with".to_owned(),
    )?;
    carried_once(case, machine)?;
    let there = case
        .snapshot
        .regions
        .get(&machine.region)
        .and_then(|region| region.vms.get(&mark.vmid))
        .and_then(|vm| vm.ownership.as_ref());
    match there {
        Some(Ownership::Damaged(why)) => {
            refuse(CheckRule::Ours, format!("its mark is damaged: {why}"))
        }
        Some(Ownership::UnknownVersion(version)) => {
            refuse(CheckRule::Ours, format!("its mark has version {version}"))
        }
        Some(Ownership::Marked(seen)) => {
            // Another machine's VM is not touched when the entry is dropped whose VMID it has.
            let theirs = seen.machine != mark.machine && action.kind == Kind::DropIntent;
            ensure(seen == mark || theirs, CheckRule::Ours, || {
                "its VM carries another mark".to_owned()
            })
        }
        Some(Ownership::Unmarked) | None => Ok(()),
    }
}

/// One VM at most carries the mark of a machine.
pub(super) fn carried_once(case: Case<'_>, machine: &Machine) -> CheckResult {
    let mark = &machine.mark;
    let mut carriers = 0;
    for region in case.snapshot.regions.values() {
        for vm in region.vms.values() {
            if let Some(Ownership::Marked(other)) = &vm.ownership
                && other.machine == mark.machine
                && other.cluster == mark.cluster
            {
                carriers += 1;
            }
        }
    }
    ensure(carriers <= 1, CheckRule::Ours, || {
        format!("{carriers} VMs carry its mark")
    })
}

/// The node the action names is there, under the same UID; and is the machine's.
pub(super) fn node<'a>(case: Case<'a>, action: &Action) -> Result<&'a Node, Refusal> {
    let Some(wanted) = &action.target.node else {
        return refuse(CheckRule::Node, "it names no node");
    };
    match case.snapshot.cluster.nodes.get(&wanted.name) {
        None => refuse(CheckRule::Node, format!("the node {} is gone", wanted.name)),
        Some(node) if node.uid != wanted.uid => refuse(
            CheckRule::Node,
            format!("the node {} was made anew", wanted.name),
        ),
        Some(node) => Ok(node),
    }
}

/// The node that the action names is the one the machine has.
pub(super) fn same_node(action: &Action, machine: &Machine) -> CheckResult {
    let named = action.target.node.as_ref().map(|node| &node.name);
    ensure(named == machine.node.as_ref(), CheckRule::Node, || {
        format!(
            "it names the node {named:?}, the machine's is {:?}",
            machine.node
        )
    })
}

pub(super) fn going(node: &Node) -> bool {
    node.deletion.is_some() || node.taints.iter().any(|t| &*t.key == LEAVING_TAINT)
}

pub(super) fn may_continue(case: Case<'_>, action: &Action) -> CheckResult {
    let machine = machine(case, action)?;
    let vm = machine.vm.as_ref();
    let placeholder =
        machine.intended && vm.is_none_or(|vm| !vm.marked && is_being_made(vm.lock.as_deref()));
    ensure(
        vm.is_some_and(|vm| vm.marked) || placeholder,
        CheckRule::Ours,
        || "neither a mark nor an intent makes it ours".to_owned(),
    )?;
    let on_its_way_out = machine.step.is_some_and(|(step, _)| step > Step::Done)
        || machine.busy == Some(Busy::Down)
        || machine
            .node
            .as_ref()
            .and_then(|name| case.snapshot.cluster.nodes.get(name))
            .is_some_and(going);
    ensure(!on_its_way_out, CheckRule::Leaving, || {
        "it is being taken down".to_owned()
    })
}

/// A VM may be started that is off, unlocked, on a host that answers, and behind a Node that stays.
pub(super) fn may_start(case: Case<'_>, action: &Action) -> CheckResult {
    let machine = machine(case, action)?;
    let node = node(case, action)?;
    same_node(action, machine)?;
    let vm = machine.vm.as_ref().filter(|vm| vm.marked);
    let Some(vm) = vm else {
        return refuse(CheckRule::Ours, "its VM does not carry our mark");
    };
    ensure(
        !vm.running && vm.lock.is_none() && !vm.ha,
        CheckRule::Power,
        || {
            format!(
                "its VM runs ({}), is locked ({:?}) or belongs to the HA manager ({})",
                vm.running, vm.lock, vm.ha
            )
        },
    )?;
    let region = case.snapshot.regions.get(&machine.region);
    let host = region.and_then(|region| region.hosts.get(&machine.host));
    ensure(host.is_some_and(Host::answers), CheckRule::Host, || {
        format!(
            "its host {} is not online, or does not answer",
            machine.host
        )
    })?;
    let worked = machine.step.is_none_or(|(step, _)| step == Step::Done);
    ensure(
        worked && !going(node) && machine.busy.is_none(),
        CheckRule::Leaving,
        || "it is on its way up or down".to_owned(),
    )
}

pub(super) fn release(case: Case<'_>, action: &Action) -> CheckResult {
    let machine = machine(case, action)?;
    let node = node(case, action)?;
    same_node(action, machine)?;
    let shut = machine.step.is_some_and(|(step, _)| step >= Step::Shutdown);
    // A drain whose cordon somebody took away is taken back as well, or it would stand there for ever.
    let begun = machine
        .step
        .is_some_and(|(step, _)| matches!(step, Step::Drain | Step::Detach));
    ensure(
        (going(node) || begun) && machine.busy != Some(Busy::Down) && !shut,
        CheckRule::Leaving,
        || "it is not leaving, or cannot come back".to_owned(),
    )
}

pub(super) fn relabel(case: Case<'_>, action: &Action) -> CheckResult {
    let machine = machine(case, action)?;
    let node = node(case, action)?;
    same_node(action, machine)?;
    let vm = machine.vm.as_ref();
    let still = vm.is_some_and(|vm| vm.marked && vm.lock.is_none()) && machine.busy.is_none();
    ensure(still && !going(node), CheckRule::Leaving, || {
        "its VM is not at rest, or it is leaving".to_owned()
    })?;
    if action.reason == Reason::Reregistered {
        let closed = node.taints.iter().any(|taint| &*taint.key == STARTUP_TAINT);
        let done = machine.step.is_some_and(|(step, _)| step == Step::Done);
        return ensure(
            closed && done && node.ready.status == ReadyStatus::True,
            CheckRule::Leaving,
            || "it never worked, is not Ready, or bears no startup taint".to_owned(),
        );
    }
    let hosts = case.snapshot.regions.get(&machine.region);
    let known = |host: &str| hosts.is_some_and(|region| region.hosts.contains_key(host));
    let says = node.labels.get(ZONE_LABEL);
    // The host that a zone stands for, whether its region is named in it or not.
    let stands_for = |zone: &str| match zone.rsplit_once('.') {
        Some((_, host)) if known(host) => Some(host.to_owned()),
        _ => known(zone).then(|| zone.to_owned()),
    };
    let old = says.and_then(|says| stands_for(says));
    ensure(
        known(&machine.host) && old.is_some_and(|old| *old != *machine.host),
        CheckRule::Host,
        || format!("its zone is no other host than {}", machine.host),
    )
}

pub(super) fn delete_node(case: Case<'_>, action: &Action) -> CheckResult {
    let node = node(case, action)?;
    let target = &action.target;
    let ready = node.ready.status == ReadyStatus::True && !planted!(ReadyNodeDeleted);
    ensure(!ready, CheckRule::VmGone, || {
        format!("the node {} is Ready: something runs", target.machine)
    })?;
    let named = action.target.node.as_ref().map_or("", |of| &of.name);
    for (name, machine) in &case.snapshot.machines {
        let signs = machine.signs();
        let touched = signs.is_some_and(|signs| signs.touch(named, node))
            || (machine.vm.is_some() && *name == target.machine);
        ensure(!touched, CheckRule::VmGone, || {
            format!("it shows signs of {name}, whose VM is there")
        })?;
    }
    let vms = case
        .snapshot
        .regions
        .get(&target.region)
        .map(|region| &region.vms);
    let there = vms.is_some_and(|vms| {
        vms.iter().any(|(vmid, vm)| {
            let called = *vmid == target.vmid || vm.name == target.machine;
            (called || vm.uuid.is_some()) && !other(vm, node)
        })
    });
    ensure(!there, CheckRule::VmGone, || {
        format!(
            "a VM {}, or one of its name or its UUID, is there",
            target.vmid
        )
    })
}

/// Whether a VM shows that it is not this node's: VMIDs are used again, with another UUID.
fn other(vm: &Vm, node: &Node) -> bool {
    let uuid = vm.uuid.as_deref();
    uuid.is_some_and(|uuid| !uuid.eq_ignore_ascii_case(&node.system_uuid))
}

/// Whether nothing runs behind a node, as PVE shows: the VM it names is not there any more, or is
/// switched off on a host that answers.
pub(super) fn lifeless(case: Case<'_>, name: &str, node: &Node) -> bool {
    let uuid_of = |machine: &Machine| machine.vm.as_ref().and_then(|vm| vm.uuid.clone());
    let behind = case.snapshot.machines.iter().find(|(own, machine)| {
        machine.node.as_deref() == Some(name)
            || ***own == *name
            || uuid_of(machine).is_some_and(|uuid| uuid.eq_ignore_ascii_case(&node.system_uuid))
    });
    if let Some((_, machine)) = behind {
        let Some(vm) = &machine.vm else { return true };
        let region = case.snapshot.regions.get(&machine.region);
        let host = region.and_then(|region| region.hosts.get(&machine.host));
        return !vm.running && host.is_some_and(Host::answers);
    }
    let named = node.annotations.get(MACHINE_ANNOTATION);
    if named.is_none() && !node.labels.contains_key(POOL_LABEL) {
        return false;
    }
    let (region, vmid, uuid) = match named.map(|text| identity::named(text)) {
        Some(Some(named)) => (Some(named.region), Some(named.vmid), Some(named.uuid)),
        // What cannot be read may be any VM's.
        Some(None) => return false,
        None => (None, None, None),
    };
    // Before the annotation is written the label alone names the region.
    let region = region.or_else(|| node.labels.get(REGION_LABEL).map(|text| &**text));
    let Some(region) = region.and_then(|region| case.snapshot.regions.get(region)) else {
        return false;
    };
    let agrees = uuid.is_none_or(|uuid| uuid.eq_ignore_ascii_case(&node.system_uuid));
    let there = region
        .vms
        .iter()
        .any(|(id, vm)| (Some(*id) == vmid || *vm.name == *name) && !other(vm, node));
    agrees && !there
}

pub(super) fn delete_placeholder(case: Case<'_>, action: &Action) -> CheckResult {
    let machine = machine(case, action)?;
    let lock = machine
        .vm
        .as_ref()
        .filter(|vm| !vm.marked && !vm.running)
        .and_then(|vm| vm.lock.as_deref());
    let clone = is_being_made(lock);
    // Of a VM that is being destroyed nothing but the lock is left.
    let remains =
        lock == Some("destroyed") && machine.step.is_some_and(|(step, _)| step == Step::Destroy);
    ensure(
        (clone || remains) && machine.intended && machine.node.is_none(),
        CheckRule::Placeholder,
        || {
            "it is neither the locked, markless VM of an intended clone nor what our removal left"
                .to_owned()
        },
    )
}

pub(super) fn drop_intent(case: Case<'_>, action: &Action) -> CheckResult {
    let machine = machine(case, action)?;
    let node = machine
        .node
        .as_ref()
        .is_some_and(|name| case.snapshot.cluster.nodes.contains_key(name));
    ensure(machine.vm.is_none() && !node, CheckRule::Intent, || {
        "its VM or its node is there".to_owned()
    })
}

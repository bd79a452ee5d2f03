//! What the daemon changed in PVE: only marked machines of this cluster, and none whose node has something to lose.

use super::known::SeenMachine;
use super::{Judge, ReadMark, mark};
use crate::model::action::is_being_made;
use crate::model::time::{Span, Time};
use crate::sim::pve::{MachineChange, VmFacts};

/// A clone that was under way when the quorum was lost has been asked for by then.
const NO_QUORUM: Span = Span::minutes(3);
/// A view may be three minutes old, and a plan some more.
const OLD_VIEW: Span = Span::minutes(4);
/// After this long everybody knows that the Lease is somebody else's.
const LEASE: Span = Span::seconds(45);
/// A node that is Ready for so long is cordoned before its VM stops; one that has just come back may be too late.
const READY: Span = Span::minutes(1);
/// A task of PVE's that was begun when a VM was ours has got the VM's lock by then.
const LOCKED: Span = Span::minutes(1);
/// A clone that nobody knows of any more was asked for, and has ended, by then.
const FORGOTTEN: Span = Span::minutes(15);
/// From a failure to the removal of what failed, when nothing hinders it.
const AT_ONCE: Span = Span::seconds(10);
/// What was read so long before a VM loses its power is as good as read now.
const FRESH: Span = Span::seconds(10);
/// From what happens to the judge's next look.
const LOOK: Span = Span::seconds(1);

impl Judge {
    /// Who touched which VM: only marked machines of this cluster may be changed.
    pub(super) fn look_at_change(&mut self, now: Time, change: &MachineChange) {
        let by_hand = change.by == "administrator";
        let vmid = change.vmid;
        let seen = mark(&change.description);
        let own = seen.filter(|seen| seen.cluster == self.cluster && seen.vmid == u64::from(vmid));
        if by_hand && change.what == "config" {
            self.look_at_edit(change, own.is_some());
        }
        if !by_hand {
            self.busy = change.at;
        }
        match (change.what.as_str(), own) {
            ("clone" | "create", _) if by_hand => {
                self.foreign.insert(vmid);
            }
            ("clone" | "create", Some(seen)) => {
                self.unclaimed
                    .retain(|id, since| *id != vmid || change.at.since(*since) < FORGOTTEN);
                self.foreign.remove(&vmid);
                self.machines.remove(&vmid);
                self.disowned.remove(&vmid);
                self.look_at_backoff(change, &seen);
                self.look_at_host(change, &seen);
            }
            ("clone" | "create", None) => {
                self.find(format!("{now}: VM {vmid} was made without our mark"));
            }
            ("destroy", _) if by_hand => {
                self.disowned.remove(&vmid);
                self.foreign.remove(&vmid);
            }
            _ if by_hand => {}
            // A placeholder whose clone was cut short has no mark yet.
            ("destroy", None) if !self.foreign.contains(&vmid) && !self.taken(change) => {
                self.look_at_clone(change);
            }
            ("shutdown" | "stop", None) if self.under_way(change) => {
                let known = self.machines.get(&vmid).cloned().unwrap_or_default();
                let seen = ReadMark {
                    machine: change.name.clone(),
                    pool: known.pool,
                    cluster: self.cluster.clone(),
                    vmid: u64::from(vmid),
                    created: None,
                };
                self.look_at_end(now, change, &seen);
            }
            ("config" | "resize" | "start", None) if self.under_way(change) => {}
            (what, None) => {
                self.find(format!("{now}: {what} of VM {vmid}, which is not ours"));
            }
            ("shutdown" | "stop" | "destroy", Some(seen)) => {
                self.look_at_end(now, change, &seen);
            }
            _ => {}
        }
    }

    /// A person edits a VM: without our mark it is theirs, and with it ours again.
    fn look_at_edit(&mut self, change: &MachineChange, ours: bool) {
        // What is gone by now is no VM without a mark.
        let Some(vm) = self.pve.vm(change.vmid) else {
            return;
        };
        let seen = mark(&vm.description);
        if ours && seen.is_none() {
            self.disowned.insert(change.vmid, Some(change.at));
        } else if seen.is_some()
            && let Some(since) = self.disowned.get_mut(&change.vmid)
        {
            *since = None;
        }
    }

    /// Whether a person had taken the mark off a VM before, for so long that no call was under way that was made
    /// when it was ours.
    fn taken(&self, change: &MachineChange) -> bool {
        let since = self.disowned.get(&change.vmid).copied().flatten();
        since.is_some_and(|since| change.at.since(since) > LOCKED)
    }

    /// Whether what was done to a VM without our mark had been asked for before a person took it off: a guest takes its
    /// time to shut down, and a task to get the VM's lock.
    fn under_way(&self, change: &MachineChange) -> bool {
        let since = self.disowned.get(&change.vmid).copied().flatten();
        since.is_some_and(|since| self.asked_before(change, since))
    }

    /// Whether a change had been asked for by then: HA, guests and calls under way take their time.
    fn asked_before(&self, change: &MachineChange, since: Time) -> bool {
        let asked = |what: &str| format!("/qemu/{}/{what}", change.vmid);
        // A shutdown that takes too long becomes a stop.
        let ends = match change.what.as_str() {
            "shutdown" | "stop" => vec![asked("status/shutdown"), asked("status/stop")],
            "start" => vec![asked("status/start")],
            what => vec![asked(what)],
        };
        let requests = self.pve.requests();
        requests.iter().any(|seen| {
            let before = seen.sent <= since && change.at.since(seen.sent) < OLD_VIEW;
            before
                && seen.changing
                && ends.iter().any(|end| seen.path.ends_with(end))
                && seen.status == Some(200)
        })
    }

    /// A machine goes: nothing may be lost with it.
    fn look_at_end(&mut self, now: Time, change: &MachineChange, seen: &ReadMark) {
        self.look_at_clone(change);
        let known = self.machines.get(&change.vmid).cloned().unwrap_or_default();
        let machine = &change.name;
        let mut nodes = known.nodes.clone();
        if nodes.is_empty() && self.guests.is_none() {
            nodes.push(seen.machine.clone());
        }
        for node in &nodes {
            // It was Ready a moment ago: what came with its end is no excuse.
            let left = match known.ready {
                Some(_) if change.running => self.kube.to_drain(node),
                _ => self.kube.undrained(node),
            };
            if !left.is_empty() {
                self.find(format!(
                    "{now}: machine {machine} was stopped with undrained pods on {node}: {}",
                    left.join(", ")
                ));
            }
            let volumes = self.kube.attached(node);
            if known.ready.is_some() && change.running && !volumes.is_empty() {
                self.find(format!(
                    "{now}: machine {machine} was stopped with volumes attached: {}",
                    volumes.join(", ")
                ));
            }
        }
        if change.running {
            self.look_at_stop(change, &known);
        }
        self.look_at_failure(change, &known);
        self.look_at_need(change, &known);
    }

    fn look_at_stop(&mut self, change: &MachineChange, known: &SeenMachine) {
        let (at, machine) = (change.at, &change.name);
        if let Some(since) = known.ready
            && at.since(since) > READY
            && known
                .open
                .is_some_and(|open| !self.asked_before(change, open + FRESH))
        {
            self.find(format!(
                "{at}: machine {machine} was stopped and its node was not cordoned"
            ));
        }
        let (Some(terms), Some(lost)) = (self.terms, known.lost) else {
            return;
        };
        // A drain that was at its end needs no node.
        if known.cordoned {
            return;
        }
        if Span(at.since(lost).0 + LOOK.0) < terms.quarantine {
            self.find(format!(
                "{at}: machine {machine} was stopped, though it lost its node at {lost} and the quarantine is {}",
                terms.quarantine
            ));
        }
        let running = self.machines.values().filter(|known| known.worked).count();
        let without = self
            .machines
            .values()
            .filter(|known| known.lost.is_some())
            .count();
        if without > terms.few_lost && without * 100 > terms.lost_percent * running {
            self.find(format!(
                "{at}: machine {machine} was stopped, one of {without} of {running} that lost their nodes"
            ));
        }
    }

    /// What a clone is still being copied to is left alone.
    fn look_at_clone(&mut self, change: &MachineChange) {
        let began = self.pve.being_cloned_since(change.vmid);
        // One that began since makes the next VM of that VMID.
        if began.is_some_and(|began| began <= change.at) {
            self.find(format!(
                "{}: VM {} is subject to {} while its clone is under way",
                change.at, change.vmid, change.what
            ));
        }
    }

    /// A machine that never worked goes: its pool has failed.
    fn look_at_failure(&mut self, change: &MachineChange, known: &SeenMachine) {
        let at = change.at;
        let down = known.down.unwrap_or(at);
        if let Some(known) = self.machines.get_mut(&change.vmid) {
            known.down = Some(down);
        }
        // What was begun in the storm failed by the storm, and whose fault it was nobody may know any more.
        if change.what == "destroy" && known.calm && known.started && !known.worked {
            let failures = self.failures.entry(known.pool.clone()).or_insert((0, down));
            *failures = (failures.0 + 1, failures.1.max(down));
        }
    }

    fn look_at_backoff(&mut self, change: &MachineChange, seen: &ReadMark) {
        let (Some(terms), Some(_)) = (self.terms, self.patience) else {
            return;
        };
        let Some((count, last)) = self.failures.get(&seen.pool).copied() else {
            return;
        };
        // Clones of one template are made one after the other.
        if seen.created.is_some_and(|planned| planned < last) {
            return;
        }
        let passed = change.at.since(last);
        if Span(passed.0 + AT_ONCE.0) < terms.backoff {
            self.find(format!(
                "{}: pool {} has a new machine {passed} after the last of {count} failed; it waits for {} at least",
                change.at, seen.pool, terms.backoff
            ));
        }
    }

    /// A new machine is on a host that its pool may use.
    fn look_at_host(&mut self, change: &MachineChange, seen: &ReadMark) {
        let rule = self.pools.iter().find(|rule| rule.name == seen.pool);
        let (Some(rule), Some(vm)) = (rule, self.pve.vm(change.vmid)) else {
            return;
        };
        let named = rule.hosts.is_empty() || rule.hosts.contains(&vm.host);
        if !named || rule.exclude_hosts.contains(&vm.host) {
            self.find(format!(
                "{}: VM {} of pool {} was made on {}, which the pool may not use",
                change.at, vm.vmid, seen.pool, vm.host
            ));
        }
    }

    /// What was asked of PVE: nothing without the lease, no machine without quorum or that nobody needs.
    pub(super) fn look_at_requests(&mut self) {
        let requests = self.pve.requests_since(self.requests);
        self.requests = self.pve.request_count();
        // What a call finds that was under way for minutes, nobody knew who sent it: the rules on what is there hold for
        // it, those on when something may be asked for do not.
        for seen in requests.iter().filter(|seen| seen.changing && !seen.late) {
            let (at, what) = (seen.at, format!("{} {}", seen.method, seen.path));
            // Asking an agent changes nothing; it is a POST all the same.
            if !seen.path.contains("/agent/") {
                self.busy = at;
            }
            if let Some(since) = self.no_lease.filter(|since| at.since(*since) > LEASE) {
                self.find(format!(
                    "{at}: {what} without the lease, which is somebody else's since {since}"
                ));
            }
            let vmid = seen.path.rsplit('/').next().and_then(|id| id.parse().ok());
            if let Some(vmid) = vmid.filter(|_| seen.method == "DELETE")
                && let Some(began) = self.pve.being_cloned_since(vmid)
                && began <= at
            {
                self.find(format!("{at}: {what} while its clone is under way"));
            }
            let makes = seen.path.ends_with("/clone") || seen.path.ends_with("/qemu");
            if !(makes && seen.method == "POST") {
                continue;
            }
            if let Some(since) = self.no_quorum.filter(|since| at.since(*since) > NO_QUORUM) {
                self.find(format!("{at}: {what} without quorum, lost at {since}"));
            }
            let mut pools = self.pools.iter();
            let asked_for = pools.any(|pool| pool.min > 0 || pool.replaces);
            if !asked_for && at.since(self.wanted) > OLD_VIEW {
                self.find(format!(
                    "{at}: {what}, though nobody waits for a node since {}",
                    self.wanted
                ));
            }
        }
    }

    /// The broker is the last who looks whether a machine is too many, not the first: the daemon asks for none that it
    /// can know to be. Of machines whose intent or mark a person took away it cannot know.
    pub(super) fn look_at_refusals(&mut self, now: Time) {
        let refusals = self.broker.as_ref().map(super::Broker::refusals);
        let refusals = refusals.unwrap_or_default();
        let mut unclaimed = self.unclaimed.values();
        let mut disowned = self.disowned.keys();
        // The remains of a clone have no name: once its intent is lost, only the broker knows whose it was.
        let remains = |vm: &VmFacts| vm.name.is_empty() && is_being_made(vm.lock.as_deref());
        let hidden = unclaimed.any(|since| now.since(*since) < FORGOTTEN)
            || disowned.any(|vmid| self.pve.vm(*vmid).is_some())
            || self.pve.vms().iter().any(remains);
        for refused in refusals.iter().skip(self.refusals) {
            if !hidden {
                self.find(format!(
                    "{}: machine {} was asked for, though pool {} has as many as it may have",
                    refused.at, refused.machine, refused.pool
                ));
            }
        }
        self.refusals = refusals.len();
    }
}

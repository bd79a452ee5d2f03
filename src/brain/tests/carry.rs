//! Deciding on a small world, and what a view shows of a plan that was begun.

use std::sync::Arc;

use super::lab::Lab;
use super::wide::story::tell;
use crate::{check, decide};
use model::action::{Action, Kind};
use model::decision::Decision;
use model::policy::{LEAVING_TAINT, STARTUP_TAINT, ZONE_LABEL};
use model::region::{Busy, Machine, Step};
use model::scheduling::Taint;

impl Lab {
    /// Decides; every plan must pass the checker.
    pub(crate) fn decide(&self) -> Decision {
        self.try_decide().unwrap_or_else(|why| panic!("{why}"))
    }

    /// The lower bound of a decision of this lab: machines and price that any plan for the same pods needs.
    pub(crate) fn lower_bound(&self, decision: &Decision) -> crate::LowerBound {
        crate::lower_bound(crate::explain::Asked {
            snapshot: &self.snapshot,
            policy: &self.policy,
            memory: &self.memory,
            decision,
            now: self.now,
        })
    }

    /// Decides; a plan that does not pass the checker is an error, with the world in words.
    pub(crate) fn try_decide(&self) -> Result<Decision, String> {
        let decision = decide(&self.snapshot, &self.policy, &self.memory, self.now);
        let (view, policy, now) = (&self.snapshot, &self.policy, self.now);
        let mut begun: Vec<&Action> = Vec::new();
        let mut verdict = check::check_plan(&decision.plan, view, policy, now);
        for action in &decision.plan {
            // As the executor begins them: one by one, on the same view.
            verdict = verdict.and_then(|()| check::check_beside(action, &begun, view, policy, now));
            begun.push(action);
        }
        match verdict {
            Ok(()) => Ok(decision),
            Err(refusal) => Err(format!("{refusal}{}", tell(self, &decision))),
        }
    }

    /// Decides, remembers and lets the plan begin; gives the decision.
    pub(crate) fn turn(&mut self) -> Decision {
        let decision = self.decide();
        self.memory = decision.memory.clone();
        for action in &decision.plan {
            self.begin(action);
        }
        decision
    }

    /// What a view shows right after an action began.
    pub(crate) fn begin(&mut self, action: &Action) {
        let target = &action.target;
        match &action.kind {
            Kind::Create(spec) => {
                let machine = Machine {
                    terms: None,
                    region: target.region.clone(),
                    host: target.host.clone(),
                    mark: spec.mark.clone().into(),
                    storages: spec.storages.clone(),
                    intended: true,
                    vm: None,
                    node: None,
                    contradiction: None,
                    remembered: None,
                    step: Some((Step::Intent, self.now)),
                    failure: None,
                    busy: Some(Busy::Up),
                };
                self.snapshot
                    .machines
                    .insert(target.machine.clone(), machine);
            }
            Kind::Continue => self.machine_mut(&target.machine).busy = Some(Busy::Up),
            Kind::Start => {
                let vm = self.machine_mut(&target.machine).vm.as_mut();
                vm.expect("the VM of a start").running = true;
            }
            Kind::Remove { .. } => {
                self.machine_mut(&target.machine).busy = Some(Busy::Down);
                if let Some(node) = &target.node {
                    let node = self.snapshot.cluster.nodes.get_mut(&node.name);
                    let node = node.expect("the node of a removal");
                    node.taints.push(Taint::no_schedule(LEAVING_TAINT, "0"));
                    node.unschedulable = true;
                }
            }
            Kind::Release => {
                let name = &target.node.as_ref().expect("a node").name;
                let node = self.snapshot.cluster.nodes.get_mut(name).expect("a node");
                node.taints.retain(|taint| &*taint.key != LEAVING_TAINT);
                node.unschedulable = false;
                let now = self.now;
                self.machine_mut(&target.machine).step = Some((Step::Done, now));
            }
            Kind::DeleteNode => {
                let name = &target.node.as_ref().expect("a node").name;
                self.snapshot.cluster.nodes.remove(name);
                if let Some(machine) = self.snapshot.machines.get_mut(&target.machine) {
                    machine.node = None;
                }
            }
            Kind::DeletePlaceholder => {
                self.machine_mut(&target.machine).vm = None;
                let region = self.snapshot.regions.get_mut("home").expect("home");
                region.vms.remove(&target.vmid);
                self.snapshot.machines.remove(&target.machine);
            }
            Kind::Relabel => {
                let name = &target.node.as_ref().expect("a node").name;
                let node = self.snapshot.cluster.nodes.get_mut(name).expect("a node");
                node.taints.retain(|taint| *taint.key != *STARTUP_TAINT);
                node.labels.insert(ZONE_LABEL.into(), target.host.clone());
            }
            Kind::Update => self.machine_mut(&target.machine).busy = Some(Busy::Update),
            Kind::DropIntent => {
                self.snapshot.machines.remove(&target.machine);
            }
        }
    }

    fn machine_mut(&mut self, name: &str) -> &mut Machine {
        self.snapshot.machines.get_mut(name).expect("a machine")
    }

    /// Every machine on its way becomes a working node; every one leaving is gone.
    pub(crate) fn settle(&mut self) {
        let names: Vec<Arc<str>> = self.snapshot.machines.keys().cloned().collect();
        for name in names {
            match self.snapshot.machines[&name].busy {
                Some(Busy::Up) => {
                    self.clone_vm(&name);
                    self.register(&name, true);
                    self.machine_mut(&name).busy = None;
                }
                Some(Busy::Down) => {
                    let machine = self.snapshot.machines.remove(&name).expect("there");
                    let region = self.snapshot.regions.get_mut("home").expect("home");
                    region.vms.remove(&machine.mark.vmid);
                    self.snapshot.cluster.nodes.remove(&name);
                }
                Some(Busy::Update) => {
                    let machine = self.machine_mut(&name);
                    machine.busy = None;
                    machine.vm.as_mut().expect("its VM").differs.clear();
                }
                None => {}
            }
        }
    }
}

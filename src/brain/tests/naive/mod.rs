//! A second opinion on placements: kube-scheduler's filters as `src/filters` says them, apart from the deciding code and from
//! the checker.
//!
//! It takes a view, a plan and where pods are said to go, lays the pods down one after the other, and
//! asks every filter of each at its turn. In which order the brain thought is not said in a report, so
//! any order in which all of them fit will do: pods that fit now are laid down now.

pub(super) mod spots;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::lab::Lab;
use filters::{NodeInfos, PodInfo};
use model::cluster::{ObjectKey, Pod};
use model::decision::Decision;
use model::report::PodVerdict;

/// The world in which pods are laid down.
#[derive(Clone, Debug)]
pub(super) struct Naive<'a> {
    pub(super) lab: &'a Lab,
    pub(super) world: NodeInfos<'a>,
}

/// A pod as the filters want it.
fn guest(key: &ObjectKey, pod: &Pod) -> PodInfo {
    PodInfo {
        key: key.clone(),
        uid: pod.uid.clone(),
        shape: pod.shape.clone(),
        deleting: pod.deletion.is_some(),
        bound: pod.node.is_some(),
    }
}

/// Where the report and the plan say that pods go. Pods that kube-scheduler has nominated a node for are
/// taken for standing there.
pub(super) fn said(lab: &Lab, decision: &Decision) -> Vec<(ObjectKey, Arc<str>)> {
    let mut said: Vec<(ObjectKey, Arc<str>)> = Vec::new();
    for (key, verdict) in &decision.report.pods {
        let (PodVerdict::FitsNode { node: name, .. }
        | PodVerdict::FitsMachine { machine: name }
        | PodVerdict::Triggers { machine: name, .. }) = verdict
        else {
            continue;
        };
        let pod = &lab.snapshot.cluster.pods[key];
        if pod.nominated.as_ref() != Some(name) {
            said.push((key.clone(), name.clone()));
        }
    }
    for action in &decision.plan {
        if let model::action::Reason::PendingPods { pods, .. } = &action.reason {
            let displaced = |key: &&ObjectKey| lab.snapshot.cluster.pods[*key].node.is_some();
            let pods = pods.iter().filter(displaced);
            said.extend(pods.map(|key| (key.clone(), action.target.machine.clone())));
        }
    }
    // kube-scheduler's order.
    let pods = &lab.snapshot.cluster.pods;
    said.sort_by_key(|(key, _)| {
        let pod = &pods[key];
        (
            std::cmp::Reverse(pod.shape.priority),
            pod.created,
            pod.arrival,
            key.clone(),
        )
    });
    said
}

/// Whether a pod takes room somewhere without the report saying where: it stands on a node that is
/// leaving, or kube-scheduler has not tried it yet.
pub(super) fn silent(lab: &Lab, key: &ObjectKey, decision: &Decision) -> bool {
    let pod = &lab.snapshot.cluster.pods[key];
    if let Some(node) = &pod.node {
        return spots::leaving(lab, node);
    }
    let ignored = matches!(
        decision.report.pods.get(key),
        Some(PodVerdict::Ignored { .. })
    );
    ignored && pod.unschedulable_since.is_none() && !pod.gated
}

impl<'a> Naive<'a> {
    /// The view, with the machines of a plan.
    pub(super) fn of(lab: &'a Lab, decision: &Decision) -> Naive<'a> {
        let world = NodeInfos {
            nodes: spots::all(lab, decision),
            cluster: &lab.snapshot.cluster,
            default_spread: &lab.policy.scale_up.default_spread,
            claims_come: true,
            gone: Vec::new(),
        };
        let mut naive = Naive { lab, world };
        let pods = lab.snapshot.cluster.pods.iter();
        for (key, pod) in pods.filter(|(_, pod)| pod.node.is_none() && pod.deletion.is_none()) {
            let nominated = pod.nominated.as_ref();
            if let Some(at) = nominated.and_then(|name| naive.find(name)) {
                naive.book(key, at);
            }
        }
        naive
    }

    fn pod(&self, key: &ObjectKey) -> PodInfo {
        guest(key, &self.lab.snapshot.cluster.pods[key])
    }

    /// The claims of a pod get the volumes that are there for them.
    fn book(&mut self, key: &ObjectKey, at: usize) {
        let found = self.world.found(&self.pod(key), &self.world.nodes[at]);
        self.world.gone.extend(found.into_iter().flatten());
    }

    /// A machine could be made for a pod: every filter lets it onto an empty one of some choice.
    pub(super) fn some_offer(&self, key: &ObjectKey) -> Option<String> {
        spots::offers(self.lab).into_iter().find_map(|spot| {
            let mut other = self.clone();
            let name = spot.name.clone();
            other.world.nodes.push(spot);
            let at = other.world.nodes.len() - 1;
            other.fits(key, at).is_ok().then(|| name.to_string())
        })
    }

    /// Why a pod may not come to a spot now, by the first filter that says so.
    pub(super) fn fits(&self, key: &ObjectKey, at: usize) -> Result<(), String> {
        let verdict = self.world.ask(&self.pod(key)).fits(at);
        verdict.map_err(|no| format!("{}: {}", no.said.join(", "), no.about))
    }

    /// The world in which a pod fits on a spot because expendable pods are preempted for it, if there is one:
    /// as few as kube-scheduler would, the lowest priorities first.
    pub(super) fn preempting(&self, key: &ObjectKey, at: usize) -> Option<Naive<'a>> {
        let pod = &self.lab.snapshot.cluster.pods[key];
        let cutoff = self.lab.policy.scale_up.expendable_priority;
        if pod.shape.never_preempts || pod.shape.priority < cutoff {
            return None;
        }
        let mut other = self.clone();
        let (low, stay) = (other.world.nodes[at].pods.drain(..))
            .partition(|guest: &PodInfo| guest.shape.priority < cutoff);
        let mut low: Vec<PodInfo> = low;
        other.world.nodes[at].pods = stay;
        other.world.nodes[at].preempted.extend(low.iter().cloned());
        other.fits(key, at).ok()?;
        low.sort_by_key(|guest| std::cmp::Reverse(guest.shape.priority));
        for guest in low {
            let spot = &mut other.world.nodes[at];
            spot.preempted.retain(|gone| gone.key != guest.key);
            spot.pods.push(guest.clone());
            if other.fits(key, at).is_err() {
                let spot = &mut other.world.nodes[at];
                spot.pods.pop();
                spot.preempted.push(guest);
            }
        }
        Some(other)
    }

    /// The world in which every expendable pod has given way to somebody.
    pub(super) fn without_expendable(mut self) -> Naive<'a> {
        let cutoff = self.lab.policy.scale_up.expendable_priority;
        for node in &mut self.world.nodes {
            let gone = node
                .pods
                .extract_if(.., |pod| pod.bound && pod.shape.priority < cutoff);
            let gone: Vec<PodInfo> = gone.collect();
            node.preempted.extend(gone);
        }
        self
    }

    /// Lays a pod down.
    pub(super) fn lay(&mut self, key: &ObjectKey, at: usize) {
        self.book(key, at);
        let pod = self.pod(key);
        let spot = &mut self.world.nodes[at];
        spot.empty = false;
        spot.pods.push(PodInfo {
            deleting: false,
            ..pod
        });
    }

    /// A spot by name.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.world.nodes.iter().position(|spot| *spot.name == *name)
    }

    /// Lays down all of these: those first that fit on nodes there are. Says which never fits, and why.
    pub(super) fn lay_all(
        &mut self,
        said: &[(ObjectKey, Arc<str>)],
    ) -> Result<(), (ObjectKey, String)> {
        let mut waiting: Vec<(&ObjectKey, usize)> = Vec::new();
        for (key, name) in said {
            match self.find(name) {
                Some(at) => waiting.push((key, at)),
                None => return Err((key.clone(), format!("{name} is nowhere, or is leaving"))),
            }
        }
        let empty = self.clone();
        let mut verdict = Ok(());
        let mut stuck_before = BTreeSet::new();
        for _ in 0..=3 * waiting.len() {
            *self = empty.clone();
            let Err(stuck) = self.lay_in_turn(&waiting, &stuck_before) else {
                return Ok(());
            };
            stuck_before.insert(stuck.0.clone());
            // Perhaps it fits when it comes before the others.
            let (key, why) = &stuck;
            verdict = Err(((*key).clone(), why.clone()));
            let at = waiting.iter().position(|(other, _)| other == key);
            let first = waiting.remove(at.unwrap_or(0));
            waiting.insert(0, first);
        }
        verdict
    }

    /// Those of `first` may preempt before the others are laid down, who may be in their way after that.
    fn lay_in_turn<'k>(
        &mut self,
        said: &[(&'k ObjectKey, usize)],
        first: &BTreeSet<ObjectKey>,
    ) -> Result<(), (&'k ObjectKey, String)> {
        let mut waiting: Vec<(&ObjectKey, usize)> = said.to_vec();
        waiting.sort_by_key(|(_, at)| self.world.nodes[*at].site);
        waiting.retain(|(key, at)| {
            let early = first.contains(*key) && self.fits(key, *at).is_err();
            let Some(world) = early.then(|| self.preempting(key, *at)).flatten() else {
                return true;
            };
            *self = world;
            self.lay(key, *at);
            false
        });
        while !waiting.is_empty() {
            let fitting = waiting
                .iter()
                .position(|(key, at)| self.fits(key, *at).is_ok());
            let Some(index) = fitting else {
                // kube-scheduler preempts for those that fit nowhere.
                let mut pods = waiting.iter().enumerate();
                let forced =
                    pods.find_map(|(index, (key, at))| Some((index, self.preempting(key, *at)?)));
                if let Some((index, world)) = forced {
                    *self = world;
                    let (key, at) = waiting.remove(index);
                    self.lay(key, at);
                    continue;
                }
                let (key, at) = waiting[0];
                let why = self.fits(key, at).err().unwrap_or_default();
                let name = &self.world.nodes[at].name;
                return Err((key, format!("on {name}: {why}")));
            };
            let (key, at) = waiting.remove(index);
            self.lay(key, at);
        }
        Ok(())
    }
}

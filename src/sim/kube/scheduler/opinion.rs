//! What the API server makes of one pod and the scheduler's filters then say of it in a world that somebody else's API server shows, for the comparison with the
//! real kube-scheduler.

use std::collections::BTreeMap;

use filters::{No, NodeInfos};
use serde_json::Value;

use super::{Scheduler, sentence, storage};
use crate::sim::kube::admission;
use crate::sim::kube::auth::User;
use crate::sim::kube::object::{namespace, text};
use crate::sim::kube::resources::{PODS, Res};
use crate::sim::kube::store::State;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opinion {
    /// By node the reasons against it; none where the pod may run.
    pub nodes: BTreeMap<String, Vec<String>>,
    /// What the pod's condition would say if all nodes that are left were refused with one more reason.
    pub said: String,
}

/// The answer for a pod, as it is sent, in a world of these objects, which have their kinds and versions; `last` is the reason
/// against the nodes that the filters let it on.
///
/// # Errors
/// What the simulated API server has against the pod.
pub fn opinion(objects: &[Value], pod: &Value, last: &str) -> Result<Opinion, String> {
    let mut state = State::new(0, 0, false);
    for object in objects {
        let res = Res::of_kind(text(object, "/apiVersion"), text(object, "/kind"));
        if let Some(res) = res {
            state.adopt(res, object.clone());
        }
    }
    let pod = admission::create(
        &mut state,
        PODS,
        namespace(pod),
        pod.clone(),
        &User::admin(),
    )
    .map_err(|refused| format!("{refused:?}"))?;
    state.adopt(PODS, pod.clone());
    let mut scheduler = Scheduler::default();
    scheduler.read(&state);
    let cluster = storage::cluster(&state);
    let world = NodeInfos {
        nodes: scheduler.node_infos(&state, &cluster),
        cluster: &cluster,
        default_spread: &[],
        claims_come: false,
        gone: Vec::new(),
    };
    let info = scheduler.info_of(&pod);
    let all = world.nodes.len();
    let question = world.ask(&info);
    let reasons = |at: usize| question.fits(at).err().map_or(Vec::new(), |no| words(&no));
    let nodes = world.nodes.iter().enumerate();
    let nodes: BTreeMap<String, Vec<String>> = nodes
        .map(|(at, spot)| (spot.name.to_string(), reasons(at)))
        .collect();
    let said = match question.fits_somewhere() {
        Err(no) => format!("0/{all} nodes are available: {}.", words(&no).join(", ")),
        Ok(()) => sentence(
            all,
            nodes.values().flat_map(|against| {
                let refused = if against.is_empty() { Some(last) } else { None };
                against.iter().map(String::as_str).chain(refused)
            }),
        ),
    };
    Ok(Opinion { nodes, said })
}

fn words(no: &No) -> Vec<String> {
    no.said.iter().map(ToString::to_string).collect()
}

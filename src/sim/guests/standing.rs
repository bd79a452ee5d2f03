//! Nodes that were there before: the control plane and workers that nobody's autoscaler made. They
//! have a kubelet and no VM.

use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use super::GuestVm;
use super::api::Api;
use super::kubeadm::JoinConfiguration;
use super::kubelet::{Lies, SimKubelet};
use super::spec::{GuestSpec, GuestTraits};
use crate::clock::Clock;
use crate::sim::kube::Kube;

/// A node that stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StandingNode {
    /// The node's name.
    pub name: String,
    /// Logical CPUs.
    pub cores: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Disk in bytes.
    pub disk: u64,
    /// Labels, `key=value` with commas between them.
    pub labels: String,
    /// Taints, as in a node's spec.
    pub taints: Vec<serde_json::Value>,
}

impl Default for StandingNode {
    fn default() -> StandingNode {
        StandingNode {
            name: "control-plane".to_owned(),
            cores: 4,
            memory_mib: 8_192,
            disk: 40 << 30,
            labels: "node-role.kubernetes.io/control-plane=".to_owned(),
            taints: vec![serde_json::json!({
                "key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule",
            })],
        }
    }
}

/// Registers the node with its cluster and runs its kubelet until the handle is aborted. Its
/// number tells its address and UUID apart from others'.
pub fn stand(kube: &Kube, node: &StandingNode, number: u32, clock: Clock) -> JoinHandle<()> {
    let spec = GuestSpec {
        ready: super::Range {
            min: crate::model::time::Span::ZERO,
            max: crate::model::time::Span::ZERO,
        },
        ..GuestSpec::default()
    };
    let vm = GuestVm {
        vmid: 60_000 + number,
        incarnation: 0,
        uuid: format!("57a4d000-0000-4000-8000-{number:012}"),
        name: node.name.clone(),
        serial: String::new(),
        cores: node.cores,
        memory_mib: node.memory_mib,
        disk: node.disk,
        address: None,
        fixed_addresses: Vec::new(),
        devices: 0,
        seed: None,
        frozen: false,
        unlinked: false,
    };
    let join = JoinConfiguration {
        token_id: String::new(),
        token_secret: String::new(),
        ca_hashes: Vec::new(),
        node: node.name.clone(),
        taints: node.taints.clone(),
        kubelet: serde_json::Value::Null,
        kubelet_args: vec![("node-labels".to_owned(), node.labels.clone())],
        cri_socket: "unix:///var/run/containerd/containerd.sock".to_owned(),
    };
    let api = Api::new(kube.public_router()).with_bearer(kube.mint_node(&node.name));
    let fate = GuestTraits::draw(&spec, u64::from(number), &vm.uuid, number);
    let mut kubelet = SimKubelet::new(api, clock, (vm, Lies::default()), spec, join, fate);
    tokio::spawn(async move {
        if kubelet.register().await.is_ok() {
            kubelet.run().await;
        }
    })
}

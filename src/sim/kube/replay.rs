//! The fake cluster under a real client of somebody else's, for hours, and the same again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api as Typed, EvictParams, ListParams, PostParams};
use kube::runtime::watcher;
use serde_json::json;

use super::{Kube, KubeSpec};
use crate::clock::Clock;
use crate::model::time::{Span, Time};
use crate::sim::guests::api::Api;
use crate::sim::guests::payload::of_kubeadm;
use crate::sim::guests::{
    GuestFault, GuestSpec, GuestVm, Guests as _, KubeGuests, StandingNode, stand,
};
use crate::sim::workload::Workload;

const HOURS: Span = Span::minutes(6 * 60);

/// A world without an autoscaler: three machines that join in the first minutes, one of which is
/// rebooted and one of which dies, a standing control plane, and a workload of some hours. A real
/// `kube` client watches pods and nodes all the while.
async fn six_hours(seed: u64) -> (u64, usize, usize) {
    let clock = Clock::starting_at(Time(1_795_000_000_000));
    let kube = Kube::new(KubeSpec::default(), clock, seed);
    let control = stand(&kube, &StandingNode::default(), 1, clock);
    let spec = GuestSpec {
        chances: [(GuestFault::SlowBoot, 30), (GuestFault::LessMemory, 30)].into(),
        ..GuestSpec::default()
    };
    let guests = KubeGuests::new(kube.public_router(), spec, clock, seed);
    let client = kube::Client::new(kube.router(), "default");
    let seen: Arc<Mutex<BTreeMap<String, String>>> = Arc::default();
    let watching = tokio::spawn(watch(client.clone(), Arc::clone(&seen)));
    let story = Workload::random(seed, HOURS, Span::minutes(30));
    let playing = tokio::spawn(story.play(kube.router()));
    for vmid in 100..103 {
        machine(&kube, &guests, vmid).await;
    }
    pause(3_600).await;
    guests.power_off(100, true).await;
    pause(120).await;
    guests.power_on(vm(100));
    guests.power_off(101, false).await;
    pause(900).await;
    let api = Api::new(kube.router());
    let path = "/api/v1/nodes/node-101";
    api.delete(path, &json!({}))
        .await
        .expect("the dead node goes");
    pause(5 * 3_600 - 900).await;
    playing
        .await
        .expect("it plays")
        .expect("every step is done");
    let typed: Typed<Pod> = Typed::all(client);
    let left = typed.list(&ListParams::default()).await.expect("pods");
    let known: Vec<String> = left
        .iter()
        .map(|p| p.metadata.name.clone().unwrap_or_default())
        .collect();
    {
        let seen = seen.lock().expect("not poisoned");
        let shown: Vec<&String> = seen.keys().collect();
        assert_eq!(
            shown,
            known.iter().collect::<Vec<_>>(),
            "the watch missed something"
        );
    }
    watching.abort();
    control.abort();
    let (digest, _) = kube.trace();
    (digest, kube.objects("v1", "Node").len(), left.items.len())
}

async fn pause(seconds: u64) {
    tokio::time::sleep(std::time::Duration::from_secs(seconds)).await;
}

/// Follows pods with kube-rs's own watcher; keeps the names it knows and their phases.
async fn watch(client: kube::Client, seen: Arc<Mutex<BTreeMap<String, String>>>) {
    let pods: Typed<Pod> = Typed::all(client.clone());
    let nodes: Typed<Node> = Typed::all(client);
    let mut pods = watcher(pods, watcher::Config::default().page_size(3)).boxed();
    let mut nodes = watcher(nodes, watcher::Config::default()).boxed();
    let mut listed = BTreeMap::new();
    loop {
        tokio::select! {
            biased;
            event = pods.next() => {
                let name = |p: &Pod| p.metadata.name.clone().unwrap_or_default();
                let phase = |p: &Pod| p.status.as_ref().and_then(|s| s.phase.clone()).unwrap_or_default();
                let event = event.expect("a watcher never ends").expect("no errors here");
                let mut seen = seen.lock().expect("not poisoned");
                match event {
                    watcher::Event::Init => listed.clear(),
                    watcher::Event::InitApply(p) => { listed.insert(name(&p), phase(&p)); }
                    watcher::Event::InitDone => *seen = std::mem::take(&mut listed),
                    watcher::Event::Apply(p) => { seen.insert(name(&p), phase(&p)); }
                    watcher::Event::Delete(p) => { seen.remove(&name(&p)); }
                }
            }
            event = nodes.next() => { event.expect("a watcher never ends").expect("no errors here"); }
        }
    }
}

fn vm(vmid: u32) -> GuestVm {
    GuestVm {
        vmid,
        incarnation: 0,
        uuid: format!("00000000-0000-4000-8000-{vmid:012}"),
        name: format!("node-{vmid}"),
        serial: String::new(),
        cores: 4,
        memory_mib: 8_192,
        disk: 20 << 30,
        address: None,
        fixed_addresses: Vec::new(),
        devices: 0,
        seed: None,
        frozen: false,
        unlinked: false,
    }
}

/// Powers a machine on and has it join.
async fn machine(kube: &Kube, guests: &KubeGuests, vmid: u32) {
    let api = Api::new(kube.router());
    let id = format!("tok{vmid}");
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": format!("bootstrap-token-{id}")},
        "stringData": {
            "token-id": id, "token-secret": "0123456789abcdef",
            "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
            "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token",
        },
    });
    let secrets = "/api/v1/namespaces/kube-system/secrets";
    api.post(secrets, &secret).await.expect("a token");
    guests.power_on(vm(vmid));
    pause(90).await;
    let configuration = json!({
        "apiVersion": "kubeadm.k8s.io/v1beta3", "kind": "JoinConfiguration",
        "discovery": {"bootstrapToken": {
            "token": format!("{id}.0123456789abcdef"), "apiServerEndpoint": "192.0.2.10:6443",
            "unsafeSkipCAVerification": true,
        }},
        "nodeRegistration": {"kubeletExtraArgs": {"node-labels": "pool=a"}},
    });
    let script = "# pve-autoscaler guest script: join\n".to_owned();
    let argv = vec!["/bin/sh".to_owned(), "-c".to_owned(), script];
    let stdin = of_kubeadm(&configuration);
    guests.exec(vmid, argv, stdin).await.expect("it runs");
}

#[tokio::test(start_paused = true)]
async fn six_hours_replay_to_the_byte() {
    let (digest, nodes, pods) = six_hours(11).await;
    assert_eq!(nodes, 3, "two machines and the control plane");
    assert_eq!(pods, 0, "the workload is gone");
    assert_eq!(
        six_hours(11).await.0,
        digest,
        "the same seed, the same bytes"
    );
}

#[tokio::test(start_paused = true)]
async fn a_typed_client_reads_and_evicts() {
    let clock = Clock::starting_at(Time(1_795_000_000_000));
    let kube = Kube::new(KubeSpec::default(), clock, 1);
    let worker = StandingNode {
        taints: Vec::new(),
        ..StandingNode::default()
    };
    let _kubelet = stand(&kube, &worker, 1, clock);
    let client = kube::Client::new(kube.router(), "default");
    let info = client.apiserver_version().await.expect("a version");
    assert_eq!(info.git_version, "v1.34.1");
    let pods: Typed<Pod> = Typed::default_namespaced(client);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "main", "image": "x"}]},
    });
    let pod: Pod = serde_json::from_value(pod).expect("a pod");
    pods.create(&PostParams::default(), &pod)
        .await
        .expect("created");
    pause(20).await;
    let seen = pods.get("a").await.expect("the pod");
    let phase = seen.status.and_then(|s| s.phase);
    assert_eq!(phase.as_deref(), Some("Running"));
    pods.evict("a", &EvictParams::default())
        .await
        .expect("evicted");
    pause(60).await;
    assert!(pods.get_opt("a").await.expect("an answer").is_none());
}

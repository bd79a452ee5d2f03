//! The real kube-scheduler's opinion: random small worlds are put into a real API server, and for each
//! pod that waits the set of nodes that passed kube-scheduler's filters is compared with ours.
//!
//! `contrib/dev e2e scheduler` starts etcd, kube-apiserver and kube-scheduler and runs this program.
//! By itself it skips. kube-scheduler hands an extender, which this program is, all nodes that passed;
//! when none did, it says so in the pod's condition.

mod extender;
mod judge;
mod pods;
mod rng;
mod second;
mod server;
mod volumes;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use pve_autoscaler::clock::Clock;
use pve_autoscaler::kubernetes::{
    ClusterStore, ClusterView, Connector, KubeClient, Unobserved, watch,
};
use pve_autoscaler::model::cluster::ObjectKey;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use extender::Extender;
use judge::Tally;
use second::SecondTally;
use server::Server;
use world::{NAMESPACES, World};

/// Path of an administrator's kubeconfig; without it the program skips.
const KUBECONFIG: &str = "SCHEDULER_TEST_KUBECONFIG";
/// `HOST:PORT` at which kube-scheduler expects its extender.
const EXTENDER: &str = "SCHEDULER_TEST_EXTENDER";
/// The first seed, and how many worlds; each world's seed is one more than the last one's.
const SEED: &str = "SCHEDULER_TEST_SEED";
const WORLDS: &str = "SCHEDULER_TEST_WORLDS";
const DEFAULT_WORLDS: u64 = 300;

/// How long API server, store and scheduler may take for one step.
const STEP: Duration = Duration::from_mins(1);
const LOOK: Duration = Duration::from_millis(20);
/// The scheduler's informers are independent of each other: an answer that differs from ours is
/// asked for once more after this, when all of them have long caught up.
const CALM: Duration = Duration::from_millis(1500);
/// After so many worlds with differences the rest says nothing new.
const ENOUGH: usize = 5;

#[test]
fn the_real_scheduler_agrees() {
    let (Ok(kubeconfig), Ok(address)) = (std::env::var(KUBECONFIG), std::env::var(EXTENDER)) else {
        println!("skipped: needs a control plane; run it by `contrib/dev e2e scheduler`");
        return;
    };
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().map_or(default, |text| {
            text.parse()
                .unwrap_or_else(|_| panic!("{name}={text} is no number"))
        })
    };
    let (first, worlds) = (number(SEED, 1), number(WORLDS, DEFAULT_WORLDS));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let complaints = runtime.block_on(async {
        let mut lab = Lab::open(&kubeconfig, &address).await;
        let mut complaints = Vec::new();
        for seed in first..first + worlds {
            complaints.extend(lab.compare(seed).await);
            if complaints.len() >= ENOUGH {
                break;
            }
        }
        for line in lab.tally.report().into_iter().chain(lab.second.report()) {
            println!("{line}");
        }
        complaints
    });
    assert!(
        complaints.is_empty(),
        "{} worlds differ:\n{}",
        complaints.len(),
        complaints.join("\n")
    );
}

#[test]
fn a_seed_makes_the_same_world_again() {
    for seed in 0..50 {
        let (one, two) = (World::new(seed), World::new(seed));
        assert_eq!(format!("{one:?}"), format!("{two:?}"));
    }
}

/// Everything the comparison is made with.
struct Lab {
    server: Server,
    store: ClusterStore,
    extender: Extender,
    tally: Tally,
    second: SecondTally,
}

impl Lab {
    async fn open(kubeconfig: &str, address: &str) -> Lab {
        let extender = Extender::default();
        extender.listen(address).await;
        let server = Server::connect(kubeconfig).await;
        server.prepare(&shared()).await;
        let connector = Connector::File {
            path: kubeconfig.into(),
            context: None,
        };
        let client = KubeClient::new(connector, Clock::System, Arc::new(Unobserved)).await;
        let store = ClusterStore::new();
        tokio::spawn(watch::watch(client, store.clone(), 1));
        let lab = Lab {
            server,
            store,
            extender,
            tally: Tally::default(),
            second: SecondTally::default(),
        };
        lab.until("the store is complete", |lab| lab.store.complete())
            .await;
        lab
    }

    async fn until(&self, what: &str, done: impl Fn(&Lab) -> bool) {
        let end = Instant::now() + STEP;
        while !done(self) {
            assert!(Instant::now() < end, "not within {STEP:?}: {what}");
            sleep(LOOK).await;
        }
    }

    /// Compares all answers in one world; the complaint, if they differ.
    async fn compare(&mut self, seed: u64) -> Option<String> {
        let mut world = World::new(seed);
        for why in self.server.build(&mut world).await {
            self.left_out(&why);
        }
        let view = self.view(&world).await;
        let asked = world.pending.clone();
        let mut differ = self.ask(&view, &asked).await;
        if !differ.is_empty() {
            sleep(CALM).await;
            let view = self.view(&world).await;
            let again: Vec<Value> = differ.into_iter().map(|(pod, _)| renamed(&pod)).collect();
            self.tally.again += again.len();
            differ = self.ask(&view, &again).await;
        }
        self.server.clear(&world).await;
        self.extender.clear();
        self.tally.worlds += 1;
        (!differ.is_empty()).then(|| complaint(&world, &differ))
    }

    fn left_out(&mut self, why: &str) {
        let why = why.split('[').next_back().unwrap_or(why);
        let why: String = why.chars().take(100).collect();
        *self.tally.refused.entry(why).or_default() += 1;
    }

    /// The store's view once it shows this world and no other.
    async fn view(&self, world: &World) -> ClusterView {
        let pods: BTreeSet<ObjectKey> = world
            .bound
            .iter()
            .filter(|bound| !bound.ended)
            .map(|bound| key(&bound.pod))
            .collect();
        let nodes: BTreeSet<Arc<str>> = world.nodes.iter().map(|node| key(node).name).collect();
        let stored = (world.storage.claims.len(), world.storage.volumes.len());
        let attached = (world.csi_nodes.len(), world.storage.attachments.len());
        self.until("the store shows the world", |lab| {
            let view = lab.store.view();
            let cluster = &view.cluster;
            let deleting = |pods: usize| {
                let begun = cluster.pods.values().filter(|pod| pod.deletion.is_some());
                begun.count() == pods
            };
            judge::shows(&view, &pods, &nodes)
                && (cluster.claims.len(), cluster.volumes.len()) == stored
                && (cluster.csi_nodes.len(), cluster.attachments.len()) == attached
                && deleting(world.bound.iter().filter(|bound| bound.terminating).count())
        })
        .await;
        self.store.view()
    }

    /// Sends pods that wait, takes the scheduler's answers, removes them; the pods with differences.
    async fn ask(&mut self, view: &ClusterView, pods: &[Value]) -> Vec<(Value, Vec<String>)> {
        let made = futures::future::join_all(pods.iter().map(|pod| self.server.create(pod))).await;
        let mut waiting: BTreeMap<String, Value> = BTreeMap::new();
        for (pod, answer) in pods.iter().zip(made) {
            match answer {
                Ok(made) => {
                    let uid = made["metadata"]["uid"].as_str().unwrap_or_default();
                    waiting.insert(uid.to_owned(), pod.clone());
                }
                Err(refused) => self.left_out(&refused.message),
            }
        }
        let theirs = self.answers(&waiting).await;
        let keys: BTreeSet<ObjectKey> = waiting.values().map(key).collect();
        self.until("the store shows the pods", |lab| {
            lab.store
                .with(|cluster| keys.iter().all(|key| cluster.pods.contains_key(key)))
        })
        .await;
        let mut whole = self.store.view();
        // The rest of the world is as it was when nothing changed any more.
        whole.cluster.nodes.clone_from(&view.cluster.nodes);
        let objects = self.server.everything().await;
        let mut differ = Vec::new();
        for (uid, pod) in waiting {
            let ours = judge::ours(&whole, &pod);
            let mut nodes = self.tally.compare(&pod, &ours, &theirs[&uid].nodes);
            nodes.extend(self.second.compare(&objects, &pod, &theirs[&uid]));
            if !nodes.is_empty() {
                nodes.push(format!("kube-scheduler says: {}", theirs[&uid].said));
                differ.push((pod.clone(), nodes));
            }
            self.server.remove(&pod).await;
        }
        self.until("the store has lost the pods", |lab| {
            lab.store
                .with(|cluster| keys.iter().all(|key| !cluster.pods.contains_key(key)))
        })
        .await;
        differ
    }

    /// kube-scheduler's answers by UID: what it asked the extender, or that no node passed.
    async fn answers(&self, waiting: &BTreeMap<String, Value>) -> BTreeMap<String, Theirs> {
        let end = Instant::now() + STEP;
        loop {
            let pods = self.server.pods().await;
            let answers: BTreeMap<String, Theirs> = waiting
                .keys()
                .filter_map(|uid| Some((uid, refusal(pods.get(uid)?)?)))
                .map(|(uid, said)| {
                    let nodes = self.extender.passed(uid).unwrap_or_default();
                    (uid.clone(), Theirs { nodes, said })
                })
                .collect();
            if answers.len() == waiting.len() {
                return answers;
            }
            let silent: Vec<&Value> = waiting
                .iter()
                .filter(|(uid, _)| !answers.contains_key(*uid))
                .map(|(_, pod)| &pod["metadata"]["name"])
                .collect();
            assert!(
                Instant::now() < end,
                "kube-scheduler says nothing of {silent:?}"
            );
            sleep(LOOK).await;
        }
    }
}

/// kube-scheduler's answer.
struct Theirs {
    /// The nodes that passed.
    nodes: BTreeSet<String>,
    /// What it said of the others.
    said: String,
}

/// What the scheduler said once it had tried a pod: none is ever bound, so it always says something.
fn refusal(pod: &Value) -> Option<String> {
    let conditions = pod["status"]["conditions"].as_array()?;
    let found = conditions
        .iter()
        .find(|one| one["type"] == "PodScheduled" && one["status"] == "False")?;
    Some(found["message"].as_str().unwrap_or_default().to_owned())
}

fn key(object: &Value) -> ObjectKey {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    ObjectKey::new(text("namespace"), text("name"))
}

/// The same pod under another name.
fn renamed(pod: &Value) -> Value {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    json!({
        "apiVersion": "v1", "kind": "Pod", "spec": pod["spec"],
        "metadata": {
            "name": format!("{name}-again"), "namespace": pod["metadata"]["namespace"],
            "labels": pod["metadata"]["labels"],
        },
    })
}

/// A world in which answers differ, with all that is needed to see why.
fn complaint(world: &World, differ: &[(Value, Vec<String>)]) -> String {
    let mut text = format!("--- {SEED}={} {WORLDS}=1\n", world.seed);
    let mut show = |title: &str, object: &Value| {
        let spec = yaml(object);
        text.extend(["# ", title, "\n", &spec]);
    };
    for (pod, nodes) in differ {
        let clean = json!({"metadata": {
            "name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"],
            "labels": pod["metadata"]["labels"],
        }, "spec": pod["spec"]});
        show("differs", &clean);
        show("how", &json!(nodes));
    }
    for node in &world.nodes {
        show("node", node);
    }
    for bound in &world.bound {
        let title = format!(
            "bound, terminating {}, ended {}",
            bound.terminating, bound.ended
        );
        show(&title, &bound.pod);
    }
    for made in world.storage.claims.iter().chain(&world.storage.volumes) {
        let title = format!("{}, deleting {}", made.phase, made.deleting);
        show(&title, &made.object);
    }
    for object in world.csi_nodes.iter().chain(&world.storage.attachments) {
        show("volumes on nodes", object);
    }
    text
}

fn yaml(object: &Value) -> String {
    serde_saphyr::to_string(object).unwrap_or_else(|_| format!("{object}\n"))
}

/// What all worlds share.
fn shared() -> Vec<Value> {
    let mut all = volumes::classes();
    for (name, labels) in NAMESPACES {
        let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
        all.push(json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels},
        }));
    }
    for (name, value) in [("low", -5), ("high", 1000)] {
        all.push(json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": name}, "value": value, "preemptionPolicy": "Never",
        }));
    }
    let runtime = |name: &str| {
        json!({
            "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name},
            "handler": name, "overhead": {"podFixed": {"cpu": "300m", "memory": "200Mi"}},
        })
    };
    let mut picky = runtime("picky");
    picky["scheduling"] = json!({
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}],
    });
    all.extend([runtime("heavy"), picky]);
    all.extend(volumes::published());
    all
}

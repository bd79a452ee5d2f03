//! What must hold in a simulated world, whatever happens: looked at again and again beside the
//! daemon, over facts that the fakes themselves keep. It shares no code with what it judges.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::kube::Kube;
use super::pve::{Pve, VmFacts};
use crate::model::time::{Span, Time};

/// What every mark begins with.
const MARK: &str = "pve-autoscaler:v1 ";
/// The label that names a node's pool.
const POOL_LABEL: &str = "pve-autoscaler.io/pool";
/// Most findings that are kept; a world that is broken a hundred times is broken.
const MOST_FINDINGS: usize = 100;

/// What a pool promises: how many machines there may be, and the node that it makes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolRule {
    /// Its name.
    pub name: String,
    /// Most machines.
    pub max: usize,
    /// Allocatable of a new node, as in a node's status (`{"cpu": "4", "memory": "3Gi", …}`).
    pub allocatable: Value,
    /// Labels of a new node.
    pub labels: BTreeMap<String, String>,
    /// Taints of a new node, as in its spec.
    pub taints: Vec<Value>,
}

/// The judge of one world.
#[derive(Debug)]
pub struct Judge {
    kube: Kube,
    pve: Pve,
    /// The cluster id in the marks of the machines that may be touched.
    cluster: String,
    pools: Vec<PoolRule>,
    /// VMs that were there before.
    foreign: BTreeSet<u32>,
    /// Tokens that were there before.
    tokens: BTreeSet<String>,
    /// How many of the fakes' records were read already.
    changes: usize,
    violations: usize,
    /// VMs that this cluster's daemon had made.
    made: BTreeSet<u32>,
    /// From here on, how long a pod may wait that a new node would take.
    patience: Option<Span>,
    /// Since when such pods wait, by UID.
    waiting: BTreeMap<String, Time>,
    findings: BTreeSet<String>,
}

/// What a mark says, read by the judge's own eyes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    machine: String,
    pool: String,
    cluster: String,
    vmid: u64,
}

fn mark(description: &str) -> Option<Seen> {
    let line = description.lines().rfind(|l| !l.trim().is_empty())?;
    let value: Value = serde_json::from_str(line.trim().strip_prefix(MARK)?).ok()?;
    let text = |key: &str| value[key].as_str().map(str::to_owned);
    Some(Seen {
        machine: text("machine")?,
        pool: text("pool")?,
        cluster: text("cluster")?,
        vmid: value["vmid"].as_u64()?,
    })
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or("")
}

impl Judge {
    /// A judge of a world as it is now: the VMs and tokens that are there are somebody else's.
    /// `name`: the cluster's configured name, the second half of its id.
    pub fn new(kube: Kube, pve: Pve, name: &str, pools: Vec<PoolRule>) -> Judge {
        let foreign = pve.vms().iter().map(|vm| vm.vmid).collect();
        let tokens = tokens(&kube);
        let (changes, violations) = (pve.changes().len(), kube.violations().len());
        let cluster = format!("{}/{name}", kube.cluster_uid());
        Judge {
            kube,
            pve,
            cluster,
            pools,
            foreign,
            tokens,
            changes,
            violations,
            made: BTreeSet::new(),
            patience: None,
            waiting: BTreeMap::new(),
            findings: BTreeSet::new(),
        }
    }

    /// From now on nothing goes wrong any more, so that pods a new node would take have to get one
    /// within this span.
    pub fn expect_progress(&mut self, patience: Span) {
        self.patience = Some(patience);
        self.waiting.clear();
    }

    /// Looks at the world. Call it about every second.
    pub fn look(&mut self, now: Time) {
        self.look_at_changes(now);
        let ours = self.ours();
        self.count(now, &ours);
        let violations = self.kube.violations();
        for violation in violations.iter().skip(self.violations) {
            self.find(violation.clone());
        }
        self.violations = violations.len();
        self.look_at_pods(now, &ours);
    }

    /// What was found so far; empty when all is well.
    pub fn findings(&self) -> Vec<String> {
        self.findings.iter().cloned().collect()
    }

    /// Looks every second until the future is dropped, on the clock given.
    pub async fn preside(&mut self, clock: crate::clock::Clock) {
        loop {
            self.look(clock.now());
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
    }

    /// What is wrong with a world that has come to rest: machines and nodes must be one to one,
    /// tokens gone, nothing half-made, and every pool at `machines` of its name (0 when absent).
    pub fn at_rest(&self, machines: &BTreeMap<String, usize>) -> Vec<String> {
        let mut wrong = Vec::new();
        let ours = self.ours();
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for vm in &ours {
            match mark(&vm.description) {
                Some(seen) => *counts.entry(seen.pool).or_default() += 1,
                None => wrong.push(format!("VM {} has no mark", vm.vmid)),
            }
            if !vm.running || vm.lock.is_some() {
                wrong.push(format!("VM {} ({}) is not running free", vm.vmid, vm.name));
            }
        }
        for pool in self.pools.iter().map(|p| &p.name) {
            let found = counts.get(pool).copied().unwrap_or(0);
            let wanted = machines.get(pool).copied().unwrap_or(0);
            if found != wanted {
                wrong.push(format!("pool {pool} has {found} machines, wanted {wanted}"));
            }
        }
        let nodes = self.nodes();
        for vm in &ours {
            let named = nodes.iter().filter(|n| system_uuid(n) == vm.uuid).count();
            if named != 1 {
                wrong.push(format!("VM {} ({}) has {named} nodes", vm.vmid, vm.name));
            }
        }
        for node in nodes.iter().filter(|n| pool_of(n).is_some()) {
            if !ours.iter().any(|vm| vm.uuid == system_uuid(node)) {
                wrong.push(format!("node {} has no VM", text(node, "/metadata/name")));
            }
        }
        for token in tokens(&self.kube).difference(&self.tokens) {
            wrong.push(format!("bootstrap token {token} is still there"));
        }
        wrong
    }

    /// Machines that are not foreign, half-made ones included.
    fn ours(&self) -> Vec<VmFacts> {
        let vms = self.pve.vms().into_iter();
        vms.filter(|vm| !vm.template && !vm.container && !self.foreign.contains(&vm.vmid))
            .collect()
    }

    fn nodes(&self) -> Vec<Arc<Value>> {
        self.kube.objects("v1", "Node")
    }

    fn find(&mut self, what: String) {
        if self.findings.len() < MOST_FINDINGS {
            self.findings.insert(what);
        }
    }

    /// Who touched which VM: only marked machines of this cluster may be changed, and a machine
    /// whose node still has pods may not be stopped.
    fn look_at_changes(&mut self, now: Time) {
        let changes = self.pve.changes();
        for change in changes.iter().skip(self.changes) {
            let by_hand = change.by == "administrator";
            let own = mark(&change.description).is_some_and(|seen| {
                seen.cluster == self.cluster && seen.vmid == u64::from(change.vmid)
            });
            let vmid = change.vmid;
            match change.what.as_str() {
                "clone" | "create" if by_hand => {
                    self.foreign.insert(vmid);
                }
                "clone" if own => {
                    self.foreign.remove(&vmid);
                    self.made.insert(vmid);
                }
                "clone" => self.find(format!("{now}: VM {vmid} was cloned without our mark")),
                _ if by_hand => {}
                // A placeholder whose clone was cut short has no mark yet.
                "destroy" if !own && !self.foreign.contains(&vmid) => {}
                what if !own => {
                    self.find(format!("{now}: {what} of VM {vmid}, which is not ours"));
                }
                "shutdown" | "stop" | "destroy" => self.look_at_drain(now, &change.name),
                _ => {}
            }
        }
        self.changes = changes.len();
    }

    fn look_at_drain(&mut self, now: Time, machine: &str) {
        let left = self.kube.undrained(machine);
        if !left.is_empty() {
            self.find(format!(
                "{now}: machine {machine} was stopped with undrained pods: {}",
                left.join(", ")
            ));
        }
    }

    /// Never more machines than allowed, never two of a name.
    fn count(&mut self, now: Time, ours: &[VmFacts]) {
        let most: usize = self.pools.iter().map(|p| p.max).sum();
        if ours.len() > most {
            self.find(format!(
                "{now}: {} machines, at most {most} allowed",
                ours.len()
            ));
        }
        let mut pools: BTreeMap<String, usize> = BTreeMap::new();
        let mut names = BTreeSet::new();
        for seen in ours.iter().filter_map(|vm| mark(&vm.description)) {
            *pools.entry(seen.pool).or_default() += 1;
            if !names.insert(seen.machine.clone()) {
                self.find(format!("{now}: two VMs are machine {}", seen.machine));
            }
        }
        for (pool, count) in pools {
            let rule = self.pools.iter().find(|p| p.name == pool);
            let max = rule.map_or(0, |p| p.max);
            if count > max {
                self.find(format!(
                    "{now}: pool {pool} has {count} machines, at most {max} allowed"
                ));
            }
        }
    }

    /// Pods that wait too long for a node that a pool with room would make.
    fn look_at_pods(&mut self, now: Time, ours: &[VmFacts]) {
        let Some(patience) = self.patience else {
            return;
        };
        let mut still = BTreeMap::new();
        let mut late = Vec::new();
        for pod in self.kube.unschedulable() {
            let open = self.pools.iter().any(|pool| {
                let there = ours
                    .iter()
                    .filter_map(|vm| mark(&vm.description))
                    .filter(|seen| seen.pool == pool.name)
                    .count();
                there < pool.max && self.kube.would_take(&node_of(pool), &pod)
            });
            if !open {
                continue;
            }
            let uid = text(&pod, "/metadata/uid").to_owned();
            let since = *self.waiting.get(&uid).unwrap_or(&now);
            if now.since(since) > patience {
                late.push(format!(
                    "pod {} waits since {since} for a node that a pool would make",
                    text(&pod, "/metadata/name")
                ));
            }
            still.insert(uid, since);
        }
        self.waiting = still;
        for pod in late {
            self.find(pod);
        }
    }
}

/// The node that a pool would make, as far as scheduling looks at it.
fn node_of(pool: &PoolRule) -> Value {
    json!({
        "metadata": {"name": format!("{}-new", pool.name), "labels": pool.labels},
        "spec": {"taints": pool.taints},
        "status": {"allocatable": pool.allocatable},
    })
}

fn system_uuid(node: &Value) -> String {
    text(node, "/status/nodeInfo/systemUUID").to_lowercase()
}

fn pool_of(node: &Value) -> Option<&str> {
    node["metadata"]["labels"][POOL_LABEL].as_str()
}

/// The ids of all bootstrap tokens.
fn tokens(kube: &Kube) -> BTreeSet<String> {
    kube.objects("v1", "Secret")
        .iter()
        .filter(|s| text(s, "/type") == "bootstrap.kubernetes.io/token")
        .map(|s| text(s, "/metadata/name").replace("bootstrap-token-", ""))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::Router;
    use axum::body::Body;
    use http::Request;
    use tower::ServiceExt as _;

    use super::*;
    use crate::clock::Clock;
    use crate::sim::guests::api::Api;
    use crate::sim::guests::{GuestSpec, KubeGuests, StandingNode, stand};
    use crate::sim::kube::KubeSpec;
    use crate::sim::pve::PveSpec;

    struct Scene {
        clock: Clock,
        kube: Kube,
        pve: Pve,
        judge: Judge,
    }

    fn scene() -> Scene {
        let clock = Clock::starting_at(Time(1_795_000_000_000));
        let kube = Kube::new(KubeSpec::default(), clock, 1);
        let guests = KubeGuests::new(kube.public_router(), GuestSpec::default(), clock, 1);
        let pve = Pve::new(PveSpec::default(), Arc::new(guests), clock, 1);
        let pool = PoolRule {
            name: "p".to_owned(),
            max: 1,
            allocatable: json!({"cpu": "2", "memory": "4Gi"}),
            ..PoolRule::default()
        };
        let judge = Judge::new(kube.clone(), pve.clone(), "test", vec![pool]);
        Scene {
            clock,
            kube,
            pve,
            judge,
        }
    }

    async fn pause(seconds: u64) {
        tokio::time::sleep(std::time::Duration::from_secs(seconds)).await;
    }

    fn pod(cpu: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
            "spec": {"containers": [{
                "name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}},
            }]},
        })
    }

    async fn put(router: Router, path: &str, form: &str) {
        let request = Request::put(format!("/api2/json{path}"))
            .header("content-type", "application/x-www-form-urlencoded")
            .body(Body::from(form.to_owned()))
            .expect("a request");
        let answer = router.oneshot(request).await.expect("an answer");
        assert!(answer.status().is_success(), "{}", answer.status());
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_world_is_innocent() {
        let mut scene = scene();
        pause(60).await;
        scene.judge.look(scene.clock.now());
        assert_eq!(scene.judge.findings(), Vec::<String>::new());
        assert_eq!(scene.judge.at_rest(&BTreeMap::new()), Vec::<String>::new());
        let wanted = [("p".to_owned(), 1)].into();
        assert_eq!(
            scene.judge.at_rest(&wanted).len(),
            1,
            "a machine is missing"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_foreign_vm_may_not_be_touched() {
        let mut scene = scene();
        let vm = scene.pve.vms().into_iter().find(|vm| !vm.container);
        let vm = vm.expect("the default world has a VM");
        let path = format!("/nodes/{}/qemu/{}/config", vm.host, vm.vmid);
        put(scene.pve.router_as("root@pam"), &path, "cores=3").await;
        scene.judge.look(scene.clock.now());
        let found = scene.judge.findings();
        assert!(
            found.iter().any(|f| f.contains("which is not ours")),
            "{found:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_go_after_their_pods() {
        let mut scene = scene();
        let node = StandingNode {
            name: "n".to_owned(),
            taints: Vec::new(),
            ..StandingNode::default()
        };
        let _kubelet = stand(&scene.kube, &node, 1, scene.clock);
        let api = Api::new(scene.kube.router());
        let pods = "/api/v1/namespaces/default/pods";
        api.post(pods, &pod("1")).await.expect("created");
        pause(30).await;
        assert_eq!(scene.kube.undrained("n"), ["default/a"]);
        let path = "/api/v1/nodes/n";
        api.delete(path, &json!({})).await.expect("deleted");
        scene.judge.look(scene.clock.now());
        let found = scene.judge.findings();
        assert!(
            found.iter().any(|f| f.contains("undrained pods")),
            "{found:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn pods_that_a_pool_would_take_get_a_node_in_time() {
        for (cpu, late) in [("1", true), ("64", false)] {
            let mut scene = scene();
            let api = Api::new(scene.kube.router());
            let pods = "/api/v1/namespaces/default/pods";
            api.post(pods, &pod(cpu)).await.expect("created");
            scene.judge.expect_progress(Span::minutes(5));
            for _ in 0..8 {
                pause(60).await;
                scene.judge.look(scene.clock.now());
            }
            let found = scene.judge.findings();
            assert_eq!(!found.is_empty(), late, "{cpu}: {found:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn leftovers_are_named() {
        let scene = scene();
        let api = Api::new(scene.kube.router());
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
            "metadata": {"name": "bootstrap-token-left00"}, "stringData": {"token-id": "left00"},
        });
        let secrets = "/api/v1/namespaces/kube-system/secrets";
        api.post(secrets, &secret).await.expect("created");
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "p-gone", "labels": {POOL_LABEL: "p"}},
        });
        api.post("/api/v1/nodes", &node).await.expect("created");
        let wrong = scene.judge.at_rest(&BTreeMap::new());
        assert_eq!(wrong.len(), 2, "{wrong:?}");
    }
}

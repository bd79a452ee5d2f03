mod access;
mod page;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use super::*;
use crate::model::action::{Action, Kind, Precondition, Reason, Target};
use crate::model::cluster::{Cluster, Node, ObjectKey, Pod};
use crate::model::condition::{Condition, ConditionKind};
use crate::model::cpus::CpuSet;
use crate::model::decision::Decision;
use crate::model::mark::Mark;
use crate::model::memory::Memory;
use crate::model::network::Family;
use crate::model::pods::Pods;
use crate::model::reasons::{Held, Kept, Unremovable};
use crate::model::region::{Failure, Host, Machine, MachineVm, Region, Step, Vm};
use crate::model::report::{
    Hold, HostState, NetworkState, NodeVerdict, PodVerdict, PoolState, Report, Scope,
};
use crate::model::resources::Resources;
use crate::model::scheduling::{PodShape, PodTraits};
use crate::model::snapshot::{Lease, Snapshot, SourceState};
use crate::model::store_states::{
    DeviceState, DeviceStates, OwnCpuState, OwnCpuStates, StorageState, StorageStates,
};
use crate::model::time::{Span, Time};

const NOW: Time = Time(1_795_000_000_000);

fn amounts(cpu: i64, memory: i64) -> Resources {
    Resources {
        cpu_milli: cpu,
        memory,
        ..Resources::default()
    }
}

fn mark(name: &str, vmid: u32) -> Mark {
    Mark {
        cluster: "uid/default".into(),
        machine: name.into(),
        vmid,
        pool: "small".into(),
        instance_type: "s".into(),
        template: "debian".into(),
        token: "abcdef".into(),
        created: NOW,
        addresses: BTreeMap::new(),
        cpus: crate::model::cpus::CpuSet::new(),
        unknown: [].into(),
    }
}

fn machine(name: &str, vmid: u32, step: Step, node: bool) -> Machine {
    Machine {
        terms: None,
        region: "default".into(),
        host: "pve1".into(),
        mark: mark(name, vmid).into(),
        storages: crate::model::chosen_storages::ChosenStorages::default(),
        intended: true,
        vm: Some(MachineVm {
            running: node,
            marked: true,
            ..MachineVm::default()
        }),
        node: node.then(|| name.into()),
        contradiction: None,
        remembered: None,
        step: Some((step, NOW)),
        failure: None,
        busy: None,
    }
}

fn node(cpu: i64, memory: i64) -> Node {
    let size = json!({"cpu_milli": cpu, "memory": memory});
    serde_json::from_value(json!({
        "uid": "node-uid", "created": NOW, "allocatable": size, "capacity": size,
        "ready": {"status": "True", "since": NOW},
    }))
    .unwrap_or_else(|error| panic!("a node: {error}"))
}

fn waiting() -> ObjectKey {
    ObjectKey::new("default", "b")
}

/// Two machines, one of them a working node with one pod, one pod that waits.
fn snapshot() -> Snapshot {
    let traits = PodTraits {
        requests: amounts(500, 1 << 30),
        ..PodTraits::default()
    };
    let shape = Arc::new(PodShape::from(traits));
    let pod = |node: Option<&str>| Pod {
        uid: "pod-uid".into(),
        shape: shape.clone(),
        node: node.map(Into::into),
        nominated: None,
        phase: crate::model::cluster::Phase::default(),
        created: NOW,
        arrival: 0,
        started: None,
        deletion: None,
        deletion_grace_seconds: None,
        unschedulable_since: None,
        gated: false,
        mirror: false,
        ready: true,
    };
    let vm = |cpus| Vm {
        cpus,
        memory: 4 << 30,
        ..Vm::default()
    };
    let host = Host {
        clock_ahead: Some(Span(-1_500)),
        ..Host::default()
    };
    Snapshot {
        version: 1,
        taken: NOW,
        cluster_id: Some("uid/default".into()),
        sources: BTreeMap::from([(
            Arc::from("kube/pods"),
            SourceState {
                complete: true,
                as_of: NOW - Span::seconds(5),
                error: None,
                cause: None,
            },
        )]),
        cluster: Cluster {
            nodes: BTreeMap::from([
                (Arc::from("cp"), node(4000, 8 << 30)),
                (Arc::from("small-a"), node(2000, 3 << 30)),
            ]),
            pods: Pods::from_iter([
                (ObjectKey::new("default", "a"), pod(Some("small-a"))),
                (waiting(), pod(None)),
            ]),
            ..Cluster::default()
        },
        regions: BTreeMap::from([(
            Arc::from("default"),
            Region {
                vms: BTreeMap::from([(9000, vm(2)), (9001, vm(2))]),
                hosts: BTreeMap::from([(Arc::from("pve1"), host)]),
                ..Region::default()
            }
            .into(),
        )]),
        machines: BTreeMap::from([
            (
                Arc::from("small-a"),
                machine("small-a", 9000, Step::Done, true),
            ),
            (
                Arc::from("small-b"),
                machine("small-b", 9001, Step::Clone, false),
            ),
        ]),
        leader: true,
        lease: Lease::default(),
        cluster_id_error: None,
        paused: None,
        awake: None,
        former: BTreeMap::new(),
        on_wire: BTreeMap::new(),
        nominations_refused: false,
    }
}

/// Two hosts, one of which is off.
fn hosts() -> BTreeMap<Arc<str>, BTreeMap<Arc<str>, HostState>> {
    let host = HostState {
        online: true,
        machines: 2,
        cpus: 8,
        memory: 32 << 30,
        promised_memory: 8 << 30,
        left_memory: 16 << 30,
        most_memory: 24 << 30,
        ..HostState::default()
    };
    let hosts = [("pve1".into(), host), ("pve2".into(), HostState::default())];
    BTreeMap::from([("default".into(), hosts.into())])
}

/// One that is shared, one of a host, and one of which PVE tells nothing.
fn storages() -> StorageStates {
    let state = |storage: &str, shared: bool| StorageState {
        storage: storage.into(),
        shared,
        hosts: vec!["pve1".into()],
        total: 500 << 30,
        free: 300 << 30,
        promised: 40 << 30,
        most: shared.then_some(1000 << 30),
        left: Some(260 << 30),
        ..StorageState::default()
    };
    let untold = StorageState {
        storage: "untold".into(),
        ..StorageState::default()
    };
    let states = [
        ("ceph".into(), state("ceph", true)),
        ("pve1/local-lvm".into(), state("local-lvm", false)),
        ("pve1/untold".into(), untold),
    ];
    BTreeMap::from([("default".into(), states.into())])
}

/// Two cards on one host that are known, and two on another whose guests were not read.
fn devices() -> DeviceStates {
    let state = |note: Option<&str>| DeviceState {
        has: 2,
        free: 1,
        note: note.map(str::to_owned),
        ..DeviceState::default()
    };
    let hosts = [
        ("pve1".into(), state(None)),
        ("pve2".into(), state(Some("not known yet"))),
    ];
    let mappings = [("gpu".into(), BTreeMap::from(hosts))];
    BTreeMap::from([("default".into(), mappings.into())])
}

fn own_cpus() -> OwnCpuStates {
    let cpus = |text: &str| CpuSet::read(text).expect("a list");
    let state = |note: Option<&str>| OwnCpuState {
        cpus: cpus("0-7"),
        reserved: cpus("0-1"),
        free: cpus("4-7"),
        note: note.map(str::to_owned),
        ..OwnCpuState::default()
    };
    let nodes = [(0, state(None)), (1, state(Some("not known yet")))];
    let hosts = [("pve1".into(), BTreeMap::from(nodes))];
    BTreeMap::from([("default".into(), hosts.into())])
}

fn networks() -> BTreeMap<Arc<str>, BTreeMap<Family, NetworkState>> {
    let state = NetworkState {
        ranges: "192.0.2.50-192.0.2.99".to_owned(),
        size: 50,
        free: 48,
        ..NetworkState::default()
    };
    BTreeMap::from([("lan".into(), BTreeMap::from([(Family::V4, state)]))])
}

fn report() -> Report {
    Report {
        networks: networks(),
        hosts: hosts(),
        storages: storages(),
        devices: devices(),
        own_cpus: own_cpus(),
        unread: BTreeSet::new(),
        holds: vec![Hold::new(Scope::ScaleDown, Held::ScaleDownDisabled)],
        pods: BTreeMap::from([(
            waiting(),
            PodVerdict::FitsMachine {
                machine: "small-b".into(),
            },
        )]),
        nodes: BTreeMap::from([
            (Arc::from("cp"), NodeVerdict::NotAutoscaled),
            (
                Arc::from("small-a"),
                NodeVerdict::Kept {
                    reason: Unremovable::NotUnderutilized,
                    why: Kept::NotUnderutilized {
                        resource: "cpu".into(),
                        requested_permille: 720,
                        threshold_permille: 500,
                        ready: true,
                    },
                    pod: None,
                    until: None,
                },
            ),
        ]),
        pools: BTreeMap::from([(
            Arc::from("small"),
            PoolState {
                min: 0,
                max: 3,
                ready: 1,
                coming: 1,
                ..PoolState::default()
            },
        )]),
        warnings: vec!["VM 9005 is not ours".into()],
        warnings_details: Vec::new(),
        scale_up: None,
        chosen_hosts: BTreeMap::new(),
        takes_pods_after: BTreeMap::new(),
        coming: BTreeMap::new(),
    }
}

pub(super) fn turn() -> Turn {
    let decision = Decision {
        plan: Vec::new(),
        report: report(),
        memory: Memory::default(),
        wake: None,
    };
    Turn {
        number: 7,
        at: NOW,
        settings: Arc::new(crate::config::parse("version = 1", "t.toml").expect("settings")),
        snapshot: Arc::new(snapshot()),
        decision: Arc::new(decision),
        waits: crate::controller::executor::ActionWaits::default(),
        made: crate::controller::host_decisions::HostDecisions::default(),
        usual: crate::controller::usual::UsualTimes::default(),
    }
}

fn removal(reason: Reason) -> Action {
    Action {
        version: 1,
        kind: Kind::Remove { drain: true },
        target: Target {
            region: "default".into(),
            host: "pve1".into(),
            vmid: 9000,
            machine: "small-a".into(),
            node: None,
        },
        precondition: Precondition::default(),
        reason,
    }
}

/// The text with its series in order and without the buckets: families come in any order.
/// What the process takes is another number each time.
fn without_process(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.contains("process_"));
    lines.collect::<Vec<_>>().join("\n")
}

fn sorted(text: &str) -> String {
    let mut lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.contains("_bucket{"))
        .collect();
    lines.sort_unstable();
    lines.join("\n")
}

#[test]
fn every_metric_after_a_turn_and_some_events() {
    let metrics = Metrics::new();
    metrics.turned(Duration::from_millis(3));
    metrics.step(Step::Clone, Span::seconds(40), true);
    metrics.evicted(true);
    metrics.kubeconfig_expires(Some(NOW));
    metrics.config_valid(true);
    metrics.policies_agree(true);
    let unneeded = |utilization_permille| Reason::Unneeded {
        since: NOW,
        utilization_permille,
    };
    metrics.ended(&removal(unneeded(0)), None);
    metrics.ended(&removal(unneeded(300)), None);
    let failure = Failure {
        advice: None,
        step: Step::Drain,
        message: "a budget".into(),
        at: NOW,
        transient: false,
        host: None,
    };
    metrics.ended(&removal(unneeded(300)), Some(&failure));
    insta::assert_snapshot!(
        sorted(&without_process(&metrics.text(Some(&turn()))))
            .replace(env!("CARGO_PKG_VERSION"), "VERSION")
    );
}

/// What the documentation tells to watch is there, under that name and with that label; so is what the alerts ask for, by
/// name: their labels are of worse days.
#[test]
fn metrics_in_the_documentation_exist() {
    let metrics = Metrics::new();
    let text = metrics.text(Some(&turn()));
    let page = include_str!("../../docs/operations.md");
    let rules = include_str!("../../contrib/prometheus/pve-autoscaler.rules.yaml");
    let mut checked = 0;
    let prefixes = ["pve_autoscaler_", "cluster_autoscaler_"];
    let both = prefixes.map(|prefix| [(page, prefix), (rules, prefix)]);
    for (page, prefix) in both.into_iter().flatten() {
        for (at, _) in page.match_indices(prefix) {
            let rest = &page[at..];
            let end = rest.find(|c: char| !(c.is_ascii_lowercase() || c == '_'));
            let (name, after) = rest.split_at(end.unwrap_or(rest.len()));
            let labels = after
                .strip_prefix('{')
                .and_then(|rest| rest.split('}').next())
                .filter(|_| page != rules);
            let series = |line: &str| {
                line.strip_prefix(name).is_some_and(|line| {
                    line.starts_with(['{', ' '])
                        && labels.is_none_or(|labels| line.contains(labels))
                })
            };
            assert!(
                text.lines().any(series),
                "{name} {labels:?} is not in {text}"
            );
            checked += 1;
        }
    }
    assert!(checked >= 20, "{checked}");
}

#[test]
fn series_of_what_is_gone_disappear() {
    let metrics = Metrics::new();
    assert!(metrics.text(Some(&turn())).contains("small"));
    let mut later = turn();
    let mut snapshot = (*later.snapshot).clone();
    snapshot.machines.clear();
    later.snapshot = Arc::new(snapshot);
    later.decision = Arc::new(Decision {
        plan: Vec::new(),
        report: Report::default(),
        memory: Memory::default(),
        wake: None,
    });
    assert!(!metrics.text(Some(&later)).contains("small"));
}

#[tokio::test]
async fn a_health_knows_why_it_is_not_ready() {
    let now = Instant::now();
    assert!(
        Health::after(&turn(), Span::minutes(3), now)
            .ready(now)
            .is_empty()
    );
    let late = now + LIVE_LIMIT + Duration::from_secs(1);
    assert!(Health::starting(now).live(late)[0].contains("91 s"));
    assert!(Health::starting(now).live(now).is_empty());
    assert!(!Health::starting(now).ready(now).is_empty());
    let stale = Health::after(&turn(), Span::seconds(4), now).ready(now);
    assert_eq!(stale, ["5s old: kube/pods"]);
}

pub(super) struct Server {
    pub(super) address: std::net::SocketAddr,
    health: watch::Sender<Health>,
    pub(super) stop: oneshot::Sender<()>,
    pub(super) task: tokio::task::JoinHandle<()>,
    pub(super) turns: watch::Sender<Option<Arc<Turn>>>,
    pub(super) viewers: Arc<Viewers>,
}

/// A condition of this kind that holds since then.
pub(super) fn condition(kind: ConditionKind, subject: &str, since: Option<Time>) -> Condition {
    Condition {
        kind,
        subject: subject.into(),
        summary: "something is wrong".into(),
        details: "".into(),
        todo: "mend it".into(),
        since,
    }
}

pub(super) async fn start() -> Server {
    start_behind(super::access::Access::default()).await
}

pub(super) async fn start_behind(access: super::access::Access) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("bound");
    let (health, health_receiver) = watch::channel(Health::starting(Instant::now()));
    let (turns, turns_receiver) = watch::channel(Some(Arc::new(turn())));
    let seen = turns_receiver.clone();
    let status = StatusSource::new(move || {
        let turn = seen.borrow();
        turn.as_ref()
            .map_or_else(DaemonStatus::default, |turn| DaemonStatus::of(turn))
    });
    let state = WebState::new(
        Arc::new(Metrics::new()),
        health_receiver,
        turns_receiver,
        status,
        Clock::starting_at(NOW),
    )
    .watched(ConditionSource::new(|| {
        let mut found = FoundConditions::default();
        let holds = condition(ConditionKind::NotificationFails, "ops", None);
        found.there.insert(holds.key(), holds);
        Some(found)
    }))
    .behind(access);
    let viewers = state.viewers.clone();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(serve(listener, state, async {
        let _ = stopped.await;
    }));
    Server {
        address,
        health,
        stop,
        task,
        turns,
        viewers,
    }
}

async fn get(address: std::net::SocketAddr, path: &str) -> String {
    get_as(address, path, "*/*").await
}

pub(super) async fn get_as(address: std::net::SocketAddr, path: &str, accept: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("connects");
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: x\r\naccept: {accept}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("writes");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("reads");
    text
}

#[tokio::test]
async fn it_serves_metrics_and_health_and_stops() {
    let server = start().await;
    let ready = get(server.address, "/readyz").await;
    assert!(
        ready.starts_with("HTTP/1.1 503") && ready.contains("no turn has ended"),
        "{ready}"
    );
    assert!(
        get(server.address, "/livez")
            .await
            .starts_with("HTTP/1.1 200")
    );
    server.health.send_replace(Health {
        beat: Instant::now(),
        problems: Vec::new(),
    });
    assert!(
        get(server.address, "/readyz")
            .await
            .starts_with("HTTP/1.1 200")
    );
    let prometheus = "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;q=0.5";
    let metrics = get_as(server.address, "/metrics", prometheus).await;
    assert!(
        metrics.contains("content-type: application/openmetrics-text")
            && metrics.ends_with("# EOF\n"),
        "{metrics}"
    );
    // A browser shows it instead of saving it.
    let metrics = get(server.address, "/metrics").await;
    assert!(metrics.contains("content-type: text/plain"), "{metrics}");
    let counter = "# TYPE cluster_autoscaler_scaled_up_nodes_total counter\n";
    assert!(
        metrics.contains(counter) && !metrics.contains("# EOF"),
        "{metrics}"
    );
    assert!(metrics.contains("\nkpnodes_total 2.0\n"), "{metrics}");
    let condition = "\npve_autoscaler_condition{kind=\"notification_fails\"} 1.0\n";
    assert!(metrics.contains(condition), "{metrics}");
    assert!(
        get(server.address, "/nothing")
            .await
            .starts_with("HTTP/1.1 404")
    );
    server.stop.send(()).expect("it runs");
    server.task.await.expect("it ends");
    assert!(TcpStream::connect(server.address).await.is_err());
}

/// The clock is paused: a peer that never finishes its request's head is hung up on.
#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_get_on_is_hung_up_on() {
    let server = start().await;
    let mut slow = TcpStream::connect(server.address).await.expect("connects");
    slow.write_all(b"GET /metrics HTTP/1.1\r\nhost:")
        .await
        .expect("writes");
    let mut text = String::new();
    slow.read_to_string(&mut text).await.expect("it is closed");
    assert!(!text.contains("200 OK"), "{text}");
    let mut open = TcpStream::connect(server.address).await.expect("connects");
    open.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .expect("writes");
    server.stop.send(()).expect("it runs");
    server
        .task
        .await
        .expect("an open connection does not hold the end up");
}

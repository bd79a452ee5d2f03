//! What a tenant who may create pods can do to the daemon, and what an API server that is slow or away can.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::faults::FaultPlan;
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::workload::{Act, Workload, WorkloadKind, WorkloadPods, WorkloadStep};
use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

use super::common::{Scene, listen, simulate};
use super::{HASTY, call};

/// Lines of the log of this level or worse, as they come.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

struct Words(String);

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() <= Level::WARN {
            let mut words = Words(event.metadata().level().to_string());
            event.record(&mut words);
            self.lines(|lines| lines.push(words.0));
        }
    }
}

impl Log {
    fn lines<T>(&self, look: impl FnOnce(&mut Vec<String>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lines about watches.
    fn of_watches(&self) -> Vec<String> {
        self.lines(|lines| {
            let watches = lines.iter().filter(|line| line.contains("watch"));
            watches.cloned().collect()
        })
    }
}

fn step(at: i64, act: Act) -> WorkloadStep {
    WorkloadStep {
        at: Span::seconds(at),
        act,
    }
}

fn deploy(name: &str, replicas: u32, cpu: &str) -> Act {
    Act::Deploy {
        name: name.to_owned(),
        replicas,
        pods: WorkloadPods::of(cpu, "16Mi"),
    }
}

fn delete(name: &str) -> Act {
    Act::Delete {
        kind: WorkloadKind::Deployment,
        name: name.to_owned(),
    }
}

/// Twelve pods come with a large one, on whose machine they stay when it goes: their node is drained then.
pub(super) fn drained() -> Workload {
    Workload {
        steps: vec![
            step(0, deploy("big", 1, "900m")),
            step(0, deploy("tiny", 12, "10m")),
            step(120, deploy("anchor", 1, "1100m")),
            step(300, delete("big")),
        ],
    }
}

/// Evictions that the API server answered: when, in milliseconds, of which pod, and with which status.
fn evictions(scene: &Scene) -> Vec<(i64, String, String)> {
    let (_, lines) = scene.world.kube.trace();
    let asked = lines.iter().filter_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let [at, "POST", path, status] = words[..] else {
            return None;
        };
        let pod = path.strip_suffix("/eviction")?.rsplit('/').next()?;
        Some((at.parse().ok()?, pod.to_owned(), status.to_owned()))
    });
    asked.collect()
}

/// A webhook on evictions that does not answer costs ten seconds, not ten for each pod.
#[test]
fn evictions_of_a_round_go_side_by_side() {
    simulate(async {
        let scene = Scene::new(21, HASTY, GuestSpec::default());
        scene.world.kube_faults.set(FaultPlan {
            eviction_ms: 10_000,
            ..FaultPlan::default()
        });
        scene
            .live(None, 0, drained(), Duration::from_mins(10))
            .await;
        let done = evictions(&scene);
        assert!(done.len() >= 12, "{done:?}");
        let (first, last) = (done[0].0, done[11].0);
        assert!(last - first < 25_000, "{} ms: {done:?}", last - first);
    });
}

/// How often each pod was asked to go within the first minute and a half, under this `Retry-After`.
fn asked(retry_after: u64) -> BTreeMap<String, usize> {
    simulate(async {
        let scene = Scene::new(21, HASTY, GuestSpec::default());
        let log = Arc::new(Mutex::new(Vec::new()));
        let seen = log.clone();
        scene.world.kube_faults.set(FaultPlan {
            eviction_busy_s: Some(retry_after),
            ..FaultPlan::default()
        });
        let watching = async {
            let faults = scene.world.kube_faults.clone();
            let clock = scene.world.clock;
            let mut before = faults.dealt();
            loop {
                tokio::time::sleep(Duration::from_millis(100)).await;
                let dealt = faults.dealt();
                for _ in before..dealt {
                    seen.lock().expect("a lock").push(clock.now().0);
                }
                before = dealt;
            }
        };
        tokio::select! {
            biased;
            () = scene.live(None, 0, drained(), Duration::from_mins(10)) => {}
            () = watching => {}
        }
        let times = log.lock().expect("a lock").clone();
        let first = *times.first().expect("it was asked for");
        let within = times.iter().filter(|at| **at < first + 90_000).count();
        BTreeMap::from([("all".to_owned(), within)])
    })
}

/// A pod whose eviction is refused is asked for again after 2, 4, 8 and then 10 seconds, or when the API server
/// says.
#[test]
fn a_refused_eviction_backs_off() {
    let often = asked(1)["all"];
    assert!((12 * 6..=12 * 12).contains(&often), "{often} times in 90 s");
    let seldom = asked(40)["all"];
    assert!((24..=12 * 3).contains(&seldom), "{seldom} times in 90 s");
}

/// The API server is away for three minutes: that is one warning, not one for each kind and each try.
#[test]
fn one_broken_connection_is_one_warning() {
    let log = Log::default();
    let subscriber = tracing_subscriber::registry().with(log.clone());
    let _guard = listen(subscriber);
    simulate(async {
        let scene = Scene::new(22, HASTY, GuestSpec::default());
        let outage = async {
            tokio::time::sleep(Duration::from_mins(2)).await;
            assert_eq!(log.of_watches(), Vec::<String>::new());
            scene.world.kube_faults.set(FaultPlan {
                broken: 1_000,
                ..FaultPlan::default()
            });
            // What is open breaks too: an idle watch ends within five minutes by itself.
            tokio::time::sleep(Duration::from_mins(10)).await;
            scene.world.kube_faults.quiet();
            std::future::pending::<()>().await;
        };
        let nothing = Workload { steps: Vec::new() };
        tokio::select! {
            biased;
            () = scene.live(None, 0, nothing, Duration::from_mins(20)) => {}
            () = outage => {}
        }
        let lines = log.of_watches();
        assert_eq!(lines.len(), 1, "{lines:#?}");
    });
}

/// A pod of this many bytes that asks for more than any machine has, so that it waits for ever.
fn heavy(name: &str, bytes: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "containers": [{
            "name": "c", "image": "x", "args": ["x".repeat(bytes)],
            "resources": { "requests": { "cpu": "64" } },
        }] },
    })
}

/// 75 pods of a megabyte, then a restart: the list is read all the same, and another's pod gets its machine.
#[test]
fn pods_of_a_megabyte_do_not_blind_the_daemon() {
    simulate(async {
        let scene = Scene::new(23, HASTY, GuestSpec::default());
        for number in 0..75 {
            let post = http::Request::post("/api/v1/namespaces/default/pods");
            let pod = heavy(&format!("heavy-{number:02}"), 1_000_000).to_string();
            let made = call(&scene, post, pod).await;
            assert_eq!(made["kind"], "Pod", "{made}");
        }
        scene
            .live(None, 0, super::visit(), Duration::from_mins(3))
            .await;
        assert_eq!(scene.machines_made(), 1);
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// A pod of another namespace with this many anti-affinity terms, each like no other, against everybody.
fn averse(name: &str, terms: usize) -> Value {
    let values: Vec<String> = (0..30).map(|value| value.to_string()).collect();
    let term = |number: usize| {
        json!({
            "topologyKey": "kubernetes.io/hostname", "namespaceSelector": {},
            "labelSelector": { "matchExpressions": [
                { "key": format!("{name}-{number}"), "operator": "NotIn", "values": values } ] },
        })
    };
    let terms: Vec<Value> = (0..terms).map(term).collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "evil", "labels": { "is": name } },
        "spec": {
            "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms } },
            "containers": [{ "name": "c", "image": "x", "resources": { "requests": { "cpu": "64" } } }],
        },
    })
}

async fn namespace(scene: &Scene, name: &str) {
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    let post = http::Request::post("/api/v1/namespaces");
    let made = call(scene, post, object.to_string()).await;
    assert_eq!(made["kind"], "Namespace", "{made}");
}

/// Pods with thousands of anti-affinity terms are left out and told so; another's pod gets its machine, which
/// goes when it is not needed any more.
#[test]
fn a_tenants_affinity_terms_cost_another_nothing() {
    simulate(async {
        let scene = Scene::new(24, HASTY, GuestSpec::default());
        namespace(&scene, "evil").await;
        for number in 0..3 {
            let post = http::Request::post("/api/v1/namespaces/evil/pods");
            let pod = averse(&format!("monster-{number}"), 1_000).to_string();
            let made = call(&scene, post, pod).await;
            assert_eq!(made["kind"], "Pod", "{made}");
        }
        scene
            .live(None, 0, super::visit(), Duration::from_mins(6))
            .await;
        assert_eq!(scene.machines_made(), 1);
        assert_eq!(scene.findings(), Vec::<String>::new());
        super::expect_told(
            &super::events(&scene).await,
            &[(
                "Pod NotTriggerScaleUp: ",
                "too complex: its constraints have",
            )],
        );
    });
}

/// Two hundred pods of one tenant that no pool can run are told so, and so is another's, whose name comes last.
#[test]
fn one_tenants_pods_do_not_silence_anothers() {
    simulate(async {
        let scene = Scene::new(25, HASTY, GuestSpec::default());
        for space in ["aaa", "zzz"] {
            namespace(&scene, space).await;
        }
        let pods = (0..200).map(|number| ("aaa", format!("many-{number:03}")));
        for (space, name) in pods.chain([("zzz", "single".to_owned())]) {
            let post = http::Request::post(format!("/api/v1/namespaces/{space}/pods"));
            let mut pod = heavy(&name, 1);
            pod["metadata"]["namespace"] = space.into();
            let made = call(&scene, post, pod.to_string()).await;
            assert_eq!(made["kind"], "Pod", "{made}");
        }
        let nothing = Workload { steps: Vec::new() };
        scene.live(None, 0, nothing, Duration::from_mins(2)).await;
        let path = "/api/v1/namespaces/zzz/events";
        let list = call(&scene, http::Request::get(path), String::new()).await;
        let told = list["items"].as_array().expect("a list");
        let reasons: Vec<&Value> = told.iter().map(|event| &event["reason"]).collect();
        assert!(
            reasons.contains(&&json!("NotTriggerScaleUp")),
            "{reasons:?}"
        );
    });
}

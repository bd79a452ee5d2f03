//! What happens to the cluster beside its API, and the doors for those who make it happen.

use http::{Method, Request};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::super::spec::MachineSpec;
use super::super::{AdminAct, PveSpec, TEMPLATE};
use super::Bench;
use crate::sim::faults::{FaultPlan, Faults};

const ROUTER: &str = "/nodes/pve1/qemu/100";

impl Bench {
    fn act(&self, act: &AdminAct) {
        self.pve
            .administer(act)
            .unwrap_or_else(|words| panic!("{act:?}: {words}"));
    }

    /// The row of one thing in the resources, once the broadcasts have told of it.
    async fn resource(&self, id: &str) -> Value {
        tokio::time::sleep(std::time::Duration::from_secs(11)).await;
        let rows = self.get("/cluster/resources").await;
        let rows = rows.data().as_array().cloned().unwrap_or_default();
        let row = rows.into_iter().find(|row| row["id"] == id);
        row.unwrap_or_else(|| panic!("{id} is not there"))
    }
}

#[tokio::test(start_paused = true)]
async fn machines_come_and_their_power_comes_and_goes() {
    let bench = Bench::new();
    let mut spec: MachineSpec = PveSpec::default().machines[0].clone();
    (spec.vmid, spec.running) = (150, false);
    bench.act(&AdminAct::AddMachine(spec.clone()));
    assert_eq!(bench.resource("qemu/150").await["status"], "stopped");
    assert!(
        bench.pve.administer(&AdminAct::AddMachine(spec)).is_err(),
        "it is there"
    );
    bench.act(&AdminAct::Start { vmid: 150 });
    assert_eq!(bench.resource("qemu/150").await["status"], "running");
    bench.act(&AdminAct::PowerOff { vmid: 150 });
    assert_eq!(bench.resource("qemu/150").await["status"], "stopped");
    bench.act(&AdminAct::Destroy { vmid: 150 });
    assert!(
        bench
            .pve
            .administer(&AdminAct::PowerOff { vmid: 150 })
            .is_err(),
        "it is gone"
    );
    let by: Vec<_> = bench
        .pve
        .changes()
        .into_iter()
        .map(|change| (change.by, change.what))
        .collect();
    let wanted = ["create", "start", "stop", "destroy"]
        .map(|what| ("administrator".to_owned(), what.to_owned()));
    assert_eq!(by, wanted);
}

#[tokio::test(start_paused = true)]
async fn a_container_without_cores_is_shown_with_its_limit_or_all_cpus_of_its_host() {
    let bench = Bench::new();
    let cpus = PveSpec::default().hosts[0].cpus;
    let machines = PveSpec::default().machines;
    let dns = machines.iter().find(|machine| machine.container);
    for (vmid, limits, shown) in [
        (150, vec![("cores", "2"), ("cpulimit", "1")], json!(2)),
        (151, vec![("cpulimit", "0.5")], json!(0.5)),
        (152, vec![("cpulimit", "0")], json!(cpus)),
        (153, vec![], json!(cpus)),
    ] {
        let mut spec: MachineSpec = dns.expect("a container").clone();
        spec.vmid = vmid;
        spec.config.remove("cores");
        let limits = limits.iter();
        let limits = limits.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        spec.config.extend(limits);
        bench.act(&AdminAct::AddMachine(spec));
        let row = bench.resource(&format!("lxc/{vmid}")).await;
        assert_eq!(row["maxcpu"], shown, "{vmid}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_keeps_administrators_off_too() {
    let bench = Bench::new();
    let lock = |lock: Option<&str>| AdminAct::Lock {
        vmid: 100,
        lock: lock.map(str::to_owned),
    };
    bench.act(&AdminAct::PowerOff { vmid: 100 });
    bench.act(&lock(Some("backup")));
    let refused = [
        AdminAct::Start { vmid: 100 },
        AdminAct::Migrate {
            vmid: 100,
            host: "pve2".into(),
        },
        lock(Some("clone")),
    ];
    for act in &refused {
        let words = bench.pve.administer(act).expect_err("it is locked");
        assert_eq!(words, "VM is locked (backup)", "{act:?}");
    }
    bench.act(&lock(None));
    for act in &refused {
        bench.act(act);
    }
}

#[tokio::test(start_paused = true)]
async fn ha_and_maintenance_are_shown() {
    let bench = Bench::new();
    let started = Some("started".to_owned());
    bench.act(&AdminAct::Ha {
        vmid: 100,
        state: started,
    });
    assert_eq!(bench.resource("qemu/100").await["hastate"], "started");
    let current = bench.get(&format!("{ROUTER}/status/current")).await;
    assert_eq!(current.data()["ha"]["managed"], 1);
    bench.act(&AdminAct::Ha {
        vmid: 100,
        state: None,
    });
    assert_eq!(bench.resource("qemu/100").await["hastate"], Value::Null);
    let maintain = |on| AdminAct::Maintenance {
        host: "pve2".to_owned(),
        on,
    };
    bench.act(&maintain(true));
    assert_eq!(bench.resource("node/pve2").await["hastate"], "maintenance");
    bench.act(&maintain(false));
    assert_eq!(bench.resource("node/pve2").await["hastate"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_changed_without_quorum_or_storage() {
    let bench = Bench::new();
    let path = format!("/nodes/pve1/qemu/{TEMPLATE}/clone");
    let clone = || bench.call(Method::POST, &path, "newid=5001");
    bench.act(&AdminAct::Quorum(false));
    assert_eq!(bench.get("/cluster/status").await.data()[0]["quorate"], 0);
    clone().await.refused(500, "cluster not ready - no quorum?");
    bench.act(&AdminAct::Quorum(true));
    let shared = |active| AdminAct::StorageActive {
        storage: "shared".to_owned(),
        active,
    };
    bench.act(&shared(false));
    let upid = clone().await.upid();
    let ended = bench.end(&upid).await;
    assert!(ended.contains("storage 'shared' is not online"), "{ended}");
    bench.act(&shared(true));
    let upid = clone().await.upid();
    assert_eq!(bench.end(&upid).await, "OK");
}

#[tokio::test(start_paused = true)]
async fn drivers_outside_have_doors_of_their_own() {
    let bench = Bench::new();
    let faults = Faults::new(1);
    let door = super::super::serve::driver(&bench.pve, &faults);
    let ask = async |method: Method, path: &str, body: Value| {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .body(axum::body::Body::from(body.to_string()));
        let answer = door
            .clone()
            .oneshot(request.expect("a request"))
            .await
            .expect("an answer");
        let status = answer.status().as_u16();
        let body = axum::body::to_bytes(answer.into_body(), 1 << 20)
            .await
            .expect("a body");
        let text = String::from_utf8_lossy(&body).into_owned();
        (
            status,
            serde_json::from_str(&text).unwrap_or(Value::String(text)),
        )
    };
    let off = json!({"power_off": {"vmid": 100}});
    assert_eq!(ask(Method::POST, "/sim/act", off).await.0, 200);
    let nowhere = json!({"power_off": {"vmid": 199}});
    let refused = ask(Method::POST, "/sim/act", nowhere).await;
    assert_eq!(refused, (409, json!("VM 199 does not exist")));
    bench.get("/version").await;
    let (_, world) = ask(Method::GET, "/sim/world?requests=1", Value::Null).await;
    let machines = world["machines"].as_array().cloned().unwrap_or_default();
    let router = machines
        .iter()
        .find(|vm| vm["vmid"] == 100)
        .expect("it is there");
    assert_eq!(router["running"], false);
    assert_eq!(world["last_requests"][0]["path"], "/version");
    assert_eq!(world["last_requests"].as_array().map(Vec::len), Some(1));

    let plan = json!({"latency_ms": [1, 2], "lost": 7});
    assert_eq!(ask(Method::PUT, "/sim/faults", plan).await.0, 200);
    let wanted = FaultPlan {
        latency_ms: [1, 2],
        lost: 7,
        ..FaultPlan::default()
    };
    assert_eq!(faults.plan(), wanted);
    let (_, shown) = ask(Method::GET, "/sim/faults", Value::Null).await;
    assert_eq!(
        serde_json::from_value::<FaultPlan>(shown).ok(),
        Some(wanted)
    );
    assert_eq!(
        ask(Method::PUT, "/sim/faults", json!({"lots": 1})).await.0,
        422
    );
    assert_eq!(
        faults.plan(),
        wanted,
        "what is not understood changes nothing"
    );
}

//! Guests and the fake cluster together.

use std::time::Duration;

use serde_json::{Value, json};

use super::api::Api;
use super::{
    ExecError, GuestFault, GuestSpec, GuestVm, Guests, KubeGuests, STOPPING, kubeadm, payload,
};
use crate::clock::Clock;
use crate::model::time::Time;
use crate::sim::kube::{Kube, KubeSpec};

const EPOCH: Time = Time(1_795_000_000_000);

fn world(spec: GuestSpec) -> (Kube, Api, KubeGuests) {
    let clock = Clock::starting_at(EPOCH);
    let kube = Kube::new(KubeSpec::default(), clock, 3);
    let guests = KubeGuests::new(kube.public_router(), spec, clock, 3);
    let api = Api::new(kube.router());
    (kube, api, guests)
}

fn vm(vmid: u32) -> GuestVm {
    GuestVm {
        vmid,
        incarnation: 0,
        uuid: format!("00000000-0000-4000-8000-{vmid:012}"),
        name: format!("pool-{vmid}"),
        serial: String::new(),
        cores: 4,
        memory_mib: 4096,
        disk: 20 << 30,
        address: None,
        fixed_addresses: Vec::new(),
        devices: 0,
        seed: None,
        frozen: false,
        unlinked: false,
    }
}

async fn pause(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

async fn say(guests: &KubeGuests, vmid: u32, verb: &str, stdin: &str) -> Result<String, ExecError> {
    let script = format!("# pve-autoscaler guest script: {verb}\ntrue\n");
    let argv = vec![
        "/bin/sh".into(),
        "-c".into(),
        script,
        "pve-autoscaler".into(),
    ];
    let stdin = match verb {
        "join" => payload::of_kubeadm(&serde_json::from_str(stdin).expect("JSON")),
        _ => stdin.as_bytes().to_vec(),
    };
    let result = guests.exec(vmid, argv, stdin).await?;
    Ok(String::from_utf8(result.stdout).expect("text"))
}

/// Makes a bootstrap token as kubeadm does.
async fn token(api: &Api, id: &str, expires: &str) {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": format!("bootstrap-token-{id}"), "namespace": "kube-system"},
        "stringData": {
            "token-id": id, "token-secret": "0123456789abcdef", "expiration": expires,
            "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
            "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token",
        },
    });
    api.post("/api/v1/namespaces/kube-system/secrets", &secret)
        .await
        .expect("a token");
}

fn configuration(kube: &Kube, id: &str, name: &str) -> Value {
    json!({
        "apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "JoinConfiguration",
        "discovery": {"bootstrapToken": {
            "token": format!("{id}.0123456789abcdef"),
            "apiServerEndpoint": "192.0.2.10:6443",
            "caCertHashes": [kubeadm::pin(&kube.authority()).expect("a pin")],
        }},
        "nodeRegistration": {
            "name": name,
            "taints": [{"key": "pve-autoscaler.io/uninitialized", "effect": "NoSchedule"}],
            "kubeletExtraArgs": [
                {"name": "node-labels", "value": "pve-autoscaler.io/pool=p,size=small"},
                {"name": "kube-reserved", "value": "cpu=100m,memory=256Mi"},
            ],
        },
    })
}

/// Whether the agent answers as soon as PVE wants it to: within three seconds.
async fn answers(guests: &KubeGuests, vmid: u32) -> bool {
    let answer = tokio::time::timeout(Duration::from_secs(3), guests.ping(vmid));
    answer.await.unwrap_or(false)
}

/// Powers a machine on and joins it; returns what its join says in the end.
async fn join(kube: &Kube, api: &Api, guests: &KubeGuests, vmid: u32) -> String {
    guests.power_on(vm(vmid));
    token(api, &format!("aaa{vmid}"), "2100-01-01T00:00:00Z").await;
    pause(30).await;
    assert!(
        answers(guests, vmid).await,
        "the agent answers after the boot"
    );
    let text = configuration(kube, &format!("aaa{vmid}"), &vm(vmid).name).to_string();
    assert_eq!(
        say(guests, vmid, "join", &text).await.expect("it runs"),
        "state=started\n"
    );
    let again = say(guests, vmid, "join", &text).await.expect("it runs");
    assert_eq!(again, "state=running\n", "a second call attaches");
    pause(30).await;
    say(guests, vmid, "state", "").await.expect("it runs")
}

#[tokio::test(start_paused = true)]
async fn a_joined_machine_comes_back_with_another_uuid_and_a_new_one_does_not() {
    let (kube, api, guests) = world(GuestSpec::default());
    join(&kube, &api, &guests, 100).await;
    for (incarnation, uuid) in [(0, "another"), (1, "of-the-next")] {
        guests.power_off(100, false).await;
        guests.power_on(GuestVm {
            incarnation,
            uuid: uuid.to_owned(),
            ..vm(100)
        });
        pause(120).await;
        // The disk is the same, and the kubelet tells what the firmware says; a new disk knows of no node.
        let node = api.get("/api/v1/nodes/pool-100").await.expect("the node");
        assert_eq!(node["status"]["nodeInfo"]["systemUUID"], "another");
        assert_eq!(guests.node_on(100).is_some(), incarnation == 0);
    }
}

/// `freeze` and `link_down`, which a clone inherits of its template.
#[tokio::test(start_paused = true)]
async fn a_frozen_machine_never_answers_and_one_without_a_link_joins_nothing() {
    let (kube, api, guests) = world(GuestSpec::default());
    guests.power_on(GuestVm {
        frozen: true,
        ..vm(100)
    });
    guests.power_on(GuestVm {
        unlinked: true,
        ..vm(101)
    });
    pause(600).await;
    assert!(!answers(&guests, 100).await);
    assert!(answers(&guests, 101).await);
    let state = join(&kube, &api, &guests, 101).await;
    assert!(state.contains("network is unreachable"), "{state}");
    assert!(api.get("/api/v1/nodes/pool-101").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_machine_joins_with_token_request_and_certificate() {
    let (kube, api, guests) = world(GuestSpec::default());
    guests.power_on(vm(100));
    assert!(!answers(&guests, 100).await, "it boots first");
    let state = join(&kube, &api, &guests, 100).await;
    assert!(state.starts_with("state=exited\nexit=0\n---\n"), "{state}");
    let node = api.get("/api/v1/nodes/pool-100").await.expect("the node");
    assert_eq!(node["status"]["nodeInfo"]["systemUUID"], vm(100).uuid);
    assert_eq!(node["metadata"]["labels"]["pve-autoscaler.io/pool"], "p");
    assert_eq!(node["status"]["conditions"][3]["status"], "True");
    let taints: Vec<_> = node["spec"]["taints"].as_array().expect("taints").clone();
    assert_eq!(
        taints.len(),
        1,
        "not-ready went when it became Ready: {taints:?}"
    );
    // 4096 MiB - 64 MiB kernel - 64 MiB page table; less 256 MiB reserved and 100 MiB eviction.
    assert_eq!(node["status"]["capacity"]["memory"], "4063232Ki");
    assert_eq!(node["status"]["allocatable"]["memory"], "3698688Ki");
    assert_eq!(node["status"]["allocatable"]["cpu"], "3900m");
    pause(600).await;
    let node = api.get("/api/v1/nodes/pool-100").await.expect("the node");
    assert_eq!(
        node["status"]["conditions"][3]["status"], "True",
        "the lease is kept"
    );
    guests.power_off(100, true).await;
    pause(70).await;
    let node = api.get("/api/v1/nodes/pool-100").await.expect("the node");
    assert_eq!(node["status"]["conditions"][3]["status"], "Unknown");
    guests.power_on(vm(100));
    pause(60).await;
    let node = api.get("/api/v1/nodes/pool-100").await.expect("the node");
    assert_eq!(
        node["status"]["conditions"][3]["status"], "True",
        "back after a reboot"
    );
    assert!(kube.violations().is_empty());
}

#[tokio::test(start_paused = true)]
async fn joins_that_must_fail_do() {
    let (kube, api, guests) = world(GuestSpec {
        fates: [(0, GuestFault::JoinFails), (1, GuestFault::AgentSilent)].into(),
        ..GuestSpec::default()
    });
    let state = join(&kube, &api, &guests, 100).await;
    assert!(state.starts_with("state=exited\nexit=1\n---\n"), "{state}");
    assert!(state.contains("error execution phase"), "{state}");
    guests.power_on(vm(101));
    guests.power_on(vm(102));
    pause(60).await;
    assert!(!answers(&guests, 101).await);
    assert_eq!(
        say(&guests, 101, "probe", "").await,
        Err(ExecError::NotRunning)
    );
    // A wrong pin, a token that has ended, a version the guest's kubeadm does not know.
    token(&api, "bbbbbb", "2100-01-01T00:00:00Z").await;
    let mut wrong = configuration(&kube, "bbbbbb", "pool-102");
    wrong["discovery"]["bootstrapToken"]["caCertHashes"] = json!(["sha256:00"]);
    say(&guests, 102, "join", &wrong.to_string())
        .await
        .expect("it runs");
    pause(400).await;
    let state = say(&guests, 102, "state", "").await.expect("it runs");
    assert!(state.contains("none of the public keys"), "{state}");
    guests.power_on(vm(103));
    token(&api, "cccccc", "2026-11-18T11:07:30Z").await;
    pause(60).await;
    let text = configuration(&kube, "cccccc", "pool-103").to_string();
    say(&guests, 103, "join", &text).await.expect("it runs");
    pause(400).await;
    let state = say(&guests, 103, "state", "").await.expect("it runs");
    assert!(state.contains("could not find a JWS signature"), "{state}");
    guests.power_on(vm(104));
    pause(60).await;
    let mut old = configuration(&kube, "bbbbbb", "pool-104");
    old["apiVersion"] = json!("kubeadm.k8s.io/v1beta1");
    say(&guests, 104, "join", &old.to_string())
        .await
        .expect("it runs");
    pause(10).await;
    let state = say(&guests, 104, "state", "").await.expect("it runs");
    assert!(state.contains("no kind \"JoinConfiguration\""), "{state}");
    assert!(api.get("/api/v1/nodes/pool-102").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn tokens_may_do_little_and_end_by_themselves() {
    let (kube, api, _guests) = world(GuestSpec::default());
    token(&api, "dddddd", "2026-11-18T11:17:10Z").await;
    let stranger = Api::new(kube.public_router());
    let holder = stranger.with_bearer("dddddd.0123456789abcdef");
    pause(1).await;
    let info = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
    let seen = stranger.get(info).await.expect("public");
    assert!(seen["data"]["jws-kubeconfig-dddddd"].is_string());
    assert_eq!(
        stranger.get("/api/v1/nodes").await.expect_err("no").code,
        403
    );
    assert_eq!(
        holder.get("/api/v1/secrets").await.expect_err("no").code,
        403
    );
    assert!(
        holder
            .get("/apis/certificates.k8s.io/v1/certificatesigningrequests")
            .await
            .is_ok()
    );
    pause(24 * 3600).await;
    assert_eq!(
        holder.get("/api/v1/nodes").await.expect_err("ended").code,
        401
    );
    let seen = stranger.get(info).await.expect("public");
    assert_eq!(seen["data"].get("jws-kubeconfig-dddddd"), None);
    let secret = "/api/v1/namespaces/kube-system/secrets/bootstrap-token-dddddd";
    assert_eq!(api.get(secret).await.expect_err("cleaned").code, 404);
}

#[tokio::test(start_paused = true)]
async fn pods_run_jobs_end_and_a_dead_node_gives_its_pods_back() {
    let (kube, api, guests) = world(GuestSpec::default());
    join(&kube, &api, &guests, 100).await;
    let untaint = json!({"spec": {"taints": null}});
    api.merge("/api/v1/nodes/pool-100", &untaint)
        .await
        .expect("initialised");
    let template = |annotations: Value| {
        json!({
            "metadata": {"labels": {"app": "w"}, "annotations": annotations},
            "spec": {
                "restartPolicy": "Always", "terminationGracePeriodSeconds": 20,
                "containers": [{"name": "m", "image": "x", "resources": {"requests": {"cpu": "500m"}}}],
            },
        })
    };
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "w"}}, "template": template(json!({STOPPING: "1h"}))},
    });
    api.post("/apis/apps/v1/namespaces/default/deployments", &deployment)
        .await
        .expect("made");
    let mut work = template(json!({super::DURATION: "90s"}));
    work["spec"]["restartPolicy"] = json!("Never");
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"},
        "spec": {"completions": 3, "parallelism": 2, "template": work, "ttlSecondsAfterFinished": 30},
    });
    api.post("/apis/batch/v1/namespaces/default/jobs", &job)
        .await
        .expect("made");
    pause(20).await;
    let web = api
        .get("/apis/apps/v1/namespaces/default/deployments/web")
        .await
        .expect("web");
    assert_eq!(web["status"]["readyReplicas"], 2);
    pause(180).await;
    let once = api
        .get("/apis/batch/v1/namespaces/default/jobs/once")
        .await
        .expect("the job");
    assert_eq!(once["status"]["succeeded"], 3);
    assert_eq!(once["status"]["conditions"][0]["type"], "Complete");
    pause(60).await;
    let gone = api.get("/apis/batch/v1/namespaces/default/jobs/once").await;
    assert_eq!(gone.expect_err("its time to live ended").code, 404);
    let pods = api
        .get("/api/v1/namespaces/default/pods")
        .await
        .expect("pods");
    assert_eq!(
        pods["items"].as_array().map(Vec::len),
        Some(2),
        "its pods went with it"
    );
    let name = pods["items"][0]["metadata"]["name"]
        .as_str()
        .expect("a name");
    let path = format!("/api/v1/namespaces/default/pods/{name}");
    api.delete(&path, &json!({})).await.expect("asked to stop");
    pause(15).await;
    assert!(api.get(&path).await.is_ok(), "it uses its grace");
    pause(6).await;
    assert_eq!(api.get(&path).await.expect_err("gone").code, 404);
    guests.power_off(100, false).await;
    pause(400).await;
    api.delete("/api/v1/nodes/pool-100", &json!({}))
        .await
        .expect("the node goes");
    pause(90).await;
    let pods = api
        .get("/api/v1/namespaces/default/pods")
        .await
        .expect("pods");
    let waiting = pods["items"].as_array().expect("pods").iter();
    assert!(
        waiting.clone().all(|p| p["spec"]["nodeName"].is_null()),
        "{pods}"
    );
    assert_eq!(waiting.count(), 2);
    assert!(kube.violations().is_empty(), "{:?}", kube.violations());
}

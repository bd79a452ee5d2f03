//! Power, locks, destruction, the agent, and what the resources show of it when.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::{AdminAct, PveSpec, TEMPLATE, Timings};
use super::Bench;

pub(super) const VM: &str = "/nodes/pve1/qemu/5001";

impl Bench {
    /// A clone of the template, 5001, that nothing protects.
    pub(super) async fn cloned() -> Bench {
        Bench::cloned_in(PveSpec::default()).await
    }

    pub(super) async fn cloned_in(spec: PveSpec) -> Bench {
        let bench = Bench::with(spec);
        let path = format!("/nodes/pve1/qemu/{TEMPLATE}/clone");
        assert_eq!(
            bench
                .task(Method::POST, &path, "newid=5001&name=web&description=mark")
                .await,
            "OK"
        );
        assert_eq!(
            bench
                .call(Method::PUT, &format!("{VM}/config"), "protection=0")
                .await
                .status,
            200
        );
        bench
    }

    pub(super) async fn power(&self, verb: &str, form: &str) -> String {
        self.task(Method::POST, &format!("{VM}/status/{verb}"), form)
            .await
    }

    /// The row of a VM in the resources.
    pub(super) async fn row(&self, vmid: u32) -> Value {
        let rows = self
            .call(Method::GET, "/cluster/resources", "type=vm")
            .await;
        let rows = rows.data().as_array().cloned().unwrap_or_default();
        rows.into_iter()
            .find(|row| row["vmid"] == json!(vmid))
            .unwrap_or(Value::Null)
    }
}

#[tokio::test(start_paused = true)]
async fn the_resources_lag_behind() {
    // So fast that no broadcast falls into the clone.
    let timings = Timings::none();
    let bench = Bench::cloned_in(PveSpec {
        timings,
        ..PveSpec::default()
    })
    .await;
    let early = bench.row(5001).await;
    assert_eq!(
        (&early["status"], &early["name"], &early["template"]),
        (&json!("unknown"), &json!(null), &json!(null))
    );
    assert_eq!(
        early["tags"],
        json!("debian;template"),
        "tags are immediate"
    );
    tokio::time::sleep(Duration::from_secs(10)).await;
    let later = bench.row(5001).await;
    assert_eq!(
        (&later["status"], &later["name"], &later["template"]),
        (&json!("stopped"), &json!("web"), &json!(0))
    );
    assert_eq!(bench.power("start", "").await, "OK");
    assert_eq!(bench.row(5001).await["status"], json!("stopped"));
    assert_eq!(
        bench.get(&format!("{VM}/status/current")).await.data()["status"],
        json!("running")
    );
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(bench.row(5001).await["status"], json!("running"));
    let lock = AdminAct::Lock {
        vmid: 5001,
        lock: Some("backup".to_owned()),
    };
    bench.pve.administer(&lock).expect("locked");
    assert_eq!(
        bench.row(5001).await["lock"],
        json!("backup"),
        "locks are immediate"
    );
    let off = AdminAct::HostOnline {
        host: "pve1".to_owned(),
        online: false,
    };
    let other = bench.pve.router_at("pve2");
    bench.pve.administer(&off).expect("off");
    let token = [(
        "authorization",
        "PVEAPIToken=scaler@pve!sim=00000000-0000-4000-8000-000000000001",
    )];
    for (seconds, status) in [(60, "running"), (300, "unknown")] {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let rows = super::send(&other, Method::GET, "/cluster/resources", "type=vm", &token).await;
        let rows = rows.data().as_array().cloned().unwrap_or_default();
        let row = rows
            .iter()
            .find(|row| row["vmid"] == json!(5001))
            .expect("the VM");
        assert_eq!(row["status"], json!(status));
    }
}

#[tokio::test(start_paused = true)]
async fn starting_what_cannot_start() {
    let bench = Bench::cloned().await;
    let set = |form: &'static str| bench.call(Method::PUT, "/nodes/pve1/qemu/5001/config", form);
    let cases = [
        (
            "cores=33",
            "MAX 32 vcpus allowed per VM on this node",
            "cores=2",
        ),
        (
            "net0=virtio,bridge=vmbr77",
            "bridge 'vmbr77' does not exist",
            "net0=virtio,bridge=vmbr0",
        ),
        (
            "memory=999999",
            "start failed: QEMU exited with code 1",
            "memory=2048",
        ),
        (
            "cicustom=user%3Dnope%3Asnippets%2Fx",
            "storage 'nope' does not exist",
            "delete=cicustom",
        ),
        (
            "cicustom=user%3Dlocal%3Asnippets%2Fx",
            "volume 'local:snippets/x' does not exist",
            "delete=cicustom",
        ),
        (
            "hugepages=2",
            "numa needs to be enabled to use hugepages at /usr/share/perl5/PVE/QemuServer/Memory.pm line 388.",
            "delete=hugepages",
        ),
    ];
    for (bad, words, good) in cases {
        assert_eq!(set(bad).await.status, 200, "{bad}");
        assert_eq!(bench.power("start", "").await, words);
        assert_eq!(set(good).await.status, 200, "{good}");
    }
    assert_eq!(bench.power("start", "").await, "OK");
    assert_eq!(bench.power("start", "").await, "VM 5001 already running");
    let path = format!("/nodes/pve1/qemu/{TEMPLATE}/status/start");
    assert_eq!(
        bench.task(Method::POST, &path, "").await,
        "you can't start a vm if it's a template"
    );
    let missing = bench
        .task(Method::POST, "/nodes/pve1/qemu/4711/status/start", "")
        .await;
    assert_eq!(
        missing,
        "Configuration file 'nodes/pve1/qemu-server/4711.conf' does not exist"
    );
    let missing = bench
        .task(Method::POST, "/nodes/pve1/qemu/4711/status/stop", "")
        .await;
    assert_eq!(
        missing,
        "unable to find configuration file for VM 4711 on node 'pve1'"
    );
}

#[tokio::test(start_paused = true)]
async fn a_running_vm_takes_some_changes_at_its_next_start() {
    let bench = Bench::cloned().await;
    assert_eq!(bench.power("start", "").await, "OK");
    let config = format!("{VM}/config");
    assert_eq!(
        bench
            .call(Method::PUT, &config, "cores=8&tags=new&description=other")
            .await
            .status,
        200
    );
    assert_eq!(bench.get(&config).await.data()["cores"], json!(8));
    let applied = bench.call(Method::GET, &config, "current=1").await;
    assert_eq!(
        (&applied.data()["cores"], &applied.data()["tags"]),
        (&json!(2), &json!("new"))
    );
    let pending = bench.get(&format!("{VM}/pending")).await;
    let cores = pending
        .data()
        .as_array()
        .and_then(|rows| rows.iter().find(|row| row["key"] == "cores").cloned());
    assert_eq!(
        cores,
        Some(json!({ "key": "cores", "value": 2, "pending": 8 }))
    );
    assert_eq!(bench.power("reboot", "").await, "OK");
    assert_eq!(
        bench.call(Method::GET, &config, "current=1").await.data()["cores"],
        json!(8)
    );
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_holds_the_lock_and_can_be_overruled() {
    let bench = Bench::with_guests(Duration::from_secs(5), Duration::from_secs(500)).await;
    let upid = bench
        .call(
            Method::POST,
            &format!("{VM}/status/shutdown"),
            "timeout=100",
        )
        .await
        .upid();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let locked = "can't lock file '/var/lock/qemu-server/lock-5001.conf' - got timeout";
    let began = Instant::now();
    bench
        .call(Method::PUT, &format!("{VM}/config"), "tags=x")
        .await
        .refused(500, locked);
    assert!(began.elapsed() >= Duration::from_secs(10));
    assert_eq!(bench.power("stop", "").await, locked);
    assert_eq!(bench.power("stop", "overrule-shutdown=1").await, "OK");
    assert_eq!(bench.end(&upid).await, "received interrupt");
    assert!(!bench.pve.vm(5001).expect("the VM").running);
    assert_eq!(
        bench.power("shutdown", "").await,
        "OK",
        "a stopped VM is shut down"
    );
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_has_an_end() {
    let bench = Bench::with_guests(Duration::from_secs(5), Duration::from_secs(500)).await;
    let began = Instant::now();
    assert_eq!(
        bench.power("shutdown", "").await,
        "VM quit/powerdown failed - got timeout"
    );
    assert!((60..62).contains(&began.elapsed().as_secs()));
    assert!(bench.pve.vm(5001).expect("the VM").running);
    assert_eq!(bench.power("shutdown", "timeout=5&forceStop=1").await, "OK");
    assert!(!bench.pve.vm(5001).expect("the VM").running);
    assert_eq!(bench.power("start", "").await, "OK");
    assert_eq!(bench.power("suspend", "").await, "OK");
    bench
        .call(Method::POST, &format!("{VM}/status/shutdown"), "")
        .await
        .refused(500, "VM is paused - cannot shutdown");
}

#[tokio::test(start_paused = true)]
async fn what_stands_in_the_way_of_a_destruction() {
    let bench = Bench::cloned().await;
    let destroy = |form: &'static str| bench.call(Method::DELETE, VM, form);
    assert_eq!(
        bench
            .call(Method::PUT, &format!("{VM}/config"), "protection=1")
            .await
            .status,
        200
    );
    destroy("")
        .await
        .refused(500, "can't remove VM 5001 - protection mode enabled");
    assert_eq!(
        bench
            .call(Method::PUT, &format!("{VM}/config"), "protection=0")
            .await
            .status,
        200
    );
    assert_eq!(
        bench
            .call(
                Method::POST,
                "/cluster/ha/resources",
                "sid=vm%3A5001&state=stopped"
            )
            .await
            .status,
        200
    );
    destroy("").await.refused(
        500,
        "unable to remove VM 5001 - used in HA resources and purge parameter not set.",
    );
    let lock = |lock: Option<&str>| AdminAct::Lock {
        vmid: 5001,
        lock: lock.map(str::to_owned),
    };
    bench.pve.administer(&lock(Some("backup"))).expect("locked");
    assert_eq!(
        bench.task(Method::DELETE, VM, "purge=1").await,
        "VM is locked (backup)"
    );
    bench
        .call(Method::PUT, &format!("{VM}/config"), "cores=3")
        .await
        .refused(500, "VM is locked (backup)");
    bench.pve.administer(&lock(None)).expect("unlocked");
}

#[tokio::test(start_paused = true)]
async fn a_base_image_outlives_its_clones() {
    let bench = Bench::cloned().await;
    assert_eq!(
        bench
            .call(
                Method::POST,
                "/cluster/ha/resources",
                "sid=vm%3A5001&state=stopped"
            )
            .await
            .status,
        200
    );
    assert_eq!(
        bench
            .call(
                Method::PUT,
                &format!("/nodes/pve1/qemu/{TEMPLATE}/config"),
                "protection=0"
            )
            .await
            .status,
        200
    );
    let base = bench
        .task(Method::DELETE, &format!("/nodes/pve1/qemu/{TEMPLATE}"), "")
        .await;
    assert_eq!(
        base,
        "base volume 'shared:9000/base-9000-disk-0.qcow2' is still in use by linked cloned"
    );
    assert_eq!(
        bench
            .task(Method::DELETE, VM, "purge=1&destroy-unreferenced-disks=1")
            .await,
        "OK"
    );
    assert_eq!(bench.get("/cluster/ha/resources").await.data(), &json!([]));
    assert_eq!(bench.row(5001).await, Value::Null);
    assert_eq!(
        bench
            .task(Method::DELETE, &format!("/nodes/pve1/qemu/{TEMPLATE}"), "")
            .await,
        "OK"
    );
    bench.call(Method::DELETE, VM, "").await.refused(
        500,
        "Configuration file 'nodes/pve1/qemu-server/5001.conf' does not exist",
    );
}

#[tokio::test(start_paused = true)]
async fn a_placeholder_without_a_task_is_destroyed_with_skiplock_only() {
    let bench = Bench::cloned().await;
    let lock = AdminAct::Lock {
        vmid: 5001,
        lock: Some("clone".to_owned()),
    };
    bench.pve.administer(&lock).expect("locked");
    assert_eq!(
        bench.task(Method::DELETE, VM, "purge=1").await,
        "VM is locked (clone)"
    );
    assert_eq!(
        bench.task(Method::DELETE, VM, "purge=1&skiplock=1").await,
        "OK"
    );
    assert_eq!(bench.pve.vm(5001), None);
}

#[tokio::test(start_paused = true)]
async fn config_writes_mind_digest_balloon_and_lock_file() {
    let bench = Bench::cloned().await;
    let config = format!("{VM}/config");
    let digest = bench.get(&config).await.data()["digest"]
        .as_str()
        .expect("a digest")
        .to_owned();
    assert_eq!(digest.len(), 40);
    assert_eq!(
        bench
            .call(Method::PUT, &config, &format!("cores=3&digest={digest}"))
            .await
            .status,
        200
    );
    bench
        .call(Method::PUT, &config, &format!("cores=4&digest={digest}"))
        .await
        .refused(500, "checksum mismatch (file change by other user?)");
    bench
        .call(Method::PUT, &config, "memory=512")
        .await
        .refused(
            500,
            "balloon value too large (must be smaller than assigned memory)",
        );
    assert_eq!(
        bench
            .call(Method::PUT, &config, "memory=512&balloon=0")
            .await
            .status,
        200
    );
    let hold = AdminAct::HoldLockFile {
        vmid: 5001,
        seconds: 30,
    };
    bench.pve.administer(&hold).expect("held");
    tokio::time::sleep(Duration::from_secs(1)).await;
    bench.call(Method::PUT, &config, "cores=5").await.refused(
        500,
        "can't lock file '/var/lock/qemu-server/lock-5001.conf' - got timeout",
    );
    tokio::time::sleep(Duration::from_secs(30)).await;
    let later = bench.call(Method::POST, &config, "cores=5").await.upid();
    assert_eq!(bench.end(&later).await, "OK");
    assert_eq!(
        bench
            .call(Method::POST, &config, "cores=6&background_delay=5")
            .await
            .data(),
        &Value::Null
    );
}

#[tokio::test(start_paused = true)]
async fn disks_grow_and_never_shrink() {
    let bench = Bench::cloned().await;
    let path = format!("{VM}/resize");
    let resize = |form: &'static str| bench.task(Method::PUT, &path, form);
    assert_eq!(resize("disk=scsi0&size=%2B4G").await, "OK");
    assert!(bench.pve.vm(5001).expect("the VM").config["scsi0"].ends_with("size=12G"));
    assert_eq!(resize("disk=scsi0&size=12G").await, "OK");
    assert_eq!(
        resize("disk=scsi0&size=8G").await,
        "shrinking disks is not supported"
    );
    assert_eq!(
        resize("disk=scsi1&size=8G").await,
        "disk 'scsi1' does not exist"
    );
    assert_eq!(
        resize("disk=ide2&size=8G").await,
        "you can't resize a cdrom"
    );
    let digest = "disk=scsi0&size=20G&digest=0000000000000000000000000000000000000000";
    assert_eq!(
        resize(digest).await,
        "checksum mismatch (file change by other user?)"
    );
    let wrong = bench.call(Method::PUT, &path, "disk=scsi0&size=big").await;
    assert_eq!(
        wrong.body["errors"]["size"],
        json!("value does not match the regex pattern")
    );
}

#[tokio::test(start_paused = true)]
async fn the_manager_starts_and_stops_its_machines_in_its_own_time() {
    let bench = Bench::cloned().await;
    assert_eq!(
        bench
            .call(
                Method::POST,
                "/cluster/ha/resources",
                "sid=vm%3A5001&state=stopped"
            )
            .await
            .status,
        200
    );
    let upid = bench
        .call(Method::POST, &format!("{VM}/status/start"), "")
        .await
        .upid();
    assert!(upid.contains(":hastart:5001:"), "{upid}");
    assert_eq!(bench.end(&upid).await, "OK");
    assert!(
        !bench.pve.vm(5001).expect("the VM").running,
        "asked for, not done"
    );
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(bench.pve.vm(5001).expect("the VM").running);
    let current = bench.get(&format!("{VM}/status/current")).await;
    assert_eq!(
        current.data()["ha"],
        json!({ "managed": 1, "state": "started" })
    );
    let overrule = bench
        .call(
            Method::POST,
            &format!("{VM}/status/stop"),
            "overrule-shutdown=1",
        )
        .await;
    assert_eq!(
        overrule.body["errors"]["overrule-shutdown"],
        json!("Not applicable for HA resources.")
    );
}

#[tokio::test(start_paused = true)]
async fn a_machine_moves_and_a_template_is_made() {
    let bench = Bench::cloned().await;
    let moved = AdminAct::Migrate {
        vmid: 5001,
        host: "pve2".to_owned(),
    };
    bench.pve.administer(&moved).expect("moved");
    bench.get(&format!("{VM}/config")).await.refused(
        500,
        "Configuration file 'nodes/pve1/qemu-server/5001.conf' does not exist",
    );
    assert_eq!(bench.get("/nodes/pve2/qemu/5001/config").await.status, 200);
    assert_eq!(bench.row(5001).await["node"], json!("pve2"));
    let back = bench
        .task(Method::POST, "/nodes/pve2/qemu/5001/migrate", "target=pve3")
        .await;
    assert_eq!(back, "OK");
    assert_eq!(bench.pve.vm(5001).expect("the VM").host, "pve3");
    assert_eq!(
        bench
            .task(Method::POST, "/nodes/pve3/qemu/5001/template", "")
            .await,
        "OK"
    );
    let vm = bench.pve.vm(5001).expect("the VM");
    assert!(
        vm.template && vm.config["scsi0"].contains("base-5001-disk-0"),
        "{vm:?}"
    );
    let form = "vmid=5002&name=new&memory=1024&scsi0=shared%3A4&ide2=shared%3Acloudinit&net0=virtio%2Cbridge%3Dvmbr0";
    assert_eq!(
        bench.task(Method::POST, "/nodes/pve1/qemu", form).await,
        "OK"
    );
    let made = bench.pve.vm(5002).expect("the VM");
    assert_eq!(
        made.config["scsi0"],
        "shared:5002/vm-5002-disk-0.qcow2,size=4G"
    );
    assert!(
        made.config["net0"].starts_with("virtio=BC:24:11:"),
        "{}",
        made.config["net0"]
    );
    bench
        .call(Method::POST, "/nodes/pve1/qemu", "vmid=5001")
        .await
        .refused(
            500,
            "unable to create VM 5001 - VM 5001 already exists on node 'pve3'",
        );
}

/// PVE passes `enforce`: a host without a flag of the type starts no VM of it, and the task's log has QEMU's words.
#[tokio::test(start_paused = true)]
async fn a_cpu_type_that_the_host_does_not_have_does_not_start() {
    let bench = Bench::cloned().await;
    let set = |form: &'static str| bench.call(Method::PUT, "/nodes/pve1/qemu/5001/config", form);
    assert_eq!(set("cpu=x86-64-v4").await.status, 200);
    let path = "/nodes/pve1/qemu/5001/status/start";
    let upid = bench.call(Method::POST, path, "").await.upid();
    let exited = "start failed: QEMU exited with code 1";
    assert_eq!(bench.end(&upid).await, exited);
    let log = bench.get(&format!("/nodes/pve1/tasks/{upid}/log")).await;
    let log = log.data().to_string();
    for line in [
        "kvm: warning: host doesn't support requested feature: CPUID.07H:EBX.avx512f [bit 16]",
        "kvm: Host doesn't support requested features",
    ] {
        assert!(log.contains(line), "{log}");
    }
    assert!(!log.contains("avx2"), "{log}");
    for fine in ["cpu=x86-64-v3", "cpu=host"] {
        assert_eq!(set(fine).await.status, 200);
        assert_eq!(bench.power("start", "").await, "OK", "{fine}");
        assert_eq!(bench.power("stop", "").await, "OK");
    }
}

//! CPUs, NUMA nodes and huge pages: who may set them, and what is said at the start.

use http::Method;

use super::super::spec::{PveSpec, TEMPLATE};
use super::Bench;

fn spec() -> PveSpec {
    let mut spec = PveSpec::default();
    spec.hosts[0].numa_nodes = 2;
    spec
}

#[tokio::test(start_paused = true)]
async fn what_a_host_does_not_have_is_said_at_the_start() {
    let bench = Bench::with(spec());
    let cpus = spec().hosts[0].cpus;
    let path = format!("/nodes/pve1/qemu/{TEMPLATE}/clone");
    assert_eq!(bench.task(Method::POST, &path, "newid=5001").await, "OK");
    let config = "/nodes/pve1/qemu/5001/config";
    let node = |number: u32, host: u32, memory: u32| {
        format!("numa{number}=cpus%3D{number},hostnodes%3D{host},memory%3D{memory},policy%3Dbind")
    };
    let two = |first: u32, second: u32| format!("{}&{}", node(0, 0, first), node(1, 1, second));
    let exited = "start failed: QEMU exited with code 1";
    let sum = "total memory for NUMA nodes must be equal to vm static memory";
    for (form, words) in [
        (format!("memory=2048&cores=2&affinity={cpus}"), exited),
        // CPUs that the host does not have are passed over while it has one of them.
        (format!("affinity=0-{cpus}"), "OK"),
        ("affinity=0-1,".to_owned(), exited),
        ("affinity=0-0".to_owned(), "OK"),
        (format!("affinity=0-{}", cpus - 1), "OK"),
        (format!("numa=1&{}", two(2048, 2048)), sum),
        (two(1024, 512), sum),
        (two(1024, 1024), "OK"),
        (node(1, 2, 1024), "host NUMA node2 doesn't exist"),
        (
            "numa1=cpus%3D1,hostnodes%3D1,memory%3D1024".to_owned(),
            "you need to define a policy for hostnode 1",
        ),
        (
            format!("hugepages=1024&{}", two(1536, 512)),
            "Memory size 1536 is not a multiple of the requested hugepages size 1024",
        ),
        (two(1024, 1024), "OK"),
        (
            "numa=0".to_owned(),
            "numa needs to be enabled to use hugepages at /usr/share/perl5/PVE/QemuServer/Memory.pm line 388.",
        ),
        (
            format!("numa=1&hugepages=2&{}", two(1023, 1025)),
            "memory size '1023' is not a positive even integer; cannot use for hugepages",
        ),
        (
            "numa0=cpus%3D0,memory%3D1024&numa1=cpus%3D1,memory%3D1024".to_owned(),
            "numa hostnodes need to be defined to use hugepages at /usr/share/perl5/PVE/QemuServer/Memory.pm line 430.",
        ),
        (
            "delete=numa0,numa1&cores=1&sockets=3".to_owned(),
            "host NUMA node2 doesn't exist",
        ),
    ] {
        let answer = bench.call(Method::PUT, config, &form).await;
        assert_eq!(answer.status, 200, "{form}: {}", answer.reason);
        let start = "/nodes/pve1/qemu/5001/status/start";
        assert_eq!(bench.task(Method::POST, start, "").await, words, "{form}");
        if words == "OK" {
            let stop = "/nodes/pve1/qemu/5001/status/stop";
            assert_eq!(bench.task(Method::POST, stop, "").await, "OK");
        }
    }
}

/// PVE takes huge pages from the first NUMA node for each socket, or from those that `numaN` names, all together or none.
#[tokio::test(start_paused = true)]
async fn a_vm_without_its_huge_pages_does_not_start() {
    let mut spec = spec();
    spec.hosts[0].huge_pages = Some(2048);
    let bench = Bench::with(spec);
    let clone = format!("/nodes/pve1/qemu/{TEMPLATE}/clone");
    for vmid in [5001, 5002] {
        let form = format!("newid={vmid}");
        assert_eq!(bench.task(Method::POST, &clone, &form).await, "OK");
    }
    let put = async |vmid: u32, form: &str| {
        let path = format!("/nodes/pve1/qemu/{vmid}/config");
        let answer = bench.call(Method::PUT, &path, form).await;
        assert_eq!(answer.status, 200, "{form}: {}", answer.reason);
    };
    let power = async |vmid: u32, what: &str| {
        let path = format!("/nodes/pve1/qemu/{vmid}/status/{what}");
        bench.task(Method::POST, &path, "").await
    };
    let failed = "start failed: hugepage allocation failed at /usr/share/perl5/PVE/QemuServer/Memory.pm line 731.";
    put(5001, "memory=2048&numa=1&hugepages=2").await;
    put(5002, "memory=2048&numa=1&hugepages=2").await;
    assert_eq!(power(5001, "start").await, "OK");
    assert_eq!(power(5002, "start").await, failed, "the first node is full");
    put(
        5002,
        "numa0=cpus%3D0,hostnodes%3D1,memory%3D2048,policy%3Dbind",
    )
    .await;
    assert_eq!(power(5002, "start").await, "OK", "the second one is not");
    assert_eq!(power(5002, "stop").await, "OK");
    put(5002, "delete=numa0&cores=1&sockets=2").await;
    assert_eq!(
        power(5002, "start").await,
        failed,
        "half of it is in the first"
    );
    // Memory that is in no huge pages is none of theirs, and pages go with their VM.
    put(5002, "delete=hugepages").await;
    assert_eq!(power(5002, "start").await, "OK");
    assert_eq!(power(5002, "stop").await, "OK");
    put(5002, "hugepages=2").await;
    assert_eq!(power(5001, "stop").await, "OK");
    assert_eq!(power(5002, "start").await, "OK");
}

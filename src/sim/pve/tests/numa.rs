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
        (format!("affinity=0-{cpus}"), exited),
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
            "numa needs to be enabled to use hugepages",
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

//! What the file says of hosts' CPUs, and of pools whose machines get some for themselves.

use super::{SMALL, messages, parse};

const TOPOLOGY: &str = "[proxmox.topology.pve1]\nnuma = [\"0-3\", \"4-7\"]\nnuma_memory = [\"31GiB\", \"32GiB\"]\n\
     cores = [\"0,1\", \"2,3\", \"4,5\", \"6,7\"]\nreserved = \"0-1\"\ndevices = { gpu = \"1\" }\n";

fn with(pool: &str, topology: &str) -> String {
    SMALL.replace("max = 3", &format!("max = 3\n{pool}")) + topology
}

#[test]
fn a_topology_is_read_with_defaults_for_what_is_not_said() {
    let text = with("cpu_pinning = true\nhugepages = \"2M\"", TOPOLOGY);
    let settings = parse(&text, "test.toml").unwrap_or_else(|e| panic!("{e}"));
    let policy = &settings.policy.regions["default"];
    let of = &policy.topologies["pve1"];
    assert_eq!(
        (of.sockets.len(), of.caches.len(), of.cores.len()),
        (1, 2, 4)
    );
    assert_eq!(of.numa[1].memory, Some(32 << 30));
    assert_eq!(of.usable().to_string(), "2-7");
    assert_eq!(of.devices, [("gpu".into(), [1].into())].into());
    let pool = &settings.policy.pools["small"];
    assert!(pool.pinning.cpus && pool.pinning.hugepages.is_some());
    let allow = &settings.broker.allow;
    assert_eq!(allow.pools["small"].pinning, pool.pinning);
    assert_eq!(&allow.topologies["pve1"], of);
    assert!(settings.warnings.is_empty(), "{:?}", settings.warnings);
}

#[test]
fn what_cannot_be_right_of_a_topology_is_said_where_it_stands() {
    for (from, to, said) in [
        (
            "gpu = \"1\"",
            "gpu = \"2\"",
            "devices.gpu = \"2\": expected numbers of the host's 2 NUMA nodes, which begin with 0",
        ),
        (
            "gpu = \"1\"",
            "gpu = \"\"",
            "devices.gpu = \"\": expected numbers of the host's 2 NUMA nodes",
        ),
        (
            "\"4-7\"]",
            "\"4-8\"]",
            "numa: names the CPUs 8, which cores does not",
        ),
        ("\"4-7\"]", "\"4-6\"]", "does not name the CPUs 7"),
        (
            "\"4-7\"]",
            "\"3-7\"]",
            "numa.1 = \"3-7\": the CPUs 3 are named twice",
        ),
        ("\"4-7\"]", "\"4-\"]", "expected CPUs such as"),
        (
            "[\"0-3\", \"4-7\"]",
            "[\"0-2,7\", \"3-6\"]",
            "so they are no core",
        ),
        ("numa = [\"0-3\", \"4-7\"]\n", "", "numa: is missing"),
        (
            "\"0-1\"\n",
            "\"8\"\n",
            "reserved = \"8\": the host has no CPUs 8",
        ),
        (
            "\"0-1\"\n",
            "\"0-1\"\ncaches = [\"0-3\"]\n",
            "does not name the CPUs 4-7",
        ),
        (
            ", \"32GiB\"",
            "",
            "expected one size for each of the 2 NUMA nodes",
        ),
        ("topology.pve1", "topology.\"pve 1\"", "the name of a host"),
    ] {
        assert!(TOPOLOGY.contains(from), "{from}");
        let text = with("cpu_pinning = true", &TOPOLOGY.replace(from, to));
        let said_all = messages(&text);
        assert!(said_all.contains(said), "{to}: {said_all}");
    }
}

#[test]
fn what_pve_would_not_let_be_or_start_is_an_error_of_the_file() {
    let token = "channel = \"token\"\nendpoints = [\"https://192.0.2.1:8006\"]\ntoken_id = \"a@pve!b\"\n\
         token_secret_file = \"/etc/secret\"\nca_file = \"/etc/ca\"";
    let on_token =
        |pool: &str| with(pool, TOPOLOGY).replace("[proxmox]", &format!("[proxmox]\n{token}"));
    let huge = |memory: &str| {
        let text = with("hugepages = \"1G\"", TOPOLOGY);
        let from = "memory = \"4GiB\"";
        assert!(text.contains(from), "{text}");
        text.replace(from, &format!("memory = \"{memory}\""))
    };
    for (text, said) in [
        (
            on_token("cpu_pinning = true"),
            "cpu_pinning = true: PVE lets only root@pam in person set that",
        ),
        (
            on_token("hugepages = \"any\""),
            "hugepages = \"any\": PVE lets only root@pam",
        ),
        (
            with("cpu_pinning = true", ""),
            "no host of the region default has a topology",
        ),
        (huge("4500MiB"), "is not whole pages of 1Gi"),
        (with("hugepages = \"4M\"", TOPOLOGY), "2M"),
        (
            with("hugepages = \"2M\"", TOPOLOGY)
                .replace("[template.debian]", "[template.debian]\nnuma = false"),
            "template.debian says numa = false",
        ),
    ] {
        let said_all = messages(&text);
        assert!(said_all.contains(said), "{said}: {said_all}");
    }
}

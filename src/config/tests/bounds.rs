//! Bounds so tight that nothing is ever done.

use super::{SMALL, parse};

fn warnings(text: &str) -> Vec<String> {
    parse(text, "test.toml")
        .unwrap_or_else(|errors| panic!("{errors}"))
        .warnings
}

#[test]
fn limits_below_every_instance_type_are_told() {
    for (line, said) in [
        (
            "max_cpu = 1",
            "limits.max_cpu = 1: no machine can be made, since the smallest instance type that a pool uses has 2 cores",
        ),
        (
            "max_memory = \"1GiB\"",
            "limits.max_memory = \"1GiB\": no machine can be made, since the smallest instance type that a pool uses has 4GiB",
        ),
    ] {
        let found = warnings(&format!("{SMALL}\n[limits]\n{line}\n"));
        assert_eq!(found, [said]);
    }
    let fitting = format!("{SMALL}\n[limits]\nmax_cpu = 2\nmax_memory = \"4GiB\"\n");
    assert!(warnings(&fitting).is_empty());
}

/// That machines of another pool can be made is no reason to say nothing of a pool that gets none.
#[test]
fn limits_below_every_instance_type_of_one_pool_are_told() {
    let large = "[instance_type.l]\ncores = 8\nmemory = \"32GiB\"\n\
        [pool.large]\ntemplate = \"debian\"\ninstance_types = [\"l\"]\nmax = 1\n";
    let with = |lines: &str| warnings(&format!("{SMALL}\n{large}[limits]\n{lines}\n"));
    assert_eq!(
        with("max_cpu = 7\nmax_memory = \"31GiB\""),
        [
            "limits.max_cpu = 7: no machine of the pool large can be made, since the smallest of its instance types has 8 cores",
            "limits.max_memory = \"31GiB\": no machine of the pool large can be made, since the smallest of its instance types has 32GiB",
        ]
    );
    assert!(with("max_cpu = 8\nmax_memory = \"32GiB\"").is_empty());
    assert_eq!(
        with("max_cpu = 1"),
        [
            "limits.max_cpu = 1: no machine can be made, since the smallest instance type that a pool uses has 2 cores"
        ]
    );
    // It is given up.
    let gone = large.replace("max = 1", "max = 0");
    let gone = warnings(&format!("{SMALL}\n{gone}[limits]\nmax_cpu = 7\n"));
    assert!(gone.is_empty(), "{gone:?}");
}

/// A host that runs has something of its memory and its CPUs in use.
#[test]
fn a_load_that_no_host_is_below_is_told() {
    let with = |line: &str| warnings(&SMALL.replace("max = 3", &format!("max = 3\n{line}")));
    for key in ["max_cpu_load", "max_memory_load"] {
        assert_eq!(
            with(&format!("{key} = 0")),
            [format!(
                "pool.small: {key} = 0 lets the pool make no machine, since each host that runs has some in use; a share such as 0.8 is meant"
            )]
        );
        assert!(with(&format!("{key} = 0.1")).is_empty());
    }
}

#[test]
fn times_in_which_nothing_can_be_done_are_told() {
    for (text, said) in [
        (
            "[scale_up]\nmax_node_provision_time = \"1s\"\n",
            "scale_up.max_node_provision_time = \"1s\": no machine is a working node within 1m",
        ),
        (
            "[scale_up]\nmax_view_age = \"35s\"\n",
            "scale_up.max_view_age = \"35s\": while nothing changes in Kubernetes",
        ),
        (
            "[scale_down]\nmax_view_age = \"35s\"\n",
            "no machine is removed for much of the time",
        ),
    ] {
        let found = warnings(&format!("{SMALL}\n{text}"));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(said), "{found:?}");
    }
    let fitting = "[scale_up]\nmax_node_provision_time = \"1m\"\nmax_view_age = \"100s\"\n";
    assert!(warnings(&format!("{SMALL}\n{fitting}")).is_empty());
}

#[test]
fn one_fingerprint_for_several_endpoints_is_told() {
    let print = ["AB"; 32].join(":");
    let region = |endpoints: &str, trust: &str| {
        SMALL.replace(
            "vmids = \"9000-9019\"",
            &format!(
                "vmids = \"9000-9019\"\nchannel = \"token\"\nendpoints = [{endpoints}]\ntoken_id = \"a@pve!b1\"\n\
                 token_secret_file = \"/etc/s\"\n{trust}"
            ),
        )
    };
    let two = "\"https://pve1:8006\", \"https://pve2:8006\"";
    let fingerprint = format!("fingerprint = \"{print}\"");
    let found = warnings(&region(two, &fingerprint));
    assert_eq!(found.len(), 1, "{found:?}");
    for words in ["proxmox.fingerprint: ", "names 2", "pve-root-ca.pem"] {
        assert!(found[0].contains(words), "{found:?}");
    }
    assert!(warnings(&region("\"https://pve1:8006\"", &fingerprint)).is_empty());
    assert!(warnings(&region(two, "ca_file = \"/etc/ca.pem\"")).is_empty());
}

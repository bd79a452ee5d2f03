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

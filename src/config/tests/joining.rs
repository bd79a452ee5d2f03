//! How machines become nodes: what a file may say of it.

use serde_json::json;

use super::{SMALL, messages, parse};
use crate::config::Settings;
use crate::config::settings::JoinMethod;

fn with(lines: &str) -> String {
    format!("{SMALL}\n{lines}")
}

fn settings(text: &str) -> Settings {
    parse(text, "test.toml").unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn texts_with_gaps_name_what_is_known_and_nothing_else() {
    let file = with(
        "[pool.small.labels]\nrack = \"r-{{ host }}\"\n[pool.small.annotations]\nnote = \"{{ vmid }} on {{ host }}\"\n\
         [pool.small.join]\nprovider_id = \"proxmox://{{ region }}/{{ vmid }}\"\n",
    );
    let pool = &settings(&file).pools["small"];
    assert_eq!(
        pool.join.provider_id.as_deref(),
        Some("proxmox://{{ region }}/{{ vmid }}")
    );
    assert_eq!(
        &*settings(&file).policy.pools["small"].labels["rack"],
        "r-{{ host }}"
    );
    for (lines, said) in [
        (
            "[pool.small.labels]\nrack = \"{{ hsot }}\"",
            "it names \"hsot\", which is not known here; known are host, instance_type",
        ),
        (
            "[pool.small.labels]\nrack = \"{{ host\"",
            "it cannot be filled in: syntax error",
        ),
        (
            "[pool.small.labels]\nrack = \"{{ host }}/1\"",
            "with host pve1 it comes to \"pve1/1\"",
        ),
        (
            "[instance_type.s.labels]\nrack = \"{{ nix }}\"",
            "instance_type.s.labels.rack",
        ),
        (
            "[pool.small.annotations]\nnote = \"{{ ip }}\"",
            "it names \"ip\"",
        ),
        (
            "[pool.small.join]\nprovider_id = \"proxmox://{{ region }}\"",
            "expected another id for each machine",
        ),
        (
            "[pool.small.join]\nprovider_id = \"{{ vmid }}\"",
            "expected a provider and an id",
        ),
        (
            "[pool.small.join]\nprovider_id = \"a://{{ uuid }}\"",
            "it names \"uuid\"",
        ),
        (
            "[pool.small.join]\nkubelet_args = { provider-id = \"a\" }",
            "use join.provider_id",
        ),
    ] {
        let said_of = messages(&with(lines));
        assert!(said_of.contains(said), "{lines}: {said_of}");
    }
}

/// A second card with addresses of its own.
const CARD: &str = "[[template.debian.nic]]\nbridge = \"vmbr1\"\nnetwork = \"storage\"\n\
    [network.storage]\nsubnet = \"192.0.2.0/24\"\nranges = [\"192.0.2.50-192.0.2.59\"]\n";

#[test]
fn arguments_of_the_kubelet_and_commands_name_a_machine_and_its_cards() {
    let two = |join: &str| with(&format!("{CARD}[pool.small.join]\n{join}"));
    let args = "node-ip = \"{{ nics[1].ips[0] }}\", root-dir = \"/var/lib/{{ pool }}/{{ zone }}/{{ host }}/{{ instance_type }}\", v = \"2\"";
    let file = two(&format!("kubelet_args = {{ {args} }}"));
    let join = &settings(&file).pools["small"].join;
    assert_eq!(join.kubelet_args["node-ip"], "{{ nics[1].ips[0] }}");
    for right in [
        "method = \"command\"\ncommand = \"join {{ ips[0] }} {{ addresses[0] }} {{ nics[1].mac }} {{ zone }} {{ labels }}\"",
        "kubelet_args = { node-ip = \"0.0.0.0\" }",
        "kubelet_args = { node-ip = \"::\" }",
        "kubelet_args = { feature-gates = \"A=true\" }",
    ] {
        assert_eq!(messages(&two(right)), "", "{right}");
    }
    let one = two("kubelet_args = { node-ip = \"192.0.2.5\" }").replace("max = 3", "max = 1");
    assert_eq!(messages(&one), "");
    for (value, said) in [
        (
            "{{ hsot }}",
            "it names \"hsot\", which is not known here; known are host, instance_type, machine, pool, region, vmid, addresses, ips, nics, zone",
        ),
        (
            "{{ endpoint }}",
            "it names \"endpoint\", which is not known",
        ),
        (
            "{{ nics[2].ips[0] }}",
            "for machines of pool small, which by this file have 2 network cards and 1 address known beforehand",
        ),
        (
            "{{ nics[0].ips[0] }}",
            "[[template.debian.nic]] means further cards",
        ),
        (
            "{{ addresses[0] }}",
            "it comes to \"192.0.2.50/24\", and `ips` are without a prefix",
        ),
        (
            "192.0.2.5",
            "every node would have the address 192.0.2.5, and pool small may have 3",
        ),
        ("{{ '192.0.2.5' }}", "every node would have the address"),
        ("eth1", "expected the node's address"),
        ("192.0.2.5,192.0.2.6", "or one of each family"),
    ] {
        let found = messages(&two(&format!("kubelet_args = {{ node-ip = {value:?} }}")));
        let at = "pool.small.join.kubelet_args.node-ip";
        assert!(
            found.contains(at) && found.contains(said),
            "{value}: {found}"
        );
    }
    // Without the card's network no address is known before the machine is there.
    let join = "[pool.small.join]\nmethod = \"command\"\ncommand = \"join {{ ips[0] }}\"";
    let found = messages(&with(join));
    let said = "which by this file have 1 network card and no address known beforehand";
    assert!(
        found.contains("pool.small.join.command") && found.contains(said),
        "{found}"
    );
}

/// The part of a KubeletConfiguration that the small file sets with these lines, and what is kept back by the model.
fn kubelet(lines: &str) -> (serde_json::Value, crate::model::policy::Reserved) {
    let settings = settings(&with(lines));
    let kubelet = settings.pools["small"].kubelet.clone();
    (
        kubelet.into(),
        settings.policy.pools["small"].reserved.clone(),
    )
}

#[test]
fn settings_of_the_kubelet_are_its_own_configuration_and_the_models() {
    let (none, plain) = kubelet("");
    assert_eq!(none, json!({}));
    let (made, reserved) = kubelet(
        "[pool.small.kubelet]\nkube_reserved = { cpu = \"300m\", memory = \"256MiB\", pid = 1000 }\nsystem_reserved = { cpu = 0.2 }\n\
         cpu_manager_policy = \"static\"\ntopology_manager_policy = \"single-numa-node\"\nswap = \"none\"\n\
         eviction_hard = { \"memory.available\" = \"200MiB\", \"nodefs.available\" = \"20%\" }\n\
         shutdown_grace_period = \"1m\"\nimage_gc_low_threshold_percent = 70\n",
    );
    assert_eq!(
        made,
        json!({
            "kubeReserved": {"cpu": "300m", "memory": "268435456", "pid": "1000"},
            "systemReserved": {"cpu": "200m"},
            "cpuManagerPolicy": "static",
            "topologyManagerPolicy": "single-numa-node",
            "failSwapOn": false,
            "memorySwap": {"swapBehavior": "NoSwap"},
            // Those that are not named stay: a list replaces the kubelet's.
            "evictionHard": {
                "memory.available": "209715200", "nodefs.available": "20%", "nodefs.inodesFree": "5%",
                "imagefs.available": "15%", "imagefs.inodesFree": "5%",
            },
            "shutdownGracePeriod": "60s",
            "imageGCLowThresholdPercent": 70,
        })
    );
    assert_eq!((reserved.cpu_milli, reserved.memory), (500, 256 << 20));
    assert_eq!(reserved.eviction_memory, 200 << 20);
    assert_eq!(reserved.disk_permille, plain.disk_permille + 100);
    let (_, reserved) =
        kubelet("[pool.small.kubelet.eviction_hard]\n\"memory.available\" = \"5%\"\n");
    assert_eq!(reserved.eviction_memory, 0);
    assert_eq!(
        reserved.kernel_memory_permille,
        plain.kernel_memory_permille + 50
    );
}

/// Settings of the kubelet, and what is said of them.
const WRONG: [(&str, &str); 20] = [
    (
        "cpu_manager_policy = \"static\"",
        "needs CPU that is kept for the system",
    ),
    (
        "cpu_manager_policy_options = { full-pcpus-only = \"true\" }",
        "are for cpu_manager_policy = \"static\"",
    ),
    (
        "image_gc_high_threshold_percent = 80",
        "the low threshold (80 %) must be below the high one (80 %)",
    ),
    (
        "image_gc_low_threshold_percent = 90",
        "the low threshold (90 %) must be below the high one (85 %)",
    ),
    (
        "shutdown_grace_period_critical_pods = \"10s\"",
        "is a part of shutdown_grace_period, which is 0s",
    ),
    (
        "shutdown_grace_period = \"10ms\"",
        "expected nothing or at least 1s",
    ),
    (
        "eviction_hard = { \"disk.available\" = \"5%\" }",
        "expected one of memory.available",
    ),
    (
        "eviction_hard = { \"memory.available\" = 5 }",
        "expected a size such as",
    ),
    (
        "eviction_hard = { \"memory.available\" = \"100%\" }",
        "a percentage below 100",
    ),
    (
        "eviction_hard = { \"pid.available\" = \"1GiB\" }",
        "a number for inodes and pids",
    ),
    (
        "eviction_soft = { \"memory.available\" = \"1GiB\" }",
        "needs eviction_soft_grace_period.\"memory.available\"",
    ),
    (
        "eviction_soft_grace_period = { \"memory.available\" = \"1m\" }",
        "there is no eviction_soft.\"memory.available\"",
    ),
    ("cluster_dns = [\"dns.example\"]", "expected an IP address"),
    (
        "cluster_dns = [\"10.0.0.1\", \"10.0.0.2\", \"10.0.0.3\", \"10.0.0.4\"]",
        "at most three",
    ),
    (
        "allowed_unsafe_sysctls = [\"vm.swappiness\"]",
        "expected a sysctl such as",
    ),
    (
        "kube_reserved = { cpu = \"2\" }",
        "nothing of the CPUs of instance type s is left",
    ),
    (
        "kube_reserved = { cpu = \"100m\" }\n[pool.small.reserved]\ncpu = \"200m\"",
        "the kubelet's settings say 100m; leave it out here",
    ),
    (
        "eviction_hard = { \"memory.available\" = \"1GiB\" }\n[pool.small.reserved]\neviction_memory = \"200MiB\"",
        "the kubelet's settings say 1GiB",
    ),
    (
        "swap = \"fail\"\n[pool.small.join]\nkubelet_args = { fail-swap-on = \"false\" }",
        "expected pool.small.kubelet.swap in its place",
    ),
    ("topology_manager_policy = \"strict\"", "single-numa-node"),
];

/// What a build switches off no pod gets, unless somebody says that there is some.
#[test]
fn swap_that_a_built_template_has_not_is_warned_of() {
    let warned = |swap: &str, template: &str| {
        let text = SMALL.replace("[template.debian]\nvmid = 8000\n", template);
        assert_ne!(text, SMALL);
        let kubelet = format!("{text}\n[pool.small.kubelet]\nswap = \"{swap}\"");
        let warnings = settings(&kubelet).warnings;
        let said = "pool.small.kubelet.swap = \"limited\": its machines have no swap";
        warnings.iter().any(|warning| warning.starts_with(said))
    };
    let built = "[template.debian.build]\nvmids = \"8900-8909\"\nvolume = \"local:import/debian-13.qcow2\"\n\
                 storage = \"tank\"\nkubernetes = \"1.34.1\"\n";
    assert!(warned("limited", built));
    assert!(!warned("none", built));
    assert!(!warned("limited", "[template.debian]\nvmid = 8001\n"));
    let commands =
        format!("{built}commands = [\"fallocate -l 1G /swapfile && mkswap /swapfile\"]\n");
    assert!(!warned("limited", &commands));
    assert!(!warned(
        "limited",
        &format!("{built}packages = [\"zram-tools\"]\n")
    ));
    let texts =
        |line: &str| format!("{built}[template.debian.cloud_init]\nstorage = \"local\"\n{line}\n");
    let of_cloud_init =
        "user_data = \"#cloud-config\\nswap: { filename: /swapfile, size: 1G }\\n\"";
    assert!(!warned("limited", &texts(of_cloud_init)));
    assert!(warned(
        "limited",
        &texts("user_data = \"#cloud-config\\npackages: [nano]\\n\"")
    ));
}

#[test]
fn settings_that_no_kubelet_would_start_with_are_errors() {
    for (lines, said) in WRONG {
        let said_of = messages(&with(&format!("[pool.small.kubelet]\n{lines}")));
        assert!(said_of.contains(said), "{lines}: {said_of}");
    }
    let wrong = messages(&SMALL.replace("max = 3", "max = 3\nmax_pods = 0"));
    assert!(wrong.contains("expected 1 to 1000"), "{wrong}");
    let settings = settings(&with(
        "[pool.small.kubelet]\nshutdown_grace_period = \"10m\"",
    ));
    assert!(
        settings
            .warnings
            .iter()
            .any(|warning| warning.contains("VMs are stopped after drain.shutdown_timeout"))
    );
}

/// Plans would not see what these keep, whether the key is set as well or not; an argument without a key is one.
#[test]
fn arguments_of_the_kubelet_that_have_a_key_are_errors() {
    let said = |arguments: &str| {
        let join = format!("[pool.small.join]\nkubelet_args = {{ {arguments} }}");
        messages(&with(&join))
    };
    for (argument, key) in [
        (
            "system-reserved = \"cpu=1,memory=2Gi\"",
            "kubelet.system_reserved",
        ),
        ("kube-reserved = \"cpu=1\"", "kubelet.kube_reserved"),
        (
            "cpu-manager-policy = \"static\"",
            "kubelet.cpu_manager_policy",
        ),
        (
            "eviction-hard = \"memory.available<1Gi\"",
            "kubelet.eviction_hard",
        ),
        ("max-pods = \"20\"", "max_pods"),
    ] {
        let said = said(argument);
        let name = argument.split(' ').next().unwrap_or_default();
        let place = format!("pool.small.join.kubelet_args.{name} = ");
        assert!(said.contains(&place), "{said}");
        let wanted = format!("expected pool.small.{key} in its place");
        assert!(said.contains(&wanted), "{said}");
    }
    let join = "[pool.small.join]\nkubelet_args = { cpu-cfs-quota = \"false\", v = \"2\" }";
    settings(&with(join));
}

#[test]
fn what_is_for_another_method_is_an_error() {
    let pool = |lines: &str| {
        settings(&with(&format!("[pool.small.join]\n{lines}"))).pools["small"].clone()
    };
    assert_eq!(pool("").join.method, JoinMethod::Kubeadm);
    assert_eq!(pool("method = \"rke2\"").join.method, JoinMethod::Rke2);
    let made = pool(
        "method = \"command\"\ncommand = \"a {{ machine }} {{ endpoint }} {{ labels }} {{ taints }} {{ provider_id }}\"",
    );
    assert!(matches!(
        made.join.method,
        JoinMethod::Command {
            secret_file: None,
            ..
        }
    ));
    for (lines, said) in [
        ("method = \"talos\"", "expected one of `kubeadm`"),
        (
            "method = \"k3s\"\ncri_socket = \"unix:///a\"",
            "is for method = \"kubeadm\"",
        ),
        (
            "method = \"k3s\"\nignore_preflight_errors = [\"Swap\"]",
            "is for method = \"kubeadm\"",
        ),
        ("command = \"a\"", "is for method = \"command\""),
        ("secret_file = \"/a\"", "is for method = \"command\""),
        ("method = \"command\"", "pool.small.join.command"),
        (
            "method = \"command\"\ncommand = \"a {{ token }}\"",
            "it names \"token\", which is not known here; known are host",
        ),
        (
            "method = \"command\"\ncommand = \"a\"\nsecret_file = \"a\"",
            "expected an absolute path",
        ),
    ] {
        let said_of = messages(&with(&format!("[pool.small.join]\n{lines}")));
        assert!(said_of.contains(said), "{lines}: {said_of}");
    }
}

//! What machines are when they become nodes: labels and ids that name their host, a cloud controller beside us.

use std::time::Duration;

use pve_autoscaler::model::region::Step;
use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::kube::{Distribution, KubeSpec};
use pve_autoscaler::sim::pve::{AdminAct, PveSpec};
use pve_autoscaler::sim::workload::{Workload, WorkloadPods};
use pve_autoscaler::sim::world::WorldSpec;
use serde_json::{Value, json};

use crate::HASTY;
use crate::common::{Scene, simulate};
use crate::hosts::{act, made, on};

/// The configuration with more lines for the pool.
pub(crate) fn pool(lines: &str) -> String {
    HASTY.replace("min = 0\n", &format!("min = 0\n{lines}"))
}

/// The configuration with a table of the pool.
pub(crate) fn table(name: &str, lines: &str) -> String {
    HASTY.replace(
        "[scale_up]",
        &format!("[pool.general.{name}]\n{lines}[scale_up]"),
    )
}

/// The one node there is.
pub(crate) fn node(scene: &Scene) -> Value {
    let nodes = scene.world.kube.objects("v1", "Node");
    assert_eq!(nodes.len(), 1, "{nodes:?}");
    Value::clone(&nodes[0])
}

/// No pods but those of the test itself.
pub(crate) fn nothing() -> Workload {
    Workload::visit("none", 0, WorkloadPods::of("1", "1Gi"), Span::minutes(1))
}

/// A pod that wants a node with this label.
async fn choosy(scene: &Scene, key: &str, value: &str) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "choosy", "namespace": "default"},
        "spec": {
            "nodeSelector": {key: value},
            "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}],
        },
    });
    let post = http::Request::post("/api/v1/namespaces/default/pods");
    crate::call(scene, post, pod.to_string()).await;
}

const LABELLED: &str = "labels = { rack = \"rack-of-{{ host }}\", slot = \"{{ vmid }}\" }\n\
                        annotations = { \"example.org/console\" = \"{{ region }}/{{ host }}/{{ vmid }}: {{ machine }}\" }\n";

/// The plan knows the labels of each host: the pod gets its machine there, and finds what it was promised. They
/// follow the VM to another host.
#[test]
fn labels_that_name_the_host_choose_it_and_follow_the_vm() {
    simulate(async {
        let file = pool(LABELLED).replace(
            "[scale_up]",
            "[pool.general.join]\nprovider_id = \"proxmox://{{ region }}/{{ vmid }}\"\n[scale_up]",
        );
        let scene = Scene::new(5, &file, GuestSpec::default());
        choosy(&scene, "rack", "rack-of-pve2").await;
        let mut before = Value::Null;
        let acts = async {
            tokio::time::sleep(Duration::from_mins(4)).await;
            before = node(&scene);
            let host = "pve3".to_owned();
            act(&scene, &AdminAct::Migrate { vmid: 9100, host });
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = scene.live(None, 0, nothing(), Duration::from_mins(6)) => {}
            () = acts => {}
        }
        let labels = &before["metadata"]["labels"];
        assert_eq!(
            (&labels["rack"], &labels["slot"]),
            (&json!("rack-of-pve2"), &json!("9100"))
        );
        assert_eq!(before["spec"]["providerID"], "proxmox://default/9100");
        let name = before["metadata"]["name"].as_str().expect("a name");
        assert_eq!(
            before["metadata"]["annotations"]["example.org/console"],
            json!(format!("default/pve2/9100: {name}"))
        );
        let after = node(&scene);
        assert_eq!(after["metadata"]["labels"]["rack"], "rack-of-pve3");
        assert_eq!(after["metadata"]["labels"]["slot"], "9100");
        assert_eq!(
            after["metadata"]["annotations"]["example.org/console"],
            json!(format!("default/pve3/9100: {name}"))
        );
        assert_eq!(made(&scene), on([("pve3", 1)]));
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// No host has this rack: no machine is made for the pod.
#[test]
fn a_label_that_no_host_gives_makes_no_machine() {
    simulate(async {
        let scene = Scene::new(5, &pool(LABELLED), GuestSpec::default());
        choosy(&scene, "rack", "rack-of-pve9").await;
        scene.live(None, 0, nothing(), Duration::from_mins(3)).await;
        assert_eq!(scene.machines_made(), 0);
    });
}

/// The node's cloud taint goes after a while, as a cloud controller manager takes it, which writes its own idea of the
/// node, too.
async fn cloud_controller(scene: &Scene, after: Duration) {
    tokio::time::sleep(after).await;
    let node = node(scene);
    let name = node["metadata"]["name"].as_str().expect("a name");
    let taints = node["spec"]["taints"].as_array().cloned();
    let left: Vec<Value> = taints
        .unwrap_or_default()
        .into_iter()
        .filter(|taint| taint["key"] != "node.cloudprovider.kubernetes.io/uninitialized")
        .collect();
    let change = json!({
        "metadata": {"labels": {"node.kubernetes.io/instance-type": "2VCPU-4GB"}},
        "spec": {"taints": left, "providerID": "proxmox://cluster-1/9100"},
    });
    let patch = http::Request::patch(format!("/api/v1/nodes/{name}"))
        .header("content-type", "application/merge-patch+json");
    crate::patch(scene, patch, change.to_string()).await;
}

/// A cloud controller initialises our nodes: the machine counts as coming until then, its pods make no second one, and
/// what the controller wrote stays.
#[test]
fn a_cloud_controller_is_waited_for_and_not_fought_with() {
    simulate(async {
        let args = "kubelet_args = { cloud-provider = \"external\" }\n";
        let scene = Scene::new(5, &table("join", args), GuestSpec::default());
        let mut step = None;
        let controller = async {
            tokio::time::sleep(Duration::from_secs(150)).await;
            let turn = scene.world.turns.borrow().clone().expect("a turn");
            step = turn
                .snapshot
                .machines
                .values()
                .next()
                .and_then(|machine| machine.step);
            cloud_controller(&scene, Duration::from_secs(30)).await;
            std::future::pending::<()>().await;
        };
        let web = Workload::visit(
            "web",
            2,
            WorkloadPods::of("500m", "1Gi"),
            Span::minutes(120),
        );
        tokio::select! {
            biased;
            () = scene.live(None, 0, web, Duration::from_mins(8)) => {}
            () = controller => {}
        }
        assert_eq!(step.map(|(step, _)| step), Some(Step::Initialize));
        assert_eq!(scene.machines_made(), 1, "a second one for the same pods");
        let node = node(&scene);
        assert_eq!(node["spec"]["providerID"], "proxmox://cluster-1/9100");
        assert_eq!(
            node["metadata"]["labels"]["node.kubernetes.io/instance-type"],
            "2VCPU-4GB"
        );
        let taints = node["spec"]["taints"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        assert!(taints.is_empty(), "{taints:?}");
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

const KUBELET: &str = "cpu_manager_policy = \"static\"\nkube_reserved = { cpu = \"300m\", memory = \"256MiB\" }\n\
                       system_reserved = { cpu = \"200m\" }\neviction_hard = { \"memory.available\" = \"10%\" }\n";

/// What the pool keeps back is kept on the node, and planned with: two pods that two cores would hold need two machines.
#[test]
fn settings_of_the_kubelet_reach_it_and_are_planned_with() {
    simulate(async {
        let file = table("kubelet", KUBELET).replace("min = 0\n", "min = 0\nmax_pods = 3\n");
        let scene = Scene::new(5, &file, GuestSpec::default());
        let web = Workload::visit(
            "web",
            2,
            WorkloadPods::of("900m", "1Gi"),
            Span::minutes(120),
        );
        scene.live(None, 0, web, Duration::from_mins(5)).await;
        assert_eq!(scene.machines_made(), 2);
        for node in scene.world.kube.objects("v1", "Node") {
            let of = &node["status"]["allocatable"];
            assert_eq!((&of["cpu"], &of["pods"]), (&json!("1500m"), &json!("3")));
            let shown = node["status"]["capacity"]["memory"]
                .as_str()
                .and_then(|m| m.strip_suffix("Ki"));
            let shown: u64 = shown.expect("KiB").parse().expect("a number");
            let left = shown - shown / 10 - 256 * 1024;
            let memory = of["memory"].as_str().and_then(|m| m.strip_suffix("Ki"));
            let memory: u64 = memory.expect("KiB").parse().expect("a number");
            assert!(memory.abs_diff(left) <= 1, "{memory} of {shown}");
        }
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// Every other setting of the kubelet that the file has, each once.
const EVERY_SETTING: &str = r#"
kube_reserved = { cpu = "300m" }
cpu_manager_policy = "static"
cpu_manager_policy_options = { full-pcpus-only = "true" }
topology_manager_policy = "restricted"
topology_manager_scope = "pod"
eviction_soft = { "memory.available" = "300MiB" }
eviction_soft_grace_period = { "memory.available" = "90s" }
eviction_max_pod_grace_period = "60s"
swap = "limited"
cluster_dns = ["10.96.0.10", "10.96.0.11"]
image_gc_high_threshold_percent = 80
image_gc_low_threshold_percent = 70
shutdown_grace_period = "60s"
shutdown_grace_period_critical_pods = "20s"
allowed_unsafe_sysctls = ["net.core.somaxconn", "net.ipv4.*"]
"#;

#[test]
fn every_setting_of_the_kubelet_is_in_the_configuration_that_it_starts_with() {
    simulate(async {
        let file = table("kubelet", EVERY_SETTING);
        let scene = Scene::new(5, &file, GuestSpec::default());
        let web = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(120));
        scene.live(None, 0, web, Duration::from_mins(4)).await;
        assert_eq!(
            scene.world.guests.kubelet_of(9100),
            Some(json!({
                "kubeReserved": {"cpu": "300m"},
                "cpuManagerPolicy": "static",
                "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
                "topologyManagerPolicy": "restricted",
                "topologyManagerScope": "pod",
                "evictionSoft": {"memory.available": "314572800"},
                "evictionSoftGracePeriod": {"memory.available": "90s"},
                "evictionMaxPodGracePeriod": 60,
                "failSwapOn": false,
                "memorySwap": {"swapBehavior": "LimitedSwap"},
                "clusterDNS": ["10.96.0.10", "10.96.0.11"],
                "imageGCHighThresholdPercent": 80,
                "imageGCLowThresholdPercent": 70,
                "shutdownGracePeriod": "60s",
                "shutdownGracePeriodCriticalPods": "20s",
                "allowedUnsafeSysctls": ["net.core.somaxconn", "net.ipv4.*"],
            }))
        );
        drop(node(&scene));
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// Three pods a node: seven small ones need three machines.
#[test]
fn max_pods_are_told_to_the_kubelet() {
    simulate(async {
        let scene = Scene::new(5, &pool("max_pods = 3\n"), GuestSpec::default());
        let web = Workload::visit(
            "web",
            7,
            WorkloadPods::of("10m", "16Mi"),
            Span::minutes(120),
        );
        scene.live(None, 0, web, Duration::from_mins(5)).await;
        assert_eq!(scene.machines_made(), 3);
        let nodes = scene.world.kube.objects("v1", "Node");
        assert!(
            nodes
                .iter()
                .all(|node| node["status"]["allocatable"]["pods"] == "3")
        );
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// A kubeadm that cannot patch the kubelet's configuration: the machine fails and says why.
#[test]
fn an_old_kubeadm_says_that_it_takes_no_settings_of_the_kubelet() {
    simulate(async {
        let guests = GuestSpec {
            kubeadm: "v1.24.17".to_owned(),
            ..GuestSpec::default()
        };
        let scene = Scene::new(5, &pool("max_pods = 30\n"), guests);
        let web = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(120));
        scene.live(None, 0, web, Duration::from_mins(4)).await;
        let told = crate::events(&scene).await;
        crate::expect_told(
            &told,
            &[(
                "ConfigMap FailedToScaleUpGroup: ",
                "kubeadm v1.24.17 does not take settings of the kubelet",
            )],
        );
    });
}

/// A world of k3s or RKE2: its guests have the agent, and no kubeadm.
fn agents(distribution: Distribution, file: &str) -> Scene {
    let k3s = distribution == Distribution::K3s;
    let version = |yes: bool, text: &str| if yes { text.to_owned() } else { String::new() };
    Scene::of(WorldSpec {
        seed: 5,
        pve: PveSpec::default(),
        kube: KubeSpec {
            distribution,
            ..KubeSpec::default()
        },
        guests: GuestSpec {
            kubeadm: String::new(),
            k3s: version(k3s, "v1.34.1+k3s1"),
            rke2: version(!k3s, "v1.34.1+rke2r1"),
            ..GuestSpec::default()
        },
        config: file.to_owned(),
    })
}

/// What PVE was asked to run, and what the cluster's Secrets are in the end.
fn secrets(scene: &Scene) -> usize {
    scene.world.kube.objects("v1", "Secret").len()
}

#[test]
fn agents_of_k3s_and_rke2_join_with_a_token_of_their_own() {
    for (distribution, method) in [(Distribution::K3s, "k3s"), (Distribution::Rke2, "rke2")] {
        simulate(async {
            let lines = format!(
                "method = \"{method}\"\nprovider_id = \"proxmox://home/{{{{ vmid }}}}\"\n[pool.general.labels]\nrack = \"rack-of-{{{{ host }}}}\"\n\
                 [pool.general.kubelet]\nkube_reserved = {{ cpu = \"250m\" }}\n"
            );
            let scene = agents(distribution, &table("join", &lines));
            let web = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(120));
            scene.live(None, 0, web, Duration::from_mins(5)).await;
            let node = node(&scene);
            assert_eq!(node["spec"]["providerID"], "proxmox://home/9100");
            assert_eq!(
                node["metadata"]["labels"]["pve-autoscaler.io/pool"],
                "general"
            );
            assert_eq!(node["status"]["allocatable"]["cpu"], "1750m");
            let rack = node["metadata"]["labels"]["rack"]
                .as_str()
                .unwrap_or_default();
            assert!(rack.starts_with("rack-of-pve"), "{rack}");
            let pods = scene.world.kube.objects("v1", "Pod");
            assert!(
                pods.iter().all(|pod| pod["status"]["phase"] == "Running"),
                "{pods:?}"
            );
            assert_eq!(
                secrets(&scene),
                0,
                "the token goes when the machine has joined"
            );
            assert_eq!(scene.machines_made(), 1);
            assert_eq!(scene.findings(), Vec::<String>::new());
        });
    }
}

#[test]
fn a_template_without_the_agent_says_so() {
    simulate(async {
        let scene = Scene::new(
            5,
            &table("join", "method = \"k3s\"\n"),
            GuestSpec::default(),
        );
        let web = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(120));
        scene.live(None, 0, web, Duration::from_mins(4)).await;
        let told = crate::events(&scene).await;
        let wanted = [(
            "ConfigMap FailedToScaleUpGroup: ",
            "the guest has no k3s; install it in the template",
        )];
        crate::expect_told(&told, &wanted);
    });
}

const COMMAND: &str = "method = \"command\"\ncommand = \"sim-agent --name {{ machine }} --labels {{ labels }} --taints {{ taints }} --provider-id proxmox://{{ region }}/{{ vmid }}\"\n";

#[test]
fn a_command_joins_with_the_machines_token() {
    simulate(async {
        let scene = Scene::new(5, &table("join", COMMAND), GuestSpec::default());
        let web = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(120));
        scene.live(None, 0, web, Duration::from_mins(5)).await;
        let node = node(&scene);
        assert_eq!(node["spec"]["providerID"], "proxmox://default/9100");
        assert_eq!(
            node["metadata"]["labels"]["pve-autoscaler.io/pool"],
            "general"
        );
        assert_eq!(secrets(&scene), 0);
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// A secret that is refused is in what the command says, and in nothing that is told of it.
#[test]
fn a_secret_of_a_file_is_shown_nowhere() {
    simulate(async {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("secret");
        std::fs::write(&path, "hush-hush-hush\n").expect("written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o640);
        std::fs::set_permissions(&path, mode).expect("changed");
        let lines = format!("{COMMAND}secret_file = {:?}\n", path.display().to_string());
        let scene = Scene::new(5, &table("join", &lines), GuestSpec::default());
        let web = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(120));
        scene.live(None, 0, web, Duration::from_mins(4)).await;
        let told = crate::events(&scene).await;
        let wanted = [(
            "ConfigMap FailedToScaleUpGroup: ",
            "the join command failed with code 1: error: <redacted> was refused",
        )];
        crate::expect_told(&told, &wanted);
        assert!(
            !told.iter().any(|event| event.contains("hush-hush")),
            "{told:#?}"
        );
        let arguments = format!("{:?}", scene.world.pve.requests());
        assert!(!arguments.contains("hush-hush"), "it went as an argument");
    });
}

/// Machines have two cards, with an address of a range on each.
pub(crate) const CARDS: &str = "[[template.debian.nic]]\nbridge = \"vmbr1\"\nnetwork = \"cluster\"\n\
    [network.cluster]\nsubnet = \"198.51.100.0/24\"\nranges = [\"198.51.100.20-198.51.100.29\"]\n\
    [network.lan]\nsubnet = \"192.0.2.0/24\"\nranges = [\"192.0.2.50-192.0.2.59\"]\ngateway = \"192.0.2.1\"\n[instance_type.small]";

/// Hosts with the second card's bridge.
pub(crate) fn two_bridges() -> PveSpec {
    let mut pve = PveSpec::default();
    for host in &mut pve.hosts {
        host.bridges.push("vmbr1".to_owned());
    }
    pve
}

/// The addresses by which a node is reached.
pub(crate) fn internal_addresses(node: &Value) -> Vec<String> {
    let all = node["status"]["addresses"].as_array();
    let internal = all.into_iter().flatten();
    let internal = internal.filter(|one| one["type"] == "InternalIP");
    internal
        .filter_map(|one| one["address"].as_str().map(str::to_owned))
        .collect()
}

/// The second card's address is the node's, by each way to join: as an argument of the kubelet, as the agent's own option, and in a command.
#[test]
fn a_gap_says_which_cards_address_is_the_nodes() {
    let argument = "kubelet_args = { node-ip = \"{{ nics[1].ips[0] }}\" }\n";
    let agent = format!("method = \"k3s\"\n{argument}");
    let command = COMMAND.replace("--name", "--node-ip {{ nics[1].ips[0] }} --name");
    assert_ne!(command, COMMAND);
    for (distribution, join) in [
        (Distribution::Kubeadm, argument),
        (Distribution::K3s, agent.as_str()),
        (Distribution::Kubeadm, command.as_str()),
    ] {
        simulate(async {
            let k3s = distribution == Distribution::K3s;
            let guests = GuestSpec {
                k3s: if k3s { "v1.34.1+k3s1" } else { "" }.to_owned(),
                ..GuestSpec::default()
            };
            let config = table("join", join)
                .replace("[instance_type.small]", CARDS)
                .replace("max = 3", "max = 3\nnetwork = \"lan\"");
            let scene = Scene::of(WorldSpec {
                seed: 5,
                pve: two_bridges(),
                kube: KubeSpec {
                    distribution,
                    ..KubeSpec::default()
                },
                guests,
                config,
            });
            let web = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::minutes(120));
            scene.live(None, 0, web, Duration::from_mins(5)).await;
            let node = node(&scene);
            assert_eq!(internal_addresses(&node), ["198.51.100.20"], "{join}");
            let vms = scene.world.pve.vms();
            let machine = vms.iter().find(|vm| vm.vmid == 9100).expect("a machine");
            assert_eq!(machine.config["ipconfig1"], "ip=198.51.100.20/24");
            assert_eq!(scene.machines_made(), 1);
            assert_eq!(scene.findings(), Vec::<String>::new());
        });
    }
}

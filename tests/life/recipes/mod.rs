//! The recipes of the pages, carried out: each whole file is the configuration of a daemon whose cluster is as the page says, and the
//! machines are what the page promises.

mod clusters;
mod hosts;
mod joins;
mod pools;
mod templates;

use std::collections::BTreeMap;

use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::kube::KubeSpec;
use pve_autoscaler::sim::pve::{MachineSpec, PveSpec, VmFacts};
use pve_autoscaler::sim::workload::{Act, Workload, WorkloadKind, WorkloadPods, WorkloadStep};
use pve_autoscaler::sim::world::WorldSpec;
use serde_json::{Value, json};

use crate::common::Scene;
use crate::waiting::until;

/// Pages with whole files, by name.
const PAGES: [(&str, &str); 4] = [
    ("recipes", include_str!("../../../docs/recipes.md")),
    ("hosts", include_str!("../../../docs/hosts.md")),
    ("moving", include_str!("../../../docs/moving.md")),
    ("regions", include_str!("../../../docs/regions.md")),
];

/// The whole files of the pages, by page and heading: each has a test that carries it out.
const CARRIED_OUT: [(&str, &str); 20] = [
    ("hosts", "A host that is used for other things too"),
    (
        "hosts",
        "A network card of its own kind, and weight where CPUs are short",
    ),
    ("hosts", "A pool of graphics cards"),
    ("hosts", "Hosts that sleep at night"),
    ("hosts", "Six unequal hosts"),
    ("moving", "From kproximate"),
    ("recipes", "Booted from the network, without a template"),
    ("recipes", "First node"),
    ("recipes", "GPU pool"),
    ("recipes", "High availability"),
    ("recipes", "Moving from cluster-autoscaler"),
    ("recipes", "Pinned low-latency pool"),
    ("recipes", "Several pools"),
    ("recipes", "Six hosts with local ZFS"),
    ("recipes", "Static addresses in a VLAN"),
    ("recipes", "Talos"),
    ("recipes", "Two PVE clusters"),
    ("recipes", "Upgrades"),
    ("recipes", "k3s"),
    ("regions", "Recipe: two clusters"),
];

/// Every whole file of a page, with the heading that it stands under.
fn whole_files(page: &'static str) -> Vec<(&'static str, &'static str)> {
    let mut files = Vec::new();
    let mut heading = "";
    let mut rest = page;
    while let Some((line, after)) = rest.split_once('\n') {
        if let Some(text) = line.strip_prefix("## ").or(line.strip_prefix("### ")) {
            heading = text;
        }
        rest = after;
        if line.starts_with("```") {
            let (block, after) = after.split_once("\n```\n").expect("the block ends");
            if line == "```toml" && block.starts_with("version = 1\n") {
                files.push((heading, block));
            }
            rest = after;
        }
    }
    files
}

/// The whole file under a heading of a page, and what the page tells to type there.
fn recipe(page: &str, heading: &str) -> &'static str {
    assert!(
        CARRIED_OUT.contains(&(page, heading)),
        "{page}: {heading} is missing in the list"
    );
    let (_, text) = PAGES.iter().find(|of| of.0 == page).expect("a page");
    let files = whole_files(text);
    let found = files.iter().find(|of| of.0 == heading);
    found.expect("a whole file").1
}

/// A recipe that nobody carries out is found here, and one that is none any more.
#[test]
fn each_whole_file_of_the_pages_is_carried_out() {
    let mut found: Vec<(&str, &str)> = PAGES
        .iter()
        .flat_map(|(page, text)| whole_files(text).into_iter().map(|of| (*page, of.0)))
        .collect();
    found.sort_unstable();
    assert_eq!(found, CARRIED_OUT);
}

/// A world that runs a recipe's file: PVE as it is by default, without its templates.
fn world(page: &str, heading: &str) -> WorldSpec {
    world_of(recipe(page, heading).to_owned())
}

/// A world that runs this file.
fn world_of(config: String) -> WorldSpec {
    let mut pve = PveSpec::default();
    pve.machines.retain(|machine| !machine.template);
    WorldSpec {
        seed: 5,
        pve,
        kube: KubeSpec::default(),
        guests: GuestSpec::default(),
        config,
    }
}

/// Adds a template.
fn template<'p>(
    pve: &'p mut PveSpec,
    vmid: u32,
    name: &str,
    host: &str,
    storage: &str,
) -> &'p mut MachineSpec {
    let machines = PveSpec::default().machines;
    let mut template = machines
        .into_iter()
        .find(|machine| machine.template)
        .expect("the default one");
    template.vmid = vmid;
    host.clone_into(&mut template.host);
    storage.clone_into(&mut template.storage);
    template.config.insert("name".to_owned(), name.to_owned());
    pve.machines.push(template);
    pve.machines.last_mut().expect("just added")
}

/// The machines, by VMID: VMs with the daemon's mark that are on.
fn machines(scene: &Scene) -> BTreeMap<u32, VmFacts> {
    marked(scene.world.pve.vms())
}

fn marked(vms: Vec<VmFacts>) -> BTreeMap<u32, VmFacts> {
    let ours = vms
        .into_iter()
        .filter(|vm| vm.description.contains("pve-autoscaler:v1 "));
    ours.map(|vm| (vm.vmid, vm)).collect()
}

/// How many machines are on which host.
fn by_host(scene: &Scene) -> BTreeMap<String, usize> {
    let mut hosts = BTreeMap::new();
    for (_, vm) in machines(scene) {
        *hosts.entry(vm.host).or_default() += 1;
    }
    hosts
}

/// The nodes of a pool that are Ready and take pods.
fn nodes(scene: &Scene, pool: &str) -> Vec<Value> {
    let nodes = scene.world.kube.objects("v1", "Node");
    let ready = |node: &Value| {
        let conditions = node["status"]["conditions"].as_array();
        conditions.is_some_and(|all| {
            all.iter()
                .any(|one| one["type"] == "Ready" && one["status"] == "True")
        })
    };
    let starting = |node: &Value| {
        let taints = node["spec"]["taints"].as_array();
        taints.is_some_and(|all| {
            all.iter()
                .any(|taint| taint["key"] == "pve-autoscaler.io/uninitialized")
        })
    };
    let of_pool = nodes.iter().filter(|node| {
        node["metadata"]["labels"]["pve-autoscaler.io/pool"] == pool
            && ready(node)
            && !starting(node)
    });
    of_pool.map(|node| Value::clone(node)).collect()
}

/// The nodes' names on which pods of a Deployment run, one for each pod.
fn places(scene: &Scene, app: &str) -> Vec<String> {
    let pods = scene.world.kube.objects("v1", "Pod");
    let running = pods.iter().filter(|pod| {
        pod["metadata"]["labels"]["app"] == app && pod["status"]["phase"] == "Running"
    });
    let names = running.filter_map(|pod| pod["spec"]["nodeName"].as_str());
    names.map(str::to_owned).collect()
}

/// Pods with these requests that tolerate a pool's taint and want its label, where it has one.
fn pods_for(requests: &Value, taint: &str, label: Option<(&str, &str)>) -> WorkloadPods {
    let selector: BTreeMap<&str, &str> = label.into_iter().collect();
    WorkloadPods {
        template: json!({ "spec": {
            "nodeSelector": selector,
            "tolerations": [{ "key": taint, "operator": "Exists" }],
            "containers": [{
                "name": "main", "image": "registry.k8s.io/pause:3.10",
                "resources": { "requests": requests, "limits": extended(requests) },
            }],
        } }),
        ..WorkloadPods::default()
    }
}

/// The requests of extended resources, such as a device: Kubernetes wants a limit that equals each.
fn extended(requests: &Value) -> Value {
    let all = requests.as_object().expect("a map").iter();
    all.filter(|(name, _)| name.contains('/'))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// Pods that come, and go after so many minutes.
fn visit(count: u32, pods: WorkloadPods, minutes: i64) -> Workload {
    Workload::visit("web", count, pods, Span::minutes(minutes))
}

/// All machines go within so many minutes, and what is noted of them.
async fn until_none_is_left(scene: &Scene, minutes: u32) {
    until(scene, "all machines are gone", minutes, || {
        scene.left().is_empty()
    })
    .await;
}

/// A Deployment that comes at a minute, and goes at another one.
fn deployment(name: &str, count: u32, pods: WorkloadPods, minutes: [i64; 2]) -> [WorkloadStep; 2] {
    let name = name.to_owned();
    let deploy = Act::Deploy {
        name: name.clone(),
        replicas: count,
        pods,
    };
    let delete = Act::Delete {
        kind: WorkloadKind::Deployment,
        name,
    };
    let [come, go] = minutes.map(Span::minutes);
    [(come, deploy), (go, delete)].map(|(at, act)| WorkloadStep { at, act })
}

//! Templates that were built: on each host with storage of its own, and anew for an upgrade.

use std::collections::BTreeSet;
use std::time::Duration;

use pve_autoscaler::controller::template_mark::{BuildStage, TemplateMark, definition};
use pve_autoscaler::sim::pve::{
    AdminAct, GIB, HostSpec, MachineSpec, PveSpec, StorageKind, StorageSpec,
};
use pve_autoscaler::sim::workload::WorkloadPods;
use serde_json::Value;

use super::{by_host, machines, nodes, places, recipe, template, until_none_is_left, visit, world};
use crate::common::{Scene, simulate};
use crate::hosts::act;
use crate::waiting::{until, while_it_lives};

/// The name that a built template has.
const BUILT: &str = "pve-autoscaler-debian";

/// Hosts of these names, alike, and a storage for disks.
pub(super) fn hosts(pve: &mut PveSpec, names: &[&str], storage: StorageSpec) {
    let first = pve.hosts[0].clone();
    pve.hosts = (1..)
        .zip(names)
        .map(|(number, name)| HostSpec {
            name: (*name).to_owned(),
            address: format!("192.0.2.{}", 100 + number),
            ..first.clone()
        })
        .collect();
    for machine in &mut pve.machines {
        names[0].clone_into(&mut machine.host);
    }
    pve.storages.push(storage);
}

/// A storage for disks.
pub(super) fn storage(name: &str, kind: StorageKind, shared: bool) -> StorageSpec {
    StorageSpec {
        name: name.to_owned(),
        kind,
        shared,
        total: 1_000 * GIB,
        used: 0,
        kept: 0,
        content: "images,rootdir".to_owned(),
        hosts: None,
        active: true,
        sparse: true,
        volumes_in: None,
        files: None,
    }
}

/// Each clone is linked to the template on its own host; the sixth host gets none.
#[test]
fn six_hosts_have_each_a_template_on_their_zfs() {
    simulate(async {
        let mut spec = world("recipes", "Six hosts with local ZFS");
        let names = ["pve1", "pve2", "pve3", "pve4", "pve5", "pve6"];
        let zfs = storage("local-zfs", StorageKind::ZfsPool, false);
        hosts(&mut spec.pve, &names, zfs);
        for (vmid, host) in (8000..).zip(&names[..5]) {
            template(&mut spec.pve, vmid, BUILT, host, "local-zfs");
        }
        let scene = Scene::of(spec);
        let looks = async {
            until(&scene, "all run", 10, || places(&scene, "web").len() == 12).await;
            let hosts = by_host(&scene);
            assert_eq!(hosts.values().sum::<usize>(), 12);
            assert!(!hosts.contains_key("pve6"), "{hosts:?}");
            assert_eq!(hosts.len(), 5, "{hosts:?}");
            for vm in machines(&scene).values() {
                let number: u32 = vm.host["pve".len()..].parse().expect("a number");
                let base = format!("local-zfs:base-{}-disk", 7999 + number);
                let disk = &vm.config["scsi0"];
                assert!(disk.starts_with(&base), "{} has {disk}", vm.host);
                assert!(disk.contains("size=40G"), "{disk}");
            }
            until_none_is_left(&scene, 60).await;
        };
        while_it_lives(&scene, visit(12, WorkloadPods::of("3", "4Gi"), 12), looks).await;
        scene.nothing_is_left();
    });
}

/// What `template build` writes on a template that it built of the recipe's definition with this Kubernetes.
fn built(template: &mut MachineSpec, kubernetes: &str) {
    let now = recipe("recipes", "Upgrades");
    assert!(now.contains("kubernetes = \"1.35\""));
    let file = now.replace("\"1.35\"", &format!("\"{kubernetes}\""));
    let settings = pve_autoscaler::config::parse(&file, "file").expect("it is valid");
    let build = settings.templates["debian"].build.as_deref();
    let mark = TemplateMark {
        template: "debian".to_owned(),
        cluster: "default".to_owned(),
        vmid: template.vmid,
        definition: definition(build.expect("it is built")),
        stage: BuildStage::Ready,
        by: "pve1/1".to_owned(),
        machine: None,
        begun: 1_764_000_000,
        unknown: [].into(),
    };
    let description = mark.describe();
    template
        .config
        .insert("description".to_owned(), description);
}

/// The file has a new Kubernetes, the template is not built anew yet: that is told, and no node is replaced. Then it is built
/// beside the old one, which changes its name, and the nodes are replaced one after the other. Two nodes are there whatever happens.
#[test]
fn a_pool_gets_a_new_kubernetes() {
    simulate(async {
        let mut spec = world("recipes", "Upgrades");
        let shared = storage("ceph", StorageKind::Nfs, true);
        hosts(&mut spec.pve, &["pve1", "pve2", "pve3"], shared);
        built(template(&mut spec.pve, 8000, BUILT, "pve1", "ceph"), "1.34");
        let scene = Scene::of(spec);
        let names = || -> BTreeSet<String> {
            let all = nodes(&scene, "workers").into_iter();
            let name = |node: &Value| node["metadata"]["name"].as_str().map(str::to_owned);
            all.filter_map(|node| name(&node)).collect()
        };
        let of = |template: u32| {
            let base = format!("base-{template}-disk");
            let all = machines(&scene);
            all.values()
                .filter(|vm| vm.config["scsi0"].contains(&base))
                .count()
        };
        let looks = async {
            until(&scene, "all run", 10, || places(&scene, "web").len() == 3).await;
            until(&scene, "two nodes", 5, || names().len() == 2).await;
            tokio::time::sleep(Duration::from_mins(15)).await;
            assert_eq!((of(8000), of(8001)), (2, 0));
            let told = warnings(&scene);
            let [told] = told.as_slice() else {
                panic!("{told:?}");
            };
            assert!(told.contains("was built from another definition"), "{told}");
            assert!(
                told.contains("`pve-autoscaler template build debian`"),
                "{told}"
            );
            // As `template build` does at its end: the old template gets another name, the new one has its name.
            let mut new = PveSpec::default();
            let new = template(&mut new, 8001, BUILT, "pve1", "ceph");
            built(new, "1.35");
            act(
                &scene,
                &AdminAct::Configure {
                    vmid: 8000,
                    key: "name".to_owned(),
                    value: Some(format!("{BUILT}-old-8000")),
                },
            );
            act(&scene, &AdminAct::AddMachine(new.clone()));
            let old = names();
            until(&scene, "the old nodes are gone", 60, || {
                assert!(names().len() >= 2, "{:?}", names());
                names().is_disjoint(&old) && of(8000) == 0
            })
            .await;
            assert_eq!(of(8001), 2);
            until(&scene, "its pods run", 5, || {
                places(&scene, "web").len() == 3
            })
            .await;
            assert_eq!(warnings(&scene), Vec::<String>::new());
        };
        while_it_lives(
            &scene,
            visit(3, WorkloadPods::of("1500m", "1Gi"), 170),
            looks,
        )
        .await;
    });
}

/// What the last turn warns of.
fn warnings(scene: &Scene) -> Vec<String> {
    let turn = scene.world.turns.borrow().clone().expect("a turn");
    turn.decision.report.warnings.clone()
}

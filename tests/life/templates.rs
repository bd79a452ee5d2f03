//! Which template machines are made of, and a template of which none would come.

use std::time::Duration;

use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::kube::KubeSpec;
use pve_autoscaler::sim::pve::{AdminAct, PveSpec, StorageKind};
use pve_autoscaler::sim::workload::{Workload, WorkloadPods};
use pve_autoscaler::sim::world::WorldSpec;

use crate::HASTY;
use crate::common::{Scene, simulate};
use crate::hosts::{act, fill, made, said};

/// A setting of the template that the file names.
fn set(key: &str, value: Option<&str>) -> AdminAct {
    AdminAct::Configure {
        vmid: 9000,
        key: key.to_owned(),
        value: value.map(str::to_owned),
    }
}

#[test]
fn a_template_is_found_by_its_tags() {
    let config = HASTY.replace("vmid = 9000", "tags = [\"golden\", \"Debian\"]");
    assert_ne!(config, HASTY);
    simulate(async {
        let scene = Scene::new(5, &config, GuestSpec::default());
        act(&scene, &set("tags", Some("debian;golden;template")));
        let visit = Workload::visit("web", 1, WorkloadPods::of("1", "1Gi"), Span::seconds(90));
        scene.live(None, 0, visit, Duration::from_mins(6)).await;
        scene.nothing_is_left();
        assert!(scene.machines_made() >= 1, "no machine was ever made");
    });
    simulate(async {
        // Another template has one of the two tags.
        let scene = Scene::new(5, &config, GuestSpec::default());
        let time = Duration::from_mins(3);
        scene.live(None, 0, fill(1), time).await;
        assert!(made(&scene).is_empty(), "{:?}", made(&scene));
    });
}

/// A machine whose agent is switched off never joins: none is made, and it is said why before ten minutes are lost.
#[test]
fn no_machine_is_made_of_a_template_without_an_agent_until_it_has_one() {
    simulate(async {
        let scene = Scene::new(5, HASTY, GuestSpec::default());
        act(&scene, &set("agent", None));
        let person = async {
            tokio::time::sleep(Duration::from_mins(3)).await;
            assert!(made(&scene).is_empty(), "{:?}", made(&scene));
            let said = said(&scene);
            let text = "no machine is made of the template: VM 9000 has no guest agent enabled";
            assert!(said.contains(text), "{said}");
            act(&scene, &set("agent", Some("1")));
            tokio::time::sleep(Duration::from_mins(2)).await;
            assert_eq!(made(&scene).len(), 1, "the mended template is used at once");
        };
        let time = Duration::from_mins(6);
        tokio::join!(scene.live(None, 0, fill(1), time), person);
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// PVE links no clone to a disk on thick LVM: it is not asked for one, and it is said why; a full one it makes.
#[test]
fn no_linked_clone_is_asked_for_where_there_can_be_none() {
    let full = HASTY.replace("vmid = 9000", "vmid = 9000\nclone = \"full\"");
    assert_ne!(full, HASTY);
    for (config, machines) in [(HASTY, 0), (&*full, 1)] {
        simulate(async {
            let mut pve = PveSpec::default();
            let storage = pve.storages.iter_mut().find(|one| one.name == "shared");
            storage.expect("the template's storage").kind = StorageKind::Lvm;
            let scene = Scene::of(WorldSpec {
                seed: 5,
                pve,
                kube: KubeSpec::default(),
                guests: GuestSpec::default(),
                config: config.to_owned(),
            });
            let time = Duration::from_mins(4);
            scene.live(None, 0, fill(1), time).await;
            let asked = scene.world.pve.requests().into_iter();
            let asked = asked.filter(|seen| seen.path.ends_with("/clone")).count();
            assert_eq!((asked, made(&scene).len()), (machines, machines));
            let said = said(&scene);
            let why = "no machine is made of the template: VM 9000: its scsi0 is on shared (lvm), which has no linked clones";
            assert_eq!(said.contains(why), machines == 0, "{said}");
        });
    }
}

//! What the file names for machines and PVE does not have: it is told, and stops nothing that PVE takes.

use std::collections::BTreeMap;
use std::time::Duration;

use pve_autoscaler::controller::status::DaemonStatus;
use pve_autoscaler::model::reasons::Warning;
use pve_autoscaler::sim::faults::Aim;
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::kube::KubeSpec;
use pve_autoscaler::sim::pve::PveSpec;
use pve_autoscaler::sim::world::WorldSpec;

use crate::common::{Scene, simulate};
use crate::hosts::{fill, made};
use crate::{HASTY, regions};

/// What `status` warns of that is lacking in PVE, after some minutes with a pod that wants a machine; and the scene.
async fn lived(config: &str, edit: impl FnOnce(&mut PveSpec)) -> (Vec<String>, Scene) {
    let mut pve = PveSpec::default();
    edit(&mut pve);
    let scene = Scene::of(WorldSpec {
        seed: 5,
        pve,
        kube: KubeSpec::default(),
        guests: GuestSpec::default(),
        config: config.to_owned(),
    });
    scene.live(None, 0, fill(1), Duration::from_mins(6)).await;
    (lacking(&scene), scene)
}

fn lacking(scene: &Scene) -> Vec<String> {
    let turn = scene.world.turns.borrow().clone().expect("a turn");
    let status = DaemonStatus::of(&turn);
    let details = turn.decision.report.warnings_details.iter();
    let lacking = details.filter(|warning| matches!(warning, Warning::Lacking { .. }));
    let told: Vec<String> = lacking.map(ToString::to_string).collect();
    for one in &told {
        assert!(status.warnings.contains(one), "{:?}", status.warnings);
    }
    told
}

/// A security group that is not there does not keep machines from being made, as PVE takes the rule: that it does nothing is told. Where it is
/// there nothing is.
#[test]
fn a_security_group_that_is_not_there_is_told_and_stops_nothing() {
    simulate(async {
        let config = HASTY.replace(
            "vmid = 9000\n",
            "vmid = 9000\nsecurity_groups = [\"web\", \"db\"]\n",
        );
        let (told, scene) = lived(&config, |pve| {
            pve.security_groups = vec!["db".to_owned()];
        })
        .await;
        assert_eq!(
            told,
            [
                "region default: there is no security group web: machines of the pool general are made all the same, and the rule with it lets nothing \
                 through; `pvesh create /cluster/firewall/groups --group web` makes it, without rules"
            ]
        );
        assert_eq!(made(&scene).values().sum::<usize>(), 1);
        assert_eq!(scene.findings(), Vec::<String>::new());
        let (told, _) = lived(&config, |pve| {
            pve.security_groups = vec!["web".to_owned(), "db".to_owned()];
        })
        .await;
        assert_eq!(told, Vec::<String>::new());
    });
}

/// Mappings of USB devices and directories that PVE does not show are told before a machine fails by them, also while no pod wants one. With
/// them machines work.
#[test]
fn mappings_of_options_that_are_not_there_are_told() {
    simulate(async {
        let config = HASTY.replace(
            "[instance_type.small]",
            "[template.debian.options]\nusb0 = \"mapping=key\"\nvirtiofs0 = \"dirid=data\"\n[instance_type.small]",
        );
        let (told, scene) = lived(&config, |_| {}).await;
        assert_eq!(
            told,
            [
                "region default: PVE shows no mapping of USB devices key, of which machines of the pool general have something by the file: they cannot start; \
                 add it (Datacenter, Resource Mappings), or correct the file",
                "region default: PVE shows no mapping of directories data, of which machines of the pool general have something by the file: they cannot start; \
                 add it (Datacenter, Resource Mappings), or correct the file",
            ]
        );
        assert_eq!(
            scene
                .world
                .kube
                .objects("v1", "Node")
                .iter()
                .filter(|node| node["metadata"]["labels"]["pve-autoscaler.io/pool"].is_string())
                .count(),
            0
        );
        let on_all = || ["pve1", "pve2", "pve3"].map(str::to_owned).to_vec();
        let (told, scene) = lived(&config, |pve| {
            pve.usb_mappings = BTreeMap::from([("key".to_owned(), on_all())]);
            pve.dir_mappings = BTreeMap::from([("data".to_owned(), on_all())]);
        })
        .await;
        assert_eq!(told, Vec::<String>::new());
        assert_eq!(made(&scene).values().sum::<usize>(), 1);
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// A tag that the datacenter's options keep for administrators is told of the region with an API token, and of no other: root sets any.
#[test]
fn a_tag_that_the_token_may_not_set_is_told() {
    simulate(async {
        let registered = |name: &str| {
            let mut pve = PveSpec {
                cluster: name.to_owned(),
                ..PveSpec::default()
            };
            pve.tag_access.registered = vec!["prod".to_owned()];
            pve
        };
        let config = regions::config().replace("max = 3", "max = 3\ntags = [\"prod\"]");
        let spec = WorldSpec {
            seed: 5,
            pve: registered("east"),
            kube: KubeSpec::default(),
            guests: GuestSpec::default(),
            config,
        };
        let scene = Scene::with_regions(spec, [("west".to_owned(), registered("west"))].into());
        scene.live_until(Duration::from_mins(6), 0).await;
        assert_eq!(
            lacking(&scene),
            [
                "region west: the API token may not set the tag prod, or take it away, by the datacenter's rules for tags: machines of the pool western fail \
                 after their clone; `pve-autoscaler doctor` says what lets it"
            ]
        );
    });
}

/// While PVE answers nothing that is asked for beside what a poll needs, nothing is told and machines are made.
#[test]
fn what_cannot_be_read_is_not_told_and_stops_nothing() {
    simulate(async {
        let config = HASTY.replace(
            "vmid = 9000\n",
            "vmid = 9000\nsecurity_groups = [\"web\"]\n",
        );
        let scene = Scene::new(5, &config, GuestSpec::default());
        let groups = Aim::Hang(&["/api2/json/cluster/firewall/groups"]);
        scene.world.pve_faults.aim(Some(groups));
        scene.live(None, 0, fill(1), Duration::from_mins(6)).await;
        assert_eq!(lacking(&scene), Vec::<String>::new());
        assert_eq!(made(&scene).values().sum::<usize>(), 1);
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

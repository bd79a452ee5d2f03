//! Storages that hosts lack, or that are full, and hosts on which no machine comes up.

use std::collections::BTreeMap;
use std::time::Duration;

use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::kube::KubeSpec;
use pve_autoscaler::sim::pve::{AdminAct, GIB, PveSpec, StorageKind};
use pve_autoscaler::sim::world::WorldSpec;

use crate::common::{Scene, simulate};
use crate::hosts::{act, fill, made, on, region, said};
use crate::no_template::{TOKEN, golden, lasting_token, of_settings};
use crate::{HASTY, visit};

/// A world whose PVE is edited before it begins.
fn world(config: String, edit: impl FnOnce(&mut PveSpec)) -> Scene {
    let mut pve = PveSpec::default();
    edit(&mut pve);
    Scene::of(WorldSpec {
        seed: 5,
        pve,
        kube: KubeSpec::default(),
        guests: GuestSpec::default(),
        config,
    })
}

/// Machines without a template whose disks may lie on two storages, of which pve1 has the second, pve2 both, pve3 the first: a boot disk and a
/// further one each.
fn of_lists() -> Scene {
    let config = of_settings("", "").replace("max = 3", "max = 6");
    let config = config.replace(
        "storage = \"local-lvm\"\n",
        "storage = [\"tank\", \"local-lvm\"]\n[[template.debian.disk]]\nstorage = [\"tank\", \"local-lvm\"]\nsize = \"10GiB\"\n",
    );
    let mut pve = PveSpec::default();
    let hosts = |names: [&str; 2]| Some(names.map(str::to_owned).into());
    let local = pve.storages.iter_mut().find(|of| of.name == "local-lvm");
    let local = local.expect("there");
    local.hosts = hosts(["pve1", "pve2"]);
    let mut tank = local.clone();
    tank.kind = StorageKind::ZfsPool;
    tank.hosts = hosts(["pve2", "pve3"]);
    "tank".clone_into(&mut tank.name);
    pve.storages.push(tank);
    Scene::of(WorldSpec {
        seed: 5,
        pve,
        kube: KubeSpec::default(),
        guests: golden(),
        config,
    })
}

/// By host the storages of the disks of its machines.
fn disks(scene: &Scene) -> BTreeMap<String, Vec<String>> {
    let mut disks: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let vms = scene.world.pve.vms().into_iter();
    for vm in vms.filter(|vm| (9100..9121).contains(&vm.vmid)) {
        for key in ["scsi0", "scsi1"] {
            let disk = vm.config.get(key).map_or("", String::as_str);
            let storage = disk.split(':').next().unwrap_or_default();
            disks
                .entry(vm.host.clone())
                .or_default()
                .push(storage.to_owned());
        }
    }
    disks
}

/// One file for hosts that have different storages: each machine's disks come to the first of the list that its host has.
#[test]
fn disks_come_to_the_storage_of_the_list_that_their_host_has() {
    simulate(async {
        let scene = of_lists();
        lasting_token(&scene, TOKEN).await;
        scene.live(None, 0, fill(3), Duration::from_mins(6)).await;
        assert_eq!(made(&scene), on([("pve1", 1), ("pve2", 1), ("pve3", 1)]));
        let of = |names: [&str; 2]| names.map(str::to_owned).to_vec();
        let wanted = [
            ("pve1".to_owned(), of(["local-lvm", "local-lvm"])),
            ("pve2".to_owned(), of(["tank", "tank"])),
            ("pve3".to_owned(), of(["tank", "tank"])),
        ];
        assert_eq!(disks(&scene), BTreeMap::from(wanted));
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// The first of the list is full for a boot disk of 20 GiB, and has room for the further one of 10.
#[test]
fn the_next_of_the_list_is_used_where_the_first_is_full() {
    simulate(async {
        let scene = of_lists();
        lasting_token(&scene, TOKEN).await;
        let fill_to = |host: &str, storage: &str, left: u64| {
            let full = AdminAct::Fill {
                storage: storage.to_owned(),
                host: host.to_owned(),
                left: left << 30,
            };
            act(&scene, &full);
        };
        fill_to("pve2", "tank", 15);
        fill_to("pve1", "local-lvm", 5);
        fill_to("pve3", "tank", 5);
        scene.live(None, 0, fill(2), Duration::from_mins(6)).await;
        assert_eq!(disks(&scene)["pve2"][..2], ["local-lvm", "tank"]);
        assert_eq!(disks(&scene).len(), 1, "the other hosts have no room");
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// How often a call with this ending was made to a host.
fn calls(scene: &Scene, host: &str, ending: &str) -> usize {
    let requests = scene.world.pve.requests();
    let there = format!("/nodes/{host}/");
    let calls = requests.iter();
    let calls = calls.filter(|seen| seen.path.contains(&there) && seen.path.ends_with(ending));
    calls.count()
}

/// Shared storage is shared by the hosts that have it: PVE refuses a clone to any other, so none is asked for.
#[test]
fn no_clone_goes_to_a_host_that_lacks_its_storage() {
    simulate(async {
        let scene = world(region(""), |pve| {
            let shared = pve.storages.iter_mut().find(|of| of.name == "shared");
            let hosts = vec!["pve1".to_owned(), "pve2".to_owned()];
            shared.expect("there").hosts = Some(hosts);
        });
        let time = Duration::from_mins(5);
        scene.live(None, 0, fill(4), time).await;
        assert_eq!(made(&scene), on([("pve1", 2), ("pve2", 2)]));
        assert_eq!(calls(&scene, "pve1", "/clone"), 4, "none was in vain");
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// A region with these keys, in which 45 GiB of the shared storage are free and a machine's disk takes 20 GiB. As many machines are
/// asked for as these pods need: some are made at once, the last one after somebody made room; why it waits is said in these words.
fn waits_for_room(keys: &str, machines: u32, why: &str) {
    simulate(async {
        let scene = world(region(keys), |_| {});
        let fill_until = |left: u64| AdminAct::Fill {
            storage: "shared".to_owned(),
            host: "pve1".to_owned(),
            left: left << 30,
        };
        act(&scene, &fill_until(45));
        let mut first = (String::new(), BTreeMap::new());
        let acts = async {
            tokio::time::sleep(Duration::from_mins(3)).await;
            first = (said(&scene), made(&scene));
            act(&scene, &fill_until(500));
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = scene.live(None, 0, fill(machines), Duration::from_mins(8)) => {}
            () = acts => {}
        }
        let all = usize::try_from(machines).expect("few");
        assert_eq!(first.1.values().sum::<usize>(), all - 1, "{first:?}");
        assert!(first.0.contains(why), "{}", first.0);
        assert_eq!(made(&scene).values().sum::<usize>(), all);
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

#[test]
fn a_full_storage_gets_no_machine_until_there_is_room() {
    waits_for_room("", 3, "the storage shared");
}

/// What the report says of the storage that machines are on: to whom it is promised, and once there is no room for another one.
#[test]
fn a_storage_is_told_with_its_machines_and_with_what_keeps_more_off() {
    simulate(async {
        let scene = world(region(""), |_| {});
        let full = AdminAct::Fill {
            storage: "shared".to_owned(),
            host: "pve1".to_owned(),
            left: 45 << 30,
        };
        act(&scene, &full);
        scene.live(None, 0, fill(3), Duration::from_mins(5)).await;
        assert_eq!(made(&scene).values().sum::<usize>(), 2);
        let turn = scene.world.turns.borrow().clone().expect("a turn");
        let storages = &turn.decision.report.storages["default"];
        let shared = &storages["shared"];
        assert!(shared.shared && shared.hosts.len() == 3, "{shared:?}");
        let share = &shared.pools["general"];
        assert_eq!((share.machines, share.promised >> 30), (2, 40));
        assert!(
            shared.left.is_some_and(|left| left < 20 << 30),
            "{shared:?}"
        );
        let note = "no room for a machine of the pool general, which takes 20Gi of it at least";
        assert_eq!(shared.notes, [note]);
        assert_eq!(storages.len(), 1, "no clone goes to others: {storages:?}");
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// Of the 45 GiB 10 are to stay free.
#[test]
fn what_is_to_stay_free_of_a_storage_stays_free() {
    let keys = "min_free_storage = \"10GiB\"\n";
    waits_for_room(keys, 2, "min_free_storage keeps 10Gi");
}

/// A whole life on ZFS with volumes that take what is written and with volumes that take their size, on BTRFS, on Ceph, and on ZFS
/// of another machine; with linked clones and with full ones.
#[test]
fn machines_live_on_each_type_of_storage() {
    for (name, template, kind, sparse) in [
        ("local-lvm", 9001, StorageKind::ZfsPool, true),
        ("local-lvm", 9001, StorageKind::ZfsPool, false),
        ("local-lvm", 9001, StorageKind::Btrfs, true),
        ("shared", 9000, StorageKind::Rbd, true),
        ("shared", 9000, StorageKind::Zfs, true),
    ] {
        for clone in ["linked", "full"] {
            simulate(async {
                let of = format!("vmid = {template}\nclone = \"{clone}\"");
                let config = HASTY.replace("vmid = 9000", &of);
                assert_ne!(config, HASTY);
                let scene = world(config, |pve| {
                    let storage = pve.storages.iter_mut().find(|of| of.name == name);
                    let storage = storage.expect("there");
                    (storage.kind, storage.sparse) = (kind, sparse);
                });
                scene.live(None, 0, visit(), Duration::from_mins(8)).await;
                scene.nothing_is_left();
                assert!(scene.machines_made() >= 1, "{kind:?} {clone}");
                assert_eq!(scene.findings(), Vec::<String>::new(), "{kind:?} {clone}");
            });
        }
    }
}

/// One template on Ceph serves all hosts: each clone is linked to its base image, and none is copied.
#[test]
fn clones_on_ceph_are_linked_to_one_template_on_every_host() {
    simulate(async {
        let scene = world(region(""), |pve| {
            let shared = pve.storages.iter_mut().find(|of| of.name == "shared");
            shared.expect("there").kind = StorageKind::Rbd;
        });
        scene.live(None, 0, fill(4), Duration::from_mins(5)).await;
        let made = made(&scene);
        assert_eq!(made.values().sum::<usize>(), 4, "{}", said(&scene));
        assert!(made.len() > 1, "several hosts have some: {made:?}");
        assert_eq!(calls(&scene, "pve1", "/clone"), 4, "where the template is");
        for vm in scene.world.pve.vms() {
            if (9100..9121).contains(&vm.vmid) {
                let base = format!("shared:base-9000-disk-0/vm-{}-disk-0", vm.vmid);
                let disk = &vm.config["scsi0"];
                assert!(disk.starts_with(&base), "{disk}");
                let drive = format!("shared:vm-{}-cloudinit,", vm.vmid);
                assert!(vm.config["ide2"].starts_with(&drive), "{:?}", vm.config);
            }
        }
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// 45 GiB are free in the Ceph pool, enough for two machines. All hosts see the same 45 GiB.
#[test]
fn a_ceph_pool_has_its_space_once_for_all_hosts() {
    simulate(async {
        let scene = world(region(""), |pve| {
            let shared = pve.storages.iter_mut().find(|of| of.name == "shared");
            shared.expect("there").kind = StorageKind::Rbd;
        });
        let full = AdminAct::Fill {
            storage: "shared".to_owned(),
            host: "pve1".to_owned(),
            left: 45 << 30,
        };
        act(&scene, &full);
        scene.live(None, 0, fill(6), Duration::from_mins(5)).await;
        assert_eq!(made(&scene).values().sum::<usize>(), 2);
        assert!(said(&scene).contains("the storage shared"));
        assert_eq!(calls(&scene, "pve1", "/clone"), 2, "none was in vain");
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// Full clones are to go to a storage that PVE puts no disk of a VM on. No clone is asked for, and it is said why: CephFS holds none
/// whatever its content is, a directory does when its content says so.
#[test]
fn no_clone_is_asked_for_to_a_storage_without_disks() {
    for (kind, content, why) in [
        (
            StorageKind::CephFs,
            "images,iso",
            "storage files (cephfs) is of a type that holds no disks of VMs; another storage in the template's table",
        ),
        (
            StorageKind::Dir,
            "iso",
            "storage files is not for disks of VMs (its content is iso); pvesm set files --content iso,images",
        ),
    ] {
        for table in [
            "clone = \"full\"\nstorage = \"files\"\n",
            "[[template.debian.disk]]\nslot = \"scsi1\"\nstorage = \"files\"\nsize = \"1GiB\"\n",
        ] {
            simulate(async {
                let text = region("").replace("vmid = 9000\n", &format!("vmid = 9000\n{table}"));
                let scene = world(text, |pve| {
                    let mut files = pve.storages[0].clone();
                    (files.name, files.kind) = ("files".to_owned(), kind);
                    content.clone_into(&mut files.content);
                    pve.storages.push(files);
                });
                scene.live(None, 0, fill(1), Duration::from_mins(3)).await;
                assert!(made(&scene).is_empty(), "{:?}", made(&scene));
                assert_eq!(calls(&scene, "pve1", "/clone"), 0, "{table}");
                let said = said(&scene);
                let begin = "no machine is made of the template: VM 9000: ";
                assert!(said.contains(&format!("{begin}{why}")), "{said}");
                assert_eq!(scene.findings(), Vec::<String>::new());
            });
        }
    }
}

/// Changes a simulated PVE.
type EditOfPve<'a> = &'a dyn Fn(&mut PveSpec);

/// What PVE refuses of a clone by where the template's disks are, or where they go: no clone is asked for, and it is said why.
#[test]
fn what_pve_refuses_of_a_clone_is_told_before() {
    let on_luns = |pve: &mut PveSpec| {
        let mut luns = pve.storages[0].clone();
        (luns.name, luns.kind) = ("luns".to_owned(), StorageKind::Iscsi);
        "images".clone_into(&mut luns.content);
        pve.storages.push(luns);
        let template = pve.machines.iter_mut().find(|of| of.vmid == 9000);
        let template = template.expect("there");
        (template.storage, template.cloudinit) = ("luns".to_owned(), false);
    };
    let without_images = |pve: &mut PveSpec| {
        let shared = pve.storages.iter_mut().find(|of| of.name == "shared");
        "iso".clone_into(&mut shared.expect("there").content);
    };
    let elsewhere = |pve: &mut PveSpec| {
        let shared = pve.storages.iter().find(|of| of.name == "shared");
        let mut files = shared.expect("there").clone();
        "files".clone_into(&mut files.name);
        files.hosts = Some(vec!["pve2".to_owned(), "pve3".to_owned()]);
        pve.storages.push(files);
    };
    let local = |pve: &mut PveSpec| {
        let mut files = pve.storages[0].clone();
        "files".clone_into(&mut files.name);
        "images".clone_into(&mut files.content);
        pve.storages.push(files);
    };
    let to_files = "clone = \"full\"\nstorage = \"files\"\n";
    let cases: [(&str, &str, EditOfPve<'_>, &str); 5] = [
        (
            "",
            "",
            &on_luns,
            "VM 9000: its scsi0 is on luns (iscsi), which has no linked clones; clone = \"full\" and storage in",
        ),
        (
            "clone = \"full\"\n",
            "",
            &on_luns,
            "VM 9000: storage luns (iscsi) has the LUNs of its target, and PVE makes none there; another storage",
        ),
        (
            "",
            "",
            &without_images,
            "VM 9000: storage shared is not for disks of VMs (its content is iso); pvesm set shared --content iso,images",
        ),
        (
            to_files,
            "",
            &elsewhere,
            "VM 9000: clones go to the storage files, and PVE makes them on the template's host pve1, which does not have it",
        ),
        (
            to_files,
            "exclude_hosts = [\"pve1\", \"pve3\"]\n",
            &local,
            "can clone (1 seen): VM 9000 is cloned on its host pve1 alone, since clones go to files, which is not shared",
        ),
    ];
    for (table, lines, edit, why) in cases {
        simulate(async {
            let text = region(lines).replace("vmid = 9000\n", &format!("vmid = 9000\n{table}"));
            let scene = world(text, edit);
            scene.live(None, 0, fill(1), Duration::from_mins(3)).await;
            assert!(made(&scene).is_empty(), "{why}: {:?}", made(&scene));
            assert_eq!(calls(&scene, "pve1", "/clone"), 0, "{why}");
            let said = said(&scene);
            assert!(said.contains(why), "{why:?} is not in {said}");
            assert_eq!(scene.findings(), Vec::<String>::new());
        });
    }
}

/// PVE's list says that 145 GiB are free; the file system keeps 100 of them for root.
#[test]
fn what_a_file_system_keeps_for_root_is_no_room() {
    simulate(async {
        let scene = world(region(""), |pve| {
            let shared = pve.storages.iter_mut().find(|of| of.name == "shared");
            let shared = shared.expect("there");
            (shared.kind, shared.kept) = (StorageKind::Nfs, 100 * GIB);
        });
        let full = AdminAct::Fill {
            storage: "shared".to_owned(),
            host: "pve1".to_owned(),
            left: 45 << 30,
        };
        act(&scene, &full);
        scene.live(None, 0, fill(3), Duration::from_mins(5)).await;
        assert_eq!(made(&scene).values().sum::<usize>(), 2);
        assert!(said(&scene).contains("the storage shared"));
        let clones: usize = ["pve1", "pve2", "pve3"]
            .map(|host| calls(&scene, host, "/clone"))
            .into_iter()
            .sum();
        assert_eq!(clones, 2, "none was in vain");
        let asked = calls(&scene, "pve1", "/storage/shared/status");
        assert_eq!(asked, 1, "once in half an hour, of one host");
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// Two storages say that 45 GiB are free, enough for two machines each. On one export it is the same 45 GiB.
#[test]
fn two_storages_on_one_export_have_its_space_once() {
    for (export, expected) in [("more", 4), ("shared", 2)] {
        simulate(async {
            let second = "\n[template.copy]\nvmid = 9000\nclone = \"full\"\nstorage = \"more\"\n\
                [pool.copies]\ntemplate = \"copy\"\ninstance_types = [\"small\"]\nmin = 0\nmax = 6\n";
            let scene = world(region("") + second, |pve| {
                let shared = pve.storages.iter_mut().find(|of| of.name == "shared");
                let shared = shared.expect("there");
                (shared.kind, shared.kept) = (StorageKind::Nfs, 0);
                let mut more = shared.clone();
                (more.name, more.volumes_in) = ("more".to_owned(), Some(export.to_owned()));
                pve.storages.push(more);
            });
            for storage in ["shared", "more"] {
                let full = AdminAct::Fill {
                    storage: storage.to_owned(),
                    host: "pve1".to_owned(),
                    left: 45 << 30,
                };
                act(&scene, &full);
            }
            scene.live(None, 0, fill(6), Duration::from_mins(8)).await;
            let machines = made(&scene).values().sum::<usize>();
            assert_eq!(machines, expected, "{export}: {}", said(&scene));
            assert_eq!(scene.findings(), Vec::<String>::new());
            let requests = scene.world.pve.requests();
            let asked = requests.iter().filter(|seen| seen.path == "/storage");
            assert_eq!(
                asked.count(),
                1,
                "definitions are read once in half an hour"
            );
        });
    }
}

/// A full clone takes five minutes and its storage takes one at a time. A machine that waits for its turn for longer than
/// `max_node_provision_time` is not late: its pool does not wait, its pod gets no second machine, and a reload destroys none.
#[test]
fn a_queue_for_clones_is_nobodys_failure() {
    simulate(async {
        let text = region("max_clones_per_storage = 1\n").replace(
            "[scale_up]\n",
            "[scale_up]\nmax_node_provision_time = \"9m\"\n",
        );
        let text = text.replace("vmid = 9000\n", "vmid = 9000\nclone = \"full\"\n");
        let scene = world(text, |pve| {
            let template = pve.machines.iter().find(|of| of.vmid == 9000);
            let gib = template.expect("there").disk >> 30;
            let each = 300_000 / gib.max(1);
            pve.timings.copy_gib = [each, each];
        });
        let (first, all) = (Duration::from_mins(12), Duration::from_hours(1));
        scene.live_and_stop(first, fill(4), all).await;
        assert_eq!(made(&scene).values().sum::<usize>(), 4, "{}", said(&scene));
        assert!(
            !said(&scene).contains("not initialised"),
            "{}",
            said(&scene)
        );
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// pve2 has the most memory and no bridge: PVE clones, and cannot start. The pool goes on with the next host at once, and
/// tries pve2 no more while that one will do.
#[test]
fn a_host_where_no_machine_starts_does_not_starve_its_pool() {
    simulate(async {
        let lines = region("host_strategy = \"max-memory\"\nexclude_hosts = [\"pve1\"]\n");
        let scene = world(lines, |pve| {
            let host = pve.hosts.iter_mut().find(|host| host.name == "pve2");
            let host = host.expect("there");
            (host.memory, host.bridges) = (host.memory * 2, Vec::new());
        });
        scene.live(None, 0, fill(2), Duration::from_mins(8)).await;
        assert_eq!(made(&scene), on([("pve3", 2)]));
        let starts = calls(&scene, "pve2", "/status/start");
        assert!((1..=2).contains(&starts), "{starts} starts on pve2");
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

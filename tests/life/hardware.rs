//! What machines are given beside the size of their type: their network card and their weight.

use std::time::Duration;

use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::kube::KubeSpec;
use pve_autoscaler::sim::pve::PveSpec;
use pve_autoscaler::sim::workload::{Workload, WorkloadPods};
use pve_autoscaler::sim::world::WorldSpec;

use crate::HASTY;
use crate::common::{Scene, simulate};
use crate::hosts::fill;
use crate::joining::node;
use crate::no_template::{TOKEN, golden, lasting_token, of_settings};

/// The configuration with more lines for the template and for the pool.
fn config(template: &str, pool: &str) -> String {
    let text = HASTY.replace("vmid = 9000\n", &format!("vmid = 9000\n{template}"));
    text.replace("min = 0\n", &format!("min = 0\n{pool}"))
}

/// Two machines' worth of pods, and what the VMs look like some minutes later.
async fn live(config: &str) -> Scene {
    let scene = Scene::new(5, config, GuestSpec::default());
    let time = Duration::from_mins(5);
    scene.live(None, 0, fill(2), time).await;
    scene
}

#[test]
fn machines_get_their_network_card_and_weight_before_they_start() {
    let card = "vlan = 20\nfirewall = true\nmtu = 1400\nmultiqueue = true\nrate = 125\n";
    simulate(async {
        let scene = live(&config(card, "cpu_units = 300\n")).await;
        assert_eq!(scene.findings(), Vec::<String>::new());
        let vms = scene.world.pve.vms();
        let machines: Vec<_> = vms.iter().filter(|vm| vm.vmid >= 9100).collect();
        assert_eq!(machines.len(), 2, "{machines:?}");
        for vm in machines {
            assert!(vm.running, "{vm:?}");
            assert_eq!(vm.config["cpuunits"], "300");
            let (model, rest) = vm.config["net0"].split_once(',').expect("a card");
            assert!(model.starts_with("virtio="), "{model}");
            assert_eq!(
                rest,
                "bridge=vmbr0,firewall=1,mtu=1400,queues=2,rate=125,tag=20"
            );
        }
    });
}

/// A template with a minimum of memory, also with one above what its machines have: machines have no such key, so PVE takes nothing of what pods
/// are promised, and have the device by which PVE reads what the guest uses.
#[test]
fn a_templates_minimum_of_memory_is_not_its_machines() {
    for least in ["1024", "8192"] {
        simulate(async {
            let mut pve = PveSpec::default();
            for template in pve.machines.iter_mut().filter(|one| one.vmid == 9000) {
                template.config.insert("memory".into(), "8192".into());
                template.config.insert("balloon".into(), least.into());
            }
            let scene = Scene::of(WorldSpec {
                seed: 5,
                pve,
                kube: KubeSpec::default(),
                guests: GuestSpec::default(),
                config: HASTY.to_owned(),
            });
            let time = Duration::from_mins(5);
            scene.live(None, 0, fill(2), time).await;
            assert_eq!(scene.findings(), Vec::<String>::new());
            let vms = scene.world.pve.vms();
            let of = |vmid: u32| vms.iter().find(|vm| vm.vmid == vmid).expect("a VM");
            assert_eq!(of(9000).config["balloon"], least);
            for vmid in [9100, 9101] {
                assert_eq!(of(vmid).config.get("balloon"), None, "{vmid}");
                assert_eq!(of(vmid).config["memory"], "4096");
            }
        });
    }
}

/// What PVE's cloud-init drive tells the guest is in the VM before it starts, in PVE's own spelling, and without the keys it is as it was.
#[test]
fn machines_get_the_user_the_keys_and_the_upgrade_that_the_file_names() {
    let key =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMjJysvMzc7P0NHS09TV1tfY2drb3N3e3+Dh4uPk5ebn admin";
    let written = "ssh-ed25519%20AAAAC3NzaC1lZDI1NTE5AAAAIMjJysvMzc7P0NHS09TV1tfY2drb3N3e3%2BDh4uPk5ebn%20admin";
    let lines = format!("ssh_keys = [{key:?}]\nci_user = \"ops\"\nci_upgrade = true\n");
    for (lines, wanted) in [
        (
            &*lines,
            [
                ("sshkeys", Some(written)),
                ("ciuser", Some("ops")),
                ("ciupgrade", Some("1")),
            ],
        ),
        (
            "",
            [
                ("sshkeys", None),
                ("ciuser", Some("debian")),
                ("ciupgrade", Some("0")),
            ],
        ),
    ] {
        simulate(async {
            let scene = live(&config(lines, "")).await;
            assert_eq!(scene.findings(), Vec::<String>::new());
            let vms = scene.world.pve.vms();
            let machines: Vec<_> = vms.iter().filter(|vm| vm.vmid >= 9100).collect();
            assert_eq!(machines.len(), 2, "{machines:?}");
            for vm in machines {
                assert!(vm.running, "{vm:?}");
                for (key, value) in wanted {
                    assert_eq!(vm.config.get(key).map(String::as_str), value, "{key}");
                }
            }
        });
    }
}

/// The disk that grows is the one that the file names: one that the template does not have makes no machine, and it is said.
#[test]
fn the_disk_that_the_file_names_is_the_one_that_grows() {
    simulate(async {
        let scene = live(&config("boot_disk = \"scsi0\"\n", "")).await;
        let vm = scene.world.pve.vm(9100).expect("a VM");
        assert!(vm.config["scsi0"].contains("size=20G"), "{vm:?}");
        let scene = live(&config("boot_disk = \"virtio7\"\n", "")).await;
        let vms = scene.world.pve.vms();
        let running = vms.iter().any(|vm| vm.vmid >= 9100 && vm.running);
        assert!(!running, "{vms:?}");
        assert!(reported(&scene).contains("virtio7"), "{}", reported(&scene));
    });
}

/// A matrix gives sizes, of which the pod's machine is one: its VM has them, and its node the name.
#[test]
fn a_machine_is_of_the_matrix_type_that_its_pod_needs() {
    let matrix = "[instance_matrix.m]\ncores = [1, 2, 4, 8]\nmemory_per_core = [\"2GiB\"]\ndisk = \"20GiB\"\n[instance_type.small]";
    let file = HASTY
        .replace("[instance_type.small]", matrix)
        .replace("instance_types = [\"small\"]", "instance_types = [\"m\"]");
    simulate(async {
        let scene = Scene::new(5, &file, GuestSpec::default());
        let pods = WorkloadPods::of("3", "1Gi");
        let web = Workload::visit("web", 1, pods, Span::minutes(120));
        scene.live(None, 0, web, Duration::from_mins(5)).await;
        let vm = scene.world.pve.vm(9100).expect("a VM");
        assert_eq!((&*vm.config["cores"], &*vm.config["memory"]), ("4", "8192"));
        let node = node(&scene);
        let kind = &node["metadata"]["labels"]["node.kubernetes.io/instance-type"];
        assert_eq!(kind, "m-4c-8g");
        assert_eq!(scene.machines_made(), 1);
        assert_eq!(scene.findings(), Vec::<String>::new());
    });
}

/// A card for storage beside the first one: each machine has it before it starts, with an address of its own on it.
#[test]
fn machines_get_further_cards_with_addresses_of_their_own() {
    let cards = "
[[template.debian.nic]]
bridge = \"vmbr1\"
vlan = 30
network = \"storage\"
[[template.debian.nic]]
bridge = \"vmbr0\"
ipconfig = \"ip=dhcp\"
[network.storage]
subnet = \"192.0.2.0/24\"
ranges = [\"192.0.2.50-192.0.2.59\"]
[instance_type.small]";
    let config = HASTY.replace("[instance_type.small]", cards.trim_start());
    assert_ne!(config, HASTY);
    simulate(async {
        let mut pve = PveSpec::default();
        for host in &mut pve.hosts {
            host.bridges.push("vmbr1".to_owned());
        }
        let scene = Scene::of(WorldSpec {
            seed: 5,
            pve,
            kube: KubeSpec::default(),
            guests: GuestSpec::default(),
            config,
        });
        let time = Duration::from_mins(5);
        scene.live(None, 0, fill(2), time).await;
        assert_eq!(scene.findings(), Vec::<String>::new());
        let vms = scene.world.pve.vms();
        let machines: Vec<_> = vms.iter().filter(|vm| vm.vmid >= 9100).collect();
        assert_eq!(machines.len(), 2, "{machines:?}");
        let mut addresses = Vec::new();
        for vm in machines {
            assert!(vm.running, "{vm:?}");
            let card = |key: &str| {
                let (model, rest) = vm.config[key].split_once(',').expect("a card");
                assert!(model.starts_with("virtio="), "{model}");
                rest.to_owned()
            };
            assert_eq!(card("net1"), "bridge=vmbr1,tag=30");
            assert_eq!(card("net2"), "bridge=vmbr0");
            assert_eq!(vm.config["ipconfig2"], "ip=dhcp");
            addresses.push(vm.config["ipconfig1"].clone());
        }
        addresses.sort();
        assert_eq!(addresses, ["ip=192.0.2.50/24", "ip=192.0.2.51/24"]);
    });
}

/// Two machines' worth of pods where somebody set these keys of the template's own VM.
async fn live_with(keys: &[(&str, &str)], config: &str) -> Scene {
    let mut pve = PveSpec::default();
    let template = pve.machines.iter_mut().find(|vm| vm.vmid == 9000);
    let template = template.expect("the template");
    for (key, value) in keys {
        template.config.insert((*key).to_owned(), (*value).into());
    }
    let scene = Scene::of(WorldSpec {
        seed: 5,
        pve,
        kube: KubeSpec::default(),
        guests: GuestSpec::default(),
        config: config.to_owned(),
    });
    let time = Duration::from_mins(5);
    scene.live(None, 0, fill(2), time).await;
    scene
}

/// What a template made by hand has where there is no DHCP: no two machines ever get it, and they are told why there are none. With an
/// address of the file's they are made.
#[test]
fn a_templates_fixed_address_is_given_to_no_two_machines() {
    let fixed = "ip=192.0.2.50/24,gw=192.0.2.1";
    let keys = [("ipconfig0", fixed)];
    simulate(async {
        let scene = live_with(&keys, HASTY).await;
        let vms = scene.world.pve.vms();
        assert!(vms.iter().all(|vm| vm.vmid < 9100), "{vms:?}");
        let words =
            format!("VM 9000 has a fixed address (ipconfig0: {fixed}) that all its machines");
        let said = reported(&scene);
        assert!(said.contains(&words), "{said}");
    });
    simulate(async {
        let scene = live_with(&keys, &config("ipconfig = \"ip=dhcp\"\n", "")).await;
        assert_eq!(scene.findings(), Vec::<String>::new());
        let vms = scene.world.pve.vms();
        let machines: Vec<_> = vms.iter().filter(|vm| vm.vmid >= 9100).collect();
        assert_eq!(machines.len(), 2, "{machines:?}");
        for vm in machines {
            assert!(vm.running, "{vm:?}");
            assert_eq!(vm.config["ipconfig0"], "ip=dhcp");
        }
    });
}

/// PVE starts no VM whose NUMA nodes have another memory than it has: those of a template, which are of its own size, go.
#[test]
fn machines_have_no_numa_nodes_of_their_template() {
    simulate(async {
        let keys = [("numa", "1"), ("numa0", "cpus=0-1,memory=2048")];
        let scene = live_with(&keys, HASTY).await;
        assert_eq!(scene.findings(), Vec::<String>::new());
        let vms = scene.world.pve.vms();
        let machines: Vec<_> = vms.iter().filter(|vm| vm.vmid >= 9100).collect();
        assert_eq!(machines.len(), 2, "{machines:?}");
        for vm in machines {
            assert!(vm.running, "{vm:?}");
            assert!(!vm.config.contains_key("numa0"), "{vm:?}");
            assert_eq!((&*vm.config["numa"], &*vm.config["memory"]), ("1", "4096"));
        }
    });
}

/// PVE starts no VM whose MTU is above its bridge's: nothing runs, nothing is left over, and PVE's words are told.
#[test]
fn an_mtu_above_the_bridges_is_said_in_pves_words() {
    simulate(async {
        let scene = live(&config("mtu = 9000\n", "")).await;
        let vms = scene.world.pve.vms();
        let running = vms.iter().any(|vm| vm.vmid >= 9100 && vm.running);
        assert!(!running, "{vms:?}");
        let words = "MTU '9000' is bigger than the bridge MTU '1500'";
        let turn = scene.world.turns.borrow().clone().expect("a turn");
        let said = format!("{:?}", turn.decision.report);
        assert!(said.contains(words), "{said}");
    });
}

/// The VM as PVE has it before it starts: disks of its own, its start order, sockets and so on; and with the VM all of it goes.
#[test]
fn machines_get_further_disks_and_hardware_and_take_them_along() {
    let template = "sockets = 2\nnuma = true\nonboot = true\ncpu_type = \"host\"\ncpu_flags = [\"+aes\", \"-pcid\"]\nnic_model = \"e1000\"\n\
        mac_prefix = \"02:00:00\"\nstartup = { order = 20, up = \"10s\" }\n[[template.debian.disk]]\nstorage = \"local-lvm\"\nsize = \"8GiB\"\n\
        iothread = true\ndiscard = true\n";
    let pool = "cpu_limit = 1.5\nballoon = true\nkubelet = { system_reserved = { memory = \"512MiB\" } }\n";
    let config = config(template, pool);
    simulate(async {
        let scene = live(&config).await;
        assert_eq!(scene.findings(), Vec::<String>::new());
        let vms = scene.world.pve.vms();
        let machines: Vec<_> = vms.iter().filter(|vm| vm.vmid >= 9100).collect();
        assert_eq!(machines.len(), 2, "{machines:?}");
        for vm in machines {
            assert!(vm.running, "{vm:?}");
            for (key, value) in [
                ("sockets", "2"),
                ("cores", "1"),
                ("numa", "1"),
                ("onboot", "1"),
                ("cpu", "host,flags=+aes;-pcid"),
                ("startup", "order=20,up=10"),
                ("cpulimit", "1.5"),
                ("memory", "4096"),
                ("balloon", "3584"),
            ] {
                assert_eq!(vm.config.get(key).map(String::as_str), Some(value), "{key}");
            }
            let [_, high, middle, low] = (vm.vmid * 8).to_be_bytes();
            let mac = format!("e1000=02:00:00:{high:02X}:{middle:02X}:{low:02X},");
            assert!(
                vm.config["net0"].starts_with(&mac),
                "{} {mac}",
                vm.config["net0"]
            );
            let disk = &vm.config["scsi1"];
            assert!(disk.starts_with("local-lvm:"), "{disk}");
            assert!(disk.ends_with(",discard=on,iothread=1,size=8G"), "{disk}");
        }
    });
    simulate(async {
        let scene = Scene::new(5, &config, GuestSpec::default());
        scene
            .live(None, 0, crate::visit(), Duration::from_mins(8))
            .await;
        scene.nothing_is_left();
        assert!(scene.machines_made() >= 1);
    });
}

/// Options of PVE's that have no key: the VM has them before it starts, with its own UUID beside what the file says of its firmware's tables.
#[test]
fn machines_get_the_options_that_the_file_names() {
    let options = "options = { rng0 = \"source=/dev/urandom\", watchdog = \"model=i6300esb,action=reset\", tablet = false, \
        migrate_downtime = 0.5, smbios1 = \"sku=worker\" }\n";
    simulate(async {
        let scene = live(&config(options, "")).await;
        assert_eq!(scene.findings(), Vec::<String>::new());
        let vms = scene.world.pve.vms();
        let machines: Vec<_> = vms.iter().filter(|vm| vm.vmid >= 9100).collect();
        assert_eq!(machines.len(), 2, "{machines:?}");
        for vm in machines {
            assert!(vm.running, "{vm:?}");
            for (key, value) in [
                ("rng0", "source=/dev/urandom"),
                ("watchdog", "model=i6300esb,action=reset"),
                ("tablet", "0"),
                ("migrate_downtime", "0.5"),
                (
                    "smbios1",
                    &*format!("base64=1,sku=d29ya2Vy,uuid={}", vm.uuid),
                ),
            ] {
                assert_eq!(vm.config.get(key).map(String::as_str), Some(value), "{key}");
            }
        }
    });
}

/// A disk for which no host has room: no clone is asked for, and the pods are told why. One on a storage that nobody sees is tried, and
/// PVE's words are told.
#[test]
fn a_further_disk_counts_on_its_storage_before_the_clone() {
    let disk = |storage: &str, size: &str| {
        let disk = "[[template.debian.disk]]";
        config(
            &format!("{disk}\nstorage = \"{storage}\"\nsize = \"{size}\"\n"),
            "",
        )
    };
    simulate(async {
        let scene = live(&disk("local-lvm", "1TiB")).await;
        assert_eq!(scene.machines_made(), 0);
        assert!(
            reported(&scene).contains("local-lvm"),
            "{}",
            reported(&scene)
        );
        let scene = live(&disk("nowhere", "1GiB")).await;
        let said = "storage 'nowhere' does not exist";
        assert!(reported(&scene).contains(said), "{}", reported(&scene));
        let running = scene.world.pve.vms();
        assert!(!running.iter().any(|vm| vm.vmid >= 9100 && vm.running));
    });
}

fn reported(scene: &Scene) -> String {
    let turn = scene.world.turns.borrow().clone().expect("a turn");
    format!("{:?}", turn.decision.report)
}

/// PVE takes no flag of a VM but its own thirteen; the file takes no other, and a custom model that is unknown is said in PVE's words.
#[test]
fn what_pve_refuses_is_said_in_its_words() {
    simulate(async {
        let scene = live(&config(
            "cpu_type = \"custom-x\"\ncpu_flags = [\"+aes\"]\n",
            "",
        ))
        .await;
        let said = reported(&scene);
        assert!(said.contains("Custom cputype 'x' not found"), "{said}");
    });
}

/// The disk that machines boot from has the options and limits of the file before they start: of clones beside what their template's has, of
/// VMs made of settings in the place of what is usual. Its volume is the same, and it grows to its size.
#[test]
fn boot_disks_have_the_options_and_limits_of_the_file() {
    let options = "[template.debian.boot_disk_options]\ncache = \"writeback\"\ndiscard = true\nmbps_wr = 50\niops_rd = 2000\n";
    let disk_of = |scene: &Scene| {
        let vms = scene.world.pve.vms().into_iter();
        let disks = vms.filter(|vm| vm.vmid >= 9100).map(|vm| {
            assert!(vm.running, "{vm:?}");
            vm.config["scsi0"].clone()
        });
        disks.collect::<Vec<String>>()
    };
    let all = [
        "cache=writeback",
        "discard=on",
        "iops_rd=2000",
        "mbps_wr=50",
        "size=20G",
    ];
    simulate(async {
        let config = HASTY.replace(
            "[instance_type.small]",
            &format!("{options}[instance_type.small]"),
        );
        let scene = live(&config).await;
        assert_eq!(scene.findings(), Vec::<String>::new());
        let disks = disk_of(&scene);
        assert_eq!(disks.len(), 2);
        for disk in disks {
            assert!(disk.starts_with("shared:9000/base-9000-disk-0"), "{disk}");
            for option in all {
                assert!(
                    disk.split(',').any(|part| part == option),
                    "{option}: {disk}"
                );
            }
        }
    });
    simulate(async {
        let config = of_settings("", "").replace(
            "[instance_type.small]",
            &format!("{options}[instance_type.small]"),
        );
        let scene = Scene::new(5, &config, golden());
        lasting_token(&scene, TOKEN).await;
        scene.live(None, 0, fill(1), Duration::from_mins(5)).await;
        assert_eq!(scene.findings(), Vec::<String>::new());
        let disks = disk_of(&scene);
        let [disk] = &disks[..] else {
            panic!("{disks:?}");
        };
        for option in all.into_iter().chain(["iothread=1"]) {
            assert!(
                disk.split(',').any(|part| part == option),
                "{option}: {disk}"
            );
        }
    });
}

//! Machines whose VM is not as the file says any more: what PVE lets change while it runs follows the file.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pve_autoscaler::config;
use pve_autoscaler::model::mark::{self, Ownership};
use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::guests::{GuestSpec, Range};
use pve_autoscaler::sim::kube::KubeSpec;
use pve_autoscaler::sim::pve::{AdminAct, FirewallRule, PveSpec, Seen, TEMPLATE, VmFacts};
use pve_autoscaler::sim::world::WorldSpec;
use serde_json::json;

use crate::common::{Scene, simulate};
use crate::hosts::fill;
use crate::{HASTY, events, expect_told};

const BEFORE: &str = "tags = [\"shop\", \"old\"]\ndescription = \"of the shop\"\ncpu_units = 200\n";
const AFTER: &str =
    "tags = [\"shop\", \"new\"]\ndescription = \"of the bank\"\ncpu_units = 300\ncpu_limit = 1.5\n";

fn config(template: &str, pool: &str) -> String {
    let text = HASTY.replace("vmid = 9000\n", &format!("vmid = 9000\n{template}"));
    text.replace("min = 0\n", &format!("min = 0\n{pool}"))
}

fn machines(scene: &Scene) -> Vec<VmFacts> {
    let vms = scene.world.pve.vms().into_iter();
    vms.filter(|vm| (9100..9121).contains(&vm.vmid)).collect()
}

fn edit(scene: &Scene, vmid: u32, key: &str, value: String) {
    let act = AdminAct::Configure {
        vmid,
        key: key.to_owned(),
        value: Some(value),
    };
    scene.world.pve.administer(&act).expect("it is possible");
}

/// Writes to configurations so far that PVE took.
fn writes(scene: &Scene) -> usize {
    let requests = scene.world.pve.requests();
    let write = requests.iter().filter(|seen| {
        seen.method == "PUT" && seen.path.ends_with("/config") && seen.status == Some(200)
    });
    write.count()
}

/// Two machines with two pods live under one file; after `acts` the daemon goes on with another.
async fn reloaded(makes: BTreeMap<String, String>, after: &str, acts: impl Fn(&Scene)) -> Scene {
    let before = config("onboot = true\n", BEFORE);
    let pve = PveSpec {
        makes,
        ..PveSpec::default()
    };
    reloaded_on(pve, &before, after, acts).await
}

/// Two machines with two pods live on this PVE cluster under one file; after `acts` the daemon goes on with another.
async fn reloaded_on(pve: PveSpec, before: &str, after: &str, acts: impl Fn(&Scene)) -> Scene {
    let world = (pve, GuestSpec::default());
    restarted(world, (before, after), Duration::from_mins(6), acts).await
}

/// As [`reloaded_on`], with such guests and the change after so long.
async fn restarted(
    (pve, guests): (PveSpec, GuestSpec),
    (before, after): (&str, &str),
    first: Duration,
    acts: impl Fn(&Scene),
) -> Scene {
    let mut scene = Scene::of(WorldSpec {
        seed: 5,
        pve,
        kube: KubeSpec::default(),
        guests,
        config: before.to_owned(),
    });
    tokio::select! {
        biased;
        () = scene.live_until(first, 0) => {}
        () = scene.preside() => {}
        () = scene.play(fill(2)) => {}
    }
    assert_eq!(machines(&scene).len(), 2);
    acts(&scene);
    scene.world.settings = Arc::new(config::parse(after, "after").expect("it is valid"));
    tokio::select! {
        biased;
        () = scene.live_on(1, |_| {}) => {}
        () = scene.preside() => {}
        () = tokio::time::sleep(Duration::from_mins(20)) => {}
    }
    scene
}

#[test]
fn vms_that_run_follow_the_file_and_keep_what_is_others() {
    simulate(async {
        let mut wrote = 0;
        let after = config("startup = { order = 7 }\n", AFTER);
        let counted = std::cell::Cell::new(0);
        let scene = reloaded(BTreeMap::new(), &after, |scene| {
            let all = machines(scene);
            edit(
                scene,
                all[0].vmid,
                "tags",
                "backup;old;pve-autoscaler;shop".to_owned(),
            );
            let notes = all[1].config["description"].replace("of the shop", "call Ann");
            assert_ne!(notes, all[1].config["description"]);
            edit(scene, all[1].vmid, "description", notes);
            counted.set(writes(scene));
        })
        .await;
        wrote += writes(&scene) - counted.get();
        assert_eq!(scene.findings(), Vec::<String>::new());
        assert_eq!(scene.machines_made(), 2);
        let all = machines(&scene);
        for vm in &all {
            assert!(vm.running, "{vm:?}");
            let has = |key: &str| vm.config.get(key).map(String::as_str);
            assert_eq!(has("cpuunits"), Some("300"));
            assert_eq!(has("cpulimit"), Some("1.5"));
            assert_eq!(has("startup"), Some("order=7"));
            assert_eq!(has("onboot"), Some("0"));
            let owner = mark::read(&vm.config["description"]);
            assert!(matches!(owner, Ownership::Marked(mark) if mark.machine == vm.name));
        }
        assert_eq!(all[0].config["tags"], "backup;new;pve-autoscaler;shop");
        assert_eq!(all[1].config["tags"], "new;pve-autoscaler;shop");
        assert!(all[0].config["description"].starts_with("of the bank\npve-autoscaler:v1 "));
        assert!(all[1].config["description"].starts_with("call Ann\npve-autoscaler:v1 "));
        assert_eq!(wrote, 2, "each once");
        let name = &all[0].name;
        let told = format!(
            "of machine {name} in place: its VM is not as the file says: cpulimit, cpuunits, onboot, startup, tags, description"
        );
        expect_told(&events(&scene).await, &[("Node UpdatedInPlace", &told)]);
    });
}

/// Of PVE's options those follow that a VM takes while it runs; the others are for machines to come.
#[test]
fn options_follow_where_a_vm_that_runs_takes_them() {
    simulate(async {
        let options =
            "onboot = true\noptions = { tablet = false, rng0 = \"source=/dev/urandom\" }\n";
        let after = config(options, BEFORE);
        let counted = std::cell::Cell::new(0);
        let scene = reloaded(BTreeMap::new(), &after, |scene| counted.set(writes(scene))).await;
        assert_eq!(scene.findings(), Vec::<String>::new());
        assert_eq!(scene.machines_made(), 2);
        for vm in machines(&scene) {
            assert!(vm.running, "{vm:?}");
            let has = |key: &str| vm.config.get(key).map(String::as_str);
            assert_eq!((has("tablet"), has("rng0")), (Some("0"), None));
        }
        assert_eq!(writes(&scene) - counted.get(), 2, "each once");
        let name = &machines(&scene)[0].name;
        let told = format!("of machine {name} in place: its VM is not as the file says: tablet");
        expect_told(&events(&scene).await, &[("Node UpdatedInPlace", &told)]);
    });
}

/// PVE makes another value of what is written: that is seen, told, and not tried again, and the rest is written.
#[test]
fn what_pve_does_not_keep_is_written_once_and_told() {
    simulate(async {
        let makes = BTreeMap::from([("cpulimit".to_owned(), "1".to_owned())]);
        let counted = std::cell::Cell::new(0);
        let scene = reloaded(makes, &config("", AFTER), |scene| {
            counted.set(writes(scene));
        })
        .await;
        assert_eq!(scene.findings(), Vec::<String>::new());
        for vm in machines(&scene) {
            assert_eq!(vm.config["cpulimit"], "1");
            assert_eq!(vm.config["cpuunits"], "300");
        }
        assert_eq!(writes(&scene) - counted.get(), 2, "each once");
        let turn = scene.world.turns.borrow().clone().expect("a turn");
        let warnings = &turn.decision.report.warnings;
        let told = "cpulimit is 1, the file says 1.5 (not written again: PVE made \"1\" of it); change the file or the VM";
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(
            warnings.iter().all(|one| one.ends_with(told)),
            "{warnings:?}"
        );
    });
}

/// A backup holds one VM: it is left alone until that is over.
#[test]
fn a_locked_vm_is_changed_when_it_is_free_again() {
    simulate(async {
        let locked = std::cell::Cell::new(0);
        let scene = reloaded(BTreeMap::new(), &config("", AFTER), |scene| {
            locked.set(machines(scene)[0].vmid);
            let lock = AdminAct::Lock {
                vmid: locked.get(),
                lock: Some("backup".to_owned()),
            };
            scene.world.pve.administer(&lock).expect("it is possible");
        })
        .await;
        assert_eq!(scene.findings(), Vec::<String>::new());
        for vm in machines(&scene) {
            let wanted = if vm.vmid == locked.get() {
                "200"
            } else {
                "300"
            };
            assert_eq!(vm.config["cpuunits"], wanted);
        }
        let free = AdminAct::Lock {
            vmid: locked.get(),
            lock: None,
        };
        scene.world.pve.administer(&free).expect("it is possible");
        tokio::select! {
            biased;
            () = scene.live_on(2, |_| {}) => {}
            () = scene.preside() => {}
            () = tokio::time::sleep(Duration::from_mins(3)) => {}
        }
        for vm in machines(&scene) {
            assert_eq!(vm.config["cpuunits"], "300");
        }
    });
}

/// A file that puts machines into another resource pool moves those there are, past somebody who took one out of it.
#[test]
fn machines_follow_the_file_into_another_resource_pool() {
    simulate(async {
        let spec = PveSpec {
            pools: vec!["old".to_owned(), "new".to_owned()],
            ..PveSpec::default()
        };
        let file = |pool: &str| config(&format!("resource_pool = \"{pool}\"\n"), "");
        let scene = reloaded_on(spec, &file("old"), &file("new"), |scene| {
            let all = machines(scene);
            let pools = all.iter().map(|vm| vm.pool.as_deref());
            assert_eq!(pools.collect::<Vec<_>>(), [Some("old"), Some("old")]);
            let out = AdminAct::Pool {
                vmid: all[0].vmid,
                pool: None,
            };
            scene.world.pve.administer(&out).expect("it is possible");
        })
        .await;
        assert_eq!(scene.findings(), Vec::<String>::new());
        assert_eq!(scene.machines_made(), 2);
        for vm in machines(&scene) {
            assert_eq!(vm.pool.as_deref(), Some("new"));
        }
        assert_eq!(moves(&scene), [Some(200); 2], "each once");
        let name = &machines(&scene)[1].name;
        let told = format!("of machine {name} in place: its VM is not as the file says: pool");
        expect_told(&events(&scene).await, &[("Node UpdatedInPlace", &told)]);
    });
}

/// A pool that is not there is told with PVE's words, and tried again no more often than every five minutes.
#[test]
fn a_resource_pool_that_is_missing_is_told_and_nothing_else_waits_for_it() {
    simulate(async {
        let before = config("", BEFORE);
        let after = config("resource_pool = \"gone\"\n", AFTER);
        let scene = reloaded_on(PveSpec::default(), &before, &after, |_| {}).await;
        assert_eq!(scene.findings(), Vec::<String>::new());
        for vm in machines(&scene) {
            assert_eq!(vm.config["cpuunits"], "300", "the rest is written");
            assert_eq!(vm.pool, None);
        }
        let refused = moves(&scene);
        assert!((2..=10).contains(&refused.len()), "{refused:?}");
        assert!(refused.iter().all(|status| *status == Some(500)));
        let turn = scene.world.turns.borrow().clone().expect("a turn");
        let machines = turn.snapshot.machines.values();
        let told = machines.flat_map(|machine| machine.vm.iter().flat_map(|vm| &vm.differs));
        let told: Vec<String> = told.map(ToString::to_string).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        for one in told {
            assert!(one.starts_with("pool is nothing, the file says gone (failed at"));
            assert!(one.contains("pool 'gone' does not exist"), "{one}");
        }
    });
}

/// The answers to moves to another resource pool.
fn moves(scene: &Scene) -> Vec<Option<u16>> {
    let requests = scene.world.pve.requests();
    let moves = requests
        .iter()
        .filter(|seen| seen.method == "PUT" && seen.path == "/pools");
    moves.map(|seen| seen.status).collect()
}

fn group(action: &str, card: &str, comment: &str) -> FirewallRule {
    FirewallRule {
        kind: "group".to_owned(),
        action: action.to_owned(),
        iface: Some(card.to_owned()),
        enable: true,
        comment: Some(comment.to_owned()),
    }
}

/// A machine's groups in their order.
fn groups(vm: &VmFacts) -> Vec<String> {
    let rules = vm.rules.iter();
    rules
        .map(|rule| {
            let card = rule.iface.as_deref().unwrap_or("all");
            let off = if rule.enable { "" } else { " off" };
            format!("{} {card}{off}", rule.action)
        })
        .collect()
}

/// Machines have the groups of the file from their first start on, follow it after a change, and keep what the template and people
/// gave them.
#[test]
fn machines_have_the_security_groups_of_the_file_and_follow_it() {
    simulate(async {
        let of_template = || group("base", "net0", "of the template");
        let file = |groups: &str| config(&format!("security_groups = {groups}\n"), "");
        let (before, after) = (file(r#"["web", "db"]"#), file(r#"["web", "cache"]"#));
        let scene = reloaded_on(PveSpec::default(), &before, &after, |scene| {
            let all = machines(scene);
            for vm in &all {
                assert_eq!(groups(vm), ["web net0", "db net0"]);
                let first = scene.world.pve.changes().into_iter();
                let first = first.filter(|change| change.vmid == vm.vmid);
                let written: Vec<String> = first.map(|change| change.what).collect();
                let start = written.iter().position(|what| what == "start");
                let rule = written.iter().rposition(|what| what == "firewall");
                let switch = written.iter().position(|what| what == "firewall switch");
                assert!(
                    rule.is_some() && rule < switch && switch < start,
                    "the rules, their switch, the start: {written:?}"
                );
                assert!(vm.firewall_on && passes_firewall(vm));
            }
            // Somebody gives one a group of his own and switches one of ours off.
            let mut rules = all[0].rules.clone();
            rules[0].enable = false;
            rules.push(group("ssh", "net0", "Ann's"));
            let act = AdminAct::Firewall {
                vmid: all[0].vmid,
                rules,
            };
            scene.world.pve.administer(&act).expect("it is possible");
            let template = AdminAct::Firewall {
                vmid: TEMPLATE,
                rules: vec![of_template()],
            };
            scene
                .world
                .pve
                .administer(&template)
                .expect("it is possible");
        })
        .await;
        assert_eq!(scene.findings(), Vec::<String>::new());
        let all = machines(&scene);
        assert_eq!(groups(&all[0]), ["web net0", "cache net0", "ssh net0"]);
        assert_eq!(groups(&all[1]), ["cache net0", "web net0"]);
        let name = &all[1].name;
        let told =
            format!("of machine {name} in place: its VM is not as the file says: security-groups");
        expect_told(&events(&scene).await, &[("Node UpdatedInPlace", &told)]);
    });
}

/// What the file says of a pool's annotations comes to nodes that are there, what it does not say any more goes, and what others wrote stays.
#[test]
fn annotations_of_nodes_follow_the_file() {
    simulate(async {
        let of_file = |lines: &str| config("", &format!("annotations = {{ {lines} }}\n"));
        let before = of_file("\"example.org/owner\" = \"shop\", \"example.org/old\" = \"1\"");
        let after =
            of_file("\"example.org/owner\" = \"bank\", \"example.org/at\" = \"{{ host }}\"");
        let world = (PveSpec::default(), GuestSpec::default());
        let mut scene = Scene::of(WorldSpec {
            seed: 5,
            pve: world.0,
            kube: KubeSpec::default(),
            guests: world.1,
            config: before,
        });
        tokio::select! {
            biased;
            () = scene.live_until(Duration::from_mins(6), 0) => {}
            () = scene.preside() => {}
            () = scene.play(fill(2)) => {}
        }
        for node in scene.world.kube.objects("v1", "Node") {
            let all = &node["metadata"]["annotations"];
            assert_eq!(all["example.org/old"], "1");
            let name = node["metadata"]["name"].as_str().expect("a name");
            let patch = http::Request::patch(format!("/api/v1/nodes/{name}"))
                .header("content-type", "application/merge-patch+json");
            let anns = json!({"metadata": {"annotations": {"example.org/ann": "hers"}}});
            crate::patch(&scene, patch, anns.to_string()).await;
        }
        let written = writes(&scene);
        scene.world.settings = Arc::new(config::parse(&after, "after").expect("it is valid"));
        tokio::select! {
            biased;
            () = scene.live_on(1, |_| {}) => {}
            () = scene.preside() => {}
            () = tokio::time::sleep(Duration::from_mins(5)) => {}
        }
        assert_eq!(scene.findings(), Vec::<String>::new());
        let nodes = scene.world.kube.objects("v1", "Node");
        assert_eq!(nodes.len(), 2);
        for node in nodes {
            let all = &node["metadata"]["annotations"];
            let zone = &node["metadata"]["labels"]["topology.kubernetes.io/zone"];
            assert_eq!(all["example.org/owner"], "bank");
            assert_eq!(&all["example.org/at"], zone, "its host");
            assert_eq!(all.get("example.org/old"), None);
            assert_eq!(all["example.org/ann"], "hers");
            assert!(all.get("pve-autoscaler.io/machine").is_some());
        }
        assert_eq!(writes(&scene), written, "nothing of it is the VM's");
        let told = "in place: its node is not as the file says: annotations";
        expect_told(&events(&scene).await, &[("Node UpdatedInPlace", told)]);
        let turn = scene.world.turns.borrow().clone().expect("a turn");
        let machines = turn.snapshot.machines.values();
        let mut vms = machines.filter_map(|machine| machine.vm.as_ref());
        assert!(vms.all(|vm| vm.differs.is_empty()));
    });
}

fn passes_firewall(vm: &VmFacts) -> bool {
    let card = vm.config.get("net0").map_or("", String::as_str);
    card.split(',').any(|part| part == "firewall=1")
}

/// The firewall of machines that are there keeps its switch: people switch one off to look for a fault.
#[test]
fn the_firewall_of_a_machine_is_switched_on_once() {
    simulate(async {
        let before = config("security_groups = [\"web\"]\n", "");
        let after = config("security_groups = [\"web\", \"db\"]\n", "");
        let switch = |scene: &Scene, vmid: u32, on: bool| {
            let act = AdminAct::FirewallSwitch { vmid, on };
            scene.world.pve.administer(&act).expect("it is possible");
        };
        let scene = reloaded_on(PveSpec::default(), &before, &after, |scene| {
            let first = machines(scene).remove(0);
            switch(scene, first.vmid, false);
        })
        .await;
        assert_eq!(scene.findings(), Vec::<String>::new());
        let all = machines(&scene);
        let on: Vec<bool> = all.iter().map(|vm| vm.firewall_on).collect();
        assert_eq!(on, [false, true]);
        assert!(all.iter().all(|vm| groups(vm) == ["db net0", "web net0"]));
    });
}

/// The steps are gone through again after a restart of the daemon, while the VM runs: then the switch stays as somebody left it.
#[test]
fn the_firewall_is_not_switched_on_under_a_vm_that_runs() {
    simulate(async {
        let file = config("security_groups = [\"web\"]\n", "");
        let slow = Span::minutes(3);
        let guests = GuestSpec {
            boot: Range {
                min: slow,
                max: slow,
            },
            ..GuestSpec::default()
        };
        let world = (PveSpec::default(), guests);
        let first = Duration::from_secs(75);
        let scene = restarted(world, (&file, &file), first, |scene| {
            for vm in machines(scene) {
                assert!(vm.running && vm.firewall_on, "it boots");
                let (vmid, on) = (vm.vmid, false);
                let act = AdminAct::FirewallSwitch { vmid, on };
                scene.world.pve.administer(&act).expect("it is possible");
            }
        })
        .await;
        assert_eq!(scene.findings(), Vec::<String>::new());
        assert_eq!(scene.machines_made(), 2);
        let all = machines(&scene);
        assert!(all.iter().all(|vm| vm.running && !vm.firewall_on));
        assert!(all.iter().all(|vm| groups(vm) == ["web net0"]));
    });
}

/// The file decides: `vm_firewall` without groups, groups without it; else a clone has its template's switch.
#[test]
fn the_switch_of_the_firewall_is_the_files_or_the_templates() {
    for (template, of_template, on) in [
        ("vm_firewall = true\n", false, true),
        (
            "vm_firewall = false\nsecurity_groups = [\"web\"]\n",
            false,
            false,
        ),
        (
            "vm_firewall = false\nsecurity_groups = [\"web\"]\n",
            true,
            true,
        ),
        ("", true, true),
        ("security_groups = []\n", false, false),
    ] {
        simulate(async move {
            let pve = PveSpec {
                firewall_on: if of_template { vec![TEMPLATE] } else { vec![] },
                ..PveSpec::default()
            };
            let file = config(template, "");
            let scene = reloaded_on(pve, &file, &file, |_| {}).await;
            assert_eq!(scene.findings(), Vec::<String>::new());
            for vm in machines(&scene) {
                assert_eq!(vm.firewall_on, on, "{template:?} {of_template}");
            }
            let put = |seen: &&Seen| seen.method == "PUT";
            let requests = scene.world.pve.requests();
            let switched = requests.iter().filter(put);
            let switched = switched
                .filter(|seen| seen.path.ends_with("/firewall/options"))
                .count();
            assert_eq!(
                switched,
                if on && !of_template { 2 } else { 0 },
                "{template:?}"
            );
        });
    }
}

/// Without a word in the file nobody looks at firewalls, and nothing of them changes.
#[test]
fn a_file_without_groups_leaves_firewalls_alone() {
    simulate(async {
        let scene = reloaded_on(
            PveSpec::default(),
            &config("", BEFORE),
            &config("", AFTER),
            |scene| {
                let rules = vec![group("old", "net0", "pve-autoscaler")];
                for vm in machines(scene) {
                    let (vmid, rules) = (vm.vmid, rules.clone());
                    let act = AdminAct::Firewall { vmid, rules };
                    scene.world.pve.administer(&act).expect("it is possible");
                }
            },
        )
        .await;
        assert_eq!(scene.findings(), Vec::<String>::new());
        for vm in machines(&scene) {
            assert_eq!(groups(&vm), ["old net0"]);
        }
        let requests = scene.world.pve.requests();
        let asked = requests.iter().any(|seen| seen.path.contains("/firewall/"));
        assert!(!asked);
    });
}

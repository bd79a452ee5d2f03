//! Scale-up: packing, the choice of pool and type, limits.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::lab::{GI, Lab, MI, lab, made, verdict, why};
use model::action::{Kind, Reason};
use model::cluster::ObjectKey;
use model::policy::Reserved;
use model::reasons::Ignored;
use model::report::PodVerdict;
use model::scheduling::HostPort;
use model::time::Span;

/// The types of the scenarios' fixture: every one keeps 100m and 10Mi for itself.
fn fixture() -> Lab {
    let mut lab = lab()
        .kind("default", 4, 4096)
        .kind("small", 2, 2048)
        .pool("p", &["default", "small"]);
    for (name, cpu, memory) in [("default", 4, 4), ("small", 2, 2)] {
        lab = lab.edit_kind(name, |kind| {
            kind.price = Some(cpu * 100_000 + memory * 107_374);
        });
    }
    lab.edit_pool("p", |pool| {
        pool.max_pods = 5;
        pool.reserved = Reserved {
            cpu_milli: 100,
            memory: 10 * MI,
            ..Reserved::default()
        };
    })
}

/// One pool `p` of one type `one` with so many millicores (in whole cores), MiB and pods.
pub(super) fn plain(cores: u32, mib: i64, pods: u32) -> Lab {
    lab()
        .kind("one", cores, mib)
        .pool("p", &["one"])
        .edit_pool("p", |pool| pool.max_pods = pods)
}

#[test]
fn bp_01_the_cheapest_type_that_fits() {
    let decision = fixture().pod("web", 0, 100).decide();
    assert_eq!(made(&decision), ["small"]);
    assert!(matches!(
        verdict(&decision, "web"),
        PodVerdict::Triggers { .. }
    ));
}

#[test]
fn bp_02_what_is_reserved_is_not_offered() {
    let asks = |bytes: i64| {
        let lab = fixture()
            .pod("web", 0, 0)
            .shape("web", |shape| shape.requests.memory = bytes);
        made(&lab.decide())
    };
    assert_eq!(asks(2_000_000_000), ["small"]);
    assert_eq!(asks(2 * GI), ["default"]);
}

#[test]
fn bp_04_five_small_pods_share_a_node() {
    assert_eq!(made(&fixture().pods("web", 5, 10, 10).decide()), ["small"]);
}

#[test]
fn bp_05_forty_pods_two_to_a_node() {
    let lab = fixture()
        .pods("web", 40, 0, 0)
        .shapes("web", |shape| shape.requests.memory = 1_800_000_000);
    assert_eq!(made(&lab.decide()), vec!["default"; 20]);
}

#[test]
fn bp_07_each_pod_gets_the_type_it_needs() {
    let mut lab = lab();
    let names = ["c1", "c2", "c3", "c4", "c5"];
    for (cores, name) in (1..).zip(names) {
        lab = lab.kind(name, cores, 8192);
    }
    let lab = lab
        .pool("p", &names)
        .edit_pool("p", |pool| pool.reserved.cpu_milli = 100)
        .pod("big", 4500, 0)
        .pod("small", 1000, 0);
    assert_eq!(made(&lab.decide()), ["c2", "c5"]);
}

#[test]
fn bp_08_zero_of_an_unknown_resource_is_no_request() {
    let lab = fixture().pod("web", 10, 10).shape("web", |shape| {
        shape.requests.extended.insert("foo.com/weird".into(), 0);
    });
    assert_eq!(made(&lab.decide()), ["small"]);
}

#[test]
fn bp_10_pod_slots_bound_a_node() {
    assert_eq!(made(&fixture().pods("web", 25, 1, 1).decide()).len(), 5);
}

#[test]
fn bp_12_what_no_type_offers_has_no_compatible_pool_and_numbers() {
    let decision = fixture().pod("web", 0, 1024 * 1024).decide();
    assert!(decision.plan.is_empty());
    assert_eq!(
        why(&decision, "web", "p/small"),
        "memory: asks 1024Gi, a node offers 1.9Gi after DaemonSets"
    );
}

#[test]
fn bp_14_bp_15_extended_resources_of_different_types() {
    let gpus = |wanted: &[(&str, &str)]| {
        let mut lab = lab()
            .kind("a", 4, 4096)
            .kind("b", 4, 4096)
            .pool("p", &["a", "b"])
            .edit_kind("a", |kind| {
                kind.extended.insert("gpu/a".into(), 2);
            })
            .edit_kind("b", |kind| {
                kind.extended.insert("gpu/b".into(), 2);
            });
        for (pod, gpu) in wanted {
            if !lab
                .snapshot
                .cluster
                .pods
                .contains_key(&ObjectKey::new("default", *pod))
            {
                lab = lab.pod(pod, 10, 10);
            }
            lab = lab.shape(pod, |shape| {
                shape.requests.extended.insert((*gpu).into(), 1);
            });
        }
        lab.decide()
    };
    assert_eq!(made(&gpus(&[("x", "gpu/a"), ("y", "gpu/b")])), ["a", "b"]);
    let both = gpus(&[("x", "gpu/a"), ("x", "gpu/b")]);
    assert_eq!(made(&both), Vec::<String>::new());
    assert_eq!(
        why(&both, "x", "p/b"),
        "gpu/a: asks 1, a node offers 0 after DaemonSets"
    );
}

#[test]
fn bp_20_to_bp_22_pods_of_one_kind() {
    assert_eq!(
        made(&plain(1, 2000, 10).pods("web", 10, 350, 0).decide()).len(),
        5
    );
    assert_eq!(
        made(&plain(10, 20000, 10).pods("web", 20, 10, 0).decide()).len(),
        2
    );
    let ports = plain(1, 5000, 110)
        .pods("web", 8, 100, 1)
        .shapes("web", |shape| {
            shape.host_ports.push(HostPort {
                protocol: "TCP".into(),
                ip: "".into(),
                port: 5555,
            });
        });
    assert_eq!(made(&ports.decide()).len(), 8);
}

#[test]
fn bp_24_the_largest_go_first_under_a_limit() {
    let lab = plain(1, 4096, 110)
        .edit_pool("p", |pool| pool.max = 5)
        .pods("small", 10, 50, 0)
        .pods("large", 10, 500, 0);
    let decision = lab.decide();
    assert_eq!(made(&decision).len(), 5);
    for n in 0..10 {
        assert!(matches!(
            verdict(&decision, &format!("large-{n}")),
            PodVerdict::Triggers { .. }
        ));
        assert_eq!(
            why(&decision, &format!("small-{n}"), "p/one"),
            "pool limit: it has 5 machines, its max is 5, 5 of them planned now"
        );
    }
}

#[test]
fn bp_25_fifty_thousand_small_pods_fill_every_node() {
    let mut lab = plain(1, 5000, 100)
        .edit_pool("p", |pool| pool.max = 5000)
        .with(|lab| {
            let region = lab.snapshot.regions.get_mut("home").expect("home");
            for host in region.hosts.values_mut() {
                host.memory = 8192 * GI;
            }
        })
        .pod("small", 50, 0)
        .pod("large", 95, 0);
    for (name, count) in [("small", 50_000), ("large", 1_000)] {
        let key = ObjectKey::new("default", name);
        let pod = lab.snapshot.cluster.pods.remove(&key).expect("just made");
        for n in 0..count {
            let mut pod = pod.clone();
            pod.uid = format!("{name}-{n}").into();
            let key = ObjectKey::new("default", format!("{name}-{n}"));
            lab.snapshot.cluster.pods.insert(key, pod);
        }
    }
    let decision = crate::decide(&lab.snapshot, &lab.policy, &lab.memory, lab.now);
    assert_eq!(made(&decision).len(), 2595);
}

#[test]
fn bp_27_bp_28_the_cheapest_set_of_gpu_nodes() {
    let mut lab = lab()
        .kind("std", 4, 4096)
        .pool("p", &["std", "g1", "g2", "g4"]);
    for (name, gpus) in [("g1", 1), ("g2", 2), ("g4", 4)] {
        lab = lab.kind(name, 4, 4096).edit_kind(name, |kind| {
            kind.extended.insert("nvidia.com/gpu".into(), gpus);
            kind.price = Some(1000 * gpus);
        });
    }
    let lab = lab.pods("ml", 3, 1, 1).shapes("ml", |shape| {
        shape.requests.extended.insert("nvidia.com/gpu".into(), 1);
    });
    let decision = lab.decide();
    assert_eq!(made(&decision), ["g1", "g2"], "three GPUs, none wasted");
}

#[test]
fn bp_31_daemonset_pods_never_call() {
    let lab = plain(4, 4096, 110)
        .pod("log", 10, 10)
        .shape("log", |shape| {
            shape.owner = Some(super::lab::owner("DaemonSet", "log"));
        });
    let decision = lab.decide();
    assert!(decision.plan.is_empty());
    assert!(matches!(
        verdict(&decision, "log"),
        PodVerdict::Ignored { .. }
    ));
    // Neither do those that say by annotation that they are like a DaemonSet's.
    let key = "cluster-autoscaler.kubernetes.io/daemonset-pod";
    for (word, machines) in [("true", 0), ("false", 1)] {
        let lab = plain(4, 4096, 110)
            .pod("log", 10, 10)
            .shape("log", |shape| {
                shape.annotations.insert(key.into(), word.into());
            });
        assert_eq!(lab.decide().plan.len(), machines, "{word}");
    }
}

#[test]
fn the_heavier_pool_wins_before_the_cheaper() {
    let lab = plain(4, 4096, 110)
        .kind("tiny", 1, 1024)
        .pool("q", &["tiny"])
        .edit_pool("p", |pool| pool.weight = 5)
        .pod("web", 100, 100);
    let decision = lab.decide();
    assert_eq!(made(&decision), ["one"]);
    let PodVerdict::Triggers { others, .. } = verdict(&decision, "web") else {
        panic!("{:?}", verdict(&decision, "web"));
    };
    assert_eq!(others["q/tiny"].to_string(), "the pool p weighs more");
}

#[test]
fn several_pools_in_one_decision() {
    let lab = plain(4, 4096, 110)
        .kind("fat", 2, 65536)
        .pool("q", &["fat"])
        .pod("cpu", 3000, 1000)
        .pod("mem", 100, 60000);
    assert_eq!(made(&lab.decide()), ["fat", "one"]);
}

#[test]
fn lc_18_lc_20_nx_05_limits_hold_inside_one_batch() {
    let three = |change: fn(&mut Lab)| {
        let lab = plain(4, 4096, 1).pods("web", 3, 100, 100).with(change);
        let decision = lab.decide();
        let refused = decision
            .report
            .pods
            .values()
            .filter(|verdict| matches!(verdict, PodVerdict::Held { .. }))
            .count();
        (made(&decision).len(), refused)
    };
    assert_eq!(three(|_| {}), (3, 0));
    let pool = |lab: &mut Lab| lab.policy.pools.get_mut("p").expect("p").max = 1;
    assert_eq!(three(pool), (1, 2));
    let cores = |lab: &mut Lab| {
        lab.policy.pools.get_mut("p").expect("p").max_cpu_milli = Some(9000);
    };
    assert_eq!(three(cores), (2, 1));
    let memory = |lab: &mut Lab| {
        lab.policy.pools.get_mut("p").expect("p").max_memory = Some(9000 * MI);
    };
    assert_eq!(three(memory), (2, 1));
    assert_eq!(three(|lab| lab.policy.scale_up.max_nodes_total = 1), (1, 2));
    assert_eq!(three(|lab| lab.policy.scale_up.max_in_flight = 2), (2, 1));
    let range = |lab: &mut Lab| {
        lab.policy.regions.get_mut("home").expect("home").vmid_last = 9001;
    };
    assert_eq!(three(range), (2, 1));
    let hosts = |lab: &mut Lab| {
        for host in lab
            .snapshot
            .regions
            .get_mut("home")
            .expect("home")
            .hosts
            .values_mut()
        {
            host.memory = 4096 * MI;
        }
        lab.policy.pools.get_mut("p").expect("p").hosts = vec!["pve2".into(), "pve3".into()];
    };
    assert_eq!(three(hosts), (2, 1));
}

#[test]
fn lc_21_lc_27_every_pod_has_one_verdict_with_reasons_per_pool() {
    let lab = lab()
        .kind("thin", 1, 100_000)
        .kind("wide", 64, 1000)
        .pool("thin", &["thin"])
        .pool("wide", &["wide"])
        .edit_pool("thin", |pool| pool.max = 0)
        .edit_pool("wide", |pool| pool.max = 1)
        .pod("a", 60_000, 10)
        .pod("b", 200_000, 10)
        .pod("c", 10, 20_000);
    let decision = lab.decide();
    assert!(matches!(
        verdict(&decision, "a"),
        PodVerdict::Triggers { .. }
    ));
    assert!(matches!(
        verdict(&decision, "b"),
        PodVerdict::NoCompatiblePool { .. }
    ));
    assert!(matches!(verdict(&decision, "c"), PodVerdict::Held { .. }));
    assert_eq!(
        why(&decision, "b", "wide/wide"),
        "cpu: asks 200, a node offers 64 after DaemonSets"
    );
    assert_eq!(
        why(&decision, "c", "thin/thin"),
        "pool limit: it has 0 machines, its max is 0"
    );
    assert!(why(&decision, "c", "wide/wide").starts_with("memory: asks 19.5Gi"));
}

#[test]
fn lc_24_a_pool_keeps_its_min() {
    let mut lab = plain(1, 1024, 110).edit_pool("p", |pool| pool.min = 2);
    let decision = lab.turn();
    assert_eq!(made(&decision), ["one", "one"]);
    assert_eq!(
        decision.plan[0].reason,
        Reason::BelowMin {
            have: 0,
            min: 2,
            pods: Vec::new(),
            in_place_of: BTreeMap::new(),
        }
    );
    assert!(lab.decide().plan.is_empty());
}

#[test]
fn a_young_machine_whose_node_was_deleted_does_not_count_for_the_min() {
    let mut lab = plain(1, 1024, 110)
        .edit_pool("p", |pool| pool.min = 1)
        .ours("n1", "p", "one");
    lab.snapshot.cluster.nodes.clear();
    let now = lab.now;
    let lab = lab.edit_machine("n1", |machine| {
        machine.node = None;
        machine.mark.created = now - Span::minutes(2);
    });
    let mark = lab.snapshot.machines["n1"].mark.clone();
    let lab = lab.with(|lab| {
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        let vm = region.vms.get_mut(&mark.vmid).expect("its VM");
        vm.ownership = Some(model::mark::Ownership::Marked(mark.clone()));
    });
    let decision = lab.decide();
    assert_eq!(made(&decision), ["one"]);
    let action = &decision.plan[0];
    assert_eq!(
        crate::check::check(action, &lab.snapshot, &lab.policy, lab.now),
        Ok(())
    );
}

#[test]
fn nodes_made_for_min_take_pending_pods_first() {
    let lab = plain(4, 4096, 110)
        .edit_pool("p", |pool| pool.min = 1)
        .pods("web", 2, 1000, 100);
    assert_eq!(made(&lab.decide()), ["one"]);
}

#[test]
fn nx_04_the_higher_priority_gets_the_free_slot() {
    let lab = plain(1, 4096, 110)
        .node("old", 1000, 4096)
        .pod("low", 1000, 10)
        .pod("zhigh", 1000, 10)
        .shape("zhigh", |shape| shape.priority = 1000);
    let decision = lab.decide();
    assert!(matches!(
        verdict(&decision, "zhigh"),
        PodVerdict::FitsNode { .. }
    ));
    assert!(matches!(
        verdict(&decision, "low"),
        PodVerdict::Triggers { .. }
    ));
    assert_eq!(made(&decision).len(), 1);
}

#[test]
fn nx_12_daemonsets_that_leave_no_room_are_named_with_numbers() {
    let lab = plain(4, 4096, 110)
        .daemon("agent", 3500, 100)
        .pod("web", 1000, 100);
    let decision = lab.decide();
    assert_eq!(
        why(&decision, "web", "p/one"),
        "cpu: asks 1, a node offers 0.5 after DaemonSets"
    );
}

#[test]
fn machines_spread_over_the_hosts_of_their_pool() {
    let lab = plain(4, 4096, 1).pods("web", 3, 100, 100);
    let mut hosts: Vec<_> = lab
        .decide()
        .plan
        .iter()
        .map(|action| action.target.host.to_string())
        .collect();
    hosts.sort();
    assert_eq!(hosts, ["pve1", "pve2", "pve3"]);
}

#[test]
fn vmids_are_the_lowest_that_nothing_has() {
    let lab = plain(4, 4096, 1)
        .machine("p-other", "p", "one", model::region::Step::Agent)
        .pods("web", 2, 100, 100)
        .with(|lab| {
            let region = lab.snapshot.regions.get_mut("home").expect("home");
            region.vms.insert(9002, model::region::Vm::default());
        });
    let mut lab = lab;
    // The machine under way takes one of the pods.
    let decision = lab.turn();
    let vmids: Vec<u32> = decision
        .plan
        .iter()
        .filter(|a| matches!(a.kind, Kind::Create(_)))
        .map(|a| a.target.vmid)
        .collect();
    assert_eq!(vmids, [9001]);
    assert!(lab.snapshot.machines.contains_key("p-other"));
}

#[test]
fn a_local_template_is_cloned_on_its_host_only() {
    let lab = plain(4, 4096, 1).pods("web", 2, 100, 100).with(|lab| {
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        let copies = region.templates.get_mut("debian").expect("debian");
        copies[0].shared = false;
        copies[0].host = "pve2".into();
    });
    for action in lab.decide().plan {
        assert_eq!(&*action.target.host, "pve2");
        let Kind::Create(spec) = action.kind else {
            panic!("{:?}", action.kind)
        };
        assert_eq!(&*spec.template_host, "pve2");
    }
}

#[test]
fn equal_pods_need_not_share_an_allocation_to_be_one_group() {
    let mut lab = plain(4, 4096, 110).pods("web", 10, 1000, 100);
    for pod in lab.snapshot.cluster.pods.values_mut() {
        pod.shape = Arc::new((*pod.shape).clone());
    }
    assert_eq!(made(&lab.decide()).len(), 3);
}

#[test]
fn pods_that_admission_made_larger_than_their_daemon_set_says_count_as_they_are() {
    let mut lab = plain(4, 4096, 110)
        .daemon("log", 100, 10)
        .ours("n1", "p", "one");
    let uid = lab.snapshot.cluster.daemon_sets[&ObjectKey::new("kube-system", "log")]
        .uid
        .clone();
    // A LimitRange gives the running pod a whole core.
    lab = lab.bound("log-1", "n1", 1_000, 10).shape("log-1", |shape| {
        let mut owner = super::lab::owner("DaemonSet", "log");
        Arc::make_mut(&mut owner).uid = uid;
        shape.owner = Some(owner);
    });
    let decision = lab
        .bound("full", "n1", 3_000, 10)
        .pod("web", 3_500, 100)
        .decide();
    assert_eq!(made(&decision), [""; 0]);
    let why = why(&decision, "web", "p/one");
    assert_eq!(why, "cpu: asks 3.5, a node offers 3 after DaemonSets");
}

#[test]
fn pods_that_ask_for_devices_call_for_nothing() {
    let decision = plain(4, 4096, 110)
        .pod("web", 100, 100)
        .shape("web", |shape| shape.devices = true)
        .decide();
    assert_eq!(made(&decision), [""; 0]);
    let PodVerdict::Ignored { why } = verdict(&decision, "web") else {
        panic!("{:?}", verdict(&decision, "web"));
    };
    assert_eq!(*why, Ignored::Devices);
}

#[test]
fn what_a_planned_machine_has_to_spare_is_used_in_the_next_size() {
    let lab = lab()
        .kind("four", 4, 8192)
        .kind("five", 5, 10_240)
        .pool("p", &["four", "five"])
        .pod("large", 1000, 8192)
        .shape("large", |shape| {
            shape.host_ports.push(HostPort {
                protocol: "TCP".into(),
                ip: "".into(),
                port: 80,
            });
        })
        .pods("busy", 3, 1000, 512);
    assert_eq!(made(&lab.decide()), ["five"], "no second one");
    // Where the next size costs more than one more machine, that is made.
    let dear = lab.edit_kind("five", |kind| kind.price = Some(1_000_000));
    assert_eq!(made(&dear.decide()), ["four", "four"]);
}

/// A call to PVE that is still on its way to a machine that was removed finds no new machine at its VMID.
#[test]
fn vmids_are_given_in_turn() {
    let world = lab()
        .kind("one", 2, 4096)
        .pool("p", &["one"])
        .pod("web", 10, 10);
    let (region, range) = world.policy.regions.first_key_value().expect("a region");
    let (region, lowest, highest) = (region.clone(), range.vmid_first, range.vmid_last);
    let after = |last: Option<u32>| {
        let mut lab = world.clone();
        lab.memory.last_vmids = last
            .map(|last| (region.clone(), last))
            .into_iter()
            .collect();
        let decision = lab.decide();
        let [made] = &decision.plan[..] else {
            panic!("{:?}", decision.plan);
        };
        assert_eq!(decision.memory.last_vmids[&region], made.target.vmid);
        made.target.vmid
    };
    assert_eq!(after(None), lowest);
    assert_eq!(after(Some(lowest + 4)), lowest + 5);
    assert_eq!(after(Some(highest)), lowest);
    assert_eq!(after(Some(highest + 7)), lowest);
    assert_eq!(after(Some(u32::MAX)), lowest);
    // With the memory lost, the one at the highest goes next, and another comes.
    let mut lab = world.ours("old", "p", "one").edit("web", |_| {});
    let highest = lab.snapshot.machines["old"].mark.vmid;
    lab.memory.last_vmids.clear();
    assert_eq!(lab.decide().memory.last_vmids[&region], highest);
}

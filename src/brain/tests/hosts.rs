//! Which host gets a new machine, which ones get none, and what is said of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::lab::{GI, Lab, lab, owner};
use model::action::Kind;
use model::host_bounds::HostOverrides;
use model::hosts::HostStrategy;
use model::network::{AddressRange, NetworkPolicy};
use model::policy::ZONE_LABEL;
use model::region::{GuestKind, HostLoad, Step, TemplateCopy, Vm};
use model::report::PodVerdict;
use model::scheduling::{LabelSelector, PodShape, SpreadConstraint};

/// A host: CPUs, GiB of memory, and the cores and GiB that guests of others have.
type Size = (u32, i64, u32, i64);

/// Three unequal hosts and one pool of 2 cores and 4 GiB a machine.
fn unequal(strategy: HostStrategy, hosts: [Size; 3]) -> Lab {
    let mut lab = lab().kind("one", 2, 4096).pool("p", &["one"]);
    let pool = lab.policy.pools.get_mut("p").expect("p");
    pool.host_rules.strategy = strategy;
    let region = lab.snapshot.regions.get_mut("home").expect("home");
    for ((name, vmid), size) in ["pve1", "pve2", "pve3"].iter().zip(200..).zip(hosts) {
        let host = region.hosts.get_mut(*name).expect("there");
        (host.cpus, host.memory) = (size.0, size.1 * GI);
        if size.2 > 0 {
            let guest = Vm {
                host: (*name).into(),
                running: true,
                cpus: size.2,
                memory: size.3 * GI,
                ..Vm::default()
            };
            region.vms.insert(vmid, guest);
        }
    }
    lab
}

/// A pod that is spread over zones, which hosts are, makes hosts different places to the second plan. Machines without such a pod are on
/// those that the strategy takes all the same.
#[test]
fn machines_are_on_all_hosts_though_somebody_is_spread_over_zones() {
    let app = |shape: &mut PodShape| {
        let labels = || [(Arc::from("app"), Arc::from("spread"))].into_iter();
        shape.labels = labels().collect();
        shape.spread = vec![SpreadConstraint {
            max_skew: 1,
            topology_key: ZONE_LABEL.into(),
            hard: true,
            selector: Some(LabelSelector {
                labels: labels().collect(),
                ..LabelSelector::default()
            }),
            min_domains: None,
            match_label_keys: Vec::new(),
            honor_affinity: true,
            honor_taints: false,
        }];
    };
    for spread in [1, 3] {
        // With the cheapest type for the pool's `min` the pods would wait: the second plan is the answer.
        let lab = lab()
            .kind("one", 2, 4096)
            .kind("two", 4, 8192)
            .pool("p", &["one", "two"])
            .edit_pool("p", |pool| (pool.min, pool.max) = (9, 9))
            .pods("web", 9, 3000, 2000);
        let lab = (0..spread).fold(lab, |lab, n| lab.shape(&format!("web-{n}"), app));
        let mut hosts: BTreeMap<String, usize> = BTreeMap::new();
        for action in lab.decide().plan {
            *hosts.entry(action.target.host.to_string()).or_default() += 1;
        }
        let each = ["pve1", "pve2", "pve3"].map(|host| (host.to_owned(), 3));
        assert_eq!(hosts, BTreeMap::from(each), "{spread} are spread");
    }
}

/// Which pools are told to get no machine, for what.
#[test]
fn a_pool_without_a_template_is_told_of() {
    let lab = || lab().kind("one", 2, 4096).pool("p", &["one"]);
    assert_eq!(lab().decide().report.warnings, [""; 0]);
    let edit = |edit: &dyn Fn(&mut Vec<TemplateCopy>)| {
        lab().with(|lab| {
            let region = lab.snapshot.regions.get_mut("home").expect("home");
            region.templates.values_mut().for_each(edit);
        })
    };
    let none = edit(&|copies| copies.clear()).decide().report.warnings;
    assert_eq!(none.len(), 1, "{none:?}");
    let words =
        "the pool p gets no machine in the region home: no host that it may use has the template";
    assert!(none[0].starts_with(words), "{none:?}");
    let fault = edit(&|copies| {
        for copy in copies {
            copy.fault = Some("it has no agent".into());
        }
    });
    let told = fault.decide().report.warnings;
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].ends_with(": it has no agent"), "{told:?}");
    // An address that machines would share is no matter to a pool whose network takes its place.
    let shared = edit(&|copies| {
        for copy in copies {
            let why = "it has a fixed address".into();
            copy.shared_addresses.insert(1, why);
        }
    });
    let told = shared.clone().decide().report.warnings;
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].ends_with(": it has a fixed address"), "{told:?}");
    let on_card = |card: u8| {
        let lab = shared.clone().with(|lab| {
            let ip = |last: u8| std::net::Ipv4Addr::new(192, 0, 2, last).into();
            let range = AddressRange {
                first: ip(50),
                last: ip(99),
            };
            let ranges = vec![range];
            let network = NetworkPolicy { ranges };
            lab.policy.networks.insert("lan".into(), network);
            let pool = lab.policy.pools.get_mut("p").expect("p");
            pool.networks.insert(card, "lan".into());
        });
        lab.decide().report.warnings.len()
    };
    assert_eq!((on_card(0), on_card(1)), (1, 0));
    // Pools of one template are told together, and another template apart.
    let many = lab().pool("q", &["one"]).pool("r", &["one"]);
    let many = many.pool("other", &["one"]).with(|lab| {
        let pool = lab.policy.pools.get_mut("other").expect("other");
        pool.template = "another".into();
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        region.templates.values_mut().for_each(Vec::clear);
    });
    let told = many.decide().report.warnings;
    let starts = [
        "the pool other gets no machine in the region home: no host that it may use has the template another;",
        "the pools p, q and r get no machine in the region home: no host that they may use has the template",
    ];
    assert_eq!(told.len(), starts.len(), "{told:?}");
    for (told, start) in told.iter().zip(starts) {
        assert!(told.starts_with(start), "{told}");
    }
    // A pool that may have none lacks nothing.
    let off = edit(&|copies| copies.clear()).edit_pool("p", |pool| pool.max = 0);
    assert_eq!(off.decide().report.warnings, [""; 0]);
}

/// Pods that each fill a machine.
fn pods(lab: Lab, count: usize) -> Lab {
    (0..count).fold(lab, |lab, n| lab.pod(&format!("web{n}"), 1500, 2000))
}

/// How many machines are made on which host.
fn made(lab: &Lab) -> BTreeMap<String, usize> {
    let mut made = BTreeMap::new();
    for action in lab.decide().plan {
        if matches!(action.kind, Kind::Create(_)) {
            *made.entry(action.target.host.to_string()).or_default() += 1;
        }
    }
    made
}

fn on<const N: usize>(hosts: [(&str, usize); N]) -> BTreeMap<String, usize> {
    let hosts = hosts.into_iter();
    hosts
        .map(|(host, count)| (host.to_owned(), count))
        .collect()
}

/// 16 CPUs and 64 GiB with much promised; 8 and 128 with nothing; 32 and 32 with a little.
const HOSTS: [Size; 3] = [(16, 64, 12, 8), (8, 128, 7, 100), (32, 32, 4, 4)];

#[test]
fn each_strategy_takes_its_host() {
    for (strategy, first, four) in [
        // One each, then the host with the most memory left: 56 GiB less one machine.
        (
            HostStrategy::Spread,
            on([("pve1", 1)]),
            on([("pve1", 2), ("pve2", 1), ("pve3", 1)]),
        ),
        (
            HostStrategy::MaxMemory,
            on([("pve1", 1)]),
            on([("pve1", 4)]),
        ),
        // 28 cores are left on pve3, 4 on pve1, 1 on pve2.
        (HostStrategy::MaxCpu, on([("pve3", 1)]), on([("pve3", 4)])),
        // pve3 has 87 % of both left, pve1 25 % and 87 %, pve2 12 % and 21 %.
        (HostStrategy::Balanced, on([("pve3", 1)]), on([("pve3", 4)])),
        (
            HostStrategy::RoundRobin,
            on([("pve1", 1)]),
            on([("pve1", 2), ("pve2", 1), ("pve3", 1)]),
        ),
        // All have guests: 28 GiB are left on pve2 and on pve3.
        (HostStrategy::Pack, on([("pve2", 1)]), on([("pve2", 4)])),
    ] {
        let lab = unequal(strategy, HOSTS);
        assert_eq!(made(&pods(lab.clone(), 1)), first, "{strategy:?}, one");
        assert_eq!(made(&pods(lab, 4)), four, "{strategy:?}, four");
    }
}

/// A new machine says what its pool's strategy compared on its host, machines earlier in the plan counted, and which host
/// the strategy would take next.
#[test]
fn each_new_machine_says_why_it_comes_to_its_host() {
    let told = |lab: &Lab| -> Vec<String> {
        let decision = lab.decide();
        let made = decision.plan.iter();
        let made = made.filter(|action| matches!(action.kind, Kind::Create(_)));
        let told = made.map(|action| {
            let chosen = &decision.report.chosen_hosts[&action.target.machine];
            assert_eq!(chosen.host, action.target.host);
            format!("{} {chosen}", chosen.host)
        });
        let told: Vec<String> = told.collect();
        assert_eq!(told.len(), decision.report.chosen_hosts.len());
        told
    };
    let lab = unequal(HostStrategy::Spread, HOSTS);
    assert_eq!(told(&lab), [""; 0], "nothing is made");
    assert_eq!(
        told(&pods(lab, 2)),
        [
            "pve1 spread: no machine of the pool, 56Gi of memory free; next would be pve2 (no machine of the pool, 28Gi of memory free)",
            "pve2 spread: no machine of the pool, 28Gi of memory free; next would be pve3 (no machine of the pool, 28Gi of memory free)",
        ]
    );
    let lab = unequal(HostStrategy::MaxCpu, HOSTS);
    let one = &told(&pods(lab, 1))[0];
    let words = "pve3 max-cpu: 28 cores and 28Gi of memory free; next would be pve1 (4 cores and 56Gi of memory free)";
    assert_eq!(one, words);
    // The other hosts have no memory left.
    let full = unequal(
        HostStrategy::Pack,
        [(16, 64, 4, 62), (8, 128, 7, 100), (32, 32, 4, 30)],
    );
    let one = &told(&pods(full, 1))[0];
    let words = "pve2 pack: 1 guest, 28Gi of memory free; no other host of its region can take it";
    assert_eq!(one, words);
    // A pod that must be on a host counts for more than the strategy.
    let lab = pods(unequal(HostStrategy::MaxMemory, HOSTS), 1).shape("web0", |shape| {
        let zone = "topology.kubernetes.io/zone";
        shape.node_selector.insert(zone.into(), "pve3".into());
    });
    let one = &told(&lab)[0];
    let words = "pve3 max-memory: 28Gi of memory free; pve1 would come first (56Gi of memory free), but for the machine's pods or the rest of the plan";
    assert_eq!(one, words);
}

#[test]
fn packing_leaves_an_empty_host_asleep_until_the_others_are_full() {
    let hosts = [(16, 64, 0, 0), (16, 16, 1, 4), (16, 64, 1, 52)];
    let lab = unequal(HostStrategy::Pack, hosts);
    assert_eq!(made(&pods(lab.clone(), 3)), on([("pve2", 3)]));
    assert_eq!(made(&pods(lab.clone(), 6)), on([("pve2", 3), ("pve3", 3)]));
    let seven = on([("pve1", 1), ("pve2", 3), ("pve3", 3)]);
    assert_eq!(made(&pods(lab, 7)), seven);
}

#[test]
fn rounds_go_on_where_the_last_one_ended() {
    let mut lab = unequal(HostStrategy::RoundRobin, [(16, 64, 0, 0); 3]);
    let mut rounds = Vec::new();
    for count in [1, 1, 2, 1, 3, 1] {
        let lab_now = pods(lab.clone(), count);
        rounds.push(made(&lab_now));
        lab.memory = lab_now.decide().memory;
    }
    let wanted = [
        on([("pve1", 1)]),
        on([("pve2", 1)]),
        on([("pve1", 1), ("pve3", 1)]),
        on([("pve2", 1)]),
        on([("pve1", 1), ("pve2", 1), ("pve3", 1)]),
        on([("pve3", 1)]),
    ];
    assert_eq!(rounds, wanted);
    assert_eq!(&*lab.memory.last_hosts["p"], "pve3");
    // A pool that takes hosts by another rule forgets it.
    let pool = lab.policy.pools.get_mut("p").expect("p");
    pool.host_rules.strategy = HostStrategy::Spread;
    assert!(lab.decide().memory.last_hosts.is_empty());
}

/// What is said against the machines that a pod would need.
fn refusal(lab: &Lab) -> String {
    let decision = lab.decide();
    assert!(decision.plan.is_empty(), "{:?}", decision.plan);
    let verdict = decision.report.pods.values().next().expect("one pod");
    match verdict {
        PodVerdict::Held { why } | PodVerdict::NoCompatiblePool { why } => {
            let whys = why.iter().map(|(choice, why)| format!("{choice}: {why}"));
            whys.collect::<Vec<_>>().join("; ")
        }
        other => panic!("{other:?}"),
    }
}

/// One pod that needs a machine, and three hosts with room for it.
fn three_hosts() -> Lab {
    pods(unequal(HostStrategy::Spread, [(16, 64, 1, 1); 3]), 1)
}

fn each_host(lab: &mut Lab, with: impl Fn(&mut model::region::Host)) {
    let region = lab.snapshot.regions.get_mut("home").expect("home");
    region.hosts.values_mut().for_each(with);
}

/// What is said against the machine after an edit.
fn refused_after(edit: impl Fn(&mut Lab)) -> String {
    let mut lab = three_hosts();
    edit(&mut lab);
    refusal(&lab)
}

#[test]
fn a_host_that_may_get_no_machine_gets_none_and_it_is_said_why() {
    for (said, of) in [
        (
            "is in maintenance",
            refused_after(|lab| each_host(lab, |host| host.maintenance = true)),
        ),
        (
            "has 1 CPUs, one of this type has 2, and PVE starts no VM with more than its host",
            refused_after(|lab| each_host(lab, |host| host.cpus = 1)),
        ),
        (
            "shows no host that the pool may use",
            refused_after(|lab| {
                let rules = &mut lab.policy.pools.get_mut("p").expect("p").host_rules;
                rules.exclude = vec!["pve1".into(), "pve2".into(), "pve3".into()];
            }),
        ),
        (
            "cores left for VMs within cpu_overcommit",
            refused_after(|lab| {
                let region = lab.policy.regions.get_mut("home").expect("home");
                // 16 CPUs, half of them promised at most, 6 of these reserved: one guest has one of the 2.
                region.capacity.cpu_overcommit_permille = Some(500);
                region.capacity.cpu_reserve_milli = 6000;
            }),
        ),
        (
            "of memory left for VMs",
            refused_after(|lab| {
                let region = lab.policy.regions.get_mut("home").expect("home");
                // 64 GiB, 6.4 of them promised at most, 2 reserved: 3.4 GiB are left.
                region.capacity.memory_overcommit_permille = 100;
                region.host_memory_reserve = 2 * GI;
            }),
        ),
        (
            "min_free_memory keeps 10Gi",
            refused_after(|lab| {
                each_host(lab, |host| host.memory_used = 51 * GI);
                let rules = &mut lab.policy.pools.get_mut("p").expect("p").host_rules;
                rules.min_free_memory = 10 * GI;
            }),
        ),
        (
            "min_free_cores keeps 3",
            refused_after(|lab| {
                each_host(lab, |host| host.cpu_used_milli = 11_500);
                let rules = &mut lab.policy.pools.get_mut("p").expect("p").host_rules;
                rules.min_free_cpu_milli = 3000;
            }),
        ),
        (
            "nobody knows how much of the host pve1 is free: maxmem is -1",
            refused_after(|lab| {
                each_host(lab, |host| host.unread = Some("maxmem is -1".into()));
            }),
        ),
        (
            "the CPUs of the host",
            refused_after(|lab| {
                each_host(lab, |host| host.cpus = 0);
                let rules = &mut lab.policy.pools.get_mut("p").expect("p").host_rules;
                rules.min_free_cpu_milli = 1000;
            }),
        ),
    ] {
        assert!(of.contains(said), "{of}");
    }
    // One unit more or less, and it is made.
    let mut lab = three_hosts();
    each_host(&mut lab, |host| {
        (host.memory_used, host.cpu_used_milli) = (50 * GI, 11_000);
    });
    let rules = &mut lab.policy.pools.get_mut("p").expect("p").host_rules;
    (rules.min_free_memory, rules.min_free_cpu_milli) = (10 * GI, 3000);
    assert_eq!(made(&lab), on([("pve1", 1)]));
}

/// The second bound: what is in use on average, and for how long something waits.
#[test]
fn a_host_that_is_too_loaded_or_does_not_tell_gets_none() {
    for (said, of) in [
        (
            "50.1 % of its CPUs are in use on average, and max_cpu_load allows 50 %",
            refused_after(|lab| {
                each_host(lab, |host| {
                    host.load = Some(HostLoad {
                        cpu: Some(501),
                        ..HostLoad::default()
                    });
                });
                let rules = &mut lab.policy.pools.get_mut("p").expect("p").host_rules;
                rules.max_cpu_load = Some(500);
            }),
        ),
        (
            "PVE does not tell, and max_pressure allows no more",
            refused_after(|lab| {
                let rules = &mut lab.policy.pools.get_mut("p").expect("p").host_rules;
                rules.max_pressure = Some(500);
            }),
        ),
    ] {
        assert!(of.contains(said), "{of}");
    }
}

#[test]
fn so_many_machines_and_no_more_are_on_one_host() {
    let base = || pods(unequal(HostStrategy::MaxMemory, [(64, 512, 0, 0); 3]), 8);
    let mut lab = base();
    let pool = lab.policy.pools.get_mut("p").expect("p");
    pool.host_rules.max_per_host = Some(2);
    assert_eq!(made(&lab), on([("pve1", 2), ("pve2", 2), ("pve3", 2)]));
    // Machines that are there count, those of other pools for the region's limit alone.
    let mut lab = base()
        .pool("q", &["one"])
        .machine("m", "q", "one", Step::Agent);
    let host = lab.snapshot.machines["m"].host.to_string();
    let region = lab.policy.regions.get_mut("home").expect("home");
    region.capacity.max_per_host = Some(2);
    let made_now = made(&lab);
    assert_eq!(made_now.values().sum::<usize>(), 5, "{made_now:?}");
    assert_eq!(made_now[&host], 1, "{made_now:?}");
}

#[test]
fn machines_that_are_being_made_count_as_in_use() {
    let mut lab = pods(unequal(HostStrategy::Pack, [(16, 64, 1, 1); 3]), 1);
    let pool = lab.policy.pools.get_mut("p").expect("p");
    pool.hosts = vec!["pve1".into()];
    pool.host_rules.min_free_memory = 52 * GI;
    assert_eq!(made(&lab), on([("pve1", 1)]));
    // 64 GiB, 4 of them for the machine that comes, 4 more for another one: 56 stay free. With two on their way 52.
    let coming = |lab: Lab, name: &str| {
        let mut lab = lab.machine(name, "p", "one", Step::Clone);
        let machine = lab.snapshot.machines.get_mut(name).expect("there");
        machine.host = "pve1".into();
        lab
    };
    lab.policy
        .pools
        .get_mut("p")
        .expect("p")
        .host_rules
        .min_free_memory = 56 * GI;
    let lab = pods(coming(lab, "a"), 2);
    assert_eq!(made(&lab), on([("pve1", 1)]));
    let lab = pods(coming(lab, "b"), 3);
    assert_eq!(made(&lab), on([]));
}

#[test]
fn containers_of_others_are_promised_their_memory_too() {
    let mut lab = pods(unequal(HostStrategy::MaxMemory, [(16, 64, 0, 0); 3]), 1);
    let region = lab.snapshot.regions.get_mut("home").expect("home");
    let container = Vm {
        host: "pve1".into(),
        kind: GuestKind::Lxc,
        running: true,
        memory: 8 * GI,
        cpus: 4,
        ..Vm::default()
    };
    region.vms.insert(300, container);
    assert_eq!(made(&lab), on([("pve2", 1)]));
}

#[test]
fn guests_that_start_with_their_host_are_promised_their_size_while_they_are_off() {
    let with = |onboot: bool, edit: &dyn Fn(&mut Lab)| {
        let mut lab = pods(unequal(HostStrategy::MaxMemory, [(16, 64, 0, 0); 3]), 1);
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        let guest = Vm {
            host: "pve1".into(),
            onboot,
            memory: 8 * GI,
            cpus: 4,
            ..Vm::default()
        };
        region.vms.insert(300, guest);
        edit(&mut lab);
        made(&lab)
    };
    let vm = |lab: &mut Lab, with: &dyn Fn(&mut Vm)| {
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        with(region.vms.get_mut(&300).expect("there"));
    };
    let counting = |lab: &mut Lab, with: &dyn Fn(&mut model::hosts::HostCounting)| {
        with(&mut lab.policy.regions.get_mut("home").expect("home").capacity);
    };
    assert_eq!(with(true, &|_| {}), on([("pve2", 1)]));
    assert_eq!(with(false, &|_| {}), on([("pve1", 1)]));
    let ignored = with(true, &|lab| {
        counting(lab, &|counting| counting.onboot = false);
    });
    assert_eq!(ignored, on([("pve1", 1)]));
    let template = with(true, &|lab| vm(lab, &|vm| vm.template = true));
    assert_eq!(template, on([("pve1", 1)]));
}

#[test]
fn a_vm_with_ballooning_counts_with_its_memory_or_with_what_it_keeps() {
    let with = |minimum: bool| {
        let hosts = [(16, 64, 2, 32), (16, 64, 2, 16), (16, 32, 0, 0)];
        let mut lab = pods(unequal(HostStrategy::MaxMemory, hosts), 1);
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        region.vms.get_mut(&200).expect("there").memory_min = Some(4 * GI);
        let policy = lab.policy.regions.get_mut("home").expect("home");
        policy.capacity.balloon_minimum = minimum;
        made(&lab)
    };
    assert_eq!(with(false), on([("pve2", 1)]));
    assert_eq!(with(true), on([("pve1", 1)]));
}

/// kube-scheduler would rather spread pods of one controller over hosts and zones. Who asks for a strategy gets it; what a
/// pod itself prefers still counts.
#[test]
fn a_strategy_means_more_than_kube_schedulers_defaults() {
    let of_one_controller = |strategy: HostStrategy| {
        let mut lab = pods(unequal(strategy, [(16, 64, 1, 1); 3]), 3);
        for n in 0..3 {
            lab = lab.shape(&format!("web{n}"), |shape| {
                shape.owner = Some(owner("ReplicaSet", "web"));
            });
        }
        made(&lab).len()
    };
    assert_eq!(of_one_controller(HostStrategy::Spread), 3);
    assert_eq!(of_one_controller(HostStrategy::Pack), 1);
    assert_eq!(of_one_controller(HostStrategy::MaxMemory), 3);
}

/// What a host says for itself counts there alone, is told with the host, and is warned of where there is no such host.
#[test]
fn a_host_is_counted_by_what_its_own_table_says() {
    let own = |host: &str| {
        pods(unequal(HostStrategy::Spread, [(16, 64, 0, 0); 3]), 3).with(|lab| {
            let region = lab.policy.regions.get_mut("home").expect("home");
            let own = HostOverrides {
                memory_reserve: Some(61 * GI),
                cpu_overcommit_permille: Some(500),
                cpu_reserve_milli: Some(1000),
                ..HostOverrides::default()
            };
            region.hosts.insert(host.into(), own);
        })
    };
    let lab = own("pve1");
    let there = made(&lab);
    assert_eq!((there.len(), there.get("pve1")), (2, None), "{there:?}");
    let report = lab.decide().report;
    let hosts = &report.hosts["home"];
    let most = |host: &str| (hosts[host].most_memory, hosts[host].most_cpu_milli);
    assert_eq!(most("pve1"), (3 * GI, Some(7000)));
    assert_eq!(most("pve2"), (64 * GI, None));
    assert_eq!(report.warnings, [""; 0]);
    let lab = own("pve9");
    assert_eq!(made(&lab), on([("pve1", 1), ("pve2", 1), ("pve3", 1)]));
    let told = lab.decide().report.warnings;
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("names the host pve9"), "{told:?}");
}

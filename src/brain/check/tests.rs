//! One planted bug for each rule: a right action passes; with the bug that very rule refuses it.

mod addresses;
mod consolidation;
mod cpus;
mod devices;
mod filters;
mod in_place;
mod migrated;
mod power;
mod together;

use std::collections::BTreeMap;

use super::{CheckRule, check};
use crate::tests::lab::{Lab, lab};
use model::action::{Action, Kind, NodeRef, Reason};
use model::cluster::ReadyStatus;
use model::host_bounds::HostOverrides;
use model::mark::Ownership;
use model::policy::LEAVING_TAINT;
use model::region::{Busy, Failure, MachineVm, Step, Vm};
use model::scheduling::{HostPort, Taint, Volume};
use model::time::Span;

type Bug<'a> = &'a dyn Fn(&mut Lab, &mut Action);

/// The action passes; with the bug the rule refuses it.
fn planted(base: &(Lab, Action), rule: CheckRule, bug: Bug<'_>) {
    let (mut lab, mut action) = base.clone();
    assert_eq!(
        check(&action, &lab.snapshot, &lab.policy, lab.now),
        Ok(()),
        "{rule}: the action is right before the bug"
    );
    bug(&mut lab, &mut action);
    let refusal = check(&action, &lab.snapshot, &lab.policy, lab.now);
    assert_eq!(
        refusal.as_ref().map_err(|refusal| refusal.rule),
        Err(rule),
        "{refusal:?}"
    );
}

fn decided(lab: Lab) -> (Lab, Action) {
    let decision = lab.decide();
    assert_eq!(decision.plan.len(), 1, "{:#?}", decision.plan);
    (lab, decision.plan[0].clone())
}

fn pool() -> Lab {
    lab().kind("one", 2, 4096).pool("p", &["one"])
}

fn creation() -> (Lab, Action) {
    decided(pool().pod("web", 100, 100))
}

fn spec(action: &mut Action) -> &mut model::action::CreateSpec {
    match &mut action.kind {
        Kind::Create(spec) => spec,
        other => panic!("{other:?}"),
    }
}

fn region(lab: &mut Lab) -> &mut model::region::Region {
    lab.snapshot.regions.get_mut("home").expect("home")
}

#[test]
fn every_action_needs_a_leader_a_fresh_whole_view_and_quorum() {
    let base = creation();
    planted(&base, CheckRule::Version, &|_, action| action.version = 7);
    planted(&base, CheckRule::Version, &|lab, _| {
        lab.snapshot.version = 7;
    });
    planted(&base, CheckRule::Leader, &|lab, _| {
        lab.snapshot.leader = false;
    });
    planted(&base, CheckRule::Paused, &|lab, _| {
        lab.snapshot.paused = Some("ann".into());
    });
    planted(&base, CheckRule::ClusterId, &|lab, _| {
        lab.snapshot.cluster_id = None;
    });
    planted(&base, CheckRule::PlanAge, &|lab, action| {
        action.precondition.planned = lab.now - Span::minutes(10);
    });
    planted(&base, CheckRule::PlanAge, &|lab, action| {
        action.precondition.planned = lab.now + Span::minutes(10);
    });
    for source in ["kube/pods", "kube/nodes", "pve/home"] {
        planted(&base, CheckRule::View, &|lab, _| {
            lab.snapshot.sources.remove(source);
        });
        planted(&base, CheckRule::View, &|lab, _| {
            lab.snapshot
                .sources
                .get_mut(source)
                .expect("there")
                .complete = false;
        });
        planted(&base, CheckRule::View, &|lab, _| {
            let source = lab.snapshot.sources.get_mut(source).expect("there");
            source.as_of = source.as_of - Span::minutes(10);
        });
    }
    planted(&base, CheckRule::Region, &|lab, _| {
        region(lab).quorate = false;
    });
    planted(&base, CheckRule::Region, &|lab, _| {
        lab.policy.regions.clear();
    });
    planted(&base, CheckRule::Region, &|lab, _| {
        lab.snapshot.regions.clear();
    });
    planted(&base, CheckRule::ClusterUnhealthy, &|lab, _| {
        for n in 0..4 {
            let name = format!("sick{n}");
            *lab = lab.clone().node(&name, 1, 1).edit_node(&name, |node| {
                node.ready.status = ReadyStatus::False;
            });
        }
    });
}

#[test]
fn a_new_machine_is_what_the_configuration_says_where_it_says() {
    let base = creation();
    planted(&base, CheckRule::Pool, &|lab, _| lab.policy.pools.clear());
    planted(&base, CheckRule::Pool, &|_, action| {
        spec(action).mark.instance_type = "huge".into();
    });
    planted(&base, CheckRule::Pool, &|_, action| {
        spec(action).mark.template = "windows".into();
    });
    planted(&base, CheckRule::Host, &|lab, action| {
        region(lab)
            .hosts
            .get_mut(&action.target.host)
            .expect("there")
            .online = false;
    });
    planted(&base, CheckRule::Host, &|_, action| {
        action.target.host = "nowhere".into();
    });
    planted(&base, CheckRule::Host, &|lab, action| {
        let host = if &*action.target.host == "pve1" {
            "pve2"
        } else {
            "pve1"
        };
        lab.policy.pools.get_mut("p").expect("p").hosts = vec![host.into()];
    });
    planted(&base, CheckRule::Template, &|_, action| {
        spec(action).template_vmid = 101;
    });
    planted(&base, CheckRule::Template, &|lab, action| {
        action.target.host = "pve2".into();
        region(lab).templates.get_mut("debian").expect("there")[0].shared = false;
    });
    planted(&base, CheckRule::Vmid, &|_, action| {
        action.target.vmid = 100;
    });
    planted(&base, CheckRule::Vmid, &|lab, action| {
        region(lab).vms.insert(action.target.vmid, Vm::default());
    });
    planted(&base, CheckRule::Vmid, &|lab, action| {
        let vmid = action.target.vmid;
        *lab = lab.clone().machine("other", "p", "one", Step::Intent);
        region(lab).vms.remove(&9000);
        lab.snapshot
            .machines
            .get_mut("other")
            .expect("there")
            .mark
            .vmid = vmid;
    });
}

#[test]
fn a_new_machine_has_a_name_a_mark_and_a_token_of_its_own() {
    let base = creation();
    planted(&base, CheckRule::Name, &|_, action| {
        action.target.machine = "Not_A_Label".into();
    });
    planted(&base, CheckRule::Name, &|lab, action| {
        *lab = lab.clone().node(&action.target.machine, 1, 1);
    });
    planted(&base, CheckRule::Name, &|lab, action| {
        let name = action.target.machine.clone();
        region(lab).vms.get_mut(&100).expect("there").name = name;
    });
    planted(&base, CheckRule::Mark, &|_, action| {
        spec(action).mark.cluster = "uid/other".into();
    });
    planted(&base, CheckRule::Mark, &|_, action| {
        spec(action).mark.vmid += 1;
    });
    planted(&base, CheckRule::Mark, &|_, action| {
        spec(action).mark.machine = "p-other".into();
    });
    planted(&base, CheckRule::Token, &|_, action| {
        spec(action).mark.token = "TOO-LONG".into();
    });
    planted(&base, CheckRule::Token, &|lab, action| {
        *lab = lab.clone().machine("other", "p", "one", Step::Agent);
        action.target.vmid = 9001;
        spec(action).mark.vmid = 9001;
        spec(action).mark.token = "009000".into();
    });
}

#[test]
fn a_new_machine_stays_within_every_limit_and_is_needed() {
    let base = creation();
    planted(&base, CheckRule::PoolMax, &|lab, _| {
        lab.policy.pools.get_mut("p").expect("p").max = 0;
    });
    planted(&base, CheckRule::PoolMax, &|lab, _| {
        lab.policy.pools.get_mut("p").expect("p").max_cpu_milli = Some(1999);
    });
    planted(&base, CheckRule::PoolMax, &|lab, _| {
        lab.policy.pools.get_mut("p").expect("p").max_memory = Some(1);
    });
    planted(&base, CheckRule::NodesTotal, &|lab, _| {
        lab.policy.scale_up.max_nodes_total = 1;
        *lab = lab.clone().node("old", 1, 1);
    });
    planted(&base, CheckRule::InFlight, &|lab, _| {
        lab.policy.scale_up.max_in_flight = 0;
    });
    planted(&base, CheckRule::HostMemory, &|lab, action| {
        region(lab)
            .hosts
            .get_mut(&action.target.host)
            .expect("there")
            .memory = 4095 << 20;
    });
    planted(&base, CheckRule::HostMemory, &|lab, _| {
        lab.policy
            .regions
            .get_mut("home")
            .expect("home")
            .host_memory_reserve = 4096 << 30;
    });
    // This host has a reserve of its own, which counts in place of the region's.
    for (rule, own) in [
        (
            CheckRule::HostMemory,
            HostOverrides {
                memory_reserve: Some(4096 << 30),
                ..HostOverrides::default()
            },
        ),
        (
            CheckRule::HostMemory,
            HostOverrides {
                memory_overcommit_permille: Some(0),
                ..HostOverrides::default()
            },
        ),
        (
            CheckRule::HostCapacity,
            HostOverrides {
                cpu_overcommit_permille: Some(1000),
                cpu_reserve_milli: Some(63_000),
                ..HostOverrides::default()
            },
        ),
    ] {
        planted(&base, rule, &|lab, action| {
            let region = lab.policy.regions.get_mut("home").expect("home");
            region.hosts.insert(action.target.host.clone(), own);
        });
    }
    planted(&base, CheckRule::Needed, &|lab, _| {
        lab.snapshot.cluster.pods.clear();
    });
    planted(&base, CheckRule::Needed, &|lab, _| {
        *lab = lab
            .clone()
            .node("old", 1, 1)
            .edit("web", |pod| pod.node = Some("old".into()));
    });
    planted(&base, CheckRule::Needed, &|_, action| {
        action.reason = Reason::BelowMin {
            have: 0,
            min: 1,
            pods: Vec::new(),
            in_place_of: BTreeMap::new(),
        };
    });
    planted(&base, CheckRule::Needed, &|_, action| {
        action.reason = Reason::Unfinished;
    });
}

/// Room for one more machine beside one whose VM runs and was not read: what that has counts once.
#[test]
fn a_vm_that_runs_and_was_not_read_is_promised_its_memory_once() {
    let lab = pool().machine("old", "p", "one", Step::Clone).with(|lab| {
        let machine = lab.snapshot.machines.get_mut("old").expect("made");
        machine.vm = None;
        let vmid = machine.mark.vmid;
        let region = region(lab);
        region.vms.get_mut(&vmid).expect("its VM").ownership = None;
        region.hosts.retain(|host, _| &**host == "pve1");
        region.hosts.get_mut("pve1").expect("there").memory = 8192 << 20;
        let range = lab.policy.regions.get_mut("home").expect("home");
        (range.vmid_first, range.vmid_last) = (vmid + 1, vmid + 50);
    });
    let base = decided(lab.pod("web", 1500, 100));
    planted(&base, CheckRule::HostMemory, &|lab, _| {
        region(lab).hosts.get_mut("pve1").expect("there").memory -= 1;
    });
    planted(&base, CheckRule::HostMemory, &|lab, _| {
        let vmid = lab.snapshot.machines["old"].mark.vmid;
        region(lab).vms.get_mut(&vmid).expect("its VM").memory += 1;
    });
}

#[test]
fn a_machine_under_way_is_ours_and_where_it_is_said_to_be() {
    let base = decided(pool().machine("m", "p", "one", Step::Agent));
    planted(&base, CheckRule::Target, &|_, action| {
        action.target.machine = "other".into();
    });
    planted(&base, CheckRule::Target, &|_, action| {
        action.target.vmid = 9001;
    });
    planted(&base, CheckRule::Target, &|_, action| {
        action.target.host = "pve3".into();
    });
    planted(&base, CheckRule::Unconfigured, &|lab, _| {
        lab.policy.pools.clear();
    });
    let mark = base.0.snapshot.machines["m"].mark.clone();
    planted(&base, CheckRule::Ours, &|lab, _| {
        let machine = lab.snapshot.machines.get_mut("m").expect("m");
        machine.mark.cluster = "uid/other".into();
    });
    planted(&base, CheckRule::Ours, &|_, action| {
        action.precondition.mark.as_mut().expect("marked").token = "zzzzzz".into();
    });
    for ownership in [
        Ownership::Damaged("edited".into()),
        Ownership::UnknownVersion("v7".into()),
    ] {
        planted(&base, CheckRule::Ours, &|lab, _| {
            region(lab).vms.get_mut(&9000).expect("there").ownership = Some(ownership.clone());
        });
    }
    planted(&base, CheckRule::Ours, &|lab, _| {
        let vm = region(lab).vms.entry(9001).or_default();
        vm.ownership = Some(Ownership::Marked(mark.clone()));
    });
    planted(&base, CheckRule::Ours, &|lab, _| {
        let machine = lab.snapshot.machines.get_mut("m").expect("m");
        machine.vm.as_mut().expect("its VM").marked = false;
    });
    planted(&base, CheckRule::Leaving, &|lab, _| {
        let machine = lab.snapshot.machines.get_mut("m").expect("m");
        machine.step = Some((Step::Destroy, machine.mark.created));
    });
}

/// A removal of an unneeded node that runs one pod.
fn removal() -> (Lab, Action) {
    let mut lab = pool()
        .ours("n1", "p", "one")
        .node("other", 4000, 4096)
        .bound("web", "n1", 100, 100);
    lab.turn();
    decided(lab.after(Span::minutes(11)))
}

fn edit_node(lab: &mut Lab, change: impl FnOnce(&mut model::cluster::Node)) {
    *lab = lab.clone().edit_node("n1", change);
}

#[test]
fn a_working_node_goes_only_for_a_reason_that_holds() {
    let base = removal();
    planted(&base, CheckRule::Undrained, &|_, action| {
        action.kind = Kind::Remove { drain: false };
    });
    planted(&base, CheckRule::Node, &|lab, _| {
        edit_node(lab, |node| node.uid = "new".into());
    });
    planted(&base, CheckRule::Node, &|lab, _| {
        lab.snapshot.cluster.nodes.remove("n1");
    });
    planted(&base, CheckRule::Identity, &|lab, _| {
        edit_node(lab, |node| node.system_uuid = "another".into());
    });
    planted(&base, CheckRule::Identity, &|lab, _| {
        let key = "pve-autoscaler.io/machine";
        edit_node(lab, |node| {
            drop(node.annotations.insert(key.into(), "home/1/x".into()));
        });
    });
    planted(&base, CheckRule::Identity, &|lab, _| {
        *lab = lab.clone().node("liar", 1, 1);
        let nodes = &mut lab.snapshot.cluster.nodes;
        nodes.get_mut("liar").expect("there").system_uuid = "UUID-n1".into();
    });
    planted(&base, CheckRule::Identity, &|lab, _| {
        let machine = lab.snapshot.machines.get_mut("n1").expect("n1");
        machine.remembered = Some("uuid-before".into());
    });
    planted(&base, CheckRule::Identity, &|lab, _| {
        let machine = lab.snapshot.machines.get_mut("n1").expect("n1");
        machine.node = None;
    });
    planted(&base, CheckRule::Node, &|_, action| {
        action.target.node = Some(NodeRef {
            name: "other".into(),
            uid: "uid-other".into(),
        });
    });
    for reason in [
        Reason::Unfinished,
        Reason::NoNode,
        Reason::Failed {
            message: "no".into(),
        },
        Reason::NotWanted,
    ] {
        planted(&base, CheckRule::Working, &|_, action| {
            action.reason = reason.clone();
        });
    }
    planted(&base, CheckRule::Disabled, &|lab, _| {
        lab.policy.scale_down.enabled = false;
    });
    planted(&base, CheckRule::Disabled, &|lab, _| {
        edit_node(lab, |node| {
            let key = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
            node.annotations.insert(key.into(), "true".into());
        });
    });
    planted(&base, CheckRule::Timer, &|lab, action| {
        action.reason = Reason::Unneeded {
            since: lab.now - Span::minutes(9),
            utilization_permille: 0,
        };
    });
    planted(&base, CheckRule::Timer, &|lab, _| {
        edit_node(lab, |node| node.ready.status = ReadyStatus::False);
    });
    planted(&base, CheckRule::Timer, &|lab, _| {
        let now = lab.now;
        edit_node(lab, |node| node.created = now);
    });
    planted(&base, CheckRule::Utilization, &|lab, action| {
        *lab = lab.clone().bound("more", "n1", 901, 1);
        let key = model::cluster::ObjectKey::new("default", "more");
        action.precondition.pods.push(key);
    });
    planted(&base, CheckRule::PoolMin, &|lab, _| {
        lab.policy.pools.get_mut("p").expect("p").min = 1;
    });
    planted(&base, CheckRule::Parallel, &|lab, _| {
        lab.policy.scale_down.max_parallel = 0;
    });
    planted(&base, CheckRule::Parallel, &|lab, _| {
        lab.policy.scale_down.max_parallel_drain = 0;
    });
}

#[test]
fn no_pod_is_evicted_that_may_not_be_or_has_no_place() {
    let base = removal();
    let shape = |lab: &mut Lab, change: &dyn Fn(&mut model::scheduling::PodShape)| {
        *lab = lab.clone().shape("web", change);
    };
    planted(&base, CheckRule::BlockingPod, &|lab, _| {
        shape(lab, &|shape| shape.owner = None);
    });
    planted(&base, CheckRule::BlockingPod, &|lab, _| {
        shape(lab, &|shape| {
            let key = "cluster-autoscaler.kubernetes.io/safe-to-evict";
            shape.annotations.insert(key.into(), "false".into());
        });
    });
    planted(&base, CheckRule::BlockingPod, &|lab, _| {
        shape(lab, &|shape| {
            shape.volumes.push(Volume::EmptyDir("x".into()));
        });
    });
    planted(&base, CheckRule::Stranger, &|lab, _| {
        *lab = lab.clone().bound("late", "n1", 10, 1);
    });
    planted(&base, CheckRule::Budget, &|lab, _| {
        *lab = lab.clone().budget("b", "web", 0);
    });
    planted(&base, CheckRule::Budget, &|lab, _| {
        *lab = lab.clone().budget("b", "web", 1).budget("c", "web", 1);
    });
    planted(&base, CheckRule::Landing, &|_, action| {
        action.precondition.landing.clear();
    });
    planted(&base, CheckRule::Landing, &|_, action| {
        for node in action.precondition.landing.values_mut() {
            *node = "n1".into();
        }
    });
    let other = |lab: &mut Lab, change: &dyn Fn(&mut model::cluster::Node)| {
        *lab = lab.clone().edit_node("other", change);
    };
    planted(&base, CheckRule::Landing, &|lab, _| {
        other(lab, &|node| node.ready.status = ReadyStatus::Unknown);
    });
    planted(&base, CheckRule::Landing, &|lab, _| {
        other(lab, &|node| node.unschedulable = true);
    });
    planted(&base, CheckRule::Landing, &|lab, _| {
        other(lab, &|node| node.taints.push(Taint::no_schedule("x", "")));
    });
    planted(&base, CheckRule::Landing, &|lab, _| {
        other(lab, &|node| node.allocatable.cpu_milli = 99);
    });
    planted(&base, CheckRule::Landing, &|lab, _| {
        shape(lab, &|shape| {
            shape.node_selector.insert("k".into(), "v".into());
        });
    });
    for averse in ["web", "holder"] {
        planted(&base, CheckRule::Landing, &|lab, _| {
            let app = if averse == "web" { "holder" } else { "web" };
            *lab = lab
                .clone()
                .bound("holder", "other", 1, 1)
                .shape(averse, |shape| {
                    shape.pod_anti_affinity.push(model::scheduling::PodTerm {
                        selector: Some(model::scheduling::LabelSelector {
                            labels: [("app".into(), app.into())].into(),
                            ..Default::default()
                        }),
                        topology_key: "kubernetes.io/hostname".into(),
                        ..Default::default()
                    });
                });
        });
    }
    planted(&base, CheckRule::Landing, &|lab, _| {
        let port = || HostPort {
            protocol: "TCP".into(),
            ip: "".into(),
            port: 80,
        };
        shape(lab, &|shape| shape.host_ports.push(port()));
        *lab = lab
            .clone()
            .bound("holder", "other", 1, 1)
            .shape("holder", |shape| shape.host_ports.push(port()));
    });
}

#[test]
fn what_never_worked_is_removed_with_care_too() {
    let failed = |lab: Lab| {
        let at = lab.now;
        lab.edit_machine("m", |machine| {
            machine.failure = Some(Failure {
                advice: None,
                step: Step::Join,
                message: "no".into(),
                at,
                transient: true,
                host: None,
            });
        })
    };
    let base = decided(failed(pool().machine("m", "p", "one", Step::Join)));
    planted(&base, CheckRule::Ours, &|lab, _| {
        let machine = lab.snapshot.machines.get_mut("m").expect("m");
        machine.vm.as_mut().expect("its VM").marked = false;
    });
    planted(&base, CheckRule::Undrained, &|lab, _| {
        lab.register("m", false);
    });
    let dropped = failed(pool().machine("m", "p", "one", Step::Join));
    let base = decided(dropped.edit_machine("m", |machine| {
        machine.vm = None;
        machine.step = Some((Step::Clone, machine.mark.created));
    }));
    assert_eq!(base.1.kind, Kind::DropIntent);
    planted(&base, CheckRule::Intent, &|lab, _| lab.clone_vm("m"));
}

#[test]
fn releasing_deleting_and_clearing_have_their_rules() {
    let released = pool()
        .ours("n1", "p", "one")
        .bound("web", "n1", 1900, 1)
        .edit_node("n1", |node| {
            node.taints.push(Taint::no_schedule(LEAVING_TAINT, "0"));
        });
    let base = decided(released);
    assert_eq!(base.1.kind, Kind::Release);
    planted(&base, CheckRule::Leaving, &|lab, _| {
        edit_node(lab, |node| node.taints.clear());
    });
    planted(&base, CheckRule::Leaving, &|lab, _| {
        *lab = lab.clone().edit_machine("n1", |machine| {
            machine.busy = Some(Busy::Down);
        });
    });
    let mut orphan = pool().node("n1", 1, 1).edit_node("n1", |node| {
        node.labels
            .insert("pve-autoscaler.io/pool".into(), "p".into());
        node.annotations.insert(
            "pve-autoscaler.io/machine".into(),
            "home/9500/uuid-n1".into(),
        );
        node.ready.status = ReadyStatus::Unknown;
    });
    orphan.turn();
    let base = decided(orphan.after(Span::minutes(5)));
    assert_eq!(base.1.kind, Kind::DeleteNode);
    planted(&base, CheckRule::VmGone, &|lab, _| {
        edit_node(lab, |node| node.ready.status = ReadyStatus::True);
    });
    planted(&base, CheckRule::VmGone, &|lab, _| {
        region(lab).vms.insert(9500, Vm::default());
    });
    planted(&base, CheckRule::VmGone, &|lab, _| {
        *lab = lab
            .clone()
            .machine("m", "p", "one", Step::Agent)
            .edit_machine("m", |machine| {
                machine.vm.as_mut().expect("its VM").uuid = Some("UUID-n1".into());
            });
    });
    let mut clone = pool()
        .machine("m", "p", "one", Step::Clone)
        .edit_machine("m", |machine| {
            machine.vm = Some(MachineVm {
                lock: Some("clone".into()),
                ..MachineVm::default()
            });
        });
    region(&mut clone)
        .vms
        .get_mut(&9000)
        .expect("there")
        .ownership = Some(Ownership::Unmarked);
    clone.memory = clone.decide().memory;
    let base = decided(clone.after(Span::minutes(5)));
    assert_eq!(base.1.kind, Kind::DeletePlaceholder);
    planted(&base, CheckRule::Placeholder, &|lab, _| {
        *lab = lab
            .clone()
            .edit_machine("m", |machine| machine.intended = false);
    });
    planted(&base, CheckRule::Placeholder, &|lab, _| {
        *lab = lab.clone().edit_machine("m", |machine| {
            machine.vm.as_mut().expect("its VM").lock = None;
        });
    });
    // What a removal left is only what a removal of ours left.
    planted(&base, CheckRule::Placeholder, &|lab, _| {
        *lab = lab.clone().edit_machine("m", |machine| {
            machine.vm.as_mut().expect("its VM").lock = Some("destroyed".into());
        });
    });
}

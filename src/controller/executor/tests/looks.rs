//! Every action looks before it begins: what the look forbids leaves no trace in the journal, and what comes
//! between the drain and the end of the VM is seen.

use std::time::Duration;

use serde_json::{Value, json};

use super::stop::Stop;
use super::tests::{Lab, lab, simulate};
use super::*;
use crate::controller::journal::UNKNOWN_TEMPLATE;
use crate::model::policy::LEAVING_TAINT;
use crate::model::time::Span;
use crate::pve::LATE_CALL;
use crate::pve::transport::memory::RouterTransport;
use crate::pve::transport::{CallEffect, CallError};
use crate::sim::pve::AdminAct;

const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/default/deployments/web";

impl Lab {
    fn vmid(&self) -> u32 {
        self.removals[0].target.vmid
    }

    fn machine(&self) -> Arc<str> {
        self.removals[0].target.machine.clone()
    }

    fn administer(&self, act: &AdminAct) {
        self.world.pve.administer(act).expect("it is there");
    }

    fn edit(&self, key: &str, value: Option<&str>) {
        self.administer(&AdminAct::Configure {
            vmid: self.vmid(),
            key: key.to_owned(),
            value: value.map(str::to_owned),
        });
    }

    /// Does something else to the machine than to take it down.
    async fn perform(&self, kind: Kind) -> Result<(), Failure> {
        let mut action = self.removals[0].clone();
        action.kind = kind;
        let entry = self.tools.journal.get(&self.machine());
        let ended = perform(self.tools.clone(), action, entry);
        Box::pin(ended).await.result
    }

    fn evictions_of_web(&self) -> usize {
        let (_, lines) = self.world.kube.trace();
        let asked = lines.iter().filter(|line| line.contains("/eviction"));
        asked.count()
    }

    fn clones(&self) -> usize {
        let requests = self.world.pve.requests();
        let clones = requests.iter().filter(|seen| seen.path.ends_with("/clone"));
        clones.count()
    }

    /// Changes that were made to the VM other than by an administrator.
    fn changes(&self) -> usize {
        let changes = self.world.pve.changes();
        let ours = changes
            .iter()
            .filter(|change| change.vmid == self.vmid() && change.by != "administrator");
        ours.count()
    }
}

#[test]
fn a_sweep_that_finds_the_vm_alive_leaves_no_step_behind() {
    for kind in [Kind::DropIntent, Kind::DeletePlaceholder] {
        simulate(async {
            let lab = lab("").await;
            let before = lab.changes();
            let failure = lab.perform(kind.clone()).await.expect_err("it is alive");
            assert!(failure.transient, "{failure:?}");
            lab.in_service(0).await;
            assert_eq!(lab.changes(), before);
        });
    }
}

#[test]
fn what_lost_its_notes_under_a_lock_is_no_placeholder_of_a_clone() {
    simulate(async {
        let lab = lab("").await;
        lab.edit("description", Some("mine"));
        lab.edit("lock", Some("clone"));
        let before = lab.changes();
        let ended = lab.perform(Kind::DeletePlaceholder).await;
        assert!(ended.is_err_and(|failure| failure.message.contains("left alone")));
        lab.in_service(0).await;
        assert_eq!(lab.changes(), before);
    });
}

#[test]
fn a_removal_that_stops_before_the_cordon_leaves_no_step_behind() {
    let edits = [
        ("description", Some("mine"), "carries no mark"),
        (
            "smbios1",
            Some("uuid=0badcafe-0000-4000-8000-000000000001"),
            "0badcafe",
        ),
        ("smbios1", None, "is gone now"),
        ("protection", Some("1"), "protected"),
    ];
    for (key, value, why) in edits {
        simulate(async {
            let lab = lab("").await;
            lab.edit(key, value);
            let before = lab.changes();
            let failure = lab.remove(0).await.0.expect_err("it must not go");
            assert!(failure.message.contains(why), "{key}: {failure:?}");
            lab.in_service(0).await;
            assert_eq!(lab.changes(), before);
            // Whoever plans sees it with the next look at the region.
            let doubted = lab.tools.doubts.of(&lab.removals[0].target.region);
            assert_eq!(doubted.contains(&lab.vmid()), key != "protection");
        });
    }
}

#[test]
fn a_vm_that_vanishes_is_not_made_again_with_what_was_its() {
    for step in [Step::Clone, Step::Configure, Step::Join, Step::Initialize] {
        simulate(async {
            let lab = lab("").await;
            let set = |entry: &mut JournalEntry| entry.step = step;
            lab.tools.journal.update(&lab.machine(), set).expect("kept");
            lab.administer(&AdminAct::Destroy { vmid: lab.vmid() });
            let clones = lab.clones();
            let failure = lab.perform(Kind::Continue).await.expect_err("it is gone");
            assert!(failure.transient, "{failure:?}");
            assert_eq!(lab.clones(), clones, "{step:?}");
            assert_eq!(lab.perform(Kind::DropIntent).await, Ok(()));
            assert_eq!(lab.tools.journal.get(&lab.machine()), None);
        });
    }
}

#[test]
fn a_machine_known_by_its_mark_alone_is_dropped_with_its_vm() {
    for drain in [None, Some(true)] {
        simulate(async {
            let lab = lab("").await;
            // As another host knows it that took over, and began to take it down.
            let lost = |entry: &mut JournalEntry| {
                entry.spec.template_vmid = UNKNOWN_TEMPLATE;
                entry.forget_vm();
                entry.step = Step::Destroy;
            };
            lab.tools
                .journal
                .update(&lab.machine(), lost)
                .expect("kept");
            lab.administer(&AdminAct::Destroy { vmid: lab.vmid() });
            let kind = drain.map_or(Kind::DropIntent, |drain| Kind::Remove { drain });
            assert_eq!(lab.perform(kind).await, Ok(()), "{drain:?}");
            assert_eq!(lab.tools.journal.get(&lab.machine()), None);
            let asked = lab.world.pve.requests().into_iter();
            let wrong: Vec<_> = asked.filter(|seen| seen.status == Some(400)).collect();
            assert!(wrong.is_empty(), "{wrong:?}");
        });
    }
}

/// The node of a VM that is gone is Ready for forty seconds yet; only then is it deleted.
#[test]
fn the_node_of_a_vm_that_is_gone_stays_as_long_as_it_is_ready() {
    simulate(async {
        let lab = lab("").await;
        lab.administer(&AdminAct::Destroy { vmid: lab.vmid() });
        let (ended, took) = lab.remove(0).await;
        assert_eq!(ended, Ok(()));
        assert!(took >= Duration::from_secs(20), "{took:?}");
        lab.gone(0);
    });
}

/// A removal has switched the VM off, and with that an edit of its UUID came into force: the node is known by the UUID that the VM
/// had. A VM that runs is known by the UUID that it has.
#[test]
fn a_vm_that_a_removal_switched_off_is_known_by_the_uuid_it_had() {
    let other = Some("uuid=0badcafe-0000-4000-8000-000000000001");
    for off in [true, false] {
        simulate(async {
            let lab = lab("").await;
            let begun = |entry: &mut JournalEntry| entry.step = Step::Shutdown;
            lab.tools
                .journal
                .update(&lab.machine(), begun)
                .expect("kept");
            if off {
                lab.administer(&AdminAct::PowerOff { vmid: lab.vmid() });
                tokio::time::sleep(Duration::from_mins(1)).await;
            }
            lab.edit("smbios1", other);
            let (ended, _) = lab.remove(0).await;
            if off {
                assert_eq!(ended, Ok(()));
                return lab.gone(0);
            }
            let failure = ended.expect_err("nobody knows what runs there");
            assert!(failure.message.contains("0badcafe"), "{failure:?}");
            assert!(lab.world.pve.vm(lab.vmid()).is_some_and(|vm| vm.running));
            assert_eq!(lab.evictions_of_web(), 0);
        });
    }
}

/// PVE tells a token of a VM that is not there that it lacks a privilege. While the VM is there, that is what is wrong. It finds an executor that
/// passes on whatever PVE says, and one that takes every refusal for a VM that is gone.
#[test]
fn a_step_whose_vm_was_destroyed_by_hand_failed_for_that_alone() {
    simulate(async {
        let lab = lab("").await;
        let entry = lab.tools.journal.get(&lab.machine()).expect("kept");
        let words = format!(
            "Permission check failed (/vms/{}, VM.GuestAgent.Unrestricted)",
            lab.vmid()
        );
        let ended = async || {
            let work = up::open(lab.tools.clone(), &entry, Step::Agent).expect("it is open");
            let refused = CallError {
                status: Some(403),
                ..CallError::new(CallEffect::Refused, words.as_str())
            };
            let step = async { Err::<(), Stop>(refused.into()) };
            let ended = work.attempt(Step::Agent, Span::minutes(1), step).await;
            ended.expect_err("it was refused")
        };
        let there = ended().await;
        assert!(
            there.message.contains("Permission check failed"),
            "{there:?}"
        );
        assert!(!there.transient, "{there:?}");
        lab.administer(&AdminAct::Destroy { vmid: lab.vmid() });
        let gone = ended().await;
        assert_eq!(
            &*gone.message,
            "its VM is gone; another machine takes its place"
        );
        assert_eq!((gone.transient, gone.advice), (true, None));
    });
}

/// The entry of a machine under way was lost and is made anew from its mark. It finds a journal that waits for the machine's node, before which
/// nobody knows a VM whose mark is taken out, and one that takes any UUID.
#[test]
fn an_entry_made_anew_has_the_uuid_of_a_machine_under_way() {
    simulate(async {
        let lab = lab("").await;
        let turn = lab.world.turns.borrow().clone().expect("it took turns");
        let seen = turn.snapshot.machines[&lab.machine()].clone();
        let uuid = seen.vm.as_ref().and_then(|vm| vm.uuid.clone());
        assert!(uuid.is_some() && seen.node.is_some(), "{seen:?}");
        for (step, marked, has_node, kept) in [
            (Step::Register, true, false, true),
            (Step::Register, false, false, false),
            (Step::Done, true, false, false),
            (Step::Done, true, true, true),
        ] {
            let lost = |entry: &mut JournalEntry| entry.uuid = None;
            let journal = &lab.tools.journal;
            journal.update(&lab.machine(), lost).expect("kept");
            let mut machine = seen.clone();
            machine.remembered = None;
            machine.step = Some((step, turn.at));
            machine.node = machine.node.filter(|_| has_node);
            if let Some(vm) = &mut machine.vm {
                vm.marked = marked;
            }
            let machines = [(lab.machine(), machine)].into();
            journal.remember_uuids(&machines).expect("kept");
            let entry = journal.get(&lab.machine()).expect("kept");
            let wanted = uuid.clone().filter(|_| kept);
            assert_eq!(entry.uuid, wanted, "{step:?} {marked} {has_node}");
        }
    });
}

/// Somebody deleted the Node while its VM runs. Its pods were not evicted and may run on.
#[test]
fn a_vm_whose_node_is_gone_runs_on_unless_a_removal_of_ours_came_that_far() {
    for (step, vm_is_off) in [(Step::Done, false), (Step::Shutdown, true)] {
        simulate(async {
            let lab = lab("").await;
            let set = |entry: &mut JournalEntry| entry.step = step;
            lab.tools.journal.update(&lab.machine(), set).expect("kept");
            if vm_is_off {
                lab.administer(&AdminAct::PowerOff { vmid: lab.vmid() });
                tokio::time::sleep(Duration::from_mins(1)).await;
            }
            lab.api("DELETE", &lab.node_path(0), json!({})).await;
            let (ended, _) = lab.remove(0).await;
            if vm_is_off {
                assert_eq!(ended, Ok(()));
                return lab.gone(0);
            }
            let failure = ended.expect_err("its pods may run on");
            assert!(failure.transient, "{failure:?}");
            let why = "is gone, and not by us";
            assert!(failure.message.contains(why), "{failure:?}");
            assert!(lab.world.pve.vm(lab.vmid()).is_some_and(|vm| vm.running));
            let entry = lab.tools.journal.get(&lab.machine()).expect("kept");
            assert_eq!(entry.step, Step::Done);
        });
    }
}

#[test]
fn a_machine_whose_vm_and_node_are_gone_is_forgotten() {
    simulate(async {
        let lab = lab("").await;
        lab.administer(&AdminAct::Destroy { vmid: lab.vmid() });
        tokio::time::sleep(Duration::from_mins(1)).await;
        lab.api("DELETE", &lab.node_path(0), json!({})).await;
        assert_eq!(lab.remove(0).await.0, Ok(()));
        lab.gone(0);
    });
}

/// The machine's name and its VM are those of the plan, and the node has registered anew since.
#[test]
fn a_node_that_is_not_the_one_of_the_plan_stays() {
    simulate(async {
        let mut lab = lab("").await;
        let planned = lab.removals[0].target.node.as_mut();
        planned.expect("a node").uid = "another".into();
        let kinds = [
            Kind::Remove { drain: true },
            Kind::Remove { drain: false },
            Kind::DeleteNode,
        ];
        for kind in kinds {
            let failure = lab.perform(kind).await.expect_err("it is another");
            let why = "is not the one it was when this was planned";
            assert!(failure.message.contains(why), "{failure:?}");
            lab.in_service(0).await;
        }
        assert_eq!(lab.evictions_of_web(), 0);
    });
}

/// Whoever has a token of a machine that is gone could join a node of that name.
#[test]
fn the_token_of_a_machine_that_goes_is_deleted_whichever_way_it_goes() {
    let kinds = [
        Kind::Remove { drain: true },
        Kind::DropIntent,
        Kind::DeletePlaceholder,
    ];
    for kind in kinds {
        simulate(async {
            let lab = lab("").await;
            let entry = lab.tools.journal.get(&lab.machine()).expect("an entry");
            let token = entry.spec.mark.token;
            assert!(!token.is_empty(), "it joined by a token");
            let name = format!("bootstrap-token-{token}");
            let is_there = || {
                let secrets = lab.world.kube.objects("v1", "Secret");
                secrets
                    .iter()
                    .any(|secret| secret["metadata"]["name"] == name)
            };
            if !is_there() {
                let secret = json!({
                    "apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
                    "metadata": {"name": name, "namespace": "kube-system"},
                });
                let path = "/api/v1/namespaces/kube-system/secrets";
                lab.api("POST", path, secret).await;
            }
            assert!(is_there());
            if !matches!(kind, Kind::Remove { .. }) {
                lab.administer(&AdminAct::Destroy { vmid: lab.vmid() });
            }
            assert_eq!(lab.perform(kind.clone()).await, Ok(()), "{kind:?}");
            assert!(!is_there(), "{kind:?}");
            assert_eq!(lab.tools.journal.get(&lab.machine()), None, "{kind:?}");
        });
    }
}

#[test]
fn a_node_that_is_released_takes_pods_once_no_shutdown_can_come() {
    for (step, asked) in [
        (Step::Drain, false),
        (Step::Detach, false),
        (Step::Drain, true),
    ] {
        simulate(async {
            let lab = lab("").await;
            let now = lab.tools.clock.now();
            let node = lab.removals[0].target.node.clone().expect("a node");
            let cordoned = lab.tools.kube.mark_leaving(&node, now).await;
            cordoned.expect("it is cordoned");
            let begun = |entry: &mut JournalEntry| {
                entry.step = step;
                entry.power_off_sent = asked.then_some(now);
            };
            lab.tools
                .journal
                .update(&lab.machine(), begun)
                .expect("kept");
            let began = tokio::time::Instant::now();
            assert_eq!(lab.perform(Kind::Release).await, Ok(()));
            let waited =
                began.elapsed() >= LATE_CALL.to_std().saturating_sub(Duration::from_secs(5));
            assert_eq!(waited, asked, "{:?}", began.elapsed());
            lab.in_service(0).await;
        });
    }
}

/// A clone has its template's protection until its first configuration write, which failed here.
#[test]
fn a_vm_that_its_template_protects_goes() {
    simulate(async {
        let mut lab = lab("").await;
        let way = RouterTransport::new(lab.world.pve.router_as("root@pam"));
        let client = crate::pve::Client::new(Arc::new(way));
        let regions = lab.tools.pve.values_mut();
        regions.for_each(|known| *known = client.clone());
        lab.edit("protection", Some("1"));
        let unwritten = |entry: &mut JournalEntry| entry.configured = false;
        lab.tools
            .journal
            .update(&lab.machine(), unwritten)
            .expect("kept");
        assert_eq!(lab.remove(0).await.0, Ok(()));
        lab.gone(0);
    });
}

/// A VM with the UUID of the machine, and what else it has.
fn twin(lab: &Lab, vmid: u32, name: &str, template: bool) -> AdminAct {
    let uuid = lab.world.pve.vm(lab.vmid()).expect("it is there").uuid;
    AdminAct::AddMachine(crate::sim::pve::MachineSpec {
        vmid,
        host: "pve1".to_owned(),
        container: false,
        template,
        running: false,
        storage: "shared".to_owned(),
        disk: 1 << 30,
        disk_used: 1 << 20,
        cloudinit: false,
        pool: None,
        config: [
            ("name".to_owned(), name.to_owned()),
            ("smbios1".to_owned(), format!("uuid={uuid}")),
        ]
        .into(),
    })
}

/// Its VM was restored under another VMID, in our range or with the machine's name. A template cannot run, and a container has no UUID.
#[test]
fn a_node_is_deleted_when_no_vm_is_behind_it() {
    type Beside = fn(&Lab) -> AdminAct;
    let name = |lab: &Lab| lab.machine().to_string();
    let beside: [(Option<Beside>, bool); 5] = [
        (None, true),
        (Some(|lab| twin(lab, 9115, "restored", false)), false),
        (Some(|lab| twin(lab, 500, &lab.machine(), false)), false),
        (Some(|lab| twin(lab, 500, "restored", false)), true),
        (Some(|lab| twin(lab, 9115, "restored", true)), true),
    ];
    for (number, (act, goes)) in beside.into_iter().enumerate() {
        simulate(async {
            let lab = lab("").await;
            let ready = lab
                .perform(Kind::DeleteNode)
                .await
                .expect_err("it is Ready");
            assert!(ready.message.contains("is Ready"), "{ready:?}");
            lab.administer(&AdminAct::PowerOff { vmid: lab.vmid() });
            tokio::time::sleep(Duration::from_mins(1)).await;
            let off = lab.perform(Kind::DeleteNode).await.expect_err("it is off");
            assert!(off.message.contains("it is not gone"), "{off:?}");
            if let Some(act) = act {
                lab.administer(&act(&lab));
            }
            lab.administer(&AdminAct::Destroy { vmid: lab.vmid() });
            let ended = lab.perform(Kind::DeleteNode).await;
            assert_eq!(ended.is_ok(), goes, "{number}: {ended:?}");
            let nodes = lab.world.kube.objects("v1", "Node");
            let there = nodes
                .iter()
                .any(|node| node["metadata"]["name"] == name(&lab));
            assert_eq!(there, !goes, "{number}");
        });
    }
}

/// What is on a host without power cannot run: its word is not waited for.
#[test]
fn a_node_goes_whose_vm_is_not_listed_when_its_host_is_off() {
    simulate(async {
        let lab = lab("").await;
        let host = lab.removals[0].target.host.to_string();
        lab.administer(&AdminAct::Destroy { vmid: lab.vmid() });
        lab.administer(&AdminAct::HostOnline {
            host,
            online: false,
        });
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(lab.perform(Kind::DeleteNode).await, Ok(()));
    });
}

/// A backup holds the VM after the drain. Somebody uncordons the node meanwhile and cordons it again, when a pod has
/// come.
#[test]
fn a_pod_that_comes_while_a_lock_is_waited_for_is_not_lost() {
    simulate(async {
        let lab = lab("").await;
        let lock = |lock: Option<&str>| AdminAct::Lock {
            vmid: lab.vmid(),
            lock: lock.map(str::to_owned),
        };
        lab.administer(&lock(Some("backup")));
        let comes = async {
            let clean = json!({"spec": {"unschedulable": null, "taints": null}});
            lab.api("PATCH", &lab.node_path(0), clean).await;
            tokio::time::sleep(Duration::from_secs(20)).await;
            let cordoned = json!({"spec": {"unschedulable": true}});
            lab.api("PATCH", &lab.node_path(0), cordoned).await;
            lab.administer(&lock(None));
        };
        let (ended, _) = lab.remove_while(60, comes).await;
        let failure = ended.expect_err("a pod runs there");
        assert!(failure.message.contains("pod default/web-"), "{failure:?}");
        let deployment = lab.api("GET", DEPLOYMENT, Value::Null).await;
        assert_eq!(deployment["status"]["readyReplicas"], 1, "{deployment}");
        assert!(lab.world.pve.vm(lab.vmid()).is_some_and(|vm| vm.running));
        let entry = lab.tools.journal.get(&lab.machine()).expect("kept");
        assert!(entry.step < Step::Shutdown, "{:?}", entry.step);
    });
}

/// A second node that shows the VM's UUID comes while a lock is waited for: nobody knows what runs there.
#[test]
fn a_second_node_that_comes_while_a_lock_is_waited_for_saves_the_vm() {
    simulate(async {
        let lab = lab("").await;
        let lock = |lock: Option<&str>| AdminAct::Lock {
            vmid: lab.vmid(),
            lock: lock.map(str::to_owned),
        };
        lab.administer(&lock(Some("backup")));
        let uuid = lab.world.pve.vm(lab.vmid()).expect("it is there").uuid;
        let comes = async {
            let node = json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": "stranger"},
                "status": {"nodeInfo": {"systemUUID": uuid}},
            });
            lab.api("POST", "/api/v1/nodes", node).await;
            tokio::time::sleep(Duration::from_secs(20)).await;
            lab.administer(&lock(None));
        };
        let (ended, _) = lab.remove_while(60, comes).await;
        let failure = ended.expect_err("there is a second node");
        assert!(failure.message.contains("stranger"), "{failure:?}");
        assert!(lab.world.pve.vm(lab.vmid()).is_some_and(|vm| vm.running));
    });
}

/// A backup holds the VM after the drain, and somebody takes the node back meanwhile, for good.
#[test]
fn a_node_that_is_uncordoned_while_a_lock_is_waited_for_is_in_service_again() {
    simulate(async {
        let lab = lab("").await;
        let lock = |lock: Option<&str>| AdminAct::Lock {
            vmid: lab.vmid(),
            lock: lock.map(str::to_owned),
        };
        lab.administer(&lock(Some("backup")));
        let back = async {
            let open = json!({"spec": {"unschedulable": null}});
            lab.api("PATCH", &lab.node_path(0), open).await;
            tokio::time::sleep(Duration::from_secs(5)).await;
            lab.administer(&lock(None));
        };
        let (ended, _) = lab.remove_while(60, back).await;
        let failure = ended.expect_err("somebody wants it back");
        assert!(failure.message.contains("uncordoned"), "{failure:?}");
        assert!(lab.world.pve.vm(lab.vmid()).is_some_and(|vm| vm.running));
        // The removal that failed leaves nothing begun: one that is decided on anew drains from its start.
        lab.in_service(0).await;
    });
}

/// PVE's proxy gives up every call that asks a VM to shut down.
async fn give_up_shutdowns(
    request: axum::extract::Request,
    next: axum::middleware::Next,
) -> axum::response::Response {
    if !request.uri().path().ends_with("/status/shutdown") {
        return next.run(request).await;
    }
    let mut given_up = axum::response::Response::new(axum::body::Body::empty());
    *given_up.status_mut() = http::StatusCode::from_u16(596).expect("a status");
    given_up
}

/// Nobody knows whether the VM was asked to shut down, and somebody takes the node back.
#[test]
fn a_node_takes_pods_again_when_no_shutdown_can_come_any_more() {
    simulate(async {
        let mut lab = lab("").await;
        let way = axum::middleware::from_fn(give_up_shutdowns);
        let way = RouterTransport::new(lab.world.pve_way().layer(way));
        let client = crate::pve::Client::new(Arc::new(way));
        let regions = lab.tools.pve.values_mut();
        regions.for_each(|known| *known = client.clone());
        let back = async {
            let open = json!({"spec": {"unschedulable": null}});
            lab.api("PATCH", &lab.node_path(0), open).await;
            tokio::time::sleep(LATE_CALL.to_std().saturating_sub(Duration::from_secs(10))).await;
            let node = lab.api("GET", &lab.node_path(0), Value::Null).await;
            let taints = node["spec"]["taints"].as_array().into_iter().flatten();
            let leaving = taints.filter(|taint| taint["key"] == LEAVING_TAINT);
            assert_eq!(leaving.count(), 1, "a shutdown may still come: {node}");
        };
        let (ended, _) = lab.remove_while(60, back).await;
        let failure = ended.expect_err("somebody wants it back");
        assert!(failure.message.contains("uncordoned"), "{failure:?}");
        lab.in_service(0).await;
    });
}

#[test]
fn a_node_is_wanted_back_that_is_open_and_ready_and_was_once_in_service() {
    use crate::model::cluster::ReadyStatus;
    use crate::model::policy::STARTUP_TAINT;
    use crate::model::scheduling::Taint;

    simulate(async {
        let lab = lab("").await;
        let open = lab.tools.kube.node(&lab.machine()).await;
        let open = open.expect("it answers").expect("it is there");
        assert!(super::drain::wanted_back(&open));
        let with = |change: &dyn Fn(&mut crate::model::cluster::Node)| {
            let mut node = open.clone();
            change(&mut node);
            super::drain::wanted_back(&node)
        };
        assert!(!with(&|node| node.unschedulable = true));
        assert!(!with(&|node| node.ready.status = ReadyStatus::Unknown));
        let taint = || Taint::no_schedule(STARTUP_TAINT, "");
        assert!(!with(&|node| node.taints.push(taint())));
    });
}

/// The template's disk is smaller than the type's.
#[test]
fn a_machines_disk_is_as_large_as_its_type_says() {
    simulate(async {
        let lab = lab("").await;
        let vm = lab.world.pve.vm(lab.vmid()).expect("it is there");
        let disks = vm.config.values().filter(|value| value.contains("size="));
        let disks: Vec<&String> = disks.collect();
        assert!(
            disks.iter().any(|disk| disk.contains("size=20G")),
            "{disks:?}"
        );
    });
}

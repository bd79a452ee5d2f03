//! Hosts on which machines fail: the pool goes on with others.

use super::lab::{Lab, lab, made, verdict};

use model::action::Kind;
use model::decision::Decision;
use model::region::{Failure, Machine, Step};
use model::report::PodVerdict;
use model::time::Span;

/// A machine failed on a host in a step, a minute ago.
fn failed(lab: Lab, name: &str, host: &'static str, step: Step) -> Lab {
    let at = lab.now;
    lab.machine(name, "p", "one", step)
        .edit_machine(name, |machine: &mut Machine| {
            machine.host = host.into();
            if step <= Step::Clone {
                machine.vm = None;
            }
            machine.failure = Some(Failure {
                advice: None,
                step,
                message: "storage 'fast' is not online".into(),
                at,
                transient: false,
                host: None,
            });
        })
        .after(Span::minutes(1))
}

fn world() -> Lab {
    lab()
        .kind("one", 2, 4096)
        .pool("p", &["one"])
        .pod("web", 1500, 2000)
}

/// The failed machine was removed.
fn forget(lab: &mut Lab) {
    let machines = std::mem::take(&mut lab.snapshot.machines);
    let region = lab.snapshot.regions.get_mut("home").expect("home");
    for machine in machines.into_values() {
        region.vms.remove(&machine.mark.vmid);
    }
}

fn host_of_new(decision: &Decision) -> Option<String> {
    let mut new = decision.plan.iter();
    let new = new.find(|action| matches!(action.kind, Kind::Create(_)));
    new.map(|action| action.target.host.to_string())
}

#[test]
fn a_clone_that_fails_keeps_the_pool_from_that_host_alone() {
    let mut lab = world();
    assert_eq!(host_of_new(&lab.decide()).as_deref(), Some("pve1"));
    for (name, host, next) in [("a", "pve1", "pve2"), ("b", "pve2", "pve3")] {
        lab = failed(lab, name, host, Step::Clone);
        let decision = lab.turn();
        assert!(decision.report.pools["p"].backoff_until.is_none());
        assert_eq!(host_of_new(&decision).as_deref(), Some(next));
        forget(&mut lab);
    }
    lab = failed(lab, "c", "pve3", Step::Start);
    let decision = lab.turn();
    assert!(made(&decision).is_empty());
    // The first of them to be tried again is pve1.
    let until = decision.report.pools["p"]
        .backoff_until
        .expect("all hosts wait");
    let message = decision.report.pools["p"].backoff_message.as_ref();
    assert!(
        message.is_some_and(|text| text.starts_with("a: storage")),
        "{message:?}"
    );
    assert!(matches!(verdict(&decision, "web"), PodVerdict::Held { .. }));
    forget(&mut lab);
    lab.now = until;
    let mut lab = lab.after(Span::ZERO);
    assert_eq!(host_of_new(&lab.decide()).as_deref(), Some("pve1"));
    assert!(lab.turn().report.pools["p"].backoff_until.is_none());
}

/// PVE shows a VM on its template's host for a moment after its clone for another host has ended.
#[test]
fn a_failure_counts_against_the_host_where_it_happened() {
    let lab = failed(world(), "a", "pve1", Step::Start);
    let mut lab = lab.edit_machine("a", |machine| {
        let failure = machine.failure.as_mut().expect("it failed");
        failure.host = Some("pve2".into());
    });
    lab.turn();
    let hosts: Vec<&str> = lab.memory.host_backoff["p"]
        .keys()
        .map(|host| &**host)
        .collect();
    assert_eq!(hosts, ["pve2"]);
}

#[test]
fn a_host_where_machines_do_not_join_is_taken_last() {
    let mut lab = failed(world(), "a", "pve1", Step::Join);
    let decision = lab.turn();
    let until = decision.report.pools["p"]
        .backoff_until
        .expect("the pool waits");
    forget(&mut lab);
    lab.now = until;
    let mut lab = lab.after(Span::ZERO);
    assert_eq!(host_of_new(&lab.decide()).as_deref(), Some("pve2"));
    // It is not given up: where no other host will do it is tried again.
    let pool = lab.policy.pools.get_mut("p").expect("p");
    pool.hosts = vec!["pve1".into()];
    assert_eq!(host_of_new(&lab.decide()).as_deref(), Some("pve1"));
}

#[test]
fn a_machine_that_works_there_clears_a_host() {
    let mut lab = failed(world(), "a", "pve1", Step::Join);
    lab.turn();
    forget(&mut lab);
    assert!(lab.memory.host_backoff["p"].contains_key("pve1"));
    let mut lab = lab.after(Span::minutes(10)).ours("m", "p", "one");
    lab = lab.edit_machine("m", |machine| machine.host = "pve1".into());
    lab.policy.scale_up.backoff_reset = Span::minutes(100_000);
    let made = lab.snapshot.machines["m"].mark.created;
    let hosts = lab.memory.host_backoff.get_mut("p").expect("p");
    hosts.get_mut("pve1").expect("pve1").failed = made;
    lab.turn();
    assert!(
        lab.memory.host_backoff.contains_key("p"),
        "it was made before"
    );
    let hosts = lab.memory.host_backoff.get_mut("p").expect("p");
    hosts.get_mut("pve1").expect("pve1").failed = made + Span::seconds(-1);
    lab.turn();
    assert!(lab.memory.host_backoff.is_empty());
}

#[test]
fn what_is_held_against_hosts_is_forgotten_like_a_back_off() {
    let mut lab = failed(world(), "a", "pve1", Step::Clone);
    lab.turn();
    forget(&mut lab);
    let mut lab = lab.after(Span::minutes(200));
    lab.turn();
    assert!(lab.memory.host_backoff.is_empty());
}

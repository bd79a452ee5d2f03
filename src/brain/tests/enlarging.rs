//! A planned machine becomes a larger one only within the limits that a new machine would be held to.

use super::lab::{Lab, MI, lab, made};
use model::scheduling::HostPort;

/// One machine of type `four` is planned for a pod that takes all its memory. Three more pods would fit if it became a
/// `twelve`, which costs little more; a second `four` costs as much again.
fn tempting() -> Lab {
    lab()
        .kind("four", 4, 8192)
        .kind("twelve", 12, 10_240)
        .edit_kind("four", |kind| kind.price = Some(1_000_000))
        .edit_kind("twelve", |kind| kind.price = Some(1_100_000))
        .pool("p", &["four", "twelve"])
        .pod("large", 1000, 8192)
        .shape("large", |shape| {
            shape.host_ports.push(HostPort {
                protocol: "TCP".into(),
                ip: "".into(),
                port: 80,
            });
        })
        .pods("busy", 3, 1000, 512)
}

#[test]
fn without_a_limit_the_larger_type_is_taken() {
    assert_eq!(made(&tempting().decide()), ["twelve"]);
}

#[test]
fn a_planned_machine_does_not_outgrow_the_ceilings() {
    let pool = tempting().edit_pool("p", |pool| pool.max_cpu_milli = Some(9000));
    assert_eq!(made(&pool.decide()), ["four", "four"]);
    let pool = tempting().edit_pool("p", |pool| pool.max_memory = Some(10_000 * MI));
    assert_eq!(made(&pool.decide()), ["four"], "a second one is too much");
    let all = tempting().with(|lab| lab.policy.totals.max_cpu_milli = Some(9000));
    assert_eq!(made(&all.decide()), ["four", "four"]);
}

#[test]
fn a_planned_machine_does_not_outgrow_its_host() {
    let small = tempting().with(|lab| {
        let region = lab.snapshot.regions.get_mut("home").expect("home");
        for host in region.hosts.values_mut() {
            host.memory = 9000 * MI;
        }
    });
    assert_eq!(made(&small.decide()), ["four", "four"]);
}

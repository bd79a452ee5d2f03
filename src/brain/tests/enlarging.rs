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

/// A pool that may have one machine, for three pods of which its cheapest type holds one. Its many types, each with another amount
/// of memory, are more options than a second plan is made of.
fn too_many_types() -> Lab {
    let small = lab().kind("small", 2, 4096).kind("large", 8, 16_384);
    let mut names = vec!["small".to_owned(), "large".to_owned()];
    let more = (0..1100).map(|number| (format!("more-{number}"), 4097 + i64::from(number)));
    let lab = more.fold(small, |lab, (name, memory)| {
        names.push(name.clone());
        let lab = lab.kind(&name, 2, memory);
        lab.edit_kind(&name, |kind| kind.price = Some(9_000_000))
    });
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    lab.edit_kind("small", |kind| kind.price = Some(1_000_000))
        .edit_kind("large", |kind| kind.price = Some(3_500_000))
        .pool("p", &names)
        .edit_pool("p", |pool| pool.max = 1)
        .pods("web", 3, 1500, 3000)
}

#[test]
fn at_max_a_machine_becomes_larger_for_pods_that_wait_without_a_second_plan_too() {
    assert_eq!(made(&too_many_types().decide()), ["large"]);
    let three = too_many_types().edit_pool("p", |pool| pool.max = 3);
    assert_eq!(
        made(&three.decide()),
        ["small", "small", "small"],
        "while it may"
    );
}

#[test]
fn pods_wait_where_no_larger_type_is_within_limits() {
    let low = too_many_types().edit_pool("p", |pool| pool.max_cpu_milli = Some(4000));
    assert_eq!(made(&low.decide()), ["small"]);
}

//! What a person is told to change is in the file.

use super::*;
use crate::reasons::Refusals;

/// An offer that something keeps from being made.
fn offer(instance_type: &str, price: i64, held: Option<Refused>) -> OfferAnswer {
    OfferAnswer {
        pool: "p".into(),
        instance_type: instance_type.into(),
        region: None,
        host: "pve1".into(),
        price,
        free: crate::resources::Resources::default(),
        filter_failure: None,
        further: Vec::new(),
        held: held.map(Refusals::from),
    }
}

/// Refusals, each with the key that its change names.
#[rustfmt::skip]
fn refusals() -> Vec<(Refused, &'static str)> {
    let host = |refusal: HostRefused| Refused::Host { host: "pve1".into(), refusal };
    let (of_cpu, of_memory) = (Limit::Cpu, Limit::Memory);
    vec![
        (Refused::PoolMax { machines: 3, max: 3, planned: 0 }, "max"),
        (Refused::NodesTotal { nodes: 3, max: 3 }, "max_nodes_total"),
        (Refused::NoVmid { region: "home".into() }, "vmids"),
        (Refused::NetworkFull { network: "lan".into(), ranges: None, on_wire: None }, "ranges"),
        (Refused::PoolCeiling { of: of_cpu, would: 3_000, max: 2_000 }, "max_cpu"),
        (Refused::ClusterCeiling { of: of_memory, would: 1 << 31, max: 1 << 30 }, "max_memory"),
        (Refused::NoHost, "exclude_hosts"),
        (host(HostRefused::PoolMax { machines: 2 }), "max_per_host"),
        (host(HostRefused::RegionMax { machines: 2 }), "max_per_host"),
        (host(HostRefused::Memory { left: 0, asks: 1 << 30 }), "memory_overcommit"),
        (host(HostRefused::Cpu { left: 0, asks: 1_000 }), "cpu_overcommit"),
        (host(HostRefused::IdleMemory { idle: 0, asks: 1, keep: 1 }), "min_free_memory"),
        (host(HostRefused::IdleCpu { idle: 0, asks: 1, keep: 1 }), "min_free_cores"),
        (host(HostRefused::Load { of: LoadKind::Cpu, is: None, most: 1 }), "max_cpu_load"),
        (host(HostRefused::Load { of: LoadKind::Memory, is: None, most: 1 }), "max_memory_load"),
        (host(HostRefused::Load { of: LoadKind::IoPressure, is: None, most: 1 }), "max_pressure"),
        (host(HostRefused::StorageGrowth { storage: "s".into(), left: 0, asks: 1, keep: None }), "storage_overcommit"),
        (host(HostRefused::StorageGrowth { storage: "s".into(), left: 0, asks: 1, keep: Some(1) }), "min_free_storage"),
        (host(HostRefused::StorageFree { storage: "s".into(), free: 0, asks: 1, keep: Some(1) }), "min_free_storage"),
        (host(HostRefused::HugePages { nodes: 1, asks: 1 }), "cpu_pinning"),
        (host(HostRefused::StorageUnknown { storage: "s".into() }), "min_free_storage"),
    ]
}

#[test]
fn each_refusal_that_a_person_can_end_names_a_key_of_the_file_or_a_command() {
    let keys = include_str!("../../config/example.toml");
    for (refused, key) in refusals() {
        let told = of_refused(&refused, "p").unwrap_or_default();
        let mut words = told.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        assert!(words.any(|word| word == key), "{refused:?}: {told}");
        let line = format!("\n{key} = ");
        let commented = format!("\n# {key} = ");
        assert!(
            keys.contains(&line) || keys.contains(&commented),
            "the file has no {key}"
        );
    }
}

#[test]
fn the_way_with_the_fewest_changes_comes_first_and_what_passes_by_itself_is_none() {
    let full = Refused::PoolMax {
        machines: 3,
        max: 3,
        planned: 0,
    };
    let under_way = Refused::InFlight {
        machines: 3,
        max: 3,
    };
    let filter_failure = |resource: &str| FilterFailure::Insufficient {
        resource: resource.into(),
        asked: 4_000,
        free: 2_000,
        new_node: true,
    };
    let mut small = offer("small", 10, Some(full.clone()));
    small.filter_failure = Some(filter_failure("cpu"));
    let offers = [
        small,
        offer("waits", 5, Some(under_way)),
        offer("large", 40, Some(full.clone())),
        offer("medium", 20, Some(full)),
        offer("free", 1, None),
    ];
    let found = find_changes(&offers, &[], None);
    let places: Vec<Vec<&str>> = found
        .iter()
        .map(|change| change.places.iter().map(|place| &**place).collect())
        .collect();
    assert_eq!(places, [vec!["p/large", "p/medium"], vec!["p/small"]]);
    assert_eq!(found[1].needed.len(), 2);
}

/// No instance type has what a request asks that cannot be read.
#[test]
fn a_request_that_cannot_be_read_is_to_be_mended_itself() {
    for resource in ["cpu", "memory", "ephemeral-storage", "example.com/gpu"] {
        let mut small = offer("small", 10, None);
        small.filter_failure = Some(FilterFailure::Insufficient {
            resource: resource.into(),
            asked: i64::MAX,
            free: 2_000,
            new_node: true,
        });
        let found = find_changes(&[small], &[], None);
        let words = format!("mend the pod's request of {resource}: it cannot be read, or is more");
        assert!(found[0].needed[0].starts_with(&words), "{found:?}");
    }
}

/// A pod that has to be with others finds no room where they are: no new machine would help.
#[test]
fn a_pod_without_room_beside_those_that_it_must_be_with_is_told_what_would_make_room() {
    let nowhere = |nowhere: bool| FilterFailure::Affinity {
        key: "kubernetes.io/hostname".into(),
        domain: None,
        selectors: Vec::new(),
        namespaces: Vec::new(),
        nowhere,
    };
    let mut medium = offer("medium", 20, None);
    medium.free.cpu_milli = 4_000;
    medium.filter_failure = Some(nowhere(false));
    let machine = |free: i64| PlannedAnswer {
        name: "p-1".into(),
        pool: "p".into(),
        instance_type: "medium".into(),
        region: None,
        host: "pve1".into(),
        own: false,
        free: crate::resources::Resources::default(),
        filter_failure: Some(FilterFailure::Insufficient {
            resource: "cpu".into(),
            asked: 2_000,
            free,
            new_node: false,
        }),
        further: Vec::new(),
    };
    let told = |offers: &[OfferAnswer], machine: PlannedAnswer| {
        let found = find_changes(offers, &[machine], None);
        let of_machine = found.iter().find(|way| *way.places[0] == *"p-1, planned");
        of_machine.map(|way| way.needed.join("; "))
    };
    let offers = [medium.clone()];
    assert_eq!(
        told(&offers, machine(1_000)).as_deref(),
        Some(
            "ask for at most 1 of cpu, or give [pool.p] an instance type that has 5 of cpu for it and the pods beside it"
        )
    );
    assert_eq!(
        told(&offers, machine(0)).as_deref(),
        Some("give [pool.p] an instance type that has 6 of cpu for it and the pods beside it")
    );
    let mut large = offer("large", 40, None);
    large.free.cpu_milli = 8_000;
    large.filter_failure = Some(nowhere(false));
    assert_eq!(
        told(&[medium.clone(), large], machine(0)).as_deref(),
        Some(
            "let a larger machine of [pool.p] be made in its place, which limits or hosts keep now"
        )
    );
    // A pod that could run on a new machine is told of that.
    let full = Refused::PoolMax {
        machines: 1,
        max: 1,
        planned: 1,
    };
    let free = offer("large", 40, Some(full));
    assert_eq!(told(&[medium.clone(), free], machine(0)), None);
    // One whose target waits is told which.
    medium.filter_failure = Some(nowhere(true));
    let target = ObjectKey::new("shop", "db-0");
    let found = find_changes(&[medium], &[], Some(&target));
    assert!(found[0].needed[0].starts_with("see to it that shop/db-0 gets a place"));
}

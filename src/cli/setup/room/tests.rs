//! For how many machines there is room on hosts and storages of several kinds.

use serde_json::json;

use super::super::former::FormerMachines;
use super::super::former::tests::{CLUSTER, mark};
use super::super::templates::BuildWanted;
use super::*;
use crate::pve::{GuestResource, HostResource};

const GIB: i64 = 1 << 30;

/// Two hosts of 64 GiB, each with a thin pool of its own and a shared storage.
fn survey() -> Survey {
    let mut survey = Survey::default();
    let host = HostResource {
        online: true,
        cpus: 16,
        memory: 64 * GIB,
        ..HostResource::default()
    };
    let storage = |plugin: &str, shared: bool, total: i64| StorageResource {
        active: true,
        shared,
        total: total * GIB,
        plugin: plugin.into(),
        content: vec!["images".to_owned()],
        ..StorageResource::default()
    };
    for name in ["pve1", "pve2"] {
        let storages = [
            ("thin", storage("lvmthin", false, 500)),
            ("san", storage("rbd", true, 500)),
        ];
        let storages = storages.map(|(name, storage)| (Arc::from(name), storage));
        let resources = &mut survey.pve.resources;
        resources.hosts.insert(name.into(), host.clone());
        resources.storages.insert(name.into(), storages.into());
    }
    survey
}

/// What is free of a storage on a host, in GiB.
fn set_free(survey: &mut Survey, host: &str, storage: &str, free: i64) {
    let of_host = survey.pve.resources.storages.get_mut(host);
    let storage = of_host.and_then(|of| of.get_mut(storage));
    let storage = storage.expect("it is there");
    storage.used = storage.total - free * GIB;
}

fn wanted(source: TemplateSource) -> SetupSpec {
    let size = |name: &str, cores: u32, memory: &str| TypeWanted {
        name: name.to_owned(),
        cores,
        memory: memory.to_owned(),
    };
    let mut wanted = SetupSpec {
        types: vec![size("medium", 4, "8GiB"), size("small", 2, "4GiB")],
        ..SetupSpec::default()
    };
    wanted.template.source = source;
    wanted
}

fn built_on(storage: &str) -> SetupSpec {
    wanted(TemplateSource::Build(BuildWanted {
        storage: storage.into(),
        ..BuildWanted::default()
    }))
}

/// A template with two disks on a storage of a host.
fn add_template(survey: &mut Survey, vmid: u32, host: &str, storage: &str, boot_gib: u32) {
    let guest = GuestResource {
        host: host.into(),
        name: "node".into(),
        template: true,
        ..GuestResource::default()
    };
    survey.pve.resources.guests.insert(vmid, guest);
    let config = json!({
        "template": 1,
        "boot": "order=scsi0",
        "scsi0": format!("{storage}:base-{vmid}-disk-0,size={boot_gib}G"),
        "scsi1": format!("{storage}:base-{vmid}-disk-1,size=8G"),
        "ide2": format!("{storage}:vm-{vmid}-cloudinit,media=cdrom,size=4M"),
    });
    survey.pve.templates.insert(vmid, VmConfig::read(&config));
}

fn room(survey: &Survey, wanted: &SetupSpec) -> MachineRoom {
    count(survey, wanted, &[]).expect("hosts say what they have")
}

#[test]
fn memory_counts_without_what_the_host_keeps_and_guests_are_promised() {
    let mut survey = survey();
    // 64 GiB, two for the host: 15 machines of the smallest on each, and disks of 32 GiB for as many.
    let all = room(&survey, &built_on("thin"));
    assert_eq!(all.machines, 30);
    assert_eq!(
        all.bound,
        "the hosts' memory that no guest is promised holds 30 of the smallest"
    );
    let guest = |memory: i64, status: &str| GuestResource {
        host: "pve1".into(),
        status: status.into(),
        memory: memory * GIB,
        ..GuestResource::default()
    };
    let guests = &mut survey.pve.resources.guests;
    guests.insert(100, guest(50, "running"));
    guests.insert(101, guest(50, "stopped"));
    assert_eq!(room(&survey, &built_on("thin")).machines, 3 + 15);
    let named = ["pve1".to_owned()];
    let one = count(&survey, &built_on("thin"), &named).expect("it says");
    assert_eq!(one.machines, 3);
    // PVE starts no VM with more CPUs than its host has.
    let host = survey.pve.resources.hosts.get_mut("pve2");
    host.expect("it is there").cpus = 1;
    assert_eq!(room(&survey, &built_on("thin")).machines, 3);
    for host in survey.pve.resources.hosts.values_mut() {
        host.online = false;
    }
    assert_eq!(count(&survey, &built_on("thin"), &[]), None);
}

#[test]
fn space_of_a_hosts_own_storage_counts_for_that_host() {
    let mut survey = survey();
    set_free(&mut survey, "pve1", "thin", 70);
    set_free(&mut survey, "pve2", "thin", 31);
    let found = room(&survey, &built_on("thin"));
    assert_eq!(found.machines, 2);
    assert_eq!(
        found.bound,
        "the storage holds 2 of the smallest, and memory 30: thin on pve1 has 70Gi for disks of 32Gi each, thin on pve2 has 31Gi for disks of 32Gi each"
    );
    // The one host has too little memory, the other too little space.
    let host = survey.pve.resources.hosts.get_mut("pve1");
    host.expect("it is there").memory = 7 * GIB;
    let found = room(&survey, &built_on("thin"));
    assert_eq!(found.machines, 1);
    assert_eq!(
        found.bound,
        "the hosts' memory that no guest is promised and the storages hold 1 of the smallest: thin on pve2 has 31Gi for disks of 32Gi each"
    );
    set_free(&mut survey, "pve1", "thin", 0);
    let found = room(&survey, &built_on("thin"));
    assert_eq!(found.machines, 0);
    assert!(
        found.bound.contains("holds none of the smallest"),
        "{found:?}"
    );
    // A size that PVE does not tell bounds nothing.
    for storages in survey.pve.resources.storages.values_mut() {
        storages.get_mut("thin").expect("it is there").total = 0;
    }
    assert_eq!(room(&survey, &built_on("thin")).machines, 1 + 15);
    // A template that is built on one host alone is on that host alone.
    let one = wanted(TemplateSource::Build(BuildWanted {
        storage: "thin".into(),
        hosts: vec!["pve1".to_owned()],
        ..BuildWanted::default()
    }));
    assert_eq!(room(&survey, &one).machines, 1);
}

#[test]
fn shared_space_counts_once_for_all_hosts() {
    let mut survey = survey();
    for host in ["pve1", "pve2"] {
        set_free(&mut survey, host, "san", 100);
    }
    let found = room(&survey, &built_on("san"));
    assert_eq!(found.machines, 3);
    assert_eq!(
        found.bound,
        "the storage holds 3 of the smallest, and memory 30: san has 100Gi for disks of 32Gi each"
    );
}

#[test]
fn disks_are_the_templates_with_the_one_that_grows() {
    let mut survey = survey();
    add_template(&mut survey, 200, "pve1", "thin", 4);
    set_free(&mut survey, "pve1", "thin", 100);
    // 32 and 8 GiB, and on the host of the template alone.
    let one = wanted(TemplateSource::Vmid(200));
    assert_eq!(room(&survey, &one).machines, 2);
    add_template(&mut survey, 201, "pve2", "thin", 60);
    set_free(&mut survey, "pve2", "thin", 70);
    assert_eq!(room(&survey, &one).machines, 2);
    let named = wanted(TemplateSource::Named("node".to_owned()));
    assert_eq!(room(&survey, &named).machines, 2 + 1);
    add_template(&mut survey, 202, "pve1", "san", 4);
    let shared = room(&survey, &wanted(TemplateSource::Vmid(202)));
    assert_eq!(shared.machines, 12, "500 GiB of 40 each, on both hosts");
    // What nobody knows bounds nothing.
    let unknown = room(&survey, &wanted(TemplateSource::Vmid(0)));
    assert_eq!(unknown.machines, 30);
}

/// What the daemon counts, too: disks that have not grown yet.
#[test]
fn disks_of_our_machines_may_still_grow() {
    let mut survey = survey();
    set_free(&mut survey, "pve1", "thin", 100);
    set_free(&mut survey, "pve2", "thin", 0);
    assert_eq!(room(&survey, &built_on("thin")).machines, 3);
    let line = mark(9_003, "workers").line();
    let config = VmConfig::read(&json!({
        "digest": "d1",
        "description": line,
        "scsi0": "thin:vm-9003-disk-0,size=64G",
    }));
    let guest = GuestResource {
        host: "pve1".into(),
        ..GuestResource::default()
    };
    survey.pve.resources.guests.insert(9_003, guest);
    survey.pve.marked.insert(9_003, config);
    assert_eq!(room(&survey, &built_on("thin")).machines, 3, "not ours yet");
    survey.ours = FormerMachines::among(&survey.pve.marked, Some(CLUSTER));
    assert_eq!(room(&survey, &built_on("thin")).machines, 1);
    // On a storage where a disk takes all its space at once, it has taken it.
    for storages in survey.pve.resources.storages.values_mut() {
        storages.get_mut("thin").expect("it is there").plugin = "lvm".into();
    }
    assert_eq!(room(&survey, &built_on("thin")).machines, 3);
}

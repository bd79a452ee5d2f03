//! Clones: what they inherit, the placeholder, who stands in their way.

use std::time::Duration;

use http::Method;
use serde_json::json;

use super::super::disks::NewVolume;
use super::super::{AdminAct, GIB, LOCAL_TEMPLATE, PveSpec, StorageKind, TEMPLATE, VmFacts};
use super::Bench;

fn clone_path(template: u32) -> String {
    format!("/nodes/pve1/qemu/{template}/clone")
}

#[tokio::test(start_paused = true)]
async fn a_clone_is_its_own_machine_with_its_templates_habits() {
    let bench = Bench::new();
    for vmid in ["5001", "5002"] {
        let end = bench
            .task(
                Method::POST,
                &clone_path(TEMPLATE),
                &format!("newid={vmid}"),
            )
            .await;
        assert_eq!(end, "OK");
    }
    let template = bench.pve.vm(TEMPLATE).expect("the template");
    let one = bench.pve.vm(5001).expect("one");
    let two = bench.pve.vm(5002).expect("two");
    assert_eq!(one.name, "Copy-of-VM-debian-13-k8s");
    assert_eq!(
        one.description, template.description,
        "inherited unless given"
    );
    for key in ["tags", "protection", "onboot", "agent", "balloon", "ciuser"] {
        assert_eq!(one.config.get(key), template.config.get(key), "{key}");
    }
    assert!(!one.template && !one.config.contains_key("template"));
    for key in ["smbios1", "vmgenid", "net0"] {
        assert_ne!(one.config[key], template.config[key], "{key}");
        assert_ne!(one.config[key], two.config[key], "{key}");
    }
    assert!(
        one.config["scsi0"]
            .starts_with("shared:9000/base-9000-disk-0.qcow2/5001/vm-5001-disk-0.qcow2")
    );
    assert!(one.config["ide2"].starts_with("shared:5001/vm-5001-cloudinit.qcow2,media=cdrom"));
}

#[tokio::test(start_paused = true)]
async fn before_the_first_disk_there_is_a_placeholder() {
    let bench = Bench::new();
    let upid = bench
        .call(
            Method::POST,
            &clone_path(TEMPLATE),
            "newid=5001&name=web&description=mark",
        )
        .await
        .upid();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let early = bench.get("/nodes/pve1/qemu/5001/config").await;
    assert_eq!(early.data()["lock"], json!("clone"));
    assert_eq!(
        early.data()["description"],
        json!(" qmclone temporary file")
    );
    assert_eq!(early.data()["name"], json!(null));
    let destroyed = bench
        .task(Method::DELETE, "/nodes/pve1/qemu/5001", "")
        .await;
    // It waited for the clone's end, and then saw what the template passed on.
    assert_eq!(destroyed, "can't remove VM 5001 - protection mode enabled");
    assert_eq!(bench.end(&upid).await, "OK");
    assert!(
        upid.contains(":qmclone:9000:"),
        "a clone task names its source: {upid}"
    );
}

#[tokio::test(start_paused = true)]
async fn name_and_description_come_with_the_first_disk() {
    let bench = Bench::new();
    let upid = bench
        .call(
            Method::POST,
            &clone_path(TEMPLATE),
            "newid=5001&name=web&description=mark&full=1",
        )
        .await
        .upid();
    let mut seen = Vec::new();
    while bench.pve.running_tasks().contains(&upid) {
        if let Some(vm) = bench.pve.vm(5001) {
            let now = (vm.name, vm.description, vm.volumes.len(), vm.lock);
            if seen.last() != Some(&now) {
                seen.push(now);
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let last = bench.pve.vm(5001).expect("the clone");
    assert_eq!(last.lock, None);
    let lock = || Some("clone".to_owned());
    let steps = [
        (
            String::new(),
            " qmclone temporary file".to_owned(),
            0,
            lock(),
        ),
        ("web".to_owned(), "mark".to_owned(), 1, lock()),
        ("web".to_owned(), "mark".to_owned(), 2, lock()),
    ];
    assert_eq!(seen[..3], steps);
}

#[tokio::test(start_paused = true)]
async fn what_a_clone_may_not_be() {
    let bench = Bench::new();
    let cases = [
        (
            TEMPLATE,
            "newid=5001&storage=shared",
            "parameter 'storage' not allowed for linked clones",
        ),
        (
            TEMPLATE,
            "newid=5001&format=qcow2",
            "parameter 'format' not allowed for linked clones",
        ),
        (
            TEMPLATE,
            "newid=5001&full=1&storage=nope",
            "storage 'nope' does not exist",
        ),
        (
            TEMPLATE,
            "newid=5001&full=1&target=pve2&storage=local-lvm",
            "can't clone to non-shared storage 'local-lvm'",
        ),
        (
            TEMPLATE,
            "newid=5001&target=pve9",
            "no such cluster node 'pve9'",
        ),
        (
            TEMPLATE,
            "newid=5001&snapname=before",
            "snapshot 'before' does not exist",
        ),
        (
            TEMPLATE,
            "newid=100",
            "unable to create VM 100: config file already exists",
        ),
        (
            LOCAL_TEMPLATE,
            "newid=5001&target=pve2",
            "can't clone VM to node 'pve2' (VM uses local storage)",
        ),
        (
            100,
            "newid=5001&full=0",
            "Linked clone feature is not supported for 'local-lvm:vm-100-disk-0' (scsi0)",
        ),
        (
            4711,
            "newid=5001",
            "unable to find configuration file for VM 4711 on node 'pve1'",
        ),
    ];
    for (source, form, words) in cases {
        bench
            .call(Method::POST, &clone_path(source), form)
            .await
            .refused(500, words);
    }
    bench
        .call(Method::POST, &clone_path(TEMPLATE), "newid=5001&pool=nope")
        .await
        .refused(403, "Permission check failed (pool 'nope' does not exist)");
    let local = bench
        .call(
            Method::POST,
            &clone_path(TEMPLATE),
            "newid=5001&full=1&storage=local",
        )
        .await;
    assert_eq!(
        local.body["errors"]["storage"],
        json!("storage 'local' does not support vm images")
    );
    assert_eq!(bench.pve.vm(5001), None);
    assert_eq!(bench.pve.orphaned_volumes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_clone_of_shared_disks_can_be_born_elsewhere() {
    let bench = Bench::new();
    assert_eq!(
        bench
            .task(
                Method::POST,
                &clone_path(TEMPLATE),
                "newid=5001&target=pve2"
            )
            .await,
        "OK"
    );
    assert_eq!(bench.pve.vm(5001).expect("the clone").host, "pve2");
    bench.get("/nodes/pve1/qemu/5001/config").await.refused(
        500,
        "Configuration file 'nodes/pve1/qemu-server/5001.conf' does not exist",
    );
    let conflict = bench
        .task(Method::POST, &clone_path(TEMPLATE), "newid=5001")
        .await;
    assert_eq!(
        conflict,
        "close (rename) atomic file '/etc/pve/nodes/pve1/qemu-server/5001.conf' failed: File exists"
    );
}

#[tokio::test(start_paused = true)]
async fn nextid_reserves_nothing() {
    let bench = Bench::new();
    let first = bench.get("/cluster/nextid").await;
    let second = bench.get("/cluster/nextid").await;
    assert_eq!(first.data(), &json!("102"));
    assert_eq!(first.data(), second.data());
    let taken = bench.call(Method::GET, "/cluster/nextid", "vmid=100").await;
    taken.refused(400, "Parameter verification failed.");
    assert_eq!(taken.body["errors"]["vmid"], json!("VM 100 already exists"));
    let path = clone_path(TEMPLATE);
    let (one, two) = futures::join!(
        bench.call(Method::POST, &path, "newid=5001&name=one"),
        bench.call(Method::POST, &path, "newid=5001&name=two"),
    );
    let mut ends = Vec::new();
    for answer in [one, two] {
        ends.push(match answer.status {
            200 => bench.end(&answer.upid()).await,
            _ => answer.reason,
        });
    }
    ends.sort();
    assert_eq!(ends[0], "OK");
    let lost = ["already exists", "got timeout"];
    assert!(lost.iter().any(|words| ends[1].contains(words)), "{ends:?}");
}

#[tokio::test(start_paused = true)]
async fn a_full_storage_fails_the_clone_and_leaves_nothing() {
    let bench = Bench::new();
    let fill = AdminAct::Fill {
        storage: "local-lvm".to_owned(),
        host: "pve1".to_owned(),
        left: GIB,
    };
    bench.pve.administer(&fill).expect("filled");
    let end = bench
        .task(
            Method::POST,
            &clone_path(LOCAL_TEMPLATE),
            "newid=5001&full=1",
        )
        .await;
    assert!(end.starts_with("clone failed: copy failed: "), "{end}");
    assert_eq!(bench.pve.vm(5001), None);
    assert_eq!(bench.pve.orphaned_volumes(), Vec::<String>::new());
}

/// A small volume of VM 5001 on pve1's thin pool.
fn thin_volume() -> NewVolume<'static> {
    NewVolume {
        storage: "local-lvm",
        host: "pve1",
        vmid: 5001,
        size: 4 << 20,
        used: 0,
        parent: None,
        cloudinit: false,
        copied: false,
        base: false,
        ctime: 7,
    }
}

/// `lvcreate` makes thin volumes in a pool of which 100 % are written, as seen with PVE's LvmThinPlugin.
#[tokio::test(start_paused = true)]
async fn a_full_thin_pool_makes_volumes_all_the_same() {
    let bench = Bench::new();
    let fill = AdminAct::Fill {
        storage: "local-lvm".to_owned(),
        host: "pve1".to_owned(),
        left: 0,
    };
    bench.pve.administer(&fill).expect("filled");
    let clone = NewVolume {
        size: 20 << 30,
        used: 1 << 30,
        ..thin_volume()
    };
    let made = bench.pve.world(|world, _| world.allocate(&clone));
    assert_eq!(made.expect("made"), "local-lvm:vm-5001-disk-0");
}

/// What an interrupted clone left is told in `lvcreate`'s words, and such volumes without what is written of them.
#[tokio::test(start_paused = true)]
async fn a_logical_volume_that_is_left_over_is_told_as_lvm_does() {
    let bench = Bench::new();
    let left = NewVolume {
        cloudinit: true,
        ..thin_volume()
    };
    let made = bench.pve.world(|world, _| world.allocate(&left));
    assert_eq!(made.expect("made"), "local-lvm:vm-5001-cloudinit");
    let path = clone_path(LOCAL_TEMPLATE);
    assert_eq!(
        bench.task(Method::POST, &path, "newid=5001").await,
        "clone failed: lvcreate 'local-lvm/vm-5001-cloudinit' error:   Logical Volume \"vm-5001-cloudinit\" already exists in volume group \"local-lvm\""
    );
    let content = "/nodes/pve1/storage/local-lvm/content?content=images&vmid=5001";
    let rows = bench.get(content).await;
    assert_eq!(rows.data()[0]["ctime"], json!("7"));
    assert_eq!(rows.data()[0].get("used"), None);
}

/// A world whose `local-lvm` is a ZFS pool, with a volume for each disk's whole size or not.
fn zfs(sparse: bool) -> Bench {
    let mut spec = PveSpec::default();
    let pool = spec.storages.iter_mut().find(|of| of.name == "local-lvm");
    let pool = pool.expect("there");
    (pool.kind, pool.sparse) = (StorageKind::ZfsPool, sparse);
    Bench::with(spec)
}

/// Names, parents and room of ZFS volumes, as PVE's ZFSPoolPlugin has them (ZFS 2.3.2, pve-storage 9.1.7).
#[tokio::test(start_paused = true)]
async fn a_linked_clone_on_zfs_is_a_snapshot_of_the_base_and_has_no_reservation() {
    for sparse in [true, false] {
        let bench = zfs(sparse);
        let used = |bench: &Bench| {
            bench
                .pve
                .world(|world, _| world.space("local-lvm", "pve1").0)
        };
        let before = used(&bench);
        let path = clone_path(LOCAL_TEMPLATE);
        assert_eq!(bench.task(Method::POST, &path, "newid=5001").await, "OK");
        let clone = bench.pve.vm(5001).expect("a clone");
        let disk = "local-lvm:base-9001-disk-0/vm-5001-disk-0";
        assert!(
            clone.config["scsi0"].starts_with(disk),
            "{:?}",
            clone.config
        );
        let content = "/nodes/pve1/storage/local-lvm/content?content=images&vmid=5001";
        let rows = bench.get(content).await;
        let row = rows.data().as_array().expect("rows").iter();
        let row = row
            .clone()
            .find(|row| row["volid"] == disk)
            .expect("the disk");
        assert_eq!(row["parent"], json!("base-9001-disk-0@__base__"));
        assert_eq!((row.get("used"), row.get("ctime")), (None, None));
        let more = used(&bench) - before;
        assert!(more < 1 << 30, "{more} bytes for a clone");
        let grown = bench
            .task(
                Method::PUT,
                "/nodes/pve1/qemu/5001/resize",
                "disk=scsi0&size=4T",
            )
            .await;
        assert_eq!(grown, "OK", "nothing is kept for it");
    }
}

/// Without `sparse` a volume takes its size and its metadata from the start, and a base what is written once more.
#[tokio::test(start_paused = true)]
async fn volumes_on_zfs_without_sparse_take_their_size() {
    let volume = NewVolume {
        size: 1 << 30,
        used: 270 << 20,
        ..thin_volume()
    };
    let taken = |bench: &Bench| {
        bench.pve.world(|world, _| {
            let before = world.space("local-lvm", "pve1").0;
            let id = world.allocate(&volume).expect("made");
            (id, world.space("local-lvm", "pve1").0 - before)
        })
    };
    let (id, thick) = taken(&zfs(false));
    assert_eq!((&*id, thick), ("local-lvm:vm-5001-disk-0", 1_092_616_192));
    assert_eq!(taken(&zfs(true)).1, 270 << 20);
}

/// What ZFS says of a volume that is left over, and of a pool that is full.
#[tokio::test(start_paused = true)]
async fn zfs_refuses_in_its_own_words() {
    let bench = zfs(true);
    let left = NewVolume {
        cloudinit: true,
        ..thin_volume()
    };
    bench
        .pve
        .world(|world, _| world.allocate(&left))
        .expect("made");
    let path = clone_path(LOCAL_TEMPLATE);
    assert_eq!(
        bench.task(Method::POST, &path, "newid=5001").await,
        "clone failed: zfs error: cannot create 'local-lvm/vm-5001-cloudinit': dataset already exists"
    );
    let fill = AdminAct::Fill {
        storage: "local-lvm".to_owned(),
        host: "pve1".to_owned(),
        left: 0,
    };
    bench.pve.administer(&fill).expect("filled");
    assert_eq!(
        bench.task(Method::POST, &path, "newid=5002").await,
        "clone failed: zfs error: cannot create 'local-lvm/vm-5002-cloudinit': out of space"
    );
    assert_eq!(bench.pve.vm(5002), None);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_clone_task_leaves_nothing() {
    let bench = Bench::new();
    let upid = bench
        .call(Method::POST, &clone_path(TEMPLATE), "newid=5001&full=1")
        .await
        .upid();
    tokio::time::sleep(Duration::from_millis(900)).await;
    let stopped = bench
        .call(Method::DELETE, &format!("/nodes/pve1/tasks/{upid}"), "")
        .await;
    assert_eq!(stopped.status, 200);
    assert_eq!(
        bench.end(&upid).await,
        "clone failed: interrupted by signal"
    );
    assert_eq!(bench.pve.vm(5001), None);
    assert_eq!(bench.pve.orphaned_volumes(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn many_clones_queue_for_the_storage_and_some_lose_patience() {
    let bench = Bench::with(PveSpec::default());
    let mut upids = Vec::new();
    for vmid in 5000..5024 {
        let path = clone_path(TEMPLATE);
        upids.push(
            bench
                .call(Method::POST, &path, &format!("newid={vmid}&full=1"))
                .await
                .upid(),
        );
    }
    let mut timeouts = 0;
    for upid in upids {
        match bench.end(&upid).await.as_str() {
            "OK" => {}
            "clone failed: error during cfs-locked 'storage-shared' operation: got lock request timeout" =>
            {
                timeouts += 1;
            }
            other => panic!("{other}"),
        }
    }
    assert!(timeouts > 0);
    assert_eq!(bench.pve.orphaned_volumes(), Vec::<String>::new());
    assert!(bench.pve.vms().iter().all(|vm| vm.lock.is_none()));
}

#[tokio::test(start_paused = true)]
async fn a_locked_source_is_not_cloned() {
    let bench = Bench::new();
    let lock = AdminAct::Lock {
        vmid: TEMPLATE,
        lock: Some("backup".to_owned()),
    };
    bench.pve.administer(&lock).expect("locked");
    bench
        .call(Method::POST, &clone_path(TEMPLATE), "newid=5001")
        .await
        .refused(500, "VM is locked (backup)");
}

#[tokio::test(start_paused = true)]
async fn a_killed_clone_leaves_its_placeholder() {
    let bench = Bench::new();
    let path = clone_path(TEMPLATE);
    let upid = bench
        .call(Method::POST, &path, "newid=5001&name=web&description=mark")
        .await
        .upid();
    tokio::time::sleep(Duration::from_millis(100)).await;
    bench
        .pve
        .administer(&AdminAct::KillTask { upid: upid.clone() })
        .expect("killed");
    assert_eq!(bench.end(&upid).await, "unexpected status");
    tokio::time::sleep(Duration::from_mins(1)).await;
    let left = bench.pve.vm(5001).expect("the placeholder");
    assert_eq!(
        (left.name.as_str(), left.lock.as_deref()),
        ("", Some("clone"))
    );
    let resize = bench
        .task(
            Method::PUT,
            "/nodes/pve1/qemu/5001/resize",
            "disk=scsi0&size=20G",
        )
        .await;
    assert_eq!(resize, "VM is locked (clone)");
    let destroyed = bench
        .task(Method::DELETE, "/nodes/pve1/qemu/5001", "skiplock=1")
        .await;
    assert_eq!(destroyed, "OK");

    let upid = bench.call(Method::POST, &path, "newid=5002").await.upid();
    tokio::time::sleep(Duration::from_millis(100)).await;
    for online in [false, true] {
        let host = AdminAct::HostOnline {
            host: "pve1".to_owned(),
            online,
        };
        bench.pve.administer(&host).expect("switched");
    }
    assert_eq!(bench.end(&upid).await, "unexpected status");
    assert_eq!(
        bench.pve.vm(5002).expect("the placeholder").lock.as_deref(),
        Some("clone")
    );
}

/// Kills the worker that destroys a machine after so many milliseconds. What is left?
async fn destroyed_for(millis: u64) -> (Bench, Option<VmFacts>, Vec<String>) {
    let bench = Bench::cloned().await;
    let path = "/nodes/pve1/qemu/5001";
    let upid = bench.call(Method::DELETE, path, "purge=1").await.upid();
    tokio::time::sleep(Duration::from_millis(millis)).await;
    let _ = bench
        .pve
        .administer(&AdminAct::KillTask { upid: upid.clone() });
    let config = bench.get(&format!("{path}/config")).await;
    let keys = match config.status {
        200 => {
            let data = config.data().as_object().expect("a configuration");
            data.keys().cloned().collect()
        }
        _ => Vec::new(),
    };
    let left = bench.pve.vm(5001);
    (bench, left, keys)
}

#[tokio::test(start_paused = true)]
async fn a_killed_removal_leaves_all_or_a_lock_alone_or_nothing() {
    let (mut whole, mut bare, mut gone) = (0, 0, 0);
    for millis in (0..1_000).step_by(50) {
        let (bench, left, keys) = destroyed_for(millis).await;
        let path = "/nodes/pve1/qemu/5001";
        match left {
            // The disks may be gone; the configuration tells whose it was, and PVE takes it again.
            Some(vm) if vm.lock.is_none() => {
                whole += 1;
                assert!(vm.description.contains("mark"), "{vm:?}");
                assert_eq!(bench.task(Method::DELETE, path, "purge=1").await, "OK");
            }
            Some(vm) => {
                bare += 1;
                assert_eq!(
                    (vm.lock.as_deref(), &*vm.description),
                    (Some("destroyed"), "")
                );
                assert_eq!(keys, ["digest", "lock"]);
                let again = bench.task(Method::DELETE, path, "purge=1").await;
                assert_eq!(again, "VM is locked (destroyed)");
                let again = bench.task(Method::DELETE, path, "skiplock=1").await;
                assert_eq!(again, "OK");
            }
            None => gone += 1,
        }
        assert_eq!(bench.pve.vm(5001), None);
        assert!(bench.pve.orphaned_volumes().is_empty());
    }
    assert!(whole > 0 && bare > 0 && gone > 0, "{whole} {bare} {gone}");
}

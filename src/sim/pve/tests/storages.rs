//! Types of storages: names and formats of what is cloned on each, what each refuses, and in whose words.

use http::Method;
use serde_json::{Value, json};

use super::super::disks::NewVolume;
use super::super::{AdminAct, LOCAL_TEMPLATE, PveSpec, StorageKind, TEMPLATE};
use super::{Answer, Bench, send};

/// A world in which a storage is of another type.
fn with(name: &str, kind: StorageKind) -> Bench {
    let mut spec = PveSpec::default();
    let storage = spec.storages.iter_mut().find(|of| of.name == name);
    storage.expect("there").kind = kind;
    Bench::with(spec)
}

/// A world with one storage more, for all content that there is.
fn beside(kind: StorageKind) -> Bench {
    let mut spec = PveSpec::default();
    let mut more = spec.storages[0].clone();
    (more.name, more.kind) = ("more".to_owned(), kind);
    more.content = "backup,images,import,iso,snippets".to_owned();
    spec.storages.push(more);
    Bench::with(spec)
}

fn clone_path(template: u32) -> String {
    format!("/nodes/pve1/qemu/{template}/clone")
}

/// The volumes of a clone's disk and of its cloud-init drive.
async fn cloned(bench: &Bench, template: u32, form: &str) -> (String, String) {
    let end = bench.task(Method::POST, &clone_path(template), form).await;
    assert_eq!(end, "OK");
    let vm = bench.pve.vm(5001).expect("the clone");
    let volume = |key: &str| {
        let drive = &vm.config[key];
        drive.split(',').next().unwrap_or_default().to_owned()
    };
    (volume("scsi0"), volume("ide2"))
}

/// `RBDPlugin.pm`, `ZFSPlugin.pm` and `BTRFSPlugin.pm`: `clone_image`, `alloc_image`, `parse_volname`.
#[tokio::test(start_paused = true)]
async fn what_is_cloned_is_named_as_the_type_does() {
    let (shared, local) = (("shared", TEMPLATE), ("local-lvm", LOCAL_TEMPLATE));
    for (kind, (storage, template), disk, copy, drive) in [
        (
            StorageKind::Rbd,
            shared,
            "base-9000-disk-0/vm-5001-disk-0",
            "vm-5001-disk-0",
            "vm-5001-cloudinit",
        ),
        (
            StorageKind::Zfs,
            shared,
            "base-9000-disk-0/vm-5001-disk-0",
            "vm-5001-disk-0",
            "vm-5001-cloudinit",
        ),
        (
            StorageKind::Btrfs,
            local,
            "5001/vm-5001-disk-0.raw",
            "5001/vm-5001-disk-0.raw",
            "5001/vm-5001-cloudinit.raw",
        ),
    ] {
        let of = |volume: &str| format!("{storage}:{volume}");
        let bench = with(storage, kind);
        let linked = cloned(&bench, template, "newid=5001").await;
        assert_eq!(linked, (of(disk), of(drive)), "{kind:?}");
        let bench = with(storage, kind);
        let full = cloned(&bench, template, "newid=5001&full=1").await;
        assert_eq!(full, (of(copy), of(drive)), "{kind:?}");
    }
    // The drive of the template was not copied.
    let bench = with("local-lvm", StorageKind::Btrfs);
    let template = bench.pve.vm(LOCAL_TEMPLATE).expect("the template");
    let drive = "local-lvm:9001/vm-9001-cloudinit.qcow2";
    assert!(template.config["ide2"].starts_with(drive));
}

/// PVE tells of an image in Ceph whose snapshot it is, and neither when it was made nor what is written of it.
#[tokio::test(start_paused = true)]
async fn a_linked_clone_on_ceph_is_told_with_its_base() {
    let bench = with("shared", StorageKind::Rbd);
    let (disk, _) = cloned(&bench, TEMPLATE, "newid=5001&target=pve2").await;
    let content = "/nodes/pve3/storage/shared/content?content=images&vmid=5001";
    let rows = bench.get(content).await;
    let rows = rows.data().as_array().cloned().unwrap_or_default();
    let row = rows.iter().find(|row| row["volid"] == disk.as_str());
    let row = row.expect("every host sees it");
    assert_eq!(row["parent"], json!("base-9000-disk-0@__base__"));
    assert_eq!((&row["format"], row.get("ctime")), (&json!("raw"), None));
    assert_eq!(row.get("used"), None);
    let definitions = bench.get("/storage").await;
    let definitions = definitions.data().as_array().cloned().unwrap_or_default();
    let ceph = definitions.iter().find(|row| row["storage"] == "shared");
    let ceph = ceph.expect("it is defined");
    assert_eq!(
        (&ceph["type"], &ceph["pool"]),
        (&json!("rbd"), &json!("shared"))
    );
}

/// A base image stays while names tell that clones are linked to it. On BTRFS they are snapshots of their own.
#[tokio::test(start_paused = true)]
async fn a_base_is_needed_where_its_clones_name_it() {
    for (storage, kind, template, words) in [
        (
            "shared",
            StorageKind::Rbd,
            TEMPLATE,
            "base volume 'shared:base-9000-disk-0' is still in use by linked cloned",
        ),
        ("local-lvm", StorageKind::Btrfs, LOCAL_TEMPLATE, "OK"),
    ] {
        let bench = with(storage, kind);
        let (disk, _) = cloned(&bench, template, "newid=5001").await;
        let vm = format!("/nodes/pve1/qemu/{template}");
        let config = format!("{vm}/config");
        let unprotected = bench.call(Method::PUT, &config, "protection=0").await;
        assert_eq!(unprotected.status, 200);
        let end = bench.task(Method::DELETE, &vm, "").await;
        assert_eq!(end, words, "{kind:?}");
        let there = bench
            .pve
            .world(|world, _| world.volume(&disk, "pve1").is_some());
        assert!(there, "{kind:?}: the clone keeps its disk");
    }
}

/// `volume_has_feature`: BTRFS makes a snapshot of any raw file, Ceph links to base images alone.
#[tokio::test(start_paused = true)]
async fn a_vm_that_is_no_template_is_linked_to_on_btrfs() {
    let bench = with("local-lvm", StorageKind::Btrfs);
    let end = bench
        .task(Method::POST, &clone_path(100), "newid=5001&full=0")
        .await;
    assert_eq!(end, "OK");
    let bench = with("local-lvm", StorageKind::Rbd);
    bench
        .call(Method::POST, &clone_path(100), "newid=5001&full=0")
        .await
        .refused(
            500,
            "Linked clone feature is not supported for 'local-lvm:vm-100-disk-0' (scsi0)",
        );
}

/// What a killed clone left is told in the words of `rbd`, of `btrfs`' plugin, and behind iSCSI by the command that failed.
#[tokio::test(start_paused = true)]
async fn what_is_left_over_is_told_in_each_types_words() {
    let portal = "192.0.2.9";
    let ssh = format!(
        "command '/usr/bin/ssh -o 'BatchMode=yes' -i /etc/pve/priv/zfs/{portal}_id_rsa root@{portal} zfs create -V shared/vm-5001-cloudinit' failed: exit code 1"
    );
    for (kind, words) in [
        (
            StorageKind::Rbd,
            "rbd create 'vm-5001-cloudinit' error: rbd: create error: (17) File exists",
        ),
        (StorageKind::Zfs, &*ssh),
        (
            StorageKind::Btrfs,
            "disk image 'shared:5001/vm-5001-cloudinit.raw' already exists",
        ),
    ] {
        let bench = with("shared", kind);
        let left = NewVolume {
            storage: "shared",
            host: "pve1",
            vmid: 5001,
            size: 4 << 20,
            used: 0,
            parent: None,
            cloudinit: true,
            copied: true,
            base: false,
            ctime: 7,
        };
        let made = bench.pve.world(|world, _| world.allocate(&left));
        assert!(made.is_ok(), "{made:?}");
        let end = bench
            .task(Method::POST, &clone_path(TEMPLATE), "newid=5001")
            .await;
        assert_eq!(end, format!("clone failed: {words}"), "{kind:?}");
        assert_eq!(bench.pve.vm(5001), None);
    }
}

async fn upload(bench: &Bench, storage: &str) -> Answer {
    let head = "--x\r\nContent-Disposition: form-data; name=";
    let body = format!(
        "{head}\"content\"\r\n\r\niso\r\n{head}\"filename\"; filename=\"a.iso\"\r\n\r\nseed\r\n--x--\r\n"
    );
    let path = format!("/nodes/pve1/storage/{storage}/upload");
    let kind = ("content-type", "multipart/form-data; boundary=x");
    send(&bench.root, Method::POST, &path, &body, &[kind]).await
}

/// The definition asks for all content; PVE leaves out what the type cannot hold, and files come to storages of files alone.
#[tokio::test(start_paused = true)]
async fn each_type_holds_what_it_can() {
    let files = "backup,import,iso,snippets";
    for (kind, content, shared, takes_files) in [
        (StorageKind::CephFs, files, 1, true),
        (
            StorageKind::Btrfs,
            "backup,images,import,iso,snippets",
            0,
            true,
        ),
        (StorageKind::Rbd, "images", 1, false),
        (StorageKind::Zfs, "images", 1, false),
        (StorageKind::Pbs, "backup", 1, false),
    ] {
        let bench = beside(kind);
        let row = bench.get("/nodes/pve1/storage/more/status").await;
        let row = row.data();
        assert_eq!(
            (&row["type"], &row["content"], &row["shared"]),
            (&json!(kind.as_str()), &json!(content), &json!(shared))
        );
        let form = "newid=5001&full=1&storage=more";
        let clone = bench.call(Method::POST, &clone_path(TEMPLATE), form).await;
        let refused = json!("storage 'more' does not support vm images");
        let expected = if content.contains("images") {
            &Value::Null
        } else {
            &refused
        };
        assert_eq!(&clone.body["errors"]["storage"], expected, "{kind:?}");
        let uploaded = upload(&bench, "more").await;
        let path = "/nodes/pve1/storage/more/download-url";
        let form = "content=import&filename=a.qcow2&url=http://images/a.qcow2";
        let download = bench.call(Method::POST, path, form).await;
        if takes_files {
            assert_eq!((uploaded.status, download.status), (200, 200), "{kind:?}");
            continue;
        }
        let words = format!("can't upload to storage type '{}'", kind.as_str());
        uploaded.refused(500, &words);
        download.refused(500, &format!("{words}, not a file based storage!"));
    }
}

/// Without any content that the type can be used for it is used for the default; what is not told to hold ISOs takes none.
#[tokio::test(start_paused = true)]
async fn a_storage_is_used_for_something() {
    let mut spec = PveSpec::default();
    let mut more = spec.storages[0].clone();
    (more.name, more.kind) = ("more".to_owned(), StorageKind::CephFs);
    more.content = "images,rootdir".to_owned();
    spec.storages.push(more);
    let bench = Bench::with(spec);
    let row = bench.get("/nodes/pve1/storage/more/status").await;
    assert_eq!(row.data()["content"], json!("backup"));
    upload(&bench, "more")
        .await
        .refused(500, "storage 'more' does not support 'iso' content");
}

/// What is free of a Ceph pool is the same on every host.
#[tokio::test(start_paused = true)]
async fn a_ceph_pool_is_one_for_all_hosts() {
    let bench = with("shared", StorageKind::Rbd);
    let free = async |host: &str| {
        let path = format!("/nodes/{host}/storage/shared/status");
        bench.get(&path).await.data()["avail"].as_u64()
    };
    let before = free("pve3").await;
    let fill = AdminAct::Fill {
        storage: "shared".to_owned(),
        host: "pve1".to_owned(),
        left: 45 << 30,
    };
    bench.pve.administer(&fill).expect("filled");
    assert_eq!(free("pve3").await, Some(45 << 30));
    assert_ne!(before, free("pve2").await);
}

/// `ISCSIPlugin.pm`: a LUN is copied to another storage, and to no other LUN, and no clone is linked to it.
#[tokio::test(start_paused = true)]
async fn a_template_on_a_lun_is_copied_to_another_storage_alone() {
    let mut spec = PveSpec::default();
    let mut luns = spec.storages[0].clone();
    (luns.name, luns.kind) = ("luns".to_owned(), StorageKind::Iscsi);
    luns.content = "images".to_owned();
    spec.storages.push(luns);
    let template = spec.machines.iter_mut().find(|of| of.vmid == TEMPLATE);
    let template = template.expect("there");
    (template.storage, template.cloudinit) = ("luns".to_owned(), false);
    let bench = Bench::with(spec);
    bench
        .call(Method::POST, &clone_path(TEMPLATE), "newid=5001")
        .await
        .refused(
            500,
            "Linked clone feature is not supported for 'luns:0.0.9000.scsi-0000000000002328' (scsi0)",
        );
    let full = "newid=5001&full=1";
    let end = bench.task(Method::POST, &clone_path(TEMPLATE), full).await;
    assert_eq!(end, "clone failed: can't allocate space in iscsi storage");
    assert_eq!(bench.pve.vm(5001), None);
    let full = "newid=5001&full=1&storage=shared";
    let end = bench.task(Method::POST, &clone_path(TEMPLATE), full).await;
    assert_eq!(end, "OK");
    let vm = bench.pve.vm(5001).expect("the clone");
    let disk = "shared:5001/vm-5001-disk-0.qcow2";
    assert!(vm.config["scsi0"].starts_with(disk), "{:?}", vm.config);
}

/// `check_volume_storage_type`: a clone is made on a storage that is for disks no more, and PVE starts it not.
#[tokio::test(start_paused = true)]
async fn a_storage_without_images_in_its_content_starts_no_vm() {
    let mut spec = PveSpec::default();
    let storage = spec.storages.iter_mut().find(|of| of.name == "shared");
    "iso".clone_into(&mut storage.expect("there").content);
    let bench = Bench::with(spec);
    let clone = clone_path(TEMPLATE);
    assert_eq!(bench.task(Method::POST, &clone, "newid=5001").await, "OK");
    let start = "/nodes/pve1/qemu/5001/status/start";
    assert_eq!(
        bench.task(Method::POST, start, "").await,
        "storage 'shared' does not support content-type 'images'"
    );
}

/// It finds a simulator that makes firmware's disks as large as somebody asks for.
#[tokio::test(start_paused = true)]
async fn disks_of_firmware_have_the_size_that_pve_gives_them() {
    for (kind, of_4m, of_2m) in [
        (StorageKind::Dir, "528K", "128K"),
        (StorageKind::Btrfs, "528K", "128K"),
        (StorageKind::LvmThin, "4M", "4M"),
        (StorageKind::Lvm, "4M", "4M"),
        (StorageKind::ZfsPool, "1M", "1M"),
        (StorageKind::Rbd, "1M", "1M"),
    ] {
        for (efitype, size) in [("4m", of_4m), ("2m", of_2m)] {
            let bench = beside(kind);
            let form = format!(
                "vmid=5001&bios=ovmf&efidisk0=more%3A1%2Cefitype%3D{efitype}&tpmstate0=more%3A1%2Cversion%3Dv2.0&scsi0=more%3A1"
            );
            assert_eq!(
                bench.task(Method::POST, "/nodes/pve1/qemu", &form).await,
                "OK"
            );
            let vm = bench.pve.vm(5001).expect("the VM");
            for (key, size) in [("efidisk0", size), ("tpmstate0", "4M"), ("scsi0", "1G")] {
                let drive = &vm.config[key];
                let told = drive.split(',').any(|part| part == format!("size={size}"));
                assert!(told, "{kind:?}, {key}, efitype {efitype}: {drive}");
            }
        }
    }
}

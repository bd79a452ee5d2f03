//! Cloning: linked and full, with the placeholder that stands there before the first disk.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::disks::{Drive, NewVolume};
use super::kinds::StorageKind;
use super::locks::CLONE_LOCK;
use super::power::is_local;
use super::spec::GIB;
use super::tasks::{Worker, WorkerEnd};
use super::wire::ErrorAnswer;
use super::world::{PLACEHOLDER, PveWorld, SimVm};
use super::{CheckedCall, Pve};

/// Bytes that a fresh overlay or thin snapshot takes.
const OVERLAY: u64 = 1 << 20;
/// How long PVE waits before it removes the volumes of a failed clone.
const RELEASE: Duration = Duration::from_secs(1);

/// A clone that passed its early checks.
#[derive(Clone, Debug)]
struct ClonePlan {
    node: String,
    source: u32,
    newid: u32,
    full: bool,
    name: Option<String>,
    description: Option<String>,
    storage: Option<String>,
    target: String,
    pool: Option<String>,
}

impl Pve {
    pub(super) fn clone_vm(&self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        let newid = asked.text("newid");
        let path = asked
            .given("pool")
            .map_or_else(|| format!("/vms/{newid}"), |pool| format!("/pool/{pool}"));
        self.need(&asked.caller, &path, &["VM.Allocate"])?;
        self.pool_exists(asked)?;
        let plan: Result<ClonePlan, String> = self.world(|world, _| {
            // The first thing PVE does is to look whether the source runs.
            world.on_node(&asked.node, asked.vmid)?;
            let source = world.vm(&asked.node, asked.vmid)?;
            let text = |name: &str| asked.given(name).map(str::to_owned);
            let plan = ClonePlan {
                node: asked.node.clone(),
                source: asked.vmid,
                newid: newid.parse().unwrap_or_default(),
                full: asked
                    .given("full")
                    .map_or(!source.flag("template"), |full| full == "1"),
                name: text("name"),
                // PVE takes an empty description for none: the source's stays.
                description: text("description")
                    .map(|text| text.trim_end().to_owned())
                    .filter(|text| !text.is_empty()),
                storage: text("storage"),
                target: asked.given("target").unwrap_or(&asked.node).to_owned(),
                pool: text("pool"),
            };
            world.check_clone(&plan, asked.given("snapname"), asked.given("format"))?;
            Ok(plan)
        });
        let plan = plan.map_err(ErrorAnswer::die)?;
        self.check_images(plan.storage.as_deref())?;
        self.check_clone_rights(asked, &plan)?;
        let (id, user) = (plan.source.to_string(), asked.caller.name.clone());
        Ok(
            self.fork(&asked.node, "qmclone", &id, &user, true, |worker| {
                Box::pin(async move { clone(worker, plan).await })
            }),
        )
    }

    fn check_clone_rights(&self, asked: &CheckedCall, plan: &ClonePlan) -> Result<(), ErrorAnswer> {
        self.check_cloned_parts(&asked.caller, plan.source)?;
        let (storages, cards) = self.world(|world, _| {
            let Some(vm) = world.vms.get(&plan.source) else {
                return (Vec::new(), Vec::new());
            };
            let storage = |drive: &Drive| {
                plan.storage
                    .clone()
                    .unwrap_or_else(|| drive.storage().to_owned())
            };
            let storages: Vec<String> = vm
                .drives()
                .iter()
                .map(|(_, drive)| storage(drive))
                .collect();
            let nets = vm.config.iter().filter(|(key, _)| key.starts_with("net"));
            let cards: Vec<String> = nets
                .filter_map(|(_, text)| world.path_of_card(text))
                .collect();
            (storages, cards)
        });
        for storage in storages {
            self.need(
                &asked.caller,
                &format!("/storage/{storage}"),
                &["Datastore.AllocateSpace"],
            )?;
        }
        for path in cards {
            self.need(&asked.caller, &path, &["SDN.Use"])?;
        }
        Ok(())
    }
}

impl Pve {
    fn check_images(&self, storage: Option<&str>) -> Result<(), ErrorAnswer> {
        let Some(storage) = storage else {
            return Ok(());
        };
        let images = self.world(|world, _| {
            let spec = world.storages.get(storage);
            spec.is_none_or(|spec| super::schema::split(&spec.content).any(|kind| kind == "images"))
        });
        if images {
            return Ok(());
        }
        let why = format!("storage '{storage}' does not support vm images");
        Err(ErrorAnswer::parameter("storage", why))
    }
}

impl PveWorld {
    fn check_clone(
        &self,
        plan: &ClonePlan,
        snapshot: Option<&str>,
        format: Option<&str>,
    ) -> WorkerEnd {
        if !self.hosts.contains_key(&plan.target) {
            return Err(format!("no such cluster node '{}'", plan.target));
        }
        if let Some(storage) = &plan.storage {
            self.usable(storage, &plan.node)?;
            if plan.target != plan.node
                && self
                    .storages
                    .get(storage)
                    .is_some_and(|storage| !storage.shared)
            {
                return Err(format!("can't clone to non-shared storage '{storage}'"));
            }
        }
        self.check_quorum()?;
        let source = self.vm(&plan.node, plan.source)?;
        source.check_lock()?;
        if let Some(name) = snapshot {
            return Err(format!("snapshot '{name}' does not exist"));
        }
        if !plan.full && plan.storage.is_some() {
            return Err("parameter 'storage' not allowed for linked clones".to_owned());
        }
        if !plan.full && format.is_some() {
            return Err("parameter 'format' not allowed for linked clones".to_owned());
        }
        self.check_target(plan, source)?;
        if self
            .vms
            .get(&plan.newid)
            .is_some_and(|vm| vm.host == plan.node)
        {
            return Err(format!(
                "unable to create VM {}: config file already exists",
                plan.newid
            ));
        }
        for (key, drive) in source.drives() {
            if !plan.full && !drive.is_cloudinit() {
                let of = self.storages.get(drive.storage());
                if !of.is_some_and(|of| of.kind.links_clones_to(&drive.file)) {
                    return Err(format!(
                        "Linked clone feature is not supported for '{}' ({key})",
                        drive.file
                    ));
                }
            }
        }
        Ok(())
    }

    /// A clone for another host needs every volume where that host sees it.
    fn check_target(&self, plan: &ClonePlan, source: &SimVm) -> WorkerEnd {
        let local = source
            .drives()
            .iter()
            .any(|(_, drive)| is_local(self, drive));
        if plan.target != plan.node && local {
            return Err(format!(
                "can't clone VM to node '{}' (VM uses local storage)",
                plan.target
            ));
        }
        Ok(())
    }

    /// The clone's configuration, without its disks.
    fn cloned(&mut self, plan: &ClonePlan) -> Result<SimVm, String> {
        let source = self.vm(&plan.node, plan.source)?.clone();
        let mut vm = SimVm::new(plan.newid, &plan.node);
        vm.numbers.clone_from(&source.numbers);
        let skipped = |key: &str| {
            matches!(key, "template" | "lock" | "vmgenid")
                || key.starts_with("unused")
                || super::schema::is_disk(key)
        };
        vm.config = source
            .config
            .iter()
            .filter(|(key, _)| !skipped(key))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        for (key, text) in &mut vm.config {
            if key.starts_with("net")
                && let Some((model, rest)) = text
                    .split_once('=')
                    .map(|(a, b)| (a.to_owned(), b.to_owned()))
            {
                let rest = rest
                    .split_once(',')
                    .map(|(_, rest)| format!(",{rest}"))
                    .unwrap_or_default();
                *text = format!("{model}={}{rest}", self.mac());
            }
        }
        // An empty CD drive is copied as it is.
        for (key, text) in source
            .config
            .iter()
            .filter(|(key, _)| super::schema::is_disk(key))
        {
            let drive = Drive::parse(text);
            if drive.is_empty_cdrom() || drive.is_iso() {
                vm.config.insert(key.clone(), text.clone());
            }
        }
        let generation = source.config.contains_key("vmgenid");
        self.identify(&mut vm, generation);
        let name = plan
            .name
            .clone()
            .unwrap_or_else(|| match source.config.get("name") {
                Some(name) => format!("Copy-of-VM-{name}"),
                None => format!("Copy-of-VM-{}", plan.source),
            });
        vm.config.insert("name".to_owned(), name);
        if let Some(text) = &plan.description {
            vm.config.insert("description".to_owned(), text.clone());
        }
        vm.config.insert("lock".to_owned(), "clone".to_owned());
        Ok(vm)
    }
}

/// The worker: locks, placeholder, disks one after the other, and the way back when it fails.
async fn clone(worker: Worker, plan: ClonePlan) -> WorkerEnd {
    let pve = worker.pve.clone();
    let running =
        pve.world(|world, _| world.vm(&plan.node, plan.source).map(|vm| vm.run.is_on()))?;
    let _source = if running {
        (Some(pve.lock_vm(plan.source, CLONE_LOCK).await?), None)
    } else {
        (None, Some(pve.share_vm(plan.source, CLONE_LOCK).await?))
    };
    let _own = pve.lock_vm(plan.newid, CLONE_LOCK).await?;
    pve.world(|world, now| {
        world.clones.insert(plan.newid, worker.upid.clone());
        world.check_clone(&plan, None, None)?;
        world.writable(&plan.node, plan.newid)?;
        if world.vms.contains_key(&plan.newid) {
            return Err(format!(
                "close (rename) atomic file '/etc/pve/nodes/{}/qemu-server/{}.conf' failed: File exists",
                plan.node, plan.newid
            ));
        }
        let mut vm = SimVm::new(plan.newid, &plan.node);
        vm.config.insert("description".to_owned(), PLACEHOLDER.to_owned());
        vm.config.insert("lock".to_owned(), "clone".to_owned());
        world.vms.insert(plan.newid, vm);
        world.touch(plan.newid, now);
        Ok(())
    })?;
    let mut made = Vec::new();
    let outcome = tokio::select! {
        biased;
        () = worker.cancel.cancelled() => Err("interrupted by signal".to_owned()),
        outcome = copy(&worker, &plan, &mut made) => outcome,
    };
    let Err(words) = outcome else { return Ok(()) };
    tokio::time::sleep(RELEASE).await;
    pve.world(|world, _| {
        for volume in &made {
            world.free(volume, &plan.node);
        }
        // Without quorum its configuration cannot be taken away either.
        if world.writable(&plan.node, plan.newid).is_ok() {
            world.vms.remove(&plan.newid);
        }
    });
    Err(format!("clone failed: {words}"))
}

async fn copy(worker: &Worker, plan: &ClonePlan, made: &mut Vec<String>) -> WorkerEnd {
    let pve = &worker.pve;
    let (mut vm, drives) = pve.world(|world, _| {
        let drives = world.vm(&plan.node, plan.source)?.drives();
        Ok::<(SimVm, Vec<(String, Drive)>), String>((world.cloned(plan)?, drives))
    })?;
    for (key, drive) in drives {
        let copied = copy_drive(worker, plan, &drive, made).await?;
        worker.log(format!("created {key} as {}", copied.file));
        vm.config.insert(key, copied.to_string());
        pve.world(|world, now| {
            world.writable(&plan.node, plan.newid)?;
            let mut written = vm.clone();
            if let Some(before) = world.vms.remove(&plan.newid) {
                // What others saw of the placeholder stays seen.
                written = before;
                written.config.clone_from(&vm.config);
                written.numbers.clone_from(&vm.numbers);
                written.incarnation = vm.incarnation;
            }
            world.vms.insert(plan.newid, written);
            world.touch(plan.newid, now);
            Ok::<(), String>(())
        })?;
    }
    pve.take(pve.timings().clone).await;
    pve.world(|world, now| {
        world.writable(&plan.node, plan.newid)?;
        let vm = world.vm_mut(&plan.node, plan.newid)?;
        vm.config.remove("lock");
        plan.target.clone_into(&mut vm.host);
        // `PVE::Firewall::clone_vmfw_conf`; what a former VM of that VMID left goes.
        world.firewalls.remove(&plan.newid);
        world.firewalls_on.remove(&plan.newid);
        if let Some(rules) = world.firewalls.get(&plan.source).cloned() {
            world.firewalls.insert(plan.newid, rules);
        }
        if world.firewalls_on.contains(&plan.source) {
            world.firewalls_on.insert(plan.newid);
        }
        if let Some(pool) = &plan.pool {
            world
                .pools
                .entry(pool.clone())
                .or_default()
                .insert(plan.newid);
        }
        world.touch(plan.newid, now);
        world.note(now, &worker.user, plan.newid, "clone");
        Ok(())
    })
}

async fn copy_drive(
    worker: &Worker,
    plan: &ClonePlan,
    drive: &Drive,
    made: &mut Vec<String>,
) -> Result<Drive, String> {
    let pve = &worker.pve;
    let cloudinit = drive.is_cloudinit();
    let full = plan.full || cloudinit;
    let storage = plan
        .storage
        .as_deref()
        .filter(|_| full)
        .unwrap_or_else(|| drive.storage())
        .to_owned();
    let word = if full { "full" } else { "linked" };
    worker.log(format!("create {word} clone of drive ({})", drive.file));
    let (size, used) = pve.world(|world, _| {
        let volume = world.volume(&drive.file, &plan.node);
        let volume = volume.ok_or_else(|| format!("volume '{}' does not exist", drive.file))?;
        Ok::<(u64, u64), String>((volume.size, volume.used))
    })?;
    let id = {
        let _lock = pve.lock_storage(&storage, &plan.node).await?;
        let timings = pve.timings();
        let shared = pve.world(|world, _| world.place(&storage, &plan.node).is_empty());
        pve.take(if shared {
            timings.allocate_shared
        } else {
            timings.allocate_local
        })
        .await;
        pve.world(|world, now| {
            world.makes_volumes(&storage)?;
            world.allocate(&NewVolume {
                storage: &storage,
                host: &plan.node,
                vmid: plan.newid,
                size,
                used: if full { 0 } else { OVERLAY },
                parent: (!full).then_some(drive.file.as_str()),
                cloudinit,
                copied: full,
                base: false,
                ctime: now.0 / 1_000,
            })
        })?
    };
    made.push(id.clone());
    if full {
        copy_bytes(worker, plan, &storage, &id, used).await?;
    }
    let mut copied = drive.clone();
    copied.file = id;
    if full {
        // PVE writes what it copied; a cloud-init drive had no size before.
        copied.set("size", &super::disks::format_size(size));
    }
    Ok(copied)
}

/// Copies a volume's content: the more copies on a storage, the slower each.
async fn copy_bytes(
    worker: &Worker,
    plan: &ClonePlan,
    storage: &str,
    id: &str,
    bytes: u64,
) -> WorkerEnd {
    let pve = &worker.pve;
    let key = pve.world(|world, _| {
        let key = (
            world.place(storage, &plan.node).to_owned(),
            storage.to_owned(),
        );
        *world.copies.entry(key.clone()).or_default() += 1;
        key
    });
    let _copying = Copying {
        pve: pve.clone(),
        key: key.clone(),
    };
    let others = pve.world(|world, _| world.copies.get(&key).copied().unwrap_or(1));
    let pace = pve.draw(pve.timings().copy_gib);
    // Rounded up, so that the smallest copy takes a moment too.
    let millis = pace
        .saturating_mul(bytes)
        .div_ceil(GIB)
        .saturating_mul(others);
    tokio::time::sleep(Duration::from_millis(millis)).await;
    let available = pve.world(|world, _| world.space(storage, &plan.node).1);
    if available < bytes {
        // What the command says to its standard error; PVE's own words are its exit code.
        worker.log(format!("transferred {available} of {bytes} bytes"));
        worker.log(format!(
            "qemu-img: error while writing at byte {available}: No space left on device"
        ));
    } else {
        worker.log(format!("transferred {bytes} of {bytes} bytes (100.00%)"));
    }
    pve.world(|world, _| {
        let kind = world.storages.get(storage).map_or(StorageKind::Dir, |storage| storage.kind);
        if available < bytes {
            let format = kind.format();
            return Err(format!(
                "copy failed: command '/usr/bin/qemu-img convert -p -n -O {format} {id}' failed: exit code 1"
            ));
        }
        if let Some(volume) = world.volume_mut(id, &plan.node) {
            volume.used = bytes;
        }
        Ok(())
    })
}

/// Counts a copy until it ends, however it ends.
#[derive(Debug)]
struct Copying {
    pve: Pve,
    key: (String, String),
}

impl Drop for Copying {
    fn drop(&mut self) {
        self.pve
            .world(|world, _| decrement(&mut world.copies, &self.key));
    }
}

fn decrement(copies: &mut BTreeMap<(String, String), u64>, key: &(String, String)) {
    if let Some(count) = copies.get_mut(key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            copies.remove(key);
        }
    }
}

//! A machine's ISO for cloud-init: made and put in before its first start, taken out and removed once its node is Ready.
//!
//! A crash may come at any call. What is there is looked at before anything is done: an image that nobody knows the secret of any more
//! gives way to another one, and those that no machine needs are swept away (`controller::isos`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use tokio::time::{sleep, timeout};

use crate::config::settings::CloudInitSettings;
use crate::config::storage_names::StorageNames;
use crate::controller::file_storages;
use crate::controller::nocloud::{self, NocloudInput};
use crate::model::facts::Facts;
use crate::pve::{ConfigUpdate, FailureCause, IsoOwner, VmConfig, iso_name, iso_volume};

use super::work::{Stop, Work, is_transient};
use super::{joining, node, vm};

/// Between two looks whether PVE has copied an image, or removed it.
const LOOK: Duration = Duration::from_millis(500);
/// Taking an image out and away is tried for so long; what is left is swept away later.
const PATIENCE: Duration = Duration::from_mins(1);
/// After a call that PVE could not do just now.
const PAUSE: Duration = Duration::from_secs(1);
/// Writes that PVE took after which a drive that still differs will always differ.
const MAX_WRITES: u32 = 3;
/// PVE's content type of the images.
const ISO: &str = "iso";
/// The CD drives that an image may come to, the one that PVE's own images are in first.
const DRIVES: [&str; 4] = ["ide2", "ide3", "ide1", "ide0"];

/// What the configuration says to the machine's cloud-init.
fn texts(work: &Work) -> Option<Arc<CloudInitSettings>> {
    let templates = &work.tools.settings.templates;
    templates
        .get(work.mark.template.as_str())?
        .cloud_init
        .clone()
}

/// Whose images are the machine's, by their names.
fn owner(work: &Work) -> Result<IsoOwner, Stop> {
    let region = work.entry()?.target.region;
    Ok(IsoOwner::of(&work.mark.cluster, &region))
}

/// The drives that an image of the machine's is in, with the volumes: one that its name says to be its own, or one of its VMID that an
/// older program put in.
fn drives<'a>(
    (owner, vmid): (&IsoOwner, u32),
    config: &'a VmConfig,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let own = move |volume: &str| {
        let file = iso_volume(volume);
        file.is_some_and(|(_, file)| file.is_of(owner, vmid) || file.may_be_of(vmid))
    };
    let disks = config
        .disks
        .iter()
        .filter(move |(_, disk)| own(&disk.volume));
    disks.map(|(key, disk)| (&**key, &*disk.volume))
}

/// Sees that a machine which is off starts with the right image, if its template wants one. One that has a node needs none.
pub(super) async fn placed(work: &Work) -> Result<(), Stop> {
    let texts = texts(work);
    if texts.is_none() && !joining::at_first_boot(work) {
        return Ok(());
    }
    let config = vm::ours(work).await?;
    let host = work.host()?;
    let status = work
        .patiently("reading the status", || {
            work.pve.vm_status(&host, work.mark.vmid)
        })
        .await?;
    if status.running {
        return Ok(());
    }
    let uuid = node::uuid(work).await?;
    if node::has_joined(work, &uuid)? {
        // It would not start without its image, which may be gone.
        return eject_image(work).await.map(drop);
    }
    let Some(texts) = texts else {
        let template = &work.mark.template;
        return Err(vm::forbidden(&format!(
            "cloud-init was to join it, and there is no [template.{template}.cloud_init]"
        )));
    };
    let image = image(work, &texts, &config, &uuid).await?;
    let name = iso_name(&owner(work)?, work.mark.vmid, &image);
    let storage = chosen_storage(work, &texts.storage).await?;
    let volume = format!("{storage}:iso/{name}");
    work.record(|entry| entry.written.image_storage = Some(storage.clone()))?;
    uploaded(work, &storage, &name, &image).await?;
    inserted(work, &volume).await
}

/// The storage that the image comes to. Of a list it is the first that the host has for ISOs, and where one came before it stays with that
/// while the host has it. A storage that is not available just now is tried where there is no other: PVE tells what is wrong with it.
async fn chosen_storage(work: &Work, names: &StorageNames) -> Result<String, Stop> {
    if !names.is_list() {
        return Ok(names.first().to_owned());
    }
    let resources = work
        .patiently("reading the resources", || work.pve.resources())
        .await?;
    let host = work.host()?;
    let before = work.entry()?.written.image_storage;
    let before = before.filter(|name| {
        names.contains(name) && file_storages::lack(name, ISO, &host, &resources).is_none()
    });
    let of_host = resources.storages.get(&*host);
    let has = |name: &&str| of_host.is_some_and(|of_host| of_host.contains_key(*name));
    let chosen = || {
        let taken = file_storages::choose(names, ISO, &host, &resources);
        taken.or_else(|| names.iter().find(has)).map(str::to_owned)
    };
    before.or_else(chosen).ok_or_else(|| {
        let why = file_storages::explain_none(names, ISO, &host, &resources);
        let template = &work.mark.template;
        Stop::Failed(format!(
            "the ISO for cloud-init does not come to host {host}: {why}; name a storage that it has as storage in [template.{template}.cloud_init]"
        ))
    })
}

async fn image(
    work: &Work,
    texts: &CloudInitSettings,
    config: &VmConfig,
    uuid: &str,
) -> Result<Vec<u8>, Stop> {
    let script = if joining::at_first_boot(work) {
        Some(joining::first_boot(work).await?)
    } else {
        None
    };
    let entry = work.entry()?;
    let policy = &work.tools.settings.policy;
    let zone = policy.zone_of(&entry.target.region, &entry.target.host);
    let mut words = nocloud::words(config, &zone);
    joining::add_words(work, &mut words)?;
    let machine_config = machine_config(texts).await?;
    let template = work
        .tools
        .settings
        .templates
        .get(work.mark.template.as_str());
    nocloud::image(&NocloudInput {
        texts,
        upgrade: template.is_some_and(|template| template.ci_upgrade),
        facts: Facts {
            machine: &work.machine,
            vmid: work.mark.vmid,
            host: &entry.target.host,
            region: &entry.target.region,
            pool: &work.mark.pool,
            instance_type: &work.mark.instance_type,
        },
        words: &words,
        uuid,
        machine_config: machine_config.as_ref(),
        first_boot: script.as_ref(),
    })
    .map_err(Stop::Failed)
}

/// The machine configuration that the file names, read anew.
async fn machine_config(texts: &CloudInitSettings) -> Result<Option<SecretString>, Stop> {
    let Some(path) = texts.machine_config.clone() else {
        return Ok(None);
    };
    let read = tokio::task::spawn_blocking(move || nocloud::read_machine_config(&path)).await;
    let read = read.map_err(|error| Stop::Transient(error.to_string()))?;
    read.map(Some).map_err(Stop::Failed)
}

/// The image is on the host's storage, whole, and no other one of the machine's.
async fn uploaded(work: &Work, storage: &str, name: &str, image: &[u8]) -> Result<(), Stop> {
    let volume = format!("{storage}:iso/{name}");
    let mut sent = false;
    loop {
        let host = work.host()?;
        let there = work
            .patiently("listing ISOs", || work.pve.isos(&host, storage))
            .await?;
        if there.get(&volume) == Some(&image.len()) {
            break;
        }
        if !sent {
            match work.pve.upload_iso(&host, storage, name, image).await {
                Ok(()) => sent = true,
                Err(error) if is_transient(&error) => {
                    work.note_outage(error.to_string());
                    work.wait_before_retry(&error, PAUSE).await?;
                }
                Err(error) => {
                    return Err(Stop::Failed(format!(
                        "the ISO for cloud-init does not come to storage {storage} of host {host}: {error}; `pve-autoscaler check --live` says what the storage or the token lacks"
                    )));
                }
            }
        }
        work.progress(format!(
            "PVE copies the ISO for cloud-init to storage {storage}; where that lasts, its task imgcopy on {host} says why"
        ));
        sleep(LOOK).await;
    }
    Ok(())
}

/// The VM's only image is this one, and PVE's own drive for cloud-init is gone: cloud-init reads one of them, whichever it finds.
async fn inserted(work: &Work, volume: &str) -> Result<(), Stop> {
    let mut writes = 0;
    let owner = owner(work)?;
    let own = (&owner, work.mark.vmid);
    loop {
        let config = vm::unlocked(work).await?;
        let mut update = ConfigUpdate {
            set: BTreeMap::new(),
            delete: Vec::new(),
            digest: config.digest.clone(),
        };
        let free = |key: &&str| {
            config.disks.get(*key).is_none_or(|disk| {
                let empty = disk.cdrom && disk.volume == "none";
                empty || disk.cloud_init || drives(own, &config).any(|(other, _)| other == *key)
            })
        };
        let Some(key) = DRIVES.iter().copied().find(free) else {
            return Err(Stop::Failed(
                "the VM has no CD drive free for cloud-init's ISO: ide0 to ide3 hold something else; take it out of the template"
                    .to_owned(),
            ));
        };
        let wanted = format!("{volume},media=cdrom");
        for (drive, disk) in &config.disks {
            if disk.cloud_init {
                update.delete.push(drive.to_string());
            }
        }
        for (other, _) in drives(own, &config) {
            update
                .set
                .insert(other.to_owned(), "none,media=cdrom".to_owned());
        }
        update.delete.retain(|deleted| deleted != key);
        if drives(own, &config).any(|(at, now)| at == key && now == volume) {
            update.set.remove(key);
        } else {
            update.set.insert(key.to_owned(), wanted);
        }
        if update.set.is_empty() && update.delete.is_empty() {
            return Ok(());
        }
        written(
            work,
            &update,
            "putting the ISO for cloud-init in",
            &mut writes,
        )
        .await?;
    }
}

/// The machine has no image of ours in any drive; the volumes that were in one, which proves that they are its own.
async fn eject_image(work: &Work) -> Result<BTreeSet<String>, Stop> {
    let (mut writes, mut proven) = (0, BTreeSet::new());
    let owner = owner(work)?;
    loop {
        let config = vm::unlocked(work).await?;
        let mut set = BTreeMap::new();
        for (key, volume) in drives((&owner, work.mark.vmid), &config) {
            set.insert(key.to_owned(), "none,media=cdrom".to_owned());
            proven.insert(volume.to_owned());
        }
        if set.is_empty() {
            return Ok(proven);
        }
        let update = ConfigUpdate {
            set,
            delete: Vec::new(),
            digest: config.digest.clone(),
        };
        written(
            work,
            &update,
            "taking the ISO for cloud-init out",
            &mut writes,
        )
        .await?;
    }
}

/// Writes to the VM's configuration once. `writes` counts how often PVE took it for one purpose.
async fn written(
    work: &Work,
    update: &ConfigUpdate,
    what: &str,
    writes: &mut u32,
) -> Result<(), Stop> {
    let host = work.host()?;
    if *writes == MAX_WRITES {
        return Err(Stop::Failed(format!(
            "{what}: PVE took it {MAX_WRITES} times and does not keep it; `qm pending {}` on {host} shows what waits",
            work.mark.vmid
        )));
    }
    work.changing();
    match work.pve.update_config(&host, work.mark.vmid, update).await {
        Ok(()) => {
            *writes += 1;
            Ok(())
        }
        Err(error)
            if is_transient(&error)
                || matches!(error.cause(), FailureCause::Changed | FailureCause::Gone) =>
        {
            work.note_outage(error.to_string());
            work.wait_before_retry(&error, PAUSE).await
        }
        Err(error) => Err(Stop::of_call(what, &error)),
    }
}

/// Takes the image out and removes it once the node is Ready or the machine has failed, as far as that is possible in short time.
pub(super) async fn take_out_image(work: &Work) {
    if !may_have_image(work) {
        return;
    }
    let gone = async {
        let proven = eject_image(work).await?;
        remove_files(work, &proven).await
    };
    tell(work, timeout(PATIENCE, gone).await.ok());
}

/// Takes the image out of a machine that failed and may be kept, and removes it, where one was brought.
pub(super) async fn give_up_image(work: &Work) {
    let brought = work.entry().ok();
    if brought.is_some_and(|entry| entry.written.image_storage.is_some()) {
        take_out_image(work).await;
    }
}

/// Removes the image of a VM that is gone.
pub(super) async fn remove_image(work: &Work) {
    if may_have_image(work) {
        tell(
            work,
            timeout(PATIENCE, remove_files(work, &BTreeSet::new()))
                .await
                .ok(),
        );
    }
}

/// An image of the machine's may be somewhere: one was brought, or the file wants one now.
fn may_have_image(work: &Work) -> bool {
    let entry = work.entry().ok();
    let brought = entry.is_some_and(|entry| entry.written.image_storage.is_some());
    brought || texts(work).is_some()
}

/// The storages on which an image of the machine's may be: the one that it was brought to, and those that the file names now, of a list those
/// that the host has.
async fn image_storages(work: &Work) -> Result<BTreeSet<String>, Stop> {
    let mut storages: BTreeSet<String> = work.entry()?.written.image_storage.into_iter().collect();
    let Some(texts) = texts(work) else {
        return Ok(storages);
    };
    if !texts.storage.is_list() {
        storages.insert(texts.storage.first().to_owned());
        return Ok(storages);
    }
    let resources = work
        .patiently("reading the resources", || work.pve.resources())
        .await?;
    let host = work.host()?;
    let names = texts.storage.iter();
    let here = names.filter(|name| file_storages::lack(name, ISO, &host, &resources).is_none());
    storages.extend(here.map(str::to_owned));
    Ok(storages)
}

fn tell(work: &Work, gone: Option<Result<(), Stop>>) {
    let why = match gone {
        Some(Ok(())) => return,
        Some(Err(stop)) => stop.told(),
        None => format!("it took longer than {} s", PATIENCE.as_secs()),
    };
    tracing::warn!(machine = %work.machine, %why, "the ISO for cloud-init could not be removed; it is swept away while a template in the file has its storage, and the token in it counts no more");
}

/// No image of the machine's is on its host's storages. `proven`: those that were in its VM's drives.
async fn remove_files(work: &Work, proven: &BTreeSet<String>) -> Result<(), Stop> {
    for storage in image_storages(work).await? {
        remove_files_on(work, &storage, proven).await?;
    }
    Ok(())
}

/// The journal proves of a name without owner that it is the machine's: an older program brought its image to this storage, which is the
/// host's own.
async fn journal_proves(work: &Work, host: &str, storage: &str) -> Result<bool, Stop> {
    if work.entry()?.written.image_storage.as_deref() != Some(storage) {
        return Ok(false);
    }
    let resources = work
        .patiently("reading the resources", || work.pve.resources())
        .await?;
    let of_host = resources.storages.get(host);
    let found = of_host.and_then(|of_host| of_host.get(storage));
    Ok(found.is_some_and(|found| !found.shared))
}

/// No image of the machine's is on a storage of its host. What only its VMID speaks for is removed where there is proof.
async fn remove_files_on(
    work: &Work,
    storage: &str,
    proven: &BTreeSet<String>,
) -> Result<(), Stop> {
    let (owner, vmid) = (owner(work)?, work.mark.vmid);
    loop {
        let host = work.host()?;
        let there = work
            .patiently("listing ISOs", || work.pve.isos(&host, storage))
            .await?;
        let mut left = Vec::new();
        for volume in there.keys() {
            let Some((_, file)) = iso_volume(volume) else {
                continue;
            };
            let own = file.is_of(&owner, vmid)
                || file.may_be_of(vmid)
                    && (proven.contains(volume) || journal_proves(work, &host, storage).await?);
            if own {
                left.push(volume);
            }
        }
        if left.is_empty() {
            return Ok(());
        }
        for volume in left {
            match work.pve.remove_iso(&host, volume).await {
                Ok(()) => {}
                Err(error) if is_transient(&error) => work.note_outage(error.to_string()),
                Err(error) => return Err(error.into()),
            }
        }
        sleep(LOOK).await;
    }
}

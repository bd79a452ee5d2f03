//! What templates and pools say of their machines' hardware, by PVE's own rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::pools::ResolvedPool;
use super::regions::{ResolvedRegion, ResolvedRegions};
use super::{Problems, options};
use crate::config::file::{self, ConfigFile, NicModel};
use crate::config::hardware::{FurtherDiskSettings, Hardware, MACS, may_have_options};
use crate::config::new_vm::DISK;
use crate::config::place::KeyPath;
use crate::config::settings::TemplateSettings;
use crate::model::policy::InstanceType;
use crate::model::time::Span;
use crate::model::words;

/// CPU flags that PVE lets a VM have or not have (qemu-server, `CPUConfig.pm`).
const CPU_FLAGS: [&str; 13] = [
    "nested-virt",
    "md-clear",
    "pcid",
    "spec-ctrl",
    "ssbd",
    "ibpb",
    "virt-ssbd",
    "amd-ssbd",
    "amd-no-ssb",
    "pdpe1gb",
    "hv-tlbflush",
    "hv-evmcs",
    "aes",
];
/// Places of further disks: the bus, and its last number.
const BUSES: [(&str, u8); 3] = [("scsi", 7), ("virtio", 7), ("sata", 5)];
/// Further disks of a machine at most.
const MAX_DISKS: usize = 7;
/// Most sockets: more than any host has.
const MAX_SOCKETS: u32 = 8;
/// Highest limit of a disk in MB a second, and in operations a second: more than any has.
const MAX_MBPS: u32 = 100_000;
const MAX_IOPS: u32 = 10_000_000;
const GIB: i64 = 1 << 30;

/// What a template says of hardware.
pub(super) fn hardware(
    template: &file::Template,
    path: &KeyPath,
    problems: &mut Problems,
) -> Hardware {
    let sockets = template.sockets;
    problems.unless(
        sockets.is_none_or(|sockets| (1..=MAX_SOCKETS).contains(&sockets)),
        &path.at("sockets"),
        || format!("expected 1 to {MAX_SOCKETS}"),
    );
    let prefix = template.mac_prefix.as_deref();
    problems.text(
        &path.at("mac_prefix"),
        prefix,
        mac_prefix,
        "the first three bytes of MAC addresses, such as \"BC:24:11\", of which the first is even",
    );
    check_model(
        path,
        template.nic_model,
        template.mtu,
        template.multiqueue,
        problems,
    );
    for (position, nic) in template.nic.iter().enumerate() {
        let path = path.at("nic").at(&position);
        check_model(&path, nic.model, nic.mtu, nic.multiqueue, problems);
    }
    Hardware {
        onboot: template.onboot,
        startup: startup(template.startup.as_ref(), &path.at("startup"), problems),
        sockets,
        numa: template.numa,
        mac_prefix: prefix.map(str::to_ascii_uppercase),
        disks: disks(template, &path.at("disk"), problems),
        boot_disk: boot_disk(template, &path.at("boot_disk_options"), problems),
        options: options::options(template, path, problems),
    }
}

/// What virtio cards alone can have.
pub(super) fn check_model(
    path: &KeyPath,
    model: Option<NicModel>,
    mtu: Option<u16>,
    multiqueue: Option<bool>,
    problems: &mut Problems,
) {
    let other = model.filter(|model| *model != NicModel::Virtio);
    let Some(other) = other else {
        return;
    };
    let called = other.called();
    problems.unless(mtu.is_none(), &path.at("mtu"), || {
        format!("PVE sets it for virtio cards alone, and this one is {called}")
    });
    problems.unless(multiqueue != Some(true), &path.at("multiqueue"), || {
        format!("only virtio cards have several queues, and this one is {called}")
    });
}

fn mac_prefix(text: &str) -> bool {
    let bytes: Vec<Option<u8>> = text
        .split(':')
        .map(|pair| {
            u8::from_str_radix(pair, 16)
                .ok()
                .filter(|_| pair.len() == 2)
        })
        .collect();
    matches!(bytes[..], [Some(first), Some(_), Some(_)] if first & 1 == 0)
}

/// PVE's `cpu`: the model, and the flags behind it.
pub(super) fn cpu(
    template: &file::Template,
    path: &KeyPath,
    problems: &mut Problems,
) -> Option<String> {
    let model = template.cpu_type.clone();
    if template.cpu_flags.is_empty() {
        return model;
    }
    let path = path.at("cpu_flags");
    problems.unless(
        model
            .as_deref()
            .is_some_and(|model| !model.contains("flags=")),
        &path,
        || {
            "expected a cpu_type without flags beside it: PVE keeps model and flags as one"
                .to_owned()
        },
    );
    for (position, flag) in template.cpu_flags.iter().enumerate() {
        let path = path.at(&position);
        let name = flag.strip_prefix(['+', '-']);
        problems.unless(name.is_some_and(|name| CPU_FLAGS.contains(&name)), &path, || {
            format!(
                "expected + or - and one of {}: a VM may have no others in PVE, a custom CPU model may",
                CPU_FLAGS.join(", ")
            )
        });
        let same = |other: &String| other.get(1..) == flag.get(1..);
        problems.unless(
            !template.cpu_flags[..position].iter().any(same),
            &path,
            || "is named twice".to_owned(),
        );
    }
    Some(format!("{},flags={}", model?, template.cpu_flags.join(";")))
}

/// PVE's `startup`.
fn startup(
    startup: Option<&file::Startup>,
    path: &KeyPath,
    problems: &mut Problems,
) -> Option<String> {
    let startup = startup?;
    let mut parts: Vec<String> = startup
        .order
        .iter()
        .map(|order| format!("order={order}"))
        .collect();
    for (key, time) in [("up", startup.up), ("down", startup.down)] {
        let Some(time) = time else {
            continue;
        };
        let whole = time.0.0 % Span::seconds(1).0 == 0;
        problems.unless(whole, &path.at(key), || "expected whole seconds".to_owned());
        parts.push(format!("{key}={}", time.0.0 / Span::seconds(1).0));
    }
    problems.unless(!parts.is_empty(), path, || {
        "expected order, up or down".to_owned()
    });
    Some(parts.join(","))
}

/// Further disks by their places.
fn disks(
    template: &file::Template,
    path: &KeyPath,
    problems: &mut Problems,
) -> BTreeMap<String, FurtherDiskSettings> {
    let mut disks = BTreeMap::new();
    problems.unless(template.disk.len() <= MAX_DISKS, path, || {
        format!("expected at most {MAX_DISKS} further disks")
    });
    for (position, disk) in template.disk.iter().enumerate() {
        let path = path.at(&position);
        let key = path.at("storage");
        let storage = problems.require(disk.storage.as_ref(), &key, "a storage's name");
        if let Some(names) = storage {
            problems.storages(&key, names);
        }
        let size = problems.require(disk.size, &path.at("size"), "a size such as \"100GiB\"");
        problems.unless(
            size.is_none_or(|size| size.0 >= GIB && size.0 % GIB == 0),
            &path.at("size"),
            || "expected whole GiB, at least 1GiB".to_owned(),
        );
        let slot = disk
            .slot
            .clone()
            .unwrap_or_else(|| format!("scsi{}", position + 1));
        let at = path.at("slot");
        problems.unless(is_slot(&slot), &at, || {
            "expected scsi1 to scsi7, virtio1 to virtio7 or sata1 to sata5".to_owned()
        });
        let boots = template.boot_disk.as_deref() == Some(&slot);
        problems.unless(!boots, &at, || format!("{slot} is the boot_disk"));
        problems.unless(!disks.contains_key(&slot), &at, || {
            format!("another disk is at {slot} already")
        });
        let made = FurtherDiskSettings {
            storage: storage.cloned().unwrap_or_default(),
            size: size.unwrap_or_default().0,
            options: options(disk, &slot, &path, problems),
        };
        disks.insert(slot, made);
    }
    disks
}

fn is_slot(slot: &str) -> bool {
    BUSES.iter().any(|(bus, last)| {
        let number = slot.strip_prefix(bus).filter(|number| number.len() == 1);
        number.is_some_and(|number| {
            number
                .parse::<u8>()
                .is_ok_and(|number| (1..=*last).contains(&number))
        })
    })
}

/// PVE's options of a further disk, with a comma before each.
fn options(
    disk: &file::FurtherDisk,
    slot: &str,
    path: &KeyPath,
    problems: &mut Problems,
) -> String {
    let options = disk.options();
    check_place(&options, slot, path, problems);
    let options = named_options(&options, path, problems).into_iter();
    let parts: Vec<String> = options
        .map(|(key, value)| format!(",{key}={value}"))
        .collect();
    parts.concat()
}

/// PVE's options of the boot disk, by name.
fn boot_disk(
    template: &file::Template,
    path: &KeyPath,
    problems: &mut Problems,
) -> BTreeMap<String, String> {
    let Some(options) = &template.boot_disk_options else {
        return BTreeMap::new();
    };
    let created = template.create.as_ref();
    let slot = created.map_or(template.boot_disk.as_deref(), |_| Some(DISK));
    if let Some(slot) = slot {
        problems.unless(may_have_options(slot), path, || {
            format!("the boot_disk is {slot}; expected scsi0 to scsi7, virtio0 to virtio7 or sata0 to sata5 as boot_disk beside it")
        });
        check_place(options, slot, path, problems);
    }
    let shared =
        created.is_some_and(|of| of.scsi_controller == file::ScsiController::VirtioScsiPci);
    problems.unless(
        !shared || options.iothread != Some(true),
        &path.at("iothread"),
        || {
            "expected scsi_controller = \"virtio-scsi-single\" beside it: under another one no disk has a thread of its own"
                .to_owned()
        },
    );
    named_options(options, path, problems)
}

/// Options that disks on some buses do not have.
fn check_place(options: &file::DiskOptions, slot: &str, path: &KeyPath, problems: &mut Problems) {
    problems.unless(
        options.ssd.is_none() || !slot.starts_with("virtio"),
        &path.at("ssd"),
        || format!("a disk at {slot} has no such option; expected a slot such as scsi1"),
    );
    problems.unless(
        options.iothread.is_none() || !slot.starts_with("sata"),
        &path.at("iothread"),
        || format!("a disk at {slot} has no thread of its own; expected a slot such as scsi1"),
    );
}

/// PVE's options of a disk by name.
fn named_options(
    options: &file::DiskOptions,
    path: &KeyPath,
    problems: &mut Problems,
) -> BTreeMap<String, String> {
    let native = options.aio == Some(file::DiskAio::Native);
    let cached = options
        .cache
        .is_some_and(|cache| !matches!(cache, file::DiskCache::None | file::DiskCache::Directsync));
    problems.unless(!native || !cached, &path.at("aio"), || {
        "QEMU takes native with the caches none and directsync alone".to_owned()
    });
    for (key, limit, most) in [
        ("mbps_rd", options.mbps_rd, MAX_MBPS),
        ("mbps_wr", options.mbps_wr, MAX_MBPS),
        ("iops_rd", options.iops_rd, MAX_IOPS),
        ("iops_wr", options.iops_wr, MAX_IOPS),
    ] {
        problems.unless(
            limit.is_none_or(|limit| (1..=most).contains(&limit)),
            &path.at(key),
            || format!("expected 1 to {most}"),
        );
    }
    let flag = |on: bool| u8::from(on).to_string();
    let number = |limit: u32| limit.to_string();
    let discard = options
        .discard
        .map(|on| if on { "on" } else { "ignore" }.to_owned());
    let all = [
        ("aio", options.aio.map(|aio| aio.called().to_owned())),
        ("backup", options.backup.map(flag)),
        (
            "cache",
            options.cache.map(|cache| cache.called().to_owned()),
        ),
        ("discard", discard),
        ("iops_rd", options.iops_rd.map(number)),
        ("iops_wr", options.iops_wr.map(number)),
        ("iothread", options.iothread.map(flag)),
        ("mbps_rd", options.mbps_rd.map(number)),
        ("mbps_wr", options.mbps_wr.map(number)),
        ("ssd", options.ssd.map(flag)),
    ];
    let all = all.into_iter();
    all.filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect()
}

/// MAC addresses behind one prefix come from VMIDs: those of one region are enough for it, and no two regions share one.
pub(super) fn check_macs(
    templates: &BTreeMap<Arc<str>, TemplateSettings>,
    regions: &ResolvedRegions,
    problems: &mut Problems,
) {
    let prefixed: Vec<(&Arc<str>, &TemplateSettings, &str, &ResolvedRegion)> = templates
        .iter()
        .filter_map(|(name, template)| {
            let prefix = template.hardware.mac_prefix.as_deref()?;
            Some((name, template, prefix, regions.get(&template.region)?))
        })
        .collect();
    for (position, (name, template, prefix, region)) in prefixed.iter().enumerate() {
        let path = KeyPath::default()
            .at("template")
            .at(&**name)
            .at("mac_prefix");
        let last = region.vmids.last;
        problems.unless(last < MACS, &path, || {
            format!(
                "MAC addresses come from VMIDs, and behind the prefix is room for those up to {}; the region has them up to {last} (vmids)",
                MACS - 1
            )
        });
        let mut others = prefixed[..position].iter();
        let clash = others.find(|(_, other, of, seen)| {
            of == prefix && other.region != template.region && overlap(region, seen)
        });
        if let Some((other, ..)) = clash {
            problems.add(
                &path,
                format!("template {other} of another region has it too, for some of the same VMIDs, and MAC addresses come from VMIDs; expected another prefix, or other vmids"),
            );
        }
    }
}

fn overlap(one: &ResolvedRegion, other: &ResolvedRegion) -> bool {
    one.vmids.first <= other.vmids.last && other.vmids.first <= one.vmids.last
}

/// What a pool's types must be for the sockets of its template.
pub(super) fn check_sockets(
    templates: &BTreeMap<Arc<str>, TemplateSettings>,
    types: &BTreeMap<Arc<str>, InstanceType>,
    pools: &BTreeMap<Arc<str>, ResolvedPool>,
    problems: &mut Problems,
) {
    let places = pools.values();
    let places = places.flat_map(|pool| pool.policy.everywhere().map(move |there| (pool, there)));
    for (pool, there) in places {
        let template = templates.get(&there.template);
        let Some(sockets) = template.and_then(|template| template.hardware.sockets) else {
            continue;
        };
        let mut kinds = there.instance_types.iter();
        let odd = kinds.find(|name| {
            let kind = types.get(*name);
            kind.is_some_and(|kind| sockets > 0 && kind.cores % sockets != 0)
        });
        if let Some(name) = odd {
            let cores = types.get(name).map_or(0, |kind| kind.cores);
            problems.add(
                &pool.path.at(if pool.policy.further.is_empty() {
                    "template"
                } else {
                    "templates"
                }),
                format!(
                    "its machines have {sockets} sockets (template.{}.sockets), and the {} of instance type {name} cannot be divided among them",
                    there.template,
                    words::count(cores as usize, "core")
                ),
            );
        }
    }
}

/// `cpu_limit` of a pool in thousandths of a CPU.
pub(super) fn cpu_limit(pool: &file::Pool, path: &KeyPath, problems: &mut Problems) -> Option<i64> {
    let limit = pool.cpu_limit?.0;
    // PVE's own bounds; 0 would be none.
    problems.unless(
        (1..=128_000).contains(&limit),
        &path.at("cpu_limit"),
        || "expected PVE's cpulimit, more than 0 and at most 128 CPUs".to_owned(),
    );
    Some(limit)
}

/// What the host may take of the memory of a pool's machines, in bytes: what is kept from pods.
pub(super) fn balloon(
    pool: &file::Pool,
    kept: i64,
    path: &KeyPath,
    problems: &mut Problems,
) -> Option<i64> {
    if !pool.balloon {
        return None;
    }
    problems.unless(kept > 0, &path.at("balloon"), || {
        "the host may take what is kept from pods, and nothing is: expected kubelet.system_reserved.memory or kubelet.kube_reserved.memory beside it".to_owned()
    });
    Some(kept)
}

/// Limits below what pods are promised: allowed, for a CPU that is short only slows them.
pub(super) fn warn(
    file: &ConfigFile,
    types: &BTreeMap<Arc<str>, InstanceType>,
    pools: &BTreeMap<Arc<str>, ResolvedPool>,
    warnings: &mut Vec<String>,
) {
    for (name, pool) in pools {
        let limit = file.pool.get(&**name).and_then(|pool| pool.cpu_limit);
        let Some(limit) = limit else {
            continue;
        };
        let policy = &pool.policy;
        let kinds = policy.instance_types.iter();
        let mut kinds = kinds.filter_map(|kind| Some((kind, types.get(kind)?)));
        let short = kinds
            .find(|(_, kind)| i64::from(kind.cores) * 1000 - policy.reserved.cpu_milli > limit.0);
        if let Some((kind, _)) = short {
            warnings.push(format!(
                "pool.{name}.cpu_limit: pods on a node of instance type {kind} are promised more CPUs than the {limit} that its VM gets; they slow down when all want theirs"
            ));
        }
    }
}

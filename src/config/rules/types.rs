//! Instance types: those of the file and those that its matrices mean.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Problems, each, labels, name, shared};
use crate::config::file::{self, ConfigFile};
use crate::config::place::KeyPath;
use crate::config::scalar::{Amount, PciText, Size};
use crate::config::syntax;
use crate::model::pci::MAX_DEVICES;
use crate::model::policy::{InstanceType, Policy, Reserved};
use crate::model::resources::{huge_pages, is_huge_pages};

const MIB: i64 = 1 << 20;
const GIB: i64 = 1 << 30;
/// Less memory than this no kubelet runs in.
const MIN_MEMORY: i64 = 512 * MIB;
/// The largest memory of a type, far beyond what a host has: more is a slip of the pen.
const MAX_MEMORY: i64 = 64 << 40;
/// The most CPUs that QEMU's machine types give a VM.
const MOST_CORES: u32 = 4096;
/// Instance types of one matrix: each of them is tried for each group of pods.
const MAX_TYPES: usize = 64;

/// All instance types by name, and which of them each matrix means.
pub(super) struct InstanceTypes {
    types: BTreeMap<String, file::InstanceTypeTable>,
    matrices: BTreeMap<String, Vec<String>>,
}

impl InstanceTypes {
    /// Those of the file.
    pub(super) fn of(file: &ConfigFile, problems: &mut Problems) -> InstanceTypes {
        let mut types = file.instance_type.clone();
        let mut matrices = BTreeMap::new();
        for (key, matrix) in &file.instance_matrix {
            let path = KeyPath::default().at("instance_matrix").at(key);
            check_matrix(key, matrix, &path, problems);
            problems.unless(!file.instance_type.contains_key(key), &path, || {
                format!("there is a table [instance_type.{key}] too, and pools name either; expected another name")
            });
            let own = matrix.types(key);
            for (kind, _) in &own {
                problems.unless(!file.instance_type.contains_key(kind), &path, || {
                    format!("it means an instance type {kind}, and there is a table [instance_type.{kind}]")
                });
            }
            let other = file.instance_matrix.iter().find(|(other, matrix)| {
                let mut types = matrix.types(other).into_iter();
                types.any(|(kind, _)| kind == *key)
            });
            if let Some((other, _)) = other {
                problems.add(
                    &path,
                    format!("[instance_matrix.{other}] means an instance type of this name too, and pools name either; expected another name"),
                );
            }
            matrices.insert(
                key.clone(),
                own.iter().map(|(kind, _)| kind.clone()).collect(),
            );
            types.extend(own);
        }
        InstanceTypes { types, matrices }
    }

    /// As the brain reads them.
    pub(super) fn policy(
        &self,
        file: &ConfigFile,
        problems: &mut Problems,
    ) -> BTreeMap<Arc<str>, InstanceType> {
        let mut found = BTreeMap::new();
        for (key, kind) in &file.instance_type {
            let path = KeyPath::default().at("instance_type").at(key);
            name(&path, key, 63, problems);
            check_size(kind, &path, problems);
            check_pages(kind, None, &path, problems);
            found.insert(shared(key), resolved(kind, key, &path, problems));
        }
        for (matrix, names) in &self.matrices {
            let path = KeyPath::default().at("instance_matrix").at(matrix);
            // What is the same for all is said once.
            let mut told = false;
            let own = names.iter().filter_map(|key| self.types.get_key_value(key));
            if let Some((key, kind)) = own.min_by_key(|(_, kind)| kind.memory.unwrap_or_default().0)
            {
                check_pages(kind, Some(key), &path, problems);
            }
            for key in names {
                let Some(kind) = self.types.get(key) else {
                    continue;
                };
                let mut again = Problems::none(None);
                let problems = if told { &mut again } else { &mut *problems };
                found.insert(shared(key), resolved(kind, key, &path, problems));
                told = true;
            }
        }
        found
    }

    /// A pool's instance types: those that it names, and all of the matrices that it names.
    pub(super) fn of_pool(
        &self,
        pool: &file::Pool,
        path: &KeyPath,
        problems: &mut Problems,
    ) -> Vec<String> {
        let path = path.at("instance_types");
        let named = problems
            .require(
                pool.instance_types.as_ref(),
                &path,
                "a list of instance types",
            )
            .map_or(&[][..], Vec::as_slice);
        let empty = pool.instance_types.as_ref().is_some_and(Vec::is_empty);
        problems.unless(!empty, &path, || {
            "expected at least one instance type".to_owned()
        });
        let mut found: Vec<String> = Vec::new();
        for (position, wanted) in named.iter().enumerate() {
            let path = path.at(&position);
            let of_matrix = self.matrices.get(wanted);
            let own = of_matrix.cloned().unwrap_or_else(|| vec![wanted.clone()]);
            let before = found.len();
            for kind in own {
                let known = self.types.contains_key(&kind);
                problems.unless(known, &path, || {
                    format!(
                        "there is no table [instance_type.{kind}] and no [instance_matrix.{kind}]"
                    )
                });
                // What a list has twice is said of the list.
                let twice = found[..before].contains(&kind) && !named[..position].contains(wanted);
                problems.unless(!twice, &path, || {
                    format!("the instance type {kind} is named twice, once by its matrix")
                });
                if !found.contains(&kind) {
                    found.push(kind);
                }
            }
        }
        each(named, &path, |_| true, "an instance type", problems);
        found
    }

    /// The sizes of the disks of instance types that say one.
    pub(super) fn disks(&self, names: &[String]) -> Vec<i64> {
        let types = names.iter().filter_map(|name| self.types.get(name));
        types.filter_map(|kind| Some(kind.disk?.0)).collect()
    }

    /// Something must be left for pods on every instance type.
    pub(super) fn check_reserved(
        &self,
        kept: &Reserved,
        names: &[String],
        path: &KeyPath,
        problems: &mut Problems,
    ) {
        for name in names {
            let Some(kind) = self.types.get(name) else {
                continue;
            };
            let memory = kind.memory.unwrap_or_default().0;
            let share = memory / 1000 * kept.kernel_memory_permille;
            // More pages than memory is an error of the type.
            let pages = Some(pages(&kind.extended)).filter(|pages| *pages < memory);
            let pages = pages.unwrap_or(0);
            let taken = [kept.kernel_memory, kept.memory, kept.eviction_memory, pages]
                .iter()
                .fold(share, |sum, size| sum.saturating_add(*size));
            problems.unless(
                memory == 0 || taken < memory,
                &path.at("reserved").at("memory"),
                || {
                    let beside = if pages > 0 {
                        format!(" beside its {} of huge pages (`extended`)", Size(pages))
                    } else {
                        String::new()
                    };
                    format!(
                        "nothing of the memory of instance type {name} is left for pods{beside}"
                    )
                },
            );
            let cores = i64::from(kind.cores.unwrap_or(0)) * 1000;
            problems.unless(
                cores == 0 || kept.cpu_milli < cores,
                &path.at("reserved").at("cpu"),
                || format!("nothing of the CPUs of instance type {name} is left for pods"),
            );
        }
        problems.unless(
            kept.disk_permille < 1000,
            &path.at("reserved").at("disk_share"),
            || "expected less than 1".to_owned(),
        );
    }

    /// What is allowed but looks like a mistake: types that no pool has, devices that pods cannot ask for.
    pub(super) fn warn(&self, file: &ConfigFile, policy: &Policy, warnings: &mut Vec<String>) {
        let used = |name: &str| {
            let mut pools = policy.pools.values();
            pools.any(|pool| pool.instance_types.iter().any(|kind| **kind == *name))
        };
        let devices = |what: String| {
            format!(
                "{what}: it has PCI devices and offers no resource in extended, such as \"nvidia.com/gpu\" = 1, by which pods could ask for them"
            )
        };
        for (name, kind) in &file.instance_type {
            if !used(name) {
                warnings.push(format!("instance_type.{name}: no pool uses it"));
            }
            if !kind.pci.is_empty() && kind.extended.is_empty() {
                warnings.push(devices(format!("instance_type.{name}")));
            }
        }
        for (name, matrix) in &file.instance_matrix {
            let mut own = self.matrices.get(name).into_iter().flatten();
            if !own.any(|kind| used(kind)) {
                warnings.push(format!("instance_matrix.{name}: no pool uses it"));
            }
            if !matrix.pci.is_empty() && matrix.extended.is_empty() {
                warnings.push(devices(format!("instance_matrix.{name}")));
            }
        }
    }
}

/// The sizes of a matrix, and the names that come of them.
fn check_matrix(key: &str, matrix: &file::InstanceMatrix, path: &KeyPath, problems: &mut Problems) {
    name(path, key, 63, problems);
    let cores = list(
        matrix.cores.as_deref(),
        &path.at("cores"),
        "a list of numbers of cores, such as [2, 4, 8]",
        problems,
    );
    for (position, cores) in cores.iter().enumerate() {
        if let Some(wrong) = wrong_cores(*cores) {
            problems.add(&path.at("cores").at(&position), wrong);
        }
    }
    let sizes = list(
        matrix.memory_per_core.as_deref(),
        &path.at("memory_per_core"),
        "a list of sizes, such as [\"2GiB\", \"4GiB\"]",
        problems,
    );
    let count = cores.len().saturating_mul(sizes.len());
    problems.unless(count <= MAX_TYPES, path, || {
        format!("it means {count} instance types; expected at most {MAX_TYPES}, for each of them is tried for the pods that wait")
    });
    let small = matrix.types(key).into_iter().find(|(_, kind)| {
        let memory = kind.memory.unwrap_or_default().0;
        kind.cores != Some(0) && !whole(memory)
    });
    if let Some((kind, of)) = small {
        problems.add(
            &path.at("memory_per_core"),
            format!(
                "the type {kind} would have {} of memory; expected whole MiB, at least 512MiB",
                of.memory.unwrap_or_default()
            ),
        );
    }
    let long = matrix
        .types(key)
        .into_iter()
        .find(|(kind, _)| kind.len() > 63);
    if let Some((kind, _)) = long {
        problems.add(
            path,
            format!("the name of its type {kind} is longer than a label's value, which has 63 characters"),
        );
    }
}

/// A list that must be there, has something in it and nothing twice.
fn list<'l, T: PartialEq>(
    given: Option<&'l [T]>,
    path: &KeyPath,
    what: &str,
    problems: &mut Problems,
) -> &'l [T] {
    let list = problems.require(given, path, what).unwrap_or_default();
    problems.unless(given.is_none_or(|list| !list.is_empty()), path, || {
        format!("expected {what}")
    });
    for (position, element) in list.iter().enumerate() {
        problems.unless(
            !list[..position].contains(element),
            &path.at(&position),
            || "is named twice".to_owned(),
        );
    }
    list
}

fn whole(memory: i64) -> bool {
    memory >= MIN_MEMORY && memory % MIB == 0
}

/// What is wrong with a number of cores, if anything is. PVE's own schema has no largest one.
pub(super) fn wrong_cores(cores: u32) -> Option<String> {
    match cores {
        0 => Some("expected at least 1".to_owned()),
        1..=MOST_CORES => None,
        _ => Some(format!(
            "expected at most {MOST_CORES}: QEMU gives no VM more, and PVE starts none with more than its host has CPUs"
        )),
    }
}

/// Cores and memory of a table of its own.
fn check_size(kind: &file::InstanceTypeTable, path: &KeyPath, problems: &mut Problems) {
    let cores = problems.require(kind.cores, &path.at("cores"), "a number of cores");
    if let Some(wrong) = cores.and_then(wrong_cores) {
        problems.add(&path.at("cores"), wrong);
    }
    let memory = problems.require(kind.memory, &path.at("memory"), "a size such as \"4GiB\"");
    if let Some(wrong) = memory.and_then(|memory| wrong_memory(memory.0)) {
        problems.add(&path.at("memory"), wrong);
    }
}

/// What is wrong with a type's memory, if something is.
fn wrong_memory(memory: i64) -> Option<String> {
    if memory < MIN_MEMORY {
        return Some("expected whole MiB, at least 512MiB".to_owned());
    }
    if memory > MAX_MEMORY {
        return Some(format!("expected at most {}", Size(MAX_MEMORY)));
    }
    if memory % MIB == 0 {
        return None;
    }
    // `4G` and `4GB` are powers of ten, and hardly ever meant.
    let meant = [(1_000_000_000, GIB), (1_000_000, MIB)]
        .into_iter()
        .find(|(decimal, _)| memory % decimal == 0)
        .map_or(memory / MIB * MIB, |(decimal, binary)| {
            memory / decimal * binary
        });
    let meant = Size(meant);
    Some(format!("are {memory} bytes; expected whole MiB: {meant}?"))
}

/// Bytes of huge pages that a node of a type offers.
fn pages(extended: &BTreeMap<String, Amount>) -> i64 {
    huge_pages(extended.iter().map(|(name, amount)| (&**name, amount.0)))
}

/// A node's huge pages are part of its VM's memory: a kubelet takes them off what other pods can have.
/// `of_matrix`: what the type is called, where a matrix means it.
fn check_pages(
    kind: &file::InstanceTypeTable,
    of_matrix: Option<&str>,
    path: &KeyPath,
    problems: &mut Problems,
) {
    let (pages, memory) = (pages(&kind.extended), kind.memory.unwrap_or_default());
    problems.unless(
        memory.0 == 0 || pages < memory.0,
        &path.at("extended"),
        || {
            let whose = of_matrix.map_or_else(|| "its".to_owned(), |name| format!("{name}'s"));
            format!(
                "huge pages of {} are taken off {whose} memory, which is {memory}: expected less",
                Size(pages)
            )
        },
    );
}

/// A machine's devices of one mapping are whole ones, or mediated ones of one type: a card that makes mediated devices is passed on whole to
/// nobody, and what one type leaves for another is known once the first is there.
fn check_mediated(devices: &[PciText], path: &KeyPath, problems: &mut Problems) {
    for (position, PciText(device)) in devices.iter().enumerate() {
        let mut before = devices[..position].iter();
        let other = before
            .find(|PciText(other)| other.mapping == device.mapping && other.mdev != device.mdev);
        if other.is_some() {
            problems.add(
                &path.at(&position),
                format!(
                    "another entry has the mapping {} as well; expected both to be whole devices, or of one mdev type",
                    device.mapping
                ),
            );
        }
    }
}

/// A type as the brain reads it, and what is wrong with all but its size.
fn resolved(
    kind: &file::InstanceTypeTable,
    key: &str,
    path: &KeyPath,
    problems: &mut Problems,
) -> InstanceType {
    if let Some(disk) = kind.disk {
        problems.unless(disk.0 >= GIB && disk.0 % GIB == 0, &path.at("disk"), || {
            "expected whole GiB, at least 1GiB".to_owned()
        });
    }
    for resource in kind.extended.keys() {
        let named =
            syntax::label_key(resource) && (resource.contains('/') || is_huge_pages(resource));
        problems.unless(named, &path.at("extended").at(resource), || {
            "expected an extended resource's name such as \"nvidia.com/gpu\"".to_owned()
        });
    }
    let most = kind.pci.len() <= MAX_DEVICES;
    problems.unless(most, &path.at("pci"), || {
        format!("expected at most {MAX_DEVICES} devices, as many as a VM can have")
    });
    check_mediated(&kind.pci, &path.at("pci"), problems);
    InstanceType {
        cores: kind.cores.unwrap_or(1),
        pci: kind.pci.iter().map(|device| device.0.clone()).collect(),
        memory: kind.memory.unwrap_or_default().0,
        disk: kind.disk.unwrap_or_default().0,
        extended: kind
            .extended
            .iter()
            .filter(|(_, amount)| amount.0 > 0)
            .map(|(name, amount)| (shared(name), amount.0))
            .collect(),
        labels: labels::of_type(&kind.labels, key, &path.at("labels"), problems),
        price: kind.price.map(|price| price.0),
        attach_limits: attach_limits(&kind.attach_limits, path, problems),
    }
}

/// Volumes by CSI driver.
pub(super) fn attach_limits(
    limits: &BTreeMap<String, i32>,
    path: &KeyPath,
    problems: &mut Problems,
) -> BTreeMap<Arc<str>, i32> {
    for (driver, limit) in limits {
        problems.unless(
            syntax::dns_subdomain(driver) && *limit >= 0,
            &path.at("attach_limits").at(driver),
            || "expected a CSI driver's name and a number of volumes".to_owned(),
        );
    }
    let limits = limits.iter();
    limits
        .map(|(driver, limit)| (shared(driver), *limit))
        .collect()
}

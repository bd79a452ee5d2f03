//! Settings of the kubelet: what is wrong with them, what becomes of them in its own configuration, and what the model of a node
//! makes of them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::Problems;
use crate::config::file::{self, CpuManagerPolicy, Kubelet, KubeletReserved, Swap};
use crate::config::place::KeyPath;
use crate::config::scalar::{Cpu, Duration, Size, Threshold};
use crate::model::policy::{Policy, Reserved};
use crate::model::time::Span;

/// The kubelet's own `evictionHard` (`pkg/kubelet/apis/config/v1beta1/defaults_linux.go`). A list that names one signal switches
/// off the others there.
const EVICTION_HARD: [(&str, &str); 5] = [
    ("memory.available", "100Mi"),
    ("nodefs.available", "10%"),
    ("nodefs.inodesFree", "5%"),
    ("imagefs.available", "15%"),
    ("imagefs.inodesFree", "5%"),
];
/// Signals that may be named.
const SIGNALS: [&str; 6] = [
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "pid.available",
];
/// The kubelet's `imageGCHighThresholdPercent` and `imageGCLowThresholdPercent`.
const IMAGE_GC: (u32, u32) = (85, 80);
/// Thousandths of the disk that the kubelet's default for `nodefs.available` keeps.
const NODEFS_PERMILLE: i64 = 100;
/// `maxPods` of a kubelet that is told nothing.
pub(super) const MAX_PODS: u32 = 110;

/// Arguments of the kubelet (`cmd/kubelet/app/options/options.go`) that have a key of their own below the pool, with that key. Plans count with
/// keys; of an argument they would know nothing.
const TYPED: [(&str, &str); 18] = [
    ("kube-reserved", "kubelet.kube_reserved"),
    ("system-reserved", "kubelet.system_reserved"),
    ("cpu-manager-policy", "kubelet.cpu_manager_policy"),
    (
        "cpu-manager-policy-options",
        "kubelet.cpu_manager_policy_options",
    ),
    ("topology-manager-policy", "kubelet.topology_manager_policy"),
    ("topology-manager-scope", "kubelet.topology_manager_scope"),
    ("eviction-hard", "kubelet.eviction_hard"),
    ("eviction-soft", "kubelet.eviction_soft"),
    (
        "eviction-soft-grace-period",
        "kubelet.eviction_soft_grace_period",
    ),
    (
        "eviction-max-pod-grace-period",
        "kubelet.eviction_max_pod_grace_period",
    ),
    ("fail-swap-on", "kubelet.swap"),
    ("cluster-dns", "kubelet.cluster_dns"),
    (
        "image-gc-high-threshold",
        "kubelet.image_gc_high_threshold_percent",
    ),
    (
        "image-gc-low-threshold",
        "kubelet.image_gc_low_threshold_percent",
    ),
    ("max-pods", "max_pods"),
    ("allowed-unsafe-sysctls", "kubelet.allowed_unsafe_sysctls"),
    ("shutdown-grace-period", "kubelet.shutdown_grace_period"),
    (
        "shutdown-grace-period-critical-pods",
        "kubelet.shutdown_grace_period_critical_pods",
    ),
];

/// The part of a KubeletConfiguration that a pool sets; empty when it sets nothing.
pub(super) fn kubelet(
    pool: &file::Pool,
    path: &KeyPath,
    problems: &mut Problems,
) -> Map<String, Value> {
    check(pool, &path.at("kubelet"), problems);
    let set = |value: &Value| match value {
        Value::Null => false,
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => true,
    };
    let written = written(pool).into_iter();
    let all: Map<String, Value> = written
        .chain(evictions(&pool.kubelet))
        .chain(swap(&pool.kubelet))
        .filter(|(_, value)| set(value))
        .map(|(key, value)| (key.to_owned(), value))
        .collect();
    for (argument, key) in TYPED {
        let given = pool.join.kubelet_args.contains_key(argument);
        let at = path.at("join").at("kubelet_args").at(argument);
        problems.unless(!given, &at, || {
            format!("expected {path}.{key} in its place, with which plans count; the argument would override that, and nobody would know of it")
        });
    }
    all
}

/// A key of the KubeletConfiguration with its value: null, or empty, where the file says nothing.
type KubeletEntry = (&'static str, Value);

fn written(pool: &file::Pool) -> [KubeletEntry; 13] {
    let of = &pool.kubelet;
    let time = |time: Option<Duration>| time.map_or(Value::Null, seconds);
    let critical = of.shutdown_grace_period_critical_pods;
    [
        ("kubeReserved", amounts(&of.kube_reserved)),
        ("systemReserved", amounts(&of.system_reserved)),
        ("cpuManagerPolicy", json!(of.cpu_manager_policy)),
        (
            "cpuManagerPolicyOptions",
            json!(of.cpu_manager_policy_options),
        ),
        ("topologyManagerPolicy", json!(of.topology_manager_policy)),
        ("topologyManagerScope", json!(of.topology_manager_scope)),
        ("clusterDNS", json!(of.cluster_dns)),
        (
            "imageGCHighThresholdPercent",
            json!(of.image_gc_high_threshold_percent),
        ),
        (
            "imageGCLowThresholdPercent",
            json!(of.image_gc_low_threshold_percent),
        ),
        ("shutdownGracePeriod", time(of.shutdown_grace_period)),
        ("shutdownGracePeriodCriticalPods", time(critical)),
        ("allowedUnsafeSysctls", json!(of.allowed_unsafe_sysctls)),
        ("maxPods", json!(pool.max_pods)),
    ]
}

fn evictions(of: &Kubelet) -> [KubeletEntry; 4] {
    let mut hard = Map::new();
    if !of.eviction_hard.is_empty() {
        let defaults = EVICTION_HARD.map(|(signal, least)| (signal.to_owned(), json!(least)));
        hard.extend(defaults);
        hard.extend(thresholds(&of.eviction_hard));
    }
    let graces = of.eviction_soft_grace_period.iter();
    let graces = graces.map(|(signal, time)| (signal.clone(), seconds(*time)));
    let longest = of.eviction_max_pod_grace_period;
    let longest = longest.map_or(Value::Null, |time| json!(time.0.0 / 1_000));
    [
        ("evictionHard", Value::Object(hard)),
        ("evictionSoft", Value::Object(thresholds(&of.eviction_soft))),
        ("evictionSoftGracePeriod", Value::Object(graces.collect())),
        ("evictionMaxPodGracePeriod", longest),
    ]
}

fn swap(of: &Kubelet) -> [KubeletEntry; 2] {
    let behaviour = |word: &str| json!({ "swapBehavior": word });
    let (fail, memory) = match of.swap {
        None => (Value::Null, Value::Null),
        Some(Swap::Fail) => (json!(true), Value::Null),
        Some(Swap::None) => (json!(false), behaviour("NoSwap")),
        Some(Swap::Limited) => (json!(false), behaviour("LimitedSwap")),
    };
    [("failSwapOn", fail), ("memorySwap", memory)]
}

fn seconds(time: Duration) -> Value {
    json!(format!("{}s", time.0.0 / 1_000))
}

fn amounts(of: &KubeletReserved) -> Value {
    let mut all = Map::new();
    if let Some(cpu) = of.cpu {
        all.insert("cpu".to_owned(), json!(format!("{}m", cpu.0)));
    }
    if let Some(memory) = of.memory {
        all.insert("memory".to_owned(), json!(memory.0.to_string()));
    }
    if let Some(disk) = of.ephemeral_storage {
        all.insert("ephemeral-storage".to_owned(), json!(disk.0.to_string()));
    }
    if let Some(pid) = of.pid {
        all.insert("pid".to_owned(), json!(pid.to_string()));
    }
    Value::Object(all)
}

fn thresholds(of: &BTreeMap<String, Threshold>) -> Map<String, Value> {
    let of = of.iter();
    of.map(|(signal, least)| (signal.clone(), json!(least.quantity())))
        .collect()
}

fn check(pool: &file::Pool, at: &KeyPath, problems: &mut Problems) {
    let settings = &pool.kubelet;
    if let Some(pods) = pool.max_pods {
        let path = KeyPath(at.0[..at.0.len() - 1].to_vec()).at("max_pods");
        problems.unless((1..=1000).contains(&pods), &path, || {
            "expected 1 to 1000".to_owned()
        });
    }
    check_cpus(pool, at, problems);
    check_eviction(settings, at, problems);
    let high = settings
        .image_gc_high_threshold_percent
        .unwrap_or(IMAGE_GC.0);
    let low = settings
        .image_gc_low_threshold_percent
        .unwrap_or(IMAGE_GC.1);
    let named = if settings.image_gc_low_threshold_percent.is_some() {
        "image_gc_low_threshold_percent"
    } else {
        "image_gc_high_threshold_percent"
    };
    problems.unless(high <= 100 && low < high, &at.at(named), || {
        format!("the low threshold ({low} %) must be below the high one ({high} %), and that at most 100")
    });
    check_shutdown(settings, at, problems);
    problems.unless(
        settings.cluster_dns.len() <= 3,
        &at.at("cluster_dns"),
        || "expected at most three addresses".to_owned(),
    );
    for (position, address) in settings.cluster_dns.iter().enumerate() {
        let read = address.parse::<std::net::IpAddr>();
        problems.unless(read.is_ok(), &at.at("cluster_dns").at(&position), || {
            "expected an IP address".to_owned()
        });
    }
    for (position, name) in settings.allowed_unsafe_sysctls.iter().enumerate() {
        problems.unless(
            sysctl(name),
            &at.at("allowed_unsafe_sysctls").at(&position),
            || "expected a sysctl such as \"net.core.somaxconn\", or a group such as \"net.ipv4.*\"".to_owned(),
        );
    }
}

/// `kernel.msg*`, `net.core.somaxconn`: the kubelet takes those alone that are kept apart by a namespace.
fn sysctl(name: &str) -> bool {
    let spaces = [
        "kernel.shm",
        "kernel.msg",
        "kernel.sem",
        "fs.mqueue.",
        "net.",
    ];
    let plain = name.strip_suffix('*').unwrap_or(name);
    let part = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-/".contains(&b);
    spaces.iter().any(|space| name.starts_with(space)) && plain.bytes().all(part)
}

fn check_cpus(pool: &file::Pool, at: &KeyPath, problems: &mut Problems) {
    let settings = &pool.kubelet;
    let kept = [&settings.kube_reserved, &settings.system_reserved];
    let kept: i64 = kept.iter().filter_map(|of| of.cpu).map(|cpu| cpu.0).sum();
    let apart = settings.cpu_manager_policy == Some(CpuManagerPolicy::Static);
    problems.unless(
        !apart || kept > 0 || pool.reserved.cpu > Cpu(0),
        &at.at("cpu_manager_policy"),
        || {
            "\"static\" needs CPU that is kept for the system: set kube_reserved.cpu or system_reserved.cpu (a kubelet without it does not start)"
                .to_owned()
        },
    );
    problems.unless(
        apart || settings.cpu_manager_policy_options.is_empty(),
        &at.at("cpu_manager_policy_options"),
        || "are for cpu_manager_policy = \"static\"".to_owned(),
    );
}

fn check_eviction(settings: &Kubelet, at: &KeyPath, problems: &mut Problems) {
    for (key, of) in [
        ("eviction_hard", &settings.eviction_hard),
        ("eviction_soft", &settings.eviction_soft),
    ] {
        for (signal, least) in of {
            let path = at.at(key).at(signal);
            check_signal(signal, &path, problems);
            let fits = match least {
                Threshold::Percent(permille) => (0..1000).contains(permille),
                Threshold::Bytes(_) => signal.ends_with(".available") && !signal.starts_with("pid"),
                Threshold::Count(_) => signal.ends_with(".inodesFree") || signal.starts_with("pid"),
            };
            problems.unless(fits, &path, || {
                "expected a size such as \"200MiB\" for memory and disks, a number for inodes and pids, or a percentage below 100 such as \"5%\""
                    .to_owned()
            });
        }
    }
    for signal in settings.eviction_soft.keys() {
        problems.unless(
            settings.eviction_soft_grace_period.contains_key(signal),
            &at.at("eviction_soft").at(signal),
            || format!("needs eviction_soft_grace_period.{signal:?}"),
        );
    }
    for signal in settings.eviction_soft_grace_period.keys() {
        problems.unless(
            settings.eviction_soft.contains_key(signal),
            &at.at("eviction_soft_grace_period").at(signal),
            || format!("there is no eviction_soft.{signal:?}"),
        );
    }
}

fn check_signal(signal: &str, path: &KeyPath, problems: &mut Problems) {
    problems.unless(SIGNALS.contains(&signal), path, || {
        format!("expected one of {}", SIGNALS.join(", "))
    });
}

fn check_shutdown(settings: &Kubelet, at: &KeyPath, problems: &mut Problems) {
    let whole = settings.shutdown_grace_period.unwrap_or_default();
    let critical = settings
        .shutdown_grace_period_critical_pods
        .unwrap_or_default();
    problems.unless(
        critical <= whole,
        &at.at("shutdown_grace_period_critical_pods"),
        || format!("is a part of shutdown_grace_period, which is {whole}"),
    );
    let second = |time: Duration| time.0 == Span::ZERO || time.0 >= Span::seconds(1);
    for (key, time) in [
        ("shutdown_grace_period", whole),
        ("shutdown_grace_period_critical_pods", critical),
    ] {
        problems.unless(second(time), &at.at(key), || {
            "expected nothing or at least 1s".to_owned()
        });
    }
}

/// A template that is built, and has no swap by that, of a pool whose pods shall get some. What the build's own commands and packages, or
/// cloud-init's texts, may say of swap is theirs.
fn without_swap<'p>(file: &file::ConfigFile, policy: &'p Policy, pool: &str) -> Option<&'p str> {
    let limited = file.pool.get(pool)?.kubelet.swap == Some(Swap::Limited);
    let places = policy.pools.get(pool).filter(|_| limited)?.everywhere();
    let none = |template: &&str| {
        let template = file.template.get(*template);
        let Some((template, build)) = template.and_then(|of| Some((of, of.build.as_ref()?))) else {
            return false;
        };
        let texts = template.cloud_init.iter().flat_map(|own| {
            let of_files = [&own.user_data_file, &own.vendor_data_file];
            let of_files = of_files.map(|file| file.as_ref().map(|_| "swap"));
            let texts = [&own.user_data, &own.vendor_data].map(Option::as_deref);
            texts.into_iter().chain(of_files).flatten()
        });
        let own = build.commands.iter().chain(&build.packages);
        let mut all = own.map(String::as_str).chain(texts);
        !all.any(|text| text.contains("swap") || text.contains("zram"))
    };
    places.map(|there| &*there.template).find(none)
}

/// The way from a VM's size to a node's allocatable: `[pool.NAME.reserved]`, with what the kubelet's settings say themselves.
/// `disks`: sizes of the disks of its instance types.
pub(super) fn reserved(
    pool: &file::Pool,
    disks: &[i64],
    path: &KeyPath,
    problems: &mut Problems,
) -> Reserved {
    let (written, kubelet) = (&pool.reserved, &pool.kubelet);
    let defaults = file::ReservedTable::default();
    let at = path.at("reserved");
    let kept = [&kubelet.kube_reserved, &kubelet.system_reserved];
    let sum = |pick: &dyn Fn(&KubeletReserved) -> Option<i64>| {
        let all: Vec<i64> = kept.iter().filter_map(|of| pick(of)).collect();
        (!all.is_empty()).then(|| {
            all.iter()
                .fold(0_i64, |sum, more| sum.saturating_add(*more))
        })
    };
    let mut once =
        |key: &str, said: i64, default: i64, told: Option<i64>, shown: &dyn Fn(i64) -> String| {
            let told = told.unwrap_or(said);
            problems.unless(said == told || said == default, &at.at(key), || {
                format!(
                    "the kubelet's settings say {}; leave it out here",
                    shown(told)
                )
            });
            told
        };
    let cpu = sum(&|of| of.cpu.map(|cpu| cpu.0));
    let memory = sum(&|of| of.memory.map(|size| size.0));
    let size = |bytes: i64| Size(bytes).to_string();
    let cpu_milli = once("cpu", written.cpu.0, defaults.cpu.0, cpu, &|milli| {
        Cpu(milli).to_string()
    });
    let memory = once("memory", written.memory.0, defaults.memory.0, memory, &size);
    let mut all = Reserved {
        kernel_memory: written.kernel_memory.0,
        kernel_memory_permille: written.kernel_memory_share.0,
        cpu_milli,
        memory,
        eviction_memory: written.eviction_memory.0,
        disk_permille: written.disk_share.0,
    };
    match kubelet.eviction_hard.get("memory.available") {
        Some(Threshold::Bytes(bytes)) => {
            let (said, default) = (written.eviction_memory.0, defaults.eviction_memory.0);
            all.eviction_memory = once("eviction_memory", said, default, Some(*bytes), &size);
        }
        // A part of what the kernel leaves; of all memory it is a little more.
        Some(Threshold::Percent(permille)) => {
            all.eviction_memory = 0;
            all.kernel_memory_permille = all.kernel_memory_permille.saturating_add(*permille);
        }
        Some(Threshold::Count(_)) | None => {}
    }
    let disk = sum(&|of| of.ephemeral_storage.map(|size| size.0)).unwrap_or(0);
    all.disk_permille = all
        .disk_permille
        .saturating_add(disk_permille(kubelet, disk, disks));
    all
}

/// Thousandths of a disk that these settings keep beyond the kubelet's defaults; `reserved`: bytes of it.
fn disk_permille(kubelet: &Kubelet, reserved: i64, disks: &[i64]) -> i64 {
    let (mut permille, mut bytes) = (0_i64, reserved);
    match kubelet.eviction_hard.get("nodefs.available") {
        Some(Threshold::Percent(of)) => permille = (of - NODEFS_PERMILLE).max(0),
        Some(Threshold::Bytes(of)) => bytes = bytes.saturating_add(*of),
        Some(Threshold::Count(_)) | None => {}
    }
    // Of the smallest disk it is the largest part.
    let least = disks.iter().filter(|size| **size > 0).min();
    let part = least.map_or(0, |least| {
        bytes.saturating_mul(1_000).saturating_add(least - 1) / least
    });
    permille.saturating_add(part)
}

/// What is allowed but looks like a mistake.
pub(super) fn warn(file: &file::ConfigFile, policy: &Policy, warnings: &mut Vec<String>) {
    for (name, pool) in &file.pool {
        if let Some(template) = without_swap(file, policy, name) {
            warnings.push(format!(
                "pool.{name}.kubelet.swap = \"limited\": its machines have no swap: the build of template {template} switches it off; make some in template.{template}.build.commands (mkswap, a line in /etc/fstab), or leave the key out"
            ));
        }
        let grace = pool.kubelet.shutdown_grace_period.unwrap_or_default();
        if grace > pool.drain.shutdown_timeout {
            warnings.push(format!(
                "pool.{name}.kubelet.shutdown_grace_period: kubelets hold a shutdown up for {grace}, but VMs are stopped after drain.shutdown_timeout, {}",
                pool.drain.shutdown_timeout
            ));
        }
    }
}

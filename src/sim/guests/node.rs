//! The Node object of a simulated machine: capacity as a kernel leaves it, allocatable as the
//! kubelet's defaults leave it.

use serde_json::{Map, Value, json};

use super::kubeadm::JoinConfiguration;
use super::spec::{GuestFault, GuestSpec};
use super::{GuestVm, config};
use crate::model::time::Time;

fn stamp(now: Time) -> String {
    jiff::Timestamp::from_second(now.0.div_euclid(1_000))
        .map(|t| t.to_string())
        .unwrap_or_default()
}

/// Microseconds, as leases are stamped.
pub(super) fn micro_stamp(now: Time) -> String {
    jiff::Timestamp::from_millisecond(now.0)
        .map(|t| format!("{t:.6}"))
        .unwrap_or_default()
}

/// Memory that the guest's kernel shows, in KiB.
pub(super) fn memory_kib(vm: &GuestVm, spec: &GuestSpec, fault: Option<GuestFault>) -> u64 {
    let all = vm.memory_mib * 1024;
    let shown = all.saturating_sub(spec.kernel_mib * 1024 + all / 64);
    if fault == Some(GuestFault::LessMemory) {
        shown - shown / 10
    } else {
        shown
    }
}

fn capacity(
    vm: &GuestVm,
    spec: &GuestSpec,
    join: &JoinConfiguration,
    fault: Option<GuestFault>,
) -> Map<String, Value> {
    let mut capacity = Map::new();
    let disk_kib = vm.disk / 1024 / 100 * 95;
    for (name, value) in [
        ("cpu", vm.cores.to_string()),
        ("memory", format!("{}Ki", memory_kib(vm, spec, fault))),
        ("ephemeral-storage", format!("{disk_kib}Ki")),
        ("hugepages-1Gi", "0".to_owned()),
        ("hugepages-2Mi", "0".to_owned()),
        ("pods", config::max_pods(join, spec.max_pods).to_string()),
    ] {
        capacity.insert(name.to_owned(), json!(value));
    }
    for (name, count) in &spec.extended {
        capacity.insert(name.clone(), json!(count.to_string()));
    }
    if vm.devices > 0 && !spec.device_resource.is_empty() {
        let devices = json!(vm.devices.to_string());
        capacity.insert(spec.device_resource.clone(), devices);
    }
    capacity
}

/// Bytes of the guest's memory that its kernel set aside as huge pages. A kubelet takes what its capacity has of them off its allocatable
/// memory (`nodestatus/setters.go`), whether pods use them or not.
fn huge_pages(spec: &GuestSpec) -> u64 {
    let pages = spec.extended.iter();
    let pages = pages.filter(|(name, _)| name.starts_with("hugepages-"));
    pages.map(|(_, bytes)| bytes).sum()
}

fn allocatable(
    vm: &GuestVm,
    spec: &GuestSpec,
    join: &JoinConfiguration,
    fault: Option<GuestFault>,
) -> Map<String, Value> {
    let mut left = capacity(vm, spec, join, fault);
    let cpu = i64::from(vm.cores) * 1_000 - config::reserved(join, "cpu").milli;
    let shown = if cpu % 1_000 == 0 {
        (cpu / 1_000).to_string()
    } else {
        format!("{cpu}m")
    };
    left.insert("cpu".to_owned(), json!(shown));
    let kept = |resource: &str| u64::try_from(config::reserved(join, resource).units).unwrap_or(0);
    let all = memory_kib(vm, spec, fault);
    let evicted = config::memory_eviction(join, all * 1024);
    let memory = all.saturating_sub((kept("memory") + evicted + huge_pages(spec)) / 1024);
    left.insert("memory".to_owned(), json!(format!("{memory}Ki")));
    let disk = vm.disk / 1024 / 100 * 95 * 1024;
    let taken = config::disk_eviction(join, disk) + kept("ephemeral-storage");
    let disk = disk.saturating_sub(taken);
    left.insert("ephemeral-storage".to_owned(), json!(disk.to_string()));
    left
}

/// The conditions of a node. The Ready condition moved at `moved`.
pub(super) fn conditions(ready: bool, moved: Time, now: Time) -> Value {
    let (beat, since) = (stamp(now), stamp(moved));
    let mut list: Vec<Value> = [
        (
            "MemoryPressure",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
        ),
        (
            "DiskPressure",
            "KubeletHasNoDiskPressure",
            "kubelet has no disk pressure",
        ),
        (
            "PIDPressure",
            "KubeletHasSufficientPID",
            "kubelet has sufficient PID available",
        ),
    ]
    .iter()
    .map(|(kind, reason, message)| {
        json!({"type": kind, "status": "False", "reason": reason, "message": message,
               "lastHeartbeatTime": beat, "lastTransitionTime": since})
    })
    .collect();
    let (status, reason, message) = if ready {
        ("True", "KubeletReady", "kubelet is posting ready status")
    } else {
        (
            "False",
            "KubeletNotReady",
            "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized",
        )
    };
    list.push(
        json!({"type": "Ready", "status": status, "reason": reason, "message": message,
                     "lastHeartbeatTime": beat, "lastTransitionTime": since}),
    );
    Value::Array(list)
}

/// The address of a guest.
fn address(vm: &GuestVm) -> String {
    let given = vm
        .address
        .as_deref()
        .map(|a| a.split('/').next().unwrap_or(a));
    given.map_or_else(
        || format!("10.20.{}.{}", vm.vmid / 250 % 250, vm.vmid % 250 + 1),
        str::to_owned,
    )
}

/// The addresses that a kubelet gives its node: what `--node-ip` says, where the guest has it. An address that no card has is refused
/// at each report, and the node is without any (`nodestatus/setters.go`, `validateNodeIP`).
pub(super) fn internal(vm: &GuestVm, join: &JoinConfiguration) -> Vec<String> {
    let first = address(vm);
    // The unspecified address of a family is none: the kubelet goes by its default route.
    let told = join.arg("node-ip");
    let Some(told) = told.filter(|told| !["0.0.0.0", "::"].contains(told)) else {
        return vec![first];
    };
    let told = told.split(',').map(|ip| ip.trim().to_owned());
    let has = |ip: &String| *ip == first || vm.fixed_addresses.contains(ip);
    let told: Option<Vec<String>> = told.map(|ip| has(&ip).then_some(ip)).collect();
    told.unwrap_or_default()
}

/// The node's status without its conditions.
pub(super) fn status(
    vm: &GuestVm,
    spec: &GuestSpec,
    join: &JoinConfiguration,
    fault: Option<GuestFault>,
) -> Value {
    // k3s and RKE2 are their kubelets, which tell their own version.
    let versions = [&*spec.k3s, &*spec.rke2, &*spec.kubeadm];
    let version = versions.into_iter().find(|version| !version.is_empty());
    let version = version.unwrap_or("v1.34.1");
    let own = internal(vm, join).into_iter();
    let own = own.map(|ip| json!({"type": "InternalIP", "address": ip}));
    let addresses: Vec<Value> = own
        .chain([json!({"type": "Hostname", "address": join.node})])
        .collect();
    json!({
        "capacity": capacity(vm, spec, join, fault),
        "allocatable": allocatable(vm, spec, join, fault),
        "addresses": addresses,
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {
            "machineID": vm.uuid.replace('-', ""),
            "systemUUID": vm.uuid,
            "bootID": vm.uuid,
            "kernelVersion": "6.12.48+deb13-amd64",
            "osImage": if spec.talos { "Talos (v1.11.2)" } else { "Debian GNU/Linux 13 (trixie)" },
            "containerRuntimeVersion": "containerd://1.7.24",
            "kubeletVersion": version,
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
    })
}

/// The Node as the kubelet registers it.
pub(super) fn registration(
    vm: &GuestVm,
    spec: &GuestSpec,
    join: &JoinConfiguration,
    fault: Option<GuestFault>,
    now: Time,
) -> Value {
    let mut labels = Map::new();
    for (key, value) in [
        ("beta.kubernetes.io/arch", "amd64"),
        ("beta.kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/hostname", &join.node),
    ] {
        labels.insert(key.to_owned(), json!(value));
    }
    let more = join.arg("node-labels").unwrap_or("");
    for (key, value) in more.split(',').filter_map(|l| l.split_once('=')) {
        labels.insert(key.trim().to_owned(), json!(value));
    }
    let mut taints = join.taints.clone();
    if join.arg("cloud-provider") == Some("external") {
        taints.push(json!({
            "key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule",
        }));
    }
    let mut node = json!({"taints": taints});
    if let Some(id) = join.arg("provider-id") {
        node["providerID"] = json!(id);
    }
    let mut status = status(vm, spec, join, fault);
    status["conditions"] = conditions(false, now, now);
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": join.node,
            "labels": labels,
            "annotations": {
                "kubeadm.alpha.kubernetes.io/cri-socket": join.cri_socket,
                "node.alpha.kubernetes.io/ttl": "0",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
        },
        "spec": node,
        "status": status,
    })
}

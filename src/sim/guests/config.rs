//! The KubeletConfiguration of a simulated kubelet: what it makes of a node, and what it does not start with.

use serde_json::Value;

use super::kubeadm::JoinConfiguration;
use crate::model::quantity::Quantity;

/// The kubelet's default `memory.available` eviction threshold.
const EVICTION: u64 = 100 << 20;
/// The kubelet's default `nodefs.available`, thousandths.
const NODEFS_PERMILLE: u64 = 100;
/// The kubelet's defaults of `imageGCHighThresholdPercent` and `imageGCLowThresholdPercent`.
const IMAGE_GC: (i64, i64) = (85, 80);

/// What `--kube-reserved` and `--system-reserved`, or the configuration where these are not given, keep of a resource.
pub(super) fn reserved(join: &JoinConfiguration, resource: &str) -> ReservedAmount {
    let mut total = ReservedAmount::default();
    for (flag, key) in [
        ("kube-reserved", "kubeReserved"),
        ("system-reserved", "systemReserved"),
    ] {
        let written = join.arg(flag).map(|list| {
            let mut parts = list.split(',').filter_map(|part| part.split_once('='));
            let found = parts.find(|(name, _)| name.trim() == resource);
            found.map_or_else(String::new, |(_, value)| value.trim().to_owned())
        });
        let told = || join.kubelet[key][resource].as_str().map(str::to_owned);
        let amount = written.or_else(told).unwrap_or_default();
        if let Ok(quantity) = amount.parse::<Quantity>() {
            total.milli += quantity.milli();
            total.units += quantity.units();
        }
    }
    total
}

/// An amount, in thousandths and in whole units.
#[derive(Debug, Default)]
pub(super) struct ReservedAmount {
    pub(super) milli: i64,
    pub(super) units: i64,
}

/// `maxPods`.
pub(super) fn max_pods(join: &JoinConfiguration, otherwise: u32) -> u64 {
    let told = join.kubelet["maxPods"].as_u64();
    let written = join.arg("max-pods").and_then(|text| text.parse().ok());
    written.or(told).unwrap_or_else(|| otherwise.into())
}

/// Bytes of memory below which pods are evicted, of `capacity`. A list that does not name the signal switches it off.
pub(super) fn memory_eviction(join: &JoinConfiguration, capacity: u64) -> u64 {
    match &join.kubelet["evictionHard"] {
        Value::Object(hard) => part(hard.get("memory.available"), capacity),
        _ => EVICTION,
    }
}

/// Bytes of the disk below which pods are evicted.
pub(super) fn disk_eviction(join: &JoinConfiguration, capacity: u64) -> u64 {
    match &join.kubelet["evictionHard"] {
        Value::Object(hard) => part(hard.get("nodefs.available"), capacity),
        _ => capacity * NODEFS_PERMILLE / 1_000,
    }
}

fn part(threshold: Option<&Value>, of: u64) -> u64 {
    let text = threshold.and_then(Value::as_str).unwrap_or("0");
    if let Some(percent) = text.strip_suffix('%') {
        let permille = percent.parse::<f64>().unwrap_or(0.0) * 10.0;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a percentage
        return of * (permille.max(0.0) as u64) / 1_000;
    }
    let quantity = text.parse::<Quantity>().map_or(0, Quantity::units);
    u64::try_from(quantity).unwrap_or(0)
}

/// Why a kubelet does not start with its configuration (`apis/config/validation`, the CPU manager), if it does not.
pub(super) fn refusal(join: &JoinConfiguration) -> Option<String> {
    let of = &join.kubelet;
    let policy = of["cpuManagerPolicy"].as_str();
    if policy == Some("static") && reserved(join, "cpu").milli == 0 {
        return Some("failed to initialize cpu manager: [cpumanager] unable to determine reserved CPU resources for static policy".to_owned());
    }
    let percent = |key: &str, otherwise: i64| of[key].as_i64().unwrap_or(otherwise);
    let high = percent("imageGCHighThresholdPercent", IMAGE_GC.0);
    let low = percent("imageGCLowThresholdPercent", IMAGE_GC.1);
    if low >= high {
        return Some(format!(
            "invalid configuration: imageGCLowThresholdPercent (--image-gc-low-threshold) {low} must be less than imageGCHighThresholdPercent (--image-gc-high-threshold) {high}"
        ));
    }
    let mut told = join
        .arg("node-ip")
        .into_iter()
        .flat_map(|all| all.split(','));
    if let Some(bad) = told.find(|ip| ip.trim().parse::<std::net::IpAddr>().is_err()) {
        return Some(format!("bad --node-ip {bad:?}"));
    }
    let soft = of["evictionSoft"].as_object();
    let graceless = soft.and_then(|soft| {
        let mut signals = soft.keys();
        signals.find(|signal| of["evictionSoftGracePeriod"].get(signal.as_str()).is_none())
    });
    graceless.map(|signal| {
        format!("grace period must be specified for the soft eviction threshold {signal}")
    })
}

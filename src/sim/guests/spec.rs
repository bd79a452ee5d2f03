//! What simulated guests are like, as data: how long things take, and what goes wrong.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::model::time::Span;

/// A span drawn between two bounds, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// At least this.
    pub min: Span,
    /// At most this.
    pub max: Span,
}

impl Range {
    const fn millis(min: i64, max: i64) -> Range {
        Range {
            min: Span(min),
            max: Span(max),
        }
    }

    fn draw(self, rng: &mut StdRng) -> Span {
        Span(rng.random_range(self.min.0..=self.max.0.max(self.min.0)))
    }
}

/// The guests of a world.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GuestSpec {
    /// Power on to the agent's first answer.
    pub boot: Range,
    /// The agent's first answer to the end of cloud-init.
    pub cloud_init: Range,
    /// Pre-flight checks of `kubeadm join`.
    pub preflight: Range,
    /// Registered to Ready.
    pub ready: Range,
    /// Bound to running, for a pod.
    pub pod_start: Range,
    /// Asked to stop to gone, for a pod; its grace period is an upper bound.
    pub pod_stop: Range,
    /// Power button to power off.
    pub shutdown: Range,
    /// The guest agent runs commands; RHEL 10 and its like do not let it.
    pub guest_exec: bool,
    /// What `kubeadm version -o short` says; empty: no kubeadm in the template.
    pub kubeadm: String,
    /// The version of k3s, such as `v1.34.1+k3s1`; empty: there is none.
    pub k3s: String,
    /// The version of RKE2.
    pub rke2: String,
    /// A bootstrap token that lies in the image: its machines join by themselves; empty: they do not.
    pub joins_with: String,
    /// The guests are Talos: they run no commands, and join by the machine configuration on their NoCloud drive.
    pub talos: bool,
    /// Memory that the kernel keeps for itself, MiB, besides a 64th of all (its page table).
    pub kernel_mib: u64,
    /// Kubelet's `maxPods`.
    pub max_pods: u32,
    /// Extended resources that device plugins offer on every node, and the bytes of huge pages that the kernel sets aside (`hugepages-2Mi`).
    pub extended: BTreeMap<String, u64>,
    /// The extended resource that a device plugin offers for each PCI device of the VM; empty: there is no such plugin.
    pub device_resource: String,
    /// Chance of each fault in percent; the first that comes up is the guest's fate.
    pub chances: BTreeMap<GuestFault, u32>,
    /// The fate of the n-th new VM (from 0) that is powered on, whatever the chances say.
    pub fates: BTreeMap<u32, GuestFault>,
}

/// What can be wrong with a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GuestFault {
    /// `kubeadm join` ends with an error.
    JoinFails,
    /// `kubeadm join` never ends.
    JoinHangs,
    /// The guest agent never answers.
    AgentSilent,
    /// cloud-init ends degraded; everything else works.
    CloudInitDegraded,
    /// The node registers and never becomes Ready.
    NeverReady,
    /// The node has a tenth less memory than the VM was given.
    LessMemory,
    /// The boot takes five times as long.
    SlowBoot,
    /// The guest ignores the power button.
    IgnoresShutdown,
    /// `kubeadm join` ends with an error whose words steer whoever shows them: controls, line breaks, marks of
    /// direction, and its token.
    JoinRaves,
}

impl Default for GuestSpec {
    fn default() -> GuestSpec {
        GuestSpec {
            boot: Range::millis(8_000, 15_000),
            cloud_init: Range::millis(2_000, 6_000),
            preflight: Range::millis(1_500, 3_000),
            ready: Range::millis(3_000, 8_000),
            pod_start: Range::millis(800, 2_500),
            pod_stop: Range::millis(500, 2_000),
            shutdown: Range::millis(1_500, 4_000),
            guest_exec: true,
            kubeadm: "v1.34.1".to_owned(),
            k3s: String::new(),
            rke2: String::new(),
            joins_with: String::new(),
            talos: false,
            kernel_mib: 64,
            max_pods: 110,
            extended: BTreeMap::new(),
            device_resource: String::new(),
            chances: BTreeMap::new(),
            fates: BTreeMap::new(),
        }
    }
}

/// All that was drawn for one VM when it was first powered on.
#[derive(Clone, Debug)]
pub(super) struct GuestTraits {
    pub(super) fault: Option<GuestFault>,
    pub(super) boot: Span,
    pub(super) cloud_init: Span,
    pub(super) preflight: Span,
    pub(super) ready: Span,
    pub(super) shutdown: Span,
    /// For what is drawn later, pod by pod: the guest's own seed and how often it was used.
    seed: u64,
    drawn: u64,
}

impl GuestTraits {
    /// Draws for a VM. Its random numbers depend on the seed and its UUID alone, so that what one guest draws
    /// does not depend on what the others do.
    pub(super) fn draw(spec: &GuestSpec, seed: u64, uuid: &str, nth: u32) -> GuestTraits {
        let mut digest = 0xcbf2_9ce4_8422_2325 ^ seed;
        for byte in uuid.bytes() {
            digest = (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        let mut rng = StdRng::seed_from_u64(digest);
        let mut fault = None;
        for (which, percent) in &spec.chances {
            let rolled = rng.random_range(0..100_u32);
            if fault.is_none() && rolled < *percent {
                fault = Some(*which);
            }
        }
        let fault = spec.fates.get(&nth).copied().or(fault);
        let mut boot = spec.boot.draw(&mut rng);
        if fault == Some(GuestFault::SlowBoot) {
            boot = Span(boot.0 * 5);
        }
        GuestTraits {
            fault,
            boot,
            cloud_init: spec.cloud_init.draw(&mut rng),
            preflight: spec.preflight.draw(&mut rng),
            ready: spec.ready.draw(&mut rng),
            shutdown: spec.shutdown.draw(&mut rng),
            seed: rng.random(),
            drawn: 0,
        }
    }

    fn rng(&mut self) -> StdRng {
        self.drawn += 1;
        StdRng::seed_from_u64(self.seed.wrapping_add(self.drawn))
    }

    /// A span of a range, by this guest's random numbers.
    pub(super) fn span(&mut self, range: Range) -> Span {
        range.draw(&mut self.rng())
    }

    /// A number below `below`, by this guest's random numbers.
    pub(super) fn number(&mut self, below: usize) -> usize {
        self.rng().random_range(0..below.max(1))
    }
}

//! What runs inside the simulated VMs.
//!
//! The fake PVE powers guests on and off and hands agent calls to them through [`Guests`]; what a
//! guest then does (boot, join, act as a kubelet) is its implementation's business.

mod agents;
pub(in crate::sim) mod api;
mod config;
mod itself;
mod kube_guests;
mod kubeadm;
mod kubelet;
mod nocloud;
mod node;
pub mod none;
pub(in crate::sim) mod payload;
pub mod program;
mod spec;
mod standing;
#[cfg(test)]
mod tests;

use futures::future::BoxFuture;

pub use kube_guests::KubeGuests;
pub use kubelet::{DURATION, STOPPING};
pub use spec::{GuestFault, GuestSpec, Range};
pub use standing::{StandingNode, stand};

/// A VM as its guest sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestVm {
    /// VMID.
    pub vmid: u32,
    /// Which VM of this VMID it is, by its disks: with another UUID or name it is the same.
    pub incarnation: u64,
    /// SMBIOS UUID, lower case.
    pub uuid: String,
    /// VM name: the guest's host name by cloud-init.
    pub name: String,
    /// SMBIOS serial number; empty unless the VM has one.
    pub serial: String,
    /// Logical CPUs.
    pub cores: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Size of the boot disk in bytes.
    pub disk: u64,
    /// Network address the hypervisor knows for it, if any (`ipconfig0`).
    pub address: Option<String>,
    /// Fixed addresses of all its cards, without their prefix (`ipconfig0`, `ipconfig1` and so on).
    pub fixed_addresses: Vec<String>,
    /// PCI devices of its host that it has.
    pub devices: u32,
    /// The ISO in its CD drive.
    pub seed: Option<Vec<u8>>,
    /// Its CPUs wait for somebody who lets them run (`freeze`).
    pub frozen: bool,
    /// None of its network cards has a link (`link_down`).
    pub unlinked: bool,
}

/// What a command run by the guest agent left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestExecResult {
    /// Exit code; `None` when a signal ended it.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
}

/// Why the agent did not run a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecError {
    /// No agent answers.
    NotRunning,
    /// The agent answered with an error, such as a missing program.
    Agent(String),
}

/// The inside of VMs.
pub trait Guests: Send + Sync + std::fmt::Debug {
    /// The VM was started; the guest boots in its own time.
    fn power_on(&self, vm: GuestVm);
    /// The VM's power goes. `graceful`: the guest was asked to shut down and agrees by calling
    /// nothing more; the future ends when it is off (a guest may refuse: the caller has a timeout).
    fn power_off(&self, vmid: u32, graceful: bool) -> BoxFuture<'_, ()>;
    /// Whether the guest agent answers.
    fn ping(&self, vmid: u32) -> BoxFuture<'_, bool>;
    /// Runs a command to its end.
    fn exec(
        &self,
        vmid: u32,
        argv: Vec<String>,
        stdin: Vec<u8>,
    ) -> BoxFuture<'_, Result<GuestExecResult, ExecError>>;
}

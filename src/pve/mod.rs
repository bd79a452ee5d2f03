//! The Proxmox VE client: only the calls we use, over whichever way leads to the API.
//!
//! [`Client`] has one typed function per call; nothing else in the program writes a PVE path. It
//! speaks through a [`Transport`]: the broker's unix socket, HTTPS with an API token, or an
//! in-memory router. A [`CallError`] says whether the request may have been carried out; after
//! [`CallEffect::Unknown`] the caller looks again before it acts.

mod admin;
mod bridges;
pub mod building;
mod calls;
mod client;
pub mod cpu_types;
mod encode;
mod firewall;
mod host_mappings;
mod isos;
mod kept_space;
mod load;
mod mediated;
mod names;
mod pem;
pub mod perl;
mod placing;
pub mod remedy;
mod resources;
pub(crate) mod rows;
pub(crate) mod sound;
mod storage_backings;
mod tasks;
pub mod texts;
pub mod transport;
mod types;
mod upid;
mod vm_config;

pub use admin::TagRules;
pub use bridges::{Bridge, BridgeKind};
pub use calls::MAX_STDIN;
pub use client::Client;
pub use encode::{component, decoded, form, percent};
pub(crate) use encode::{hex, path};
pub use firewall::{FirewallRule, OUR_RULE, SecurityGroup};
pub use isos::{IsoFile, IsoOwner, iso_name, iso_volume};
pub use names::CALLS;
pub use pem::certificates;
pub use resources::{ClusterResources, GuestPromise, GuestResource, HostResource, StorageResource};
pub use tasks::{Poll, TaskEnd, WaitError};
pub use texts::FailureCause;
pub use transport::{CallEffect, CallError, HttpMethod, LATE_CALL, PveRequest, Transport};
pub use types::{
    BrokerInfo, CloneVm, ClusterStatus, ConfigUpdate, ExecResult, Member, NodeStatus, PveVersion,
    Task, TaskState, VmStatus,
};
pub use upid::Upid;
pub use vm_config::{Disk, MAX_QUEUES, Net, VmConfig};

#[cfg(test)]
mod damage;
#[cfg(test)]
pub(crate) mod tests;

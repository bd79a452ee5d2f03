//! `[template.NAME.cloud_init]`: what cloud-init is told in place of what PVE tells it.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::storage_names::StorageNames;

/// What cloud-init is told in place of what PVE tells it: an ISO for each machine (cloud-init's NoCloud), uploaded through PVE's API to
/// its host, in the place of PVE's cloud-init drive, and gone once the machine's node is Ready: see [cloud-init](cloud-init.md). What
/// is not set here says what PVE's drive would say. The texts have [gaps](cloud-init.md#gaps) and hold no secrets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CloudInit {
    /// The storage that the ISOs come to, with content type `iso`, or a list of storages: a machine's ISO comes to the first of it that its
    /// host has, enabled, available and with that content type. Every host of the pools has one.
    pub storage: Option<StorageNames>,
    /// Cloud-init's user data: `#cloud-config`, a script, or any other of its formats. It takes the place of host name, user and
    /// keys, as PVE's `cicustom` does; the host name is the machine's in any case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<String>,
    /// A file of this host with the user data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data_file: Option<PathBuf>,
    /// A file of this host with Talos' machine configuration, which machines get in place of user and vendor data; it has the same
    /// gaps. It holds the secrets of the cluster, and is kept as one: owner root, group pve-autoscaler, mode 0640. It is read anew for each
    /// machine: [Talos](talos.md).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_config_file: Option<PathBuf>,
    /// Cloud-init's vendor data, which comes beside the user data and gives way to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor_data: Option<String>,
    /// A file of this host with the vendor data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor_data_file: Option<PathBuf>,
    /// Cloud-init's network configuration, version 1 or 2. It takes the place of `ipconfig` and the network's addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_config: Option<String>,
    /// A file of this host with the network configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_config_file: Option<PathBuf>,
}

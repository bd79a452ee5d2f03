//! `[region.NAME.host.HOST]`: what one host has otherwise than the others of its region.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::scalar::{Cpu, Overcommit, Size};

/// One host with reserves or overcommit of its own, where hosts are unequal. The keys mean what they mean in the region's table; what
/// is not set here is as the region says. More: [hosts](hosts.md#one-host-otherwise).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename = "Host", default, deny_unknown_fields)]
pub struct OneHost {
    /// Memory of this host that machines may not take. Default: the region's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_memory_reserve: Option<Size>,
    /// CPUs of this host that machines may not take. Counts where `cpu_overcommit` is set, here or for the region. Default: the region's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_cores_reserve: Option<Cpu>,
    /// Memory that guests may be promised on this host: what it has, times this. Default: the region's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_overcommit: Option<Overcommit>,
    /// Cores that guests may be promised on this host: its logical CPUs times this. Default: the region's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_overcommit: Option<Overcommit>,
}

//! What the file says of one network card of machines.

use std::sync::Arc;

/// What the file says of a network card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetCardSettings {
    /// The card's bridge; the template's when absent.
    pub bridge: Option<String>,
    /// VLAN tag.
    pub vlan: Option<u16>,
    /// `firewall`.
    pub firewall: Option<bool>,
    /// Security groups; not looked at when absent.
    pub groups: Option<Vec<String>>,
    /// `mtu`.
    pub mtu: Option<u16>,
    /// `queues`: as many as cores, or none; the template's when absent.
    pub multiqueue: Option<bool>,
    /// `rate`, in MB a second; the template's when absent.
    pub rate: Option<u32>,
    /// `virtio`, `e1000` …; the template's when absent.
    pub model: Option<&'static str>,
    /// `ipconfigN`; the template's when absent.
    pub ipconfig: Option<String>,
    /// The network that gives machines their addresses on it; of the first card its pool says so.
    pub network: Option<Arc<str>>,
}

impl NetCardSettings {
    /// Whether it has security groups by the file.
    pub(super) fn has_groups(&self) -> bool {
        self.groups
            .as_ref()
            .is_some_and(|groups| !groups.is_empty())
    }

    /// Whether it passes through PVE's firewall; as the template's when absent. The groups of a card that does not do nothing.
    pub fn passes_firewall(&self) -> Option<bool> {
        self.firewall.or_else(|| self.has_groups().then_some(true))
    }
}

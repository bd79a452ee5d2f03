//! Devices on the simulated wire of which neither PVE nor Kubernetes knows.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The wire that the daemon's host is on.
#[derive(Clone, Debug, Default)]
pub struct SimWire(Arc<Mutex<WireDevices>>);

#[derive(Debug, Default)]
struct WireDevices {
    /// The MACs of devices by their addresses.
    macs: BTreeMap<IpAddr, Arc<str>>,
    /// What was asked for, in this order.
    asked: Vec<IpAddr>,
}

impl SimWire {
    /// A device with this address and MAC is switched on.
    pub fn plug_in(&self, address: IpAddr, mac: &str) {
        self.lock().macs.insert(address, mac.into());
    }

    /// The device with this address is switched off.
    pub fn unplug(&self, address: IpAddr) {
        self.lock().macs.remove(&address);
    }

    /// The MAC of the device that has an address.
    pub fn mac(&self, address: IpAddr) -> Option<Arc<str>> {
        self.lock().macs.get(&address).cloned()
    }

    /// Notes that somebody asks who has an address, and says whose MAC answers.
    pub fn asks(&self, address: IpAddr) -> Option<Arc<str>> {
        let mut devices = self.lock();
        devices.asked.push(address);
        devices.macs.get(&address).cloned()
    }

    /// Every address that was asked for so far, in this order.
    pub fn asked(&self) -> Vec<IpAddr> {
        self.lock().asked.clone()
    }

    fn lock(&self) -> MutexGuard<'_, WireDevices> {
        // The lists are consistent at every point where a panic could happen.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

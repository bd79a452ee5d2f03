//! What machines are given of hardware beside their size, and how it is written to PVE. Daemon and broker write and judge by
//! the same few functions.

use std::collections::BTreeMap;
use std::sync::Arc;

/// What a template's table says of its machines' hardware.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hardware {
    /// Whether PVE starts them with their host.
    pub onboot: bool,
    /// `startup`; the template's when absent.
    pub startup: Option<String>,
    /// CPU sockets that the cores are divided among; one when absent.
    pub sockets: Option<u32>,
    /// `numa`; the template's when absent.
    pub numa: Option<bool>,
    /// The first half of their MAC addresses, such as `BC:24:11`; PVE chooses them when absent.
    pub mac_prefix: Option<String>,
    /// Further disks, by their places.
    pub disks: BTreeMap<String, FurtherDisk>,
}

/// A disk that a machine has beside those of its template.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FurtherDisk {
    /// Its storage.
    pub storage: Arc<str>,
    /// Its size in bytes, whole GiB.
    pub size: i64,
    /// PVE's options, with a comma before each.
    pub options: String,
}

impl FurtherDisk {
    /// What is written to PVE so that the disk is made.
    pub fn value(&self) -> String {
        format!("{}:{}{}", self.storage, self.size >> 30, self.options)
    }
}

/// VMIDs below this have MAC addresses of their own behind one prefix: eight cards for each in the lower 24 bits.
pub const MACS: u32 = 1 << 21;

/// The MAC address of a network card of a VM: after the prefix its VMID, times eight, and the card's number.
pub fn mac(prefix: &str, vmid: u32, card: u8) -> String {
    let number = (u64::from(vmid % MACS) << 3) | u64::from(card & 7);
    let [.., high, middle, low] = number.to_be_bytes();
    format!("{prefix}:{high:02X}:{middle:02X}:{low:02X}")
}

/// PVE's `balloon` in MiB of a VM with so much memory, of which its host may take `taken` bytes.
pub fn balloon(memory: i64, taken: i64) -> i64 {
    let kept = memory.saturating_sub(taken).max(0);
    // Rounded up: of what pods are promised nothing may go.
    (kept >> 20) + i64::from(kept & ((1 << 20) - 1) != 0)
}

/// PVE's `cpulimit` from thousandths of a CPU, without zeros at its end.
pub fn cpu_limit(milli: i64) -> String {
    let (whole, rest) = (milli / 1000, milli % 1000);
    if rest == 0 {
        return whole.to_string();
    }
    let text = format!("{whole}.{rest:03}");
    text.trim_end_matches('0').to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_card_of_every_vmid_has_a_mac_of_its_own() {
        assert_eq!(mac("BC:24:11", 9000, 0), "BC:24:11:01:19:40");
        assert_eq!(mac("BC:24:11", 9000, 7), "BC:24:11:01:19:47");
        let vmids = (9000..9100).chain([MACS - 1, 100]);
        let pairs = vmids.flat_map(|vmid| (0..8).map(move |card| mac("02:00:00", vmid, card)));
        let all: BTreeSet<String> = pairs.collect();
        assert_eq!(all.len(), 102 * 8);
    }

    #[test]
    fn numbers_are_written_as_pve_keeps_them() {
        for (milli, text) in [(1000, "1"), (1500, "1.5"), (250, "0.25"), (2001, "2.001")] {
            assert_eq!(cpu_limit(milli), text);
        }
        assert_eq!(balloon(8 << 30, 1 << 30), 7 << 10);
        assert_eq!(balloon(8 << 30, (1 << 20) + 1), (8 << 10) - 1);
    }
}

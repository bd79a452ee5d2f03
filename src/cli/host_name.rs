//! The name of this host, by which an instance of the daemon holds the Lease, and by which PVE knows it.

use crate::controller::template_mark::{MarkReader, hex};

/// What the kernel calls this host; `None` where that is no text.
pub(super) fn own() -> Option<String> {
    let name = nix::unistd::gethostname().ok()?;
    name.into_string().ok()
}

/// This machine as it reads and writes the marks of templates, in a region whose PVE cluster this host is part of (`local`) or in another.
pub(super) fn mark_reader(local: bool) -> MarkReader {
    MarkReader {
        host: in_pve(),
        machine: machine(),
        local,
    }
}

/// What no other machine is called, whatever its name. Where there is no file of that, what the kernel calls itself from one boot to the next.
fn machine() -> String {
    let files = ["/etc/machine-id", "/proc/sys/kernel/random/boot_id"];
    let texts = files
        .iter()
        .filter_map(|path| std::fs::read_to_string(path).ok());
    let mut ids = texts.filter(|text| !text.trim().is_empty());
    let id = ids.next().unwrap_or_default();
    // The identity itself is to be shown to nobody (machine-id(5)).
    hex(format!("pve-autoscaler {}", id.trim()).as_bytes(), 6)
}

/// This host's name in PVE: its host name without a domain.
pub(super) fn in_pve() -> String {
    let name = nix::unistd::gethostname().unwrap_or_default();
    let name = name.to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}

/// By what name this instance holds the Lease, and tells of itself.
pub(super) fn identity() -> String {
    own().unwrap_or_else(|| "pve-autoscaler".to_owned())
}

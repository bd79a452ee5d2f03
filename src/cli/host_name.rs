//! The name of this host, by which an instance of the daemon holds the Lease, and by which PVE knows it.

/// What the kernel calls this host; `None` where that is no text.
pub(super) fn own() -> Option<String> {
    let name = nix::unistd::gethostname().ok()?;
    name.into_string().ok()
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

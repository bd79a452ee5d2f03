//! The name of this host, by which an instance of the daemon holds the Lease.

/// What the kernel calls this host; `None` where that is no text.
pub(super) fn own() -> Option<String> {
    let name = nix::unistd::gethostname().ok()?;
    name.into_string().ok()
}

/// By what name this instance holds the Lease, and tells of itself.
pub(super) fn identity() -> String {
    own().unwrap_or_else(|| "pve-autoscaler".to_owned())
}

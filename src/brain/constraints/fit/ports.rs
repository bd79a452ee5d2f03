//! Host ports. Source: kube-scheduler's plugin `NodePorts`.

use model::scheduling::HostPort;

/// Whether two ports cannot live on one node.
pub(crate) fn conflict(a: &HostPort, b: &HostPort) -> bool {
    a.port == b.port && protocol(a) == protocol(b) && (wildcard(a) || wildcard(b) || a.ip == b.ip)
}

/// The first of `asked` that one of `taken` is in the way of.
pub(crate) fn taken<'a>(asked: &'a [HostPort], taken: &[HostPort]) -> Option<&'a HostPort> {
    asked
        .iter()
        .find(|port| taken.iter().any(|other| conflict(port, other)))
}

fn protocol(port: &HostPort) -> &str {
    if port.protocol.is_empty() {
        "TCP"
    } else {
        &port.protocol
    }
}

fn wildcard(port: &HostPort) -> bool {
    port.ip.is_empty() || &*port.ip == "0.0.0.0"
}

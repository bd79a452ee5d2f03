//! Every probe there is, in the order in which its findings are told. Another one is a file of its own, with a function
//! `look`, and a line here; what it finds stands in docs/doctor.md.

use super::kubernetes::ReachedCluster;
use super::probe::Probe;
use super::region::{ReachedRegion, SeenRegion};
use super::{
    Here, addresses, admission, broker, builds, clocks, clones, cloud_init, collector, cpus,
    daemon, devices, disks, endpoint, firewall, hosts, journal, kubeadm, kubernetes, lease, load,
    mail, network, new_vms, provider, range, region, releases, rights, skew, state, tags, talos,
    templates, topology, user, wire,
};

/// A probe by its name and its function; `judge` where that asks nobody.
macro_rules! probe {
    ($name:literal, judge $judge:path) => {
        Probe {
            name: $name,
            look: |subject, findings| Box::pin(async move { $judge(subject, findings) }),
        }
    };
    ($name:literal, $look:path) => {
        Probe {
            name: $name,
            look: |subject, findings| Box::pin($look(subject, findings)),
        }
    };
}

/// On this host; nothing else need be reached.
pub(super) const HERE: [Probe<Here>; 5] = [
    probe!("files", judge user::files),
    probe!("state", judge state::look),
    probe!("daemon", daemon::look),
    probe!("collector", collector::look),
    probe!("mail", judge mail::look),
];

/// In Kubernetes, once the API server answered.
pub(super) const CLUSTER: [Probe<ReachedCluster>; 9] = [
    probe!("rights", kubernetes::look_at_rights),
    probe!("admission", admission::look),
    probe!("lease", lease::look),
    probe!("cluster-info", endpoint::look),
    probe!("kubeadm", kubeadm::look),
    probe!("provider", provider::look),
    probe!("talos", talos::look),
    probe!("skew", skew::look),
    probe!("journal", judge journal::look),
];

/// In a region whose channel is open, whether PVE could be read or not.
pub(super) const REGION: [Probe<ReachedRegion>; 1] = [probe!("broker", broker::look)];

/// In a region that could be read.
pub(super) const SEEN: [Probe<SeenRegion>; 21] = [
    probe!("version", judge region::judge),
    probe!("clocks", clocks::look),
    probe!("hosts", judge hosts::look),
    probe!("templates", judge templates::look),
    probe!("new-vms", new_vms::look),
    probe!("builds", judge builds::look),
    probe!("cloud-init", cloud_init::look),
    probe!("clones", judge clones::look),
    probe!("range", range::look),
    probe!("token", rights::look),
    probe!("tags", tags::look),
    probe!("network", network::look),
    probe!("firewall", firewall::look),
    probe!("addresses", addresses::look),
    probe!("wire", wire::look),
    probe!("devices", devices::look),
    probe!("topology", judge topology::look),
    probe!("cpus", cpus::look),
    probe!("releases", releases::look),
    probe!("load", load::look),
    probe!("disks", disks::look),
];

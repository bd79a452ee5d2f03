//! The daemon's journal: whether it was written for this cluster.

use super::finding::Findings;
use super::kubernetes::ReachedCluster;
use crate::controller::journal::Journal;
use crate::model::words;

/// Looks whether the journal was written for this cluster.
pub(super) fn look(cluster: &ReachedCluster, findings: &mut Findings) {
    let Some(id) = &cluster.id else {
        return;
    };
    match Journal::former(&cluster.here.state, id) {
        Ok(former) => {
            if former.by_cluster().next().is_none() {
                findings.fine("journal: no machine of another cluster is in it");
            }
            for (cluster, machines) in former.by_cluster() {
                let are = words::are(machines.len(), "machine");
                findings
                    .warning(format!(
                        "journal: {are} of the cluster {cluster}, which is not this one: they are not counted"
                    ))
                    .mend("`pve-autoscaler adopt` sets them aside");
            }
        }
        Err(error) => {
            findings
                .warning(format!("journal: {error}"))
                .mend("run this as root: it looks with the daemon's rights; `ls -l` shows whose the directory's files are");
        }
    }
}

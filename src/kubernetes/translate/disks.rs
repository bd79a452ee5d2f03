//! Disks that a pod names itself and that two pods of a node cannot share. Source: kube-scheduler's plugin
//! `VolumeRestrictions`.
//!
//! They are read as host ports with the number 0 and the disk in place of the protocol: who writes takes it on
//! all addresses, who only reads on one of its own, so that readers exclude writers and not each other.

use super::ObjectReader;
use crate::kubernetes::wire::{Meta, PodSpec};
use crate::model::scheduling::HostPort;

impl ObjectReader<'_> {
    /// The disks of a pod.
    pub(super) fn disks(&mut self, meta: &Meta, spec: &PodSpec) -> Vec<HostPort> {
        let mut disks: Vec<(String, bool)> = Vec::new();
        for volume in spec.volumes.iter().flatten() {
            if let Some(disk) = &volume.gce_persistent_disk {
                disks.push((format!("GCE disk {}", disk.pd_name), disk.read_only));
            }
            if let Some(disk) = &volume.aws_elastic_block_store {
                disks.push((format!("EBS volume {}", disk.volume_id), false));
            }
            if let Some(disk) = &volume.iscsi {
                disks.push((format!("iSCSI target {}", disk.iqn), disk.read_only));
            }
            if let Some(disk) = &volume.rbd {
                let pool = disk.pool.as_deref().unwrap_or("rbd");
                // One monitor in common is enough.
                for monitor in &disk.monitors {
                    let disk_of = format!("RBD image {pool}/{} of {monitor}", disk.image);
                    disks.push((disk_of, disk.read_only));
                }
            }
        }
        let part = |text: &Option<String>| text.clone().unwrap_or_default();
        let reader = format!("{}/{}", part(&meta.namespace), part(&meta.name));
        disks
            .into_iter()
            .map(|(disk, reads)| HostPort {
                protocol: self.interner.text(&disk),
                ip: self.text(reads.then_some(reader.as_str())),
                port: 0,
            })
            .collect()
    }
}

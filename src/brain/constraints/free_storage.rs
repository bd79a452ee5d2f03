//! Where CSI drivers have room for another volume, as far as they publish it. A driver of Proxmox storages says
//! so host by host: a volume that no storage there has room for is no reason for a node there.
//!
//! Source: kube-scheduler's plugin `VolumeBinding` (`hasEnoughCapacity`, KEP-1472): a class whose driver
//! publishes has room on a node that one CSIStorageCapacity names which is as large as the volume; each volume
//! is asked for by itself. What no object speaks of has none: kube-scheduler would not bind there, on a new node
//! no more than on another.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use model::cluster::Cluster;
use model::reasons::NoFreeStorage;
use model::scheduling::{LabelSelector, Labels};

use crate::constraints::fit::selector;

/// What is free for the classes whose drivers publish it.
#[derive(Clone, Debug, Default)]
pub(crate) struct FreeStorage<'a>(BTreeMap<&'a str, Arc<Places>>);

/// Where volumes of one class can be made, the largest first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Places {
    class: Arc<str>,
    places: Vec<(Reverse<i64>, LabelSelector)>,
}

/// Where there is room for a volume of some size.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct VolumeRoom {
    of: Arc<Places>,
    /// The first so many places have room.
    enough: usize,
    /// Bytes.
    asked: i64,
}

impl<'a> FreeStorage<'a> {
    /// Indexes what is published; costs nothing where nobody publishes anything.
    pub(crate) fn of(cluster: &'a Cluster) -> FreeStorage<'a> {
        let publishes = |driver: &str| cluster.csi_drivers.get(driver) == Some(&true);
        if !cluster.csi_drivers.values().any(|tells| *tells) {
            return FreeStorage::default();
        }
        let classes = cluster.storage_classes.iter();
        let classes = classes.filter(|(_, class)| publishes(&class.provisioner));
        let of_class = |name: &Arc<str>| {
            let all = cluster.capacities.values();
            let mut places: Vec<_> = all
                .filter(|capacity| capacity.class == *name)
                .filter_map(|capacity| Some((Reverse(capacity.largest?), capacity.nodes.clone()?)))
                .collect();
            places.sort();
            Arc::new(Places {
                class: name.clone(),
                places,
            })
        };
        FreeStorage(classes.map(|(name, _)| (&**name, of_class(name))).collect())
    }

    /// Where a volume of a class finds free storage; `None`: its driver publishes no capacity, and every node passes.
    pub(crate) fn room(&self, class: &str, asked: i64) -> Option<VolumeRoom> {
        let of = self.0.get(class)?;
        let enough = of
            .places
            .partition_point(|(Reverse(most), _)| *most >= asked);
        Some(VolumeRoom {
            of: of.clone(),
            enough,
            asked,
        })
    }
}

impl VolumeRoom {
    /// Whether a node of these labels reaches a place with room.
    pub(crate) fn reached(&self, labels: &Labels) -> bool {
        let mut places = self.of.places[..self.enough].iter();
        places.any(|(_, nodes)| selector::selects(Some(nodes), labels))
    }

    /// What is said where it is not reached.
    pub(crate) fn filter_failure(&self) -> NoFreeStorage {
        let (class, asked) = (self.of.class.clone(), self.asked);
        let Some((Reverse(most), _)) = self.of.places.first() else {
            return NoFreeStorage::Unpublished { class, asked };
        };
        if self.enough == 0 {
            let most = *most;
            return NoFreeStorage::TooSmall { class, asked, most };
        }
        let places = self.of.places[..self.enough].iter();
        let places = places.map(|(_, nodes)| nodes.clone()).collect();
        NoFreeStorage::Elsewhere {
            class,
            asked,
            places,
        }
    }
}

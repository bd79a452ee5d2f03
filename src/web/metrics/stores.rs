//! Gauges of what hosts have for machines: memory, storages, PCI devices, CPUs of their own; and of networks' addresses.

use std::sync::Arc;

use prometheus_client::registry::Registry;

use super::SeriesLabels;
use super::gauges::{FloatGauges, fill, float};
use crate::model::report::{HostState, Report};
use crate::model::store_states::StorageState;

/// Series of one gauge at most, the first by name: a region of hundreds of hosts with storages of their own would fill a Prometheus.
pub(super) const MAX_SERIES: usize = 500;

/// All of them.
#[derive(Debug, Default)]
pub(super) struct StoreGauges {
    host_memory_promised: FloatGauges,
    host_memory_limit: FloatGauges,
    storage_free: FloatGauges,
    storage_promised: FloatGauges,
    storage_limit: FloatGauges,
    storage_left: FloatGauges,
    devices: FloatGauges,
    devices_free: FloatGauges,
    own_cpus: FloatGauges,
    own_cpus_free: FloatGauges,
    addresses: FloatGauges,
    addresses_free: FloatGauges,
}

impl StoreGauges {
    /// All of them, registered.
    pub(super) fn register(registry: &mut Registry) -> StoreGauges {
        let gauges = StoreGauges::default();
        let ours = registry.sub_registry_with_prefix("pve_autoscaler");
        for (name, help, gauge) in [
            (
                "host_memory_promised_bytes",
                "Memory that a host's guests are promised",
                &gauges.host_memory_promised,
            ),
            (
                "host_memory_limit_bytes",
                "Memory that a host's guests may be promised",
                &gauges.host_memory_limit,
            ),
            (
                "storage_free_bytes",
                "Free bytes of a storage that machines have disks on, or may get some on; without a host where it is shared",
                &gauges.storage_free,
            ),
            (
                "storage_promised_bytes",
                "Bytes of machines' disks on a storage, grown to their full size",
                &gauges.storage_promised,
            ),
            (
                "storage_limit_bytes",
                "Bytes that all may come to that is in use of a storage, with the disks of machines in full, where disks grow",
                &gauges.storage_limit,
            ),
            (
                "storage_left_bytes",
                "Bytes of a storage that disks of new machines may still take",
                &gauges.storage_left,
            ),
            (
                "pci_devices",
                "PCI devices of a mapping on a host",
                &gauges.devices,
            ),
            (
                "pci_devices_free",
                "PCI devices of a mapping on a host that new machines can get",
                &gauges.devices_free,
            ),
            (
                "own_cpus",
                "CPUs of a host's NUMA node that machines can have for themselves: those that are not reserved",
                &gauges.own_cpus,
            ),
            (
                "own_cpus_free",
                "CPUs of a host's NUMA node that new machines can get for themselves",
                &gauges.own_cpus_free,
            ),
            (
                "network_addresses",
                "Addresses of a network's ranges, by family",
                &gauges.addresses,
            ),
            (
                "network_addresses_free",
                "Addresses of a network's ranges that new machines can get, by family",
                &gauges.addresses_free,
            ),
        ] {
            ours.register(name, help, gauge.clone());
        }
        gauges
    }

    /// Shows a report. Series of what is gone disappear.
    pub(super) fn show(&self, report: &Report) {
        self.show_hosts(report);
        self.show_storages(report);
        self.show_devices(report);
        self.show_own_cpus(report);
        self.show_addresses(report);
    }

    fn show_hosts(&self, report: &Report) {
        // A host that is off tells no numbers.
        let hosts = report.hosts.iter().flat_map(|(region, hosts)| {
            let known = hosts.iter().filter(|(_, host)| host.memory > 0);
            known.map(move |(name, host)| (region, name, host))
        });
        let hosts: Vec<(&Arc<str>, &Arc<str>, &HostState)> = hosts.take(MAX_SERIES).collect();
        let series = |value: fn(&HostState) -> i64| {
            let hosts = hosts.iter();
            hosts.map(move |(region, name, host)| {
                let labels = series_labels([("region", *region), ("host", *name)]);
                (labels, float(value(host)))
            })
        };
        fill(
            &self.host_memory_promised,
            series(|host| host.promised_memory),
        );
        fill(&self.host_memory_limit, series(|host| host.most_memory));
    }

    fn show_storages(&self, report: &Report) {
        // What PVE tells no size of has no numbers.
        let storages = report.storages.iter().flat_map(|(region, storages)| {
            let known = storages.values().filter(|storage| storage.total > 0);
            known.map(move |storage| (region, storage))
        });
        let storages: Vec<(&Arc<str>, &StorageState)> = storages.take(MAX_SERIES).collect();
        let series = |value: fn(&StorageState) -> Option<i64>| {
            let storages = storages.iter();
            storages.filter_map(move |(region, storage)| {
                let mut labels =
                    series_labels([("region", *region), ("storage", &storage.storage)]);
                if let Some(host) = storage.hosts.first().filter(|_| !storage.shared) {
                    labels.push(("host", host.to_string()));
                }
                Some((labels, float(value(storage)?)))
            })
        };
        fill(&self.storage_free, series(|storage| Some(storage.free)));
        let promised = series(|storage| Some(storage.promised));
        fill(&self.storage_promised, promised);
        fill(&self.storage_limit, series(|storage| storage.most));
        fill(&self.storage_left, series(|storage| storage.left));
    }

    fn show_devices(&self, report: &Report) {
        let (mut all, mut free) = (Vec::new(), Vec::new());
        for (region, mappings) in &report.devices {
            for (mapping, hosts) in mappings {
                for (host, state) in hosts {
                    let of = [("region", region), ("mapping", mapping), ("host", host)];
                    all.push((series_labels(of), f64::from(state.has)));
                    // While it is not known who has them, none is given.
                    let given = if state.note.is_none() { state.free } else { 0 };
                    free.push((series_labels(of), f64::from(given)));
                }
            }
        }
        fill(&self.devices, all.into_iter().take(MAX_SERIES));
        fill(&self.devices_free, free.into_iter().take(MAX_SERIES));
    }

    fn show_own_cpus(&self, report: &Report) {
        let (mut all, mut free) = (Vec::new(), Vec::new());
        for (region, hosts) in &report.own_cpus {
            for (host, nodes) in hosts {
                for (number, state) in nodes {
                    let mut of = series_labels([("region", region), ("host", host)]);
                    of.push(("numa", number.to_string()));
                    let number = |cpus: usize| float(i64::try_from(cpus).unwrap_or(i64::MAX));
                    let usable = state.cpus.without(&state.reserved).len();
                    all.push((of.clone(), number(usable)));
                    // While it is not known who has them, none is given.
                    let given = if state.note.is_none() {
                        state.free.len()
                    } else {
                        0
                    };
                    free.push((of, number(given)));
                }
            }
        }
        fill(&self.own_cpus, all.into_iter().take(MAX_SERIES));
        fill(&self.own_cpus_free, free.into_iter().take(MAX_SERIES));
    }

    fn show_addresses(&self, report: &Report) {
        let (mut all, mut free) = (Vec::new(), Vec::new());
        let number = |number: u64| float(i64::try_from(number).unwrap_or(i64::MAX));
        for (network, families) in &report.networks {
            for (family, state) in families {
                let mut of = series_labels([("network", network)]);
                of.push(("family", super::gauges::name(family)));
                all.push((of.clone(), number(state.size)));
                let given = if state.note.is_none() { state.free } else { 0 };
                free.push((of, number(given)));
            }
        }
        fill(&self.addresses, all.into_iter().take(MAX_SERIES));
        fill(&self.addresses_free, free.into_iter().take(MAX_SERIES));
    }
}

fn series_labels<const N: usize>(of: [(&'static str, &Arc<str>); N]) -> SeriesLabels {
    let labels = of.into_iter();
    labels
        .map(|(label, value)| (label, value.to_string()))
        .collect()
}

//! `[instance_matrix.NAME]`: many instance types in one table.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pool::InstanceTypeTable;
use crate::config::scalar::{Amount, PciText, Price, Size};

/// Instance types by cores and memory: one for each number of cores with each memory per core. The type of four cores and 16 GiB
/// in the matrix `general` is called `general-4c-16g`, and with 1536 MiB `general-1c-1536m`: the name of the matrix, cores, memory
/// in GiB, or in MiB where that is no whole number of GiB. A pool that names the matrix in `instance_types` has all of them; it can
/// name single ones too. More: [machines](machines.md#sizes-by-a-matrix).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct InstanceMatrix {
    /// Numbers of cores, such as `[2, 4, 8]`.
    #[schemars(length(min = 1))]
    pub cores: Option<Vec<u32>>,
    /// Memory of a VM for each of its cores, such as `["2GiB", "4GiB"]`.
    #[schemars(length(min = 1))]
    pub memory_per_core: Option<Vec<Size>>,
    /// Size of the boot disk of all of them, in whole GiB. Default: the template's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<Size>,
    /// Price of one core per hour, in any currency. Default: 0 beside `price_per_gib`; without both, types are priced by cores and
    /// memory as any other type is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price_per_core: Option<Price>,
    /// Price of one GiB of memory per hour. Default: 0 beside `price_per_core`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price_per_gib: Option<Price>,
    /// Extended resources that a node of each offers. Huge pages among them are taken off its memory.
    pub extended: BTreeMap<String, Amount>,
    /// PCI devices that a VM of each gets of its host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pci: Vec<PciText>,
    /// Labels that a node of each carries. A value may have [gaps](joining.md#gaps), such as `"{{ instance_type }}"`.
    pub labels: BTreeMap<String, String>,
    /// Volumes that a node of each can attach, by CSI driver, for a pool that has no node yet.
    pub attach_limits: BTreeMap<String, i32>,
}

const MIB: i64 = 1 << 20;
const GIB: i64 = 1 << 30;

impl InstanceMatrix {
    /// The types that it means, by name, in the order of the lists. What is wrong with their sizes is not looked at.
    pub(crate) fn types(&self, name: &str) -> Vec<(String, InstanceTypeTable)> {
        let sizes = self.memory_per_core.iter().flatten();
        let cores = self.cores.iter().flatten();
        let pairs = cores.flat_map(|cores| sizes.clone().map(|size| (*cores, *size)));
        let types = pairs.map(|(cores, per_core)| {
            let memory = Size(per_core.0.saturating_mul(i64::from(cores)));
            let kind = InstanceTypeTable {
                cores: Some(cores),
                memory: Some(memory),
                disk: self.disk,
                extended: self.extended.clone(),
                pci: self.pci.clone(),
                labels: self.labels.clone(),
                price: self.price(cores, memory),
                attach_limits: self.attach_limits.clone(),
            };
            (type_name(name, cores, memory), kind)
        });
        types.collect()
    }

    fn price(&self, cores: u32, memory: Size) -> Option<Price> {
        if self.price_per_core.is_none() && self.price_per_gib.is_none() {
            return None;
        }
        let per = |price: Option<Price>| i128::from(price.unwrap_or_default().0);
        let of_cores = per(self.price_per_core) * i128::from(cores);
        let of_memory = per(self.price_per_gib) * i128::from(memory.0) / i128::from(GIB);
        Some(Price(
            i64::try_from(of_cores + of_memory).unwrap_or(i64::MAX),
        ))
    }
}

/// What the type of a matrix with so many cores and so much memory is called.
fn type_name(matrix: &str, cores: u32, memory: Size) -> String {
    if memory.0 % GIB == 0 {
        format!("{matrix}-{cores}c-{}g", memory.0 / GIB)
    } else {
        format!("{matrix}-{cores}c-{}m", memory.0 / MIB)
    }
}

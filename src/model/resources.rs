//! Amounts of what pods ask for and nodes offer.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the names of huge pages begin: `hugepages-2Mi`.
const HUGE_PAGES: &str = "hugepages-";

/// Whether a resource is huge pages, which are counted in bytes of the node's memory.
pub fn is_huge_pages(name: &str) -> bool {
    name.starts_with(HUGE_PAGES)
}

/// Bytes of the huge pages of all sizes among extended resources.
pub fn huge_pages<'a>(extended: impl IntoIterator<Item = (&'a str, i64)>) -> i64 {
    let amounts = extended.into_iter();
    amounts
        .filter(|(name, _)| is_huge_pages(name))
        .fold(0_i64, |sum, (_, amount)| sum.saturating_add(amount))
}

/// Bytes of the huge pages of all sizes among the extended resources of a node, a type or a pod.
pub fn huge_pages_of(extended: &BTreeMap<Arc<str>, i64>) -> i64 {
    huge_pages(extended.iter().map(|(name, amount)| (&**name, *amount)))
}

/// A vector of resource amounts. Arithmetic saturates: a hostile quantity makes a pod that fits
/// nowhere, never a wrapped number.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(default, deny_unknown_fields)]
pub struct Resources {
    /// Thousandths of a CPU core.
    pub cpu_milli: i64,
    /// Memory in bytes.
    pub memory: i64,
    /// `ephemeral-storage` in bytes.
    pub ephemeral: i64,
    /// Pod slots: 1 for a pod, `pods` of a node's allocatable.
    pub pods: i64,
    /// Extended resources and hugepages by full name, in whole units; zero amounts are left out.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extended: BTreeMap<Arc<str>, i64>,
}

impl Resources {
    /// Adds `other`, saturating.
    pub fn add(&mut self, other: &Resources) {
        self.zip(other, i64::saturating_add);
    }

    /// Takes `other` away, saturating; the result may be negative (an overcommitted node).
    pub fn subtract(&mut self, other: &Resources) {
        self.zip(other, i64::saturating_sub);
    }

    /// Raises every amount to at least that of `other`.
    pub fn raise_to(&mut self, other: &Resources) {
        self.zip(other, i64::max);
    }

    fn zip(&mut self, other: &Resources, op: fn(i64, i64) -> i64) {
        self.cpu_milli = op(self.cpu_milli, other.cpu_milli);
        self.memory = op(self.memory, other.memory);
        self.ephemeral = op(self.ephemeral, other.ephemeral);
        self.pods = op(self.pods, other.pods);
        for (name, amount) in &other.extended {
            let mine = self.extended.entry(name.clone()).or_insert(0);
            *mine = op(*mine, *amount);
        }
        self.extended.retain(|_, amount| *amount != 0);
    }

    /// Bytes of huge pages of all sizes. A kubelet takes what its node has of them off the memory that pods can have.
    pub fn huge_pages(&self) -> i64 {
        huge_pages_of(&self.extended)
    }

    /// The amount of one resource by its Kubernetes name; CPU in millicores.
    pub fn get(&self, name: &str) -> i64 {
        match name {
            "cpu" => self.cpu_milli,
            "memory" => self.memory,
            "ephemeral-storage" => self.ephemeral,
            "pods" => self.pods,
            other => self.extended.get(other).copied().unwrap_or(0),
        }
    }

    /// The resources of this request that `free` does not hold, as kube-scheduler's
    /// `NodeResourcesFit` counts them: an amount of zero always fits.
    pub fn lacking<'a>(&'a self, free: &'a Resources) -> impl Iterator<Item = Lack<'a>> {
        let fixed = [
            ("pods", self.pods, free.pods),
            ("cpu", self.cpu_milli, free.cpu_milli),
            ("memory", self.memory, free.memory),
            ("ephemeral-storage", self.ephemeral, free.ephemeral),
        ];
        let extended = self
            .extended
            .iter()
            .map(|(name, asked)| (&**name, *asked, free.get(name)));
        fixed
            .into_iter()
            .chain(extended)
            .filter(|(_, asked, have)| *asked > 0 && asked > have)
            .map(|(resource, asked, have)| Lack {
                resource,
                asked,
                free: have,
            })
    }

    /// Whether the request fits into `free`.
    pub fn fits(&self, free: &Resources) -> bool {
        self.lacking(free).next().is_none()
    }
}

/// One resource a request asks more of than there is. CPU in millicores, memory in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lack<'a> {
    /// The resource's Kubernetes name.
    pub resource: &'a str,
    /// What the request asks for.
    pub asked: i64,
    /// What is free.
    pub free: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(cpu: i64, memory: i64) -> Resources {
        Resources {
            cpu_milli: cpu,
            memory,
            ..Resources::default()
        }
    }

    #[test]
    fn zero_of_an_unknown_resource_fits_anywhere() {
        let mut asked = amounts(100, 100);
        asked.extended.insert("foo.com/weird".into(), 0);
        assert!(asked.fits(&amounts(100, 100)));
        assert!(!asked.fits(&amounts(99, 100)));
    }

    #[test]
    fn huge_pages_of_all_sizes_are_bytes_of_memory() {
        let mut offer = amounts(4000, 8 << 30);
        for (name, amount) in [
            ("hugepages-2Mi", 1 << 30),
            ("hugepages-1Gi", 2 << 30),
            ("example.com/hugepages-2Mi", 7),
        ] {
            offer.extended.insert(name.into(), amount);
        }
        assert_eq!(offer.huge_pages(), 3 << 30);
        offer.extended.insert("hugepages-64Ki".into(), i64::MAX);
        assert_eq!(offer.huge_pages(), i64::MAX);
    }

    #[test]
    fn hostile_amounts_saturate() {
        let mut sum = amounts(i64::MAX, 1);
        sum.add(&amounts(i64::MAX, i64::MAX));
        assert_eq!(sum.cpu_milli, i64::MAX);
        sum.subtract(&amounts(-5, 0));
        assert_eq!(sum.cpu_milli, i64::MAX);
    }
}

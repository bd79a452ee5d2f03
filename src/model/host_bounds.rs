//! How much of one host guests may be promised: what the configuration says of its region, and of this host otherwise.

use serde::{Deserialize, Serialize};

use super::policy::RegionPolicy;

/// What the configuration says of one host otherwise than of its region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostOverrides {
    /// Memory in bytes that machines may not take. `None`: as the region says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_reserve: Option<i64>,
    /// CPU in millicores that machines may not take. `None`: as the region says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_reserve_milli: Option<i64>,
    /// Memory that guests may be promised, in thousandths of what the host has. `None`: as the region says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_overcommit_permille: Option<i64>,
    /// CPU that guests may be promised, in thousandths of what the host has. `None`: as the region says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_overcommit_permille: Option<i64>,
}

/// How much of one host guests may be promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostBounds {
    /// Memory in bytes that machines may not take.
    pub memory_reserve: i64,
    /// CPU in millicores that machines may not take.
    pub cpu_reserve_milli: i64,
    /// Memory that guests may be promised, in thousandths of what the host has.
    pub memory_overcommit_permille: i64,
    /// CPU that guests may be promised, in thousandths of what the host has; `None`: as much as they like.
    pub cpu_overcommit_permille: Option<i64>,
}

impl Default for HostBounds {
    /// Those of a region of which the configuration says nothing.
    fn default() -> HostBounds {
        HostBounds {
            memory_reserve: 0,
            cpu_reserve_milli: 0,
            memory_overcommit_permille: 1000,
            cpu_overcommit_permille: None,
        }
    }
}

impl HostBounds {
    /// The memory in bytes that guests may be promised on a host that has so much.
    pub fn most_memory(&self, memory: i64) -> i64 {
        let most = share_of(memory.max(0), self.memory_overcommit_permille);
        most.saturating_sub(self.memory_reserve.max(0))
    }

    /// The CPU in millicores that guests may be promised on a host that has so much; `None`: as much as they like, or it is not
    /// known what the host has.
    pub fn most_cpu_milli(&self, cpu_milli: i64) -> Option<i64> {
        let factor = self.cpu_overcommit_permille.filter(|_| cpu_milli > 0)?;
        Some(share_of(cpu_milli, factor).saturating_sub(self.cpu_reserve_milli))
    }
}

impl RegionPolicy {
    /// How much of one of its hosts guests may be promised.
    pub fn bounds_of(&self, host: &str) -> HostBounds {
        let own = self.hosts.get(host).copied().unwrap_or_default();
        let region = &self.capacity;
        let reserve = own.memory_reserve.unwrap_or(self.host_memory_reserve);
        HostBounds {
            memory_reserve: reserve,
            cpu_reserve_milli: own.cpu_reserve_milli.unwrap_or(region.cpu_reserve_milli),
            memory_overcommit_permille: own
                .memory_overcommit_permille
                .unwrap_or(region.memory_overcommit_permille),
            cpu_overcommit_permille: own
                .cpu_overcommit_permille
                .or(region.cpu_overcommit_permille),
        }
    }
}

/// An amount times thousandths.
fn share_of(amount: i64, thousandths: i64) -> i64 {
    let all = i128::from(amount) * i128::from(thousandths) / 1000;
    i64::try_from(all).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: i64 = 1 << 30;

    #[test]
    fn a_host_has_its_own_where_it_says_so_and_else_what_its_region_says() {
        let mut region = RegionPolicy::of_vmids(9000, 9099);
        region.host_memory_reserve = 2 * GIB;
        region.capacity.cpu_reserve_milli = 1000;
        region.capacity.cpu_overcommit_permille = Some(3000);
        let own = HostOverrides {
            memory_reserve: Some(8 * GIB),
            memory_overcommit_permille: Some(500),
            ..HostOverrides::default()
        };
        region.hosts.insert("tiny".into(), own);
        let (tiny, big) = (region.bounds_of("tiny"), region.bounds_of("big"));
        assert_eq!(tiny.most_memory(64 * GIB), 24 * GIB);
        assert_eq!(big.most_memory(64 * GIB), 62 * GIB);
        assert_eq!(tiny.most_cpu_milli(4000), Some(11_000));
        assert_eq!(tiny.most_cpu_milli(0), None, "its CPUs are not known");
        let own = HostOverrides {
            cpu_reserve_milli: Some(0),
            cpu_overcommit_permille: Some(1000),
            ..HostOverrides::default()
        };
        region.hosts.insert("tiny".into(), own);
        let tiny = region.bounds_of("tiny");
        assert_eq!(tiny.most_cpu_milli(4000), Some(4000));
        assert_eq!(tiny.most_memory(64 * GIB), 62 * GIB);
        region.capacity.cpu_overcommit_permille = None;
        assert_eq!(region.bounds_of("tiny").most_cpu_milli(4000), Some(4000));
        assert_eq!(region.bounds_of("big").most_cpu_milli(4000), None);
    }

    #[test]
    fn absurd_numbers_are_no_reason_to_panic() {
        let bounds = HostBounds {
            memory_reserve: i64::MIN,
            cpu_reserve_milli: i64::MAX,
            memory_overcommit_permille: i64::MAX,
            cpu_overcommit_permille: Some(i64::MAX),
        };
        assert_eq!(bounds.most_memory(i64::MAX), i64::MAX);
        assert_eq!(bounds.most_memory(i64::MIN), 0);
        assert_eq!(bounds.most_cpu_milli(i64::MAX), Some(0));
    }
}

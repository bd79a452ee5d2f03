//! `addresses` and `cpus`: what planned machines get for themselves.

use std::net::IpAddr;

use crate::conformance::act::CaseResult;
use crate::conformance::fields::CaseFields;
use crate::conformance::networks;
use crate::conformance::scalars::several;
use crate::conformance::topologies;
use crate::conformance::value::{CaseError, CaseValue};
use crate::model::action::Kind;
use crate::model::cpus::CpuSet;
use crate::model::mark::Mark;

use super::{Misses, shown};

pub(super) fn judge(
    fields: &mut CaseFields<'_>,
    outcome: &CaseResult,
    misses: &mut Misses,
) -> Result<(), CaseError> {
    if let Some(value) = fields.take("addresses") {
        let wanted = networks::addresses(value)?;
        let have = marks(outcome).flat_map(|mark| mark.addresses.values().flatten());
        let have: Vec<IpAddr> = have.copied().collect();
        alike("addresses", wanted, have, misses);
    }
    if let Some(value) = fields.take("cpus") {
        let wanted = sets(value)?;
        let have = marks(outcome).map(|mark| mark.cpus.clone());
        let have: Vec<CpuSet> = have.filter(|cpus| !cpus.is_empty()).collect();
        alike("CPUs of their own", wanted, have, misses);
    }
    Ok(())
}

/// The marks of all machines that were planned, in the order of the plans.
fn marks(outcome: &CaseResult) -> impl Iterator<Item = &Mark> {
    let actions = outcome.actions.iter();
    actions.filter_map(|action| match &action.kind {
        Kind::Create(spec) => Some(&spec.mark),
        _ => None,
    })
}

fn sets(value: &CaseValue) -> Result<Vec<CpuSet>, CaseError> {
    several(value).into_iter().map(topologies::cpus).collect()
}

/// Notes a miss unless both lists hold the same, in any order.
fn alike<T: Ord + ToString>(what: &str, mut wanted: Vec<T>, mut have: Vec<T>, misses: &mut Misses) {
    wanted.sort();
    have.sort();
    if wanted != have {
        let listed = |all: &[T]| shown(all.iter().map(ToString::to_string));
        let (wanted, have) = (listed(&wanted), listed(&have));
        misses.push(format!(
            "expected new machines with the {what} {wanted}, got {have}"
        ));
    }
}

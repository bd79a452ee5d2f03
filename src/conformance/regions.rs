//! Further regions of a case: PVE clusters beside the usual one.

use std::sync::Arc;

use crate::model::hosts::HostCounting;
use crate::model::policy::{PoolPolicy, RegionPolicy, ZoneNames};
use crate::model::region::Region;
use crate::model::time::Span;

use super::fields::CaseFields;
use super::hosts;
use super::objects::{name_of, named};
use super::scalars::{permille, span, text, texts, truth, whole};
use super::stage::{CaseWorld, REGION};
use super::value::{CaseError, CaseValue};

/// Reads `regions`: `{attic: {hosts: [pve1], price: 1.2, weight: -1, quorate: false, away: 1h}}`. What is said of `home` is said
/// of the usual one. Where there are several, zones are called `REGION.HOST`.
pub(super) fn read(case: &mut CaseFields<'_>, stage: &mut CaseWorld) -> Result<(), CaseError> {
    if let Some(value) = case.take("regions") {
        for (name, item) in named(value)? {
            let short = item.scalar().map(|name| (name.to_owned(), item.emptied()));
            match short {
                Some((name, item)) => region(stage, &item, Some(&name))?,
                None => region(stage, &item, name.as_ref())?,
            }
        }
    }
    let known: Vec<Arc<str>> = stage.policy.regions.keys().cloned().collect();
    let pools = stage.policy.pools.iter();
    let mut places = pools.flat_map(|(pool, of)| of.everywhere().map(move |there| (pool, there)));
    if let Some((pool, there)) = places.find(|(_, there)| !known.contains(&there.region)) {
        let text = format!("the pool {pool} is in {}, which is no region", there.region);
        return Err(case.value().wrong(text));
    }
    Ok(())
}

fn region(
    stage: &mut CaseWorld,
    value: &CaseValue,
    name: Option<&String>,
) -> Result<(), CaseError> {
    let mut fields = CaseFields::of(value, "a region")?;
    let name: Arc<str> = name_of(&mut fields, name, "a region")?.into();
    let known = stage.policy.regions.get(&name);
    let known = known.or_else(|| stage.policy.regions.get(REGION));
    let mut policy = RegionPolicy::of_vmids(1_000, 9_999_999);
    policy.topologies = known.map(|of| of.topologies.clone()).unwrap_or_default();
    policy.hosts = known.map(|of| of.hosts.clone()).unwrap_or_default();
    let mut seen: Region = match stage.snapshot.regions.get(&name) {
        Some(known) => (**known).clone(),
        None => {
            let usual = stage.region();
            Region {
                quorate: true,
                hosts: usual.hosts.clone(),
                storages: usual.storages.clone(),
                mappings: usual.mappings.clone(),
                mediated: usual.mediated.clone(),
                ..Region::default()
            }
        }
    };
    if let Some(value) = fields.take("hosts") {
        seen.hosts.clear();
        seen.storages.clear();
        seen.mappings.clear();
        seen.mediated.clear();
        policy.topologies.clear();
        policy.hosts.clear();
        for host in hosts::described(value, stage.now)? {
            host.put(&mut seen, &mut policy);
        }
    }
    seen.quorate = fields.with("quorate", truth)?.unwrap_or(seen.quorate);
    if let Some(factor) = fields.with("price", permille)? {
        policy.price_permille = Some(factor);
    }
    counting(&mut fields, &mut policy.capacity)?;
    let weight: i32 = fields.with("weight", whole)?.unwrap_or(0);
    let away = fields.with("away", span)?;
    fields.done()?;
    stage.snapshot.regions.insert(name.clone(), seen.into());
    stage.policy.regions.insert(name.clone(), policy);
    if stage.policy.regions.len() > 1 {
        for region in stage.policy.regions.values_mut() {
            region.zones = ZoneNames::RegionHost;
        }
    }
    for pool in stage.policy.pools.values_mut() {
        add_weight(pool, &name, weight);
    }
    stage.place_templates(&name);
    stage.see(&name, away.unwrap_or(Span::ZERO));
    Ok(())
}

/// How the capacity of the region's hosts is counted.
fn counting(fields: &mut CaseFields<'_>, counting: &mut HostCounting) -> Result<(), CaseError> {
    counting.max_per_host = fields.with("max_per_host", whole)?;
    for (key, slot) in [
        (
            "memory_overcommit",
            &mut counting.memory_overcommit_permille,
        ),
        (
            "storage_overcommit",
            &mut counting.storage_overcommit_permille,
        ),
    ] {
        if let Some(factor) = fields.with(key, permille)? {
            *slot = factor;
        }
    }
    counting.cpu_overcommit_permille = fields.with("cpu_overcommit", permille)?;
    if let Some(counted) = fields.with("count_onboot", truth)? {
        counting.onboot = counted;
    }
    let least = fields.with("ballooning", |value| match text(value)? {
        "minimum" => Ok(true),
        "maximum" => Ok(false),
        _ => Err(value.expected("maximum or minimum")),
    })?;
    counting.balloon_minimum = least.unwrap_or(counting.balloon_minimum);
    Ok(())
}

fn add_weight(pool: &mut PoolPolicy, region: &str, weight: i32) {
    if *pool.region == *region {
        pool.weight = pool.weight.saturating_add(weight);
    } else if let Some(there) = pool.further.get_mut(region) {
        there.weight = there.weight.saturating_add(weight);
    }
}

/// The pool as it is over these regions; without any in the usual one.
pub(super) fn over(
    pool: &PoolPolicy,
    regions: Option<&CaseValue>,
) -> Result<PoolPolicy, CaseError> {
    let mut names = match regions {
        Some(value) => texts(value)?,
        None => Vec::new(),
    };
    names.sort();
    names.dedup();
    let mut there = names.iter().map(|name| PoolPolicy {
        region: name.as_str().into(),
        ..pool.clone()
    });
    let Some(first) = there.next() else {
        return Ok(PoolPolicy {
            region: REGION.into(),
            ..pool.clone()
        });
    };
    let further = there.map(|pool| (pool.region.clone(), pool)).collect();
    Ok(PoolPolicy { further, ..first })
}

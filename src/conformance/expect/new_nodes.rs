//! `new_nodes`: which machines are planned; `lower_bound`: the least that any plan needs.

use crate::conformance::act::{CaseResult, PlannedNode, matches};
use crate::conformance::fields::CaseFields;
use crate::conformance::scalars::{count, millionths, text, texts};
use crate::conformance::value::{CaseError, CaseValue};
use crate::model::chosen_storages::ChosenStorages;
use crate::model::cluster::ObjectKey;
use crate::model::words;

use super::{Misses, shown};

/// One line of `new_nodes`.
struct NewNodeLine<'v> {
    pool: Option<&'v str>,
    kind: Option<&'v str>,
    hosts: Option<Vec<String>>,
    /// The storages that were chosen out of lists: of its own disks first, then of the further ones.
    storages: Option<Vec<String>>,
    pods: Option<PodsWanted>,
    count: usize,
}

enum PodsWanted {
    /// A number of pods on each node.
    Number(usize),
    /// These and no others, on all of the line's nodes together.
    These(Vec<String>),
}

pub(super) fn judge(
    fields: &mut CaseFields<'_>,
    outcome: &CaseResult,
    misses: &mut Misses,
) -> Result<(), CaseError> {
    if let Some(value) = fields.any(&["new_nodes", "created"]) {
        new_nodes(value, outcome, misses)?;
    }
    if let Some(value) = fields.take("lower_bound") {
        lower_bound(value, outcome, misses)?;
    }
    Ok(())
}

/// `lower_bound: 3` machines, `{nodes: 3, price: 0.4}`, `{nodes_at_least: 2, price_at_least: 0.3}`: of the
/// last decision; 0 where it makes none.
fn lower_bound(
    value: &CaseValue,
    outcome: &CaseResult,
    misses: &mut Misses,
) -> Result<(), CaseError> {
    let least = outcome.lower_bound;
    let nodes = usize::try_from(least.nodes).unwrap_or(usize::MAX);
    let mut expect = |right: bool, what: String| {
        if !right {
            misses.push(format!(
                "expected a lower bound of {what}, got {nodes} machines at {}",
                words::price(least.price)
            ));
        }
    };
    if value.scalar().is_some() {
        let wanted = count(value)?;
        expect(nodes == wanted, format!("{wanted} machines"));
        return Ok(());
    }
    let mut fields = CaseFields::of(value, "lower_bound")?;
    if let Some(wanted) = fields.with("nodes", count)? {
        expect(nodes == wanted, format!("{wanted} machines"));
    }
    if let Some(wanted) = fields.with("nodes_at_least", count)? {
        expect(nodes >= wanted, format!("{wanted} machines or more"));
    }
    if let Some(wanted) = fields.with("price", millionths)? {
        expect(
            least.price == wanted,
            format!("the price {}", words::price(wanted)),
        );
    }
    if let Some(wanted) = fields.with("price_at_least", millionths)? {
        expect(
            least.price >= wanted,
            format!("the price {} or more", words::price(wanted)),
        );
    }
    fields.done()
}

/// `{ng: 2, gpu: 1}`: so many of each pool, and no others.
fn by_pool(value: &CaseValue) -> Result<Option<Vec<NewNodeLine<'_>>>, CaseError> {
    let known = [
        "total", "types", "hosts", "host", "zone", "zones", "pool", "type", "count", "pods",
        "storages",
    ];
    let entries = value.map().unwrap_or_default();
    let pools = entries.iter().all(|entry| {
        let own = known.contains(&&*entry.key) || entry.key.contains('_');
        !own && entry.value.scalar().is_some()
    });
    if entries.is_empty() || !pools {
        return Ok(None);
    }
    let lines = entries.iter().map(|entry| {
        Ok(NewNodeLine {
            pool: Some(&*entry.key),
            kind: None,
            hosts: None,
            storages: None,
            pods: None,
            count: count(&entry.value)?,
        })
    });
    lines.collect::<Result<Vec<_>, CaseError>>().map(Some)
}

fn new_nodes(
    value: &CaseValue,
    outcome: &CaseResult,
    misses: &mut Misses,
) -> Result<(), CaseError> {
    let planned = &outcome.planned;
    if value.scalar().is_some() {
        let wanted = count(value)?;
        if planned.len() != wanted {
            misses.push(format!(
                "expected {wanted} new nodes, got {}",
                described(outcome)
            ));
        }
        return Ok(());
    }
    if let Some(items) = value.list() {
        let lines = items.iter().map(line).collect::<Result<Vec<_>, _>>()?;
        exactly(&lines, outcome, misses);
        return Ok(());
    }
    if let Some(lines) = by_pool(value)? {
        exactly(&lines, outcome, misses);
        return Ok(());
    }
    let summary = [
        "total",
        "at_most",
        "at_least",
        "types",
        "price_at_most",
        "hosts",
    ];
    if !value
        .map()
        .is_some_and(|m| m.iter().any(|e| summary.contains(&&*e.key)))
    {
        exactly(&[line(value)?], outcome, misses);
        return Ok(());
    }
    summed(value, outcome, misses)
}

/// `{total: 3}`, `{at_most: 3, types: 2}` …
fn summed(value: &CaseValue, outcome: &CaseResult, misses: &mut Misses) -> Result<(), CaseError> {
    let planned = &outcome.planned;
    let mut fields = CaseFields::of(value, "new_nodes")?;
    let number = planned.len();
    for (key, holds) in [
        (
            "total",
            (|have, wanted| have == wanted) as fn(usize, usize) -> bool,
        ),
        ("at_most", |have, wanted| have <= wanted),
        ("at_least", |have, wanted| have >= wanted),
    ] {
        if let Some(wanted) = fields.with(key, count)?
            && !holds(number, wanted)
        {
            misses.push(format!(
                "expected new nodes {} {wanted}, got {}",
                key.replace('_', " "),
                described(outcome)
            ));
        }
    }
    distinct(
        &mut fields,
        "types",
        outcome,
        |planned| &planned.kind,
        misses,
    )?;
    distinct(
        &mut fields,
        "hosts",
        outcome,
        |planned| &planned.host,
        misses,
    )?;
    if let Some(most) = fields.with("price_at_most", millionths)? {
        let price: i64 = planned.iter().map(|planned| price(outcome, planned)).sum();
        if price > most {
            misses.push(format!(
                "expected new nodes for at most {most} millionths, got {price}: {}",
                described(outcome)
            ));
        }
    }
    fields.done()
}

fn price(outcome: &CaseResult, planned: &PlannedNode) -> i64 {
    let types = &outcome.before.policy.instance_types;
    let mark = outcome.after.snapshot.machines.get(&planned.name);
    mark.and_then(|machine| types.get(machine.mark.instance_type.as_str()))
        .and_then(|kind| kind.price)
        .unwrap_or(0)
}

/// `types: 2`: so many different ones; `types: [small, default]`: exactly these.
fn distinct<'o>(
    fields: &mut CaseFields<'_>,
    key: &'static str,
    outcome: &'o CaseResult,
    of: fn(&'o PlannedNode) -> &'o str,
    misses: &mut Misses,
) -> Result<(), CaseError> {
    let Some(value) = fields.take(key) else {
        return Ok(());
    };
    let mut have: Vec<&str> = outcome.planned.iter().map(of).collect();
    have.sort_unstable();
    have.dedup();
    let right = match value.list() {
        None => have.len() == count(value)?,
        Some(_) => {
            let mut wanted = texts(value)?;
            wanted.sort();
            wanted == have
        }
    };
    if !right {
        misses.push(format!(
            "expected new nodes of {key} {}, got {}",
            value.named(),
            shown(have)
        ));
    }
    Ok(())
}

fn line(value: &CaseValue) -> Result<NewNodeLine<'_>, CaseError> {
    let mut fields = CaseFields::of(value, "a line of new_nodes")?;
    let hosts = fields.any(&["zone", "host", "zones", "hosts"]);
    let pods = match fields.take("pods") {
        None => None,
        Some(value)
            if value
                .scalar()
                .is_some_and(|text| text.parse::<usize>().is_ok()) =>
        {
            Some(PodsWanted::Number(count(value)?))
        }
        Some(value) => Some(PodsWanted::These(texts(value)?)),
    };
    let wanted = NewNodeLine {
        pool: fields.with("pool", text)?,
        kind: fields.with("type", text)?,
        hosts: hosts.map(texts).transpose()?,
        storages: fields
            .any(&["storage", "storages"])
            .map(texts)
            .transpose()?,
        pods,
        count: fields.with("count", count)?.unwrap_or(1),
    };
    fields.done()?;
    Ok(wanted)
}

/// The planned nodes are exactly those of the lines.
fn exactly(lines: &[NewNodeLine<'_>], outcome: &CaseResult, misses: &mut Misses) {
    let slots: Vec<&NewNodeLine<'_>> = lines
        .iter()
        .flat_map(|line| std::iter::repeat_n(line, line.count))
        .collect();
    let planned = &outcome.planned;
    let number = slots.len() == planned.len();
    let fits: Vec<Vec<usize>> = slots
        .iter()
        .map(|slot| {
            let indices = 0..planned.len();
            indices
                .filter(|at| fits(slot, &planned[*at], outcome))
                .collect()
        })
        .collect();
    if !number || !assign(&fits, planned.len()) {
        misses.push(format!(
            "expected new nodes {}, got {}",
            shown(lines.iter().map(describe)),
            described(outcome)
        ));
    }
}

/// Whether every slot can have a planned node of its own.
fn assign(fits: &[Vec<usize>], nodes: usize) -> bool {
    let mut owner: Vec<Option<usize>> = vec![None; nodes];
    (0..fits.len()).all(|slot| give(slot, fits, &mut owner, &mut vec![false; nodes]))
}

/// Gives a slot a node, and whoever had it another.
fn give(
    slot: usize,
    fits: &[Vec<usize>],
    owner: &mut Vec<Option<usize>>,
    tried: &mut Vec<bool>,
) -> bool {
    for &node in &fits[slot] {
        if std::mem::replace(&mut tried[node], true) {
            continue;
        }
        if owner[node].is_none_or(|other| give(other, fits, owner, tried)) {
            owner[node] = Some(slot);
            return true;
        }
    }
    false
}

fn fits(wanted: &NewNodeLine<'_>, planned: &PlannedNode, outcome: &CaseResult) -> bool {
    let on = pods_on(planned, outcome);
    let pods = match &wanted.pods {
        None => true,
        Some(PodsWanted::Number(number)) => on.len() == *number,
        Some(PodsWanted::These(patterns)) => {
            let known = |key: &&ObjectKey| patterns.iter().any(|pattern| matches(pattern, key));
            on.iter().all(known)
                && (wanted.count > 1
                    || patterns
                        .iter()
                        .all(|pattern| on.iter().any(|key| matches(pattern, key))))
        }
    };
    pods && wanted.pool.is_none_or(|pool| pool == planned.pool)
        && wanted.kind.is_none_or(|kind| kind == planned.kind)
        && wanted
            .hosts
            .as_ref()
            .is_none_or(|hosts| hosts.iter().any(|host| *host == *planned.host))
        && wanted
            .storages
            .as_ref()
            .is_none_or(|storages| *storages == chosen(planned, outcome))
}

/// The storages that were chosen for the disks of a planned node's machine, where the case lists several.
fn chosen(planned: &PlannedNode, outcome: &CaseResult) -> Vec<String> {
    let machine = outcome.after.snapshot.machines.get(&planned.name);
    let chosen = machine.map(|machine| &machine.storages);
    let of = |chosen: &ChosenStorages| {
        let all = chosen.own.iter().chain(chosen.further.values());
        all.map(ToString::to_string).collect()
    };
    chosen.map(of).unwrap_or_default()
}

/// Pods that stand on a planned node, those of DaemonSets apart.
fn pods_on<'o>(planned: &PlannedNode, outcome: &'o CaseResult) -> Vec<&'o ObjectKey> {
    outcome
        .after
        .snapshot
        .cluster
        .pods
        .iter()
        .filter(|(_, pod)| pod.node.as_ref() == Some(&planned.name))
        .filter(|(_, pod)| {
            pod.shape
                .owner
                .as_ref()
                .is_none_or(|o| &*o.kind != "DaemonSet")
        })
        .map(|(key, _)| key)
        .collect()
}

fn describe(wanted: &NewNodeLine<'_>) -> String {
    let hosts = wanted.hosts.as_ref();
    let hosts = hosts.map_or_else(String::new, |hosts| format!(" on {}", hosts.join(" or ")));
    let storages = wanted.storages.as_ref();
    let storages =
        storages.map_or_else(String::new, |of| format!(" with disks on {}", of.join("+")));
    let pods = match &wanted.pods {
        None => String::new(),
        Some(PodsWanted::Number(number)) => format!(" with {number} pods each"),
        Some(PodsWanted::These(pods)) => format!(" with {}", pods.join("+")),
    };
    format!(
        "{} × {}/{}{hosts}{storages}{pods}",
        wanted.count,
        wanted.pool.unwrap_or("any"),
        wanted.kind.unwrap_or("any")
    )
}

/// What was planned, alike ones together.
pub(super) fn described(outcome: &CaseResult) -> String {
    let mut groups: Vec<(String, usize)> = Vec::new();
    for planned in &outcome.planned {
        let pods = pods_on(planned, outcome);
        let storages = chosen(planned, outcome);
        let storages = if storages.is_empty() {
            String::new()
        } else {
            format!(", disks on {},", storages.join("+"))
        };
        let text = format!(
            "{}/{} on {}{storages} with {}",
            planned.pool,
            planned.kind,
            planned.host,
            match pods.as_slice() {
                [] => "no pods".to_owned(),
                few if few.len() <= 4 => {
                    let names: Vec<&str> = few.iter().map(|key| &*key.name).collect();
                    names.join("+")
                }
                many => format!("{} pods", many.len()),
            }
        );
        match groups.iter_mut().find(|(known, _)| *known == text) {
            Some((_, number)) => *number += 1,
            None => groups.push((text, 1)),
        }
    }
    let list = shown(
        groups
            .iter()
            .map(|(text, number)| format!("{number} × {text}")),
    );
    match outcome.planned.len() {
        0 => "none".to_owned(),
        number => format!("{number}: {list}"),
    }
}

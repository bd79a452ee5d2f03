//! The rows of holds, pods and nodes, each with what it says why. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use super::causes::{SharedCauses, WhyCell};
use crate::controller::wording::{
    kept_until, node_verdict, pod_verdict, reasons_by_place, when, without_machine,
};
use crate::model::cluster::ObjectKey;
use crate::model::report::{Hold, NodeVerdict, PodVerdict};
use crate::model::time::Time;

/// Pods of the same lot that have a line each beside the first; `-o wide` gives every pod one.
const ALIKE: usize = 3;

/// A row of a table of which one cell says why.
#[derive(Debug)]
pub(super) struct WhyRow {
    /// The cells before that one.
    pub(super) first: Vec<String>,
    pub(super) why: WhyCell,
    /// The cells behind it.
    pub(super) last: Vec<String>,
}

impl WhyRow {
    /// The row as it is shown.
    pub(super) fn write(self, causes: &mut SharedCauses) -> Vec<String> {
        let mut row = self.first;
        row.push(causes.write(&self.why));
        row.extend(self.last);
        row
    }
}

/// A line for each hold.
pub(super) fn held_rows(holds: &[Hold], now: Time) -> Vec<WhyRow> {
    let rows = holds.iter().map(|hold| WhyRow {
        first: vec![hold.scope.to_string()],
        why: WhyCell::one(&hold.why.to_string(), ""),
        last: vec![hold.until.map(|until| when(until, now)).unwrap_or_default()],
    });
    rows.collect()
}

/// A line for each pod: those that have no place come first, those that are left alone last.
pub(super) fn pods(pods: &BTreeMap<ObjectKey, PodVerdict>, now: Time) -> Vec<WhyRow> {
    let mut sorted: Vec<_> = pods.iter().collect();
    sorted.sort_by_key(|(_, verdict)| match verdict {
        PodVerdict::NoCompatiblePool { .. } => 0,
        PodVerdict::Held { .. } => 1,
        PodVerdict::Unread { .. } => 2,
        PodVerdict::Batched { .. } => 3,
        PodVerdict::Triggers { .. } => 4,
        PodVerdict::FitsMachine { .. } | PodVerdict::FitsNode { .. } => 5,
        PodVerdict::Ignored { .. } => 6,
    });
    sorted
        .into_iter()
        .map(|(pod, verdict)| {
            let (what, why) = pod_verdict(verdict, now);
            let by_place = reasons_by_place(verdict);
            let why = if by_place.is_empty() {
                WhyCell::one(&why, "")
            } else {
                WhyCell::of_each(by_place)
            };
            WhyRow {
                first: vec![pod.to_string(), what],
                why,
                last: Vec::new(),
            }
        })
        .collect()
}

/// Rows of pods with what is the same of many said once: the first pod stands for more than [`ALIKE`] others.
pub(super) fn once(rows: Vec<WhyRow>) -> Vec<WhyRow> {
    let lot = |row: &WhyRow| (row.first.get(1).cloned(), row.why.clone());
    let mut alike: BTreeMap<(Option<String>, WhyCell), usize> = BTreeMap::new();
    for row in &rows {
        *alike.entry(lot(row)).or_default() += 1;
    }
    let mut said = BTreeSet::new();
    let mut out = Vec::new();
    for mut row in rows {
        let lot = lot(&row);
        let others = alike.get(&lot).map_or(0, |count| count - 1);
        if others > ALIKE {
            if !said.insert(lot) {
                continue;
            }
            if let Some(pod) = row.first.first_mut() {
                let _ = write!(pod, " and {others} more");
            }
        }
        out.push(row);
    }
    out
}

/// A line for each node.
pub(super) fn nodes(nodes: &BTreeMap<Arc<str>, NodeVerdict>, now: Time) -> Vec<WhyRow> {
    let rows = nodes.iter().map(|(name, verdict)| {
        let (what, all) = node_verdict(verdict, now);
        let why = match (without_machine(verdict), verdict) {
            (Some((first, by_place)), _) => WhyCell::one(&first, "").and(by_place),
            (
                None,
                NodeVerdict::Kept {
                    why, pod, until, ..
                },
            ) => WhyCell::one(
                &why.to_string(),
                &kept_until(why, pod.as_ref(), *until, now),
            ),
            (None, _) => WhyCell::one(&all, ""),
        };
        WhyRow {
            first: vec![name.to_string(), what],
            why,
            last: Vec::new(),
        }
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_same_of_many_pods_is_said_once() {
        let row = |pod: usize, why: &str| WhyRow {
            first: vec![format!("a/{pod}"), "waits".to_owned()],
            why: WhyCell::one(why, ""),
            last: Vec::new(),
        };
        let mut rows: Vec<WhyRow> = (0..6).map(|pod| row(pod, "cpu")).collect();
        rows.insert(3, row(9, "memory"));
        rows.extend((20..24).map(|pod| row(pod, "disk")));
        let shown = once(rows);
        let names: Vec<&str> = shown.iter().map(|row| &*row.first[0]).collect();
        let few = ["a/20", "a/21", "a/22", "a/23"];
        assert_eq!(names, [&["a/0 and 5 more", "a/9"][..], &few].concat());
    }
}

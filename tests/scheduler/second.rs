//! The second opinion: the filters of the simulator's scheduler on what the real API server shows, against kube-scheduler's
//! own words.

use std::collections::BTreeMap;

use pve_autoscaler::sim::kube::{Opinion, opinion};
use serde_json::Value;

use super::extender::REFUSED;
use super::{Theirs, judge};

/// What was compared.
#[derive(Debug, Default)]
pub(crate) struct SecondTally {
    pairs: usize,
    fits: usize,
    /// Reasons of kube-scheduler's that were said in the same words, without names of claims and volumes.
    words: BTreeMap<String, usize>,
    /// Pods of which a documented choice says why the answers differ.
    choices: BTreeMap<&'static str, usize>,
}

impl SecondTally {
    /// How the filters' answer differs from kube-scheduler's: a line for each node, and one for its words.
    pub(crate) fn compare(
        &mut self,
        objects: &[Value],
        pod: &Value,
        theirs: &Theirs,
    ) -> Vec<String> {
        let ours = match opinion(objects, pod, REFUSED) {
            Ok(ours) => ours,
            Err(refused) => return vec![format!("the simulated API server says: {refused}")],
        };
        let fits = |name: &String| ours.nodes.get(name).is_some_and(Vec::is_empty);
        let mut names: Vec<&String> = ours.nodes.keys().chain(&theirs.nodes).collect();
        names.sort();
        names.dedup();
        let mut differ: Vec<String> = names
            .into_iter()
            .filter(|name| fits(name) != theirs.nodes.contains(*name))
            .map(|name| {
                let scheduler = theirs.nodes.contains(name);
                let reasons = ours.nodes.get(name);
                format!("{name}: kube-scheduler says {scheduler}, the filters {reasons:?}")
            })
            .collect();
        if ours.said != theirs.said {
            differ.push(format!("the filters say: {}", ours.said));
        }
        if differ.is_empty() {
            self.add(&ours);
        } else if let Some(choice) = judge::choice_of_filters(pod) {
            *self.choices.entry(choice.name).or_default() += 1;
            return Vec::new();
        }
        differ
    }

    fn add(&mut self, ours: &Opinion) {
        for reasons in ours.nodes.values() {
            self.pairs += 1;
            self.fits += usize::from(reasons.is_empty());
            for reason in reasons {
                let named = reason.split(' ').filter(|word| !word.starts_with('"'));
                let kind: Vec<&str> = named.collect();
                *self.words.entry(kind.join(" ")).or_default() += 1;
            }
        }
    }

    /// What was compared, in lines.
    pub(crate) fn report(&self) -> Vec<String> {
        let (pairs, fits) = (self.pairs, self.fits);
        let mut lines = vec![format!(
            "the filters: {pairs} pairs of pod and node, {fits} fit, reasons in kube-scheduler's words:"
        )];
        let words = self.words.iter();
        lines.extend(words.map(|(words, count)| format!("  said: {count:6} {words}")));
        let choices = self.choices.iter();
        lines.extend(choices.map(|(name, count)| format!("  choice: {count:4} pods: {name}")));
        lines
    }
}

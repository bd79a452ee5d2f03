//! Why no machine is made somewhere: refusals that many pods share.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::index::{CatalogOfferIndex, ChoiceIndex, PoolIndex, RowIndex};
use crate::simulation::offer::ChoiceList;
use crate::simulation::pack::RefusalsByChoice;
use model::reasons::{Reasons, Refused, VolumeFilterFailure};

/// Types of a pool that share a reason and are still named one by one, at most; more are named together, as `pool/*`.
const NAMED: usize = 8;

/// Why no machine is made somewhere.
#[derive(Clone, Debug)]
pub(super) enum OfferRefusal {
    /// A limit, a hold, a host that is full: that may change.
    Held(Refused),
    /// Other pods forbid it, on this offer.
    FilterFailure(CatalogOfferIndex),
    /// The volumes that its claims could have are given to other pods.
    Volume(VolumeFilterFailure),
}

/// What was said of the choices that were not taken: pool, refusal, choices.
#[derive(Debug, Default)]
pub(super) struct RefusalLog {
    said: Vec<(PoolIndex, Arc<Refused>, Vec<ChoiceIndex>)>,
}

/// Reasons put together before, by the index of a group's row and what was said since.
#[derive(Debug, Default)]
pub(super) struct SharedRefusals {
    known: BTreeMap<GroupRefusals, Reasons>,
}

/// A group's row, and what was said of choices since.
type GroupRefusals = (RowIndex, Vec<(Arc<str>, Arc<Refused>)>);

impl RefusalLog {
    /// Notes why a choice was not taken.
    pub(super) fn say(
        &mut self,
        choices: &ChoiceList<'_>,
        choice: ChoiceIndex,
        refused: &Arc<Refused>,
    ) {
        let pool = choices[choice].pool_index;
        let found = self.said.iter_mut().rev();
        let mut found = found.filter(|(of, said, _)| *of == pool && said == refused);
        if let Some((_, _, of)) = found.next() {
            of.push(choice);
        } else {
            self.said.push((pool, refused.clone(), vec![choice]));
        }
    }

    /// Notes the same of several choices.
    pub(super) fn say_all(
        &mut self,
        choices: &ChoiceList<'_>,
        of: impl Iterator<Item = ChoiceIndex>,
        refused: &Arc<Refused>,
    ) {
        let mut of = of.peekable();
        while let Some(first) = of.next() {
            let pool = choices[first].pool_index;
            let mut all = vec![first];
            while let Some(more) = of.next_if(|choice| choices[*choice].pool_index == pool) {
                all.push(more);
            }
            self.said.push((pool, refused.clone(), all));
        }
    }

    /// By `pool/type`, or `pool/*` where many types of a pool share a reason.
    fn lines(&self, choices: &ChoiceList<'_>) -> Vec<(Arc<str>, Arc<Refused>)> {
        let mut lines = Vec::new();
        for (_, refused, of) in &self.said {
            if of.len() > NAMED {
                let pool = choices[of[0]].pool;
                lines.push((format!("{pool}/*").into(), refused.clone()));
            } else {
                let labels = of.iter().map(|choice| choices[*choice].label.clone());
                lines.extend(labels.map(|label| (label, refused.clone())));
            }
        }
        lines
    }
}

impl SharedRefusals {
    /// What was said, with what the row `row` says of choices that cannot hold the pod at all.
    pub(super) fn reasons(
        &mut self,
        choices: &ChoiceList<'_>,
        row: RowIndex,
        filter_failures: &Arc<RefusalsByChoice>,
        words: &RefusalLog,
    ) -> Reasons {
        if words.said.is_empty() {
            return filter_failures.clone();
        }
        let key = (row, words.lines(choices));
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let mut why = (**filter_failures).clone();
        for (label, refused) in &key.1 {
            why.entry(label.clone())
                .and_modify(|said| said.more.push(refused.clone()))
                .or_insert_with(|| refused.clone().into());
        }
        let why = Arc::new(why);
        self.known.insert(key, why.clone());
        why
    }
}

//! Which offers an empty node of would hold a pod, and why the others do not: asked once for all
//! groups that ask the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::brain::classes::ChoosyId;
use crate::brain::demand::Group;
use crate::brain::fit::volumes::Need;
use crate::brain::offer::Choice;
use crate::brain::pack::Why;
use crate::brain::world::World;
use crate::model::resources::Resources;
use crate::model::scheduling::HostPort;

/// What decides whether an empty node holds a pod.
type Question<'a> = (ChoosyId, &'a Resources, &'a [HostPort], Option<Arc<Need>>);

/// The answers for groups that ask the same.
#[derive(Debug)]
pub(super) struct Row {
    /// By offer, over all choices ([`Choice::first`]).
    pub(super) fits: Vec<bool>,
    /// By choice: whether any of its offers holds the pod.
    pub(super) any: Vec<bool>,
    /// Why a choice does not.
    pub(super) why: Arc<Why>,
    /// Every choice could be judged.
    pub(super) known: bool,
}

/// All rows.
#[derive(Debug, Default)]
pub(super) struct Rows<'a> {
    rows: Vec<Row>,
    asked: BTreeMap<Question<'a>, usize>,
}

impl Row {
    /// Whether anything holds the pod.
    pub(super) fn hopeful(&self) -> bool {
        self.any.contains(&true)
    }
}

impl<'a> Rows<'a> {
    /// A row by its index.
    pub(super) fn get(&self, row: usize) -> &Row {
        &self.rows[row]
    }

    /// The row of a group.
    pub(super) fn of(
        &mut self,
        world: &World<'a>,
        choices: &[Choice<'a>],
        group: &Group<'a>,
    ) -> usize {
        let shape = world.shapes[group.shape].shape;
        let question = (
            world.wish(group.shape),
            &shape.requests,
            &shape.host_ports[..],
            group.need.clone(),
        );
        let next = self.rows.len();
        let row = *self.asked.entry(question).or_insert(next);
        if row == next {
            self.rows.push(examine(world, choices, group));
        }
        row
    }
}

fn examine(world: &World<'_>, choices: &[Choice<'_>], group: &Group<'_>) -> Row {
    let shape = world.shapes[group.shape].shape;
    let (mut fits, mut any) = (Vec::new(), Vec::new());
    let (mut why, mut known) = (Why::new(), true);
    for choice in choices {
        let mut misfit = None;
        let before = fits.len();
        for offer in &choice.offers {
            let found = choice.misfit(offer, shape).or_else(|| {
                let need = group.need.as_deref()?;
                choice.volume_misfit(offer, need)
            });
            fits.push(found.is_none());
            misfit = misfit.or(found);
        }
        let row = &fits[before..];
        any.push(row.contains(&true));
        if row.is_empty() {
            known = false;
            let region = &choice.policy.region;
            let text = format!("the region {region} shows no host that the pool may use");
            why.insert(choice.label.clone(), text);
        } else if !row.contains(&true)
            && let Some(misfit) = misfit
        {
            why.insert(choice.label.clone(), misfit.to_string());
        }
    }
    if choices.is_empty() {
        why.insert("*".into(), "no pool is configured".to_owned());
    }
    Row {
        fits,
        any,
        why: Arc::new(why),
        known,
    }
}

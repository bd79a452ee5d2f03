//! Which offers an empty node of would hold a pod, and why the others do not: asked once for all
//! groups that ask the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::constraints::fit::volumes::VolumeNeed;
use crate::constraints::free_volumes::AssumedBindings;
use crate::constraints::shape::NamespacedShape;
use crate::index::{
    CatalogOfferIndex, ChoiceIndex, IndexVec, NewDaemonIndex, RequirementsId, RowIndex,
};
use crate::simulation::demand::Group;
use crate::simulation::offer::{ChoiceList, Daemon, Offer};
use crate::simulation::pack::RefusalsByChoice;
use crate::simulation::world::SimCluster;
use model::reasons::{FilterFailure, Refused};
use model::resources::Resources;
use model::scheduling::HostPort;

/// What decides whether an empty node holds a pod; last, which DaemonSets it cannot be beside.
type FitQuestion<'a> = (
    RequirementsId,
    &'a Resources,
    &'a [HostPort],
    Option<Arc<VolumeNeed>>,
    Vec<NewDaemonIndex>,
);

/// The answers for groups that ask the same.
#[derive(Debug)]
pub(super) struct FitRow {
    /// By offer, over all choices.
    pub(super) fits: IndexVec<CatalogOfferIndex, bool>,
    /// By choice: whether any of its offers holds the pod.
    pub(super) any: IndexVec<ChoiceIndex, bool>,
    /// Why a choice does not.
    pub(super) why: Arc<RefusalsByChoice>,
    /// Every choice could be judged.
    pub(super) known: bool,
}

/// All rows.
#[derive(Debug, Default)]
pub(super) struct FitMatrix<'a> {
    all: IndexVec<RowIndex, FitRow>,
    asked: BTreeMap<FitQuestion<'a>, RowIndex>,
    /// The DaemonSets of all offers, once they were asked for.
    daemons: Option<IndexVec<NewDaemonIndex, NamespacedShape<'a>>>,
}

impl FitRow {
    /// Whether anything holds the pod.
    pub(super) fn hopeful(&self) -> bool {
        self.any.contains(&true)
    }
}

impl<'a> FitMatrix<'a> {
    /// A row by its index.
    pub(super) fn get(&self, row: RowIndex) -> &FitRow {
        &self.all[row]
    }

    /// The row of a group.
    pub(super) fn of(
        &mut self,
        world: &SimCluster<'a>,
        choices: &ChoiceList<'a>,
        group: &Group<'a>,
    ) -> RowIndex {
        let pod = world.shapes[group.shape];
        let shape = pod.shape;
        let daemons = self.daemons.get_or_insert_with(|| daemons(choices));
        let foes: Vec<NewDaemonIndex> = daemons
            .indexes()
            .filter(|index| {
                world
                    .inter_pod
                    .at_odds(pod, daemons[*index], |_| true)
                    .is_some()
            })
            .collect();
        let shapes: Vec<NamespacedShape<'a>> = foes.iter().map(|index| daemons[*index]).collect();
        let question = (
            world.requirements(group.shape),
            &shape.requests,
            &shape.host_ports[..],
            group.need.clone(),
            foes,
        );
        let next = self.all.next_index();
        let row = *self.asked.entry(question).or_insert(next);
        if row == next {
            self.all.push(examine(world, choices, group, &shapes));
        }
        row
    }
}

/// The DaemonSets that run on new nodes, each once.
fn daemons<'a>(choices: &ChoiceList<'a>) -> IndexVec<NewDaemonIndex, NamespacedShape<'a>> {
    let mut known = BTreeSet::new();
    let offers = choices.iter().flat_map(|choice| &choice.offers);
    let residents = offers.flat_map(|offer| &offer.residents);
    let new = residents.filter(|daemon| known.insert(Arc::as_ptr(daemon.shape)));
    new.map(Daemon::pod).collect()
}

/// Why a pod cannot be beside the DaemonSets of an offer: machines made for it would stay empty.
fn beside(
    world: &SimCluster<'_>,
    offer: &Offer<'_>,
    pod: NamespacedShape<'_>,
    foes: &[NamespacedShape<'_>],
) -> Option<FilterFailure> {
    foes.iter().find_map(|foe| {
        let mut residents = offer.residents.iter();
        residents.find(|daemon| std::ptr::eq(&raw const **daemon.shape, foe.shape))?;
        let has = |key: &str| offer.labels.contains_key(key);
        let key = world.inter_pod.at_odds(pod, *foe, has)?;
        Some(FilterFailure::DaemonSetAntiAffinity {
            key: key.clone(),
            namespace: foe.namespace.into(),
        })
    })
}

fn examine(
    world: &SimCluster<'_>,
    choices: &ChoiceList<'_>,
    group: &Group<'_>,
    foes: &[NamespacedShape<'_>],
) -> FitRow {
    let pod = world.shapes[group.shape];
    let shape = pod.shape;
    let (mut fits, mut any) = (IndexVec::default(), IndexVec::default());
    let (mut why, mut known) = (RefusalsByChoice::new(), true);
    let untouched = AssumedBindings::default();
    for choice in choices {
        let mut filter_failure = None;
        let mut any_fits = false;
        for offer in &choice.offers {
            let found = choice.filter_failure(offer, shape).or_else(|| {
                let need = group.need.as_deref()?;
                choice.volume_filter_failure(offer, need, &world.free_volumes, &untouched)
            });
            let found = found.or_else(|| beside(world, offer, pod, foes));
            any_fits |= found.is_none();
            fits.push(found.is_none());
            filter_failure = filter_failure.or(found);
        }
        any.push(any_fits);
        if choice.offers.is_empty() {
            known = false;
            why.insert(choice.label.clone(), choice.nowhere.clone().into());
        } else if !any_fits && let Some(filter_failure) = filter_failure {
            let filter_failure = Box::new(filter_failure);
            why.insert(
                choice.label.clone(),
                Refused::FilterFailure { filter_failure }.into(),
            );
        }
    }
    if choices.is_empty() {
        why.insert("*".into(), Refused::NoPool.into());
    }
    FitRow {
        fits,
        any,
        why: Arc::new(why),
        known,
    }
}

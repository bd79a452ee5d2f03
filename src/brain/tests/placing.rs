//! Every placement holds before a second opinion, in generated worlds.

use proptest::prelude::*;

use super::lab::Lab;
use super::naive::{Naive, said, silent};
use super::wide::story::tell;
use super::wide::{Wide, wide};
use crate::decide;
use filters::Site;
use model::cluster::ObjectKey;
use model::decision::Decision;
use model::report::PodVerdict;
use model::time::Span;

/// The world some time after it was looked at first, so that timers have run. Nobody evacuates a host: the second opinion knows
/// where pods are, and not which of them are taken for gone.
fn aged(world: &Wide) -> Lab {
    let mut lab = world.build();
    for region in lab.snapshot.regions.values_mut() {
        for host in region.hosts.values_mut() {
            host.evacuated = None;
        }
    }
    if world.minutes > 10 {
        lab.memory = decide(&lab.snapshot, &lab.policy, &lab.memory, lab.now).memory;
        lab = lab.after(Span::minutes(1));
    }
    lab
}

/// Pods of which the report does not say where they are thought to go, and that others may heed.
fn heard_of_all(lab: &Lab, decision: &Decision) -> bool {
    let mut pods = lab.snapshot.cluster.pods.keys();
    !pods.any(|key| silent(lab, key, decision))
}

fn depends(lab: &Lab, key: &ObjectKey) -> bool {
    let shape = &lab.snapshot.cluster.pods[key].shape;
    let defaults = &lab.policy.scale_up.default_spread;
    !shape.pod_affinity.is_empty()
        || shape.spread.iter().any(|constraint| constraint.hard)
        || !defaults.is_empty() && shape.spread.is_empty()
}

/// Every pod that is said to go somewhere passes every filter there.
fn placed(lab: &Lab) -> Result<(), String> {
    let decision = lab.try_decide()?;
    let mut said = said(lab, &decision);
    let all = heard_of_all(lab, &decision);
    said.retain(|(key, _)| all || !depends(lab, key));
    let naive = Naive::of(lab, &decision);
    let mut verdict = naive.clone().lay_all(&said);
    if !all && verdict.is_err() {
        // A pod that the report is silent about may have preempted whoever is in the way.
        verdict = naive.without_expendable().lay_all(&said);
    }
    verdict.map_err(|(key, why)| format!("{key} {why}{}", tell(lab, &decision)))
}

/// Pods that are said to fit nowhere do not fit: on no node there is, and those without a compatible pool on no
/// machine that could be made.
fn unplaced(lab: &Lab) -> Result<(), String> {
    let decision = lab.try_decide()?;
    if !heard_of_all(lab, &decision) {
        return Ok(());
    }
    let mut naive = Naive::of(lab, &decision);
    if naive.lay_all(&said(lab, &decision)).is_err() {
        return Ok(());
    }
    for (key, verdict) in &decision.report.pods {
        let incompatible = matches!(verdict, PodVerdict::NoCompatiblePool { .. });
        if !incompatible && !matches!(verdict, PodVerdict::Held { .. }) || depends(lab, key) {
            continue;
        }
        for at in 0..naive.world.nodes.len() {
            let fits = naive.fits(key, at).is_ok() || naive.preempting(key, at).is_some();
            if naive.world.nodes[at].site != Site::Planned && fits {
                let name = &naive.world.nodes[at].name;
                return Err(format!("{key} fits on {name}{}", tell(lab, &decision)));
            }
        }
        if let Some(offer) = naive.some_offer(key).filter(|_| incompatible) {
            return Err(format!("{key} fits on {offer}{}", tell(lab, &decision)));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, ..ProptestConfig::with_cases(192) })]

    #[test]
    fn what_is_placed_passes_every_filter(world in wide(5, 12)) {
        let verdict = placed(&aged(&world));
        prop_assert!(verdict.is_ok(), "{}", verdict.unwrap_err());
    }

    #[test]
    fn what_fits_is_placed(world in wide(5, 12)) {
        let verdict = unplaced(&aged(&world));
        prop_assert!(verdict.is_ok(), "{}", verdict.unwrap_err());
    }
}

//! Prices of a replacement, compared again until its first node goes.

use std::sync::Arc;

use crate::check::{CheckRule, check};
use crate::tests::lab::{Lab, kept, made, removed};
use model::action::Reason;
use model::cluster::ObjectKey;
use model::decision::Decision;
use model::disruption::{ConsolidationPolicy, Saving};
use model::memory::Memory;
use model::time::Span;

use super::{LOOK, consolidated, dear, how, land, maker};

/// The machine that takes the place of nodes works; with its name.
fn replaced(mut lab: Lab) -> (Lab, Arc<str>) {
    lab.turn();
    let mut lab = lab.after(LOOK);
    let machine = maker(&lab.turn());
    lab.settle();
    (lab.after(Span::minutes(2)), machine)
}

/// Two nodes at 200, which one at 300 replaces.
fn pair() -> Lab {
    consolidated()
        .ours("n1", "c", "m")
        .ours("n2", "c", "m")
        .bound("a", "n1", 3000, 1)
        .bound("b", "n2", 3000, 1)
}

/// The replacement came to nothing: its nodes stay, the machine goes.
fn given_up(mut lab: Lab, machine: &str) {
    let mut gone = Vec::new();
    for _ in 0..30 {
        let decision = lab.turn();
        assert_eq!(made(&decision), Vec::<String>::new(), "not tried again");
        gone.extend(removed(&decision));
        lab.settle();
        lab = lab.after(Span::minutes(1));
    }
    assert_eq!(gone, [machine.to_owned()]);
    assert!(lab.memory.replacements.is_empty());
    assert!(lab.memory.unreplaceable.contains_key("n1"));
}

#[test]
fn nothing_goes_for_a_machine_that_became_too_dear() {
    let (lab, machine) = replaced(dear());
    let price = |price| lab.clone().edit_kind("s", |kind| kind.price = Some(price));
    for dear in [300, 301] {
        let lab = price(dear);
        assert_eq!(removed(&lab.decide()), Vec::<String>::new(), "{dear}");
        given_up(lab, &machine);
    }
    let decision = price(299).decide();
    assert_eq!(removed(&decision), ["n1"]);
    assert!(matches!(
        decision.plan[0].reason,
        Reason::Replaced { saving: 1, .. }
    ));
    // What the pool wants by now counts.
    let saving = |permille| {
        how(lab.clone(), |how| {
            how.min_saving = Saving { permille, price: 0 };
        })
    };
    assert_eq!(removed(&saving(666).decide()), ["n1"]);
    given_up(saving(667), &machine);
    let never = how(lab.clone(), |how| how.policy = ConsolidationPolicy::Never);
    assert_eq!(removed(&never.decide()), Vec::<String>::new());
}

#[test]
fn what_was_planned_at_other_prices_is_refused() {
    let (lab, _) = replaced(dear());
    let plan = lab.decide().plan;
    let verdict = |lab: &Lab| check(&plan[0], &lab.snapshot, &lab.policy, lab.now);
    assert_eq!(verdict(&lab), Ok(()));
    let lab = lab.edit_kind("s", |kind| kind.price = Some(101));
    assert_eq!(
        verdict(&lab).map_err(|refusal| refusal.rule),
        Err(CheckRule::Saving)
    );
    assert_eq!(removed(&lab.decide()), ["n1"], "planned anew it goes");
}

#[test]
fn one_that_vanished_saves_nothing() {
    let (lab, machine) = replaced(pair());
    let lab = lab.with(|lab| {
        lab.snapshot.cluster.nodes.remove("n2");
        lab.snapshot.machines.remove("n2");
        let pods = &mut lab.snapshot.cluster.pods;
        pods.remove(&ObjectKey::new("default", "b"));
    });
    given_up(lab, &machine);
}

/// The first of two nodes went; with the machine.
fn halfway() -> (Lab, Arc<str>) {
    let (mut lab, machine) = replaced(pair());
    let decision = lab.turn();
    assert_eq!(removed(&decision), ["n1"]);
    land(&mut lab, &decision);
    lab.settle();
    (lab, machine)
}

fn goes_on(decision: &Decision) {
    assert_eq!(removed(decision), ["n2"]);
    match &decision.plan[0].reason {
        Reason::Replaced {
            saving,
            others,
            gone,
            ..
        } => assert_eq!(
            (*saving, &others[..], &gone[..]),
            (200, &[][..], &["n1".into()][..])
        ),
        other => panic!("{other:?}"),
    }
}

#[test]
fn once_one_went_the_others_follow() {
    let (lab, _) = halfway();
    goes_on(&lab.decide());
    let dearer = lab
        .clone()
        .edit_kind("l", |kind| kind.price = Some(1_000_000));
    goes_on(&dearer.decide());
    let free = lab.clone().edit_kind("m", |kind| kind.price = Some(0));
    assert_eq!(removed(&free.decide()), Vec::<String>::new());
    let never = how(lab, |how| how.policy = ConsolidationPolicy::Never);
    assert_eq!(removed(&never.decide()), Vec::<String>::new());
}

#[test]
fn a_node_that_did_not_go_after_all_counts_again() {
    let (mut lab, machine) = replaced(pair());
    // Planned, and not done.
    let decision = lab.decide();
    assert_eq!(removed(&decision), ["n1"]);
    lab.memory = decision.memory;
    let lab = lab
        .after(Span::minutes(1))
        .edit_kind("l", |kind| kind.price = Some(400));
    given_up(lab, &machine);
}

#[test]
fn a_memory_of_an_older_program_delays() {
    let (mut lab, _) = halfway();
    let text = serde_json::to_string(&lab.memory).expect("a memory");
    let older = text.replace(r#""gone":["n1"],"#, "");
    assert_ne!(text, older);
    lab.memory = serde_json::from_str::<Memory>(&older).expect("an older memory");
    let decision = lab.turn();
    assert_eq!(removed(&decision), Vec::<String>::new());
    assert_ne!(kept(&decision, "n2"), "replaced");
}

//! The example of the room's page, number by number.

use super::*;
use crate::tests::lab::{Lab, lab};
use crate::tests::pages::example::{Example, grouped};
use model::scheduling::{LabelSelector, Operator, Requirement};

/// A term that takes in every pod of all namespaces and is like no other.
fn term(pod: i64, number: i64) -> PodTerm {
    let requirement = Requirement {
        key: format!("x-{pod}-{number}").into(),
        operator: Operator::DoesNotExist,
        values: Vec::new(),
    };
    PodTerm {
        selector: Some(LabelSelector {
            expressions: vec![requirement],
            ..LabelSelector::default()
        }),
        topology_key: "kubernetes.io/hostname".into(),
        namespace_selector: Some(LabelSelector::default()),
        ..PodTerm::default()
    }
}

/// A pod of a namespace with so many terms.
fn pod(lab: Lab, namespace: &str, index: i64, terms: i64) -> Lab {
    lab.pod("web", 100, 10).with(|lab| {
        let pods = &mut lab.snapshot.cluster.pods;
        let mut pod = pods
            .remove(&ObjectKey::new("default", "web"))
            .expect("made");
        let shape = Arc::make_mut(&mut pod.shape);
        shape.pod_anti_affinity = (0..terms).map(|number| term(index, number)).collect();
        pods.insert(ObjectKey::new(namespace, format!("web-{index}")), pod);
    })
}

/// The world of the example: how many pods and terms its tenant has, and everything.
fn world(page: &mut Example) -> (i64, i64, Lab) {
    let [pods, terms] = page.numbers(": {} pods with {} anti-affinity terms each");
    let [nodes, max, hosts] =
        page.numbers("The cluster has {} nodes, no machine of ours, one pool of one type with max {}, and {} hosts.");
    page.says(&format!("The namespace evil has {pods} pending pods."));
    page.says(&format!("Each has {terms} required anti-affinity terms"));
    let max = u32::try_from(max).expect("few");
    let mut lab = lab()
        .kind("one", 4, 4096)
        .pool("p", &["one"])
        .edit_pool("p", |pool| pool.max = max);
    let there = lab.snapshot.regions["home"].hosts.len();
    assert_eq!(i64::try_from(there), Ok(hosts));
    for node in 0..nodes {
        lab = lab.node(&format!("n{node}"), 1000, 1024);
    }
    for index in 0..pods {
        lab = pod(lab, "evil", index, terms);
    }
    (pods, terms, pod(lab, "shop", 0, 0))
}

#[test]
fn the_example_of_budget() {
    let mut page = Example::of("budget");
    let (pods, terms, lab) = world(&mut page);
    let (snapshot, policy) = (&lab.snapshot, &lab.policy);
    let (nodes, hosts) = (
        snapshot.cluster.nodes.len(),
        snapshot.regions["home"].hosts.len(),
    );
    let places = places(snapshot, policy);
    let waiting = snapshot.cluster.pods.len();
    page.says(&format!(
        "places = {nodes} nodes + {hosts} offers (1 type × {hosts} hosts) + {waiting} new machines at most ({waiting} pods wait, max is {}) \
         = {places}.",
        policy.pools["p"].max
    ));
    let mut alike = Alike::of(snapshot, iter::empty());
    let kinds = kinds(snapshot, &mut alike);
    let of = |namespace: &str| {
        let mut of = kinds.iter().filter(|kind| kind.of.namespace == namespace);
        of.next().expect("it has pods")
    };
    let (evil, shop) = (of("evil"), of("shop"));
    let a_term = &evil.of.shape.pod_anti_affinity[0];
    page.says(&format!(
        "kinds finds {}. A term has {} parts, so Weight::of gives a pod of evil {} parts (its one label too), {} of them matched, and {} terms.",
        kinds.len(),
        a_term.parts(),
        evil.weight.parts,
        evil.weight.matched,
        evil.weight.terms
    ));
    assert!(!small(snapshot, &kinds, places, DECISION_STEPS));
    let all: u64 = kinds.iter().map(|kind| kind.weight.anti_affinity).sum();
    let number = count(kinds.len());
    page.says(&format!(
        "{} terms × {number} kinds × {places} = {} steps: not small.",
        grouped(all),
        grouped(all * number * places)
    ));
    let parts: u64 = kinds
        .iter()
        .map(|kind| kind.weight.parts + KIND_PARTS)
        .sum();
    page.says(&format!(
        "{pods} × ({} + {KIND_PARTS}) + {} = {} of {}. All kinds are in.",
        evil.weight.parts,
        shop.weight.parts + KIND_PARTS,
        grouped(parts),
        grouped(MAX_ALL_PARTS)
    ));
    let size = WorldSize::of(kinds.iter(), places);
    cheaply(&mut page, &size, (evil, shop), (pods, terms));
    dearly(&mut page, &size, &kinds, snapshot);
    left_out(&mut page, &lab, (&kinds, places));
    page.end();
}

/// The first round: each term at its cheap price.
fn cheaply(
    page: &mut Example,
    size: &WorldSize,
    (evil, shop): (&PodKind<'_>, &PodKind<'_>),
    (pods, terms): (i64, i64),
) {
    let a_term = &evil.of.shape.pod_anti_affinity[0];
    let (compared, own) = (size.matching("evil", a_term), size.own(evil));
    page.says(&format!(
        "to compare a term with all kinds costs {} + {} × {} = {compared}.",
        size.kinds,
        a_term.parts(),
        size.kinds
    ));
    let one = own + u64::try_from(terms).expect("some") * compared;
    page.says(&format!(
        "A pod of evil costs {} itself ({terms} × {compared} compared, {terms} × {} asked of nodes, {} for plain looks) and \
         {terms} × {compared} for its terms: {}.",
        grouped(own),
        size.places,
        size.places / LOOKS_PER_STEP + 1,
        grouped(one)
    ));
    let sum = u64::try_from(pods).expect("some") * one + size.own(shop);
    assert!(sum <= DECISION_STEPS);
    page.says(&format!("All together are {} steps: within", grouped(sum)));
}

/// The second round: each term at its price for all kinds that it takes in.
fn dearly(page: &mut Example, size: &WorldSize, kinds: &[PodKind<'_>], snapshot: &Snapshot) {
    let evil = kinds.iter().find(|kind| kind.of.namespace == "evil");
    let shop = kinds.iter().find(|kind| kind.of.namespace == "shop");
    let (evil, shop) = evil.zip(shop).expect("both are there");
    let a_term = &evil.of.shape.pod_anti_affinity[0];
    let compared = size.matching("evil", a_term);
    let dear = aversion(size, kinds, "evil", a_term, snapshot);
    let own = size.own(evil);
    let terms = evil.weight.anti_affinity;
    let one = own + terms * dear;
    page.says(&format!(
        "a term takes in all {} kinds and is asked on all {} nodes for each: {compared} + {} × {} = {}.",
        size.kinds,
        size.places,
        size.kinds,
        size.places,
        grouped(dear)
    ));
    page.says(&format!(
        "A pod of evil now costs {} + {terms} × {} = {}.",
        grouped(own),
        grouped(dear),
        grouped(one)
    ));
    let first = size.own(shop);
    page.says(&format!("the pod of shop with {first} steps, then"));
    let stay = (DECISION_STEPS - first) / one;
    page.says(&format!(
        "With {stay} of these it is {} steps; one more would make it {}.",
        grouped(first + stay * one),
        grouped(first + (stay + 1) * one)
    ));
}

/// Which pods a decision leaves out when its budget of work is used up, and what their report says.
fn left_out(
    page: &mut Example,
    lab: &Lab,
    (kinds, places): (&IndexVec<ShapeId, PodKind<'_>>, u64),
) {
    let (snapshot, policy) = (&lab.snapshot, &lab.policy);
    let left_out = chosen(kinds, places, snapshot, DECISION_STEPS);
    let evil = |index: &ShapeId| kinds[*index].of.namespace == "evil";
    assert!(left_out.keys().all(evil), "{left_out:?}");
    page.says(&format!(
        "So {} pods of evil stay in and {} are left out",
        kinds.len() - 1 - left_out.len(),
        left_out.len()
    ));
    let Cow::Owned(lean) = within(snapshot, policy) else {
        panic!("it is beyond the budget")
    };
    let why: Vec<&Excess> = lean
        .cluster
        .pods
        .iter()
        .filter_map(|(_, pod)| pod.shape.left_out.as_ref())
        .collect();
    assert_eq!(why.len(), left_out.len());
    page.says(&format!("the constraints of the {} pods", why.len()));
    let told = why[0].to_string();
    let (told, _) = told.split_once("; ").expect("what helps comes behind");
    page.says(&format!("with the text {told}; …."));
    let mut turn = DecisionBuilder::begin(&lean, policy, &lab.memory, lab.now);
    report(&mut turn);
    let evil = Warning::TooComplex {
        namespaces: vec!["evil".into()],
        more: 0,
    };
    assert_eq!(turn.report.warnings_details, [evil]);
    assert!(matches!(within(&lean, policy), Cow::Borrowed(_)), "once");
}

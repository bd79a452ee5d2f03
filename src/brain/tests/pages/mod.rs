//! The worked examples of the rooms' pages: each world is made of the numbers that its page gives, and the page says what comes of it.
//! The examples of `budget` and of `report`, which go deeper, are in the tests of those rooms.

pub(crate) mod example;

use std::collections::BTreeMap;

use super::lab::{CLUSTER, GI, Lab, MI, START, kept, lab, made, owner, removed, verdict, why};
use super::lifecycle::{kinds, pool, remove};
use super::stock;
use crate::check::{CheckRule, check_beside};
use crate::constraints::fit::{self, NodeView, amounts, volumes};
use crate::constraints::free_volumes::{AssumedBindings, VolumeBindings, VolumeNode};
use crate::constraints::shape::Keyed;
use crate::decision::names::{TRIES, Taken};
use crate::decision::turn::DecisionBuilder;
use crate::index::ListIndex as _;
use crate::inspect;
use crate::lifecycle::{backoff, find_holds};
use crate::observed::by_node::{ByNode, ByNodeIndex};
use crate::observed::view::MachinePhase;
use crate::simulation::world::NodeOrigin;
use crate::simulation::{capacity, demand, offer, pack, places};
use example::{Example, clock, grouped, price, time_of_day};
use model::action::{Action, Kind, Reason};
use model::cluster::{ObjectKey, Phase, Pod};
use model::decision::Decision;
use model::memory::{Backoff, Provisioning};
use model::policy::LEAVING_TAINT;
use model::region::{Failure, Step};
use model::report::{NodeVerdict, PodVerdict, Scope};
use model::resources::Resources;
use model::scheduling::{PodShape, Taint};
use model::time::{Span, Time};

fn begin(lab: &Lab) -> DecisionBuilder<'_> {
    DecisionBuilder::begin(&lab.snapshot, &lab.policy, &lab.memory, lab.now)
}

fn minutes(span: Span) -> i64 {
    span.0 / 60_000
}

/// Thousandths as per cent with one place.
fn percent(permille: i64) -> String {
    format!("{}.{}", permille / 10, permille % 10)
}

/// The names of pods as a page lists them.
fn names(pods: &[Keyed<'_>]) -> String {
    let names: Vec<&str> = pods.iter().map(|(key, _)| &*key.name).collect();
    names.join(", ")
}

#[test]
fn the_example_of_decision() {
    let mut page = Example::of("decision");
    let gone = pool()
        .ours("m", "p", "one")
        .with(|lab| lab.snapshot.cluster.nodes.clear());
    let vmid = gone.snapshot.machines["m"].mark.vmid;
    let now = clock(gone.now);
    page.says(&format!(
        "It is {now}. Machine m of pool p (region home, host pve1, VMID {vmid}) was up"
    ));
    let mut turn = begin(&gone);
    let last = turn.memory.last_vmids["home"];
    page.says(&format!("sets last_vmids[\"home\"] to {last}, the highest"));
    let phase = turn.view.machines.get("m").map(|machine| &machine.phase);
    assert_eq!(phase, Some(&MachinePhase::NoNode));
    find_holds::find(&mut turn, &gone.memory);
    assert!(turn.holds.may_observe_in("home"));
    assert!(!turn.quarantine_over("machine/m", true));
    let begun = turn.memory.quarantine["machine/m"];
    let quarantine = gone.policy.scale_down.quarantine;
    page.says(&format!(
        "so the time is {}, and wake_at gets {}, {} minutes (the default) later",
        clock(begun),
        clock(begun + quarantine),
        minutes(quarantine)
    ));
    let mut lab = gone.clone();
    let first = lab.turn();
    assert_eq!(first.plan, []);
    page.says(&first.report.warnings[0]);
    page.says(&format!(
        "with quarantine[\"machine/m\"] = {}, and wake = {}.",
        clock(lab.memory.quarantine["machine/m"]),
        clock(first.wake.expect("a time"))
    ));
    let later = lab.clone().after(quarantine);
    page.says(&format!("At {} the same question", clock(later.now)));
    let decision = later.decide();
    assert_eq!(kinds(&decision), remove(false));
    let action = &decision.plan[0];
    assert_eq!(action.reason, Reason::NoNode);
    page.says(&format!(
        "for region {}, host {}, VMID {}, with the reason NoNode.",
        action.target.region, action.target.host, action.target.vmid
    ));
    assert!(action.precondition.mark.is_some());
    assert_eq!(action.precondition.planned, later.snapshot.taken);
    page.says(&format!(
        "a view of at most {} minutes.",
        minutes(action.precondition.max_view_age)
    ));
    let [hour, minute] = page.numbers("come back at {}:{}, no step");
    let back = time_of_day(lab.now, [hour, minute, 0]);
    let mut back = lab.clone().after(back.since(lab.now)).node("m", 1, 1);
    back.turn();
    assert_eq!(back.memory.quarantine, BTreeMap::new());
    a_name(&mut page);
    page.end();
}

fn a_name(page: &mut Example) {
    let lab = pool();
    let mut turn = begin(&lab);
    let before = turn.memory.serial;
    let mut taken = Taken::of(&turn);
    let (name, token) = taken.fresh(&mut turn, "p").expect("a name");
    page.says(&format!(
        "with the cluster id {CLUSTER}, the pool p, memory.serial {before} and the time {} ms, Taken::fresh counts the serial to {} and \
         gives the name {name} with the token id {token}",
        grouped(turn.now().0),
        turn.memory.serial
    ));
    page.says(&format!("it tries again, {TRIES} times at most"));
}

/// The world of the example of `observed`.
fn observed(page: &mut Example) -> Lab {
    let made = time_of_day(START, page.numbers("was made at {}:{}:{}, its journal"));
    let [worked_minutes, worked_seconds] = page.numbers("had worked for {} min {} s at");
    let as_of = time_of_day(START, page.numbers(" s at {}:{}:{}. At"));
    let now = time_of_day(START, page.numbers("At {}:{}:{} provisioning::count"));
    let [milli_a, mib_a, milli_b, mib_b] =
        page.numbers("a asks {} millicores and {} MiB, b {} and {}.");
    let agent = |shape: &mut PodShape| shape.owner = Some(owner("DaemonSet", "agent"));
    pool()
        .after(made.since(START))
        .machine("p-1", "p", "one", Step::Initialize)
        .with(|lab| lab.register("p-1", false))
        .node("n1", 1000, 1024)
        .bound("a", "p-1", milli_a, mib_a)
        .bound("b", "n1", milli_b, mib_b)
        .bound("c", "p-1", 10, 10)
        .pod("d", 10, 10)
        .bound("e", "gone", 10, 10)
        .bound("f", "n1", 10, 10)
        .edit("f", |pod| pod.phase = Phase::Succeeded)
        .shape("a", agent)
        .shape("b", agent)
        .after(now.since(made))
        .with(|lab| {
            let worked = Provisioning {
                worked: Span::seconds(worked_minutes * 60 + worked_seconds),
                as_of,
            };
            lab.memory.provisioning.insert("p-1".into(), worked);
        })
}

fn leaving(lab: Lab) -> Lab {
    lab.edit_node("p-1", |node| {
        node.taints.push(Taint::no_schedule(LEAVING_TAINT, ""));
    })
}

#[test]
fn the_example_of_observed() {
    let mut page = Example::of("observed");
    let lab = observed(&mut page);
    let by_node = ByNode::of(&lab.snapshot.cluster);
    let nodes = ["n1", "p-1", "gone"].map(|node| by_node.index(node).expect("it is counted"));
    let [n1, p1, gone] = nodes.map(ByNodeIndex::position);
    page.says(&format!(
        "numbers the nodes: n1 {n1}, p-1 {p1}, and gone {gone}, since"
    ));
    let [one, two, three] = nodes.map(|node| by_node.on(node).len());
    let (second, third, end) = (one, one + two, one + two + three);
    page.says(&format!(
        "counts {one}, {two} and {three} pods, so the pods of the nodes begin at 0, {second} and {third} (begins is 0, {second}, {third}, {end})."
    ));
    let bound: Vec<Keyed<'_>> = nodes
        .iter()
        .flat_map(|node| by_node.on(*node))
        .copied()
        .collect();
    page.says(&format!(
        "fills bound with {}, and unbound with {}.",
        names(&bound),
        names(&by_node.unbound)
    ));
    let turn = begin(&lab);
    let view = &turn.view;
    page.says(&format!(
        "SnapshotView::pods(\"p-1\") is then {}; SnapshotView::pods(\"gone\") is {}; SnapshotView::node_index(\"gone\") is {:?}, as {gone} is not",
        names(view.pods("p-1")),
        names(view.pods("gone")),
        view.node_index("gone")
    ));
    let most = &view.daemon_requests["uid-DaemonSet-agent"];
    page.says(&format!(
        "by the set's UID: {} millicores and {} MiB.",
        most.cpu_milli,
        most.memory / MI
    ));
    let machine = view.machines.get("p-1").expect("it is ours");
    let before = lab.memory.provisioning["p-1"].worked;
    page.says(&format!(
        "adds the {} s: we lead",
        (machine.worked.0 - before.0) / 1000
    ));
    page.says(&format!(
        "worked is {} min, less than the default of {} min, so it is {:?}.",
        minutes(machine.worked),
        minutes(lab.policy.scale_up.max_provision_time),
        machine.phase
    ));
    assert!(!view.leaving("p-1"));
    page.says(&format!(
        "without_place() is {}.",
        names(&view.without_place())
    ));
    let goes = leaving(lab.clone());
    let turn = begin(&goes);
    let machine = turn.view.machines.get("p-1").expect("it is ours");
    page.says(&format!(
        "its phase would be {:?}, and without_place() {}.",
        machine.phase,
        names(&turn.view.without_place())
    ));
    let up = lab.clone().edit_node("p-1", |node| node.taints.clear());
    let turn = begin(&up);
    let machine = turn.view.machines.get("p-1").expect("it is ours");
    assert_eq!(machine.phase, MachinePhase::Up);
    page.end();
}

/// The world of the example of `constraints`: two nodes, two PVs, and three pods with a claim each.
fn constraints(page: &mut Example) -> Lab {
    let [first, second, mib, pods] =
        page.numbers("n1 offers {} millicores, node n2 {}; both offer {} MiB and {} pods.");
    let [gib] = page.numbers("Two PVs of {} GiB are available");
    let [milli_a, milli_b, mib_each, claim] = page.numbers(
        "a asks {} millicores, pod b {}; each asks {} MiB and has a claim of {} GiB of its own.",
    );
    let [milli_c] = page.numbers("A third such pod c of {} millicores");
    let mut lab = stock::world()
        .node("n1", first, mib)
        .node("n2", second, mib);
    for node in ["n1", "n2"] {
        lab = lab.edit_node(node, |node| node.allocatable.pods = pods);
    }
    lab = stock::volume(lab, "everywhere", gib * GI, None);
    lab = stock::volume(lab, "here", gib * GI, Some((stock::HOSTNAME, "n1")));
    for (pod, milli) in [("a", milli_a), ("b", milli_b), ("c", milli_c)] {
        lab = stock::waits(lab, pod, milli, claim * GI);
        let pod = &lab.snapshot.cluster.pods[&ObjectKey::new("default", pod)];
        assert_eq!(pod.shape.requests.memory, mib_each * MI);
    }
    lab
}

/// A node as volumes see it.
fn node_of<'l>(lab: &'l Lab, name: &'l str) -> VolumeNode<'l> {
    VolumeNode {
        name,
        labels: &lab.snapshot.cluster.nodes[name].labels,
        new: false,
    }
}

#[test]
fn the_example_of_constraints() {
    let mut page = Example::of("constraints");
    let lab = constraints(&mut page);
    let turn = begin(&lab);
    let free_volumes = &*turn.view.claims.free_volumes;
    let pod = |name: &str| &lab.snapshot.cluster.pods[&ObjectKey::new("default", name)];
    let [a, b, c] = ["a", "b", "c"].map(|name| {
        let need = turn.view.need(&ObjectKey::new("default", name), pod(name));
        need.expect("it has a claim")
    });
    let (n1, n2) = (node_of(&lab, "n1"), node_of(&lab, "n2"));
    let waiting = &a.waiting[0];
    page.says(&format!(
        "one WaitingClaim of {} GiB, whose matching is {}.",
        waiting.storage / GI,
        waiting.matching.0
    ));
    assert_eq!((a.waiting.len(), &a.waiting), (1, &b.waiting));
    assert!(!waiting.provides(n2), "nothing can");
    // Pod `a` on node `n1`.
    let asked = &pod("a").shape.requests;
    let here = NodeView {
        name: "n1",
        labels: n1.labels,
        taints: &[],
        unschedulable: false,
    };
    assert!(fit::filter_failure(&pod("a").shape, here).is_none());
    assert!(volumes::filter_failure(&a, "n1", n1.labels, false).is_none());
    let mut free = lab.snapshot.cluster.nodes["n1"].allocatable.clone();
    let room = fit::room(&pod("a").shape, &free, &[]);
    page.says(&format!(
        "fit::room says {room} ({} / {} millicores; memory would allow {}, pods {}).",
        free.cpu_milli,
        asked.cpu_milli,
        free.memory / asked.memory,
        free.pods
    ));
    let mut assumed = AssumedBindings::default();
    let mut all = VolumeBindings::default();
    let served = assumed.serve(free_volumes, &a, n1, room, &mut all);
    page.says(&format!(
        "AssumedBindings::serve for at most {room} pods says {served}: here, then everywhere"
    ));
    let mut one = VolumeBindings::default();
    assumed.serve(free_volumes, &a, n1, 1, &mut one);
    assert!(!one.in_reach(free_volumes, n2), "`here` is the first");
    amounts::take(&mut free, asked, 1);
    page.says(&format!(
        "amounts::take leaves {} millicores",
        free.cpu_milli
    ));
    assumed.give(&one);
    // Pod `b`.
    let asked = &pod("b").shape.requests;
    assert!(amounts::full(asked, &free));
    page.says(&format!(
        "amounts::full is true ({} > {}).",
        grouped(asked.cpu_milli),
        free.cpu_milli
    ));
    let mut there = lab.snapshot.cluster.nodes["n2"].allocatable.clone();
    let room = fit::room(&pod("b").shape, &there, &[]);
    page.says(&format!("On n2 room is {room}, and"));
    let mut one = VolumeBindings::default();
    assert_eq!(assumed.serve(free_volumes, &b, n2, room, &mut one), 1);
    amounts::take(&mut there, asked, 1);
    assumed.give(&one);
    // Pod `c`.
    for (free, node) in [(&free, n1), (&there, n2)] {
        assert!(fit::room(&pod("c").shape, free, &[]) > 0);
        assert!(assumed.filter_failure(free_volumes, &c, node).is_some());
    }
    let why = assumed
        .filter_failure(free_volumes, &c, n1)
        .expect("it has none");
    page.says(&why.to_string());
    page.end();
}

/// The world of the example of `simulation`.
fn simulation(page: &mut Example) -> Lab {
    let [milli, mib, pods] = page.numbers("with {} millicores, {} MiB and {} pods free.");
    let [cores, type_mib] = page.numbers("the type one ({} cores, {} MiB)");
    let [daemon_milli, daemon_mib] =
        page.numbers("agent asks {} millicores and {} MiB and has no pod yet.");
    let [web_milli, web_mib] = page.numbers("ask {} millicores and {} MiB each");
    lab()
        .kind("one", u32::try_from(cores).expect("few"), type_mib)
        .pool("p", &["one"])
        .node("old", milli, mib)
        .edit_node("old", |node| node.allocatable.pods = pods)
        .daemon("agent", daemon_milli, daemon_mib)
        .pods("web", 5, web_milli, web_mib)
}

fn amounts_of(of: &Resources) -> String {
    format!(
        "{} millicores, {} MiB and {} pods",
        of.cpu_milli,
        of.memory / MI,
        of.pods
    )
}

#[test]
fn the_example_of_simulation() {
    let mut page = Example::of("simulation");
    let lab = simulation(&mut page);
    let mut turn = begin(&lab);
    let choices = offer::choices(&turn);
    let all: Vec<_> = choices.iter().collect();
    let [choice] = all[..] else {
        panic!("{choices:?}")
    };
    assert_eq!((&*choice.label, choice.offers.len()), ("p/one", 3));
    let core = offer::price(&Resources {
        cpu_milli: 1000,
        ..Resources::default()
    });
    let gib = offer::price(&Resources {
        memory: GI,
        ..Resources::default()
    });
    page.says(&format!(
        "Its price is {} millionths an hour ({} × {} for cores, {} × {} for GiB).",
        grouped(choice.price),
        choice.instance_type.cores,
        grouped(core),
        choice.instance_type.memory / GI,
        grouped(gib)
    ));
    let all = capacity::predicted(choice.policy, choice.instance_type, 20 * GI);
    let free = &choice.offers.iter().next().expect("three").free;
    page.says(&format!(
        "capacity::predicted says {}; agent leaves {} free.",
        amounts_of(&all),
        amounts_of(free)
    ));
    let mut world = places::build(&turn, &choices);
    let old = world.by_name["old"];
    assert_eq!(world.nodes.len(), 1);
    let before = world.nodes[old].free.cpu_milli;
    let demand = demand::collect(&mut turn, &mut world, &BTreeMap::new());
    let all: Vec<_> = demand.groups.iter().collect();
    let [group] = all[..] else {
        panic!("{demand:?}")
    };
    assert_eq!((group.pods.len(), group.origin), (5, demand::Origin::Waits));
    let (shape, asked) = (group.shape, group.pods[0].pod.shape.requests.cpu_milli);
    world.prepare(shape);
    let room = pack::admitted(&world, shape, None, old, None);
    page.says(&format!(
        "room is {} ({before} / {asked}).",
        room.expect("some")
    ));
    let (left, _) = pack::existing(&mut turn, &mut world, demand);
    page.says(&format!(
        "{} millicores are free.",
        world.nodes[old].free.cpu_milli
    ));
    let left: Vec<&str> = left
        .iter()
        .flat_map(|group| group.pods.iter().map(|one| &*one.key.name))
        .collect();
    assert_eq!(left, ["web-4"]);
    on_its_way(&mut page, lab.clone());
    page.end();
}

/// The same decision as a whole, and the next one.
fn on_its_way(page: &mut Example, mut lab: Lab) {
    assert_eq!(made(&lab.turn()), ["one"]);
    let booked = lab.memory.bookings.values().flatten();
    let booked: Vec<&str> = booked.map(|uid| &**uid).collect();
    assert_eq!(booked, ["uid-web-4"]);
    page.says(&format!(
        "adds a node for it (NodeOrigin::Machine) with {} millicores",
        free_on_the_machine(&lab)
    ));
    let next = lab.decide();
    assert_eq!(next.plan, []);
    for pod in ["web-0", "web-3"] {
        assert!(matches!(verdict(&next, pod), PodVerdict::FitsNode { .. }));
    }
    assert!(matches!(
        verdict(&next, "web-4"),
        PodVerdict::FitsMachine { .. }
    ));
    let [milli] = page.numbers("A pod of {} millicores would be refused by every offer");
    let big = lab.pod("big", milli, 10).decide();
    page.says(&format!("by every offer: {}.", why(&big, "big", "p/one")));
}

/// What CPU is free on the machine that is on its way.
fn free_on_the_machine(lab: &Lab) -> i64 {
    let turn = begin(lab);
    let world = places::build(&turn, &offer::choices(&turn));
    let mut nodes = world.nodes.iter();
    let coming = nodes.find(|node| matches!(node.origin, NodeOrigin::Machine(_)));
    coming.expect("it is on its way").free.cpu_milli
}

/// The world of the example of `scale_up`, with the types' prices.
pub(crate) fn three_types(page: &mut Example) -> (Lab, BTreeMap<&'static str, i64>) {
    let mut lab = lab();
    let mut prices = BTreeMap::new();
    for name in ["a", "b", "c"] {
        let row = format!("| {name} | {{}} CPU, {{}}Gi |");
        let [cores, gib] = page.numbers(&row);
        let row = format!("| {name} | {cores} CPU, {gib}Gi | {{}} |");
        let [price] = page.prices(&row);
        let few = u32::try_from(cores).expect("few");
        lab = lab
            .kind(name, few, gib * 1024)
            .edit_kind(name, |kind| kind.price = Some(price));
        prices.insert(name, price);
    }
    let [db_milli, db_gib] = page.numbers("four db ({}m, {}Gi) and");
    let [web_cores, web_gib] = page.numbers("four web ({} CPU, {}Gi).");
    let lab = lab
        .pool("p", &["a", "b", "c"])
        .pods("db", 4, db_milli, db_gib * 1024)
        .pods("web", 4, web_cores * 1000, web_gib * 1024);
    (lab, prices)
}

/// The same world, where the pool may not have as many machines as the better plan needs.
pub(crate) fn limited(page: &mut Example, lab: &Lab) -> Lab {
    let [max] = page.numbers("With max = {} for the pool");
    let max = u32::try_from(max).expect("few");
    lab.clone().edit_pool("p", |pool| pool.max = max)
}

/// What a decision's machines cost an hour.
fn cost(decision: &Decision) -> i64 {
    decision.report.scale_up.as_ref().expect("machines").price
}

/// A number of thousandths as a page writes it: `3.25`.
fn thousandths(of: i64) -> String {
    price(of * 1000)
}

#[test]
fn the_example_of_scale_up() {
    let mut page = Example::of("scale_up");
    let (lab, prices) = three_types(&mut page);
    let pods = lab.policy.pools["p"].max_pods;
    page.says(&format!("no DaemonSet, {pods} pods a node."));
    let asked = |pod: &str| {
        let key = ObjectKey::new("default", pod);
        lab.snapshot.cluster.pods[&key].shape.requests.clone()
    };
    let (db, web) = (asked("db-0"), asked("web-0"));
    let of = |cpu_milli: i64, memory: i64| {
        offer::price(&Resources {
            cpu_milli,
            memory,
            ..Resources::default()
        })
    };
    let (db_worth, web_worth) = (offer::price(&db), offer::price(&web));
    page.says(&format!(
        "By default price ({} a core, {} a GiB) a db pod is worth {}, a web pod {}, so db leads.",
        price(of(1000, 0)),
        price(of(0, GI)),
        price(db_worth),
        price(web_worth)
    ));
    let size = |name: &str| lab.policy.instance_types[name].capacity();
    let (a, b, c) = (size("a"), size("b"), size("c"));
    page.says(&format!(
        "c is first in the order, with {} for {} at most.",
        price(prices["c"]),
        price(offer::price(&c))
    ));
    page.says(&format!(
        "puts all four pods on it ({} CPU of {}, {}Gi of {}): {} for pods worth {}.",
        thousandths(4 * db.cpu_milli),
        thousandths(c.cpu_milli),
        4 * db.memory / GI,
        c.memory / GI,
        price(prices["c"]),
        price(4 * db_worth)
    ));
    page.says(&format!(
        "of a that even when full it would carry {} for {}, which is less",
        price(offer::price(&a)),
        price(prices["a"])
    ));
    let on = |of: &Resources| (of.cpu_milli / web.cpu_milli).min(of.memory / web.memory);
    assert_eq!((on(&a), on(&b), on(&c)), (1, 2, 0));
    page.says(&format!(
        "On a there is one pod, {} for {}; on b there are two, {} for {}, which is better: {} per worth and not {}.",
        price(web_worth),
        price(prices["a"]),
        price(2 * web_worth),
        price(prices["b"]),
        price(1_000_000 * prices["b"] / (2 * web_worth)),
        price(1_000_000 * prices["a"] / web_worth)
    ));
    page.says(&format!("c with its {}Gi of pods", 4 * db.memory / GI));
    page.says(&format!(
        "One db pod fits beside each ({} CPU, {}Gi).",
        thousandths(web.cpu_milli + db.cpu_milli),
        (web.memory + db.memory) / GI
    ));
    let first = limited(&mut page, &lab).decide();
    assert_eq!(made(&first), ["b", "b", "c"]);
    let dear = price(cost(&first));
    page.says(&format!(
        "The first plan is c + b + b: three machines, {dear}."
    ));
    page.says(&format!("and the price is {dear} again."));
    let decision = lab.decide();
    assert_eq!(made(&decision), ["a", "a", "a", "a"]);
    page.says(&format!(
        "That makes four machines a: {}.",
        price(cost(&decision))
    ));
    page.says(&format!("the plan is {} × a.", decision.plan.len()));
    let PodVerdict::Triggers { others, .. } = verdict(&decision, "web-0") else {
        panic!("{:?}", verdict(&decision, "web-0"))
    };
    let why = |choice: &str| others.get(choice).map(ToString::to_string);
    page.says(&format!(
        "says of p/c {}, and of p/b {}.",
        why("p/c").expect("it lost"),
        why("p/b").expect("it lost")
    ));
    page.end();
}

/// The world of the example of `scale_down`, which `check` takes up.
fn three_nodes(page: &mut Example) -> Lab {
    let [cores, gib, threshold, unneeded, parallel, drains] = page.numbers(
        "type {} CPU and {}Gi, three nodes, default settings (threshold {} %, unneeded_time {}m, max_parallelism {}, max_drain_parallelism {})",
    );
    let [web_milli, web_mib, db_milli, db_gib] =
        page.numbers("n1 runs web ({}m, {}Mi), n2 runs db ({}m, {}Gi), n3 runs nothing.");
    let lab = lab()
        .kind("two", u32::try_from(cores).expect("few"), gib * 1024)
        .pool("p", &["two"])
        .ours("n1", "p", "two")
        .ours("n2", "p", "two")
        .ours("n3", "p", "two")
        .bound("web", "n1", web_milli, web_mib)
        .bound("db", "n2", db_milli, db_gib * 1024);
    let settings = &lab.policy.scale_down;
    assert_eq!(settings.utilization_threshold_permille, threshold * 10);
    assert_eq!(minutes(settings.unneeded_time), unneeded);
    let most = [settings.max_parallel, settings.max_parallel_drain].map(i64::from);
    assert_eq!(most, [parallel, drains]);
    lab
}

/// The decision in which the nodes go, and its world.
fn they_go(page: &mut Example, lab: &mut Lab) -> (Lab, Decision) {
    lab.turn();
    let [later] = page.numbers("A decision {} minutes later");
    let later = lab.clone().after(Span::minutes(later));
    let decision = later.decide();
    (later, decision)
}

fn why_kept(decision: &Decision, node: &str) -> String {
    match &decision.report.nodes[node] {
        NodeVerdict::Kept { why, .. } => why.to_string(),
        other => panic!("{other:?}"),
    }
}

/// An action of the example as a row of the page's table.
fn row(action: &Action) -> String {
    let Kind::Remove { drain } = action.kind else {
        panic!("{action:?}")
    };
    let Reason::Unneeded {
        utilization_permille,
        ..
    } = action.reason
    else {
        panic!("{action:?}")
    };
    let none = |list: Vec<String>| {
        let empty = list.is_empty();
        if empty {
            "none".to_owned()
        } else {
            list.join(", ")
        }
    };
    let name = |key: &ObjectKey| format!("{}/{}", key.namespace, key.name);
    let pods = action.precondition.pods.iter().map(name).collect();
    let landing = action.precondition.landing.iter();
    let landing = landing.map(|(key, node)| format!("{} → {node}", name(key)));
    format!(
        "| Remove {{ drain: {drain} }} {} | Unneeded, {utilization_permille} ‰ | {} | {} |",
        action.target.machine,
        none(pods),
        none(landing.collect())
    )
}

#[test]
fn the_example_of_scale_down() {
    let mut page = Example::of("scale_down");
    let mut lab = three_nodes(&mut page);
    page.says(&format!("First decision, {}.", clock(lab.now)));
    let first = lab.decide();
    assert_eq!(removed(&first), Vec::<String>::new());
    let [n1, n2, n3] = ["n1", "n2", "n3"].map(|node| {
        let (view, policy) = (&lab.snapshot, &lab.policy);
        inspect::utilization(view, policy, &lab.memory, node, lab.now).expect("it has one")
    });
    let share = |used: i128, of: i128| percent(i64::try_from(used * 1000 / of).expect("small"));
    let nodes = &lab.snapshot.cluster.nodes;
    let web = &lab.snapshot.cluster.pods[&ObjectKey::new("default", "web")]
        .shape
        .requests;
    page.says(&format!(
        "gives n1 {} of {} millicores, {} % (its memory is {} %, and the larger counts). For n2 it gives {} %, so n2 is NotUnderutilized: {}. \
         n3 has {} %.",
        n1.used,
        n1.of,
        share(n1.used, n1.of),
        share(web.memory.into(), nodes["n1"].allocatable.memory.into()),
        share(n2.used, n2.of),
        why_kept(&first, "n2"),
        n3.used
    ));
    page.says(&format!("on n2, which has {}m free.", n2.of - n2.used));
    let (_, decision) = they_go(&mut page, &mut lab);
    page.says(&format!(
        "writes unneeded_since {} for both.",
        clock(lab.memory.unneeded_since["n1"])
    ));
    for node in ["n1", "n3"] {
        assert_eq!(kept(&first, node), "NotUnneededLongEnough");
        page.says(&format!(
            "keeps both, NotUnneededLongEnough: {}, and asks for a decision at {}.",
            why_kept(&first, node),
            clock(first.wake.expect("a time"))
        ));
    }
    let order: Vec<&str> = decision.plan.iter().map(|of| &*of.target.machine).collect();
    assert_eq!(order, ["n3", "n1"]);
    for action in &decision.plan {
        page.says(&row(action));
    }
    page.end();
}

#[test]
fn the_example_of_check() {
    let mut earlier = Example::of("scale_down");
    let mut lab = three_nodes(&mut earlier);
    let (later, decision) = they_go(&mut earlier, &mut lab);
    let mut page = Example::of("check");
    let [empty, action] = &decision.plan[..] else {
        panic!("{:?}", decision.plan)
    };
    let Reason::Unneeded { since, .. } = action.reason else {
        panic!("{action:?}")
    };
    let planned = action.precondition.planned;
    page.says(&format!("planned at {}.", clock(planned)));
    page.says(&format!("Unneeded since {},", clock(since)));
    let [milli, mib] = page.numbers("a new pod default/new ({}m, {}Mi) on n2.");
    let newer = |node: &str| {
        later
            .clone()
            .bound("new", node, milli, mib)
            .after(Span::seconds(30))
    };
    let refused = |lab: &Lab| {
        check_beside(action, &[empty], &lab.snapshot, &lab.policy, lab.now)
            .expect_err("it may not begin")
    };
    let settings = &later.policy.scale_down;
    page.says(&format!(
        "are younger than {} minutes",
        minutes(settings.max_view_age)
    ));
    page.says(&format!(
        "it is {} minutes, unneeded_time is {}, and",
        minutes(planned.since(since)),
        minutes(settings.unneeded_time)
    ));
    let pods = &later.snapshot.cluster.pods;
    let [web, db] = ["web", "db"].map(|name| &pods[&ObjectKey::new("default", name)]);
    let all = later.snapshot.cluster.nodes["n2"].allocatable.cpu_milli;
    let milli_of = |pod: &Pod| pod.shape.requests.cpu_milli;
    page.says(&format!(
        "{} of {all} millicores are at most {} %.",
        milli_of(web),
        settings.utilization_threshold_permille / 10
    ));
    page.says(&format!(
        "max_parallel ({}) and max_parallel_drain ({})",
        settings.max_parallel, settings.max_parallel_drain
    ));
    page.says(&format!(
        "{all} − {} (db) − {milli} (new) = {} millicores.",
        milli_of(db),
        all - milli_of(db) - milli
    ));
    page.says(&format!("for web, which asks {}.", milli_of(web)));
    page.says(&refused(&newer("n2")).to_string());
    assert_eq!(refused(&newer("n1")).rule, CheckRule::Stranger);
    page.end();
}

/// The world of the example of `lifecycle`, and when its machine failed.
fn failed(page: &mut Example) -> (Lab, Time) {
    let now = time_of_day(START, page.numbers("It is {}:{}:{}. The machine"));
    let [cores, gib] = page.numbers("(type one, {} CPU and {}Gi)");
    let at = time_of_day(START, page.numbers("failed at {}:{}:{} in the step join"));
    let [hour, minute, second, length] =
        page.numbers("last failure before was at {}:{}:{}; its back-off was {} minutes long.");
    let before = time_of_day(START, [hour, minute, second]);
    let length = Span::minutes(length);
    let [milli] = page.numbers("The pod web ({}m) is pending.");
    let failure = Failure {
        advice: None,
        step: Step::Join,
        message: "kubeadm join timed out".into(),
        at,
        transient: false,
        host: None,
    };
    let backoff = Backoff {
        until: before + length,
        length,
        failed: before,
        message: "m0: kubeadm join timed out".into(),
        advice: None,
    };
    let lab = lab()
        .after(now.since(START))
        .kind("one", u32::try_from(cores).expect("few"), gib * 1024)
        .pool("p", &["one"])
        .machine("n1", "p", "one", Step::Join)
        .edit_machine("n1", |machine| machine.failure = Some(failure))
        .pod("web", milli, 10)
        .with(|lab| {
            lab.memory.backoff.insert("p".into(), backoff);
        });
    (lab, at)
}

#[test]
fn the_example_of_lifecycle() {
    let mut page = Example::of("lifecycle");
    let (lab, at) = failed(&mut page);
    let mut turn = begin(&lab);
    find_holds::find(&mut turn, &lab.memory);
    assert_eq!(turn.report.holds, []);
    backoff::count_failures(&mut turn);
    let (before, after) = (&lab.memory.backoff["p"], &turn.memory.backoff["p"]);
    page.says(&format!(
        "less than {} hours ago (backoff_reset)",
        minutes(lab.policy.scale_up.backoff_reset) / 60
    ));
    page.says(&format!(
        "doubles from {} to {} minutes: until {}, {} minutes after the failure.",
        minutes(before.length),
        minutes(after.length),
        clock(after.until),
        minutes(after.until.since(at))
    ));
    assert!(turn.memory.counted_failures.contains("n1"));
    let decision = lab.decide();
    page.says(&format!("p/one: {}.", why(&decision, "web", "p/one")));
    assert!(matches!(verdict(&decision, "web"), PodVerdict::Held { .. }));
    assert_eq!(kinds(&decision), remove(false));
    page.says(&format!("with the reason {}.", decision.plan[0].reason));
    let holds = decision.report.holds.iter();
    let mut holds = holds.filter(|hold| matches!(hold.scope, Scope::Pool(_)));
    let hold = holds.next().expect("the pool waits");
    page.says(&format!("writes the hold {}: {}.", hold.scope, hold.why));
    an_old_view(&mut page);
    page.end();
}

/// The other snapshot of the example: too old to act on.
fn an_old_view(page: &mut Example) {
    let [old, limit] = page.numbers("is {} minutes old, max_view_age is {} minutes both ways:");
    let lab = pool()
        .ours("n1", "p", "one")
        .pod("web-0", 1500, 10)
        .pod("web-1", 1500, 10)
        .with(|lab| {
            let source = lab.snapshot.sources.get_mut("kube/pods").expect("there");
            source.as_of = source.as_of - Span::minutes(old);
        });
    let (up, down) = (&lab.policy.scale_up, &lab.policy.scale_down);
    let limits = [up.max_view_age, down.max_view_age].map(minutes);
    assert_eq!(limits, [limit, limit]);
    let decision = lab.decide();
    assert_eq!(decision.plan, []);
    let [up, down] = &decision.report.holds[..] else {
        panic!("{:?}", decision.report.holds)
    };
    assert_eq!(up.why, down.why);
    page.says(&format!(
        "writes two holds, {} and {}, both {}.",
        up.scope, down.scope, up.why
    ));
    assert!(matches!(
        verdict(&decision, "web-0"),
        PodVerdict::FitsNode { .. }
    ));
    let why = why(&decision, "web-1", "p/one");
    assert!(why.contains(&up.why.to_string()), "{why}");
}

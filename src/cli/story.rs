//! Stories as text for people. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::causes::Causes;
use super::render::{
    add_addresses, held, node_verdict, one_line, place, pod_verdict, preempted, section, when,
    whole_seconds,
};
use crate::controller::wording::without_machine;
use crate::model::change::Change;
use crate::model::reasons::{FilterFailure, Reasons};
use crate::model::region::Step;
use crate::model::report::{NodeVerdict, PodVerdict};
use crate::model::resources::Resources;
use crate::model::story::{
    MachineFacts, NodeAnswer, NodeStory, NodeToGo, OfferAnswer, PlannedAnswer, PodFate, PodOutcome,
    PodStory, PreferenceAnswer,
};
use crate::model::time::Time;

/// Names in one cell at most; `-o json` has them all.
const MAX_NAMES: usize = 8;
/// What heads the answers of machines and nodes to a pod; the page has the same words in `why.js`.
const RUNS: &str = "WOULD IT RUN";

/// What is said of a pod. `wide`: each cause in full in every row that it is the cause of.
pub(super) fn pod(story: &PodStory, wide: bool, now: Time) -> String {
    let mut causes = Causes::new(wide);
    let offers = offers(&story.offers, &mut causes);
    let planned = planned(&story.planned, &mut causes);
    let nodes = nodes(&story.nodes, &mut causes);
    let mut text = String::new();
    let _ = writeln!(
        text,
        "Pod {}: asks {}; priority {}",
        story.pod,
        amounts(&story.asks),
        story.priority
    );
    match (&story.verdict, &story.bound) {
        (Some(verdict), _) => {
            let _ = writeln!(text, "{}.\n", lot(verdict, &causes, now));
        }
        (None, Some(node)) => on_node(&mut text, node, story.node_to_go.as_ref(), now),
        (None, None) => {
            let _ = writeln!(text, "It needs no node: its phase is {:?}.\n", story.phase);
        }
    }
    changes(&mut text, &story.changes, &mut causes);
    section(
        &mut text,
        "New machines",
        &["POOL/TYPE", "HOSTS", "FREE", RUNS, "CAN BE MADE NOW"],
        offers,
    );
    section(
        &mut text,
        "Machines that are planned now, with the other pods on them",
        &["POOL/TYPE", RUNS, "MACHINES"],
        planned,
    );
    section(&mut text, "Existing nodes", &[RUNS, "NODES"], nodes);
    causes.tell(&mut text);
    let place = story.place.as_deref().unwrap_or_default();
    section(
        &mut text,
        &format!("Preferences, on {place}"),
        &["PREFERENCE", "WEIGHT", "MET", "WHY"],
        story.preferences.iter().map(preference).collect(),
    );
    held(&mut text, &story.holds, now);
    text
}

/// Where a pod runs; and where that is to go, why, and what becomes of the pod then.
fn on_node(text: &mut String, node: &str, to_go: Option<&NodeToGo>, now: Time) {
    let Some(NodeToGo { verdict, fate }) = to_go else {
        let _ = writeln!(text, "It is on the node {node}.\n");
        return;
    };
    let (what, why) = fold_verdict(verdict, now);
    let _ = writeln!(
        text,
        "It is on the node {node}, which is to go ({what}): {why}."
    );
    let (becomes, why) = (becomes(&fate.fate), why_of(fate));
    let why = if why.is_empty() {
        why
    } else {
        format!(" ({why})")
    };
    let _ = match &fate.fate {
        PodOutcome::Stays => writeln!(text, "When the node goes, nobody waits for the pod.\n"),
        PodOutcome::Goes | PodOutcome::Moves { .. } => {
            writeln!(text, "When the node goes, the pod {becomes}{why}.\n")
        }
        PodOutcome::Terminates | PodOutcome::Unplaced | PodOutcome::Blocks { .. } => {
            writeln!(text, "The pod {becomes}{why}.\n")
        }
    };
}

/// A node's verdict and why, without the reasons for which no machine can be made: they stand below.
fn fold_verdict(verdict: &NodeVerdict, now: Time) -> (String, String) {
    let (what, why) = node_verdict(verdict, now);
    match without_machine(verdict) {
        Some((first, _)) => (what, format!("{first}; why stands below")),
        None => (what, why),
    }
}

/// The ways to a machine, of which each is enough.
fn changes(text: &mut String, changes: &[Change], causes: &mut Causes) {
    let rows = changes.iter().map(|one| change(one, changes, causes));
    let rows = rows.collect();
    section(
        text,
        "What would have to change, one of these",
        &["FOR", "CHANGE"],
        rows,
    );
}

/// Characters behind a change's head that are told in each row that has them: fewer need no number.
const BRIEF: usize = 60;

/// A way to a machine: which machines it brings into reach, and what would have to change. What several ways have at length, such as what is
/// wrong with the template of all, is told below.
fn change(change: &Change, all: &[Change], causes: &mut Causes) -> Vec<String> {
    let needed = change.needed.iter().map(|one| {
        let ways = all.iter().filter(|way| way.needed.contains(one)).count();
        match one.split_once(": ") {
            Some((head, rest)) if ways > 1 && rest.chars().count() > BRIEF => {
                causes.of(&one_line(head), rest)
            }
            _ => one_line(one),
        }
    });
    let needed: Vec<String> = needed.collect();
    vec![change.places.join(", "), needed.join("; and ")]
}

/// What the decision made of a pod, without the causes that stand below.
fn lot(verdict: &PodVerdict, causes: &Causes, now: Time) -> String {
    let mut verdict = verdict.clone();
    let mut below = "";
    if let PodVerdict::Held { why }
    | PodVerdict::NoCompatiblePool { why }
    | PodVerdict::Triggers { others: why, .. } = &mut verdict
    {
        let left = why.iter().filter(|(_, why)| !causes.know(&why.to_string()));
        let left: Reasons = Reasons::new(left.map(|(at, why)| (at.clone(), why.clone())).collect());
        below = match (left.len(), why.len()) {
            (left, all) if left == all => "",
            (0, _) => "; why stands below",
            _ => "; more stands below",
        };
        *why = left;
    }
    let (what, why) = pod_verdict(&verdict, now);
    let why = if why.is_empty() {
        why
    } else {
        format!(" ({why})")
    };
    match verdict {
        PodVerdict::NoCompatiblePool { .. } => format!("No pool can run it{why}{below}"),
        _ => format!("It {what}{why}{below}"),
    }
}

/// How far a machine is that is no node yet, or not any more, what that waits for, and what went wrong with it last.
fn work(text: &mut String, machine: &MachineFacts, now: Time) {
    if let Some((step, since)) = machine.step.filter(|(step, _)| *step != Step::Done) {
        let name = step.word();
        let _ = writeln!(
            text,
            "Step: {name}, for {}",
            whole_seconds(now.since(since))
        );
    }
    if let Some(waits) = &machine.waits {
        let _ = writeln!(text, "It waits: {}", one_line(waits));
    }
    if let Some(failure) = &machine.failure {
        let at = when(failure.at, now);
        let _ = writeln!(text, "Failed {at}: {}", one_line(&failure.message));
    }
}

/// How far a machine is that is on its way up, in one line.
fn progress(machine: &MachineFacts, now: Time) -> String {
    let mut text = one_line(&machine.standing);
    if let Some((step, since)) = machine.step {
        let span = whole_seconds(now.since(since));
        let _ = write!(text, "; step {}, for {span}", step.word());
    }
    if let Some(waits) = &machine.waits {
        let _ = write!(text, "; it waits: {}", one_line(waits));
    }
    text
}

/// Where a machine is, with what it has for itself. `named`: with its region.
fn tell_place(machine: &MachineFacts, named: bool) -> String {
    let region = Some(&*machine.region).filter(|_| named);
    let place = place(&machine.host, region, &machine.cpus);
    add_addresses(place, &machine.addresses)
}

/// The machine that comes in the place of a node that is to go, and how far it is.
fn tell_replacement(text: &mut String, machine: &MachineFacts, regions: bool, now: Time) {
    let place = tell_place(machine, regions);
    let how = progress(machine, now);
    let _ = writeln!(
        text,
        "In its place: {} ({}), VMID {} on {place}; {how}",
        machine.name, machine.instance_type, machine.vmid
    );
}

/// The machine behind a node, and how far that is.
fn tell_machine(text: &mut String, story: &NodeStory, wide: bool, now: Time) {
    match &story.machine {
        Some(machine) => {
            let _ = writeln!(
                text,
                "Node {}: machine of the pool {} ({}), VMID {} on {}; {}",
                story.node,
                machine.pool,
                machine.instance_type,
                machine.vmid,
                tell_place(machine, wide || story.regions > 1),
                one_line(&machine.standing)
            );
            if !machine.made_of.template.is_empty() {
                let parts = one_line(&machine.made_of.to_string());
                let _ = writeln!(text, "Made of: {parts}");
            }
            work(text, machine, now);
            if let Some(made) = &machine.made {
                let _ = writeln!(text, "It was {}", one_line(&made.to_string()));
            }
            if let Some(host) = &machine.made_by {
                let name = &machine.name;
                let sentence = format!(
                    "It was made while the instance on {host} led, and why it is on its host is in that one's record: type `pve-autoscaler history --machine {name}` on {host}"
                );
                let _ = writeln!(text, "{}", one_line(&sentence));
            }
        }
        None => {
            let _ = writeln!(text, "Node {}: not ours, never removed", story.node);
        }
    }
}

/// What the decision says of a node, and with what numbers.
fn tell_verdict(text: &mut String, story: &NodeStory, wide: bool, now: Time) {
    if let Some(verdict) = &story.verdict {
        let (what, why) = fold_verdict(verdict, now);
        let why = if why.is_empty() {
            why
        } else {
            format!(": {why}")
        };
        let _ = writeln!(text, "Verdict: {what}{why}");
    }
    if let Some(goes) = &story.given_up {
        let why = one_line(&goes.why.to_string());
        let _ = writeln!(text, "It goes once it works: {why}");
    }
    if let Some(machine) = &story.replacement {
        tell_replacement(text, machine, wide || story.regions > 1, now);
    }
    if let Some(since) = story.unneeded_since {
        let _ = writeln!(text, "Unneeded for {}", whole_seconds(now.since(since)));
    }
    if !story.requested_permille.is_empty() {
        let shares: Vec<String> = story
            .requested_permille
            .iter()
            .map(|(name, permille)| format!("{name} {}.{} %", permille / 10, permille % 10))
            .collect();
        let _ = writeln!(text, "Requested: {}", shares.join(", "));
    }
}

/// What is said of a node. `wide`: each cause in full in every row that it is the cause of.
pub(super) fn node(story: &NodeStory, wide: bool, now: Time) -> String {
    let mut causes = Causes::new(wide);
    let mut text = String::new();
    tell_machine(&mut text, story, wide, now);
    tell_verdict(&mut text, story, wide, now);
    text.push('\n');
    changes(&mut text, &story.changes, &mut causes);
    let refused = story.verdict.as_ref().and_then(without_machine);
    let refused = refused.map_or_else(Vec::new, |(_, refused)| refused);
    section(
        &mut text,
        "Why no machine can be made",
        &["POOL/TYPE", "WHY"],
        refused
            .into_iter()
            .map(|(places, why)| vec![places, why])
            .collect(),
    );
    section(
        &mut text,
        "If it were removed now",
        &["POD", "OUTCOME", "WHY"],
        fates(&story.pods, wide, &mut causes),
    );
    causes.tell(&mut text);
    section(
        &mut text,
        "Pending pods expected here",
        &[],
        story
            .expected
            .iter()
            .map(|pod| vec![pod.to_string()])
            .collect(),
    );
    held(&mut text, &story.holds, now);
    text
}

/// A line for each pod; a cause of several pods stands below.
fn fates(pods: &[PodFate], wide: bool, causes: &mut Causes) -> Vec<Vec<String>> {
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for pod in pods {
        *times.entry(why_of(pod)).or_default() += 1;
    }
    let rows = pods.iter().map(|pod| {
        let (what, why) = (becomes(&pod.fate), why_of(pod));
        let often = times.get(&why).is_some_and(|times| *times > 1);
        let name = pod.pod.to_string();
        if often && !wide && !why.is_empty() {
            return vec![name, causes.of(&what, &why), String::new()];
        }
        vec![name, what, why]
    });
    rows.collect()
}

fn why_of(pod: &PodFate) -> String {
    let why = pod.why.as_ref().map(ToString::to_string);
    why.as_deref().map(one_line).unwrap_or_default()
}

fn becomes(fate: &PodOutcome) -> String {
    match fate {
        PodOutcome::Stays => "does not matter".to_owned(),
        PodOutcome::Goes => "ends, nothing replaces it".to_owned(),
        PodOutcome::Terminates => "is terminating".to_owned(),
        PodOutcome::Moves { to } => format!("moves to {to}"),
        PodOutcome::Unplaced => "finds no place".to_owned(),
        PodOutcome::Blocks { reason } => format!("blocks: {reason}"),
    }
}

/// All that keeps a pod away: whoever mends the first alone would be no further.
fn filter_failures(
    first: &FilterFailure,
    further: &[FilterFailure],
    causes: &mut Causes,
) -> String {
    let all = std::iter::once(first).chain(further);
    causes.of_all("would not run", all.map(ToString::to_string))
}

/// One line for each pool, type and answer; hosts that answer alike share it.
fn offers(offers: &[OfferAnswer], causes: &mut Causes) -> Vec<Vec<String>> {
    type Line<'a> = (String, String, String, String);
    let mut lines: Vec<(Line<'_>, Vec<&str>)> = Vec::new();
    for offer in offers {
        let answer = match &offer.filter_failure {
            Some(why) => filter_failures(why, &offer.further, causes),
            None => "would run".to_owned(),
        };
        let now = match &offer.held {
            Some(why) => causes.of("no", &why.to_string()),
            None => "yes".to_owned(),
        };
        let line = (
            label(&offer.pool, &offer.instance_type, offer.region.as_deref()),
            amounts(&offer.free),
            answer,
            now,
        );
        match lines.iter_mut().find(|(other, _)| *other == line) {
            Some((_, hosts)) => hosts.push(&offer.host),
            None => lines.push((line, vec![&offer.host])),
        }
    }
    lines
        .into_iter()
        .map(|((name, free, answer, now), hosts)| vec![name, names(&hosts), free, answer, now])
        .collect()
}

/// A pool with a type, and its region where the pool is in several.
fn label(pool: &str, instance_type: &str, region: Option<&str>) -> String {
    match region {
        Some(region) => format!("{pool}/{instance_type} in {region}"),
        None => format!("{pool}/{instance_type}"),
    }
}

/// One line for each pool, type and answer of the machines that are planned; the pod's own comes first.
fn planned(machines: &[PlannedAnswer], causes: &mut Causes) -> Vec<Vec<String>> {
    let mut lines: BTreeMap<(bool, String, String), Vec<&str>> = BTreeMap::new();
    for machine in machines {
        let answer = match &machine.filter_failure {
            Some(why) => filter_failures(why, &machine.further, causes),
            None if machine.own => "would run; it goes there".to_owned(),
            None => "would run".to_owned(),
        };
        let label = label(
            &machine.pool,
            &machine.instance_type,
            machine.region.as_deref(),
        );
        let line = lines.entry((!machine.own, label, answer)).or_default();
        line.push(&machine.name);
    }
    lines
        .into_iter()
        .map(|((_, label, answer), machines)| vec![label, answer, names(&machines)])
        .collect()
}

fn preference(answer: &PreferenceAnswer) -> Vec<String> {
    let pods: Vec<String> = answer
        .pods
        .iter()
        .map(|(domain, pods)| format!("{pods} in {domain}"))
        .collect();
    let pods: Vec<&str> = pods.iter().map(String::as_str).collect();
    let mut preference = one_line(&answer.preference);
    if !pods.is_empty() {
        let _ = write!(preference, ": {}", names(&pods));
    }
    let weight = answer.weight.map(|weight| weight.to_string());
    let met = if answer.met { "yes" } else { "no" };
    let why = answer.why.as_deref().map(one_line).unwrap_or_default();
    vec![preference, weight.unwrap_or_default(), met.to_owned(), why]
}

/// One line for each answer.
fn nodes(nodes: &[NodeAnswer], causes: &mut Causes) -> Vec<Vec<String>> {
    let mut by_answer: BTreeMap<(bool, String), Vec<&str>> = BTreeMap::new();
    for node in nodes {
        let answer = match &node.filter_failure {
            Some(why) => filter_failures(why, &node.further, causes),
            None if !node.preempts.is_empty() => {
                format!("would run: {}", preempted(&node.preempts))
            }
            None if node.coming => "would run, once it is up".to_owned(),
            None => "would run".to_owned(),
        };
        let key = (node.filter_failure.is_some(), answer);
        by_answer.entry(key).or_default().push(&node.name);
    }
    by_answer
        .into_iter()
        .map(|((_, answer), nodes)| vec![answer, names(&nodes)])
        .collect()
}

fn names(all: &[&str]) -> String {
    let shown = all.len().min(MAX_NAMES);
    let mut text = all[..shown].join(", ");
    if all.len() > shown {
        let _ = write!(text, " … {} in all", all.len());
    }
    text
}

/// What is asked or offered; amounts of zero are left out.
fn amounts(of: &Resources) -> String {
    let fixed = [
        ("cpu", of.cpu_milli),
        ("memory", of.memory),
        ("ephemeral-storage", of.ephemeral),
    ];
    let extended = of.extended.iter().map(|(name, amount)| (&**name, *amount));
    let parts: Vec<String> = fixed
        .into_iter()
        .chain(extended)
        .filter(|(_, amount)| *amount != 0)
        .map(|(name, amount)| format!("{name} {}", crate::model::words::amount(name, amount)))
        .collect();
    if parts.is_empty() {
        "nothing".to_owned()
    } else {
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use crate::model::change::find_changes;
    use std::sync::Arc;

    use super::*;
    use crate::model::action::Reason;
    use crate::model::chosen_storages::ChosenStorages;
    use crate::model::cluster::{ObjectKey, Phase};
    use crate::model::cpus::CpuSet;
    use crate::model::host_choice::{HostChoice, HostDecision, HostStanding};
    use crate::model::hosts::HostStrategy;
    use crate::model::network::NicAddresses;
    use crate::model::reasons::{
        Blocked, FateReason, FilterFailure, GivenUp, Held, HostRefused, Kept, Refusals, Refused,
        Removed, Unremovable, WaitsFor,
    };
    use crate::model::report::{GoesOnceUp, Hold, Scope};
    use crate::model::scheduling::{Effect, Taint};
    use crate::model::story::{MachineParts, PreferenceKind};
    use crate::model::time::Span;

    const NOW: Time = Time(1_795_000_000_000);

    fn free(cpu: i64, memory: i64) -> Resources {
        Resources {
            cpu_milli: cpu,
            memory: memory << 20,
            pods: 110,
            ..Resources::default()
        }
    }

    fn offer(
        kind: &str,
        host: &str,
        filter_failure: Option<FilterFailure>,
        held: Option<Refused>,
    ) -> OfferAnswer {
        OfferAnswer {
            region: None,
            pool: "workers".into(),
            instance_type: kind.into(),
            host: host.into(),
            price: 1,
            free: free(1900, 3584),
            filter_failure,
            further: Vec::new(),
            held: held.map(Refusals::from),
        }
    }

    /// It finds a table of the terminal whose columns the page calls otherwise.
    #[test]
    fn the_page_has_the_same_words_for_the_answers() {
        let page = include_str!("../web/page/why.js");
        for head in [RUNS, "CAN BE MADE NOW"] {
            let (first, rest) = head.split_at(1);
            let name = format!("{{ name: \"{first}{}?\"", rest.to_lowercase());
            let spread = name.replace("{ ", "");
            assert!(page.contains(&name) || page.contains(&spread), "{name}");
        }
    }

    #[test]
    fn a_pod_reads_as_a_story() {
        let lacks = |free: i64, new_node: bool| FilterFailure::Insufficient {
            resource: "cpu".into(),
            asked: 5000,
            free,
            new_node,
        };
        let small = || Some(lacks(1900, true));
        let full = Some(Refused::Host {
            host: "pve2".into(),
            refusal: HostRefused::Memory {
                left: 1 << 30,
                asks: 16 << 30,
            },
        });
        let answer = |name: &str, coming: bool, filter_failure: Option<FilterFailure>| NodeAnswer {
            name: name.into(),
            coming,
            free: free(400, 100),
            filter_failure,
            further: Vec::new(),
            preempts: BTreeMap::new(),
        };
        let offers = vec![
            offer("small", "pve1", small(), None),
            offer("small", "pve2", small(), None),
            offer(
                "big",
                "pve1",
                None,
                Some(Refused::PoolMax {
                    machines: 3,
                    max: 3,
                    planned: 0,
                }),
            ),
            offer("big", "pve2", None, full),
        ];
        let story = PodStory {
            pod: ObjectKey::new("shop", "db-0"),
            bound: None,
            node_to_go: None,
            phase: Phase::Pending,
            priority: 100,
            asks: free(5000, 2048),
            verdict: Some(PodVerdict::Held {
                why: Arc::new(BTreeMap::from([(
                    Arc::from("workers/big"),
                    Refused::NoVmid {
                        region: "home".into(),
                    }
                    .into(),
                )])),
            }),
            changes: find_changes(&offers, &[], None),
            planned: Vec::new(),
            offers,
            nodes: vec![
                answer(
                    "cp-1",
                    false,
                    Some(FilterFailure::Taint {
                        taint: Taint {
                            key: "node-role.kubernetes.io/control-plane".into(),
                            value: "".into(),
                            effect: Effect::NoSchedule,
                        },
                        compares_numbers: false,
                    }),
                ),
                answer("workers-1", false, Some(lacks(400, false))),
                answer("workers-2", false, Some(lacks(400, false))),
                answer("workers-3", true, None),
            ],
            holds: vec![Hold {
                until: Some(NOW + Span::minutes(4)),
                ..Hold::new(
                    Scope::Pool("workers".into()),
                    Held::BacksOff {
                        failure: Some("a join failed".into()),
                    },
                )
            }],
            place: None,
            preferences: Vec::new(),
        };
        insta::assert_snapshot!(pod(&story, false, NOW));
        insta::assert_snapshot!("a_pod_reads_as_a_story_wide", pod(&story, true, NOW));
    }

    #[test]
    fn each_cause_has_its_number_where_a_place_has_several() {
        let label = |key: &str| FilterFailure::NodeSelector {
            key: key.into(),
            value: "yes".into(),
        };
        let offers = ["small", "big"].map(|kind| {
            let mut one = offer(kind, "pve1", Some(label("a")), None);
            one.further = vec![label(kind)];
            one
        });
        let (mut causes, mut text) = (Causes::new(false), String::new());
        let rows = super::offers(&offers, &mut causes);
        let said: Vec<&str> = rows.iter().map(|row| row[3].as_str()).collect();
        assert_eq!(said, ["would not run (1, 2)", "would not run (1, 3)"]);
        causes.tell(&mut text);
        assert!(
            text.contains("(3)  node selector big=yes does not match"),
            "{text}"
        );
        let wide = super::offers(&offers, &mut Causes::new(true));
        let both = "would not run: node selector a=yes does not match; and node selector small=yes does not match";
        assert_eq!(wide[0][3], both);
    }

    #[test]
    fn planned_machines_are_rows_and_the_pods_own_is_the_first() {
        let machine = |name: &str, free: Option<i64>| PlannedAnswer {
            name: name.into(),
            pool: "general".into(),
            instance_type: "medium".into(),
            region: None,
            host: "pve1".into(),
            own: free.is_none(),
            free: Resources::default(),
            filter_failure: free.map(|free| FilterFailure::Insufficient {
                resource: "cpu".into(),
                asked: 2_000,
                free,
                new_node: false,
            }),
            further: Vec::new(),
        };
        let all = [
            machine("general-a", Some(0)),
            machine("general-b", None),
            machine("general-c", Some(0)),
        ];
        let rows = super::planned(&all, &mut Causes::new(true));
        let wanted = [
            ["general/medium", "would run; it goes there", "general-b"],
            [
                "general/medium",
                "would not run: cpu: asks 2, 0 are free",
                "general-a, general-c",
            ],
        ];
        assert_eq!(rows, wanted);
    }

    #[test]
    fn a_preference_is_a_line() {
        let mut answer = PreferenceAnswer {
            kind: PreferenceKind::TopologySpread,
            preference: "ScheduleAnyway over topology.kubernetes.io/zone, maxSkew 1".to_owned(),
            weight: None,
            met: false,
            pods: BTreeMap::from([(Arc::from("pve1"), 3), (Arc::from("pve2"), 1)]),
            why: Some("no machine can be made on pve2".to_owned()),
        };
        let line = [
            "ScheduleAnyway over topology.kubernetes.io/zone, maxSkew 1: 3 in pve1, 1 in pve2",
            "",
            "no",
            "no machine can be made on pve2",
        ];
        assert_eq!(preference(&answer), line);
        answer.kind = PreferenceKind::PodAntiAffinity;
        answer.preference = "prefers to be away from pods app=web on the same node".to_owned();
        answer.weight = Some(100);
        answer.met = true;
        answer.pods.clear();
        answer.why = None;
        let line = [
            "prefers to be away from pods app=web on the same node",
            "100",
            "yes",
            "",
        ];
        assert_eq!(preference(&answer), line);
    }

    fn story_of_a_node() -> NodeStory {
        let spent = || Blocked::Budget {
            budget: ObjectKey::new("shop", "db"),
            allowed: 0,
            left: 0,
            unready: false,
        };
        let fate = |name: &str, fate: PodOutcome, why: Option<FateReason>| PodFate {
            pod: ObjectKey::new("shop", name),
            fate,
            why,
        };
        NodeStory {
            node: "workers-1".into(),
            machine: Some(MachineFacts {
                name: "workers-1".into(),
                pool: "workers".into(),
                instance_type: "small".into(),
                region: "east".into(),
                host: "pve1".into(),
                cpus: CpuSet::new(),
                addresses: NicAddresses::new(),
                vmid: 9001,
                made_of: MachineParts {
                    template: "debian".into(),
                    storages: ChosenStorages {
                        own: Some("nas".into()),
                        further: BTreeMap::from([("scsi1".into(), "fast".into())]),
                    },
                    devices: BTreeMap::from([("gpu".into(), 2), ("nvme".into(), 1)]),
                },
                standing: "up".into(),
                made: Some(HostDecision::new(
                    NOW - Span::minutes(50),
                    HostChoice {
                        host: "pve1".into(),
                        strategy: HostStrategy::Pack,
                        standing: HostStanding::default(),
                        other: None,
                    },
                )),
                made_by: None,
                step: Some((Step::Done, NOW)),
                waits: None,
                failure: None,
            }),
            verdict: Some(NodeVerdict::Kept {
                reason: Unremovable::NotEnoughPdb,
                why: Kept::BlockedByPod {
                    pod: ObjectKey::new("shop", "db-0"),
                    blocked: Box::new(spent()),
                },
                pod: Some(ObjectKey::new("shop", "db-0")),
                until: None,
            }),
            replacement: None,
            given_up: None,
            changes: Vec::new(),
            unneeded_since: Some(NOW - Span::minutes(3)),
            requested_permille: BTreeMap::from([
                (Arc::from("cpu"), 213),
                (Arc::from("memory"), 87),
            ]),
            pods: vec![
                fate(
                    "db-0",
                    PodOutcome::Blocks {
                        reason: Unremovable::NotEnoughPdb,
                    },
                    Some(FateReason::Blocked {
                        blocked: Box::new(spent()),
                    }),
                ),
                fate("log-x", PodOutcome::Stays, None),
                fate(
                    "web-1",
                    PodOutcome::Moves {
                        to: "workers-2".into(),
                    },
                    None,
                ),
                fate(
                    "web-2",
                    PodOutcome::Unplaced,
                    Some(FateReason::Unplaced {
                        kept: Box::new(Kept::NoPlace {
                            expected: false,
                            others: 2,
                            nearest: None,
                            filter_failure: None,
                        }),
                    }),
                ),
            ],
            expected: vec![ObjectKey::new("shop", "web-9")],
            holds: Vec::new(),
            regions: 1,
        }
    }

    #[test]
    fn a_node_reads_as_a_story() {
        let mut story = story_of_a_node();
        insta::assert_snapshot!(node(&story, false, NOW));
        // Which region it is matters where there are several, and stands in what is wide.
        let first = |story: &NodeStory, wide: bool| {
            let text = node(story, wide, NOW);
            text.lines().next().unwrap_or_default().to_owned()
        };
        assert!(first(&story, true).contains("on pve1 in east;"));
        story.regions = 2;
        if let Some(machine) = &mut story.machine {
            machine.cpus = CpuSet::read("2-5").expect("CPUs");
        }
        let line = first(&story, false);
        assert!(line.contains("on pve1 in east, CPUs 2-5;"), "{line}");
        // The machine in its place stands below the verdict, with how far it is.
        story.regions = 1;
        story.replacement = story.machine.clone().map(|machine| MachineFacts {
            name: "workers-2".into(),
            vmid: 9002,
            cpus: CpuSet::new(),
            standing: "on its way up".into(),
            step: Some((Step::Join, NOW - Span::seconds(12))),
            waits: Some("kubeadm join runs".into()),
            ..machine
        });
        let text = node(&story, false, NOW);
        let mut lines = text
            .lines()
            .skip_while(|line| !line.starts_with("Verdict: "));
        assert_eq!(
            lines.nth(1),
            Some(
                "In its place: workers-2 (small), VMID 9002 on pve1; on its way up; step join, for 12s; it waits: kubeadm join runs"
            )
        );
    }

    /// A node that is to go, and for one of whose pods no machine can be made.
    fn verdict_without_machine() -> NodeVerdict {
        let pod = ObjectKey::new("shop", "web-2");
        let max = Refused::PoolMax {
            machines: 3,
            max: 3,
            planned: 0,
        };
        let waits = WaitsFor::NoMachine {
            pod: Some(pod.clone()),
            refused: Reasons::new([("workers/small".into(), max.into())].into()),
        };
        NodeVerdict::Kept {
            reason: waits.reason(),
            why: Kept::GivenUp {
                cause: Box::new(GivenUp::HostEvacuated {
                    host: "pve1".into(),
                    since: NOW,
                }),
                waits: Box::new(waits),
            },
            pod: Some(pod),
            until: None,
        }
    }

    /// The pod comes first, then what would have to change, and then the reasons, each by the places that it holds for.
    #[test]
    fn a_node_without_a_replacement_says_what_would_have_to_change() {
        let mut story = story_of_a_node();
        story.verdict = Some(verdict_without_machine());
        story.unneeded_since = None;
        story.changes = vec![Change {
            places: vec!["workers/small".into()],
            needed: vec!["max = 4 in [pool.workers]".to_owned()],
        }];
        let text = node(&story, false, NOW);
        let verdict = text.lines().find(|line| line.starts_with("Verdict: "));
        assert_eq!(
            verdict,
            Some(
                "Verdict: NoReplacement: its host pve1 is evacuated since 2026-11-18T11:06:40Z; its pod shop/web-2 fits on no other node, and no \
                 machine can be made for it now; why stands below"
            )
        );
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
        let change = at("What would have to change, one of these\n");
        let table = at("Why no machine can be made\n");
        assert!(change < at("max = 4 in [pool.workers]"), "{text}");
        assert!(at("max = 4 in [pool.workers]") < table, "{text}");
        assert!(table < at("pool limit: "), "{text}");
        assert_eq!(text.matches("pool limit: ").count(), 1, "{text}");
        assert!(
            !text.contains("(pod ") && !text.contains("Unneeded for"),
            "{text}"
        );
    }

    /// Found by it: what PVE says of a template that all pools have was three paragraphs of the same words.
    #[test]
    fn what_several_ways_need_at_length_is_told_once() {
        let fault = "VM 9000 is locked (backup), and PVE clones no locked VM; `qm unlock 9000` takes the lock away";
        let way = |place: &str, own: &str| Change {
            places: vec![place.into()],
            needed: vec![own.into(), format!("mend the template: {fault}")],
        };
        let ways = [
            way("general/small", "max = 4 in [pool.general]"),
            way("batch/large", "let the pod tolerate the taint"),
        ];
        let told = |wide: bool, ways: &[Change]| {
            let (mut causes, mut text) = (Causes::new(wide), String::new());
            changes(&mut text, ways, &mut causes);
            causes.tell(&mut text);
            text
        };
        let text = told(false, &ways);
        assert_eq!(text.matches(fault).count(), 1, "{text}");
        assert_eq!(
            text.matches("; and mend the template (1)\n").count(),
            2,
            "{text}"
        );
        assert!(text.contains(&format!("Why\n  (1)  {fault}\n")), "{text}");
        for text in [told(true, &ways), told(false, &ways[..1])] {
            let whole = format!("; and mend the template: {fault}\n");
            assert!(text.contains(&whole) && !text.contains("(1)"), "{text}");
        }
    }

    /// What becomes of a pod is said with its node's lot, in words that hold for each outcome.
    #[test]
    fn a_pod_of_a_node_that_is_to_go_says_what_becomes_of_both() {
        let told = |fate: PodOutcome, why: Option<FateReason>| {
            let pod = ObjectKey::new("shop", "web-2");
            let to_go = NodeToGo {
                verdict: NodeVerdict::Leaving {
                    why: Removed::UnderWay {
                        reason: Some(Reason::NoVm),
                    },
                    moves: BTreeMap::new(),
                },
                fate: PodFate { pod, fate, why },
            };
            let mut text = String::new();
            on_node(&mut text, "n1", Some(&to_go), NOW);
            let mut lines = text.lines();
            assert_eq!(
                lines.next(),
                Some(
                    "It is on the node n1, which is to go (leaving): its node has no VM; it is being taken down."
                )
            );
            lines.next().unwrap_or_default().to_owned()
        };
        let to = PodOutcome::Moves { to: "n2".into() };
        assert_eq!(
            told(to, Some(FateReason::OnceMachineWorks)),
            "When the node goes, the pod moves to n2 (once the machine made for it works)."
        );
        let successor = FateReason::SuccessorThere {
            successor: ObjectKey::new("shop", "web-9"),
            node: Some("n2".into()),
        };
        assert_eq!(
            told(PodOutcome::Terminates, Some(successor)),
            "The pod is terminating (its controller made shop/web-9 in its place, which is on n2)."
        );
        assert_eq!(
            told(PodOutcome::Stays, None),
            "When the node goes, nobody waits for the pod."
        );
        let mut text = String::new();
        on_node(&mut text, "n1", None, NOW);
        assert_eq!(text, "It is on the node n1.\n\n");
    }

    /// A machine on its way up that is to go says so, before there is a node.
    #[test]
    fn a_machine_on_its_way_up_says_that_it_goes_again() {
        let mut story = story_of_a_node();
        story.verdict = None;
        let line = "It goes once it works: its host pve1 is evacuated since 2026-11-18T11:06:40Z\n";
        assert!(!node(&story, false, NOW).contains(line));
        let why = GivenUp::HostEvacuated {
            host: "pve1".into(),
            since: NOW,
        };
        story.given_up = Some(GoesOnceUp { why });
        let text = node(&story, false, NOW);
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn a_machines_addresses_stand_behind_its_cpus() {
        let facts = MachineFacts {
            name: "workers-1".into(),
            pool: "workers".into(),
            instance_type: "small".into(),
            region: "east".into(),
            host: "pve1".into(),
            cpus: CpuSet::read("2-5").expect("CPUs"),
            addresses: NicAddresses::new(),
            vmid: 9001,
            made_of: MachineParts::default(),
            standing: "up".into(),
            made: None,
            made_by: None,
            step: Some((Step::Done, NOW)),
            waits: None,
            failure: None,
        };
        let mut story = NodeStory {
            node: "workers-1".into(),
            machine: Some(facts),
            verdict: None,
            replacement: None,
            given_up: None,
            changes: Vec::new(),
            unneeded_since: None,
            requested_permille: BTreeMap::new(),
            pods: Vec::new(),
            expected: Vec::new(),
            holds: Vec::new(),
            regions: 2,
        };
        // Of several cards the first one's stand first.
        let ip = |text: &str| text.parse().expect("an address");
        if let Some(machine) = &mut story.machine {
            let pair = vec![ip("192.0.2.50"), ip("2001:db8::50")];
            machine.addresses = [(1, vec![ip("203.0.113.7")]), (0, pair)].into();
        }
        let text = node(&story, false, NOW);
        let line = text.lines().next().unwrap_or_default();
        let wanted = ", CPUs 2-5, 192.0.2.50, 2001:db8::50, 203.0.113.7; up";
        assert!(line.ends_with(wanted), "{line}");
    }
}

//! In which conditions a person must act now: what is found in a turn and in what the daemon knows of itself. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use crate::controller::trouble;
use crate::controller::turn::Turn;
use crate::model::condition::{Condition, ConditionKind as Kind, Knows};
use crate::model::foreign::ForeignText;
use crate::model::memory::Backoff;
use crate::model::reasons::{Held, Reasons, Warning};
use crate::model::region::{Busy, Step, TemplateCopy};
use crate::model::report::{PodVerdict, Scope};
use crate::model::time::{Span, Time};
use crate::model::words;

/// What was seen longer ago says nothing of now: a turn is due every half minute.
const FRESH: Span = Span::minutes(2);
/// A host whose clock is further off makes certificates and timers go wrong.
const CLOCK: Span = Span::seconds(30);
/// Pods, machines and warnings that a condition names one by one.
const NAMED: usize = 5;
/// Conditions of one kind that are told apart; more of them are one.
const APART: usize = 20;

/// What is looked at.
#[derive(Clone, Copy, Debug)]
pub struct ConditionInput<'a> {
    /// The last turn.
    pub turn: Option<&'a Turn>,
    /// What is wrong with the daemon itself, by subject.
    pub problems: &'a BTreeMap<&'static str, String>,
    /// Decisions were not recorded lately.
    pub not_recording: bool,
    /// Notifications that cannot be sent, by name, and why.
    pub failing: &'a BTreeMap<Arc<str>, String>,
    /// What time it is.
    pub now: Time,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FoundConditions {
    /// The conditions that hold, by key.
    pub there: BTreeMap<String, Condition>,
    /// Kinds of which nothing can be said now: what was known of them stands.
    pub unknown: BTreeSet<Kind>,
    /// This instance did not decide of late: another one does, or nobody.
    pub no_turn: bool,
    /// Another instance leads: it tells what the leader knows.
    pub led_elsewhere: bool,
}

impl FoundConditions {
    fn add(
        &mut self,
        kind: Kind,
        subject: impl AsRef<str>,
        summary: impl AsRef<str>,
        details: impl AsRef<str>,
        todo: &str,
    ) {
        self.since(kind, subject, (summary, details), todo, None);
    }

    fn since(
        &mut self,
        kind: Kind,
        subject: impl AsRef<str>,
        (summary, details): (impl AsRef<str>, impl AsRef<str>),
        todo: &str,
        since: Option<Time>,
    ) {
        let condition = Condition {
            kind,
            subject: ForeignText::new(subject),
            summary: ForeignText::new(summary),
            details: ForeignText::new(details),
            todo: ForeignText::new(todo),
            since,
        };
        self.there.insert(condition.key(), condition);
    }

    /// Where a kind has more conditions than anybody reads, they are one.
    fn fold(&mut self) {
        for (kind, _) in Kind::ALL {
            let of_kind = |condition: &&Condition| condition.kind == *kind;
            let many = self.there.values().filter(of_kind).count();
            if many <= APART {
                continue;
            }
            let first = self.there.values().find(of_kind).cloned();
            let since = self.there.values().filter(of_kind);
            let since = since.filter_map(|one| one.since).min();
            let names = self.there.values().filter(of_kind).map(|one| &one.subject);
            let names = words::some(&names.collect::<Vec<_>>());
            self.there.retain(|_, condition| condition.kind != *kind);
            if let Some(first) = first {
                let details = format!("{} of this kind: {names}; {}", many, first.details);
                self.since(*kind, "", (&first.summary, details), &first.todo, since);
            }
        }
    }
}

impl FoundConditions {
    /// Whether a condition of this kind holds; `None` where nothing can be said now. One that is known since when it holds counts once it
    /// has lasted so long that people are told: each of several removals that follow each other is short.
    pub fn holds(&self, kind: Kind, now: Time) -> Option<bool> {
        let lasts = |condition: &Condition| {
            let since = condition.since;
            since.is_none_or(|since| now.since(since) >= kind.patience())
        };
        let mut of_kind = self.there.values().filter(|one| one.kind == kind);
        let holds = of_kind.any(lasts);
        // The instance that decides now tells these.
        let elsewhere = self.no_turn && kind.knows() == Knows::Leader;
        (holds || elsewhere || !self.unknown.contains(&kind)).then_some(holds)
    }
}

/// All conditions that hold.
pub fn find(view: ConditionInput<'_>) -> FoundConditions {
    let mut seen = FoundConditions::default();
    of_daemon(&view, &mut seen);
    let fresh = view.turn.filter(|turn| view.now.since(turn.at) <= FRESH);
    match fresh {
        Some(turn) => of_turn(turn, view.now, &mut seen),
        None => {
            let of_turns = Kind::ALL.iter().map(|(kind, _)| *kind);
            let of_turns = of_turns.filter(|kind| kind.knows() == Knows::Leader);
            seen.unknown.extend(of_turns);
            seen.no_turn = true;
            seen.unknown.insert(Kind::NoLeader);
        }
    }
    seen.fold();
    seen
}

/// The daemon's own problems: subject, kind, what is wrong, what to do.
const OF_DAEMON: [(&str, Kind, &str, &str); 9] = [
    (
        "loop",
        Kind::LoopEnded,
        "The control loop cannot go on: nothing is made or removed.",
        "Mend what the message names; `journalctl -u pve-autoscaler` has the whole story. It tries again by itself.",
    ),
    (
        "kubeconfig",
        Kind::CredentialsEnd,
        "The credentials for Kubernetes end soon, or cannot be used.",
        "`pve-autoscaler kubeconfig` makes new ones.",
    ),
    (
        "configuration",
        Kind::ConfigurationInvalid,
        "The configuration file has errors; the next start will fail.",
        "`pve-autoscaler check` names the errors; then `systemctl reload pve-autoscaler`.",
    ),
    (
        "broker",
        Kind::BrokerDisagrees,
        "Daemon and broker do not agree, or the broker works badly.",
        "`systemctl reload pve-autoscaler` reloads both; `pve-autoscaler doctor` looks at both.",
    ),
    (
        "binding",
        Kind::BrokerDisagrees,
        "The broker serves another Kubernetes cluster: it lets nothing pass.",
        "`pve-autoscaler adopt` shows what is left of the other cluster, and lets this host serve the new one.",
    ),
    (
        "panic",
        Kind::Crashed,
        "The daemon ended by a fault of its own and was started anew.",
        "`pve-autoscaler support-bundle` writes what a bug report needs.",
    ),
    (
        "journal",
        Kind::DaemonFiles,
        "A file of the journal cannot be used: its machine may be left alone.",
        "`pve-autoscaler status` says which file and what to do with it.",
    ),
    (
        "access",
        Kind::DaemonFiles,
        "A file that the page needs cannot be used, or its certificate ends soon.",
        "Renew the file that `[web]` names.",
    ),
    (
        "web",
        Kind::DaemonFiles,
        "The page could not be moved to its new address.",
        "Mend `[web]`, then `systemctl reload pve-autoscaler`.",
    ),
];

fn of_daemon(view: &ConditionInput<'_>, seen: &mut FoundConditions) {
    for (subject, kind, summary, todo) in OF_DAEMON {
        if let Some(problem) = view.problems.get(subject) {
            let told_apart = matches!(kind, Kind::BrokerDisagrees | Kind::DaemonFiles);
            let subject = if told_apart { subject } else { "" };
            seen.add(kind, subject, summary, problem, todo);
        }
    }
    if view.not_recording {
        seen.add(
            Kind::NotRecording,
            "",
            "Decisions are not recorded: `pve-autoscaler history` has a gap.",
            "",
            "The log says why (`journalctl -u pve-autoscaler`): mostly the disk is full.",
        );
    }
    for (name, why) in view.failing {
        seen.add(
            Kind::NotificationFails,
            name,
            format!("The notification {name} cannot be sent."),
            why,
            &format!("Mend [notification.{name}]; `pve-autoscaler notify-test {name}` tries it."),
        );
    }
}

fn of_turn(turn: &Turn, now: Time, seen: &mut FoundConditions) {
    let snapshot = &turn.snapshot;
    if !snapshot.leader {
        if snapshot.lease.holder.is_empty() {
            let why = snapshot.lease.error.clone().unwrap_or_default();
            seen.add(
                Kind::NoLeader,
                "",
                "No instance holds the lease: nothing is made or removed.",
                why,
                "`pve-autoscaler status` says what hinders the election: mostly Kubernetes' API server cannot be reached.",
            );
        }
        seen.led_elsewhere = !snapshot.lease.holder.is_empty();
        return of_views(turn, now, seen);
    }
    of_views(turn, now, seen);
    of_holds(turn, seen);
    of_failures(turn, now, seen);
    of_templates(turn, seen);
    of_machines(turn, seen);
    of_pods(turn, now, seen);
    of_clocks(turn, seen);
    let report = &turn.decision.report;
    let warnings = report.warnings.iter().zip(&report.warnings_details);
    // A template's fault is told as that.
    let warnings =
        warnings.filter(|(_, of)| !matches!(of, Warning::NoTemplate { fault: Some(_), .. }));
    let warnings: Vec<&String> = warnings.map(|(text, _)| text).collect();
    if !warnings.is_empty() {
        seen.add(
            Kind::Warnings,
            "",
            format!("There are {}.", words::count(warnings.len(), "warning")),
            first(warnings.into_iter()),
            "`pve-autoscaler status` has them all, each with what is to be done.",
        );
    }
    if !turn.decision.report.unread.is_empty() {
        // What was not read yet looks as if it were well.
        seen.unknown.extend([
            Kind::PoolBelowMin,
            Kind::TemplateFault,
            Kind::RemovalStuck,
            Kind::Contradiction,
            Kind::PodsHeld,
            Kind::PodsWithoutPool,
            Kind::HostClock,
            Kind::Warnings,
        ]);
    }
}

/// Some texts, one after the other.
fn first(texts: impl Iterator<Item = impl AsRef<str>>) -> String {
    let (mut text, mut more) = (String::new(), 0);
    for (number, one) in texts.enumerate() {
        if number >= NAMED {
            more += 1;
        } else {
            if number > 0 {
                text.push_str("; ");
            }
            text.push_str(one.as_ref());
        }
    }
    if more > 0 {
        text = format!("{text}; and {more} more");
    }
    text
}

/// Whom a source is of: `Kubernetes`, or `region NAME`.
fn side(source: &str) -> String {
    match source.strip_prefix("pve/") {
        Some(region) => format!("region {region}"),
        None => "Kubernetes".to_owned(),
    }
}

/// What cannot be read, once for Kubernetes and once for each region.
fn of_views(turn: &Turn, now: Time, seen: &mut FoundConditions) {
    let limit = turn.settings.policy.scale_up.max_view_age;
    let snapshot = &turn.snapshot;
    let mut old: BTreeSet<String> = BTreeSet::new();
    for (name, source) in &snapshot.sources {
        if !source.complete || now.since(source.as_of) > limit {
            old.insert(side(name));
        }
    }
    if snapshot.cluster_id.is_none() {
        old.insert(side(""));
    }
    let troubles = trouble::find(snapshot, limit, now);
    for side in old {
        let ours = |text: &str| (side == "Kubernetes") != text.contains("pve/");
        let causes = troubles.iter().filter(|trouble| trouble.hinders);
        let causes = causes.filter(|trouble| ours(&trouble.effect));
        let causes = causes.map(ToString::to_string);
        seen.add(
            Kind::ViewOld,
            &side,
            format!("pve-autoscaler does not see {side}."),
            first(causes),
            "See to it that its API answers and takes the credentials; `pve-autoscaler doctor` looks at both.",
        );
    }
}

fn of_holds(turn: &Turn, seen: &mut FoundConditions) {
    let snapshot = &turn.snapshot;
    if let Some(reason) = &snapshot.paused {
        seen.add(
            Kind::Paused,
            "",
            "pve-autoscaler is paused.",
            reason,
            "`pve-autoscaler resume` ends it.",
        );
    }
    for hold in &turn.decision.report.holds {
        let why = hold.why.to_string();
        match (&hold.scope, &hold.why.held) {
            (_, Held::Paused { .. } | Held::NotLeader { .. } | Held::ScaleDownDisabled) => {}
            (Scope::Everything, _) => seen.add(
                Kind::HeldBack,
                "",
                "Everything is on hold: nothing is made or removed.",
                why,
                "`pve-autoscaler status` says what is to be mended; then it goes on by itself.",
            ),
            (_, Held::ClusterUnhealthy { .. }) => seen.add(
                Kind::HeldBack,
                "",
                "Too many nodes are not Ready: nothing is made or removed.",
                why,
                "See to the nodes (`kubectl get nodes`); it goes on by itself.",
            ),
            (Scope::Region(region), _) => seen.add(
                Kind::RegionHeldBack,
                region,
                format!("Nothing is done in the region {region}."),
                why,
                "`pve-autoscaler status` says what is to be mended; then it goes on by itself.",
            ),
            (Scope::Pool(pool), Held::BelowMin { have, min, .. }) => seen.add(
                Kind::PoolBelowMin,
                pool,
                format!(
                    "The pool {pool} has {have} of at least {min} nodes, and none may be made."
                ),
                why,
                "Raise the limit, or mend what the reason names.",
            ),
            _ => {}
        }
    }
}

/// Whether a pool waits after a failure. Between two waits lies another attempt, which is no end of it.
fn backs_off(turn: &Turn, pool: &str, backoff: &Backoff, now: Time) -> bool {
    let state = turn.decision.report.pools.get(pool);
    backoff.until > now || state.is_some_and(|state| state.coming > 0)
}

/// What to do about the failure that a back-off is for, as the beginning of a sentence; `general` where its cause is not known.
fn todo(backoff: &Backoff, general: &str) -> String {
    let advice = backoff.advice.as_deref().unwrap_or(general);
    let mut chars = advice.chars();
    let first = chars.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}

/// Pools and hosts that wait after failures.
fn of_failures(turn: &Turn, now: Time, seen: &mut FoundConditions) {
    let memory = &turn.decision.memory;
    for (pool, backoff) in &memory.backoff {
        if backs_off(turn, pool, backoff, now) {
            seen.add(
                Kind::PoolBacksOff,
                pool,
                format!("Machines of the pool {pool} fail, and it waits before it tries again."),
                backoff.words(),
                &format!(
                    "{}; `pve-autoscaler history --pool {pool}` has earlier failures, `pve-autoscaler retry {pool}` ends the wait.",
                    todo(backoff, "Mend the cause")
                ),
            );
        }
    }
    for (pool, hosts) in &memory.host_backoff {
        for (host, backoff) in hosts {
            if backoff.length > Span::ZERO && backoff.until > now {
                seen.add(
                    Kind::HostBacksOff,
                    format!("{pool}/{host}"),
                    format!(
                        "Machines of the pool {pool} fail on the host {host}, which it leaves out."
                    ),
                    backoff.words(),
                    &format!(
                        "{}; `pve-autoscaler retry {pool}` ends the wait.",
                        todo(backoff, &format!("Mend the cause on {host}"))
                    ),
                );
            }
        }
    }
}

fn of_templates(turn: &Turn, seen: &mut FoundConditions) {
    for (region, state) in &turn.snapshot.regions {
        for (template, copies) in &state.templates {
            let told = |copy: &TemplateCopy, fault: &ForeignText| {
                format!("VMID {} on {}: {fault}", copy.vmid, copy.host)
            };
            let faults = copies.iter().filter_map(|copy| {
                let fault = copy.fault.as_ref()?;
                Some(told(copy, fault))
            });
            let faults = first(faults);
            let shared = copies.iter().flat_map(|copy| {
                let shared = copy.shared_addresses.values();
                shared.map(move |fault| told(copy, fault))
            });
            let shared = first(shared);
            let at = format!("{region}/{template}");
            if !faults.is_empty() {
                seen.add(
                    Kind::TemplateFault,
                    at,
                    format!("The template {template} has a fault: no machine is made of it."),
                    faults,
                    "Mend the template, or build it anew with `pve-autoscaler template build`.",
                );
            } else if !shared.is_empty() {
                seen.add(
                    Kind::TemplateFault,
                    at,
                    format!("The template {template} has a fixed address, and pools whose machines would share it make none of it."),
                    shared,
                    "Take the address out of the template, or give the pool a network ([network.NAME]).",
                );
            }
        }
    }
}

/// Machines that are left alone, and those that do not go.
fn of_machines(turn: &Turn, seen: &mut FoundConditions) {
    for (name, machine) in &turn.snapshot.machines {
        if let Some(contradiction) = &machine.contradiction {
            seen.add(
                Kind::Contradiction,
                name,
                format!("Node and VM of the machine {name} contradict each other: it is left alone."),
                &contradiction.why,
                "Look at both (`kubectl get node`, `qm config`), and remove what does not belong there.",
            );
        }
        let Some((step, since)) = machine.step.filter(|(step, _)| *step >= Step::Drain) else {
            continue;
        };
        let failed = machine.failure.as_ref();
        let failed = failed.filter(|failure| failure.step >= Step::Drain);
        // One that was taken back works on, and its next removal is another.
        if machine.busy != Some(Busy::Down) && failed.is_none() {
            continue;
        }
        let waits = turn.waits.of(name).map(|wait| wait.what);
        let why = waits.or_else(|| failed.map(|failure| failure.message.clone()));
        seen.since(
            Kind::RemovalStuck,
            name,
            (
                format!("The machine {name} cannot be removed."),
                format!("step {step:?}: {}", why.unwrap_or_default()),
            ),
            "Do away with what it waits for; `pve-autoscaler explain node` says more, and Events at the node and its pods.",
            Some(since),
        );
    }
}

/// Pods that wait in vain: how many, and why those that wait longest.
fn of_pods(turn: &Turn, now: Time, seen: &mut FoundConditions) {
    let (mut held, mut unfit) = (Vec::new(), Vec::new());
    for (key, verdict) in &turn.decision.report.pods {
        let (list, why): (_, &Reasons) = match verdict {
            PodVerdict::Held { why } => (&mut held, why),
            PodVerdict::NoCompatiblePool { why } => (&mut unfit, why),
            _ => continue,
        };
        if let Some(pod) = turn.snapshot.cluster.pods.get(key) {
            list.push((pod.created, key, why));
        }
    }
    for (kind, mut pods, what, todo) in [
        (
            Kind::PodsHeld,
            held,
            "for a node that may not be made",
            "Raise the limit, mend what pools wait for, or make room on the hosts; `pve-autoscaler explain pod` says what it takes.",
        ),
        (
            Kind::PodsWithoutPool,
            unfit,
            "that no pool could ever run",
            "Change the pod, or add an instance type or a pool; `pve-autoscaler explain pod` says what is missing.",
        ),
    ] {
        pods.sort_by_key(|(created, key, _)| (*created, *key));
        let Some((oldest, _, _)) = pods.first() else {
            continue;
        };
        let many = match pods.len() {
            1 => "A pod waits".to_owned(),
            many => format!("{many} pods wait"),
        };
        let named = || pods.iter().take(NAMED);
        let names = named().map(|(_, key, why)| {
            let why = why.iter().next();
            let why = why.map_or_else(String::new, |(pool, why)| format!(" ({pool}: {why})"));
            format!("{}/{}{why}", key.namespace, key.name)
        });
        let mut names = first(names);
        if pods.len() > NAMED {
            let _ = write!(names, "; and {} more", pods.len() - NAMED);
        }
        // That a pool backs off says what is not done; what a person must mend is what failed.
        let pools: BTreeSet<&str> = named()
            .filter_map(|(_, _, why)| why.keys().next())
            .map(|place| place.split('/').next().unwrap_or(place))
            .collect();
        for pool in pools {
            let backoff = turn.decision.memory.backoff.get(pool);
            if let Some(backoff) = backoff.filter(|backoff| backs_off(turn, pool, backoff, now)) {
                let _ = write!(names, "; {pool} backs off because of: {}", backoff.message);
            }
        }
        seen.since(
            kind,
            "",
            (format!("{many} {what}."), names),
            todo,
            Some(*oldest),
        );
    }
}

fn of_clocks(turn: &Turn, seen: &mut FoundConditions) {
    for (region, there) in &turn.snapshot.regions {
        for (host, state) in &there.hosts {
            let Some(ahead) = state.clock_ahead.filter(|ahead| ahead.0.abs() > CLOCK.0) else {
                continue;
            };
            let way = if ahead.0 < 0 { "behind" } else { "ahead of" };
            seen.add(
                Kind::HostClock,
                format!("{region}/{host}"),
                format!("The clock of the host {host} is wrong."),
                format!("It is {} {way} this host's.", Span(ahead.0.abs() / 1000 * 1000)),
                "Set it, and see to its time service (`timedatectl`): certificates and timers need clocks that agree.",
            );
        }
    }
}

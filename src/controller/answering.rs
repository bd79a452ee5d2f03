//! Answering commands: those that come by the control socket, and those of who is logged in on the page. The service and the
//! demo answer alike; what the service alone can do, it does before it asks here.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::controller::answers::{self, TurnQuestion};
use crate::controller::askers::PersonOrder;
use crate::controller::control::{
    ControlAnswer, ControlCommand, EvacuationAnswer, EvacuationOrder, unsigned_reason,
};
use crate::controller::state::{StateError, StateFiles};
use crate::controller::status::DaemonStatus;
use crate::controller::turn::Turn;
use crate::model::memory::{Backoff, Memory};
use crate::model::reasons::Held;
use crate::model::region::RegionName;
use crate::model::report::{Hold, Report, Scope};
use crate::model::snapshot::Snapshot;
use crate::model::time::Time;
use crate::model::words;

/// An answer to `retry` waits this long for the turn in which waits end, for which regions are read; with [`PLAN_PATIENCE`] before it, less
/// than the 30 seconds that whoever asks waits for an answer.
const RETRY_PATIENCE: Duration = Duration::from_secs(18);
/// An answer to `plan` waits this long for a fresh turn.
const PLAN_PATIENCE: Duration = Duration::from_secs(10);

/// The parts of a daemon from which commands are answered.
#[derive(Clone)]
pub struct Answering {
    /// The state directory, where a pause and retries lie.
    pub state: StateFiles,
    /// The turns as they come.
    pub turns: watch::Receiver<Option<Arc<Turn>>>,
    /// Asks for a turn.
    pub wake_up: Arc<Notify>,
    /// How things stand.
    pub status: Arc<dyn Fn() -> DaemonStatus + Send + Sync>,
}

impl fmt::Debug for Answering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answering").finish_non_exhaustive()
    }
}

impl Answering {
    /// Does what is asked, and says what came of it. `by`: who asks, as the log and the record have it.
    pub async fn answer(&self, command: ControlCommand, by: &str) -> ControlAnswer {
        let question = match command {
            ControlCommand::Status => return answers::json(&(self.status)()),
            ControlCommand::Pause { reason } => return self.paused(Some(&reason), by).await,
            ControlCommand::Resume => return self.paused(None, by).await,
            ControlCommand::Retry { pool } => return self.retried(&pool, by).await,
            ControlCommand::Evacuate(order) => return self.evacuated(order, by).await,
            ControlCommand::NotifyTest { .. } => {
                return ControlAnswer::Error("nobody is notified: the configuration has no table [notification.NAME]; docs/notifications.md has one of each kind".to_owned());
            }
            ControlCommand::Snapshot => TurnQuestion::Snapshot,
            ControlCommand::Plan => TurnQuestion::Plan,
            ControlCommand::ExplainPod { pod } => TurnQuestion::Pod(pod),
            ControlCommand::ExplainNode { node } => TurnQuestion::Node(node),
            ControlCommand::Names { kind, prefix } => {
                // Names as they were last seen do: whoever presses Tab does not wait for a turn.
                return match &*self.turns.borrow() {
                    Some(turn) => TurnQuestion::Names(kind, prefix).answer(turn),
                    None => answers::json(&[(); 0]),
                };
            }
        };
        match self.fresh().await {
            Some(turn) => told(question, turn).await,
            None => ControlAnswer::Error((self.status)().line()),
        }
    }

    /// Notes who asks. Where that cannot be written, what is asked is done all the same if it can be, and only who asked stays unknown.
    fn note_asker(&self, order: PersonOrder<'_>, by: &str) {
        if let Err(error) = self.state.note_asker(order, by) {
            tracing::error!(%error, by, "who asks will not be in the record");
        }
    }

    /// Begins or ends a pause, and answers once that holds for what is decided: whether there was one before.
    async fn paused(&self, reason: Option<&str>, by: &str) -> ControlAnswer {
        let before = self.state.paused();
        // On a full disk a pause can still be ended: that takes a file away.
        if reason.is_none() && before.is_some() {
            self.note_asker(PersonOrder::Resume, by);
        }
        match self.state.set_paused(reason) {
            Ok(()) => {
                match reason {
                    Some(signed) => {
                        let reason = unsigned_reason(signed, by);
                        tracing::warn!(reason, by, "paused");
                    }
                    None => tracing::info!(by, "resumed"),
                }
                let turn = self.fresh().await;
                if reason.is_none()
                    && let Some(still) = turn.and_then(|turn| turn.snapshot.paused.clone())
                {
                    return ControlAnswer::Error(format!(
                        "no pause holds any more, and everything stays on hold all the same: {still}"
                    ));
                }
                ControlAnswer::Ok(match (reason, before) {
                    // Whoever pauses anew learns what the reason was.
                    (Some(_), Some(before)) => before.into(),
                    (_, before) => before.is_some().into(),
                })
            }
            Err(error) => ControlAnswer::Error(error.to_string()),
        }
    }

    /// Ends the waits of a pool, and answers once nothing waits any more: what it waited for, in words.
    async fn retried(&self, name: &str, by: &str) -> ControlAnswer {
        let Some(turn) = self.fresh().await else {
            return ControlAnswer::Error((self.status)().line());
        };
        let pools = &turn.settings.policy.pools;
        if !pools.contains_key(name) {
            let names: Vec<&str> = pools.keys().map(|pool| &**pool).collect();
            return ControlAnswer::Error(format!(
                "there is no pool {name}; the pools are {}",
                words::names(&names)
            ));
        }
        if let Some(why) = out_of_reach(&turn, name) {
            return ControlAnswer::Error(format!(
                "{why}; nothing was changed: `retry` again when PVE can be read"
            ));
        }
        let mut waits = waits_of(&turn.decision.memory, name, turn.at);
        waits.extend(wait_for_a_working_one(&turn.decision.report, name));
        let order = PersonOrder::Retry { pool: name };
        self.note_asker(order, by);
        if let Err(error) = self.state.add_retry(name) {
            self.state.take_asker(order);
            return ControlAnswer::Error(error.to_string());
        }
        tracing::info!(pool = %name, by, ended = waits.len(), "a retry was asked for");
        // The loop has regions read before waits end.
        let mut turns = self.turns.clone();
        turns.mark_unchanged();
        self.wake_up.notify_one();
        let ended = async { while self.state.has_retries() && turns.changed().await.is_ok() {} };
        let _ = timeout(RETRY_PATIENCE, ended).await;
        answers::json(&waits)
    }

    /// Begins or ends the evacuation of a host, and answers once that holds for what is decided.
    async fn evacuated(&self, order: EvacuationOrder, by: &str) -> ControlAnswer {
        let Some(turn) = self.fresh().await else {
            return ControlAnswer::Error((self.status)().line());
        };
        let region = match region_of(&turn, &order, &self.state) {
            Ok(region) => region,
            Err(why) => return ControlAnswer::Error(why),
        };
        let host = &*order.host;
        let changed = match self.carry_out(&region, &order, (turn.at, by)) {
            Ok(changed) => changed,
            Err(error) => return ControlAnswer::Error(error.to_string()),
        };
        if order.end {
            tracing::info!(%region, host, by, "its evacuation is ended");
        } else {
            tracing::warn!(%region, host, by, "it is evacuated");
        }
        let turn = self.fresh().await.unwrap_or(turn);
        let (snapshot, report) = (&turn.snapshot, &turn.decision.report);
        answers::json(&tell_what_is_there(
            snapshot,
            report,
            (&region, host),
            changed,
        ))
    }

    /// Begins or ends an evacuation, and notes who asks; says whether that is new.
    fn carry_out(
        &self,
        region: &RegionName,
        order: &EvacuationOrder,
        (now, by): (Time, &str),
    ) -> Result<bool, StateError> {
        let host = &*order.host;
        // What holds already is no news: whoever asked for it first is told.
        if self.state.is_evacuated(region, host)? != order.end {
            return Ok(false);
        }
        let noted = if order.end {
            PersonOrder::EndEvacuation { region, host }
        } else {
            PersonOrder::Evacuate { region, host }
        };
        self.note_asker(noted, by);
        let done = if order.end {
            self.state.end_evacuation(region, host)
        } else {
            self.state.evacuate(region, host, now)
        };
        if done.is_err() {
            self.state.take_asker(noted);
        }
        done
    }

    /// A turn taken after the question, or the last one if none comes; none where nothing is configured.
    async fn fresh(&self) -> Option<Arc<Turn>> {
        if !(self.status)().configured {
            return None;
        }
        let mut turns = self.turns.clone();
        turns.mark_unchanged();
        self.wake_up.notify_one();
        let _ = timeout(PLAN_PATIENCE, turns.changed()).await;
        turns.borrow().clone()
    }
}

/// The answer of a turn; one for which the record may be read is made beside the loop.
async fn told(question: TurnQuestion, turn: Arc<Turn>) -> ControlAnswer {
    if !matches!(question, TurnQuestion::Node(_) | TurnQuestion::Pod(_)) {
        return question.answer(&turn);
    }
    let told = tokio::task::spawn_blocking(move || question.answer(&turn));
    told.await.unwrap_or_else(|error| {
        ControlAnswer::Error(format!("the explanation was not made: {error}"))
    })
}

/// Why no machine of a pool could be made now: PVE answers in none of its regions.
fn out_of_reach(turn: &Turn, pool: &str) -> Option<String> {
    let pool = turn.settings.policy.pools.get(pool)?;
    let mut away = Vec::new();
    for region in turn.snapshot.regions.keys() {
        if pool.at(region).is_none() {
            continue;
        }
        let source = turn.snapshot.sources.get(&*format!("pve/{region}"));
        let why = source.and_then(|source| source.reason())?;
        away.push(format!("PVE of region {region} cannot be read: {why}"));
    }
    (!away.is_empty()).then(|| away.join("; "))
}

/// What a host has whose evacuation began or ended, and what keeps that for now.
fn tell_what_is_there(
    snapshot: &Snapshot,
    report: &Report,
    (region, host): (&RegionName, &str),
    changed: bool,
) -> EvacuationAnswer {
    let machines = snapshot.machines.iter();
    let there = machines.filter(|(_, one)| one.region == *region && *one.host == *host);
    let machines: Vec<Arc<str>> = there.map(|(name, _)| name.clone()).collect();
    let coming = machines
        .iter()
        .filter(|name| report.coming.contains_key(*name));
    let seen = snapshot.regions.get(region);
    let seen = seen.and_then(|seen| seen.hosts.get(host));
    // A person's order counts where scale-down is switched off, too.
    let concerns = |hold: &&Hold| match &hold.scope {
        Scope::Everything => true,
        Scope::ScaleDown => hold.why.held != Held::ScaleDownDisabled,
        Scope::Region(of) => of == region,
        Scope::ScaleUp | Scope::Pool(_) => false,
    };
    let held = report.holds.iter().find(concerns);
    EvacuationAnswer {
        changed,
        coming: coming.cloned().collect(),
        machines,
        offline: seen.is_some_and(|seen| !seen.online),
        held: held.map(|hold| hold.why.to_string()),
    }
}

/// The region of a host that is to be evacuated, or not any more. One that PVE has no more can still be given back.
fn region_of(
    turn: &Turn,
    order: &EvacuationOrder,
    state: &StateFiles,
) -> Result<RegionName, String> {
    let host = &*order.host;
    let noted = state.evacuations().map_err(|error| error.to_string())?;
    let regions = &turn.snapshot.regions;
    let all: BTreeSet<&RegionName> = regions.keys().chain(noted.keys()).collect();
    let mut asked = all.clone();
    if let Some(region) = &order.region {
        asked.retain(|name| ***name == **region);
    }
    if asked.is_empty() {
        let region = order.region.as_deref().unwrap_or_default();
        let names = words::names(all);
        return Err(format!(
            "there is no region {region}; the regions are {names}"
        ));
    }
    let has = |name: &RegionName| {
        let seen = regions
            .get(name)
            .is_some_and(|of| of.hosts.contains_key(host));
        let noted = noted.get(name).is_some_and(|of| of.contains_key(host));
        seen || (order.end && noted)
    };
    let found: Vec<&RegionName> = asked.iter().copied().filter(|name| has(name)).collect();
    match &found[..] {
        [region] => Ok((*region).clone()),
        [] => {
            let seen = asked
                .iter()
                .filter_map(|name| Some((*name, regions.get(*name)?)));
            let hosts = seen.flat_map(|(name, region)| {
                let hosts = region.hosts.keys();
                hosts.map(move |other| words::at(name, other))
            });
            let hosts = words::names(hosts);
            let sources: Vec<String> = asked.iter().map(|name| format!("pve/{name}")).collect();
            let why = answers::unsure(turn, sources.iter().map(String::as_str));
            let why = why.map_or_else(String::new, |why| format!("; {why}"));
            Err(format!(
                "there is no host {host}; the hosts are {hosts}{why}"
            ))
        }
        several => Err(format!(
            "several regions have a host {host}: say which by --region: {}",
            words::names(several)
        )),
    }
}

/// A pool that is on hold though nothing of it is known to have failed, as a phrase: its machines are older than the memory.
fn wait_for_a_working_one(report: &Report, pool: &str) -> Option<String> {
    let mut holds = report.holds.iter();
    let hold = holds.find(|hold| {
        matches!(hold.why.held, Held::NoneWorks)
            && matches!(&hold.scope, Scope::Pool(name) if **name == *pool)
    })?;
    let until = hold.until?;
    Some(format!("the pool until {until}: {}", hold.why.held))
}

/// A pool's back-offs that still run, its own and those of its hosts, each as a phrase such as `its host pve1 until … after: …`.
fn waits_of(memory: &Memory, pool: &str, now: Time) -> Vec<String> {
    let mut waits = Vec::new();
    let mut add = |whom: String, backoff: &Backoff| {
        if backoff.until > now {
            waits.push(format!(
                "{whom} until {} after: {}",
                backoff.until, backoff.message
            ));
        }
    };
    if let Some(backoff) = memory.backoff.get(pool) {
        add("the pool".to_owned(), backoff);
    }
    for (host, backoff) in memory.host_backoff.get(pool).into_iter().flatten() {
        add(format!("its host {host}"), backoff);
    }
    waits
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::cpus::CpuSet;
    use crate::model::mark::Mark;
    use crate::model::region::{Host, Machine, Region, Step};
    use crate::model::report::ComingMachine;

    #[test]
    fn a_retry_names_the_wait_for_machines_older_than_the_memory() {
        let mut report = Report::default();
        let hold = |pool: &str, held: Held| Hold {
            until: Some(Time(60_000)),
            ..Hold::new(Scope::Pool(pool.into()), held)
        };
        report.holds = vec![
            hold("a", Held::BacksOff { failure: None }),
            hold("b", Held::NoneWorks),
        ];
        assert_eq!(wait_for_a_working_one(&report, "a"), None);
        let told = wait_for_a_working_one(&report, "b").expect("it is on hold");
        assert!(
            told.starts_with("the pool until 1970-01-01T00:01:00Z: it has machines from before"),
            "{told}"
        );
    }

    /// A machine of the region home.
    fn machine(name: &str, host: &str) -> (Arc<str>, Machine) {
        let mark = Mark {
            cluster: "uid/home".into(),
            machine: name.into(),
            vmid: 9000,
            pool: "p".into(),
            instance_type: "s".into(),
            template: "debian".into(),
            token: "abcdef".into(),
            created: Time(0),
            addresses: std::collections::BTreeMap::new(),
            cpus: CpuSet::new(),
            unknown: [].into(),
        };
        let machine = Machine {
            terms: None,
            region: "home".into(),
            host: host.into(),
            mark: mark.into(),
            storages: crate::model::chosen_storages::ChosenStorages::default(),
            intended: true,
            vm: None,
            node: None,
            contradiction: None,
            remembered: None,
            step: Some((Step::Done, Time(0))),
            failure: None,
            busy: None,
        };
        (name.into(), machine)
    }

    /// It says what keeps the machines of that host, and not what holds back others.
    #[test]
    fn an_evacuated_host_has_its_machines_and_what_keeps_them() {
        let view = json!({"version": 1, "taken": "2026-01-02T00:00:00Z", "sources": {}, "leader": true,
            "cluster": {}, "regions": {}, "machines": {}});
        let mut snapshot: Snapshot = serde_json::from_value(view).expect("a view");
        let mut region = Region::default();
        for (name, online) in [("pve1", true), ("pve2", false)] {
            let host = Host {
                online,
                ..Host::default()
            };
            region.hosts.insert(name.into(), host);
        }
        snapshot.regions.insert("home".into(), region.into());
        let machines = [("a", "pve1"), ("b", "pve1"), ("c", "pve2")];
        snapshot
            .machines
            .extend(machines.map(|(name, host)| machine(name, host)));
        let mut report = Report::default();
        let coming = ComingMachine {
            pool: "p".into(),
            instance_type: "s".into(),
            region: "home".into(),
            host: "pve1".into(),
            vmid: 9000,
            given_up: None,
        };
        report.coming.insert("b".into(), coming);
        let home: RegionName = "home".into();
        let told = |report: &Report, host: &str| {
            tell_what_is_there(&snapshot, report, (&home, host), true)
        };
        let named = |names: &[&str]| -> Vec<Arc<str>> {
            names.iter().map(|name| Arc::from(*name)).collect()
        };
        let wanted = EvacuationAnswer {
            changed: true,
            machines: named(&["a", "b"]),
            coming: named(&["b"]),
            offline: false,
            held: None,
        };
        assert_eq!(told(&report, "pve1"), wanted);
        let other = EvacuationAnswer {
            machines: named(&["c"]),
            coming: Vec::new(),
            offline: true,
            ..wanted.clone()
        };
        assert_eq!(told(&report, "pve2"), other);
        let quorum = |region: &str| {
            let scope = Scope::Region(region.into());
            let region = region.into();
            Hold::new(scope, Held::NoQuorum { region })
        };
        report.holds = vec![
            Hold::new(Scope::ScaleUp, Held::NoClusterId),
            Hold::new(Scope::ScaleDown, Held::ScaleDownDisabled),
            quorum("away"),
        ];
        assert_eq!(told(&report, "pve1"), wanted);
        report.holds.push(quorum("home"));
        let held = EvacuationAnswer {
            held: Some(report.holds[3].why.to_string()),
            ..wanted
        };
        assert_eq!(told(&report, "pve1"), held);
    }
}

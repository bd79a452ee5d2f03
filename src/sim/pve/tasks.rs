//! Tasks: forked workers with UPIDs, their status, log and lists.

use std::time::Duration;

use futures::future::BoxFuture;
use rand::RngExt as _;
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::CheckedCall;
use super::Pve;
use super::wire::{ErrorAnswer, paged};
use super::world::PveWorld;
use crate::model::time::Time;

/// How the end of a task begins that went well and warned; their number follows.
const WARNINGS: &str = "WARNINGS: ";
/// Tasks kept; PVE keeps about as many in its index files.
const MAX_TASKS: usize = 20_000;
/// How many a list has unless told.
const DEFAULT_LIMIT: usize = 50;
/// How many finished tasks `/cluster/tasks` shows (PVE::API2::Cluster: the last 25 of each node).
const CLUSTER_TASKS: usize = 25;

/// A task.
#[derive(Clone, Debug)]
pub(super) struct WorkerTask {
    pub(super) upid: String,
    pub(super) node: String,
    pub(super) pid: u32,
    pub(super) pstart: u32,
    pub(super) start: Time,
    pub(super) kind: &'static str,
    pub(super) id: String,
    pub(super) user: String,
    pub(super) end: Option<Time>,
    /// The last line of the log: `OK`, or what went wrong.
    pub(super) exit: String,
    pub(super) log: Vec<String>,
    /// How many of its lines were warnings (`log_warn`): one that ends well ends with their number.
    warnings: u32,
    /// Somebody asked it to stop.
    pub(super) cancel: CancellationToken,
    /// It is gone without a last word.
    killed: CancellationToken,
    /// Set at its end.
    ended: CancellationToken,
}

impl WorkerTask {
    /// `root@pam!name` as user and token name.
    fn who(&self) -> (&str, Option<&str>) {
        match self.user.split_once('!') {
            Some((user, token)) => (user, Some(token)),
            None => (&self.user, None),
        }
    }

    fn row(&self) -> Value {
        let (user, token) = self.who();
        let mut row = json!({
            "upid": self.upid, "node": self.node, "pid": self.pid, "pstart": self.pstart,
            "starttime": self.start.0 / 1_000, "type": self.kind, "id": self.id, "user": user,
        });
        if let Some(token) = token {
            row["tokenid"] = json!(token);
        }
        if let Some(end) = self.end {
            row["endtime"] = json!(end.0 / 1_000);
            row["status"] = json!(self.exit);
        }
        row
    }

    fn failed(&self) -> bool {
        self.end.is_some() && self.exit != "OK" && !self.exit.starts_with(WARNINGS)
    }
}

/// What a worker has at hand.
#[derive(Clone, Debug)]
pub(super) struct Worker {
    pub(super) pve: Pve,
    pub(super) upid: String,
    pub(super) user: String,
    pub(super) cancel: CancellationToken,
}

impl Worker {
    /// Writes a line into the task's log.
    pub(super) fn log(&self, line: impl Into<String>) {
        let line = line.into();
        self.pve.world(|world, _| {
            if let Some(task) = world.tasks.get_mut(&self.upid) {
                task.log.push(line);
            }
        });
    }

    /// Writes a warning into it (`PVE::RESTEnvironment::log_warn`).
    pub(super) fn warn(&self, line: &str) {
        self.log(format!("WARN: {line}"));
        self.pve.world(|world, _| {
            if let Some(task) = world.tasks.get_mut(&self.upid) {
                task.warnings += 1;
            }
        });
    }
}

/// What a worker's end is: nothing, or its last words.
pub(super) type WorkerEnd = Result<(), String>;

fn is_upid(text: &str) -> bool {
    text.split(':').count() == 9 && text.starts_with("UPID:")
}

impl Pve {
    /// Forks a worker on `node`; the answer is its UPID. `careful` workers mind a stop themselves.
    pub(super) fn fork<F>(
        &self,
        node: &str,
        kind: &'static str,
        id: &str,
        user: &str,
        careful: bool,
        work: F,
    ) -> Value
    where
        F: FnOnce(Worker) -> BoxFuture<'static, WorkerEnd>,
    {
        let task = self.world(|world, now| world.begin(node, kind, id, user, now));
        let worker = Worker {
            pve: self.clone(),
            upid: task.upid.clone(),
            user: user.to_owned(),
            cancel: task.cancel.clone(),
        };
        let future = work(worker);
        let pve = self.clone();
        let upid = task.upid.clone();
        tokio::spawn(async move {
            let stopped = async {
                if careful {
                    std::future::pending::<()>().await;
                }
                task.cancel.cancelled().await;
            };
            let outcome = tokio::select! {
                biased;
                () = task.killed.cancelled() => return,
                () = stopped => Err("received interrupt".to_owned()),
                outcome = future => outcome,
            };
            pve.world(|world, now| world.finish(&task.upid, outcome, now));
        });
        json!(upid)
    }

    /// A task's exit status, once it ends within the time.
    pub(super) async fn task_end(&self, upid: &str, within: Duration) -> Option<String> {
        let ended = self.world(|world, _| world.tasks.get(upid).map(|task| task.ended.clone()))?;
        timeout(within, ended.cancelled()).await.ok()?;
        self.world(|world, _| world.tasks.get(upid).map(|task| task.exit.clone()))
    }

    fn task<R>(
        &self,
        asked: &CheckedCall,
        read: impl FnOnce(&WorkerTask) -> R,
    ) -> Result<R, ErrorAnswer> {
        let upid = asked.text("upid");
        if !is_upid(upid) {
            return Err(ErrorAnswer::parameter(
                "upid",
                "unable to parse worker upid",
            ));
        }
        let found = self.world(|world, _| {
            let task = world
                .tasks
                .get(upid)
                .filter(|task| task.node == asked.node)?;
            let owner = task.who().0 == asked.caller.user();
            Some((owner, task.clone()))
        });
        let Some((owner, task)) = found else {
            return Err(ErrorAnswer::parameter("upid", "no such task"));
        };
        if !owner {
            self.need(
                &asked.caller,
                &format!("/nodes/{}", asked.node),
                &["Sys.Audit"],
            )?;
        }
        Ok(read(&task))
    }

    pub(super) fn task_index(&self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        self.task(asked, |_| json!([{ "name": "log" }, { "name": "status" }]))
    }

    pub(super) fn task_status(&self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        self.task(asked, |task| {
            let mut row = task.row();
            if let Value::Object(fields) = &mut row {
                fields.remove("endtime");
                fields.remove("status");
            }
            if task.end.is_some() {
                row["status"] = json!("stopped");
                row["exitstatus"] = json!(task.exit);
            } else {
                row["status"] = json!("running");
            }
            row
        })
    }

    pub(super) fn task_log(&self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        let start = asked.count("start").unwrap_or(0);
        let limit = asked
            .count("limit")
            .filter(|limit| *limit > 0)
            .unwrap_or(DEFAULT_LIMIT);
        let known = self.world(|world, _| world.tasks.contains_key(asked.text("upid")));
        if !known && is_upid(asked.text("upid")) {
            // PVE opens the file that the id names and shows what came of it.
            let line = json!({ "n": 1, "t": "unable to open file - No such file or directory" });
            return Ok(paged(&[line], 1));
        }
        self.task(asked, |task| {
            let mut lines = task.log.clone();
            if task.end.is_some() {
                lines.push(if task.exit == "OK" || task.exit.starts_with(WARNINGS) {
                    format!("TASK {}", task.exit)
                } else {
                    format!("TASK ERROR: {}", task.exit)
                });
            }
            if lines.is_empty() {
                // As `PVE::Tools::dump_logfile` does.
                lines.push("no content".to_owned());
            }
            let total = lines.len();
            let rows = lines.into_iter().enumerate().skip(start).take(limit);
            let rows: Vec<Value> = rows
                .map(|(at, text)| json!({ "n": at + 1, "t": text }))
                .collect();
            paged(&rows, total)
        })
    }

    pub(super) fn task_stop(&self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        let task = self.task(asked, WorkerTask::clone)?;
        if task.who().0 != asked.caller.user() {
            self.need(
                &asked.caller,
                &format!("/nodes/{}", asked.node),
                &["Sys.Modify"],
            )?;
        }
        task.cancel.cancel();
        Ok(Value::Null)
    }

    pub(super) fn task_list(&self, asked: &CheckedCall) -> Value {
        let start = asked.count("start").unwrap_or(0);
        let limit = asked.count("limit").unwrap_or(DEFAULT_LIMIT);
        let source = asked.given("source").unwrap_or("archive");
        let all = self.allowed(
            &asked.caller,
            &format!("/nodes/{}", asked.node),
            &["Sys.Audit"],
        );
        self.world(|world, _| {
            let newest = world
                .task_order
                .iter()
                .rev()
                .filter_map(|upid| world.tasks.get(upid));
            let chosen: Vec<Value> = newest
                .filter(|task| task.node == asked.node)
                .filter(|task| match source {
                    "archive" => task.end.is_some(),
                    "active" => task.end.is_none(),
                    _ => true,
                })
                .filter(|task| all || task.who().0 == asked.caller.user())
                .filter(|task| asked.picks(task))
                .map(WorkerTask::row)
                .collect();
            let total = chosen.len();
            let page: Vec<Value> = chosen.into_iter().skip(start).take(limit).collect();
            paged(&page, total)
        })
    }

    pub(super) fn cluster_tasks(&self, asked: &CheckedCall) -> Value {
        let all = self.allowed(&asked.caller, "/", &["Sys.Audit"]);
        self.world(|world, _| {
            // PVE compares the task's user with the whole name of the caller: a token without
            // rights sees nothing, its own tasks included.
            let newest = world
                .task_order
                .iter()
                .rev()
                .filter_map(|upid| world.tasks.get(upid));
            let seen = newest.filter(|task| all || task.who().0 == asked.caller.name);
            let rows: Vec<Value> = seen
                .take(CLUSTER_TASKS * world.hosts.len())
                .map(WorkerTask::row)
                .collect();
            json!(rows)
        })
    }
}

impl CheckedCall {
    fn picks(&self, task: &WorkerTask) -> bool {
        let number = |name: &str| self.given(name).and_then(|text| text.parse::<i64>().ok());
        let start = task.start.0 / 1_000;
        let status = |filter: &str| {
            super::schema::split(filter).any(|wanted| match wanted {
                "ok" => task.exit == "OK",
                "warning" => task.exit.starts_with(WARNINGS),
                "error" => task.failed(),
                _ => task.end.is_none(),
            })
        };
        self.given("vmid").is_none_or(|vmid| task.id == vmid)
            && self
                .given("typefilter")
                .is_none_or(|kind| task.kind == kind)
            && self
                .given("userfilter")
                .is_none_or(|user| task.user.contains(user))
            && self.given("statusfilter").is_none_or(status)
            && number("since").is_none_or(|since| start >= since)
            && number("until").is_none_or(|until| start <= until)
            && (!self.flag("errors") || task.failed())
    }
}

impl PveWorld {
    fn begin(
        &mut self,
        node: &str,
        kind: &'static str,
        id: &str,
        user: &str,
        now: Time,
    ) -> WorkerTask {
        let pid = self.pid();
        let booted = self.hosts.get(node).map_or(now, |host| host.booted);
        let jiffies = now.since(booted).0 / 10;
        let pstart = u32::try_from(jiffies).unwrap_or(u32::MAX);
        let upid = format!(
            "UPID:{node}:{pid:08X}:{pstart:08X}:{:08X}:{kind}:{id}:{user}:",
            now.0 / 1_000
        );
        let task = WorkerTask {
            upid: upid.clone(),
            node: node.to_owned(),
            pid,
            pstart,
            start: now,
            kind,
            id: id.to_owned(),
            user: user.to_owned(),
            end: None,
            exit: String::new(),
            log: Vec::new(),
            warnings: 0,
            cancel: CancellationToken::new(),
            killed: CancellationToken::new(),
            ended: CancellationToken::new(),
        };
        self.tasks.insert(upid.clone(), task.clone());
        self.task_order.push_back(upid);
        if self.task_order.len() > MAX_TASKS
            && let Some(oldest) = self.task_order.pop_front()
        {
            self.tasks.remove(&oldest);
        }
        task
    }

    fn finish(&mut self, upid: &str, outcome: WorkerEnd, now: Time) {
        if let Some(task) = self.tasks.get_mut(upid).filter(|task| task.end.is_none()) {
            task.end = Some(now);
            task.ended.cancel();
            task.exit = match (outcome, task.warnings) {
                (Ok(()), 0) => "OK".to_owned(),
                (Ok(()), warnings) => format!("{WARNINGS}{warnings}"),
                (Err(words), _) => words.trim_end().replace('\n', " "),
            };
        }
    }

    /// The host lost its power: its workers are gone without a last line.
    pub(super) fn kill_tasks(&mut self, node: &str, now: Time) {
        let running = self
            .tasks
            .values()
            .filter(|task| task.node == node && task.end.is_none());
        for upid in running.map(|task| task.upid.clone()).collect::<Vec<_>>() {
            self.kill_task(&upid, now);
        }
    }

    /// A worker is killed: what it began stays as it is.
    pub(super) fn kill_task(&mut self, upid: &str, now: Time) -> bool {
        let Some(task) = self.tasks.get(upid).filter(|task| task.end.is_none()) else {
            return false;
        };
        task.killed.cancel();
        self.killed += 1;
        self.finish(upid, Err("unexpected status".to_owned()), now);
        true
    }
}

impl Pve {
    /// Sleeps as long as the range says.
    pub(super) async fn take(&self, range: [u64; 2]) {
        let millis = self.draw(range);
        if millis > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(millis)).await;
        }
    }

    /// Draws from a range.
    pub(super) fn draw(&self, [least, most]: [u64; 2]) -> u64 {
        if most <= least {
            least
        } else {
            self.world(|world, _| world.rng.random_range(least..=most))
        }
    }
}

//! What the calls take and give.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::perl::{self, Fields};
use super::rows::ODD;
use super::texts;
use super::upid::Upid;
use crate::model::foreign::{self, ForeignOutput, ForeignText};

/// `GET /broker/info`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BrokerInfo {
    /// The broker's version; it should be the daemon's.
    pub version: String,
    /// Hash of the policy it holds calls against; it should be that of the daemon's file.
    pub policy_hash: String,
    /// `https`, or `perl` while the HTTP API cannot be used.
    pub channel: String,
    /// PVE's version, when PVE answers.
    pub pve_version: Option<String>,
    /// What went wrong last on the way to PVE, if it has not worked since.
    pub last_error: Option<ForeignText>,
    /// The id of the cluster that it serves; `None` until its first change, and from an older broker.
    pub cluster: Option<String>,
}

impl BrokerInfo {
    pub(super) fn read(data: &Value) -> BrokerInfo {
        let fields = Fields::of(data);
        BrokerInfo {
            version: fields.text("version").unwrap_or_default(),
            policy_hash: fields.text("policy_hash").unwrap_or_default(),
            channel: fields.text("channel").unwrap_or_default(),
            pve_version: fields.text("pve_version"),
            last_error: fields.text("last_error").map(ForeignText::from),
            cluster: fields.text("cluster"),
        }
    }
}

/// `GET /version`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PveVersion {
    /// Such as `9.2.11`.
    pub version: String,
    /// Such as `9.2`.
    pub release: String,
}

impl PveVersion {
    pub(super) fn read(data: &Value) -> PveVersion {
        let fields = Fields::of(data);
        PveVersion {
            version: fields.text("version").unwrap_or_default(),
            release: fields.text("release").unwrap_or_default(),
        }
    }

    /// The release, such as `(9, 2)`; `None` when it cannot be read.
    pub fn release(&self) -> Option<(u32, u32)> {
        release_of(&self.version)
    }

    /// The major version: 8, 9 …; 0 when it cannot be read.
    pub fn major(&self) -> u32 {
        let first = self.version.split('.').next().unwrap_or_default();
        first.parse().unwrap_or(0)
    }
}

/// `GET /cluster/status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterStatus {
    /// The cluster's name; `None` on a single host.
    pub name: Option<String>,
    /// The cluster has quorum; a single host always has.
    pub quorate: bool,
    /// The hosts by name.
    pub members: BTreeMap<Arc<str>, Member>,
    /// Why the row of a host of which not even the name can be read cannot be: a host that has no row is that one.
    pub nameless: Option<ForeignText>,
}

/// A host as the cluster sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// It is part of the cluster now.
    pub online: bool,
    /// It is the one that answered.
    pub local: bool,
    /// The host's address in the cluster network.
    pub address: Option<String>,
    /// Why its row cannot be read: whether it is online is not known.
    pub odd: Option<ForeignText>,
}

impl ClusterStatus {
    /// The hosts' addresses in the cluster's network.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let members = self.members.values();
        members.filter_map(|member| member.address.as_ref()?.parse().ok())
    }

    pub(super) fn read(data: &Value) -> ClusterStatus {
        let mut status = ClusterStatus {
            // Without an entry of type `cluster` there is no corosync and nothing to lose.
            quorate: true,
            ..ClusterStatus::default()
        };
        for entry in data.as_array().into_iter().flatten() {
            let fields = Fields::of(entry);
            let name = fields.text("name").unwrap_or_default();
            match fields.text("type").as_deref() {
                Some("cluster") => {
                    status.quorate = fields.flag("quorate");
                    status.name = Some(name);
                }
                Some("node") => {
                    let odd = fields.text(ODD).map(ForeignText::from);
                    if name.is_empty() {
                        status.nameless = odd;
                        continue;
                    }
                    let member = Member {
                        online: fields.flag("online"),
                        local: fields.flag("local"),
                        address: fields.text("ip"),
                        odd,
                    };
                    status.members.insert(name.into(), member);
                }
                _ => {}
            }
        }
        // An answer that names no host is no answer about quorum, nor is one that names hosts of no cluster.
        let hosts = status.members.len() + usize::from(status.nameless.is_some());
        let known = hosts == 1 || status.name.is_some();
        status.quorate &= known && hosts > 0;
        status
    }
}

/// `GET /nodes/{node}/status`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeStatus {
    /// Logical CPUs.
    pub cpus: u32,
    /// Physical cores of all sockets.
    pub cores: u32,
    /// Sockets.
    pub sockets: u32,
    /// CPU model.
    pub cpu_model: String,
    /// The CPU's flags, as /proc/cpuinfo has them; none where they are not told.
    pub cpu_flags: BTreeSet<String>,
    /// CPU in use, 0 to 1; the first reading of an API worker can be either end.
    pub cpu_used: f64,
    /// Load averages over 1, 5 and 15 minutes.
    pub load: Vec<f64>,
    /// Installed memory in bytes.
    pub memory: i64,
    /// Memory in use in bytes.
    pub memory_used: i64,
    /// Seconds since it booted.
    pub uptime: i64,
    /// Such as `pve-manager/9.2.11/…`.
    pub pve_version: String,
    /// Kernel.
    pub kernel: String,
}

impl NodeStatus {
    pub(super) fn read(data: &Value) -> NodeStatus {
        let fields = Fields::of(data);
        let (cpu, memory) = (fields.inner("cpuinfo"), fields.inner("memory"));
        NodeStatus {
            cpus: cpu.count("cpus"),
            cores: cpu.count("cores"),
            sockets: cpu.count("sockets"),
            cpu_model: cpu.text("model").unwrap_or_default(),
            cpu_flags: cpu
                .text("flags")
                .unwrap_or_default()
                .split_whitespace()
                .map(str::to_owned)
                .collect(),
            cpu_used: fields.number("cpu").unwrap_or(0.0),
            load: fields
                .get("loadavg")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(perl::number)
                .collect(),
            memory: memory.integer("total").unwrap_or(0),
            memory_used: memory.integer("used").unwrap_or(0),
            uptime: fields.integer("uptime").unwrap_or(0),
            pve_version: fields.text("pveversion").unwrap_or_default(),
            kernel: fields.text("kversion").unwrap_or_default(),
        }
    }
}

/// The release that a version such as `9.2.11` is of.
fn release_of(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split('.');
    let major = numbers.next()?.parse().ok()?;
    let minor = numbers.next().and_then(|minor| minor.parse().ok());
    Some((major, minor.unwrap_or(0)))
}

impl NodeStatus {
    /// The release of Proxmox VE that the host runs, such as `(9, 2)`; `None` when it cannot be read.
    pub fn release(&self) -> Option<(u32, u32)> {
        release_of(self.version()?)
    }

    /// The version of pve-manager that the host runs, such as `9.2.11`.
    pub fn version(&self) -> Option<&str> {
        self.pve_version.split('/').nth(1)
    }
}

/// `GET …/status/current`: the truth about a VM's state, by QEMU itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VmStatus {
    /// `status: running`.
    pub running: bool,
    /// QEMU's own word: `running`, `paused`, `stopped` …
    pub qmp: Option<Arc<str>>,
    /// The configuration's lock.
    pub lock: Option<Arc<str>>,
    /// Seconds since it started; 0 when stopped.
    pub uptime: i64,
    /// HA manages it: start and stop only change what HA wants.
    pub ha_managed: bool,
}

impl VmStatus {
    /// Why nothing runs in a VM that is on, if QEMU stopped its CPUs: by itself after an error, or because somebody paused it. PVE calls it `running` all the same.
    pub fn stopped_by_qemu(&self) -> Option<String> {
        let state = self.qmp.as_deref().filter(|_| self.running)?;
        let why = match state {
            "io-error" => {
                "its disk could not be written or read: is the storage full? `qm resume` lets it go on"
            }
            "internal-error" => {
                "the host's KVM could not go on; QEMU's words are in the host's journal"
            }
            "guest-panicked" => "its kernel panicked",
            "paused" | "suspended" => "somebody paused it; `qm resume` lets it go on",
            // `running`, and what passes by itself, such as `inmigrate`.
            _ => return None,
        };
        Some(format!("QEMU has stopped the VM ({state}): {why}"))
    }

    pub(super) fn read(data: &Value) -> VmStatus {
        let fields = Fields::of(data);
        let name = |key: &str| fields.text(key).filter(|text| !text.is_empty());
        VmStatus {
            running: fields.text("status").as_deref() == Some("running"),
            qmp: name("qmpstatus").map(Arc::from),
            lock: name("lock").map(Arc::from),
            uptime: fields.integer("uptime").unwrap_or(0),
            ha_managed: fields.inner("ha").flag("managed"),
        }
    }
}

/// Parameters of a clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloneVm {
    /// VMID of the new VM.
    pub newid: u32,
    /// Name of the new VM: a DNS name.
    pub name: String,
    /// Description of the new VM, whose last line is the mark.
    pub description: String,
    /// PVE resource pool.
    pub pool: Option<String>,
    /// The host it shall be on; only when every disk of the template is on shared storage.
    pub target: Option<String>,
    /// A full clone, to this storage or, when `None`, to the template's.
    pub full: Option<Option<String>>,
}

impl CloneVm {
    pub(super) fn params(&self) -> Vec<(String, String)> {
        let mut params = vec![
            ("newid".to_owned(), self.newid.to_string()),
            ("name".to_owned(), self.name.clone()),
            ("description".to_owned(), self.description.clone()),
        ];
        let mut add = |key: &str, value: &Option<String>| {
            if let Some(value) = value {
                params.push((key.to_owned(), value.clone()));
            }
        };
        add("pool", &self.pool);
        add("target", &self.target);
        if let Some(storage) = &self.full {
            add("full", &Some("1".to_owned()));
            add("storage", storage);
        }
        params
    }
}

/// Changes of a VM's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigUpdate {
    /// Keys with their new values. `sshkeys` must be percent-encoded already ([`super::percent`]).
    pub set: BTreeMap<String, String>,
    /// Keys to remove.
    pub delete: Vec<String>,
    /// Refuse when the configuration is no longer the one with this digest.
    pub digest: Option<Arc<str>>,
}

impl ConfigUpdate {
    pub(super) fn params(&self) -> Vec<(String, String)> {
        let mut params: Vec<(String, String)> = self.set.clone().into_iter().collect();
        if !self.delete.is_empty() {
            params.push(("delete".to_owned(), self.delete.join(",")));
        }
        if let Some(digest) = &self.digest {
            params.push(("digest".to_owned(), digest.to_string()));
        }
        params
    }
}

/// A task in a host's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The task's id, which names its host, what it does and who began it.
    pub upid: Upid,
    /// It has not ended.
    pub running: bool,
}

impl Task {
    pub(crate) fn read_all(data: &Value) -> Vec<Task> {
        data.as_array()
            .into_iter()
            .flatten()
            .map(Fields::of)
            .filter_map(|fields| {
                let status = fields.text("status").unwrap_or_default();
                Some(Task {
                    upid: fields.text("upid")?.parse().ok()?,
                    // pve-manager Tasks.pm writes RUNNING for what has no status yet.
                    running: fields.get("endtime").is_none()
                        && (status.is_empty() || status.eq_ignore_ascii_case("running")),
                })
            })
            .collect()
    }
}

/// How a task stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// It runs.
    Running,
    /// It succeeded.
    Ok,
    /// It succeeded, with warnings in its log.
    Warnings(ForeignText),
    /// It failed, with this text ([`super::FailureCause::of`] reads it).
    Failed(ForeignText),
}

impl TaskState {
    pub(crate) fn read(data: &Value) -> TaskState {
        let fields = Fields::of(data);
        if fields.text("status").as_deref() != Some("stopped") {
            return TaskState::Running;
        }
        // pve-common PVE/UPID.pm:91.
        let text = fields.text("exitstatus").unwrap_or_default();
        let warnings = text.strip_prefix("WARNINGS: ");
        if text == "OK" {
            TaskState::Ok
        } else if warnings.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit())) {
            TaskState::Warnings(text.into())
        } else if text.is_empty() {
            TaskState::Failed("it stopped without a status".into())
        } else {
            TaskState::Failed(texts::told(&text).into())
        }
    }
}

/// What a command in the guest left. It is given once: the read that sees it consumes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecResult {
    /// Exit code; `None` when a signal ended it.
    pub exit_code: Option<i64>,
    /// The signal that ended it.
    pub signal: Option<i64>,
    /// Standard output.
    pub stdout: ForeignOutput,
    /// Standard error.
    pub stderr: ForeignOutput,
    /// One of the two was cut.
    pub truncated: bool,
}

impl ExecResult {
    /// `None` while the command runs.
    pub(super) fn read(data: &Value) -> Option<ExecResult> {
        let fields = Fields::of(data);
        // PVE hands the guest's bytes out as if they were Latin-1.
        let output = |key| {
            foreign::from_latin1(&fields.text(key).unwrap_or_default())
                .as_ref()
                .into()
        };
        fields.flag("exited").then(|| ExecResult {
            exit_code: fields.integer("exitcode"),
            signal: fields.integer("signal"),
            stdout: output("out-data"),
            stderr: output("err-data"),
            truncated: fields.flag("out-truncated") || fields.flag("err-truncated"),
        })
    }
}

/// Deadlines of the calls.
pub(super) mod deadline {
    use super::Duration;

    /// A read that PVE answers from memory or one file.
    pub(crate) const READ: Duration = Duration::from_secs(10);
    /// A read that is proxied to another host, which may be slow or gone: pveproxy itself gives up
    /// after 30 s, a hanging host must not hold a turn that long.
    pub(crate) const READ_HOST: Duration = Duration::from_secs(15);
    /// A change: longer than pveproxy's own 30 s and the broker's, so that PVE's answer, not our
    /// impatience, decides the outcome.
    pub(crate) const CHANGE: Duration = Duration::from_secs(45);
    /// A ping of the agent: PVE waits 3 s for it.
    pub(crate) const PING: Duration = Duration::from_secs(15);
}

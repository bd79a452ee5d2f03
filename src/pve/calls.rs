//! Every call the program makes, each with its deadline. The broker's allow-list lists the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::client::Client;
use super::encode::path;
use super::load;
use super::perl::Fields;
use super::resources::{ClusterResources, GuestPromise};
use super::rows;
use super::sound::{self, Unsound};
use super::texts::{self, FailureCause};
use super::transport::{CallEffect, CallError, HttpMethod, PveRequest};
use super::types::{
    BrokerInfo, CloneVm, ClusterStatus, ConfigUpdate, ExecResult, NodeStatus, PveVersion, Task,
    TaskState, VmStatus, deadline,
};
use super::upid::Upid;
use super::vm_config::{VmConfig, option};
use crate::model::region::{GuestKind, HostLoad, MappedDevices};
use crate::model::time::Time;

/// Lines of a task's log asked for at once.
const LOG_PAGE: usize = 500;
/// The end of the year 9999, in seconds: no clock shows more.
const LAST_SECOND: i64 = 253_402_300_799;
/// Pages of a task's log read at most: a full clone's progress is some hundred lines.
const LOG_PAGES: usize = 8;
/// What PVE has in the place of the lines of a log that has none (pve-common, `PVE::Tools::dump_logfile`).
const NO_LINE: &str = "no content";
/// Largest input for a guest command in bytes (qemu-server PVE/API2/Qemu/Agent.pm, `input-data`).
pub const MAX_STDIN: usize = 64 * 1024;

type Params = Vec<(String, String)>;

pub(super) fn pair(key: &str, value: impl Into<String>) -> (String, String) {
    (key.to_owned(), value.into())
}

pub(super) fn request(
    call: &'static str,
    method: HttpMethod,
    path: String,
    params: Params,
    timeout: Duration,
) -> PveRequest {
    PveRequest {
        call,
        method,
        path,
        params,
        multipart: false,
        timeout,
    }
}

/// Whether a host of PVE may be called so.
pub(super) fn is_host(name: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !name.is_empty() && name.len() <= 63 && name.bytes().all(fine)
}

/// Host names come from PVE and go into paths: what is no host name is not sent.
pub(super) fn host_path(host: &str, rest: &[&str]) -> Result<String, CallError> {
    if !is_host(host) {
        let message = format!("{host:?} is no name of a PVE host");
        return Err(CallError::new(CallEffect::NotSent, message));
    }
    let mut segments = vec!["nodes", host];
    segments.extend_from_slice(rest);
    Ok(path(&segments))
}

pub(super) fn vm_path(host: &str, vmid: u32, rest: &[&str]) -> Result<String, CallError> {
    let id = vmid.to_string();
    let mut segments = vec!["qemu", id.as_str()];
    segments.extend_from_slice(rest);
    host_path(host, &segments)
}

/// An answer that cannot be used is none.
fn unsound(why: &str) -> CallError {
    CallError::new(
        CallEffect::Unknown,
        format!("PVE's answer cannot be used: {why}"),
    )
}

/// A task's id where one must be: without it the call's outcome cannot be followed.
fn upid(data: &Value) -> Result<Upid, CallError> {
    data.as_str()
        .unwrap_or_default()
        .parse()
        .map_err(|error| CallError::new(CallEffect::Unknown, format!("PVE's answer: {error}")))
}

/// Reads the data of `GET /cluster/mapping/pci`.
pub(super) fn read_mappings(data: &Value) -> BTreeMap<Arc<str>, MappedDevices> {
    let mut mappings = BTreeMap::new();
    for entry in data.as_array().into_iter().flatten() {
        let Some(id) = Fields::of(entry).text("id") else {
            continue;
        };
        let devices: &mut MappedDevices = mappings.entry(Arc::from(id)).or_default();
        let map = entry.get("map").and_then(Value::as_array);
        for device in map.into_iter().flatten().filter_map(Value::as_str) {
            if let (Some(host), Some(path)) = (option(device, "node"), option(device, "path")) {
                devices.entry(host.into()).or_default().push(path.into());
            }
        }
    }
    mappings
}

impl Client {
    pub(super) async fn get(
        &self,
        call: &'static str,
        path: String,
        params: Params,
        timeout: Duration,
    ) -> Result<Value, CallError> {
        self.send(request(call, HttpMethod::Get, path, params, timeout))
            .await
    }

    /// Reads what decides whose a VM is or what is done to it: an answer that cannot be read right is none, and
    /// may be asked for again.
    pub(super) async fn get_sound(
        &self,
        (call, path): (&'static str, String),
        params: Params,
        timeout: Duration,
        sound: impl Fn(&Value) -> Result<(), Unsound>,
    ) -> Result<Value, CallError> {
        let request = request(call, HttpMethod::Get, path, params, timeout);
        let named = request.clone();
        let data = self.send(request).await?;
        match sound(&data) {
            Ok(()) => Ok(data),
            Err(_) if planted!(AnswersNotChecked) => Ok(data),
            Err(why) => Err(unsound(&why).about(&named)),
        }
    }

    /// A list whose rows are mended one by one.
    async fn get_mended(
        &self,
        (call, path): (&'static str, String),
        timeout: Duration,
        mended: impl Fn(&Value) -> Result<Value, Unsound>,
    ) -> Result<Value, CallError> {
        let request = request(call, HttpMethod::Get, path, vec![], timeout);
        let named = request.clone();
        let data = self.send(request).await?;
        if planted!(AnswersNotChecked) {
            return Ok(data);
        }
        mended(&data).map_err(|why| unsound(&why).about(&named))
    }

    pub(super) async fn task(
        &self,
        call: &'static str,
        method: HttpMethod,
        path: String,
        params: Params,
    ) -> Result<Upid, CallError> {
        let request = request(call, method, path, params, deadline::CHANGE);
        let named = request.clone();
        let data = self.send(request).await?;
        upid(&data).map_err(|error| error.about(&named))
    }

    /// `GET /broker/info`, which only the broker has: its version and policy, and its own troubles.
    pub async fn broker_info(&self) -> Result<BrokerInfo, CallError> {
        let at = path(&["broker", "info"]);
        let data = self.get("broker_info", at, vec![], deadline::READ).await?;
        Ok(BrokerInfo::read(&data))
    }

    /// `GET /version`.
    pub async fn version(&self) -> Result<PveVersion, CallError> {
        let data = self
            .get("version", path(&["version"]), vec![], deadline::READ)
            .await?;
        Ok(PveVersion::read(&data))
    }

    /// `GET /cluster/status`: quorum and members.
    pub async fn cluster_status(&self) -> Result<ClusterStatus, CallError> {
        let at = path(&["cluster", "status"]);
        let asked = ("cluster_status", at);
        let data = self
            .get_mended(asked, deadline::READ, rows::cluster)
            .await?;
        Ok(ClusterStatus::read(&data))
    }

    /// `GET /cluster/resources`: hosts, guests and storages in one call.
    pub async fn resources(&self) -> Result<ClusterResources, CallError> {
        let at = path(&["cluster", "resources"]);
        let asked = ("resources", at);
        let data = self
            .get_mended(asked, deadline::READ, rows::resources)
            .await?;
        Ok(ClusterResources::read(&data))
    }

    /// `GET /nodes/{host}/status`: true capacity, now.
    pub async fn node_status(&self, host: &str) -> Result<NodeStatus, CallError> {
        let at = host_path(host, &["status"])?;
        let data = self
            .get("node_status", at, vec![], deadline::READ_HOST)
            .await?;
        Ok(NodeStatus::read(&data))
    }

    /// `GET /nodes/{host}/time`: the host's clock, to the second; `None` when the answer has none.
    pub async fn host_time(&self, host: &str) -> Result<Option<Time>, CallError> {
        let at = host_path(host, &["time"])?;
        let data = self
            .get("host_time", at, vec![], deadline::READ_HOST)
            .await?;
        let seconds = Fields::of(&data).integer("time");
        let seconds = seconds.filter(|seconds| (0..=LAST_SECOND).contains(seconds));
        Ok(seconds.map(|seconds| Time(seconds.saturating_mul(1_000))))
    }

    /// `GET /nodes/{host}/rrddata`: how loaded the host was of late.
    pub async fn host_load(&self, host: &str) -> Result<HostLoad, CallError> {
        let at = host_path(host, &["rrddata"])?;
        let params = [("timeframe", "hour"), ("cf", "AVERAGE")];
        let params = params.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let data = self
            .get("host_load", at, params.into(), deadline::READ_HOST)
            .await?;
        Ok(load::read(&data))
    }

    /// `GET /cluster/mapping/pci`: by mapping of PCI devices the hosts that have some, with the address of each device. PVE
    /// leaves out the mappings that the caller may not see.
    pub async fn pci_mappings(&self) -> Result<BTreeMap<Arc<str>, MappedDevices>, CallError> {
        let at = path(&["cluster", "mapping", "pci"]);
        let asked = ("pci_mappings", at);
        let data = self
            .get_sound(asked, vec![], deadline::READ, sound::mappings)
            .await?;
        Ok(read_mappings(&data))
    }

    /// `GET /pools`: the resource pools that the caller may audit.
    pub async fn pools(&self) -> Result<BTreeSet<String>, CallError> {
        let data = self
            .get("pools", path(&["pools"]), vec![], deadline::READ)
            .await?;
        let entries = data.as_array().into_iter().flatten().map(Fields::of);
        Ok(entries.filter_map(|entry| entry.text("poolid")).collect())
    }

    /// `GET /access/permissions`: the caller's privileges on a path. For tokens: the broker does not pass it.
    pub async fn permissions(&self, on: &str) -> Result<BTreeSet<String>, CallError> {
        let at = path(&["access", "permissions"]);
        let params = vec![pair("path", on)];
        let data = self.get("permissions", at, params, deadline::READ).await?;
        let held = data.get(on).and_then(Value::as_object);
        Ok(held
            .into_iter()
            .flatten()
            .map(|(name, _)| name.clone())
            .collect())
    }

    /// `GET /nodes/{host}/storage/{storage}/content`: the VM disks that lie there, each with the VMID that its name
    /// has. PVE leaves out what the caller may not see.
    pub async fn disks(
        &self,
        host: &str,
        storage: &str,
    ) -> Result<BTreeMap<String, u32>, CallError> {
        let at = host_path(host, &["storage", storage, "content"])?;
        let images = vec![pair("content", "images")];
        let data = self.get("disks", at, images, deadline::READ_HOST).await?;
        let entries = data.as_array().into_iter().flatten().map(Fields::of);
        let disks = entries.filter_map(|entry| {
            let vmid = u32::try_from(entry.integer("vmid")?).ok()?;
            Some((entry.text("volid")?, vmid))
        });
        Ok(disks.collect())
    }

    /// `GET …/qemu/{vmid}/config?current=1`: the values in force, not those that wait for the VM's next start.
    /// [`FailureCause::Gone`] also when the VM is on another host.
    pub async fn vm_config(&self, host: &str, vmid: u32) -> Result<VmConfig, CallError> {
        let in_force = vec![pair("current", "1")];
        self.config(host, vmid, in_force).await
    }

    /// `GET …/qemu/{vmid}/config`: the values that the VM has from its next start on, which a change of the
    /// configuration is compared with.
    pub async fn next_config(&self, host: &str, vmid: u32) -> Result<VmConfig, CallError> {
        self.config(host, vmid, vec![]).await
    }

    /// `GET …/{qemu,lxc}/{vmid}/config?current=1` of a guest that is not ours: what its host has to keep for it.
    /// [`FailureCause::Gone`] also when it is on another host. The broker tells no more of it than this.
    pub async fn guest_promise(
        &self,
        host: &str,
        kind: GuestKind,
        vmid: u32,
    ) -> Result<GuestPromise, CallError> {
        let at = match kind {
            GuestKind::Qemu => vm_path(host, vmid, &["config"])?,
            GuestKind::Lxc => host_path(host, &["lxc", &vmid.to_string(), "config"])?,
        };
        let (asked, in_force) = (("guest_promise", at), vec![pair("current", "1")]);
        let data = self
            .get_sound(asked, in_force, deadline::READ_HOST, sound::promise)
            .await?;
        Ok(GuestPromise::read(&data))
    }

    async fn config(
        &self,
        host: &str,
        vmid: u32,
        params: Vec<(String, String)>,
    ) -> Result<VmConfig, CallError> {
        let at = vm_path(host, vmid, &["config"])?;
        let asked = ("vm_config", at);
        let data = self
            .get_sound(asked, params, deadline::READ_HOST, sound::config)
            .await?;
        Ok(VmConfig::read(&data))
    }

    /// `GET …/qemu/{vmid}/status/current`.
    pub async fn vm_status(&self, host: &str, vmid: u32) -> Result<VmStatus, CallError> {
        let at = vm_path(host, vmid, &["status", "current"])?;
        let asked = ("vm_status", at);
        let sound = |data: &Value| sound::status(data, vmid);
        let data = self
            .get_sound(asked, vec![], deadline::READ_HOST, sound)
            .await?;
        Ok(VmStatus::read(&data))
    }

    /// `POST …/qemu/{template}/clone` on the template's host. The task's id names the *template* (PVE/API2/Qemu.pm:4749).
    pub async fn clone_vm(
        &self,
        host: &str,
        template: u32,
        clone: &CloneVm,
    ) -> Result<Upid, CallError> {
        let at = vm_path(host, template, &["clone"])?;
        let params = clone.params();
        self.task("clone", HttpMethod::Post, at, params).await
    }

    /// `POST /nodes/{host}/qemu`: a new VM with these parameters, its `vmid` among them.
    pub async fn create_vm(
        &self,
        host: &str,
        params: Vec<(String, String)>,
    ) -> Result<Upid, CallError> {
        let at = host_path(host, &["qemu"])?;
        self.task("create_vm", HttpMethod::Post, at, params).await
    }

    /// `PUT …/qemu/{vmid}/config`: done when it returns (PVE waits up to 10 s for the VM's lock).
    pub async fn update_config(
        &self,
        host: &str,
        vmid: u32,
        update: &ConfigUpdate,
    ) -> Result<(), CallError> {
        let at = vm_path(host, vmid, &["config"])?;
        self.send(request(
            "update_config",
            HttpMethod::Put,
            at,
            update.params(),
            deadline::CHANGE,
        ))
        .await
        .map(drop)
    }

    /// `PUT …/qemu/{vmid}/resize` to `bytes` (whole KiB, rounded up). `None` from a PVE that does it
    /// synchronously (before qemu-server 8.0.2).
    pub async fn resize(
        &self,
        host: &str,
        vmid: u32,
        disk: &str,
        bytes: i64,
    ) -> Result<Option<Upid>, CallError> {
        let at = vm_path(host, vmid, &["resize"])?;
        let size = format!(
            "{}K",
            bytes.max(0).div_euclid(1024) + i64::from(bytes % 1024 > 0)
        );
        let params = vec![pair("disk", disk), pair("size", size)];
        let request = request("resize", HttpMethod::Put, at, params, deadline::CHANGE);
        let named = request.clone();
        let data = self.send(request).await?;
        if data.is_null() {
            return Ok(None);
        }
        upid(&data).map(Some).map_err(|error| error.about(&named))
    }

    /// `POST …/status/start`.
    pub async fn start(&self, host: &str, vmid: u32) -> Result<Upid, CallError> {
        let at = vm_path(host, vmid, &["status", "start"])?;
        self.task("start", HttpMethod::Post, at, vec![]).await
    }

    /// `POST …/status/shutdown`: asks the guest, for at most `timeout`. PVE holds the VM's lock all
    /// that time; only [`Client::stop`] with `overrule` gets by.
    pub async fn shutdown(
        &self,
        host: &str,
        vmid: u32,
        timeout: Duration,
    ) -> Result<Upid, CallError> {
        let at = vm_path(host, vmid, &["status", "shutdown"])?;
        let params = vec![pair("timeout", timeout.as_secs().to_string())];
        self.task("shutdown", HttpMethod::Post, at, params).await
    }

    /// `POST …/status/stop`: the power goes. `overrule` ends a shutdown that runs (qemu-server
    /// 8.1.2 and newer; refused for VMs in HA).
    pub async fn stop(&self, host: &str, vmid: u32, overrule: bool) -> Result<Upid, CallError> {
        let at = vm_path(host, vmid, &["status", "stop"])?;
        let params = if overrule {
            vec![pair("overrule-shutdown", "1")]
        } else {
            vec![]
        };
        self.task("stop", HttpMethod::Post, at, params).await
    }

    /// `DELETE …/qemu/{vmid}` with `purge=1`: VM, disks, backup jobs, replication.
    pub async fn destroy(&self, host: &str, vmid: u32) -> Result<Upid, CallError> {
        let at = vm_path(host, vmid, &[])?;
        let purge = pair("purge", "1");
        let params = if planted!(NoPurge) {
            vec![]
        } else {
            vec![purge]
        };
        self.task("destroy", HttpMethod::Delete, at, params).await
    }

    /// `GET /nodes/{host}/tasks/{upid}/status`, on the host that the id names.
    pub async fn task_status(&self, upid: &Upid) -> Result<TaskState, CallError> {
        let at = host_path(upid.node(), &["tasks", upid.as_str(), "status"])?;
        let data = self
            .get("task_status", at, vec![], deadline::READ_HOST)
            .await?;
        Ok(TaskState::read(&data))
    }

    /// The last `lines` lines of a task's log; none of a task that has logged nothing yet.
    pub async fn task_log(&self, upid: &Upid, lines: usize) -> Result<Vec<String>, CallError> {
        let at = host_path(upid.node(), &["tasks", upid.as_str(), "log"])?;
        let mut kept: Vec<String> = Vec::new();
        for page in 0..LOG_PAGES {
            let params = vec![
                pair("start", (page * LOG_PAGE).to_string()),
                pair("limit", LOG_PAGE.to_string()),
            ];
            let data = self
                .get("task_log", at.clone(), params, deadline::READ_HOST)
                .await?;
            let found = data.as_array().map_or(0, Vec::len);
            let texts = data.as_array().into_iter().flatten();
            let texts = texts.filter_map(|line| Fields::of(line).text("t"));
            // What commands wrote as UTF-8 comes as Latin-1, as in the exit status.
            kept.extend(texts.map(|text| texts::told(&text)));
            kept.drain(..kept.len().saturating_sub(lines));
            if found < LOG_PAGE {
                break;
            }
        }
        if kept == [NO_LINE] {
            kept.clear();
        }
        Ok(kept)
    }

    /// Tasks on `vmid` that have not ended, on `host`: `GET /nodes/{host}/tasks?source=active`. A
    /// clone's task is its template's.
    pub async fn active_tasks(&self, host: &str, vmid: u32) -> Result<Vec<Task>, CallError> {
        let at = host_path(host, &["tasks"])?;
        let params = vec![
            pair("source", "active"),
            pair("vmid", vmid.to_string()),
            pair("limit", LOG_PAGE.to_string()),
        ];
        let asked = ("active_tasks", at);
        let data = self
            .get_sound(asked, params, deadline::READ_HOST, sound::tasks)
            .await?;
        let mut tasks = Task::read_all(&data);
        tasks.retain(|task| task.running);
        Ok(tasks)
    }

    /// `POST …/agent/ping`: the guest agent answers.
    pub async fn agent_ping(&self, host: &str, vmid: u32) -> Result<(), CallError> {
        let at = vm_path(host, vmid, &["agent", "ping"])?;
        self.send(request(
            "agent_ping",
            HttpMethod::Post,
            at,
            vec![],
            deadline::PING,
        ))
        .await
        .map(drop)
    }

    /// `POST …/agent/exec`: starts `argv` in the guest with `stdin`, and gives its pid there. PVE
    /// that waited for the agent in vain does not know whether it started: [`CallEffect::Unknown`].
    pub async fn agent_exec(
        &self,
        host: &str,
        vmid: u32,
        argv: &[&str],
        stdin: &str,
    ) -> Result<i64, CallError> {
        let at = vm_path(host, vmid, &["agent", "exec"])?;
        if stdin.len() > MAX_STDIN {
            let length = stdin.len();
            let message = format!("input of {length} bytes is more than PVE takes (64 KiB)");
            return Err(CallError::new(CallEffect::NotSent, message));
        }
        if !stdin.is_ascii() {
            let message = "input for the guest must be ASCII: PVE encodes no other character right";
            return Err(CallError::new(CallEffect::NotSent, message));
        }
        let mut params: Params = argv.iter().map(|word| pair("command", *word)).collect();
        if !stdin.is_empty() {
            params.push(pair("input-data", stdin));
        }
        let request = request("agent_exec", HttpMethod::Post, at, params, deadline::CHANGE);
        let named = request.clone();
        let data = self.send(request).await.map_err(|mut error| {
            if error.outcome == CallEffect::Refused && error.cause() == FailureCause::Timeout {
                error.outcome = CallEffect::Unknown;
            }
            error
        })?;
        Fields::of(&data).integer("pid").ok_or_else(|| {
            CallError::new(CallEffect::Unknown, "PVE's answer has no pid").about(&named)
        })
    }

    /// `GET …/agent/exec-status`: `None` while it runs. The first read after the end consumes the
    /// result; a later one is [`FailureCause::ExecForgotten`].
    pub async fn agent_exec_status(
        &self,
        host: &str,
        vmid: u32,
        pid: i64,
    ) -> Result<Option<ExecResult>, CallError> {
        let at = vm_path(host, vmid, &["agent", "exec-status"])?;
        let data = self
            .get(
                "agent_exec_status",
                at,
                vec![pair("pid", pid.to_string())],
                deadline::CHANGE,
            )
            .await?;
        Ok(ExecResult::read(&data))
    }
}

//! Guests in this process: they boot, answer the guest protocol of `docs/architecture.md`, join the
//! fake API server and then act as its kubelets.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::agents;
use super::api::Api;
use super::itself;
use super::kubeadm::{self, FAILURES, JoinConfiguration, KubeletCredentials, SUCCESS, UNREACHABLE};
use super::kubelet::{Lies, SimKubelet};
use super::nocloud;
use super::payload::{self, WrittenPayload};
use super::spec::{GuestFault, GuestSpec, GuestTraits};
use super::{ExecError, GuestExecResult, GuestVm, Guests};
use crate::clock::Clock;

/// How long the agent takes to run a command.
const EXEC_LATENCY: std::time::Duration = std::time::Duration::from_millis(40);
/// How long a probe waits for the end of cloud-init.
const PROBE_WAITS: std::time::Duration = std::time::Duration::from_secs(3);

/// How a join stands in `/run`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Joining {
    None,
    Running,
    Exited(i32),
}

/// The inside of one VM.
#[derive(Debug)]
struct GuestMachine {
    vm: GuestVm,
    fate: GuestTraits,
    on: bool,
    /// The agent answers.
    agent: bool,
    cloud_init: &'static str,
    joining: Joining,
    log: String,
    /// On the disk: the last instance that cloud-init has seen through, and whether it is switched off.
    instance: String,
    switched_off: bool,
    /// On the disk, so that it survives a reboot: who this kubelet is.
    joined: Option<(JoinConfiguration, KubeletCredentials)>,
    /// Ends everything that runs in the VM.
    power: CancellationToken,
}

/// Guests that become nodes of a fake cluster.
#[derive(Clone, Debug)]
pub struct KubeGuests {
    inner: Arc<GuestsInner>,
}

#[derive(Debug)]
struct GuestsInner {
    api: Api,
    spec: GuestSpec,
    clock: Clock,
    seed: u64,
    machines: Mutex<GuestMachines>,
    lies: Lies,
    /// Rings when an agent begins, a cloud-init ends or a power goes.
    bell: Notify,
}

#[derive(Debug, Default)]
struct GuestMachines {
    by_vmid: BTreeMap<u32, GuestMachine>,
    /// How many new VMs were powered on.
    made: u32,
}

impl GuestMachine {
    /// What cloud-init has to do at this boot: the files of a drive that it has not seen.
    fn seed(&mut self) -> Option<nocloud::Files> {
        let files = nocloud::files(self.vm.seed.as_deref()?)?;
        let instance = nocloud::instance(&files);
        let new = !self.switched_off && instance != self.instance;
        self.instance = instance;
        new.then_some(files)
    }
}

impl KubeGuests {
    /// Guests that see the cluster through this router: the API as the network sees it
    /// (`Kube::public_router`).
    pub fn new(router: Router, spec: GuestSpec, clock: Clock, seed: u64) -> KubeGuests {
        let inner = GuestsInner {
            api: Api::new(router),
            spec,
            clock,
            seed,
            machines: Mutex::new(GuestMachines::default()),
            lies: Lies::default(),
            bell: Notify::new(),
        };
        KubeGuests {
            inner: Arc::new(inner),
        }
    }

    /// From its next report on the kubelet of this VM tells another system UUID than its own; `None`: the truth.
    pub fn lie(&self, vmid: u32, uuid: Option<&str>) {
        let mut lies = self
            .inner
            .lies
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match uuid {
            Some(uuid) => drop(lies.insert(vmid, uuid.to_owned())),
            None => drop(lies.remove(&vmid)),
        }
    }

    /// The name under which the kubelet of a VM that is switched on works, whatever it says it is.
    pub fn node_on(&self, vmid: u32) -> Option<String> {
        let machines = self.inner.lock();
        let machine = machines.by_vmid.get(&vmid).filter(|machine| machine.on)?;
        let (join, _) = machine.joined.as_ref()?;
        Some(join.node.clone())
    }

    /// The credential with which the kubelet of a VM comes to the API server, for tests that speak as it.
    pub fn bearer_of(&self, vmid: u32) -> Option<String> {
        let machines = self.inner.lock();
        let (_, credentials) = machines.by_vmid.get(&vmid)?.joined.as_ref()?;
        Some(credentials.bearer.clone())
    }

    /// What of its `KubeletConfiguration` the kubelet of a VM was given.
    pub fn kubelet_of(&self, vmid: u32) -> Option<serde_json::Value> {
        let machines = self.inner.lock();
        let (join, _) = machines.by_vmid.get(&vmid)?.joined.as_ref()?;
        Some(join.kubelet.clone())
    }

    /// How many VMs are powered on.
    pub fn running(&self) -> usize {
        let machines = self.inner.lock();
        machines.by_vmid.values().filter(|m| m.on).count()
    }
}

impl GuestsInner {
    fn lock(&self) -> MutexGuard<'_, GuestMachines> {
        self.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks into a machine if it is still the one that was powered on with this token.
    fn with<T>(
        &self,
        vmid: u32,
        power: &CancellationToken,
        look: impl FnOnce(&mut GuestMachine) -> T,
    ) -> Option<T> {
        let mut machines = self.lock();
        let machine = machines.by_vmid.get_mut(&vmid)?;
        (machine.on && !power.is_cancelled()).then(|| look(machine))
    }

    async fn boot(self: Arc<GuestsInner>, vmid: u32, power: CancellationToken) {
        let Some((fate, frozen)) = self.with(vmid, &power, |m| (m.fate.clone(), m.vm.frozen))
        else {
            return;
        };
        if frozen {
            return;
        }
        tokio::time::sleep(fate.boot.to_std()).await;
        let joined = self.with(vmid, &power, |m| {
            m.agent = fate.fault != Some(GuestFault::AgentSilent);
            m.joined.clone()
        });
        self.bell.notify_waiters();
        tokio::time::sleep(fate.cloud_init.to_std()).await;
        let seed = self.with(vmid, &power, GuestMachine::seed).flatten();
        if joined.as_ref().is_some_and(Option::is_none)
            && let Some(Some(join)) = self.with(vmid, &power, |m| {
                itself::join(&self.spec, &m.vm, seed.as_ref())
            })
        {
            self.join_by_itself(vmid, power, fate, join).await;
            return;
        }
        let seed = seed.filter(|_| !self.spec.talos);
        let script = seed.map(|seed| nocloud::script(&seed, &self.spec));
        let broken = matches!(script, Some(Err(_)));
        self.with(vmid, &power, |m| {
            m.cloud_init = if broken {
                "error"
            } else if fate.fault == Some(GuestFault::CloudInitDegraded) {
                "degraded"
            } else {
                "done"
            };
            m.switched_off |= matches!(script, Some(Ok(None)));
        });
        self.bell.notify_waiters();
        if let Some(Ok(Some(payload))) = script
            && joined.as_ref().is_some_and(Option::is_none)
        {
            self.with(vmid, &power, |m| m.joining = Joining::Running);
            self.join(vmid, power, payload).await;
            return;
        }
        if let Some(Some((join, credentials))) = joined {
            // A machine that had joined before it was rebooted.
            if let Some(mut kubelet) = self.kubelet(vmid, &power, join, &credentials)
                && kubelet.register().await.is_ok()
            {
                kubelet.run().await;
            }
        }
    }

    /// A join that nobody asked for: its image, or its drive, has what it needs.
    async fn join_by_itself(
        &self,
        vmid: u32,
        power: CancellationToken,
        fate: GuestTraits,
        join: Result<JoinConfiguration, String>,
    ) {
        tokio::time::sleep(fate.preflight.to_std()).await;
        self.with(vmid, &power, |m| {
            m.cloud_init = if join.is_ok() { "done" } else { "error" };
        });
        self.bell.notify_waiters();
        let Ok(join) = join else { return };
        if self.with(vmid, &power, |m| m.vm.unlinked) != Some(false) {
            return;
        }
        if matches!(
            fate.fault,
            Some(GuestFault::JoinFails | GuestFault::JoinHangs)
        ) {
            return;
        }
        let Ok(credentials) = agents::join_by_command(&self.api, &join).await else {
            return;
        };
        self.with(vmid, &power, |m| {
            m.joined = Some((join.clone(), credentials.clone()));
        });
        if let Some(mut kubelet) = self.kubelet(vmid, &power, join, &credentials)
            && kubelet.register().await.is_ok()
        {
            kubelet.run().await;
        }
    }

    fn kubelet(
        &self,
        vmid: u32,
        power: &CancellationToken,
        join: JoinConfiguration,
        credentials: &KubeletCredentials,
    ) -> Option<SimKubelet> {
        self.with(vmid, power, |m| {
            SimKubelet::new(
                self.api.with_bearer(credentials.bearer.clone()),
                self.clock,
                (m.vm.clone(), self.lies.clone()),
                self.spec.clone(),
                join,
                m.fate.clone(),
            )
        })
    }

    /// `kubeadm join`, detached.
    async fn join(
        self: Arc<GuestsInner>,
        vmid: u32,
        power: CancellationToken,
        payload: WrittenPayload,
    ) {
        let Some((fate, host)) = self.with(vmid, &power, |m| (m.fate.clone(), m.vm.name.clone()))
        else {
            return;
        };
        tokio::time::sleep(fate.preflight.to_std()).await;
        if fate.fault == Some(GuestFault::JoinHangs) {
            return;
        }
        let outcome = self.attempt(vmid, &power, fate, &host, &payload).await;
        let kubelet = match outcome {
            Ok(kubelet) => kubelet,
            Err(why) => {
                self.with(vmid, &power, |m| {
                    m.joining = Joining::Exited(1);
                    m.log = format!("[preflight] Running pre-flight checks\n{why}\n");
                });
                return;
            }
        };
        self.with(vmid, &power, |m| {
            m.joining = Joining::Exited(0);
            m.switched_off |= m.vm.seed.is_some();
            SUCCESS.clone_into(&mut m.log);
        });
        kubelet.run().await;
    }

    async fn attempt(
        &self,
        vmid: u32,
        power: &CancellationToken,
        mut fate: GuestTraits,
        host: &str,
        payload: &WrittenPayload,
    ) -> Result<SimKubelet, String> {
        let agent = agents::agent(&payload.script);
        let by_kubeadm = payload.script.starts_with("kubeadm join ");
        let join = match agent {
            Some(program) => agents::read(payload, program, host)?,
            None if by_kubeadm => kubeadm::read(payload, &self.spec.kubeadm, host)?,
            None => agents::read_command(payload, host)?,
        };
        if self.with(vmid, power, |m| m.vm.unlinked) == Some(true) {
            return Err(UNREACHABLE.to_owned());
        }
        if fate.fault == Some(GuestFault::JoinFails) {
            return Err(FAILURES[fate.number(FAILURES.len())].to_owned());
        }
        if fate.fault == Some(GuestFault::JoinRaves) {
            return Err(kubeadm::ravings(&join));
        }
        let credentials = match agent {
            Some(program) => agents::join(&self.api, &join, program).await?,
            None if by_kubeadm => kubeadm::join(&self.api, &join).await?,
            None => agents::join_by_command(&self.api, &join).await?,
        };
        self.with(vmid, power, |m| {
            m.joined = Some((join.clone(), credentials.clone()));
        });
        let gone = || "the machine was powered off".to_owned();
        let mut kubelet = self
            .kubelet(vmid, power, join, &credentials)
            .ok_or_else(gone)?;
        kubelet.register().await.map_err(|why| {
            format!(
                "error execution phase kubelet-start: timed out waiting for the condition: {why}"
            )
        })?;
        Ok(kubelet)
    }

    /// Waits until a machine shows what is asked for, or has no power.
    async fn until(&self, vmid: u32, shows: impl Fn(&GuestMachine) -> bool) -> bool {
        loop {
            let rung = self.bell.notified();
            tokio::pin!(rung);
            rung.as_mut().enable();
            match self.lock().by_vmid.get(&vmid).filter(|m| m.on) {
                None => return false,
                Some(machine) if shows(machine) => return true,
                Some(_) => {}
            }
            rung.await;
        }
    }

    /// Runs something inside a VM until its power goes.
    fn spawn(power: CancellationToken, work: impl Future<Output = ()> + Send + 'static) {
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = power.cancelled() => {}
                () = work => {}
            }
        });
    }

    /// The guest protocol.
    fn answer(
        self: &Arc<GuestsInner>,
        vmid: u32,
        verb: &str,
        stdin: &[u8],
    ) -> Result<GuestExecResult, ExecError> {
        let mut machines = self.lock();
        let machine = machines
            .by_vmid
            .get_mut(&vmid)
            .filter(|m| m.on && m.agent)
            .ok_or(ExecError::NotRunning)?;
        let text = match verb {
            "probe" => format!(
                "cloud_init={}\nsystem={}\nkubeadm={}\njoin={}\nk3s={}\nrke2={}\n",
                machine.cloud_init,
                if machine.cloud_init == "running" {
                    "starting"
                } else {
                    "running"
                },
                self.spec.kubeadm,
                if machine.joining == Joining::None {
                    "none"
                } else {
                    "begun"
                },
                self.spec.k3s,
                self.spec.rke2
            ),
            "join" => match &machine.joining {
                Joining::Running => "state=running\n".to_owned(),
                Joining::Exited(code) => format!("state=exited\nexit={code}\n"),
                Joining::None if machine.joined.is_some() => "state=exited\nexit=0\n".to_owned(),
                Joining::None => {
                    let payload = match payload::read(stdin) {
                        Ok(payload) => payload,
                        Err(why) => return Ok(failed(1, &why)),
                    };
                    machine.joining = Joining::Running;
                    "[preflight] Running pre-flight checks\n".clone_into(&mut machine.log);
                    let power = machine.power.clone();
                    let work = Arc::clone(self).join(vmid, power.clone(), payload);
                    GuestsInner::spawn(power, work);
                    "state=started\n".to_owned()
                }
            },
            "state" => {
                let state = match &machine.joining {
                    Joining::None => "state=none".to_owned(),
                    Joining::Running => "state=running".to_owned(),
                    Joining::Exited(code) => format!("state=exited\nexit={code}"),
                };
                return Ok(printed(
                    [format!("{state}\n---\n").as_bytes(), tail(&machine.log)].concat(),
                ));
            }
            other => {
                return Ok(failed(127, &format!("sh: 1: {other}: not found")));
            }
        };
        Ok(printed(text.into_bytes()))
    }
}

/// What a command leaves that ended well and printed this.
fn printed(stdout: Vec<u8>) -> GuestExecResult {
    GuestExecResult {
        exit_code: Some(0),
        stdout,
        ..GuestExecResult::default()
    }
}

/// What a command leaves that ended badly and said this.
fn failed(code: i32, said: &str) -> GuestExecResult {
    GuestExecResult {
        exit_code: Some(code),
        stderr: format!("{said}\n").into_bytes(),
        ..GuestExecResult::default()
    }
}

/// The end of a log as `tail -c` gives it: its first character may be cut in two.
fn tail(log: &str) -> &[u8] {
    let log = log.as_bytes();
    &log[log.len().saturating_sub(4096)..]
}

/// The verb of a guest command.
fn verb(argv: &[String]) -> Result<String, ExecError> {
    let [shell, flag, script, ..] = argv else {
        return Err(missing(argv.first().map_or("", String::as_str)));
    };
    if shell != "/bin/sh" || flag != "-c" {
        return Err(missing(shell));
    }
    let first = script.lines().next().unwrap_or("");
    let known = first.strip_prefix("# pve-autoscaler guest script: ");
    Ok(known.unwrap_or(first).trim().to_owned())
}

fn missing(program: &str) -> ExecError {
    ExecError::Agent(format!(
        "Guest agent command failed, error was 'Failed to execute child process “{program}” (No such file or directory)'"
    ))
}

impl Guests for KubeGuests {
    fn power_on(&self, vm: GuestVm) {
        let inner = &self.inner;
        let mut machines = inner.lock();
        let known = machines
            .by_vmid
            .get(&vm.vmid)
            .is_some_and(|m| m.vm.incarnation == vm.incarnation);
        let vmid = vm.vmid;
        if !known {
            let nth = machines.made;
            machines.made += 1;
            let fate = GuestTraits::draw(&inner.spec, inner.seed, &vm.uuid, nth);
            let machine = GuestMachine {
                vm: vm.clone(),
                fate,
                on: false,
                agent: false,
                cloud_init: "running",
                joining: Joining::None,
                log: String::new(),
                instance: String::new(),
                switched_off: false,
                joined: None,
                power: CancellationToken::new(),
            };
            if let Some(old) = machines.by_vmid.insert(vmid, machine) {
                old.power.cancel();
            }
        }
        let Some(machine) = machines.by_vmid.get_mut(&vmid).filter(|m| !m.on) else {
            return;
        };
        // What lies in memory and on a tmpfs is gone after a reboot.
        machine.vm = vm;
        machine.on = true;
        machine.agent = false;
        machine.cloud_init = "running";
        machine.joining = Joining::None;
        machine.log.clear();
        machine.power = CancellationToken::new();
        let power = machine.power.clone();
        GuestsInner::spawn(power.clone(), Arc::clone(inner).boot(vmid, power));
    }

    fn power_off(&self, vmid: u32, graceful: bool) -> BoxFuture<'_, ()> {
        async move {
            let found = {
                let machines = self.inner.lock();
                let machine = machines.by_vmid.get(&vmid).filter(|m| m.on);
                machine.map(|m| (m.power.clone(), m.fate.clone(), m.agent))
            };
            let Some((power, fate, up)) = found else {
                return;
            };
            if graceful {
                if fate.fault == Some(GuestFault::IgnoresShutdown) || !up {
                    // Nobody listens to the power button: only a hard stop ends this.
                    power.cancelled().await;
                    return;
                }
                tokio::time::sleep(fate.shutdown.to_std()).await;
            }
            power.cancel();
            let mut machines = self.inner.lock();
            if let Some(machine) = machines.by_vmid.get_mut(&vmid)
                && machine.power.is_cancelled()
            {
                machine.on = false;
                machine.agent = false;
            }
            drop(machines);
            self.inner.bell.notify_waiters();
        }
        .boxed()
    }

    /// As with QEMU, a question that comes before the agent has begun waits for it in the channel.
    fn ping(&self, vmid: u32) -> BoxFuture<'_, bool> {
        self.inner.until(vmid, |machine| machine.agent).boxed()
    }

    fn exec(
        &self,
        vmid: u32,
        argv: Vec<String>,
        stdin: Vec<u8>,
    ) -> BoxFuture<'_, Result<GuestExecResult, ExecError>> {
        async move {
            tokio::time::sleep(EXEC_LATENCY).await;
            if !self.inner.spec.guest_exec || self.inner.spec.talos {
                return Err(ExecError::Agent(
                    "Command guest-exec has been disabled: the command is not allowed".to_owned(),
                ));
            }
            let verb = verb(&argv)?;
            if verb == "probe" {
                let ends = self.inner.until(vmid, |m| m.cloud_init != "running");
                // Either is fine: it says how it stands then.
                let _ = tokio::time::timeout(PROBE_WAITS, ends).await;
            }
            self.inner.answer(vmid, &verb, &stdin)
        }
        .boxed()
    }
}

//! Guests that are processes of another program: what an end-to-end test runs in VMs.
//!
//! `PROGRAM start|ping|exec|shutdown|stop VMID [-- ARGV...]`, with the VM in the environment:
//! `GUEST_VMID`, `GUEST_UUID`, `GUEST_NAME`, `GUEST_CORES`, `GUEST_MEMORY_MIB`, `GUEST_DIR`. An `exec` that ends with 126 and says
//! `agent: TEXT` on standard error ran nothing: the agent answered with that text.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{ExecError, GuestExecResult, GuestVm, Guests};

/// Longest boot.
const START: Duration = Duration::from_mins(5);
/// Longest answer of the agent; PVE itself waits less.
const PING: Duration = Duration::from_secs(10);
/// Longest command: PVE's agent has no limit, a hung one must end some time.
const EXEC: Duration = Duration::from_hours(1);
/// How the program ends when the agent refuses a command.
const REFUSED: i32 = 126;
/// Longest shutdown; PVE's own timeout comes first.
const SHUTDOWN: Duration = Duration::from_mins(10);
/// Longest taking away of a guest's power.
const STOP: Duration = Duration::from_mins(1);

/// Guests run by a program.
#[derive(Clone, Debug)]
pub struct ProgramGuests {
    inner: Arc<ProgramInner>,
}

#[derive(Debug)]
struct ProgramInner {
    program: PathBuf,
    directory: PathBuf,
    guests: Mutex<BTreeMap<u32, ProgramGuest>>,
}

#[derive(Debug)]
struct ProgramGuest {
    vm: GuestVm,
    /// What boots the guest, until the boot has ended.
    boot: JoinHandle<()>,
}

impl ProgramGuests {
    /// Guests run by `program`, each with a directory of its own below `directory`.
    pub fn new(program: PathBuf, directory: PathBuf) -> ProgramGuests {
        ProgramGuests {
            inner: Arc::new(ProgramInner {
                program,
                directory,
                guests: Mutex::new(BTreeMap::new()),
            }),
        }
    }

    /// Takes every guest's power away; for the simulator's own end.
    pub async fn stop_all(&self) {
        let running: Vec<u32> = {
            let guests = self
                .inner
                .guests
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            guests.keys().copied().collect()
        };
        futures::future::join_all(running.into_iter().map(|vmid| self.power_off(vmid, false)))
            .await;
    }

    fn vm(&self, vmid: u32) -> Option<GuestVm> {
        let guests = self
            .inner
            .guests
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        guests.get(&vmid).map(|guest| guest.vm.clone())
    }
}

impl ProgramInner {
    /// Runs a verb to its end, or to its deadline: then it is killed.
    async fn run(
        &self,
        verb: &str,
        vm: &GuestVm,
        argv: &[String],
        stdin: Vec<u8>,
        limit: Duration,
    ) -> Result<Output, String> {
        let directory = self.directory.join(vm.vmid.to_string());
        let said = |error: std::io::Error| {
            format!(
                "running {} {verb} {}: {error}",
                self.program.display(),
                vm.vmid
            )
        };
        tokio::fs::create_dir_all(&directory).await.map_err(said)?;
        let mut command = Command::new(&self.program);
        command.arg(verb).arg(vm.vmid.to_string());
        if verb == "exec" {
            command.arg("--").args(argv);
        }
        command
            .env("GUEST_VMID", vm.vmid.to_string())
            .env("GUEST_UUID", &vm.uuid)
            .env("GUEST_NAME", &vm.name)
            .env("GUEST_CORES", vm.cores.to_string())
            .env("GUEST_MEMORY_MIB", vm.memory_mib.to_string())
            .env("GUEST_DIR", &directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(said)?;
        let input = child.stdin.take();
        let feed = async {
            if let Some(mut input) = input {
                // A program that does not read its input closes the pipe: its business.
                let _ = input.write_all(&stdin).await;
            }
        };
        let both = async { futures::join!(feed, child.wait_with_output()).1 };
        match timeout(limit, both).await {
            Ok(output) => output.map_err(said),
            Err(_) => Err(format!(
                "{} {verb} {} did not end within {limit:?}",
                self.program.display(),
                vm.vmid
            )),
        }
    }

    /// Runs a verb whose output is for people: a failure is logged.
    async fn order(&self, verb: &str, vm: &GuestVm, limit: Duration) {
        match self.run(verb, vm, &[], Vec::new(), limit).await {
            Ok(output) if output.status.success() => {}
            Ok(output) => tracing::warn!(
                vmid = vm.vmid,
                verb,
                status = %output.status,
                "the guest program failed: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            ),
            Err(error) => tracing::warn!(vmid = vm.vmid, verb, "{error}"),
        }
    }
}

impl Guests for ProgramGuests {
    fn power_on(&self, vm: GuestVm) {
        let inner = Arc::clone(&self.inner);
        let booting = vm.clone();
        let boot = tokio::spawn(async move { inner.order("start", &booting, START).await });
        let mut guests = self
            .inner
            .guests
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        guests.insert(vm.vmid, ProgramGuest { vm, boot });
    }

    fn power_off(&self, vmid: u32, graceful: bool) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let Some(vm) = self.vm(vmid) else { return };
            if graceful {
                self.inner.order("shutdown", &vm, SHUTDOWN).await;
            } else {
                {
                    let guests = self
                        .inner
                        .guests
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner);
                    if let Some(guest) = guests.get(&vmid) {
                        guest.boot.abort();
                    }
                }
                self.inner.order("stop", &vm, STOP).await;
            }
            let mut guests = self
                .inner
                .guests
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            guests.remove(&vmid);
        })
    }

    fn ping(&self, vmid: u32) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            let Some(vm) = self.vm(vmid) else {
                return false;
            };
            let answer = self.inner.run("ping", &vm, &[], Vec::new(), PING).await;
            answer.is_ok_and(|output| output.status.success())
        })
    }

    fn exec(
        &self,
        vmid: u32,
        argv: Vec<String>,
        stdin: Vec<u8>,
    ) -> BoxFuture<'_, Result<GuestExecResult, ExecError>> {
        Box::pin(async move {
            let vm = self.vm(vmid).ok_or(ExecError::NotRunning)?;
            let output = self
                .inner
                .run("exec", &vm, &argv, stdin, EXEC)
                .await
                .map_err(ExecError::Agent)?;
            let refused = output.stderr.strip_prefix(b"agent: ");
            if let Some(text) = refused.filter(|_| output.status.code() == Some(REFUSED)) {
                let text = String::from_utf8_lossy(text);
                return Err(ExecError::Agent(text.trim_end().to_owned()));
            }
            Ok(GuestExecResult {
                exit_code: output.status.code(),
                signal: std::os::unix::process::ExitStatusExt::signal(&output.status),
                stdout: output.stdout,
                stderr: output.stderr,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// Writes down how it was called; `exec` runs its arguments.
    const PROGRAM: &str = r#"#!/bin/sh
printf '%s %s %s %s %s %s\n' "$1" "$2" "$GUEST_NAME" "$GUEST_UUID" "$GUEST_CORES" "$GUEST_MEMORY_MIB" >>"$GUEST_DIR/calls"
case $1 in
exec) shift 3; exec "$@" ;;
ping) test -e "$GUEST_DIR/up" ;;
start) : >"$GUEST_DIR/up" ;;
esac
"#;

    fn vm() -> GuestVm {
        GuestVm {
            vmid: 5000,
            incarnation: 0,
            uuid: "u-u".to_owned(),
            name: "web".to_owned(),
            serial: String::new(),
            cores: 2,
            memory_mib: 1024,
            disk: 0,
            address: None,
            fixed_addresses: Vec::new(),
            devices: 0,
            seed: None,
            frozen: false,
            unlinked: false,
        }
    }

    #[tokio::test]
    async fn the_program_is_called_as_agreed() {
        let scratch = tempfile::tempdir().expect("a directory");
        let program = scratch.path().join("guest");
        std::fs::write(&program, PROGRAM).expect("written");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))
            .expect("executable");
        let guests = ProgramGuests::new(program, scratch.path().to_owned());
        assert!(!guests.ping(5000).await, "there is no such guest");
        guests.power_on(vm());
        for _ in 0..1_000 {
            if guests.ping(5000).await {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let argv = ["/bin/sh", "-c", "cat; echo oops >&2; exit 3"]
            .map(str::to_owned)
            .to_vec();
        let result = guests
            .exec(5000, argv, b"in".to_vec())
            .await
            .expect("a result");
        assert_eq!((result.exit_code, result.signal), (Some(3), None));
        assert_eq!(
            (result.stdout.as_slice(), result.stderr.as_slice()),
            (&b"in"[..], &b"oops\n"[..])
        );
        guests.power_off(5000, true).await;
        guests.power_on(vm());
        guests.stop_all().await;
        assert_eq!(
            guests.exec(5000, Vec::new(), Vec::new()).await,
            Err(ExecError::NotRunning)
        );
        let calls = std::fs::read_to_string(scratch.path().join("5000/calls")).expect("calls");
        assert!(
            calls.starts_with("start 5000 web u-u 2 1024\n") || calls.starts_with("ping 5000 web"),
            "{calls}"
        );
        let verbs: Vec<&str> = calls
            .lines()
            .filter_map(|line| line.split(' ').next())
            .collect();
        for verb in ["start", "exec", "shutdown", "stop"] {
            assert!(verbs.contains(&verb), "{verb}: {calls}");
        }
    }
}

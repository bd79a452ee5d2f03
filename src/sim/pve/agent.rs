//! The guest agent as seen through PVE.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use super::table::CallHandler;
use super::wire::{ErrorAnswer, ParamValue};
use super::world::PveWorld;
use super::{CheckedCall, Pve, properties};
use crate::sim::guests::{ExecError, GuestExecResult};

/// How long PVE waits for the agent's first answer (QemuServer/Agent.pm).
const PING_TIMEOUT: Duration = Duration::from_secs(3);
/// How long it takes until the proxy gives up on a worker that died writing the status line.
const BROKEN_PIPE: Duration = Duration::from_secs(5);
/// How long a program gets to fail to start; a real agent knows that before it answers.
const SPAWN: Duration = Duration::from_millis(20);
/// Most that qemu-ga keeps of a command's output.
const MAX_OUTPUT: usize = 16 << 20;

impl Pve {
    pub(super) async fn agent(
        &self,
        act: CallHandler,
        asked: &CheckedCall,
    ) -> Result<Value, ErrorAnswer> {
        let act = if act == CallHandler::AgentCommand {
            named(asked.text("command"))?
        } else {
            act
        };
        let vmid = asked.vmid;
        let connected = self.world(|world, _| {
            let vm = world.vm(&asked.node, vmid)?;
            let Some(agent) = vm.config.get("agent") else {
                return Err("No QEMU guest agent configured".to_owned());
            };
            if !vm.run.is_on() {
                return Err(format!("VM {vmid} is not running"));
            }
            Ok(properties(agent, "enabled").get("enabled") == Some(&"1"))
        });
        // Without the virtio channel there is no socket to wait for.
        if !connected.map_err(ErrorAnswer::die)? {
            return Err(not_running());
        }
        let socket = self.agent_socket(vmid);
        let began = tokio::time::Instant::now();
        let Ok(_client) = timeout(PING_TIMEOUT, socket.lock()).await else {
            return Err(not_running());
        };
        let answers = timeout(PING_TIMEOUT, self.guests().ping(vmid)).await == Ok(true);
        if !answers || self.is_paused(asked) {
            tokio::time::sleep_until(began + PING_TIMEOUT).await;
            return Err(not_running());
        }
        self.take(self.timings().agent).await;
        match act {
            CallHandler::AgentExec => self.exec(asked).await,
            CallHandler::AgentExecStatus => self.exec_status(asked),
            _ => self.world(|world, now| world.agent_read(act, asked, now.0)),
        }
    }

    async fn exec(&self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        let argv = match asked.params.get("command") {
            Some(ParamValue::List(list)) => list.clone(),
            _ => Vec::new(),
        };
        let input = input(asked.text("input-data"))?;
        let vmid = asked.vmid;
        let pid = self.world(|world, _| {
            let pid = i64::from(world.pid());
            if let Some(vm) = world.vms.get_mut(&vmid) {
                vm.commands.insert(pid, None);
            }
            pid
        });
        let pve = self.clone();
        let mut run = tokio::spawn(async move {
            let result = pve.guests().exec(vmid, argv, input).await;
            let failed = result.as_ref().err().cloned();
            let result = result.map_err(|error| match error {
                ExecError::NotRunning => "guest went away".to_owned(),
                ExecError::Agent(text) => text,
            });
            pve.world(|world, _| {
                // A guest that lost its power in between has forgotten its commands.
                if let Some(slot) = world
                    .vms
                    .get_mut(&vmid)
                    .and_then(|vm| vm.commands.get_mut(&pid))
                {
                    *slot = Some(result);
                }
            });
            failed
        });
        let Ok(Ok(Some(error))) = timeout(SPAWN, &mut run).await else {
            return Ok(json!({ "pid": pid }));
        };
        self.world(|world, _| world.vms.get_mut(&vmid).map(|vm| vm.commands.remove(&pid)));
        match error {
            ExecError::NotRunning => Err(not_running()),
            // PVE writes the agent's words into the status line and dies of a wide character there.
            ExecError::Agent(text) if !text.is_ascii() => {
                tokio::time::sleep(BROKEN_PIPE).await;
                Err(ErrorAnswer::bare(596, "Broken pipe"))
            }
            ExecError::Agent(text) => Err(ErrorAnswer::die(format!("Agent error: {text}"))),
        }
    }

    fn exec_status(&self, asked: &CheckedCall) -> Result<Value, ErrorAnswer> {
        let pid: i64 = asked.text("pid").parse().unwrap_or_default();
        self.world(|world, _| {
            let vm = world
                .vm_mut(&asked.node, asked.vmid)
                .map_err(ErrorAnswer::die)?;
            match vm.commands.get(&pid) {
                Some(None) => Ok(json!({ "exited": 0 })),
                // The first read takes the result away.
                Some(Some(_)) => match vm.commands.remove(&pid).flatten() {
                    Some(Ok(result)) => Ok(exited(&result)),
                    Some(Err(text)) => Err(ErrorAnswer::die(format!("Agent error: {text}"))),
                    None => Err(unknown_pid()),
                },
                None => Err(unknown_pid()),
            }
        })
    }
}

/// What a command gets on its standard input: PVE encodes characters, not their UTF-8, so those
/// beyond Latin-1 end the call and the others arrive as one byte each.
fn input(text: &str) -> Result<Vec<u8>, ErrorAnswer> {
    let bytes: Option<Vec<u8>> = text.chars().map(|c| u8::try_from(c).ok()).collect();
    bytes.ok_or_else(|| {
        ErrorAnswer::die(
            "Wide character in subroutine entry at /usr/share/perl5/PVE/QemuServer/Agent.pm line 135.",
        )
    })
}

fn unknown_pid() -> ErrorAnswer {
    // PVE's format string loses its percent sign on the way.
    ErrorAnswer::die("Agent error: PID ld does not exist")
}

fn not_running() -> ErrorAnswer {
    ErrorAnswer::die("QEMU guest agent is not running")
}

fn exited(result: &GuestExecResult) -> Value {
    let mut answer = json!({ "exited": 1 });
    if let Some(code) = result.exit_code {
        answer["exitcode"] = json!(code);
    }
    if let Some(signal) = result.signal {
        answer["signal"] = json!(signal);
    }
    for (data, cut, bytes) in [
        ("out-data", "out-truncated", &result.stdout),
        ("err-data", "err-truncated", &result.stderr),
    ] {
        if bytes.is_empty() {
            continue;
        }
        let kept = &bytes[..bytes.len().min(MAX_OUTPUT)];
        // PVE takes the bytes for Latin-1 and writes each as a character of its own.
        let text: String = kept.iter().map(|byte| char::from(*byte)).collect();
        answer[data] = json!(text);
        if bytes.len() > MAX_OUTPUT {
            answer[cut] = json!(1);
        }
    }
    answer
}

/// `POST agent` with the command as a parameter: the older way.
fn named(command: &str) -> Result<CallHandler, ErrorAnswer> {
    Ok(match command {
        "ping" => CallHandler::AgentPing,
        "get-osinfo" => CallHandler::AgentOsInfo,
        "get-host-name" => CallHandler::AgentHostName,
        "network-get-interfaces" => CallHandler::AgentNetwork,
        "info" => CallHandler::AgentInfo,
        "get-time" => CallHandler::AgentTime,
        other => {
            return Err(ErrorAnswer::die(format!(
                "Agent error: The command {other} has not been found"
            )));
        }
    })
}

impl PveWorld {
    fn agent_read(
        &self,
        act: CallHandler,
        asked: &CheckedCall,
        millis: i64,
    ) -> Result<Value, ErrorAnswer> {
        let vm = self.vm(&asked.node, asked.vmid).map_err(ErrorAnswer::die)?;
        let result = match act {
            CallHandler::AgentOsInfo => json!({
                "id": "debian", "name": "Debian GNU/Linux", "pretty-name": "Debian GNU/Linux 13 (trixie)",
                "version": "13 (trixie)", "version-id": "13", "machine": "x86_64",
                "kernel-release": "6.12.0-amd64", "kernel-version": "#1 SMP PREEMPT_DYNAMIC Debian",
            }),
            CallHandler::AgentHostName => json!({ "host-name": vm.text("name") }),
            CallHandler::AgentNetwork => interfaces(vm),
            CallHandler::AgentInfo => {
                let commands = [
                    "guest-ping",
                    "guest-exec",
                    "guest-exec-status",
                    "guest-get-osinfo",
                    "guest-shutdown",
                ];
                let commands: Vec<Value> = commands
                    .iter()
                    .map(|name| json!({ "name": name, "enabled": true, "success-response": true }))
                    .collect();
                json!({ "version": "10.0.2", "supported_commands": commands })
            }
            CallHandler::AgentTime => json!(millis.saturating_mul(1_000_000)),
            _ => json!({}),
        };
        Ok(json!({ "result": result }))
    }
}

fn interfaces(vm: &super::world::SimVm) -> Value {
    let mac = vm
        .text("net0")
        .split(',')
        .next()
        .and_then(|part| part.split_once('='))
        .map_or("", |(_, mac)| mac);
    let mut addresses = Vec::new();
    if let Some((address, prefix)) = properties(vm.text("ipconfig0"), "")
        .get("ip")
        .and_then(|address| address.split_once('/'))
    {
        let prefix: u32 = prefix.parse().unwrap_or(24);
        addresses
            .push(json!({ "ip-address": address, "ip-address-type": "ipv4", "prefix": prefix }));
    }
    json!([
        {
            "name": "lo", "hardware-address": "00:00:00:00:00:00",
            "ip-addresses": [{ "ip-address": "127.0.0.1", "ip-address-type": "ipv4", "prefix": 8 }],
        },
        { "name": "eth0", "hardware-address": mac.to_ascii_lowercase(), "ip-addresses": addresses },
    ])
}

//! How kproximate's machines join, out of its join command: its words are looked at, and never printed.

use super::draft::{DECIDE, Table};
use super::kproximate::was;
use super::settings::{FoundSettings, Setting};

/// Where a command that is a secret goes.
const SECRET_FILE: &str = "/etc/pve-autoscaler/join-command";

/// `[pool.NAME.join]`.
pub(super) fn table(found: &FoundSettings, pool: &str) -> Table {
    let mut table = Table::new(format!("pool.{pool}.join"));
    let by_agent = found.get("kpQemuExecJoin").filter(|agent| agent.is_true());
    let command = found.get("kpJoinCommand");
    match (by_agent, command) {
        (Some(agent), Some(command)) => {
            table.note(was("kpQemuExecJoin", agent));
            by_command(command, &mut table);
        }
        (Some(agent), None) => {
            let note =
                "kpJoinCommand is not in what was given; each machine gets a token of its own";
            table.set(
                "method",
                "kubeadm",
                format!("{DECIDE}: {}; {note}", was("kpQemuExecJoin", agent)),
            );
        }
        (None, command) => {
            if let Some(command) = command {
                table.note(format!(
                    "{} is not shown, and kproximate does not use it without kpQemuExecJoin",
                    was("kpJoinCommand", command)
                ));
            }
            table.set(
                "method",
                "kubeadm",
                format!(
                    "{DECIDE}: without kpQemuExecJoin the template joins by itself at its first boot, with a token that stands in it. Here the \
                     guest agent joins each machine with a token of its own: take the join out of the template, and say \"kubeadm\", \
                     \"k3s\", \"rke2\" or \"command\" here (docs/joining.md)"
                ),
            );
        }
    }
    table
}

fn by_command(setting: &Setting, table: &mut Table) {
    let was = was("kpJoinCommand", setting);
    let command = setting.hidden();
    let words: Vec<&str> = command
        .split(|sign: char| sign.is_whitespace() || "\"'".contains(sign))
        .collect();
    let own = "is not shown and not needed: each machine gets a token of its own";
    if let Some(at) = words
        .windows(2)
        .position(|pair| pair == ["kubeadm", "join"])
    {
        table.set("method", "kubeadm", format!("{was} {own}"));
        if let Some(endpoint) = words
            .get(at + 2)
            .filter(|word| word.contains(':') && !word.starts_with('-'))
        {
            table.set(
                "endpoint",
                *endpoint,
                "of the same command; without it the cluster's own",
            );
        }
        return;
    }
    for method in ["rke2", "k3s"] {
        if command.to_ascii_lowercase().contains(method) {
            let template = "the template has the agent installed and not started (docs/joining.md)";
            table.set(
                "method",
                method,
                format!("{was} {own}. {DECIDE}: {template}"),
            );
            if let Some(endpoint) = server(&words) {
                table.set("endpoint", endpoint, "of the same command");
            }
            return;
        }
    }
    table.set(
        "method",
        "command",
        format!("{was} is none of kubeadm, k3s or RKE2"),
    );
    table.set(
        "secret_file",
        SECRET_FILE,
        "The command is not shown, for it may have a token in it: it goes into this file (owner root, group pve-autoscaler, mode 0640)",
    );
    table.set(
        "command",
        "bash \"$PVE_AUTOSCALER_TOKEN_FILE\"",
        format!(
            "Runs it as kproximate does. {DECIDE}: the node must have the machine's name and begin with the taint \
             pve-autoscaler.io/uninitialized:NoSchedule, {{{{ machine }}}} and {{{{ taints }}}} in a command here (docs/joining.md)"
        ),
    );
}

/// `host:port` of the server that a command names.
fn server<'c>(words: &[&'c str]) -> Option<&'c str> {
    let url = words.iter().enumerate().find_map(|(at, word)| {
        let next = || words.get(at + 1).copied();
        let named = |name: &str| {
            word.strip_prefix(name)
                .filter(|rest| rest.starts_with("https://"))
        };
        named("K3S_URL=")
            .or_else(|| named("--server="))
            .or_else(|| named("RKE2_URL="))
            .or_else(|| {
                matches!(*word, "--server" | "server:" | "K3S_URL=")
                    .then(next)
                    .flatten()
            })
    })?;
    let host = url.strip_prefix("https://")?.split('/').next()?;
    // A user and a password are no part of it.
    (!host.contains('@')).then_some(host)
}

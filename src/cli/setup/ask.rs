//! Questions at the terminal: one line each, with what an empty answer means.

use std::io::{IsTerminal as _, Write as _};

use anyhow::anyhow;

use super::choose::SetupChoice;
use crate::cli::{CliFailure, output, print};

/// Whether somebody is there to be asked.
pub(super) fn somebody() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// Asks for one thing. Empty: what is proposed.
pub(super) fn about(choice: &SetupChoice) -> Result<String, CliFailure> {
    print(&output::sentences(&format!(
        "\n{}: {}\n",
        choice.key, choice.why
    )))?;
    loop {
        if choice.value.is_empty() {
            print("  > ")?;
        } else {
            print(&format!("  [{}] > ", choice.value))?;
        }
        let typed = line()?;
        if typed != "?" {
            return Ok(typed);
        }
        let proposed = if choice.value.is_empty() {
            ""
        } else {
            "; Enter takes what is in brackets"
        };
        print(&output::sentences(&format!(
            "  expected {}{proposed}. Ctrl-C ends this and changes nothing. More: docs/setup.md, below /usr/share/doc/pve-autoscaler\n",
            expected(choice.key)
        )))?;
    }
}

/// What can be answered.
fn expected(key: &str) -> &'static str {
    match key {
        "kubernetes.kubeconfig" => "a file with an administrator's kubeconfig",
        "kubernetes.server" => "HOST:PORT of the API server, as this host and machines reach it",
        "proxmox.vmids" => "the first and the last VMID for machines, such as 9000-9099",
        "template" => "build, or the VMID of a template that is there",
        "template.image" => {
            "the URL of a cloud image, or a volume such as local:import/debian-13.qcow2"
        }
        "template.checksum" => "the image's checksum, such as sha512:0123…",
        "template.storage" => {
            "the name of a storage, or several, of which each host takes the first that it has"
        }
        "network.bridge" => "the name of a bridge, such as vmbr0",
        "network.addresses" => "dhcp, or ranges: the daemon gives addresses out",
        "network.subnet" => "a network such as 192.0.2.0/24",
        "network.ranges" => "addresses that nobody else gives out, such as 192.0.2.50-192.0.2.99",
        "network.gateway" => "the address of the gateway",
        "network.nameservers" => "the addresses of name servers",
        "pool.name" => "a name: lower-case letters, digits and hyphens",
        "pool.instance_types" => "sizes as cores and memory, such as 2x4GiB,4x8GiB",
        "pool.max" => "a number of nodes",
        _ => "an answer",
    }
}

/// Asks whether to go on. Only `y` and `yes` do.
pub(super) fn whether(question: &str) -> Result<bool, CliFailure> {
    print(&format!("{question} [y/N] "))?;
    Ok(matches!(&*line()?.to_ascii_lowercase(), "y" | "yes"))
}

fn line() -> Result<String, CliFailure> {
    std::io::stdout().flush()?;
    let mut answer = String::new();
    if std::io::stdin().read_line(&mut answer)? == 0 {
        return Err(anyhow!("the input ended; nothing was changed").into());
    }
    Ok(answer.trim().to_owned())
}

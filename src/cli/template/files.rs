//! Cloud-init's data for a first boot, put where PVE finds it. PVE's API takes no snippets: the file goes there as root, on this
//! host directly, on another of the cluster by ssh, as PVE itself copies files between hosts.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;

use crate::cli::host_name;

/// The longest that ssh may take.
const SSH: Duration = Duration::from_mins(1);

/// Writes a file on a host.
pub(super) async fn write(host: &str, path: &str, text: &str) -> anyhow::Result<()> {
    let folder = Path::new(path).parent().unwrap_or_else(|| Path::new("/"));
    if host == host_name::in_pve() {
        let written = async {
            tokio::fs::create_dir_all(folder).await?;
            tokio::fs::write(path, text).await
        };
        return written
            .await
            .with_context(|| format!("cannot write {path}"));
    }
    let folder = quoted(&folder.display().to_string());
    let file = quoted(path);
    let script = format!("mkdir -p {folder} && cat >{file}");
    ssh(host, &script, text)
        .await
        .with_context(|| format!("cannot write {path} on {host} by ssh"))
}

/// Removes a file on a host; one that is not there is fine.
pub(super) async fn remove(host: &str, path: &str) -> anyhow::Result<()> {
    if host == host_name::in_pve() {
        return match tokio::fs::remove_file(path).await {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {path}"))
            }
            _ => Ok(()),
        };
    }
    ssh(host, &format!("rm -f {}", quoted(path)), "")
        .await
        .with_context(|| format!("cannot remove {path} on {host} by ssh"))
}

async fn ssh(host: &str, script: &str, stdin: &str) -> anyhow::Result<()> {
    let mut command = Command::new("ssh");
    for option in [
        "BatchMode=yes".to_owned(),
        "ConnectTimeout=10".to_owned(),
        format!("HostKeyAlias={host}"),
    ] {
        command.arg("-o").arg(option);
    }
    // Where PVE keeps the host's key for its own calls (PVE::SSHInfo).
    let known = format!("/etc/pve/nodes/{host}/ssh_known_hosts");
    if Path::new(&known).exists() {
        command.arg("-o").arg(format!("UserKnownHostsFile={known}"));
        command.arg("-o").arg("GlobalKnownHostsFile=none");
    }
    command
        .arg(format!("root@{host}"))
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().context("ssh does not start")?;
    let input = child.stdin.take();
    let work = async {
        if let Some(mut input) = input {
            // A ssh that ends early says why itself.
            let _ = input.write_all(stdin.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    let output = timeout(SSH, work)
        .await
        .context("ssh did not end within a minute")??;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!(
            "{}; root of this machine must reach root@{host}, or run this command on {host}",
            said.trim()
        );
    }
    Ok(())
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

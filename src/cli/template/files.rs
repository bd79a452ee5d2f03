//! Cloud-init's data for a first boot, put where PVE finds it. PVE's API takes no snippets: the file goes there as root, on this
//! host directly, on another one by ssh, as PVE itself copies files between hosts.
//!
//! Hosts of two PVE clusters may have one name, and a name is known to no resolver: which machine a host is, its own PVE says. This
//! host it is only in the region of this PVE cluster (`channel = "local"`) and where PVE says so; any other is reached at the address that
//! the region's PVE names, and must be called as the host is.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;

use super::TemplateRegion;
use crate::pve::ClusterStatus;

/// The longest that ssh may take.
const SSH: Duration = Duration::from_mins(1);

/// The files of a host, and the way to them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HostFiles {
    host: String,
    region: String,
    way: HostWay,
}

/// How root of this machine comes to a host's files.
#[derive(Debug, PartialEq, Eq)]
enum HostWay {
    /// It is this host.
    Here,
    /// By ssh to another host of this PVE cluster, whose keys the cluster knows.
    InCluster(IpAddr),
    /// By ssh to a host of a PVE cluster that may be another one: its key is known to whoever took it.
    Foreign(IpAddr),
}

impl HostFiles {
    /// The files of a host of this region, as its PVE says which machine that is.
    pub(super) async fn find(place: &TemplateRegion, host: &str) -> anyhow::Result<HostFiles> {
        let status = place.client.cluster_status().await?;
        HostFiles::of((&place.region, place.local), host, &status)
    }

    fn of(
        (region, local): (&str, bool),
        host: &str,
        status: &ClusterStatus,
    ) -> anyhow::Result<HostFiles> {
        let member = status.members.get(host);
        let address = member.and_then(|member| member.address.as_deref());
        let way = match address.map(str::parse::<IpAddr>) {
            _ if local && member.is_some_and(|member| member.local) => HostWay::Here,
            Some(Ok(address)) if local => HostWay::InCluster(address),
            Some(Ok(address)) => HostWay::Foreign(address),
            Some(Err(_)) | None => bail!(
                "cloud-init's data for the first boot cannot be brought to {host}: PVE of region {region} names no address of it (`pvesh get /cluster/status` there shows what it names); run this command on {host}, with channel = \"local\" for its region"
            ),
        };
        Ok(HostFiles {
            host: host.to_owned(),
            region: region.to_owned(),
            way,
        })
    }

    /// Writes a file.
    pub(super) async fn write(&self, path: &str, text: &str) -> anyhow::Result<()> {
        let folder = Path::new(path).parent().unwrap_or_else(|| Path::new("/"));
        if self.way == HostWay::Here {
            let written = async {
                tokio::fs::create_dir_all(folder).await?;
                tokio::fs::write(path, text).await
            };
            return written
                .await
                .with_context(|| format!("cannot write {path}"));
        }
        let folder = quoted(&folder.display().to_string());
        let script = format!("mkdir -p {folder} && cat >{}", quoted(path));
        let sent = self.run(&script, text).await;
        sent.with_context(|| format!("cannot write {path} on {} by ssh", self.host))
    }

    /// Removes a file; one that is not there is fine.
    pub(super) async fn remove(&self, path: &str) -> anyhow::Result<()> {
        if self.way == HostWay::Here {
            return match tokio::fs::remove_file(path).await {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(error).with_context(|| format!("cannot remove {path}"))
                }
                _ => Ok(()),
            };
        }
        let gone = self.run(&format!("rm -f {}", quoted(path)), "").await;
        gone.with_context(|| format!("cannot remove {path} on {} by ssh", self.host))
    }

    /// What ssh is called with, before the script.
    fn arguments(&self) -> Vec<String> {
        let mut options = vec!["BatchMode=yes".to_owned(), "ConnectTimeout=10".to_owned()];
        let host = &self.host;
        let address = match &self.way {
            HostWay::Here => return Vec::new(),
            HostWay::InCluster(address) => {
                // As PVE's own calls find the host's key (PVE::SSHInfo).
                options.push(format!("HostKeyAlias={host}"));
                let known = known_hosts(host);
                if known.exists() {
                    options.push(format!("UserKnownHostsFile={}", known.display()));
                    options.push("GlobalKnownHostsFile=none".to_owned());
                }
                address
            }
            HostWay::Foreign(address) => address,
        };
        let options = options.into_iter();
        let mut arguments: Vec<String> = options
            .flat_map(|option| ["-o".to_owned(), option])
            .collect();
        arguments.push(format!("root@{address}"));
        arguments
    }

    /// What to do where ssh does not come to the host.
    fn advice(&self) -> String {
        let (host, region) = (&self.host, &self.region);
        match &self.way {
            HostWay::Here => String::new(),
            HostWay::InCluster(address) => format!(
                "root of this host must reach root@{address} ({host}), as hosts of a PVE cluster reach each other: `pvecm updatecerts` on both brings keys up to date; or run this command on {host}"
            ),
            HostWay::Foreign(address) => format!(
                "root of this machine must reach root@{address}, the address of {host} that PVE of region {region} names: type `ssh root@{address}` here as root, take the host's key once you know that it is {host}'s of {region}, and `ssh-copy-id root@{address}` lets this machine in; where another address leads there, put `Host {address}` with its `HostName` into /root/.ssh/config; or run this command on {host}, with channel = \"local\" for its region"
            ),
        }
    }

    /// Runs a script on the host, if that is called as it should be.
    async fn run(&self, script: &str, stdin: &str) -> anyhow::Result<()> {
        let host = quoted(&self.host);
        let script = format!(
            "name=$(uname -n); name=${{name%%.*}}; if test \"$name\" != {host}; then echo \"the host at this address is called $name\" >&2; exit 1; fi; {script}"
        );
        let mut command = Command::new("ssh");
        command
            .args(self.arguments())
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
            .with_context(|| format!("ssh did not end within a minute; {}", self.advice()))??;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("{}; {}", said.trim(), self.advice());
        }
        Ok(())
    }
}

/// Where PVE keeps the key of a host of this cluster.
fn known_hosts(host: &str) -> PathBuf {
    Path::new("/etc/pve/nodes")
        .join(host)
        .join("ssh_known_hosts")
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pve::Member;

    /// A cluster of which `pve1` answered; `pve3` has no address.
    fn status() -> ClusterStatus {
        let member = |local: bool, address: Option<&str>| Member {
            online: true,
            local,
            address: address.map(str::to_owned),
            odd: None,
        };
        ClusterStatus {
            members: [
                ("pve1".into(), member(true, Some("192.0.2.11"))),
                ("pve2".into(), member(false, Some("2001:db8::12"))),
                ("pve3".into(), member(false, None)),
                ("pve4".into(), member(false, Some("pve4 -oProxyCommand=x"))),
            ]
            .into(),
            ..ClusterStatus::default()
        }
    }

    fn files(local: bool, host: &str) -> Result<HostFiles, String> {
        let found = HostFiles::of(("west", local), host, &status());
        found.map_err(|error| error.to_string())
    }

    /// It finds a region behind a token whose host is taken for this one, by its name or by PVE's own word, which is that of another
    /// cluster's host.
    #[test]
    fn a_host_is_this_one_where_the_own_cluster_says_so_and_nowhere_else() {
        let way = |local, host| files(local, host).map(|files| files.way);
        assert_eq!(way(true, "pve1"), Ok(HostWay::Here));
        let address = IpAddr::from([192, 0, 2, 11]);
        assert_eq!(way(false, "pve1"), Ok(HostWay::Foreign(address)));
        for (local, host) in [
            (true, "pve3"),
            (false, "pve3"),
            (true, "pve4"),
            (true, "pve9"),
        ] {
            let refused = way(local, host).expect_err("it has no address");
            let told = "PVE of region west names no address of it";
            assert!(refused.contains(told), "{refused}");
        }
    }

    #[test]
    fn ssh_goes_to_the_address_and_knows_a_key_by_name_in_the_own_cluster_alone() {
        let arguments = |local, host| files(local, host).expect("a way").arguments().join(" ");
        let usual = "-o BatchMode=yes -o ConnectTimeout=10";
        assert_eq!(
            arguments(true, "pve2"),
            format!("{usual} -o HostKeyAlias=pve2 root@2001:db8::12")
        );
        assert_eq!(
            arguments(false, "pve2"),
            format!("{usual} root@2001:db8::12")
        );
        let advice = files(false, "pve2").expect("a way").advice();
        assert!(
            advice.contains("type `ssh root@2001:db8::12` here as root"),
            "{advice}"
        );
    }
}

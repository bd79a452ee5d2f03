//! What a person answers: in a file (`--answers`, for Ansible and its like), at the terminal, or not at all.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use super::images::is_volume;
use crate::bounded_file;
use crate::config::file::ChannelKind;

/// All answers. What is absent is chosen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SetupAnswers {
    pub(super) kubernetes: KubernetesAnswers,
    pub(super) proxmox: ProxmoxAnswers,
    pub(super) template: TemplateAnswers,
    pub(super) network: NetworkAnswers,
    pub(super) pool: PoolAnswers,
}

/// How Kubernetes is reached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct KubernetesAnswers {
    /// An administrator's kubeconfig on this machine.
    pub(super) kubeconfig: Option<PathBuf>,
    /// The context in it. Default: the current one.
    pub(super) context: Option<String>,
    /// The API server's address for the daemon. Default: the administrator's.
    pub(super) server: Option<String>,
}

/// How PVE is reached, and which VMIDs machines get.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ProxmoxAnswers {
    /// `local` (default) through the broker on this host, or `token`.
    pub(super) channel: Option<ChannelKind>,
    /// PVE's API, such as `https://192.0.2.11:8006`.
    pub(super) endpoints: Option<Vec<String>>,
    /// SHA-256 fingerprint of the API's certificate.
    pub(super) fingerprint: Option<String>,
    /// A file with the CA of the API's certificate.
    pub(super) ca_file: Option<PathBuf>,
    /// The token by which this setup reaches PVE where it does not run on a host.
    pub(super) admin_token_id: Option<String>,
    /// The file with its secret.
    pub(super) admin_token_secret_file: Option<PathBuf>,
    /// The daemon's token; it is made where it is not there.
    pub(super) token_id: Option<String>,
    /// The file with its secret.
    pub(super) token_secret_file: Option<PathBuf>,
    /// The resource pool that machines come to, on which the daemon's token has its rights.
    pub(super) resource_pool: Option<String>,
    /// VMIDs for machines alone, such as `9000-9999`.
    pub(super) vmids: Option<String>,
}

/// What machines are cloned from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TemplateAnswers {
    /// What the configuration calls it.
    pub(super) name: Option<String>,
    /// A template that is there.
    pub(super) vmid: Option<u32>,
    /// Build one.
    pub(super) build: Option<bool>,
    /// The cloud image of a build: a URL, or a volume that storages hold already.
    pub(super) image: Option<String>,
    /// The checksum of the image at a URL, as `sha512:0123…`.
    pub(super) checksum: Option<String>,
    /// Where the newest image of Debian is looked up.
    pub(super) mirror: Option<String>,
    /// The storage of a build's disks.
    pub(super) storage: Option<String>,
    /// VMIDs for built templates.
    pub(super) vmids: Option<String>,
    /// The Kubernetes version of a build. Default: the API server's minor, of k3s its release.
    pub(super) kubernetes: Option<String>,
    /// The hosts that a template is built on. Default: those that a pool may use and that have the image.
    pub(super) hosts: Option<Vec<String>>,
}

/// Where machines are in the network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct NetworkAnswers {
    /// The bridge of their network card. Default: the template's.
    pub(super) bridge: Option<String>,
    /// The VLAN on it.
    pub(super) vlan: Option<u16>,
    /// `dhcp`, or `ranges` with what follows.
    pub(super) addresses: Option<Addresses>,
    /// The network, such as `192.0.2.0/24`.
    pub(super) subnet: Option<String>,
    /// Addresses in it that nobody else gives out.
    pub(super) ranges: Option<Vec<String>>,
    /// The gateway in it.
    pub(super) gateway: Option<String>,
    /// Name servers.
    pub(super) nameservers: Option<Vec<String>>,
}

/// Who gives machines their addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Addresses {
    /// A DHCP server.
    Dhcp,
    /// The daemon, out of ranges.
    Ranges,
}

/// The node pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PoolAnswers {
    /// The pool's name.
    pub(super) name: Option<String>,
    /// Sizes as cores and memory, such as `2x4GiB`.
    pub(super) instance_types: Option<Vec<String>>,
    /// Nodes that are always there.
    pub(super) min: Option<u32>,
    /// The most nodes.
    pub(super) max: Option<u32>,
    /// Hosts. Default: all.
    pub(super) hosts: Option<Vec<String>>,
}

impl SetupAnswers {
    /// The answers in a file. A wrong key or value is named with the line.
    pub(super) fn read(path: &Path) -> anyhow::Result<SetupAnswers> {
        let text = bounded_file::read_text(path, bounded_file::TEXT)
            .with_context(|| format!("cannot read the answers in {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("the answers in {}", path.display()))
    }

    /// Whether it is such a file.
    pub(super) fn is_in(bytes: &[u8]) -> bool {
        let text = std::str::from_utf8(bytes);
        text.is_ok_and(|text| toml::from_str::<SetupAnswers>(text).is_ok())
    }

    /// The answers as such a file.
    pub(super) fn text(&self) -> anyhow::Result<String> {
        Ok(toml::to_string(self)?)
    }

    /// Takes what a person typed for one of the questions.
    pub(super) fn set(&mut self, key: &str, typed: &str) -> anyhow::Result<()> {
        let text = || Some(typed.to_owned());
        let list = || Some(typed.split([',', ' ']).filter(|one| !one.is_empty()));
        let list = || list().map(|parts| parts.map(str::to_owned).collect::<Vec<_>>());
        match key {
            "kubernetes.kubeconfig" => {
                let path = PathBuf::from(typed);
                if !path.is_file() {
                    bail!("there is no file {typed}");
                }
                self.kubernetes.kubeconfig = Some(path);
            }
            "kubernetes.server" => self.kubernetes.server = text(),
            "proxmox.vmids" => self.proxmox.vmids = text(),
            "template" => {
                if typed == "build" {
                    self.template.build = Some(true);
                } else {
                    let vmid = typed.parse().ok();
                    self.template.vmid =
                        Some(vmid.with_context(|| {
                            format!("{typed:?} is neither a VMID nor \"build\"")
                        })?);
                }
            }
            "template.image" => {
                let url = typed.starts_with("https://") || typed.starts_with("http://");
                if !url && !is_volume(typed) {
                    bail!(
                        "{typed:?} is neither a URL nor a volume such as local:import/debian-13.qcow2"
                    );
                }
                self.template.image = text();
            }
            "template.checksum" => self.template.checksum = text(),
            "template.storage" => self.template.storage = text(),
            "network.bridge" => self.network.bridge = text(),
            "network.addresses" => {
                self.network.addresses = Some(match typed {
                    "dhcp" => Addresses::Dhcp,
                    "ranges" => Addresses::Ranges,
                    _ => bail!("{typed:?} is neither \"dhcp\" nor \"ranges\""),
                });
            }
            "network.subnet" => self.network.subnet = text(),
            "network.ranges" => self.network.ranges = list(),
            "network.gateway" => self.network.gateway = text(),
            "network.nameservers" => self.network.nameservers = list(),
            "pool.name" => self.pool.name = text(),
            "pool.instance_types" => self.pool.instance_types = list(),
            "pool.max" => {
                let most = typed.parse().ok();
                self.pool.max =
                    Some(most.with_context(|| format!("{typed:?} is no number of nodes"))?);
            }
            _ => bail!("nobody asks for {key}"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_a_terminal_make_a_file_that_reads_the_same() {
        let mut answers = SetupAnswers::default();
        for (key, typed) in [
            ("kubernetes.kubeconfig", "/dev/null"),
            ("kubernetes.server", "192.0.2.5:6443"),
            ("proxmox.vmids", "7000-7099"),
            ("template", "build"),
            ("template.image", "local:import/debian-13.qcow2"),
            ("template.checksum", "sha256:00"),
            ("template.storage", "tank"),
            ("network.bridge", "vmbr1"),
            ("network.addresses", "ranges"),
            ("network.subnet", "192.0.2.0/24"),
            ("network.ranges", "192.0.2.50-192.0.2.60, 192.0.2.70"),
            ("network.gateway", "192.0.2.1"),
            ("network.nameservers", "192.0.2.1 192.0.2.2"),
            ("pool.name", "batch"),
            ("pool.instance_types", "2x4GiB,4x8GiB"),
            ("pool.max", "7"),
        ] {
            let set = answers.set(key, typed);
            // `/dev/null` is no file, and is said not to be one.
            assert_eq!(set.is_err(), key == "kubernetes.kubeconfig", "{key}");
        }
        let ranges = answers.network.ranges.clone().unwrap_or_default();
        assert_eq!(ranges, ["192.0.2.50-192.0.2.60", "192.0.2.70"]);
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("answers.toml");
        std::fs::write(&path, answers.text().expect("TOML")).expect("written");
        assert_eq!(SetupAnswers::read(&path).expect("answers"), answers);
    }

    #[test]
    fn a_wrong_answer_is_named_with_its_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("answers.toml");
        for (text, words) in [
            ("[pool]\nmaxi = 3\n", "maxi"),
            ("[pool]\nmin = 0\nmax = \"many\"\n", "line 3"),
        ] {
            std::fs::write(&path, text).expect("written");
            let error = SetupAnswers::read(&path).expect_err("wrong");
            let said = format!("{error:#}");
            assert!(said.contains(words), "{said}");
            assert!(said.contains("answers.toml"), "{said}");
        }
        let mut answers = SetupAnswers::default();
        for (key, typed) in [
            ("pool.max", "many"),
            ("template", "debian"),
            ("template.image", "debian-13.qcow2"),
            ("x", "y"),
        ] {
            assert!(answers.set(key, typed).is_err(), "{key}");
        }
        assert_eq!(answers, SetupAnswers::default());
    }
}

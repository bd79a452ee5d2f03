//! What a person answers: in a file (`--answers`, for Ansible and its like), at the terminal, or not at all.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use toml_edit::{DocumentMut, Item};

use super::choose::Proposal;
use super::images::is_volume;
use super::templates::TemplateSource;
use crate::bounded_file;
use crate::cli::CliFailure;
use crate::config;
use crate::config::file::ChannelKind;
use crate::config::storage_names::StorageNames;

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
    /// The storage of a build's disks, or a list of which each host takes the first that it has.
    pub(super) storage: Option<StorageNames>,
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

/// What stands above a file of answers in which something was chosen.
const HEAD: &str = "\
# Behind a # stands what was chosen, since nothing was answered. Another time something else may be: without its # it is an answer.

";

impl SetupAnswers {
    /// The answers in a file. All that is wrong with its keys and values is named, each with its line.
    pub(super) fn read(path: &Path) -> Result<SetupAnswers, CliFailure> {
        let text = bounded_file::read_text(path, bounded_file::TEXT)
            .with_context(|| format!("cannot read the answers in {}", path.display()))?;
        let name = path.display().to_string();
        config::parse_as(&text, &name).map_err(CliFailure::Config)
    }

    /// Whether it is such a file.
    pub(super) fn is_in(bytes: &[u8]) -> bool {
        let text = std::str::from_utf8(bytes);
        text.is_ok_and(|text| toml::from_str::<SetupAnswers>(text).is_ok())
    }

    /// What was chosen where nothing was answered, as answers that say the same.
    pub(super) fn of_choices(proposal: &Proposal) -> SetupAnswers {
        let mut answers = SetupAnswers::default();
        let source = &proposal.wanted.template.source;
        // An answer names one VM, and not all templates of a name.
        let is_named = matches!(source, TemplateSource::Named(_));
        let chosen = proposal.choices.iter();
        for choice in chosen.filter(|choice| !choice.answered && !choice.value.is_empty()) {
            if !(is_named && choice.key == "template") {
                // No answer says how machines join, or by which commands a template is made for RKE2.
                let _ = answers.set(choice.key, &choice.value);
            }
        }
        if let (TemplateSource::Build(build), Some(_)) = (source, &answers.template.image) {
            // The image is known by it.
            answers.template.checksum = Some(build.checksum.clone());
        }
        answers
    }

    /// The answers as such a file. What was chosen where nothing was answered stands at its place behind `#`, to be taken as it is.
    pub(super) fn text(&self, chosen: &SetupAnswers) -> anyhow::Result<String> {
        let (answered, chosen) = (document(self)?, document(chosen)?);
        let (mut text, mut has_chosen) = (String::new(), false);
        for (name, table) in answered.iter() {
            let own = lines(table, |_| true);
            let of_choices = chosen
                .get(name)
                .map(|chosen| lines(chosen, |key| table.get(key).is_none()));
            let of_choices = of_choices.unwrap_or_default();
            if own.is_empty() && of_choices.is_empty() {
                continue;
            }
            if !text.is_empty() {
                text.push('\n');
            }
            let _ = writeln!(text, "[{name}]");
            for line in own {
                let _ = writeln!(text, "{line}");
            }
            for line in of_choices {
                let _ = writeln!(text, "#{line}");
                has_chosen = true;
            }
        }
        Ok(if has_chosen {
            HEAD.to_owned() + &text
        } else {
            text
        })
    }

    /// Takes what a person typed for one of the questions, or what was chosen, by the name of the answer.
    pub(super) fn set(&mut self, key: &str, typed: &str) -> anyhow::Result<()> {
        match key.split_once('.').unwrap_or((key, "")) {
            ("kubernetes", key) => self.kubernetes.set(key, typed),
            ("proxmox", key) => self.proxmox.set(key, typed),
            ("template", key) => self.template.set(key, typed),
            ("network", key) => self.network.set(key, typed),
            ("pool", key) => self.pool.set(key, typed),
            _ => bail!("no answer is called {key}"),
        }
    }
}

/// The answers as tables, in the order in which they are declared.
fn document(answers: &SetupAnswers) -> anyhow::Result<DocumentMut> {
    Ok(toml::to_string(answers)?.parse()?)
}

/// The lines of a table whose keys are wanted.
fn lines(table: &Item, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let entries = table
        .as_table_like()
        .into_iter()
        .flat_map(|table| table.iter());
    let wanted = entries.filter(|(key, _)| is_wanted(key));
    let lines = wanted.map(|(key, value)| format!("{key} = {}", value.to_string().trim()));
    lines.collect()
}

/// What is typed with commas or blanks between.
fn list(typed: &str) -> Vec<String> {
    let parts = typed.split([',', ' ']).filter(|one| !one.is_empty());
    parts.map(str::to_owned).collect()
}

fn nodes(typed: &str) -> anyhow::Result<u32> {
    let number = typed.parse().ok();
    number.with_context(|| format!("{typed:?} is no number of nodes"))
}

impl KubernetesAnswers {
    fn set(&mut self, key: &str, typed: &str) -> anyhow::Result<()> {
        match key {
            "kubeconfig" => {
                let path = PathBuf::from(typed);
                if !path.is_file() {
                    bail!("there is no file {typed}");
                }
                self.kubeconfig = Some(path);
            }
            "server" => self.server = Some(typed.to_owned()),
            _ => bail!("no answer is called kubernetes.{key}"),
        }
        Ok(())
    }
}

impl ProxmoxAnswers {
    fn set(&mut self, key: &str, typed: &str) -> anyhow::Result<()> {
        match key {
            "channel" => {
                self.channel = Some(match typed {
                    "local" => ChannelKind::Local,
                    "token" => ChannelKind::Token,
                    _ => bail!("{typed:?} is neither \"local\" nor \"token\""),
                });
            }
            "token_id" => self.token_id = Some(typed.to_owned()),
            "resource_pool" => self.resource_pool = Some(typed.to_owned()),
            "vmids" => self.vmids = Some(typed.to_owned()),
            _ => bail!("no answer is called proxmox.{key}"),
        }
        Ok(())
    }
}

impl TemplateAnswers {
    fn set(&mut self, key: &str, typed: &str) -> anyhow::Result<()> {
        match key {
            // Which template it is.
            "" if typed == "build" => self.build = Some(true),
            "" => {
                let vmid = typed.parse().ok();
                let wrong = || format!("{typed:?} is neither a VMID nor \"build\"");
                self.vmid = Some(vmid.with_context(wrong)?);
            }
            "name" => self.name = Some(typed.to_owned()),
            "image" => {
                let url = typed.starts_with("https://") || typed.starts_with("http://");
                if !url && !is_volume(typed) {
                    bail!(
                        "{typed:?} is neither a URL nor a volume such as local:import/debian-13.qcow2"
                    );
                }
                self.image = Some(typed.to_owned());
            }
            "checksum" => self.checksum = Some(typed.to_owned()),
            "storage" => self.storage = Some(list(typed).into_iter().collect()),
            "vmids" => self.vmids = Some(typed.to_owned()),
            "kubernetes" => self.kubernetes = Some(typed.to_owned()),
            "hosts" => self.hosts = Some(list(typed)),
            _ => bail!("no answer is called template.{key}"),
        }
        Ok(())
    }
}

impl NetworkAnswers {
    fn set(&mut self, key: &str, typed: &str) -> anyhow::Result<()> {
        match key {
            "bridge" => self.bridge = Some(typed.to_owned()),
            "addresses" => {
                self.addresses = Some(match typed {
                    "dhcp" => Addresses::Dhcp,
                    "ranges" => Addresses::Ranges,
                    _ => bail!("{typed:?} is neither \"dhcp\" nor \"ranges\""),
                });
            }
            "subnet" => self.subnet = Some(typed.to_owned()),
            "ranges" => self.ranges = Some(list(typed)),
            "gateway" => self.gateway = Some(typed.to_owned()),
            "nameservers" => self.nameservers = Some(list(typed)),
            _ => bail!("no answer is called network.{key}"),
        }
        Ok(())
    }
}

impl PoolAnswers {
    fn set(&mut self, key: &str, typed: &str) -> anyhow::Result<()> {
        match key {
            "name" => self.name = Some(typed.to_owned()),
            "instance_types" => self.instance_types = Some(list(typed)),
            "min" => self.min = Some(nodes(typed)?),
            "max" => self.max = Some(nodes(typed)?),
            "hosts" => self.hosts = Some(list(typed)),
            _ => bail!("no answer is called pool.{key}"),
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
            ("template.storage", "tank, nvme"),
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
        let text = answers.text(&SetupAnswers::default()).expect("TOML");
        assert!(!text.contains('#'), "{text}");
        std::fs::write(&path, text).expect("written");
        assert_eq!(SetupAnswers::read(&path).expect("answers"), answers);
    }

    /// It finds comments whose keys or values no file of answers has, and a key that is there twice without its `#`.
    #[test]
    fn what_was_chosen_is_taken_where_it_stands() {
        let (mut answers, mut chosen) = (SetupAnswers::default(), SetupAnswers::default());
        for (key, typed) in [("pool.max", "7"), ("network.addresses", "ranges")] {
            answers.set(key, typed).expect("an answer");
        }
        for (key, value) in [
            ("proxmox.channel", "token"),
            ("proxmox.token_id", "scale@pve!daemon"),
            ("proxmox.resource_pool", "nodes"),
            ("proxmox.vmids", "7000-7099"),
            ("template", "9000"),
            ("template.name", "debian"),
            ("template.vmids", "8900-8919"),
            ("template.kubernetes", "1.34"),
            ("template.hosts", "pve1, pve2"),
            ("network.ranges", "192.0.2.50-192.0.2.60, 192.0.2.70"),
            ("pool.min", "0"),
            ("pool.max", "5"),
            ("pool.instance_types", "2x4GiB, 4x8GiB"),
            ("pool.hosts", "pve1"),
        ] {
            chosen.set(key, value).expect("an answer");
        }
        let text = answers.text(&chosen).expect("TOML");
        assert!(text.starts_with("# Behind a # "), "{text}");
        let read = |text: &str| toml::from_str::<SetupAnswers>(text);
        assert_eq!(read(&text).ok(), Some(answers), "{text}");
        let without = text.lines().filter(|line| !line.starts_with("# "));
        let without: Vec<&str> = without.map(|line| line.trim_start_matches('#')).collect();
        let taken = read(&without.join("\n")).unwrap_or_else(|error| panic!("{error}\n{text}"));
        chosen.pool.max = Some(7);
        chosen.network.addresses = Some(Addresses::Ranges);
        assert_eq!(taken, chosen, "{text}");
        assert!(text.contains("\n[pool]\nmax = 7\n#"), "{text}");
        assert!(!text.contains("[kubernetes]"), "{text}");
    }

    /// It finds serde's words (`expected u32`, `expected a sequence`, `unknown variant`) in the place of those of `check`.
    #[test]
    fn a_wrong_answer_is_named_with_its_line_in_the_words_of_check() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("answers.toml");
        for (text, words) in [
            (
                "[pool]\nmaxi = 3\n",
                ":2:1: pool.maxi: unknown key `maxi`; did you mean `max`?",
            ),
            (
                "[pool]\nmin = 0\nmax = \"many\"\n",
                ":3:7: pool.max = \"many\": expected a whole number, 0 to 5000, found string \"many\"",
            ),
            (
                "[pool]\ninstance_types = \"2x4GiB\"\n",
                ":2:18: pool.instance_types = \"2x4GiB\": expected a list, found string \"2x4GiB\"",
            ),
            (
                "[network]\naddresses = \"static\"\n",
                "network.addresses = \"static\": unknown value `static`, expected `dhcp` or `ranges`",
            ),
            (
                "[template]\nbuild = 1\n",
                "template.build = 1: expected true or false, found the number 1",
            ),
            (
                "[pool]\nmax = 3\nmax = 4\n",
                "is there twice; expected once",
            ),
        ] {
            std::fs::write(&path, text).expect("written");
            let Err(CliFailure::Config(errors)) = SetupAnswers::read(&path) else {
                panic!("{text:?} is taken");
            };
            let said = errors.to_string();
            assert!(said.contains(words), "{words:?} is not in {said}");
            assert!(said.contains("answers.toml"), "{said}");
        }
        let mut answers = SetupAnswers::default();
        for (key, typed) in [
            ("pool.max", "many"),
            ("template", "debian"),
            ("template.image", "debian-13.qcow2"),
            ("proxmox.channel", "both"),
            ("pool.join.method", "k3s"),
            ("x", "y"),
        ] {
            assert!(answers.set(key, typed).is_err(), "{key}");
        }
        assert_eq!(answers, SetupAnswers::default());
    }
}

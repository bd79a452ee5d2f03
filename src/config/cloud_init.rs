//! Texts for cloud-init: what they may name, and what of them cloud-init would not understand. The rules of the file try them with a
//! machine as there may be one, and the executor fills them in for each that there is.

use serde_json::{Value, json};

use super::yaml::reword;
use crate::model::facts::{self, Facts};
use crate::model::policy::{POOL_LABEL, STARTUP_TAINT};
use crate::model::scheduling::{Effect, Labels, Taint};

/// Longest text in bytes once it is filled in: three of them, a join and the ISO around must come through PVE's API.
pub const LONGEST: usize = 48 * 1024;

/// What a text is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloudInitKind {
    /// `user-data`.
    User,
    /// `vendor-data`.
    Vendor,
    /// `network-config`.
    Network,
    /// Talos' machine configuration, as `user-data`.
    Machine,
}

/// Before that a line may stand after which cloud-init itself fills in the rest; what it shall fill in is `raw` to us.
/// What user and vendor data begin with (cloud-init `user_data.py`, `INCLUSION_TYPES_MAP`, and MIME).
const JINJA: &str = "## template: jinja";
const BEGINNINGS: [&str; 10] = [
    "#!",
    "#cloud-boothook",
    "#cloud-config",
    "#cloud-config-archive",
    "#cloud-config-jsonp",
    "#include",
    "#include-once",
    "#part-handler",
    "Content-Type:",
    "MIME-Version:",
];

/// A network card as texts may name it, `nics[0]` and so on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nic {
    /// MAC address, in lower case.
    pub mac: String,
    /// Fixed addresses with their prefix, such as `192.0.2.10/24`.
    pub addresses: Vec<String>,
    /// Gateway of IPv4.
    pub gateway4: Option<String>,
    /// Gateway of IPv6.
    pub gateway6: Option<String>,
    /// It has an IPv4 address by DHCP.
    pub dhcp4: bool,
    /// It has an IPv6 address by DHCP.
    pub dhcp6: bool,
    /// It finds an IPv6 address by itself.
    pub auto6: bool,
}

impl Nic {
    /// A card with what PVE's `ipconfigN` says of it.
    pub fn read(mac: String, ipconfig: Option<&str>) -> Nic {
        let mut nic = Nic {
            mac,
            ..Nic::default()
        };
        let parts = ipconfig.into_iter().flat_map(|text| text.split(','));
        for (key, value) in parts.filter_map(|part| part.split_once('=')) {
            match (key, value) {
                ("ip", "dhcp") => nic.dhcp4 = true,
                ("ip6", "dhcp") => nic.dhcp6 = true,
                ("ip6", "auto") => nic.auto6 = true,
                ("ip" | "ip6", address) => nic.addresses.push(address.to_owned()),
                ("gw", gateway) => nic.gateway4 = Some(gateway.to_owned()),
                ("gw6", gateway) => nic.gateway6 = Some(gateway.to_owned()),
                _ => {}
            }
        }
        nic
    }

    /// Its fixed addresses without their prefix.
    fn ips(&self) -> impl Iterator<Item = &str> {
        let addresses = self.addresses.iter();
        addresses.map(|text| text.split_once('/').map_or(&**text, |(ip, _)| ip))
    }
}

/// What texts may name beside the machine's [`Facts`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GapValues {
    /// `zone`: what the node's zone is called.
    pub zone: String,
    /// `nics`: the network cards by number.
    pub nics: Vec<Nic>,
    /// `nameservers`.
    pub nameservers: Vec<String>,
    /// `searchdomain`; empty when there is none.
    pub searchdomain: String,
    /// `user`: cloud-init's user; empty for the image's own.
    pub user: String,
    /// `ssh_keys`: the user's public keys.
    pub ssh_keys: Vec<String>,
    /// `labels`: those of the node that a kubelet may give itself.
    pub labels: Labels,
    /// `taints`: those that the node begins with.
    pub taints: Vec<Taint>,
    /// `provider_id`; empty where the pool has none.
    pub provider_id: String,
}

impl GapValues {
    /// A machine as there may be one.
    pub fn sample() -> GapValues {
        let nic = |number: u8| Nic {
            mac: format!("bc:24:11:00:00:{number:02x}"),
            addresses: vec!["192.0.2.10/24".to_owned(), "2001:db8::10/64".to_owned()],
            gateway4: Some("192.0.2.1".to_owned()),
            gateway6: Some("2001:db8::1".to_owned()),
            ..Nic::default()
        };
        GapValues {
            zone: "pve1".to_owned(),
            nics: (0..8).map(nic).collect(),
            nameservers: vec!["192.0.2.1".to_owned()],
            searchdomain: "example.org".to_owned(),
            user: "admin".to_owned(),
            ssh_keys: vec!["ssh-ed25519 AAAA admin".to_owned()],
            labels: [(POOL_LABEL.into(), "pool".into())].into_iter().collect(),
            taints: vec![Taint {
                key: STARTUP_TAINT.into(),
                value: "".into(),
                effect: Effect::NoSchedule,
            }],
            provider_id: "proxmox://default/9001".to_owned(),
        }
    }

    /// The names for the network cards, and for where the machine is.
    fn cards(&self) -> [(&'static str, Value); 4] {
        let addresses: Vec<&String> = self.nics.iter().flat_map(|nic| &nic.addresses).collect();
        let ips: Vec<&str> = self.nics.iter().flat_map(Nic::ips).collect();
        let nics = self.nics.iter().map(|nic| {
            json!({
                "mac": nic.mac, "addresses": nic.addresses, "ips": nic.ips().collect::<Vec<_>>(), "gateway4": nic.gateway4, "gateway6": nic.gateway6,
                "dhcp4": nic.dhcp4, "dhcp6": nic.dhcp6, "auto6": nic.auto6,
            })
        });
        [
            ("addresses", json!(addresses)),
            ("ips", json!(ips)),
            ("nics", nics.collect()),
            ("zone", json!(self.zone)),
        ]
    }

    fn pairs(&self) -> Vec<(&'static str, Value)> {
        let taints = self.taints.iter().map(|taint| {
            json!({"key": &*taint.key, "value": &*taint.value, "effect": format!("{:?}", taint.effect)})
        });
        let own = [
            ("labels", json!(self.labels)),
            ("provider_id", json!(self.provider_id)),
            ("taints", taints.collect()),
            ("nameservers", json!(self.nameservers)),
            ("searchdomain", json!(self.searchdomain)),
            ("ssh_keys", json!(self.ssh_keys)),
            ("user", json!(self.user)),
        ];
        own.into_iter().chain(self.cards()).collect()
    }
}

/// A text for cloud-init as it is for one machine.
///
/// # Errors
/// It names what is not known, or comes to something that cloud-init would not understand.
pub fn filled(
    kind: CloudInitKind,
    text: &str,
    facts: &Facts<'_>,
    words: &GapValues,
) -> Result<String, String> {
    refuse_odd(named(facts, words), "a text for cloud-init")?;
    let filled = facts::fill_values(text, facts, &words.pairs())?;
    check(kind, &filled)?;
    Ok(filled)
}

/// A text about a machine's node as it is for one machine: an argument of its kubelet, or the command that joins it. It may name the
/// machine's [`Facts`], its zone and its network cards, and `further` names with their values.
///
/// # Errors
/// It names what is not known.
pub fn filled_for_node(
    text: &str,
    facts: &Facts<'_>,
    words: &GapValues,
    further: &[(&str, &str)],
) -> Result<String, String> {
    let place = std::iter::once(("zone", words.zone.as_str()));
    refuse_odd(place.chain(cards(words)), "a text about a node")?;
    let further = further.iter();
    let names = words.cards().into_iter();
    let names: Vec<(&str, Value)> = names
        .chain(further.map(|(name, value)| (*name, json!(value))))
        .collect();
    facts::fill_values(text, facts, &names)
}

/// Whether a text may name network cards: if not, nobody need read which ones the machine has.
pub fn may_name_cards(text: &str) -> bool {
    let names = ["addresses", "ips", "nics"];
    facts::has_gaps(text) && names.iter().any(|name| text.contains(name))
}

/// Refuses a name that would be syntax to YAML or to a shell in `what`.
fn refuse_odd<'a>(
    mut names: impl Iterator<Item = (&'static str, &'a str)>,
    what: &str,
) -> Result<(), String> {
    let odd = names.find_map(|(name, value)| {
        let odd = value.chars().find(|c| !plain(*c))?;
        Some(format!(
            "{name} is {value:?}, and {odd:?} has no place in {what}"
        ))
    });
    odd.map_or(Ok(()), Err)
}

/// The names that are put into texts as they are. Keys are a person's own words, of the file, and go through `tojson`.
fn named<'a>(
    facts: &Facts<'a>,
    words: &'a GapValues,
) -> impl Iterator<Item = (&'static str, &'a str)> {
    let own = [
        ("host", facts.host),
        ("instance_type", facts.instance_type),
        ("machine", facts.machine),
        ("pool", facts.pool),
        ("region", facts.region),
        ("searchdomain", &words.searchdomain),
        ("provider_id", &words.provider_id),
        ("user", &words.user),
        ("zone", &words.zone),
    ];
    let servers = words.nameservers.iter();
    let servers = servers.map(|text| ("nameservers", text.as_str()));
    own.into_iter().chain(servers).chain(cards(words))
}

/// What is said of network cards.
fn cards(words: &GapValues) -> impl Iterator<Item = (&'static str, &str)> {
    words.nics.iter().flat_map(|nic| {
        let gateways = nic.gateway4.iter().chain(&nic.gateway6);
        let texts = nic.addresses.iter().chain(gateways).chain([&nic.mac]);
        texts.map(|text| ("nics", text.as_str()))
    })
}

fn plain(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '/' | '@' | '+')
}

/// What a person gets wrong.
fn check(kind: CloudInitKind, text: &str) -> Result<(), String> {
    if text.len() > LONGEST {
        return Err(format!(
            "expected at most {LONGEST} bytes; it comes to {}",
            text.len()
        ));
    }
    match kind {
        CloudInitKind::Network => return network(text),
        CloudInitKind::Machine => return machine(text),
        CloudInitKind::User | CloudInitKind::Vendor => {}
    }
    let mut lines = text.lines();
    let mut first = lines.next().unwrap_or_default().trim_end();
    let jinja = first == JINJA;
    if jinja {
        first = lines.next().unwrap_or_default().trim_end();
    }
    let word = first.split_whitespace().next().unwrap_or_default();
    let known = |known: &str| word == known || (known == "#!" && first.starts_with("#!"));
    if !BEGINNINGS.iter().any(|one| known(one)) {
        // The text is not quoted: it may be of a file that not everybody who reads this may read.
        return Err(format!(
            "the {} line must say what it is: #cloud-config, #!/bin/sh, #include and the like; cloud-init would pass over the text as it is",
            if jinja { "second" } else { "first" },
        ));
    }
    // What cloud-init has yet to fill in need not be YAML.
    if word != "#cloud-config" || jinja {
        return Ok(());
    }
    match yaml(text)? {
        Value::Object(_) | Value::Null => Ok(()),
        _ => Err("expected keys and values after #cloud-config".to_owned()),
    }
}

fn network(text: &str) -> Result<(), String> {
    let all = yaml(text)?;
    let inner = all.get("network").unwrap_or(&all);
    let version = inner.get("version").and_then(Value::as_i64);
    if matches!(version, Some(1 | 2)) {
        return Ok(());
    }
    Err("expected a network configuration with version: 1 or version: 2 in it".to_owned())
}

/// A worker's machine configuration: YAML documents, one of which has `machine` in it. What Talos makes of it is Talos' to say, but a
/// control plane that joins by the autoscaler would be a disaster.
fn machine(text: &str) -> Result<(), String> {
    let mut found = None;
    for document in text.split("\n---") {
        let whole = yaml(document)?;
        found = found.or_else(|| whole.get("machine").cloned());
    }
    let machine = found.ok_or("expected Talos' machine configuration, with machine: in it")?;
    match machine.get("type").and_then(Value::as_str) {
        Some("worker") => Ok(()),
        _ => Err("expected the configuration of a worker (machine.type: worker)".to_owned()),
    }
}

/// Whether user data say that cloud-init shall not read vendor data.
pub fn refuses_vendor_data(text: &str) -> bool {
    let own = text.starts_with("#cloud-config");
    let all = own.then(|| yaml(text).ok()).flatten();
    let vendor = all.as_ref().and_then(|all| all.get("vendor_data"));
    let enabled = vendor.and_then(|vendor| vendor.get("enabled"));
    enabled.is_some_and(|enabled| match enabled {
        Value::Bool(on) => !on,
        Value::String(text) => matches!(text.as_str(), "false" | "no" | "off" | "0"),
        _ => false,
    })
}

/// The text as YAML. Errors say the line and quote nothing.
fn yaml(text: &str) -> Result<Value, String> {
    serde_saphyr::from_str(text).map_err(|error| {
        let line = error.location().map(|location| location.line());
        let line = line.map_or_else(String::new, |line| format!("line {line}: "));
        let said = error.without_snippet().to_string();
        let said = reword(said.lines().next().unwrap_or_default());
        // This one quotes the key; its line says which it is.
        let twice = said.starts_with("duplicate mapping key");
        let said = if twice {
            "a key is there twice"
        } else {
            &*said
        };
        format!("{line}it is no YAML: {said}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: Facts<'_> = Facts {
        machine: "small-abcde",
        vmid: 9001,
        host: "pve1",
        region: "home",
        pool: "small",
        instance_type: "s",
    };

    fn user(text: &str) -> Result<String, String> {
        filled(CloudInitKind::User, text, &FACTS, &GapValues::sample())
    }

    #[test]
    fn what_cloud_init_would_not_understand_is_said_with_its_line() {
        for (text, said) in [
            ("runcmd:\n- a\n", "the first line must say what it is"),
            (
                "# cloud-config\nruncmd:\n- a\n",
                "the first line must say what it is",
            ),
            ("#cloud-config\na: 1\nb: [\n", "it is no YAML"),
            ("#cloud-config\na: 1\na: 2\n", "line 3: it is no YAML"),
            ("#cloud-config\n- a\n", "expected keys and values"),
            ("#cloud-config\nhostname: {{ hsot }}\n", "it names \"hsot\""),
            ("#cloud-config\n\na: {{ host\n", "line "),
            (
                "#cloud-config\na: {{ nics[9].mac }}\n",
                "line 2: it cannot be filled in",
            ),
        ] {
            let why = user(text).expect_err(text);
            assert!(why.contains(said), "{text:?}: {why}");
        }
        // It may be the text of a file that not everybody may read.
        for text in [
            "hush-hush\n",
            "## template: jinja\nhush-hush\n",
            "#cloud-config\nhush-hush\n",
            "#cloud-config\nhush: [\n",
            "#cloud-config\nhush: 1\nhush: 2\n",
            "#cloud-config\na: \"hush\n",
            "#cloud-config\na: !!int hush\n",
            "#cloud-config\na: *hush\n",
        ] {
            let why = user(text).expect_err(text);
            assert!(!why.contains("hush"), "{text:?}: {why}");
        }
        let long = format!("#!/bin/sh\n{}", "x".repeat(LONGEST));
        assert!(user(&long).is_err_and(|why| why.contains("at most 49152 bytes")));
        for text in ["", "version: 3\n", "- a\n", "#cloud-config\nruncmd: []\n"] {
            let network = filled(CloudInitKind::Network, text, &FACTS, &GapValues::sample());
            assert!(network.is_err(), "{text:?}");
        }
    }

    #[test]
    fn gaps_are_filled_in() {
        let text = "#cloud-config\nfqdn: {{ machine }}.{{ searchdomain }}\nkeys: {{ ssh_keys | tojson }}\nat: {{ zone }}/{{ vmid }}\n";
        assert_eq!(
            user(text).as_deref(),
            Ok(
                "#cloud-config\nfqdn: small-abcde.example.org\nkeys: [\"ssh-ed25519 AAAA admin\"]\nat: pve1/9001"
            )
        );
        let network = "version: 2\nethernets:\n{% for nic in nics %}\n  nic{{ loop.index0 }}:\n    match: {macaddress: \"{{ nic.mac }}\"}\n    addresses: {{ nic.addresses | tojson }}\n{% endfor %}\n";
        let filled = filled(
            CloudInitKind::Network,
            network,
            &FACTS,
            &GapValues::sample(),
        );
        assert!(filled.is_ok_and(|text| text.contains("addresses: [\"192.0.2.10/24\"")));
        let jinja = "## template: jinja\n#cloud-config\nfqdn: {{ machine }}.{% raw %}{{ v1.region }}{% endraw %}\n";
        assert_eq!(
            user(jinja).as_deref(),
            Ok("## template: jinja\n#cloud-config\nfqdn: small-abcde.{{ v1.region }}")
        );
        let why = user("## template: jinja\nruncmd: []\n");
        assert!(why.is_err_and(|why| why.starts_with("the second line must say what it is")));
        for text in [
            "#!/bin/sh\necho {{ host }}\n",
            "#include\nhttps://x/{{ pool }}\n",
        ] {
            assert!(user(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_name_that_would_be_syntax_is_refused() {
        for odd in ["pve1\n- x", "a\"b", "a b", "{a}", "a'b", "$(a)", "a#b"] {
            let facts = Facts { host: odd, ..FACTS };
            let why = filled(
                CloudInitKind::User,
                "#!/bin/sh\n",
                &facts,
                &GapValues::sample(),
            );
            assert!(why.is_err_and(|why| why.starts_with("host is ")), "{odd}");
        }
    }
}

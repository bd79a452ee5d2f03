//! What the file says of networks and the addresses of machines.

use super::{SMALL, messages, parse};

const NETWORK: &str = "[network.lan]\nsubnet = \"192.0.2.0/24\"\nranges = [\"192.0.2.1-192.0.2.9\", \"192.0.2.250-192.0.2.255\"]\n\
     gateway = \"192.0.2.1\"\nexclude = [\"192.0.2.4-192.0.2.5\"]\nnameservers = [\"192.0.2.251\"]\nipv6 = \"auto\"\n";

fn with(network: &str) -> String {
    SMALL.replace("max = 3", "max = 3\nnetwork = \"lan\"") + network
}

/// Whether addresses are asked for on the wire is the daemon's matter alone: the broker's policy is the same, and no broker is out of date
/// by it.
#[test]
fn the_wire_is_asked_where_the_file_says_so() {
    let read = |text: &str| parse(&with(text), "test.toml").unwrap_or_else(|e| panic!("{e}"));
    let (plain, asking) = (
        read(NETWORK),
        read(&format!("{NETWORK}ask_on_wire = true\n")),
    );
    assert!(!plain.networks["lan"].ask_on_wire);
    assert!(asking.networks["lan"].ask_on_wire);
    assert_eq!(plain.policy_hash(), asking.policy_hash());
}

/// Whoever wants serving certificates learns when the file is read which pools get none.
#[test]
fn pools_without_known_addresses_get_no_serving_certificates() {
    let read = |text: &str| parse(text, "test.toml").unwrap_or_else(|e| panic!("{e}"));
    let asked = |text: &str| {
        let text = text.replace(
            "[proxmox]",
            "[kubernetes]\nserving_certificates = true\n[proxmox]",
        );
        read(&text).warnings
    };
    let told = asked(SMALL).join("\n");
    assert!(
        told.contains("the addresses of machines of small,"),
        "{told}"
    );
    assert!(asked(&with(NETWORK)).is_empty());
    let k3s =
        format!("{SMALL}\n[pool.small.join]\nmethod = \"k3s\"\nendpoint = \"192.0.2.1:6443\"\n");
    let of_k3s = asked(&k3s).join("\n");
    assert!(!of_k3s.contains("serving_certificates"), "{of_k3s}");
    assert!(read(SMALL).warnings.is_empty());
}

#[test]
fn ranges_are_left_without_what_no_machine_may_have() {
    let settings = parse(&with(NETWORK), "test.toml").unwrap_or_else(|e| panic!("{e}"));
    let ranges = settings.policy.networks["lan"].ranges.iter();
    let ranges: Vec<String> = ranges.map(ToString::to_string).collect();
    assert_eq!(
        ranges,
        [
            "192.0.2.2-192.0.2.3",
            "192.0.2.6-192.0.2.9",
            "192.0.2.250",
            "192.0.2.252-192.0.2.254"
        ]
    );
    assert_eq!(&*settings.policy.pools["small"].networks[&0], "lan");
    let network = &settings.networks["lan"];
    let text = network.ipconfig(&["192.0.2.7".parse().expect("an address")]);
    assert_eq!(text.as_deref(), Ok("ip=192.0.2.7/24,gw=192.0.2.1,ip6=auto"));
    for wrong in [
        &["192.0.2.4"][..],
        &[],
        &["192.0.2.7", "192.0.2.8"],
        &["2001:db8::1"],
    ] {
        let addresses: Vec<_> = wrong
            .iter()
            .map(|ip| ip.parse().expect("an address"))
            .collect();
        assert!(network.ipconfig(&addresses).is_err(), "{wrong:?}");
    }
    assert!(settings.warnings.is_empty(), "{:?}", settings.warnings);
    let other = parse(
        &with(&NETWORK.replace("2.1-192.0.2.9", "2.8-192.0.2.9")),
        "test.toml",
    );
    let hash = |settings: &crate::config::Settings| settings.policy_hash();
    assert_ne!(
        hash(&settings),
        hash(&other.expect("it is right")),
        "the broker has them too"
    );
}

#[test]
fn what_cannot_be_right_of_a_network_is_said_where_it_stands() {
    let edit = |from: &str, to: &str| {
        assert!(NETWORK.contains(from), "{from}");
        with(&NETWORK.replace(from, to))
    };
    for (text, said) in [
        (
            edit("0/24", "0/33"),
            "network.lan.subnet = \"192.0.2.0/33\": expected a network with a prefix of 8 bits or more",
        ),
        (
            edit("0/24", "5/24"),
            "network.lan.subnet = \"192.0.2.5/24\": is an address of the network 192.0.2.0/24",
        ),
        (
            edit("gateway = \"192.0.2.1\"", "gateway = \"192.0.3.1\""),
            "network.lan.gateway = \"192.0.3.1\": expected an address within 192.0.2.0/24",
        ),
        (
            edit("gateway = \"192.0.2.1\"", "gateway = \"fe80::1\""),
            "network.lan.gateway = \"fe80::1\": expected an IPv4 address",
        ),
        (
            edit("\"192.0.2.250-", "\"192.0.2.9-"),
            "network.lan.ranges.1 = \"192.0.2.9-192.0.2.255\": overlaps 192.0.2.1-192.0.2.9",
        ),
        (
            edit("192.0.2.255\"", "192.0.3.0\""),
            "network.lan.ranges.1 = \"192.0.2.250-192.0.3.0\": expected an address within 192.0.2.0/24",
        ),
        (
            edit("192.0.2.255\"", "192.0.2.249\""),
            "network.lan.ranges.1 = \"192.0.2.250-192.0.2.249\": expected addresses such as",
        ),
        (
            edit(
                "ipv6 = \"auto\"",
                "ipv6 = \"dhcp\"\nsubnet6 = \"2001:db8::/64\"\nranges6 = [\"2001:db8::5\"]",
            ),
            "network.lan.ipv6 = \"dhcp\": expected either this or subnet6",
        ),
        (
            edit("ipv6 = \"auto\"", "ranges6 = [\"2001:db8::5\"]"),
            "network.lan.subnet6: is missing; expected the network of ranges6 with its prefix",
        ),
        (
            edit(
                "exclude = [\"192.0.2.4-192.0.2.5\"]",
                "exclude = [\"192.0.2.0/24\"]",
            ),
            "network.lan.ranges: no address is left for a machine",
        ),
        (
            edit("\"192.0.2.251\"", "\"dns\""),
            "network.lan.nameservers.0 = \"dns\": expected an IP address",
        ),
        (
            with(&format!("{NETWORK}searchdomain = \"bad domain!\"\n")),
            "network.lan.searchdomain = \"bad domain!\": expected a DNS domain such as home.example",
        ),
        (
            with("[network.lan]\nipv6 = \"auto\"\n"),
            "network.lan.ranges: is missing; expected the addresses that machines get",
        ),
        (
            with(""),
            "pool.small.network = \"lan\": there is no table [network.lan]",
        ),
        (
            with(NETWORK)
                + "[network.wan]\nsubnet = \"192.0.2.0/25\"\nranges = [\"192.0.2.9-192.0.2.20\"]\n",
            "network.wan.ranges: 192.0.2.9-192.0.2.20 overlaps 192.0.2.6-192.0.2.9 of network lan: an address would be given twice",
        ),
    ] {
        let found = messages(&text);
        assert!(found.contains(said), "{said}\n{found}");
    }
}

#[test]
fn a_network_that_is_too_small_or_of_no_use_is_warned_of() {
    let text = with(
        &NETWORK
            .replace("2.1-192.0.2.9", "2.2-192.0.2.2")
            .replace(", \"192.0.2.250-192.0.2.255\"", ""),
    ) + "[network.spare]\nsubnet = \"198.51.100.0/24\"\nranges = [\"198.51.100.9\"]\n";
    let settings = parse(&text, "test.toml").unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(
        settings.warnings,
        [
            "network.lan.ranges: 1 address for 3 that the machines of small may need at their max; the last ones will wait",
            "network.spare: no pool uses it",
        ]
    );
}

/// A template's fixed address is of no harm where a network gives each machine its own.
#[test]
fn a_network_takes_the_place_of_the_templates_address() {
    let fixed =
        |text: String| text.replace("vmid = 8000", "vmid = 8000\nipconfig = \"ip=192.0.2.9/24\"");
    assert_eq!(messages(&fixed(with(NETWORK))), "");
    let found = messages(&fixed(SMALL.to_owned()));
    assert!(
        found.contains("or a network with an address for each"),
        "{found}"
    );
}

#[test]
fn further_cards_have_a_bridge_and_no_address_that_all_would_have() {
    let nic = |lines: &str| {
        let text = format!(
            "version = 1\n[proxmox]\nvmids = \"9000-9019\"\n[template.debian]\nvmid = 8000\n[[template.debian.nic]]\n{lines}\n\
             [network.lan]\nsubnet = \"192.0.2.0/24\"\nranges = [\"192.0.2.50-192.0.2.99\"]\n\
             [instance_type.s]\ncores = 2\nmemory = \"4GiB\"\n\
             [pool.p]\ntemplate = \"debian\"\ninstance_types = [\"s\"]\nmax = 2\n"
        );
        parse(&text, "test").map_err(|_| messages(&text))
    };
    let settings = nic("bridge = \"vmbr1\"\nnetwork = \"lan\"").expect("right");
    let networks = &settings.policy.pools["p"].networks;
    assert_eq!(networks.get(&1).map(|name| &**name), Some("lan"));
    assert_eq!(settings.broker.allow.bridges, ["vmbr1"]);
    for (lines, words) in [
        ("vlan = 20", "nic.0.bridge"),
        ("bridge = \"vm br\"", "a bridge such as vmbr0"),
        ("bridge = \"vmbr1\"\nvlan = 5000", "nic.0.vlan"),
        ("bridge = \"vmbr1\"\nmtu = 100", "nic.0.mtu"),
        ("bridge = \"vmbr1\"\nipconfig = \"ip=x\"", "nic.0.ipconfig"),
        (
            "bridge = \"vmbr1\"\nipconfig = \"ip=192.0.2.5/24\"",
            "every machine would have this address",
        ),
        (
            "bridge = \"vmbr1\"\nnetwork = \"other\"",
            "there is no table [network.other]",
        ),
        ("bridge = \"vmbr1\"\nrate = 0", "nic.0.rate"),
        ("bridge = \"vmbr1\"\ntrunks = \"2-4\"", "trunks"),
    ] {
        let errors = nic(lines).expect_err(lines);
        assert!(errors.contains(words), "{lines}: {errors}");
    }
}

/// A further card in a network, and a network for it.
const SECOND: &str = "[[template.debian.nic]]\nbridge = \"vmbr1\"\nnetwork = \"storage\"\n\
     [network.storage]\nsubnet = \"203.0.113.0/24\"\nranges = [\"203.0.113.10-203.0.113.19\"]\n";

#[test]
fn a_machine_has_one_gateway_of_each_family() {
    assert_eq!(messages(&with(&format!("{NETWORK}{SECOND}"))), "");
    let second = format!("{SECOND}gateway = \"203.0.113.1\"\n");
    let two = with(&format!("{NETWORK}{second}"));
    let said = messages(&two);
    let wanted = "template.debian.nic.0.network = \"storage\": net1 would get a gateway (network.storage.gateway) beside that of net0 (network.lan.gateway)";
    assert!(said.contains(wanted), "{said}");
    let at = super::errors(&two);
    let line = two.lines().position(|line| line == "network = \"storage\"");
    let line = format!("test.toml:{}:", line.expect("a line") + 1);
    assert!(at.contains(&line), "{at}");
    // Two pools of one template say it once.
    let other = "[pool.other]\ntemplate = \"debian\"\ninstance_types = [\"s\"]\nmax = 1\nnetwork = \"lan\"\n";
    assert_eq!(messages(&format!("{two}{other}")), said);
    // One of each family is right.
    let six = "subnet6 = \"2001:db8::/64\"\nranges6 = [\"2001:db8::50-2001:db8::5f\"]\ngateway6 = \"fe80::1\"\n";
    let without = NETWORK.replace("ipv6 = \"auto\"\n", "");
    assert_eq!(messages(&with(&format!("{without}{SECOND}{six}"))), "");
    // What cloud-init is told instead has routes of its own.
    let own = "[template.debian.cloud_init]\nstorage = \"local\"\nnetwork_config = \"\"\"\nversion: 2\n\
               ethernets:\n  a: { addresses: [\"{{ addresses[0] }}/24\", \"{{ addresses[1] }}/24\"] }\n\"\"\"\n";
    let said = messages(&with(&format!("{NETWORK}{second}{own}")));
    assert!(!said.contains("would get a gateway"), "{said}");
    // A card with a fixed address has one, too.
    let fixed = SMALL.replace(
        "vmid = 8000",
        "vmid = 8000\nipconfig = \"ip=192.0.2.7/24,gw=192.0.2.1\"",
    );
    let said = messages(&format!("{}{second}", fixed.replace("max = 3", "max = 1")));
    let wanted = "net1 would get a gateway (network.storage.gateway) beside that of net0 (template.debian.ipconfig)";
    assert!(said.contains(wanted), "{said}");
}

#[test]
fn a_machine_has_one_card_in_a_network() {
    let card = "[[template.debian.nic]]\nbridge = \"vmbr1\"\nnetwork = \"lan\"\n";
    let said = messages(&with(&format!("{NETWORK}{card}")));
    let wanted =
        "template.debian.nic.0.network = \"lan\": is the network of net0 too (pool.small.network)";
    assert!(said.contains(wanted), "{said}");
    assert!(!said.contains("would get a gateway"), "one error: {said}");
    // Another pool may have the network on its first card, where no other has it.
    let dhcp = with(&format!("{NETWORK}{card}")).replace("max = 3\nnetwork = \"lan\"", "max = 3");
    assert_eq!(messages(&dhcp), "");
}

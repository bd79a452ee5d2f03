//! `doctor` of networks: bridges with VLANs and MTUs, VNets, the rights to them, PVE's firewall, and addresses that somebody has.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;

use pve_autoscaler::sim::pve::{AclSpec, BridgeSpec, PveSpec, TagAccess, UserTags, VNetSpec};
use serde_json::json;

use super::doctor::doctor;
use super::doctor_regions::of_probe;
use super::live::TEMPLATE;
use super::service::replace;
use super::simulators::Simulators;
use super::traces::Stage;

/// A cluster whose hosts have each another `vmbr1`, and all a `vmbr9`.
fn bridges() -> PveSpec {
    let mut spec = PveSpec::default();
    let bridge = |vlan_aware: bool, ports: &[&str]| BridgeSpec {
        vlan_aware,
        ports: ports.iter().map(|port| (*port).to_owned()).collect(),
        ..BridgeSpec::default()
    };
    let some = BridgeSpec {
        vids: Some("2-19 30".to_owned()),
        mtu: Some(9_000),
        ..bridge(true, &["eno2"])
    };
    let of_hosts = [some, bridge(false, &[]), bridge(false, &["eno2"])];
    for (host, of_host) in spec.hosts.iter_mut().zip(of_hosts) {
        host.bridges.extend(["vmbr1", "vmbr9"].map(str::to_owned));
        host.bridge_specs.insert("vmbr1".to_owned(), of_host);
    }
    spec
}

fn configured(spec: &PveSpec, more: &str) -> (Simulators, std::path::PathBuf) {
    let simulators = Simulators::start(spec);
    let config = simulators.config(&simulators.path("admin.conf"), TEMPLATE, "9100-9120");
    let name = format!("vm_name = \"{TEMPLATE}\"\n");
    replace(&config, &name, &format!("{name}{more}"));
    (simulators, config)
}

fn all_said(found: &[String], wanted: &[&str]) {
    for words in wanted {
        let said = found.iter().any(|line| line.contains(words));
        assert!(said, "{words:?} is not in {found:#?}");
    }
}

/// A VLAN on a bridge that takes none apart works where the bridge has a port, and on no other. It finds a doctor that knows names of
/// bridges alone, and one that calls every such bridge wrong.
#[test]
fn a_vlan_that_a_bridge_does_not_carry_is_wrong() {
    let (_simulators, config) = configured(&bridges(), "bridge = \"vmbr1\"\nvlan = 20\n");
    let found = of_probe(&config, "network");
    all_said(
        &found,
        &[
            "\"ok\" \"template debian: bridge vmbr1 on pve1, pve2, pve3\"",
            "\"wrong\" \"template debian: net0 has VLAN 20 on vmbr1, whose ports let only VLANs 2-19, 30 through on pve1: machines reach nothing there\" | \"another vlan, or 20 in bridge-vids of vmbr1 in /etc/network/interfaces",
            "\"wrong\" \"template debian: net0 has VLAN 20 on vmbr1, which takes no VLANs apart and has no port that PVE could do it on, on pve2: PVE starts no machine there\" | \"bridge-vlan-aware yes for vmbr1",
            "\"ok\" \"template debian: net0 has VLAN 20 on vmbr1, by PVE's own bridge vmbr1v20 on pve3\"",
        ],
    );
    replace(&config, "vlan = 20", "vlan = 30");
    let found = of_probe(&config, "network");
    assert!(
        !found.iter().any(|line| line.contains("on pve1: ")),
        "{found:#?}"
    );
    let (code, _) = doctor(&config, &[]);
    assert_eq!(code, Some(1), "pve2 stays wrong");
    // Where the pool may not use pve2, all is well.
    replace(
        &config,
        "max = 2\n",
        "max = 2\nhosts = [\"pve1\", \"pve3\"]\n",
    );
    let (code, said) = doctor(&config, &["--quiet"]);
    assert_eq!(code, Some(0), "{said}");
}

/// Machines never come to a host that their pool excludes. It finds a doctor that goes by the pool's `hosts` alone, and one that passes over a
/// host that the pool may use.
#[test]
fn a_host_that_no_pool_may_use_needs_no_bridge() {
    let mut spec = bridges();
    let host = &mut spec.hosts[2];
    host.bridges.retain(|bridge| bridge != "vmbr1");
    host.bridge_specs.remove("vmbr1");
    let (_simulators, config) = configured(&spec, "bridge = \"vmbr1\"\n");
    let lacking = "\"wrong\" \"template debian: there is no bridge vmbr1 that may be used on pve3";
    all_said(&of_probe(&config, "network"), &[lacking]);
    let excluded = |host: &str| format!("max = 2\nexclude_hosts = [\"{host}\"]\n");
    replace(&config, "max = 2\n", &excluded("pve2"));
    all_said(&of_probe(&config, "network"), &[lacking]);
    let (code, _) = doctor(&config, &[]);
    assert_eq!(code, Some(1), "the pool may use pve3");
    replace(&config, &excluded("pve2"), &excluded("pve3"));
    all_said(
        &of_probe(&config, "network"),
        &["\"ok\" \"template debian: bridge vmbr1 on pve1, pve2\""],
    );
    let (code, said) = doctor(&config, &["--quiet"]);
    assert_eq!(code, Some(0), "{said}");
}

/// The interface that PVE would make for a VLAN has a name that is too long, or is somebody else's.
#[test]
fn a_vlan_that_pve_can_make_no_interface_for_is_wrong() {
    let mut spec = PveSpec::default();
    let port = |name: &str| BridgeSpec {
        ports: vec![name.to_owned()],
        ..BridgeSpec::default()
    };
    spec.hosts[0]
        .bridge_specs
        .insert("vmbr0".to_owned(), port("enp129s0f0np0"));
    spec.hosts[1].bridges.push("vmbr20".to_owned());
    spec.hosts[1]
        .bridge_specs
        .insert("vmbr20".to_owned(), port("eno1.20"));
    let (_simulators, config) = configured(&spec, "vlan = 20\n");
    all_said(
        &of_probe(&config, "network"),
        &[
            "\"wrong\" \"template debian: net0 has VLAN 20 on vmbr0, which takes no VLANs apart: PVE would make the interface enp129s0f0np0.20 for it, and Linux takes names up to 15 characters, on pve1: PVE starts no machine there\"",
            "\"wrong\" \"template debian: net0 has VLAN 20 on vmbr0, which takes no VLANs apart: PVE would take eno1.20 for it, which is a port of vmbr20 already, on pve2: PVE starts no machine there\" | \"bridge = \\\"vmbr20\\\" without vlan",
            "\"ok\" \"template debian: net0 has VLAN 20 on vmbr0, by PVE's own bridge vmbr0v20 on pve3\"",
        ],
    );
}

/// PVE starts no machine with an MTU above its bridge's. It finds a doctor that takes a bridge without an MTU for one of 1500: such a bridge
/// has its ports', which PVE does not tell.
#[test]
fn an_mtu_above_the_bridges_is_wrong() {
    let (_simulators, config) = configured(&bridges(), "bridge = \"vmbr1\"\nmtu = 9000\n");
    let found = of_probe(&config, "network");
    all_said(
        &found,
        &[
            "\"wrong\" \"template debian: net0 has MTU 9000, and vmbr1 has 1500 on pve2: PVE starts no machine there\" | \"mtu = 1 for net0 in [template.debian] takes the bridge's own",
            "\"warning\" \"template debian: net0 has MTU 9000, and PVE does not tell that of vmbr1, which has its ports', on pve3: with a smaller one PVE starts no machine there\" | \"ip link show vmbr1",
        ],
    );
    assert!(
        !found
            .iter()
            .any(|line| line.contains("MTU") && line.contains("pve1")),
        "{found:#?}"
    );
    for fine in ["mtu = 1500", "mtu = 1"] {
        let text = fs::read_to_string(&config).expect("it is there");
        let old = text
            .lines()
            .find(|line| line.starts_with("mtu"))
            .expect("a line");
        replace(&config, old, fine);
        let (code, said) = doctor(&config, &["--quiet"]);
        assert_eq!(code, Some(0), "{fine}: {said}");
    }
}

/// The file has an MTU for a card whose model only the template knows: PVE starts the machines without it.
#[test]
fn an_mtu_of_a_card_that_is_no_virtio_one_is_a_warning() {
    let mut spec = PveSpec::default();
    for machine in &mut spec.machines {
        let card = "e1000=BC:24:11:00:00:01,bridge=vmbr0".to_owned();
        machine.config.insert("net0".to_owned(), card);
    }
    let warning = "\"warning\" \"template debian: net0 has MTU 1400 and is a card of model e1000, and PVE sets it for virtio cards alone";
    let (_simulators, config) = configured(&spec, "mtu = 1400\n");
    all_said(&of_probe(&config, "network"), &[warning]);
    let (_simulators, config) = configured(&spec, "mtu = 1400\nnic_model = \"virtio\"\n");
    let found = of_probe(&config, "network");
    assert!(!found.iter().any(|line| line.contains("MTU")), "{found:#?}");
}

/// A cluster with a VNet, and a token that has `SDN.Use` on these paths alone.
fn with_vnet(paths: &[&str], more: &[&str]) -> PveSpec {
    let mut spec = PveSpec::default();
    spec.vnets.push(VNetSpec {
        name: "blue".to_owned(),
        zone: "office".to_owned(),
        ..VNetSpec::default()
    });
    let acl = &mut spec.tokens[0].acl;
    let mut others = acl[0].privileges.clone();
    others.retain(|one| one != "SDN.Use");
    acl[0].privileges.clone_from(&others);
    acl.extend(paths.iter().map(|path| {
        AclSpec {
            path: (*path).to_owned(),
            privileges: [&["SDN.Use"], more]
                .concat()
                .iter()
                .map(|one| (*one).to_owned())
                .collect(),
        }
    }));
    spec
}

/// PVE asks for the right to a VNet below the VNet's own zone. It finds a doctor that asks below `localnetwork` for every bridge, and calls
/// a token wrong that is right, and one that passes a token without the right.
#[test]
fn the_right_to_a_vnet_is_asked_for_in_its_zone() {
    let (vnet, bridge) = ("/sdn/zones/office/blue", "/sdn/zones/localnetwork/vmbr0");
    let of_card = "bridge = \"blue\"\n";
    // The template's own bridge is asked for when it is cloned.
    let (_simulators, config) = configured(&with_vnet(&[vnet, bridge], &["SDN.Audit"]), of_card);
    let found = of_probe(&config, "token");
    assert!(
        found.len() == 1 && found[0].starts_with("\"ok\"") && found[0].contains(vnet),
        "{found:#?}"
    );
    let (code, said) = doctor(&config, &[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("ok: template debian: bridge blue on pve1, pve2, pve3"),
        "{said}"
    );
    // It may use the VNet and not look at it: PVE does not tell its zone.
    let (_simulators, config) = configured(&with_vnet(&[vnet, bridge], &[]), of_card);
    let (code, said) = doctor(&config, &[]);
    assert_eq!(code, Some(0), "{said}");
    // Neither: the VNet is not seen.
    let (_simulators, config) = configured(&with_vnet(&[bridge], &[]), of_card);
    all_said(
        &of_probe(&config, "token"),
        &[
            "lacks SDN.Use on /sdn/zones/localnetwork/blue\" | \"give a role with them to the token",
            "the path is /sdn/zones/ZONE/VNET",
        ],
    );
    // It may look at it and not use it.
    let mut spec = with_vnet(&[bridge], &[]);
    spec.tokens[0].acl.push(AclSpec {
        path: vnet.to_owned(),
        privileges: vec!["SDN.Audit".to_owned()],
    });
    let (_simulators, config) = configured(&spec, of_card);
    all_said(
        &of_probe(&config, "token"),
        &["lacks SDN.Use on /sdn/zones/office/blue\""],
    );
    // The template's own bridge is needed, too.
    let (_simulators, config) = configured(&with_vnet(&[vnet], &["SDN.Audit"]), of_card);
    all_said(
        &of_probe(&config, "token"),
        &["lacks SDN.Use on /sdn/zones/localnetwork/vmbr0\""],
    );
}

/// A right to one VLAN of a bridge is enough for a card in it, and for no other; a VNet takes no VLANs of cards unless it is told to.
#[test]
fn the_right_to_a_vlan_is_one_to_that_vlan() {
    let template = "/sdn/zones/localnetwork/vmbr0";
    let mut spec = with_vnet(&["/sdn/zones/localnetwork/vmbr9/20", template], &[]);
    for host in &mut spec.hosts {
        host.bridges.push("vmbr9".to_owned());
    }
    let (_simulators, config) = configured(&spec, "bridge = \"vmbr9\"\nvlan = 20\n");
    let found = of_probe(&config, "token");
    assert!(found[0].starts_with("\"ok\""), "{found:#?}");
    let (code, said) = doctor(&config, &[]);
    assert_eq!(code, Some(0), "{said}");
    replace(&config, "vlan = 20", "vlan = 21");
    all_said(
        &of_probe(&config, "token"),
        &["lacks SDN.Use on /sdn/zones/localnetwork/vmbr9/21\""],
    );
    let spec = with_vnet(&["/sdn/zones/office/blue", template], &["SDN.Audit"]);
    let (_simulators, config) = configured(&spec, "bridge = \"blue\"\nvlan = 20\n");
    all_said(
        &of_probe(&config, "network"),
        &[
            "\"wrong\" \"template debian: net0 has VLAN 20 on blue, a VNet that takes no VLANs of cards, on pve1, pve2, pve3: PVE starts no machine there\"",
        ],
    );
}

/// Rules of machines do something only while the firewall of the datacenter is on, and it is off until somebody switches it on. It finds a
/// doctor that does not look, one that calls it wrong, one that looks for security groups alone, and one that asks where no firewall is wanted.
#[test]
fn a_datacenter_whose_firewall_is_off_is_warned_of() {
    let mut spec = PveSpec {
        security_groups: vec!["web".to_owned()],
        ..PveSpec::default()
    };
    let groups = "security_groups = [\"web\"]\n";
    let off = "\"warning\" \"region default: the firewall of the datacenter is off (enable of /cluster/firewall/options): security groups and other rules of machines do nothing, and these templates want them: debian\" | \"first see that nobody is locked out: ";
    let (_simulators, config) = configured(&spec, groups);
    let found = of_probe(&config, "firewall");
    all_said(
        &found,
        &[
            off,
            "pvesh create /cluster/firewall/ipset/management --cidr NETWORK",
            "then pvesh set /cluster/firewall/options --enable 1 (docs/networks.md#pves-firewall)\"",
            "\"ok\" \"template debian: security group web\"",
            "\"ok\" \"template debian: the firewall of its machines is switched on before their first start\"",
        ],
    );
    assert_eq!(found.len(), 3, "{found:#?}");
    let (code, said) = doctor(&config, &[]);
    assert_eq!(code, Some(0), "{said}");
    let card = "firewall = true\n";
    let switched = format!("{card}vm_firewall = true\n");
    replace(&config, groups, &switched);
    all_said(&of_probe(&config, "firewall"), &[off]);
    replace(&config, &switched, card);
    let found = of_probe(&config, "firewall");
    assert!(found.is_empty(), "{found:#?}");
    // Somebody switched it on, or off again.
    spec.datacenter_firewall = Some(0);
    let (_simulators, config) = configured(&spec, groups);
    all_said(&of_probe(&config, "firewall"), &[off]);
    spec.datacenter_firewall = Some(1);
    let (_simulators, config) = configured(&spec, groups);
    let found = of_probe(&config, "firewall");
    all_said(
        &found,
        &["\"ok\" \"region default: the firewall of the datacenter is on\""],
    );
    let fine = found.iter().all(|line| line.starts_with("\"ok\""));
    assert!(fine && found.len() == 3, "{found:#?}");
}

/// A firewall that is switched on for machines of which no card passes through it. It finds a doctor that looks at the file alone, and one that
/// looks at the template alone.
#[test]
fn a_firewall_that_no_card_passes_through_is_warned_of() {
    let mut spec = PveSpec {
        datacenter_firewall: Some(1),
        ..PveSpec::default()
    };
    let warned = "\"warning\" \"template debian: vm_firewall = true does nothing for machines of VM 9000: no network card passes through the firewall\" | \"firewall = true or security_groups in [template.debian] for net0, or in a [[template.debian.nic]]\"";
    let switch = "vm_firewall = true\n";
    let (_simulators, config) = configured(&spec, switch);
    all_said(&of_probe(&config, "firewall"), &[warned]);
    let (code, said) = doctor(&config, &[]);
    assert_eq!(code, Some(0), "{said}");
    let no_card = format!("{switch}firewall = false\n");
    replace(&config, switch, &no_card);
    all_said(&of_probe(&config, "firewall"), &[warned]);
    all_said(
        &of_probe(&config, "file"),
        &["\"warning\" \"file: template.debian.vm_firewall = true: it does nothing unless "],
    );
    let a_card = format!("{switch}firewall = true\n");
    replace(&config, &no_card, &a_card);
    let fine = |found: &[String]| found.iter().all(|line| line.starts_with("\"ok\""));
    let found = of_probe(&config, "firewall");
    assert!(fine(&found) && found.len() == 2, "{found:#?}");
    // The template's own card passes through it, and the file says nothing of the card.
    let template = spec.machines.iter_mut().find(|vm| vm.vmid == 9000);
    template.expect("the template").config.insert(
        "net0".to_owned(),
        "virtio=BC:24:11:00:00:09,bridge=vmbr0,firewall=1".to_owned(),
    );
    let (_simulators, config) = configured(&spec, switch);
    let found = of_probe(&config, "firewall");
    assert!(fine(&found) && found.len() == 2, "{found:#?}");
    replace(&config, switch, &no_card);
    all_said(&of_probe(&config, "firewall"), &[warned]);
}

/// A network with these ranges for the pool of a stage.
fn with_network(config: &Path, ranges: &str) {
    let text = fs::read_to_string(config).expect("it is there");
    let text = text.split("\n[network.lan]").next().unwrap_or_default();
    let text = text.replace("\nnetwork = \"lan\"", "");
    let text = text.replace("[pool.general]", "[pool.general]\nnetwork = \"lan\"");
    let network = format!(
        "{text}\n[network.lan]\nsubnet = \"192.0.2.0/24\"\ngateway = \"192.0.2.2\"\nranges = {ranges}\n"
    );
    fs::write(config, network).expect("written");
}

/// It finds a doctor that looks at no address, one that forgets containers or nodes, and one that does not look at hosts or at the
/// API server.
#[test]
fn addresses_that_somebody_has_are_told() {
    let mut spec = PveSpec::default();
    for (vmid, key, value) in [
        (100, "ipconfig0", "ip=192.0.2.51/24,gw=192.0.2.1"),
        (
            101,
            "net0",
            "name=eth0,bridge=vmbr0,hwaddr=BC:24:11:00:00:01,ip=192.0.2.52/24,type=veth",
        ),
    ] {
        let guest = spec.machines.iter_mut().find(|one| one.vmid == vmid);
        let config = &mut guest.expect("a guest").config;
        config.insert(key.to_owned(), value.to_owned());
    }
    let stage = Stage::of(spec, 9);
    stage.make(
        "/api/v1/nodes",
        &json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": "cp-1" },
            "status": {
                "addresses": [{ "type": "InternalIP", "address": "192.0.2.53" }],
                "nodeInfo": { "kubeletVersion": "v1.34.1" },
            },
        }),
    );
    let found = |ranges: &str| {
        with_network(&stage.config, ranges);
        of_probe(&stage.config, "addresses")
    };
    let some = found("[\"192.0.2.50-192.0.2.59\"]");
    assert_eq!(some.len(), 1, "{some:#?}");
    let words = "\"ok\" \"network lan: 7 of 10 addresses in 192.0.2.50-192.0.2.59 are free; taken: 192.0.2.51 VM 100 router, 192.0.2.52 container 101 dns, 192.0.2.53 the node cp-1\"";
    assert!(some[0].starts_with(words), "{some:#?}");
    let none = found("[\"192.0.2.51-192.0.2.53\"]");
    let words = "\"wrong\" \"network lan: no address in 192.0.2.51-192.0.2.53 is free; taken: ";
    assert!(none.len() == 1 && none[0].starts_with(words), "{none:#?}");
    let few = found("[\"192.0.2.50-192.0.2.53\"]");
    let words = "\"warning\" \"network lan: 1 of 4 addresses in 192.0.2.50-192.0.2.53 are free, and the pools may make 2 more machines";
    assert!(few.len() == 1 && few[0].starts_with(words), "{few:#?}");
    all_said(
        &found("[\"192.0.2.1-192.0.2.1\", \"192.0.2.10-192.0.2.49\"]"),
        &[
            "\"wrong\" \"network lan: 192.0.2.1 lies in its ranges, and is the gateway of the host pve",
            "\"wrong\" \"network lan: 192.0.2.11 lies in its ranges, and is the host pve1's own, on vmbr0: no machine gets it while the daemon knows whose it is, and one would where it does not\" | \"exclude = [\\\"192.0.2.11\\\"] in [network.lan]",
        ],
    );
    // A load balancer's, perhaps: no node has it.
    let api =
        found("[\"192.0.2.54-192.0.2.59\"]\n[pool.general.join]\nendpoint = \"192.0.2.55:6443\"");
    all_said(
        &api,
        &[
            "\"wrong\" \"network lan: 192.0.2.55 lies in its ranges, and is the API server's, by endpoint in [pool.general.join]: no machine gets it while",
            "\"ok\" \"network lan: 5 of 6 addresses in 192.0.2.54-192.0.2.59 are free\"",
        ],
    );
    // 192.0.2.10 is what the simulated cluster-info names.
    let excluded = found("[\"192.0.2.10-192.0.2.49\"]\nexclude = [\"192.0.2.10-192.0.2.13\"]");
    assert!(
        excluded.len() == 1 && excluded[0].starts_with("\"ok\""),
        "{excluded:#?}"
    );
}

/// The loopback network is this host's own, whatever host runs this. It finds a doctor that looks at networks without the key, and one
/// that does not ask the kernel.
#[test]
fn a_host_that_sees_who_has_an_address_is_told() {
    let stage = Stage::of(PveSpec::default(), 9);
    let found = |asks: &str| {
        let ranges = format!("[\"127.0.0.50-127.0.0.59\"]\n{asks}");
        with_network(&stage.config, &ranges);
        let text = fs::read_to_string(&stage.config).expect("it is there");
        let text = text.replace("subnet = \"192.0.2.0/24\"", "subnet = \"127.0.0.0/24\"");
        let text = text.replace("gateway = \"192.0.2.2\"\n", "");
        fs::write(&stage.config, text).expect("written");
        of_probe(&stage.config, "wire")
    };
    assert_eq!(found(""), Vec::<String>::new());
    let told = found("ask_on_wire = true");
    let words = "\"ok\" \"network lan: this host is in it, with 127.0.0.50 itself, and sees who has an address of 127.0.0.50-127.0.0.59\"";
    assert!(told.len() == 1 && told[0].starts_with(words), "{told:#?}");
}

/// A template is built with a kubelet that may not join. It finds a doctor that looks at nodes alone.
#[test]
fn a_build_whose_kubelet_may_not_join_is_wrong() {
    let simulators = Simulators::start(&PveSpec::default());
    let config = simulators.config(&simulators.path("admin.conf"), TEMPLATE, "9100-9120");
    let build = format!(
        "[template.debian.build]\nvmids = \"8000-8019\"\nimage = \"https://example.org/x.qcow2\"\nchecksum = \"sha256:{}\"\nstorage = \"local-lvm\"\nkubernetes = \"1.34\"\n[instance_type.small]",
        "a".repeat(64)
    );
    replace(&config, "[instance_type.small]", &build);
    let mut before = "1.34";
    for (version, words) in [
        (
            "1.34",
            "\"ok\" \"template debian: its build's kubernetes 1.34 goes with the API server 1.34\"",
        ),
        (
            "1.31",
            "\"warning\" \"template debian: its build's kubernetes 1.31 is older than the API server 1.34",
        ),
        (
            "1.30",
            "\"wrong\" \"template debian: its build's kubernetes 1.30 is too old for the API server 1.34",
        ),
        (
            "1.35.1",
            "\"wrong\" \"template debian: its build's kubernetes 1.35.1 is newer than the API server 1.34: no kubelet of it may join\" | \"kubernetes = \\\"1.34\\\" in [template.debian.build] (1.31 to 1.34 go)",
        ),
    ] {
        let line = |version: &str| format!("kubernetes = \"{version}\"");
        replace(&config, &line(before), &line(version));
        all_said(&of_probe(&config, "skew"), &[words]);
        before = version;
    }
}

/// Files of a notification that the daemon cannot read or refuses, and a mail service that does not listen.
#[test]
fn what_notifications_need_is_looked_at() {
    let simulators = Simulators::start(&PveSpec::default());
    let config = simulators.config(&simulators.path("admin.conf"), TEMPLATE, "9100-9120");
    let path = |name: &str| simulators.path(name).display().to_string();
    let (url, headers, authorities, socket) = (
        path("url"),
        path("headers"),
        path("ca.pem"),
        path("mail.sock"),
    );
    let file = fs::read_to_string(&config).expect("it is there");
    let more = format!(
        "{file}[notification.chat]\nkind = \"webhook\"\nurl_file = \"{url}\"\nheaders_file = \"{headers}\"\nca_file = \"{authorities}\"\n\
         [notification.us]\nkind = \"mail\"\nto = [\"us@example.org\"]\nsocket = \"{socket}\"\n"
    );
    fs::write(&config, more).expect("written");
    let wrong = |words: &str| {
        let begin = "\"wrong\" \"file: [notification.chat]: ";
        all_said(&of_probe(&config, "files"), &[&format!("{begin}{words}")]);
    };
    wrong(&format!("url_file {url}: cannot be read: "));
    wrong(&format!("headers_file {headers}: cannot be read: "));
    wrong(&format!("cannot read {authorities}: "));
    let mail = |words: &str| {
        let found = of_probe(&config, "mail");
        all_said(&found, &[&format!("{socket} {words}")]);
        found
    };
    mail("cannot be reached: ");
    fs::write(&socket, "").expect("written");
    mail("is no socket");
    fs::remove_file(&socket).expect("removed");
    let listener = UnixListener::bind(&socket).expect("a socket");
    listener.set_nonblocking(true).expect("changed");
    all_said(
        &of_probe(&config, "mail"),
        &[&format!(
            "\"ok\" \"mail: the mail service listens at {socket}\""
        )],
    );
    assert!(listener.accept().is_err(), "nothing was connected");
    // The mail service is another user than the daemon, and reads the recipients itself.
    let set_mode = |mode| {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(&config, mode).expect("changed");
    };
    let refused = "no mail is sent: the mail service reads whom it goes to in";
    let found = of_probe(&config, "mail");
    assert!(
        found.iter().all(|line| !line.contains(refused)),
        "{found:?}"
    );
    set_mode(0o640);
    all_said(&of_probe(&config, "mail"), &[refused, "chmod 644"]);
    set_mode(0o644);
    drop(listener);
    mail("is a socket at which nobody listens");
    // Files that are there, and that the daemon refuses when it sends.
    let write = |file: &str, text: &str, mode: u32| {
        fs::write(file, text).expect("written");
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(file, mode).expect("changed");
    };
    write(&url, "", 0o660);
    write(&headers, "nonsense\n", 0o644);
    write(&authorities, "junk\n", 0o644);
    let open = "wanted are owner root, group pve-autoscaler and mode 0640";
    wrong(&format!("url_file {url}: has mode 0660; {open}"));
    wrong(&format!("headers_file {headers}: has mode 0644; {open}"));
    wrong(&format!("{authorities} holds no certificate"));
    write(&url, "not a url at all\n", 0o640);
    write(&headers, "nonsense\n", 0o640);
    wrong(&format!("url_file {url}: expected one line with a URL"));
    wrong(&format!(
        "headers_file {headers}: line 1: expected NAME: VALUE"
    ));
    let (code, _) = doctor(&config, &["--quiet"]);
    assert_eq!(code, Some(1), "what cannot be sent is wrong");

    write(&url, "https://example.org/hook\n", 0o640);
    write(&headers, "Authorization: Bearer hush-hush\n", 0o640);
    let key = rcgen::KeyPair::generate().expect("a key");
    let authority = rcgen::CertificateParams::new(vec![]).expect("parameters");
    let authority = authority.self_signed(&key).expect("a certificate");
    write(&authorities, &authority.pem(), 0o644);
    let there = of_probe(&config, "files");
    assert!(
        !there.iter().any(|line| line.starts_with("\"wrong\"")),
        "{there:#?}"
    );
    let made = "its requests can be made (url_file, headers_file, ca_file)";
    all_said(&there, &[made]);
}

/// The datacenter keeps tags from those without `Sys.Modify` on `/`. It finds a doctor that looks only at the tags that machines get: a clone
/// has its template's, and what it loses of them counts, too.
#[test]
fn tags_that_a_token_may_not_set_are_wrong() {
    let of = |access: TagAccess, more: &str| {
        let spec = PveSpec {
            tag_access: access,
            ..PveSpec::default()
        };
        let (simulators, config) = configured(&spec, "");
        replace(&config, "max = 2\n", &format!("max = 2\n{more}"));
        let found = of_probe(&config, "tags");
        drop(simulators);
        found
    };
    let list = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect();
    let registered = |tags: &[&str]| TagAccess {
        registered: list(tags),
        ..TagAccess::default()
    };
    all_said(
        &of(TagAccess::default(), ""),
        &[
            "\"ok\" \"region default: the token scaler@pve!sim may set the tags debian, pve-autoscaler, template\"",
        ],
    );
    all_said(
        &of(registered(&["pve-autoscaler", "prod"]), ""),
        &[
            "\"wrong\" \"pool general: the token scaler@pve!sim may not set the tag pve-autoscaler, so that every machine of the pool fails after its clone\" | \"pvesh set /cluster/options --registered-tags 'prod'",
        ],
    );
    // The template's own tags: machines lose them, unless the pool names them.
    all_said(
        &of(registered(&["template"]), ""),
        &[
            "may not set the tag template, so that",
            "the VM of template debian has and the pool's tags lack",
        ],
    );
    all_said(
        &of(registered(&["template"]), "tags = [\"template\"]\n"),
        &[
            "\"ok\" \"region default: the token scaler@pve!sim may set the tags debian, pve-autoscaler\"",
        ],
    );
    let some = TagAccess {
        user_allow: UserTags::List,
        user_allow_list: list(&["debian", "template"]),
        ..TagAccess::default()
    };
    all_said(
        &of(some, ""),
        &["--user-tag-access 'user-allow=list,user-allow-list=debian;pve-autoscaler;template'"],
    );
}

/// What `template build` needs on each host. It finds a doctor that looks at what is built alone.
#[test]
fn a_build_whose_storages_take_no_such_files_is_warned_of() {
    let mut spec = PveSpec::default();
    for storage in &mut spec.storages {
        if storage.name == "local" {
            storage.content = "import,iso,snippets".to_owned();
        }
    }
    let simulators = Simulators::start(&spec);
    let config = simulators.config(&simulators.path("admin.conf"), TEMPLATE, "9100-9120");
    let build = format!(
        "[template.debian.build]\nvmids = \"8000-8019\"\nimage = \"https://example.org/x.qcow2\"\nchecksum = \"sha256:{}\"\nstorage = \"local-lvm\"\nimage_storage = \"local\"\nkubernetes = \"1.34\"\n[instance_type.small]",
        "a".repeat(64)
    );
    replace(&config, "[instance_type.small]", &build);
    all_said(
        &of_probe(&config, "builds"),
        &["\"ok\" \"template debian: pve1, pve2, pve3 have what it is built with"],
    );
    replace(
        &config,
        "image_storage = \"local\"",
        "snippet_storage = \"local-lvm\"",
    );
    all_said(
        &of_probe(&config, "builds"),
        &[
            "\"warning\" \"template debian: the next build of it on pve1, pve2, pve3 would fail: snippet_storage: storage local-lvm is of type lvmthin, which cannot have the content type snippets\" | \"name another storage\"",
        ],
    );
}

//! `setup` and the addresses of machines: those that are proposed, those of machines that are there, and those that a template would give to all.

use std::net::IpAddr;

use pve_autoscaler::model::cpus::CpuSet;
use pve_autoscaler::model::mark::Mark;
use pve_autoscaler::model::time::Time;
use pve_autoscaler::sim::pve::{MachineSpec, PveSpec};

use super::setup::{Place, cluster_uid, on_one_line};
use super::templates::{clone_as, wait_until_listed};

/// The template of the simulator's default world whose disks lie on shared storage.
const TEMPLATE: u32 = 9_000;

/// The default world, in which these keys of the template have other values.
fn with_template(keys: &[(&str, &str)]) -> PveSpec {
    let mut spec = PveSpec::default();
    let mut machines = spec.machines.iter_mut();
    let template = machines.find(|machine| machine.vmid == TEMPLATE);
    let config = &mut template.expect("it is there").config;
    for (key, value) in keys {
        config.insert((*key).to_owned(), (*value).to_owned());
    }
    spec
}

/// A guest of somebody else's that is off and has this address.
fn guest(spec: &PveSpec, vmid: u32, address: &str) -> MachineSpec {
    let mut machines = spec.machines.iter();
    let like = machines.find(|machine| !machine.template && !machine.container);
    let mut guest = like.expect("a guest").clone();
    guest.vmid = vmid;
    guest.running = false;
    guest
        .config
        .insert("name".to_owned(), format!("nas-{vmid}"));
    let address = format!("ip={address}/24");
    guest.config.insert("ipconfig0".to_owned(), address);
    guest
}

/// A fixed address of the template would be that of every machine: the file takes it away, where machines do not get theirs out of ranges.
#[test]
fn a_fixed_address_of_the_template_is_no_machines() {
    let spec = with_template(&[("ipconfig0", "ip=192.0.2.7/24,gw=192.0.2.1")]);
    let place = Place::of(spec);
    place.answer("[network]\naddresses = \"ranges\"\n");
    let (code, said) = place.run(&["--dry-run"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("+ [network.machines]"), "{said}");
    assert!(!said.contains("ipconfig"), "{said}");
    place.answer("");
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    let file = place.file();
    let line = file.lines().find(|line| line.starts_with("ipconfig"));
    let line = line.unwrap_or_else(|| panic!("{file}"));
    assert!(
        line.contains("\"ip=dhcp\"") && line.contains("would be all machines'"),
        "{line}"
    );
    let (code, found) = place.doctor();
    assert_eq!(code, Some(0), "{found}\n{file}");
}

/// Of a further card the file that setup writes says nothing, so it is the template that must change: the command is told, and nothing is done.
/// Without a fixed address there it goes on.
#[test]
fn a_fixed_address_of_a_further_card_is_refused_with_what_helps() {
    let of = |address: &str| {
        let net1 = ("net1", "virtio=BC:24:11:00:00:09,bridge=vmbr0");
        Place::of(with_template(&[net1, ("ipconfig1", address)]))
    };
    let place = of("ip=198.51.100.7/24,gw=198.51.100.1,ip6=auto");
    let before = place.file();
    let (code, said) = place.run(&["--yes"]);
    assert_ne!(code, Some(0), "{said}");
    let wanted = "template.vmid: VM 9000 has a fixed address (ipconfig1: ip=198.51.100.7/24,gw=198.51.100.1,ip6=auto) that all its machines would have; \
                  qm set 9000 --ipconfig1 ip=dhcp,ip6=auto";
    assert!(on_one_line(&said).contains(wanted), "{said}");
    assert_eq!(place.file(), before);
    assert!(!place.simulators.path("daemon.secret").exists(), "{said}");
    let (code, said) = of("ip=dhcp,ip6=auto").run(&["--dry-run"]);
    assert_eq!(code, Some(0), "{said}");
}

/// Of an answered range it is told which addresses in it nobody gets. It finds a setup that looks at what it proposes alone.
#[test]
fn what_others_have_of_an_answered_range_is_told() {
    let place = Place::of(PveSpec::default());
    let answer = |ranges: &str| {
        let network = format!("[network]\naddresses = \"ranges\"\nranges = [\"{ranges}\"]\n");
        place.answer(&network);
        let (code, said) = place.run(&["--dry-run"]);
        assert_eq!(code, Some(0), "{said}");
        on_one_line(&said)
    };
    let words = "network.ranges: a host, a guest, a node or the API server has 192.0.2.11";
    let said = answer("192.0.2.11-192.0.2.60");
    assert!(said.contains(words), "{said}");
    let said = answer("192.0.2.222-192.0.2.253");
    assert!(!said.contains("a host, a guest, a node"), "{said}");
}

/// The range that is proposed is the highest in the bridge's network in which nobody has an address, a guest that is off among them, and the
/// gateway is that of the hosts. What is answered is taken as it is.
#[test]
fn a_range_is_proposed_in_which_nobody_has_an_address() {
    let mut spec = PveSpec::default();
    let nas = guest(&spec, 210, "192.0.2.254");
    spec.machines.push(nas);
    let place = Place::of(spec);
    place.answer("[network]\naddresses = \"ranges\"\n");
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    let told = on_one_line(&said);
    assert!(
        told.contains("no guest, host, node or API server is known to have one of them"),
        "{said}"
    );
    let file: toml::Table = toml::from_str(&place.file()).expect("TOML");
    let network = &file["network"]["machines"];
    let wanted = "subnet = \"192.0.2.0/24\"\nranges = [\"192.0.2.222-192.0.2.253\"]\ngateway = \"192.0.2.1\"\nnameservers = [\"192.0.2.1\"]\n";
    let wanted: toml::Table = toml::from_str(wanted).expect("TOML");
    assert_eq!(network.as_table(), Some(&wanted));
    let pools = file["pool"].as_table().expect("pools");
    let pool = pools.values().next().expect("a pool");
    assert_eq!(pool["network"].as_str(), Some("machines"), "{pool}");
    let (code, found) = place.doctor();
    assert_eq!(code, Some(0), "{found}");

    place.answer(
        "[network]\nranges = [\"192.0.2.100-192.0.2.119\"]\ngateway = \"192.0.2.2\"\nnameservers = [\"192.0.2.3\", \"192.0.2.4\"]\n",
    );
    let (code, said) = place.run(&["--yes"]);
    assert_eq!(code, Some(0), "{said}");
    let file: toml::Table = toml::from_str(&place.file()).expect("TOML");
    let network = &file["network"]["machines"];
    assert_eq!(network["gateway"].as_str(), Some("192.0.2.2"));
    let list = |key: &str| {
        let list = network[key].as_array().expect("a list").iter();
        let texts = list.map(|one| one.as_str().expect("text").to_owned());
        texts.collect::<Vec<String>>()
    };
    assert_eq!(list("ranges"), ["192.0.2.100-192.0.2.119"]);
    assert_eq!(list("nameservers"), ["192.0.2.3", "192.0.2.4"]);
}

/// The configuration is gone, and a machine is there whose mark reserves an address: the ranges take it in, and leave out what somebody else
/// has beside it. It finds a setup that proposes DHCP, or ranges in which its address is a stranger's.
#[test]
fn addresses_of_machines_that_are_there_are_proposed_again() {
    let mut spec = PveSpec::default();
    let nas = guest(&spec, 210, "192.0.2.53");
    spec.machines.push(nas);
    let place = Place::of(spec);
    let address: IpAddr = "192.0.2.50".parse().expect("an address");
    let mark = Mark {
        cluster: format!("{}/default", cluster_uid(&place.simulators)),
        machine: "batch-7003".to_owned(),
        vmid: 7_003,
        pool: "batch".to_owned(),
        instance_type: "small".to_owned(),
        template: "base".to_owned(),
        token: "abc123".to_owned(),
        created: Time(1_795_000_000_000),
        addresses: [(0, vec![address])].into(),
        cpus: CpuSet::new(),
        unknown: [].into(),
    };
    let named = (&*mark.machine, &*mark.line());
    clone_as(&place.simulators, TEMPLATE, mark.vmid, named);
    wait_until_listed(&place.simulators, &[mark.vmid]);
    let (code, said) = place.run(&["--dry-run"]);
    assert_eq!(code, Some(0), "{said}");
    let told = on_one_line(&said);
    for words in [
        "machines of ours have addresses out of ranges, by their marks, such as 192.0.2.50",
        "ranges = [\"192.0.2.21-192.0.2.52\"]",
        "network = \"machines\"",
    ] {
        assert!(told.contains(words), "{words:?} is not in {said}");
    }
    // Who answers DHCP gets it.
    place.answer("[network]\naddresses = \"dhcp\"\n");
    let (code, said) = place.run(&["--dry-run"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("[network.machines]"), "{said}");
}

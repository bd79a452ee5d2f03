use super::*;
use crate::config;
use crate::model::action::{CreateSpec, Target};
use crate::model::network::NicAddresses;
use crate::model::region::MachineVm;
use crate::model::time::Time;

const FILE: &str = r#"
version = 1
[kubernetes]
name = "test"
[proxmox]
vmids = "9100-9120"
[template.debian]
vmid = 9000
cpu_type = "host"
[instance_type.small]
cores = 2
memory = "4GiB"
price = 0.1
[pool.p]
template = "debian"
instance_types = ["small"]
max = 3
labels = { "example.org/a" = "b" }
"#;

fn settings(file: &str) -> Settings {
    config::parse(file, "file").expect("it is valid")
}

fn its_mark() -> Mark {
    Mark {
        cluster: "uid/test".into(),
        machine: "p-abcde".into(),
        vmid: 9100,
        pool: "p".into(),
        instance_type: "small".into(),
        template: "debian".into(),
        token: "abcdef".into(),
        created: Time(0),
        addresses: NicAddresses::new(),
        cpus: crate::model::cpus::CpuSet::new(),
        unknown: [].into(),
    }
}

/// What has drifted of a machine that was made by [`FILE`], where `file` is in force.
fn drifted(file: &str) -> Vec<Drift> {
    let (before, now) = (settings(FILE), settings(file));
    let policy = &before.policy;
    let terms = Terms::of(&policy.pools["p"], &policy.instance_types["small"]);
    let mark = its_mark();
    let mut found = against_terms(&terms, &mark, &now.policy).expect("the pool is known");
    let (before, now) = (made_of(&before, &mark), made_of(&now, &mark));
    let other = now.into_iter().filter(|(part, hash)| before[part] != *hash);
    found.extend(other.map(|(part, _)| part));
    found
}

#[test]
fn what_can_change_in_place_or_is_nobodys_promise_is_no_drift() {
    assert_eq!(drifted(FILE), []);
    for (from, to) in [
        ("price = 0.1", "price = 0.2"),
        ("max = 3", "max = 4\nmin = 1\nweight = 7"),
        (
            "max = 3",
            "max = 3\ntags = [\"shop\"]\ndescription = \"of the shop\"",
        ),
        ("max = 3", "max = 3\ncpu_units = 300\ncpu_limit = 1.5"),
        (
            "vmid = 9000",
            "vmid = 9000\nonboot = true\nstartup = { order = 3 }",
        ),
        ("vmid = 9000", "vmid = 9000\nresource_pool = \"k8s\""),
        (
            "vmid = 9000",
            "vmid = 9000\noptions = { tablet = false, shares = 500, hotplug = \"usb\" }",
        ),
    ] {
        let file = FILE.replace(from, to);
        assert_ne!(file, FILE);
        assert_eq!(drifted(&file), [], "{to}");
    }
}

#[test]
fn each_part_has_its_name() {
    for (from, to, part) in [
        ("cores = 2", "cores = 4", Drift::InstanceType),
        ("\"b\"", "\"c\"", Drift::Labels),
        (
            "max = 3",
            "max = 3\ntaints = [\"a=b:NoSchedule\"]",
            Drift::Taints,
        ),
        (
            "max = 3",
            "max = 3\nstartup_taints = [\"a=b:NoSchedule\"]",
            Drift::Taints,
        ),
        ("vmid = 9000", "vmid = 9001", Drift::Template),
        ("\"host\"", "\"x86-64-v3\"", Drift::Hardware),
        ("vmid = 9000", "vmid = 9000\nvlan = 20", Drift::Hardware),
        ("vmid = 9000", "vmid = 9000\nrate = 125", Drift::Hardware),
        ("max = 3", "max = 3\nhugepages = \"2M\"", Drift::Hardware),
        (
            "vmid = 9000",
            "vmid = 9000\noptions = { rng0 = \"source=/dev/urandom\" }",
            Drift::Hardware,
        ),
        // The VM's tablet cannot go while it gives nothing of USB to a guest that runs.
        (
            "vmid = 9000",
            "vmid = 9000\noptions = { tablet = false, hotplug = \"disk\" }",
            Drift::Hardware,
        ),
        (
            "vmid = 9000",
            "vmid = 9000\nci_user = \"ann\"",
            Drift::CloudInit,
        ),
        (
            "vmid = 9000",
            "vmid = 9000\nssh_keys = []",
            Drift::CloudInit,
        ),
    ] {
        let file = FILE.replace(from, to);
        assert_ne!(file, FILE);
        assert_eq!(drifted(&file), [part], "{to}");
    }
    let join = format!("{FILE}[pool.p.join]\nmethod = \"k3s\"\n");
    assert_eq!(drifted(&join), [Drift::Join]);
    let endpoint = format!("{FILE}[pool.p.join]\nendpoint = \"api.example.org:6443\"\n");
    assert_eq!(drifted(&endpoint), [Drift::Endpoint]);
    let kubelet = format!("{FILE}[pool.p.kubelet]\ntopology_manager_scope = \"pod\"\n");
    assert_eq!(drifted(&kubelet), [Drift::Kubelet]);
}

/// What of a network a machine is told, the networks of its cards, and the firewall of its VM.
#[test]
fn the_network_is_a_part_of_its_own() {
    let with = |network: &str, pool: &str| {
        let pool = FILE.replace("max = 3", &format!("max = 3\n{pool}"));
        let other = network.replace("192.0.2.5", "192.0.2.10");
        format!("{pool}[network.lan]\n{network}[network.other]\n{other}")
    };
    let plain = "subnet = \"192.0.2.0/24\"\nranges = [\"192.0.2.50-192.0.2.59\"]\n";
    let with_gateway = format!("{plain}gateway = \"192.0.2.1\"\n");
    let lan = "network = \"lan\"\n";
    let hash = |file: &str| made_of(&settings(file), &its_mark())[&Drift::Network].clone();
    let before = hash(&with(&with_gateway, lan));
    for (same, why) in [
        (
            with(&with_gateway, "network = \"other\"\n"),
            "its name is nothing to a machine",
        ),
        (
            with(&with_gateway.replace("59", "58"), lan),
            "whether its address is in the ranges, its mark tells",
        ),
        (
            with(&format!("{with_gateway}ask_on_wire = true\n"), lan),
            "nor how addresses are looked for",
        ),
    ] {
        assert_eq!(hash(&same), before, "{why}");
    }
    for other in [
        with(&with_gateway, ""),
        with(plain, lan),
        with(&with_gateway.replace("2.1\"", "2.3\""), lan),
        with(&with_gateway.replace("/24", "/25"), lan),
        with(
            &format!("{with_gateway}nameservers = [\"192.0.2.2\"]\n"),
            lan,
        ),
        with(
            &format!("{with_gateway}searchdomain = \"example.org\"\n"),
            lan,
        ),
    ] {
        assert_ne!(hash(&other), before, "{other}");
    }
    for (template, part) in [
        ("vm_firewall = true\nfirewall = true\n", Drift::Hardware),
        ("security_groups = [\"web\"]\n", Drift::Network),
    ] {
        let file = FILE.replace("vmid = 9000\n", &format!("vmid = 9000\n{template}"));
        assert!(drifted(&file).contains(&part), "{template}");
        assert!(drifted(&file).contains(&Drift::Network), "{template}");
    }
    // Further groups come to machines whose firewall is on already.
    let groups = |names: &str| {
        let groups = format!("vmid = 9000\nsecurity_groups = [{names}]\n");
        hash(&FILE.replace("vmid = 9000\n", &groups))
    };
    assert_eq!(groups("\"web\""), groups("\"web\", \"db\""));
}

#[test]
fn a_setting_that_is_not_there_counts_for_nothing() {
    // What a newer program may say of a template, where nobody sets it.
    assert_eq!(hash(&json!({"a": 1})), hash(&json!({"a": 1, "new": null})));
    assert_ne!(hash(&json!({"a": 1})), hash(&json!({"a": 1, "new": 2})));
    let (before, now) = (
        json!({"cards": [{"a": 1}]}),
        json!({"cards": [{"a": 1, "new": null}]}),
    );
    assert_eq!(hash(&before), hash(&now), "at any depth");
}

/// What is written into a machine at this step, with or without its node, that came so far on its way up. The file says another CPU now.
fn marked(step: Step, node: bool, reached: Option<Step>) -> Option<Vec<Drift>> {
    let (before, now) = (
        settings(FILE),
        settings(&FILE.replace("\"host\"", "\"x86-64-v3\"")),
    );
    let name: Arc<str> = "p-abcde".into();
    let policy = &before.policy;
    let terms = Terms::of(&policy.pools["p"], &policy.instance_types["small"]);
    let machine = Machine {
        region: "default".into(),
        host: "pve1".into(),
        mark: its_mark().into(),
        storages: crate::model::chosen_storages::ChosenStorages::default(),
        intended: true,
        vm: Some(MachineVm {
            marked: true,
            ..MachineVm::default()
        }),
        terms: Some(Arc::new(terms)),
        node: node.then(|| name.clone()),
        contradiction: None,
        remembered: None,
        step: Some((step, Time(0))),
        failure: None,
        busy: None,
    };
    let target = Target {
        region: "default".into(),
        host: "pve1".into(),
        vmid: 9100,
        machine: name.clone(),
        node: None,
    };
    let spec = CreateSpec {
        mark: its_mark(),
        template_vmid: 9000,
        template_host: "pve1".into(),
        template_uuid: None,
        storages: crate::model::chosen_storages::ChosenStorages::default(),
        terms: None,
    };
    let mut entry = JournalEntry::new(target, spec, Time(0));
    entry.made_of = made_of(&before, &its_mark());
    entry.reached = reached;
    let mut machines = BTreeMap::from([(name.clone(), machine)]);
    let journal = BTreeMap::from([(name.clone(), entry)]);
    mark(&mut machines, &BTreeMap::new(), &journal, &now);
    machines.remove(&name)?.vm?.drifted
}

/// A machine that worked has drifted until its node is gone. One that never worked has not, though its node is there while it is removed
/// again. Of one that is known by its mark alone it is not known how far it came.
#[test]
fn a_machine_has_drifted_from_when_it_works_until_its_node_is_gone() {
    let hardware = || Some(vec![Drift::Hardware]);
    assert_eq!(marked(Step::Done, true, Some(Step::Done)), hardware());
    assert_eq!(marked(Step::Drain, true, Some(Step::Done)), hardware());
    assert_eq!(marked(Step::Drain, true, None), hardware());
    assert_eq!(marked(Step::Drain, true, Some(Step::Initialize)), None);
    assert_eq!(marked(Step::Initialize, true, Some(Step::Initialize)), None);
    assert_eq!(marked(Step::Destroy, false, Some(Step::Done)), None);
}

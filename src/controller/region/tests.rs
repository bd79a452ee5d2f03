use super::*;
use crate::pve::transport::memory::RouterTransport;
use crate::sim::faults::{Aim, Spoilt};
use crate::sim::guests::GuestSpec;
use crate::sim::kube::KubeSpec;
use crate::sim::pve::{AdminAct, MachineSpec, PveSpec};
use crate::sim::world::{World, WorldSpec};

const CONFIG: &str =
    "version = 1\n[kubernetes]\nname = \"test\"\n[proxmox]\nvmids = \"9100-9120\"\n";

fn in_virtual_time(story: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build();
    runtime.expect("a runtime").block_on(story);
}

fn world() -> World {
    let world = World::new(WorldSpec {
        seed: 1,
        pve: PveSpec::default(),
        kube: KubeSpec::default(),
        guests: GuestSpec::default(),
        config: CONFIG.to_owned(),
    });
    world.unwrap_or_else(|errors| panic!("{errors}"))
}

fn stranger(description: &str) -> AdminAct {
    AdminAct::AddMachine(MachineSpec {
        vmid: 9100,
        host: "pve1".to_owned(),
        container: false,
        template: false,
        running: true,
        storage: "shared".to_owned(),
        disk: 1 << 30,
        disk_used: 1 << 20,
        cloudinit: false,
        pool: None,
        config: [("description".to_owned(), description.to_owned())].into(),
    })
}

/// What a reading from before the lease was ours is called stands in `systemctl status` with nothing around it.
#[test]
fn what_was_read_before_the_lease_was_ours_is_said_in_a_sentence() {
    in_virtual_time(async {
        let begun = Instant::now();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let read = |error: Option<&str>| RegionView {
            source: SourceState {
                complete: true,
                error: error.map(Into::into),
                ..SourceState::default()
            },
            begun: Some(begun),
            ..RegionView::default()
        };
        let mut view = read(None);
        view.forget_before(begun);
        assert!(view.source.complete && view.source.error.is_none());
        view.forget_before(Instant::now());
        assert!(!view.source.complete);
        let said = view.source.error.expect("it says why").to_string();
        assert_eq!(
            said,
            "no reading of this PVE cluster has ended since this instance took the lease"
        );
        let mut failed = read(Some("no route to host"));
        failed.forget_before(Instant::now());
        let said = failed.source.error.expect("it says why").to_string();
        assert_eq!(said, "no route to host");
    });
}

#[test]
fn what_is_doubted_is_read_with_the_next_poll() {
    in_virtual_time(async {
        let world = world();
        world.pve.administer(&stranger("mine")).expect("added");
        let region: RegionName = "default".into();
        let client = Client::new(Arc::new(RouterTransport::new(world.pve_way())));
        let doubts = Doubts::default();
        let settings = world.settings.clone();
        let mut watcher = RegionWatcher::new(region.clone(), client, world.clock, settings)
            .with_doubts(doubts.clone());
        let mut owner = async || {
            let observed = watcher.poll().await.expect("it is read");
            observed.region.vms[&9100].ownership.clone()
        };
        assert_eq!(owner().await, Some(Ownership::Unmarked));
        let edit = AdminAct::Configure {
            vmid: 9100,
            key: "description".to_owned(),
            value: Some("pve-autoscaler:v9 x".to_owned()),
        };
        world.pve.administer(&edit).expect("edited");
        assert_eq!(owner().await, Some(Ownership::Unmarked), "nobody looked");
        doubts.add(&"elsewhere".into(), 9100);
        assert_eq!(owner().await, Some(Ownership::Unmarked), "another region's");
        doubts.add(&region, 9100);
        let seen = owner().await;
        assert_eq!(seen, Some(Ownership::UnknownVersion("v9".into())));
        assert!(doubts.of(&region).is_empty());
        // Also where its row cannot be read.
        world.pve_faults.spoil(vec![Spoilt {
            id: "qemu/9100".to_owned(),
            key: "lock",
            value: serde_json::json!(["x"]),
        }]);
        let edit = AdminAct::Configure {
            vmid: 9100,
            key: "description".to_owned(),
            value: Some("pve-autoscaler:v8 x".to_owned()),
        };
        world.pve.administer(&edit).expect("edited");
        assert_eq!(owner().await, seen, "nobody doubts it");
        doubts.add(&region, 9100);
        let seen = owner().await;
        assert_eq!(seen, Some(Ownership::UnknownVersion("v8".into())));
    });
}

/// The VM of a trial is known by its mark, which names the configuration that it is of; it stays without an owner.
#[test]
fn the_vm_of_a_trial_is_known_by_its_mark() {
    in_virtual_time(async {
        let world = world();
        let mark = |cluster: &str| template_mark::TemplateMark {
            template: "debian".to_owned(),
            cluster: cluster.to_owned(),
            vmid: 9100,
            definition: String::new(),
            stage: template_mark::BuildStage::Trial,
            by: "pve1/7".to_owned(),
            machine: None,
            begun: 0,
            unknown: [].into(),
        };
        let text = mark("test").describe();
        world.pve.administer(&stranger(&text)).expect("added");
        let client = Client::new(Arc::new(RouterTransport::new(world.pve_way())));
        let region: RegionName = "default".into();
        let doubts = Doubts::default();
        let settings = world.settings.clone();
        let mut watcher = RegionWatcher::new(region.clone(), client, world.clock, settings)
            .with_doubts(doubts.clone());
        let mut tried = async || {
            doubts.add(&region, 9100);
            let observed = watcher.poll().await.expect("it is read");
            let vm = observed.region.vms[&9100].clone();
            assert_eq!(vm.ownership, Some(Ownership::Unmarked));
            vm.trial_of
        };
        assert_eq!(tried().await.as_deref(), Some("debian"));
        let edit = AdminAct::Configure {
            vmid: 9100,
            key: "description".to_owned(),
            value: Some(mark("another").describe()),
        };
        world.pve.administer(&edit).expect("edited");
        assert_eq!(tried().await, None, "of another configuration");
    });
}

/// A mark that somebody took out is looked for as often as marks are: whoever reads of it puts it back.
#[test]
fn a_mark_that_is_put_back_is_seen_soon() {
    in_virtual_time(async {
        let world = world();
        let mark = crate::model::mark::Mark {
            cluster: "uid/home".into(),
            machine: "small-aaaaa".into(),
            vmid: 9100,
            pool: "small".into(),
            instance_type: "s2".into(),
            template: "debian".into(),
            token: "abcdef".into(),
            created: crate::model::time::Time(1_000),
            addresses: BTreeMap::new(),
            cpus: crate::model::cpus::CpuSet::new(),
            unknown: [].into(),
        };
        world
            .pve
            .administer(&stranger(&mark.line()))
            .expect("added");
        let client = Client::new(Arc::new(RouterTransport::new(world.pve_way())));
        let settings = world.settings.clone();
        let mut watcher = RegionWatcher::new("default".into(), client, world.clock, settings);
        let mut owner = async |seconds: u64| {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            let observed = watcher.poll().await.expect("it is read");
            observed.region.vms[&9100].ownership.clone()
        };
        let marked = Some(Ownership::Marked(mark.clone().into()));
        assert_eq!(owner(0).await, marked);
        let describe = |text: &str| {
            let edit = AdminAct::Configure {
                vmid: 9100,
                key: "description".to_owned(),
                value: Some(text.to_owned()),
            };
            world.pve.administer(&edit).expect("edited");
        };
        describe("nothing");
        let mut seen = Vec::new();
        for _ in 0..2 {
            seen.push(owner(20).await);
        }
        assert!(seen.contains(&Some(Ownership::Unmarked)), "{seen:?}");
        describe(&mark.line());
        // Every other poll asks a host for what it alone knows.
        let mut seen = Vec::new();
        for _ in 0..2 {
            seen.push(owner(20).await);
        }
        assert!(seen.contains(&marked), "{seen:?}");
    });
}

/// A host is in the cluster and does not answer. Its VM is the one that was read longest ago, in every poll.
#[test]
fn a_host_that_does_not_answer_keeps_no_other_from_being_read_again() {
    in_virtual_time(async {
        let world = world();
        for (vmid, host) in [(9100, "pve2"), (9101, "pve1")] {
            let AdminAct::AddMachine(mut spec) = stranger("pve-autoscaler:v9 x") else {
                unreachable!("it adds a machine");
            };
            (spec.vmid, spec.host) = (vmid, host.to_owned());
            let added = world.pve.administer(&AdminAct::AddMachine(spec));
            added.expect("added");
        }
        let client = Client::new(Arc::new(RouterTransport::new(world.pve_way())));
        let settings = world.settings.clone();
        let mut watcher = RegionWatcher::new("default".into(), client, world.clock, settings);
        watcher.poll().await.expect("it is read");
        world
            .pve_faults
            .aim(Some(Aim::Refuse("/api2/json/nodes/pve2")));
        let edit = AdminAct::Configure {
            vmid: 9101,
            key: "description".to_owned(),
            value: Some("pve-autoscaler:v8 x".to_owned()),
        };
        world.pve.administer(&edit).expect("edited");
        let mut owner = None;
        for _ in 0..8 {
            tokio::time::advance(Duration::from_secs(20)).await;
            let observed = watcher.poll().await.expect("it is read");
            owner = observed.region.vms[&9101].ownership.clone();
            let silent = observed.region.vms[&9100].ownership.clone();
            // A VM that cannot be read counts as it was read last.
            assert_eq!(silent, Some(Ownership::UnknownVersion("v9".into())));
        }
        assert_eq!(owner, Some(Ownership::UnknownVersion("v8".into())));
    });
}

/// Two of our range, on the hosts of whose names these are; none of them was read.
fn two_strangers(world: &World) {
    for (vmid, host) in [(9100, "pve2"), (9101, "pve3")] {
        let AdminAct::AddMachine(mut spec) = stranger("pve-autoscaler:v9 x") else {
            unreachable!("it adds a machine");
        };
        (spec.vmid, spec.host) = (vmid, host.to_owned());
        let added = world.pve.administer(&AdminAct::AddMachine(spec));
        added.expect("added");
    }
}

/// Calls to a host never end: it costs one poll its bound, the others are read in full, and what is not known of it is not known. It is asked
/// one cheap thing in each poll, and read when it answers that.
#[test]
fn a_host_that_hangs_costs_one_poll_its_time_and_the_others_nothing() {
    in_virtual_time(async {
        let world = world();
        two_strangers(&world);
        let aim = Aim::Hang(&["/api2/json/nodes/pve2/"]);
        world.pve_faults.aim(Some(aim));
        let client = Client::new(Arc::new(RouterTransport::new(world.pve_way())));
        let settings = world.settings.clone();
        let mut watcher = RegionWatcher::new("default".into(), client, world.clock, settings);
        let mut poll = async || {
            let began = Instant::now();
            let observed = watcher.poll().await.expect("it is read");
            (began.elapsed(), observed.region)
        };
        let (took, region) = poll().await;
        assert!(took <= Duration::from_secs(16), "{took:?}");
        let hung = &region.hosts["pve2"];
        assert!(hung.online && hung.silent && !hung.answers());
        let why = hung.unread.clone().expect("it says why").to_string();
        assert!(why.contains("it does not answer"), "{why}");
        assert_eq!(region.vms[&9100].ownership, None);
        for name in ["pve1", "pve3"] {
            let host = &region.hosts[name];
            assert!(host.answers() && host.unread.is_none(), "{name}");
        }
        let read = Some(Ownership::UnknownVersion("v9".into()));
        assert_eq!(region.vms[&9101].ownership, read);
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_secs(30)).await;
            let (took, region) = poll().await;
            assert!(took <= Duration::from_secs(2), "{took:?}");
            assert!(region.hosts["pve2"].silent);
            assert!(region.hosts["pve1"].clock_ahead.is_some(), "it is asked");
        }
        world.pve_faults.aim(None);
        tokio::time::sleep(Duration::from_secs(30)).await;
        let (_, region) = poll().await;
        let back = &region.hosts["pve2"];
        assert!(back.answers() && back.unread.is_none());
        assert_eq!(region.vms[&9100].ownership, read);
    });
}

/// One call to a host hangs, and the host does not: it is not silent, and the rest of it is read.
#[test]
fn a_call_that_hangs_makes_no_silent_host() {
    in_virtual_time(async {
        let world = world();
        two_strangers(&world);
        let aim = Aim::Hang(&["/api2/json/nodes/pve2/qemu/9100/"]);
        world.pve_faults.aim(Some(aim));
        let client = Client::new(Arc::new(RouterTransport::new(world.pve_way())));
        let settings = world.settings.clone();
        let mut watcher = RegionWatcher::new("default".into(), client, world.clock, settings);
        let observed = watcher.poll().await.expect("it is read");
        assert!(observed.region.hosts["pve2"].answers());
        assert_eq!(observed.region.vms[&9100].ownership, None);
    });
}

#[test]
fn what_nobody_can_place_or_size_closes_hosts() {
    let closed = |change: fn(&mut Vm)| {
        let mut vm = Vm::from(&GuestResource {
            host: "pve1".into(),
            status: "running".into(),
            cpus: 2,
            memory: 1 << 30,
            ..GuestResource::default()
        });
        change(&mut vm);
        let host = Host {
            online: true,
            memory: 1 << 40,
            ..Host::default()
        };
        let mut region = Region::default();
        for name in ["pve1", "pve2"] {
            region.hosts.insert(name.into(), host.clone());
        }
        region.vms.insert(300, vm);
        unread::mark_hosts(&mut region);
        let hosts = region.hosts.iter();
        let closed = hosts.filter(|(_, host)| host.unread.is_some() && host.memory == 0);
        closed.map(|(name, _)| name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(closed(|_| {}), Vec::<String>::new());
    assert_eq!(closed(|vm| vm.memory = 0), ["pve1"]);
    assert_eq!(closed(|vm| vm.cpus = 0), ["pve1"]);
    // Its host and its size are known, its lock is not.
    let sized: fn(&mut Vm) = |vm| vm.unread = Some(ForeignText::new("odd"));
    assert_eq!(closed(sized), Vec::<String>::new());
    let without_cpus: fn(&mut Vm) =
        |vm| (vm.unread, vm.cpus, vm.running) = (Some(ForeignText::new("odd")), 0, false);
    assert_eq!(closed(without_cpus), ["pve1"]);
    // Its size is known, and nobody knows where it takes it.
    let unplaced: fn(&mut Vm) =
        |vm| (vm.unread, vm.host) = (Some(ForeignText::new("odd")), "".into());
    assert_eq!(closed(unplaced), ["pve1", "pve2"]);
}

/// What is left of mediated devices is asked in each poll of the hosts that the mapping names and a pool may use, and where that fails it is not known.
#[test]
fn what_hosts_have_left_of_mediated_devices_is_read_where_machines_get_some() {
    const MACHINES: &str = "[template.debian]\nvmid = 8000\n[instance_type.v]\ncores = 2\nmemory = \"4GiB\"\n\
        pci = [{ mapping = \"vgpu\", mdev = \"nvidia-63\" }]\n[pool.v]\ntemplate = \"debian\"\ninstance_types = [\"v\"]\n\
        exclude_hosts = [\"pve3\"]\nmax = 3\n";
    in_virtual_time(async {
        let mut pve = PveSpec::default();
        let card = "0000:41:00.0".to_owned();
        let hosts = ["pve2", "pve3"].map(|host| (host.to_owned(), vec![card.clone()]));
        pve.mappings.insert("vgpu".to_owned(), hosts.into());
        pve.mdev_mappings.insert("vgpu".to_owned());
        let types = BTreeMap::from([("nvidia-63".to_owned(), 4)]);
        for host in ["pve1", "pve2", "pve3"] {
            let cards = BTreeMap::from([(card.clone(), types.clone())]);
            pve.mediated.insert(host.to_owned(), cards);
        }
        let world = World::new(WorldSpec {
            seed: 1,
            pve,
            kube: KubeSpec::default(),
            guests: GuestSpec::default(),
            config: format!("{CONFIG}{MACHINES}"),
        });
        let world = world.unwrap_or_else(|errors| panic!("{errors}"));
        let AdminAct::AddMachine(mut spec) = stranger("theirs") else {
            unreachable!("it adds a machine");
        };
        (spec.vmid, spec.host) = (300, "pve2".to_owned());
        let device = "mapping=vgpu,mdev=nvidia-63".to_owned();
        spec.config.insert("hostpci0".to_owned(), device);
        let added = world.pve.administer(&AdminAct::AddMachine(spec));
        added.expect("added");
        let client = Client::new(Arc::new(RouterTransport::new(world.pve_way())));
        let settings = world.settings.clone();
        let mut watcher = RegionWatcher::new("default".into(), client, world.clock, settings);
        let mut told = async || {
            let observed = watcher.poll().await.expect("it is read");
            observed.region.mediated.clone()
        };
        let first = told().await;
        let hosts: Vec<&str> = first.keys().map(|host| &**host).collect();
        assert_eq!(hosts, ["pve2"]);
        let left = &first["pve2"]["vgpu"];
        assert_eq!(left.left, BTreeMap::from([("nvidia-63".into(), 3)]));
        assert_eq!(left.running, BTreeSet::from([300]));
        let aim = Aim::Refuse("/api2/json/nodes/pve2/hardware");
        world.pve_faults.aim(Some(aim));
        assert_eq!(told().await, BTreeMap::new());
        world.pve_faults.aim(None);
        assert_eq!(told().await, first);
    });
}

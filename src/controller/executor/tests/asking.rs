//! Machines that were planned before a restart, whose addresses are asked for on the wire: whoever waits for an answer keeps no other
//! one from the storage.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::sleep;

use super::{CONFIG, simulate, tools};
use crate::controller::drift;
use crate::controller::executor::clone;
use crate::controller::executor::tools::Tools;
use crate::controller::executor::up::PlanOrigin;
use crate::controller::executor::work::Work;
use crate::controller::journal::JournalEntry;
use crate::controller::on_wire::WireBook;
use crate::model::action::{CreateSpec, Target};
use crate::model::mark::Mark;
use crate::model::region::Failure;
use crate::pve::transport::memory::RouterTransport;
use crate::sim::guests::GuestSpec;
use crate::sim::kube::KubeSpec;
use crate::sim::pve::PveSpec;
use crate::sim::world::{World, WorldSpec};
use crate::wire::{Wire, WireAnswer};

/// A little less than the daemon waits for an answer at most.
const SLOW: Duration = Duration::from_secs(11);

/// A wire with nobody on it, which says so late for one address.
#[derive(Debug)]
struct SlowWire {
    slow: IpAddr,
    asked: Mutex<Vec<IpAddr>>,
}

impl Wire for SlowWire {
    fn ask(&self, address: IpAddr) -> BoxFuture<'_, WireAnswer> {
        self.asked.lock().expect("a list").push(address);
        Box::pin(async move {
            if address == self.slow {
                sleep(SLOW).await;
            }
            WireAnswer::Silent
        })
    }
}

fn ip(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

/// One clone at a time, of machines whose addresses are asked for.
fn world() -> World {
    let config = CONFIG
        .replace(
            "[template.debian]",
            "max_clones_per_storage = 1\n[template.debian]",
        )
        .replace("max = 3\n", "max = 3\nnetwork = \"lan\"\n")
        .replace(
            "[instance_type.small]",
            "[network.lan]\nask_on_wire = true\nsubnet = \"192.0.2.0/24\"\n\
             ranges = [\"192.0.2.50-192.0.2.59\"]\ngateway = \"192.0.2.1\"\n[instance_type.small]",
        );
    let world = World::new(WorldSpec {
        seed: 5,
        pve: PveSpec::default(),
        kube: KubeSpec::default(),
        guests: GuestSpec::default(),
        config,
    });
    world.unwrap_or_else(|errors| panic!("{errors}"))
}

/// The intent of a machine of which nothing has begun.
fn intent(world: &World, vmid: u32, address: IpAddr) -> JournalEntry {
    let now = world.clock.now();
    let machine = format!("general-{vmid}x");
    let mark = Mark {
        cluster: "uid/test".into(),
        machine: machine.clone(),
        vmid,
        pool: "general".into(),
        instance_type: "small".into(),
        template: "debian".into(),
        token: "abcdef".into(),
        created: now,
        addresses: [(0, vec![address])].into(),
        cpus: crate::model::cpus::CpuSet::new(),
        unknown: [].into(),
    };
    let regions = &world.settings.regions;
    let target = Target {
        region: regions.keys().next().expect("a region").clone(),
        host: "pve1".into(),
        vmid,
        machine: machine.into(),
        node: None,
    };
    let spec = CreateSpec {
        mark,
        template_vmid: 9000,
        template_host: "pve1".into(),
        template_uuid: None,
        storages: crate::model::chosen_storages::ChosenStorages::default(),
        terms: None,
    };
    JournalEntry::new(target, spec, now)
}

/// Goes on with a machine until its VM is there.
async fn made(tools: &Tools, entry: &JournalEntry) -> Result<(), Failure> {
    let work = Work::open(tools.clone(), entry).expect("it is opened");
    clone::ensure(&work, PlanOrigin::Earlier).await
}

/// What root does with PVE, beside this wire.
async fn as_root(world: &World, state: &std::path::Path, wire: Arc<SlowWire>) -> Tools {
    let way = RouterTransport::new(world.pve.router_as("root@pam"));
    let client = crate::pve::Client::new(Arc::new(way));
    let known = tools(world, state, world.kube_way()).await;
    let regions = known.pve.keys();
    Tools {
        pve: regions.map(|name| (name.clone(), client.clone())).collect(),
        wire: WireBook::new(wire),
        ..known.clone()
    }
}

#[test]
fn a_slow_wire_keeps_no_other_machine_from_its_clone_after_a_restart() {
    simulate(async {
        let world = world();
        let state = tempfile::tempdir().expect("a directory");
        let wire = Arc::new(SlowWire {
            slow: ip(50),
            asked: Mutex::default(),
        });
        let tools = as_root(&world, state.path(), wire.clone()).await;
        let entries = [(9100, 50), (9101, 51)].map(|(vmid, last)| intent(&world, vmid, ip(last)));
        for entry in &entries {
            tools.journal.put(entry.clone()).expect("written");
        }
        let there = || [9100, 9101].map(|vmid| world.pve.vm(vmid).is_some());
        let asked = || {
            let mut asked = wire.asked.lock().expect("a list").clone();
            asked.sort_unstable();
            asked
        };
        let look = async {
            sleep(SLOW.saturating_sub(Duration::from_secs(2))).await;
            (there(), asked())
        };
        // The slow one comes first, so that nobody is before it in any line.
        let (slow, quick, (early, asked_early)) =
            tokio::join!(made(&tools, &entries[0]), made(&tools, &entries[1]), look);
        assert_eq!(early, [false, true], "before the wire has answered");
        assert_eq!(asked_early, [ip(50), ip(51)]);
        assert_eq!((slow, quick), (Ok(()), Ok(())));
        assert_eq!(there(), [true, true]);
        assert_eq!(asked(), [ip(50), ip(51)], "each once");
    });
}

/// A machine of which nothing has begun is made by the file that it was planned by, or not at all.
#[test]
fn an_intent_of_another_file_is_given_up() {
    simulate(async {
        let world = world();
        let state = tempfile::tempdir().expect("a directory");
        let wire = Arc::new(SlowWire {
            slow: ip(99),
            asked: Mutex::default(),
        });
        let tools = as_root(&world, state.path(), wire).await;
        let other = CONFIG.replace("vmid = 9000\n", "vmid = 9000\nvlan = 20\n");
        assert_ne!(other, CONFIG);
        let other = crate::config::parse(&other, "other").expect("it is valid");
        let intent = |vmid, last, settings| {
            let entry = intent(&world, vmid, ip(last));
            JournalEntry {
                made_of: drift::made_of(settings, &entry.spec.mark),
                ..entry
            }
        };
        let entries = [intent(9100, 50, &other), intent(9101, 51, &*world.settings)];
        for entry in &entries {
            tools.journal.put(entry.clone()).expect("written");
        }
        let failure = made(&tools, &entries[0]).await.expect_err("another file");
        assert!(failure.transient, "{failure:?}");
        let words = "the file was changed (hardware";
        assert!(failure.message.to_string().contains(words), "{failure:?}");
        assert!(world.pve.vm(9100).is_none());
        made(&tools, &entries[1]).await.expect("as it was planned");
        assert!(world.pve.vm(9101).is_some());
    });
}

//! Answers of PVE's come damaged. Nobody guesses by them whose a VM is: what is not ours is not touched, and no machine
//! of ours counts as gone. There is no broker here that would look once more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseResult, TestRunner};
use rand::{SeedableRng as _, rngs::StdRng};
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::{Lab, machines};
use crate::controller::executor::perform;
use crate::controller::executor::tools::Tools;
use crate::controller::executor::work::{VmState, Work};
use crate::controller::journal::JournalEntry;
use crate::controller::region::RegionWatcher;
use crate::model::action::{Action, Kind, Precondition, Reason};
use crate::model::mark::{Mark, Ownership};
use crate::model::region::Step;
use crate::pve::transport::memory::RouterTransport;
use crate::pve::{CallError, PveRequest, Transport};
use crate::sim::faults::damage::Damager;
use crate::sim::pve::{AdminAct, MachineSpec};

/// VMs of colleagues: three in our range, and a container.
const THEIRS: [u32; 4] = [9110, 9111, 9112, 300];
/// Any work on a machine is given up by then.
const LONG: Duration = Duration::from_mins(20);

/// The way to PVE, on which answers are damaged.
#[derive(Debug)]
struct Damaging {
    way: RouterTransport,
    rng: Mutex<(StdRng, Damager)>,
    /// How many answers of a thousand.
    permille: u32,
    /// Of this call alone.
    only: Option<&'static str>,
    /// The list has no row for this VM.
    hidden: Option<u32>,
}

impl Transport for Damaging {
    fn call(&self, request: PveRequest) -> BoxFuture<'_, Result<Value, CallError>> {
        async move {
            let call = request.call;
            let mut data = self.way.call(request).await?;
            if let (Some(hidden), "resources", Some(rows)) =
                (self.hidden, call, data.as_array_mut())
            {
                rows.retain(|row| row["vmid"] != hidden);
            }
            if self.only.is_none_or(|only| only == call) && !data.is_null() {
                let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
                let (rng, damager) = &mut *rng;
                if rng.random_range(0..1_000) < self.permille {
                    damager.damage(&mut data);
                }
            }
            Ok(data)
        }
        .boxed()
    }
}

fn damaging(lab: &Lab, seed: u64, permille: u32, only: Option<&'static str>) -> Damaging {
    Damaging {
        way: RouterTransport::new(lab.world.pve.router_as("root@pam")),
        rng: Mutex::new((StdRng::seed_from_u64(seed), Damager::new(seed))),
        permille,
        only,
        hidden: None,
    }
}

/// The tools, with this way to PVE.
fn tools(lab: &Lab, way: Damaging) -> Tools {
    let client = crate::pve::Client::new(Arc::new(way));
    let regions = lab.tools.pve.keys();
    Tools {
        pve: regions.map(|name| (name.clone(), client.clone())).collect(),
        ..lab.tools.clone()
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime")
}

fn try_seeds(cases: u32, test: impl Fn(u64) -> TestCaseResult) {
    let config = ProptestConfig {
        // Each seed stands alone: there is nothing to shrink.
        max_shrink_iters: 0,
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    };
    let tried = TestRunner::new(config).run(&any::<u64>(), test);
    tried.unwrap_or_else(|failure| panic!("{failure}"));
}

/// Our machines in service, and VMs of colleagues that could be taken for them: one without a mark, a copy of one of
/// ours, one of another cluster.
async fn lab(count: u32) -> Lab {
    let lab = machines(count, "", |router| router).await;
    let mark = first(&lab).spec.mark;
    let other = Mark {
        cluster: "0badcafe/theirs".to_owned(),
        vmid: 9112,
        ..mark.clone()
    };
    let notes = [
        "the shop, call Ann".to_owned(),
        mark.line(),
        other.line(),
        String::new(),
    ];
    for (vmid, notes) in THEIRS.into_iter().zip(notes) {
        let act = AdminAct::AddMachine(MachineSpec {
            vmid,
            host: "pve1".to_owned(),
            container: vmid == 300,
            template: false,
            running: true,
            storage: "shared".to_owned(),
            disk: 1 << 30,
            disk_used: 1 << 20,
            cloudinit: false,
            pool: None,
            config: [("description".to_owned(), notes)].into(),
        });
        lab.world.pve.administer(&act).expect("added");
    }
    lab
}

fn first(lab: &Lab) -> JournalEntry {
    let machine = &lab.removals[0].target.machine;
    lab.tools.journal.get(machine).expect("an entry")
}

/// Entries of machines that were to have the colleagues' VMIDs: of one that was never seen, and of one that was.
fn intended(lab: &Lab) -> Vec<JournalEntry> {
    let entry = |vmid: u32, marked: bool| {
        let mut entry = first(lab);
        let name = format!("general-{}{vmid}", if marked { "m" } else { "i" });
        entry.target.machine = name.as_str().into();
        entry.target.vmid = vmid;
        entry.target.host = "pve1".into();
        entry.target.node = None;
        entry.spec.mark.machine = name;
        entry.spec.mark.vmid = vmid;
        entry.marked = marked;
        entry.step = if marked { Step::Done } else { Step::Clone };
        entry.upid = None;
        entry.uuid = None;
        entry
    };
    let both = THEIRS
        .into_iter()
        .flat_map(|vmid| [entry(vmid, false), entry(vmid, true)]);
    both.collect()
}

/// What changed, or was to change, a VM of a colleague's.
fn touched(lab: &Lab) -> Vec<String> {
    let asked = lab.world.pve.requests().into_iter().filter(|seen| {
        let theirs = |vmid: &u32| {
            seen.path.contains(&format!("/{vmid}/")) || seen.path.ends_with(&format!("/{vmid}"))
        };
        // Nothing is cloned over them either.
        let over = seen.path.ends_with("/clone") && seen.status != Some(200);
        seen.changing && (THEIRS.iter().any(theirs) || over)
    });
    asked
        .map(|seen| format!("{} {}", seen.method, seen.path))
        .collect()
}

/// Whatever PVE answers, a look shows no VM of a colleague's as ours, and none of ours, nor theirs, as gone; and the view of
/// the region has all of them.
#[test]
fn a_look_guesses_no_owner() {
    let runtime = runtime();
    let lab = runtime.block_on(lab(2));
    let theirs = intended(&lab);
    let mine: Vec<JournalEntry> = lab.tools.journal.entries().into_values().collect();
    for entry in theirs.iter().chain(&mine) {
        lab.tools.journal.put(entry.clone()).expect("it is written");
    }
    try_seeds(96, |seed| {
        runtime.block_on(async {
            let tools = tools(&lab, damaging(&lab, seed, 400, None));
            for (entry, ours) in theirs
                .iter()
                .map(|e| (e, false))
                .chain(mine.iter().map(|e| (e, true)))
            {
                let work = Work::open(tools.clone(), entry).expect("it opens");
                let Ok(Ok(look)) = timeout(LONG, work.look()).await else {
                    continue;
                };
                let fine = match look {
                    VmState::Ours(_) | VmState::Changed(_) => ours,
                    VmState::Foreign(_) => true,
                    VmState::Absent | VmState::Placeholder | VmState::Going => false,
                };
                prop_assert!(fine, "VM {} looks like {look:?}", entry.target.vmid);
            }
            seen_whole(&lab, &mine, seed).await
        })
    });
}

async fn seen_whole(lab: &Lab, mine: &[JournalEntry], seed: u64) -> TestCaseResult {
    let region = lab.removals[0].target.region.clone();
    let client = crate::pve::Client::new(Arc::new(damaging(lab, seed, 400, None)));
    let settings = lab.world.settings.clone();
    let mut watcher = RegionWatcher::new(region, client, lab.world.clock, settings);
    for _ in 0..4 {
        let Ok(observed) = watcher.poll().await else {
            continue;
        };
        let vms = &observed.region.vms;
        for entry in mine {
            let vmid = entry.target.vmid;
            prop_assert!(vms.contains_key(&vmid), "VM {vmid} is not in the view");
        }
        for vmid in THEIRS {
            prop_assert!(vms.contains_key(&vmid), "VM {vmid} is not in the view");
            let owner = vms[&vmid].ownership.as_ref();
            let cluster = &mine[0].spec.mark.cluster;
            let taken = matches!(owner, Some(Ownership::Marked(mark)) if mark.vmid == vmid && mark.cluster == *cluster);
            prop_assert!(!taken, "VM {vmid} is taken for ours");
        }
    }
    Ok(())
}

fn action(entry: &JournalEntry, kind: Kind) -> Action {
    Action {
        version: crate::model::action::VERSION,
        kind,
        target: entry.target.clone(),
        precondition: Precondition::default(),
        reason: Reason::NotWanted,
    }
}

/// Whatever is planned by mistake for a colleague's VM, and whatever PVE answers then: nothing is done to it.
#[test]
fn nothing_is_done_to_a_colleagues_vm() {
    let runtime = runtime();
    let lab = runtime.block_on(lab(1));
    let theirs = intended(&lab);
    try_seeds(12, |seed| {
        runtime.block_on(async {
            let tools = tools(&lab, damaging(&lab, seed, 300, None));
            for entry in &theirs {
                for kind in [
                    Kind::Remove { drain: true },
                    Kind::Remove { drain: false },
                    Kind::DeletePlaceholder,
                    Kind::DropIntent,
                    Kind::Update,
                    Kind::Start,
                    Kind::Continue,
                ] {
                    lab.tools.journal.put(entry.clone()).expect("it is written");
                    let done = perform(tools.clone(), action(entry, kind), Some(entry.clone()));
                    let _ = timeout(LONG, Box::pin(done)).await;
                    let touched = touched(&lab);
                    prop_assert!(touched.is_empty(), "{touched:?}");
                }
            }
            Ok(())
        })
    });
}

/// A damaged list shows none of our machines as gone: its entry stays, and its node.
#[test]
fn no_damaged_list_ends_a_machine() {
    let runtime = runtime();
    let lab = runtime.block_on(lab(1));
    let entry = first(&lab);
    let node = lab.removals[0].target.node.clone();
    try_seeds(48, |seed| {
        runtime.block_on(async {
            let hidden = (seed % 2 == 0).then_some(entry.target.vmid);
            let way = Damaging {
                hidden,
                ..damaging(&lab, seed, 500, Some("resources"))
            };
            let tools = tools(&lab, way);
            for kind in [Kind::DropIntent, Kind::DeletePlaceholder, Kind::DeleteNode] {
                let mut action = action(&entry, kind.clone());
                action.target.node = node.clone();
                let done = perform(tools.clone(), action, Some(entry.clone()));
                let _ = timeout(LONG, Box::pin(done)).await;
                let stays = lab.tools.journal.get(&entry.target.machine).is_some();
                prop_assert!(stays, "{kind:?}: the entry is gone, and the VM is there");
                prop_assert!(lab.world.pve.vm(entry.target.vmid).is_some(), "{kind:?}");
                let nodes = lab.world.kube.objects("v1", "Node").len();
                prop_assert!(nodes > 0, "{kind:?}: the node is gone");
            }
            Ok(())
        })
    });
}

/// The list does not show a VM that is off, and its node is not Ready any more: what its host says of the VM counts.
#[test]
fn a_node_stays_whose_vm_the_list_hides() {
    let runtime = runtime();
    let lab = runtime.block_on(lab(1));
    let (entry, target) = (first(&lab), lab.removals[0].target.clone());
    runtime.block_on(async {
        let off = AdminAct::PowerOff { vmid: target.vmid };
        lab.world.pve.administer(&off).expect("it is there");
        tokio::time::sleep(Duration::from_mins(1)).await;
        let way = Damaging {
            hidden: Some(target.vmid),
            ..damaging(&lab, 0, 0, None)
        };
        let mut action = action(&entry, Kind::DeleteNode);
        action.target = target;
        let done = perform(tools(&lab, way), action, Some(entry.clone()));
        let failure = Box::pin(done).await.result.expect_err("the VM is there");
        let why = "though PVE does not list it";
        assert!(failure.message.contains(why), "{failure:?}");
        assert!(!lab.world.kube.objects("v1", "Node").is_empty());
    });
}

/// A removal on such a way ends with the VM gone, or with the entry of a VM that is there.
#[test]
fn a_removal_leaves_no_vm_that_nobody_knows() {
    let mut ends: BTreeMap<bool, u32> = BTreeMap::new();
    for seed in 0..4 {
        let runtime = runtime();
        let lab = runtime.block_on(lab(2));
        runtime.block_on(async {
            let tools = tools(&lab, damaging(&lab, seed, 150, None));
            for removal in &lab.removals {
                let (machine, vmid) = (&removal.target.machine, removal.target.vmid);
                let entry = lab.tools.journal.get(machine);
                let ended = Box::pin(perform(tools.clone(), removal.clone(), entry)).await;
                let there = lab.world.pve.vm(vmid).is_some();
                let known = lab.tools.journal.get(machine).is_some();
                assert!(
                    known || !there,
                    "seed {seed}: VM {vmid} is there and nobody knows of it"
                );
                assert!(
                    ended.result.is_err() || !there,
                    "seed {seed}: VM {vmid} is there"
                );
                *ends.entry(there).or_default() += 1;
            }
        });
        assert_eq!(touched(&lab), Vec::<String>::new());
    }
    assert!(ends.contains_key(&false), "no removal came to its end");
}

/// The bugs are found: ownership that is not read again, and answers that are believed however damaged.
#[test]
#[cfg(debug_assertions)]
fn planted_bugs_are_found() {
    use crate::planted::{Bug, plant};
    let planted: [(Bug, fn()); 4] = [
        (Bug::MarkNotReRead, a_look_guesses_no_owner),
        (Bug::MarkNotReRead, nothing_is_done_to_a_colleagues_vm),
        (Bug::AnswersNotChecked, a_look_guesses_no_owner),
        (Bug::AnswersNotChecked, no_damaged_list_ends_a_machine),
    ];
    for (number, (bug, test)) in planted.into_iter().enumerate() {
        let _planted = plant(bug);
        let found = std::panic::catch_unwind(test);
        assert!(found.is_err(), "{number}: {bug:?} was not found");
    }
}

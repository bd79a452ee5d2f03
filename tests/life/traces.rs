//! Traces of simulated lives: one of each machine, whole, whoever ended in between.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pve_autoscaler::controller::executor::{Nothing, Observer};
use pve_autoscaler::controller::journal::JournalEntry;
use pve_autoscaler::model::action::Action;
use pve_autoscaler::model::region::{Failure, Step};
use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::guests::{GuestFault, GuestSpec};
use pve_autoscaler::trace::TraceSpan;
use pve_autoscaler::trace::life::{Lives, Sink};
use tokio_util::sync::CancellationToken;

use crate::common::{Scene, simulate};
use crate::{HASTY, visit};

/// The spans that ended, in their order.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Vec<TraceSpan>>>);

impl Sink for Kept {
    fn take(&self, span: TraceSpan) {
        let mut spans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        spans.push(span);
    }
}

impl Kept {
    /// The spans by machine.
    fn lives(&self) -> BTreeMap<String, Vec<TraceSpan>> {
        let spans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lives: BTreeMap<String, Vec<TraceSpan>> = BTreeMap::new();
        for span in &*spans {
            let life = lives.entry(span.machine.name.to_string()).or_default();
            life.push(span.clone());
        }
        lives
    }
}

/// An observer that knows nothing of before when the daemon starts again, as one of another process.
#[derive(Debug)]
struct Starts {
    kept: Kept,
    lives: Mutex<Lives>,
}

fn lives(kept: &Kept, scene: &Scene) -> Lives {
    let (nobody, sink) = (Arc::new(Nothing), Arc::new(kept.clone()));
    Lives::new(nobody, sink, scene.world.host_clock)
}

impl Starts {
    fn of(scene: &mut Scene) -> Arc<Starts> {
        let kept = Kept::default();
        let lives = Mutex::new(lives(&kept, scene));
        let starts = Arc::new(Starts { kept, lives });
        scene.world.observer = starts.clone();
        starts
    }

    fn again(&self, scene: &Scene) {
        *self.lives.lock().expect("no panic") = lives(&self.kept, scene);
    }
}

impl Observer for Starts {
    fn begun(&self, action: &Action, entry: Option<&JournalEntry>) {
        self.lives.lock().expect("no panic").begun(action, entry);
    }
    fn moment(&self, machine: &str, what: &'static str) {
        self.lives.lock().expect("no panic").moment(machine, what);
    }
    fn step(&self, machine: &str, step: Step, took: Span, failure: Option<&Failure>) {
        let lives = self.lives.lock().expect("no panic");
        lives.step(machine, step, took, failure);
    }
    fn evicted(&self, _: bool) {}
    fn turned(&self, _: Duration) {}
    fn ended(&self, action: &Action, failure: Option<&Failure>) {
        self.lives.lock().expect("no panic").ended(action, failure);
    }
    fn stopped(&self) {
        self.lives.lock().expect("no panic").stopped();
    }
    fn not_recorded(&self, _: u64) {}
}

/// The root of a trace of which every span is below it.
fn whole(life: &[TraceSpan]) -> &TraceSpan {
    let traces: BTreeSet<_> = life.iter().map(|span| span.trace).collect();
    assert_eq!(traces.len(), 1, "one machine is one trace: {life:#?}");
    let ids: BTreeSet<_> = life.iter().map(|span| span.id).collect();
    assert_eq!(ids.len(), life.len(), "no id is used twice: {life:#?}");
    for span in life {
        assert!(span.began <= span.ended, "{span:?}");
        let parent = span.parent;
        assert!(
            parent.is_none_or(|parent| ids.contains(&parent)),
            "{span:?} is below nothing"
        );
    }
    let roots: Vec<&TraceSpan> = life.iter().filter(|span| span.parent.is_none()).collect();
    assert_eq!(roots.len(), 1, "{life:#?}");
    let root = roots[0];
    assert_eq!(root.name, "machine");
    assert!(life.iter().all(|span| span.began >= root.began));
    root
}

fn named<'a>(life: &'a [TraceSpan], name: &str) -> Vec<&'a TraceSpan> {
    life.iter().filter(|span| span.name == name).collect()
}

fn one<'a>(life: &'a [TraceSpan], name: &str) -> &'a TraceSpan {
    let spans = named(life, name);
    assert_eq!(spans.len(), 1, "{name}: {life:#?}");
    spans[0]
}

/// A machine's life without trouble. Found by it: a root that never comes or comes twice, a drain in five spans, a
/// phase that is left out, ids that two machines share.
#[test]
fn a_life_is_one_trace_from_the_decision_to_the_end() {
    simulate(async {
        let mut scene = Scene::new(1, HASTY, GuestSpec::default());
        let starts = Starts::of(&mut scene);
        scene.live(None, 0, visit(), Duration::from_mins(6)).await;
        scene.nothing_is_left();
        let lives = starts.kept.lives();
        assert_eq!(lives.len(), scene.machines_made());
        for life in lives.values() {
            let root = whole(life);
            assert_eq!(root.failure, None);
            let create = one(life, "create");
            assert_eq!((create.began, create.parent), (root.began, Some(root.id)));
            assert!(
                create.reason.contains("pod fits nowhere else"),
                "{create:?}"
            );
            let mut last = create.began;
            for step in [
                "clone",
                "configure",
                "start",
                "agent",
                "os",
                "join",
                "register",
                "initialize",
            ] {
                let span = one(life, step);
                assert_eq!(span.parent, Some(create.id), "{step}");
                assert!(span.began >= last && span.ended <= create.ended, "{step}");
                last = span.began;
            }
            let remove = one(life, "remove");
            for step in ["drain", "shutdown", "delete node", "destroy"] {
                assert_eq!(one(life, step).parent, Some(remove.id), "{step}");
            }
            let cordoned = one(life, "drain").events.first().map(|(what, _)| *what);
            assert_eq!(cordoned, Some("cordoned"));
            assert!(remove.machine.node.is_some() && remove.machine.uuid.is_some());
        }
        let traces: BTreeSet<_> = lives.values().map(|life| life[0].trace).collect();
        assert_eq!(traces.len(), lives.len());
    });
}

/// Runs the daemon until a machine boots, and ends it well.
async fn live_until_it_boots(scene: &Scene) {
    let stop = CancellationToken::new();
    let boots = || {
        let files = std::fs::read_dir(scene.state().join("journal"));
        let files = files.into_iter().flatten().flatten();
        let mut texts = files.filter_map(|file| std::fs::read_to_string(file.path()).ok());
        texts.any(|text| text.contains("\"step\": \"agent\""))
    };
    let bell = async {
        while !boots() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        stop.cancel();
        std::future::pending::<()>().await;
    };
    let life = scene.world.daemon_until(scene.state(), 0, stop.clone());
    tokio::select! {
        biased;
        ended = life => ended.expect("the daemon ends well"),
        () = bell => {}
    }
}

/// The daemon ends in the middle of a life, and another one goes on. Found by it: an id that is drawn and does not
/// follow from the mark, a step that begins with the restart, a root that the second daemon does not send, an attempt that
/// never ends because its daemon did.
#[test]
fn a_restart_in_the_middle_of_a_life_is_still_one_trace() {
    simulate(async {
        let mut scene = Scene::new(3, HASTY, GuestSpec::default());
        let starts = Starts::of(&mut scene);
        let daemons = async {
            live_until_it_boots(&scene).await;
            starts.again(&scene);
            scene.live_on(1, |_| {}).await;
        };
        tokio::select! {
            biased;
            () = daemons => {}
            () = scene.preside() => {}
            () = scene.play(visit()) => {}
            () = tokio::time::sleep(Duration::from_mins(8)) => {}
        }
        scene.nothing_is_left();
        let lives = starts.kept.lives();
        let broken = lives
            .values()
            .find(|life| !named(life, "continue").is_empty());
        let life = broken.unwrap_or_else(|| panic!("no machine was half made: {lives:#?}"));
        // What the first daemon was at when it ended ends with it, and is no end of the life.
        let root = whole(life);
        assert_eq!(root.failure, None);
        let (broken_off, goes_on) = (one(life, "create"), one(life, "continue"));
        let fault = broken_off.failure.as_ref().expect("it was broken off");
        assert_eq!(fault.step, "interrupted", "{fault:?}");
        assert!(broken_off.ended <= goes_on.began, "{life:#?}");
        let done = |attempt: &TraceSpan| {
            let below = life.iter().filter(|span| span.parent == Some(attempt.id));
            below.cloned().collect::<Vec<_>>()
        };
        assert!(done(broken_off).iter().any(|span| span.name == "clone"));
        assert!(root.began < goes_on.began && root.ended == goes_on.ended);
        let resumed = done(goes_on).iter().any(|span| span.began < goes_on.began);
        assert!(resumed, "a step began before the restart: {life:#?}");
        one(life, "destroy");
    });
}

/// A machine that never becomes a node. Found by it: a failure without its reason, a life without a root.
#[test]
fn a_life_that_fails_says_in_which_step_and_why() {
    simulate(async {
        let guests = GuestSpec {
            fates: BTreeMap::from([(0, GuestFault::JoinFails)]),
            ..GuestSpec::default()
        };
        let mut scene = Scene::new(5, HASTY, guests);
        let starts = Starts::of(&mut scene);
        scene.live(None, 0, visit(), Duration::from_mins(9)).await;
        let lives = starts.kept.lives();
        let failed = lives.values().find(|life| {
            let create = named(life, "create");
            create.iter().any(|span| span.failure.is_some())
        });
        let life = failed.expect("the first machine cannot join");
        let root = whole(life);
        for span in [root, one(life, "create"), one(life, "join")] {
            let fault = span.failure.as_ref().expect("it failed");
            assert_eq!(fault.step, "join", "{span:?}");
            assert!(fault.message.contains("kubeadm"), "{span:?}");
        }
        assert_eq!(root.ended, one(life, "remove").ended);
        assert_eq!(one(life, "clone").failure, None);
        assert_eq!(one(life, "destroy").failure, None);
    });
}

//! Questions to guests that are repeated: the journal shows the wait, not every question.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

use super::rig::rig;

/// Every line as `MESSAGE name=value …`.
#[derive(Clone, Default)]
pub(in crate::broker) struct Lines(Arc<Mutex<Vec<String>>>);

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        struct Text(String);
        impl Visit for Text {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                let _ = write!(self.0, "{}={value:?} ", field.name());
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().expect("held").push(text.0);
    }
}

impl Lines {
    /// The lines of this thread, from now on. A call site that another thread reaches first while one subscriber
    /// alone listens would stay silent here: a second one, of all threads, prevents that.
    pub(in crate::broker) fn listen() -> (Lines, tracing::subscriber::DefaultGuard) {
        let of_all = tracing_subscriber::registry().with(LevelFilter::INFO);
        // It is set already, by another test.
        let _ = tracing::subscriber::set_global_default(of_all);
        let lines = Lines::default();
        let subscriber = tracing_subscriber::registry().with(lines.clone());
        (lines, tracing::subscriber::set_default(subscriber))
    }

    pub(in crate::broker) fn taken(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().expect("held"))
    }
}

const PING: &str = "/nodes/pve1/qemu/9001/agent/ping";
const EXEC: &str = "/nodes/pve1/qemu/9001/agent/exec";

#[tokio::test(start_paused = true)]
async fn a_wait_for_an_agent_is_one_line_and_a_count() {
    let (rig, (lines, _guard)) = (rig(), Lines::listen());
    let silent = json!({"data": null, "message": "QEMU guest agent is not running\n"});
    rig.world.answer(PING, 500, &silent);
    for _ in 0..60 {
        assert_eq!(rig.send("POST", PING, &[]).await.outcome, "refused");
        sleep(Duration::from_millis(700)).await;
    }
    let first = lines.taken();
    assert_eq!(first.len(), 1, "{first:#?}");
    assert!(first[0].contains("call=\"agent-ping\""), "{first:?}");
    // It answers: the questions before are counted, and the answer has its line.
    rig.world.answer(PING, 200, &json!({"data": null}));
    rig.send("POST", PING, &[]).await;
    let then = lines.taken();
    assert_eq!(then.len(), 2, "{then:#?}");
    assert!(then[0].contains("times=59 seconds=41"), "{then:?}");
    assert!(then[1].contains("outcome=\"done\""), "{then:?}");
}

#[tokio::test(start_paused = true)]
async fn another_script_has_its_line_and_no_wait_hides_for_ever() {
    let (rig, (lines, _guard)) = (rig(), Lines::listen());
    rig.world.answer(EXEC, 200, &json!({"data": {"pid": 7}}));
    let run = |script: &'static str| {
        let rig = &rig;
        async move {
            let sent = rig.send("POST", EXEC, &[("command", script)]).await;
            assert_eq!(sent.outcome, "done");
            sleep(Duration::from_secs(1)).await;
        }
    };
    for _ in 0..30 {
        run("probe").await;
    }
    run("join").await;
    let said = lines.taken();
    assert_eq!(said.len(), 3, "{said:#?}");
    assert!(said[1].contains("times=29"), "{said:?}");
    for _ in 0..400 {
        run("state").await;
    }
    let said = lines.taken();
    assert_eq!(said.len(), 2, "once more after five minutes: {said:#?}");
    // What was counted last is written with whatever the daemon asks next.
    sleep(Duration::from_mins(3)).await;
    rig.send("GET", "/nodes/pve1/qemu/9001/config", &[]).await;
    let said = lines.taken();
    assert_eq!(said.len(), 1, "{said:#?}");
    assert!(said[0].contains("broker call repeated"), "{said:?}");
    // A refusal is never a wait.
    for _ in 0..3 {
        rig.send("POST", "/nodes/pve1/qemu/9002/agent/ping", &[])
            .await;
    }
    assert_eq!(lines.taken().len(), 3);
}

//! What PVE refuses is told with what to do about it, wherever a person reads of it.

use std::collections::BTreeMap;
use std::time::Duration;

use pve_autoscaler::controller::conditions::{ConditionInput, find};
use pve_autoscaler::controller::status::DaemonStatus;
use pve_autoscaler::model::condition::ConditionKind;
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::sim::kube::KubeSpec;
use pve_autoscaler::sim::pve::PveSpec;
use pve_autoscaler::sim::world::WorldSpec;
use serde_json::Value;

use crate::common::{Scene, simulate};
use crate::hosts::{fill, made};
use crate::{HASTY, events, expect_told};

/// Every text in a document that has both parts.
fn with<'a>(value: &'a Value, parts: [&str; 2], found: &mut Vec<&'a str>) {
    match value {
        Value::String(text) if parts.iter().all(|part| text.contains(part)) => found.push(text),
        Value::Array(list) => list.iter().for_each(|item| with(item, parts, found)),
        Value::Object(map) => map.values().for_each(|item| with(item, parts, found)),
        _ => {}
    }
}

/// No host has the bridge that the template names: the Event, `status` and the notice have PVE's words and what to do.
#[test]
fn a_missing_bridge_is_told_with_what_to_do_everywhere() {
    let config = HASTY
        .replace("vmid = 9000", "vmid = 9000\nbridge = \"vmbr9\"")
        .replace("initial_backoff = \"30s\"", "");
    simulate(async {
        let scene = Scene::new(7, &config, GuestSpec::default());
        scene.live(None, 0, fill(1), Duration::from_mins(4)).await;
        let words = "the start failed: bridge 'vmbr9' does not exist";
        let advice = "set `bridge` in [template.debian] to one that pve";
        let told = events(&scene).await;
        expect_told(
            &told,
            &[
                ("Pod FailedToScaleUpGroup: machine ", words),
                ("Pod FailedToScaleUpGroup: machine ", advice),
                ("ConfigMap FailedToScaleUpGroup: machine ", advice),
            ],
        );
        let turn = scene.world.turns.borrow().clone().expect("a turn");
        let status = serde_json::to_value(DaemonStatus::of(&turn)).expect("JSON");
        let mut shown = Vec::new();
        with(&status, [words, advice], &mut shown);
        assert!(!shown.is_empty(), "{status:#}");
        let found = find(ConditionInput {
            turn: Some(&turn),
            problems: &BTreeMap::new(),
            not_recording: false,
            failing: &BTreeMap::new(),
            now: turn.at,
        });
        let hosts = [ConditionKind::HostBacksOff, ConditionKind::PoolBacksOff];
        let mut notices = found.there.values().filter(|one| hosts.contains(&one.kind));
        let notice = notices.next().expect("a notice");
        assert!(
            notice.details.contains(words) && !notice.details.contains("[template.debian]"),
            "{notice:?}"
        );
        assert!(
            notice.todo.starts_with("Make vmbr9 on pve") && notice.todo.contains(advice),
            "{notice:?}"
        );
        assert!(notice.todo.ends_with("ends the wait."), "{notice:?}");
    });
}

/// A host has too few huge pages left, which PVE does not tell before a start: the machine fails there, it is told what to do about that
/// host, and the pool goes on with another one.
#[test]
fn a_host_without_huge_pages_is_told_and_left_for_another() {
    let config = HASTY
        .replace(
            "max = 3",
            "max = 3\nhugepages = \"2M\"\nhosts = [\"pve2\", \"pve3\"]",
        )
        .replace("initial_backoff = \"30s\"", "");
    simulate(async {
        let mut pve = PveSpec::default();
        pve.hosts[1].huge_pages = Some(2048);
        let scene = Scene::of(WorldSpec {
            seed: 7,
            pve,
            kube: KubeSpec::default(),
            guests: GuestSpec::default(),
            config,
        });
        scene.live(None, 0, fill(1), Duration::from_mins(4)).await;
        assert_eq!(made(&scene).get("pve3"), Some(&1), "{:?}", made(&scene));
        let words = "start failed: hugepage allocation failed";
        let advice = "set more huge pages aside on pve2 when it boots";
        let told = events(&scene).await;
        expect_told(
            &told,
            &[
                ("Pod FailedToScaleUpGroup: machine ", words),
                ("Pod FailedToScaleUpGroup: machine ", advice),
            ],
        );
        let turn = scene.world.turns.borrow().clone().expect("a turn");
        let found = find(ConditionInput {
            turn: Some(&turn),
            problems: &BTreeMap::new(),
            not_recording: false,
            failing: &BTreeMap::new(),
            now: turn.at,
        });
        let hosts = [ConditionKind::HostBacksOff, ConditionKind::PoolBacksOff];
        let mut notices = found.there.values().filter(|one| hosts.contains(&one.kind));
        let notice = notices.next().expect("a notice");
        assert!(notice.details.contains(words), "{notice:?}");
        assert!(
            notice.todo.starts_with("Set more huge pages aside on pve2"),
            "{notice:?}"
        );
    });
}

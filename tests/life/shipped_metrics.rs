//! The alerts and the dashboard that are shipped ask for nothing that the daemon does not expose, and the alerts do what
//! they say.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use pve_autoscaler::kubernetes::{CallObserver as _, CallOutcome};
use pve_autoscaler::model::region::Step;
use pve_autoscaler::model::time::Span;
use pve_autoscaler::sim::guests::GuestSpec;
use pve_autoscaler::web::Metrics;

use crate::common::{Scene, simulate};
use crate::{HASTY, visit};

fn contrib(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("contrib")
        .join(name)
}

/// The names of metrics in a text: words that begin as ours do.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = |word: &&str| {
        [
            "pve_autoscaler_",
            "cluster_autoscaler_",
            "process_",
            "cpu_",
            "memory_",
            "kpnodes_",
        ]
        .iter()
        .any(|prefix| word.starts_with(prefix))
    };
    words.filter(ours).map(str::to_owned).collect()
}

/// The names of all series that a daemon exposes that was paused once and has made a machine.
fn exposed() -> BTreeSet<String> {
    let text = simulate(async {
        let scene = Scene::new(1, HASTY, GuestSpec::default());
        let metrics = Metrics::new();
        metrics.step(Step::Clone, Span::seconds(40), true);
        metrics.called("list", "pods", CallOutcome::Done, Duration::from_millis(3));
        let exposed = || {
            let turn = scene.world.turns.borrow().clone();
            metrics.plain_text(Some(&*turn.expect("it had turns")))
        };
        let paused = scene.state().join("paused");
        std::fs::write(&paused, "lunch").expect("written");
        scene.live(None, 0, visit(), Duration::from_secs(20)).await;
        let held = exposed();
        std::fs::remove_file(&paused).expect("removed");
        scene.live(None, 1, visit(), Duration::from_secs(100)).await;
        held + &exposed()
    });
    let mut names = BTreeSet::new();
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("# TYPE ") {
            let (name, kind) = head.split_once(' ').expect("a name and a type");
            if kind == "histogram" {
                for part in ["_bucket", "_sum", "_count"] {
                    names.insert(format!("{name}{part}"));
                }
            } else {
                names.insert(name.to_owned());
            }
        }
    }
    names
}

#[test]
fn what_rules_and_dashboard_ask_for_is_exposed() {
    let exposed = exposed();
    for file in [
        "prometheus/pve-autoscaler.rules.yaml",
        "grafana/pve-autoscaler.json",
    ] {
        let text = std::fs::read_to_string(contrib(file)).expect("it is shipped");
        let wanted = names(&text);
        assert!(wanted.len() > 15, "{file}: {wanted:?}");
        let missing: Vec<&String> = wanted.difference(&exposed).collect();
        assert!(missing.is_empty(), "{file} asks for {missing:?}");
    }
}

/// A machine comes and goes, nothing goes wrong, and nothing counts as an error. It finds answers that every healthy daemon gets and that
/// count as errors: a Lease and a status that are not there yet, the agent of a guest that boots, and a token that is deleted twice.
#[test]
fn an_undisturbed_life_counts_no_error() {
    let text = simulate(async {
        let mut scene = Scene::new(1, HASTY, GuestSpec::default());
        let metrics = Arc::new(Metrics::new());
        scene.world.observer = metrics.clone();
        scene.world.kube_observer = metrics.clone();
        scene.world.pve_meter = Some(metrics.clone());
        scene.live(None, 0, visit(), Duration::from_mins(6)).await;
        scene.nothing_is_left();
        metrics.plain_text(None)
    });
    let value = |series: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{series} ")));
        line.map_or(0.0, |value| value.parse::<f64>().expect("a number"))
    };
    let made = value("cluster_autoscaler_scaled_up_nodes_total");
    assert!(made >= 1.0, "{text}");
    assert!(
        value("pve_autoscaler_pve_calls_total{call=\"clone\",outcome=\"done\"}") >= made,
        "calls to PVE are counted: {text}"
    );
    let failures = text.lines().filter(|line| {
        let fails = ["not_sent", "refused", "refused_by_broker", "unknown"];
        let ends_so = |end: &&str| line.contains(&format!("outcome=\"{end}\""));
        let calls = line.contains("_calls_total{") && fails.iter().any(ends_so);
        (calls || line.starts_with("cluster_autoscaler_errors_total{")) && !line.ends_with(" 0")
    });
    let failures: Vec<&str> = failures.collect();
    assert!(failures.is_empty(), "{failures:#?}");
    // Each token is deleted, and that it is gone when it is deleted once more is no error.
    let token = |verb: &str, end: &str| {
        let labels = format!("verb=\"{verb}\",kind=\"secrets\",outcome=\"{end}\"");
        value(&format!("pve_autoscaler_kube_calls_total{{{labels}}}"))
    };
    let (created, deleted) = (token("create", "done"), token("delete", "done"));
    assert!(created >= made && (created - deleted).abs() < 0.5, "{text}");
}

#[test]
fn the_dashboard_is_whole() {
    let text =
        std::fs::read_to_string(contrib("grafana/pve-autoscaler.json")).expect("it is shipped");
    let dashboard: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let (mut ids, mut places) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels {
        let title = &panel["title"];
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{title}");
        let place = &panel["gridPos"];
        let [x, y, w] = ["x", "y", "w"].map(|key| place[key].as_u64().expect("a number"));
        assert!(x + w <= 24 && places.insert((x, y)), "{title}");
        if panel["type"] != "row" {
            let targets = panel["targets"].as_array().expect("targets");
            assert!(!targets.is_empty(), "{title}");
            assert!(
                !panel["description"].as_str().unwrap_or_default().is_empty(),
                "{title}"
            );
        }
    }
    assert!(panels.len() > 20);
}

/// What a change of the dashboard might bring, and what Grafana has no place for.
const DASHBOARD_FAULTS: [(&str, &str); 5] = [
    ("\"reduceOptions\":", "\"reduceOption\":"),
    ("\"graphMode\": \"none\"", "\"graphMode\": 3"),
    ("\"type\": \"timeseries\"", "\"type\": \"timeserie\""),
    ("\"drawStyle\":", "\"drawStil\":"),
    ("\"expr\":", "\"exprr\":"),
];

/// The dashboard is one that Grafana reads, by the program in tests/grafana where it was built: `contrib/dev test` does that.
/// Whether the program would find a fault is tried with some.
#[test]
fn the_dashboard_is_as_grafana_wants_it() {
    let Ok(tool) = std::env::var("GRAFANA_CHECK") else {
        eprintln!(
            "skipped: `contrib/dev test` builds the program that knows Grafana's schema, with Go"
        );
        return;
    };
    let check = |path: &Path| {
        let output = Command::new(&tool).arg(path).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success(), said)
    };
    let path = contrib("grafana/pve-autoscaler.json");
    let (fine, said) = check(&path);
    assert!(fine, "{said}");
    let text = std::fs::read_to_string(path).expect("it is shipped");
    let folder = tempfile::tempdir().expect("a folder");
    for (right, wrong) in DASHBOARD_FAULTS {
        let planted = folder.path().join("planted.json");
        assert!(text.contains(right), "{right}");
        std::fs::write(&planted, text.replacen(right, wrong, 1)).expect("written");
        let (fine, said) = check(&planted);
        assert!(!fine && !said.trim().is_empty(), "{wrong} is not found");
    }
}

/// Each alert fires when it should and not before, by Prometheus' own tool where it is installed.
#[test]
fn alerts_do_what_they_say() {
    let tool = std::env::var("PROMTOOL").unwrap_or_else(|_| "promtool".to_owned());
    let rules = std::fs::read_to_string(contrib("prometheus/pve-autoscaler.rules.yaml"))
        .expect("it is shipped");
    let tests =
        std::fs::read_to_string(contrib("prometheus/rules.test.yaml")).expect("it is shipped");
    for line in rules.lines() {
        if let Some(alert) = line.trim().strip_prefix("- alert: ") {
            let tested = format!("alertname: {alert}");
            assert!(tests.contains(&tested), "{alert} has no test");
        }
    }
    for arguments in [
        ["check", "rules", "pve-autoscaler.rules.yaml"],
        ["test", "rules", "rules.test.yaml"],
    ] {
        let run = Command::new(&tool)
            .args(arguments)
            .current_dir(contrib("prometheus"))
            .output();
        match run {
            Ok(output) => {
                let said = [output.stdout, output.stderr].concat();
                assert!(
                    output.status.success(),
                    "{}",
                    String::from_utf8_lossy(&said)
                );
            }
            Err(error) => {
                eprintln!(
                    "skipped: promtool cannot be run ({error}); Debian has it in `prometheus`"
                );
                return;
            }
        }
    }
}

//! What others read of the metrics: `promtool check metrics`, and the dashboards of others.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;

use super::stores::MAX_SERIES;
use super::{Metered, Metrics};
use crate::controller::conditions::FoundConditions;
use crate::controller::turn::Turn;
use crate::kubernetes::{CallObserver as _, CallOutcome};
use crate::model::condition::{Condition, ConditionKind};
use crate::model::region::Step;
use crate::model::store_states::StorageState;
use crate::model::time::{Span, Time};
use crate::pve::transport::{CallEffect, CallError, HttpMethod, PveRequest, Transport};
use crate::web::tests::{condition, turn};

/// After a turn and one of everything that is counted.
fn text() -> String {
    let metrics = Metrics::new();
    metrics.turned(Duration::from_millis(3));
    metrics.step(Step::Clone, Span::seconds(40), true);
    metrics.called("list", "pods", CallOutcome::Done, Duration::from_millis(3));
    metrics.plain_text(Some(&turn()))
}

/// A family as its head names it.
#[derive(Debug, Default)]
struct Family<'a> {
    help: &'a str,
    kind: &'a str,
    series: BTreeSet<&'a str>,
}

fn families(text: &str) -> BTreeMap<&str, Family<'_>> {
    let mut families: BTreeMap<&str, Family<'_>> = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        if let (Some("#"), Some(what), Some(name), Some(rest)) =
            (words.next(), words.next(), words.next(), words.next())
        {
            let family = families.entry(name).or_default();
            let slot = if what == "HELP" {
                &mut family.help
            } else {
                &mut family.kind
            };
            assert_eq!(std::mem::replace(slot, rest), "", "{what} of {name} twice");
            continue;
        }
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        let of_histogram = ["_bucket", "_sum", "_count"]
            .iter()
            .filter_map(|end| name.strip_suffix(end))
            .find(|base| families.get(base).is_some_and(|f| f.kind == "histogram"));
        let family = families.entry(of_histogram.unwrap_or(name)).or_default();
        let series = line.rsplit_once(' ').map_or(line, |(series, _)| series);
        assert!(family.series.insert(series), "{series} twice");
    }
    families
}

/// The rules of `promtool check metrics`, as far as they concern names, types and help.
#[test]
fn metrics_are_named_as_promtool_wants_them() {
    const PARTS: [&str; 3] = ["_bucket", "_count", "_sum"];
    /// Units that are no base units, and abbreviations of units.
    const WRONG: [&str; 22] = [
        "milliseconds",
        "microseconds",
        "nanoseconds",
        "minutes",
        "hours",
        "days",
        "kilobytes",
        "megabytes",
        "gigabytes",
        "kibibytes",
        "mebibytes",
        "gibibytes",
        "bits",
        "percent",
        "ms",
        "us",
        "ns",
        "sec",
        "kb",
        "mb",
        "gb",
        "s",
    ];
    let text = text();
    let families = families(&text);
    assert!(families.len() > 40, "{text}");
    for (name, family) in &families {
        let Family { help, kind, .. } = family;
        assert!(!help.is_empty() && !kind.is_empty(), "{name}: {family:?}");
        let total = name.ends_with("_total");
        assert!(
            *kind == "untyped" || total == (*kind == "counter"),
            "{name} is a {kind}"
        );
        let part = PARTS.iter().any(|part| name.ends_with(part));
        assert!(!part || *kind == "untyped", "{name} is a {kind}");
        let words: Vec<&str> = name.split('_').collect();
        assert!(
            !words.iter().any(|word| WRONG.contains(word)),
            "{name} has a unit of another kind"
        );
        assert!(
            !words.contains(&"gauge") && !words.contains(&"counter"),
            "{name}"
        );
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(name.chars().all(plain), "{name}");
    }
}

/// The program itself, where it is installed (Debian: `prometheus`).
#[test]
fn promtool_has_nothing_to_say() {
    let tool = std::env::var("PROMTOOL").unwrap_or_else(|_| "promtool".to_owned());
    let started = Command::new(tool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut promtool = match started {
        Ok(promtool) => promtool,
        Err(error) => {
            eprintln!("skipped: promtool cannot be run ({error}); Debian has it in `prometheus`");
            return;
        }
    };
    let mut input = promtool.stdin.take().expect("it is piped");
    input.write_all(text().as_bytes()).expect("it reads");
    drop(input);
    let output = promtool.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
}

/// What the Cluster Autoscaler dashboard and alerts of kubernetes-autoscaling-mixin ask for.
#[test]
fn panels_of_others_dashboards_are_filled() {
    let text = text();
    for wanted in [
        "nodes_count{state=\"ready\"}",
        "max_nodes_count ",
        "node_groups_count{",
        "cluster_safe_to_autoscale ",
        "unschedulable_pods_count{type=",
        "last_activity{activity=\"scaleDown\"}",
        "last_activity{activity=\"scaleUp\"}",
        "evicted_pods_total{eviction_result=",
        "unneeded_nodes_count ",
        "scaled_up_nodes_total ",
        "scaled_down_nodes_total{",
        "node_group_min_count{node_group=\"small\"}",
        "node_group_max_count{node_group=\"small\"}",
        "node_group_target_count{node_group=\"small\"}",
        "node_group_healthiness{node_group=\"small\"}",
        "node_group_backoff_status{node_group=\"small\"}",
    ] {
        let start = format!("cluster_autoscaler_{wanted}");
        assert!(
            text.lines().any(|line| line.starts_with(&start)),
            "{start} is not in {text}"
        );
    }
    // One node that is not ours, and three of the pool.
    assert!(
        text.contains("\ncluster_autoscaler_max_nodes_count 4.0\n"),
        "{text}"
    );
}

/// The families that an instance has which stands by: what is of itself. All else would count twice where somebody adds up the instances.
const OF_A_STANDBY: [&str; 26] = [
    "cluster_autoscaler_errors_total",
    "cluster_autoscaler_evicted_pods_total",
    "cluster_autoscaler_failed_scale_ups_total",
    "cluster_autoscaler_function_duration_seconds",
    "cluster_autoscaler_scaled_down_nodes_total",
    "cluster_autoscaler_scaled_up_nodes_total",
    "pve_autoscaler_broker_policy_agrees",
    "pve_autoscaler_build_info",
    "pve_autoscaler_condition",
    "pve_autoscaler_config_valid",
    "pve_autoscaler_failed_scale_downs_total",
    "pve_autoscaler_host_clock_ahead_seconds",
    "pve_autoscaler_kube_call_duration_seconds",
    "pve_autoscaler_kube_calls_total",
    "pve_autoscaler_kubeconfig_expiry_timestamp_seconds",
    "pve_autoscaler_leader",
    "pve_autoscaler_paused",
    "pve_autoscaler_phase_duration_seconds",
    "pve_autoscaler_pve_call_duration_seconds",
    "pve_autoscaler_pve_calls_total",
    "pve_autoscaler_record_lost_total",
    "pve_autoscaler_trace_spans_total",
    "pve_autoscaler_view_age_seconds",
    "pve_autoscaler_view_complete",
    "process_cpu_seconds_total",
    "process_start_time_seconds",
];

/// Led before or not: what the cluster has is told by the one who leads, with all its numbers from the first scrape on.
#[test]
fn who_stands_by_tells_nothing_of_the_cluster() {
    let metrics = Metrics::new();
    metrics.step(Step::Clone, Span::seconds(40), true);
    metrics.called("list", "pods", CallOutcome::Done, Duration::from_millis(3));
    let leads = turn();
    let mut snapshot = (*leads.snapshot).clone();
    snapshot.leader = false;
    let stands_by = Turn {
        snapshot: Arc::new(snapshot),
        ..turn()
    };
    let told = |turn: &Turn| metrics.plain_text(Some(turn));
    let before = told(&leads);
    for standby in [told(&stands_by), metrics.plain_text(None)] {
        let mut names: BTreeSet<String> = families(&standby).keys().map(|&it| it.into()).collect();
        for own in OF_A_STANDBY {
            assert!(names.remove(own), "{own} is not in {standby}");
        }
        names.retain(|name| !name.starts_with("process_"));
        assert!(names.is_empty(), "{names:?}");
    }
    assert!(told(&stands_by).contains("\npve_autoscaler_leader 0.0\n"));
    // Series of one family have no order: they come out of a hash map, whose order is another once it was filled anew.
    let without_process = |text: &str| -> BTreeSet<String> {
        let lines = text.lines().filter(|line| !line.starts_with("process_"));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(without_process(&told(&leads)), without_process(&before));
}

/// What the process takes, under the names of Prometheus' own client libraries.
#[test]
fn the_process_is_measured() {
    let text = text();
    let value = |name: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name} ")));
        let line = line.unwrap_or_else(|| panic!("{name} is not in {text}"));
        line.parse::<f64>().expect("a number")
    };
    assert!(value("process_resident_memory_bytes") > 1e6);
    assert!(value("process_virtual_memory_bytes") >= value("process_resident_memory_bytes"));
    assert!(
        value("process_open_fds") >= 3.0 && value("process_max_fds") >= value("process_open_fds")
    );
    assert!(value("process_cpu_seconds_total") > 0.0);
    // After 2020, and not in the future.
    let now = value("process_start_time_seconds");
    assert!(now > 1.577e9 && now < 1e11, "{now}");
    assert!(
        text.contains("# TYPE process_cpu_seconds_total counter"),
        "{text}"
    );
}

/// All calls together are a couple of hundred series, those of PVE that are not made included.
#[test]
fn calls_have_few_series() {
    let metrics = Metrics::new();
    for verb in [
        "get", "list", "watch", "create", "patch", "update", "delete",
    ] {
        for kind in ["pods", "nodes", "events", "leases", "secrets", "configmaps"] {
            metrics.called(verb, kind, CallOutcome::Done, Duration::from_millis(3));
        }
    }
    let text = metrics.plain_text(Some(&turn()));
    let of = |word: &str| text.lines().filter(|line| line.contains(word)).count();
    assert!(of("_call_duration_seconds") < 120, "{text}");
    assert!(of("_calls_total{") < 180, "{text}");
}

/// Hundreds of hosts with a storage each: what is scraped stays bounded. What PVE tells no size of has no series at all.
#[test]
fn storages_have_a_bounded_number_of_series() {
    let state = |host: usize| StorageState {
        storage: "local".into(),
        hosts: vec![format!("pve{host}").into()],
        total: i64::from(host != 0),
        ..StorageState::default()
    };
    let of = |hosts: usize| {
        let states = (0..hosts).map(|host| (format!("pve{host}/local").into(), state(host)));
        let mut turn = turn();
        let mut decision = (*turn.decision).clone();
        decision.report.storages = BTreeMap::from([("default".into(), states.collect())]);
        turn.decision = Arc::new(decision);
        let text = Metrics::new().plain_text(Some(&turn));
        let series = |line: &&str| line.starts_with("pve_autoscaler_storage_free_bytes{");
        text.lines().filter(series).count()
    };
    assert_eq!(of(6), 5, "the size of one is not known");
    assert_eq!(of(2 * MAX_SERIES), MAX_SERIES);
}

/// An end of a call that is not counted from zero is there once a call ended so.
#[test]
fn another_end_of_a_call_comes_with_the_first() {
    let metrics = Metrics::new();
    let lost = "pve_autoscaler_kube_calls_total{verb=\"list\",kind=\"pods\",outcome=\"unknown\"} 1";
    let is_there = |metrics: &Metrics| metrics.plain_text(None).lines().any(|line| line == lost);
    metrics.called("list", "pods", CallOutcome::Done, Duration::ZERO);
    assert!(!is_there(&metrics));
    metrics.called("list", "pods", CallOutcome::Unknown, Duration::ZERO);
    assert!(is_there(&metrics));
}

/// A PVE that refuses everything with these words.
#[derive(Debug)]
struct Refusing(&'static str);

impl Transport for Refusing {
    fn call(&self, _: PveRequest) -> BoxFuture<'_, Result<Value, CallError>> {
        let error = CallError::new(CallEffect::Refused, self.0);
        Box::pin(async move { Err(error) })
    }
}

/// A guest boots for a while before its agent answers, and VMs go while they are read: that is no error of the cluster. It finds a healthy
/// daemon whose errors grow with every machine.
#[tokio::test]
async fn what_is_not_there_yet_is_no_error() {
    for (call, method, words, error, outcome) in [
        (
            "agent_ping",
            HttpMethod::Post,
            "QEMU guest agent is not running",
            false,
            "absent",
        ),
        (
            "vm_config",
            HttpMethod::Get,
            "Configuration file 'nodes/pve1/qemu-server/9100.conf' does not exist",
            false,
            "absent",
        ),
        (
            "clone",
            HttpMethod::Post,
            "Configuration file 'nodes/pve1/qemu-server/9100.conf' does not exist",
            true,
            "refused",
        ),
        (
            "agent_exec",
            HttpMethod::Post,
            "QEMU guest agent is not running",
            true,
            "refused",
        ),
    ] {
        let metrics = Arc::new(Metrics::new());
        let metered = Metered::new(Arc::new(Refusing(words)), metrics.clone());
        let asked = PveRequest {
            call,
            method,
            path: "/x".to_owned(),
            params: Vec::new(),
            multipart: false,
            timeout: Duration::from_secs(1),
        };
        metered.call(asked).await.expect_err("it is refused");
        let text = metrics.plain_text(None);
        let counted = format!("pve_calls_total{{call=\"{call}\",outcome=\"{outcome}\"}} 1\n");
        assert!(text.contains(&counted), "{counted} is not in {text}");
        let wrong = text.contains("errors_total{type=\"cloudProviderError\"} 1\n");
        assert_eq!(wrong, error, "{call}: {text}");
    }
}

/// What people are notified of is there by kind, at zero from the start. What is unknown stays as it was, and removals count when one of them
/// has lasted for two hours.
#[test]
fn conditions_are_shown_by_kind() {
    const NOW: Time = Time(1_795_000_000_000);
    let metrics = Metrics::new();
    let value = |kind: ConditionKind| {
        let series = format!("pve_autoscaler_condition{{kind=\"{}\"}} ", kind.name());
        let text = metrics.plain_text(None);
        let value = text.lines().find_map(|line| line.strip_prefix(&series));
        value.map(str::to_owned)
    };
    for (kind, _) in ConditionKind::ALL {
        assert_eq!(value(*kind).as_deref(), Some("0.0"), "{kind:?}");
    }
    let stuck = |minutes: i64| {
        let since = Time(NOW.0 - minutes * 60_000);
        let subject = format!("small-{minutes}");
        condition(ConditionKind::RemovalStuck, &subject, Some(since))
    };
    let fault = condition(ConditionKind::TemplateFault, "default/debian", None);
    let found = |conditions: Vec<Condition>| FoundConditions {
        there: conditions.into_iter().map(|one| (one.key(), one)).collect(),
        ..FoundConditions::default()
    };
    metrics.conditions(&found(vec![fault, stuck(90), stuck(110)]), NOW);
    assert_eq!(value(ConditionKind::TemplateFault).as_deref(), Some("1.0"));
    assert_eq!(value(ConditionKind::RemovalStuck).as_deref(), Some("0.0"));
    let unknown = FoundConditions {
        unknown: BTreeSet::from([ConditionKind::TemplateFault]),
        ..found(vec![stuck(10), stuck(120)])
    };
    metrics.conditions(&unknown, NOW);
    assert_eq!(value(ConditionKind::TemplateFault).as_deref(), Some("1.0"));
    assert_eq!(value(ConditionKind::RemovalStuck).as_deref(), Some("1.0"));
    metrics.conditions(&FoundConditions::default(), NOW);
    assert_eq!(value(ConditionKind::TemplateFault).as_deref(), Some("0.0"));
    assert_eq!(value(ConditionKind::RemovalStuck).as_deref(), Some("0.0"));
}

/// An increase is seen from what was there before: the first failure of each kind included.
#[test]
fn counters_are_there_before_the_first_failure() {
    let fresh = Metrics::new().plain_text(None);
    for wanted in [
        "cluster_autoscaler_errors_total{type=\"cloudProviderError\"} 0",
        "cluster_autoscaler_errors_total{type=\"configurationError\"} 0",
        "cluster_autoscaler_failed_scale_ups_total{reason=\"join\"} 0",
        "cluster_autoscaler_evicted_pods_total{eviction_result=\"failed\"} 0",
        "cluster_autoscaler_scaled_down_nodes_total{reason=\"unready\"} 0",
        "pve_autoscaler_failed_scale_downs_total{step=\"drain\"} 0",
        "pve_autoscaler_pve_calls_total{call=\"clone\",outcome=\"refused\"} 0",
    ] {
        assert!(
            fresh.lines().any(|line| line == wanted),
            "{wanted} is not in {fresh}"
        );
    }
    let kube = "pve_autoscaler_kube_calls_total{verb=\"list\",kind=\"pods\",outcome=\"refused\"} 0";
    assert!(text().lines().any(|line| line == kube));
    // Every name under which a call is made is among those that begin at zero.
    let source = [
        include_str!("../../pve/names.rs"),
        include_str!("../../pve/bridges.rs"),
        include_str!("../../pve/calls.rs"),
        include_str!("../../pve/firewall.rs"),
        include_str!("../../pve/host_mappings.rs"),
        include_str!("../../pve/isos.rs"),
        include_str!("../../pve/kept_space.rs"),
        include_str!("../../pve/mediated.rs"),
        include_str!("../../pve/placing.rs"),
        include_str!("../../pve/storage_backings.rs"),
    ]
    .concat();
    for call in crate::pve::CALLS {
        assert!(
            source.matches(&format!("\"{call}\"")).count() >= 2,
            "{call} is no call"
        );
    }
}

//! From the file to the settings: references resolved, cross-field rules checked. Pure, but for the texts for cloud-init, which may
//! lie in files of their own.

mod bounds;
mod broker;
mod builds;
mod cloud_init;
mod contradictions;
mod creations;
mod disruption;
mod firewall;
mod hardware;
mod hosts;
mod ipconfig;
mod joining;
mod kubelet;
mod labels;
mod networks;
mod node_texts;
mod notifications;
pub(super) mod options;
mod pools;
mod regions;
mod sources;
mod telemetry;
mod templates;
mod topology;
pub(super) mod trials;
mod types;
mod web;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::file::{self, ConfigFile};
use super::place::KeyPath;
use super::scalar::Size;
use super::settings::{KubernetesSettings, Settings, TemplateSettings};
use super::storage_names::StorageNames;
use super::syntax;
use crate::model::policy::{InstanceType, Policy};
use crate::model::time::Span;
use trials::TextTrials;

/// What is wrong with an `ipconfig` by itself; nothing when PVE and cloud-init take it.
pub fn ipconfig_fault(text: &str) -> Option<String> {
    ipconfig::fault(text)
}

/// One thing that is wrong by the rules.
#[derive(Debug)]
pub(super) struct RuleProblem {
    /// The key.
    pub(super) path: KeyPath,
    /// What is wrong, or was expected.
    pub(super) message: String,
    /// The key is wrong there, whatever its value.
    pub(super) of_key: bool,
}

/// What is wrong with a file by the rules, and how the rules try its texts.
#[derive(Debug)]
pub(super) struct Problems {
    /// All of it.
    pub(super) found: Vec<RuleProblem>,
    /// How texts are tried; none when whoever asks uses none of them.
    trials: Option<&'static TextTrials>,
}

impl Problems {
    /// Nothing is wrong yet.
    pub(super) fn none(trials: Option<&'static TextTrials>) -> Problems {
        Problems {
            found: Vec::new(),
            trials,
        }
    }

    /// A problem at a path.
    fn add(&mut self, path: &KeyPath, message: impl Into<String>) {
        self.found.push(RuleProblem {
            path: path.clone(),
            message: message.into(),
            of_key: false,
        });
    }

    /// A problem of a key that is wrong where it stands, whatever its value.
    fn add_of_key(&mut self, path: &KeyPath, message: impl Into<String>) {
        self.found.push(RuleProblem {
            path: path.clone(),
            message: message.into(),
            of_key: true,
        });
    }

    /// A problem unless `holds`.
    fn unless(&mut self, holds: bool, path: &KeyPath, message: impl FnOnce() -> String) {
        if !holds {
            self.add(path, message());
        }
    }

    /// A text, if there is one, keeps a rule of syntax.
    fn text(
        &mut self,
        path: &KeyPath,
        text: Option<&str>,
        holds: impl Fn(&str) -> bool,
        expected: &str,
    ) {
        self.unless(text.is_none_or(holds), path, || {
            format!("expected {expected}")
        });
    }

    /// The storages of a disk are a name, or a list of different names.
    fn storages(&mut self, path: &KeyPath, names: &StorageNames) {
        for fault in names.faults() {
            match fault.position {
                None => self.add(path, fault.message),
                Some(position) => self.add(&path.at(&position), fault.message),
            }
        }
    }

    /// The value of a required key.
    fn require<T>(&mut self, value: Option<T>, path: &KeyPath, what: &str) -> Option<T> {
        if value.is_none() {
            self.add(path, format!("is missing; expected {what}"));
        }
        value
    }
}

/// The version of the format that this program reads.
const VERSION: i64 = 1;
/// The smallest record.
const MIN_RECORD: i64 = 1 << 20;
/// Nothing that PVE or a guest does is done sooner.
const MIN_STEP: Span = Span::seconds(1);

/// The settings a file means. What is wrong goes to `problems`; the settings are only of use when
/// there is none.
pub(super) fn resolve(file: &ConfigFile, problems: &mut Problems) -> Settings {
    let root = KeyPath::default();
    if let Some(version) = problems.require(file.version, &root.at("version"), "version = 1") {
        problems.unless(version == VERSION, &root.at("version"), || {
            format!("expected {VERSION}, the only version of the format that this program knows")
        });
    }
    check_kubernetes(&file.kubernetes, problems);
    check_lifecycle(&file.lifecycle, problems);
    check_recorder(&file.recorder, problems);
    check_scaling(file, problems);
    disruption::check_limits(&file.limits, problems);
    let web = web::web(&file.web, problems);
    let regions = regions::regions(file, problems);
    let mut templates = templates::templates(file, &regions, problems);
    let types = types::InstanceTypes::of(file, problems);
    let instance_types = types.policy(file, problems);
    let networks = networks::networks(file, problems);
    let pools = pools::pools(file, &regions, (&templates, &networks, &types), problems);
    creations::check_disks(&templates, &pools, &instance_types, problems);
    creations::check_pools(&templates, &pools, problems);
    hardware::check_sockets(&templates, &instance_types, &pools, problems);
    topology::check(&regions, (&pools, &instance_types, &templates), problems);
    cloud_init::deliveries(&mut templates, &pools, problems);
    pools::tell_templates(&mut templates, &pools);
    check_texts(file, &templates, (&pools, &networks), problems);
    pools::check_vmids(&regions, &pools, problems);
    networks::check(&templates, (&pools, &networks), problems);
    ipconfig::check_shared(file, &pools, problems);
    contradictions::check(file, &instance_types, &pools, problems);
    let policy = policy(file, &regions, instance_types, &pools, &networks);
    let broker = broker::broker(file, &regions, (&templates, &networks), &policy, problems);
    let mut warnings = warnings(file, &types, &policy);
    networks::warn(file, (&networks, &pools), &mut warnings);
    bounds::warn(file, &policy.instance_types, &pools, &mut warnings);
    regions::warn(file, &mut warnings);
    let cloned = (&templates, &pools);
    contradictions::warn(file, &policy.instance_types, cloned, &mut warnings);
    firewall::check(&templates, problems, &mut warnings);
    hardware::warn(file, &policy.instance_types, &pools, &mut warnings);
    let notifications = notifications::notifications(&file.notification, problems);
    notifications::warn(&notifications, &mut warnings);
    Settings {
        telemetry: telemetry::telemetry(&file.telemetry, problems, &mut warnings),
        configured: !regions.is_empty() && !pools.is_empty(),
        warnings,
        policy,
        kubernetes: kubernetes(&file.kubernetes),
        broker,
        regions: regions
            .into_iter()
            .map(|(name, region)| (name, region.settings))
            .collect(),
        templates,
        networks: networks
            .into_iter()
            .map(|(name, network)| (name, network.settings))
            .collect(),
        pools: pools
            .into_iter()
            .map(|(name, pool)| (name, pool.settings))
            .collect(),
        deadlines: file.lifecycle.deadlines(),
        leaving: file.scale_down.leaving(),
        web,
        recorder: file.recorder.settings(),
        notifications: Arc::new(notifications),
        text: Arc::default(),
    }
}

/// Texts about a machine, filled in for machines as pools make them.
fn check_texts(
    file: &ConfigFile,
    templates: &BTreeMap<Arc<str>, TemplateSettings>,
    of_pools: (
        &BTreeMap<Arc<str>, pools::ResolvedPool>,
        &networks::Networks,
    ),
    problems: &mut Problems,
) {
    cloud_init::check_machines(file, templates, of_pools, problems);
    node_texts::check(templates, of_pools, problems);
}

/// What the brain is told of the file.
fn policy(
    file: &ConfigFile,
    regions: &regions::ResolvedRegions,
    instance_types: BTreeMap<Arc<str>, InstanceType>,
    pools: &BTreeMap<Arc<str>, pools::ResolvedPool>,
    networks: &networks::Networks,
) -> Policy {
    Policy {
        regions: regions
            .iter()
            .map(|(name, region)| (name.clone(), region.policy.clone()))
            .collect(),
        instance_types,
        pools: pools
            .iter()
            .map(|(name, pool)| (name.clone(), pool.policy.clone()))
            .collect(),
        networks: networks
            .iter()
            .map(|(name, network)| (name.clone(), network.policy.clone()))
            .collect(),
        scale_up: file.scale_up.policy(),
        scale_down: file.scale_down.policy(),
        totals: file.limits.policy(),
    }
}

/// `[kubernetes]`.
fn kubernetes(file: &file::Kubernetes) -> KubernetesSettings {
    KubernetesSettings {
        kubeconfig: file.kubeconfig.clone(),
        context: file.context.clone(),
        name: file.name.clone(),
        namespace: file.namespace.clone(),
        serving_certificates: file.serving_certificates,
    }
}

fn check_kubernetes(kubernetes: &file::Kubernetes, problems: &mut Problems) {
    let path = KeyPath::default().at("kubernetes");
    problems.unless(
        kubernetes.kubeconfig.is_absolute(),
        &path.at("kubeconfig"),
        || "expected an absolute path".to_owned(),
    );
    name(&path.at("name"), &kubernetes.name, 63, problems);
    name(&path.at("namespace"), &kubernetes.namespace, 63, problems);
}

/// A smaller or shorter record has hardly anything to tell.
fn check_recorder(recorder: &file::Recorder, problems: &mut Problems) {
    let path = KeyPath::default().at("recorder");
    let least = Size(MIN_RECORD);
    problems.unless(recorder.max_size >= least, &path.at("max_size"), || {
        format!("expected at least {least}; `enabled = false` switches the record off")
    });
    let shortest = Span::minutes(60);
    problems.unless(recorder.max_age.0 >= shortest, &path.at("max_age"), || {
        format!("expected at least {shortest}; `enabled = false` switches the record off")
    });
}

/// A step without time fails at once, and its machine with it.
fn check_lifecycle(lifecycle: &file::Lifecycle, problems: &mut Problems) {
    let path = KeyPath::default().at("lifecycle");
    for (key, time) in [
        ("clone", lifecycle.clone),
        ("configure", lifecycle.configure),
        ("resize", lifecycle.resize),
        ("start", lifecycle.start),
        ("agent", lifecycle.agent),
        ("os", lifecycle.os),
        ("join", lifecycle.join),
        ("register", lifecycle.register),
        ("initialize", lifecycle.initialize),
        ("destroy", lifecycle.destroy),
    ] {
        problems.unless(time.0 >= MIN_STEP, &path.at(key), || {
            format!("expected at least {MIN_STEP}")
        });
    }
}

fn check_scaling(file: &ConfigFile, problems: &mut Problems) {
    let up = &file.scale_up;
    let path = KeyPath::default().at("scale_up");
    problems.unless(
        up.batch_idle <= up.batch_max,
        &path.at("batch_idle"),
        || format!("expected at most batch_max, which is {}", up.batch_max),
    );
    problems.unless(
        up.initial_backoff <= up.max_backoff,
        &path.at("initial_backoff"),
        || format!("expected at most max_backoff, which is {}", up.max_backoff),
    );
    problems.unless(up.max_in_flight > 0, &path.at("max_in_flight"), || {
        "expected at least 1; to keep the program from acting use `pve-autoscaler pause`".to_owned()
    });
    for spread in &up.default_spread {
        let positive = spread.max_skew > 0 && !spread.topology_key.is_empty();
        problems.unless(positive, &path.at("default_spread"), || {
            "expected a max_skew of at least 1 and a topology_key".to_owned()
        });
    }
    let down = &file.scale_down;
    let path = KeyPath::default().at("scale_down");
    problems.unless(
        down.max_parallelism > 0,
        &path.at("max_parallelism"),
        || "expected at least 1; to keep nodes set enabled = false".to_owned(),
    );
    problems.unless(
        (1..=down.max_parallelism.max(1)).contains(&down.max_drain_parallelism),
        &path.at("max_drain_parallelism"),
        || {
            format!(
                "expected 1 to max_parallelism, which is {}",
                down.max_parallelism
            )
        },
    );
    problems.unless(
        down.scan_interval.0 > Span::ZERO,
        &path.at("scan_interval"),
        || "expected more than nothing".to_owned(),
    );
    problems.unless(
        down.max_total_unready_percentage <= 100,
        &path.at("max_total_unready_percentage"),
        || "expected a percentage, 0 to 100".to_owned(),
    );
    for (path, age) in [
        (
            KeyPath::default().at("scale_up").at("max_view_age"),
            up.max_view_age,
        ),
        (path.at("max_view_age"), down.max_view_age),
    ] {
        for (name, region) in region_tables(file) {
            problems.unless(age > region.poll, &path, || {
                format!(
                    "expected more than poll of region {name}, which is {}",
                    region.poll
                )
            });
        }
    }
}

/// The region tables by name, `[proxmox]` as `default`.
fn region_tables(file: &ConfigFile) -> BTreeMap<&str, &file::RegionTable> {
    let sugar = file.proxmox.iter().map(|region| ("default", region));
    let named = file
        .region
        .iter()
        .map(|(name, region)| (name.as_str(), region));
    sugar.chain(named).collect()
}

/// A name that becomes a label, a host name or part of one.
fn name(path: &KeyPath, name: &str, longest: usize, problems: &mut Problems) {
    problems.unless(syntax::dns_label(name) && name.len() <= longest, path, || {
        format!("expected a name of lower-case letters, digits and '-', at most {longest} characters")
    });
}

/// Every element of a list keeps a rule of syntax.
fn each(
    list: &[String],
    path: &KeyPath,
    holds: fn(&str) -> bool,
    expected: &str,
    problems: &mut Problems,
) {
    for (position, element) in list.iter().enumerate() {
        problems.unless(holds(element), &path.at(&position), || {
            format!("expected {expected}")
        });
        problems.unless(
            !list[..position].contains(element),
            &path.at(&position),
            || "is named twice".to_owned(),
        );
    }
}

/// What is allowed but looks like a mistake.
fn warnings(file: &ConfigFile, types: &types::InstanceTypes, policy: &Policy) -> Vec<String> {
    let mut warnings = Vec::new();
    let used =
        |pick: &dyn Fn(&crate::model::policy::PoolPolicy) -> bool| policy.pools.values().any(pick);
    for name in file.template.keys() {
        if !used(&|pool| pool.of_template(name).is_some()) {
            warnings.push(format!("template.{name}: no pool uses it"));
        }
    }
    types.warn(file, policy, &mut warnings);
    for name in policy.regions.keys() {
        if !used(&|pool| pool.at(name).is_some()) {
            warnings.push(format!("region.{name}: no pool uses it"));
        }
    }
    hosts::warn(file, policy, &mut warnings);
    kubelet::warn(file, policy, &mut warnings);
    for (name, pool) in &file.pool {
        if pool.drain.max_graceful_termination > pool.drain.timeout {
            warnings.push(format!(
                "pool.{name}.drain: a pod may use its grace period of up to {}, but the drain is given up after {}",
                pool.drain.max_graceful_termination, pool.drain.timeout
            ));
        }
    }
    warnings
}

/// A name as the settings keep it.
fn shared(text: &str) -> Arc<str> {
    text.into()
}

//! kproximate's settings out of what people have of it: Helm values, manifests, lists of environment variables.
//!
//! Secrets are noticed and forgotten: their text gets no further than this module.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::yaml::{YamlData, YamlEntry, YamlNode};
use crate::cli::redact::without_secrets;
use crate::config::near::distance;

/// What a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SettingKind {
    Bool,
    Whole,
    Number,
    Text,
    /// A text that is not shown.
    Secret,
}

/// kproximate's settings, as its programs read them from the environment.
const KNOWN: [(&str, SettingKind); 36] = [
    ("debug", SettingKind::Bool),
    ("enableAffinityScaling", SettingKind::Bool),
    ("excludedNodes", SettingKind::Text),
    ("kpJoinCommand", SettingKind::Secret),
    ("kpLocalTemplateStorage", SettingKind::Bool),
    ("kpNodeCores", SettingKind::Whole),
    ("kpNodeDisableSsh", SettingKind::Bool),
    ("kpNodeLabels", SettingKind::Text),
    ("kpNodeMemory", SettingKind::Whole),
    ("kpNodeNamePrefix", SettingKind::Text),
    ("kpNodeTemplateName", SettingKind::Text),
    ("kpQemuExecJoin", SettingKind::Bool),
    ("loadHeadroom", SettingKind::Number),
    ("maxKpNodes", SettingKind::Whole),
    ("minAvailableCpuCores", SettingKind::Whole),
    ("minAvailableMemoryMB", SettingKind::Whole),
    ("minNodeAgeMinutes", SettingKind::Whole),
    ("nodeSelectionStrategy", SettingKind::Text),
    ("pmAllowInsecure", SettingKind::Bool),
    ("pmDebug", SettingKind::Bool),
    ("pmExcludeHosts", SettingKind::Text),
    ("pmPassword", SettingKind::Secret),
    ("pmToken", SettingKind::Secret),
    ("pmUrl", SettingKind::Text),
    ("pmUserID", SettingKind::Text),
    ("pollInterval", SettingKind::Whole),
    ("rabbitMQHost", SettingKind::Text),
    ("rabbitMQPassword", SettingKind::Secret),
    ("rabbitMQPort", SettingKind::Whole),
    ("rabbitMQUseTLS", SettingKind::Bool),
    ("rabbitMQUser", SettingKind::Text),
    ("scaleDownCooldownSeconds", SettingKind::Whole),
    ("scaleDownStabilizationMinutes", SettingKind::Whole),
    ("sshKey", SettingKind::Secret),
    ("waitSecondsForJoin", SettingKind::Whole),
    ("waitSecondsForProvision", SettingKind::Whole),
];

/// Settings without which kproximate does not start: its chart asks for each, and the programs give up without them.
const REQUIRED: [&str; 3] = ["kpNodeTemplateName", "pmUrl", "pmUserID"];

/// A number of the chart that is no setting of the programs.
pub(super) const WORKERS: &str = "workerReplicaCount";

/// Keys of the chart that say where its own pods run and what they are called.
const CHART: [&str; 17] = [
    "affinity",
    "controllerPodAnnotations",
    "fullnameOverride",
    "global",
    "image",
    "imagePullSecrets",
    "nameOverride",
    "nodeSelector",
    "podAnnotations",
    "podSecurityContext",
    "rabbitmq",
    "resources",
    "securityContext",
    "service",
    "serviceAccount",
    "tolerations",
    "workerPodAnnotations",
];

/// A setting with where it stands.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    /// The setting's value; what counts of a secret is read out of it in this program and never printed.
    text: String,
    kind: SettingKind,
    /// `values.yaml:12`.
    pub(super) place: String,
    /// The place of an earlier value that this one takes the place of.
    pub(super) over: Option<String>,
}

impl Setting {
    /// The setting's value, where it may be shown: none of a secret.
    pub(super) fn shown(&self) -> Option<&str> {
        (self.kind != SettingKind::Secret).then_some(&self.text)
    }

    /// The setting's value, a secret's too, for what is found out and not shown.
    pub(super) fn hidden(&self) -> &str {
        &self.text
    }

    pub(super) fn whole(&self) -> i64 {
        self.text.trim().parse().unwrap_or_default()
    }

    pub(super) fn is_true(&self) -> bool {
        boolean(&self.text) == Some(true)
    }
}

/// A key that kproximate does not know.
#[derive(Clone, Debug)]
pub(super) struct Stranger {
    pub(super) key: String,
    /// A number, true or false; None of what may be a secret that is misspelt.
    pub(super) value: Option<String>,
    pub(super) place: String,
    /// The key that may be meant.
    pub(super) near: Option<&'static str>,
}

/// All that was found.
#[derive(Clone, Debug, Default)]
pub(super) struct FoundSettings {
    settings: BTreeMap<&'static str, Setting>,
    pub(super) strangers: Vec<Stranger>,
    /// Keys of the chart alone.
    pub(super) chart: Vec<String>,
    /// The chart is lupinelab's, which clones linked.
    pub(super) linked: bool,
    /// A file has no value at all, as `helm get values` prints it where nothing was set.
    pub(super) nothing: bool,
    /// Something names a ConfigMap or Secret for the rest.
    pub(super) elsewhere: bool,
    /// Everything that is wrong.
    pub(super) wrong: Vec<String>,
    /// Of [`REQUIRED`] those that stand somewhere without a value: their paths and places.
    empty: BTreeMap<&'static str, (String, String)>,
}

impl FoundSettings {
    pub(super) fn get(&self, key: &str) -> Option<&Setting> {
        self.settings.get(key)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.settings.is_empty()
    }

    /// Notes as wrong what kproximate would not start with, once all files are read: another one may have the value.
    pub(super) fn judge_empty(&mut self) {
        for (key, (path, place)) in std::mem::take(&mut self.empty) {
            if !self.settings.contains_key(key) {
                self.wrong.push(format!(
                    "{place}: {path} is empty, and kproximate does not start without it"
                ));
            }
        }
    }
}

/// A file that is being read into what was found.
pub(super) struct SettingsReader<'f> {
    pub(super) file: &'f str,
    pub(super) found: &'f mut FoundSettings,
}

impl SettingsReader<'_> {
    fn place(&self, line: usize) -> String {
        format!("{}:{line}", self.file)
    }

    pub(super) fn wrong(&mut self, line: usize, text: &str) {
        let place = self.place(line);
        self.found.wrong.push(format!("{place}: {text}"));
    }

    /// A document of any form that is known.
    pub(super) fn document(&mut self, node: &YamlNode) {
        match &node.data {
            YamlData::Null => {}
            YamlData::Scalar(text) => self.lines(node.line, text),
            YamlData::List(items) => {
                for item in items {
                    self.variable(item);
                }
            }
            YamlData::Map(entries) => {
                if let Some(kind) = node.get("kind").and_then(YamlNode::text) {
                    self.manifest(kind, node);
                } else if node.get("kproximate").is_some() || node.get(WORKERS).is_some() {
                    self.chart(entries);
                } else if node.get("config").is_some() || node.get("secrets").is_some() {
                    self.programs(entries);
                } else {
                    self.settings(entries, false);
                }
            }
        }
    }

    fn manifest(&mut self, kind: &str, node: &YamlNode) {
        match kind {
            "List" | "ConfigMapList" | "SecretList" | "DeploymentList" => {
                let items = node.get("items").map_or(&[][..], YamlNode::items);
                for item in items {
                    self.document(item);
                }
            }
            "ConfigMap" | "Secret" if !concerns(node) => {}
            "ConfigMap" => self.settings(node.get("data").map_or(&[], YamlNode::entries), false),
            "Secret" => {
                self.encoded(node.get("data").map_or(&[], YamlNode::entries));
                self.settings(node.get("stringData").map_or(&[], YamlNode::entries), true);
            }
            "HelmRelease" => {
                if let Some(values) = node.at(&["spec", "values"]) {
                    self.document(values);
                }
            }
            "Deployment" | "ReplicaSet" | "StatefulSet" => {
                let name = node.at(&["metadata", "name"]).and_then(YamlNode::text);
                if name.is_some_and(|name| name.contains("kproximate") && name.ends_with("-worker"))
                    && let Some(replicas) = node.at(&["spec", "replicas"])
                {
                    self.setting("spec.replicas", WORKERS, SettingKind::Whole, replicas);
                }
                self.containers(node.at(&["spec", "template", "spec"]));
            }
            "Pod" => self.containers(node.get("spec")),
            _ => {}
        }
    }

    fn containers(&mut self, spec: Option<&YamlNode>) {
        let containers = spec.and_then(|spec| spec.get("containers"));
        for container in containers.map_or(&[][..], YamlNode::items) {
            self.found.elsewhere |= container.get("envFrom").is_some();
            let variables = container.get("env").map_or(&[][..], YamlNode::items);
            let ours = |node: &YamlNode| {
                node.get("name")
                    .and_then(YamlNode::text)
                    .is_some_and(is_telling)
            };
            if variables.iter().any(ours) {
                for variable in variables {
                    self.variable(variable);
                }
            }
        }
    }

    /// `{name: …, value: …}`.
    fn variable(&mut self, node: &YamlNode) {
        let Some(name) = node.get("name").and_then(YamlNode::text) else {
            let what = "expected an environment variable with name and value";
            self.wrong(node.line, &format!("{what}, found {}", node.kind()));
            return;
        };
        match node.get("value") {
            Some(value) => self.any(name, name, value, false),
            None => self.found.elsewhere |= node.get("valueFrom").is_some(),
        }
    }

    /// Helm values of the chart.
    fn chart(&mut self, entries: &[YamlEntry]) {
        for entry in entries {
            match entry.key.as_str() {
                "kproximate" if entry.value.get("kproximate").is_some() => {
                    // As the values of a chart that this one is a part of.
                    self.chart(entry.value.entries());
                }
                "kproximate" => self.programs(entry.value.entries()),
                WORKERS => self.setting(WORKERS, WORKERS, SettingKind::Whole, &entry.value),
                key if CHART.contains(&key) => {
                    self.of_chart(entry);
                }
                key => self.stranger(key, key, &entry.value, false),
            }
        }
    }

    fn of_chart(&mut self, entry: &YamlEntry) {
        let registry = entry.value.get("registry").and_then(YamlNode::text);
        self.found.linked |= registry.is_some_and(|registry| registry.contains("lupinelab"));
        for (key, name) in [
            ("username", "rabbitMQUser"),
            ("password", "rabbitMQPassword"),
        ] {
            if entry.key == "rabbitmq"
                && let Some(node) = entry.value.at(&["auth", key])
            {
                self.any(&format!("rabbitmq.auth.{key}"), name, node, true);
            }
        }
        self.found
            .chart
            .push(format!("{} ({})", entry.key, self.place(entry.line)));
    }

    /// `kproximate:` of the chart's values.
    fn programs(&mut self, entries: &[YamlEntry]) {
        for entry in entries {
            let secret = match entry.key.as_str() {
                "config" => false,
                "secrets" => true,
                key => {
                    let path = format!("kproximate.{key}");
                    self.any(&path, key, &entry.value, false);
                    continue;
                }
            };
            match &entry.value.data {
                YamlData::Map(entries) => {
                    for inner in entries {
                        let path = format!("kproximate.{}.{}", entry.key, inner.key);
                        self.any(&path, &inner.key, &inner.value, secret);
                    }
                }
                YamlData::Null => {}
                _ => {
                    let found = entry.value.kind();
                    let text = format!("kproximate.{}: expected a map, found {found}", entry.key);
                    self.wrong(entry.line, &text);
                }
            }
        }
    }

    fn settings(&mut self, entries: &[YamlEntry], secret: bool) {
        for entry in entries {
            self.any(&entry.key, &entry.key, &entry.value, secret);
        }
    }

    /// A Secret's `data`.
    fn encoded(&mut self, entries: &[YamlEntry]) {
        for entry in entries {
            let text: String = entry
                .value
                .text()
                .unwrap_or_default()
                .split_whitespace()
                .collect();
            let plain = STANDARD
                .decode(text)
                .ok()
                .and_then(|bytes| String::from_utf8(bytes).ok());
            let Some(plain) = plain else {
                let text = format!(
                    "data.{}: expected text in base64; it is not shown",
                    entry.key
                );
                self.wrong(entry.line, &text);
                continue;
            };
            let node = YamlNode {
                line: entry.value.line,
                data: YamlData::Scalar(plain),
            };
            self.any(&format!("data.{}", entry.key), &entry.key, &node, true);
        }
    }

    /// Lines `kpNodeCores=2`, with or without `export`.
    pub(super) fn lines(&mut self, first: usize, text: &str) {
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let line = line.strip_prefix("export ").unwrap_or(line);
            let number = first + number;
            let Some((key, value)) = line.split_once('=') else {
                self.wrong(number, "expected a line such as kpNodeCores=2");
                continue;
            };
            let value = value.trim();
            let quoted = ['"', '\''].iter().find_map(|quote| {
                value
                    .strip_prefix(*quote)
                    .and_then(|rest| rest.strip_suffix(*quote))
            });
            let node = YamlNode {
                line: number,
                data: YamlData::Scalar(quoted.unwrap_or(value).to_owned()),
            };
            self.any(key.trim(), key.trim(), &node, false);
        }
    }

    /// A key that may be kproximate's.
    fn any(&mut self, path: &str, key: &str, value: &YamlNode, secret: bool) {
        match known(key) {
            Some((key, kind)) => self.setting(path, key, kind, value),
            None => self.stranger(path, key, value, secret),
        }
    }

    fn setting(&mut self, path: &str, key: &'static str, kind: SettingKind, value: &YamlNode) {
        let text = match &value.data {
            YamlData::Null => "",
            YamlData::Scalar(text) => &**text,
            _ => {
                let found = value.kind();
                self.wrong(
                    value.line,
                    &format!("{path}: expected {}, found {found}", expected(kind)),
                );
                return;
            }
        };
        if text.is_empty() {
            if REQUIRED.contains(&key) {
                let told = (path.to_owned(), self.place(value.line));
                self.found.empty.insert(key, told);
            }
            return;
        }
        if key == "pmUrl" && !is_url(text) {
            // Before an @ may stand a password.
            let host = without_secrets(text.rsplit('@').next().unwrap_or_default());
            let shown = host.chars().take(60).collect::<String>();
            self.wrong(
                value.line,
                &format!(
                    "{path} = {shown:?}: expected a URL such as https://HOST:8006/api2/json: kproximate does not start with another one"
                ),
            );
            return;
        }
        if !fits(kind, text) {
            let shown = without_secrets(text).chars().take(60).collect::<String>();
            self.wrong(
                value.line,
                &format!("{path} = {shown:?}: expected {}", expected(kind)),
            );
            return;
        }
        let before = self
            .found
            .settings
            .get(key)
            .filter(|before| before.text != text);
        let setting = Setting {
            text: text.to_owned(),
            kind,
            place: self.place(value.line),
            over: before.map(|before| before.place.clone()),
        };
        self.found.settings.insert(key, setting);
    }

    fn stranger(&mut self, path: &str, key: &str, value: &YamlNode, secret: bool) {
        let near = nearest(key);
        let hidden = secret
            || may_be_secret(key)
            || near.is_some_and(|(_, kind)| kind == SettingKind::Secret);
        // Any text may be a secret whose key or place is wrong.
        let text = match &value.data {
            YamlData::Scalar(text)
                if fits(SettingKind::Number, text) || fits(SettingKind::Bool, text) =>
            {
                Some(format!("{:?}", text.trim()))
            }
            YamlData::Scalar(_) => None,
            _ => Some(value.kind().to_owned()),
        };
        let place = self.place(value.line);
        self.found.strangers.push(Stranger {
            key: path.to_owned(),
            value: text.filter(|_| !hidden),
            place,
            near: near.map(|(name, _)| name),
        });
    }
}

/// Whether a ConfigMap or Secret has anything of kproximate: a namespace has others.
fn concerns(node: &YamlNode) -> bool {
    let parts = ["data", "stringData"];
    let entries = parts
        .iter()
        .filter_map(|key| node.get(key))
        .flat_map(YamlNode::entries);
    entries.into_iter().any(|entry| is_telling(&entry.key))
}

/// A key that only kproximate has: RabbitMQ has a password too, and others have `debug`.
fn is_telling(key: &str) -> bool {
    known(key).is_some_and(|(name, _)| name != "debug" && !name.starts_with("rabbit"))
}

/// A key by its name, or as the fork's development environment spells it: `KP_NODE_CORES`.
fn known(key: &str) -> Option<(&'static str, SettingKind)> {
    let wanted = plain(key);
    KNOWN
        .iter()
        .find(|(name, _)| plain(name) == wanted)
        .copied()
}

fn plain(key: &str) -> String {
    let letters = key.chars().filter(char::is_ascii_alphanumeric);
    letters.map(|sign| sign.to_ascii_lowercase()).collect()
}

/// A key that differs in two letters at most.
fn nearest(key: &str) -> Option<(&'static str, SettingKind)> {
    let key = plain(key);
    // Longer ones are no misspelling, and cost more to compare.
    let near = |name: &str| key.len() <= 64 && distance(&plain(name), &key) <= 2;
    KNOWN.iter().find(|(name, _)| near(name)).copied()
}

fn may_be_secret(key: &str) -> bool {
    let key = plain(key);
    let hints = [
        "pass", "token", "secret", "key", "command", "auth", "cred", "cookie",
    ];
    hints.iter().any(|hint| key.contains(hint))
}

fn expected(kind: SettingKind) -> &'static str {
    match kind {
        SettingKind::Bool => "true or false",
        SettingKind::Whole => "a whole number",
        SettingKind::Number => "a number",
        SettingKind::Text => "text",
        SettingKind::Secret => "text (it is not shown)",
    }
}

/// Whether kproximate starts with it.
fn fits(kind: SettingKind, text: &str) -> bool {
    match kind {
        SettingKind::Bool => boolean(text).is_some(),
        SettingKind::Whole => text.trim().parse::<i64>().is_ok(),
        SettingKind::Number => text.trim().parse::<f64>().is_ok_and(f64::is_finite),
        SettingKind::Text | SettingKind::Secret => true,
    }
}

/// Whether a text is a URL that Go's HTTP client asks: it has a scheme and a host.
fn is_url(text: &str) -> bool {
    let text = text.trim().to_ascii_lowercase();
    let rest = ["https://", "http://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next());
    let host = host.map(|host| host.rsplit('@').next().unwrap_or_default());
    host.is_some_and(|host| !host.is_empty() && !host.starts_with(':'))
}

/// As Go's `strconv.ParseBool` reads it.
fn boolean(text: &str) -> Option<bool> {
    match text.trim() {
        "1" | "t" | "T" | "true" | "True" | "TRUE" => Some(true),
        "0" | "f" | "F" | "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_keys_are_recognised_and_misspelt_secrets_not_shown() {
        assert_eq!(
            known("KP_NODE_CORES"),
            Some(("kpNodeCores", SettingKind::Whole))
        );
        assert_eq!(
            nearest("kpNodeCore").map(|near| near.0),
            Some("kpNodeCores")
        );
        assert_eq!(
            nearest("pmTokn").map(|near| near.1),
            Some(SettingKind::Secret)
        );
        assert_eq!(nearest("replicas"), None);
        assert!(may_be_secret("apiToken") && !may_be_secret("replicas"));
    }

    #[test]
    fn a_url_has_a_scheme_and_a_host() {
        for good in [
            "https://192.0.2.1:8006/api2/json",
            "HTTPS://pve.example",
            "http://u:p@pve:8006",
            "https://[2001:db8::1]:8006/",
        ] {
            assert!(is_url(good), "{good}");
        }
        for bad in [
            "192.0.2.1",
            "pve:8006",
            "https://",
            "https:///api2",
            "https://:8006",
            "ftp://pve",
        ] {
            assert!(!is_url(bad), "{bad}");
        }
    }
}

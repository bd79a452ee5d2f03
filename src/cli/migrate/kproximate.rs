//! kproximate's settings in our words: for each what it became, or why it has no equal.

use toml_edit::{Array, Value};

use super::draft::{ConfigDraft, DECIDE, Table};
use super::join;
use super::labels::KpNodeLabels;
use super::settings::{FoundSettings, Setting, Stranger, WORKERS};
use crate::cli::redact::without_secrets;
use crate::config::syntax;

/// Longest name of a pool: its nodes are called `POOL-xxxxx`.
const LONGEST_POOL: usize = 57;
/// The name of the template's table.
const TEMPLATE: &str = "kproximate";
/// Where the secret of an API token lies, if one is used.
const TOKEN_FILE: &str = "/etc/pve-autoscaler/proxmox.token";

/// What stands above a line: the setting and its place.
pub(super) fn was(key: &str, setting: &Setting) -> String {
    let over = setting
        .over
        .as_ref()
        .map(|place| format!(", in place of the one at {place}"));
    let over = over.unwrap_or_default();
    match setting.shown() {
        Some(text) => format!("{key} = {} ({}{over})", quoted(text), setting.place),
        None => format!("{key} ({}{over})", setting.place),
    }
}

/// A text as a comment shows it: one line, not too long.
pub(super) fn quoted(text: &str) -> String {
    // What somebody wrote where it does not belong: a URL with a password, for instance.
    let text = &*without_secrets(text);
    let short: String = text.chars().take(120).collect();
    let more = if short.len() < text.len() { "…" } else { "" };
    format!("{short:?}{more}")
}

fn list<T: Into<Value>>(items: impl IntoIterator<Item = T>) -> Value {
    Value::Array(items.into_iter().collect::<Array>())
}

/// The names that the tables have.
struct TableNames {
    region: String,
    pool: String,
}

/// The whole file.
pub(super) fn convert(found: &FoundSettings, sources: &str) -> ConfigDraft {
    let labels = KpNodeLabels::of(found);
    let names = TableNames {
        region: labels.region(),
        pool: pool_name(found),
    };
    let mut tables = vec![
        region(found, &names, &labels),
        template(found),
        instance_type(found, &names),
        pool(found, &names, &labels),
        self::labels(&names, &labels),
        join::table(found, &names.pool),
        scale_up(found),
        scale_down(found),
    ];
    tables.push(rest(found));
    ConfigDraft {
        head: head(sources),
        tables,
    }
}

fn head(sources: &str) -> Vec<String> {
    [
        format!("Configuration of pve-autoscaler, made of kproximate's settings ({sources}) by `pve-autoscaler migrate kproximate`."),
        format!("Above each line stands what it was. Lines with {DECIDE} are for a person. Every key: man 5 pve-autoscaler.toml"),
        "Access to Kubernetes, as root on the host: pve-autoscaler kubeconfig --kubeconfig admin.conf".to_owned(),
        "Then: pve-autoscaler check, systemctl reload pve-autoscaler, pve-autoscaler doctor. What to stop first: /usr/share/doc/pve-autoscaler/docs/moving.md".to_owned(),
    ]
    .into()
}

/// `[proxmox]`, or a region with the name that nodes had as label.
fn region(found: &FoundSettings, names: &TableNames, labels: &KpNodeLabels) -> Table {
    let mut table = Table::new(&names.region);
    if let Some(note) = &labels.region_note {
        table.note(note);
    }
    let most = found.get("maxKpNodes").map_or(3, Setting::whole);
    let range = if most <= 900 {
        "9000-9999"
    } else {
        "100000-199999"
    };
    table.set(
        "vmids",
        range,
        format!("{DECIDE}: VMIDs for machines alone; kproximate takes any that is free above its template's"),
    );
    access(found, &mut table);
    if let Some(strategy) = found.get("nodeSelectionStrategy") {
        let why = was("nodeSelectionStrategy", strategy);
        match strategy.shown().unwrap_or_default() {
            name @ ("spread" | "max-memory" | "max-cpu" | "balanced" | "round-robin") => table.set(
                "host_strategy",
                name,
                format!("{why}; there by what is in use at that moment, here by what guests are promised"),
            ),
            _ => table.set("host_strategy", "spread", format!("{why} is none that kproximate knows: it takes spread")),
        }
    }
    if let Some(cores) = found
        .get("minAvailableCpuCores")
        .filter(|cores| cores.whole() > 0)
    {
        let why = was("minAvailableCpuCores", cores);
        let note = "here what is left after the machine is there; a host without it is not used";
        table.set("min_free_cores", cores.whole(), format!("{why}; {note}"));
    }
    if let Some(memory) = found
        .get("minAvailableMemoryMB")
        .filter(|memory| memory.whole() > 0)
    {
        let why = was("minAvailableMemoryMB", memory);
        let note = "here what is left after the machine is there; a host without it is not used";
        table.set(
            "min_free_memory",
            mebibytes(memory.whole()),
            format!("{why}; {note}"),
        );
    }
    excluded(found, &mut table);
    table
}

/// Hosts that get no machine: the key of the fork by paradoxe35, and the one of kproximate's own pull request 24.
fn excluded(found: &FoundSettings, table: &mut Table) {
    let keys = ["excludedNodes", "pmExcludeHosts"];
    let settings = keys.into_iter();
    let settings: Vec<(&str, &Setting)> = settings
        .filter_map(|key| Some((key, found.get(key)?)))
        .collect();
    let mut hosts: Vec<&str> = Vec::new();
    for (key, setting) in &settings {
        let names = setting.shown().unwrap_or_default().split(',');
        for host in names.map(str::trim) {
            let named = syntax::dns_label(&host.to_ascii_lowercase());
            if named && !hosts.contains(&host) {
                hosts.push(host);
            } else if !named && !host.is_empty() {
                table.note(format!(
                    "{DECIDE}: {key} names {}, which is no host's name; left out",
                    quoted(host)
                ));
            }
        }
    }
    if !hosts.is_empty() {
        let why = settings.iter().map(|(key, setting)| was(key, setting));
        let why: Vec<String> = why.collect();
        table.set("exclude_hosts", list(hosts), why.join("; "));
    }
}

/// How PVE is reached: through the broker; the settings of a token stand beside it.
fn access(found: &FoundSettings, table: &mut Table) {
    table.set(
        "channel",
        "local",
        "the service runs on a host of the PVE cluster: its broker needs no URL, user, password or token there",
    );
    let url = found.get("pmUrl");
    let user = found.get("pmUserID");
    if url.is_none() && user.is_none() {
        return;
    }
    table.note("From another machine instead, without the line above:");
    table.offer("channel", "token", "");
    if let Some(url) = url {
        let endpoint = endpoint(url.hidden());
        let port = if has_port(&endpoint) {
            ""
        } else {
            "; it has no port, which is 443; PVE itself answers at 8006"
        };
        let why = format!("pmUrl ({}){port}", url.place);
        table.offer("endpoints", list([endpoint]), why);
    }
    let id = user.and_then(Setting::shown).unwrap_or_default();
    let why = user.map(|user| was("pmUserID", user)).unwrap_or_default();
    if id.contains('!') {
        table.offer("token_id", id, why);
    } else {
        table.offer(
            "token_id",
            "scaler@pve!autoscaler",
            format!("{why}; a user with a password: here it must be an API token (docs/setup.md)"),
        );
    }
    let secrets = ["pmToken", "pmPassword"]
        .into_iter()
        .filter_map(|key| Some((key, found.get(key)?)));
    for (key, secret) in secrets {
        let place = was(key, secret);
        let (what, whose) = match key {
            "pmToken" => (
                "its value goes",
                "owner root, group pve-autoscaler, mode 0640",
            ),
            _ => ("a token's secret goes", "a password is not used"),
        };
        table.note(format!(
            "{place} is not shown: {what} into the file below ({whose})"
        ));
    }
    table.offer("token_secret_file", TOKEN_FILE, "");
    let insecure = found
        .get("pmAllowInsecure")
        .filter(|insecure| insecure.is_true());
    let why = insecure.map(|setting| format!("{} has no equal: ", was("pmAllowInsecure", setting)));
    let why = why.unwrap_or_default();
    table.offer(
        "ca_file",
        "/etc/pve-autoscaler/pve-root-ca.pem",
        format!(
            "{why}a copy of /etc/pve/pve-root-ca.pem, or `fingerprint` of the server's certificate"
        ),
    );
}

/// `https://HOST:PORT` of a URL, without what may be a password in it.
fn endpoint(url: &str) -> String {
    let rest = url
        .trim()
        .split_once("://")
        .map_or(url.trim(), |(_, rest)| rest);
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    format!("https://{host}")
}

/// Whether an endpoint names its port; the colons within the brackets of an IPv6 address are none.
fn has_port(endpoint: &str) -> bool {
    let host = endpoint.trim_start_matches("https://");
    let rest = host.rsplit(']').next().unwrap_or_default();
    let port = rest.rsplit_once(':').map_or("", |(_, port)| port);
    !port.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit())
}

fn template(found: &FoundSettings) -> Table {
    let mut table = Table::new(format!("template.{TEMPLATE}"));
    table.note(format!(
        "{DECIDE}: the template needs a guest agent, a cloud-init drive and kubeadm or an agent that does not start by itself \
         (docs/template.md). `[template.{TEMPLATE}.build]` in place of vm_name has one built"
    ));
    match found.get("kpNodeTemplateName") {
        Some(name) => {
            let local = found.get("kpLocalTemplateStorage").filter(|local| local.is_true());
            let each = local.map(|local| format!("; {}: one of this name on each host", was("kpLocalTemplateStorage", local)));
            let each = each.unwrap_or_default();
            table.require(
                "vm_name",
                (name.shown().unwrap_or_default(), "kproximate-template"),
                format!("{}{each}", was("kpNodeTemplateName", name)),
            );
        }
        None => table.set(
            "vm_name",
            "kproximate-template",
            format!("{DECIDE}: kpNodeTemplateName is not in the settings; kproximate does not start without it"),
        ),
    }
    if found.linked {
        table.set("clone", "linked", "lupinelab's kproximate clones linked");
    } else {
        table.set("clone", "full", "as kproximate clones; \"linked\" is faster where template and machines share a storage");
    }
    table.set(
        "ipconfig",
        "ip=dhcp",
        "kproximate sets it; addresses out of ranges: docs/networks.md",
    );
    ssh_keys(found, &mut table);
    table
}

fn ssh_keys(found: &FoundSettings, table: &mut Table) {
    let disabled = found
        .get("kpNodeDisableSsh")
        .filter(|disabled| disabled.is_true());
    if let Some(disabled) = disabled {
        table.note(format!(
            "{}: no SSH keys",
            was("kpNodeDisableSsh", disabled)
        ));
        return;
    }
    let Some(setting) = found.get("sshKey") else {
        return;
    };
    // A private key by mistake is a secret.
    let public = |line: &&str| {
        ["ssh-", "ecdsa-", "sk-"]
            .iter()
            .any(|start| line.starts_with(start))
    };
    let lines = || {
        setting
            .hidden()
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
    };
    let keys: Vec<&str> = lines().filter(public).collect();
    if keys.len() < lines().count() {
        table.note(format!(
            "{DECIDE}: {} is no public SSH key, or not all of it; what is none is not shown",
            was("sshKey", setting)
        ));
    }
    if !keys.is_empty() {
        table.set("ssh_keys", list(keys), was("sshKey", setting));
    }
}

fn instance_type(found: &FoundSettings, names: &TableNames) -> Table {
    let mut table = Table::new(format!("instance_type.{}", names.pool));
    let cores = found.get("kpNodeCores");
    let memory = found.get("kpNodeMemory");
    let default = |key: &str| format!("{key} is not in the settings; the chart's default");
    table.require(
        "cores",
        (cores.map_or(2, Setting::whole), 2),
        cores.map_or_else(|| default("kpNodeCores"), |cores| was("kpNodeCores", cores)),
    );
    table.require(
        "memory",
        (mebibytes(memory.map_or(2048, Setting::whole)), "2GiB"),
        memory.map_or_else(
            || default("kpNodeMemory"),
            |memory| was("kpNodeMemory", memory),
        ),
    );
    table.note("The disk is the template's; `disk = \"32GiB\"` makes it larger.");
    table
}

/// A size in MiB as the file has it.
fn mebibytes(number: i64) -> String {
    if number % 1024 == 0 {
        format!("{}GiB", number / 1024)
    } else {
        format!("{number}MiB")
    }
}

fn pool(found: &FoundSettings, names: &TableNames, labels: &KpNodeLabels) -> Table {
    let mut table = Table::new(format!("pool.{}", names.pool));
    match found.get("kpNodeNamePrefix") {
        Some(prefix) if prefix.shown() == Some(&names.pool) => {
            table.note(format!(
                "{}: nodes are called {}-xxxxx",
                was("kpNodeNamePrefix", prefix),
                names.pool
            ));
        }
        Some(prefix) => table.note(format!(
            "{DECIDE}: {} cannot be the name of a pool; nodes are called {}-xxxxx",
            was("kpNodeNamePrefix", prefix),
            names.pool
        )),
        None => {}
    }
    table.set("template", TEMPLATE, "");
    table.set("instance_types", list([names.pool.as_str()]), "");
    table.set("min", 0, "kproximate keeps none");
    let most = found.get("maxKpNodes");
    table.require(
        "max",
        (most.map_or(3, |most| most.whole().max(0)), 3),
        most.map_or_else(
            || "maxKpNodes is not in the settings; the chart's default".to_owned(),
            |most| was("maxKpNodes", most),
        ),
    );
    for note in &labels.notes {
        table.note(note);
    }
    table
}

fn labels(names: &TableNames, labels: &KpNodeLabels) -> Table {
    let mut table = Table::new(format!("pool.{}.labels", names.pool));
    for (position, (key, value)) in labels.kept.iter().enumerate() {
        let comment = if position == 0 {
            labels.was.as_str()
        } else {
            ""
        };
        table.set(key, value, comment);
    }
    table
}

/// The name of the pool: the prefix, as far as a name may be so.
fn pool_name(found: &FoundSettings) -> String {
    let prefix = found
        .get("kpNodeNamePrefix")
        .and_then(Setting::shown)
        .unwrap_or("kp-node");
    if syntax::dns_label(prefix) && prefix.len() <= LONGEST_POOL {
        return prefix.to_owned();
    }
    let letters = prefix.to_ascii_lowercase();
    let letters = letters.chars().map(|sign| {
        if sign.is_ascii_alphanumeric() {
            sign
        } else {
            '-'
        }
    });
    let name: String = letters.take(LONGEST_POOL).collect();
    match name.trim_matches('-') {
        "" => "kp-node".to_owned(),
        name => name.to_owned(),
    }
}

fn scale_up(found: &FoundSettings) -> Table {
    let mut table = Table::new("scale_up");
    if let Some(workers) = found.get(WORKERS).filter(|workers| workers.whole() > 0) {
        table.set(
            "max_in_flight",
            workers.whole(),
            format!(
                "{}: machines being made at the same time",
                was(WORKERS, workers)
            ),
        );
    }
    if let Some(wait) = found.get("waitSecondsForProvision") {
        let seconds = wait.whole().max(60);
        let why = format!(
            "{}: kproximate does not keep it; here a machine that is no node by then is removed (default 15m)",
            was("waitSecondsForProvision", wait)
        );
        if seconds > 15 * 60 {
            table.set("max_node_provision_time", format!("{seconds}s"), why);
        } else {
            table.offer("max_node_provision_time", format!("{seconds}s"), why);
        }
    }
    if let Some(wait) = found.get("waitSecondsForJoin") {
        table.note(format!(
            "{}: kproximate does not keep it; here `join`, `register` and `initialize` in [lifecycle] have five, two and five minutes",
            was("waitSecondsForJoin", wait)
        ));
    }
    if let Some(poll) = found.get("pollInterval") {
        table.note(format!(
            "{} has no equal: Kubernetes is watched, PVE read as `poll` of the region says",
            was("pollInterval", poll)
        ));
    }
    table
}

fn scale_down(found: &FoundSettings) -> Table {
    let mut table = Table::new("scale_down");
    for (key, ours, default) in [
        ("scaleDownStabilizationMinutes", "delay_after_add", 5),
        ("minNodeAgeMinutes", "min_node_age", 10),
    ] {
        let Some(setting) = found.get(key) else {
            continue;
        };
        let why = was(key, setting);
        if setting.whole() < 1 {
            let why = format!("{why}: below 1 kproximate takes {default}");
            table.set(ours, format!("{default}m"), why);
        } else {
            table.set(ours, format!("{}m", setting.whole()), why);
        }
    }
    cooldown(found, &mut table);
    if let Some(headroom) = found.get("loadHeadroom") {
        table.note(format!(
            "{} has no equal: kproximate removes a node when the others would be less than 1/(1 + loadHeadroom) full together, whether \
             its pods fit there or not. Here a node goes when less than utilization_threshold of it is requested and each of its pods has \
             a place elsewhere.",
            was("loadHeadroom", headroom)
        ));
        table.note(format!(
            "{DECIDE}: `consolidation = \"when-underused\"` in the pool removes nodes at any filling whose pods fit elsewhere."
        ));
    }
    table.note("A node goes after it was unneeded for `unneeded_time`, ten minutes; kproximate removes at once");
    table
}

/// How long no node goes after one came, by the key of kproximate's pull request 24; that of the fork by paradoxe35 comes first.
fn cooldown(found: &FoundSettings, table: &mut Table) {
    let Some(setting) = found.get("scaleDownCooldownSeconds") else {
        return;
    };
    let why = was("scaleDownCooldownSeconds", setting);
    if found.get("scaleDownStabilizationMinutes").is_some() {
        table.note(format!(
            "{why} says the same as scaleDownStabilizationMinutes, which was taken"
        ));
        return;
    }
    let seconds = setting.whole().max(0);
    table.set("delay_after_add", format!("{seconds}s"), why);
}

/// What has no place in any table.
fn rest(found: &FoundSettings) -> Table {
    let mut table = Table::new("");
    for key in ["debug", "pmDebug"] {
        if let Some(setting) = found.get(key).filter(|setting| setting.is_true()) {
            table.note(format!(
                "{}: PVE_AUTOSCALER_LOG=debug, by systemctl edit pve-autoscaler",
                was(key, setting)
            ));
        }
    }
    if let Some(setting) = found.get("enableAffinityScaling") {
        table.note(format!(
            "{}: not needed, machines are always made for pods by their node selectors and affinity, and by the labels that a node would have",
            was("enableAffinityScaling", setting)
        ));
    }
    let keys = [
        "rabbitMQHost",
        "rabbitMQPort",
        "rabbitMQUser",
        "rabbitMQPassword",
        "rabbitMQUseTLS",
    ];
    let rabbit: Vec<String> = keys
        .into_iter()
        .filter_map(|key| Some(format!("{key} ({})", found.get(key)?.place)))
        .collect();
    if !rabbit.is_empty() {
        table.note(format!(
            "Not needed, there is no queue: {}",
            rabbit.join(", ")
        ));
    }
    if !found.chart.is_empty() {
        table.note(format!(
            "Of kproximate's own pods, and not needed: {}",
            found.chart.join(", ")
        ));
    }
    for stranger in &found.strangers {
        table.note(strange(stranger));
    }
    if found.elsewhere {
        table.note("A manifest takes variables from a ConfigMap or a Secret: give these, too, where something is missing above");
    }
    table
}

fn strange(stranger: &Stranger) -> String {
    let value = match &stranger.value {
        Some(value) => format!(" = {value}"),
        None => ", whose value is not shown,".to_owned(),
    };
    let near = stranger
        .near
        .map(|near| format!("; {near} may be meant, and was not set by it"));
    format!(
        "{DECIDE}: {}{value} ({}) is no setting of kproximate{}",
        stranger.key,
        stranger.place,
        near.unwrap_or_default()
    )
}

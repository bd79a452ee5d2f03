//! The configuration file that is proposed: a new one with its reasons, or what is changed in one that is there.

use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use similar::{ChangeTag, TextDiff};
use toml_edit::{Array, DocumentMut, Item, Table, Value, value};

use super::answers::{NetworkAnswers, PoolAnswers, SetupAnswers, TemplateAnswers};
use super::choose::{NETWORK, SetupSpec};
use super::hardware;
use super::images::is_volume;
use super::range;
use super::survey::Existing;
use super::templates::{BuildWanted, TemplateSource};
use crate::config::file::BuildMethod;
use crate::config::storage_names::StorageNames;

/// What stands above a new file.
const HEAD: &str = "\
# Configuration of pve-autoscaler, as `pve-autoscaler setup` proposed it. Every key: man 5 pve-autoscaler.toml
# After a change: pve-autoscaler check && systemctl reload pve-autoscaler && pve-autoscaler doctor

version = 1
";
/// Bytes of a new machine's disk: room for images and logs.
pub(super) const DISK: &str = "32GiB";
/// The column of comments.
const COLUMN: usize = 34;

/// A line of a table: key, value, and why.
type TableLine = (&'static str, Value, String);

/// The text for a file that configures nothing yet: what stands there stays in front.
pub(super) fn new(existing: &Existing, wanted: &SetupSpec) -> String {
    let mut text = match &existing.text {
        Some(text) => text.trim_end().to_owned() + "\n",
        None => HEAD.to_owned(),
    };
    if existing.lacks_range
        && let Some(completed) = range::with_range(&text, &wanted.vmids)
    {
        text = completed;
    }
    let document: DocumentMut = text.parse().unwrap_or_default();
    let has = |path: &str| {
        let mut keys = path.split('.');
        let first = keys.next().and_then(|key| document.get(key));
        keys.fold(first, |item, key| item?.get(key)).is_some()
    };
    // One region, one template: those that are there.
    let kinds = |path: &str| match path.split('.').next().unwrap_or_default() {
        "proxmox" => has("proxmox") || has("region"),
        "template" => has("template"),
        _ => has(path),
    };
    for (table, lines) in tables(wanted)
        .into_iter()
        .filter(|(table, _)| !kinds(table))
    {
        let _ = write!(text, "\n[{table}]\n");
        for (key, value, why) in lines {
            let line = format!("{key} = {}", value.to_string().trim());
            let gap = COLUMN.saturating_sub(line.chars().count()).max(1);
            let _ = if why.is_empty() {
                writeln!(text, "{line}")
            } else {
                writeln!(text, "{line}{}# {why}", " ".repeat(gap))
            };
        }
    }
    text
}

fn line(key: &'static str, value: impl Into<Value>, why: &str) -> TableLine {
    (key, value.into(), why.to_owned())
}

fn list<T: Into<Value>>(items: impl IntoIterator<Item = T>) -> Value {
    Value::Array(items.into_iter().collect::<Array>())
}

/// A storage's name, or a list of names.
fn storages(names: &StorageNames) -> Value {
    if names.is_list() {
        list(names.iter())
    } else {
        names.first().into()
    }
}

/// All tables, in the order in which a person reads them.
fn tables(wanted: &SetupSpec) -> Vec<(String, Vec<TableLine>)> {
    let mut all = vec![("proxmox".to_owned(), region(wanted))];
    let template = &wanted.template;
    all.push((
        format!("template.{}", template.name),
        self::template(wanted),
    ));
    if let TemplateSource::Build(build) = &template.source {
        let mut lines = vec![line("vmids", &build.vmids, "for built templates alone")];
        match &build.volume {
            Some(volume) => lines.push(line("volume", volume, "it lies there already")),
            None => lines.extend([
                line("image", &build.image, ""),
                line("checksum", &build.checksum, ""),
            ]),
        }
        let disk = if build.storage.is_list() {
            "where its disk lies: on each host the first that it has"
        } else {
            "where its disk lies"
        };
        lines.push(line("storage", storages(&build.storage), disk));
        lines.extend(software(build));
        if let Some(token) = &wanted.token {
            let pool = format!("{}-templates", token.resource_pool);
            lines.push(line(
                "resource_pool",
                pool,
                "the token may clone what is in it",
            ));
        }
        if !build.hosts.is_empty() {
            lines.push(line("hosts", list(&build.hosts), "it is built on these"));
        }
        if let Some(bridge) = &template.bridge {
            lines.push(line("bridge", bridge, "while it is built"));
        }
        if let Some(vlan) = template.vlan {
            lines.push(line("vlan", i64::from(vlan), ""));
        }
        all.push((format!("template.{}.build", template.name), lines));
    }
    if let Some(network) = &wanted.network {
        let lines = vec![
            line("subnet", &network.subnet, ""),
            line(
                "ranges",
                list(&network.ranges),
                "nobody else may give these out",
            ),
            line("gateway", &network.gateway, ""),
            line("nameservers", list(&network.nameservers), ""),
        ];
        all.push((format!("network.{NETWORK}"), lines));
    }
    for one in &wanted.types {
        let lines = vec![
            line("cores", i64::from(one.cores), ""),
            line("memory", &one.memory, ""),
            line("disk", DISK, "images, logs, emptyDir"),
        ];
        all.push((format!("instance_type.{}", one.name), lines));
    }
    all.push((format!("pool.{}", wanted.pool.name), pool(wanted)));
    if let Some(method) = wanted.pool.join {
        let lines = vec![line("method", method, "what the cluster is made of")];
        all.push((format!("pool.{}.join", wanted.pool.name), lines));
    }
    all
}

/// What is installed in a template that is built.
fn software(build: &BuildWanted) -> Vec<TableLine> {
    let version = |why| line("kubernetes", &build.kubernetes, why);
    match build.method {
        BuildMethod::Kubeadm => vec![version("kubelet and kubeadm in it")],
        BuildMethod::K3s => vec![
            line("method", "k3s", "what the cluster is made of"),
            version("no newer than the server"),
        ],
        BuildMethod::Command => vec![
            line("method", "command", "nothing but what this installs"),
            line("commands", list(&build.commands), ""),
        ],
    }
}

fn region(wanted: &SetupSpec) -> Vec<TableLine> {
    let mut lines = Vec::new();
    if let Some(token) = &wanted.token {
        lines.push(line("channel", "token", ""));
        lines.push(line("endpoints", list(&token.endpoints), ""));
        lines.push(line("token_id", &token.id, ""));
        lines.push(line("token_secret_file", &token.secret_file, ""));
        if let Some(fingerprint) = &token.fingerprint {
            lines.push(line("fingerprint", fingerprint, ""));
        }
        if let Some(file) = &token.ca_file {
            lines.push(line("ca_file", file, ""));
        }
    }
    lines.push(line("vmids", &wanted.vmids, "for machines alone"));
    lines
}

fn template(wanted: &SetupSpec) -> Vec<TableLine> {
    let template = &wanted.template;
    let mut lines = match &template.source {
        TemplateSource::Vmid(vmid) => {
            vec![line("vmid", i64::from(*vmid), "machines are clones of it")]
        }
        TemplateSource::Named(name) => vec![line(
            "vm_name",
            name,
            "the template of this name on each host",
        )],
        TemplateSource::Build(_) => Vec::new(),
    };
    if template.full {
        lines.push(line("clone", "full", "its storage has no linked clones"));
    }
    // A card of a built template is as the build says.
    if !matches!(template.source, TemplateSource::Build(_)) {
        if let Some(bridge) = &template.bridge {
            lines.push(line("bridge", bridge, ""));
        }
        if let Some(vlan) = template.vlan {
            lines.push(line("vlan", i64::from(vlan), ""));
        }
    }
    if let Some(why) = template.dhcp.filter(|_| wanted.network.is_none()) {
        lines.push(line("ipconfig", "ip=dhcp", why));
    }
    if let Some(token) = &wanted.token {
        let why = "the token has rights on what is in it";
        lines.push(line("resource_pool", &token.resource_pool, why));
    }
    lines
}

fn pool(wanted: &SetupSpec) -> Vec<TableLine> {
    let pool = &wanted.pool;
    let types = wanted.types.iter().map(|one| &one.name);
    let mut lines = vec![
        line("template", &wanted.template.name, ""),
        line("instance_types", list(types), "it takes what fits best"),
        line("min", i64::from(pool.min), ""),
        line("max", i64::from(pool.max), "nodes at most"),
    ];
    if wanted.network.is_some() {
        lines.push(line("network", NETWORK, ""));
    }
    if !pool.hosts.is_empty() {
        lines.push(line("hosts", list(&pool.hosts), ""));
    }
    lines
}

/// The text of a file that is configured, with what was answered changed in it, and nothing else. `named`: the name by which the template that
/// is answered by its VMID stands for those of other hosts, too.
pub(super) fn changed(
    existing: &Existing,
    answers: &SetupAnswers,
    named: Option<&str>,
) -> anyhow::Result<String> {
    let text = existing.text.clone().unwrap_or_default();
    let mut document: DocumentMut = text.parse().context("the configuration file")?;
    region_answers(&mut document, existing, answers)?;
    if !answers_of_a_pool(answers) {
        return Ok(document.to_string());
    }
    let pool = only(&document, "pool", answers.pool.name.as_deref())?;
    let template = match &answers.template.name {
        Some(name) => name.clone(),
        None => {
            let of_pool = document["pool"]
                .get(&pool)
                .and_then(|pool| pool.get("template"));
            let of_pool = of_pool.and_then(Item::as_str).map(str::to_owned);
            of_pool.with_context(|| format!("pool {pool} names no template"))?
        }
    };
    template_answers(&mut document, (&template, named), answers)?;
    network_answers(&mut document, &pool, answers)?;
    pool_answers(&mut document, &pool, answers)?;
    Ok(document.to_string())
}

/// Whether something is answered that stands in the tables of a pool, its template or its network.
fn answers_of_a_pool(answers: &SetupAnswers) -> bool {
    let (mut template, mut network, mut pool) = (
        answers.template.clone(),
        answers.network.clone(),
        answers.pool.clone(),
    );
    // These name what is meant, or how it is chosen, and are not written.
    (template.name, template.build, template.mirror) = (None, None, None);
    (network.addresses, pool.name) = (None, None);
    template != TemplateAnswers::default()
        || network != NetworkAnswers::default()
        || pool != PoolAnswers::default()
}

/// The name of the table of a kind that an answer means: the one that is named, or the only one.
fn only(document: &DocumentMut, kind: &str, named: Option<&str>) -> anyhow::Result<String> {
    let tables = document.get(kind).and_then(Item::as_table_like);
    let names: Vec<&str> = tables
        .into_iter()
        .flat_map(|all| all.iter())
        .map(|(name, _)| name)
        .collect();
    match named {
        Some(name) if names.contains(&name) => Ok(name.to_owned()),
        Some(name) => bail!(
            "{kind}.name: the file has no [{kind}.{name}], and setup adds none to a file that is configured; there are: {}",
            names.join(", ")
        ),
        None => match names.as_slice() {
            [name] => Ok((*name).to_owned()),
            _ => bail!(
                "the file has several: answer {kind}.name, one of {}",
                names.join(", ")
            ),
        },
    }
}

/// Sets a key, and keeps what stands beside it where the value is the same.
fn set(table: &mut dyn toml_edit::TableLike, key: &str, new: impl Into<Value>) {
    let new: Value = new.into();
    // What it says, not how it is written.
    let plain = |value: &Value| {
        toml::from_str::<toml::Table>(&format!("x = {}", value.to_string().trim())).ok()
    };
    match table.get_mut(key).and_then(Item::as_value_mut) {
        Some(old) if plain(old) == plain(&new) => {}
        Some(old) => {
            let decor = old.decor().clone();
            *old = new;
            *old.decor_mut() = decor;
        }
        None => {
            table.insert(key, value(new));
        }
    }
}

fn table_at<'a>(
    document: &'a mut DocumentMut,
    path: &[&str],
) -> anyhow::Result<&'a mut dyn toml_edit::TableLike> {
    let mut item = document.as_item_mut();
    for (depth, key) in path.iter().enumerate() {
        let table = item
            .as_table_like_mut()
            .with_context(|| format!("{} is no table", path[..depth].join(".")))?;
        let new = || {
            let mut table = Table::new();
            table.set_implicit(depth + 1 < path.len());
            Item::Table(table)
        };
        item = table.entry(key).or_insert_with(new);
    }
    let shown = path.join(".");
    item.as_table_like_mut()
        .with_context(|| format!("{shown} is no table"))
}

fn region_answers(
    document: &mut DocumentMut,
    existing: &Existing,
    answers: &SetupAnswers,
) -> anyhow::Result<()> {
    let proxmox = &answers.proxmox;
    let answered = [
        proxmox.vmids.as_ref(),
        proxmox.token_id.as_ref(),
        proxmox.fingerprint.as_ref(),
    ];
    if answered.iter().all(Option::is_none) && proxmox.endpoints.is_none() {
        return Ok(());
    }
    let path: Vec<&str> = match existing.region() {
        Some(_) if document.contains_key("proxmox") => vec!["proxmox"],
        Some((name, _)) => vec!["region", &**name],
        None => bail!("the file has several regions: change them by hand"),
    };
    let table = table_at(document, &path)?;
    if let Some(vmids) = &proxmox.vmids {
        set(table, "vmids", vmids);
    }
    if let Some(id) = &proxmox.token_id {
        set(table, "token_id", id);
    }
    if let Some(fingerprint) = &proxmox.fingerprint {
        set(table, "fingerprint", fingerprint);
    }
    if let Some(endpoints) = &proxmox.endpoints {
        set(table, "endpoints", list(endpoints));
    }
    Ok(())
}

fn template_answers(
    document: &mut DocumentMut,
    (name, named): (&str, Option<&str>),
    answers: &SetupAnswers,
) -> anyhow::Result<()> {
    let template = &answers.template;
    let table = table_at(document, &["template", name])?;
    let is_meant = named.is_some() && table.get("vm_name").and_then(Item::as_str) == named;
    if let Some(vmid) = template.vmid.filter(|_| !is_meant) {
        set(table, "vmid", i64::from(vmid));
        for other in ["vm_name", "tags"] {
            table.remove(other);
        }
    }
    // The card of a built template is the build's.
    let built = table.contains_key("build");
    let path = ["template", name, "build"];
    let card = table_at(document, if built { &path } else { &path[..2] })?;
    if let Some(bridge) = &answers.network.bridge {
        set(card, "bridge", bridge);
    }
    if let Some(vlan) = answers.network.vlan {
        set(card, "vlan", i64::from(vlan));
    }
    let of_build = [
        ("vmids", &template.vmids),
        ("image", &template.image),
        ("checksum", &template.checksum),
        ("kubernetes", &template.kubernetes),
    ];
    let of_build = of_build
        .iter()
        .filter_map(|(key, value)| Some((*key, value.as_ref()?)));
    let of_build: Vec<_> = of_build.collect();
    let hosts = template.hosts.as_ref().map(|_| "hosts");
    let storage = template.storage.as_ref().map(|_| "storage");
    let first = of_build.first().map(|(key, _)| *key);
    let Some(first) = first.or(storage).or(hosts) else {
        return Ok(());
    };
    if !built {
        bail!("template.{first}: [template.{name}] is not built by this file; set it by hand");
    }
    let table = table_at(document, &path)?;
    if let Some(hosts) = &template.hosts {
        set(table, "hosts", list(hosts));
    }
    if let Some(names) = &template.storage {
        set(table, "storage", storages(names));
    }
    let of_volume = of_build
        .iter()
        .any(|(key, text)| *key == "image" && is_volume(text));
    for (key, text) in of_build {
        if key == "checksum" && of_volume {
            continue;
        }
        if key == "image" && is_volume(text) {
            set(table, "volume", text);
            table.remove("image");
            table.remove("checksum");
            continue;
        }
        if key == "image" {
            table.remove("volume");
        }
        set(table, key, text);
    }
    Ok(())
}

fn network_answers(
    document: &mut DocumentMut,
    pool: &str,
    answers: &SetupAnswers,
) -> anyhow::Result<()> {
    let network = &answers.network;
    if network.subnet.is_none()
        && network.ranges.is_none()
        && network.gateway.is_none()
        && network.nameservers.is_none()
    {
        return Ok(());
    }
    let of_pool = table_at(document, &["pool", pool])?;
    let name = of_pool
        .get("network")
        .and_then(Item::as_str)
        .unwrap_or(NETWORK)
        .to_owned();
    set(of_pool, "network", &name);
    let table = table_at(document, &["network", &name])?;
    if let Some(subnet) = &network.subnet {
        set(table, "subnet", subnet);
    }
    if let Some(ranges) = &network.ranges {
        set(table, "ranges", list(ranges));
    }
    if let Some(gateway) = &network.gateway {
        set(table, "gateway", gateway);
    }
    if let Some(servers) = &network.nameservers {
        set(table, "nameservers", list(servers));
    }
    Ok(())
}

fn pool_answers(
    document: &mut DocumentMut,
    name: &str,
    answers: &SetupAnswers,
) -> anyhow::Result<()> {
    let pool = &answers.pool;
    let table = table_at(document, &["pool", name])?;
    for (key, number) in [("min", pool.min), ("max", pool.max)] {
        if let Some(number) = number {
            set(table, key, i64::from(number));
        }
    }
    if let Some(hosts) = &pool.hosts {
        set(table, "hosts", list(hosts));
    }
    let Some(types) = &pool.instance_types else {
        return Ok(());
    };
    let types = types.iter().map(|text| hardware::read(text));
    let types: Result<Vec<_>, String> = types.collect();
    let types = types.map_err(|why| anyhow::anyhow!("pool.instance_types: {why}"))?;
    set(
        table,
        "instance_types",
        list(types.iter().map(|one| &one.name)),
    );
    for one in types {
        let table = table_at(document, &["instance_type", &one.name])?;
        set(table, "cores", i64::from(one.cores));
        set(table, "memory", &one.memory);
        if !table.contains_key("disk") {
            set(table, "disk", DISK);
        }
    }
    Ok(())
}

/// The lines that differ, each with a sign in front, and one line around them.
pub(super) fn differences(old: &str, new: &str) -> String {
    let diff = TextDiff::from_lines(old, new);
    let mut text = String::new();
    for (number, group) in diff.grouped_ops(1).iter().enumerate() {
        if number > 0 {
            text.push_str("  …\n");
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let sign = match change.tag() {
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
                ChangeTag::Equal => ' ',
            };
            let _ = writeln!(text, "{sign} {}", change.value().trim_end_matches('\n'));
        }
    }
    text
}

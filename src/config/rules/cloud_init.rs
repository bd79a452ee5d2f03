//! Texts for cloud-init: read, and tried with a machine as there may be one.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use super::Problems;
use super::labels::SAMPLE;
use super::networks::Networks;
use super::pools::ResolvedPool;
use super::trials::TextTrials;
use crate::config::cloud_init::{CloudInitKind, GapValues, LONGEST, Nic};
use crate::config::file::{self, ConfigFile};
use crate::config::hardware::mac;
use crate::config::place::KeyPath;
use crate::config::settings::{CloudInitSettings, NetworkSettings, TemplateSettings};
use crate::model::facts::Facts;
use crate::model::policy::PoolPolicy;
use crate::model::words;

/// `[template.NAME.cloud_init]`.
pub(super) fn texts(
    written: &file::CloudInit,
    path: &KeyPath,
    problems: &mut Problems,
) -> Arc<CloudInitSettings> {
    let at = path.at("storage");
    let storage = problems.require(
        written.storage.clone(),
        &at,
        "the storage that the ISOs come to, such as \"local\"",
    );
    if let Some(names) = &storage {
        problems.storages(&at, names);
    }
    check_machine_config(written, path, problems);
    let mut text = |kind, key: &str, inline: &Option<String>, file: &Option<std::path::PathBuf>| {
        let in_file = format!("{key}_file");
        if inline.is_some() && file.is_some() {
            problems.add(
                &path.at(&in_file),
                format!("expected either {key} or {in_file}"),
            );
        }
        let (at, text) = match (inline, file) {
            (Some(text), _) => (path.at(key), text.clone()),
            (None, Some(file)) => {
                let at = path.at(&in_file);
                match read(file) {
                    Ok(text) => (at, text),
                    Err(why) => {
                        problems.add(&at, why);
                        return None;
                    }
                }
            }
            (None, None) => return None,
        };
        let filled = problems
            .trials
            .map(|trials| (trials.cloud_init)(kind, &text, &SAMPLE, &GapValues::sample()));
        if let Some(Err(why)) = filled {
            problems.add(&at, why);
        }
        Some(text)
    };
    let of = written;
    let (user, user_file) = (&of.user_data, &of.user_data_file);
    let (vendor, vendor_file) = (&of.vendor_data, &of.vendor_data_file);
    let (network, network_file) = (&of.network_config, &of.network_config_file);
    CloudInitSettings {
        user_data: text(CloudInitKind::User, "user_data", user, user_file),
        vendor_data: text(CloudInitKind::Vendor, "vendor_data", vendor, vendor_file),
        network_config: text(
            CloudInitKind::Network,
            "network_config",
            network,
            network_file,
        ),
        storage: storage.unwrap_or_default(),
        machine_config: written.machine_config_file.clone(),
    }
    .into()
}

/// Talos' machine configuration takes the place of cloud-init's texts.
fn check_machine_config(written: &file::CloudInit, path: &KeyPath, problems: &mut Problems) {
    let Some(file) = &written.machine_config_file else {
        return;
    };
    let at = path.at("machine_config_file");
    let alone = [
        written.user_data.is_none() && written.user_data_file.is_none(),
        written.vendor_data.is_none() && written.vendor_data_file.is_none(),
    ];
    problems.unless(!alone.contains(&false), &at, || {
        "expected neither user data nor vendor data beside it: Talos reads no others".to_owned()
    });
    problems.unless(file.is_absolute(), &at, || {
        "expected an absolute path".to_owned()
    });
}

fn read(path: &Path) -> Result<String, String> {
    if !path.is_absolute() {
        return Err("expected an absolute path".to_owned());
    }
    let about = std::fs::metadata(path).map_err(|error| format!("cannot be read: {error}"))?;
    if !about.is_file() {
        return Err("is no file".to_owned());
    }
    let most = u64::try_from(LONGEST).unwrap_or(u64::MAX);
    if about.len() > most {
        return Err(format!(
            "the file has {} bytes; expected at most {most}",
            about.len()
        ));
    }
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(most).read_to_string(&mut text))
        .map_err(|error| format!("cannot be read: {error}"))?;
    Ok(text)
}

/// Machines that join at their first boot are told so on an ISO, and need no guest agent.
pub(super) fn deliveries(
    templates: &mut BTreeMap<Arc<str>, TemplateSettings>,
    pools: &BTreeMap<Arc<str>, ResolvedPool>,
    problems: &mut Problems,
) {
    let places = pools.values();
    let places = places.flat_map(|pool| pool.policy.everywhere().map(move |there| (pool, there)));
    for (pool, there) in places {
        let template = templates.get(&there.template);
        let has = template.is_none_or(|template| template.cloud_init.is_some());
        let first = pool.settings.join.at_first_boot;
        problems.unless(has || !first, &pool.path.at("join").at("delivery"), || {
            format!(
                "cloud-init is told on an ISO: expected [template.{}.cloud_init] with its storage",
                there.template
            )
        });
        let texts = template.and_then(|template| template.cloud_init.as_ref());
        let talos = texts.is_some_and(|texts| texts.machine_config.is_some());
        let itself = pool.policy.joins_itself;
        problems.unless(itself || !talos, &pool.path.at("join").at("method"), || {
            format!(
                "machines of template {} join by their machine configuration; expected method = \"self\"",
                there.template
            )
        });
        let user = texts.and_then(|texts| texts.user_data.as_deref());
        let tried = problems.trials.zip(user);
        let refused =
            first && tried.is_some_and(|(trials, text)| (trials.refuses_vendor_data)(text));
        problems.unless(!refused, &pool.path.at("join").at("delivery"), || {
            format!(
                "the join comes with cloud-init's vendor data, and the user data of template {} say vendor_data: enabled: false",
                there.template
            )
        });
    }
    for (name, template) in templates {
        let mut of_it = pools
            .values()
            .filter(|pool| pool.policy.of_template(name).is_some())
            .peekable();
        template.first_boot =
            of_it.peek().is_some() && of_it.all(|pool| pool.settings.join.asks_nobody());
    }
}

/// Fills each text in for machines as each pool makes them: with their network cards and addresses, and no more.
pub(super) fn check_machines(
    file: &ConfigFile,
    templates: &BTreeMap<Arc<str>, TemplateSettings>,
    (pools, networks): (&BTreeMap<Arc<str>, ResolvedPool>, &Networks),
    problems: &mut Problems,
) {
    let Some(trials) = problems.trials else {
        return;
    };
    for (name, template) in templates {
        let (Some(texts), Some(written)) = (&template.cloud_init, file.template.get(&**name))
        else {
            continue;
        };
        let written = written.cloud_init.clone().unwrap_or_default();
        let path = KeyPath::default()
            .at("template")
            .at(&**name)
            .at("cloud_init");
        for (kind, key, text, own) in [
            (
                CloudInitKind::User,
                "user_data",
                &texts.user_data,
                written.user_data,
            ),
            (
                CloudInitKind::Vendor,
                "vendor_data",
                &texts.vendor_data,
                written.vendor_data,
            ),
            (
                CloudInitKind::Network,
                "network_config",
                &texts.network_config,
                written.network_config,
            ),
        ] {
            let Some(text) = text else { continue };
            // What is wrong for every machine was told.
            if (trials.cloud_init)(kind, text, &SAMPLE, &GapValues::sample()).is_err() {
                continue;
            }
            let all = pools.iter();
            let mut faults = all.filter_map(|(pool, resolved)| {
                let there = resolved.policy.of_template(name)?;
                fault(
                    trials,
                    (kind, text.as_str()),
                    (&**name, template),
                    (&**pool, there),
                    networks,
                )
            });
            if let Some(why) = faults.next() {
                let key = if own.is_some() {
                    key.to_owned()
                } else {
                    format!("{key}_file")
                };
                problems.add(&path.at(&key), why);
            }
        }
    }
}

/// What is wrong with a text for a pool's machines.
fn fault(
    trials: &TextTrials,
    (kind, text): (CloudInitKind, &str),
    (name, template): (&str, &TemplateSettings),
    (pool, there): (&str, &PoolPolicy),
    networks: &Networks,
) -> Option<String> {
    let words = machine_words(template, there, networks);
    there.instance_types.iter().find_map(|instance_type| {
        let facts = Facts {
            region: &template.region,
            pool,
            instance_type,
            ..SAMPLE
        };
        let why = (trials.cloud_init)(kind, text, &facts, &words).err()?;
        Some(for_machines(pool, name, &words, &why))
    })
}

/// What is wrong with a text for the machines that a pool makes of a template, and what it could name of their cards.
pub(super) fn for_machines(pool: &str, template: &str, words: &GapValues, why: &str) -> String {
    let addresses = words.nics.iter().map(|nic| nic.addresses.len());
    format!(
        "for machines of pool {pool}, which by this file have {} and {} known beforehand: {why}; [[template.{template}.nic]] means further cards, those that the template's VM has among them, and a [network.NAME] gives addresses",
        words::count(words.nics.len(), "network card"),
        match addresses.sum::<usize>() {
            0 => "no address".to_owned(),
            many => words::count(many, "address"),
        },
    )
}

/// What texts can name of a machine that a pool makes of a template. What the file leaves to the VM that is cloned is as it may be.
pub(super) fn machine_words(
    template: &TemplateSettings,
    there: &PoolPolicy,
    networks: &Networks,
) -> GapValues {
    let of_card = |card: u8| {
        let name = there.networks.get(&card)?;
        networks.get(name).map(|network| &network.settings)
    };
    let nics = template.cards().map(|(number, card)| {
        let prefix = template.hardware.mac_prefix.as_deref();
        let mac = mac(prefix.unwrap_or("bc:24:11"), SAMPLE.vmid, number).to_lowercase();
        let ipconfig = of_card(number).map_or(card.ipconfig, ipconfig);
        Nic::read(mac, ipconfig.as_deref())
    });
    let sample = GapValues::sample();
    let given = (0..=u8::MAX).filter_map(of_card);
    let given: Vec<&NetworkSettings> = given.collect();
    let first = |pick: fn(&NetworkSettings) -> &Option<String>, own: &Option<String>| {
        let mut given = given.iter().filter_map(|network| pick(network).clone());
        given.next().or_else(|| own.clone())
    };
    let nameservers = first(|network| &network.nameserver, &template.nameserver);
    let keys = template.ssh_keys.as_deref();
    GapValues {
        nics: nics.collect(),
        nameservers: nameservers.map_or(sample.nameservers, |text| {
            text.split_whitespace().map(str::to_owned).collect()
        }),
        searchdomain: first(|network| &network.searchdomain, &template.searchdomain)
            .unwrap_or(sample.searchdomain),
        user: template.ci_user.clone().unwrap_or(sample.user),
        ssh_keys: keys.map_or(sample.ssh_keys, |keys| {
            keys.lines().map(str::to_owned).collect()
        }),
        zone: sample.zone,
        labels: sample.labels,
        taints: sample.taints,
        provider_id: sample.provider_id,
    }
}

/// What a network gives the first machine that has it.
fn ipconfig(network: &NetworkSettings) -> Option<String> {
    let sources = [&network.ipv4, &network.ipv6].into_iter();
    let first: Vec<IpAddr> = sources
        .filter_map(|source| Some(source.ranges().first()?.first))
        .collect();
    network.ipconfig(&first).ok()
}

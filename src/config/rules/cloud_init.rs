//! Texts for cloud-init: read, and tried with a machine as there may be one.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use super::labels::SAMPLE;
use super::pools::ResolvedPool;
use super::{Problems, syntax};
use crate::config::cloud_init::{self, Kind, LONGEST, Words};
use crate::config::file;
use crate::config::place::KeyPath;
use crate::config::settings::{CloudInit, Template};

/// `[template.NAME.cloud_init]`.
pub(super) fn texts(
    written: &file::CloudInit,
    path: &KeyPath,
    problems: &mut Problems,
) -> Arc<CloudInit> {
    let at = path.at("storage");
    let storage = problems.require(
        written.storage.clone(),
        &at,
        "the storage that the ISOs come to, such as \"local\"",
    );
    problems.text(&at, storage.as_deref(), syntax::pve_id, "a storage's name");
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
        if let Err(why) = cloud_init::filled(kind, &text, &SAMPLE, &Words::sample()) {
            problems.add(&at, why);
        }
        Some(text)
    };
    let (user, vendor) = (&written.user_data, &written.vendor_data);
    let network = &written.network_config;
    CloudInit {
        user_data: text(Kind::User, "user_data", user, &written.user_data_file),
        vendor_data: text(
            Kind::Vendor,
            "vendor_data",
            vendor,
            &written.vendor_data_file,
        ),
        network_config: text(
            Kind::Network,
            "network_config",
            network,
            &written.network_config_file,
        ),
        storage: storage.unwrap_or_default(),
    }
    .into()
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
    templates: &mut BTreeMap<Arc<str>, Template>,
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
    }
    for (name, template) in templates {
        let mut of_it = pools
            .values()
            .filter(|pool| pool.policy.of_template(name).is_some())
            .peekable();
        template.first_boot =
            of_it.peek().is_some() && of_it.all(|pool| pool.settings.join.at_first_boot);
    }
}

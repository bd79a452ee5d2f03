//! Labels and annotations of nodes.

use std::collections::BTreeMap;

use super::{Problems, shared};
use crate::config::file;
use crate::config::place::KeyPath;
use crate::config::syntax;
use crate::model::facts::{self, Facts};
use crate::model::policy::{INSTANCE_TYPE_LABEL, REGION_LABEL, ZONE_LABEL};
use crate::model::scheduling::Labels;

/// Labels that this program or the kubelet sets itself.
const OWN_LABELS: [&str; 8] = [
    INSTANCE_TYPE_LABEL,
    ZONE_LABEL,
    REGION_LABEL,
    "kubernetes.io/hostname",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/os",
];

/// A machine as there may be one: what texts with gaps are tried with.
pub(super) const SAMPLE: Facts<'static> = Facts {
    machine: "pool-abcde",
    vmid: 9000,
    host: "pve1",
    region: "default",
    pool: "pool",
    instance_type: "type",
};

/// The labels of an instance type.
pub(super) fn of_type(
    written: &BTreeMap<String, String>,
    name: &str,
    path: &KeyPath,
    problems: &mut Problems,
) -> Labels {
    let sample = Facts {
        instance_type: name,
        ..SAMPLE
    };
    labels(written, &sample, path, problems)
}

/// The labels of a pool.
pub(super) fn of_pool(pool: &file::Pool, path: &KeyPath, problems: &mut Problems) -> Labels {
    let host = pool.hosts.iter().max_by_key(|host| host.len());
    let sample = Facts {
        pool: path.0.last().map_or(SAMPLE.pool, String::as_str),
        host: host.map_or(SAMPLE.host, String::as_str),
        ..SAMPLE
    };
    labels(&pool.labels, &sample, &path.at("labels"), problems)
}

fn labels(
    written: &BTreeMap<String, String>,
    sample: &Facts<'_>,
    path: &KeyPath,
    problems: &mut Problems,
) -> Labels {
    for (key, value) in written {
        check_key(key, path, problems);
        problems.unless(!OWN_LABELS.contains(&key.as_str()), &path.at(key), || {
            "is set by the program itself".to_owned()
        });
        let filled = if facts::has_gaps(value) {
            filled(value, sample, &path.at(key), problems)
        } else {
            Some(value.clone())
        };
        let Some(filled) = filled else { continue };
        problems.unless(syntax::label_value(&filled), &path.at(key), || {
            let rule = "expected a label's value: letters, digits, '-', '_' and '.', at most 63";
            if filled == *value {
                rule.to_owned()
            } else {
                format!("{rule}; with host {} it comes to {filled:?}", sample.host)
            }
        });
    }
    written
        .iter()
        .map(|(key, value)| (shared(key), shared(value)))
        .collect()
}

/// The annotations of a pool's nodes.
pub(super) fn annotations(pool: &file::Pool, path: &KeyPath, problems: &mut Problems) -> Labels {
    let path = path.at("annotations");
    for (key, value) in &pool.annotations {
        check_key(key, &path, problems);
        if facts::has_gaps(value) {
            filled(value, &SAMPLE, &path.at(key), problems);
        }
    }
    let written = pool.annotations.iter();
    written
        .map(|(key, value)| (shared(key), shared(value)))
        .collect()
}

/// A text as it comes to for a sample, if texts are tried; what is wrong with it is a problem at `path`.
pub(super) fn filled(
    text: &str,
    sample: &Facts<'_>,
    path: &KeyPath,
    problems: &mut Problems,
) -> Option<String> {
    let trials = problems.trials?;
    match (trials.fill)(text, sample, &[]) {
        Ok(filled) => Some(filled),
        Err(why) => {
            problems.add(path, why);
            None
        }
    }
}

fn check_key(key: &str, path: &KeyPath, problems: &mut Problems) {
    problems.unless(syntax::label_key(key), &path.at(key), || {
        "expected a key such as example.com/name".to_owned()
    });
    problems.unless(
        !key.starts_with("pve-autoscaler.io/"),
        &path.at(key),
        || "keys of pve-autoscaler.io are the program's own".to_owned(),
    );
}

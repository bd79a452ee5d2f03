//! Keys of which each is right and that cannot be meant together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Problems;
use super::pools::ResolvedPool;
use crate::config::file::{self, BuildMethod, ConfigFile, Method};
use crate::config::scalar::Size;
use crate::config::settings::TemplateSettings;
use crate::model::policy::{InstanceType, PoolPolicy};
use crate::model::words;

type TypesByName = BTreeMap<Arc<str>, InstanceType>;
type TemplatesByName = BTreeMap<Arc<str>, TemplateSettings>;
type Pools = BTreeMap<Arc<str>, ResolvedPool>;
/// A limit's key, how much it is, the least that a machine has, and how that is shown.
type LimitCheck<'l> = (&'l str, Option<i64>, Option<i64>, &'l dyn Fn(i64) -> String);

/// What no pool can mean.
pub(super) fn check(
    file: &ConfigFile,
    types: &TypesByName,
    pools: &Pools,
    problems: &mut Problems,
) {
    for (name, pool) in pools {
        let Some(written) = file.pool.get(&**name) else {
            continue;
        };
        check_taints(written, pool, problems);
        check_method(written, (pool, file), problems);
        problems.unless(
            written.keep_failed <= pool.policy.max || written.max.is_none(),
            &pool.path.at("keep_failed"),
            || {
                format!(
                    "expected at most max, which is {}: machines that are kept count for it",
                    pool.policy.max
                )
            },
        );
        check_room(written, (pool, types), problems);
    }
}

/// A template that is built has what its machines are joined by.
fn check_method(
    written: &file::Pool,
    (pool, file): (&ResolvedPool, &ConfigFile),
    problems: &mut Problems,
) {
    let named = pool.policy.everywhere().map(|there| &*there.template);
    for template in named.collect::<BTreeSet<_>>() {
        let build = file
            .template
            .get(template)
            .and_then(|one| one.build.as_ref());
        let Some(build) = build else { continue };
        let (needs, installed) = match (written.join.method, build.method) {
            (Method::K3s, BuildMethod::Kubeadm) => ("k3s", "kubeadm"),
            (Method::Rke2, BuildMethod::Kubeadm) => ("command", "kubeadm"),
            (Method::Kubeadm, BuildMethod::K3s) => ("kubeadm", "k3s"),
            (Method::Rke2, BuildMethod::K3s) => ("command", "k3s"),
            _ => continue,
        };
        problems.add(
            &pool.path.at("join").at("method"),
            format!(
                "template {template} is built for method = \"{installed}\"; expected [template.{template}.build] method = \"{needs}\""
            ),
        );
    }
}

/// A node has a taint once, and a startup taint goes.
fn check_taints(written: &file::Pool, pool: &ResolvedPool, problems: &mut Problems) {
    for (position, startup) in written.startup_taints.iter().enumerate() {
        let mut taints = written.taints.iter();
        let same = taints
            .any(|taint| (&taint.0.key, taint.0.effect) == (&startup.0.key, startup.0.effect));
        problems.unless(!same, &pool.path.at("startup_taints").at(&position), || {
            "is in taints too: a startup taint is taken off by somebody, the others stay; expected one of the two".to_owned()
        });
    }
}

/// The pool's own limits leave room for its smallest machine, and for `min` of them.
fn check_room(
    written: &file::Pool,
    (pool, types): (&ResolvedPool, &TypesByName),
    problems: &mut Problems,
) {
    let kinds = pool.policy.instance_types.iter();
    let kinds: Vec<&InstanceType> = kinds.filter_map(|kind| types.get(kind)).collect();
    let memory = kinds.iter().map(|kind| kind.memory).min();
    let cores = kinds.iter().map(|kind| i64::from(kind.cores) * 1000).min();
    let size = |bytes: i64| Size(bytes).to_string();
    let cpus = |milli: i64| words::count(milli / 1000, "core");
    let limits: [LimitCheck<'_>; 2] = [
        (
            "max_memory",
            written.max_memory.map(|size| size.0),
            memory,
            &size,
        ),
        ("max_cpu", written.max_cpu.map(|cpu| cpu.0), cores, &cpus),
    ];
    for (key, limit, smallest, shown) in limits {
        let Some((limit, smallest)) = limit.zip(smallest) else {
            continue;
        };
        if smallest > limit {
            problems.add(
                &pool.path.at(key),
                format!(
                    "no machine of the pool fits into it: the smallest of its instance types has {}",
                    shown(smallest)
                ),
            );
            continue;
        }
        let wanted = smallest.saturating_mul(i64::from(written.min));
        problems.unless(wanted <= limit, &pool.path.at("min"), || {
            format!(
                "{} of the smallest instance type have {}, more than {key} lets the pool have",
                words::count(written.min, "node"),
                shown(wanted)
            )
        });
    }
}

/// What is allowed but can hardly be meant.
pub(super) fn warn(
    file: &ConfigFile,
    types: &TypesByName,
    (templates, pools): (&TemplatesByName, &Pools),
    warnings: &mut Vec<String>,
) {
    for (name, pool) in pools {
        let Some(written) = file.pool.get(&**name) else {
            continue;
        };
        if written.keep_failed == 0
            && written.keep_failed_for != file::Pool::default().keep_failed_for
        {
            warnings.push(format!(
                "pool.{name}.keep_failed_for: no machine is kept without keep_failed beside it"
            ));
        }
        // A pool with a max of 0 is being removed: nothing of it is replaced.
        let fixed = pool.policy.min == pool.policy.max && pool.policy.max > 0;
        if pool.policy.rollout.is_some() && fixed {
            warnings.push(format!(
                "pool.{name}.max: no outdated node can be replaced while the pool has as many nodes as min and max say; one more than min leaves room for the new one"
            ));
        }
        warnings.extend(prices(name, &pool.policy, types));
        for there in pool.policy.everywhere() {
            warnings.extend(unused_network(name, there, templates));
        }
    }
}

/// Of two types of which one has a price nobody can say which is cheaper.
fn prices(name: &str, pool: &PoolPolicy, types: &TypesByName) -> Option<String> {
    let kinds = pool.instance_types.iter();
    // A type with devices needs no price: without one it is dearer than any other.
    let kinds = kinds.filter(|kind| types.get(*kind).is_some_and(|kind| kind.pci.is_empty()));
    let (with, without): (Vec<&Arc<str>>, Vec<&Arc<str>>) =
        kinds.partition(|kind| types.get(*kind).is_some_and(|kind| kind.price.is_some()));
    (!with.is_empty() && !without.is_empty()).then(|| {
        format!(
            "pool.{name}.instance_types: {} has a price and {} none, and what has none is priced by cores and memory: give prices to all types of a pool or to none",
            words::names(with),
            words::names(without)
        )
    })
}

/// A network configuration of one's own takes the place of PVE's, and the addresses with it.
fn unused_network(name: &str, there: &PoolPolicy, templates: &TemplatesByName) -> Option<String> {
    let network = there.networks.values().next()?;
    let texts = templates.get(&there.template)?.cloud_init.as_ref()?;
    let text = texts.network_config.as_deref()?;
    (!text.contains("addresses")).then(|| {
        format!(
            "template.{}.cloud_init.network_config: it names no addresses, and machines of pool {name} get theirs of network {network}: they would have none of them",
            there.template
        )
    })
}

//! `check`: is the file right, and does what it names exist?

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::path::Path;

use super::args::CheckOptions;
use super::output::sentences;
use super::{CliFailure, doctor, load, runtime, write};
use crate::config::scalar::Overcommit;
use crate::config::settings::WebSettings;
use crate::config::{self, Settings};
use crate::model::hosts::{LoadKind, StorageFloor};
use crate::model::policy::{Policy, PoolPolicy};
use crate::model::words;
use crate::web::access::Access;

/// Checks the file, and with `--live` what it names.
pub(super) fn run(path: &Path, options: &CheckOptions) -> Result<(), CliFailure> {
    let mut report = doctor::DoctorReport::default();
    if options.live {
        // Before anything is read: the file itself may be one that the daemon cannot read.
        report = doctor::as_user(&options.look.user);
        write(&sentences(&report.lines()))?;
        if report.verdict() == doctor::Grade::Wrong {
            return Err(CliFailure::Said);
        }
        report = doctor::DoctorReport::default();
    }
    let settings = load(path)?;
    let summary = summary(&path.display().to_string(), &settings);
    write(&sentences(&summary))?;
    write(&sentences(&web_files(&settings.web)))?;
    if !options.live || !settings.configured {
        return Ok(());
    }
    let here = doctor::Here::of(path, settings, &options.look);
    runtime()?.block_on(doctor::look(&here, &mut report));
    write(&sentences(&report.lines()))?;
    doctor::ended(report.verdict())
}

/// What is wrong with the files that `[web]` names, as far as they can be seen from here; empty when nothing is. `doctor` looks with
/// the daemon's rights.
fn web_files(web: &WebSettings) -> String {
    match Access::open(web) {
        Ok(_) => String::new(),
        Err(why) => format!(
            "warning: [web]: {why}; until that is mended a reload leaves the page as it is, without a login where it has none, and the daemon does not start\n"
        ),
    }
}

/// What a valid file means, in a few lines.
fn summary(name: &str, settings: &Settings) -> String {
    let mut text = format!("{name}: valid\n");
    if !settings.configured {
        let _ = writeln!(
            text,
            "not configured: the file has no {}; the service runs and does nothing. `{}` proposes it",
            if settings.regions.is_empty() {
                "[proxmox]"
            } else {
                "[pool.NAME]"
            },
            config::command_for("pve-autoscaler setup", name)
        );
    }
    for (name, region) in &settings.policy.regions {
        let _ = writeln!(
            text,
            "region {name}: VMIDs {} to {}",
            region.vmid_first, region.vmid_last
        );
    }
    for (name, pool) in &settings.policy.pools {
        let _ = writeln!(
            text,
            "pool {name}: {} to {} nodes of {}, {}",
            pool.min,
            pool.max,
            pool.instance_types.join(", "),
            sources(pool, &settings.policy)
        );
        for there in pool.everywhere() {
            let of = if pool.further.is_empty() {
                String::new()
            } else {
                format!(" in {}", there.region)
            };
            let _ = writeln!(text, "pool {name}{of}: {}", hosts(there));
        }
        let Some(join) = settings.pools.get(name).map(|pool| &pool.join) else {
            continue;
        };
        let _ = write!(
            text,
            "pool {name}: machines join by {}",
            join.method.called()
        );
        if let Some(id) = &join.provider_id {
            let _ = write!(text, ", nodes have the provider id {id}");
        }
        text.push('\n');
    }
    for warning in &settings.warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    text
}

/// Where the machines of a pool come from: the region that is taken first comes first.
fn sources(pool: &PoolPolicy, policy: &Policy) -> String {
    let one = |there: &PoolPolicy| format!("template {}, region {}", there.template, there.region);
    if pool.further.is_empty() {
        return one(pool);
    }
    let price = |there: &PoolPolicy| policy.price_in(&there.region, 1000);
    let mut all: Vec<&PoolPolicy> = pool.everywhere().collect();
    all.sort_by_key(|there| (Reverse(there.weight), price(there)));
    let told = all.iter().map(|there| {
        let mut text = one(there);
        if there.weight != 0 {
            let _ = write!(text, ", weight {}", there.weight);
        }
        let price = price(there);
        if price != 1000 {
            let _ = write!(text, ", prices times {}", Overcommit(price));
        }
        text
    });
    let told: Vec<String> = told.collect();
    format!("over {} regions: {}", told.len(), told.join("; "))
}

/// Which hosts a pool uses, and in which order.
fn hosts(pool: &PoolPolicy) -> String {
    let rules = &pool.host_rules;
    let mut text = if pool.hosts.is_empty() {
        "all hosts".to_owned()
    } else {
        format!("hosts {}", pool.hosts.join(", "))
    };
    if !rules.exclude.is_empty() {
        let _ = write!(text, " without {}", rules.exclude.join(", "));
    }
    let _ = write!(text, ", host_strategy {}", rules.strategy);
    if let Some(most) = rules.max_per_host {
        let _ = write!(
            text,
            ", {} on one at most",
            words::count(most as usize, "machine")
        );
    }
    if rules.min_free_memory > 0 {
        let memory = words::bytes(rules.min_free_memory);
        let _ = write!(text, ", {memory} of memory stay free");
    }
    if rules.min_free_cpu_milli > 0 {
        let cores = words::cores(rules.min_free_cpu_milli);
        let _ = write!(text, ", {cores} cores stay free");
    }
    match rules.min_free_storage {
        Some(StorageFloor::Bytes(bytes)) => {
            let _ = write!(text, ", {} of each storage stay free", words::bytes(bytes));
        }
        Some(StorageFloor::Permille(part)) => {
            let _ = write!(text, ", {} of each storage stay free", words::percent(part));
        }
        None => {}
    }
    for kind in [LoadKind::Cpu, LoadKind::Memory, LoadKind::CpuPressure] {
        if let Some(most) = rules.most(kind) {
            let _ = write!(text, ", {} {}", kind.key(), words::percent(most));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_page_that_are_not_there_are_told() {
        let web = |users_file: Option<&Path>| WebSettings {
            listen: ([127, 0, 0, 1], 9808).into(),
            tls: None,
            users_file: users_file.map(Path::to_owned),
        };
        assert_eq!(web_files(&web(None)), "");
        let folder = tempfile::tempdir().expect("a folder");
        let users = folder.path().join("users");
        let said = web_files(&web(Some(&users)));
        assert!(
            said.starts_with("warning: [web]: ") && said.contains("without a login"),
            "{said}"
        );
        assert!(said.contains(&users.display().to_string()), "{said}");
    }

    #[test]
    fn a_pool_says_which_hosts_it_uses() {
        let said = |lines: &str| {
            let text = format!(
                "version = 1\n[proxmox]\nvmids = \"9000-9019\"\n[template.debian]\nvmid = 8000\n[instance_type.s]\n\
                 cores = 2\nmemory = \"4GiB\"\n[pool.small]\ntemplate = \"debian\"\ninstance_types = [\"s\"]\nmax = 3\n{lines}"
            );
            let settings = crate::config::parse(&text, "test").unwrap_or_else(|e| panic!("{e}"));
            summary("test", &settings)
        };
        let all = said("");
        assert!(
            all.contains("pool small: all hosts, host_strategy spread\n"),
            "{all}"
        );
        let some = said(
            "hosts = [\"a\", \"b\", \"c\"]\nexclude_hosts = [\"c\"]\nhost_strategy = \"max-cpu\"\nmax_per_host = 2\n\
             min_free_memory = \"8GiB\"\nmin_free_cores = 1.5\nmin_free_storage = \"7.5%\"",
        );
        let line = "pool small: hosts a, b, c without c, host_strategy max-cpu, 2 machines on one at most, 8Gi of memory stay \
                    free, 1.5 cores stay free, 7.5 % of each storage stay free\n";
        assert!(some.contains(line), "{some}");
    }
}

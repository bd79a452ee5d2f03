//! What the file says of hosts, for the region and for pools.

use super::{SMALL, messages, parse};
use crate::model::hosts::{HostStrategy, StorageFloor};

#[test]
fn a_pool_has_the_hosts_of_its_region_but_for_those_that_either_excludes() {
    let text = SMALL
        .replace(
            "vmids = \"9000-9019\"",
            "vmids = \"9000-9019\"\nhosts = [\"a\", \"b\", \"c\"]\nexclude_hosts = [\"a\"]\nhost_strategy = \"max-cpu\"\n\
             max_per_host = 4\ncpu_overcommit = 2.5\nmemory_overcommit = 0.9\nmin_free_cores = 2\nmin_free_memory = \"8GiB\"\nmin_free_storage = \"10%\"\n\
             max_cpu_load = 0.8\nmax_memory_load = 0.9\nmax_pressure = 0.2",
        )
        .replace(
            "max = 3",
            "max = 3\nexclude_hosts = [\"c\"]\nmin_free_cores = 0\nmax_per_host = 1\n\
             max_memory_load = 1\nmax_pressure = 0.1",
        );
    let settings = parse(&text, "test.toml").unwrap_or_else(|e| panic!("{e}"));
    let pool = &settings.policy.pools["small"];
    let may: Vec<bool> = ["a", "b", "c", "d"].map(|host| pool.may_use(host)).into();
    assert_eq!(may, [false, true, false, false]);
    let rules = &pool.host_rules;
    assert_eq!(rules.strategy, HostStrategy::MaxCpu);
    assert_eq!(
        (rules.min_free_cpu_milli, rules.min_free_memory),
        (0, 8 << 30)
    );
    assert_eq!(rules.max_per_host, Some(1));
    assert_eq!(rules.min_free_storage, Some(StorageFloor::Permille(100)));
    let loads = (
        rules.max_cpu_load,
        rules.max_memory_load,
        rules.max_pressure,
    );
    assert_eq!(loads, (Some(800), None, Some(100)));
    let capacity = &settings.policy.regions["default"].capacity;
    assert_eq!(
        (
            capacity.memory_overcommit_permille,
            capacity.cpu_overcommit_permille
        ),
        (900, Some(2500))
    );
    assert_eq!(capacity.max_per_host, Some(4));
    let allowed = &settings.broker.allow.pools["small"];
    assert_eq!(allowed.exclude_hosts, ["a", "c"]);
}

#[test]
fn a_pool_has_its_own_free_storage_or_none_in_place_of_its_regions() {
    let floor = |region: &str, pool: &str| {
        let text = SMALL
            .replace(
                "vmids = \"9000-9019\"",
                &format!("vmids = \"9000-9019\"\n{region}"),
            )
            .replace("max = 3", &format!("max = 3\n{pool}"));
        let settings = parse(&text, "test.toml").unwrap_or_else(|e| panic!("{e}"));
        settings.policy.pools["small"].host_rules.min_free_storage
    };
    let region = "min_free_storage = \"10%\"";
    assert_eq!(floor("", ""), None);
    assert_eq!(floor(region, ""), Some(StorageFloor::Permille(100)));
    let own = floor(region, "min_free_storage = \"50GiB\"");
    assert_eq!(own, Some(StorageFloor::Bytes(50 << 30)));
    assert_eq!(floor(region, "min_free_storage = \"0%\""), None);
    let said = messages(&SMALL.replace("max = 3", "max = 3\nmin_free_storage = 50"));
    assert!(
        said.contains("a percentage of the storage below 100"),
        "{said}"
    );
}

#[test]
fn hosts_that_leave_a_pool_nothing_are_said() {
    let with = |region: &str, pool: &str| {
        let text = SMALL.replace(
            "vmids = \"9000-9019\"",
            &format!("vmids = \"9000-9019\"\n{region}"),
        );
        messages(&text.replace("max = 3", &format!("max = 3\n{pool}")))
    };
    for (region, pool, said) in [
        (
            "exclude_hosts = [\"a\"]",
            "hosts = [\"a\", \"b\"]",
            "pool.small.hosts.0 = \"a\": the region excludes a",
        ),
        (
            "hosts = [\"a\", \"b\"]",
            "hosts = [\"c\"]",
            "pool.small.hosts.0 = \"c\": the region's hosts are a, b",
        ),
        (
            "hosts = [\"a\", \"b\"]\nexclude_hosts = [\"b\", \"a\"]",
            "",
            "proxmox.exclude_hosts: all hosts of the region are excluded (a, b); expected one of them not among exclude_hosts",
        ),
        (
            "hosts = [\"a\"]",
            "exclude_hosts = [\"a\"]",
            "pool.small.exclude_hosts: all hosts that the pool may use are excluded (a)",
        ),
        (
            "host_strategy = \"cheapest\"",
            "",
            "unknown value `cheapest`",
        ),
        ("max_per_host = 0", "", "expected at least 1"),
        ("cpu_overcommit = 0", "", "a number from 0.1 to 100"),
        (
            "memory_overcommit = \"much\"",
            "",
            "a number from 0.1 to 100",
        ),
        ("", "exclude_hosts = [\"b b\"]", "a PVE host's name"),
    ] {
        let messages = with(region, pool);
        assert!(messages.contains(said), "{region} {pool}: {messages}");
    }
}

#[test]
fn what_has_no_effect_or_cannot_be_kept_is_warned_of() {
    let text = SMALL
        .replace(
            "vmids = \"9000-9019\"",
            "vmids = \"9000-9019\"\nhost_cores_reserve = 2\nmemory_overcommit = 90\nhosts = [\"a\", \"b\"]",
        )
        .replace("max = 3", "max = 3\nmax_per_host = 1");
    let settings = parse(&text, "test.toml").unwrap_or_else(|e| panic!("{e}"));
    let warnings = settings.warnings.join("\n");
    for said in [
        "proxmox.host_cores_reserve: has no effect",
        "proxmox.memory_overcommit: 90 promises guests 90 times",
        "pool.small.max_per_host: 1 on each of 2 hosts are 2 machines, max is never reached",
    ] {
        assert!(warnings.contains(said), "{warnings}");
    }
    let fine = SMALL.replace(
        "vmids = \"9000-9019\"",
        "vmids = \"9000-9019\"\nhost_cores_reserve = 2\ncpu_overcommit = 1\nmemory_overcommit = 1.5",
    );
    let settings = parse(&fine, "test.toml").unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(settings.warnings, Vec::<String>::new());
}

/// Hosts and the machines that each may have, the pool's bound or its region's: what they hold is fewer than `min` or `max`.
#[test]
fn more_machines_than_the_hosts_may_ever_have_are_warned_of() {
    let warned = |region: &str, pool: &str| {
        let region = format!("vmids = \"9000-9019\"\n{region}");
        let text = SMALL.replace("vmids = \"9000-9019\"", &region);
        let text = text.replace("max = 3", pool);
        let settings = parse(&text, "test.toml").unwrap_or_else(|e| panic!("{e}"));
        settings.warnings.join("\n")
    };
    let (one, two) = ("hosts = [\"a\"]", "hosts = [\"a\", \"b\"]");
    let capped = |hosts: &str, most: u32| format!("{hosts}\nmax_per_host = {most}");
    for (region, pool, said) in [
        (
            one,
            "max = 3\nmin = 3\nmax_per_host = 1",
            "pool.small.max_per_host: 1 on each of 1 host is 1 machine, min is never reached",
        ),
        (
            &*capped(one, 1),
            "max = 5\nmin = 3",
            "pool.small.min: 1 on each of 1 host (max_per_host of the region default) is 1 machine, min is never reached",
        ),
        (
            &*capped(two, 1),
            "max = 3\nmax_per_host = 2",
            "pool.small.max: 1 on each of 2 hosts (max_per_host of the region default) are 2 machines, max is never reached",
        ),
        (
            &*format!("{}\nexclude_hosts = [\"b\"]", capped(two, 2)),
            "max = 3\nmax_per_host = 1\nmin = 2",
            "pool.small.max_per_host: 1 on each of 1 host is 1 machine, min is never reached",
        ),
    ] {
        assert_eq!(warned(region, pool), said, "{region} {pool}");
    }
    for (region, pool) in [
        // How many hosts there are the file does not say.
        ("max_per_host = 1", "max = 3\nmin = 3"),
        (one, "max = 3\nmin = 3"),
        (&*capped(one, 3), "max = 3\nmin = 3\nmax_per_host = 3"),
    ] {
        assert_eq!(warned(region, pool), "", "{region} {pool}");
    }
}

#[test]
fn a_host_has_reserves_and_overcommit_of_its_own() {
    let text = SMALL.replace(
        "vmids = \"9000-9019\"",
        "vmids = \"9000-9019\"\nhost_memory_reserve = \"4GiB\"\nhost_cores_reserve = 1\ncpu_overcommit = 3\n\
         [proxmox.host.tiny]\nhost_memory_reserve = \"8GiB\"\nmemory_overcommit = 0.5\n\
         [proxmox.host.big]\nhost_cores_reserve = \"500m\"\ncpu_overcommit = 1",
    );
    let settings = parse(&text, "test.toml").unwrap_or_else(|e| panic!("{e}"));
    assert!(settings.warnings.is_empty(), "{:?}", settings.warnings);
    let region = &settings.policy.regions["default"];
    let bounds = ["tiny", "big", "other"].map(|host| {
        let bounds = region.bounds_of(host);
        (
            bounds.memory_reserve >> 30,
            bounds.cpu_reserve_milli,
            bounds.memory_overcommit_permille,
            bounds.cpu_overcommit_permille,
        )
    });
    assert_eq!(
        bounds,
        [
            (8, 1000, 500, Some(3000)),
            (4, 500, 1000, Some(1000)),
            (4, 1000, 1000, Some(3000)),
        ]
    );
}

#[test]
fn what_is_wrong_or_in_vain_of_a_hosts_own_table_is_said() {
    let with = |lines: &str| {
        SMALL.replace(
            "vmids = \"9000-9019\"",
            &format!("vmids = \"9000-9019\"\n{lines}"),
        )
    };
    for (lines, said) in [
        (
            "hosts = [\"a\"]\n[proxmox.host.b]\nmemory_overcommit = 2",
            "the region's hosts are a",
        ),
        (
            "[proxmox.host.\"b b\"]\nmemory_overcommit = 2",
            "expected the name of a host",
        ),
        (
            "[proxmox.host.b]\nmax_per_host = 2",
            "unknown key `max_per_host`",
        ),
        (
            "[proxmox.host.b]\ncpu_overcommit = 0",
            "a number from 0.1 to 100",
        ),
    ] {
        let messages = messages(&with(lines));
        assert!(messages.contains(said), "{lines}: {messages}");
    }
    let warnings = |lines: &str| {
        let settings = parse(&with(lines), "test.toml").unwrap_or_else(|e| panic!("{e}"));
        settings.warnings.join("\n")
    };
    for (lines, said) in [
        (
            "exclude_hosts = [\"b\"]\n[proxmox.host.b]\nmemory_overcommit = 2",
            "proxmox.host.b: has no effect, since exclude_hosts names b",
        ),
        (
            "[proxmox.host.b]\nhost_cores_reserve = 2",
            "proxmox.host.b.host_cores_reserve: has no effect without cpu_overcommit",
        ),
        (
            "[proxmox.host.b]\nmemory_overcommit = 90",
            "proxmox.host.b.memory_overcommit: 90 promises guests 90 times",
        ),
        (
            "host_cores_reserve = 2\n[proxmox.host.b]\ncpu_overcommit = 2\nhost_cores_reserve = 1",
            "proxmox.host_cores_reserve: has no effect",
        ),
    ] {
        let warnings = warnings(lines);
        assert!(warnings.contains(said), "{lines}: {warnings}");
    }
    for fine in [
        "host_cores_reserve = 2\n[proxmox.host.b]\ncpu_overcommit = 2",
        "cpu_overcommit = 2\n[proxmox.host.b]\nhost_cores_reserve = 1",
        "[proxmox.host.b]\ncpu_overcommit = 2\nhost_cores_reserve = 1",
    ] {
        assert_eq!(warnings(fine), "", "{fine}");
    }
}

//! A pool of one region, and one over several.

use super::{messages, parse};
use crate::config::Settings;

/// Two regions, of which the first is this host's.
fn text(pool: &str, west: &str) -> String {
    format!(
        r#"
version = 1
[region.east]
vmids = "9000-9019"
hosts = ["pve1", "pve2"]
[region.west]
channel = "token"
endpoints = ["https://west.example:8006"]
token_id = "scaler@pve!sim"
token_secret_file = "/etc/pve-autoscaler/west.token"
ca_file = "/etc/pve-autoscaler/west.pem"
vmids = "9000-9019"
host_strategy = "pack"
exclude_hosts = ["pve9"]
{west}
[template.debian]
region = "east"
vmid = 8000
[template.debian-other]
region = "east"
vmid = 8001
[template.debian-west]
region = "west"
vm_name = "debian"
[instance_type.s]
cores = 2
memory = "4GiB"
[pool.small]
{pool}
instance_types = ["s"]
max = 3
"#
    )
}

fn settings(pool: &str, west: &str) -> Settings {
    parse(&text(pool, west), "test.toml").unwrap_or_else(|e| panic!("{e}"))
}

const BOTH: &str = "templates = [\"debian-west\", \"debian\"]\nweight = 5";

#[test]
fn a_pool_with_templates_is_in_the_region_of_each() {
    let settings = settings(BOTH, "price_factor = 1.25\nweight = -2");
    assert!(settings.policy.regions["east"].price_permille.is_none());
    assert_eq!(settings.policy.regions["west"].price_permille, Some(1250));
    let pool = &settings.policy.pools["small"];
    let there: Vec<(&str, &str, i32, u32)> = pool
        .everywhere()
        .map(|there| (&*there.region, &*there.template, there.weight, there.max))
        .collect();
    assert_eq!(
        there,
        [("east", "debian", 5, 3), ("west", "debian-west", 3, 3)]
    );
    let may = |region: &str| {
        let there = pool.at(region).expect("a region of the pool");
        ["pve1", "pve3", "pve9"].map(|host| there.may_use(host))
    };
    assert_eq!(may("east"), [true, false, false]);
    assert_eq!(may("west"), [true, true, false]);
    assert!(pool.at("north").is_none());
    // The broker is that of this host's region.
    let allowed = &settings.broker.allow;
    assert_eq!(allowed.pools["small"].template_vmid, Some(8000));
    assert_eq!(allowed.pools["small"].hosts, ["pve1", "pve2"]);
    assert_eq!(allowed.template_names, Vec::<String>::new());
    let unused: Vec<&String> = settings.warnings.iter().collect();
    assert_eq!(unused, ["template.debian-other: no pool uses it"]);
}

#[test]
fn templates_that_do_not_go_together_are_said() {
    for (pool, said) in [
        (
            "templates = [\"debian\", \"debian-other\"]",
            "pool.small.templates.1 = \"debian-other\": is in the region east, as debian is; expected one template of each region",
        ),
        (
            "templates = [\"debian\", \"debian\"]",
            "pool.small.templates.1 = \"debian\": is there twice",
        ),
        (
            "templates = [\"debian\", \"ubuntu\"]",
            "pool.small.templates.1 = \"ubuntu\": there is no table [template.ubuntu]",
        ),
        (
            "template = \"debian\"\ntemplates = [\"debian-west\"]",
            "pool.small.template = \"debian\": expected either template or templates",
        ),
        (
            "region = \"east\"\ntemplates = [\"debian\", \"debian-west\"]",
            "pool.small.region = \"east\": ",
        ),
    ] {
        let all = messages(&text(pool, ""));
        assert!(all.contains(said), "{said:?} is not in {all}");
    }
    // Each region may get all machines of the pool.
    let few = text(BOTH, "").replacen(
        "9000-9019\"\nhost_strategy",
        "9000-9001\"\nhost_strategy",
        1,
    );
    let all = messages(&few);
    assert!(all.contains("region.west.vmids"), "{all}");
    let odd = messages(&text(BOTH, "price_factor = 0"));
    assert!(odd.contains("region.west.price_factor"), "{odd}");
}

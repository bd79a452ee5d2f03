//! Instance types by a matrix.

use super::{SMALL, messages, parse};
use crate::model::resources::huge_pages_of;

const MATRIX: &str = "
[instance_matrix.general]
cores = [2, 4]
memory_per_core = [\"1536MiB\", \"4GiB\"]
disk = \"20GiB\"
price_per_core = 0.01
price_per_gib = 0.002
labels = { \"example.com/size\" = \"{{ instance_type }}\" }
extended = { \"example.com/fuse\" = 8 }
";

fn with(matrix: &str, types: &str) -> String {
    let text = SMALL.replace("[\"s\"]", types);
    format!("{text}{matrix}")
}

#[test]
fn a_matrix_means_a_type_for_each_pair_by_names_that_say_it() {
    let text = with(MATRIX, "[\"general\", \"s\"]");
    let text = text.replacen("memory = \"4GiB\"", "memory = \"4GiB\"\nprice = 0.02", 1);
    let settings = parse(&text, "test.toml").unwrap_or_else(|e| panic!("{e}"));
    let pool = &settings.policy.pools["small"];
    let names: Vec<&str> = pool.instance_types.iter().map(|name| &**name).collect();
    let of_matrix = [
        "general-2c-3g",
        "general-2c-8g",
        "general-4c-6g",
        "general-4c-16g",
    ];
    assert_eq!(names[..4], of_matrix);
    assert_eq!(names[4], "s");
    let kind = &settings.policy.instance_types["general-4c-16g"];
    assert_eq!(
        (kind.cores, kind.memory, kind.disk),
        (4, 16 << 30, 20 << 30)
    );
    assert_eq!(kind.price, Some(4 * 10_000 + 16 * 2_000));
    assert_eq!(kind.extended["example.com/fuse"], 8);
    let allowed = &settings.broker.allow.types["general-4c-16g"];
    assert_eq!((allowed.cores, allowed.memory), (4, 16 << 30));
    assert!(settings.warnings.is_empty(), "{:?}", settings.warnings);
}

#[test]
fn a_size_that_is_no_whole_number_of_gib_is_named_in_mib_and_one_type_can_be_named() {
    let one = MATRIX.replace("[2, 4]", "[1, 3]");
    let text = with(&one, "[\"s\", \"general-1c-1536m\"]");
    let settings = parse(&text, "test.toml").unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(
        settings.policy.instance_types["general-1c-1536m"].memory,
        1536 << 20
    );
    assert_eq!(
        settings.policy.instance_types["general-3c-4608m"].memory,
        4608 << 20
    );
    assert_eq!(settings.policy.pools["small"].instance_types.len(), 2);
    // Without prices a type is priced as any other is.
    let free = one.replace("price_per_core = 0.01\nprice_per_gib = 0.002\n", "");
    let settings = parse(&with(&free, "[\"general\", \"s\"]"), "test.toml").expect("a valid file");
    assert_eq!(settings.policy.instance_types["general-1c-4g"].price, None);
}

#[test]
fn what_a_matrix_cannot_mean_is_said_where_it_stands() {
    let pool = "[\"s\", \"general\"]";
    let both = "[instance_type.general-2c-8g]\ncores = 2\nmemory = \"8GiB\"\n";
    let twin = "[instance_type.general]\ncores = 2\nmemory = \"8GiB\"\n";
    let mut wrong = Vec::new();
    for (matrix, types, said) in [
        (
            format!("{MATRIX}{both}"),
            pool,
            "instance_matrix.general: it means an instance type general-2c-8g, and there is a table [instance_type.general-2c-8g]",
        ),
        (
            format!(
                "{MATRIX}[instance_matrix.general-2c-8g]\ncores = [1]\nmemory_per_core = [\"1GiB\"]\n"
            ),
            pool,
            "instance_matrix.general-2c-8g: [instance_matrix.general] means an instance type of this name too",
        ),
        (
            format!("{MATRIX}{twin}"),
            pool,
            "instance_matrix.general: there is a table [instance_type.general] too",
        ),
        (
            MATRIX.replace("[2, 4]", "[2, 2]"),
            pool,
            "instance_matrix.general.cores.1 = 2: is named twice",
        ),
        (
            MATRIX.replace("[2, 4]", "[0]"),
            pool,
            "instance_matrix.general.cores.0: expected at least 1",
        ),
        (
            MATRIX.replace("[2, 4]", "[]"),
            pool,
            "instance_matrix.general.cores: expected a list of numbers of cores",
        ),
        (
            MATRIX.replace("cores = [2, 4]\n", ""),
            pool,
            "instance_matrix.general.cores: is missing; expected a list",
        ),
        (
            MATRIX.replace("1536MiB", "100MiB"),
            pool,
            "the type general-2c-200m would have 200MiB of memory; expected whole MiB, at least 512MiB",
        ),
        (
            MATRIX.replace("20GiB", "20MiB"),
            pool,
            "instance_matrix.general.disk = \"20MiB\": expected whole GiB",
        ),
        (
            MATRIX.replace("[2, 4]", &format!("{:?}", (1..=40).collect::<Vec<u32>>())),
            pool,
            "instance_matrix.general: it means 80 instance types; expected at most 64",
        ),
        (
            MATRIX.to_owned(),
            "[\"general\", \"general-2c-8g\", \"s\"]",
            "pool.small.instance_types.1 = \"general-2c-8g\": the instance type general-2c-8g is named twice",
        ),
        (
            MATRIX.to_owned(),
            "[\"s\", \"general-2c-9g\"]",
            "there is no table [instance_type.general-2c-9g] and no [instance_matrix.general-2c-9g]",
        ),
        (
            MATRIX.replace("4GiB", "65GiB"),
            "[\"general\", \"s\"]\nreserved = { cpu = \"3\" }",
            "nothing of the CPUs of instance type general-2c-3g is left for pods",
        ),
    ] {
        let told = messages(&with(&matrix, types));
        if !told.contains(said) {
            wrong.push(format!("{matrix}: {told}, not {said}"));
        }
        let once = told
            .lines()
            .filter(|line| line.contains("instance_matrix.general.disk"));
        assert!(
            once.count() < 2,
            "what is the same for all is said once: {told}"
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_matrix_that_no_pool_names_looks_like_a_mistake() {
    let settings = parse(&with(MATRIX, "[\"s\"]"), "test.toml").expect("a valid file");
    assert_eq!(
        settings.warnings,
        ["instance_matrix.general: no pool uses it"]
    );
}

#[test]
fn huge_pages_are_part_of_a_types_memory() {
    let with_pages = |pages: &str| {
        let text = SMALL.replace("memory = \"4GiB\"", &format!("memory = \"4GiB\"\n{pages}"));
        assert_ne!(text, SMALL);
        text
    };
    let half =
        with_pages("extended = { \"hugepages-2Mi\" = \"1Gi\", \"hugepages-1Gi\" = \"1Gi\" }");
    let settings = parse(&half, "test.toml").unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(
        huge_pages_of(&settings.policy.instance_types["s"].extended),
        2 << 30
    );
    let all = "extended = { \"hugepages-2Mi\" = \"2Gi\", \"hugepages-1Gi\" = \"2Gi\" }";
    let found = messages(&with_pages(all));
    let said = "huge pages of 4GiB are taken off its memory, which is 4GiB: expected less";
    assert!(
        found.contains("instance_type.s.extended") && found.contains(said),
        "{found}"
    );
    // What is left of 4 GiB the kernel keeps.
    let most = with_pages("extended = { \"hugepages-2Mi\" = \"4094Mi\" }");
    let found = messages(&most);
    let said = "nothing of the memory of instance type s is left for pods beside its 4094MiB of huge pages";
    assert!(
        found.contains("pool.small.reserved.memory") && found.contains(said),
        "{found}"
    );
    // The smallest type of a matrix tells.
    let matrix = MATRIX.replace("\"example.com/fuse\" = 8", "\"hugepages-2Mi\" = \"3Gi\"");
    let found = messages(&with(&matrix, "[\"general\", \"s\"]"));
    let said =
        "huge pages of 3GiB are taken off general-2c-3g's memory, which is 3GiB: expected less";
    assert!(
        found.contains("instance_matrix.general.extended") && found.contains(said),
        "{found}"
    );
}

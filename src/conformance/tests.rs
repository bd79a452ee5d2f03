//! What the runner says of files: right ones, wrong ones, and wrong ones beside right ones.

use std::path::Path;

use super::{CaseVerdict, run};

fn verdicts(files: &[(&str, &str)]) -> Vec<CaseVerdict> {
    let folder = tempfile::tempdir().expect("a directory");
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).expect("a directory");
        std::fs::write(path, text).expect("it is written");
    }
    run(folder.path(), None, |_| ()).expect("the directory is there")
}

fn lines(files: &[(&str, &str)]) -> Vec<String> {
    verdicts(files).iter().map(ToString::to_string).collect()
}

/// One case, said to be wrong in these words.
fn wrong(case: &str, words: &[&str]) {
    let line = lines(&[("a.yaml", case)]).join("\n");
    for word in words {
        assert!(
            line.starts_with("FAIL ") && line.contains(word),
            "{word:?} is not in {line}"
        );
    }
}

const FITS: &str = "id: A\npools: [{name: ng, cpu: 1, memory: 1Gi}]\npods: [{name: p, cpu: 500m}]\n\
                    when: plan_scale_up\nthen: {new_nodes: 1}\n";

#[test]
fn cases_come_in_files_documents_and_lists() {
    let many = format!("{FITS}---\n{}", FITS.replace("id: A", "id: B"));
    let list = FITS
        .replace("id: A", "- id: C")
        .replace('\n', "\n  ")
        .trim_end()
        .to_owned();
    let table = "id = \"D\"\nwhen = \"plan\"\n[[pools]]\nname = \"ng\"\ncpu = 1\nmemory = \"1Gi\"\n\
                 [[pods]]\nname = \"p\"\n[then]\nnew_nodes = 1\n";
    let files = [
        ("a.yaml", &*many),
        ("b/c.yml", &*list),
        ("b/d.toml", table),
        ("e.txt", "no"),
    ];
    assert_eq!(lines(&files), ["ok A", "ok B", "ok C", "ok D"]);
}

#[test]
fn a_broken_file_stops_nothing() {
    let files = [
        ("a.yaml", "id: [1\nfoo"),
        ("b.yaml", FITS),
        ("c.toml", "id = \n"),
        ("d.yaml", "id: X\n---\nid: : :\n  -"),
        ("e.yaml", ""),
    ];
    let lines = lines(&files);
    assert!(lines[0].starts_with("FAIL a.yaml: a.yaml:"), "{lines:?}");
    assert_eq!(lines[1], "ok A");
    assert!(lines[2].contains("c.toml:1: expected TOML"), "{lines:?}");
    assert!(
        lines[3].starts_with("FAIL X: d.yaml:1: a case needs"),
        "{lines:?}"
    );
    assert!(lines[4].starts_with("FAIL d.yaml: d.yaml:"), "{lines:?}");
    assert_eq!(lines.len(), 5);
}

#[test]
fn an_id_is_used_once() {
    let lines = lines(&[("a.yaml", FITS), ("b.yaml", FITS)]);
    assert_eq!(lines[0], "ok A");
    assert!(lines[1].contains("A is in a.yaml:1 already"), "{lines:?}");
}

#[test]
fn a_miss_says_what_was_expected_and_what_came() {
    let case = FITS.replace("new_nodes: 1", "new_nodes: [{type: other, count: 2}]");
    wrong(
        &case,
        &["expected new nodes 2 × any/other, got 1: 1 × ng/ng on z1 with p"],
    );
    let case = FITS.replace("new_nodes: 1", "placed: {p: none}");
    wrong(&case, &["expected p on none, got the new node"]);
}

#[test]
fn what_is_not_known_is_named_with_line_and_what_is() {
    wrong(
        &FITS.replace("cpu: 500m", "cpus: 500m"),
        &[
            "a.yaml:3",
            "has no key \"cpus\"",
            "known here: affinity, age",
            "did you mean \"cpu\"?",
        ],
    );
    wrong(
        &FITS.replace("500m", "fast"),
        &["a.yaml:3", "\"fast\" is not a quantity"],
    );
    wrong(
        &FITS.replace("new_nodes", "new_node"),
        &[
            "a.yaml:5",
            "has no key \"new_node\"",
            "did you mean \"new_nodes\"?",
        ],
    );
    wrong(
        &FITS.replace("plan_scale_up", "grow"),
        &["a.yaml:4", "plan_scale_up", "found \"grow\""],
    );
    wrong(
        &FITS.replace("memory: 1Gi", "memory: 1Gi, node: x"),
        &["a.yaml:2", "\"node\""],
    );
    wrong(&format!("{FITS}fixture: XX\n"), &["known: KF, CF"]);
    wrong(&format!("{FITS}id: B\n"), &["a.yaml:6", "there twice"]);
    wrong(
        &FITS.replace("cpu: 500m", "node: n9"),
        &["n9", "is no node"],
    );
    wrong(
        &format!("{FITS}settings: {{scale_up: {{speed: 3}}}}\n"),
        &["has no key \"speed\"", "max_nodes_total"],
    );
    wrong(
        &format!("{FITS}settings: {{scale-down-uneeded-time: 3m}}\n"),
        &["a.yaml:6", "did you mean \"unneeded_time\"?"],
    );
    wrong(
        &FITS.replace("{new_nodes: 1}", "{placed: {q: new}}"),
        &["there is no pod \"q\""],
    );
}

/// What hosts, guests, templates and networks have is read as strictly as all else.
#[test]
fn what_hosts_cannot_have_is_said() {
    for (given, word) in [
        (
            "hosts: [{name: a, storage: [fast]}]",
            "a host has no key \"storage\"; did you mean \"storages\"?",
        ),
        (
            "hosts: [{name: a, pci: {gpu: 1000}}]",
            "at most 250 devices",
        ),
        (
            "hosts: [{name: a, evacuated: soon}]",
            "expected true, false, or since when",
        ),
        ("hosts: [{name: a, maintenance: 5m}]", "true or false"),
        (
            "nodes: [{name: n1, pool: ng, drifted: [templates]}]",
            "unknown variant `templates`",
        ),
        (
            "nodes: [{name: n1, drifted: template}]",
            "a node has no key \"drifted\"",
        ),
        (
            "hosts: [{name: a, storages: {fast: {size: 1Gi, used: 2Gi}}}]",
            "more in use than its size",
        ),
        (
            "hosts: [{name: a, topology: {numa: [0-3], threads: 0}}]",
            "a core has at least one thread",
        ),
        (
            "hosts: [{name: a, topology: {numa: [0-3, 3-5]}}]",
            "the CPUs 3 are named twice",
        ),
        (
            "hosts: [{name: a, topology: {numa: [0-3], cores: [0-1]}}]",
            "cores must name the CPUs of numa, which are 0-3",
        ),
        (
            "hosts: [{name: a, topology: {numa: [0-3], devices: {gpu: 1}}}]",
            "numbers of the host's 1 NUMA nodes",
        ),
        (
            "hosts: [{name: a, topology: {numa: [0-3], numa_memory: [1Gi, 1Gi]}}]",
            "one size for each of the 1 NUMA nodes",
        ),
        (
            "networks: {lan: 192.0.2.9-192.0.2.1}",
            "expected addresses such as",
        ),
        (
            "networks: {lan: [192.0.2.1-192.0.2.5, 192.0.2.5]}",
            "have addresses in common",
        ),
        (
            "hosts: [alpha]\nguests: [{name: g, host: alpa}]",
            "there is no host \"alpa\"; did you mean \"alpha\"?",
        ),
        (
            "guests: [{name: g, host: z1, affinty: 0-3}]",
            "did you mean \"affinity\"?",
        ),
        (
            "template: {storage: fast}",
            "the template template names a storage that no host has",
        ),
        (
            "template: {hosts: [z9]}",
            "a host that is not there, \"z9\"",
        ),
        ("template: {clones_to: fast}", "needs the key storage"),
    ] {
        wrong(&format!("{FITS}{given}\n"), &["a.yaml:", word]);
    }
    let of_pool = |key: &str| FITS.replace("memory: 1Gi", &format!("memory: 1Gi, {key}"));
    wrong(
        &format!("{}networks: {{lan: 192.0.2.1}}\n", of_pool("network: lam")),
        &["the network \"lam\"; did you mean \"lan\"?"],
    );
    wrong(
        &format!(
            "{}templates: {{debian: {{}}}}\n",
            of_pool("template: debain")
        ),
        &["the template \"debain\"; did you mean \"debian\"?"],
    );
    wrong(&of_pool("hugepages: 4K"), &["expected 2M, 1G or any"]);
    wrong(
        &of_pool("max_rollout_parallelism: 2"),
        &["means something only with replace_drifted or expire_after"],
    );
}

/// What is expected of addresses and CPUs is compared with what was planned.
#[test]
fn addresses_and_cpus_of_the_plan_are_compared() {
    let given = "hosts: [{name: a, topology: {numa: [0-3], reserved: 0-1}}]\n\
                 networks: {lan: 192.0.2.1-192.0.2.9}\n";
    let case = FITS.replace(
        "memory: 1Gi",
        "memory: 1Gi, network: lan, cpu_pinning: true",
    );
    let case = |then: &str| format!("{}{given}", case.replace("{new_nodes: 1}", then));
    let right = case("{addresses: [192.0.2.1], cpus: [\"2\"]}");
    assert_eq!(lines(&[("a.yaml", &right)]), ["ok A"]);
    wrong(
        &case("{addresses: [192.0.2.2]}"),
        &["expected new machines with the addresses 192.0.2.2, got 192.0.2.1"],
    );
    wrong(
        &case("{cpus: [\"3\"]}"),
        &["expected new machines with the CPUs of their own 3, got 2"],
    );
    wrong(&case("{cpus: []}"), &["CPUs of their own none, got 2"]);
}

#[test]
fn a_case_that_expects_nothing_is_none() {
    wrong(
        &FITS.replace("then: {new_nodes: 1}\n", ""),
        &["a step needs the key then"],
    );
}

#[test]
fn one_of_the_alternatives_is_enough() {
    let either = FITS.replace(
        "then: {new_nodes: 1}",
        "alternatives: [{new_nodes: 7}, {new_nodes: 1}]",
    );
    assert_eq!(lines(&[("a.yaml", &either)]), ["ok A"]);
    let neither = either.replace("{new_nodes: 1}", "{new_nodes: 3}");
    wrong(
        &neither,
        &[
            "none of 2 alternatives holds",
            "expected 7 new nodes",
            "expected 3 new nodes",
        ],
    );
}

#[test]
fn hostile_files_are_answered() {
    let deep = format!("id: {}", "[".repeat(5000));
    let bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\n\
                c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\n\
                e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]\n\
                g: [*f,*f,*f,*f,*f,*f,*f,*f,*f,*f]\n";
    for text in [
        &*deep,
        bomb,
        "\u{0}",
        "id: 1\nwhen: &x *x\n",
        "[]",
        "7",
        "id: {}\n",
    ] {
        let verdicts = verdicts(&[("a.yaml", text)]);
        assert!(
            verdicts.iter().all(|verdict| !verdict.ok),
            "{text:.40}: {verdicts:?}"
        );
    }
}

#[test]
fn what_is_expected_of_nothing_is_an_error() {
    let words = ["needs the key when"];
    wrong(&FITS.replace("when: plan_scale_up\n", ""), &words);
    wrong(
        &FITS
            .replace("when: plan_scale_up\n", "")
            .replace("then: {new_nodes: 1}", "alternatives: [{new_nodes: 1}]"),
        &words,
    );
    let steps = "steps: [{when: plan_scale_up, then: {new_nodes: 1}}, {then: {new_nodes: 1}}]\n";
    let case = FITS.replace("when: plan_scale_up\nthen: {new_nodes: 1}\n", steps);
    wrong(&case, &words);
}

#[test]
fn what_expects_nothing_is_an_error() {
    for then in ["{}", "~", "[]"] {
        wrong(&FITS.replace("{new_nodes: 1}", then), &["proves nothing"]);
    }
}

#[test]
fn a_malformed_manifest_is_said_and_ends_nothing() {
    for manifest in [
        "{metadata: web, spec: {}}",
        "{metadata: {labels: [a]}, spec: {}}",
        "{metadata: {name: p}, spec: none}",
        "{metadata: {name: p}, spec: {affinity: strict}}",
        "{metadata: {name: p}, spec: {affinity: {podAffinity: [x]}}}",
        "{metadata: {name: p}, spec: {affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [x]}}}}",
        "{metadata: {name: p}, spec: {nodeSelector: fast}}",
        "{metadata: {name: p}, spec: {}, status: Running}",
        "[a, b]",
        "web",
    ] {
        for pods in [
            format!("pods: [{{manifest: {manifest}, labels: {{a: b}}}}]"),
            format!("manifests: [{manifest}]"),
            format!("nodes: [{{name: n, manifest: {manifest}}}]"),
        ] {
            let case = format!("id: A\n{pods}\nwhen: plan\nthen: {{new_nodes: 0}}\n");
            let all = lines(&[
                ("a.yaml", &case),
                ("b.yaml", &FITS.replace("id: A", "id: B")),
            ]);
            assert_eq!(
                all.last().map(String::as_str),
                Some("ok B"),
                "{pods}: {all:?}"
            );
            assert!(
                all[0].starts_with("FAIL ") && all[0].contains("a.yaml:"),
                "{pods}: {all:?}"
            );
        }
    }
}

#[test]
fn more_than_a_case_can_need_is_said() {
    for pods in [
        "{name: p, count: 4000000000}",
        "{name: \"p-{i}\", count: 4000000000, labels: {a: \"{i}\"}}",
    ] {
        wrong(&FITS.replace("{name: p, cpu: 500m}", pods), &["at most"]);
    }
    let nodes = format!("nodes: [{{name: n, count: 4000000000}}]\n{FITS}");
    wrong(&nodes, &["at most"]);
}

/// Values that people and scripts write where something else belongs.
const ODD: &[&str] = &[
    "",
    "~",
    "[]",
    "{}",
    "[x]",
    "{x: y}",
    "-1",
    "0",
    "9223372036854775807",
    "-9223372036854775808",
    "99999999999999999999",
    "1e400",
    "292277026596y",
    "106751991167d",
    "9007199254740993Ei",
    "\"\\0\"",
    "\"\u{202e}\"",
    "ü",
    "true",
    "2026-13-41T00:00:00Z",
    "-9999-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999Z",
    "1/0",
    "0/0",
    "{i}",
    "*x",
    "&x [*x]",
    "!!binary x",
];

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(96))]

    /// Every case file of the project with one value or line of it replaced, moved or doubled.
    #[test]
    fn no_damage_to_a_case_ends_the_program(
        which in 0usize..1_000,
        edits in proptest::collection::vec((0usize..100_000, 0usize..8, 0usize..ODD.len()), 1..4),
    ) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance");
        let mut files: Vec<_> = std::fs::read_dir(folder)
            .expect("it is there")
            .map(|entry| entry.expect("read").path())
            .filter(|path| path.extension().is_some_and(|e| e == "yaml"))
            .collect();
        files.sort();
        let text = std::fs::read_to_string(&files[which % files.len()]).expect("read");
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        // One case of it is damaged and run: the others take time and say the same.
        let begins = |line: &str| line.trim_start_matches([' ', '-']).starts_with("id: ");
        let heads: Vec<usize> = (0..lines.len()).filter(|at| begins(&lines[*at])).collect();
        let Some(head) = heads.get(which % heads.len().max(1)).copied() else {
            return Ok(());
        };
        let id = lines[head].trim_start_matches([' ', '-']).trim_start_matches("id: ").to_owned();
        let end = heads.iter().copied().find(|next| *next > head).unwrap_or(lines.len());
        for (at, how, odd) in edits {
            let at = (head + 1 + at % (end - head)).min(lines.len() - 1);
            let line = lines[at].clone();
            match how {
                0 => drop(lines.remove(at)),
                1 => lines.insert(at, line),
                2 => lines[at] = format!("  {line}"),
                3 => lines[at] = line.trim_start().to_owned(),
                _ => {
                    let colons: Vec<usize> = line.match_indices(": ").map(|(at, _)| at + 2).collect();
                    let Some(from) = colons.get(odd % colons.len().max(1)).copied() else {
                        continue;
                    };
                    let rest = &line[from..];
                    let to = rest.find([',', '}', ']']).filter(|_| how != 4).unwrap_or(rest.len());
                    lines[at] = format!("{}{}{}", &line[..from], ODD[odd], &rest[to..]);
                }
            }
        }
        let folder = tempfile::tempdir().expect("a directory");
        std::fs::write(folder.path().join("a.yaml"), lines.join("\n")).expect("it is written");
        let _ = run(folder.path(), Some(&id), |_| ()).expect("the directory is there");
    }

    #[test]
    fn no_text_ends_the_program(text in "(?s).{0,200}", depth in 0usize..3_000, open in "[\\[{\\-]|a: |- ") {
        let deep = format!("id: A\npods: {}\n", open.repeat(depth));
        let _ = verdicts(&[("a.yaml", &text), ("b.toml", &text), ("c.yaml", &deep)]);
    }
}

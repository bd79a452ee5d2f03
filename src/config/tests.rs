mod bounds;
mod cloud_init;
mod contradictions;
mod creations;
mod hardware;
mod hosts;
mod joining;
mod matrix;
mod messages;
mod networks;
mod notifications;
mod options;
mod regions;
mod storages;
mod telemetry;
mod topology;

use std::fmt::Write as _;

use super::settings::Channel;
use super::*;
use crate::model::time::Span;

/// A complete small file; tests append to it.
const SMALL: &str = r#"
version = 1

[proxmox]
vmids = "9000-9019"

[template.debian]
vmid = 8000

[instance_type.s]
cores = 2
memory = "4GiB"

[pool.small]
template = "debian"
instance_types = ["s"]
max = 3
"#;

fn errors(text: &str) -> String {
    match parse(text, "test.toml") {
        Ok(_) => "no errors".to_owned(),
        Err(errors) => errors.to_string(),
    }
}

/// The messages alone, one a line.
fn messages(text: &str) -> String {
    let Err(errors) = parse(text, "test.toml") else {
        return String::new();
    };
    errors
        .problems
        .iter()
        .fold(String::new(), |mut all, problem| {
            let value = problem
                .value
                .as_deref()
                .map(|value| format!(" = {value}"))
                .unwrap_or_default();
            let _ = writeln!(all, "{}{value}: {}", problem.key, problem.message);
            all
        })
}

#[test]
fn the_small_file_is_enough() {
    let settings = parse(SMALL, "test.toml").unwrap_or_else(|e| panic!("{e}"));
    assert!(settings.configured);
    let pool = &settings.policy.pools["small"];
    assert_eq!(
        (&*pool.region, pool.min, pool.max, pool.max_pods),
        ("default", 0, 3, 110)
    );
    assert_eq!(settings.policy.instance_types["s"].memory, 4 << 30);
    assert_eq!(settings.regions["default"].channel, Channel::Local);
    assert_eq!(settings.broker.allow.vmids, [(9000, 9019)]);
    assert_eq!(settings.broker.allow.template_vmids, [8000]);
    assert_eq!(settings.broker.allow.max_memory, 4 << 30);
    assert_eq!(
        settings.policy.scale_down,
        crate::model::policy::ScaleDown::default()
    );
    assert_eq!(
        settings.policy.scale_up,
        crate::model::policy::ScaleUp::default()
    );
    assert!(settings.warnings.is_empty());
}

#[test]
fn a_file_with_nothing_in_it_is_valid_and_not_configured() {
    let settings = parse("version = 1\n", "test.toml").unwrap_or_else(|e| panic!("{e}"));
    assert!(!settings.configured);
}

#[test]
fn all_that_is_wrong_is_said_at_once_and_where() {
    insta::assert_snapshot!(errors(
        r#"
version = 1
colour = "red"

[proxmox]
vmids = "9000-8999"

[template.debian]
vmid = 8000
bridge = "vmbr 0"

[instance_type.s]
cores = "two"
memory = 4096

[pool.small]
template = "debian"
instance_types = ["s", "m"]
min = 5
max = 3
labels = { "a b" = "c", ok = true }
taints = ["dedicated=gpu:NoSchedule", "dedicated"]

[scale_down]
unneeded_time = "ten minutes"
utilization_threshold = 50
"#
    ));
}

#[test]
fn syntax_errors_name_the_place() {
    insta::assert_snapshot!(errors(
        "version = 1\n[proxmox\nvmids = \n[pool.a]\nmax = 1\nmax = 2\n"
    ));
}

#[test]
fn syntax_errors_name_key_and_value_too() {
    let text = "version = 1
[proxmox]
vmids = 9000-9999
[instance_type.s]
memory = 4GiB
cores = two
[pool.a]
[pool.a]
";
    assert_eq!(
        messages(text),
        "proxmox.vmids = 9000-9999: expected a value: a number, true or false, a list, or text in quotes such as \"4GiB\"
instance_type.s.memory = 4GiB: expected a value: a number, true or false, a list, or text in quotes such as \"4GiB\"
instance_type.s.cores = two: expected a value: a number, true or false, a list, or text in quotes such as \"4GiB\"
pool.a: is there twice; expected once
"
    );
}

#[test]
fn a_step_without_time_is_refused() {
    let text = format!("{SMALL}[lifecycle]\nclone = \"0s\"\ndestroy = \"1s\"\n");
    assert_eq!(
        messages(&text),
        "lifecycle.clone = \"0s\": expected at least 1s\n"
    );
}

#[test]
fn all_problems_fit_in_a_line() {
    let Err(errors) = parse("version = 1\ncolour = 2\n[pool.a]\nmin = \"x\"\n", "a.toml") else {
        panic!("it is wrong");
    };
    let line = errors.line();
    assert!(!line.contains(['\n', '^']), "{line}");
    assert!(line.contains("a.toml:2:1: colour: unknown key"), "{line}");
    assert!(
        line.contains("; a.toml:4:7: pool.a.min = \"x\": expected a whole number"),
        "{line}"
    );
}

#[test]
fn what_is_missing_is_named_where_it_should_be() {
    insta::assert_snapshot!(errors(
        "[region.a]\n[region.b]\nvmids = \"9000-9999\"\nchannel = \"token\"\n[pool.p]\n[instance_type.t]\n[template.t]\n"
    ));
}

#[test]
fn references_and_ranges_are_checked_across_tables() {
    let text = SMALL
        .replace("\"debian\"", "\"ubuntu\"")
        .replace("9000-9019", "7999-8001");
    insta::assert_snapshot!(messages(&text));
}

#[test]
fn names_stay_short_enough_for_a_host_name() {
    let longest = "p".repeat(57);
    assert_eq!(messages(&SMALL.replace("small", &longest)), "");
    let text = SMALL.replace("small", &(longest + "p"));
    assert!(
        messages(&text).contains("at most 57 characters"),
        "{}",
        messages(&text)
    );
    let text = SMALL.replace("pool.small", "pool.Small_1");
    assert!(
        messages(&text).contains("lower-case letters"),
        "{}",
        messages(&text)
    );
}

#[test]
fn the_range_has_a_vmid_for_every_machine() {
    let text = SMALL.replace("max = 3", "max = 21");
    insta::assert_snapshot!(messages(&text));
}

#[test]
fn a_pool_overrides_what_it_names_and_keeps_the_rest() {
    let text = format!(
        "{SMALL}scale_down = {{ unneeded_time = \"1h\", enabled = false }}\n[scale_down]\nunready_time = \"5m\"\n"
    );
    let settings = parse(&text, "test.toml").unwrap_or_else(|e| panic!("{e}"));
    let pool = &settings.policy.pools["small"];
    assert!(pool.scale_down_disabled);
    let own = pool.scale_down.as_ref().expect("the pool has its own");
    assert_eq!(own.unneeded_time, Span::minutes(60));
    assert_eq!(own.unready_time, Span::minutes(5));
}

#[test]
fn a_token_channel_needs_all_its_parts() {
    let token = SMALL.replace(
        "[proxmox]",
        "[proxmox]\nchannel = \"token\"\nendpoints = [\"pve1:8006\"]\ntoken_id = \"root\"\ntoken_secret_file = \"secret\"",
    );
    insta::assert_snapshot!(messages(&token));
    let local = SMALL.replace("[proxmox]", "[proxmox]\ntoken_id = \"a@pve!b\"");
    assert!(messages(&local).contains("only with channel = \"token\""));
}

#[test]
fn the_policy_hash_follows_the_meaning_and_not_the_text() {
    let hash = |text: &str| {
        parse(text, "test.toml")
            .unwrap_or_else(|e| panic!("{e}"))
            .policy_hash()
    };
    let base = hash(SMALL);
    assert_eq!(base.len(), 64);
    assert_eq!(
        base,
        hash(
            &SMALL
                .replace("4GiB", "4096MiB")
                .replace("[proxmox]", "[region.default]")
        )
    );
    // The broker counts machines itself.
    assert_ne!(base, hash(&SMALL.replace("max = 3", "max = 4")));
    for (from, to) in [
        ("9000-9019", "9000-9020"),
        ("vmid = 8000", "vmid = 8001"),
        ("4GiB", "8GiB"),
        ("cores = 2", "cores = 3"),
        ("[proxmox]", "[broker]\nstorages = [\"fast\"]\n[proxmox]"),
        ("[proxmox]", "[kubernetes]\nname = \"other\"\n[proxmox]"),
    ] {
        assert_ne!(base, hash(&SMALL.replace(from, to)), "{from} -> {to}");
    }
}

#[test]
fn unknown_keys_are_errors_in_every_table() {
    for header in [
        "[kubernetes]",
        "[broker]",
        "[region.r]",
        "[template.t]",
        "[instance_type.t]",
        "[pool.p]",
        "[pool.p.join]",
        "[pool.p.drain]",
        "[pool.p.reserved]",
        "[pool.p.scale_down]",
        "[scale_up]",
        "[scale_down]",
        "[lifecycle]",
        "[web]",
        "[recorder]",
        "[telemetry]",
        "[notification.n]",
    ] {
        let text = format!("version = 1\n{header}\nsurprise = 1\n");
        assert!(
            messages(&text).contains("unknown key `surprise`"),
            "{header}: {}",
            messages(&text)
        );
    }
}

#[test]
fn a_key_with_a_slip_is_told_the_one_that_was_meant() {
    let said = messages("version = 1\n[scale_down]\nuneeded_time = \"1m\"\n");
    assert!(
        said.contains(
            "unknown key `uneeded_time`; did you mean `unneeded_time`? the keys here are"
        ),
        "{said}"
    );
    // Letters that are alike make no key of another: what is meant is not there.
    for unknown in [
        "[scale_down]\nsurprise = 1\n",
        "[pool.p.kubelet]\nmemory_manager_policy = \"Static\"\n",
        "[pool.p]\nrate = 10\n",
    ] {
        let said = messages(&format!("version = 1\n{unknown}"));
        assert!(
            said.contains("unknown key") && !said.contains("did you mean"),
            "{said}"
        );
    }
}

#[test]
fn a_file_that_cannot_be_read_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = load(&folder.path().join("none.toml")).expect_err("no file");
    assert!(missing.to_string().contains("cannot be read"), "{missing}");
    let binary = folder.path().join("binary.toml");
    std::fs::write(&binary, [b'a', 0xff]).expect("written");
    let error = load(&binary).expect_err("not text");
    assert!(error.to_string().contains("byte 1"), "{error}");
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "(version = 1\n)?[\\[\\]a-z_.= \"\n0-9{}:,ü-]{0,80}") {
        let _ = errors(&text);
    }

    /// Any value in the place of any other is either accepted or reported with its line.
    #[test]
    fn every_wrong_value_is_found(line in 0usize..20, value in "(true|-1|99999999999|\"\"|\"x\"|[1]|\\{\\}|1979-05-27|0.5)") {
        let lines: Vec<&str> = SMALL.lines().collect();
        let line = line % lines.len();
        if let Some((key, _)) = lines[line].split_once(" = ") {
            let mut changed: Vec<String> = lines.iter().map(ToString::to_string).collect();
            changed[line] = format!("{key} = {value}");
            if let Err(errors) = parse(&changed.join("\n"), "test.toml") {
                assert!(errors.problems.iter().all(|problem| problem.position.is_some()), "{errors}");
            }
        }
    }
}

#[test]
fn wrong_types_are_named_in_the_files_words() {
    insta::assert_snapshot!(messages(
        "version = \"1\"\npool = 3\ntemplate = []\n[instance_type.t]\ncores = -1\nmemory = \"1GiB\"\nlabels = true\n\
         [kubernetes]\nkubeconfig = 5\n[web]\nlisten = \"here\"\n[scale_down]\nenabled = \"yes\"\n[proxmox]\nchannel = \"pigeon\"\nvmids = \"100-200\"\n"
    ));
}

#[test]
fn consolidation_budgets_and_limits() {
    use crate::model::disruption::{Cause, ConsolidationPolicy, Share};
    let more = r#"
consolidation = "when-underused"
min_saving = 0.05

[[pool.small.budget]]
nodes = "10%"

[[pool.small.budget]]
nodes = 0
schedule = "0 9 * * mon-fri"
duration = "8h"
reasons = ["underused"]

[limits]
min_cpu = 4
max_memory = "64GiB"
"#;
    let settings = parse(&format!("{SMALL}{more}"), "test.toml").unwrap_or_else(|e| panic!("{e}"));
    let pool = &settings.policy.pools["small"];
    let how = pool.consolidation.as_ref().expect("it is there");
    assert_eq!(how.policy, ConsolidationPolicy::WhenUnderused);
    assert_eq!(
        (how.after, how.min_saving.price),
        (Span::minutes(5), 50_000)
    );
    assert_eq!(pool.budgets[0].nodes, Share::Percent(10));
    let window = pool.budgets[1].window.as_ref().expect("a window");
    assert_eq!(window.schedule.to_string(), "0 9 * * mon-fri");
    assert_eq!(pool.budgets[1].causes, [Cause::Underused].into());
    assert_eq!(settings.policy.totals.min_cpu_milli, 4000);
    assert_eq!(settings.policy.totals.max_memory, Some(64 << 30));
}

#[test]
fn what_makes_no_sense_together_is_refused() {
    for (text, said) in [
        (
            "consolidate_after = \"1m\"",
            "consolidate_after = \"1m\": means something only with consolidation",
        ),
        (
            "consolidation = \"when-empty\"\nmin_saving = \"1%\"",
            "min_saving = \"1%\": means something only with",
        ),
        (
            "min_saving = \"200%\"",
            "min_saving = \"200%\": expected a percentage such as \"15%\"",
        ),
        (
            "[[pool.small.budget]]\nnodes = \"half\"",
            "budget.0.nodes = \"half\": expected a number of nodes such as 3",
        ),
        (
            "[[pool.small.budget]]\nnodes = 1\nschedule = \"61 * * * *\"",
            "budget.0.schedule = \"61 * * * *\": expected a schedule",
        ),
        (
            "[[pool.small.budget]]\nschedule = \"@daily\"\nduration = \"1h\"",
            "budget.0.nodes: is missing",
        ),
        (
            "[[pool.small.budget]]\nnodes = 1\nschedule = \"@daily\"",
            "budget.0.duration: is missing",
        ),
        (
            "[[pool.small.budget]]\nnodes = 1\nduration = \"1h\"",
            "budget.0.schedule: is missing",
        ),
        (
            "[[pool.small.budget]]\nnodes = 1\nschedule = \"@daily\"\nduration = \"900h\"",
            "expected 1m to 168h",
        ),
        (
            "[[pool.small.budget]]\nnodes = 1\nreasons = [\"drifted\"]",
            "unknown value `drifted`",
        ),
        (
            "[limits]\nmin_cpu = 8\nmax_cpu = 4",
            "limits.min_cpu = 8: expected at most max_cpu, which is 4",
        ),
    ] {
        let all = messages(&format!("{SMALL}{text}\n"));
        assert!(all.contains(said), "{said}\n{all}");
    }
}

/// The address of one machine cannot be that of five, and a net has no prefix of 99 bits.
#[test]
fn a_fixed_address_is_one_machines_and_has_a_prefix() {
    let with = |ipconfig: &str, max: u32| {
        let text = SMALL.replace(
            "vmid = 8000",
            &format!("vmid = 8000\nipconfig = \"{ipconfig}\""),
        );
        text.replace("max = 3", &format!("max = {max}"))
    };
    let fixed = "ip=192.0.2.10/24,gw=192.0.2.1";
    assert_eq!(messages(&with("ip=dhcp,ip6=auto", 5)), "");
    assert_eq!(messages(&with(fixed, 1)), "");
    let shared = messages(&with(fixed, 5));
    assert!(
        shared.starts_with(&format!(
            "template.debian.ipconfig = \"{fixed}\": every machine would have"
        )) && shared.contains("small may have 5: expected ip=dhcp"),
        "{shared}"
    );
    let two = format!(
        "{}\n[pool.other]\ntemplate = \"debian\"\ninstance_types = [\"s\"]\nmax = 1\n",
        with(fixed, 1)
    );
    assert!(
        messages(&two).contains("other, small may have 2"),
        "{}",
        messages(&two)
    );
    let wide = errors(&with("ip=192.0.2.10/99", 1));
    assert!(
        wide.contains("test.toml:9:")
            && wide.contains("ip=192.0.2.10/99: expected a prefix of 8 to 32 bits"),
        "{wide}"
    );
}

/// Values that belong nowhere, or elsewhere.
const ODD: &[&str] = &[
    "",
    "0",
    "-1",
    "9223372036854775807",
    "99999999999999999999",
    "1e400",
    "nan",
    "inf",
    "true",
    "[]",
    "{}",
    "[[]]",
    "\"\"",
    "\"\\u0000\"",
    "\"\\u001b[2J\"",
    "\"\u{202e}\"",
    "\"9223372036854775807h\"",
    "\"106751991167d\"",
    "\"9999999999GiB\"",
    "\"1e30\"",
    "\"4294967295-4294967296\"",
    "\"* * * * *\"",
    "\"ip=::/0\"",
    "2026-13-41",
    "\'\'",
    "\"\"\"\nx\"\"\"",
];

proptest::proptest! {
    /// The shipped file with some of its values replaced: read or refused, and whatever is read has a decision.
    #[test]
    fn no_value_in_the_file_ends_the_program(
        edits in proptest::collection::vec((0usize..1_000, 0usize..ODD.len(), proptest::bool::ANY), 1..6),
    ) {
        let shipped = include_str!("../../contrib/pve-autoscaler.toml");
        let mut lines: Vec<String> = shipped
            .lines()
            .map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line).to_owned())
            .collect();
        for (at, odd, doubled) in edits {
            let at = at % lines.len();
            if let Some((key, _)) = lines[at].split_once('=') {
                let line = format!("{key}= {}", ODD[odd]);
                if doubled {
                    lines.insert(at, line);
                } else {
                    lines[at] = line;
                }
            }
        }
        match parse(&lines.join("\n"), "test.toml") {
            Ok(settings) => {
                let snapshot = crate::model::snapshot::Snapshot {
                    version: crate::model::snapshot::VERSION,
                    taken: crate::model::time::Time(1_795_000_000_000),
                    cluster_id: None,
                    sources: std::collections::BTreeMap::new(),
                    cluster: crate::model::cluster::Cluster::default(),
                    regions: std::collections::BTreeMap::new(),
                    machines: std::collections::BTreeMap::new(),
                    leader: true,
                    lease: crate::model::snapshot::Lease::default(),
                    cluster_id_error: None,
                    awake: None,
                    former: std::collections::BTreeMap::new(),
                    on_wire: std::collections::BTreeMap::new(),
                    nominations_refused: false,
                    paused: None,
                };
                let memory = crate::model::memory::Memory::default();
                crate::brain::decide(&snapshot, &settings.policy, &memory, snapshot.taken);
            }
            Err(errors) => drop((errors.to_string(), errors.line())),
        }
    }
}

#[test]
fn what_is_no_text_is_told_in_a_sentence() {
    let told = |bytes: &[u8]| as_text(bytes.to_vec());
    assert_eq!(told(b"version = 1\n"), Ok("version = 1\n".to_owned()));
    assert_eq!(told(b""), Ok(String::new()));
    let utf16 = |mark: &[u8], order: fn(u16) -> [u8; 2]| {
        let text = SMALL.encode_utf16().flat_map(order);
        told(&mark.iter().copied().chain(text).collect::<Vec<u8>>())
    };
    let looks = Err("looks like UTF-16 text: save it as UTF-8".to_owned());
    assert_eq!(utf16(b"", u16::to_le_bytes), looks);
    assert_eq!(utf16(b"", u16::to_be_bytes), looks);
    assert_eq!(utf16(b"\xff\xfe", u16::to_le_bytes), looks);
    let nul = "line 2 has a NUL byte: it is no text".to_owned();
    assert_eq!(told(b"version = 1\n\0\n"), Err(nul));
    assert_eq!(
        told(b"\0"),
        Err("line 1 has a NUL byte: it is no text".to_owned())
    );
    // The beginning of a program.
    let program = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01\0\0\0\xa0\x40\0\0\0\0\0\0\x40\0\0\0\0\0\0\0";
    assert_eq!(
        told(program),
        Err("line 1 has a NUL byte: it is no text".to_owned())
    );
    let other = "is not UTF-8 text: line 2 has a byte that is none of it (byte 14 of the file)";
    assert_eq!(told(b"version = 1\n# \xe4\n"), Err(other.to_owned()));
}

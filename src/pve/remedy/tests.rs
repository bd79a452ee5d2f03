//! Every refusal that can be met has an advice, or stands here with the reason why it has none.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use proptest::prelude::*;
use serde_json::Value;

use super::gaps::is_name;
use super::*;
use crate::pve::transport::HttpMethod;

/// Texts as they are met, with the place of the words and what they get.
const TEXTS: &str = include_str!("texts.txt");
/// Answers of PVE's own code, as the simulator is held against them.
const RECORDED: &str = include_str!("../../sim/pve/tests/recorded.json");
/// And of hardware, in several sequences.
const HARDWARE: &str = include_str!("../../sim/pve/tests/recorded_hardware.json");
/// And of options that nobody plans with.
const OPTIONS: &str = include_str!("../../sim/pve/tests/recorded_options.json");
/// The document with the table of all rules.
const OPERATIONS: &str = include_str!("../../../docs/operations.md");

/// Parts of texts, with gaps, that get no advice, and why.
const WITHOUT: &[(&str, &[&str])] = &[
    (
        "the program itself does what is to be done: it looks again, waits, or takes another number",
        &[
            "Configuration file '",
            "unable to find configuration file for VM",
            "unable to read vm",
            "no such task",
            "unable to parse worker upid",
            "no running task '",
            "received interrupt",
            "interrupted by signal",
            "unexpected status",
            "checksum mismatch (file change",
            "detected modified configuration",
            "no rule at position",
            "VM {vmid} already running",
            "VM {vmid} not running",
            "VM {vmid} is not running",
            "is running - destroy failed",
            "is already a pool member",
            "is not a pool member",
            "Agent error: ",
            "you can't convert a template to a template",
            "no options specified",
        ],
    ),
    (
        "the lock is of a VM that PVE is at, which the program waits for, or removes when nobody is",
        &["VM is locked ("],
    ),
    (
        "whoever meets it is told by the program's own words, with what to do",
        &[
            "you can't start a vm if it's a template",
            "No ticket",
            "Authentication failed!",
            "authentication failure",
        ],
    ),
    (
        "`setup` asks before it makes them, and says which are there",
        &[
            "role '{*}' already exists",
            "role '{*}' does not exist",
            "user '{*}' already exists",
            "user '{*}' does not exist",
            "no such token '",
            "Token already exists",
            "create pool failed",
        ],
    ),
    (
        "the program checks what it sends, so that only a fault of its own can lead there",
        &[
            "invalid format",
            "Parameter verification failed",
            "type check ('",
            "value must have a m",
            "value may only be",
            "does not look like a valid",
            "does not have a value in the enumeration",
            "value does not match the regex pattern",
            "property is missing and it is not optional",
            "invalid key in comma-separated list property",
            "duplicate key in comma-separated list property",
            "value without key, but schema does not define a default key",
            "invalid hotplug feature '",
            "unknown option '",
            "at the same time",
            "invalid characters in tag",
            "invalid urlencoded string",
            "invalid configuration ID",
            "contains illegal characters",
            "multipart form data expected",
            "wrong file extension",
            "for data too large",
            "JSON body is not an object",
            "format error",
            "unable to parse startup options",
            "unable to parse ipconfig",
            "Cannot set both 'host' and 'mapping'",
            "ither 'host' or 'mapping' must be set",
            "only root can delete '",
            "unknown action '",
            "duplicate parameter (already defined in URI)",
            "malformed JSON string",
            "invalid filename or wrong extension",
            "cannot use role ID starting with",
            "balloon value too large",
            "unable to parse size '",
            "invalid bootorder: device",
            "Wide character in subroutine entry",
            "no such resource 'vm:",
        ],
    ),
    (
        "the program does not do that: only the simulator's own people do",
        &[
            "snapshot '",
            "migration aborted",
            "VM 4 does not exist",
            "unable to get any free VMID",
            "resource ID 'vm:",
            "target is local node",
            "can't migrate",
            "no such file '",
            "the host is online",
            "you can't convert a VM to template if VM is running",
            "/bin/cp",
        ],
    ),
    (
        "what PVE says behind it has the advice, or none",
        &[
            "clone failed: 4",
            "unable to create VM 4 - 4",
            "failed to update VM 4: 4",
            "update pools failed: 4",
        ],
    ),
];

/// Whole texts that PVE's proxy says with a status, which has the advice.
const OF_PROXY: &[&str] = &["No route to host", "Connection timed out", "Broken pipe"];

fn reason(text: &str) -> Option<&'static str> {
    let fits = |parts: &[&'static str]| parts.iter().any(|part| Pattern(part).find(text).is_some());
    let row = WITHOUT.iter().find(|(_, parts)| fits(parts));
    let of_proxy = OF_PROXY.contains(&text);
    row.map(|(why, _)| *why)
        .or(of_proxy.then_some("its status has an advice"))
}

/// The texts that stand in a source file where a refusal is made, their gaps filled with a number.
fn refusals(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in source.match_indices('"') {
        let before = &source[at.saturating_sub(60)..at];
        let before: String = before.split_whitespace().collect();
        let makes = [
            "Err(",
            "die(",
            "bare(595,",
            "bare(596,",
            "bare(501,",
            "parameter(",
            "forbidden(",
            "ok_or_else(||",
            "letwhy=",
        ];
        let opens = |call: &&str| {
            let behind = before.rsplit_once(*call).map(|(_, behind)| behind);
            let calm = [
                "",
                "format!(",
                "ErrorAnswer::die(",
                "ErrorAnswer::die(format!(",
            ];
            behind.is_some_and(|behind| calm.contains(&behind))
        };
        let named = before.contains("parameter(\"") && before.ends_with(',');
        if !makes.iter().any(opens) && !named {
            continue;
        }
        let Some(text) = literal(&source[at + 1..]) else {
            continue;
        };
        if text.contains(' ') {
            found.push(text);
        }
    }
    found
}

/// A string's text up to its end, its gaps filled.
fn literal(source: &str) -> Option<String> {
    let (mut text, mut chars) = (String::new(), source.chars());
    loop {
        match chars.next()? {
            '"' => return Some(text),
            '\\' => match chars.next()? {
                'n' => text.push('\n'),
                '\n' => {}
                other => text.push(other),
            },
            '{' => {
                chars.by_ref().find(|c| *c == '}')?;
                text.push_str(if text.ends_with("volume '") {
                    "local:9/x"
                } else {
                    "4"
                });
            }
            other => text.push(other),
        }
    }
}

#[test]
fn every_refusal_of_the_simulator_has_an_advice_or_a_reason_for_none() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sim/pve");
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the simulator's sources") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            texts.extend(refusals(&std::fs::read_to_string(path).expect("text")));
        }
    }
    assert!(texts.len() > 100, "{} texts", texts.len());
    let context = RemedyContext::default();
    let dumb = |text: &&String| of_text(text, &context).is_none() && reason(text).is_none();
    let dumb: Vec<&String> = texts.iter().filter(dumb).collect();
    assert!(dumb.is_empty(), "neither advice nor reason: {dumb:#?}");
    let advised = texts
        .iter()
        .filter(|text| of_text(text, &context).is_some());
    assert!(advised.count() > 50);
}

#[test]
fn every_recorded_refusal_of_pve_has_an_advice_or_a_reason_for_none() {
    let recorded: Value = serde_json::from_str(RECORDED).expect("JSON");
    let hardware: Value = serde_json::from_str(HARDWARE).expect("JSON");
    let options: Value = serde_json::from_str(OPTIONS).expect("JSON");
    let runs = [&hardware, &options].map(|of| of["runs"].as_array().expect("runs"));
    let runs = runs.into_iter().flatten().chain([&recorded["steps"]]);
    let context = RemedyContext::default();
    let mut advised = 0;
    for step in runs.flat_map(|run| run.as_array().expect("steps")) {
        let mut texts: Vec<String> = Vec::new();
        if step["status"] != 200 {
            texts.extend(step["reason"].as_str().map(str::to_owned));
        }
        let errors = step["errors"].as_object().into_iter().flatten();
        texts.extend(errors.map(|(name, why)| format!("{name}: {}", why.as_str().expect("text"))));
        texts.extend(
            step["exit"]
                .as_str()
                .filter(|exit| *exit != "OK")
                .map(str::to_owned),
        );
        for text in texts {
            let advice = of_text(&text, &context);
            advised += usize::from(advice.is_some());
            assert!(advice.is_some() || reason(&text).is_some(), "{text}");
        }
    }
    assert!(advised > 30, "{advised}");
}

/// Finds a text that a user meets and that says nothing of what to do, one that a more general rule catches before its own, and a rule whose
/// words nothing says.
#[test]
fn every_text_of_pve_has_its_own_advice_or_a_reason_for_none() {
    let (mut wrong, mut met) = (Vec::new(), BTreeSet::new());
    let lines = TEXTS.lines();
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let parts: Vec<&str> = line.split(" | ").collect();
        let [place, text, wanted] = *parts else {
            panic!("no place, text and advice: {line}");
        };
        met.extend(find(text, |_| true).map(|found| found.rule.says));
        let advice = of_text(text, &full());
        let right = match wanted.strip_prefix("- ") {
            Some(_) => advice.is_none(),
            None => advice
                .as_deref()
                .is_some_and(|advice| advice.contains(wanted)),
        };
        if !right {
            wrong.push(format!(
                "{place}: {text}: wanted {wanted:?}, got {advice:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let says = rules::all().map(|rule| rule.says);
    let unmet: Vec<&str> = says.filter(|says| !met.contains(says)).collect();
    assert!(unmet.is_empty(), "texts.txt has no text for {unmet:#?}");
}

fn full() -> RemedyContext<'static> {
    RemedyContext {
        host: Some("pve2"),
        vmid: Some(9001),
        storage: Some("local-zfs"),
        template: Some("debian"),
        pool: Some("workers"),
    }
}

#[test]
fn advice_names_what_is_concerned() {
    let table = [
        (
            "start failed: bridge 'vmbr9' does not exist",
            "make vmbr9 on pve2 (its panel, System, Network), or set `bridge` in [template.debian] to one that pve2 has, or leave pve2 out (`exclude_hosts`)",
        ),
        (
            "Permission check failed (/sdn/zones/localnetwork/vmbr1, SDN.Use)",
            "give the API token a role with SDN.Use on /sdn/zones/localnetwork/vmbr1",
        ),
        (
            "Permission check failed (/vms/9001, VM.PowerMgmt)",
            "a role with VM.PowerMgmt on the machine's resource pool",
        ),
        (
            "Permission check failed (/, Sys.Modify for modifying tag 'k8s')",
            "keep the tag k8s from the API token",
        ),
        (
            "MAX 4 vcpus allowed per VM on this node",
            "at most 4 `cores`",
        ),
        (
            "VM is locked (backup)",
            "`qm unlock 9001` there takes the lock away",
        ),
        (
            "clone failed: cfs-lock 'storage-ceph' error: no quorum!",
            "`pvecm status`",
        ),
        (
            "clone failed: cfs-lock 'storage-ceph' error: got lock request timeout",
            "the lock of ceph",
        ),
        (
            "unable to create VM 9100 - VM 9100 already exists on node 'pve1'",
            "`vmids`",
        ),
        (
            "volume 'local:snippets/a.yaml' does not exist",
            "folder `snippets` of local",
        ),
        (
            "PCI device '0000:01:00.0' already in use by VMID '123'",
            "stop VM 123",
        ),
        ("disk image '/x' already exists", "a disk of an earlier VM"),
        (
            "start failed: timeout waiting on systemd",
            "`systemctl status 9001.scope`",
        ),
        (
            "Could not remove disk 'local-zfs:vm-9001-disk-0', check manually: zfs error: cannot destroy 'rpool/data/vm-9001-disk-0': dataset is busy",
            "`pvesm list local-zfs --vmid 9001`",
        ),
        (
            "rbd rm 'vm-9001-disk-0' error: rbd: error: image still has watchers",
            "`rbd status POOL/IMAGE`",
        ),
        (
            "rbd rm 'vm-9001-disk-0' error: This means the image is still open or the client using it crashed. Try again after closing/unmapping it or waiting 30s for the crashed client to timeout.",
            "`rbd status POOL/IMAGE`",
        ),
        (
            "Agent error: Command guest-exec has been disabled",
            "BLOCK_RPCS",
        ),
    ];
    for (text, advice) in table {
        let found = of_text(text, &full()).expect(text);
        assert!(found.contains(advice), "{text}: {found}");
    }
    for text in [
        "",
        "bridge",
        "something else",
        "Agent error: bridge 'vmbr9' does not exist",
    ] {
        assert_eq!(of_text(text, &full()), None, "{text}");
    }
}

/// Found in PVE's own code: `doctor` sent a reader of a host's clock to the log of a task of the VM `VMID`.
#[test]
fn a_refused_call_has_no_task_whose_log_says_more() {
    let request = PveRequest {
        call: "node-time",
        method: HttpMethod::Get,
        path: "/nodes/pve1/time".to_owned(),
        params: Vec::new(),
        multipart: false,
        timeout: std::time::Duration::from_secs(1),
    };
    let words = "command 'timedatectl show '--property=Timezone' --value' failed: exit code 1";
    assert!(of_task(words, "", &full()).is_some_and(|advice| advice.contains("task log")));
    let mut error = CallError::new(CallEffect::Refused, words);
    error.status = Some(500);
    assert_eq!(of_call(&error, &request), None);
    error.message = "no such bridge: bridge 'vmbr9' does not exist".into();
    assert!(of_call(&error, &request).is_some());
}

#[test]
fn the_log_of_a_task_tells_what_its_last_word_does_not() {
    let text = "start failed: QEMU exited with code 1";
    let log = "kvm: cannot set up guest memory 'pc.ram': Cannot allocate memory";
    let advice = |text, log| of_task(text, log, &full()).expect("advice");
    assert!(advice(text, log).starts_with("free memory on pve2"));
    assert!(advice(text, "").contains("`pvenode task list --vmid 9001 --errors` on pve2"));
    // The log may speak of locks that were had, and who reads it need not be sent there.
    assert_eq!(of_task(text, "VM is locked (backup)", &full()), None);
    let copy = "clone failed: copy failed: command 'qemu-img convert' failed: exit code 1";
    assert!(
        advice(copy, "qemu-img: error: No space left on device").contains("`pvesm list local-zfs`")
    );
}

#[test]
fn a_call_is_advised_by_what_it_was_about() {
    let request = PveRequest {
        call: "start",
        method: HttpMethod::Post,
        path: "/nodes/pve3/qemu/9001/status/start".to_owned(),
        params: Vec::new(),
        timeout: std::time::Duration::from_secs(1),
        multipart: false,
    };
    let error = |outcome, status, words: &str| {
        let mut error = CallError::new(outcome, words);
        error.status = status;
        error.about(&request)
    };
    let locked = error(CallEffect::Refused, Some(500), "VM is locked (backup)");
    assert!(
        locked
            .to_string()
            .ends_with("`qm unlock 9001` there takes the lock away"),
        "{locked}"
    );
    assert!(
        locked.words().ends_with("VM is locked (backup)"),
        "{}",
        locked.words()
    );
    let gone = error(CallEffect::Unknown, Some(595), "No route to host");
    assert!(gone.to_string().contains("does not reach pve3"), "{gone}");
    for outcome in [CallEffect::NotSent, CallEffect::RefusedByBroker] {
        assert_eq!(error(outcome, None, "VM is locked (backup)").advice, None);
    }
}

/// The table as it stands in the document. Words with the same advice, one after the other, share a row.
fn table() -> String {
    let placeholder = |gap: &str| match gap {
        "template_table" => "[template.NAME]".to_owned(),
        "pool_table" => "[pool.NAME]".to_owned(),
        "path" => "/PATH".to_owned(),
        "privileges" => "PRIVILEGES".to_owned(),
        "number" => "N".to_owned(),
        "resource_pool" => "POOL".to_owned(),
        "*" => "…".to_owned(),
        gap => gap.to_ascii_uppercase(),
    };
    let shown = |words: &'static str| gaps::show(words, &placeholder);
    let mut table = "| PVE says | what to do |\n|---|---|\n".to_owned();
    let rules: Vec<&Rule> = rules::all().collect();
    for rules in rules.chunk_by(|one, next| one.todo == next.todo) {
        let says: Vec<String> = rules
            .iter()
            .map(|rule| format!("`{}`", shown(rule.says)))
            .collect();
        let _ = writeln!(table, "| {} | {} |", says.join("; "), shown(rules[0].todo));
    }
    for (status, todo) in STATUSES {
        let _ = writeln!(table, "| status {status} | {} |", shown(todo));
    }
    table
}

/// With `PVE_AUTOSCALER_WRITE_DOCS=1` the table is written into the document.
#[test]
fn the_document_has_every_rule() {
    let table = table();
    if std::env::var_os("PVE_AUTOSCALER_WRITE_DOCS").is_some() {
        let start = OPERATIONS.find("| PVE says |").expect("a table");
        let end = OPERATIONS[start..].find("\n\n").expect("an end") + start + 1;
        let text = format!("{}{table}{}", &OPERATIONS[..start], &OPERATIONS[end..]);
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operations.md");
        std::fs::write(path, text).expect("written");
        return;
    }
    assert!(
        OPERATIONS.contains(&table),
        "docs/operations.md lacks:\n{table}"
    );
}

#[test]
fn rules_are_sound() {
    let rules: Vec<&Rule> = rules::all().collect();
    for (at, rule) in rules.iter().enumerate() {
        let gap = |text: &str| text.replace("{*}", "x").replace(['{', '}'], "");
        assert_eq!(
            rule.says.matches('{').count(),
            rule.says.matches('}').count(),
            "{rule:?}"
        );
        assert_eq!(rule.todo.matches('`').count() % 2, 0, "{rule:?}");
        assert!(rule.todo.len() < 420, "{rule:?}");
        let before = rules[..at].iter().find(|one| one.says == rule.says);
        assert!(before.is_none(), "{rule:?}");
        let first = rule.todo.chars().next().expect("words");
        assert!(
            first.is_ascii_lowercase() || "`{IKLOPQV".contains(first),
            "{rule:?}"
        );
        // Each rule is met by its own words.
        let mut own = gap(rule.says);
        for (word, name) in [
            ("number", "4"),
            ("vmid", "9"),
            ("path, privileges", "/vms, VM.Audit"),
        ] {
            if rule.says.contains(&format!("{{{word}}}")) || word.contains(',') {
                own = own.replace(word, name);
            }
        }
        let found = find(&own, |_| true).map(|found| found.rule.todo);
        assert_eq!(found, Some(rule.todo), "{own}");
    }
}

proptest! {
    #[test]
    fn foreign_text_gives_no_panic_and_no_words_of_its_own(
        rule in 0..rules::all().count(),
        fills in proptest::collection::vec("(?s)(.{0,40}|[a-z0-9.-]{1,20})", 4),
        before in "(?s).{0,30}",
        after in "(?s).{0,30}",
    ) {
        let says = rules::all().nth(rule).expect("it is below their number").says;
        let mut text = before;
        let mut fills = fills.iter().cycle();
        let mut rest = says;
        while let Some((words, behind)) = rest.split_once('{') {
            text.push_str(words);
            text.push_str(fills.next().expect("endless"));
            rest = behind.split_once('}').expect("closed").1;
        }
        text.push_str(rest);
        text.push_str(&after);
        let _ = of_task(&text, &text, &full());
        if let Some(advice) = of_text(&text, &RemedyContext::default()) {
            prop_assert!(advice.is_ascii() && !advice.chars().any(char::is_control), "{advice:?}");
            prop_assert!(advice.len() < 900);
            // What is in it is a rule's own words and names.
            let found = find(&text, |_| true).expect("found");
            for (gap, value) in &found.captured {
                let repeated = found.rule.todo.contains(&format!("{{{gap}}}"));
                if repeated && value.len() > 12 && !is_name(gap, value) {
                    prop_assert!(!advice.contains(value), "{advice}");
                }
            }
        }
    }

    #[test]
    fn any_text_is_borne(text in "(?s).{0,200}", host in "(?s).{0,20}") {
        let context = RemedyContext { host: Some(&host), storage: Some(&host), template: Some(&host), ..full() };
        let _ = of_text(&text, &context);
        let advice = of_text("bridge 'x' does not exist", &context).expect("advice");
        prop_assert!(is_name("host", &host) || advice.contains("on the host"), "{advice}");
    }
}

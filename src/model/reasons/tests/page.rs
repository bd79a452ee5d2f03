//! `docs/reasons.md` lists every reason. After a change `PVE_AUTOSCALER_WRITE_DOCS=1 cargo test -p pve-autoscaler-model`
//! writes the tables anew.

use std::fmt::Write as _;

use super::*;

/// The tables begin after this line; what is above is written by hand.
const MARK: &str = "<!-- Made from the types in src/model/reasons; do not edit below. -->\n";

/// A row for each example of each variant: the code, its fields beside it, and one sentence.
fn table<R: Judged>(text: &mut String, heading: &str, about: &str) {
    let words = |reason: &R| reason.to_string();
    rows(text, heading, about, words);
}

fn rows<R: OneOfEach + Serialize>(
    text: &mut String,
    heading: &str,
    about: &str,
    words: impl Fn(&R) -> String,
) {
    let _ = write!(
        text,
        "\n## {heading}\n{about}\n\n| code | fields | for instance |\n|---|---|---|\n"
    );
    for reason in R::examples() {
        let json = serde_json::to_value(&reason).expect("plain data");
        let fields = json.as_object().expect("an object").keys();
        let fields: Vec<String> = fields
            .filter(|key| *key != "code")
            .map(|key| format!("`{key}`"))
            .collect();
        let code = json["code"].as_str().expect("a code");
        let words = words(&reason).replace('|', "\\|");
        let _ = writeln!(text, "| `{code}` | {} | {words} |", fields.join(", "));
    }
}

fn tables() -> String {
    let mut text = String::new();
    tables_of_nodes(&mut text);
    tables_of_pods_and_hosts(&mut text);
    text
}

fn tables_of_nodes(t: &mut String) {
    table::<Kept>(
        t,
        "Why a node stays",
        "`details` of a node's verdict `kept`.",
    );
    table::<GivenUp>(
        t,
        "Why a node is to go that stays for now",
        "`cause` of `given_up`; `in_place_of` of an action that makes a machine, by node.",
    );
    table::<WaitsFor>(
        t,
        "What a node waits for that is to go",
        "`waits` of `given_up`.",
    );
    table::<Blocked>(
        t,
        "Why a pod keeps its node",
        "`blocked` of `blocked_by_pod`; `details` of a pod in `explain node`.",
    );
    table::<LeftAlone>(
        t,
        "Why a machine is left alone",
        "`machine` of `left_alone`.",
    );
    table::<Removed>(
        t,
        "Why a node goes",
        "`details` of a node's verdict `leaving`.",
    );
    table::<Replacing>(
        t,
        "Why a node is replaced",
        "`details` of a node's verdict `replaced`.",
    );
    table::<Aborted>(
        t,
        "Why a removal is given up",
        "`details` of an action's reason `aborted`.",
    );
    table::<FateReason>(
        t,
        "What becomes of a pod whose node goes",
        "`details` of a pod in `explain node`.",
    );
}

fn tables_of_pods_and_hosts(t: &mut String) {
    table::<Held>(
        t,
        "What is on hold",
        "`details` of a hold and of the verdict `unread`; `hold` in other reasons, with `cause` beside the fields.",
    );
    table::<Refused>(
        t,
        "Why no machine is made",
        "`details` of the verdicts `held` and `no_compatible_pool`, `others_details` of `triggers` and `replaced`, `held_details` of \
         an offer in `explain pod`.",
    );
    table::<Excess>(
        t,
        "What is too complex",
        "`excess` of `too_complex`, of a pod that waits and of one that keeps its node.",
    );
    rows::<HostRefused>(
        t,
        "Why a host takes no machine",
        "`refusal` of `host`.",
        |refusal| {
            let (host, refusal) = ("pve1".into(), refusal.clone());
            Refused::Host { host, refusal }.to_string()
        },
    );
    table::<Ignored>(
        t,
        "Why a pod is left alone",
        "`details` of a pod's verdict `ignored`.",
    );
    table::<FilterFailure>(
        t,
        "Why a pod does not run on a node",
        "`filter_failure` in other reasons, `filter_failure_details` and `further_filter_failures_details` of a node and an offer in `explain pod`.",
    );
    table::<VolumeFilterFailure>(t, "What is wrong with a volume", "`volume` of `volume`.");
    table::<Provision>(
        t,
        "Why no volume is provisioned",
        "`provision` of `unserved`.",
    );
    table::<NoFreeStorage>(
        t,
        "Why there is no free storage",
        "`storage` of `no_free_storage`.",
    );
    table::<Warning>(
        t,
        "What a person should look at",
        "`warnings_details` of the report, in the order of `warnings`.",
    );
    table::<HostNote>(
        t,
        "Why a host gets no machine, or is taken last",
        "`notes_details` of a host, in the order of `notes`.",
    );
    table::<StorageNote>(
        t,
        "What keeps disks of machines off a storage",
        "`notes_details` of a storage, in the order of `notes`.",
    );
}

#[test]
fn the_page_lists_every_reason() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reasons.md");
    let page = std::fs::read_to_string(file).expect("docs/reasons.md is there");
    let (head, _) = page.split_once(MARK).expect("it has the mark");
    let wanted = format!("{head}{MARK}{}", tables());
    if std::env::var_os("PVE_AUTOSCALER_WRITE_DOCS").is_some() {
        std::fs::write(file, &wanted).expect("it can be written");
        return;
    }
    assert!(
        page == wanted,
        "docs/reasons.md is out of date: PVE_AUTOSCALER_WRITE_DOCS=1 cargo test -p pve-autoscaler-model"
    );
}

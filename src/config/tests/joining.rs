//! How machines become nodes: what a file may say of it.

use super::{SMALL, messages, parse};
use crate::config::Settings;

fn with(lines: &str) -> String {
    format!("{SMALL}\n{lines}")
}

fn settings(text: &str) -> Settings {
    parse(text, "test.toml").unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn texts_with_gaps_name_what_is_known_and_nothing_else() {
    let file = with(
        "[pool.small.labels]\nrack = \"r-{{ host }}\"\n[pool.small.annotations]\nnote = \"{{ vmid }} on {{ host }}\"\n\
         [pool.small.join]\nprovider_id = \"proxmox://{{ region }}/{{ vmid }}\"\n",
    );
    let pool = &settings(&file).pools["small"];
    assert_eq!(
        pool.join.provider_id.as_deref(),
        Some("proxmox://{{ region }}/{{ vmid }}")
    );
    assert_eq!(
        &*settings(&file).policy.pools["small"].labels["rack"],
        "r-{{ host }}"
    );
    for (lines, said) in [
        (
            "[pool.small.labels]\nrack = \"{{ hsot }}\"",
            "it names \"hsot\", which is not known here; known are host, instance_type",
        ),
        (
            "[pool.small.labels]\nrack = \"{{ host\"",
            "it cannot be filled in: syntax error",
        ),
        (
            "[pool.small.labels]\nrack = \"{{ host }}/1\"",
            "with host pve1 it comes to \"pve1/1\"",
        ),
        (
            "[instance_type.s.labels]\nrack = \"{{ nix }}\"",
            "instance_type.s.labels.rack",
        ),
        (
            "[pool.small.annotations]\nnote = \"{{ ip }}\"",
            "it names \"ip\"",
        ),
        (
            "[pool.small.join]\nprovider_id = \"proxmox://{{ region }}\"",
            "expected another id for each machine",
        ),
        (
            "[pool.small.join]\nprovider_id = \"{{ vmid }}\"",
            "expected a provider and an id",
        ),
        (
            "[pool.small.join]\nprovider_id = \"a://{{ uuid }}\"",
            "it names \"uuid\"",
        ),
        (
            "[pool.small.join]\nkubelet_args = { provider-id = \"a\" }",
            "use join.provider_id",
        ),
    ] {
        let said_of = messages(&with(lines));
        assert!(said_of.contains(said), "{lines}: {said_of}");
    }
}

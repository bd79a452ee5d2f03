//! What a file may say to cloud-init.

use super::{SMALL, parse};
use crate::config::Settings;

fn with(lines: &str) -> String {
    format!("{SMALL}\n{lines}")
}

/// The lines that are said of a file.
fn messages(text: &str) -> Vec<String> {
    super::messages(text).lines().map(str::to_owned).collect()
}

fn settings(text: &str) -> Settings {
    parse(text, "test.toml").unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn texts_stand_in_the_file_or_in_one_of_their_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("vendor.yaml");
    std::fs::write(&path, "#cloud-config\ntimezone: {{ zone }}\n").expect("written");
    let table = |more: &str| {
        with(&format!(
            "[template.debian.cloud_init]\nstorage = \"local\"\nuser_data = \"#!/bin/sh\\necho {{{{ machine }}}}\\n\"\n{more}"
        ))
    };
    let file = table(&format!("vendor_data_file = \"{}\"\n", path.display()));
    let read = settings(&file);
    let texts = read.templates["debian"].cloud_init.clone().expect("texts");
    assert_eq!(texts.storage, "local".into());
    assert_eq!(
        texts.user_data.as_deref(),
        Some("#!/bin/sh\necho {{ machine }}\n")
    );
    assert_eq!(
        texts.vendor_data.as_deref(),
        Some("#cloud-config\ntimezone: {{ zone }}\n")
    );
    assert_eq!(texts.network_config, None);
    assert_eq!(read.broker.allow.iso_storages, ["local"]);
    // A file that names what is not known is told by its key.
    std::fs::write(&path, "#cloud-config\n\ntimezone: {{ zoen }}\n").expect("written");
    let said = messages(&file);
    let wanted = "template.debian.cloud_init.vendor_data_file = ";
    assert!(
        said.iter()
            .any(|one| one.contains(wanted) && one.contains("it names \"zoen\"")),
        "{said:?}"
    );
    std::fs::write(&path, "x".repeat(50_000)).expect("written");
    assert!(
        messages(&file)
            .iter()
            .any(|one| one.contains("has 50000 bytes"))
    );
    for (lines, said) in [
        ("vendor_data_file = \"/does/not/exist\"", "cannot be read"),
        (
            "vendor_data_file = \"vendor.yaml\"",
            "expected an absolute path",
        ),
        ("vendor_data_file = \"/\"", "is no file"),
        (
            "user_data_file = \"/etc/hosts\"",
            "expected either user_data or user_data_file",
        ),
        ("network_config = \"a: 1\"", "with version: 1 or version: 2"),
        (
            "vendor_data = \"runcmd: []\"",
            "the first line must say what it is",
        ),
        ("vendor_data = \"#cloud-config\\na: [\"", "it is no YAML"),
    ] {
        let found = messages(&table(lines));
        assert!(
            found.iter().any(|one| one.contains(said)),
            "{lines}: {found:?}"
        );
    }
}

#[test]
fn a_first_boot_needs_an_iso_and_keeps_no_secret() {
    let join = "[pool.small.join]\ndelivery = \"cloud-init\"\n";
    let storage = "[template.debian.cloud_init]\nstorage = \"local\"\n";
    let said = messages(&with(join));
    assert!(
        said.iter()
            .any(|one| one.contains("pool.small.join.delivery")
                && one.contains("[template.debian.cloud_init]")),
        "{said:?}"
    );
    let read = settings(&with(&format!("{join}{storage}")));
    assert!(read.pools["small"].join.at_first_boot && read.templates["debian"].first_boot);
    let command =
        format!("{join}method = \"command\"\ncommand = \"x\"\nsecret_file = \"/etc/x\"\n{storage}");
    let said = messages(&with(&command));
    assert!(
        said.iter()
            .any(|one| one.contains("would stay on the machine's disk")),
        "{said:?}"
    );
    let nowhere = messages(&with("[template.debian.cloud_init]\n"));
    assert!(
        nowhere
            .iter()
            .any(|one| one.contains("cloud_init.storage") && one.contains("is missing")),
        "{nowhere:?}"
    );
}

/// A text is filled in with the cards and addresses that the pool's machines will have.
#[test]
fn a_text_may_name_what_its_machines_have_and_no_more() {
    let text = |gap: &str| {
        format!(
            "[template.debian.cloud_init]\nstorage = \"local\"\nuser_data = \"#cloud-config\\nx: {{{{ {gap} }}}}\\n\"\n"
        )
    };
    let nic = "[[template.debian.nic]]\nbridge = \"vmbr1\"\n";
    let network =
        "[network.lan]\nsubnet = \"192.0.2.0/24\"\nranges = [\"192.0.2.50-192.0.2.99\"]\n";
    let of_pool = |text: String| text.replace("max = 3", "max = 3\nnetwork = \"lan\"");
    for gap in ["nics[1].mac", "addresses[0]", "nics[0].addresses[0]"] {
        let said = messages(&with(&text(gap)));
        let wanted = "template.debian.cloud_init.user_data = ";
        let machine = "for machines of pool small, which by this file have 1 network card and no address known beforehand: line 2: ";
        assert!(
            said.iter()
                .any(|one| one.contains(wanted) && one.contains(machine)),
            "{gap}: {said:?}"
        );
    }
    for (gap, more) in [
        ("nics[1].mac", nic),
        ("nics[0].mac", ""),
        ("nameservers[0]", ""),
        ("ssh_keys[0]", ""),
    ] {
        settings(&with(&format!("{}{more}", text(gap))));
    }
    settings(&of_pool(with(&format!(
        "{}{network}",
        text("addresses[0]")
    ))));
    let two = of_pool(with(&format!("{}{network}", text("addresses[1]"))));
    let said = messages(&two);
    assert!(
        said[0].contains("have 1 network card and 1 address known beforehand"),
        "{said:?}"
    );
    // Without a pool nobody knows.
    let unused = with(&text("addresses[0]").replace("debian", "other")).replace(
        "[template.other.cloud_init]",
        "[template.other]\nvmid = 8001\n[template.other.cloud_init]",
    );
    settings(&unused);
}

#[test]
fn user_data_that_refuse_vendor_data_refuse_the_join() {
    let file = |delivery: &str, enabled: &str| {
        with(&format!(
            "[pool.small.join]\ndelivery = \"{delivery}\"\n[template.debian.cloud_init]\nstorage = \"local\"\nuser_data = \"#cloud-config\\nvendor_data: {{enabled: {enabled}}}\\n\"\n"
        ))
    };
    let said = messages(&file("cloud-init", "false"));
    assert!(
        said[0].contains("pool.small.join.delivery = \"cloud-init\": the join comes with cloud-init's vendor data"),
        "{said:?}"
    );
    settings(&file("cloud-init", "true"));
    settings(&file("guest-agent", "false"));
}

//! Storages of disks: a name, or a list of names.

use super::{SMALL, errors, messages, parse};

/// The small file with a template that is built, full clones, a further disk and ISOs for cloud-init, each with this value of a key for storages.
fn with(storage: &str) -> [(&'static str, String); 7] {
    let of = |lines: &str| SMALL.replace("vmid = 8000", lines);
    let built = |lines: &str| {
        of(&format!(
            "[template.debian.build]\nvmids = \"8000-8009\"\nvolume = \"local:import/a.qcow2\"\nkubernetes = \"1.34\"\n{lines}"
        ))
    };
    let beside = |key: &str| built(&format!("storage = \"fast\"\n{key} = {storage}"));
    let create = format!("bridge = \"vmbr0\"\n[template.debian.create]\nstorage = {storage}");
    let sized = "[instance_type.s]\ndisk = \"20GiB\"";
    let full = format!("vmid = 8000\nclone = \"full\"\nstorage = {storage}");
    let disk =
        format!("vmid = 8000\n[[template.debian.disk]]\nsize = \"10GiB\"\nstorage = {storage}");
    let isos = format!("vmid = 8000\n[template.debian.cloud_init]\nstorage = {storage}");
    [
        (
            "template.debian.build.storage",
            built(&format!("storage = {storage}")),
        ),
        (
            "template.debian.build.image_storage",
            beside("image_storage"),
        ),
        (
            "template.debian.build.snippet_storage",
            beside("snippet_storage"),
        ),
        ("template.debian.cloud_init.storage", of(&isos)),
        (
            "template.debian.create.storage",
            of(&create).replace("[instance_type.s]", sized),
        ),
        ("template.debian.storage", of(&full)),
        ("template.debian.disk.0.storage", of(&disk)),
    ]
}

#[test]
fn a_name_and_a_list_of_names_are_storages() {
    for storage in ["\"fast\"", "[\"fast\"]", "[\"fast\", \"slow\"]"] {
        for (key, text) in with(storage) {
            let settings = parse(&text, "test.toml");
            let settings = settings.unwrap_or_else(|errors| panic!("{key} = {storage}: {errors}"));
            let allowed = &settings.broker.allow.storages;
            // A VM of settings passes by its own rule, and the template of a build is made past the broker.
            if key.contains("create") || key.contains("build") {
                assert!(allowed.is_empty(), "{key}: {allowed:?}");
                continue;
            }
            let both = storage.contains("slow");
            let wanted: &[&str] = if both { &["fast", "slow"] } else { &["fast"] };
            if key.contains("cloud_init") {
                assert!(allowed.is_empty(), "{key}: {allowed:?}");
                assert_eq!(settings.broker.allow.iso_storages, *wanted, "{storage}");
                continue;
            }
            assert_eq!(*allowed, *wanted, "{key} = {storage}");
            if key.contains("disk") {
                let disks = &settings.broker.allow.pools["small"].disks["scsi1"];
                let disks: Vec<&str> = disks.iter().map(String::as_str).collect();
                let wanted: &[&str] = if both {
                    &["fast:10", "slow:10"]
                } else {
                    &["fast:10"]
                };
                assert_eq!(disks, wanted, "{storage}");
            }
        }
    }
}

#[test]
fn what_is_no_storage_is_told_with_its_key_value_and_line() {
    for (storage, said) in [
        ("[]", ": expected at least one storage's name"),
        ("\"\"", " = \"\": expected a storage's name"),
        ("\"a b\"", " = \"a b\": expected a storage's name"),
        ("[\"fast\", \"\"]", ".1 = \"\": expected a storage's name"),
        (
            "[\"fast\", \"-slow\"]",
            ".1 = \"-slow\": expected a storage's name",
        ),
        (
            "[\"fast\", \"slow\", \"fast\"]",
            ".2 = \"fast\": is named twice",
        ),
        ("7", " = 7: expected a storage's name such as"),
        ("[\"fast\", 7]", "expected "),
        ("{ first = \"fast\" }", "expected a storage's name such as"),
    ] {
        for (key, text) in with(storage) {
            let all = messages(&text);
            let told = format!("{key}{said}");
            let is_there =
                all.contains(&told) || (!said.starts_with([' ', '.', ':']) && all.contains(said));
            assert!(is_there, "{told:?} is not in {all}");
            let own = key.rsplit('.').next().expect("a key");
            let line = text
                .lines()
                .position(|line| line == format!("{own} = {storage}"));
            let line = line.expect("the key") + 1;
            let told = errors(&text);
            assert!(told.contains(&format!("test.toml:{line}:")), "{told}");
        }
    }
}

use super::super::tests::mark;
use super::*;
use crate::config;

const FILE: &str = r#"
version = 1
[kubernetes]
name = "test"
[proxmox]
vmids = "9100-9120"
[template.debian]
vmid = 9000
[instance_type.small]
cores = 2
memory = "4GiB"
[pool.p]
template = "debian"
instance_types = ["small"]
max = 3
annotations = { "example.org/owner" = "shop", "example.org/at" = "{{ host }}/{{ vmid }}" }
"#;

/// What is to change of a node that got its annotations by `before` on pve1, where `now` is in force and its VM on `host`.
fn found(before: Option<&str>, now: &str, host: &str) -> Option<(String, String)> {
    let settings = |file: &str| config::parse(file, "file").expect("it is valid");
    let then = before.map(|file| WrittenAnnotations::of(&settings(file), &mark(), &"pve1".into()));
    let written = Written {
        annotations: then,
        ..Written::default()
    };
    let change = change(&settings(now), &mark(), ("default", &host.into()), &written);
    change.map(|change| (change.is, change.wanted))
}

fn two(is: &str, wanted: &str) -> (String, String) {
    (is.to_owned(), wanted.to_owned())
}

#[test]
fn what_the_file_says_otherwise_is_told_and_nothing_else() {
    assert_eq!(found(Some(FILE), FILE, "pve1"), None);
    let other = FILE.replace("\"shop\"", "\"bank\"");
    assert_eq!(
        found(Some(FILE), &other, "pve1"),
        Some(two("example.org/owner=shop", "example.org/owner=bank"))
    );
    let fewer = FILE.replace("\"example.org/owner\" = \"shop\", ", "");
    assert_eq!(
        found(Some(FILE), &fewer, "pve1"),
        Some(two("example.org/owner=shop", ""))
    );
    // Another pool's machine, or one of a pool that is gone.
    let gone = FILE.replace("[pool.p]", "[pool.q]");
    assert_eq!(found(Some(FILE), &gone, "pve1"), None);
}

#[test]
fn what_names_the_host_follows_the_vm() {
    assert_eq!(
        found(Some(FILE), FILE, "pve2"),
        Some(two("example.org/at=pve1/9100", "example.org/at=pve2/9100"))
    );
    let plain = FILE.replace("{{ host }}/{{ vmid }}", "here");
    assert_eq!(found(Some(&plain), &plain, "pve2"), None);
}

/// An older program did not remember what it wrote: what the file says is written once more.
#[test]
fn what_was_written_before_anybody_remembered_is_written_once() {
    assert_eq!(
        found(None, FILE, "pve1"),
        Some(two("", "example.org/at=pve1/9100, example.org/owner=shop"))
    );
    let none = FILE.replace("annotations", "# annotations");
    assert_eq!(found(None, &none, "pve1"), None);
}

//! One mistake gets one message, and the message says how it is mended.

use super::{SMALL, messages};

fn with(after: &str, lines: &str) -> String {
    assert!(SMALL.contains(after));
    SMALL.replace(after, &format!("{after}\n{lines}"))
}

const NETWORK: &str = "[network.n]\nsubnet = \"192.0.2.0/24\"\n";

/// A file, and the only message about it.
#[test]
fn what_could_not_be_read_is_not_said_to_be_missing() {
    let matrix = "[instance_matrix.m]\ncores = [2]\nmemory_per_core = [2]\n";
    let notification = "[notification.n]\nkind = \"mail\"\nto = [\"root\"]\n[notification.n.quiet]\nto = \"07:00\"\ntime_zone = \"UTC\"\n";
    for (text, said) in [
        (
            format!("{SMALL}{NETWORK}ranges = [\"192.0.2.50-99\"]\n"),
            "network.n.ranges.0 = \"192.0.2.50-99\": expected addresses",
        ),
        (
            format!("{}{matrix}", SMALL.replace("[\"s\"]", "[\"s\", \"m\"]")),
            "instance_matrix.m.memory_per_core.0 = 2: expected a size",
        ),
        (
            SMALL.replace("template = \"debian\"", "templates = \"debian\""),
            "pool.small.templates = \"debian\": expected a list",
        ),
        (
            with("vmid = 8000", "startup = { up = 10 }"),
            "template.debian.startup.up = 10: expected a duration",
        ),
        (
            format!("{SMALL}{notification}from = 22\n"),
            "notification.n.quiet.from = 22: ",
        ),
        (
            format!("{SMALL}{notification}"),
            ": the key from is missing here",
        ),
    ] {
        let told = messages(&text);
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!(lines.len(), 1, "{text}: {told}");
        assert!(told.contains(said), "{said:?} is not in {told}");
    }
}

#[test]
fn sizes_in_powers_of_ten_and_slips_of_the_pen_are_told_with_what_is_meant() {
    for (memory, said) in [
        ("4G", "are 4000000000 bytes; expected whole MiB: 4GiB?"),
        ("4096MB", "are 4096000000 bytes; expected whole MiB: 4GiB?"),
        (
            "4000000001B",
            "are 4000000001 bytes; expected whole MiB: 3814MiB?",
        ),
        ("99999TiB", "expected at most 64TiB"),
        ("100MiB", "expected whole MiB, at least 512MiB"),
    ] {
        let told = messages(&SMALL.replace("4GiB", memory));
        assert!(told.contains(said), "{memory}: {told}");
    }
    let number = messages(&with("vmid = 8000", "vmid = 99999999999999999999"));
    assert!(!number.contains("i128"), "{number}");
}

#[test]
fn a_file_of_another_format_is_told_in_a_sentence() {
    for (text, format) in [
        ("# ours\nversion: 1\nproxmox:\n  host: a\n", "YAML"),
        ("---\nversion: 1\n", "YAML"),
        ("{\"version\": 1}", "JSON"),
    ] {
        let told = messages(text);
        assert_eq!(told.lines().count(), 1, "{told}");
        assert!(
            told.contains(&format!("this looks like {format}")),
            "{told}"
        );
    }
    let toml = messages("version = 1\n[proxmox\n");
    assert!(!toml.contains("looks like"), "{toml}");
}

#[test]
fn lines_that_end_with_cr_are_told_once() {
    let told = messages(&SMALL.replace('\n', "\r"));
    assert!(
        told.starts_with(": the file's lines end with CR; expected LF or CRLF"),
        "{told}"
    );
    assert_eq!(told.lines().count(), 1, "{told}");
    let some = SMALL.replacen('\n', "\r", 5);
    assert!(some.contains('\n'));
    let told = messages(&some);
    assert_eq!(told.matches("ends here with CR").count(), 1, "{told}");
    assert!(!told.contains("carriage return"), "{told}");
    assert_eq!(messages(&SMALL.replace('\n', "\r\n")), "");
}

#[test]
fn a_message_says_what_may_stand_there() {
    for (text, said) in [
        (
            with("vmid = 8000", "security_groups = [\"1st\"]"),
            "template.debian.security_groups.0 = \"1st\": expected a security group's name: 2 to 18 letters, digits, '-' and '_', a letter first",
        ),
        (
            with(
                "vmid = 8000",
                "firewall = false\nsecurity_groups = [\"web\"]",
            ),
            "template.debian.security_groups: the card does not pass through the firewall; expected firewall = true beside it",
        ),
        (
            SMALL.replace("cores = 2", "cores = 4294967295"),
            "instance_type.s.cores = 4294967295: expected at most 4096: QEMU gives no VM more",
        ),
        (
            SMALL.replace("cores = 2", "cores = 4097"),
            "instance_type.s.cores = 4097: expected at most 4096",
        ),
        (
            format!("{SMALL}[network.n]\nsubnet = \"010.0.0.0/24\"\nranges = [\"10.0.0.5\"]\n"),
            "network.n.subnet = \"010.0.0.0/24\": has leading zeros, which some programs take for octal numbers; expected 10.0.0.0/24, if that is meant",
        ),
        (
            format!("{SMALL}[network.n]\nsubnet = \"10.0.0.0/24\"\nranges = [\"010.0.0.8/29\"]\n"),
            "network.n.ranges.0 = \"010.0.0.8/29\": expected addresses",
        ),
        (
            with("vmid = 8000", "vlan = 70000"),
            "template.debian.vlan = 70000: expected a VLAN tag, 1 to 4094",
        ),
        (
            SMALL.replace("max = 3", "max = 5000000000"),
            "pool.small.max = 5000000000: expected a whole number, 0 to 5000",
        ),
        (
            with("vmid = 8000", "mtu = 70000"),
            "template.debian.mtu = 70000: expected a whole number, 0 to 65535",
        ),
        (
            format!("{SMALL}[pool.small.kubelet]\nswap = true\n"),
            "pool.small.kubelet.swap = true: expected one of \"fail\", \"none\", \"limited\", in quotes",
        ),
        (
            SMALL.replace("[pool.small]", "[[pool.small]]"),
            "pool.small = [[pool.small]]: expected a table: write [pool.small], in single brackets",
        ),
        (
            format!("{SMALL}[[pool.small.join]]\ndelivery = \"guest-agent\"\n"),
            "pool.small.join = [[pool.small.join]]: expected a table: write [pool.small.join], in single brackets",
        ),
        (
            format!("{SMALL}[template.debian.disk]\nstorage = \"a\"\nsize = \"1GiB\"\n"),
            "expected a list, found a table: write [[template.debian.disk]], in double brackets",
        ),
        (
            with("max = 3", "labels = [\"a=b\"]"),
            "pool.small.labels = [\"a=b\"]: expected a table, found a list",
        ),
    ] {
        let told = messages(&text);
        assert!(told.contains(said), "{said:?} is not in {told}");
    }
    let inline = messages(&with("max = 3", "labels = [\"a=b\"]"));
    assert!(!inline.contains("brackets"), "{inline}");
    let bare = messages(&SMALL.replace("\"4GiB\"", "4096"));
    assert!(
        !bare.contains("GB\""),
        "a unit that the next message would refuse: {bare}"
    );
}

/// A long list stands with the first problem in the text that has it, in whatever order they were found; another list is another one.
#[test]
fn a_long_list_of_names_is_told_once() {
    let text = with("vmid = 8000", "colour = 1\nshape = 2")
        + "[template.debian.options]\nfirst = 1\nsecond = 2\n";
    let told = messages(&text);
    let lines: Vec<&str> = told.lines().collect();
    for (key, listed) in [
        ("colour", true),
        ("shape", false),
        ("first", true),
        ("second", false),
    ] {
        let line = lines
            .iter()
            .find(|line| line.contains(&format!(".{key}: ")));
        let line = line.unwrap_or_else(|| panic!("{key}: {told}"));
        assert_eq!(line.ends_with(" here are told above"), !listed, "{line}");
        assert!(line.contains(" here are "), "{line}");
    }
}

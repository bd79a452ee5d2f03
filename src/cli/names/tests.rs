use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::*;

fn hasher() -> NameHasher {
    NameHasher::with_salt([7; 32])
}

/// What a sentence becomes, its tokens by one letter in the order in which they first come.
fn pattern(hasher: &NameHasher, file: &str, text: &str) -> String {
    let mut text = hasher.hashed(file, text);
    let tokens = hasher.tokens.borrow();
    let mut found: Vec<(usize, String)> = Vec::new();
    for ((kind, _), token) in &tokens.given {
        if let (TokenKind::Word, Some(at)) = (kind, text.find(token.as_str())) {
            found.push((at, token.clone()));
        }
    }
    found.sort();
    for ((_, token), letter) in found.into_iter().zip('A'..) {
        text = text.replace(&token, &letter.to_string());
    }
    text
}

#[test]
fn names_go_and_what_is_said_of_them_stays() {
    for (text, wanted) in [
        (
            "zorp/quux-7d4b9c6f5-x2x9k fits nowhere",
            "A/B-C-D fits nowhere",
        ),
        (
            "kube-system/quux-0: it is bound",
            "kube-system/A-0: it is bound",
        ),
        ("kube-system zorp-12345", "kube-system A-B"),
        (
            "machine zorp-bcdfg is gone: vmid=9000 host=pve7 node=zorp-bcdfg",
            "machine A-B is gone: vmid=9000 host=C node=A-B",
        ),
        (
            "cannot reach https://pve7.zorp.example.org:8006/api2/json",
            "cannot reach https://A.B.C.D:8006/api2/json",
        ),
        (
            "2026-11-28T23:23:11.123456+0100 zeus pve-autoscaler[1234]: the pool `backup` waits",
            "2026-11-28T23:23:11.123456+0100 A pve-autoscaler[1234]: the pool `backup` waits",
        ),
        (
            "v1.34.1+k3s1 6.8.12-4-pve 252.22-1~deb12u1 1h30m 4GiB 500m v1beta1 2026-11-24T14:00:00Z 9000-9999",
            "v1.34.1+k3s1 6.8.12-4-pve 252.22-1~deb12u1 1h30m 4GiB 500m v1beta1 2026-11-24T14:00:00Z 9000-9999",
        ),
        (
            "local-lvm:vm-9000-disk-0 on vmbr0, net0, 0 2 * * mon-fri, UPID:pve7:0000AB12:",
            "local-lvm:vm-9000-disk-0 on vmbr0, net0, 0 2 * * mon-fri, UPID:A:B:",
        ),
        ("zorp.io/team=quux:NoSchedule", "A.io/B=C:NoSchedule"),
        (r"a\nzorp\u00e4quux", r"a\nA\u00e4B"),
        ("root@pam and zorp@pam", "root@pam and A@pam"),
        ("registry.zorp/quux:1.2.3-secretly", "A.B/C:1.2.3-D"),
        ("Zürich has no node", "A has no node"),
    ] {
        let hasher = hasher();
        assert_eq!(pattern(&hasher, "journal.txt", text), wanted, "{text}");
    }
}

#[test]
fn addresses_become_others_of_their_kind() {
    let hasher = hasher();
    let hashed = |text: &str| hasher.hashed("journal.txt", text);
    for kept in [
        "127.0.0.1:8006",
        "[::1]:6443",
        "0.0.0.0",
        "255.255.255.0",
        "14:00:00",
    ] {
        assert_eq!(hashed(kept), kept);
    }
    let range = hashed("10.11.12.13-10.11.12.99");
    let (first, last) = range.split_once('-').expect("a range");
    for address in [first, last] {
        let address: std::net::Ipv4Addr = address.parse().expect("an address");
        assert!(address.octets()[0] >= 240, "{address}");
    }
    assert!(first.ends_with(".13") && last.ends_with(".99"), "{range}");
    let network = |address: &str| {
        address
            .rsplit_once('.')
            .map(|(network, _)| network.to_owned())
    };
    assert_eq!(network(first), network(last));
    assert_ne!(network(first), network(&hashed("10.11.13.1")));
    assert_eq!(
        hashed("https://10.11.12.13:6443/api"),
        format!("https://{first}:6443/api")
    );
    for text in [
        "2a01:4f8:1:2::5",
        "fe80::1",
        "2a01:4f8::/32",
        "at 2a01:4f8::5.",
    ] {
        let hashed = hashed(text);
        assert!(
            hashed.contains("2001:db8:") && !hashed.contains("4f8"),
            "{text}: {hashed}"
        );
    }
    assert_eq!(hashed("2A01:4F8:0:0::5"), hashed("2a01:4f8::5"));
    assert!(hashed("2a01:4f8::5").ends_with("::5"));
    assert!(!hashed("2a01:4f8::be24:11ff:fe12:3456").contains("3456"));
    let mac = hashed("BC:24:11:12:34:56");
    assert!(
        mac.starts_with("02:") && mac.len() == 17 && !mac.contains("12:34"),
        "{mac}"
    );
    assert_eq!(hashed("bc:24:11:12:34:56"), mac);
    let uuid = "01234567-89ab-4def-8123-0123456789ab";
    let other = hashed(uuid);
    assert!(other.len() == uuid.len() && other != uuid, "{other}");
    assert!(hashed(&format!("pvc-{uuid}")).ends_with(&format!("-{other}")));
}

/// Also where it is a part of a name, or without its end.
#[test]
fn no_number_of_an_address_is_left() {
    let hasher = hasher();
    for text in [
        "ip-10-203-77-41",
        "10-203-77-41",
        "ns3.ip-51-203-77.eu",
        "all of 10.203.77.x",
        "all of 51.203.77.x",
        "10.203.77",
        "172.16.203.x and 192.168.203",
        "1.10.203.77.41",
        "zorp-52-54-00-12-34-56",
        "mac:52:54:00:12:34:56",
    ] {
        let hashed = hasher.hashed("journal.txt", text);
        for number in ["203", "77", "52-54", "52:54", "34"] {
            assert!(!hashed.contains(number), "{text}: {hashed}");
        }
    }
    for kept in [
        "2026-11-24",
        "9000-9999",
        "1.34.1",
        "6.8.12-4-pve",
        "at 12:34:56",
    ] {
        assert_eq!(hasher.hashed("journal.txt", kept), kept);
    }
}

/// A pool that is called by a word of sentences is replaced in them as well, once a document has it as a name.
#[test]
fn a_name_that_is_a_word_is_learned() {
    let mut hasher = hasher();
    let line = "the registry is full";
    assert_eq!(hasher.hashed("journal.txt", line), line);
    hasher.learn("configuration.toml", "[pool.registry] # the volume\n");
    let hashed = hasher.hashed("journal.txt", line);
    assert!(
        !hashed.contains("registry") && hashed.ends_with(" is full"),
        "{hashed}"
    );
    assert_eq!(hasher.hashed("journal.txt", "a volume"), "a volume");
    hasher.learn(
        "status.json",
        r#"{"pools":{"volumes":"is full of volume"}}"#,
    );
    let hashed = hasher.hashed("journal.txt", "full of pools");
    assert_eq!(hashed, "full of pools", "fields and sentences are no names");
}

#[test]
fn two_bundles_have_no_token_in_common() {
    let other = NameHasher::with_salt([8; 32]);
    let text = "zorp quux-frob 10.11.12.13";
    let (one, other) = (hasher().hashed("a.txt", text), other.hashed("a.txt", text));
    for (one, other) in one.split([' ', '-']).zip(other.split([' ', '-'])) {
        assert_ne!(one, other);
    }
    assert_ne!(
        NameHasher::new().expect("randomness").salt,
        NameHasher::new().expect("randomness").salt
    );
}

#[test]
fn a_configuration_stays_one() {
    let text = "version = 1\n[proxmox]\nvmids = \"9000-9099\"\n[template.zorp]\nvmid = 8000\n[instance_type.frob]\ncores = 2\nmemory = \"4GiB\"\n[pool.quux] # of the zorp team\ntemplate = \"zorp\"\ninstance_types = [\"frob\"]\nmax = 5\nhosts = [\"pve7\"]\nlabels = { \"zorp.io/kind\" = \"quux\" }\n";
    crate::config::parse(text, "file").expect("it is valid");
    let mut hasher = hasher();
    hasher.learn("configuration.toml", text);
    let hashed = hasher.hashed("configuration.toml", text);
    crate::config::parse(&hashed, "file").unwrap_or_else(|errors| panic!("{errors}\n{hashed}"));
    for name in ["zorp", "frob", "quux", "pve7"] {
        assert!(!hashed.contains(name), "{hashed}");
    }
    assert!(
        hashed.contains("vmids = \"9000-9099\"") && hashed.contains(" # of the "),
        "{hashed}"
    );
}

#[test]
fn the_recipes_stay_valid_without_names() {
    let path = root().join("docs/recipes.md");
    let text = std::fs::read_to_string(path).expect("the recipes");
    let recipes = text.split("```toml\n").skip(1);
    let recipes = recipes.map(|rest| rest.split("```").next().unwrap_or_default());
    let valid: Vec<&str> = recipes
        .filter(|recipe| crate::config::parse(recipe, "file").is_ok())
        .collect();
    assert!(valid.len() > 5, "{} recipes", valid.len());
    for recipe in valid {
        let hashed = hasher().hashed("configuration.toml", recipe);
        crate::config::parse(&hashed, "file").unwrap_or_else(|errors| panic!("{errors}\n{hashed}"));
    }
}

#[test]
fn packages_of_pve_stay() {
    let hasher = hasher();
    let line = "libpve-zorp-perl: 8.2.0 (running kernel: 6.8.4-2-pve)\n";
    assert_eq!(hasher.hashed("versions/pve.txt", line), line);
    let line = "host zorp: 8 unknown\n";
    assert!(!hasher.hashed("versions/pve.txt", line).contains("zorp"));
}

proptest! {
    /// A word that nobody knows is left nowhere, whatever stands around it; a document in JSON is one after it.
    #[test]
    fn no_name_is_left(
        name in "[g-z]{3}q[g-z]{4}",
        before in "[ \",:{}\\[\\]=/.@_-]{0,3}",
        after in "[ \",}\\]:/.@_-]{0,3}",
        word in "[a-z0-9]{0,6}",
    ) {
        let text = format!("{word}{before}{name}{after}{word}");
        for file in ["journal.txt", "configuration.toml", "versions/pve.txt"] {
            // A word at its side makes another word of it, which is replaced as a whole.
            let hashed = hasher().hashed(file, &text);
            let package = file == "versions/pve.txt" && text.contains(": ");
            prop_assert!(package || !hashed.contains(&name), "{}: {}", file, hashed);
        }
        let document = serde_json::json!({ (&name): [&text, { "name": (&name) }] }).to_string();
        let hashed = hasher().hashed("a.json", &document);
        prop_assert!(!hashed.contains(&name), "{}", hashed);
        prop_assert!(serde_json::from_str::<Value>(&hashed).is_ok(), "{}", hashed);
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file of Rust below a folder but tests.
fn sources(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            if path.is_dir() && name != "tests" {
                folders.push(path);
            } else if path.extension().is_some_and(|is| is == "rs") && name != "tests.rs" {
                found.push(path);
            }
        }
    }
    found
}

fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).expect("a source");
    text.split("#[cfg(test)]\n")
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// Without its fields a document could not be read. A field that is missing in `kept.txt` is hashed, and belongs there.
#[test]
fn fields_and_words_of_documents_stay() {
    let mut missing = BTreeSet::new();
    for path in sources("src/model") {
        for line in code(&path).lines() {
            let field = line
                .strip_prefix("    pub ")
                .and_then(|line| line.split_once(": "));
            if let Some((field, _)) = field
                && !field.contains(['(', ' '])
                && !words::is_kept(field)
            {
                missing.insert(field.to_owned());
            }
        }
    }
    let look = |missing: &mut BTreeSet<String>, word: &str| {
        if !words::is_kept(word) {
            missing.insert(word.to_owned());
        }
    };
    for entry in std::fs::read_dir(root().join("contrib")).expect("a folder") {
        let path = entry.expect("an entry").path();
        if !path.to_string_lossy().ends_with(".schema.json") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a schema");
        let mut open: Vec<Value> = vec![serde_json::from_str(&text).expect("JSON")];
        while let Some(value) = open.pop() {
            for key in value
                .get("properties")
                .and_then(Value::as_object)
                .into_iter()
                .flat_map(|map| map.keys())
            {
                look(&mut missing, key);
            }
            for word in value
                .get("enum")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .chain(value.get("const"))
            {
                if let Some(word) = word.as_str() {
                    look(&mut missing, word);
                }
            }
            match value {
                Value::Object(map) => open.extend(map.into_iter().map(|(_, value)| value)),
                Value::Array(list) => open.extend(list),
                _ => {}
            }
        }
    }
    // What `doctor` calls that which it looks at is no enum.
    let probes = code(&root().join("src/cli/doctor/probes.rs"));
    let probes: Vec<&str> = probes
        .split("probe!(\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    assert!(probes.len() > 5, "{probes:?}");
    for word in probes.iter().flat_map(|name| name.split(' ')) {
        look(&mut missing, word);
    }
    assert!(
        missing.is_empty(),
        "add to src/cli/names/kept.txt: {missing:?}"
    );
}

/// The words of the program's messages are known, but for some: one that is missing in `sentences.txt` is hashed where it is said, which
/// costs a reader that word.
#[test]
fn most_words_of_our_messages_stay() {
    let hasher = hasher();
    let (mut all, mut unknown) = (0_u32, BTreeSet::new());
    for folder in [
        "src/controller",
        "src/brain",
        "src/model",
        "src/pve",
        "src/broker",
        "src/kubernetes",
    ] {
        for path in sources(folder) {
            for line in code(&path)
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"))
            {
                for said in line
                    .split('"')
                    .skip(1)
                    .step_by(2)
                    .filter(|said| said.matches(' ').count() > 2)
                {
                    for word in said
                        .split(' ')
                        .filter(|word| word.bytes().all(|byte| byte.is_ascii_lowercase()))
                    {
                        all += 1;
                        if hasher.hashed("journal.txt", word) != word {
                            unknown.insert(word.to_owned());
                        }
                    }
                }
            }
        }
    }
    assert!(all > 2_000, "{all} words");
    let many = u32::try_from(unknown.len()).expect("a number");
    assert!(
        many * 50 < all,
        "{many} of {all} words are not in src/cli/names/sentences.txt: {unknown:?}"
    );
}

/// Each list is sorted and has each word once, so that two who add to it do not meet; and nobody's example is in it.
#[test]
fn the_lists_are_in_order() {
    for text in [include_str!("kept.txt"), include_str!("sentences.txt")] {
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.is_sorted_by(|one, next| one < next));
        for name in ["shop", "payments", "workers", "acme", "pve1"] {
            assert!(!lines.contains(&name), "{name}");
        }
        // The table of somebody's pool or template, out of an example, would keep its name.
        for line in &lines {
            let mut parts = line.split('.');
            let table = parts.next().is_some_and(|table| {
                ["pool", "template", "instance_type", "region"].contains(&table)
            });
            let name = parts.next().filter(|_| table);
            assert!(name.is_none_or(words::is_kept), "{line}");
        }
    }
}

#[test]
fn metrics_keep_their_names_and_lose_those_of_others() {
    let text = "# HELP kpnodes_total Machines there are\nkpnodes_total 2.0\n\
        pve_autoscaler_machines{pool=\"zorp\",step=\"clone\"} 1.0\n\
        pve_autoscaler_holds{scope=\"region zorp\"} 1.0\n";
    let hashed = hasher().hashed("metrics.prom", text);
    assert!(!hashed.contains("zorp"), "{hashed}");
    for kept in [
        "# HELP kpnodes_total Machines there are\nkpnodes_total 2.0\n",
        "pve_autoscaler_machines{pool=\"x",
        "\",step=\"clone\"} 1.0\n",
        "pve_autoscaler_holds{scope=\"",
    ] {
        assert!(hashed.contains(kept), "{kept} is not in {hashed}");
    }
}

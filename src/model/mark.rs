//! The mark: the proof that a VM is ours, in the last line of its description.
//!
//! `pve-autoscaler:v1 {"cluster":…,"machine":…,"pool":…,…,"sum":…}`. Human text above it survives.
//! Tags are for people and prove nothing. A VM with a mark of an unknown version is left alone; a doubled
//! or edited one means quarantine. A copy of a VM carries its original's VMID and is seen by that.
//!
//! A newer version may write more fields into a mark of this version. They are kept, and prove nothing: what an older one must know of
//! before it touches the VM calls for another version of the mark.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::cpus::CpuSet;
use super::foreign::ForeignText;
use super::network::NicAddresses;
use super::shared::Shared;
use super::time::Time;
use super::tolerant::UnknownFields;

/// What every mark line of any version begins with.
pub const PREFIX: &str = "pve-autoscaler:";
/// The version this program writes.
pub const VERSION: &str = "v1";

/// The contents of a mark.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Mark {
    /// Our cluster id: kube-system's UID and the configured name, `uid/name`.
    pub cluster: String,
    /// The machine's name: VM name, host name in the guest and node name.
    pub machine: String,
    /// The VMID it was made with; a copy of the VM has another.
    pub vmid: u32,
    /// The pool it belongs to.
    pub pool: String,
    /// The instance type it was made as.
    pub instance_type: String,
    /// The template it was cloned from, or whose settings it was made of.
    pub template: String,
    /// The public part of its bootstrap token (`[a-z0-9]{6}`), so that a sweep finds the token; absent where it joins by
    /// itself, and empty here.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub token: String,
    /// When the intent was written.
    pub created: Time,
    /// The addresses that are reserved for it, by the number of the network card; absent where it gets none of ours.
    #[serde(default, skip_serializing_if = "NicAddresses::is_empty")]
    pub addresses: NicAddresses,
    /// The CPUs of its host that are reserved for it; absent where it runs on any.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    pub cpus: CpuSet,
    /// What a newer version wrote besides. It stays where the mark is written again.
    #[serde(flatten)]
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub unknown: UnknownFields,
}

/// What a description says about ownership.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ownership {
    /// No line of it is a mark: somebody else's VM.
    Unmarked,
    /// One intact mark in the last line. Whether it is *our* cluster's is the caller's question.
    Marked(Shared<Mark>),
    /// A mark of another version: the VM is left alone.
    UnknownVersion(ForeignText),
    /// Doubled, misplaced, edited or unreadable: quarantine. The text says what is wrong.
    Damaged(ForeignText),
}

impl Mark {
    /// The mark's line, without a newline.
    pub fn line(&self) -> String {
        let body = self.body();
        // The body is an object, so its last character is the closing brace.
        format!(
            "{PREFIX}{VERSION} {},\"sum\":\"{}\"}}",
            &body[..body.len() - 1],
            sum(&body)
        )
    }

    /// A description that carries this mark below `text` for people.
    pub fn describe(&self, text: &str) -> String {
        let text = text.trim_end();
        if text.is_empty() {
            self.line()
        } else {
            format!("{text}\n{}", self.line())
        }
    }

    fn body(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|_| "{}".to_owned())
    }
}

/// Twelve hex digits over the body: sees an edit, is no secret.
fn sum(body: &str) -> String {
    Sha256::digest(body.as_bytes())
        .iter()
        .take(6)
        .fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// What of a description people read: all above the line of a mark.
pub fn text_above(description: &str) -> &str {
    let text = description.trim_end();
    let (above, last) = text.rsplit_once('\n').unwrap_or(("", text));
    if last.trim().starts_with(PREFIX) {
        above.trim_end()
    } else {
        text
    }
}

/// Reads the ownership out of a VM's description.
pub fn read(description: &str) -> Ownership {
    let lines: Vec<&str> = description
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let marks: Vec<&str> = lines
        .iter()
        .copied()
        .filter(|line| line.starts_with(PREFIX))
        .collect();
    match marks.as_slice() {
        [] => Ownership::Unmarked,
        [one] if lines.last() == Some(one) => read_line(one),
        [_] => Ownership::Damaged("the mark is not the last line of the description".into()),
        many => Ownership::Damaged(format!("the description has {} marks", many.len()).into()),
    }
}

fn read_line(line: &str) -> Ownership {
    let rest = &line[PREFIX.len()..];
    let (version, text) = rest.split_once(' ').unwrap_or((rest, ""));
    if version != VERSION {
        return Ownership::UnknownVersion(version.into());
    }
    let Some(body) = body_of(text) else {
        return Ownership::Damaged("the mark was edited: its sum does not match".into());
    };
    match serde_json::from_str::<Mark>(&body) {
        Ok(mark) => Ownership::Marked(mark.into()),
        Err(error) => Ownership::Damaged(
            format!(
                "the mark is as it was written, and this version of pve-autoscaler cannot read it: {error}"
            )
            .into(),
        ),
    }
}

/// What a mark says, without its sum at the end; `None` where that is not the sum of the text as it stands, spelling and order too.
fn body_of(text: &str) -> Option<String> {
    let (head, told) = text.strip_suffix("\"}")?.rsplit_once(",\"sum\":\"")?;
    let body = format!("{head}}}");
    (sum(&body) == told).then_some(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark() -> Mark {
        Mark {
            cluster: "0b5f/home".into(),
            machine: "small-k3x9p".into(),
            vmid: 9001,
            pool: "small".into(),
            instance_type: "s2".into(),
            template: "debian-13".into(),
            token: "abc123".into(),
            created: Time(1_795_000_000_000),
            addresses: NicAddresses::new(),
            cpus: CpuSet::new(),
            unknown: [].into(),
        }
    }

    #[test]
    fn a_mark_survives_below_human_text() {
        let description = mark().describe("made for the shop\n\ncall Ann\n");
        assert!(description.starts_with("made for the shop\n\ncall Ann\npve-autoscaler:v1 {"));
        assert_eq!(read(&description), Ownership::Marked(mark().into()));
        assert_eq!(
            read(&(description.clone() + "\n\n")),
            Ownership::Marked(mark().into())
        );
        assert_eq!(read(&mark().line()), Ownership::Marked(mark().into()));
        assert_eq!(
            text_above(&description),
            "made for the shop\n\ncall Ann",
            "without the mark"
        );
        assert_eq!(text_above(&mark().line()), "");
        assert_eq!(text_above("call Ann\n"), "call Ann");
    }

    #[test]
    fn addresses_are_carried_and_a_mark_without_them_reads_as_before() {
        let line = mark().line();
        assert!(!line.contains("addresses"), "{line}");
        let addresses = ["192.0.2.50", "2001:db8::50"].map(|ip| ip.parse().expect("an address"));
        let with = Mark {
            addresses: [(0, addresses.to_vec())].into(),
            ..mark()
        };
        let line = with.line();
        let told = "\"addresses\":{\"0\":[\"192.0.2.50\",\"2001:db8::50\"]}";
        assert!(line.contains(told), "{line}");
        assert_eq!(read(&line), Ownership::Marked(with.into()));
        let edited = line.replace("2.50", "2.51");
        assert!(matches!(read(&edited), Ownership::Damaged(_)));
    }

    #[test]
    fn cpus_are_carried() {
        let with = Mark {
            cpus: CpuSet::read("2-5,10").expect("a list"),
            ..mark()
        };
        let line = with.line();
        assert!(line.contains("\"cpus\":\"2-5,10\""), "{line}");
        assert_eq!(read(&line), Ownership::Marked(with.into()));
        let edited = line.replace("2-5", "2-4");
        assert!(matches!(read(&edited), Ownership::Damaged(_)));
    }

    /// The line of a mark with this body.
    fn line_of(body: &str) -> String {
        let open = body.strip_suffix('}').expect("an object");
        format!("{PREFIX}{VERSION} {open},\"sum\":\"{}\"}}", sum(body))
    }

    /// A newer version writes fields that this one does not know, where it likes: the VM is ours all the same, and this version changes
    /// nothing about them when it writes the notes above.
    #[test]
    fn a_mark_of_a_newer_version_proves_the_same_and_stays_whole() {
        let known = mark().body();
        let (head, tail) = known.split_at(known.find("\"pool\"").expect("a field"));
        let tail = tail.strip_suffix('}').expect("an object");
        let body = format!("{head}\"shelf\":{{\"row\":[1,null,\"x\"]}},{tail},\"zeal\":0.5}}");
        let Ownership::Marked(read_mark) = read(&line_of(&body)) else {
            panic!("{:?}", read(&line_of(&body)));
        };
        let names: Vec<&str> = read_mark.unknown.keys().map(String::as_str).collect();
        assert_eq!(names, ["shelf", "zeal"]);
        let bare = Mark {
            unknown: UnknownFields::new(),
            ..(*read_mark).clone()
        };
        assert_eq!(bare, mark(), "what it proves");
        let again = read_mark.describe("other notes");
        let fields = |line: &str| {
            let body = line.lines().last().and_then(|last| last.split_once(' '));
            let mut value: serde_json::Value =
                serde_json::from_str(body.expect("a body").1).expect("JSON");
            value.as_object_mut().expect("an object").remove("sum");
            value
        };
        assert_eq!(fields(&again), fields(&line_of(&body)));
        assert_eq!(read(&again), Ownership::Marked(read_mark));
        // An edit is seen in these fields, too.
        let edited = line_of(&body).replace("0.5", "0.6");
        assert!(matches!(read(&edited), Ownership::Damaged(_)), "{edited}");
    }

    /// What this version must understand is not guessed: the mark is intact, and its sentence says whose fault that is.
    #[test]
    fn a_field_with_another_meaning_is_refused_in_words() {
        let body = mark().body().replace("9001", "[9001]");
        let Ownership::Damaged(why) = read(&line_of(&body)) else {
            panic!("it is taken");
        };
        assert!(
            why.starts_with("the mark is as it was written, and this version"),
            "{why}"
        );
        let body = mark().body().replace("\"pool\":\"small\",", "");
        assert!(matches!(read(&line_of(&body)), Ownership::Damaged(_)));
    }

    #[test]
    fn what_is_not_one_intact_last_line_is_not_ours() {
        let line = mark().line();
        assert_eq!(read("just a VM"), Ownership::Unmarked);
        assert_eq!(read(""), Ownership::Unmarked);
        assert_eq!(
            read(&line.replace("v1", "v7")),
            Ownership::UnknownVersion("v7".into())
        );
        for damaged in [
            format!("{line}\n{line}"),
            format!("{line}\ntext below"),
            line.replace("9001", "9002"),
            line.replace("home", "other"),
            "pve-autoscaler:v1 {}".to_owned(),
            "pve-autoscaler:v1 not json".to_owned(),
        ] {
            assert!(matches!(read(&damaged), Ownership::Damaged(_)), "{damaged}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "\\PC{0,200}") {
            let _ = read(&text);
            let _ = read(&format!("pve-autoscaler:{text}"));
        }

        #[test]
        fn any_single_edit_of_a_mark_is_seen(at in 0usize..400, with in "[a-z0-9]") {
            let line = mark().line();
            let at = at % line.len();
            if line.is_char_boundary(at) && line.is_char_boundary(at + 1) && line[at..=at] != with {
                let edited = format!("{}{with}{}", &line[..at], &line[at + 1..]);
                assert!(!matches!(read(&edited), Ownership::Marked(_)), "{edited}");
            }
        }
    }
}

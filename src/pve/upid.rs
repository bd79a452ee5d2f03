//! The id of a PVE task.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A task's id: `UPID:node:pid:pstart:starttime:type:id:user:`, the numbers in hexadecimal
/// (pve-common PVE/UPID.pm). It is kept as PVE wrote it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Upid {
    text: Arc<str>,
    node: Arc<str>,
    kind: Arc<str>,
    id: Arc<str>,
    user: Arc<str>,
    pid: u32,
    started: i64,
}

impl Upid {
    /// The host whose API knows the task: poll there.
    pub fn node(&self) -> &Arc<str> {
        &self.node
    }

    /// The task's type, such as `qmclone`.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// What it works on: the VMID of a VM's task, of the *source* for `qmclone`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Who started it; may be a token, `root@pam!name`.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Process id on the node.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// When it started, in seconds since the Unix epoch by the node's clock.
    pub fn started(&self) -> i64 {
        self.started
    }

    /// The whole id.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Why a text is no task id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read {0:?} as a PVE task id (UPID:node:pid:pstart:starttime:type:id:user:)")]
pub struct BadUpid(String);

impl FromStr for Upid {
    type Err = BadUpid;

    fn from_str(text: &str) -> Result<Upid, BadUpid> {
        parse(text).ok_or_else(|| BadUpid(text.chars().take(200).collect()))
    }
}

fn parse(text: &str) -> Option<Upid> {
    let parts: Vec<&str> = text.split(':').collect();
    let [
        "UPID",
        node,
        pid,
        pstart,
        started,
        kind,
        id,
        user,
        rest @ ..,
    ] = parts.as_slice()
    else {
        return None;
    };
    // A comment may follow the last colon; PVE itself writes none.
    let hex = |part: &str, most: usize| -> Option<i64> {
        let fits = (8..=most).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_hexdigit());
        fits.then(|| i64::from_str_radix(part, 16).ok())?
    };
    let name = |part: &str| {
        !part.is_empty()
            && part.starts_with(|c: char| c.is_ascii_alphanumeric())
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    let clean = |part: &str| !part.chars().any(|c| c.is_whitespace() || c == '/');
    hex(pstart, 9)?;
    if rest.len() > 1 || !name(node) || kind.is_empty() || !clean(kind) || !clean(id) {
        return None;
    }
    if user.is_empty() || !clean(user) || rest.iter().any(|rest| !clean(rest)) {
        return None;
    }
    Some(Upid {
        text: text.into(),
        node: (*node).into(),
        kind: (*kind).into(),
        id: (*id).into(),
        user: (*user).into(),
        pid: u32::try_from(hex(pid, 8)?).ok()?,
        started: hex(started, 8)?,
    })
}

impl fmt::Display for Upid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Upid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl serde::Serialize for Upid {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> serde::Deserialize<'de> for Upid {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Upid, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_parts_are_found() {
        let text = "UPID:pve-1:0003A1B2:00C3D4E5F:66F0A1B2:qmclone:9000:root@pam!t1:";
        let upid: Upid = text.parse().expect("a UPID");
        assert_eq!((&**upid.node(), upid.kind()), ("pve-1", "qmclone"));
        assert_eq!((upid.id(), upid.user()), ("9000", "root@pam!t1"));
        assert_eq!((upid.pid(), upid.started()), (0x3_a1b2, 0x66f0_a1b2));
        assert_eq!(upid.to_string(), text);
        let json = serde_json::to_string(&upid).expect("serialises");
        assert_eq!(serde_json::from_str::<Upid>(&json).expect("parses"), upid);
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in [
            "",
            "UPID:",
            "OK",
            "UPID:p:0003A1B2:00C3D4E5:66F0A1B2:qmclone:9000",
            "UPID:../x:0003A1B2:00C3D4E5:66F0A1B2:qmclone:9000:root@pam:",
            "UPID:p:xyz:00C3D4E5:66F0A1B2:qmclone:9000:root@pam:",
            "UPID:p:0003A1B2:00C3D4E5:66F0A1B2:qm/clone:9000:root@pam:",
            "UPID:p:0003A1B2:00C3D4E5:66F0A1B2:qmclone:90 00:root@pam:",
        ] {
            assert!(text.parse::<Upid>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "\\PC{0,120}", parts in "[A-Z0-9:@!a-z-]{0,80}") {
            let _ = text.parse::<Upid>();
            let _ = format!("UPID:{parts}").parse::<Upid>();
        }

        #[test]
        fn what_pve_writes_is_read_back(
            node in "[a-z][a-z0-9-]{0,20}", pid: u32, pstart in 0u64..0xf_ffff_ffff, start: u32,
            kind in "[a-z]{2,12}", id in "([0-9]{3,9})?", user in "[a-z]{1,8}@pam(![a-z0-9]{2,8})?",
        ) {
            let text = format!("UPID:{node}:{pid:08X}:{pstart:08X}:{start:08X}:{kind}:{id}:{user}:");
            let upid: Upid = text.parse().expect("a UPID");
            prop_assert_eq!(upid.as_str(), text.as_str());
            prop_assert_eq!(upid.pid(), pid);
            prop_assert_eq!(upid.started(), i64::from(start));
        }
    }
}

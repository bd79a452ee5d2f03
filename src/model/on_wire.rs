//! What was found on the wire: who has an address that machines may get, and is neither in PVE's configurations nor in Kubernetes.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::time::Time;

/// How it was seen that somebody has an address.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum HolderSign {
    /// Somebody answered the kernel's question who has it (ARP, neighbour discovery).
    Neighbour,
    /// The kernel knew somebody who had it, and did not hear whether that still holds.
    FormerNeighbour,
    /// Somebody took or refused a TCP connection to it.
    Tcp,
    /// It is an address of the host that asked.
    OwnHost,
}

/// Somebody who has an address, as the host of the daemon saw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddressHolder {
    /// How it was seen.
    pub sign: HolderSign,
    /// The MAC of the holder; `None` where it is not seen: behind a router, or on the host itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Arc<str>>,
    /// When it was seen.
    pub seen: Time,
    /// Until when no machine gets the address.
    pub until: Time,
}

impl fmt::Display for AddressHolder {
    /// What follows the address in a sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.sign {
            HolderSign::Neighbour => "answers on the wire",
            HolderSign::FormerNeighbour => "was in use on the wire a moment ago",
            HolderSign::Tcp => "answers over TCP",
            HolderSign::OwnHost => "is an address of the daemon's own host",
        })?;
        match &self.mac {
            Some(mac) => write!(f, " (MAC {mac})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_told_with_what_is_known_of_it() {
        let of = |sign, mac: Option<&str>| AddressHolder {
            sign,
            mac: mac.map(Into::into),
            seen: Time(1_000),
            until: Time(2_000),
        };
        let seen = of(HolderSign::Neighbour, Some("bc:24:11:00:00:01"));
        assert_eq!(
            seen.to_string(),
            "answers on the wire (MAC bc:24:11:00:00:01)"
        );
        assert_eq!(of(HolderSign::Tcp, None).to_string(), "answers over TCP");
        let text = serde_json::to_string(&of(HolderSign::OwnHost, None)).expect("plain data");
        assert!(
            text.starts_with("{\"sign\":\"own_host\",\"seen\":"),
            "{text}"
        );
        let read: AddressHolder = serde_json::from_str(&text).expect("it is one");
        assert_eq!(read, of(HolderSign::OwnHost, None));
    }
}

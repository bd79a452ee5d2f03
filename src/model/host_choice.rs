//! Why a machine comes to its host: what is decided when it is planned, and what is told of that later.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::hosts::{HostStrategy, share_permille};
use crate::time::Time;
use crate::words;

/// The host of a planned machine, and the one that its pool's strategy would have taken besides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostChoice {
    /// The host.
    pub host: Arc<str>,
    /// How the pool chooses among its hosts.
    pub strategy: HostStrategy,
    /// How the host stands, with the machines of the plan that come before this one.
    pub standing: HostStanding,
    /// Of the other hosts of its region that could take the machine the one that the strategy takes first; `None` where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<OtherHost>,
}

/// Another host that could take the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OtherHost {
    /// The host.
    pub host: Arc<str>,
    /// How it stands.
    pub standing: HostStanding,
    /// The strategy takes it before the machine's own host, which the machine's pods need or prefer, or which leaves room for
    /// the rest of the plan.
    pub comes_first: bool,
}

/// What strategies compare of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostStanding {
    /// Machines of the pool on it; those planned before count.
    pub machines: u64,
    /// Machines of the pool that this decision planned for it before.
    pub planned: u64,
    /// Guests that run on it, or will.
    pub guests: u64,
    /// Memory in bytes that its guests may still be promised.
    pub free_memory: i64,
    /// Memory in bytes that it has.
    pub memory: i64,
    /// CPU in millicores that its guests may still be promised; below zero where they are promised more than it has.
    pub free_cpu_milli: i64,
    /// CPU in millicores that it has.
    pub cpu_milli: i64,
    /// A machine of the pool failed there and none works since: the host is taken last.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
}

/// The decision that made a machine, as it was taken: hosts may stand otherwise since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostDecision {
    /// When the machine was planned.
    pub at: Time,
    /// Why its host was chosen, in words: those that `plan` has.
    pub why: String,
    /// The host on which it was made, and what was compared.
    pub choice: HostChoice,
}

impl HostDecision {
    /// The choice that a decision of this time made.
    pub fn new(at: Time, choice: HostChoice) -> HostDecision {
        let why = choice.to_string();
        HostDecision { at, why, choice }
    }
}

impl fmt::Display for HostDecision {
    /// Writes it as a clause: `made at 2026-11-23T16:02:11Z on pve3: spread: no machine of the pool, …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HostDecision { at, why, choice } = self;
        write!(f, "made at {at} on {}: {why}", choice.host)
    }
}

impl HostStanding {
    /// What a strategy looks at, in words.
    fn words(&self, strategy: HostStrategy) -> String {
        let memory = || format!("{} of memory free", words::bytes(self.free_memory));
        let of_pool = |number| match number {
            0 => "no machine of the pool".to_owned(),
            _ => format!("{} of the pool", words::count(number, "machine")),
        };
        let looked_at = match strategy {
            HostStrategy::Spread => format!("{}, {}", of_pool(self.machines), memory()),
            HostStrategy::MaxMemory => memory(),
            HostStrategy::MaxCpu => {
                format!(
                    "{} cores and {}",
                    words::cores(self.free_cpu_milli),
                    memory()
                )
            }
            HostStrategy::Balanced => format!(
                "{} of its memory and {} of its cores free",
                words::percent(share_permille(self.free_memory, self.memory)),
                words::percent(share_permille(self.free_cpu_milli, self.cpu_milli)),
            ),
            HostStrategy::RoundRobin => match self.planned {
                0 => "none planned for it yet".to_owned(),
                planned => format!("{planned} planned for it before"),
            },
            HostStrategy::Pack => match self.guests {
                0 => format!("no guest, {}", memory()),
                guests => format!("{}, {}", words::count(guests, "guest"), memory()),
            },
        };
        let failed = if self.failed {
            "; taken last, since a machine failed there"
        } else {
            ""
        };
        looked_at + failed
    }
}

impl fmt::Display for HostChoice {
    /// Writes it as a clause: `spread: no machine of the pool, 38Gi of memory free; pve2 has 1 machine of the pool, …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let strategy = self.strategy;
        write!(f, "{strategy}: {}", self.standing.words(strategy))?;
        match &self.other {
            None => f.write_str("; no other host of its region can take it"),
            Some(other) if other.comes_first => write!(
                f,
                "; {} would come first ({}), but for the machine's pods or the rest of the plan",
                other.host,
                other.standing.words(strategy)
            ),
            Some(other) => write!(
                f,
                "; next would be {} ({})",
                other.host,
                other.standing.words(strategy)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GI: i64 = 1 << 30;

    fn standing() -> HostStanding {
        HostStanding {
            machines: 1,
            planned: 0,
            guests: 3,
            free_memory: 48 * GI,
            memory: 64 * GI,
            free_cpu_milli: 2500,
            cpu_milli: 16_000,
            failed: false,
        }
    }

    #[test]
    fn each_strategy_tells_what_it_looks_at() {
        for (strategy, words) in [
            (
                HostStrategy::Spread,
                "1 machine of the pool, 48Gi of memory free",
            ),
            (HostStrategy::MaxMemory, "48Gi of memory free"),
            (HostStrategy::MaxCpu, "2.5 cores and 48Gi of memory free"),
            (
                HostStrategy::Balanced,
                "75 % of its memory and 15.6 % of its cores free",
            ),
            (HostStrategy::RoundRobin, "none planned for it yet"),
            (HostStrategy::Pack, "3 guests, 48Gi of memory free"),
        ] {
            assert_eq!(standing().words(strategy), words, "{strategy}");
        }
    }

    #[test]
    fn the_host_that_would_have_come_instead_is_named() {
        let mut choice = HostChoice {
            host: "pve1".into(),
            strategy: HostStrategy::Pack,
            standing: standing(),
            other: None,
        };
        let says = |choice: &HostChoice, end: &str| {
            let told = choice.to_string();
            assert_eq!(told, format!("pack: 3 guests, 48Gi of memory free; {end}"));
        };
        says(&choice, "no other host of its region can take it");
        let empty = HostStanding {
            guests: 0,
            failed: true,
            ..standing()
        };
        choice.other = Some(OtherHost {
            host: "pve2".into(),
            standing: empty,
            comes_first: false,
        });
        says(
            &choice,
            "next would be pve2 (no guest, 48Gi of memory free; taken last, since a machine failed there)",
        );
        choice.other = Some(OtherHost {
            host: "pve2".into(),
            standing: standing(),
            comes_first: true,
        });
        says(
            &choice,
            "pve2 would come first (3 guests, 48Gi of memory free), but for the machine's pods or the rest of the plan",
        );
    }

    /// What is kept of a choice has its words with it, and is read as it was written.
    #[test]
    fn a_decision_says_when_and_on_which_host_it_made_the_machine() {
        let choice = HostChoice {
            host: "pve3".into(),
            strategy: HostStrategy::Pack,
            standing: standing(),
            other: None,
        };
        let made = HostDecision::new(Time(1_795_000_000_000), choice);
        assert_eq!(
            made.to_string(),
            "made at 2026-11-18T11:06:40Z on pve3: pack: 3 guests, 48Gi of memory free; no other host of its region can take it"
        );
        let json = serde_json::to_value(&made).expect("plain data");
        assert_eq!(json["why"], made.choice.to_string());
        assert_eq!(json["choice"]["host"], "pve3");
        let read: HostDecision = serde_json::from_value(json).expect("read");
        assert_eq!(read, made);
    }
}

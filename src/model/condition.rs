//! Conditions in which a person must act: which there are, how grave each is, and how long it must hold before
//! anybody is told. Each has an alert for Prometheus (`tests/config/main.rs` compares the two).

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::foreign::ForeignText;
use crate::time::{Span, Time};

/// How grave a condition is.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Nothing is made or removed any more.
    Critical,
    /// Somebody should look today.
    Warning,
    /// Somebody should know.
    Info,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Critical => "critical",
            Severity::Warning => "warning",
            Severity::Info => "info",
        })
    }
}

/// Who knows whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knows {
    /// Every instance, of itself.
    Each,
    /// The instance that leads; the others leave it to that one.
    Leader,
}

/// What a kind of condition is.
#[derive(Clone, Copy, Debug)]
struct ConditionTraits {
    name: &'static str,
    severity: Severity,
    knows: Knows,
    /// It holds so long before anybody is told.
    patience: Span,
    /// The alert for Prometheus that tells of the same.
    alert: &'static str,
}

/// One line per kind: variant, name, severity, who knows, patience in minutes, alert, and what it is.
macro_rules! kinds {
    ($($kind:ident $name:literal $severity:ident $knows:ident $minutes:literal $alert:literal, $doc:literal;)*) => {
        /// A kind of condition.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum ConditionKind {
            $(#[doc = $doc] $kind,)*
        }

        impl ConditionKind {
            /// Every kind, with what it is in a sentence.
            pub const ALL: &[(ConditionKind, &str)] = &[$((ConditionKind::$kind, $doc),)*];

            fn about(self) -> ConditionTraits {
                match self {
                    $(ConditionKind::$kind => ConditionTraits {
                        name: $name,
                        severity: Severity::$severity,
                        knows: Knows::$knows,
                        patience: Span::minutes($minutes),
                        alert: $alert,
                    },)*
                }
            }
        }
    };
}

kinds! {
    NoLeader "no_leader" Critical Each 10 "PveAutoscalerNoLeader",
        "No instance holds the lease: nothing is made or removed.";
    HeldBack "held_back" Critical Leader 15 "PveAutoscalerHeldBack",
        "Everything is on hold, and nobody paused it.";
    LoopEnded "loop_ended" Critical Each 5 "PveAutoscalerLoopEnded",
        "The control loop cannot begin or go on, such as when the state directory cannot be written.";
    RegionHeldBack "region_held_back" Warning Leader 15 "PveAutoscalerRegionHeldBack",
        "Nothing is done in a region.";
    ViewOld "view_old" Warning Leader 10 "PveAutoscalerViewOld",
        "Kubernetes or a region cannot be read: its API is away, or refuses the credentials.";
    PoolBacksOff "pool_backs_off" Warning Leader 15 "PveAutoscalerPoolBacksOff",
        "Machines of a pool fail, and it waits before it tries again.";
    HostBacksOff "host_backs_off" Warning Leader 30 "PveAutoscalerHostBacksOff",
        "Machines of a pool fail on a host, and the pool leaves that host out.";
    PoolBelowMin "pool_below_min" Warning Leader 15 "PveAutoscalerPoolBelowMin",
        "A pool has fewer nodes than its `min`, and no machine may be made.";
    TemplateFault "template_fault" Warning Leader 15 "PveAutoscalerTemplateFault",
        "A template has a fault, and no machine is made of it.";
    RemovalStuck "removal_stuck" Warning Leader 120 "PveAutoscalerRemovalStuck",
        "A machine cannot be removed.";
    Contradiction "contradiction" Warning Leader 10 "PveAutoscalerContradiction",
        "Node and VM of a machine contradict each other, and it is left alone.";
    PodsHeld "pods_held" Warning Leader 15 "PveAutoscalerPodsHeld",
        "Pods wait for a node that may not be made: a limit, a back-off or a lack of room.";
    PodsWithoutPool "pods_without_pool" Info Leader 15 "PveAutoscalerPodsWithoutPool",
        "Pods wait that no pool could ever run.";
    CredentialsEnd "credentials_end" Warning Each 0 "PveAutoscalerCredentialsEnd",
        "The kubeconfig's certificate ends soon or has ended, or the kubeconfig cannot be used.";
    ConfigurationInvalid "configuration_invalid" Warning Each 15 "PveAutoscalerConfigurationInvalid",
        "The configuration file has errors.";
    BrokerDisagrees "broker_disagrees" Warning Each 15 "PveAutoscalerBrokerDisagrees",
        "Daemon and broker do not agree, or the broker works badly.";
    HostClock "host_clock" Warning Leader 15 "PveAutoscalerHostClock",
        "The clock of a host is wrong.";
    Crashed "crashed" Warning Each 0 "PveAutoscalerCrashed",
        "The daemon ended by a fault of its own and was started anew.";
    DaemonFiles "daemon_files" Warning Each 15 "PveAutoscalerDaemonFiles",
        "A file of the daemon's cannot be used: of the journal, of the page's certificate or users.";
    NotificationFails "notification_fails" Warning Each 30 "PveAutoscalerNotificationFails",
        "Another notification cannot be sent.";
    NotRecording "not_recording" Warning Each 0 "PveAutoscalerNotRecording",
        "Decisions are not recorded.";
    Paused "paused" Info Leader 720 "PveAutoscalerPaused",
        "Somebody paused it half a day ago.";
    Warnings "warnings" Info Leader 60 "PveAutoscalerWarnings",
        "There are warnings, such as damaged marks or foreign VMs in the range.";
}

/// What is gone comes back within this time when it only flickers.
const CALM: Span = Span::minutes(2);
/// How long a condition that comes of failed attempts must be away before it counts as over: another attempt lies between.
const CALM_OF_FAILURES: Span = Span::minutes(10);

impl ConditionKind {
    /// The condition's name, as in JSON.
    pub fn name(self) -> &'static str {
        self.about().name
    }

    /// How grave it is.
    pub fn severity(self) -> Severity {
        self.about().severity
    }

    /// Who knows of it.
    pub fn knows(self) -> Knows {
        self.about().knows
    }

    /// It holds so long before anybody is told.
    pub fn patience(self) -> Span {
        self.about().patience
    }

    /// The alert for Prometheus that tells of the same.
    pub fn alert(self) -> &'static str {
        self.about().alert
    }

    /// It is over when it was not seen for so long.
    pub fn calm(self) -> Span {
        match self {
            ConditionKind::PoolBacksOff | ConditionKind::HostBacksOff => CALM_OF_FAILURES,
            _ => CALM,
        }
    }

    /// Whether it is about pods that wait, which has a patience of its own in the configuration.
    pub fn of_pods(self) -> bool {
        matches!(
            self,
            ConditionKind::PodsHeld | ConditionKind::PodsWithoutPool
        )
    }
}

/// Something that a person must do something about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// Which condition holds.
    pub kind: ConditionKind,
    /// Whom it concerns, such as a pool; empty where there is only one.
    pub subject: ForeignText,
    /// What is wrong, in a sentence.
    pub summary: ForeignText,
    /// The fault behind it and the like; may be empty.
    pub details: ForeignText,
    /// What to do.
    pub todo: ForeignText,
    /// Since when it holds, where that is known better than by having seen it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

impl Condition {
    /// What tells it from others, such as `pool_backs_off/workers`.
    pub fn key(&self) -> String {
        let kind = self.kind.name();
        if self.subject.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind}/{}", self.subject)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_called_as_in_json() {
        for (kind, _) in ConditionKind::ALL {
            let json = serde_json::to_value(kind).expect("plain data");
            assert_eq!(json, kind.name());
            let severity = serde_json::to_value(kind.severity()).expect("plain data");
            assert_eq!(severity, kind.severity().to_string());
        }
    }
}

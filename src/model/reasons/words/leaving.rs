//! Why a node goes or is replaced, in words.

use std::fmt::{self, Display, Formatter};

use crate::reasons::{Aborted, FateReason, Removed, Replacing};
use crate::words::price;

use super::Joined;

impl Display for Removed {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Removed::UnderWay { reason: None } => write!(f, "it is being taken down"),
            Removed::UnderWay {
                reason: Some(reason),
            } => write!(f, "{reason}; it is being taken down"),
            Removed::Planned { reason } => reason.fmt(f),
        }
    }
}

impl Display for Replacing {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Replacing::OnItsWay { by, saving } => write!(
                f,
                "{by} is on its way up to replace it and saves {} an hour",
                price(*saving)
            ),
            Replacing::Planned {
                by,
                offer,
                nodes,
                saving,
            } => write!(
                f,
                "{by} ({offer}) will replace {} and saves {} an hour",
                Joined(nodes.iter(), ", "),
                price(*saving)
            ),
        }
    }
}

impl Display for Aborted {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Aborted::Kept { reason, kept } => write!(f, "{reason}: {kept}"),
            Aborted::NotWanted => write!(f, "it is not wanted any more"),
        }
    }
}

impl Display for FateReason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            FateReason::Blocked { blocked } => blocked.fmt(f),
            FateReason::Unplaced { kept } => kept.fmt(f),
            FateReason::OnceMachineWorks => write!(f, "once the machine made for it works"),
            FateReason::SuccessorThere {
                successor,
                node: Some(node),
            } => write!(
                f,
                "its controller made {successor} in its place, which is on {node}"
            ),
            FateReason::SuccessorThere {
                successor,
                node: None,
            } => write!(
                f,
                "its controller made {successor} in its place, which has no node yet"
            ),
            FateReason::SuccessorComes { to } => write!(
                f,
                "its controller makes another once it is gone, which has a place on {to}"
            ),
        }
    }
}
